"""How far a long run is: a bar on a terminal, a line every so often elsewhere."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

LINE_EVERY_S = 10.0
BAR_EVERY_S = 0.1


class Meter:
    """Shows `update(done, total, doing)` on standard error; a context manager."""

    def __init__(self, console: Console, what: str) -> None:
        self._console = console
        self._what = what
        self._started = self._shown = time.monotonic()
        self._first: int | None = None
        self._bar: Progress | None = None
        if console.is_terminal:
            # no thread of its own: processes are forked while it is shown
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                console=console,
                auto_refresh=False,
                transient=True,
            )
            self._task = self._bar.add_task(what, total=None)

    def __enter__(self) -> Meter:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def note(self, text: str) -> None:
        """A line that stays."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def update(self, done: int, total: int, doing: str = "") -> None:
        """Take note of how far it is."""
        now = time.monotonic()
        if self._first is None:
            self._first = done
        if self._bar is not None:
            if now - self._shown >= BAR_EVERY_S or doing:
                self._shown = now
                self._bar.update(self._task, completed=done, total=total, description=doing or self._what)
                self._bar.refresh()
        elif now - self._shown >= LINE_EVERY_S:
            self._shown = now
            self.note(f"{done}/{total} {doing or self._what}{self._left(done, total, now)}")

    def _left(self, done: int, total: int, now: float) -> str:
        """The time left, if the rest takes as long as what this run has done."""
        made = done - (self._first or 0)
        if made <= 0 or done == total:
            return ""
        seconds = (now - self._started) / made * (total - done)
        return f", about {seconds:.0f} s left" if seconds < 90 else f", about {seconds / 60:.0f} min left"
