"""Bounds: how long the memory side and the compute side of a Program take alone, as users of the profiler name them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from nkireview.checks.operations import Operations
from nkireview.checks.ran import Ran
from nkireview.checks.survey import Survey
from nkireview.checks.usage import LANES
from nkireview.hardware import Hardware
from nkireview.timeline.summary import Summary, issuing, merged
from nkireview.timeline.timeline import COMPUTE, TRANSFER, Timeline

Group = Literal["memory", "compute", "pipeline"]
ACTIVE, IDEAL, NO_RELOADS, USEFUL, LEFT = "active", "ideal", "without re-loads", "useful", "what is left"


@dataclass(frozen=True)
class BoundLine:
    """A time in ns, and what it means."""

    group: Group
    name: str
    ns: float
    meaning: str


def bounds(
    timeline: Timeline,
    found: Summary,
    made: Operations,
    survey: Survey,
    hardware: Hardware,
    hbm_bytes: float,
    runs: Ran,
) -> tuple[BoundLine, ...]:
    """The bounds of a scheduled Program that moves so many bytes over HBM.

    What several cores do at rates is taken as shared evenly among them.
    """
    cores = max(len({stream.core for stream in survey.program.streams}), 1)
    rate = cores * hardware.number("hbm.bandwidth_per_core") / 1e9
    memory = _busiest(timeline, (TRANSFER,))
    compute = _busiest(timeline, COMPUTE)
    return (
        BoundLine("memory", ACTIVE, memory, "at least one DMA transfer runs, on the core where most do"),
        BoundLine(
            "memory",
            IDEAL,
            hbm_bytes / rate,
            "the bytes it moves, at the documented HBM bandwidth",
        ),
        BoundLine(
            "memory",
            NO_RELOADS,
            survey.locality.compulsory / rate,
            "each input byte that counts loaded once, each output byte stored once, at that bandwidth",
        ),
        BoundLine("compute", ACTIVE, compute, "the busiest engine works"),
        BoundLine(
            "compute",
            IDEAL,
            max(_engines_ns(made, survey, hardware, runs)) / cores,
            "the engine with most work, at the documented rates with no idle row, column or lane",
        ),
        BoundLine(
            "compute",
            USEFUL,
            float((made.array_ns * runs.times)[made.products > 0].sum()) / cores,
            "the matmuls that the result needs, transposes left out, on a full PE array",
        ),
        BoundLine(
            "pipeline",
            LEFT,
            max(found.total_ns - max(memory, compute), 0.0),
            "the whole less the longer of the two active times: latencies, waiting, what does not overlap",
        ),
    )


def _busiest(timeline: Timeline, names: tuple[str, ...]) -> float:
    works = ~issuing(timeline)
    rows = [timeline.of(lane) for lane in timeline.lanes if lane.name in names]
    busy = (merged(timeline.start[own], timeline.stop[own]) for own in (each[works[each]] for each in rows))
    return max((spans.total for spans in busy), default=0.0)


def _engines_ns(made: Operations, survey: Survey, hardware: Hardware, runs: Ran) -> list[float]:
    """The work of each engine at documented rates, in ns."""
    work = survey.work
    share = np.minimum(work.partitions / hardware.partitions, 1.0)
    filled = share * work.interval * runs.times[work.instruction]
    lanes = [float(filled[runs.lane[work.instruction] == lane].sum()) for lane in LANES]
    return [float((made.array_ns * runs.times).sum()), *lanes]
