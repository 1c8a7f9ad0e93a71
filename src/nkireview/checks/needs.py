"""What the arithmetic of a Program is sensitive to, without data: where inputs must be chosen to put it to the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from nkireview.checks.dataflow import Dataflow, Site, Slot
from nkireview.checks.precision import FP8, inexact_integers, lossy_indices
from nkireview.checks.stability import CONSTANT_SCALED, cancelling_variances
from nkireview.checks.steps import (
    ACTIVATIONS,
    COPIES,
    Step,
    is_square,
    leaves,
    main_operand,
    steps,
    summed,
    written,
)
from nkireview.isa import dtypes
from nkireview.isa.enums import Engine
from nkireview.program.call import CallView

FORMS = frozenset(
    {"gelu", "gelu_dx", "gelu_apprx_sigmoid", "gelu_apprx_sigmoid_dx", "gelu_apprx_tanh", "erf", "erf_dx"}
    | {"tanh", "silu", "silu_dx", "sigmoid", "mish", "softplus"}
)
"""Activation functions whose forms and tables differ between about -5 and 5."""
EXPONENTIALS = frozenset({"exp"})
SEARCHES = frozenset({"max8", "nc_find_index8", "nc_match_replace8", "topk"})
PREDICATED = frozenset({"tensor_copy_predicated", "select_reduce"})
GATHERS = frozenset({"local_gather", "nc_n_gather"})
EXTREMES = frozenset({"maximum", "minimum"})
COMPARISONS = frozenset({"equal", "not_equal", "greater", "greater_equal", "less", "less_equal"})
ARITHMETIC = frozenset({"add", "subtract", "multiply"})
INTEGERS = frozenset({"int32", "uint32"})
_LINEAR = CONSTANT_SCALED | {"add", "subtract"}


@dataclass(frozen=True)
class Need:
    """Something that a Program is sensitive to.

    name: one of `NAMES`. instruction: the first that is so, of `count`; `place`: where it stands, empty where that is
    not known. why: a sentence. number: the epsilon of a root, 0 where none is added, or the first integer that an index
    tile does not hold; None where there is none to tell. inputs: the paths of parameters that are known to steer it.
    """

    name: str
    instruction: int
    count: int
    place: str
    why: str
    number: float | None = None
    inputs: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Found:
    instruction: int
    count: int
    why: str
    number: float | None = None
    inputs: tuple[str, ...] = ()


def needs(flow: Dataflow) -> tuple[Need, ...]:
    """One Need for each line and sort, in order of the program within each sort."""
    program, found = flow.program, []
    for name, find in _SORTS.items():
        by_line: dict[tuple[int, float | None], list[_Found]] = {}
        for item in find(flow):
            line = int(program.columns.place[item.instruction])
            by_line.setdefault((line, item.number), []).append(item)
        for (line, number), items in by_line.items():
            first = min(items, key=lambda item: item.instruction)
            inputs = tuple(dict.fromkeys(path for item in items for path in item.inputs))
            count = sum(item.count for item in items)
            place = program.place_text(line)
            found.append(Need(name, first.instruction, count, place, first.why, number, inputs))
    return tuple(found)


def _function(call: CallView) -> str:
    """The activation function that a call computes; empty for one that computes none."""
    if call.row.name in ACTIVATIONS or call.row.name == "activate2":
        return str(call.imm("op"))
    return "exp" if call.row.name == "exponential" else ""


def _exponentials(flow: Dataflow) -> Iterator[_Found]:
    for site in flow.sites():
        if _function(site.call) in EXPONENTIALS:
            why = f"{site.call.row.name} computes exp: large arguments overflow unless the maximum is taken off first"
            yield _Found(site.instruction, site.count, why, inputs=_parameters(flow, site))


def _parameters(flow: Dataflow, site: Site) -> tuple[str, ...]:
    """The parameters that reach the main operand through copies and numbers alone."""
    name = main_operand(site.call)
    found = leaves(flow, site.slot(name), frozenset(_LINEAR)) if name else None
    paths = (flow.parameter(slot) for slot, call, _ in found or () if call is None)
    return tuple(dict.fromkeys(path for path in paths if path))


def _roots(flow: Dataflow) -> Iterator[_Found]:
    """Roots of what is a sum, a variance or an input, with the epsilon that was added on the way."""
    for site in flow.sites():
        taken = steps(site.call) or ()
        at = next((n for n, step in enumerate(taken) if _root(step)), None)
        if at is None:
            continue
        origin = _origin(flow, site)
        if not origin:
            continue
        eps = _epsilon(flow, site, taken[:at])
        added = {None: "what is added before it is not known", 0.0: "nothing is added before it"}.get(
            eps, f"{eps:g} is added before it"
        )
        why = f"{site.call.row.name} takes the root of {origin}: {added}"
        yield _Found(site.instruction, site.count, why, eps, _parameters(flow, site))


def _root(step: Step) -> bool:
    return step.op in ("sqrt", "rsqrt") or (step.op == "power" and step.number in (0.5, -0.5))


def _origin(flow: Dataflow, site: Site) -> str:
    """What a root is taken of; empty where it is no sum, no variance and no input."""
    found = leaves(flow, site.slot(main_operand(site.call)), frozenset(_LINEAR | {"add tile"}))
    names = {_is(flow, slot, call) for slot, call, _ in found or ()}
    return sorted(names)[0] if names and "" not in names else ""


def _is(flow: Dataflow, slot: Slot, call: CallView | None) -> str:
    if call is None:
        return "an input" if flow.parameter(slot) else ""
    if call.row.name in ("bn_aggr", "bn_stats"):
        return "a variance"
    if call.row.name == "nc_matmul":
        return "a sum over partitions"
    if not summed(call) or slot.operand != summed(call):
        return ""
    if slot.operand == "reduce_res":
        return "a sum of squares" if call.imm("op") == "square" else "a sum"
    writers = written(flow, Slot(slot.instruction, "data")) or ()
    squares = bool(writers) and all(is_square(flow, writer, made) is not None for writer, made in writers)
    return "a sum of squares" if squares else "a sum"


def _epsilon(flow: Dataflow, site: Site, before: tuple[Step, ...]) -> float | None:
    """What is added between the sum and the root, in units of the root's argument; None where it is not known.

    A factor that follows an addition is not applied to it: of an epsilon only the order of magnitude counts.
    """
    taken, here = before, site.slot(main_operand(site.call))
    owner: CallView = site.call
    for _ in range(8):
        for step in reversed(taken):
            if step.op == "add":
                return _value(flow, Slot(here.instruction, step.operand)) if step.operand else step.number
        writers = written(flow, here)
        if not writers:
            return 0.0 if writers is not None and flow.parameter(here) else None
        if len(writers) > 1:
            return None
        writer, owner = writers[0]
        if writer.operand != "dst" or summed(owner) == "dst" or steps(owner) is None:
            return 0.0
        taken = steps(owner) or ()
        here = Slot(writer.instruction, main_operand(owner))
    return None


def _value(flow: Dataflow, slot: Slot) -> float | None:
    """The number that a tile was filled with; None where it was not."""
    writers = written(flow, slot)
    values = {call.imm("value") if call.row.name == "memset" else None for _, call in writers or ()}
    value = values.pop() if len(values) == 1 else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _variances(flow: Dataflow) -> Iterator[_Found]:
    """Means that are taken off, and variances."""
    for site in flow.sites(("bn_stats",)):
        why = "bn_stats takes mean and variance: a mean far above the deviation cancels"
        yield _Found(site.instruction, site.count, why, inputs=_parameters(flow, site))
    for spot in cancelling_variances(flow):
        why = "the variance is the mean of squares less the square of the mean: both cancel where the mean is large"
        yield _Found(spot.instruction, spot.count, why)
    for site in flow.sites(("tensor_scalar", "tensor_tensor", "scalar_tensor_tensor", *sorted(ACTIVATIONS))):
        for step in steps(site.call) or ():
            if (
                step.op in ("subtract", "add")
                and step.operand
                and _is_mean(flow, site.slot(step.operand), step.op)
            ):
                why = f"{site.call.row.name} takes off a mean: of a large one little is left"
                yield _Found(site.instruction, site.count, why, inputs=_parameters(flow, site))
                break


def _is_mean(flow: Dataflow, slot: Slot, op: str) -> bool:
    """True for a sum of values scaled by numbers; where it is added, one of them is negative."""
    found = leaves(flow, slot, frozenset(CONSTANT_SCALED))
    if not found or any(call is None for _, call, _ in found):
        return False
    if not all(
        call is not None and _is(flow, leaf, call) in ("a sum", "a variance") for leaf, call, _ in found
    ):
        return False
    if any(call is not None and call.imm("op") in EXPONENTIALS for _, call, _ in found):
        return False
    return op == "subtract" or _turned(flow, slot)


def _turned(flow: Dataflow, slot: Slot) -> bool:
    """True where the last instruction that made a tile multiplied it by a negative number."""
    writers = written(flow, slot) or ()
    numbers = [step.number for _, call in writers for step in steps(call) or () if step.op == "multiply"]
    return any(number is not None and number < 0 for number in numbers)


def _masks(flow: Dataflow) -> Iterator[_Found]:
    for site in flow.sites(("affine_select", "range_select")):
        why = f"{site.call.row.name} leaves out elements: a row may lose all of its"
        yield _Found(site.instruction, site.count, why)
    for site in flow.sites(sorted(PREDICATED)):
        why = f"{site.call.row.name} chooses by a mask: a row may have none that is chosen"
        paths = _reaching(flow, site.slot("predicate"))
        yield _Found(site.instruction, site.count, why, inputs=paths)
    for site in flow.sites(("tensor_scalar", "tensor_tensor", "scalar_tensor_tensor")):
        taken = steps(site.call) or ()
        if any(step.op in COMPARISONS for step in taken) and _counted(flow, site, taken):
            why = f"{site.call.row.name} compares positions: a row may have none that counts"
            yield _Found(site.instruction, site.count, why)


def _reaching(flow: Dataflow, slot: Slot) -> tuple[str, ...]:
    found = leaves(flow, slot, frozenset(_LINEAR | COMPARISONS))
    paths = (flow.parameter(leaf) for leaf, call, _ in found or () if call is None)
    return tuple(dict.fromkeys(path for path in paths if path))


def _counted(flow: Dataflow, site: Site, taken: tuple[Step, ...]) -> bool:
    """True where one side of a comparison comes from iota."""
    sides = [main_operand(site.call), *(step.operand for step in taken if step.operand)]
    for side in sides:
        found = leaves(flow, site.slot(side), frozenset(_LINEAR)) or ()
        if any(call is not None and call.row.name == "iota" for _, call, _ in found):
            return True
    return False


def _activations(flow: Dataflow) -> Iterator[_Found]:
    for site in flow.sites():
        name = _function(site.call)
        if name in FORMS:
            why = f"{site.call.row.name} computes {name}: forms and tables differ between -5 and 5"
            yield _Found(site.instruction, site.count, why, inputs=_parameters(flow, site))


def _maxima(flow: Dataflow) -> Iterator[_Found]:
    for site in flow.sites(("tensor_reduce", "tensor_partition_reduce", "tensor_tensor_scan")):
        ops = {site.call.imm(name) for name in ("op", "op0", "op1")}
        if ops & EXTREMES:
            why = (
                f"{site.call.row.name} takes a {sorted(ops & EXTREMES)[0]}: rows without a number above zero"
            )
            yield _Found(site.instruction, site.count, why, inputs=_parameters(flow, site))


def _searches(flow: Dataflow) -> Iterator[_Found]:
    for site in flow.sites(sorted(SEARCHES)):
        name = "data" if site.call.has("data") else "src"
        why = f"{site.call.row.name} looks for the largest: equal values have several positions"
        yield _Found(site.instruction, site.count, why, inputs=_reaching(flow, site.slot(name)))
    for site in flow.sites(("tensor_scalar", "tensor_tensor", "scalar_tensor_tensor")):
        for step in steps(site.call) or ():
            if step.op == "equal" and step.operand and _is_extreme(flow, site.slot(step.operand)):
                why = f"{site.call.row.name} compares with the largest: several elements may be equal to it"
                yield _Found(site.instruction, site.count, why, inputs=_parameters(flow, site))
                break


def _is_extreme(flow: Dataflow, slot: Slot) -> bool:
    found = leaves(flow, slot, frozenset())
    return bool(found) and all(
        call is not None and call.row.name == "tensor_reduce" and call.imm("op") in EXTREMES
        for _, call, _ in found or ()
    )


def _indices(flow: Dataflow) -> Iterator[_Found]:
    """Addresses that are made on the device, and gathers."""
    columns = flow.program.columns
    for site in flow.sites():
        begin, end = columns.operand_at[site.instruction], columns.operand_at[site.instruction + 1]
        steered = any(int(access) in flow.held.indices for access in columns.operand[begin:end])
        if steered or site.call.row.name in GATHERS:
            why = f"{site.call.row.name} takes its addresses from data: the largest must be legal"
            yield _Found(site.instruction, site.count, why)


def _low_indices(flow: Dataflow) -> Iterator[_Found]:
    for lossy in lossy_indices(flow):
        why = f"{lossy.dtype} does not hold the index {lossy.first}, which becomes {lossy.becomes:g}"
        yield _Found(lossy.instruction, lossy.count, why, float(lossy.first))
    for site in flow.sites(("iota", "nc_find_index8")):
        dtype = dtypes.BY_NAME[site.call.dtype("dst")]
        if dtype.kind == "float" and dtype.bits < 32:
            first = 2**dtype.significand_bits + 1
            why = f"{site.call.row.name} writes positions as {dtype.name}, which does not hold {first}"
            yield _Found(site.instruction, site.count, why, float(first))


def _integer_arithmetic(flow: Dataflow) -> Iterator[_Found]:
    """Arithmetic in float32 on 32-bit integers of an input."""
    for spot in inexact_integers(flow):
        why = f"{spot.name} of integers is computed in float32, which does not hold {spot.number:g}"
        yield _Found(spot.instruction, spot.count, why, spot.number)
    for site in flow.sites(("tensor_scalar", "tensor_tensor", "scalar_tensor_tensor", *sorted(ACTIVATIONS))):
        name = main_operand(site.call)
        taken = steps(site.call) or ()
        if not name or site.call.dtype(name) not in INTEGERS or site.call.resolved_engine() is Engine.gpsimd:
            continue
        paths = _parameters(flow, site)
        if paths and any(step.op in ARITHMETIC for step in taken):
            why = f"{site.call.row.name} computes on {site.call.dtype(name)} in float32, which holds 24 bits"
            yield _Found(site.instruction, site.count, why, inputs=paths)


def _divisions(flow: Dataflow) -> Iterator[_Found]:
    """Divisors that may be small: all but sums of exponentials."""
    for site in flow.sites():
        if site.call.row.name in COPIES:
            continue
        for step in steps(site.call) or ():
            side = _divisor(site.call, step)
            if side and not _is_sum_of_exponentials(flow, site.slot(side)):
                why = f"{site.call.row.name} divides by a tile: it may hold zero or tiny numbers"
                yield _Found(site.instruction, site.count, why)
                break


def _divisor(call: CallView, step: Step) -> str:
    main = main_operand(call)
    if step.op == "reciprocal" or (step.op == "power" and step.number is not None and step.number <= -1):
        return main
    if step.op != "divide":
        return ""
    return main if step.reverse else step.operand


def _is_sum_of_exponentials(flow: Dataflow, slot: Slot) -> bool:
    found = leaves(flow, slot, frozenset({"add tile", "multiply tile"}))
    return bool(found) and all(
        call is not None and _sums_exponentials(flow, leaf, call) for leaf, call, _ in found or ()
    )


def _sums_exponentials(flow: Dataflow, slot: Slot, call: CallView) -> bool:
    if call.row.name == "memset":
        return True
    if slot.operand == "reduce_res":
        return _function(call) in EXPONENTIALS
    if call.row.name in ("tensor_reduce", "nc_matmul"):
        source = "data" if call.row.name == "tensor_reduce" else "moving"
        made = leaves(flow, Slot(slot.instruction, source), frozenset({"multiply tile"}))
        return bool(made) and all(
            each is not None and _function(each) in EXPONENTIALS for _, each, _ in made or ()
        )
    return False


def _results(names: frozenset[str]) -> Callable[[Dataflow], Iterator[_Found]]:
    """Outputs of some dtypes, at the instruction that writes the first of each."""

    def find(flow: Dataflow) -> Iterator[_Found]:
        columns = flow.program.columns
        for output in flow.program.outputs:
            dtype = flow.program.access(output.access).dtype
            if dtype not in names:
                continue
            place = int(flow.held.of_buffer[columns.access_buffer[output.access]])
            for site in flow.sites():
                slots = (site.slot(name) for name in site.call.tiles)
                if any(flow.operand_writes(slot) and flow.place(slot) == place for slot in slots):
                    most = dtypes.BY_NAME[dtype].max_finite
                    why = f"the output {output.name} is {dtype}, whose largest number is {most:g}"
                    yield _Found(site.instruction, site.count, why, most)
                    break

    return find


_SORTS: Mapping[str, Callable[[Dataflow], Iterator[_Found]]] = MappingProxyType(
    {
        "exp": _exponentials,
        "root": _roots,
        "variance": _variances,
        "mask": _masks,
        "activation": _activations,
        "maximum": _maxima,
        "search": _searches,
        "index": _indices,
        "low-precision index": _low_indices,
        "integer arithmetic": _integer_arithmetic,
        "division": _divisions,
        "float16 result": _results(frozenset({"float16"})),
        "fp8 result": _results(FP8),
    }
)
NAMES = frozenset(_SORTS)
"""The sorts of needs."""
