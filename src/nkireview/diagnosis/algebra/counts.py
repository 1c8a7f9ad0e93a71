"""Counts: by what a mean may be meant to divide, from the shapes of a Program."""

from __future__ import annotations

import math
from collections.abc import Sequence

from nkireview.checks.dataflow import Dataflow
from nkireview.checks.steps import MATMUL, terms_of
from nkireview.diagnosis.algebra.lines import Line

MOST = 10
"""Counts that are tried."""


def counts(flow: Dataflow, given: Sequence[Line]) -> tuple[int, ...]:
    """The lengths of sums, dimensions of parameters, their whole sizes: those above 1, the most plausible first."""
    found = [terms_of(line.call) for line in given]
    program = flow.program
    shapes = [program.buffer(buffer).shape for _, buffer in program.parameter_buffers]
    found += [size for shape in shapes for size in reversed(shape)]
    found += [line.call.measure("data", "free") for line in given if line.opcode == "bn_stats"]
    found += [math.prod(shape[-2:]) for shape in shapes] + [math.prod(shape) for shape in shapes]
    found += contracted(given)
    return tuple(dict.fromkeys(count for count in found if count > 1))[:MOST]


def contracted(given: Sequence[Line]) -> list[int]:
    """The partitions that matmuls sum over."""
    return [
        line.call.measure("stationary", "partitions")
        for line in given
        if line.opcode == MATMUL and not line.call.imm("is_transpose")
    ]
