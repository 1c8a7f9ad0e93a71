"""One call against its row: operands, immediates, engine, generation, release and limits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from nkireview.isa import dtypes
from nkireview.isa.enums import DgeMode, Engine, Memory
from nkireview.isa.limit import Limit
from nkireview.isa.release import LEGACY, Release, Span
from nkireview.isa.row import REQUIRED, Operand, Param, Row
from nkireview.program.call import CallView

_ENGINES = "nki/api/nki/isa/__init__.py:26-50"
_VECTOR_INDEX = "nki/deep-dives/nki-aps.rst:377"
_ARGUMENTS = "release-notes/components/nki.rst:639-643"

# Breaches of these leave operands whose sizes do not fit each other: nothing can be computed then.
_SIZES = frozenset(
    {
        *(
            (4, "partitions"),
            (8, "free"),
            (8, "partitions"),
            (8, "elements"),
            (17, "free"),
            (17, "partitions"),
        ),
        *((37, "free"), (37, "partitions"), (64, "trailing"), (66, "dims"), (66, "elements")),
        *((67, "partitions"), (67, "indices"), (67, "value"), (157, "partitions"), (157, "elements")),
        *((158, "elements"), (158, "free"), (159, "free"), (159, "partitions")),
        *((72, "partitions"), (72, "shape"), (82, "elements")),
    }
)
_SIZES_OF = frozenset({(79, "dst.shape")})
_CANNOT_READ = (TypeError, ValueError, KeyError, IndexError, AttributeError, ArithmeticError)


@dataclass(frozen=True)
class Judgement:
    """A breach in one call: a sentence without instruction, target and place."""

    number: int
    subject: str
    text: str
    source: str
    blocking: bool = False


def judge(call: CallView) -> tuple[Judgement, ...]:
    """Everything wrong with a call but the placement of its operands; limits only where the call is well formed."""
    found = (*_scope(call), *_operands(call), *_immediates(call), *_control(call))
    if any(judgement.blocking for judgement in found):
        return found
    return (*found, *_limits(call))


def _scope(call: CallView) -> Iterator[Judgement]:
    row, generation = call.row, call.hardware.generation
    if generation not in row.generations:
        number = 51 if row.generations == {"v4"} else 52
        text = f"needs NeuronCore-{' or '.join(sorted(row.generations))}, not {generation}"
        yield Judgement(number, "generation", text, row.source)
    legacy = row.legacy is not None and call.release == LEGACY
    if call.release not in row.releases and not legacy:
        yield Judgement(0, "release", f"{_scope_text(row.releases)}, not in NKI {call.release}", row.source)


def _scope_text(span: Span) -> str:
    parts = [
        f"since NKI {span.since}" if span.since else "",
        f"before NKI {span.until}" if span.until else "",
    ]
    return f"exists {' and '.join(part for part in parts if part) or 'in no release'}"


def _operands(call: CallView) -> Iterator[Judgement]:
    row = call.row
    for operand in row.operands:
        name, param = operand.name, _param(row, operand.name, call.release)
        number = call.immediates.get(name)
        if call.has(name):
            if number is not None:
                yield _meaningless(f"{name}.kind", f"{name} is both a tile and {number!r}", row.source)
            yield from _tile(call, operand)
            yield from _known(param, call.release, row)
        elif number is not None:
            if not operand.number:
                text = f"{name} must be a tile, got {number!r}"
                yield _meaningless(f"{name}.kind", text, row.source)
            elif not _is_number(number):
                text = f"{name} must be a tile or a number, got {number!r}"
                yield _meaningless(f"{name}.kind", text, row.source)
        elif not operand.optional and (param.default is REQUIRED or not operand.number):
            yield _meaningless(f"{name}.presence", f"{name} is missing", row.source)


def _tile(call: CallView, operand: Operand) -> Iterator[Judgement]:
    name, source = operand.name, call.row.source
    memory, dtype = call.memory(name), call.dtype(name)
    if memory not in operand.memories:
        text = f"{name} is in {_memory(memory)}, expected {' or '.join(_names(operand.memories))}"
        yield Judgement(24, f"{name}.memory", text, source)
    if operand.dtypes is not None and dtype not in operand.dtypes:
        expected = ", ".join(sorted(operand.dtypes))
        text = f"{name} dtype {dtype} is not allowed, expected one of {expected}"
        # a packed value has no arithmetic meaning
        yield Judgement(0, f"{name}.dtype", text, source, dtypes.BY_NAME[dtype].kind == "packed")
    yield from _indexed(call, operand)


def _indexed(call: CallView, operand: Operand) -> Iterator[Judgement]:
    """Rules 145 and 84: which operands may have an index tile."""
    kind = call.index(operand.name)
    if kind == "snake" and not operand.indirect:
        text = f"{operand.name} is a view made by indirect(), which this instruction does not take there"
        yield Judgement(145, f"{operand.name}.index", text, call.row.source)
    if kind == "vector" and call.row.engines.default is not Engine.dma:
        text = f"{operand.name} has a vector index, which only a DMA takes"
        yield Judgement(84, f"{operand.name}.index", text, _VECTOR_INDEX)


def _memory(memory: Memory) -> str:
    return (
        "HBM" if memory is Memory.hbm else memory.name if memory is Memory.shared_hbm else memory.name.upper()
    )


def _names(memories: frozenset[Memory]) -> list[str]:
    hbm = {Memory.hbm, Memory.shared_hbm}
    plain = [_memory(memory) for memory in Memory if memory in memories - (hbm if hbm <= memories else set())]
    return ["HBM", *plain] if hbm <= memories else plain


def _is_number(value: Any) -> bool:
    if isinstance(value, tuple):
        return len(value) == 2 and value[0] == "register" and isinstance(value[1], int)
    return isinstance(value, int | float)


def _immediates(call: CallView) -> Iterator[Judgement]:
    row = call.row
    operands = {operand.name for operand in row.operands}
    for name in call.immediates:
        if name not in row.immediates and name not in operands:
            known = ", ".join(param.name for param in row.parameters(call.release))
            text = f"{name} is no parameter, expected one of {known}"
            yield Judgement(98, f"{name}.presence", text, _ARGUMENTS, blocking=True)
        elif name in row.immediates:
            yield from _known(_param(row, name, call.release), call.release, row)
    for param in row.signature:
        missing = param.name in row.immediates and param.name not in operands and param.default is REQUIRED
        if missing and call.release in param.span and param.name not in call.immediates:
            yield _meaningless(f"{param.name}.presence", f"{param.name} is missing", row.source)


def _known(param: Param, release: Release, row: Row) -> Iterator[Judgement]:
    if release not in param.span:
        text = f"parameter {param.name} {_scope_text(param.span)}, not in NKI {release}"
        yield Judgement(98, f"{param.name}.release", text, row.source)


def _control(call: CallView) -> Iterator[Judgement]:
    """The engine and the descriptor generation that the kernel asked for."""
    row, engine, generation = call.row, call.engine, call.hardware.generation
    params = {param.name for param in row.signature}
    for name, asked in (
        ("engine", engine is not Engine.unknown),
        ("dge_mode", call.dge is not DgeMode.unknown),
    ):
        if asked and name in params:
            yield from _known(_param(row, name, call.release), call.release, row)
    if engine is not Engine.unknown and generation not in row.engines.allowed.get(engine, frozenset()):
        fits = [each.name for each, where in row.engines.allowed.items() if generation in where]
        expected = (
            f"expected {' or '.join(fits)}" if fits else f"none can be chosen on NeuronCore-{generation}"
        )
        yield Judgement(49, "engine.kind", f"engine {engine.name} is not allowed, {expected}", _ENGINES)
    if call.dge is not DgeMode.unknown and "dge_mode" not in params:
        yield _meaningless("dge_mode.presence", "dge_mode is no parameter", row.source)


def _limits(call: CallView) -> Iterator[Judgement]:
    for limit in call.row.limits:
        try:
            breach = limit.breach(call) if limit.applies(call) else None
        except _CANNOT_READ as error:
            # immediates come from the program, and a limit may meet a kind of value that no recorder writes
            text = f"{_subject(limit)} cannot be judged: {type(error).__name__}: {error}"
            yield _meaningless(_subject(limit), text, limit.source, limit.number)
            continue
        if breach:
            measure = breach.subject.rpartition(".")[2]
            blocking = (limit.number, measure) in _SIZES or (limit.number, breach.subject) in _SIZES_OF
            yield Judgement(limit.number, breach.subject, breach.text, limit.source, blocking)


def _subject(limit: Limit) -> str:
    return str(
        getattr(limit, "subject", "") or getattr(limit, "left", "") or getattr(limit, "operand", "call")
    )


def _meaningless(subject: str, text: str, source: str, number: int = 0) -> Judgement:
    return Judgement(number, subject, text, source, blocking=True)


def _param(row: Row, name: str, release: Release) -> Param:
    listed = next((param for param, elements in row.lists.items() if name in elements), name)
    found = row.param(listed, release)
    assert found is not None, f"{row.name} has no parameter {listed}"
    return found


def covered(row: Row, number: int) -> frozenset[str]:
    """Operands for which the row has a limit of that number itself."""
    subjects = (_subject(limit) for limit in row.limits if limit.number == number)
    return frozenset(subject.partition(".")[0] for subject in subjects)
