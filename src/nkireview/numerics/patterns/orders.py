"""Rows or columns of the reference found in another place of the output."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from nkireview.numerics.arrays import Array, Float64, float64
from nkireview.numerics.patterns.mismatch import Ints, Mask, Mismatch, spread
from nkireview.numerics.patterns.names import Name, Pattern
from nkireview.numerics.patterns.trial import EXPLAINED, OFTEN, SELDOM, unlikely
from nkireview.numerics.patterns.words import listed, of_wrong

# Elements of a line that it is recognised by, and that its match is then verified on.
FEATURES = 32
VERIFIED = 256
# Wrong lines looked at first, fewer where there are very many, and pairs of lines that are compared at most.
GLANCE = 32
FEW = 8
PAIRS = 1 << 19
# Orders in which a dimension is commonly split by mistake.
SPLITS = (128, 512, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64, 256)


@dataclass(frozen=True)
class _Lines:
    """The mismatch as lines to be found elsewhere: rows as they are, columns transposed."""

    word: str
    got: Array
    ref: Array
    allowed: Array
    wrong: Mask

    @property
    def count(self) -> int:
        return int(self.wrong.shape[0])


def permuted(found: Mismatch) -> Pattern | None:
    """Rows, or else columns, that hold other rows or columns of the reference."""
    if found.rows < 2 or found.columns < 2:
        return None
    shape = found.rows, found.columns
    got, ref, allowed = (array.reshape(shape) for array in (found.got, found.ref, found.allowed))
    wrong = found.wrong.reshape(shape)
    rows, columns = (
        _Lines("rows", got, ref, allowed, wrong),
        _Lines("columns", got.T, ref.T, allowed.T, wrong.T),
    )
    by_row = _permuted(found, rows, Name.ROWS_PERMUTED)
    return by_row or _permuted(found, columns, Name.COLUMNS_PERMUTED)


def _permuted(found: Mismatch, lines: _Lines, name: Name) -> Pattern | None:
    wrong_lines = np.flatnonzero(lines.wrong.any(axis=1))
    across = spread(np.flatnonzero(lines.wrong.any(axis=0)), VERIFIED)
    features = spread(across, FEATURES)
    candidates = _tame(float64(lines.ref[:, features]))
    glance = max(FEW, min(GLANCE, 4 * PAIRS // lines.count))
    for count in (glance, max(glance, PAIRS // lines.count)):
        picked = spread(wrong_lines, count)
        source = _nearest(_tame(float64(lines.got[np.ix_(picked, features)])), candidates)
        verified = _verified(lines, picked, source, across)
        if verified is None:
            return None
        share = verified
    return _written(found, lines, name, picked, source, share)


def _tame(values: Float64) -> Float64:
    return np.where(np.abs(values) < 1e100, values, 0.0)


def _nearest(lines: Float64, candidates: Float64) -> Ints:
    """For each line the candidate with the smallest squared distance."""
    powers = np.einsum("ij,ij->i", candidates, candidates)
    return np.asarray(np.argmin(powers - 2 * (lines @ candidates.T), axis=1), dtype=np.intp)


def _verified(lines: _Lines, picked: Ints, source: Ints, across: Ints) -> float | None:
    """The share of the wrong elements of the picked lines that their sources explain; None by chance.

    Chance is measured on lines that are not the sources: by element, and by how many whole lines fit.
    """
    wrong = lines.wrong[np.ix_(picked, across)]
    right_place = _fits(lines, picked, source, across)
    share = float(np.mean(right_place[wrong]))
    if share < EXPLAINED:
        return None
    away = np.random.default_rng(1).integers(1, lines.count, picked.size)
    elsewhere = _fits(lines, picked, (source + away) % lines.count, across)
    hits, each = np.count_nonzero(elsewhere & wrong, axis=1), np.count_nonzero(wrong, axis=1)
    chance = (int(hits.sum()) + 1) / (int(each.sum()) + 2)
    by_line = float(np.mean(hits >= EXPLAINED * each))
    if (
        chance > OFTEN
        or by_line > SELDOM
        or not unlikely(max(chance, SELDOM), float(each.mean()), lines.count)
    ):
        return None
    return share


def _fits(lines: _Lines, picked: Ints, source: Ints, across: Ints) -> Mask:
    here, there = np.ix_(picked, across), np.ix_(source, across)
    error = np.abs(float64(lines.got[here]) - float64(lines.ref[there]))
    return np.asarray(error <= float64(lines.allowed[there]), dtype=np.bool_)


def _written(found: Mismatch, lines: _Lines, name: Name, picked: Ints, source: Ints, share: float) -> Pattern:
    word = lines.word
    whole = picked.size == np.count_nonzero(lines.wrong.any(axis=1))
    order, block, told = _order(lines.count, picked, source, word, whole)
    verb = "lies" if found.count == 1 else "lie"
    examples = ", ".join(f"{line} holds {held}" for line, held in list(zip(picked, source, strict=True))[:3])
    return Pattern(
        name,
        f"{of_wrong(found, share)} {verb} in {word} that hold other {word} of the reference: {told} ({examples})",
        share,
        {
            "order": order,
            "block": block,
            "lines": int(picked.size),
            "first": f"{picked[0]} holds {source[0]}",
        },
    )


def _order(count: int, picked: Ints, source: Ints, word: str, whole: bool) -> tuple[str, int, str]:
    """What order the sources are in: its name, the length of a block, and words for both."""
    one = word.removesuffix("s")
    if picked.size > 1 and np.all(source == source[0]):
        return "repeated", 1, f"all of them hold {one} {source[0]}"
    if np.all(source == count - 1 - picked):
        return "reversed", 1, "in reversed order"
    for parts in dict.fromkeys([*SPLITS, *(count // split for split in SPLITS)]):
        if 1 < parts < count and count % parts == 0:
            if np.all(source == picked % parts * (count // parts) + picked // parts):
                told = f"{count} {word} split as {count // parts} x {parts} and read as {parts} x {count // parts}"
                return "interleaved", parts, told
    block = _block(picked, source, whole)
    if block > 1:
        told = f"blocks of {block} {word} are exchanged, number {listed(np.unique(picked // block))}"
        return "blocks", block, told
    return "mixed", 1, "in an order without a name"


def _block(picked: Ints, source: Ints, whole: bool) -> int:
    """Lines that moved together; ``whole`` where all wrong lines were found and not a sample of them."""
    step = source - picked
    block = math.gcd(*(int(away) for away in np.unique(step)))
    if not whole:
        return block
    ends = np.flatnonzero((np.diff(picked) != 1) | (np.diff(step) != 0)) + 1
    runs = np.diff(np.concatenate(([0], ends, [picked.size])))
    return math.gcd(block, *(int(run) for run in np.unique(runs)))
