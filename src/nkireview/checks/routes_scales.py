"""Scales: where values are quantised and come back, by what, along which axis, and around which zero point.

A scale is followed from where it is multiplied back to the maximum that it was made of. What cannot be followed for
certain is left out: a scale from outside, a maximum of several tiles, a writer that cannot be told.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from nkireview.checks.dataflow import DEPTH, UNKNOWN, Dataflow, Slot
from nkireview.checks.routes_trails import MOVES, TURNS, Hop, end_of, line_of, moved, single, trail
from nkireview.checks.steps import ACTIVATIONS, MATMUL, Step, main_operand, steps
from nkireview.isa import dtypes
from nkireview.program.access import Access
from nkireview.program.call import CallView

FP8 = frozenset({"float8_e4m3", "float8_e4m3fn", "float8_e5m2"})
CODES = frozenset({"int8", "uint8"})
QUANTISED = FP8 | CODES
RANGES = (127.0, 128.0, 255.0, 256.0, 240.0, 448.0, 57344.0)
"""Largest numbers that scales are made for."""
SMALL = 1e-3
"""Largest number that is added to a maximum only to keep it from zero."""
EXACT = 1e-4
"""Relative difference up to which two factors are the same."""
_MAXIMA = frozenset({"maximum", "abs_max"})
_SAME = frozenset({"copy", "bypass", "abs", "maximum", "minimum", "abs_max"})
_FORWARD = 6
_Content = tuple[int, Access | None, tuple[Slot, ...]]


@dataclass(frozen=True)
class Scale:
    """A tile that is `factor` * maximum ** `power`.

    `root`: the operand that holds the maximum as it was reduced. `source`: the operand that was reduced. `turned`:
    whether it was transposed between there and where it is applied. `per`: what each maximum was taken over: ``row``
    of a partition, ``group`` of it, ``column``, or the whole ``tensor``.
    """

    root: Slot
    source: Slot
    power: int
    factor: float
    turned: bool
    per: str


@dataclass(frozen=True)
class Quantised:
    """Values written as int8, uint8 or fp8 once they were scaled.

    `data`: the operand that is scaled, `applied`: the one that holds the scale (None: the number `factor`). `scale`:
    None where it cannot be followed. `by_row`: one element of the scale for each partition. `zero`: what was added
    afterwards, None where that is no number. `clamped`: bounds that were applied before the values were written.
    """

    instruction: int
    count: int
    dtype: str
    data: Slot
    applied: Slot | None
    scale: Scale | None
    by_row: bool
    factor: float
    zero: float | None
    clamped: tuple[float | None, float | None]

    @property
    def granularity(self) -> str:
        """What shares a scale, in words."""
        if self.applied is None:
            return "one number for the whole tensor"
        if self.scale is None:
            return "one for each partition" if self.by_row else "a tile"
        words = {"row": "each row", "group": "each group of a row", "column": "each column"}
        return f"one for {words[self.scale.per]}" if self.scale.per in words else "one for the whole tensor"


@dataclass(frozen=True)
class Dequantised:
    """Values multiplied back: the instruction, how they were quantised, and by what they are multiplied now."""

    instruction: int
    count: int
    quantised: Quantised
    applied: Slot | None
    scale: Scale | None
    factor: float
    zero: float | None


def quantised(flow: Dataflow) -> Iterator[Quantised]:
    """The places where values are scaled and written as int8, uint8 or fp8."""
    for site in flow.sites():
        if site.call.has("dst") and site.call.dtype("dst") in QUANTISED:
            found = quantised_at(flow, site.instruction)
            if found is not None:
                yield replace(found, count=site.count)


def quantised_at(flow: Dataflow, instruction: int) -> Quantised | None:
    """How an instruction quantises what it writes; None where nothing is scaled on the way."""
    call = flow.call(instruction)
    source = main_operand(call) if call is not None else ""
    if (
        call is None
        or not source
        or not call.has("dst")
        or dtypes.BY_NAME[call.dtype(source)].kind != "float"
    ):
        return None
    if call.dtype(source) in QUANTISED or steps(call) is None:
        return None
    applied = _applied(flow, Slot(instruction, source), call)
    if applied is None:
        return None
    data, by, before, after = applied
    factor, zero = _affine(after if by else (*before, *after))
    if by is None and factor in (None, 1.0):
        return None
    found = scale_of(flow, by.slot, by.divides) if by else None
    return Quantised(
        instruction=instruction,
        count=1,
        dtype=call.dtype("dst"),
        data=data,
        applied=by.slot if by else None,
        scale=found if found is None or factor is None else replace(found, factor=found.factor * factor),
        by_row=by is not None and by.by_row,
        factor=1.0 if factor is None else factor,
        zero=zero,
        clamped=_clamps(after if by else (*before, *after)),
    )


def dequantised(flow: Dataflow) -> Iterator[Dequantised]:
    """The places where quantised values become floats again and are multiplied, with nothing but copies between."""
    for site in flow.sites():
        taken, source = steps(site.call), main_operand(site.call)
        if not taken or not source or not site.call.has("dst") or site.call.dtype("dst") in QUANTISED:
            continue
        if not any(step.op in ("multiply", "divide") for step in taken):
            continue
        applied = _applied(flow, site.slot(source), site.call)
        if applied is None:
            continue
        data, by, before, after = applied
        if by is None:
            continue
        origin = _quantised_before(flow, data)
        if origin is None or data.instruction != site.instruction:
            continue
        found, on_the_way = origin
        _, zero = _affine((*on_the_way, *before))
        factor, _ = _affine(after)
        scale = scale_of(flow, by.slot, by.divides)
        if scale is not None and factor is not None:
            scale = replace(scale, factor=scale.factor * factor)
        yield Dequantised(
            site.instruction, site.count, found, by.slot, scale, 1.0 if factor is None else factor, zero
        )


def _quantised_before(flow: Dataflow, slot: Slot) -> tuple[Quantised, tuple[Step, ...]] | None:
    """How what an operand reads was quantised, and the steps since; None where it was not, or more was done."""
    for hop in trail(flow, slot):
        writer = line_of(flow, hop.slot)
        call = flow.call(writer.instruction) if writer is not None else None
        if writer is None or call is None or not call.has("dst"):
            return None
        if any(step.op not in ("add", "subtract", "copy") for step in hop.taken):
            return None
        if call.dtype("dst") in QUANTISED:
            found = quantised_at(flow, writer.instruction)
            if found is not None:
                return found, hop.taken
    return None


@dataclass(frozen=True)
class _By:
    slot: Slot
    divides: bool
    by_row: bool


_Applied = tuple[Slot, _By | None, tuple[Step, ...], tuple[Step, ...]]


def _applied(flow: Dataflow, slot: Slot, call: CallView) -> _Applied | None:
    """Going back from a call: the data, the tile that scales it (None: numbers alone), the steps before and after."""
    after: tuple[Step, ...] = ()
    taken = steps(call) or ()
    for _ in range(DEPTH):
        for at in reversed(range(len(taken))):
            step = taken[at]
            if not step.operand:
                continue
            if step.op not in ("multiply", "divide") or step.reverse:
                return None
            data, scale = slot, Slot(slot.instruction, step.operand)
            if step.op == "multiply" and not _followed(flow, scale) and _followed(flow, data) and not at:
                data, scale = scale, data
            by = _By(scale, step.op == "divide", _by_row(flow, scale))
            return data, by, taken[:at], (*taken[at + 1 :], *after)
        after = (*taken, *after)
        writer = line_of(flow, slot)
        before = flow.call(writer.instruction) if writer is not None else None
        own = steps(before) if before is not None and writer is not None and writer.operand == "dst" else None
        moves = before is not None and before.row.name in MOVES | TURNS
        if before is None or writer is None or own is None or not (own or moves) or not main_operand(before):
            return slot, None, (), after
        again = before.has("dst") and before.dtype("dst") in QUANTISED
        if again or any(step.op == "select" for step in own):
            return slot, None, (), after
        slot, taken = Slot(writer.instruction, main_operand(before)), own
    return None


def _followed(flow: Dataflow, slot: Slot) -> bool:
    return scale_of(flow, slot) is not None


def _by_row(flow: Dataflow, slot: Slot) -> bool:
    """True where a tile has one element for each partition, as it is read."""
    call = flow.call(slot.instruction)
    if call is None or not call.has(slot.operand):
        return False
    return all(stride == 0 or count == 1 for stride, count in call.tiles[slot.operand].free_axes)


def _affine(taken: Sequence[Step]) -> tuple[float | None, float | None]:
    """The number by which steps multiply and the one that they add, each None where it cannot be told."""
    factor: float | None = 1.0
    added: float | None = 0.0
    for step in taken:
        if step.op in ("multiply", "divide") and step.number and not step.reverse:
            by = step.number if step.op == "multiply" else 1 / step.number
            factor = None if factor is None else factor * by
            added = None if added is None else added * by
        elif step.op in ("add", "subtract") and step.number is not None and not step.reverse:
            added = None if added is None else added + (step.number if step.op == "add" else -step.number)
        elif step.op not in ("maximum", "minimum", "copy", "bypass"):
            factor = added = None
    return factor, added


def _clamps(taken: Sequence[Step]) -> tuple[float | None, float | None]:
    """The last lower and upper bound among steps."""
    low = [step.number for step in taken if step.op == "maximum" and step.number is not None]
    high = [step.number for step in taken if step.op == "minimum" and step.number is not None]
    return (low[-1] if low else None), (high[-1] if high else None)


def scale_of(flow: Dataflow, slot: Slot, divides: bool = False) -> Scale | None:
    """What a scale was made of; `divides`: its reciprocal counts. None where it is no power of a maximum."""
    last = end_of(flow, slot)
    writer = line_of(flow, last.slot)
    call = flow.call(writer.instruction) if writer is not None else None
    if writer is None or call is None:
        return None
    source, over = _reduced(call, writer.operand)
    powers = _powers(last.taken)
    if not source or powers is None:
        return None
    power, factor = powers
    inner = scale_of(flow, Slot(writer.instruction, source))
    reduced = Slot(writer.instruction, source)
    per, turned = over, last.turned
    if inner is not None and inner.power == 1:
        # a maximum of maxima: of the whole where the second one runs over the other axis
        crosses = inner.turned != (over == "column")
        per, turned, reduced = ("tensor" if crosses else inner.per), last.turned, inner.source
        factor *= inner.factor**power
    if divides:
        power, factor = -power, 1 / factor
    return Scale(Slot(writer.instruction, writer.operand), reduced, power, factor, turned, per)


def _reduced(call: CallView, operand: str) -> tuple[str, str]:
    """The operand whose maxima a call writes, and what each was taken over; empty where it takes no maximum."""
    name = call.row.name
    if name == "tensor_reduce" and call.imm("op") in _MAXIMA and not call.imm("negate"):
        return "data", "row" if call.measure("dst", "free") == 1 else "group"
    if name == "tensor_partition_reduce" and call.imm("op") in _MAXIMA:
        return "data", "column"
    if name in ACTIVATIONS and operand == "reduce_res" and call.imm("reduce_op") in _MAXIMA:
        return ("data", "row") if call.imm("op") in ("abs", "copy") else ("", "")
    return "", ""


def _powers(taken: Sequence[Step]) -> tuple[int, float] | None:
    """The power and the factor of a maximum after steps; None where it is something else then."""
    power, factor = 1, 1.0
    for step in taken:
        number = step.number
        if step.op in _SAME:
            continue
        if step.op == "add" and number is not None and abs(number) <= SMALL:
            continue
        if step.op == "reciprocal" or (step.op == "power" and number == -1):
            power, factor = -power, 1 / factor
        elif step.op == "multiply" and number:
            factor *= number
        elif step.op == "divide" and number:
            power, factor = (-power, number / factor) if step.reverse else (power, factor / number)
        else:
            return None
        if not math.isfinite(factor) or not factor:
            return None
    return power, factor


def same_data(flow: Dataflow, one: Slot, other: Slot) -> tuple[Hop, Hop] | None:
    """Where two operands were the same tile, the latest place first; None where they never surely were."""
    held: dict[_Content, Hop] = {}
    for hop in trail(flow, one):
        held.setdefault(_content(flow, hop.slot), hop)
    for hop in trail(flow, other):
        found = held.get(_content(flow, hop.slot))
        if found is not None and not any(slot.instruction == UNKNOWN for slot in flow.writers(hop.slot)):
            return found, hop
    return None


def _content(flow: Dataflow, slot: Slot) -> _Content:
    """What an operand reads: the place, in HBM the elements in whatever order, and who wrote them."""
    call = flow.call(slot.instruction)
    tile = call.tiles[slot.operand] if call is not None else None
    if tile is None or tile.on_chip:
        return flow.place(slot), None, flow.writers(slot)
    view = replace(tile.access, pattern=tuple(sorted(tile.access.pattern)))
    return flow.place(slot), view, flow.writers(slot)


def products(flow: Dataflow, instruction: int) -> Iterator[Slot]:
    """The matmul operands that read what an instruction quantised, as it lies or copied, but not transposed."""
    left, seen = [(Slot(instruction, "dst"), 0)], set()
    while left:
        slot, depth = left.pop()
        for reader in flow.readers(slot):
            call = single(flow, reader)
            if call is None or reader in seen or depth > _FORWARD:
                continue
            seen.add(reader)
            if call.row.name == MATMUL and not call.imm("is_transpose"):
                if reader.operand in ("stationary", "moving"):
                    yield reader
                continue
            to = moved(call, reader.operand)
            if to is not None and not to[1]:
                left.append((Slot(reader.instruction, to[0]), depth + 1))


def factors_after(flow: Dataflow, slot: Slot) -> Iterator[tuple[Slot, Scale]]:
    """The scales by which a written tile is multiplied after it, with the operands that hold them."""
    left, seen = [(slot, 0)], {slot}
    while left:
        here, depth = left.pop()
        for reader in flow.readers(here):
            call = single(flow, reader)
            taken = steps(call) if call is not None else None
            if call is None or taken is None or not call.has("dst") or depth > _FORWARD:
                continue
            for step in taken:
                if step.op in ("multiply", "divide") and step.operand:
                    names = {main_operand(call), step.operand} - {reader.operand}
                    for name in names:
                        held = Slot(reader.instruction, name)
                        scale = scale_of(flow, held, step.op == "divide")
                        if scale is not None:
                            yield held, scale
            after = Slot(reader.instruction, "dst")
            if after not in seen and all(step.op in ("multiply", "divide", "copy") for step in taken):
                seen.add(after)
                left.append((after, depth + 1))
