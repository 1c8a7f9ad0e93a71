"""How far the same computation may differ between platforms, and what a comparison of two of them may ask.

Each platform's outputs are compared with the exact run, which gives it a band: `SIGMAS` times the rms error that its
elements have on the way, pooled over what their rows and sizes have in common, and the rounding of the output itself.
Two platforms may differ by the sum of their bands. Not by the root of the sum of squares: they round the same
intermediates alike, truncation has a sign, and one function approximates all equal values alike, so that their errors
are not independent; the sum holds whatever they have in common.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.diagnosis.platforms.arithmetic import Arithmetic, Kinds
from nkireview.diagnosis.platforms.table import Platform
from nkireview.diagnosis.tolerance import PRIOR, Derivation
from nkireview.isa import dtypes
from nkireview.isa.dtypes import BY_NAME, DataType
from nkireview.numerics.arrays import as_rows, row_rms
from nkireview.numerics.errors import ULP_THRESHOLD

Array = NDArray[Any]
Float64 = NDArray[np.float64]

SIGMAS = 6.0
"""Standard deviations of its errors that a platform's band allows for."""
BINADES = 300
"""Powers of two below the largest value of a row that are told apart."""
FEW = 8
"""Elements of a binade from which on they speak for themselves."""
RATIO = 2.0
"""How many times the errors of one right kernel those of another may be, each against the float64 reference."""


@dataclass(frozen=True)
class Size:
    """How large differences are: in ulps of the output, and as a share of the rms of their rows, the largest and rms.

    Ulps are counted where the exact value is no less than 2**-6 of its row's rms.
    """

    max_ulps: float
    rms_ulps: float
    max_relative: float
    rms_relative: float


@dataclass(frozen=True, eq=False)
class PlatformError:
    """An output on one platform against the exact run.

    values: the stored numbers of the first seed. band: how far each element may be from the exact one. nonfinite:
    elements that only there are NaN or infinite. differing: those that differ at all. assumed: it rests on functions
    whose accuracy is unpublished.
    """

    platform: str
    values: Float64
    band: Float64
    error: Size
    nonfinite: int
    differing: int
    assumed: bool


@dataclass(frozen=True, eq=False)
class Pair:
    """One output on two platforms: how far apart they were, and how far they may be.

    ratio: the second's rms error over the first's, both against the exact run. allowed_ulps: in ulps of the element or
    of its row's rms, whichever is larger.
    """

    output: str
    first: PlatformError
    second: PlatformError
    apart: Size
    ratio: float
    allowed_relative: float
    allowed_ulps: float
    integers: bool

    @property
    def allowed(self) -> Float64:
        """The largest difference of each element that the two platforms explain."""
        return np.asarray(self.first.band + self.second.band)

    @property
    def comparable(self) -> bool:
        """True where each may be asked to be about as exact as the other."""
        return 1 / RATIO <= self.ratio <= RATIO

    @property
    def sentence(self) -> str:
        """What a comparison may ask."""
        one, other = self.first.platform, self.second.platform
        lost = [
            f"{each.nonfinite} {_elements(each.nonfinite)} not finite on {each.platform}"
            for each in (self.first, self.second)
            if each.nonfinite
        ]
        if lost:
            return f"{self.output}: {' and '.join(lost)}, though finite in exact arithmetic; no tolerance compares that"
        if self.allowed_relative == 0:
            return f"{self.output}: {one} and {other} give the same numbers; ask for equality"
        if self.integers:
            count = max(self.first.differing, self.second.differing)
            most = float(self.allowed.max(initial=0.0))
            return (
                f"{self.output}: up to {count} of {self.first.values.size} elements are rounded the other way; "
                f"compared with each other, {one} and {other} may differ by up to {most:g}"
            )
        if self.comparable:
            first = (
                f"{self.output}: compare {one} and {other} each with the float64 reference and ask for a ratio of "
                f"errors of at most {RATIO:g}"
            )
        else:
            worse, better = (other, one) if self.ratio > 1 else (one, other)
            assumed = self.second.assumed if self.ratio > 1 else self.first.assumed
            why = (
                "if its functions are as exact as is assumed, which is unpublished"
                if assumed
                else "by its arithmetic alone"
            )
            times = max(self.ratio, 1 / self.ratio) if self.ratio else math.inf
            first = (
                f"{self.output}: compare {one} and {other} each with the float64 reference; the errors of {worse} are "
                f"{_times(times)} those of {better} {why}, so ask {better} for at most {RATIO:g} "
                f"times those of {worse}, and {worse} for its own band"
            )
        return (
            f"{first}; compared with each other, they may differ by up to {self.allowed_relative:.1e} of their row's "
            f"rms ({self.allowed_ulps:.1f} ulps)"
        )


