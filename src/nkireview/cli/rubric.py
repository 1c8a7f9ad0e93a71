"""nkireview rubric."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path

import click
from pydantic import ValidationError

from nkireview.cli.group import main
from nkireview.cli.screen import sentences
from nkireview.record import ReviewRecord
from nkireview.requests import UsageError
from nkireview.rubric import criteria_json, edits, loading
from nkireview.rubric.model import Rubric
from nkireview.rubric.scorecard import Scorecard
from nkireview.rubric.text import edit_lines, rubric_lines
from nkireview.rubric.toml import to_toml
from nkireview.task import load_task


@main.group("rubric")
def rubric_group() -> None:
    """Show, exchange and apply what reviews are scored by."""


_TASK = click.option(
    "--task", type=click.Path(path_type=Path), help="A task folder; its rubric instead of the default one."
)


@rubric_group.command("show")
@_TASK
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def rubric_show(task: Path | None, as_json: bool) -> None:
    """Print a rubric: dimensions, criteria, weights, levels and caps."""
    with sentences():
        rubric = _rubric(task)
        click.echo(rubric.model_dump_json(indent=2) if as_json else "\n".join(rubric_lines(rubric)))


@rubric_group.command("export")
@_TASK
@click.option(
    "--review",
    type=click.Path(path_type=Path),
    help="A review.json; its scores are filled in, edits applied.",
)
def rubric_export(task: Path | None, review: Path | None) -> None:
    """Print a rubric, or a scorecard, as a JSON list of criterion, points and tags."""
    with sentences():
        rubric = _rubric(task)
        if review is None:
            entries = criteria_json.export_rubric(rubric)
        else:
            card, of = _judged(review)
            card = edits.apply(card, edits.read_edits(review.parent / edits.EDITS_FILE, of))
            entries = criteria_json.export_scorecard(rubric, card)
        click.echo(json.dumps(entries, indent=2, ensure_ascii=False))


@rubric_group.command("import")
@click.argument("file", type=click.Path(path_type=Path))
def rubric_import(file: Path) -> None:
    """Print the rubric.toml of a JSON list of criterion, points and tags."""
    with sentences():
        rubric = criteria_json.import_text(file.read_text(encoding="utf-8"), str(file))
        click.echo(to_toml(rubric), nl=False)


@rubric_group.command("edit")
@click.argument("review", type=click.Path(path_type=Path))
@click.option("--criterion", metavar="ID", help="The criterion whose level changes.")
@click.option("--level", metavar="N", help="Its new level, 0 to 4, or none for not assessed.")
@click.option("--accept", metavar="CODE", help="Instead of a level: a blocker whose cap is lifted.")
@click.option("--why", required=True, help="The reason, for whoever reads the scorecard.")
@click.option("--who", required=True, metavar="NAME", help="Who made the change.")
def rubric_edit(
    review: Path, criterion: str | None, level: str | None, accept: str | None, why: str, who: str
) -> None:
    """Append a reviewer's change to edits.jsonl beside REVIEW and print the new totals."""
    with sentences():
        if (criterion is None) != (level is None) or (criterion is None) == (accept is None):
            raise UsageError("give either --criterion and --level, or --accept")
        (card, of), path = _judged(review), review.parent / edits.EDITS_FILE
        before = edits.apply(card, edits.read_edits(path, of))
        when = datetime.now(timezone.utc).isoformat(timespec="seconds")
        edit = edits.proposed(
            before, criterion or "", level or "", accept or "", why=why, who=who, when=when, of=of
        )
        after = edits.append_edit(path, card, edit)
        click.echo("\n".join(edit_lines(before, after, edit)))


def _rubric(task: Path | None) -> Rubric:
    return loading.load() if task is None else loading.of_task(task, load_task(task).rubric)


def _judged(path: Path) -> tuple[Scorecard, str]:
    """The scorecard of a review and the review's identity."""
    try:
        record = ReviewRecord.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; expected the review.json of a review") from None
    except ValidationError:
        raise UsageError(f"{path}: this is no review; expected a review.json of this version") from None
    if record.scorecard is None:
        raise UsageError(f"{path}: the review has no scorecard; expected one that was judged")
    return record.scorecard, record.identity
