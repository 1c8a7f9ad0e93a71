"""Rule: what is looked for, how much it weighs, and the function from facts to findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from nkireview.rules.facts import Facts, WorkloadFacts
from nkireview.rules.finding import Dimension, Evidence, Finding, Severity


@dataclass(frozen=True)
class Draft:
    """A finding in the making: what differs from its rule's defaults."""

    message: str
    places: tuple[str, ...] = ()
    count: int = 1
    workload: str = ""
    kind: str = ""
    citation: str = ""
    severity: Severity | None = None
    dimension: Dimension | None = None
    group: str = ""


@dataclass(frozen=True)
class Rule:
    """One rule. `suppresses` names the codes of symptoms that its findings explain in the same workload."""

    code: str
    title: str
    severity: Severity
    dimension: Dimension
    evidence: Evidence
    explanation: str
    find: Callable[[Facts], Iterable[Draft]]
    citation: str = ""
    suppresses: frozenset[str] = frozenset()

    def findings(self, facts: Facts) -> Iterator[Finding]:
        """The rule's findings."""
        for draft in self.find(facts):
            yield Finding(
                code=self.code,
                severity=draft.severity or self.severity,
                dimension=draft.dimension or self.dimension,
                evidence=self.evidence,
                message=draft.message,
                places=draft.places,
                count=draft.count,
                kind=draft.kind,
                citation=draft.citation or self.citation,
                workload=draft.workload,
                group=draft.group,
            )


def each(find: Callable[[WorkloadFacts], Iterable[Draft]]) -> Callable[[Facts], Iterator[Draft]]:
    """Look at every workload on its own."""

    def over(facts: Facts) -> Iterator[Draft]:
        for workload in facts.workloads:
            yield from find(workload)

    return over
