"""NKIBench, the kernels and references of AccelOpt: ``nkibench:CLONE#OPERATOR``.

``summary.json`` lists the operators, each with cases, each of them with a reference file and a kernel file. What the
bench's own harness computes is the task: five seeds, outputs brought into the reference's shape, and an error of less
than 2e-5 of the reference in the Euclidean norm, with the reference in the dtype of its inputs.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from nkireview.isa.release import LEGACY
from nkireview.task import (
    Contract,
    Entry,
    ReferenceLimits,
    Submission,
    Task,
    TaskError,
    Tolerance,
    Workload,
)

PREFIX = "nkibench"
FOLDER = "NKIBench"
SUMMARY = "summary.json"
SEEDS = 5
# Each is a call of a reference of up to half a TFLOP, and the tolerance leaves no part of an input to be passed over.
PROBES = 1
KERNELS = ("kernel", "optimized_kernel")
INPUTS, FORWARD, TO_KERNEL, FROM_KERNEL = (
    "get_inputs",
    "forward",
    "transform_to_nki_inputs",
    "transform_nki_outputs",
)
FUNCTIONS = (INPUTS, FORWARD, TO_KERNEL, FROM_KERNEL)
# The norm of the error alone decides: no element can be off by more than 2e-5 sqrt(n) of the reference's rms, which is
# below 1 for outputs of fewer than 2.5e9 elements.
TOLERANCE = Tolerance(rtol=0.0, atol=1.0, rms=2e-5, absolute=0.0)
# The harness calls a file wrong that holds this anywhere but in a comment, as part of "bfloat16" too.
WITHOUT = ("float16",)
# The largest operator holds three arrays of 1 GiB at once and returns one of them.
LIMITS = ReferenceLimits(seconds=600, memory_gib=8, answer_gib=2)


@dataclass(frozen=True)
class Case:
    """One operator at one size: its name, its sizes, and its two files relative to the bench's folder."""

    name: str
    values: Mapping[str, Any]
    reference: str
    kernel: str


def load(rest: str) -> tuple[Task, list[Submission]]:
    """The task of ``CLONE#OPERATOR`` and the operator's own kernel; `TaskError` says what is wrong, in one sentence."""
    clone, mark, operator = rest.rpartition("#") if "#" in rest else (rest, "", "")
    folder = _folder(Path(clone))
    cases = {case.name: case for case in _cases(folder / SUMMARY)}
    listed = f"expected {PREFIX}:{clone}#OPERATOR with one of {', '.join(cases)}"
    if not mark or not operator:
        raise TaskError([f"{PREFIX}:{rest}: no operator is named; {listed}"])
    if operator not in cases:
        raise TaskError([f"{folder / SUMMARY}: there is no operator {operator!r}; {listed}"])
    case = cases[operator]
    for what, path in (("task", case.reference), ("kernel", case.kernel)):
        if not (folder / path).is_file():
            raise TaskError([f"{folder / SUMMARY}: {operator}: {what}: there is no file {folder / path}"])
    _require_functions(folder / case.reference)
    sizes = "_".join(f"{key}{value}" for key, value in case.values.items())
    task = Task(
        folder=folder,
        name=operator.replace("/", "-"),
        description=f"The operator {operator} of NKIBench{f', at {sizes}' if sizes else ''}.",
        kernel=KERNELS[0],
        kernel_also=KERNELS[1:],
        kernel_file=case.kernel,
        reference=Entry(case.reference, FORWARD),
        inputs_from=Entry(case.reference, INPUTS),
        kernel_inputs=Entry(case.reference, TO_KERNEL),
        kernel_outputs=Entry(case.reference, FROM_KERNEL),
        float64=False,
        reference_limits=LIMITS,
        nki=LEGACY,
        workloads={_name(sizes): Workload(seeds=SEEDS, probes=PROBES)},
        tolerance=TOLERANCE,
        contract=Contract(without=WITHOUT),
    )
    own = folder / case.kernel
    return task, [Submission(own.stem, own.parent, own)]


def _folder(clone: Path) -> Path:
    for folder in (clone / FOLDER, clone):
        if (folder / SUMMARY).is_file():
            return folder
    raise TaskError(
        [
            f"{clone}: there is no {FOLDER}/{SUMMARY} in it; expected a checkout of AccelOpt, which holds NKIBench"
        ]
    )


def _cases(summary: Path) -> Iterator[Case]:
    """Every case of every operator, called by the operator alone where it has one case of one implementation."""
    try:
        operators = json.loads(summary.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise TaskError([f"{summary}: this cannot be read as JSON: {error}"]) from None
    for operator, entry in _table(operators, summary, "").items():
        cases = _table(_table(entry, summary, operator).get("cases"), summary, f"{operator}.cases")
        found = [
            (number, _table(case, summary, f"{operator}.cases.{number}"), at, implementation)
            for number, case in cases.items()
            for at, implementation in enumerate(_list(case, summary, f"{operator}.cases.{number}.impls"))
        ]
        for number, case, at, implementation in found:
            where = f"{operator}.cases.{number}.impls[{at}]"
            several = len(case["impls"]) > 1
            part = f"/{number}{f'/{at}' if several else ''}" if len(found) > 1 else ""
            yield Case(
                name=f"{operator}{part}",
                values=_table(case.get("values", {}), summary, f"{operator}.cases.{number}.values"),
                reference=_file(implementation, "task", summary, where),
                kernel=_file(implementation, "kernel", summary, where),
            )


def _table(value: Any, summary: Path, where: str) -> dict[str, Any]:
    if not isinstance(value, dict) or (not value and not where.endswith(".values")):
        place = f"{where}: " if where else ""
        raise TaskError([f"{summary}: {place}expected a JSON object that is not empty"])
    return value


def _list(case: Any, summary: Path, where: str) -> list[Any]:
    value = case.get("impls") if isinstance(case, dict) else None
    if not isinstance(value, list) or not value:
        raise TaskError([f"{summary}: {where}: expected a JSON array of objects with 'task' and 'kernel'"])
    return value


def _file(implementation: Any, key: str, summary: Path, where: str) -> str:
    value = implementation.get(key) if isinstance(implementation, dict) else None
    path = PurePosixPath(value) if isinstance(value, str) else PurePosixPath()
    if path.suffix != ".py" or path.is_absolute() or ".." in path.parts:
        raise TaskError([f"{summary}: {where}.{key}: expected a Python file in {summary.parent}"])
    return str(path)


def _require_functions(reference: Path) -> None:
    """The file's text has to define the bench's four functions: it is never imported here."""
    try:
        body = ast.parse(reference.read_bytes()).body
    except (SyntaxError, ValueError) as error:
        raise TaskError([f"{reference}: this is not valid Python: {error}"]) from None
    defined = {name for statement in body for name in _bound(statement)}
    missing = [name for name in FUNCTIONS if name not in defined]
    if missing:
        raise TaskError(
            [f"{reference}: no function {', '.join(missing)}; expected {', '.join(FUNCTIONS)} in a reference"]
        )


def _bound(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        yield statement.name
    elif isinstance(statement, ast.Import | ast.ImportFrom):
        yield from (item.asname or item.name for item in statement.names)
    elif isinstance(statement, ast.Assign):
        yield from (target.id for target in statement.targets if isinstance(target, ast.Name))


def _name(sizes: str) -> str:
    """A name for a workload, of the characters that one may have."""
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in sizes)
    return kept or "default"
