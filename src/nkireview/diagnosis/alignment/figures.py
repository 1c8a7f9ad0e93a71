"""Figures: the values of a reference's steps, searched for those of a tile."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from nkireview.observed import INPUT, Observation

Float64 = NDArray[np.float64]
Bools = NDArray[np.bool_]

PICKS = 8
"""Rows, and columns, of a tile that are searched for."""
FEW = 4
"""Sizes that a tile or a figure must have to say anything."""
KNOWN, PART = 0.97, 0.3
"""Share of a tile's picks that a figure must have for the tile to be of it, and for some of the tile to be."""
SCALED, MOSTLY = 1e-9, 0.9
"""Relative difference of a tile's elements from a figure's times a number, and the share of them that must be so."""
COLUMNS = 4
"""Columns of a tile that are looked at one by one."""
PLACES, ANCHORS = 256, 3
"""Places of one value in a figure that are tried, and values of a tile for which they are."""
DISTINCT = 0.5
"""Share of a figure's values that must be different for other arrays not to have them by chance."""


@dataclass(frozen=True)
class Place:
    """Where a tile's elements lie in a figure, flat: the first, and the steps to the next row and column."""

    first: int
    row: int
    column: int

    def of(self, rows: int, columns: int) -> NDArray[np.int64]:
        """The position of each element, [rows, columns]."""
        down = self.first + self.row * np.arange(rows, dtype=np.int64)
        return down[:, None] + self.column * np.arange(columns, dtype=np.int64)


@dataclass(frozen=True)
class Sight:
    """What a tile is of the reference's: a figure's elements, some of them, something else, or too little to tell.

    factor: what the figure's elements are multiplied with. inverse: it is one over them.
    """

    kind: Literal["known", "part", "off", "neutral"]
    figure: int = -1
    place: Place | None = None
    factor: float = 1.0
    inverse: bool = False


NEUTRAL = Sight("neutral")


class Figure:
    """The magnitudes of an observation's values, sorted."""

    def __init__(self, number: int, observation: Observation, tolerance: float) -> None:
        self.number, self.observation, self._tolerance = number, observation, tolerance
        self.values: Float64 = np.asarray(observation.values, np.float64)
        self._flat = np.abs(self.values.reshape(-1))
        self._order = np.argsort(self._flat, kind="stable")
        self._sizes = self._flat[self._order]

    @property
    def given(self) -> bool:
        """True for an argument of the reference."""
        return self.observation.name == INPUT

    @cached_property
    def telling(self) -> bool:
        """True where it has enough values to be recognised by."""
        return various(self.values)

    @cached_property
    def coarse(self) -> bool:
        """True where many of its values are equal, so that other arrays have them too."""
        return int(np.count_nonzero(self._sizes[1:] != self._sizes[:-1])) < DISTINCT * self._sizes.size

    @cached_property
    def zeros(self) -> bool:
        """True where some of its values are zero or not finite."""
        return bool(self._sizes[0] == 0 or not np.isfinite(self._sizes[-1]))

    def has(self, values: Float64) -> Bools:
        """For each value whether the figure has one of its magnitude."""
        low, high = self._ranges(values)
        return np.asarray(high > low)

    def agrees(self, tile: Float64, place: Place) -> Bools:
        """For each element of a tile [rows, columns] whether it is that of the figure in its place."""
        at = place.of(*tile.shape)
        inside = (at >= 0) & (at < self._flat.size)
        return inside & self._same(np.abs(tile), self._flat[np.where(inside, at, 0)])

    def place(self, tile: Float64) -> tuple[Place | None, float]:
        """Where most of a tile's elements lie, by one step to each next row and column, and the share that does."""
        down, beside = _spread(tile.shape[0]), _spread(tile.shape[1])
        rows, columns = (each.reshape(-1) for each in np.meshgrid(down, beside, indexing="ij"))
        wanted = np.abs(tile[rows, columns])
        best: tuple[Place | None, float] = (None, 0.0)
        steps = self._steps(tile)
        for anchor, found in self._anchors(wanted):
            for row, column in steps:
                first = found - rows[anchor] * row - columns[anchor] * column
                at = first[:, None] + (rows * row + columns * column)
                inside = (at >= 0) & (at < self._flat.size)
                same = inside & self._same(wanted, self._flat[np.where(inside, at, 0)])
                counts = np.count_nonzero(same, axis=1)
                most = int(counts.argmax())
                share = float(counts[most]) / len(wanted)
                if share > best[1]:
                    best = Place(int(first[most]), row, column), share
                if best[1] >= KNOWN:
                    return best
        return best

    def _anchors(self, wanted: Float64) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """The picks that the figure has least often, and where it has them."""
        low, high = self._ranges(wanted)
        counts = high - low
        counts[(wanted == 0) | ~np.isfinite(wanted)] = 0
        order = np.argsort(np.where(counts > 0, counts, self._flat.size + 1), kind="stable")[:ANCHORS]
        for anchor in order.tolist():
            if 0 < counts[anchor] <= PLACES:
                yield anchor, self._order[low[anchor] : high[anchor]].astype(np.int64)

    def _steps(self, tile: Float64) -> list[tuple[int, int]]:
        """Steps from row to row and from column to column: those of its first elements, and those of usual views."""
        shape = tile.shape
        sizes = [1]
        for length in reversed(self.values.shape[1:]):
            sizes.append(sizes[-1] * length)
        along = list(dict.fromkeys([*sizes, *(2 * size for size in sizes), *(-size for size in sizes)]))
        rows = [0] if shape[0] == 1 else [*self._apart(tile[0, 0], tile[1, 0]), *along, 0]
        columns = [0] if shape[1] == 1 else [*self._apart(tile[0, 0], tile[0, 1]), *along]
        return [(row, column) for column in columns for row in rows if row != column or 0 in (row, column)]

    def _apart(self, one: float, other: float) -> Iterator[int]:
        """How far apart two values lie that the figure has only a few times."""
        low, high = self._ranges(np.array([one, other]))
        if one and other and max(high - low) <= FEW:
            here, there = (self._order[low[at] : high[at]].tolist() for at in (0, 1))
            yield from (end - start for start in here for end in there)

    def _same(self, wanted: Float64, held: Float64) -> Bools:
        with np.errstate(invalid="ignore"):
            return np.asarray((wanted == held) | (np.abs(held - wanted) <= self._tolerance * wanted))

    def _ranges(self, values: Float64) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        size = np.abs(values)
        low = np.searchsorted(self._sizes, size * (1 - self._tolerance), "left")
        return low, np.searchsorted(self._sizes, size * (1 + self._tolerance), "right")


