"""Steps: one prepared recipe for each distinct (row, immediates, engine). Read, compute, commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.execute import flow, psum
from nkireview.execute.formats import Formats
from nkireview.execute.reader import Values
from nkireview.execute.result import FaultLog, NoMeaningError
from nkireview.execute.storage import Mask, Operand, Origin
from nkireview.isa.enums import Engine
from nkireview.isa.row import Bits, Result, Row

Operands = Sequence[Operand | None]
Masks = Mapping[str, Mask]

COPIES = frozenset({"dma_copy", "tensor_copy"})
MATMULS = frozenset({"nc_matmul", "nc_matmul_mx"})
TRANSPOSES = frozenset({"nc_transpose"})
ADDS_TO_VALUES = frozenset({"v4"})  # generations on which a matmul may add to what a memset or copy wrote
# What a meaning raises where an instruction has none: an unknown operator, shapes that do not fit.
MEANINGLESS = (ValueError, TypeError, LookupError, ArithmeticError)


@dataclass
class Core:
    """What the steps of one core share."""

    values: Values
    formats: Formats
    log: FaultLog
    registers: flow.Registers = field(default_factory=flow.Registers)
    _scratch: dict[tuple[int, ...], NDArray[Any]] = field(default_factory=dict)

    def scratch(self, shape: tuple[int, ...]) -> NDArray[Any]:
        """Room for one product."""
        found = self._scratch.get(shape)
        if found is None:
            found = self._scratch[shape] = np.empty(shape, self.formats.compute)
        return found


class Step:
    """An instruction of any row."""

    def __init__(
        self, row: Row, names: tuple[str, ...], immediates: Mapping[str, Any], asked: Engine
    ) -> None:
        roles = {name: row.operand(name).role_in(immediates) for name in names}
        self.row, self.names, self.immediates, self.asked = row, names, immediates, asked
        self.reads = tuple((at, name) for at, name in enumerate(names) if roles[name].reads)
        self.writes = tuple((at, name) for at, name in enumerate(names) if roles[name].writes)
        self.writer = psum.TRANSPOSE if row.name in TRANSPOSES else psum.VALUE
        self.registers = flow.register_use(row, immediates)

    def run(self, core: Core, index: int, operands: Operands) -> None:
        """Execute; NoMeaningError where that is impossible."""
        core.values.bind(self.row, self.names, operands, self.immediates, self.asked)
        origin, masks = undefined(index, self.reads, operands)
        prepared = []
        try:
            results = core.values.results()
            held = self._registers(core, operands, masks)
            for at, name in self.writes:
                target, result = operands[at], results.get(name)
                if target is None or result is None:
                    continue
                mask = None
                if masks:
                    mask = flow.result_mask(self.row, name, target.form.shape, masks, core.values)
                if held is not None and name == "reduce_res":
                    mask = flow.both(mask, flow.lanes_of(held, target.form.shape))
                value, mask = self.combine(core, index, target, result, mask)
                prepared.append((target, stored(core, name, value, target), mask))
        except MEANINGLESS as error:
            raise NoMeaningError("no meaning", str(error) or type(error).__name__) from error
        if len(prepared) > 1:
            # A result may be a view of what the commit of another one changes.
            prepared = [(target, value.copy(), mask) for target, value, mask in prepared]
        for target, value, mask in prepared:
            self.commit(index, target, value, mask, origin)

    def combine(
        self, core: Core, index: int, target: Operand, result: Result, mask: Mask | None
    ) -> tuple[Result, Mask | None]:
        """What to store, and where it is defined: the result."""
        return result, mask

    def commit(
        self, index: int, target: Operand, value: NDArray[Any], mask: Mask | None, origin: Origin | None
    ) -> None:
        """Write stored values."""
        target.target()[...] = value
        self.settle(index, target, mask, origin)

    def settle(self, index: int, target: Operand, mask: Mask | None, origin: Origin | None) -> None:
        """Note a write of all elements of the target."""
        cell = target.cell
        if mask is not None and not mask.all():
            cell.origin = origin or cell.origin or Origin(index, cell.buffer)
            target.settle(mask)
        else:
            target.settle(None)
        if cell.psum:
            psum.note(target, self.writer)
        if cell.writes is not None:
            cell.log(index, target)

    def _registers(self, core: Core, operands: Operands, masks: Masks) -> Mask | None:
        """Which accumulator registers are defined; None where all are, or the row uses none."""
        if self.registers is None:
            return None
        rows = max((operand.form.partitions for operand in operands if operand is not None), default=0)
        return core.registers.update(self.registers, rows, masks)


class Copy(Step):
    """A copy: between equal floats without a detour through compute values."""

    def __init__(
        self, row: Row, names: tuple[str, ...], immediates: Mapping[str, Any], asked: Engine
    ) -> None:
        super().__init__(row, names, immediates, asked)
        self._dst, self._src = names.index("dst"), names.index("src")

    def run(self, core: Core, index: int, operands: Operands) -> None:
        """See `Step.run`."""
        dst, src = operands[self._dst], operands[self._src]
        if dst is None or src is None:
            return super().run(core, index, operands)
        into, out = dst.form, src.form
        if into.kind is not out.kind or into.kind.kind != "float" or into.size != out.size:
            return super().run(core, index, operands)
        origin, mask = None, None
        if not src.defined:
            mask = src.mask()
            if mask is not None:
                origin = src.cell.origin or Origin(index, src.cell.buffer)
                mask = mask.reshape(into.shape)
        held = src.read()
        dst.target()[...] = held if into.shape == out.shape else held.reshape(into.shape)
        return self.settle(index, dst, mask, origin)


class Matmul(Step):
    """A matmul: overwrites its place in PSUM or adds to it."""

    def __init__(
        self, row: Row, names: tuple[str, ...], immediates: Mapping[str, Any], asked: Engine
    ) -> None:
        super().__init__(row, names, immediates, asked)
        transposes = bool(immediates.get("is_transpose"))
        accumulate = immediates.get("accumulate")
        self.reads = tuple((at, name) for at, name in self.reads if name != "dst")
        self.writer = psum.TRANSPOSE if transposes else psum.MATMUL
        self._accumulate = False if transposes else accumulate if accumulate is None else bool(accumulate)
        self._plain = (
            row.name == "nc_matmul" and not transposes and immediates.get("perf_mode") in (None, "none")
        )
        self._at = tuple(names.index(name) for name in ("dst", "stationary", "moving"))

    def run(self, core: Core, index: int, operands: Operands) -> None:
        """See `Step.run`."""
        if not (self._plain and self._directly(core, index, operands)):
            super().run(core, index, operands)

    def _directly(self, core: Core, index: int, operands: Operands) -> bool:
        """Multiply defined matrices into PSUM itself; False where that needs more."""
        dst, stationary, moving = (operands[at] for at in self._at)
        if dst is None or stationary is None or moving is None:
            return False
        formats = core.formats
        result, left, right = dst.form, stationary.form, moving.form
        if not (result.exact and left.kind.kind == right.kind.kind == "float"):
            return False
        if not (len(left.shape) == len(right.shape) == 2 and left.shape[0] == right.shape[0]):
            return False
        if result.shape != (left.shape[1], right.shape[1]) or not (complete(stationary) and complete(moving)):
            return False
        adds = False
        if self._accumulate is not False:
            known = psum.state(dst) if dst.cell.psum else psum.VALUE
            adds = isinstance(known, int) and known == psum.MATMUL
            if not adds and (self._accumulate or not isinstance(known, int)):
                return False
        if adds and not complete(dst):
            return False
        lines, columns = stationary.load(formats), moving.load(formats)
        held = dst.target()
        if adds:
            product = np.matmul(lines.T, columns, out=core.scratch(result.shape))
            np.add(held, product, out=held)
        else:
            np.matmul(lines.T, columns, out=held)
        self.settle(index, dst, None, None)
        return True

    def combine(
        self, core: Core, index: int, target: Operand, result: Result, mask: Mask | None
    ) -> tuple[Result, Mask | None]:
        """The product, or the sum with what is there, rounded once to the destination."""
        added = self._added(core, index, target)
        if added is False:
            return result, mask
        if isinstance(result, Bits):
            raise NoMeaningError("no meaning", "a result of bits cannot be accumulated")
        product = fitted("dst", result, target)
        total = target.load(core.formats) + product
        old = target.mask()
        if added is True:
            return total, flow.both(mask, old)
        return np.where(added, total, product), flow.both(mask, None if old is None else old | ~added)

    def _added(self, core: Core, index: int, target: Operand) -> bool | Mask:
        """Where the old content is added to; notes what is undefined about that."""
        if self._accumulate is False:
            return False
        if not target.cell.psum:
            return bool(self._accumulate)
        known = psum.state(target)
        if self._accumulate is None:
            return known == psum.MATMUL
        generation = core.values.generation
        if np.any(np.equal(known, psum.UNWRITTEN)):
            core.log.instruction(
                "psum accumulate onto undefined",
                index,
                "accumulate=True adds to PSUM that was never written; start with accumulate=False",
            )
        if generation not in ADDS_TO_VALUES and np.any(np.equal(known, psum.VALUE)):
            core.log.instruction(
                "psum accumulate after value init",
                index,
                "accumulate=True adds to PSUM that was written, but not by a matmul, which is undefined on "
                f"NeuronCore-{generation}; start with accumulate=False",
            )
        return True


def undefined(
    index: int, reads: Sequence[tuple[int, str]], operands: Operands
) -> tuple[Origin | None, dict[str, Mask]]:
    """The masks of the operands that are not fully defined, and where the first of them comes from."""
    origin, masks = None, {}
    for at, name in reads:
        operand = operands[at]
        if operand is None or operand.defined:
            continue
        mask = operand.mask()
        if mask is not None:
            masks[name] = mask
            origin = origin or operand.cell.origin or Origin(index, operand.cell.buffer)
    return origin, masks


def complete(operand: Operand) -> bool:
    """True where every element is defined."""
    return operand.defined or operand.mask() is None


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
        exact = form.exact and result.dtype == form.dtype
        return fitted(name, result if exact else core.formats.store(result, form.kind), target)
    if result.array.dtype != form.dtype:
        raise NoMeaningError(
            "no meaning", f"{name} holds {form.kind.name}, the instruction gives {result.array.dtype} bits"
        )
    return fitted(name, result.array, target)


def step_of(row: Row, names: tuple[str, ...], immediates: Mapping[str, Any], asked: Engine) -> Step:
    """The step of an instruction, whose operands are those of its row."""
    kind = Copy if row.name in COPIES else Matmul if row.name in MATMULS else Step
    return kind(row, names, immediates, asked)
