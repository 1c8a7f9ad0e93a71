"""The namespace ``neuronxcc.nki.language``: functions on tiles, with ``mask=`` and ``dtype=``, as instructions.

Source: nki/api/nki/language/__init__.py at tag v2.26.1.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np

from nkireview.isa import dtypes as table
from nkireview.nki.dtypes import ALL
from nkireview.nki.dtypes import of as dtype_of
from nkireview.nki.errors import NotYetSupported, Refusal
from nkireview.nki.language import ACTIVATIONS, BINARY, REDUCTIONS
from nkireview.nki.legacy import (
    assign,
    calls,
    elementwise,
    fills,
    loops,
    masks,
    movement,
    reduced,
    reductions,
    state,
)
from nkireview.nki.legacy.declared import ParDim
from nkireview.nki.legacy.operators import Function, named
from nkireview.nki.legacy.symbols import MeshGrid, arange
from nkireview.nki.legacy.tile import Tile
from nkireview.nki.order import device_print as printed
from nkireview.nki.order import no_reorder
from nkireview.nki.tilesize import TileSize
from nkireview.nki.views import slice_of

ABSENT = frozenset({"abs_max", "abs_min", "gelu_apprx_sigmoid_dx"})
"""Functions of the current generation that came after this one."""
FLOATS = {"fp32": np.float32, "bfp16": ml_dtypes.bfloat16}
"""Names whose `min` is the lowest number of a dtype."""
FUNCTIONS: tuple[Callable[..., Any], ...] = (
    *(fills.ndarray, fills.zeros, fills.ones, fills.full, fills.zeros_like, fills.empty_like),
    *(fills.shared_constant, fills.shared_identity_matrix, fills.rand, fills.random_seed, fills.dropout),
    *(elementwise.cos, elementwise.tan, elementwise.where),
    *(reductions.mean, reductions.var, reductions.softmax, reductions.rms_norm, reductions.all_reduce),
    *(movement.load, movement.store, movement.load_transpose2d, movement.atomic_rmw, movement.matmul),
    *(movement.transpose, movement.broadcast_to, movement.expand_dims, movement.gather_flattened),
    *(reduced.loop_reduce, no_reorder, arange),
    *(loops.program_id, loops.num_programs, loops.program_ndim, loops.spmd_dim, loops.nc),
)


def static_cast(input_data: Any, dtype: Any) -> Any:
    """A number or an array of the host in another dtype."""
    kind = dtype_of(dtype, "nl.static_cast")
    numpy = table.BY_NAME[kind.name].numpy
    if numpy is None:
        raise Refusal(f"nl.static_cast: {kind} has no values on the host")
    if isinstance(input_data, Tile):
        raise Refusal(
            "nl.static_cast: takes a number or an array of the host, not a tile; nl.copy casts tiles"
        )
    return np.asarray(input_data).astype(numpy)


def finfo(dtype: Any) -> Any:
    """The limits of a float: min, max, eps and tiny."""
    kind = dtype_of(dtype, "nl.finfo")
    row = table.BY_NAME[kind.name]
    if row.kind != "float" or row.numpy is None:
        raise Refusal(f"nl.finfo: {kind} is no float that the host knows")
    info: Any = ml_dtypes.finfo(row.numpy)  # type: ignore[no-untyped-call]
    return SimpleNamespace(
        min=float(info.min), max=float(info.max), eps=float(info.eps), tiny=float(info.tiny)
    )


def device_print(prefix: Any, x: Any, *, mask: Any = None, **kwargs: Any) -> None:
    """Print a tensor when the kernel runs."""
    movement.need("nl.device_print", x, "x")
    if masks.taken(mask, "nl.device_print") is False:
        return
    if mask is not None and masks.taken(mask, "nl.device_print") is not True:
        part = masks.restriction(mask, x.shape)
        if part.bounds:
            raise NotYetSupported("nl.device_print with a mask that leaves no box")
        if part.empty:
            return
        x = x.part(part)
    view = calls.part_of(x, None)
    state.settle(view)
    printed(str(prefix), view)


def _grid(name: str) -> Callable[..., Any]:
    def refuse() -> Any:
        raise Refusal(f"nl.{name} has no documented meaning: write the loops over tiles")

    return named(refuse, f"nl.{name}", "Refused: no document says what it gives.")


def operators() -> dict[str, Callable[..., Any]]:
    """Functions whose names also name an operator."""
    found: dict[str, Callable[..., Any]] = {
        name: elementwise.binary(name) for name in (*BINARY, "divide") if name not in ABSENT
    }
    found.update(
        {name: elementwise.activation(name) for name in (*ACTIVATIONS, "sin", "rsqrt") if name not in ABSENT}
    )
    found.update({name: elementwise.remainder(name) for name in ("mod", "fmod")})
    for call in (movement.copy, elementwise.reciprocal, elementwise.negative, elementwise.invert):
        found[call.__name__] = call
    found["logical_not"] = elementwise.logical_not
    return found


OPERATORS = operators()


def namespace() -> dict[str, Any]:
    """Everything a kernel finds in ``neuronxcc.nki.language``."""
    found: dict[str, Any] = {name: Function(name, call) for name, call in OPERATORS.items()}
    for name, op in REDUCTIONS.items():
        found[name] = Function(op, reductions.reduction(name, op))
    found.update({name: elementwise.rounding(name) for name in ("ceil", "floor", "trunc")})
    found["all"] = Function("logical_and", reductions.every)
    found.update({call.__name__: call for call in (*FUNCTIONS, static_cast, finfo, device_print)})
    found.update({name: loops.loop(name) for name in ("affine_range", "sequential_range", "static_range")})
    found.update({name: _grid(name) for name in ("gemm_grid", "gemm_stationary_grid")})
    for name, kind in ALL.items():
        numpy = table.BY_NAME[name].numpy
        found[name] = kind if numpy is None else numpy
    for name in ("float16", "float32", "int8", "int16", "int32", "uint8", "uint16", "uint32", "bool_"):
        found[name] = getattr(np, name)
    found.update(fills.REGIONS, mgrid=MeshGrid(), par_dim=ParDim, ds=slice_of, tile_size=TileSize())
    found.update({name: finfo(kind) for name, kind in FLOATS.items()})
    return found


METHODS: dict[str, Callable[..., Any]] = {
    **OPERATORS,
    "broadcast_to": movement.broadcast_to,
    "expand_dims": movement.expand_dims,
}
"""What operators and methods of tiles call."""


def _apply(name: str, *args: Any, **kwargs: Any) -> Any:
    return METHODS[name](*args, **kwargs)


Tile.apply = staticmethod(_apply)
Tile.move = staticmethod(assign.move)
Tile.accumulate = staticmethod(assign.accumulate)
