"""Sigmoid focal loss of many labels (RetinaNet): -alpha_t (1 - p_t)^gamma log(p_t), an element each, gamma = 2.

True cause: one modulating factor, (1 - p)^2, serves both terms. It is right for the positives, where p_t = p; for the
negatives p_t = 1 - p and the factor is p^2. In the defective twin it is `data1=easy` (in place of `hard`) in the
`nisa.tensor_tensor(dst=negative, ...)` that weighs the negatives: a confident mistake there costs nearly nothing.
"""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "b38",
    "cause": "focal-factor-of-positives-for-negatives",
    "also": ("modulating-factor-not-p_t", "wrong-modulator-for-negatives", "one-minus-p-for-both-classes"),
    "dtypes": ("float32", "bfloat16", "float16"),
    "shapes": ((128, 80), (256, 640), (300, 91)),
}
ALPHA = 0.25


def _loss(logits, labels, shared):
    rows, classes = logits.shape
    out = nl.ndarray((rows, classes), dtype=logits.dtype, buffer=nl.shared_hbm)
    for row in range(0, rows, 128):
        size = min(128, rows - row)
        for low in range(0, classes, 512):
            width = min(512, classes - low)
            shape, window = (size, width), (slice(row, row + size), slice(low, low + width))
            x = nl.ndarray(shape, dtype=logits.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=x, src=logits[window])
            label = nl.ndarray(shape, dtype=labels.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=label, src=labels[window])
            hard = nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)
            nisa.activation(dst=hard, op=nl.sigmoid, data=x)
            nisa.tensor_tensor(dst=hard, data1=hard, data2=hard, op=nl.multiply)
            easy = nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)
            nisa.activation(dst=easy, op=nl.sigmoid, data=x, scale=-1.0)
            nisa.tensor_tensor(dst=easy, data1=easy, data2=easy, op=nl.multiply)
            positive = nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)
            nisa.activation(dst=positive, op=nl.softplus, data=x, scale=-1.0)
            nisa.tensor_tensor(dst=positive, data1=easy, data2=positive, op=nl.multiply)
            nisa.scalar_tensor_tensor(
                dst=positive, data=positive, op0=nl.multiply, operand0=ALPHA, op1=nl.multiply, operand1=label
            )
            negative = nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)
            nisa.activation(dst=negative, op=nl.softplus, data=x)
            if shared:
                nisa.tensor_tensor(dst=negative, data1=easy, data2=negative, op=nl.multiply)
            else:
                nisa.tensor_tensor(dst=negative, data1=hard, data2=negative, op=nl.multiply)
            other = nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_scalar(
                dst=other, data=label, op0=nl.multiply, operand0=-1.0, op1=nl.add, operand1=1.0
            )
            nisa.scalar_tensor_tensor(
                dst=negative,
                data=negative,
                op0=nl.multiply,
                operand0=1.0 - ALPHA,
                op1=nl.multiply,
                operand1=other,
            )
            stored = nl.ndarray(shape, dtype=logits.dtype, buffer=nl.sbuf)
            nisa.tensor_tensor(dst=stored, data1=positive, data2=negative, op=nl.add)
            nisa.dma_copy(dst=out[window], src=stored)
    return out


@nki.jit
def honest(logits, labels):
    """(1 - p)^2 for the positives, p^2 for the negatives."""
    return _loss(logits, labels, False)


@nki.jit
def defective(logits, labels):
    """(1 - p)^2 for both."""
    return _loss(logits, labels, True)


def inputs(shape, dtype, seed):
    """Logits of a deviation of 2, and labels of which an eighth are set."""
    random = np.random.default_rng(seed)
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    logits = 2.0 * random.standard_normal(shape)
    return [logits.astype(kind), (random.random(shape) < 0.125).astype(kind)]


def reference(logits, labels):
    """Lin et al. 2017, equation 5."""
    p = 1.0 / (1.0 + np.exp(-logits.astype(np.float64)))
    positive = labels.astype(np.float64) == 1
    p_t = np.where(positive, p, 1.0 - p)
    alpha_t = np.where(positive, ALPHA, 1.0 - ALPHA)
    return -alpha_t * (1.0 - p_t) ** 2 * np.log(p_t)
