"""Timelines in a page: the data and the script that draw them, what is said beside them, and the same by line."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from nkireview.drawing import line_keys
from nkireview.record import DrawnTimeline
from nkireview.report import text as words
from nkireview.slices import SliceTable

SCRIPT = Path(__file__).parent / "templates" / "timeline.js"
MOST = 20_000
"""Slices that the page of a profile draws one by one."""
SHORT, LONG = 120, 400
"""Characters of names and lines, and of operands."""


@dataclass(frozen=True)
class Line:
    """What the slices of a line and name on a lane amount to."""

    place: str
    name: str
    lane: str
    count: int
    busy_ns: float
    bytes: int


def data(found: DrawnTimeline) -> str:
    """A timeline as JSON that can stand in a page."""
    several = len({lane.core for lane in found.lanes}) > 1
    text = json.dumps(
        {
            "slices": found.slices,
            "end": found.end,
            "lanes": [
                {
                    "core": lane.core if several else None,
                    "name": words.one_line(lane.name, 24),
                    "rows": lane.rows,
                }
                for lane in found.lanes
            ],
            "names": _clean(found.names, SHORT),
            "places": _clean(found.places, SHORT),
            "operands": _clean(found.operands, LONG),
            "waits": _clean(found.waits, SHORT),
            "columns": found.columns,
        },
        separators=(",", ":"),
    )
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _clean(texts: Iterable[str], longest: int) -> list[str]:
    return [words.one_line(text, longest) for text in texts]


def said(found: DrawnTimeline) -> str:
    """How many slices are drawn, in one sentence."""
    if found.slices == found.whole:
        return f"{found.whole:,} slices, each drawn by itself."
    return (
        f"{found.whole:,} slices, drawn as {found.slices:,}: {found.whole - found.slices:,} are merged with a "
        f"neighbour of the same lane, line and name that begins within the same {words.duration(found.step_ns)}."
    )


def by_line(table: SliceTable) -> list[Line]:
    """A timeline by line, name and lane, the longest first."""
    if not len(table):
        return []
    _, first, inverse = np.unique(line_keys(table), return_index=True, return_inverse=True)
    count = np.bincount(inverse.ravel())
    busy = np.bincount(inverse.ravel(), weights=table.stop - table.start)
    size = np.bincount(inverse.ravel(), weights=table.bytes)
    several = len({lane.core for lane in table.lanes}) > 1
    made = []
    for at in np.argsort(-busy, kind="stable").tolist():
        one = int(first[at])
        lane = table.lanes[int(table.lane[one])]
        made.append(
            Line(
                place=table.place_of(one),
                name=table.name_of(one),
                lane=f"{lane.name} {lane.core}" if several else lane.name,
                count=int(count[at]),
                busy_ns=float(busy[at]),
                bytes=int(size[at]),
            )
        )
    return made


@cache
def script() -> str:
    """The script that draws the timelines of a page."""
    return SCRIPT.read_text(encoding="utf-8").strip()


def policy(scripts: Sequence[str]) -> str:
    """The content security policy of a page: nothing from elsewhere, and only these scripts, known by their digests."""
    digests = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(each.encode()).digest()).decode()}'" for each in scripts
    )
    allowed = f" script-src {digests};" if digests else ""
    return f"default-src 'none'; style-src 'unsafe-inline';{allowed} base-uri 'none'; form-action 'none'"
