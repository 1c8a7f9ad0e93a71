"""What an execution gives: output values, final parameters and faults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.program.program import Program


@dataclass(frozen=True)
class Fault:
    """Something an execution met that has no defined result.

    kind: one of `Fault.KINDS`. instruction and place are those of the first occurrence, -1 where there is none.
    count: elements for faults of an output, otherwise how often it happened at this place.
    """

    kind: str
    instruction: int
    place: int
    message: str
    count: int = 1

    KINDS = (
        "uninitialised",
        "undefined result",
        "unwritten output",
        "not executed",
        "psum accumulate onto undefined",
        "psum accumulate after value init",
        "out of bounds",
        "duplicate indices",
        "duplicate scatter",
        "duplicate scatter to a spare row",
        "undefined index",
        "undefined register",
        "deadlock",
        "endless loop",
        "no meaning",
        "unsupported",
    )

    def __post_init__(self) -> None:
        if self.kind not in self.KINDS:
            raise ValueError(f"fault kind {self.kind!r} is not one of {', '.join(self.KINDS)}")


CONTESTED = frozenset({"duplicate scatter", "duplicate scatter to a spare row"})
"""Faults after which everything is defined, but for which of some values is the one that stays."""


@dataclass(frozen=True, eq=False)
class OutputValue:
    """One output, read-only: storage dtype, the output's shape.

    written: True where an element is written and defined, None where all are. last_writers: the instructions
    whose values it holds, ascending.
    """

    name: str
    values: NDArray[Any]
    written: NDArray[np.bool_] | None
    last_writers: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Execution:
    """The result of `execute`.

    parameters: the final content, by path, of each HBM parameter that the kernel may write, read-only.
    executed: instructions carried out, loops unrolled. trips: index of a loop in the program, of those whose bounds are
    no numbers, -> how many passes it made each time it was entered, on average and rounded up.
    """

    outputs: tuple[OutputValue, ...]
    faults: tuple[Fault, ...]
    parameters: Mapping[str, NDArray[Any]]
    executed: int
    trips: Mapping[int, int] = field(default_factory=dict)

    @property
    def defined(self) -> bool:
        """True where nothing was undefined; of contested values the last one counts."""
        return all(fault.kind in CONTESTED for fault in self.faults)


class NoMeaningError(Exception):
    """Why an instruction cannot be carried out."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class FaultLog:
    """Collects faults; repeats of one kind by one opcode at one place are counted."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._found: dict[tuple[str, str, int, int], Fault] = {}

    def at(self, instruction: int) -> str:
        """``" at file:line"`` of an instruction, or an empty string."""
        text = self._program.place_text(self.place(instruction))
        return f" at {text}" if text else ""

    def place(self, instruction: int) -> int:
        """The place of an instruction, -1 for none."""
        return int(self._program.columns.place[instruction]) if instruction >= 0 else -1

    def opcode(self, instruction: int) -> str:
        """The name of an instruction's row."""
        opcode: str = self._program.opcodes[self._program.columns.opcode[instruction]].name
        return opcode

    def instruction(self, kind: str, instruction: int, message: str) -> None:
        """Record what happened at an instruction; the message gets its opcode and place."""
        place, opcode = self.place(instruction), self.opcode(instruction)
        key = (kind, opcode, place, instruction if place < 0 else -1)
        found = self._found.get(key)
        if found is None:
            where = self._program.place_text(place)
            text = f"{opcode}: {message}" + (f" ({where})" if where else "")
            self._found[key] = Fault(kind, instruction, place, text)
        else:
            self._found[key] = Fault(kind, found.instruction, place, found.message, found.count + 1)

    def shape(self, access: int) -> tuple[int, ...]:
        """The shape of the buffer of an access."""
        return self._program.buffer(self._program.access(access).buffer).shape

    def picked(self, access: int) -> bool:
        """True where an index tile picks the elements of an access."""
        extra = self._program.extras.get(access)
        return extra is not None and extra.index is not None and extra.index.kind == "vector"

    def add(self, fault: Fault) -> None:
        """Record a fault that happens once."""
        self._found[(fault.kind, fault.message, fault.place, fault.instruction)] = fault

    @property
    def faults(self) -> tuple[Fault, ...]:
        """All faults, in the order in which they were first met."""
        return tuple(self._found.values())
