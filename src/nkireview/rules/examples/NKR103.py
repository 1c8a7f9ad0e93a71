"""Two tiles overlap by their addresses: 512 fp32 elements are 2048 bytes, the second begins at byte 1024."""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np


def added(x, second):
    """x [256, 512] -> x[:128] + x[128:]; the second tile begins at byte `second`."""
    out = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    a = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf, name="a", address=(0, 0))
    b = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf, name="b", address=(0, second))
    nisa.dma_copy(dst=a, src=x[0:128, :])
    nisa.dma_copy(dst=b, src=x[128:256, :])
    total = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf, name="total", address=(0, 8192))
    nisa.tensor_tensor(dst=total, data1=a, data2=b, op=nl.add)
    nisa.dma_copy(dst=out, src=total)
    return out


@nki.jit
def bad(x):
    """x [256, 512] fp32."""
    return added(x, 1024)


@nki.jit
def good(x):
    """x [256, 512] fp32."""
    return added(x, 2048)


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((256, 512)).astype(np.float32)]


def reference(x):
    return x[:128] + x[128:]
