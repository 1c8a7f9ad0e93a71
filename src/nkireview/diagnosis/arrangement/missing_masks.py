"""Missing masks: scores that are not masked before their row maximum or exponential, and masks that are not needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from nkireview.checks.dataflow import Slot
from nkireview.checks.steps import ACTIVATIONS
from nkireview.diagnosis.algebra.hooks import Running, Values, before, instead
from nkireview.diagnosis.algebra.lines import Line, with_alike
from nkireview.diagnosis.algebra.masks import LOWEST
from nkireview.diagnosis.arrangement.places import Arranged, Corner
from nkireview.diagnosis.flows.acting import Acting, operand, values, write
from nkireview.diagnosis.habits.survey import Survey
from nkireview.diagnosis.repair import Repair
from nkireview.execute import Core, Operands
from nkireview.execute import Step as Instruction

MISSING, EXTRA = "mask-missing", "mask-extra"
LINES = 3
"""Lines of each kind that are tried."""
TAKEN = MappingProxyType(
    {"affine_select": "on_true_tile", "select_reduce": "on_true", "range_select": "on_true_tile"}
)
"""Opcode -> what it takes where nothing is masked."""


@dataclass(frozen=True)
class Shape:
    """Which elements of a score matrix are kept: columns up to the row (lower), or from it on (upper)."""

    said: str
    upper: bool = False
    strict: bool = False
    aligned: bool = False

    def keeps(self, rows: Values, columns: Values, ahead: int) -> Values:
        """A mask of rows against columns. ahead: by how much the columns outnumber the rows."""
        apart = columns[None, :] - rows[:, None] - (ahead if self.aligned else 0)
        if self.upper:
            return np.asarray(apart > 0 if self.strict else apart >= 0)
        return np.asarray(apart < 0 if self.strict else apart <= 0)


SHAPES = (
    Shape("those after the diagonal masked (causal)"),
    Shape("those after the last row's diagonal masked (causal, aligned at the end)", aligned=True),
    Shape("those before the diagonal masked", upper=True),
    Shape("those on and after the diagonal masked", strict=True),
    Shape("those on and before the diagonal masked", upper=True, strict=True),
)


class Masked(Acting):
    """Masks what instructions read, for good, before they read it. corners: those of the tiles, by instruction."""

    def __init__(self, corners: Mapping[int, Corner], name: str, shape: Shape) -> None:
        super().__init__()
        self._corners, self._name, self._shape = corners, name, shape

    def act(self, step: Instruction, core: Core, index: int, operands: Operands) -> None:
        """See `Acting`."""
        corner = self._corners.get(index)
        target = operand(step, operands, self._name) if corner is not None else None
        if corner is not None and target is not None:
            held = values(core, target)
            flat = held.reshape(len(held), -1)
            row, column = corner.at
            keep = self._shape.keeps(
                row + np.arange(len(flat)), column + np.arange(flat.shape[1]), _ahead(corner)
            )
            write(core, target, np.where(keep, flat, LOWEST))
        step.run(core, index, operands)


def _ahead(corner: Corner) -> int:
    return corner.column.length - corner.row.length if corner.row and corner.column else 0


def missing(survey: Arranged) -> Iterator[Repair]:
    """Scores masked before the maximum of each row, or where none is taken, before the exponential."""
    places = survey.places
    maxima = [line for line in survey.of("tensor_reduce") if line.call.imm("op") == "maximum"]
    chosen = [(line, "data", "the row maximum") for line in maxima if line.call.measure("data", "free") > 1]
    if not chosen:
        powers = [line for line in survey.of(*ACTIVATIONS) if line.call.imm("op") == "exp"]
        chosen = [(line, "data", "exp") for line in powers if line.call.measure("data", "free") > 1]
    for shape in SHAPES:
        for line, name, what in chosen[:LINES]:
            corners = {index: places.corner(Slot(index, name)) for index in line.instructions}
            first = corners[line.first]
            if not first.known or not line.floats(name) or (shape.aligned and not _ahead(first)):
                continue
            sentence = f"{what} is taken of all scores: with {shape.said} before it the output matches"
            yield from line.repair(MISSING, sentence, None, Masked(corners, name, shape))


def extra(survey: Survey) -> Iterator[Repair]:
    """Masks left out: all that are alike, then each."""
    for line in with_alike(survey.of(*TAKEN, "tensor_copy_predicated")):
        if line.opcode == "tensor_copy_predicated":
            for said, copied in (("all", True), ("nothing", False)):
                sentence = (
                    f"{line.opcode} copies what its predicate chooses: with {said} copied the output matches"
                )
                around = before(line.instructions, "predicate", _chosen(line, copied))
                yield from line.repair(EXTRA, sentence, None, around)
        elif not line.call.has("reduce_res"):
            sentence = f"{line.opcode} masks elements: without it the output matches"
            around = instead(line.instructions, _taken(TAKEN[line.opcode]))
            yield from line.repair(EXTRA, sentence, None, around)


def _chosen(line: Line, copied: bool) -> Callable[[Running], Values]:
    value = copied != bool(line.call.imm("reverse_pred"))
    return lambda running: np.full_like(running.value("predicate"), value)


def _taken(name: str) -> Callable[[Running], Values]:
    def change(running: Running) -> Values:
        return np.array(running.value(name))

    return change
