"""One launch: trace the kernel on the arguments' shapes, verify it, execute it on their values."""

from __future__ import annotations

import gc
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from nkireview.execute import Execution, OutputValue, execute
from nkireview.hosted import debug
from nkireview.hosted.arguments import Arguments, remade
from nkireview.hosted.arrays import result
from nkireview.hosted.errors import IndexFault, InvalidIndexError, InvalidKernelError, KernelFault
from nkireview.hosted.settings import Settings, settings
from nkireview.isa.release import LEGACY
from nkireview.nki import launch as shared
from nkireview.nki.errors import NotYetSupported, Refusal
from nkireview.nki.jit import TARGET
from nkireview.nki.legacy.front import run_instances
from nkireview.nki.legacy.kernels import is_legacy
from nkireview.nki.legacy.loops import LaunchGrid
from nkireview.nki.objects import NKIObject
from nkireview.nki.tensor import NkiTensor
from nkireview.nki.trace import Trace
from nkireview.program.model import Header
from nkireview.program.prints import prints
from nkireview.program.program import Program
from nkireview.program.verify import verify

OUT_OF_BOUNDS = 115  # the number of the rule among the constraints
NOT_SIMULATED = frozenset({9, 11, 12, 14, 24})
"""Rules that the legacy generation's simulator knows nothing of: where a tile may lie, what may be returned."""
TELLING = frozenset(
    {
        "uninitialised",
        "unwritten output",
        "psum accumulate onto undefined",
        "psum accumulate after value init",
        "undefined index",
        "duplicate scatter",
        "duplicate scatter to a spare row",
    }
)
"""Faults that leave NaN behind, or one of several values, and go on, as on the official simulator; all others end the
launch."""
_told: set[str] = set()


def launch(function: Callable[..., Any], grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a kernel on the arguments of host code: what it returns, as arrays of the arguments' library.

    HBM arguments that the kernel writes are updated in place. Raise `Refusal` where the kernel leaves the language,
    `InvalidKernelError` where it breaks a limit so that it has no meaning, `KernelFault` for what has no defined
    result; other breaches are told once on stderr.
    """
    chosen = settings(getattr(function, TARGET, None))
    taken = Arguments(args, kwargs, names_of(function))
    program, state, returned = recorded(function, grid, taken, chosen)
    _verified(program, chosen.strict)
    # a trace that shows values prints at once
    outputs, printed = program.outputs, () if chosen.debug else prints(program)
    program = replace(program, outputs=(*outputs, *printed))
    execution = execute(
        program,
        {at: array.values for at, array in enumerate(taken.arrays)},
        **_formats(chosen, state.results),
    )
    for output, found in zip(printed, execution.outputs[len(outputs) :], strict=True):
        print(output.name, found.values)
    _faultless(execution, is_legacy(function))
    for array, path in zip(taken.arrays, taken.paths, strict=True):
        if path in execution.parameters:
            array.write(execution.parameters[path])
    values = execution.outputs[: len(outputs)]
    return _returned(program, values, returned, taken.library)


def recorded(
    function: Callable[..., Any], grid: Any, taken: Arguments, chosen: Settings
) -> tuple[Program, Trace, Any]:
    """The Program of a kernel on the shapes of arguments, as traced; its trace, and what the kernel returned."""
    legacy = LaunchGrid.of(grid) if is_legacy(function) else None
    state = (
        Trace(chosen.target, chosen.release, *_cores(grid))
        if legacy is None
        else Trace(chosen.target, LEGACY, legacy.lnc, legacy.shape)
    )
    buffers = taken.declare(state)

    def arguments() -> tuple[list[Any], dict[str, Any]]:
        return taken.rebuilt(state, buffers)

    with _quick(), debug.showing(state, taken, chosen.debug):
        returned = (
            shared.run_cores(state, function, arguments)
            if legacy is None
            else run_instances(state, legacy, function, arguments, shared.run_kernel)
        )
    return _program(state, function, taken, returned, chosen), state, returned


def names_of(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names of a kernel's parameters."""
    try:
        return tuple(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return ()


def _cores(grid: Any) -> tuple[int, tuple[int, ...]]:
    """LNC and grid of what stands in kernel[...]."""
    if grid is None:
        return 1, ()
    axes = grid if isinstance(grid, tuple) else (grid,)
    if len(axes) != 1 or isinstance(axes[0], bool) or not isinstance(axes[0], int) or axes[0] not in (1, 2):
        raise Refusal(f"kernel[{', '.join(map(str, axes))}]: the grid of this generation is LNC, 1 or 2")
    return axes[0], axes


@contextmanager
def _quick() -> Iterator[None]:
    """A trace makes many objects and few cycles."""
    before = gc.get_threshold()
    gc.set_threshold(200_000, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _program(
    state: Trace, function: Callable[..., Any], taken: Arguments, returned: Any, chosen: Settings
) -> Program:
    header = Header(
        kernel=getattr(function, "__name__", type(function).__name__),
        target=state.hardware.name,
        release=str(state.release),
        lnc=state.lnc,
        grid=state.grid,
        sources=tuple(state.places.sources),
    )
    outputs = tuple(shared.outputs(state, returned, dict(enumerate(taken.paths))))
    return state.builder.finish(header, taken.tree, outputs)


def _formats(chosen: Settings, results: set[int]) -> dict[str, Any]:
    """How `execute` keeps numbers, where `results` are the buffers that no declared tile stands for."""
    rounding = {"compute": np.float64, "rounding": "off"} if chosen.precise is False else {}
    return {
        "turns": True,
        "trusting": True,
        "unrounded": results if chosen.precise is None else (),
        **rounding,
    }


def _verified(program: Program, strict: bool) -> None:
    for violation in verify(program):
        if violation.unsupported:
            raise NotYetSupported(violation.message)
        simulated = program.header.release == str(LEGACY) and violation.number in NOT_SIMULATED
        if (simulated or not violation.blocking) and not strict:
            tell(violation.message)
        elif violation.number == OUT_OF_BOUNDS:
            raise InvalidIndexError(violation.message)
        else:
            raise InvalidKernelError(violation.message)


def _faultless(execution: Execution, legacy: bool) -> None:
    """Raise what went wrong; scripts of the legacy generation look for an IndexError that is nothing else."""
    for fault in execution.faults:
        if fault.kind in TELLING:
            tell(fault.message)
        elif fault.kind == "out of bounds":
            if legacy:
                raise IndexError(_as_numpy(fault.message)) from IndexFault(fault.message)
            raise IndexFault(fault.message)
        else:
            raise KernelFault(fault.message)


def _as_numpy(message: str) -> str:
    """The words of NumPy for an index out of bounds, which scripts of the legacy generation look for."""
    found = re.search(r"element (-?\d+) of a tensor of (\d+) elements", message)
    return f"index {found[1]} is out of bounds for axis 0 with size {found[2]}" if found else message


def tell(message: str) -> None:
    """Write a warning to stderr, once in a process."""
    if message not in _told:
        _told.add(message)
        sys.stderr.write(f"nkireview: warning: {message}\n")


def _returned(program: Program, found: tuple[OutputValue, ...], returned: Any, library: str) -> Any:
    values = iter(zip(program.outputs, found, strict=False))

    def back(value: Any) -> Any:
        if isinstance(value, NkiTensor):
            output, held = next(values)
            return result(held.values, program.access(output.access).dtype, library)
        if isinstance(value, dict):
            return {key: back(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return remade(value, dict(enumerate([back(item) for item in value])))
        if isinstance(value, NKIObject):
            return remade(value, {key: back(item) for key, item in vars(value).items()})
        return value

    return back(returned)
