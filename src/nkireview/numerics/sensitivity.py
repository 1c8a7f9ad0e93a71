"""Which part of each input the reference's outputs depend on, and how ill-conditioned the inputs are.

A reference maps the list of input arrays to a sequence of output arrays. Each probe calls it once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from nkireview.isa import dtypes
from nkireview.numerics import arrays
from nkireview.numerics.arrays import Array, Float64

Reference = Callable[[list[Array]], Sequence[Array]]

# A float64 reference called twice on the same values may differ by its own rounding, not by more.
UNCHANGED = 1e-6
WHOLE = "whole"
REGIONS = 4
"""Regions of each input that are changed, where nobody asks for fewer."""


@dataclass(frozen=True)
class Region:
    """A named block of an array: one half-open range (start, stop) for each axis."""

    name: str
    ranges: tuple[tuple[int, int], ...]

    @property
    def slices(self) -> tuple[slice, ...]:
        """The block as an index."""
        return tuple(slice(start, stop) for start, stop in self.ranges)


@dataclass(frozen=True)
class Influence:
    """Whether perturbing one region of one input changed one output of the reference."""

    input_path: str
    region: Region
    output_index: int
    changed: bool


def probe(
    reference: Reference, args: Mapping[str, Array], seed: int, regions_per_input: int = REGIONS
) -> list[Influence]:
    """Perturb regions of each input and record which outputs of the reference change.

    The whole input comes first; only where it matters follow, up to ``regions_per_input`` probes in all, its
    last quarter of rows, last quarter of columns, a random block and its first quarter of rows. An output
    counts as changed where an element moved by more than 1e-6 of its rms, an integer differs, or a NaN or
    infinity came or went. A region that ``perturb`` cannot change is left out.
    Costs one reference call, and one for each probe; what the reference raises is not caught.
    Raise ValueError for fewer than one region.
    """
    if regions_per_input < 1:
        raise ValueError(f"{regions_per_input} regions for each input: expected at least 1")
    before = list(reference(list(args.values())))
    found: list[Influence] = []
    for path, array in args.items():
        for region in _regions(array, path, seed, regions_per_input):
            perturbed = perturb(array, region, seed)
            if perturbed is None:
                continue
            after = list(reference([perturbed if name == path else args[name] for name in args]))
            influences = [
                Influence(path, region, index, changed(old, new))
                for index, (old, new) in enumerate(zip(before, after, strict=True))
            ]
            found.extend(influences)
            if region.name == WHOLE and not any(influence.changed for influence in influences):
                break
    return found


def perturb(array: Array, region: Region, seed: int) -> Array | None:
    """A copy of ``array`` with the values in ``region`` changed; None where its values allow no change
    (integers that are all equal, or one of distinct integers).

    Floats move by 1 to 3 times the array's rms (by 1 to 3 where that is 0), up where no value is negative
    and with a random sign otherwise, and stay finite; infinities stay. Integers are rotated inside the
    region where all are distinct, and otherwise replaced by other values of the array, so that indices stay
    legal; a result that ignores the order of distinct integers shows no change. Bool flips. The same seed
    makes the same change.
    """
    generator = np.random.default_rng([seed, *(edge for pair in region.ranges for edge in pair)])
    block = np.asarray(array[region.slices])
    copy = np.array(array)
    if array.dtype.kind == "b":
        copy[region.slices] = ~block
        return copy
    if arrays.is_floating(array):
        copy[region.slices] = _moved(block, array, generator)
        return copy
    replaced = _replaced(block, array, generator)
    if replaced is None:
        return None
    copy[region.slices] = replaced
    return copy


def changed(before: Array, after: Array) -> bool:
    """Whether an output changed by more than its own rounding: see ``probe``."""
    if before.shape != after.shape:
        return True
    if before.size == 0:
        return False
    old_rows, new_rows = arrays.as_rows(before), arrays.as_rows(after)
    floating = arrays.is_floating(before)
    allowed = UNCHANGED * arrays.root_mean_square(before) if floating else 0.0
    for window in arrays.windows(*old_rows.shape):
        old, new = arrays.float64(old_rows[window]), arrays.float64(new_rows[window])
        both = np.isfinite(old) & np.isfinite(new)
        same = (old == new) | (np.isnan(old) & np.isnan(new))
        if not same[~both].all() or (np.abs(old[both] - new[both]) > allowed).any():
            return True
    return False


def conditioning(reference: Reference, args: Mapping[str, Array], seed: int) -> list[float]:
    """How much each output enlarges a relative rounding error of the floating inputs.

    The inputs, as float64, move by one float32 roundoff in a random direction; the result is rms(change) /
    (roundoff * rms(output)) for each output, at least 1 and finite: the amplification that ``limits_for``
    takes. It is about 1 for a matmul and 100 for a normalisation of rows with mean 100 and deviation 1.
    Costs two reference calls; ``reference`` must take float64 arrays for its floating inputs.
    """
    roundoff = dtypes.unit_roundoff(dtypes.of("float32"))
    generator = np.random.default_rng(seed)

    def move(block: Float64, _: arrays.Window) -> Float64:
        return block * (1 + roundoff * generator.choice((-1.0, 1.0), block.shape))

    exact = [a.astype(np.float64) if arrays.is_floating(a) else a for a in args.values()]
    moved = [arrays.map_windows(a, move) if arrays.is_floating(a) else a for a in exact]
    outputs = zip(reference(exact), reference(moved), strict=True)
    return [_amplification(old, new, roundoff) for old, new in outputs]


def _amplification(before: Array, after: Array, roundoff: float) -> float:
    if not arrays.is_floating(before) or before.shape != after.shape:
        return 1.0
    size = arrays.root_mean_square(before)
    with np.errstate(invalid="ignore"):
        change = arrays.root_mean_square(after - before)
    ratio = change / (roundoff * size) if size > 0 else 1.0
    return max(1.0, ratio) if math.isfinite(ratio) else 1.0


def _regions(array: Array, path: str, seed: int, count: int) -> Iterator[Region]:
    whole = tuple((0, size) for size in array.shape)
    seen: set[tuple[tuple[int, int], ...]] = set()
    candidates = [Region(WHOLE, whole)]
    if array.size > 1:
        row = next(axis for axis, size in enumerate(array.shape) if size > 1)
        column = max(axis for axis, size in enumerate(array.shape) if size > 1)
        rows, columns = array.shape[row], array.shape[column]
        candidates += [
            Region("last quarter of rows", _with(whole, row, (rows - max(1, rows // 4), rows))),
            Region(
                "last quarter of columns", _with(whole, column, (columns - max(1, columns // 4), columns))
            ),
            Region("random block", _random_block(array.shape, seed)),
            Region("first quarter of rows", _with(whole, row, (0, max(1, rows // 4)))),
        ]
    for region in candidates:
        if region.ranges not in seen and len(seen) < count:
            seen.add(region.ranges)
            yield region


def _with(
    ranges: tuple[tuple[int, int], ...], axis: int, change: tuple[int, int]
) -> tuple[tuple[int, int], ...]:
    return (*ranges[:axis], change, *ranges[axis + 1 :])


def _random_block(shape: tuple[int, ...], seed: int) -> tuple[tuple[int, int], ...]:
    generator = np.random.default_rng([seed, *shape])
    ranges = []
    for size in shape:
        length = max(1, size // 4)
        start = int(generator.integers(0, size - length + 1))
        ranges.append((start, start + length))
    return tuple(ranges)


def _moved(block: Array, array: Array, generator: np.random.Generator) -> Array:
    size = arrays.root_mean_square(array) or 1.0
    one_sided = not _any_negative(array)

    def move(values: Float64, _: arrays.Window) -> Float64:
        step = size * generator.uniform(1.0, 3.0, values.shape)
        if not one_sided:
            step *= generator.choice((-1.0, 1.0), values.shape)
        return values + step

    return arrays.map_windows(block, move)


def _any_negative(array: Array) -> bool:
    rows = arrays.as_rows(array)
    return any(bool((arrays.float64(rows[window]) < 0).any()) for window in arrays.windows(*rows.shape))


def _replaced(block: Array, array: Array, generator: np.random.Generator) -> Array | None:
    values = np.unique(array)
    if values.size == 1:
        return None
    flat = block.reshape(block.size)
    if values.size == array.size:
        if flat.size == 1:
            return None
        return np.roll(flat, int(generator.integers(1, flat.size))).reshape(block.shape)
    # Another value for every element: a step of 1 to all but one of the values that occur.
    replaced = np.empty_like(flat)
    for start in range(0, flat.size, arrays.BLOCK_ELEMENTS):
        part = flat[start : start + arrays.BLOCK_ELEMENTS]
        steps = generator.integers(1, values.size, part.size)
        places = (np.searchsorted(values, part) + steps) % values.size
        replaced[start : start + part.size] = values[places]
    return replaced.reshape(block.shape)
