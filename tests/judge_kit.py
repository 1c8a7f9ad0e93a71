"""What `judge` says of one call that is made by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from execute_kit import row_major

from nkireview.hardware import target
from nkireview.isa.enums import Engine, Memory
from nkireview.isa.release import Release
from nkireview.isa.table import row
from nkireview.program.access import Access
from nkireview.program.call import CallView, Tile
from nkireview.program.judge import Judgement, judge
from nkireview.program.model import Buffer


@dataclass(frozen=True)
class At:
    """A whole buffer as an operand."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    memory: Memory = Memory.sbuf
    start: int = 0


def call_of(
    name: str,
    tiles: Mapping[str, At],
    imms: Mapping[str, Any] | None = None,
    *,
    where: str = "trn2",
    nki: str = "0.6",
    engine: Engine = Engine.unknown,
) -> CallView:
    """The call as limits and costs see it."""
    found = {}
    for number, (operand, at) in enumerate(tiles.items()):
        partition = 0 if at.memory.on_chip else None
        address = (at.start, 0) if at.start else None
        buffer = Buffer(number, at.memory, at.shape, at.dtype, address)
        found[operand] = Tile(Access(number, at.dtype, 0, row_major(at.shape), partition), buffer)
    return CallView(row(name), target(where), Release.parse(nki), found, imms or {}, engine)


def judgements(
    name: str, tiles: Mapping[str, At], imms: Mapping[str, Any] | None = None, **how: Any
) -> list[Judgement]:
    """Everything wrong with the call."""
    return list(judge(call_of(name, tiles, imms, **how)))


def judged(
    name: str, tiles: Mapping[str, At], imms: Mapping[str, Any] | None = None, **how: Any
) -> list[str]:
    """The sentences of everything wrong with the call."""
    return [found.text for found in judgements(name, tiles, imms, **how)]


def _tile_breaches(
    name: str,
    operand: str,
    tiles: Mapping[str, At],
    imms: Mapping[str, Any],
    count: int,
    where: str,
    **fields: Any,
) -> list[str]:
    """The sentences of all limits where one operand has so many partitions, and other fields."""
    tile = tiles[operand]
    changed = {**tiles, operand: replace(tile, shape=(count, *tile.shape[1:]), **fields)}
    call = call_of(name, changed, imms, where=where)
    limits = [limit for limit in call.row.limits if limit.applies(call)]
    return [breach.text for limit in limits if (breach := limit.breach(call))]


def assert_tile_limits(
    name: str, tiles: Mapping[str, At], imms: Mapping[str, Any], where: str, native: tuple[str, ...] = ()
) -> None:
    """Rules 1 and 2 at their bound and one beyond for every operand, and 35 for the `native` ones."""
    for operand, tile in tiles.items():
        found = partial(_tile_breaches, name, operand, tiles, imms, where=where)
        assert f"{operand} partition size 129 exceeds 128" in found(129)
        assert not [text for text in found(128) if f"{operand} partition size" in text and "exceeds" in text]
        for count, start, allowed in ((64, 32, "0, 64"), (32, 16, "0, 32, 64, 96")):
            text = (
                f"{operand} starts at partition {start}, a tile of {count} partitions may start at {allowed}"
            )
            assert text in found(count, start=start)
        for count, start in ((64, 64), (32, 96), (1, 32)):
            assert not [text for text in found(count, start=start) if "starts at" in text]
        if operand in native:
            text = f"{operand} dtype float8_e4m3fn needs NeuronCore-v4 or newer, use another dtype"
            assert (text in found(tile.shape[0], dtype="float8_e4m3fn")) is (where != "trn3")
