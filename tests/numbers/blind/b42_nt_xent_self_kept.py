"""NT-Xent, the contrastive loss of SimCLR, of two views of each sample, at a temperature of 0.1.

True cause: the similarity of a sample with itself, which is 1, is left in the denominator of its own row: the
defective twin sums `powers`, where `others`, with zero on the diagonal, is meant
(`data=others if exclude else powers`).
"""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "b42",
    "cause": "self-pair-in-denominator",
    "also": ("diagonal-not-excluded", "self-similarity-kept"),
    "dtypes": ("float32", "bfloat16", "float16"),
    "shapes": ((128, 64), (192, 96), (200, 128)),  # samples, features
}
TEMPERATURE = 0.1


def unit_rows(source):
    """Rows of length 1, in float32."""
    size, width = source.shape
    raw = nl.ndarray((size, width), dtype=source.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=raw, src=source)
    squares = nl.ndarray((size, width), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=squares, data1=raw, data2=raw, op=nl.multiply)
    length = nl.ndarray((size, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=length, op=nl.add, data=squares, axis=(1,), keepdims=True)
    nisa.activation(dst=length, op=nl.rsqrt, data=length)
    rows = nl.ndarray((size, width), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=rows, data=raw, op0=nl.multiply, operand0=length)
    return rows


def contrast(views, exclude):
    _, samples, width = views.shape
    total = 2 * samples
    flat = views.reshape((total, width))
    out = nl.ndarray((total, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    columns = nl.ndarray((width, total), dtype=nl.float32, buffer=nl.sbuf)
    for start in range(0, total, 128):
        size = min(128, total - start)
        turned = nl.ndarray((width, size), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_transpose(dst=turned, data=unit_rows(flat[start : start + size, :]))
        nisa.tensor_copy(dst=columns[:, start : start + size], src=turned)
    for view in range(2):
        for start in range(0, samples, 128):
            size = min(128, samples - start)
            first = view * samples + start
            likeness = nl.ndarray((size, total), dtype=nl.float32, buffer=nl.psum)
            nisa.nc_matmul(dst=likeness, stationary=columns[:, first : first + size], moving=columns)
            shift = nl.ndarray((size, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.memset(dst=shift, value=-1.0 / TEMPERATURE)
            powers = nl.ndarray((size, total), dtype=nl.float32, buffer=nl.sbuf)
            nisa.activation(dst=powers, op=nl.exp, data=likeness, bias=shift, scale=1.0 / TEMPERATURE)
            others = nl.ndarray((size, total), dtype=nl.float32, buffer=nl.sbuf)
            nisa.affine_select(
                dst=others,
                pattern=[[1, total]],
                offset=-first,
                channel_multiplier=-1,
                on_true_tile=powers,
                on_false_value=0.0,
                cmp_op=nl.not_equal,
            )
            norm = nl.ndarray((size, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_reduce(
                dst=norm, op=nl.add, data=others if exclude else powers, axis=(1,), keepdims=True
            )
            nisa.activation(dst=norm, op=nl.log, data=norm)
            both = nl.ndarray((size, width), dtype=nl.float32, buffer=nl.sbuf)
            own = unit_rows(views[view, start : start + size])
            partner = unit_rows(views[1 - view, start : start + size])
            nisa.tensor_tensor(dst=both, data1=own, data2=partner, op=nl.multiply)
            match = nl.ndarray((size, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_reduce(dst=match, op=nl.add, data=both, axis=(1,), keepdims=True)
            nisa.tensor_scalar(
                dst=match,
                data=match,
                op0=nl.subtract,
                operand0=1.0,
                reverse0=True,
                op1=nl.multiply,
                operand1=1.0 / TEMPERATURE,
            )
            loss = nl.ndarray((size, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_tensor(dst=loss, data1=norm, data2=match, op=nl.add)
            nisa.dma_copy(dst=out[first : first + size, :], src=loss)
    return out


@nki.jit
def honest(views):
    """A row's denominator leaves the row itself out."""
    return contrast(views, True)


@nki.jit
def defective(views):
    """A row's denominator counts the row itself."""
    return contrast(views, False)


def inputs(shape, dtype, seed):
    """Two views that share half of their variance."""
    samples, width = shape
    draw = np.random.default_rng(seed)
    shared = draw.standard_normal((1, samples, width))
    views = 0.7 * shared + 0.7 * draw.standard_normal((2, samples, width))
    return [views.astype(np.dtype(getattr(ml_dtypes, dtype, dtype)))]


def reference(views):
    z = views.astype(np.float64).reshape(-1, views.shape[2])
    z = z / np.linalg.norm(z, axis=1, keepdims=True)
    n = len(z)
    sim = z @ z.T / TEMPERATURE
    positive = np.diag(np.roll(sim, n // 2, axis=1))[:, None]
    sim[np.arange(n), np.arange(n)] = -np.inf
    return np.log(np.exp(sim).sum(axis=1, keepdims=True)) - positive
