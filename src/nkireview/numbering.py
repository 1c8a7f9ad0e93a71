"""The numbers of a request, for ``nkireview numerics``: each workload executed and held against its reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np

import nkireview
from nkireview.adapting import Returned
from nkireview.answers import AS_DRAWN, Answers, Trial
from nkireview.arguments import Array, Callee
from nkireview.checks.reduction import reduction_lengths
from nkireview.domain import domain
from nkireview.execute import execute
from nkireview.isa import dtypes
from nkireview.isa.table import ROWS
from nkireview.numbers import numbers
from nkireview.numbers_record import NumbersRecord
from nkireview.numerics.hostile import HOSTILE
from nkireview.numerics.limits import Limits, limits_for
from nkireview.program.program import Program
from nkireview.programs import NotJudged, program_of, subject_of
from nkireview.record import NumericsSummary
from nkireview.runner import ForkServer
from nkireview.tracing import Request, Workload

KINDS = tuple(HOSTILE)
"""The ways in which inputs can be made hostile."""
Reference = Callable[[Sequence[Array]], Sequence[Array]]
REARRANGED = "experiments on the reference: the task makes the kernel's inputs from the reference's"


@dataclass(frozen=True)
class Asked:
    """What to look at: the seed and the kind of inputs, as drawn or one of `KINDS`.

    full: other platforms, the precision of each line and the routes of values as well. shapes: which sizes of the
    inputs are right. seconds: for each diagnosis, by default ten times an execution.
    """

    seed: int = 0
    kind: str = AS_DRAWN
    full: bool = False
    shapes: bool = False
    seconds: float | None = None


def numbering(
    request: Request, server: ForkServer, asked: Asked, progress: Callable[[str], None] = lambda _: None
) -> NumericsSummary:
    """The numbers of every workload that is executed; NotJudged or ReferenceFailed says why there are none."""
    subject = subject_of(request)
    if request.reference is None:
        raise NotJudged("nothing to compare with; give --reference FILE:FUNCTION, or name a task")
    executed = [workload for workload in request.workloads if not workload.schedule_only]
    if not executed:
        raise NotJudged("the task executes none of its workloads: each is schedule_only")
    notes = [
        f"{workload.name}: not executed, as the task says (schedule_only)"
        for workload in request.workloads
        if workload.schedule_only
    ]
    return NumericsSummary(
        tool=f"nkireview {nkireview.__version__}",
        subject=subject,
        numbers=tuple(
            _Numbering(request, request.reference, workload, server, asked, progress).made()
            for workload in executed
        ),
        notes=tuple(notes),
    )


class _Numbering:
    """One workload."""

    def __init__(
        self,
        request: Request,
        reference: Callee,
        workload: Workload,
        server: ForkServer,
        asked: Asked,
        progress: Callable[[str], None],
    ) -> None:
        self.request, self.reference, self.workload = request, reference, workload
        self.server, self.asked, self.progress = server, asked, progress

    def made(self) -> NumbersRecord:
        """The numbers."""
        workload, limits = self.workload, self.request.task_limits
        answers = Answers(workload.inputs, self.reference, self.server, limits, workload.probes)
        with closing(answers):
            return self._made(answers)

    def _made(self, answers: Answers) -> NumbersRecord:
        request, workload, asked = self.request, self.workload, self.asked
        program, violations = program_of(request, workload, self.server, self.progress)
        for violation in violations:
            if violation.blocking:
                raise NotJudged(f"{workload.name}: its result has no meaning: {violation.message}")
        trial = self._trial(answers)
        buffers = [buffer for _, buffer in program.parameter_buffers]
        arguments = dict(zip(buffers, trial.arguments.arrays(), strict=True))
        self.progress(f"{workload.name}: diagnosing {len(program):,} instructions")
        placed = self._placed(program, arguments, trial.wanted)
        wanted = trial.wanted if placed is None else placed(trial.wanted)
        try:
            found = numbers(
                program,
                arguments,
                wanted,
                workload=workload.name,
                seed=asked.seed,
                inputs=asked.kind,
                reference=_placing(answers.reference(trial), placed),
                observed=answers.observed(trial),
                limits=self._own_limits(program),
                seconds=asked.seconds,
                full=asked.full,
                rounded=bool(trial.note),
            )
        except ValueError as error:
            raise NotJudged(f"{workload.name}: {error}") from None
        skipped = [*found.skipped]
        if trial.given is not None and found.verdict == "defect" and not found.causes:
            skipped.append(REARRANGED)
        skipped += [f"legality: {violation.message}" for violation in violations]
        if trial.note:
            skipped.append(f"the reference computed {trial.note}")
        return found.model_copy(update={"skipped": tuple(skipped), "domain": self._domain()})

    def _trial(self, answers: Answers) -> Trial:
        """Inputs and the reference's answer."""
        self.progress(f"{self.workload.name}: calling the reference")
        found = answers.trial(self.asked.seed, self.asked.kind)
        if found is None:
            raise NotJudged(
                f"{self.workload.name}: none of its inputs can be made hostile in the way {self.asked.kind!r} "
                f"({HOSTILE[self.asked.kind].sentence})"
            )
        return found

    def _own_limits(self, program: Program) -> list[Limits] | None:
        """The task's own tolerance of each output; None where it sets none."""
        policies = [self.request.policy(at) for at in range(len(program.outputs))]
        if not any(policy is not None and policy.sets_figures for policy in policies):
            return None
        lengths = reduction_lengths(program, ROWS)
        names = [program.access(output.access).dtype for output in program.outputs]
        return [
            limits_for(name, length, policy)
            for name, length, policy in zip(names, lengths, policies, strict=True)
        ]

    def _placed(
        self, program: Program, arguments: dict[int, Array], wanted: Sequence[Array]
    ) -> _Placed | None:
        """How results of the reference lie in the kernel's outputs; None where they lie as they are."""
        if self.request.returned is None:
            return None
        returned = Returned(self.request.returned, self.server, self.request.task_limits)
        shapes = [
            tuple(count for _, count in program.access(output.access).pattern) for output in program.outputs
        ]
        found = _Placed.by(lambda labels: returned(labels, wanted), shapes)
        if found is None:
            raise NotJudged(
                f"{self.workload.name}: {self.request.returned} computes with the kernel's outputs, so that a "
                "difference cannot be followed back to them; expected a function that reshapes, transposes or slices"
            )
        return found.over(program, arguments)

    def _domain(self) -> tuple[str, ...]:
        if not self.asked.shapes:
            return ()
        found = domain(self.request, self.workload, self.server, seed=self.asked.seed, progress=self.progress)
        return (*found.sentences, *found.notes)


