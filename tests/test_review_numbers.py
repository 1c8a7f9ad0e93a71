"""A review says why an output is wrong, by name and line, and what rounding explains of one that is right."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from kept import Kept
from test_cases import blockers, judge

from nkireview.diagnosis import diagnose
from nkireview.numbers_record import NumbersRecord
from nkireview.record import Figures, OutputResult
from nkireview.requests import from_file
from nkireview.review import review
from nkireview.runner import ForkServer

sys.path.append(str(Path(__file__).resolve().parent / "numbers"))

from kit import FILES, load, problem

HONEST = FILES[0].parent.parent / "honest"
CAUSES = {
    "r10": ("mask-fully-masked", "a row whose elements are all masked"),
    "r14": ("bias-axis", "bias of activation has 64 elements a partition"),
    "r16": ("indices-in-low-precision", "iota keeps positions in bfloat16"),
    "r18": ("factor", "1 is added: multiplied with instead the output matches"),
    "r26": ("constant-output", "is made of no input: it is always the same"),
}


def drawn(numbers: tuple[NumbersRecord, ...]) -> NumbersRecord:
    """The numbers on inputs as drawn."""
    return next(each for each in numbers if each.inputs == "as drawn")


@pytest.mark.parametrize("case", sorted(CAUSES))
def test_the_cause_of_a_wrong_case_is_named(kept: Kept, case: str) -> None:
    record = judge(kept, case, "bad", "trn2")
    name, sentence = CAUSES[case]
    found = drawn(record.numbers)
    assert record.status == "rejected"
    assert found.verdict == "defect"
    assert found.causes[0].name == name
    assert sentence in found.causes[0].sentence
    wrong = [text for _, _, text in blockers(record) if " is wrong (" in text]
    # r14 is not legal, and r26 depends on no input: that is said in place of "wrong"
    assert bool(wrong) == (case in ("r10", "r16", "r18"))
    assert all(f"; cause: {found.causes[0].sentence}" in text for text in wrong), wrong


@pytest.mark.parametrize("case", sorted(CAUSES))
def test_the_good_case_is_rounding(kept: Kept, case: str) -> None:
    record = judge(kept, case, "good", "trn2", "_good" if case == "r14" else "")
    found = drawn(record.numbers)
    assert found.verdict == "rounding" and not found.causes
    assert all(output.use is not None and output.use <= 1 for output in found.outputs)


KERNEL = """
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def sums(x):
    \"\"\"x [128, 512] -> the sum of each row over its standard deviation, kept in {dtype} on the way.\"\"\"
    rows, columns = x.shape
    out = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.ndarray((rows, columns), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    parts = nl.ndarray((rows, 8), dtype=nl.float32, buffer=nl.sbuf)
    for at in range(8):
        nisa.tensor_reduce(
            dst=parts[:, at : at + 1], op=nl.add, data=tile[:, at * 64 : at * 64 + 64], axis=(1,), keepdims=True
        )
    total = nl.ndarray((rows, 1), dtype=nl.{dtype}, buffer=nl.sbuf)
    nisa.memset(dst=total, value=0.0)
    for at in range(8):
        nisa.tensor_tensor(dst=total, data1=total, data2=parts[:, at : at + 1], op=nl.add)
    held = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=held, src=total)
    nisa.dma_copy(dst=out, src=held)
    return out
