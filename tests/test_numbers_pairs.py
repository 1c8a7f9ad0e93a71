"""The twenty pairs of tests/numbers: the kernels are what their files say, and a diagnosis tells the twins apart.

The first half needs no diagnosis: honest twins agree with their float64 reference to limits chosen by hand, defective
ones clearly do not. The second half holds `diagnose` to both.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).resolve().parent / "numbers"))

from kit import BLIND_FILES, FILES, TWINS, Array, Float64, Pair, epsilon, load, problem, run, tiny, traced

from nkireview.diagnosis import diagnose

PAIRS = tuple(load(path) for path in FILES)
BLIND = tuple(load(path) for path in BLIND_FILES)
"""Pairs that were written without sight of the diagnosis."""
CASES = tuple((pair, dtype) for pair in PAIRS for dtype in pair.dtypes)
ALIGNED = frozenset({"step-differs", "leaves-reference"})
"""The names of what the steps of the reference tell: the sentence says which line, and what it should have."""
TOLD = {
    "b23": (35,), "b25": (44,), "b26": (42, 45), "b27": (55,), "b29": (44, 48), "b30": (47,), "b31": (67,),
    "b32": (51, 62), "b33": (51,), "b35": (39,), "b37": (34,), "b38": (41, 44), "b40": (66,), "b41": (39,),
    "b42": (59,), "b44": (67,), "b45": (64,), "b47": (54,), "b50": (52,), "b53": (29, 31), "b54": (62,), "b55": (60,),
}  # fmt: skip
"""Blind pairs whose fault is told of so, and a line that is named: that of the fault, or the first that computes with
what it spoils (b31, b33, b40: an operand chosen wrongly; b44, b50, b53: one made wrongly; b32: a threshold)."""
SEEDS = int(os.environ.get("NUMBERS_SEEDS", "1"))
"""Inputs of each honest twin; `NUMBERS_SEEDS=10` is all that is asked for, every shape of it, and takes ten minutes."""
UNHURRIED = 120.0
"""Seconds for a diagnosis, so that no verdict depends on the speed of the machine."""

LIMITS = {"float32": 2e-5, "bfloat16": 2e-2, "float16": 4e-3, "float8_e4m3": 1e-2}
"""The largest honest error, as a share of the largest value of its row: some units of the dtype; of integers 0.

