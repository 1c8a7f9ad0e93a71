"""Two cores exchange tiles, and one of them takes half of what the other one sends."""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

LNC = 2


def exchanged(x, taken):
    """x [2, 128, columns] fp32 with the two planes swapped, as far as `taken` [columns of each core] are taken."""
    core = nl.program_id(0)
    columns = x.shape[2]
    mine = nl.ndarray((128, columns), dtype=x.dtype, buffer=nl.sbuf)
    theirs = nl.ndarray((128, columns), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=mine, src=x[core])
    nisa.memset(dst=theirs, value=0.0)
    part = theirs[:, 0 : taken[core]]
    sent = mine[:, 0 : taken[core]]
    nisa.sendrecv(src=sent, dst=part, send_to_rank=1 - core, recv_from_rank=1 - core, pipe_id=0)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out[core], src=theirs)
    return out


@nki.jit
def bad(x):
    """x [2, 128, columns] fp32."""
    return exchanged(x, (x.shape[2], x.shape[2] // 2))


@nki.jit
def good(x):
    """x [2, 128, columns] fp32."""
    return exchanged(x, (x.shape[2], x.shape[2]))


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((2, 128, 64)).astype(np.float32)]


def reference(x):
    return x[::-1]
