"""Re-measure our figures on public code: the rows of compat.toml, run against clones that are already there.

For each row the paths it needs are taken out of a clone at their exact commit into a temporary folder, our command is
run on them, and what it found is compared with what the row expects. Nothing is fetched, and a clone is only read.
"""

from __future__ import annotations

import ast
import io
import os
import platform
import re
import shlex
import shutil
import string
import subprocess
import sys
import tempfile
import textwrap
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

import click
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

import nkireview
from nkireview.isa.release import Release
from nkireview.record import CountsRecord, ReviewRecord, Run, RunSummary, TimeRecord
from nkireview.rules.finding import Finding, Severity

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
ADAPTORS = "compat"
CLI = (sys.executable, "-m", "nkireview")
PLACES = {"clone": "clone", "cut": "cut.py", "compat": ADAPTORS}
"""What a command's placeholders become; commands are run in the temporary folder that holds these."""

IMPORTS = "import nki\nimport nki.isa as nisa\nimport nki.language as nl\n\n\n"
"""What a page's blocks leave out; written before a cut that asks for it."""

COMMANDS = ("review", "run", "exec")
OUT = "out"
NO_FETCH = {"GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0"}

_DIRECTIVE = re.compile(r"(?P<before>[\s*+-]*)\.\. (?:code-block|code|sourcecode)::\s*(?:python3?|py)\s*")
_OPTION = re.compile(r"\s*:[\w-]+:(\s.*)?")


class SuiteError(ValueError):
    """A suite or a call that cannot be carried out; one sentence for each problem."""


class MissingError(Exception):
    """A clone, or a commit in it, that is not on this machine."""


class RowError(Exception):
    """Why a row cannot be run although its clone is there."""


def _inside(value: str) -> str:
    path = PurePosixPath(value)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise ValueError(f"got {value!r}; expected a path inside the clone")
    return value


def _words(value: str) -> str:
    try:
        words = shlex.split(value)
        names = [
            name for word in words for _, name, _, _ in string.Formatter().parse(word) if name is not None
        ]
    except ValueError as error:
        raise ValueError(f"got {value!r}; expected a command line ({error})") from None
    if not words or words[0] not in COMMANDS:
        raise ValueError(f"got {value!r}; expected a command of ours, 'review ...', 'run ...' or 'exec ...'")
    unknown = sorted(set(names) - set(PLACES))
    if unknown:
        known = ", ".join(f"{{{name}}}" for name in PLACES)
        raise ValueError(f"unknown placeholder {{{unknown[0]}}}; expected one of {known}")
    return value


InsidePath = Annotated[str, AfterValidator(_inside)]
Code = Annotated[str, Field(pattern=r"^NKR\d{3}$")]
_FROM_ARRAY = Field(strict=False)


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Cut(_Table):
    """A block of a documentation page: the `block`-th, from 1, of its Python blocks that define a kernel.

    `imports` writes `IMPORTS` before it. With `task`, the cut is the submission of a task, a folder of `compat/`.
    """

    file: InsidePath
    block: Annotated[int, Field(ge=1)]
    imports: bool = False
    task: InsidePath | None = None

    @property
    def place(self) -> str:
        """The file that the cut is written to."""
        return f"{self.argument}/kernel.py" if self.task else self.argument

    @property
    def argument(self) -> str:
        """What stands for the cut in a command: its file, or its submission."""
        return f"{ADAPTORS}/{self.task}/submissions/cut" if self.task else PLACES["cut"]


class Time(_Table):
    """A predicted time in ms, and by which share of it a prediction may differ."""

    at: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    within: Annotated[float, Field(gt=0, lt=1)]


