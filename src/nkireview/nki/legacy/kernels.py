"""Kernels of the legacy generation: ``nki.jit`` in all modes, and what ran kernels from host code."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from nkireview.nki import jit as current_jit
from nkireview.nki.errors import Refusal
from nkireview.nki.jit import TARGET
from nkireview.nki.trace import active

GENERATION = "nki_generation"
"""The attribute of a function that says that it is of the legacy generation."""
MODES = ("auto", "jax", "torchxla", "baremetal", "benchmark", "simulation", "trace")


class LegacyKernel(current_jit.Kernel):
    """A decorated kernel: inlined while tracing, launched by host code; ``kernel[g0, g1]`` is its launch grid."""

    def __init__(self, function: Callable[..., Any], grid: Any = None) -> None:
        super().__init__(function, grid)
        self.__dict__.pop("__wrapped__")  # a kernel is no function to who looks for tests by name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if active() is not None:
            return self.function(*args, **kwargs)
        return super().__call__(*args, **kwargs)

    def __getitem__(self, grid: Any) -> LegacyKernel:
        return type(self)(self.function, grid)


class Benchmarked(LegacyKernel):
    """A kernel under ``nki.benchmark`` or ``nki.profile``: called, it runs; no time is measured here."""

    @property
    def benchmark_result(self) -> Any:
        """Refused: there is no device to take times on."""
        raise Refusal(
            "nki.benchmark measures on a device, which is not here; nkireview review predicts the time of a kernel"
        )


def made(cls: type[LegacyKernel], function: Callable[..., Any] | None, kwargs: dict[str, Any]) -> Any:
    """A kernel of a function, or what decorates one."""
    if function is None:
        return functools.partial(made, cls, kwargs=kwargs)
    inner, grid = function, None
    if isinstance(function, current_jit.Kernel):
        inner, grid = function.function, function.grid
    try:
        setattr(inner, GENERATION, "legacy")
        if kwargs.get("platform_target"):
            setattr(inner, TARGET, kwargs["platform_target"])
    except AttributeError:
        raise Refusal(f"nki.jit takes a function, got {type(inner).__name__}") from None
    return cls(inner, grid)


def _decorator(cls: type[LegacyKernel], name: str) -> Callable[..., Any]:
    def decorate(func: Callable[..., Any] | None = None, **kwargs: Any) -> Any:
        kernel = kwargs.pop("kernel", None)
        mode = kwargs.get("mode", "auto")
        if mode not in MODES:
            raise Refusal(f"nki.{name}: mode must be one of {', '.join(MODES)}, got {mode!r}")
        chosen = Benchmarked if mode == "benchmark" else cls
        if func is None and kernel is None:
            return lambda function: made(chosen, function, kwargs)
        return made(chosen, func if func is not None else kernel, kwargs)

    decorate.__name__ = decorate.__qualname__ = name
    return decorate


jit = _decorator(LegacyKernel, "jit")
trace = _decorator(LegacyKernel, "trace")
nki_jit = _decorator(LegacyKernel, "nki_jit")
baremetal = _decorator(LegacyKernel, "baremetal")
benchmark = _decorator(Benchmarked, "benchmark")
profile = _decorator(Benchmarked, "profile")


def simulate_kernel(kernel: Any, *args: Any, **kwargs: Any) -> Any:
    """Run a kernel on NumPy arrays; arrays that it writes are updated in place."""
    found = kernel if isinstance(kernel, current_jit.Kernel) else jit(kernel)
    return found(*args, **kwargs)


def is_legacy(function: Any) -> bool:
    """True for functions that the legacy decorators marked."""
    return getattr(function, GENERATION, None) == "legacy"
