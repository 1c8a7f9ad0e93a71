"""Distillation loss of each row: T^2 times KL(teacher || student) of the two softmaxes at temperature T.

True cause: the divergence is taken the wrong way round, KL(student || teacher): F.kl_div takes the student
first, and the roles were taken over in that order. The line is
`given, model = (pupil, master) if reverse else (master, pupil)`, after which the student's probabilities
weigh log(student / teacher).
"""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "b48",
    "cause": "reverse-kl",
    "also": ("divergence-reversed", "kl-arguments-swapped", "swapped-operands", "operand-transposed"),
    "dtypes": ("float32", "bfloat16", "float16"),
    "shapes": ((128, 128), (256, 500), (200, 1000)),
}
TEMPERATURE = 2.0


def _log_softmax(source, start, p):
    """log softmax(x / T) of p rows: (x - max) / T - log(sum of exp)."""
    classes = source.shape[1]
    tile = nl.ndarray((p, classes), dtype=source.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=source[start : start + p, :])
    shift = nl.ndarray((p, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=shift, op=nl.maximum, data=tile, axis=(1,), keepdims=True)
    logs = nl.ndarray((p, classes), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(
        dst=logs, data=tile, op0=nl.subtract, operand0=shift, op1=nl.multiply, operand1=1.0 / TEMPERATURE
    )
    powers = nl.ndarray((p, classes), dtype=nl.float32, buffer=nl.sbuf)
    total = nl.ndarray((p, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.activation_reduce(dst=powers, op=nl.exp, data=logs, reduce_op=nl.add, reduce_res=total)
    nisa.activation(dst=total, op=nl.log, data=total)
    nisa.tensor_scalar(dst=logs, data=logs, op0=nl.subtract, operand0=total)
    return logs


def _loss(student, teacher, reverse):
    rows, classes = student.shape
    out = nl.ndarray((rows, 1), dtype=student.dtype, buffer=nl.shared_hbm)
    for start in range(0, rows, 128):
        p = min(128, rows - start)
        pupil = _log_softmax(student, start, p)
        master = _log_softmax(teacher, start, p)
        given, model = (pupil, master) if reverse else (master, pupil)
        weights = nl.ndarray((p, classes), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=weights, op=nl.exp, data=given)
        ratio = nl.ndarray((p, classes), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=ratio, data1=given, data2=model, op=nl.subtract)
        nisa.tensor_tensor(dst=ratio, data1=ratio, data2=weights, op=nl.multiply)
        divergence = nl.ndarray((p, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=divergence, op=nl.add, data=ratio, axis=(1,), keepdims=True)
        stored = nl.ndarray((p, 1), dtype=student.dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=stored, data=divergence, op0=nl.multiply, operand0=TEMPERATURE**2)
        nisa.dma_copy(dst=out[start : start + p, :], src=stored)
    return out


@nki.jit
def honest(student, teacher):
    """The teacher's probabilities weigh log(teacher / student)."""
    return _loss(student, teacher, False)


@nki.jit
def defective(student, teacher):
    """The student's probabilities weigh log(student / teacher)."""
    return _loss(student, teacher, True)


def inputs(shape, dtype, seed):
    """A sharp teacher, and a student that is flatter and noisy."""
    random = np.random.default_rng(seed)
    storage = getattr(ml_dtypes, dtype, dtype)
    teacher = 4.0 * random.exponential(size=shape)
    student = 0.2 * teacher + 0.5 * random.standard_normal(shape)
    return [student.astype(storage), teacher.astype(storage)]


def reference(student, teacher):
    """Hinton et al. 2015: T^2 sum_i p_i log(p_i / q_i), p the teacher's soft targets, q the student's."""

    def softmax(logits):
        scaled = np.exp(logits.astype(np.float64) / TEMPERATURE)
        return scaled / scaled.sum(axis=1, keepdims=True)

    p, q = softmax(teacher), softmax(student)
    return TEMPERATURE**2 * np.sum(p * np.log(p / q), axis=1, keepdims=True)
