"""Arithmetic: an execution without rounding, made to round, sum and approximate as a platform does.

Each instruction runs in float64. Then its sums are taken again in the platform's order and precision, its function gets
an error within the platform's bound, and what it stores is rounded once to float32 and to its dtype. An error of a
function is a hash of the value, so that equal values get equal errors; another seed is another implementation.

Left as they are but for the last rounding: sums over the partition axis by other instructions than a matmul, MX
matmuls, aggregated statistics, and what instructions do where cores or ranks meet.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.checks.precision import FP8
from nkireview.checks.recipes import recipes
from nkireview.checks.steps import ACTIVATIONS, main_operand, steps
from nkireview.checks.steps import Step as Taken
from nkireview.diagnosis.algebra.hooks import Running, beside, stepped
from nkireview.diagnosis.arithmetic import BORN, Stored, Work, works
from nkireview.diagnosis.noise import FLOAT32, RMS, ROUNDOFF
from nkireview.diagnosis.platforms import sums
from nkireview.diagnosis.platforms.table import Engine, Function, Platform
from nkireview.execute import Core, Operands, Step, psum
from nkireview.execute.matmul import Matmul
from nkireview.execute.storage import Operand
from nkireview.isa import act, alu, dtypes
from nkireview.isa.dtypes import BY_NAME, DataType
from nkireview.isa.table import ROWS
from nkireview.program.call import CallView
from nkireview.program.program import Program
from nkireview.program.scope import Scope

Array = NDArray[Any]
Float64 = NDArray[np.float64]

TABLES = frozenset({*ACTIVATIONS, "activate2", "exponential"})
"""Rows whose functions the Scalar engine's tables give, or for which nothing else is known."""
DIVIDING = frozenset({"power", "rsqrt", "divide", "reciprocal"})
EXACT = frozenset({"copy", "square", "relu", "prelu", "sign", "abs"})
"""Activation functions that are no more than a product or a selection."""
ROUNDED_AT_RANDOM = frozenset({"float16", "bfloat16", "tfloat32", *FP8})
SAME = 1e-12
"""Relative differences of two ways to compute the same in float64."""
TINY = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True)
class Recipe:
    """A call: its main operand, what it does to that step by step, and the function whose error it has.

    taken: the steps as written, none where they are not all known; held: with their numbers as float32.
    """

    main: str = ""
    taken: tuple[Taken, ...] = ()
    held: tuple[Taken, ...] = ()
    function: str = ""
    engine: Engine = "vector"


@dataclass(frozen=True, eq=False)
class Followed:
    """An instruction taken step by step: the argument of the last step, and where several or their numbers round, the
    result without rounding in between and with it."""

    argument: Float64
    exact: Float64 | None = None
    rounded: Float64 | None = None

    def instead_of(self, ran: Float64) -> Float64:
        """The rounded result in the place of what ran; that itself where the steps do not explain it."""
        if self.exact is None or self.rounded is None or self.exact.size != ran.size:
            return ran
        finite = np.isfinite(ran)
        size = float(np.abs(ran[finite]).max(initial=0.0))
        near = np.abs(self.exact.reshape(ran.shape) - ran) <= SAME * (np.abs(ran) + size)
        if not near[finite].all():
            return ran
        return np.where(finite, self.rounded.reshape(ran.shape), ran)


@dataclass(frozen=True, eq=False)
class Kinds:
    """What the instructions of a Program do, worked out once for all platforms; `exact`: stores that do not round."""

    work: Sequence[Work]
    work_of: Sequence[int]
    recipes: Sequence[Recipe]
    recipe_of: Sequence[int]
    exact: frozenset[int] = frozenset()

    @classmethod
    def of_program(cls, program: Program, exact: frozenset[int] = frozenset()) -> Kinds:
        """exact: instructions that store an output, which the caller rounds.

        Raise ProgramError where the header names an unknown target or release.
        """
        work, work_of = works(program, ROWS)
        found, of = recipes(Scope.of(program, ROWS), lambda call, _: _recipe(call), lambda _: Recipe())
        return cls(work, work_of, found, of.tolist(), exact)

    def functions(self) -> frozenset[tuple[str, Engine]]:
        """The functions that are taken, and where."""
        return frozenset((recipe.function, recipe.engine) for recipe in self.recipes if recipe.function)

    def casts(self) -> bool:
        """True where anything is rounded to a narrower float than float32."""
        return any(
            write.rounds and write.dtype.name in ROUNDED_AT_RANDOM
            for work in self.work
            for write in work.writes
        )


