"""Hostile inputs, against what each kind promises, written out by hand or in plain NumPy."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from nkireview.answers import Answers, Kept
from nkireview.checks.needs import NAMES
from nkireview.numerics import arrays
from nkireview.numerics.hostile import ALWAYS, HOSTILE, HostileFigures, chosen, hostile
from nkireview.record import ReviewRecord
from nkireview.requests import from_file
from nkireview.review import review
from nkireview.rules.finding import Severity
from nkireview.runner import ForkServer
from nkireview.tracing import Request

BF16 = np.dtype(ml_dtypes.bfloat16)
FP8 = np.dtype(ml_dtypes.float8_e4m3)
FN = np.dtype(ml_dtypes.float8_e4m3fn)
Array = NDArray[Any]


def normal(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def made(kind: str, **args: Array) -> dict[str, Array]:
    found = hostile(args, kind)
    assert found is not None
    return found


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, BF16, FP8], ids=str)
def test_every_kind_keeps_names_shapes_dtypes_and_the_given_arrays(kind: str, dtype: Any) -> None:
    def drawn() -> dict[str, Array]:
        return {
            "x": normal(3, 16, 64, dtype=dtype),
            "w": normal(64, 32, seed=1, dtype=dtype),
            "bias": normal(32, seed=2, dtype=dtype),
            "mask": np.random.default_rng(3).random((48, 64)) < 0.5,
            "index": np.arange(48, dtype=np.int32).reshape(48, 1),
        }

    given, other = drawn(), drawn()
    found, again = hostile(given, kind), hostile(other, kind)
    assert found is not None and again is not None
    assert list(found) == list(given)
    for name, array in given.items():
        assert (found[name].shape, found[name].dtype) == (array.shape, array.dtype)
        np.testing.assert_array_equal(array, drawn()[name])  # what was given is as it was
        assert found[name].tobytes() == again[name].tobytes()
    assert any((found[name] != given[name]).any() for name in given)


def test_each_need_that_a_kind_waits_for_exists_and_each_kind_can_be_reached() -> None:
    asked = frozenset().union(*(kind.needs for kind in HOSTILE.values()))
    assert asked <= NAMES
    opt_in = {name for name, kind in HOSTILE.items() if not kind.needs}
    assert opt_in == {"denormals", "infinities", "nans"}
    assert not {name for name, kind in HOSTILE.items() if kind.always} & opt_in
    assert ALWAYS == ("scale-100", "tiny-rows", "large-mean")


def test_the_page_lists_every_kind_with_its_sentence() -> None:
    page = (Path(__file__).resolve().parent.parent / "docs" / "task-format.md").read_text(encoding="utf-8")
    table = page.split("## Hostile inputs\n")[1].split("\n\n")[0]
    rows = dict(re.findall(r"^\| `([\w-]+)` \| (.*) \|$", table, flags=re.M))
    assert rows == {name: kind.sentence for name, kind in HOSTILE.items()}


def test_what_is_chosen_follows_from_needs_and_inputs() -> None:
    assert chosen(()) == ()
    assert chosen({"exp"}) == ("scale-100", "ascending", "masked-row")
    assert chosen({"exp"}, {"x": normal(8, 64)}) == ("scale-100", "ascending")
    assert "masked-row" in chosen({"exp"}, {"x": normal(8, 64), "keep": normal(8, 64) > 0})
    assert chosen({"integer arithmetic"}, {"x": normal(8, 64)}) == ()
    assert chosen({"search"}) == ("ties", "negative")


@pytest.mark.parametrize("dtype", [np.float32, BF16], ids=str)
@pytest.mark.parametrize("shape", [(64, 2048), (2, 512, 128), (512, 64, 1), (7, 13)], ids=str)
def test_ascending_rises_along_both_axes_and_by_more_than_20_from_quarter_to_quarter(
    shape: tuple[int, ...], dtype: Any
) -> None:
    found = made("ascending", x=normal(*shape, dtype=dtype))["x"].astype(np.float64)
    matrix = found[..., 0] if shape[-1] == 1 else found
    assert (np.diff(matrix, axis=-1) >= 0).all() and (np.diff(matrix, axis=-2) >= 0).all()
    columns = matrix.shape[-1]
    for quarter in range(3):
        last = -(-(quarter + 1) * columns // 4) - 1
        assert (matrix[..., last + 1] - matrix[..., last] > 20).all()


def test_ascending_makes_attention_scores_rise_by_more_than_20_too() -> None:
    found = made("ascending", q=normal(32, 64), k=normal(128, 64, seed=1))
    scores = (found["q"].astype(float) @ found["k"].astype(float).T) / 8
    tiles = scores.reshape(32, 4, 32)
    assert (np.diff(scores, axis=1) >= 0).all()
    assert (tiles[:, 1:].min(axis=2) - tiles[:, :-1].max(axis=2) > 20).all()


def test_ascending_catches_a_sum_that_is_never_rescaled() -> None:
    """On inputs as drawn the fault is within a tenth of the result; here nothing is left of it."""

    def online(x: Array, rescale: bool) -> Array:
        top, total = np.full((len(x), 1), -np.inf), np.zeros((len(x), 1))
        for tile in np.split(x, 4, axis=1):
            new = np.maximum(top, tile.max(axis=1, keepdims=True))
            total = total * (np.exp(top - new) if rescale else 1) + np.exp(tile - new).sum(1, keepdims=True)
            top = new
        return np.exp(x - top) / total

    x = made("ascending", x=normal(8, 256))["x"].astype(float)
    right = np.exp(x - x.max(1, keepdims=True)) / np.exp(x - x.max(1, keepdims=True)).sum(1, keepdims=True)
    np.testing.assert_allclose(online(x, True), right, rtol=1e-12)
    assert (np.abs(online(x, False) / right - 1).max(axis=1) > 0.5).all()


def test_a_sweep_covers_minus_5_to_5_evenly_in_each_row_and_keeps_its_order() -> None:
    x = normal(6, 101)
    found = made("sweep", x=x)["x"]
    np.testing.assert_array_equal(found.argsort(axis=1), x.argsort(axis=1))
    np.testing.assert_allclose(np.sort(found, axis=1), np.tile(np.linspace(-5, 5, 101), (6, 1)), rtol=1e-6)


def test_a_sweep_of_a_matmul_reaches_all_of_it_too() -> None:
    found = made("sweep", x=normal(128, 256), w=normal(256, 512, seed=1), bias=normal(512, seed=2))
    product = found["x"].astype(float) @ found["w"].astype(float)
    assert 2 < product.std() < 4  # of products as drawn: 16
    assert np.histogram(product, bins=10, range=(-5, 5))[0].min() > 1000


def test_ties_repeat_the_maximum_at_three_places() -> None:
    x = normal(6, 33)
    found = made("ties", x=x)["x"]
    for row, before in zip(found, x, strict=True):
        assert row[0] == row[16] == row[32] == before.max() == row.max()
    inside = np.delete(np.arange(33), [0, 16, 32])
    np.testing.assert_array_equal(found[:, inside], x[:, inside])


def test_negative_inputs_have_negative_products() -> None:
    x, w = normal(16, 32), normal(32, 24, seed=1)
    x[0, 0] = 0
    found = made("negative", x=x, w=w, bias=normal(24))
    assert (found["x"] < 0).all() and (found["w"] > 0).all() and (found["x"] @ found["w"] < 0).all()
    np.testing.assert_array_equal(found["bias"], normal(24))
    nonzero = x != 0
    np.testing.assert_array_equal(np.abs(found["x"])[nonzero], np.abs(x)[nonzero])


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.float32, BF16], ids=str)
def test_a_mask_of_two_values_has_rows_of_either(dtype: Any) -> None:
    mask = (np.random.default_rng(0).random((9, 32)) < 0.5).astype(dtype)
    found = made("masked-row", x=normal(9, 32), mask=mask)
    np.testing.assert_array_equal(found["x"], normal(9, 32))
    rows = found["mask"].astype(float)
    assert (rows[1::4] == 0).all() and (rows[2::4] == 1).all()
    np.testing.assert_array_equal(rows[0::4], mask.astype(float)[0::4])
    np.testing.assert_array_equal(rows[3::4], mask.astype(float)[3::4])


@pytest.mark.parametrize("low", [-1e9, -30000.0, -np.inf])
def test_an_additive_mask_has_rows_that_are_off_as_a_whole(low: float) -> None:
    mask = np.where(np.random.default_rng(0).random((9, 32)) < 0.5, 0, low).astype(np.float32)
    rows = made("masked-row", mask=mask)["mask"]
    assert (rows[1::4] == np.float32(low)).all()
    keep = np.arange(9) % 4 != 1
    np.testing.assert_array_equal(rows[keep], mask[keep])


@pytest.mark.parametrize(
    "array",
    [normal(8, 16), np.ones((8, 16), np.float32), np.arange(32, dtype=np.int32).reshape(4, 8), -np.eye(4)],
    ids=["normal", "ones", "integers", "small"],
)
def test_what_is_no_mask_is_not_masked(array: Array) -> None:
    assert hostile({"x": array}, "masked-row") is None


@pytest.mark.parametrize("kind", ["ascending", "sweep", "ties", "negative", "zeros-row", "near-overflow"])
def test_a_mask_stays_one(kind: str) -> None:
    mask = np.where(np.random.default_rng(0).random((8, 32)) < 0.5, 0, -1e9).astype(np.float32)
    np.testing.assert_array_equal(made(kind, x=normal(8, 32), mask=mask)["mask"], mask)


def test_zero_rows_are_every_fourth() -> None:
    x = normal(2, 5, 16)
    rows = made("zeros-row", x=x)["x"].reshape(10, 16)
    zero = np.arange(10) % 4 == 1
    assert (rows[zero] == 0).all()
    np.testing.assert_array_equal(rows[~zero], x.reshape(10, 16)[~zero])


def test_large_integers_are_none_that_float32_holds() -> None:
    index = np.arange(100, dtype=np.int32).reshape(4, 25)
    found = made("large-integers", i=index, b=index.astype(np.int8))
    assert (found["i"] > 2**24).all()
    assert (found["i"].astype(np.float32).astype(np.int64) != found["i"]).all()
    np.testing.assert_array_equal(found["b"], index.astype(np.int8))
    assert hostile({"i": np.full((2, 2), 2**31 - 9, np.int32)}, "large-integers") is None


def test_near_overflow_is_below_the_limit_of_the_narrower_dtype() -> None:
    for kind, dtype, limit in (
        ("near-overflow", np.float32, 65504),
        ("near-overflow", FP8, 240),
        ("near-overflow-fp8", BF16, 240),
        ("near-overflow-fp8", np.float16, 240),
    ):
        found = made(kind, x=normal(8, 32, dtype=dtype), y=normal(8, 32, dtype=dtype))
        high = np.abs(found["x"].astype(np.float64)).max()
        assert 0.9 * limit < high < limit
        np.testing.assert_array_equal(found["y"], normal(8, 32, dtype=dtype))


@pytest.mark.parametrize(("dtype", "normal_number"), [(np.float32, 2.0**-126), (np.float16, 2.0**-14)])
def test_denormals_are_below_the_smallest_normal_number(dtype: Any, normal_number: float) -> None:
    found = np.abs(made("denormals", x=normal(8, 32, dtype=dtype))["x"].astype(np.float64))
    assert 0 < found.max() < normal_number
    assert np.count_nonzero(found) > 200


def test_specials_stand_at_both_ends_of_some_rows() -> None:
    for kind, first, last in (("infinities", np.inf, -np.inf), ("nans", np.nan, np.nan)):
        found = made(kind, x=normal(9, 16), y=normal(9, 16))
        assert np.array_equal(found["x"][1::4, 0], [first] * 2, equal_nan=True)
        assert np.array_equal(found["x"][2::4, -1], [last] * 2, equal_nan=True)
        assert np.isfinite(found["x"]).sum() == 9 * 16 - 4
        np.testing.assert_array_equal(found["y"], normal(9, 16))
    assert hostile({"x": normal(9, 16, dtype=FN)}, "infinities") is None


def test_rows_are_changed_in_blocks_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    args = {"x": normal(31, 40), "w": normal(40, 8)}
    whole = {kind: hostile(args, kind) for kind in HOSTILE}
    monkeypatch.setattr(arrays, "BLOCK_ELEMENTS", 100)
    for kind, found in whole.items():
        again = hostile(args, kind)
        assert (found is None) == (again is None)
        for name in found or ():
            np.testing.assert_allclose(again[name], found[name], rtol=1e-6)  # type: ignore[index]


def test_figures_change_how_far_a_kind_goes() -> None:
    found = hostile({"x": normal(4, 11)}, "sweep", HostileFigures(sweep=2.0))
    assert found is not None
    assert (found["x"].min(), found["x"].max()) == (-2, 2)


KERNEL = """
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def kernel(x):
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=tile, src=x)
    {line}
    nisa.dma_copy(dst=out, src=tile)
    return out
