"""What a task's reference answers for one workload: live in a session, or kept for many submissions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np

from nkireview.adapting import Adapted, changed_regions, drawn
from nkireview.arguments import (
    PREPARE,
    Arguments,
    Array,
    Callee,
    InputSource,
    ReferenceFailed,
    request_of,
    result_of,
    steps_of,
)
from nkireview.numerics.hostile import ALWAYS, hostile
from nkireview.numerics.sensitivity import REGIONS, Influence, Region, conditioning, probe
from nkireview.numerics.void import VoidCheck
from nkireview.observed import Observation
from nkireview.runner import ForkServer, Job, Limits
from nkireview.runner.tree import leaves

AS_DRAWN = "as drawn"
NOTE_CHARACTERS = 400
OWN_DTYPES = "in the dtypes of its inputs, as the task asks, not in float64"
T = TypeVar("T")


@dataclass(frozen=True)
class Trial:
    """Inputs of one execution, in storage dtypes, and what the reference makes of them in float64.

    given: the reference's own arguments where the kernel's are made of them. note: how the reference says it computed
    where that is not what was asked.
    """

    arguments: Arguments
    wanted: list[Array]
    given: Arguments | None = None
    note: str = ""

    @property
    def asked(self) -> Arguments:
        """What the reference was called with."""
        return self.arguments if self.given is None else self.given


class AnswerSource(InputSource, Protocol):
    """Inputs and answers of one workload, by seed and by `kind`: "as drawn" or a name of `numerics.hostile.HOSTILE`.

    Every method raises `ReferenceFailed` where the reference or the input function fails. Nothing here depends on a
    submission.
    """

    def trial(self, seed: int, kind: str) -> Trial | None:
        """Inputs and answers; None where no input can be made hostile in that way."""

    def knows(self, seed: int, kind: str) -> bool:
        """True where answers of a kind are there or can be made."""

    def reference(self, trial: Trial) -> Callable[[Sequence[Array]], Sequence[Array]] | None:
        """The reference as a function of the kernel's arrays; None where it cannot be called, or takes others.

        It raises ValueError where the reference fails for them.
        """

    def observed(self, trial: Trial) -> Callable[[], Sequence[Observation]] | None:
        """The steps of the reference on a trial's arrays; None where it cannot be called.

        It raises ValueError where they cannot be had.
        """

    def amplification(self, seed: int, kind: str) -> list[float]:
        """How far the reference itself enlarges rounding on these inputs, for each output."""

    def influences(self, seed: int) -> list[Influence]:
        """Which regions of which of the kernel's inputs, named by their positions, change which outputs."""

    def void(self, key: str, check: Callable[[], VoidCheck]) -> VoidCheck:
        """The result of `check`, made once for a `key` that holds all that it depends on."""


