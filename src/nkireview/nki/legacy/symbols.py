"""Index expressions of the legacy generation: ``nl.arange`` and ``nl.mgrid`` as affine symbols, comparisons as masks.

A symbol stands for an array of integers of a broadcast shape; as long as it is affine it holds no array. Loop
variables and program ids are plain integers here, because loops are unrolled while tracing.
Sources: nki/api/nki/language/__init__.py:50-69, 316-326 and nki/api/nki.api.shared.rst:189-300 at tag v2.26.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from nkireview.nki.errors import Refusal
from nkireview.nki.trace import active

Ints = NDArray[np.int64]
Shape = tuple[int, ...]


class Symbol:
    """``base + sum(coefficients[d] * position along d)``, of a broadcast shape; `table` holds what is not affine.

    A coefficient along a dimension of size 1 is 0.
    """

    __slots__ = ("base", "coefficients", "shape", "table")
    __array_priority__ = 2000
    __array_ufunc__ = None

    def __init__(
        self, shape: Shape, base: int, coefficients: tuple[int, ...], table: Ints | None = None
    ) -> None:
        self.shape, self.base, self.coefficients, self.table = shape, base, coefficients, table

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def values(self) -> Ints:
        """The integers it stands for."""
        if self.table is not None:
            return self.table
        found = np.full(self.shape, self.base, np.int64)
        for dim, (size, step) in enumerate(zip(self.shape, self.coefficients, strict=True)):
            lead = (1,) * (self.ndim - dim - 1)
            found += (np.arange(size, dtype=np.int64) * step).reshape(-1, *lead)
        return found

    def extent(self) -> tuple[int, int]:
        """The lowest and the highest integer."""
        if self.table is not None:
            return int(self.table.min()), int(self.table.max())
        low = high = self.base
        for size, step in zip(self.shape, self.coefficients, strict=True):
            reach = step * (size - 1)
            low, high = low + min(reach, 0), high + max(reach, 0)
        return low, high

    def expanded(self, shape: Shape) -> Symbol:
        """The same over a larger shape, by NumPy's rule: aligned at the right, dimensions of size 1 repeated."""
        lead = len(shape) - self.ndim
        fits = lead >= 0 and all(old in (1, new) for old, new in zip(self.shape, shape[lead:], strict=True))
        if not fits:
            raise Refusal(f"index shapes {self.shape} and {shape} do not broadcast")
        table = None if self.table is None else np.broadcast_to(self.table, shape)
        return Symbol(shape, self.base, (0,) * lead + self.coefficients, table)

    def __getitem__(self, key: Any) -> Symbol:
        items = list(key) if isinstance(key, tuple) else [key]
        dots = [at for at, item in enumerate(items) if item is Ellipsis]
        if dots:
            at = dots[0]
            used = sum(1 for item in items if item is not None) - 1
            items[at : at + 1] = [slice(None)] * (self.ndim - used)
        if self.table is not None:
            found = np.asarray(self.table[tuple(items)])
            return Symbol(found.shape, 0, (0,) * found.ndim, found)
        shape: list[int] = []
        steps: list[int] = []
        base, dim = self.base, 0
        for item in [*items, *[slice(None)] * (self.ndim - sum(1 for item in items if item is not None))]:
            if item is None:
                shape.append(1)
                steps.append(0)
                continue
            if dim >= self.ndim:
                raise Refusal(f"{len(items)} indices are given to an index expression of shape {self.shape}")
            size, step = self.shape[dim], self.coefficients[dim]
            dim += 1
            if isinstance(item, slice):
                start, stop, by = item.indices(size)
                count = len(range(start, stop, by))
                if count == 0:
                    raise Refusal(f"the part {start}:{stop} of an index expression of size {size} is empty")
                shape.append(count)
                steps.append(step * by if count > 1 else 0)
                base += start * step
            elif isinstance(item, int | np.integer):
                base += (int(item) + size if item < 0 else int(item)) * step
            else:
                raise Refusal(f"an index expression cannot be indexed by a {type(item).__name__}")
        return Symbol(tuple(shape), base, tuple(steps))

    def __add__(self, other: Any) -> Symbol:
        if _whole(other):
            table = None if self.table is None else self.table + int(other)
            return Symbol(self.shape, self.base + int(other), self.coefficients, table)
        if not isinstance(other, Symbol):
            return NotImplemented
        left, right = _together(self, other)
        if left.table is not None or right.table is not None:
            return _explicit(left.values() + right.values())
        steps = tuple(a + b for a, b in zip(left.coefficients, right.coefficients, strict=True))
        return Symbol(left.shape, left.base + right.base, steps)

    __radd__ = __add__

    def __mul__(self, other: Any) -> Symbol:
        if _whole(other):
            by = int(other)
            table = None if self.table is None else self.table * by
            return Symbol(self.shape, self.base * by, tuple(step * by for step in self.coefficients), table)
        if not isinstance(other, Symbol):
            return NotImplemented
        left, right = _together(self, other)
        return _explicit(left.values() * right.values())

    __rmul__ = __mul__

    def __neg__(self) -> Symbol:
        return self * -1

    def __sub__(self, other: Any) -> Symbol:
        return self.__add__(other * -1) if _whole(other) or isinstance(other, Symbol) else NotImplemented

    def __rsub__(self, other: Any) -> Symbol:
        return (self * -1).__add__(other)

    def __floordiv__(self, other: Any) -> Symbol:
        return self._divided(other, np.floor_divide)

    def __mod__(self, other: Any) -> Symbol:
        return self._divided(other, np.mod)

    def _divided(self, other: Any, function: Callable[[Any, Any], Any]) -> Symbol:
        if not _whole(other) or int(other) == 0:
            raise Refusal("an index expression is divided by an integer other than 0 only")
        return _explicit(function(self.values(), int(other)))

    def __lt__(self, other: Any) -> Mask:
        return Mask((_difference(other, self, -1),))

    def __le__(self, other: Any) -> Mask:
        return Mask((_difference(other, self, 0),))

    def __gt__(self, other: Any) -> Mask:
        return Mask((_difference(self, other, -1),))

    def __ge__(self, other: Any) -> Mask:
        return Mask((_difference(self, other, 0),))

    def __eq__(self, other: object) -> Any:
        return Mask((_difference(self, other, 0), _difference(other, self, 0)))

    def __ne__(self, other: object) -> NoReturn:
        raise Refusal("a mask takes no !=; it is a conjunction of <, <=, >, >= and ==")

    __hash__ = object.__hash__

    def __bool__(self) -> NoReturn:
        raise Refusal(
            "an index expression of nl.arange has no truth value; a condition needs integers known while tracing, "
            "and mask= takes comparisons"
        )

    def __index__(self) -> NoReturn:
        raise Refusal(
            "an index expression of nl.arange is no integer; it can only index tensors and make masks"
        )

    def __iter__(self) -> Iterator[Any]:
        raise Refusal("an index expression of nl.arange cannot be looped over; use nl.affine_range")

    def __repr__(self) -> str:
        return f"index expression of shape {self.shape}"


