"""Which registers each instruction reads and writes through its immediates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nkireview.isa.row import Row
from nkireview.program.interning import Ints, intern
from nkireview.program.program import Program


@dataclass(frozen=True)
class RegisterUse:
    """Numbers of registers; those of an instruction without a row are both read and written."""

    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()


def register_uses(program: Program, rows: Mapping[str, Row]) -> tuple[Sequence[RegisterUse], Ints]:
    """The distinct uses, and the number of that of each instruction."""
    columns = program.columns
    classes = intern([columns.opcode, columns.immediates], len(program))
    found = []
    for first in classes.first.tolist():
        row = rows.get(program.opcodes[columns.opcode[first]].name)
        immediates = program.immediates[columns.immediates[first]]
        if row is None:
            every = named_registers(tuple(immediates.values()))
            found.append(RegisterUse(every, every))
            continue
        written = {name: value for name, value in immediates.items() if name in row.registers}
        read = tuple(value for name, value in immediates.items() if name not in written)
        found.append(RegisterUse(named_registers(read), named_registers(tuple(written.values()))))
    return found, classes.of


def named_registers(values: Any) -> tuple[int, ...]:
    """The registers in an immediate, spelled ("register", n)."""
    if not isinstance(values, tuple | list):
        return ()
    if len(values) == 2 and values[0] == "register" and isinstance(values[1], int):
        return (values[1],)
    return tuple(register for value in values for register in named_registers(value))
