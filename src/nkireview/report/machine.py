"""A review as files, each written whole or not at all, and as the text of one form."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from nkireview.record import ReviewRecord
from nkireview.report.agent import agent
from nkireview.report.github import github
from nkireview.report.html import html
from nkireview.report.markdown import markdown
from nkireview.report.sarif import sarif

FILES = MappingProxyType(
    {
        "json": "review.json",
        "md": "review.md",
        "html": "review.html",
        "sarif": "review.sarif",
        "agent": "agent.json",
    }
)
"""Form and the file it is written to."""
FORMS = ("json", "md", "sarif", "github", "agent", "html")
"""What can be printed instead of the screen."""

_OUTSIDE_ASCII = re.compile(r"[\x7f-\U0010ffff]")


def to_json(record: ReviewRecord) -> str:
    """The JSON text of a review, in ASCII; non-finite figures are strings, as JSON has none."""
    return ascii_text(record.model_dump_json(indent=2)) + "\n"


def ascii_text(text: str) -> str:
    """A JSON text in ASCII."""
    return _OUTSIDE_ASCII.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def form(
    name: str,
    record: ReviewRecord,
    sources: Mapping[str, str] | None = None,
    paths: Mapping[str, str] | None = None,
) -> str:
    """The text of one form of `FORMS`.

    `sources` maps the file names that places use to their text; `paths` maps them to the paths under which a
    repository knows them.
    """
    if name == "html":
        return html(record, sources or {})
    if name in ("sarif", "github"):
        return (sarif if name == "sarif" else github)(record, paths)
    return {"json": to_json, "md": markdown, "agent": agent}[name](record)


def write(
    record: ReviewRecord,
    folder: Path,
    sources: Mapping[str, str] | None = None,
    paths: Mapping[str, str] | None = None,
) -> Path:
    """Write every file of `FILES` into a folder, which is made, and return the path of ``review.json``.

    A file appears only when it is complete; ``review.json`` appears last, so where it stands the others do too.
    """
    write_texts({FILES[name]: form(name, record, sources, paths) for name in FILES}, folder)
    return folder / FILES["json"]


def write_texts(texts: Mapping[str, str], folder: Path) -> None:
    """Write texts by file name into a folder, which is made: each whole or not at all, the first one last."""
    folder.mkdir(parents=True, exist_ok=True)
    drafts: list[tuple[Path, Path]] = []
    try:
        for file, text in texts.items():
            drafts.append((_draft(folder, file, text), folder / file))
        for draft, target in reversed(drafts):
            draft.replace(target)
    except BaseException:
        for draft, _ in drafts:
            draft.unlink(missing_ok=True)
        raise


def _draft(folder: Path, file: str, text: str) -> Path:
    """A complete temporary file beside its target."""
    handle, name = tempfile.mkstemp(dir=folder, prefix=f".{file}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return Path(name)
