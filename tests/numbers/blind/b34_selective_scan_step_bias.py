"""Selective scan (Mamba): ``step = softplus(dt + dt_bias)``, ``h[n] = exp(step * A[n]) h[n] + step * B[n] * x``,
``y = sum_n C[n] h[n] + D x``, with ``A = -exp(a_log)``; blocks of 128 time steps.

Truth: the defective twin adds dt_bias to the softplus and not to its argument: ``softplus(dt) + dt_bias``. The wrong
expression is the tensor_scalar with `operand0=lift` after the softplus, in the branch `after` of `scanned`.

x, dt [channels, steps], dt_bias, d [channels, 1], a_log [channels, states], b, c [states, steps].
Shapes are (channels, steps, states).
"""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "b34",
    "cause": "bias-after-activation",
    "also": ("bias-outside-softplus", "operations-swapped", "wrong-order", "step-order"),
    "dtypes": ("float32", "bfloat16", "float16"),
    "shapes": ((128, 256, 4), (200, 320, 3), (96, 300, 6)),
}
STORED = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
ROWS, STEPS = 128, 128


def scanned(x, dt, dt_bias, a_log, b, c, d, after):
    channels, steps = x.shape
    states = a_log.shape[1]
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for start in range(0, channels, ROWS):
        rows = min(ROWS, channels - start)
        lift = nl.load(dt_bias[start : start + rows, :])
        skip = nl.load(d[start : start + rows, :])
        rate = nl.ndarray((rows, states), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=rate, op=nl.exp, data=nl.load(a_log[start : start + rows, :]))
        nisa.tensor_scalar(dst=rate, data=rate, op0=nl.multiply, operand0=-1.0)
        carry = nl.zeros((rows, states), dtype=nl.float32)
        for low in range(0, steps, STEPS):
            count = min(STEPS, steps - low)
            shape = (rows, count)
            taken = nl.load(x[start : start + rows, low : low + count])
            raw = nl.load(dt[start : start + rows, low : low + count])
            delta = nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)
            if after:
                nisa.activation(dst=delta, op=nl.softplus, data=raw)
                nisa.tensor_scalar(dst=delta, data=delta, op0=nl.add, operand0=lift)
            else:
                nisa.activation(dst=delta, op=nl.softplus, data=raw, bias=lift)
            driven = nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_tensor(dst=driven, data1=delta, data2=taken, op=nl.multiply)
            total = nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_scalar(dst=total, data=taken, op0=nl.multiply, operand0=skip)
            for n in range(states):
                decay = nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)
                nisa.activation(dst=decay, op=nl.exp, data=delta, scale=rate[:, n : n + 1])
                entered = nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)
                gate = nl.load(b[n : n + 1, low : low + count].broadcast(0, rows))
                nisa.tensor_tensor(dst=entered, data1=driven, data2=gate, op=nl.multiply)
                h = nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)
                nisa.tensor_tensor_scan(
                    dst=h,
                    data0=decay,
                    data1=entered,
                    initial=carry[:, n : n + 1],
                    op0=nl.multiply,
                    op1=nl.add,
                )
                nisa.tensor_copy(dst=carry[:, n : n + 1], src=h[:, count - 1 : count])
                read = nl.load(c[n : n + 1, low : low + count].broadcast(0, rows))
                nisa.tensor_tensor(dst=h, data1=h, data2=read, op=nl.multiply)
                nisa.tensor_tensor(dst=total, data1=total, data2=h, op=nl.add)
            result = nl.copy(total, dtype=x.dtype)
            nisa.dma_copy(dst=out[start : start + rows, low : low + count], src=result)
    return out


@nki.jit
def honest(x, dt, dt_bias, a_log, b, c, d):
    return scanned(x, dt, dt_bias, a_log, b, c, d, after=False)


@nki.jit
def defective(x, dt, dt_bias, a_log, b, c, d):
    return scanned(x, dt, dt_bias, a_log, b, c, d, after=True)


def inputs(shape, dtype, seed):
    channels, steps, states = shape
    draw = np.random.default_rng(seed)
    x, b, c = (draw.standard_normal(each) for each in ((channels, steps), (states, steps), (states, steps)))
    dt = draw.standard_normal((channels, steps)) - 4.0
    dt_bias = draw.uniform(1.5, 3.0, (channels, 1)).astype(np.float32)
    a_log = np.log(np.tile(np.arange(1.0, states + 1), (channels, 1))).astype(np.float32)
    d = draw.uniform(0.2, 0.6, (channels, 1)).astype(np.float32)
    x, dt, b, c = (each.astype(STORED[dtype]) for each in (x, dt, b, c))
    return [x, dt, dt_bias, a_log, b, c, d]


def reference(x, dt, dt_bias, a_log, b, c, d):
    x, dt, dt_bias, a_log, b, c, d = (each.astype(np.float64) for each in (x, dt, dt_bias, a_log, b, c, d))
    delta = np.log1p(np.exp(dt + dt_bias))
    a = -np.exp(a_log)
    state = np.zeros(a.shape)
    y = np.empty(x.shape)
    for t in range(x.shape[1]):
        step = delta[:, t, None]
        state = np.exp(step * a) * state + step * b[:, t] * x[:, t, None]
        y[:, t] = state @ c[:, t]
    return y + d * x