@dataclass(frozen=True, eq=False)
class OutputSpread:
    """One output on all platforms, and on each pair of them."""

    name: str
    dtype: str
    exact: Float64
    platforms: tuple[PlatformError, ...]
    pairs: tuple[Pair, ...]

    def pair(self, one: str, other: str) -> Pair:
        """The pair of two platforms, in either order; raise ValueError where there is none."""
        for pair in self.pairs:
            if {pair.first.platform, pair.second.platform} == {one, other}:
                return pair
        known = ", ".join(each.platform for each in self.platforms)
        raise ValueError(f"output {self.name} was not compared on {one} and {other}: expected two of {known}")


@dataclass(frozen=True, eq=False)
class Spread:
    """All outputs; `holes` says what of this rests on figures that no document states."""

    outputs: tuple[OutputSpread, ...]
    holes: tuple[str, ...]


def spread(
    derivation: Derivation,
    arguments: Mapping[int, Array],
    platforms: Sequence[Platform],
    seeds: Sequence[int] = (0, 1, 2),
) -> Spread:
    """The outputs of a Program on platforms, against its exact run and against each other.

    A run costs some tens of executions, most of it for matmuls in another order.

    arguments: an array in storage dtype for each parameter buffer. seeds: implementations of the functions, and
    streams of stochastic rounding; a platform that has neither runs once. Raise ValueError without platforms or seeds,
    for a platform named twice, and for arguments that do not fit.
    """
    names = [each.name for each in platforms]
    if not names or not seeds:
        raise ValueError("platforms and seeds are needed: expected at least one of each")
    if len(set(names)) < len(names):
        raise ValueError(f"platforms {', '.join(names)}: expected each once, give a changed one another name")
    kinds = Kinds.of_program(derivation.program, derivation.granted.exact)
    exact = derivation.run(arguments)
    found: list[list[PlatformError]] = [[] for _ in exact]
    for platform in platforms:
        runs = []
        arounds = [Arithmetic(kinds, platform, seeds[0])]
        if varies(platform, kinds):
            # errors of one size leave no element whose samples are small by chance
            arounds += [Arithmetic(kinds, platform, seed, even=True) for seed in seeds[1:] or seeds]
        for around in arounds:
            runs.append([(values, around) for values in derivation.run(arguments, around)])
        for at, output in enumerate(derivation.program.outputs):
            dtype = BY_NAME[derivation.program.access(output.access).dtype]
            samples = [run[at] for run in runs]
            found[at].append(_against(exact[at], samples, dtype, platform, _assumed(platform, kinds)))
    outputs = []
    for at, output in enumerate(derivation.program.outputs):
        dtype = BY_NAME[derivation.program.access(output.access).dtype]
        pairs = [_pair(output.name, exact[at], dtype, *two) for two in combinations(found[at], 2)]
        outputs.append(OutputSpread(output.name, dtype.name, exact[at], tuple(found[at]), tuple(pairs)))
    return Spread(tuple(outputs), holes(platforms, kinds))


def varies(platform: Platform, kinds: Kinds) -> bool:
    """True where another seed may give other numbers."""
    rows = [platform.function(name, engine) for name, engine in kinds.functions()]
    off = any(
        row and (row.ulps or row.slope or row.relative or row.absolute or row.per_argument) for row in rows
    )
    scans = any(write.sums == "scan" for work in kinds.work for write in work.writes)
    return off or scans or platform.stochastic


