"""Rubric: dimensions and criteria with their weights, levels, rules and measures, and the caps of blockers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from nkireview.rubric import codes, tables
from nkireview.rules.finding import Dimension, Severity
from nkireview.rules.registry import RULES
from nkireview.validation import Table, suggestion

TOP = 4
LEVELS = TOP + 1
MIN_POINTS, MAX_POINTS = 1e-6, 1e6


def _levels(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    for key in value:
        if str(key) not in map(str, range(LEVELS)):
            raise ValueError(f"{key!r} is no level; expected 0 to {TOP}")
    return {int(key): number for key, number in value.items()}


def _dimension(value: str) -> str:
    if value not in Dimension.__members__:
        raise ValueError(f"{value!r} is no dimension; {suggestion(value, list(Dimension.__members__))}")
    return value


def is_word(value: str) -> bool:
    """Whether a text can be the part of a criterion's id after the dot."""
    return bool(value) and all(c.isascii() and (c.isalnum() or c in "-_") for c in value)


def _word(value: str) -> str:
    if not is_word(value):
        raise ValueError(f"got {value!r}; expected a name of letters, digits, '-' and '_'")
    return value


def _pattern(value: str) -> str:
    wrong = codes.problem(value) or codes.unknown(value, [rule.code for rule in RULES])
    if wrong:
        raise ValueError(wrong)
    return value


def _measure(value: str) -> str:
    if value not in tables.measures():
        raise ValueError(f"there is no measure {value!r}; {suggestion(value, list(tables.measures()))}")
    return value


def _points(value: Any) -> Any:
    wrong = points_problem(value)
    if wrong:
        raise ValueError(wrong)
    return value


def points_problem(value: object) -> str:
    """What is wrong with points; empty where they are some."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if number and MIN_POINTS <= abs(value) <= MAX_POINTS:  # type: ignore[arg-type]
        return ""
    return f"got {value!r}; expected a number of {MIN_POINTS:g} to {MAX_POINTS:g}, or the negative of one"


Text = Annotated[str, Field(min_length=1)]
DimensionName = Annotated[str, AfterValidator(_dimension)]
Word = Annotated[str, AfterValidator(_word)]
Pattern = Annotated[str, AfterValidator(_pattern)]
MeasureName = Annotated[str, AfterValidator(_measure)]
Level = Annotated[int, Field(ge=0, le=TOP)]
Weight = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Bounds = Annotated[dict[int, Annotated[float, Field(allow_inf_nan=False)]], BeforeValidator(_levels)]
Points = Annotated[int | float, BeforeValidator(_points)]

# TOML has arrays only; the elements stay strict.
_FROM_ARRAY = Field(strict=False)
_PATTERNS = "an array of codes, ranges and '*', such as ['NKR020', 'NKR140-NKR149']"


class Thresholds(Table):
    """The level that a measure's value gives: the highest whose bound it reaches, else `otherwise`."""

    name: MeasureName = Field(description="the name of a measure, such as 'pe_filled'")
    at: Bounds = Field(
        min_length=1, description="a table of bounds by level, such as { 4 = 0.9, 3 = 0.7, 2 = 0.4 }"
    )
    otherwise: Level = Field(default=0, description="the level below all bounds, 0 to 4")

    @model_validator(mode="after")
    def _falling(self) -> Thresholds:
        measure = tables.measures()[self.name]
        for low, high in pairwise(sorted(self.at)):
            if self.at[low] == self.at[high] or measure.reaches(self.at[low], self.at[high]):
                order = "rise" if measure.direction == "higher" else "fall"
                raise ValueError(
                    f"level {high} is at {self.at[high]:g} and level {low} at {self.at[low]:g}; "
                    f"expected bounds that {order} with the level, as {measure.direction} is better"
                )
        if self.otherwise >= min(self.at):
            raise ValueError(
                f"otherwise is {self.otherwise}; expected a level below the lowest bound's, {min(self.at)}"
            )
        return self

    def level(self, value: float) -> tuple[int, str]:
        """The level of a value, and the clause that says why."""
        measure = tables.measures()[self.name]
        higher = measure.direction == "higher"
        for level in sorted(self.at, reverse=True):
            if measure.reaches(value, self.at[level]):
                return level, f"level {level}: at {'least' if higher else 'most'} {self.at[level]:g}"
        lowest = self.at[min(self.at)]
        return self.otherwise, f"level {self.otherwise}: {'below' if higher else 'above'} {lowest:g}"


