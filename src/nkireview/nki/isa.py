"""The namespace `nki.isa`: recorders for every row, enumerations, and a clear answer for what has no row yet."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from nkireview.isa.enums import DmaEngine, Engine, NcVersion
from nkireview.isa.names import changed_names
from nkireview.isa.release import Release
from nkireview.isa.table import KNOWN_NAMES, ROWS
from nkireview.nki import spans
from nkireview.nki.errors import Refusal
from nkireview.nki.recorders import ENUMS, NkiInstruction, missing, recorder
from nkireview.nki.registers import VirtualRegister, fresh
from nkireview.nki.tensor import NkiTensor
from nkireview.nki.trace import current, surroundings

TENSORS_UNTIL = Release(
    0, 3
)  # release notes 0.2: register_alloc takes a tensor; the stubs since 0.3 a number


def get_nc_version() -> NcVersion:
    """The NeuronCore version of the target."""
    return NcVersion[surroundings("nisa.get_nc_version").hardware.nc_version]


def get_nc_sub_version() -> int:
    """0, the first silicon revision."""
    surroundings("nisa.get_nc_sub_version")
    return 0


_filled = recorder(ROWS["register_alloc"])
_loaded = recorder(ROWS["register_load"])


def register_alloc(x: Any = None) -> VirtualRegister:
    """A fresh register: uninitialised, or with an integer in it; before 0.3 also with the element of a tensor."""
    trace = current("nisa.register_alloc")
    if x is None:
        return fresh(trace)
    if isinstance(x, NkiTensor) and trace.release < TENSORS_UNTIL:
        register = fresh(trace)
        _loaded(register, x)
        return register
    if isinstance(x, NkiTensor):
        raise Refusal("register_alloc: x must be an integer or None; load a tensor with nisa.register_load")
    if type(x) is VirtualRegister:
        raise Refusal("register_alloc: x must be an integer or None; copy a register with nisa.register_move")
    return _filled(x=x)  # type: ignore[no-any-return]


def namespace() -> dict[str, Any]:
    """Everything a kernel finds in `nki.isa`."""
    gone = (full.rpartition(".") for full in changed_names())
    names = (*KNOWN_NAMES, *(name for space, _, name in gone if space == "nki.isa"))
    found: dict[str, Any] = {name: missing(name) for name in names if name not in ROWS}
    found.update({name: recorder(row) for name, row in ROWS.items() if row.namespace == "nki.isa"})
    found.update(ENUMS, dma_engine=DmaEngine, matmul_perf_mode=ENUMS["perf_mode"])
    found.update(
        {f"{engine.name}_engine": engine for engine in Engine if engine not in (Engine.dma, Engine.sync)}
    )
    found.update(
        get_nc_version=get_nc_version,
        get_nc_sub_version=get_nc_sub_version,
        NkiInstruction=NkiInstruction,
        VirtualRegister=VirtualRegister,
        register_alloc=register_alloc,
        NkiValidationError=Refusal,
    )
    return found


def module(name: str) -> ModuleType:
    """A fresh module object."""
    return spans.module(name, "nki.isa", namespace(), __doc__)
