"""Pace: how long executions may go on, by the clock or, where nothing may depend on the machine, by counting them."""

from __future__ import annotations

import time

import numpy as np

from nkireview import hardware
from nkireview.checks.steps import MATMUL
from nkireview.program.program import Program

START, INSTRUCTION, ELEMENT, MULTIPLICATION = 1.5e-3, 8e-5, 3e-9, 4e-11
"""Seconds of an execution, of an instruction, of an element that it reads or writes, and of a multiplication of a
matmul, within a factor of three on one core of 2020."""

SAMPLED, NOISY = 8, 4.0
"""Samples of the noise that are worth their time, and executions that one takes."""


class Pace:
    """What is left of the time for a diagnosis.

    seconds: how long it may take; once: what an execution takes. counted: each execution counts as that, and the clock
    is not looked at, so that the same diagnosis makes the same ones everywhere.
    """

    def __init__(self, seconds: float, once: float, started: float, *, counted: bool) -> None:
        self.seconds, self.once, self.counted = seconds, once, counted
        self._started, self._runs = started, 0.0

    def ran(self, times: float = 1.0) -> None:
        """So many executions were made."""
        self._runs += times

    @property
    def spent(self) -> float:
        """Seconds since the start."""
        return self._runs * self.once if self.counted else time.monotonic() - self._started

    @property
    def left(self) -> float:
        """Seconds that are left; negative where there are none."""
        return self.seconds - self.spent


def samples(seconds: float, once: float) -> int:
    """How many samples of the noise fit into that time where an execution takes `once`; at least one."""
    return max(1, min(SAMPLED, int(seconds / (NOISY * once))))


def nominal(program: Program) -> float:
    """Seconds that one execution takes on an ordinary machine, by the Program alone."""
    columns = program.columns
    if not len(program):
        return START
    ends = np.concatenate([[0], np.cumsum(np.log(np.maximum(columns.axis_count, 1)))])
    sizes = np.append(np.exp(ends[columns.axis_at[1:]] - ends[columns.axis_at[:-1]]), 0.0)
    elements = float(sizes[columns.operand].sum())  # -1, no tile, is the last one
    matmuls = np.array([opcode.name.startswith(MATMUL) for opcode in program.opcodes])
    rows = np.flatnonzero(matmuls[columns.opcode])
    written = np.array(
        [opcode.operands.index("dst") if "dst" in opcode.operands else 0 for opcode in program.opcodes]
    )
    targets = columns.operand[columns.operand_at[rows] + written[columns.opcode[rows]]]
    products = float(sizes[targets].sum()) * hardware.target(program.header.target).partitions
    return START + INSTRUCTION * len(program) + ELEMENT * elements + MULTIPLICATION * products
