"""What ranks compute when they meet: the meanings of the rows of nki.collectives.

`Reader.peers` are the readers of all ranks that take part, in the order of their group (of all ranks, where a call
names none), and `Reader.position` is the place of this one. ``Reader.state["rank"]`` holds the number of this rank.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.isa.row import Bits, Reader, Result

OPERATORS = ("add", "minimum", "maximum")
TENSORS = 16
"""Most tensors of one list; no document gives a maximum."""


def _present(reader: Reader, name: str) -> list[int]:
    """The positions of a list at which there is a tensor."""
    return [at for at in range(TENSORS) if reader.has(f"{name}{at}")]


def _raw(peers: Sequence[Reader], src: str, reader: Reader, dst: str) -> list[NDArray[Any]]:
    """The storage of one tensor on every rank; ValueError where a dtype is not that of the destination."""
    needed = reader.dtype(dst)
    for peer in peers:
        if peer.dtype(src) != needed:
            raise ValueError(
                f"{src} is {peer.dtype(src).name} and {dst} {needed.name}: a collective does not convert, "
                "use one dtype"
            )
    return [peer.raw(src) for peer in peers]


_FOLDS: Mapping[str, Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]]] = {
    "add": np.add,
    "minimum": np.minimum,
    "maximum": np.maximum,
}


def _fold(op: Any, terms: Sequence[tuple[Reader, str]]) -> Result:
    """The reduction of tensors in their order: integers exactly, floats in the compute dtype, rounded once.

    Source of floats: a DMA computes in float32 (nki/api/nki/isa/__init__.py:2656-2739).
    """
    function = _FOLDS.get(op)
    if function is None:
        raise ValueError(f"op {op} is no reduction of a collective, expected one of {', '.join(OPERATORS)}")
    kinds = {reader.dtype(name) for reader, name in terms}
    if len(kinds) > 1:
        names = " and ".join(sorted(kind.name for kind in kinds))
        raise ValueError(f"ranks bring {names}: a collective does not convert, use one dtype")
    if kinds.pop().kind in ("int", "uint"):
        return Bits(functools.reduce(function, [reader.raw(name) for reader, name in terms]))
    return functools.reduce(function, [reader.value(name) for reader, name in terms])


def _checked(result: Result, source: Reader, src: str, reader: Reader, dst: str) -> Result:
    """A reduction of integers as bits of the destination; ValueError where dtypes differ."""
    if source.dtype(src) != reader.dtype(dst):
        raise ValueError(
            f"{src} is {source.dtype(src).name} and {dst} {reader.dtype(dst).name}: a collective does not "
            "convert, use one dtype"
        )
    return result


def _piece(result: Result, parts: int, at: int) -> Result:
    """One of equal parts along dim 0."""
    if isinstance(result, Bits):
        return Bits(np.split(result.array, parts, axis=0)[at])
    return np.split(result, parts, axis=0)[at]


def all_reduce(reader: Reader) -> dict[str, Result]:
    """Every rank gets the reduction over all of them."""
    peers, op = reader.peers, reader.imm("op")
    return {
        f"dsts{at}": _checked(
            _fold(op, [(peer, f"srcs{at}") for peer in peers]), reader, f"srcs{at}", reader, f"dsts{at}"
        )
        for at in _present(reader, "dsts")
    }


def all_gather(reader: Reader) -> dict[str, Result]:
    """Every rank gets the tensors of all of them, one after the other."""
    axis = reader.imm("collective_dim")
    return {
        f"dsts{at}": Bits(np.concatenate(_raw(reader.peers, f"srcs{at}", reader, f"dsts{at}"), axis=axis))
        for at in _present(reader, "dsts")
    }


def reduce_scatter(reader: Reader) -> dict[str, Result]:
    """Every rank gets its part of the reduction."""
    peers, op = reader.peers, reader.imm("op")
    found = {}
    for at in _present(reader, "dsts"):
        total = _fold(op, [(peer, f"srcs{at}") for peer in peers])
        total = _checked(total, reader, f"srcs{at}", reader, f"dsts{at}")
        found[f"dsts{at}"] = _piece(total, len(peers), reader.position)
    return found


def all_to_all(reader: Reader) -> dict[str, Result]:
    """Every rank gets its part of each one's tensor."""
    count = len(reader.peers)
    return {
        f"dsts{at}": Bits(
            np.concatenate(
                [
                    np.split(raw, count, axis=0)[reader.position]
                    for raw in _raw(reader.peers, f"srcs{at}", reader, f"dsts{at}")
                ]
            )
        )
        for at in _present(reader, "dsts")
    }


def _sends(reader: Reader) -> NDArray[np.int64]:
    """Rows send counts and send displacements of a metadata tensor."""
    return reader.raw("metadata_tensor").reshape(2, -1).astype(np.int64)


