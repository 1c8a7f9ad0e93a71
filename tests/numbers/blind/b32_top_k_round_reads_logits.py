"""Top-k filter before sampling: softmax over the 24 largest logits of each row, 0 elsewhere. Three rounds of max8.

Truth: the defective twin removes the eight values of every round from the logits and not from what the round before
left. After the second round the eight largest are back, the third finds them again, and the threshold is the 8th
largest logit instead of the 24th: ranks 9 to 24 get 0. The wrong expression is `data=scaled` of nc_match_replace8 in
the branch `fresh` of `filtered`.

logits [rows, vocabulary]. Shapes are (rows, vocabulary).
"""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "b32",
    "cause": "wrong-operand",
    "also": ("stale-operand", "threshold-of-wrong-rank", "top-k-too-few"),
    "dtypes": ("float32", "bfloat16", "float16"),
    "shapes": ((128, 256), (200, 320), (96, 500)),
}
STORED = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
ROWS, KEPT, TEMPERATURE = 128, 24, 1.25


def filtered(logits, fresh):
    total, size = logits.shape
    out = nl.ndarray(logits.shape, dtype=logits.dtype, buffer=nl.shared_hbm)
    for start in range(0, total, ROWS):
        rows = min(ROWS, total - start)
        loaded = nl.load(logits[start : start + rows, :])
        scaled = nl.ndarray((rows, size), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=scaled, data=loaded, op0=nl.multiply, operand0=1.0 / TEMPERATURE)
        largest = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=largest, op=nl.maximum, data=scaled, axis=1, negate=True)
        left = scaled
        for step in range(KEPT // 8):
            top = nl.ndarray((rows, 8), dtype=nl.float32, buffer=nl.sbuf)
            nisa.max8(dst=top, src=left)
            if step + 1 == KEPT // 8:
                break
            rest = nl.ndarray((rows, size), dtype=nl.float32, buffer=nl.sbuf)
            if fresh:
                nisa.nc_match_replace8(dst=rest, data=scaled, vals=top, imm=-3.0e38)
            else:
                nisa.nc_match_replace8(dst=rest, data=left, vals=top, imm=-3.0e38)
            left = rest
        powers = nl.ndarray((rows, size), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=powers, op=nl.exp, data=scaled, bias=largest)
        chosen = nl.ndarray((rows, size), dtype=nl.float32, buffer=nl.sbuf)
        nisa.scalar_tensor_tensor(
            dst=chosen,
            data=scaled,
            op0=nl.greater_equal,
            operand0=top[:, 7:8],
            op1=nl.multiply,
            operand1=powers,
        )
        norm = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=norm, op=nl.add, data=chosen, axis=1)
        nisa.reciprocal(dst=norm, data=norm)
        result = nl.ndarray((rows, size), dtype=logits.dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=result, data=chosen, op0=nl.multiply, operand0=norm)
        nisa.dma_copy(dst=out[start : start + rows, :], src=result)
    return out


@nki.jit
def honest(logits):
    return filtered(logits, fresh=False)


@nki.jit
def defective(logits):
    return filtered(logits, fresh=True)


def inputs(shape, dtype, seed):
    draw = np.random.default_rng(seed)
    return [(0.9 * draw.standard_normal(shape)).astype(STORED[dtype])]


def reference(logits):
    scores = logits.astype(np.float64) / TEMPERATURE
    kth = np.sort(scores, axis=-1)[:, -KEPT][:, None]
    scores = np.where(scores < kth, -np.inf, scores)
    probabilities = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return probabilities / probabilities.sum(axis=-1, keepdims=True)
