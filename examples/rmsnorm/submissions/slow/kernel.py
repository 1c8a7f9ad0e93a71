"""RMSNorm, right but slow: rows come and go in pieces of 256 bytes, one DMA for each piece.

    x     [rows, columns]  rows on the partitions; columns <= 16384, the limit of activation_reduce
    gamma [1, columns]     gain of each column, any float dtype
    eps                    added to the mean square
    out   [rows, columns]  dtype of x, in shared HBM

dtypes: float32, bfloat16 or float16; squares, sums and the gain are fp32.
SBUF must hold four rows a partition: 16 bytes a column in float32.
"""

import nki
import nki.isa as nisa
import nki.language as nl

PARTITIONS = 128
BANK = 512  # fp32 elements in a partition of a PSUM bank, and the longest moving operand on trn1 and trn2
PIECE_BYTES = 256
BITS = {nl.float32: 32, nl.bfloat16: 16, nl.float16: 16}


def broadcast_rows(row):
    """An fp32 tile [128, columns] whose rows all equal row [1, columns] in HBM: ones [1, 128].T @ row."""
    columns = row.shape[1]
    source = nl.ndarray((1, columns), dtype=row.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=source, src=row)
    ones = nl.ndarray((1, PARTITIONS), dtype=row.dtype, buffer=nl.sbuf)
    nisa.memset(dst=ones, value=1.0)
    tile = nl.ndarray((PARTITIONS, columns), dtype=nl.float32, buffer=nl.sbuf)
    for column in range(0, columns, BANK):
        column_end = min(column + BANK, columns)
        copies = nl.ndarray((PARTITIONS, column_end - column), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=copies, stationary=ones, moving=source[:, column:column_end])
        nisa.tensor_copy(dst=tile[:, column:column_end], src=copies)
    return tile


@nki.jit
def rmsnorm(x, gamma, eps):
    """Return x / sqrt(mean(x ** 2) + eps) * gamma; shapes and dtypes are those of the module docstring."""
    rows, columns = x.shape
    out = nl.ndarray((rows, columns), dtype=x.dtype, buffer=nl.shared_hbm)
    piece = PIECE_BYTES * 8 // BITS[x.dtype]
    gain = broadcast_rows(gamma)
    eps_tile = nl.ndarray((PARTITIONS, 1), dtype=nl.float32, buffer=nl.sbuf)  # trn1 takes no number as a bias
    nisa.memset(dst=eps_tile, value=eps)

    for row in range(0, rows, PARTITIONS):
        row_end = min(row + PARTITIONS, rows)
        size = row_end - row
        tile = nl.ndarray((size, columns), dtype=x.dtype, buffer=nl.sbuf)
        for column in range(0, columns, piece):
            end = min(column + piece, columns)
            nisa.dma_copy(dst=tile[:, column:end], src=x[row:row_end, column:end])

        squares = nl.ndarray((size, columns), dtype=nl.float32, buffer=nl.sbuf)
        total = nl.ndarray((size, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation_reduce(dst=squares, op=nl.square, data=tile, reduce_op=nl.add, reduce_res=total)
        inverse = nl.ndarray((size, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=inverse, op=nl.rsqrt, data=total, bias=eps_tile[0:size, :], scale=1.0 / columns)

        result = nl.ndarray((size, columns), dtype=x.dtype, buffer=nl.sbuf)
        nisa.scalar_tensor_tensor(
            dst=result,
            data=tile,
            op0=nl.multiply,
            operand0=inverse,
            op1=nl.multiply,
            operand1=gain[0:size, :],
        )
        for column in range(0, columns, piece):
            end = min(column + piece, columns)
            nisa.dma_copy(dst=out[row:row_end, column:end], src=result[:, column:end])
    return out
