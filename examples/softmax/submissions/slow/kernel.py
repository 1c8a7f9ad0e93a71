"""Softmax, right but slow: three passes over HBM in chunks of 64 columns, as if there were no room for a row.

    x   [rows, columns]  rows on the partitions
    out [rows, columns]  dtype of x, in shared HBM

dtypes: float32, bfloat16 or float16; exponentials and sums are fp32.
"""

import nki
import nki.isa as nisa
import nki.language as nl

PARTITIONS = 128
CHUNK = 64


def load_chunk(x, row, row_end, column):
    """Up to 64 columns of x from `column` on, as an fp32 tile."""
    column_end = min(column + CHUNK, x.shape[1])
    chunk = nl.ndarray((row_end - row, column_end - column), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=chunk, src=x[row:row_end, column:column_end])
    return chunk


@nki.jit
def softmax(x):
    """Return the softmax of each row of x; shapes and dtypes are those of the module docstring."""
    rows, columns = x.shape
    out = nl.ndarray((rows, columns), dtype=x.dtype, buffer=nl.shared_hbm)
    for row in range(0, rows, PARTITIONS):
        row_end = min(row + PARTITIONS, rows)
        size = row_end - row

        maximum = nl.ndarray((size, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=maximum, value=-3.0e38)
        for column in range(0, columns, CHUNK):
            chunk = load_chunk(x, row, row_end, column)
            chunk_max = nl.ndarray((size, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_reduce(dst=chunk_max, op=nl.maximum, data=chunk, axis=1, keepdims=True)
            nisa.tensor_tensor(dst=maximum, data1=maximum, data2=chunk_max, op=nl.maximum)

        total = nl.ndarray((size, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=total, value=0.0)
        for column in range(0, columns, CHUNK):
            chunk = load_chunk(x, row, row_end, column)
            nisa.tensor_scalar(dst=chunk, data=chunk, op0=nl.subtract, operand0=maximum)
            nisa.activation(dst=chunk, op=nl.exp, data=chunk)
            chunk_sum = nl.ndarray((size, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_reduce(dst=chunk_sum, op=nl.add, data=chunk, axis=1, keepdims=True)
            nisa.tensor_tensor(dst=total, data1=total, data2=chunk_sum, op=nl.add)

        inverse = nl.ndarray((size, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.reciprocal(dst=inverse, data=total)
        for column in range(0, columns, CHUNK):
            chunk = load_chunk(x, row, row_end, column)
            nisa.tensor_scalar(dst=chunk, data=chunk, op0=nl.subtract, operand0=maximum)
            nisa.activation(dst=chunk, op=nl.exp, data=chunk)
            nisa.tensor_scalar(dst=chunk, data=chunk, op0=nl.multiply, operand0=inverse)
            nisa.dma_copy(dst=out[row:row_end, column : column + chunk.shape[1]], src=chunk)
    return out
