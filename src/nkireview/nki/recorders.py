"""Recorders: one callable for each row of the instruction table. They bind arguments and check nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any

import numpy as np

from nkireview.isa.enums import DgeMode, DmaEngine, Engine, MatmulPerfMode, NcVersion, OobMode, ReduceCmd
from nkireview.isa.names import when
from nkireview.isa.release import Release, Span
from nkireview.isa.row import REQUIRED, Param, Row
from nkireview.isa.rows.common import OTHER_GROUP, TENSOR_GROUP
from nkireview.nki.dtypes import DType
from nkireview.nki.errors import NotYetSupported, Refusal
from nkireview.nki.operators import Operator
from nkireview.nki.registers import VirtualRegister, fresh, writable
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


INTEGERS_UNTIL = Release(0, 3)  # migration guide: integers are no enumeration members from 0.3 on
IGNORE_UNKNOWN = Span(since=Release(0, 2), until=Release(0, 3))
"""Keywords that a call does not have were ignored in SDK 2.27, are refused since 2.28, and are passed to tensor_copy by
AWS's kernels of both: release-notes/components/nki.rst:639-643."""
DEPENDS_SINCE = Release(0, 6)  # nki/api/nki/isa/__init__.py:138-166


class NkiInstruction:
    """Handle of a recorded instruction."""

    __slots__ = ("_index", "_trace")

    def __init__(self, trace: Trace, index: int) -> None:
        self._trace = trace
        self._index = index

    def depends_on(self, *producers: NkiInstruction) -> NkiInstruction:
        """Let this instruction run after the producers, of the same core and not inside a loop it is outside of.

        Returns itself.
        """
        what = "NkiInstruction.depends_on"
        if self._trace.release < DEPENDS_SINCE:
            raise Refusal(
                f"{what} exists since NKI {DEPENDS_SINCE}, this kernel is judged by {self._trace.release}"
            )
        for producer in producers:
            if type(producer) is not NkiInstruction:
                raise Refusal(f"{what} takes instructions, got {type(producer).__name__}")
        self._trace.depend(self._index, [producer._index for producer in producers], what)
        return self

    def __bool__(self) -> bool:
        raise Refusal("an instruction has no truth value; did you mean its dst tensor?")


_BY_IDENTITY = frozenset({Operator, *ENUMS.values()})
"""Kinds of arguments that are one object each for as long as a trace runs."""


def recorder(row: Row) -> Callable[..., Any]:
    """The function a kernel calls for a row: it returns the instruction, or the fresh register that it writes."""
    operand_names = tuple(operand.name for operand in row.operands)
    slots = {name: at for at, name in enumerate(operand_names)}
    what = f"{row.namespace.replace('nki.isa', 'nisa')}.{row.name}"
    empty = [-1] * len(operand_names)
    group = TENSOR_GROUP if row.engines.default is Engine.tensor else OTHER_GROUP
    made = next((p.name for p in row.signature if p.name in row.registers and p.default is None), None)
    special = bool(row.lists or row.registers)
    layouts: dict[tuple[str, ...], tuple[int, ...]] = {}
    parameters = {param.name for param in row.signature} | slots.keys()

    def record(*args: Any, **kwargs: Any) -> Any:
        trace = current(what)
        given = _named(row, trace, args, kwargs) if args else kwargs
        if special:
            return _record_special(given, trace)
        return NkiInstruction(trace, _append(given, trace))

    def _record_special(given: dict[str, Any], trace: Trace) -> Any:
        if row.lists:
            given = _spread(row, given)
        register = None
        if row.registers:
            given = dict(given)
        if made is not None:
            if made in given:
                raise Refusal(f"{row.name}: unknown argument {made!r}")
            register = fresh(trace)
            given[made] = register
        for name in row.registers:
            if name in given:
                given[name] = writable(given[name], f"{row.name}: {name}")
        if any(type(given.get(name)) is VirtualRegister and given[name].frozen for name in row.registers):
            # before 0.4 a write to an induction variable had no effect
            trace.event("note", f"{row.name} writes to the induction variable of a loop, which has no effect")
            return None
        index = _append(given, trace)
        return NkiInstruction(trace, index) if register is None else register

    def _append(given: dict[str, Any], trace: Trace) -> int:
        accesses = empty.copy()
        names = tuple(given)
        places = layouts.get(names)
        if places is None:
            places = layouts[names] = tuple(slots.get(name, -1) for name in names)
        key: list[Any] = [what, names]
        known, indirect = True, None
        for at, value in zip(places, given.values(), strict=True):
            kind = type(value)
            if kind is NkiTensor and at >= 0:
                key.append(NkiTensor)
                if value._pointer is not None:
                    indirect = indirect or []
                    indirect.append((at, value))
                else:
                    access = value._access
                    accesses[at] = access if access >= 0 else value.access()
            elif kind in _BY_IDENTITY:
                key.append(id(value))
            elif kind is float:
                # tells 0.0 from -0.0
                key.append(repr(value))
            elif kind is int or kind is bool or kind is str or kind is DType:
                key.append(kind)
                key.append(value)
            elif value is None:
                key.append(None)
            elif (kind is tuple or kind is list) and (numbers := _integers(value)) is not None:
                key.append(numbers)
            else:
                known = False
        if indirect:
            oob = getattr(given.get("oob_mode"), "name", None) or "error"
            for at, value in indirect:
                accesses[at] = value.dynamic(oob, group)
        if trace.confined:
            _note_confined(row, given, trace)
        if not known:
            call = _prepared(row, trace, given, slots)
        else:
            found = tuple(key)
            call = trace.prepared.get(found, -1)
            if call < 0:
                call = _prepared(row, trace, given, slots)
                raw = any(name in ENUMS and _is_number(value) for name, value in given.items())
                if not raw and parameters >= given.keys():
                    trace.prepared[found] = call
        # The frames of `here`, of this function and of its caller.
        index = trace.builder.record(call, accesses, trace.places.here(3))
        if trace.on_append is not None:
            trace.on_append(index)
        return index

    record.__name__ = record.__qualname__ = row.name
    shown = [param.name for param in row.signature if param.name != made]
    record.__doc__ = f"{row.name}({', '.join(shown)})"
    return record


