"""All rules, and the findings of a review."""

from __future__ import annotations

from nkireview.rules import correctness, legality
from nkireview.rules.facts import Facts
from nkireview.rules.finding import Finding, in_order

RULES = tuple(sorted((*legality.RULES, *correctness.RULES), key=lambda rule: rule.code))


def judge(facts: Facts) -> tuple[Finding, ...]:
    """Every finding, causes before symptoms: a finding drops the codes its rule explains in the same workload."""
    found = [(rule, finding) for rule in RULES for finding in rule.findings(facts)]
    explained = {(code, finding.workload) for rule, finding in found for code in rule.suppresses}
    kept = [finding for _, finding in found if (finding.code, finding.workload) not in explained]
    return in_order(_merged(kept))


def _merged(findings: list[Finding]) -> list[Finding]:
    """The same matter in several workloads is one finding: that of the first."""
    merged: dict[tuple[str, str], Finding] = {}
    for finding in findings:
        key = (finding.code, finding.group or finding.message)
        known = merged.get(key)
        if known is None:
            merged[key] = finding
        elif finding.workload not in known.workload.split(", "):
            update = {
                "workload": f"{known.workload}, {finding.workload}",
                "count": known.count + finding.count,
            }
            merged[key] = known.model_copy(update=update)
    return list(merged.values())
