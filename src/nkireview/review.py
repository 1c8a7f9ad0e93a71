"""The pipeline on one page: trace, verify, execute, compare, judge."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Literal

import nkireview
from nkireview import hardware
from nkireview.arguments import ReferenceFailed
from nkireview.checks.counts import counts
from nkireview.checks.dataflow import flow_of
from nkireview.checks.integrity import forbidden
from nkireview.checks.needs import needs
from nkireview.checks.own_tests import gathered, own_tests
from nkireview.checks.provenance import Provenance, provenance
from nkireview.checks.reduction import reduction_lengths
from nkireview.checks.survey import survey
from nkireview.isa.release import LEGACY, Release
from nkireview.isa.table import ROWS
from nkireview.measures import measures
from nkireview.memorymap import BLOCKS
from nkireview.numbers_record import NumbersRecord
from nkireview.numerics.hostile import ALWAYS, HOSTILE, chosen
from nkireview.program.model import Event
from nkireview.program.program import Program
from nkireview.program.verify import verify
from nkireview.record import (
    CountsRecord,
    Legality,
    OrderDifference,
    OrdersRecord,
    ReviewRecord,
    Run,
    Setting,
    Subject,
    TimeRecord,
)
from nkireview.replays import MOST, Replays
from nkireview.rubric.scorecard import Scorecard
from nkireview.rubric.scoring import score
from nkireview.rubric.strengths import strengths
from nkireview.rules.facts import Facts, Orders, OwnEvidence, Unreached, WorkloadFacts
from nkireview.rules.finding import Dimension, Evidence, Finding, Severity
from nkireview.rules.legality import GRIDLESS
from nkireview.rules.registry import judge
from nkireview.runner import ForkServer
from nkireview.runs import Bench, Runs
from nkireview.schedule.timing import Timing
from nkireview.times import SLICES, time_record
from nkireview.tracing import Request, Traced, Workload, trace

UNEXECUTED = "nothing was executed: whether the result is right was not looked at"


def review(
    request: Request, server: ForkServer, progress: Callable[[str], None] = lambda _: None
) -> ReviewRecord:
    """Review one kernel; every fault of the kernel, the reference or the task is in the record."""
    return _Review(request, server, progress).record()


class _Review:
    def __init__(self, request: Request, server: ForkServer, progress: Callable[[str], None]) -> None:
        self.request = request
        self.bench = Bench(request, server, progress)
        self.runs: list[Run] = []
        self.counts: list[CountsRecord] = []
        self.workloads: list[WorkloadFacts] = []
        self.traced: list[Traced] = []
        self.times: list[TimeRecord] = []
        self.orders: list[OrdersRecord] = []
        self.numbers: list[NumbersRecord] = []
        self.own_tests: OwnEvidence | None = None
        """What the author's own tests show; None where the kernel's file may not be read, or nobody looked."""
        self.tried: set[str] = set()
        """Hostile inputs that a program asked for and that were tried."""
        self.hardware = hardware.target(request.target.value)
        self.not_judged = ""
        self.not_checked = ["benchmark claims", "migration from CUDA"]
        self.not_checked.extend(request.not_checked)

    def record(self) -> ReviewRecord:
        started = time.monotonic()
        source = self.request.source
        if self.request.failure is not None:
            self.workloads.append(WorkloadFacts("", failure=self.request.failure))
        elif source is not None and forbidden(source, self.request.kernel):
            self.not_checked.append("everything that needs the file to run: its source forbids that")
        else:
            for workload in self.request.workloads:
                if not self.not_judged:
                    self._workload(workload)
            self._own_tests(None)
        if source is not None and not source.legacy and self.request.release.value == str(LEGACY):
            self.not_checked.append("what the legacy generation would make of a file of the current one")
        if any(event.detail.startswith(GRIDLESS) for event in self._events()):
            self.not_checked.append(
                "instances beyond the first: the kernel asks for nl.program_id and is launched without a grid "
                "(give one with --grid 4,2)"
            )
        findings = judge(self._facts())
        self.bench.seconds["total"] = time.monotonic() - started
        return self._assemble(findings)

    def _workload(self, workload: Workload) -> None:
        self.bench.progress(f"{workload.name}: tracing")
        try:
            with self.bench.clock("trace"):
                traced = trace(self.request, workload, self.bench.server)
            self.traced.append(traced)
            if traced.unsupported:
                self.not_judged = traced.unsupported
                return
            facts = self._judge(traced) if traced.program is not None else WorkloadFacts(workload.name)
            self.workloads.append(replace(facts, failure=traced.failure))
        except ReferenceFailed as error:
            self.not_judged = str(error)

    def _judge(self, traced: Traced) -> WorkloadFacts:
        program, name = traced.program, traced.workload.name
        assert program is not None
        self.bench.progress(f"{name}: verifying {len(program):,} instructions")
        with self.bench.clock("verify"):
            violations = verify(program)
        unsupported = [v for v in violations if v.unsupported]
        if unsupported:
            self.not_judged = unsupported[0].message
        with self.bench.clock("checks"):
            paths = provenance(program, ROWS)
            lengths = reduction_lengths(program, ROWS)
        facts = WorkloadFacts(name, program=program, violations=violations)
        executes = not (traced.workload.schedule_only or self.request.reference is None or self.not_judged)
        # how often a loop runs whose bounds are registers is only seen when it does
        waits = executes and any(loop.trips is None for loop in program.loops)
        trips: Mapping[int, int] = {}
        if not waits:
            facts = self._scheduled(facts, program, trips)
        runs: Runs | None = None
        if executes:
            facts, runs = self._execute(traced, program, facts, paths, lengths)
            trips = runs.trips
        if waits:
            facts = self._scheduled(facts, program, trips)
        facts = self._ordered(facts, runs)
        if runs is not None:
            self.not_checked.extend(runs.notes)
        return facts

    def _ordered(self, facts: WorkloadFacts, runs: Runs | None) -> WorkloadFacts:
        """What other orders of execution showed, where the program is legal and was executed."""
        if facts.survey is None:
            return facts
        races = facts.survey.races
        if races.undecided:
            self.not_checked.append(
                f"{facts.name}: races between cores at {races.undecided:,} pair{'s' if races.undecided > 1 else ''} of "
                "lines: an address is made on the device, or the cores meet in loops that differ"
            )
        stored, racing = facts.survey.stored, bool(races.races)
        if runs is None:
            if facts.program is not None and Replays(facts.program, stored, racing, seed=0).orders:
                self.not_checked.append(f"{facts.name}: other orders of execution, as nothing was executed")
            return facts
        found = runs.orders(stored, racing)
        if found is not None:
            self.orders.append(orders_record(facts.name, found))
        return replace(facts, orders=found)

    def _scheduled(self, facts: WorkloadFacts, program: Program, trips: Mapping[int, int]) -> WorkloadFacts:
        """What the program consists of and, where every instruction has a meaning, space, traffic and time.

        trips: how often loops ran whose bounds are no numbers.
        """
        with self.bench.clock("checks"):
            self.counts.append(counts_record(program, facts.name, trips))
        if any(violation.blocking or violation.unsupported for violation in facts.violations):
            self.not_checked.append(f"{facts.name}: space, traffic and time, for want of a legal program")
            return facts
        self.bench.progress(f"{facts.name}: scheduling {len(program):,} instructions")
        with self.bench.clock("checks"):
            found = survey(program, ROWS, self.hardware, trips)
        with self.bench.clock("schedule"):
            timing = Timing(program, trips=trips)
            share = max(len(self.request.workloads), 1)
            self.times.append(
                time_record(
                    facts.name, program, timing, found, self.hardware, BLOCKS // share, SLICES // share
                )
            )
        return replace(facts, timing=timing, survey=found)

    def _execute(
        self,
        traced: Traced,
        program: Program,
        facts: WorkloadFacts,
        paths: Provenance,
        lengths: Sequence[int],
    ) -> tuple[WorkloadFacts, Runs]:
        """What the executions showed, and the executions."""
        runs = Runs(self.bench, traced, program, lengths)
        seeds = self._seeds(traced.workload)
        for seed in seeds:
            runs.one(seed, "as drawn", in_contract=True)
        unreached: tuple[Unreached, ...] = ()
        if runs.records and all(run.status == "not assessed" for run in runs.records):
            self.not_judged = f"workload {facts.name}: {runs.records[0].reason}"
        elif not runs.mismatch:
            for kind in self._kinds(traced, program, runs, seeds[0]):
                in_contract = kind in traced.workload.hostile
                with self._unless_asked(f"{facts.name} on {kind} inputs", in_contract):
                    runs.one(seeds[0], kind, in_contract=in_contract)
                self.tried.update(run.inputs for run in runs.records[-1:])
            self.bench.progress(f"{facts.name}: probing which inputs count")
            self._void(runs)
            if not self.not_judged:
                with (
                    self._unless_asked(f"{facts.name}: which inputs count", asked=False),
                    self.bench.clock("probes"),
                ):
                    unreached = tuple(runs.unreached(paths, seeds[0]))
                if runs.constant:
                    self.not_judged = "the task is void: no change of any input changes the reference"
        if not self.not_judged:
            with self._unless_asked(f"{facts.name}: what rounding explains", asked=False):
                self._numbers(runs)
        self._own_tests(runs)
        self.runs.extend(runs.records)
        executed = replace(
            facts,
            faults=runs.faults,
            wrong=tuple(runs.wrong),
            rounded=tuple(runs.rounded),
            mismatch=runs.mismatch,
            unreached=unreached,
            written_parameters=runs.written,
        )
        return executed, runs

    def _own_tests(self, runs: Runs | None) -> None:
        """The author's own tests, and what they would notice of mutants of the first workload that is right."""
        request = self.request
        if request.source is None or (self.own_tests is not None and self.own_tests.mutants):
            return
        if self.own_tests is None:
            with self.bench.clock("checks"):
                tests = own_tests(gathered(request.file, request.kernel), request.kernel)
            self.own_tests = OwnEvidence(tests, alone=request.reference is None)
        if runs is not None and self.own_tests.tests.comparisons:
            self.bench.progress("what the author's own tests would notice")
            self.own_tests = runs.own_evidence(self.own_tests.tests) or self.own_tests

    def _numbers(self, runs: Runs) -> None:
        """What rounding explains of the outputs, and why one that is wrong is."""
        for found in runs.numbers():
            self.numbers.append(found)
            if found.causes:
                cause, where = found.causes[0].sentence, (found.seed, found.inputs)
                runs.wrong[:] = [
                    replace(item, cause=cause) if (item.seed, item.inputs) == where else item
                    for item in runs.wrong
                ]

    def _kinds(self, traced: Traced, program: Program, runs: Runs, seed: int) -> Iterator[str]:
        """The hostile inputs of a workload: those always tried, those promised, and what the program asks for besides.

        What it asks for is tried for the first workload that does, where that is not too long and answers are there.
        """
        promised = traced.workload.hostile
        yield from (kind for kind in HOSTILE if kind in ALWAYS or kind in promised)
        with self.bench.clock("checks"):
            names = {need.name for need in needs(flow_of(program))}
        more = [
            kind for kind in chosen(names) if not (kind in ALWAYS or kind in promised or kind in self.tried)
        ]
        if runs.executed > MOST:
            known, why = [], f"{runs.executed:,} instructions were executed, more than {MOST:,}"
        else:
            known, why = (
                [kind for kind in more if runs.answers.knows(seed, kind)],
                "no answers are kept for them",
            )
        yield from known
        left = [kind for kind in more if kind not in known and runs.allows(kind)]
        if left:
            self.not_checked.append(f"{traced.workload.name} on {', '.join(left)} inputs ({why})")

    def _void(self, runs: Runs) -> None:
        found = runs.void()
        if found is None:
            return
        if found.void:
            runs.wrong.clear()  # a task that judges nothing says nothing about the kernel
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

    def _facts(self) -> Facts:
        request = self.request
        return Facts(
            kernel=request.kernel,
            workloads=tuple(self.workloads),
            stubs=tuple(dict.fromkeys(name for item in self.traced for name in item.stubs)),
            file_target=request.source.target if request.source else None,
            target=request.target.value,
            authored=request.authored,
            source=request.source,
            release=Release.parse(request.release.value),
            own_tests=self.own_tests,
        )

    def _scorecard(self, findings: Sequence[Finding], found: dict[str, float]) -> Scorecard:
        missing = {
            Dimension.migration: "there is no original to hold the kernel against",
            Dimension.claims: "no claim was made",
        }
        if all(run.status == "not assessed" for run in self.runs):
            missing[Dimension.numerics] = missing[Dimension.correctness] = "nothing was executed"
        predicted = {item.workload: item.total_ns for item in self.times}
        return score(self.request.rubric, findings, found, missing, predicted)

    def _assemble(self, findings: Sequence[Finding]) -> ReviewRecord:
        request = self.request
        blockers = [finding for finding in findings if finding.severity is Severity.blocker]
        if self.not_judged and any(finding.evidence is Evidence.source for finding in blockers):
            # what the source says holds whether or not the rest could be judged
            self.not_checked.append(self.not_judged)
            self.not_judged = ""
        blocked = bool(blockers)
        status: Literal["acceptable", "rejected", "not reviewed"]
        status = "not reviewed" if self.not_judged else ("rejected" if blocked else "acceptable")
        held = self.traced[0] if self.traced else None
        found = measures(self.runs, self.times, self.workloads, self.hardware)
        judged = not self.not_judged
        executed = any(run.status != "not assessed" for run in self.runs)
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
                grid=request.grid or self._own_grid(),
            ),
            status=status,
            reason=self.not_judged or ("" if executed or blocked else UNEXECUTED),
            legality=self._legality(),
            runs=tuple(self.runs),
            counts=tuple(self.counts),
            times=tuple(self.times),
            orders=tuple(self.orders),
            numbers=tuple(self.numbers),
            findings=tuple(findings),
            measures=found,
            scorecard=self._scorecard(findings, found) if judged else None,
            strengths=strengths(found, findings) if judged else (),
            not_checked=tuple(self.not_checked),
            isolation_held=held.held if held else (),
            isolation_not_held=held.not_held if held else (),
            stubs=tuple(dict.fromkeys(name for item in self.traced for name in item.stubs)),
            seconds={name: round(value, 4) for name, value in self.bench.seconds.items()},
        )

    def _events(self) -> Iterator[Event]:
        for workload in self.workloads:
            yield from workload.program.events if workload.program is not None else ()

    def _own_grid(self) -> Setting | None:
        """The launch grid that a legacy file gives its kernel."""
        programs = [item.program for item in self.workloads if item.program is not None]
        head = programs[0].header if programs else None
        if head is None or head.release != str(LEGACY) or head.grid in ((), (head.lnc,)):
            return None
        return Setting(value=",".join(map(str, head.grid)), origin="the file")

    def _legality(self) -> Legality:
        programs = [item for item in self.workloads if item.program is not None]
        if not programs:
            return Legality(status="not assessed", reason="there is no program")
        broken = sum(len(v.instructions) or 1 for item in programs for v in item.violations)
        return Legality(status="illegal" if broken else "legal", violations=broken)


def counts_record(program: Program, name: str, trips: Mapping[int, int] | None = None) -> CountsRecord:
    """What a workload's program consists of; `trips`: how often loops ran whose bounds are no numbers."""
    found = counts(program, ROWS, trips)
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


def orders_record(name: str, found: Orders) -> OrdersRecord:
    """What other orders of a workload's execution gave."""
    return OrdersRecord(
        workload=name,
        tried=found.tried,
        differing=tuple(
            OrderDifference(
                output=each.output,
                order=each.order,
                at=each.index,
                first=repr(each.first),
                second=repr(each.second),
                elements=each.elements,
                within_limits=each.within,
            )
            for each in found.differing
        ),
    )
