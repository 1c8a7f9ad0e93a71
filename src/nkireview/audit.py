"""Audit: which lines of a Program are wider than their outputs need, and which are too narrow for what they promise.

It is decided by experiment. The buffers of one line get another dtype, with those that the instruction set wants in the
same dtype; the Program that results is verified, executed and priced like any other. Rounding explains a given
absolute error of each output element, the bound; what a line uses of it is the largest ratio of error to bound.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.checks.counts import loop_trips
from nkireview.execute import execute
from nkireview.isa import dtypes
from nkireview.isa.enums import Memory
from nkireview.isa.table import ROWS
from nkireview.program.interning import intern
from nkireview.program.program import MEMORIES, Program
from nkireview.program.scope import Scope
from nkireview.program.storage import storage
from nkireview.program.verify import Violation, verify
from nkireview.schedule.costs import LANES, costs
from nkireview.schedule.parameters import Figures, Parameters
from nkireview.schedule.timing import Timing
from nkireview.timeline.summary import summary

Array = NDArray[Any]
NARROWER: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "float32": ("bfloat16", "float16"),
        "tfloat32": ("bfloat16", "float16"),
        "bfloat16": ("float8_e4m3",),
        "float16": ("float8_e4m3",),
    }
)
"""What a dtype is tried as, the one to prefer first."""
EXECUTIONS = 24
"""Variants of a Program that are executed at most, those that gain most first."""
WORKING = tuple(name for name in LANES if name != "sync")
"""Lanes whose busy time counts; what a DMA waits for at the queue that issues it is no matter of its dtype."""
ROUNDS = 4
"""Times that lines are added to a variant until the instruction set allows it."""
BOUND = 10
"""How much more a gain counts on the lane that the whole waits for."""
LEAST_NS = 1.0
"""Busy time below which a line gains nothing."""
_TRANSFERS = ("DMA engines", "HBM")
VERDICTS = ("keep", "could be", "must be")


@dataclass(frozen=True)
class Gain:
    """Busy time of a lane, in ns, that the narrower dtype saves, below 0 costs; `bound`: the whole waits for it."""

    lane: str
    ns: float
    bound: bool


@dataclass(frozen=True)
class LineVerdict:
    """What becomes of the buffers of some lines.

    `verdict` is ``keep``, ``could be`` or ``must be`` (the dtype `to`). `gains`: what the narrower of the two dtypes
    saves, by lane, and `saved_ns` what of it the predicted time shows; None where it was not predicted. `use`: largest
    ratio of error to bound with the narrower dtype; None where that was not executed. `why`: a clause.
    """

    places: tuple[str, ...]
    dtype: str
    verdict: str
    to: str
    gains: tuple[Gain, ...]
    saved_ns: float | None
    use: float | None
    why: str

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ValueError(f"verdict {self.verdict!r} is not one of {', '.join(VERDICTS)}")

    @property
    def sentence(self) -> str:
        """The verdict in one sentence."""
        where = ", ".join(self.places) or "a line without a place"
        if self.verdict == "keep":
            return f"{where}: {self.dtype} can stay: {self.why}"
        return f"{where}: {self.dtype} {self.verdict} {self.to}: {self.why}"


@dataclass(frozen=True)
class Audit:
    """The verdicts of a Program's lines, the largest gain first.

    `use`: largest ratio of error to bound of each output as the Program is; beyond 1 nothing narrower is tried.
    `wide_use`: the same over all outputs with every line at least as wide as the widest input; None where none is
    narrower. `together`: all float32 lines as bfloat16 at once, None where that is not allowed or saves nothing.
    `untried`: variants that were not executed, because there were too many. `bound_by`: the lane that the whole waits
    for.
    """

    lines: tuple[LineVerdict, ...]
    use: tuple[float, ...]
    wide_use: float | None
    together: LineVerdict | None
    untried: int
    bound_by: str


def audit(
    program: Program,
    arguments: Mapping[int, Array],
    wanted: Sequence[Array],
    allowed: Sequence[Array],
    *,
    trips: Mapping[int, int] | None = None,
    most: int = EXECUTIONS,
) -> Audit:
    """Judge the dtypes of a Program's lines on one set of arguments.

    arguments: as `execute` takes them. wanted: the right value of each output, in order. allowed: the absolute error of
    each element that rounding explains, of the same shapes. trips: index of a loop in the program -> its trip count,
    where its bounds are not numbers. most: variants to execute. Raise ValueError for arrays that do not fit the
    outputs, ProgramError for a Program that cannot be judged.
    """
    bench = _Bench(program, arguments, _checked(program, wanted, allowed), trips or {}, most)
    lines = _lines(program)
    use = bench.uses(program)
    narrow, wide_use = _too_narrow(bench, lines, max(use, default=0.0))
    # a Program that misses its bound as it is says nothing about what narrower lines would cost
    wide, together = _too_wide(bench, lines) if max(use, default=0.0) <= 1 else ([], None)
    told = {place for line in narrow for place in line.places}
    wide = [line for line in wide if line.verdict != "keep" or not told.issuperset(line.places)]
    found = sorted((*narrow, *wide), key=lambda line: -sum(gain.ns for gain in line.gains))
    return Audit(tuple(found), use, wide_use, together, bench.untried, bench.bound_by)


Target = tuple[NDArray[np.float64], NDArray[np.float64]]


def _checked(program: Program, wanted: Sequence[Array], allowed: Sequence[Array]) -> tuple[Target, ...]:
    outputs = program.outputs
    if not len(wanted) == len(allowed) == len(outputs):
        raise ValueError(
            f"audit takes a wanted and an allowed array for each of {len(outputs)} outputs, "
            f"got {len(wanted)} and {len(allowed)}"
        )
    found = []
    for output, right, error in zip(outputs, wanted, allowed, strict=True):
        shape = program.access(output.access).shape
        for name, given in (("wanted", right), ("allowed", error)):
            if np.shape(given) != shape:
                raise ValueError(
                    f"output {output.name} has the shape {list(shape)}, its {name} array has {list(np.shape(given))}"
                )
        bound = np.asarray(error, np.float64)
        if not (bound >= 0).all():
            raise ValueError(
                f"the allowed error of output {output.name} is negative or NaN in places, expected numbers from 0 on"
            )
        found.append((np.asarray(right).astype(np.float64), bound))
    return tuple(found)


def used(got: Array, wanted: Array, allowed: Array) -> float:
    """The largest ratio of error to bound; infinite where an error has no bound, or one of the two is not finite."""
    values = np.asarray(got).astype(np.float64)
    with np.errstate(all="ignore"):
        same = (values == wanted) | (np.isnan(values) & np.isnan(wanted))
        ratio = np.where(same, 0.0, np.abs(values - wanted) / allowed)
    return float(np.where(np.isnan(ratio), np.inf, ratio).max(initial=0.0))


@dataclass(frozen=True)
class _Line:
    """Buffers made at one place in one dtype and memory; `free`: they may be given another dtype on their own."""

    place: int
    dtype: str
    memory: Memory
    buffers: tuple[int, ...]
    free: bool


def _lines(program: Program) -> tuple[_Line, ...]:
    """The lines of floats that the contract leaves to the kernel and no access reads as another dtype."""
    columns = program.columns
    fixed = np.zeros(columns.buffers, bool)
    fixed[[buffer for _, buffer in program.parameter_buffers]] = True
    fixed[columns.access_buffer[[output.access for output in program.outputs]]] = True
    fixed[list(program.buffer_constants)] = True
    fixed[columns.access_buffer[columns.access_dtype != columns.buffer_dtype[columns.access_buffer]]] = True
    floats = np.array([dtypes.of(name).kind == "float" for name in program.dtypes], bool)
    fixed |= ~floats[columns.buffer_dtype]
    fixed |= _shared(program)
    rows = np.flatnonzero(~fixed)
    classes = intern(
        [columns.buffer_place[rows], columns.buffer_dtype[rows], columns.buffer_memory[rows]], len(rows)
    )
    found = []
    for number, first in enumerate(classes.first.tolist()):
        buffers = rows[classes.of == number]
        row = int(rows[first])
        memory = MEMORIES[int(columns.buffer_memory[row])]
        place = int(columns.buffer_place[row])
        dtype = program.dtypes[int(columns.buffer_dtype[row])]
        found.append(_Line(place, dtype, memory, tuple(buffers.tolist()), memory is not Memory.psum))
    return tuple(found)


def _shared(program: Program) -> NDArray[np.bool_]:
    """Buffers at addresses that another buffer also covers, whose bytes may be read as something else."""
    held = storage(program, ROWS)
    found = np.zeros(program.columns.buffers, bool)
    counts = np.bincount(held.of_buffer, minlength=held.count)
    found[counts[held.of_buffer] > 1] = True
    found[np.isin(held.of_buffer, list(held.touching))] = True
    return found


def retyped(program: Program, buffers: Collection[int], dtype: str) -> Program:
    """The Program with buffers, and all accesses to them, of another dtype; their shapes stay."""
    columns = program.columns
    table = program.dtypes if dtype in program.dtypes else (*program.dtypes, dtype)
    code = table.index(dtype)
    mine = np.zeros(columns.buffers, bool)
    mine[list(buffers)] = True
    held, read = columns.buffer_dtype.copy(), columns.access_dtype.copy()
    held[mine] = code
    read[mine[columns.access_buffer]] = code
    return replace(program, dtypes=table, columns=replace(columns, buffer_dtype=held, access_dtype=read))


@dataclass(frozen=True)
class _Variant:
    """Lines that change dtype together, and the Program where they have; `fault`: why that is not allowed."""

    lines: tuple[_Line, ...]
    dtype: str
    program: Program
    fault: str = ""


@dataclass
class _Bench:
    """What all experiments share: executions, prices, and how many executions are left."""

    program: Program
    arguments: Mapping[int, Array]
    targets: tuple[Target, ...]
    trips: Mapping[int, int]
    left: int
    untried: int = 0

    def uses(self, program: Program) -> tuple[float, ...]:
        """What each output uses of its bound."""
        ran = execute(program, self.arguments)
        return tuple(
            used(output.values, *target) for output, target in zip(ran.outputs, self.targets, strict=True)
        )

    def tried(self, program: Program) -> float | None:
        """What a variant uses of the bound; None where no execution is left."""
        if self.left <= 0:
            self.untried += 1
            return None
        self.left -= 1
        return max(self.uses(program), default=0.0)

    @cached_property
    def timing(self) -> Timing:
        """The Program in time."""
        return Timing(self.program, trips=self.trips)

    @cached_property
    def bound_by(self) -> str:
        """The lane that the whole waits for; empty where nothing runs."""
        found = summary(self.timing.timeline).bound_by
        return "dma" if found in _TRANSFERS else found

    @cached_property
    def busy(self) -> NDArray[np.float64]:
        """Busy time of each lane of the Program as it is, in ns."""
        return self.busy_of(self.program)

    def busy_of(self, program: Program) -> NDArray[np.float64]:
        """Busy time of each lane, in ns: what holds a queue there, and for ``dma`` what holds DMA engines."""
        scope = Scope.of(program)
        priced = costs(scope, Figures(scope.hardware), Parameters())
        try:
            runs = loop_trips(program, self.trips).astype(np.float64)
        except ValueError:
            runs = np.ones(len(program))
        found = np.zeros(len(LANES))
        lanes = np.minimum(priced.lane, len(LANES) - 1)
        np.add.at(found, lanes, priced.held * runs)
        found[LANES.index("dma")] += float((priced.transfer * runs).sum())
        return found

    def saved(self, program: Program) -> float:
        """Predicted time that a variant saves, in ns; below 0 where it takes longer."""
        return self.timing.total_ns - Timing(program, trips=self.trips).total_ns

    def gains(self, before: NDArray[np.float64], after: NDArray[np.float64]) -> tuple[Gain, ...]:
        """What lanes save, most first."""
        found = [
            Gain(name, float(ns), name == self.bound_by)
            for name, ns in zip(LANES, before - after, strict=True)
            if abs(ns) >= LEAST_NS and name in WORKING
        ]
        return tuple(sorted(found, key=lambda gain: -gain.ns))

    @cached_property
    def faults(self) -> frozenset[tuple[object, ...]]:
        """What is wrong with the Program as it is."""
        return frozenset(_key(violation) for violation in verify(self.program))

    def variant(self, lines: Sequence[_Line], line: _Line, dtype: str) -> _Variant:
        """A line in another dtype, with those that must have the same."""
        chosen = [line]
        for _ in range(ROUNDS):
            made = retyped(self.program, [b for each in chosen for b in each.buffers], dtype)
            fresh = [each for each in verify(made) if _key(each) not in self.faults]
            if not fresh:
                return _Variant(tuple(chosen), dtype, made)
            more = [each for each in _beside(made, fresh[0], lines, line.dtype) if each not in chosen]
            if not more:
                return _Variant(tuple(chosen), dtype, made, fresh[0].message)
            chosen.extend(more)
        return _Variant(tuple(chosen), dtype, self.program, "too many lines would have to change with it")


def _key(violation: Violation) -> tuple[object, ...]:
    return violation.row, violation.subject, violation.number, violation.place


def _beside(program: Program, violation: Violation, lines: Sequence[_Line], dtype: str) -> list[_Line]:
    """The lines of a dtype that a violation's first instruction uses: those in SBUF, else those in PSUM."""
    if not violation.instructions:
        return []
    columns = program.columns
    index = violation.instructions[0]
    accesses = columns.operand[columns.operand_at[index] : columns.operand_at[index + 1]]
    buffers = set(columns.access_buffer[accesses[accesses >= 0]].tolist())
    # those that change already have another dtype
    held = {buffer for buffer in buffers if program.dtypes[int(columns.buffer_dtype[buffer])] == dtype}
    near = [line for line in lines if line.dtype == dtype and held & set(line.buffers)]
    return [line for line in near if line.free] or near


