"""The namespace ``neuronxcc.nki.compiler``: allocation of tiles by hand, and decorators that direct the compiler.

Sources: nki/api/nki/compiler/{__init__,sbuf,psum}.py at tag v2.26.1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np

from nkireview.nki.errors import Refusal
from nkireview.nki.jit import Kernel
from nkireview.nki.legacy.declared import Address, Allocator, Place
from nkireview.nki.legacy.loops import body_key
from nkireview.nki.order import no_reorder
from nkireview.nki.tensor import MemoryRegion
from nkireview.nki.trace import active, current

DIRECTIVES = "nki_directives"
"""The attribute of a kernel's function that holds the names of its decorators of ``nki.compiler``."""
AUTOMATIC = "automatic allocation"
"""Kept in a trace whose kernel leaves every address to the compiler."""


def _linear(at: Sequence[int], counts: Sequence[int], what: str) -> int:
    """The number of a block among the tiles that exist at one time: its index modulo the counts, in row-major order."""
    if not counts or not at:
        return 0  # of a tensor without blocks there is one tile, whatever the counts say
    if len(counts) != len(at):
        raise Refusal(f"{what} has {len(counts)} sizes, the tensor has {len(at)} block dimensions")
    found = 0
    for index, count in zip(at, counts, strict=True):
        found = found * int(count) + index % int(count)
    return found


def _numbers(found: Any, memory: str, *names: str) -> list[int]:
    """What a function that places tiles returned; Refusal where it is not one number from 0 on for each name."""
    items = list(found) if isinstance(found, list | tuple) else [found]
    whole = all(
        isinstance(item, int | np.integer) and not isinstance(item, bool) and item >= 0 for item in items
    )
    if len(items) != len(names) or not whole:
        raise Refusal(
            f"ncc.{memory}.alloc: the function must return ({', '.join(names)}), integers from 0 on, got {found!r}"
        )
    return [int(item) for item in items]


def _allocator(region: MemoryRegion, place: Place) -> Allocator:
    """A memory with a rule that places tiles, unless ``force_auto_alloc`` leaves placing to the compiler.

    In a loop the rule of the first pass holds for all: its compiler runs the body once, so that an address that the
    body counts up is not counted up by the passes.
    """
    trace = active()
    if trace is None:
        return Allocator(region, place)
    if trace.kept.get(AUTOMATIC):
        return Allocator(region)
    first: Allocator = trace.kept.setdefault(("legacy allocator", *body_key(trace)), Allocator(region, place))
    return first


def _sbuf_alloc(func: Callable[..., Any]) -> Allocator:
    """Tiles in SBUF at (start partition, byte) by a function of block index, partitions and bytes a partition."""

    def place(at: tuple[int, ...], partitions: int, width: int) -> Address:
        found = func(idx=at, pdim_size=partitions, fdim_size=width)
        start, byte = _numbers(found, "sbuf", "start_partition", "byte_addr")
        return start, byte

    return _allocator(MemoryRegion.sbuf, place)


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

    return _allocator(MemoryRegion.sbuf, place)


def _bank() -> int:
    return current("ncc.psum").hardware.psum_bank_bytes


def _psum_alloc(func: Callable[..., Any]) -> Allocator:
    """Tiles in PSUM at (bank, start partition, byte) by a function of block index, partitions and bytes a partition."""

    def place(at: tuple[int, ...], partitions: int, width: int) -> Address:
        found = func(idx=at, pdim_size=partitions, fdim_size=width)
        bank, start, byte = _numbers(found, "psum", "bank_id", "start_partition", "byte_addr")
        return start, bank * _bank() + byte

    return _allocator(MemoryRegion.psum, place)


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

    return _allocator(MemoryRegion.psum, place)


def _directive(name: str) -> Callable[..., Any]:
    """A decorator, with or without arguments, above or below ``nki.jit``, that directs the compiler and changes no
    value; a kernel's function keeps its name.
    """

    def marked(function: Any) -> Any:
        inner = function.function if isinstance(function, Kernel) else function
        setattr(inner, DIRECTIVES, frozenset({name, *getattr(inner, DIRECTIVES, ())}))
        return function

    def decorate(func: Any = None, *args: Any, **kwargs: Any) -> Any:
        return marked(func) if callable(func) else marked

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
