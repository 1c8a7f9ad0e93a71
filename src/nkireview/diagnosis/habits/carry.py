"""Carry: state that is lost between blocks: scans that begin anew, running values that are filled again, part sums."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from nkireview.checks.dataflow import Slot
from nkireview.diagnosis.algebra.lines import Line
from nkireview.diagnosis.flows.acting import Acting, Array, Float64, operand, values, write
from nkireview.diagnosis.habits.survey import Survey
from nkireview.diagnosis.habits.turns import Turns, turns
from nkireview.diagnosis.repair import Repair
from nkireview.execute import Core, Operands, Step, execute
from nkireview.execute.storage import Operand
from nkireview.program.program import Program
from nkireview.program.storage import WRITES

CAUSE, PARTIAL, AXIS = "carry-lost", "reduction-partial", "reduction-axis"
SCANS: Mapping[str, tuple[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "tensor_tensor_scan": ("initial", MappingProxyType({})),
        "tensor_scalar_cumulative": ("imm1", MappingProxyType({"reduce_cmd": "load_reduce"})),
    }
)
"""Opcode -> (what it starts from, the other immediates by which it starts from that)."""
JOINS: Mapping[str, tuple[str, Callable[..., Any]]] = MappingProxyType(
    {"add": ("add", np.sum), "maximum": ("minimum", np.max), "minimum": ("maximum", np.min)}
)
"""Reduction -> (what it is of the negative, its function over an axis)."""
REDUCING = frozenset({"activation", "activation_reduce", "tensor_scalar_reduce"})
LINES = 3
"""Lines of one kind that are tried."""


class Turning(Acting):
    """Counts how often each core has run a line."""

    def __init__(self, lines: Sequence[Line]) -> None:
        super().__init__()
        self.at = {index: number for number, line in enumerate(lines) for index in line.instructions}
        self._counts: dict[tuple[int, int], int] = {}

    def begin(self) -> None:
        """See `Acting`."""
        self._counts.clear()

    def turn(self, core: Core, line: int) -> int:
        """The number of this execution of a line."""
        found = self._counts.get((core.number, line), 0)
        self._counts[core.number, line] = found + 1
        return found


class Carried(Turning):
    """Scans that start from the last column of the one before, where there is one."""

    def __init__(self, line: Line, way: Turns) -> None:
        super().__init__([line])
        self._way = way
        self._name, self._extra = SCANS[line.opcode]
        self._last: dict[tuple[int, int], Float64] = {}

    def begin(self) -> None:
        """See `Acting`."""
        super().begin()
        self._last.clear()

    def act(self, step: Step, core: Core, index: int, operands: Operands) -> None:
        """See `Acting`."""
        target = operand(step, operands, "dst") if index in self.at else None
        if target is None:
            step.run(core, index, operands)
            return
        at = self.turn(core, 0)
        carried = self._last.get((core.number, self._way.before(at)))
        found = None
        if carried is not None and len(carried) == target.form.shape[0]:
            found = self._scanned(step, core, operands, carried)
        step.run(core, index, operands)
        if found is not None:
            write(core, target, found)
        written = values(core, target)
        self._last[core.number, at] = written.reshape(len(written), -1)[:, -1].copy()

    def _scanned(self, step: Step, core: Core, operands: Operands, carried: Float64) -> Float64:
        """The scan from other values, one for each partition."""
        given = list(operands)
        if self._name in step.slots:
            given[step.slots[self._name]] = None
        core.values.bind(step, given, {**step.immediates, **self._extra, self._name: carried})
        return np.array(core.values.results()["dst"])


class Refilled(Turning):
    """Fills that keep what the tile of the fill before holds by then.

    writers: the instructions after which a tile of these storage places may hold something else.
    """

    def __init__(self, lines: Sequence[Line], way: Turns, writers: Mapping[int, frozenset[int]]) -> None:
        super().__init__(lines)
        self._way, self._writers = way, writers
        self._tiles: dict[tuple[int, int, int], Operand] = {}
        self._held: dict[tuple[int, int, int], Float64] = {}
        self._places: dict[tuple[int, int, int], int] = {}
        self._flow = lines[0].flow

    def begin(self) -> None:
        """See `Acting`."""
        super().begin()
        self._tiles.clear()
        self._held.clear()
        self._places.clear()

    def act(self, step: Step, core: Core, index: int, operands: Operands) -> None:
        """See `Acting`."""
        step.run(core, index, operands)
        line = self.at.get(index)
        target = operand(step, operands, "dst") if line is not None else None
        if line is not None and target is not None:
            at = self.turn(core, line)
            before = self._held.get((core.number, line, self._way.before(at)))
            if before is not None and before.size == target.form.size:
                write(core, target, before)
            key = core.number, line, at
            place = self._flow.place(Slot(index, "dst"))
            # a tile that is filled again belongs to the later execution
            for other in [each for each, where in self._places.items() if where == place]:
                if self._tiles[other].access == target.access:
                    del self._tiles[other], self._places[other]
            self._tiles[key], self._places[key] = target, place
            self._held[key] = values(core, target)
        for place in self._writers.get(index, ()):
            for key in [each for each, where in self._places.items() if where == place]:
                self._held[key] = values(core, self._tiles[key])


class Joined(Turning):
    """Reductions of several lines that hold what all of a group come to, or all so far.

    The totals of a group are those of an execution beforehand, line by line, as later ones depend on them.
    lanes: joined over the partitions too. mean: and divided by their number.
    """

    def __init__(
        self,
        program: Program,
        arguments: Mapping[int, Array],
        lines: Sequence[tuple[Line, str, str]],
        way: Turns,
        *,
        ahead: bool,
        lanes: bool = False,
        mean: bool = False,
    ) -> None:
        super().__init__([line for line, _, _ in lines])
        self._program, self._arguments, self._way = program, arguments, way
        self._lines, self._ahead, self._lanes, self._mean = tuple(lines), ahead, lanes, mean
        self._totals: dict[tuple[int, int, int], Float64] | None = None
        self._so_far: dict[tuple[int, int, int], Float64] = {}

    def begin(self) -> None:
        """See `Acting`."""
        super().begin()
        self._totals = None
        self._so_far.clear()

    def act(self, step: Step, core: Core, index: int, operands: Operands) -> None:
        """See `Acting`."""
        if self._ahead and self._totals is None:
            self._totals = self._found(core)
        step.run(core, index, operands)
        line = self.at.get(index)
        if line is None:
            return
        _, name, op = self._lines[line]
        target = operand(step, operands, name)
        at = self.turn(core, line)
        if target is None:
            return
        if self._totals is not None:
            total = self._totals.get((core.number, line, self._way.group(at)))
        else:
            before = self._so_far.get((core.number, line, self._way.before(at)))
            own = values(core, target)
            joins = before is not None and before.shape == own.shape
            total = _join(op, [before, own]) if before is not None and joins else own
            self._so_far[core.number, line, at] = total
        if total is not None and total.size == target.form.size:
            write(core, target, total)

    def _found(self, core: Core) -> dict[tuple[int, int, int], Float64]:
        known: dict[tuple[int, int, int], Float64] = {}
        for number, (_, _, op) in enumerate(self._lines):
            seen = Seen(
                [line for line, _, _ in self._lines], [name for _, name, _ in self._lines], known, self._way
            )
            execute(self._program, self._arguments, compute=core.formats.compute, rounding="off", around=seen)
            for key, each in seen.found.items():
                if key[1] == number and len({one.shape for one in each}) == 1:
                    known[key] = self._over(op, _join(op, each))
        return known

    def _over(self, op: str, total: Float64) -> Float64:
        if not self._lanes:
            return total
        joined = JOINS[op][1](total, axis=0, keepdims=True) / (len(total) if self._mean else 1)
        return np.array(np.broadcast_to(joined, total.shape))


class Seen(Turning):
    """Keeps what lines reduce to by group, with the totals that are known in the place of the earlier ones."""

    def __init__(
        self,
        lines: Sequence[Line],
        names: Sequence[str],
        known: Mapping[tuple[int, int, int], Float64],
        way: Turns,
    ) -> None:
        super().__init__(lines)
        self._names, self._known, self._way = names, dict(known), way
        self.found: dict[tuple[int, int, int], list[Float64]] = {}

    def act(self, step: Step, core: Core, index: int, operands: Operands) -> None:
        """See `Acting`."""
        step.run(core, index, operands)
        line = self.at.get(index)
        target = operand(step, operands, self._names[line]) if line is not None else None
        if line is None or target is None:
            return
        key = core.number, line, self._way.group(self.turn(core, line))
        self.found.setdefault(key, []).append(values(core, target))
        if key in self._known and self._known[key].size == target.form.size:
            write(core, target, self._known[key])


def _join(op: str, parts: Sequence[Float64]) -> Float64:
    return np.asarray(JOINS[op][1](np.stack(parts), axis=0))


def scans(survey: Survey) -> Iterator[Repair]:
    """Scans that go on from the last column of the one before on their line."""
    for line in survey.sites_of(*SCANS)[:LINES]:
        count = survey.repeated(line)
        if count == 1 or not line.floats("dst"):
            continue
        start = SCANS[line.opcode][0]
        given = "a tile that is not what the one before left" if line.call.has(start) else "a constant"
        if line.opcode != "tensor_tensor_scan":
            given = "its reset register"
        for way in turns(count):
            sentence = (
                f"each {line.opcode} starts from {given}: from the last column of the one before{way.said} the output "
                "matches"
            )
            yield from line.repair(CAUSE, sentence, None, Carried(line, way))


def fills(survey: Survey) -> Iterator[Repair]:
    """Running values that are filled again for each block: all of as many fills at once, then each."""
    found: dict[int, list[Line]] = {}
    writers: dict[int, set[int]] = {}
    for line in survey.sites_of("memset"):
        count = survey.repeated(line)
        if count == 1 or not line.floats("dst"):
            continue
        found.setdefault(count, []).append(line)
    if not found:
        return
    flow = survey.flow
    places = {
        flow.place(Slot(index, "dst"))
        for each in found.values()
        for line in each
        for index in line.instructions
    }
    for index in range(len(survey.program)):
        for slot in flow.operands(index, WRITES):
            if flow.place(slot) in places:
                writers.setdefault(index, set()).add(flow.place(slot))
    kept = {index: frozenset(each) for index, each in writers.items()}
    for count, lines in found.items():
        choices = [lines] if len(lines) > 1 else []
        choices += [[line] for line in lines[:LINES]]
        for way in turns(count):
            for chosen in choices:
                what = "this tile" if len(chosen) == 1 else f"these {len(chosen)} tiles"
                sentence = (
                    f"memset fills {what} again for each block: kept as the block before left it{way.said} the output "
                    "matches"
                )
                yield from chosen[0].repair(CAUSE, sentence, None, Refilled(chosen, way, kept))


def reduced(line: Line) -> tuple[str, str] | None:
    """The operand that holds a line's reduction, and its operator; None where it reduces by no sum or extreme."""
    if line.opcode == "tensor_reduce":
        op = str(line.call.imm("op"))
        if op in JOINS and line.floats("dst"):
            return "dst", JOINS[op][0] if line.call.imm("negate") and op != "add" else op
    elif line.opcode in REDUCING and line.call.has("reduce_res") and line.floats("reduce_res"):
        op = str(line.call.imm("reduce_op") or "add")
        if op in JOINS:
            return "reduce_res", op
    return None


