"""Masks: offsets that do not know which tile they are for, and masks on some tiles only, or on too many."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from nkireview.checks.dataflow import UNKNOWN, Slot
from nkireview.diagnosis.algebra.hooks import Running, Values, run_with
from nkireview.diagnosis.algebra.lines import Immediates, Line
from nkireview.diagnosis.arrangement.places import Arranged, Corner, Places
from nkireview.diagnosis.arrangement.stepping import Recomputed, settle
from nkireview.diagnosis.flows.acting import Acting
from nkireview.diagnosis.habits.survey import Survey
from nkireview.diagnosis.repair import Repair
from nkireview.execute import Core, Operands
from nkireview.execute import Step as Instruction
from nkireview.isa import alu
from nkireview.isa.rows.arrays import affine

CAUSE = "mask-tile-offset"
MOST = 4096
"""Instructions of one line that are looked at."""
FEW = 16
"""Masks of one line that are looked at for their uses."""
WAY = 6
"""Instructions that a count is followed through to what it is compared with, or masks."""
SIGNS = ((1, 1), (1, 0), (0, 1), (1, -1), (-1, 1), (-1, -1))
"""How the starts of rows and columns may be missing from an offset."""
NAMES = ("row", "column")


@dataclass(frozen=True)
class Placed:
    """A count or a mask with the corner of the tile that it is for.

    rows, columns: what one partition further, and one element further, adds to the count; offset: where it begins.
    """

    corner: Corner
    rows: int
    columns: int
    offset: int

    def shift(self, signs: tuple[int, int]) -> int:
        """What the start of the tile adds to the count."""
        row, column = self.corner.at
        return signs[0] * self.rows * row + signs[1] * self.columns * column


def placed(given: Immediates, corner: Corner) -> Placed | None:
    """Where a count stands; None where its immediates are no plain numbers."""
    rows, offset, pattern = (
        given.get("channel_multiplier") or 0,
        given.get("offset") or 0,
        given.get("pattern"),
    )
    if not isinstance(rows, int) or not isinstance(offset, int) or not isinstance(pattern, list | tuple):
        return None
    columns = [int(step) for step, count in pattern if count > 1]
    return Placed(corner, rows, columns[-1] if columns else 0, offset)


def offsets(survey: Arranged) -> Iterator[Repair]:
    """Offsets of selects and counts with the start of the tile added, in each sign, or instead of what they hold."""
    places = survey.places
    for line in survey.of("affine_select", "iota"):
        found = _placed(survey, places, line)
        if not any(each.shift((1, 1)) or each.shift((1, -1)) for each in found.values()):
            continue
        first = next((each.offset for each in found.values() if each.corner.at == (0, 0)), 0)
        tried = set()
        for replaced in (False, True):
            for signs in SIGNS:
                meant = {
                    index: (first if replaced else each.offset) + each.shift(signs)
                    for index, each in found.items()
                }
                key = tuple(meant.values())
                if key in tried or all(found[index].offset == offset for index, offset in meant.items()):
                    continue
                tried.add(key)
                yield from _moved(line, meant, signs, replaced)


def _moved(line: Line, meant: Mapping[int, int], signs: tuple[int, int], replaced: bool) -> Iterator[Repair]:
    """The repair by which instructions have other offsets."""
    program = line.flow.program
    edits = {
        index: {**program.immediates[program.columns.immediates[index]], "offset": offset}
        for index, offset in meant.items()
    }
    starts = " and ".join(f"first {name}" for name, sign in zip(NAMES, signs, strict=True) if sign)
    how = "counted from" if replaced else "moved on by"
    sentence = (
        f"the offset of {line.opcode} does not say where its tile begins in the tensors: {how} the {starts} of each "
        f"tile{_turned(signs)} the output matches"
    )
    yield from line.repair(CAUSE, sentence, edits)


def _turned(signs: tuple[int, int]) -> str:
    turned = [name for name, sign in zip(NAMES, signs, strict=True) if sign < 0]
    return f", with the sign of the {' and '.join(turned)} turned," if turned else ""


def _placed(survey: Survey, places: Places, line: Line) -> dict[int, Placed]:
    """The instructions of a line whose tile's corner is known."""
    found = {}
    for index in line.instructions[:MOST]:
        corner = None
        if line.opcode == "affine_select":
            corner = places.corner(Slot(index, "on_true_tile"))
        if corner is None or not (corner.row or corner.column):
            slot = next(masked(survey, places, index), None)
            corner = places.corner(slot) if slot is not None else None
        if corner is None or not (corner.row or corner.column):
            continue
        where = placed(_immediates(survey, index), corner)
        if where is not None:
            found[index] = where
    return found


