"""Two tiles share bytes of a partition; in the bad kernel also partitions, in the twin they lie on other ones.

On hardware: the load of b overwrites the last 32 rows of a before they are read. Bytes are shared in both kernels, but
SBUF is two-dimensional: tiles on other partitions do not touch. Rests on constraints 2 and 16.
"""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {"code": "NKR103", "target": "trn2", "severity": "blocker"}


@nki.jit
def bad(x):
    """x [96, 64] fp32 -> twice x; rows 64 to 95 come in a tile of their own."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    a = nl.ndarray((64, 64), dtype=x.dtype, buffer=nl.sbuf, name="a", address=(0, 0))
    b = nl.ndarray((32, 64), dtype=x.dtype, buffer=nl.sbuf, name="b", address=(32, 128))
    c = nl.ndarray((32, 64), dtype=x.dtype, buffer=nl.sbuf, name="c", address=(0, 512))
    nisa.dma_copy(dst=a, src=x[0:64, :])
    nisa.dma_copy(dst=b, src=x[64:96, :])  # first
    nisa.tensor_scalar(dst=c, data=b, op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=out[64:96, :], src=c)
    nisa.tensor_scalar(dst=a, data=a, op0=nl.multiply, operand0=2.0)  # second
    nisa.dma_copy(dst=out[0:64, :], src=a)
    return out


@nki.jit
def good(x):
    """x [96, 64] fp32 -> twice x; rows 64 to 95 come in a tile of their own, on the partitions after those of a."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    a = nl.ndarray((64, 64), dtype=x.dtype, buffer=nl.sbuf, name="a", address=(0, 0))
    b = nl.ndarray((32, 64), dtype=x.dtype, buffer=nl.sbuf, name="b", address=(64, 128))
    c = nl.ndarray((32, 64), dtype=x.dtype, buffer=nl.sbuf, name="c", address=(0, 512))
    nisa.dma_copy(dst=a, src=x[0:64, :])
    nisa.dma_copy(dst=b, src=x[64:96, :])
    nisa.tensor_scalar(dst=c, data=b, op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=out[64:96, :], src=c)
    nisa.tensor_scalar(dst=a, data=a, op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=out[0:64, :], src=a)
    return out


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((96, 64)).astype(np.float32)]


def reference(x):
    return 2.0 * x
