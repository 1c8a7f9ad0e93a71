"""The pipeline on one page: trace, verify, execute, compare, judge."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

import nkireview
from nkireview import hardware
from nkireview.arguments import Arguments, Array, Called, Callee, Drawn, InputSource, ReferenceFailed, call
from nkireview.checks.counts import counts
from nkireview.checks.provenance import Provenance, provenance
from nkireview.checks.reduction import reduction_lengths
from nkireview.checks.source import SourceFacts
from nkireview.execute import Execution, OutputValue, execute
from nkireview.isa.release import LATEST, Release
from nkireview.isa.table import ROWS
from nkireview.numerics.errors import ErrorFigures, ExactFigures
from nkireview.numerics.inputs import HOSTILE, hostile
from nkireview.numerics.limits import Limits as Tolerance
from nkireview.numerics.limits import Policy, limits_for
from nkireview.numerics.sensitivity import conditioning, probe
from nkireview.numerics.verdict import Verdict, judge
from nkireview.numerics.void import VoidCheck, void_checks
from nkireview.program.codec import load
from nkireview.program.errors import ProgramError
from nkireview.program.program import Program
from nkireview.program.tree import to_json
from nkireview.program.verify import verify
from nkireview.record import (
    CountsRecord,
    Figures,
    Legality,
    OutputResult,
    ReviewRecord,
    Run,
    Setting,
    Subject,
)
from nkireview.rules.facts import Facts, Failure, Unreached, WorkloadFacts, WrongOutput
from nkireview.rules.finding import Finding, Severity
from nkireview.rules.registry import judge as judge_facts
from nkireview.runner import ForkServer, Job, Limits
from nkireview.runner.tree import leaves

TRACE = "nkireview.runner.trace:trace"
DEFAULT_SEEDS = 2
DEFAULT_TARGET = "trn2"


@dataclass(frozen=True)
class Workload:
    """One set of inputs; `seeds` is how many are executed, `hostile` what its contract allows."""

    name: str
    inputs: InputSource
    schedule_only: bool = False
    seeds: int = DEFAULT_SEEDS
    hostile: frozenset[str] = frozenset()


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
    policy: Callable[[int], Policy | None] = lambda _: None
    task: str = ""
    submission: str = ""
    authored: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    seed: int | None = None
    failure: Failure | None = None
    limits: Limits = field(default_factory=Limits)


def settle_target(asked: str | None, task: str | None, source: SourceFacts | None) -> Setting:
    """The target by precedence: command line, task, the file's own setting, trn2."""
    from_file = source.target if source else None
    known = from_file if from_file in (*hardware.TARGETS, "inf2") else None
    for value, origin in ((asked, "--target"), (task, "task"), (known, "the file")):
        if value:
            return Setting(value=hardware.target(value).name, origin=origin)
    return Setting(value=DEFAULT_TARGET, origin="default")


def settle_release(asked: str | None, task: Release | None) -> Setting:
    """The release by precedence: command line, task, the latest."""
    if asked:
        return Setting(value=str(Release.parse(asked)), origin="--nki")
    if task:
        return Setting(value=str(task), origin="task")
    return Setting(value=str(LATEST), origin="default")


def settle_lnc(asked: int | None, task: int | None) -> Setting:
    """LNC by precedence: command line, task, 1."""
    for value, origin in ((asked, "--lnc"), (task, "task")):
        if value:
            return Setting(value=str(value), origin=origin)
    return Setting(value="1", origin="default")


