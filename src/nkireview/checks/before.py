"""Before: which meetings of the cores each instruction surely comes after, and which surely come after it.

What one core does comes before what another does only by way of a meeting. Meetings whose barrier runs on one engine
of the first core come one after the other: they are a chain, and of a chain the last one before an instruction and the
first one after it say all. Each engine is a queue in which an instruction starts when those before it have ended. A DMA
starts when the queue that issues it has come to it, and when it has ended only those know who depend on it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nkireview.isa.enums import DgeMode, Engine
from nkireview.isa.row import Row
from nkireview.program.interning import Ints, by_opcode
from nkireview.program.program import DGES, ENGINES
from nkireview.program.scope import Scope, distinct_calls
from nkireview.schedule.dependences import Dependences
from nkireview.schedule.touches import cores_of

QUEUES = (Engine.tensor, Engine.vector, Engine.scalar, Engine.gpsimd, Engine.sync)
ISSUES = QUEUES.index(Engine.sync)
"""The queue of DMAs that name none."""
NEVER = 2**31 - 1


@dataclass(frozen=True, eq=False)
class Before:
    """By chain and instruction the last meeting that it comes after (-1: none) and the first after it (NEVER: none).

    Instruction i of one core comes before j of another one where ``following[c, i] <= known[c, j]`` for a chain c.
    Without meetings there is one chain, of none.
    """

    known: NDArray[np.int32]
    following: NDArray[np.int32]


def before(scope: Scope, edges: Dependences, together: Sequence[tuple[int, ...]]) -> Before:
    """The order of a Program whose cores meet at these instructions; device-side loops run once."""
    program = scope.program
    queue, is_dma = queues(scope)
    lanes, dma = queue.tolist(), is_dma.tolist()
    chains = sorted({lanes[met[0]] for met in together}) or [-1]
    at, producer = edges.at.tolist(), edges.producer.tolist()
    spans = [[(s.start, s.stop) for s in program.streams if s.core == core] for core in cores_of(program)]
    known, following = [], []
    for chain in chains:
        numbers = [number if lanes[met[0]] == chain else -1 for number, met in enumerate(together)]
        known.append(_known(len(program), spans, lanes, at, producer, together, numbers))
        own = {index: number for met, number in zip(together, numbers, strict=True) for index in met}
        following.append(_following(len(program), spans, lanes, dma, at, producer, own))
    return Before(np.array(known, np.int32), np.array(following, np.int32))


def queues(scope: Scope) -> tuple[Ints, NDArray[np.bool_]]:
    """For each instruction the queue that it runs or is issued in, a position in `QUEUES`, and whether it is a DMA."""
    program, columns = scope.program, scope.program.columns
    found = np.full(len(program), ISSUES, np.int64)
    is_dma = np.zeros(len(program), bool)
    for code, instructions, accesses in by_opcode(program):
        opcode = program.opcodes[code]
        row = scope.rows.get(opcode.name)
        if row is None:
            continue
        if row.engines.default is Engine.dma:
            is_dma[instructions] = True
            found[instructions] = _ISSUING[columns.engine[instructions], columns.dge[instructions]]
        elif row.engines.choose is None:
            found[instructions] = _running(row, scope)[columns.engine[instructions]]
        else:
            calls = distinct_calls(scope, row, opcode.operands, instructions, accesses)
            engines = [_queue(call.resolved_engine()) for call in calls.calls]
            found[instructions] = np.array(engines, np.int64)[calls.classes.of]
    return found, is_dma


def _queue(engine: Engine) -> int:
    return QUEUES.index(engine) if engine in QUEUES else ISSUES


def _running(row: Row, scope: Scope) -> Ints:
    """The queue by the engine that a call asks for."""
    honoured = scope.release in row.engines.honoured
    found = np.full(max(ENGINES) + 1, _queue(row.engines.default), np.int64)
    for number, engine in ENGINES.items():
        if honoured and engine is not Engine.unknown:
            found[number] = _queue(engine)
    return found


def _issuers() -> Ints:
    """The queue that issues a DMA, by the engine that it asks for and how its descriptors are made."""
    found = np.full((max(ENGINES) + 1, max(DGES) + 1), ISSUES, np.int64)
    for number, engine in ENGINES.items():
        for value, dge in DGES.items():
            if engine in QUEUES:
                found[number, value] = _queue(engine)
            elif dge is DgeMode.swdge:
                found[number, value] = _queue(Engine.gpsimd)
    return found


_ISSUING = _issuers()


def _known(
    count: int,
    spans: Sequence[Sequence[tuple[int, int]]],
    lanes: Sequence[int],
    at: Sequence[int],
    producer: Sequence[int],
    together: Sequence[tuple[int, ...]],
    numbers: Sequence[int],
) -> list[int]:
    """For each instruction the last meeting of a chain that it comes after; a meeting counts as after itself."""
    found = [-1] * count
    states = [[-1] * len(QUEUES) for _ in spans]

    def run(core: int, start: int, stop: int) -> None:
        state = states[core]
        for index in range(start, stop):
            lane = lanes[index]
            latest = state[lane]
            for other in producer[at[index] : at[index + 1]]:
                if found[other] > latest:
                    latest = found[other]
            found[index] = state[lane] = latest

    reached = [[start for start, _ in parts] for parts in spans]

    def run_to(core: int, stop: int) -> None:
        for number, (_, end) in enumerate(spans[core]):
            until = min(stop, end)
            if reached[core][number] < until:
                run(core, reached[core][number], until)
                reached[core][number] = until

    for met, number in zip(together, numbers, strict=True):
        for core, index in enumerate(met):
            run_to(core, index + 1)
        joined = max(number, *(found[index] for index in met))
        for core, index in enumerate(met):
            found[index] = states[core][lanes[index]] = joined
    for core in range(len(spans)):
        run_to(core, count)
    return found


def _following(
    count: int,
    spans: Sequence[Sequence[tuple[int, int]]],
    lanes: Sequence[int],
    dma: Sequence[bool],
    at: Sequence[int],
    producer: Sequence[int],
    own: Mapping[int, int],
) -> list[int]:
    """For each instruction the first meeting of a chain that comes after its end, within its core."""
    ended = [NEVER] * count
    numbered = sorted(index for index, number in own.items() if number >= 0)

    def run(state: list[int], start: int, stop: int) -> None:
        for index in range(stop - 1, start - 1, -1):
            lane = lanes[index]
            started = state[lane]
            if not dma[index] and started < ended[index]:
                ended[index] = started
            elif ended[index] < started:
                state[lane] = started = ended[index]
            for other in producer[at[index] : at[index + 1]]:
                if started < ended[other]:
                    ended[other] = started

    for parts in spans:
        state = [NEVER] * len(QUEUES)
        for start, stop in reversed(parts):
            for met in reversed(numbered[bisect_left(numbered, start) : bisect_left(numbered, stop)]):
                run(state, met + 1, stop)
                # what a meeting waits for, and what precedes it on its queue, comes before it
                after = min(state[lanes[met]], ended[met])
                ended[met] = ended[met] if dma[met] else after
                state[lanes[met]] = started = min(after, own[met])
                for other in producer[at[met] : at[met + 1]]:
                    ended[other] = min(ended[other], started)
                stop = met
            run(state, start, stop)
    return ended
