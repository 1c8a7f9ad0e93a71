"""Tiled matmul, wrong on purpose: K // 128 drops the last, partial K tile; multiples of 128 come out right.

    lhs_t [K, M]  left operand, transposed: the contraction dimension K lies on the partitions
    rhs   [K, N]  right operand, dtype of lhs_t
    out   [M, N]  dtype of lhs_t, in shared HBM

dtypes: bfloat16, float16 or float32.
"""

import nki
import nki.isa as nisa
import nki.language as nl

PARTITIONS = 128
BANK = 512


@nki.jit
def matmul(lhs_t, rhs):
    """Return lhs_t.T @ rhs; shapes and dtypes are those of the module docstring."""
    k_size, m_size = lhs_t.shape
    n_size = rhs.shape[1]
    out = nl.ndarray((m_size, n_size), dtype=lhs_t.dtype, buffer=nl.shared_hbm)
    for n in range(0, n_size, BANK):
        n_end = min(n + BANK, n_size)
        rhs_tiles = []
        for k in range(k_size // PARTITIONS):
            rhs_tile = nl.ndarray((PARTITIONS, n_end - n), dtype=rhs.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=rhs_tile, src=rhs[k * PARTITIONS : (k + 1) * PARTITIONS, n:n_end])
            rhs_tiles.append(rhs_tile)
        for m in range(0, m_size, PARTITIONS):
            m_end = min(m + PARTITIONS, m_size)
            accumulator = nl.ndarray((m_end - m, n_end - n), dtype=nl.float32, buffer=nl.psum)
            for k in range(k_size // PARTITIONS):
                lhs_tile = nl.ndarray((PARTITIONS, m_end - m), dtype=lhs_t.dtype, buffer=nl.sbuf)
                nisa.dma_copy(dst=lhs_tile, src=lhs_t[k * PARTITIONS : (k + 1) * PARTITIONS, m:m_end])
                nisa.nc_matmul(dst=accumulator, stationary=lhs_tile, moving=rhs_tiles[k], accumulate=k > 0)
            result = nl.ndarray((m_end - m, n_end - n), dtype=out.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=result, src=accumulator)
            nisa.dma_copy(dst=out[m:m_end, n:n_end], src=result)
    return out
