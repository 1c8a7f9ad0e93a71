"""Linear layer with int8 weights of one scale a channel: silu(scale * (W^T x) + bias), channels by tokens.

True cause: the bias is added to the raw accumulator and is scaled with it, scale * (W^T x + bias), where it
belongs behind the scale: the order of an epilogue whose bias is an int32 in units of the scale. The line is
`dst=linear, data=product, op0=nl.add, operand0=shift, op1=nl.multiply, operand1=factor`.
"""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "b49",
    "cause": "bias-before-scale",
    "also": ("bias-scaled", "epilogue-order", "scale-and-bias-order", "step-order"),
    "dtypes": ("float32", "bfloat16", "float16"),
    "shapes": ((128, 128, 128), (96, 256, 160), (600, 200, 300)),
}
TOKENS = 512


def _epilogue(channels, count, product, factor, shift, dtype, bias_first):
    """silu of the dequantised product with its bias."""
    linear = nl.ndarray((channels, count), dtype=nl.float32, buffer=nl.sbuf)
    if bias_first:
        nisa.tensor_scalar(
            dst=linear, data=product, op0=nl.add, operand0=shift, op1=nl.multiply, operand1=factor
        )
    else:
        nisa.tensor_scalar(
            dst=linear, data=product, op0=nl.multiply, operand0=factor, op1=nl.add, operand1=shift
        )
    result = nl.ndarray((channels, count), dtype=dtype, buffer=nl.sbuf)
    nisa.activation(dst=result, op=nl.silu, data=linear)
    return result


def _linear(x, weight, scale, bias, bias_first):
    depth, tokens = x.shape
    width = weight.shape[1]
    out = nl.ndarray((width, tokens), dtype=x.dtype, buffer=nl.shared_hbm)
    for channel in range(0, width, 128):
        channels = min(128, width - channel)
        factor = nl.ndarray((channels, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=factor, src=scale[channel : channel + channels, :])
        shift = nl.ndarray((channels, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=shift, src=bias[channel : channel + channels, :])
        for token in range(0, tokens, TOKENS):
            count = min(TOKENS, tokens - token)
            product = nl.ndarray((channels, count), dtype=nl.float32, buffer=nl.psum)
            for at in range(0, depth, 128):
                k = min(128, depth - at)
                packed = nl.ndarray((k, channels), dtype=nl.int8, buffer=nl.sbuf)
                nisa.dma_copy(dst=packed, src=weight[at : at + k, channel : channel + channels])
                stationary = nl.ndarray((k, channels), dtype=x.dtype, buffer=nl.sbuf)
                nisa.tensor_copy(dst=stationary, src=packed)
                moving = nl.ndarray((k, count), dtype=x.dtype, buffer=nl.sbuf)
                nisa.dma_copy(dst=moving, src=x[at : at + k, token : token + count])
                nisa.nc_matmul(dst=product, stationary=stationary, moving=moving, accumulate=at > 0)
            result = _epilogue(channels, count, product, factor, shift, x.dtype, bias_first)
            nisa.dma_copy(dst=out[channel : channel + channels, token : token + count], src=result)
    return out


@nki.jit
def honest(x, weight, scale, bias):
    """Scaled, then the bias."""
    return _linear(x, weight, scale, bias, False)


@nki.jit
def defective(x, weight, scale, bias):
    """The bias, then scaled."""
    return _linear(x, weight, scale, bias, True)


def inputs(shape, dtype, seed):
    """Tokens, depth and channels; products of a deviation of about 1 and biases of the same size."""
    tokens, depth, width = shape
    random = np.random.default_rng(seed)
    x = random.standard_normal((depth, tokens)).astype(getattr(ml_dtypes, dtype, dtype))
    weight = np.clip(np.rint(40.0 * random.standard_normal((depth, width))), -127, 127).astype(np.int8)
    scale = (random.uniform(0.5, 1.5, (width, 1)) / (40.0 * np.sqrt(depth))).astype(np.float32)
    bias = (1.2 * random.standard_normal((width, 1))).astype(np.float32)
    return [x, weight, scale, bias]


def reference(x, weight, scale, bias):
    """The layer with its weights dequantised first."""
    dequantised = weight.astype(np.float64) * scale.astype(np.float64)[:, 0]
    linear = dequantised.T @ x.astype(np.float64) + bias.astype(np.float64)
    return linear / (1.0 + np.exp(-linear))
