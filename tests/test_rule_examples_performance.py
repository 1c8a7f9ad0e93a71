"""The examples of the rules of performance: bad fires its rule and no blocker but its own, good nothing above note."""

from __future__ import annotations

import pytest
from example_kit import PERFORMANCE, judged
from kept import Kept

from nkireview.record import ReviewRecord
from nkireview.rules.finding import Severity


def judge(kept: Kept, code: str, kind: str) -> ReviewRecord:
    record = judged(kept, code, kind)
    assert (record.subject.target.value, record.subject.release.value) == ("trn2", "0.6")
    assert {run.seed for run in record.runs} <= {7, 8}
    return record


@pytest.mark.parametrize("code", sorted(PERFORMANCE))
def test_the_bad_kernel_fires_its_rule_and_no_other_blocker(kept: Kept, code: str) -> None:
    record = judge(kept, code, "bad")
    found = [finding for finding in record.findings if finding.code == code]
    assert len(found) == 1, record.reason or record.findings
    assert found[0].severity is PERFORMANCE[code].severity
    others = [f for f in record.findings if f.severity is Severity.blocker and f.code != code]
    assert others == []


@pytest.mark.parametrize("code", sorted(PERFORMANCE))
def test_the_good_kernel_has_nothing_above_note(kept: Kept, code: str) -> None:
    record = judge(kept, code, "good")
    assert record.status == "acceptable", record.reason or record.findings
    assert code not in [finding.code for finding in record.findings]
    assert {finding.severity for finding in record.findings} <= {Severity.note}
    assert record.runs and all(run.status == "correct" for run in record.runs if run.inputs == "as drawn")
