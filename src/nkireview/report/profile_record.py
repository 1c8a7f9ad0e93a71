"""A profile as JSON, and the schema of that."""

from __future__ import annotations

import json
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict

from nkireview.checks.bounds import BoundLine
from nkireview.checks.roofline import Roofline
from nkireview.checks.usage import Usage
from nkireview.profiling import LaneUse, Overlap, PathLine
from nkireview.record import Subject
from nkireview.report.machine import ascii_text
from nkireview.report.profile import Shown
from nkireview.slices import LaneName, SliceTable

VERSION = 1


class SlicesRecord(BaseModel):
    """Slices as columns of one length: see `nkireview.slices`. Times in ns from the first work.

    `lane`, `wait`, `name`, `place` and `operands` are positions in `lanes`, `waits`, `names`, `places` and
    `operand_texts`, `blocker` one among the slices; -1 is none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    lanes: tuple[LaneName, ...]
    names: tuple[str, ...]
    places: tuple[str, ...]
    operand_texts: tuple[str, ...]
    waits: tuple[str, ...]
    lane: tuple[int, ...]
    start: tuple[float, ...]
    stop: tuple[float, ...]
    ready: tuple[float, ...]
    wait: tuple[int, ...]
    blocker: tuple[int, ...]
    instruction: tuple[int, ...]
    name: tuple[int, ...]
    place: tuple[int, ...]
    operands: tuple[int, ...]
    bytes: tuple[int, ...]
    flops: tuple[int, ...]


class ProfileRecord(BaseModel):
    """A simulated profile of one workload; times in ns, no figure is measured. `clocks`: the predicted time as the
    Neuron tools time a launch."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    schema_version: int = VERSION
    tool: str
    simulated: Literal[True] = True
    subject: Subject
    workload: str
    target: str
    release: str
    lnc: int
    total_ns: float
    low_ns: float
    high_ns: float
    band_words: str
    illegal: str
    assumed: tuple[str, ...]
    clocks: dict[str, float]
    lanes: tuple[LaneUse, ...]
    critical: tuple[PathLine, ...]
    overlap: Overlap
    usage: Usage
    roofline: Roofline
    bounds: tuple[BoundLine, ...]
    metrics: dict[str, int | float]
    slices: SlicesRecord


TEXTS = ("names", "places", "operand_texts", "waits")
COLUMNS = tuple(name for name in SlicesRecord.model_fields if name not in ("lanes", *TEXTS))


def profile_json(shown: Shown) -> str:
    """The JSON text of a profile, in ASCII; slices have a line for each column."""
    found = shown.profile
    record = ProfileRecord.model_construct(
        tool=shown.tool,
        subject=shown.subject,
        workload=found.name,
        target=found.target,
        release=found.release,
        lnc=found.lnc,
        total_ns=found.total_ns,
        low_ns=found.low_ns,
        high_ns=found.high_ns,
        band_words=found.band_words,
        illegal=shown.illegal,
        assumed=found.assumed,
        clocks=dict(found.clocks),
        lanes=found.lanes,
        critical=found.critical,
        overlap=found.overlap,
        usage=found.usage,
        roofline=found.roofline,
        bounds=found.bounds,
        metrics=dict(found.metrics),
    )
    head = record.model_dump_json(indent=2, exclude={"slices"}).rstrip()
    assert head.endswith("\n}")
    return ascii_text(f'{head[:-2]},\n  "slices": {_slices(found.slices)}\n}}\n')


def _slices(table: SliceTable) -> str:
    values: dict[str, object] = {"lanes": [{"core": lane.core, "name": lane.name} for lane in table.lanes]}
    values |= {name: list(getattr(table, name)) for name in TEXTS}
    for name in COLUMNS:
        column = getattr(table, name)
        # picoseconds are finer than any figure of the model
        values[name] = (np.round(column, 3) if column.dtype.kind == "f" else column).tolist()
    lines = [
        f"    {json.dumps(name)}: {json.dumps(value, separators=(',', ':'))}"
        for name, value in values.items()
    ]
    return "{\n" + ",\n".join(lines) + "\n  }"
