"""RMSNorm, right but slow: two passes over HBM in fp32 chunks of 64 columns, gamma broadcast anew for each.

    x     [rows, columns]  rows on the partitions
    gamma [1, columns]     gain of each column, any float dtype
    eps                    added to the mean square
    out   [rows, columns]  dtype of x, in shared HBM

dtypes: float32, bfloat16 or float16; squares, sums and the gain are fp32.
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
def rmsnorm(x, gamma, eps):
    """Return x / sqrt(mean(x ** 2) + eps) * gamma; shapes and dtypes are those of the module docstring."""
    rows, columns = x.shape
    out = nl.ndarray((rows, columns), dtype=x.dtype, buffer=nl.shared_hbm)
    for row in range(0, rows, PARTITIONS):
        row_end = min(row + PARTITIONS, rows)
        size = row_end - row

        total = nl.ndarray((size, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=total, value=0.0)
        for column in range(0, columns, CHUNK):
            chunk = load_chunk(x, row, row_end, column)
            nisa.tensor_tensor(dst=chunk, data1=chunk, data2=chunk, op=nl.multiply)
            chunk_sum = nl.ndarray((size, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_reduce(dst=chunk_sum, op=nl.add, data=chunk, axis=1, keepdims=True)
            nisa.tensor_tensor(dst=total, data1=total, data2=chunk_sum, op=nl.add)

        inverse = nl.ndarray((size, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_scalar(
            dst=inverse, data=total, op0=nl.multiply, operand0=1.0 / columns, op1=nl.add, operand1=eps
        )
        nisa.activation(dst=inverse, op=nl.sqrt, data=inverse)
        nisa.reciprocal(dst=inverse, data=inverse)

        for column in range(0, columns, CHUNK):
            chunk = load_chunk(x, row, row_end, column)
            gain_row = load_chunk(gamma, 0, 1, column)
            ones = nl.ndarray((1, size), dtype=nl.float32, buffer=nl.sbuf)
            nisa.memset(dst=ones, value=1.0)
            gain = nl.ndarray(chunk.shape, dtype=nl.float32, buffer=nl.psum)
            nisa.nc_matmul(dst=gain, stationary=ones, moving=gain_row)
            nisa.tensor_scalar(dst=chunk, data=chunk, op0=nl.multiply, operand0=inverse)
            nisa.tensor_tensor(dst=chunk, data1=chunk, data2=gain, op=nl.multiply)
            nisa.dma_copy(dst=out[row:row_end, column : column + chunk.shape[1]], src=chunk)
    return out