def review(
    request: Request, server: ForkServer, progress: Callable[[str], None] = lambda _: None
) -> ReviewRecord:
    """Review one kernel; every fault of the kernel, the reference or the task is in the record."""
    return _Review(request, server, progress).record()


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
    structure = workload.inputs.structure(server, request.limits)
    found = Traced(workload, structure)
    node, tensors = structure.node()
    lnc = int(request.lnc.value)
    header = {
        "file": str(request.file.resolve()),
        "kernel": request.kernel,
        "target": request.target.value,
        "release": request.release.value,
        "lnc": lnc,
        "grid": [lnc] if lnc > 1 else [],
        "parameters": to_json(node),
        "tensors": [[list(shape), dtype] for shape, dtype in tensors],
        "paths": list(request.paths),
    }
    outcome = server.run(Job(TRACE, header, [], request.limits))
    found.held, found.not_held = outcome.held, outcome.not_held
    if outcome.status != "done":
        found.failure = Failure(outcome.status, outcome.detail)
        return found
    found.stubs = tuple(str(name) for name in outcome.header.get("stubs", ()))
    error = outcome.header.get("error")
    if error:
        place = f"{Path(str(error['file'])).name}:{error['line']}" if error.get("file") else ""
        if error["kind"] == "unsupported":
            found.unsupported = f"{error['message']}{f' ({place})' if place else ''}"
        else:
            found.failure = Failure(str(error["kind"]), str(error["message"]), place)
        return found
    try:
        program = load(outcome.blobs[0]) if outcome.blobs else None
        _check_sealed(program, header, node, tensors)
        found.program = program
    except ProgramError as error:
        found.failure = Failure("forged", str(error))
    return found


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
    if list(head.grid) != header["grid"] or to_json(program.parameters) != to_json(node):
        raise ProgramError("the program's grid or parameters are not those of the request")
    for at, (shape, dtype) in enumerate(tensors):
        buffer = program.buffer(at)
        if (buffer.shape, buffer.dtype) != (tuple(shape), dtype) or buffer.memory.on_chip:
            raise ProgramError(
                f"parameter buffer {at} is {buffer.dtype}{list(buffer.shape)}, not {dtype}{list(shape)}"
            )


