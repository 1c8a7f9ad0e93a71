"""Stand-ins for the Neuron packages that host scripts import beside nki; each does on the CPU what it says."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from nkireview.hosted import neuron_dtypes
from nkireview.hosted.simulate import simulate
from nkireview.nki.legacy import modules as legacy
from nkireview.nki.legacy.kernels import nki_jit_of_torch as nki_jit
from nkireview.nki.modules import find_internal


def install(nki: ModuleType) -> None:
    """Register the stand-ins in `sys.modules`."""
    _put("neuron_dtypes", neuron_dtypes.module())
    _torch_xla()
    _put("torch_neuronx", _module("torch_neuronx", nki_jit=nki_jit))
    _put("torch_neuronx.xla_impl", _module("torch_neuronx.xla_impl"))
    _put("torch_neuronx.xla_impl.ops", _module("torch_neuronx.xla_impl.ops", nki_jit=nki_jit))
    _neuronxcc()
    _simulator(nki)


def _torch_xla() -> None:
    """One device, the CPU; nothing is lazy, so that there is nothing to wait for."""
    _put("torch_xla", _module("torch_xla", device=_cpu, sync=_nothing, __version__="0"))
    _put("torch_xla.core", _module("torch_xla.core"))
    model = _module(
        "torch_xla.core.xla_model",
        xla_device=_cpu,
        mark_step=_nothing,
        wait_device_ops=_nothing,
        master_print=print,
        is_master_ordinal=lambda local=True: True,
        get_ordinal=lambda: 0,
        xrt_world_size=lambda: 1,
    )
    _put("torch_xla.core.xla_model", model)


def _cpu(*args: Any, **kwargs: Any) -> Any:
    return importlib.import_module("torch").device("cpu")


def _nothing(*args: Any, **kwargs: Any) -> None:
    """There is nothing to wait for."""


def _neuronxcc() -> None:
    """The legacy generation, and the cast that files of both take from the old package; its internals refuse."""
    _put("neuronxcc", _module("neuronxcc", __version__="0"))
    legacy.install()
    find_internal("neuronxcc.")
    for name in ("starfish", "starfish.support"):
        _put(f"neuronxcc.{name}", _module(f"neuronxcc.{name}"))
    dtype = _module("neuronxcc.starfish.support.dtype", static_cast=neuron_dtypes.static_cast)
    _put("neuronxcc.starfish.support.dtype", dtype)


def _simulator(nki: ModuleType) -> None:
    """``nki_cpu_simulator``: nki under another name, with `cpu_simulate`."""
    _put("nki.builtin", _module("nki.builtin"))
    _put("nki_cpu_simulator", _module("nki_cpu_simulator", nki=nki, cpu_simulate=simulate))
    _put("nki_cpu_simulator.nki", nki)
    for name, part in list(sys.modules.items()):
        if name.startswith("nki."):
            sys.modules[f"nki_cpu_simulator.{name}"] = part
    _put("nki_cpu_simulator.nki.language.dtypes", sys.modules["nki.dtype"])


def _put(name: str, module: ModuleType) -> None:
    sys.modules[name] = module
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, module)


def _module(name: str, **members: Any) -> ModuleType:
    made = ModuleType(name, f"Stand-in for {name}.")
    made.__path__ = []
    made.__dict__.update(members)
    made.__dict__["__getattr__"] = _unknown(name)
    return made


def _unknown(module: str) -> Callable[[str], Any]:
    def lookup(name: str) -> Any:
        raise AttributeError(f"{module} has no {name!r} where kernels run without an accelerator")

    return lookup
