"""Granting: which stores of a Program may round to their own dtype, and which only as float32 would.

A kernel is granted the roundings that its contract implies: those of its outputs, of intermediates no coarser than
these, of operands of matmuls in the dtype of an input, and of what is quantised. Sums that are rounded at each of
several additions are not: they grow with their length, and nothing in the contract asks for them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence

import numpy as np

from nkireview.checks.counts import loop_trips
from nkireview.checks.dataflow import UNKNOWN, Dataflow, Slot
from nkireview.checks.precision import FEW
from nkireview.checks.stored import MOVES
from nkireview.diagnosis.arithmetic import Work
from nkireview.diagnosis.noise import FLOAT32, Granted
from nkireview.isa import dtypes
from nkireview.isa.dtypes import BY_NAME
from nkireview.program.interning import by_opcode
from nkireview.program.program import Program
from nkireview.program.storage import READS, WRITES

SAMPLED = 64
"""Instructions of one line that are followed to see what they copy."""
AROUND = 32
"""Instructions before a store that are asked whether they scale it."""
MAXIMA = frozenset({"maximum", "abs_max", "max"})
DEPTH = 16
"""Copies between the last rounding and an output."""


def granted(program: Program, kinds: Sequence[Work], of: Sequence[int], flow: Dataflow) -> Granted:
    """What a Program is granted by its own inputs and outputs."""
    least = coarsest(program)
    wide = {
        index
        for index, number in enumerate(of)
        if any(
            write.rounds and write.dtype.kind == "float" and dtypes.unit_roundoff(write.dtype) > least
            for write in kinds[number].writes
        )
    }
    wide -= set(_by_line(flow, wide, _scaled))
    wide -= set(_by_line(flow, wide, _multiplied))
    wide |= set(_running(program))
    return Granted(frozenset(last_roundings(flow)), frozenset(wide))


def _by_line(
    flow: Dataflow, stores: Collection[int], holds: Callable[[Dataflow, int], bool]
) -> Iterator[int]:
    """The stores for which something holds, asked of the first of each line."""
    columns = flow.program.columns
    known: dict[tuple[int, int], bool] = {}
    for index in sorted(stores):
        line = int(columns.place[index]), int(columns.opcode[index])
        if line not in known:
            known[line] = holds(flow, index)
        if known[line]:
            yield index


def _scaled(flow: Dataflow, index: int) -> bool:
    """True where an instruction quantises: a maximum along an axis is on the way to what it stores, as a scale."""
    left, seen = [index], {index}
    while left and len(seen) < AROUND:
        here = left.pop(0)
        for slot in flow.operands(here, READS):
            if slot.operand == "bias":  # a maximum that is subtracted is no scale
                continue
            for writer in flow.writers(slot):
                call = flow.call(writer.instruction) if writer.instruction != UNKNOWN else None
                if call is None or writer.instruction in seen:
                    continue
                if call.row.name == "tensor_reduce" and call.imm("op") in MAXIMA:
                    return True
                seen.add(writer.instruction)
                left.append(writer.instruction)
    return False


def _multiplied(flow: Dataflow, index: int) -> bool:
    """True for an operand of a matmul in the dtype of an input: the PE array takes both operands in one precision."""
    given = {flow.program.buffer(buffer).dtype for _, buffer in flow.program.parameter_buffers}
    call = flow.call(index)
    return call is not None and call.has("dst") and call.dtype("dst") in given and _feeds(flow, index)


def _feeds(flow: Dataflow, index: int) -> bool:
    """True where what an instruction stores becomes an operand of a matmul, through copies and transposes alone."""
    left, seen = [Slot(index, "dst")], {index}
    while left and len(seen) < AROUND:
        for reader in flow.readers(left.pop(0)):
            call = flow.call(reader.instruction) if reader.instruction != UNKNOWN else None
            if call is None or reader.instruction in seen:
                continue
            seen.add(reader.instruction)
            if call.row.name == "nc_matmul" and not call.imm("is_transpose"):
                return True
            if call.row.name in MOVES or call.row.name == "nc_matmul":
                left.append(Slot(reader.instruction, "dst"))
    return False


def coarsest(program: Program) -> float:
    """The largest unit roundoff of the floats that come out, or of those that go in where none comes out."""
    outputs = {program.access(output.access).dtype for output in program.outputs}
    inputs = {program.buffer(buffer).dtype for _, buffer in program.parameter_buffers}
    for names in (outputs, inputs):
        floats = [BY_NAME[name] for name in names if BY_NAME[name].kind == "float"]
        if floats:
            return max(dtypes.unit_roundoff(each) for each in floats)
    return dtypes.unit_roundoff(FLOAT32)


def _running(program: Program) -> Iterator[int]:
    """Instructions that add to what they write, in fewer digits than float32, `FEW` times or more."""
    columns = program.columns
    try:
        trips = loop_trips(program)
    except ValueError:
        trips = np.ones(len(program), np.int64)
    low = np.array([_low(name) for name in program.dtypes], bool)
    for code, instructions, accesses in by_opcode(program):
        opcode = program.opcodes[code]
        names = opcode.operands
        if "dst" not in names:
            continue
        dst = accesses[:, names.index("dst")]
        if opcode.name in ("nc_matmul", "nc_matmul_mx"):
            adds = np.ones(len(dst), bool)
        elif opcode.name in ("tensor_tensor", "scalar_tensor_tensor"):
            sides = [
                accesses[:, names.index(n)] for n in ("data1", "data2", "data", "operand1") if n in names
            ]
            adds = np.any([side == dst for side in sides], axis=0)
        else:
            continue
        adds &= (dst >= 0) & low[columns.access_dtype[np.maximum(dst, 0)]]
        count: Counter[int] = Counter()
        for at in np.flatnonzero(adds).tolist():
            given = program.immediates[columns.immediates[instructions[at]]]
            if opcode.name.startswith("nc_matmul") or given.get("op", given.get("op1")) in (
                "add",
                "subtract",
            ):
                count[int(dst[at])] += int(trips[instructions[at]])
        for at in np.flatnonzero(adds).tolist():
            if count[int(dst[at])] >= FEW:
                yield int(instructions[at])


def _low(name: str) -> bool:
    dtype = BY_NAME[name]
    return dtype.kind == "float" and dtype.significand_bits < FLOAT32.significand_bits


def last_roundings(flow: Dataflow) -> Iterator[int]:
    """The instructions whose store is the last rounding of an output: behind them it is only copied."""
    program = flow.program
    columns = program.columns
    place = np.asarray(flow.held.place)
    owner = np.repeat(np.arange(len(program)), np.diff(columns.operand_at))
    writes = (np.asarray(flow.held.use) & WRITES) != 0
    found: set[int] = set()
    for output in program.outputs:
        home = int(flow.held.of_buffer[columns.access_buffer[output.access]])
        dtype = program.access(output.access).dtype
        seen: Counter[int] = Counter()
        for index in owner[(place == home) & writes].tolist():
            line = int(columns.place[index])
            seen[line] += 1
            if seen[line] <= SAMPLED or line < 0:
                origins = _origins(flow, Slot(index, "dst"), dtype, DEPTH)
                found.update(slot.instruction for slot in origins)
    lines = {(int(columns.place[at]), int(columns.opcode[at])) for at in found}
    for index, key in enumerate(zip(columns.place.tolist(), columns.opcode.tolist(), strict=True)):
        last = index in found and not _looped(program, index)
        if key in lines and (last or not _in_place(program, index)):
            yield index


def _looped(program: Program, index: int) -> bool:
    """True inside of a device-side loop, where what writes what it reads rounds at each trip."""
    return any(loop.start <= index < loop.stop for loop in program.loops)


def _in_place(program: Program, index: int) -> bool:
    """True where an instruction writes what it reads: another of the same line may follow and round again."""
    call = program.instruction(index)
    written = call.operands.get("dst")
    return any(
        access == written for name, access in call.operands.items() if name != "dst" and access is not None
    )


def _origins(flow: Dataflow, slot: Slot, dtype: str, depth: int) -> Iterator[Slot]:
    """The written operands whose values a written operand holds as they are."""
    call = flow.call(slot.instruction)
    if call is None or not call.has(slot.operand) or call.dtype(slot.operand) != dtype:
        return
    if call.row.name in MOVES and depth and call.has("src") and call.dtype("src") == dtype:
        for writer in flow.writers(Slot(slot.instruction, "src")):
            if writer.instruction != UNKNOWN:
                yield from _origins(flow, writer, dtype, depth - 1)
        return
    yield slot
