"""Runs a kernel over HBM arguments for the tests of `nki.language`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nkireview.execute import execute
from nkireview.isa.enums import Memory
from nkireview.isa.release import Release
from nkireview.nki import isa, language
from nkireview.nki.tensor import NkiTensor
from nkireview.nki.trace import Trace, tracing
from nkireview.program.model import Header, Output
from nkireview.program.program import Program
from nkireview.program.verify import verify

nl = language.module("nl")
nisa = isa.module("nisa")


def record(
    kernel: Callable[..., Any], arrays: list[np.ndarray], release: str = "0.6", target: str = "trn2"
) -> Program:
    """The Program of a kernel over HBM arguments; what it returns is stored to HBM if it is on chip."""
    trace = Trace(target, Release.parse(release))
    with tracing(trace):
        arguments = [
            NkiTensor.whole(trace, trace.buffer(Memory.shared_hbm, a.shape, a.dtype.name)) for a in arrays
        ]
        with trace.builder.stream():
            result = kernel(*arguments)
            if result.on_chip:
                if nl.is_psum(result.buffer):
                    tile = nl.ndarray(result.shape, result.dtype)
                    nisa.tensor_copy(dst=tile, src=result)
                    result = tile
                out = nl.ndarray(result.shape, result.dtype, nl.shared_hbm)
                nisa.dma_copy(dst=out, src=result)
                result = out
    header = Header("k", target, release, sources=tuple(trace.places.sources))
    return trace.builder.finish(header, outputs=(Output(result.access()),))


def run(kernel: Callable[..., Any], *arrays: np.ndarray, **options: str) -> np.ndarray:
    """The kernel's result; the Program must be legal and without faults."""
    program = record(kernel, list(arrays), **options)
    assert verify(program) == ()
    execution = execute(program, dict(enumerate(arrays)))
    assert execution.faults == ()
    return np.asarray(execution.outputs[0].values)


def opcodes(program: Program) -> list[str]:
    """The names of the instructions, in order."""
    return [program.instruction(at).opcode for at in range(program.columns.instructions)]


def sample(low: float = -3.0, high: float = 3.0, shape: tuple[int, ...] = (64, 40)) -> np.ndarray:
    """Uniform float32 values, always the same."""
    return np.random.default_rng(5).uniform(low, high, shape).astype(np.float32)
