"""Reductions on the wrong side of a mask: of what their data were before a write, or are only after it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from nkireview.checks.dataflow import UNKNOWN, Dataflow, Slot
from nkireview.checks.steps import ACTIVATIONS, COPIES, MATMUL, main_operand, steps
from nkireview.diagnosis.flows.acting import Acting, Array, operand, repeatable, values, write
from nkireview.diagnosis.flows.lines import Line, Lines
from nkireview.diagnosis.repair import Repair
from nkireview.execute import Core, Operands, Step
from nkireview.execute.storage import Operand
from nkireview.program.call import CallView

MOST = 30
"""Repairs of one kind."""
BACK = 3
"""Writes that a reduction is put before, at most."""
CAUSE = "sum-after-mask"
SELECTS = frozenset({"affine_select", "range_select", "select_reduce", "tensor_copy_predicated"})
PLAIN_OPS = frozenset({"copy", "identity", "relu"})
REDUCTIONS = {
    "tensor_reduce": ("data", "dst"),
    "tensor_partition_reduce": ("data", "dst"),
    "bn_stats": ("data", "dst"),
    "activation": ("data", "reduce_res"),
    "activation_reduce": ("data", "reduce_res"),
    "tensor_scalar_reduce": ("data", "reduce_res"),
    "select_reduce": ("on_true", "reduce_res"),
    "range_select": ("on_true_tile", "reduce_res"),
}
"""What each reduction takes together, and where the result goes; products with ones besides."""
JOINS = {"add": np.add.reduce, "maximum": np.maximum.reduce, "minimum": np.minimum.reduce}


@dataclass(frozen=True)
class Taken:
    """A reduction at an instruction: the operand that it takes together and the one that it writes."""

    data: str
    result: str


class Before(Acting):
    """Runs reductions on what was there before some writes.

    chains: reduction -> (the writes of its data, last first, and the operand that the first of them read) for each
    tile that it reads. Elements that another instruction wrote are left as they are.
    """

    def __init__(self, flow: Dataflow, lines: Lines, line: Line, way: tuple[tuple[int, str], ...]) -> None:
        super().__init__()
        self._flow, self._lines, self._line, self._way = flow, lines, line, way
        self._made: tuple[Mapping[int, Taken], Mapping[int, tuple[int, ...]], Mapping[int, int]] | None = None
        self._saved: dict[int, Array] = {}
        self._targets: dict[int, Operand] = {}

    def begin(self) -> None:
        """See `Acting`."""
        self._saved.clear()
        self._targets.clear()

    def act(self, step: Step, core: Core, index: int, operands: Operands) -> None:
        """See `Acting`."""
        if self._made is None:
            self._made = self._plan()
        reductions, firsts, lasts = self._made
        for last in firsts.get(index, ()):
            source = operand(step, operands, self._way[-1][1])
            if source is not None:
                self._saved[last] = values(core, source)
        taken = reductions.get(index)
        if taken is None or not repeatable(step):
            step.run(core, index, operands)
        else:
            self._reduce(step, core, index, operands, taken)
        if index in lasts:
            target = operand(step, operands, "dst")
            if target is not None:
                self._targets[index] = target

    def _reduce(self, step: Step, core: Core, index: int, operands: Operands, taken: Taken) -> None:
        put: list[tuple[Operand, Array]] = []
        for last in self._lines.writers(Slot(index, taken.data)):
            saved, target = self._saved.get(last), self._targets.get(last)
            if saved is not None and target is not None and saved.size == target.form.size:
                put.append((target, target.read().copy()))
                write(core, target, saved)
        step.run(core, index, operands)
        result = operand(step, operands, taken.result)
        if not put or result is None:
            return
        found = result.read().copy()
        for target, held in put:
            target.put(held)
        if any(operands[at] not in (None, result) for at, _ in step.writes):
            step.run(core, index, operands)
        result.put(found)

    def _plan(self) -> tuple[Mapping[int, Taken], Mapping[int, tuple[int, ...]], Mapping[int, int]]:
        """The reductions, the last writes that each first one is kept for, and all last writes."""
        flow, lines = self._flow, self._lines
        reductions: dict[int, Taken] = {}
        firsts: dict[int, list[int]] = {}
        lasts: dict[int, int] = {}
        for index in self._line.instructions:
            taken = reduction(flow, index)
            if taken is None:
                continue
            for last in lines.writers(Slot(index, taken.data)):
                first = _back(flow, lines, last, self._way)
                if first is not None:
                    reductions[index] = taken
                    lasts[last] = first
                    if last not in firsts.setdefault(first, []):
                        firsts[first].append(last)
        return reductions, {first: tuple(found) for first, found in firsts.items()}, lasts


class Afterwards(Acting):
    """Runs reductions again once a later write has changed what they took together.

    again: the write -> (reduction, its operands) whose data it changes.
    """

    def __init__(self, again: Mapping[int, tuple[int, Taken, str]], joins: Mapping[int, str]) -> None:
        super().__init__()
        self._again, self._joins = again, joins
        self._reductions = frozenset(at for at, _, _ in again.values())
        self._held: dict[int, tuple[Step, Operands]] = {}

    def begin(self) -> None:
        """See `Acting`."""
        self._held.clear()

    def act(self, step: Step, core: Core, index: int, operands: Operands) -> None:
        """See `Acting`."""
        step.run(core, index, operands)
        if index in self._reductions:
            self._held[index] = step, operands
        found = self._again.get(index)
        held = None if found is None else self._held.get(found[0])
        changed = operand(step, operands, "dst")
        if found is None or held is None or changed is None:
            return
        at, taken, tile = found
        reducing, given = held
        result = operand(reducing, given, taken.result)
        if result is None or not repeatable(reducing):
            return
        if tile == "dst":
            join = JOINS[self._joins[at]]
            new = values(core, changed)
            write(core, result, join(new.reshape(new.shape[0], -1), axis=1))
            return
        source = operand(reducing, given, taken.data)
        if source is None or source.form.size != changed.form.size:
            return
        before, new = source.read().copy(), values(core, changed)
        write(core, source, new)
        reducing.run(core, at, given)
        if source.cell is not changed.cell:
            source.put(before)


def masked_too_early(flow: Dataflow, lines: Lines) -> Iterator[Repair]:
    """Each reduction on what one of the last few writes of its data read; masks and products of tiles first."""
    found: dict[tuple[int, tuple[tuple[int, str], ...]], tuple[int, int]] = {}
    for line in lines.all:
        for index in line.asked:
            taken = reduction(flow, index)
            for way, first in _ways(flow, lines, index, taken) if taken else ():
                found.setdefault((line.number, way), (index, first))
    masks = SELECTS | {"tensor_tensor", "scalar_tensor_tensor"}
    ranked = sorted(
        found.items(), key=lambda item: (lines.of(item[1][1]).opcode not in masks, len(item[0][1]), item[1])
    )
    for (number, way), (index, first) in ranked[:MOST]:
        sentence = (
            f"{lines.text(index)} takes together what {lines.text(first)} has changed already: it should take the "
            "values before that"
        )
        around = Before(flow, lines, lines.all[number], way)
        yield Repair(CAUSE, sentence, index, flow.program, around)


def masked_too_late(flow: Dataflow, lines: Lines) -> Iterator[Repair]:
    """Each reduction again after one of the writes that changed its data afterwards."""
    made = 0
    for line in lines.all:
        again: dict[tuple[int, str], dict[int, tuple[int, Taken, str]]] = {}
        joins: dict[int, str] = {}
        if not any(_changed_later(flow, lines, index) for index in line.asked):
            continue
        for index in line.instructions:
            for writer, taken, tile, join in _changed_later(flow, lines, index):
                joins[index] = join
                found = again.setdefault((lines.of(writer).number, tile), {})
                found.setdefault(writer, (index, taken, tile))
        for (number, _), pairs in again.items():
            if made == MOST:
                return
            made += 1
            index, writer = line.first, lines.all[number].first
            sentence = (
                f"{lines.text(index)} takes together what {lines.text(writer)} changes only afterwards: it should "
                "take the values after that"
            )
            yield Repair(CAUSE, sentence, index, flow.program, Afterwards(pairs, joins))


def reduction(flow: Dataflow, index: int) -> Taken | None:
    """What an instruction takes together; None for what is no reduction."""
    call = flow.call(index)
    if call is None:
        return None
    if call.row.name == MATMUL:
        return _with_ones(flow, index)
    found = REDUCTIONS.get(call.row.name)
    if found is None or not (call.has(found[0]) and call.has(found[1])):
        return None
    return Taken(*found)


def _with_ones(flow: Dataflow, index: int) -> Taken | None:
    """A product with a tile of one constant sums the other operand."""
    for name, other in (("stationary", "moving"), ("moving", "stationary")):
        writers = flow.writers(Slot(index, name))
        if not writers or any(writer.instruction == UNKNOWN for writer in writers):
            continue
        calls = [flow.call(writer.instruction) for writer in writers]
        if all(call is not None and call.row.name == "memset" for call in calls):
            return Taken(other, "dst")
    return None


def _ways(
    flow: Dataflow, lines: Lines, index: int, taken: Taken
) -> Iterator[tuple[tuple[tuple[int, str], ...], int]]:
    """The lines of the last writes of a reduction's data with the operand each is followed by, and the first write."""
    for last in lines.writers(Slot(index, taken.data)):
        left: list[tuple[tuple[tuple[int, str], ...], int]] = [((), last)]
        while left:
            way, at = left.pop(0)
            call = flow.call(at)
            for name in _kept(flow, lines, at, call) if call else ():
                here = (*way, (lines.of(at).number, name))
                if call is not None and call.row.name not in COPIES:
                    yield here, at
                if len(here) < BACK and name != "dst":
                    left.extend((here, writer) for writer in lines.writers(Slot(at, name))[:2])


