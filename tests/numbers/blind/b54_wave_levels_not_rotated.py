"""Four leapfrog steps of the wave equation on a batch of membranes that are held at their edges.

u[t+1] = 2 u[t] - u[t-1] + c^2 (sum of the four neighbours of u[t] - 4 u[t]), with three time levels in
SBUF.

True cause: the levels are not rotated in full. The defective twin swaps the two buffers of u[t] and
u[t+1] as a diffusion solver does, `current, following = following, current`, where `previous, current,
following = current, following, previous` is meant: `previous` stays at the first time level, and the
subtraction of `old` reads a level that is out of date from the second step on.
"""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "b54",
    "cause": "time-level-not-rotated",
    "also": ("stale-previous-state", "buffer-rotation-wrong", "previous-state-not-updated"),
    "dtypes": ("float32", "bfloat16", "float16"),
    "shapes": ((128, 12, 12), (64, 9, 20), (200, 16, 10)),  # membranes, height, width
}
STEPS = 4
COURANT = 0.35  # c^2 of a grid step


def _level(source, start, p, height, width):
    """A time level with a border of zeros, in float32."""
    loaded = nl.ndarray((p, height, width), dtype=source.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=loaded, src=source[start : start + p, :, :])
    level = nl.ndarray((p, height + 2, width + 2), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=level, value=0.0)
    nisa.tensor_copy(dst=level[:, 1 : height + 1, 1 : width + 1], src=loaded)
    return level


def leapfrog(before, now, rotate):
    membranes, height, width = now.shape
    out = nl.ndarray((membranes, height, width), dtype=now.dtype, buffer=nl.shared_hbm)
    for start in range(0, membranes, 128):
        p = min(128, membranes - start)
        previous = _level(before, start, p, height, width)
        current = _level(now, start, p, height, width)
        following = nl.ndarray((p, height + 2, width + 2), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=following, value=0.0)
        for _ in range(STEPS):
            around = nl.ndarray((p, height, width), dtype=nl.float32, buffer=nl.sbuf)
            up, down = current[:, 0:height, 1 : width + 1], current[:, 2 : height + 2, 1 : width + 1]
            nisa.tensor_tensor(dst=around, data1=up, data2=down, op=nl.add)
            left, right = current[:, 1 : height + 1, 0:width], current[:, 1 : height + 1, 2 : width + 2]
            nisa.tensor_tensor(dst=around, data1=around, data2=left, op=nl.add)
            nisa.tensor_tensor(dst=around, data1=around, data2=right, op=nl.add)
            nisa.tensor_scalar(dst=around, data=around, op0=nl.multiply, operand0=COURANT)
            inner = nl.ndarray((p, height, width), dtype=nl.float32, buffer=nl.sbuf)
            centre = current[:, 1 : height + 1, 1 : width + 1]
            nisa.tensor_scalar(dst=inner, data=centre, op0=nl.multiply, operand0=2.0 - 4.0 * COURANT)
            nisa.tensor_tensor(dst=inner, data1=inner, data2=around, op=nl.add)
            old = previous[:, 1 : height + 1, 1 : width + 1]
            new = following[:, 1 : height + 1, 1 : width + 1]
            nisa.tensor_tensor(dst=new, data1=inner, data2=old, op=nl.subtract)
            if rotate:
                previous, current, following = current, following, previous
            else:
                current, following = following, current
        stored = nl.ndarray((p, height, width), dtype=now.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=stored, src=current[:, 1 : height + 1, 1 : width + 1])
        nisa.dma_copy(dst=out[start : start + p, :, :], src=stored)
    return out


@nki.jit
def honest(before, now):
    return leapfrog(before, now, True)


@nki.jit
def defective(before, now):
    return leapfrog(before, now, False)


def inputs(shape, dtype, seed):
    """Two neighbouring time levels of a rough displacement that moves."""
    draw = np.random.default_rng(seed)
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    before = draw.standard_normal(shape)
    now = before + 0.5 * draw.standard_normal(shape)
    return [before.astype(kind), now.astype(kind)]


def reference(before, now):
    """The explicit scheme of second order in time and space, u = 0 outside of the membrane."""
    u0, u1 = before.astype(np.float64), now.astype(np.float64)
    for _ in range(STEPS):
        e = np.pad(u1, ((0, 0), (1, 1), (1, 1)))
        laplacian = e[:, :-2, 1:-1] + e[:, 2:, 1:-1] + e[:, 1:-1, :-2] + e[:, 1:-1, 2:] - 4 * u1
        u0, u1 = u1, 2 * u1 - u0 + COURANT * laplacian
    return u1
