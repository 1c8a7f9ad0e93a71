"""Tiled matmul that loads every element once and keeps the PE array fed.

    lhs_t [K, M]  left operand, transposed: the contraction dimension K lies on the partitions
    rhs   [K, N]  right operand, dtype of lhs_t
    out   [M, N]  dtype of lhs_t, in shared HBM

dtypes: bfloat16, float16 or float32. K, M and N may be any size, as long as SBUF holds lhs_t whole and two
column blocks of rhs: 2 * ceil(K / 128) * (M + 2048) bytes a partition in bfloat16.
"""

import nki
import nki.isa as nisa
import nki.language as nl

PARTITIONS = 128  # rows and columns of the PE array
BANK = 512  # fp32 elements in a partition of a PSUM bank, and the longest moving operand on trn1 and trn2
BLOCK = 1024  # columns of one load: 2 KiB a row in bfloat16, near the peak of a DMA engine


def load_block(src, start, end):
    """Columns [start, end) of src [K, columns], as a list of SBUF tiles of at most 128 rows."""
    tiles = []
    for k in range(0, src.shape[0], PARTITIONS):
        k_end = min(k + PARTITIONS, src.shape[0])
        tile = nl.ndarray((k_end - k, end - start), dtype=src.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=src[k:k_end, start:end])
        tiles.append(tile)
    return tiles


def multiply_block(out, lhs_tiles, rhs_tiles):
    """Store the product of two blocks; out [rows, columns] is a view in HBM, the tiles share one K split."""
    rows, columns = out.shape
    for row in range(0, rows, PARTITIONS):
        row_end = min(row + PARTITIONS, rows)
        # K is outside the banks: the array starts on the first K tile instead of waiting for the last.
        accumulators = []
        for column in range(0, columns, BANK):
            column_end = min(column + BANK, columns)
            accumulators.append(
                nl.ndarray((row_end - row, column_end - column), dtype=nl.float32, buffer=nl.psum)
            )
        for i in range(len(lhs_tiles)):
            for j in range(len(accumulators)):
                column_end = min((j + 1) * BANK, columns)
                nisa.nc_matmul(
                    dst=accumulators[j],
                    stationary=lhs_tiles[i][:, row:row_end],
                    moving=rhs_tiles[i][:, j * BANK : column_end],
                    accumulate=i > 0,
                )
        result = nl.ndarray((row_end - row, columns), dtype=out.dtype, buffer=nl.sbuf)
        for j in range(len(accumulators)):
            column_end = min((j + 1) * BANK, columns)
            nisa.tensor_copy(dst=result[:, j * BANK : column_end], src=accumulators[j])
        nisa.dma_copy(dst=out[row:row_end, :], src=result)


@nki.jit
def matmul(lhs_t, rhs):
    """Return lhs_t.T @ rhs; shapes and dtypes are those of the module docstring."""
    m_size = lhs_t.shape[1]
    n_size = rhs.shape[1]
    out = nl.ndarray((m_size, n_size), dtype=lhs_t.dtype, buffer=nl.shared_hbm)

    lhs_blocks = []  # stays in SBUF for all column blocks of rhs
    for n in range(0, n_size, BLOCK):
        n_end = min(n + BLOCK, n_size)
        rhs_tiles = load_block(rhs, n, n_end)
        for m in range(0, m_size, BLOCK):
            m_end = min(m + BLOCK, m_size)
            if n == 0:
                lhs_blocks.append(load_block(lhs_t, m, m_end))
            multiply_block(out[m:m_end, n:n_end], lhs_blocks[m // BLOCK], rhs_tiles)
    return out
