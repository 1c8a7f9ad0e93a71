"""Stores of floats as integers, and what lies beyond the range of what follows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from nkireview.checks.dataflow import Dataflow, Slot
from nkireview.checks.precision import largest
from nkireview.checks.steps import main_operand, steps
from nkireview.diagnosis.flows.acting import Acting, After, Float64, operand, repeatable, values, write
from nkireview.diagnosis.flows.lines import Line, Lines
from nkireview.diagnosis.repair import Repair
from nkireview.execute import Core, Operands, Step
from nkireview.isa import act, dtypes
from nkireview.isa.row import Bits
from nkireview.program.call import CallView
from nkireview.program.storage import READS

MOST = 8
"""Lines that are tried."""


def _away(x: Float64) -> Float64:
    found: Float64 = np.copysign(np.floor(np.abs(x) + 0.5), x)
    return found


WAYS: Mapping[str, Callable[[Float64], Float64]] = {
    "truncated": np.trunc,
    "rounded down": np.floor,
    "rounded up": np.ceil,
    "rounded half away from zero": _away,
    "rounded half up": lambda x: np.floor(x + 0.5),
}
"""Other ways to an integer than the store's, which rounds to nearest even."""
HALVES: Mapping[str, Callable[[Float64], Float64]] = {
    "rounded to nearest even": lambda x: x,
    **WAYS,
}
"""Ways to an integer where one half was added or taken away before the store."""


class Rounded(Acting):
    """Stores integers by another way, made of the result as it was before it was rounded.

    lines: instructions with what is added to the result first. Results that are no numbers, and of instructions that
    must not run twice, stay.
    """

    def __init__(self, shifts: Mapping[int, float], way: Callable[[Float64], Float64]) -> None:
        super().__init__()
        self._shifts, self._way = shifts, way

    def act(self, step: Step, core: Core, index: int, operands: Operands) -> None:
        """See `Acting`."""
        shift = self._shifts.get(index)
        target = operand(step, operands, "dst") if shift is not None else None
        found = None
        if shift is not None and target is not None and repeatable(step):
            core.values.bind(step, operands, step.immediates)
            result = core.values.results().get("dst")
            if result is not None and not isinstance(result, Bits) and result.dtype.kind == "f":
                found = self._way(np.asarray(result, np.float64) + shift)
        step.run(core, index, operands)
        if found is not None and target is not None and found.size == target.form.size:
            write(core, target, found)


class Clamped(Acting):
    """Clamps what some instructions read by one operand to a range, for them alone."""

    def __init__(self, line: Line, name: str, low: float, high: float) -> None:
        super().__init__()
        self._at, self._name, self._range = frozenset(line.instructions), name, (low, high)

    def act(self, step: Step, core: Core, index: int, operands: Operands) -> None:
        """See `Acting`."""
        source = operand(step, operands, self._name) if index in self._at else None
        if source is None or source.cell.store.block is None:
            step.run(core, index, operands)
            return
        before = source.read().copy()
        write(core, source, np.clip(values(core, source), *self._range))
        step.run(core, index, operands)
        written = {id(operands[at]) for at, _ in step.writes}
        if id(source) not in written:
            source.put(before)


def rounded_otherwise(flow: Dataflow, lines: Lines) -> Iterator[Repair]:
    """Integers stored by another way of rounding: on each line, then on all of them."""
    casts = [line for line in lines.all if _casts(flow, lines, line.first)][:MOST]
    shifts = {line: _half(flow, lines, line.first) for line in casts}
    for name, way in WAYS.items():
        for line in casts:
            yield _otherwise(flow, lines, [line], dict.fromkeys(line.instructions, 0.0), name, way)
        if len(casts) > 1:
            every = {index: 0.0 for line in casts for index in line.instructions}
            yield _otherwise(flow, lines, casts, every, name, way)
    halved = [line for line in casts if shifts[line]]
    for name, way in HALVES.items():
        for line in halved:
            yield _otherwise(flow, lines, [line], dict.fromkeys(line.instructions, -shifts[line]), name, way)


def _otherwise(
    flow: Dataflow,
    lines: Lines,
    chosen: list[Line],
    shifts: Mapping[int, float],
    name: str,
    way: Callable[[Float64], Float64],
) -> Repair:
    first = chosen[0].first
    more = f" and {len(chosen) - 1} other line{'s' * (len(chosen) > 2)}" if len(chosen) > 1 else ""
    shift = next(iter(shifts.values()))
    trick = f" after {'adding' if shift < 0 else 'taking away'} one half" if shift else ""
    sentence = f"{lines.text(first)}{more} rounds to nearest even{trick} where it should have been {name}"
    return Repair("integer-rounding", sentence, first, flow.program, Rounded(shifts, way))


