"""A bf16 tile ends at byte 1024, but the tile after it was placed as if it ended at byte 512.

On hardware: the load of b overwrites the last 256 columns of a before the product reads them; NKI checks no address.
The twin places b where a ends. Rests on constraint 16.
"""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {"code": "NKR103", "target": "trn2", "severity": "blocker"}


@nki.jit
def bad(x, y):
    """x, y [128, 512] bf16 -> x * y."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    a = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf, name="a", address=(0, 0))
    b = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf, name="b", address=(0, 512))
    c = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf, name="c", address=(0, 4096))
    nisa.dma_copy(dst=a, src=x)
    nisa.dma_copy(dst=b, src=y)  # first
    nisa.tensor_tensor(dst=c, data1=a, data2=b, op=nl.multiply)  # second
    nisa.dma_copy(dst=out, src=c)
    return out


@nki.jit
def good(x, y):
    """x, y [128, 512] bf16 -> x * y; b begins where a ends."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    a = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf, name="a", address=(0, 0))
    b = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf, name="b", address=(0, 1024))
    c = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf, name="c", address=(0, 4096))
    nisa.dma_copy(dst=a, src=x)
    nisa.dma_copy(dst=b, src=y)
    nisa.tensor_tensor(dst=c, data1=a, data2=b, op=nl.multiply)
    nisa.dma_copy(dst=out, src=c)
    return out


def inputs(seed=0):
    import ml_dtypes

    draw = np.random.default_rng(seed).standard_normal
    return [draw((128, 512)).astype(ml_dtypes.bfloat16) for _ in range(2)]


def reference(x, y):
    return x * y