class _Review:
    def __init__(self, request: Request, server: ForkServer, progress: Callable[[str], None]) -> None:
        self.request = request
        self.server = server
        self.progress = progress
        self.seconds: dict[str, float] = {}
        self.runs: list[Run] = []
        self.counts: list[CountsRecord] = []
        self.workloads: list[WorkloadFacts] = []
        self.traced: list[Traced] = []
        self.not_judged = ""
        self.not_checked = ["execution time", "space and hazards", "benchmark claims"]

    def record(self) -> ReviewRecord:
        started = time.monotonic()
        if self.request.failure is not None:
            self.workloads.append(WorkloadFacts("", failure=self.request.failure))
        else:
            for workload in self.request.workloads:
                if not self.not_judged:
                    self._workload(workload)
        findings = judge_facts(self._facts())
        self.seconds["total"] = time.monotonic() - started
        return self._assemble(findings)

    def _workload(self, workload: Workload) -> None:
        self.progress(f"{workload.name}: tracing")
        try:
            with self._clock("trace"):
                traced = trace(self.request, workload, self.server)
            self.traced.append(traced)
            if traced.unsupported:
                self.not_judged = f"{traced.unsupported}; this version cannot trace the kernel"
                return
            facts = self._judge(traced) if traced.program is not None else WorkloadFacts(workload.name)
            self.workloads.append(replace(facts, failure=traced.failure))
        except ReferenceFailed as error:
            self.not_judged = str(error)

    def _judge(self, traced: Traced) -> WorkloadFacts:
        program, name = traced.program, traced.workload.name
        assert program is not None
        self.progress(f"{name}: verifying {len(program):,} instructions")
        with self._clock("verify"):
            violations = verify(program)
        unsupported = [v for v in violations if v.unsupported]
        if unsupported:
            self.not_judged = unsupported[0].message
        with self._clock("checks"):
            self.counts.append(counts_record(program, name))
            paths = provenance(program, ROWS)
            lengths = reduction_lengths(program, ROWS)
        facts = WorkloadFacts(name, program=program, violations=violations)
        if traced.workload.schedule_only or self.request.reference is None or self.not_judged:
            return facts
        return self._execute(traced, program, facts, paths, lengths)

    def _execute(
        self,
        traced: Traced,
        program: Program,
        facts: WorkloadFacts,
        paths: Provenance,
        lengths: Sequence[int],
    ) -> WorkloadFacts:
        runs = _Runs(self, traced, program, lengths)
        seeds = self._seeds(traced.workload)
        for seed in seeds:
            runs.one(seed, "as drawn", in_contract=True)
        unreached: tuple[Unreached, ...] = ()
        if not runs.mismatch:
            for kind in HOSTILE:
                in_contract = kind in traced.workload.hostile
                with self._unless_asked(f"{facts.name} on {kind} inputs", in_contract):
                    runs.one(seeds[0], kind, in_contract=in_contract)
            self.progress(f"{facts.name}: probing which inputs count")
            self._void(runs)
            if not self.not_judged:
                with (
                    self._unless_asked(f"{facts.name}: which inputs count", asked=False),
                    self._clock("probes"),
                ):
                    unreached = tuple(runs.unreached(paths, seeds[0]))
        self.runs.extend(runs.records)
        return replace(
            facts,
            faults=runs.faults,
            wrong=tuple(runs.wrong),
            mismatch=runs.mismatch,
            unreached=unreached,
            written_parameters=runs.written,
        )

    def _void(self, runs: _Runs) -> None:
        found = runs.void()
        if found is None:
            return
        if found.void:
            self.not_judged = f"the task is void: {found.reasons[0].sentence}"
        self.not_checked.extend(item.sentence for item in found.skipped)

    def _seeds(self, workload: Workload) -> list[int]:
        if self.request.seed is not None:
            return [self.request.seed + at for at in range(workload.seeds)]
        return [secrets.randbits(31) for _ in range(workload.seeds)]

    @contextmanager
    def _unless_asked(self, what: str, asked: bool) -> Iterator[None]:
        """A reference may refuse inputs that nobody asked for; then they are not checked."""
        try:
            yield
        except ReferenceFailed as error:
            if asked:
                raise
            self.not_checked.append(f"{what} ({error})")

    @contextmanager
    def _clock(self, name: str) -> Iterator[None]:
        started = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - started

    def _facts(self) -> Facts:
        request = self.request
        return Facts(
            kernel=request.kernel,
            workloads=tuple(self.workloads),
            stubs=tuple(dict.fromkeys(name for item in self.traced for name in item.stubs)),
            file_target=request.source.target if request.source else None,
            target=request.target.value,
            authored=request.authored,
        )

    def _assemble(self, findings: Sequence[Finding]) -> ReviewRecord:
        request = self.request
        blocked = any(finding.severity is Severity.blocker for finding in findings)
        status: Literal["acceptable", "rejected", "not reviewed"]
        status = "not reviewed" if self.not_judged else ("rejected" if blocked else "acceptable")
        held = self.traced[0] if self.traced else None
        return ReviewRecord(
            tool=f"nkireview {nkireview.__version__}",
            subject=Subject(
                kernel=request.kernel,
                file=str(request.file),
                sha256=request.source.sha256 if request.source else "",
                task=request.task,
                submission=request.submission,
                reference=str(request.reference) if request.reference else "",
                reference_by_author="reference" in request.authored,
                target=request.target,
                release=request.release,
                lnc=request.lnc,
            ),
            status=status,
            reason=self.not_judged,
            legality=self._legality(),
            runs=tuple(self.runs),
            counts=tuple(self.counts),
            findings=tuple(findings),
            not_checked=tuple(self.not_checked),
            isolation_held=held.held if held else (),
            isolation_not_held=held.not_held if held else (),
            stubs=tuple(dict.fromkeys(name for item in self.traced for name in item.stubs)),
            seconds={name: round(value, 4) for name, value in self.seconds.items()},
        )

    def _legality(self) -> Legality:
        programs = [item for item in self.workloads if item.program is not None]
        if not programs:
            return Legality(status="not assessed", reason="there is no program")
        broken = sum(len(v.instructions) or 1 for item in programs for v in item.violations)
        return Legality(status="illegal" if broken else "legal", violations=broken)


