"""Two cores scatter rows to places that only the data knows; where both have a row, the last one stays."""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

LNC = 2
ROWS = 96  # of the result; each core writes 64 of them


def load(x):
    """x [rows, columns] as an SBUF tile."""
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    return tile


def scatter(out, tile, index):
    """The rows of a tile go to the rows of out that index names."""
    rows, columns = tile.shape
    view = out.ap([[columns, rows], [1, columns]], offset=0, vector_offset=index, indirect_dim=0)
    nisa.dma_copy(dst=view, src=tile)


@nki.jit
def bad(x, places):
    """x [2, 64, columns] fp32, places [2, 64, 1] int32: core i stores x[i] at rows places[i]."""
    out = nl.ndarray((ROWS, x.shape[2]), dtype=x.dtype, buffer=nl.shared_hbm)
    core = nl.program_id(0)
    scatter(out, load(x[core]), load(places[core]))
    return out


@nki.jit
def good(x, places):
    """Core 1 stores when core 0 has done so."""
    out = nl.ndarray((ROWS, x.shape[2]), dtype=x.dtype, buffer=nl.shared_hbm)
    core = nl.program_id(0)
    tile, index = load(x[core]), load(places[core])
    if core == 0:
        scatter(out, tile, index)
    nisa.core_barrier(data=out, cores=(0, 1))
    if core == 1:
        scatter(out, tile, index)
    return out


def inputs(seed=0):
    draw = np.random.default_rng(seed)
    places = [draw.permutation(64), 32 + draw.permutation(64)]
    x = draw.standard_normal((2, 64, 64)).astype(np.float32)
    return [x, np.array(places, np.int32).reshape(2, 64, 1)]


def reference(x, places):
    out = np.zeros((ROWS, x.shape[2]))
    for rows, block in zip(places, x, strict=True):
        out[rows[:, 0].astype(int)] = block
    return out
