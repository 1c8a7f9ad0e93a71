"""What ``import neuronxcc.nki`` finds: module objects put into `sys.modules` for the time of a trace."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from nkireview.nki.errors import NotYetSupported
from nkireview.nki.legacy import compiler, isa, kernels, language
from nkireview.nki.legacy.tile import Tile
from nkireview.nki.modules import find_internal
from nkireview.nki.recorders import ENUMS

ROOT = "neuronxcc.nki"
INTERNAL = frozenset({"kernels", "nccl", "neuron_isa", "starfish"})
"""Sub-modules that the package brings, or keeps to itself as those whose name begins with an underscore: kernels and
tools of the compiler. They can be imported and not used."""


class TypingTensor:
    """``nt.tensor[shape]`` and ``nt.mutable_tensor``: annotations."""

    def __init__(self, *, mutable: bool = False) -> None:
        self.mutable = mutable

    def __getitem__(self, shape: Any) -> TypingTensor:
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> TypingTensor:
        return self

    def __or__(self, other: Any) -> TypingTensor:
        return self

    __ror__ = __or__


def mutable(function: Callable[..., Any], name: str) -> bool:
    """True for a parameter of a function that its annotation lets the kernel write."""
    found = getattr(function, "__annotations__", {}).get(name)
    return "mutable_tensor" in found if isinstance(found, str) else bool(getattr(found, "mutable", False))


def install() -> ModuleType:
    """Register `neuronxcc.nki` and its sub-modules in `sys.modules`; the `neuronxcc.nki` module."""
    parts = {
        "language": module("language", **language.namespace()),
        "isa": module("isa", **isa.namespace()),
        "typing": module(
            "typing",
            tensor=TypingTensor(),
            mutable_tensor=TypingTensor(mutable=True),
            scalar=TypingTensor(),
        ),
        "compiler": module("compiler", **compiler.namespace()),
    }
    nki = module(
        "",
        jit=kernels.jit,
        trace=kernels.trace,
        nki_jit=kernels.nki_jit,
        baremetal=kernels.baremetal,
        benchmark=kernels.benchmark,
        profile=kernels.profile,
        simulate_kernel=kernels.simulate_kernel,
        tensor=Tile,
        **parts,
    )
    root = sys.modules.get("neuronxcc")
    if root is None:
        root = ModuleType("neuronxcc")
        root.__path__ = []
        sys.modules["neuronxcc"] = root
    root.nki = nki  # type: ignore[attr-defined]
    sys.modules[ROOT] = nki
    constants = module("isa.constants", **ENUMS, matmul_perf_mode=ENUMS["perf_mode"])
    parts["isa"].constants = constants  # type: ignore[attr-defined]
    sys.modules[f"{ROOT}.isa.constants"] = constants
    for name, part in parts.items():
        sys.modules[f"{ROOT}.{name}"] = part
    find_internal(f"{ROOT}.")
    return nki


def module(name: str, **members: Any) -> ModuleType:
    """A module of the legacy package; what it lacks is said to be not supported."""
    full = f"{ROOT}.{name}" if name else ROOT
    made = ModuleType(full)
    made.__path__ = []
    made.__dict__.update(members)

    def lookup(member: str) -> Any:
        if member.startswith("__"):
            raise AttributeError(member)
        if member in INTERNAL or member.startswith("_"):
            return importlib.import_module(f"{full}.{member}")
        raise NotYetSupported(f"{full}.{member}")

    made.__dict__["__getattr__"] = lookup
    return made
