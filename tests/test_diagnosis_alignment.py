"""Alignment: the line at which a kernel leaves its reference, held against what the authors of the pairs say."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.append(str(Path(__file__).resolve().parent / "numbers"))

from kit import BLIND_FILES, FILES, load, problem

from nkireview.answers import AS_DRAWN, Answers, Trial
from nkireview.arguments import Callee, Drawn
from nkireview.diagnosis import Derivation, diagnose
from nkireview.diagnosis.alignment import Departure, departure
from nkireview.diagnosis.alignment.figures import Figures, Place, Sight, blocks
from nkireview.diagnosis.model import Evidence
from nkireview.numerics.inputs import Spec, default_distribution
from nkireview.observed import Observation
from nkireview.report.numbers import EVIDENCE
from nkireview.runner import ForkServer, Limits

LINES = {
    "n01": r"op=nl\.rsqrt",
    "n06": r"nisa\.affine_select\(",
    "n07": r"nisa\.affine_select\(",
    "b01": r"nisa\.tensor_tensor\(dst=first, .*, op=first_op\)|nisa\.tensor_tensor",
    "b04": r"op=nl\.rsqrt, data=totals, scale=1\.0 / count",
    "b06": r"nisa\.affine_select\(",
    "b08": r"nisa\.tensor_scalar\(",
    "b13": r"nisa\.tensor_reduce\(",
    "b19": r"nisa\.activation\(",
    "b23": r"nisa\.nc_matmul\(dst=scores",
    "b25": r"nisa\.tensor_tensor\($",
    "b27": r"nisa\.tensor_scalar\(dst=h, data=h, op0=nl\.subtract, operand0=mean\)",
    "b30": r"nisa\.tensor_tensor\(dst=weights, data1=biased if keep_bias else scores",
}
"""The line that is at fault by what the file says of its defect, or that writes what the fault beside it spoils."""
PAIRED = {
    "b26": (
        r"nisa\.tensor_tensor\(dst=a, data1=tile\[:, low\], data2=c",
        "with keys[0:128, 0:32] for keys[0:128, 0:63:2]",
    ),
    "b40": (r"nisa\.nc_matmul\(dst=mixed", "for v_cache[128:256, 0:64] the output is right"),
    "b33": (r"nisa\.activation\($", "with bias[0:16] for bias[0:61:4]"),
}
"""Pairs whose kernels read other elements than their references: the line, and what is said of it."""


def pair(name: str):
    return load(next(path for path in (*FILES, *BLIND_FILES) if path.stem.startswith(name)))


def departed(name: str, dtype: str, shape: int, twin: str = "defective") -> tuple[Departure | None, str]:
    """The departure of a twin, and the text of its line."""
    of = pair(name)
    asked = problem(of, twin, of.shapes[shape], dtype, 0)
    derivation = Derivation.of_program(asked.program)
    tolerances = derivation.tolerances(asked.arguments, asked.wanted, samples=1)

    def wrong(outputs) -> float:
        each = zip(outputs, asked.wanted, tolerances, strict=True)
        return float(np.mean(np.concatenate([(t.use(have, want) > 1).ravel() for have, want, t in each])))

    found = departure(derivation, asked.arguments, asked.observed(), wrong)
    if found is None:
        return None, ""
    place = asked.program.place_text(int(asked.program.columns.place[found.instruction]))
    line = int(re.search(r":(\d+)", place)[1])
    return found, Path(of.module.__file__).read_text(encoding="utf-8").splitlines()[line - 1].strip()


@pytest.mark.parametrize(
    ("name", "dtype", "shape"),
    [(name, "float32", 0) for name in LINES]
    + [(name, "bfloat16", 2) for name in ("n06", "n07", "b04", "b08", "b27")],
)
def test_the_line_at_fault_is_found_and_proven(name: str, dtype: str, shape: int) -> None:
    found, text = departed(name, dtype, shape)
    assert found is not None and found.proven, found
    assert re.search(LINES[name], text), text


@pytest.mark.parametrize("name", PAIRED)
def test_elements_that_are_taken_for_others_are_told(name: str) -> None:
    found, text = departed(name, "float32", 0)
    line, said = PAIRED[name]
    assert found is not None and re.search(line, text) and said in found.sentence, (text, found.sentence)


@pytest.mark.parametrize("name", ["b23", "b29", "n20"])
def test_a_right_kernel_leaves_nothing(name: str) -> None:
    assert departed(name, "float32", 0, "honest") == (None, "")


def test_a_sentence_says_what_is_read_and_what_the_reference_has() -> None:
    found, _ = departed("b23", "float32", 0)
    assert found is not None
    assert found.sentence == (
        "nc_matmul (b23_grouped_query_heads.py:35) reads q_t[64:128, 0:128] and k_t[64:128, 0:128]: with "
        "[0:1, 0:64, 0:128] of what the reference takes (line 83) `logits = query.transpose(0, 2, 1) @ key / "
        "np.sqrt(size)` for k_t[64:128, 0:128] the output is right, once the same is done for nc_matmul "
        "(b23_grouped_query_heads.py:54)"
    )
    found, _ = departed("b28", "float32", 0)
    assert found is not None and "reads 0.015625 times the reference's matmul (line 125)" in found.sentence


def test_a_diagnosis_tells_of_it() -> None:
    asked = problem(pair("b30"), "defective", pair("b30").shapes[0], "float32", 0)
    found = diagnose(asked.program, asked.arguments, asked.wanted, observed=asked.observed, seconds=60)
    (cause,) = found.causes
    assert (cause.name, cause.evidence) == ("step-differs", "alignment")
    assert cause.line.endswith(":47") and "with the reference's divide (line 79)" in cause.sentence

    def fails() -> list[Observation]:
        raise ValueError("reference r.py:f: it cannot be watched")

    without = diagnose(asked.program, asked.arguments, asked.wanted, observed=fails, seconds=60)
    assert without.causes == () and without.verdict == "defect"
    assert without.skipped[-1] == "the steps of the reference: reference r.py:f: it cannot be watched"


def test_what_shows_a_cause_has_words() -> None:
    assert set(EVIDENCE) == set(get_args(Evidence))


def test_a_reference_without_steps_tells_nothing() -> None:
    asked = problem(pair("b25"), "defective", pair("b25").shapes[0], "float32", 0)
    ends = [replace(each, reads=()) for each in asked.observed() if each.name in ("input", "result")]
    found = departure(
        Derivation.of_program(asked.program), asked.arguments, ends, lambda outputs: float(len(outputs))
    )
    assert found is None


# Figures


def figures(*values: np.ndarray) -> Figures:
    return Figures([Observation(f"step{at}", at, "", (), each) for at, each in enumerate(values)], 1e-7)


def test_a_tile_is_a_figure_wherever_it_lies_in_it() -> None:
    whole = np.random.default_rng(0).standard_normal((6, 40, 50))
    held = figures(whole)
    assert held.seen(whole[2, 8:24, 5:45]) == Sight("known", 0, Place(2 * 2000 + 8 * 50 + 5, 50, 1))
    assert held.seen(whole[1, 30:10:-2, 3:40:3].T) == Sight("known", 0, Place(2000 + 30 * 50 + 3, 3, -100))
    assert held.seen(-whole[0]).kind == "known"
    assert held.seen(1 / whole[0]) == Sight("known", 0, Place(0, 50, 1), inverse=True)
    assert held.seen(whole[0] * 1.001).kind == "off"
    mixed = np.concatenate([whole[0, :10], whole[0, :10] + 7])
    assert held.seen(mixed).kind == "part"


def test_few_values_say_nothing() -> None:
    held = figures(np.random.default_rng(0).standard_normal((8, 8)), np.eye(8))
    assert [each.number for each in held.all] == [0]
    for tile in (np.zeros((4, 4)), np.ones((4, 4)), np.eye(4) * 3, np.full((4, 4), np.nan)):
        assert held.seen(tile).kind == "neutral"


def test_zeros_that_a_figure_has_not_are_something_else() -> None:
    whole = np.random.default_rng(0).standard_normal((16, 16))
    masked = np.where(whole > 0, whole, 0.0)
    assert figures(whole).seen(masked).kind == "part"
    assert figures(whole, masked).seen(masked) == Sight("known", 1, Place(0, 16, 1))


def test_a_figure_times_a_number_is_told_by_where_it_was_read() -> None:
    whole = np.random.default_rng(0).standard_normal((8, 4, 16))
    total = whole.sum(axis=2, keepdims=True)
    held = figures(whole, total / 16)
    read = Sight("known", 0, Place(0, 64, 1))
    found = held.scaled(total[:, :, 0], [(read, 64)])
    assert found is not None and found.figure == 1 and found.factor == pytest.approx(16)
    assert found.place == Place(0, 4, 1)
    assert held.scaled(total[:, :, 0] + 1, [(read, 64)]) is None


def test_the_same_values_are_one_figure() -> None:
    whole = np.random.default_rng(0).standard_normal((8, 8))
    assert [each.number for each in figures(whole, whole.copy(), whole + 1).all] == [0, 2]


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 5), st.integers(1, 5))
def test_blocks_are_all_of_an_array(down: int, beside: int, rows: int, columns: int) -> None:
    whole = np.arange(down * rows * beside * columns).reshape(down * rows, beside * columns)
    ways = list(blocks(whole, rows, columns))
    assert len(ways) >= 1
    for way in ways:
        if all(each.shape == (rows, columns) for each in way):
            assert sorted(np.concatenate([each.ravel() for each in way]).tolist()) == list(range(whole.size))
    np.testing.assert_array_equal(ways[0][0], whole[:rows, :columns])


# The reference of a task

REFERENCE = """
import numpy as np

