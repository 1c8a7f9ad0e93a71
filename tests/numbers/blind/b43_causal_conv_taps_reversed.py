"""Short causal depthwise convolution with a bias and SiLU, as in front of a Mamba block.

True cause: the taps are taken in reverse. The weights are those of a cross-correlation, as PyTorch's conv1d
has them: the last tap belongs to the present step, the first to the oldest. The defective twin multiplies the
input of `tap` steps ago by column `tap` of the weights, where column `taps - 1 - tap` is meant
(`column = tap if flipped else taps - 1 - tap`).
"""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "b43",
    "cause": "conv-taps-reversed",
    "also": ("kernel-flipped", "convolution-for-correlation", "operand-transposed"),
    "dtypes": ("float32", "bfloat16", "float16"),
    "shapes": ((128, 256), (256, 384), (200, 300)),  # channels, steps
}
TAPS, CHUNK = 4, 256


def convolve(x, weight, bias, flipped):
    channels, steps = x.shape
    taps = weight.shape[1]
    out = nl.ndarray((channels, steps), dtype=x.dtype, buffer=nl.shared_hbm)
    for channel in range(0, channels, 128):
        p = min(128, channels - channel)
        w = nl.ndarray((p, taps), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=w, src=weight[channel : channel + p, :])
        b = nl.ndarray((p, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=b, src=bias[channel : channel + p, :])
        for step in range(0, steps, CHUNK):
            size = min(CHUNK, steps - step)
            halo = min(step, taps - 1)
            window = nl.ndarray((p, taps - 1 + size), dtype=x.dtype, buffer=nl.sbuf)
            if halo < taps - 1:
                nisa.memset(dst=window[:, 0 : taps - 1 - halo], value=0.0)
            nisa.dma_copy(
                dst=window[:, taps - 1 - halo : taps - 1 + size],
                src=x[channel : channel + p, step - halo : step + size],
            )
            total = nl.ndarray((p, size), dtype=nl.float32, buffer=nl.sbuf)
            nisa.memset(dst=total, value=0.0)
            for tap in range(taps):
                past = taps - 1 - tap
                column = tap if flipped else taps - 1 - tap
                nisa.scalar_tensor_tensor(
                    dst=total,
                    data=window[:, past : past + size],
                    op0=nl.multiply,
                    operand0=w[:, column : column + 1],
                    op1=nl.add,
                    operand1=total,
                )
            result = nl.ndarray((p, size), dtype=x.dtype, buffer=nl.sbuf)
            nisa.activation(dst=result, op=nl.silu, data=total, bias=b)
            nisa.dma_copy(dst=out[channel : channel + p, step : step + size], src=result)
    return out


@nki.jit
def honest(x, weight, bias):
    """The last tap meets the present step."""
    return convolve(x, weight, bias, False)


@nki.jit
def defective(x, weight, bias):
    """The first tap meets the present step."""
    return convolve(x, weight, bias, True)


def inputs(shape, dtype, seed):
    channels, steps = shape
    draw = np.random.default_rng(seed)
    x = draw.standard_normal((channels, steps)).astype(np.dtype(getattr(ml_dtypes, dtype, dtype)))
    weight = draw.uniform(-1.0, 1.0, (channels, TAPS)).astype(np.float32)
    bias = (0.2 * draw.standard_normal((channels, 1))).astype(np.float32)
    return [x, weight, bias]


def reference(x, weight, bias):
    x, weight, bias = (each.astype(np.float64) for each in (x, weight, bias))
    padded = np.pad(x, ((0, 0), (TAPS - 1, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, TAPS, axis=1)
    y = np.einsum("ctk,ck->ct", windows, weight) + bias
    return y / (1 + np.exp(-y))
