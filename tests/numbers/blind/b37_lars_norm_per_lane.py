"""One LARS step with momentum: the layer's learning rate is the norm of the whole weight over that of the gradient.

True cause: the sums of squares are reduced along the free dimension alone. In CUDA a block reduction gives one norm of
the layer; here each of the 128 lanes keeps the sum of its own rows. The defective twin takes `partial` as it is for the
norm, in `nisa.activation(dst=norm, op=nl.sqrt, data=partial)`; the sum over the lanes (a matmul with ones) is missing.
"""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "b37",
    "cause": "norm-per-partition-not-global",
    "also": (
        "cross-partition-sum-missing",
        "norm-over-wrong-axes",
        "reduction-over-free-axis-only",
        "reduction-axis",
    ),
    "dtypes": ("float32", "bfloat16", "float16"),
    "shapes": ((256, 512), (128, 96), (200, 300)),
}
TRUST, DECAY, MOMENTUM = 0.1, 0.01, 0.9


def _norm(tensor, whole):
    """The Euclidean norm of a tensor in HBM, in each of 128 lanes."""
    rows, columns = tensor.shape
    partial = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=partial, value=0.0)
    for row in range(0, rows, 128):
        size = min(128, rows - row)
        tile = nl.ndarray((size, columns), dtype=tensor.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=tensor[row : row + size, :])
        square = nl.ndarray((size, columns), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=square, data1=tile, data2=tile, op=nl.multiply)
        total = nl.ndarray((size, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=total, op=nl.add, data=square, axis=(1,), keepdims=True)
        nisa.tensor_tensor(dst=partial[:size, :], data1=partial[:size, :], data2=total, op=nl.add)
    norm = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    if whole:
        ones = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=ones, value=1.0)
        bank = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=bank, stationary=ones, moving=partial)
        nisa.activation(dst=norm, op=nl.sqrt, data=bank)
    else:
        nisa.activation(dst=norm, op=nl.sqrt, data=partial)
    return norm


def _step(weight, gradient, velocity, whole):
    rows, columns = weight.shape
    moved = nl.ndarray((rows, columns), dtype=weight.dtype, buffer=nl.shared_hbm)
    speed = nl.ndarray((rows, columns), dtype=weight.dtype, buffer=nl.shared_hbm)
    of_weight, of_gradient = _norm(weight, whole), _norm(gradient, whole)
    rate = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(
        dst=rate, data=of_weight, op0=nl.multiply, operand0=DECAY, op1=nl.add, operand1=of_gradient
    )
    nisa.reciprocal(dst=rate, data=rate)
    nisa.tensor_scalar(
        dst=rate, data=rate, op0=nl.multiply, operand0=of_weight, op1=nl.multiply, operand1=TRUST
    )
    for row in range(0, rows, 128):
        size = min(128, rows - row)
        tiles = []
        for source in (weight, gradient, velocity):
            tile = nl.ndarray((size, columns), dtype=weight.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=source[row : row + size, :])
            tiles.append(tile)
        step = nl.ndarray((size, columns), dtype=nl.float32, buffer=nl.sbuf)
        nisa.scalar_tensor_tensor(
            dst=step, data=tiles[0], op0=nl.multiply, operand0=DECAY, op1=nl.add, operand1=tiles[1]
        )
        nisa.tensor_scalar(dst=step, data=step, op0=nl.multiply, operand0=rate[:size, :])
        fresh = nl.ndarray((size, columns), dtype=nl.float32, buffer=nl.sbuf)
        nisa.scalar_tensor_tensor(
            dst=fresh, data=tiles[2], op0=nl.multiply, operand0=MOMENTUM, op1=nl.add, operand1=step
        )
        stored = nl.ndarray((size, columns), dtype=weight.dtype, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=stored, data1=tiles[0], data2=fresh, op=nl.subtract)
        nisa.dma_copy(dst=moved[row : row + size, :], src=stored)
        kept = nl.ndarray((size, columns), dtype=weight.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=kept, src=fresh)
        nisa.dma_copy(dst=speed[row : row + size, :], src=kept)
    return moved, speed


@nki.jit
def honest(weight, gradient, velocity):
    """The norms are those of the layer."""
    return _step(weight, gradient, velocity, True)


@nki.jit
def defective(weight, gradient, velocity):
    """The norms are those of a lane's rows."""
    return _step(weight, gradient, velocity, False)


def inputs(shape, dtype, seed):
    """Rows of weights and gradients of different magnitudes, as output channels have."""
    random = np.random.default_rng(seed)
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    scales = np.exp(random.standard_normal((2, shape[0], 1)))
    weight, gradient = scales * random.standard_normal((2, *shape))
    velocity = 0.05 * random.standard_normal(shape)
    return [weight.astype(kind), gradient.astype(kind), velocity.astype(kind)]


def reference(weight, gradient, velocity):
    """You et al. 2017: local rate = trust |w| / (|g| + decay |w|), v = m v + rate (g + decay w), w = w - v."""
    w, g, v = (each.astype(np.float64) for each in (weight, gradient, velocity))
    rate = TRUST * np.linalg.norm(w) / (np.linalg.norm(g) + DECAY * np.linalg.norm(w))
    v = MOMENTUM * v + rate * (g + DECAY * w)
    return w - v, v
