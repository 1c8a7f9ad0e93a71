"""Tensors of `nl` that come filled: numbers, constants and identity matrices; assignment to a view."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.isa import dtypes as table
from nkireview.isa.enums import Memory
from nkireview.nki.allocate import allocate
from nkireview.nki.dtypes import ALL, DType, of
from nkireview.nki.errors import Refusal
from nkireview.nki.lowering import instruction, is_number, need_number, need_tensor, spread
from nkireview.nki.spans import require
from nkireview.nki.tensor import MemoryRegion, NkiTensor
from nkireview.nki.trace import OpenLoop, Trace, current

WIDTH = 2048  # elements a partition of the SBUF tile from which HBM is filled
# nki/api/nki/language/__init__.py:2623-2627, packed types and tfloat32 included
CONSTANT_DTYPES = frozenset(ALL) - {"float8_e4m3", "bool_"}


def filled(name: str, value: float | None) -> Callable[..., NkiTensor]:
    """zeros, ones or full: a fresh tensor and a memset."""
    what = f"nl.{name}"

    def full(
        shape: Any, fill_value: Any, dtype: Any, buffer: Any = MemoryRegion.sbuf, name: str = ""
    ) -> NkiTensor:
        number = need_number(what, fill_value, "fill_value")
        fresh = allocate(shape, dtype, buffer, name, what=what)
        if fresh.on_chip:
            fill(fresh, number)
        else:
            through_sbuf(fresh, lambda part: fill(part, number), alike=True)
        return fresh

    if value is None:
        return full

    def fixed(shape: Any, dtype: Any, buffer: Any = MemoryRegion.sbuf, name: str = "") -> NkiTensor:
        return full(shape, value, dtype, buffer, name)

    return fixed


def fill(dst: NkiTensor, number: Any) -> None:
    """A memset; a whole number goes into an integer tile as an integer."""
    integer = table.BY_NAME[dst.dtype.name].kind != "float" and float(number).is_integer()
    instruction("memset")(dst=dst, value=int(number) if integer else float(number))


def through_sbuf(fresh: NkiTensor, make: Callable[[NkiTensor], None], *, alike: bool = False) -> None:
    """Fill a whole HBM tensor by SBUF tiles that `make` fills; with `alike` one tile serves all."""
    flat = fresh.reshape((fresh.size,))
    source: NkiTensor | None = None
    for part in _pieces(flat):
        if source is None or not alike:
            source = allocate(part.shape, fresh.dtype, what="nl")
            make(source)
        instruction("dma_copy")(dst=part, src=source[: part.shape[0], : part.shape[1]])


def _pieces(flat: NkiTensor) -> Iterator[NkiTensor]:
    """A flat tensor as rectangles of at most 128 rows, the largest first."""
    width = min(flat.size, WIDTH)
    rows, rest = divmod(flat.size, width)
    partitions = int(current("nl").hardware.value("partitions"))
    for first in range(0, rows, partitions):
        count = min(partitions, rows - first)
        yield flat[first * width : (first + count) * width].reshape((count, width))
    if rest:
        yield flat[rows * width :].reshape((1, rest))


def zeros_like(x: NkiTensor, dtype: Any = None, buffer: Any = None, name: str = "") -> NkiTensor:
    """Zeros of the shape and dtype of another tensor, in SBUF unless `buffer` says otherwise."""
    need_tensor("nl.zeros_like", x)
    return filled("zeros_like", 0.0)(
        x.shape, x.dtype if dtype is None else dtype, MemoryRegion.sbuf if buffer is None else buffer, name
    )


def empty_like(x: NkiTensor, dtype: Any = None, buffer: Any = None, name: str = "") -> NkiTensor:
    """An uninitialised tensor of the shape, dtype and memory of another tensor."""
    need_tensor("nl.empty_like", x)
    return allocate(
        x.shape,
        x.dtype if dtype is None else dtype,
        x.buffer if buffer is None else buffer,
        name,
        what="nl.empty_like",
    )


def assign(view: NkiTensor, value: Any) -> None:
    """What ``view[...] = value`` records: a DMA where a side is in HBM, a tensor_copy on chip, a memset for a number.

    A tensor of the rank of the view is repeated along its free dimensions of size 1.
    """
    if is_number(value):
        _assign_number(view, value)
        return
    if not isinstance(value, NkiTensor):
        raise Refusal(f"assignment to a tensor takes a tensor or a number, got {type(value).__name__}")
    fits = value.ndim == view.ndim and value.shape[:1] == view.shape[:1]
    if fits and all(old in (new, 1) for old, new in zip(value.shape, view.shape, strict=True)):
        value = spread(value, view.shape)
    copy = "tensor_copy" if view.on_chip and value.on_chip else "dma_copy"
    instruction(copy)(dst=view, src=value)


def _assign_number(view: NkiTensor, number: Any) -> None:
    if view.on_chip:
        fill(view, number)
        return
    row = allocate((1, view.shape[-1]), view.dtype, what="assignment")
    fill(row, number)
    lead = view.size // view.shape[-1]
    instruction("dma_copy")(dst=view, src=spread(row.reshape((1, 1, row.size)), (1, lead, row.size)))


def shared_constant(constant: Any) -> NkiTensor:
    """A tensor in shared HBM that holds a NumPy array or the content of an ``.npy`` file; one for all cores."""
    what = "nl.shared_constant"
    trace = current(what)
    values = _read(what, constant)
    kind = of(values.dtype, what)
    if kind.name not in CONSTANT_DTYPES:
        raise Refusal(f"{what}: a constant of dtype {kind} is not supported")
    return _constant(trace, values, kind)


def _read(what: str, constant: Any) -> NDArray[Any]:
    if isinstance(constant, np.ndarray):
        values = constant
    elif isinstance(constant, str | Path):
        try:
            values = np.load(constant, allow_pickle=False)
        except (OSError, ValueError) as error:
            raise Refusal(f"{what}: {constant} cannot be read as an .npy file: {error}") from None
    else:
        raise Refusal(
            f"{what}: expected a NumPy array or the path of an .npy file, got {type(constant).__name__}"
        )
    if not values.ndim or not values.size:
        raise Refusal(
            f"{what}: the array has shape {values.shape}, expected at least one element and dimension"
        )
    return values


def _constant(trace: Trace, values: NDArray[Any], kind: DType) -> NkiTensor:
    digest = trace.builder.constant(values)
    key = ("constant", digest, kind.name)
    found = trace.kept.get(key)
    if found is None:
        buffer = trace.builder.buffer(
            memory=Memory.shared_hbm,
            shape=values.shape,
            dtype=kind.name,
            core=None,
            place=trace.place(),
            constant=digest,
        )
        found = trace.kept[key] = buffer
    return NkiTensor.whole(trace, found)


def shared_identity_matrix(n: int, dtype: Any = "uint8", dst: NkiTensor | None = None) -> NkiTensor:
    """An identity matrix in SBUF, loaded from a constant.

    A core has one for each dtype, and a smaller one is its corner; in a device-side loop it is made anew.
    dst: a tile of shape (n, n) that takes the matrix, in its own dtype.
    """
    what = "nl.shared_identity_matrix"
    trace = current(what)
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise Refusal(f"{what}: n must be a positive integer, got {n!r}")
    if dst is not None:
        require("nki.language", "shared_identity_matrix.dst", trace.release)
        need_tensor(what, dst, "dst")
        if dst.shape != (n, n):
            raise Refusal(f"{what}: dst has shape {dst.shape}, expected ({n}, {n})")
        instruction("dma_copy")(dst=dst, src=_identity(trace, int(n), dst.dtype))
        return dst
    kind = of(dtype, what)
    held = _held_identity(trace, int(n), kind)
    if held is None:
        held = allocate((int(n), int(n)), kind, what=what)
        trace.kept[_identity_key(trace, kind, trace.loop)] = held
        instruction("dma_copy")(dst=held, src=_identity(trace, int(n), kind))
    return held if held.shape[0] == n else held[:n, :n]


def _held_identity(trace: Trace, n: int, kind: DType) -> NkiTensor | None:
    """A tile that is large enough, made outside of all loops or in one that is open."""
    loop = trace.loop
    while True:
        held: NkiTensor | None = trace.kept.get(_identity_key(trace, kind, loop))
        if held is not None and held.shape[0] >= n:
            return held
        if loop is None:
            return None
        loop = loop.parent


def _identity_key(trace: Trace, kind: DType, loop: OpenLoop | None) -> tuple[Any, ...]:
    return "identity", trace.core, kind.name, -1 if loop is None else loop.number


def _identity(trace: Trace, n: int, kind: DType) -> NkiTensor:
    if table.BY_NAME[kind.name].numpy is None:
        raise Refusal(f"nl.shared_identity_matrix: dtype {kind} has no number 1")
    return _constant(trace, table.cast(np.eye(n, dtype=np.float32), table.BY_NAME[kind.name]), kind)
