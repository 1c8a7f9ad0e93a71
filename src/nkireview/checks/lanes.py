"""Lanes: which tiles work row by row, so that rows of several blocks may share one tile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from nkireview.isa.enums import Engine
from nkireview.isa.row import Flow, Row
from nkireview.program.interning import Ints
from nkireview.program.program import Program
from nkireview.schedule.uses import Flags, Uses


@dataclass(frozen=True, eq=False)
class Lanes:
    """The buffers of a Program in groups, one number for each buffer: those that instructions join row by row.

    By group: `contracted`, a matmul adds up over the partitions of one of them, so that a further block would be added
    to the sum; `product`, a matmul writes one of them, so that its partitions are the columns of the stationary tile.
    Transposes neither join nor mark: what they do to one block they do to two.
    """

    group: Ints
    contracted: Flags
    product: Flags


def lanes(program: Program, used: Uses, rows: Mapping[str, Row]) -> Lanes:
    """The groups of a Program's buffers."""
    names = [opcode.name for opcode in program.opcodes]
    matmul = np.array([_flows(rows.get(name), Flow.contract) for name in names], bool)
    crossing = (Flow.transpose, Flow.whole)
    apart = np.array(
        [any(_flows(rows.get(name), flow) for flow in crossing) or _is_dma(rows.get(name)) for name in names],
        bool,
    )
    opcode = program.columns.opcode[used.instruction] if len(used) else np.zeros(0, np.int64)
    contracts = matmul[opcode] & ~_transposes(program)[used.instruction]
    joined = np.flatnonzero(~matmul[opcode] & ~apart[opcode])
    group = _joined(program.columns.buffers, used.instruction[joined], used.buffer[joined])
    contracted, product = np.zeros(len(group), bool), np.zeros(len(group), bool)
    contracted[group[used.buffer[contracts & used.reads & ~used.writes]]] = True
    product[group[used.buffer[contracts & used.writes]]] = True
    return Lanes(group, contracted[group], product[group])


def _flows(row: Row | None, flow: Flow) -> bool:
    return row is not None and flow in row.flow.values()


def _is_dma(row: Row | None) -> bool:
    return row is None or row.engines.default is Engine.dma


def _transposes(program: Program) -> Flags:
    """Instructions that are told to transpose."""
    told = np.array([bool(dict(given).get("is_transpose")) for given in program.immediates], bool)
    found: Flags = told[program.columns.immediates] if len(told) else np.zeros(len(program), bool)
    return found


def _joined(count: int, instruction: Ints, buffer: Ints) -> Ints:
    """The least buffer of each group, by buffer, where those of one instruction are in one group."""
    parent = list(range(count))

    def root(at: int) -> int:
        while parent[at] != at:
            parent[at] = parent[parent[at]]
            at = parent[at]
        return at

    same = np.flatnonzero(instruction[1:] == instruction[:-1])
    pairs = np.unique(np.stack([buffer[same], buffer[same + 1]], axis=1), axis=0)
    for left, right in pairs.tolist():
        left, right = root(left), root(right)
        if left != right:
            parent[max(left, right)] = min(left, right)
    return np.array([root(at) for at in range(count)], np.int64)
