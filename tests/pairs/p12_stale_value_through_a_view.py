"""What a reshaped view writes is read through the tile itself, as if it still held the input.

On hardware: a view has no memory of its own, so the second product reads what the first one left. The twin, which
writes through the same view and reads it in the right order, is plain overwriting in program order. No
line can be named: what the program does is defined, and only its value tells that another one was meant. Rests on
constraints 119 and 120 (nki-language-guide: views alias).
"""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {"code": "NKR020", "target": "trn2", "severity": "blocker"}


@nki.jit
def bad(x):
    """x [128, 64] fp32 -> twice its first half, and the sum of x and that in the first half."""
    out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf)
    total = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    halves = tile.reshape((128, 2, 32))
    nisa.tensor_scalar(dst=halves[:, 0, :], data=halves[:, 0, :], op0=nl.multiply, operand0=2.0)
    nisa.tensor_copy(dst=total, src=tile)
    nisa.tensor_tensor(dst=total[:, 0:32], data1=total[:, 0:32], data2=tile[:, 0:32], op=nl.add)
    nisa.dma_copy(dst=out, src=total)
    return out


@nki.jit
def good(x):
    """x [128, 64] fp32 -> x, and three times x in the first half; copied before the view writes."""
    out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf)
    total = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    halves = tile.reshape((128, 2, 32))
    nisa.tensor_copy(dst=total, src=tile)
    nisa.tensor_scalar(dst=halves[:, 0, :], data=halves[:, 0, :], op0=nl.multiply, operand0=2.0)
    nisa.tensor_tensor(dst=total[:, 0:32], data1=total[:, 0:32], data2=tile[:, 0:32], op=nl.add)
    nisa.dma_copy(dst=out, src=total)
    return out


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((128, 64)).astype(np.float32)]


def reference(x):
    return x * np.where(np.arange(64) < 32, 3.0, 1.0)
