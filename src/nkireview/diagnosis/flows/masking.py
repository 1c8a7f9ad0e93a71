"""Masks that multiply what they should replace, and tiles that a matmul takes untransposed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from nkireview.checks.dataflow import Dataflow
from nkireview.diagnosis.algebra.hooks import Running, Values, before, instead
from nkireview.diagnosis.algebra.masks import LOWEST
from nkireview.diagnosis.flows.lines import Line, Lines
from nkireview.diagnosis.repair import Repair

MOST = 8
"""Lines that are tried."""


def multiplied(flow: Dataflow, lines: Lines) -> Iterator[Repair]:
    """A factor of zeros and ones on its way to an exponential: what it makes zero should be very negative."""
    for line in [line for line in lines.all if _multiplies(flow, line)][:MOST]:
        for mask, other in (("data2", "data1"), ("data1", "data2")):
            yield Repair(
                "mask-multiplied",
                f"{lines.text(line.first)} multiplies with a mask, which leaves zeros that exp makes ones: with "
                f"{LOWEST:g} in their place the output matches",
                line.first,
                flow.program,
                instead(line.instructions, lambda running, m=mask, o=other: _selected(running, m, o)),  # type: ignore[misc]
            )


def untransposed(flow: Dataflow, lines: Lines) -> Iterator[Repair]:
    """A square tile of a matmul transposed."""
    for line in [line for line in lines.all if _matmul(flow, line)][:MOST]:
        call = flow.call(line.first)
        for name in ("stationary", "moving"):
            shape = () if call is None else call.tiles[name].access.pattern
            if len(shape) == 2 and shape[0][1] == shape[1][1] > 1:
                yield Repair(
                    "operand-transposed",
                    f"{lines.text(line.first)} takes its {name} tile as it is: transposed the output matches",
                    line.first,
                    flow.program,
                    before(line.instructions, name, lambda running, n=name: _turned(running, n)),  # type: ignore[misc]
                )


def _multiplies(flow: Dataflow, line: Line) -> bool:
    call = flow.call(line.first)
    return call is not None and call.row.name == "tensor_tensor" and call.imm("op") == "multiply"


def _matmul(flow: Dataflow, line: Line) -> bool:
    call = flow.call(line.first)
    return call is not None and call.row.name == "nc_matmul" and not call.imm("is_transpose")


def _selected(running: Running, mask: str, other: str) -> Values | None:
    """The other operand where the mask is not zero; None where it is no mask."""
    held = running.value(mask)
    if not np.isin(held, (0.0, 1.0)).all():
        return None
    return np.where(held != 0, running.value(other), LOWEST)


def _turned(running: Running, name: str) -> Values | None:
    held = running.value(name)
    return np.ascontiguousarray(held.T) if held.ndim == 2 and held.shape[0] == held.shape[1] else None
