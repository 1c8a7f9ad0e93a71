"""Running sums of an online softmax that are not multiplied by the factor for a new maximum, or by its inverse."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from nkireview.checks.dataflow import UNKNOWN, Dataflow, Slot
from nkireview.checks.steps import ACTIVATIONS, steps
from nkireview.diagnosis.flows.acting import Acting, After, Float64, operand, values, write
from nkireview.diagnosis.flows.ledger import Event, events
from nkireview.diagnosis.flows.lines import Lines
from nkireview.diagnosis.repair import Repair
from nkireview.execute import Core, Operands, Step
from nkireview.execute.storage import Operand
from nkireview.program.call import CallView

SUMS = 6
"""Sums that are tried with each factor."""
FACTORS = 4
"""Factors that are tried."""
CAUSE = "accumulator-not-rescaled"


@dataclass(frozen=True)
class Factor:
    """Where a factor is made: instruction -> the number of the group of sums that it is for.

    Of an instruction that writes it, it is what that writes; of a running maximum (`carried` names the operand that
    it goes on from) it is the exponential of `slope` times what the maximum grows by.
    """

    made: Mapping[int, int]
    carried: str = ""
    slope: float = 0.0

    @property
    def first(self) -> int:
        """The first instruction that makes it."""
        return next(iter(self.made))


@dataclass(frozen=True)
class Sum:
    """A running sum: instruction -> (the operand by which it goes on, the number of its group)."""

    adds: Mapping[int, tuple[str, int]]

    @property
    def first(self) -> int:
        """The first addition."""
        return next(iter(self.adds))


class Rescaled(Acting):
    """Multiplies sums, before each addition, by the factors that were made since the addition or start before."""

    def __init__(
        self, factor: Factor, sums: tuple[Sum, ...], held: Mapping[int, Event], lines: Lines
    ) -> None:
        super().__init__()
        self._factor, self._events, self._lines = factor, held, lines
        self._adds = {
            index: (at, name, group)
            for at, each in enumerate(sums)
            for index, (name, group) in each.adds.items()
        }
        self._made: dict[int, list[Float64]] = {}
        added = [held[index].added for index in self._adds]
        self._places = {touch.place for touch in added if touch is not None}
        # place -> access -> how many factors of each group there were when it was last written or added to
        self._known: dict[int, dict[int, dict[int, int]]] = {}

    def begin(self) -> None:
        """See `Acting`."""
        self._made.clear()
        self._known.clear()

    def act(self, step: Step, core: Core, index: int, operands: Operands) -> None:
        """See `Acting`."""
        if index in self._factor.made:
            self._make(step, core, index, operands)
        elif index in self._adds:
            self._add(step, core, index, operands)
        else:
            step.run(core, index, operands)
            event = self._events.get(index)
            for touch in event.plain if event else ():
                if touch.place in self._places:
                    self._note(touch.place, touch.access)

    def _make(self, step: Step, core: Core, index: int, operands: Operands) -> None:
        factor = self._factor
        source = operand(step, operands, factor.carried) if factor.carried else None
        old = None if source is None else values(core, source)
        step.run(core, index, operands)
        target = operand(step, operands, "dst")
        if target is None:
            return
        new = values(core, target)
        if factor.carried:
            if old is None or old.size != new.size:
                return
            new = np.exp(factor.slope * (new - old.reshape(new.shape)))
        self._made.setdefault(factor.made[index], []).append(new)

    def _add(self, step: Step, core: Core, index: int, operands: Operands) -> None:
        number, name, group = self._adds[index]
        carried = operand(step, operands, name)
        added = self._events[index].added
        place, access = (added.place, added.access) if added else (-1 - number, 0)
        made = self._made.get(group, [])
        pending = made[self._since(place, access, group) :]
        before = None
        if carried is not None and pending and carried.cell.store.block is not None:
            before = _multiply(core, carried, pending)
        step.run(core, index, operands)
        if before is not None and carried is not None and added is None:
            carried.put(before)
        self._note(place, access)

    def _since(self, place: int, access: int, group: int) -> int:
        """How many factors of a group there were when a tile was last written or added to."""
        found = 0
        for other, counts in self._known.get(place, {}).items():
            if self._lines.overlap(other, access):
                found = max(found, counts.get(group, 0))
        return found

    def _note(self, place: int, access: int) -> None:
        self._known.setdefault(place, {})[access] = {group: len(each) for group, each in self._made.items()}


def _multiply(core: Core, carried: Operand, factors: list[Float64]) -> Float64 | None:
    """Multiply a tile by one number a partition for each factor; what it held, None where the sizes differ."""
    before: Float64 = carried.read().copy()
    found = values(core, carried)
    for factor in factors:
        if factor.size != found.shape[0]:
            return None
        found = found * factor.reshape(-1, *(1,) * (found.ndim - 1))
    write(core, carried, found)
    return before


def not_rescaled(flow: Dataflow, lines: Lines) -> Iterator[Repair]:
    """Sums multiplied by each factor that others are multiplied by; factors inverted; factors that nobody makes."""
    exponentials = [line for line in lines.all if _is_vector_exponential(flow, line.first)][:FACTORS]
    tops = [] if exponentials else list(_running_maxima(flow, lines))[:FACTORS]
    if not exponentials and not tops:
        return
    held = events(flow, lines)
    sums = _sums(flow, lines, held)
    for line in exponentials:
        rescaled = _rescaled(flow, lines, line.instructions)
        accesses = {maker: lines.access(lines.written(index)[0]) for maker, index in rescaled.items()}
        made, groups = _grouped(line.instructions, accesses)
        factor = Factor(made)
        places = {flow.place(lines.written(index)[0]) for index in rescaled.values()}
        kept = []
        for each in sums:
            where = flow.place(lines.written(each.first)[0])
            if where not in places and each.first not in rescaled.values():
                kept.append(_in_groups(lines, each, groups))
        shared = next(iter(rescaled.values()), None)
        yield from _with(flow, lines, held, factor, kept[:SUMS], shared)
    for line in exponentials:
        sentence = (
            f"{lines.text(line.first)} makes the factor by which running sums follow a new maximum upside down: it "
            "is the inverse of what they need"
        )
        inverse = After(dict.fromkeys(line.instructions, "dst"), lambda values: 1 / values)
        yield Repair(CAUSE, sentence, line.first, flow.program, inverse)
    for factor, groups in tops:
        kept = [_in_groups(lines, each, groups) for each in sums[:SUMS]]
        yield from _with(flow, lines, held, factor, kept, None)


def _with(
    flow: Dataflow,
    lines: Lines,
    held: Mapping[int, Event],
    factor: Factor,
    sums: list[Sum],
    shared: int | None,
) -> Iterator[Repair]:
    """Each sum multiplied by a factor, then all of them."""
    choices: list[tuple[Sum, ...]] = [(each,) for each in sums]
    if len(sums) > 1:
        choices.append(tuple(sums))
    maker = lines.text(factor.first)
    for chosen in choices:
        named = " and ".join(f"that of {lines.text(each.first)}" for each in chosen[:3])
        what = "running sum" if len(chosen) == 1 else "running sums"
        if factor.carried:
            why = f"the maximum of {maker} changes between the parts"
        elif shared is not None:
            why = f"{lines.text(shared)} multiplies another sum by the factor of {maker}"
        else:
            why = f"the factor that {maker} makes for a new maximum is not applied"
        sentence = f"{what} not rescaled: {named}, while {why}"
        yield Repair(CAUSE, sentence, chosen[0].first, flow.program, Rescaled(factor, chosen, held, lines))


def _is_vector_exponential(flow: Dataflow, index: int) -> bool:
    call = flow.call(index)
    if call is None or not call.has("dst") or call.measure("dst", "free") != 1:
        return False
    return call.row.name == "exponential" or (call.row.name in ACTIVATIONS and call.imm("op") == "exp")


def _rescaled(flow: Dataflow, lines: Lines, makers: tuple[int, ...]) -> dict[int, int]:
    """For each instruction that makes a factor, the first one that multiplies a running sum by it."""
    found = {}
    for maker in makers:
        for slot in flow.readers(Slot(maker, "dst")):
            if slot.instruction == UNKNOWN:
                break
            call = flow.call(slot.instruction)
            at = slot.instruction
            goes_on = lines.in_place(at) or lines.carried(lines.of(at))
            if call is not None and _multiplies(call, slot.operand) and goes_on:
                found[maker] = slot.instruction
                break
    return found


def _multiplies(call: CallView, name: str) -> bool:
    if call.row.name == "tensor_tensor":
        return call.imm("op") == "multiply" and name in ("data1", "data2")
    return any(step.op == "multiply" and step.operand == name for step in steps(call) or ())


def _grouped(makers: tuple[int, ...], accesses: Mapping[int, int]) -> tuple[dict[int, int], int]:
    """The group of each maker of a factor, by the tile that it is for, and how many there are.

    Several only where the tiles take turns: then what was made since the last addition is not for one sum alone.
    """
    in_order = [accesses[maker] for maker in makers if maker in accesses]
    turns = sum(a != b for a, b in pairwise(in_order))
    distinct = list(dict.fromkeys(in_order))
    several = len(distinct) > 1 and turns >= len(distinct)
    number = {access: at if several else 0 for at, access in enumerate(distinct)}
    made = {maker: number.get(accesses.get(maker, -1), 0) for maker in makers}
    return made, len(distinct) if several else 1


def _in_groups(lines: Lines, each: Sum, groups: int) -> Sum:
    """A sum whose tiles are told apart as those of the factor are, in order, where their numbers allow it."""
    accesses = {index: lines.access(lines.written(index)[0]) for index in each.adds}
    distinct = list(dict.fromkeys(accesses.values()))
    if groups < 2 or len(distinct) % groups:
        return each
    share = len(distinct) // groups
    number = {access: at // share for at, access in enumerate(distinct)}
    return Sum({index: (name, number[accesses[index]]) for index, (name, _) in each.adds.items()})


def _sums(flow: Dataflow, lines: Lines, held: Mapping[int, Event]) -> list[Sum]:
    """The running sums: additions that share a line or a tile, where there are more of them than tiles."""
    group_of: dict[tuple[str, int], int] = {}
    members: dict[int, list[tuple[int, str, tuple[str, int]]]] = {}
    for line in lines.all:
        for index in line.instructions:
            name = _goes_on(flow, lines, held, index)
            if not name:
                continue
            event = held[index]
            tile = ("tile", event.added.place) if event.added else ("line", line.number)
            keys = (("line", line.number), tile)
            known = sorted({group_of[key] for key in keys if key in group_of})
            number = known[0] if known else len(group_of) + len(members)
            for other in known[1:]:
                members[number].extend(members.pop(other))
                group_of.update({key: number for key, at in group_of.items() if at == other})
            group_of.update(dict.fromkeys(keys, number))
            members.setdefault(number, []).append((index, name, tile))
    looped = [range(loop.start, loop.stop) for loop in flow.program.loops]
    found = []
    for each in members.values():
        tiles = Counter(tile for _, _, tile in each)
        again = max(tiles.values()) > 1 or any(index in body for index, _, _ in each for body in looped)
        if again:
            found.append(Sum({index: (name, 0) for index, name, _ in sorted(each)}))
    return sorted(found, key=lambda each: each.first)


def _goes_on(flow: Dataflow, lines: Lines, held: Mapping[int, Event], index: int) -> str:
    """The operand by which an addition goes on from the one before; empty where it is none."""
    event = held.get(index)
    if event is None:
        return ""
    if event.added is not None:
        return "dst" if event.op == "add" else ""
    call = flow.call(index)
    if call is None or call.row.name not in ("tensor_tensor", "scalar_tensor_tensor"):
        return ""
    last = (steps(call) or ())[-1:]
    if not last or last[0].op != "add":
        return ""
    return lines.carried(lines.of(index))


def _running_maxima(flow: Dataflow, lines: Lines) -> Iterator[tuple[Factor, int]]:
    """Maxima, one a partition, that go on from step to step, with the slopes of the exponentials; their groups."""
    slopes = {1.0}
    for line in lines.all:
        call = flow.call(line.first)
        if call is not None and call.row.name in ACTIVATIONS and call.imm("op") == "exp":
            scale = call.imm("scale")
            if isinstance(scale, int | float) and not isinstance(scale, bool):
                slopes.add(float(scale))
    for line in lines.all:
        call = flow.call(line.first)
        if call is None or call.row.name != "tensor_tensor" or call.measure("dst", "free") != 1:
            continue
        sign = {"maximum": -1.0, "minimum": 1.0}.get(str(call.imm("op")))
        carried = lines.carried(line)
        if sign is None or not carried:
            continue
        accesses = {index: lines.access(Slot(index, carried)) for index in line.instructions}
        made, groups = _grouped(line.instructions, accesses)
        for slope in sorted(slopes):
            yield Factor(made, carried, sign * slope), groups
