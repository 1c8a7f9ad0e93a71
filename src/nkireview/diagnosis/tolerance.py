"""How far an output may be from its reference by rounding alone, element by element, derived from the Program."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.checks.dataflow import flow_of
from nkireview.checks.reduction import reduction_lengths
from nkireview.diagnosis.arithmetic import Work, works
from nkireview.diagnosis.granting import coarsest, granted
from nkireview.diagnosis.noise import FLOAT32, RMS, Granted, Noise
from nkireview.diagnosis.ties import Integers, Moved, bands
from nkireview.execute import Around, execute
from nkireview.isa import dtypes
from nkireview.isa.table import ROWS
from nkireview.numerics.arrays import PIECE, as_rows, pieces, root_mean_square, windows
from nkireview.program.edited import edited
from nkireview.program.program import Program

Array = NDArray[Any]
Float64 = NDArray[np.float64]

SIGMAS = 12.0
"""Standard deviations that are allowed for. The partial sums of one order are up to three times what they are on
average, and the errors of a row share a part of which few samples tell little: tests/test_diagnosis_tolerance.py."""
SAMPLES = 16
"""Samples of the noise that are taken at most."""
MANY, THINNED = 512, 4
"""Instructions from which on one matmul of `THINNED` gets the noise of all."""
GLANCED = 4096
"""Elements that are looked at before all are."""
FITTED = 64
"""Rows, and columns, of a large output by which its model is fitted."""
INHERENT = 2
"""Runs with moved arguments that show how far the computation itself enlarges errors."""
GATE = 8.0
"""Times the roundoff of a sum from which the spread of an output is held against that."""
STABLE = 12.0
"""Times what a sum of its length may add to it that a stable way of computing enlarges errors at most."""
PRIOR = 8.0
"""How many samples the pooled spread of neighbours counts as beside those of the element itself."""
SMALLEST = 2.0**-46
"""Relative rounding errors of the float64 run and of the reference."""


@dataclass(frozen=True)
class Used:
    """How much of what is allowed an output uses: the largest share, where, flat, and how many elements exceed 1.

    largest: 0 where there are no elements, NaN where some share is no number.
    """

    largest: float
    place: int
    over: int
    elements: int


@dataclass(frozen=True, eq=False)
class Tolerance:
    """What rounding explains of one output.

    exact: the Program's own result without any rounding, float64. spread: one standard deviation of what rounding on
    the way adds, and as much of it as makes up for numbers of the Program that are held in float32; last: the error of
    storing the output itself. `allowed` is `SIGMAS` of the first and all of the other.
    """

    dtype: str
    exact: Float64
    spread: Float64
    last: Float64

    @cached_property
    def allowed(self) -> Float64:
        """The largest absolute error that rounding explains, for each element."""
        found = SIGMAS * self.spread
        found += self.last
        return np.asarray(found)

    def use(self, got: Float64, wanted: Float64) -> Float64:
        """The share of the allowed error that each element uses; infinite for a NaN or infinity that is not wanted.

        got: numbers of the output's dtype, or unrounded ones. wanted: the float64 reference.
        """
        found = np.empty(got.shape)
        flat = found.reshape(-1)
        for piece in pieces(got.size):
            flat[piece] = self._use(got, wanted, piece)
        return found

    def used(self, got: Float64, wanted: Float64) -> Used:
        """What `use` holds in short."""
        largest, place, over = 0.0, 0, 0
        for piece in pieces(got.size):
            use = self._use(got, wanted, piece)
            at = int(use.argmax())
            if not (use[at] <= largest or math.isnan(largest)):
                largest, place = float(use[at]), piece.start + at
            over += int(np.count_nonzero(use > 1))
        return Used(largest, place, over, got.size)

    def holds(self, got: Float64, wanted: Float64) -> bool:
        """True where every element is within what is allowed; a few are looked at first."""
        first = slice(None, None, max(got.size // GLANCED, 1))
        return all(
            bool((self._use(got, wanted, piece) <= 1).all()) for piece in chain([first], pieces(got.size))
        )

    def _use(self, got: Float64, wanted: Float64, piece: slice) -> Float64:
        """`use` of some elements, flat."""
        allowed = SIGMAS * self.spread.reshape(-1)[piece]
        allowed += self.last.reshape(-1)[piece]
        return _use(got.reshape(-1)[piece], wanted.reshape(-1)[piece], allowed, dtypes.BY_NAME[self.dtype])


def _use(got: Float64, wanted: Float64, allowed: Float64, dtype: dtypes.DataType) -> Float64:
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        error = got - wanted
        np.abs(error, out=error)
        use = error / allowed
        if not error.all():
            use[error == 0] = 0.0
        largest = float(np.abs(wanted).max(initial=0.0))
        if np.isfinite(use).all() and largest <= dtype.max_finite:
            return np.asarray(use)
    stored = wanted
    if dtype.kind == "float":
        stored = dtypes.to_compute(dtypes.cast(wanted, dtype), dtype, np.float64)
    finite = np.isfinite(got) & np.isfinite(stored)
    same = (got == stored) | (np.isnan(got) & np.isnan(stored)) | (got == wanted)
    return np.asarray(np.where(finite, use, np.where(same, 0.0, np.inf)))


@dataclass(frozen=True, eq=False)
class Derivation:
    """Derives tolerances of one Program for any arguments; what depends on the Program alone is worked out once.

    terms: the longest sum on the way to each output. held: the Program with its numbers as engines hold them; itself
    where that makes no difference. roundoff: the coarsest that an intermediate, or such a number, is granted.
    """

    program: Program
    kinds: Sequence[Work]
    of: Sequence[int]
    granted: Granted
    terms: Sequence[int]
    held: Program
    roundoff: float

    @classmethod
    def of_program(cls, program: Program) -> Derivation:
        """Raise ProgramError where the header names an unknown target or release."""
        kinds, of = works(program, ROWS)
        allowed = granted(program, kinds, of, flow_of(program))
        held, roundoff = _held(program, kinds, of)
        return cls(
            program,
            kinds,
            of,
            allowed,
            reduction_lengths(program, ROWS),
            held,
            max(_coarsest(kinds, of, allowed), roundoff),
        )

    def run(
        self, arguments: Mapping[int, Array], around: Around | None = None, program: Program | None = None
    ) -> list[Float64]:
        """The outputs without any rounding of floats but what `around` does; `program`: one edited from its own."""
        found = execute(program or self.program, arguments, compute=np.float64, rounding="off", around=around)
        return [np.asarray(output.values, np.float64) for output in found.outputs]

    def noise(self, seed: int) -> Noise:
        """The noise of one sample."""
        many = len(self.program) > MANY
        return Noise(self.kinds, self.of, self.granted, seed, THINNED if many else 1)

    def tolerances(
        self,
        arguments: Mapping[int, Array],
        wanted: Sequence[Float64] | None = None,
        *,
        seconds: float = math.inf,
        samples: int = SAMPLES,
    ) -> tuple[Tolerance, ...]:
        """For each output what rounding explains on these arguments.

        arguments: an array in storage dtype for each parameter buffer. wanted: what the outputs should be; where they
        are larger than that, their roundings are taken to be those of what they should be. seconds: no further sample
        is begun that would not end in time, but for the first. samples: how many are taken at most.
        """
        before = Integers(self.kinds, self.of)
        exact = self.run(arguments, before)
        found, integers = self.samples(arguments, seconds, samples)
        return self.combined(arguments, exact, found, before.found, integers, wanted)

    def samples(
        self,
        arguments: Mapping[int, Array],
        seconds: float,
        samples: int = SAMPLES,
        watch: Callable[[Around], Around] = lambda noise: noise,
    ) -> tuple[list[list[Float64]], list[Mapping[int, Float64]]]:
        """Outputs under noise, and what became integers in them; `watch` may look at the instructions as well."""
        started = last = time.monotonic()
        found: list[list[Float64]] = []
        integers: list[Mapping[int, Float64]] = []
        for seed in range(samples):
            inner = Integers(self.kinds, self.of, self.noise(seed))
            found.append(self.run(arguments, watch(inner), self.held))
            integers.append(inner.found)
            now = time.monotonic()
            if now - started + (now - last) > seconds:
                break
            last = now
        return found, integers

    def combined(
        self,
        arguments: Mapping[int, Array],
        exact: Sequence[Float64],
        samples: Sequence[Sequence[Float64]],
        before: Mapping[int, Float64],
        integers: Sequence[Mapping[int, Float64]],
        wanted: Sequence[Float64] | None = None,
    ) -> tuple[Tolerance, ...]:
        """The tolerances from an exact run and samples of the noise, with what became integers in each."""
        with np.errstate(invalid="ignore", over="ignore"):  # infinities from themselves
            flips = self._flips(arguments, exact, before, integers)
            held = exact if self.held is self.program else self.run(arguments, program=self.held)
            spreads = [_spread(one, [sample[at] for sample in samples]) for at, one in enumerate(held)]
            if held is not exact:
                for spread, one, other in zip(spreads, held, exact, strict=True):
                    spread += _size(one - other) / SIGMAS
            spreads = self._stable(arguments, exact, spreads)
            return tuple(
                self._tolerance(at, exact[at], spreads[at], flips[at], None if wanted is None else wanted[at])
                for at in range(len(self.program.outputs))
            )

    def _flips(
        self,
        arguments: Mapping[int, Array],
        exact: Sequence[Float64],
        before: Mapping[int, Float64],
        integers: Sequence[Mapping[int, Float64]],
    ) -> list[Float64 | None]:
        """How far integers move an output that rounding decides between; None where there are none."""
        moved = bands(before, integers, SIGMAS) if before else {}
        if not moved:
            return [None] * len(exact)
        most = [np.zeros_like(each) for each in exact]
        for sign in (1.0, -1.0):
            other = self.run(arguments, Moved(self.kinds, self.of, moved, sign))
            for so_far, new, old in zip(most, other, exact, strict=True):
                np.maximum(so_far, np.nan_to_num(np.abs(new - old), nan=0.0, posinf=0.0), out=so_far)
        return list(most)

    def _stable(
        self, arguments: Mapping[int, Array], exact: Sequence[Float64], spreads: Sequence[Float64]
    ) -> list[Float64]:
        """The spreads, no larger than those of a way to compute the same that does not enlarge its roundings."""
        enlarged = [
            root_mean_square(spread) > GATE * self.roundoff * math.sqrt(terms) * root_mean_square(one)
            for spread, one, terms in zip(spreads, exact, self.terms, strict=True)
        ]
        if not any(enlarged):
            return list(spreads)
        inherent = [np.zeros_like(each) for each in exact]
        for seed in range(INHERENT):
            moved = self.run(self._moved(arguments, seed))
            for total, new, old in zip(inherent, moved, exact, strict=True):
                total += _squares(new - old) / INHERENT
        found = []
        for at, spread in enumerate(spreads):
            if not enlarged[at]:
                found.append(spread)
                continue
            own = _pooled(inherent[at], exact[at], INHERENT)
            least = self.roundoff * _size(exact[at])
            most = STABLE * RMS * math.sqrt(self.terms[at]) * np.maximum(own, least)
            found.append(np.minimum(spread, most))
        return found

    def widened(self, arguments: Mapping[int, Array]) -> dict[int, Array]:
        """The floating arguments in float64, for several runs without rounding."""
        found: dict[int, Array] = {}
        for buffer, given in arguments.items():
            dtype = dtypes.BY_NAME[self.program.buffer(buffer).dtype]
            found[buffer] = _wide(given, dtype) if dtype.kind == "float" else given
        return found

    def _moved(self, arguments: Mapping[int, Array], seed: int) -> dict[int, Array]:
        """The floating arguments moved by a rounding error, in float64."""
        generator = np.random.default_rng([seed, 0x1D])
        found: dict[int, Array] = {}
        for buffer, given in arguments.items():
            dtype = dtypes.BY_NAME[self.program.buffer(buffer).dtype]
            if dtype.kind != "float":
                found[buffer] = given
                continue
            wide = _wide(given, dtype)
            found[buffer] = wide * (1 + RMS * self.roundoff * generator.standard_normal(wide.shape))
        return found

    def _tolerance(
        self, at: int, exact: Float64, spread: Float64, flips: Float64 | None, wanted: Float64 | None
    ) -> Tolerance:
        """The tolerance of one output; changes `spread`."""
        dtype = dtypes.BY_NAME[self.program.access(self.program.outputs[at].access).dtype]
        if dtype.kind != "float":
            none = np.zeros(exact.shape)
            return Tolerance(dtype.name, exact, none, none if flips is None else flips)
        last = np.empty(exact.shape)
        spreads, lasts, should = as_rows(spread), as_rows(last), as_rows(exact if wanted is None else wanted)
        moved = None if flips is None else as_rows(flips)
        share = None if wanted is None else _smaller(should, as_rows(exact))
        for part in windows(*lasts.shape, most=PIECE):
            own, size = spreads[part], _size(should[part])
            if not math.isfinite(float(own.sum())):
                own[~np.isfinite(own)] = 0.0  # of what float32 does not hold anyway
            if share is not None:
                own *= share[part[0]]
            own += SMALLEST / SIGMAS * size
            size += SIGMAS * own
            if moved is not None:
                size += moved[part]
            lasts[part] = dtypes.ulp(size, dtype)
            lasts[part] /= 2
            if moved is not None:
                lasts[part] += moved[part]
        return Tolerance(dtype.name, exact, spread, last)


def _coarsest(kinds: Sequence[Work], of: Sequence[int], allowed: Granted) -> float:
    """The coarsest roundoff of an intermediate that is granted to round."""
    found = dtypes.unit_roundoff(FLOAT32)
    rounding = [
        max(
            (dtypes.unit_roundoff(w.dtype) for w in kind.writes if w.rounds and w.dtype.kind == "float"),
            default=0.0,
        )
        for kind in kinds
    ]
    for index, number in enumerate(of):
        if rounding[number] > found and index not in allowed.exact and index not in allowed.wide:
            found = rounding[number]
    return found


def _held(program: Program, kinds: Sequence[Work], of: Sequence[int]) -> tuple[Program, float]:
    """The Program whose numbers are those of float32, and the coarsest roundoff of one that is not.

    Those of a memset, and those that others choose from, are stored as they are: they are their tile's, where that may
    be so coarse.
    """
    least = coarsest(program)
    memset = np.array([opcode.name == "memset" for opcode in program.opcodes], bool)
    numbers = [
        {key: value for key, value in given.items() if type(value) is float} for given in program.immediates
    ]
    columns = program.columns
    made: dict[tuple[int, str], dict[str, Any]] = {}
    changed: dict[int, dict[str, Any]] = {}
    roundoff = dtypes.unit_roundoff(FLOAT32)
    some = np.array([bool(each) for each in numbers], bool)
    for index in np.flatnonzero(some[columns.immediates]).tolist():
        number, name = int(columns.immediates[index]), FLOAT32.name
        tile, writes = FLOAT32, kinds[of[index]].writes
        if memset[columns.opcode[index]]:
            access = columns.operand[columns.operand_at[index]]
            tile = dtypes.BY_NAME[program.dtypes[columns.access_dtype[access]]]
        elif writes and not writes[0].rounds:
            tile = writes[0].dtype
        if tile.kind == "float" and FLOAT32.significand_bits > tile.significand_bits:
            name = tile.name if dtypes.unit_roundoff(tile) <= least else name
        if (number, name) not in made:
            dtype = dtypes.BY_NAME[name]
            given = {key: float(dtypes.cast(value, dtype)) for key, value in numbers[number].items()}
            made[number, name] = {**program.immediates[number], **given}
        if made[number, name] != program.immediates[number]:
            changed[index] = made[number, name]
            roundoff = max(roundoff, dtypes.unit_roundoff(dtypes.BY_NAME[name]))
    return (edited(program, changed) if changed else program), roundoff


def _squares(error: Float64) -> Float64:
    with np.errstate(invalid="ignore", over="ignore"):
        squares = np.square(error)
        if not math.isfinite(float(squares.sum())):
            squares[~np.isfinite(squares)] = 0.0
        return squares


def _wide(given: Array, dtype: dtypes.DataType) -> Array:
    """A floating argument, in its storage dtype or in float64 already, in float64."""
    return given if given.dtype == np.float64 else dtypes.to_compute(given, dtype, np.float64)


def _spread(exact: Float64, samples: Sequence[Float64]) -> Float64:
    """The standard deviation of what noise adds."""
    found = np.empty(exact.shape)
    total, want, have = as_rows(found), as_rows(exact), [as_rows(sample) for sample in samples]
    for part in windows(*total.shape, most=PIECE):
        squares = _squares(have[0][part] - want[part])
        for sample in have[1:]:
            squares += _squares(sample[part] - want[part])
        squares /= len(samples)
        total[part] = squares
    return _pooled(found, exact, len(samples))


def _smaller(wanted: Float64, have: Float64) -> Float64:
    """For each row how many times smaller it should be than it is; at most 1, as a column."""
    should, held = (_largest(each) for each in (wanted, have))
    return np.minimum(np.divide(should, held, out=np.ones_like(held), where=held > 0), 1.0)


def _largest(rows: Float64) -> Float64:
    """The largest magnitude of each row that is finite, 0 where there is none, as a column."""
    found = np.zeros((len(rows), 1))
    for part in windows(*rows.shape, most=PIECE):
        most = found[part[0]]
        np.maximum(most, _size(rows[part]).max(axis=1, keepdims=True), out=most)
    return found


def _size(values: Float64) -> Float64:
    """Magnitudes, 0 for what is not finite."""
    size = np.abs(values)
    if not math.isfinite(float(size.sum())):
        size[~np.isfinite(size)] = 0.0
    return size


def _pooled(mean: Float64, exact: Float64, count: int) -> Float64:
    """The roots of mean squared errors of few samples, drawn towards what rows, columns and magnitudes have in common.

    The model is a_i c_j + b_i x^2: an error of the row and of the column, and one that is relative to the element. Of
    large outputs the rows are fitted on some columns, and the columns on some rows. Changes and gives `mean`.
    """
    if mean.size < 2:
        return np.sqrt(mean, out=mean)
    rows, values = as_rows(mean), as_rows(exact)
    tall, wide = (slice(None, None, max(length // FITTED, 1)) for length in rows.shape)
    columns = np.ones((1, rows.shape[1]))
    some, beside = np.ascontiguousarray(rows[:, wide]), np.square(_size(values[:, wide]))
    sizes = beside.mean(axis=1, keepdims=True)
    constant = relative = np.zeros_like(sizes)
    few, fewer = rows[tall], np.square(_size(values[tall]))
    for _ in range(2):
        constant, relative = _fit(some, np.broadcast_to(columns[:, wide], some.shape), beside)
        constant, relative = _shared(constant, sizes, count), _shared(relative, np.ones_like(sizes), count)
        left = np.maximum(few - relative[tall] * fewer, 0)
        columns = left.sum(axis=0, keepdims=True)
        total = float(columns.mean())
        columns = columns / total if total > 0 else np.ones_like(columns)
    # an error that no element of the row has shown is none that the model may expect
    most = rows.max(axis=1, keepdims=True)
    for part in windows(*rows.shape, most=PIECE):
        across, along = part
        model = np.square(_size(values[part]))
        model *= relative[across]
        model += constant[across] * columns[:, along]
        np.minimum(model, most[across], out=model)
        model *= PRIOR
        model += count * rows[part]
        model /= count + PRIOR
        np.sqrt(model, out=rows[part])
    return mean


def _shared(found: Float64, sizes: Float64, count: int) -> Float64:
    """What rows have of an error, drawn towards what all have in proportion to `sizes`."""
    total = float(sizes.sum())
    common = float(found.sum()) / total if total > 0 else 0.0
    return np.asarray((count * found + PRIOR * common * sizes) / (count + PRIOR))


def _fit(rows: Float64, constant: Float64, values: Float64) -> tuple[Float64, Float64]:
    """For each row the least squares a, b of rows = a constant + b values, neither of them negative.

    Large errors vary most, so that they are given less weight.
    """
    weight = np.ones_like(rows)
    a = b = np.zeros((len(rows), 1))
    for _ in range(3):
        cc, cv = (
            (weight * constant**2).sum(1, keepdims=True),
            (weight * constant * values).sum(1, keepdims=True),
        )
        vv = (weight * values**2).sum(1, keepdims=True)
        cy, vy = (
            (weight * constant * rows).sum(1, keepdims=True),
            (weight * values * rows).sum(1, keepdims=True),
        )
        determinant = cc * vv - cv**2
        regular = determinant > 1e-9 * cc * vv
        safe = np.where(regular, determinant, 1.0)
        a = np.where(regular, (cy * vv - vy * cv) / safe, 0.0)
        b = np.where(regular, (vy * cc - cy * cv) / safe, 0.0)
        alone_a = np.divide(cy, cc, out=np.zeros_like(cy), where=cc > 0)
        alone_b = np.divide(vy, vv, out=np.zeros_like(vy), where=vv > 0)
        a, b = (
            np.where(b < 0, alone_a, np.where(regular, np.maximum(a, 0), alone_a)),
            np.where(a < 0, alone_b, np.where(regular, np.maximum(b, 0), 0.0)),
        )
        model = a * constant + b * values
        floor = 1e-3 * model.mean(1, keepdims=True) + np.finfo(np.float64).tiny
        weight = 1 / np.square(np.maximum(model, floor) / np.maximum(floor, np.finfo(np.float64).tiny))
    return a, b
