"""Names of the factors that kernels get wrong: powers of two, roots of a dimension, N/(N-1), ln 2."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

# A factor stored in bfloat16 is this far from itself.
STORED = 2.0**-9
# Nearer than this to 1 a factor is only named where it is known exactly enough.
NEAR_ONE = 4 * STORED

# A factor known no better than this is not given a name further away.
VAGUE = 2.0**-7

_CONSTANTS = {
    "3": 3.0,
    "1/3": 1 / 3,
    "10": 10.0,
    "0.1": 0.1,
    "ln 2": math.log(2),
    "1/ln 2": 1 / math.log(2),
    "ln 10": math.log(10),
    "1/ln 10": 1 / math.log(10),
    "pi": math.pi,
    "1/pi": 1 / math.pi,
    "2 pi": 2 * math.pi,
    "1/(2 pi)": 1 / (2 * math.pi),
    "sqrt(2/pi)": math.sqrt(2 / math.pi),
    "sqrt(pi/2)": math.sqrt(math.pi / 2),
    "e": math.e,
    "1/e": 1 / math.e,
    "127": 127.0,
    "1/127": 1 / 127,
    "240": 240.0,
    "1/240": 1 / 240,
    "448": 448.0,
    "1/448": 1 / 448,
    "448/240": 448 / 240,
    "240/448": 240 / 448,
}


def name(factor: float, error: float, shape: Sequence[int]) -> str | None:
    """The name of ``factor``, known to a relative ``error``, on an output of ``shape``; None without one.

    Of several that fit the nearest is taken, and the simplest of those that are equally near.
    """
    near = min(4 * error + 1e-7, VAGUE)
    wide = max(near, STORED) if abs(abs(factor) - 1) > NEAR_ONE else near
    best: tuple[float, str] | None = None
    for text, value in _candidates(shape):
        off = abs(abs(factor) / value - 1)
        if off <= wide and (best is None or max(off, near) < max(best[0], near)):
            best = off, text
    if best is None:
        return None
    return f"-{best[1]}" if factor < 0 else best[1]


def _candidates(shape: Sequence[int]) -> Iterator[tuple[str, float]]:
    """Names and values, the simplest first."""
    for power in range(1, 17):
        yield f"{2**power}", 2.0**power
        yield f"1/{2**power}", 2.0**-power
    yield from _CONSTANTS.items()
    dimensions = sorted({size for size in shape if size > 1})
    for size in dimensions:
        yield f"{size}", size
        yield f"1/{size}", 1 / size
    for size in [*dimensions, *(2**power for power in range(1, 17))]:
        yield f"sqrt({size})", math.sqrt(size)
        yield f"1/sqrt({size})", 1 / math.sqrt(size)
    for size in [*dimensions, *(2**power for power in range(2, 17))]:
        yield f"{size}/({size}-1)", size / (size - 1)
        yield f"({size}-1)/{size}", (size - 1) / size
        yield f"sqrt({size}/({size}-1))", math.sqrt(size / (size - 1))
        yield f"sqrt(({size}-1)/{size})", math.sqrt((size - 1) / size)
