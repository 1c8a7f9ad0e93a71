"""Allocation: ``nl.ndarray`` and what fills a fresh tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nkireview.isa.release import Release
from nkireview.nki.dtypes import DType, of
from nkireview.nki.errors import Refusal
from nkireview.nki.tensor import MemoryRegion, NkiTensor
from nkireview.nki.trace import Trace, current

STRINGS_UNTIL = Release(0, 3)  # migration guide: string buffer names are rejected from 0.3 on


def allocate(
    shape: Any,
    dtype: Any,
    buffer: Any = MemoryRegion.sbuf,
    name: str = "",
    address: Any = None,
    *,
    what: str = "nl.ndarray",
) -> NkiTensor:
    """A fresh, uninitialised tensor."""
    trace = current(what)
    sizes = _shape(shape, what)
    region = _region(trace, buffer, what)
    fresh = trace.buffer(region.memory, sizes, str(of(dtype, what)), _address(address, what), str(name or ""))
    return NkiTensor.whole(trace, fresh)


class _NdarrayType(type):
    """``nl.ndarray`` is called like a function and used as an annotation and in isinstance."""

    def __call__(
        cls,
        shape: Any,
        dtype: Any,
        buffer: Any = MemoryRegion.sbuf,
        name: str = "",
        address: Any = None,
    ) -> NkiTensor:
        return allocate(shape, dtype, buffer, name, address)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, NkiTensor)


class ndarray(metaclass=_NdarrayType):  # noqa: N801
    """``nl.ndarray(shape, dtype, buffer=nl.sbuf, name='', address=None)``: an uninitialised tensor."""


def tile(like: NkiTensor, dtype: DType | None = None, shape: Sequence[int] | None = None) -> NkiTensor:
    """A fresh SBUF tile of the shape (and dtype) of another, for the result of an `nl` function."""
    return allocate(tuple(shape or like.shape), dtype or like.dtype, MemoryRegion.sbuf, what="nl")


def _shape(shape: Any, what: str) -> tuple[int, ...]:
    items = (shape,) if isinstance(shape, int | np.integer) else tuple(shape)
    for item in items:
        if isinstance(item, bool) or not isinstance(item, int | np.integer):
            raise Refusal(f"{what}: shape {items} holds a {type(item).__name__}, expected integers")
        if item < 1:
            raise Refusal(f"{what}: shape {items} has a dimension below 1")
    if not items:
        raise Refusal(f"{what}: a tensor needs at least one dimension")
    return tuple(int(item) for item in items)


def _region(trace: Trace, buffer: Any, what: str) -> MemoryRegion:
    if isinstance(buffer, MemoryRegion):
        return buffer
    if buffer is None:
        return MemoryRegion.sbuf
    names = {"hbm": MemoryRegion.private_hbm, **{region.value: region for region in MemoryRegion}}
    if isinstance(buffer, str) and buffer in names and trace.release < STRINGS_UNTIL:
        return names[buffer]
    if isinstance(buffer, str) and buffer in names:
        raise Refusal(
            f"{what}: the string {buffer!r} for buffer was taken before NKI {STRINGS_UNTIL}, this kernel is judged by "
            f"{trace.release}; use nl.{buffer}"
        )
    raise Refusal(
        f"{what}: buffer must be nl.sbuf, nl.psum, nl.hbm, nl.private_hbm or nl.shared_hbm, got {buffer!r}"
    )


def _address(address: Any, what: str) -> tuple[int, int] | None:
    if address is None:
        return None
    if not isinstance(address, list | tuple) or len(address) != 2:
        raise Refusal(f"{what}: address must be (partition, byte offset), got {address!r}")
    partition, byte = (int(part) for part in address)
    if partition < 0 or byte < 0:
        raise Refusal(f"{what}: address {address!r} is negative")
    return partition, byte
