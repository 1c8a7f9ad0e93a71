"""Assignment to tensors of the legacy generation: ``t[...] = x`` and ``t += x``."""

from __future__ import annotations

from typing import Any

import numpy as np

from nkireview.nki import fills
from nkireview.nki.errors import Refusal
from nkireview.nki.legacy import calls, state
from nkireview.nki.legacy.broadcast import spread
from nkireview.nki.legacy.calls import record, tiled
from nkireview.nki.legacy.elementwise import paired
from nkireview.nki.legacy.reduced import Combined
from nkireview.nki.legacy.state import FRESH, PRODUCT, ZERO
from nkireview.nki.legacy.tile import Tile
from nkireview.nki.lowering import is_number, token
from nkireview.nki.tensor import MemoryRegion, NkiTensor
from nkireview.nki.trace import current

PSUM = MemoryRegion.psum


def move(target: Tile, value: Any) -> None:
    """What ``target[...] = value`` records."""
    if isinstance(value, Combined):
        value.into(target)
        return
    if isinstance(value, np.generic):
        value = value.item()
    if is_number(value):
        view = calls.part_of(target, None)
        whole = view.size == NkiTensor.whole(view._trace, view.storage).size
        if target.region is PSUM and value == 0 and whole:
            state.zeroed(view)
            return
        if target.on_chip:
            record("memset", {"value": calls.filling(target.kind, value)}, target)
        else:
            fills.assign(view, value)
        return
    if not isinstance(value, Tile):
        raise Refusal(f"assignment to a tensor takes a tensor or a number, got {type(value).__name__}")
    source = spread(value, target.shape)
    name = "tensor_copy" if target.on_chip and source.on_chip else "dma_copy"
    if name == "dma_copy" and target.region is PSUM:
        raise Refusal("a DMA cannot write PSUM; load into SBUF first")
    record(name, {"src": source}, target)
    target.result = None


def accumulate(target: Tile, value: Any) -> None:
    """What ``target += value`` records: a product goes into PSUM itself where that holds products or nothing yet."""
    made = value.result if isinstance(value, Tile) else None
    if made is not None and made.row in state.MATMULS and target.region is PSUM:
        view = calls.part_of(target, made.part) if target.plain else None
        content = state.states(view._trace).content(view) if view is not None else None
        if content in (FRESH, ZERO, PRODUCT):
            index = made.index
            if target.take(value):
                if content == PRODUCT:
                    current("+=").builder.change(index, accumulate=True)
                return
    if is_number(value):
        record("tensor_scalar", {"data": target, "op0": token("add"), "operand0": tiled(value)}, target)
    else:
        paired("add", target, value, dst=target)
    target.result = None
