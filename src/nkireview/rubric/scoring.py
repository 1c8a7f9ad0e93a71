"""From findings and measures to a scorecard: pure, and the same for the same facts in any order."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nkireview.rubric import tables
from nkireview.rubric.model import TOP, Criterion, Rubric
from nkireview.rubric.scorecard import (
    Blocker,
    CriterionScore,
    DimensionScore,
    Edit,
    EvidenceLink,
    Scorecard,
)
from nkireview.rules.finding import Dimension, Finding, Severity

POINTS = 100.0


def score(
    rubric: Rubric,
    findings: Sequence[Finding],
    measures: Mapping[str, float],
    not_assessed: Mapping[Dimension, str],
    predicted_ns: Mapping[str, float] | None = None,
) -> Scorecard:
    """The scorecard of a review.

    `not_assessed` says why whole dimensions were not assessed; `predicted_ns` is the predicted time by workload, by
    which the time that a finding would save is weighed. Raise ValueError for a measure that is not finite.
    """
    for name, value in measures.items():
        if not math.isfinite(value):
            raise ValueError(f"measure {name} is {value}: a measure that has nothing to rest on is left out")
    case = _Case(rubric, findings, measures, not_assessed, predicted_ns or {})
    return settled(
        Scorecard(
            rubric=rubric.name,
            dimensions=tuple(case.dimension(dimension) for dimension in Dimension if rubric.of(dimension)),
            uncapped=None,
            total=None,
            blockers=tuple(
                Blocker(code=finding.code, finding=at, cap=rubric.cap(finding.code))
                for at, finding in enumerate(findings)
                if finding.severity is Severity.blocker
            ),
            unscored=tuple(
                at
                for at, finding in enumerate(findings)
                if finding.severity is not Severity.note
                and not rubric.counts(finding.code, finding.dimension)
            ),
        )
    )


def settled(card: Scorecard, edits: tuple[Edit, ...] = ()) -> Scorecard:
    """A scorecard whose dimension scores, total and caps follow from its criteria and blockers."""
    dimensions = tuple(_averaged(item) for item in card.dimensions)
    scores = [(item.weight, item.score) for item in dimensions if item.score is not None]
    uncapped = None
    if scores:
        lost = math.fsum(
            item.penalty * (1 - item.level / TOP)
            for dimension in dimensions
            for item in dimension.criteria
            if item.level is not None
        )
        uncapped = min(POINTS, max(0.0, POINTS / TOP * _mean(scores) - lost))
    caps = [item.cap for item in card.blockers if not item.accepted]
    cap = min(caps, default=None)
    by = {item.code for item in card.blockers if not item.accepted and item.cap == cap}
    return card.model_copy(
        update={
            "dimensions": dimensions,
            "uncapped": uncapped,
            "total": uncapped if uncapped is None or cap is None else min(uncapped, cap),
            "cap": cap,
            "capped_by": tuple(sorted(by)),
            "edits": (*card.edits, *edits),
        }
    )


def _mean(pairs: Sequence[tuple[float, float]]) -> float:
    """The weighted mean, within the range of its values whatever the rounding."""
    mean = math.fsum(weight * value for weight, value in pairs) / math.fsum(weight for weight, _ in pairs)
    values = [value for _, value in pairs]
    return min(max(values), max(min(values), mean))


def _averaged(item: DimensionScore) -> DimensionScore:
    """A dimension whose score follows from its criteria."""
    counted = [one for one in item.criteria if not one.penalty]
    levels = [(one.weight, one.level) for one in counted if one.level is not None]
    reasons = dict.fromkeys(one.reason for one in counted if one.level is None)
    reason = "; ".join(reasons) or "it holds penalties only"
    return item.model_copy(
        update={"score": _mean(levels) if levels else None, "reason": "" if levels else reason}
    )


@dataclass(frozen=True)
class _Case:
    """One review against one rubric."""

    rubric: Rubric
    findings: Sequence[Finding]
    measures: Mapping[str, float]
    not_assessed: Mapping[Dimension, str]
    predicted_ns: Mapping[str, float]
    counted: dict[str, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for at, finding in enumerate(self.findings):
            if finding.severity is not Severity.note:
                for key in self.rubric.counts(finding.code, finding.dimension):
                    self.counted.setdefault(key, []).append(at)

    def dimension(self, dimension: Dimension) -> DimensionScore:
        """A dimension with its criteria, before its mean is taken."""
        items = self.rubric.of(dimension).items()
        return DimensionScore(
            dimension=dimension,
            weight=self.rubric.dimensions[dimension].weight,
            criteria=tuple(self._criterion(key, item, dimension) for key, item in items),
        )

    def _criterion(self, key: str, item: Criterion, dimension: Dimension) -> CriterionScore:
        levels, evidence = [TOP], []
        for at in self.counted.get(key, ()):
            finding = self.findings[at]
            share = self._share(finding)
            cap = self.rubric.effects.cap(finding.severity, share, item.effects)
            saved = "" if share is None else f": {share:.1%} of the predicted time at stake"
            levels.append(cap)
            evidence.append(
                EvidenceLink(
                    kind="finding", name=finding.code, finding=at, effect=f"caps the level at {cap}{saved}"
                )
            )
        reason = "" if min(levels) == 0 else self.not_assessed.get(dimension, "") or self._missing(item)
        for thresholds in item.measures:
            value = self.measures.get(thresholds.name)
            if value is not None:
                level, clause = thresholds.level(value)
                levels.append(level)
                evidence.append(
                    EvidenceLink(kind="measure", name=thresholds.name, value=value, effect=clause)
                )
        return CriterionScore(
            id=key,
            title=item.title,
            weight=item.weight,
            level=None if reason else min(levels),
            descriptor="" if reason else item.descriptor(min(levels)),
            reason=reason,
            evidence=tuple(evidence),
            penalty=item.penalty or 0.0,
        )

    def _missing(self, item: Criterion) -> str:
        """Why a criterion cannot be assessed; empty where it can."""
        known = tables.measures()
        for name in item.needs:
            if name not in self.measures:
                return known[name].absent
        names = [one.name for one in item.measures]
        if names and not any(name in self.measures for name in names):
            return known[names[0]].absent
        return item.unassessed

    def _share(self, finding: Finding) -> float | None:
        """The share of its workload's predicted time that a finding would save, None where that is not known."""
        # its gain is that of the workload where most time is at stake, as a rule the longest
        total = max(self.predicted_ns.get(name, 0.0) for name in finding.workload.split(", "))
        if finding.severity is Severity.blocker or finding.gain_ns is None or total <= 0:
            return None
        return min(1.0, finding.gain_ns / total)
