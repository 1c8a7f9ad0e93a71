"""A scheduling edge lets a producer wait for the consumer of its result.

On hardware: the copy must run before the product that reads it, and the schedule asks that it wait for that product: no
order keeps both, and the compiler refuses or drops the edge. The twin's edge runs with the data. Rests on
how-to-scheduling-apis (48-59: "check that it makes sense") and constraint 107.
"""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {"code": "NKR029", "target": "trn2", "severity": "blocker"}


@nki.jit
def body(x):
    """x [128, 64] fp32 -> 6 x."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    a = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    b = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=a, src=x)
    nisa.tensor_scalar(dst=b, data=a, op0=nl.multiply, operand0=2.0, name="twice")  # first
    nisa.tensor_scalar(dst=b, data=b, op0=nl.multiply, operand0=3.0, name="thrice")  # second
    nisa.dma_copy(dst=out, src=b)
    return out


bad = body.with_schedule([("twice", "thrice")])
good = body.with_schedule([("thrice", "twice")])


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((128, 64)).astype(np.float32)]


def reference(x):
    return 6.0 * x