class Figures:
    """All figures of a reference that can be recognised."""

    def __init__(self, observed: Sequence[Observation], tolerance: float) -> None:
        every = (Figure(number, each, tolerance) for number, each in _distinct(observed))
        self.all = tuple(figure for figure in every if figure.telling)
        self._by_number = {figure.number: figure for figure in self.all}
        self._met: dict[tuple[tuple[int, ...], bytes], Sight] = {}

    def __getitem__(self, number: int) -> Figure:
        return self._by_number[number]

    def get(self, number: int) -> Figure | None:
        """The figure of an observation; None where that cannot be recognised."""
        return self._by_number.get(number)

    def seen(self, tile: Float64) -> Sight:
        """What a tile [rows, columns] is; tiles of the same picks are the same."""
        every = tile[np.ix_(_spread(tile.shape[0]), _spread(tile.shape[1]))].reshape(-1)
        key = tile.shape, every.tobytes()
        if key not in self._met:
            self._met[key] = self._look(tile, every)
        return self._met[key]

    def _look(self, tile: Float64, every: Float64) -> Sight:
        picks = every[np.isfinite(every) & (every != 0)]
        if not various(picks):
            return NEUTRAL
        with np.errstate(divide="ignore", over="ignore"):
            inverse = 1 / picks
        best, most, unsure = Sight("off"), PART, False
        for figure in self.all:
            share = float(figure.has(picks).mean())
            if share > PART:
                place, placed = figure.place(tile)
                if placed >= KNOWN:
                    return Sight("known", figure.number, place)
                whole = share >= KNOWN and (len(picks) == len(every) or figure.zeros)
                if whole and not figure.coarse:
                    return Sight("known", figure.number)
                if placed > most:
                    best, most = Sight("part", figure.number, place), placed
                elif share > most and not figure.coarse:
                    best, most = Sight("part", figure.number), share
                unsure = unsure or (whole and figure.coarse)
            if not figure.coarse and float(figure.has(inverse).mean()) >= KNOWN:
                with np.errstate(divide="ignore", over="ignore"):
                    place, placed = figure.place(1 / tile)
                return Sight("known", figure.number, place if placed >= KNOWN else None, inverse=True)
        return NEUTRAL if unsure and best.kind == "off" else best

    def columns(self, tile: Float64) -> Sight:
        """What a tile is each of whose few columns may be of another figure, as those of statistics are."""
        whole = self.seen(tile)
        if whole.kind in ("off", "part") and 1 < tile.shape[1] <= COLUMNS:
            each = [self.seen(tile[:, at : at + 1]) for at in range(tile.shape[1])]
            if all(sight.kind == "known" for sight in each):
                return Sight("known", each[-1].figure)
        return whole

    def scaled(self, tile: Float64, reads: Iterable[tuple[Sight, int]]) -> Sight | None:
        """What a tile is where most of it is a figure times one number, in the place of what was read for it.

        reads: what tiles are, and their columns.
        """
        for sight, columns in reads:
            for figure in self.all:
                at = self.position(sight, columns, figure, tile.shape)
                if at is None:
                    continue
                like = figure.values.reshape(-1)[at]
                some = (like != 0) & np.isfinite(like)
                with np.errstate(over="ignore"):
                    ratio = tile[some] / like[some]
                if ratio.size < FEW:
                    continue
                factor = float(np.median(ratio))
                same = np.where(some, np.abs(tile - factor * like) <= SCALED * np.abs(tile), tile == like)
                if factor and same.mean() >= MOSTLY:
                    kind: Literal["known", "part"] = "known" if same.all() else "part"
                    return Sight(kind, figure.number, _place(at), factor)
        return None

    def position(
        self, sight: Sight, columns: int, figure: Figure, shape: tuple[int, ...]
    ) -> NDArray[np.int64] | None:
        """Where a figure has what belongs to the elements of a tile: those read, or the groups that they are in."""
        if sight.place is None or sight.figure < 0:
            return None
        like = self[sight.figure].values
        group = like.shape[-1] if like.ndim else 1
        at = sight.place.of(shape[0], columns)
        if figure.values.shape == like.shape:
            if columns != shape[1]:
                return None
        elif figure.values.size * group == like.size and shape[1] * group == columns:
            at = at[:, ::group] // group
        elif figure.values.size * group == like.size and shape[1] == 1:
            at = at[:, :1] // group
        else:
            return None
        return at if at.min() >= 0 and at.max() < figure.values.size else None


