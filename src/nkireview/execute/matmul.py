"""The step of a matmul: what PSUM holds decides whether it overwrites or adds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from nkireview.execute import flow, psum
from nkireview.execute.layout import Form
from nkireview.execute.result import NoMeaningError
from nkireview.execute.step import Core, Operands, Step, fitted
from nkireview.execute.storage import Mask, Operand
from nkireview.isa.enums import Engine
from nkireview.isa.row import Bits, Result, Row

ADDS_TO_VALUES = frozenset({"v4"})  # generations on which a matmul may add to what a memset or copy wrote


class Matmul(Step):
    """A matmul: overwrites its place in PSUM or adds to it."""

    def __init__(
        self, row: Row, names: tuple[str, ...], immediates: Mapping[str, Any], asked: Engine
    ) -> None:
        super().__init__(row, names, immediates, asked)
        transposes = bool(immediates.get("is_transpose"))
        accumulate = immediates.get("accumulate")
        self.reads = tuple((at, name) for at, name in self.reads if name != "dst")
        self.writer = psum.TRANSPOSE if transposes else psum.MATMUL
        self._accumulate = False if transposes else accumulate if accumulate is None else bool(accumulate)
        self._plain = (
            row.name == "nc_matmul" and not transposes and immediates.get("perf_mode") in (None, "none")
        )
        self._at = (names.index("dst"), names.index("stationary"), names.index("moving"))

    def run(self, core: Core, index: int, operands: Operands) -> None:
        """See `Step.run`."""
        if not (self._plain and self._directly(core, index, operands)):
            super().run(core, index, operands)

    def _directly(self, core: Core, index: int, operands: Operands) -> bool:
        """Multiply defined matrices into PSUM itself; False where that needs more."""
        at_dst, at_stationary, at_moving = self._at
        dst, stationary, moving = operands[at_dst], operands[at_stationary], operands[at_moving]
        if dst is None or stationary is None or moving is None or not dst.plain:
            return False
        formats = core.formats
        if not matrices(dst.form, stationary.form, moving.form):
            return False
        if not (complete(stationary) and complete(moving)):
            return False
        adds = False
        if self._accumulate is not False:
            known = psum.state(dst) if dst.cell.psum else psum.VALUE
            adds = isinstance(known, int) and known == psum.MATMUL
            if not adds and (self._accumulate or not isinstance(known, int)):
                return False
        if adds and not complete(dst):
            return False
        lines, columns = stationary.load(formats), moving.load(formats)
        held = dst.target()
        if adds:
            product = np.matmul(lines.T, columns, out=core.scratch(dst.form.shape))
            np.add(held, product, out=held)
        else:
            np.matmul(lines.T, columns, out=held)
        self.settle(index, dst, None, None)
        return True

    def adds(self, dst: Operand) -> bool:
        """True where the call would add to some of what `dst` holds."""
        if self._accumulate is not None or not dst.cell.psum:
            return bool(self._accumulate)
        return bool(np.any(np.equal(psum.state(dst), psum.MATMUL)))

    def combine(
        self, core: Core, index: int, target: Operand, result: Result, mask: Mask | None
    ) -> tuple[Result, Mask | None]:
        """The product, or the sum with what is there, rounded once to the destination."""
        added = self._added(core, index, target)
        if added is False:
            return result, mask
        if isinstance(result, Bits):
            raise NoMeaningError("no meaning", "a result of bits cannot be accumulated")
        product = fitted("dst", result, target)
        total = target.load(core.formats) + product
        old = target.mask()
        if added is True:
            return total, flow.both(mask, old)
        return np.where(added, total, product), flow.both(mask, None if old is None else old | ~added)

    def _added(self, core: Core, index: int, target: Operand) -> bool | Mask:
        """Where the old content is added to; notes what is undefined about that."""
        if self._accumulate is False:
            return False
        if not target.cell.psum:
            return bool(self._accumulate)
        known = psum.state(target)
        if self._accumulate is None:
            return known == psum.MATMUL
        generation = core.values.generation
        if np.any(np.equal(known, psum.UNWRITTEN)):
            core.log.instruction(
                "psum accumulate onto undefined",
                index,
                "accumulate=True adds to PSUM that was never written; start with accumulate=False",
            )
        if generation not in ADDS_TO_VALUES and np.any(np.equal(known, psum.VALUE)):
            core.log.instruction(
                "psum accumulate after value init",
                index,
                "accumulate=True adds to PSUM that was written, but not by a matmul, which is undefined on "
                f"NeuronCore-{generation}; start with accumulate=False",
            )
        return True


def matrices(result: Form, left: Form, right: Form) -> bool:
    """True where a product of two matrices of floats can be formed in its place."""
    floats = result.exact and left.kind.kind == right.kind.kind == "float"
    flat = len(left.shape) == len(right.shape) == 2 and left.shape[0] == right.shape[0]
    return floats and flat and result.shape == (left.shape[1], right.shape[1])


def complete(operand: Operand) -> bool:
    """True where every element is defined."""
    return operand.defined or operand.mask() is None
