"""Rules of tiling: how many partitions, how long a row, how much of the PE array an instruction fills."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from nkireview.checks.lanes import Lanes, lanes
from nkireview.isa.enums import Engine
from nkireview.isa.table import ROWS
from nkireview.program.interning import Ints, intern, members
from nkireview.rules.case import Case, scheduled, share
from nkireview.rules.finding import Dimension, Evidence, Severity
from nkireview.rules.movement import alike, neighbours
from nkireview.rules.rule import Draft, Rule

_PERF = "aws-neuron-sdk nki/deep-dives/nki_perf_guide.rst"
SMALL = 128
"""Elements a partition below which an instruction's fixed cost weighs (nki_perf_guide.rst:441)."""


def _few_partitions(case: Case) -> Iterator[Draft]:
    """Row blocks of at most half the partitions, of a tensor whose next block is moved in the same way.

    Only tiles that are worked on row by row count: what a matmul contracts has the rows of one sum, and the next ones
    belong to another. The rows of a matmul's result are its stationary columns, of which there must be more.
    """
    moves = case.survey.moves
    most = case.hardware.partitions
    blocks: list[tuple[Ints, int]] = []
    for rows in alike(case, np.flatnonzero((moves.partitions > 0) & (moves.partitions <= most // 2))):
        beside = rows[neighbours(case, rows, _next_block(case, moves.hbm[rows], moves.partitions[rows]))]
        if len(beside):
            blocks.append((beside, len(np.unique(case.program.columns.access_base[moves.hbm[beside]]))))
    if not blocks:
        return
    flow = lanes(case.program, case.survey.uses, ROWS)
    tiles = np.where(moves.loads, moves.target, moves.source)
    more = _more_columns(case, flow)
    free = [(rows[~flow.contracted[tiles[rows]] & more[tiles[rows]]], many) for rows, many in blocks]
    free = [(rows, many) for rows, many in free if len(rows)]
    if not free:
        return
    sizes = np.concatenate([moves.partitions[rows] for rows, _ in free])
    count = int(np.bincount(sizes).argmax())
    free = [(rows[moves.partitions[rows] == count], many) for rows, many in free]
    rows = np.concatenate([rows for rows, _ in free])
    taken = min(most, count * max(many for rows, many in free if len(rows)))
    mine = np.unique(flow.group[tiles[rows]])
    work = case.survey.work
    vector = np.isin(work.engine, [Engine.vector.value, Engine.scalar.value, Engine.gpsimd.value])
    used = case.survey.uses
    near = np.isin(work.instruction, used.instruction[np.isin(flow.group[used.buffer], mine)])
    lanes_of = work.instruction[vector & near & (work.partitions == count)]
    if not len(lanes_of):
        return
    instructions = np.concatenate([moves.instruction[rows], lanes_of])
    gain = case.stake(instructions, count / taken)
    if not case.worth(gain):
        return
    names = case.labels(np.unique(moves.hbm_buffer[rows]).tolist())
    yield case.draft(
        Severity.major,
        f"tiles of {names} have {count} of {most} partitions, although the next rows are there: {len(lanes_of)} "
        f"instructions and {len(rows)} DMAs leave {most - count} lanes idle, {share(gain, case.total_ns)} of the "
        "predicted time",
        np.concatenate([lanes_of, moves.instruction[rows]]),
        gain_ns=gain,
        group="few partitions",
        change=f"take {taken} rows of {names} at a time: an instruction takes as long for {taken} partitions as "
        f"for {count}",
    )


def _more_columns(case: Case, flow: Lanes) -> NDArray[np.bool_]:
    """By buffer: False where its rows are the columns of a stationary tile, and no other meets the same moving tile."""
    matmuls = case.runs("nc_matmul")
    target = case.buffers(case.operand(matmuls, "dst"))
    moving, stationary = (case.operand(matmuls, name) for name in ("moving", "stationary"))
    origin = _origin(case, moving)
    met, counts = np.unique(np.unique(np.stack([origin, stationary]), axis=1)[0], return_counts=True)
    shared = flow.group[target[np.isin(origin, met[counts > 1])]]
    found: NDArray[np.bool_] = ~flow.product | np.isin(flow.group, shared)
    return found


def _origin(case: Case, accesses: Ints) -> Ints:
    """Where the content of tiles comes from: what a DMA loads into the buffer, else the access itself."""
    moves = case.survey.moves
    found: Ints = accesses.copy()
    source = np.full(case.program.columns.buffers, -1, np.int64)
    source[moves.target[moves.loads]] = moves.source_access[moves.loads]
    loaded = source[case.buffers(accesses)]
    found[loaded >= 0] = -2 - loaded[loaded >= 0]
    return found


def _next_block(case: Case, accesses: Ints, partitions: Ints) -> Ints:
    """Elements from the beginning of each access to that of the block of rows below it; 0 where there is no such."""
    found = np.zeros(len(accesses), np.int64)
    for at, (access, count) in enumerate(zip(accesses.tolist(), partitions.tolist(), strict=True)):
        pattern = case.program.access(access).pattern
        if pattern and pattern[0][1] == count:
            found[at] = pattern[0][0] * count
    return np.where(found == 0, -1, found)


def _short_rows(case: Case) -> Iterator[Draft]:
    """Instructions over a few elements a partition, beside others that do the same to the next elements."""
    work = case.survey.work
    vector = np.isin(work.engine, [Engine.vector.value, Engine.scalar.value])
    held = np.flatnonzero(vector & (work.free < SMALL) & (work.free > 0))
    parts = []
    for rows in _by_target(case, held):
        instructions = work.instruction[rows]
        target = case.operand(instructions, "dst")
        base = case.program.columns.access_base[np.maximum(target, 0)]
        step = base + work.free[rows]
        beside = (np.isin(step, base) | np.isin(base, step)) & (target >= 0)
        if int(beside.sum()) >= 4 and _one_tile(case, target[beside]):
            parts.append(rows[beside] if _at_once(case, instructions[beside]) else rows[:0])
    rows = np.concatenate([*parts, held[:0]])
    if not len(rows):
        return
    clock = case.hardware.clocks["vector"]
    fixed = case.figures.number("vector.overhead_cycles") / clock
    spent = work.free[rows] / clock
    gain = case.stake(work.instruction[rows], spent / (spent + fixed))
    if not case.worth(gain):
        return
    free = int(np.median(work.free[rows]))
    yield case.draft(
        Severity.major,
        f"{len(rows)} instructions work on {free} elements a partition each, side by side in one tile: the fixed cost "
        f"of about {case.figures.number('vector.overhead_cycles'):.0f} cycles is {share(gain, case.total_ns)} of the "
        "predicted time",
        work.instruction[rows],
        gain_ns=gain,
        group=", ".join(case.places(work.instruction[rows])),
        change="work on what lies side by side with one instruction: up to "
        f"{_beside(case, parts):,} elements a partition",
    )


def _beside(case: Case, parts: list[Ints]) -> int:
    """The elements a partition of the largest stretch that instructions cut into pieces."""
    work = case.survey.work
    found = [
        int(work.free[rows[0]]) * len(np.unique(case.operand(work.instruction[rows], "dst")))
        for rows in parts
        if len(rows)
    ]
    return max(found)


def _at_once(case: Case, instructions: Ints) -> bool:
    """True where nothing that the instructions read is written between them, by one of them or by another."""
    used = case.survey.uses
    first, last = int(instructions.min()), int(instructions.max())
    inside = (used.instruction >= first) & (used.instruction <= last)
    mine = np.isin(used.instruction, instructions)
    target = case.buffers(case.operand(instructions, "dst"))
    read = mine & used.reads & ~used.writes
    # a tile that each of them reads as it then is
    several = _repeated(used.access[read])
    written = used.access[inside & used.writes & ~mine]
    if np.isin(case.buffers(several), case.buffers(written)).any():
        return False
    # a piece that one makes and another reads
    own = case.operand(instructions, "dst")
    back = read & np.isin(used.buffer, target) & np.isin(used.access, own)
    made = dict(zip(instructions.tolist(), own.tolist(), strict=True))
    return all(
        made[int(at)] == int(access)
        for at, access in zip(used.instruction[back], used.access[back], strict=True)
    )


def _repeated(values: Ints) -> Ints:
    known, counts = np.unique(values, return_counts=True)
    found: Ints = known[counts > 1]
    return found


def _by_target(case: Case, rows: Ints) -> list[Ints]:
    """Rows of the work by opcode, size and the buffer they write."""
    work = case.survey.work
    target = case.buffers(case.operand(work.instruction[rows], "dst"))
    classes = intern([work.opcode[rows], work.free[rows], target], len(rows))
    return [rows[part] for part in members(classes.of, len(classes))]


def _one_tile(case: Case, accesses: Ints) -> bool:
    """True where the accesses are free-dimension slices of one tile."""
    held = [case.program.access(int(number)) for number in np.unique(accesses)]
    return len({(access.pattern, access.buffer) for access in held}) == 1 and len(held) > 1


def _shallow(case: Case) -> Iterator[Draft]:
    """Matmuls over at most half the PE rows, several of them accumulated into one result."""
    work = case.survey.work
    half = case.hardware.partitions // 2
    matmuls = np.flatnonzero((work.rows > 0) & (work.rows <= half) & ~work.moves)
    instructions = work.instruction[matmuls]
    target = case.operand(instructions, "dst")
    added = case.chosen(
        instructions, lambda given: given.get("accumulate") is True and not given.get("tile_size")
    )
    _, of = np.unique(target, return_inverse=True)
    chained = np.zeros(len(of), bool)
    if len(of):
        chained = np.bincount(of.reshape(-1), weights=added)[of.reshape(-1)] > 0
    rows = matmuls[chained]
    length = 0
    if len(rows):
        number = of.reshape(-1)
        begun = np.maximum(np.bincount(number, weights=~added), 1)
        length = int(np.median((np.bincount(number) / begun)[number[chained]]))
    yield from _underfilled(
        case,
        rows,
        work.rows,
        length,
        "rows",
        "each adds {count} rows of the contraction to a result that several such matmuls make",
        "put {taken} rows of the contraction on the partitions: one matmul instead of {times}",
    )


def _thin(case: Case) -> Iterator[Draft]:
    """Matmuls over at most half the PE columns, of a moving tile that others take with their own columns."""
    work = case.survey.work
    half = case.hardware.partitions // 2
    matmuls = np.flatnonzero((work.columns > 0) & (work.columns <= half) & ~work.moves)
    instructions = work.instruction[matmuls]
    moving, stationary = (case.operand(instructions, name) for name in ("moving", "stationary"))
    beside = _siblings(case, stationary)
    pairs = np.unique(np.stack([moving[beside], stationary[beside]]), axis=1)
    tiles, counts = np.unique(pairs[0], return_counts=True)
    rows = matmuls[beside & np.isin(moving, tiles[counts > 1])]
    yield from _underfilled(
        case,
        rows,
        work.columns,
        int(np.median(counts[counts > 1])) if len(rows) else 0,
        "columns",
        "each takes {count} columns of a stationary tile whose next columns meet the same moving tile",
        "give each matmul {taken} columns of the stationary tile: one instead of {times}",
    )


def _siblings(case: Case, accesses: Ints) -> NDArray[np.bool_]:
    """Accesses beside others of the same buffer: the next columns begin where these end."""
    columns = case.program.columns
    held = np.unique(accesses[accesses >= 0])
    buffer, base = columns.access_buffer[held].astype(np.int64), columns.access_base[held]
    width = np.array([case.program.access(int(number)).free for number in held], np.int64)
    span = int(base.max()) + int(width.max()) + 1 if len(held) else 1
    start = buffer * span + base
    beside = np.isin(start + width, start) | np.isin(start, start + width)
    return np.isin(accesses, held[beside])


def _underfilled(
    case: Case, rows: Ints, filled: Ints, pieces: int, what: str, how: str, change: str
) -> Iterator[Draft]:
    """Matmuls that fill little of the array; `pieces`: as many of them as one result or moving tile has."""
    work = case.survey.work
    lanes_there = case.hardware.partitions
    if not len(rows):
        return
    count = int(np.bincount(filled[rows]).argmax())
    times = min(lanes_there // count, pieces)
    if times < 2:
        return
    gain = case.stake(work.instruction[rows], np.maximum(1 / times, filled[rows] / lanes_there))
    if not case.worth(gain):
        return
    yield case.draft(
        Severity.major,
        f"{len(rows)} matmuls fill {count} of {lanes_there} PE {what}: {how.format(count=count)}; "
        f"{share(gain, case.total_ns)} of the predicted time",
        work.instruction[rows],
        gain_ns=gain,
        group=", ".join(case.places(work.instruction[rows])),
        change=change.format(taken=count * times, times=times),
    )


def _short_moving(case: Case) -> Iterator[Draft]:
    """Matmuls over fewer moving columns than the array takes to start, of pieces that lie side by side."""
    work = case.survey.work
    least = int(case.figures.number("tensor.min_interval_cycles"))
    matmuls = np.flatnonzero((work.rows > 0) & (work.free < least) & (work.free > 0) & ~work.moves)
    instructions = work.instruction[matmuls]
    moving, stationary = (case.operand(instructions, name) for name in ("moving", "stationary"))
    beside = _siblings(case, moving)
    pairs = np.unique(np.stack([stationary[beside], moving[beside]]), axis=1)
    tiles, counts = np.unique(pairs[0], return_counts=True)
    rows = matmuls[beside & np.isin(stationary, tiles[counts > 1])]
    if not len(rows):
        return
    count = int(np.bincount(work.free[rows]).argmax())
    pieces = int(np.median(counts[counts > 1]))
    taken = min(case.hardware.moving_free_max("float32") // count, pieces) * count
    gain = case.stake(work.instruction[rows], np.maximum(count / taken, work.free[rows] / least))
    if not case.worth(gain):
        return
    yield case.draft(
        Severity.major,
        f"{len(rows)} matmuls move {count} columns each through the same stationary tile, side by side; one takes "
        f"{least} cycles at least, {share(gain, case.total_ns)} of the predicted time",
        work.instruction[rows],
        gain_ns=gain,
        group=", ".join(case.places(work.instruction[rows])),
        change=f"move {taken} columns with one matmul",
    )


_TILING = Dimension.tiling

RULES = (
    Rule(
        "NKR140",
        "Tiles of few partitions, although the next rows could share them",
        Severity.major,
        _TILING,
        Evidence.scheduled,
        "Each partition has its own lane in Vector, Scalar and GpSimd, and every eight partitions their DMA engine. An "
        "instruction over 64 partitions takes as long as one over 128.",
        scheduled(_few_partitions),
        citation=f"{_PERF}:459-545",
        suppresses=frozenset({"NKR121", "NKR163"}),
    ),
    Rule(
        "NKR141",
        "Many instructions over a few elements a partition",
        Severity.major,
        _TILING,
        Evidence.scheduled,
        "Vector and Scalar take about 60 cycles for each instruction before the first element, whatever its size; they "
        "need at least 128 elements a partition to be efficient.",
        scheduled(_short_rows),
        citation=f"{_PERF}:404-455",
        suppresses=frozenset({"NKR151", "NKR161", "NKR163"}),
    ),
    Rule(
        "NKR142",
        "Matmuls that fill few rows of the PE array",
        Severity.major,
        _TILING,
        Evidence.scheduled,
        "The contraction lies on the partitions, one PE row each. A matmul over 64 of them takes as many cycles as one "
        "over 128, for half the products.",
        scheduled(_shallow),
        citation=f"{_PERF}:476-491",
        suppresses=frozenset({"NKR163"}),
    ),
    Rule(
        "NKR143",
        "Matmuls that fill few columns of the PE array",
        Severity.major,
        _TILING,
        Evidence.scheduled,
        "Each column of the stationary tile takes one PE column. The moving tile goes through the array in the same "
        "number of cycles whether 64 or 128 columns work on it.",
        scheduled(_thin),
        citation=f"{_PERF}:476-491",
        suppresses=frozenset({"NKR163"}),
    ),
    Rule(
        "NKR144",
        "Matmuls that move few columns",
        Severity.major,
        _TILING,
        Evidence.scheduled,
        "A matmul holds the array for at least 64 cycles, one for each moving column above that. Fewer columns leave "
        "it waiting.",
        scheduled(_short_moving),
        citation=f"{_PERF}:595-688",
        suppresses=frozenset({"NKR163"}),
    ),
)
