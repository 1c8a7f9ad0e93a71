"""Real-gated linear recurrence of Griffin (RG-LRU) over documents packed into one row.

True cause: the state leaks from a document into the next. The decay must be zero where a document starts:
`kept` is that, and the input's gain sqrt(1 - a^2) is made from it, but the defective twin scans with `decay`,
the one before the reset (`data0=kept if reset else decay`).
"""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "b45",
    "cause": "state-leaks-across-documents",
    "also": ("scan-not-reset", "document-boundary-ignored"),
    "dtypes": ("float32", "bfloat16", "float16"),
    "shapes": ((128, 256), (256, 384), (200, 300)),  # channels, steps
}
SHARPNESS, CHUNK = 8.0, 256


def recur(x, gate_x, gate_a, decay_bias, starts, reset):
    channels, steps = x.shape
    out = nl.ndarray((channels, steps), dtype=x.dtype, buffer=nl.shared_hbm)
    ones = nl.ndarray((1, 128), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=ones, value=1.0)
    line = nl.ndarray((1, steps), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=line, src=starts)
    bank = nl.ndarray((128, steps), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=bank, stationary=ones, moving=line)
    inside = nl.ndarray((128, steps), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=inside, data=bank, op0=nl.multiply, operand0=-1.0, op1=nl.add, operand1=1.0)
    for channel in range(0, channels, 128):
        p = min(128, channels - channel)
        rows = slice(channel, channel + p)
        rate = nl.ndarray((p, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=rate, src=decay_bias[rows, :])
        nisa.activation(dst=rate, op=nl.softplus, data=rate)
        nisa.tensor_scalar(dst=rate, data=rate, op0=nl.multiply, operand0=-SHARPNESS)
        state = nl.ndarray((p, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=state, value=0.0)
        for step in range(0, steps, CHUNK):
            size = min(CHUNK, steps - step)
            columns = slice(step, step + size)
            x_tile, i_tile, r_tile = (nl.ndarray((p, size), dtype=x.dtype, buffer=nl.sbuf) for _ in range(3))
            for tile, source in ((x_tile, x), (i_tile, gate_x), (r_tile, gate_a)):
                nisa.dma_copy(dst=tile, src=source[rows, columns])
            decay = nl.ndarray((p, size), dtype=nl.float32, buffer=nl.sbuf)
            nisa.activation(dst=decay, op=nl.sigmoid, data=r_tile)
            nisa.activation(dst=decay, op=nl.exp, data=decay, scale=rate)
            kept = nl.ndarray((p, size), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_tensor(dst=kept, data1=decay, data2=inside[:p, columns], op=nl.multiply)
            gain = nl.ndarray((p, size), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_tensor(dst=gain, data1=kept, data2=kept, op=nl.multiply)
            nisa.tensor_scalar(dst=gain, data=gain, op0=nl.multiply, operand0=-1.0, op1=nl.add, operand1=1.0)
            nisa.activation(dst=gain, op=nl.sqrt, data=gain)
            fed = nl.ndarray((p, size), dtype=nl.float32, buffer=nl.sbuf)
            nisa.activation(dst=fed, op=nl.sigmoid, data=i_tile)
            nisa.tensor_tensor(dst=fed, data1=fed, data2=x_tile, op=nl.multiply)
            nisa.tensor_tensor(dst=fed, data1=fed, data2=gain, op=nl.multiply)
            hidden = nl.ndarray((p, size), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_tensor_scan(
                dst=hidden,
                data0=kept if reset else decay,
                data1=fed,
                initial=state,
                op0=nl.multiply,
                op1=nl.add,
            )
            nisa.tensor_copy(dst=state, src=hidden[:, size - 1 : size])
            result = nl.ndarray((p, size), dtype=x.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=result, src=hidden)
            nisa.dma_copy(dst=out[rows, columns], src=result)
    return out


@nki.jit
def honest(x, gate_x, gate_a, decay_bias, starts):
    """The state is forgotten where a document starts."""
    return recur(x, gate_x, gate_a, decay_bias, starts, True)


@nki.jit
def defective(x, gate_x, gate_a, decay_bias, starts):
    """The state goes on into the next document."""
    return recur(x, gate_x, gate_a, decay_bias, starts, False)


def inputs(shape, dtype, seed):
    """Documents of 30 to 60 steps, each with a mean of its own; decays of 0.9 to 0.98 a step."""
    channels, steps = shape
    draw = np.random.default_rng(seed)
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    starts = np.zeros((1, steps), np.float32)
    mean = np.zeros((channels, steps))
    at = 0
    while at < steps:
        starts[0, at] = 1.0
        mean[:, at:] = 2.0 * draw.standard_normal((channels, 1))
        at += int(draw.integers(30, 61))
    x = mean + 0.5 * draw.standard_normal((channels, steps))
    gate_x, gate_a = draw.standard_normal((2, channels, steps))
    # softplus of these times 8 times 0.5 is -log of the decay
    decay_bias = np.log(np.expm1(-np.log(draw.uniform(0.9, 0.98, (channels, 1))) / 4.0))
    return [x.astype(kind), gate_x.astype(kind), gate_a.astype(kind), decay_bias.astype(np.float32), starts]


def reference(x, gate_x, gate_a, decay_bias, starts):
    x, gate_x, gate_a, decay_bias = (each.astype(np.float64) for each in (x, gate_x, gate_a, decay_bias))
    a = np.exp(-SHARPNESS * np.logaddexp(0.0, decay_bias) / (1 + np.exp(-gate_a)))
    gated = x / (1 + np.exp(-gate_x))
    h = np.zeros_like(x)
    for t in range(x.shape[1]):
        if t == 0 or starts[0, t]:
            h[:, t] = gated[:, t]
        else:
            h[:, t] = a[:, t] * h[:, t - 1] + np.sqrt(1 - a[:, t] ** 2) * gated[:, t]
    return h
