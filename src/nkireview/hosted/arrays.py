"""Arrays of the host's libraries: NumPy, torch and jax, told apart without importing the last two."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.hosted.packed import PACKED, packed_name
from nkireview.isa import dtypes
from nkireview.isa.dtypes import cast
from nkireview.nki.errors import Refusal

Array = NDArray[Any]
_VIEWED = {"bfloat16": "int16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8", "float8_e8m0fnu": "uint8"}
# torch has no IEEE float8_e4m3; the bits of its numbers are those of the finite-only format
_TORCH_NAMES = {
    "bool_": "bool",
    "tfloat32": "float32",
    "float8_e4m3": "float8_e4m3fn",
    "float8_e5m2_x4": "uint32",
    "float8_e4m3fn_x4": "uint32",
    "float4_e2m1fn_x4": "uint16",
}


@dataclass(frozen=True)
class HostArray:
    """An argument: its values in storage dtype, its NKI dtype, its library, and how such values are put back."""

    values: Array
    dtype: str
    library: str
    put: Callable[[Array], None]

    def write(self, values: Array) -> None:
        """Let the caller's array hold these values, of storage dtype or unrounded; jax's and read-only ones stay."""
        self.put(values if values.dtype == self.values.dtype else cast(values, dtypes.BY_NAME[self.dtype]))


def host_array(value: Any, path: str) -> HostArray | None:
    """The array behind an argument, None for anything that is no array. Refusal for a dtype that NKI lacks."""
    if isinstance(value, np.ndarray):
        return _numpy(value, path)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, getattr(torch, "Tensor", ())):
        return _torch(value, torch, path)
    jax = sys.modules.get("jax")
    if jax is not None and isinstance(value, getattr(jax, "Array", ())):
        return _jax(value, jax, path)
    return None


def result(values: Array, dtype: str, library: str) -> Any:
    """An array of a library that owns its memory, from values in storage dtype, wider, or unrounded as float64."""
    if values.dtype == np.float64:
        values, dtype = values.astype(np.float32), "float32"
    storage = dtypes.BY_NAME[dtype].storage
    own = np.array(values if values.dtype == storage else cast(values, dtypes.BY_NAME[dtype]))
    if library == "torch":
        return _to_torch(own, dtype)
    if library == "jax":
        return sys.modules["jax"].numpy.asarray(own)
    return own.view(PACKED[dtype]) if dtype in PACKED else own


def _dtype(spelling: Any, path: str) -> str:
    try:
        return dtypes.of(spelling).name
    except ValueError as error:
        raise Refusal(f"argument {path}: {error}") from None


def _numpy(value: Array, path: str) -> HostArray:
    packed = packed_name(value.dtype)
    dtype = packed or _dtype(value.dtype, path)
    storage = dtypes.BY_NAME[dtype].storage

    def write(values: Array) -> None:
        if value.flags.writeable:
            value[...] = values.view(value.dtype) if packed else values

    return HostArray(np.ascontiguousarray(value).view(storage).reshape(value.shape), dtype, "numpy", write)


def _torch(value: Any, torch: Any, path: str) -> HostArray:
    name = str(value.dtype).removeprefix("torch.")
    dtype = _dtype(name, path)
    host = value.detach().cpu().contiguous()
    raw = _VIEWED.get(name)
    values = host.view(getattr(torch, raw)).numpy() if raw else host.numpy()

    def write(fresh: Array) -> None:
        with torch.no_grad():
            value.copy_(_to_torch(np.array(fresh), dtype))

    return HostArray(values.view(dtypes.BY_NAME[dtype].storage), dtype, "torch", write)


def _to_torch(values: Array, dtype: str) -> Any:
    torch = sys.modules["torch"]
    name = _TORCH_NAMES.get(dtype, dtype)
    raw = _VIEWED.get(name)
    if raw is None:
        return torch.from_numpy(values)
    return torch.from_numpy(values.view(raw)).view(getattr(torch, name))


def _jax(value: Any, jax: Any, path: str) -> HostArray:
    if isinstance(value, jax.core.Tracer):
        raise Refusal(
            f"argument {path} is an array that jax traces and has no values: call the kernel outside jax.jit"
        )
    values = np.asarray(value)
    dtype = _dtype(values.dtype, path)

    def write(fresh: Array) -> None:
        """Arrays of jax never change."""

    return HostArray(np.ascontiguousarray(values).reshape(values.shape), dtype, "jax", write)
