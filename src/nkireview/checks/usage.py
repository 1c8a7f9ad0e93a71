"""Usage: how full the PE array, the lanes of the engines, HBM and the DMA engines are while they work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nkireview.checks.ran import Ran
from nkireview.checks.survey import Survey
from nkireview.hardware import Hardware
from nkireview.schedule.costs import GPSIMD, SCALAR, TENSOR, VECTOR
from nkireview.schedule.costs import LANES as NAMES
from nkireview.schedule.timing import Timing

LANES = (VECTOR, SCALAR, GPSIMD)
"""Queues of the engines that work on one lane for each partition."""


@dataclass(frozen=True)
class Usage:
    """Shares from 0 to 1, weighted by time; None where nothing of the kind runs.

    `rows`, `columns` and `cells` of the PE array that are filled while it works. `lanes`: engine -> share of its lanes
    that have a partition to work on. `hbm`: bytes over HBM against its bandwidth over the whole time.
    `transfer_engines`: DMA engines that a transfer uses, of `engines` that a core has; `engines_busy`: how many
    of them are busy over the whole time, on average of the cores.
    """

    rows: float | None
    columns: float | None
    cells: float | None
    lanes: Mapping[str, float]
    hbm: float
    transfer_engines: float | None
    engines_busy: float
    engines: int


def usage(timing: Timing, survey: Survey, hardware: Hardware, hbm_bytes: float, runs: Ran) -> Usage:
    """The usage of a scheduled Program that moves so many bytes over HBM, spills included."""
    work, priced, total = survey.work, timing.plan.costs, timing.total_ns
    cores = max(len({stream.core for stream in survey.program.streams}), 1)
    weight = (priced.held * runs.times)[work.instruction]
    lane = runs.lane[work.instruction]
    on_array = lane == TENSOR
    rows, columns = (
        work.rows / hardware.integer("tensor.rows"),
        work.columns / hardware.integer("tensor.columns"),
    )
    lanes = {
        NAMES[at]: share
        for at in LANES
        if (share := _mean(np.minimum(work.partitions / hardware.partitions, 1.0), weight * (lane == at)))
        is not None
    }
    moved = np.where(priced.is_dma, priced.transfer * runs.times, 0.0)
    used = priced.engines.astype(np.float64)
    available = cores * hardware.number("hbm.bandwidth_per_core") * total / 1e9
    return Usage(
        rows=_mean(rows, weight * on_array),
        columns=_mean(columns, weight * on_array),
        cells=_mean(rows * columns, weight * on_array),
        lanes=lanes,
        hbm=hbm_bytes / available if available else 0.0,
        transfer_engines=_mean(used, moved),
        engines_busy=float((moved * used).sum()) / (total * cores) if total else 0.0,
        engines=hardware.integer("dma.engines_per_core"),
    )


def _mean(share: NDArray[np.float64], weight: NDArray[np.float64]) -> float | None:
    whole = float(weight.sum())
    return float((share * weight).sum()) / whole if whole else None
