"""Instructions as what they do to their main operand: a few steps, each an operator with a number or a tile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from nkireview.checks.dataflow import DEPTH, UNKNOWN, Dataflow, Slot
from nkireview.program.call import CallView

COPIES = frozenset(
    {"tensor_copy", "dma_copy", "nc_transpose", "dma_transpose", "nc_stream_shuffle", "nc_n_gather"}
)
ACTIVATIONS = frozenset({"activation", "activation_reduce"})
MATMUL = "nc_matmul"
MAIN = ("data", "src", "data1", "on_true_tile")
"""The operand that steps are applied to: the first of these that the instruction reads."""
SUMS = frozenset({"add", "average"})


@dataclass(frozen=True)
class Step:
    """One operator: with a number, with a tile (the name of its operand), or alone. `reverse`: the other one first."""

    op: str
    number: float | None = None
    operand: str = ""
    reverse: bool = False


def main_operand(call: CallView) -> str:
    """The name of the main operand; empty where there is none."""
    return next((name for name in MAIN if call.has(name)), "")


def steps(call: CallView) -> tuple[Step, ...] | None:
    """What a call does to its main operand, element by element; None for what is no such call."""
    name = call.row.name
    if name in COPIES:
        return ()
    if name in ACTIVATIONS:
        return tuple(_activation(call))
    if name == "tensor_scalar":
        return tuple(_numbered(call, (("op0", "operand0", "reverse0"), ("op1", "operand1", "reverse1"))))
    if name == "tensor_tensor":
        return (Step(str(call.imm("op")), operand="data2"),)
    if name == "scalar_tensor_tensor":
        first = _numbered(call, (("op0", "operand0", "reverse0"),))
        second = Step(str(call.imm("op1")), operand="operand1", reverse=bool(call.imm("reverse1")))
        return (*first, second)
    if name == "reciprocal":
        return (Step("reciprocal"),)
    if name == "affine_select":
        return (Step("select", _number(call.imm("on_false_value"))),)
    return None


def _activation(call: CallView) -> Iterator[Step]:
    scale = call.imm("scale")
    if call.has("scale"):
        yield Step("multiply", operand="scale")
    elif _number(scale) not in (None, 1.0):
        yield Step("multiply", _number(scale))
    bias = call.imm("bias")
    if call.has("bias"):
        yield Step("add", operand="bias")
    elif _number(bias) not in (None, 0.0):
        yield Step("add", _number(bias))
    op = str(call.imm("op"))
    if op != "copy":
        yield Step(op)


def _numbered(call: CallView, triples: tuple[tuple[str, str, str], ...]) -> Iterator[Step]:
    for op, operand, reverse in triples:
        name = call.imm(op)
        if name is None:
            continue
        turned = bool(call.imm(reverse))
        if call.has(operand):
            yield Step(str(name), operand=operand, reverse=turned)
        else:
            yield Step(str(name), _number(call.imm(operand)), reverse=turned)


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)


def summed(call: CallView) -> str:
    """The operand that receives a sum over free elements; empty where the call sums nothing."""
    name = call.row.name
    if name == "tensor_reduce" and call.imm("op") in SUMS:
        return "dst"
    if name in ACTIVATIONS and call.has("reduce_res") and call.imm("reduce_op") in (None, "add"):
        return "reduce_res"
    return ""


def terms_of(call: CallView) -> int:
    """Elements that each sum of `summed` takes together."""
    name = main_operand(call)
    out = summed(call)
    if not (name and out):
        return 0
    return max(call.measure(name, "free") // max(call.measure(out, "free"), 1), 1)


def written(flow: Dataflow, slot: Slot) -> tuple[tuple[Slot, CallView], ...] | None:
    """The writers of a read operand with their calls; None where one of them cannot be told."""
    found = []
    for writer in flow.writers(slot):
        if writer.instruction == UNKNOWN:
            return None
        call = flow.call(writer.instruction)
        if call is None:
            return None
        found.append((writer, call))
    return tuple(found)


def is_square(flow: Dataflow, slot: Slot, call: CallView) -> Slot | None:
    """The operand that a call squares into what it wrote; None where it squares nothing."""
    if call.row.name in ACTIVATIONS and call.imm("op") == "square":
        return Slot(slot.instruction, "data")
    if call.row.name == "tensor_tensor" and call.imm("op") == "multiply":
        if call.tiles["data1"].access == call.tiles["data2"].access:
            return Slot(slot.instruction, "data1")
    taken = steps(call)
    if taken and any(step.op == "power" and step.number == 2.0 for step in taken) and len(taken) == 1:
        return Slot(slot.instruction, main_operand(call))
    return None


def leaves(
    flow: Dataflow, slot: Slot, passed: frozenset[str]
) -> tuple[tuple[Slot, CallView | None, Step | None], ...] | None:
    """Where the values of a read operand come from, going back through copies and the operators `passed`.

    Each leaf is a written operand with its call and the step that stopped the walk; a parameter or constant is the
    reading operand with None. None where a writer cannot be told, or the way is too long.
    """
    found: list[tuple[Slot, CallView | None, Step | None]] = []
    left, seen = [slot], {slot}
    while left:
        here = left.pop()
        if len(seen) > DEPTH:
            return None
        writers = written(flow, here)
        if writers is None:
            return None
        if not writers:
            found.append((here, None, None))
        for writer, call in writers:
            stop = _stops(call, writer, passed)
            if stop is not None:
                found.append((writer, call, stop if stop.op else None))
                continue
            back = Slot(writer.instruction, main_operand(call))
            if back not in seen:
                seen.add(back)
                left.append(back)
    return tuple(found)


def _stops(call: CallView, writer: Slot, passed: frozenset[str]) -> Step | None:
    """Why a walk stops at a call: the step that is not passed, or one without operator; None where it goes on."""
    taken = steps(call)
    if taken is None or not main_operand(call) or writer.operand != "dst":
        return Step("")
    for step in reversed(taken):
        name = step.op if step.operand == "" else f"{step.op} tile"
        if name not in passed:
            return step
    return None
