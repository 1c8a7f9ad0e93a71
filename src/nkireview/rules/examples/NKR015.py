"""One of two cores waits at a barrier that the other one never reaches."""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

LNC = 2


def halves(x, waits):
    """Each core its half of x [256, columns] fp32; `waits`: this core waits for the other one."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    first = nl.program_id(0) * 128
    t = nl.ndarray((128, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=x[first : first + 128, :])
    nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=out[first : first + 128, :], src=t)
    if waits:
        nisa.core_barrier(out, (0, 1))
    return out


@nki.jit
def bad(x):
    """x [256, columns] fp32; the first core alone waits."""
    return halves(x, nl.program_id(0) == 0)


@nki.jit
def good(x):
    """x [256, columns] fp32."""
    return halves(x, True)


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((256, 64)).astype(np.float32)]


def reference(x):
    return 2.0 * x
