"""Recency-weighted mean of event features: weights exp(-|t_query - t_event| / tau), times in int32 seconds since 1970.

True cause: the Vector engine subtracts int32 operands in float32, where seconds of 1.7e9 lie 128 apart, so each time is
rounded before the difference is taken (CUDA subtracts the integers exactly). In the defective twin it is the
`nisa.tensor_tensor(dst=apart, data1=now, data2=then, op=nl.subtract)` on the whole times; the honest one subtracts the
upper and the lower 16 bits apart.
"""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "b39",
    "cause": "int32-arithmetic-in-fp32",
    "also": (
        "integer-beyond-2-24",
        "timestamp-rounded-to-fp32",
        "int32-through-float32",
        "integers-beyond-float32",
    ),
    "dtypes": ("float32", "bfloat16", "float16"),
    "shapes": ((128, 128, 64), (64, 384, 32), (200, 300, 48)),
}
TAU = 60.0


def _part(times, upper):
    """The upper or the lower 16 bits of a tile of int32."""
    part = nl.ndarray(times.shape, dtype=nl.int32, buffer=nl.sbuf)
    if upper:
        nisa.tensor_scalar(dst=part, data=times, op0=nl.right_shift, operand0=16)
    else:
        nisa.tensor_scalar(dst=part, data=times, op0=nl.bitwise_and, operand0=0xFFFF)
    return part


def _recent(queries, events, features, split):
    """queries: [1, Q] and events: [E, 1], in int32; features: [E, width]."""
    count, (number, width) = queries.shape[1], features.shape
    out = nl.ndarray((count, width), dtype=features.dtype, buffer=nl.shared_hbm)
    for row in range(0, count, 128):
        size = min(128, count - row)
        mixed = nl.ndarray((size, width + 1), dtype=nl.float32, buffer=nl.psum)
        for low in range(0, number, 128):
            k = min(128, number - low)
            now = nl.ndarray((k, size), dtype=nl.int32, buffer=nl.sbuf)
            nisa.dma_copy(dst=now, src=queries[:, row : row + size].broadcast(0, k))
            then = nl.ndarray((k, size), dtype=nl.int32, buffer=nl.sbuf)
            nisa.dma_copy(dst=then, src=events[low : low + k, :].broadcast(1, size))
            apart = nl.ndarray((k, size), dtype=nl.float32, buffer=nl.sbuf)
            if split:
                coarse = nl.ndarray((k, size), dtype=nl.float32, buffer=nl.sbuf)
                nisa.tensor_tensor(
                    dst=coarse, data1=_part(now, True), data2=_part(then, True), op=nl.subtract
                )
                fine = nl.ndarray((k, size), dtype=nl.float32, buffer=nl.sbuf)
                nisa.tensor_tensor(
                    dst=fine, data1=_part(now, False), data2=_part(then, False), op=nl.subtract
                )
                nisa.scalar_tensor_tensor(
                    dst=apart, data=coarse, op0=nl.multiply, operand0=65536.0, op1=nl.add, operand1=fine
                )
            else:
                nisa.tensor_tensor(dst=apart, data1=now, data2=then, op=nl.subtract)
            nisa.activation(dst=apart, op=nl.abs, data=apart)
            weights = nl.ndarray((k, size), dtype=nl.float32, buffer=nl.sbuf)
            nisa.activation(dst=weights, op=nl.exp, data=apart, scale=-1.0 / TAU)
            loaded = nl.ndarray((k, width), dtype=features.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=loaded, src=features[low : low + k, :])
            moving = nl.ndarray((k, width + 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.memset(dst=moving, value=1.0)
            nisa.tensor_copy(dst=moving[:, :width], src=loaded)
            nisa.nc_matmul(dst=mixed, stationary=weights, moving=moving, accumulate=low > 0)
        total = nl.ndarray((size, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.reciprocal(dst=total, data=mixed[:, width : width + 1])
        stored = nl.ndarray((size, width), dtype=features.dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=stored, data=mixed[:, :width], op0=nl.multiply, operand0=total)
        nisa.dma_copy(dst=out[row : row + size, :], src=stored)
    return out


@nki.jit
def honest(queries, events, features):
    """The times are subtracted in two halves, exactly."""
    return _recent(queries, events, features, True)


@nki.jit
def defective(queries, events, features):
    """The times are subtracted whole, in float32."""
    return _recent(queries, events, features, False)


def inputs(shape, dtype, seed):
    """Events of half an hour in November 2023, queries in the same half hour."""
    count, number, width = shape
    random = np.random.default_rng(seed)
    start = 1_700_000_000
    queries = (start + random.integers(0, 1800, (1, count))).astype(np.int32)
    events = np.sort(start + random.integers(0, 1800, (number, 1)), axis=0).astype(np.int32)
    features = random.standard_normal((number, width)).astype(np.dtype(getattr(ml_dtypes, dtype, dtype)))
    return [queries, events, features]


def reference(queries, events, features):
    """The mean of the features, each weighted by exp(-seconds / tau)."""
    seconds = np.abs(queries.reshape(-1, 1).astype(np.int64) - events.reshape(1, -1).astype(np.int64))
    weights = np.exp(-seconds / TAU)
    return weights @ features.astype(np.float64) / weights.sum(1, keepdims=True)
