"""Softmax over the last dimension, right but slow: its tiles have 64 rows, so half of the partitions are idle.

    x   [rows, columns]  rows on the partitions; columns <= 16384, the limit of activation_reduce
    out [rows, columns]  dtype of x, in shared HBM

dtypes: float32, bfloat16 or float16; exponentials and sums are fp32.
SBUF must hold three rows a partition: 12 bytes a column in float32.
"""

import nki
import nki.isa as nisa
import nki.language as nl

ROWS = 64


@nki.jit
def softmax(x):
    """Return the softmax of each row of x; shapes and dtypes are those of the module docstring."""
    rows, columns = x.shape
    out = nl.ndarray((rows, columns), dtype=x.dtype, buffer=nl.shared_hbm)
    for row in range(0, rows, ROWS):
        row_end = min(row + ROWS, rows)
        size = row_end - row
        tile = nl.ndarray((size, columns), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[row:row_end, :])

        negative_max = nl.ndarray((size, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=negative_max, op=nl.maximum, data=tile, axis=1, negate=True, keepdims=True)

        exponentials = nl.ndarray((size, columns), dtype=nl.float32, buffer=nl.sbuf)
        total = nl.ndarray((size, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation_reduce(
            dst=exponentials, op=nl.exp, data=tile, reduce_op=nl.add, reduce_res=total, bias=negative_max
        )

        inverse = nl.ndarray((size, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.reciprocal(dst=inverse, data=total)
        result = nl.ndarray((size, columns), dtype=x.dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=result, data=exponentials, op0=nl.multiply, operand0=inverse)
        nisa.dma_copy(dst=out[row:row_end, :], src=result)
    return out
