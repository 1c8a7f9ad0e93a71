"""Iterations of a legacy affine_range rebind a name that the iteration before bound.

On hardware: as p24, without any assignment to a tile: the name carries the result of one iteration into the next, which
the compiler takes as independent of it. The twin says sequential_range and keeps one tile. Rests on constraint 113.
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import numpy as np

PAIR = {"code": "NKR050", "target": "trn2", "nki": "legacy", "severity": "blocker"}


@nki.jit
def bad(x):
    """x [4, 128, 64] fp32 -> the largest of the four."""
    out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    best = nl.full((128, 64), -3.0e38, dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.affine_range(4):  # first
        tile = nl.load(x[i])
        best = nl.maximum(best, tile)  # second
    nl.store(out, value=best)
    return out


@nki.jit
def good(x):
    """x [4, 128, 64] fp32 -> the largest of the four."""
    out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    best = nl.full((128, 64), -3.0e38, dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(4):
        tile = nl.load(x[i])
        best = nl.maximum(best, tile)
    nl.store(out, value=best)
    return out


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((4, 128, 64)).astype(np.float32)]


def reference(x):
    return x.max(axis=0)
