"""The outputs of an execution, and the faults that show in them."""

from __future__ import annotations

import numpy as np

from nkireview.execute.memory import Memory
from nkireview.execute.result import Fault, FaultLog, NoMeaningError, OutputValue
from nkireview.execute.storage import Mask, Operand, Origin, final
from nkireview.isa import dtypes
from nkireview.program.program import Program


def output_value(program: Program, memory: Memory, log: FaultLog, at: int) -> OutputValue:
    """Output number `at`, with a fault for elements that are never written and one for those that are undefined."""
    output = program.outputs[at]
    access = program.access(output.access)
    try:
        operand = memory.operand(output.access)
    except NoMeaningError as error:
        log.add(Fault(error.kind, -1, program.buffer(access.buffer).place, f"output {output.name}: {error}"))
        empty = np.zeros(access.shape, dtypes.of(access.dtype).storage)
        return OutputValue(output.name, empty, np.zeros(access.shape, np.bool_), ())
    values = final(operand)
    writes = operand.cell.writes
    written = operand.mask()
    if written is not None:
        tainted = operand.tainted()
        _unwritten(program, log, output.name, operand, ~(written | tainted))
        _undefined(program, log, output.name, operand, tainted & ~written)
        written.flags.writeable = False
    return OutputValue(output.name, values, written, writes.last(operand) if writes else ())


def _unwritten(program: Program, log: FaultLog, name: str, operand: Operand, missing: Mask) -> None:
    count = int(missing.sum())
    if count:
        text = f"output {name}: {count} of {missing.size} elements are never written (first at {_first(missing)})"
        place = program.buffer(operand.cell.buffer).place
        log.add(Fault("unwritten output", -1, place, text, count))


def _undefined(program: Program, log: FaultLog, name: str, operand: Operand, wrong: Mask) -> None:
    count = int(wrong.sum())
    if not count:
        return
    origin = operand.cell.origin or Origin(-1, operand.cell.buffer)
    writes = operand.cell.writes
    writer = writes.writer(operand, wrong) if writes else -1
    opcode = log.opcode(origin.instruction) if origin.instruction >= 0 else ""
    some = f"output {name}: {count} of {wrong.size} elements depend on"
    if origin.cause:
        text = f"{some} {origin.cause} ({opcode}{log.at(origin.instruction)})"
        log.add(Fault("undefined result", writer, log.place(writer), text, count))
        return
    if origin.buffer is None:
        text = f"{some} {opcode}{log.at(origin.instruction)}, which could not be executed"
        log.add(Fault("not executed", writer, log.place(writer), text, count))
        return
    buffer = program.buffer(origin.buffer)
    label = f" {buffer.name}" if buffer.name else ""
    memory, thing = (buffer.memory.name.upper(), "tile") if buffer.memory.on_chip else ("HBM", "tensor")
    where = program.place_text(buffer.place)
    declared = f"{thing}{label} declared at {where}" if where else f"{thing}{label or f' {buffer.id}'}"
    read = f", first read by {opcode}{log.at(origin.instruction)}" if opcode else ""
    text = f"{some} {memory} memory never written ({declared}{read})"
    log.add(Fault("uninitialised", writer, log.place(writer), text, count))


def _first(mask: Mask) -> list[int]:
    return [int(axis) for axis in np.unravel_index(int(mask.argmax()), mask.shape)]
