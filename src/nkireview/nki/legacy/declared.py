"""Declared tensors of the legacy generation: block dimensions, ``nl.par_dim``, and where each block lies.

A tensor (blocks..., par_dim(P), free...) is a list of tiles; each is a buffer of its own from its first use on.
Sources: nki/api/nki/language/__init__.py:101-103, nki/api/nki/compiler/{sbuf,psum}.py at tag v2.26.1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from nkireview.nki.dtypes import DType
from nkireview.nki.errors import Refusal
from nkireview.nki.tensor import MemoryRegion, NkiTensor
from nkireview.nki.trace import Trace
from nkireview.nki.views import row_major

Address = tuple[int, int]
Place = Callable[[tuple[int, ...], int, int], Address]
"""From the block index, the partitions and the bytes a partition of a tile to its (partition, byte) address."""


class ParDim(int):
    """``nl.par_dim(n)``: the size of a dimension that is the partition dimension."""


@dataclass(frozen=True)
class Allocator:
    """A memory with a rule that places the tiles of a tensor: what ``ncc.sbuf.alloc`` and its kin give."""

    region: MemoryRegion
    place: Place | None = None


@dataclass(eq=False)
class Declared:
    """A tensor as its declaration says it: sizes of the block dimensions, the shape of one tile, dtype and memory.

    tiles: those that exist, by block index. fresh: called with each tile as it is made.
    """

    trace: Trace
    blocks: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: DType
    region: MemoryRegion
    name: str = ""
    place: Place | None = None
    fresh: Callable[[NkiTensor], None] | None = None
    tiles: dict[tuple[int, ...], NkiTensor] = field(default_factory=dict)
    strides: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.strides = row_major(self.shape)

    def tile(self, at: tuple[int, ...]) -> NkiTensor:
        """The tile of a block index."""
        found = self.tiles.get(at)
        if found is None:
            address = None
            if self.place is not None:
                width = int(np.prod(self.shape[1:], dtype=np.int64)) * self.dtype.itemsize
                address = self.place(at, self.shape[0], width)
            buffer = self.trace.buffer(
                self.region.memory, self.shape, str(self.dtype), address, self._named(at)
            )
            found = self.tiles[at] = NkiTensor.whole(self.trace, buffer)
            if self.fresh is not None:
                self.fresh(found)
        return found

    def adopts(self, tensor: NkiTensor) -> bool:
        """True where a whole fresh buffer can be a tile of this tensor."""
        return (
            self.place is None
            and (tensor.buffer, tensor.dtype, tensor.shape) == (self.region, self.dtype, self.shape)
            and (tensor.storage.shape, tensor.storage.name) == (self.shape, "")
        )

    def adopt(self, at: tuple[int, ...], tensor: NkiTensor) -> None:
        """Let a fresh buffer be the tile of a block index, which does not exist yet."""
        name = self._named(at)
        if name:
            buffer = replace(tensor.storage, name=name)
            self.trace.builder.buffers[buffer.id] = buffer
            tensor = NkiTensor.whole(self.trace, buffer)
        self.trace.results.discard(tensor.storage.id)
        self.tiles[at] = tensor

    def _named(self, at: tuple[int, ...]) -> str:
        return f"{self.name}[{', '.join(map(str, at))}]" if self.name and at else self.name


def sizes(shape: Any, on_chip: bool, what: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The block dimensions and the shape of a tile, on chip; of any other tensor all belongs to the shape."""
    items = tuple(shape) if isinstance(shape, list | tuple) else (shape,)
    for item in items:
        if isinstance(item, bool) or not isinstance(item, int | np.integer):
            raise Refusal(
                f"{what}: shape holds a {type(item).__name__}, expected integers known while tracing"
            )
        if item < 1:
            raise Refusal(f"{what}: shape {tuple(map(int, items))} has a dimension below 1")
    marked = [at for at, item in enumerate(items) if isinstance(item, ParDim)]
    if len(marked) > 1:
        raise Refusal(
            f"{what}: nl.par_dim marks {len(marked)} dimensions, a tensor has one partition dimension"
        )
    numbers = tuple(int(item) for item in items)
    if not on_chip or not marked:
        return (), numbers
    return numbers[: marked[0]], numbers[marked[0] :]
