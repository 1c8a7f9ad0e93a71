"""Running a kernel of the legacy generation: its arguments, the instances of its grid, and what it returns."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from nkireview.isa.grid import Grid
from nkireview.isa.release import LEGACY, Release
from nkireview.nki import launch
from nkireview.nki.errors import NotYetSupported, Refusal
from nkireview.nki.jit import FRONT, Kernel
from nkireview.nki.legacy import kernels
from nkireview.nki.legacy.compiler import AUTOMATIC, DIRECTIVES
from nkireview.nki.legacy.loops import CoreDim, LaunchGrid, SpmdDim
from nkireview.nki.legacy.modules import mutable
from nkireview.nki.legacy.tile import Tile
from nkireview.nki.tensor import NkiTensor
from nkireview.nki.trace import Trace, tracing

REFUSED_SINCE = Release(0, 4)
"""Release whose compiler refuses neuronxcc.nki, of which it warned before: release-notes/components/nki.rst:273."""


@dataclass(frozen=True)
class Entry:
    """What is traced: the kernel's function, the launch grid that its file gives it, and its generation."""

    function: Callable[..., Any]
    grid: Any
    legacy: bool


def entry_of(found: Any) -> Entry:
    """The kernel behind a function, a decorated one, or a method; Refusal where it mixes two generations."""
    legacy = kernels.generation(found) == "legacy"
    if isinstance(found, functools.partial) and isinstance(found.func, Kernel):
        bound = functools.partial(found.func.function, *found.args, **found.keywords)
        return Entry(bound, found.func.grid, legacy)
    if isinstance(found, Kernel):
        return Entry(found.function, found.grid, legacy)
    return Entry(found, None, legacy)


def launched(entry: Entry, name: str, state: Trace, asked: str) -> LaunchGrid | None:
    """The launch grid of a kernel of the legacy generation: the one asked for, else the file's, else LNC.

    None for a kernel of the current one. Refusal or NotYetSupported where grid or release do not go with the kernel.
    """
    release = state.release
    if not entry.legacy:
        if asked:
            raise Refusal(
                f"kernel {name} is of the current generation, whose launch grid is LNC; a grid of instances belongs to "
                "neuronxcc.nki: leave out --grid, or give --lnc"
            )
        return None
    if release >= REFUSED_SINCE:
        raise Refusal(
            f"kernel {name} is of the legacy generation (neuronxcc.nki), which the compiler of NKI {release} refuses; "
            "judge it with --nki legacy, and see nkireview migrate-check for what has to change"
        )
    if release != LEGACY:
        raise NotYetSupported(
            f"kernel {name}, of the legacy generation (neuronxcc.nki), under NKI {release}, which only warns of it: "
            "judge it with --nki legacy"
        )
    if asked:
        grid = _laid_out(Grid.parse(asked))
    elif entry.grid is not None:
        grid = LaunchGrid.of(entry.grid)
    else:
        grid = _laid_out(Grid.of_cores(state.lnc))
    if grid.lnc != state.lnc:
        raise Refusal(
            f"kernel {name} is launched on {grid.lnc} physical cores by its file and judged for LNC {state.lnc}: give "
            f"--lnc {grid.lnc}"
        )
    return grid


def _laid_out(grid: Grid) -> LaunchGrid:
    axes = [
        SpmdDim(tuple(CoreDim(part.count) if part.cores else part.count for part in axis))
        for axis in grid.axes
    ]
    return LaunchGrid.of(tuple(axes))


def note_parameters(
    state: Trace, function: Callable[..., Any], returned: Any, paths: Mapping[int, str]
) -> None:
    """Note the parameters that a kernel writes although it may not: see nki.errors.rst at tag v2.26.1:179-228,478-513.

    A kernel that returns no tensor hands back the parameters that it writes, as all did before 2.20.1. paths: the path
    of each parameter, by buffer.
    """
    found = {tensor.storage.id for _, tensor in launch.returned_tensors(returned)}
    if not found:
        return
    code = inspect.unwrap(function.func if isinstance(function, functools.partial) else function)
    for buffer, place in sorted(state.builder.first_writes(launch.WRITTEN).items()):
        if buffer not in paths:
            continue
        name = paths[buffer].split(".")[0]
        if not mutable(code, name):
            detail = (
                f"parameter {paths[buffer]} is written and its annotation does not say so; parameters are immutable "
                "unless they are nt.mutable_tensor"
            )
        elif buffer not in found:
            detail = (
                f"parameter {paths[buffer]} is mutable, is written, and is not among what the kernel returns"
            )
        else:
            continue
        state.builder.event("parameter", place, detail)


def taken(value: Any, name: str = "") -> Any:
    """Arguments with their tensors as the legacy generation sees them."""
    if isinstance(value, NkiTensor):
        tile = Tile(value)
        tile.parameter = value.name or name
        return tile
    if isinstance(value, dict):
        return {key: taken(item) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(taken, value))
    if isinstance(value, list | tuple):
        return type(value)(map(taken, value))
    return value


def returned(value: Any) -> Any:
    """What a kernel returned with its tensors as the Program sees them."""
    if isinstance(value, Tile):
        return value.physical()
    if isinstance(value, dict):
        return {key: returned(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(returned, value))
    return value


def run_instances(
    state: Trace,
    grid: LaunchGrid,
    function: Callable[..., Any],
    arguments: Callable[[], tuple[list[Any], dict[str, Any]]],
    run: Callable[[Callable[..., Any], list[Any], dict[str, Any]], Any],
) -> Any:
    """Trace the kernel once for each instance of the grid, in order, on its core; what the first returned."""
    found: Any = None
    state.kept[FRONT] = True
    code = function.func if isinstance(function, functools.partial) else function
    state.kept[AUTOMATIC] = "force_auto_alloc" in getattr(code, DIRECTIVES, ())
    with tracing(state):
        for instance, core in enumerate(grid.cores):
            state.start_core(core, instance)
            args, kwargs = arguments()
            with state.builder.stream(core, instance):
                result = returned(
                    run(
                        function,
                        [taken(item) for item in args],
                        {key: taken(item) for key, item in kwargs.items()},
                    )
                )
                state.end_core()
            found = result if instance == 0 else found
    return found
