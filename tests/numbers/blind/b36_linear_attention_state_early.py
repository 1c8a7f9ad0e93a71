"""Causal linear attention in chunks of 128 (feature map elu(x) + 1), the running state carried from chunk to chunk.

True cause: the state takes the chunk's own keys and values before the chunk's queries read it. The recurrence is then
one chunk early: the queries see their own chunk twice, once without the causal mask. In the defective twin it is the
`nisa.tensor_tensor(dst=state, ..., op=nl.add)` under `if early`, which stands before the matmul that reads `state`.
"""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "b36",
    "cause": "state-updated-before-read",
    "also": (
        "state-includes-current-chunk",
        "own-chunk-counted-twice",
        "inter-chunk-not-exclusive",
        "read-after-update",
    ),
    "dtypes": ("float32", "bfloat16", "float16"),
    "shapes": ((256, 64, 64), (128, 32, 96), (300, 48, 64)),
}


def _feature(data, size, width):
    """elu(x) + 1 as exp(min(x, 0)) + max(x, 0), in float32."""
    low = nl.ndarray((size, width), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=low, data=data, op0=nl.minimum, operand0=0.0)
    nisa.activation(dst=low, op=nl.exp, data=low)
    high = nl.ndarray((size, width), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=high, data=data, op0=nl.maximum, operand0=0.0)
    nisa.tensor_tensor(dst=high, data1=high, data2=low, op=nl.add)
    turned = nl.ndarray((width, size), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_transpose(dst=turned, data=high)
    columns = nl.ndarray((width, size), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=columns, src=turned)
    return high, columns


def _attend(q, k, v, early):
    """q, k: [tokens, depth]; v: [tokens, width]."""
    (tokens, depth), width = q.shape, v.shape[1]
    out = nl.ndarray((tokens, width), dtype=q.dtype, buffer=nl.shared_hbm)
    state = nl.ndarray((depth, width + 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=state, value=0.0)
    for row in range(0, tokens, 128):
        size = min(128, tokens - row)
        query = nl.ndarray((size, depth), dtype=q.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=query, src=q[row : row + size, :])
        key = nl.ndarray((size, depth), dtype=q.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=key, src=k[row : row + size, :])
        loaded = nl.ndarray((size, width), dtype=q.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=loaded, src=v[row : row + size, :])
        value = nl.ndarray((size, width + 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=value, value=1.0)
        nisa.tensor_copy(dst=value[:, :width], src=loaded)
        _, query_t = _feature(query, size, depth)
        key_rows, key_t = _feature(key, size, depth)
        update = nl.ndarray((depth, width + 1), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=update, stationary=key_rows, moving=value)
        if early:
            nisa.tensor_tensor(dst=state, data1=state, data2=update, op=nl.add)
        scores = nl.ndarray((size, size), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=scores, stationary=key_t, moving=query_t)
        causal = nl.ndarray((size, size), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=causal, src=scores)
        nisa.affine_select(
            dst=causal,
            pattern=[[1, size]],
            channel_multiplier=-1,
            on_true_tile=causal,
            on_false_value=0.0,
            cmp_op=nl.greater_equal,
        )
        mixed = nl.ndarray((size, width + 1), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=mixed, stationary=causal, moving=value, accumulate=False)
        nisa.nc_matmul(dst=mixed, stationary=query_t, moving=state, accumulate=True)
        if not early:
            nisa.tensor_tensor(dst=state, data1=state, data2=update, op=nl.add)
        total = nl.ndarray((size, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.reciprocal(dst=total, data=mixed[:, width : width + 1])
        stored = nl.ndarray((size, width), dtype=q.dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=stored, data=mixed[:, :width], op0=nl.multiply, operand0=total)
        nisa.dma_copy(dst=out[row : row + size, :], src=stored)
    return out


@nki.jit
def honest(q, k, v):
    """The queries read the state of the chunks before theirs."""
    return _attend(q, k, v, False)


@nki.jit
def defective(q, k, v):
    """The queries read the state that holds their own chunk already."""
    return _attend(q, k, v, True)


def inputs(shape, dtype, seed):
    """Normal queries, keys and values."""
    tokens, depth, width = shape
    random = np.random.default_rng(seed)
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    return [random.standard_normal((tokens, each)).astype(kind) for each in (depth, depth, width)]


def reference(q, k, v):
    """Katharopoulos et al. 2020: phi(q_i) S_i / phi(q_i) z_i, with S and z summed up to and with i."""
    q, k, v = (each.astype(np.float64) for each in (q, k, v))
    phi_q = np.where(q > 0, q + 1, np.exp(np.minimum(q, 0)))
    phi_k = np.where(k > 0, k + 1, np.exp(np.minimum(k, 0)))
    state, norm = np.zeros((k.shape[1], v.shape[1])), np.zeros(k.shape[1])
    out = np.empty_like(v)
    for i in range(len(q)):
        state += np.outer(phi_k[i], v[i])
        norm += phi_k[i]
        out[i] = phi_q[i] @ state / (phi_q[i] @ norm)
    return out
