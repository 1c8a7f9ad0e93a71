"""One step of a GRU cell of PyTorch and cuDNN: n = tanh(x_n + r * (W_hn h + b_hn)), h' = (1 - z) n + z h.

The products of the inputs with their weights come precomputed; hidden units lie on the partitions,
sequences along the free axis.

True cause: the reset gate is applied to the state before the recurrent product, W_hn (r * h) + b_hn, as
in the paper of 2014 (linear_before_reset=0 in ONNX), not to the product: the defective twin moves
`gated` through the product of the candidate where `state` is meant (`moved = gated if early else
state`).
"""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "b55",
    "cause": "reset-gate-before-product",
    "also": ("gate-inside-matmul", "reset-gate-wrong-operand", "linear-before-reset"),
    "dtypes": ("float32", "bfloat16", "float16"),
    "shapes": ((128, 128), (256, 96), (192, 300)),  # hidden units, sequences
}


def _product(weights, gate, state, row, size, batch):
    """W_h[gate] times the state, the rows of one tile of hidden units, in PSUM."""
    bank = nl.ndarray((size, batch), dtype=nl.float32, buffer=nl.psum)
    for at, tile in enumerate(state):
        depth = tile.shape[0]
        part = nl.ndarray((depth, size), dtype=weights.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=part, src=weights[gate, 128 * at : 128 * at + depth, row : row + size])
        nisa.nc_matmul(dst=bank, stationary=part, moving=tile)
    return bank


def cell(projected, hidden, weights, bias, early):
    units, batch = hidden.shape
    kind = hidden.dtype
    out = nl.ndarray((units, batch), dtype=kind, buffer=nl.shared_hbm)
    rows = [(row, min(128, units - row)) for row in range(0, units, 128)]
    state, gates, gated = [], [], []
    for row, size in rows:
        tile = nl.ndarray((size, batch), dtype=kind, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=hidden[row : row + size, :])
        state.append(tile)
    for at, (row, size) in enumerate(rows):
        both = []
        for gate in range(2):
            inputs_ = nl.ndarray((size, batch), dtype=kind, buffer=nl.sbuf)
            nisa.dma_copy(dst=inputs_, src=projected[gate, row : row + size, :])
            opened = nl.ndarray((size, batch), dtype=nl.float32, buffer=nl.sbuf)
            bank = _product(weights, gate, state, row, size, batch)
            nisa.tensor_tensor(dst=opened, data1=bank, data2=inputs_, op=nl.add)
            nisa.activation(dst=opened, op=nl.sigmoid, data=opened)
            both.append(opened)
        gates.append(both)
        kept = nl.ndarray((size, batch), dtype=kind, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=kept, data1=both[0], data2=state[at], op=nl.multiply)
        gated.append(kept)
    moved = gated if early else state
    for at, (row, size) in enumerate(rows):
        reset, update = gates[at]
        shift = nl.ndarray((size, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=shift, src=bias[row : row + size, :])
        inputs_ = nl.ndarray((size, batch), dtype=kind, buffer=nl.sbuf)
        nisa.dma_copy(dst=inputs_, src=projected[2, row : row + size, :])
        candidate = nl.ndarray((size, batch), dtype=nl.float32, buffer=nl.sbuf)
        bank = _product(weights, 2, moved, row, size, batch)
        nisa.tensor_scalar(dst=candidate, data=bank, op0=nl.add, operand0=shift)
        if not early:
            nisa.tensor_tensor(dst=candidate, data1=candidate, data2=reset, op=nl.multiply)
        nisa.tensor_tensor(dst=candidate, data1=candidate, data2=inputs_, op=nl.add)
        nisa.activation(dst=candidate, op=nl.tanh, data=candidate)
        change = nl.ndarray((size, batch), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=change, data1=state[at], data2=candidate, op=nl.subtract)
        nisa.tensor_tensor(dst=change, data1=change, data2=update, op=nl.multiply)
        stored = nl.ndarray((size, batch), dtype=kind, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=stored, data1=candidate, data2=change, op=nl.add)
        nisa.dma_copy(dst=out[row : row + size, :], src=stored)
    return out


@nki.jit
def honest(projected, hidden, weights, bias):
    return cell(projected, hidden, weights, bias, False)


@nki.jit
def defective(projected, hidden, weights, bias):
    return cell(projected, hidden, weights, bias, True)


def inputs(shape, dtype, seed):
    """Input parts of the reset, update and candidate gates, the state, W_h (gate, from, to) and b_hn."""
    units, batch = shape
    draw = np.random.default_rng(seed)
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    projected = draw.standard_normal((3, units, batch))
    hidden = draw.uniform(-1.0, 1.0, (units, batch))
    weights = 2.5 * draw.standard_normal((3, units, units)) / np.sqrt(units)
    bias = (0.3 * draw.standard_normal((units, 1))).astype(np.float32)
    return [projected.astype(kind), hidden.astype(kind), weights.astype(kind), bias]


def reference(projected, hidden, weights, bias):
    """torch.nn.GRUCell, transposed."""
    x_r, x_z, x_n = projected.astype(np.float64)
    w_r, w_z, w_n = weights.astype(np.float64)
    h = hidden.astype(np.float64)
    r = 1 / (1 + np.exp(-(x_r + w_r.T @ h)))
    z = 1 / (1 + np.exp(-(x_z + w_z.T @ h)))
    n = np.tanh(x_n + r * (w_n.T @ h + bias.astype(np.float64)))
    return (1 - z) * n + z * h
