"""What one instruction costs: tracing over the kernel's own Python, executing over the bare NumPy work.

    python benchmarks/instructions.py                  # about 20,000 instructions, seven interleaved runs
    python benchmarks/instructions.py --count 5000 --runs 3 --profile

The program is a mix of small instructions, in a loop that slices HBM tensors and SBUF tiles. Tracing is the same kernel
with the recorders and with recorders that do nothing. Executing is the Program and the same steps written as NumPy
calls on arrays of the same shapes and dtypes, with every array and view made beforehand. Printed are medians of
processor time, and the least of it: other work on the machine makes both sides slower, and so what is between them.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import pstats
import statistics
import time
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from nkireview.execute import execute
from nkireview.isa.enums import Memory
from nkireview.isa.release import Release
from nkireview.nki import isa, language
from nkireview.nki.tensor import NkiTensor
from nkireview.nki.trace import Trace, tracing
from nkireview.program.model import Header, Output
from nkireview.program.program import Program
from nkireview.program.verify import verify

ROWS, COLUMNS, TILES = 128, 64, 8
TARGET, RELEASE = "trn2", "0.6"
F32 = np.dtype(np.float32)

nl = language.module("nl")
nisa = isa.module("nisa")


def mixed(nisa: Any, nl: Any, x: Any, w: Any, out: Any, passes: int) -> None:
    """Sixteen instructions a pass: x [128, 512] and w [64, 64] float32 -> out [128, 512] bfloat16."""
    weights = nl.ndarray((COLUMNS, COLUMNS), nl.float32, nl.sbuf)
    narrow = nl.ndarray((COLUMNS, COLUMNS), nl.bfloat16, nl.sbuf)
    nisa.dma_copy(dst=weights, src=w)
    nisa.tensor_copy(dst=narrow, src=weights)
    for index in range(passes):
        place = nl.ds(index % TILES * COLUMNS, COLUMNS)
        tile = nl.ndarray((ROWS, COLUMNS), nl.float32, nl.sbuf)
        shifted = nl.ndarray((ROWS, COLUMNS), nl.float32, nl.sbuf)
        powers = nl.ndarray((ROWS, COLUMNS), nl.float32, nl.sbuf)
        sums = nl.ndarray((ROWS, 1), nl.float32, nl.sbuf)
        scaled = nl.ndarray((ROWS, COLUMNS), nl.bfloat16, nl.sbuf)
        turned = nl.ndarray((COLUMNS, ROWS), nl.bfloat16, nl.psum)
        left = nl.ndarray((COLUMNS, ROWS), nl.bfloat16, nl.sbuf)
        total = nl.ndarray((ROWS, COLUMNS), nl.float32, nl.psum)
        result = nl.ndarray((ROWS, COLUMNS), nl.bfloat16, nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[:, place])
        nisa.tensor_scalar(dst=shifted, data=tile, op0=nl.multiply, operand0=0.5, op1=nl.add, operand1=-1.0)
        nisa.tensor_tensor(dst=shifted, data1=shifted, data2=tile, op=nl.maximum)
        nisa.activation(dst=powers, op=nl.exp, data=shifted, scale=0.25)
        nisa.memset(dst=sums, value=1.0)
        nisa.tensor_reduce(dst=sums, op=nl.add, data=powers, axis=1)
        nisa.tensor_scalar(dst=scaled, data=powers, op0=nl.multiply, operand0=sums)
        nisa.nc_transpose(dst=turned, data=scaled)
        nisa.tensor_copy(dst=left, src=turned)
        nisa.nc_matmul(dst=total, stationary=left, moving=narrow)
        nisa.nc_matmul(dst=total, stationary=left, moving=narrow)
        nisa.activation(
            dst=result[:, 0 : COLUMNS // 2], op=nl.tanh, data=total[:, 0 : COLUMNS // 2], scale=0.001
        )
        nisa.tensor_copy(dst=result[:, COLUMNS // 2 :], src=total[:, COLUMNS // 2 :])
        nisa.memset(dst=result[0:32, 0:8], value=0.0)
        nisa.tensor_tensor(dst=result[:, 8:24], data1=result[:, 8:24], data2=scaled[:, 0:16], op=nl.add)
        nisa.dma_copy(dst=out[:, place], src=result)


def recorded(nisa: Any, passes: int) -> Program | None:
    """The kernel traced with the recorders of `nisa`; the Program, None where nothing was recorded."""
    trace = Trace(TARGET, Release.parse(RELEASE))
    with tracing(trace):
        shapes = (
            ((ROWS, COLUMNS * TILES), "float32"),
            ((COLUMNS, COLUMNS), "float32"),
            ((ROWS, COLUMNS * TILES), "bfloat16"),
        )
        x, w, out = (
            NkiTensor.whole(trace, trace.buffer(Memory.shared_hbm, shape, dtype)) for shape, dtype in shapes
        )
        with trace.builder.stream():
            mixed(nisa, nl, x, w, out, passes)
        if not len(trace.builder):
            return None
        header = Header("mixed", TARGET, RELEASE, sources=tuple(trace.places.sources))
        return trace.builder.finish(header, outputs=(Output(out.access()),))


def nothing(*args: Any, **kwargs: Any) -> None:
    """A recorder that does nothing."""


CALLED = (
    *("activation", "dma_copy", "memset", "nc_matmul", "nc_transpose"),
    *("tensor_copy", "tensor_reduce", "tensor_scalar", "tensor_tensor"),
)
INSTRUCTIONS = (
    "activation dma_copy memset nc_matmul nc_transpose tensor_copy tensor_reduce tensor_scalar tensor_tensor"
)
SILENT = SimpleNamespace(**dict.fromkeys(INSTRUCTIONS.split(), nothing))


def wide(values: Any) -> Any:
    """Values as float32."""
    return values if not isinstance(values, np.ndarray) or values.dtype == F32 else values.astype(F32)


class Plain:
    """The instructions as NumPy calls, collected in `work`: a function and its arguments each."""

    def __init__(self) -> None:
        self.work: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
        self._written: set[int] = set()

    def dma_copy(self, dst: Any, src: Any) -> None:
        self._add(np.copyto, dst, src)

    def tensor_copy(self, dst: Any, src: Any) -> None:
        if dst.dtype == src.dtype:
            self._add(np.copyto, dst, src)
        else:
            self._add(_narrowed, dst, src)

    def memset(self, dst: Any, value: float) -> None:
        self._add(dst.fill, value)

    def tensor_tensor(self, dst: Any, data1: Any, data2: Any, op: Any) -> None:
        if dst.dtype == F32:
            self._add(_into, op, data1, data2, dst)
        else:
            self._add(_binary, dst, data1, data2, op)

    def tensor_scalar(
        self, dst: Any, data: Any, op0: Any, operand0: Any, op1: Any = None, operand1: Any = None
    ) -> None:
        if dst.dtype == F32:
            self._add(_into, op0, data, operand0, dst)
            if op1 is not None:
                self._add(_into, op1, dst, operand1, dst)
        else:
            self._add(_binary, dst, data, operand0, op0)

    def activation(self, dst: Any, op: Any, data: Any, scale: float) -> None:
        self._add(_activated, dst, data, scale, op)

    def tensor_reduce(self, dst: Any, op: Any, data: Any, axis: int) -> None:
        self._add(_reduced, dst, data, op, axis)

    def nc_transpose(self, dst: Any, data: Any) -> None:
        self._add(np.copyto, dst, data.T)

    def nc_matmul(self, dst: Any, stationary: Any, moving: Any) -> None:
        self._add(_summed if id(dst) in self._written else _product, dst, stationary.T, moving)
        self._written.add(id(dst))

    def _add(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.work.append((function, arguments))


def _narrowed(dst: NDArray[Any], src: NDArray[Any]) -> None:
    dst[...] = src


def _into(op: np.ufunc, left: Any, right: Any, dst: NDArray[Any]) -> None:
    op(left, right, out=dst)


def _binary(dst: NDArray[Any], left: Any, right: Any, op: Callable[..., Any]) -> None:
    dst[...] = op(wide(left), wide(right))


def _activated(dst: NDArray[Any], data: NDArray[Any], scale: float, op: Callable[..., Any]) -> None:
    dst[...] = op(data * np.float32(scale))


def _reduced(dst: NDArray[Any], data: NDArray[Any], op: np.ufunc, axis: int) -> None:
    op.reduce(data, axis=axis, keepdims=True, out=dst)


def _product(dst: NDArray[Any], left: NDArray[Any], right: NDArray[Any]) -> None:
    np.matmul(wide(left), wide(right), out=dst)


def _summed(dst: NDArray[Any], left: NDArray[Any], right: NDArray[Any]) -> None:
    dst += wide(left) @ wide(right)


PLAIN_NL = SimpleNamespace(
    ndarray=lambda shape, dtype, buffer: np.zeros(shape, dtype),
    ds=lambda start, size: slice(start, start + size),
    sbuf=None,
    psum=None,
    float32=np.float32,
    bfloat16=ml_dtypes.bfloat16,
    add=np.add,
    multiply=np.multiply,
    maximum=np.maximum,
    exp=np.exp,
    tanh=np.tanh,
)


def plain_work(
    arguments: Mapping[int, NDArray[Any]], passes: int
) -> tuple[list[tuple[Callable[..., Any], tuple[Any, ...]]], NDArray[Any]]:
    """The NumPy calls, and the array that they leave the result in."""
    plain, out = Plain(), np.zeros((ROWS, COLUMNS * TILES), ml_dtypes.bfloat16)
    mixed(plain, PLAIN_NL, arguments[0], arguments[1], out, passes)
    return plain.work, out


def carry_out(work: list[tuple[Callable[..., Any], tuple[Any, ...]]]) -> None:
    """The bare NumPy work."""
    for function, arguments in work:
        function(*arguments)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=20_000, help="instructions, about (default 20000)")
    parser.add_argument("--runs", type=int, default=7, help="interleaved runs (default 7)")
    parser.add_argument("--profile", action="store_true", help="print where executing spends its time")
    options = parser.parse_args()
    passes = max(options.count // 16, 1)
    generator = np.random.default_rng(0)
    program = recorded(nisa, passes)
    assert program is not None and not verify(program)
    arguments: dict[int, NDArray[Any]] = {
        0: generator.standard_normal((ROWS, COLUMNS * TILES)).astype(F32),
        1: generator.standard_normal((COLUMNS, COLUMNS)).astype(F32),
        2: np.zeros((ROWS, COLUMNS * TILES), ml_dtypes.bfloat16),
    }
    work, wanted = plain_work(arguments, passes)
    spent: dict[str, list[float]] = {}

    def timed(name: str, call: Callable[[], Any]) -> Any:
        gc.collect()
        started = time.process_time()
        found = call()
        spent.setdefault(name, []).append(time.process_time() - started)
        return found

    with threadpool_limits(1), np.errstate(all="ignore"):
        carry_out(work)
        for _ in range(options.runs):
            timed("traced", lambda: recorded(nisa, passes))
            timed("not recorded", lambda: recorded(SILENT, passes))
            execution = timed("executed", lambda: execute(program, arguments))
            timed("NumPy", lambda: carry_out(work))
        if options.profile:
            profile = cProfile.Profile()
            profile.runcall(execute, program, arguments)
            pstats.Stats(profile).sort_stats("tottime").print_stats(40)
    found = execution.outputs[0].values.astype(F32)
    assert not execution.faults and np.allclose(found, wanted.astype(F32), rtol=0.02, atol=0.02)
    print(f"{len(program):,} instructions; us of processor time each, {options.runs} interleaved runs")
    for middle, kind in ((statistics.median, "median"), (min, "least")):
        each = {name: middle(values) * 1e6 / len(program) for name, values in spent.items()}
        for name, without in (("traced", "not recorded"), ("executed", "NumPy")):
            print(
                f"  {kind:7} {name:9} {each[name]:6.2f}   {without:13} {each[without]:6.2f}"
                f"   over it {each[name] - each[without]:6.2f}"
            )


if __name__ == "__main__":
    main()
