"""What ``import neuronxcc.nki`` finds: module objects put into `sys.modules` for the time of a trace."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from nkireview.nki.errors import NotYetSupported
from nkireview.nki.legacy import compiler, isa, kernels, language
from nkireview.nki.legacy.tile import Tile
from nkireview.nki.recorders import ENUMS


class TypingTensor:
    """``nt.tensor[shape]`` and ``nt.mutable_tensor``: annotations."""

    def __getitem__(self, shape: Any) -> type[Tile]:
        return Tile

    def __call__(self, *args: Any, **kwargs: Any) -> type[Tile]:
        return Tile


def install() -> ModuleType:
    """Register `neuronxcc.nki` and its sub-modules in `sys.modules`; the `neuronxcc.nki` module."""
    parts = {
        "language": module("language", **language.namespace()),
        "isa": module("isa", **isa.namespace()),
        "typing": module(
            "typing", tensor=TypingTensor(), mutable_tensor=TypingTensor(), scalar=TypingTensor()
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
    sys.modules["neuronxcc.nki"] = nki
    constants = module("isa.constants", **ENUMS, matmul_perf_mode=ENUMS["perf_mode"])
    parts["isa"].constants = constants  # type: ignore[attr-defined]
    sys.modules["neuronxcc.nki.isa.constants"] = constants
    for name, part in parts.items():
        sys.modules[f"neuronxcc.nki.{name}"] = part
    return nki


def module(name: str, **members: Any) -> ModuleType:
    """A module of the legacy package; what it lacks is said to be not supported."""
    full = f"neuronxcc.nki.{name}" if name else "neuronxcc.nki"
    made = ModuleType(full)
    made.__path__ = []
    made.__dict__.update(members)

    def lookup(member: str) -> Any:
        if member.startswith("__"):
            raise AttributeError(member)
        raise NotYetSupported(f"{full}.{member}")

    made.__dict__["__getattr__"] = lookup
    return made
