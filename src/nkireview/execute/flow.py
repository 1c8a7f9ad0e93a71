"""Definedness: which elements of a result are defined, by the `Flow` of its row, given those of its operands."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from nkireview.execute.reader import MaskValues, Values
from nkireview.execute.storage import Mask
from nkireview.isa.enums import Engine
from nkireview.isa.row import Bits, Flow, Row
from nkireview.isa.rows.vector import reduced_axes

# Operands that steer a selection: they keep their values while the selected ones are replaced by their masks.
STEERING = frozenset({"predicate", "bound0", "bound1"})


def result_mask(
    row: Row, written: str, shape: tuple[int, ...], masks: Mapping[str, Mask], values: Values
) -> Mask | None:
    """Which elements of a written operand of that shape are defined; None where all are.

    masks: the definedness of the tiles it reads that are not fully defined.
    """
    flow = row.flow[written]
    if flow is Flow.nothing or not masks:
        return None
    if flow is Flow.elementwise:
        return _every(_spread(row, name, mask, shape) for name, mask in masks.items())
    if flow is Flow.row:
        axis = values.imm("axis")
        if axis is None:
            return _every(_lines(row, name, mask, shape) for name, mask in masks.items())
        return _every(
            mask.all(axis=reduced_axes(axis, mask.ndim, values.release)).reshape(shape)
            for mask in masks.values()
        )
    if flow is Flow.scan:
        return _every(_scan(_spread(row, name, mask, shape)) for name, mask in masks.items())
    if flow is Flow.whole:
        return np.full(shape, all(mask.all() for mask in masks.values()))
    if flow is Flow.contract:
        return _contract(row, written, shape, masks, values)
    if flow is Flow.transpose and values.generation == "v2" and values.engine is Engine.tensor:
        # A matmul with an identity: what is undefined reaches its whole row (trainium2_arch.rst:197).
        return _every(_column(mask, shape) for mask in masks.values())
    return _moved(row, written, shape, masks, values)


def both(left: Mask | None, right: Mask | None) -> Mask | None:
    """Where both are defined; None is everywhere."""
    if left is None or right is None:
        return right if left is None else left
    return left & right


def _spread(row: Row, name: str, mask: Mask, shape: tuple[int, ...]) -> Mask:
    """The mask of an operand for each element of a result: the same element, or the same partition of a vector."""
    if row.operand(name).vector:
        return lanes_of(mask.reshape(mask.shape[0], -1)[:, 0], shape)
    return elementwise(mask, shape)


def elementwise(mask: Mask, shape: tuple[int, ...]) -> Mask:
    """The same element, in element order; sizes that differ have no such element, and all count."""
    return mask.reshape(shape) if mask.size == math.prod(shape) else np.full(shape, mask.all())


def lanes_of(lanes: Mask, shape: tuple[int, ...]) -> Mask:
    """One truth for each partition, spread over its elements."""
    if lanes.size < shape[0]:
        return np.full(shape, lanes.all())
    return np.broadcast_to(lanes[: shape[0]].reshape(-1, *[1] * (len(shape) - 1)), shape)


def _every(masks: Iterable[Mask]) -> Mask:
    return functools.reduce(np.logical_and, masks)


def _lines(row: Row, name: str, mask: Mask, shape: tuple[int, ...]) -> Mask:
    """All elements of the partition; of all partitions, where the result has another number of them."""
    if mask.shape[0] != shape[0] and not row.operand(name).vector:
        return np.full(shape, mask.all())
    return lanes_of(_all_free(mask), shape)


def _all_free(mask: Mask) -> Mask:
    return np.asarray(mask.reshape(mask.shape[0], -1).all(axis=1))


def _scan(mask: Mask) -> Mask:
    lanes = mask.reshape(mask.shape[0], -1)
    return np.logical_and.accumulate(lanes, axis=1).reshape(mask.shape)


def _column(mask: Mask, shape: tuple[int, ...]) -> Mask:
    return lanes_of(np.asarray(mask.reshape(mask.shape[0], -1).all(axis=0)), shape)


def _contract(
    row: Row, written: str, shape: tuple[int, ...], masks: Mapping[str, Mask], values: Values
) -> Mask:
    if values.imm("is_transpose") and _only_moves(values, "moving" in masks):
        return _moved(row, written, shape, masks, values, frozenset({"moving"}))
    stationary, moving = shape[0], math.prod(shape[1:])
    result = np.ones((stationary, moving), np.bool_)
    for name, mask in masks.items():
        size = stationary if name.startswith("stationary") else moving
        if size == 0 or mask.size % size:
            result &= mask.all()
            continue
        lines = np.asarray(mask.reshape(-1, size).all(axis=0))
        result &= lines[:, None] if name.startswith("stationary") else lines[None, :]
    return result.reshape(shape)


def _only_moves(values: Values, undefined: bool) -> bool:
    """True where the transpose mode moves elements and mixes nothing: from v3 on, with unit vectors as moving."""
    if values.generation == "v2" or undefined:
        return False
    moving = values.value("moving")
    columns = moving.reshape(moving.shape[0], -1)
    return bool(np.isin(columns, (0, 1)).all() and (columns.sum(axis=0) == 1).all())


def _moved(
    row: Row,
    written: str,
    shape: tuple[int, ...],
    masks: Mapping[str, Mask],
    values: Values,
    steering: frozenset[str] = STEERING,
) -> Mask:
    """Let the meaning itself move the masks, as numbers: 1 is defined."""
    result = MaskValues(values, masks, steering).results()[written]
    moved = result.array.view(f"u{result.array.dtype.itemsize}") if isinstance(result, Bits) else result
    found = (moved != 0).reshape(shape)
    return _every([found, *(elementwise(mask, shape) for name, mask in masks.items() if name in steering)])


@dataclass(frozen=True)
class RegisterUse:
    """What an instruction does to the accumulator registers of its engine; see `ReduceCmd`."""

    engine: Engine
    command: str
    reads: bool


LANES = 128


def register_use(row: Row, immediates: Mapping[str, Any]) -> RegisterUse | None:
    """The use of accumulator registers by a row with these immediates."""
    if "reduce_res" not in row.flow:
        return None
    # activation_reduce has no reduce_cmd: it always starts afresh.
    default = "idle" if any(param.name == "reduce_cmd" for param in row.signature) else "reset_reduce"
    command = immediates.get("reduce_cmd") or default
    return RegisterUse(row.engines.default, command, command != "idle" or immediates.get("reduce_op") is None)


class Registers:
    """Which accumulator registers hold a value that depends on undefined memory."""

    def __init__(self) -> None:
        self._defined: dict[Engine, Mask] = {}

    def update(self, use: RegisterUse, rows: int, masks: Mapping[str, Mask]) -> Mask | None:
        """Carry out a use by an instruction of so many partitions; which registers it reads are defined, or None."""
        if use.command in ("reset", "reset_reduce", "load_reduce"):
            self._defined.pop(use.engine, None)
        if masks and use.command not in ("idle", "reset"):
            held = self._defined.get(use.engine, np.ones(max(LANES, rows), np.bool_)).copy()
            held[:rows] &= _every(lanes_of(_all_free(mask), (rows,)) for mask in masks.values())
            self._defined[use.engine] = held
        found = self._defined.get(use.engine) if use.reads else None
        return None if found is None else found[:rows]
