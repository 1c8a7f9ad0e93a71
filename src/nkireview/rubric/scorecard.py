"""Scorecard: what a review scored, by dimension and criterion, with what each score rests on."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from nkireview.rules.finding import Dimension


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class EvidenceLink(_Record):
    """What a score rests on: a finding (by `Finding.code` and its ordinal in the record) or a measure (by name)."""

    kind: Literal["finding", "measure"]
    name: str
    finding: int | None = None
    value: float | None = None
    effect: str
    """One clause: "caps the level at 1", "level 3: at least 0.6"."""


class CriterionScore(_Record):
    """One criterion: a level of 0 to 4, or why it was not assessed.

    A criterion with a `penalty` is no part of its dimension's score: it takes that many points of 100 from the total
    at level 0, and none at level 4. `original` is the level before a reviewer's edits, where there are any.
    """

    id: str
    title: str
    weight: float = Field(gt=0)
    level: float | None = Field(default=None, ge=0, le=4)
    descriptor: str = ""
    reason: str = ""
    evidence: tuple[EvidenceLink, ...] = ()
    penalty: float = Field(default=0.0, ge=0)
    edited: bool = False
    original: float | None = Field(default=None, ge=0, le=4)

    @model_validator(mode="after")
    def _bound(self) -> CriterionScore:
        if (self.level is None) == (not self.reason):
            raise ValueError("a criterion has either a level or the reason why it was not assessed")
        return self


class DimensionScore(_Record):
    """One dimension: the weighted mean of its criteria's levels, or None where none was assessed."""

    dimension: Dimension
    weight: float = Field(gt=0)
    score: float | None = Field(default=None, ge=0, le=4)
    reason: str = ""
    criteria: tuple[CriterionScore, ...] = ()


class Blocker(_Record):
    """A blocker (by `Finding.code` and its ordinal in the record) and the total it caps at, unless accepted."""

    code: str
    finding: int
    cap: float = Field(ge=0, le=100)
    accepted: bool = False


class Edit(_Record):
    """A reviewer's change: appended, never in place.

    `level` moves one criterion from `before` to `after` (None: not assessed). `accept` lifts the caps of the blockers
    with `code`; the levels stay. `of` is the identity of the review that it was made of: it holds for no other.
    """

    kind: Literal["level", "accept"] = "level"
    who: str = Field(min_length=1)
    when: str = Field(min_length=1)
    why: str = Field(min_length=1)
    of: str = Field(min_length=1)
    criterion: str = ""
    before: float | None = None
    after: float | None = None
    code: str = ""

    @model_validator(mode="after")
    def _bound(self) -> Edit:
        if self.kind == "level" and (not self.criterion or self.code):
            raise ValueError("an edit of a level names a criterion and no code")
        if self.kind == "accept" and (not self.code or self.criterion):
            raise ValueError("an edit that accepts a blocker names its code and no criterion")
        return self


class Scorecard(_Record):
    """Scores by dimension; `total` is of 100, over what was assessed; a blocker caps it (`cap`, `capped_by`).

    `unscored` are the findings above note, by ordinal, that no criterion of the rubric counts.
    """

    rubric: str
    dimensions: tuple[DimensionScore, ...]
    uncapped: float | None
    total: float | None
    cap: float | None = None
    capped_by: tuple[str, ...] = ()
    blockers: tuple[Blocker, ...] = ()
    unscored: tuple[int, ...] = ()
    edits: tuple[Edit, ...] = ()
