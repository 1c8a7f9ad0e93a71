"""Roundings that are part of what a reference computes and that a kernel does not make."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from nkireview.checks.steps import steps
from nkireview.diagnosis.algebra.hooks import Values, after
from nkireview.diagnosis.algebra.lines import Line
from nkireview.diagnosis.habits.functions import output_stores
from nkireview.diagnosis.habits.survey import Survey
from nkireview.diagnosis.repair import Repair
from nkireview.isa import dtypes

CAUSE = "rounding-missing"
NARROW = (("bfloat16", 6), ("float16", 4), ("float8_e4m3", 3))
"""Dtypes, each with the number of lines that it is tried in."""
WHOLE = 3
"""Lines whose results are rounded to integers."""


def roundings(survey: Survey) -> Iterator[Repair]:
    """Results rounded to bfloat16 in one line, to integers, then to narrower dtypes."""
    found = _lines(survey)
    for name, most in NARROW[:1]:
        yield from _narrow(found, name, most)
    for said, change in (
        ("integers", np.rint),
        ("integers from -128 to 127", lambda values: np.clip(np.rint(values), -128, 127)),
    ):
        for line in found[:WHOLE]:
            sentence = f"the result of {line.opcode} is not rounded to {said}: rounded the output matches"
            yield from line.repair(CAUSE, sentence, None, after(line.instructions, "dst", change))
    for name, most in NARROW[1:]:
        yield from _narrow(found, name, most)


def _narrow(found: list[Line], name: str, most: int) -> Iterator[Repair]:
    wider = [line for line in found if line.call.dtype("dst") != name]
    for line in wider[:most]:
        sentence = f"the result of {line.opcode} is not rounded to {name}: rounded the output matches"
        yield from line.repair(CAUSE, sentence, None, after(line.instructions, "dst", _to(name)))


def _lines(survey: Survey) -> list[Line]:
    """Stores of outputs, then results of elementwise lines from the last to the first, then loads."""
    stores = output_stores(survey)
    loads = {index for one in survey.floats for index in one.loads}
    results, loaded = [], []
    for line in survey.lines:
        if not line.call.has("dst") or not line.floats("dst") or line in stores:
            continue
        if loads.issuperset(line.instructions):
            loaded.append(line)
        elif steps(line.call) is not None and line.opcode != "dma_copy":
            results.append(line)
    # what is stored as it is gives nothing that its store does not
    return [*stores, *results[-2::-1], *results[-1:], *loaded]


def _to(name: str) -> Callable[[Values], Values]:
    kind = dtypes.BY_NAME[name]

    def change(values: Values) -> Values:
        return np.asarray(dtypes.widened(dtypes.rounded(values, kind), kind, values.dtype))

    return change
