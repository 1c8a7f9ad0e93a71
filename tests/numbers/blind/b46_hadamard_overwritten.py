"""Orthonormal Walsh-Hadamard transform of each row: the rotation in front of a quantised product (QuaRot).

True cause: the butterflies run in place. The defective twin writes a + b over a and then forms the difference
from the new a, (a + b) - b, where a - b of the values before the stage is meant: on the GPU both were in
registers. The line is `target = source if in_place else spare`, which picks the destination of a stage,
after which the second `tensor_tensor`, the subtraction, reads what the first has just written.
"""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "b46",
    "cause": "in-place-butterfly",
    "also": (
        "operand-overwritten",
        "read-after-overwrite",
        "difference-of-updated-value",
        "read-after-update",
    ),
    "dtypes": ("float32", "bfloat16", "float16"),
    "shapes": ((128, 128), (200, 64), (300, 256)),
}


def _transform(x, in_place):
    rows, size = x.shape
    out = nl.ndarray((rows, size), dtype=x.dtype, buffer=nl.shared_hbm)
    for start in range(0, rows, 128):
        p = min(128, rows - start)
        loaded = nl.ndarray((p, size), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=loaded, src=x[start : start + p, :])
        source = nl.ndarray((p, size), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=source, src=loaded)
        spare = nl.ndarray((p, size), dtype=nl.float32, buffer=nl.sbuf)
        half = 1
        while half < size:
            target = source if in_place else spare
            read = source.reshape((p, size // (2 * half), 2, half))
            write = target.reshape((p, size // (2 * half), 2, half))
            low, high = read[:, :, 0, :], read[:, :, 1, :]
            nisa.tensor_tensor(dst=write[:, :, 0, :], data1=low, data2=high, op=nl.add)
            nisa.tensor_tensor(dst=write[:, :, 1, :], data1=low, data2=high, op=nl.subtract)
            if not in_place:
                source, spare = spare, source
            half *= 2
        stored = nl.ndarray((p, size), dtype=x.dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=stored, data=source, op0=nl.multiply, operand0=size**-0.5)
        nisa.dma_copy(dst=out[start : start + p, :], src=stored)
    return out


@nki.jit
def honest(x):
    """Each stage reads one buffer and writes the other."""
    return _transform(x, False)


@nki.jit
def defective(x):
    """Each stage reads and writes the same buffer."""
    return _transform(x, True)


def inputs(shape, dtype, seed):
    """Activations with a few outlier channels, for which the rotation is there."""
    random = np.random.default_rng(seed)
    x = random.standard_normal(shape)
    x[:, random.choice(shape[1], 3, replace=False)] *= 10.0
    return [x.astype(getattr(ml_dtypes, dtype, dtype))]


def reference(x):
    """The product with Sylvester's matrix, H(2n) = [[H, H], [H, -H]] of H(n), over the root of its size."""
    size = x.shape[1]
    hadamard = np.ones((1, 1))
    while hadamard.shape[0] < size:
        hadamard = np.kron(np.array([[1.0, 1.0], [1.0, -1.0]]), hadamard)
    return x.astype(np.float64) @ hadamard / np.sqrt(size)
