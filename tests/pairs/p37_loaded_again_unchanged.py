"""The columns that the first block left in HBM are loaded for every block of rows; nothing is stored there any more.

On hardware: each load brings 256 KiB that are in SBUF already. In the twin every block leaves its columns there before
the same load, so that every load brings something new. Rests on constraint 126 (nki_perf_guide 75-110).
"""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {"code": "NKR105", "target": "trn2", "severity": "major"}


STEPS = 10


def body(x, every):
    """x [STEPS, 128, 640] fp32 -> each block, to whose last columns those of HBM are added, and what is left there.

    `every`: each block leaves its first 512 columns in HBM, else the first block alone does.
    """
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    left = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    for step in range(STEPS):
        block = nl.ndarray((128, 640), dtype=x.dtype, buffer=nl.sbuf)
        held = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=block, src=x[step])
        if every or step == 0:
            nisa.dma_copy(dst=left, src=block[:, 0:512])
        nisa.dma_copy(dst=held, src=left)  # first
        nisa.tensor_tensor(dst=block[:, 128:640], data1=block[:, 128:640], data2=held, op=nl.add)
        nisa.dma_copy(dst=out[step], src=block)
    return out, left


@nki.jit
def bad(x):
    """x [STEPS, 128, 640] fp32: the first block's columns are added to every block."""
    return body(x, False)


@nki.jit
def good(x):
    """x [STEPS, 128, 640] fp32: each block's own columns are added to it."""
    return body(x, True)


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((STEPS, 128, 640)).astype(np.float32)]


def reference(x):
    result = np.array(x)
    result[:, :, 128:] += x[0, :, :512]
    return result, x[0, :, :512]


def reference_good(x):
    result = np.array(x)
    result[:, :, 128:] += x[:, :, :512]
    return result, x[-1, :, :512]