class Answers:
    """Answers asked for when they are needed, from one child process for all of them.

    The child imports the reference once; each call is a fork of it, so that no call sees another's traces.
    """

    def __init__(
        self,
        inputs: InputSource,
        reference: Callee,
        server: ForkServer,
        limits: Limits,
        probes: int = REGIONS,
    ) -> None:
        self._inputs = inputs
        self._probes = probes
        self._reference = reference
        self._server = server
        self._limits = limits
        header = {"file": str(reference.file.resolve()), "function": reference.function}
        self._session = server.session(Job(PREPARE, header, [], limits))
        self._made: tuple[int, Arguments, Arguments] | None = None
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
        asked, arguments = self._drawn(seed)
        if kind != AS_DRAWN:
            changed = hostile(_named(asked), kind)
            if changed is None:
                return None
            asked = asked.replaced(list(changed.values()))
            arguments = self._kernel(asked)
        wanted, note = self._call(asked)
        found = Trial(arguments, wanted, None if asked is arguments else asked, note)
        self._answered = (seed, kind), found
        return found

    def knows(self, seed: int, kind: str) -> bool:
        """See `AnswerSource`."""
        return True

    def reference(self, trial: Trial) -> Callable[[Sequence[Array]], Sequence[Array]] | None:
        """See `AnswerSource`."""
        if trial.given is not None:
            return None

        def called(arrays: Sequence[Array]) -> Sequence[Array]:
            try:
                return self._again(trial, arrays)
            except ReferenceFailed as error:
                raise ValueError(str(error)) from None

        return called

    def observed(self, trial: Trial) -> Callable[[], Sequence[Observation]] | None:
        """See `AnswerSource`."""

        def steps() -> Sequence[Observation]:
            asked = request_of(trial.asked, float64=self._reference.float64, steps=True)
            try:
                return steps_of(self._session.call(*asked), self._reference)
            except ReferenceFailed as error:
                raise ValueError(str(error)) from None

        return steps

    def amplification(self, seed: int, kind: str) -> list[float]:
        """See `AnswerSource`."""
        found = self.trial(seed, kind)
        assert found is not None
        return conditioning(self._after(found), _named(found.asked), seed)

    def influences(self, seed: int) -> list[Influence]:
        """See `AnswerSource`."""
        found = self.trial(seed, AS_DRAWN)
        assert found is not None
        regions: list[list[tuple[int, Region]]] = []
        after = self._after(found)
        if not isinstance(self._inputs, Adapted):
            return probe(after, _named(found.asked), seed, self._probes)

        def watched(arrays: list[Array]) -> Sequence[Array]:
            kernel = self._kernel(found.asked.replaced(arrays))
            regions.append(changed_regions(found.arguments, kernel, ""))
            return after(arrays)

        probes = probe(watched, _named(found.asked), seed, self._probes)
        outputs = len(found.wanted)
        # the first call asks for the answer that is known, each other is a probe with a line for each output
        return [
            Influence(
                str(at), Region(probes[line].region.name, region.ranges), line % outputs, probes[line].changed
            )
            for line in range(len(probes))
            for at, region in regions[1 + line // outputs]
        ]

    def void(self, key: str, check: Callable[[], VoidCheck]) -> VoidCheck:
        """See `AnswerSource`."""
        return check()

    def _drawn(self, seed: int) -> tuple[Arguments, Arguments]:
        """What the reference is called with, and what the kernel; the same object where there is no difference."""
        if self._made is None or self._made[0] != seed:
            self._made = None  # before the next ones are there: they may be large
            self._made = seed, *drawn(self._inputs, seed, self._server, self._limits)
        return self._made[1:]

    def _kernel(self, asked: Arguments) -> Arguments:
        if isinstance(self._inputs, Adapted):
            return self._inputs.kernel(asked, self._server, self._limits)
        return asked

    def _after(self, trial: Trial) -> Callable[[list[Array]], Sequence[Array]]:
        """The reference, for callers that first ask for the answer to the trial's own values: that is known."""
        known = iter((trial.wanted,))

        def reference(arrays: list[Array]) -> Sequence[Array]:
            first = next(known, None)
            if first is not None:
                return first
            return self._again(trial, arrays)

        return reference

    def _again(self, trial: Trial, arrays: Sequence[Array]) -> list[Array]:
        """The reference for other values of a trial's arrays, in their own dtypes where it is called in these."""
        if not self._reference.float64:
            own = trial.asked.arrays()
            arrays = [new.astype(old.dtype, copy=False) for new, old in zip(arrays, own, strict=True)]
        return self._call(trial.asked.replaced(list(arrays)))[0]

    def _call(self, arguments: Arguments) -> tuple[list[Array], str]:
        outcome = self._session.call(*request_of(arguments, float64=self._reference.float64))
        made = result_of(outcome, "reference", self._reference)
        found = [np.asarray(value) for _, value in leaves(made)]
        if not found:
            raise ReferenceFailed(f"reference {self._reference} returned no array")
        note = str(outcome.header.get("note", ""))[:NOTE_CHARACTERS]
        return found, note or ("" if self._reference.float64 else OWN_DTYPES)


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
    def of(
        cls,
        answers: Answers,
        seeds: Sequence[int],
        server: ForkServer,
        limits: Limits,
        promised: Iterable[str] = (),
    ) -> Kept:
        """Ask for what every review with these seeds needs; failures are kept as well.

        The first seed is the one that is made hostile and probed. Of the hostile kinds those are kept that are always
        executed and those that the task's contract promises, not what single programs ask for besides.
        """
        kept = cls.structure_only(answers, server, limits)
        for key in _trials(seeds, promised):
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

    def knows(self, seed: int, kind: str) -> bool:
        """See `AnswerSource`."""
        return (seed, kind) in self.trials

    def reference(self, trial: Trial) -> Callable[[Sequence[Array]], Sequence[Array]] | None:
        """See `AnswerSource`."""
        return None

    def observed(self, trial: Trial) -> Callable[[], Sequence[Observation]] | None:
        """See `AnswerSource`."""
        return None

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


def _named(arguments: Arguments) -> dict[str, Array]:
    return {str(at): array for at, array in enumerate(arguments.arrays())}


def _trials(seeds: Sequence[int], promised: Iterable[str]) -> Iterable[tuple[int, str]]:
    yield from ((seed, AS_DRAWN) for seed in seeds)
    yield from ((seeds[0], kind) for kind in dict.fromkeys((*ALWAYS, *promised)))


def _or_failure(ask: Callable[[], T]) -> T | ReferenceFailed:
    try:
        return ask()
    except ReferenceFailed as error:
        return error


def _or_raise(found: T | ReferenceFailed) -> T:
    if isinstance(found, ReferenceFailed):
        raise found
    return found


def answers_of(
    inputs: Any, reference: Callee, server: ForkServer, limits: Limits, probes: int = REGIONS
) -> AnswerSource:
    """The kept answers of a workload's inputs, or live ones."""
    return inputs if isinstance(inputs, Kept) else Answers(inputs, reference, server, limits, probes)
