"""The derived tolerance against the worst of all orders of addition: below it in none, and within a factor of 4.

`NUMBERS_SEEDS=100` in the environment draws that many inputs for each case, which takes half an hour; otherwise a few.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).resolve().parent / "numbers"))

from kit import FILES, Array, arguments, load, traced

from nkireview.diagnosis.orders import Order, Ordered
from nkireview.diagnosis.tolerance import Derivation
from nkireview.execute import execute

SEEDS = int(os.environ.get("NUMBERS_SEEDS", "0"))
DTYPES = ("float32", "bfloat16")
DEPTHS = {64: 6, 256: 6, 1024: 4, 4096: 3, 16384: 3}
"""Depths of products, and inputs that are drawn of each where nothing is said."""
NORMS = {
    "softmax": ((128, 512), (64, 1024)),
    "layer_norm": ((128, 512), (64, 1024)),
    "attention": ((64, 256), (128, 512)),
}
CASES = tuple(
    (name, shape, dtype, seeds)
    for name, shape, seeds in (
        *(("matmul", (depth, 16, 32), seeds) for depth, seeds in DEPTHS.items()),
        *((name, shape, 2) for name, shapes in NORMS.items() for shape in shapes),
    )
    for dtype in DTYPES
)


def uses(name: str, shape: tuple[int, ...], dtype: str, seeds: int) -> dict[str, list[float]]:
    """By order the largest share of the tolerance that each draw of inputs uses."""
    pair = load(FILES[0].parent.parent / "honest" / f"{name}.py")
    program = traced(pair, "honest", shape, dtype)
    derivation = Derivation.of_program(program)
    found: dict[str, list[float]] = {}
    for seed in range(seeds):
        arrays = pair.inputs(shape, dtype, seed)
        given = arguments(program, arrays)
        (wanted,) = pair.reference(arrays)
        (tolerance,) = derivation.tolerances(given)
        for order in (None, *Order):
            around = None if order is None else Ordered(derivation.kinds, derivation.of, order, seed)
            got: Array = execute(program, given, around=around).outputs[0].values.astype(np.float64)
            use = float(np.max(np.abs(got - wanted) / tolerance.allowed))
            found.setdefault("NumPy's own" if order is None else order.value, []).append(use)
    return found


@pytest.mark.parametrize(("name", "shape", "dtype", "seeds"), CASES, ids=lambda each: str(each))
def test_every_order_is_within_the_tolerance_and_the_worst_uses_a_quarter(
    name: str, shape: tuple[int, ...], dtype: str, seeds: int
) -> None:
    found = uses(name, shape, dtype, SEEDS or seeds)
    worst = {order: max(each) for order, each in found.items()}
    print(name, shape, dtype, {order: round(use, 3) for order, use in worst.items()})
    assert max(worst.values()) <= 1, worst
    assert max(worst.values()) >= 0.25, worst
