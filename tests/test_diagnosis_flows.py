"""Repairs of order and flow, and experiments on the reference: each names its fault in a small kernel, and no other.

The oracle is the float64 reference of each kernel, written in NumPy here; a repair is right where the repaired kernel
gives what the reference gives.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from execute_kit import Kernel
from nl_kernels import nisa, nl
from numpy.typing import NDArray

from nkireview.checks.dataflow import Dataflow
from nkireview.diagnosis import flows
from nkireview.diagnosis.flows import Explanation
from nkireview.diagnosis.repair import Repair
from nkireview.execute import execute
from nkireview.isa.enums import Memory
from nkireview.isa.release import Release
from nkireview.isa.table import ROWS
from nkireview.nki.tensor import NkiTensor
from nkireview.nki.trace import Trace, tracing
from nkireview.program.model import Header, Output
from nkireview.program.program import Program
from nkireview.program.tree import Group, TensorLeaf
from nkireview.program.verify import verify

Array = NDArray[Any]
Reference = Callable[[Sequence[Array]], list[Array]]


@dataclass(frozen=True)
class Problem:
    program: Program
    arguments: dict[int, Array]
    reference: Reference

    def run(self, repair: Repair | None = None) -> list[Array]:
        program = repair.program if repair else self.program
        given = {**self.arguments, **(repair.arguments if repair else {})}
        around = repair.around if repair else None
        found = execute(program, given, compute=np.float64, rounding="off", around=around)
        assert not found.faults, [fault.message for fault in found.faults]
        return [output.values.astype(np.float64) for output in found.outputs]

    @property
    def wanted(self) -> list[Array]:
        return self.reference(list(self.arguments.values()))

    def repairs(self) -> list[Repair]:
        return list(flows.repairs(Dataflow.of(self.program, ROWS), self.arguments))

    def hits(self) -> list[Repair]:
        """The repairs that make the kernel right; it must be wrong."""
        assert not same(self.run(), self.wanted)
        return [repair for repair in self.repairs() if same(self.run(repair), self.wanted)]

    @property
    def causes(self) -> set[str]:
        return {repair.cause for repair in self.hits()}

    def explanations(self) -> list[Explanation]:
        return list(flows.explanations(self.program, self.arguments, self.run(), self.wanted, self.reference))


def same(mine: Sequence[Array], other: Sequence[Array]) -> bool:
    return len(mine) == len(other) and all(
        np.allclose(a, b, rtol=1e-9, atol=1e-9) for a, b in zip(mine, other, strict=True)
    )


def problem(kernel: Callable[..., Any], reference: Callable[..., Any], *arrays: Array) -> Problem:
    """A kernel in the language, which returns tensors in HBM; it must be legal."""
    trace = Trace("trn2", Release(0, 6))
    with tracing(trace):
        buffers = [trace.buffer(Memory.shared_hbm, each.shape, each.dtype.name) for each in arrays]
        with trace.builder.stream():
            result = kernel(*(NkiTensor.whole(trace, buffer) for buffer in buffers))
    names = tuple(inspect.signature(kernel).parameters)[: len(arrays)]
    tree = Group("tuple", names, tuple(TensorLeaf(buffer.id) for buffer in buffers))
    returned = result if isinstance(result, tuple) else (result,)
    outputs = tuple(Output(each.access(), None, f"out{at}") for at, each in enumerate(returned))
    header = Header("k", "trn2", "0.6", sources=tuple(trace.places.sources))
    program = trace.builder.finish(header, tree, outputs)
    assert verify(program) == ()
    return Problem(program, {b.id: each for b, each in zip(buffers, arrays, strict=True)}, called(reference))


def called(reference: Callable[..., Any]) -> Reference:
    def call(given: Sequence[Array]) -> list[Array]:
        found = reference(*(each.astype(np.float64) for each in given))
        return list(found) if isinstance(found, tuple) else [found]

    return call


def drawn(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def loaded(source: Any) -> Any:
    tile = nl.ndarray(source.shape, source.dtype)
    nisa.dma_copy(dst=tile, src=source)
    return tile


def tile(*shape: int, dtype: Any = nl.float32) -> Any:
    return nl.ndarray(shape, dtype)


def psum(*shape: int) -> Any:
    return nl.ndarray(shape, nl.float32, buffer=nl.psum)


def hbm(*shape: int, dtype: Any = nl.float32) -> Any:
    return nl.ndarray(shape, dtype, buffer=nl.shared_hbm)


def stored(source: Any) -> Any:
    """A tensor in HBM with what a tile holds."""
    if nl.is_psum(source.buffer):
        held = tile(*source.shape, dtype=source.dtype)
        nisa.tensor_copy(dst=held, src=source)
        source = held
    out = hbm(*source.shape, dtype=source.dtype)
    nisa.dma_copy(dst=out, src=source)
    return out


# Arguments.


def subtracted(a: Any, b: Any) -> Any:
    left, right = loaded(a), loaded(b)
    nisa.tensor_tensor(dst=left, data1=left, data2=right, op=nl.subtract)
    return stored(left)


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        (lambda a, b: a.T - b, "a is used transposed"),
        (lambda a, b: a - b.T, "b is used transposed"),
        (lambda a, b: a.T - b.T, "a and b are used transposed"),
        (lambda a, b: b - a, "a and b are taken for each other"),
        (lambda a, b: a[::-1] - b, "rows of a are taken in reverse order"),
        (lambda a, b: a - b[:, ::-1], "columns of b are taken in reverse order"),
    ],
)
def test_an_operand_that_is_taken_another_way(reference: Callable[..., Array], words: str) -> None:
    found = problem(subtracted, reference, drawn(16, 16), drawn(16, 16, seed=1)).hits()
    assert [repair.cause for repair in found] == ["operand-transposed"]
    assert found[0].sentence.startswith(words)


def test_an_operand_that_is_read_in_the_order_of_its_transpose() -> None:
    kernel = problem(subtracted, lambda a, b: a.T.reshape(12, 8) - b, drawn(12, 8), drawn(12, 8, seed=1))
    (found,) = kernel.hits()
    assert found.sentence == "a [12, 8] is read as if its rows and columns were exchanged in memory"


def test_another_difference_is_no_matter_of_arguments() -> None:
    kernel = problem(subtracted, lambda a, b: a - 2 * b, drawn(16, 16), drawn(16, 16, seed=1))
    assert kernel.hits() == [] and kernel.explanations() == []


# Sums.

K, ROWS_OF, COLUMNS = 96, 64, 24


def product(
    a: Any,
    b: Any,
    *,
    accumulate: Callable[[int], bool | None] = lambda at: at > 0,
    shared: bool = False,
) -> Any:
    """a.T @ b in tiles of 32 of K and of 32 rows, one tile of PSUM for all rows where it is shared."""
    out = hbm(ROWS_OF, COLUMNS)
    once = psum(32, COLUMNS)
    for row in range(0, ROWS_OF, 32):
        total = once if shared else psum(32, COLUMNS)
        for at in range(K // 32):
            left = loaded(a[32 * at : 32 * at + 32, row : row + 32])
            right = loaded(b[32 * at : 32 * at + 32, :])
            nisa.nc_matmul(dst=total, stationary=left, moving=right, accumulate=accumulate(at))
        held = tile(32, COLUMNS)
        nisa.tensor_copy(dst=held, src=total)
        nisa.dma_copy(dst=out[row : row + 32, :], src=held)
    return out


def summed(a: Any, b: Any, *, early: bool = False, reset: bool = True, part: int = 32) -> Any:
    """a.T @ b added up in SBUF; cleared at each step, or never again."""
    out = hbm(ROWS_OF, COLUMNS)
    total = tile(32, COLUMNS)
    nisa.memset(dst=total, value=0.0)
    for row in range(0, ROWS_OF, part):
        here = total[0:part, :]
        if reset and row:
            nisa.memset(dst=total, value=0.0)
        for at in range(K // 32):
            if early:
                nisa.memset(dst=total, value=0.0)
            left = loaded(a[32 * at : 32 * at + 32, row : row + part])
            right = loaded(b[32 * at : 32 * at + 32, :])
            each = psum(part, COLUMNS)
            nisa.nc_matmul(dst=each, stationary=left, moving=right)
            nisa.tensor_tensor(dst=here, data1=here, data2=each, op=nl.add)
        held = tile(part, COLUMNS)
        nisa.tensor_copy(dst=held, src=here)
        nisa.dma_copy(dst=out[row : row + part, :], src=held)
    return out


def by(kernel: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    def made(a: Any, b: Any) -> Any:
        return kernel(a, b, **options)

    return made


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        (by(product, shared=True, accumulate=lambda at: None), "without a fresh start"),
        (by(product, accumulate=lambda at: False), "only the last part is left"),
        (by(summed, reset=False), "without a fresh start"),
        (by(summed, reset=False, part=16), "without a fresh start"),
        (by(summed, early=True), "clears a sum that nothing has read yet"),
    ],
)
def test_a_sum_that_begins_anew_at_the_wrong_time(kernel: Callable[..., Any], words: str) -> None:
    found = problem(kernel, lambda a, b: a.T @ b, drawn(K, ROWS_OF), drawn(K, COLUMNS, seed=1)).hits()
    assert [repair.cause for repair in found] == ["stale-accumulator"]
    assert words in found[0].sentence and "test_diagnosis_flows.py:" in found[0].sentence


@pytest.mark.parametrize("kernel", [by(product), by(product, shared=True), by(summed), by(summed, part=16)])
def test_right_sums_are_not_suspected(kernel: Callable[..., Any]) -> None:
    right = problem(kernel, lambda a, b: a.T @ b, drawn(K, ROWS_OF), drawn(K, COLUMNS, seed=1))
    assert same(right.run(), right.wanted)
    assert [each for each in right.repairs() if each.cause == "stale-accumulator"] == []


def test_a_stale_sum_in_a_device_loop() -> None:
    kernel = Kernel()
    left, right = kernel.load(drawn(8, 4)), kernel.load(drawn(8, 6, seed=1))
    total, part = kernel.sbuf(4, 6), kernel.psum(4, 6)
    kernel.call("memset", dst=total, value=0.0)
    kernel.matmul(part, left, right)
    kernel.call("tensor_tensor", dst=total, data1=total, data2=part, op="add")
    with kernel.loop(2):
        kernel.matmul(part, left, right)
        kernel.call("tensor_tensor", dst=total, data1=total, data2=part, op="add")
    kernel.store(total)
    found = Problem(kernel.program(), kernel.arguments, called(lambda a, b: 3 * (a.T @ b)))
    assert same(found.run(), [2 * each for each in found.wanted])
    (repair,) = found.hits()
    assert repair.cause == "stale-accumulator" and "nc_matmul (kernel.py:12)" in repair.sentence


def test_an_around_may_be_used_again() -> None:
    kernel = by(summed, reset=False)
    found = problem(kernel, lambda a, b: a.T @ b, drawn(K, ROWS_OF), drawn(K, COLUMNS, seed=1))
    (repair,) = found.hits()
    assert same(found.run(repair), found.wanted) and same(found.run(repair), found.run(repair))


# Masks and reductions.

MASK = (np.random.default_rng(9).random((32, 40)) < 0.6).astype(np.float32)


def weighted(x: Any, mask: Any, *, how: str) -> Any:
    """exp(x) and its row sums, one of them masked in various ways; then the quotient."""
    rows, columns = x.shape
    values, keep = loaded(x), loaded(mask)
    weights, total = tile(rows, columns), tile(rows, 1)
    masked = weights if how in ("in place", "late in place") else tile(rows, columns)
    if how in ("fused late", "fused"):
        nisa.activation(
            dst=weights,
            op=nl.exp,
            data=values,
            reduce_op=nl.add,
            reduce_res=total,
            reduce_cmd=nisa.reduce_cmd.reset_reduce,
        )
    else:
        nisa.activation(dst=weights, op=nl.exp, data=values)
    if how in ("late", "late in place"):
        nisa.tensor_reduce(dst=total, op=nl.add, data=weights, axis=(1,), keepdims=True)
    if how == "copied":
        other = tile(rows, columns)
        nisa.tensor_tensor(dst=other, data1=weights, data2=keep, op=nl.multiply)
        nisa.tensor_copy(dst=masked, src=other)
    elif how == "predicated":
        whole = tile(rows, columns, dtype=nl.uint8)
        nisa.tensor_copy(dst=whole, src=keep)
        nisa.memset(dst=masked, value=0.0)
        nisa.tensor_copy_predicated(dst=masked, src=weights, predicate=whole)
    else:
        nisa.tensor_tensor(dst=masked, data1=keep, data2=weights, op=nl.multiply)
    if how in ("early", "in place", "copied"):
        nisa.tensor_reduce(dst=total, op=nl.add, data=masked, axis=(1,), keepdims=True)
    nisa.reciprocal(dst=total, data=total)
    nisa.tensor_scalar(dst=masked, data=masked, op0=nl.multiply, operand0=total)
    return stored(masked)


def summed_before(x: Array, mask: Array) -> Array:
    return np.exp(x) * mask / np.exp(x).sum(axis=1, keepdims=True)


def summed_after(x: Array, mask: Array) -> Array:
    return np.exp(x) * mask / (np.exp(x) * mask).sum(axis=1, keepdims=True)


@pytest.mark.parametrize(
    ("how", "reference"),
    [
        ("early", summed_before),
        ("in place", summed_before),
        ("copied", summed_before),
        ("late", summed_after),
        ("late in place", summed_after),
        ("fused late", summed_after),
    ],
)
def test_a_sum_on_the_wrong_side_of_a_mask(how: str, reference: Callable[..., Array]) -> None:
    def kernel(x: Any, mask: Any) -> Any:
        return weighted(x, mask, how=how)

    assert problem(kernel, reference, drawn(32, 40), MASK).causes == {"sum-after-mask"}


@pytest.mark.parametrize(
    ("how", "reference"),
    [("early", summed_after), ("late", summed_before), ("fused", summed_before)],
)
def test_a_sum_on_the_right_side_matches_nothing_else(how: str, reference: Callable[..., Array]) -> None:
    def kernel(x: Any, mask: Any) -> Any:
        return weighted(x, mask, how=how)

    right = problem(kernel, reference, drawn(32, 40), MASK)
    assert same(right.run(), right.wanted)
    other = problem(kernel, lambda x, mask: 1.25 * reference(x, mask), drawn(32, 40), MASK)
    assert other.hits() == []


def test_a_causal_select_before_a_sum_by_a_product_with_ones() -> None:
    def kernel(x: Any) -> Any:
        values, ones, total = loaded(x), tile(32, 1), psum(32, 1)
        nisa.memset(dst=ones, value=1.0)
        nisa.affine_select(
            dst=values,
            pattern=[[-1, 32]],
            channel_multiplier=1,
            on_true_tile=values,
            on_false_value=0.0,
            cmp_op=nl.greater_equal,
        )
        nisa.nc_matmul(dst=total, stationary=values, moving=ones)
        return stored(total), stored(values)

    def reference(x: Array) -> tuple[Array, Array]:
        return x.sum(axis=0)[:, None], np.tril(x)

    (found,) = problem(kernel, reference, drawn(32, 32)).hits()
    assert found.cause == "sum-after-mask"
    assert "nc_matmul" in found.sentence and "affine_select" in found.sentence


# Online softmax.


def online(
    q: Any,
    k: Any,
    v: Any,
    *,
    scaled_sum: bool,
    scaled_out: bool,
    how: str = "",
) -> Any:
    """softmax(q.T @ k) @ v by tiles of 32 keys; q [d, queries], k [d, keys], v [keys, d].

    how: "inverse" makes the factor upside down, "interleaved" takes the tiles of queries within those of keys,
    "new tiles" adds to other tiles than those it takes from.
    """
    d, queries = q.shape
    keys, part = k.shape[1], 16
    out = hbm(queries, d)
    rows = list(range(0, queries, part))
    held = {}
    for row in rows:
        top, total, mixed = tile(part, 1), tile(part, 1), tile(part, d)
        nisa.memset(dst=top, value=-1e30)
        nisa.memset(dst=total, value=0.0)
        nisa.memset(dst=mixed, value=0.0)
        held[row] = [top, total, mixed]
    steps = [(row, first) for row in rows for first in range(0, keys, 32)]
    if how == "interleaved":
        steps = [(row, first) for first in range(0, keys, 32) for row in rows]
    for row, first in steps:
        top, total, mixed = held[row]
        query, key = loaded(q[:, row : row + part]), loaded(k[:, first : first + 32])
        value = loaded(v[first : first + 32, :])
        scores, higher, minus, factor = psum(part, 32), tile(part, 1), tile(part, 1), tile(part, 1)
        weights, share, turned, across, added = (
            tile(part, 32),
            tile(part, 1),
            psum(32, part),
            tile(32, part),
            psum(part, d),
        )
        nisa.nc_matmul(dst=scores, stationary=query, moving=key)
        nisa.tensor_reduce(dst=higher, op=nl.maximum, data=scores, axis=(1,), keepdims=True)
        nisa.tensor_tensor(dst=higher, data1=higher, data2=top, op=nl.maximum)
        nisa.tensor_scalar(dst=minus, data=higher, op0=nl.multiply, operand0=-1.0)
        if how == "inverse":
            nisa.tensor_scalar(dst=factor, data=top, op0=nl.multiply, operand0=-1.0)
            nisa.activation(dst=factor, op=nl.exp, data=higher, bias=factor)
        elif scaled_sum or scaled_out:
            nisa.activation(dst=factor, op=nl.exp, data=top, bias=minus)
        nisa.activation(dst=weights, op=nl.exp, data=scores, bias=minus)
        nisa.tensor_reduce(dst=share, op=nl.add, data=weights, axis=(1,), keepdims=True)
        nisa.nc_transpose(dst=turned, data=weights, engine=nisa.engine.tensor)
        nisa.tensor_copy(dst=across, src=turned)
        nisa.nc_matmul(dst=added, stationary=across, moving=value)
        if scaled_sum:
            nisa.tensor_scalar(dst=total, data=total, op0=nl.multiply, operand0=factor)
        if scaled_out:
            nisa.tensor_scalar(dst=mixed, data=mixed, op0=nl.multiply, operand0=factor)
        into = held[row] = [top, total, mixed]
        if how == "new tiles":
            into = held[row] = [top, tile(part, 1), tile(part, d)]
        nisa.tensor_tensor(dst=into[1], data1=total, data2=share, op=nl.add)
        nisa.tensor_tensor(dst=into[2], data1=mixed, data2=added, op=nl.add)
        nisa.tensor_copy(dst=top, src=higher)
    for row in rows:
        _, total, mixed = held[row]
        nisa.reciprocal(dst=total, data=total)
        nisa.tensor_scalar(dst=mixed, data=mixed, op0=nl.multiply, operand0=total)
        nisa.dma_copy(dst=out[row : row + part, :], src=mixed)
    return out


def attention(q: Array, k: Array, v: Array) -> Array:
    scores = q.T @ k
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights @ v / weights.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("how", ["", "interleaved", "new tiles"])
@pytest.mark.parametrize(
    ("scaled_sum", "scaled_out", "words"),
    [
        (True, False, "multiplies another sum by the factor"),
        (False, True, "multiplies another sum by the factor"),
        (True, True, ""),
        (False, False, "the maximum of tensor_tensor"),
    ],
)
def test_running_sums_that_do_not_follow_the_maximum(
    how: str, scaled_sum: bool, scaled_out: bool, words: str
) -> None:
    if not words:
        how = how or "inverse"

    def kernel(q: Any, k: Any, v: Any) -> Any:
        return online(q, k, v, scaled_sum=scaled_sum, scaled_out=scaled_out, how=how)

    found = problem(kernel, attention, drawn(8, 32), drawn(8, 96, seed=1), drawn(96, 8, seed=2))
    if not words and how != "inverse":
        assert same(found.run(), found.wanted)
        return
    assert found.causes == {"accumulator-not-rescaled"}
    assert words in found.hits()[0].sentence


# Casts.


def cells(x: Any, *, shift: float = 0.0) -> Any:
    rows, columns = x.shape
    values, whole, more = loaded(x), tile(rows, columns, dtype=nl.int32), tile(rows, columns, dtype=nl.int32)
    moved = tile(rows, columns)
    nisa.tensor_scalar(dst=moved, data=values, op0=nl.multiply, operand0=8.0, op1=nl.add, operand1=shift)
    nisa.tensor_copy(dst=whole, src=moved)
    nisa.tensor_scalar(dst=more, data=values, op0=nl.multiply, operand0=4.0)
    return stored(whole), stored(more)


@pytest.mark.parametrize(
    ("shift", "one", "two", "words"),
    [
        (0.0, np.trunc, np.rint, "tensor_copy (test_diagnosis_flows.py"),
        (0.0, np.rint, np.floor, "tensor_scalar (test_diagnosis_flows.py"),
        (0.0, np.ceil, np.ceil, "and 1 other line rounds"),
        (
            -0.5,
            np.rint,
            np.rint,
            "after taking away one half where it should have been rounded to nearest even",
        ),
        (-0.5, np.trunc, np.rint, "after taking away one half where it should have been truncated"),
        (0.5, np.floor, np.rint, "after adding one half where it should have been rounded down"),
    ],
)
def test_integers_by_another_way(shift: float, one: Any, two: Any, words: str) -> None:
    def kernel(x: Any) -> Any:
        return cells(x, shift=shift)

    # eighths and quarters in plenty, so that halves tell the ways apart
    x = (np.random.default_rng(0).integers(-80, 80, (16, 24)) / 32).astype(np.float32)
    found = problem(kernel, lambda x: (one(8 * x), two(4 * x)), x).hits()
    assert found and {repair.cause for repair in found} == {"integer-rounding"}
    assert any(words in repair.sentence for repair in found)


def test_an_integer_that_is_wrong_otherwise_is_no_matter_of_rounding() -> None:
    assert problem(cells, lambda x: (np.rint(8 * x) + 1, np.rint(4 * x)), drawn(16, 24)).hits() == []


def bytes_of(x: Any, *, how: str) -> Any:
    """64 x as int8, from the lowest byte of 64 x + 128."""
    rows, columns = x.shape
    values, whole = loaded(x), tile(rows, columns, dtype=nl.int32)
    result = tile(rows, columns, dtype=nl.int8)
    nisa.tensor_scalar(dst=whole, data=values, op0=nl.multiply, operand0=64.0, op1=nl.add, operand1=128.0)
    if how == "and":
        nisa.tensor_scalar(dst=whole, data=whole, op0=nl.bitwise_and, operand0=255)
    else:
        nisa.tensor_scalar(
            dst=whole, data=whole, op0=nl.left_shift, operand0=24, op1=nl.right_shift, operand1=24
        )
    nisa.tensor_scalar(dst=result, data=whole, op0=nl.subtract, operand0=128.0)
    return stored(result)


@pytest.mark.parametrize("how", ["and", "shift"])
def test_integers_that_wrap_around(how: str) -> None:
    def kernel(x: Any) -> Any:
        return bytes_of(x, how=how)

    def reference(x: Array) -> Array:
        return np.clip(np.rint(64 * x), -128, 127)

    (found,) = problem(kernel, reference, 2 * drawn(16, 24)).hits()
    assert found.cause == "saturation-lost" and "what lies beyond 0 to 255 wraps around" in found.sentence


def test_a_store_in_fp16_that_does_not_saturate() -> None:
    def kernel(x: Any) -> Any:
        values, narrow = loaded(x), tile(16, 24, dtype=nl.float16)
        nisa.tensor_scalar(dst=narrow, data=values, op0=nl.multiply, operand0=40000.0)
        return stored(narrow)

    def reference(x: Array) -> Array:
        return np.clip(40000 * x, -65504, 65504)

    (found,) = problem(kernel, reference, drawn(16, 24)).hits()
    assert found.cause == "saturation-lost" and "stores in float16 without a clamp" in found.sentence


# Experiments on the reference.


def normal(x: Any, *, axis: int, dtype: Any = nl.int8, back: bool = False) -> Any:
    """127 x / max|x| of each row, or of each column, as integers, or taken back to where they came from."""
    rows, columns = x.shape
    turned = [[1, columns], [columns, rows]]
    values = tile(columns, rows) if axis == 0 else tile(rows, columns)
    nisa.dma_copy(dst=values, src=x.ap(pattern=turned, offset=0) if axis == 0 else x)
    size = tile(*values.shape)
    scale, inverse, result = (
        tile(values.shape[0], 1),
        tile(values.shape[0], 1),
        tile(*values.shape, dtype=dtype),
    )
    nisa.activation(dst=size, op=nl.abs, data=values)
    nisa.tensor_reduce(dst=scale, op=nl.maximum, data=size, axis=(1,), keepdims=True)
    nisa.tensor_scalar(dst=scale, data=scale, op0=nl.multiply, operand0=1 / 127)
    nisa.reciprocal(dst=inverse, data=scale)
    nisa.tensor_scalar(dst=result, data=values, op0=nl.multiply, operand0=inverse)
    if back:
        wide = tile(*values.shape)
        nisa.tensor_scalar(dst=wide, data=result, op0=nl.multiply, operand0=scale)
        result = wide
    out = hbm(rows, columns, dtype=result.dtype)
    nisa.dma_copy(dst=out.ap(pattern=turned, offset=0) if axis == 0 else out, src=result)
    return out


def spread(rows: int, columns: int) -> Array:
    draw = np.random.default_rng(3)
    return (draw.standard_normal((rows, columns)) * 10 ** draw.uniform(-1, 1, (rows, 1))).astype(np.float32)


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize(
    ("axis", "wanted", "ours", "theirs"),
    [(0, 1, "column", "row"), (1, 0, "row", "column"), (1, (0, 1), "row", "tensor")],
)
def test_a_scale_along_the_wrong_axis(axis: int, wanted: Any, ours: str, theirs: str, back: bool) -> None:
    def kernel(x: Any) -> Any:
        return normal(x, axis=axis, back=back)

    def reference(x: Array) -> Array:
        scale = np.abs(x).max(axis=wanted, keepdims=True) / 127
        return np.rint(x / scale) * (scale if back else 1)

    (found,) = problem(kernel, reference, spread(48, 40)).explanations()
    assert found.cause == "scale-axis"
    assert f"of each {ours} of x" in found.sentence and f"of each {theirs}" in found.sentence


def test_a_scale_along_the_right_axis_with_another_fault() -> None:
    def kernel(x: Any) -> Any:
        return normal(x, axis=1)

    def reference(x: Array) -> Array:
        return np.rint(100 * x / np.abs(x).max(axis=1, keepdims=True))

    assert problem(kernel, reference, spread(48, 40)).explanations() == []


def test_a_vector_of_scales_along_the_wrong_axis() -> None:
    def kernel(x: Any, s: Any) -> Any:
        values, scale = loaded(x), loaded(s)
        nisa.tensor_scalar(dst=values, data=values, op0=nl.multiply, operand0=scale)
        return stored(values)

    scales = np.random.default_rng(0).uniform(0.5, 2, (32, 1)).astype(np.float32)
    (found,) = problem(kernel, lambda x, s: x * s.T, drawn(32, 32), scales).explanations()
    assert found.cause == "scale-axis" and "numbers of s along" in found.sentence


def part_of_k(a: Any, b: Any, *, tiles: int, lost: str = "") -> Any:
    """a.T @ b over the first tiles of 32 of K.

    lost: the first tile is read too, and "overwritten" in PSUM, or its rows of b are multiplied by a "zero".
    """
    total = psum(ROWS_OF, COLUMNS)
    for at in range(tiles):
        left = loaded(a[32 * at : 32 * at + 32, :])
        right = loaded(b[32 * at : 32 * at + 32, :])
        if lost == "zero" and at == 0:
            nisa.tensor_scalar(dst=right, data=right, op0=nl.multiply, operand0=0.0)
        first = 1 if lost == "overwritten" else 0
        nisa.nc_matmul(dst=total, stationary=left, moving=right, accumulate=at > first)
    return stored(total)


def test_a_part_of_an_input_that_is_never_read() -> None:
    found = problem(
        by(part_of_k, tiles=2), lambda a, b: a.T @ b, drawn(K, ROWS_OF), drawn(K, COLUMNS, seed=1)
    )
    assert [each.cause for each in found.explanations()] == ["input-part-unused"]
    assert found.explanations()[0].sentence.startswith(
        "rows 64 to 95 of a and rows 64 to 95 of b do not reach"
    )
    assert found.hits() == []


@pytest.mark.parametrize(
    ("lost", "part"),
    [("overwritten", "rows 0 to 31 of a and rows 0 to 31 of b"), ("zero", "rows 0 to 31 of a")],
)
def test_a_part_of_an_input_that_is_read_and_lost(lost: str, part: str) -> None:
    kernel = by(part_of_k, tiles=3, lost=lost)
    found = problem(kernel, lambda a, b: a.T @ b, drawn(K, ROWS_OF), drawn(K, COLUMNS, seed=1))
    (one,) = found.explanations()
    assert one.cause == "input-part-unused" and one.sentence.startswith(f"{part} do not reach the output")
    assert found.causes == ({"stale-accumulator"} if lost == "overwritten" else set())


def test_a_right_kernel_leaves_nothing_out() -> None:
    arrays = drawn(K, ROWS_OF), drawn(K, COLUMNS, seed=1)
    right = problem(by(part_of_k, tiles=3), lambda a, b: a.T @ b, *arrays)
    assert same(right.run(), right.wanted) and right.explanations() == []
    other = problem(by(part_of_k, tiles=3), lambda a, b: a.T @ b + 0.5, *arrays)
    assert other.explanations() == [] and other.hits() == []


def test_columns_that_a_softmax_leaves_out() -> None:
    def kernel(x: Any) -> Any:
        values, total, out = loaded(x), tile(16, 1), hbm(16, 64)
        nisa.activation(dst=values[:, 0:48], op=nl.exp, data=values[:, 0:48])
        nisa.memset(dst=values[:, 48:64], value=0.0)
        nisa.tensor_reduce(dst=total, op=nl.add, data=values[:, 0:48], axis=(1,), keepdims=True)
        nisa.reciprocal(dst=total, data=total)
        nisa.tensor_scalar(dst=values, data=values, op0=nl.multiply, operand0=total)
        nisa.dma_copy(dst=out, src=values)
        return out

    def reference(x: Array) -> Array:
        return np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)

    (found,) = problem(kernel, reference, drawn(16, 64)).explanations()
    assert found.cause == "input-part-unused"
    assert found.sentence.startswith("columns 48 to 63 of x do not reach the output: with minus infinity")


@pytest.mark.parametrize(("factor", "words"), [(False, "with zeros"), (True, "with ones")])
def test_an_input_that_is_forgotten(factor: bool, words: str) -> None:
    def kernel(x: Any, b: Any) -> Any:
        return stored(loaded(x))

    def reference(x: Array, b: Array) -> Array:
        return x * b if factor else x + b

    found = problem(kernel, reference, drawn(16, 24), drawn(16, 24, seed=1)).explanations()
    assert found[0].cause == "input-copied" and "input x" in found[0].sentence
    assert found[1].cause == "input-part-unused" and "input b does not reach the output" in found[1].sentence
    assert words in found[1].sentence


def test_a_constant_output() -> None:
    def kernel(x: Any) -> Any:
        zeros = tile(16, 24)
        nisa.memset(dst=zeros, value=0.0)
        return stored(zeros)

    found = problem(kernel, lambda x: x / np.abs(x).sum(), drawn(16, 24)).explanations()
    assert found[0].cause == "constant-output"
    assert (
        "out0, written at test_diagnosis_flows.py:" in found[0].sentence
        and "made of no input" in found[0].sentence
    )


def test_an_output_that_is_one_number_by_computation() -> None:
    def kernel(x: Any) -> Any:
        values = loaded(x)
        nisa.tensor_scalar(dst=values, data=values, op0=nl.multiply, operand0=0.0)
        return stored(values)

    found = problem(kernel, lambda x: 2 * x, drawn(16, 24)).explanations()
    assert (found[0].cause, found[0].sentence) == ("constant-output", "every element of output out0 is 0")


def test_outputs_in_each_others_place_and_transposed() -> None:
    def kernel(x: Any) -> Any:
        values, twice = loaded(x), tile(16, 16)
        nisa.tensor_scalar(dst=twice, data=values, op0=nl.multiply, operand0=2.0)
        nisa.tensor_scalar(dst=values, data=values, op0=nl.add, operand0=1.0)
        return stored(twice), stored(values)

    (found,) = problem(kernel, lambda x: (x + 1, 2 * x), drawn(16, 16)).explanations()
    assert found.cause == "outputs-exchanged" and "out0 and out1" in found.sentence
    (found,) = problem(kernel, lambda x: (2 * x.T, x + 1), drawn(16, 16)).explanations()
    assert found.cause == "operand-transposed" and "out0 is returned transposed" in found.sentence


def test_a_reference_that_refuses_and_one_with_other_outputs() -> None:
    def strict(a: Array, b: Array) -> Array:
        if not a.any() or not b.any():
            raise ValueError("needs data")
        return a.T @ b

    found = problem(by(part_of_k, tiles=2), strict, drawn(K, ROWS_OF), drawn(K, COLUMNS, seed=1))
    assert [each.cause for each in found.explanations()] == ["input-part-unused"]
    other = problem(by(part_of_k, tiles=2), lambda a, b: (a, b), drawn(K, ROWS_OF), drawn(K, COLUMNS, seed=1))
    with pytest.raises(ValueError, match="gives 2 outputs, the kernel 1"):
        other.explanations()


# In all.


def test_there_are_at_most_a_hundred_and_they_are_made_when_asked_for() -> None:
    def kernel(q: Any, k: Any, v: Any) -> Any:
        return online(q, k, v, scaled_sum=True, scaled_out=False)

    large = problem(kernel, attention, drawn(8, 128), drawn(8, 256, seed=1), drawn(256, 8, seed=2))
    assert len(large.program) > 900
    found = flows.repairs(Dataflow.of(large.program, ROWS), large.arguments)
    assert next(found).cause == "operand-transposed"
    assert len(list(found)) < 100


def test_numbers_that_are_not_finite_are_no_masks_of_bits() -> None:
    def kernel(x: Any) -> Any:
        values = loaded(x)
        nisa.tensor_scalar(dst=values, data=values, op0=nl.maximum, operand0=float("-inf"))
        return stored(values)

    found = problem(kernel, lambda x: x + 1, drawn(16, 24))
    assert found.repairs() and found.hits() == []
