"""Measured kernels as sealed Programs: read from a clone at their commit, traced in a child, kept in a folder."""

from __future__ import annotations

import ast
import io
import json
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from nkireview import hardware
from nkireview.arguments import Arguments, ReferenceFailed
from nkireview.calibration.measured import Case, Measurement, Row, metrics, times
from nkireview.calibration.recipes import Launch, Recipe, Recipes, folder_of
from nkireview.checks.integrity import forbidden
from nkireview.checks.source import SourceError, read_source
from nkireview.isa import dtypes
from nkireview.isa.release import Release
from nkireview.program.codec import load, save
from nkireview.program.program import Program
from nkireview.record import Setting
from nkireview.requests import UsageError, from_task
from nkireview.runner import ForkServer, Limits
from nkireview.runner.job import GIB
from nkireview.sources import nkibench
from nkireview.task import TaskError
from nkireview.tracing import Request, Workload, trace

LIMITS = Limits(wall_s=1800, cpu_s=1800, memory_bytes=12 * GIB, response_bytes=2 * GIB)
"""The largest kernels here are traced into a million instructions."""
INDEX = "cases.json"
SHARE = ("pct", "percent")
PEAK = "peak.tensor.bf16"
GIT_SECONDS = 120


class NotTraced(Exception):
    """Why a case has no Program; one sentence."""


class NoClone(NotTraced):
    """The repository is not there."""


@dataclass(frozen=True)
class Shaped:
    """Tensors of which only shape and dtype count, by position, and the rest by keyword."""

    tensors: Sequence[tuple[tuple[int, ...], str]]
    keywords: Mapping[str, Any]

    def structure(self, server: ForkServer, limits: Limits) -> Arguments:
        """See `InputSource`."""
        return Arguments(
            tuple(
                np.broadcast_to(np.zeros((), dtypes.of(dtype).storage), shape)
                for shape, dtype in self.tensors
            ),
            self.keywords,
        )

    def make(self, seed: int, server: ForkServer, limits: Limits) -> Arguments:
        """See `InputSource`; nothing is executed, so the values do not count."""
        return self.structure(server, limits)


def load_programs(case: Case, folder: Path) -> tuple[Program, ...]:
    """The Programs of a case in its folder, one for each launch; ProgramError for a file that is none."""
    return tuple(load((folder / name).read_bytes()) for name in case.programs)


def prepare(recipes: Recipes, rows: Sequence[Row], only: str = "") -> list[tuple[Recipe, Case]]:
    """The cases that rows were measured of, not traced yet; `only` is a text that their ids hold."""
    found = []
    for recipe in recipes.cases:
        taken = [row for row in rows if recipe.takes(row)]
        if taken and only in recipe.id:
            found.append((recipe, _case(recipe, taken, recipes.order)))
    return found


def _case(recipe: Recipe, rows: Sequence[Row], order: Sequence[str]) -> Case:
    entry = recipe.entry
    return Case(
        id=recipe.id,
        repository=entry.repository,
        commit=entry.commit,
        kernel=recipe.kernel,
        operator=entry.operator,
        ladder=recipe.ladder,
        shape=recipe.shape,
        dtype=entry.dtype,
        target=entry.target,
        release=str(Release.parse(entry.release)),
        flags=tuple(entry.flags),
        recipe=recipe.digest,
        rows=tuple(
            _in_us(recipe, item) for item in times(rows, recipe.clocks, order, max(1, len(entry.launches)))
        ),
        metrics=metrics(rows, recipe.clocks),
    )


def _in_us(recipe: Recipe, item: Measurement) -> Measurement:
    """A time that is told as a share of the peak of the Tensor Engine, as a time."""
    if not item.metric.endswith(SHARE):
        return item
    peak = hardware.target(recipe.entry.target).number(PEAK)
    return replace(item, us=recipe.flops() / (peak * item.us / 100) * 1e6)


