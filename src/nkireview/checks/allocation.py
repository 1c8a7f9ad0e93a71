"""Allocation: where each buffer on chip lies, at the kernel's own address or where a rotating allocator puts it."""

from __future__ import annotations

from dataclasses import dataclass

from nkireview.hardware import Hardware
from nkireview.isa.enums import Memory
from nkireview.program.program import MEMORIES, Program
from nkireview.program.storage import Storage
from nkireview.schedule.reuse import allocation
from nkireview.schedule.uses import Uses


@dataclass(frozen=True)
class Placed:
    """A buffer on chip that is used: its partitions, and its bytes [start, stop) of each of them.

    `start` and `stop` are None where there is no room. `first` and `last` are the instructions between which it is
    alive, both included. `explicit`: the address is the kernel's own.
    """

    buffer: int
    memory: Memory
    core: int
    partition: int
    partitions: int
    start: int | None
    stop: int | None
    first: int
    last: int
    explicit: bool


def allocate(program: Program, stored: Storage, hardware: Hardware, used: Uses) -> tuple[Placed, ...]:
    """Every buffer on chip that is used, by number."""
    found = allocation(program, stored, hardware, used)
    columns = (
        found.buffer,
        found.memory,
        found.core,
        found.partition,
        found.partitions,
        found.start,
        found.stop,
        found.first,
        found.last,
        found.explicit,
    )
    return tuple(
        Placed(
            buffer,
            MEMORIES[memory],
            core,
            partition,
            partitions,
            start if start >= 0 else None,
            stop if start >= 0 else None,
            first,
            last,
            explicit,
        )
        for buffer, memory, core, partition, partitions, start, stop, first, last, explicit in zip(
            *(column.tolist() for column in columns), strict=True
        )
    )
