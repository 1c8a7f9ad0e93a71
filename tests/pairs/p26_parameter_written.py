"""A legacy kernel stores its result into its argument as well as into the tensor that it returns.

On hardware: the compiler of the legacy generation takes parameters as read-only unless they are annotated, and refuses
the store. The twin stores to its own tensor alone. Rests on constraint 26 (nki.errors of 2.26, 177-228).
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import numpy as np

PAIR = {"code": "NKR009", "target": "trn2", "nki": "legacy", "severity": "blocker"}


@nki.jit
def bad(x):
    """x [128, 64] fp32 -> 2 x."""
    out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x) * 2.0
    nl.store(x, value=tile)  # first
    nl.store(out, value=tile)
    return out


@nki.jit
def good(x):
    """x [128, 64] fp32 -> 2 x."""
    out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x) * 2.0
    nl.store(out, value=tile)
    return out


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((128, 64)).astype(np.float32)]


def reference(x):
    return 2.0 * x
