"""A timeline as a table that reports can draw: slices as columns, with the texts they point at."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.float64]
Numbers = NDArray[np.int32]
Codes = NDArray[np.int8]
Counts = NDArray[np.int64]


@dataclass(frozen=True)
class LaneName:
    """A lane of a core: tensor, vector, scalar, gpsimd, sync (issue), or dma (transfers)."""

    core: int
    name: str


@dataclass(frozen=True, eq=False)
class SliceTable:
    """Slices as columns of one length, in the order in which they were placed; times in ns from the first work.

    A slice holds its lane from `start` to `stop`; its result can be read from `ready` on. `blocker` is the slice it
    waited for, -1 where there is none; `wait` is a position in `waits`. `instruction` is a position in the program,
    -1 for work that belongs to none, such as the later trips of a device loop. `name`, `place` and `operands` are
    positions in `names`, `places` and `operand_texts`; -1 where there is nothing to say.
    A DMA has two slices of one name: its issue, on the lane of its queue, and its transfer, on lane ``dma``.
    """

    lanes: tuple[LaneName, ...]
    lane: Codes
    start: Times
    stop: Times
    ready: Times
    wait: Codes
    blocker: Numbers
    instruction: Numbers
    name: Numbers
    names: tuple[str, ...]
    """Names of instructions: "nc_matmul", "dma_copy"."""
    place: Numbers
    places: tuple[str, ...]
    """Lines of the source: "kernel.py:41"."""
    operands: Numbers
    operand_texts: tuple[str, ...]
    """One for each distinct call: "dst=psum float32[128,512] stationary=sbuf bfloat16[128,128] ..."."""
    bytes: Counts
    """Bytes that a transfer moves; bytes that an instruction on an engine reads and writes; 0 for an issue."""
    flops: Counts
    """Twice the multiply-accumulates of a matmul; 0 for all else, transposes on the array included."""
    waits: tuple[str, ...]
    """Words for the codes of `wait`."""

    def __post_init__(self) -> None:
        for item in fields(self):
            column = getattr(self, item.name)
            if isinstance(column, np.ndarray) and len(column) != len(self.lane):
                raise ValueError(f"column {item.name} has {len(column)} rows, expected {len(self.lane)}")

    def __len__(self) -> int:
        return len(self.lane)

    def name_of(self, at: int) -> str:
        """The name of a slice's instruction, or "" for work that belongs to none."""
        number = int(self.name[at])
        return self.names[number] if number >= 0 else ""

    def place_of(self, at: int) -> str:
        """The line of a slice, or "" where it is not known."""
        number = int(self.place[at])
        return self.places[number] if number >= 0 else ""

    def operands_of(self, at: int) -> str:
        """The operands of a slice, or "" for work that belongs to no instruction."""
        number = int(self.operands[at])
        return self.operand_texts[number] if number >= 0 else ""
