"""The patterns that a mismatch may show, and what is reported of one."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

Figure = Mapping[str, int | float | str]


class Name(str, enum.Enum):
    """Stable names of the patterns; each is a string."""

    NOT_FINITE = "not-finite"
    ZEROS = "zeros"
    SATURATED = "saturated"
    CONSTANT = "constant"
    OFF_BY_ONE = "off-by-one-integers"
    SIGN = "sign"
    SCALED = "scaled"
    OFFSET = "offset"
    TRANSPOSED = "transposed"
    SHIFTED = "shifted"
    STALE = "stale"
    ROWS_PERMUTED = "rows-permuted"
    COLUMNS_PERMUTED = "columns-permuted"
    GROWING = "growing"
    ROW_FACTORS = "row-factors"
    COLUMN_FACTORS = "column-factors"
    RANK_ONE = "rank-one"
    ROW_OFFSETS = "row-offsets"
    COLUMN_OFFSETS = "column-offsets"
    REGION = "region"
    EVERY_NTH = "every-nth"
    DIAGONAL = "diagonal"
    TRIANGLE = "triangle"
    SCATTERED = "scattered"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Pattern:
    """One explanation of a mismatch.

    ``explains`` is the share of the wrong elements that it accounts for, from 0 to 1; of arrays with very many
    wrong elements it is that of a sample. ``figure`` holds what the sentence says as numbers and words. Raise
    ValueError for a share outside 0 to 1.
    """

    name: Name
    sentence: str
    explains: float
    figure: Figure = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 <= self.explains <= 1:
            raise ValueError(f"{self.name} explains {self.explains} of the wrong elements: expected 0 to 1")
