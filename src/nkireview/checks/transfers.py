"""Transfers: every DMA as one row: what it moves from where to where, and in what pieces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.isa import dtypes
from nkireview.isa.enums import Engine
from nkireview.isa.row import Flow, Row
from nkireview.program.access import Access
from nkireview.program.call import Tile
from nkireview.program.contiguity import contiguous_run
from nkireview.program.footprint import ENUMERATED, allowed
from nkireview.program.interning import Ints, by_opcode, intern, members
from nkireview.program.placement import merge
from nkireview.program.program import Program
from nkireview.program.scope import Calls, Scope, distinct_calls

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Transfers:
    """DMAs in program order; what ranks exchange is not among them.

    `source` and `target` are buffers, `source_access` and `target_access` what is touched of them; `loads` and `stores`
    mark those from and to HBM. `bytes` is what one execution moves from or to HBM, or reads on chip, without what
    bounds leave out at either end; `times` how often device-side loops run it. `run`: of these bytes those of a
    contiguous piece, the shorter of both ends; a row that an index tile names is a piece. `partitions` of the on-chip
    end, 0 where both are in HBM. `strided`: neighbours at the HBM end lie apart in memory. `crossed`: strided, and
    elements that are neighbours in HBM are moved along another axis, so it transposes. `transposes`: the instruction is
    a transpose. `casts`: the two dtypes differ. `stream` numbers the program's streams.
    """

    instruction: Ints
    stream: Ints
    place: Ints
    source: Ints
    target: Ints
    source_access: Ints
    target_access: Ints
    loads: Flags
    stores: Flags
    bytes: Ints
    run: Ints
    partitions: Ints
    strided: Flags
    crossed: Flags
    transposes: Flags
    casts: Flags
    times: Floats

    def __len__(self) -> int:
        return len(self.instruction)

    @property
    def hbm(self) -> Ints:
        """The access at the HBM end: the source's where both are in HBM."""
        return np.where(self.loads, self.source_access, self.target_access)

    @property
    def hbm_buffer(self) -> Ints:
        """The buffer at the HBM end: the source where both are in HBM."""
        return np.where(self.loads, self.source, self.target)

    @property
    def moved(self) -> float:
        """Bytes of all executions."""
        return float((self.bytes * self.times).sum())


def transfers(scope: Scope, rows: Mapping[str, Row], times: Floats) -> Transfers:
    """The DMAs of a Program. `times`: how often each instruction runs."""
    program = scope.program
    parts: list[dict[str, Any]] = []
    facts = _Views(scope)
    for code, instructions, accesses in by_opcode(program):
        opcode = program.opcodes[code]
        row = rows.get(opcode.name)
        if row is None or row.engines.default is not Engine.dma or row.meets == "ranks":
            continue
        calls = distinct_calls(scope, row, opcode.operands, instructions, accesses)
        roles = {operand.name: operand.role for operand in row.operands}
        for source, read in enumerate(opcode.operands):
            for target, write in enumerate(opcode.operands):
                if not roles[read].writes and roles[write].writes:
                    part = _pairs(program, calls, facts, source, target)
                    part["transposes"] = np.full(len(part["instruction"]), row.flow[write] is Flow.transpose)
                    parts.append(part)
    parts = parts or [_NOTHING]
    made = {name: np.concatenate([part[name] for part in parts]) for name in _NOTHING}
    order = np.argsort(made["instruction"], kind="stable")
    made = {name: column[order] for name, column in made.items()}
    instruction = made["instruction"]
    # what several sources make is stored once
    made["stores"][1:] &= (instruction[1:] != instruction[:-1]) | (made["target"][1:] != made["target"][:-1])
    stops = np.array([stream.stop for stream in program.streams], np.int64)
    return Transfers(
        **made,
        stream=np.searchsorted(stops, instruction, side="right"),
        place=program.columns.place[instruction].astype(np.int64),
        times=times[instruction],
    )


ELEMENTWISE = 128
"""Least number of single elements of a tensor that are moved for it to count as a transpose."""


def alike(moves: Transfers, rows: Ints) -> list[Ints]:
    """Rows of the transfers that load from, or store to, one HBM buffer in pieces of one size."""
    keys = [moves.hbm_buffer, moves.stream, moves.loads, moves.run, moves.bytes, moves.partitions]
    classes = intern([key[rows] for key in keys], len(rows))
    return [rows[part] for part in members(classes.of, len(classes))]