class _Runs:
    """The executions of one workload."""

    def __init__(self, owner: _Review, traced: Traced, program: Program, lengths: Sequence[int]) -> None:
        self.owner = owner
        self.traced = traced
        self.program = program
        self.lengths = lengths
        self.limits = self._limits([1.0] * len(lengths))
        self.records: list[Run] = []
        self.faults: tuple[Any, ...] = ()
        self.wrong: list[WrongOutput] = []
        self.written: tuple[str, ...] = ()
        self.mismatch = ""
        self._drawn: tuple[Arguments, list[Array]] | None = None

    def one(self, seed: int, kind: str, *, in_contract: bool) -> None:
        """Execute for one seed and compare."""
        if self.mismatch:
            return
        name = self.traced.workload.name
        self.owner.progress(f"{name}: executing, {kind}")
        arguments = self._arguments(seed, kind)
        if arguments is None:
            return
        wanted = self._reference(arguments)
        with self.owner._clock("execute"):
            execution = self._execute(arguments)
        if kind == "as drawn" and self._drawn is None:
            self._drawn = arguments, wanted
            self.faults = execution.faults
            aliases = {output.alias for output in self.program.outputs}
            self.written = tuple(path for path in execution.parameters if path not in aliases)
        self.mismatch = self._mismatch(wanted)
        if self.mismatch:
            self.records.append(self._record(seed, kind, in_contract, (), self.mismatch))
            return
        with self.owner._clock("compare"):
            limits = self.limits if kind == "as drawn" else self._limits(self._conditioning(arguments, seed))
            results = tuple(
                self._compare(execution.outputs[at], wanted[at], limits[at]) for at in range(len(wanted))
            )
        for result in results:
            if result.status == "wrong":
                self.wrong.append(WrongOutput(result.name, result.reason, seed, kind, in_contract))
        self.records.append(self._record(seed, kind, in_contract, results, ""))

    def void(self) -> VoidCheck | None:
        """Which baselines would pass, and which showed nothing."""
        if self._drawn is None:
            return None
        arguments, wanted = self._drawn
        at = {output.name: index for index, output in enumerate(self.program.outputs)}
        inputs = dict(zip(self._paths(), arguments.arrays(), strict=True))
        return void_checks(
            dict(zip(at, wanted, strict=True)),
            inputs,
            lambda name, candidate: judge(candidate, wanted[at[name]], self.limits[at[name]]),
        )

    def unreached(self, paths: Provenance, seed: int) -> Iterator[Unreached]:
        """Inputs that the reference needs and the Program does not carry to the output."""
        if self._drawn is None:
            return
        arguments, _ = self._drawn
        seen: set[tuple[str, int]] = set()
        named = dict(zip(self._paths(), arguments.arrays(), strict=True))
        for influence in probe(lambda arrays: self._reference(arguments.replaced(arrays)), named, seed):
            path, output = influence.input_path, influence.output_index
            if not influence.changed or (path, output) in seen or self._aliased(path):
                continue
            if not paths.covers(path, output, influence.region.slices):
                seen.add((path, output))
                yield Unreached(path, self.program.outputs[output].name, f"the {influence.region.name}")

    def _aliased(self, path: str) -> bool:
        return any(output.alias == path for output in self.program.outputs)

    def _paths(self) -> list[str]:
        return [path for path, _ in self.program.parameter_buffers]

    def _arguments(self, seed: int, kind: str) -> Arguments | None:
        owner, workload = self.owner, self.traced.workload
        arguments = workload.inputs.make(seed, owner.server, owner.request.limits)
        if not arguments.same_structure(self.traced.structure):
            raise ReferenceFailed(
                f"workload {workload.name}: shapes, dtypes or scalars depend on the seed; only values may"
            )
        if kind == "as drawn":
            return arguments
        named = {str(at): array for at, array in enumerate(arguments.arrays())}
        changed = hostile(named, kind)
        return None if changed is None else arguments.replaced(list(changed.values()))

    def _reference(self, arguments: Arguments) -> list[Array]:
        request = self.owner.request
        assert request.reference is not None
        with self.owner._clock("reference"):
            made = call(self.owner.server, request.limits, request.reference, arguments, float64=True)
        found = [np.asarray(value) for _, value in leaves(made)]
        if not found:
            raise ReferenceFailed(f"reference {request.reference} returned no array")
        return found

    def _execute(self, arguments: Arguments) -> Execution:
        given = {
            buffer: array
            for (_, buffer), array in zip(self.program.parameter_buffers, arguments.arrays(), strict=True)
        }
        return execute(self.program, given)

    def _mismatch(self, wanted: Sequence[Array]) -> str:
        outputs = self.program.outputs
        if len(outputs) != len(wanted):
            return f"the kernel returns {len(outputs)} tensors, the reference {len(wanted)}"
        for output, value in zip(outputs, wanted, strict=True):
            shape = self.program.access(output.access).shape
            if shape != value.shape:
                return f"output {output.name} has shape {list(shape)}, the reference's {list(value.shape)}"
        return ""

    def _limits(self, amplification: Sequence[float]) -> list[Tolerance]:
        return [
            limits_for(
                self.program.access(output.access).dtype, length, self.owner.request.policy(at), factor
            )
            for at, (output, length, factor) in enumerate(
                zip(self.program.outputs, self.lengths, amplification, strict=True)
            )
        ]

    def _conditioning(self, arguments: Arguments, seed: int) -> list[float]:
        """How far the reference itself enlarges rounding on these inputs."""
        named = dict(zip(self._paths(), arguments.arrays(), strict=True))
        return conditioning(lambda arrays: self._reference(arguments.replaced(arrays)), named, seed)

    def _compare(self, output: OutputValue, wanted: Array, limits: Tolerance) -> OutputResult:
        verdict = judge(output.values, wanted, limits)
        return OutputResult(
            name=output.name,
            dtype=limits.dtype,
            shape=output.values.shape,
            status="correct" if verdict.passed else "wrong",
            figures=_figures(verdict),
            limits={"rtol": limits.rtol, "atol": limits.atol, "rms": limits.rms, "absolute": limits.absolute},
            reason=verdict.reason,
        )

    def _record(
        self, seed: int, kind: str, in_contract: bool, outputs: tuple[OutputResult, ...], reason: str
    ) -> Run:
        wrong = bool(reason) or any(output.status == "wrong" for output in outputs)
        return Run(
            workload=self.traced.workload.name,
            seed=seed,
            inputs=kind,
            in_contract=in_contract,
            status="wrong" if wrong else "correct",
            outputs=outputs,
            reason=reason,
        )


