"""What a task's reference answers for one workload: live in a session, or kept for many submissions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np

from nkireview.arguments import (
    PREPARE,
    Arguments,
    Array,
    Callee,
    InputSource,
    ReferenceFailed,
    request_of,
    result_of,
)
from nkireview.numerics.inputs import HOSTILE, hostile
from nkireview.numerics.sensitivity import Influence, conditioning, probe
from nkireview.numerics.void import VoidCheck
from nkireview.runner import ForkServer, Job, Limits
from nkireview.runner.tree import leaves

AS_DRAWN = "as drawn"
T = TypeVar("T")


@dataclass(frozen=True)
class Trial:
    """Inputs of one execution, in storage dtypes, and what the reference makes of them in float64."""

    arguments: Arguments
    wanted: list[Array]


class AnswerSource(InputSource, Protocol):
    """Inputs and answers of one workload, by seed and by `kind`: "as drawn" or a name of `HOSTILE`.

    Every method raises `ReferenceFailed` where the reference or the input function fails. Nothing here depends on a
    submission.
    """

    def trial(self, seed: int, kind: str) -> Trial | None:
        """Inputs and answers; None where no input can be made hostile in that way."""

    def amplification(self, seed: int, kind: str) -> list[float]:
        """How far the reference itself enlarges rounding on these inputs, for each output."""

    def influences(self, seed: int) -> list[Influence]:
        """Which regions of which inputs, named by their positions, change which outputs."""

    def void(self, key: str, check: Callable[[], VoidCheck]) -> VoidCheck:
        """The result of `check`, made once for a `key` that holds all that it depends on."""


class Answers:
    """Answers asked for when they are needed, from one child process for all of them.

    The child imports the reference once; each call is a fork of it, so that no call sees another's traces.
    """

    def __init__(self, inputs: InputSource, reference: Callee, server: ForkServer, limits: Limits) -> None:
        self._inputs = inputs
        self._reference = reference
        self._server = server
        self._limits = limits
        header = {"file": str(reference.file.resolve()), "function": reference.function}
        self._session = server.session(Job(PREPARE, header, [], limits))
        self._made: tuple[int, Arguments] | None = None
        self._answered: tuple[tuple[int, str], Trial] | None = None

    def close(self) -> None:
        """End the child process."""
        self._session.close()

    def structure(self, server: ForkServer, limits: Limits) -> Arguments:
        """See `InputSource`."""
        return self._inputs.structure(server, limits)

    def make(self, seed: int, server: ForkServer, limits: Limits) -> Arguments:
        """See `InputSource`."""
        return self._inputs.make(seed, server, limits)

    def trial(self, seed: int, kind: str) -> Trial | None:
        """See `AnswerSource`."""
        if self._answered is not None and self._answered[0] == (seed, kind):
            return self._answered[1]
        arguments: Arguments | None = self._drawn(seed)
        assert arguments is not None
        if kind != AS_DRAWN:
            changed = hostile({str(at): array for at, array in enumerate(arguments.arrays())}, kind)
            arguments = None if changed is None else arguments.replaced(list(changed.values()))
        if arguments is None:
            return None
        found = Trial(arguments, self._call(arguments))
        self._answered = (seed, kind), found
        return found

    def amplification(self, seed: int, kind: str) -> list[float]:
        """See `AnswerSource`."""
        found = self.trial(seed, kind)
        assert found is not None
        named = {str(at): array for at, array in enumerate(found.arguments.arrays())}
        return conditioning(self._after(found), named, seed)

    def influences(self, seed: int) -> list[Influence]:
        """See `AnswerSource`."""
        found = self.trial(seed, AS_DRAWN)
        assert found is not None
        named = {str(at): array for at, array in enumerate(found.arguments.arrays())}
        return probe(self._after(found), named, seed)

    def void(self, key: str, check: Callable[[], VoidCheck]) -> VoidCheck:
        """See `AnswerSource`."""
        return check()

    def _drawn(self, seed: int) -> Arguments:
        if self._made is None or self._made[0] != seed:
            self._made = seed, self._inputs.make(seed, self._server, self._limits)
        return self._made[1]

    def _after(self, trial: Trial) -> Callable[[list[Array]], Sequence[Array]]:
        """The reference, for callers that first ask for the answer to the trial's own values: that is known."""
        known = iter((trial.wanted,))

        def reference(arrays: list[Array]) -> Sequence[Array]:
            first = next(known, None)
            return self._call(trial.arguments.replaced(arrays)) if first is None else first

        return reference

    def _call(self, arguments: Arguments) -> list[Array]:
        outcome = self._session.call(*request_of(arguments, float64=True))
        made = result_of(outcome, "reference", self._reference)
        found = [np.asarray(value) for _, value in leaves(made)]
        if not found:
            raise ReferenceFailed(f"reference {self._reference} returned no array")
        return found