def masked(survey: Survey, places: Places, index: int) -> Iterator[Slot]:
    """The tiles from tensors that a count or a mask meets: what it masks, or is compared with."""
    left, seen = [index], {index}
    for _ in range(WAY):
        after = []
        for at in left:
            for reader in survey.flow.readers(Slot(at, "dst")):
                call = survey.flow.call(reader.instruction) if reader.instruction != UNKNOWN else None
                if call is None or reader.instruction in seen or not call.has("dst"):
                    continue
                seen.add(reader.instruction)
                others = [
                    Slot(reader.instruction, each)
                    for each in call.tiles
                    if each not in ("dst", reader.operand)
                ]
                met = [slot for slot in others if places.corner(slot).known]
                yield from met[:1]
                if not met:
                    after.append(reader.instruction)
        left = after


def _immediates(survey: Survey, index: int) -> Immediates:
    found: Immediates = survey.program.immediates[survey.program.columns.immediates[index]]
    return found


def kept(given: Immediates, offset: int, like: Values) -> Values | None:
    """Which elements of a tile an affine_select with another offset keeps."""
    compare = alu.of(str(given.get("cmp_op") or "equal")).int_fn
    pattern = given.get("pattern")
    if compare is None or not isinstance(pattern, list | tuple):
        return None
    counts = affine(pattern, offset, int(given.get("channel_multiplier") or 0), like.shape[0])
    return (
        None
        if counts.size != like.size
        else np.asarray(compare(counts, np.int32(0)) != 0).reshape(like.shape)
    )


class Masking(Acting):
    """Masks what instructions leave, each with its own offset. masks: instruction -> (immediates, offset)."""

    def __init__(self, masks: Mapping[int, tuple[Immediates, int]]) -> None:
        super().__init__()
        self._masks = masks

    def act(self, step: Instruction, core: Core, index: int, operands: Operands) -> None:
        """See `Acting`."""
        step.run(core, index, operands)
        if index in self._masks:
            given, offset = self._masks[index]
            values = Running(step, core, operands).value("dst")
            keep = kept(given, offset, values)
            if keep is not None:
                settle(step, core, operands, np.where(keep, values, given.get("on_false_value") or 0.0))


class Reused(Acting):
    """Uses of one mask, each with what the mask would be for its own tile.

    uses: instruction -> (the operand that is the mask, the select that made it, its immediates, the offset meant).
    """

    def __init__(self, uses: Mapping[int, tuple[str, int, Immediates, int]]) -> None:
        super().__init__()
        self._uses = uses
        self._selects = frozenset(at for _, at, _, _ in uses.values())
        self._held: dict[int, Values] = {}

    def begin(self) -> None:
        """See `Acting`."""
        self._held.clear()

    def act(self, step: Instruction, core: Core, index: int, operands: Operands) -> None:
        """See `Acting`."""
        running = Running(step, core, operands)
        if index in self._selects:
            self._held[index] = np.array(running.value("on_true_tile"))
        found = None
        name, at, given, offset = self._uses.get(index, ("", -1, {}, 0))
        if at in self._held:
            keep = kept(given, offset, self._held[at])
            if keep is not None and keep.size == running.value(name).size:
                whole = np.where(keep, self._held[at], given.get("on_false_value") or 0.0)
                found = whole.reshape(running.value(name).shape)
        if found is None:
            step.run(core, index, operands)
        else:
            run_with(running, index, name, found)


