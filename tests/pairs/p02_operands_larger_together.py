"""Each of three tiles fits, but one instruction reads two of them and writes the third: 3 x 72,000 bytes.

On hardware: all operands of an instruction are in SBUF while it runs, so 216,000 of 212,984 usable bytes are needed at
once and no order helps. The twin writes over an operand. Rests on constraints 9 and 10.
"""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {"code": "NKR100", "target": "trn2", "severity": "blocker"}


ROOM = 18000


@nki.jit
def bad(x, y):
    """x, y [128, columns] fp32 -> x + y; the tiles have room for ROOM columns."""
    n = x.shape[1]
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    a = nl.ndarray((128, ROOM), dtype=x.dtype, buffer=nl.sbuf)
    b = nl.ndarray((128, ROOM), dtype=x.dtype, buffer=nl.sbuf)
    c = nl.ndarray((128, ROOM), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=a[:, 0:n], src=x)
    nisa.dma_copy(dst=b[:, 0:n], src=y)
    nisa.tensor_tensor(dst=c[:, 0:n], data1=a[:, 0:n], data2=b[:, 0:n], op=nl.add)  # first
    nisa.dma_copy(dst=out, src=c[:, 0:n])
    return out


@nki.jit
def good(x, y):
    """x, y [128, columns] fp32 -> x + y; the sum takes the place of b."""
    n = x.shape[1]
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    a = nl.ndarray((128, ROOM), dtype=x.dtype, buffer=nl.sbuf)
    b = nl.ndarray((128, ROOM), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=a[:, 0:n], src=x)
    nisa.dma_copy(dst=b[:, 0:n], src=y)
    nisa.tensor_tensor(dst=b[:, 0:n], data1=a[:, 0:n], data2=b[:, 0:n], op=nl.add)
    nisa.dma_copy(dst=out, src=b[:, 0:n])
    return out


def inputs(seed=0):
    draw = np.random.default_rng(seed).standard_normal
    return [draw((128, 64)).astype(np.float32), draw((128, 64)).astype(np.float32)]


def reference(x, y):
    return x + y
