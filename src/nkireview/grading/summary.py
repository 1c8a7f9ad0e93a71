"""The summary of graded submissions: counts, the best, the most frequent findings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from nkireview.grading.record import Best, Frequent, GradeRecord, Status, Summary

BEST = 5
FREQUENT = 5


def summarise(records: Sequence[GradeRecord], task: str, results: str) -> Summary:
    """The summary of records; ties in score go to the shorter predicted time, then the name."""
    scored = [
        Best(
            name=record.name,
            total=record.total,
            predicted_ns=sum(time.predicted_ns for time in record.times) if record.times else None,
            low_ns=sum(time.low_ns for time in record.times) if record.times else None,
            high_ns=sum(time.high_ns for time in record.times) if record.times else None,
        )
        for record in records
        if record.total is not None and record.status == "acceptable"
    ]
    scored.sort(key=lambda item: (-item.total, item.predicted_ns or 0.0, item.name))
    return Summary(
        task=task,
        submissions=len(records),
        statuses={status: sum(record.status == status for record in records) for status in get_args(Status)},
        best=tuple(scored[:BEST]),
        frequent=_frequent(records),
        results=results,
    )


def _frequent(records: Sequence[GradeRecord]) -> tuple[Frequent, ...]:
    found: dict[str, Frequent] = {}
    for record in records:
        for code, finding in {finding.code: finding for finding in reversed(record.findings)}.items():
            known = found.get(code)
            times = known.submissions + 1 if known else 1
            first = known or finding
            found[code] = Frequent(
                code=code, severity=first.severity, submissions=times, message=first.message
            )
    ranked = sorted(found.values(), key=lambda item: (-item.submissions, item.code))
    return tuple(ranked[:FREQUENT])
