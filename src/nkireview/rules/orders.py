"""Rules over other legal orders of execution: what the result depends on besides its inputs."""

from __future__ import annotations

import math
from collections.abc import Iterator

from nkireview.rules.facts import Difference, WorkloadFacts
from nkireview.rules.finding import Dimension, Evidence, Severity
from nkireview.rules.rule import Draft, Rule, each


def _value(value: float) -> str:
    return "an undefined value" if math.isnan(value) else f"{value:.9g}"


def _depends(facts: WorkloadFacts) -> Iterator[Draft]:
    """One finding for each output, of the order that changes it most."""
    found = facts.orders
    if found is None:
        return
    by_output: dict[str, list[Difference]] = {}
    for item in found.differing:
        by_output.setdefault(item.output, []).append(item)
    for output, items in by_output.items():
        worst = max(items, key=lambda item: (not item.within, _size(item)))
        where = f"{output}[{', '.join(map(str, worst.index))}]" if worst.index else output
        names = {item.order for item in items}
        many = f"{worst.elements:,} elements differ" if worst.elements > 1 else "1 element differs"
        shown = (
            f"{where} is {_value(worst.first)} in the order of the program and {_value(worst.second)} with "
            f"{worst.order}, where {many}; of {len(found.tried)} other orders {len(names)} "
            f"{'give' if len(names) > 1 else 'gives'} other bits"
        )
        if worst.within:
            yield Draft(
                f"{output} depends on the order of execution, within its limits, by up to {_size(worst):.2g}: {shown}",
                worst.places,
                workload=facts.name,
                severity=Severity.minor,
                change="Where each run must give the same bits, fix the order of the additions: let one core add up "
                "partial sums of all, after they have met.",
            )
        else:
            yield Draft(
                f"{output} depends on the order of execution: {shown}",
                worst.places,
                workload=facts.name,
            )


def _size(item: Difference) -> float:
    """How far the two values are apart; an undefined one counts as infinitely far."""
    apart = abs(item.first - item.second)
    return math.inf if math.isnan(apart) else apart


RULES = (
    Rule(
        "NKR033",
        "The result depends on the order of execution",
        Severity.blocker,
        Dimension.dma,
        Evidence.executed,
        "Engines, DMA queues and cores run side by side. Only dependences that the compiler sees, uses of one tensor "
        "or those that are named, and meetings of cores keep their order. The program was executed in other orders "
        "that keep all of these, and an output changed.",
        each(_depends),
        change="Give the uses an order: use one tensor for one place, depend on the earlier instruction by name, or "
        "let the cores meet in between.",
    ),
)
