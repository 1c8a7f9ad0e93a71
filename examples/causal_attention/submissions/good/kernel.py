"""Causal attention of one head: keys and values stay in SBUF, hidden key tiles are never computed.

    q_t [head, sequence]  queries, transposed: the head dimension lies on the partitions, head <= 128
    k_t [head, sequence]  keys, transposed likewise
    v   [sequence, head]  values
    scale                 factor of the scores, usually 1 / sqrt(head)
    out [sequence, head]  dtype of v, in shared HBM

dtypes: float32, bfloat16 or float16, the same for all three; scores, sums and output are accumulated in fp32.
A row of scores must fit in SBUF: 8 bytes a key and partition, so sequences up to about 8192.
"""

import nki
import nki.isa as nisa
import nki.language as nl

PARTITIONS = 128
BANK = 512  # fp32 elements in a partition of a PSUM bank, and the longest moving operand on trn1 and trn2
HIDDEN = -1.0e30  # finite: the exponent becomes 0 without the NaN of inf - inf


def load_rows(src, row, row_end):
    """A fresh SBUF tile with the rows [row, row_end) of src."""
    tile = nl.ndarray((row_end - row, src.shape[1]), dtype=src.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=src[row:row_end, :])
    return tile


def causal_scores(queries, keys, start, end):
    """Masked fp32 scores [end - start, end] of the queries [start, end) against the keys [0, end)."""
    size = end - start
    scores = nl.ndarray((size, end), dtype=nl.float32, buffer=nl.sbuf)
    for key in range(0, end, BANK):
        key_end = min(key + BANK, end)
        products = nl.ndarray((size, key_end - key), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=products, stationary=queries[:, start:end], moving=keys[:, key:key_end])
        nisa.tensor_copy(dst=scores[:, key:key_end], src=products)
    # Only the square on the diagonal is mixed: query p sees its key j while p - j >= 0.
    nisa.affine_select(
        dst=scores[:, start:end],
        pattern=[[-1, size]],
        channel_multiplier=1,
        on_true_tile=scores[:, start:end],
        on_false_value=HIDDEN,
        cmp_op=nl.greater_equal,
    )
    return scores


@nki.jit
def causal_attention(q_t, k_t, v, scale):
    """Return softmax(q @ k.T * scale, causal) @ v; shapes and dtypes are those of the module docstring."""
    head, sequence = q_t.shape
    out = nl.ndarray((sequence, head), dtype=v.dtype, buffer=nl.shared_hbm)
    queries = load_rows(q_t, 0, head)
    keys = load_rows(k_t, 0, head)
    values = []
    for key in range(0, sequence, PARTITIONS):
        values.append(load_rows(v, key, min(key + PARTITIONS, sequence)))

    for start in range(0, sequence, PARTITIONS):
        end = min(start + PARTITIONS, sequence)
        size = end - start
        scores = causal_scores(queries, keys, start, end)

        # exp(scale * score - scale * max) in one instruction, with its row sum.
        shift = nl.ndarray((size, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=shift, op=nl.maximum, data=scores, axis=1, negate=True, keepdims=True)
        nisa.tensor_scalar(dst=shift, data=shift, op0=nl.multiply, operand0=scale)
        weights = nl.ndarray((size, end), dtype=nl.float32, buffer=nl.sbuf)
        total = nl.ndarray((size, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation_reduce(
            dst=weights, op=nl.exp, data=scores, reduce_op=nl.add, reduce_res=total, bias=shift, scale=scale
        )

        # fp32 transposes are legal on every generation; the copy out of PSUM casts to the dtype of v.
        accumulator = nl.ndarray((size, head), dtype=nl.float32, buffer=nl.psum)
        for i in range(len(values)):
            key = i * PARTITIONS
            if key < end:
                key_end = min(key + PARTITIONS, end)
                flipped = nl.ndarray((key_end - key, size), dtype=nl.float32, buffer=nl.psum)
                nisa.nc_transpose(dst=flipped, data=weights[:, key:key_end])
                weights_t = nl.ndarray((key_end - key, size), dtype=v.dtype, buffer=nl.sbuf)
                nisa.tensor_copy(dst=weights_t, src=flipped)
                nisa.nc_matmul(dst=accumulator, stationary=weights_t, moving=values[i], accumulate=i > 0)

        inverse = nl.ndarray((size, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.reciprocal(dst=inverse, data=total)
        result = nl.ndarray((size, head), dtype=v.dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=result, data=accumulator, op0=nl.multiply, operand0=inverse)
        nisa.dma_copy(dst=out[start:end, :], src=result)
    return out
