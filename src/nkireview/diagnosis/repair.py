"""A repair: a change after which a Program may give the right answer, and what it would then have been wrong with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from nkireview.execute import Around
from nkireview.program.program import Program


@dataclass(frozen=True, eq=False)
class Repair:
    """One change: of immediates (`program` is the edited one), of execution (`around`), or of arguments.

    cause: the stable name of what is wrong if the change makes the output right, said in `sentence` with its place.
    instruction: the first that is changed, -1 where none is. arguments: new values of parameter buffers.
    """

    cause: str
    sentence: str
    instruction: int
    program: Program
    around: Around | None = None
    arguments: Mapping[int, NDArray[Any]] = field(default_factory=dict)