def _recipe(call: CallView) -> Recipe:
    name, main, taken = call.row.name, main_operand(call), steps(call) or ()
    engine: Engine = "scalar" if name in TABLES else "vector"
    if name == "exponential":
        shift = (Taken("subtract", operand="max_value"),) if call.has("max_value") else ()
        main, taken = "src", (*shift, Taken("exp"))
    if name in TABLES:
        function = taken[-1].op if name == "exponential" else str(call.imm("op"))
        function = "" if function in EXACT else function
    else:
        names = {str(call.imm(key)) for key in ("op", "op0", "op1") if call.imm(key) is not None} | {name}
        function = next((each for each in sorted(DIVIDING) if each in names), "")
    taken = taken if all(map(_known, taken)) else ()
    held = tuple(
        step if step.number is None else replace(step, number=_float32(step.number)) for step in taken
    )
    return Recipe(main, taken, held, function, engine)


def _known(taken: Taken) -> bool:
    """True for a step of floats that can be taken apart from its instruction."""
    if taken.op in alu.BY_NAME:
        op = alu.of(taken.op)
        return op.kind == "arithmetic" and (op.arity == 1 or taken.number is not None or bool(taken.operand))
    return taken.op in act.BY_NAME and not act.of(taken.op).needs


def _float32(number: float) -> float:
    return float(np.float32(number))


