"""``nki.jit``: marks a kernel. Inside a trace a kernel called from another is inlined."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from nkireview.nki.errors import NotYetSupported, Refusal
from nkireview.nki.trace import active


class Kernel:
    """A decorated kernel: callable while tracing; ``kernel[n]`` is the launch grid of host code."""

    def __init__(self, function: Callable[..., Any], grid: int | None = None) -> None:
        self.function = function
        self.grid = grid
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if active() is None:
            raise Refusal(
                f"kernel {self.function.__name__} is called outside a review; use nkireview run or nkireview review"
            )
        return self.function(*args, **kwargs)

    def __getitem__(self, grid: Any) -> Kernel:
        return Kernel(self.function, grid)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def with_schedule(self, *args: Any) -> Any:
        """Not traced yet."""
        raise NotYetSupported("kernel.with_schedule")


def jit(fn: Callable[..., Any] | None = None, **kwargs: Any) -> Any:
    """Decorator, with or without arguments; ``mode=`` is ignored since 0.3, ``platform_target=`` raises there."""
    if "platform_target" in kwargs:
        raise Refusal("nki.jit: platform_target= is refused since NKI 0.3; set the target outside the kernel")
    if fn is None:
        return functools.partial(jit, **kwargs)
    return fn if isinstance(fn, Kernel) else Kernel(fn)


def not_yet(name: str) -> Callable[..., Any]:
    """A documented entry point that is not there yet."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise NotYetSupported(name)

    refuse.__name__ = name.rsplit(".", 1)[-1]
    return refuse
