"""Where the wrong elements lie: one box, every n-th, a diagonal, a triangle."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from nkireview.numerics.patterns.mismatch import Ints, Mismatch
from nkireview.numerics.patterns.names import Name, Pattern
from nkireview.numerics.patterns.trial import SURPRISE, unlikely
from nkireview.numerics.patterns.words import lines_along, numbered, of_wrong, ordinal, singular, span

# A place must hold this share of the wrong elements, and be wrong in this share of itself.
HELD = 0.99
DENSE = 0.1
# Of the largest count of a line, what a line inside the place holds at least.
EDGE = 0.25
# A box is much smaller than the whole up to the first; up to the second where it is wrong all over.
SMALL, CLEAR = 0.5, 0.8
FULL = 0.9
# A place this much less filled than another says less.
EMPTIER = 0.75
PARTITIONS, COLUMNS = 128, 512
# Periods are searched on so many indices.
WINDOW = 1 << 16
LONG_PERIODS = tuple(2**power for power in range(7, 16))
SHORT_PERIODS = 64
REPEATS = 3
COVERED = 0.75


@dataclass(frozen=True)
class _Place:
    """A place, and the share of its elements that are wrong."""

    density: float
    pattern: Pattern


def places(found: Mismatch) -> list[Pattern]:
    """The places that hold nearly all wrong elements, the most filled first; empty where they lie all over."""
    if found.count >= HELD * found.size:
        return []
    counts = {axis: _counts(found, axis) for axis in found.axes}
    candidates = [_region(found, counts), _every_nth(found, counts), _offsets_place(found)]
    if not any(candidates):
        candidates = [_every_nth_flat(found)]
    held = sorted((place for place in candidates if place), key=lambda place: -round(place.density, 2))
    return [place.pattern for place in held if place.density >= EMPTIER * held[0].density]


def _counts(found: Mismatch, axis: int) -> Ints:
    """Wrong elements at each index of an axis."""
    stride, size = found.strides[axis], found.shape[axis]
    blocks = found.wrong.reshape(-1, size, stride)
    if stride == 1:
        return np.asarray(blocks[:, :, 0].sum(axis=0, dtype=np.intp))
    return np.asarray(np.count_nonzero(blocks, axis=2).sum(axis=0), dtype=np.intp)


def _region(found: Mismatch, counts: dict[int, Ints]) -> _Place | None:
    tight = {axis: _ends(np.flatnonzero(count >= EDGE * count.max())) for axis, count in counts.items()}
    whole = {axis: _ends(np.flatnonzero(count)) for axis, count in counts.items()}
    boxes = [_box(found, counts, box) for box in (tight, whole)]
    return max((box for box in boxes if box), key=lambda box: box.density, default=None)


def _ends(indices: Ints) -> tuple[int, int]:
    return int(indices[0]), int(indices[-1]) + 1


def _box(found: Mismatch, counts: dict[int, Ints], box: dict[int, tuple[int, int]]) -> _Place | None:
    slices = tuple(slice(*box[axis]) if axis in box else slice(None) for axis in range(len(found.shape)))
    volume = math.prod(stop - start for start, stop in box.values())
    inside = int(np.count_nonzero(found.wrong.reshape(found.shape)[slices]))
    held, density, share = inside / found.count, inside / volume, volume / found.size
    if held < HELD or density < DENSE or share > (CLEAR if density >= FULL else SMALL):
        return None
    tries = math.prod(found.shape[axis] ** 2 / 2 for axis in box)
    if not unlikely(share, inside, tries):
        return None
    sides: list[str] = []
    figure: dict[str, int | float | str] = {}
    for axis, (start, stop) in box.items():
        if stop - start < found.shape[axis]:
            hit = int(np.count_nonzero(counts[axis][start:stop]))
            some = f", {hit} of these {stop - start}" if hit <= COVERED * (stop - start) else ""
            sides.append(_side(found, axis, start, stop) + some)
            figure |= {f"start_{axis}": start, f"stop_{axis}": stop}
    if len(sides) == 1:
        axis = next(axis for axis, (start, stop) in box.items() if stop - start < found.shape[axis])
        figure |= {"axis": axis, "start": box[axis][0], "stop": box[axis][1]}
    place = ", ".join(sides)
    verb = "lies" if found.count == 1 else "lie"
    sentence = f"{of_wrong(found, held)} {verb} in {place}"
    ends = (f"{s.start}:{s.stop}" if s.start is not None else ":" for s in slices)
    figure |= {"box": f"[{', '.join(ends)}]", "place": place, "density": density}
    return _Place(density, Pattern(Name.REGION, sentence, held, figure))


def _side(found: Mismatch, axis: int, start: int, stop: int) -> str:
    """One side of a box in words: the tile, tail or quarter that it is."""
    size, lines = found.shape[axis], lines_along(found, axis)
    tail = start and stop == size and stop - start > 1
    plain = "the tail " + numbered(lines, f"from {start} on") if tail else span(lines, start, stop)
    tile = COLUMNS if axis == found.axes[-1] and len(found.axes) > 1 else PARTITIONS
    kind = "column block" if tile == COLUMNS else "partition block" if lines == "rows" else "block"
    part = _parts(start, stop, size, tile)
    if part and size > tile:
        blocks = f"{kind} {part[0]}" if part[1] - part[0] == 1 else f"{kind}s {part[0]} to {part[1] - 1}"
        return f"{plain} ({blocks} of {tile} {lines})"
    fraction = _fraction(start, stop, size, lines)
    return f"{plain} ({fraction})" if fraction else plain


def _parts(start: int, stop: int, size: int, tile: int) -> tuple[int, int] | None:
    """The tiles from the first to the last that a side consists of; None where it cuts one."""
    if start % tile or (stop % tile and stop != size):
        return None
    return start // tile, -(-stop // tile)


def _fraction(start: int, stop: int, size: int, lines: str) -> str | None:
    """``the second quarter of the rows``, where a side is a half or a quarter."""
    for parts, names in ((2, ("first half", "last half")), (4, ("first", "second", "third", "last"))):
        if (
            size % parts == 0
            and size // parts > 1
            and stop - start == size // parts
            and start % (size // parts) == 0
        ):
            name = names[start // (size // parts)]
            return f"the {name if parts == 2 else f'{name} quarter'} of the {lines}"
    return None


def _every_nth(found: Mismatch, counts: dict[int, Ints]) -> _Place | None:
    """A period along an axis, the last axis first."""
    tries = (_periodic(found, axis, count) for axis, count in reversed(counts.items()))
    return next((place for place in tries if place), None)


def _every_nth_flat(found: Mismatch) -> _Place | None:
    """A period along the flattened output."""
    if len(found.axes) < 2:
        return None
    place = _periodic(found, None, found.wrong.view(np.int8))
    return place if place and place.pattern.figure["width"] == 1 else None


def _periodic(
    found: Mismatch, axis: int | None, count: np.ndarray[tuple[int, ...], np.dtype[np.signedinteger]]
) -> _Place | None:
    first, last = _ends(np.flatnonzero(count))
    shown = count[first : min(last, first + WINDOW)].astype(np.intp)
    hit = shown > 0
    if shown.size < 2 * REPEATS - 1 or np.count_nonzero(hit) > COVERED * hit.size:
        return None
    longest = shown.size // (REPEATS - 1) + 1
    periods = sorted({*range(2, SHORT_PERIODS + 1), *LONG_PERIODS, *_divisors(count.size)})
    for period in periods:
        if period > longest:
            break
        window = _window(shown, hit, period)
        if window is None:
            continue
        start, width = window
        phase = (first + start) % period
        index = np.arange(count.size)
        inside = (index - phase) % period < width
        held = float(count[inside].sum(dtype=np.intp)) / found.count
        if held < HELD:
            continue
        reach = np.count_nonzero(inside[first:last]) * (found.size // count.size)
        density = float(held * found.count / reach)
        if density < DENSE:
            continue
        return _Place(density, _periodic_pattern(found, axis, period, phase, width, held, density))
    return None


def _divisors(size: int) -> set[int]:
    return {size // parts for parts in range(3, 17) if size % parts == 0 and size // parts > 1}


def _window(
    shown: Ints, hit: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], period: int
) -> tuple[int, int] | None:
    """Start and width of the residues of ``period`` that hold the wrong elements; None where it has none."""
    short = -shown.size % period
    folded = np.pad(shown, (0, short)).reshape(-1, period).sum(axis=0)
    dense = folded >= EDGE * folded.max()
    width = int(np.count_nonzero(dense))
    starts = np.flatnonzero(dense & ~np.roll(dense, 1))
    if starts.size != 1 or width > period // 2 or folded[dense].sum() < HELD * folded.sum():
        return None
    start = int(starts[0])
    inside = (np.arange(shown.size) - start) % period < width
    covered = np.count_nonzero(hit[inside]) / np.count_nonzero(inside)
    repeats = np.unique((np.flatnonzero(hit & inside) - start) // period).size
    if covered < COVERED or repeats < REPEATS:
        return None
    hits = int(np.count_nonzero(hit & inside))
    chance = _log_choose(int(np.count_nonzero(inside)), hits) - _log_choose(hit.size, hits)
    return (start, width) if chance + math.log(period * width) < math.log(10 * SURPRISE) else None


def _log_choose(count: int, chosen: int) -> float:
    return math.lgamma(count + 1) - math.lgamma(chosen + 1) - math.lgamma(count - chosen + 1)


def _periodic_pattern(
    found: Mismatch, axis: int | None, period: int, phase: int, width: int, held: float, density: float
) -> Pattern:
    lines = lines_along(found, axis)
    subject, verb = of_wrong(found, held), "lies" if found.count == 1 else "lie"
    if width == 1:
        place = f"every {ordinal(period)} {singular(lines)}, from {phase} on"
    else:
        place = f"{width} of every {period} {lines}, from {phase} on"
    return Pattern(
        Name.EVERY_NTH,
        f"{subject} {verb} in {place}",
        held,
        {
            "axis": "flat" if axis is None else axis,
            "period": period,
            "phase": phase,
            "width": width,
            "density": density,
        },
    )


def _offsets_place(found: Mismatch) -> _Place | None:
    """A diagonal or a triangle of the last two axes: wrong elements by ``column - row``."""
    if len(found.axes) < 2:
        return None
    rows, columns = found.shape[found.axes[-2]], found.shape[found.axes[-1]]
    if min(rows, columns) < 3:
        return None
    matrix = found.wrong.reshape(-1, rows, columns)
    sums, lengths = _diagonals(matrix.sum(axis=0, dtype=np.int32)), _lengths(rows, columns) * matrix.shape[0]
    run = _run(sums, lengths)
    if run is None:
        return None
    low, high = run
    inside, area = int(sums[low : high + 1].sum()), int(lengths[low : high + 1].sum())
    held, density, share = inside / found.count, inside / area, area / found.size
    at_low, at_high = low == 0, high == sums.size - 1
    if held < HELD or density < DENSE or (at_low and at_high):
        return None
    if share > CLEAR or not unlikely(share, inside, sums.size**2 / 2):
        return None
    first, last = low - (rows - 1), high - (rows - 1)
    if at_low or at_high:
        return _Place(
            density,
            _triangle(found, "above" if at_high else "below", first if at_high else last, held, density),
        )
    if last - first >= max(1, min(rows, columns) // 4) or np.count_nonzero(matrix.any(axis=(0, 2))) < REPEATS:
        return None
    subject, verb = of_wrong(found, held), "lies" if found.count == 1 else "lie"
    which = (
        f"diagonal {_diagonal(first)}"
        if first == last
        else f"diagonals {_diagonal(first)} to {_diagonal(last)}"
    )
    figure = {"start": first, "stop": last + 1, "density": density}
    return _Place(density, Pattern(Name.DIAGONAL, f"{subject} {verb} on the {which}", held, figure))


def _triangle(found: Mismatch, side: str, offset: int, held: float, density: float) -> Pattern:
    border = offset - 1 if side == "above" else offset + 1
    subject, verb = of_wrong(found, held), "lies" if found.count == 1 else "lie"
    diagonal = "the diagonal" if border == 0 else f"the diagonal {_diagonal(border)}"
    return Pattern(
        Name.TRIANGLE,
        f"{subject} {verb} {side} {diagonal}",
        held,
        {"side": side, "offset": offset, "density": density},
    )


def _diagonal(offset: int) -> str:
    if offset == 0:
        return "(i, i)"
    return f"(i, i {'+' if offset > 0 else '-'} {abs(offset)})"


def _diagonals(counts: np.ndarray[tuple[int, ...], np.dtype[np.int32]]) -> Ints:
    """Sums over each diagonal of a matrix, from the lower left to the upper right corner."""
    rows, columns = counts.shape
    sums = np.zeros(rows + columns - 1, dtype=np.intp)
    if rows <= columns:
        for row in range(rows):
            start = rows - 1 - row
            sums[start : start + columns] += counts[row]
    else:
        for column in range(columns):
            sums[column : column + rows] += counts[::-1, column]
    return sums


def _lengths(rows: int, columns: int) -> Ints:
    offset = np.arange(-(rows - 1), columns)
    return np.asarray(np.minimum(rows, columns - offset) - np.maximum(0, -offset), dtype=np.intp)


def _run(sums: Ints, lengths: Ints) -> tuple[int, int] | None:
    """First and last of the neighbouring diagonals that are filled; short ones go with their neighbours."""
    filled = sums / lengths
    typical = float(np.dot(sums, filled) / sums.sum())
    long = lengths >= min(8, int(lengths.max()) // 2)
    dense = np.flatnonzero(long & (filled >= 0.5 * typical))
    if not dense.size:
        return None
    pieces = np.split(dense, np.flatnonzero(np.diff(dense) > 2) + 1)
    piece = max(pieces, key=lambda one: int(sums[one].sum()))
    low, high = int(piece[0]), int(piece[-1])
    ends = np.flatnonzero(long)
    return (0 if low <= ends[0] + 1 else low), (sums.size - 1 if high >= ends[-1] - 1 else high)
