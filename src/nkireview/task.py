"""A task folder: what a submission has to compute, on which workloads, and where its submissions are.

    task.toml                    the keys of `TaskFile`
    reference.py                 NumPy, following the dtype of its inputs
    submissions/NAME/kernel.py   one folder for each submission

Both the kernel and the reference are called with the inputs by position, in the order of the workload, and with the
scalars by keyword.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationError,
    model_validator,
)

from nkireview.isa import dtypes
from nkireview.isa.grid import Grid
from nkireview.isa.release import Release
from nkireview.numerics.hostile import HOSTILE
from nkireview.numerics.limits import Policy
from nkireview.validation import Table, expected_at, sentences, shown

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TASK_FILE = "task.toml"
SUBMISSIONS = "submissions"
ENTRIES = ("reference", "inputs_from", "kernel_inputs", "kernel_outputs")
"""Keys that name a function of the task's author."""
DEFAULT_WORKLOAD = "default"
PROBLEM_MODEL = "Model"
PROBLEM_INPUTS = "get_inputs"


class TaskError(ValueError):
    """What is wrong with a task: one sentence for each problem, with file, key and what was expected."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


@dataclass(frozen=True)
class Entry:
    """A function in a Python file, written ``FILE.py:FUNCTION``; the file is relative to the task folder."""

    file: str
    function: str

    @classmethod
    def parse(cls, text: str) -> Entry:
        """Read ``"reference.py:softmax"``; raise ValueError for anything else."""
        file, _, function = text.rpartition(":")
        if not file.endswith(".py") or not function.isidentifier():
            raise ValueError(f"got {text!r}; expected FILE.py:FUNCTION, such as 'reference.py:softmax'")
        return cls(file, function)


def _entry(value: Any) -> Any:
    return Entry.parse(value) if isinstance(value, str) else value


def _reference(value: Any) -> Any:
    """A function, or the model of a problem file, which may be named alone."""
    return Entry(value, PROBLEM_MODEL) if _is_problem(value) else _entry(value)


def _is_problem(value: Any) -> bool:
    return isinstance(value, str) and value.endswith(".py") and ":" not in value


def _release(value: Any) -> Any:
    return Release.parse(value) if isinstance(value, str) else value


def _grid(value: str) -> str:
    return str(Grid.parse(value))


def _dtype(value: str) -> str:
    if value not in dtypes.BY_NAME:
        raise ValueError(f"{value!r} is no NKI dtype; expected one of {', '.join(dtypes.BY_NAME)}")
    return value


def _name(value: str) -> str:
    if not value or not all(c.isascii() and (c.isalnum() or c in "-_") for c in value):
        raise ValueError(f"got {value!r}; expected a name of letters, digits, '-' and '_'")
    return value


def _identifier(value: str) -> str:
    if not value.isidentifier():
        raise ValueError(f"got {value!r}; expected a Python identifier")
    return value


def _position(value: str) -> str:
    if not (value.isascii() and value.isdigit()):
        raise ValueError(f"got {value!r}; expected the position of an output, counted from 0")
    return value


def _hostile(value: str) -> str:
    if value not in HOSTILE:
        raise ValueError(f"{value!r} is no hostile variant; expected one of {', '.join(HOSTILE)}")
    return value


def _inside(value: str) -> str:
    path = PurePosixPath(value)
    if path.is_absolute() or ".." in path.parts or path.suffix != ".py":
        raise ValueError(f"got {value!r}; expected a Python file inside the submission's folder")
    return value


def _scalar(value: Any) -> Any:
    if not isinstance(value, bool | int | float | str):
        raise ValueError(
            f"got {shown(value)}; expected a number, a boolean or a string (a None goes into 'none')"
        )
    return value


Text = Annotated[str, Field(min_length=1)]
Name = Annotated[str, AfterValidator(_name)]
Identifier = Annotated[str, AfterValidator(_identifier)]
Size = Annotated[int, Field(ge=1)]
Figure = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Scalar = Annotated[bool | int | float | str, BeforeValidator(_scalar)]
FunctionEntry = Annotated[Entry, BeforeValidator(_entry)]
ReferenceEntry = Annotated[Entry, BeforeValidator(_reference)]

# TOML has arrays only; the elements stay strict.
_FROM_ARRAY = Field(strict=False)


class Input(Table):
    """A tensor argument; `numerics.inputs` says what its distribution may be, and what it is where none is given."""

    dtype: Annotated[str, AfterValidator(_dtype)] = Field(
        description="the name of an NKI dtype, such as 'float32'"
    )
    shape: Annotated[tuple[Size, ...], _FROM_ARRAY] = Field(
        min_length=1, description="an array of positive integers, such as [128, 512]"
    )
    distribution: Text | None = Field(
        default=None, description="the name of a distribution, such as 'normal' or 'uniform(0,1)'"
    )


class Workload(Table):
    """One set of arguments: tensors in the order of the kernel's parameters, the rest by keyword."""

    inputs: dict[Identifier, Input] = Field(
        default_factory=dict,
        description="a table of inputs, such as x = { dtype = 'float32', shape = [128, 512] }",
    )
    scalars: dict[Identifier, Scalar] = Field(
        default_factory=dict, description="a table of numbers, booleans and strings, such as { eps = 1e-6 }"
    )
    none: Annotated[tuple[Identifier, ...], _FROM_ARRAY] = Field(
        default=(), description="an array of the parameters that are None, such as ['bias']"
    )
    schedule_only: bool = Field(default=False, description="true or false")
    seeds: Size | None = Field(default=None, description="the number of seeds to execute, a positive integer")
    probes: Size | None = Field(
        default=None, description="the number of regions of each input to change, a positive integer"
    )

    @property
    def keywords(self) -> dict[str, bool | int | float | str | None]:
        """What the kernel and the reference get by keyword."""
        return {**self.scalars, **dict.fromkeys(self.none)}

    @model_validator(mode="after")
    def _consistent(self) -> Workload:
        groups = {"inputs": set(self.inputs), "scalars": set(self.scalars), "none": set(self.none)}
        for name in sorted(groups["inputs"] | groups["scalars"] | groups["none"]):
            holders = [group for group, names in groups.items() if name in names]
            if len(holders) > 1:
                raise ValueError(f"{name!r} is in {' and in '.join(holders)}; expected it in one of them")
        if self.schedule_only and self.seeds is not None:
            raise ValueError(
                "seeds are given, but a schedule-only workload is never executed; remove one of the two"
            )
        return self


