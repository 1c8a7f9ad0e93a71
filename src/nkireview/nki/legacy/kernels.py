"""Kernels of the legacy generation: ``nki.jit`` in all modes, and what ran kernels from host code."""

from __future__ import annotations

import dis
import functools
from collections.abc import Callable, Iterator
from types import CodeType, ModuleType
from typing import Any

from nkireview.nki import jit as current_jit
from nkireview.nki.errors import Refusal
from nkireview.nki.jit import FRONT, TARGET
from nkireview.nki.trace import active

GENERATION = "nki_generation"
"""The attribute of a function that says that it is of the legacy generation."""
MODES = ("auto", "jax", "torchxla", "baremetal", "benchmark", "simulation", "trace")
ROOTS = {"neuronxcc.nki": "legacy", "nki": "current"}
PARTS = ("", ".language", ".isa", ".collectives", ".nccl")
"""The modules of either generation that a kernel computes with."""


class LegacyKernel(current_jit.Kernel):
    """A decorated kernel: inlined while tracing, launched by host code; ``kernel[g0, g1]`` is its launch grid."""

    def __init__(self, function: Callable[..., Any], grid: Any = None) -> None:
        super().__init__(function, grid)
        self.__dict__.pop("__wrapped__")  # a kernel is no function to who looks for tests by name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        trace = active()
        if trace is None:
            return super().__call__(*args, **kwargs)
        name = getattr(self.function, "__name__", "a kernel")
        if not trace.kept.get(FRONT):
            raise Refusal(
                f"kernel {name} is of the legacy generation (neuronxcc.nki) and is called from one of the current "
                "generation (nki); the two cannot call each other"
            )
        if self.grid is not None:
            raise Refusal(
                f"kernel {name} is called with a launch grid inside another kernel; only the outermost kernel has one"
            )
        return self.function(*args, **kwargs)

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


def nki_jit_of_torch(func: Callable[..., Any] | None = None, **kwargs: Any) -> Any:
    """``torch_neuronx.nki_jit``, which both generations had: a kernel of the one whose modules its code names."""
    if func is None:
        return functools.partial(nki_jit_of_torch, **kwargs)
    return nki_jit(func, **kwargs) if generation(func) == "legacy" else current_jit.jit(func, **kwargs)


def simulate_kernel(kernel: Any, *args: Any, **kwargs: Any) -> Any:
    """Run a kernel on NumPy arrays; arrays that it writes are updated in place."""
    found = kernel if isinstance(kernel, current_jit.Kernel) else jit(kernel)
    return found(*args, **kwargs)


def is_legacy(function: Any) -> bool:
    """True for functions that the legacy decorators marked."""
    return getattr(function, GENERATION, None) == "legacy"


def generation(found: Any) -> str:
    """``legacy`` or ``current``: of a kernel, by its decorator and the modules that its code names.

    Refusal where they are of both.
    """
    inner = found.func if isinstance(found, functools.partial) else found
    function = inner.function if isinstance(inner, current_jit.Kernel) else inner
    used = dict.fromkeys(modules(function))
    marked = "legacy" if is_legacy(function) else "current" if isinstance(inner, current_jit.Kernel) else ""
    kinds = {_kind(module) for module in used} | ({marked} if marked else set())
    if len(kinds) > 1:
        name = getattr(function, "__name__", "it")
        decorator = {"legacy": "neuronxcc.nki.jit", "current": "nki.jit", "": ""}[marked]
        named = sorted({*used, *([decorator] if decorator else [])})
        raise Refusal(
            f"kernel {name} mixes two generations of NKI, which are two compilers: it uses {', '.join(named)}"
        )
    return kinds.pop() if kinds else "current"


def modules(function: Callable[..., Any]) -> Iterator[str]:
    """The modules of NKI, of either generation, that the code of a function names or imports."""
    code = getattr(function, "__code__", None)
    held = getattr(function, "__globals__", {})
    for name, imported in _names(code) if isinstance(code, CodeType) else ():
        value = None if imported else held.get(name)
        full = name if imported else value.__name__ if isinstance(value, ModuleType) else ""
        if str(getattr(value, "__module__", "")).startswith("nkireview.nki.legacy."):
            full = "neuronxcc.nki"
        if _kind(full):
            yield full


def _names(code: CodeType) -> Iterator[tuple[str, bool]]:
    """The global names of a function's code and of the functions inside it; True for modules that it imports."""
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME", "IMPORT_NAME"):
            yield str(instruction.argval), instruction.opname == "IMPORT_NAME"
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _kind(module: str) -> str:
    """The generation of a module that a kernel computes with; empty for any other."""
    return next((kind for root, kind in ROOTS.items() for part in PARTS if module == root + part), "")
