"""A review as workflow commands: annotations on the lines of a pull request."""

from __future__ import annotations

from collections.abc import Mapping

from nkireview.record import ReviewRecord
from nkireview.report import text as words
from nkireview.rules.finding import Finding, Severity

COMMANDS = {
    Severity.blocker: "error",
    Severity.major: "error",
    Severity.minor: "warning",
    Severity.note: "notice",
}
MOST = 50


def github(record: ReviewRecord, paths: Mapping[str, str] | None = None) -> str:
    """One annotation a line; `paths` says under which path a file of a place is known, else its name is used."""
    found = [finding for _, finding in words.numbered(record)]
    lines = [_annotation(finding, record, paths or {}) for finding in found[:MOST]]
    if len(found) > MOST:
        lines.append(_command("notice", {"title": "nkireview"}, f"{len(found) - MOST} more in review.md"))
    if record.reason and record.status != "rejected":
        name = "error" if record.status == "not reviewed" else "warning"
        title = {"title": f"nkireview: {words.verdict(record)}"}
        lines.insert(0, _command(name, title, words.one_line(record.reason)))
    return "".join(f"{line}\n" for line in lines)


def _annotation(finding: Finding, record: ReviewRecord, paths: Mapping[str, str]) -> str:
    properties: dict[str, str] = {}
    if finding.places:
        file, line = words.place_of(finding.places[0])
        properties["file"] = words.escape_controls(paths.get(file, file))
        if line is not None:
            properties["line"] = str(line)
    title = words.one_line(finding.title, 120)
    properties["title"] = f"{finding.code} {finding.severity.value}{f': {title}' if title else ''}"
    text = words.one_line(finding.message)
    if finding.change:
        text += f"\nChange: {words.one_line(finding.change)}"
    saved = words.gain(finding, record.times)
    if saved:
        text += f"\nPredicted gain: {saved}"
    others = len(finding.places) - 1
    if others > 0:
        text += f"\nAlso at {f'{others} other places' if others > 1 else 'one other place'}"
    return _command(COMMANDS[finding.severity], properties, text)


def _command(name: str, properties: Mapping[str, str], message: str) -> str:
    given = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
    return f"::{name} {given}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
