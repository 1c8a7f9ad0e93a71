"""Routes: the ways of values from each input to each output, station by station, and what is lost on them.

A route says where values change dtype, how long and in which dtype they are summed, where they are rounded twice,
what range applies where they become fp8 and whether something keeps them inside, how they are quantised and scaled
back. It is read from the Program alone; whether that is too much is for an execution to say (`nkireview.audit`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from nkireview.checks.dataflow import Dataflow
from nkireview.checks.precision import BOUNDED, NATIVE_FN, largest, running_sums
from nkireview.checks.routes_graph import Graph, Station, graph
from nkireview.checks.routes_scales import CODES, FP8, dequantised, quantised_at
from nkireview.checks.steps import COPIES, MATMUL, Step, steps
from nkireview.checks.stored import narrow
from nkireview.isa import dtypes, mx

MOST = 16
"""Routes of one output and one input that are told."""
LOOKED_AT = 4096
"""Stations that are looked at for the routes of one output and one input."""
STOCHASTIC = "NEURON_RT_STOCHASTIC_ROUNDING_EN"
"""The environment variable that makes engines round fp32 stochastically; no argument of nki.isa does."""
_BY_SR = frozenset({"float16", "bfloat16", "tfloat32", *FP8})
_NEITHER = "neither scaled nor bounded before"
_MX = "nc_matmul_mx"
_QUANTIZE_MX = "quantize_mx"


@dataclass(frozen=True)
class Leg:
    """A station, and how it takes what came before: by which operand, read as which dtype."""

    station: Station
    through: str
    read: str


@dataclass(frozen=True)
class Remark:
    """Something that happens to a value at a leg of its route, in one clause.

    `kind`: see `KINDS`. `number`: terms of a sum, the largest number of a dtype, else 0.
    """

    kind: str
    leg: int
    text: str
    number: float = 0.0

    KINDS = (
        "cast",
        "accumulation",
        "running sum",
        "rounded twice",
        "widened again",
        "fp8",
        "late clamp",
        "quantised",
        "dequantised",
        "integer",
        "bits",
        "mx scales",
    )

    def __post_init__(self) -> None:
        if self.kind not in self.KINDS:
            raise ValueError(f"remark kind {self.kind!r} is not one of {', '.join(self.KINDS)}")


@dataclass(frozen=True)
class Route:
    """One way from an input (the path of a parameter) to an output (its name): legs, the input first.

    `cut`: there are more ways between the two than are told.
    """

    output: str
    input: str
    legs: tuple[Leg, ...]
    remarks: tuple[Remark, ...]
    cut: bool = False

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The dtypes on the way, each named once where it changes."""
        found: list[str] = []
        for leg in self.legs:
            if not found or found[-1] != leg.station.dtype:
                found.append(leg.station.dtype)
        return tuple(found)

    @property
    def narrowest(self) -> str:
        """The float dtype of fewest digits on the way; empty where there is none."""
        floats = [name for name in self.dtypes if dtypes.BY_NAME[name].kind == "float"]
        return min(floats, key=lambda name: dtypes.BY_NAME[name].significand_bits, default="")


def routes(flow: Dataflow) -> tuple[Route, ...]:
    """The distinct routes of a Program by output and input, the shortest first; at most `MOST` of each pair.

    Raise ProgramError where the header names an unknown target or release.
    """
    made = graph(flow)
    said = _Said(flow, made)
    inputs = [number for number, station in enumerate(made.stations) if station.instruction < 0]
    readers = _readers(made)
    found = []
    for name, ends in made.outputs:
        before = _reach(ends, made.feeds)
        for source in inputs:
            if source not in before:
                continue
            near = before & _reach((source,), readers)
            ways, cut = _ways(made, source, ends, near)
            for way in ways:
                legs = tuple(_legs(made, way))
                found.append(Route(name, made.stations[source].operand, legs, said.of(way, legs), cut))
    return tuple(found)


def _readers(made: Graph) -> tuple[Mapping[int, None], ...]:
    found: list[dict[int, None]] = [{} for _ in made.stations]
    for number, feeds in enumerate(made.feeds):
        for source in feeds:
            found[source][number] = None
    return tuple(found)


def _reach(start: Collection[int], edges: tuple[Mapping[int, object], ...]) -> frozenset[int]:
    """The stations from which, or to which, edges lead, the first ones included."""
    seen, left = set(start), list(start)
    while left:
        for other in edges[left.pop()]:
            if other not in seen:
                seen.add(other)
                left.append(other)
    return frozenset(seen)


