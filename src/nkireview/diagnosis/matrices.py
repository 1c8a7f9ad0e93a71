"""The operands of a matmul as two matrices, the contraction first."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nkireview.execute import Core, Operands, Step

Float32 = NDArray[np.float32]


def matrices(step: Step, core: Core, operands: Operands, size: int) -> tuple[Float32, Float32] | None:
    """Stationary [K, M] and moving [K, N] in float32, M N the `size` of the result; None where there are no such."""
    stationary, moving = operands[step.slots["stationary"]], operands[step.slots["moving"]]
    if stationary is None or moving is None:
        return None
    sides = [np.asarray(side.load(core.formats), np.float32) for side in (stationary, moving)]
    # double_row: the first free dimension holds the second half of the contraction
    for terms in (len(sides[0]), 2 * len(sides[0])):
        if any(side.size % terms for side in sides):
            continue
        left, right = (side.reshape(terms, -1) for side in sides)
        if left.shape[1] * right.shape[1] == size:
            return left, right
    return None
