"""Inputs made hostile: each kind goes where arithmetic of one sort goes wrong, and says which sort that is."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from nkireview.isa import dtypes
from nkireview.numerics import arrays
from nkireview.numerics.arrays import Array, Float64

Named = Mapping[str, Array]
_BLOCK_SCALE = dtypes.of("float8_e8m0fnu").storage


@dataclass(frozen=True)
class HostileFigures:
    """How far the hostile variants go.

    ``eps`` is the epsilon the kernel adds under its square root; rows ``tiny_first``, ``tiny_first +
    tiny_every`` and so on get a root mean square of ``tiny * sqrt(eps)``. All kinds that change some rows change
    these. ``sweep``: the ends of what the kind of that name covers. ``gap``: by how much a quarter of an ascending
    axis exceeds the quarter before. ``parts``: into how many an ascending axis is cut. ``near``: the share of the
    largest number of a dtype that counts as near it. ``exact``: where float32 stops holding all whole numbers.
    ``masked``: an additive mask is zero or at most this.
    """

    scale: float = 100.0
    mean: float = 100.0
    eps: float = 1e-6
    tiny: float = 1e-3
    tiny_every: int = 4
    tiny_first: int = 1
    sweep: float = 5.0
    gap: float = 25.0
    parts: int = 4
    near: float = 0.95
    exact: int = 2**24
    masked: float = -100.0


Change = Callable[[Named, HostileFigures], dict[str, Array]]


@dataclass(frozen=True)
class Kind:
    """One way to make inputs hostile.

    change: the inputs that it replaces, by name; none where no input allows it. needs: what a program must do for the
    kind to be asked for, as named in `checks.needs`; of the ones without any, those that are not `always` are executed
    only where a contract names them.
    """

    sentence: str
    change: Change
    needs: frozenset[str] = frozenset()
    always: bool = False


def hostile(args: Named, kind: str, figures: HostileFigures | None = None) -> dict[str, Array] | None:
    """The inputs made hostile in one way, with the same shapes and dtypes; None where no input allows it.

    ``kind`` is a key of HOSTILE. The same inputs give the same result. Finite values that would leave the range of
    their dtype stay at its largest finite number. Raise ValueError for an unknown kind.
    """
    if kind not in HOSTILE:
        raise ValueError(f"{kind!r} is no hostile variant: expected one of {', '.join(HOSTILE)}")
    changed = HOSTILE[kind].change(args, figures or HostileFigures())
    return {name: changed.get(name, array) for name, array in args.items()} if changed else None


def chosen(needs: Iterable[str], args: Named | None = None) -> tuple[str, ...]:
    """The kinds that a program with these needs asks for, in order of HOSTILE.

    args: only those that these inputs allow; to find out costs as much as to make them.
    """
    wanted = frozenset(needs)
    found = [name for name, kind in HOSTILE.items() if kind.needs & wanted]
    return tuple(name for name in found if args is None or hostile(args, name) is not None)


def _floating(args: Named) -> list[str]:
    return [name for name, array in args.items() if array.size and arrays.is_floating(array)]


def _values(args: Named, figures: HostileFigures) -> list[str]:
    """The floating inputs that are no masks and no block scales."""
    found = [name for name in _floating(args) if args[name].dtype != _BLOCK_SCALE]
    return [name for name in found if not _mask(args[name], figures)]


def _matrices(args: Named, figures: HostileFigures) -> list[str]:
    """The floating inputs of several rows that are no masks; without any, those of one row."""
    found = _values(args, figures)
    return [name for name in found if arrays.as_rows(args[name]).shape[0] > 1] or found


def _mask(array: Array, figures: HostileFigures) -> str:
    """``switch`` for bool and for zeros and ones, ``additive`` for zeros and one very negative number, else empty."""
    if array.size == 0:
        return ""
    if array.dtype.kind == "b":
        return "switch"
    low, high = array.min(), array.max()
    if low != 0 and not (high == 0 and float(low) <= figures.masked):
        return ""
    if low == 0 and high != 1:
        return ""
    return ("switch" if low == 0 else "additive") if np.all((array == low) | (array == high)) else ""


def _some(rows: int, figures: HostileFigures, after: int = 0) -> Array:
    """Which rows are changed: every fourth from the second, or `after` rows later."""
    found: Array = np.arange(rows) % figures.tiny_every == (figures.tiny_first + after) % figures.tiny_every
    return found


def _peak(array: Array) -> float:
    """The largest finite magnitude."""
    matrix = arrays.as_rows(array)
    blocks = (np.abs(arrays.float64(matrix[window])) for window in arrays.windows(*matrix.shape))
    return max(float(block.max(initial=0.0, where=np.isfinite(block))) for block in blocks)


def _times(array: Array, factor: float) -> Array:
    return arrays.map_windows(array, lambda block, _: block * factor)


def _each(args: Named, names: Sequence[str], change: Callable[[Float64], Float64]) -> dict[str, Array]:
    """Every element of some inputs changed by itself."""
    return {name: arrays.map_windows(args[name], lambda block, _: change(block)) for name in names}


def _rows(array: Array, change: Callable[[Float64, int], Float64]) -> Array:
    """A copy with ``change(whole rows in float64, number of the first)`` applied to a few rows at a time."""
    matrix = arrays.as_rows(array)
    height = max(1, arrays.BLOCK_ELEMENTS // matrix.shape[1])
    changed = np.empty(matrix.shape, dtype=matrix.dtype)
    for top in range(0, matrix.shape[0], height):
        part = matrix[top : top + height]
        changed[top : top + height] = arrays.stored(change(arrays.float64(part), top), array.dtype)
    return changed.reshape(array.shape)


def _scaled(args: Named, figures: HostileFigures) -> dict[str, Array]:
    return _each(args, _floating(args), lambda block: block * figures.scale)


def _moved(args: Named, figures: HostileFigures) -> dict[str, Array]:
    return _each(args, _floating(args), lambda block: block + figures.mean)


def _tiny(args: Named, figures: HostileFigures) -> dict[str, Array]:
    return {name: _tiny_rows(args[name], figures) for name in _floating(args) if _several(args[name])}


def _several(array: Array) -> bool:
    return bool(arrays.as_rows(array).shape[0] > 1)


def _tiny_rows(array: Array, figures: HostileFigures) -> Array:
    matrix = arrays.as_rows(array)
    size = arrays.row_rms(matrix)
    factor = np.divide(figures.tiny * math.sqrt(figures.eps), size, out=np.ones_like(size), where=size > 0)
    factor[~_some(factor.size, figures)] = 1.0
    return arrays.map_windows(array, lambda block, window: block * factor[window[0]])


def _zeros(args: Named, figures: HostileFigures) -> dict[str, Array]:
    return {name: _zero_rows(args[name], figures) for name in _values(args, figures) if _several(args[name])}


def _zero_rows(array: Array, figures: HostileFigures) -> Array:
    kept = ~_some(arrays.as_rows(array).shape[0], figures)[:, None]
    return arrays.map_windows(array, lambda block, window: np.where(kept[window[0]], block, 0.0))


def _ascending(args: Named, figures: HostileFigures) -> dict[str, Array]:
    names = [
        name for name in _matrices(args, figures) if arrays.as_rows(args[name]).shape[1] >= figures.parts
    ]
    return {name: _ascended(args[name], figures) for name in names}


def _ascended(array: Array, figures: HostileFigures) -> Array:
    """Magnitudes in order along the last two axes longer than one, each quarter of an axis far above the one before."""
    columns = arrays.as_rows(array).shape[1]
    long = [size for size in array.shape[: _last_axis(array)] if size > 1]
    deep = array.reshape(-1, long[-1] if long else 1, columns)
    step = figures.gap + _peak(array)
    made = np.empty(deep.shape, dtype=array.dtype)
    levels = sum(
        np.expand_dims(np.arange(size) * figures.parts // size, 1 - axis) * step
        for axis, size in enumerate(deep.shape[1:])
    )
    for at, part in enumerate(deep):
        magnitude = np.abs(part.astype(np.float32))
        ordered = np.sort(np.sort(magnitude, axis=1), axis=0)
        made[at] = arrays.stored(ordered.astype(np.float64) + levels, array.dtype)
    return made.reshape(array.shape)


def _last_axis(array: Array) -> int:
    """The axis along which rows run, see ``arrays.as_rows``."""
    return max((axis for axis, size in enumerate(array.shape) if size > 1), default=0)


def _swept(args: Named, figures: HostileFigures) -> dict[str, Array]:
    """The first input and those of its shape swept; others that share a size with it scaled to keep products small."""
    names = _matrices(args, figures)
    if not names or arrays.as_rows(args[names[0]]).shape[1] < 2:
        return {}
    first = args[names[0]]
    changed = {}
    for name in names:
        array = args[name]
        common = [size for size in reversed(first.shape) if size > 1 and size in array.shape]
        if array.shape == first.shape:
            changed[name] = _rows(array, lambda block, _: _evenly(block, figures.sweep))
        elif common and (rms := arrays.root_mean_square(array)) > 0:
            changed[name] = _times(array, 1 / (rms * math.sqrt(common[0])))
    return changed


def _evenly(block: Float64, end: float) -> Float64:
    """Each row with its order kept and its values spread evenly from -end to end."""
    rank = np.argsort(np.argsort(block, axis=1, kind="stable"), axis=1, kind="stable")
    values: Float64 = np.linspace(-end, end, block.shape[1])
    spread: Float64 = values[rank]
    return spread


def _tied(args: Named, figures: HostileFigures) -> dict[str, Array]:
    def tie(block: Float64, _: int) -> Float64:
        made: Float64 = block.copy()
        made[:, [0, block.shape[1] // 2, -1]] = block.max(axis=1, keepdims=True)
        return made

    names = [name for name in _matrices(args, figures) if arrays.as_rows(args[name]).shape[1] > 2]
    return {name: _rows(args[name], tie) for name in names}


def _negated(args: Named, figures: HostileFigures) -> dict[str, Array]:
    """The first input below zero, the others above, so that products and sums of products are below it too."""
    changed: dict[str, Array] = {}
    for at, name in enumerate(_matrices(args, figures)):
        floor = arrays.root_mean_square(args[name]) or 1.0
        sign = 1.0 if at else -1.0

        def turned(block: Float64, floor: float = floor, sign: float = sign) -> Float64:
            made: Float64 = sign * np.where(block == 0, floor, np.abs(block))
            return made

        changed |= _each(args, [name], turned)
    return changed


def _masked_rows(args: Named, figures: HostileFigures) -> dict[str, Array]:
    """Whole rows of masks off, and others on where nothing says which of the two masks."""
    changed = {}
    for name, array in args.items():
        what = _mask(array, figures)
        matrix = arrays.as_rows(array)
        if not what or matrix.shape[0] < 2:
            continue
        made = matrix.copy()
        made[_some(matrix.shape[0], figures)] = matrix.min() if what == "additive" else 0
        if what == "switch":
            made[_some(matrix.shape[0], figures, after=1)] = 1
        changed[name] = made.reshape(array.shape)
    return changed


def _large_integers(args: Named, figures: HostileFigures) -> dict[str, Array]:
    changed = {}
    for name, array in args.items():
        if array.size == 0 or array.dtype not in (np.int32, np.uint32) or _mask(array, figures):
            continue
        if int(array.max()) + figures.exact + 1 <= np.iinfo(array.dtype).max:
            # odd numbers above it are the first that float32 does not hold
            changed[name] = (array + array.dtype.type(figures.exact)) | array.dtype.type(1)
    return changed


def _up_to(limit: str) -> Change:
    """The first input scaled so that its largest magnitude is near the largest number of a dtype, and of its own."""
    most = dtypes.of(limit).max_finite

    def change(args: Named, figures: HostileFigures) -> dict[str, Array]:
        for name in _matrices(args, figures)[:1]:
            array, high = args[name], _peak(args[name])
            own = math.inf if array.dtype == np.float64 else dtypes.of(array.dtype).max_finite
            return {name: _times(array, figures.near * min(most, own) / high)} if high > 0 else {}
        return {}

    return change


def _denormal(args: Named, figures: HostileFigures) -> dict[str, Array]:
    """All magnitudes below the smallest normal number of the dtype."""
    changed = {}
    for name in _values(args, figures):
        array, high = args[name], _peak(args[name])
        exponent = None if array.dtype == np.float64 else dtypes.of(array.dtype).min_exponent
        if exponent is not None and high > 0:
            changed[name] = _times(array, 2.0 ** (exponent - 1) / high)
    return changed


def _special(first: float, last: float) -> Change:
    """Of the first input, one number at the begin of some rows and one at the end of the rows after them."""

    def change(args: Named, figures: HostileFigures) -> dict[str, Array]:
        for name in _matrices(args, figures)[:1]:
            array = args[name]
            if array.dtype != np.float64 and not np.isinf(
                dtypes.cast(np.float64(math.inf), dtypes.of(array.dtype))
            ):
                return {}
            made = arrays.as_rows(array).copy()
            made[_some(made.shape[0], figures), 0] = first
            made[_some(made.shape[0], figures, after=1), -1] = last
            return {name: made.reshape(array.shape)} if made.shape[0] > 1 else {}
        return {}

    return change


HOSTILE: Mapping[str, Kind] = MappingProxyType(
    {
        "scale-100": Kind(
            "multiplied by 100: an exponential without a maximum shift overflows",
            _scaled,
            frozenset({"exp"}),
            always=True,
        ),
        "tiny-rows": Kind(
            "every fourth row of magnitude 1e-3 sqrt(eps): a dropped or misplaced epsilon shows",
            _tiny,
            frozenset({"root", "division"}),
            always=True,
        ),
        "large-mean": Kind(
            "moved by 100: a variance taken as a difference of squares cancels",
            _moved,
            frozenset({"variance"}),
            always=True,
        ),
        "ascending": Kind(
            "magnitudes in ascending order along rows and columns, each quarter more than 20 above the one before: "
            "a running maximum must rescale what it summed",
            _ascending,
            frozenset({"exp"}),
        ),
        "sweep": Kind(
            "each row covers -5 to 5 evenly: forms of an activation function differ",
            _swept,
            frozenset({"activation"}),
        ),
        "ties": Kind(
            "the maximum of each row stands at its begin, middle and end too: positions of equal values",
            _tied,
            frozenset({"search"}),
        ),
        "negative": Kind(
            "the first input below zero, others above: a maximum that starts from, or is padded with, zero shows",
            _negated,
            frozenset({"maximum", "search"}),
        ),
        "masked-row": Kind(
            "every fourth row of a mask off, the rows after them on: a row without any element that counts",
            _masked_rows,
            frozenset({"mask", "exp", "maximum"}),
        ),
        "zeros-row": Kind(
            "every fourth row zero: a division by a sum or a root of it",
            _zeros,
            frozenset({"root", "division"}),
        ),
        "large-integers": Kind(
            "32-bit integers made odd numbers above 2^24: arithmetic in float32 rounds them",
            _large_integers,
            frozenset({"integer arithmetic"}),
        ),
        "near-overflow": Kind(
            "the first input scaled to reach 95% of the largest float16",
            _up_to("float16"),
            frozenset({"float16 result"}),
        ),
        "near-overflow-fp8": Kind(
            "the first input scaled to reach 95% of the largest float8_e4m3, which is 240",
            _up_to("float8_e4m3"),
            frozenset({"fp8 result"}),
        ),
        "denormals": Kind("all magnitudes below the smallest normal number of the dtype", _denormal),
        "infinities": Kind(
            "an infinity at the begin of every fourth row, a negative one at the end of the rows after them",
            _special(math.inf, -math.inf),
        ),
        "nans": Kind(
            "NaN at the begin of every fourth row, and at the end of the rows after them",
            _special(math.nan, math.nan),
        ),
    }
)
ALWAYS = tuple(name for name, kind in HOSTILE.items() if kind.always)
"""Executed whatever a program does."""
