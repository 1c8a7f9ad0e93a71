"""Differential attention: ``softmax(q1 k1 s) v - lambda softmax(q2 k2 s) v`` with one lambda per head.

Truth: the defective twin divides the second map by the row sum of the first. The two softmaxes have sums of their own;
whoever "normalises once at the end" uses that of the first for both. The wrong expression is the divisor of the second
map in `attended`: `sums[0]` in the branch `one_sum`, where `sums[1]` is meant.

q_t, k_t [heads, 2, d, tokens], v [heads, tokens, dv], lam [heads, 1]. Shapes are (heads, d, tokens, dv).
"""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "b31",
    "cause": "normaliser-of-other-softmax",
    "also": ("wrong-row-sum", "wrong-normaliser", "second-softmax-not-normalised"),
    "dtypes": ("float32", "bfloat16", "float16"),
    "shapes": ((2, 64, 256, 64), (1, 32, 320, 48), (3, 48, 200, 96)),
}
STORED = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
ROWS = 128


def exponentials(q, k, rows, scale):
    """exp of the shifted logits of one map, and their row sums."""
    tokens = k.shape[1]
    logits = nl.ndarray((rows, tokens), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=logits, stationary=q, moving=k)
    top = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=top, op=nl.maximum, data=logits, axis=1, negate=True)
    shift = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=shift, data=top, op0=nl.multiply, operand0=scale)
    powers = nl.ndarray((rows, tokens), dtype=nl.float32, buffer=nl.sbuf)
    total = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.activation_reduce(
        dst=powers, op=nl.exp, data=logits, bias=shift, scale=scale, reduce_op=nl.add, reduce_res=total
    )
    return powers, total


def attended(q_t, k_t, v, lam, one_sum):
    heads, _, width, tokens = q_t.shape
    out = nl.ndarray((heads, tokens, v.shape[2]), dtype=v.dtype, buffer=nl.shared_hbm)
    scale = 1.0 / width**0.5
    for head in range(heads):
        keys = [nl.load(k_t[head, part]) for part in range(2)]
        for start in range(0, tokens, ROWS):
            rows = min(ROWS, tokens - start)
            maps, sums = [], []
            for part in range(2):
                query = nl.load(q_t[head, part, :, start : start + rows])
                powers, total = exponentials(query, keys[part], rows, scale)
                maps.append(powers)
                sums.append(total)
            factor = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=factor, src=lam[head : head + 1, :].broadcast(0, rows))
            first = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.reciprocal(dst=first, data=sums[0])
            second = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
            if one_sum:
                nisa.reciprocal(dst=second, data=sums[0])
            else:
                nisa.reciprocal(dst=second, data=sums[1])
            nisa.tensor_tensor(dst=second, data1=second, data2=factor, op=nl.multiply)
            less = nl.ndarray((rows, tokens), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_scalar(dst=less, data=maps[1], op0=nl.multiply, operand0=second)
            mixed = nl.ndarray((rows, tokens), dtype=v.dtype, buffer=nl.sbuf)
            nisa.scalar_tensor_tensor(
                dst=mixed, data=maps[0], op0=nl.multiply, operand0=first, op1=nl.subtract, operand1=less
            )
            total = nl.ndarray((rows, v.shape[2]), dtype=nl.float32, buffer=nl.psum)
            for low in range(0, tokens, 128):
                count = min(128, tokens - low)
                turned = nl.ndarray((count, rows), dtype=v.dtype, buffer=nl.psum)
                nisa.nc_transpose(dst=turned, data=mixed[:, low : low + count])
                weights = nl.ndarray((count, rows), dtype=v.dtype, buffer=nl.sbuf)
                nisa.tensor_copy(dst=weights, src=turned)
                values = nl.load(v[head, low : low + count, :])
                nisa.nc_matmul(dst=total, stationary=weights, moving=values, accumulate=low > 0)
            result = nl.ndarray((rows, v.shape[2]), dtype=v.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=result, src=total)
            nisa.dma_copy(dst=out[head, start : start + rows, :], src=result)
    return out


@nki.jit
def honest(q_t, k_t, v, lam):
    return attended(q_t, k_t, v, lam, one_sum=False)


@nki.jit
def defective(q_t, k_t, v, lam):
    return attended(q_t, k_t, v, lam, one_sum=True)


def inputs(shape, dtype, seed):
    heads, width, tokens, depth = shape
    draw = np.random.default_rng(seed)
    q_t = draw.standard_normal((heads, 2, width, tokens)) * np.array([2.0, 0.7])[None, :, None, None]
    k_t = draw.standard_normal((heads, 2, width, tokens))
    v = draw.standard_normal((heads, tokens, depth)) + 0.5
    lam = draw.uniform(0.5, 0.9, (heads, 1)).astype(np.float32)
    return [*(each.astype(STORED[dtype]) for each in (q_t, k_t, v)), lam]


def softmax(x):
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def reference(q_t, k_t, v, lam):
    q, k = (np.swapaxes(each.astype(np.float64), 2, 3) for each in (q_t, k_t))
    scores = q @ np.swapaxes(k, 2, 3) / np.sqrt(q.shape[-1])
    maps = softmax(scores)
    difference = maps[:, 0] - lam.astype(np.float64)[:, :, None] * maps[:, 1]
    return difference @ v.astype(np.float64)
