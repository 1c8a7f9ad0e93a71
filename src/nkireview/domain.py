"""The shape domain of a kernel: for which sizes of its inputs it is right, refuses, or is silently wrong.

Each size that occurs in the inputs is varied around the edges of tiles while the others stay: the kernel is traced with
inputs of that shape, verified, executed and compared with the reference, as in a review. Equal sizes move together.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from math import prod

from nkireview.adapting import Adapted
from nkireview.answers import AS_DRAWN, Answers
from nkireview.arguments import ArgumentError, Drawn, InputSource, ReferenceFailed
from nkireview.checks.reduction import reduction_lengths
from nkireview.isa.table import ROWS
from nkireview.numerics.inputs import Distribution, InputError, Scalar, Spec
from nkireview.program.program import Program
from nkireview.program.verify import verify
from nkireview.runner import ForkServer
from nkireview.runs import Bench, Runs
from nkireview.tracing import Request, Traced, Workload, trace

EDGES = (129, 1, 127, 128, 513, 511, 512, 257, 255, 256)
"""Sizes that are tried besides those next to and twice the workload's own, the most telling first."""
MULTIPLES = (512, 256, 128, 64, 32, 16, 8, 4, 2)
TRACES = 24
BUDGET_S = 60.0
WALL_S = 10.0
"""Seconds for the trace of one size, where the request does not allow less."""
ELEMENTS = 1 << 24
"""Elements of all inputs together up to which a size is tried."""
SHOWN = 160
"""Characters of a message that are shown in a sentence."""


class Outcome(Enum):
    """What became of one size."""

    right = "right"
    accepted = "accepted, not compared"
    asserted = "refused by an assert"
    refused = "refused by the language"
    wrong = "silently wrong"
    raised = "raises an error"
    hangs = "hangs"
    unknown = "not known"


REFUSALS = (Outcome.asserted, Outcome.refused)
ACCEPTED = (Outcome.right, Outcome.accepted)
_STOPPED = frozenset({"timeout", "cpu"})


@dataclass(frozen=True)
class Tried:
    """One size and what became of it; message: what the kernel, the language or the comparison said."""

    size: int
    outcome: Outcome
    message: str = ""


@dataclass(frozen=True)
class Dimension:
    """The axes of inputs that have one size, and the sizes that were tried for them, in order of size.

    axes: (input, axis), in order. label: how they are called. base: the size in the workload.
    """

    label: str
    base: int
    axes: tuple[tuple[str, int], ...]
    tried: tuple[Tried, ...]

    @property
    def accepted(self) -> tuple[int, ...]:
        """The sizes at which the kernel is right, or accepted where nothing is compared."""
        return tuple(each.size for each in self.tried if each.outcome in ACCEPTED)

    @property
    def wrong(self) -> tuple[int, ...]:
        """The sizes at which the kernel runs and is wrong."""
        return tuple(each.size for each in self.tried if each.outcome is Outcome.wrong)

    @property
    def sentence(self) -> str:
        """What was found, with what is refused and how."""
        parts = [_accepted(self)]
        for outcome in (*REFUSALS, Outcome.wrong, Outcome.raised, Outcome.hangs, Outcome.unknown):
            found = [each for each in self.tried if each.outcome is outcome]
            if not found:
                continue
            sizes = _listed([each.size for each in found])
            verb = (
                f"{'is' if len(found) == 1 else 'are'} "
                if outcome not in (Outcome.raised, Outcome.hangs)
                else ""
            )
            said = outcome.value if len(found) == 1 or verb else _PLURAL[outcome]
            message = next((each.message for each in found if each.message), "")
            parts.append(f"{sizes} {verb}{said}" + (f" ({_short(message)})" if message else ""))
        return f"{self.label}: {'; '.join(parts)}"


_PLURAL: Mapping[Outcome, str] = {Outcome.raised: "raise an error", Outcome.hangs: "hang"}


@dataclass(frozen=True)
class DomainRecord:
    """The shape domain of a workload: a Dimension for each size that its inputs have.

    compared: whether there was a reference. traces: kernels traced. notes: what was not tried, and why.
    """

    workload: str
    dimensions: tuple[Dimension, ...]
    compared: bool
    traces: int
    notes: tuple[str, ...] = ()

    @property
    def sentences(self) -> tuple[str, ...]:
        """One for each dimension."""
        return tuple(dimension.sentence for dimension in self.dimensions)

    @property
    def silently_wrong(self) -> bool:
        """True where some size is accepted and gives wrong results."""
        return any(dimension.wrong for dimension in self.dimensions)