@dataclass(frozen=True, eq=False)
class Mask:
    """A conjunction: every atom, a symbol, is at least 0."""

    atoms: tuple[Symbol, ...]

    __array_ufunc__ = None

    def __and__(self, other: Any) -> Any:
        if isinstance(other, Mask):
            return Mask((*self.atoms, *other.atoms))
        if isinstance(other, bool | np.bool_):
            return self if other else False
        return NotImplemented

    __rand__ = __and__

    def __or__(self, other: Any) -> NoReturn:
        raise Refusal("a mask takes no |; it is a conjunction (&) of comparisons of affine index expressions")

    __ror__ = __or__

    def __invert__(self) -> NoReturn:
        raise Refusal("a mask takes no ~; it is a conjunction (&) of comparisons of affine index expressions")

    def __bool__(self) -> bool:
        trace = active()
        if trace is not None:
            trace.event(
                "truth", "the truth of a mask was asked for and is True; join comparisons by &, not by and"
            )
        return True

    @property
    def shape(self) -> Shape:
        """The broadcast shape of the atoms."""
        try:
            return tuple(np.broadcast_shapes(*(atom.shape for atom in self.atoms)))
        except ValueError:
            shapes = " and ".join(str(atom.shape) for atom in self.atoms)
            raise Refusal(f"the shapes {shapes} of a mask's comparisons do not broadcast") from None

    def values(self, shape: Shape) -> NDArray[np.bool_]:
        """Where it is true, over a shape."""
        found = np.ones(shape, np.bool_)
        for atom in self.atoms:
            found &= atom.expanded(shape).values() >= 0
        return found