def element_bytes(program: Program, moves: Transfers, rows: Ints) -> Ints:
    """Bytes of an element at the HBM end of each transfer, at least 1."""
    bits = np.array([dtypes.BY_NAME[name].bits for name in program.dtypes], np.int64)
    found: Ints = np.maximum(bits[program.columns.access_dtype[moves.hbm[rows]]] // 8, 1)
    return found


def neighbours(program: Program, moves: Transfers, rows: Ints, step: Ints) -> Flags:
    """Which of some like transfers begin `step` elements after another of them ends or begins."""
    base = program.columns.access_base[moves.hbm[rows]]
    found: Flags = np.isin(base + step, base) | np.isin(base, base + step)
    return found


def elementwise(program: Program, moves: Transfers) -> Flags:
    """Transfers that move single elements which lie apart in HBM and whose neighbours are moved too."""
    found = np.zeros(len(moves), bool)
    single = np.flatnonzero(moves.strided)
    single = single[moves.run[single] <= element_bytes(program, moves, single)]
    for rows in alike(moves, single):
        size = float(element_bytes(program, moves, rows)[0])
        elements = float((moves.bytes * moves.times)[rows].sum()) / size
        dense = moves.crossed[rows] | neighbours(program, moves, rows, np.ones(len(rows), np.int64))
        if elements >= ELEMENTWISE:
            found[rows] = dense
    return found


_NOTHING: dict[str, Any] = {
    **dict.fromkeys(
        ("instruction", "source", "target", "source_access", "target_access", "bytes", "run", "partitions"),
        np.zeros(0, np.int64),
    ),
    **dict.fromkeys(("loads", "stores", "strided", "crossed", "transposes", "casts"), np.zeros(0, bool)),
}


def _pairs(program: Program, calls: Calls, facts: _Views, source: int, target: int) -> dict[str, Any]:
    held = np.flatnonzero((calls.views[:, [source, target]] >= 0).all(axis=1))
    views = calls.views[held][:, [source, target]]
    accesses = calls.accesses[held][:, [source, target]]
    buffers = program.columns.access_buffer[accesses].astype(np.int64)
    dtypes = program.columns.access_dtype[accesses]
    chip = facts.on_chip[views]
    partitions = (facts.partitions[views] * chip).max(axis=1)
    hbm = np.where(chip[:, 0], views[:, 1], views[:, 0])
    strided = facts.strided[hbm] & ~chip.all(axis=1)
    # a DMA that casts moves as much over HBM as lies there
    counted = facts.bits[np.where(chip[:, 0] & ~chip[:, 1], views[:, 1], views[:, 0])]
    together = (facts.run[views] * 8 // facts.bits[views]).min(axis=1)  # elements
    return {
        "instruction": calls.rows[held],
        "source": buffers[:, 0],
        "target": buffers[:, 1],
        "source_access": accesses[:, 0],
        "target_access": accesses[:, 1],
        "loads": ~chip[:, 0],
        "stores": ~chip[:, 1],
        "bytes": facts.elements[views].min(axis=1) * counted // 8,
        "run": np.maximum(together * counted // 8, 1),
        "partitions": partitions,
        "strided": strided,
        "crossed": strided & facts.crossed[hbm],
        "casts": dtypes[:, 0] != dtypes[:, 1],
    }


class _Views:
    """What matters here of each class of accesses."""

    def __init__(self, scope: Scope) -> None:
        tiles = scope.tiles
        self.run = np.array([contiguous_run(tile) for tile in tiles], np.int64)
        self.elements = np.array([_elements(tile.access) for tile in tiles], np.int64)
        self.bits = np.array([tile.bits for tile in tiles], np.int64)
        self.on_chip = np.array([tile.on_chip for tile in tiles], bool)
        self.partitions = np.array([tile.access.partitions for tile in tiles], np.int64)
        self.strided = np.array([_strided(tile) for tile in tiles], bool)
        self.crossed = np.array([_crossed(tile) for tile in tiles], bool)


def _elements(access: Access) -> int:
    """The elements of an access that its bounds let through."""
    if not access.bounds or access.size > ENUMERATED:
        return access.size
    return int(np.count_nonzero(allowed(access)))


def _strided(tile: Tile) -> bool:
    """True where neighbouring elements of the access lie apart."""
    if tile.access.index is not None or tile.access.table is not None:
        return False
    merged = merge(tile.access.pattern)
    return bool(merged) and abs(merged[-1][0]) > 1


def _crossed(tile: Tile) -> bool:
    """True where an axis other than the innermost steps from neighbour to neighbour."""
    return any(abs(stride) == 1 for stride, _ in merge(tile.access.pattern)[:-1])
