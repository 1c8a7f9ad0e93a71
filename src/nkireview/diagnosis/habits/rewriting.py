"""Rewriting: outputs changed as a whole once all of them is stored, and Programs whose operands access other places."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from nkireview.checks.dataflow import Slot
from nkireview.diagnosis.flows.acting import Acting, Float64, operand, values, write
from nkireview.diagnosis.habits.survey import Returned
from nkireview.execute import Core, Operands, Step
from nkireview.execute.storage import Operand
from nkireview.program.program import Program

Positions = NDArray[np.int64]


def positions(target: Operand) -> Positions:
    """Where the elements of an operand lie in its buffer in HBM, in elements."""
    layout = target.cell.layout
    found: Positions = (target.places() - layout.offset // layout.unit) // target.form.split
    return found


class Final(Acting):
    """Changes outputs as a whole, in their shapes, after the last of their stores."""

    def __init__(
        self, outputs: Sequence[Returned], change: Callable[[Float64], Float64], then: Acting | None = None
    ) -> None:
        super().__init__()
        self._outputs, self._change, self._then = tuple(outputs), change, then
        self._of = {index: at for at, each in enumerate(outputs) for index in each.stores}
        self._held: list[dict[int, tuple[Core, Operand]]] = []

    def begin(self) -> None:
        """See `Acting`."""
        self._held = [{} for _ in self._outputs]

    def act(self, step: Step, core: Core, index: int, operands: Operands) -> None:
        """See `Acting`."""
        if self._then is None:
            step.run(core, index, operands)
        else:
            self._then(step, core, index, operands)
        at = self._of.get(index)
        target = None if at is None else operand(step, operands, "dst")
        if at is None or target is None:
            return
        held = self._held[at]
        held[index] = core, target
        if len(held) == len(self._outputs[at].stores):
            self._rewrite(self._outputs[at], held)

    def _rewrite(self, output: Returned, held: Mapping[int, tuple[Core, Operand]]) -> None:
        whole = np.full(int(np.prod(output.shape)), np.nan)
        places = {index: positions(target) for index, (_, target) in held.items()}
        for index, (core, target) in held.items():
            whole[places[index]] = values(core, target)
        changed = self._change(whole.reshape(output.shape)).reshape(-1)
        for index, (core, target) in held.items():
            write(core, target, changed[places[index]])


def rewired(program: Program, given: Mapping[Slot, int]) -> Program:
    """The Program whose operands access other things: access ids by operand."""
    columns = program.columns
    held = columns.operand.copy()
    for slot, access in given.items():
        names = program.opcodes[columns.opcode[slot.instruction]].operands
        held[columns.operand_at[slot.instruction] + names.index(slot.operand)] = access
    return replace(program, columns=replace(columns, operand=held))


def moved(program: Program, given: Mapping[Slot, tuple[int, int]]) -> Program:
    """The Program whose operands lie elsewhere: (access, other base in elements) by operand."""
    columns = program.columns
    new = list(dict.fromkeys(given.values()))
    olds = np.array([access for access, _ in new], np.int64)
    count = len(columns.access_base)
    spans = [np.arange(columns.axis_at[old], columns.axis_at[old + 1]) for old in olds.tolist()]
    axes = np.concatenate([np.arange(len(columns.axis_stride)), *spans]).astype(np.int64)
    ends = columns.axis_at[-1] + np.cumsum([len(span) for span in spans])
    bases = np.array([base for _, base in new], np.int64)
    wider = replace(
        columns,
        access_buffer=np.concatenate([columns.access_buffer, columns.access_buffer[olds]]),
        access_dtype=np.concatenate([columns.access_dtype, columns.access_dtype[olds]]),
        access_base=np.concatenate([columns.access_base, bases]),
        access_partition=np.concatenate([columns.access_partition, columns.access_partition[olds]]),
        axis_at=np.concatenate([columns.axis_at, ends.astype(np.int64)]),
        axis_stride=columns.axis_stride[axes],
        axis_count=columns.axis_count[axes],
    )
    ids = {key: count + at for at, key in enumerate(new)}
    return rewired(replace(program, columns=wider), {slot: ids[key] for slot, key in given.items()})
