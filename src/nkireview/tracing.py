"""What is reviewed, and how it is traced: a request, its settings by precedence, a sealed Program."""

from __future__ import annotations

import importlib.util
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nkireview import hardware
from nkireview.arguments import Arguments, Callee, InputSource
from nkireview.checks.api import fallback, kernel_generations
from nkireview.checks.schedules import as_asked
from nkireview.checks.source import SourceFacts
from nkireview.isa.grid import Grid
from nkireview.isa.release import LATEST, LEGACY, Release
from nkireview.numerics.limits import Policy
from nkireview.numerics.sensitivity import REGIONS
from nkireview.program.codec import load
from nkireview.program.errors import ProgramError
from nkireview.program.program import Program
from nkireview.program.tree import to_json
from nkireview.record import Setting
from nkireview.rubric import loading
from nkireview.rubric.model import Rubric
from nkireview.rules.facts import Failure
from nkireview.runner import ForkServer, Job, Limits

TRACE = "nkireview.runner.trace:trace"
FAILURES = frozenset({"raised", "refused", "import", "limits"})
DEFAULT_SEEDS = 2
DEFAULT_TARGET = "trn2"


@dataclass(frozen=True)
class Workload:
    """One set of inputs; `seeds` is how many are executed, `hostile` what its contract allows.

    probes: regions of each input that are changed to see whether they count.
    """

    name: str
    inputs: InputSource
    schedule_only: bool = False
    seeds: int = DEFAULT_SEEDS
    hostile: frozenset[str] = frozenset()
    probes: int = REGIONS


@dataclass(frozen=True)
class Request:
    """What to review."""

    source: SourceFacts | None
    file: Path
    kernel: str
    reference: Callee | None
    workloads: Sequence[Workload]
    target: Setting
    release: Setting
    lnc: Setting
    grid: Setting | None = None
    """The launch grid that is asked for, see `isa.grid`; None: the one that the file gives its kernel, or LNC."""
    policy: Callable[[int], Policy | None] = lambda _: None
    task: str = ""
    submission: str = ""
    authored: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    seed: int | None = None
    failure: Failure | None = None
    limits: Limits = field(default_factory=Limits)
    returned: Callee | None = None
    """The task's function of what kernel and reference returned: what of the kernel's is compared."""
    reference_limits: Limits | None = None
    """What a call of the task's own functions may use, where that is not `limits`."""
    not_checked: tuple[str, ...] = ()
    """What the call leaves out of what the task asks for."""
    rubric: Rubric = field(default_factory=loading.load)

    @property
    def task_limits(self) -> Limits:
        """What a call of the task's own functions may use."""
        return self.reference_limits or self.limits


def settle_target(
    asked: str | None, task: str | None, source: SourceFacts | None, kernel: str = ""
) -> Setting:
    """The target by precedence: command line, task, the file's or the kernel's own setting, trn2."""
    from_file = source.target_of(kernel) if source else None
    known = from_file if from_file in (*hardware.TARGETS, "inf2") else None
    for value, origin in ((asked, "--target"), (task, "task"), (known, "the file")):
        if value:
            return Setting(value=hardware.target(value).name, origin=origin)
    return Setting(value=DEFAULT_TARGET, origin="default")


def settle_release(
    asked: str | None, task: Release | None, source: SourceFacts | None = None, kernel: str = ""
) -> Setting:
    """The release by precedence: command line, task, the kernel's generation, the latest."""
    if asked:
        return Setting(value=str(Release.parse(asked)), origin="--nki")
    if task:
        return Setting(value=str(task), origin="task")
    if source is not None and kernel_generations(source, kernel) == {"legacy"}:
        return Setting(value=str(LEGACY), origin="the file, which imports neuronxcc.nki")
    return Setting(value=str(LATEST), origin="default")


def settle_grid(asked: str | None, task: str | None) -> Setting | None:
    """The launch grid by precedence: command line, task; ValueError where it is none."""
    for value, origin in ((asked, "--grid"), (task, "task")):
        if value:
            return Setting(value=str(Grid.parse(value)), origin=origin)
    return None


def settle_lnc(asked: int | None, task: int | None, grid: Setting | None = None) -> Setting:
    """LNC by precedence: command line, task, the launch grid, 1; ValueError where they contradict each other."""
    cores = Grid.parse(grid.value).lnc if grid is not None else 1
    if grid is not None and (asked or task or cores) != cores:
        raise ValueError(
            f"the grid {grid.value} takes {cores} physical cores and LNC is {asked or task}; write nc({asked or task}) "
            "in the grid where cores share a dimension"
        )
    if grid is not None and cores > 1:
        return Setting(value=str(cores), origin=grid.origin)
    for value, origin in ((asked, "--lnc"), (task, "task")):
        if value:
            return Setting(value=str(value), origin=origin)
    return Setting(value="1", origin="default")


