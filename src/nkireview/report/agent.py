"""A review as an agent needs it: what to change, where, what it is predicted to save, on which input it fails."""

from __future__ import annotations

import json
from typing import Any

from nkireview.record import ReviewRecord, TimeRecord
from nkireview.report import text as words
from nkireview.rules.finding import Finding

SCHEMA = 1
MOST = 40
LONGEST = 600


def agent(record: ReviewRecord) -> str:
    """The text of agent.json: verdict, total, next step, at most `MOST` findings in order of severity."""
    card = record.scorecard
    found = [finding for _, finding in words.numbered(record)]
    made: dict[str, Any] = {
        "schema_version": SCHEMA,
        "verdict": record.status,
        "reason": words.one_line(record.reason, LONGEST),
        "exit_code": int(record.exit_code),
        "total": None if card is None else card.total,
        "next_step": words.clip(words.next_step(record), LONGEST),
        "predicted_times_us": [_time(time) for time in record.times[:MOST]],
        "findings": [_finding(finding, record) for finding in found[:MOST]],
        "findings_left_out": max(0, len(found) - MOST),
    }
    return json.dumps(made, indent=2) + "\n"


def _time(time: TimeRecord) -> dict[str, Any]:
    return {
        "workload": words.one_line(time.workload, LONGEST),
        "predicted": _us(time.total_ns),
        "range": [_us(time.low_ns), _us(time.high_ns)],
        "basis": time.basis,
        "bound": time.bound,
    }


def _finding(finding: Finding, record: ReviewRecord) -> dict[str, Any]:
    file, line = words.place_of(finding.places[0]) if finding.places else ("", None)
    band = words.gain_range(finding, record.times)
    return {
        "code": finding.code,
        "finding": words.one_line(finding.message, LONGEST),
        "severity": finding.severity.value,
        "dimension": finding.dimension.value,
        "file": words.one_line(file, LONGEST) or None,
        "line": line,
        "change": words.one_line(finding.change, LONGEST),
        "predicted_gain_us": None if finding.gain_ns is None else _us(finding.gain_ns),
        "predicted_gain_range_us": None if band is None else [_us(item) for item in band],
        "failing_input": words.one_line(finding.failing, LONGEST) or None,
        "evidence": finding.evidence.value,
    }


def _us(ns: float) -> float:
    return round(ns / 1000, 3)
