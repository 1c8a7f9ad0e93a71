"""What was done well, with this run's figures: the sentences of ``strengths.toml`` that are true."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nkireview.rubric import tables
from nkireview.rubric.codes import matches
from nkireview.rules.finding import Finding, Severity


def strengths(measures: Mapping[str, float], findings: Iterable[Finding]) -> tuple[str, ...]:
    """The sentences whose measure is good enough and that no finding above note speaks against."""
    against = {finding.code for finding in findings if finding.severity is not Severity.note}
    known = tables.measures()
    return tuple(
        row.text.format(value=measures[row.measure])
        for row in tables.strengths()
        if row.measure in measures
        and known[row.measure].reaches(measures[row.measure], row.at)
        and not any(matches(row.unless, code) for code in against)
    )