def holes(platforms: Sequence[Platform], kinds: Kinds) -> tuple[str, ...]:
    """A line for each figure that these platforms rest on and no document states, unused ones left out."""
    sums = frozenset(write.sums for work in kinds.work for write in work.writes)
    unused = {
        "fma-chain": not sums & {"matmul"},
        "column-order": not sums & {"matmul"},
        "tree": not sums & {"reduce", "results", "statistics"},
        "stream": not sums & {"reduce", "results", "statistics"},
        "two-roundings": not any(len(recipe.taken) > 1 for recipe in kinds.recipes),
    }
    found: dict[str, None] = {}
    for platform in platforms:
        for fact in platform.facts:
            if fact.basis == "hole" and not unused.get(fact.name):
                found[f"{platform.name}: {fact.text} ({fact.source})"] = None
        for name, engine in sorted(kinds.functions()):
            row = platform.function(name, engine)
            if row is not None and row.basis == "hole":
                size = f"{row.relative:.1e} of the value" if row.relative else f"{row.ulps:g} ulps"
                found[f"{platform.name}: {name} is off by up to {size} ({row.source})"] = None
    return tuple(found)


def _against(
    exact: Float64,
    samples: Sequence[tuple[Float64, Arithmetic]],
    dtype: DataType,
    platform: Platform,
    assumed: bool,
) -> PlatformError:
    """An output on one platform, from runs whose last store left it unrounded."""
    if dtype.kind != "float":
        runs = [values for values, _ in samples]
        most = max(float(np.abs(values - exact).max(initial=0.0)) for values in runs)
        differing = max(int(np.count_nonzero(values != exact)) for values in runs)
        error = _size(runs[0] - exact, exact, dtype)
        return PlatformError(platform.name, runs[0], np.full(exact.shape, most), error, 0, differing, assumed)
    with np.errstate(all="ignore"):
        stored = [around.cast(_float32(values), dtype) for values, around in samples]
        wanted = dtypes.to_compute(dtypes.cast(exact, dtype), dtype, np.float64)
        deviation = _deviation(exact, [values for values, _ in samples])
    inside = np.isfinite(wanted)
    size = np.abs(np.where(inside, exact, 0.0))
    random = platform.stochastic and dtype.significand_bits < BY_NAME["float32"].significand_bits
    on_the_way = SIGMAS * deviation
    last = dtypes.ulp(size + on_the_way, dtype) * (1.0 if random else 0.5)
    # what is exact on the way and fits the output is not rounded
    fits = (deviation == 0) & (wanted == exact)
    band = np.where(fits, 0.0, on_the_way + last)
    lost = max(int(np.count_nonzero(inside & ~np.isfinite(values))) for values in stored)
    differing = max(int(np.count_nonzero(inside & (values != wanted))) for values in stored)
    with np.errstate(all="ignore"):
        errors = [_size(values - exact, exact, dtype) for values in stored]
    return PlatformError(platform.name, stored[0], band, _largest(errors), lost, differing, assumed)


def _deviation(exact: Float64, runs: Sequence[Float64]) -> Float64:
    """The rms error of each element on the way, drawn towards what others of its row, and of its size, have.

    The model is r_i t_j: what a row has of errors, and what all elements of one binade of their row have. It takes
    errors that are relative to the element, those that are not, and those in which the two are mixed.
    """
    squares = [np.nan_to_num(np.square(values - exact), nan=0.0, posinf=0.0) for values in runs]
    own, size = as_rows(np.mean(squares, axis=0)), as_rows(np.nan_to_num(np.abs(exact), nan=0.0, posinf=0.0))
    scale = size.max(axis=1, keepdims=True)
    scale = np.where(scale > 0, scale, 1.0)
    of = np.clip(np.frexp(size / scale)[1] + BINADES, 1, BINADES + 1)
    of = np.where(size > 0, of, 0)
    counts = _smoothed(np.bincount(of.reshape(-1), minlength=BINADES + 2))
    lonely = (counts < FEW) & (np.arange(BINADES + 2) > 0)
    squared = np.square(size / scale)
    seen = of > 1
    of_row, model, count = np.ones_like(scale), np.ones_like(own), len(runs)
    for _ in range(2):
        shares = own / (scale**2 * of_row)
        sums = _smoothed(np.bincount(of.reshape(-1), shares.reshape(-1), minlength=BINADES + 2))
        means = np.divide(sums, counts, out=np.zeros_like(sums), where=counts > 0)
        # where a binade has few elements they have at least the relative error that most have
        usual = float(np.median(shares[seen] / squared[seen])) if seen.any() else 0.0
        of_size = np.where(lonely[of], np.maximum(means[of], usual * squared), means[of])
        ratio = np.divide(own / scale**2, of_size, out=np.zeros_like(own), where=of_size > 0)
        of_row = (count * ratio.mean(axis=1, keepdims=True) + PRIOR) / (count + PRIOR)
        model = of_row * of_size * scale**2
    return np.asarray(np.sqrt((count * own + PRIOR * model) / (count + PRIOR)).reshape(exact.shape))


