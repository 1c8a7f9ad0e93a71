"""The executions of one workload: against the reference, against baselines, with perturbed inputs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nkireview.arguments import Arguments, Array, ReferenceFailed, call
from nkireview.checks.provenance import Provenance
from nkireview.execute import Execution, OutputValue, execute
from nkireview.isa import dtypes
from nkireview.numerics.errors import ErrorFigures, ExactFigures
from nkireview.numerics.inputs import hostile
from nkireview.numerics.limits import Limits as Tolerance
from nkireview.numerics.limits import limits_for
from nkireview.numerics.sensitivity import conditioning, probe
from nkireview.numerics.verdict import Verdict, judge
from nkireview.numerics.void import VoidCheck, void_checks
from nkireview.program.program import Program
from nkireview.record import Figures, OutputResult, Run
from nkireview.rules.facts import Unreached, WrongOutput
from nkireview.runner import ForkServer
from nkireview.runner.tree import leaves
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
        self._drawn: tuple[Arguments, list[Array]] | None = None

    def one(self, seed: int, kind: str, *, in_contract: bool) -> None:
        """Execute for one seed and compare."""
        if self.mismatch:
            return
        name = self.traced.workload.name
        self.bench.progress(f"{name}: executing, {kind}")
        arguments = self._arguments(seed, kind)
        if arguments is None:
            return
        wanted = self._reference(arguments)
        with self.bench.clock("execute"):
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
        if kind != "as drawn" and not self._representable(wanted):
            self.records.append(self._unassessed(seed, kind, in_contract))
            return
        with self.bench.clock("compare"):
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
        influences = probe(lambda arrays: self._reference(arguments.replaced(arrays)), named, seed)
        self.constant = bool(influences) and not any(influence.changed for influence in influences)
        for influence in influences:
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
        bench, workload = self.bench, self.traced.workload
        arguments = workload.inputs.make(seed, bench.server, bench.request.limits)
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
        request = self.bench.request
        assert request.reference is not None
        with self.bench.clock("reference"):
            made = call(self.bench.server, request.limits, request.reference, arguments, float64=True)
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
                self.program.access(output.access).dtype, length, self.bench.request.policy(at), factor
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
