"""Arrays taken piece by piece give what they give at once."""

from __future__ import annotations

import numpy as np
import pytest
from execute_kit import Kernel

from nkireview.diagnosis.tolerance import SIGMAS, Tolerance
from nkireview.execute import execute
from nkireview.isa import dtypes
from nkireview.isa.dtypes import BY_NAME
from nkireview.numerics.arrays import PIECE, pieces, root_mean_square, windows


@pytest.mark.parametrize("shape", [(1, 5), (3, PIECE + 7), (PIECE + 1, 1), (300, 700), (0, 4)])
def test_pieces_and_windows_cover_an_array_once(shape: tuple[int, int]) -> None:
    flat, matrix = np.zeros(shape[0] * shape[1], int), np.zeros(shape, int)
    for piece in pieces(flat.size):
        flat[piece] += 1
    for part in windows(*shape, most=PIECE):
        assert matrix[part].size <= PIECE
        matrix[part] += 1
    assert (flat == 1).all() and (matrix == 1).all()


def test_the_root_mean_square_leaves_out_what_is_not_finite() -> None:
    generator = np.random.default_rng(0)
    one, other = generator.standard_normal((2, 300, 700))
    one[0, :3] = np.nan, np.inf, -np.inf
    held = one.reshape(-1)[3:]
    apart = held - other.reshape(-1)[3:]
    assert root_mean_square(one) == pytest.approx(float(np.sqrt(np.mean(held**2))), rel=1e-12)
    assert root_mean_square(one, less=other) == pytest.approx(float(np.sqrt(np.mean(apart**2))), rel=1e-12)
    assert root_mean_square(np.full(4, np.nan)) == root_mean_square(np.zeros(0)) == 0.0


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16", "float8_e4m3", "float8_e8m0fnu"])
def test_a_spacing_is_that_of_the_binade(name: str) -> None:
    dtype = BY_NAME[name]
    sizes = np.concatenate([[0.0, 1.0, dtype.max_finite, 1e300, 1e-300], 2.0 ** np.linspace(-160, 160, 4001)])
    top = int(np.frexp(dtype.max_finite)[1])
    exponent = np.minimum(np.frexp(np.maximum(sizes, 2.0**dtype.min_exponent))[1], top)
    expected = np.ldexp(1.0, exponent - dtype.significand_bits)
    np.testing.assert_array_equal(dtypes.ulp(sizes, dtype), expected)
    np.testing.assert_array_equal(dtypes.ulp(-sizes, dtype), expected)


@pytest.mark.parametrize("wrong", [1.0, np.nan])
def test_what_is_used_in_short_is_that_of_all_elements(wrong: float) -> None:
    generator = np.random.default_rng(1)
    want = generator.standard_normal((200, 500))
    have = want + 1e-3 * generator.standard_normal(want.shape)
    have[150, 77] += wrong
    tolerance = Tolerance("float32", want, np.full(want.shape, 1e-3 / SIGMAS), np.full(want.shape, 1e-3))
    use, used = tolerance.use(have, want), tolerance.used(have, want)
    assert (used.largest, used.place) == (
        float(use.max()),
        int(use.argmax()),
    ) and used.place == 150 * 500 + 77
    assert (used.over, used.elements) == (int((use > 1).sum()), use.size)
    assert not tolerance.holds(have, want) and tolerance.holds(want, want)


def test_arguments_in_float64_are_neither_changed_nor_felt() -> None:
    kernel = Kernel()
    kernel.store(kernel.load(np.random.default_rng(2).standard_normal((16, 16)).astype(np.float32)))
    program = kernel.program()
    wide = {buffer: given.astype(np.float64) for buffer, given in kernel.arguments.items()}
    kept = {buffer: given.copy() for buffer, given in wide.items()}
    one, other = (
        execute(program, given, compute=np.float64, rounding="off").outputs[0].values
        for given in (kernel.arguments, wide)
    )
    np.testing.assert_array_equal(one, other)
    assert all((wide[buffer] == kept[buffer]).all() for buffer in wide)
