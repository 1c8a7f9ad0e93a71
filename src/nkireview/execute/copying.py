"""Steps that move values, and that add in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from nkireview.execute import flow
from nkireview.execute.scattered import shared_places, summed
from nkireview.execute.step import Core, Operands, Step, fitted
from nkireview.execute.storage import Mask, Operand, Origin
from nkireview.isa.enums import Engine
from nkireview.isa.row import Result, Row


class Copy(Step):
    """A copy: between floats without a detour through compute values, where assigning rounds as a store does."""

    def __init__(
        self, row: Row, names: tuple[str, ...], immediates: Mapping[str, Any], asked: Engine
    ) -> None:
        super().__init__(row, names, immediates, asked)
        self._dst, self._src = names.index("dst"), names.index("src")

    def run(self, core: Core, index: int, operands: Operands) -> None:
        """See `Step.run`."""
        dst, src = operands[self._dst], operands[self._src]
        if dst is None or src is None or not (dst.plain and src.plain):
            return super().run(core, index, operands)
        into, out = dst.form, src.form
        same = into.kind is out.kind and into.dtype == out.dtype
        moves = same or out.dtype is into.accepts or into.exact
        if not moves or into.size != out.size or not into.kind.kind == out.kind.kind == "float":
            return super().run(core, index, operands)
        origin, mask = None, None
        if not src.defined:
            mask = src.mask()
            if mask is not None:
                origin = src.cell.origin or Origin(index, src.cell.buffer)
                mask = mask.reshape(into.shape)
        held = src.read()
        dst.target()[...] = held if into.shape == out.shape else held.reshape(into.shape)
        return self.settle(index, dst, mask, origin)


class Sum(Step):
    """A DMA that adds: to elements that are named twice, everything that comes for them.

    Source: read-modify-write, nki/api/nki/isa/__init__.py:2667-2687 (dma_compute), and dst_rmw_op of dma_copy,
    nki/migration/index.rst:456-495.
    """

    def combine(
        self, core: Core, index: int, target: Operand, result: Result, mask: Mask | None
    ) -> tuple[Result, Mask | None]:
        """What is there with the other operands added, where there is indexed."""
        values, shape = core.values, target.form.shape
        names = [name for _, name in self.reads if values.has(name)]
        same = next((name for name in names if values.operand(name).access == target.access), None)
        if target.plain or same is None:
            return result, mask
        total, known = np.zeros(shape, core.formats.compute), None
        for name in names:
            if name == same:
                continue
            total += fitted("dst", values.value(name), target)
            each = values.operand(name).mask()
            known = flow.both(known, None if each is None else each.reshape(shape))
        twice = shared_places(target)
        if twice and self.immediates.get("unique_indices", True):
            text = f"{twice} of {target.form.size} elements are added where another one is added too"
            core.log.instruction("duplicate indices", index, text)
        return summed(target, total, known, core.formats)