"""
DOUBLE = "nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)"
EXP = "nisa.activation(dst=tile, op=nl.exp, data=tile)"
SHIFTED = """top = nl.ndarray((x.shape[0], 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=top, value=0.0)
    high = nl.ndarray((x.shape[0], 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=high, op=nl.maximum, data=tile, axis=1, keepdims=True)
    nisa.tensor_tensor(dst=top, data1=high, data2=top, op=nl.maximum)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.subtract, operand0=top)"""


def asked(folder: Path, line: str, reference: str) -> Request:
    (folder / "kernel.py").write_text(KERNEL.format(line=line))
    (folder / "reference.py").write_text(f"import numpy as np\ndef reference(x):\n    return {reference}\n")
    return from_file(
        folder / "kernel.py",
        kernel="kernel",
        reference=f"{folder / 'reference.py'}:reference",
        inputs=("x=f32[16,64]",),
        inputs_from=None,
        target="trn2",
        nki=None,
        lnc=None,
        seed=3,
        seeds=1,
    )


def tried(record: ReviewRecord, workload: str = "inputs") -> dict[str, str]:
    return {run.inputs: run.status for run in record.runs if run.workload == workload}


USUAL = {"as drawn": "correct", **dict.fromkeys(ALWAYS, "correct")}


def test_a_review_runs_no_more_than_a_program_asks_for(tmp_path: Path, server: ForkServer) -> None:
    assert tried(review(asked(tmp_path, DOUBLE, "x * 2"), server)) == USUAL


def test_a_contract_may_promise_what_no_program_asks_for(tmp_path: Path, server: ForkServer) -> None:
    request = asked(tmp_path, DOUBLE, "x * 2")
    promised = frozenset({"nans", "infinities", "sweep"})
    record = review(replace(request, workloads=[replace(request.workloads[0], hostile=promised)]), server)
    assert tried(record) == USUAL | dict.fromkeys(sorted(promised), "correct")
    assert {run.inputs for run in record.runs if run.in_contract} == {"as drawn", *promised}


def test_where_the_reference_itself_overflows_nothing_is_judged(tmp_path: Path, server: ForkServer) -> None:
    record = review(asked(tmp_path, EXP, "np.exp(x)"), server)
    assert tried(record)["ascending"] == "not assessed"
    reason = "an element of the reference does not fit the dtype of the output on these inputs"
    assert [run.reason for run in record.runs if run.inputs == "ascending"] == [reason]
    assert not any("ascending" in finding.message for finding in record.findings)


def test_a_maximum_that_starts_from_zero_is_wrong_on_negative_rows_only(
    tmp_path: Path, server: ForkServer
) -> None:
    request = asked(tmp_path, SHIFTED, "x - x.max(axis=1, keepdims=True)")
    record = review(request, server)
    assert tried(record) == USUAL | {"negative": "wrong"}
    notes = [finding for finding in record.findings if finding.code == "NKR021"]
    assert [finding.severity for finding in notes] == [Severity.note] and record.status == "acceptable"
    promised = [replace(request.workloads[0], hostile=frozenset({"negative"}))]
    assert review(replace(request, workloads=promised), server).status == "rejected"


def test_what_a_program_asks_for_is_tried_once(tmp_path: Path, server: ForkServer) -> None:
    request = asked(tmp_path, SHIFTED, "x - x.max(axis=1, keepdims=True)")
    both = [replace(request.workloads[0], name=name) for name in ("one", "two")]
    record = review(replace(request, workloads=both), server)
    assert "negative" in tried(record, "one") and tried(record, "two") == USUAL


def test_what_is_not_kept_for_grading_is_said(tmp_path: Path, server: ForkServer) -> None:
    request = asked(tmp_path, SHIFTED, "x - x.max(axis=1, keepdims=True)")
    workload = request.workloads[0]
    assert request.reference is not None
    answers = Answers(workload.inputs, request.reference, server, request.limits)
    kept = Kept.of(answers, [3], server, request.limits)
    answers.close()
    record = review(replace(request, workloads=[replace(workload, inputs=kept)]), server)
    assert tried(record) == USUAL
    assert "inputs on negative inputs (no answers are kept for them)" in record.not_checked