def softmax(x):
    weights = np.exp(x - x.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)

def coloured(x):
    return x + 1  # \x1b[31mred

def stubborn(x):
    if type(x) is not np.ndarray:
        raise TypeError("expected an array and nothing else")
    return x
"""


@pytest.fixture
def answers(tmp_path: Path, request: pytest.FixtureRequest):
    file = tmp_path / "reference.py"
    file.write_text(REFERENCE, encoding="utf-8")
    spec = Spec("float32", (4, 8), default_distribution("float32"))
    limits = Limits(cpu_s=20, wall_s=20)
    with ForkServer() as server:
        made = Answers(Drawn({"x": spec}), Callee(file, request.param), server, limits)
        yield made
        made.close()


def watched(answers: Answers) -> tuple[Trial, Sequence[Observation]]:
    """Inputs and what the reference gives of them, and its steps."""
    trial = answers.trial(0, AS_DRAWN)
    assert trial is not None
    steps = answers.observed(trial)
    assert steps is not None
    return trial, steps()


@pytest.mark.parametrize("answers", ["softmax"], indirect=True)
def test_the_steps_of_a_reference_come_from_its_own_process(answers: Answers) -> None:
    trial, found = watched(answers)
    assert [(each.name, each.line) for each in found] == [
        ("input", 0), ("maximum", 5), ("subtract", 5), ("exp", 5), ("add", 6), ("divide", 6), ("result", 0),
    ]  # fmt: skip
    np.testing.assert_array_equal(found[-1].values, trial.wanted[0])
    np.testing.assert_array_equal(found[0].values, trial.arguments.arrays()[0].astype(np.float64))
    assert found[4].text == "return weights / weights.sum(axis=1, keepdims=True)"


@pytest.mark.parametrize("answers", ["coloured"], indirect=True)
def test_what_a_terminal_would_obey_is_left_out(answers: Answers) -> None:
    assert watched(answers)[1][1].text == "return x + 1  # [31mred"


@pytest.mark.parametrize("answers", ["stubborn"], indirect=True)
def test_a_reference_that_refuses_to_be_watched_says_so(answers: Answers) -> None:
    with pytest.raises(
        ValueError,
        match=r"^reference reference.py:stubborn: TypeError: expected an array and nothing else \(reference.py:13\)$",
    ):
        watched(answers)
