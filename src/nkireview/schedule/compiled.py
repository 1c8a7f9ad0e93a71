"""Compiled: what a compiler that is free to reorder, merge and spill would make of a program."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from nkireview.isa import dtypes
from nkireview.isa.enums import Engine
from nkireview.isa.table import ROWS
from nkireview.program.interning import Ints, by_opcode
from nkireview.program.scope import Scope, distinct_calls
from nkireview.schedule.costs import SCALAR, VECTOR, Costs, Prices
from nkireview.schedule.dependences import Dependences
from nkireview.schedule.fusing import fusions
from nkireview.schedule.listing import Choice, Pace, listing
from nkireview.schedule.orders import needed
from nkireview.schedule.parameters import Figures, Parameters
from nkireview.schedule.residence import Fetch, Residence, residence
from nkireview.schedule.reuse import Places
from nkireview.schedule.schedule import Changes, Plan
from nkireview.schedule.touches import cores_of
from nkireview.schedule.uses import Uses, uses


class Change(str, Enum):
    """What the compiler changes most of a program's traffic by."""

    none = "as written"
    merges = "loads merged"
    fetches = "tiles loaded again"
    spills = "tiles spilled"


MATTERS = "change_share"
"""The parameter that says from which share of the loaded bytes on a change gives a program its class."""


@dataclass(frozen=True, eq=False)
class Compiled:
    """A plan as the compiler would run it. `free`: it had to choose, so what is written is not what runs.

    `saved` and `extra` are bytes of loads from HBM that the compiler leaves out and adds, `spilled` those that it
    stores and loads of its own; `constants` it loads for transposes on the Tensor engine.
    """

    plan: Plan
    free: bool
    change: Change
    saved: float
    extra: float
    spilled: tuple[float, float]
    constants: int


def compiled(plan: Plan, parameters: Parameters) -> Compiled:
    """What the legacy compiler makes of a plan; one with device-side loops or several streams stays as it is."""
    program = plan.program
    if program.loops or len(cores_of(program)) != 1:
        return Compiled(plan, False, Change.none, 0.0, 0.0, (0.0, 0.0), 0)
    scope = Scope.of(program, ROWS)
    figures = Figures(scope.hardware)
    used = uses(program, plan.storage)
    needs = needed(program, plan.storage)
    order = wanted(plan.costs, needs)
    kept = residence(scope, plan.storage, used, scope.hardware, order, float(parameters.value("spare")))
    found = _classed(plan, kept, _constants(scope), float(parameters.value(MATTERS)))
    return replace(found, plan=_listed(plan, scope, figures, parameters, used, needs, order, kept))


def _classed(plan: Plan, kept: Residence, constants: int, matters: float) -> Compiled:
    """What was changed, in bytes."""
    moved = np.where(plan.costs.is_dma & ~plan.costs.stores, plan.costs.hbm_bytes, 0)
    saved = float(moved[kept.dropped].sum())
    extra = float(sum(moved[fetch.load] for fetch in kept.fetches if fetch.load >= 0))
    out = float(sum(fetch.bytes for fetch in kept.fetches if fetch.saves))
    back = float(sum(fetch.bytes for fetch in kept.fetches if fetch.load < 0 and not fetch.saves))
    sizes = {Change.merges: saved, Change.fetches: extra, Change.spills: out + back}
    change = max(sizes, key=lambda each: sizes[each])
    if sizes[change] < matters * float(moved.sum()) or not sizes[change]:
        change = Change.none
    return Compiled(plan, kept.repeats or bool(kept.fetches), change, saved, extra, (out, back), constants)


