"""nkireview calibrate."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from rich.console import Console

from nkireview.calibration.accuracy import Accuracy, Judged, NotRun, judge, table
from nkireview.calibration.measured import Case, MeasuredError, read
from nkireview.calibration.programs import NotTraced, build, load_programs, prepare
from nkireview.calibration.recipes import Recipe, RecipeError, Recipes, load
from nkireview.cli.group import main
from nkireview.cli.screen import screen, sentences
from nkireview.program.errors import ProgramError
from nkireview.report.accuracy import markdown, page, print_accuracy, svg, to_json
from nkireview.report.machine import write_texts
from nkireview.report.progress import Meter
from nkireview.requests import UsageError
from nkireview.runner import ForkServer


@main.command("calibrate")
@click.argument("measured", metavar="CSV", type=click.Path(path_type=Path))
@click.argument("clones", metavar="CLONES", type=click.Path(path_type=Path))
@click.option(
    "--keep",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Folder for the traced kernels; those of an earlier run are used again. Default: none is kept.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.md",
    help="Page whose generated part is replaced; the picture is written beside it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the screen.")
@click.option(
    "--recipes",
    "recipes_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.toml",
    help="How each kernel is read and called; default: the public ones that come with nkireview.",
)
@click.option("--only", default="", metavar="TEXT", help="Only cases whose name holds this text.")
def calibrate_command(
    measured: Path,
    clones: Path,
    keep: Path | None,
    out: Path | None,
    as_json: bool,
    recipes_file: Path | None,
    only: str,
) -> None:
    """Compare predicted times with measured ones of public kernels.

    \b
    Examples:
      nkireview calibrate calibration.csv clones --keep traced --out docs/accuracy.md
      nkireview calibrate calibration.csv clones --only attention

    CSV is a table of measurements, CLONES a folder with a git repository OWNER+NAME for each that the table's
    kernels come from. Each kernel is read at its commit, and traced with the shapes and for the hardware that it
    was measured with; a case without its clone is skipped and counted.

    \b
    Exit codes: 0 the table was made; 2 wrong call, or nothing could be compared.
    """
    with sentences(), _said():
        rows, recipes = read(measured), load(recipes_file)
        if not clones.is_dir():
            raise UsageError(
                f"{clones}: there is no such folder; expected one that holds clones, each called OWNER+NAME"
            )
        wanted = prepare(recipes, rows, only)
        if not wanted:
            raise UsageError(_nothing(measured, recipes, only))
        old = out.read_text(encoding="utf-8") if out is not None and out.is_file() else ""
        with tempfile.TemporaryDirectory(prefix="nkireview-traced-") as folder:
            found = _accuracy(wanted, clones, keep or Path(folder), as_json)
        left_out = {} if only else {why: len(each) for why, each in recipes.without(rows).items()}
        accuracy = table(found[0], found[1], left_out)
        if out is not None:
            _write(accuracy, out, old)
        if as_json:
            click.echo(to_json(accuracy))
        else:
            print_accuracy(accuracy, screen())
        if not accuracy.lines:
            raise UsageError(
                f"no case could be compared: {len(accuracy.not_run)} were not run, the first since "
                f"{accuracy.not_run[0].reason}"
                if accuracy.not_run
                else f"{measured}: no case has a measured time"
            )


@contextmanager
def _said() -> Iterator[None]:
    """UsageError for what is wrong with the table, the recipes or the folder of traced kernels."""
    try:
        yield
    except (MeasuredError, RecipeError, NotTraced) as error:
        raise UsageError(str(error)) from None


def _nothing(measured: Path, recipes: Recipes, only: str) -> str:
    names = ", ".join(dict.fromkeys(case.entry.operator for case in recipes.cases))
    if only:
        return f"--only {only}: no case that {measured} has rows for is called so; expected a part of a name"
    return f"{measured}: it has no row of a kernel that can be read here; expected some of {names}"


def _accuracy(
    wanted: list[tuple[Recipe, Case]], clones: Path, keep: Path, quiet: bool
) -> tuple[list[Judged], list[NotRun]]:
    judged: list[Judged] = []
    not_run: list[NotRun] = []
    with ForkServer() as server, Meter(Console(stderr=True, quiet=quiet), "calibrate") as meter:

        def tell(doing: str) -> None:
            meter.update(len(judged) + len(not_run), len(wanted), doing)

        for case in build(wanted, clones, keep, server, tell):
            tell(f"{case.id}: timing")
            reason = case.reason
            if not reason:
                try:
                    judged.append(judge(case, load_programs(case, keep)))
                except ProgramError as error:
                    reason = str(error)
            if reason:
                not_run.append(NotRun(case.id, case.repository, reason, case.missing_clone))
    return judged, not_run


def _write(accuracy: Accuracy, out: Path, old: str) -> None:
    picture = out.with_suffix(".svg")
    try:
        text = page(old, markdown(accuracy, picture.name if accuracy.lines else ""))
    except ValueError as error:
        raise UsageError(f"{out}: {error}") from None
    texts = {out.name: text}
    if accuracy.lines:
        texts[picture.name] = svg(accuracy)
    write_texts(texts, out.parent)
