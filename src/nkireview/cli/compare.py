"""nkireview compare."""

from __future__ import annotations

import secrets
import sys
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError
from rich.console import Console

from nkireview.cli.group import main
from nkireview.cli.options import kernel_options
from nkireview.cli.review import requests_of
from nkireview.cli.screen import WRONG_CALL, progress, screen, sentences
from nkireview.comparison import compare
from nkireview.record import ReviewRecord
from nkireview.report.comparison import print_comparison
from nkireview.requests import UsageError, with_limits
from nkireview.review import review
from nkireview.runner import ForkServer


@main.command("compare")
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path))
@kernel_options
def compare_command(
    a: Path, b: Path, out: Path | None, as_json: bool, wall: float | None, **options: Any
) -> None:
    """Hold two submissions, or two versions of a kernel, against each other: verdict, time, instructions, bytes.

    \b
    Examples:
      nkireview compare examples/matmul/submissions/slow examples/matmul/submissions/good
      nkireview compare old.py new.py --kernel softmax --reference ref.py:softmax --input x=bf16[4096,2048]
      nkireview compare before/review.json after/review.json

    A and B are submissions of a task, kernel files, or review.json files. Exits with 0 when both were compared.
    With --out the comparison is written to comparison.json.
    """
    with sentences():
        if options["seed"] is None:
            options["seed"] = secrets.randbelow(2**31)
        with ForkServer() as server:
            one, two = (_reviewed(path, server, wall, options) for path in (a, b))
        try:
            found = compare(one, two, (str(a), str(b)))
        except ValueError as error:
            raise UsageError(str(error)) from None
        text = found.model_dump_json(indent=2)
        if out:
            out.mkdir(parents=True, exist_ok=True)
            (out / "comparison.json").write_text(text + "\n", encoding="utf-8")
        if as_json:
            click.echo(text)
        else:
            print_comparison(found, screen())
    sys.exit(WRONG_CALL if "not reviewed" in (found.a.status, found.b.status) else 0)


def _reviewed(path: Path, server: ForkServer, wall: float | None, options: dict[str, Any]) -> ReviewRecord:
    """The review in a file, or a review made now."""
    if path.suffix == ".json" and path.is_file():
        try:
            return ReviewRecord.model_validate_json(path.read_bytes())
        except ValidationError:
            raise UsageError(f"{path}: this is no review; expected a review.json of this version") from None
    if path.suffix == ".json" and not path.exists():
        raise UsageError(
            f"{path}: no such file; expected a review.json, a submission of a task or a kernel file"
        )
    requests = [with_limits(request, wall) for request in requests_of(path, options)]
    if len(requests) != 1:
        raise UsageError(f"{path} has {len(requests)} submissions; name one of them")
    with progress(Console(stderr=True)) as tell:
        return review(requests[0], server, tell)
