"""``nl.no_reorder`` and ``nl.device_print``: what a kernel says about its order and shows of its values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from nkireview.nki.allocate import allocate
from nkireview.nki.errors import Refusal
from nkireview.nki.lowering import instruction, need_tensor
from nkireview.nki.tensor import MemoryRegion, NkiTensor
from nkireview.nki.trace import current
from nkireview.program.prints import PRINTED


@contextmanager
def no_reorder() -> Iterator[None]:
    """Everything recorded inside, also by functions called from there, runs in program order.

    Each instruction depends on the one before it. Device-side loops inside are refused by whoever opens them:
    `Trace.ordered` counts the open blocks.
    """
    trace = current("nl.no_reorder")
    outer, earlier = trace.ordered, trace.on_append
    last = -1

    def chain(index: int) -> None:
        nonlocal last
        if last >= 0:
            trace.builder.depend(index, (last,))
        last = index
        if earlier is not None:
            earlier(index)

    trace.ordered = outer + 1
    if not outer:
        trace.on_append = chain
    try:
        yield
    finally:
        trace.ordered, trace.on_append = outer, earlier


def device_print(print_prefix: str, tensor: NkiTensor) -> None:
    """Copy a tensor in SBUF or HBM to where the runtime reads it; `program.prints` finds what was printed.

    The debug mode also prints it at once.
    """
    what = "nl.device_print"
    trace = current(what)
    if not isinstance(print_prefix, str):
        raise Refusal(f"{what}: print_prefix must be a constant string, got {type(print_prefix).__name__}")
    need_tensor(what, tensor, "tensor")
    name = f"{PRINTED}{print_prefix}"
    shown = allocate(tensor.shape, tensor.dtype, MemoryRegion.private_hbm, name, what=what)
    instruction("dma_copy")(dst=shown, src=tensor)
    trace.event("note", f"{what}({print_prefix!r}) copies {tensor.shape} {tensor.dtype} to the debug stream")
    if trace.shown is not None:
        print(print_prefix, trace.shown(tensor))