def _constants(scope: Scope) -> int:
    """Bytes of the identity matrices by which the Tensor engine transposes, one for each dtype."""
    program = scope.program
    found = set()
    for code, rows, accesses in by_opcode(program):
        opcode = program.opcodes[code]
        if opcode.name == "nc_transpose":
            calls = distinct_calls(scope, ROWS[opcode.name], opcode.operands, rows, accesses)
            found |= {call.dtype("data") for call in calls.calls if call.resolved_engine() is Engine.tensor}
    side = scope.hardware.integer("tensor.rows") * scope.hardware.integer("tensor.columns")
    return sum(dtypes.BY_NAME[name].bits * side // 8 for name in found)


def _listed(
    plan: Plan,
    scope: Scope,
    figures: Figures,
    parameters: Parameters,
    used: Uses,
    needs: Dependences,
    order: Ints,
    kept: Residence,
) -> Plan:
    """The plan in the order of `listing`, with what is dropped, fetched and fused."""
    program = plan.program
    places = Places.of(program, plan.storage)
    fused = fusions(
        scope,
        plan.costs,
        used,
        places,
        needs,
        int(parameters.value("narrow")),
        int(parameters.value("turns")),
        int(figures.number("psum.bank_bytes")),
    )
    source = np.where(fused.elided & ~kept.dropped, fused.source, kept.source)
    dropped = kept.dropped | fused.elided
    dropped[list(plan.changes.dropped)] = True
    kept = replace(kept, dropped=dropped, source=_that_runs(source, dropped))
    access = _access_ns(plan.costs, figures)
    choice = choices(scope, plan.costs, parameters)
    costs = _shorter(plan.costs, access * fused.follows)
    choice = replace(choice, held=np.maximum(choice.held - access * fused.follows, LEAST_NS))
    found = listing(
        costs,
        needs,
        places,
        used,
        kept,
        scope.hardware,
        choice,
        Pace(plan.start_ns, plan.dma_engines),
        int(parameters.value("window")),
        fused,
        order,
    )
    costs = replace(
        costs,
        lane=np.where(found.moved, choice.queue, costs.lane).astype(np.int8),
        held=np.where(found.moved, choice.held, costs.held),
    )
    fetches: dict[int, list[Fetch]] = {}
    for fetch in kept.fetches:
        fetches.setdefault(fetch.before, []).append(fetch)
    return replace(
        plan,
        crowded=(),
        costs=_shorter(costs, access * found.follows),
        arrivals=found.arrivals,
        changes=Changes(
            order=found.order,
            dropped=frozenset(np.flatnonzero(kept.dropped).tolist()),
            stands_in=_stand_ins(needs, kept),
            fetches=fetches,
        ),
    )


def _that_runs(source: Ints, dropped: NDArray[np.bool_]) -> Ints:
    """Sources, where one that is itself dropped is followed to its own; each lies earlier, so this ends."""
    found: Ints = source.copy()
    while (again := (found >= 0) & dropped[found]).any():
        found[again] = source[found[again]]
    return found


LEAST_NS = 1.0
"""What an instruction holds its queue at least."""


def _access_ns(costs: Costs, figures: Figures) -> NDArray[np.float64]:
    """The time of one tensor access on the engine of each instruction, which those that run as one pay once."""
    found = np.zeros(len(costs.lane))
    for lane, name in ((VECTOR, "vector"), (SCALAR, "scalar")):
        cycles, clock = figures.number(f"{name}.overhead_cycles"), figures.number(f"{name}.clock_ghz")
        found[costs.lane == lane] = cycles / clock
    return found


def _shorter(costs: Costs, by: NDArray[np.float64]) -> Costs:
    return replace(costs, held=np.where(by > 0, np.maximum(costs.held - by, LEAST_NS), costs.held))


def wanted(priced: Costs, needs: Dependences) -> Ints:
    """The order in which what waits for nothing comes just before it is needed, and stores right after their data."""
    count = len(priced.lane)
    key = np.arange(count, dtype=np.float64)
    consumer = np.repeat(np.arange(count), np.diff(needs.at))
    first = np.full(count, count, np.int64)
    np.minimum.at(first, needs.producer, consumer)
    free = (np.diff(needs.at) == 0) & (first < count)
    key[free] = first[free] - 0.5
    stores = priced.is_dma & priced.stores
    into = stores[consumer]
    last = np.full(count, -1.0)
    np.maximum.at(last, consumer[into], key[needs.producer[into]])
    moved = stores & (last >= 0)
    key[moved] = last[moved] + 0.25
    order: Ints = np.argsort(key, kind="stable")
    return order


def choices(scope: Scope, priced: Costs, parameters: Parameters) -> Choice:
    """Which instructions another engine could run: simple ones whose kernel names no engine."""
    program = scope.program
    queue, held = np.full(len(program), -1, np.int8), np.zeros(len(program))
    movable = frozenset(parameters.value("movable"))
    operators = frozenset(parameters.value("movable_operators"))
    price = Prices(Figures(scope.hardware), parameters, static=True)
    for code, rows, accesses in by_opcode(program):
        opcode = program.opcodes[code]
        if opcode.name not in movable:
            continue
        calls = distinct_calls(scope, ROWS[opcode.name], opcode.operands, rows, accesses)
        for kind, call in enumerate(calls.calls):
            asked = [call.imm(name) for name in ("op0", "op1", "op") if call.imm(name) is not None]
            if call.engine.name != "unknown" or any(str(op) not in operators for op in asked):
                continue
            mine = rows[calls.classes.of == kind]
            now = int(priced.lane[mine[0]])
            if now not in (VECTOR, SCALAR):
                continue
            other = SCALAR if now == VECTOR else VECTOR
            queue[mine] = other
            held[mine] = price.on(call, other).held
    return Choice(queue, held)


def _stand_ins(needs: Dependences, kept: Residence) -> dict[int, tuple[int, ...]]:
    """For each instruction that waits for a dropped one, what stands in for that."""
    if not kept.dropped.any():
        return {}
    consumer = np.repeat(np.arange(len(kept.dropped)), np.diff(needs.at))
    edge = kept.dropped[needs.producer] & ~kept.dropped[consumer] & (kept.source[needs.producer] >= 0)
    found: dict[int, list[int]] = {}
    for late, early in zip(consumer[edge].tolist(), kept.source[needs.producer[edge]].tolist(), strict=True):
        found.setdefault(late, []).append(early)
    return {late: tuple(dict.fromkeys(early)) for late, early in found.items()}
