"""diagnose: is the difference from the reference rounding, or is something wrong, and what."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.checks.dataflow import flow_of
from nkireview.diagnosis import algebra, arrangement, flows, habits, naming
from nkireview.diagnosis.alignment import Departure, departure
from nkireview.diagnosis.costs import Cost, costs, lines
from nkireview.diagnosis.integers import narrowed
from nkireview.diagnosis.model import Cause, Diagnosis, LineCost, OutputDiagnosis
from nkireview.diagnosis.pace import SAMPLED, Pace, nominal, samples
from nkireview.diagnosis.repair import Repair
from nkireview.diagnosis.shadow import Deviation, Digest, Series, first_deviation, growth
from nkireview.diagnosis.symptoms import Cancellation, NotFinite
from nkireview.diagnosis.ties import Integers
from nkireview.diagnosis.tolerance import Derivation, Tolerance, Used
from nkireview.execute import Around, execute
from nkireview.execute.step import MEANINGLESS
from nkireview.isa import dtypes
from nkireview.isa.dtypes import BY_NAME
from nkireview.numerics.arrays import root_mean_square
from nkireview.numerics.limits import limits_for, table
from nkireview.numerics.patterns import Pattern, patterns
from nkireview.observed import Observation
from nkireview.program.program import Program

Array = NDArray[Any]
Float64 = NDArray[np.float64]
Reference = Callable[[Sequence[Array]], Sequence[Array]]
Observed = Callable[[], Sequence[Observation]]

BUDGET = 9.0
"""Times one execution that a diagnosis may take where nobody says how long."""
LEAST_SECONDS = 3.0
"""Seconds that it may take in any case."""
COSTLY, GROSS = 0.1, 0.01
"""Seconds of an execution, and error as a share of the output, from which on both no noise is drawn."""
SHARE = 3
"""The part of the time that samples of the noise may take."""
WATCHED = 2.0
"""Executions that one takes which is held against the steps of the reference."""
LINES = 8
"""Lines whose roundings are looked at one by one."""
FOREIGN = "the Program is right: executed here it gives what the reference gives, unlike the outputs that were given"
VAGUE = frozenset({"division-by-zero", "not-finite"})
"""Causes that say where NaN or infinity begins and not why: changes of the run as stored may tell more."""
STORED = 64
"""Changes that are tried on it."""
TOLD_APART = frozenset({"eps-missing", "eps-outside-root"})
"""Causes of which one may match where the other is true: of these the one that leaves least is named."""
BESIDE = 64
"""Other repairs that are passed over in search of these."""
LATE = frozenset({"operator", "parameter-function", "term-missing", "clamp-missing"})
"""Causes that say what differs and no reason: other repairs are tried first."""
TRIES, FEW_TRIES = 64, 4
"""Calls of the reference for parts of inputs; fewer where an execution takes long."""
RESERVED, ALIGNED = 1 / 3, 8.0
"""Share of the time that is left to the steps of the reference, and executions that they take where one takes long."""
DEAREST = 0.5
"""Share of what is allowed from which the roundings of one line are a cause."""


def diagnose(
    program: Program,
    arguments: Mapping[int, Array],
    wanted: Sequence[Array],
    *,
    reference: Reference | None = None,
    observed: Observed | None = None,
    got: Sequence[Array] | None = None,
    seconds: float | None = None,
    derivation: Derivation | None = None,
    rounded: bool = False,
    repeatable: bool = False,
) -> Diagnosis:
    """Hold the outputs of a Program against a reference, and find the cause of what rounding does not explain.

    arguments: an array in storage dtype for each parameter buffer. wanted: a float64 array for each output, computed
    from the same arguments. reference: computes it from a list of arrays, for experiments on it. observed: gives the
    steps by which it was computed, or raises ValueError. got: outputs that were computed elsewhere; without them the
    Program is executed. seconds: how long it may take, by default ten times
    one execution and `LEAST_SECONDS` at least. rounded: the reference was not computed in float64 but rounds as float32
    does, which is allowed for besides. repeatable: what is tried depends on the Program and `seconds` and not on the
    machine, which may then take longer. Raise ValueError where outputs and `wanted` differ in number or shape, and
    where nothing of `wanted` can be compared.
    """
    return _Diagnosis(
        program, arguments, wanted, reference, observed, got, seconds, derivation, rounded, repeatable
    ).made()


class _Diagnosis:
    def __init__(
        self,
        program: Program,
        arguments: Mapping[int, Array],
        wanted: Sequence[Array],
        reference: Reference | None,
        observed: Observed | None,
        got: Sequence[Array] | None,
        seconds: float | None,
        derivation: Derivation | None,
        rounded: bool,
        repeatable: bool,
    ) -> None:
        self.started = time.monotonic()
        self.program, self.arguments, self.reference = program, arguments, reference
        self.observed = observed
        self.rounded, self.foreign = rounded, got is not None
        if any(np.iscomplexobj(each) for each in wanted):
            raise ValueError("the reference gives complex numbers, expected real ones")
        self.wanted = [np.asarray(each, np.float64) for each in wanted]
        self.derivation = derivation or Derivation.of_program(program)
        self.flow = flow_of(program)
        if got is not None and len(got) != len(program.outputs):
            raise ValueError(
                f"the kernel returns {len(program.outputs)} tensors, {len(got)} were computed elsewhere"
            )
        self.lost = NotFinite(self.derivation.kinds, self.derivation.of)
        self.digest = Digest(self.derivation.kinds, self.derivation.of, self.lost)
        before = time.monotonic()
        self.got = [
            self._numbers(at, each)
            for at, each in enumerate(self._stored(self.digest) if got is None else got)
        ]
        once = nominal(program) if repeatable else time.monotonic() - before
        self.costly = once >= COSTLY
        least = 0.0 if self.costly else LEAST_SECONDS
        given = max(BUDGET * once, least) if seconds is None else seconds
        self.pace = Pace(given, once, self.started, counted=repeatable)
        self._check()
        self.skipped: list[str] = []

    def made(self) -> Diagnosis:
        """The diagnosis."""
        kinds, of = self.derivation.kinds, self.derivation.of
        integers = Integers(kinds, of)
        cancelling = Cancellation(kinds, of, integers)
        exact_digest = Digest(kinds, of, cancelling)
        given = self.derivation.widened(self.arguments)
        exact = self.derivation.run(given, exact_digest)
        digests: list[Digest] = []

        def watch(noise: Any) -> Digest:
            digests.append(Digest(kinds, of, noise))
            return digests[-1]

        if self._gross(exact):
            tolerances = tuple(self._coarse(at, one) for at, one in enumerate(exact))
            self.skipped.append("what rounding explains, element by element: the difference is far beyond it")
        else:
            share, most = self.pace.seconds / SHARE, SAMPLED
            if self.pace.counted:
                share, most = math.inf, samples(share, self.pace.once)
            found, before = self.derivation.samples(given, share, most, watch)
            tolerances = self.derivation.combined(given, exact, found, integers.found, before, self.wanted)
        if self.rounded:
            tolerances = tuple(self._loosened(at, each) for at, each in enumerate(tolerances))
        used = [
            tolerance.used(have, want)
            for have, want, tolerance in zip(self.got, self.wanted, tolerances, strict=True)
        ]
        right = [use.largest <= 1 for use in used]
        causes: list[Cause] = []
        deviation: Deviation | None = None
        grown: list[Series] = []
        spent: list[Cost] = []
        foreign = not all(right) and self.foreign and self._own_is_right(tolerances)
        if foreign:
            causes = [Cause("not-the-program", FOREIGN, "", "shadow")]
        elif not all(right):
            if self._right(exact, tolerances):
                deviation, grown = self._shadowed(exact_digest, digests)
                spent = self._costs(given, exact, tolerances)
                causes = list(self._of_rounding(deviation, spent, cancelling.factors, right, tolerances))
            else:
                causes = list(self._of_algorithm(exact, tolerances))
        outputs = tuple(self._output(at, used[at], tolerances[at], bool(causes)) for at in range(len(used)))
        return Diagnosis(
            verdict="rounding" if all(right) else "defect",
            outputs=outputs,
            causes=tuple(causes),
            costs=tuple(self._line_costs(spent)),
            deviation="" if deviation is None else self._deviating(deviation),
            growth=tuple(grown),
            skipped=tuple(self.skipped),
            seconds=time.monotonic() - self.started,
        )

    def _stored(self, around: Around | None = None) -> list[Array]:
        return [output.values for output in execute(self.program, self.arguments, around=around).outputs]

    def _numbers(self, at: int, values: Array) -> Float64:
        dtype = dtypes.BY_NAME[self.program.access(self.program.outputs[at].access).dtype]
        if values.dtype == dtype.storage and dtype.kind != "packed":
            return np.asarray(dtypes.to_compute(values, dtype, np.float64), np.float64)
        return np.asarray(values, np.float64)

    def _check(self) -> None:
        if len(self.got) != len(self.wanted):
            raise ValueError(f"the kernel returns {len(self.got)} tensors, the reference {len(self.wanted)}")
        for output, have, want in zip(self.program.outputs, self.got, self.wanted, strict=True):
            if have.shape != want.shape:
                raise ValueError(
                    f"output {output.name} has shape {list(have.shape)}, the reference's {list(want.shape)}"
                )
        for at, want in enumerate(self.wanted):
            self._fits(at, want)

    def _fits(self, at: int, want: Float64) -> None:
        """Raise ValueError where nothing of a reference can be compared with what the output's dtype holds."""
        output = self.program.outputs[at]
        dtype = BY_NAME[self.program.access(output.access).dtype]
        if dtype.kind != "float" or not want.size:
            return
        if not np.isfinite(want).any():
            raise ValueError(
                f"the reference of output {output.name} is NaN or infinite in every element: nothing can be compared"
            )
        if not ((want >= -dtype.max_finite) & (want <= dtype.max_finite)).any():
            raise ValueError(
                f"no element of the reference of output {output.name} fits {dtype.name}, which ends at "
                f"{dtype.max_finite:g}: nothing can be compared; choose smaller inputs"
            )

    def _own_is_right(self, tolerances: Sequence[Tolerance]) -> bool:
        """True where the Program's own run, rounded as it is, is right."""
        own = [self._numbers(at, values) for at, values in enumerate(self._stored())]
        return self._right(own, tolerances)

    def _gross(self, exact: Sequence[Float64]) -> bool:
        """True where an output is wrong by far even without rounding, and there is no time to say how far."""
        if not self.costly:
            return False
        return any(
            root_mean_square(one, less=want) > GROSS * root_mean_square(want)
            for one, want in zip(exact, self.wanted, strict=True)
        )

    def _coarse(self, at: int, exact: Float64, amplification: float = 1.0) -> Tolerance:
        """A tolerance from the dtype and the length of sums alone."""
        name = self.program.access(self.program.outputs[at].access).dtype
        if BY_NAME[name].kind != "float":
            return Tolerance(name, exact, np.zeros(exact.shape), np.zeros(exact.shape))
        limits = limits_for(name, self.derivation.terms[at], None, amplification)
        want = self.wanted[at]
        last = np.abs(want)
        last *= limits.rtol
        last += limits.atol * root_mean_square(want) + limits.absolute
        return Tolerance(name, exact, np.zeros(exact.shape), last)

    def _loosened(self, at: int, tolerance: Tolerance) -> Tolerance:
        """A tolerance with what the reference's own roundings to float32 may do, over sums of the same length."""
        if BY_NAME[tolerance.dtype].kind != "float":
            return tolerance
        want, limits = self.wanted[at], limits_for("float32", self.derivation.terms[at])
        own = limits.rtol * np.abs(want) + limits.atol * root_mean_square(want)
        return replace(tolerance, last=tolerance.last + np.where(np.isfinite(own), own, 0.0))

    def _shadowed(self, exact: Digest, samples: Sequence[Digest]) -> tuple[Deviation | None, list[Series]]:
        """Where the run as stored leaves its shadow, and how the errors of its sums grow."""
        if self.foreign:
            self._stored(self.digest)
        stored, noise = self.digest.found, [sample.found for sample in samples]
        return (
            first_deviation(stored, exact.found, noise),
            growth(self.program, stored, exact.found, noise),
        )

    def _deviating(self, deviation: Deviation) -> str:
        line = naming.line_of(self.program, deviation.instruction)
        opcode = self.program.instruction(deviation.instruction).opcode
        size = (
            f"{deviation.times:.3g} times what rounding explains there"
            if math.isfinite(deviation.times)
            else "no number"
        )
        return (
            f"{line}: {opcode} writes {deviation.got:.6g} where it would be {deviation.shadow:.6g} without rounding: "
            f"{size}"
        )

    def _costs(
        self, arguments: Mapping[int, Array], exact: Sequence[Float64], tolerances: Sequence[Tolerance]
    ) -> list[Cost]:
        """What the narrow roundings cost, line by line, as long as there is time."""
        chosen = lines(self.program, self.derivation.kinds, self.derivation.of)
        # what is not granted comes first: it is what can be wrong
        chosen.sort(key=lambda line: not (self.derivation.granted.wide & set(line.instructions)))
        found: list[Cost] = []
        allowed = [tolerance.allowed for tolerance in tolerances]
        last, before = 0.0, self.pace.spent
        for line in chosen[:LINES]:
            now = self.pace.spent
            last, before = now - before, now
            explained = self.costly and any(cost.share > 1 for cost in found)
            if explained or (found and self.pace.left < last):
                self.skipped.append(f"the roundings of {len(chosen) - len(found)} lines, for want of time")
                break
            self.pace.ran()
            found += costs(self.program, arguments, exact, allowed, [line])
        return found

    def _of_rounding(
        self,
        deviation: Deviation | None,
        spent: Sequence[Cost],
        factors: Mapping[int, float],
        right: Sequence[bool],
        tolerances: Sequence[Tolerance],
    ) -> Iterator[Cause]:
        """Causes where the Program is right without rounding."""
        program = self.program
        lost = self._lost()
        if lost is not None:
            found = self._repaired_as_stored() if lost.name in VAGUE else None
            yield lost if found is None else found
            return
        wide = self._wide_integers(tolerances)
        if wide is not None:
            yield wide
            return
        wrong = [at for at, fine in enumerate(right) if not fine]
        last = self.derivation.granted.exact
        dear = [
            cost
            for cost in spent
            if cost.output in wrong and cost.share > DEAREST and not last.issuperset(cost.line.instructions)
        ]
        seen = set()
        for cost in sorted(dear, key=lambda each: -each.share):
            if cost.line not in seen:
                seen.add(cost.line)
                yield naming.low_precision(program, cost.line, cost.share, self.derivation.granted.wide)
        if not dear:
            cause = naming.cancelled(program, factors)
            if cause is not None:
                yield cause
            elif deviation is not None:
                line = naming.line_of(program, deviation.instruction)
                yield Cause("rounding", self._deviating(deviation), line, "shadow")

    def _wide_integers(self, tolerances: Sequence[Tolerance]) -> Cause | None:
        """Integers that float32 does not hold and that are read as such, where that alone makes the output wrong."""
        found, outputs = narrowed(self.program, self.arguments)
        if not found or self._right(outputs, tolerances):
            return None
        return naming.wide_integers(self.program, *max(found.items(), key=lambda each: each[1]))

    def _right(self, outputs: Sequence[Float64], tolerances: Sequence[Tolerance]) -> bool:
        return all(
            tolerance.holds(one, want)
            for one, want, tolerance in zip(outputs, self.wanted, tolerances, strict=True)
        )

    def _lost(self) -> Cause | None:
        """The first NaN or infinity that only rounding to a dtype makes."""
        if not self.lost.found:
            return None
        wide = NotFinite(self.derivation.kinds, self.derivation.of)
        self.derivation.run(self.arguments, wide)
        for instruction, (value, largest) in self.lost.found.items():
            if instruction not in wide.found:
                return naming.not_finite(self.program, instruction, value, largest)
        return None

    def _repaired_as_stored(self) -> Cause | None:
        """A change with which the Program, rounded as it is, is right."""
        tolerances = [
            self._coarse(at, np.zeros_like(want), table().drawn) for at, want in enumerate(self.wanted)
        ]
        for repair in islice(self._repairs(), STORED):
            if self.pace.left < 0:
                self.skipped.append("changes of the run as stored, for want of time")
                return None
            self.pace.ran()
            given = {**self.arguments, **repair.arguments}
            try:
                found = execute(repair.program, given, around=repair.around).outputs
            except MEANINGLESS as error:
                self.skipped.append(f"a change that only fits unrounded runs ({repair.cause}: {error})")
                continue
            have = [self._numbers(at, output.values) for at, output in enumerate(found)]
            if self._right(have, tolerances):
                line = naming.line_of(self.program, repair.instruction)
                return Cause(repair.cause, repair.sentence, line, "repair")
        return None

    def _of_algorithm(self, exact: Sequence[Float64], tolerances: Sequence[Tolerance]) -> Iterator[Cause]:
        """Causes where the Program is wrong even without rounding: the first change that makes it right."""
        if self.reference is not None:
            # what is always the same, and what is never read, is known without an execution
            found = next(self._explanations(exact, tries=1) if self.costly else self._constants(exact), None)
            if found is not None:
                yield found
                return
        repair = self._repair(tolerances)
        if repair is not None:
            line = naming.line_of(self.program, repair.instruction)
            yield Cause(repair.cause, repair.sentence, line, "repair")
            return
        others = list(self._without_repair(exact))
        yield from others
        left = None if others else self._departure(tolerances)
        if left is not None:
            yield self._departing(left)

    def _departing(self, found: Departure) -> Cause:
        name = "step-differs" if found.proven else "leaves-reference"
        return Cause(name, found.sentence, naming.line_of(self.program, found.instruction), "alignment")

    def _departure(self, tolerances: Sequence[Tolerance]) -> Departure | None:
        """Where the Program leaves its reference."""
        if self.observed is None:
            return None
        if self.costly and self.pace.left < ALIGNED * self.pace.once:
            self.skipped.append("the steps of the reference, for want of time")
            return None
        end = self.pace.spent + max(self.pace.left, self.pace.seconds * RESERVED)
        try:
            observed = self.observed()
        except ValueError as error:
            self.skipped.append(f"the steps of the reference: {error}")
            return None

        def wrong(outputs: Sequence[Float64]) -> float:
            over = [
                int(np.count_nonzero(tolerance.use(have, want) > 1))
                for have, want, tolerance in zip(outputs, self.wanted, tolerances, strict=True)
            ]
            return sum(over) / max(sum(want.size for want in self.wanted), 1)

        return departure(
            self.derivation,
            self.arguments,
            observed,
            wrong,
            rounded=self.rounded,
            more=lambda: self._more(end),
        )

    def _more(self, end: float) -> bool:
        """True where there is time for another run that is watched."""
        self.pace.ran(WATCHED)
        return self.pace.spent < end

    def _repair(self, tolerances: Sequence[Tolerance]) -> Repair | None:
        """The first change that makes it right; of those that are hard to tell apart the one that leaves least."""
        reserved = 0.0 if self.observed is None else self.pace.seconds * RESERVED
        before = last = self.pace.spent
        best: tuple[float, Repair] | None = None
        beside = 0
        for tried, repair in enumerate(self._repairs()):
            if best is not None and not _alike(repair, best[1]):
                beside += 1
                if beside > BESIDE or best[1].cause not in TOLD_APART:
                    break
                continue
            now = self.pace.spent
            last, before = now - before, now
            if tried and self.pace.left - reserved < last:
                self.skipped.append(f"repairs after the first {tried}, for want of time")
                break
            self.pace.ran()
            try:
                left = self._repaired(repair, tolerances)
            except MEANINGLESS as error:
                self.skipped.append(f"a change that does not fit everywhere ({repair.cause}: {error})")
                continue
            if left is not None and (best is None or left < best[0]):
                best = left, repair
        return None if best is None else best[1]

    def _without_repair(self, exact: Sequence[Float64]) -> Iterator[Cause]:
        """Causes that need no change of the Program: where NaN begins, and experiments on the reference."""
        if any(
            not np.isfinite(have[np.isfinite(want)]).all()
            for have, want in zip(exact, self.wanted, strict=True)
        ):
            watch = NotFinite(self.derivation.kinds, self.derivation.of)
            self.derivation.run(self.arguments, watch)
            for instruction, (value, largest) in watch.found.items():
                yield naming.not_finite(self.program, instruction, value, largest)
                break
        if self.reference is not None:
            if self.pace.left < 0:
                self.skipped.append("experiments on the reference, for want of time")
                return
            yield from islice(self._explanations(exact, FEW_TRIES if self.costly else TRIES), 1)

    def _constants(self, exact: Sequence[Float64]) -> Iterator[Cause]:
        assert self.reference is not None
        for found in flows.constants(self.program, self.arguments, exact, self.wanted, self.reference):
            yield Cause(found.cause, found.sentence, "", "reference")

    def _explanations(self, exact: Sequence[Float64], tries: int) -> Iterator[Cause]:
        assert self.reference is not None
        found_by = flows.explanations(
            self.program, self.arguments, exact, self.wanted, self.reference, tries=tries
        )
        for found in found_by:
            yield Cause(found.cause, found.sentence, "", "reference")

    def _repairs(self) -> Iterator[Repair]:
        """All repairs; those that say least about why come last."""
        late: list[Repair] = []
        for repair in chain(*self._families()):
            if repair.cause in LATE:
                late.append(repair)
            else:
                yield repair
        yield from late

    def _families(self) -> Iterator[Iterator[Repair]]:
        yield algebra.repairs(self.flow)
        yield flows.repairs(self.flow, self.arguments)
        yield arrangement.repairs(self.flow, self.arguments)
        yield habits.repairs(self.flow, self.arguments)

    def _repaired(self, repair: Repair, tolerances: Sequence[Tolerance]) -> float | None:
        """The rms error that a repair leaves, as a share of the output; None where some element is still wrong."""
        found = execute(
            repair.program,
            {**self.arguments, **repair.arguments},
            compute=np.float64,
            rounding="off",
            around=repair.around,
        )
        left = 0.0
        for output, want, tolerance in zip(found.outputs, self.wanted, tolerances, strict=True):
            have = np.asarray(output.values, np.float64)
            if not tolerance.holds(have, want):
                return None
            with np.errstate(invalid="ignore"):
                left = max(
                    left,
                    root_mean_square(have - want) / max(root_mean_square(want), np.finfo(np.float64).tiny),
                )
        return left

    def _line_costs(self, spent: Sequence[Cost]) -> Iterator[LineCost]:
        for cost in sorted(spent, key=lambda each: -each.share):
            line = cost.line
            yield LineCost(
                naming.line_of(self.program, line.instructions[0]),
                line.opcode,
                line.dtype,
                len(line.instructions),
                cost.error,
                cost.share,
            )

    def _output(self, at: int, used: Used, tolerance: Tolerance, known: bool) -> OutputDiagnosis:
        have, want = self.got[at], self.wanted[at]
        index = tuple(int(axis) for axis in np.unravel_index(used.place, have.shape)) if have.ndim else ()
        shown: tuple[Pattern, ...] = ()
        if used.over and not (known and self.pace.left < 0):
            shown = patterns(have, want, tolerance.allowed)
        return OutputDiagnosis(
            name=self.program.outputs[at].name,
            verdict="defect" if used.over else "rounding",
            tolerance=tolerance,
            use=used.largest,
            over=used.over,
            elements=used.elements,
            index=index,
            got=float(have[index]),
            wanted=float(want[index]),
            patterns=shown,
            values=have,
        )


def _alike(repair: Repair, best: Repair) -> bool:
    """True where a repair says the same of the same place with another number, or what is hard to tell from it."""
    if {repair.cause, best.cause} <= TOLD_APART:
        return True
    return (repair.cause, repair.instruction) == (best.cause, best.instruction)
