"""Two products share one of three banks of PSUM by their explicit addresses.

On hardware: the second matmul overwrites the second bank of the first product before it is copied out. The twin gives
the second product the banks after it. Rests on constraints 12 and 16.
"""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {"code": "NKR103", "target": "trn2", "severity": "blocker"}


BANK = 2048


def operand(x, byte):
    """x [128, 128] fp32 in SBUF at an address of its own."""
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf, address=(0, byte))
    nisa.dma_copy(dst=tile, src=x)
    return tile


@nki.jit
def bad(x, y):
    """x, y [128, 128] fp32 -> x.T @ y beside y.T @ x."""
    out = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.shared_hbm)
    a, b = operand(x, 0), operand(y, 1024)
    p = nl.ndarray((128, 640), dtype=nl.float32, buffer=nl.psum, name="p", address=(0, 0))
    q = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum, name="q", address=(0, BANK))
    nisa.nc_matmul(dst=p[:, 512:640], stationary=a, moving=b)
    nisa.nc_matmul(dst=q, stationary=b, moving=a)  # first
    s = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf, address=(0, 4096))
    nisa.tensor_copy(dst=s[:, 0:128], src=p[:, 512:640])  # second
    nisa.tensor_copy(dst=s[:, 128:256], src=q)
    nisa.dma_copy(dst=out, src=s)
    return out


@nki.jit
def good(x, y):
    """x, y [128, 128] fp32 -> x.T @ y beside y.T @ x; q lies behind p."""
    out = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.shared_hbm)
    a, b = operand(x, 0), operand(y, 1024)
    p = nl.ndarray((128, 640), dtype=nl.float32, buffer=nl.psum, name="p", address=(0, 0))
    q = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum, name="q", address=(0, 2 * BANK))
    nisa.nc_matmul(dst=p[:, 512:640], stationary=a, moving=b)
    nisa.nc_matmul(dst=q, stationary=b, moving=a)
    s = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf, address=(0, 4096))
    nisa.tensor_copy(dst=s[:, 0:128], src=p[:, 512:640])
    nisa.tensor_copy(dst=s[:, 128:256], src=q)
    nisa.dma_copy(dst=out, src=s)
    return out


def inputs(seed=0):
    draw = np.random.default_rng(seed).standard_normal
    return [draw((128, 128)).astype(np.float32), draw((128, 128)).astype(np.float32)]


def reference(x, y):
    return np.concatenate([x.T @ y, y.T @ x], axis=1)
