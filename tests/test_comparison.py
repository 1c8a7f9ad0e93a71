"""Two reviews side by side: who is better and why, from records made by hand and through the command."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from nkireview.cli import main
from nkireview.comparison import Comparison, compare
from nkireview.record import (
    CountsRecord,
    LaneRecord,
    Legality,
    LineCost,
    OutputResult,
    PathStep,
    ReviewRecord,
    Run,
    Setting,
    Subject,
    TimeRecord,
)
from nkireview.report.comparison import print_comparison
from nkireview.rules.finding import Dimension, Evidence, Finding, Severity

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def time_record(total: float, path: dict[str, float], band: float = 0.1) -> TimeRecord:
    return TimeRecord(
        workload="w",
        total_ns=total,
        low_ns=total * (1 - band),
        high_ns=total * (1 + band),
        bound="issue",
        bound_by="sync",
        floor_ns=total / 4,
        overlap=0.5,
        lanes=(LaneRecord(name="sync", busy_ns=total / 2, share=0.5),),
        critical=tuple(
            PathStep(place="k.py:1", opcode=name, ns=ns, share=ns / total) for name, ns in path.items()
        ),
        lines=(
            LineCost(
                place="k.py:1",
                opcode="dma_copy",
                lane="sync",
                instructions=4,
                held_ns=total / 2,
                transfer_ns=total / 5,
            ),
            LineCost(place="k.py:2", opcode="exp", lane="scalar", instructions=4, held_ns=total / 8),
        ),
    )


def counts_record(loads: int) -> CountsRecord:
    return CountsRecord(
        workload="w",
        instructions=loads,
        by_engine={"dma": loads},
        by_opcode={"dma_copy": loads},
        bytes_by_route={"hbm->sbuf": loads * 1_000_000},
        multiply_accumulates=0,
        dma_transfers=loads,
    )


def finding(severity: Severity, code: str) -> Finding:
    return Finding(
        code=code, severity=severity, dimension=Dimension.memory, evidence=Evidence.traced, message="because"
    )


def review_record(
    status: str = "acceptable",
    total: float = 1e6,
    loads: int = 4,
    findings: tuple[Finding, ...] = (),
    target: str = "trn2",
    reason: str = "",
) -> ReviewRecord:
    setting = Setting(value="1", origin="default")
    return ReviewRecord(
        tool="nkireview",
        subject=Subject(
            kernel="k",
            file="k.py",
            target=Setting(value=target, origin="default"),
            release=Setting(value="0.6", origin="default"),
            lnc=setting,
        ),
        status=status,
        reason=reason,
        legality=Legality(status="legal"),
        counts=(counts_record(loads),),
        times=(time_record(total, {"dma_copy (issue)": total * 0.8, "activation": total * 0.2}),),
        findings=findings,
    )


def both(a: ReviewRecord, b: ReviewRecord) -> Comparison:
    return compare(a, b, ("one", "two"))


def test_the_faster_of_two_right_kernels_is_better_for_what_its_critical_path_saves() -> None:
    found = both(review_record(total=3e6, loads=12), review_record(total=1e6, loads=4))
    assert found.better == "B"
    assert found.why == (
        "B is predicted 3.00 times as fast on w: dma_copy (issue) takes 2.4 ms of A's critical path and 800 us of "
        "B's (12 and 4 instructions)"
    )
    (workload,) = found.workloads
    assert workload.reasons[1:] == (
        "activation takes 600 us of A's critical path and 200 us of B's",
        "hbm->sbuf moves 12 MB in A and 4 MB in B",
        "sync is busy for 1.5 ms in A and 500 us in B",
    )
    assert [(change.name, change.a, change.b) for change in workload.instructions] == [("dma_copy", 12, 4)]
    assert not workload.within_band


def test_a_difference_within_the_stated_error_is_said_to_be_so() -> None:
    found = both(review_record(total=1.1e6), review_record(total=1e6))
    assert found.better == "B" and found.workloads[0].within_band
    assert found.why.endswith(
        "; the ranges of the two overlap, but most of the model's error is common to both"
    )


def test_equal_kernels_are_not_ranked() -> None:
    found = both(review_record(), review_record())
    assert (found.better, found.why) == ("neither", "the predicted times of w differ by less than 2%")
    assert found.workloads[0].reasons == ()


def test_a_right_kernel_beats_a_faster_one_that_is_wrong() -> None:
    blocked = review_record("rejected", total=1e5, findings=(finding(Severity.blocker, "NKR020"),))
    found = both(blocked, review_record(total=1e6))
    assert (found.better, found.why) == ("B", "B is acceptable, A is not: NKR020 because")
    assert found.only_a == ("blocker NKR020 because",) and found.only_b == ()
    both_blocked = both(blocked, blocked)
    assert both_blocked.better == "neither" and "both have a blocker" in both_blocked.why


def test_what_was_not_reviewed_is_not_ranked() -> None:
    found = both(review_record(), review_record("not reviewed", reason="the task is void"))
    assert (found.better, found.why) == ("neither", "B was not reviewed: the task is void")


def test_findings_of_only_one_side_are_listed_by_code() -> None:
    shared = finding(Severity.major, "NKR105")
    found = both(
        review_record(findings=(shared, finding(Severity.minor, "NKR120"))),
        review_record(findings=(shared, finding(Severity.note, "NKR150"))),
    )
    assert found.only_a == ("minor NKR120 because",) and found.only_b == ()


def test_a_workload_without_a_time_of_both_is_said() -> None:
    bare = review_record().model_copy(update={"times": ()})
    found = both(review_record(), bare)
    assert found.not_compared == ("w: no predicted time of both",)
    assert (found.better, found.why) == ("neither", "there is no workload with a predicted time of both")


def test_kernels_of_different_tasks_are_refused() -> None:
    other = review_record()
    other = other.model_copy(update={"subject": other.subject.model_copy(update={"task": "softmax"})})
    with pytest.raises(ValueError) as caught:
        both(review_record(), other)
    assert str(caught.value) == (
        "A is of no task, B of task softmax; only kernels of one task, with the same inputs, can be compared"
    )


def test_workloads_that_return_other_shapes_are_refused() -> None:
    def returning(shape: tuple[int, ...]) -> ReviewRecord:
        output = OutputResult(
            name="out", dtype="float32", shape=shape, status="not compared", reason="no reference"
        )
        run = Run(workload="w", seed=1, status="not assessed", reason="none", outputs=(output,))
        return review_record().model_copy(update={"runs": (run,)})

    with pytest.raises(ValueError) as caught:
        both(returning((4, 8)), returning((8, 8)))
    assert str(caught.value) == (
        "workload w gives float32[4, 8] in A and float32[8, 8] in B; give both the same inputs"
    )


def test_different_targets_are_refused() -> None:
    with pytest.raises(ValueError) as caught:
        both(review_record(target="trn1"), review_record())
    assert str(caught.value) == (
        "A was reviewed for target trn1, B for trn2; review both for one target, for instance with --target"
    )


@pytest.mark.parametrize("width", [60, 100])
def test_the_screen_holds_the_verdict_and_the_reasons(width: int) -> None:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    print_comparison(both(review_record(total=3e6, loads=12), review_record()), console)
    text = " ".join(console.file.getvalue().split())  # type: ignore[attr-defined]
    assert text.startswith("B is better: B is predicted 3.00 times as fast on w")
    assert "hbm->sbuf moves 12 MB in A and 4 MB in B" in text and "lines with the longest time" in text


def test_the_command_ranks_the_submissions_of_an_example(tmp_path: Path) -> None:
    sides = [str(EXAMPLES / "rmsnorm" / "submissions" / name) for name in ("slow", "good")]
    result = CliRunner().invoke(main, ["compare", *sides, "--seed", "1", "--json", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    assert found["better"] == "B" and found["workloads"][-1]["b_ns"] < found["workloads"][-1]["a_ns"]
    assert json.loads((tmp_path / "comparison.json").read_text(encoding="utf-8")) == found


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["no-such", "no-such"], "no-such: no such file or folder; expected a task folder or a kernel file"),
        (["TASK", "TASK"], "TASK has 3 submissions; name one of them"),
        (["BAD", "BAD"], "BAD: this is no review; expected a review.json of this version"),
    ],
)
def test_wrong_calls_are_one_sentence(tmp_path: Path, arguments: list[str], sentence: str) -> None:
    bad = tmp_path / "review.json"
    bad.write_text("{}", encoding="utf-8")
    names = {"TASK": str(EXAMPLES / "rmsnorm"), "BAD": str(bad)}
    for name, path in names.items():
        arguments = [argument.replace(name, path) for argument in arguments]
        sentence = sentence.replace(name, path)
    result = CliRunner().invoke(main, ["compare", *arguments])
    assert result.exit_code == 2 and result.output.strip() == f"nkireview: {sentence}"


def shown(found: Comparison, width: int = 100) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    print_comparison(found, console)
    return [" ".join(line.split()) for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]


def test_queue_and_transfer_are_columns_of_their_own() -> None:
    lines = shown(both(review_record(total=3e6, loads=12), review_record()))
    head = lines.index("lines with the longest time")
    assert lines[head + 1 : head + 6] == [
        "line instruction on count queue transfer critical path",
        "A k.py:1 dma_copy sync 4 1.50 ms 600 us 0 ns",
        "A k.py:2 exp scalar 4 375 us 0 ns",
        "B k.py:1 dma_copy sync 4 500 us 200 us 0 ns",
        "B k.py:2 exp scalar 4 125 us 0 ns",
    ]


def test_totals_are_rounded_down_and_the_verdict_has_its_reason() -> None:
    made = both(review_record(total=3e6), review_record())
    reason = "nothing was executed: whether the result is right was not looked at"
    a, b = (side.model_copy(update={"total": 79.96}) for side in (made.a, made.b))
    lines = shown(made.model_copy(update={"a": a, "b": b.model_copy(update={"reason": reason})}))
    assert f"A {a.name}: acceptable, 79 of 100" in lines
    at = lines.index(f"B {b.name}: no blocker found, 79 of 100")
    assert lines[at + 1] == reason
