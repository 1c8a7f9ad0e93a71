"""Rows that select by a predicate or a range."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.isa import alu, dtypes
from nkireview.isa.enums import Engine, ReduceCmd
from nkireview.isa.limit import Call, Check, DtypeIn, Limit, SameDtype
from nkireview.isa.row import Bits, Cost, Flow, Legacy, Operand, Param, Rate, Reader, Result, Role, Row
from nkireview.isa.rows.accumulating import VECTOR_REGISTERS, accumulate, one_of
from nkireview.isa.rows.arrays import operand_value, rows_of, spread
from nkireview.isa.rows.common import (
    MIN_INTERVAL,
    NAME,
    ON_CHIP,
    SINCE_03,
    STUB,
    STUB_2_26,
    V3_UP,
    column_limits,
    in_psum,
    indirect_limits,
    not_both_psum,
    only,
    placed_limits,
    returns,
    same_layout,
    tile_limits,
    vector_limits,
)

FP32_MIN = float(np.finfo(np.float32).min)
LARGEST_INDEX = 2**24  # indices are compared in float32: nki/api/nki/isa/__init__.py:2863-2864
COMMAND_HONOURED = (
    SINCE_03  # range_select took every reduce_cmd for reset_reduce before: nki/migration/index.rst:765-775
)
COMPARISONS = ("equal", "less", "less_equal", "greater", "greater_equal")
FLOATS = frozenset(name for name, dtype in dtypes.BY_NAME.items() if dtype.kind == "float")
_UNSELECTABLE = ("int32", "tfloat32", "uint32")


def _predicate(reader: Reader, like: NDArray[Any]) -> NDArray[Any]:
    """Where the predicate holds, in the shape of `like`."""
    held = np.asarray(reader.raw("predicate").reshape(like.shape) != 0)
    return ~held if reader.imm("reverse_pred") else held


def _copy_predicated(reader: Reader) -> dict[str, Result]:
    dtype = reader.dtype("dst")
    if reader.has("src") and reader.dtype("src") != dtype:
        old = reader.value("dst")
        return {"dst": np.where(_predicate(reader, old), reader.value("src").reshape(old.shape), old)}
    old = reader.raw("dst")
    new = reader.raw("src").reshape(old.shape) if reader.has("src") else _number(reader, old)
    return {"dst": Bits(np.where(_predicate(reader, old), new, old))}


def _number(reader: Reader, like: NDArray[Any]) -> NDArray[Any]:
    """The number in the place of src, as dst holds it."""
    number, dtype = np.asarray(reader.imm("src")), reader.dtype("dst")
    if like.dtype != dtype.storage:
        return number.astype(like.dtype)
    return dtypes.cast(number if number.dtype.kind in "iu" else number.astype(np.float32), dtype)


def _other_in_psum(call: Call) -> bool:
    return not call.has("src") or in_psum(call, "src") != in_psum(call, "predicate")


tensor_copy_predicated = Row(
    name="tensor_copy_predicated",
    signature=(Param("dst"), Param("src"), Param("predicate"), Param("reverse_pred", False), NAME),
    operands=(
        Operand("dst", Role.accumulate, ON_CHIP, indirect=True),
        Operand("src", Role.read, ON_CHIP, number=True),
        Operand("predicate", Role.read, ON_CHIP, indirect=True),
    ),
    engines=only(Engine.vector),
    meaning=_copy_predicated,
    flow={"dst": Flow.select},
    cost=Cost(
        subject="predicate",
        per_element=2.0,
        minimum=MIN_INTERVAL,
        formula="max(MIN_II, N) with one of src and predicate in PSUM, max(MIN_II, 2N) with both in SBUF",
        source=f"{STUB_2_26}:1513-1528",
        rates=(
            Rate(
                1.0,
                "one of src and predicate in PSUM, or src a number",
                _other_in_psum,
                source=f"{STUB_2_26}:1513-1528",
            ),
        ),
    ),
    source=f"{STUB}:446-487",
    limits=(
        *tile_limits("dst", "src"),
        *placed_limits("predicate"),
        *same_layout(f"{STUB}:456", "predicate", "src", "dst"),
        not_both_psum("src", "predicate", f"{STUB}:451-452"),
        DtypeIn(
            number=47,
            source=f"{STUB}:457",
            operand="predicate",
            allowed=frozenset({"uint8", "uint16", "uint32"}),
        ),
        SameDtype(number=45, source=f"{STUB}:458", left="src", right="dst"),
        *indirect_limits(
            f"{STUB}:465-482", "dst", "predicate", engines=frozenset({Engine.vector}), beside="predicate"
        ),
    ),
    legacy=Legacy("tensor_copy_predicated", "dst"),
)


def _range_select(reader: Reader) -> dict[str, Result]:
    data = reader.value("on_true_tile")
    count = rows_of(data).shape[1]
    line = (int(reader.imm("range_start") or 0) + np.arange(count)).astype(np.float32)
    index = np.broadcast_to(line.astype(reader.compute), (len(data), count)).reshape(data.shape)
    inside = np.ones(data.shape, np.bool_)
    for step in (0, 1):
        bound = spread(reader.value(f"bound{step}"), data)
        inside &= alu.of(reader.imm(f"comp_op{step}")).fn(index, bound) != 0
    output = np.where(inside, data, np.asarray(FP32_MIN, data.dtype))
    command = reader.imm("reduce_cmd")
    if command is None or reader.release not in COMMAND_HONOURED:
        command = ReduceCmd.reset_reduce.name
    held = accumulate(reader, VECTOR_REGISTERS, alu.of("maximum"), output, command)
    return _with_result(reader, output, held)


def _with_result(reader: Reader, output: NDArray[Any], held: NDArray[Any]) -> dict[str, Result]:
    results: dict[str, Result] = {"dst": output}
    if reader.has("reduce_res"):
        results["reduce_res"] = held[:, None]
    return results


def _false_value(call: Call) -> str | None:
    value = call.imm("on_false_value")
    if value is None or (isinstance(value, int | float) and np.float32(value) == np.float32(FP32_MIN)):
        return None
    return f"on_false_value is {value}, must be FP32_MIN ({FP32_MIN:.8g})"


def _range_start(call: Call) -> str | None:
    start = call.imm("range_start")
    if start is None or (isinstance(start, int) and not isinstance(start, bool)):
        return None
    return f"range_start is {start}, must be an integer known at compile time"


def _range_end(call: Call) -> str | None:
    start = call.imm("range_start") or 0
    if _range_start(call) or not call.has("on_true_tile"):
        return None
    first, last = start, start + call.measure("on_true_tile", "free") - 1
    if max(abs(first), abs(last)) <= LARGEST_INDEX:
        return None
    return f"indices run from {first} to {last}, float32 compares them exactly up to {LARGEST_INDEX} only"


def _bound_limits(name: str) -> tuple[Limit, ...]:
    return vector_limits(name, "on_true_tile", 147, f"{STUB}:2858-2861")


range_select = Row(
    name="range_select",
    signature=(
        Param("dst"),
        Param("on_true_tile"),
        Param("comp_op0"),
        Param("comp_op1"),
        Param("bound0"),
        Param("bound1"),
        Param("reduce_cmd", ReduceCmd.reset_reduce),
        Param("reduce_res", None),
        Param("reduce_op", "maximum"),
        Param("range_start", 0),
        Param("on_false_value", FP32_MIN),
        NAME,
    ),
    operands=(
        Operand("dst", Role.write, ON_CHIP),
        Operand("on_true_tile", Role.read, ON_CHIP),
        Operand("bound0", Role.read, ON_CHIP, vector=True),
        Operand("bound1", Role.read, ON_CHIP, vector=True),
        Operand("reduce_res", Role.write, ON_CHIP, optional=True, vector=True),
    ),
    engines=only(Engine.vector),
    meaning=_range_select,
    flow={"dst": Flow.select, "reduce_res": Flow.row},
    cost=Cost(
        subject="on_true_tile",
        per_element=1.0,
        minimum=MIN_INTERVAL,
        formula="max(MIN_II, N)",
        source=f"{STUB_2_26}:1133-1139",
    ),
    source=f"{STUB}:2819-2897",
    limits=(
        *tile_limits("dst", "on_true_tile", "reduce_res"),
        *placed_limits("bound0", "bound1"),
        *same_layout(f"{STUB}:2855-2857", "on_true_tile", "dst"),
        *_bound_limits("bound0"),
        *_bound_limits("bound1"),
        *column_limits("reduce_res", "on_true_tile", f"{STUB}:2874"),
        DtypeIn(number=147, source=f"{STUB}:2861", operand="on_true_tile", allowed=FLOATS),
        *(one_of(147, f"{STUB}:2850-2856", name, COMPARISONS) for name in ("comp_op0", "comp_op1")),
        one_of(147, f"{STUB}:2886", "reduce_op", ("maximum",)),
        one_of(62, f"{STUB}:2887-2888", "reduce_cmd", ("reset_reduce", "reduce", "reset", "idle"), SINCE_03),
        Check(
            number=147,
            source=f"{STUB}:2879-2880; release-notes/components/nki.rst:448",
            releases=SINCE_03,
            subject="on_false_value.kind",
            find=_false_value,
        ),
        Check(number=147, source=f"{STUB}:2895-2896", subject="range_start.kind", find=_range_start),
        Check(number=147, source=f"{STUB}:2863-2864", subject="range_start.end", find=_range_end),
    ),
    generations=V3_UP,
    legacy=returns("range_select"),
)


def _select_reduce(reader: Reader) -> dict[str, Result]:
    on_true = reader.value("on_true")
    on_false = operand_value(reader, "on_false", on_true)
    output = np.where(_predicate(reader, on_true), on_true, np.asarray(on_false, on_true.dtype))
    command = reader.imm("reduce_cmd") or ReduceCmd.idle.name
    return _with_result(
        reader, output, accumulate(reader, VECTOR_REGISTERS, alu.of("maximum"), output, command)
    )


def _unselectable(call: Call) -> str | None:
    if not call.has("on_true") or call.dtype("on_true") not in _UNSELECTABLE:
        return None
    names = ", ".join(_UNSELECTABLE)
    return f"on_true dtype {call.dtype('on_true')} is not allowed, expected any but {names}"


def _one_in_psum(call: Call) -> bool:
    return in_psum(call, "on_true") != in_psum(call, "predicate")


select_reduce = Row(
    name="select_reduce",
    signature=(
        Param("dst"),
        Param("predicate"),
        Param("on_true"),
        Param("on_false"),
        Param("reduce_res", None),
        Param("reduce_cmd", ReduceCmd.idle),
        Param("reduce_op", "maximum"),
        Param("reverse_pred", False),
        NAME,
    ),
    operands=(
        Operand("dst", Role.write, ON_CHIP),
        Operand("predicate", Role.read, ON_CHIP),
        Operand("on_true", Role.read, ON_CHIP),
        Operand("on_false", Role.read, ON_CHIP, number=True, vector=True),
        Operand("reduce_res", Role.write, ON_CHIP, optional=True, vector=True),
    ),
    engines=only(Engine.vector),
    meaning=_select_reduce,
    flow={"dst": Flow.select, "reduce_res": Flow.row},
    cost=Cost(
        subject="on_true",
        per_element=2.0,
        minimum=MIN_INTERVAL,
        formula="as tensor_copy_predicated, none is published: N with one input in PSUM, 2N with both in SBUF",
        source=f"{STUB_2_26}:1513-1528",
        rates=(
            Rate(1.0, "one of on_true and predicate in PSUM", _one_in_psum, source=f"{STUB_2_26}:1513-1528"),
        ),
    ),
    source=f"{STUB}:2899-2969",
    limits=(
        *tile_limits("dst", "on_true", "on_false", "reduce_res"),
        *placed_limits("predicate"),
        *same_layout(f"{STUB}:2922", "on_true", "predicate", "dst"),
        not_both_psum("on_true", "predicate", f"{STUB}:2917"),
        Check(number=146, source=f"{STUB}:2923", subject="on_true.dtype", find=_unselectable),
        *vector_limits("on_false", "on_true", 146, f"{STUB}:2924-2925", fp32=False),
        DtypeIn(
            number=47,
            source=f"{STUB}:2926",
            operand="predicate",
            allowed=frozenset({"int8", "uint8", "int16", "uint16"}),
        ),
        *column_limits("reduce_res", "on_true", f"{STUB}:2927"),
        DtypeIn(number=146, source=f"{STUB}:2928", operand="reduce_res", allowed=FLOATS),
        one_of(146, f"{STUB}:2929", "reduce_op", ("maximum",)),
        one_of(62, f"{STUB}:2941-2943", "reduce_cmd", ("reset_reduce", "reduce", "idle")),
    ),
    legacy=Legacy("select_reduce", "dst"),
)

ROWS = (tensor_copy_predicated, range_select, select_reduce)
