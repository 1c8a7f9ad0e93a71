"""A step: what all instructions of one row, immediates, engine and kinds of operands share. Read, compute, commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from nkireview.execute import flow, psum
from nkireview.execute.formats import Formats
from nkireview.execute.reader import Values
from nkireview.execute.registers import NEVER, RegisterFile, holds_register, is_register, registers_in
from nkireview.execute.result import FaultLog, NoMeaningError
from nkireview.execute.scattered import contested, restricted
from nkireview.execute.storage import Mask, Operand, Origin
from nkireview.isa.enums import Engine
from nkireview.isa.row import Bits, Result, Row

Operands = Sequence[Operand | None]
Masks = Mapping[str, Mask]

Around = Callable[["Step", "Core", int, "Operands"], None]
"""Runs an instruction by `Step.run`, with what it wants to do before and after: (step, core, index, operands)."""

TRANSPOSES = frozenset({"nc_transpose"})
# What a meaning raises where an instruction has none: an unknown operator, shapes that do not fit.
MEANINGLESS = (ValueError, TypeError, LookupError, ArithmeticError)


@dataclass
class Core:
    """What the steps of one core share; `file` holds the registers of its present stream."""

    values: Values
    formats: Formats
    log: FaultLog
    number: int = 0
    file: RegisterFile = field(default_factory=RegisterFile)
    registers: flow.Registers = field(default_factory=flow.Registers)
    _scratch: dict[tuple[int, ...], NDArray[Any]] = field(default_factory=dict)

    def scratch(self, shape: tuple[int, ...]) -> NDArray[Any]:
        """Room for one product."""
        found = self._scratch.get(shape)
        if found is None:
            found = self._scratch[shape] = np.empty(shape, self.formats.compute)
        return found


class Seen(NamedTuple):
    """What an instruction reads that is not plain data: undefined elements, where from, and what it leaves out."""

    origin: Origin | None
    masks: dict[str, Mask]
    kept: dict[str, Mask]


class Write(NamedTuple):
    """A result that is ready to be stored; origin: why some of it is undefined, None for its operands."""

    target: Operand
    value: NDArray[Any]
    mask: Mask | None
    origin: Origin | None = None


NOTHING = Seen(None, {}, {})
UNSET = "an accumulator register that was never set"


class Step:
    """An instruction of any row."""

    def __init__(
        self, row: Row, names: tuple[str, ...], immediates: Mapping[str, Any], asked: Engine
    ) -> None:
        roles = {name: row.operand(name).role_in(immediates) for name in names}
        self.row, self.names, self.immediates, self.asked = row, names, immediates, asked
        self.slots = {name: at for at, name in enumerate(names)}
        self.engine: Engine | None = None
        self.reads = tuple((at, name) for at, name in enumerate(names) if roles[name].reads)
        self.writes = tuple((at, name) for at, name in enumerate(names) if roles[name].writes)
        self.meets = bool(row.meets)
        # the elements of a DMA are moved in no order
        self.queued = row.engines.default is Engine.dma
        self.writer = psum.TRANSPOSE if row.name in TRANSPOSES else psum.VALUE
        self.registers = flow.register_use(row, immediates)
        self.given = tuple(
            (name, immediates[name][1]) for name in row.registers if is_register(immediates.get(name))
        )
        self.taken = tuple(
            name for name, value in immediates.items() if name not in row.registers and holds_register(value)
        )
        # A protocol's attribute may be set; here the engine is only looked up where a meaning asks for it.
        self._meaning = cast(Callable[[Values], dict[str, Result]], row.meaning)
        self._read_at = tuple(at for at, _ in self.reads)
        self._only = self.writes[0] if self.writes else (-1, "")
        self._others = tuple(at for at, _ in self.writes[1:])
        idle = row.name == "activation" and self.registers is not None and self.registers.command == "idle"
        self.simple = (
            bool(self.writes)
            and type(self).combine is Step.combine
            and (self.registers is None or idle)
            and not (self.given or self.taken or row.registers or row.reach)
        )

    def run(self, core: Core, index: int, operands: Operands) -> None:
        """Execute; NoMeaningError where that is impossible."""
        if self.simple and not (self._others and any(operands[at] for at in self._others)):
            for at in self._read_at:
                operand = operands[at]
                if operand is None:
                    continue
                store = operand.cell.store
                whole = store.defined is None and store.block is not None and operand.plain
                if not whole and not operand.defined:
                    break
            else:
                return self._simply(core, index, operands)
        seen = self.begin(core, index, operands)
        return self.commit(index, self.prepare(core, index, operands, seen), seen.origin)

    def _simply(self, core: Core, index: int, operands: Operands) -> None:
        """Execute what reads defined data only and writes one tile."""
        values = core.values
        values.bind(self, operands, self.immediates)
        at, name = self._only
        target = operands[at]
        try:
            result = self._meaning(values).get(name)
            if target is None or result is None:
                return
            form = target.form
            if (
                type(result) is not np.ndarray
                or result.shape != form.shape
                or result.dtype is not form.accepts
            ):
                result = stored(core, name, result, target)
        except MEANINGLESS as error:
            raise NoMeaningError("no meaning", str(error) or type(error).__name__) from error
        if self.queued and not target.plain:
            note_contested(core.log, index, target, result)
        target.put(result)
        self.settle(index, target, None, None)

    def begin(self, core: Core, index: int, operands: Operands) -> Seen:
        """Look at an instruction: binds the reader; NoMeaningError where a register it needs is undefined."""
        immediates = self.immediates
        if self.taken:
            immediates = dict(immediates)
            for name in self.taken:
                if self.writes or not self.given:
                    immediates[name] = core.file.resolved(immediates[name], f"{name} is")
                else:
                    immediates[name] = self._passed_on(core, immediates[name])
        core.values.bind(self, operands, immediates)
        return self._seen(index, operands)

    def _passed_on(self, core: Core, value: Any) -> Any:
        """An immediate of an instruction that only writes registers, which may be undefined."""
        if all(core.file.known(number) for number in registers_in(value)):
            return core.file.resolved(value, "")
        return 0

    def _seen(self, index: int, operands: Operands) -> Seen:
        for at in self._read_at:
            operand = operands[at]
            if operand is not None and not operand.defined:
                return looked_at(index, self.reads, operands)
        return NOTHING

    def prepare(
        self, core: Core, index: int, operands: Operands, seen: Seen, met: Sequence[Masks] = ()
    ) -> list[Write]:
        """Compute all results without storing one; NoMeaningError where there are none.

        met: the masks of all who take part, in the order of their readers, where some are not all defined.
        """
        prepared = []
        masks = seen.masks
        try:
            results = core.values.results()
            held = self._accumulators(core, operands, seen)
            for at, name in self.writes:
                target, result = operands[at], results.get(name)
                if target is None or result is None:
                    continue
                if met:
                    mask = flow.met_mask(self.row, name, target.form.shape, met, core.values)
                elif masks or name in self.row.reach:
                    mask = flow.result_mask(self.row, name, target.form.shape, masks, core.values)
                else:
                    mask = None
                origin = None if mask is None or masks else Origin(index, None, self.row.undefined)
                if held is not None and self.registers is not None and self.registers.shows(name):
                    mask = flow.both(mask, flow.lanes_of(held, target.form.shape))
                    origin = core.registers.origin(self.registers.engine) or Origin(index, None, UNSET)
                value, mask = self.combine(core, index, target, result, mask)
                if seen.kept:
                    kept = flow.result_mask(self.row, name, target.form.shape, seen.kept, core.values)
                    target = target if kept is None else restricted(target, kept)
                held_value = stored(core, name, value, target)
                if self.queued and not target.plain:
                    note_contested(core.log, index, target, held_value)
                prepared.append(Write(target, held_value, mask, origin))
            self._give(core, index, results, masks)
        except MEANINGLESS as error:
            raise NoMeaningError("no meaning", str(error) or type(error).__name__) from error
        if len(prepared) > 1:
            # A result may be a view of what the commit of another one changes.
            prepared = [write._replace(value=write.value.copy()) for write in prepared]
        return prepared

    def commit(self, index: int, prepared: Sequence[Write], origin: Origin | None) -> None:
        """Store results; origin: where the undefined ones among them come from."""
        for target, value, mask, own in prepared:
            target.put(value)
            self.settle(index, target, mask, origin or own)

    def combine(
        self, core: Core, index: int, target: Operand, result: Result, mask: Mask | None
    ) -> tuple[Result, Mask | None]:
        """What to store, and where it is defined: the result."""
        return result, mask

    def settle(self, index: int, target: Operand, mask: Mask | None, origin: Origin | None) -> None:
        """Note a write of all elements of the target."""
        cell = target.cell
        if mask is not None and not mask.all():
            cell.origin = origin or cell.origin or Origin(index, cell.buffer)
            target.settle(mask)
        elif cell.store.defined is not None:
            target.settle(None)
        if cell.psum:
            psum.note(target, self.writer)
        if cell.writes is not None:
            cell.writes.note(index, target)

    def _give(self, core: Core, index: int, results: Mapping[str, Result], masks: Masks) -> None:
        """Write the registers that the instruction gives."""
        for name, number in self.given:
            why, value = self._unknown(core, index, masks), results.get(name)
            if why is not None:
                core.file.forget(number, why)
            elif value is None:
                core.file.forget(number, f"{self.row.name}{core.log.at(index)} left without a value")
            else:
                array = value.array if isinstance(value, Bits) else np.asarray(value)
                core.file.write(number, int(array.item()))

    def _unknown(self, core: Core, index: int, masks: Masks) -> str | None:
        """Why a register that the instruction writes is undefined."""
        for name in self.taken:
            for number in registers_in(self.immediates[name]):
                if not core.file.known(number):
                    why = core.file.why(number)
                    return f"comes from register {number}, which {why}" if why == NEVER else why
        if masks:
            return f"{self.row.name}{core.log.at(index)} took from memory never written"
        return None

    def _accumulators(self, core: Core, operands: Operands, seen: Seen) -> Mask | None:
        """Which accumulator registers are defined; None where all are, or the row uses none."""
        if self.registers is None:
            return None
        rows = max((operand.form.partitions for operand in operands if operand is not None), default=0)
        reduced = flow.reduced(self.row, seen.masks, core.values)
        return core.registers.update(self.registers, rows, reduced, core.values.release, seen.origin)


def looked_at(index: int, reads: Sequence[tuple[int, str]], operands: Operands) -> Seen:
    """The masks of the operands that are not fully defined, and of those that are read in part."""
    origin, masks, kept = None, {}, {}
    for at, name in reads:
        operand = operands[at]
        if operand is None or operand.defined:
            continue
        if operand.skipped is not None:
            kept[name] = ~operand.skipped
        mask = operand.mask()
        if mask is not None:
            masks[name] = mask
            origin = origin or operand.cell.origin or Origin(index, operand.cell.buffer)
    return Seen(origin, masks, kept)


def note_contested(log: FaultLog, index: int, target: Operand, values: NDArray[Any]) -> None:
    """Note where a scatter through an index tile writes different values to one place.

    A single row at either end of a tensor is what padding is sent to: a kind of its own.
    """
    if not log.picked(target.access):
        return
    places = contested(target, values)
    if not len(places):
        return
    layout, shape = target.cell.layout, log.shape(target.access)
    count = shape[0] if shape else 1
    row = layout.units // count or 1
    rows = np.unique((places - layout.offset // layout.unit) // row) if not layout.on_chip else places[:0]
    spare = len(rows) == 1 and count > 1 and int(rows[0]) in (0, count - 1)
    where = f"row {rows[0]}" if len(rows) else "one place"
    more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
    kind = "duplicate scatter to a spare row" if spare else "duplicate scatter"
    text = f"indices of one call send different values to {where}{more} of dst: which of them stays is not defined"
    log.instruction(kind, index, text)


def fitted(name: str, values: NDArray[Any], target: Operand) -> NDArray[Any]:
    """Values in the shape of the target, element by element; NoMeaningError where the counts differ."""
    form = target.form
    if values.size != form.size:
        raise NoMeaningError(
            "no meaning", f"{name} takes {form.size} elements, the instruction gives {values.size}"
        )
    return values if values.shape == form.shape else values.reshape(form.shape)


def stored(core: Core, name: str, result: Result, target: Operand) -> NDArray[Any]:
    """A result as it is held, in the shape of the target."""
    form = target.form
    if not isinstance(result, Bits):
        accepted = form.accepts is not None and result.dtype == form.accepts
        return fitted(name, result if accepted else core.formats.store(result, form.kind), target)
    if core.formats.rounds and result.array.dtype == form.kind.storage != form.dtype:
        return fitted(name, core.formats.load(result.array, form.kind), target)
    if result.array.dtype != form.dtype:
        raise NoMeaningError(
            "no meaning", f"{name} holds {form.kind.name}, the instruction gives {result.array.dtype} bits"
        )
    return fitted(name, result.array, target)
