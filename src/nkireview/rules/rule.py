"""Rule: what is looked for, how much it weighs, and the function from facts to findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from nkireview.isa.enums import GENERATIONS
from nkireview.isa.release import ALWAYS, LEGACY, Span
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
    why: str = ""
    change: str = ""
    gain_ns: float | None = None
    failing: str = ""
    legacy: str = ""
    """What to do about it in the legacy generation, where that differs."""


@dataclass(frozen=True)
class Rule:
    """One rule. `suppresses` names the codes of symptoms that its findings explain in the same workload; `causes` those
    that may be why the rule fires: where one of them stands beside it, its change is to mend that first.

    `explanation` says what is wrong and why on this hardware, `change` what to do about it; a Draft may be more
    precise. `legacy` is the change in the spelling of the legacy generation, where that differs, and `legacy_cap` the
    most that the rule weighs there. `generations` and `releases` are those in which the rule is asked at all. The bad
    and the good example are files of ``rules/examples``, named after the code.
    """

    code: str
    title: str
    severity: Severity
    dimension: Dimension
    evidence: Evidence
    explanation: str
    find: Callable[[Facts], Iterable[Draft]]
    citation: str = ""
    suppresses: frozenset[str] = frozenset()
    causes: frozenset[str] = frozenset()
    change: str = ""
    legacy: str = ""
    legacy_cap: Severity | None = None
    generations: frozenset[str] = frozenset(GENERATIONS)
    releases: Span = ALWAYS

    def findings(self, facts: Facts) -> Iterator[Finding]:
        """The rule's findings; none where the target's generation or the release is not the rule's."""
        if facts.generation not in self.generations or facts.release not in self.releases:
            return
        old = facts.release == LEGACY
        for draft in self.find(facts):
            change = draft.change or self.change
            yield Finding(
                code=self.code,
                severity=self._weight(draft, old),
                dimension=draft.dimension or self.dimension,
                evidence=self.evidence,
                message=draft.message,
                places=draft.places,
                count=draft.count,
                kind=draft.kind,
                citation=draft.citation or self.citation,
                workload=draft.workload,
                group=draft.group,
                title=self.title,
                why=draft.why or self.explanation,
                change=(draft.legacy or (self.legacy if not draft.change else "") or change)
                if old
                else change,
                gain_ns=draft.gain_ns,
                failing=draft.failing,
            )

    def _weight(self, draft: Draft, old: bool) -> Severity:
        found = draft.severity or self.severity
        if old and self.legacy_cap is not None:
            return max(found, self.legacy_cap, key=lambda severity: severity.rank)
        return found


def each(find: Callable[[WorkloadFacts], Iterable[Draft]]) -> Callable[[Facts], Iterator[Draft]]:
    """Look at every workload on its own."""

    def over(facts: Facts) -> Iterator[Draft]:
        for workload in facts.workloads:
            yield from find(workload)

    return over


SHARE = 0.10
"""Least share of the predicted time at stake for a performance finding to rise above note."""
LEAST_NS = 5000.0
"""Least time at stake, in ns, for a performance finding to rise above note."""


def weighed(severity: Severity, stake_ns: float, total_ns: float) -> Severity:
    """The severity of a performance finding by the time at stake: a note where too little would be won."""
    return severity if stake_ns >= LEAST_NS and stake_ns >= SHARE * total_ns else Severity.note
