"""A scatter of one DMA adds each two rows to the same row.

On hardware: the DMA reads, adds and writes rows in flight, so one of two additions to a row may be lost; indices must
be unique. The twin gives the same call the indices of a permutation. Rests on constraint 88 (isa stubs 2687-2690).
"""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {"code": "NKR023", "target": "trn2", "severity": "major"}


def loaded(x):
    """x in SBUF."""
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    return tile


def body(x, rows):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm, name="out")
    tile, index = loaded(x), loaded(rows)
    zero = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.memset(zero, 0.0)
    nisa.dma_copy(dst=out, src=zero)
    view = out.ap([[64, 32], [1, 64]], offset=0, vector_offset=index, indirect_dim=0)
    nisa.dma_compute(view, [view, tile], reduce_op=nl.add)  # first
    return out


@nki.jit
def bad(x, rows):
    """x [32, 64] fp32, rows [32, 1] int32, each even one twice -> the sums of rows of x by rows."""
    return body(x, rows)


@nki.jit
def good(x, rows):
    """x [32, 64] fp32, rows [32, 1] int32, each once -> the rows of x by rows."""
    return body(x, rows)


def inputs(seed=0):
    draw = np.random.default_rng(seed)
    rows = draw.permutation(32) // 2 * 2
    return [draw.standard_normal((32, 64)).astype(np.float32), rows.astype(np.int32).reshape(32, 1)]


def inputs_good(seed=0):
    draw = np.random.default_rng(seed)
    rows = draw.permutation(32)
    return [draw.standard_normal((32, 64)).astype(np.float32), rows.astype(np.int32).reshape(32, 1)]


def reference(x, rows):
    out = np.zeros(x.shape)
    np.add.at(out, rows[:, 0].astype(int), x)
    return out