fp8 operands have bf16 outputs and exact products.
"""
OWN = {
    "single-pass variance": {"float32": 1e-3},  # the mean, rounded, is 1,500 times the deviations
    "fp8 past 240": dict.fromkeys(LIMITS, 0.038),  # half a unit of fp8, 8 of 240, and half one of the output
    "scale along the wrong axis": dict.fromkeys(LIMITS, 1.01 / 127),  # one step where 127 x / max is a tie
}


def _dtypes(at: int, pair: Pair) -> tuple[str, ...]:
    """One dtype of a pair, another for each; all of them where all seeds are asked for."""
    return pair.dtypes if SEEDS > 1 else (pair.dtypes[at % len(pair.dtypes)],)


def _shapes(pair: Pair, dtype: str) -> tuple[tuple[int, ...], ...]:
    """One shape for each dtype, of blind pairs the first; all of them where all seeds are asked for."""
    if SEEDS == 1 and pair in BLIND:
        return pair.shapes[:1]
    return pair.shapes if SEEDS > 1 else (pair.shapes[pair.dtypes.index(dtype) % len(pair.shapes)],)


def named(value: object) -> str:
    """The name of a case."""
    return value.id.replace(" ", "-") if isinstance(value, Pair) else str(value)


ASKED = BLIND if SEEDS > 1 else BLIND[::2]
"""Every second blind pair, all of them where all seeds are asked for."""
each_case = pytest.mark.parametrize(("pair", "dtype"), CASES, ids=named)
each_diagnosed = pytest.mark.parametrize(
    ("pair", "dtype"),
    CASES + tuple((pair, dtype) for at, pair in enumerate(ASKED) for dtype in _dtypes(at, pair)),
    ids=named,
)


def limit(pair: Pair, dtype: str, got: Array, wanted: Float64) -> Float64:
    """The error allowed in each row."""
    own = OWN.get(pair.id, {}).get(dtype)
    share = own if own is not None else LIMITS[dtype] if epsilon(got) else 0.0
    return np.asarray(share * np.abs(wanted).max(axis=1, keepdims=True))


def errors(got: Array, wanted: Float64) -> Float64:
    """Absolute errors; infinite where the output is not finite."""
    distance = np.abs(got.astype(np.float64) - wanted)
    return np.where(np.isfinite(distance), distance, np.inf)


def beyond_an_ulp(got: Array, wanted: Float64) -> float:
    """The share of elements further than one ulp of themselves from what is wanted."""
    ulp = 2 * np.maximum(epsilon(got) * np.abs(wanted), tiny(got))
    return float((errors(got, wanted) > ulp).mean())


def test_there_are_twenty_pairs_of_the_faults_asked_for() -> None:
    assert len(PAIRS) == 20
    assert len({pair.id for pair in PAIRS}) == len({pair.cause for pair in PAIRS}) == 20
    for pair in PAIRS:
        assert {"float32", "bfloat16", "float16"} <= set(pair.dtypes)
        assert len(set(pair.shapes)) == 3


@each_case
def test_honest_twins_agree_with_the_reference(pair: Pair, dtype: str) -> None:
    for shape in pair.shapes:
        program = traced(pair, "honest", shape, dtype)
        for seed in range(2):
            arrays = pair.inputs(shape, dtype, seed)
            for got, wanted in zip(run(program, arrays), pair.reference(arrays), strict=True):
                assert got.shape == wanted.shape
                over = errors(got, wanted) > limit(pair, dtype, got, wanted)
                assert not over.any(), (shape, seed, np.argwhere(over)[:3])


@each_case
def test_defective_twins_are_clearly_wrong(pair: Pair, dtype: str) -> None:
    """One element in fifty or more is ten limits off, or further than an ulp where half as many honest ones are."""
    for shape in pair.shapes:
        honest, defective = (traced(pair, twin, shape, dtype) for twin in TWINS)
        for seed in range(2):
            arrays = pair.inputs(shape, dtype, seed)
            (right,), (got,) = run(honest, arrays), run(defective, arrays)
            (wanted,) = pair.reference(arrays)
            assert got.shape == right.shape and got.dtype == right.dtype
            far = float((errors(got, wanted) > 10 * limit(pair, dtype, got, wanted)).mean())
            near = beyond_an_ulp(got, wanted)
            if 2 * beyond_an_ulp(right, wanted) > near:
                near = 0.0
            assert max(far, near) >= 0.02, (shape, seed, far, near)


@each_case
def test_references_do_not_change_their_arguments(pair: Pair, dtype: str) -> None:
    arrays = pair.inputs(pair.shapes[0], dtype, 0)
    before = [each.copy() for each in arrays]
    first, again = pair.reference(arrays), pair.reference(arrays)
    for array, kept in zip(arrays, before, strict=True):
        assert array.tobytes() == kept.tobytes()
    for one, other in zip(first, again, strict=True):
        assert one.dtype == np.float64 and np.array_equal(one, other) and np.isfinite(one).all()


@each_diagnosed
def test_defective_twins_are_called_defects_by_name(pair: Pair, dtype: str) -> None:
    for shape in _shapes(pair, dtype):
        asked = problem(pair, "defective", shape, dtype, 0)
        found = diagnose(
            asked.program,
            asked.arguments,
            asked.wanted,
            reference=asked.reference,
            observed=asked.observed,
            seconds=UNHURRIED,
        )
        names = [cause.name for cause in found.causes]
        assert found.verdict == "defect", shape
        if not pair.names & set(names):
            assert ALIGNED & set(names) and pair.id in TOLD, (shape, names)
            said = " ".join(cause.sentence for cause in found.causes)
            assert any(f".py:{line})" in said for line in TOLD[pair.id]), (shape, said)


@(each_diagnosed if SEEDS > 1 else each_case)
def test_honest_twins_are_called_rounding(pair: Pair, dtype: str) -> None:
    for shape in _shapes(pair, dtype):
        for seed in range(SEEDS):
            asked = problem(pair, "honest", shape, dtype, seed)
            found = diagnose(
                asked.program, asked.arguments, asked.wanted, reference=asked.reference, seconds=UNHURRIED
            )
            assert found.verdict == "rounding", (shape, seed, [cause.name for cause in found.causes])