def partial(survey: Survey) -> Iterator[Repair]:
    """Reductions of one block where a row has several: each holds the total of its group, or of all so far."""
    found: dict[int, list[tuple[Line, str, str]]] = {}
    for line in survey.sites:
        taken = reduced(line)
        count = survey.repeated(line)
        if taken is not None and count > 1:
            found.setdefault(count, []).append((line, *taken))
    program, arguments = survey.program, survey.arguments
    for count, lines in found.items():
        choices = [lines[:LINES]] if len(lines) > 1 else []
        choices += [[line] for line in lines[:LINES]]
        for way in turns(count):
            for chosen in choices:
                line = chosen[0][0]
                several = f" and {len(chosen) - 1} more" if len(chosen) > 1 else ""
                sentence = (
                    f"{line.opcode}{several} reduces one block at a time: with what all blocks come to{way.said} the "
                    "output matches"
                )
                around = Joined(program, arguments, chosen, way, ahead=True)
                yield from line.repair(PARTIAL, sentence, None, around)
        for chosen in choices:
            line = chosen[0][0]
            sentence = f"{line.opcode} begins anew with each block: going on from the blocks before the output matches"
            yield from line.repair(
                CAUSE, sentence, None, Joined(program, arguments, chosen, Turns(), ahead=False)
            )


def axes(survey: Survey) -> Iterator[Repair]:
    """Reductions over rows that are meant over whole tiles, or over all tiles."""
    program, arguments = survey.program, survey.arguments
    found = [(line, taken) for line in survey.sites if (taken := reduced(line)) is not None][:LINES]
    choices = [[(line, *taken) for line, taken in found]] if len(found) > 1 else []
    choices += [[(line, *taken)] for line, taken in found]
    for chosen in choices:
        line = chosen[0][0]
        for mean in (False, True) if any(op == "add" for _, _, op in chosen) else (False,):
            over = " divided by the number of rows" if mean else ""
            sentence = f"{line.opcode} reduces each row: reduced over all rows{over} the output matches"
            ways = [Turns(size=1)] + [Turns()] * (survey.repeated(line) > 1)
            for way in ways:
                tiles = " of all tiles" if way == Turns() else ""
                around = Joined(program, arguments, chosen, way, ahead=True, lanes=True, mean=mean)
                yield from line.repair(AXIS, sentence.replace("all rows", f"all rows{tiles}"), None, around)
