"""Kernels of the legacy generation that come without a check of their own, against NumPy: `legacy.py CLONE NAME`."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
TUTORIALS = "src/nki_samples/tutorials"
EXAMPLES = "general/nki/examples"


def module(path: Path) -> ModuleType:
    """A file of the clone, whose neighbours it may import."""
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def compare(found: Array, wanted: Array, within: float) -> None:
    """Print whether a result matches, by its largest difference."""
    assert found.shape == wanted.shape
    worst = float(np.max(np.abs(found.astype(np.float64) - wanted)))
    print(f"largest difference {worst:.2e}: {'matches' if worst <= within else 'DIFFERS'}")
    if worst > within:
        raise SystemExit(1)


def drawn(*shape: int, seed: int = 0) -> Array:
    """float32 numbers from -1 to 1."""
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def transpose(clone: Path) -> None:
    """Two free dimensions of int8 swapped."""
    kernels = module(clone / TUTORIALS / "transpose2d/transpose2d_nki_kernels.py")
    a = np.arange(60, dtype=np.int8).reshape(5, 12)
    wanted = a.reshape(5, 3, 4).transpose(0, 2, 1).reshape(5, 12)
    compare(kernels.tensor_transpose2D_kernel_(a, (3, 4)), wanted, 0)


def attention(version: str, within: float) -> Callable[[Path], None]:
    """One head of 128 over 4,096 positions."""

    def run(clone: Path) -> None:
        kernels = module(clone / TUTORIALS / "attention_fwd_performance/attention_kernels.py")
        q, k, v = (drawn(128, 4096, seed=seed) for seed in range(3))
        scores = q.T.astype(np.float64) @ k
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        wanted = weights / weights.sum(axis=1, keepdims=True) @ v.T
        compare(np.asarray(getattr(kernels, version)(q, k, v)).reshape(wanted.shape), wanted, within)

    return run


def layernorm(clone: Path) -> None:
    """Both versions, with rows that fill no tile."""
    kernels = module(clone / EXAMPLES / "layernorm/layernorm_nki_kernel.py")
    x, gamma, beta = drawn(300, 1024), drawn(1024, seed=1), drawn(1024, seed=2)
    wide = x.astype(np.float64)
    centred = wide - wide.mean(axis=1, keepdims=True)
    wanted = centred / np.sqrt(wide.var(axis=1, keepdims=True) + 1e-5) * gamma + beta
    for name in ("nki_layernorm_kernel_v1", "nki_layernorm_kernel_v2"):
        compare(getattr(kernels, name)(x, 1e-5, gamma, beta), wanted, 1e-5)


def rmsnorm(clone: Path) -> None:
    """Rows that fill no tile."""
    kernels = module(clone / EXAMPLES / "rmsnorm/rmsnorm_nki_kernels.py")
    x, gamma = drawn(250, 512), drawn(512, seed=1)
    wide = x.astype(np.float64)
    wanted = wide / np.sqrt((wide * wide).mean(axis=1, keepdims=True)) * gamma
    compare(kernels.nki_rmsnorm_kernel(x, gamma), wanted, 1e-5)


def maxpool(clone: Path) -> None:
    """3 x 3 windows at a stride of 1."""
    kernels = module(clone / "contributed/maxpooling.py")
    x = drawn(448, 448)
    wanted = np.lib.stride_tricks.sliding_window_view(x, (3, 3)).max(axis=(2, 3))
    found = np.asarray(kernels.max_pooling_2d_stride_1(x, 3))
    compare(found[: wanted.shape[0], : wanted.shape[1]], wanted, 0)


def bilinear(clone: Path) -> None:
    """Twice the height and width, as torch interpolates."""
    import torch

    kernels = module(clone / "contributed/interpolate_bilinear_fwd.py")
    x = drawn(2, 64, 128, 128)
    wanted = torch.nn.functional.interpolate(torch.tensor(x), scale_factor=2, mode="bilinear").numpy()
    compare(np.asarray(kernels.interpolate_bilinear_2x_fwd(x)), wanted, 1e-5)


CASES: dict[str, Callable[[Path], None]] = {
    "transpose": transpose,
    "attention-v3": attention("attn_fwd_v3", 1e-5),
    "attention-v8a": attention("attn_fwd_v8a", 1e-2),
    "layernorm": layernorm,
    "rmsnorm": rmsnorm,
    "maxpool": maxpool,
    "bilinear": bilinear,
}
CASES[sys.argv[2]](Path(sys.argv[1]))