def _casts(flow: Dataflow, lines: Lines, index: int) -> bool:
    """True where an instruction stores as integers, wider than a truth value, floats that it reads or makes."""
    written = [slot for slot in lines.written(index) if slot.operand == "dst"]
    if not written or dtypes.BY_NAME[flow.tile_dtype(written[0])].kind not in ("int", "uint"):
        return False
    return any(lines.is_float(slot) for slot in flow.operands(index, READS)) or _fractions(flow.call(index))


def _fractions(call: CallView | None) -> bool:
    """True where a call multiplies or divides by a number, or takes a function: integers come out as fractions."""
    taken = steps(call) if call is not None else None
    return any(step.op in ("multiply", "divide") or step.op in act.BY_NAME for step in taken or ())


def _half(flow: Dataflow, lines: Lines, index: int) -> float:
    """One half, with its sign, where it is added to the values on the way to an integer; else zero."""
    found, at = 0.0, index
    for _ in range(3):
        call = flow.call(at)
        if call is None:
            break
        for step in steps(call) or ():
            if step.op in ("add", "subtract") and step.number in (0.5, -0.5) and not step.reverse:
                found = step.number if step.op == "add" else -step.number
        before = lines.writers(Slot(at, main_operand(call))) if main_operand(call) else ()
        if found or len(before) != 1:
            break
        at = before[0]
    return found


def saturated(flow: Dataflow, lines: Lines) -> Iterator[Repair]:
    """Integers clamped before bits of them are cut off, and floats clamped where they are stored in a narrow type."""
    made = 0
    for line in lines.all:
        call = flow.call(line.first)
        if call is None or made == MOST:
            continue
        for low, high, what in _ranges(call):
            made += 1
            sentence = (
                f"{lines.text(line.first)} {what}, so that what lies beyond {low:g} to {high:g} wraps around where it "
                "should saturate"
            )
            around = Clamped(line, main_operand(call), low, high)
            yield Repair("saturation-lost", sentence, line.first, flow.program, around)
    yield from _narrow(flow, lines)


def _ranges(call: CallView) -> Iterator[tuple[float, float, str]]:
    """Ranges that a call may cut integers to, with what it does to them."""
    for step in steps(call) or ():
        number = step.number
        if number is None or not 0 < number < 2**32 or number != int(number):
            continue
        if step.op == "bitwise_and" and (int(number) + 1) & int(number) == 0:
            size, what = int(number) + 1, f"keeps the lowest {int(number).bit_length()} bits"
        elif step.op == "left_shift" and number in (8, 16, 24):
            size, what = 2 ** (32 - int(number)), f"keeps the lowest {32 - int(number)} bits"
        elif step.op in ("mod", "fmod") and int(number) & (int(number) - 1) == 0 and number >= 16:
            size, what = int(number), f"takes the remainder of {int(number)}"
        else:
            continue
        if size < 16:
            continue
        yield -size / 2, size / 2 - 1, what
        yield 0.0, size - 1.0, what
        yield 1 - size / 2, size / 2 - 1, what


def _narrow(flow: Dataflow, lines: Lines) -> Iterator[Repair]:
    """Stores in fp16 and fp8 clamped to the largest finite numbers, and to those of the other fp8 of that name."""
    generation = flow.scope.hardware.generation
    limits: dict[str, tuple[float, ...]] = {
        name: (largest(name, generation),) for name in ("float16", "float8_e5m2", "float8_e4m3fn")
    }
    limits["float8_e4m3"] = tuple(
        dtypes.BY_NAME[name].max_finite for name in ("float8_e4m3", "float8_e4m3fn")
    )
    made = 0
    for line in lines.all:
        written = [slot for slot in lines.written(line.first) if slot.operand == "dst"]
        if not written or made == MOST:
            continue
        name = flow.tile_dtype(written[0])
        if name not in limits or not _narrows(flow, lines, line.first, name):
            continue
        made += 1
        for limit in limits[name]:
            sentence = (
                f"{lines.text(line.first)} stores in {name} without a clamp: values beyond {limit:g} should have "
                "become that"
            )
            clamp = After(dict.fromkeys(line.instructions, "dst"), _clamp(limit))
            yield Repair("saturation-lost", sentence, line.first, flow.program, clamp)


def _clamp(most: float) -> Callable[[Float64], Float64]:
    def clamp(values: Float64) -> Float64:
        return np.clip(values, -most, most)

    return clamp


def _narrows(flow: Dataflow, lines: Lines, index: int, name: str) -> bool:
    reads = [slot for slot in flow.operands(index, READS) if lines.is_float(slot)]
    return any(
        dtypes.BY_NAME[flow.tile_dtype(slot)].max_finite > dtypes.BY_NAME[name].max_finite for slot in reads
    )