@dataclass
class Kept:
    """All answers of one workload, made beforehand: for reviews of many submissions, in forked processes too.

    Holds inputs and outputs of every trial in memory, in storage dtypes and float64.
    """

    shape: Arguments | ReferenceFailed
    trials: dict[tuple[int, str], Trial | ReferenceFailed | None] = field(default_factory=dict)
    factors: dict[tuple[int, str], list[float] | ReferenceFailed] = field(default_factory=dict)
    probes: dict[int, list[Influence] | ReferenceFailed] = field(default_factory=dict)
    checks: dict[str, VoidCheck] = field(default_factory=dict)
    """Void checks by what they depend on; a review adds those that are not there yet."""

    @classmethod
    def structure_only(cls, inputs: InputSource, server: ForkServer, limits: Limits) -> Kept:
        """For a workload that is never executed."""
        return cls(_or_failure(lambda: inputs.structure(server, limits)))

    @classmethod
    def of(cls, answers: Answers, seeds: Sequence[int], server: ForkServer, limits: Limits) -> Kept:
        """Ask for everything that a review with these seeds can need; failures are kept as well.

        The first seed is the one that is made hostile and probed.
        """
        kept = cls.structure_only(answers, server, limits)
        for key in _trials(seeds):
            found = _or_failure(lambda key=key: answers.trial(*key))  # type: ignore[misc]
            kept.trials[key] = found
            if isinstance(found, Trial):
                kept.factors[key] = _or_failure(lambda key=key: answers.amplification(*key))  # type: ignore[misc]
        kept.probes[seeds[0]] = _or_failure(lambda: answers.influences(seeds[0]))
        return kept

    def structure(self, server: ForkServer, limits: Limits) -> Arguments:
        """See `InputSource`."""
        return _or_raise(self.shape)

    def make(self, seed: int, server: ForkServer, limits: Limits) -> Arguments:
        """See `InputSource`."""
        found = self.trial(seed, AS_DRAWN)
        assert found is not None
        return found.arguments

    def trial(self, seed: int, kind: str) -> Trial | None:
        """See `AnswerSource`."""
        return _or_raise(self.trials[seed, kind])

    def amplification(self, seed: int, kind: str) -> list[float]:
        """See `AnswerSource`."""
        return _or_raise(self.factors[seed, kind])

    def influences(self, seed: int) -> list[Influence]:
        """See `AnswerSource`."""
        return _or_raise(self.probes[seed])

    def void(self, key: str, check: Callable[[], VoidCheck]) -> VoidCheck:
        """See `AnswerSource`."""
        if key not in self.checks:
            self.checks[key] = check()
        return self.checks[key]


def _trials(seeds: Sequence[int]) -> Iterable[tuple[int, str]]:
    yield from ((seed, AS_DRAWN) for seed in seeds)
    yield from ((seeds[0], kind) for kind in HOSTILE)


def _or_failure(ask: Callable[[], T]) -> T | ReferenceFailed:
    try:
        return ask()
    except ReferenceFailed as error:
        return error


def _or_raise(found: T | ReferenceFailed) -> T:
    if isinstance(found, ReferenceFailed):
        raise found
    return found


def answers_of(inputs: Any, reference: Callee, server: ForkServer, limits: Limits) -> AnswerSource:
    """The kept answers of a workload's inputs, or live ones."""
    return inputs if isinstance(inputs, Kept) else Answers(inputs, reference, server, limits)