def domain(
    request: Request,
    workload: Workload,
    server: ForkServer,
    *,
    seed: int = 0,
    traces: int = TRACES,
    budget_s: float = BUDGET_S,
    progress: Callable[[str], None] = lambda _: None,
) -> DomainRecord:
    """Try sizes around tile edges for each dimension of a workload's inputs.

    traces: how many sizes are tried at most, shared by the dimensions; budget_s: seconds after which no other is begun.
    A file that `checks.integrity.forbidden` bars must not be given. Raise ValueError where a limit is not positive.
    """
    if traces < 1 or budget_s <= 0:
        raise ValueError(f"traces={traces} and budget_s={budget_s:g}: expected both above 0")
    compared = request.reference is not None and not workload.schedule_only
    specs = _specs(workload.inputs)
    if specs is None:
        note = "its inputs are made by a function: their shapes cannot be varied (give the inputs one by one)"
        return DomainRecord(workload.name, (), compared, 0, (note,))
    limits = replace(request.limits, wall_s=min(request.limits.wall_s, WALL_S))
    sweep = _Sweep(replace(request, limits=limits), workload, server, compared, seed)
    symbols, began = _symbols(specs), time.monotonic()
    tried: dict[int, list[Tried]] = {size: [] for size in symbols}
    notes: list[str] = []
    base: Tried | None = None
    for size, other in _order(symbols, traces):
        called = f"{_label(symbols[size], specs)} of {other}"
        if other == size:  # the workload itself stands for the own size of every dimension
            base = replace(base, size=size) if base else sweep.outcome(size, specs)
            tried[size].append(base)
            continue
        if time.monotonic() - began > budget_s:
            notes.append(f"only {sweep.traces} sizes were tried within {budget_s:g} s")
            break
        try:
            resized = _resized(specs, size, other)
        except InputError as error:
            notes.append(f"{called}: {error}")
            continue
        elements = sum(prod(item.shape) for item in resized.values() if isinstance(item, Spec))
        if elements > ELEMENTS:
            notes.append(f"{called}: inputs of {elements:,} elements, more than {ELEMENTS:,}, are not tried")
            continue
        progress(f"{workload.name}: {called}")
        tried[size].append(sweep.outcome(other, resized))
    dimensions = tuple(
        Dimension(
            _label(axes, specs), size, tuple(axes), tuple(sorted(tried[size], key=lambda each: each.size))
        )
        for size, axes in symbols.items()
    )
    return DomainRecord(workload.name, dimensions, compared, sweep.traces, tuple(notes))


Inputs = Mapping[str, Spec | Scalar]


def _specs(inputs: InputSource) -> Inputs | None:
    """What the inputs are drawn from; None where a function makes them."""
    inner = inputs.inputs if isinstance(inputs, Adapted) else inputs
    return inner.inputs if isinstance(inner, Drawn) else None


def _symbols(specs: Inputs) -> dict[int, list[tuple[str, int]]]:
    """The axes of each size above 1; without any, those of size 1."""
    found: dict[int, list[tuple[str, int]]] = {}
    for name, item in specs.items():
        for axis, size in enumerate(item.shape if isinstance(item, Spec) else ()):
            found.setdefault(size, []).append((name, axis))
    return {size: axes for size, axes in found.items() if size > 1} or found


def _order(symbols: Mapping[int, object], traces: int) -> Iterator[tuple[int, int]]:
    """Each dimension's own size, then other sizes in turns, `traces` in all: (own size, size to try)."""
    yield from ((size, size) for size in symbols)
    # the workload itself takes one trace, whatever the number of dimensions
    left = traces - 1
    queues = {size: _sizes(size) for size in symbols}
    for turn in range(max((len(queue) for queue in queues.values()), default=0)):
        for size, queue in queues.items():
            if turn < len(queue) and left > 0:
                left -= 1
                yield size, queue[turn]


def _sizes(base: int) -> list[int]:
    """The sizes to try for a dimension, the most telling first, without its own."""
    found = (base + 1, *EDGES[:3], 2 * base, base - 1, *EDGES[3:])
    return [size for size in dict.fromkeys(found) if size >= 1 and size != base]


def _resized(specs: Inputs, size: int, other: int) -> dict[str, Spec | Scalar]:
    """The inputs with every axis of one size given another; raise InputError where one cannot be drawn.

    Integers below the old size, which may be positions along such an axis, are drawn below the new one.
    """
    return {
        name: _respecified(item, size, other) if isinstance(item, Spec) else item
        for name, item in specs.items()
    }


def _respecified(spec: Spec, size: int, other: int) -> Spec:
    shape = tuple(other if each == size else each for each in spec.shape)
    drawn = spec.distribution
    if drawn.kind == "integers" and len(drawn.parameters) == 2:
        low, high = drawn.parameters
        if low < other < high <= size:
            drawn = Distribution("integers", (low, float(other)))
    return Spec(spec.dtype, shape, drawn)


