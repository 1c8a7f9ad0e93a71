"""Causal attention of one head, right but slow: every tile is allocated once and serves every iteration, so an
engine cannot fill it before the last reader is done.

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
HIDDEN = -1.0e30  # finite: the exponent becomes 0 without the NaN of inf - inf


def load_rows(src, row, row_end):
    """A fresh SBUF tile with the rows [row, row_end) of src."""
    tile = nl.ndarray((row_end - row, src.shape[1]), dtype=src.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=src[row:row_end, :])
    return tile


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

    products = nl.ndarray((PARTITIONS, PARTITIONS), dtype=nl.float32, buffer=nl.psum)
    flipped = nl.ndarray((PARTITIONS, PARTITIONS), dtype=nl.float32, buffer=nl.psum)
    accumulator = nl.ndarray((PARTITIONS, head), dtype=nl.float32, buffer=nl.psum)
    scores = nl.ndarray((PARTITIONS, sequence), dtype=nl.float32, buffer=nl.sbuf)
    weights = nl.ndarray((PARTITIONS, sequence), dtype=nl.float32, buffer=nl.sbuf)
    weights_t = nl.ndarray((PARTITIONS, PARTITIONS), dtype=v.dtype, buffer=nl.sbuf)
    shift = nl.ndarray((PARTITIONS, 1), dtype=nl.float32, buffer=nl.sbuf)
    total = nl.ndarray((PARTITIONS, 1), dtype=nl.float32, buffer=nl.sbuf)
    inverse = nl.ndarray((PARTITIONS, 1), dtype=nl.float32, buffer=nl.sbuf)
    result = nl.ndarray((PARTITIONS, head), dtype=v.dtype, buffer=nl.sbuf)

    for start in range(0, sequence, PARTITIONS):
        end = min(start + PARTITIONS, sequence)
        size = end - start
        for key in range(0, end, PARTITIONS):
            key_end = min(key + PARTITIONS, end)
            width = key_end - key
            nisa.nc_matmul(
                dst=products[0:size, 0:width],
                stationary=queries[:, start:end],
                moving=keys[:, key:key_end],
                accumulate=False,  # the tile still holds the last block
            )
            nisa.tensor_copy(dst=scores[0:size, key:key_end], src=products[0:size, 0:width])
        # Only the square on the diagonal is mixed: query p sees its key j while p - j >= 0.
        nisa.affine_select(
            dst=scores[0:size, start:end],
            pattern=[[-1, size]],
            channel_multiplier=1,
            on_true_tile=scores[0:size, start:end],
            on_false_value=HIDDEN,
            cmp_op=nl.greater_equal,
        )

        # exp(scale * score - scale * max) in one instruction, with its row sum.
        nisa.tensor_reduce(
            dst=shift[0:size, :],
            op=nl.maximum,
            data=scores[0:size, 0:end],
            axis=1,
            negate=True,
            keepdims=True,
        )
        nisa.tensor_scalar(dst=shift[0:size, :], data=shift[0:size, :], op0=nl.multiply, operand0=scale)
        nisa.activation_reduce(
            dst=weights[0:size, 0:end],
            op=nl.exp,
            data=scores[0:size, 0:end],
            reduce_op=nl.add,
            reduce_res=total[0:size, :],
            bias=shift[0:size, :],
            scale=scale,
        )

        # fp32 transposes are legal on every generation; the copy out of PSUM casts to the dtype of v.
        for i in range(len(values)):
            key = i * PARTITIONS
            if key < end:
                key_end = min(key + PARTITIONS, end)
                width = key_end - key
                nisa.nc_transpose(dst=flipped[0:width, 0:size], data=weights[0:size, key:key_end])
                nisa.tensor_copy(dst=weights_t[0:width, 0:size], src=flipped[0:width, 0:size])
                nisa.nc_matmul(
                    dst=accumulator[0:size, :],
                    stationary=weights_t[0:width, 0:size],
                    moving=values[i],
                    accumulate=i > 0,
                )

        nisa.reciprocal(dst=inverse[0:size, :], data=total[0:size, :])
        nisa.tensor_scalar(
            dst=result[0:size, :], data=accumulator[0:size, :], op0=nl.multiply, operand0=inverse[0:size, :]
        )
        nisa.dma_copy(dst=out[start:end, :], src=result[0:size, :])
    return out