def _too_wide(bench: _Bench, lines: Sequence[_Line]) -> tuple[list[LineVerdict], LineVerdict | None]:
    """The lines that could be narrower, and all of them at once."""
    found: list[LineVerdict] = []
    seen: set[tuple[tuple[int, ...], str]] = set()
    trials: list[tuple[float, _Variant, tuple[Gain, ...]]] = []
    by_line: dict[_Line, list[LineVerdict]] = {}
    for line in lines:
        if not line.free or line.dtype not in NARROWER:
            continue
        kept: list[LineVerdict] = []
        by_line[line] = kept
        for dtype in NARROWER[line.dtype]:
            made = bench.variant(lines, line, dtype)
            key = tuple(sorted(buffer for each in made.lines for buffer in each.buffers)), dtype
            if key in seen:
                continue
            seen.add(key)
            if made.fault:
                kept.append(_keep(bench, made, f"{dtype} is not allowed ({made.fault})"))
                continue
            gains = bench.gains(bench.busy, bench.busy_of(made.program))
            weight = _weight(gains)
            if not any(gain.ns > 0 for gain in gains):
                kept.append(_keep(bench, made, f"{dtype} would save no time", gains))
            else:
                trials.append((weight, made, gains))
    for _, made, gains in sorted(trials, key=lambda trial: -trial[0]):
        by_line[made.lines[0]].append(_tried(bench, made, gains))
    for kept in by_line.values():
        if kept:
            order = NARROWER[kept[0].dtype].index
            found.append(
                min(kept, key=lambda each: (each.verdict != "could be", each.use is None, order(each.to)))
            )
    return found, _together(bench, lines)


