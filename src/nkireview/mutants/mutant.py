"""Mutant: a Program with one defect."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from nkireview.execute import Around, Execution, execute
from nkireview.program.program import Program

Array = NDArray[Any]
Outputs = tuple[Array, ...]


@dataclass(frozen=True, eq=False)
class Mutant:
    """One defect: a stable `name` of its kind, a sentence, the line, and how it is made.

    program: the edited Program, or the honest one. around: what runs its instructions. outputs: what becomes of the
    honest outputs, for a mutant that is not executed at all.
    """

    name: str
    sentence: str
    place: str
    program: Program
    around: Around | None = None
    outputs: Callable[[Outputs], Outputs] | None = None

    def run(self, arguments: Mapping[int, Array], honest: Outputs) -> Outputs:
        """The outputs on these arguments, in storage dtype; `honest`: those of the honest Program on them."""
        if self.outputs is not None:
            return self.outputs(honest)
        return values_of(execute(self.program, arguments, around=self.around))


def values_of(execution: Execution) -> Outputs:
    """The outputs of an execution, in storage dtype."""
    return tuple(output.values for output in execution.outputs)
