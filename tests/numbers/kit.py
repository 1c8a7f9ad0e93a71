"""The pairs of this folder: their Programs, traced in this process, and the problems that a diagnosis is given."""

from __future__ import annotations

import functools
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.execute import execute
from nkireview.hosted.arguments import Arguments
from nkireview.isa import dtypes
from nkireview.isa.release import Release
from nkireview.nki import launch, modules
from nkireview.nki.trace import Trace, loading
from nkireview.observed import Observation, observe
from nkireview.program.model import Header
from nkireview.program.program import Program
from nkireview.program.verify import verify

Array = NDArray[Any]
Float64 = NDArray[np.float64]
Shape = tuple[int, ...]
Reference = Callable[[Sequence[Array]], list[Float64]]

TARGET, RELEASE = "trn2", "0.6"
FILES = tuple(sorted((Path(__file__).resolve().parent / "pairs").glob("n[0-9][0-9]_*.py")))
BLIND_FILES = tuple(sorted((Path(__file__).resolve().parent / "blind").glob("b[0-9][0-9]_*.py")))
TWINS = ("honest", "defective")


@dataclass(frozen=True)
class Pair:
    """A file of ``pairs``.

    cause: the name that a diagnosis of the defective twin must give; also: other names that are right too. dtypes:
    names of NKI dtypes; shapes: three, whose meaning is the file's own.
    """

    id: str
    cause: str
    also: tuple[str, ...]
    dtypes: tuple[str, ...]
    shapes: tuple[Shape, ...]
    module: ModuleType

    @property
    def names(self) -> frozenset[str]:
        """Every name of the fault that is right."""
        return frozenset((self.cause, *self.also))

    def inputs(self, shape: Shape, dtype: str, seed: int) -> list[Array]:
        """The arguments, in the storage dtypes of the kernel's parameters."""
        return list(self.module.inputs(shape, dtype, seed))

    def reference(self, arrays: Sequence[Array]) -> list[Float64]:
        """What the outputs should be, computed in float64 from the same arrays and not rounded."""
        found = self.module.reference(*arrays)
        return [np.asarray(each, np.float64) for each in (found if isinstance(found, tuple) else (found,))]


@dataclass(frozen=True)
class Problem:
    """What a diagnosis is given; arguments: by parameter buffer, wanted: an array for each output."""

    program: Program
    arguments: Mapping[int, Array]
    wanted: list[Float64]
    reference: Reference
    observed: Callable[[], list[Observation]]


@functools.cache
def load(path: Path) -> Pair:
    """Import a file of ``pairs``; ``import nki`` means the recorder there."""
    spec = importlib.util.spec_from_file_location(f"numbers_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with _nki(), loading(Trace(TARGET, Release.parse(RELEASE))):
        spec.loader.exec_module(module)
    given = dict(module.PAIR)
    also = tuple(given.pop("also", ()))
    shapes = tuple(tuple(shape) for shape in given.pop("shapes"))
    return Pair(also=also, shapes=shapes, dtypes=tuple(given.pop("dtypes")), module=module, **given)


@functools.cache
def traced(pair: Pair, twin: str, shape: Shape, dtype: str) -> Program:
    """The Program of one twin for arguments of that shape and dtype; it must be legal."""
    kernel = getattr(pair.module, twin)
    arrays = pair.inputs(shape, dtype, 0)
    taken = Arguments(tuple(arrays), {}, tuple(inspect.signature(kernel).parameters))
    state = Trace(TARGET, Release.parse(RELEASE))
    buffers = taken.declare(state)
    returned = launch.run_cores(state, kernel.function, lambda: taken.rebuilt(state, buffers))
    header = Header(kernel=twin, target=TARGET, release=RELEASE, sources=tuple(state.places.sources))
    outputs = tuple(launch.outputs(state, returned, dict(enumerate(taken.paths))))
    program = state.builder.finish(header, taken.tree, outputs)
    found = [f"{program.place_text(each.place)}: {each.message}" for each in verify(program)]
    assert not found, found
    return program


def arguments(program: Program, arrays: Sequence[Array]) -> dict[int, Array]:
    """The arrays by parameter buffer."""
    numbers = [number for _, number in program.parameter_buffers]
    return dict(zip(numbers, arrays, strict=True))


def run(program: Program, arrays: Sequence[Array]) -> list[Array]:
    """The outputs, rounded as the hardware stores them; no fault may show."""
    execution = execute(program, arguments(program, arrays))
    assert not execution.faults, [fault.message for fault in execution.faults]
    return [output.values for output in execution.outputs]


def problem(pair: Pair, twin: str, shape: Shape, dtype: str, seed: int) -> Problem:
    """One twin on one draw of inputs."""
    program = traced(pair, twin, shape, dtype)
    arrays = pair.inputs(shape, dtype, seed)
    return Problem(
        program,
        arguments(program, arrays),
        pair.reference(arrays),
        pair.reference,
        lambda: observe(pair.module.reference, arrays, {})[1],
    )


def epsilon(array: Array) -> float:
    """Half an ulp of a stored dtype, relative: 0 for integers."""
    row = dtypes.of(array.dtype)
    return 2.0**-row.significand_bits if row.kind == "float" else 0.0


def tiny(array: Array) -> float:
    """Half the smallest subnormal number of a stored dtype: 0 for integers."""
    row = dtypes.of(array.dtype)
    return 2.0 ** (row.min_exponent - row.significand_bits) if row.min_exponent is not None else 0.0


@contextmanager
def _nki() -> Iterator[None]:
    """``import nki`` finds the recorder, and what was there before afterwards."""
    before = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "nki"}
    finders = list(sys.meta_path)
    modules.install()
    try:
        yield
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "nki"]:
            del sys.modules[name]
        sys.modules.update(before)
        sys.meta_path[:] = finders
