"""Case: one workload with its survey and its time, as the rules of performance look at it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nkireview import hardware
from nkireview.checks.ran import Ran, ran
from nkireview.checks.survey import Survey
from nkireview.hardware import Hardware
from nkireview.isa.enums import Engine, Memory
from nkireview.isa.table import ROWS
from nkireview.program.interning import Ints
from nkireview.program.program import Program
from nkireview.rules.facts import Facts, WorkloadFacts
from nkireview.rules.finding import Severity
from nkireview.rules.rule import LEAST_NS, SHARE, Draft, weighed
from nkireview.schedule.parameters import Figures
from nkireview.schedule.timing import Timing

Floats = NDArray[np.float64]
MENTIONED = 0.05
"""Least share of the predicted time at stake for a performance finding to be made at all."""
MENTIONED_NS = 2000.0
"""Least time at stake, in ns, for a performance finding to be made at all."""
LONG_NS = 20_000.0
"""Predicted time from which on its makeup as a whole is a matter."""
SHOWN = 8
"""Places that a finding names."""


@dataclass(frozen=True, eq=False)
class Case:
    """A workload that has a Program, a survey and a schedule."""

    name: str
    program: Program
    survey: Survey
    timing: Timing

    @cached_property
    def hardware(self) -> Hardware:
        """The target."""
        return hardware.target(self.program.header.target)

    @cached_property
    def figures(self) -> Figures:
        """Figures of the target, or those of trn2 where it has none."""
        return Figures(self.hardware)

    @property
    def total_ns(self) -> float:
        """The predicted time."""
        return self.timing.total_ns

    def code(self, *opcodes: str) -> Ints:
        """The numbers of opcodes in this Program."""
        return np.array([n for n, o in enumerate(self.program.opcodes) if o.name in opcodes], np.int64)

    def runs(self, *opcodes: str) -> Ints:
        """The instructions of some opcodes."""
        return np.flatnonzero(np.isin(self.program.columns.opcode, self.code(*opcodes)))

    def operand(self, instructions: Ints, name: str) -> Ints:
        """The access of an operand of each instruction, -1 where it has none."""
        columns = self.program.columns
        slots = np.array(
            [o.operands.index(name) if name in o.operands else -1 for o in self.program.opcodes], np.int64
        )
        slot = slots[columns.opcode[instructions]] if len(slots) else np.zeros(0, np.int64)
        found = np.full(len(instructions), -1, np.int64)
        held = slot >= 0
        found[held] = columns.operand[columns.operand_at[instructions[held]] + slot[held]]
        return found

    def chosen(self, instructions: Ints, test: Callable[[dict[str, object]], bool]) -> NDArray[np.bool_]:
        """Which instructions have immediates that pass a test."""
        numbers = self.program.columns.immediates[instructions]
        passed = {n: test(dict(self.program.immediates[n])) for n in np.unique(numbers).tolist()}
        return np.array([passed[n] for n in numbers.tolist()], bool)

    def buffers(self, accesses: Ints) -> Ints:
        """The buffers of accesses, -1 where there is none."""
        found = np.full(len(accesses), -1, np.int64)
        held = accesses >= 0
        found[held] = self.program.columns.access_buffer[accesses[held]]
        return found

    def stake(self, instructions: Ints, factor: float | Floats) -> float:
        """The ns saved if instructions cost `factor` of what they cost; an upper bound where that is little.

        Only what could make a finding rise above a note is scheduled again.
        """
        scale = np.ones(len(self.program))
        scale[instructions] = factor
        saved = (self.timing.held_ns * self.survey.times * (1 - scale)).sum()
        gone = np.count_nonzero((scale == 0)[self.survey.moves.instruction])
        most = float(saved) + int(gone) * self.figures.number("dma.fixed_latency_ns")
        if most < LEAST_NS or most < SHARE * self.total_ns:
            return most
        return self.timing.stake(scale)

    def merged(self, rows: Ints, groups: int, factor: float) -> float:
        """The ns saved if each `groups` of these DMAs were one, which moves its bytes in `factor` of the time.

        Between what is won if all cost `factor`, and if all but one of each group are gone, within HBM's bandwidth.
        """
        scaled = self.stake(rows, factor)
        if groups < 2:
            return scaled
        keep = np.zeros(len(rows))
        keep[::groups] = 1.0
        gone = min(self.stake(rows, keep), self.total_ns - self.transfer_floor_ns)
        return max(scaled, gone)

    @cached_property
    def ran(self) -> Ran:
        """What runs; of the legacy generation, what its compiler makes of what is written."""
        return ran(self.timing, self.survey)

    @cached_property
    def moved_bytes(self) -> float:
        """Bytes that what runs moves over HBM."""
        moves = self.survey.moves
        ends = moves.loads.astype(np.float64) + moves.stores
        written = float((moves.bytes * self.ran.times[moves.instruction] * ends).sum())
        return written + self.ran.spilled + self.ran.restored

    @cached_property
    def transfer_floor_ns(self) -> float:
        """The time HBM needs for all that is moved."""
        cores = len({stream.core for stream in self.program.streams}) or 1
        return self.moved_bytes / self.figures.number("hbm.bandwidth_per_core") * 1e9 / cores

    @property
    def free_sbuf(self) -> int:
        """Bytes of a partition of SBUF that nothing holds at the fullest moment."""
        spaces = (space for space in self.survey.space if space.memory is Memory.sbuf)
        return max(min((space.usable - space.peak for space in spaces), default=0), 0)

    def busy(self, engine: Engine) -> float:
        """The ns for which the engine computes, on the core where it is busiest."""
        line = self.timing.timeline
        found = [
            float((line.stop - line.start)[line.of(lane)].sum())
            for lane in line.lanes
            if lane.name == engine.name
        ]
        return max(found, default=0.0)

    def worth(self, gain_ns: float) -> bool:
        """True where a finding is made at all."""
        return gain_ns > max(MENTIONED * self.total_ns, MENTIONED_NS)

    def telling(self, gain_ns: float) -> bool:
        """True where a note that asks for a choice, and names no mistake, is made at all."""
        return gain_ns >= LEAST_NS and gain_ns >= SHARE * self.total_ns

    def draft(
        self,
        severity: Severity,
        message: str,
        instructions: Ints | Sequence[int],
        *,
        gain_ns: float,
        group: str,
        change: str = "",
        legacy: str = "",
    ) -> Draft:
        """A finding about instructions, with this gain; the severity falls to a note where it is little."""
        at = np.asarray(instructions, np.int64)
        places = self.places(at)
        return Draft(
            message=f"{message} ({places[0]})" if places else message,
            places=places,
            count=max(len(at), 1),
            workload=self.name,
            severity=weighed(severity, gain_ns, self.total_ns),
            group=group,
            change=change,
            gain_ns=round(gain_ns, 1),
            legacy=legacy,
        )

    def places(self, instructions: Ints) -> tuple[str, ...]:
        """The lines of instructions, those that cost most first."""
        place = self.program.columns.place[instructions].astype(np.int64)
        spent = (self.timing.held_ns * self.survey.times)[instructions]
        known, of = np.unique(place, return_inverse=True)
        weight = np.bincount(of.reshape(-1), weights=spent, minlength=len(known))
        texts = [self.program.place_text(int(known[at])) for at in np.argsort(-weight, kind="stable")]
        return tuple(dict.fromkeys(text for text in texts if text))[:SHOWN]

    def label(self, buffer: int) -> str:
        """How a reader knows a buffer."""
        return label_of(self.program, buffer)

    def by_label(self, buffers: Iterable[int]) -> dict[str, list[int]]:
        """Buffers by how a reader knows them: those made at one line are one."""
        found: dict[str, list[int]] = {}
        for buffer in buffers:
            found.setdefault(self.label(buffer), []).append(buffer)
        return found

    def labels(self, buffers: Collection[int], most: int = 4) -> str:
        """Several buffers in words, those made at one line once."""
        names = list(self.by_label(buffers))
        rest = f" and {len(names) - most} more" if len(names) > most else ""
        return ", ".join(names[:most]) + rest


def scheduled(find: Callable[[Case], Iterable[Draft]]) -> Callable[[Facts], Iterator[Draft]]:
    """Look at every workload that was scheduled."""

    def over(facts: Facts) -> Iterator[Draft]:
        for workload in facts.workloads:
            case = case_of(workload)
            if case is not None and case.total_ns > 0:
                yield from find(case)

    return over


def case_of(workload: WorkloadFacts) -> Case | None:
    """The case of a workload; None where it has no Program, no time, or an instruction nobody can time."""
    if workload.program is None or workload.survey is None or workload.timing is None:
        return None
    if any(opcode.name not in ROWS for opcode in workload.program.opcodes):
        return None
    return Case(workload.name, workload.program, workload.survey, workload.timing)


def label_of(program: Program, buffer: int) -> str:
    """How a reader knows a buffer of a program."""
    for path, number in program.parameter_buffers:
        if number == buffer:
            return path
    held = program.buffer(buffer)
    for output in program.outputs:
        if program.access(output.access).buffer == buffer:
            return f"output {output.name}"
    if held.name:
        return held.name
    where = program.place_text(held.place)
    memory = {Memory.sbuf: "SBUF tile", Memory.psum: "PSUM tile"}.get(held.memory, "HBM tensor")
    return f"the {memory} made at {where}" if where else f"{memory} #{buffer}"


def in_bytes(count: float) -> str:
    """Bytes in words, three digits."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} B"


def in_time(ns: float) -> str:
    """A time in words."""
    for unit, size in (("ms", 1e6), ("us", 1e3)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns:.0f} ns"


def share(part: float, whole: float) -> str:
    """A share in whole percent."""
    return f"{100 * part / whole:.0f}%" if whole else "0%"
