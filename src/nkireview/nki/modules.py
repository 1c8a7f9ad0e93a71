"""What ``import nki`` finds: module objects put into `sys.modules` for the time of a trace."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from nkireview.nki import isa, language
from nkireview.nki.errors import NotYetSupported
from nkireview.nki.jit import jit, not_yet
from nkireview.nki.recorders import ENUMS
from nkireview.nki.tensor import NkiTensor

COLLECTIVES = (
    *(
        "ReplicaGroup",
        "all_reduce",
        "all_gather",
        "all_gather_v",
        "reduce_scatter",
        "all_to_all",
        "all_to_all_v",
    ),
    *("collective_permute", "collective_permute_implicit", "collective_permute_implicit_reduce", "rank_id"),
    "collective_permute_implicit_current_processing_rank_id",
)


class _TypingTensor:
    """``nki.typing.tensor[shape]``: an annotation."""

    def __getitem__(self, shape: Any) -> type[NkiTensor]:
        return NkiTensor

    def __call__(self, *args: Any, **kwargs: Any) -> type[NkiTensor]:
        return NkiTensor


def install() -> ModuleType:
    """Register `nki` and its sub-modules in `sys.modules`; the `nki` module."""
    nki = _module("nki", jit=jit)
    for name in ("simulate", "benchmark", "baremetal", "profile", "trace"):
        setattr(nki, name, not_yet(f"nki.{name}"))
    parts = {
        "language": language.module("nki.language"),
        "isa": isa.module("nki.isa"),
        "typing": _module("nki.typing", tensor=_TypingTensor(), mutable_tensor=_TypingTensor()),
        "collectives": _module(
            "nki.collectives", **{name: not_yet(f"nki.collectives.{name}") for name in COLLECTIVES}
        ),
        "compiler": _module("nki.compiler"),
        "dtype": language.module("nki.dtype"),
        "tensor": _module("nki.tensor", NkiTensor=NkiTensor),
    }
    sys.modules["nki"] = nki
    for name, part in parts.items():
        setattr(nki, name, part)
        sys.modules[f"nki.{name}"] = part
    constants = _module("nki.isa.constants", **ENUMS)
    parts["isa"].constants = constants  # type: ignore[attr-defined]
    sys.modules["nki.isa.constants"] = constants
    return nki


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
