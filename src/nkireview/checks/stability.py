"""Ways of computing that are right on friendly data and fail on other: paths of a Program, without values."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from nkireview.checks.dataflow import UNKNOWN, Dataflow, Site, Slot
from nkireview.checks.steps import (
    ACTIVATIONS,
    COPIES,
    MATMUL,
    Step,
    is_square,
    leaves,
    main_operand,
    steps,
    summed,
    written,
)
from nkireview.isa import act, dtypes
from nkireview.isa.enums import Memory
from nkireview.program.call import CallView

SCALED = frozenset({"multiply", "divide", "multiply tile", "divide tile"})
CONSTANT_SCALED = frozenset({"multiply", "divide"})
FORWARD = 6
"""Instructions that a result is followed through."""


@dataclass(frozen=True)
class Spot:
    """A place of the Program where something is so: the instruction, how many, and a figure or name to it."""

    instruction: int
    count: int
    number: float = 0.0
    name: str = ""


def unshifted_softmax(flow: Dataflow) -> Iterator[Spot]:
    """exp of a value from which nothing was taken, whose sums over the row divide."""
    for site in flow.sites(sorted(ACTIVATIONS)):
        if site.call.imm("op") != "exp" or site.call.has("bias") or not _summed_and_divides(flow, site):
            continue
        found = leaves(flow, site.slot("data"), SCALED | {"select", "add"})
        if found and all(call is None or call.row.name == MATMUL for _, call, _ in found):
            yield Spot(site.instruction, site.count)


def _summed_and_divides(flow: Dataflow, site: Site) -> bool:
    if summed(site.call):
        return divides(flow, site.slot("reduce_res"))
    for reader in flow.readers(site.slot("dst")):
        call = flow.call(reader.instruction) if reader.instruction != UNKNOWN else None
        if call is not None and call.row.name == "tensor_reduce" and summed(call):
            return divides(flow, Slot(reader.instruction, "dst"))
    return False


def divides(flow: Dataflow, slot: Slot, depth: int = FORWARD) -> bool:
    """True where a written operand surely becomes a divisor: by a reciprocal, a division, rsqrt or a power."""
    for reader in flow.readers(slot):
        call = flow.call(reader.instruction) if reader.instruction != UNKNOWN else None
        if call is None:
            continue
        if call.row.name == "reciprocal":
            return True
        for step in steps(call) or ():
            main = reader.operand == main_operand(call)
            alone = step.op in ("reciprocal", "rsqrt") or (step.op == "power" and (step.number or 0) < 0)
            if (main and alone) or (
                step.op == "divide" and (step.operand == reader.operand or (main and step.reverse))
            ):
                return True
        moved = call.row.name in COPIES or call.row.name in ("tensor_scalar", "tensor_tensor", *ACTIVATIONS)
        simple = all(step.op in ("add", "multiply", "sqrt") for step in steps(call) or ())
        if depth and moved and simple and reader.operand in (main_operand(call), "data2"):
            if reader.instruction > slot.instruction and divides(
                flow, Slot(reader.instruction, "dst"), depth - 1
            ):
                return True
    return False


def unguarded_norms(flow: Dataflow) -> Iterator[Spot]:
    """rsqrt, or a negative power, of a sum of squares or a variance to which nothing was added."""
    for site in flow.sites():
        taken = steps(site.call)
        if not taken:
            continue
        at = next((n for n, step in enumerate(taken) if _inverse_root(step)), None)
        before = [] if at is None else [step for step in taken[:at] if not _adds_nothing(flow, site, step)]
        if at is None or any(step.op not in SCALED or step.operand for step in before):
            continue
        found = leaves(flow, site.slot(main_operand(site.call)), CONSTANT_SCALED | {"sqrt"})
        if found and all(
            call is not None and step is None and _vanishes(flow, slot, call) for slot, call, step in found
        ):
            yield Spot(site.instruction, site.count, name=taken[at].op)


def _adds_nothing(flow: Dataflow, site: Site, step: Step) -> bool:
    """True where a step adds zero: the number, or a tile that was filled with it."""
    if step.op not in ("add", "subtract") or step.reverse:
        return False
    if not step.operand:
        return step.number == 0
    writers = written(flow, site.slot(step.operand))
    return bool(writers) and all(
        call.row.name == "memset" and call.imm("value") == 0 for _, call in writers or ()
    )


def _inverse_root(step: Step) -> bool:
    return step.op in ("rsqrt", "reciprocal") or (
        step.op == "power" and step.number is not None and step.number < 0
    )


def _vanishes(flow: Dataflow, slot: Slot, call: CallView | None) -> bool:
    """True where a written operand is a sum of squares or a variance, which a row of zeros makes zero."""
    if call is not None and call.row.name == "bn_aggr":
        return True
    if call is None or not summed(call) or slot.operand != summed(call):
        return False
    if slot.operand == "reduce_res":
        return bool(call.imm("op") == "square")
    writers = written(flow, Slot(slot.instruction, "data")) or ()
    return bool(writers) and all(is_square(flow, writer, made) is not None for writer, made in writers)


@dataclass(frozen=True)
class _Moment:
    """What a value is in terms of a tile: its sum, the sum of its squares, or the square of its sum."""

    kind: str
    place: int


def cancelling_variances(flow: Dataflow) -> Iterator[Spot]:
    """The mean of squares less the square of the mean, of the same tile."""
    for site in flow.sites(("tensor_tensor", "tensor_scalar", "scalar_tensor_tensor")):
        for step in steps(site.call) or ():
            if step.op != "subtract" or not step.operand:
                continue
            sides = (site.slot(main_operand(site.call)), site.slot(step.operand))
            left, right = (_moment(flow, side) for side in sides)
            if site.call.row.name == "scalar_tensor_tensor" and left is not None and left.kind == "sum":
                if site.call.imm("op0") == "multiply":
                    left = _Moment("squared sum", left.place)
            kinds = {moment.kind for moment in (left, right) if moment is not None}
            if left is not None and right is not None and left.place == right.place:
                if kinds == {"squares", "squared sum"}:
                    yield Spot(site.instruction, site.count, name=site.call.dtype(main_operand(site.call)))


def _moment(flow: Dataflow, slot: Slot, depth: int = FORWARD) -> _Moment | None:
    writers = written(flow, slot)
    if not writers or len(writers) > 1 or not depth:
        return None
    writer, call = writers[0]
    if summed(call) and writer.operand == summed(call):
        source = Slot(writer.instruction, main_operand(call))
        if writer.operand == "reduce_res" and call.imm("op") != "copy":
            return _Moment("squares", flow.place(source)) if call.imm("op") == "square" else None
        made = written(flow, source)
        if made and len(made) == 1:
            squared = is_square(flow, *made[0])
            if squared is not None:
                return _Moment("squares", flow.place(squared))
        return _Moment("sum", flow.place(source))
    squared = is_square(flow, writer, call)
    if squared is not None:
        inner = _moment(flow, squared, depth - 1)
        return _Moment("squared sum", inner.place) if inner is not None and inner.kind == "sum" else None
    taken = steps(call)
    if taken is not None and all(step.op in CONSTANT_SCALED and not step.operand for step in taken):
        return _moment(flow, Slot(writer.instruction, main_operand(call)), depth - 1)
    return None


def out_of_range(flow: Dataflow) -> Iterator[Spot]:
    """sin or arctan of a value that nothing has brought into the range where they are computed."""
    for site in flow.sites(sorted(ACTIVATIONS)):
        function = act.BY_NAME.get(str(site.call.imm("op")))
        if function is None or function.name not in ("sin", "arctan") or function.valid_range is None:
            continue
        if site.call.has("bias") or site.call.has("scale"):
            continue
        found = leaves(flow, site.slot("data"), CONSTANT_SCALED | {"add"})
        if found and all(call is None or call.row.name == MATMUL for _, call, _ in found):
            yield Spot(site.instruction, site.count, function.valid_range[1], function.name)


def infinite_fills(flow: Dataflow) -> Iterator[Spot]:
    """-inf written as a mask into a tile whose maximum is taken: a row that is masked whole becomes NaN."""
    for site in flow.sites(("memset", "affine_select")):
        value = site.call.imm("value" if site.call.row.name == "memset" else "on_false_value")
        if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
            continue
        dtype = dtypes.BY_NAME[site.call.dtype("dst")]
        if dtype.kind != "float" or float(dtypes.cast(float(value), dtype)) != -math.inf:
            continue
        if _meets_maximum(flow, site.slot("dst"), FORWARD):
            yield Spot(site.instruction, site.count, float(value), dtype.name)


def _meets_maximum(flow: Dataflow, slot: Slot, depth: int) -> bool:
    for reader in flow.readers(slot):
        call = flow.call(reader.instruction) if reader.instruction != UNKNOWN else None
        if call is None:
            continue
        if call.row.name == "tensor_reduce" and call.imm("op") == "maximum":
            return True
        taken = steps(call)
        simple = taken is not None and all(step.op in ("add", "select", "multiply") for step in taken)
        if depth and simple and reader.instruction > slot.instruction:
            if _meets_maximum(flow, Slot(reader.instruction, "dst"), depth - 1):
                return True
    return False


def shifted_evacuations(flow: Dataflow) -> Iterator[Spot]:
    """A matmul's result copied out of PSUM with 1.0 added, by an instruction that does nothing else.

    `name` is ``cancels`` where a maximum is taken of what was written, so that the constant goes again.
    """
    for site in flow.sites(("tensor_scalar", *sorted(ACTIVATIONS))):
        name = main_operand(site.call)
        taken = steps(site.call)
        if not name or site.call.memory(name) is not Memory.psum or taken != (Step("add", 1.0),):
            continue
        writers = written(flow, site.slot(name))
        if writers and all(call.row.name == MATMUL and not call.imm("is_transpose") for _, call in writers):
            cancels = _meets_maximum(flow, site.slot("dst"), 1)
            yield Spot(site.instruction, site.count, 1.0, "cancels" if cancels else "")


def unread_parameters(flow: Dataflow) -> tuple[str, ...]:
    """Paths of the tensor parameters that no instruction touches and that are not returned."""
    program = flow.program
    used = {int(place) for place in set(flow.held.place.tolist()) if place >= 0}
    columns = program.columns
    used |= {int(flow.held.of_buffer[columns.access_buffer[output.access]]) for output in program.outputs}
    # an index tile is read through the accesses that it steers
    used |= {place for found in flow.held.indices.values() for place, _ in found}
    return tuple(
        path
        for path, buffer in program.parameter_buffers
        if int(flow.held.of_buffer[buffer]) not in used and math.prod(program.buffer(buffer).shape) > 0
    )