def _weight(gains: Sequence[Gain]) -> float:
    """How much gains count: what the whole waits for counts most."""
    return sum(gain.ns * (BOUND if gain.bound else 1) for gain in gains)


def _keep(bench: _Bench, made: _Variant, why: str, gains: tuple[Gain, ...] = ()) -> LineVerdict:
    return LineVerdict(
        _places(bench.program, made.lines), made.lines[0].dtype, "keep", made.dtype, gains, None, None, why
    )


def _tried(bench: _Bench, made: _Variant, gains: tuple[Gain, ...]) -> LineVerdict:
    use = bench.tried(made.program)
    saved = bench.saved(made.program)
    if use is None:
        return replace(_keep(bench, made, f"{made.dtype} was not tried"), gains=gains, saved_ns=saved)
    gained = saved > -LEAST_NS and _weight(gains) >= LEAST_NS
    if use > 1:
        why = f"as {made.dtype} the error is {_times(use)} the bound"
    elif not gained:
        why = f"as {made.dtype} the error uses {_share(use)} of the bound, but it costs as much: {_lanes(gains)}"
    else:
        why = f"{_saving(gains, saved)}; the error uses {_share(use)} of the bound"
    return LineVerdict(
        _places(bench.program, made.lines),
        made.lines[0].dtype,
        "could be" if use <= 1 and gained else "keep",
        made.dtype,
        gains,
        saved,
        use,
        why,
    )


