"""Transfers: DMA engines and HBM as capacity over time, shared by whatever moves at the same time."""

from __future__ import annotations

from nkireview.timeline.timeline import Wait

_DONE = 1e-9
_ORDER, _ENGINE, _BANDWIDTH = int(Wait.order), int(Wait.engine), int(Wait.bandwidth)


class Transfers:
    """What is left of the DMA engines and of HBM in equal steps of time.

    A transfer takes what is left from its first moment on, in the order in which transfers are placed, and no more
    than its own engines give; so one that is placed later may use what earlier ones leave free. `step` in ns.
    """

    def __init__(self, engines: int, step: float) -> None:
        self._step = step
        self._capacity = engines * step
        self._engine: list[float] = []  # engine-ns left
        self._hbm: list[float] = []  # ns of full bandwidth left
        self._next: list[int] = []  # the first step at or after this one that is not full
        self._per_step = engines

    def place(self, begin: float, duration: float, engines: int, hbm: float) -> tuple[float, int]:
        """When a transfer is done, and what held it up.

        It holds `engines` engines for `duration` ns if nothing else moves, and all of HBM for `hbm` ns.
        """
        step = self._step
        work = duration * engines
        if work <= 0 and hbm <= 0:
            return begin, _ORDER
        at = int(begin // step)
        left, wait, alone = 1.0, _ORDER, max(duration, hbm)
        while True:
            at = self._free(at)
            start = at * step
            moment = begin if begin > start else start
            share = min(left, (start + step - moment) / alone)
            if work > 0:
                given = self._engine[at] / work
                if given < share:
                    share, wait = given, _ENGINE
            if hbm > 0:
                given = self._hbm[at] / hbm
                if given < share:
                    share, wait = given, _BANDWIDTH
            self._engine[at] -= share * work
            self._hbm[at] -= share * hbm
            left -= share
            if left <= _DONE:
                done = max(
                    moment + share * alone,
                    start + (self._capacity - self._engine[at]) / self._per_step,
                    start + step - self._hbm[at] if hbm > 0 else 0.0,
                )
                return max(done, begin), wait
            if self._engine[at] <= _DONE * self._capacity or self._hbm[at] <= _DONE * step:
                self._next[at] = at + 1
            at += 1

    def _free(self, at: int) -> int:
        """The first step from `at` on that is not full."""
        while at >= len(self._next):
            self._next.append(len(self._next))
            self._engine.append(self._capacity)
            self._hbm.append(self._step)
        found = at
        while self._next[found] != found:
            found = self._next[found]
            if found >= len(self._next):
                self._next.append(found)
                self._engine.append(self._capacity)
                self._hbm.append(self._step)
        while self._next[at] != found and at != found:
            self._next[at], at = found, self._next[at]
        return found
