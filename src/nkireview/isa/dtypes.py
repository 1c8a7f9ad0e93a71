"""The NKI data types, and the one place where a computed value is rounded to a stored one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import ml_dtypes
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Kind = Literal["float", "int", "uint", "bool", "packed"]

_TABLE = "nki/api/nki.api.shared.rst:10-55"
_STUB = "nki/api/nki/language/__init__.py:8-60"
_MX = "nki/deep-dives/mxfp-matmul.rst:37"

FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
COMPUTE_DTYPES = (FLOAT32, FLOAT64)


@dataclass(frozen=True, eq=False)
class DataType:
    """One NKI data type; there is one object for each, in `DATA_TYPES`.

    ``bits`` is the size of one stored item. ``numpy`` is the NumPy (or ml_dtypes) dtype equal to it, None
    where there is none; ``storage`` is the dtype of the arrays that hold it. ``significand_bits`` counts the
    leading bit (float32: 24); for integers it is the bits of the magnitude. ``min_exponent`` is the exponent
    of the smallest normal number, None for integers. For packed types ``significand_bits``, ``max_finite``,
    ``has_inf`` and ``min_exponent`` describe one of the ``packed_count`` elements. ``source`` is a file of
    the public Neuron SDK documentation, with lines.
    """

    name: str
    bits: int
    kind: Kind
    numpy: np.dtype[Any] | None
    storage: np.dtype[Any]
    significand_bits: int
    max_finite: float
    has_inf: bool
    packed_count: int
    min_exponent: int | None
    source: str


def _whole(name: str, scalar: type[np.generic], kind: Kind, significand_bits: int) -> DataType:
    dtype = np.dtype(scalar)
    return DataType(
        name=name,
        bits=8 * dtype.itemsize,
        kind=kind,
        numpy=dtype,
        storage=dtype,
        significand_bits=significand_bits,
        max_finite=float(2**significand_bits - 1),
        has_inf=False,
        packed_count=1,
        min_exponent=None,
        source=_TABLE,
    )


def _floating(
    name: str,
    storage: npt.DTypeLike,
    significand_bits: int,
    min_exponent: int,
    max_finite: float,
    *,
    has_inf: bool = True,
    own: bool = True,
    packed_count: int = 1,
    source: str = _STUB,
) -> DataType:
    dtype = np.dtype(storage)
    return DataType(
        name=name,
        bits=8 * dtype.itemsize,
        kind="float" if packed_count == 1 else "packed",
        numpy=dtype if own else None,
        storage=dtype,
        significand_bits=significand_bits,
        max_finite=max_finite,
        has_inf=has_inf,
        packed_count=packed_count,
        min_exponent=min_exponent,
        source=source,
    )


DATA_TYPES = (
    _whole("bool_", np.bool_, "bool", 1),
    _whole("int8", np.int8, "int", 7),
    _whole("int16", np.int16, "int", 15),
    _whole("int32", np.int32, "int", 31),
    _whole("uint8", np.uint8, "uint", 8),
    _whole("uint16", np.uint16, "uint", 16),
    _whole("uint32", np.uint32, "uint", 32),
    _floating("float16", np.float16, 11, -14, 65504.0),
    _floating("float32", np.float32, 24, -126, (2 - 2.0**-23) * 2.0**127),
    _floating("bfloat16", ml_dtypes.bfloat16, 8, -126, (2 - 2.0**-7) * 2.0**127),
    _floating("tfloat32", np.float32, 11, -126, (2 - 2.0**-10) * 2.0**127, own=False),
    _floating("float8_e4m3", ml_dtypes.float8_e4m3, 4, -6, 240.0),
    _floating("float8_e4m3fn", ml_dtypes.float8_e4m3fn, 4, -6, 448.0, has_inf=False),
    _floating("float8_e5m2", ml_dtypes.float8_e5m2, 3, -14, 57344.0),
    _floating("float8_e8m0fnu", ml_dtypes.float8_e8m0fnu, 1, -127, 2.0**127, has_inf=False),
    _floating("float8_e5m2_x4", np.uint32, 3, -14, 57344.0, own=False, packed_count=4),
    _floating("float8_e4m3fn_x4", np.uint32, 4, -6, 448.0, has_inf=False, own=False, packed_count=4),
    _floating("float4_e2m1fn_x4", np.uint16, 2, 0, 6.0, has_inf=False, own=False, packed_count=4, source=_MX),
)

BY_NAME: Mapping[str, DataType] = MappingProxyType({row.name: row for row in DATA_TYPES})

ROUNDED_BY_NUMPY = frozenset(
    ("float32", "float16", "bfloat16", "float8_e4m3", "float8_e4m3fn", "float8_e5m2")
)
"""Types to which NumPy's own conversion rounds float32 values as a store does."""

