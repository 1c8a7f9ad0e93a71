"""Two cores store rows at places that the data names, and some places are named by both.

On hardware: the row of either core may stay, as nothing orders the cores; where core 1 is later, by chance, the
result is the one that is expected. In the twin core 1 stores after both have met. Rests on constraint 119 and
nisa.core_barrier (isa stubs, 2601-2654).
"""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {"code": "NKR033", "target": "trn2", "lnc": 2, "severity": "blocker"}


def loaded(x):
    """x in SBUF."""
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    return tile


@nki.jit
def bad(x, places):
    """x [2, 32, 64] fp32, places [2, 32, 1] int32: rows of out [48, 64], those of x[1] over those of x[0]."""
    out = nl.ndarray((48, x.shape[2]), dtype=x.dtype, buffer=nl.shared_hbm, name="out")
    core = nl.program_id(0)
    tile, rows = loaded(x[core]), loaded(places[core])
    view = out.ap([[64, 32], [1, 64]], offset=0, vector_offset=rows, indirect_dim=0)
    if core == 0:
        nisa.dma_copy(dst=view, src=tile)  # first
    else:
        nisa.dma_copy(dst=view, src=tile)  # second
    return out


@nki.jit
def good(x, places):
    """x [2, 32, 64] fp32, places [2, 32, 1] int32: rows of out [48, 64], those of x[1] over those of x[0]."""
    out = nl.ndarray((48, x.shape[2]), dtype=x.dtype, buffer=nl.shared_hbm, name="out")
    core = nl.program_id(0)
    tile, rows = loaded(x[core]), loaded(places[core])
    view = out.ap([[64, 32], [1, 64]], offset=0, vector_offset=rows, indirect_dim=0)
    if core == 0:
        nisa.dma_copy(dst=view, src=tile)
        nisa.core_barrier(out, (0, 1))
    else:
        nisa.core_barrier(out, (0, 1))
        nisa.dma_copy(dst=view, src=tile)
    return out


def inputs(seed=0):
    draw = np.random.default_rng(seed)
    places = np.stack([draw.permutation(32), 16 + draw.permutation(32)])
    x = draw.standard_normal((2, 32, 64)).astype(np.float32)
    return [x, places.astype(np.int32).reshape(2, 32, 1)]


def reference(x, places):
    out = np.zeros((48, 64))
    for core in (0, 1):
        out[places[core, :, 0].astype(int)] = x[core]
    return out
