"""Timing: a Program in time, and how long it would take if parts of it were otherwise."""

from __future__ import annotations

import gc
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nkireview.program.program import Program
from nkireview.schedule.compiled import Compiled, compiled
from nkireview.schedule.parameters import Parameters
from nkireview.schedule.prediction import Prediction, chosen, is_legacy, traced
from nkireview.schedule.schedule import Plan, schedule
from nkireview.timeline.timeline import Timeline


class Timing:
    """A Program in time on its target, scheduled on first use.

    `scale` has one factor for each instruction: what it costs is multiplied by it, 0 takes it out (what waits for it
    then waits for nothing). `unshared` names buffers whose next use need not wait for the readers of the last one,
    as if each use had memory of its own. `trips`: index of a loop -> its trip count, where its bounds are no numbers.
    Raise ProgramError, on first use, for an instruction without a row.
    """

    def __init__(
        self,
        program: Program,
        parameters: Parameters | None = None,
        trips: Mapping[int, int] | None = None,
    ) -> None:
        self.program = program
        self._parameters = parameters or Parameters()
        self._trips = trips or {}

    @cached_property
    def written(self) -> Plan:
        """Costs and dependences, worked out once; every queue in program order."""
        with _without_collection():
            return Plan.of(self.program, self._parameters, self._trips)

    @cached_property
    def compiled(self) -> Compiled | None:
        """What the legacy compiler makes of the program; None for the current generation."""
        if not is_legacy(self.program.header.release):
            return None
        with _without_collection():
            return compiled(self.written, self._parameters)

    @property
    def plan(self) -> Plan:
        """The plan of what runs."""
        return self.compiled.plan if self.compiled else self.written

    @cached_property
    def prediction(self) -> Prediction:
        """The time with its interval, and what it rests on."""
        band, free = (float(self._parameters.value(name)) for name in ("band", "free_band"))
        if self.compiled is None:
            return traced(self.total_ns, self.plan, band)
        return chosen(self.total_ns, self.compiled, band, free)

    @cached_property
    def timeline(self) -> Timeline:
        """The schedule as the program is."""
        plan = self.plan
        with _without_collection():
            return schedule(plan)

    @property
    def total_ns(self) -> float:
        """Predicted time from the first work to the last result."""
        return self.timeline.total_ns

    @cached_property
    def held_ns(self) -> NDArray[np.float64]:
        """For each instruction the time for which it holds its queue and, for a DMA, its engines."""
        held: NDArray[np.float64] = self.plan.costs.held + self.plan.costs.transfer
        return held

    def without(self, scale: NDArray[np.float64] | None = None, unshared: Collection[int] = ()) -> float:
        """The predicted time with instructions scaled and buffers unshared."""
        plan = self.plan
        with _without_collection():
            return schedule(plan, scale, unshared).total_ns

    def stake(self, scale: NDArray[np.float64] | None = None, unshared: Collection[int] = ()) -> float:
        """The time that `without` saves, in ns; never negative."""
        return max(0.0, self.total_ns - self.without(scale, unshared))


@contextmanager
def _without_collection() -> Iterator[None]:
    """No search for cycles: none are made, and looking for them among a million slices costs more than the slices."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
