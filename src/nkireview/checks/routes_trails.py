"""Trails: the tiles that a value was before, through copies, transposes and operators with numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from nkireview.checks.dataflow import DEPTH, UNKNOWN, Dataflow, Slot
from nkireview.checks.steps import MATMUL, Step, main_operand, steps
from nkireview.program.call import CallView, Tile

MOVES = frozenset({"tensor_copy", "dma_copy"})
TURNS = frozenset({"nc_transpose", "dma_transpose"})


@dataclass(frozen=True)
class Hop:
    """A tile on a trail: the operand that reads it, whether it lies transposed to where the trail begins, and what was
    done to it from there on, in order."""

    slot: Slot
    turned: bool
    taken: tuple[Step, ...]


def trail(flow: Dataflow, slot: Slot) -> Iterator[Hop]:
    """The tiles that a read operand was before, itself first, until one that no single line wrote in such a way."""
    turned = False
    taken: tuple[Step, ...] = ()
    for _ in range(DEPTH):
        yield Hop(slot, turned, taken)
        writer = line_of(flow, slot)
        call = flow.call(writer.instruction) if writer is not None else None
        passed = (
            _passed(call) if call is not None and writer is not None and writer.operand == "dst" else None
        )
        if passed is None or writer is None:
            return
        source, turns, own = passed
        slot, turned, taken = Slot(writer.instruction, source), turned != turns, (*own, *taken)


def end_of(flow: Dataflow, slot: Slot) -> Hop:
    """The last tile of a trail."""
    last = Hop(slot, False, ())
    for hop in trail(flow, slot):
        last = hop
    return last


def line_of(flow: Dataflow, slot: Slot) -> Slot | None:
    """The latest writer of what an operand reads, where all its writers are one line; None otherwise."""
    writers = flow.writers(slot)
    if not writers or any(writer.instruction == UNKNOWN for writer in writers):
        return None
    columns = flow.program.columns
    lines = {
        (int(columns.place[writer.instruction]), int(columns.opcode[writer.instruction]), writer.operand)
        for writer in writers
    }
    alone = len(writers) == 1 or (len(lines) == 1 and columns.place[writers[0].instruction] >= 0)
    return writers[0] if alone else None


def single(flow: Dataflow, reader: Slot) -> CallView | None:
    """The call of a reading operand; None where it cannot be told."""
    return flow.call(reader.instruction) if reader.instruction != UNKNOWN else None


def moved(call: CallView, operand: str) -> tuple[str, bool] | None:
    """Where a call puts what an operand holds, and whether it transposes it; None where it does not only move it."""
    name = call.row.name
    if name == MATMUL:
        return ("dst", True) if call.imm("is_transpose") and operand == "stationary" else None
    if operand != main_operand(call):
        return None
    if name in TURNS:
        return "dst", True
    if name in MOVES and not call.imm("dst_rmw_op"):
        return "dst", _lies_turned(call.tiles[operand]) != _lies_turned(call.tiles["dst"])
    return None


def _passed(call: CallView) -> tuple[str, bool, tuple[Step, ...]] | None:
    """The operand of which a call makes its result, whether it transposes, and its steps."""
    source = "stationary" if call.row.name == MATMUL else main_operand(call)
    if not source or not call.has("dst"):
        return None
    found = moved(call, source)
    if found is not None:
        return source, found[1], ()
    taken = steps(call)
    # a call without steps copies in a way that is no plain move: a shuffle, a gather, a sum
    if not taken or any(step.operand or step.op == "select" for step in taken):
        return None
    return source, False, taken


def _lies_turned(tile: Tile) -> bool:
    """True where a view of HBM walks its rows faster than its columns."""
    if tile.on_chip:
        return False
    axes = [(stride, count) for stride, count in tile.access.pattern if count > 1]
    return len(axes) > 1 and abs(axes[0][0]) < abs(axes[-1][0])
