"""What calls of NKI show of a migration: form, order and keywords of arguments, and values that lost their meaning."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Mapping
from enum import Enum
from types import MappingProxyType

import numpy as np

from nkireview.checks.migration_reading import (
    BINARY,
    Called,
    Detector,
    Move,
    Reading,
    Seen,
    returns_result,
    short,
    sizes,
)
from nkireview.isa import act, alu, dtypes, enums
from nkireview.isa.migration import migration_table
from nkireview.isa.release import KNOWN, LEGACY, Release
from nkireview.isa.row import REQUIRED

MATMULS = frozenset({"nki.language.matmul", "nki.isa.nc_matmul"})
LEGACY_PARAMETERS = MappingProxyType(
    {"nki.isa.memset": ("shape",), "nki.isa.iota": ("expr",), "nki.isa.affine_select": ("pred",)}
)
"""Parameters of the legacy form alone, beside mask and dtype: nki/api/nki/isa/__init__.py at tag v2.26.1."""
FP32_MIN = float(np.finfo(np.float32).min)
_OPERATORS = ("op", "op0", "op1", "reduce_op", "dst_rmw_op", "comp_op0", "comp_op1", "cmp_op", "compare_op")
_ENUMERATIONS: Mapping[str, tuple[str, type[Enum]]] = MappingProxyType(
    {
        "engine": ("engine", enums.Engine),
        "dge_mode": ("dge_mode", enums.DgeMode),
        "oob_mode": ("oob_mode", enums.OobMode),
        "reduce_cmd": ("reduce_cmd", enums.ReduceCmd),
        "dma_engine": ("dma_engine", enums.DmaEngine),
    }
)
_PSUM_SOURCES = (
    ("nki.language.store", "value", 1),
    ("nki.isa.dma_copy", "src", 1),
    ("nki.language.rsqrt", "x", 0),
    ("nki.language.copy", "x", 0),
)


def accumulates(reading: Reading, call: Called) -> bool:
    """True for the matmul of ``psum += nisa.nc_matmul(...)``."""
    above = reading.parents[call.node]
    return call.name in MATMULS and isinstance(above, ast.AugAssign) and isinstance(above.op, ast.Add)


def _returned(reading: Reading, move: Move) -> Iterator[Seen]:
    for call in reading.calls:
        row = call.row
        if row is None or not returns_result(call) or accumulates(reading, call):
            continue
        params = row.parameters(move.to)
        needed = ", ".join(param.name for param in params if param.default is REQUIRED)
        more = ", ..." if any(param.default is not REQUIRED for param in params) else ""
        change = migration_table().of_construct("returned-result", call.name)
        told = f"{change.replacement}: {call.meant.short}({needed}{more})" if change else ""
        yield _seen("returned-result", call, f"{call.meant.short} without dst", use=told)


def _accumulated(reading: Reading, move: Move) -> Iterator[Seen]:
    for call in reading.calls:
        if accumulates(reading, call):
            yield _seen("psum-accumulation", call, f"+= of {call.meant.short}")


def _order(reading: Reading, move: Move) -> Iterator[Seen]:
    for call in reading.calls:
        row, count = call.row, len(call.node.args)
        if row is None or count < 2 or call.spread or returns_result(call):
            continue
        start = move.from_(call.meant.legacy)
        if start not in row.releases:
            start = row.releases.since or start
        if start == LEGACY and (row.legacy is None or row.legacy.form != "dst"):
            continue
        before = [param.name for param in row.parameters(start)]
        for release in (each for each in KNOWN if start < each <= move.to):
            after = [param.name for param in row.parameters(release)]
            # a parameter that only has another name stays where it is
            moved = [
                old
                for old, new in zip(before[:count], after, strict=False)
                if old != new and (old in after or new in before)
            ]
            if moved:
                what = f"{moved[0]} of {call.meant.short} by position"
                yield _seen("argument-order", call, what, since=release)
                break


def _unknown(reading: Reading, move: Move) -> Iterator[Seen]:
    known = {keyword for change in migration_table().changes for keyword in change.keywords}
    for call in reading.calls:
        row = call.row
        if row is None:
            continue
        names = {param.name for param in row.signature} | known | set(LEGACY_PARAMETERS.get(call.name, ()))
        for item in call.node.keywords:
            if item.arg and item.arg not in names:
                yield _seen(
                    "unknown-keyword", call, f"{item.arg}= of {call.meant.short}", line=item.value.lineno
                )


def _numpy_operators(reading: Reading, move: Move) -> Iterator[Seen]:
    renamed = migration_table().operators
    for call in _of_nki(reading):
        for name, value in _given(call):
            found = reading.numpy_name(value)
            operator = renamed.get(found, found)
            if not found or (
                found not in renamed and operator not in alu.BY_NAME and operator not in act.BY_NAME
            ):
                continue
            where = f"{name}=" if name else "an operator"
            use = f"{name}=nl.{operator}" if name and operator else f"nl.{operator}" if operator else ""
            yield _seen(
                "numpy-operator",
                call,
                f"np.{found} as {where} of {call.meant.short}",
                use=use,
                line=value.lineno,
            )


def _reduction_operators(reading: Reading, move: Move) -> Iterator[Seen]:
    """Functions of nki.language that reduce, where an instruction wants an operator."""
    renamed = migration_table().operators
    for call in _of_nki(reading):
        for name, value in _given(call):
            full = reading.full(value) if call.name.startswith("nki.isa.") else ""
            operator = renamed.get(full.removeprefix("nki.language."), "")
            if operator and isinstance(value, ast.Attribute | ast.Name):
                where = f"{name}=" if name else "an operator"
                what = f"{short(full)} as {where} of {call.meant.short}"
                use = f"{name}=nl.{operator}" if name else f"nl.{operator}"
                yield _seen("reduction-operator", call, what, use=use, line=value.lineno)


def _operators_gone(reading: Reading, move: Move) -> Iterator[Seen]:
    for call in _of_nki(reading):
        start = move.from_(call.meant.legacy)
        for name, value in _given(call):
            full = reading.full(value)
            operator = alu.BY_NAME.get(full.rpartition(".")[2]) if full.startswith("nki.language.") else None
            if operator is None or name not in _OPERATORS or operator.name in act.BY_NAME:
                continue
            until = operator.releases.until
            if until is not None and start < until <= move.to:
                what = f"nl.{operator.name} as {name}= of {call.meant.short}"
                yield _seen("operator-gone", call, what, since=until, line=value.lineno)


def _numpy_dtypes(reading: Reading, move: Move) -> Iterator[Seen]:
    for call in _of_nki(reading):
        if call.name.startswith("nki.isa."):
            continue
        for name, value in _given(call):
            found = reading.numpy_name(value)
            is_dtype = found in dtypes.BY_NAME or found in ("float64", "int64", "uint64", "bool_")
            if is_dtype and name in ("dtype", ""):
                use = (
                    f"nl.{found}, which is documented; NumPy's dtypes are not"
                    if found in dtypes.BY_NAME
                    else ""
                )
                yield _seen("numpy-dtype", call, f"np.{found} as dtype of {call.meant.short}", use=use)


def _enumerations(reading: Reading, move: Move) -> Iterator[Seen]:
    for call in reading.calls:
        if not call.name.startswith(("nki.isa.", "nki.collectives.")):
            continue
        for item in call.node.keywords:
            if item.arg is not None and item.arg in _ENUMERATIONS and isinstance(item.value, ast.Constant):
                number = item.value.value
                if type(number) is not int:
                    continue
                name, kind = _ENUMERATIONS[item.arg]
                member = next((each.name for each in kind if each.value == number), "")
                use = f"{item.arg}=nisa.{name}.{member}" if member else ""
                what = f"{item.arg}={number} of {call.meant.short}"
                yield _seen("integer-enumeration", call, what, use=use, line=item.value.lineno)


def _buffers(reading: Reading, move: Move) -> Iterator[Seen]:
    for call in reading.calls:
        value = call.argument("buffer") if call.name.startswith("nki.language.") else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            what = f"buffer={value.value!r} of {call.meant.short}"
            yield _seen("buffer-name", call, what, use=f"buffer=nl.{value.value}", line=value.lineno)


def _double_row(reading: Reading, move: Move) -> Iterator[Seen]:
    for call in _named(reading, "nki.isa.nc_matmul"):
        value = call.argument("perf_mode")
        if isinstance(value, ast.Constant) and value.value == "double_row_gen3":
            what = "perf_mode='double_row_gen3' of nisa.nc_matmul"
            yield _seen("double-row-name", call, what, line=value.lineno)


def _seeds(reading: Reading, move: Move) -> Iterator[Seen]:
    for call in _named(reading, "nki.language.random_seed"):
        value = call.argument("seed", 0)
        if isinstance(value, ast.Constant):
            yield _seen("seed-number", call, "nl.random_seed of a number")


def _psum_sources(reading: Reading, move: Move) -> Iterator[Seen]:
    for name, parameter, at in _PSUM_SOURCES:
        for call in _named(reading, name):
            value = call.argument(parameter, at)
            tile = reading.tile(value, call.function)
            if tile is not None and tile.memory == "psum" and value is not None:
                what = f"{call.meant.short} of {_root(value)}, which lies in PSUM"
                yield _seen("psum-source", call, what)


def _descriptors(reading: Reading, move: Move) -> Iterator[Seen]:
    for call in _named(reading, "nki.isa.dma_copy"):
        if reading.full(call.argument("dge_mode")) == "nki.isa.dge_mode.hwdge":
            sides = [
                reading.tile(call.argument(name, at), call.function) for at, name in enumerate(("dst", "src"))
            ]
            known = {tile.dtype for tile in sides if tile is not None and tile.dtype}
            if len(known) < 2 and all(tile is not None and tile.dtype for tile in sides):
                continue
            yield _seen("hardware-descriptors", call, "nisa.dma_copy with dge_mode.hwdge")


def _fills(reading: Reading, move: Move) -> Iterator[Seen]:
    for call in _named(reading, "nki.isa.memset"):
        if returns_result(call):
            continue
        tile, value = reading.tile(call.argument("dst", 0), call.function), call.argument("value", 1)
        if tile is None or not isinstance(value, ast.Constant):
            continue
        number = value.value
        if isinstance(number, float) and tile.dtype.startswith(("int", "uint")):
            yield _seen("memset-integer", call, f"nisa.memset of {number} in {tile.dtype}", line=value.lineno)
        if tile.dtype.endswith("_x4") and number != 0:
            yield _seen(
                "memset-packed", call, f"nisa.memset of {number!r} in {tile.dtype}", line=value.lineno
            )


def _last_axis(reading: Reading, move: Move) -> Iterator[Seen]:
    for call in _named(reading, "nki.isa.tensor_reduce"):
        axis = call.argument("axis", 3)
        tile = reading.tile(call.argument("data", 2), call.function)
        flat = tile is not None and len(tile.shape) == 2
        if not returns_result(call) and isinstance(axis, ast.Constant) and axis.value == 1 and not flat:
            yield _seen("last-axis", call, "axis=1 of nisa.tensor_reduce", line=axis.lineno)


def _subtractions(reading: Reading, move: Move) -> Iterator[Seen]:
    for call in _named(reading, "nki.isa.tensor_scalar_reduce"):
        value = call.argument("reduce_op", 4)
        if reading.full(value) == "nki.language.subtract" or reading.numpy_name(value) == "subtract":
            yield _seen("reduce-subtract", call, "reduce_op=nl.subtract of nisa.tensor_scalar_reduce")


def _powers(reading: Reading, move: Move) -> Iterator[Seen]:
    for call in _named(reading, "nki.language.power"):
        if any(isinstance(call.argument(name, at), ast.Constant) for at, name in enumerate(("x", "y"))):
            yield _seen("power-scalar", call, "nl.power with a number")


def _broadcasts(reading: Reading, move: Move) -> Iterator[Seen]:
    for call in _of_nki(reading):
        if call.name.removeprefix("nki.language.") not in BINARY:
            continue
        values = [call.argument(name, at) for at, name in enumerate(("x", "y"))]
        tiles = [reading.tile(value, call.function) for value in values]
        narrow = [
            _root(value)
            for value, tile in zip(values, tiles, strict=True)
            if value is not None and tile is not None and tile.column
        ]
        if len(narrow) == 1 and all(tile is not None for tile in tiles):
            what = f"{call.meant.short} of {narrow[0]}, one element a partition, and another tile"
            yield _seen("broadcast", call, what)


def _views(reading: Reading, move: Move) -> Iterator[Seen]:
    for call in _named(reading, ".ap"):
        assert isinstance(call.node.func, ast.Attribute)
        base = call.node.func.value
        view = isinstance(base, ast.Subscript) or (
            isinstance(base, ast.Name) and base.id in reading.held(call.function).views
        )
        if view and call.argument("offset", 1) is None and not call.spread:
            yield _seen("ap-of-a-view", call, f".ap of a part of {_root(base)} without offset")


def _reshapes(reading: Reading, move: Move) -> Iterator[Seen]:
    for call in _named(reading, ".reshape"):
        assert isinstance(call.node.func, ast.Attribute)
        base = call.node.func.value
        tile = reading.tile(base, call.function) if isinstance(base, ast.Name) else None
        after = sizes(call.argument("shape", 0))
        if tile is not None and all(tile.shape) and all(after) and tile.shape and after:
            if math.prod(tile.shape) != math.prod(after):
                what = f".reshape of {_root(base)} from {tile.shape} to {after}"
                yield _seen("reshape-count", call, what)


def _false_values(reading: Reading, move: Move) -> Iterator[Seen]:
    for call in _named(reading, "nki.isa.range_select"):
        value = call.argument("on_false_value")
        lowest = ("nki.language.fp32.min", "nki.isa.fp32.min")
        if value is not None and reading.full(value) not in lowest and _number(value) != FP32_MIN:
            what = f"on_false_value={ast.unparse(value)} of nisa.range_select"
            yield _seen("false-value", call, what, line=value.lineno)


def _number(node: ast.expr) -> float | None:
    """The number that is written out."""
    sign = 1.0
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        sign, node = -1.0, node.operand
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return float(np.float32(sign * node.value))
    return None


def _engine_alias(reading: Reading, move: Move) -> Iterator[Seen]:
    for node in reading.nodes:
        if isinstance(node, ast.Attribute | ast.Name) and not isinstance(
            reading.parents.get(node), ast.Attribute
        ):
            meant = reading.meant(node)
            if meant is not None and meant.full == "nki.isa.dma_engine":
                yield Seen(
                    "dma-engine-alias", node.lineno, "nisa.dma_engine as a value", meant.legacy, meant.full
                )


def _of_nki(reading: Reading) -> Iterator[Called]:
    for call in reading.calls:
        if call.name.startswith(("nki.isa.", "nki.language.")):
            yield call


def _named(reading: Reading, name: str) -> Iterator[Called]:
    for call in reading.calls:
        if call.name == name:
            yield call


def _given(call: Called) -> Iterator[tuple[str, ast.expr]]:
    """The arguments, each with its keyword; by position, with an empty one."""
    for value in call.node.args:
        yield "", value
    for item in call.node.keywords:
        if item.arg:
            yield item.arg, item.value


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else "a tile"


def _seen(
    construct: str, call: Called, what: str, *, since: Release | None = None, use: str = "", line: int = 0
) -> Seen:
    return Seen(construct, line or call.line, what, call.meant.legacy, call.name, since, use)


CALLS: Mapping[str, Detector] = MappingProxyType(
    {
        "returned-result": _returned,
        "psum-accumulation": _accumulated,
        "argument-order": _order,
        "unknown-keyword": _unknown,
        "numpy-operator": _numpy_operators,
        "reduction-operator": _reduction_operators,
        "operator-gone": _operators_gone,
        "numpy-dtype": _numpy_dtypes,
        "integer-enumeration": _enumerations,
        "buffer-name": _buffers,
        "double-row-name": _double_row,
        "seed-number": _seeds,
        "psum-source": _psum_sources,
        "hardware-descriptors": _descriptors,
        "memset-integer": _fills,
        "memset-packed": _fills,
        "last-axis": _last_axis,
        "reduce-subtract": _subtractions,
        "power-scalar": _powers,
        "broadcast": _broadcasts,
        "ap-of-a-view": _views,
        "reshape-count": _reshapes,
        "false-value": _false_values,
        "dma-engine-alias": _engine_alias,
    }
)
"""Each construct with what finds it; one detector may stand for two."""
