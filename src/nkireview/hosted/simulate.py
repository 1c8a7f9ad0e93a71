"""``nki.simulate``: a kernel as a function of host arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from nkireview.hosted.launch import launch
from nkireview.nki.jit import Kernel


class Simulated:
    """A kernel to be called on arrays; ``simulated[n]`` sets LNC."""

    def __init__(self, kernel: Callable[..., Any], grid: Any = None) -> None:
        inner = isinstance(kernel, Kernel)
        self._function = kernel.function if isinstance(kernel, Kernel) else kernel
        self._grid = kernel.grid if inner and grid is None else grid  # type: ignore[attr-defined]
        functools.update_wrapper(self, self._function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return launch(self._function, self._grid, args, kwargs)

    def __getitem__(self, grid: Any) -> Simulated:
        return Simulated(self._function, grid)


def simulate(kernel: Any) -> Simulated:
    """The kernel, decorated or plain, as a function of NumPy, torch or jax arrays."""
    return Simulated(kernel)
