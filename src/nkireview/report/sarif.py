"""A review as SARIF 2.1.0: one run, a rule for each code, a result for each finding."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from nkireview.record import ReviewRecord
from nkireview.report import text as words
from nkireview.rules.finding import Finding, Severity

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
VERSION = "2.1.0"
LEVELS = {
    Severity.blocker: "error",
    Severity.major: "error",
    Severity.minor: "warning",
    Severity.note: "note",
}
RANKS = {Severity.blocker: 100.0, Severity.major: 75.0, Severity.minor: 40.0, Severity.note: 10.0}
MOST_PLACES = 20

Json = dict[str, Any]


def sarif(record: ReviewRecord, paths: Mapping[str, str] | None = None) -> str:
    """The text of review.sarif; `paths` says under which path a file of a place is known, else its name is used."""
    named = paths or {}
    found = [finding for _, finding in words.numbered(record)]
    codes = list(dict.fromkeys(finding.code for finding in found))
    run: Json = {
        "tool": {"driver": _driver(record, found, codes)},
        "columnKind": "unicodeCodePoints",
        "invocations": [_invocation(record)],
        "artifacts": [_artifact(record, named)],
        "results": _results(record, found, codes, named),
        "properties": _properties(record),
    }
    return json.dumps({"$schema": SCHEMA, "version": VERSION, "runs": [run]}, indent=2) + "\n"


def _driver(record: ReviewRecord, found: list[Finding], codes: list[str]) -> Json:
    name, _, version = record.tool.partition(" ")
    driver: Json = {"name": name or "nkireview"}
    if version:
        driver["version"] = version
    first = {code: next(finding for finding in found if finding.code == code) for code in codes}
    driver["rules"] = [_rule(first[code]) for code in codes]
    return driver


def _rule(finding: Finding) -> Json:
    title = words.one_line(finding.title or finding.message, 200)
    parts = [finding.why, finding.change, f"Source: {finding.citation}" if finding.citation else ""]
    help_text = "\n\n".join(words.one_line(part) for part in parts if part) or title
    return {
        "id": finding.code,
        "shortDescription": {"text": title},
        "fullDescription": {"text": words.one_line(finding.why) or title},
        "help": {"text": help_text},
        "defaultConfiguration": {"level": LEVELS[finding.severity]},
        "properties": {"tags": [finding.dimension.value]},
    }


def _results(
    record: ReviewRecord, found: list[Finding], codes: list[str], paths: Mapping[str, str]
) -> list[Json]:
    results: list[Json] = []
    seen: dict[str, int] = {}
    for finding in found:
        identity = _identity(finding)
        seen[identity] = seen.get(identity, 0) + 1
        places = [_location(place, paths) for place in finding.places[:MOST_PLACES] if place]
        result: Json = {
            "ruleId": finding.code,
            "ruleIndex": codes.index(finding.code),
            "level": LEVELS[finding.severity],
            "kind": "fail",
            "message": {"text": _message(finding, record)},
            "occurrenceCount": finding.count,
            "rank": RANKS[finding.severity],
            "fingerprints": {
                "nkireview/v1": hashlib.sha256(f"{identity}|{seen[identity]}".encode()).hexdigest()
            },
            "properties": _details(finding, record),
        }
        if places:
            result["locations"] = places[:1]
        if places[1:]:
            result["relatedLocations"] = [{**place, "id": at} for at, place in enumerate(places[1:], 1)]
        results.append(result)
    return results


def _identity(finding: Finding) -> str:
    """What stays the same when lines move and figures change."""
    file = words.place_of(finding.places[0])[0] if finding.places else ""
    parts = (finding.code, finding.dimension.value, finding.kind, finding.group, finding.workload, file)
    return "|".join(words.escape_controls(part) for part in parts)


def _message(finding: Finding, record: ReviewRecord) -> str:
    text = words.one_line(finding.message)
    if finding.change:
        text += f" Change: {words.one_line(finding.change)}"
    saved = words.gain(finding, record.times)
    if saved:
        text += f" Predicted gain: {saved}."
    return text


def _details(finding: Finding, record: ReviewRecord) -> Json:
    details: Json = {
        "severity": finding.severity.value,
        "dimension": finding.dimension.value,
        "evidence": finding.evidence.value,
        "tags": [finding.dimension.value, finding.evidence.value],
    }
    if finding.workload:
        details["workload"] = words.one_line(finding.workload)
    if finding.gain_ns is not None:
        details["predictedGainNs"] = finding.gain_ns
        band = words.gain_range(finding, record.times)
        if band is not None:
            details["predictedGainRangeNs"] = list(band)
    if finding.failing:
        details["failingInput"] = words.one_line(finding.failing)
    return details


def _location(place: str, paths: Mapping[str, str]) -> Json:
    file, line = words.place_of(place)
    physical: Json = {"artifactLocation": {"uri": _uri(file, paths)}}
    if line is not None:
        physical["region"] = {"startLine": line}
    return {"physicalLocation": physical}


def _uri(file: str, paths: Mapping[str, str]) -> str:
    return quote(words.escape_controls(paths.get(file, file)).replace("\\", "/"))


def _artifact(record: ReviewRecord, paths: Mapping[str, str]) -> Json:
    artifact: Json = {
        "location": {"uri": _uri(PurePath(record.subject.file).name, paths)},
        "roles": ["analysisTarget"],
        "sourceLanguage": "python",
    }
    if record.subject.sha256:
        artifact["hashes"] = {"sha-256": record.subject.sha256}
    return artifact


def _invocation(record: ReviewRecord) -> Json:
    invocation: Json = {
        "executionSuccessful": record.status != "not reviewed",
        "exitCode": int(record.exit_code),
    }
    if record.reason:
        level = "error" if record.status == "not reviewed" else "warning"
        note = {"level": level, "message": {"text": words.one_line(record.reason)}}
        invocation["toolExecutionNotifications"] = [note]
    return invocation


def _properties(record: ReviewRecord) -> Json:
    card = record.scorecard
    made: Json = {
        "verdict": record.status,
        "target": record.subject.target.value,
        "release": record.subject.release.value,
        "lnc": record.subject.lnc.value,
    }
    if record.reason:
        made["reason"] = words.one_line(record.reason)
    if card is not None and card.total is not None:
        made["total"] = card.total
    return made
