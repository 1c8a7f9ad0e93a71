"""Inputs and references for kernels of nki-library.

The references are the library's own, in torch. Each is loaded as a file, without its package, because the package
imports the kernels. `tools/public.py` copies this file beside the extracted clone.
"""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

CORE = Path(__file__).resolve().parent.parent / "clone" / "src" / "nkilib_src" / "nkilib" / "core"
PARTITIONS = 128


def cumsum_inputs(seed: int) -> tuple[Array, ...]:
    """x [256, 4096]: two whole tiles of rows, two of columns."""
    return (_normal(seed, (256, 4096)),)


def cumsum_tail_inputs(seed: int) -> tuple[Array, ...]:
    """x [200, 3000]: the last tile is short in both dimensions."""
    return (_normal(seed, (200, 3000)),)


def cumsum(x: Array) -> Array:
    """x [rows, columns] -> running sums along the columns."""
    return _call("cumsum/cumsum_torch.py", "cumsum_torch_ref", x)[0]


def cascaded_max_inputs(seed: int) -> tuple[Array, ...]:
    """x [2, 4, 4096]: the vocabulary divides into 16 stages."""
    return (_distinct(seed, (2, 4, 4096)),)


def cascaded_max_tail_inputs(seed: int) -> tuple[Array, ...]:
    """x [5, 3001]: 23 stages of 131 columns, the last one short."""
    return (_distinct(seed, (5, 3001)),)


def cascaded_max(x: Array) -> tuple[Array, ...]:
    """x [..., vocabulary] -> the maximum [..., 1] and its index [..., 1]."""
    return _call("max/cascaded_max_torch.py", "cascaded_max_torch_ref", x)


def rmsnorm_tkg_inputs(seed: int) -> tuple[Array, ...]:
    """Float32 tokens [3, 3, 4096]: a hidden size above 2048 is loaded with strided DMA."""
    return _rmsnorm(seed, batch=3, sequence=3, hidden=4096, dtype=np.dtype(np.float32))


def rmsnorm_tkg_tail_inputs(seed: int) -> tuple[Array, ...]:
    """Bfloat16 tokens [7, 19, 2048]: loaded contiguously and transposed, in tiles of 128 and of 5 tokens."""
    return _rmsnorm(seed, batch=7, sequence=19, hidden=2048, dtype=np.dtype(ml_dtypes.bfloat16))


def rmsnorm_tkg(tokens: Array, gamma: Array, output: Array) -> Array:
    """tokens [B, S, H], gamma [1, H], output [128, B*S, H/128] (its shape only) -> the result in that layout, LNC 1."""
    return _call("subkernels/rmsnorm_torch.py", "rmsnorm_tkg_torch_ref_lnc1", tokens, gamma, output)[0]


def _normal(seed: int, shape: tuple[int, ...]) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def _distinct(seed: int, shape: tuple[int, ...]) -> Array:
    """No value twice in a row: the index of a maximum that occurs twice is not defined."""
    row = np.linspace(-4.0, 4.0, shape[-1], dtype=np.float32)
    return np.random.default_rng(seed).permuted(np.broadcast_to(row, shape), axis=-1)


def _rmsnorm(seed: int, batch: int, sequence: int, hidden: int, dtype: np.dtype[Any]) -> tuple[Array, ...]:
    random = np.random.default_rng(seed)
    tokens = random.standard_normal((batch, sequence, hidden)).astype(dtype)
    gamma = (1.0 + 0.1 * random.standard_normal((1, hidden))).astype(dtype)
    return tokens, gamma, np.zeros((PARTITIONS, batch * sequence, hidden // PARTITIONS), dtype)


def _call(file: str, function: str, *arrays: Array) -> tuple[Array, ...]:
    """The values of the dict that a torch reference returns, in its order."""
    # Imported here, so that the input functions do not pay for it.
    torch: Any = importlib.import_module("torch")

    path = CORE / file
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be loaded as a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    returned = getattr(module, function)(*(torch.from_numpy(np.array(array)) for array in arrays))
    return tuple(value.numpy() for value in returned.values())
