"""The namespace `nki.isa`: recorders for every row, enumerations, and a clear answer for what has no row yet."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from nkireview.isa.enums import DmaEngine, Engine, NcVersion
from nkireview.isa.table import KNOWN_NAMES, ROWS
from nkireview.nki.errors import NotYetSupported, Refusal
from nkireview.nki.recorders import ENUMS, NkiInstruction, missing, recorder
from nkireview.nki.trace import surroundings


def get_nc_version() -> NcVersion:
    """The NeuronCore version of the target."""
    return NcVersion[surroundings("nisa.get_nc_version").hardware.nc_version]


def get_nc_sub_version() -> int:
    """0, the first silicon revision."""
    surroundings("nisa.get_nc_sub_version")
    return 0


def namespace() -> dict[str, Any]:
    """Everything a kernel finds in `nki.isa`."""
    found: dict[str, Any] = {name: missing(name) for name in KNOWN_NAMES if name not in ROWS}
    found.update({name: recorder(row) for name, row in ROWS.items() if row.namespace == "nki.isa"})
    found.update(ENUMS, dma_engine=DmaEngine)
    found.update(
        {f"{engine.name}_engine": engine for engine in Engine if engine not in (Engine.dma, Engine.sync)}
    )
    found.update(
        get_nc_version=get_nc_version,
        get_nc_sub_version=get_nc_sub_version,
        NkiInstruction=NkiInstruction,
        NkiValidationError=Refusal,
    )
    return found


def module(name: str) -> ModuleType:
    """A fresh module object."""
    made = ModuleType(name, __doc__)
    made.__dict__.update(namespace())
    made.__dict__["__getattr__"] = _unknown(name)
    return made


def _unknown(module_name: str) -> Callable[[str], Any]:
    def lookup(name: str) -> Any:
        if name == "VirtualRegister":
            raise NotYetSupported("nisa.VirtualRegister")
        raise AttributeError(f"{module_name} has no {name!r} in the current generation")

    return lookup