def _smoothed(found: Array) -> Float64:
    """The counts or sums of binades with half of those beside; the first, for zeros, stays apart."""
    kept = found.astype(np.float64)
    kept[2:] += found[1:-1] / 2 * (np.arange(2, len(found)) > 2)
    kept[1:-1] += found[2:] / 2
    return kept


def _assumed(platform: Platform, kinds: Kinds) -> bool:
    rows = [platform.function(name, engine) for name, engine in kinds.functions()]
    return any(row is not None and row.basis == "hole" for row in rows)


def _float32(values: Float64) -> Float64:
    return values.astype(np.float32).astype(np.float64)


def _largest(sizes: Sequence[Size]) -> Size:
    """The largest of each figure."""
    found = sizes[0]
    for each in sizes[1:]:
        found = replace(
            found,
            max_ulps=max(found.max_ulps, each.max_ulps),
            rms_ulps=max(found.rms_ulps, each.rms_ulps),
            max_relative=max(found.max_relative, each.max_relative),
            rms_relative=max(found.rms_relative, each.rms_relative),
        )
    return found


def _size(difference: Float64, exact: Float64, dtype: DataType) -> Size:
    """How large differences are, over the elements that are finite on both sides."""
    rows, by_row = as_rows(exact), row_rms(as_rows(exact))
    error = np.abs(as_rows(difference))
    known = np.isfinite(error) & np.isfinite(rows)
    error = np.where(known, error, 0.0)
    relative = np.divide(error, by_row, out=np.zeros_like(error), where=by_row > 0)
    counted = known & (np.abs(rows) >= ULP_THRESHOLD * by_row) & (by_row > 0)
    ulps = np.divide(error, dtypes.ulp(rows, dtype), out=np.zeros_like(error), where=counted)
    return Size(
        float(ulps.max(initial=0.0)),
        _rms(ulps[counted]),
        float(relative.max(initial=0.0)),
        _rms(relative[known]),
    )


def _rms(values: Float64) -> float:
    return math.sqrt(float(np.mean(np.square(values)))) if values.size else 0.0


def _pair(output: str, exact: Float64, dtype: DataType, first: PlatformError, second: PlatformError) -> Pair:
    with np.errstate(all="ignore"):
        apart = _size(second.values - first.values, exact, dtype)
    rows, by_row = as_rows(exact), row_rms(as_rows(exact))
    allowed = as_rows(first.band + second.band)
    relative = np.divide(allowed, by_row, out=np.zeros_like(allowed), where=by_row > 0)
    size = np.maximum(np.abs(np.where(np.isfinite(rows), rows, 0.0)), by_row)
    ulps = allowed / dtypes.ulp(size, dtype)
    one, other = first.error.rms_relative, second.error.rms_relative
    ratio = 1.0 if one == other else math.inf if one == 0 else other / one
    return Pair(
        output=output,
        first=first,
        second=second,
        apart=apart,
        ratio=ratio,
        allowed_relative=float(relative.max(initial=0.0)),
        allowed_ulps=float(ulps.max(initial=0.0)),
        integers=dtype.kind != "float",
    )


def _elements(count: int) -> str:
    return "element is" if count == 1 else "elements are"


def _times(ratio: float) -> str:
    return "infinitely many times" if math.isinf(ratio) else f"{ratio:.0f} times"
