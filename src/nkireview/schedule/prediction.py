"""Prediction: how long a program takes, between which times, and how free its compiler was.

A program of the current generation runs as it is written, but for fills that matmuls overwrite, and so does a legacy
one whose tiles fit and which loads nothing twice. Of the others the compiler makes what it likes, so their interval is
wider; it does not begin below what no order can beat.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from nkireview.isa.release import LEGACY, Release
from nkireview.program.program import MEMORIES
from nkireview.schedule.compiled import Change, Compiled
from nkireview.schedule.costs import GPSIMD, SCALAR, TENSOR, VECTOR
from nkireview.schedule.schedule import Plan


class Kind(str, Enum):
    """How far what runs is what is written."""

    traced = "as traced"
    free = "compiler-free"


@dataclass(frozen=True)
class Prediction:
    """Time from the first to the last work in ns, and what it rests on.

    `low_ns` to `high_ns` is the interval that is printed. `change` is what the compiler does most, and `read` and
    `written` are the bytes that it is expected to move from and to HBM, what it adds and leaves out included.
    """

    kind: Kind
    change: Change
    point_ns: float
    low_ns: float
    high_ns: float
    read: float
    written: float

    def __post_init__(self) -> None:
        if not self.low_ns <= self.point_ns <= self.high_ns:
            raise ValueError(
                f"a prediction of {self.point_ns} ns lies outside {self.low_ns} to {self.high_ns} ns"
            )

    @property
    def basis(self) -> str:
        """Whether the compiler was free, and what it is taken to have done."""
        return self.kind.value if self.kind is Kind.traced else f"{self.kind.value}: {self.change.value}"

    @property
    def words(self) -> str:
        """The interval in words, relative to the prediction."""
        if not self.point_ns:
            return f"nothing runs ({self.basis})"
        below, above = 1 - self.low_ns / self.point_ns, self.high_ns / self.point_ns - 1
        return f"from {below:.0%} below to {above:.0%} above the prediction ({self.basis})"


def is_legacy(release: str) -> bool:
    """True of the generation whose compiler reorders, merges and spills."""
    return Release.parse(release) == LEGACY


def traced(total_ns: float, plan: Plan, band: float) -> Prediction:
    """The prediction of a program that runs as it is written.

    band: relative, as a factor either way. Where ranks exchange data, what their links vary by comes on top.
    """
    read, written = _moved(plan)
    spread = float(plan.costs.spread.sum())
    low, high = max(total_ns / (1 + band) - spread, 0.0), total_ns * (1 + band) + spread
    return Prediction(Kind.traced, Change.none, total_ns, low, high, read, written)


def chosen(point_ns: float, made: Compiled, band: float, free: float) -> Prediction:
    """The prediction of what the legacy compiler makes.

    band, free: errors of the model, as factors either way, of programs that run as written and of the others. The
    interval of the latter does not begin below what no order can beat.
    """
    read, written = _moved(made.plan)
    out, back = made.spilled
    read, written = read + made.extra + back + made.constants, written + out
    if not made.free:
        low, high = point_ns / (1 + band), point_ns * (1 + band)
        return Prediction(Kind.traced, Change.none, point_ns, low, high, read, written)
    low = max(min(least_ns(made.plan), point_ns), point_ns / (1 + free))
    return Prediction(Kind.free, made.change, point_ns, low, point_ns * (1 + free), read, written)


def least_ns(plan: Plan) -> float:
    """What no order can beat: the work of the busiest engine, or of the DMAs, at the best rates.

    Each region of HBM is loaded once, only elements cost time, and what Vector, Scalar and GpSimd do is shared evenly.
    """
    costs = plan.costs
    runs = np.ones(len(plan.program), bool)
    runs[list(plan.changes.dropped)] = False
    tensor = float(costs.least[runs & (costs.lane == TENSOR)].sum())
    simple = float(costs.least[runs & np.isin(costs.lane, [VECTOR, SCALAR, GPSIMD])].sum())
    over_hbm, moved = _once(plan)
    return max(tensor, simple / 3, over_hbm / plan.bandwidth, moved / plan.dma_rate)


def _once(plan: Plan) -> tuple[float, float]:
    """Bytes over HBM, and those that DMA engines move for it, where no access to it is repeated."""
    rows = np.flatnonzero(plan.costs.is_dma & (plan.costs.hbm_bytes > 0))
    columns = plan.program.columns
    first = columns.operand_at[rows]
    # the ends of a DMA name what it moves: one of them lies in HBM
    keys = np.stack(
        [columns.operand[first], columns.operand[np.minimum(first + 1, len(columns.operand) - 1)]]
    )
    hbm = np.array([not memory.on_chip for memory in MEMORIES])[columns.buffer_memory][columns.access_buffer]
    named = np.where(hbm[keys[0]], keys[0], keys[1])
    _, at = np.unique(named, return_index=True)
    over_hbm = plan.costs.hbm_bytes[rows[at]]
    # from HBM to HBM each byte crosses it twice
    return float(over_hbm.sum()), float((over_hbm / hbm[keys].sum(axis=0)[at]).sum())


def _moved(plan: Plan) -> tuple[float, float]:
    """Bytes from and to HBM of the DMAs that run, each once a trip."""
    runs = plan.costs.is_dma.copy()
    runs[list(plan.changes.dropped)] = False
    stores = plan.costs.stores
    return (
        float(plan.costs.hbm_bytes[runs & ~stores].sum()),
        float(plan.costs.hbm_bytes[runs & stores].sum()),
    )
