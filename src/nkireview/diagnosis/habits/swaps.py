"""Swaps: the wrong one of two factors activated, halves or pairs in another order, one operand for the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from nkireview.checks.dataflow import Slot
from nkireview.checks.steps import ACTIVATIONS, MATMUL, steps
from nkireview.checks.steps import Step as Taken
from nkireview.diagnosis.algebra.hooks import Running, Values, before, beside, stepped
from nkireview.diagnosis.flows.acting import Acting, Float64, operand, write
from nkireview.diagnosis.habits.rewriting import Final, rewired
from nkireview.diagnosis.habits.survey import Survey, like
from nkireview.diagnosis.repair import Repair
from nkireview.execute import Core, Operands, Step
from nkireview.isa import act

CAUSE = "operands-swapped"
GATES = frozenset(
    {
        "silu",
        "gelu",
        "gelu_apprx_tanh",
        "gelu_apprx_sigmoid",
        "sigmoid",
        "tanh",
        "relu",
        "exp",
        "softplus",
        "mish",
    }
)
"""Functions that one of two factors goes through."""
EXCHANGED = ((MATMUL, "stationary", "moving"), ("scalar_tensor_tensor", "data", "operand1"))
"""Operands that may be taken for each other; those of a difference or quotient of two tiles are tried before."""
SPLIT_FEW = 4
"""Lines whose operands are halved."""


@dataclass(frozen=True)
class Gate:
    """A product of which one factor was activated by an instruction, then multiplied in `product` unless that is -1."""

    plain: str
    activation: int
    product: int
    other: str


class Ungated(Acting):
    """Products with the other factor activated."""

    def __init__(self, gates: Mapping[int, Gate], survey: Survey) -> None:
        super().__init__()
        self._gates, self._survey = gates, survey
        self._activations = {gate.activation for gate in gates.values()}
        self._products = {gate.product: gate.other for gate in gates.values() if gate.product >= 0}
        self._held: dict[int, Float64] = {}

    def begin(self) -> None:
        """See `Acting`."""
        self._held.clear()

    def act(self, step: Step, core: Core, index: int, operands: Operands) -> None:
        """See `Acting`."""
        running = Running(step, core, operands)
        if index in self._activations:
            self._held[index] = _argument(running, self._taken(index))
        elif index in self._products:
            self._held[index] = np.array(running.value(self._products[index]))
        gate = self._gates.get(index)
        found = None if gate is None else self._product(gate, running)
        step.run(core, index, operands)
        target = operand(step, operands, "dst")
        if found is not None and target is not None and found.size == target.form.size:
            write(core, target, found)

    def _taken(self, index: int) -> list[Taken]:
        call = self._survey.flow.call(index)
        return [] if call is None else list(steps(call) or ())

    def _product(self, gate: Gate, running: Running) -> Float64 | None:
        argument, factor = self._held.get(gate.activation), self._held.get(gate.product)
        plain = np.array(running.value(gate.plain))
        if argument is None or argument.size != plain.size:
            return None
        function = act.of(self._taken(gate.activation)[-1].op).fn
        activated = function(plain)
        if gate.product < 0:
            return np.asarray(activated * argument.reshape(plain.shape))
        if factor is None or factor.size != plain.size:
            return None
        return np.asarray(activated * plain * factor.reshape(plain.shape))


def _argument(running: Running, taken: list[Taken]) -> Float64:
    data = running.value("data")
    return np.array(stepped(data, taken[:-1], lambda name: beside(running.value(name), data)))


def gates(survey: Survey) -> Iterator[Repair]:
    """Activations moved from one factor of a product to the other: silu(a) * b for a * silu(b)."""
    for line in survey.of("tensor_tensor"):
        if line.call.imm("op") != "multiply" or not line.floats("dst"):
            continue
        for name, plain in (("data1", "data2"), ("data2", "data1")):
            first = _gate(survey, line.first, name, plain)
            if first is None:
                continue
            found = {index: _gate(survey, index, name, plain) for index in line.instructions}
            given = {index: gate for index, gate in found.items() if gate is not None}
            call = survey.flow.call(first.activation)
            op = "" if call is None else call.imm("op")
            sentence = (
                f"{op}{survey.where(first.activation)} goes over {name} of a product and not over {plain}: the other "
                "way round the output matches"
            )
            yield from line.repair(CAUSE, sentence, None, Ungated(given, survey))


def _gate(survey: Survey, index: int, name: str, plain: str) -> Gate | None:
    """How an operand of a product was activated."""
    found = survey.origin(Slot(index, name))
    if found is None:
        return None
    slot, call = found
    if _gates(call.row.name, call.imm("op")):
        return Gate(plain, slot.instruction, -1, "")
    if call.row.name != "tensor_tensor" or call.imm("op") != "multiply":
        return None
    for inner, other in (("data1", "data2"), ("data2", "data1")):
        back = survey.origin(Slot(slot.instruction, inner))
        if back is not None and _gates(back[1].row.name, back[1].imm("op")):
            return Gate(plain, back[0].instruction, slot.instruction, other)
    return None


def _gates(opcode: str, op: object) -> bool:
    return opcode in ACTIVATIONS and op in GATES


def exchanged(survey: Survey) -> Iterator[Repair]:
    """Two operands of a line taken for each other."""
    for opcode, one, other in EXCHANGED:
        for line in survey.of(opcode):
            if not like(line, one, other) or line.call.imm("is_transpose"):
                continue
            given = {}
            for index in line.instructions:
                a, b = Slot(index, one), Slot(index, other)
                given[a], given[b] = _access(survey, b), _access(survey, a)
            sentence = f"{one} and {other} of {opcode} are taken for each other: exchanged the output matches"
            yield survey.repair(CAUSE, sentence, line.first, program=rewired(survey.program, given))


def _access(survey: Survey, slot: Slot) -> int:
    columns = survey.program.columns
    names = survey.program.opcodes[columns.opcode[slot.instruction]].operands
    return int(columns.operand[columns.operand_at[slot.instruction] + names.index(slot.operand)])


def transposed(survey: Survey) -> Iterator[Repair]:
    """A square operand of a line transposed, as where a vector goes along the wrong one of its axes."""
    for line in survey.of("tensor_tensor"):
        for name in ("data2", "data1"):
            counts = line.call.counts(name)
            if len(counts) == 2 and counts[0] == counts[1] > 1 and line.floats(name):
                sentence = f"{name} of tensor_tensor goes along one axis: along the other the output matches"
                around = before(line.instructions, name, _turned(name))
                yield from line.repair("bias-axis", sentence, None, around)


def _turned(name: str) -> Callable[[Running], Values]:
    return lambda running: np.ascontiguousarray(running.value(name).T)


def halves(survey: Survey) -> Iterator[Repair]:
    """The halves of a factor exchanged, then those of a parameter, each along the last axis."""
    made = 0
    for line in survey.sites_of("tensor_tensor"):
        for name in ("data2", "data1"):
            counts = line.call.counts(name)
            if len(counts) > 1 and counts[-1] % 2 == 0 and line.floats(name) and made < 2 * SPLIT_FEW:
                made += 1
                sentence = (
                    f"the halves of {name} of tensor_tensor are in this order: exchanged the output matches"
                )
                around = before(line.instructions, name, _exchanged(name))
                yield from line.repair(CAUSE, sentence, None, around)
    for one in survey.floats[:SPLIT_FEW]:
        if one.shape and one.shape[-1] % 2 == 0:
            sentence = f"the halves of {one.path} along its last axis are in this order: exchanged the output matches"
            yield survey.given(CAUSE, sentence, one, _halves)


def _exchanged(name: str) -> Callable[[Running], Values]:
    return lambda running: _halves(running.value(name))


def _halves(values: Values) -> Values:
    return np.roll(values, values.shape[-1] // 2, axis=-1)


def split(values: Values) -> Values:
    """The elements at even places of the last axis, then those at odd ones."""
    return np.concatenate([values[..., 0::2], values[..., 1::2]], axis=-1)


def interleaved(values: Values) -> Values:
    """The elements of both halves of the last axis by turns: undoes `split`."""
    middle = values.shape[-1] // 2
    return np.stack([values[..., :middle], values[..., middle:]], axis=-1).reshape(values.shape)


def pairs(survey: Survey) -> Iterator[Repair]:
    """Pairs taken from neighbours where from halves is meant, or the other way: of what is given, or all through."""
    outputs = [each for each in survey.outputs if each.shape and each.shape[-1] % 2 == 0]
    shapes = {each.shape[-1] for each in outputs}
    through = [one for one in survey.floats if one.shape and one.shape[-1] in shapes and len(one.shape) > 1]
    said = (
        ("with its halves", "with neighbouring elements", split, interleaved),
        ("with neighbouring elements", "with its halves", interleaved, split),
    )
    for have, meant, into, back in said:
        sentence = f"along the last axis the kernel pairs {have}: paired {meant} the output matches"
        for chosen in ([through] if len(through) > 1 else []) + [[one] for one in through[:SPLIT_FEW]]:
            given = {one.buffer: np.ascontiguousarray(into(survey.arguments[one.buffer])) for one in chosen}
            what = " and ".join(one.path for one in chosen[:3])
            yield survey.repair(
                CAUSE,
                f"{sentence} ({what})",
                outputs[0].first,
                Final(outputs, back),
                arguments=given,
            )
    for one in survey.floats[:SPLIT_FEW]:
        if one.shape and one.shape[-1] % 2 == 0 and one.shape[-1] > 2:
            for said_of, change in (
                ("even and odd elements by turns", split),
                ("one half after the other", interleaved),
            ):
                sentence = (
                    f"{one.path} is read as {said_of} along its last axis: the other way the output matches"
                )
                yield survey.given(CAUSE, sentence, one, change)


def outputs(survey: Survey) -> Iterator[Repair]:
    """Outputs whose rows, columns or halves are stored in another order."""
    for one in survey.outputs:
        changes: list[tuple[str, Callable[[Float64], Float64]]] = []
        for axis, name in [(axis, f"axis {axis}") for axis in range(len(one.shape))][-2:]:
            if one.shape[axis] > 1:
                changes.append((f"{name} in reverse", _flip(axis)))
        if one.shape and one.shape[-1] % 2 == 0:
            changes.append(("the halves of the last axis exchanged", _halves))
        if len(one.shape) > 1 and one.shape[-1] == one.shape[-2]:
            changes.append(("its last axes exchanged", lambda values: np.swapaxes(values, -1, -2)))
        for said, change in changes:
            sentence = f"output {one.name} is stored in this order: with {said} it matches"
            yield survey.repair("tile-offset", sentence, one.first, Final([one], change))


def _flip(axis: int) -> Callable[[Float64], Float64]:
    return lambda values: np.flip(values, axis)