"""


@pytest.mark.parametrize(("dtype", "verdict"), [("float32", "rounding"), ("bfloat16", "defect")])
def test_growth_and_costs_of_a_running_sum(
    server: ForkServer, tmp_path: Path, dtype: str, verdict: str
) -> None:
    kernel, reference = tmp_path / "sums.py", tmp_path / "reference.py"
    kernel.write_text(KERNEL.format(dtype=dtype))
    reference.write_text("def sums(x):\n    return x.sum(axis=1, keepdims=True)\n")
    request = from_file(
        kernel,
        kernel="sums",
        reference=f"{reference}:sums",
        inputs=("x=f32[128,512]:uniform(0.4,0.6)",),
        inputs_from=None,
        target="trn2",
        nki=None,
        lnc=None,
        seed=3,
    )
    record = review(request, server)
    found = drawn(record.numbers)
    assert found.verdict == verdict
    if verdict == "defect":
        assert found.causes[0].name == "low-precision-sum"
        assert found.causes[0].place == "sums.py:21"
        assert found.costs[0].place == "sums.py:21" and found.costs[0].dtype == "bfloat16"
        assert found.costs[0].share > 100
        (series,) = [each for each in found.growth if each.dtype == "bfloat16"]
        # a sum of eight parts of 32 in eight digits: off by up to 2^-9 of itself at each addition
        assert series.additions[-1] == 8
        assert series.error[-1] <= 8 * 2.0**-9
        assert series.error[-1] > 10 * series.expected[-1]


def test_an_explained_output_is_correct() -> None:
    figures = Figures(
        scaled_max=1.0,
        rms_ratio=1.0,
        max_ulps=1.0,
        max_abs=1.0,
        at=(0,),
        got="1.0",
        expected="2.0",
        elements=1,
        nonfinite_mismatches=0,
    )
    held = {"name": "out", "dtype": "float32", "shape": (1,), "figures": figures, "explained": 0.5}
    assert OutputResult(**held, status="correct").explained == 0.5
    with pytest.raises(ValueError, match="only an output that is correct, without stored roundings"):
        OutputResult(**held, status="wrong", reason="wrong")
    with pytest.raises(ValueError, match="less than or equal to 1"):
        OutputResult(**{**held, "explained": 1.5}, status="correct")


def test_outputs_from_elsewhere_are_not_blamed_on_a_program_that_is_right() -> None:
    asked = problem(load(HONEST / "softmax.py"), "honest", (64, 1024), "float32", 0)
    got = [np.asarray(each * 1.01, np.float32) for each in asked.wanted]
    found = diagnose(asked.program, asked.arguments, asked.wanted, got=got)
    assert found.verdict == "defect"
    assert [cause.name for cause in found.causes] == ["not-the-program"]
    assert found.causes[0].sentence.startswith("the Program is right: executed here it gives")


def test_a_reference_that_rounds_is_allowed_its_own_roundings() -> None:
    asked = problem(load(HONEST / "matmul.py"), "honest", (1024, 32, 64), "float32", 0)
    a, b = asked.arguments.values()
    steps = np.cumsum(a[:, :, None] * b[:, None, :], axis=0, dtype=np.float32)[-1]
    exact = diagnose(asked.program, asked.arguments, asked.wanted).outputs[0].tolerance.allowed
    loose = diagnose(asked.program, asked.arguments, [steps], rounded=True)
    assert loose.verdict == "rounding"
    assert (loose.outputs[0].tolerance.allowed > exact).all()


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (np.full((64, 1024), np.nan), "the reference of output .* is NaN or infinite in every element"),
        (
            np.full((64, 1024), 1e39),
            "no element of the reference of output .* fits float32, which ends at 3.40282e",
        ),
        (np.full((64, 1024), 1j), "the reference gives complex numbers, expected real ones"),
    ],
)
def test_a_reference_that_nothing_can_be_compared_with_is_refused(wanted: np.ndarray, said: str) -> None:
    asked = problem(load(HONEST / "softmax.py"), "honest", (64, 1024), "float32", 0)
    with pytest.raises(ValueError, match=said):
        diagnose(asked.program, asked.arguments, [wanted])


def test_a_review_of_outputs_that_do_not_fit_their_dtype_judges_nothing(
    server: ForkServer, tmp_path: Path
) -> None:
    kernel, reference = tmp_path / "sums.py", tmp_path / "reference.py"
    kernel.write_text(KERNEL.format(dtype="float32"))
    reference.write_text("def sums(x):\n    return x.sum(axis=1, keepdims=True) * 1e38\n")
    request = from_file(
        kernel,
        kernel="sums",
        reference=f"{reference}:sums",
        inputs=("x=f32[128,512]:uniform(0.4,0.6)",),
        inputs_from=None,
        target="trn2",
        nki=None,
        lnc=None,
        seed=3,
    )
    record = review(request, server)
    assert record.status == "not reviewed"
    assert record.reason.endswith("no element of the reference fits the dtype of the output on these inputs")