class Bounds(Table):
    """Figures of a tolerance, as `numerics.limits.Policy` defines them; None keeps what holds without it."""

    rtol: Figure | None = Field(default=None, description="a finite number of at least 0")
    atol: Figure | None = Field(default=None, description="a finite number of at least 0")
    rms: Figure | None = Field(default=None, description="a finite number of at least 0")
    absolute: Figure | None = Field(default=None, description="a finite number of at least 0")
    per_row: bool | None = Field(default=None, description="true or false")


class Tolerance(Bounds):
    """The task's own tolerance, and what differs for single outputs, by position."""

    outputs: dict[Annotated[str, AfterValidator(_position)], Bounds] = Field(
        default_factory=dict,
        description="a table of tolerances by the position of the output, such as 0 = { rtol = 1e-2 }",
    )

    def policy(self, position: int) -> Policy:
        """The tolerance of the output at that position; its own figures win over the task's."""
        own = self.outputs.get(str(position), Bounds())
        given = {
            **self.model_dump(exclude={"outputs"}, exclude_none=True),
            **own.model_dump(exclude_none=True),
        }
        return Policy(**given)


class Contract(Table):
    """What the kernel promises beyond the workloads: hostile inputs that it must survive, text it does without."""

    hostile: Annotated[tuple[Annotated[str, AfterValidator(_hostile)], ...], _FROM_ARRAY] = Field(
        default=(), description="an array of the names of hostile inputs, such as ['scale-100']"
    )
    without: Annotated[tuple[Text, ...], _FROM_ARRAY] = Field(
        default=(), description="an array of texts that no kernel file may hold, such as ['float16']"
    )


class ReferenceLimits(Table):
    """What one call of the task's own functions may use; None keeps what holds without it."""

    seconds: Positive | None = Field(default=None, description="a positive number of seconds")
    memory_gib: Positive | None = Field(default=None, description="a positive number of GiB")
    answer_gib: Positive | None = Field(default=None, description="a positive number of GiB")


