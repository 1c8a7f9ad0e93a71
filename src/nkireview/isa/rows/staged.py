"""Stages: plans that apply one elementwise computation after another to the values of a tile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.isa import act, alu
from nkireview.isa.row import Compute, Plan, Shapes

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Stage:
    """``compute(x, out=out)``, or ``compute(x, y, out=out)`` with a number or a tile as y.

    fit: what gives y from the values of the tile; None where they are it.
    """

    compute: Compute
    number: Array | None = None
    tile: str = ""
    fit: Callable[[Array], Array] | None = None

    def operand(self, arrays: dict[str, Array]) -> tuple[Array, ...]:
        """What follows x among the arguments."""
        if self.number is not None:
            return (self.number,)
        if not self.tile:
            return ()
        values = arrays[self.tile]
        return (values if self.fit is None else self.fit(values),)


def operator(
    call: Shapes, op: alu.AluOp, operand: str, like: tuple[int, ...], reverse: bool = False
) -> Stage:
    """``x <op> y``, or ``y <op> x`` if `reverse`, with y a number or a vector of one element a partition of `like`.

    Raise ValueError where there is neither.
    """
    compute = _compute(op, reverse)
    if op.arity == 1:
        return Stage(compute)
    if call.has(operand):
        return Stage(compute, tile=operand, fit=_spread(call.shape(operand), like))
    number = call.imm(operand)
    if number is None:
        raise ValueError(f"{op.name} takes two operands, {operand} is not given")
    return Stage(compute, np.asarray(number, call.compute))


def combined(call: Shapes, op: alu.AluOp, tile: str, like: tuple[int, ...], reverse: bool = False) -> Stage:
    """``x <op> y``, or ``y <op> x`` if `reverse`, with a tile of as many elements as `like` as y."""
    fit = None if call.shape(tile) == like else lambda values: values.reshape(like)
    return Stage(_compute(op, reverse), tile=tile, fit=fit)


def activated(function: act.Activation) -> Stage:
    """An activation function."""
    if function.ufunc is not None:
        return Stage(function.ufunc)

    def compute(x: Array, *, out: Array) -> None:
        out[...] = function.fn(x)

    return Stage(compute)


def staged(call: Shapes, data: str, stages: Sequence[Stage]) -> Plan:
    """The stages one after the other; the values of `data` themselves where there are none."""
    shape = call.shape(data)
    tiles = tuple(stage.tile for stage in stages if stage.tile)
    if len(stages) == 1:
        return Plan((data, *tiles), shape, _single(stages[0]))
    if not tiles and stages:
        return Plan((data,), shape, _in_place(tuple(stages)))

    def compute(x: Array, *values: Array, out: Array) -> None:
        arrays = dict(zip(tiles, values, strict=True))
        for stage in stages[:-1]:
            room = np.empty(shape, out.dtype)
            stage.compute(x, *stage.operand(arrays), out=room)
            x = room
        if stages:
            stages[-1].compute(x, *stages[-1].operand(arrays), out=out)
        else:
            np.copyto(out, x)

    return Plan((data, *tiles), shape, compute)


def _single(stage: Stage) -> Compute:
    function, number, fit = stage.compute, stage.number, stage.fit
    if number is not None:
        return lambda x, out: function(x, number, out=out)
    if fit is not None:
        return lambda x, y, out: function(x, fit(y), out=out)
    return function


def _in_place(stages: tuple[Stage, ...]) -> Compute:
    first, *others = (_single(stage) for stage in stages)

    def compute(x: Array, *, out: Array) -> None:
        first(x, out=out)
        for other in others:
            other(out, out=out)

    return compute


def _compute(op: alu.AluOp, reverse: bool) -> Compute:
    ufunc, function = op.ufunc, op.fn
    if op.arity == 1:
        if ufunc is not None:
            return ufunc

        def unary(x: Array, *, out: Array) -> None:
            out[...] = function(x)

        return unary
    if ufunc is not None:
        return (lambda x, y, out: ufunc(y, x, out=out)) if reverse else ufunc

    def binary(x: Array, y: Array, *, out: Array) -> None:
        out[...] = function(y, x) if reverse else function(x, y)

    return binary


def _spread(shape: tuple[int, ...], like: tuple[int, ...]) -> Callable[[Array], Array] | None:
    """What makes a vector broadcast over the free dimensions of `like`; None where it does."""
    if shape == (like[0], 1) and len(like) == 2:
        return None
    lanes, ones = like[0], (1,) * (len(like) - 1)
    return lambda values: values.reshape(values.shape[0], -1)[:lanes].reshape(-1, *ones)
