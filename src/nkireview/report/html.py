"""A review as one page: offline, without requests, findings beside the source, time and memory drawn.

Its one script draws timelines; without any there is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from nkireview.record import OutputResult, ReviewRecord, Run
from nkireview.report import memory_map, numbers, pictures, timeline_page
from nkireview.report import text as words
from nkireview.report.listing import anchors, listings
from nkireview.rubric.scorecard import EvidenceLink
from nkireview.rubric.text import points

TEMPLATES = Path(__file__).parent / "templates"
MOST_FINDINGS = 200
MOST_PLACES = 12
MOST_ROWS = 60
MOST_TIMES = 12


def html(record: ReviewRecord, sources: Mapping[str, str]) -> str:
    """The text of review.html; `sources` maps the file names that places use to their text."""
    found = words.numbered(record)
    shown = listings(sources, found[:MOST_FINDINGS])
    times = sorted(record.times, key=lambda time: -time.total_ns)
    scripts = [timeline_page.script()] if any(time.drawn for time in times[:MOST_TIMES]) else []
    return (
        environment()
        .get_template("review.html.j2")
        .render(
            record=record,
            css="\n".join(style(name) for name in ("review.css", *_styles(record, scripts))),
            policy=timeline_page.policy(scripts),
            scripts=scripts,
            found=found[:MOST_FINDINGS],
            left_out=max(0, len(found) - MOST_FINDINGS),
            listings=shown,
            anchors=anchors(shown),
            runs=_outputs(record.runs),
            times=times,
            most=MOST_ROWS,
            most_places=MOST_PLACES,
            most_times=MOST_TIMES,
            **numbers.page_words(),
        )
    )


def _styles(record: ReviewRecord, scripts: list[str]) -> list[str]:
    """The style sheets that a review needs besides its own."""
    return [*(["timeline.css"] if scripts else []), *(["numbers.css"] if record.numbers else [])]


@cache
def style(name: str) -> str:
    """The rules of a style sheet among the templates."""
    return (TEMPLATES / name).read_text(encoding="utf-8").strip()


@cache
def environment() -> Environment:
    """The templates of pages, with what they call."""
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_visible,
    )
    made.filters.update(
        duration=words.duration,
        percent=words.percent,
        size=words.size,
        figure=words.figure,
        measure=words.measure,
        points=points,
        score=words.score,
        clip=words.clip,
    )
    made.globals.update(
        words=words,
        pictures=pictures,
        memory_map=memory_map,
        timeline_page=timeline_page,
        evidence=_evidence,
        tone=_tone,
        share_of=_share_of,
        zip=zip,
    )
    return made


def _visible(value: Any) -> Any:
    """Controls and bidirectional characters of every text that enters the page are made visible."""
    return words.escape_controls(value) if type(value) is str else value


def _outputs(runs: tuple[Run, ...]) -> list[tuple[Run, OutputResult | None]]:
    """Each run with each of its outputs, wrong ones first."""
    rows: list[tuple[Run, OutputResult | None]] = []
    for run in runs:
        rows += [(run, output) for output in run.outputs] or [(run, None)]
    return sorted(rows, key=lambda row: (row[1].status if row[1] else row[0].status) != "wrong")


def _evidence(link: EvidenceLink, record: ReviewRecord) -> str:
    """What a score rests on, in words."""
    if link.kind == "measure":
        value = "" if link.value is None else f" = {words.measure(link.value)}"
        return f"{link.name}{value}: {link.effect}"
    return f"{link.name}: {link.effect}"


def _tone(score: float | None) -> str:
    """How a score is coloured."""
    if score is None:
        return "none"
    return "good" if score >= 3 else "middling" if score >= 2 else "bad"


def _share_of(part: float, whole: float) -> float:
    """A share in percent, 0 where there is no whole."""
    return round(100 * part / whole, 2) if whole > 0 else 0.0