class OwnEffects(Table):
    """What differs for one criterion from the rubric's effects."""

    major: Level | None = Field(default=None, description="a level of 0 to 4")
    minor: Level | None = Field(default=None, description="a level of 0 to 4")


class Effects(Table):
    """The level at which a finding caps its criteria; a blocker caps at 0, a note has no effect.

    `stake` holds shares of the predicted time by level: a finding that says how much time it would save caps at the
    lowest level whose share it reaches, above all of them where it reaches none, and never below its severity's.
    """

    major: Level = Field(default=1, description="a level of 0 to 4")
    minor: Level = Field(default=2, description="a level of 0 to 4")
    stake: Bounds = Field(
        default_factory=dict, description="a table of shares by level, such as { 1 = 0.3, 2 = 0.15 }"
    )

    @model_validator(mode="after")
    def _ordered(self) -> Effects:
        if self.minor < self.major:
            raise ValueError(f"minor caps at {self.minor} and major at {self.major}; expected minor no lower")
        for low, high in pairwise(sorted(self.stake)):
            if self.stake[low] <= self.stake[high]:
                raise ValueError(
                    f"stake is {self.stake[low]:g} at level {low} and {self.stake[high]:g} at level {high}; "
                    "expected shares that fall as the level rises"
                )
        return self

    def cap(self, severity: Severity, share: float | None, own: OwnEffects) -> int:
        """The cap of a finding that would save `share` of the predicted time, None where that is not known."""
        if severity is Severity.note:
            return TOP
        if severity is Severity.blocker:
            return 0
        by_severity = {Severity.major: (own.major, self.major), Severity.minor: (own.minor, self.minor)}
        given, default = by_severity[severity]
        cap = default if given is None else given
        if share is None or not self.stake:
            return cap
        reached = [level for level, least in self.stake.items() if share >= least]
        return max(cap, min(reached, default=min(TOP, max(self.stake) + 1)))


class Criterion(Table):
    """One criterion.

    Its level is the least of what its measures give and its findings cap at. It is assessed where each of `needs` is
    there and, if it has measures, one of them; else it is not assessed, for the reason of what is missing, or for
    `unassessed` where nothing ever assesses it. `penalty` makes it points of 100 to lose. `points` and `tags` are
    those of the JSON form it came from.
    """

    title: Text = Field(description="a few words")
    weight: Weight = Field(description="a finite number above 0")
    rules: Annotated[tuple[Pattern, ...], _FROM_ARRAY] = Field(default=(), description=_PATTERNS)
    needs: Annotated[tuple[MeasureName, ...], _FROM_ARRAY] = Field(
        default=(), description="an array of measures that show that the check was made"
    )
    measures: Annotated[tuple[Thresholds, ...], _FROM_ARRAY] = Field(
        default=(),
        description="an array of tables, such as [{ name = 'pe_filled', at = { 4 = 0.9, 3 = 0.7 } }]",
    )
    effects: OwnEffects = Field(default_factory=OwnEffects, description="a table with any of major and minor")
    levels: Annotated[tuple[Text, ...], _FROM_ARRAY] = Field(
        default=(), description=f"an array of {LEVELS} sentences, for the levels 0 to {TOP}"
    )
    unassessed: str = Field(default="", description="a clause that says why nothing assesses it")
    penalty: Weight | None = Field(default=None, description="points of 100, above 0")
    points: Points | None = Field(default=None, description="a number other than 0")
    tags: Annotated[tuple[str, ...], _FROM_ARRAY] = Field(default=(), description="an array of strings")

    @model_validator(mode="after")
    def _whole(self) -> Criterion:
        if len(self.levels) not in (0, LEVELS):
            raise ValueError(
                f"levels: {len(self.levels)} sentences; expected {LEVELS}, for levels 0 to {TOP}"
            )
        if bool(self.needs or self.measures) == bool(self.unassessed):
            raise ValueError(
                "expected needs or measures, or else unassessed, the reason why nothing assesses it"
            )
        names = [item.name for item in self.measures]
        if len(set(names)) < len(names):
            raise ValueError("measures: one measure is given twice; expected each once")
        return self

    def descriptor(self, level: float) -> str:
        """What a reviewer would write at a level; empty where the criterion has no descriptors."""
        return self.levels[int(level)] if self.levels else ""


