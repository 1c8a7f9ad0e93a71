"""The examples of the rules of performance: bad fires its rule and no blocker but its own, good nothing above note."""

from __future__ import annotations

from pathlib import Path

import pytest

from nkireview.record import ReviewRecord
from nkireview.requests import from_file
from nkireview.review import review
from nkireview.rules import engines, memory, movement, performance, tiling
from nkireview.rules.catalogue import example
from nkireview.rules.finding import Severity
from nkireview.runner import ForkServer

RULES = {
    rule.code: rule for module in (memory, movement, tiling, engines, performance) for rule in module.RULES
}
EXAMPLES = Path(memory.__file__).parent / "examples"


def judge(server: ForkServer, code: str, kernel: str) -> ReviewRecord:
    path = EXAMPLES / f"{code}.py"
    held = example(code, kernel)
    assert held is not None
    request = from_file(
        path,
        kernel=kernel,
        reference=f"{path}:reference",
        inputs=(),
        inputs_from=f"{path}:inputs",
        target="trn2",
        nki="0.6",
        lnc=held.lnc or 1,
        seed=7,
    )
    return review(request, server)


@pytest.mark.parametrize("code", sorted(RULES))
def test_the_bad_kernel_fires_its_rule_and_no_other_blocker(server: ForkServer, code: str) -> None:
    record = judge(server, code, "bad")
    found = [finding for finding in record.findings if finding.code == code]
    assert len(found) == 1, record.reason or record.findings
    assert found[0].severity is RULES[code].severity
    others = [f for f in record.findings if f.severity is Severity.blocker and f.code != code]
    assert others == []


@pytest.mark.parametrize("code", sorted(RULES))
def test_the_good_kernel_has_nothing_above_note(server: ForkServer, code: str) -> None:
    record = judge(server, code, "good")
    assert record.status == "acceptable", record.reason or record.findings
    assert code not in [finding.code for finding in record.findings]
    assert {finding.severity for finding in record.findings} <= {Severity.note}
    assert record.runs and all(run.status == "correct" for run in record.runs if run.inputs == "as drawn")