class Expected(_Table):
    """What a row must give.

    `runs` is the status of every run whose inputs are within the contract; `findings` are codes that must be found,
    `blockers` the only ones that may block; `violations` is for ``run``, which has no findings; `counts` are figures of
    `CountsRecord` (a key of a table in it is written after a dot: ``by_opcode.nc_matmul``); `time_ms` is the predicted
    time of every workload; `prints` is how many lines of what an ``exec`` prints hold a text.
    """

    exit: Literal[0, 1]
    runs: Literal["correct", "wrong"] | None = None
    findings: Annotated[tuple[Code, ...], _FROM_ARRAY] = ()
    blockers: Annotated[tuple[Code, ...], _FROM_ARRAY] = ()
    violations: Annotated[int, Field(ge=0)] | None = None
    counts: dict[str, int] = Field(default_factory=dict)
    time_ms: Time | None = None
    prints: dict[str, Annotated[int, Field(ge=0)]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _consistent(self) -> Expected:
        if self.exit == 0 and self.blockers:
            raise ValueError("exit is 0, but blockers are allowed; expected exit = 1 or no blockers")
        for key in self.counts:
            field = CountsRecord.model_fields.get(key.partition(".")[0])
            if field is None or (field.annotation is int) == ("." in key):
                raise ValueError(f"counts: {key!r} is no figure; expected one such as 'by_opcode.nc_matmul'")
        return self


ANSWERS: Mapping[str, tuple[frozenset[str], frozenset[str]]] = {
    "review": (
        frozenset({"runs", "findings", "blockers", "counts", "time_ms"}),
        frozenset({"runs", "time_ms", "blockers"}),
    ),
    "run": (frozenset({"violations", "counts"}), frozenset({"violations"})),
    "exec": (frozenset({"prints"}), frozenset()),
}
"""What can be expected of each command, and what of it at least one of; of any the exit code."""


class Source(_Table):
    """Files and folders of a repository, at a commit or a tag."""

    clone: Annotated[str, Field(pattern=r"^[\w.-]+/[\w.-]+$")]
    commit: Annotated[str, Field(pattern=r"^[0-9a-f]{7,40}$")] | None = None
    tag: Annotated[str, Field(pattern=r"^\w[\w.-]*$")] | None = None
    paths: Annotated[tuple[InsidePath, ...], _FROM_ARRAY]

    @model_validator(mode="after")
    def _located(self) -> Source:
        if (self.commit is None) == (self.tag is None):
            raise ValueError("expected either a commit or a tag")
        if not self.paths:
            raise ValueError("paths is empty; expected the files and folders of the clone that are needed")
        return self

    @property
    def revision(self) -> str:
        """The commit or the tag, as written."""
        return self.commit or self.tag or ""


class Tree(Source):
    """Files that `sweep.py` judges from their text, and the NKI release that they are written for."""

    nki: str

    @field_validator("nki")
    @classmethod
    def _known(cls, value: str) -> str:
        return str(Release.parse(value))

    def holds(self, row: Row) -> bool:
        """True where a row reviews something at this commit."""
        at = (row.clone, row.revision) == (self.clone, self.revision)
        return at and shlex.split(row.command)[0] == "review"


class Row(Source):
    """One figure on public code."""

    id: Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
    issue: Annotated[int, Field(ge=1)]
    cut: Cut | None = None
    command: Annotated[str, AfterValidator(_words)]
    expected: Expected
    note: Annotated[str, Field(min_length=1)]

    @model_validator(mode="after")
    def _consistent(self) -> Row:
        if (self.cut is None) != ("{cut}" not in self.command):
            raise ValueError("expected {cut} in the command if and only if the row has a cut")
        if self.cut is not None and not _below(self.cut.file, self.paths):
            raise ValueError(f"cut.file {self.cut.file!r} is not below any of the paths")
        self._answers(shlex.split(self.command)[0])
        return self

    def _answers(self, command: str) -> None:
        """Raise ValueError where the row expects what its command does not say, or nothing of what it says."""
        given = self.expected.model_fields_set - {"exit"}
        says, needed = ANSWERS[command]
        if needed and not given & needed:
            names = " or ".join(f"'{name}'" for name in sorted(needed))
            raise ValueError(f"expected {names} of {command} commands")
        if given - says:
            names = ", ".join(f"'{name}'" for name in sorted(given - says))
            raise ValueError(f"expected no {names} of {command} commands")

    def arguments(self) -> list[str]:
        """The words of the command, as it is run in the folder that holds `PLACES`."""
        places = {**PLACES, "cut": self.cut.argument} if self.cut else PLACES
        return [word.format_map(places) for word in shlex.split(self.command)]


class Suite(_Table):
    """All rows and trees of compat.toml."""

    rows: Annotated[tuple[Row, ...], _FROM_ARRAY] = Field(alias="row")
    trees: Annotated[tuple[Tree, ...], _FROM_ARRAY] = Field(alias="tree", default=())

    @model_validator(mode="after")
    def _distinct(self) -> Suite:
        ids = [row.id for row in self.rows]
        twice = sorted({name for name in ids if ids.count(name) > 1})
        if twice:
            raise ValueError(f"row id {twice[0]!r} is given twice; expected each once")
        return self


def _below(path: str, parents: Iterable[str]) -> bool:
    place = PurePosixPath(path)
    return any(PurePosixPath(parent) in (place, *place.parents) for parent in parents)


def load_suite(path: Path) -> Suite:
    """Read and validate a suite; raise SuiteError with a sentence for each problem."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SuiteError(f"{path}: {error.strerror}; expected a suite of [[row]] tables") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SuiteError(f"{path}: not TOML: {error}") from None
    try:
        return Suite.model_validate(data)
    except ValidationError as error:
        raise SuiteError("\n".join(f"{path}: {sentence}" for sentence in _sentences(error, data))) from None


def _sentences(error: ValidationError, data: Mapping[str, Any]) -> Iterator[str]:
    for problem in error.errors(include_url=False):
        where = list(problem["loc"])
        if len(where) > 1 and where[0] == "row" and isinstance(where[1], int):
            row = data["row"][where[1]]
            name = row.get("id") if isinstance(row, dict) else None
            where[:2] = [f"row {name or where[1] + 1}"]
        message = problem["msg"].removeprefix("Value error, ")
        yield f"{': '.join(str(part) for part in where)}: {message}" if where else message


def kernel_blocks(text: str) -> list[str]:
    """The Python code blocks of an rst page that define a kernel, without the page's indentation, in order."""
    lines = text.splitlines()
    found = []
    for at, line in enumerate(lines):
        directive = _DIRECTIVE.fullmatch(line)
        if directive:
            block = _block(lines[at + 1 :], len(directive["before"]))
            if _defines_kernel(block):
                found.append(block)
    return found


def _block(lines: Sequence[str], column: int) -> str:
    """The content of a directive that starts in a column: what is indented deeper, without its options."""
    content: list[str] = []
    for line in lines:
        if line.strip() and len(line) - len(line.lstrip()) <= column:
            break
        content.append(line)
    while content and _OPTION.fullmatch(content[0]):
        del content[0]
    while content and not content[-1].strip():
        del content[-1]
    while content and not content[0].strip():
        del content[0]
    indent = min((len(line) - len(line.lstrip()) for line in content if line.strip()), default=0)
    return "".join(f"{line[indent:]}\n" for line in content)


def _defines_kernel(block: str) -> bool:
    try:
        tree = ast.parse(block)
    except SyntaxError:
        return False
    decorators = (
        item.func if isinstance(item, ast.Call) else item
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        for item in node.decorator_list
    )
    return any(ast.unparse(item) == "nki.jit" for item in decorators)


def cut_block(cut: Cut, clone: Path) -> str:
    """The text of a cut, after its imports; raise RowError where the page has fewer kernels."""
    page = clone / cut.file
    if not page.is_file():
        raise RowError(f"{cut.file}: no such file in the clone at this commit")
    blocks = kernel_blocks(page.read_text(encoding="utf-8"))
    if cut.block > len(blocks):
        raise RowError(f"{cut.file}: has {len(blocks)} blocks with a kernel, block {cut.block} was asked for")
    return IMPORTS * cut.imports + blocks[cut.block - 1]


def locate(clones: Path, clone: str) -> Path:
    """The git directory of a clone; raise MissingError where there is none.

    A clone OWNER/NAME may be the folder OWNER+NAME or NAME, or a folder repo in it; each with a work tree or bare.
    """
    names = (clone.replace("/", "+"), clone.partition("/")[2])
    for folder in (clones / name / below for name in names for below in ("", "repo")):
        for git in (folder / ".git", folder):
            if git.is_file() or ((git / "HEAD").is_file() and (git / "objects").is_dir()):
                return git
    raise MissingError(f"clone {clone} is not in {clones}; expected the folder {names[0]} or {names[1]}")


def resolve(git: Path, row: Source) -> str:
    """The full hash of a row's or tree's commit; raise MissingError where the clone does not have it."""
    name = f"refs/tags/{row.tag}" if row.tag else row.revision
    found = _git(git, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
    if found.returncode != 0:
        kind = "tag" if row.tag else "commit"
        raise MissingError(f"clone {row.clone} has no {kind} {row.revision}; fetch it into the clone")
    return found.stdout.decode().strip()


def extract(git: Path, commit: str, paths: Sequence[str], into: Path) -> None:
    """Write some paths of a commit into a folder; raise RowError where git refuses."""
    packed = _git(git, "archive", "--format=zip", commit, "--", *paths)
    if packed.returncode != 0:
        raise RowError(f"git archive: {packed.stderr.decode(errors='replace').strip()}")
    with zipfile.ZipFile(io.BytesIO(packed.stdout)) as archive:
        archive.extractall(into)


def _git(git: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    command = ["git", f"--git-dir={git}", *arguments]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return subprocess.run(command, capture_output=True, check=False, env={**kept, **NO_FETCH})


class Predicted(BaseModel):
    """The time predicted for a workload, in ns, with its range and what bounds it."""

    model_config = ConfigDict(frozen=True)

    workload: str
    total_ns: float
    low_ns: float
    high_ns: float
    bound: str

    @classmethod
    def of(cls, record: TimeRecord) -> Predicted:
        """The figures of a review's record."""
        return cls(**{name: getattr(record, name) for name in cls.model_fields})


class Outcome(BaseModel):
    """What a command of ours found: the part of its record that this suite keeps."""

    model_config = ConfigDict(frozen=True, ser_json_inf_nan="strings")

    status: str = ""
    reason: str = ""
    runs: tuple[Run, ...] = ()
    violations: tuple[str, ...] | None = None
    findings: tuple[Finding, ...] = ()
    counts: tuple[CountsRecord, ...] = ()
    times: tuple[Predicted, ...] = ()
    printed: dict[str, int] = Field(default_factory=dict)

    @classmethod
    def of_review(cls, record: ReviewRecord) -> Outcome:
        """Of a review: runs within the contract only."""
        return cls(
            status=record.status,
            reason=record.reason,
            runs=tuple(run for run in record.runs if run.in_contract),
            findings=record.findings,
            counts=record.counts,
            times=tuple(Predicted.of(item) for item in record.times),
        )

    @classmethod
    def of_run(cls, summary: RunSummary) -> Outcome:
        """Of a single run."""
        return cls(violations=summary.violations, counts=(summary.counts,))

    @classmethod
    def of_exec(cls, printed: str, texts: Iterable[str]) -> Outcome:
        """Of a script: how many of its lines hold each text."""
        lines = printed.splitlines()
        return cls(printed={text: sum(text in line for line in lines) for text in texts})


class RowResult(BaseModel):
    """One row, measured."""

    model_config = ConfigDict(frozen=True, ser_json_inf_nan="strings")

    id: str
    clone: str
    revision: str
    commit: str
    command: str
    tool: str
    python: str
    seconds: float
    exit: int
    status: Literal["ok", "failed"]
    problems: tuple[str, ...]
    outcome: Outcome | None


class IssueResults(BaseModel):
    """The file docs/compat/issue-N.json."""

    model_config = ConfigDict(frozen=True, ser_json_inf_nan="strings")

    issue: int
    rows: tuple[RowResult, ...]


@dataclass(frozen=True)
class Finished:
    """A command that has ended: exit code, seconds, the last line it printed as an error, and what it found."""

    exit: int
    seconds: float
    error: str
    outcome: Outcome | None


def measure(row: Row, git: Path, adaptors: Path) -> RowResult:
    """Run one row and compare; raise MissingError where the clone lacks the commit, RowError where it cannot be run."""
    commit = resolve(git, row)
    with tempfile.TemporaryDirectory(prefix="nkireview-public-") as name:
        work = Path(name)
        clone = work / PLACES["clone"]
        extract(git, commit, row.paths, clone)
        shutil.copytree(adaptors, work / PLACES["compat"], ignore=shutil.ignore_patterns("__pycache__"))
        if row.cut is not None:
            place = work / row.cut.place
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(cut_block(row.cut, clone), encoding="utf-8")
        finished = _run(row.arguments(), work, row.expected.prints)
    problems = tuple(compare(row.expected, finished))
    return RowResult(
        id=row.id,
        clone=row.clone,
        revision=row.revision,
        commit=commit,
        command=f"nkireview {' '.join(row.command.split())}",
        tool=f"nkireview {nkireview.__version__}",
        python=platform.python_version(),
        seconds=round(finished.seconds, 1),
        exit=finished.exit,
        status="failed" if problems else "ok",
        problems=problems,
        outcome=finished.outcome,
    )


def _run(arguments: Sequence[str], work: Path, texts: Iterable[str]) -> Finished:
    command = arguments[0]
    options = {"review": ["--out", OUT], "run": ["--json"]}.get(command, [])
    started = time.monotonic()
    ended = subprocess.run(
        [*CLI, *arguments, *options], cwd=work, capture_output=True, text=True, errors="replace", check=False
    )
    seconds = time.monotonic() - started
    error = ended.stderr.strip().rpartition("\n")[2].replace(f"{work}{os.sep}", "")
    if command == "exec":
        return Finished(ended.returncode, seconds, error, Outcome.of_exec(ended.stdout, texts))
    file = work / OUT / "review.json"
    review = command == "review"
    text = file.read_text(encoding="utf-8") if review and file.is_file() else ("" if review else ended.stdout)
    try:
        outcome = _outcome(text.replace(f"{work}{os.sep}", ""), review) if text else None
    except ValidationError as invalid:
        outcome, error = None, f"the record cannot be read: {invalid.errors(include_url=False)[0]['msg']}"
    return Finished(ended.returncode, seconds, error, outcome)


def _outcome(text: str, review: bool) -> Outcome:
    if review:
        return Outcome.of_review(ReviewRecord.model_validate_json(text))
    return Outcome.of_run(RunSummary.model_validate_json(text))


def compare(expected: Expected, finished: Finished) -> Iterator[str]:
    """What differs from what is expected, a sentence each."""
    outcome = finished.outcome
    if finished.exit != expected.exit:
        why = outcome.reason if outcome and outcome.reason else _first_blocker(outcome) or finished.error
        yield f"exit code {finished.exit}, expected {expected.exit}{f': {why}' if why else ''}"
    if outcome is None:
        if finished.exit == expected.exit:
            yield f"no record was written{f': {finished.error}' if finished.error else ''}"
        return
    if expected.runs is not None and not outcome.runs:
        yield f"no run was executed, expected runs that are {expected.runs}"
    for run in outcome.runs:
        if expected.runs is not None and run.status != expected.runs:
            yield f"run with seed {run.seed} is {run.status}, expected {expected.runs}{_why(run)}"
    codes = {finding.code for finding in outcome.findings}
    for code in expected.findings:
        if code not in codes:
            yield f"{code} was not found"
    for finding in outcome.findings:
        if finding.severity is Severity.blocker and finding.code not in expected.blockers:
            yield f"{finding.code} blocks: {finding.message}"
    if expected.violations is not None and outcome.violations is not None:
        if len(outcome.violations) != expected.violations:
            shown = f": {outcome.violations[0]}" if outcome.violations else ""
            yield f"{len(outcome.violations)} violations, expected {expected.violations}{shown}"
    for counts in outcome.counts:
        for key, wanted in expected.counts.items():
            got = _count(counts, key)
            if got != wanted:
                yield f"{key} is {got}, expected {wanted}"
    if expected.time_ms is not None:
        yield from _times(expected.time_ms, outcome)
    for printed, wanted in expected.prints.items():
        got = outcome.printed[printed]
        if got != wanted:
            yield f"{got} lines of what it printed hold {printed!r}, expected {wanted}"


def _times(expected: Time, outcome: Outcome) -> Iterator[str]:
    if not outcome.times:
        yield f"no time was predicted, expected {expected.at} ms"
    for item in outcome.times:
        got = item.total_ns / 1e6
        if abs(got - expected.at) > expected.within * expected.at:
            wanted = f"{expected.at} ms within {expected.within:.0%}"
            yield f"{item.workload} is predicted to take {got:.4g} ms, expected {wanted}"


def _first_blocker(outcome: Outcome | None) -> str:
    blockers = [f for f in outcome.findings if f.severity is Severity.blocker] if outcome else []
    return f"{blockers[0].code} {blockers[0].message}" if blockers else ""


def _why(run: Run) -> str:
    reasons = [run.reason, *(output.reason for output in run.outputs)]
    return next((f": {reason}" for reason in reasons if reason), "")


def _count(counts: CountsRecord, key: str) -> int:
    field, dot, name = key.partition(".")
    found = getattr(counts, field)
    return int(found.get(name, 0) if dot else found)


def save(rows: Sequence[Row], issue: int, measured: Mapping[str, RowResult], folder: Path) -> Path:
    """Write docs/compat/issue-N.json: rows measured now, and earlier results of rows that were not."""
    file = folder / f"issue-{issue}.json"
    kept: dict[str, RowResult] = {}
    if file.is_file():
        try:
            earlier = IssueResults.model_validate_json(file.read_text(encoding="utf-8"))
        except ValidationError:
            raise SuiteError(f"{file}: not a file of results; remove it") from None
        kept = {result.id: result for result in earlier.rows}
    kept.update(measured)
    ids = [row.id for row in rows if row.issue == issue and row.id in kept]
    results = IssueResults(issue=issue, rows=tuple(kept[name] for name in ids))
    folder.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(".part")
    partial.write_text(results.model_dump_json(indent=1) + "\n", encoding="utf-8")
    partial.replace(file)
    return file


def select(suite: Suite, issue: int | None, row: str | None) -> list[Row]:
    """The rows of an issue, or one row, or all; raise SuiteError where none is meant."""
    chosen = [item for item in suite.rows if issue in (None, item.issue) and row in (None, item.id)]
    if not chosen:
        wanted = " and ".join([f"issue {issue}"] * (issue is not None) + [f"id {row!r}"] * (row is not None))
        raise SuiteError(f"no row has {wanted}; the rows are {', '.join(item.id for item in suite.rows)}")
    return chosen


@dataclass(frozen=True)
class Tally:
    """What came of the rows: results by id, and ids of those whose clone is not there."""

    measured: dict[str, RowResult]
    failed: tuple[str, ...]
    skipped: tuple[str, ...]


def run_rows(rows: Sequence[Row], clones: Path, adaptors: Path, say: Callable[[str], None]) -> Tally:
    """Run rows, saying one line for each."""
    measured: dict[str, RowResult] = {}
    failed: list[str] = []
    skipped: list[str] = []
    for row in rows:
        try:
            result = measure(row, locate(clones, row.clone), adaptors)
        except MissingError as missing:
            skipped.append(row.id)
            say(f"skipped  {row.id}: {missing}")
        except RowError as error:
            failed.append(row.id)
            say(f"FAILED   {row.id}: {error}")
        else:
            measured[row.id] = result
            failed += [row.id] * (result.status == "failed")
            say(_line(result))
    return Tally(measured, tuple(failed), tuple(skipped))


def _line(result: RowResult) -> str:
    if result.problems:
        more = f" (and {len(result.problems) - 1} more)" if len(result.problems) > 1 else ""
        return f"FAILED   {result.id}: {result.problems[0]}{more}"
    return f"ok       {result.id} ({result.seconds:.1f} s)"


EPILOG = textwrap.dedent(
    """\
    \b
    Example:
      python tools/public.py --clones ~/clones --issue 2

    Exit codes: 0 all rows as expected; 1 a row failed; 2 a wrong call, or a clone is missing (see --allow-missing).
    """
)


@click.command(
    epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.option(
    "--clones",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    default=Path("clones"),
    show_default=True,
    help="Folder of clones: OWNER+NAME or NAME, or a folder repo in it; with a work tree or bare.",
)
@click.option("--issue", type=click.IntRange(1), help="Only the rows of this issue.")
@click.option("--row", metavar="ID", help="Only this row.")
@click.option("--allow-missing", is_flag=True, help="Exit with 0 although clones are missing.")
@click.option(
    "--suite",
    type=click.Path(path_type=Path, dir_okay=False),
    default=ROOT / "compat.toml",
    show_default="compat.toml of the project",
    help="The suite; its adaptors are in the folder compat beside it.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=ROOT / "docs" / "compat",
    show_default="docs/compat of the project",
    help="Folder for issue-N.json.",
)
def main(
    clones: Path, issue: int | None, row: str | None, allow_missing: bool, suite: Path, out: Path
) -> None:
    """Run the rows of compat.toml against clones that are already there, and write docs/compat/issue-N.json."""
    try:
        loaded = load_suite(suite)
        rows = select(loaded, issue, row)
        tally = run_rows(rows, clones, suite.parent / ADAPTORS, click.echo)
        for number in sorted({item.issue for item in rows if item.id in tally.measured}):
            click.echo(f"written: {save(loaded.rows, number, tally.measured, out)}")
    except SuiteError as error:
        click.echo(f"public: {error}", err=True)
        sys.exit(2)
    if tally.failed:
        sys.exit(1)
    sys.exit(2 if tally.skipped and not allow_missing else 0)


if __name__ == "__main__":
    main()
