"""Product with int8 weights, quantised in groups of 64 rows, each output channel with a scale for every group.

True cause: each group's partial product is multiplied by the scale of the first group: the defective twin takes
`scales[:, 0]` for every group, where group g needs `scales[:, g]`.
"""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "b29",
    "cause": "wrong-group-scale",
    "also": ("first-group-scale", "scale-index"),
    "dtypes": ("float32", "bfloat16", "float16"),
    "shapes": ((256, 128, 128), (512, 200, 96), (300, 144, 160)),
}
GROUP = 64


def _product(xt, weight, scales, first_only):
    depth, tokens = xt.shape
    channels = weight.shape[1]
    groups = scales.shape[1]
    out = nl.ndarray((channels, tokens), dtype=xt.dtype, buffer=nl.shared_hbm)
    for at in range(0, channels, 128):
        size = min(128, channels - at)
        factors = nl.ndarray((size, groups), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=factors, src=scales[at : at + size, :])
        total = nl.ndarray((size, tokens), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=total, value=0.0)
        for group in range(groups):
            row = group * GROUP
            rows = min(GROUP, depth - row)
            codes = nl.ndarray((rows, size), dtype=weight.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=codes, src=weight[row : row + rows, at : at + size])
            wide = nl.ndarray((rows, size), dtype=xt.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=wide, src=codes)
            x = nl.ndarray((rows, tokens), dtype=xt.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=x, src=xt[row : row + rows, :])
            part = nl.ndarray((size, tokens), dtype=nl.float32, buffer=nl.psum)
            nisa.nc_matmul(dst=part, stationary=wide, moving=x)
            mine = 0 if first_only else group
            scaled = nl.ndarray((size, tokens), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_scalar(dst=scaled, data=part, op0=nl.multiply, operand0=factors[:, mine : mine + 1])
            nisa.tensor_tensor(dst=total, data1=total, data2=scaled, op=nl.add)
        stored = nl.ndarray((size, tokens), dtype=xt.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=stored, src=total)
        nisa.dma_copy(dst=out[at : at + size, :], src=stored)
    return out


@nki.jit
def honest(xt, weight, scales):
    """Each group has its own scale."""
    return _product(xt, weight, scales, False)


@nki.jit
def defective(xt, weight, scales):
    """Each group has the scale of the first."""
    return _product(xt, weight, scales, True)


def inputs(shape, dtype, seed):
    """Activations [depth, tokens], int8 codes [depth, channels], scales [channels, groups] within a factor of 4."""
    depth, tokens, channels = shape
    random = np.random.default_rng(seed)
    xt = random.standard_normal((depth, tokens)).astype(np.dtype(getattr(ml_dtypes, dtype, dtype)))
    weight = random.integers(-127, 128, (depth, channels)).astype(np.int8)
    scales = random.uniform(0.0005, 0.002, (channels, -(-depth // GROUP))).astype(np.float32)
    return [xt, weight, scales]


def reference(xt, weight, scales):
    """(dequantised weight)^T x."""
    spread = np.repeat(scales.astype(np.float64), GROUP, axis=1)[:, : len(weight)]
    return (weight.astype(np.float64).T * spread) @ xt.astype(np.float64)
