"""Figures: the values of a reference's steps, searched for those of a tile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
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
PLACES = 16
"""Places of one value in a figure that are tried."""


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
    """What a tile is of the reference's: a figure's elements, some of them, something else, or too little to tell."""

    kind: Literal["known", "part", "off", "neutral"]
    figure: int = -1
    place: Place | None = None


NEUTRAL = Sight("neutral")


class Figure:
    """The magnitudes of an observation's values, sorted."""

    def __init__(self, number: int, observation: Observation, tolerance: float) -> None:
        self.number, self.observation, self._tolerance = number, observation, tolerance
        self.values: Float64 = np.asarray(observation.values, np.float64)
        size = np.abs(self.values.reshape(-1))
        self._order = np.argsort(size, kind="stable")
        self._sizes = size[self._order]

    @property
    def given(self) -> bool:
        """True for an argument of the reference."""
        return self.observation.name == INPUT

    @cached_property
    def telling(self) -> bool:
        """True where it has enough values to be recognised by."""
        return various(self.values)

    @cached_property
    def zeros(self) -> bool:
        """True where some of its values are zero or not finite."""
        return bool(self._sizes[0] == 0 or not np.isfinite(self._sizes[-1]))

    def has(self, values: Float64) -> Bools:
        """For each value whether the figure has one of its magnitude."""
        low, high = self._ranges(values)
        return np.asarray(high > low)

    def place(self, tile: Float64) -> Place | None:
        """Where the elements of a tile [rows, columns] lie, where that is one step to each next row and column."""
        rows, columns = tile.shape
        corners = tile[[0, min(1, rows - 1), 0], [0, 0, min(1, columns - 1)]]
        found = [self._at(value) for value in corners]
        some = np.ix_(_spread(rows), _spread(columns))
        wanted, size = np.abs(tile[some]), self.values.size
        flat = np.abs(self.values.reshape(-1))
        for first, below, beside in product(*found):
            place = Place(first, below - first if rows > 1 else 0, beside - first if columns > 1 else 0)
            at = place.of(rows, columns)[some]
            if at.min() < 0 or at.max() >= size:
                continue
            with np.errstate(invalid="ignore"):
                if (np.abs(flat[at] - wanted) <= self._tolerance * wanted).all():
                    return place
        return None

    def _ranges(self, values: Float64) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        size = np.abs(values)
        low = np.searchsorted(self._sizes, size * (1 - self._tolerance), "left")
        return low, np.searchsorted(self._sizes, size * (1 + self._tolerance), "right")

    def _at(self, value: np.float64) -> list[int]:
        low, high = self._ranges(np.array([value]))
        return sorted(self._order[low[0] : high[0]][:PLACES].tolist())


class Figures:
    """All figures of a reference that can be recognised."""

    def __init__(self, observed: Sequence[Observation], tolerance: float) -> None:
        every = (Figure(number, each, tolerance) for number, each in _distinct(observed))
        self.all = tuple(figure for figure in every if figure.telling)
        self._by_number = {figure.number: figure for figure in self.all}

    def __getitem__(self, number: int) -> Figure:
        return self._by_number[number]

    def seen(self, tile: Float64) -> Sight:
        """What a tile [rows, columns] is."""
        every = tile[np.ix_(_spread(tile.shape[0]), _spread(tile.shape[1]))].reshape(-1)
        picks = every[np.isfinite(every) & (every != 0)]
        if not various(picks):
            return NEUTRAL
        best, most = -1, PART
        with np.errstate(divide="ignore", over="ignore"):
            inverse = 1 / picks
        for figure in self.all:
            share = float(figure.has(picks).mean())
            if share >= KNOWN:
                if len(picks) < len(every) and not figure.zeros:
                    best, most = figure.number, 1.0
                    continue
                return Sight("known", figure.number, figure.place(tile))
            if float(figure.has(inverse).mean()) >= KNOWN:
                return Sight("known", figure.number)
            if share > most:
                best, most = figure.number, share
        return Sight("off") if best < 0 else Sight("part", best)


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
        if whole.shape[1] % columns or whole.shape[0] < rows:
            continue
        down = range(0, whole.shape[0], rows)
        beside = range(0, whole.shape[1], columns)
        cut = {(r, c): whole[r : r + rows, c : c + columns] for r in down for c in beside}
        yield list(cut.values())
        if len(down) > 1 and len(beside) > 1:
            yield [cut[r, c] for c in beside for r in down]


def _spread(length: int) -> NDArray[np.int64]:
    """At most `PICKS` places, the first and the last among them."""
    return np.unique(np.linspace(0, length - 1, min(length, PICKS)).round().astype(np.int64))
