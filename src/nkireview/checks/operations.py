"""Operations: what each instruction touches on chip and computes on the PE array, as columns of the Program."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.checks.counts import multiply_accumulates
from nkireview.isa import dtypes
from nkireview.isa.enums import Engine, Memory
from nkireview.isa.row import Flow, Role
from nkireview.program.call import CallView, Tile
from nkireview.program.interning import by_opcode
from nkireview.program.scope import Scope, distinct_calls
from nkireview.schedule.parameters import Figures

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class _Fact:
    text: int
    engine: int = 0
    touched: int = 0
    sbuf_read: int = 0
    sbuf_write: int = 0
    psum_read: int = 0
    psum_write: int = 0
    products: int = 0
    matmuls: int = 0
    array_flops: int = 0
    transpose_flops: int = 0
    array_ns: float = 0.0
    dtype: int = -1


@dataclass(frozen=True, eq=False)
class Operations:
    """One row for each instruction; what loops repeat counts once here.

    `text` is a position in `texts`, the operands in words; `engine` the value of the `Engine` that runs it.
    `touched`: bytes that an engine reads and writes over all partitions. `sbuf_read` to `psum_write`: bytes of one
    partition, as the Neuron profiler counts what engines do, without bias and scale vectors; 0 for DMAs.
    On the PE array: `products` multiply-accumulates that the result needs; `matmuls` the passes over the array;
    `array_flops` twice the rows times columns times moved elements of all passes, `transpose_flops` what of them
    only transposes; `array_ns` the documented time of that on an array without an idle row or column; `dtype` a
    position in `dtypes` of what is multiplied, -1 for all else.
    """

    text: Ints
    engine: Ints
    touched: Ints
    sbuf_read: Ints
    sbuf_write: Ints
    psum_read: Ints
    psum_write: Ints
    products: Ints
    matmuls: Ints
    array_flops: Ints
    transpose_flops: Ints
    array_ns: NDArray[np.float64]
    dtype: Ints
    texts: tuple[str, ...]
    dtypes: tuple[str, ...]


def operations(scope: Scope, figures: Figures) -> Operations:
    """The operations of a Program; instructions without a row touch and compute nothing."""
    program = scope.program
    reader = _Reader(figures)
    facts = [_Fact(-1)]
    of = np.zeros(len(program), np.int64)
    for code, numbers, accesses in by_opcode(program):
        row = scope.rows.get(program.opcodes[code].name)
        if row is None:
            continue
        calls = distinct_calls(scope, row, program.opcodes[code].operands, numbers, accesses)
        of[numbers] = calls.classes.of + len(facts)
        facts += [reader.fact(call) for call in calls.calls]
    columns: dict[str, Any] = {
        item.name: np.array([getattr(fact, item.name) for fact in facts], _KINDS[str(item.type)])[of]
        for item in fields(_Fact)
    }
    return Operations(**columns, texts=tuple(reader.texts), dtypes=tuple(reader.dtypes))


_KINDS = {"int": np.int64, "float": np.float64}


class _Reader:
    """Facts of distinct calls; equal texts and dtypes are held once."""

    def __init__(self, figures: Figures) -> None:
        self.figures = figures
        self.texts: dict[str, int] = {}
        self.dtypes: dict[str, int] = {}

    def fact(self, call: CallView) -> _Fact:
        """The fact of one call."""
        text = self.texts.setdefault(_text(call), len(self.texts))
        engine = call.resolved_engine()
        if engine is Engine.dma:
            return _Fact(text, engine.value)
        found: dict[str, Any] = {"touched": 0}
        passes = call.row.cost.passes(call) if engine is Engine.tensor else 1
        for operand in call.row.operands:
            if not call.has(operand.name):
                continue
            tile, role = call.tiles[operand.name], operand.role_in(call.immediates)
            found["touched"] += tile.access.size * tile.bits // 8 * (2 if role is Role.accumulate else 1)
            # the profiler counts neither vectors of scalars nor what an accumulating matmul reads of PSUM
            if tile.buffer.memory not in (Memory.sbuf, Memory.psum) or (operand.vector and not role.writes):
                continue
            name = f"{tile.buffer.memory.name}_{'write' if role.writes else 'read'}"
            found[name] = found.get(name, 0) + tile.access.free * tile.bits // 8 * passes
        array = self._array(call, passes) if engine is Engine.tensor else {}
        return _Fact(text, engine.value, **found, **array)

    def _array(self, call: CallView, passes: int) -> dict[str, Any]:
        product = Flow.contract in call.row.flow.values()
        if product and call.has("stationary") and call.has("moving"):
            each = multiply_accumulates(call)
        elif Flow.transpose in call.row.flow.values() and call.has("data"):
            # a transpose multiplies with a square identity of as many rows as it has partitions
            each = call.measure("data", "elements") * call.measure("data", "partitions")
        else:
            return {}
        transposes = not product or bool(call.imm("is_transpose"))
        cells = self.figures.number("tensor.rows") * self.figures.number("tensor.columns")
        cycles = each / cells * call.row.cost.cycles_per_element(call)
        found = {
            "matmuls": passes,
            "array_flops": 2 * each * passes,
            "array_ns": cycles / self.figures.number("tensor.clock_ghz"),
        }
        if transposes:
            return {**found, "transpose_flops": 2 * each}
        kind = self.dtypes.setdefault(call.dtype("moving"), len(self.dtypes))
        return {**found, "products": each, "dtype": kind}


def _text(call: CallView) -> str:
    """The operands in words: ``dst=psum float32[128,512] stationary=sbuf bfloat16[128,128]``."""
    names = [operand.name for operand in call.row.operands if call.has(operand.name)]
    return " ".join(f"{name}={_operand(call.tiles[name])}" for name in names)


def _operand(tile: Tile) -> str:
    memory = tile.buffer.memory
    where = "hbm" if memory is Memory.shared_hbm else memory.name
    shape = ",".join(str(count) for count in tile.access.shape)
    return f"{where} {dtypes.BY_NAME[tile.access.dtype].name}[{shape}]"
