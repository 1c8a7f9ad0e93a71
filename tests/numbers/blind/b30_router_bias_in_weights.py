"""Mixture-of-experts gate: eight experts of the highest sigmoid score plus a balancing bias, weighted by their scores.

True cause: the bias that is meant for the choice of experts alone is left in their weights: the defective twin masks
and normalises `biased` (score + bias), where the gate weights are the scores without the bias.
"""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "b30",
    "cause": "selection-bias-in-weights",
    "also": ("bias-in-gate-weights", "biased-scores-as-weights"),
    "dtypes": ("float32", "bfloat16", "float16"),
    "shapes": ((128, 64), (256, 256), (300, 60)),
}
CHOSEN = 8


def _gate(logits, bias, keep_bias):
    tokens, experts = logits.shape
    out = nl.ndarray((tokens, experts), dtype=logits.dtype, buffer=nl.shared_hbm)
    ones = nl.ndarray((1, 128), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=ones, value=1.0)
    line = nl.ndarray((1, experts), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=line, src=bias)
    bank = nl.ndarray((128, experts), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=bank, stationary=ones, moving=line)
    spread = nl.ndarray((128, experts), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=spread, src=bank)
    for row in range(0, tokens, 128):
        size = min(128, tokens - row)
        tile = nl.ndarray((size, experts), dtype=logits.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=logits[row : row + size, :])
        scores = nl.ndarray((size, experts), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=scores, op=nl.sigmoid, data=tile)
        biased = nl.ndarray((size, experts), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=biased, data1=scores, data2=spread[:size, :], op=nl.add)
        best = nl.ndarray((size, CHOSEN), dtype=nl.float32, buffer=nl.sbuf)
        nisa.max8(dst=best, src=biased)
        mask = nl.ndarray((size, experts), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=mask, data=biased, op0=nl.greater_equal, operand0=best[:, CHOSEN - 1 : CHOSEN])
        weights = nl.ndarray((size, experts), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=weights, data1=biased if keep_bias else scores, data2=mask, op=nl.multiply)
        total = nl.ndarray((size, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=total, op=nl.add, data=weights, axis=(1,), keepdims=True)
        nisa.reciprocal(dst=total, data=total)
        stored = nl.ndarray((size, experts), dtype=logits.dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=stored, data=weights, op0=nl.multiply, operand0=total)
        nisa.dma_copy(dst=out[row : row + size, :], src=stored)
    return out


@nki.jit
def honest(logits, bias):
    """The bias chooses, the scores weigh."""
    return _gate(logits, bias, False)


@nki.jit
def defective(logits, bias):
    """The bias chooses and weighs."""
    return _gate(logits, bias, True)


def inputs(shape, dtype, seed):
    """Logits and a bias of a deviation of 0.3, which moves the choice."""
    tokens, experts = shape
    random = np.random.default_rng(seed)
    logits = random.standard_normal((tokens, experts)).astype(np.dtype(getattr(ml_dtypes, dtype, dtype)))
    return [logits, (0.3 * random.standard_normal((1, experts))).astype(np.float32)]


def reference(logits, bias):
    """The scores of the eight experts of the highest biased score, divided by their sum."""
    scores = 1.0 / (1.0 + np.exp(-logits.astype(np.float64)))
    biased = scores + bias.astype(np.float64)
    chosen = biased >= np.sort(biased, axis=1)[:, -CHOSEN, None]
    weights = np.where(chosen, scores, 0.0)
    return weights / weights.sum(1, keepdims=True)
