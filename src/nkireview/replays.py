"""Replays: a workload executed in other legal orders, and where an output has other bits than in the ordinary one.

On one core every legal order gives the same bits, since uses of the same bytes keep theirs. An order can change a
result only through memory that the cores of a launch share.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.execute import Execution, OutputValue, execute
from nkireview.program.program import Program
from nkireview.program.reordered import reordered
from nkireview.program.storage import WRITES, Storage
from nkireview.rules.facts import Difference
from nkireview.schedule.dependences import Dependences, dependences
from nkireview.schedule.orders import Policy, orders, seen
from nkireview.schedule.touches import Touches

MOST = 300_000
"""Executed instructions up to which a program is executed in other orders: some seconds for each."""
SHOWN = 8
"""Lines that are named at most."""


@dataclass(frozen=True)
class Order:
    """A way to execute a Program: `policy` permutes its instructions, `first` and `turns` are those of ``execute``."""

    name: str
    policy: Policy | None = None
    first: int = 0
    turns: bool = False


CORES = (Order("cores reversed", first=1), Order("cores by turns", turns=True))
MOVED = (
    Order("DMAs late", Policy.late),
    Order("DMAs early", Policy.early),
    Order("instructions shuffled", Policy.shuffled),
)


class Replays:
    """The other orders of a Program that can matter, and its executions in them.

    `racing`: cores are known to use a place without an order. `seed`: which of the shuffled orders is taken.
    """

    def __init__(self, program: Program, stored: Storage, racing: bool, seed: int) -> None:
        self._program, self._stored, self._seed = program, stored, seed
        self._racing = racing

    @cached_property
    def orders(self) -> tuple[Order, ...]:
        """Those in which some output may have other bits."""
        if not self._share():
            return ()
        return (*CORES, *MOVED) if self._racing else CORES

    def execution(self, order: Order, given: Mapping[int, NDArray[Any]]) -> Execution:
        """The Program on its arguments in that order; writers of outputs are numbered as in the Program."""
        program = self._program
        if order.policy is None:
            return execute(program, given, first=order.first, turns=order.turns)
        moved = orders(program, self._needed, order.policy, self._seed)
        found = execute(reordered(program, moved), given, first=order.first, turns=order.turns)
        return replace(
            found,
            outputs=tuple(
                replace(output, last_writers=tuple(sorted(moved[list(output.last_writers)].tolist())))
                for output in found.outputs
            ),
        )

    def places(self, outputs: tuple[OutputValue, OutputValue]) -> tuple[str, ...]:
        """The lines that store what only one of two values of an output holds, or all that store it."""
        one, two = (set(output.last_writers) for output in outputs)
        columns = self._program.columns
        lines = columns.place[np.array(sorted(one ^ two) or sorted(one), np.int64)].tolist()
        texts = (self._program.place_text(place) for place in lines)
        return tuple(dict.fromkeys(text for text in texts if text))[:SHOWN]

    @cached_property
    def _seen(self) -> Touches:
        return seen(self._program, self._stored)

    @cached_property
    def _needed(self) -> Dependences:
        return dependences(self._program, self._seen)

    def _share(self) -> bool:
        """True where one core writes what another reads or writes."""
        streams = self._program.streams
        if len({stream.core for stream in streams}) < 2:
            return False
        stops = np.array([stream.stop for stream in streams], np.int64)
        core = np.array([stream.core for stream in streams], np.int64)
        touched = self._seen
        by = core[np.searchsorted(stops, touched.instruction, side="right")]
        least, most = np.full(touched.count, len(streams)), np.full(touched.count, -1)
        np.minimum.at(least, touched.cell, by)
        np.maximum.at(most, touched.cell, by)
        written = np.zeros(touched.count, bool)
        written[touched.cell[(touched.use & WRITES) > 0]] = True
        return bool((written & (most > least)).any())


def differences(ordinary: Execution, other: Execution, order: str) -> Iterator[tuple[int, Difference]]:
    """The outputs, by position, that have other bits in another order; a NaN of other bits is the same value."""
    for at, (one, two) in enumerate(zip(ordinary.outputs, other.outputs, strict=True)):
        defined = _defined(one), _defined(two)
        left, right = (
            np.where(mask, output.values.astype(np.float64), np.nan)
            for mask, output in zip(defined, (one, two), strict=True)
        )
        both = defined[0] & defined[1]
        same_bits = _bits(one.values) == _bits(two.values)
        differs = (defined[0] != defined[1]) | (both & ~same_bits & ~(np.isnan(left) & np.isnan(right)))
        count = int(np.count_nonzero(differs))
        if not count:
            continue
        # a value that is undefined or no number in one order counts as the largest difference
        size = np.where(differs, np.nan_to_num(np.abs(left - right), nan=np.inf, posinf=np.inf), -1.0)
        index = tuple(int(axis) for axis in np.unravel_index(int(size.argmax()), size.shape))
        yield at, Difference(one.name, index, float(left[index]), float(right[index]), order, count)


def _defined(output: OutputValue) -> NDArray[np.bool_]:
    return np.ones(output.values.shape, np.bool_) if output.written is None else output.written


def _bits(values: NDArray[Any]) -> NDArray[Any]:
    return values.view(f"u{values.dtype.itemsize}")
