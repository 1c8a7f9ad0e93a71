"""Calls made by hand from tiles with places and device-side indices, judged as `verify` judges a recorded one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from execute_kit import row_major

from nkireview.hardware import target as hardware_of
from nkireview.isa import dtypes
from nkireview.isa.enums import DgeMode, Engine, Memory
from nkireview.isa.release import Release
from nkireview.isa.row import REQUIRED
from nkireview.isa.table import row
from nkireview.program.access import Access, Index
from nkireview.program.call import CallView, Tile
from nkireview.program.judge import judge
from nkireview.program.model import Buffer

INDEX_TILES = 1000


@dataclass(frozen=True)
class T:
    """A tile: where it begins in its buffer (or, `placed`, in its memory), and the kind of its index, if it has one."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    memory: Memory = Memory.sbuf
    start: int = 0
    first_byte: int = 0
    placed: bool = False
    index: str = ""
    index_axis: int = 0
    by: T | None = None  # the index tile

    def tile(self, number: int) -> Tile:
        """The tile as a call holds it."""
        width = dtypes.BY_NAME[self.dtype].bits // 8
        free = math.prod(self.shape[1:])
        skipped = self.first_byte // width
        chip = self.memory.on_chip
        address = (self.start, self.first_byte) if self.placed else None
        base, shape = 0, self.shape
        pattern = row_major(self.shape)
        if chip and not self.placed:
            held = free + skipped
            shape, base = (self.start + self.shape[0], held), self.start * held + skipped
            pattern = ((held, self.shape[0]), *pattern[1:])
        source = 0 if self.index == "register" else number + INDEX_TILES
        index = Index(self.index, source, self.index_axis, 1) if self.index else None
        buffer = Buffer(number, self.memory, shape, self.dtype, address)
        return Tile(Access(number, self.dtype, base, pattern, 0 if chip else None, index=index), buffer)


@dataclass(frozen=True)
class Made:
    """A call, from which cases depart by `changed`."""

    name: str
    tiles: Mapping[str, T]
    imms: Mapping[str, Any] = field(default_factory=dict)
    target: str = "trn2"
    nki: str = "0.6"
    engine: Engine = Engine.unknown
    dge: DgeMode = DgeMode.unknown
    lnc: int = 1

    def view(self) -> CallView:
        """The call as limits and costs see it; operands with equal index tiles have the same index."""
        release, found = Release.parse(self.nki), row(self.name)
        tiles: dict[str, Tile] = {}
        sources: dict[T, int] = {}
        for number, (name, made) in enumerate(self.tiles.items()):
            tile = made.tile(number)
            if made.by is not None and tile.access.index is not None:
                source = sources.setdefault(made.by, number + INDEX_TILES)
                index = replace(tile.access.index, source=source)
                tile = Tile(replace(tile.access, index=index), tile.buffer)
                tiles[f"{name}.index"] = made.by.tile(source)
            tiles[name] = tile
        defaults = {
            param.name: param.default.name if isinstance(param.default, Enum) else param.default
            for param in found.signature
            if param.name in found.immediates
            and param.default is not REQUIRED
            and param.name not in tiles
            and release in param.span
        }
        return CallView(
            *(
                found,
                hardware_of(self.target),
                release,
                tiles,
                {**defaults, **self.imms},
                self.engine,
                self.dge,
                self.lnc,
            )
        )

    def breaches(self) -> list[str]:
        """What is wrong with the call."""
        return [found.text for found in judge(self.view())]

    def numbers(self) -> set[int]:
        """The rules that the call breaks."""
        return {found.number for found in judge(self.view())}

    def changed(self, changes: Mapping[str, Any]) -> Made:
        """Other tiles (None: none), fields of tiles (``src.shape``), immediates or fields of the call."""
        tiles, imms, fields = dict(self.tiles), dict(self.imms), {}
        for key, value in changes.items():
            operand, dot, part = key.partition(".")
            if dot:
                tiles[operand] = replace(tiles[operand], **{part: value})
            elif isinstance(value, T):
                tiles[operand] = value
            elif key in ("target", "nki", "engine", "dge", "lnc"):
                fields[key] = value
            elif key in tiles:
                del tiles[key]
            else:
                imms[key] = value
        return replace(self, tiles=tiles, imms=imms, **fields)
