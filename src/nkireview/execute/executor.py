"""execute: a Program on data."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

from nkireview import hardware
from nkireview.execute.formats import FLOAT64, Formats
from nkireview.execute.memory import Memory
from nkireview.execute.outputs import output_value
from nkireview.execute.poison import Poison
from nkireview.execute.reader import Values
from nkireview.execute.result import Execution, Fault, FaultLog, NoMeaningError
from nkireview.execute.steps import Core, Step, step_of
from nkireview.execute.storage import Operand, Origin
from nkireview.isa import dtypes
from nkireview.isa.dtypes import COMPUTE_DTYPES
from nkireview.isa.release import Release
from nkireview.isa.row import Row
from nkireview.isa.table import ROWS
from nkireview.program.interning import by_opcode, intern
from nkireview.program.model import Loop
from nkireview.program.program import ENGINES, Program

Rounding = Literal["storage", "off"]


def execute(
    program: Program,
    arguments: Mapping[int, NDArray[Any]],
    *,
    compute: npt.DTypeLike = np.float32,
    poison: Poison = Poison.nan,
    seed: int = 0,
    rounding: Rounding = "storage",
    rows: Mapping[str, Row] = ROWS,
) -> Execution:
    """Run every instruction of a Program, stream after stream, in program order.

    arguments: an array in storage dtype for each parameter buffer, never changed. compute: what meanings compute
    in, float32 or float64. poison: what unwritten memory holds. seed: the engine state ``seed`` that random
    instructions draw from. rounding: ``storage`` rounds each result to its buffer's dtype; ``off``, which needs
    float64, keeps all floats unrounded. rows: the instruction table.

    An instruction without a meaning (unknown row, out of bounds, sizes that differ) is a fault: it is skipped and
    what it would have written is undefined. Raise ValueError for arguments that do not fit the parameters.
    """
    formats = Formats(np.dtype(compute), rounding == "storage")
    if formats.compute not in COMPUTE_DTYPES:
        raise ValueError(f"compute is {formats.compute}, expected float32 or float64")
    if not formats.rounds and formats.compute != FLOAT64:
        raise ValueError("rounding is off, which needs compute=float64")
    _check(program, arguments, formats)
    machine = _Machine(program, arguments, formats, poison, seed, rows)
    with _blas().limit(limits=1, user_api="blas"), np.errstate(all="ignore"):
        machine.run()
    return machine.result()


def _check(program: Program, arguments: Mapping[int, NDArray[Any]], formats: Formats) -> None:
    for path, number in program.parameter_buffers:
        if number not in arguments:
            raise ValueError(f"parameter {path} (buffer {number}) has no argument")
        buffer, given = program.buffer(number), arguments[number]
        kind = dtypes.of(buffer.dtype)
        if given.shape != buffer.shape or given.dtype not in (kind.storage, formats.dtype(kind)):
            raise ValueError(
                f"parameter {path} takes an array of {kind.storage} {list(buffer.shape)}, "
                f"got {given.dtype} {list(given.shape)}"
            )


@functools.cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


class _Machine:
    """One execution."""

    def __init__(
        self,
        program: Program,
        arguments: Mapping[int, NDArray[Any]],
        formats: Formats,
        poison: Poison,
        seed: int,
        rows: Mapping[str, Row],
    ) -> None:
        columns = program.columns
        self._program, self._formats, self._rows, self._seed = program, formats, rows, seed
        self._hardware = hardware.target(program.header.target)
        self._release = Release.parse(program.header.release)
        self._log = FaultLog(program)
        self._cores: dict[int, Core] = {}
        self._executed = 0
        self._operand_at: list[int] = columns.operand_at.tolist()
        self._operand: list[int] = columns.operand.tolist()
        self._step_of, self._steps = self._distinct_steps()
        self._written = self._written_buffers()
        parameters = {buffer for _, buffer in program.parameter_buffers}
        outputs = {int(columns.access_buffer[output.access]) for output in program.outputs}
        self._memory = Memory(
            program, self._hardware, formats, poison, arguments, self._written, frozenset(outputs)
        )
        self._last, self._freed = self._last_uses(parameters | outputs)
        self._freed_to, self._next_free = 0, self._last[0]
        self._inside: dict[int, list[int]] = defaultdict(list)
        for number, loop in enumerate(program.loops):
            self._inside[loop.parent].append(number)

    def run(self) -> None:
        """Execute all streams."""
        for stream in self._program.streams:
            core = self._cores.get(stream.core)
            if core is None:
                core = self._cores[stream.core] = self._core()
            self._range(core, stream.start, stream.stop, -1)

    def result(self) -> Execution:
        """Outputs, faults and written parameters."""
        program, memory = self._program, self._memory
        outputs = tuple(output_value(program, memory, self._log, at) for at in range(len(program.outputs)))
        parameters = {}
        for path, buffer in program.parameter_buffers:
            if self._written[buffer]:
                parameters[path] = memory.whole(buffer)
        return Execution(outputs, self._log.faults, parameters, self._executed)

    def _core(self) -> Core:
        state: dict[str, NDArray[Any]] = {
            "scalar_accumulator": np.zeros(128, self._formats.compute),
            "seed": np.array([self._seed], np.uint64),
        }
        values = Values(self._program, self._hardware, self._release, self._formats, state)
        return Core(values, self._formats, self._log)

    def _range(self, core: Core, start: int, stop: int, parent: int) -> None:
        """The instructions [start, stop) with the loops that lie in them directly."""
        at = start
        for number in self._inside[parent]:
            loop = self._program.loops[number]
            if not start <= loop.start < loop.stop <= stop:
                continue
            self._straight(core, at, loop.start, free=parent < 0)
            self._loop(core, number, loop)
            at = loop.stop
            if parent < 0:
                self._free_before(at)
        self._straight(core, at, stop, free=parent < 0)

    def _loop(self, core: Core, number: int, loop: Loop) -> None:
        if loop.trips is None:
            where = self._program.place_text(loop.place)
            message = (
                f"a {loop.kind} loop whose trip count is only known on the device cannot be executed yet"
            )
            text = f"{message} ({where})" if where else message
            self._log.add(Fault("unsupported", loop.start, loop.place, text))
            for index in range(loop.start, loop.stop):
                self._skip(index)
            return
        for _ in range(loop.trips):
            self._range(core, loop.start, loop.stop, number)

    def _straight(self, core: Core, start: int, stop: int, *, free: bool) -> None:
        steps, step_of_, operand, operand_at = self._steps, self._step_of, self._operand, self._operand_at
        known, resolve = self._memory.operands, self._memory.operand
        done = 0
        for index in range(start, stop):
            step = steps[step_of_[index]]
            try:
                if step is None:
                    raise NoMeaningError(
                        "unsupported", "the instruction table has no row with these operands"
                    )
                step.run(
                    core,
                    index,
                    [
                        None if access < 0 else known[access] or resolve(access)
                        for access in operand[operand_at[index] : operand_at[index + 1]]
                    ],
                )
                done += 1
            except NoMeaningError as error:
                self._log.instruction(error.kind, index, self._described(index, error))
                self._skip(index)
            if free and index == self._next_free:
                self._free_before(index + 1)
        self._executed += done

    def _described(self, index: int, error: NoMeaningError) -> str:
        """The fault's message, which names the operand where it is one that cannot be resolved."""
        step = self._steps[self._step_of[index]]
        if step is not None:
            for name, access in zip(step.names, self._accesses(index), strict=True):
                try:
                    self._resolved(access)
                except NoMeaningError as found:
                    return f"{name} {found}"
        return str(error)

    def _skip(self, index: int) -> None:
        """Let everything that an instruction would have written be undefined."""
        step = self._steps[self._step_of[index]]
        accesses = self._accesses(index)
        if step is None:
            names = self._program.opcodes[self._program.columns.opcode[index]].operands
            written = [at for at, name in enumerate(names) if name == "dst"]
        else:
            written = [at for at, _ in step.writes]
        for at in written:
            try:
                target = self._resolved(accesses[at])
            except NoMeaningError:
                continue
            if target is not None:
                target.settle(np.zeros(target.form.shape, np.bool_))
                target.cell.origin = Origin(index, None)
                target.cell.log(index, target)

    def _accesses(self, index: int) -> list[int]:
        return self._operand[self._operand_at[index] : self._operand_at[index + 1]]

    def _resolved(self, access: int) -> Operand | None:
        return None if access < 0 else self._memory.operand(access)

    def _distinct_steps(self) -> tuple[list[int], list[Step | None]]:
        """For each instruction the number of its step, and the steps."""
        program, columns = self._program, self._program.columns
        distinct = intern([columns.opcode, columns.immediates, columns.engine], columns.instructions)
        steps: list[Step | None] = []
        for index in distinct.first.tolist():
            opcode = program.opcodes[columns.opcode[index]]
            row = self._rows.get(opcode.name)
            known = row is not None and {operand.name for operand in row.operands} == set(opcode.operands)
            immediates = program.immediates[columns.immediates[index]]
            engine = ENGINES[int(columns.engine[index])]
            steps.append(step_of(row, opcode.operands, immediates, engine) if row and known else None)
        return distinct.of.tolist(), steps

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

    def _last_uses(self, kept: set[int]) -> tuple[list[int], list[int]]:
        """The last use of each buffer that may go after it, ascending and ended by a sentinel, and those buffers."""
        columns = self._program.columns
        index = np.repeat(np.arange(columns.instructions), np.diff(columns.operand_at))
        used = columns.operand >= 0
        last = np.full(columns.buffers, -1, np.int64)
        # of repeated positions the last assignment holds, and instructions ascend
        last[columns.access_buffer[columns.operand[used]]] = index[used]
        last[list(kept)] = -1
        order = np.argsort(last, kind="stable")
        order = order[last[order] >= 0]
        return [*last[order].tolist(), len(self._program)], order.tolist()

    def _free_before(self, stop: int) -> None:
        """Free the buffers that no instruction from `stop` on uses."""
        while self._last[self._freed_to] < stop:
            self._memory.free(self._freed[self._freed_to])
            self._freed_to += 1
        self._next_free = self._last[self._freed_to]
