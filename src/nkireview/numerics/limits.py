"""How far an output may be from its float64 reference; the figures stand in ``limits.toml``."""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType

from nkireview.isa import dtypes

# A plain conditional import would need tomli installed to type-check for Python 3.10 on a newer interpreter.
tomllib = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")


@dataclass(frozen=True)
class Growth:
    """One coefficient of the criterion: ``out * u_out + (chain + sum * sqrt(K)) * u_acc``."""

    out: float
    chain: float
    sum: float

    def at(self, out_roundoff: float, accumulator_roundoff: float, reduction_length: int) -> float:
        """The coefficient for an output roundoff, an accumulator roundoff and a reduction length."""
        steps = self.chain + self.sum * math.sqrt(reduction_length)
        return self.out * out_roundoff + steps * accumulator_roundoff


@dataclass(frozen=True)
class Row:
    """The coefficients of one output dtype."""

    rtol: Growth
    atol: Growth
    rms: Growth


@dataclass(frozen=True)
class Allowance:
    """What ``numerics.stored`` grants for roundings of stored intermediates; ``limits.toml`` explains each."""

    peak: float
    reach: float
    rms: float
    unrounded: float
    sum: int
    most: int


@dataclass(frozen=True)
class Table:
    """``limits.toml`` as read: floating rows by dtype name, and the dtypes that must match exactly."""

    accumulator: str
    spread: float
    drawn: float
    stored: Allowance
    floating: Mapping[str, Row]
    exact: frozenset[str]


@dataclass(frozen=True)
class Policy:
    """A task's own tolerance; None keeps the default.

    ``rtol`` is relative to the reference, ``atol`` and ``rms`` to rms(ref), ``absolute`` is in the units of
    the output (what allclose calls atol). ``per_row`` takes rms(ref) over each row (the last axis), as
    normalised outputs need. A policy that sets rtol or atol but not rms moves rms by the larger ratio.
    Raise ValueError for negative or non-finite figures.
    """

    rtol: float | None = None
    atol: float | None = None
    rms: float | None = None
    absolute: float | None = None
    per_row: bool = False

    def __post_init__(self) -> None:
        for name in ("rtol", "atol", "rms", "absolute"):
            _require_figure(name, getattr(self, name))

    @property
    def sets_figures(self) -> bool:
        """True where the task gives a tolerance of its own, which nothing widens."""
        return self != Policy(per_row=self.per_row)

    @property
    def sets_all_figures(self) -> bool:
        """True where the task leaves no figure to what holds without it."""
        return None not in (self.rtol, self.atol, self.rms, self.absolute)


@dataclass(frozen=True)
class Limits:
    """The criterion for one output.

    Each element: ``|e| <= rtol * |ref| + atol * rms(ref) + absolute``; the output: ``rms(e) <= rms *
    (1 + spread / sqrt(n)) * rms(ref) + absolute`` with n its effective number of elements. ``exact`` outputs
    must be equal. ``per_row`` takes rms(ref) over each row.
    """

    dtype: str
    rtol: float
    atol: float
    rms: float
    absolute: float
    spread: float
    per_row: bool
    exact: bool

    def __post_init__(self) -> None:
        for name in ("rtol", "atol", "rms", "absolute", "spread"):
            _require_figure(name, getattr(self, name))


def limits_for(
    dtype_name: str,
    reduction_length: int,
    policy: Policy | None = None,
    amplification: float = 1.0,
) -> Limits:
    """The limits of an output of ``dtype_name`` whose elements each reduce ``reduction_length`` terms.

    ``reduction_length`` is 1 for elementwise work. ``amplification`` (at least 1) multiplies the part of the
    limits that grows with the accumulator's roundoff: how much an ill-conditioned input enlarges a relative
    rounding error, as ``sensitivity.conditioning`` measures it.
    Raise ValueError for a dtype without limits, a tolerance for an exact dtype, or figures out of range.
    """
    name = dtypes.of(dtype_name).name
    policy = policy or Policy()
    if reduction_length < 1:
        raise ValueError(f"reduction length {reduction_length} is below 1: elementwise work has length 1")
    if not 1 <= amplification < math.inf:
        raise ValueError(f"amplification {amplification} is no finite number of at least 1")
    known = table()
    if name in known.exact:
        if policy.sets_figures:
            raise ValueError(f"{name} outputs must match exactly: remove the tolerance given for them")
        return Limits(name, 0.0, 0.0, 0.0, 0.0, 0.0, policy.per_row, exact=True)
    if name not in known.floating:
        raise ValueError(f"no limits for outputs of dtype {name}: compare its unpacked values instead")
    row, dtype = known.floating[name], dtypes.of(name)
    out = dtypes.unit_roundoff(dtype)
    accumulator = dtypes.unit_roundoff(dtypes.of(known.accumulator)) * amplification
    rtol = row.rtol.at(out, accumulator, reduction_length)
    atol = row.atol.at(out, accumulator, reduction_length)
    ratios = [
        given / default for given, default in ((policy.rtol, rtol), (policy.atol, atol)) if given is not None
    ]
    rms = row.rms.at(out, accumulator, reduction_length) * max(ratios, default=1.0)
    half_smallest_spacing = float(dtypes.ulp(0.0, dtype)) / 2
    return Limits(
        dtype=name,
        rtol=_either(policy.rtol, rtol),
        atol=_either(policy.atol, atol),
        rms=_either(policy.rms, rms),
        absolute=_either(policy.absolute, half_smallest_spacing),
        spread=known.spread,
        per_row=policy.per_row,
        exact=False,
    )


@cache
def table() -> Table:
    """``limits.toml``; raise ValueError where it names an unknown dtype or a dtype twice."""
    text = resources.files(__package__).joinpath("limits.toml").read_text(encoding="utf-8")
    data = tomllib.loads(text)
    floating: dict[str, Row] = {}
    exact = frozenset(dtypes.of(name).name for name in data["exact"]["dtypes"])
    for entry in data["floating"]:
        row = Row(Growth(**entry["rtol"]), Growth(**entry["atol"]), Growth(**entry["rms"]))
        for name in entry["dtypes"]:
            if name in floating or name in exact:
                raise ValueError(f"limits.toml: dtype {name} has two rows")
            floating[dtypes.of(name).name] = row
    return Table(
        accumulator=dtypes.of(data["accumulator"]["dtype"]).name,
        spread=float(data["small_output"]["spread"]),
        drawn=float(data["drawn"]["amplification"]),
        stored=Allowance(**data["stored"]),
        floating=MappingProxyType(floating),
        exact=exact,
    )


def _either(given: float | None, default: float) -> float:
    return default if given is None else given


def _require_figure(name: str, value: float | None) -> None:
    if value is not None and not 0 <= value < math.inf:
        raise ValueError(f"tolerance {name} is {value}: expected a finite number of at least 0")
