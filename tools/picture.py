"""Draw docs/softmax.svg: the screen of a real review of examples/softmax/submissions/wrong.

python tools/picture.py
"""

from __future__ import annotations

import io
import re
from pathlib import Path

from rich.console import Console
from rich.text import Text

from nkireview.record import ReviewRecord
from nkireview.report.terminal import print_review
from nkireview.requests import from_task
from nkireview.review import review
from nkireview.runner import ForkServer
from nkireview.task import resolve

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "softmax.svg"
SUBMISSION = ROOT / "examples" / "softmax" / "submissions" / "wrong"
COMMAND = "nkireview review examples/softmax/submissions/wrong"
WIDTH = 110
SEED = 1


def reviewed() -> ReviewRecord:
    """The review of the wrong softmax, with a fixed seed."""
    task, submissions = resolve(SUBMISSION)
    request = from_task(task, submissions[0], target=None, nki=None, lnc=None, seed=SEED)
    with ForkServer() as server:
        return review(request, server)


def draw(record: ReviewRecord) -> str:
    """The SVG of a review as the terminal shows it; isolation and seconds, which differ by machine, are left out."""
    console = Console(
        record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor"
    )
    console.print(Text(f"$ {COMMAND}"))
    print_review(record.model_copy(update={"seconds": {}, "isolation_not_held": ()}), console)
    svg = console.export_svg(title="nkireview", unique_id="softmax")
    # An image may fetch nothing: the fonts of the reader stand in.
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


if __name__ == "__main__":
    PICTURE.write_text(draw(reviewed()), encoding="utf-8")
