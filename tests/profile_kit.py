"""Timelines for the tests of profiles, made by hand or drawn."""

from __future__ import annotations

import numpy as np

from nkireview.slices import LaneName, SliceTable

WAITS = (
    "nothing",
    "its turn in the queue",
    "data",
    "its destination to be free",
    "an earlier write",
    "DMA engines",
    "HBM bandwidth",
    "an explicit dependency",
    "the other core",
)
ENGINES = ("tensor", "vector", "scalar", "gpsimd", "sync")


def table(
    rows: list[tuple[str, float, float, str, str]],
    cores: int = 1,
    blockers: dict[int, tuple[int, int]] | None = None,
    instructions: list[int] | None = None,
) -> SliceTable:
    """A table of (lane, start, stop, name, place); a lane such as ``vector1`` is one of core 1.

    blockers: slice -> (the slice it waits for, code of the wait).
    """
    lanes = tuple(LaneName(core, name) for core in range(cores) for name in (*ENGINES, "dma"))
    names = tuple(dict.fromkeys(name for *_, name, _ in rows if name))
    places = tuple(dict.fromkeys(place for *_, place in rows if place))
    texts = tuple(f"dst=sbuf float32[128,{at + 1}] of {name}" for at, name in enumerate(names))
    length = len(rows)
    wait, blocker = np.zeros(length, np.int8), np.full(length, -1, np.int32)
    for at, (other, code) in (blockers or {}).items():
        blocker[at], wait[at] = other, code

    def lane_of(text: str) -> int:
        core = int(text[-1]) if text[-1].isdigit() else 0
        return lanes.index(LaneName(core, text.rstrip("01")))

    number = {name: at for at, name in enumerate(names)}
    where = {place: at for at, place in enumerate(places)}
    named = np.array([number.get(name, -1) for *_, name, _ in rows], np.int32)
    return SliceTable(
        lanes=lanes,
        lane=np.array([lane_of(row[0]) for row in rows], np.int8),
        start=np.array([row[1] for row in rows], np.float64),
        stop=np.array([row[2] for row in rows], np.float64),
        ready=np.array([row[2] + 10 for row in rows], np.float64),
        wait=wait,
        blocker=blocker,
        instruction=np.array(range(length) if instructions is None else instructions, np.int32),
        name=named,
        names=names,
        place=np.array([where.get(row[4], -1) for row in rows], np.int32),
        places=places,
        operands=named.copy(),
        operand_texts=texts,
        bytes=np.array([4096 * (at + 1) for at in range(length)], np.int64),
        flops=np.array([2 * 128 * 128 * 512 if "nc_" in row[3] else 0 for row in rows], np.int64),
        waits=WAITS,
    )


def drawn(count: int, seed: int = 0, cores: int = 1) -> SliceTable:
    """A table of `count` slices as a long loop has them: loads, matmuls, work on three engines, stores."""
    random = np.random.default_rng(seed)
    kinds = [
        ("sync", "dma_copy", 12),
        ("dma", "dma_copy", 12),
        ("tensor", "nc_matmul", 17),
        ("vector", "tensor_tensor", 19),
        ("scalar", "activation", 20),
        ("tensor", "nc_transpose", 22),
        ("gpsimd", "iota", 25),
        ("sync", "dma_copy", 30),
        ("dma", "dma_copy", 30),
    ]
    lanes = tuple(LaneName(core, name) for core in range(cores) for name in (*ENGINES, "dma"))
    names = tuple(dict.fromkeys(kind[1] for kind in kinds))
    places = tuple(dict.fromkeys(f"kernel.py:{kind[2]}" for kind in kinds))
    turn = np.arange(count) % len(kinds)
    core = np.arange(count) // len(kinds) % cores
    per_lane = np.array([(*ENGINES, "dma").index(kind[0]) for kind in kinds])
    lane = per_lane[turn] + core * 6
    length = random.uniform(20, 400, count)
    length[per_lane[turn] == 5] *= 8
    start, stop = np.zeros(count), np.zeros(count)
    blocker, wait = np.full(count, -1, np.int32), np.zeros(count, np.int8)
    free = [0.0] * len(lanes)
    last = [(-1, 0.0)] * cores
    for at in range(count):
        where, own = int(lane[at]), int(core[at])
        moves = per_lane[turn[at]] == 5
        need, needed = last[own] if turn[at] else (-1, 0.0)
        begin = needed if moves else max(free[where], needed)
        start[at], stop[at] = begin, begin + length[at]
        if need >= 0:
            blocker[at], wait[at] = need, 2
        if not moves:
            free[where] = stop[at]
        last[own] = (at, stop[at])
    named = np.array([names.index(kind[1]) for kind in kinds], np.int32)[turn]
    place = np.array([places.index(f"kernel.py:{kind[2]}") for kind in kinds], np.int32)[turn]
    return SliceTable(
        lanes=lanes,
        lane=lane.astype(np.int8),
        start=start,
        stop=stop,
        ready=stop + 60,
        wait=wait,
        blocker=blocker,
        instruction=np.where(np.isin(turn, (1, 8)), np.arange(count) - 1, np.arange(count)).astype(np.int32),
        name=named,
        names=names,
        place=place,
        places=places,
        operands=turn.astype(np.int32),
        operand_texts=tuple(
            f"dst=sbuf float32[128,512] data=psum float32[128,512] of {kind[1]} at {kind[2]}"
            for kind in kinds
        ),
        bytes=np.where(per_lane[turn] == 5, 128 * 2048, 128 * 4096).astype(np.int64),
        flops=np.where(per_lane[turn] == 0, 2 * 128 * 128 * 512, 0).astype(np.int64),
        waits=WAITS,
    )
