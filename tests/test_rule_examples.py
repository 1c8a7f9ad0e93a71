"""Every rule has a bad and a good example: the bad one fires that rule and no other blocker, the good one nothing."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from nkireview.record import ReviewRecord
from nkireview.requests import from_file, with_limits
from nkireview.review import review
from nkireview.rules.catalogue import KINDS, Example, example, folder
from nkireview.rules.finding import Severity
from nkireview.rules.registry import RULES
from nkireview.runner import ForkServer

SEED = 7


def judged(server: ForkServer, held: Example) -> ReviewRecord:
    request = from_file(
        held.path,
        kernel=held.kind,
        reference=f"{held.held_in}:{held.reference}",
        inputs=(),
        inputs_from=f"{held.held_in}:{held.inputs}",
        target=held.target,
        nki=held.nki,
        lnc=held.lnc,
        seed=SEED,
    )
    workloads = tuple(replace(workload, hostile=held.hostile, seeds=1) for workload in request.workloads)
    return review(with_limits(replace(request, workloads=workloads), held.wall_s), server)


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The examples outside the package, whose own frames are no places."""
    made = tmp_path_factory.mktemp("examples")
    for path in folder().glob("NKR*.py"):
        shutil.copy(path, made)
    return made


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("code", [rule.code for rule in RULES])
def test_the_examples_hold(server: ForkServer, copies: Path, code: str, kind: str) -> None:
    held = example(code, kind)
    assert held is not None, f"{code} has no {kind} example"
    there = replace(held, path=copies / held.path.name, held_in=copies / held.held_in.name)
    record = judged(server, there)
    assert record.status != "not reviewed", record.reason
    found = [(finding.code, finding.severity, finding.message) for finding in record.findings]
    if kind == "bad":
        assert code in {named for named, _, _ in found}, found
        blockers = {named for named, severity, _ in found if severity is Severity.blocker}
        own = max(severity is Severity.blocker for named, severity, _ in found if named == code)
        assert blockers == ({code} if own else set()), found
    else:
        assert code not in {named for named, _, _ in found}, found
        assert {severity for _, severity, _ in found} <= {Severity.note}, found


def test_every_example_belongs_to_a_rule() -> None:
    codes = {rule.code for rule in RULES}
    assert {path.stem.split("_")[0] for path in folder().glob("NKR*.py")} == codes


def test_an_example_shows_its_own_kernel_alone() -> None:
    for rule in RULES:
        for kind, other in (KINDS, KINDS[::-1]):
            held = example(rule.code, kind)
            assert held is not None
            text = held.source((kind,))
            assert f"def {kind}(" in text and f"def {other}(" not in text and "def inputs" not in text, (
                rule.code
            )
