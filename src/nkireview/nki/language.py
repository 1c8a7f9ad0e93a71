"""The namespace `nki.language`, built from tables.

A module of it knows the release when a name is looked up: names that some release lacks are not in the module's
dictionary, see `spans.module`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np

from nkireview.isa.alu import BY_NAME as OPS
from nkireview.isa.release import Release
from nkireview.nki import elementwise, fills, movement, order, random, reductions, spans
from nkireview.nki.allocate import ndarray
from nkireview.nki.control import LOOPS
from nkireview.nki.dtypes import ALL
from nkireview.nki.errors import Refusal
from nkireview.nki.objects import NKIObject
from nkireview.nki.operators import Operator
from nkireview.nki.tensor import MemoryRegion, NkiTensor
from nkireview.nki.tilesize import TileSize as TileSize
from nkireview.nki.trace import Trace, current
from nkireview.nki.views import slice_of

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
DEFAULTS_SINCE = Release(0, 3)  # release notes 0.3: defaults of program_id and sequential_range
DEPRECATED_RANGES = Release(0, 6)  # release notes 0.6: all three are deprecated aliases of range


def operators() -> dict[str, Callable[..., Any]]:
    """Functions whose names are also names for ``op=``."""
    found: dict[str, Callable[..., Any]] = {name: elementwise.binary(name) for name in BINARY}
    found.update({name: elementwise.activation(name) for name in ACTIVATIONS})
    for name in ("reciprocal", "rsqrt", "invert", "logical_not", "sin"):
        found[name] = getattr(elementwise, name)
    found["copy"] = movement.copy
    found["divide"] = elementwise.refused("divide", "write nl.multiply(x, nl.reciprocal(y))")
    return found


def functions() -> dict[str, Callable[..., Any]]:
    """Functions whose names are nothing else."""
    found: dict[str, Callable[..., Any]] = {
        name: reductions.reduction(name, op) for name, op in REDUCTIONS.items()
    }
    found.update({name: elementwise.rounding(name) for name in ("ceil", "floor", "trunc")})
    found.update({"zeros": fills.filled("zeros", 0.0), "ones": fills.filled("ones", 1.0)})
    found.update({"full": fills.filled("full", None), "all": reductions.every})
    for module_, names in (
        (elementwise, ("negative", "cos", "tan", "where")),
        (reductions, ("mean", "var", "softmax", "rms_norm")),
        (movement, ("load", "store", "load_transpose2d", "matmul", "transpose")),
        (movement, ("gather_flattened", "expand_dims", "broadcast_to")),
        (fills, ("zeros_like", "empty_like", "shared_constant", "shared_identity_matrix")),
        (random, ("random_seed", "rand", "dropout")),
        (order, ("no_reorder", "device_print")),
    ):
        found.update({name: getattr(module_, name) for name in names})
    for name in ("mod", "fmod"):
        found[name] = elementwise.refused(name, "there is no such operator on any engine")
    return found


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
        if step == 0:
            raise Refusal(f"nl.{name}: step must not be 0")
        first, last = (0, start) if stop is None else (start, stop)
        return iter(range(int(first), int(last), int(step)))

    loop.__name__ = name
    return loop


def _defaulted(trace: Trace, what: str, arguments: str) -> None:
    """Refuse a call that leaves an argument out in a release that has no default for it."""
    if trace.release < DEFAULTS_SINCE:
        raise Refusal(
            f"{what} needs {arguments}: there are defaults since NKI {DEFAULTS_SINCE}, this kernel is judged by "
            f"{trace.release}"
        )


def program_id(axis: int | None = None) -> int:
    """The core of the grid this stream runs on; axis 0 where none is given."""
    trace = current("nl.program_id")
    if axis is None:
        _defaulted(trace, "nl.program_id", "an axis")
        axis = 0
    _grid_axis(trace.grid, axis, "nl.program_id")
    return trace.core


def num_programs(axes: Any = 0) -> int:
    """Size of the grid along the axes, all of them for None."""
    grid = current("nl.num_programs").grid
    wanted = range(len(grid)) if axes is None else axes if isinstance(axes, list | tuple) else (axes,)
    for axis in wanted:
        _grid_axis(grid, axis, "nl.num_programs")
    return math.prod(grid[axis] for axis in wanted) if grid else 1


def program_ndim() -> int:
    """Rank of the grid; 0 without one."""
    return len(current("nl.program_ndim").grid)


def _grid_axis(grid: tuple[int, ...], axis: Any, what: str) -> None:
    if axis not in range(max(len(grid), 1)):
        raise Refusal(f"{what}: axis {axis} is not one of the grid's {len(grid)}")


def is_hbm(buffer: Any) -> bool:
    """True for both HBM regions, also by their names."""
    return buffer in (MemoryRegion.private_hbm, MemoryRegion.shared_hbm) or (
        isinstance(buffer, str) and buffer in ("hbm", "private_hbm", "shared_hbm")
    )


def is_sbuf(buffer: Any) -> bool:
    """True for SBUF, also by its name."""
    return buffer is MemoryRegion.sbuf or (isinstance(buffer, str) and buffer == "sbuf")


def is_psum(buffer: Any) -> bool:
    """True for PSUM, also by its name."""
    return buffer is MemoryRegion.psum or (isinstance(buffer, str) and buffer == "psum")


def is_on_chip(buffer: Any) -> bool:
    """True for SBUF and PSUM, also by their names."""
    return is_sbuf(buffer) or is_psum(buffer)


NkiTensor.assign = fills.assign


def namespace() -> dict[str, Any]:
    """Everything a kernel finds in `nki.language`, in whatever release."""
    found: dict[str, Any] = {name: Operator(name, call) for name, call in operators().items()}
    for name in (*OPS, *TOKENS_ONLY):
        found.setdefault(name, Operator(name))
    found.update(functions())
    found.update(LOOPS)
    found.update(ALL)
    found.update({region.value: region for region in MemoryRegion}, hbm=MemoryRegion.private_hbm)
    found.update({name: _range(name) for name in ("affine_range", "sequential_range", "static_range")})
    found.update(ndarray=ndarray, NkiTensor=NkiTensor, NKIObject=NKIObject, MemoryRegion=MemoryRegion)
    for function in (program_id, num_programs, program_ndim, is_hbm, is_sbuf, is_psum, is_on_chip):
        found[function.__name__] = function
    found.update(tile_size=TileSize(), DType=str, ds=slice_of)
    return found


def module(name: str) -> ModuleType:
    """A fresh module object."""
    return spans.module(name, "nki.language", namespace(), __doc__)
