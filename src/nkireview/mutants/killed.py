"""Which mutants a test would notice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from nkireview.execute import execute
from nkireview.isa import dtypes
from nkireview.mutants.mutant import Array, Mutant, Outputs, values_of
from nkireview.program.program import Program

Passes = Callable[[Outputs, Outputs], bool]
"""Whether a test lets outputs pass: (those of the mutant, those of the honest Program)."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a test says of a mutant: it is killed, it survives, or its outputs are those of the honest Program.

    An ``equal`` mutant differs from the honest one by no more than rounding, on any inputs that were tried.
    """

    mutant: Mutant
    state: Literal["killed", "survived", "equal"]


def killed(
    program: Program,
    arguments: Mapping[int, Array],
    mutants: Sequence[Mutant],
    passes: Passes,
    others: Sequence[Mapping[int, Array]] = (),
) -> list[Outcome]:
    """Run the mutants on the inputs of a test, and ask the test.

    arguments: an array for each parameter buffer. others: further inputs, on which a mutant that is equal on the
    test's may show that it is none: the test did not tell because its inputs could not.

    Raise ValueError where the honest outputs do not pass: such a test says nothing of mutants.
    """
    held = _Honest.of(program, arguments)
    if not passes(held.outputs, held.outputs):
        raise ValueError(
            "the outputs of the honest program do not pass this test, so it says nothing of mutants"
        )
    apart: list[_Honest] = []  # each made only where some mutant needs it
    found = []
    for mutant in mutants:
        got = mutant.run(arguments, held.outputs)
        if not passes(got, held.outputs):
            found.append(Outcome(mutant, "killed"))
            continue
        differs = not held.equals(got)
        for at, given in enumerate(others):
            if differs:
                break
            if at == len(apart):
                apart.append(_Honest.of(program, given))
            differs = not apart[at].equals(mutant.run(given, apart[at].outputs))
        found.append(Outcome(mutant, "survived" if differs else "equal"))
    return found


@dataclass(frozen=True, eq=False)
class _Honest:
    """The honest outputs on some inputs, and the same without rounding."""

    arguments: Mapping[int, Array]
    outputs: Outputs
    exact: Outputs
    dtypes: tuple[str, ...]

    @classmethod
    def of(cls, program: Program, arguments: Mapping[int, Array]) -> _Honest:
        exact = execute(program, arguments, compute=np.float64, rounding="off")
        names = tuple(program.access(output.access).dtype for output in program.outputs)
        return cls(arguments, values_of(execute(program, arguments)), values_of(exact), names)

    def equals(self, got: Outputs) -> bool:
        """True where outputs are as near to the unrounded ones as the honest ones are."""
        return all(
            _near(one, mine, exact, dtypes.BY_NAME[name])
            for one, mine, exact, name in zip(got, self.outputs, self.exact, self.dtypes, strict=True)
        )


TIMES = 2.0
"""Errors up to this many times the honest ones are rounding still."""


def _near(got: Array, honest: Array, exact: Array, kind: dtypes.DataType) -> bool:
    if kind.kind != "float":
        return bool(np.array_equal(got, honest))
    one, mine = got.astype(np.float64), honest.astype(np.float64)
    finite = np.isfinite(mine)
    if not np.array_equal(finite, np.isfinite(one)) or not np.array_equal(
        one[~finite], mine[~finite], equal_nan=True
    ):
        return False
    one, mine = one[finite], mine[finite]
    right = exact.astype(np.float64)[finite]
    right = np.where(np.isfinite(right), right, mine)
    if not one.size:
        return True
    own, error = np.abs(mine - right), np.abs(one - right)
    apart = np.abs(one - mine) > dtypes.ulp(mine, kind)
    if bool((apart & (error > TIMES * own.max())).any()):
        return False
    least = float(np.sqrt(np.mean(np.square(own))))
    return float(np.sqrt(np.mean(np.square(error)))) <= TIMES * max(least, _rms_ulp(mine, kind) / 4)


def _rms_ulp(values: NDArray[np.float64], kind: dtypes.DataType) -> float:
    return float(np.sqrt(np.mean(np.square(dtypes.ulp(values, kind)))))
