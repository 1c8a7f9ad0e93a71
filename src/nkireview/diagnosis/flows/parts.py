"""Inputs, and parts of inputs, that do not reach the output: the reference is given them without."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from nkireview.checks.provenance import provenance
from nkireview.diagnosis.flows.acting import Array
from nkireview.diagnosis.flows.arguments import axis_name
from nkireview.diagnosis.flows.explaining import Case, Explanation
from nkireview.execute import execute
from nkireview.isa import dtypes
from nkireview.isa.row import Row

TRIES = 64
"""Calls of the reference for one kernel, unless the caller says so."""
TILES = (128, 512)
"""Tile sizes that are tried besides those of the program."""
MIDDLE = 8
"""Tiles of an axis up to which each of them is left out in turn."""
ASKED = 4
"""Inputs that are asked column by column, and columns of one, in times of its rows."""
CAUSE = "input-part-unused"
Mask = NDArray[np.bool_]


def unused(case: Case, rows: Mapping[str, Row], tries: int = TRIES) -> Iterator[Explanation]:
    """What the kernel leaves out: what it never reads first, then whole inputs, then tiles at the ends and between."""
    for changed, sentence in islice(_experiments(case, rows), tries):
        if case.explains(changed):
            yield Explanation(CAUSE, sentence)
            return


def _experiments(case: Case, rows: Mapping[str, Row]) -> Iterator[tuple[Mapping[int, Array], str]]:
    unread = _unread(case, rows)
    for value in (0.0, -np.inf, 1.0):
        changed = {
            at: filled
            for at, mask in unread.items()
            if (filled := _filled(case.inputs[at], mask, value)) is not None
        }
        if changed:
            parts = " and ".join(_named(case, at, unread[at]) for at in changed)
            one = len(changed) == 1 and parts.startswith("input ")
            yield (
                changed,
                _sentence(parts, value, "does not reach the output" if one else "do not reach the output"),
            )
    unfelt = dict(_unfelt(case))
    for value in (0.0, 1.0, -np.inf) if unfelt else ():
        changed = {
            at: filled
            for at, mask in unfelt.items()
            if (filled := _filled(case.inputs[at], mask, value)) is not None
        }
        if changed:
            parts = " and ".join(_columns(case, at, unfelt[at]) for at in changed)
            yield changed, _sentence(parts, value, "do not reach the output")
    for at, held in enumerate(case.inputs):
        for value in (0.0, 1.0):
            filled = _filled(held, np.ones(held.shape, np.bool_), value)
            if filled is not None:
                yield {at: filled}, _sentence(f"input {case.paths[at]}", value, "does not reach the output")
    for value in (0.0, -np.inf):
        for at, axis, first, last in _tiles(case):
            held = case.inputs[at]
            mask = np.zeros(held.shape, np.bool_)
            mask[(slice(None),) * axis + (slice(first, last),)] = True
            filled = _filled(held, mask, value)
            if filled is not None:
                part = _part(case, at, axis, first, last)
                yield {at: filled}, _sentence(part, value, "do not reach the output")


def _unfelt(case: Case) -> Iterator[tuple[int, Mask]]:
    """The columns of an input, not all, that do not change the kernel's rows: each row is asked about another one.

    Only where a row of the output is made of the same row of the input, and of few inputs and columns.
    """
    for at, held in enumerate(case.inputs[:ASKED]):
        kind = dtypes.of(held.dtype)
        rows = len(held) if held.ndim == 2 else 0
        same = all(each.ndim and len(each) == rows for each in case.base)
        if kind.kind != "float" or not rows or not same or held.shape[1] > ASKED * rows:
            continue
        felt = np.zeros(held.shape[1], np.bool_)
        spread = float(np.abs(held.astype(np.float64)).max()) or 1.0
        # a change that rounds to none says nothing: asked twice
        for factor, offset in ((-2.0, spread), (0.5, -spread)):
            for first in range(0, held.shape[1], rows):
                count = min(rows, held.shape[1] - first)
                chosen = np.arange(count)
                changed = held.copy()
                moved = held[chosen, first + chosen].astype(np.float64) * factor + offset
                changed[chosen, first + chosen] = moved.astype(held.dtype)
                for mine, other in zip(case.base, _run(case, at, changed), strict=True):
                    felt[first : first + count] |= np.any((mine != other).reshape(rows, -1), axis=1)[:count]
            if felt.all():
                break
        if 0 < np.count_nonzero(~felt) <= held.shape[1] // 2:
            yield at, np.broadcast_to(~felt, held.shape)


def _run(case: Case, at: int, changed: Array) -> list[Array]:
    """The kernel's unrounded outputs with one input changed."""
    given = dict(zip(case.buffers, case.inputs, strict=True))
    given[case.buffers[at]] = changed
    found = execute(case.program, given, compute=np.float64, rounding="off")
    return [np.asarray(output.values, np.float64) for output in found.outputs]


