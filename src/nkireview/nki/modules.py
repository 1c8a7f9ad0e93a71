"""What ``import nki`` finds: module objects put into `sys.modules` for the time of a trace."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from nkireview.isa.names import changed_names
from nkireview.nki import collectives, isa, language
from nkireview.nki.control import while_loop
from nkireview.nki.errors import NotYetSupported, Refusal
from nkireview.nki.jit import jit, not_yet
from nkireview.nki.recorders import ENUMS
from nkireview.nki.tensor import NkiTensor

LAUNCHERS = ("simulate", "cpu_simulate")
HOST_CALLS = {
    "benchmark": "call the kernel on arrays, and take times from nkireview review",
    "baremetal": "call the kernel on arrays",
    "profile": "take times from nkireview review",
    "trace": "use nki.jit",
}
"""What host code called in earlier releases: what to do instead."""


class TypingTensor:
    """``nki.typing.tensor[shape]``: an annotation."""

    def __getitem__(self, shape: Any) -> type[NkiTensor]:
        return NkiTensor

    def __call__(self, *args: Any, **kwargs: Any) -> type[NkiTensor]:
        return NkiTensor


def install() -> ModuleType:
    """Register `nki` and its sub-modules in `sys.modules`; the `nki` module."""
    nki = _module("nki", jit=jit)
    for name in LAUNCHERS:
        setattr(
            nki, name, not_yet(f"nki.{name} where a kernel is judged (run the script with nkireview exec)")
        )
    for name, instead in HOST_CALLS.items():
        setattr(nki, name, _refused(f"nki.{name}", instead))
    parts = {
        "language": language.module("nki.language"),
        "isa": isa.module("nki.isa"),
        "typing": _module("nki.typing", tensor=TypingTensor(), mutable_tensor=TypingTensor()),
        "collectives": _module("nki.collectives", **collectives.namespace()),
        "compiler": internal("nki.compiler"),
        "dtype": language.module("nki.dtype"),
        "tensor": _module("nki.tensor", NkiTensor=NkiTensor),
        "experimental": _module("nki.experimental", while_loop=while_loop),
    }
    sys.modules["nki"] = nki
    for name, part in parts.items():
        setattr(nki, name, part)
        sys.modules[f"nki.{name}"] = part
    constants = _module("nki.isa.constants", **ENUMS, matmul_perf_mode=ENUMS["perf_mode"])
    parts["isa"].constants = constants  # type: ignore[attr-defined]
    sys.modules["nki.isa.constants"] = constants
    find_internal("nki.compiler.")
    return nki


def _refused(name: str, instead: str) -> Callable[..., Any]:
    known = changed_names().get(name)
    left = known.spans[0].until if known is not None else None
    reason = f"left NKI in {left}; {instead}" if left else instead

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise Refusal(f"{name}: {reason}")

    refuse.__name__ = name.rpartition(".")[2]
    return refuse


class _Internal(type):
    """A name of the compiler's internals: a class that cannot be instantiated and has nothing in it."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        raise Refusal(f"{cls.__module__}.{cls.__name__} belongs to the Neuron compiler, which is not here")

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise Refusal(f"{cls.__module__}.{cls.__name__} belongs to the Neuron compiler, which is not here")


def internal(name: str) -> ModuleType:
    """A module of the compiler: every name can be imported and none used."""
    made = ModuleType(name)
    made.__path__ = []

    def lookup(member: str) -> Any:
        if member.startswith("__"):
            raise AttributeError(member)
        return _Internal(member, (), {"__module__": name})

    made.__dict__["__getattr__"] = lookup
    return made


class _InternalLoader(Loader):
    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return internal(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing runs."""


class _InternalFinder(MetaPathFinder):
    """Finds every module whose name begins with a prefix."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(self.prefix):
            return None
        return ModuleSpec(fullname, _InternalLoader(), is_package=True)


def find_internal(prefix: str) -> None:
    """Let every module of the compiler below a prefix (``nki.compiler.``) be imported; its names refuse to be used."""
    found = (finder for finder in sys.meta_path if isinstance(finder, _InternalFinder))
    if not any(finder.prefix == prefix for finder in found):
        sys.meta_path.insert(0, _InternalFinder(prefix))


def _module(name: str, **members: Any) -> ModuleType:
    made = ModuleType(name)
    made.__path__ = []
    made.__dict__.update(members)

    def lookup(member: str) -> Any:
        if member.startswith("__"):
            raise AttributeError(member)
        raise NotYetSupported(f"{name}.{member}")

    made.__dict__["__getattr__"] = lookup
    return made
