"""Tiled matmul, right but slow: it loads both operands again for every tile of the product.

    lhs_t [K, M]  left operand, transposed: the contraction dimension K lies on the partitions
    rhs   [K, N]  right operand, dtype of lhs_t
    out   [M, N]  dtype of lhs_t, in shared HBM

dtypes: bfloat16, float16 or float32. K, M and N may be any size.
"""

import nki
import nki.isa as nisa
import nki.language as nl

TILE = 128
BANK = 512  # fp32 elements in a partition of a PSUM bank


@nki.jit
def matmul(lhs_t, rhs):
    """Return lhs_t.T @ rhs; shapes and dtypes are those of the module docstring."""
    k_size, m_size = lhs_t.shape
    n_size = rhs.shape[1]
    out = nl.ndarray((m_size, n_size), dtype=lhs_t.dtype, buffer=nl.shared_hbm)
    for m in range(0, m_size, TILE):
        m_end = min(m + TILE, m_size)
        for n in range(0, n_size, BANK):
            n_end = min(n + BANK, n_size)
            accumulator = nl.ndarray((m_end - m, n_end - n), dtype=nl.float32, buffer=nl.psum)
            for k in range(0, k_size, TILE):
                k_end = min(k + TILE, k_size)
                lhs_tile = nl.ndarray((k_end - k, m_end - m), dtype=lhs_t.dtype, buffer=nl.sbuf)
                nisa.dma_copy(dst=lhs_tile, src=lhs_t[k:k_end, m:m_end])
                rhs_tile = nl.ndarray((k_end - k, n_end - n), dtype=rhs.dtype, buffer=nl.sbuf)
                nisa.dma_copy(dst=rhs_tile, src=rhs[k:k_end, n:n_end])
                nisa.nc_matmul(dst=accumulator, stationary=lhs_tile, moving=rhs_tile, accumulate=k > 0)
            result = nl.ndarray((m_end - m, n_end - n), dtype=out.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=result, src=accumulator)
            nisa.dma_copy(dst=out[m:m_end, n:n_end], src=result)
    return out