def _together(bench: _Bench, lines: Sequence[_Line]) -> LineVerdict | None:
    wide = [line for line in lines if line.free and line.dtype == "float32"]
    if len(wide) < 2:
        return None
    made = retyped(bench.program, [buffer for line in wide for buffer in line.buffers], "bfloat16")
    fresh = [each for each in verify(made) if _key(each) not in bench.faults]
    variant = _Variant(tuple(wide), "bfloat16", made, fresh[0].message if fresh else "")
    if fresh:
        return None
    gains = bench.gains(bench.busy, bench.busy_of(made))
    if _weight(gains) < LEAST_NS:
        return None
    return _tried(bench, variant, gains)


def _too_narrow(bench: _Bench, lines: Sequence[_Line], use: float) -> tuple[list[LineVerdict], float | None]:
    """The lines narrower than the widest input, and what is used of the bound without them."""
    wide = _widest(bench.program)
    low = [line for line in lines if line.free and _digits(line.dtype) < _digits(wide)] if wide else []
    if not low:
        return [], None
    units = list(_units(bench, lines, low, wide))
    widened = retyped(bench.program, [b for unit in units for line in unit.lines for b in line.buffers], wide)
    wide_use = max(bench.uses(widened), default=0.0)
    blamed = use > 1 >= wide_use
    found = []
    for unit in units:
        others = [b for other in units if other is not unit for line in other.lines for b in line.buffers]
        alone = use if len(units) == 1 else None
        if blamed and alone is None:
            alone = bench.tried(retyped(bench.program, others, wide))
        found.append((unit, alone))
    worst = max((alone for _, alone in found if alone is not None), default=0.0)
    verdicts = []
    for unit, alone in found:
        gains = bench.gains(bench.busy_of(unit.program), bench.busy)
        saved = -bench.saved(unit.program)
        bought = _saving(gains, saved) if sum(gain.ns for gain in gains) >= LEAST_NS else "it saves no time"
        must = blamed and alone is not None and (alone > 1 or alone == worst)
        if must and alone is not None:
            why = f"{bought}, bought with correctness: because of it the error is {_times(alone)} the bound"
        elif use <= 1:
            why = f"{bought}; the error uses {_share(use)} of the bound"
        elif blamed and alone is None:
            why = f"{bought}; whether the error comes from it was not tried"
        elif blamed:
            why = f"{bought}; the error of the output comes from other lines"
        else:
            why = f"{bought}; the error is {_times(use)} the bound, and {_times(wide_use)} with {wide} throughout"
        verdicts.append(
            LineVerdict(
                _places(bench.program, unit.lines),
                unit.lines[0].dtype,
                "must be" if must else "keep",
                wide if must else unit.lines[0].dtype,
                gains,
                saved,
                alone if blamed else use,
                why,
            )
        )
    return verdicts, wide_use


