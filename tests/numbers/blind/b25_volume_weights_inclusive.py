"""Weights of volume rendering: alpha_i times the product of (1 - alpha_j) over j < i.

The defective twin multiplies by the inclusive product, over j <= i, so that each sample is dimmed by itself too: it
reads `transmittance` from column 1 on, where column 0 is meant (the `first` that `defective` passes to `body`).
"""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "b25",
    "cause": "scan-inclusive-for-exclusive",
    "also": (),
    "dtypes": ("float32", "bfloat16", "float16"),
    "shapes": ((128, 128), (256, 96), (200, 300)),
}


def body(alpha, first):
    rays, samples = alpha.shape
    out = nl.ndarray((rays, samples), dtype=alpha.dtype, buffer=nl.shared_hbm)
    for start in range(0, rays, 128):
        p = min(128, rays - start)
        opacity = nl.ndarray((p, samples), dtype=alpha.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=opacity, src=alpha[start : start + p, :])
        passed = nl.ndarray((p, samples), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=passed, data=opacity, op0=nl.multiply, operand0=-1.0, op1=nl.add, operand1=1.0)
        zeros = nl.ndarray((p, samples), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=zeros, value=0.0)
        transmittance = nl.ndarray((p, samples + 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=transmittance[:, 0:1], value=1.0)
        nisa.tensor_tensor_scan(
            dst=transmittance[:, 1 : samples + 1],
            data0=passed,
            data1=zeros,
            initial=1.0,
            op0=nl.multiply,
            op1=nl.add,
        )
        weights = nl.ndarray((p, samples), dtype=alpha.dtype, buffer=nl.sbuf)
        nisa.tensor_tensor(
            dst=weights, data1=opacity, data2=transmittance[:, first : first + samples], op=nl.multiply
        )
        nisa.dma_copy(dst=out[start : start + p, :], src=weights)
    return out


@nki.jit
def honest(alpha):
    return body(alpha, 0)


@nki.jit
def defective(alpha):
    return body(alpha, 1)


def inputs(shape, dtype, seed):
    draw = np.random.default_rng(seed)
    surface = draw.uniform(size=shape) < 0.05
    alpha = np.where(surface, draw.uniform(0.1, 0.6, shape), draw.uniform(1e-4, 4e-3, shape))
    return [alpha.astype(getattr(ml_dtypes, dtype, dtype))]


def reference(alpha):
    a = alpha.astype(np.float64)
    before = np.concatenate([np.ones_like(a[:, :1]), np.cumprod(1 - a, axis=1)[:, :-1]], axis=1)
    return a * before
