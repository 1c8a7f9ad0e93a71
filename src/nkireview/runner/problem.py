"""Problem files: a torch ``Model`` whose inputs are ``get_inputs()`` and whose arguments are ``get_init_inputs()``.

A model draws its weights when it is made. Here they are arguments like any other, behind the inputs: first the
parameters, then the buffers of a floating dtype, in the model's own order. So the kernel is given them too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from nkireview.runner.load import LoadError

MODEL, INPUTS, INIT_INPUTS = "Model", "get_inputs", "get_init_inputs"
INT32 = np.iinfo(np.int32)


def is_problem(module: ModuleType) -> bool:
    """Whether a loaded file is a problem file."""
    functions = (getattr(module, name, None) for name in (INPUTS, INIT_INPUTS))
    return isinstance(getattr(module, MODEL, None), type) and all(callable(each) for each in functions)


def function_of(module: ModuleType, name: str, file: Path) -> Callable[..., Any]:
    """The function behind ``Model`` or ``get_inputs`` of a problem file.

    `LoadError` where torch, which the file has imported, is only a stand-in, and for a model that is none of torch's.
    """
    torch: Any = sys.modules.get("torch")
    if torch is not None and not hasattr(torch, "__version__"):
        raise LoadError(f"{file}: its {MODEL} needs torch; install it beside nkireview")
    if torch is None or not issubclass(getattr(module, MODEL), torch.nn.Module):
        raise LoadError(f"{file}: its {MODEL} is no torch.nn.Module")
    return Forward(module, torch) if name == MODEL else Inputs(module, torch)


class Inputs:
    """The inputs of a problem and the weights of its model; random where the problem draws them."""

    def __init__(self, module: ModuleType, torch: Any) -> None:
        self._module = module
        self._torch = torch

    def __call__(self) -> list[Any]:
        """Inputs, parameters, buffers; integers of 64 bits as int32, which is what a kernel has."""
        model = _made(self._module)
        return [self._narrow(item) for item in (*getattr(self._module, INPUTS)(), *_weights(model))]

    def _narrow(self, item: Any) -> Any:
        torch = self._torch
        if not isinstance(item, torch.Tensor) or item.dtype != torch.int64:
            return item
        if item.numel() and not INT32.min <= int(item.min()) <= int(item.max()) <= INT32.max:
            raise ValueError(
                f"{INPUTS}() returns 64-bit integers outside of int32, which is the widest that a kernel takes"
            )
        return item.to(torch.int32)


class Forward:
    """The model's ``forward`` on inputs and weights as arrays; `note` says how a result came about, where it matters.

    Arrays of float64 ask for a result in float64. Where the model cannot, it is computed in the dtype of its weights.
    """

    def __init__(self, module: ModuleType, torch: Any) -> None:
        self._module = module
        self._torch = torch
        self.note = ""

    def __call__(self, *arrays: Any) -> Any:
        """Outputs as tensors, nested as the model returns them."""
        torch = self._torch
        self.note = ""
        wide = any(getattr(each, "dtype", None) == np.float64 for each in arrays)
        if not wide:
            return self._run(arrays, None)
        try:
            found = self._run(arrays, torch.float64)
        except (
            Exception
        ) as error:  # whatever it is, the model may still run in its own dtype, and the note says why
            first = (str(error).strip().splitlines() or [""])[0][:200]
            own = self._own_dtype()
            found = self._run(arrays, own)
            self.note = f"in {_name(own)}: in float64 it raises {type(error).__name__}: {first}"
            return found
        narrow = sorted({_name(each.dtype) for each in self._floats(found)} - {"float64"})
        if narrow:
            self.note = f"in {' and '.join(narrow)}: the model itself converts to that"
        return found

    def _run(self, arrays: tuple[Any, ...], dtype: Any) -> Any:
        torch = self._torch
        model = _made(self._module)
        if dtype is not None:
            model = model.to(dtype)
        weights = _weights(model)
        count = len(arrays) - len(weights)
        if count < 0:
            raise ValueError(f"{len(arrays)} arguments are fewer than the {len(weights)} weights of {MODEL}")
        given = [self._tensor(each, dtype) for each in arrays]
        with torch.no_grad():
            for weight, value in zip(weights, given[count:], strict=True):
                weight.copy_(value)
            return model(*given[:count])

    def _own_dtype(self) -> Any:
        floats = self._floats(_weights(_made(self._module)))
        return floats[0].dtype if floats else self._torch.get_default_dtype()

    def _tensor(self, array: Any, dtype: Any) -> Any:
        """A float takes the dtype, an integer the 64 bits by which torch indexes; a scalar stays as it is."""
        torch = self._torch
        if not isinstance(array, np.ndarray):
            return array
        if array.dtype.name == "bfloat16":
            made = torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        else:
            made = torch.from_numpy(array)
        if made.is_floating_point():
            return made if dtype is None else made.to(dtype)
        return made.to(torch.int64) if made.dtype == torch.int32 else made

    def _floats(self, found: Any) -> list[Any]:
        items = found if isinstance(found, list | tuple) else [found]
        return [each for each in items if isinstance(each, self._torch.Tensor) and each.is_floating_point()]


def _made(module: ModuleType) -> Any:
    return getattr(module, MODEL)(*getattr(module, INIT_INPUTS)())


def _weights(model: Any) -> list[Any]:
    buffers = [each for each in model.buffers() if each.is_floating_point()]
    return [*model.parameters(), *buffers]


def _name(dtype: Any) -> str:
    return str(dtype).rpartition(".")[2]