def _kept(flow: Dataflow, lines: Lines, index: int, call: CallView) -> Sequence[str]:
    """The operands whose elements a write changes one by one; none where it computes something else of them."""
    if not any(slot.operand == "dst" for slot in lines.written(index)):
        return ()
    name = call.row.name
    if name == "tensor_copy_predicated":
        names: Sequence[str] = ("dst",)
    elif name == "tensor_tensor":
        names = ("data1", "data2")
    elif name == "scalar_tensor_tensor":
        names = ("data", "operand1")
    elif name == "select_reduce":
        names = ("on_true",)
    elif name in COPIES | SELECTS or (name in ACTIVATIONS and call.imm("op") in PLAIN_OPS):
        names = (main_operand(call),)
    elif name == "tensor_scalar" and steps(call):
        names = ("data",)
    else:
        names = ()
    size = call.measure("dst", "elements")
    return [each for each in names if call.has(each) and call.measure(each, "elements") == size]


def _back(flow: Dataflow, lines: Lines, last: int, way: tuple[tuple[int, str], ...]) -> int | None:
    """The first write of a way that ends with a given one; None where the lines are others."""
    at = last
    for depth, (number, name) in enumerate(way):
        if lines.of(at).number != number:
            return None
        if depth == len(way) - 1:
            return at
        found = [each for each in lines.writers(Slot(at, name)) if lines.of(each).number == way[depth + 1][0]]
        if len(found) != 1:
            return None
        at = found[0]
    return None