def arange(*bounds: Any) -> Symbol:
    """``nl.arange(stop)`` or ``nl.arange(start, stop)``: 0, 1, ... along one dimension."""
    numbers = [_bound(bound, "nl.arange") for bound in bounds]
    if len(numbers) not in (1, 2):
        raise Refusal(f"nl.arange takes a stop, or a start and a stop, got {len(numbers)} arguments")
    start, stop = (0, numbers[0]) if len(numbers) == 1 else numbers
    return _run(start, stop, 1, "nl.arange")


def _run(start: int, stop: int, step: int, what: str) -> Symbol:
    count = len(range(start, stop, step))
    if count < 1:
        raise Refusal(f"{what}: {start} to {stop} holds no index")
    return Symbol((count,), start, (step if count > 1 else 0,))


class Grid(tuple[Symbol, ...]):
    """What ``nl.mgrid[a:b, c:d]`` gives: one symbol for each dimension; p is the first, x, y, z and w the next."""

    __slots__ = ()
    NAMES = "pxyzw"

    def __getattr__(self, name: str) -> Symbol:
        at = self.NAMES.find(name) if len(name) == 1 else -1
        if not 0 <= at < len(self):
            raise AttributeError(f"nl.mgrid of {len(self)} dimensions has no {name!r}")
        return self[at]


class MeshGrid:
    """``nl.mgrid``: a dense grid of indices."""

    def __getitem__(self, key: Any) -> Grid:
        items = key if isinstance(key, tuple) else (key,)
        runs = []
        for item in items:
            if not isinstance(item, slice) or item.stop is None:
                raise Refusal("nl.mgrid takes slices with an end, as in nl.mgrid[0:128, 0:512]")
            parts = (item.start or 0, item.stop, 1 if item.step is None else item.step)
            start, stop, step = (_bound(part, "nl.mgrid") for part in parts)
            runs.append(_run(start, stop, step, "nl.mgrid"))
        shape = tuple(run.shape[0] for run in runs)
        return Grid(
            Symbol(shape, run.base, tuple(run.coefficients[0] if at == dim else 0 for at in range(len(runs))))
            for dim, run in enumerate(runs)
        )


def _bound(value: Any, what: str) -> int:
    if not _whole(value):
        raise Refusal(f"{what} takes integers known while tracing, got {type(value).__name__}")
    return int(value)


def _whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _explicit(values: Ints) -> Symbol:
    return Symbol(values.shape, 0, (0,) * values.ndim, np.asarray(values, np.int64))


def _together(left: Symbol, right: Symbol) -> tuple[Symbol, Symbol]:
    try:
        shape = tuple(np.broadcast_shapes(left.shape, right.shape))
    except ValueError:
        raise Refusal(
            f"index expressions of shapes {left.shape} and {right.shape} do not broadcast"
        ) from None
    return left.expanded(shape), right.expanded(shape)


def _difference(high: Any, low: Any, offset: int) -> Symbol:
    for side in (high, low):
        if not (isinstance(side, Symbol) or _whole(side)):
            raise Refusal(
                f"an index expression is compared with index expressions and integers, got {type(side).__name__}"
            )
    found: Symbol = high.__sub__(low) if isinstance(high, Symbol) else low.__sub__(high).__neg__()
    return found.__add__(offset)