def _columns(case: Case, at: int, mask: Mask) -> str:
    where = np.flatnonzero(mask[0]).tolist()
    if len(where) > 1 and where[-1] - where[0] == len(where) - 1:
        return f"columns {where[0]} to {where[-1]} of {case.paths[at]}"
    shown = ", ".join(map(str, where[:6])) + (f" and {len(where) - 6} more" if len(where) > 6 else "")
    return f"column{'s' * (len(where) > 1)} {shown} of {case.paths[at]}"


def _sentence(part: str, value: float, verb: str) -> str:
    given = {0.0: "zeros", 1.0: "ones"}.get(value, "minus infinity")
    return f"{part} {verb}: with {given} there the reference gives what the kernel gives"


def _unread(case: Case, rows: Mapping[str, Row]) -> dict[int, Mask]:
    """The elements of each input that no instruction reads on the way to an output, where some are read."""
    found = provenance(case.program, rows)
    masks = {}
    for at, path in enumerate(case.paths):
        read = np.zeros(case.inputs[at].shape, np.bool_)
        for output in range(len(case.base)):
            read |= found.coverage(path, output)
        if not read.all():
            masks[at] = ~read
    return masks


def _filled(held: Array, mask: Mask, value: float) -> Array | None:
    """An array with a number in some places; None where that changes nothing, or its dtype has no such number."""
    kind = dtypes.of(held.dtype)
    if kind.kind not in ("float", "int", "uint", "bool"):
        return None
    if np.isinf(value) and (kind.kind != "float" or not kind.has_inf):
        return None
    changed = held.copy()
    changed[mask] = np.asarray(value).astype(held.dtype)
    return None if changed.tobytes() == held.tobytes() else changed


def _named(case: Case, at: int, mask: Mask) -> str:
    """The elements of a mask in words: along one axis where they are all of a run of it."""
    path, shape = case.paths[at], mask.shape
    if mask.all():
        return f"input {path}"
    for axis in range(mask.ndim):
        others = tuple(each for each in range(mask.ndim) if each != axis)
        line = mask.any(axis=others)
        where = np.flatnonzero(line)
        first, last = int(where[0]), int(where[-1]) + 1
        if len(where) == last - first and mask[(slice(None),) * axis + (slice(first, last),)].all():
            return _part(case, at, axis, first, last)
    return f"{int(mask.sum())} of the {int(np.prod(shape))} elements of {path}"


def _part(case: Case, at: int, axis: int, first: int, last: int) -> str:
    what = axis_name(case.inputs[at].ndim, axis)
    return f"{what} {first} to {last - 1} of {case.paths[at]}"


def _tiles(case: Case) -> list[tuple[int, int, int, int]]:
    """Runs along an axis of an input, the likeliest first: the last tile, the first, the tail, all but one, any other.

    As (input, axis, first, last), no two alike.
    """
    ranked: dict[tuple[int, int, int, int], int] = {}
    for at, held in enumerate(case.inputs):
        for axis, size in enumerate(held.shape):
            for tile in _sizes(case, at, size):
                tail = size - size % tile
                runs = [
                    (0, size - tile, size),
                    (0, tail, size),
                    (1, 0, tile),
                    (2, tile, size),
                    (2, 0, size - tile),
                    (2, 0, tail),
                ]
                if -(-size // tile) <= MIDDLE:
                    runs += [(3, first, min(first + tile, size)) for first in range(0, size, tile)]
                for rank, first, last in runs:
                    if 0 < last - first < size:
                        key = (at, axis, first, last)
                        ranked[key] = min(rank, ranked.get(key, rank))
    return sorted(ranked, key=lambda key: (ranked[key], key))


def _sizes(case: Case, at: int, size: int) -> list[int]:
    """Tile sizes that may divide an axis of that size: those of the program's accesses, and usual ones."""
    columns, buffer = case.program.columns, case.buffers[at]
    found = {*TILES, size // 4}
    for access in np.flatnonzero(columns.access_buffer == buffer).tolist():
        found.update(columns.axis_count[columns.axis_at[access] : columns.axis_at[access + 1]].tolist())
    return sorted(each for each in found if 1 < each < size)
