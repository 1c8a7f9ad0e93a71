"""Random chains of elementwise instructions, with their NumPy float64 results written alongside."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from execute_kit import Kernel
from hypothesis import strategies as st
from numpy.typing import NDArray

from nkireview.isa import dtypes

Float64 = NDArray[np.float64]

ROWS, COLUMNS = 16, 32
WORST = 8.0
"""Times that operands of differences may be larger than these: beyond it digits cancel, which is another matter."""
OPERATORS: dict[str, Any] = {
    "multiply": np.multiply,
    "add": np.add,
    "subtract": np.subtract,
    "maximum": np.maximum,
    "minimum": np.minimum,
}
FUNCTIONS: dict[str, Any] = {
    "exp": np.exp,
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "square": np.square,
    "relu": lambda x: np.maximum(x, 0),
    "copy": lambda x: x,
}
KINDS = ("scalar", "scalars", "tensor", "scalar_tensor", "function")


@dataclass(frozen=True)
class Link:
    """One instruction: its kind, operators, numbers, which earlier tiles it reads, and the dtype that it stores."""

    kind: str
    operators: tuple[str, ...]
    numbers: tuple[float, ...]
    reverse: bool
    sources: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Chain:
    """Links on a tile of normal numbers of that dtype."""

    dtype: str
    seed: int
    links: tuple[Link, ...]

    @property
    def numbered(self) -> list[tuple[int, int]]:
        """Link and position of every number."""
        return [(at, place) for at, link in enumerate(self.links) for place in range(len(link.numbers))]


@st.composite
def chains(draw: Any) -> Chain:
    """One to six links; bf16 tiles only where argument and result are bf16."""
    dtype = draw(st.sampled_from(["float32", "bfloat16"]))
    stored = ["float32"] if dtype == "float32" else ["float32", "bfloat16"]
    links = tuple(draw(_link(at, stored)) for at in range(draw(st.integers(1, 6))))
    links = (*links[:-1], replace(links[-1], dtype=dtype))
    return Chain(dtype, draw(st.integers(0, 1 << 20)), links)


@st.composite
def _link(draw: Any, earlier: int, stored: list[str]) -> Link:
    kind = draw(st.sampled_from(KINDS))
    number = st.floats(0.05, 4).map(lambda value: round(value, 3))
    signed = st.tuples(number, st.sampled_from([1, -1])).map(lambda pair: pair[0] * pair[1])
    operators, numbers = {
        "scalar": (1, 1),
        "scalars": (2, 2),
        "tensor": (1, 0),
        "scalar_tensor": (2, 1),
        "function": (1, 1),
    }[kind]
    names = list(FUNCTIONS if kind == "function" else OPERATORS)
    return Link(
        kind,
        tuple(draw(st.sampled_from(names)) for _ in range(operators)),
        tuple(draw(signed) for _ in range(numbers)),
        kind in ("scalar", "scalars") and draw(st.booleans()),
        tuple(draw(st.integers(0, earlier)) for _ in range(2 if "tensor" in kind else 1)),
        draw(st.sampled_from(stored)),
    )


def moved(chain: Chain, number: tuple[int, int], factor: float = 1.01) -> Chain:
    """The chain with one of its numbers multiplied."""
    at, place = number
    link = chain.links[at]
    numbers = tuple(each * factor if i == place else each for i, each in enumerate(link.numbers))
    return replace(chain, links=(*chain.links[:at], replace(link, numbers=numbers), *chain.links[at + 1 :]))


@dataclass
class _Value:
    """A float64 result, and how much larger its relative error may be than those it was made of."""

    exact: Float64
    worst: float = 1.0


def built(chain: Chain) -> tuple[Kernel, Float64, bool]:
    """The kernel, its result in float64, and whether that is well conditioned and in range."""
    drawn = np.random.default_rng(chain.seed).standard_normal((ROWS, COLUMNS))
    values = drawn.astype(dtypes.BY_NAME[chain.dtype].storage)
    kernel = Kernel()
    tiles, found = [kernel.load(values)], [_Value(values.astype(np.float64))]
    fine = True
    for link in chain.links:
        tile = kernel.sbuf(ROWS, COLUMNS, dtype=link.dtype)
        source, first = tiles[link.sources[0]], found[link.sources[0]]
        numbers = [_Value(np.full((ROWS, COLUMNS), number)) for number in link.numbers]
        with np.errstate(over="ignore", invalid="ignore"):
            if link.kind in ("scalar", "scalars"):
                given: dict[str, Any] = {"op0": link.operators[0], "operand0": link.numbers[0]}
                pair = (numbers[0], first) if link.reverse else (first, numbers[0])
                result = _combined(link.operators[0], *pair)
                if link.kind == "scalars":
                    given |= {"op1": link.operators[1], "operand1": link.numbers[1]}
                    result = _combined(link.operators[1], result, numbers[1])
                kernel.call("tensor_scalar", dst=tile, data=source, reverse0=link.reverse, **given)
            elif link.kind == "tensor":
                other = tiles[link.sources[1]]
                result = _combined(link.operators[0], first, found[link.sources[1]])
                kernel.call("tensor_tensor", dst=tile, data1=source, data2=other, op=link.operators[0])
            elif link.kind == "scalar_tensor":
                other = tiles[link.sources[1]]
                result = _combined(link.operators[0], first, numbers[0])
                result = _combined(link.operators[1], result, found[link.sources[1]])
                kernel.call(
                    "scalar_tensor_tensor",
                    dst=tile,
                    data=source,
                    op0=link.operators[0],
                    operand0=link.numbers[0],
                    op1=link.operators[1],
                    operand1=other,
                )
            else:
                name, inner = link.operators[0], first.exact * link.numbers[0]
                worst = max(1.0, float(np.abs(inner).max())) if name == "exp" else 1.0
                result = _Value(FUNCTIONS[name](inner), first.worst * worst)
                kernel.call("activation", dst=tile, data=source, op=name, scale=link.numbers[0])
        tiles.append(tile)
        found.append(result)
        size = np.abs(result.exact)
        fine = fine and bool(np.isfinite(size).all() and size.max() < 1e8 and _rms(size) > 1e-6)
        fine = fine and result.worst < WORST
    kernel.store(tiles[-1])
    return kernel, found[-1].exact, fine


def _combined(name: str, one: _Value, other: _Value) -> _Value:
    exact = OPERATORS[name](one.exact, other.exact)
    if name not in ("add", "subtract"):
        return _Value(exact, max(one.worst, other.worst))
    left = max(_rms(exact), 1e-300)
    return _Value(exact, max(each.worst * max(1.0, _rms(each.exact) / left) for each in (one, other)))


def _rms(values: Float64) -> float:
    return float(np.sqrt(np.mean(np.square(values))))
