"""Judge every program that a script or a suite launches: `nkireview exec compat/drivers/judged.py FILE SCRIPT [ARGS]`.

The rules that need neither a reference nor the kernel's text are asked of each different program once: limits, space,
hazards, traffic, precision, and with `--timed` what rests on a schedule. A line of FILE for each; at the end each
blocker is printed. A process that launches kernels on its own calls `install`.
"""

from __future__ import annotations

import hashlib
import inspect
import io
import json
import os
import runpy
import sys
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click

from nkireview import hardware
from nkireview.checks.survey import survey
from nkireview.hosted import launch
from nkireview.isa.release import Release
from nkireview.isa.table import ROWS
from nkireview.program import codec
from nkireview.program.program import Program
from nkireview.program.verify import verify
from nkireview.rules.facts import Facts, WorkloadFacts
from nkireview.rules.finding import Finding, Severity
from nkireview.rules.registry import judge
from nkireview.schedule.timing import Timing

MOST = 1_000_000
"""Instructions of the largest program that is judged."""
TOLD = (Severity.blocker, Severity.major)


class OnlyJudged(BaseException):
    """Raised in place of an execution where programs are only judged."""


def findings(program: Program, timed: bool) -> tuple[Finding, ...]:
    """What the rules say of a program; of its space, traffic and time only where it is legal, as in a review."""
    head = program.header
    found = WorkloadFacts(head.kernel, program=program, violations=verify(program))
    if not any(violation.blocking or violation.unsupported for violation in found.violations):
        surveyed = survey(program, ROWS, hardware.target(head.target))
        found = replace(found, survey=surveyed, timing=Timing(program) if timed else None)
    return judge(
        Facts(kernel=head.kernel, workloads=(found,), target=head.target, release=Release.parse(head.release))
    )


def fingerprint(program: Program) -> str:
    """A digest that equal programs share."""
    digest = hashlib.sha256()
    with zipfile.ZipFile(io.BytesIO(codec.save(program))) as archive:
        for name in archive.namelist():
            digest.update(archive.read(name))
    return digest.hexdigest()[:16]


@dataclass
class Judge:
    """Judges programs as they are launched and appends what it finds to a file, a line of JSON for each.

    `root`: the folder that the files of kernels are named from.
    """

    into: Path
    root: Path = field(default_factory=Path.cwd)
    timed: bool = False
    most: int = MOST
    seen: set[str] = field(default_factory=set)

    def look(self, program: Program, function: Callable[..., Any]) -> None:
        """Judge a program unless one that is equal has been judged."""
        digest = fingerprint(program)
        if digest in self.seen:
            return
        self.seen.add(digest)
        head = program.header
        line: dict[str, Any] = {
            "kernel": head.kernel,
            "file": self._file(function),
            "target": head.target,
            "release": head.release,
            "lnc": head.lnc,
            "grid": head.grid,
            "instructions": len(program),
            "test": os.environ.get("PYTEST_CURRENT_TEST", "").removesuffix(" (call)"),
            "digest": digest,
            "status": "too large",
        }
        started = time.process_time()
        try:
            if len(program) <= self.most:
                line.update(status="judged", **_told(findings(program, self.timed)))
        except BaseException as error:  # a test's own limit of time ends here, too
            line.update(status="failed", error=f"{type(error).__name__}: {error}")
            raise
        finally:
            line["seconds"] = round(time.process_time() - started, 3)
            with self.into.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")

    def _file(self, function: Callable[..., Any]) -> str:
        name = inspect.getsourcefile(inspect.unwrap(function))
        path = Path(name).resolve() if name else Path()
        return path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else path.name


def _told(found: Iterable[Finding]) -> dict[str, Any]:
    told = [item for item in found if item.severity in TOLD]
    return {
        "findings": [
            {
                "code": item.code,
                "severity": item.severity.value,
                "message": item.message,
                "places": item.places,
                "count": item.count,
            }
            for item in told
        ],
        "lesser": dict(
            Counter(f"{item.code} {item.severity.value}" for item in found if item.severity not in TOLD)
        ),
    }


def install(judge: Judge, *, only: bool = False) -> None:
    """Let a judge look at each program of this process, before it is executed or, with `only`, instead."""
    made = launch._program

    def program(state: Any, function: Callable[..., Any], *rest: Any) -> Program:
        found = made(state, function, *rest)
        judge.look(found, function)
        return found

    def execute(*args: Any, **kwargs: Any) -> Any:
        raise OnlyJudged

    launch._program = program
    if only:
        launch.execute = execute  # type: ignore[assignment]


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a judge's file; none where nothing was launched."""
    return (
        [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.is_file() else []
    )


def summary(lines: Iterable[dict[str, Any]]) -> Iterator[str]:
    """How many programs were judged, each blocker once, and how many kernels each major is said of."""
    lines = list(lines)
    states = Counter(line["status"] for line in lines)
    kernels = {(line["file"], line["kernel"]) for line in lines}
    yield f"{states['judged']} programs of {len(kernels)} kernels judged, {states['too large']} too large"
    yield from sorted(
        {f"{line['kernel']} was not judged: {line['error']}" for line in lines if "error" in line}
    )
    of: dict[str, set[tuple[str, str, str]]] = {severity.value: set() for severity in TOLD}
    for line in lines:
        for item in line.get("findings", ()):
            of[item["severity"]].add((item["code"], line["file"], line["kernel"]))
    majors = Counter(code for code, _, _ in of["major"])
    yield "major, by kernels: " + (", ".join(f"{code} {n}" for code, n in majors.most_common()) or "none")
    yield from (f"{code} blocks {kernel} of {file}" for code, file, kernel in sorted(of["blocker"]))
    yield f"blockers: {len(of['blocker'])}"


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("into", type=click.Path(path_type=Path, dir_okay=False))
@click.argument("script", nargs=-1, required=True)
@click.option(
    "--root",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    help="Files are named from it.",
)
@click.option("--only", is_flag=True, help="End each test, or the script, where a kernel would be executed.")
@click.option("--timed", is_flag=True, help="Schedule each program too.")
@click.option("--most", default=MOST, show_default=True, help="Instructions of the largest program judged.")
def main(into: Path, script: tuple[str, ...], root: Path, only: bool, timed: bool, most: int) -> None:
    """Run SCRIPT, or -m MODULE, and judge what it launches.

    The exit code is the script's; with --only it is 0 if all that was launched has been judged.
    """
    into = into.resolve()
    into.unlink(missing_ok=True)
    install(Judge(into, root.resolve(), timed, most), only=only)
    code: Any = 0
    try:
        if script[0] == "-m":
            sys.argv = list(script[1:])
            runpy.run_module(script[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = list(script)
            sys.path.insert(0, str(Path(script[0]).resolve().parent))
            runpy.run_path(script[0], run_name="__main__")
    except SystemExit as ended:
        code = ended.code
    except OnlyJudged:
        pass
    lines = read(into)
    for line in summary(lines):
        click.echo(line)
    raise SystemExit(any("error" in line for line in lines) if only else code)


if __name__ == "__main__":
    main()
