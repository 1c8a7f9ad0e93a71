"""Reviews of the rules' examples."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from kept import Kept

from nkireview.record import ReviewRecord
from nkireview.requests import from_file, with_limits
from nkireview.rules import engines, memory, movement, performance, tiling
from nkireview.rules.catalogue import example, folder

SEED = 7
PERFORMANCE = {
    rule.code: rule for module in (memory, movement, tiling, engines, performance) for rule in module.RULES
}
"""The rules of performance: their examples are reviewed with as many seeds as the command takes, others with one."""


def copied(to: Path) -> Path:
    """The examples outside the package, whose own frames are no places."""
    to.mkdir()
    for path in folder().glob("NKR*.py"):
        shutil.copy(path, to)
    return to


def judged(kept: Kept, code: str, kind: str) -> ReviewRecord:
    """The review of an example."""
    held = example(code, kind)
    assert held is not None, f"{code} has no {kind} example"
    copies = kept.once("copies", lambda: copied(kept.folder / "examples"))
    request = from_file(
        copies / held.path.name,
        kernel=held.kind,
        reference=f"{copies / held.held_in.name}:{held.reference}",
        inputs=(),
        inputs_from=f"{copies / held.held_in.name}:{held.inputs}",
        target=held.target,
        nki=held.nki,
        lnc=held.lnc,
        seed=SEED,
    )
    few = {} if code in PERFORMANCE else {"seeds": 1}
    workloads = tuple(replace(workload, hostile=held.hostile, **few) for workload in request.workloads)
    return kept.review(f"{code}-{kind}", with_limits(replace(request, workloads=workloads), held.wall_s))
