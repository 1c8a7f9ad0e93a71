"""Rows of the GpSimd engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.isa import alu, dtypes
from nkireview.isa.dtypes import DataType
from nkireview.isa.enums import Engine
from nkireview.isa.limit import Call, Check, Limit
from nkireview.isa.release import Release, Span
from nkireview.isa.row import REQUIRED, Bits, Cost, Flow, Operand, Param, Reader, Result, Role, Row
from nkireview.isa.rows.arrays import affine
from nkireview.isa.rows.common import (
    COMPARISONS,
    NAME,
    SBUF,
    SINCE_03,
    STUB,
    STUB_2_26,
    only,
    pattern_limits,
    returns,
    same_layout,
    tile_limits,
)

START = "gpsimd.start_cycles"
OFFSET = (
    # release-notes/components/nki.rst:425
    Param("offset", REQUIRED, Span(Release(0, 2), Release(0, 3)), register=True),
    Param("offset", 0, Span(until=Release(0, 2)), register=True),
    Param("offset", 0, SINCE_03, register=True),
)
SECOND_GENERATION = Span(since=Release(0, 2), until=Release(0, 3))


def integer_limits(number: int, source: str, *names: str) -> tuple[Limit, ...]:
    """Parameters that take a 32-bit integer, or a register that holds one."""
    return tuple(
        Check(number=number, source=source, subject=f"{name}.value", find=_integer(name)) for name in names
    )


def _integer(name: str) -> Callable[[Call], str | None]:
    def find(call: Call) -> str | None:
        given = call.imm(name)
        if given is None or (isinstance(given, tuple) and given[:1] == ("register",)):
            return None
        if isinstance(given, int) and not isinstance(given, bool) and -(2**31) <= given < 2**31:
            return None
        return f"{name} is {given!r}, it must be a 32-bit integer"

    return find


def _affine(reader: Reader, partitions: int) -> NDArray[np.int32]:
    multiplier = reader.imm("channel_multiplier") or 0
    return affine(reader.imm("pattern"), reader.imm("offset") or 0, multiplier, partitions)


def _iota(reader: Reader) -> dict[str, Result]:
    values, dtype = _affine(reader, reader.shape("dst")[0]), reader.dtype("dst")
    if dtype.kind in ("int", "uint"):
        # Through the compute dtype, integers beyond 2**24 would be lost.
        return {"dst": Bits(dtypes.cast(values, dtype))}
    return {"dst": values.astype(reader.compute)}


iota = Row(
    name="iota",
    signature=(
        Param("dst"),
        Param("pattern"),
        *OFFSET,
        Param("channel_multiplier", 0),
        NAME,
    ),
    operands=(Operand("dst", Role.write, SBUF),),
    engines=only(Engine.gpsimd),
    meaning=_iota,
    flow={"dst": Flow.nothing},
    cost=Cost(
        subject="dst",
        per_element=1.0,
        extra=START,
        formula="150 + N GpSimd cycles",
        source=f"{STUB_2_26}:565-567",
    ),
    source=f"{STUB}:1708-1762",
    limits=(
        *tile_limits("dst"),
        *pattern_limits("dst", f"{STUB}:1711-1715,1756"),
        *integer_limits(66, f"{STUB}:1761-1762", "offset", "channel_multiplier"),
    ),
    legacy=returns("iota"),
)


def _select(reader: Reader) -> dict[str, Result]:
    shape, dtype = reader.shape("on_true_tile"), reader.dtype("dst")
    keep = _predicate(reader, shape[0]).reshape(shape)
    if reader.dtype("on_true_tile") == dtype:
        held = reader.raw("on_true_tile")
        return {"dst": Bits(np.where(keep, held, _as_held(reader.imm("on_false_value"), held, dtype)))}
    values = reader.value("on_true_tile")
    return {"dst": np.where(keep, values, np.asarray(reader.imm("on_false_value"), values.dtype))}


def _predicate(reader: Reader, partitions: int) -> NDArray[np.bool_]:
    compare = alu.of(reader.imm("cmp_op") or "equal").int_fn
    if compare is None:
        raise ValueError(f"affine_select: cmp_op {reader.imm('cmp_op')} is no comparison")
    return np.asarray(compare(_affine(reader, partitions), np.int32(0)) != 0)


def _as_held(number: Any, held: NDArray[Any], dtype: DataType) -> NDArray[Any]:
    """A number as the tile holds it: a float32 rounded to its dtype, unless the tile is held unrounded."""
    if held.dtype == dtype.storage:
        return dtypes.cast(np.asarray(number, np.float32), dtype)
    return np.asarray(number, held.dtype)


def _false_number(call: Call) -> str | None:
    given = call.imm("on_false_value")
    if isinstance(given, int | float) and not isinstance(given, bool):
        return None
    return f"on_false_value is {given!r}, it must be a number, which the engine takes as float32"


def _comparison(call: Call) -> str | None:
    given = call.imm("cmp_op")
    if given is None or given in COMPARISONS:
        return None
    return f"cmp_op {given} is no comparison, expected one of {', '.join(COMPARISONS)}"


affine_select = Row(
    name="affine_select",
    signature=(
        Param("dst"),
        Param("pattern"),
        Param("channel_multiplier"),
        Param("on_true_tile"),
        Param("on_false_value"),
        Param("cmp_op", "equal"),
        *OFFSET,
        NAME,
    ),
    orders=(
        (
            SECOND_GENERATION,
            (
                "dst",
                "pattern",
                "offset",
                "channel_multiplier",
                "on_true_tile",
                "on_false_value",
                "cmp_op",
                "name",
            ),
        ),
    ),
    operands=(Operand("dst", Role.write, SBUF), Operand("on_true_tile", Role.read, SBUF)),
    engines=only(Engine.gpsimd),
    meaning=_select,
    flow={"dst": Flow.select},
    cost=Cost(
        subject="dst",
        per_element=1.0,
        extra=START,
        formula="150 + N GpSimd cycles",
        source=f"{STUB_2_26}:289-292",
    ),
    source=f"{STUB}:1764-1836",
    limits=(
        *tile_limits("dst", "on_true_tile"),
        *same_layout(f"{STUB}:1820-1826", "on_true_tile", "dst"),
        *pattern_limits("dst", f"{STUB}:1824-1826"),
        *integer_limits(66, f"{STUB}:1831-1832", "offset", "channel_multiplier"),
        Check(number=66, source=f"{STUB}:1835", subject="cmp_op.kind", find=_comparison),
        Check(number=66, source=f"{STUB}:1811", subject="on_false_value.kind", find=_false_number),
    ),
    legacy=returns("affine_select"),
)

ROWS = (iota, affine_select)
