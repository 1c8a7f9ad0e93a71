"""The namespace ``neuronxcc.nki.compiler``: allocation of tiles by hand, and decorators that direct the compiler.

Sources: nki/api/nki/compiler/{__init__,sbuf,psum}.py at tag v2.26.1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from nkireview.nki.errors import Refusal
from nkireview.nki.legacy.declared import Address, Allocator, Place
from nkireview.nki.order import no_reorder
from nkireview.nki.tensor import MemoryRegion
from nkireview.nki.trace import current


def _linear(at: Sequence[int], counts: Sequence[int], what: str) -> int:
    """The number of a block among the tiles that exist at one time: its index modulo the counts, in row-major order."""
    if not counts:
        return 0
    if len(counts) != len(at):
        raise Refusal(f"{what} has {len(counts)} sizes, the tensor has {len(at)} block dimensions")
    found = 0
    for index, count in zip(at, counts, strict=True):
        found = found * int(count) + index % int(count)
    return found


def _sbuf_alloc(func: Callable[..., Any]) -> Allocator:
    """Tiles in SBUF at (start partition, byte) by a function of block index, partitions and bytes a partition."""

    def place(at: tuple[int, ...], partitions: int, width: int) -> Address:
        start, byte = func(idx=at, pdim_size=partitions, fdim_size=width)
        return int(start), int(byte)

    return Allocator(MemoryRegion.sbuf, place)


def _sbuf_mod_alloc(
    *,
    base_addr: int,
    base_partition: int = 0,
    num_par_tiles: Sequence[int] = (),
    num_free_tiles: Sequence[int] = (),
) -> Allocator:
    """Tiles in SBUF in turn: block i lies at tile i modulo the number of tiles that exist at one time."""

    def place(at: tuple[int, ...], partitions: int, width: int) -> Address:
        row = base_partition + _linear(at, num_par_tiles, "num_par_tiles") * partitions
        return row, base_addr + _linear(at, num_free_tiles, "num_free_tiles") * width

    return Allocator(MemoryRegion.sbuf, place)


def _bank() -> int:
    return current("ncc.psum").hardware.psum_bank_bytes


def _psum_alloc(func: Callable[..., Any]) -> Allocator:
    """Tiles in PSUM at (bank, start partition, byte) by a function of block index, partitions and bytes a partition."""

    def place(at: tuple[int, ...], partitions: int, width: int) -> Address:
        bank, start, byte = func(idx=at, pdim_size=partitions, fdim_size=width)
        return int(start), int(bank) * _bank() + int(byte)

    return Allocator(MemoryRegion.psum, place)


def _psum_mod_alloc(
    *,
    base_bank: int,
    base_addr: int = 0,
    base_partition: int = 0,
    num_bank_tiles: Sequence[int] = (),
    num_par_tiles: Sequence[int] = (),
    num_free_tiles: Sequence[int] = (),
) -> Allocator:
    """Tiles in PSUM banks in turn."""

    def place(at: tuple[int, ...], partitions: int, width: int) -> Address:
        banks = max(1, math.ceil(width / _bank()))
        bank = base_bank + _linear(at, num_bank_tiles, "num_bank_tiles") * banks
        row = base_partition + _linear(at, num_par_tiles, "num_par_tiles") * partitions
        byte = base_addr + _linear(at, num_free_tiles, "num_free_tiles") * width
        return row, bank * _bank() + byte

    return Allocator(MemoryRegion.psum, place)


def _directive(name: str) -> Callable[..., Any]:
    """A decorator, with or without arguments, that directs the compiler and changes no value."""

    def decorate(function: Any = None, *args: Any, **kwargs: Any) -> Any:
        return function if callable(function) else lambda inner: inner

    decorate.__name__ = name
    return decorate


@contextmanager
def _scope(*args: Any, **kwargs: Any) -> Iterator[None]:
    yield


def namespace() -> dict[str, Any]:
    """Everything a kernel finds in ``neuronxcc.nki.compiler``."""
    sbuf = SimpleNamespace(
        alloc=_sbuf_alloc, mod_alloc=_sbuf_mod_alloc, auto_alloc=lambda: Allocator(MemoryRegion.sbuf)
    )
    psum = SimpleNamespace(
        alloc=_psum_alloc, mod_alloc=_psum_mod_alloc, auto_alloc=lambda: Allocator(MemoryRegion.psum)
    )
    names = ("skip_middle_end_transformations", "enable_stack_allocator", "force_auto_alloc")
    found: dict[str, Any] = {name: _directive(name) for name in names}
    found.update(sbuf=sbuf, psum=psum, no_reorder=no_reorder, allocation_scope=_scope, multi_buffer=_scope)
    return found


__all__ = ["Place", "namespace"]
