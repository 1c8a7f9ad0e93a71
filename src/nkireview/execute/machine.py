"""The execution of one rank: memory, cores and loops."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview import hardware
from nkireview.execute.formats import Formats
from nkireview.execute.geometry import wide_buffers
from nkireview.execute.lifetimes import Begun, Ends, Lifetimes, first_in_loops
from nkireview.execute.meetings import Arrival, Task
from nkireview.execute.memory import Memory
from nkireview.execute.outputs import output_value
from nkireview.execute.poison import Poison
from nkireview.execute.reader import Values
from nkireview.execute.registers import RegisterFile
from nkireview.execute.result import Execution, Fault, FaultLog, NoMeaningError
from nkireview.execute.step import NOTHING, Around, Core, Step
from nkireview.execute.steps import Missing, step_of
from nkireview.execute.storage import Operand, Origin
from nkireview.isa.release import Release
from nkireview.isa.row import Row
from nkireview.program.interning import by_opcode, intern, padded
from nkireview.program.model import Loop, Stream
from nkireview.program.program import ENGINES, Program


class Machine:
    """One rank of an execution; see `meetings.run_together` for how its tasks run."""

    def __init__(
        self,
        program: Program,
        arguments: Mapping[int, NDArray[Any]],
        formats: Formats,
        poison: Poison,
        seed: int,
        rows: Mapping[str, Row],
        limit: int,
        turns: bool,
        first: int,
        trusting: bool,
        rank: int,
        ranks: int,
        unrounded: Collection[int],
        around: Around | None = None,
    ) -> None:
        columns = program.columns
        self.rank, self.executed, self.log = rank, 0, FaultLog(program)
        self._program, self._formats, self._rows, self._limit = program, formats, rows, limit
        self._hardware = hardware.target(program.header.target)
        self._release = Release.parse(program.header.release)
        self._state = {
            "seed": np.array([seed], np.uint64),
            "rank": np.array([rank], np.int64),
            "ranks": np.array([ranks], np.int64),
        }
        self._entered: dict[int, int] = {}  # how often each loop began, and how many passes all of them made
        self._passes: dict[int, int] = {}
        self._passed = 0  # instructions met, carried out or not, and passes of loops
        self._operand_at: list[int] = columns.operand_at.tolist()
        self._operand: list[int] = columns.operand.tolist()
        self._wide = wide_buffers(program, unrounded)
        self._step_of, self._steps = self._distinct_steps()
        self._meets = frozenset(self._meeting_instructions())
        self._fresh = self._begun()
        self._stops = sorted({*self._meets, *self._fresh})
        self._written = self._written_buffers()
        parameters = {buffer for _, buffer in program.parameter_buffers}
        outputs = {int(columns.access_buffer[output.access]) for output in program.outputs}
        self._memory = Memory(
            program,
            self._hardware,
            formats,
            poison,
            arguments,
            self._written,
            frozenset(outputs),
            trusting,
            self._wide,
        )
        self._lifetimes = Lifetimes(program, parameters | outputs, self._memory.free)
        self._inside: dict[int, list[int]] = defaultdict(list)
        for number, loop in enumerate(program.loops):
            self._inside[loop.parent].append(number)
        self.cores = 1 + max((stream.core for stream in program.streams), default=0)
        self._by_turns, self._first = turns and self.cores > 1, first
        self._around = around

    def tasks(self) -> list[Task]:
        """The streams, those of the first core first, each core's in program order."""
        cores: dict[int, Core] = {}
        latest: dict[int, Task] = {}
        found = []
        for number, stream in enumerate(self._program.streams):
            core = cores.get(stream.core)
            if core is None:
                core = cores[stream.core] = self._core(stream.core)
            run = self._stream(core, number, stream)
            task = Task(self, core, run, (stream.start, stream.stop), latest.get(stream.core))
            latest[stream.core] = task
            found.append(task)
        return sorted(found, key=lambda task: (task.core.number - self._first) % self.cores)

    def result(self) -> Execution:
        """Outputs, faults and written parameters."""
        program, memory = self._program, self._memory
        for access, text in (memory.doubted or {}).items():
            self._note_doubt(access, text)
        outputs = tuple(output_value(program, memory, self.log, at) for at in range(len(program.outputs)))
        parameters = {}
        for path, buffer in program.parameter_buffers:
            if self._written[buffer]:
                parameters[path] = memory.whole(buffer)
        trips = {
            number: -(-self._passes.get(number, 0) // entered)
            for number, entered in self._entered.items()
            if program.loops[number].trips is None
        }
        return Execution(outputs, self.log.faults, parameters, self.executed, trips)

    def _note_doubt(self, access: int, text: str) -> None:
        """Note an undefined index at the first instruction with that access."""
        slot = self._operand.index(access)
        index = bisect_right(self._operand_at, slot) - 1
        name = self._steps[self._step_of[index]].names[slot - self._operand_at[index]]
        self.log.instruction("undefined index", index, f"{name} {text}")

    def failed(self, core: Core, index: int, error: NoMeaningError) -> None:
        """Note a fault at an instruction, and let what it would have written be undefined."""
        self.log.instruction(error.kind, index, self._described(core, index, error))
        self._skip(core, index)

    def given_up(self, core: Core, start: int, stop: int) -> None:
        """Let everything be undefined that the instructions [start, stop) would have written."""
        for index in range(start, stop):
            self._skip(core, index)

    def _core(self, number: int) -> Core:
        state = {"scalar_accumulator": np.zeros(128, self._formats.compute), **self._state}
        values = Values(self._program, self._hardware, self._release, self._formats, state)
        return Core(values, self._formats, self.log, number)

    def _stream(self, core: Core, number: int, stream: Stream) -> Iterator[Arrival | None]:
        core.file = RegisterFile()
        ends = self._lifetimes.of(number, len(self._program))
        yield from self._range(core, stream.start, stream.stop, -1, ends, -1)

    def _range(
        self, core: Core, start: int, stop: int, parent: int, ends: Ends | None, begin: int
    ) -> Iterator[Arrival | None]:
        """The instructions [start, stop) with the loops that lie in them directly.

        ends: the last uses of buffers, outside loops. begin: the outermost loop, -1 outside.
        """
        at = start
        for number in self._inside[parent]:
            loop = self._program.loops[number]
            if not start <= loop.start <= loop.stop <= stop:
                continue
            yield from self._between(core, at, loop.start, ends, begin)
            yield from self._loop(core, number, loop, loop.start if begin < 0 else begin)
            at = loop.stop
            if ends is not None:
                ends.before(at)
        yield from self._between(core, at, stop, ends, begin)

    def _between(
        self, core: Core, start: int, stop: int, ends: Ends | None, begin: int
    ) -> Iterator[Arrival | None]:
        """Instructions without loops: those that meet, and those that begin with a buffer, one by one."""
        stops = self._stops
        for at in range(bisect_left(stops, start), bisect_left(stops, stop)):
            index = stops[at]
            yield from self._turns(core, start, index, ends)
            start = index
            for buffer, others in self._fresh.get(index, ()):
                self._memory.begin(buffer, others)
            if index in self._meets:
                yield self._arrival(core, index, begin)
                start = index + 1
                if ends is not None:
                    ends.before(start)
        yield from self._turns(core, start, stop, ends)

    def _turns(self, core: Core, start: int, stop: int, ends: Ends | None) -> Iterator[None]:
        """Instructions in a row; by turns, other cores go on after each."""
        if not self._by_turns:
            self._straight(core, start, stop, ends)
            return
        for index in range(start, stop):
            self._straight(core, index, index + 1, ends)
            yield None

    def _arrival(self, core: Core, index: int, begin: int) -> Arrival:
        step = self._steps[self._step_of[index]]
        assert isinstance(step, Step)
        operands: list[Operand | None] = []
        seen, error = NOTHING, None
        self._passed += 1
        try:
            operands = [self._resolved(core, access) for access in self._accesses(index)]
            seen = step.begin(core, index, operands)
        except NoMeaningError as found:
            error = found
        immediates = core.values.immediates if error is None else step.immediates
        return Arrival(index, step, operands, seen, immediates, error, index if begin < 0 else begin)

    def _loop(self, core: Core, number: int, loop: Loop, begin: int) -> Iterator[Arrival | None]:
        file = core.file
        self._entered[number] = self._entered.get(number, 0) + 1
        try:
            if loop.kind == "while":
                changed = self._changes(loop)
                while file.read(loop.register, "a while loop goes on by"):
                    self._spend(number, loop)
                    if not changed:
                        raise NoMeaningError(
                            "endless loop",
                            "a while loop does not end: nothing in its body writes the register that it goes on by",
                        )
                    yield from self._range(core, loop.start, loop.stop, number, None, begin)
                return
            lower = file.resolved(loop.lower, "the lower bound of a for loop is")
            upper = file.resolved(loop.upper, "the upper bound of a for loop is")
            for value in range(lower, upper, loop.step):
                self._spend(number, loop)
                file.write(loop.register, value)
                yield from self._range(core, loop.start, loop.stop, number, None, begin)
        except NoMeaningError as error:
            where = self._program.place_text(loop.place)
            text = f"{error} ({where})" if where else str(error)
            self.log.add(Fault(error.kind, loop.start, loop.place, text))
            self.given_up(core, loop.start, loop.stop)

    def _changes(self, loop: Loop) -> bool:
        """True where the body of a while loop may write the register that the loop goes on by."""
        inner = any(
            each.register == loop.register and loop.start <= each.start <= each.stop <= loop.stop
            for each in self._program.loops
            if each is not loop and each.kind == "for"
        )
        steps = {self._step_of[index] for index in range(loop.start, loop.stop)}
        return inner or any(
            number == loop.register for step in steps for _, number in self._steps[step].given
        )

    def _spend(self, number: int, loop: Loop) -> None:
        """Begin a pass; NoMeaningError where too many instructions were executed."""
        self._passes[number] = self._passes.get(number, 0) + 1
        self._passed += 1
        if self._passed > self._limit:
            raise NoMeaningError(
                "endless loop",
                f"a {loop.kind} loop was ended after {self._limit:,} executed instructions; raise the limit if "
                "it is meant to run longer",
            )

    def _straight(self, core: Core, start: int, stop: int, ends: Ends | None) -> None:
        steps, step_of_, operand, operand_at = self._steps, self._step_of, self._operand, self._operand_at
        known, resolve, file, around = self._memory.operands, self._memory.operand, core.file, self._around
        next_end = -1 if ends is None else ends.next
        failures = 0
        for index in range(start, stop):
            try:
                operands = [
                    None if access < 0 else known[access] or resolve(access, file)
                    for access in operand[operand_at[index] : operand_at[index + 1]]
                ]
                step = steps[step_of_[index]]
                if around is None or not isinstance(step, Step):
                    step.run(core, index, operands)
                else:
                    around(step, core, index, operands)
            except NoMeaningError as error:
                self.failed(core, index, error)
                failures += 1
            if index == next_end and ends is not None:
                next_end = ends.before(index + 1)
        self._passed += stop - start
        self.executed += stop - start - failures

    def _described(self, core: Core, index: int, error: NoMeaningError) -> str:
        """The fault's message, which names the operand where it is one that cannot be resolved."""
        step = self._steps[self._step_of[index]]
        for name, access in zip(step.names, self._accesses(index), strict=True):
            try:
                self._resolved(core, access)
            except NoMeaningError as found:
                return f"{name} {found}"
        return str(error)

    def _skip(self, core: Core, index: int) -> None:
        """Let everything that an instruction would have written be undefined."""
        step = self._steps[self._step_of[index]]
        accesses = self._accesses(index)
        for _, number in step.given:
            core.file.forget(number, f"{self.log.opcode(index)}{self.log.at(index)} could not give")
        for at, _ in step.writes:
            try:
                target = self._resolved(core, accesses[at])
            except NoMeaningError:
                continue
            if target is not None:
                target.settle(np.zeros(target.form.shape, np.bool_))
                target.cell.origin = Origin(index, None)
                if target.cell.writes is not None:
                    target.cell.writes.note(index, target)

    def _accesses(self, index: int) -> list[int]:
        return self._operand[self._operand_at[index] : self._operand_at[index + 1]]

    def _resolved(self, core: Core, access: int) -> Operand | None:
        return None if access < 0 else self._memory.operand(access, core.file)

    def _distinct_steps(self) -> tuple[list[int], list[Step | Missing]]:
        """For each instruction the number of its step, and the steps."""
        program, columns = self._program, self._program.columns
        kinds = _operand_kinds(program, self._wide)
        distinct = intern([columns.opcode, columns.immediates, columns.engine, *kinds], columns.instructions)
        steps: list[Step | Missing] = []
        for index in distinct.first.tolist():
            opcode = program.opcodes[columns.opcode[index]]
            row = self._rows.get(opcode.name)
            known = row is not None and {operand.name for operand in row.operands} == set(opcode.operands)
            immediates = program.immediates[columns.immediates[index]]
            engine = ENGINES[int(columns.engine[index])]
            steps.append(
                step_of(row, opcode.operands, immediates, engine)
                if row and known
                else Missing(opcode.operands)
            )
        return distinct.of.tolist(), steps

    def _meeting_instructions(self) -> list[int]:
        """The instructions that meet, ascending."""
        meets = np.array([step.meets for step in self._steps], np.bool_)
        if not meets.any():
            return []
        found: list[int] = np.flatnonzero(meets[np.array(self._step_of, np.int64)]).tolist()
        return found

    def _begun(self) -> dict[int, list[Begun]]:
        """Where each pass of a loop begins with a buffer of PSUM, but for matmuls that are told to add to it."""
        found = {}
        for at, begun in first_in_loops(self._program).items():
            step = self._steps[self._step_of[at]]
            if not (isinstance(step, Step) and step.immediates.get("accumulate")):
                found[at] = begun
        return found

    def _written_buffers(self) -> NDArray[np.bool_]:
        """Which buffers some instruction may write."""
        program = self._program
        written = np.zeros(program.columns.buffers, np.bool_)
        for code, _, accesses in by_opcode(program):
            opcode = program.opcodes[code]
            row = self._rows.get(opcode.name)
            roles = {operand.name: operand.role for operand in row.operands} if row else {}
            for at, name in enumerate(opcode.operands):
                if name in roles and roles[name].writes:
                    used = accesses[:, at]
                    written[program.columns.access_buffer[used[used >= 0]]] = True
        return written


def _operand_kinds(program: Program, wide: NDArray[np.bool_]) -> list[NDArray[np.int64]]:
    """For each position of an operand: by instruction, the class of its shape, dtype, memory and width; -1 for none."""
    columns = program.columns
    shapes = [
        columns.access_dtype,
        columns.buffer_memory[columns.access_buffer],
        wide[columns.access_buffer],
        columns.access_partition,
        np.diff(columns.axis_at),
        *padded(columns.axis_at, columns.axis_count, 1),
    ]
    kinds = intern(shapes, columns.accesses).of
    found = []
    for column in padded(columns.operand_at, columns.operand, -1):
        kind = np.full(len(column), -1, np.int64)
        given = column >= 0
        kind[given] = kinds[column[given]]
        found.append(kind)
    return found
