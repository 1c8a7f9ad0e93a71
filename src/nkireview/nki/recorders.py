"""Recorders: one callable for each row of the instruction table. They bind arguments and check nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from nkireview.isa.enums import DgeMode, DmaEngine, Engine, MatmulPerfMode, NcVersion, OobMode, ReduceCmd
from nkireview.isa.row import REQUIRED, Row
from nkireview.nki.dtypes import DType
from nkireview.nki.errors import NotYetSupported, Refusal
from nkireview.nki.operators import Operator
from nkireview.nki.tensor import NkiTensor
from nkireview.nki.trace import Trace, current

ENUMS: Mapping[str, type[Enum]] = {
    "engine": Engine,
    "dge_mode": DgeMode,
    "oob_mode": OobMode,
    "reduce_cmd": ReduceCmd,
    "perf_mode": MatmulPerfMode,
    "nc_version": NcVersion,
    "dma_engine": DmaEngine,
}


class NkiInstruction:
    """Handle of a recorded instruction."""

    __slots__ = ("_index", "_trace")

    def __init__(self, trace: Trace, index: int) -> None:
        self._trace = trace
        self._index = index

    def depends_on(self, *producers: NkiInstruction) -> NkiInstruction:
        """Let this instruction run after the producers; returns itself."""
        self._trace.builder.depend(self._index, [producer._index for producer in producers])
        return self

    def __bool__(self) -> bool:
        raise Refusal("an instruction has no truth value; did you mean its dst tensor?")


@dataclass(frozen=True)
class _Prepared:
    """What a call records beside its accesses."""

    immediates: int
    engine: Engine
    dge: DgeMode
    label: str


def recorder(row: Row) -> Callable[..., NkiInstruction]:
    """The function a kernel calls for a row."""
    operand_names = tuple(operand.name for operand in row.operands)
    slots = {name: at for at, name in enumerate(operand_names)}
    what = f"{row.namespace.replace('nki.isa', 'nisa')}.{row.name}"

    def record(*args: Any, **kwargs: Any) -> NkiInstruction:
        trace = current(what)
        given = _named(row, trace, args, kwargs) if args else kwargs
        if row.lists:
            given = _spread(row, given)
        accesses = [-1] * len(operand_names)
        plain: list[tuple[str, Any]] = []
        for name, value in given.items():
            if type(value) is NkiTensor and name in slots:
                accesses[slots[name]] = value.access()
            else:
                plain.append((name, value))
        present = tuple(access >= 0 for access in accesses)
        prepared = _prepare(row, trace, present, plain, slots)
        index = trace.builder.append(
            row.name,
            operand_names,
            accesses,
            prepared.immediates,
            place=trace.place(),
            engine=prepared.engine,
            dge=prepared.dge,
            name=prepared.label,
        )
        if trace.on_append is not None:
            trace.on_append(index)
        return NkiInstruction(trace, index)

    record.__name__ = record.__qualname__ = row.name
    record.__doc__ = f"{row.name}({', '.join(param.name for param in row.signature)})"
    return record


def _named(row: Row, trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """All arguments by name; positions are those of the release."""
    positions = [param.name for param in row.parameters(trace.release)]
    if len(args) > len(positions):
        raise Refusal(f"{row.name}: takes {len(positions)} arguments, got {len(args)}")
    given = dict(zip(positions, args, strict=False))
    for name, value in kwargs.items():
        if name in given:
            raise Refusal(f"{row.name}: argument {name!r} is given twice")
        given[name] = value
    return given


def _spread(row: Row, given: dict[str, Any]) -> dict[str, Any]:
    """The arguments with each list of tensors as the operands that its elements become."""
    spread = {name: value for name, value in given.items() if name not in row.lists}
    for name, elements in row.lists.items():
        if name not in given:
            raise Refusal(f"{row.name}: argument {name!r} is missing")
        tensors = given[name]
        if not isinstance(tensors, list | tuple):
            raise Refusal(f"{row.name}: {name} must be a list of tensors, got {_kind(tensors)}")
        if len(tensors) > len(elements):
            raise Refusal(
                f"{row.name}: {name} holds {len(tensors)} tensors, at most {len(elements)} are possible"
            )
        for element, tensor in zip(elements, tensors, strict=False):
            if type(tensor) is not NkiTensor:
                raise Refusal(f"{row.name}: {name} must hold tensors, got {_kind(tensor)}")
            spread[element] = tensor
    return spread


def _prepare(
    row: Row, trace: Trace, present: tuple[bool, ...], plain: list[tuple[str, Any]], slots: Mapping[str, int]
) -> _Prepared:
    """Immediates, engine and name of a call; calls that differ in their tensors only are prepared once."""
    try:
        # repr tells 0.0 from -0.0 and the type 1 from True
        values = tuple((name, type(value), value, repr(value) if value == 0 else "") for name, value in plain)
        key = (row.name, present, values)
        found = trace.prepared.get(key)
    except TypeError:
        return _fresh(row, trace, present, plain, slots)
    if found is None:
        found = _fresh(row, trace, present, plain, slots)
        if not any(name in ENUMS and _is_number(value) for name, value in plain):
            trace.prepared[key] = found
    return found


def _fresh(
    row: Row, trace: Trace, present: tuple[bool, ...], plain: list[tuple[str, Any]], slots: Mapping[str, int]
) -> _Prepared:
    given = dict(plain)
    known = {param.name for param in row.signature}
    for name in given:
        if name not in known and name not in slots:
            expected = ", ".join(param.name for param in row.parameters(trace.release))
            raise Refusal(f"{row.name}: unknown argument {name!r}, expected {expected}")
    immediates: dict[str, Any] = {}
    engine, dge, label = Engine.unknown, DgeMode.unknown, ""
    for param in row.signature:
        name = param.name
        if name in row.lists or (name in slots and present[slots[name]]):
            continue
        if name not in given:
            if param.default is REQUIRED:
                raise Refusal(f"{row.name}: argument {name!r} is missing")
            if trace.release not in param.span or (name in slots and not _is_number(param.default)):
                continue
        value = given.get(name, param.default)
        if name in slots:
            if _is_number(value):
                immediates[name] = _number(value)
            elif value is not None:
                raise Refusal(f"{row.name}: {name} must be a tensor, got {_kind(value)}")
        elif name == "name":
            label = "" if value is None else str(value)
        elif name == "engine":
            engine = _member(trace, row.name, name, Engine, value)
        elif name == "dge_mode":
            dge = _member(trace, row.name, name, DgeMode, value)
        else:
            immediates[name] = _immediate(trace, row.name, name, value)
    return _Prepared(trace.builder.intern_immediates(immediates), engine, dge, label)


def missing(name: str) -> Callable[..., Any]:
    """The callable that stands for a documented instruction without a row."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise NotYetSupported(f"nisa.{name}")

    refuse.__name__ = refuse.__qualname__ = name
    return refuse


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _number(value: Any) -> int | float:
    return int(value) if isinstance(value, int | np.integer) else float(value)


