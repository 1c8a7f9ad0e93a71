"""Sums that begin anew too late, too early, or at every step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from nkireview.checks.dataflow import Dataflow, Slot
from nkireview.diagnosis.flows.acting import Acting, Float64, operand, values, write
from nkireview.diagnosis.flows.ledger import IDENTITY, Event, Ledger, events, order
from nkireview.diagnosis.flows.lines import Lines
from nkireview.diagnosis.repair import Repair
from nkireview.execute import Core, Operands, Step

MOST = 12
"""Repairs of one kind."""
CAUSE = "stale-accumulator"
Pair = tuple[int, int]
"""The numbers of an adding and of a reading line."""


class Fresh(Acting):
    """Starts a sum anew where one of the lines `adding` adds to what one of the lines `reading` has read out."""

    def __init__(
        self, lines: Lines, held: Mapping[int, Event], adding: frozenset[int], reading: frozenset[int]
    ) -> None:
        super().__init__()
        self._ledger, self._events = Ledger(lines, held), held
        self._adding, self._reading = adding, reading

    def begin(self) -> None:
        """See `Acting`."""
        self._ledger.clear()

    def act(self, step: Step, core: Core, index: int, operands: Operands) -> None:
        """See `Acting`."""
        seen = self._ledger.step(index)
        if seen.stale:
            event = self._events[index]
            if event.line in self._adding and self._reading.intersection(seen.stale):
                target = operand(step, operands, "dst")
                if target is not None and target.cell.store.block is not None:
                    target.target()[...] = IDENTITY[event.op]
        step.run(core, index, operands)


class Kept(Acting):
    """Adds, on some lines, to what would be overwritten unread; skips a fill that would clear such a sum."""

    def __init__(self, lines: Lines, held: Mapping[int, Event], chosen: frozenset[int]) -> None:
        super().__init__()
        self._ledger, self._events, self._chosen = Ledger(lines, held), held, chosen

    def begin(self) -> None:
        """See `Acting`."""
        self._ledger.clear()

    def act(self, step: Step, core: Core, index: int, operands: Operands) -> None:
        """See `Acting`."""
        lost = self._ledger.step(index).lost
        event = self._events.get(index)
        target = operand(step, operands, lost) if lost else None
        if event is None or target is None or event.line not in self._chosen:
            step.run(core, index, operands)
        elif not event.fill:
            old: Float64 = values(core, target)
            step.run(core, index, operands)
            write(core, target, values(core, target) + old)


def repairs(flow: Dataflow, lines: Lines) -> Iterator[Repair]:
    """Sums that are read out and added to again: begun anew after each read-out."""
    held = events(flow, lines)
    again, lost = _candidates(flow, lines, held)
    for pairs in _choices(held, again)[:MOST]:
        at = min(again[pair] for pair in pairs)
        adding, reading = frozenset(pair[0] for pair in pairs), frozenset(pair[1] for pair in pairs)
        what = "what" if len(adding) == 1 else "as other sums, what"
        readers = lines.text(lines.all[min(reading)].first) + (" and others" if len(reading) > 1 else "")
        sentence = (
            f"{what} {lines.text(at)} adds up is read by {readers} and added to again without a fresh start: each "
            "result holds those before it"
        )
        yield Repair(CAUSE, sentence, at, flow.program, Fresh(lines, held, adding, reading))
    for line, at in list(lost.items())[:MOST]:
        if held[at].fill:
            sentence = (
                f"{lines.text(at)} clears a sum that nothing has read yet: only what comes after it is left"
            )
        else:
            sentence = (
                f"{lines.text(at)} overwrites the part of a sum that nothing has read yet, where it should be added "
                "to: only the last part is left"
            )
        yield Repair(CAUSE, sentence, at, flow.program, Kept(lines, held, frozenset({line})))


def _choices(held: Mapping[int, Event], again: Mapping[Pair, int]) -> list[list[Pair]]:
    """Pairs that may be stale together: all sums, those of one line, and each pair alone."""
    pairs = sorted(again, key=lambda pair: (held[again[pair]].op != "add", again[pair]))
    sums = [pair for pair in pairs if held[again[pair]].op == "add"]
    found = [sums]
    found += [
        [pair for pair in pairs if pair[0] == line] for line in dict.fromkeys(pair[0] for pair in pairs)
    ]
    found += [[pair] for pair in pairs]
    return [each for at, each in enumerate(found) if each and each not in found[:at]]


def _candidates(
    flow: Dataflow, lines: Lines, held: Mapping[int, Event]
) -> tuple[dict[Pair, int], dict[int, int]]:
    """Where each pair of an adding and a reading line is stale first, and each line loses a sum first."""
    ledger = Ledger(lines, held)
    again: dict[Pair, int] = {}
    lost: dict[int, int] = {}
    for index in order(flow.program):
        seen = ledger.step(index)
        for reading in seen.stale:
            again.setdefault((held[index].line, reading), index)
        if seen.lost and lines.is_float(Slot(index, seen.lost)):
            lost.setdefault(held[index].line, index)
    return again, lost
