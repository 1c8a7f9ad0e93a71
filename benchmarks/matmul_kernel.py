"""A tiled fp32 matmul with both loads in the innermost loop: the kernel of `overhead.py`."""

import nki
import nki.isa as nisa
import nki.language as nl

TILE_K, TILE_M, TILE_N = 128, 128, 512


@nki.jit
def matmul(lhsT, rhs):  # noqa: N803
    """lhsT [K, M], rhs [K, N] -> [M, N], all fp32; K and M multiples of 128, N of 512."""
    k_size, m_size = lhsT.shape
    n_size = rhs.shape[1]
    out = nl.ndarray((m_size, n_size), dtype=nl.float32, buffer=nl.shared_hbm)
    for m in range(m_size // TILE_M):
        for n in range(n_size // TILE_N):
            total = nl.ndarray((TILE_M, TILE_N), dtype=nl.float32, buffer=nl.psum)
            for k in range(k_size // TILE_K):
                a = nl.ndarray((TILE_K, TILE_M), dtype=nl.float32, buffer=nl.sbuf)
                b = nl.ndarray((TILE_K, TILE_N), dtype=nl.float32, buffer=nl.sbuf)
                rows = nl.ds(k * TILE_K, TILE_K)
                nisa.dma_copy(dst=a, src=lhsT[rows, nl.ds(m * TILE_M, TILE_M)])
                nisa.dma_copy(dst=b, src=rhs[rows, nl.ds(n * TILE_N, TILE_N)])
                nisa.nc_matmul(dst=total, stationary=a, moving=b)
            tile = nl.ndarray((TILE_M, TILE_N), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_copy(dst=tile, src=total)
            nisa.dma_copy(dst=out[nl.ds(m * TILE_M, TILE_M), nl.ds(n * TILE_N, TILE_N)], src=tile)
    return out
