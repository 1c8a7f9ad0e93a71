"""Every rule has a bad and a good example: the bad one fires that rule and no other blocker, the good one nothing."""

from __future__ import annotations

import pytest
from example_kit import judged
from kept import Kept

from nkireview.rules.catalogue import KINDS, example, folder
from nkireview.rules.finding import Severity
from nkireview.rules.registry import RULES


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("code", [rule.code for rule in RULES])
def test_the_examples_hold(kept: Kept, code: str, kind: str) -> None:
    record = judged(kept, code, kind)
    assert record.status != "not reviewed", record.reason
    found = [(finding.code, finding.severity, finding.message) for finding in record.findings]
    if kind == "bad":
        assert code in {named for named, _, _ in found}, found
        blockers = {named for named, severity, _ in found if severity is Severity.blocker}
        own = max(severity is Severity.blocker for named, severity, _ in found if named == code)
        assert blockers == ({code} if own else set()), found
    else:
        assert code not in {named for named, _, _ in found}, found
        assert {severity for _, severity, _ in found} <= {Severity.note}, found


def test_every_example_belongs_to_a_rule() -> None:
    codes = {rule.code for rule in RULES}
    assert {path.stem.split("_")[0] for path in folder().glob("NKR*.py")} == codes


def test_an_example_shows_its_own_kernel_alone() -> None:
    for rule in RULES:
        for kind, other in (KINDS, KINDS[::-1]):
            held = example(rule.code, kind)
            assert held is not None
            text = held.source((kind,))
            assert f"def {kind}(" in text and f"def {other}(" not in text and "def inputs" not in text, (
                rule.code
            )
