"""Sums that DMAs keep in HBM are loaded for every block of rows; nothing is added to them between these loads.

On hardware: each load brings 256 KiB that are in SBUF already. In the twin a DMA adds the block to the sums before each
of the same loads, so that every load brings something new; what that DMA itself reads never comes to SBUF. Rests on
constraint 126 (nki_perf_guide 75-110).
"""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {"code": "NKR105", "target": "trn2", "severity": "major"}


STEPS = 9


def body(x, every):
    """x [STEPS, 128, 1024] fp32 -> each block, to whose first 512 columns the sums so far are added, and the sums.

    `every`: the sums are over all blocks, else they are the first block alone.
    """
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm, name="out")
    sums = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm, name="sums")
    zero = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
    nisa.memset(zero, 0.0)
    nisa.dma_copy(dst=sums, src=zero)
    for step in range(STEPS):
        block = nl.ndarray((128, 1024), dtype=x.dtype, buffer=nl.sbuf)
        held = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=block, src=x[step])
        if every or step == 0:
            nisa.dma_compute(sums, [sums, block[:, 0:512]], reduce_op=nl.add)
        nisa.dma_copy(dst=held, src=sums)  # first
        nisa.tensor_tensor(dst=block[:, 0:512], data1=block[:, 0:512], data2=held, op=nl.add)
        nisa.dma_copy(dst=out[step], src=block)
    return out, sums


@nki.jit
def bad(x):
    """x [STEPS, 128, 1024] fp32: the first block's columns are added to every block."""
    return body(x, False)


@nki.jit
def good(x):
    """x [STEPS, 128, 1024] fp32: the columns of all blocks up to it are added to every block."""
    return body(x, True)


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((STEPS, 128, 1024)).astype(np.float32)]


def reference(x):
    result = np.array(x)
    result[:, :, :512] += x[0, :, :512]
    return result, x[0, :, :512]


def reference_good(x):
    result, sums = np.array(x), np.cumsum(x[:, :, :512], axis=0)
    result[:, :, :512] += sums
    return result, sums[-1]
