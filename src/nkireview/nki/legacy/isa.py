"""The namespace ``neuronxcc.nki.isa``: value-returning functions for the rows that have a legacy form.

Source: nki/api/nki/isa/__init__.py at tag v2.26.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from nkireview.isa.enums import Engine
from nkireview.isa.table import ROWS
from nkireview.nki.dtypes import of as dtype_of
from nkireview.nki.errors import NotYetSupported, Refusal
from nkireview.nki.isa import get_nc_version
from nkireview.nki.legacy import generators, masks, movement
from nkireview.nki.legacy.broadcast import together
from nkireview.nki.legacy.calls import Work, computed, function, record, signed
from nkireview.nki.legacy.fills import dropped
from nkireview.nki.legacy.narrowing import Part, narrowed
from nkireview.nki.legacy.signatures import FP32_MIN, SIGNATURES
from nkireview.nki.legacy.symbols import Mask
from nkireview.nki.legacy.tile import Restriction, Tile
from nkireview.nki.recorders import ENUMS, NkiInstruction

ENGINES = ("tensor", "vector", "scalar", "gpsimd", "sync", "unknown")
"""Engines that also have a name ``nisa.x_engine``."""


def _dynamic_src(given: dict[str, Any], dtype: Any, mask: Any) -> Tile:
    """A copy of a tile whose place an index tile holds."""
    return computed("tensor_copy", given, dtype, mask)


def _dynamic_dst(given: dict[str, Any], dtype: Any, mask: Any) -> None:
    """A copy to a place that an index tile holds."""
    record("tensor_copy", given, given.pop("dst"), mask)


def _transpose(given: dict[str, Any], dtype: Any, mask: Any) -> Tile:
    """A transpose and, into another dtype, a copy."""
    return movement.transposed(given.pop("data"), dtype, mask, **given)


def _dma_transpose(given: dict[str, Any], dtype: Any, mask: Any) -> Tile:
    """A transpose by a DMA."""
    return movement.swapped(given.pop("src"), dtype, mask, **given)


def _partition_reduce(given: dict[str, Any], dtype: Any, mask: Any) -> Tile:
    """A reduction over the partitions that a mask leaves."""
    data = given["data"]
    kind = data.kind if dtype is None else dtype_of(dtype, "tensor_partition_reduce")

    def work(part: Part) -> Tile:
        left = part(data)
        return computed("tensor_partition_reduce", {**given, "data": left}, kind, shape=(1, *left.shape[1:]))

    shape = (1, *data.shape[1:])
    return narrowed(
        "tensor_partition_reduce", mask, data, shape, kind, work, lambda ranges: ((0, 1), *ranges[1:])
    )


def _shuffle(given: dict[str, Any], dtype: Any, mask: Any) -> Tile:
    """A shuffle into what a mask leaves of dst, out of all partitions of src."""
    name = "nc_stream_shuffle"
    dst: Tile = given.pop("dst")
    src: Tile = given.pop("src")
    where = masks.taken(mask, name)
    if isinstance(where, Mask):
        left = masks.restriction(where, dst.shape)
        if left.bounds:
            raise NotYetSupported(f"{name} with a mask that leaves no box")
        src = src.part(Restriction(((0, src.shape[0]), *left.ranges[1:])))
        target = dst.part(left)
        where = not left.empty
    else:
        target = dst
    if where:
        record(name, {**given, "src": src}, target)
    return dst


def _two_tiles(given: dict[str, Any], dtype: Any, mask: Any) -> Tile:
    """An operator on two tiles; a free dimension of size 1 is repeated (nki/api/nki/isa/__init__.py:1789-1791)."""
    name = "tensor_tensor"
    left, right = given["data1"], given["data2"]
    if left.size != right.size and left.shape[0] == right.shape[0] and left.ndim == right.ndim:
        (left, right), _ = together(f"nisa.{name}", left, right)
    return computed(name, {**given, "data1": left, "data2": right}, dtype, mask)


def _dropout(given: dict[str, Any], dtype: Any, mask: Any) -> Tile:
    """The tile with elements set to zero at random."""
    return dropped(given["data"], given.get("prob"), dtype, mask)


def _custom(given: dict[str, Any], dtype: Any, mask: Any) -> Any:
    """Refused: what such an operation computes is in no documentation."""
    raise Refusal(
        "nisa.builtin_custom_op runs code that the compiler ships, whose meaning is in no documentation: write the "
        "computation with instructions of nki.isa"
    )


OWN: Mapping[str, tuple[Work, str]] = {
    "iota": (generators.iota, ""),
    "affine_select": (generators.affine_select, ""),
    "memset": (generators.memset, ""),
    "builtin_custom_op": (_custom, ""),
    "dma_transpose": (_dma_transpose, "dma_transpose"),
    "nc_stream_shuffle": (_shuffle, "nc_stream_shuffle"),
    "tensor_partition_reduce": (_partition_reduce, "tensor_partition_reduce"),
    "tensor_tensor": (_two_tiles, "tensor_tensor"),
    "dropout": (_dropout, "dropout"),
    "nc_transpose": (_transpose, "nc_transpose"),
    "tensor_copy_dynamic_src": (_dynamic_src, "tensor_copy"),
    "tensor_copy_dynamic_dst": (_dynamic_dst, "tensor_copy"),
}
"""Functions that are something else than the instruction of their name, and the row whose arguments they have."""


def namespace() -> dict[str, Any]:
    """Everything a kernel finds in ``neuronxcc.nki.isa``."""
    found: dict[str, Any] = {}
    for name in SIGNATURES:
        if name in OWN:
            work, row = OWN[name]
            found[name] = signed(name, work, ROWS[row] if row else None)
        else:
            found[name] = function(ROWS[name])
    found.update(ENUMS)
    found.update({f"{name}_engine": Engine[name] for name in ENGINES})
    found["fp32"] = SimpleNamespace(min=FP32_MIN)
    found.update(get_nc_version=get_nc_version, NkiInstruction=NkiInstruction)
    return found
