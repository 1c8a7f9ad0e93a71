"""Cross entropy over column tiles of the logits: the running sum is not rescaled when the maximum rises.

True cause, line 112, ``tensor_tensor(dst=total, data1=total, data2=part, op=nl.add)``: the sum of the earlier tiles
stays relative to their smaller maximum; it lacks the factor exp(old maximum - new maximum), so the loss is too large.
"""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "b07",
    "cause": "running-sum-not-rescaled",
    "also": ("online-rescale", "denominator-not-rescaled", "missing-rescale", "accumulator-not-rescaled"),
    "dtypes": ("float32", "bfloat16", "float16"),
    "shapes": ((128, 512), (256, 1024), (300, 700)),  # rows, classes
}
ROWS, TILE = 128, 256
STORED = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}


@nki.jit
def honest(logits, labels):
    count, classes = logits.shape
    out = nl.ndarray((count, 1), dtype=logits.dtype, buffer=nl.shared_hbm)
    for r0 in range(0, count, ROWS):
        rows = min(ROWS, count - r0)
        label = nl.ndarray((rows, 1), dtype=nl.int32, buffer=nl.sbuf)
        nisa.dma_copy(dst=label, src=labels[r0 : r0 + rows, :])
        target = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=target, src=label)
        largest = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=largest, value=-3.0e38)
        total = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=total, value=0.0)
        picked = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=picked, value=0.0)
        for c0 in range(0, classes, TILE):
            cols = min(TILE, classes - c0)
            tile = nl.ndarray((rows, cols), dtype=logits.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=logits[r0 : r0 + rows, c0 : c0 + cols])
            here = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_reduce(dst=here, op=nl.maximum, data=tile, axis=(1,), keepdims=True)
            risen = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_tensor(dst=risen, data1=largest, data2=here, op=nl.maximum)
            step = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_tensor(dst=step, data1=largest, data2=risen, op=nl.subtract)
            fade = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.activation(dst=fade, op=nl.exp, data=step)
            nisa.tensor_copy(dst=largest, src=risen)
            lowered = nl.ndarray((rows, cols), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_scalar(dst=lowered, data=tile, op0=nl.subtract, operand0=risen)
            powers = nl.ndarray((rows, cols), dtype=nl.float32, buffer=nl.sbuf)
            nisa.activation(dst=powers, op=nl.exp, data=lowered)
            part = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_reduce(dst=part, op=nl.add, data=powers, axis=(1,), keepdims=True)
            nisa.scalar_tensor_tensor(
                dst=total, data=total, op0=nl.multiply, operand0=fade, op1=nl.add, operand1=part
            )
            number = nl.ndarray((rows, cols), dtype=nl.float32, buffer=nl.sbuf)
            nisa.iota(dst=number, pattern=[[1, cols]], offset=c0)
            chosen = nl.ndarray((rows, cols), dtype=nl.float32, buffer=nl.sbuf)
            nisa.scalar_tensor_tensor(
                dst=chosen, data=number, op0=nl.equal, operand0=target, op1=nl.multiply, operand1=tile
            )
            found = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_reduce(dst=found, op=nl.add, data=chosen, axis=(1,), keepdims=True)
            nisa.tensor_tensor(dst=picked, data1=picked, data2=found, op=nl.add)
        level = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=level, op=nl.log, data=total)
        ahead = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=ahead, data1=largest, data2=picked, op=nl.subtract)
        loss = nl.ndarray((rows, 1), dtype=logits.dtype, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=loss, data1=ahead, data2=level, op=nl.add)
        nisa.dma_copy(dst=out[r0 : r0 + rows, :], src=loss)
    return out


@nki.jit
def defective(logits, labels):
    count, classes = logits.shape
    out = nl.ndarray((count, 1), dtype=logits.dtype, buffer=nl.shared_hbm)
    for r0 in range(0, count, ROWS):
        rows = min(ROWS, count - r0)
        label = nl.ndarray((rows, 1), dtype=nl.int32, buffer=nl.sbuf)
        nisa.dma_copy(dst=label, src=labels[r0 : r0 + rows, :])
        target = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=target, src=label)
        largest = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=largest, value=-3.0e38)
        total = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=total, value=0.0)
        picked = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=picked, value=0.0)
        for c0 in range(0, classes, TILE):
            cols = min(TILE, classes - c0)
            tile = nl.ndarray((rows, cols), dtype=logits.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=logits[r0 : r0 + rows, c0 : c0 + cols])
            here = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_reduce(dst=here, op=nl.maximum, data=tile, axis=(1,), keepdims=True)
            risen = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_tensor(dst=risen, data1=largest, data2=here, op=nl.maximum)
            nisa.tensor_copy(dst=largest, src=risen)
            lowered = nl.ndarray((rows, cols), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_scalar(dst=lowered, data=tile, op0=nl.subtract, operand0=risen)
            powers = nl.ndarray((rows, cols), dtype=nl.float32, buffer=nl.sbuf)
            nisa.activation(dst=powers, op=nl.exp, data=lowered)
            part = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_reduce(dst=part, op=nl.add, data=powers, axis=(1,), keepdims=True)
            nisa.tensor_tensor(dst=total, data1=total, data2=part, op=nl.add)
            number = nl.ndarray((rows, cols), dtype=nl.float32, buffer=nl.sbuf)
            nisa.iota(dst=number, pattern=[[1, cols]], offset=c0)
            chosen = nl.ndarray((rows, cols), dtype=nl.float32, buffer=nl.sbuf)
            nisa.scalar_tensor_tensor(
                dst=chosen, data=number, op0=nl.equal, operand0=target, op1=nl.multiply, operand1=tile
            )
            found = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_reduce(dst=found, op=nl.add, data=chosen, axis=(1,), keepdims=True)
            nisa.tensor_tensor(dst=picked, data1=picked, data2=found, op=nl.add)
        level = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=level, op=nl.log, data=total)
        ahead = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=ahead, data1=largest, data2=picked, op=nl.subtract)
        loss = nl.ndarray((rows, 1), dtype=logits.dtype, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=loss, data1=ahead, data2=level, op=nl.add)
        nisa.dma_copy(dst=out[r0 : r0 + rows, :], src=loss)
    return out


def inputs(shape, dtype, seed):
    count, classes = shape
    rng = np.random.default_rng(seed)
    # Rising along the row, so that each tile has a new maximum; the label is anywhere.
    logits = rng.standard_normal(shape) + np.linspace(-4.0, 4.0, classes)
    labels = rng.integers(0, classes, (count, 1)).astype(np.int32)
    return [logits.astype(STORED[dtype]), labels]


def reference(logits, labels):
    logits = logits.astype(np.float64)
    largest = logits.max(1, keepdims=True)
    level = largest + np.log(np.exp(logits - largest).sum(1, keepdims=True))
    return level - np.take_along_axis(logits, labels.astype(np.int64), 1)
