"""Elementwise arithmetic: rows of Vector, some of them on Scalar or GpSimd by choice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import NDArray

from nkireview.isa import alu
from nkireview.isa.enums import Engine
from nkireview.isa.limit import Call, Check
from nkireview.isa.row import (
    Cost,
    Engines,
    Flow,
    Operand,
    Param,
    Plan,
    Planned,
    Rate,
    Reader,
    Result,
    Role,
    Row,
    Shapes,
)
from nkireview.isa.rows.arrays import (
    apply,
    bit_pattern,
    operand_bits,
    stored_bits,
)
from nkireview.isa.rows.common import (
    ALL,
    ARCH_V3,
    ENGINE,
    HALF,
    INT32,
    MIN_INTERVAL,
    NAME,
    ON_CHIP,
    SCALAR_V3_UP,
    SHARED,
    SINCE_04,
    STUB,
    STUB_2_26,
    V3_UP,
    all_dtypes,
    all_sbuf,
    gpsimd_limits,
    in_psum,
    indirect_limits,
    known_op,
    not_both_psum,
    on_vector,
    only,
    operator_limits,
    performance_modes,
    placed_limits,
    returns,
    same_layout,
    snakes,
    tile_limits,
    vector_limits,
)
from nkireview.isa.rows.staged import combined, operator, staged

_Step = tuple[alu.AluOp, str, bool]  # operator, operand name, reversed


def _exact_integers(call: Call) -> bool:
    op = known_op(call.imm("op"))
    tiles = ("dst", "data1", "data2")
    return (
        op is not None
        and op.int_fn is not None
        and all_dtypes(call, INT32, *tiles)
        and not in_psum(call, *tiles)
    )


def _tensor_tensor_engine(call: Call) -> Engine:
    gpsimd = call.imm("op") == "power" or _exact_integers(call)
    return Engine.gpsimd if gpsimd else Engine.vector


def _exact(call: Shapes, op: alu.AluOp) -> alu.Function | None:
    """The integer form of an operator, where the call takes it."""
    integers = all(call.dtype(name).name in INT32 for name in ("dst", "data1", "data2"))
    return op.int_fn if integers and call.engine is Engine.gpsimd else None


def _tensor_tensor_plan(call: Shapes) -> Plan | None:
    op = alu.of(call.imm("op"))
    if op.kind == "bitvec" or _exact(call, op) is not None:
        return None
    return staged(call, "data1", [combined(call, op, "data2", call.shape("data1"))])


def _tensor_tensor_bits(reader: Reader) -> dict[str, Result]:
    op = alu.of(reader.imm("op"))
    function = _exact(reader, op) or op.fn
    bits1, bits2 = bit_pattern(reader.raw("data1")), bit_pattern(reader.raw("data2"))
    return {"dst": stored_bits(function(bits1, bits2.reshape(bits1.shape)), reader.dtype("dst"))}


def _engine_op(call: Call) -> str | None:
    op = known_op(call.imm("op"))
    engines = op.engines.get(call.hardware.generation, ()) if op else ()
    if call.engine is not Engine.vector or not engines or Engine.vector.name in engines:
        return None
    return f"op {call.imm('op')} runs on {', '.join(engines)}, engine is vector"


TWO_INPUTS_V3 = "measured on trn2: float32 sums of N=1000 and 2000 take 1.22 and 2.29 us of Vector time"


def _one_input_psum(call: Call) -> bool:
    return in_psum(call, "data1") != in_psum(call, "data2")


def _bf16_inputs(call: Call) -> bool:
    simple = call.imm("op") in ("add", "multiply", "subtract")
    contiguous = all(call.measure(name, "stride") == 1 for name in ("data1", "data2", "dst"))
    bf16 = all_dtypes(call, frozenset({"bfloat16"}), "dst", "data1", "data2")
    return simple and contiguous and bf16 and all_sbuf(call, "data1", "data2")


def _half_inputs(call: Call) -> bool:
    return all_dtypes(call, HALF, "dst", "data1", "data2") and all_sbuf(call, "data1", "data2")


def _contiguous_half_inputs(call: Call) -> bool:
    contiguous = all(call.measure(name, "stride") == 1 for name in ("data1", "data2", "dst"))
    return on_vector(call) and contiguous and _half_inputs(call)


tensor_tensor = Row(
    name="tensor_tensor",
    signature=(Param("dst"), Param("data1"), Param("data2"), Param("op"), ENGINE, NAME),
    operands=(
        Operand("dst", Role.write, ON_CHIP, indirect=True),
        Operand("data1", Role.read, ON_CHIP, indirect=True),
        Operand("data2", Role.read, ON_CHIP),
    ),
    engines=Engines(Engine.vector, {Engine.vector: ALL, Engine.gpsimd: ALL}, choose=_tensor_tensor_engine),
    meaning=Planned(_tensor_tensor_plan, _tensor_tensor_bits),
    flow={"dst": Flow.elementwise},
    cost=Cost(
        subject="data1",
        per_element="vector.two_input_cycles",
        minimum=MIN_INTERVAL,
        formula="max(MIN_II, vector.two_input_cycles * N); N with one input in PSUM, for bfloat16 in SBUF, and on "
        "Vector from v3 on; there N/2 for contiguous 16-bit floats in SBUF",
        source=f"{STUB_2_26}:1793-1819; {ARCH_V3}:231-237",
        rates=(
            Rate(1.0, "one input in PSUM, one in SBUF", _one_input_psum, source=f"{STUB_2_26}:1793-1819"),
            Rate(
                0.5,
                "16-bit floats, inputs in SBUF, contiguous",
                _contiguous_half_inputs,
                V3_UP,
                f"{ARCH_V3}:236",
            ),
            Rate(1.0, "on Vector from v3 on", on_vector, V3_UP, TWO_INPUTS_V3),
            Rate(
                1.0,
                "bfloat16 add, multiply or subtract, contiguous, inputs in SBUF",
                _bf16_inputs,
                source=f"{STUB_2_26}:1793-1819",
            ),
        ),
    ),
    source=f"{STUB}:1019-1079",
    limits=(
        *tile_limits("dst", "data1", "data2"),
        *same_layout(f"{STUB}:1021", "data1", "data2", "dst"),
        not_both_psum("data1", "data2", f"{STUB}:1043-1048"),
        *operator_limits(f"{STUB}:1024-1032", ("op",), ("data1", "data2", "dst"), binary=True),
        *gpsimd_limits(f"{STUB}:1038", "data1", "data2", "dst"),
        Check(number=49, source=f"{SHARED}:63-135", subject="engine.op", find=_engine_op),
        *indirect_limits(
            f"{STUB}:1054-1071",
            "dst",
            "data1",
            engines=frozenset({Engine.vector, Engine.gpsimd}),
            beside="data1",
        ),
    ),
    legacy=returns("tensor_tensor"),
)


def _ops(call: Call, *names: str) -> list[alu.AluOp]:
    return [op for op in (known_op(call.imm(name)) for name in names) if op]


def _address_form(call: Call) -> bool:
    """The 32-bit integer form of tensor_scalar, exact on GpSimd: all tiles int32 or uint32, one operand a tile."""
    vectors = [name for name in ("operand0", "operand1") if call.has(name)]
    integers = bool(vectors) and all_dtypes(call, INT32, "dst", "data", *vectors)
    return integers and all(op.int_fn is not None for op in _ops(call, "op0", "op1"))


def _tensor_scalar_engine(call: Call) -> Engine:
    tiles = ("dst", "data", "operand0", "operand1")
    if _address_form(call):
        return Engine.vector if in_psum(call, *tiles) else Engine.gpsimd
    engines = [set(op.engines.get(call.hardware.generation, ())) for op in _ops(call, "op0", "op1")]
    able = set.intersection(*engines) if engines else set()
    if not able or Engine.vector.name in able:
        return Engine.vector
    if Engine.scalar.name in able and in_psum(call, *tiles):
        return Engine.scalar
    return Engine.gpsimd if Engine.gpsimd.name in able else Engine.scalar


def _tensor_scalar_plan(call: Shapes) -> Plan | None:
    steps, shape = _steps(call), call.shape("data")
    if _bitvec(steps) or _takes_integers(call, steps):
        return None
    return staged(call, "data", [operator(call, op, name, shape, reverse) for op, name, reverse in steps])


def _tensor_scalar_bits(reader: Reader) -> dict[str, Result]:
    steps, raw = _steps(reader), reader.raw("data")
    if _bitvec(steps):
        bits = bit_pattern(raw)
        for op, name, reverse in steps:
            bits = apply(op, bits, operand_bits(reader, name, bits), reverse)
    else:
        bits = _exact_steps(reader, steps)
    return {"dst": stored_bits(bits, reader.dtype("dst"))}


def _steps(call: Shapes) -> list[_Step]:
    """The operators that are given."""
    given = [(call.imm(f"op{step}"), f"operand{step}", bool(call.imm(f"reverse{step}"))) for step in (0, 1)]
    return [(alu.of(op), name, reverse) for op, name, reverse in given if op is not None]


def _bitvec(steps: Sequence[_Step]) -> bool:
    return any(op.kind == "bitvec" for op, _, _ in steps)


def _takes_integers(call: Shapes, steps: Sequence[_Step]) -> bool:
    if call.dtype("dst").name not in INT32 or not _integer_operands(call, steps):
        return False
    return call.engine is Engine.gpsimd


def _integer_operands(call: Shapes, steps: Sequence[_Step]) -> bool:
    vectors = [name for _, name, _ in steps if call.has(name)]
    numbers = [call.imm(name) for _, name, _ in steps if not call.has(name)]
    tiles = all(call.dtype(name).name in INT32 for name in ("dst", "data", *vectors))
    whole = all(isinstance(number, int) or float(number).is_integer() for number in numbers)
    return bool(vectors) and tiles and whole and all(op.int_fn is not None for op, _, _ in steps)


def _exact_steps(reader: Reader, steps: Sequence[_Step]) -> NDArray[Any]:
    bits = reader.raw("data")
    for op, name, reverse in steps:
        operand = operand_bits(reader, name, bits)
        assert op.int_fn is not None
        bits = op.int_fn(operand, bits) if reverse else op.int_fn(bits, operand)
    return bits


def operand_present(step: int) -> Callable[[Call], str | None]:
    """What finds an operand that does not go with its operator: missing, or given to one that takes none."""
    operator, operand = f"op{step}", f"operand{step}"

    def find(call: Call) -> str | None:
        op, number = known_op(call.imm(operator)), call.imm(operand)
        given = call.has(operand) or number is not None
        if call.imm(operator) is None:
            return f"{operand} is given without {operator}" if given else None
        if op is None:
            return None
        if op.arity == 2:
            return None if given else f"{operator} {op.name} needs {operand}"
        if call.has(operand) or number not in (None, 0):
            return f"{operator} {op.name} is unary, {operand} must be None or 0"
        return None

    return find


def _whole_numbers(call: Call) -> str | None:
    for step in (0, 1):
        op, number = known_op(call.imm(f"op{step}")), call.imm(f"operand{step}")
        if op and op.kind == "bitvec" and isinstance(number, float):
            return f"operand{step} {number!r} is a float, bitvec operators need integers"
    return None


def _bitvec_or_address(call: Call) -> bool:
    return any(op.kind == "bitvec" for op in _ops(call, "op0", "op1")) or _address_form(call)


def _scalar_combination(call: Call) -> str | None:
    if call.engine is not Engine.scalar:
        return None
    pair = (call.imm("op0"), call.imm("op1"))
    if pair in (("multiply", "add"), ("multiply", None), ("add", None)):
        return None
    return f"op0 {pair[0]} with op1 {pair[1]} cannot run on Scalar: only multiply then add, multiply, or add"


def _gpsimd_operator(call: Call) -> str | None:
    if call.engine is not Engine.gpsimd or _address_form(call):
        return None
    ops = [call.imm(name) for name in ("op0", "op1") if call.imm(name) is not None]
    if "rsqrt" in ops or "power" in ops:
        return None
    return f"op0 {ops[0] if ops else None} cannot run on GpSimd, which tensor_scalar offers for rsqrt only"


def _gpsimd_rsqrt(call: Call) -> bool:
    return call.resolved_engine() is Engine.gpsimd and "rsqrt" in (call.imm("op0"), call.imm("op1"))


def _indirect_address(call: Call) -> str | None:
    found = snakes(call, "dst", "data")
    if not found or not _address_form(call):
        return None
    return f"{found[0]} is a view made by indirect(), which the 32-bit integer address form does not take"


_VECTOR_EXEMPTION = "bitvec operators take integers, and so does the 32-bit integer address form"

tensor_scalar = Row(
    name="tensor_scalar",
    signature=(
        Param("dst"),
        Param("data"),
        Param("op0"),
        Param("operand0"),
        Param("reverse0", False),
        Param("op1", None),
        Param("operand1", None),
        Param("reverse1", False),
        ENGINE,
        NAME,
    ),
    operands=(
        Operand("dst", Role.write, ON_CHIP, indirect=True),
        Operand("data", Role.read, ON_CHIP, indirect=True),
        Operand("operand0", Role.read, ON_CHIP, optional=True, number=True, vector=True),
        Operand("operand1", Role.read, ON_CHIP, optional=True, number=True, vector=True),
    ),
    engines=Engines(Engine.vector, SCALAR_V3_UP, choose=_tensor_scalar_engine),
    meaning=Planned(_tensor_scalar_plan, _tensor_scalar_bits),
    flow={"dst": Flow.elementwise},
    cost=Cost(
        subject="data",
        per_element=1.0,
        minimum=MIN_INTERVAL,
        formula="max(MIN_II, N), with one operator or two; on Vector from v3 on N/4 or N/2 for 16-bit floats, "
        "N/2 for float32 in SBUF",
        source=f"{STUB_2_26}:1676-1682; {ARCH_V3}:222-239; {SHARED}:260-262",
        rates=(
            Rate(4.0, "rsqrt on GpSimd", _gpsimd_rsqrt, source=f"{SHARED}:260-262"),
            *performance_modes("dst", "data"),
        ),
    ),
    source=f"{STUB}:1081-1159",
    limits=(
        *tile_limits("dst", "data"),
        *placed_limits("operand0", "operand1"),
        *same_layout(f"{STUB}:1142-1143", "data", "dst"),
        *operator_limits(f"{STUB}:1096-1103", ("op0", "op1"), ("data", "operand0", "operand1", "dst")),
        Check(number=36, source=f"{STUB}:1089", subject="operand1.kind", find=operand_present(1)),
        Check(
            number=36,
            source=f"{STUB}:1147",
            releases=SINCE_04,
            subject="operand0.kind",
            find=operand_present(0),
        ),
        Check(number=36, source=f"{STUB}:1099-1103", subject="operand0.number", find=_whole_numbers),
        *vector_limits(
            "operand0",
            "data",
            37,
            f"{STUB}:1113-1115",
            exempt=_bitvec_or_address,
            exemption=_VECTOR_EXEMPTION,
        ),
        *vector_limits(
            "operand1",
            "data",
            37,
            f"{STUB}:1113-1115",
            exempt=_bitvec_or_address,
            exemption=_VECTOR_EXEMPTION,
        ),
        *gpsimd_limits(f"{STUB}:399-401", "data", "operand0", "operand1", "dst"),
        Check(number=49, source=f"{STUB}:1156-1158", subject="engine.op", find=_gpsimd_operator),
        Check(
            number=50,
            source=f"{STUB}:1106-1111",
            generations=frozenset({"v3"}),
            subject="engine.combination",
            find=_scalar_combination,
        ),
        *indirect_limits(
            f"{STUB}:1119-1140",
            "dst",
            "data",
            engines=frozenset({Engine.vector, Engine.scalar, Engine.gpsimd}),
            beside="data",
        ),
        Check(number=145, source=f"{STUB}:1124-1126", subject="data.index_form", find=_indirect_address),
    ),
    legacy=returns("tensor_scalar"),
)


def _scalar_tensor_tensor(call: Shapes) -> Plan:
    shape = call.shape("data")
    first = operator(call, alu.of(call.imm("op0")), "operand0", shape, bool(call.imm("reverse0")))
    second = combined(call, alu.of(call.imm("op1")), "operand1", shape, bool(call.imm("reverse1")))
    return staged(call, "data", [first, second])


def _fast_scalar_tensor_tensor(call: Call) -> bool:
    ops = (call.imm("op0"), call.imm("op1")) == ("subtract", "multiply")
    bf16 = all_dtypes(call, frozenset({"bfloat16"}), "data", "operand1")
    return ops and bf16 and call.measure("data", "free") % 2 == 0


scalar_tensor_tensor = Row(
    name="scalar_tensor_tensor",
    signature=(
        Param("dst"),
        Param("data"),
        Param("op0"),
        Param("operand0"),
        Param("op1"),
        Param("operand1"),
        Param("reverse0", False),
        Param("reverse1", False),
        NAME,
    ),
    operands=(
        Operand("dst", Role.write, ON_CHIP),
        Operand("data", Role.read, ON_CHIP),
        Operand("operand0", Role.read, ON_CHIP, optional=True, number=True, vector=True),
        Operand("operand1", Role.read, ON_CHIP),
    ),
    engines=only(Engine.vector),
    meaning=Planned(_scalar_tensor_tensor),
    flow={"dst": Flow.elementwise},
    cost=Cost(
        subject="data",
        per_element="vector.two_input_cycles",
        minimum=MIN_INTERVAL,
        formula="N for even N, data and operand1 bfloat16, op0 subtract, op1 multiply, and on Vector from v3 on; "
        "else 2N",
        source=f"{STUB_2_26}:1215-1230",
        rates=(
            Rate(1.0, "on Vector from v3 on", on_vector, V3_UP, f"as tensor_tensor, {TWO_INPUTS_V3}"),
            Rate(
                1.0,
                "bfloat16 subtract then multiply, even N",
                _fast_scalar_tensor_tensor,
                source=f"{STUB_2_26}:1215-1230",
            ),
        ),
    ),
    source=f"{STUB}:2457-2513",
    limits=(
        *tile_limits("dst", "data", "operand0", "operand1"),
        *same_layout(f"{STUB}:2494-2497", "data", "operand1", "dst"),
        not_both_psum("data", "operand1", f"{STUB}:2480"),
        *operator_limits(
            f"{STUB}:2472-2474", ("op0", "op1"), ("data", "operand0", "operand1", "dst"), bitvec=False
        ),
        Check(number=36, source=f"{STUB}:2504-2507", subject="operand0.kind", find=operand_present(0)),
        # of any dtype (2485), unlike that of tensor_scalar (1114)
        *vector_limits("operand0", "data", 37, f"{STUB}:2498-2499", fp32=False),
    ),
    legacy=returns("scalar_tensor_tensor"),
)


def _reciprocal(reader: Reader) -> dict[str, Result]:
    return {"dst": 1 / reader.value("data")}


reciprocal = Row(
    name="reciprocal",
    signature=(Param("dst"), Param("data"), NAME),
    operands=(Operand("dst", Role.write, ON_CHIP), Operand("data", Role.read, ON_CHIP)),
    engines=only(Engine.vector),
    meaning=_reciprocal,
    flow={"dst": Flow.elementwise},
    cost=Cost(
        subject="data",
        per_element="vector.reciprocal_cycles",
        minimum=MIN_INTERVAL,
        formula="max(MIN_II, vector.reciprocal_cycles * N)",
        source=f"{SHARED}:239-248",
    ),
    source=f"{STUB}:2388-2413",
    limits=(*tile_limits("dst", "data"), *same_layout(f"{STUB}:2407-2409", "data", "dst")),
    legacy=returns("reciprocal"),
)


ROWS = (
    tensor_tensor,
    tensor_scalar,
    scalar_tensor_tensor,
    reciprocal,
)
