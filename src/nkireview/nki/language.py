"""The namespace `nki.language`, built from tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np

from nkireview.isa.alu import BY_NAME as OPS
from nkireview.isa.release import Release
from nkireview.nki import lowering
from nkireview.nki.allocate import ndarray
from nkireview.nki.dtypes import ALL
from nkireview.nki.errors import NotYetSupported, Refusal
from nkireview.nki.objects import NKIObject
from nkireview.nki.operators import Operator
from nkireview.nki.tensor import MemoryRegion, NkiTensor
from nkireview.nki.trace import current, surroundings

BINARY = (
    *("add", "subtract", "multiply", "maximum", "minimum", "abs_max", "abs_min", "power"),
    *("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"),
    *("bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"),
    *("logical_and", "logical_or", "logical_xor"),
)
ACTIVATIONS = (
    *("abs", "square", "exp", "log", "sqrt", "tanh", "sigmoid", "relu", "sign", "arctan"),
    *("gelu", "gelu_dx", "gelu_apprx_tanh", "gelu_apprx_sigmoid", "gelu_apprx_sigmoid_dx"),
    *("silu", "silu_dx", "softplus", "mish", "erf", "erf_dx"),
)
REDUCTIONS = {"sum": "add", "max": "maximum", "min": "minimum", "prod": "multiply"}
TOKENS_ONLY = ("average", "prelu", "bypass")
NOT_YET = (
    *(
        "softmax",
        "rms_norm",
        "where",
        "dropout",
        "rand",
        "random_seed",
        "gather_flattened",
        "load_transpose2d",
    ),
    *("shared_constant", "shared_identity_matrix", "device_print", "no_reorder"),
    *("dynamic_range", "fori_loop", "while_loop"),
)
DEPRECATED_RANGES = Release(0, 6)  # release notes 0.6: all three are deprecated aliases of range


def functions() -> dict[str, Callable[..., Any]]:
    """Every `nl` function that is traced, by name."""
    found: dict[str, Callable[..., Any]] = {name: lowering.binary(name) for name in BINARY}
    found.update({name: lowering.activation(name) for name in ACTIVATIONS})
    found.update({name: lowering.reduction(name, op) for name, op in REDUCTIONS.items()})
    found.update({name: lowering.rounding(name) for name in ("ceil", "floor", "trunc")})
    found.update({"zeros": lowering.filled("zeros", 0.0), "ones": lowering.filled("ones", 1.0)})
    found["full"] = lowering.filled("full", None)
    found["all"] = lowering.every
    for name in (
        *(
            "reciprocal",
            "rsqrt",
            "copy",
            "negative",
            "invert",
            "logical_not",
            "sin",
            "cos",
            "tan",
            "mean",
            "var",
        ),
        *("load", "store", "matmul", "transpose", "zeros_like", "empty_like", "expand_dims", "broadcast_to"),
    ):
        found[name] = getattr(lowering, name)
    found["divide"] = lowering.refused("divide", "write nl.multiply(x, nl.reciprocal(y))")
    for name in ("mod", "fmod"):
        found[name] = lowering.refused(name, "there is no such operator on any engine")
    return found


class TileSize:
    """``nl.tile_size``: limits of the target of the current trace."""

    @property
    def pmax(self) -> int:
        """Partitions of SBUF and PSUM."""
        return self._figure("partitions")

    @property
    def psum_fmax(self) -> int:
        """float32 elements of a PSUM bank, a partition (older name)."""
        return self.psum_bank_fmax

    @property
    def psum_bank_fmax(self) -> int:
        """float32 elements of a PSUM bank, a partition."""
        return self.psum_bank_fmax_bytes // 4

    @property
    def psum_bank_fmax_bytes(self) -> int:
        """Bytes of a PSUM bank, a partition."""
        return self._figure("psum.bank_bytes")

    @property
    def psum_num_banks(self) -> int:
        """Banks of PSUM."""
        return self._figure("psum.banks")

    @property
    def gemm_stationary_fmax(self) -> int:
        """Free size of a stationary tile."""
        return self._figure("limits.stationary_free_max")

    @property
    def gemm_moving_fmax(self) -> int:
        """Free size of a moving tile that fills one PSUM bank."""
        return self.psum_bank_fmax

    @property
    def bn_stats_fmax(self) -> int:
        """Free size of bn_stats."""
        return self._figure("limits.bn_stats_free_max")

    @property
    def psum_min_align(self) -> int:
        """Alignment of PSUM addresses, bytes."""
        return self._figure("psum.min_align")

    @property
    def sbuf_min_align(self) -> int:
        """Alignment of SBUF addresses, bytes."""
        return self._figure("sbuf.min_align")

    @property
    def sbuf_size_bytes(self) -> int:
        """Bytes of SBUF, all partitions."""
        return self._figure("sbuf.bytes_per_partition") * self.pmax

    @property
    def sbuf_fmax_bytes(self) -> int:
        """Usable bytes of SBUF, a partition."""
        return self._figure("sbuf.usable_bytes_per_partition")

    @property
    def sbuf_fmax(self) -> int:
        """Usable float32 elements of SBUF, a partition."""
        return self.sbuf_fmax_bytes // 4

    @property
    def total_available_sbuf_size(self) -> int:
        """Usable bytes of SBUF, a partition (older name)."""
        return self.sbuf_fmax_bytes

    def _figure(self, path: str) -> int:
        return int(surroundings("nl.tile_size").hardware.value(path))


def ds(start: int, size: int) -> slice:
    """The slice of `size` elements from `start`."""
    return slice(start, start + size)


def _range(name: str) -> Callable[..., Iterator[int]]:
    def loop(start: int, stop: int | None = None, step: int = 1) -> Iterator[int]:
        trace = current(f"nl.{name}")
        if trace.release >= DEPRECATED_RANGES:
            trace.event(
                "deprecated", f"nl.{name} is a deprecated alias of range since NKI {DEPRECATED_RANGES}"
            )
        for bound in (start, stop, step):
            if bound is not None and (isinstance(bound, bool) or not isinstance(bound, int | np.integer)):
                raise Refusal(f"nl.{name}: bounds must be integers, got {type(bound).__name__}")
        first, last = (0, start) if stop is None else (start, stop)
        return iter(range(int(first), int(last), int(step)))

    loop.__name__ = name
    return loop


def program_id(axis: int = 0) -> int:
    """The core of the grid this stream runs on."""
    trace = current("nl.program_id")
    _grid_axis(trace.grid, axis, "nl.program_id")
    return trace.core


def num_programs(axes: int = 0) -> int:
    """Size of the grid."""
    grid = current("nl.num_programs").grid
    _grid_axis(grid, axes, "nl.num_programs")
    return grid[axes] if grid else 1


def program_ndim() -> int:
    """Rank of the grid; 0 without one."""
    return len(current("nl.program_ndim").grid)


def _grid_axis(grid: tuple[int, ...], axis: int, what: str) -> None:
    if axis not in range(max(len(grid), 1)):
        raise Refusal(f"{what}: axis {axis} is not one of the grid's {len(grid)}")


def is_hbm(buffer: Any) -> bool:
    """True for both HBM regions."""
    return buffer in (MemoryRegion.private_hbm, MemoryRegion.shared_hbm)


def is_sbuf(buffer: Any) -> bool:
    """True for SBUF."""
    return buffer is MemoryRegion.sbuf


def is_psum(buffer: Any) -> bool:
    """True for PSUM."""
    return buffer is MemoryRegion.psum


def is_on_chip(buffer: Any) -> bool:
    """True for SBUF and PSUM."""
    return is_sbuf(buffer) or is_psum(buffer)


def namespace() -> dict[str, Any]:
    """Everything a kernel finds in `nki.language`."""
    known = functions()
    found: dict[str, Any] = {name: Operator(name, call) for name, call in known.items()}
    for name in OPS:
        found.setdefault(name, Operator(name))
    found.update({name: Operator(name) for name in TOKENS_ONLY})
    found.update({name: _not_yet(name) for name in NOT_YET})
    found.update(ALL)
    found.update({region.value: region for region in MemoryRegion}, hbm=MemoryRegion.private_hbm)
    found.update({name: _range(name) for name in ("affine_range", "sequential_range", "static_range")})
    for kind in (ndarray, NkiTensor, NKIObject, MemoryRegion):
        found[kind.__name__] = kind
    for function in (ds, program_id, num_programs, program_ndim, is_hbm, is_sbuf, is_psum, is_on_chip):
        found[function.__name__] = function
    found.update(tile_size=TileSize(), DType=str)
    return found


def module(name: str) -> ModuleType:
    """A fresh module object."""
    made = ModuleType(name, __doc__)
    made.__dict__.update(namespace())
    made.__dict__["__getattr__"] = _unknown(name)
    return made


def _not_yet(name: str) -> Callable[..., Any]:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise NotYetSupported(f"nl.{name}")

    refuse.__name__ = name
    return refuse


def _unknown(module_name: str) -> Callable[[str], Any]:
    def lookup(name: str) -> Any:
        raise AttributeError(f"{module_name} has no {name!r} in the current generation")

    return lookup
