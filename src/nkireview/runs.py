"""The executions of one workload: against the reference, against baselines, with perturbed inputs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nkireview.answers import AS_DRAWN, Trial, answers_of
from nkireview.arguments import Arguments, Array, ReferenceFailed
from nkireview.checks.provenance import Provenance
from nkireview.execute import Execution, OutputValue, execute
from nkireview.isa import dtypes
from nkireview.numerics.errors import ErrorFigures, ExactFigures
from nkireview.numerics.limits import Limits as Tolerance
from nkireview.numerics.limits import limits_for
from nkireview.numerics.verdict import Verdict, judge
from nkireview.numerics.void import VoidCheck, void_checks
from nkireview.program.program import Program
from nkireview.record import Figures, OutputResult, Run
from nkireview.rules.facts import Unreached, WrongOutput
from nkireview.runner import ForkServer
from nkireview.tracing import Request, Traced


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


class Runs:
    """The executions of one workload."""

    def __init__(self, bench: Bench, traced: Traced, program: Program, lengths: Sequence[int]) -> None:
        self.bench = bench
        self.traced = traced
        self.program = program
        self.lengths = lengths
        self.limits = self._limits([1.0] * len(lengths))
        self.records: list[Run] = []
        self.faults: tuple[Any, ...] = ()
        self.wrong: list[WrongOutput] = []
        self.written: tuple[str, ...] = ()
        self.mismatch = ""
        self.constant = False
        """True where no change of any input changes the reference."""
        request = bench.request
        assert request.reference is not None
        self.answers = answers_of(traced.workload.inputs, request.reference, bench.server, request.limits)
        self._drawn: tuple[int, Trial] | None = None

    def one(self, seed: int, kind: str, *, in_contract: bool) -> None:
        """Execute for one seed and compare."""
        if self.mismatch:
            return
        name = self.traced.workload.name
        self.bench.progress(f"{name}: executing, {kind}")
        trial = self._trial(seed, kind)
        if trial is None:
            return
        arguments, wanted = trial.arguments, trial.wanted
        with self.bench.clock("execute"):
            execution = self._execute(arguments)
        if kind == AS_DRAWN and self._drawn is None:
            self._drawn = seed, trial
            self.faults = execution.faults
            aliases = {output.alias for output in self.program.outputs}
            self.written = tuple(path for path in execution.parameters if path not in aliases)
        self.mismatch = self._mismatch(wanted)
        if self.mismatch:
            self.records.append(self._record(seed, kind, in_contract, (), self.mismatch))
            return
        if kind != AS_DRAWN and not self._representable(wanted):
            self.records.append(self._unassessed(seed, kind, in_contract))
            return
        limits = self.limits if kind == AS_DRAWN else self._limits(self._amplification(seed, kind))
        with self.bench.clock("compare"):
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
                self.program.access(output.access).dtype, length, self.bench.request.policy(at), factor
            )
            for at, (output, length, factor) in enumerate(
                zip(self.program.outputs, self.lengths, amplification, strict=True)
            )
        ]

    def _amplification(self, seed: int, kind: str) -> list[float]:
        """How far the reference itself enlarges rounding on these inputs."""
        with self.bench.clock("reference"):
            return self.answers.amplification(seed, kind)

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

    def _representable(self, wanted: Sequence[Array]) -> bool:
        """True where each output has an element of the reference that its dtype can hold."""
        largest = [dtypes.BY_NAME[limits.dtype].max_finite for limits in self.limits]
        return all(bool((np.abs(value) <= most).any()) for value, most in zip(wanted, largest, strict=True))

    def _unassessed(self, seed: int, kind: str, in_contract: bool) -> Run:
        return Run(
            workload=self.traced.workload.name,
            seed=seed,
            inputs=kind,
            in_contract=in_contract,
            status="not assessed",
            reason="no element of the reference fits the dtype of the output on these inputs",
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
