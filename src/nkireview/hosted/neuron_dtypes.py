"""What ``import neuron_dtypes`` finds: NumPy dtypes for NKI's names, and conversion between them."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from nkireview.hosted.packed import ELEMENTS, PACKED, pack, packed_name, unpack
from nkireview.isa import dtypes

_ELEMENT_NAMES: dict[str, np.dtype[Any]] = {"float4_e2m1fn": np.dtype(ml_dtypes.float4_e2m1fn)}


def dtype_of(spelling: Any) -> np.dtype[Any]:
    """The NumPy dtype of a spelling: an NKI name or dtype, or anything that NumPy takes."""
    if isinstance(spelling, np.dtype) and spelling in PACKED.values():
        return spelling
    if isinstance(spelling, str) and spelling in _ELEMENT_NAMES:
        return _ELEMENT_NAMES[spelling]
    try:
        known = dtypes.of(spelling)
    except ValueError:
        plain: np.dtype[Any] = np.dtype(spelling)
        return plain
    return PACKED.get(known.name, known.storage)


def static_cast(array: Any, dtype: Any) -> NDArray[Any]:
    """The values of an array in another dtype; packed formats take and give four numbers an element.

    An array of packed bits becomes packed elements where its items are as wide. Integers are cut towards zero.
    """
    values = np.asarray(array)
    wanted, source = dtype_of(dtype), packed_name(values.dtype)
    target = packed_name(wanted)
    if values.dtype == wanted:
        return values
    if target is not None:
        bits = dtypes.BY_NAME[target].storage
        if values.dtype == bits:
            return np.ascontiguousarray(values).view(wanted).reshape(values.shape)
        return pack(values if source is None else unpack(values, source), target)
    if source is not None:
        values = unpack(values, source)
    with np.errstate(all="ignore"):
        return values.astype(wanted)


def is_float_type(dtype: Any) -> bool:
    """True for floating-point dtypes, packed ones included."""
    found = dtype_of(dtype)
    return found.kind == "f" or found in _FLOATS


def sizeinbytes(dtype: Any) -> int:
    """Bytes of an element."""
    return dtype_of(dtype).itemsize


def finfo(dtype: Any) -> Any:
    """`numpy.finfo` that also knows the small formats; its `dtype` is the one asked for."""
    found = dtype_of(dtype)
    name = packed_name(found)
    return ml_dtypes.finfo(  # type: ignore[no-untyped-call]
        found if name is None else ELEMENTS[name]
    )


_FLOATS = frozenset(
    {
        *(row.storage for row in dtypes.DATA_TYPES if row.kind == "float"),
        *PACKED.values(),
        *ELEMENTS.values(),
    }
)


def module() -> ModuleType:
    """A fresh module object."""
    made = ModuleType("neuron_dtypes", __doc__)
    made.__dict__.update(
        {row.name: PACKED.get(row.name, row.numpy) for row in dtypes.DATA_TYPES if row.name != "tfloat32"}
    )
    made.__dict__.update(_ELEMENT_NAMES, bool=np.dtype(np.bool_))
    for function in (static_cast, is_float_type, sizeinbytes, finfo):
        made.__dict__[function.__name__] = function
    return made