def _integers(items: Sequence[Any]) -> tuple[Any, ...] | None:
    """Lists of integers, and lists of those, as tuples; None where anything else is in them."""
    found: list[Any] = []
    for item in items:
        kind = type(item)
        if kind is int:
            found.append(item)
            continue
        inner = _integers(item) if kind is tuple or kind is list else None
        if inner is None:
            return None
        found.append(inner)
    return tuple(found)


def _note_confined(row: Row, given: Mapping[str, Any], trace: Trace) -> None:
    """Rule 105: a tensor made in the body of a loop cannot be used outside of it."""
    for name, value in given.items():
        loop = trace.confined.get(value.storage.id) if type(value) is NkiTensor else None
        if loop is not None:
            trace.event(
                "note", f"{row.name}: {name} was made in the body of {loop} and is used outside of it"
            )


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


CONTROL = frozenset({"name", "engine", "dge_mode"})
"""Parameters that are no immediates."""


def unknown(row: Row, name: str, release: Release) -> Refusal:
    """The refusal of a keyword that a row does not have, or not in this release."""
    param = row.param(name, release)
    if param is None or release in param.span:
        expected = ", ".join(param.name for param in row.parameters(release))
        return Refusal(f"{row.name}: unknown argument {name!r}, expected {expected}")
    return Refusal(
        f"{row.name}: argument {name!r} exists {when((param.span,), release)}, this kernel is judged by {release}"
    )


def _prepared(row: Row, trace: Trace, arguments: Mapping[str, Any], slots: Mapping[str, int]) -> int:
    """The interned call of these arguments: immediates, engine and name."""
    given = {
        name: value for name, value in arguments.items() if not (type(value) is NkiTensor and name in slots)
    }
    known = {param.name for param in row.signature}
    for name in given:
        if name not in known and name not in slots:
            if trace.release not in IGNORE_UNKNOWN:
                raise unknown(row, name, trace.release)
            trace.event("note", f"{row.name}: {name} is no argument of it, which NKI 0.2 at first ignored")
    immediates: dict[str, Any] = {}
    engine, dge, label = Engine.unknown, DgeMode.unknown, ""
    for param in row.signature:
        name = param.name
        if name in row.lists or (name in slots and name in arguments and name not in given):
            continue
        if name not in given:
            if param.default is REQUIRED:
                if trace.release not in param.span:
                    continue
                raise _missing_argument(row, name, trace.release)
            if trace.release not in param.span or (name in slots and not _is_number(param.default)):
                continue
        elif trace.release not in param.span:
            if row.param(name, trace.release) is not param:
                continue
            # what a Program cannot show: no immediate, and no operand
            if name in CONTROL or (name in slots and given[name] is None):
                raise unknown(row, name, trace.release)
        value = given.get(name, param.default)
        if type(value) is VirtualRegister:
            immediates[name] = _register(row, param, value)
        elif name in row.registers:
            raise Refusal(f"{row.name}: {name} must be a register, got {_kind(value)}")
        elif name in slots:
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
    return trace.builder.call(row.name, tuple(slots), immediates, engine=engine, dge=dge, name=label)


def _missing_argument(row: Row, name: str, release: Release) -> Refusal:
    later = [
        param for param in row.signature if param.name == name and (param.span.since or release) > release
    ]
    hint = f", it has a default {when((later[0].span,), release)}" if later else ""
    return Refusal(f"{row.name}: argument {name!r} is missing{hint}")


def _register(row: Row, param: Param, register: VirtualRegister) -> tuple[str, int]:
    """How a register in place of a number is recorded; Refusal where none may stand."""
    if param.register or param.name in row.registers:
        return register.immediate
    raise Refusal(
        f"{row.name}: {param.name} cannot be a register; nisa.register_store it into a tile and pass that, or pass a "
        "number known while tracing"
    )


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
        if trace.release >= INTEGERS_UNTIL:
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
