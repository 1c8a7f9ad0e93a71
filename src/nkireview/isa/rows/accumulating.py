"""Rows that keep a running value in the accumulator registers of their engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.isa import act, alu
from nkireview.isa.enums import Engine, ReduceCmd
from nkireview.isa.limit import AtMost, Call, Check, DtypeIn, Limit, SameDtype
from nkireview.isa.release import ALWAYS, Release, Span
from nkireview.isa.row import Cost, Flow, Legacy, Operand, Param, Reader, Result, Role, Row
from nkireview.isa.rows.arrays import apply, operand_value, rows_of
from nkireview.isa.rows.common import (
    BEFORE_04,
    BEFORE_06,
    FP8,
    HALF,
    MIN_INTERVAL,
    NAME,
    NAME_SINCE_03,
    ON_CHIP,
    SINCE_04,
    SINCE_06,
    STUB,
    STUB_2_26,
    V4,
    column_limits,
    indirect_limits,
    only,
    operator_limits,
    placed_limits,
    returns,
    same_layout,
    tile_limits,
    vector_limits,
)
from nkireview.isa.rows.elementwise import operand_present
from nkireview.isa.rows.scalar import REGISTERS, lane_results, registers_of
from nkireview.isa.rows.vector import running

VECTOR_REGISTERS = "vector_accumulator"  # the reader's state that holds them, one for each lane
SINCE_02 = Span(since=Release(0, 2))
RUNNING_OPS = ("add", "subtract", "multiply", "maximum", "minimum")
REDUCE_OPS = ("add", "multiply", "maximum", "minimum")
PAIRS = (
    ("multiply", "add"),
    ("multiply", "subtract"),
    ("multiply", "bypass"),
    ("add", "bypass"),
    ("subtract", "bypass"),
    ("bypass", "bypass"),
)
_VECTOR = frozenset({Engine.vector})
_SMALL = ("float8_e4m3", "float8_e5m2", "float16", "bfloat16", "float32")
_CUMULATIVE = FP8 | HALF | {"float32", "uint8", "uint16", "int8", "int16"}
_EXPONENTIAL_OUT = frozenset({*_SMALL, "tfloat32", "int8", "int16", "int32", "uint8", "uint16"})
_EXPONENTIAL_IN = frozenset({*_SMALL, "int8", "int16", "int32", "uint8", "uint16", "uint32"})
_EXPONENTIAL_SUM = frozenset({*_SMALL, "tfloat32"})


def one_of(number: int, source: str, name: str, allowed: tuple[str, ...], releases: Span = ALWAYS) -> Limit:
    """An immediate, where it is given, must be one of these names."""

    def find(call: Call) -> str | None:
        given = call.imm(name)
        if given is None or given in allowed:
            return None
        return f"{name} is {given}, must be {'one of ' if len(allowed) > 1 else ''}{', '.join(allowed)}"

    return Check(number=number, source=source, releases=releases, subject=f"{name}.kind", find=find)


def accumulate(
    reader: Reader, file: str, op: alu.AluOp, output: NDArray[Any], command: str, initial: Any = None
) -> NDArray[Any]:
    """Reduce each partition of `output` into the registers of that name; what they hold then, of shape (P,).

    `initial` is what load_reduce starts from: a number, or one for each partition. idle leaves the registers of
    Scalar alone; what it leaves in those of Vector is unknown, and the reduction of `output` alone is returned.
    """
    results = lane_results(op, output)
    if command == ReduceCmd.idle.name and file == VECTOR_REGISTERS:
        return results
    registers, lanes = registers_of(reader, file, len(output)), slice(len(output))
    if command in (ReduceCmd.reset.name, ReduceCmd.reset_reduce.name):
        registers[:] = op.identity
    elif command == ReduceCmd.load_reduce.name:
        registers[lanes] = initial
    if command == ReduceCmd.reset_reduce.name and op.name == "subtract":
        registers[lanes] = results
    elif command not in (ReduceCmd.idle.name, ReduceCmd.reset.name):
        registers[lanes] = op.fn(registers[lanes], results)
    reader.state[file] = registers
    return registers[lanes]


def _initial(reader: Reader, name: str, lanes: int) -> Any:
    """What load_reduce starts from: a number, or a value for each partition."""
    if reader.has(name):
        return rows_of(reader.value(name))[:lanes, 0]
    number = reader.imm(name)
    if number is None:
        raise ValueError(f"reduce_cmd load_reduce needs {name}")
    return number


def _loads(reader: Reader, command: str) -> bool:
    return command == ReduceCmd.load_reduce.name


def _scalar_reduce(reader: Reader) -> dict[str, Result]:
    data = reader.value("data")
    operand0 = operand_value(reader, "operand0", data)
    output = apply(alu.of(reader.imm("op0")), data, operand0, bool(reader.imm("reverse0")))
    command = reader.imm("reduce_cmd") or ReduceCmd.reset_reduce.name
    initial = _initial(reader, "reduce_init", len(output)) if _loads(reader, command) else None
    held = accumulate(reader, VECTOR_REGISTERS, alu.of(reader.imm("reduce_op")), output, command, initial)
    results: dict[str, Result] = {"dst": output}
    if reader.has("reduce_res"):
        results["reduce_res"] = (-held if reader.imm("reduce_res_negate") else held)[:, None]
    return results


def _missing_result(call: Call) -> str | None:
    if call.has("reduce_res"):
        return None
    return "reduce_res is missing, it may be left out since NKI 0.6"


def _unsupported_reverse(call: Call) -> str | None:
    return "reverse0 is True, which is not supported yet" if call.imm("reverse0") else None


def _start_given(required: bool) -> Callable[[Call], str | None]:
    """Rule 144: reduce_init with load_reduce only, and then too where it is `required`."""

    def find(call: Call) -> str | None:
        command = call.imm("reduce_cmd")
        number = call.imm("reduce_init")
        if command == ReduceCmd.load_reduce.name:
            missing = required and not call.has("reduce_init") and number is None
            return "reduce_init is missing, reduce_cmd load_reduce needs it" if missing else None
        if not call.has("reduce_init") and number in ((None,) if required else (None, 0)):
            return None
        given = "a tile" if call.has("reduce_init") else number
        return f"reduce_init is {given}, only reduce_cmd load_reduce takes it, reduce_cmd is {command}"

    return find


tensor_scalar_reduce = Row(
    name="tensor_scalar_reduce",
    signature=(
        Param("dst"),
        Param("data"),
        Param("op0"),
        Param("operand0"),
        Param("reduce_op"),
        Param("reduce_res", None),
        Param("reverse0", False),
        Param("reduce_cmd", ReduceCmd.reset_reduce, SINCE_04),
        Param("reduce_init", None, SINCE_04),
        Param("reduce_res_negate", False, SINCE_06),
        NAME,
    ),
    operands=(
        Operand("dst", Role.write, ON_CHIP, indirect=True),
        Operand("data", Role.read, ON_CHIP, indirect=True),
        Operand("operand0", Role.read, ON_CHIP, optional=True, number=True, vector=True),
        Operand("reduce_res", Role.write, ON_CHIP, optional=True, vector=True),
        Operand("reduce_init", Role.read, ON_CHIP, optional=True, number=True, vector=True),
    ),
    engines=only(Engine.vector),
    meaning=_scalar_reduce,
    flow={"dst": Flow.elementwise, "reduce_res": Flow.row},
    cost=Cost(
        subject="data",
        per_element=1.0,
        minimum=MIN_INTERVAL,
        extra=MIN_INTERVAL,
        extra_for="reduce_res",
        formula="max(MIN_II, N) + MIN_II; without reduce_res nothing is read out: max(MIN_II, N)",
        source=f"{STUB_2_26}:1736-1742",
    ),
    source=f"{STUB}:2515-2599",
    limits=(
        *tile_limits("dst", "data", "reduce_res"),
        *placed_limits("operand0", "reduce_init"),
        *same_layout(f"{STUB}:2518-2520", "data", "dst"),
        *operator_limits(f"{STUB}:2521-2522", ("op0",), ("data", "operand0", "dst"), bitvec=False),
        Check(
            number=36,
            source=f"{STUB}:2581",
            releases=SINCE_04,
            subject="operand0.kind",
            find=operand_present(0),
        ),
        *vector_limits("operand0", "data", 37, f"{STUB}:2579-2580"),
        *column_limits("reduce_res", "data", f"{STUB}:2526-2527"),
        one_of(36, f"{STUB}:2527", "reduce_op", REDUCE_OPS, SINCE_04),
        one_of(36, f"{STUB} at tag v2.29.1", "reduce_op", RUNNING_OPS, BEFORE_04),
        Check(number=0, source=f"{STUB}:2582-2583", subject="reverse0.kind", find=_unsupported_reverse),
        one_of(62, f"{STUB}:2593-2594", "reduce_cmd", ("reset_reduce", "reduce", "load_reduce")),
        Check(
            number=144,
            source=f"{STUB}:2549,2595-2596",
            releases=SINCE_04,
            subject="reduce_init.presence",
            find=_start_given(required=True),
        ),
        *vector_limits("reduce_init", "data", 37, f"{STUB}:2595-2596"),
        Check(
            number=151,
            source="release-notes/components/nki.rst:40-42",
            releases=BEFORE_06,
            subject="reduce_res.presence",
            find=_missing_result,
        ),
        *indirect_limits(f"{STUB}:2557-2575", "dst", "data", engines=_VECTOR, beside="data"),
    ),
    legacy=returns("tensor_scalar_reduce"),
)


def _cumulative(reader: Reader) -> dict[str, Result]:
    src = reader.value("src")
    values = rows_of(apply(alu.of(reader.imm("op0")), src, operand_value(reader, "imm0", src), reverse=False))
    op, lanes = alu.of(reader.imm("op1")), slice(len(values))
    command = reader.imm("reduce_cmd") or ReduceCmd.reset_reduce.name
    registers = registers_of(reader, VECTOR_REGISTERS, len(values))
    if command == ReduceCmd.reset_reduce.name:
        registers[:] = op.identity
    elif _loads(reader, command):
        registers[lanes] = _initial(reader, "imm1", len(values))
    states = _running(op, values, registers[lanes])
    registers[lanes] = states[:, -1]
    reader.state[VECTOR_REGISTERS] = registers
    return {"dst": states.reshape(src.shape)}


def _running(op: alu.AluOp, values: NDArray[Any], start: NDArray[Any]) -> NDArray[Any]:
    """Each value op the register, one after the other."""
    ufunc = running(op)
    if ufunc is not None and op.name != "subtract":
        steps = np.concatenate([start[:, None], values], axis=1)
        return np.asarray(ufunc.accumulate(steps, axis=1)[:, 1:])
    states, state = np.empty_like(values), start
    for column in range(values.shape[1]):
        states[:, column] = state = op.fn(values[:, column], state)
    return states


def _loaded(call: Call) -> str | None:
    if call.imm("reduce_cmd") != ReduceCmd.load_reduce.name:
        return None
    if call.has("imm1") or call.imm("imm1") is not None:
        return None
    return "imm1 is missing, reduce_cmd load_reduce starts from it"


tensor_scalar_cumulative = Row(
    name="tensor_scalar_cumulative",
    signature=(
        Param("dst"),
        Param("src"),
        Param("op0"),
        Param("op1"),
        Param("imm0"),
        Param("imm1", None),
        Param("reduce_cmd", ReduceCmd.reset_reduce),
        NAME_SINCE_03,
    ),
    operands=(
        Operand("dst", Role.write, ON_CHIP, indirect=True),
        Operand("src", Role.read, ON_CHIP, indirect=True),
        Operand("imm0", Role.read, ON_CHIP, number=True, vector=True),
        Operand("imm1", Role.read, ON_CHIP, optional=True, number=True, vector=True),
    ),
    engines=only(Engine.vector),
    meaning=_cumulative,
    flow={"dst": Flow.scan},
    cost=Cost(
        subject="src",
        per_element=1.0,
        minimum=MIN_INTERVAL,
        formula="max(MIN_II, N), as tensor_scalar: none is published",
        source=f"{STUB_2_26}:1676-1682",
    ),
    source=f"{STUB}:1254-1334",
    limits=(
        *tile_limits("dst", "src"),
        *placed_limits("imm0", "imm1"),
        *same_layout(f"{STUB}:1257-1258", "src", "dst"),
        *operator_limits(f"{STUB}:1288", ("op0",), ("src", "dst"), bitvec=False),
        one_of(36, f"{STUB}:1289", "op1", RUNNING_OPS),
        *(
            DtypeIn(number=38, source=f"{STUB}:1290-1291", operand=name, allowed=_CUMULATIVE)
            for name in ("dst", "src")
        ),
        *vector_limits("imm0", "src", 37, f"{STUB}:1329"),
        *vector_limits("imm1", "src", 37, f"{STUB}:1330-1331"),
        one_of(62, f"{STUB}:1295-1299", "reduce_cmd", ("reset_reduce", "load_reduce", "reduce")),
        Check(number=62, source=f"{STUB}:1330-1331", subject="imm1.presence", find=_loaded),
        *indirect_limits(f"{STUB}:1307-1324", "dst", "src", engines=_VECTOR, beside="src"),
    ),
    # in the legacy namespace too, where AWS tests it: nki/test/test_nki_isa_tensor_scalar_cumulative.py
    legacy=Legacy("tensor_scalar_cumulative", "dst"),
)


def _exponential(reader: Reader) -> dict[str, Result]:
    src = reader.value("src")
    output = np.exp(src - np.asarray(operand_value(reader, "max_value", src), src.dtype))
    command = reader.imm("reduce_cmd") or ReduceCmd.idle.name
    initial = _initial(reader, "reduce_init", len(output)) if _loads(reader, command) else None
    held = accumulate(reader, VECTOR_REGISTERS, alu.of("add"), output, command, initial)
    results: dict[str, Result] = {"dst": output}
    if reader.has("reduce_res"):
        results["reduce_res"] = held[:, None]
    return results


exponential = Row(
    name="exponential",
    signature=(
        Param("dst"),
        Param("src"),
        Param("max_value", 0.0),
        Param("reduce_res", None),
        Param("reduce_cmd", ReduceCmd.idle),
        Param("reduce_init", 0.0),
        NAME_SINCE_03,
    ),
    operands=(
        Operand("dst", Role.write, ON_CHIP, _EXPONENTIAL_OUT, indirect=True),
        Operand("src", Role.read, ON_CHIP, _EXPONENTIAL_IN, indirect=True),
        Operand("max_value", Role.read, ON_CHIP, optional=True, number=True, vector=True),
        Operand("reduce_res", Role.write, ON_CHIP, _EXPONENTIAL_SUM, optional=True, vector=True),
        Operand("reduce_init", Role.read, ON_CHIP, optional=True, number=True, vector=True),
    ),
    engines=only(Engine.vector),
    meaning=_exponential,
    flow={"dst": Flow.elementwise, "reduce_res": Flow.row},
    cost=Cost(
        subject="src",
        per_element=0.25,
        minimum=MIN_INTERVAL,
        formula="max(MIN_II, N/4): four times the throughput of activation with exp",
        source="nki/guides/architecture/trainium3_arch.rst:177-179",
    ),
    source=f"{STUB}:2283-2386",
    limits=(
        *placed_limits("dst", "src", "max_value", "reduce_res", "reduce_init"),
        *same_layout(f"{STUB}:2310-2311", "src", "dst"),
        *(
            AtMost(number=6, source=f"{STUB}:2312", subject=f"{name}.dims", bound=4)
            for name in ("src", "dst")
        ),
        *vector_limits("max_value", "src", 37, f"{STUB}:2337"),
        *column_limits("reduce_res", "src", f"{STUB}:2338"),
        one_of(62, f"{STUB}:2344", "reduce_cmd", ("idle", "reset_reduce", "reduce", "load_reduce")),
        Check(
            number=144,
            source=f"{STUB}:2314",
            subject="reduce_init.presence",
            find=_start_given(required=False),
        ),
        *vector_limits("reduce_init", "src", 37, f"{STUB}:2345"),
        *indirect_limits(f"{STUB}:2316-2334", "dst", "src", engines=_VECTOR, beside="src"),
    ),
    generations=V4,
    releases=SINCE_02,
)


def _activate2(reader: Reader) -> dict[str, Result]:
    values = reader.value("data")
    for step in (0, 1):
        op = reader.imm(f"op{step}")
        if op not in (None, "bypass"):
            operand = operand_value(reader, f"imm{step}", values)
            values = apply(alu.of(op), values, operand, bool(reader.imm(f"reverse{step}")))
    function = act.of(reader.imm("op"))
    if function.needs:
        output = function.fn(values, operand_value(reader, function.needs, values))
    else:
        output = function.fn(values)
    command = reader.imm("reduce_cmd") or ReduceCmd.idle.name
    held = accumulate(reader, REGISTERS, alu.of(reader.imm("reduce_op") or "add"), output, command)
    results: dict[str, Result] = {"dst": output}
    if reader.has("reduce_res"):
        results["reduce_res"] = held[:, None]
    return results


def _pair(call: Call) -> str | None:
    pair = (call.imm("op0"), call.imm("op1"))
    if pair in PAIRS:
        return None
    known = "; ".join(f"{op0} with {op1}" for op0, op1 in PAIRS)
    return f"op0 {pair[0]} with op1 {pair[1]} is not possible, expected one of {known}"


def _immediate(step: int) -> Callable[[Call], str | None]:
    operator, operand = f"op{step}", f"imm{step}"

    def find(call: Call) -> str | None:
        op = call.imm(operator)
        if op in (None, "bypass"):
            return f"reverse{step} is True, but {operator} is {op}" if call.imm(f"reverse{step}") else None
        given = call.has(operand) or call.imm(operand) is not None
        return None if given else f"{operator} {op} needs {operand}"

    return find


def _any_function(call: Call) -> str | None:
    given = call.imm("op")
    function = act.BY_NAME.get(given) if isinstance(given, str) else None
    if function is None or call.release not in function.releases:
        return f"op {given} is no activation function in NKI {call.release}"
    return None


activate2 = Row(
    name="activate2",
    signature=(
        Param("dst"),
        Param("op"),
        Param("data"),
        Param("imm0"),
        Param("imm1"),
        Param("op0"),
        Param("op1"),
        Param("relu_param", 0.0),
        Param("reverse0", False),
        Param("reverse1", False),
        Param("reduce_op", None),
        Param("reduce_res", None),
        Param("reduce_cmd", ReduceCmd.idle),
        NAME,
    ),
    operands=(
        Operand("dst", Role.write, ON_CHIP, indirect=True),
        Operand("data", Role.read, ON_CHIP, indirect=True),
        Operand("imm0", Role.read, ON_CHIP, optional=True, number=True, vector=True),
        Operand("imm1", Role.read, ON_CHIP, optional=True, number=True, vector=True),
        Operand("relu_param", Role.read, ON_CHIP, optional=True, number=True, vector=True),
        Operand("reduce_res", Role.write, ON_CHIP, optional=True, vector=True),
    ),
    engines=only(Engine.scalar),
    meaning=_activate2,
    flow={"dst": Flow.elementwise, "reduce_res": Flow.row},
    cost=Cost(
        subject="data",
        per_element=1.0,
        minimum=MIN_INTERVAL,
        extra="scalar.read_accumulator_cycles",
        extra_for="reduce_res",
        formula="max(MIN_II, N) Scalar cycles and about 64 to read the accumulator, as activation: none is published",
        source=f"{STUB_2_26}:166-172; {STUB}:1639-1640",
    ),
    source=f"{STUB}:1543-1706",
    limits=(
        *placed_limits("dst", "data", "imm0", "imm1", "relu_param", "reduce_res"),
        *same_layout(f"{STUB}:1574-1575", "data", "dst"),
        Check(number=61, source=f"{STUB}:1556-1563", subject="op0.kind", find=_pair),
        *(
            Check(number=61, source=f"{STUB}:1577-1578", subject=f"imm{step}.presence", find=_immediate(step))
            for step in (0, 1)
        ),
        *(
            limit
            for name in ("imm0", "imm1", "relu_param")
            for limit in vector_limits(name, "data", 37, f"{STUB}:1610-1613,1618", fp32=False)
        ),
        SameDtype(number=37, source=f"{STUB}:1576", left="imm1", right="imm0"),
        *column_limits("reduce_res", "data", f"{STUB}:1626"),
        Check(number=53, source="nki/api/nki.api.shared.rst:137-205", subject="op.kind", find=_any_function),
        one_of(61, f"{STUB}:1625", "reduce_op", ("add", "maximum", "minimum", "abs_max", "abs_min")),
        one_of(61, f"{STUB}:1642-1647", "reduce_cmd", ("reset_reduce", "reduce", "reset", "idle")),
        *indirect_limits(
            f"{STUB}:1581-1600", "dst", "data", engines=frozenset({Engine.scalar}), beside="data"
        ),
    ),
    generations=V4,
    releases=SINCE_04,
)

ROWS = (tensor_scalar_reduce, tensor_scalar_cumulative, exponential, activate2)
