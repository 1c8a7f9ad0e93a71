"""The table of measurements: its rows, and what they say of one kernel at one shape and dtype."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

COLUMNS = (
    "id",
    "kernel_file",
    "kernel_function",
    "shapes",
    "dtypes",
    "hardware",
    "metric",
    "value",
    "notes",
    "source",
    "runnable",
)
RUNNABLE = ("yes", "partly")
"""How a row begins whose kernel can be run, or could be if more were known of it."""


class MeasuredError(ValueError):
    """A table that cannot be read; one sentence."""


@dataclass(frozen=True)
class Row:
    """One figure of one measured kernel, as the table spells it."""

    id: str
    kernel_file: str
    kernel_function: str
    shapes: str
    dtypes: str
    hardware: str
    metric: str
    value: float
    notes: str
    source: str
    runnable: str


@dataclass(frozen=True)
class Measurement:
    """A measured time of a case: `us` by one clock, the mean of `rows` where it was measured several times."""

    clock: str
    us: float
    metric: str
    rows: tuple[str, ...]
    launches: int


@dataclass(frozen=True)
class Case:
    """A measured kernel at one shape and dtype: its times and other figures, and the files of its Programs.

    `ladder` is what it has in common with other versions of it. `metrics`: other figures by the table's names.
    `programs`: one file for each launch. `reason`: why there are none; `missing_clone` where it is that alone.
    """

    id: str
    repository: str
    commit: str
    kernel: str
    operator: str
    ladder: str
    shape: str
    dtype: str
    target: str
    release: str
    flags: tuple[str, ...]
    recipe: str
    rows: tuple[Measurement, ...]
    metrics: Mapping[str, float]
    programs: tuple[str, ...] = ()
    instructions: int = 0
    reason: str = ""
    missing_clone: str = ""


def read(path: Path) -> tuple[Row, ...]:
    """The rows of a table whose kernels can be run; MeasuredError says which line is wrong and what is expected."""
    if not path.is_file():
        raise MeasuredError(
            f"{path}: there is no such file; expected the table of measurements, a CSV with the columns "
            f"{', '.join(COLUMNS)}"
        )
    found = []
    seen: dict[str, int] = {}
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
            if missing:
                raise MeasuredError(
                    f"{path}: no column {missing[0]!r}; expected the columns {', '.join(COLUMNS)}, in any order"
                )
            for line in reader:
                row = _row(path, reader.line_num, line)
                if row is None:
                    continue
                if row.id in seen:
                    raise MeasuredError(
                        f"{path}:{reader.line_num}: the id {row.id!r} is that of line {seen[row.id]} too; expected "
                        "one id for each row"
                    )
                seen[row.id] = reader.line_num
                found.append(row)
    except (csv.Error, UnicodeDecodeError) as error:
        raise MeasuredError(f"{path}: this cannot be read as CSV: {error}") from None
    if not found:
        raise MeasuredError(
            f"{path}: no row has a kernel that can be run; expected rows whose column 'runnable' begins with "
            f"{' or '.join(RUNNABLE)}"
        )
    return tuple(found)


def _row(path: Path, number: int, line: Mapping[str, str | None]) -> Row | None:
    """A row that can be run; None for any other."""
    cells = {name: line[name] for name in COLUMNS}
    texts = {name: text.strip() for name, text in cells.items() if text is not None}
    if len(texts) < len(COLUMNS):
        raise MeasuredError(
            f"{path}:{number}: {len(texts)} of the {len(COLUMNS)} columns; expected all of them"
        )
    if not texts["runnable"].startswith(RUNNABLE):
        return None
    try:
        value = float(texts.pop("value"))
    except ValueError:
        raise MeasuredError(
            f"{path}:{number}: the value {line['value']!r} is no number; expected one"
        ) from None
    return Row(value=value, **texts)


def times(
    rows: Sequence[Row], clocks: Mapping[str, str], order: Sequence[str], launches: int
) -> tuple[Measurement, ...]:
    """One measurement for each clock.

    clocks: metric -> the clock that it reads. order: metrics, the best first; the best that a clock has is taken, and
    the mean of it where it was measured several times.
    """
    by_metric: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row.metric in clocks:
            by_metric[row.metric].append(row)
    best: dict[str, str] = {}
    for metric in sorted(by_metric, key=lambda name: _rank(name, order)):
        best.setdefault(clocks[metric], metric)
    return tuple(
        Measurement(
            clock,
            fmean(row.value for row in by_metric[metric]),
            metric,
            tuple(row.id for row in by_metric[metric]),
            launches,
        )
        for clock, metric in sorted(best.items())
    )


def _rank(metric: str, order: Sequence[str]) -> int:
    return order.index(metric) if metric in order else len(order)


def metrics(rows: Iterable[Row], clocks: Mapping[str, str]) -> dict[str, float]:
    """The other figures of a case by metric, each the mean of its rows."""
    found: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if row.metric not in clocks:
            found[row.metric].append(row.value)
    return {metric: fmean(values) for metric, values in found.items()}
