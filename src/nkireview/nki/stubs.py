"""Inert stand-ins for what host files import: they raise only if a kernel calls them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import FunctionType, ModuleType
from typing import Any

from nkireview.nki.errors import Refusal
from nkireview.nki.jit import Kernel
from nkireview.nki.trace import active

STUBBED = frozenset(
    {
        *(
            "torch",
            "torchvision",
            "torch_xla",
            "torch_neuronx",
            "transformers",
            "accelerate",
            "jax",
            "jaxlib",
        ),
        *(
            "neuronx_distributed",
            "neuronx_distributed_inference",
            "neuronxcc",
            "libneuronxla",
            "neuron_dtypes",
        ),
        *("optimum", "vllm", "nkipy", "spike", "pytest", "matplotlib", "pandas"),
    }
)
used: dict[str, None] = {}
"""Names of stubs imported by the kernel's files, in order."""


class _StubType(type):
    """A class whose attributes are stubs, so that stubs serve as modules' members, bases and decorators."""

    _path: str

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return stub(f"{cls._path}.{name}")

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if not cls.__dict__.get("_is_stub"):
            return super().__call__(*args, **kwargs)
        trace = active()
        if trace is not None:
            raise Refusal(f"{cls._path} is host code and has no meaning inside a kernel")
        if len(args) == 1 and not kwargs and isinstance(args[0], FunctionType | Kernel | type):
            return args[0]
        return stub(f"{cls._path}()")

    def __getitem__(cls, key: Any) -> Any:
        return cls

    def __or__(cls, other: Any) -> Any:
        return Any

    __ror__ = __or__

    def __repr__(cls) -> str:
        return f"<stub {cls._path}>"


def stub(path: str) -> Any:
    """A stand-in for one host name."""
    return _StubType(path.rsplit(".", 1)[-1], (), {"_path": path, "_is_stub": True, "__module__": path})


class _StubModule(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return stub(f"{self.__name__}.{name}")


class _StubLoader(Loader):
    def create_module(self, spec: ModuleSpec) -> ModuleType:
        used.setdefault(spec.name)
        made = _StubModule(spec.name)
        made.__path__ = []
        return made

    def exec_module(self, module: ModuleType) -> None:
        """Nothing runs."""


class StubFinder(MetaPathFinder):
    """Finds a stub for every module under a listed package, installed or not."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See `MetaPathFinder.find_spec`."""
        if fullname.split(".", 1)[0] not in STUBBED:
            return None
        return ModuleSpec(fullname, _StubLoader(), is_package=True)


def install() -> None:
    """Put the finder before all others and forget real modules of the listed packages."""
    for name in [name for name in sys.modules if name.split(".", 1)[0] in STUBBED]:
        del sys.modules[name]
    if not any(isinstance(finder, StubFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, StubFinder())
