"""Clock: the Tensor engine runs at a fraction of its clock until it has been busy for a while."""

from __future__ import annotations

from dataclasses import dataclass

from nkireview.schedule.parameters import Figures


@dataclass(frozen=True)
class Pace:
    """Windows of `window` ns in which the clock is slow, `slowdown` times, or fast.

    A window is fast where the one before held at least `share` of its length in work, counted at the fast clock.
    """

    window: float
    share: float
    slowdown: float

    @classmethod
    def of(cls, figures: Figures) -> Pace | None:
        """Those of a target; None where nobody measured its clock."""
        if not figures.target.knows("tensor.clock_window_ns"):
            return None
        return cls(
            figures.number("tensor.clock_window_ns"),
            figures.number("tensor.warm_share"),
            figures.number("tensor.cold_slowdown"),
        )

    def clock(self) -> Clock:
        """A clock that is slow."""
        return Clock(self)


class Clock:
    """The clock of one Tensor engine while its work goes by.

    Windows run freely. The first work is taken to begin where a window has as much left that steady work is fast after
    the mean of all possible times.
    """

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._begin: float | None = None
        self._work = 0.0
        self._fast = False

    def held(self, at: float, work: float) -> float:
        """How long the engine is held by work that begins at `at` and takes `work` ns at the fast clock."""
        pace, window = self._pace, self._pace.window
        if self._begin is None:
            # a first window that is busy to the end is fast next only if its rest holds enough work
            slow = pace.share * pace.slowdown
            self._begin = at - window * (1.5 - slow)
        if at >= self._begin + window:
            passed = max(int((at - self._begin) // window), 1)
            self._fast = passed == 1 and self._work >= pace.share * window
            self._begin += passed * window
            self._work = 0.0
        total, left = 0.0, self._begin + window - at
        while work * (rate := 1.0 if self._fast else pace.slowdown) > left:
            begun = left / rate
            self._fast = self._work + begun >= pace.share * window
            self._begin, self._work = self._begin + window, 0.0
            total, work, left = total + left, work - begun, window
        self._work += work
        return total + work * rate
