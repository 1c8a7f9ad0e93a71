"""Mixture of experts, the way back: rows sorted by expert return to their tokens, summed by gate weight.

True cause: the permutation is applied where its inverse is meant. `order[r]` is the slot (token * 2 + choice)
that row r of the sorted rows came from, so that row r goes to slot order[r]; the defective twin reads
row order[s] into slot s. The line is `src=expert_rows.vector_select(0, index)`: a gather in the place of the
scatter.
"""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "b50",
    "cause": "permutation-not-inverted",
    "also": ("gather-for-scatter", "inverse-permutation", "wrong-rows"),
    "dtypes": ("float32", "bfloat16", "float16"),
    "shapes": ((128, 128), (192, 64), (150, 300)),
}
CHOICES = 2


def _combine(expert_rows, order, gates, gather):
    slots, width = expert_rows.shape
    tokens = slots // CHOICES
    dtype = expert_rows.dtype
    out = nl.ndarray((tokens, width), dtype=dtype, buffer=nl.shared_hbm)
    returned = nl.ndarray((slots, width), dtype=dtype, buffer=nl.private_hbm)
    for start in range(0, slots, 128):
        p = min(128, slots - start)
        index = nl.ndarray((p, 1), dtype=nl.int32, buffer=nl.sbuf)
        nisa.dma_copy(dst=index, src=order[start : start + p, :])
        tile = nl.ndarray((p, width), dtype=dtype, buffer=nl.sbuf)
        if gather:
            nisa.dma_copy(dst=tile, src=expert_rows.vector_select(0, index))
            nisa.dma_copy(dst=returned[start : start + p, :], src=tile)
        else:
            nisa.dma_copy(dst=tile, src=expert_rows[start : start + p, :])
            nisa.dma_copy(dst=returned.vector_select(0, index), src=tile)
    choices = returned.reshape((tokens, CHOICES, width))
    for start in range(0, tokens, 128):
        p = min(128, tokens - start)
        weights = nl.ndarray((p, CHOICES), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=weights, src=gates[start : start + p, :])
        total = nl.ndarray((p, width), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=total, value=0.0)
        for choice in range(CHOICES):
            part = nl.ndarray((p, width), dtype=dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=part, src=choices[start : start + p, choice, :])
            nisa.scalar_tensor_tensor(
                dst=total,
                data=part,
                op0=nl.multiply,
                operand0=weights[:, choice : choice + 1],
                op1=nl.add,
                operand1=total,
            )
        stored = nl.ndarray((p, width), dtype=dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=stored, src=total)
        nisa.dma_copy(dst=out[start : start + p, :], src=stored)
    return out


@nki.jit
def honest(expert_rows, order, gates):
    """Each row is scattered to the slot it came from."""
    return _combine(expert_rows, order, gates, False)


@nki.jit
def defective(expert_rows, order, gates):
    """Each slot takes the row that the permutation names."""
    return _combine(expert_rows, order, gates, True)


def inputs(shape, dtype, seed):
    """Rows sorted by the expert of their slot, one of eight; gate weights that sum to one."""
    tokens, width = shape
    random = np.random.default_rng(seed)
    experts = np.stack([random.choice(8, CHOICES, replace=False) for _ in range(tokens)]).reshape(-1)
    order = np.argsort(experts, kind="stable").astype(np.int32)[:, None]
    first = random.uniform(0.5, 0.9, tokens)
    gates = np.stack([first, 1.0 - first], axis=1).astype(np.float32)
    rows = random.standard_normal((tokens * CHOICES, width))
    return [rows.astype(getattr(ml_dtypes, dtype, dtype)), order, gates]


def reference(expert_rows, order, gates):
    """Each token's sum over its experts, found through the slot that each sorted row came from."""
    tokens, choices = gates.shape
    out = np.zeros((tokens, expert_rows.shape[1]))
    for row, slot in zip(expert_rows.astype(np.float64), order[:, 0], strict=True):
        token, choice = divmod(int(slot), choices)
        out[token] += gates[token, choice].astype(np.float64) * row
    return out
