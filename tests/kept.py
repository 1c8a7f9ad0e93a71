"""What several tests of a run look at, made once, by the process that asks first: reviews and the command's files."""

from __future__ import annotations

import fcntl
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from click.testing import CliRunner

from nkireview.cli import main
from nkireview.record import ReviewRecord
from nkireview.requests import Request
from nkireview.review import review
from nkireview.runner import ForkServer

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
T = TypeVar("T")


@dataclass(frozen=True)
class Written:
    """What `nkireview review` of an example gave: its exit code, what it printed, and a folder for each submission."""

    exit_code: int
    output: str
    folder: Path

    def record(self, submission: str) -> ReviewRecord:
        text = (self.folder / submission / "review.json").read_text(encoding="utf-8")
        return ReviewRecord.model_validate_json(text)


@dataclass(frozen=True)
class Kept:
    """What this run has made, in a folder that its processes share."""

    folder: Path
    server: ForkServer

    def review(self, name: str, request: Request) -> ReviewRecord:
        """The review of a request; the same name must always come with the same request."""
        return self.once(name, lambda: review(request, self.server))

    def example(self, task: str) -> Written:
        """The files of the reviews of an example, with fixed seeds."""
        return self.once(f"example-{task}", lambda: self._written(task))

    def once(self, name: str, make: Callable[[], T]) -> T:
        """What `make` gives, in whichever process it was called."""
        path = self.folder / f"{name}.pickle"
        with path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                made = make()
                path.write_bytes(pickle.dumps(made))
                return made
        found: T = pickle.loads(path.read_bytes())
        return found

    def _written(self, task: str) -> Written:
        out = self.folder / "written"
        result = CliRunner().invoke(main, ["review", str(EXAMPLES / task), "--out", str(out), "--seed", "1"])
        return Written(result.exit_code, result.output, out / task)
