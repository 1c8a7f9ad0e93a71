"""Changes: the smallest one by which a memory that holds too much would fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from nkireview.program.interning import Ints
from nkireview.program.placement import row_bytes
from nkireview.program.program import Program

LOOKED_AT = 64
"""Groups of tiles that are looked at, the largest first."""


@dataclass(frozen=True)
class Change:
    """A change to the tiles made at one line, `tiles` of which, of `bytes` a partition each, are alive at once.

    `kind`: "fewer": no more than `keep` of them may be alive at once; "narrower": bfloat16 instead of float32;
    "shorter": each by `cut` bytes a partition. `name` is empty where the kernel gave none.
    """

    kind: Literal["fewer", "narrower", "shorter"]
    place: str
    name: str
    bytes: int
    partitions: int
    tiles: int
    keep: int
    cut: int = 0


@dataclass(frozen=True, eq=False)
class Stretches:
    """What lives from `begin` up to `end`, `weight` quarters of a byte a partition, as `buffer`."""

    begin: Ints
    end: Ints
    weight: Ints
    buffer: Ints

    def over(self, at: Ints, rows: Ints, weight: Ints) -> Ints:
        """The sum of the weights of some rows that are alive at each position."""
        starts, stops = np.argsort(self.begin[rows]), np.argsort(self.end[rows])
        begun = np.append(0, np.cumsum(weight[starts]))
        ended = np.append(0, np.cumsum(weight[stops]))
        before = np.searchsorted(self.begin[rows][starts], at, side="right")
        after = np.searchsorted(self.end[rows][stops], at, side="right")
        found: Ints = begun[before] - ended[after]
        return found


def smallest(program: Program, held: Stretches, usable: int, *, narrower: bool) -> Change | None:
    """The change to tiles made at one line that suffices at every moment, None where there is none.

    Fewer tiles at once if that suffices, with the fewest bytes given up; else, where `narrower` allows it, half the
    bytes of float32 tiles; else shorter tiles.
    """
    at = np.unique(held.begin)
    rows = np.arange(len(held.begin))
    excess = held.over(at, rows, held.weight) - 4 * usable
    at, excess = at[excess > 0], excess[excess > 0]
    if not len(at):
        return None
    groups = [_Group.of(program, held, at, mine) for mine in _groups(program, held)]
    found = [
        (given, change) for group in groups for given, change in group.changes(excess, narrower=narrower)
    ]
    order = ("fewer", "narrower", "shorter")
    return min(found, key=lambda each: (order.index(each[1].kind), each[0]), default=(0, None))[1]


def _groups(program: Program, held: Stretches) -> Iterator[Ints]:
    """Rows made at one line with one size and dtype, those with most bytes first."""
    columns = program.columns
    places, of_place = np.unique(columns.buffer_place[held.buffer], return_inverse=True)
    lines: dict[str, int] = {}
    line = np.array([lines.setdefault(program.place_text(at), len(lines)) for at in places.tolist()])
    keys = np.stack(
        [
            line[of_place.reshape(-1)],
            columns.buffer_dtype[held.buffer].astype(np.int64),
            held.weight,
        ]
    )
    _, of = np.unique(keys, axis=1, return_inverse=True)
    of = of.reshape(-1)
    order = np.argsort(of, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(of[order])) + 1)
    yield from sorted(parts, key=lambda mine: -int(held.weight[mine].sum()))[:LOOKED_AT]


@dataclass(frozen=True, eq=False)
class _Group:
    """Tiles that are alike, and how many of them are alive at each moment that is too full."""

    change: Change  # as if it were "fewer", with all of them kept
    weight: int
    float32: bool
    alive: Ints

    @classmethod
    def of(cls, program: Program, held: Stretches, at: Ints, mine: Ints) -> _Group:
        buffer = program.buffer(int(held.buffer[mine[0]]))
        weight = int(held.weight[mine[0]])
        everywhere = held.over(np.unique(held.begin[mine]), mine, np.ones(len(mine), np.int64))
        most = int(everywhere.max())
        # bytes as the tile itself takes them, not as its neighbours share them
        size = row_bytes(buffer)
        partitions = buffer.shape[0] if buffer.shape else 1
        named = len({int(program.columns.buffer_name[each]) for each in held.buffer[mine].tolist()}) == 1
        change = Change(
            "fewer",
            program.place_text(buffer.place),
            buffer.name if named else "",
            size,
            partitions,
            most,
            most,
        )
        alive = held.over(at, mine, np.ones(len(mine), np.int64))
        return cls(change, weight, buffer.dtype == "float32", alive)

    def changes(self, excess: Ints, *, narrower: bool) -> Iterator[tuple[int, Change]]:
        """The changes that suffice, and the quarters of bytes that each gives up."""
        weight, alive, tiles = self.weight, self.alive, self.change.tiles
        if not weight or alive.min() < 1:
            return
        keep = int((alive - -(-excess // weight)).min())
        if keep >= 1:
            yield (tiles - keep) * weight, replace(self.change, keep=keep)
        if narrower and self.float32 and np.all(alive * weight >= 2 * excess):
            yield tiles * weight // 2, replace(self.change, kind="narrower")
        each = int((-(-excess // alive)).max())
        if each < weight:
            cut = -(-each * self.change.bytes // weight)
            yield each * tiles, replace(self.change, kind="shorter", cut=cut)