_BY_NUMPY = {row.numpy: row for row in DATA_TYPES if row.numpy is not None}
_BY_TEXT = {**BY_NAME, "bool": BY_NAME["bool_"]}


def of(spelling: object) -> DataType:
    """The data type meant by a name, a NumPy or ml_dtypes dtype or scalar type, or a torch dtype.

    Torch dtypes are known by their text (``torch.bfloat16``), so torch is never imported. Raise ValueError
    for anything else, float64 included.
    """
    if isinstance(spelling, DataType):
        return spelling
    text = spelling if isinstance(spelling, str) else str(spelling)
    found = _BY_TEXT.get(text.removeprefix("torch."))
    # np.dtype(None) is float64, and np.dtype(str) reads type codes that are no NKI names.
    if found is None and spelling is not None and not isinstance(spelling, str):
        try:
            dtype = np.dtype(spelling)  # type: ignore[call-overload]
        except (TypeError, ValueError):
            pass
        else:
            found = _BY_NUMPY.get(dtype)
            text = str(dtype)
    if found is None:
        raise ValueError(f"{text[:80]} is no NKI dtype: expected one of {', '.join(BY_NAME)}")
    return found


def compute_array(values: npt.ArrayLike, where: str) -> Array:
    """``values`` as a float32 or float64 array; raise ValueError naming ``where`` for any other dtype."""
    array = np.asarray(values)
    if array.dtype is not FLOAT32 and array.dtype not in COMPUTE_DTYPES:
        raise ValueError(
            f"{where}: expected float32 or float64 values, got {array.dtype}: convert them first"
        )
    return array


def cast(values: npt.ArrayLike, to: DataType) -> Array:
    """Round values as a store to ``to`` does: an array of dtype ``to.storage`` in the shape of ``values``.

    ``values`` are float32, float64, integers, bool or any stored NKI type. Each result is rounded once, from
    the value given, to nearest even. Floats beyond the largest finite number become inf, or NaN where the
    format has no inf. Floats become integers by rounding to nearest even with saturation; integers saturate.

    Not documented, so chosen here: NaN becomes integer 0; any nonzero value, NaN included, becomes True;
    float8_e8m0fnu rounds ties up, and zero and negative numbers, for which it has no code, become NaN. 64-bit
    integers beyond 2**53 pass through float64. An array already in the stored form is returned, not copied.

    Raise ValueError for packed types and for values that are no numbers.
    Source: release-notes/components/nki.rst:71 (to integer), nki/api/nki/isa/__init__.py:2842 (to inf).
    """
    with np.errstate(all="ignore"):
        return rounded(np.asarray(values), to)


def rounded(array: Array, to: DataType) -> Array:
    """As `cast`, for callers that silence NumPy's floating-point warnings themselves."""
    if array.dtype is FLOAT32 and to.name in ROUNDED_BY_NUMPY:
        return array.astype(to.storage, copy=False)
    _refuse_packed("cast", to)
    if to.numpy is not None and array.dtype == to.storage:
        return array
    if array.dtype.kind not in "biu" and array.dtype not in COMPUTE_DTYPES:
        if array.dtype not in _BY_NUMPY:
            raise ValueError(
                f"cast: {array.dtype} values cannot be stored as {to.name}: "
                "expected float32, float64, integers, bool or an NKI dtype"
            )
        array = array.astype(np.float32)
    if to.kind == "bool":
        return np.asarray(array != 0)
    return _to_float(array, to) if to.kind == "float" else _to_integer(array, to)


def _to_float(array: Array, to: DataType) -> Array:
    if array.dtype.kind in "biu" and to.name != "float32":
        array = array.astype(np.float32 if array.dtype.itemsize <= 2 else np.float64)
    if to.name in ("float32", "float16"):
        return array.astype(to.storage)
    if to.name == "float8_e8m0fnu":
        return _to_e8m0(array)
    if array.dtype == FLOAT64:
        array = _to_odd_float32(array)
    if to.name == "tfloat32":
        return _to_tfloat32(array)
    return array.astype(to.storage)


def _to_odd_float32(array: Array) -> Array:
    """float64 to float32 with inexact results made odd: rounding that to fewer bits is then correct."""
    nearest = array.astype(np.float32)
    wide = nearest.astype(np.float64)
    truncated = nearest.view(np.uint32) - (np.abs(wide) > np.abs(array)).astype(np.uint32)
    sticky = (wide != array).astype(np.uint32)
    return np.asarray(truncated | sticky).view(np.float32)