def _figures(verdict: Verdict) -> Figures | None:
    found = verdict.comparison
    if isinstance(found, ErrorFigures):
        worst = found.worst
        return Figures(
            scaled_max=found.scaled_max,
            rms_ratio=found.rms_ratio,
            max_ulps=found.worst_ulps,
            max_abs=worst.error if worst else 0.0,
            at=worst.index if worst else (),
            got=repr(worst.got) if worst else "",
            expected=repr(worst.ref) if worst else "",
            elements=found.elements,
            nonfinite_mismatches=found.nonfinite.count if found.nonfinite else 0,
        )
    if isinstance(found, ExactFigures):
        worst = found.worst
        return Figures(
            scaled_max=0.0 if found.mismatches == 0 else float("inf"),
            rms_ratio=0.0 if found.mismatches == 0 else float("inf"),
            max_ulps=None,
            max_abs=worst.error if worst else 0.0,
            at=worst.index if worst else (),
            got=repr(worst.got) if worst else "",
            expected=repr(worst.ref) if worst else "",
            elements=found.elements,
            nonfinite_mismatches=0,
        )
    return None


def counts_record(program: Program, name: str) -> CountsRecord:
    """What a workload's program consists of."""
    found = counts(program, ROWS)
    return CountsRecord(
        workload=name,
        instructions=found.instructions,
        by_engine=dict(found.by_engine),
        by_opcode=dict(found.by_opcode),
        bytes_by_route=dict(found.bytes_by_route),
        multiply_accumulates=found.multiply_accumulates,
        dma_transfers=found.dma_transfers,
        assumed_trips=found.assumed_trips,
    )


__all__ = ["Called", "Drawn", "Request", "Workload", "review", "trace"]
