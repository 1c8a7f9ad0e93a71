"""A short way to write Programs by hand, for the tests of `execute`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.execute import Execution, Fault, execute, execute_ranks
from nkireview.isa import dtypes
from nkireview.isa.enums import Engine, Memory
from nkireview.isa.row import Row
from nkireview.isa.table import ROWS
from nkireview.program.access import Access, Bound, Index
from nkireview.program.builder import ProgramBuilder
from nkireview.program.model import Buffer, Frame, Header, Loop, Output, Source
from nkireview.program.program import Program
from nkireview.program.tree import Group, TensorLeaf


@dataclass(frozen=True)
class View:
    """A tensor as a kernel sees it; sliced like one."""

    buffer: Buffer
    dtype: str
    base: int
    pattern: tuple[tuple[int, int], ...]
    bounds: tuple[Bound, ...] = ()
    index: Index | None = None
    table: str | None = None

    @property
    def access(self) -> Access:
        partition = 0 if self.buffer.memory.on_chip else None
        return Access(
            self.buffer.id,
            self.dtype,
            self.base,
            self.pattern,
            partition,
            self.bounds,
            self.index,
            self.table,
        )

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(count for _, count in self.pattern)

    def __getitem__(self, key: slice | tuple[slice, ...]) -> View:
        base, pattern = self.base, list(self.pattern)
        for axis, part in enumerate(key if isinstance(key, tuple) else (key,)):
            stride, count = pattern[axis]
            start, step = part.start or 0, part.step or 1
            stop = count if part.stop is None else part.stop
            base += start * stride
            pattern[axis] = (stride * step, -(-(stop - start) // step))
        return replace(self, base=base, pattern=tuple(pattern))

    def reshape(self, *shape: int) -> View:
        return replace(self, pattern=row_major(shape))

    def as_dtype(self, dtype: str, *shape: int) -> View:
        return replace(self, dtype=dtype, pattern=row_major(shape))


def row_major(shape: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    return tuple((math.prod(shape[axis + 1 :]), size) for axis, size in enumerate(shape))


class Kernel:
    """Records instructions one line after the other of ``kernel.py``, then runs them."""

    def __init__(
        self, target: str = "trn2", lnc: int = 1, rows: Mapping[str, Row] = ROWS, nki: str = "0.6"
    ) -> None:
        self.target, self.lnc, self.rows, self.nki = target, lnc, rows, nki
        self.builder = ProgramBuilder()
        self.line = 0
        self.core = 0
        self.arguments: dict[int, NDArray[Any]] = {}
        self.parameters: list[Buffer] = []
        self.outputs: list[Output] = []
        self._opened: Any = None

    def place(self) -> int:
        self.line += 1
        return self.builder.place((Frame(0, self.line, "kernel"),))

    def tensor(
        self,
        memory: Memory,
        *shape: int,
        dtype: str = "float32",
        address: tuple[int, int] | None = None,
        name: str = "",
        shared: bool = False,
    ) -> View:
        buffer = self.builder.buffer(
            memory=memory,
            shape=shape,
            dtype=dtype,
            address=address,
            core=None if shared else self.core,
            name=name,
            place=self.place(),
        )
        return View(buffer, dtype, 0, row_major(shape))

    def sbuf(self, *shape: int, **fields: Any) -> View:
        return self.tensor(Memory.sbuf, *shape, **fields)

    def psum(self, *shape: int, **fields: Any) -> View:
        return self.tensor(Memory.psum, *shape, **fields)

    def hbm(self, *shape: int, **fields: Any) -> View:
        return self.tensor(Memory.shared_hbm, *shape, **fields)

    def argument(self, values: NDArray[Any], shared: bool = False) -> View:
        view = self.hbm(*values.shape, dtype=dtypes.of(values.dtype).name, shared=shared)
        self.arguments[view.buffer.id] = values
        self.parameters.append(view.buffer)
        return view

    def constant(self, values: NDArray[Any]) -> View:
        digest = self.builder.constant(values)
        name = dtypes.of(values.dtype).name
        buffer = self.builder.buffer(
            memory=Memory.hbm, shape=values.shape, dtype=name, core=0, constant=digest
        )
        return View(buffer, name, 0, row_major(values.shape))

    def call(self, opcode: str, engine: Engine = Engine.unknown, **given: Any) -> int:
        self._open()
        row = self.rows.get(opcode)
        names = tuple(operand.name for operand in row.operands) if row else ("dst", "src")
        views = {name: given.pop(name) for name in names if isinstance(given.get(name), View)}
        accesses = [self.builder.access(views[name].access) if name in views else -1 for name in names]
        return self.builder.append(opcode, names, accesses, given, place=self.place(), engine=engine)

    def raw(self, opcode: str, operands: Mapping[str, Access], **given: Any) -> int:
        """A call with accesses as they are."""
        self._open()
        ids = [self.builder.access(access) for access in operands.values()]
        return self.builder.append(opcode, tuple(operands), ids, given, place=self.place())

    def copy(self, dst: View, src: View) -> int:
        on_chip = dst.buffer.memory.on_chip and src.buffer.memory.on_chip
        return self.call("tensor_copy" if on_chip else "dma_copy", dst=dst, src=src)

    def load(self, values: NDArray[Any]) -> View:
        """An SBUF tile with those values."""
        tile = self.sbuf(*values.shape, dtype=dtypes.of(values.dtype).name)
        self.copy(tile, self.argument(values))
        return tile

    def matmul(self, dst: View, stationary: View, moving: View, **given: Any) -> int:
        return self.call("nc_matmul", dst=dst, stationary=stationary, moving=moving, **given)

    def output(self, view: View, alias: str | None = None, name: str = "out") -> None:
        self.outputs.append(Output(self.builder.access(view.access), alias, name))

    def store(self, view: View) -> None:
        """Return a copy of a tile as an output."""
        out = self.hbm(*(count for _, count in view.pattern), dtype=view.dtype)
        self.copy(out, view)
        self.output(out)

    def indexed(
        self,
        view: View,
        kind: str,
        source: int | View,
        axis: int = 0,
        stride: int | None = None,
        **fields: Any,
    ) -> View:
        """A view that a register, or an index tile, moves along an axis: by its stride unless one is given."""
        where = source if isinstance(source, int) else self.builder.access(source.access)
        step = view.pattern[axis][0] if stride is None else stride
        return replace(view, index=Index(kind, where, axis, step, **fields))

    def table(self, view: View, offsets: NDArray[np.int64]) -> View:
        """A view of explicit elements of a buffer."""
        shape = tuple((0, count) for count in offsets.shape)
        return replace(view, base=0, pattern=shape, table=self.builder.constant(offsets.astype(np.int64)))

    @contextmanager
    def loop(
        self,
        trips: int | tuple[str, int],
        kind: str = "for",
        *,
        lower: int | tuple[str, int] = 0,
        step: int = 1,
        register: int | None = None,
        placed: bool = False,
    ) -> Iterator[None]:
        self._open()
        place = self.place() if placed else -1
        number, start = self.builder.open_loop()
        depth = len(self._parents)
        parent = self._parents[-1] if depth else -1
        self._parents.append(number)
        yield
        self._parents.pop()
        held = number if register is None else register
        loop = Loop(kind, start, len(self.builder), held, lower, trips, step, parent, place)
        self.builder.close_loop(number, loop)

    def switch_core(self) -> None:
        """End the stream of this core and begin the next one's."""
        self._close()
        self.core += 1

    def program(self) -> Program:
        self._open()
        self._close()
        header = Header(
            "kernel", self.target, self.nki, lnc=self.lnc, sources=(Source("kernel.py", "0" * 64),)
        )
        leaves = tuple(TensorLeaf(buffer.id) for buffer in self.parameters)
        names = tuple(f"p{at}" for at in range(len(leaves)))
        return self.builder.finish(header, Group("tuple", names, leaves), tuple(self.outputs))

    def run(self, **options: Any) -> Execution:
        self.ran = self.program()
        return execute(self.ran, self.arguments, rows=self.rows, **options)

    def run_ranks(self, *arguments: Mapping[int, NDArray[Any]], **options: Any) -> tuple[Execution, ...]:
        """Run on each rank, with these in the place of the kernel's own arguments."""
        self.ran = self.program()
        given = [{**self.arguments, **each} for each in arguments]
        return execute_ranks(self.ran, given, rows=self.rows, **options)

    def where(self, fault: Fault) -> str:
        """The place of a fault of the last run."""
        return self.ran.place_text(fault.place)

    def _open(self) -> None:
        if self._opened is None:
            self._parents: list[int] = []
            self._opened = self.builder.stream(core=self.core)
            self._opened.__enter__()

    def _close(self) -> None:
        if self._opened is not None:
            self._opened.__exit__(None, None, None)
            self._opened = None


def counted(*shape: int, dtype: Any = np.float32) -> NDArray[Any]:
    """0, 1, 2, ... in that shape."""
    return np.arange(math.prod(shape)).reshape(shape).astype(dtype)