def _ways(
    made: Graph, source: int, ends: Collection[int], near: frozenset[int]
) -> tuple[list[tuple[int, ...]], bool]:
    """The shortest ways from a source to an end that visit no station twice, and whether there are more."""
    found: list[tuple[int, ...]] = []
    left: deque[tuple[int, ...]] = deque((end,) for end in sorted(ends) if end in near)
    looked_at = 0
    while left:
        way = left.popleft()
        looked_at += 1
        if way[0] == source:
            if len(found) == MOST:
                return found, True
            found.append(way)
            continue
        if looked_at > LOOKED_AT:
            return found or [_straight(made, source, ends, near)], True
        for before in made.feeds[way[0]]:
            if before in near and before not in way:
                left.append((before, *way))
    return found, False


def _straight(made: Graph, source: int, ends: Collection[int], near: frozenset[int]) -> tuple[int, ...]:
    """One shortest way."""
    after: dict[int, int] = {end: -1 for end in sorted(ends) if end in near}
    left = deque(after)
    while left:
        here = left.popleft()
        for before in made.feeds[here]:
            if before in near and before not in after:
                after[before] = here
                left.append(before)
    way = [source]
    while after[way[-1]] >= 0:
        way.append(after[way[-1]])
    return tuple(way)


def _legs(made: Graph, way: tuple[int, ...]) -> Iterator[Leg]:
    for at, number in enumerate(way):
        through, read = made.feeds[number][way[at - 1]] if at else ("", "")
        yield Leg(made.stations[number], through, read)


