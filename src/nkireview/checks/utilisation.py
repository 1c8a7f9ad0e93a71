"""Utilisation: every compute instruction as one row: its engine, and how much of it the instruction fills."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.checks.counts import multiply_accumulates
from nkireview.hardware import Hardware
from nkireview.isa.enums import Engine
from nkireview.isa.row import Flow, Row
from nkireview.program.call import CallView
from nkireview.program.interning import Ints, by_opcode
from nkireview.program.scope import Scope, distinct_calls

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Work:
    """Compute instructions in program order.

    `engine` is the value of `Engine`; `partitions` and `free` (elements a partition) are those of the operand that
    the cost is counted by; `interval` is the documented initiation interval in ns; `times` how often device-side loops
    run it. On the PE array: `rows` and `columns` that are filled (0 for other engines), `products`
    multiply-accumulates, `fp32` where it takes the passes of float32, `moves` where it transposes. `elsewhere`:
    other engines that may run it, as a sum of 1 << value.
    """

    instruction: Ints
    place: Ints
    opcode: Ints
    engine: Ints
    partitions: Ints
    free: Ints
    interval: Floats
    rows: Ints
    columns: Ints
    products: Floats
    fp32: Flags
    moves: Flags
    elsewhere: Ints
    times: Floats

    def __len__(self) -> int:
        return len(self.instruction)

    def on(self, engine: Engine) -> Flags:
        """The rows that an engine runs."""
        found: Flags = self.engine == engine.value
        return found

    def filled(self, engine: Engine, lanes: int) -> float | None:
        """Share of an engine's lanes at work while it computes, weighted by interval; None where it does nothing."""
        mine = self.on(engine)
        weight = (self.interval * self.times)[mine]
        if not weight.sum():
            return None
        if engine is Engine.tensor:
            share = (self.rows * self.columns)[mine] / lanes**2
        else:
            share = np.minimum(self.partitions[mine] / lanes, 1)
        return float((share * weight).sum() / weight.sum())


@dataclass(frozen=True)
class _Fact:
    engine: int
    partitions: int
    free: int
    interval: float
    rows: int = 0
    columns: int = 0
    products: float = 0.0
    fp32: bool = False
    moves: bool = False
    elsewhere: int = 0


def work(scope: Scope, rows: Mapping[str, Row], times: Floats) -> Work:
    """The compute instructions of a Program. `times`: how often each instruction runs."""
    program = scope.program
    parts: list[tuple[Ints, Ints, Ints]] = []
    facts: list[_Fact] = []
    for code, numbers, accesses in by_opcode(program):
        row = rows.get(program.opcodes[code].name)
        if row is None or row.engines.default is Engine.dma or not row.cost.subject:
            continue
        calls = distinct_calls(scope, row, program.opcodes[code].operands, numbers, accesses)
        parts.append((numbers, np.full(len(numbers), code, np.int64), calls.classes.of + len(facts)))
        facts += [_fact(call, scope.hardware) for call in calls.calls]
    instruction, opcode, of = (
        np.concatenate(column) for column in zip(*(parts or [(_NONE, _NONE, _NONE)]), strict=True)
    )
    order = np.argsort(instruction, kind="stable")
    instruction, of = instruction[order], of[order]
    made: dict[str, Any] = {
        item.name: np.array([getattr(fact, item.name) for fact in facts], _KINDS[str(item.type)])[of]
        for item in fields(_Fact)
    }
    return Work(
        instruction=instruction,
        place=program.columns.place[instruction].astype(np.int64),
        opcode=opcode[order],
        times=times[instruction],
        **made,
    )


_NONE = np.zeros(0, np.int64)
_KINDS = {"int": np.int64, "float": np.float64, "bool": np.bool_}


def _fact(call: CallView, hardware: Hardware) -> _Fact:
    row, engine = call.row, call.resolved_engine()
    subject = row.cost.subject
    if not call.has(subject):
        return _Fact(engine.value, 0, 0, 0.0)
    clocks = hardware.clocks
    cycles = row.cost.interval(call)
    elsewhere = sum(
        1 << other.value
        for other, generations in row.engines.allowed.items()
        if hardware.generation in generations and other is not engine
    )
    fact = _Fact(
        engine.value,
        call.measure(subject, "partitions"),
        call.measure(subject, "free"),
        cycles / clocks.get(engine.name, clocks["gpsimd"]),
        elsewhere=elsewhere,
    )
    contracts = Flow.contract in row.flow.values()
    if engine is not Engine.tensor:
        return fact
    if not contracts:
        source = next(name for name in ("data", subject) if call.has(name))
        return replace(
            fact,
            rows=call.measure(source, "partitions"),
            columns=min(call.measure(source, "free"), hardware.partitions),
            moves=True,
        )
    if not (call.has("stationary") and call.has("moving")):
        return fact
    moves = bool(call.imm("is_transpose"))
    return replace(
        fact,
        rows=min(call.measure("stationary", "partitions"), hardware.partitions),
        columns=min(call.measure("stationary", "free"), hardware.partitions),
        products=0.0 if moves else float(multiply_accumulates(call)),
        fp32=call.dtype("moving") == "float32",
        moves=moves,
    )
