"""Defects: what people get wrong, made of the lines of a Program that is right."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import numpy as np

from nkireview.checks.dataflow import DEPTH, Dataflow, Slot
from nkireview.checks.steps import ACTIVATIONS, COPIES, MATMUL, main_operand, steps, summed, written
from nkireview.execute import Around, Core, Operands, Step
from nkireview.isa import dtypes
from nkireview.mutants.lines import Lines, Number, is_number, numbers_of
from nkireview.mutants.mutant import Array, Mutant, Outputs
from nkireview.program.call import CallView
from nkireview.program.edited import edited
from nkireview.program.program import Program

MOST = 24
"""Mutants of one Program: each costs an execution."""
SMALL = 0.02
"""Numbers up to this one that are added before a root are guards."""
LARGE = 1e3
"""Numbers from this one on that are filled in or added are masks."""
LEAST_MEAN = 8
"""Least number of terms of which 1/N is taken for a mean."""
ROOTS = frozenset({"rsqrt", "sqrt", "reciprocal", "power"})
LOW = dtypes.BY_NAME["bfloat16"]
FORMS: Mapping[str, tuple[str, ...]] = {
    "gelu": ("gelu_apprx_tanh", "gelu_apprx_sigmoid"),
    "gelu_apprx_tanh": ("gelu", "gelu_apprx_sigmoid"),
    "gelu_apprx_sigmoid": ("gelu", "silu"),
    "silu": ("gelu_apprx_sigmoid", "gelu"),
    "mish": ("silu",),
    "tanh": ("erf",),
    "erf": ("tanh",),
    "softplus": ("relu",),
    "gelu_dx": ("gelu_apprx_sigmoid_dx",),
}
"""What an activation function is taken for by mistake, the nearest first."""


FILLS: Mapping[str, str] = {
    "affine_select": "on_false_value",
    "range_select": "on_false_value",
    "memset": "value",
}
"""The immediate that instructions fill with."""


Maker = Callable[[Lines], Iterator[Mutant]]


def mutants(program: Program, most: int = MOST) -> tuple[Mutant, ...]:
    """At most `most` mutants of a Program that is taken to be right: of each kind the first, then the second, ...

    Instructions of one line with the same immediates are changed together, as an edit of the line would. Raise
    ProgramError where the header names an unknown target or release.
    """
    lines = Lines(program)
    kinds = [list(_distinct(make(lines))) for make in MAKERS]
    found: list[Mutant] = []
    for turn in range(max((len(each) for each in kinds), default=0)):
        found.extend(each[turn] for each in kinds if turn < len(each))
    return tuple(found[:most])


def _distinct(made: Iterator[Mutant]) -> Iterator[Mutant]:
    seen: set[str] = set()
    for mutant in made:
        if mutant.sentence not in seen:
            seen.add(mutant.sentence)
            yield mutant


# ------------------------------------------------------------------------------------------------------------ guards


def _guards(lines: Lines) -> Iterator[tuple[int, str, float]]:
    """(instruction, immediate, value) of each small number that is added before a root."""
    for site in lines.sites:
        taken = steps(site.call)
        if site.call.row.name == "reciprocal":
            yield from _added_before(lines, site.slot("data"))
            continue
        at = next((n for n, step in enumerate(taken or ()) if step.op in ROOTS), None)
        if taken is None or at is None:
            continue
        before = taken[:at]
        values = {
            number.value for number in numbers_of(site.call) if number.op == "add" and _is_guard(number.value)
        }
        for step in before:
            if step.op != "add":
                continue
            if step.operand:
                yield from _filled_guards(lines, site.slot(step.operand))
            elif step.number in values:
                name = next(
                    number.name
                    for number in numbers_of(site.call)
                    if number.op == "add" and number.value == step.number
                )
                yield site.instruction, name, float(step.number or 0.0)
        yield from _added_before(lines, site.slot(main_operand(site.call)))


def _is_guard(value: float) -> bool:
    return 0 < abs(value) <= SMALL


def _filled_guards(lines: Lines, slot: Slot) -> Iterator[tuple[int, str, float]]:
    for writer, call in written(lines.flow, slot) or ():
        value = call.imm("value")
        if call.row.name == "memset" and is_number(value) and _is_guard(float(value)):
            yield writer.instruction, "value", float(value)


def _added_before(lines: Lines, slot: Slot) -> Iterator[tuple[int, str, float]]:
    """Guards that instructions before added: back through copies and factors."""
    left, seen = [slot], {slot}
    while left and len(seen) < DEPTH:
        here = left.pop()
        for writer, call in written(lines.flow, here) or ():
            taken = steps(call)
            if writer.operand != "dst" or taken is None or not main_operand(call):
                continue
            guards = [n for n in numbers_of(call) if n.op == "add" and _is_guard(n.value)]
            for number in guards:
                yield writer.instruction, number.name, number.value
            for step in taken:
                if step.op == "add" and step.operand:
                    yield from _filled_guards(lines, Slot(writer.instruction, step.operand))
            simple = all(
                step.op in ("add", "multiply", "divide", "max", "maximum") and not step.operand
                for step in taken
            )
            back = Slot(writer.instruction, main_operand(call))
            if not guards and back not in seen and (call.row.name in COPIES or simple):
                seen.add(back)
                left.append(back)


def _no_guard(lines: Lines) -> Iterator[Mutant]:
    for index, name, value in _guards(lines):
        yield lines.mutant(
            "eps dropped", index, f"nothing is added before the root, not {value:g}", {name: 0.0}
        )


def _large_guard(lines: Lines) -> Iterator[Mutant]:
    for index, name, value in _guards(lines):
        sentence = f"{1000 * value:g} is added before the root, not {value:g}"
        yield lines.mutant("eps too large", index, sentence, {name: 1000 * value})


# ----------------------------------------------------------------------------------------------------------- numbers


def _less_one(lines: Lines) -> Iterator[Mutant]:
    """N-1 for N, in a factor 1/N, a divisor N, and in bn_aggr."""
    for site in lines.sites:
        for number in numbers_of(site.call):
            terms = _terms(number)
            if terms in lines.lengths and terms >= LEAST_MEAN:
                new = terms - 1.0 if number.op == "divide" else 1.0 / (terms - 1)
                sentence = f"a mean of {terms} terms is divided by {terms - 1}"
                yield lines.mutant("N-1 for N", site.instruction, sentence, {number.name: new})
        if site.call.row.name == "bn_aggr":
            sentence = "the variance of bn_aggr is divided by N-1"
            around = _after(lines.line(site.instruction), _unbiased)
            yield Mutant("N-1 for N", sentence, lines.place(site.instruction), lines.program, around)


def _terms(number: Number) -> int:
    if number.op == "divide" and number.value == round(number.value):
        return int(number.value)
    if number.op == "multiply" and 0 < number.value < 1:
        terms = round(1 / number.value)
        return terms if abs(number.value * terms - 1) < 1e-6 else 0
    return 0


def _unbiased(step: Step, core: Core, operands: Operands) -> None:
    """Multiply the variances that bn_aggr wrote by N/(N-1)."""
    dst, data = operands[step.slots["dst"]], operands[step.slots["data"]]
    if dst is None or data is None or not dst.plain or len(dst.form.shape) != 2:
        return
    held = data.load(core.formats)
    count = held.reshape(held.shape[0], -1)[:, 0::3].sum(axis=1)
    values = np.array(dst.load(core.formats))
    values[:, 1] *= count / np.maximum(count - 1, 1)
    dst.put(core.formats.store(values, dst.form.kind))


def _twice(lines: Lines) -> Iterator[Mutant]:
    for site in lines.sites:
        for number in numbers_of(site.call):
            if number.op in ("multiply", "divide") and abs(number.value) not in (0.0, 1.0):
                does = "multiplied" if number.op == "multiply" else "divided"
                sentence = f"the result is {does} by {number.value:g} twice"
                changes = {number.name: number.value * number.value}
                yield lines.mutant("factor twice", site.instruction, sentence, changes)


def _other_forms(lines: Lines) -> Iterator[Mutant]:
    for site in lines.sites:
        op = str(site.call.imm("op"))
        if site.call.row.name in ACTIVATIONS:
            for form in FORMS.get(op, ()):
                yield lines.mutant("activation form", site.instruction, f"{form} for {op}", {"op": form})


# ------------------------------------------------------------------------------------------------------------- masks


def _bases(lines: Lines) -> Iterator[Mutant]:
    for site in lines.sites:
        offset = site.call.imm("offset")
        if site.call.row.name in ("affine_select", "iota") and type(offset) is int:
            for by in (1, -1):
                sentence = f"{site.call.row.name} begins at {offset + by}, not {offset}"
                yield lines.mutant("mask off by one", site.instruction, sentence, {"offset": offset + by})


def _fills(lines: Lines) -> Iterator[Mutant]:
    for site in lines.sites:
        if not site.call.has("dst") or dtypes.BY_NAME[site.call.dtype("dst")].kind != "float":
            continue
        filled = site.call.imm(FILLS.get(site.call.row.name, ""))
        found = [(FILLS[site.call.row.name], float(filled))] if is_number(filled) else []
        found += [(number.name, number.value) for number in numbers_of(site.call) if number.op == "add"]
        for name, value in found:
            if abs(value) >= LARGE:
                new = _smaller(value)
                sentence = f"what is masked gets {new:.4g}, not {value:.4g}"
                yield lines.mutant("mask too small", site.instruction, sentence, {name: new})


def _smaller(value: float) -> float:
    if math.isinf(value):
        return math.copysign(300.0, value)
    return value * (1e-36 if abs(value) >= 1e30 else 1e-3)


# ----------------------------------------------------------------------------------------- what instructions read


def _unshifted(lines: Lines) -> Iterator[Mutant]:
    """Maxima that are subtracted are zero."""
    for site in lines.sites:
        taken = steps(site.call) or ()
        for step in taken:
            shifts = step.op in ("add", "subtract") and step.operand
            if not shifts or not _extreme(lines.flow, site.slot(step.operand)):
                continue
            if site.call.row.name in ACTIVATIONS and taken[-1].op != "exp":
                continue
            around = _zeroed(lines.line(site.instruction), step.operand)
            sentence = "no maximum is subtracted before the exponential"
            yield Mutant("max shift removed", sentence, lines.place(site.instruction), lines.program, around)


def _extreme(flow: Dataflow, slot: Slot) -> bool:
    """True where an operand holds a maximum, or minus one."""
    left, seen = [slot], {slot}
    while left and len(seen) < DEPTH:
        here = left.pop()
        for writer, call in written(flow, here) or ():
            name = call.row.name
            op = str(call.imm("op"))
            if op in ("maximum", "max") and name in ("tensor_reduce", "tensor_tensor"):
                return True
            if writer.operand == "reduce_res" and str(call.imm("reduce_op")) in ("maximum", "max"):
                return True
            taken = steps(call)
            if not taken and name not in COPIES:
                continue
            if all(step.op == "multiply" and not step.operand for step in taken or ()):
                back = Slot(writer.instruction, main_operand(call))
                if back.operand and back not in seen:
                    seen.add(back)
                    left.append(back)
    return False


def _zeroed(indices: Collection[int], name: str) -> Around:
    """While instructions run, one of their operands holds zeros."""

    def around(step: Step, core: Core, index: int, operands: Operands) -> None:
        at = step.slots.get(name)
        operand = operands[at] if index in indices and at is not None else None
        into = [operands[slot] for slot, _ in step.writes]
        if operand is None or not operand.plain or not operand.defined:
            return step.run(core, index, operands)
        if any(target is not None and target.cell is operand.cell for target in into):
            return step.run(core, index, operands)
        held = operand.read().copy()
        operand.put(np.zeros_like(held))
        try:
            step.run(core, index, operands)
        finally:
            operand.put(held)

    return around


# ------------------------------------------------------------------------------------- what becomes of their results


def _after(indices: Collection[int], change: Callable[[Step, Core, Operands], None]) -> Around:
    """Something is done after each of some instructions."""

    def around(step: Step, core: Core, index: int, operands: Operands) -> None:
        step.run(core, index, operands)
        if index in indices:
            change(step, core, operands)

    return around


def _low(step: Step, core: Core, operands: Operands) -> None:
    """Round what an instruction wrote to bfloat16."""
    at = step.slots.get("dst")
    target = operands[at] if at is not None else None
    if target is None or not target.plain or target.form.kind.name != "float32":
        return
    values = dtypes.rounded(np.array(target.load(core.formats)), LOW)
    target.put(values.astype(target.form.dtype))


def _cast(lines: Lines) -> Iterator[Mutant]:
    """A tile of float32 goes through bfloat16: the longest rows first."""
    found = [
        site
        for site in lines.sites
        if site.call.has("dst")
        and site.call.dtype("dst") == "float32"
        and site.call.memory("dst").on_chip
        and site.call.row.name not in (*COPIES, "memset", "iota", MATMUL)
    ]
    for site in sorted(found, key=lambda each: -each.call.measure("dst", "free")):
        sentence = f"the result of {site.call.row.name} is rounded to bfloat16"
        around = _after(lines.line(site.instruction), _low)
        yield Mutant("cast to bf16", sentence, lines.place(site.instruction), lines.program, around)


def _low_sums(lines: Lines) -> Iterator[Mutant]:
    program = lines.program
    if lines.groups:
        first = lines.groups[0][0]
        mine = frozenset(index for group in lines.groups for index in group)
        yield Mutant(
            "running sum in bf16",
            "the sum of matmuls is rounded to bfloat16 after each",
            lines.place(first),
            program,
            _after(mine, _low),
        )
    for site in lines.sites:
        if _adds_to_itself(site.call) and site.call.dtype("dst") == "float32":
            sentence = "the running sum is rounded to bfloat16 after each term"
            around = _after(lines.line(site.instruction), _low)
            yield Mutant("running sum in bf16", sentence, lines.place(site.instruction), program, around)
        elif (
            site.call.row.name == "tensor_reduce"
            and summed(site.call)
            and site.call.measure("dst", "free") == 1
        ):
            sentence = "the sum over the row is kept in bfloat16"
            around = _after(lines.line(site.instruction), _summed_low)
            yield Mutant("running sum in bf16", sentence, lines.place(site.instruction), program, around)


def _adds_to_itself(call: CallView) -> bool:
    op, others = {
        "tensor_tensor": ("op", ("data1", "data2")),
        "scalar_tensor_tensor": ("op1", ("operand1",)),
    }.get(call.row.name, ("", ()))
    if not op or call.imm(op) != "add":
        return False
    return any(call.has(name) and call.tiles[name].access == call.tiles["dst"].access for name in others)


def _summed_low(step: Step, core: Core, operands: Operands) -> None:
    """Sum the data again, one element after the other, each time rounded to bfloat16."""
    dst, data = operands[step.slots["dst"]], operands[step.slots["data"]]
    if (
        dst is None
        or data is None
        or not dst.plain
        or dst.cell is data.cell
        or step.immediates.get("op") != "add"
    ):
        return
    held = data.load(core.formats)
    terms = held.reshape(held.shape[0], -1)
    total = np.zeros(held.shape[0], np.float32)
    for at in range(terms.shape[1]):
        total = dtypes.rounded(np.asarray(total + terms[:, at], np.float32), LOW).astype(np.float32)
    total = -total if step.immediates.get("negate") else total
    dst.put(core.formats.store(total.astype(core.formats.compute).reshape(dst.form.shape), dst.form.kind))


def _skipping(indices: Collection[int]) -> Around:
    def around(step: Step, core: Core, index: int, operands: Operands) -> None:
        if index not in indices:
            step.run(core, index, operands)

    return around


def _dropped(lines: Lines) -> Iterator[Mutant]:
    """The last term of sums of matmuls is left out: of all, and of the last one."""
    groups = lines.groups
    if not groups:
        return
    for chosen, sentence in (
        (groups, "the last tile of K is left out of the sum of matmuls"),
        (groups[-1:], "the last tile of K is left out of the last sum of matmuls"),
    ):
        if chosen is groups or len(groups) > 1:
            around = _skipping(frozenset(group[-1] for group in chosen))
            yield Mutant("K tile dropped", sentence, lines.place(chosen[0][-1]), lines.program, around)


def _overwritten(lines: Lines) -> Iterator[Mutant]:
    program = lines.program
    last = [group[-1] for group in lines.groups]
    if not last:
        return
    new: dict[int, Mapping[str, Any]] = {
        index: {**program.immediates[program.columns.immediates[index]], "accumulate": False}
        for index in last
    }
    sentence = "the last matmul of a sum overwrites the others (accumulate=False)"
    yield Mutant("accumulate flag", sentence, lines.place(last[0]), edited(program, new))


# ----------------------------------------------------------------------------------------------------------- outputs


def _changed_outputs(name: str, sentence: str, change: Callable[[Array], Array]) -> Maker:
    def outputs(honest: Outputs) -> Outputs:
        return tuple(change(np.array(value)) for value in honest)

    def make(lines: Lines) -> Iterator[Mutant]:
        yield Mutant(name, sentence, "", lines.program, outputs=outputs)

    return make


def _zeros(values: Array) -> Array:
    return np.zeros_like(values)


def _scaled(values: Array) -> Array:
    """1.01 times floats, in their dtype; other values as they are."""
    if values.dtype.kind in "iub":
        return values
    return np.asarray(values.astype(np.float64) * 1.01).astype(values.dtype)


def _rows(values: Array) -> Array:
    """Values as rows along their last axis; one row where they have no other."""
    return np.reshape(values, (-1, values.shape[-1]) if values.ndim > 1 else (1, -1))


def _swapped(values: Array) -> Array:
    rows = _rows(values)
    if rows.shape[0] < 2:
        return np.roll(values, 1)
    rows = rows.copy()
    rows[[0, -1]] = rows[[-1, 0]]
    return np.reshape(rows, values.shape)


def _hole(values: Array) -> Array:
    """Zeros in the last tile of 128 rows and 512 columns, or in the last half of fewer."""
    rows = _rows(values).copy()
    high, wide = rows.shape
    top = high - min(128, high // 2) if high > 1 else 0
    left = wide - min(512, wide if high > 1 else max(wide // 2, 1))
    rows[top:, left:] = 0
    return np.reshape(rows, values.shape)


MAKERS: tuple[Maker, ...] = (
    _no_guard,
    _large_guard,
    _less_one,
    _other_forms,
    _unshifted,
    _bases,
    _fills,
    _twice,
    _cast,
    _low_sums,
    _dropped,
    _overwritten,
    _changed_outputs("output zeros", "the outputs are zero", _zeros),
    _changed_outputs("output scaled", "the outputs are 1% too large", _scaled),
    _changed_outputs("rows swapped", "the first and the last row of the outputs are swapped", _swapped),
    _changed_outputs("tile left out", "the last tile of the outputs is not written", _hole),
)
"""What makes the mutants of each kind."""