class _Said:
    """The remarks of stations, worked out once."""

    def __init__(self, flow: Dataflow, made: Graph) -> None:
        self._flow, self._made = flow, made
        self._generation = flow.scope.hardware.generation
        columns = flow.program.columns
        self._sums = {
            (int(columns.place[item.instruction]), int(columns.opcode[item.instruction])): item.terms
            for item in running_sums(flow)
        }
        self._back = {item.instruction: item for item in dequantised(flow)}
        self._kept: dict[int, tuple[Remark, ...]] = {}

    def of(self, way: tuple[int, ...], legs: tuple[Leg, ...]) -> tuple[Remark, ...]:
        """The remarks of a route, in order."""
        found: list[Remark] = []
        for at, leg in enumerate(legs):
            if not at:
                continue
            found.extend(self._between(legs, at))
            if way[at] not in self._kept:
                self._kept[way[at]] = tuple(self._station(leg.station))
            found.extend(Remark(each.kind, at, each.text, each.number) for each in self._kept[way[at]])
        return tuple(found)

    def _between(self, legs: tuple[Leg, ...], at: int) -> Iterator[Remark]:
        leg = legs[at]
        source, target = dtypes.BY_NAME[leg.read], dtypes.BY_NAME[leg.station.dtype]
        if source is not target and "bool" not in (source.kind, target.kind):
            yield Remark("cast", at, _cast(leg.read, leg.station.dtype))
        if at > 1 and leg.station.opcode in COPIES and target.kind == "float":
            wide, middle = dtypes.BY_NAME[legs[at - 1].read], dtypes.BY_NAME[legs[at - 1].station.dtype]
            if _digits(wide.name) > _digits(middle.name) > _digits(target.name):
                text = f"rounded from {wide.name} to {middle.name} and again to {target.name}"
                yield Remark("rounded twice", at, text)
            elif _digits(wide.name) > _digits(middle.name) < _digits(target.name):
                text = f"rounded from {wide.name} to {middle.name} and kept as {target.name} afterwards"
                yield Remark("widened again", at, text)
        if leg.station.dtype in FP8 and leg.read not in FP8 and source.kind == "float":
            most = largest(leg.station.dtype, self._generation)
            text = f"{leg.station.dtype} ends at {most:g}{self._as_e4m3(leg.station.dtype)}: "
            yield Remark("fp8", at, text + self._guard(legs, at, most), most)
        elif leg.read in FP8:
            bound = self._bound(leg.station)
            most = largest(leg.read, self._generation)
            late = bound is not None and 0.5 * most <= bound <= 2 * most
            if bound is not None and late and self._raw(legs, at, most):
                text = f"bounded at {bound:g} only after the conversion to {leg.read}"
                yield Remark("late clamp", at, text, bound)

    def _station(self, station: Station) -> Iterator[Remark]:
        """What is so at a station however it is reached; the leg is filled in later."""
        columns = self._flow.program.columns
        index = station.instruction
        key = int(columns.place[index]), int(columns.opcode[index])
        if station.terms:
            text = f"sums of {station.terms} terms in {station.dtype} {station.memory.upper()}"
            if narrow(station.dtype):
                text += f", rounded to {_digits(station.dtype)} digits at each matmul"
            yield Remark("accumulation", 0, text, station.terms)
        if key in self._sums and narrow(station.dtype):
            terms = self._sums[key]
            yield Remark(
                "running sum", 0, f"a running sum of {terms} terms, rounded to {station.dtype} at each", terms
            )
        yield from self._quantised(station)
        if station.opcode == _QUANTIZE_MX:
            text = f"a power-of-two scale for each {mx.ROWS} partitions x {mx.PACK} elements of the free axis"
            yield Remark("mx scales", 0, text)
        if station.opcode == _MX:
            text = f"scales of {mx.ROWS} partitions x {mx.PACK} elements, both along the contraction, are multiplied in"
            yield Remark("mx scales", 0, text)

    def _quantised(self, station: Station) -> Iterator[Remark]:
        call = self._flow.call(station.instruction)
        taken = steps(call) if call is not None else None
        kind = dtypes.BY_NAME[station.dtype].kind
        found = quantised_at(self._flow, station.instruction) if station.operand == "dst" else None
        if found is not None and (station.dtype in CODES or station.dtype in FP8):
            zero = ", an unknown zero point" if found.zero is None else f", zero point {found.zero:g}"
            point = "" if found.zero == 0 or station.dtype in FP8 else zero
            yield Remark("quantised", 0, f"quantised to {station.dtype}, {found.granularity}{point}")
        if station.instruction in self._back:
            back = self._back[station.instruction]
            one, other = back.scale, back.quantised.scale
            word = "a scale that cannot be followed"
            if one is not None and other is not None:
                word = (
                    "the scale of its quantisation"
                    if one.root == other.root
                    else "a scale of another maximum"
                )
            yield Remark("dequantised", 0, f"multiplied back by {word}")
        if kind in ("int", "uint") and taken is not None and call is not None and call.has("dst"):
            bitwise = [
                step.op for step in taken if step.op.startswith(("bitwise", "left_", "right_", "invert"))
            ]
            if bitwise:
                yield Remark("bits", 0, f"{bitwise[0]} keeps bits as they are: what does not fit wraps")
            elif station.operand == "dst" and any(
                dtypes.BY_NAME[call.dtype(o.name)].kind == "float"
                for o in call.row.operands
                if call.has(o.name) and not o.role.writes
            ):
                yield Remark("integer", 0, f"rounded to {station.dtype}, which saturates")

    def _as_e4m3(self, name: str) -> str:
        native = name != "float8_e4m3fn" or self._generation == NATIVE_FN
        return "" if native else " (as float8_e4m3, which this target has)"

    def _bound(self, station: Station) -> float | None:
        """The least magnitude at which a station bounds what it reads."""
        numbers = [
            abs(step.number)
            for step in self._steps(station)
            if step.op in ("minimum", "maximum") and step.number
        ]
        return min(numbers, default=None)

    def _raw(self, legs: tuple[Leg, ...], at: int, most: float) -> bool:
        """True where what a leg reads became fp8 without anything that keeps it inside."""
        made = [i for i in range(1, at) if legs[i].station.dtype in FP8 and legs[i].read not in FP8]
        return bool(made) and self._guard(legs, made[-1], most) == _NEITHER

    def _steps(self, station: Station) -> tuple[Step, ...]:
        call = self._flow.call(station.instruction) if station.instruction >= 0 else None
        return (steps(call) if call is not None else None) or ()

    def _guard(self, legs: tuple[Leg, ...], at: int, most: float) -> str:
        """What on the way to an fp8 tile keeps values inside its range, in words."""
        for leg in reversed(legs[1 : at + 1]):
            for step in reversed(self._steps(leg.station)):
                if step.op in ("minimum", "maximum") and step.number:
                    bound = abs(step.number)
                    return f"bounded at {bound:g} before" + (", beyond its range" if bound > most else "")
                if step.op in BOUNDED:
                    return f"bounded by {step.op} before"
                if step.op in ("multiply", "divide"):
                    return "scaled before" if step.number is None else f"scaled before by {step.number:g}"
            if leg.station.opcode in (MATMUL, _MX):
                break
        return _NEITHER


def _digits(name: str) -> int:
    kind = dtypes.BY_NAME[name]
    return kind.significand_bits if kind.kind == "float" else 0


def _cast(source: str, target: str) -> str:
    text = f"{source} -> {target}"
    if source == "float32" and target in _BY_SR:
        return f"{text}, to nearest even unless {STOCHASTIC} is set"
    return text
