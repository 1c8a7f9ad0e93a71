"""Causal attention of one head, right but slow: 64-row tiles in fp32, all keys computed and then masked,
keys and values loaded again for every tile of queries.

    q_t [head, sequence]  queries, transposed: the head dimension lies on the partitions, head <= 128
    k_t [head, sequence]  keys, transposed likewise
    v   [sequence, head]  values
    scale                 factor of the scores, usually 1 / sqrt(head)
    out [sequence, head]  dtype of v, in shared HBM

dtypes: float32, bfloat16 or float16, the same for all three; everything is computed in fp32.
"""

import nki
import nki.isa as nisa
import nki.language as nl

TILE = 64
HIDDEN = -1.0e30


@nki.jit
def causal_attention(q_t, k_t, v, scale):
    """Return softmax(q @ k.T * scale, causal) @ v; shapes and dtypes are those of the module docstring."""
    head, sequence = q_t.shape
    out = nl.ndarray((sequence, head), dtype=v.dtype, buffer=nl.shared_hbm)
    for start in range(0, sequence, TILE):
        end = min(start + TILE, sequence)
        size = end - start
        queries = nl.ndarray((head, size), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=queries, src=q_t[:, start:end])

        scores = nl.ndarray((size, sequence), dtype=nl.float32, buffer=nl.sbuf)
        for key in range(0, sequence, TILE):
            key_end = min(key + TILE, sequence)
            keys = nl.ndarray((head, key_end - key), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=keys, src=k_t[:, key:key_end])
            products = nl.ndarray((size, key_end - key), dtype=nl.float32, buffer=nl.psum)
            nisa.nc_matmul(dst=products, stationary=queries, moving=keys)
            nisa.tensor_scalar(dst=scores[:, key:key_end], data=products, op0=nl.multiply, operand0=scale)
        nisa.affine_select(
            dst=scores,
            pattern=[[-1, sequence]],
            offset=start,
            channel_multiplier=1,
            on_true_tile=scores,
            on_false_value=HIDDEN,
            cmp_op=nl.greater_equal,
        )

        maximum = nl.ndarray((size, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=maximum, op=nl.maximum, data=scores, axis=1, keepdims=True)
        nisa.tensor_scalar(dst=scores, data=scores, op0=nl.subtract, operand0=maximum)
        nisa.activation(dst=scores, op=nl.exp, data=scores)
        total = nl.ndarray((size, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=total, op=nl.add, data=scores, axis=1, keepdims=True)
        inverse = nl.ndarray((size, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.reciprocal(dst=inverse, data=total)
        nisa.tensor_scalar(dst=scores, data=scores, op0=nl.multiply, operand0=inverse)

        accumulator = nl.ndarray((size, head), dtype=nl.float32, buffer=nl.psum)
        for key in range(0, sequence, TILE):
            key_end = min(key + TILE, sequence)
            flipped = nl.ndarray((key_end - key, size), dtype=nl.float32, buffer=nl.psum)
            nisa.nc_transpose(dst=flipped, data=scores[:, key:key_end])
            weights_t = nl.ndarray((key_end - key, size), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_copy(dst=weights_t, src=flipped)
            values = nl.ndarray((key_end - key, head), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=values, src=v[key:key_end, :])
            nisa.nc_matmul(dst=accumulator, stationary=weights_t, moving=values, accumulate=key > 0)

        result = nl.ndarray((size, head), dtype=v.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=result, src=accumulator)
        nisa.dma_copy(dst=out[start:end, :], src=result)
    return out
