"""``nki.jit``: marks a kernel. Inside a trace a kernel called from another is inlined."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from nkireview.isa.release import Release
from nkireview.nki.errors import NotYetSupported, Refusal
from nkireview.nki.trace import SCHEDULE, active, nearest

TARGET_UNTIL = Release(0, 3)  # migration guide: platform_target= raises from 0.3 on

TARGET = "nki_platform_target"
"""The attribute of a function that keeps its decorator's target, for who launches it."""

FRONT = "legacy front"
"""Kept in a trace whose kernel is of the legacy generation."""

Host = Callable[[Callable[..., Any], Any, tuple[Any, ...], dict[str, Any]], Any]
host: Host | None = None
"""What launches a kernel called from host code: given its function, grid and arguments; set in hosted processes."""


class Kernel:
    """A decorated kernel: callable while tracing; ``kernel[n]`` is the launch grid of host code."""

    def __init__(self, function: Callable[..., Any], grid: Any = None) -> None:
        self.function = function
        self.grid = grid
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        trace = active()
        if trace is None:
            if host is not None:
                return host(self.function, self.grid, args, kwargs)
            raise Refusal(
                f"kernel {self.function.__name__} is called outside a review; use nkireview run or nkireview review"
            )
        if trace.kept.get(FRONT):
            raise Refusal(
                f"kernel {self.function.__name__} is of the current generation (nki) and is called from one of the "
                "legacy generation (neuronxcc.nki); the two cannot call each other"
            )
        trace.event(
            "note",
            f"kernel {self.function.__name__} is called from another kernel and inlined; the migration guide asks to "
            "take nki.jit off inner functions",
        )
        if getattr(self.function, SCHEDULE, ()):
            trace.event("note", f"the schedule of the inlined kernel {self.function.__name__} is not applied")
        return self.function(*args, **kwargs)

    def __getitem__(self, grid: Any) -> Kernel:
        return Kernel(self.function, grid)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def with_schedule(self, schedule: Any) -> Kernel:
        """The kernel with dependencies between instructions by name: pairs of a consumer and its producer or producers.

        They are added to each core's stream once it is recorded.
        """
        pairs = tuple(_pair(item) for item in _listed(schedule))

        @functools.wraps(self.function)
        def scheduled(*args: Any, **kwargs: Any) -> Any:
            return self.function(*args, **kwargs)

        setattr(scheduled, SCHEDULE, (*getattr(self.function, SCHEDULE, ()), *pairs))
        return Kernel(scheduled, self.grid)


def _listed(schedule: Any) -> list[Any]:
    if not isinstance(schedule, list | tuple):
        raise Refusal(
            f"with_schedule takes a list of (consumer, producer) pairs of instruction names, got {schedule!r}"
        )
    return list(schedule)


def _pair(item: Any) -> tuple[str, tuple[str, ...]]:
    if isinstance(item, list | tuple) and len(item) == 2 and isinstance(item[0], str):
        producers = (item[1],) if isinstance(item[1], str) else item[1]
        if isinstance(producers, list | tuple) and all(isinstance(name, str) for name in producers):
            return item[0], tuple(producers)
    raise Refusal(
        f"with_schedule: {item!r} is no pair of a consumer's name and the name, or a list of names, of its producers"
    )


def jit(fn: Callable[..., Any] | None = None, **kwargs: Any) -> Any:
    """Decorator, with or without arguments; ``mode=`` is ignored and ``platform_target=`` raises since 0.3."""
    trace = nearest()
    if "platform_target" in kwargs and (trace is None or trace.release >= TARGET_UNTIL):
        raise Refusal("nki.jit: platform_target= is refused since NKI 0.3; set the target outside the kernel")
    if fn is None:
        return functools.partial(jit, **kwargs)
    if "platform_target" in kwargs:
        setattr(fn, TARGET, kwargs["platform_target"])
    return fn if isinstance(fn, Kernel) else Kernel(fn)


def not_yet(name: str) -> Callable[..., Any]:
    """A documented entry point that is not there yet."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise NotYetSupported(name)

    refuse.__name__ = name.rsplit(".", 1)[-1]
    return refuse
