"""Iterations of a legacy affine_range take the maximum of a tile and what the iteration before left in it.

On hardware: the compiler of the legacy generation takes the iterations as independent and may run them at the same
time or in any order. The twin says sequential_range. Rests on constraint 113 (nki.errors of 2.26, 775-810).
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
        best[...] = nl.maximum(best, tile)  # second
    nl.store(out, value=best)
    return out


@nki.jit
def good(x):
    """x [4, 128, 64] fp32 -> the largest of the four."""
    out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    best = nl.full((128, 64), -3.0e38, dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.sequential_range(4):
        tile = nl.load(x[i])
        best[...] = nl.maximum(best, tile)
    nl.store(out, value=best)
    return out


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((4, 128, 64)).astype(np.float32)]


def reference(x):
    return x.max(axis=0)