def _to_tfloat32(array: Array) -> Array:
    bits = array.view(np.uint32)
    dropped = BY_NAME["float32"].significand_bits - BY_NAME["tfloat32"].significand_bits
    half = np.uint32((1 << (dropped - 1)) - 1)
    kept = np.uint32(0xFFFFFFFF ^ ((1 << dropped) - 1))
    lowest_kept = (bits >> np.uint32(dropped)) & np.uint32(1)
    rounded = np.asarray((bits + half + lowest_kept) & kept).view(np.float32)
    return np.where(np.isnan(array), np.float32(np.nan), rounded)


def _to_e8m0(array: Array) -> Array:
    # Not by ml_dtypes: version 0.6 rounds float32 subnormals just above 2**-127 up to 2**-126.
    fraction, exponent = np.frexp(array)
    code = np.maximum(exponent + 126 + (fraction >= 0.75), 0)
    valid = np.isfinite(array) & (array > 0) & (code < 0xFF)
    return np.where(valid, code, 0xFF).astype(np.uint8).view(ml_dtypes.float8_e8m0fnu)


def _to_integer(array: Array, to: DataType) -> Array:
    limits = np.iinfo(to.storage)
    if array.dtype.kind == "b":
        return array.astype(to.storage)
    if array.dtype.kind in "iu":
        source = np.iinfo(array.dtype)
        low, high = max(limits.min, source.min), min(limits.max, source.max)
        return np.asarray(np.clip(array, low, high)).astype(to.storage)
    # float32 cannot hold the largest 32-bit integers.
    wide = array.astype(np.float64, copy=False) if to.bits == 32 else array
    rounded = np.rint(np.where(np.isnan(wide), 0, wide))
    return np.asarray(np.clip(rounded, limits.min, limits.max)).astype(to.storage)


def to_compute(array: Array, dtype: DataType, compute: npt.DTypeLike) -> Array:
    """Stored values as ``compute`` (float32 or float64) values; not copied when they already are.

    Every float type is exact in float32; 32-bit integers beyond 2**24 round to nearest even in float32. Raise
    ValueError for packed types and when ``array`` is not in the storage dtype of ``dtype``.
    """
    # NumPy warns when it widens a signalling NaN.
    with np.errstate(invalid="ignore"):
        return widened(array, dtype, compute)


def widened(array: Array, dtype: DataType, compute: npt.DTypeLike) -> Array:
    """As `to_compute`, for callers that silence NumPy's floating-point warnings themselves."""
    _refuse_packed("to_compute", dtype)
    if array.dtype != dtype.storage:
        raise ValueError(
            f"to_compute: {dtype.name} is stored as {dtype.storage}, got an array of {array.dtype}: "
            "use cast first"
        )
    return array.astype(compute, copy=False)


def unit_roundoff(dtype: DataType) -> float:
    """Largest relative error of rounding a normal number to ``dtype`` (float32: 2**-24).

    Raise ValueError for types that are no floats.
    """
    if dtype.kind != "float":
        raise ValueError(
            f"unit_roundoff: {dtype.name} is no float type and has no relative rounding error: use ulp"
        )
    return 2.0**-dtype.significand_bits


def ulp(values: npt.ArrayLike, dtype: DataType) -> npt.NDArray[np.float64]:
    """Spacing of ``dtype`` at ``|values|``, as float64 in the shape of ``values``.

    At a power of two it is the spacing above; in and below the subnormal range the smallest spacing; beyond
    the largest finite number that of the top binade; 1 for integers; NaN for inf and NaN.

    Raise ValueError for packed types.
    """
    _refuse_packed("ulp", dtype)
    with np.errstate(invalid="ignore"):
        magnitude = np.abs(np.asarray(values).astype(np.float64))
    if dtype.min_exponent is None:
        spacing = np.ones_like(magnitude)
    else:
        spacing = np.asarray(np.clip(magnitude, 2.0**dtype.min_exponent, dtype.max_finite))
        # a float64 without its significand is the power of two below it
        spacing.view(np.int64)[...] &= np.int64(0x7FF << 52)
        spacing *= 2.0 ** (1 - dtype.significand_bits)
    return spacing if np.isfinite(magnitude).all() else np.where(np.isfinite(magnitude), spacing, np.nan)


def _refuse_packed(where: str, dtype: DataType) -> None:
    if dtype.kind == "packed":
        raise ValueError(
            f"{where}: {dtype.name} packs {dtype.packed_count} elements in one {dtype.storage}: "
            "expected an unpacked type, its elements have no value without their scales"
        )
