"""Calls of the Vector and Scalar rows made by hand, judged as `verify` judges a recorded one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from nkireview.hardware import target as hardware_of
from nkireview.isa.enums import Engine, Memory
from nkireview.isa.release import Release
from nkireview.isa.row import REQUIRED
from nkireview.isa.table import row
from nkireview.program.access import Access, Index
from nkireview.program.call import CallView, Tile
from nkireview.program.judge import judge
from nkireview.program.model import Buffer

SBUF, PSUM = Memory.sbuf, Memory.psum


@dataclass(frozen=True)
class T:
    """A tile: `start` is its first partition; `index` makes it a view by `indirect`."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    memory: Memory = SBUF
    start: int | None = None
    stride: int = 1
    index: T | None = None

    def tile(self, number: int) -> Tile:
        free = math.prod(self.shape[1:]) * self.stride
        address = None if self.start is None else (self.start, 0)
        buffer = Buffer(
            number, self.memory, (self.shape[0], free), self.dtype, name="", address=address, core=0
        )
        pattern = [(free, self.shape[0])]
        for axis in range(1, len(self.shape)):
            pattern.append((math.prod(self.shape[axis + 1 :]) * self.stride, self.shape[axis]))
        index = Index("snake", number + 100, 1, 1, group=16) if self.index else None
        return Tile(Access(number, self.dtype, 0, tuple(pattern), 0, index=index), buffer)


@dataclass(frozen=True)
class Base:
    """A legal call, from which cases depart."""

    name: str
    tiles: Mapping[str, T]
    imms: Mapping[str, Any]
    target: str = "trn2"
    nki: str = "0.6"
    engine: Engine = Engine.unknown

    def view(self) -> CallView:
        release, found = Release.parse(self.nki), row(self.name)
        tiles: dict[str, Tile] = {}
        for number, (name, tile) in enumerate(self.tiles.items()):
            tiles[name] = tile.tile(number)
            if tile.index:
                tiles[f"{name}.index"] = tile.index.tile(number + 100)
        imms = {
            param.name: param.default.name if isinstance(param.default, Enum) else param.default
            for param in found.signature
            if param.name in found.immediates
            and param.default is not REQUIRED
            and param.name not in tiles
            and release in param.span
        }
        given = {name: value for name, value in {**imms, **self.imms}.items() if value is not None}
        return CallView(found, hardware_of(self.target), release, tiles, given, self.engine)

    def sentences(self) -> list[str]:
        """What is wrong with the call."""
        return [found.text for found in judge(self.view())]

    def cycles(self) -> float:
        return row(self.name).cost.interval(self.view())

    def changed(self, changes: Mapping[str, Any]) -> Base:
        """Other tiles, fields of tiles (``data.shape``), immediates or call fields."""
        tiles, imms, fields = dict(self.tiles), dict(self.imms), {}
        for key, value in changes.items():
            operand, dot, part = key.partition(".")
            if dot:
                tiles[operand] = replace(tiles[operand], **{part: value})
            elif isinstance(value, T):
                tiles[operand] = value
                imms.pop(operand, None)
            elif key in ("target", "nki", "engine"):
                fields[key] = value
            else:
                tiles.pop(operand, None)
                imms[operand] = value
        return replace(self, tiles=tiles, imms=imms, **fields)


P = (128, 512)
COLUMN = (128, 1)


def _base(name: str, tiles: Mapping[str, T], target: str = "trn2", **imms: Any) -> Base:
    return Base(name, tiles, imms, target)


BASES: dict[str, Base] = {
    base.name: base
    for base in (
        _base("tensor_copy_predicated", {"dst": T(P), "src": T(P), "predicate": T(P, "uint8")}),
        _base(
            "range_select",
            {
                "dst": T(P),
                "on_true_tile": T(P),
                "bound0": T(COLUMN),
                "bound1": T(COLUMN),
                "reduce_res": T(COLUMN),
            },
            comp_op0="greater_equal",
            comp_op1="less",
        ),
        _base(
            "select_reduce",
            {
                "dst": T(P),
                "predicate": T(P, "uint8"),
                "on_true": T(P),
                "on_false": T(COLUMN),
                "reduce_res": T(COLUMN),
            },
            reduce_cmd="reset_reduce",
        ),
        _base(
            "tensor_scalar_reduce",
            {"dst": T(P), "data": T(P), "operand0": T(COLUMN), "reduce_res": T(COLUMN)},
            op0="multiply",
            reduce_op="add",
        ),
        _base(
            "tensor_scalar_cumulative",
            {"dst": T(P), "src": T(P), "imm0": T(COLUMN)},
            op0="multiply",
            op1="add",
        ),
        _base(
            "exponential",
            {"dst": T(P), "src": T(P), "max_value": T(COLUMN), "reduce_res": T(COLUMN)},
            target="trn3",
            reduce_cmd="reset_reduce",
        ),
        _base(
            "activate2",
            {"dst": T(P), "data": T(P), "imm0": T(COLUMN), "imm1": T(COLUMN), "reduce_res": T(COLUMN)},
            target="trn3",
            op="exp",
            op0="multiply",
            op1="add",
            reduce_op="add",
            reduce_cmd="reset_reduce",
        ),
        _base("max8", {"dst": T((128, 8)), "src": T(P)}),
        _base("nc_find_index8", {"dst": T((128, 8), "uint32"), "data": T(P), "vals": T((128, 8))}),
        _base(
            "nc_match_replace8",
            {"dst": T(P), "data": T(P), "vals": T((128, 8)), "dst_idx": T((128, 8), "uint32")},
            imm=0.0,
        ),
        _base("nc_stream_shuffle", {"dst": T(P), "src": T(P)}, shuffle_mask=tuple(range(32))),
        _base("tensor_tensor", {"dst": T(P), "data1": T(P), "data2": T(P)}, op="add"),
        _base("tensor_scalar", {"dst": T(P), "data": T(P)}, op0="multiply", operand0=2.0),
        _base("tensor_reduce", {"dst": T(COLUMN), "data": T(P)}, op="add", axis=1),
        _base("activation", {"dst": T(P), "data": T(P)}, op="exp"),
        _base(
            "activation_reduce",
            {"dst": T(P), "data": T(P), "reduce_res": T(COLUMN)},
            op="exp",
            reduce_op="add",
        ),
    )
}


def sentences(name: str, changes: Mapping[str, Any]) -> list[str]:
    """What is wrong with the base call of a row after these changes."""
    return BASES[name].changed(changes).sentences()
