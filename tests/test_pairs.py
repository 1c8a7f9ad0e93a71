"""The pairs: each fault is told apart from its corrected twin, and the finding names the line of either side.

A file of tests/pairs holds two kernels, `bad` and `good`, the inputs and the reference of both (`inputs_good` and
`reference_good` where the twin needs others), and ``PAIR``: the code and severity expected, what the review is for,
and in `legal_on` another target on which the bad kernel is right. Trailing comments ``# first`` and ``# second``
mark the sides of the fault in the source.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from nkireview.record import ReviewRecord
from nkireview.requests import from_file
from nkireview.review import review
from nkireview.rules.finding import Finding, Severity
from nkireview.rules.registry import RULES
from nkireview.runner import ForkServer

SEED = 7
PAIRS = tuple(sorted((Path(__file__).resolve().parent / "pairs").glob("p[0-9][0-9]_*.py")))
SIDES = ("# first", "# second")


@dataclass(frozen=True)
class Pair:
    """What a file says of itself; `sides`: where the fault shows, as file:line."""

    path: Path
    code: str
    severity: Severity
    sides: tuple[str, ...]
    functions: frozenset[str]
    target: str = "trn2"
    nki: str | None = None
    lnc: int | None = None
    legal_on: str | None = None


def read(path: Path) -> Pair:
    """A file of tests/pairs, without importing it."""
    text = path.read_text(encoding="utf-8")
    given: dict[str, Any] = {}
    functions = set()
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef):
            functions.add(node.name)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in ("PAIR", "bad", "good"):
            name = ast.unparse(node.targets[0])
            functions.add(name)
            if name == "PAIR":
                given = ast.literal_eval(node.value)
    lines = text.splitlines()
    marked = {
        side: [number for number, line in enumerate(lines, 1) if line.rstrip().endswith(side)]
        for side in SIDES
    }
    assert all(len(numbers) <= 1 for numbers in marked.values()), f"{path.name}: {marked}"
    sides = tuple(f"{path.name}:{number}" for numbers in marked.values() for number in numbers)
    return Pair(
        path=path,
        severity=Severity(given.pop("severity")),
        sides=sides,
        functions=frozenset(functions),
        **given,
    )


def judged(server: ForkServer, pair: Pair, kernel: str, target: str) -> ReviewRecord:
    def of(name: str) -> str:
        own = f"{name}_good"
        return f"{pair.path}:{own if kernel == 'good' and own in pair.functions else name}"

    request = from_file(
        pair.path,
        kernel=kernel,
        reference=of("reference"),
        inputs=(),
        inputs_from=of("inputs"),
        target=target,
        nki=pair.nki,
        lnc=pair.lnc,
        seed=SEED,
    )
    workloads = tuple(
        replace(workload, hostile=frozenset(), seeds=1, probes=1) for workload in request.workloads
    )
    return review(replace(request, workloads=workloads), server)


def told(record: ReviewRecord) -> list[tuple[str, str, str, tuple[str, ...]]]:
    return [(f.code, f.severity.value, f.message, f.places) for f in record.findings]


def names(finding: Finding, side: str) -> bool:
    """True where a finding's places, or its sentence, name a line."""
    return any(f"{side}{end}" in f"{finding.message} " for end in " ,;:).") or side in finding.places


def follows(finding: Finding, code: str) -> bool:
    """True where a finding says itself that another one is to be mended first."""
    causes = {rule.code: rule.causes for rule in RULES}
    return code in causes[finding.code] and finding.change.startswith(f"Mend {code} ")


@pytest.mark.parametrize("path", PAIRS, ids=lambda path: path.stem)
def test_the_bad_kernel_is_found_with_both_sides_of_its_fault(server: ForkServer, path: Path) -> None:
    pair = read(path)
    record = judged(server, pair, "bad", pair.target)
    assert record.status != "not reviewed", record.reason
    found = [f for f in record.findings if f.code == pair.code and f.severity is pair.severity]
    assert found, told(record)
    assert any(all(names(f, side) for side in pair.sides) for f in found), (pair.sides, told(record))
    blockers = [f for f in record.findings if f.severity is Severity.blocker and f.code != pair.code]
    assert all(follows(f, pair.code) for f in blockers), told(record)


@pytest.mark.parametrize("path", PAIRS, ids=lambda path: path.stem)
def test_its_corrected_twin_is_not_blamed(server: ForkServer, path: Path) -> None:
    pair = read(path)
    record = judged(server, pair, "good", pair.target)
    assert record.status == "acceptable", (record.reason, told(record))
    assert {finding.severity for finding in record.findings} <= {Severity.note}, told(record)
    assert pair.code not in {finding.code for finding in record.findings}, told(record)
    runs = [run.status for run in record.runs if run.inputs == "as drawn"]
    assert runs and set(runs) == {"correct"}, record.runs


@pytest.mark.parametrize("path", [p for p in PAIRS if read(p).legal_on], ids=lambda path: path.stem)
def test_where_the_target_allows_it_the_same_kernel_is_right(server: ForkServer, path: Path) -> None:
    pair = read(path)
    assert pair.legal_on is not None
    record = judged(server, pair, "bad", pair.legal_on)
    assert record.status == "acceptable", (record.reason, told(record))
    assert {finding.severity for finding in record.findings} <= {Severity.note}, told(record)


def test_there_is_a_pair_for_each_kind() -> None:
    pairs = [read(path) for path in PAIRS]
    assert len(pairs) >= 30
    assert [pair.code for pair in pairs if not pair.sides] == ["NKR020"], "wrong values name no line"
    assert {pair.code for pair in pairs} <= {rule.code for rule in RULES}
    assert all("bad" in pair.functions and "good" in pair.functions for pair in pairs)
