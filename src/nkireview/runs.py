"""The executions of one workload: against the reference, against baselines, with perturbed inputs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from nkireview.adapting import Returned
from nkireview.answers import AS_DRAWN, Kept, Trial, answers_of
from nkireview.arguments import Arguments, Array, ReferenceFailed
from nkireview.checks.own_tests import OwnTests
from nkireview.checks.provenance import Provenance
from nkireview.checks.reduction import reduction_lengths
from nkireview.checks.stored import Stored, stored_roundings
from nkireview.diagnosis import Derivation
from nkireview.diagnosis.pace import nominal, samples
from nkireview.execute import Execution, OutputValue, Rounding, execute
from nkireview.isa import dtypes
from nkireview.isa.table import ROWS
from nkireview.mutants import MOST as MOST_MUTANTS
from nkireview.mutants import evidence
from nkireview.numbers import numbers
from nkireview.numbers_record import NumbersRecord
from nkireview.numerics.errors import ErrorFigures, ExactFigures, ShapeMismatch
from nkireview.numerics.hostile import ALWAYS, hostile
from nkireview.numerics.limits import Limits as Tolerance
from nkireview.numerics.limits import limits_for, table
from nkireview.numerics.stored import Roundings, explains, widened
from nkireview.numerics.verdict import Verdict, judge
from nkireview.numerics.void import VoidCheck, void_checks
from nkireview.program.program import Program
from nkireview.program.storage import Storage
from nkireview.record import Figures, OutputResult, Run, StoredRoundings
from nkireview.replays import MOST, Replays, differences
from nkireview.rules.facts import Difference, Orders, OwnEvidence, RoundedOutput, Unreached, WrongOutput
from nkireview.runner import ForkServer
from nkireview.tracing import Request, Traced

LONG, SHORT = 1.0, 0.25
"""Seconds of an execution from which on a right kernel is not looked at further, and below which mutants are run."""
MUTATED = 2.0
"""Seconds over which mutants are executed once each, for an author's tests."""
EXECUTIONS = 8.0
"""Times an execution that may be spent on what rounding explains of a right kernel, and of one that is graded."""
RIGHT, GRADED = 0.2, 0.5
"""Seconds that may be spent on it in any case: on a right kernel, and on a wrong one among many."""