def _changed_later(flow: Dataflow, lines: Lines, index: int) -> list[tuple[int, Taken, str, str]]:
    """Writes that change a reduction's data, or its other result, before anything has taken what it gives."""
    taken, call = reduction(flow, index), flow.call(index)
    if taken is None or call is None or call.row.name == MATMUL:
        return []
    used = [slot.instruction for slot in flow.readers(Slot(index, taken.result))]
    if not used or UNKNOWN in used:
        return []
    join = str(call.imm("reduce_op") or "add")
    tiles = [taken.data]
    if taken.result == "reduce_res" and join in JOINS:
        tiles.append("dst")
    found = []
    for tile in tiles:
        for reader in _takers(flow, index, tile):
            changing = flow.call(reader.instruction)
            if changing is None or not index < reader.instruction < min(used):
                continue
            kept = _kept(flow, lines, reader.instruction, changing)
            if reader.operand in kept and changing.row.name not in COPIES:
                found.append((reader.instruction, taken, tile, join))
    return found


def _takers(flow: Dataflow, index: int, tile: str) -> Sequence[Slot]:
    """Who reads the same tile as an operand of a reduction."""
    if tile == "dst":
        return flow.readers(Slot(index, "dst"))
    found: list[Slot] = []
    for writer in flow.writers(Slot(index, tile)):
        if writer.instruction == UNKNOWN:
            return ()
        found.extend(flow.readers(writer))
    return [slot for slot in found if slot.instruction != index]