def reused(survey: Arranged) -> Iterator[Repair]:
    """A mask made once and used for several tiles, made for each of them."""
    places = survey.places
    for line in survey.of("affine_select"):
        known = (places.corner(Slot(index, "on_true_tile")) for index in line.instructions[:FEW])
        made = [
            index for index, at in zip(line.instructions, known, strict=False) if not (at.row or at.column)
        ]
        tried = set()
        for signs in SIGNS:
            uses = {}
            for index in made:
                given = _immediates(survey, index)
                for slot in masked(survey, places, index):
                    name = _direct(survey, index, slot.instruction)
                    where = placed(given, places.corner(slot))
                    if name and where is not None:
                        uses[slot.instruction] = name, index, given, where.offset + where.shift(signs)
            key = tuple(offset for _, _, _, offset in uses.values())
            if key in tried or all(
                offset == (given.get("offset") or 0) for _, _, given, offset in uses.values()
            ):
                continue
            tried.add(key)
            sentence = (
                f"the mask that affine_select makes is used for {len(uses)} tiles as if each began where the first "
                f"does: moved on by where each tile begins{_turned(signs)} the output matches"
            )
            yield from line.repair(CAUSE, sentence, None, Reused(uses))


def _direct(survey: Survey, index: int, use: int) -> str:
    """The operand by which an instruction reads a mask; empty where it does so by way of others."""
    readers = survey.flow.readers(Slot(index, "dst"))
    return next((reader.operand for reader in readers if reader.instruction == use), "")


def guarded(survey: Arranged) -> Iterator[Repair]:
    """Masks that only some of the tiles alike get, put on all of them; those that all get, kept for the diagonal."""
    places = survey.places
    for line in survey.of("affine_select"):
        found = {index: each for index, each in _placed(survey, places, line).items() if each.corner.known}
        if not found:
            continue
        yield from _widened(survey, places, line, found)
        off = [index for index, each in found.items() if each.shift((1, 1)) != 0]
        if off and len(off) < len(line.instructions):
            sentence = (
                f"affine_select masks {len(line.instructions)} tiles: only those on the diagonal masked the output "
                "matches"
            )
            around = Recomputed(off, lambda running, index: np.array(running.value("on_true_tile")))
            yield from line.repair(CAUSE, sentence, None, around)


def _widened(survey: Survey, places: Places, line: Line, found: Mapping[int, Placed]) -> Iterator[Repair]:
    makers = {}
    for index, each in found.items():
        writers = survey.flow.writers(Slot(index, "on_true_tile"))
        if len(writers) == 1 and writers[0].instruction != UNKNOWN:
            makers[writers[0].instruction] = index, each
    if not makers:
        return
    owner = next((each for each in survey.sites if min(makers) in each.instructions), None)
    if owner is None:
        return
    masks: dict[int, tuple[Immediates, int]] = {}
    index, each = makers[min(makers)]
    given = _immediates(survey, index)
    zero = each.offset - each.shift((1, 1))
    shape = survey.flow.call(index)
    for at in owner.instructions[:MOST]:
        call = survey.flow.call(at)
        if (
            at in makers
            or call is None
            or shape is None
            or call.counts("dst") != shape.counts("on_true_tile")
        ):
            continue
        corner = _made_at(places, at)
        where = placed(given, corner) if corner is not None and corner.known else None
        if where is not None:
            masks[at] = given, zero + where.shift((1, 1))
    if masks:
        sentence = (
            f"affine_select masks {len(makers)} tiles, and {len(masks)} more are made like them without a mask: masked "
            "too, each from where it begins, the output matches"
        )
        yield from line.repair(CAUSE, sentence, None, Masking(masks))


def _made_at(places: Places, index: int) -> Corner | None:
    """The corner of what an instruction writes, as the first that reads it sees it."""
    readers = places.flow.readers(Slot(index, "dst"))
    slots = [reader for reader in readers if reader.instruction != UNKNOWN]
    return places.corner(slots[0]) if slots else None