@dataclass
class Bench:
    """What every step of a review shares: the request, the server, progress, and seconds by kind of work."""

    request: Request
    server: ForkServer
    progress: Callable[[str], None]
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def clock(self, name: str) -> Iterator[None]:
        """Add the time spent inside to a kind of work."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - started


@dataclass(frozen=True)
class Granted:
    """What an output outside its ordinary limits is judged by instead, and its errors without any rounding."""

    roundings: Roundings
    limits: Tolerance
    verdict: Verdict
    unrounded: ErrorFigures


class Runs:
    """The executions of one workload."""

    def __init__(self, bench: Bench, traced: Traced, program: Program, lengths: Sequence[int]) -> None:
        self.bench = bench
        self.traced = traced
        self.program = program
        self.lengths = lengths
        self.trips: dict[int, int] = {}
        """The most passes, in any execution, of each loop whose bounds are no numbers."""
        self.limits = self._limits([1.0] * len(lengths))
        self.records: list[Run] = []
        self.faults: tuple[Any, ...] = ()
        self.wrong: list[WrongOutput] = []
        self.rounded: list[RoundedOutput] = []
        self.written: tuple[str, ...] = ()
        self.mismatch = ""
        self.constant = False
        """True where no change of any input changes the reference."""
        request = bench.request
        assert request.reference is not None
        workload, limits = traced.workload, request.task_limits
        self.answers = answers_of(workload.inputs, request.reference, bench.server, limits, workload.probes)
        returned = request.returned
        self._returned = Returned(returned, bench.server, limits) if returned else None
        self.notes: dict[str, None] = {}
        """How the reference computed, where that is not what was asked."""
        self._many = isinstance(self.answers, Kept)
        """One of many submissions: what takes long and judges nothing is left out."""
        self._failed: tuple[int, str] | None = None
        """Seed and kind of the first inputs on which an output is wrong."""
        self._took = 0.0
        self._drawn: tuple[int, Trial] | None = None
        self._ordinary: Execution | None = None

    def one(self, seed: int, kind: str, *, in_contract: bool) -> None:
        """Execute for one seed and compare."""
        if self.mismatch:
            return
        name = self.traced.workload.name
        self.bench.progress(f"{name}: executing, {kind}")
        trial = self._trial(seed, kind)
        if trial is None:
            return
        wanted = trial.wanted
        if trial.note:
            self.notes.setdefault(f"{name}: the reference computed {trial.note}")
        started = time.monotonic()
        with self.bench.clock("execute"):
            execution = self._execute(trial.arguments)
        self._took = max(self._took, time.monotonic() - started)
        self._learn(execution.trips)
        if kind == AS_DRAWN and self._drawn is None:
            self._drawn, self._ordinary = (seed, trial), execution
            self.faults = execution.faults
            aliases = {output.alias for output in self.program.outputs}
            self.written = tuple(path for path in execution.parameters if path not in aliases)
        execution = self._adapted(execution, wanted)
        self.mismatch = self.mismatch or self._mismatch(execution, wanted)
        if self.mismatch:
            self.records.append(self._record(seed, kind, in_contract, (), self.mismatch))
            return
        asked = in_contract or kind in ALWAYS
        if not self._representable(wanted, all_of=not asked):
            self.records.append(self._unassessed(seed, kind, in_contract, all_of=not asked))
            return
        limits, verdicts = self._judged(execution, wanted, seed, kind)
        granted = self._granted(execution, trial, limits, verdicts)
        explained = self._explained(execution, trial, verdicts, granted)
        results = tuple(
            _result(output, limits[at], verdicts[at], granted.get(at), explained.get(at))
            for at, output in enumerate(execution.outputs)
        )
        if self._failed is None and any(result.status == "wrong" for result in results):
            self._failed = seed, kind
        for at, result in enumerate(results):
            if result.status == "wrong":
                self.wrong.append(WrongOutput(result.name, result.reason, seed, kind, in_contract))
            elif result.stored is not None:
                self.rounded.append(self._rounded(at, result, verdicts[at], seed, kind, in_contract))
        self.records.append(self._record(seed, kind, in_contract, results, ""))

    @property
    def executed(self) -> int:
        """Instructions that were executed on the first inputs as drawn; 0 where nothing was."""
        return self._ordinary.executed if self._ordinary is not None else 0

    def allows(self, kind: str) -> bool:
        """True where the first inputs as drawn can be made hostile in one way."""
        arrays = self._drawn[1].asked.arrays() if self._drawn is not None else []
        return hostile({str(at): array for at, array in enumerate(arrays)}, kind) is not None

    def orders(self, stored: Storage, racing: bool) -> Orders | None:
        """What other orders give on the first inputs as drawn; None where the program is too long, or has no result.

        racing: cores are known to use a place without an order.
        """
        ordinary = self._ordinary
        if self._drawn is None or ordinary is None or self.mismatch:
            return None
        seed, trial = self._drawn
        with self.bench.clock("orders"):
            replays = Replays(self.program, stored, racing, seed)
            if replays.orders and ordinary.executed > MOST:
                self.notes.setdefault(
                    f"{self.traced.workload.name}: other orders of execution: {ordinary.executed:,} instructions were "
                    f"executed, more than {MOST:,}"
                )
                return None
        found: list[Difference] = []
        passed: list[bool] | None = None
        for order in replays.orders:
            self.bench.progress(f"{self.traced.workload.name}: executing, {order.name}")
            with self.bench.clock("orders"):
                other = replays.execution(order, self._given(trial.arguments))
                differing = dict(differences(ordinary, other, order.name))
            if differing:
                passed = self._passed(ordinary, trial, seed) if passed is None else passed
                within = self._passed(other, trial, seed)
                found += [
                    replace(
                        each,
                        within=passed[at] and within[at],
                        places=replays.places((ordinary.outputs[at], other.outputs[at])),
                    )
                    for at, each in differing.items()
                ]
        return Orders(tuple(order.name for order in replays.orders), tuple(found))

    def _passed(self, execution: Execution, trial: Trial, seed: int) -> list[bool]:
        """Which outputs keep within the limits of inputs as drawn."""
        execution = self._adapted(execution, trial.wanted)
        if self.mismatch:
            return [False] * len(execution.outputs)
        limits, verdicts = self._judged(execution, trial.wanted, seed, AS_DRAWN)
        granted = self._granted(execution, trial, limits, verdicts)
        explained = self._explained(execution, trial, verdicts, granted)
        return [verdict.passed or at in granted or at in explained for at, verdict in enumerate(verdicts)]

    def _judged(
        self, execution: Execution, wanted: Sequence[Array], seed: int, kind: str
    ) -> tuple[list[Tolerance], list[Verdict]]:
        """Limits and verdicts of all outputs.

        On inputs as drawn it is asked how far the reference enlarges rounding only where an output exceeds its limits.
        """
        if kind == AS_DRAWN:
            verdicts = self._compared(execution, wanted, self.limits)
            if all(verdict.passed for verdict in verdicts):
                return self.limits, verdicts
        factors = self._amplification(seed, kind)
        if kind == AS_DRAWN:
            factors = [min(factor, table().drawn) for factor in factors]
        limits = self._limits(factors)
        return limits, self._compared(execution, wanted, limits)

    def _compared(
        self, execution: Execution, wanted: Sequence[Array], limits: Sequence[Tolerance]
    ) -> list[Verdict]:
        with self.bench.clock("compare"):
            return [
                judge(output.values, value, limit)
                for output, value, limit in zip(execution.outputs, wanted, limits, strict=True)
            ]

    def _learn(self, trips: Mapping[int, int]) -> None:
        """A sum over the passes of a loop is as long as the loop turns out to be."""
        longer = {loop: count for loop, count in trips.items() if count > self.trips.get(loop, 0)}
        if longer:
            self.trips.update(longer)
            self.lengths = reduction_lengths(self.program, ROWS, self.trips)
            self.limits = self._limits([1.0] * len(self.lengths))

    def void(self) -> VoidCheck | None:
        """Which baselines would pass, and which showed nothing."""
        if self._drawn is None:
            return None
        seed, trial = self._drawn
        wanted = trial.wanted
        at = {output.name: index for index, output in enumerate(self.program.outputs)}
        inputs = dict(zip(self._paths(), trial.arguments.arrays(), strict=True))
        return self.answers.void(
            repr((seed, tuple(at), tuple(inputs), tuple(self.limits))),
            lambda: void_checks(
                dict(zip(at, wanted, strict=True)),
                inputs,
                lambda name, candidate: judge(candidate, wanted[at[name]], self.limits[at[name]]),
            ),
        )

    def unreached(self, paths: Provenance, seed: int) -> Iterator[Unreached]:
        """Inputs that the reference needs and the Program does not carry to the output."""
        if self._drawn is None:
            return
        seen: set[tuple[str, int]] = set()
        named = self._paths()
        with self.bench.clock("reference"):
            influences = self.answers.influences(seed)
        self.constant = bool(influences) and not any(influence.changed for influence in influences)
        for influence in influences:
            path, output = named[int(influence.input_path)], influence.output_index
            if not influence.changed or (path, output) in seen or self._aliased(path):
                continue
            if not paths.covers(path, output, influence.region.slices):
                seen.add((path, output))
                yield Unreached(path, self.program.outputs[output].name, f"the {influence.region.name}")

    def _aliased(self, path: str) -> bool:
        return any(output.alias == path for output in self.program.outputs)

    def _paths(self) -> list[str]:
        return [path for path, _ in self.program.parameter_buffers]

    def _trial(self, seed: int, kind: str) -> Trial | None:
        """Inputs and the reference's answer to them."""
        with self.bench.clock("reference"):
            trial = self.answers.trial(seed, kind)
        if trial is not None and not trial.arguments.same_structure(self.traced.structure):
            raise ReferenceFailed(
                f"workload {self.traced.workload.name}: shapes, dtypes or scalars depend on the seed; "
                "only values may"
            )
        return trial

    def _execute(self, arguments: Arguments, rounding: Rounding = "storage") -> Execution:
        given = self._given(arguments)
        if rounding == "off":
            return execute(self.program, given, compute=np.float64, rounding=rounding)
        return execute(self.program, given)

    def _given(self, arguments: Arguments) -> dict[int, Array]:
        """The array of each parameter's buffer."""
        buffers = (buffer for _, buffer in self.program.parameter_buffers)
        return dict(zip(buffers, arguments.arrays(), strict=True))

    def _adapted(self, execution: Execution, wanted: Sequence[Array]) -> Execution:
        """The execution with its outputs as the task's function returns them; what it refuses is a mismatch."""
        if self._returned is None:
            return execution
        values = [output.values for output in execution.outputs]
        try:
            with self.bench.clock("compare"):
                made = self._returned(values, wanted)
        except ReferenceFailed as error:
            shapes = ", ".join(str(list(value.shape)) for value in values)
            self.mismatch = f"the kernel returns {shapes}, of which nothing can be compared: {error}"
            return execution
        if len(made) != len(values):
            self.mismatch = f"the kernel returns {len(values)} tensors, of which {len(made)} can be compared"
            return execution
        outputs = zip(execution.outputs, made, strict=True)
        return replace(execution, outputs=tuple(replace(old, values=new) for old, new in outputs))

    def _mismatch(self, execution: Execution, wanted: Sequence[Array]) -> str:
        outputs = execution.outputs
        if len(outputs) != len(wanted):
            return f"the kernel returns {len(outputs)} tensors, the reference {len(wanted)}"
        for output, value in zip(outputs, wanted, strict=True):
            shape = output.values.shape
            if shape != value.shape:
                return f"output {output.name} has shape {list(shape)}, the reference's {list(value.shape)}"
        return ""

    def _limits(self, amplification: Sequence[float]) -> list[Tolerance]:
        return [
            limits_for(
                self.program.access(output.access).dtype, length, self.bench.request.policy(at), factor
            )
            for at, (output, length, factor) in enumerate(
                zip(self.program.outputs, self.lengths, amplification, strict=True)
            )
        ]

    def _amplification(self, seed: int, kind: str) -> list[float]:
        """How far the reference itself enlarges rounding on these inputs."""
        policies = [self.bench.request.policy(at) for at in range(len(self.program.outputs))]
        if all(policy is not None and policy.sets_all_figures for policy in policies):
            return [1.0] * len(policies)  # no limit depends on it
        with self.bench.clock("reference"):
            return self.answers.amplification(seed, kind)

    @cached_property
    def _stored(self) -> tuple[Stored, ...]:
        """The roundings on the way to each output; asked for only where one exceeds its limits."""
        return stored_roundings(self.program, ROWS, self.trips)

    def _granted(
        self, execution: Execution, trial: Trial, limits: Sequence[Tolerance], verdicts: Sequence[Verdict]
    ) -> dict[int, Granted]:
        """The outputs, by position, that exceed their limits by their stored roundings alone.

        The program is executed once more, without rounding, where some output keeps within the wider limits.
        """
        within: dict[int, tuple[Roundings, Tolerance, Verdict]] = {}
        with self.bench.clock("compare"):
            for at, verdict in enumerate(verdicts):
                roundings = self._roundings(at) if execution.defined and not verdict.passed else None
                limit = widened(limits[at], trial.wanted[at], roundings) if roundings else None
                if roundings and limit:
                    again = judge(execution.outputs[at].values, trial.wanted[at], limit)
                    if again.passed:
                        within[at] = roundings, limit, again
        if not within:
            return {}
        with self.bench.clock("execute"):
            exact = self._adapted(self._execute(trial.arguments, rounding="off"), trial.wanted)
        granted = {}
        for at, (roundings, limit, again) in within.items():
            unrounded = explains(exact.outputs[at].values, trial.wanted[at], limits[at])
            if unrounded.passed and exact.defined and isinstance(unrounded.comparison, ErrorFigures):
                granted[at] = Granted(roundings, limit, again, unrounded.comparison)
        return granted

    @cached_property
    def _derivation(self) -> Derivation:
        """What derives tolerances."""
        return Derivation.of_program(self.program)

    def _explained(
        self,
        execution: Execution,
        trial: Trial,
        verdicts: Sequence[Verdict],
        granted: Mapping[int, Granted],
    ) -> dict[int, float]:
        """The outputs, by position, that exceed their limits by what the arithmetic of the Program explains.

        With the most that an element uses of it. Never where the task has its own tolerance, or shapes outputs anew.
        """
        failed = [at for at, verdict in enumerate(verdicts) if not verdict.passed and at not in granted]
        policies = [self.bench.request.policy(at) for at in failed]
        own = any(policy is not None and policy.sets_figures for policy in policies)
        took = nominal(self.program)
        if not failed or own or not execution.defined or self._returned is not None or took > LONG:
            return {}
        if any(isinstance(verdicts[at].comparison, ShapeMismatch) for at in failed):
            return {}
        with self.bench.clock("numbers"):
            given = self._given(trial.arguments)
            wanted = [np.asarray(each, np.float64) for each in trial.wanted]
            # a verdict must not depend on the machine
            most = samples(max(EXECUTIONS * took, RIGHT), took)
            found = self._derivation.tolerances(given, wanted, samples=most)
            used = {}
            for at in failed:
                dtype = dtypes.BY_NAME[found[at].dtype]
                have = dtypes.to_compute(execution.outputs[at].values, dtype, np.float64)
                use = found[at].use(np.asarray(have, np.float64), np.asarray(trial.wanted[at], np.float64))
                used[at] = float(use.max(initial=0.0))
        return {at: share for at, share in used.items() if share <= 1}

    def numbers(self) -> Iterator[NumbersRecord]:
        """The numbers on the first inputs as drawn, and on the first others on which an output is wrong.

        None where there is nothing to compare, and none of a right kernel whose execution takes long.
        """
        name = self.traced.workload.name
        if self.mismatch or self._drawn is None:
            return
        if self._returned is not None:
            self.notes.setdefault(f"{name}: what rounding explains: the task shapes the outputs anew")
            return
        if all(record.status == "not assessed" for record in self.records):
            return
        drawn = self._drawn[0], AS_DRAWN
        if self._failed == drawn or (self._took <= LONG and not self._many):
            yield self._numbers(*drawn)
        elif not self._many:
            self.notes.setdefault(f"{name}: what rounding explains: an execution takes {self._took:.1f} s")
        if self._failed is not None and self._failed != drawn:
            yield self._numbers(*self._failed)

    def own_evidence(self, tests: OwnTests) -> OwnEvidence | None:
        """What the author's own tests would notice of mutants of a right kernel; None where there is none to mutate."""
        if self._drawn is None or self._ordinary is None or self.mismatch or self._failed is not None:
            return None
        if self._many:
            return None
        trial = self._drawn[1]
        most = int(min(MOST_MUTANTS, MUTATED / max(self._took, 1e-3)))
        wanted = [output.values for output in self._ordinary.outputs]
        with self.bench.clock("mutants"):
            return evidence(tests, self.program, self._given(trial.arguments), wanted, most=most)

    def _numbers(self, seed: int, kind: str) -> NumbersRecord:
        name, failed = self.traced.workload.name, self._failed == (seed, kind)
        self.bench.progress(f"{name}: what rounding explains, {kind}")
        trial = self._trial(seed, kind)
        assert trial is not None  # it was executed
        policies = [self.bench.request.policy(at) for at in range(len(self.program.outputs))]
        own = any(policy is not None and policy.sets_figures for policy in policies)
        least, took = (GRADED, nominal(self.program)) if self._many else (RIGHT, self._took)
        with self.bench.clock("numbers"):
            return numbers(
                self.program,
                self._given(trial.arguments),
                trial.wanted,
                workload=name,
                seed=seed,
                inputs=kind,
                reference=self.answers.reference(trial),
                observed=self.answers.observed(trial),
                rounded=bool(trial.note),
                derivation=self._derivation,
                limits=self.limits if own and not failed and self._took < SHORT else None,
                seconds=None if failed and not self._many else max(EXECUTIONS * took, least),
                repeatable=self._many,
            )

    def _roundings(self, at: int) -> Roundings | None:
        """Those of an output's intermediates; None where there are none, or the task has its own tolerance."""
        policy = self.bench.request.policy(at)
        if policy is not None and policy.sets_figures:
            return None
        found = self._stored[at]
        return Roundings(found.count, found.dtype, found.terms) if found.known and found.count else None

    def _rounded(
        self, at: int, result: OutputResult, ordinary: Verdict, seed: int, kind: str, in_contract: bool
    ) -> RoundedOutput:
        figures, held = ordinary.comparison, result.stored
        assert isinstance(figures, ErrorFigures) and figures.use is not None and held is not None
        columns = self.program.columns
        places = (
            self.program.place_text(int(columns.place[index])) for index in self._stored[at].instructions
        )
        return RoundedOutput(
            output=result.name,
            seed=seed,
            inputs=kind,
            in_contract=in_contract,
            over=held.over,
            elements=figures.elements,
            rms=figures.use.rms,
            roundings=held.count,
            dtype=held.dtype,
            places=tuple(dict.fromkeys(place for place in places if place)),
        )

    def _representable(self, wanted: Sequence[Array], *, all_of: bool) -> bool:
        """True where each output has an element of the reference that its dtype can hold; `all_of`: nothing else."""
        largest = [dtypes.BY_NAME[limits.dtype].max_finite for limits in self.limits]
        held = [np.abs(value) <= most for value, most in zip(wanted, largest, strict=True)]
        return all(bool(each.all() if all_of else each.any()) for each in held)

    def _unassessed(self, seed: int, kind: str, in_contract: bool, *, all_of: bool) -> Run:
        what = "an element of the reference does not fit" if all_of else "no element of the reference fits"
        return Run(
            workload=self.traced.workload.name,
            seed=seed,
            inputs=kind,
            in_contract=in_contract,
            status="not assessed",
            reason=f"{what} the dtype of the output on these inputs",
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


def _result(
    output: OutputValue,
    limits: Tolerance,
    verdict: Verdict,
    granted: Granted | None,
    explained: float | None,
) -> OutputResult:
    stored = None
    if granted is not None:
        figures = verdict.comparison
        assert isinstance(figures, ErrorFigures) and figures.use is not None
        stored = StoredRoundings(
            count=granted.roundings.count,
            dtype=granted.roundings.dtype,
            over=figures.use.over,
            limits=_limits(granted.limits),
            unrounded_scaled_max=granted.unrounded.scaled_max,
            unrounded_rms_ratio=granted.unrounded.rms_ratio,
        )
        verdict = granted.verdict
    return OutputResult(
        name=output.name,
        dtype=limits.dtype,
        shape=output.values.shape,
        status="correct" if verdict.passed or explained is not None else "wrong",
        figures=_figures(verdict),
        limits=_limits(limits),
        stored=stored,
        explained=explained,
        reason="" if explained is not None else verdict.reason,
    )


def _limits(limits: Tolerance) -> dict[str, float]:
    return {"rtol": limits.rtol, "atol": limits.atol, "rms": limits.rms, "absolute": limits.absolute}


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
