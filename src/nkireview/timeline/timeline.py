"""Timeline: what ran when on which queue, and what it waited for; made by `schedule`, or read from a profile."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.float64]
Numbers = NDArray[np.int32]
Codes = NDArray[np.int8]

COMPUTE = ("tensor", "vector", "scalar", "gpsimd")
"""Lanes that compute; each runs one slice after the other."""
TRANSFER = "dma"
"""The lane of DMA transfers, which overlap each other; `queue` lanes hold the time to issue them."""


class Wait(IntEnum):
    """Why a slice began when it did and not earlier."""

    nothing = 0  # it could start at once
    order = 1  # the slice before it in its queue
    data = 2  # a result it reads (read after write)
    reuse = 3  # a reader of what it overwrites (write after read)
    rewrite = 4  # a writer of what it overwrites (write after write)
    engine = 5  # the DMA engines it needs were busy
    bandwidth = 6  # HBM was saturated
    named = 7  # an explicit dependency of the instruction
    peer = 8  # the other core of a meeting
    port = 9  # the engine with which its own shares a way to SBUF or PSUM


@dataclass(frozen=True)
class Lane:
    """A queue of a core: tensor, vector, scalar, gpsimd, sync (issue), or dma (transfers)."""

    core: int
    name: str


@dataclass(frozen=True, eq=False)
class Timeline:
    """Slices as columns, in the order in which they were placed; times in ns from the first work.

    A slice holds its lane from `start` to `stop`; its result can be read from `ready` on. `blocker` is the slice it
    waited for, -1 where `wait` is `nothing` or names no slice. A DMA has two slices: one on the lane that issues it,
    and one on the lane ``dma`` from its first byte until the data is there; its blocker is the issue, or the transfer
    that held its engines. `instruction` is a position
    in the Program, -1 for work that belongs to none.
    `assumed` says what the maker had to assume.
    """

    target: str
    lanes: tuple[Lane, ...]
    lane: Codes
    instruction: Numbers
    start: Times
    stop: Times
    ready: Times
    wait: Codes
    blocker: Numbers
    assumed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        length = len(self.lane)
        for item in fields(self):
            column = getattr(self, item.name)
            if isinstance(column, np.ndarray) and len(column) != length:
                raise ValueError(f"column {item.name} has {len(column)} rows, expected {length}")
        if length and not (np.all(self.start <= self.stop) and np.all(self.start <= self.ready)):
            raise ValueError("a slice ends before it starts")

    def __len__(self) -> int:
        return len(self.lane)

    @property
    def total_ns(self) -> float:
        """From the first work to the last result."""
        return float(max(self.ready.max(), self.stop.max())) if len(self) else 0.0

    def of(self, lane: Lane) -> NDArray[np.int64]:
        """The slices of a lane, in order."""
        return np.flatnonzero(self.lane == self.lanes.index(lane))
