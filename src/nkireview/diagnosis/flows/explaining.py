"""A kernel that is wrong, its reference, and the experiments that can be made on the two."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from nkireview.diagnosis.flows.acting import Array
from nkireview.program.program import Program

Reference = Callable[[Sequence[Array]], Sequence[Array]]
REFUSALS = (ValueError, TypeError, ArithmeticError, LookupError, AssertionError, RuntimeError)
"""What a reference may raise for inputs that are no longer what it was written for."""
AGREES = 1e-5
FEW = 4096
"""Elements that are compared before all are."""


@dataclass(frozen=True)
class Explanation:
    """What is wrong, by an experiment that holds: the stable name of the cause, and a sentence."""

    cause: str
    sentence: str


@dataclass(frozen=True, eq=False)
class Case:
    """paths: the path of each parameter; inputs: their arrays; base, wanted: float64, of kernel and reference."""

    program: Program
    paths: tuple[str, ...]
    buffers: tuple[int, ...]
    inputs: tuple[Array, ...]
    base: tuple[Array, ...]
    wanted: tuple[Array, ...]
    reference: Reference = field(repr=False)

    @classmethod
    def of(
        cls,
        program: Program,
        arguments: Mapping[int, Array],
        base: Sequence[Array],
        given: Sequence[Array],
        reference: Reference,
    ) -> Case:
        """See `explanations`; given: what the reference gives.

        Raise ValueError where the reference has another number of outputs than the kernel.
        """
        inputs = tuple(arguments[buffer] for _, buffer in program.parameter_buffers)
        wanted = _wide(given)
        if len(wanted) != len(base):
            raise ValueError(
                f"the reference gives {len(wanted)} outputs, the kernel {len(base)}: they must be the same, in order"
            )
        return cls(
            program,
            tuple(path for path, _ in program.parameter_buffers),
            tuple(buffer for _, buffer in program.parameter_buffers),
            inputs,
            _wide(base),
            wanted,
            reference,
        )

    @property
    def right(self) -> bool:
        """True where the kernel gives what its reference gives."""
        return self.matches(self.wanted)

    def matches(self, found: Sequence[Array]) -> bool:
        """True where the kernel's outputs are these."""
        return len(found) == len(self.base) and all(
            mine.shape == other.shape and close(mine, other)
            for mine, other in zip(self.base, found, strict=True)
        )

    def explains(self, changed: Mapping[int, Array]) -> bool:
        """True where the reference, with some of its inputs changed (by position), gives what the kernel gives.

        Not where the change makes it NaN or infinite: then what is the same says nothing.
        """
        given = [changed.get(at, array) for at, array in enumerate(self.inputs)]
        try:
            with np.errstate(all="ignore"):
                found = _wide(self.reference(given))
        except REFUSALS:
            return False
        spoilt = (
            mine.shape == want.shape and bool((np.isfinite(want) & ~np.isfinite(mine)).any())
            for mine, want in zip(found, self.wanted, strict=False)
        )
        return not any(spoilt) and self.matches(found)

    def output(self, at: int) -> str:
        """How an output is called."""
        return self.program.outputs[at].name


def close(mine: Array, other: Array) -> bool:
    """True where two outputs are the same but for errors of float32: NaN and infinities in the same places.

    False where hardly anything is finite, since that says nothing.
    """
    finite = np.isfinite(other)
    if mine.size and np.count_nonzero(finite) * 2 < finite.size:
        return False
    same = np.array_equal(mine[~finite], other[~finite], equal_nan=True)
    if not same or not mine.size:
        return same
    one, two = (mine, other) if finite.all() else (mine[finite], other[finite])
    typical = float(np.sqrt(np.mean(np.square(two))))
    if not _within(one.reshape(-1)[:FEW], two.reshape(-1)[:FEW], typical):
        return False
    return _within(one, two, typical)


def _within(one: Array, two: Array, typical: float) -> bool:
    return bool(np.all(np.abs(one - two) <= AGREES * (np.abs(two) + typical)))


def _wide(arrays: Sequence[Array]) -> tuple[Array, ...]:
    return tuple(np.asarray(each, np.float64) for each in arrays)
