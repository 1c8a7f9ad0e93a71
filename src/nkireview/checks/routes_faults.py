"""What goes wrong on routes through few digits: scales, zero points, bounds and bits that do not belong together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from nkireview.checks.dataflow import Dataflow, Site, Slot
from nkireview.checks.precision import largest
from nkireview.checks.routes_scales import (
    CODES,
    EXACT,
    FP8,
    QUANTISED,
    RANGES,
    Dequantised,
    Quantised,
    Scale,
    dequantised,
    factors_after,
    products,
    quantised,
    quantised_at,
    same_data,
)
from nkireview.checks.routes_trails import line_of, moved, single, trail
from nkireview.checks.stability import Spot
from nkireview.checks.steps import main_operand, steps
from nkireview.isa import dtypes
from nkireview.program.call import CallView

BITS = frozenset({"bitwise_and"})
COMPARISONS = frozenset({"equal", "not_equal", "greater", "greater_equal", "less", "less_equal"})
_FORWARD = 6
_MX = "nc_matmul_mx"
_QUANTIZE_MX = "quantize_mx"


@dataclass(frozen=True)
class Mismatch:
    """A quantisation that what follows does not fit: the instructions, how many, the dtype, and what is so.

    `kind`: ``transposed`` or ``contracted`` (the axis of a scale), ``maximum``, ``power``, ``range`` or ``zero`` (the
    way back), ``mx``, ``fill``. `first` and `second`: the numbers that differ, where numbers do.
    """

    instruction: int
    other: int
    count: int
    dtype: str
    kind: str
    first: float = 0.0
    second: float = 0.0


def late_clamps(flow: Dataflow) -> Iterator[Spot]:
    """Wider values written as fp8 that nothing scales or bounds before, but a minimum or maximum does afterwards.

    The instruction is that of the bound, `number` the largest magnitude of the dtype.
    """
    for site in flow.sites():
        call, source = site.call, main_operand(site.call)
        taken = steps(call)
        if not source or taken is None or not call.has("dst") or call.dtype("dst") not in FP8:
            continue
        wide, narrow = dtypes.BY_NAME[call.dtype(source)], dtypes.BY_NAME[call.dtype("dst")]
        if wide.kind != "float" or wide.max_finite <= narrow.max_finite or _guarded(flow, site):
            continue
        most = largest(narrow.name, flow.scope.hardware.generation)
        for reader in _copies_read(flow, site.slot("dst")):
            bound = single(flow, reader)
            own = steps(bound) if bound is not None else None
            if bound is None or not own or own[0].op not in ("minimum", "maximum") or own[0].operand:
                continue
            number = own[0].number
            # any other number is a bound of its own, such as the zero of a relu
            if number is not None and 0.5 * most <= abs(number) <= 2 * most:
                yield Spot(reader.instruction, site.count, most, narrow.name)
                break


def _guarded(flow: Dataflow, site: Site) -> bool:
    """True where something on the way scales by a tile or bounds, or where the way cannot be told."""
    if quantised_at(flow, site.instruction) is not None:
        return True
    own = steps(site.call) or ()
    if any(step.operand or step.op not in ("copy", "add", "subtract") for step in own):
        return True
    last = None
    for last in trail(flow, site.slot(main_operand(site.call))):
        if any(step.op not in ("copy", "add", "subtract") for step in last.taken):
            return True
    if last is None:
        return True
    writer = line_of(flow, last.slot)
    if writer is None:
        return bool(flow.writers(last.slot))
    call = flow.call(writer.instruction)
    return call is None or call.row.name != "nc_matmul"


def _copies_read(flow: Dataflow, slot: Slot) -> Iterator[Slot]:
    """The operands that read a written tile, as it is or copied on chip."""
    left, seen = [(slot, 0)], {slot}
    while left:
        here, depth = left.pop()
        for reader in flow.readers(here):
            call = single(flow, reader)
            if call is None:
                continue
            yield reader
            to = moved(call, reader.operand)
            after = Slot(reader.instruction, "dst")
            if to is not None and after not in seen and depth < _FORWARD:
                seen.add(after)
                left.append((after, depth + 1))


def wrong_axes(flow: Dataflow) -> Iterator[Mismatch]:
    """Scales that were taken over one axis and are applied along the other, or that vary along a contraction."""
    for found in quantised(flow):
        scale = found.scale
        if scale is None or found.applied is None or not found.by_row or scale.turned or scale.power != -1:
            continue
        if scale.per not in ("row", "column"):
            continue
        met = same_data(flow, scale.source, found.data)
        # a maximum over partitions lies along the columns of what was reduced
        if met is not None and (met[0].turned != met[1].turned) != (scale.per == "column"):
            yield Mismatch(found.instruction, scale.root.instruction, found.count, found.dtype, "transposed")
            continue
        for operand in products(flow, found.instruction):
            after = factors_after(flow, Slot(operand.instruction, "dst"))
            if any(_alike(flow, scale, other) and other.power == 1 for _, other in after):
                yield Mismatch(found.instruction, operand.instruction, found.count, found.dtype, "contracted")
                break


def _alike(flow: Dataflow, one: Scale, other: Scale) -> bool:
    """True where two scales were made of the same maximum."""
    if one.root == other.root:
        return True
    if one.per != other.per or one.turned != other.turned:
        return False
    met = same_data(flow, one.source, other.source)
    return met is not None and met[0].turned == met[1].turned


def other_scales(flow: Dataflow) -> Iterator[Mismatch]:
    """Quantised values that are multiplied back by something else than they were divided by."""
    for found in dequantised(flow):
        mismatch = _mismatch(flow, found)
        if mismatch is not None:
            yield mismatch
    for site in flow.sites((_MX,)):
        for name in ("stationary", "moving"):
            data, scale = (_mx_writers(flow, site.slot(each)) for each in (name, f"{name}_scale"))
            if data and scale and not data & scale:
                dtype = site.call.dtype(name)
                yield Mismatch(site.instruction, min(scale), site.count, dtype, "mx")
                break


def _mismatch(flow: Dataflow, found: Dequantised) -> Mismatch | None:
    before, after = found.quantised.scale, found.scale

    def differs(kind: str, first: float = 0.0, second: float = 0.0) -> Mismatch:
        return Mismatch(
            found.instruction,
            found.quantised.instruction,
            found.count,
            found.quantised.dtype,
            kind,
            first,
            second,
        )

    zero, back = found.quantised.zero, found.zero
    if zero is not None and back is not None and abs(zero + back) > EXACT * max(abs(zero), abs(back)):
        return differs("zero", zero, -back)
    if before is None or after is None:
        return None
    if not _alike(flow, before, after):
        apart = before.per == after.per and before.power == -after.power
        return differs("maximum") if apart and not _related(flow, before, after) else None
    if before.power == after.power:
        return differs("power")
    product = before.factor * after.factor
    if before.power == -1 and abs(product - 1) > EXACT:
        used = before.factor, 1 / after.factor
        pair = tuple(next((r for r in RANGES if abs(r - each) <= EXACT * r), 0.0) for each in used)
        if all(pair) and pair[0] != pair[1]:
            return differs("range", pair[0], pair[1])
    return None


def _related(flow: Dataflow, one: Scale, other: Scale) -> bool:
    """True where one maximum may include the other: the tiles that they were taken of have something in common."""
    places = {flow.place(hop.slot) for hop in trail(flow, one.source)}
    return bool(places & {flow.place(hop.slot) for hop in trail(flow, other.source)})


def _mx_writers(flow: Dataflow, slot: Slot) -> frozenset[int]:
    """The instructions that quantised what an operand of an MX matmul reads; empty where another one wrote it."""
    found = set()
    for writer in flow.writers(slot):
        call = single(flow, writer)
        if call is not None and call.row.name == "memset":
            continue
        if call is None or call.row.name != _QUANTIZE_MX:
            return frozenset()
        found.add(writer.instruction)
    return frozenset(found)


def lost_saturation(flow: Dataflow) -> Iterator[Spot]:
    """Low bits taken of an integer that a float was converted to, and kept in 8 bits: beyond their range values wrap.

    `number` is the largest integer that stays what it is.
    """
    for site in flow.sites(("tensor_scalar",)):
        taken, call = steps(site.call) or (), site.call
        masks = [step.number for step in taken if step.op in BITS and step.number is not None]
        if len(masks) != 1 or len(taken) > 1 or masks[0] not in (15.0, 127.0, 255.0):
            continue
        if not (call.dtype("dst") in CODES or _becomes_code(flow, site.slot("dst"))):
            continue
        if _unbounded_integer(flow, site.slot("data"), masks[0]):
            yield Spot(site.instruction, site.count, masks[0], call.dtype("data"))
    for site in flow.sites():
        source = main_operand(site.call)
        if not source or source not in site.call.tiles or site.call.dtype(source) not in CODES:
            continue
        held = dtypes.BY_NAME[site.call.tiles[source].buffer.dtype]
        if (
            held.kind in ("int", "uint")
            and held.bits > 8
            and _unbounded_integer(flow, site.slot(source), 255.0)
        ):
            yield Spot(site.instruction, site.count, 2.0**8 - 1, held.name)


def _becomes_code(flow: Dataflow, slot: Slot) -> bool:
    return any(
        call is not None and call.has("dst") and moved(call, reader.operand) and call.dtype("dst") in CODES
        for reader in flow.readers(slot)
        for call in (single(flow, reader),)
    )


def _unbounded_integer(flow: Dataflow, slot: Slot, most: float) -> bool:
    """True where an integer surely comes of a scaled float that nothing bounded."""
    writer = line_of(flow, slot)
    call = flow.call(writer.instruction) if writer is not None else None
    if writer is None or call is None or not main_operand(call) or not call.has("dst"):
        return False
    kinds = dtypes.BY_NAME[call.dtype(main_operand(call))].kind, dtypes.BY_NAME[call.dtype("dst")].kind
    if kinds[0] != "float" or kinds[1] not in ("int", "uint") or steps(call) is None:
        return False
    taken = list(steps(call) or ())
    data = Slot(writer.instruction, main_operand(call))
    scaled = any(step.op in ("multiply", "divide") for step in taken)
    for _ in range(_FORWARD):
        before = line_of(flow, data)
        made = flow.call(before.instruction) if before is not None else None
        own = steps(made) if made is not None else None
        if before is None or made is None or own is None or not main_operand(made):
            break
        taken += own
        scaled = scaled or any(step.op in ("multiply", "divide") for step in own)
        data = Slot(before.instruction, main_operand(made))
    bounding = ("minimum", "maximum", "select", "mod", "fmod", "tanh", "sigmoid", "sin", "erf", *COMPARISONS)
    return scaled and not any(step.op in bounding for step in taken) and most > 0


def mixed_fills(flow: Dataflow) -> Iterator[Mismatch]:
    """Quantised values with a zero point, of which some are replaced by another number before the point is taken off.

    `first`: the number that is filled in, `second`: the zero point.
    """
    for site in flow.sites():
        taken, source = steps(site.call), main_operand(site.call)
        if not taken or not source or not site.call.has("dst") or site.call.dtype("dst") in CODES:
            continue
        step = taken[0]
        if step.op not in ("add", "subtract") or not step.number or step.reverse:
            continue
        zero = step.number if step.op == "subtract" else -step.number
        for hop in trail(flow, site.slot(source)):
            if hop.taken:
                break
            writer = line_of(flow, hop.slot)
            call = flow.call(writer.instruction) if writer is not None else None
            if writer is None or call is None:
                break
            filled = _filled(flow, writer, call)
            if filled is not None:
                value, data = filled
                if value != zero and _has_zero(flow, data, zero):
                    yield Mismatch(
                        site.instruction,
                        writer.instruction,
                        site.count,
                        _code_of(flow, data),
                        "fill",
                        value,
                        zero,
                    )
                break


def _filled(flow: Dataflow, writer: Slot, call: CallView) -> tuple[float, Slot] | None:
    """The number that a call puts in the place of some elements, and the operand that holds the others."""
    taken = steps(call) or ()
    if call.row.name == "affine_select":
        value = call.imm("on_false_value")
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value), Slot(writer.instruction, main_operand(call))
        return None
    if len(taken) == 1 and taken[0].op == "multiply" and taken[0].operand:
        for mask, data in ((taken[0].operand, main_operand(call)), (main_operand(call), taken[0].operand)):
            made = line_of(flow, Slot(writer.instruction, mask))
            mask_call = flow.call(made.instruction) if made is not None else None
            own = steps(mask_call) if mask_call is not None else None
            if own and own[-1].op in COMPARISONS:
                return 0.0, Slot(writer.instruction, data)
    return None


def _has_zero(flow: Dataflow, slot: Slot, zero: float) -> bool:
    """True where what an operand reads was quantised around a zero point."""
    found = _quantised_as(flow, slot)
    return found is not None and found.zero is not None and abs(found.zero - zero) <= EXACT * abs(zero)


def _code_of(flow: Dataflow, slot: Slot) -> str:
    found = _quantised_as(flow, slot)
    return found.dtype if found is not None else ""


def _quantised_as(flow: Dataflow, slot: Slot) -> Quantised | None:
    for hop in trail(flow, slot):
        writer = line_of(flow, hop.slot)
        call = flow.call(writer.instruction) if writer is not None else None
        if hop.taken or writer is None or call is None or not call.has("dst"):
            return None
        if call.dtype("dst") in QUANTISED:
            found = quantised_at(flow, writer.instruction)
            if found is not None:
                return found
    return None
