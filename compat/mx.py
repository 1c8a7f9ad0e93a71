"""Inputs and references for the MX kernels of the SDK's deep dive and of nki-samples, on NeuronCore-v4.

Data and references come from the pages' own NumPy code, `mx_cpu_utils.py`, which is loaded as a file from beside the
extracted clone. Dtypes are passed by name, since a packed one has no NumPy dtype.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

CLONE = Path(__file__).resolve().parent.parent / "clone"
GOLDEN = "mx_cpu_utils.py"
E5M2, E4M3, FP4 = ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn, ml_dtypes.float4_e2m1fn
X4: dict[str, Any] = {"float8_e5m2_x4": E5M2, "float8_e4m3fn_x4": E4M3, "float4_e2m1fn_x4": FP4}
M, K, N = 128, 128, 512


def offline_inputs(seed: int) -> dict[str, Any]:
    """Both operands quantised on the host to e5m2, four values in each uint32."""
    return _offline(seed, "float8_e5m2_x4")


def offline_e4m3_inputs(seed: int) -> dict[str, Any]:
    """Both operands quantised on the host to e4m3fn."""
    return _offline(seed, "float8_e4m3fn_x4")


def offline(
    stationary_mx_data: Array,
    stationary_mx_scale: Array,
    moving_mx_data: Array,
    moving_mx_scale: Array,
    mx_dtype: str,
) -> Array:
    """Packed operands [K, M] and [K, N] with their scales [K / 8, ...] -> their product [M, N]."""
    data, scales = (stationary_mx_data, moving_mx_data), (stationary_mx_scale, moving_mx_scale)
    return _product(*data, *scales, X4[mx_dtype], X4[mx_dtype])


def on_device_inputs(seed: int) -> dict[str, Any]:
    """The page's own data: what quantising to e5m2 does not change, times an operand quantised on the host."""
    return _on_device(seed, "float8_e5m2_x4", stable=True)


def on_device_normal_inputs(seed: int) -> dict[str, Any]:
    """Normal values, which quantising to e4m3fn rounds."""
    return _on_device(seed, "float8_e4m3fn_x4", stable=False)


def on_device(
    stationary_mx_data: Array,
    stationary_mx_scale: Array,
    moving_data_bf16: Array,
    stationary_mx_dtype: str,
    moving_mx_dtype: str,
) -> Array:
    """A packed operand [K, M] and values [K, 4 N], quantised by the page's code -> their product [M, N]."""
    data, scale = _call("quantize_mx_golden", moving_data_bf16, X4[moving_mx_dtype])
    dtypes = X4[stationary_mx_dtype], X4[moving_mx_dtype]
    return _product(stationary_mx_data, data, stationary_mx_scale, scale, *dtypes)


def on_device_reduced(
    stationary_mx_data: Array,
    stationary_mx_scale: Array,
    moving_data_bf16: Array,
    stationary_mx_dtype: str,
    moving_mx_dtype: str,
) -> Array:
    """The same with scales of Emax - 1, which the page's code takes as an option."""
    options = {"custom_mx_max_exp": lambda dtype: int(_call("get_mx_max_exp", dtype)) - 1}
    data, scale = _call("quantize_mx_golden", moving_data_bf16, X4[moving_mx_dtype], **options)
    dtypes = X4[stationary_mx_dtype], X4[moving_mx_dtype]
    return _product(stationary_mx_data, data, stationary_mx_scale, scale, *dtypes)


def strided_inputs(seed: int) -> dict[str, Any]:
    """Operands [512, 128] and [512, 512], laid out for MX by tensor_copy."""
    return _strided(seed, use_tensor_copy=True)


def strided_dma_inputs(seed: int) -> dict[str, Any]:
    """Operands [512, 128] and [512, 512], laid out for MX by DMA."""
    return _strided(seed, use_tensor_copy=False)


def strided(stationary_hbm: Array, moving_hbm: Array, mx_dtype: str, use_tensor_copy: bool) -> Array:
    """Values [4 K, M] and [4 K, N] that quantising does not change -> their product [M, N]."""
    out: Array = stationary_hbm.T @ moving_hbm
    return out


def _offline(seed: int, name: str) -> dict[str, Any]:
    np.random.seed(seed % (1 << 32))
    _, _, stationary, stationary_scale = _call("generate_stabilized_mx_data", X4[name], (K, 4 * M))
    _, _, moving, moving_scale = _call("generate_stabilized_mx_data", X4[name], (K, 4 * N))
    return {
        "stationary_mx_data": stationary,
        "stationary_mx_scale": stationary_scale,
        "moving_mx_data": moving,
        "moving_mx_scale": moving_scale,
        "mx_dtype": name,
    }


def _on_device(seed: int, name: str, *, stable: bool) -> dict[str, Any]:
    np.random.seed(seed % (1 << 32))
    _, _, stationary, scale = _call("generate_stabilized_mx_data", E5M2, (K, 4 * M))
    values = _stable(X4[name], (K, 4 * N)) if stable else np.random.standard_normal((K, 4 * N))
    return {
        "stationary_mx_data": stationary,
        "stationary_mx_scale": scale,
        "moving_data_bf16": values.astype(ml_dtypes.bfloat16),
        "stationary_mx_dtype": "float8_e5m2_x4",
        "moving_mx_dtype": name,
    }


def _strided(seed: int, *, use_tensor_copy: bool) -> dict[str, Any]:
    np.random.seed(seed % (1 << 32))
    return {
        "stationary_hbm": _stable(E5M2, (4 * K, M)).astype(ml_dtypes.bfloat16),
        "moving_hbm": _stable(E5M2, (4 * K, N)).astype(ml_dtypes.bfloat16),
        "mx_dtype": "float8_e5m2_x4",
        "use_tensor_copy": use_tensor_copy,
    }


def _product(*arguments: Any) -> Array:
    out: Array = _call("nc_matmul_mx_golden", *arguments)
    return out


def _stable(dtype: Any, shape: tuple[int, int]) -> Array:
    values: Array = _call("generate_stabilized_mx_data", dtype, shape)[0]
    return values


def _call(function: str, *arguments: Any, **options: Any) -> Any:
    """Call a function of the page's NumPy code."""
    (path,) = CLONE.rglob(GOLDEN)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be loaded as a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, function)(*arguments, **options)
