"""One tile of 56,000 fp32 columns: 224,000 bytes of a partition, of which NeuronCore-v3 lets a kernel use 212,984.

On hardware: the compiler has no room for the tile in any order of the program, and does not split it. The twin lays
each row on 32 partitions. Rests on constraint 9 (nki_direct_allocation of 2.26, sbuf: usable bytes).
"""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {"code": "NKR001", "target": "trn2", "severity": "blocker"}


WIDE = 56000


@nki.jit
def bad(x):
    """x [4, WIDE] fp32 -> 2 x, all columns at once."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((4, WIDE), dtype=x.dtype, buffer=nl.sbuf, name="tile")  # first
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=out, src=tile)
    return out


@nki.jit
def good(x):
    """x [4, WIDE] fp32 -> 2 x, 8,000 columns at a time on four times as many partitions."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((128, WIDE // 32), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x.reshape((128, WIDE // 32)))
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=out.reshape((128, WIDE // 32)), src=tile)
    return out


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((4, WIDE)).astype(np.float32)]


def reference(x):
    return 2.0 * x