def build(
    wanted: Sequence[tuple[Recipe, Case]],
    clones: Path,
    keep: Path,
    server: ForkServer,
    tell: Callable[[str], None] = lambda _: None,
) -> Iterator[Case]:
    """Each case with its Programs in `keep`, one by one as they are traced; those of the same recipe there are kept.

    ``cases.json`` is written after each; a case that cannot be traced is handed out with the reason.
    """
    keep.mkdir(parents=True, exist_ok=True)
    kept = {case.id: case for case in kept_cases(keep)}
    for recipe, case in wanted:
        old = kept.get(case.id)
        if old is not None and _usable(old, case, keep):
            made = replace(case, programs=old.programs, instructions=old.instructions)
        else:
            tell(f"{case.id}: tracing")
            made = _traced(recipe, case, clones, keep, server)
        kept[case.id] = made
        _write(keep, list(kept.values()))
        yield made


def kept_cases(folder: Path) -> tuple[Case, ...]:
    """The cases of a folder that `build` made; none where it made none. NotTraced for a file that it did not write."""
    path = folder / INDEX
    if not path.is_file():
        return ()
    try:
        return tuple(_read(entry) for entry in json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError, KeyError, AttributeError):
        raise NotTraced(
            f"{path}: this is not what nkireview wrote there; remove it, or name another folder with --keep"
        ) from None


def _read(entry: dict[str, Any]) -> Case:
    rows = tuple(
        Measurement(row["clock"], row["measured_us"], row["metric"], tuple(row["csv_ids"]), row["launches"])
        for row in entry["rows"]
    )
    return Case(
        **{**entry, "rows": rows, "flags": tuple(entry["flags"]), "programs": tuple(entry["programs"])}
    )


def _write(folder: Path, cases: Sequence[Case]) -> None:
    told = []
    for case in cases:
        rows = [
            {
                "csv_ids": list(row.rows),
                "clock": row.clock,
                "measured_us": row.us,
                "metric": row.metric,
                "launches": row.launches,
            }
            for row in case.rows
        ]
        told.append({**asdict(case), "rows": rows})
    text = json.dumps(told, indent=1) + "\n"
    fresh = folder / f"{INDEX}.new"
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(folder / INDEX)


def _usable(old: Case, case: Case, folder: Path) -> bool:
    return (
        old.recipe == case.recipe
        and bool(old.programs)
        and all((folder / name).is_file() for name in old.programs)
    )


def _traced(recipe: Recipe, case: Case, clones: Path, keep: Path, server: ForkServer) -> Case:
    try:
        with tempfile.TemporaryDirectory(prefix="nkireview-calibrate-") as folder:
            programs = _programs(recipe, clones, Path(folder), server)
    except NoClone as error:
        return replace(case, reason=str(error), missing_clone=case.repository)
    except NotTraced as error:
        return replace(case, reason=str(error))
    names = []
    for at, program in enumerate(programs):
        name = f"{case.id}.npz" if at == 0 else f"{case.id}.{at + 1}.npz"
        (keep / name).write_bytes(save(program))
        names.append(name)
    return replace(case, programs=tuple(names), instructions=sum(len(program) for program in programs))


def _programs(recipe: Recipe, clones: Path, folder: Path, server: ForkServer) -> list[Program]:
    clone = Clone.at(clones, recipe.repository, recipe.entry.commit)
    if recipe.entry.source.kind == "nkibench":
        return [_of_bench(recipe, clone, folder, server)]
    text = source_text(recipe, clone)
    name = re.sub(r"[^A-Za-z0-9_]", "_", PurePosixPath(recipe.entry.source.path).stem)
    file = folder / f"{name}.py"
    file.write_text(text, encoding="utf-8")
    return [_of_launch(recipe, launch, file, server) for launch in recipe.entry.launches]


