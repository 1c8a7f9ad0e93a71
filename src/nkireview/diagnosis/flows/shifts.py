"""The bias of an activation beside its scale: what is added must be scaled as the operand is."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from nkireview.checks.dataflow import Dataflow
from nkireview.diagnosis.algebra.hooks import Running, Values, before
from nkireview.diagnosis.flows.lines import Line, Lines
from nkireview.diagnosis.repair import Repair

MOST = 8
"""Lines that are tried."""


def repairs(flow: Dataflow, lines: Lines) -> Iterator[Repair]:
    """The bias multiplied with the scale of the same call, divided by it, and with its sign turned."""
    for line in [line for line in lines.all if _shifted(flow, line)][:MOST]:
        call = flow.call(line.first)
        scale = call.imm("scale") if call is not None else None
        ways: list[tuple[str, float]] = []
        if isinstance(scale, int | float) and not isinstance(scale, bool) and scale not in (0, 1, -1):
            ways += [(f"multiplied by the scale {scale:g}", float(scale))]
            ways += [(f"divided by the scale {scale:g}", 1 / float(scale))]
        for words, factor in [*ways, ("with its sign turned", -1.0)]:
            yield Repair(
                "shift-unscaled",
                f"{lines.text(line.first)} adds its bias as it is: {words} the output matches",
                line.first,
                flow.program,
                before(line.instructions, "bias", _times(factor)),
            )


def _shifted(flow: Dataflow, line: Line) -> bool:
    call = flow.call(line.first)
    return call is not None and call.row.name in ("activation", "activation_reduce") and call.has("bias")


def _times(factor: float) -> Callable[[Running], Values]:
    return lambda running: running.value("bias") * factor