@dataclass(frozen=True, eq=False)
class _Placed:
    """Where elements of what is compared lie among all elements of the kernel's outputs.

    rest: what the outputs hold elsewhere, float64, which is compared with itself.
    """

    positions: Sequence[Array]
    shapes: Sequence[tuple[int, ...]]
    rest: Array | None = None

    @classmethod
    def by(
        cls, shown: Callable[[Sequence[Array]], Sequence[Array]], shapes: Sequence[tuple[int, ...]]
    ) -> _Placed | None:
        """Found by what a function of the outputs makes of numbered elements; None where it does not just move them."""
        total = sum(int(np.prod(shape)) for shape in shapes)
        forward = np.arange(total, dtype=np.float64)
        first = [np.asarray(each, np.float64) for each in shown(_split(forward, shapes))]
        second = [np.asarray(each, np.float64) for each in shown(_split(total - 1 - forward, shapes))]
        moved = len(first) == len(second) and all(
            one.shape == other.shape and np.array_equal(one + other, np.full(one.shape, total - 1.0))
            for one, other in zip(first, second, strict=True)
        )
        flat = np.concatenate([one.reshape(-1) for one in first]) if first and moved else np.empty(0)
        if not flat.size or np.unique(flat).size != flat.size or not np.isin(flat, forward).all():
            return None
        return cls([one.astype(np.int64) for one in first], shapes)

    def over(self, program: Program, arguments: dict[int, Array]) -> _Placed:
        """With the kernel's own results where nothing is compared."""
        total = sum(int(np.prod(shape)) for shape in self.shapes)
        if sum(each.size for each in self.positions) == total:
            return self
        outputs = execute(program, arguments).outputs
        values = [
            dtypes.to_compute(
                output.values, dtypes.BY_NAME[program.access(each.access).dtype], np.dtype(np.float64)
            ).reshape(-1)
            for each, output in zip(program.outputs, outputs, strict=True)
        ]
        return _Placed(self.positions, self.shapes, np.concatenate(values))

    def __call__(self, wanted: Sequence[Array]) -> list[Array]:
        """Results of the reference as the kernel's outputs; ValueError where their shapes are others."""
        if [each.shape for each in wanted] != [each.shape for each in self.positions]:
            shapes = ", ".join(str(list(each.shape)) for each in self.positions)
            raise ValueError(f"the kernel's outputs give {shapes}, the reference's shapes are others")
        total = sum(int(np.prod(shape)) for shape in self.shapes)
        flat = np.zeros(total) if self.rest is None else self.rest.copy()
        for at, each in zip(self.positions, wanted, strict=True):
            flat[at.reshape(-1)] = np.asarray(each, np.float64).reshape(-1)
        return _split(flat, self.shapes)


def _placing(reference: Reference | None, placed: _Placed | None) -> Reference | None:
    """A reference whose results lie as the kernel's outputs do."""
    if reference is None or placed is None:
        return reference
    return lambda arrays: placed(reference(arrays))


def _split(flat: Array, shapes: Sequence[tuple[int, ...]]) -> list[Any]:
    """Consecutive parts of a row of numbers, each in a shape."""
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
    return [part.reshape(shape) for part, shape in zip(np.split(flat, ends[:-1]), shapes, strict=True)]