class Arithmetic:
    """One platform's arithmetic: an `around` of `execute` with ``compute=float64, rounding="off"``.

    even: errors of functions are all of one size, the rms of those they have otherwise, which are any within the bound.
    """

    def __init__(self, kinds: Kinds, platform: Platform, seed: int = 0, even: bool = False) -> None:
        self._kinds, self._platform, self._seed, self._even = kinds, platform, seed, even
        self._random = np.random.default_rng([seed, 0x51])

    def __call__(self, step: Step, core: Core, index: int, operands: Operands) -> None:
        """Run an instruction as the platform would."""
        work = self._kinds.work[self._kinds.work_of[index]]
        if step.row.name in BORN:
            step.run(core, index, operands)
            self._born(step, operands)
            return
        if not work.writes:
            step.run(core, index, operands)
            return
        recipe = self._kinds.recipes[self._kinds.recipe_of[index]]
        totals = [self._total(step, core, operands, write) for write in work.writes]
        followed = self._followed(step, core, operands, recipe)
        step.run(core, index, operands)
        results: dict[int, Float64] = {}
        for write, total in zip(work.writes, totals, strict=True):
            operand = operands[write.slot]
            if operand is None or write.dtype.kind != "float":
                continue
            values = np.array(operand.read(), np.float64)
            if write.sums == "results":
                total = self._of_results(step, operand, results.get(write.summed))
            elif write.sums in ("scan", "statistics") and total is None:
                total = self._scanned(values) if write.sums == "scan" else None
            if total is not None:
                finite = np.isfinite(values)
                values = np.where(finite, total.reshape(values.shape), values)
            dst = step.names[write.slot] == "dst"
            if write.rounds and dst and followed is not None:
                values = followed.instead_of(values)
            if write.rounds and dst and recipe.function:
                values = self._approximated(values, followed, recipe)
            results[write.slot] = values
            if write.rounds or total is not None:
                operand.put(self._stored(values, write.dtype, index))

    def _born(self, step: Step, operands: Operands) -> None:
        """Numbers that an instruction was given are rounded to its dtype by whoever gave them, to nearest even."""
        for at, _ in step.writes:
            operand = operands[at]
            if operand is not None and operand.form.kind.kind == "float":
                kind = operand.form.kind
                operand.put(dtypes.widened(dtypes.rounded(np.array(operand.read()), kind), kind, np.float64))

    def _followed(self, step: Step, core: Core, operands: Operands, recipe: Recipe) -> Followed | None:
        """An instruction step by step; None where it takes one step, or values that are not known."""
        operand = operands[step.slots[recipe.main]] if recipe.main in step.slots else None
        if not recipe.taken or operand is None or not operand.defined or operand.form.loads:
            return None
        running = Running(step, core, operands)
        given = np.array(running.value(recipe.main), np.float64)
        if len(recipe.taken) == 1 and recipe.taken == recipe.held:
            return Followed(given) if recipe.function else None

        def other(name: str) -> Array:
            return beside(running.value(name), given)

        exact = changed = argument = given
        for at, (taken, held) in enumerate(zip(recipe.taken, recipe.held, strict=True)):
            argument = changed
            exact, changed = stepped(exact, (taken,), other), stepped(changed, (held,), other)
            following = recipe.taken[at + 1].op if at + 1 < len(recipe.taken) else ""
            joined = taken.op == "multiply" and following in ("add", "subtract")
            if following and not (self._platform.contraction and joined):
                changed = self._float32(changed)
        return Followed(argument, exact, changed)

    def _total(self, step: Step, core: Core, operands: Operands, write: Stored) -> Float64 | None:
        """A sum of operands as the platform takes it; None where the exact one stands."""
        target = operands[write.slot]
        if target is None or write.dtype.kind != "float":
            return None
        if write.sums == "matmul":
            return self._product(step, core, operands, target) if isinstance(step, Matmul) else None
        source = operands[write.summed] if write.summed >= 0 else None
        if write.sums == "scan":
            return self._scan(step, core, operands)
        if source is None or write.sums not in ("reduce", "statistics") or not source.form.size:
            return None
        terms = np.asarray(source.load(core.formats), np.float64)
        if write.sums == "statistics":
            return self._statistics(terms, target) if step.row.name == "bn_stats" else None
        if step.immediates.get("op") != "add" or terms.size % target.form.size:
            return None
        total = self._line(terms.reshape(target.form.size, -1))
        return -total if step.immediates.get("negate") else total

    def _of_results(self, step: Step, operand: Operand, results: Float64 | None) -> Float64 | None:
        """The sum of what the same call stores, before that is rounded to its tile."""
        fresh = step.immediates.get("reduce_cmd") in (None, "reset_reduce", "idle")
        adds = str(step.immediates.get("reduce_op") or "add") == "add"
        if results is None or not (fresh and adds) or len(results) != operand.form.size:
            return None
        total = self._line(self._float32(results).reshape(len(results), -1))
        return -total if step.immediates.get("reduce_res_negate") else total

    def _line(self, terms: Float64) -> Float64:
        return sums.tree(terms) if self._platform.reduction == "tree" else sums.stream(terms)

    def _product(self, step: Matmul, core: Core, operands: Operands, target: Operand) -> Float64 | None:
        """What a matmul leaves in its place; None where its operands are no plain matrices."""
        found = _matrices(step, core, operands, target.form.size)
        asked = step.immediates.get("accumulate") is not None or not target.cell.psum
        if found is None or not (asked or isinstance(psum.state(target), int)):
            return None
        left, right, kind = found
        start = np.array(target.load(core.formats), np.float64) if step.adds(target) else None
        if start is not None:
            start = start.reshape(left.shape[1], right.shape[1])
        if self._platform.operands:
            wanted = BY_NAME[self._platform.operands]
            if kind.significand_bits > wanted.significand_bits:
                left, right, kind = _narrowed(left, wanted), _narrowed(right, wanted), wanted
        unit = self._platform.unit
        if unit is not None:
            products = unit.tf32_products if kind.name == "tfloat32" else unit.products
            return sums.blocks(start, left, right, products, unit)
        take = sums.fma_chain if self._platform.matmul == "fma" else sums.columns
        return take(start, left, right)

    def _statistics(self, terms: Float64, target: Operand) -> Float64 | None:
        """Count, mean and squared deviations of the even and of the odd elements, by sums in the platform's order."""
        rows = terms.reshape(len(terms), -1)
        found = np.zeros((len(rows), 6))
        if target.form.size != found.size:
            return None
        for at, part in ((0, rows[:, 0::2]), (3, rows[:, 1::2])):
            count = part.shape[1]
            if count:
                mean = self._float32(self._line(part) / count)
                deviations = self._float32(part - mean[:, None])
                squares = np.square(deviations)
                found[:, at], found[:, at + 1] = count, mean
                found[:, at + 2] = self._line(
                    squares if self._platform.contraction else self._float32(squares)
                )
        return found

    def _scan(self, step: Step, core: Core, operands: Operands) -> Float64 | None:
        """The states of a scan, each rounded to float32; None where the row is no scan of two tiles."""
        if step.row.name != "tensor_tensor_scan":
            return None
        running = Running(step, core, operands)
        left, right = (_rows(running.value(name)) for name in ("data0", "data1"))
        has_start = "initial" in step.slots and operands[step.slots["initial"]] is not None
        state: Float64 = np.full(len(left), step.immediates.get("initial") or 0.0)
        if has_start:
            state = _rows(running.value("initial"))[: len(left), 0].copy()
        ops = [alu.of(step.immediates[name]) for name in ("op0", "op1")]
        turned = [bool(step.immediates.get(name)) for name in ("reverse0", "reverse1")]
        joined = (
            self._platform.contraction and ops[0].name == "multiply" and ops[1].name in ("add", "subtract")
        )
        states = np.empty_like(left)
        for at in range(left.shape[1]):
            between = ops[0].fn(state, left[:, at]) if turned[0] else ops[0].fn(left[:, at], state)
            between = between if joined else self._float32(between)
            after = ops[1].fn(right[:, at], between) if turned[1] else ops[1].fn(between, right[:, at])
            state = states[:, at] = self._float32(after)
        return states

    def _scanned(self, values: Float64) -> Float64:
        """The states of another scan with the errors that additions one after the other have."""
        rows = _rows(values)
        steps_ = RMS * ROUNDOFF * np.abs(rows) * np.sqrt(3) * self._uniform(rows, "scan")
        return np.asarray(values + np.cumsum(steps_, axis=1).reshape(values.shape))

    def _approximated(self, values: Float64, followed: Followed | None, recipe: Recipe) -> Float64:
        """Values of a function with an error within the platform's bound."""
        row = self._platform.function(recipe.function, recipe.engine)
        if row is None:
            return values
        fits = followed is not None and followed.argument.size == values.size
        at = followed.argument.reshape(values.shape) if followed is not None and fits else None
        error = bound(row, values, at) * self._uniform(values, recipe.function)
        return np.where(np.isfinite(error), values + error, values)

    def _uniform(self, values: Float64, salt: str) -> Float64:
        """Numbers in [-1, 1) that are a function of the values and the seed."""
        # the last bits of a float64 result may depend on its place in the array
        bits = np.ascontiguousarray(values, np.float32).view(np.uint32).astype(np.uint64)
        mixed = bits + np.uint64((zlib.crc32(salt.encode()) << 32 ^ self._seed * 0x9E3779B97F4A7C15) % 2**64)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        mixed ^= mixed >> np.uint64(31)
        found = np.asarray((mixed >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1.0)
        return np.copysign(math.sqrt(1 / 3), found) if self._even else found

    def _float32(self, values: Float64) -> Float64:
        held = values.astype(np.float32).astype(np.float64)
        if self._platform.flush:
            held = np.where(np.abs(held) < TINY, np.copysign(0.0, held), held)
        return held

    def _stored(self, values: Float64, dtype: DataType, index: int) -> Float64:
        """Values as float32 results, then as they are stored."""
        if index in self._kinds.exact:
            return values if dtype.significand_bits >= FLOAT32.significand_bits else self._float32(values)
        held = self._float32(values)
        return held if dtype.name == FLOAT32.name else self.cast(held, dtype)

    def cast(self, values: Float64, dtype: DataType) -> Float64:
        """float32 numbers as a float dtype holds them: to nearest even, or at random where the platform does so."""
        if self._platform.stochastic and dtype.name in ROUNDED_AT_RANDOM:
            step = dtypes.ulp(values, dtype)
            low = np.floor(values / step)
            up = self._random.random(values.shape) < values / step - low
            values = np.where(np.isfinite(values), (low + up) * step, values)
        return dtypes.widened(dtypes.rounded(values, dtype), dtype, np.float64)


def bound(row: Function, values: Float64, argument: Float64 | None) -> Float64:
    """The largest error of a function's float64 values, by its arguments where they are known.

    The argument of an exponential is found from its value.
    """
    if argument is None and row.name == "exp":
        argument = np.log(np.abs(values))
    size = (
        np.zeros_like(values) if argument is None else np.abs(np.where(np.isfinite(argument), argument, 0.0))
    )
    steepness = row.slope * size
    ulps = row.ulps + (np.floor(steepness) if row.whole_slope else steepness)
    found = np.maximum(ulps * dtypes.ulp(values, FLOAT32), row.relative * np.abs(values))
    if argument is not None and (row.absolute or row.per_argument):
        inside = (argument >= row.over[0]) & (argument <= row.over[1])
        found = np.where(inside, np.maximum(found, row.absolute + row.per_argument * size), found)
    return np.asarray(found)


def _matrices(
    step: Matmul, core: Core, operands: Operands, size: int
) -> tuple[Float64, Float64, DataType] | None:
    """The operands of a matmul with the contraction first, and the wider of their dtypes."""
    stationary, moving = (operands[step.slots[name]] for name in ("stationary", "moving"))
    if stationary is None or moving is None:
        return None
    kinds = stationary.form.kind, moving.form.kind
    if any(kind.kind != "float" for kind in kinds):
        return None
    left, right = (
        np.asarray(each.load(core.formats), np.float64).reshape(each.form.shape[0], -1)
        for each in (stationary, moving)
    )
    if left.shape[1] * right.shape[1] != size:
        # double_row: the first free dimension holds the second half of the contraction
        half = 2 * len(left)
        if left.size % half or right.size % half:
            return None
        left, right = left.reshape(half, -1), right.reshape(half, -1)
    if left.shape[1] * right.shape[1] != size:
        return None
    return left, right, max(kinds, key=lambda kind: kind.significand_bits)


def _narrowed(values: Float64, dtype: DataType) -> Float64:
    return dtypes.widened(dtypes.rounded(values, dtype), dtype, np.float64)


def _rows(values: Array) -> Float64:
    return np.asarray(values, np.float64).reshape(len(values), -1)
