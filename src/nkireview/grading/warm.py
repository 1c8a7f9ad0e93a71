"""One review of a kernel of ours: what is loaded at the first use is then there in every process forked afterwards."""

from __future__ import annotations

import tempfile
from pathlib import Path

from nkireview.requests import from_file
from nkireview.review import review
from nkireview.runner import ForkServer

SOURCE = """\
import nki
import nki.isa as nisa
import nki.language as nl


def reference(x):
    return x * 2.0


@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=out, src=tile)
    return out
"""


def warm_up(server: ForkServer) -> None:
    """Review a kernel that doubles a tile, and forget the result."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "warm.py")
        file.write_text(SOURCE, encoding="utf-8")
        request = from_file(
            file,
            kernel="kernel",
            reference=f"{file}:reference",
            inputs=("x=f32[128,64]",),
            inputs_from=None,
            target=None,
            nki=None,
            lnc=None,
        )
        review(request, server)
