"""Rows that look for the eight largest values, and for values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.isa.dtypes import DataType
from nkireview.isa.enums import Engine
from nkireview.isa.limit import AtLeast, AtMost, DtypeIn, Exactly, Limit
from nkireview.isa.row import Bits, Cost, Flow, Operand, Param, Reader, Result, Role, Row
from nkireview.isa.rows.arrays import rows_of, stored_bits
from nkireview.isa.rows.common import (
    BEFORE_03,
    BEFORE_04,
    MIN_INTERVAL,
    NAME,
    ON_CHIP,
    SINCE_04,
    SINCE_06,
    STUB,
    STUB_2_26,
    only,
    placed_limits,
    returns,
    same_layout,
    same_partitions,
    tile_limits,
)

TOP = 8  # values that the rows here handle: nki/api/nki/isa/__init__.py:2415-2424
SEARCH_MAX = 16384  # elements a partition: nki/api/nki/isa/__init__.py:2422,3177
SEARCH_DIMS, OLD_SEARCH_DIMS = 3, 5  # nki/api/nki/isa/__init__.py:2421, before NKI 0.4 five
ABSENT = "a value that the search did not find"
_INDICES = frozenset({"uint16", "uint32"})


def _top8(reader: Reader) -> dict[str, Result]:
    rows = rows_of(reader.value("src"))
    largest = np.partition(rows, rows.shape[1] - TOP, axis=1)[:, -TOP:]
    return {"dst": np.sort(largest, axis=1)[:, ::-1]}


def _search_limits(data: str, source: str) -> tuple[Limit, ...]:
    """Rule 65 for the tile that is searched."""
    return (
        AtLeast(number=65, source=source, subject=f"{data}.free", bound=TOP),
        AtMost(number=65, source=source, subject=f"{data}.free", bound=SEARCH_MAX),
        AtMost(number=65, source=source, releases=SINCE_04, subject=f"{data}.dims", bound=SEARCH_DIMS),
        AtMost(number=65, source=source, releases=BEFORE_04, subject=f"{data}.dims", bound=OLD_SEARCH_DIMS),
        same_partitions("dst", data),
        Exactly(number=8, source=source, subject="dst.free", bound=TOP),
    )


max8 = Row(
    name="max8",
    signature=(Param("dst"), Param("src"), NAME),
    operands=(Operand("dst", Role.write, ON_CHIP), Operand("src", Role.read, ON_CHIP)),
    engines=only(Engine.vector),
    meaning=_top8,
    flow={"dst": Flow.row},
    cost=Cost(
        subject="src", per_element=1.0, minimum=MIN_INTERVAL, formula="N", source=f"{STUB_2_26}:671-675"
    ),
    source=f"{STUB}:2415-2432",
    limits=(*tile_limits("dst", "src"), *_search_limits("src", f"{STUB}:2421-2427")),
    legacy=returns("max8"),
)


def _places(data: NDArray[Any], wanted: NDArray[Any], *, ascending: bool) -> NDArray[np.int64]:
    """Where each row of data holds the wanted values of that row, -1 where nowhere.

    The n-th of equal wanted values takes the n-th place, counted from the first slot where `ascending`, else from
    the last.
    """
    found = np.full(wanted.shape, -1, np.int64)
    for slot in range(wanted.shape[1]):
        value = wanted[:, slot : slot + 1]
        others = wanted[:, :slot] if ascending else wanted[:, slot + 1 :]
        earlier = (others == value).sum(axis=1)
        matches = data == value
        here = matches & (np.cumsum(matches, axis=1, dtype=np.int32) == earlier[:, None] + 1)
        lanes = here.any(axis=1)
        found[lanes, slot] = here[lanes].argmax(axis=1)
    return found


def _indices(places: NDArray[np.int64], dtype: DataType) -> Bits:
    """Places as stored indices: all ones where there is none."""
    return stored_bits(places.astype(f"u{dtype.storage.itemsize}"), dtype)


def _whole_rows(masks: Mapping[str, NDArray[np.bool_]], lanes: int) -> NDArray[np.bool_]:
    """Which partitions are defined in every tile that is read, of shape (P, 1)."""
    defined = np.ones((lanes, 1), np.bool_)
    for mask in masks.values():
        defined &= rows_of(mask).all(axis=1, keepdims=True)
    return defined


def _found(reader: Reader, *, ascending: bool) -> NDArray[np.bool_]:
    data, wanted = rows_of(reader.value("data")), rows_of(reader.value("vals"))
    return _places(data, wanted, ascending=ascending) >= 0


def _find8_reach(reader: Reader, masks: Mapping[str, NDArray[np.bool_]]) -> NDArray[np.bool_]:
    """Before NKI 0.6 no document says what an absent value gives (nki/api/nki/isa/__init__.py:3181-3183)."""
    lanes = reader.shape("data")[0]
    known = True if reader.release in SINCE_06 else _found(reader, ascending=True)
    return np.broadcast_to(_whole_rows(masks, lanes) & known, (lanes, TOP))


def _replace8_reach(reader: Reader, masks: Mapping[str, NDArray[np.bool_]]) -> NDArray[np.bool_]:
    """No document says what becomes of the index of an absent value."""
    return _found(reader, ascending=False) & _whole_rows(masks, reader.shape("data")[0])


def _find8(reader: Reader) -> dict[str, Result]:
    data, wanted = rows_of(reader.value("data")), rows_of(reader.value("vals"))
    return {"dst": _indices(_places(data, wanted, ascending=True), reader.dtype("dst"))}


nc_find_index8 = Row(
    name="nc_find_index8",
    signature=(Param("dst"), Param("data"), Param("vals"), NAME),
    operands=(
        Operand("dst", Role.write, ON_CHIP),
        Operand("data", Role.read, ON_CHIP),
        Operand("vals", Role.read, ON_CHIP),
    ),
    engines=only(Engine.vector),
    meaning=_find8,
    flow={"dst": Flow.row},
    reach={"dst": _find8_reach},
    undefined=ABSENT,
    cost=Cost(
        subject="data", per_element=1.0, minimum=MIN_INTERVAL, formula="N", source=f"{STUB_2_26}:746-750"
    ),
    source=f"{STUB}:3169-3191",
    limits=(
        *placed_limits("dst"),
        *tile_limits("data", "vals"),
        *_search_limits("data", f"{STUB}:3175-3179"),
        same_partitions("vals", "data"),
        Exactly(number=8, source=f"{STUB}:3177-3178", subject="vals.free", bound=TOP),
        AtMost(number=65, source=f"{STUB}:3176-3177", subject="vals.dims", bound=SEARCH_DIMS),
        DtypeIn(number=46, source=f"{STUB}:3178-3179", operand="dst", allowed=_INDICES),
    ),
    legacy=returns("nc_find_index8"),
)


def _replace8(reader: Reader) -> dict[str, Result]:
    data, wanted = reader.value("data"), rows_of(reader.value("vals"))
    places = _places(rows_of(data), wanted, ascending=False)
    replaced = rows_of(data).copy()
    lanes, slots = np.nonzero(places >= 0)
    replaced[lanes, places[lanes, slots]] = reader.imm("imm")
    results: dict[str, Result] = {"dst": replaced.reshape(data.shape)}
    if reader.has("dst_idx"):
        results["dst_idx"] = _indices(places, reader.dtype("dst_idx"))
    return results


nc_match_replace8 = Row(
    name="nc_match_replace8",
    signature=(Param("dst"), Param("data"), Param("vals"), Param("imm"), Param("dst_idx", None), NAME),
    operands=(
        Operand("dst", Role.write, ON_CHIP),
        Operand("data", Role.read, ON_CHIP),
        Operand("vals", Role.read, ON_CHIP),
        Operand("dst_idx", Role.write, ON_CHIP, optional=True),
    ),
    engines=only(Engine.vector),
    meaning=_replace8,
    flow={"dst": Flow.row, "dst_idx": Flow.row},
    reach={"dst_idx": _replace8_reach},
    undefined=ABSENT,
    cost=Cost(
        subject="data",
        per_element=1.0,
        minimum=MIN_INTERVAL,
        formula="max(MIN_II, N), printed as min",
        source=f"{STUB_2_26}:793-799",
    ),
    source=f"{STUB}:3193-3219",
    limits=(
        *tile_limits("dst", "data", "vals"),
        *placed_limits("dst_idx"),
        *same_layout(f"{STUB}:3213-3214", "data", "dst"),
        same_partitions("vals", "data"),
        Exactly(number=8, source=f"{STUB}:3215", subject="vals.free", bound=TOP),
        same_partitions("dst_idx", "data"),
        Exactly(number=8, source=f"{STUB}:3203-3206", subject="dst_idx.free", bound=TOP),
        DtypeIn(number=46, source=f"{STUB}:3178-3179", operand="dst_idx", allowed=_INDICES),
        AtMost(number=65, source=f"{STUB_2_26}:767-799", subject="data.free", bound=SEARCH_MAX),
        AtMost(
            number=65,
            source=f"{STUB_2_26}:767-799",
            releases=BEFORE_03,
            subject="data.dims",
            bound=OLD_SEARCH_DIMS,
        ),
        AtMost(
            number=65,
            source=f"{STUB_2_26}:767-799",
            releases=BEFORE_03,
            subject="vals.dims",
            bound=SEARCH_DIMS,
        ),
    ),
    legacy=returns("nc_match_replace8"),
)

ROWS = (max8, nc_find_index8, nc_match_replace8)
