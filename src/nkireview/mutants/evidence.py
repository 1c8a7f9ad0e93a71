"""What an author's own tests would notice: their tolerances and inputs, on mutants of the kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from nkireview.checks.own_tests import ABSOLUTE, EXACT, LARGEST, NORM, Comparison, OwnTests
from nkireview.checks.own_tests_inputs import Given
from nkireview.isa import dtypes
from nkireview.mutants.defects import MOST, mutants
from nkireview.mutants.killed import Outcome, Passes, killed
from nkireview.mutants.mutant import Array, Mutant, Outputs
from nkireview.program.program import Program
from nkireview.rules.facts import JudgedMutant, OwnEvidence, ZeroShare

SETS = 3
"""Kinds of inputs that mutants are run on."""
SCALES = (1e-3, 100.0)
"""What inputs are multiplied by to see whether a mutant differs at all."""
FEW = 3
"""A tensor of fewer values is a mask or a constant, and stays as it is."""

Arguments = Mapping[int, Array]


def evidence(
    tests: OwnTests,
    program: Program,
    arguments: Arguments,
    wanted: Sequence[Array],
    alone: bool = False,
    most: int = MOST,
    seed: int = 0,
) -> OwnEvidence:
    """What the tests would let pass of zeros and of at most `most` mutants of a Program that is right.

    arguments: an array for each parameter buffer, as drawn. wanted: the reference's outputs on them, in the shapes of
    the Program's. The mutants are run on tensors like those that the tests draw; there are none where it cannot be
    read how the tests make their tensors, or what their tolerances are.
    """
    found = OwnEvidence(tests, zeros=tuple(zero_shares(tests, program, wanted)), alone=alone)
    passes = passes_of(tests, program)
    sets = [] if passes is None else as_tested(tests, arguments, seed)
    if passes is None or not sets:
        return found
    scaled = [_scaled(arguments, factor) for factor in SCALES]
    left: list[Mutant] = list(mutants(program, most))
    judged: dict[int, Outcome] = {}
    for each in sets:
        for outcome in killed(program, each, left, passes, (arguments, *scaled)):
            known = judged.get(id(outcome.mutant))
            if known is None or known.state == "equal" or outcome.state == "killed":
                judged[id(outcome.mutant)] = outcome
        left = [mutant for mutant in left if judged[id(mutant)].state != "killed"]
    states = (
        JudgedMutant(item.mutant.name, item.mutant.sentence, item.mutant.place, item.state)
        for item in judged.values()
    )
    return replace(found, mutants=tuple(states))


def zero_shares(tests: OwnTests, program: Program, wanted: Sequence[Array]) -> list[ZeroShare]:
    """For each output of floats the least share that any comparison lets be zero; none where one cannot be read."""
    found = []
    for output, values in zip(program.outputs, wanted, strict=True):
        dtype = program.access(output.access).dtype
        size = np.abs(values.astype(np.float64)).ravel()
        size = size[np.isfinite(size) & (size > 0)]
        if dtypes.BY_NAME[dtype].kind != "float" or not size.size:
            continue
        shares = []
        for item in tests.relied_on:
            limits = item.limits(dtype)
            if limits is None:
                break
            share = _zero_share(item, *limits, size)
            shares.append(ZeroShare(output.name, item.place, share, *limits))
        else:
            if shares:
                found.append(min(shares, key=lambda each: each.share))
    return found


def _zero_share(item: Comparison, rtol: float, atol: float, size: Array) -> float:
    """The share of elements of these magnitudes that may be zero."""
    if item.form == EXACT:
        return 0.0
    if item.form == NORM:
        smallest = np.cumsum(np.square(np.sort(size)))
        return float(np.mean(smallest <= (rtol**2) * smallest[-1]))
    if item.form == LARGEST:
        return float(np.mean(size <= atol + (0.0 if item.kernel == "right" else rtol * size.max())))
    relative = 0.0 if item.form == ABSOLUTE or item.kernel == "right" else rtol
    return float(np.mean(size <= atol + relative * size))


def passes_of(tests: OwnTests, program: Program) -> Passes | None:
    """Whether outputs pass all comparisons, each of them held against each output; None where one cannot be read."""
    names = [program.access(output.access).dtype for output in program.outputs]
    used = tests.relied_on
    if not used or any(item.limits(name) is None for item in used for name in names):
        return None

    def passes(got: Outputs, honest: Outputs) -> bool:
        for one, mine, name in zip(got, honest, names, strict=True):
            for item in used:
                limits = item.limits(name)
                if limits is not None and not _close(item, *limits, one, mine):
                    return False
        return True

    return passes


def _close(item: Comparison, rtol: float, atol: float, got: Array, wanted: Array) -> bool:
    if item.form == EXACT or wanted.dtype.kind in "iub":
        return bool(np.array_equal(got.astype(np.float64), wanted.astype(np.float64), equal_nan=True))
    one, mine = got.astype(np.float64), wanted.astype(np.float64)
    finite = np.isfinite(mine)
    if not np.array_equal(one[~finite], mine[~finite], equal_nan=True) or not np.isfinite(one[finite]).all():
        return False
    one, mine = one[finite], mine[finite]
    error = np.abs(one - mine)
    if item.form == NORM:
        return float(np.linalg.norm(error)) <= rtol * float(np.linalg.norm(mine))
    beside = np.abs(one if item.kernel == "right" else mine)
    if item.form == LARGEST and beside.size:
        beside = np.asarray(beside.max())
    return bool((error <= atol + rtol * beside).all())


def as_tested(tests: OwnTests, arguments: Arguments, seed: int) -> list[Arguments]:
    """Arguments with values like those that the tests draw, a set for each way; none where that cannot be read."""
    if not tests.known or any(item.edited for item in tests.given):
        return []
    ways: dict[tuple[str, float, float, float], Given] = {
        (item.kind, item.low, item.high, abs(item.factor)): item for item in tests.drawn
    }
    generator = np.random.default_rng(seed)
    return [
        {number: _redrawn(values, way, generator) for number, values in arguments.items()}
        for way in list(ways.values())[:SETS]
    ]


def _redrawn(values: Array, way: Given, generator: np.random.Generator) -> Array:
    if not _is_data(values):
        return values
    if way.kind == "normal":
        made = generator.standard_normal(values.shape) * abs(way.factor)
    else:
        made = generator.uniform(way.low, way.high, values.shape)
    return made.astype(values.dtype)


def _is_data(values: Array) -> bool:
    """True for floats of more than a few values, some of them no integers."""
    if values.dtype.kind in "iub" or not values.size:
        return False
    found = np.unique(values.astype(np.float32))
    return found.size >= min(FEW, values.size) and bool((found != np.rint(found)).any())


def _scaled(arguments: Arguments, factor: float) -> Arguments:
    return {
        number: (values.astype(np.float32) * np.float32(factor)).astype(values.dtype)
        if _is_data(values)
        else values
        for number, values in arguments.items()
    }
