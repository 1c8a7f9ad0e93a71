"""The examples: right before fast before wrong, and the true reason first."""

from __future__ import annotations

import pytest
from kept import Kept

from nkireview.record import ReviewRecord
from nkireview.rules.finding import Dimension, Finding, Severity

SLOW = {
    "matmul": ("NKR105", Dimension.memory, "loaded"),
    "softmax": ("NKR140", Dimension.tiling, "64"),
    "rmsnorm": ("NKR120", Dimension.dma, "256-byte"),
    "causal_attention": ("NKR160", Dimension.performance, "buffer"),
}
"""The first finding of each slow submission: code, dimension, and what its sentence names."""


def above_note(record: ReviewRecord) -> list[Finding]:
    return [finding for finding in record.findings if finding.severity is not Severity.note]


@pytest.mark.parametrize("task", SLOW)
def test_the_good_kernel_has_nothing_above_note(kept: Kept, task: str) -> None:
    record = kept.example(task).record("good")
    assert record.status == "acceptable" and above_note(record) == []


@pytest.mark.parametrize("task", SLOW)
def test_the_slow_kernel_is_right_and_its_true_reason_comes_first(kept: Kept, task: str) -> None:
    record = kept.example(task).record("slow")
    assert record.status == "acceptable", record.findings
    code, dimension, named = SLOW[task]
    first = above_note(record)[0]
    assert (first.code, first.dimension, first.severity) == (code, dimension, Severity.major), first
    assert named in first.message and first.gain_ns and first.change and first.why


@pytest.mark.parametrize("task", SLOW)
def test_the_wrong_kernel_is_rejected(kept: Kept, task: str) -> None:
    record = kept.example(task).record("wrong")
    assert record.status == "rejected"


@pytest.mark.parametrize("task", SLOW)
def test_good_scores_above_slow_and_slow_above_wrong(kept: Kept, task: str) -> None:
    totals = []
    for name in ("good", "slow", "wrong"):
        card = kept.example(task).record(name).scorecard
        assert card is not None and card.total is not None
        totals.append(card.total)
    assert totals[0] > totals[1] + 1 and totals[1] > totals[2] + 20, totals


@pytest.mark.parametrize("task", SLOW)
def test_the_good_kernel_is_predicted_faster(kept: Kept, task: str) -> None:
    slow, good = (
        {item.workload: item.total_ns for item in kept.example(task).record(name).times}
        for name in ("slow", "good")
    )
    assert slow["large"] > 1.1 * good["large"]