class TaskFile(Table):
    """The keys of task.toml."""

    name: Name = Field(description="a name of letters, digits, '-' and '_'")
    description: Text = Field(description="a sentence that says what the kernel computes")
    kernel: Identifier = Field(description="the name of the kernel function, such as 'softmax'")
    reference: ReferenceEntry = Field(description="FILE.py:FUNCTION, such as 'reference.py:softmax'")
    kernel_file: Annotated[str, AfterValidator(_inside)] = Field(
        default="kernel.py", description="a Python file inside the submission's folder, such as 'kernel.py'"
    )
    target: Literal["trn1", "inf2", "trn2", "trn3"] | None = Field(
        default=None, description="one of trn1, inf2, trn2, trn3"
    )
    nki: Annotated[Release, BeforeValidator(_release)] | None = Field(
        default=None, description="an NKI release as a string, such as '0.6' or 'legacy'"
    )
    lnc: Annotated[int, Field(ge=1, le=2)] | None = Field(default=None, description="1 or 2")
    grid: Annotated[str, AfterValidator(_grid)] | None = Field(
        default=None, description="the launch grid of a legacy kernel, such as '4,2' or 'nc(2)*2,4'"
    )
    inputs_from: FunctionEntry | None = Field(
        default=None, description="FILE.py:FUNCTION of a function of a seed, such as 'reference.py:inputs'"
    )
    kernel_inputs: FunctionEntry | None = Field(
        default=None, description="FILE.py:FUNCTION of a function of the list of the reference's arguments"
    )
    kernel_outputs: FunctionEntry | None = Field(
        default=None, description="FILE.py:FUNCTION of a function of what kernel and reference return"
    )
    float64: bool = Field(default=True, description="true or false")
    reference_limits: ReferenceLimits = Field(
        default_factory=ReferenceLimits,
        description="a table with any of seconds, memory_gib and answer_gib",
    )
    workloads: dict[Name, Workload] = Field(
        default_factory=dict,
        description="a table for each workload, such as [workloads.small]",
    )
    tolerance: Tolerance = Field(
        default_factory=Tolerance,
        description="a table with any of rtol, atol, rms, absolute, per_row and outputs",
    )
    contract: Contract = Field(default_factory=Contract, description="a table with the key hostile")
    cuda: Text | None = Field(
        default=None, description="the path of the CUDA original, relative to the task folder"
    )
    rubric: Text | None = Field(default=None, description="the path of a rubric, relative to the task folder")
    claims: Text | None = Field(
        default=None, description="the path of the claims, relative to the task folder"
    )

    @model_validator(mode="before")
    @classmethod
    def _implied_workload(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        if _is_problem(data.get("reference")):
            data = {"inputs_from": f"{data['reference']}:{PROBLEM_INPUTS}", **data}
        if data.get("inputs_from") is not None and "workloads" not in data:
            data = {**data, "workloads": {DEFAULT_WORKLOAD: {}}}
        return data

    @model_validator(mode="after")
    def _has_inputs(self) -> TaskFile:
        if not self.workloads:
            raise ValueError("workloads: missing; expected a table [workloads.NAME], or inputs_from")
        for name, workload in self.workloads.items():
            if not workload.inputs and self.inputs_from is None:
                raise ValueError(
                    f"workloads.{name}.inputs: missing; expected a table of inputs, or inputs_from in the task"
                )
        return self


class Task(TaskFile):
    """A task and the folder that the paths in it are relative to."""

    folder: Path
    kernel_also: tuple[str, ...] = ()
    """Names under which a submission may have its kernel instead."""

    @property
    def files(self) -> list[Path]:
        """The files that say what the task is, as far as they are there: its own and the Python files beside it."""
        named = [self.path(entry.file) for entry in _entries(self)]
        found = {self.folder / TASK_FILE, *self.folder.glob("*.py"), *named}
        return sorted(path for path in found if path.is_file())

    def path(self, relative: str) -> Path:
        """A path of the task file, from where we stand."""
        return self.folder / relative


@dataclass(frozen=True)
class Submission:
    """One submission of a task."""

    name: str
    folder: Path
    kernel_path: Path


def load_task(folder: str | Path) -> Task:
    """Read and validate FOLDER/task.toml; raise TaskError with every problem found."""
    folder = Path(folder)
    file = folder / TASK_FILE
    data = _read(file)
    try:
        keys = TaskFile.model_validate(data)
    except ValidationError as error:
        raise TaskError(f"{file}: {sentence}" for sentence in sentences(error, TaskFile)) from None
    # Not model_dump: it would turn the nested tables back into plain data.
    task = Task(folder=folder, **{name: getattr(keys, name) for name in TaskFile.model_fields})
    missing = [
        f"{file}: {key}: there is no file {task.path(path)}; expected {expected_at(TaskFile, key)}"
        for key, path in _paths(task)
        if not task.path(path).is_file()
    ]
    if missing:
        raise TaskError(missing)
    return task


def submissions(task: Task) -> list[Submission]:
    """The submissions of a task, by name; raise TaskError where there is none, or one has no kernel file."""
    folder = task.folder / SUBMISSIONS
    expected = f"expected {folder}/NAME/{task.kernel_file} for each submission"
    if not folder.is_dir():
        raise TaskError([f"{folder}: there is no such folder; {expected}"])
    names = sorted(item.name for item in folder.iterdir() if item.is_dir() and item.name[0] not in "._")
    if not names:
        raise TaskError([f"{folder}: there is no submission in it; {expected}"])
    found = [_submission(task, name) for name in names]
    missing = [_no_kernel(task, submission) for submission in found if not submission.kernel_path.is_file()]
    if missing:
        raise TaskError(missing)
    return found


def resolve(path: str | Path) -> tuple[Task, list[Submission]]:
    """The task and the submissions meant by a task folder, a submission's folder or its kernel file.

    Raise TaskError where the path is none of them, or what it leads to is malformed.
    """
    path = Path(path)
    if not path.exists():
        raise TaskError([f"{path}: there is no such file or folder; expected {_REVIEWABLE}"])
    if (path / TASK_FILE).is_file():
        task = load_task(path)
        return task, submissions(task)
    place = path.resolve()
    for folder in (place, *place.parents):
        root = folder.parent.parent
        if folder.parent.name == SUBMISSIONS and (root / TASK_FILE).is_file():
            task = load_task(_from_here(root))
            submission = _submission(task, folder.name)
            if not submission.kernel_path.is_file():
                raise TaskError([_no_kernel(task, submission)])
            if place not in (folder, submission.kernel_path.resolve()):
                raise TaskError(
                    [
                        f"{path}: this is not the kernel file of its submission; expected {submission.kernel_path}"
                    ]
                )
            return task, [submission]
    raise TaskError([f"{path}: this belongs to no task; expected {_REVIEWABLE}"])


_REVIEWABLE = f"a folder with {TASK_FILE}, a folder {SUBMISSIONS}/NAME in one, or the kernel file in that"


def _submission(task: Task, name: str) -> Submission:
    folder = task.folder / SUBMISSIONS / name
    return Submission(name, folder, folder / task.kernel_file)


def _no_kernel(task: Task, submission: Submission) -> str:
    return (
        f"{submission.kernel_path}: there is no such file; expected the file with the kernel {task.kernel!r}"
    )


def _from_here(path: Path) -> Path:
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise TaskError(
            [f"{file}: there is no such file; expected a task folder with {TASK_FILE} in it"]
        ) from None
    except OSError as error:
        raise TaskError([f"{file}: it cannot be read ({error.strerror}); expected a TOML file"]) from None
    except UnicodeDecodeError as error:
        raise TaskError([f"{file}: byte {error.start} is not UTF-8; expected a TOML file in UTF-8"]) from None
    except tomllib.TOMLDecodeError as error:
        raise TaskError([f"{file}: this is no valid TOML: {error}"]) from None


def _paths(task: Task) -> Iterator[tuple[str, str]]:
    for key in (*ENTRIES, "cuda", "rubric", "claims"):
        value = getattr(task, key)
        if value is not None:
            yield key, value.file if isinstance(value, Entry) else value


def _entries(task: Task) -> Iterator[Entry]:
    found = (getattr(task, key) for key in ENTRIES)
    yield from (entry for entry in found if entry is not None)
