"""Right values in the wrong place: axes swapped, values moved along an axis."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from nkireview.numerics.arrays import Float64, float64
from nkireview.numerics.patterns.elements import EVERYWHERE, WHERE_WRONG
from nkireview.numerics.patterns.mismatch import Elements, Ints, Mask, Mismatch, unravel
from nkireview.numerics.patterns.names import Name, Pattern
from nkireview.numerics.patterns.trial import EXPLAINED, agreement, explained
from nkireview.numerics.patterns.words import lines_along, of_wrong

# A first look at so many elements settles most tries.
GLANCE = 1 << 10
HOPELESS = 0.9
# Positions along an axis that a move is searched on, and elements of all lines together.
WINDOW = 1 << 16
LINE_ELEMENTS = 1 << 16
LINES = 16
# Best offsets of the search that are tried on the wrong elements.
OFFSETS = 4
# Fewer wrong indices along an axis show no move: one line holds another.
LEAST = 3


def moved(
    found: Mismatch, some: Elements, source: Ints, *, parameters: int = 0, tried: int = 1
) -> float | None:
    """The share of ``some`` explained by the reference at the flat indices ``source``; None by chance."""
    glance = slice(None, None, max(1, some.at.size // GLANCE))
    early = source[glance]
    if agreement(some.got[glance], float64(found.ref[early]), float64(found.allowed[early])) < HOPELESS:
        return None
    predicted, room = float64(found.ref[source]), float64(found.allowed[source])
    return explained(some, predicted, room, parameters=parameters, tried=tried)


def transposed(found: Mismatch) -> Pattern | None:
    """The reference with axes swapped, kept in the shape of the output where their sizes differ."""
    some = found.wrong_sample
    orders = list(_orders(found))
    for order in orders:
        share = moved(found, some, _swapped(found, some.at, order), tried=len(orders))
        if share is None:
            continue
        right = found.right_sample
        place = _place(found, right, _swapped(found, right.at, order))
        shape = tuple(found.shape[axis] for axis in order)
        axes = " and ".join(str(axis) for axis, other in enumerate(order) if axis != other)
        kept = "" if shape == found.shape else f", written as {shape} into the shape {found.shape}"
        turned = "transposed" if len(found.axes) == 2 else f"with axes {axes} swapped"
        return Pattern(
            Name.TRANSPOSED,
            f"{_holder(found, place, share)} the reference {turned}{kept}",
            share,
            {"axes": axes, "layout_only": int(shape != found.shape), "place": place},
        )
    return None


def _place(found: Mismatch, right: Elements, source: Ints) -> str:
    """Whether the right elements, too, are where the move would put them."""
    if found.count == found.size:
        return EVERYWHERE
    agrees = agreement(right.got, float64(found.ref[source]), float64(found.allowed[source]))
    return EVERYWHERE if right.at.size and agrees >= EXPLAINED else WHERE_WRONG


def _holder(found: Mismatch, place: str, share: float) -> str:
    if place == EVERYWHERE:
        return "the output holds"
    return f"{of_wrong(found, share)} {'holds' if found.count == 1 else 'hold'}"


def _orders(found: Mismatch) -> Iterator[tuple[int, ...]]:
    """Each swap of two axes, the last two first, then all axes reversed."""
    for pair in sorted(itertools.combinations(found.axes, 2), reverse=True):
        order = list(range(len(found.shape)))
        order[pair[0]], order[pair[1]] = pair[1], pair[0]
        yield tuple(order)
    if len(found.axes) > 2:
        yield tuple(reversed(range(len(found.shape))))


def _swapped(found: Mismatch, at: Ints, order: tuple[int, ...]) -> Ints:
    """For flat indices into the reference with its axes in ``order`` those into the reference itself."""
    index = unravel(at, [found.shape[axis] for axis in order])
    source = np.zeros_like(at)
    for axis, along in zip(order, index, strict=True):
        source += along * found.strides[axis]
    return source


def shifted(found: Mismatch) -> Pattern | None:
    """The reference moved along an axis, or along the flattened output."""
    axes: list[int | None] = [*reversed(found.axes)]
    if len(axes) > 1:
        axes.append(None)
    for axis in axes:
        size, stride = _extent(found, axis)
        across = found.columns if axis is None else stride
        if np.unique(found.wrong_sample.at // across % size).size < min(size // (across // stride), LEAST):
            continue
        for offset in _offsets(found, axis):
            pattern = _shift(found, axis, offset)
            if pattern:
                return pattern
    return None


def _extent(found: Mismatch, axis: int | None) -> tuple[int, int]:
    """Length and stride along an axis; the flattened output is one axis."""
    return (found.size, 1) if axis is None else (found.shape[axis], found.strides[axis])


def _shift(found: Mismatch, axis: int | None, offset: int) -> Pattern | None:
    some, right = found.wrong_sample, found.right_sample
    source, wraps = _from(found, some.at, axis, offset)
    tried = OFFSETS * (len(found.axes) + 1)
    share = moved(found, some, source, parameters=1, tried=tried)
    gap = None
    if share is None:
        gap = _filled(some, wraps)
        if gap is None:
            return None
        inner = some.where(~wraps)
        share = moved(found, inner, source[~wraps], parameters=1, tried=tried)
        if share is None:
            return None
        share = (share * inner.at.size + float(np.count_nonzero(wraps))) / some.at.size
    right_source, right_wraps = _from(found, right.at, axis, offset)
    place = _place(found, right.where(~right_wraps), right_source[~right_wraps])
    how = "rotated" if gap is None and _rotated(found, some, source, wraps) else "moved"
    along = "the flattened output" if axis is None else f"axis {axis} ({lines_along(found, axis)})"
    rest = f", with {gap} in the gap" if gap else ""
    sign = "-" if offset > 0 else "+"
    return Pattern(
        Name.SHIFTED,
        f"{_holder(found, place, share)} the reference {how} by {abs(offset)} along {along}: index i holds "
        f"index i {sign} {abs(offset)} of the reference{rest}",
        share,
        {
            "axis": "flat" if axis is None else axis,
            "shift": offset,
            "how": how,
            "gap": gap or "none",
            "place": place,
        },
    )


def _from(found: Mismatch, at: Ints, axis: int | None, offset: int) -> tuple[Ints, Mask]:
    """Where elements come from when the reference moves by ``offset``, and which come round its ends."""
    size, stride = _extent(found, axis)
    index = at // stride % size
    source = index - offset
    return at + (source % size - index) * stride, (source < 0) | (source >= size)


def _filled(some: Elements, wraps: Mask) -> str | None:
    """What fills the places that nothing moved into; None where it is not one value, or no place is left."""
    values = some.got[wraps]
    if not 2 <= values.size < some.at.size or not np.all(values == values[0]):
        return None
    return f"{values[0]:.6g}"


def _rotated(found: Mismatch, some: Elements, source: Ints, wraps: Mask) -> bool:
    part = source[wraps]
    if not part.size:
        return False
    return agreement(some.got[wraps], float64(found.ref[part]), float64(found.allowed[part])) >= EXPLAINED


def _offsets(found: Mismatch, axis: int | None) -> list[int]:
    """Moves along ``axis`` under which the wrong elements are nearest to the reference, the best first.

    The squared distance at every offset is one convolution; long axes are searched in a window of them.
    """
    at = _window(found, axis)
    length = at.shape[1]
    part = found.elements(at)
    mask = found.wrong[at] & np.isfinite(part.got)
    if length < _extent(found, axis)[0]:
        mask[:, : length // 4] = False
        mask[:, -(length // 4) :] = False
    got, ref = _tame(part.got, part.ref)
    got = np.where(mask, got, 0.0)
    spectrum = np.conj(np.fft.rfft(ref, axis=1))
    both = np.sum(np.fft.rfft(got, axis=1) * spectrum, axis=0)
    power = np.sum(
        np.fft.rfft(mask.astype(np.float64), axis=1) * np.conj(np.fft.rfft(ref * ref, axis=1)), axis=0
    )
    distance = np.fft.irfft(power - 2 * both, n=length)
    distance[0] = np.inf
    best = np.argsort(distance, kind="stable")[:OFFSETS] if length <= 64 else _smallest(distance)
    return [int(offset) if offset <= length // 2 else int(offset) - length for offset in best if offset]


def _smallest(distance: Float64) -> Ints:
    some = np.argpartition(distance, OFFSETS)[:OFFSETS]
    return some[np.argsort(distance[some])]


def _window(found: Mismatch, axis: int | None) -> Ints:
    """Flat indices of lines along ``axis`` with wrong elements, of at most ``WINDOW`` positions each."""
    size, _ = _extent(found, axis)
    if axis is None:
        lines = np.arange(found.size)[None, :] if size <= WINDOW else None
    else:
        lines = found.lines(axis, max(1, min(LINES, LINE_ELEMENTS // size))) if size <= WINDOW else None
    if lines is not None:
        return lines
    middle = int(found.wrong_sample.at[found.wrong_sample.at.size // 2])
    stride = _extent(found, axis)[1]
    index = middle // stride % size
    along = (index - WINDOW // 2 + np.arange(WINDOW)) % size
    return (middle + (along - index) * stride)[None, :]


def _tame(got: Float64, ref: Float64) -> tuple[Float64, Float64]:
    """Both without their mean, with NaN as 0 and outliers clipped alike, so that sums keep their digits."""
    finite = np.abs(ref[np.isfinite(ref)])
    limit = 16 * float(np.median(finite)) if finite.size else 0.0
    if limit == 0 and finite.size:
        limit = float(finite.max())
    clipped = [np.clip(np.nan_to_num(values, nan=0.0), -limit, limit) for values in (got, ref)]
    middle = float(np.mean(clipped[1]))
    return clipped[0] - middle, clipped[1] - middle
