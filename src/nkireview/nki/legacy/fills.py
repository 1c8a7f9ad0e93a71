"""Where tensors of the legacy generation come from: declarations, fills, constants, random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from nkireview.isa import dtypes as table
from nkireview.nki import fills, random
from nkireview.nki.dtypes import ALL, DType
from nkireview.nki.dtypes import of as dtype_of
from nkireview.nki.errors import Refusal
from nkireview.nki.legacy import assign, calls, masks, state
from nkireview.nki.legacy.broadcast import spread
from nkireview.nki.legacy.calls import computed, fresh, record, tiled
from nkireview.nki.legacy.declared import Allocator, Declared, ParDim, sizes
from nkireview.nki.legacy.movement import copy, need
from nkireview.nki.legacy.tile import Tile
from nkireview.nki.lowering import instruction, is_number
from nkireview.nki.tensor import MemoryRegion
from nkireview.nki.trace import active, current

SBUF, PSUM = MemoryRegion.sbuf, MemoryRegion.psum
REGIONS = {
    "sbuf": SBUF,
    "psum": PSUM,
    "hbm": MemoryRegion.private_hbm,
    "private_hbm": MemoryRegion.private_hbm,
    "shared_hbm": MemoryRegion.shared_hbm,
}


def declare(
    shape: Any,
    dtype: Any,
    buffer: Any = None,
    name: str = "",
    what: str = "nl.ndarray",
    *,
    zero: bool = False,
) -> Tile:
    """A declared tensor; `zero`: of zeros, which PSUM need not be written with."""
    trace = current(what)
    allocator = buffer if isinstance(buffer, Allocator) else Allocator(_region(buffer, what))
    on_chip = allocator.region in (SBUF, PSUM)
    blocks, tile = sizes(shape, on_chip, what)
    if on_chip and len(tile) == 1:
        tile = (*tile, 1)
    lazily = state.zeroed if zero and allocator.region is PSUM else None
    eagerly = (lambda view: fills.fill(view, 0.0)) if zero and allocator.region is SBUF else None
    declared = Declared(
        trace,
        blocks,
        tile,
        dtype_of(ALL["float32"] if dtype is None else dtype, what),
        allocator.region,
        str(name or ""),
        allocator.place,
        lazily or eagerly,
    )
    found = Tile(None, declared)
    if not on_chip:
        found.physical()
    elif eagerly is not None:
        for at in np.ndindex(*blocks):
            declared.tile(tuple(int(index) for index in at))
    return found


def _region(buffer: Any, what: str) -> MemoryRegion:
    if buffer is None:
        return SBUF
    if isinstance(buffer, MemoryRegion):
        return buffer
    if isinstance(buffer, str) and buffer in REGIONS:
        return REGIONS[buffer]
    raise Refusal(
        f"{what}: buffer must be nl.sbuf, nl.psum, nl.hbm, nl.shared_hbm or an allocator of nki.compiler, got "
        f"{buffer!r}"
    )


def ndarray(shape: Any, dtype: Any, *, buffer: Any = None, name: str = "", **kwargs: Any) -> Tile:
    """An uninitialised tensor."""
    return declare(shape, dtype, buffer, name)


def zeros(shape: Any, dtype: Any, *, buffer: Any = None, name: str = "", **kwargs: Any) -> Tile:
    """A tensor of zeros on chip."""
    return _filled("nl.zeros", shape, 0.0, dtype, buffer, name)


def ones(shape: Any, dtype: Any, *, buffer: Any = None, name: str = "", **kwargs: Any) -> Tile:
    """A tensor of ones on chip."""
    return _filled("nl.ones", shape, 1.0, dtype, buffer, name)


def full(
    shape: Any, fill_value: Any, dtype: Any, *, buffer: Any = None, name: str = "", **kwargs: Any
) -> Tile:
    """A tensor on chip filled with a number."""
    return _filled("nl.full", shape, fill_value, dtype, buffer, name)


def _filled(what: str, shape: Any, number: Any, dtype: Any, buffer: Any, name: str) -> Tile:
    region = buffer.region if isinstance(buffer, Allocator) else _region(buffer, what)
    if region not in (SBUF, PSUM):
        raise Refusal(
            f"{what}: a tensor in {region.value} takes no initial value; fill a tile and nl.store it"
        )
    if not is_number(number):
        raise Refusal(f"{what}: fill_value must be a number, got {type(number).__name__}")
    found = declare(shape, dtype, buffer, name, what, zero=number == 0)
    if number != 0:
        for at in np.ndindex(*found._declared.blocks):  # type: ignore[union-attr]
            block = found[tuple(int(index) for index in at)] if at else found
            assign.move(block, number)
    return found


def zeros_like(a: Any, dtype: Any = None, *, buffer: Any = None, name: str = "", **kwargs: Any) -> Tile:
    """Zeros of the shape and dtype of another tensor, in SBUF unless `buffer` says otherwise."""
    need("nl.zeros_like", a, "a")
    return zeros(_shape_of(a), a.kind if dtype is None else dtype, buffer=buffer, name=name)


def empty_like(a: Any, dtype: Any = None, *, buffer: Any = None, name: str = "", **kwargs: Any) -> Tile:
    """An uninitialised tensor of the shape and dtype of another tensor, in SBUF unless `buffer` says otherwise."""
    need("nl.empty_like", a, "a")
    return ndarray(_shape_of(a), a.kind if dtype is None else dtype, buffer=buffer, name=name)


def _shape_of(a: Tile) -> tuple[int, ...]:
    declared = a._declared
    if declared is None or not declared.blocks[len(a._at) :]:
        return a.shape
    return (*declared.blocks[len(a._at) :], ParDim(declared.shape[0]), *declared.shape[1:])


def shared_constant(constant: Any, dtype: Any = None, **kwargs: Any) -> Tile:
    """A tensor in HBM that holds an array."""
    values = np.asarray(constant)
    if dtype is not None:
        values = table.cast(values, table.BY_NAME[dtype_of(dtype, "nl.shared_constant").name])
    return Tile(fills.shared_constant(values))


def shared_identity_matrix(n: int, dtype: Any = np.uint8, **kwargs: Any) -> Tile:
    """An identity matrix in HBM, as `shared_constant` gives it; there is one for each size and dtype."""
    what = "nl.shared_identity_matrix"
    if not isinstance(n, int | np.integer) or isinstance(n, bool) or n < 1:
        raise Refusal(f"{what}: n must be a positive integer, got {n!r}")
    kind = dtype_of(dtype, what)
    kept = current(what).kept
    key = "legacy identity", int(n), kind.name
    found: Tile = kept.get(key) or shared_constant(np.eye(int(n), dtype=np.float32), kind)
    kept[key] = found
    return found


# random numbers


def rand(shape: Any, dtype: Any = np.float32, **kwargs: Any) -> Any:
    """Random numbers from 0 to 1: a tile in a kernel, an array on the host."""
    kind = dtype_of(dtype, "nl.rand")
    if active() is None:
        return np.random.random_sample(tuple(shape)).astype(table.BY_NAME[kind.name].numpy)
    return calls.result_of(random.rand(tuple(shape), kind))


def random_seed(seed: Any, *, mask: Any = None, **kwargs: Any) -> None:
    """Seed the generator with a number of 32 bits, or with a tile that holds one."""
    what = "nl.random_seed"
    if masks.taken(mask, what) is False:
        return
    seed = tiled(seed)
    if isinstance(seed, int) and not isinstance(seed, bool):
        kind = ALL["int32" if seed < 2**31 else "uint32"]
        if not -(2**31) <= seed < 2**32:
            raise Refusal(f"{what}: seed {seed} has more than 32 bits")
        number = seed
        seed = fresh((1, 1), kind)
        record("memset", {"value": number}, seed)
    need(what, seed, "seed")
    view = calls.part_of(seed, None)
    state.settle(view)
    instruction("set_rng_seed")(src_seeds=view)


def dropout(x: Any, rate: Any, *, dtype: Any = None, mask: Any = None, **kwargs: Any) -> Tile:
    """Each element replaced by zero with the probability `rate`, a number or a tile with one element a partition."""
    need("nl.dropout", x, "x")
    rate = tiled(rate)
    if isinstance(rate, Tile):
        rate = spread(rate, (x.shape[0], 1))
    elif not is_number(rate) or not 0 <= rate <= 1:
        raise Refusal(f"nl.dropout: rate is {rate!r}, expected a probability from 0 to 1 or a tile")
    return dropped(x, rate, dtype, mask)


def dropped(x: Tile, rate: Any, dtype: Any, mask: Any) -> Tile:
    """The instruction, which keeps the dtype, and a copy into another one."""
    found = computed("dropout", {"data": x, "prob": rate}, None, mask)
    return found if _same(dtype, x.kind) else copy(found, dtype=dtype, mask=mask)


def _same(dtype: Any, kind: DType) -> bool:
    return dtype is None or dtype_of(dtype, "dtype") == kind
