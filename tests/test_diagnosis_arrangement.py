"""Repairs of arrangement: each names its fault in a small kernel written wrong by hand, and no repair fits by accident.

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
from nkireview.diagnosis import arrangement
from nkireview.diagnosis.arrangement.places import Places
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
Meant = Callable[..., Array]
P, N = 8, 12


@dataclass(frozen=True)
class Case:
    """A kernel with its arguments and what it was meant to give."""

    program: Program
    arguments: dict[int, Array]
    wanted: Array

    def run(self, repair: Repair | None = None) -> Array:
        """The unrounded output; a fault is an error."""
        found = execute(
            repair.program if repair else self.program,
            {**self.arguments, **(repair.arguments if repair else {})},
            compute=np.float64,
            rounding="off",
            around=repair.around if repair else None,
        )
        assert repair or not found.faults
        return np.asarray(found.outputs[0].values, np.float64)

    def same(self, got: Array, close: float = 1e-12) -> bool:
        if not np.isfinite(got).all():
            return False
        most = max(float(np.abs(self.wanted).max()), 1e-300)
        return got.shape == self.wanted.shape and float(np.abs(got - self.wanted).max()) <= close * most

    def every(self) -> list[Repair]:
        found = list(arrangement.repairs(Dataflow.of(self.program, ROWS), self.arguments))
        assert len(found) <= arrangement.LIMIT
        return found

    def hits(self, close: float = 1e-12) -> list[Repair]:
        """The repairs that make the kernel right, which it is not; each gives the same when it runs again."""
        assert not self.same(self.run(), close)
        found = [repair for repair in self.every() if self.same(self.run(repair), close)]
        assert all(self.same(self.run(repair), close) for repair in found)
        return found


def case(kernel: Callable[..., Any], meant: Meant, *arrays: Array) -> Case:
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
    exact = [each.astype(np.float64) if each.dtype.kind == "f" else each.astype(np.int64) for each in arrays]
    given = {buffer.id: each for buffer, each in zip(buffers, arrays, strict=True)}
    return Case(program, given, np.asarray(meant(*exact), np.float64))


def named(cause: str, words: str, kernel: Callable[..., Any], meant: Meant, *arrays: Array) -> Repair:
    """The first repair that makes a wrong kernel right: of that cause, as all that do, with those words and a place."""
    found = case(kernel, meant, *arrays).hits()
    assert found, "no repair"
    said = [(repair.cause, repair.sentence) for repair in found]
    assert {repair.cause for repair in found} == {cause}, said
    assert words in found[0].sentence, said
    assert "test_diagnosis_arrangement.py:" in found[0].sentence
    return found[0]


def unmatched(kernel: Callable[..., Any], meant: Meant, *arrays: Array) -> None:
    """A right kernel, held against something else, gets no repair."""
    right = case(kernel, meant, *arrays)
    assert right.same(right.run())
    wanted = right.wanted * (1 + 0.01 * drawn(*right.wanted.shape, seed=99))
    other = Case(right.program, right.arguments, wanted)
    assert other.hits() == []


def drawn(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def positive(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).uniform(0.5, 2.0, shape).astype(np.float32)


def tile(*shape: int, dtype: Any = nl.float32, buffer: Any = None) -> Any:
    return nl.ndarray(shape, dtype, buffer=buffer) if buffer is not None else nl.ndarray(shape, dtype)


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


def scalar(data: Any, *given: Any) -> Any:
    """data op0 operand0 op1 operand1, as a new tile."""
    found = tile(*data.shape)
    names = ("op0", "operand0", "op1", "operand1")
    nisa.tensor_scalar(dst=found, data=data, **dict(zip(names, given, strict=False)))
    return found


def activated(op: Any, data: Any, **given: Any) -> Any:
    """op(data), as a new tile."""
    found = tile(*data.shape)
    nisa.activation(dst=found, op=op, data=data, **given)
    return found


def reduced(op: Any, data: Any, **given: Any) -> Any:
    found = tile(data.shape[0], 1)
    nisa.tensor_reduce(dst=found, op=op, data=data, axis=1, **given)
    return found


def matmul(stationary: Any, moving: Any) -> Any:
    """stationary.T @ moving, in SBUF."""
    product = tile(stationary.shape[1], moving.shape[1], buffer=nl.psum)
    nisa.nc_matmul(dst=product, stationary=stationary, moving=moving)
    found = tile(*product.shape)
    nisa.tensor_copy(dst=found, src=product)
    return found


def over(data: Any, column: Any) -> Any:
    """data divided by one number a row."""
    inverse = tile(column.shape[0], 1)
    nisa.reciprocal(dst=inverse, data=column)
    return scalar(data, nl.multiply, inverse)


def relu(values: Array) -> Array:
    return np.maximum(values, 0)


# orders


def dequantised(x: Any, scale: Any, zero: Any) -> Any:
    return stored(scalar(loaded(x), nl.multiply, loaded(scale), nl.subtract, loaded(zero)))


QUANTISED = drawn(P, N), positive(P, 1, seed=1), drawn(P, 1, seed=2)


def test_a_zero_point_subtracted_after_the_scale() -> None:
    named(
        "step-order",
        "tensor_scalar multiplies with operand0, then subtracts operand1: where it subtracts operand1, then multiplies",
        dequantised,
        lambda x, scale, zero: (x - zero) * scale,
        *QUANTISED,
    )
    unmatched(dequantised, lambda x, scale, zero: x * scale - zero, *QUANTISED)


@pytest.mark.parametrize(
    "meant",
    [
        lambda x, s, b: np.exp((x + b) * s),
        lambda x, s, b: np.exp(x + b) * s,
        lambda x, s, b: np.exp(x * s) + b,
        lambda x, s, b: np.exp(x) * s + b,
    ],
)
def test_scale_bias_and_function_of_one_activation(meant: Meant) -> None:
    def kernel(x: Any, scale: Any, bias: Any) -> Any:
        return stored(activated(nl.exp, loaded(x), scale=loaded(scale), bias=loaded(bias)))

    named("step-order", "activation multiplies with scale, then adds bias", kernel, meant, *QUANTISED)


def test_the_sum_of_an_activation_follows_its_order() -> None:
    def kernel(x: Any, scale: Any, bias: Any) -> Any:
        total = tile(P, 1)
        activated(
            nl.exp, loaded(x), scale=loaded(scale), bias=loaded(bias), reduce_op=nl.add, reduce_res=total
        )
        return stored(total)

    def meant(x: Array, scale: Array, bias: Array) -> Array:
        return np.exp((x + bias) * scale).sum(axis=1, keepdims=True)

    named("step-order", "", kernel, meant, *QUANTISED)


def test_two_instructions_across_a_cast() -> None:
    def kernel(x: Any, y: Any) -> Any:
        first, cast = activated(nl.relu, loaded(x)), tile(P, N, dtype=nl.bfloat16)
        nisa.tensor_copy(dst=cast, src=first)
        return stored(tensor(nl.add, cast, loaded(y)))

    arrays = drawn(P, N), drawn(P, N, seed=1)
    named("step-order", "activation", kernel, lambda x, y: relu(x + y), *arrays)
    unmatched(kernel, lambda x, y: relu(x) + y, *arrays)


def test_a_factor_outside_a_root() -> None:
    def kernel(x: Any) -> Any:
        return stored(scalar(activated(nl.sqrt, loaded(x)), nl.multiply, 0.125))

    named("step-order", "takes sqrt, and only then", kernel, lambda x: np.sqrt(x / 8), positive(P, N))


@pytest.mark.parametrize(
    ("op", "meant"),
    [
        (nl.square, lambda x: np.square(x.sum(axis=1, keepdims=True))),
        (nl.abs, lambda x: np.abs(x.sum(axis=1, keepdims=True))),
    ],
)
def test_a_function_before_a_sum(op: Any, meant: Meant) -> None:
    def kernel(x: Any) -> Any:
        return stored(reduced(nl.add, activated(op, loaded(x))))

    named("step-order", "before the reduction by add", kernel, meant, drawn(P, N))


def test_a_root_after_a_sum() -> None:
    def kernel(x: Any) -> Any:
        return stored(activated(nl.sqrt, reduced(nl.add, loaded(x)), scale=0.5))

    def meant(x: Array) -> Array:
        return np.sqrt(x / 2).sum(axis=1, keepdims=True)

    named("step-order", "after the reduction by add", kernel, meant, positive(P, N))


def test_a_bias_and_function_around_a_matmul() -> None:
    def before(x: Any, w: Any) -> Any:
        return stored(matmul(activated(nl.relu, loaded(x)), loaded(w)))

    def after(x: Any, w: Any) -> Any:
        return stored(activated(nl.relu, matmul(loaded(x), loaded(w))))

    arrays = drawn(N, P), drawn(N, 16, seed=1)
    named("step-order", "before the matmul", before, lambda x, w: relu(x.T @ w), *arrays)
    named("step-order", "activation", after, lambda x, w: relu(x).T @ w, *arrays)
    unmatched(before, lambda x, w: relu(x).T @ w, *arrays)


def test_a_function_after_a_matmul_over_parts() -> None:
    def kernel(x: Any, w: Any) -> Any:
        product, found = tile(P, 16, buffer=nl.psum), tile(P, 16)
        for at in range(0, 2 * N, N):
            nisa.nc_matmul(
                dst=product,
                stationary=loaded(x[at : at + N]),
                moving=loaded(w[at : at + N]),
                accumulate=at > 0,
            )
        nisa.activation(dst=found, op=nl.relu, data=product)
        return stored(found)

    arrays = drawn(2 * N, P), drawn(2 * N, 16, seed=1)
    named("step-order", "after the matmul", kernel, lambda x, w: relu(x).T @ w, *arrays)


# masks

D, S, TILE = 16, 24, 8


def scores_of(q: Any, k: Any, masked: Callable[[Any, int, int], Any], *, tail: int = 0) -> Any:
    """q.T @ k in tiles; masked: what is made of the tile whose first row and column are given."""
    out = hbm(q.shape[1], k.shape[1])
    for row in range(0, q.shape[1], TILE):
        for column in range(0, k.shape[1], TILE):
            part = slice(row, min(row + TILE, q.shape[1])), slice(column, min(column + TILE, k.shape[1]))
            product = matmul(loaded(q[:, part[0]]), loaded(k[:, part[1]]))
            nisa.dma_copy(dst=out[part], src=masked(product, row, column))
    return out


def selected(data: Any, offset: int, cmp_op: Any = None, sign: int = 1) -> Any:
    """Elements at columns up to the row, counted from an offset, else 0."""
    found = tile(*data.shape)
    nisa.affine_select(
        dst=found,
        pattern=[[-sign, data.shape[1]]],
        channel_multiplier=sign,
        on_true_tile=data,
        on_false_value=0.0,
        cmp_op=cmp_op or nl.greater_equal,
        offset=offset,
    )
    return found


def causal(q: Array, k: Array) -> Array:
    return np.tril(q.T @ k)


QK = drawn(D, S), drawn(D, S, seed=1)


@pytest.mark.parametrize(
    ("offset", "words"),
    [
        (lambda row, column: 0, "moved on by the first row and first column"),
        (lambda row, column: row, "moved on by the first column"),
        (lambda row, column: -column, "moved on by the first row"),
        (lambda row, column: column - row, "counted from the first row and first column"),
        (lambda row, column: (row - column) // TILE, "moved on by the first row and first column"),
    ],
)
def test_an_offset_that_ignores_the_tile(offset: Callable[[int, int], int], words: str) -> None:
    def kernel(q: Any, k: Any) -> Any:
        return scores_of(q, k, lambda data, row, column: selected(data, offset(row, column)))

    named("mask-tile-offset", words, kernel, causal, *QK)


def test_an_offset_of_tiles_with_a_tail() -> None:
    def kernel(q: Any, k: Any) -> Any:
        return scores_of(q, k, lambda data, row, column: selected(data, 0))

    named("mask-tile-offset", "moved on", kernel, causal, drawn(D, S - 3), drawn(D, S + 4, seed=1))


def test_an_offset_with_one_sign_turned() -> None:
    def kernel(q: Any, k: Any) -> Any:
        return scores_of(q, k, lambda data, row, column: selected(data, 0))

    def meant(q: Array, k: Array) -> Array:
        scores = q.T @ k
        rows, columns = np.indices(scores.shape)
        inner = rows % TILE - columns % TILE
        return np.where(inner + rows // TILE * TILE + columns // TILE * TILE >= 0, scores, 0)

    named("mask-tile-offset", "with the sign of the column turned", kernel, meant, *QK)


def test_a_right_offset_gets_no_repair() -> None:
    def kernel(q: Any, k: Any) -> Any:
        return scores_of(q, k, lambda data, row, column: selected(data, row - column))

    unmatched(kernel, causal, *QK)


def test_places_of_tiles_cut_from_a_whole_one() -> None:
    def kernel(q: Any, k: Any) -> Any:
        # queries by rows, transposed on chip; keys loaded at once and cut
        held, out = loaded(k), hbm(S, S)
        for row in range(0, S, TILE):
            turned, queries = tile(D, TILE, buffer=nl.psum), tile(D, TILE)
            nisa.nc_transpose(dst=turned, data=loaded(q[row : row + TILE]))
            nisa.tensor_copy(dst=queries, src=turned)
            for column in range(0, S, TILE):
                data = matmul(queries, held[:, column : column + TILE])
                nisa.dma_copy(dst=out[row : row + TILE, column : column + TILE], src=selected(data, 0))
        return out

    named(
        "mask-tile-offset", "moved on", kernel, lambda q, k: np.tril(q @ k), drawn(S, D), drawn(D, S, seed=1)
    )


def test_corners_of_a_tile_in_heads() -> None:
    def kernel(x: Any) -> Any:
        out = hbm(2, TILE, 5)
        for head in range(2):
            nisa.dma_copy(dst=out[head], src=activated(nl.relu, loaded(x[head, 4 : 4 + TILE, 3:8])))
        return out

    found = case(kernel, lambda x: relu(x[:, 4 : 4 + TILE, 3:8]), drawn(2, S, N))
    flow = Dataflow.of(found.program, ROWS)
    corners = [Places(flow).corner(site.slot("data")) for site in flow.sites(["activation"])]
    assert [corner.at for corner in corners] == [(4, 3)] * len(corners)
    row, column = corners[0].row, corners[0].column
    assert row is not None and (row.axis, row.length) == (1, S)
    assert column is not None and (column.axis, column.length) == (2, N)


def test_one_mask_used_for_all_tiles() -> None:
    def kernel(q: Any, k: Any) -> Any:
        ones = tile(TILE, TILE)
        nisa.memset(dst=ones, value=1.0)
        mask = selected(ones, 0)
        return scores_of(q, k, lambda data, row, column: tensor(nl.multiply, data, mask))

    named("mask-tile-offset", "is used for 9 tiles", kernel, causal, *QK)


def test_a_count_that_ignores_the_tile() -> None:
    def kernel(q: Any, k: Any) -> Any:
        def masked(data: Any, row: int, column: int) -> Any:
            counts = tile(*data.shape)
            nisa.iota(dst=counts, pattern=[[-1, data.shape[1]]], offset=0, channel_multiplier=1)
            return tensor(nl.multiply, data, scalar(counts, nl.greater_equal, 0.0))

        return scores_of(q, k, masked)

    named("mask-tile-offset", "the offset of iota", kernel, causal, *QK)


def test_a_mask_on_the_diagonal_only() -> None:
    def kernel(q: Any, k: Any) -> Any:
        return scores_of(q, k, lambda data, row, column: selected(data, 0) if row == column else data)

    named("mask-tile-offset", "masks 3 tiles, and 6 more", kernel, causal, *QK)


def test_a_mask_on_all_tiles() -> None:
    def kernel(q: Any, k: Any) -> Any:
        return scores_of(q, k, lambda data, row, column: selected(data, 0))

    def meant(q: Array, k: Array) -> Array:
        scores = q.T @ k
        rows, columns = np.indices(scores.shape)
        return np.where((rows // TILE == columns // TILE) & (columns > rows), 0, scores)

    named("mask-tile-offset", "only those on the diagonal", kernel, meant, *QK)


def softmax(data: Any, normal: bool = True) -> Any:
    top, total = reduced(nl.maximum, data, negate=True), tile(data.shape[0], 1)
    powers = activated(nl.exp, data, bias=top, scale=1.0, reduce_op=nl.add, reduce_res=total)
    nisa.reciprocal(dst=total, data=total)
    return scalar(powers, nl.multiply, total) if normal else powers


def masked_softmax(keep: Callable[[Array, Array], Array]) -> Meant:
    def meant(q: Array, k: Array) -> Array:
        scores = q.T @ k
        rows, columns = np.indices(scores.shape)
        return np.asarray(special.softmax(np.where(keep(rows, columns), scores, -1e30), axis=1))

    return meant


@pytest.mark.parametrize(
    ("words", "keep"),
    [
        ("causal", lambda rows, columns: columns <= rows),
        ("before the diagonal masked", lambda rows, columns: columns >= rows),
        ("on and after the diagonal", lambda rows, columns: columns < rows),
        ("aligned at the end", lambda rows, columns: columns <= rows + S - 2 * TILE),
    ],
)
def test_a_mask_that_is_missing(words: str, keep: Callable[[Array, Array], Array]) -> None:
    def kernel(q: Any, k: Any) -> Any:
        out = hbm(2 * TILE, S)
        for row in range(0, 2 * TILE, TILE):
            data = matmul(loaded(q[:, row : row + TILE]), loaded(k))
            nisa.dma_copy(dst=out[row : row + TILE], src=softmax(data))
        return out

    named("mask-missing", words, kernel, masked_softmax(keep), drawn(D, 2 * TILE), QK[1])


def test_a_mask_that_is_not_needed() -> None:
    def kernel(q: Any, k: Any) -> Any:
        return scores_of(q, k, lambda data, row, column: selected(data, row - column))

    named("mask-extra", "affine_select masks elements", kernel, lambda q, k: q.T @ k, *QK)


def test_a_predicate_that_chooses_too_little() -> None:
    def kernel(x: Any) -> Any:
        held, positive, found = loaded(x), tile(P, N, dtype=nl.uint8), tile(P, N)
        nisa.tensor_scalar(dst=positive, data=held, op0=nl.greater, operand0=0.0)
        nisa.memset(dst=found, value=0.0)
        nisa.tensor_copy_predicated(dst=found, src=activated(nl.tanh, held), predicate=positive)
        return stored(found)

    named("mask-extra", "with all copied", kernel, np.tanh, drawn(P, N))


# an attention with everything


def attention(fault: str, size: int = 8) -> Callable[..., Any]:
    """Causal attention over tiles with running maxima and sums, with one fault."""

    def kernel(q: Any, k: Any, v: Any) -> Any:
        depth, length = q.shape
        out = hbm(length, depth)
        for row in range(0, length, size):
            queries = scalar(loaded(q[:, row : row + size]), nl.multiply, depth**-0.5)
            top, total, sums = tile(size, 1), tile(size, 1), tile(size, depth)
            nisa.memset(dst=top, value=-1e30)
            nisa.memset(dst=total, value=0.0)
            nisa.memset(dst=sums, value=0.0)
            last = length if fault == "guard" else row + 1
            for column in range(0, last, size):
                scores = matmul(queries, loaded(k[:, column : column + size]))
                if fault != "unmasked" and (fault != "guard" or column == row):
                    kept = tile(size, size)
                    nisa.affine_select(
                        dst=kept,
                        pattern=[[-1, size]],
                        channel_multiplier=1,
                        on_true_tile=scores,
                        on_false_value=-1e30,
                        cmp_op=nl.greater_equal,
                        offset=0 if fault == "tile" else row if fault == "row" else row - column,
                    )
                    scores = kept
                higher = tensor(nl.maximum, top, reduced(nl.maximum, scores))
                factor = activated(nl.exp, tensor(nl.subtract, top, higher))
                part = tile(size, 1)
                less = scalar(higher, nl.multiply, -1.0)
                powers = activated(nl.exp, scores, bias=less, scale=1.0, reduce_op=nl.add, reduce_res=part)
                nisa.scalar_tensor_tensor(
                    dst=total, data=total, op0=nl.multiply, operand0=factor, op1=nl.add, operand1=part
                )
                nisa.tensor_copy(dst=top, src=higher)
                turned, weights = tile(size, size, buffer=nl.psum), tile(size, size)
                nisa.nc_transpose(dst=turned, data=powers)
                nisa.tensor_copy(dst=weights, src=turned)
                product = matmul(weights, loaded(v[column : column + size]))
                if fault == "early":
                    product = over(product, total)
                nisa.scalar_tensor_tensor(
                    dst=sums, data=sums, op0=nl.multiply, operand0=factor, op1=nl.add, operand1=product
                )
            result = sums if fault in ("early", "undivided") else over(sums, total)
            if fault == "twice":
                result = over(result, total)
            nisa.dma_copy(dst=out[row : row + size], src=result)
        return out

    return kernel


def attended(q: Array, k: Array, v: Array) -> Array:
    scores = q.T @ k * q.shape[0] ** -0.5
    return np.asarray(special.softmax(np.where(np.tri(len(scores)) > 0, scores, -1e30), axis=1) @ v)


QKV = drawn(D, S), drawn(D, S, seed=1), drawn(S, D, seed=2)


@pytest.mark.parametrize(
    ("fault", "cause", "words"),
    [
        ("tile", "mask-tile-offset", "moved on by the first row and first column of each tile"),
        ("row", "mask-tile-offset", "moved on by the first column of each tile"),
        ("guard", "mask-tile-offset", "masks 3 tiles, and 6 more are made like them without a mask"),
        ("unmasked", "mask-missing", "the row maximum is taken of all scores"),
        ("undivided", "normaliser-place", "nothing is divided by the row sum of scalar_tensor_tensor"),
        ("twice", "normaliser-place", "divides by the row sum once more"),
        ("early", "normaliser-place", "divides by the row sum before it is complete"),
    ],
)
def test_faults_of_an_attention(fault: str, cause: str, words: str) -> None:
    found = case(attention(fault), attended, *QKV).hits(1e-10)
    assert found and found[0].cause == cause and words in found[0].sentence


def test_a_right_attention_gets_no_repair() -> None:
    unmatched(attention(""), attended, *QKV)


# normalisers


def test_a_division_left_out() -> None:
    def kernel(x: Any) -> Any:
        return stored(softmax(loaded(x), normal=False))

    named("normaliser-place", "nothing is divided", kernel, lambda x: special.softmax(x, axis=1), drawn(P, N))


def divided(x: Any) -> Any:
    """x over its row sum, twice."""
    held = loaded(x)
    total = reduced(nl.add, held)
    once = over(held, total)
    return stored(over(once, total))


def test_a_division_made_twice() -> None:
    def meant(x: Array) -> Array:
        return x / x.sum(axis=1, keepdims=True)

    # to divide by the root of the sum twice comes to the same
    found = case(divided, meant, positive(P, N)).hits()
    assert found[0].cause == "normaliser-place" and "once more" in found[0].sentence
    unmatched(divided, lambda x: x / x.sum(axis=1, keepdims=True) ** 2, positive(P, N))


def test_a_division_before_the_sum_is_complete() -> None:
    def kernel(x: Any, v: Any) -> Any:
        total, found = tile(P, 1), tile(P, 16)
        nisa.memset(dst=total, value=0.0)
        nisa.memset(dst=found, value=0.0)
        for at in range(0, 2 * N, N):
            part = loaded(x[at : at + N])
            ones = tile(N, 1)
            nisa.memset(dst=ones, value=1.0)
            nisa.tensor_tensor(dst=total, data1=total, data2=matmul(part, ones), op=nl.add)
            product = matmul(part, loaded(v[at : at + N]))
            nisa.tensor_tensor(dst=found, data1=found, data2=over(product, total), op=nl.add)
        return stored(found)

    def meant(x: Array, v: Array) -> Array:
        return x.T @ v / x.sum(axis=0)[:, None]

    arrays = positive(2 * N, P), drawn(2 * N, 16, seed=1)
    named("normaliser-place", "before it is complete", kernel, meant, *arrays)


# norms

EPS = 1e-3


def normed(x: Any, *, op: Any = nl.maximum) -> Any:
    """x / max(|x|, eps)."""
    held = loaded(x)
    root = activated(nl.sqrt, reduced(nl.add, tensor(nl.multiply, held, held)))
    return stored(over(held, scalar(root, op, EPS)))


def length(x: Array) -> Array:
    return np.asarray(np.sqrt(np.square(x).sum(axis=1, keepdims=True)))


SMALL = drawn(P, N) * np.float32(1e-3) * np.arange(1, P + 1, dtype=np.float32)[:, None] / 16


@pytest.mark.parametrize(
    ("op", "words", "meant"),
    [
        (nl.maximum, "with their sum", lambda x: x / (length(x) + EPS)),
        (nl.maximum, "squared added before it", lambda x: x / np.sqrt(length(x) ** 2 + EPS**2)),
        (nl.maximum, "0.001 added before it", lambda x: x / np.sqrt(length(x) ** 2 + EPS)),
        (nl.add, "with the larger", lambda x: x / np.maximum(length(x), EPS)),
    ],
)
def test_an_epsilon_in_a_maximum(op: Any, words: str, meant: Meant) -> None:
    def kernel(x: Any) -> Any:
        return normed(x, op=op)

    named("eps-in-maximum", words, kernel, meant, SMALL)


def test_an_epsilon_in_a_root() -> None:
    def kernel(x: Any) -> Any:
        held = loaded(x)
        total = scalar(reduced(nl.add, tensor(nl.multiply, held, held)), nl.add, EPS)
        return stored(scalar(held, nl.multiply, activated(nl.rsqrt, total)))

    named("eps-in-maximum", "before the square root", kernel, lambda x: x / np.maximum(length(x), EPS), SMALL)
    unmatched(kernel, lambda x: x / np.sqrt(length(x) ** 2 + EPS), SMALL)


def test_magnitudes_in_two_reductions() -> None:
    def kernel(x: Any, y: Any) -> Any:
        one, other = loaded(x), loaded(y)
        top = reduced(nl.maximum, one)
        below = tile(P, 1)
        nisa.tensor_reduce(dst=below, op=nl.maximum, data=other, axis=1)
        return stored(over(one, tensor(nl.add, top, below)))

    def meant(x: Array, y: Array) -> Array:
        return x / (np.abs(x).max(axis=1, keepdims=True) + np.abs(y).max(axis=1, keepdims=True))

    arrays = -positive(P, N), -positive(P, N, seed=1)
    named("magnitude-missing", "of their magnitudes", kernel, meant, *arrays)


def test_a_root_that_is_missing() -> None:
    def kernel(x: Any) -> Any:
        held = loaded(x)
        total = scalar(reduced(nl.add, tensor(nl.multiply, held, held)), nl.multiply, 1 / N, nl.add, EPS)
        return stored(over(held, total))

    def meant(x: Array) -> Array:
        return x / np.sqrt((x**2).mean(axis=1, keepdims=True) + EPS)

    assert "root-missing" in {repair.cause for repair in case(kernel, meant, drawn(P, N)).hits()}


def centred(x: Any, *, about: str) -> Any:
    """(x - mean) over the root of its mean square, or of that of x."""
    held = loaded(x)
    mean = scalar(reduced(nl.add, held), nl.multiply, -1 / N)
    less = scalar(held, nl.add, mean)
    of = less if about == "mean" else held
    total = scalar(reduced(nl.add, tensor(nl.multiply, of, of)), nl.multiply, 1 / N)
    return stored(over(less, activated(nl.sqrt, total)))


@pytest.mark.parametrize(
    ("about", "words", "meant"),
    [
        ("mean", "those of the values themselves", lambda x: np.sqrt((x**2).mean(axis=1, keepdims=True))),
        ("zero", "less the mean of their row", lambda x: x.std(axis=1, keepdims=True)),
    ],
)
def test_a_variance_about_the_wrong_centre(about: str, words: str, meant: Meant) -> None:
    def kernel(x: Any) -> Any:
        return centred(x, about=about)

    def whole(x: Array) -> Array:
        return (x - x.mean(axis=1, keepdims=True)) / meant(x)

    named("variance-centre", words, kernel, whole, positive(P, N))


def test_a_variance_of_bn_aggr_about_zero() -> None:
    def kernel(x: Any) -> Any:
        part, both = tile(P, 6), tile(P, 2)
        held = loaded(x)
        nisa.bn_stats(dst=part, data=held)
        nisa.bn_aggr(dst=both, data=part)
        return stored(over(held, activated(nl.sqrt, both[:, 1:2])))

    def meant(x: Array) -> Array:
        return x / np.sqrt((x**2).mean(axis=1, keepdims=True))

    found = case(kernel, meant, positive(P, N)).hits(1e-10)
    assert [repair.cause for repair in found] == ["variance-centre"]
    assert "bn_aggr gives the variance about the mean" in found[0].sentence


def test_means_in_place_of_sums() -> None:
    def kernel(x: Any) -> Any:
        return stored(activated(nl.exp, reduced(nl.add, loaded(x))))

    def meant(x: Array) -> Array:
        return np.exp(x.mean(axis=1, keepdims=True))

    assert "mean-for-sum" in {repair.cause for repair in case(kernel, meant, drawn(P, N)).hits()}


# parameters

LEVELS = np.random.default_rng(5).integers(0, 255, (2 * P, N)).astype(np.uint8)


def levels(q: Any, scale: Any, zero: Any) -> Any:
    """q * scale, in two tiles."""
    out = hbm(2 * P, N)
    factor = tile(P, 1)
    for row in range(0, 2 * P, P):
        nisa.dma_copy(dst=factor, src=scale[row : row + P])
        held, wide = loaded(q[row : row + P]), tile(P, N)
        nisa.tensor_copy(dst=wide, src=held)
        nisa.dma_copy(dst=out[row : row + P], src=scalar(wide, nl.multiply, factor))
    return out


@pytest.mark.parametrize(
    ("zero", "words", "meant"),
    [
        (positive(1, seed=3), "zero of it", lambda q, scale, zero: (q - zero) * scale),
        (positive(2 * P, 1, seed=3), "zero along axis 0", lambda q, scale, zero: (q - zero) * scale),
        (positive(N, seed=3), "zero along axis 1", lambda q, scale, zero: (q - zero) * scale),
    ],
)
def test_a_zero_point_left_out(zero: Array, words: str, meant: Meant) -> None:
    arrays = LEVELS, positive(2 * P, 1, seed=1), zero
    named("zero-point", words, levels, meant, *arrays)


def test_a_vector_along_the_other_axis() -> None:
    def kernel(x: Any, scale: Any) -> Any:
        out = hbm(2 * P, 2 * P)
        for row in range(0, 2 * P, P):
            for column in range(0, 2 * P, P):
                part = slice(row, row + P), slice(column, column + P)
                factor = loaded(scale[row : row + P])
                nisa.dma_copy(dst=out[part], src=scalar(loaded(x[part]), nl.multiply, factor))
        return out

    arrays = drawn(2 * P, 2 * P), positive(2 * P, 1, seed=1)
    named("scale-axis", "takes scale along the rows", kernel, lambda x, scale: x * scale.T, *arrays)
    unmatched(kernel, lambda x, scale: x * scale, *arrays)


def test_the_scale_of_another_tensor() -> None:
    def kernel(a: Any, b: Any, one: Any, other: Any) -> Any:
        scale, unused = loaded(one), loaded(other)
        left = scalar(loaded(a), nl.multiply, scale)
        right = scalar(loaded(b), nl.multiply, scale)
        return stored(tensor(nl.add, scalar(left, nl.add, unused), right))

    def meant(a: Array, b: Array, one: Array, other: Array) -> Array:
        return a * one + other + b * other

    arrays = drawn(P, N), drawn(P, N, seed=1), positive(P, 1, seed=2), positive(P, 1, seed=3)
    named("wrong-parameter", "tensor_scalar takes one: with other there", kernel, meant, *arrays)


# indices


def onehot(ids: Any, *, turned: bool = False) -> Any:
    counts = tile(P, N)
    step, offset = (-1, N - 1) if turned else (1, 0)
    nisa.iota(dst=counts, pattern=[[step, N]], offset=offset, channel_multiplier=0)
    return stored(scalar(counts, nl.equal, loaded(ids)))


def test_indices_that_are_compared() -> None:
    ids = np.arange(1, P + 1, dtype=np.float32)[:, None]

    def kernel(ids: Any) -> Any:
        return onehot(ids)

    def meant(ids: Array) -> Array:
        return np.equal(np.arange(N)[None] + 1, ids)

    named("index-base", "with one less", kernel, meant, ids)


def test_counts_that_run_the_other_way() -> None:
    ids = np.arange(1, P + 1, dtype=np.float32)[:, None]

    def kernel(ids: Any) -> Any:
        return onehot(ids, turned=True)

    named("index-base", "the other way round", kernel, lambda ids: np.equal(np.arange(N)[None], ids), ids)
    unmatched(kernel, lambda ids: np.equal(np.arange(N)[::-1][None], ids), ids)


@pytest.mark.parametrize("by", [1, -1])
def test_places_to_gather_from(by: int) -> None:
    def kernel(x: Any, ids: Any) -> Any:
        found = tile(P, 4)
        nisa.nc_n_gather(dst=found, data=loaded(x), indices=loaded(ids))
        return stored(found)

    def meant(x: Array, ids: Array) -> Array:
        return np.take_along_axis(x, ids + by, axis=1)

    ids = np.random.default_rng(3).integers(1, N - 1, (P, 4)).astype(np.uint32)
    named("index-base", "with one more" if by > 0 else "with one less", kernel, meant, drawn(P, N), ids)


def test_rows_that_a_load_goes_by() -> None:
    def kernel(x: Any, ids: Any) -> Any:
        found, rows = tile(P, N), loaded(ids)
        nisa.dma_copy(dst=found, src=x.ap([[N, P], [1, N]], vector_offset=rows, indirect_dim=0))
        return stored(found)

    ids = np.random.default_rng(4).permutation(20)[:P].astype(np.int32)[:, None] + 1
    found = named("index-base", "with one less", kernel, lambda x, ids: x[ids[:, 0] - 1], drawn(24, N), ids)
    assert "the indices that dma_copy leaves" in found.sentence


def test_places_that_are_found() -> None:
    def kernel(x: Any) -> Any:
        held, top, found, out = loaded(x), tile(P, 8), tile(P, 8, dtype=nl.uint32), tile(P, 8)
        nisa.max8(dst=top, src=held)
        nisa.nc_find_index8(dst=found, data=held, vals=top)
        nisa.tensor_copy(dst=out, src=found)
        return stored(out[:, 0:1])

    def meant(x: Array) -> Array:
        return x.argmax(axis=1, keepdims=True) + 1

    named("index-base", "gives the places that it finds: with one more", kernel, meant, drawn(P, N))


def test_steps_on_bits_stay_as_they_are() -> None:
    def kernel(ids: Any) -> Any:
        held, found, out = loaded(ids), tile(P, N, dtype=nl.int32), tile(P, N)
        nisa.tensor_scalar(
            dst=found, data=held, op0=nl.left_shift, operand0=4, op1=nl.bitwise_and, operand1=255
        )
        nisa.tensor_copy(dst=out, src=found)
        return stored(scalar(out, nl.add, 1.0))

    ids = np.random.default_rng(6).integers(0, 64, (P, N)).astype(np.int32)
    unmatched(kernel, lambda ids: (ids << 4 & 255) + 1.0, ids)
