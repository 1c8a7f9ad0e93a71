"""`nl` functions that move data or change how it is seen: loads, copies, transposes, products, gathers, views."""

from __future__ import annotations

import math
from typing import Any

from nkireview.isa.release import Release
from nkireview.nki.allocate import allocate, tile
from nkireview.nki.dtypes import ALL, DType
from nkireview.nki.errors import Refusal
from nkireview.nki.lowering import (
    FP32,
    cast,
    instruction,
    need_tensor,
    result_dtype,
    spread,
    token,
)
from nkireview.nki.tensor import MemoryRegion, NkiTensor
from nkireview.nki.trace import current

COPY_ON_VECTOR_SINCE = Release(0, 6)  # release notes 0.6: nl.copy on Vector, result in SBUF
QUADRANT = 32  # partitions that nc_stream_shuffle moves among: nki/api/nki/isa/__init__.py:2052-2085


def load(src: NkiTensor, dtype: Any = None) -> NkiTensor:
    """A fresh SBUF tile with the content of an HBM tensor; the DMA casts."""
    need_tensor("nl.load", src)
    if src.on_chip:
        raise Refusal(f"nl.load: src must be in HBM, it is in {src.buffer.value}")
    dst = tile(src, result_dtype("nl.load", dtype, src.dtype))
    instruction("dma_copy")(dst=dst, src=src)
    return dst


def store(dst: NkiTensor, value: NkiTensor) -> None:
    """Write an SBUF tile to HBM."""
    need_tensor("nl.store", dst, "dst")
    if not isinstance(value, NkiTensor):
        raise Refusal(f"nl.store: value must be an SBUF tensor, got {type(value).__name__}")
    if dst.on_chip:
        raise Refusal(f"nl.store: dst must be in HBM, it is in {dst.buffer.value}; use nl.copy on chip")
    instruction("dma_copy")(dst=dst, src=value)


def load_transpose2d(src: NkiTensor, dtype: Any = None) -> NkiTensor:
    """A fresh SBUF tile with the transposed content of a 2-D HBM tensor, by a DMA transpose."""
    what = "nl.load_transpose2d"
    need_tensor(what, src)
    if src.on_chip:
        raise Refusal(f"{what}: src must be in HBM, it is in {src.buffer.value}")
    if src.ndim != 2:
        raise Refusal(f"{what}: src has {src.ndim} dimensions, expected 2")
    dst = tile(src, src.dtype, (src.shape[1], src.shape[0]))
    instruction("dma_transpose")(dst=dst, src=src)
    return cast(dst, result_dtype(what, dtype, src.dtype))


def copy(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """A copy in SBUF (since 0.6); before, a Scalar activation into the memory of x."""
    need_tensor("nl.copy", x)
    kind = result_dtype("nl.copy", dtype, x.dtype)
    if current("nl.copy").release >= COPY_ON_VECTOR_SINCE:
        dst = tile(x, kind)
        instruction("tensor_copy")(dst=dst, src=x)
        return dst
    dst = allocate(x.shape, kind, x.buffer, what="nl.copy")
    instruction("activation")(dst=dst, op=token("copy"), data=x)
    return dst


def matmul(x: NkiTensor, y: NkiTensor, transpose_x: bool = False) -> NkiTensor:
    """x.T @ y into a fresh float32 PSUM tile; only transpose_x=True works on hardware."""
    need_tensor("nl.matmul", x, "x")
    need_tensor("nl.matmul", y, "y")
    if not transpose_x:
        raise Refusal("nl.matmul: transpose_x=False is not supported on hardware; pass x transposed")
    dst = allocate((_free(x), _free(y)), FP32, MemoryRegion.psum, what="nl.matmul")
    instruction("nc_matmul")(dst=dst, stationary=x, moving=y)
    return dst


def transpose(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """The transposed tile in PSUM."""
    need_tensor("nl.transpose", x)
    kind = result_dtype("nl.transpose", dtype, x.dtype)
    if x.ndim != 2:
        raise Refusal(f"nl.transpose: x has {x.ndim} dimensions, expected 2")
    dst = _psum(x, x.dtype)
    instruction("nc_transpose")(dst=dst, data=x)
    if kind == x.dtype:
        return dst
    other = _psum(x, kind)
    instruction("tensor_copy")(dst=other, src=dst)
    return other


def _psum(x: NkiTensor, kind: DType) -> NkiTensor:
    return allocate((x.shape[1], x.shape[0]), kind, MemoryRegion.psum, what="nl.transpose")


def gather_flattened(data: NkiTensor, indices: NkiTensor, axis: Any = 0, dtype: Any = None) -> NkiTensor:
    """For each partition, the elements of the flattened free dimensions of `data` that `indices` (uint32) name."""
    what = "nl.gather_flattened"
    need_tensor(what, data, "data")
    need_tensor(what, indices, "indices")
    if axis != 0:
        raise Refusal(
            f"{what}: axis {axis!r} has no documented meaning; only 0, the flattened free dimensions, has one"
        )
    dst = tile(indices, data.dtype)
    instruction("nc_n_gather")(dst=dst, data=data, indices=indices)
    return cast(dst, result_dtype(what, dtype, data.dtype))


def expand_dims(x: NkiTensor, axis: int) -> NkiTensor:
    """A view with a new dimension of size 1."""
    need_tensor("nl.expand_dims", x)
    at = axis + x.ndim + 1 if axis < 0 else axis
    if not 0 <= at <= x.ndim:
        raise Refusal(f"nl.expand_dims: axis {axis} does not fit a {x.ndim}-D tensor")
    return x[tuple([slice(None)] * at + [None])]


def broadcast_to(x: NkiTensor, shape: Any, dtype: Any = None) -> NkiTensor:
    """x with its dimensions of size 1 repeated: a stride-0 view over free dimensions, x itself if none is.

    Another dtype is a copy first. One partition is moved to all others by shuffles of 32 or, where it does not start
    a quadrant, by a DMA.
    """
    what = "nl.broadcast_to"
    need_tensor(what, x)
    sizes = tuple(int(size) for size in shape)
    if len(sizes) != x.ndim:
        raise Refusal(f"{what}: shape {sizes} has another rank than {x.shape}")
    if any(old not in (new, 1) or new < 1 for old, new in zip(x.shape, sizes, strict=True)):
        raise Refusal(f"{what}: {x.shape} does not broadcast to {sizes}")
    kind = result_dtype(what, dtype, x.dtype)
    if not x.on_chip and kind != x.dtype:
        raise Refusal(f"{what}: a tensor in {x.buffer.value} cannot change its dtype; nl.load casts")
    source = cast(x, kind)
    if source.on_chip and source.shape[0] != sizes[0]:
        source = _to_partitions(source, sizes[0])
    return source if source.shape == sizes else spread(source, sizes)


def _to_partitions(x: NkiTensor, count: int) -> NkiTensor:
    dst = tile(x, x.dtype, (count, *x.shape[1:]))
    if _first_partition(x) % QUADRANT:
        for at in range(count):
            instruction("dma_copy")(dst=dst[at : at + 1], src=x)
        return dst
    for first in range(0, count, QUADRANT):
        part = dst[first : min(first + QUADRANT, count)]
        instruction("nc_stream_shuffle")(dst=part, src=x, shuffle_mask=[0] * QUADRANT)
    return dst


def _first_partition(x: NkiTensor) -> int:
    held = x.storage
    row = math.prod(held.shape[1:]) * ALL[held.dtype].itemsize
    first = 0 if held.address is None else held.address[0]
    return first + x.offset * x.itemsize // row


def _free(x: NkiTensor) -> int:
    return x.size // x.shape[0]
