"""Recorders: one callable for each row of the instruction table. They bind arguments and check nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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


def recorder(row: Row) -> Callable[..., NkiInstruction]:
    """The function a kernel calls for a row."""
    operand_names = tuple(operand.name for operand in row.operands)
    operands = {operand.name: operand for operand in row.operands}
    positions = tuple(param.name for param in row.signature)

    def record(*args: Any, **kwargs: Any) -> NkiInstruction:
        trace = current(f"nisa.{row.name}")
        if len(args) > len(positions):
            raise Refusal(f"{row.name}: takes {len(positions)} arguments, got {len(args)}")
        given = dict(zip(positions, args, strict=False))
        for name, value in kwargs.items():
            if name not in positions:
                raise Refusal(f"{row.name}: unknown argument {name!r}, expected {', '.join(positions)}")
            if name in given:
                raise Refusal(f"{row.name}: argument {name!r} is given twice")
            given[name] = value
        accesses: dict[str, int] = {}
        immediates: dict[str, Any] = {}
        engine, dge, label = Engine.unknown, DgeMode.unknown, ""
        for param in row.signature:
            name = param.name
            if name not in given:
                if param.default is REQUIRED:
                    raise Refusal(f"{row.name}: argument {name!r} is missing")
                if trace.release not in param.span or (name in operands and not _is_number(param.default)):
                    continue
                value = param.default
            else:
                value = given[name]
            if name in operands:
                if isinstance(value, NkiTensor):
                    accesses[name] = value.access()
                elif value is None:
                    continue
                elif _is_number(value):
                    immediates[name] = _number(value)
                else:
                    raise Refusal(f"{row.name}: {name} must be a tensor, got {_kind(value)}")
            elif name == "name":
                label = "" if value is None else str(value)
            elif name == "engine":
                engine = _member(trace, row.name, name, Engine, value)
            elif name == "dge_mode":
                dge = _member(trace, row.name, name, DgeMode, value)
            else:
                immediates[name] = _immediate(trace, row.name, name, value)
        index = trace.builder.append(
            row.name,
            operand_names,
            [accesses.get(name, -1) for name in operand_names],
            immediates,
            place=trace.place(),
            engine=engine,
            dge=dge,
            name=label,
        )
        if trace.on_append is not None:
            trace.on_append(index)
        return NkiInstruction(trace, index)

    record.__name__ = record.__qualname__ = row.name
    record.__doc__ = f"{row.name}({', '.join(positions)})"
    return record


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
