"""Pairing: exchanges between the cores of a launch whose two sides do not fit each other.

What a core sends has to be what the other one takes: ranks that cross, one dtype, and the same partitions and elements
in each. Source: nki/api/nki/isa/__init__.py:2988-2991,3009-3014.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from nkireview.checks.meetings import meetings
from nkireview.isa.row import Row
from nkireview.program.program import Program
from nkireview.schedule.touches import cores_of

EXCHANGE = "sendrecv"
SENDS, RECEIVES = "send_to_rank", "recv_from_rank"


@dataclass(frozen=True)
class Unpaired:
    """Two sides of an exchange that do not fit: `sends` is the call of core `sender`, `takes` that of `receiver`.

    `named` is whom the other side names instead, where the ranks do not cross: the core that `sends` sends to where
    `of_sender`, else the one that `takes` receives from. Where they do, it is -1, and `sent` and `taken` are what is
    sent and taken: partitions, elements in each, dtype.
    """

    sends: int
    takes: int
    sender: int
    receiver: int
    named: int = -1
    of_sender: bool = False
    sent: tuple[int, int, str] | None = None
    taken: tuple[int, int, str] | None = None


def unpaired(program: Program, rows: Mapping[str, Row]) -> tuple[Unpaired, ...]:
    """The exchanges that do not fit, in program order, as far as the cores come to the same ones."""
    codes = {number for number, opcode in enumerate(program.opcodes) if opcode.name == EXCHANGE}
    if not codes:
        return ()
    columns, cores = program.columns, cores_of(program)
    found: dict[Unpaired, None] = {}
    together = meetings(program, rows).together
    for met in _in_step(program, codes) if together is None else together:
        if int(columns.opcode[met[0]]) in codes:
            found.update(dict.fromkeys(_unpaired(program, dict(zip(cores, met, strict=True)))))
    return tuple(found)


def _in_step(program: Program, codes: Collection[int]) -> Iterator[tuple[int, ...]]:
    """The exchanges of cores that do not come to all the same ones: while the pipes are the same, and without loops."""
    columns = program.columns
    calls: dict[int, list[int]] = {core: [] for core in cores_of(program)}
    for stream in program.streams:
        found = np.flatnonzero(np.isin(columns.opcode[stream.start : stream.stop], list(codes)))
        calls[stream.core] += (found + stream.start).tolist()
    for met in zip(*calls.values(), strict=False):
        pipes = {program.immediates[columns.immediates[at]].get("pipe_id") for at in met}
        if len(pipes) > 1 or any(loop.start <= at < loop.stop for at in met for loop in program.loops):
            return
        yield met


def _unpaired(program: Program, calls: Mapping[int, int]) -> Iterator[Unpaired]:
    """What is wrong with one exchange; `calls`: the instruction of each core."""
    immediates = {core: program.immediates[program.columns.immediates[at]] for core, at in calls.items()}
    target = {core: given.get(SENDS) for core, given in immediates.items()}
    source = {core: given.get(RECEIVES) for core, given in immediates.items()}
    if any(rank not in calls for rank in (*target.values(), *source.values())):
        return
    crossed = list(_crossed(calls, target, source))
    if crossed:
        # one wrong rank shows on both sides: what names two calls says most
        yield next((each for each in crossed if each.sends != each.takes), crossed[0])
        return
    for core in calls:
        to = int(target[core])
        sent, taken = _held(program, calls[core], "src"), _held(program, calls[to], "dst")
        if sent is not None and taken is not None and sent != taken:
            yield Unpaired(calls[core], calls[to], core, to, sent=sent, taken=taken)


def _crossed(
    calls: Mapping[int, int], target: Mapping[int, Any], source: Mapping[int, Any]
) -> Iterator[Unpaired]:
    """Where a core names one that names another; target, source: the ranks that each sends to and receives from."""
    for core in calls:
        to, origin = int(target[core]), int(source[core])
        if source[to] != core:
            yield Unpaired(calls[core], calls[to], core, to, named=int(source[to]))
        if target[origin] != core:
            named = int(target[origin])
            yield Unpaired(calls[origin], calls[core], origin, core, named=named, of_sender=True)


def _held(program: Program, instruction: int, name: str) -> tuple[int, int, str] | None:
    """Partitions, elements in each and dtype of an operand."""
    access = program.instruction(instruction).operands.get(name)
    if access is None:
        return None
    elements = math.prod(access.shape)
    return access.partitions, elements // max(access.partitions, 1), access.dtype
