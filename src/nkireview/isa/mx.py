"""MX arithmetic: four packed elements in one, block scales of 8 partitions x 4 elements, and their places in SBUF.

Sources: OCP Microscaling Formats specification 1.0; nki/deep-dives/mxfp-matmul.rst:28-112, 244-266;
nki/api/nki/isa/__init__.py:2741-2817 (NKI 0.6).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.isa import dtypes
from nkireview.isa.release import Release

Array = NDArray[Any]

PACK = 4  # elements of one partition in a block, and in one packed element
ROWS = 8  # partitions of a block
QUADRANT = 32  # partitions of a part of SBUF that keeps its own scales
SCALES = QUADRANT // ROWS  # partitions of scales in a quadrant
SCALE_STARTS = tuple(range(0, 4 * SCALES, SCALES))  # where scales may begin in a quadrant
SCALE_BIAS = 127
SCALE_MIN = -SCALE_BIAS  # exponent of the smallest scale, which a block of zeros gets too
SCALE_NAN = 0xFF
NOT_FINITE = 128  # exponent that float32 gives infinities and NaN
HEADROOM_SINCE = Release(0, 5)  # release-notes/components/nki.rst:166-169

# float4_e2m1: one sign bit, two exponent bits of bias 1, one mantissa bit; no infinity, no NaN
_E2M1 = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
_E2M1_CODES = np.concatenate([_E2M1, -_E2M1])


@dataclass(frozen=True)
class Element:
    """One of the four elements of a packed dtype: its own dtype name ("" for float4) and largest exponent."""

    dtype: str
    bits: int
    exponent_max: int


ELEMENTS: Mapping[str, Element] = MappingProxyType(
    {
        "float8_e4m3fn_x4": Element("float8_e4m3fn", 8, 8),
        "float8_e5m2_x4": Element("float8_e5m2", 8, 15),
        "float4_e2m1fn_x4": Element("", 4, 2),
    }
)


def unpack(packed: Array, name: str, compute: np.dtype[Any]) -> Array:
    """The values of packed elements of dtype `name`, in a new last axis of 4: the lowest bits are the first."""
    element = ELEMENTS[name]
    shifts = element.bits * np.arange(PACK, dtype=packed.dtype)
    mask = packed.dtype.type((1 << element.bits) - 1)
    codes = ((packed[..., None] >> shifts) & mask).astype(np.uint8)
    if not element.dtype:
        return np.asarray(_E2M1_CODES[codes], compute)
    kind = dtypes.BY_NAME[element.dtype]
    return dtypes.to_compute(codes.view(kind.storage), kind, compute)


def pack(values: Array, name: str) -> Array:
    """Values (..., 4) rounded to the elements of an 8-bit packed dtype `name`, four in one."""
    element = ELEMENTS[name]
    if not element.dtype:
        raise ValueError(f"{name} cannot be packed: no instruction writes it")
    codes = dtypes.cast(values, dtypes.BY_NAME[element.dtype]).view(np.uint8)
    storage = dtypes.BY_NAME[name].storage
    shifts = (element.bits * np.arange(PACK)).astype(storage)
    packed: Array = (codes.astype(storage) << shifts).sum(axis=-1, dtype=storage)
    return packed


def scale_value(codes: Array, compute: np.dtype[Any]) -> Array:
    """What stored scale bytes (e8m0) mean: 2**(code - 127), NaN for 255."""
    exponents = np.where(codes == SCALE_NAN, 0, codes.astype(np.int64) - SCALE_BIAS)
    powers: Array = np.ldexp(compute.type(1), exponents)
    return np.where(codes == SCALE_NAN, compute.type(np.nan), powers)


def scale_rows(partitions: int) -> NDArray[np.int64]:
    """Partitions of a scale tile, from its start, that hold the scales of so many partitions of data, in block order.

    Each quadrant of 32 partitions of data keeps its 4 partitions of scales at the same place of its quadrant.
    """
    block = np.arange(-(-partitions // ROWS), dtype=np.int64)
    return block // SCALES * QUADRANT + block % SCALES


def scale_partitions(partitions: int) -> int:
    """Fewest partitions of a scale tile for so many partitions of data."""
    return int(scale_rows(partitions)[-1]) + 1 if partitions > 0 else 0


def dequantise(packed: Array, name: str, scales: Array) -> Array:
    """Packed data (P, N) with the values of its scales (P / 8, N): values (P, N, 4) in the dtype of `scales`."""
    values = unpack(packed, name, scales.dtype)
    return np.asarray(values * np.repeat(scales, ROWS, axis=0)[: len(values), :, None])


def quantise(values: Array, name: str, release: Release) -> tuple[Array, NDArray[np.uint8]]:
    """Values (P, 4 N) as packed data (P, N) of dtype `name` and scale bytes (P / 8, N).

    P is a multiple of 8. The scale of a block is 2**(floor(log2(largest magnitude)) - (Emax - 1)) since NKI 0.5, so
    that nothing saturates; before, without the -1, and magnitudes beyond the largest finite element saturate.
    """
    element = ELEMENTS[name]
    partitions, free = values.shape
    blocks = values.reshape(partitions // ROWS, ROWS, free // PACK, PACK)
    headroom = 1 if release >= HEADROOM_SINCE else 0
    exponent = _exponent(blocks).max(axis=(1, 3)) - (element.exponent_max - headroom)
    exponent = np.clip(exponent, SCALE_MIN, SCALE_NAN - 1 - SCALE_BIAS)
    scaled = np.ldexp(blocks, -exponent[:, None, :, None])
    if not headroom:
        most = dtypes.BY_NAME[element.dtype].max_finite
        scaled = np.clip(scaled, -most, most)
    packed = pack(scaled, name).reshape(partitions, free // PACK)
    return packed, (exponent + SCALE_BIAS).astype(np.uint8)


def _exponent(values: Array) -> NDArray[np.int32]:
    """floor(log2(|value|)); that of the smallest scale and below for 0, that of float32 for what is not finite."""
    _, found = np.frexp(values)
    exponent = np.where(values == 0, np.int32(-(2**20)), found.astype(np.int32) - 1)
    return np.where(np.isfinite(values), exponent, np.int32(NOT_FINITE))
