"""Rows of the Scalar engine."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.isa import act, alu
from nkireview.isa.enums import Engine, ReduceCmd
from nkireview.isa.limit import AtMost, Call, Check, DtypeIn, Limit
from nkireview.isa.row import (
    Bits,
    Cost,
    Flow,
    Operand,
    Param,
    Plan,
    Planned,
    Reader,
    Result,
    Role,
    Row,
    Shapes,
)
from nkireview.isa.rows.arrays import rows_of
from nkireview.isa.rows.common import (
    BEFORE_03,
    MIN_INTERVAL,
    NAME,
    ON_CHIP,
    SHARED,
    STUB,
    STUB_2_26,
    V2,
    column_limits,
    indirect_limits,
    only,
    placed_limits,
    returns,
    same_layout,
    tile_limits,
    vector_limits,
)
from nkireview.isa.rows.staged import activated, operator, staged

REGISTERS = "scalar_accumulator"  # the reader's state that holds the accumulator registers, one for each lane
IDLE = ReduceCmd.idle.name
LANES = 128  # nki/api/nki/isa/__init__.py:1350-1352
ACTIVATION_REDUCE_MAX = 16384  # elements a partition; reported by users of trn2, in no document
OLD_BIAS = frozenset({"float32", "float16", "bfloat16"})


def _known_function(call: Call) -> str | None:
    given = call.imm("op")
    function = act.BY_NAME.get(given) if isinstance(given, str) else None
    if function is None:
        return f"op {given} is no activation function"
    if function.needs:
        return f"op {given} needs {function.needs}, which only activate2 takes"
    if call.hardware.generation not in function.generations or call.release not in function.releases:
        return f"op {given} is no activation function in NKI {call.release} on NeuronCore-{call.hardware.generation}"
    return None


def _bias_number(call: Call) -> str | None:
    bias = call.imm("bias")
    if call.has("bias") or bias is None:
        return None
    return f"bias is the number {bias}, must be a tile with one element a partition on NeuronCore-v2"


def _reciprocal_bias(call: Call) -> str | None:
    if call.imm("op") != "reciprocal" or not (call.has("bias") or call.imm("bias") is not None):
        return None
    return "op reciprocal takes no bias on NeuronCore-v2"


def _reduce_op(call: Call) -> str | None:
    given = call.imm("reduce_op")
    return None if given in (None, "add") else f"reduce_op is {given}, must be add"


def _reduce_cmd(call: Call) -> str | None:
    if call.imm("reduce_cmd") != ReduceCmd.load_reduce.name:
        return None
    return "reduce_cmd is load_reduce, must be one of idle, reset, reduce, reset_reduce"


def _limits(source: str, indirect: str) -> tuple[Limit, ...]:
    """What activation and activation_reduce share."""
    bias = f"{STUB}:1398-1408; release-notes/components/nki.rst:629-633"
    return (
        *tile_limits("dst", "data", "bias", "reduce_res"),
        *placed_limits("scale"),
        *same_layout(source, "data", "dst"),
        *vector_limits("bias", "data", 17, bias, fp32=False),
        Check(number=17, source=f"{STUB}:1406", generations=V2, subject="bias.kind", find=_bias_number),
        Check(number=17, source=f"{SHARED}:256", generations=V2, subject="bias.op", find=_reciprocal_bias),
        DtypeIn(
            number=17,
            source="nki/api/nki/isa/__init__.py at tag v2.28.1",
            releases=BEFORE_03,
            operand="bias",
            allowed=OLD_BIAS,
        ),
        Check(number=48, source=f"{STUB}:1400", subject="bias.dtype", find=_tf32_bias),
        *vector_limits("scale", "data", 37, f"{STUB}:1399"),
        *column_limits("reduce_res", "data", f"{STUB}:1452"),
        Check(number=53, source=f"{SHARED}:137-205", subject="op.kind", find=_known_function),
        Check(number=61, source=f"{STUB}:1348", subject="reduce_op.kind", find=_reduce_op),
        *indirect_limits(indirect, "dst", "data", engines=frozenset({Engine.scalar}), beside="data"),
    )


def _tf32_bias(call: Call) -> str | None:
    if not call.has("bias") or call.dtype("bias") != "tfloat32":
        return None
    return "bias dtype tfloat32 is not allowed, use float32"


def _activated(call: Shapes) -> Plan:
    stages, shape = [], call.shape("data")
    for op, operand, without in (("multiply", "scale", 1), ("add", "bias", 0)):
        if call.has(operand) or call.imm(operand) not in (None, without):
            stages.append(operator(call, alu.of(op), operand, shape))
    return staged(call, "data", [*stages, activated(act.of(call.imm("op")))])


def _output(reader: Reader) -> NDArray[Any]:
    """The output of an activation as an array of its own."""
    output = _activated(reader).result(reader)
    assert not isinstance(output, Bits)
    return output


def lane_results(op: alu.AluOp, output: NDArray[Any]) -> NDArray[Any]:
    """The reduction of each partition, of shape (P,)."""
    return alu.reduce_fn(op)(rows_of(output), (1,))


def _sums(reader: Reader, output: NDArray[Any]) -> NDArray[Any]:
    return lane_results(alu.of(reader.imm("reduce_op") or "add"), output)


def registers_of(reader: Reader, file: str, lanes: int) -> NDArray[Any]:
    """A copy of the accumulator registers that the reader's state keeps under that name, at least so many."""
    registers = np.zeros(max(LANES, lanes), reader.compute)
    held = reader.state.get(file)
    if held is not None:
        registers[: held.size] = held[: registers.size]
    return registers


