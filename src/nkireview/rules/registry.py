"""All rules, and the findings of a review."""

from __future__ import annotations

from nkireview.rules import (
    correctness,
    engines,
    integrity,
    legality,
    memory,
    movement,
    numerics,
    ordering,
    orders,
    own_tests,
    performance,
    precision,
    races,
    source,
    tiling,
    traffic,
)
from nkireview.rules.facts import Facts
from nkireview.rules.finding import Finding, Severity, in_order
from nkireview.rules.rule import Rule

_MODULES = (
    legality,
    correctness,
    source,
    integrity,
    numerics,
    precision,
    memory,
    movement,
    traffic,
    tiling,
    engines,
    ordering,
    orders,
    own_tests,
    races,
    performance,
)
RULES: tuple[Rule, ...] = tuple(
    sorted((rule for module in _MODULES for rule in module.RULES), key=lambda rule: rule.code)
)


def judge(facts: Facts) -> tuple[Finding, ...]:
    """Every finding, causes before symptoms.

    A finding drops those of the codes its rule explains in the same workload, unless they weigh more than it does.
    """
    found = [(rule, finding) for rule in RULES for finding in rule.findings(facts)]
    explained: dict[tuple[str, str], int] = {}
    for rule, finding in found:
        for code in rule.suppresses:
            key = code, finding.workload
            explained[key] = min(explained.get(key, finding.severity.rank), finding.severity.rank)
    kept = [
        finding
        for _, finding in found
        if explained.get((finding.code, finding.workload), len(Severity)) > finding.severity.rank
    ]
    return in_order(_with_causes(_merged(kept)))


def _with_causes(findings: list[Finding]) -> list[Finding]:
    """A symptom beside one of its causes says to mend that first."""
    causes = {rule.code: rule.causes for rule in RULES}
    found = []
    for finding in findings:
        mine = set(finding.workload.split(", "))
        cause = next(
            (
                other
                for other in in_order(findings)
                if other.code in causes[finding.code]
                and other.severity is not Severity.note
                and mine & set(other.workload.split(", "))
            ),
            None,
        )
        if cause is not None:
            place = f" at {cause.places[0]}" if cause.places else ""
            update = {"change": f"Mend {cause.code}{place} first, which may be why: {cause.change}"}
            finding = finding.model_copy(update=update)
        found.append(finding)
    return found


def _merged(findings: list[Finding]) -> list[Finding]:
    """The same matter in several workloads is one finding.

    It speaks of the workload where most time is at stake, else of the one where it is worst, and is as severe as the
    worst of them.
    """
    merged: dict[tuple[str, str], Finding] = {}
    for finding in findings:
        key = (finding.code, finding.group or finding.message)
        known = merged.get(key)
        if known is None:
            merged[key] = finding
        elif finding.workload not in known.workload.split(", "):
            spoken = max(known, finding, key=lambda each: (each.gain_ns or 0.0, -each.severity.rank))
            update = {
                "workload": f"{known.workload}, {finding.workload}",
                "count": known.count + finding.count,
                "severity": min(known.severity, finding.severity, key=lambda each: each.rank),
            }
            merged[key] = spoken.model_copy(update=update)
    return list(merged.values())