@dataclass
class Traced:
    """A workload with its arguments' structure and what the trace gave."""

    workload: Workload
    structure: Arguments
    program: Program | None = None
    failure: Failure | None = None
    unsupported: str = ""
    stubs: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    not_held: tuple[str, ...] = ()


def trace(request: Request, workload: Workload, server: ForkServer) -> Traced:
    """Trace a workload in a child. Its seeds are drawn only after the Program is sealed."""
    structure = workload.inputs.structure(server, request.task_limits)
    found = Traced(workload, structure)
    names = request.source.parameters(request.kernel) if request.source else ()
    node, tensors = structure.node(names)
    lnc = int(request.lnc.value)
    grid = Grid.parse(request.grid.value) if request.grid is not None else Grid.of_cores(lnc)
    header = {
        "file": str(request.file.resolve()),
        "kernel": request.kernel,
        "target": request.target.value,
        "release": request.release.value,
        "lnc": lnc,
        "grid": list(grid.shape),
        "launch": request.grid.value if request.grid is not None else "",
        "absent": list(_absent(request)),
        "parameters": to_json(node),
        "tensors": [[list(shape), dtype] for shape, dtype in tensors],
        "paths": list(request.paths),
    }
    outcome = server.run(Job(TRACE, header, [], request.limits))
    found.held, found.not_held = outcome.held, outcome.not_held
    if outcome.status != "done":
        found.failure = Failure(outcome.status, outcome.detail)
        return found
    try:
        _read(outcome.header, found)
        if not found.failure and not found.unsupported:
            program = load(outcome.blobs[0]) if outcome.blobs else None
            _check_sealed(program, header, node, tensors)
            found.program = None if program is None else as_asked(program)
    except ProgramError as error:
        found.failure = Failure("forged", str(error))
    except (KeyError, TypeError, AttributeError):
        found.failure = Failure("forged", "the answer of the child is malformed")
    return found


def _absent(request: Request) -> tuple[str, ...]:
    """The generation that a file does not get, where its import of one is the fallback for the other."""
    if request.source is None or not fallback(request.source):
        return ()
    return ("nki",) if request.release.value == str(LEGACY) else ("neuronxcc.nki",)


def _read(answer: Mapping[str, Any], found: Traced) -> None:
    """Take over what the child says of stubs and errors; it is untrusted."""
    found.stubs = tuple(str(name) for name in answer.get("stubs", ()))
    error = answer.get("error")
    if error:
        place = f"{Path(str(error['file'])).name}:{error['line']}" if error.get("file") else ""
        at = f" ({place})" if place else ""
        if error["kind"] == "unsupported":
            found.unsupported = f"{error['message']}{at}; this version cannot trace the kernel"
        elif error["kind"] == "missing" and _is_missing(str(error["message"])):
            found.unsupported = (
                f"imports the package {error['message']!r}, which is not installed here{at}: install it beside "
                "nkireview, or keep the import out of the files that the kernel needs"
            )
        elif error["kind"] == "missing":
            reason = f"imports {error['message']!r}, which does not exist"
            found.failure = Failure("import", reason, place)
        elif error["kind"] in FAILURES:
            found.failure = Failure(str(error["kind"]), str(error["message"]) or "no reason given", place)
        else:
            raise KeyError(error["kind"])


def _is_missing(name: str) -> bool:
    """True for a package that this host lacks; a module that a package lacks, or one of Python's own, is no such."""
    if not name.isidentifier() or name in sys.stdlib_module_names:
        return False
    return name not in sys.modules and importlib.util.find_spec(name) is None


def _check_sealed(
    program: Program | None, header: Mapping[str, Any], node: Any, tensors: Sequence[Any]
) -> None:
    """A Program must be the one that was asked for."""
    if program is None:
        raise ProgramError("the child returned no program")
    head = program.header
    for name in ("kernel", "target", "release", "lnc"):
        if getattr(head, name) != header[name]:
            raise ProgramError(
                f"the program's {name} is {getattr(head, name)!r}, {header[name]!r} was asked for"
            )
    # without a grid that is asked for, a legacy kernel has the one that its file gives it
    own = not header["launch"] and header["release"] == str(LEGACY) and math.prod(head.grid) % head.lnc == 0
    if (list(head.grid) != header["grid"] and not own) or to_json(program.parameters) != to_json(node):
        raise ProgramError("the program's grid or parameters are not those of the request")
    for at, (shape, dtype) in enumerate(tensors):
        buffer = program.buffer(at)
        if (buffer.shape, buffer.dtype) != (tuple(shape), dtype) or buffer.memory.on_chip:
            raise ProgramError(
                f"parameter buffer {at} is {buffer.dtype}{list(buffer.shape)}, not {dtype}{list(shape)}"
            )
