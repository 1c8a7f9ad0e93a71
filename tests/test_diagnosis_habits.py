"""Repairs of habits: each names its fault in a small kernel written wrong by hand, and leaves the right kernel alone.

The oracle is NumPy's float64 of what each kernel was meant to compute, written here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from nl_kernels import nisa, nl
from numpy.typing import NDArray
from scipy import special

from nkireview.checks.dataflow import Dataflow
from nkireview.diagnosis import habits
from nkireview.diagnosis.habits.indices import last_places
from nkireview.diagnosis.habits.turns import Turns, turns
from nkireview.diagnosis.repair import Repair
from nkireview.execute import execute
from nkireview.isa import dtypes
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
P, N = 8, 12


@dataclass(frozen=True)
class Case:
    """A kernel with its arguments and what it was meant to give."""

    program: Program
    arguments: dict[int, Array]
    wanted: Array

    def run(self, repair: Repair | None = None) -> Array | None:
        """The unrounded output; None where the run faults."""
        found = execute(
            repair.program if repair else self.program,
            {**self.arguments, **(repair.arguments if repair else {})},
            compute=np.float64,
            rounding="off",
            around=repair.around if repair else None,
        )
        return None if found.faults else np.asarray(found.outputs[0].values, np.float64)

    @property
    def right(self) -> bool:
        """True where the kernel gives what is wanted as it is."""
        return self.same(self.run())

    def same(self, got: Array | None) -> bool:
        if got is None or not np.isfinite(got).all():
            return False
        most = max(float(np.abs(self.wanted).max()), 1e-300)
        return got.shape == self.wanted.shape and float(np.abs(got - self.wanted).max()) <= 1e-12 * most

    def every(self) -> list[Repair]:
        found = list(habits.repairs(Dataflow.of(self.program, ROWS), self.arguments))
        assert len(found) <= habits.LIMIT
        return found

    def hits(self) -> list[Repair]:
        """The repairs that make the kernel right, which it is not."""
        assert not self.right
        return [repair for repair in self.every() if self.same(self.run(repair))]


def case(kernel: Callable[..., Any], meant: Callable[..., Array], *arrays: Array) -> Case:
    """A kernel in the language over arrays in HBM; it must be legal. meant: the reference, of float64 arrays."""
    trace = Trace("trn2", Release(0, 6))
    with tracing(trace):
        buffers = [trace.buffer(Memory.shared_hbm, each.shape, dtypes.of(each.dtype).name) for each in arrays]
        with trace.builder.stream():
            result = kernel(*(NkiTensor.whole(trace, buffer) for buffer in buffers))
    names = tuple(inspect.signature(kernel).parameters)[: len(arrays)]
    tree = Group("tuple", names, tuple(TensorLeaf(buffer.id) for buffer in buffers))
    header = Header("k", "trn2", "0.6", sources=tuple(trace.places.sources))
    program = trace.builder.finish(header, tree, (Output(result.access(), None, "out"),))
    assert verify(program) == ()
    exact = [each.astype(np.int64 if each.dtype.kind in "iu" else np.float64) for each in arrays]
    given = {buffer.id: each for buffer, each in zip(buffers, arrays, strict=True)}
    return Case(program, given, np.asarray(meant(*exact), np.float64))


def named(
    cause: str, words: str, kernel: Callable[..., Any], meant: Callable[..., Array], *arrays: Array
) -> Repair:
    """The first repair that makes a wrong kernel right: of that cause, with those words and a place."""
    found = case(kernel, meant, *arrays).hits()
    assert found, "no repair"
    assert found[0].cause == cause, [repair.sentence for repair in found]
    assert words in found[0].sentence, found[0].sentence
    assert "test_diagnosis_habits.py:" in found[0].sentence
    return found[0]


def drawn(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def positive(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).uniform(0.5, 2.0, shape).astype(np.float32)


def tile(*shape: int, dtype: Any = nl.float32) -> Any:
    return nl.ndarray(shape, dtype)


def loaded(source: Any) -> Any:
    held = tile(*source.shape, dtype=source.dtype)
    nisa.dma_copy(dst=held, src=source)
    return held


def hbm(*shape: int, dtype: Any = nl.float32) -> Any:
    return nl.ndarray(shape, dtype, buffer=nl.shared_hbm)


def stored(source: Any) -> Any:
    out = hbm(*source.shape, dtype=source.dtype)
    nisa.dma_copy(dst=out, src=source)
    return out


def tensor(op: Any, one: Any, other: Any) -> Any:
    """one op other, as a new tile."""
    found = tile(*one.shape)
    nisa.tensor_tensor(dst=found, data1=one, data2=other, op=op)
    return found


def activated(op: Any, data: Any, **given: Any) -> Any:
    """op(data), as a new tile."""
    found = tile(*data.shape)
    nisa.activation(dst=found, op=op, data=data, **given)
    return found


def sigmoid(values: Array) -> Array:
    return np.asarray(special.expit(values))


def silu(values: Array) -> Array:
    return values * sigmoid(values)


# signs


def rotated(x: Any, cos: Any, sin: Any) -> Any:
    """x * cos + (x2, x1) * sin: with no half negated."""
    held, turned = loaded(x), tile(P, N)
    nisa.tensor_copy(dst=turned[:, : N // 2], src=held[:, N // 2 :])
    nisa.tensor_copy(dst=turned[:, N // 2 :], src=held[:, : N // 2])
    plain = tensor(nl.multiply, held, loaded(cos))
    crossed = tensor(nl.multiply, turned, loaded(sin))
    return stored(tensor(nl.add, plain, crossed))


def rotation(sign: tuple[int, int], exchanged: bool = False) -> Callable[..., Array]:
    def meant(x: Array, cos: Array, sin: Array) -> Array:
        one, two = x[:, : N // 2], x[:, N // 2 :]
        first, second = (one, two) if exchanged else (two, one)
        return x * cos + np.concatenate([sign[0] * first, sign[1] * second], axis=1) * sin

    return meant


ROTATED = drawn(P, N), drawn(P, N, seed=1), drawn(P, N, seed=2)


@pytest.mark.parametrize(
    ("cause", "words", "meant"),
    [
        ("operand-sign", "the first half of data1", rotation((-1, 1))),
        ("operand-sign", "the second half of data1", rotation((1, -1))),
        ("operand-sign", "sin enters with this sign", rotation((-1, -1))),
        ("operands-swapped", "the halves of data1 of tensor_tensor", rotation((1, 1), exchanged=True)),
    ],
)
def test_halves_of_a_rotation(cause: str, words: str, meant: Callable[..., Array]) -> None:
    found = case(rotated, meant, *ROTATED).hits()
    assert {repair.cause for repair in found} == {cause}, [repair.sentence for repair in found]
    assert any(words in repair.sentence for repair in found), [repair.sentence for repair in found]


def test_a_parameter_that_enters_with_the_wrong_sign() -> None:
    named("operand-sign", "b enters", biased, lambda x, b, y: (x - b) * y, *BIASED)


def complex_product(x: Any, y: Any) -> Any:
    """(x0 y0 + x1 y1, x0 y1 - x1 y0) where (x0 y0 - x1 y1, x0 y1 + x1 y0) is meant."""
    a, b = loaded(x), loaded(y)
    half = N // 2
    out = tile(P, N)
    left = tensor(nl.multiply, a[:, :half], b[:, :half])
    right = tensor(nl.multiply, a[:, half:], b[:, half:])
    nisa.tensor_tensor(dst=out[:, :half], data1=left, data2=right, op=nl.add)
    left = tensor(nl.multiply, a[:, :half], b[:, half:])
    right = tensor(nl.multiply, a[:, half:], b[:, :half])
    nisa.tensor_tensor(dst=out[:, half:], data1=left, data2=right, op=nl.subtract)
    return stored(out)


def test_signs_of_two_lines() -> None:
    def meant(x: Array, y: Array) -> Array:
        half = N // 2
        found = (x[:, :half] + 1j * x[:, half:]) * (y[:, :half] + 1j * y[:, half:])
        return np.concatenate([found.real, found.imag], axis=1)

    found = case(complex_product, meant, drawn(P, N), drawn(P, N, seed=1)).hits()
    assert {repair.cause for repair in found} == {"operand-sign"}
    assert any("both negated" in repair.sentence for repair in found)


# carry

BLOCKS, WIDE = 4, 24
STEP = WIDE // BLOCKS


def scanned(x: Any, *, rows: int = 1, interleaved: bool = False) -> Any:
    """A running sum along rows that begins anew with each block."""
    out = hbm(rows * P, WIDE)
    ones = tile(P, STEP)
    nisa.memset(dst=ones, value=1.0)
    order = [(row, at) for row in range(rows) for at in range(BLOCKS)]
    if interleaved:
        order = [(row, at) for at in range(BLOCKS) for row in range(rows)]
    for row, at in order:
        part = (slice(row * P, row * P + P), slice(at * STEP, at * STEP + STEP))
        held, result = loaded(x[part]), tile(P, STEP)
        nisa.tensor_tensor_scan(dst=result, data0=ones, data1=held, initial=0.0, op0=nl.multiply, op1=nl.add)
        nisa.dma_copy(dst=out[part], src=result)
    return out


@pytest.mark.parametrize(("rows", "interleaved"), [(1, False), (2, False), (2, True)])
def test_a_scan_that_begins_anew(rows: int, interleaved: bool) -> None:
    def kernel(x: Any) -> Any:
        return scanned(x, rows=rows, interleaved=interleaved)

    named(
        "carry-lost", "starts from a constant", kernel, lambda x: np.cumsum(x, axis=1), drawn(rows * P, WIDE)
    )


def test_a_scan_whose_start_is_never_updated() -> None:
    def kernel(x: Any) -> Any:
        out, ones, start = hbm(P, WIDE), tile(P, STEP), tile(P, 1)
        nisa.memset(dst=ones, value=0.5)
        nisa.memset(dst=start, value=0.0)
        for at in range(0, WIDE, STEP):
            held, result = loaded(x[:, at : at + STEP]), tile(P, STEP)
            nisa.tensor_tensor_scan(
                dst=result, data0=ones, data1=held, initial=start, op0=nl.multiply, op1=nl.add
            )
            nisa.dma_copy(dst=out[:, at : at + STEP], src=result)
        return out

    def meant(x: Array) -> Array:
        found, state = [], np.zeros(P)
        for column in x.T:
            state = 0.5 * state + column
            found.append(state)
        return np.stack(found, axis=1)

    named("carry-lost", "a tile that is not what the one before left", kernel, meant, drawn(P, WIDE))


def test_a_cumulative_sum_that_begins_anew() -> None:
    def kernel(x: Any) -> Any:
        out = hbm(P, WIDE)
        for at in range(0, WIDE, STEP):
            result = tile(P, STEP)
            nisa.tensor_scalar_cumulative(
                dst=result, src=loaded(x[:, at : at + STEP]), op0=nl.multiply, op1=nl.add, imm0=1.0
            )
            nisa.dma_copy(dst=out[:, at : at + STEP], src=result)
        return out

    named("carry-lost", "its reset register", kernel, lambda x: np.cumsum(x, axis=1), drawn(P, WIDE))


def running(x: Any, *, fresh: bool) -> Any:
    """The running maximum of blocks, filled again for each one, in one tile or in a new one."""
    out = hbm(P, BLOCKS)
    held = tile(P, 1)
    for at in range(BLOCKS):
        if fresh:
            held = tile(P, 1)
        nisa.memset(dst=held, value=-1e30)
        part = tile(P, 1)
        nisa.tensor_reduce(dst=part, op=nl.maximum, data=loaded(x[:, at * STEP : at * STEP + STEP]), axis=1)
        nisa.tensor_tensor(dst=held, data1=held, data2=part, op=nl.maximum)
        nisa.dma_copy(dst=out[:, at : at + 1], src=held)
    return out


@pytest.mark.parametrize("fresh", [False, True])
def test_a_running_maximum_that_is_filled_again(fresh: bool) -> None:
    def meant(x: Array) -> Array:
        return np.maximum.accumulate(x.reshape(P, BLOCKS, STEP).max(axis=2), axis=1)

    def kernel(x: Any) -> Any:
        return running(x, fresh=fresh)

    found = case(kernel, meant, drawn(P, WIDE)).hits()
    assert {repair.cause for repair in found} == {"carry-lost"}, [repair.sentence for repair in found]
    assert "memset fills this tile again" in found[0].sentence


def block_softmax(x: Any) -> Any:
    """A softmax of each block by itself."""
    out = hbm(P, WIDE)
    for at in range(0, WIDE, STEP):
        held, top, total = loaded(x[:, at : at + STEP]), tile(P, 1), tile(P, 1)
        nisa.tensor_reduce(dst=top, op=nl.maximum, data=held, axis=1, negate=True)
        powers = activated(nl.exp, held, bias=top, scale=1.0, reduce_op=nl.add, reduce_res=total)
        nisa.reciprocal(dst=total, data=total)
        nisa.tensor_scalar(dst=powers, data=powers, op0=nl.multiply, operand0=total)
        nisa.dma_copy(dst=out[:, at : at + STEP], src=powers)
    return out


def test_a_softmax_of_blocks() -> None:
    named(
        "reduction-partial",
        "tensor_reduce and 1 more reduces one block at a time",
        block_softmax,
        lambda x: np.asarray(special.softmax(x, axis=1)),
        drawn(P, WIDE),
    )


def test_only_the_last_part_of_a_sum() -> None:
    def kernel(x: Any) -> Any:
        total = tile(P, 1)
        for at in range(0, WIDE, STEP):
            nisa.tensor_reduce(dst=total, op=nl.add, data=loaded(x[:, at : at + STEP]), axis=1)
        return stored(total)

    named("reduction-partial", "", kernel, lambda x: x.sum(axis=1, keepdims=True), drawn(P, WIDE))


def test_turns() -> None:
    assert [[way.before(at) for at in range(4)] for way in turns(4)] == [
        [-1, 0, 1, 2],
        [-1, 0, -1, 2],
        [-1, -1, 0, 1],
    ]
    assert [Turns(2).group(at) for at in range(4)] == [0, 0, 1, 1]
    assert [Turns(apart=2).group(at) for at in range(4)] == [0, 1, 0, 1]


# reductions


def norm(x: Any, *, op: Any = nl.add) -> Any:
    held, total = loaded(x), tile(P, 1)
    nisa.tensor_reduce(dst=total, op=op, data=held, axis=1)
    nisa.reciprocal(dst=total, data=total)
    out = tile(P, N)
    nisa.tensor_scalar(dst=out, data=held, op0=nl.multiply, operand0=total)
    return stored(out)


@pytest.mark.parametrize(
    ("cause", "meant"),
    [
        ("reduction-axis", lambda x: x / x.sum()),
        ("function-missing", lambda x: x / np.abs(x).sum(axis=1, keepdims=True)),
        ("function-missing", lambda x: x / (x**2).sum(axis=1, keepdims=True)),
        ("function-extra", lambda x: x * x.sum(axis=1, keepdims=True)),
    ],
)
def test_another_norm(cause: str, meant: Callable[[Array], Array]) -> None:
    found = case(norm, meant, drawn(P, N)).hits()
    assert cause in {repair.cause for repair in found}, [repair.sentence for repair in found]


def test_a_maximum_for_a_sum() -> None:
    def kernel(x: Any) -> Any:
        return norm(x, op=nl.maximum)

    named("reduction-operator", "with their sum", kernel, share, positive(P, N))


# swapped operands


def gated(x: Any, *, by_hand: bool = False) -> Any:
    """silu(a) * b of the two halves of x."""
    held = loaded(x)
    one, two = held[:, : N // 2], held[:, N // 2 :]
    if by_hand:
        first = tensor(nl.multiply, activated(nl.sigmoid, one), one)
    else:
        first = activated(nl.silu, one)
    return stored(tensor(nl.multiply, first, two))


@pytest.mark.parametrize("by_hand", [False, True])
def test_the_other_factor_activated(by_hand: bool) -> None:
    def kernel(x: Any) -> Any:
        return gated(x, by_hand=by_hand)

    def meant(x: Array) -> Array:
        return x[:, : N // 2] * silu(x[:, N // 2 :])

    found = case(kernel, meant, drawn(P, N)).hits()
    assert {repair.cause for repair in found} == {"operands-swapped"}, [repair.sentence for repair in found]
    op = "sigmoid" if by_hand else "silu"
    assert (
        found[0].sentence.startswith(op) and "over data1 of a product and not over data2" in found[0].sentence
    )


def rotary(x: Any, cos: Any, sin: Any, *, pairs: str = "halves") -> Any:
    """RoPE in the way of halves, or of neighbours."""
    half = N // 2
    held, out, c, s = loaded(x), tile(P, N), loaded(cos), loaded(sin)
    one, two = held[:, :half], held[:, half:]
    if pairs == "neighbours":
        one, two = held[:, 0:N:2], held[:, 1:N:2]
    first, second = tile(P, half), tile(P, half)
    for done, a, b, op in ((first, one, two, nl.subtract), (second, two, one, nl.add)):
        nisa.tensor_tensor(dst=done, data1=tensor(nl.multiply, a, c), data2=tensor(nl.multiply, b, s), op=op)
    if pairs == "neighbours":
        nisa.tensor_copy(dst=out[:, 0:N:2], src=first)
        nisa.tensor_copy(dst=out[:, 1:N:2], src=second)
    else:
        nisa.tensor_copy(dst=out[:, :half], src=first)
        nisa.tensor_copy(dst=out[:, half:], src=second)
    return stored(out)


def rope(x: Array, cos: Array, sin: Array, pairs: str) -> Array:
    out = np.empty_like(x)
    half = N // 2
    one, two = (slice(0, N, 2), slice(1, N, 2)) if pairs == "neighbours" else (slice(half), slice(half, N))
    out[:, one] = x[:, one] * cos - x[:, two] * sin
    out[:, two] = x[:, two] * cos + x[:, one] * sin
    return out


TURN = drawn(P, N), drawn(P, N // 2, seed=1), drawn(P, N // 2, seed=2)


@pytest.mark.parametrize(("have", "want"), [("halves", "neighbours"), ("neighbours", "halves")])
def test_pairs_of_a_rotation(have: str, want: str) -> None:
    def kernel(x: Any, cos: Any, sin: Any) -> Any:
        return rotary(x, cos, sin, pairs=have)

    named(
        *("operands-swapped", "along the last axis the kernel pairs", kernel),
        lambda x, cos, sin: rope(x, cos, sin, want),
        *TURN,
    )


def test_stationary_and_moving() -> None:
    def kernel(a: Any, b: Any) -> Any:
        total, held = nl.ndarray((P, P), nl.float32, buffer=nl.psum), tile(P, P)
        nisa.nc_matmul(dst=total, stationary=loaded(a), moving=loaded(b))
        nisa.tensor_copy(dst=held, src=total)
        bias = tile(P, P)
        nisa.iota(dst=bias, pattern=[[1, P]], offset=0, channel_multiplier=0)
        return stored(tensor(nl.add, held, bias))

    def meant(a: Array, b: Array) -> Array:
        return b.T @ a + np.arange(P)

    named("operands-swapped", "stationary and moving", kernel, meant, drawn(P, P), drawn(P, P, seed=1))


def test_a_vector_along_the_wrong_axis() -> None:
    def kernel(x: Any, b: Any) -> Any:
        wide = tile(P, P)
        nisa.dma_copy(dst=wide, src=b.ap([[0, P], [1, P]]))
        return stored(tensor(nl.add, loaded(x), wide))

    def meant(x: Array, b: Array) -> Array:
        return x + b.reshape(-1, 1)

    named(
        "bias-axis",
        "data2 of tensor_tensor goes along one axis",
        kernel,
        meant,
        drawn(P, P),
        drawn(P, seed=1),
    )


# functions


def biased(x: Any, b: Any, y: Any, *, op: Any = None) -> Any:
    """(x + b) * y, or f(x + b) * y."""
    total = tensor(nl.add, loaded(x), loaded(b))
    if op is not None:
        total = activated(op, total)
    return stored(tensor(nl.multiply, total, loaded(y)))


BIASED = drawn(P, N), drawn(P, N, seed=1), drawn(P, N, seed=2)


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("relu", lambda x: np.maximum(x, 0)),
        ("silu", silu),
        ("gelu", lambda x: x * special.ndtr(x)),
        ("sigmoid", sigmoid),
        ("tanh", np.tanh),
        ("exp", np.exp),
        ("square", np.square),
        ("abs", np.abs),
    ],
)
def test_a_function_that_is_missing(name: str, function: Callable[[Array], Array]) -> None:
    named(
        *("function-missing", f"goes on without {name}", biased),
        lambda x, b, y: function(x + b) * y,
        *BIASED,
    )
    named(
        *("function-missing", f"the output is stored without {name}", biased),
        lambda x, b, y: function((x + b) * y),
        *BIASED,
    )


@pytest.mark.parametrize(("name", "function"), [("sigmoid", sigmoid), ("silu", silu), ("tanh", np.tanh)])
def test_a_factor_that_is_not_activated(name: str, function: Callable[[Array], Array]) -> None:
    found = case(biased, lambda x, b, y: (x + b) * function(y), *BIASED).hits()
    assert {repair.cause for repair in found} == {"function-missing"}
    assert f"with {name} of it" in found[0].sentence


def test_a_function_too_many() -> None:
    def kernel(x: Any, b: Any, y: Any) -> Any:
        return biased(x, b, y, op=nl.tanh)

    named("function-extra", "takes tanh", kernel, lambda x, b, y: (x + b) * y, *BIASED)


def test_another_base() -> None:
    def powers(x: Any, b: Any) -> Any:
        return stored(tensor(nl.add, activated(nl.exp, loaded(x)), loaded(b)))

    def logarithm(x: Any, b: Any) -> Any:
        return stored(tensor(nl.add, activated(nl.log, loaded(x)), loaded(b)))

    given = positive(P, N), drawn(P, N, seed=1)
    named("log-base", "with 2^x", powers, lambda x, b: 2**x + b, *given)
    named("log-base", "with log2", logarithm, lambda x, b: np.log2(x) + b, *given)
    named("log-base", "with log10", logarithm, lambda x, b: np.log10(x) + b, *given)


# inputs


def normed(x: Any, gamma: Any, *, late: bool = False) -> Any:
    """x / sum(x) * gamma."""
    held, total, out = loaded(x), tile(P, 1), tile(P, N)
    nisa.tensor_reduce(dst=total, op=nl.add, data=held, axis=1)
    nisa.reciprocal(dst=total, data=total)
    nisa.tensor_scalar(dst=out, data=held, op0=nl.multiply, operand0=total)
    return stored(tensor(nl.multiply, out, loaded(gamma)))


def share(x: Array) -> Array:
    return x / x.sum(axis=1, keepdims=True)


NORMED = positive(P, N), positive(P, N, seed=1)


@pytest.mark.parametrize(
    ("cause", "words", "meant"),
    [
        ("parameter-offset", "as 1 + gamma", lambda x, gamma: share(x) * (1 + gamma)),
        ("parameter-offset", "as gamma - 1", lambda x, gamma: share(x) * (gamma - 1)),
        ("factor-inverted", "multiplies with data2: divided by", lambda x, gamma: share(x) / gamma),
        ("parameter-function", "the root of gamma", lambda x, gamma: share(x) * np.sqrt(gamma)),
        ("term-missing", "output out is stored as it is, x not added", lambda x, gamma: share(x) * gamma + x),
        ("term-extra", "data2 of tensor_tensor is multiplied with: without", lambda x, gamma: share(x)),
    ],
)
def test_a_parameter_applied_another_way(cause: str, words: str, meant: Callable[..., Array]) -> None:
    named(cause, words, normed, meant, *NORMED)


def test_a_parameter_of_which_a_function_is_meant() -> None:
    found = case(normed, lambda x, gamma: share(x) * np.exp(gamma), *NORMED).hits()
    assert {repair.cause for repair in found} == {"function-missing", "parameter-function"}


@pytest.mark.parametrize("read", [False, True])
def test_a_bias_that_is_never_used(read: bool) -> None:
    def kernel(x: Any, b: Any) -> Any:
        if read:
            loaded(b)
        held = loaded(x)
        total = tensor(nl.add, held, held)
        return stored(activated(nl.tanh, total))

    words = "b is never used: added to the result of tensor_tensor"
    named("term-missing", words, kernel, lambda x, b: np.tanh(2 * x + b), drawn(P, N), drawn(P, N, seed=1))


def test_a_parameter_in_a_narrow_dtype() -> None:
    def kernel(x: Any, b: Any) -> Any:
        return stored(tensor(nl.add, loaded(x), loaded(b)))

    b = drawn(P, N, seed=1).astype(dtypes.BY_NAME["bfloat16"].storage)
    found = case(kernel, lambda x, b: x - b, drawn(P, N), b).hits()
    assert found[0].cause == "operand-sign" and found[0].sentence.startswith("b enters")


def tempered(x: Any, t: Any) -> Any:
    """exp(x * t) for one t a row."""
    return stored(activated(nl.exp, loaded(x), scale=loaded(t)))


def test_a_temperature_upside_down() -> None:
    named(
        *("factor-inverted", "as 1/t", tempered),
        lambda x, t: np.exp(x / t),
        *(drawn(P, N), positive(P, 1, seed=1)),
    )


def softmax(x: Any) -> Any:
    """softmax(x) * 0.25."""
    held, top, total, out = loaded(x), tile(P, 1), tile(P, 1), tile(P, N)
    nisa.tensor_reduce(dst=top, op=nl.maximum, data=held, axis=1, negate=True)
    powers = activated(nl.exp, held, bias=top, scale=1.0, reduce_op=nl.add, reduce_res=total)
    nisa.reciprocal(dst=total, data=total)
    nisa.tensor_scalar(dst=out, data=powers, op0=nl.multiply, operand0=total, op1=nl.multiply, operand1=0.25)
    return stored(out)


def test_a_scale_after_the_exponential() -> None:
    named(
        *("scale-after-exp", "0.25 is applied", softmax),
        lambda x: np.asarray(special.softmax(0.25 * x, axis=1)),
        drawn(P, N),
    )


def residual(x: Any, r: Any, *, times: int = 1, first: bool = False, last: bool = True) -> Any:
    """tanh(x) with r added, or with r added to x before."""
    held, extra = loaded(x), loaded(r)
    if first:
        held = tensor(nl.add, held, extra)
    out = activated(nl.tanh, held)
    for _ in range(times if last else 0):
        out = tensor(nl.add, out, extra)
    return stored(out)


@pytest.mark.parametrize(
    ("cause", "given", "meant"),
    [
        ("term-missing", {}, lambda x, r: np.tanh(x) + 2 * r),
        ("term-missing", {"times": 2}, lambda x, r: np.tanh(x) + r),
        ("term-missing", {"last": False}, lambda x, r: np.tanh(x) + r),
        ("term-order", {"first": True, "last": False}, lambda x, r: np.tanh(x) + r),
        ("term-order", {}, lambda x, r: np.tanh(x + r)),
        ("term-twice", {"first": True, "last": False}, lambda x, r: np.tanh(x + 2 * r)),
        ("term-extra", {"first": True}, lambda x, r: np.tanh(x) + r),
    ],
)
def test_a_residual(cause: str, given: dict[str, Any], meant: Callable[..., Array]) -> None:
    def kernel(x: Any, r: Any) -> Any:
        return residual(x, r, **given)

    found = case(kernel, meant, drawn(P, N), drawn(P, N, seed=1)).hits()
    assert cause in {repair.cause for repair in found}, [repair.sentence for repair in found]


# tiles

TILES, HIGH = 4, 8


def copied(
    x: Any, *, reads: Callable[[int], int] = lambda at: at, stores: Callable[[int], int] = lambda at: at
) -> Any:
    """Rows of x in tiles, doubled."""
    out = hbm(TILES * HIGH, N)
    for at in range(TILES):
        held = loaded(x[reads(at) * HIGH : reads(at) * HIGH + HIGH, :])
        doubled = tensor(nl.add, held, held)
        nisa.dma_copy(dst=out[stores(at) * HIGH : stores(at) * HIGH + HIGH, :], src=doubled)
    return out


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"reads": lambda at: TILES - 1 - at}, "in reverse order"),
        ({"stores": lambda at: TILES - 1 - at}, "in reverse order"),
        ({"reads": lambda at: (at + 1) % TILES}, "one tile further back"),
        ({"stores": lambda at: (at + 1) % TILES}, "one tile further"),
        ({"reads": lambda at: at % 2 * 2 + at // 2}, "rows and columns of tiles exchanged"),
        ({"reads": lambda at: max(at - 1, 0)}, "tiles that do not follow one another"),
        ({"reads": lambda at: 0}, "tiles that do not follow one another"),
    ],
)
def test_tiles_in_another_order(given: dict[str, Any], words: str) -> None:
    def kernel(x: Any) -> Any:
        return copied(x, **given)

    found = case(kernel, lambda x: 2 * x, drawn(TILES * HIGH, N)).hits()
    assert {repair.cause for repair in found} == {"tile-offset"}, [repair.sentence for repair in found]
    assert any(words in repair.sentence for repair in found), [repair.sentence for repair in found]


def test_a_tail_that_begins_elsewhere() -> None:
    rows = 2 * HIGH + 4

    def kernel(x: Any) -> Any:
        out = hbm(rows, N)
        for at in range(0, rows, HIGH):
            high = min(HIGH, rows - at)
            begin = at if high == HIGH else at - HIGH
            held = loaded(x[begin : begin + high, :])
            nisa.dma_copy(dst=out[at : at + high, :], src=held)
        return out

    named("tile-offset", "the last tile that dma_copy reads", kernel, lambda x: x, drawn(rows, N))


def test_a_window_one_place_off() -> None:
    def kernel(x: Any) -> Any:
        return stored(loaded(x[:, 1 : N - 1]))

    named("tile-offset", "one place too far on along axis 1", kernel, lambda x: x[:, : N - 2], drawn(P, N))


# bounds


def clamped(x: Any, b: Any, *, low: float = 0.0, high: float | None = 6.0) -> Any:
    total, out = tensor(nl.add, loaded(x), loaded(b)), tile(P, N)
    second = {} if high is None else {"op1": nl.minimum, "operand1": high}
    nisa.tensor_scalar(dst=out, data=total, op0=nl.maximum, operand0=low, **second)
    return stored(tensor(nl.multiply, out, total))


@pytest.mark.parametrize(
    ("given", "low", "high"),
    [
        ({}, -np.inf, 6.0),
        ({}, 0.0, 1.0),
        ({}, 1e-6, 6.0),
        ({}, 0.0, np.inf),
        ({"low": 0.5}, 0.0, 6.0),
    ],
)
def test_another_bound(given: dict[str, Any], low: float, high: float) -> None:
    def kernel(x: Any, b: Any) -> Any:
        return clamped(x, b, **given)

    def meant(x: Array, b: Array) -> Array:
        return np.clip(x + b, low, high) * (x + b)

    named("clamp-bound", "the output matches", kernel, meant, 5 * drawn(P, N), drawn(P, N, seed=1))


def test_a_clamp_that_is_missing() -> None:
    def meant(x: Array, b: Array, y: Array) -> Array:
        return np.clip(x + b, 0, 6) * y

    named("clamp-missing", "to 0 and 6", biased, meant, 5 * BIASED[0], *BIASED[1:])


def test_comparison_without_equality() -> None:
    def kernel(x: Any) -> Any:
        out = tile(P, N)
        nisa.tensor_scalar(dst=out, data=loaded(x), op0=nl.greater, operand0=2.0)
        return stored(out)

    x = np.random.default_rng(0).integers(0, 5, (P, N)).astype(np.float32)
    named("comparison-edge", "with greater_equal", kernel, lambda x: x >= 2, x)


# indices


def test_a_count_that_begins_elsewhere() -> None:
    def kernel(x: Any) -> Any:
        places = tile(P, N)
        nisa.iota(dst=places, pattern=[[1, N]], offset=1, channel_multiplier=0)
        return stored(tensor(nl.multiply, loaded(x), places))

    named("index-off-by-one", "from one less", kernel, lambda x: x * np.arange(N), drawn(P, N))


def test_indices_that_count_from_one() -> None:
    def kernel(x: Any, at: Any) -> Any:
        held, out = tile(P, N), tile(P, N)
        nisa.tensor_copy(dst=held, src=loaded(at))
        nisa.tensor_tensor(dst=out, data1=held, data2=loaded(x), op=nl.multiply)
        return stored(out)

    at = np.random.default_rng(1).integers(1, 9, (P, N)).astype(np.int32)
    named(
        "index-off-by-one",
        "at is taken as it is: less one",
        kernel,
        lambda x, at: x * (at - 1),
        drawn(P, N),
        at,
    )


def test_the_last_of_equal_values() -> None:
    def kernel(x: Any) -> Any:
        held, top, found, out = loaded(x), tile(P, 8), tile(P, 8, dtype=nl.uint32), tile(P, 8)
        nisa.max8(dst=top, src=held)
        nisa.nc_find_index8(dst=found, data=held, vals=top)
        nisa.tensor_copy(dst=out, src=found)
        return stored(out[:, 0:1])

    x = np.random.default_rng(2).integers(0, 4, (P, N)).astype(np.float32)
    found = case(kernel, lambda x: N - 1 - x[:, ::-1].argmax(axis=1, keepdims=True), x).hits()
    assert [repair.cause for repair in found] == ["tie-order"]


def test_last_places() -> None:
    data, wanted = np.array([[3.0, 1.0, 3.0, 2.0]]), np.array([[3.0, 3.0, 3.0, 2.0]])
    assert last_places(data, wanted).tolist() == [[2, 0, -1, 3]]


# roundings


@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_a_rounding_of_the_reference(name: str) -> None:
    kind = dtypes.BY_NAME[name]

    def meant(x: Array, b: Array, y: Array) -> Array:
        return (x + b).astype(np.float32).astype(kind.storage).astype(np.float64) * y

    # sums that float32 holds exactly, so that the reference rounds once
    x, b = (np.round(each * 64) / 64 for each in BIASED[:2])
    named("rounding-missing", f"is not rounded to {name}", biased, meant, x, b * np.float32(2**-9), BIASED[2])


def test_a_quantisation_of_the_reference() -> None:
    named(
        *("rounding-missing", "integers", biased),
        lambda x, b, y: np.rint(x + b) * y,
        *BIASED,
    )


# right kernels


def plain(x: Any, w: Any, b: Any) -> Any:
    """sigmoid(x.T @ w + b) in two tiles of rows."""
    out = hbm(16, N)
    weights, offset = loaded(w), tile(8, N)
    nisa.dma_copy(dst=offset, src=b.ap([[0, 8], [1, N]]))
    for at in (0, 8):
        total = nl.ndarray((8, N), nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=total, stationary=loaded(x[:, at : at + 8]), moving=weights)
        nisa.dma_copy(dst=out[at : at + 8, :], src=activated(nl.sigmoid, tensor(nl.add, total, offset)))
    return out


@pytest.mark.parametrize("repaired", [False, True])
def test_another_difference_matches_nothing(repaired: bool) -> None:
    """A difference that no habit explains: none of the repairs fits it by accident."""
    x, w, b = drawn(P, 16), drawn(P, N, seed=1), drawn(N, seed=2)

    def meant(x: Array, w: Array, b: Array) -> Array:
        return sigmoid(x.T @ w + b)

    good = case(plain, meant, x, w, b)
    assert good.right
    if repaired:
        kept = [repair for repair in good.every() if good.same(good.run(repair))]
        # one tile of two rows of tiles is no scan, and clamps beyond what a sigmoid gives change nothing
        assert {repair.cause for repair in kept} <= {"clamp-missing", "function-missing"}, [
            repair.sentence for repair in kept
        ]
    else:
        other = case(plain, lambda x, w, b: meant(x, w, b) * (1 + 0.01 * np.sin(np.arange(N))), x, w, b)
        assert other.hits() == []


def test_repairs_may_be_executed_again() -> None:
    for kernel, given in (
        (scanned, (drawn(P, WIDE),)),
        (block_softmax, (drawn(P, WIDE),)),
        (gated, (drawn(P, N),)),
    ):
        problem = case(kernel, lambda *_: np.zeros(1), *given)
        for repair in problem.every():
            once, again = problem.run(repair), problem.run(repair)
            assert (once is None) == (again is None)
            if once is not None and again is not None:
                np.testing.assert_array_equal(once, again)