def _places(reader: Reader, counts: Sequence[int]) -> list[tuple[int, int]]:
    """Where the chunk of each rank begins and ends in the destination; ValueError where it does not fit."""
    size = math.prod(reader.shape("dsts0"))
    slot = size // len(counts)
    begins = [slot * at for at in range(len(counts))]
    ends = [begin + slot for begin in begins]
    if reader.imm("has_rdispls"):
        begins = reader.raw("recv_displs").reshape(-1).astype(np.int64).tolist()
        ends = [size] * len(counts)
    for at, (count, begin, end) in enumerate(zip(counts, begins, ends, strict=True)):
        if begin + count > end:
            raise ValueError(
                f"{count} elements from position {at} of the group do not fit dsts0 [{begin}, {end}), where they go"
            )
    return [(begin, begin + count) for begin, count in zip(begins, counts, strict=True)]


Chunks = Callable[[Reader], list[tuple[int, int]]]
"""What each rank sends to this one: number of elements, and where they begin in its source."""


def _broadcast(reader: Reader) -> list[tuple[int, int]]:
    return [(int(sent[0, 0]), int(sent[1, 0])) for sent in map(_sends, reader.peers)]


def _addressed(reader: Reader) -> list[tuple[int, int]]:
    mine = reader.position
    return [(int(sent[0, mine]), int(sent[1, mine])) for sent in map(_sends, reader.peers)]


def _received(reader: Reader, chunks: Sequence[tuple[int, int]]) -> dict[str, Result]:
    """The destination with one chunk from every rank, and the received counts."""
    raws = _raw(reader.peers, "srcs0", reader, "dsts0")
    held = reader.raw("dsts0").copy()
    flat = held.reshape(-1)
    places = _places(reader, [count for count, _ in chunks])
    for at, (raw, (count, first), (begin, end)) in enumerate(zip(raws, chunks, places, strict=True)):
        if first + count > raw.size:
            raise ValueError(
                f"position {at} of the group sends elements [{first}, {first + count}) of srcs0, which has {raw.size}"
            )
        flat[begin:end] = raw.reshape(-1)[first : first + count]
    found: dict[str, Result] = {"dsts0": Bits(held)}
    if reader.has("recv_counts"):
        found["recv_counts"] = Bits(np.array([count for count, _ in chunks], np.uint32))
    return found


def all_gather_v(reader: Reader) -> dict[str, Result]:
    """Every rank gets the one chunk of each."""
    return _received(reader, _broadcast(reader))


def all_to_all_v(reader: Reader) -> dict[str, Result]:
    """Every rank gets the chunk that each sends to it."""
    return _received(reader, _addressed(reader))


def permute(reader: Reader) -> dict[str, Result]:
    """The target of a pair gets the tensor of its source; a rank that is no target keeps what it has."""
    sources = [source for source, target in reader.imm("source_target_pairs") if target == reader.position]
    if not sources:
        return {}
    if sources[-1] >= len(reader.peers):
        raise ValueError(
            f"source_target_pairs name rank {sources[-1]}, but only ranks 0 to {len(reader.peers) - 1} run"
        )
    (raw,) = _raw([reader.peers[sources[-1]]], "srcs0", reader, "dsts0")
    return {"dsts0": Bits(raw)}


def _predecessor(reader: Reader) -> Reader:
    return reader.peers[(reader.position - 1) % len(reader.peers)]


def permute_implicit(reader: Reader) -> dict[str, Result]:
    """Every rank gets the tensors of its predecessor in the ring."""
    before = _predecessor(reader)
    return {
        f"dsts{at}": Bits(_raw([before], f"srcs{at}", reader, f"dsts{at}")[0])
        for at in _present(reader, "dsts")
    }


def permute_implicit_reduce(reader: Reader) -> dict[str, Result]:
    """Every rank gets what its predecessor in the ring has reduced."""
    before, op = _predecessor(reader), reader.imm("op")
    found = {}
    for at in _present(reader, "dsts"):
        result = _fold(op, [(before, f"srcs0_{at}"), (before, f"srcs1_{at}")])
        found[f"dsts{at}"] = _checked(result, before, f"srcs0_{at}", reader, f"dsts{at}")
    return found


def _rank(reader: Reader) -> int:
    held = reader.state.get("rank")
    return 0 if held is None else int(held[0])


def rank_id(reader: Reader) -> dict[str, Result]:
    """The number of this rank."""
    return {"dst": np.array(_rank(reader), np.int64)}


def processing_rank_id(reader: Reader) -> dict[str, Result]:
    """The rank whose data has come around the ring after so many steps."""
    rank = _rank(reader)
    group = next((group for group in reader.imm("replica_group") if rank in group), None)
    if group is None:
        raise ValueError(f"rank {rank} is in no list of the replica group")
    return {
        "dst": np.array(group[(group.index(rank) - int(reader.imm("iteration_id"))) % len(group)], np.int64)
    }
