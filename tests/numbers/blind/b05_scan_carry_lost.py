"""Linear recurrence along time: ``h[t] = decay[t] * h[t-1] + x[t]`` from ``h[-1] = 0``, in blocks of 256 steps.

Truth: the defective twin starts every block of 256 steps from 0 and not from the last state of the block before. Steps
from 256 on miss what the earlier blocks left; the first block is right.

decay, x [channels, steps]. Shapes are (channels, steps); all have two blocks or more.
"""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "b05",
    "cause": "carry-lost",
    "also": ("state-reset", "input-part-unused"),
    "dtypes": ("float32", "bfloat16", "float16"),
    "shapes": ((128, 512), (256, 768), (200, 600)),
}
STORED = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
ROWS, STEPS = 128, 256


def scanned(decay, x, carried):
    channels, steps = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for start in range(0, channels, ROWS):
        stop = min(start + ROWS, channels)
        carry = nl.ndarray((stop - start, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=carry, value=0.0)
        for low in range(0, steps, STEPS):
            high = min(low + STEPS, steps)
            shape = (stop - start, high - low)
            kept = nl.ndarray(shape, dtype=decay.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=kept, src=decay[start:stop, low:high])
            added = nl.ndarray(shape, dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=added, src=x[start:stop, low:high])
            states = nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_tensor_scan(
                dst=states, data0=kept, data1=added, initial=carry, op0=nl.multiply, op1=nl.add
            )
            if carried:
                nisa.tensor_copy(dst=carry, src=states[:, high - low - 1 : high - low])
            result = nl.ndarray(shape, dtype=x.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=result, src=states)
            nisa.dma_copy(dst=out[start:stop, low:high], src=result)
    return out


@nki.jit
def honest(decay, x):
    return scanned(decay, x, carried=True)


@nki.jit
def defective(decay, x):
    return scanned(decay, x, carried=False)


def inputs(shape, dtype, seed):
    draw = np.random.default_rng(seed)
    arrays = 1.0 - np.exp(draw.uniform(np.log(0.004), np.log(0.1), shape)), draw.standard_normal(shape)
    return [each.astype(STORED[dtype]) for each in arrays]


def reference(decay, x):
    decay, x = decay.astype(np.float64), x.astype(np.float64)
    states = np.zeros_like(x)
    state = np.zeros(x.shape[0])
    for step in range(x.shape[1]):
        state = decay[:, step] * state + x[:, step]
        states[:, step] = state
    return states
