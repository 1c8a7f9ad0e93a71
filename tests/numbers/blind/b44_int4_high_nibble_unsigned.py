"""Linear layer of signed four-bit weights, two in a byte (low: left half of the columns), scaled by column.

True cause: the sign of the high nibble is lost. `w >> 4` of an int8 is an arithmetic shift in CUDA, the right
shift of the Vector engine is a logical one: it gives 0 to 15, and the defective twin takes that for the
weight (`nisa.tensor_copy(dst=right, src=high)`), so that negative weights come out 16 too large. Low nibbles
are fine.
"""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "b44",
    "cause": "logical-shift-loses-sign",
    "also": ("nibble-not-sign-extended", "int4-unsigned"),
    "dtypes": ("float32", "bfloat16", "float16"),
    "shapes": ((128, 256, 256), (64, 384, 128), (200, 320, 192)),  # rows, inputs, outputs
}


def signed(dst, nibble):
    """The number that four bits in two's complement stand for."""
    nisa.tensor_scalar(dst=nibble, data=nibble, op0=nl.bitwise_xor, operand0=8)
    nisa.tensor_scalar(dst=dst, data=nibble, op0=nl.subtract, operand0=8.0)


def linear(x, packed, scales, extend):
    rows, depth = x.shape
    half = packed.shape[1]
    width = 2 * half
    out = nl.ndarray((rows, width), dtype=x.dtype, buffer=nl.shared_hbm)
    line = nl.ndarray((1, width), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=line, src=scales)
    ones = nl.ndarray((1, 128), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=ones, value=1.0)
    bank = nl.ndarray((128, width), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=bank, stationary=ones, moving=line)
    spread = nl.ndarray((128, width), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=spread, src=bank)
    for row in range(0, rows, 128):
        size = min(128, rows - row)
        total = nl.ndarray((size, width), dtype=nl.float32, buffer=nl.psum)
        for k in range(0, depth, 128):
            part = min(128, depth - k)
            raw = nl.ndarray((part, half), dtype=nl.int8, buffer=nl.sbuf)
            nisa.dma_copy(dst=raw, src=packed[k : k + part, :])
            weights = nl.ndarray((part, width), dtype=x.dtype, buffer=nl.sbuf)
            left, right = weights[:, 0:half], weights[:, half:width]
            low = nl.ndarray((part, half), dtype=nl.int8, buffer=nl.sbuf)
            nisa.tensor_scalar(dst=low, data=raw, op0=nl.bitwise_and, operand0=15)
            signed(left, low)
            high = nl.ndarray((part, half), dtype=nl.int8, buffer=nl.sbuf)
            nisa.tensor_scalar(dst=high, data=raw, op0=nl.right_shift, operand0=4)
            if extend:
                signed(right, high)
            else:
                nisa.tensor_copy(dst=right, src=high)
            tile = nl.ndarray((size, part), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x[row : row + size, k : k + part])
            turned = nl.ndarray((part, size), dtype=x.dtype, buffer=nl.psum)
            nisa.nc_transpose(dst=turned, data=tile)
            x_t = nl.ndarray((part, size), dtype=x.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=x_t, src=turned)
            nisa.nc_matmul(dst=total, stationary=x_t, moving=weights, accumulate=k > 0)
        result = nl.ndarray((size, width), dtype=x.dtype, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=result, data1=total, data2=spread[:size, :], op=nl.multiply)
        nisa.dma_copy(dst=out[row : row + size, :], src=result)
    return out


@nki.jit
def honest(x, packed, scales):
    """Both nibbles are extended."""
    return linear(x, packed, scales, True)


@nki.jit
def defective(x, packed, scales):
    """The high nibble is what the shift leaves."""
    return linear(x, packed, scales, False)


def inputs(shape, dtype, seed):
    rows, depth, width = shape
    draw = np.random.default_rng(seed)
    x = draw.standard_normal((rows, depth)).astype(np.dtype(getattr(ml_dtypes, dtype, dtype)))
    packed = draw.integers(-128, 128, (depth, width // 2)).astype(np.int8)
    scales = draw.uniform(0.01, 0.02, (1, width)).astype(np.float32)
    return [x, packed, scales]


def reference(x, packed, scales):
    low = (packed & 15).astype(np.int64)
    low = np.where(low >= 8, low - 16, low)
    high = packed.astype(np.int64) >> 4
    weights = np.concatenate([low, high], axis=1) * scales.astype(np.float64)
    return x.astype(np.float64) @ weights
