"""Noise: what rounding may do to the values of an unrounded run, drawn anew for each sample.

A store rounds on its dtype's grid, moved by a random factor: equal values get equal errors, as real rounding gives
them, none larger than a roundoff of the value. A sum gets the error that a random order of its terms has: the squares
of its partial sums add up to K (T^2 + T E + E^2) / 3 + K/6 (Q - S^2/K), with T and E what the accumulator held before
and after, S the sum of the K terms and Q that of their squares; sequential addition is one such order. Where several
operations follow one another in float32, their operands move by a relative error of the first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from nkireview.checks.stored import ADDING
from nkireview.diagnosis.arithmetic import Stored, Work
from nkireview.diagnosis.matrices import matrices
from nkireview.execute import Core, Operands, Step
from nkireview.execute.matmul import Matmul
from nkireview.execute.storage import Operand
from nkireview.isa import dtypes
from nkireview.isa.dtypes import BY_NAME, DataType

Float64 = NDArray[np.float64]

FLOAT32 = BY_NAME["float32"]
POOL, POOLS = 1 << 18, 16
# The rms of a relative rounding error whose mantissa is log-uniform, as a share of the unit roundoff:
# sqrt(1/3 * 3 / (8 ln 2)).
RMS = math.sqrt(1 / (8 * math.log(2)))
ROUNDOFF = dtypes.unit_roundoff(FLOAT32)
# NumPy's float32 functions are within a few units in the last place, most of them within one.
FUNCTION = 2.0


@dataclass(frozen=True)
class Granted:
    """Which stores may round: to their own dtype; those of `exact` to nothing, those of `wide` as float32 would.

    exact: instructions whose store is the rounding of an output, which is judged apart. wide: instructions that store
    in fewer digits than the task grants.
    """

    exact: frozenset[int] = frozenset()
    wide: frozenset[int] = frozenset()


class Noise:
    """One sample, for one execution in float64 without rounding: an `around` of `execute`.

    every: one matmul of so many, chosen at random, gets the error of all of them.
    """

    def __init__(
        self, kinds: Sequence[Work], of: Sequence[int], granted: Granted, seed: int, every: int = 1
    ) -> None:
        self._kinds, self._of, self._granted, self._every = kinds, of, granted, every
        self._random = np.random.default_rng([seed, 0x5EED])
        self._pool = _pool(seed % POOLS)

    def __call__(self, step: Step, core: Core, index: int, operands: Operands) -> None:
        """Run an instruction and add what rounding may have done."""
        work = self._kinds[self._of[index]]
        if not work.writes:
            return step.run(core, index, operands)
        if self._every > 1 and work.writes[0].sums == "matmul" and self._random.integers(self._every):
            return step.run(core, index, operands)
        before = [self._before(step, operands[write.slot], write) for write in work.writes]
        apart = self._apart(step, core, operands)
        moved = self._chained(step, core, work, operands)
        step.run(core, index, operands)
        for changed, saved in moved:
            changed.target()[...] = saved
        written = operands[work.writes[0].slot]
        if apart is not None and written is not None and written.plain:
            written.target()[...] += apart.reshape(written.form.shape)
        for write, old in zip(work.writes, before, strict=True):
            operand = operands[write.slot]
            if operand is not None and operand.plain and write.dtype.kind == "float":
                self._stored(step, core, index, operands, operand, work, write, old)
        return None

    def _before(self, step: Step, operand: Operand | None, write: Stored) -> Float64 | None:
        """What an accumulator holds before the call; None where nothing is added to it."""
        if write.sums != "matmul" or operand is None or not operand.plain or not isinstance(step, Matmul):
            return None
        return np.array(operand.read(), np.float64) if step.adds(operand) else None

    def _chained(
        self, step: Step, core: Core, work: Work, operands: Operands
    ) -> list[tuple[Operand, Float64]]:
        """Move the operands of several operations; those that the call does not overwrite, with their old values."""
        if not work.chained:
            return []
        written = {
            id(operand.cell.store) for write in work.writes if (operand := operands[write.slot]) is not None
        }
        saved = []
        for slot in work.chained:
            operand = operands[slot]
            if operand is None or not operand.plain or not operand.defined:
                continue
            if operand.form.kind.kind != "float" or operand.form.loads:
                continue
            operand.cell.store.own()
            values = operand.target()
            if id(operand.cell.store) not in written:
                saved.append((operand, values.copy()))
            values += RMS * ROUNDOFF * _sizes(step, core, operands, values) * self._normal(values.shape)
        return saved

    def _apart(self, step: Step, core: Core, operands: Operands) -> Float64 | None:
        """The error of the first operation where the second adds the same tile: moving that would move both."""
        if step.row.name != "scalar_tensor_tensor" or step.immediates.get("op1") not in ADDING:
            return None
        data, other = operands[step.slots["data"]], operands[step.slots["operand1"]]
        if data is None or other is None or data.cell.store is not other.cell.store or not data.defined:
            return None
        values = np.asarray(data.load(core.formats), np.float64)
        return np.asarray(RMS * ROUNDOFF * _sizes(step, core, operands, values) * self._normal(values.shape))

    def _stored(
        self,
        step: Step,
        core: Core,
        index: int,
        operands: Operands,
        operand: Operand,
        work: Work,
        write: Stored,
        old: Float64 | None,
    ) -> None:
        if not (write.rounds or write.sums) or operand.form.loads:
            return
        values = operand.target()
        if write.sums:
            error = self._sum(step, core, operands, write, values, old)
            if error is not None:
                values += error
        if not write.rounds:
            return
        if work.function:
            values *= 1 + RMS * FUNCTION * ROUNDOFF * self._normal(values.shape)
        dtype = write.dtype
        if index in self._granted.exact:
            if dtype.significand_bits >= FLOAT32.significand_bits:
                return
            dtype = FLOAT32
        elif index in self._granted.wide:
            dtype = FLOAT32
        self._round(values, dtype)

    def _round(self, values: Float64, dtype: DataType) -> None:
        """Round in place, on a grid moved at random; what the dtype does not hold stays."""
        if dtype.numpy is None:
            dtype = FLOAT32 if dtype.significand_bits >= FLOAT32.significand_bits else dtype
        factor = 2.0 ** -float(self._random.random())
        # by way of float32, in which engines compute
        scaled = np.asarray(values * factor, np.float32)
        held = dtypes.widened(dtypes.rounded(scaled, dtype), dtype, np.float32)
        where = True if math.isfinite(float(held.sum())) else np.isfinite(held)
        np.divide(held, factor, out=values, where=where, dtype=np.float64)

    def _sum(
        self,
        step: Step,
        core: Core,
        operands: Operands,
        write: Stored,
        values: Float64,
        old: Float64 | None,
    ) -> Float64 | None:
        """The error of a sum, in the shape of what is written; None where it has none."""
        spread: Float64 | None
        if write.sums == "statistics":
            spread = np.abs(values) * math.sqrt(_columns(operands[write.summed]) / 3)
        elif write.sums == "scan":
            steps = ROUNDOFF * RMS * np.abs(values) * self._normal(values.shape)
            return np.asarray(np.cumsum(steps.reshape(len(values), -1), axis=1).reshape(values.shape))
        elif write.sums == "matmul":
            spread = _product(step, core, operands, values, old)
            if spread is not None and self._every > 1:
                spread *= math.sqrt(self._every)
        else:
            spread = _reduced(core, operands[write.summed], values)
        if spread is None:
            return None
        spread *= RMS * ROUNDOFF
        spread *= self._normal(values.shape)
        return spread

    def _normal(self, shape: tuple[int, ...]) -> Float64:
        """Normal numbers, taken from a pool at a random place."""
        count = math.prod(shape)
        if count >= POOL:
            found = np.resize(self._pool, count + POOL)
            at = int(self._random.integers(POOL))
            return found[at : at + count].reshape(shape)
        at = int(self._random.integers(POOL - count))
        return self._pool[at : at + count].reshape(shape)


@cache
def _pool(number: int) -> Float64:
    """Normal numbers, drawn once: samples differ in the places from which they are taken as well."""
    found = np.random.default_rng([number, 0xB00]).standard_normal(POOL)
    found.flags.writeable = False
    return found


def _sizes(step: Step, core: Core, operands: Operands, values: Float64) -> Float64:
    """The magnitudes at which the first of several operations rounds."""
    offset = _offset(step, core, operands)
    return np.asarray(np.abs(values) + offset.reshape(offset.shape + (1,) * (values.ndim - offset.ndim)))


def _offset(step: Step, core: Core, operands: Operands) -> Float64:
    """The size of what the first of several operations adds: its result may be as large, and is rounded as such."""
    none = np.zeros(())
    if step.immediates.get("op0") not in ADDING:
        return none
    slot = step.slots.get("operand0")
    operand = None if slot is None else operands[slot]
    if operand is None:
        given = step.immediates.get("operand0")
        return np.abs(np.float64(given)) if isinstance(given, (int, float)) else none
    if not operand.plain or not operand.defined:
        return none
    return np.abs(np.asarray(operand.load(core.formats), np.float64).reshape(operand.form.shape[0], -1)[:, 0])


def _columns(operand: Operand | None) -> int:
    return 1 if operand is None else operand.form.size // max(operand.form.partitions, 1)


def _product(
    step: Step, core: Core, operands: Operands, values: Float64, old: Float64 | None
) -> Float64 | None:
    """The root of the squared partial sums of a matmul; None where its operands are no plain matrices."""
    sides = matrices(step, core, operands, values.size)
    if sides is None:
        return None
    left, right = sides
    terms = len(left)
    squares = np.square(left).T @ np.square(right)
    end = values.reshape(squares.shape)
    start = 0.0 if old is None else old.reshape(squares.shape)
    return np.asarray(partial_sums(start, end, squares, terms).reshape(values.shape))


def _reduced(core: Core, operand: Operand | None, values: Float64) -> Float64 | None:
    """The root of the squared partial sums of a reduction along the free axes."""
    if operand is None or not values.size:
        return None
    terms = np.asarray(operand.load(core.formats), np.float64)
    if terms.size % values.size:
        return None
    rows = terms.reshape(values.size, -1) if values.ndim <= 2 and values.size == len(terms) else None
    if rows is None:
        # reduced axes that are not the last ones: the mean square stands for each
        squares = np.full(values.shape, float(np.mean(np.square(terms))) * (terms.size // values.size))
    else:
        squares = np.square(rows).sum(axis=1).reshape(values.shape)
    return partial_sums(0.0, values, squares, terms.size // values.size)


def partial_sums(start: Float64 | float, end: Float64, squares: NDArray[np.floating], terms: int) -> Float64:
    """The root of the expected sum of the squares of all partial sums on the way from `start` to `end`.

    squares: the sum of the squares of the `terms` terms, which come in random order. Their products count once more.
    """
    spread = np.asarray(end - start)
    np.square(spread, out=spread)
    spread /= -terms
    spread += squares
    np.maximum(spread, 0, out=spread)
    spread *= terms / 6
    spread += squares
    line = np.asarray(start + end)
    line *= start
    line += np.square(end)
    line *= terms / 3
    spread += line
    np.maximum(spread, 0, out=spread)
    return np.asarray(np.sqrt(spread, out=spread))
