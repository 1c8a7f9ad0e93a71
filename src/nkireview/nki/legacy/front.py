"""Running a kernel of the legacy generation: its arguments, the instances of its grid, and what it returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nkireview.nki.legacy.loops import LaunchGrid
from nkireview.nki.legacy.tile import Tile
from nkireview.nki.tensor import NkiTensor
from nkireview.nki.trace import Trace, tracing


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