def _of_launch(recipe: Recipe, launch: Launch, file: Path, server: ForkServer) -> Program:
    try:
        source = read_source(file)
    except SourceError as error:
        raise NotTraced(str(error).replace(str(file), recipe.entry.source.path)) from None
    entry = recipe.entry
    return _trace(
        Request(
            source=source,
            file=file,
            kernel=launch.kernel,
            reference=None,
            workloads=(Workload("measured", Shaped(recipe.tensors(launch), launch.keywords)),),
            target=Setting(value=entry.target, origin="recipe"),
            release=Setting(value=str(Release.parse(entry.release)), origin="recipe"),
            lnc=Setting(value="1", origin="recipe"),
            limits=LIMITS,
        ),
        server,
    )


def _of_bench(recipe: Recipe, clone: Clone, folder: Path, server: ForkServer) -> Program:
    entry = recipe.entry
    clone.unpack(entry.source.path, folder)
    try:
        task, submissions = nkibench.load(f"{folder / entry.source.path}#{entry.source.operator}")
        request = from_task(task, submissions[0], target=entry.target, nki=entry.release, lnc=1)
    except (TaskError, UsageError) as error:
        raise NotTraced(str(error).replace(f"{folder}/", "")) from None
    return _trace(replace(request, limits=LIMITS), server)


def _trace(request: Request, server: ForkServer) -> Program:
    """The Program of a request's one workload; NotTraced says why there is none."""
    if request.failure is not None:
        raise NotTraced(request.failure.message)
    if request.source is not None:
        for trespass in forbidden(request.source, request.kernel):
            raise NotTraced(
                f"{request.file.name}:{trespass.line}: not run, since the file {trespass.message}"
            )
    try:
        traced = trace(request, request.workloads[0], server)
    except ReferenceFailed as error:
        raise NotTraced(str(error)) from None
    if traced.unsupported:
        raise NotTraced(f"{request.kernel}: {traced.unsupported}")
    if traced.program is None:
        failure = traced.failure
        place = f" ({failure.place})" if failure is not None and failure.place else ""
        raise NotTraced(f"{request.kernel}: {failure.message if failure else 'no program'}{place}")
    return traced.program


@dataclass(frozen=True)
class Clone:
    """A repository at a commit, bare or not."""

    git: Path
    repository: str
    commit: str

    @classmethod
    def at(cls, clones: Path, repository: str, commit: str) -> Clone:
        """The clone of OWNER/NAME in a folder of clones; NoClone where there is none, NotTraced without the commit."""
        folder = clones / folder_of(repository)
        for git in (folder, folder / ".git", folder / "repo", folder / "repo" / ".git"):
            if (git / "HEAD").is_file() and (git / "objects").is_dir():
                break
        else:
            raise NoClone(f"no clone of {repository}; expected one at {folder.name} in the folder of clones")
        made = cls(git, repository, commit)
        try:
            made._run("cat-file", "-e", f"{commit}^{{commit}}")
        except NotTraced:
            raise NotTraced(
                f"the clone of {repository} has no commit {commit[:12]}; fetch it there"
            ) from None
        return made

    def read(self, path: str) -> str:
        """The text of a file; NotTraced where there is none."""
        try:
            return self._run("show", f"{self.commit}:{path}").decode("utf-8")
        except UnicodeDecodeError:
            raise NotTraced(f"{self.repository}: {path} at {self.commit[:12]} is not text") from None

    def unpack(self, path: str, folder: Path) -> None:
        """Write the files below a folder of the repository into `folder`; NotTraced where there are none."""
        archive = self._run("archive", "--format=tar", self.commit, "--", path)
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            for member in tar.getmembers():
                target = (folder / member.name).resolve()
                content = tar.extractfile(member) if member.isfile() else None
                if content is not None and target.is_relative_to(folder.resolve()):
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(content.read())

    def _run(self, *words: str) -> bytes:
        command = ["git", f"--git-dir={self.git}", *words]
        try:
            done = subprocess.run(command, capture_output=True, timeout=GIT_SECONDS, check=False)
        except FileNotFoundError:
            raise NotTraced("git is not installed, and the kernels are read from clones with it") from None
        except subprocess.TimeoutExpired:
            raise NotTraced(f"{self.repository}: git took more than {GIT_SECONDS} s") from None
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["git failed"]
            raise NotTraced(f"{self.repository} at {self.commit[:12]}: {said[-1].removeprefix('fatal: ')}")
        return done.stdout