def _member(trace: Trace, row: str, name: str, kind: type[Enum], value: Any) -> Any:
    if isinstance(value, kind):
        return value
    if value is None:
        return kind(0)
    if _is_number(value) and value in [member.value for member in kind]:
        member = kind(value)
        trace.event("deprecated", f"{row}: {name}={value} is a raw integer for {name}.{member.name}")
        return member
    raise Refusal(f"{row}: {name} must be a member of nisa.{name}, got {value!r}")


def _immediate(trace: Trace, row: str, name: str, value: Any) -> Any:
    if isinstance(value, Operator):
        return value.name
    if isinstance(value, DType):
        return str(value)
    if name in ENUMS and not isinstance(value, Enum) and value is not None:
        if name == "perf_mode" and isinstance(value, str) and value in MatmulPerfMode.__members__:
            return value
        return _member(trace, row, name, ENUMS[name], value).name
    if isinstance(value, Enum):
        if name in ENUMS and not isinstance(value, ENUMS[name]):
            raise Refusal(f"{row}: {name} must be a member of nisa.{name}, got {value!r}")
        return value.name
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    if _is_number(value):
        return _number(value)
    if isinstance(value, list | tuple):
        return tuple(_immediate(trace, row, name, item) for item in value)
    raise Refusal(f"{row}: {name} cannot be a {_kind(value)}")


def _kind(value: Any) -> str:
    name = type(value).__name__
    hint = " (pass its get_view())" if hasattr(value, "get_view") else ""
    return f"{name}{hint}"
