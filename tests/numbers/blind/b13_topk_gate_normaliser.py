"""Top-4 expert gating whose weights are divided by the sum over all experts and not over the four chosen ones.

True cause: `defective` sums the exponentials before those of the experts not chosen are set to 0 (its
``nisa.tensor_reduce(dst=norm, op=nl.add, data=e, ...)`` stands before the multiplication by ``chosen``), so that the
four weights of a token are its softmax probabilities and do not add up to 1.

Shapes are (tokens, experts); the logits of a token are distinct.
"""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "b13",
    "cause": "topk-weights-not-renormalised",
    "also": ("sum-before-mask", "normaliser-over-all-experts", "reduction-over-unmasked", "sum-after-mask"),
    "dtypes": ("float32", "bfloat16", "float16"),
    "shapes": ((128, 16), (256, 64), (300, 40)),
}

TOP = 4


@nki.jit
def honest(logits):
    tokens, experts = logits.shape
    out = nl.ndarray((tokens, experts), dtype=logits.dtype, buffer=nl.shared_hbm)
    for r0 in range(0, tokens, 128):
        r = min(128, tokens - r0)
        x = nl.ndarray((r, experts), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=x, src=logits[r0 : r0 + r, :])
        best = nl.ndarray((r, 8), dtype=nl.float32, buffer=nl.sbuf)
        nisa.max8(dst=best, src=x)
        shift = nl.ndarray((r, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=shift, data=best[:, 0:1], op0=nl.multiply, operand0=-1.0)
        e = nl.ndarray((r, experts), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=e, op=nl.exp, data=x, bias=shift)
        chosen = nl.ndarray((r, experts), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=chosen, data=x, op0=nl.greater_equal, operand0=best[:, TOP - 1 : TOP])
        nisa.tensor_tensor(dst=e, data1=e, data2=chosen, op=nl.multiply)
        norm = nl.ndarray((r, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=norm, op=nl.add, data=e, axis=(1,), keepdims=True)
        nisa.reciprocal(dst=norm, data=norm)
        y = nl.ndarray((r, experts), dtype=logits.dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=y, data=e, op0=nl.multiply, operand0=norm)
        nisa.dma_copy(dst=out[r0 : r0 + r, :], src=y)
    return out


@nki.jit
def defective(logits):
    tokens, experts = logits.shape
    out = nl.ndarray((tokens, experts), dtype=logits.dtype, buffer=nl.shared_hbm)
    for r0 in range(0, tokens, 128):
        r = min(128, tokens - r0)
        x = nl.ndarray((r, experts), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=x, src=logits[r0 : r0 + r, :])
        best = nl.ndarray((r, 8), dtype=nl.float32, buffer=nl.sbuf)
        nisa.max8(dst=best, src=x)
        shift = nl.ndarray((r, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=shift, data=best[:, 0:1], op0=nl.multiply, operand0=-1.0)
        e = nl.ndarray((r, experts), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=e, op=nl.exp, data=x, bias=shift)
        norm = nl.ndarray((r, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=norm, op=nl.add, data=e, axis=(1,), keepdims=True)
        chosen = nl.ndarray((r, experts), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=chosen, data=x, op0=nl.greater_equal, operand0=best[:, TOP - 1 : TOP])
        nisa.tensor_tensor(dst=e, data1=e, data2=chosen, op=nl.multiply)
        nisa.reciprocal(dst=norm, data=norm)
        y = nl.ndarray((r, experts), dtype=logits.dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=y, data=e, op0=nl.multiply, operand0=norm)
        nisa.dma_copy(dst=out[r0 : r0 + r, :], src=y)
    return out


def inputs(shape, dtype, seed):
    tokens, experts = shape
    draw = np.random.default_rng(seed)
    stored = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    steps = draw.permuted(np.tile(np.linspace(-4.0, 4.0, experts), (tokens, 1)), axis=1)
    return [(steps * draw.uniform(0.5, 1.5, (tokens, 1))).astype(stored)]


def reference(logits):
    x = logits.astype(np.float64)
    chosen = x >= np.sort(x, axis=-1)[:, -TOP, None]
    e = np.where(chosen, np.exp(x - x.max(-1, keepdims=True)), 0.0)
    return e / e.sum(-1, keepdims=True)
