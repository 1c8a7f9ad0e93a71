"""Logits before sampling: repetition penalty (CTRL), frequency penalty, temperature.

True cause: the repetition penalty divides whatever the sign of the logit. For tokens seen before, a negative
logit must be multiplied by the penalty, or it grows more likely; the GPU code had a branch there. The honest
twin takes the smaller of x * PENALTY and x / PENALTY; the line is `chosen = divided`, where the branch for
negative logits is lost.
"""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "b47",
    "cause": "penalty-ignores-sign",
    "also": ("negative-branch-lost", "sign-case-lost", "branch-lost"),
    "dtypes": ("float32", "bfloat16", "float16"),
    "shapes": ((128, 512), (64, 1000), (200, 700)),
}
PENALTY, FREQUENCY, TEMPERATURE = 1.5, 0.25, 0.8
COLUMNS = 512


def _penalised(p, n, values, divide_only):
    """The logits as they are for tokens that were seen."""
    divided = nl.ndarray((p, n), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=divided, data=values, op0=nl.multiply, operand0=1.0 / PENALTY)
    if divide_only:
        chosen = divided
    else:
        chosen = nl.ndarray((p, n), dtype=nl.float32, buffer=nl.sbuf)
        nisa.scalar_tensor_tensor(
            dst=chosen, data=values, op0=nl.multiply, operand0=PENALTY, op1=nl.minimum, operand1=divided
        )
    return chosen


def _process(logits, counts, divide_only):
    rows, vocabulary = logits.shape
    out = nl.ndarray((rows, vocabulary), dtype=logits.dtype, buffer=nl.shared_hbm)
    for row in range(0, rows, 128):
        p = min(128, rows - row)
        for column in range(0, vocabulary, COLUMNS):
            n = min(COLUMNS, vocabulary - column)
            loaded = nl.ndarray((p, n), dtype=logits.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=loaded, src=logits[row : row + p, column : column + n])
            seen = nl.ndarray((p, n), dtype=nl.uint8, buffer=nl.sbuf)
            nisa.dma_copy(dst=seen, src=counts[row : row + p, column : column + n])
            values = nl.ndarray((p, n), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_copy(dst=values, src=loaded)
            chosen = _penalised(p, n, values, divide_only)
            nisa.tensor_copy_predicated(dst=values, src=chosen, predicate=seen)
            times = nl.ndarray((p, n), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_copy(dst=times, src=seen)
            nisa.scalar_tensor_tensor(
                dst=values, data=times, op0=nl.multiply, operand0=-FREQUENCY, op1=nl.add, operand1=values
            )
            stored = nl.ndarray((p, n), dtype=logits.dtype, buffer=nl.sbuf)
            nisa.tensor_scalar(dst=stored, data=values, op0=nl.multiply, operand0=1.0 / TEMPERATURE)
            nisa.dma_copy(dst=out[row : row + p, column : column + n], src=stored)
    return out


@nki.jit
def honest(logits, counts):
    """Seen tokens become less likely, whatever the sign."""
    return _process(logits, counts, False)


@nki.jit
def defective(logits, counts):
    """Seen tokens of a negative logit become more likely."""
    return _process(logits, counts, True)


def inputs(shape, dtype, seed):
    """Logits of both signs, and how often each token was seen: three in ten at least once."""
    random = np.random.default_rng(seed)
    logits = 3.0 * random.standard_normal(shape) - 0.5
    counts = np.where(random.uniform(size=shape) < 0.3, random.integers(1, 5, shape), 0)
    return [logits.astype(getattr(ml_dtypes, dtype, dtype)), counts.astype(np.uint8)]


def reference(logits, counts):
    """Seen: divided by the penalty where positive, multiplied where negative; then counts and temperature."""
    score = logits.astype(np.float64)
    penalised = np.where(score < 0, score * PENALTY, score / PENALTY)
    score = np.where(counts > 0, penalised, score)
    return (score - FREQUENCY * counts) / TEMPERATURE