def _activation_plan(call: Shapes) -> Plan | None:
    reduces = (call.imm("reduce_cmd") or IDLE) != IDLE or call.has("reduce_res")
    return None if reduces else _activated(call)


def _reducing_activation(reader: Reader) -> dict[str, Result]:
    output = _output(reader)
    results: dict[str, Result] = {"dst": output}
    command = reader.imm("reduce_cmd") or IDLE
    if command == IDLE:
        # Kernels leave reduce_cmd out and expect the sum of this call; read literally they would get old registers.
        fresh = reader.imm("reduce_op") is not None
        sums = _sums(reader, output) if fresh else registers_of(reader, REGISTERS, len(output))[: len(output)]
        results["reduce_res"] = sums[:, None]
        return results
    registers = registers_of(reader, REGISTERS, len(output))
    lanes = slice(output.shape[0])
    if command in (ReduceCmd.reset.name, ReduceCmd.reset_reduce.name):
        registers[:] = 0
    if command != ReduceCmd.reset.name:
        registers[lanes] += _sums(reader, output)
    reader.state[REGISTERS] = registers
    if reader.has("reduce_res"):
        results["reduce_res"] = registers[lanes, None]
    return results


def _activation_reduce(reader: Reader) -> dict[str, Result]:
    output = _output(reader)
    registers = np.zeros(max(LANES, output.shape[0]), reader.compute)
    lanes = slice(output.shape[0])
    registers[lanes] = _sums(reader, output)
    reader.state[REGISTERS] = registers
    results: dict[str, Result] = {"dst": output}
    if reader.has("reduce_res"):
        results["reduce_res"] = registers[lanes, None]
    return results


_OPERANDS = (
    Operand("dst", Role.write, ON_CHIP, indirect=True),
    Operand("data", Role.read, ON_CHIP, indirect=True),
    Operand("bias", Role.read, ON_CHIP, optional=True, number=True, vector=True),
    Operand("scale", Role.read, ON_CHIP, optional=True, number=True, vector=True),
    Operand("reduce_res", Role.write, ON_CHIP, optional=True, vector=True),
)
_COST_SOURCE = f"{STUB_2_26}:166-172,235-241; nki/guides/architecture/trainium_inferentia2_arch.rst:486-493"

activation = Row(
    name="activation",
    signature=(
        Param("dst"),
        Param("op"),
        Param("data"),
        Param("bias", None),
        Param("scale", 1.0),
        Param("reduce_op", None),
        Param("reduce_res", None),
        Param("reduce_cmd", ReduceCmd.idle),
        NAME,
    ),
    operands=_OPERANDS,
    engines=only(Engine.scalar),
    meaning=Planned(_activation_plan, _reducing_activation),
    flow={"dst": Flow.elementwise, "reduce_res": Flow.row},
    cost=Cost(
        subject="data",
        per_element=1.0,
        minimum=MIN_INTERVAL,
        extra="scalar.read_accumulator_cycles",
        extra_for="reduce_res",
        formula="max(MIN_II, N) Scalar cycles; reading the accumulator adds about 64",
        source=_COST_SOURCE,
    ),
    source=f"{STUB}:1336-1459",
    limits=(
        *_limits(f"{STUB}:1414-1418", f"{STUB}:1420-1438"),
        Check(number=61, source=f"{STUB}:1354-1358", subject="reduce_cmd.kind", find=_reduce_cmd),
    ),
    legacy=returns("activation"),
)

activation_reduce = Row(
    name="activation_reduce",
    signature=(
        Param("dst"),
        Param("op"),
        Param("data"),
        Param("reduce_op"),
        Param("reduce_res"),
        Param("bias", None),
        Param("scale", 1.0),
        NAME,
    ),
    operands=_OPERANDS,
    engines=only(Engine.scalar),
    meaning=_activation_reduce,
    flow={"dst": Flow.elementwise, "reduce_res": Flow.row},
    cost=Cost(
        subject="data",
        per_element=1.0,
        minimum=MIN_INTERVAL,
        extra="scalar.read_accumulator_cycles",
        extra_for="reduce_res",
        formula="max(MIN_II, N) + MIN_II Scalar cycles",
        source=_COST_SOURCE,
    ),
    source=f"{STUB}:1461-1541",
    limits=(
        *_limits(f"{STUB}:1414-1418", f"{STUB}:1499-1517"),
        AtMost(
            number=65,
            source="awslabs/nki-autotune .claude/rules/learnings.md:32",
            subject="data.free",
            bound=ACTIVATION_REDUCE_MAX,
        ),
    ),
    legacy=returns("activation_reduce"),
)

ROWS = (activation, activation_reduce)