def source_text(recipe: Recipe, clone: Clone) -> str:
    """The Python text that a case's kernel is in, edits included; NotTraced says what is not found."""
    source = recipe.entry.source
    text = clone.read(source.path)
    kernel = recipe.entry.launches[0].kernel
    if source.kind == "rst":
        text = _block(text, kernel, source.block, source.path)
    elif source.kind == "comment":
        text = _uncommented(text, kernel, source.path)
    elif source.kind == "trace":
        head, mark, _ = clone.read(source.head).partition(source.until)
        if not mark:
            raise NotTraced(f"{source.head}: there is no line {source.until!r} in it")
        text = f"{head}\n{_step(text, source.step, source.path)}"
    for old, new in recipe.entry.edits:
        if text.count(old) != 1:
            raise NotTraced(
                f"{source.path}: the text {old!r}, which is edited, occurs {text.count(old)} times; expected once"
            )
        text = text.replace(old, new)
    return text


def _block(page: str, function: str, number: int, path: str) -> str:
    """The number-th Python block of a page, from 1, that defines a function."""
    found = []
    lines = page.splitlines()
    for at, line in enumerate(lines):
        if not re.fullmatch(r"\s*\.\. code-block:: python\s*", line):
            continue
        outer = len(line) - len(line.lstrip())
        block = []
        for below in lines[at + 1 :]:
            if below.strip() and len(below) - len(below.lstrip()) <= outer:
                break
            block.append(below)
        inner = min((len(each) - len(each.lstrip()) for each in block if each.strip()), default=0)
        text = "\n".join(each[inner:] for each in block).strip("\n")
        if re.search(rf"^def {re.escape(function)}\(", text, re.MULTILINE):
            found.append(text + "\n")
    if not 1 <= number <= len(found):
        raise NotTraced(f"{path}: {len(found)} Python blocks define {function}; expected at least {number}")
    return found[number - 1]


def _uncommented(text: str, function: str, path: str) -> str:
    """A file with the comment in which a function is defined as code."""
    lines = text.splitlines()
    start = next(
        (at for at, line in enumerate(lines) if re.match(rf"#\s?def {re.escape(function)}\(", line)), None
    )
    if start is None:
        raise NotTraced(f"{path}: no comment defines the function {function}")
    first = last = start
    while first > 0 and _is_comment(lines[first - 1]):
        first -= 1
    while last + 1 < len(lines) and (_is_comment(lines[last + 1]) or _continues(lines, last + 1)):
        last += 1
    for at in range(first, last + 1):
        lines[at] = re.sub(r"^# ?", "", lines[at])
    return "\n".join(lines) + "\n"


def _is_comment(line: str) -> bool:
    return line.startswith("#")


def _continues(lines: Sequence[str], at: int) -> bool:
    """Whether an empty line stands between two lines of a comment."""
    return not lines[at].strip() and at + 1 < len(lines) and _is_comment(lines[at + 1])


def _step(text: str, number: int, path: str) -> str:
    """The code of a step of a search, which is kept as nested calls: step 0 has no parent."""
    try:
        node: ast.expr | None = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise NotTraced(f"{path}: this is not an expression of Python: {error.msg}") from None
    codes = []
    while isinstance(node, ast.Call):
        given = {keyword.arg: keyword.value for keyword in node.keywords}
        code = given.get("code")
        if not (isinstance(code, ast.Constant) and isinstance(code.value, str)):
            break
        codes.append(code.value)
        node = given.get("parent")
    codes.reverse()
    if number >= len(codes):
        raise NotTraced(f"{path}: {len(codes)} steps; step {number} is asked for")
    return codes[number]
