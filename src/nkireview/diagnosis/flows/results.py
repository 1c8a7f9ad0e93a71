"""What shows in the outputs themselves: constants, copies of inputs, outputs that lie where another one belongs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from nkireview.checks.provenance import provenance
from nkireview.diagnosis.flows.acting import Array
from nkireview.diagnosis.flows.explaining import Case, Explanation, close
from nkireview.isa.row import Row


def constant(case: Case, rows: Mapping[str, Row]) -> Iterator[Explanation]:
    """Outputs that no parameter reaches, and those that are one number everywhere."""
    found = provenance(case.program, rows)
    for at, mine in enumerate(case.base):
        wanted = case.wanted[at]
        if not mine.size or (mine.shape == wanted.shape and close(mine, wanted)):
            continue
        if at in found.constant_outputs:
            places = [case.program.place_text(place) for place in found.outputs[at].writers[:1]]
            where = f", written at {places[0]}," if places and places[0] else ""
            yield Explanation(
                "constant-output",
                f"output {case.output(at)}{where} is made of no input: it is always the same",
            )
        elif mine.size > 1 and np.all(mine == mine.flat[0]) and np.ptp(wanted[np.isfinite(wanted)]) > 0:
            yield Explanation(
                "constant-output", f"every element of output {case.output(at)} is {float(mine.flat[0]):g}"
            )


def copied(case: Case) -> Iterator[Explanation]:
    """Outputs that are an input, as it is or transposed."""
    for at, mine in enumerate(case.base):
        if mine.shape == case.wanted[at].shape and close(mine, case.wanted[at]):
            continue
        for path, held in zip(case.paths, case.inputs, strict=True):
            if mine.size > 1 and _equal(case, mine, held):
                yield Explanation(
                    "input-copied",
                    f"output {case.output(at)} is input {path}, unchanged where it should be computed",
                )


def elsewhere(case: Case) -> Iterator[Explanation]:
    """Outputs that are those of the reference in another order, or transposed."""
    base, wanted = case.base, case.wanted
    for at in range(len(base)):
        for other in range(at + 1, len(base)):
            crossed = list(wanted)
            crossed[at], crossed[other] = wanted[other], wanted[at]
            if case.matches(crossed):
                one, two = case.output(at), case.output(other)
                yield Explanation(
                    "outputs-exchanged", f"outputs {one} and {two} are returned in each other's place"
                )
    turned = list(wanted)
    names = []
    for at, right in enumerate(wanted):
        square = right.ndim > 1 and right.shape[-1] == right.shape[-2]
        if square and base[at].shape == right.shape and not close(base[at], right):
            turned[at] = np.swapaxes(right, -1, -2)
            names.append(case.output(at))
    if names and case.matches(turned):
        what = f"outputs {', '.join(names)} are" if len(names) > 1 else f"output {names[0]} is"
        yield Explanation("operand-transposed", f"{what} returned transposed: rows where columns belong")


def _equal(case: Case, mine: Array, held: Array) -> bool:
    return mine.shape == held.shape and close(mine, held.astype(np.float64))