def _units(bench: _Bench, lines: Sequence[_Line], low: Sequence[_Line], wide: str) -> Iterator[_Variant]:
    """Lines to widen, each once, with those that must change with them."""
    seen: set[_Line] = set()
    for line in low:
        if line in seen:
            continue
        made = bench.variant(lines, line, wide)
        if made.fault:
            # what rounding costs is seen whether or not the instruction set would take it
            made = replace(made, program=retyped(bench.program, line.buffers, wide), lines=(line,))
        seen.update(made.lines)
        yield made


def _widest(program: Program) -> str:
    """The float dtype of most digits among the parameters; empty where there is none."""
    names = {program.buffer(buffer).dtype for _, buffer in program.parameter_buffers}
    return max((name for name in names if dtypes.of(name).kind == "float"), key=_digits, default="")


def _digits(name: str) -> int:
    return dtypes.BY_NAME[name].significand_bits


def _places(program: Program, lines: Sequence[_Line]) -> tuple[str, ...]:
    """``file:line`` of each, with the line that called it where it stands in a function of its own."""
    found: dict[str, None] = {}
    for line in lines:
        text = program.place_text(line.place)
        frames = program.places[line.place] if line.place >= 0 else ()
        if len(frames) > 1:
            text += f" (for line {frames[1].line})"
        if text:
            found[text] = None
    return tuple(found)


def _saving(gains: Sequence[Gain], saved: float) -> str:
    lanes = _lanes(gains)
    return f"it saves {_us(saved)} of the whole ({lanes})" if saved > LEAST_NS else lanes


def _lanes(gains: Sequence[Gain]) -> str:
    parts = []
    for gain in gains:
        change = "less" if gain.ns > 0 else "more"
        parts.append(f"{gain.lane} {_us(gain.ns)} {change}{', which is the bound' if gain.bound else ''}")
    return "; ".join(parts)


def _us(ns: float) -> str:
    return f"{abs(ns) / 1000:.3g} us"


def _share(use: float) -> str:
    return f"{use:.0%}" if use >= 0.01 else "less than 1%"


def _times(use: float) -> str:
    return f"{use:.3g} times" if np.isfinite(use) else "beyond any number of times"
