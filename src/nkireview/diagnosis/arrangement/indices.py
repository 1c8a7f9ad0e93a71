"""Index bases: counts that run the other way, and indices, compared or gathered by, that are one off."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import MappingProxyType

import numpy as np

from nkireview.diagnosis.algebra.hooks import Running, Values, after, before
from nkireview.diagnosis.algebra.lines import Immediates, Line, with_alike
from nkireview.diagnosis.habits.survey import Survey
from nkireview.diagnosis.repair import Repair
from nkireview.isa import dtypes

CAUSE = "index-base"
COMPARISONS = frozenset({"equal", "not_equal"})
COMPARED = MappingProxyType(
    {
        "tensor_tensor": (("op", "data2"),),
        "tensor_scalar": (("op0", "operand0"), ("op1", "operand1")),
        "scalar_tensor_tensor": (("op0", "operand0"), ("op1", "operand1")),
    }
)
"""Opcode -> (immediate of an operator, its second operand)."""
GATHERED = MappingProxyType({"nc_n_gather": "indices", "local_gather": "index"})
"""Opcode -> the indices by which it gathers."""
FOUND = ("nc_find_index8",)
"""Opcodes whose results are places."""


def descending(survey: Survey) -> Iterator[Repair]:
    """Counts that run from the last to the first along the free axes, and along the partitions."""
    for line in with_alike(survey.of("iota")):
        for said, change in (("element", _turned), ("partition", _turned_lanes)):
            edits = line.edits(change(line))
            sentence = (
                f"iota counts from {said} to {said} in this order: the other way round the output matches"
            )
            yield from line.repair(CAUSE, sentence, edits)


def _turned(line: Line) -> Callable[[Immediates], Immediates | None]:
    def change(given: Immediates) -> Immediates | None:
        pattern, offset = given.get("pattern"), given.get("offset") or 0
        if not isinstance(pattern, list | tuple) or not isinstance(offset, int):
            return None
        last = sum(int(step) * (int(count) - 1) for step, count in pattern)
        if not last:
            return None
        turned = [[-int(step), int(count)] for step, count in pattern]
        return {**given, "pattern": turned, "offset": offset + last}

    return change


def _turned_lanes(line: Line) -> Callable[[Immediates], Immediates | None]:
    lanes = line.call.measure("dst", "partitions")

    def change(given: Immediates) -> Immediates | None:
        multiplier, offset = given.get("channel_multiplier") or 0, given.get("offset") or 0
        if not isinstance(multiplier, int) or not isinstance(offset, int) or not multiplier or lanes < 2:
            return None
        return {**given, "channel_multiplier": -multiplier, "offset": offset + multiplier * (lanes - 1)}

    return change


def compared(survey: Survey) -> Iterator[Repair]:
    """Indices that are compared for equality, one more and one less."""
    for line in with_alike(survey.of(*COMPARED)):
        for name, second in COMPARED[line.opcode]:
            if line.call.imm(name) not in COMPARISONS or not line.call.has(second):
                continue
            for by in (1, -1):
                sentence = f"{line.opcode} compares with {second}: with {_moved(by)} the output matches"
                yield from line.repair(
                    CAUSE, sentence, None, before(line.instructions, second, _plus(second, by))
                )


def gathered(survey: Survey) -> Iterator[Repair]:
    """Indices by which is gathered, one more and one less, where none of them leaves what is gathered from."""
    for line in survey.of(*GATHERED):
        name = GATHERED[line.opcode]
        for by in (1, -1):
            sentence = f"{line.opcode} takes its {name} as they are: with {_moved(by)} the output matches"
            yield from line.repair(
                CAUSE, sentence, None, before(line.instructions, name, _plus(name, by, inside=True))
            )
    for line in survey.of(*FOUND):
        for by in (1, -1):
            sentence = f"{line.opcode} gives the places that it finds: with {_moved(by)} the output matches"
            yield from line.repair(CAUSE, sentence, None, after(line.instructions, "dst", _more(by)))


def loaded(survey: Survey) -> Iterator[Repair]:
    """Tiles of indices that accesses go by, one more and one less."""
    program = survey.program
    tiles = set()
    for access in range(len(program.columns.access_base)):
        index = program.access(access).index
        if index is not None and index.kind != "register":
            tiles.add(program.access(index.source).buffer)
    for line in survey.of("dma_copy", "tensor_copy", "iota"):
        if not line.call.has("dst") or line.call.tiles["dst"].buffer.id not in tiles:
            continue
        if dtypes.BY_NAME[line.call.dtype("dst")].kind == "float":
            continue
        for by in (1, -1):
            sentence = f"the indices that {line.opcode} leaves are used as such: with {_moved(by)} the output matches"
            yield from line.repair(CAUSE, sentence, None, after(line.instructions, "dst", _more(by)))


def _moved(by: int) -> str:
    return "one more" if by > 0 else "one less"


def _more(by: int) -> Callable[[Values], Values]:
    return lambda values: np.maximum(values + by, 0)


def _plus(name: str, by: int, inside: bool = False) -> Callable[[Running], Values | None]:
    def change(running: Running) -> Values | None:
        values = running.value(name)
        source = next((each for each in ("data", "src_buffer") if each in running.step.slots), "")
        if inside and source:
            held = running.value(source)
            return np.asarray(np.clip(values + by, 0, held.size // held.shape[0] - 1))
        return values + by

    return change
