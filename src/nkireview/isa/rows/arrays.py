"""Array helpers of the meanings: rows and vectors of a tile, affine patterns, bits."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.isa import alu
from nkireview.isa.dtypes import DataType
from nkireview.isa.row import Bits, Reader, Result


def affine(pattern: Any, offset: int, channel_multiplier: int, partitions: int) -> NDArray[np.int32]:
    """offset + channel_multiplier * partition + sum(step * index), as 32-bit integers of shape (P, N)."""
    free = np.zeros(1, np.int64)
    for step, count in pattern:
        free = np.add.outer(free, step * np.arange(count, dtype=np.int64)).ravel()
    rows = channel_multiplier * np.arange(partitions, dtype=np.int64)
    # No document says what an overflow does: 32-bit arithmetic that wraps.
    return (offset + rows[:, None] + free[None, :]).astype(np.int32)


def rows_of(values: NDArray[Any]) -> NDArray[Any]:
    """A tile as (partitions, elements a partition)."""
    return values if values.ndim == 2 else values.reshape(values.shape[0], -1)


def spread(values: NDArray[Any], like: NDArray[Any]) -> NDArray[Any]:
    """A vector of one element a partition, shaped to broadcast over the free dimensions of `like`."""
    if values.ndim == like.ndim == 2 and values.shape == (like.shape[0], 1):
        return values
    lanes = rows_of(values)[: like.shape[0]]
    return lanes.reshape(lanes.shape[0], *([1] * (like.ndim - 1)))


def operand_value(reader: Reader, name: str, like: NDArray[Any]) -> Any:
    """A vector operand spread over `like`, or the number in its place; None where it is absent."""
    return spread(reader.value(name), like) if reader.has(name) else reader.imm(name)


def operand_bits(reader: Reader, name: str, like: NDArray[Any]) -> Any:
    """As `operand_value`, in storage; a whole float becomes the integer it stands for."""
    if reader.has(name):
        return spread(bit_pattern(reader.raw(name)), like)
    number = reader.imm(name)
    return int(number) if isinstance(number, float) and number.is_integer() else number


def bit_pattern(raw: NDArray[Any]) -> NDArray[Any]:
    """Storage as integers: integers as they are, anything else as unsigned patterns."""
    return raw if raw.dtype.kind in "iu" else raw.view(f"u{raw.dtype.itemsize}")


def stored_bits(pattern: NDArray[Any], to: DataType) -> Bits:
    """An integer pattern as storage of `to`: cut, or extended with zero bits, to its width."""
    unsigned = pattern.view(f"u{pattern.dtype.itemsize}").astype(f"u{to.storage.itemsize}", copy=False)
    if to.storage.kind == "b":
        return Bits(unsigned != 0)
    return Bits(unsigned.view(to.storage))


def move(reader: Reader, src: str, dst: str) -> Result:
    """A copy: bit for bit between equal dtypes, through a float otherwise."""
    if reader.dtype(src) is reader.dtype(dst):
        return Bits(reader.raw(src))
    return reader.value(src)


def apply(op: alu.AluOp, x: Any, y: Any, reverse: bool) -> NDArray[Any]:
    """``x <op> y``, or ``y <op> x`` if `reverse`; a unary operator takes x alone."""
    if op.arity == 1:
        return op.fn(x)
    return op.fn(y, x) if reverse else op.fn(x, y)
