"""Router z-loss: the square of the log-sum-exp of each row of logits.

The defective twin takes log(sum(exp(x))) without subtracting the row's maximum, so that exp overflows to inf (or
underflows to a sum of 0) in rows of large logits: the `memset` of `shift` to 0, in place of the `tensor_reduce`.
"""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "b24",
    "cause": "maximum-not-subtracted",
    "also": ("exp-unshifted",),
    "dtypes": ("float32", "bfloat16", "float16"),
    "shapes": ((128, 64), (256, 160), (300, 128)),
}


def body(logits, shifted):
    rows, experts = logits.shape
    out = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    for start in range(0, rows, 128):
        p = min(128, rows - start)
        tile = nl.ndarray((p, experts), dtype=logits.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=logits[start : start + p, :])
        shift = nl.ndarray((p, 1), dtype=nl.float32, buffer=nl.sbuf)
        if shifted:
            nisa.tensor_reduce(dst=shift, op=nl.maximum, data=tile, axis=(1,), negate=True, keepdims=True)
        else:
            nisa.memset(dst=shift, value=0.0)
        powers = nl.ndarray((p, experts), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=powers, op=nl.exp, data=tile, bias=shift)
        total = nl.ndarray((p, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=total, op=nl.add, data=powers, axis=(1,), keepdims=True)
        nisa.activation(dst=total, op=nl.log, data=total)
        nisa.tensor_tensor(dst=total, data1=total, data2=shift, op=nl.subtract)
        nisa.tensor_tensor(dst=total, data1=total, data2=total, op=nl.multiply)
        nisa.dma_copy(dst=out[start : start + p, :], src=total)
    return out


@nki.jit
def honest(logits):
    return body(logits, True)


@nki.jit
def defective(logits):
    return body(logits, False)


def inputs(shape, dtype, seed):
    rows, _ = shape
    draw = np.random.default_rng(seed)
    centre = np.array([0.0, 120.0, -150.0, 30.0])[np.arange(rows) % 4][:, None]
    return [(draw.standard_normal(shape) * 3 + centre).astype(getattr(ml_dtypes, dtype, dtype))]


def reference(logits):
    x = logits.astype(np.float64)
    top = x.max(-1, keepdims=True)
    return (top + np.log(np.exp(x - top).sum(-1, keepdims=True))) ** 2