class DimensionTable(Table):
    """The weight of one dimension in the total, and what it asks for."""

    weight: Weight = Field(description="a finite number above 0")
    about: str = Field(default="", description="a sentence")


class Cap(Table):
    """What a blocker of some rules caps the total at, of 100; `points` and `tags` are those of the JSON form."""

    total: Annotated[float, Field(ge=0, lt=100)] = Field(
        description="points of 100, at least 0 and below 100"
    )
    rules: Annotated[tuple[Pattern, ...], _FROM_ARRAY] = Field(min_length=1, description=_PATTERNS)
    why: Text = Field(description="a sentence")
    points: Points | None = Field(default=None, description="a number other than 0")
    tags: Annotated[tuple[str, ...], _FROM_ARRAY] = Field(default=(), description="an array of strings")


class Rubric(Table):
    """A whole rubric; criteria by id, which is the name of their dimension, a dot and a word."""

    name: Text
    about: str = ""
    effects: Effects
    caps: tuple[Cap, ...]
    dimensions: dict[Dimension, DimensionTable]
    criteria: dict[str, Criterion]

    def of(self, dimension: Dimension) -> dict[str, Criterion]:
        """The criteria of a dimension, by id."""
        return {key: item for key, item in self.criteria.items() if dimension_of(key) is dimension}

    def cap(self, code: str) -> float:
        """What a blocker of this rule caps the total at."""
        return min(cap.total for cap in self.caps if codes.matches(cap.rules, code))

    def counts(self, code: str, dimension: Dimension) -> list[str]:
        """The criteria that count a finding.

        Those that name its rule and, unless one of its own dimension does, that dimension's criterion for the rest.
        """
        named = [key for key, item in self.criteria.items() if any(codes.claims(p, code) for p in item.rules)]
        own = self.of(dimension)
        if any(key in own for key in named):
            return named
        return [*named, *(key for key, item in own.items() if codes.EVERY in item.rules)]

    def problems(self) -> Iterator[str]:
        """What is wrong between the parts of the rubric; one sentence each, with its place."""
        if not any(codes.EVERY in cap.rules for cap in self.caps):
            yield "caps: none is for every rule; expected one with rules = ['*'], as a blocker always caps"
        if not any(item.penalty is None for item in self.criteria.values()):
            yield "criteria: none that can be scored; expected at least one that is no penalty"
        for dimension in Dimension:
            held = self.of(dimension)
            if held and dimension not in self.dimensions:
                yield f"dimensions.{dimension.name}: missing; expected its weight, as it has criteria"
            rest = [key for key, item in held.items() if codes.EVERY in item.rules]
            if len(rest) > 1:
                yield f"criteria.{rest[1]}.rules: '*' is taken by {rest[0]}; expected it once in a dimension"


def dimension_of(criterion: str) -> Dimension:
    """The dimension that the id of a criterion names."""
    return Dimension[criterion.split(".", 1)[0]]
