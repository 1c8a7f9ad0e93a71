"""Accumulator registers: a reduction goes on from what the registers of its engine hold, whoever put it there.

Vector and Scalar have one set of registers each. An instruction with reduce_cmd reset, reset_reduce or load_reduce
begins a chain, one with reduce goes on with it, and the tile of reduce_res says to which sum an instruction belongs.
Sources: nki/api/nki/isa/__init__.py:1350-1382,1485-1487,2356-2365.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from nkireview.execute.flow import RegisterUse, register_use
from nkireview.isa.enums import Engine
from nkireview.isa.release import Release
from nkireview.isa.row import Row
from nkireview.program.program import Program

BEGINS = frozenset({"reset", "reset_reduce", "load_reduce"})


@dataclass(frozen=True)
class Broken:
    """An instruction that goes on with a chain of its own tile, after another one used the registers.

    `result` is the buffer of its reduce_res; `begun` the instruction before it of the same tile, `by` the one between.
    """

    instruction: int
    by: int
    begun: int
    engine: Engine
    result: int


@dataclass(frozen=True)
class _Held:
    """Who last used the registers, and the buffer that the chain belongs to; -1 for one that nothing names."""

    instruction: int
    result: int


def broken_chains(program: Program, rows: Mapping[str, Row]) -> tuple[Broken, ...]:
    """The reductions that go on with what another chain left in the registers, in program order; no loop is followed.

    An instruction without a tile for its result belongs to the chain that it finds.
    """
    release = Release.parse(program.header.release)
    found: list[Broken] = []
    registers: dict[tuple[int, Engine], _Held] = {}
    latest: dict[tuple[int, Engine, int], int] = {}
    for stream in program.streams:
        for index, use, result in _uses(program, rows, range(stream.start, stream.stop)):
            command = use.command if release in use.honoured else "reset_reduce"
            file = stream.core, use.engine
            key = (*file, result)
            before = registers.get(file)
            if command == "idle":
                continue
            if command in BEGINS or before is None:
                registers[file] = _Held(index, result)
            else:
                owner = before.result if before.result >= 0 else result
                begun = latest.get(key, -1)
                if 0 <= result != owner and begun >= 0:
                    found.append(Broken(index, before.instruction, begun, use.engine, result))
                registers[file] = _Held(index, result if result >= 0 else owner)
            if result >= 0:
                latest[key] = index
    return tuple(found)


def _uses(program: Program, rows: Mapping[str, Row], span: range) -> Iterator[tuple[int, RegisterUse, int]]:
    """The instructions of a stream that use accumulator registers, how, and the buffer of their result or -1."""
    columns = program.columns
    slots: dict[int, int] = {}
    for number, opcode in enumerate(program.opcodes):
        row = rows.get(opcode.name)
        if row is not None and register_use(row, {}) is not None:
            name = "reduce_res" if "reduce_res" in row.flow else "dst"
            slots[number] = opcode.operands.index(name) if name in opcode.operands else -1
    if not slots:
        return
    opcodes = columns.opcode[span.start : span.stop]
    uses: dict[tuple[int, int], RegisterUse | None] = {}
    for index in (np.flatnonzero(np.isin(opcodes, list(slots))) + span.start).tolist():
        code, immediates = int(columns.opcode[index]), int(columns.immediates[index])
        if (code, immediates) not in uses:
            row = rows[program.opcodes[code].name]
            uses[code, immediates] = register_use(row, dict(program.immediates[immediates]))
        use, slot = uses[code, immediates], slots[code]
        access = int(columns.operand[columns.operand_at[index] + slot]) if slot >= 0 else -1
        if use is not None:
            yield index, use, int(columns.access_buffer[access]) if access >= 0 else -1
