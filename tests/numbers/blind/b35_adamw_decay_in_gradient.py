"""AdamW: the update of the weights (to be added to them) and the new moments, at step 20.

Truth: the defective twin is Adam with an L2 penalty: it adds ``DECAY * w`` to the gradient before the moments, where
AdamW adds it to the normalised step after them (decoupled decay). Update and both moments are wrong. The wrong
expression is the scalar_tensor_tensor that gives `pulled` in the branch `coupled` of `updated`.

weight, grad [rows, columns], m, v [rows, columns] in float32. Shapes are (rows, columns).
"""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "b35",
    "cause": "decay-coupled",
    "also": ("weight-decay-in-gradient", "term-misplaced", "wrong-order"),
    "dtypes": ("float32", "bfloat16", "float16"),
    "shapes": ((128, 256), (200, 384), (72, 700)),
}
STORED = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
ROWS, COLUMNS = 128, 256
RATE, BETA1, BETA2, EPSILON, DECAY, STEP = 1e-2, 0.9, 0.95, 1e-8, 0.1, 20


def updated(weight, grad, m, v, coupled):
    total, size = weight.shape
    out = nl.ndarray(weight.shape, dtype=weight.dtype, buffer=nl.shared_hbm)
    new_m = nl.ndarray(weight.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    new_v = nl.ndarray(weight.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    for start in range(0, total, ROWS):
        for low in range(0, size, COLUMNS):
            part = slice(start, min(start + ROWS, total)), slice(low, min(low + COLUMNS, size))
            w, g, first, second = (nl.load(each[part]) for each in (weight, grad, m, v))
            if coupled:
                pulled = nl.ndarray(w.shape, dtype=nl.float32, buffer=nl.sbuf)
                nisa.scalar_tensor_tensor(
                    dst=pulled, data=w, op0=nl.multiply, operand0=DECAY, op1=nl.add, operand1=g
                )
                g = pulled
            scaled = nl.ndarray(w.shape, dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_scalar(dst=scaled, data=g, op0=nl.multiply, operand0=1.0 - BETA1)
            nisa.scalar_tensor_tensor(
                dst=first, data=first, op0=nl.multiply, operand0=BETA1, op1=nl.add, operand1=scaled
            )
            squared = nl.ndarray(w.shape, dtype=nl.float32, buffer=nl.sbuf)
            nisa.activation(dst=squared, op=nl.square, data=g, scale=(1.0 - BETA2) ** 0.5)
            nisa.scalar_tensor_tensor(
                dst=second, data=second, op0=nl.multiply, operand0=BETA2, op1=nl.add, operand1=squared
            )
            root = nl.ndarray(w.shape, dtype=nl.float32, buffer=nl.sbuf)
            nisa.activation(dst=root, op=nl.sqrt, data=second, scale=1.0 / (1.0 - BETA2**STEP))
            nisa.tensor_scalar(dst=root, data=root, op0=nl.add, operand0=EPSILON)
            nisa.reciprocal(dst=root, data=root)
            step = nl.ndarray(w.shape, dtype=nl.float32, buffer=nl.sbuf)
            nisa.scalar_tensor_tensor(
                dst=step,
                data=first,
                op0=nl.multiply,
                operand0=1.0 / (1.0 - BETA1**STEP),
                op1=nl.multiply,
                operand1=root,
            )
            if not coupled:
                nisa.scalar_tensor_tensor(
                    dst=step, data=w, op0=nl.multiply, operand0=DECAY, op1=nl.add, operand1=step
                )
            result = nl.ndarray(w.shape, dtype=weight.dtype, buffer=nl.sbuf)
            nisa.tensor_scalar(dst=result, data=step, op0=nl.multiply, operand0=-RATE)
            nisa.dma_copy(dst=out[part], src=result)
            nisa.dma_copy(dst=new_m[part], src=first)
            nisa.dma_copy(dst=new_v[part], src=second)
    return out, new_m, new_v


@nki.jit
def honest(weight, grad, m, v):
    return updated(weight, grad, m, v, coupled=False)


@nki.jit
def defective(weight, grad, m, v):
    return updated(weight, grad, m, v, coupled=True)


def inputs(shape, dtype, seed):
    draw = np.random.default_rng(seed)
    weight = draw.standard_normal(shape).astype(STORED[dtype])
    grad = (0.015 * draw.standard_normal(shape)).astype(STORED[dtype])
    m = (0.006 * draw.standard_normal(shape)).astype(np.float32)
    v = (0.015**2 * draw.uniform(0.3, 1.2, shape)).astype(np.float32)
    return [weight, grad, m, v]


def reference(weight, grad, m, v):
    weight, grad, m, v = (each.astype(np.float64) for each in (weight, grad, m, v))
    m = BETA1 * m + (1 - BETA1) * grad
    v = BETA2 * v + (1 - BETA2) * grad**2
    m_hat = m / (1 - BETA1**STEP)
    v_hat = v / (1 - BETA2**STEP)
    update = -RATE * (m_hat / (np.sqrt(v_hat) + EPSILON) + DECAY * weight)
    return update, m, v
