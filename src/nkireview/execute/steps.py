"""Which step an instruction has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nkireview.execute.copying import Copy, Sum
from nkireview.execute.matmul import Matmul
from nkireview.execute.planned import PlannedStep
from nkireview.execute.result import NoMeaningError
from nkireview.execute.step import Core, Operands, Step
from nkireview.isa.enums import Engine
from nkireview.isa.row import Planned, Row

COPIES = frozenset({"dma_copy", "tensor_copy"})
MATMULS = frozenset({"nc_matmul", "nc_matmul_mx"})
SUMS = frozenset({"dma_compute"})


class Missing:
    """An instruction that no row describes: its dst becomes undefined."""

    meets = False
    given: tuple[tuple[str, int], ...] = ()

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.writes = tuple((at, name) for at, name in enumerate(names) if name == "dst")

    def run(self, core: Core, index: int, operands: Operands) -> None:
        """See `Step.run`."""
        raise NoMeaningError("unsupported", "the instruction table has no row with these operands")


def step_of(row: Row, names: tuple[str, ...], immediates: Mapping[str, Any], asked: Engine) -> Step:
    """The step of an instruction, whose operands are those of its row."""
    # A copy that adds to its destination (NKI 0.2 and before) is no move.
    adds = row.name in SUMS or (row.name in COPIES and bool(immediates.get("dst_rmw_op")))
    kind: type[Step] = PlannedStep if isinstance(row.meaning, Planned) else Step
    if adds:
        kind = Sum
    elif row.name in COPIES:
        kind = Copy
    elif row.name in MATMULS:
        kind = Matmul
    return kind(row, names, immediates, asked)