def _label(axes: Sequence[tuple[str, int]], specs: Inputs) -> str:
    """How a dimension is called: rows and columns where the inputs are matrices, axes by number elsewhere."""
    tensors = [item for item in specs.values() if isinstance(item, Spec)]
    names = []
    for name, axis in axes:
        item = specs[name]
        assert isinstance(item, Spec)
        rank = len(item.shape)
        word = ("rows", "columns")[axis] if rank == 2 else "elements" if rank == 1 else f"axis {axis}"
        names.append(word if len(tensors) == 1 else f"{word} of {name}")
    return _joined(names)


class _Sweep:
    """Traces one workload with other shapes, and says what came of each."""

    def __init__(
        self, request: Request, workload: Workload, server: ForkServer, compared: bool, seed: int
    ) -> None:
        self.request = request
        self.workload = workload
        self.server = server
        self.compared = compared
        self.seed = seed
        self.traces = 0
        self._usual: frozenset[str] = frozenset()
        """Kinds of faults of the first trace, which is of the workload itself."""

    def outcome(self, size: int, specs: Inputs) -> Tried:
        """What becomes of the kernel on inputs of these shapes."""
        inputs: InputSource = Drawn(specs)
        if isinstance(self.workload.inputs, Adapted):
            inputs = Adapted(inputs, self.workload.inputs.function)
        self.traces += 1
        try:
            traced = trace(self.request, replace(self.workload, inputs=inputs), self.server)
        except (ReferenceFailed, ArgumentError) as error:
            return Tried(size, Outcome.unknown, str(error))
        if traced.unsupported:
            return Tried(size, Outcome.unknown, traced.unsupported)
        if traced.failure is not None:
            place = f" ({traced.failure.place})" if traced.failure.place else ""
            kind = _failed(traced.failure.kind, traced.failure.message)
            return Tried(size, kind, f"{traced.failure.message.removeprefix('AssertionError: ')}{place}")
        assert traced.program is not None
        for violation in verify(traced.program):
            kind = Outcome.unknown if violation.unsupported else Outcome.refused
            return Tried(size, kind, violation.message)
        if not self.compared:
            return Tried(size, Outcome.accepted)
        return self._executed(size, traced, traced.program)

    def _executed(self, size: int, traced: Traced, program: Program) -> Tried:
        runs = Runs(
            Bench(self.request, self.server, lambda _: None),
            traced,
            program,
            reduction_lengths(program, ROWS),
        )
        try:
            runs.one(self.seed, AS_DRAWN, in_contract=True)
        except ReferenceFailed as error:
            return Tried(size, Outcome.unknown, str(error))
        finally:
            if isinstance(runs.answers, Answers):
                runs.answers.close()
        if self.traces == 1:
            self._usual = frozenset(fault.kind for fault in runs.faults)
        faults = [fault for fault in runs.faults if fault.kind not in self._usual]
        found = runs.records[-1]
        if found.status == "wrong" or faults:
            said = [
                found.reason,
                *(output.reason for output in found.outputs),
                *(each.message for each in faults),
            ]
            return Tried(size, Outcome.wrong, next((text for text in said if text), ""))
        return Tried(size, Outcome.right)


def _failed(kind: str, message: str) -> Outcome:
    if kind in _STOPPED:
        return Outcome.hangs
    if kind == "raised" and message.startswith("AssertionError"):
        return Outcome.asserted
    if kind in ("refused", "limits"):
        return Outcome.refused
    return Outcome.raised


def _accepted(found: Dimension) -> str:
    """Which of the sizes that were tried the kernel takes, as a rule where there is one."""
    sizes = [each.size for each in found.tried if each.outcome is not Outcome.unknown]
    good = [size for size in sizes if size in found.accepted]
    bad = [size for size in sizes if size not in good]
    what = "right" if any(each.outcome is Outcome.right for each in found.tried) else "accepted"
    if not good:
        return f"none of {_listed(sizes)}" if sizes else "nothing could be tried"
    if not bad:
        return f"any ({what} at {_listed(good)})" if len(good) > 2 else f"{what} at {_listed(good)}"
    for multiple in MULTIPLES:
        if (
            all(size % multiple == 0 for size in good)
            and all(size % multiple for size in bad)
            and len(good) > 1
        ):
            return f"multiples of {multiple} only ({what} at {_listed(good)})"
    if max(good) < min(bad) and len(good) > 1:
        return f"up to {max(good)} ({what} at {_listed(good)})"
    if min(good) > max(bad) and len(good) > 1:
        return f"from {min(good)} ({what} at {_listed(good)})"
    return f"{what} at {_listed(good)} only"


def _listed(sizes: Sequence[int]) -> str:
    return _joined([str(size) for size in sorted(sizes)])


def _joined(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN else f"{line[: SHOWN - 3]}..."
