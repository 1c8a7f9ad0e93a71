"""Kernels of the legacy generation for tests of its tiles: their Program, and what they compute."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from nkireview.execute import Execution, execute
from nkireview.hosted.arguments import Arguments
from nkireview.isa.release import LEGACY
from nkireview.nki import launch as shared
from nkireview.nki.legacy import isa, language
from nkireview.nki.legacy.front import run_instances
from nkireview.nki.legacy.loops import LaunchGrid
from nkireview.nki.legacy.modules import module
from nkireview.nki.trace import Trace
from nkireview.program.model import Header
from nkireview.program.program import Program
from nkireview.program.verify import verify

nl: Any = module("language", **language.namespace())
nisa: Any = module("isa", **isa.namespace())

Array = NDArray[Any]
SMALL = st.integers(-4, 4)


@dataclass(frozen=True)
class Traced:
    """A traced kernel and the arguments that it was traced for."""

    program: Program
    arguments: Mapping[int, Array]

    @property
    def opcodes(self) -> list[str]:
        """The names of the instructions, in order."""
        names = [opcode.name for opcode in self.program.opcodes]
        return [names[number] for number in self.program.columns.opcode.tolist()]

    @property
    def counts(self) -> dict[str, int]:
        """How many instructions there are of each name."""
        return dict(Counter(self.opcodes))

    @property
    def events(self) -> list[str]:
        """What the trace noted."""
        return [f"{event.kind}: {event.detail}" for event in self.program.events]

    def run(self) -> Execution:
        """The execution on those arguments; nothing may be illegal."""
        blocking = [each.message for each in verify(self.program) if each.blocking]
        assert not blocking, blocking
        return execute(self.program, dict(self.arguments), turns=True)


def traced(kernel: Callable[..., Any], *args: Any, grid: Any = None, target: str = "trn2") -> Traced:
    """The Program of a kernel for these arguments."""
    taken = Arguments(args, {}, tuple(f"p{at}" for at in range(len(args))))
    chosen = LaunchGrid.of(grid)
    state = Trace(target, LEGACY, chosen.lnc, chosen.shape)
    buffers = taken.declare(state)
    returned = run_instances(state, chosen, kernel, lambda: taken.rebuilt(state, buffers), shared.run_kernel)
    header = Header(
        kernel="kernel",
        target=target,
        release=str(LEGACY),
        lnc=state.lnc,
        grid=state.grid,
        sources=tuple(state.places.sources),
    )
    outputs = tuple(shared.outputs(state, returned, dict(enumerate(taken.paths))))
    program = state.builder.finish(header, taken.tree, outputs)
    return Traced(program, {at: array.values for at, array in enumerate(taken.arrays)})


def values(kernel: Callable[..., Any], *args: Any, **options: Any) -> list[Array]:
    """What a kernel returns, as arrays; no element may be undefined and no fault may show."""
    execution = traced(kernel, *args, **options).run()
    assert not execution.faults, [fault.message for fault in execution.faults]
    return [output.values for output in execution.outputs]


def result(kernel: Callable[..., Any], *args: Any, **options: Any) -> Array:
    """The one array that a kernel returns."""
    (found,) = values(kernel, *args, **options)
    return found


def stored(*tiles: Any) -> Any:
    """Tiles as outputs in HBM."""
    found = []
    for tile in tiles:
        out = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
        nl.store(out, tile)
        found.append(out)
    return found[0] if len(found) == 1 else tuple(found)


def numbers(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Array:
    """Numbers of a normal distribution."""
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def counted(*shape: int, dtype: Any = np.float32) -> Array:
    """0, 1, 2, ... in that shape: every element is another."""
    return np.arange(np.prod(shape)).reshape(shape).astype(dtype)


COMPARISONS = (operator.lt, operator.le, operator.gt, operator.ge, operator.eq)


@st.composite
def masks(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[Callable[[Any], Any], NDArray[np.bool_]]:
    """A mask of one to three comparisons over a tile: what makes it of nl.arange, and NumPy's of the same."""
    atoms = []
    for _ in range(draw(st.integers(1, 3))):
        steps = [draw(st.sampled_from([0, 0, 1, -1, 2])) for _ in shape]
        reach = sum(abs(step) * size for step, size in zip(steps, shape, strict=True))
        number = draw(st.integers(-reach - 1, reach + 1))
        atoms.append((steps, draw(SMALL), draw(st.sampled_from(COMPARISONS)), number))

    def made(arange: Any) -> Any:
        axes = [
            arange(size)[tuple(slice(None) if at == dim else None for at in range(len(shape)))]
            for dim, size in enumerate(shape)
        ]
        found: Any = True
        for steps, base, compare, number in atoms:
            total: Any = base
            for step, axis in zip(steps, axes, strict=True):
                total = total + axis * step
            found = found & compare(total, number)
        return found

    return made, np.broadcast_to(made(np.arange), shape)
