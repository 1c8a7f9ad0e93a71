"""Orders: the sums of a Program, taken in another order than NumPy's, in the precision that they are kept in.

What changes: matmuls (products are added to PSUM one after the other, or in blocks), sums along the free axes, and
sums of an instruction's own results where these are stored in float32. Statistics, scans and collectives keep theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.diagnosis.arithmetic import Stored, Work
from nkireview.diagnosis.matrices import matrices
from nkireview.execute import Core, Operands, Step
from nkireview.execute.matmul import Matmul
from nkireview.execute.storage import Operand

Array = NDArray[Any]
BLOCK = 16
"""Products that a block adds up before it is added on."""


class Order(Enum):
    """How the terms of a sum are added."""

    sequential = "one after the other"
    reversed = "from the last to the first"
    shuffled = "in random order"
    blocks = "in blocks of 16"
    pairwise = "in pairs"


@dataclass(eq=False)
class Ordered:
    """An `around` of `execute` for the storage policy; `seed` chooses the random order."""

    kinds: Sequence[Work]
    of: Sequence[int]
    order: Order
    seed: int = 0

    def __call__(self, step: Step, core: Core, index: int, operands: Operands) -> None:
        """Run an instruction, its sums in this order."""
        work = self.kinds[self.of[index]]
        for write in work.writes:
            operand = operands[write.slot]
            if write.sums and operand is not None and operand.plain and operand.form.dtype == np.float32:
                return self._summed(step, core, index, operands, operand, write)
        return step.run(core, index, operands)

    def _summed(
        self, step: Step, core: Core, index: int, operands: Operands, operand: Operand, write: Stored
    ) -> None:
        if write.sums == "matmul" and isinstance(step, Matmul):
            old = np.array(operand.read()) if step.adds(operand) else None
            step.run(core, index, operands)
            terms = matrices(step, core, operands, operand.form.size)
            if terms is not None:
                left, right = self._arranged(terms[0]), self._arranged(terms[1])
                start = np.zeros(operand.form.shape, np.float32) if old is None else old
                total = self._matmul(start.reshape(left.shape[1], -1), left, right)
                operand.target()[...] = total.reshape(operand.form.shape)
            return
        source = operands[write.summed] if write.summed >= 0 else None
        negated = bool(step.immediates.get("negate") or step.immediates.get("reduce_res_negate"))
        before = None if source is None or write.sums != "reduce" else np.array(source.load(core.formats))
        step.run(core, index, operands)
        if source is None or write.sums not in ("reduce", "results"):
            return
        values = before if before is not None else np.array(source.load(core.formats))
        if write.sums == "results" and (source.form.dtype != np.float32 or not _fresh(step)):
            return
        rows = values.reshape(len(values), -1)
        if values.dtype == np.float32 and rows.shape[0] == operand.form.size:
            total = self._line(self._arranged(rows.T))
            operand.target()[...] = (-total if negated else total).reshape(operand.form.shape)
        return

    def _arranged(self, terms: Array) -> Array:
        """The terms, along the first axis, in the order in which they are added."""
        if self.order is Order.reversed:
            return terms[::-1]
        if self.order is Order.shuffled:
            return terms[np.random.default_rng(self.seed).permutation(len(terms))]
        return terms

    def _matmul(self, start: Array, left: Array, right: Array) -> Array:
        if self.order is Order.blocks:
            for at in range(0, len(left), BLOCK):
                start = start + left[at : at + BLOCK].T @ right[at : at + BLOCK]
            return start
        if self.order is Order.pairwise:
            return start + _halved(left, right)
        start = start.copy()
        for one, other in zip(left, right, strict=True):
            start += one[:, None] * other
        return start

    def _line(self, terms: Array) -> Array:
        """The sum over the first axis."""
        if self.order is Order.blocks:
            parts = np.add.reduceat(terms, np.arange(0, len(terms), BLOCK), axis=0)
            return np.asarray(np.add.accumulate(parts, axis=0)[-1])
        if self.order is Order.pairwise:
            while len(terms) > 1:
                odd = terms[len(terms) // 2 * 2 :]
                terms = np.concatenate([terms[0 : len(terms) // 2 * 2 : 2] + terms[1::2], odd])
            return np.asarray(terms[0])
        return np.asarray(np.add.accumulate(terms, axis=0)[-1])


def _halved(left: Array, right: Array) -> Array:
    if len(left) <= 2:
        return np.asarray(left.T @ right)
    half = len(left) // 2
    return _halved(left[:half], right[:half]) + _halved(left[half:], right[half:])


def _fresh(step: Step) -> bool:
    """True where a sum of results starts at nothing."""
    return step.immediates.get("reduce_cmd") in (None, "reset_reduce", "idle")