def _place(at: NDArray[np.int64]) -> Place:
    rows, columns = at.shape
    first = int(at[0, 0])
    return Place(first, int(at[1, 0]) - first if rows > 1 else 0, int(at[0, 1]) - first if columns > 1 else 0)


def _distinct(observed: Sequence[Observation]) -> Iterator[tuple[int, Observation]]:
    """The observations without those that have the values of an earlier one, with their numbers."""
    seen = set()
    for number, each in enumerate(observed):
        key = each.values.size, np.asarray(each.values, np.float64).tobytes()
        if each.values.size and key not in seen:
            seen.add(key)
            yield number, each


def various(values: Float64) -> bool:
    """True where values have `FEW` magnitudes besides zero."""
    size = np.abs(values[np.isfinite(values) & (values != 0)]).reshape(-1)[:4096]
    return len(np.unique(size)) >= FEW


def flat(values: Float64) -> Float64:
    """A tile as rows and columns."""
    return values.reshape(values.shape[0] if values.ndim else 1, -1)


def blocks(values: Float64, rows: int, columns: int) -> Iterator[list[Float64]]:
    """Ways to cut an array in tiles of that shape, in order: by rows or by columns first, as it is or transposed."""
    shown: list[Float64] = [values.reshape(-1, values.shape[-1]) if values.ndim else values.reshape(1, 1)]
    if values.ndim > 1:
        turned = np.swapaxes(values, -1, -2)
        shown.append(turned.reshape(-1, turned.shape[-1]))
    if columns == 1 and values.size and values.shape[-1] != 1:
        shown.append(values.reshape(-1, 1))
    if values.ndim == 1 and rows > 1:
        shown.append(np.broadcast_to(values, (rows, len(values))))
    for whole in shown:
        if whole.shape[1] < columns or whole.shape[0] < rows:
            continue
        down = range(0, whole.shape[0], rows)
        beside = range(0, whole.shape[1], columns)
        cut = {(r, c): whole[r : r + rows, c : c + columns] for r in down for c in beside}
        yield list(cut.values())
        if len(down) > 1 and len(beside) > 1:
            yield [cut[r, c] for c in beside for r in down]


@cache
def _spread(length: int) -> NDArray[np.int64]:
    """At most `PICKS` places, the first and the last among them."""
    return np.unique(np.linspace(0, length - 1, min(length, PICKS)).round().astype(np.int64))
