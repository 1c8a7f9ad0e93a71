"""Rules of tiling: how many partitions, how long a row, how much of the PE array an instruction fills."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from nkireview.isa.enums import Engine
from nkireview.program.interning import Ints, intern, members
from nkireview.rules.case import Case, scheduled, share
from nkireview.rules.finding import Dimension, Evidence, Severity
from nkireview.rules.movement import alike, neighbours
from nkireview.rules.rule import Draft, Rule

_PERF = "aws-neuron-sdk nki/deep-dives/nki_perf_guide.rst"
SMALL = 128
"""Elements a partition below which an instruction's fixed cost weighs (nki_perf_guide.rst:441)."""


def _few_partitions(case: Case) -> Iterator[Draft]:
    """Row blocks of at most half the partitions, of a tensor whose next block is moved in the same way."""
    moves = case.survey.moves
    lanes = case.hardware.partitions
    held = np.flatnonzero((moves.partitions > 0) & (moves.partitions <= lanes // 2))
    blocks = []
    for rows in alike(case, held):
        beside = neighbours(case, rows, _next_block(case, moves.hbm[rows], moves.partitions[rows]))
        if beside.any():
            blocks.append(rows[beside])
    if not blocks:
        return
    rows = np.concatenate(blocks)
    count = int(np.bincount(moves.partitions[rows]).argmax())
    rows = rows[moves.partitions[rows] == count]
    work = case.survey.work
    vector = np.isin(work.engine, [Engine.vector.value, Engine.scalar.value, Engine.gpsimd.value])
    lanes_of = work.instruction[vector & (work.partitions == count)]
    if not len(lanes_of):
        return
    instructions = np.concatenate([moves.instruction[rows], lanes_of])
    gain = case.stake(instructions, count / lanes)
    if not case.worth(gain):
        return
    names = case.labels(np.unique(moves.hbm_buffer[rows]).tolist())
    yield case.draft(
        Severity.major,
        f"tiles of {names} have {count} of {lanes} partitions, although the next rows are there: {len(lanes_of)} "
        f"instructions and {len(rows)} DMAs leave {lanes - count} lanes idle, {share(gain, case.total_ns)} of the "
        "predicted time",
        np.concatenate([lanes_of, moves.instruction[rows]]),
        gain_ns=gain,
        group=names,
        change=f"take {lanes} rows of {names} at a time: an instruction takes as long for {lanes} partitions as "
        f"for {count}",
    )


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
            parts.append(rows[beside])
    if not parts:
        return
    rows = np.concatenate(parts)
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
        change="work on the whole tile with one instruction, or on pieces of some hundred elements a partition",
    )


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
    yield from _underfilled(
        case,
        rows,
        work.rows,
        "rows",
        "each adds {count} rows of the contraction to a result that several such matmuls make",
        "put {lanes} rows of the contraction on the partitions: one matmul instead of {times}",
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
        "columns",
        "each takes {count} columns of a stationary tile whose next columns meet the same moving tile",
        "give each matmul {lanes} columns of the stationary tile: one instead of {times}",
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


def _underfilled(case: Case, rows: Ints, filled: Ints, what: str, how: str, change: str) -> Iterator[Draft]:
    work = case.survey.work
    lanes = case.hardware.partitions
    if not len(rows):
        return
    gain = case.stake(work.instruction[rows], filled[rows] / lanes)
    if not case.worth(gain):
        return
    count = int(np.bincount(filled[rows]).argmax())
    yield case.draft(
        Severity.major,
        f"{len(rows)} matmuls fill {count} of {lanes} PE {what}: {how.format(count=count)}; "
        f"{share(gain, case.total_ns)} of the predicted time",
        work.instruction[rows],
        gain_ns=gain,
        group=", ".join(case.places(work.instruction[rows])),
        change=change.format(lanes=lanes, times=max(lanes // count, 2)),
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
    gain = case.stake(work.instruction[rows], work.free[rows] / least)
    if not case.worth(gain):
        return
    count = int(np.bincount(work.free[rows]).argmax())
    limit = case.hardware.moving_free_max("float32")
    yield case.draft(
        Severity.major,
        f"{len(rows)} matmuls move {count} columns each through the same stationary tile, side by side; one takes "
        f"{least} cycles at least, {share(gain, case.total_ns)} of the predicted time",
        work.instruction[rows],
        gain_ns=gain,
        group=", ".join(case.places(work.instruction[rows])),
        change=f"move up to {limit} columns with one matmul",
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
        suppresses=frozenset({"NKR163"}),
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
