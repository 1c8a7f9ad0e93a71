"""Index expressions of the legacy generation: ``nl.arange`` and ``nl.mgrid`` as affine symbols, comparisons as masks.

A symbol stands for an array of integers of a broadcast shape; as long as it is affine it holds no array. Loop
variables and program ids are plain integers here, because loops are unrolled while tracing.
Sources: nki/api/nki/language/__init__.py:50-69, 316-326 and nki/api/nki.api.shared.rst:189-300 at tag v2.26.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from nkireview.nki.errors import Refusal
from nkireview.nki.trace import active

Ints = NDArray[np.int64]
Shape = tuple[int, ...]
ALL = slice(None)
FORMS = 1 << 16
"""Forms, and results of arithmetic on them, that are kept."""


class Form:
    """What a symbol is but for its base: a shape, and the coefficient of the position along each dimension.

    There is one object for each, made by `form`. low, high: the reach of the sum below and above the base.
    """

    __slots__ = ("_column", "_row", "coefficients", "high", "low", "ndim", "shape")

    def __init__(self, shape: Shape, coefficients: tuple[int, ...]) -> None:
        self.shape, self.coefficients, self.ndim = shape, coefficients, len(shape)
        low = high = 0
        for size, step in zip(shape, coefficients, strict=True):
            reach = step * (size - 1)
            low, high = (low + reach, high) if reach < 0 else (low, high + reach)
        self.low, self.high = low, high
        self._column: Form | None = None
        self._row: Form | None = None

    @property
    def column(self) -> Form:
        """With a new last dimension: ``[:, None]`` of one dimension."""
        if self._column is None:
            self._column = form((*self.shape, 1), (*self.coefficients, 0))
        return self._column

    @property
    def row(self) -> Form:
        """With a new first dimension: ``[None, :]`` of one dimension."""
        if self._row is None:
            self._row = form((1, *self.shape), (0, *self.coefficients))
        return self._row


@lru_cache(FORMS)
def form(shape: Shape, coefficients: tuple[int, ...]) -> Form:
    """The form of a shape and of coefficients, which are 0 along dimensions of size 1."""
    return Form(shape, coefficients)


@lru_cache(FORMS)
def _wider(found: Form, shape: Shape) -> Form:
    """The form over a larger shape; Refusal where they do not broadcast."""
    lead = len(shape) - found.ndim
    if lead < 0 or not all(old in (1, new) for old, new in zip(found.shape, shape[lead:], strict=True)):
        raise Refusal(f"index shapes {found.shape} and {shape} do not broadcast")
    return form(shape, (0,) * lead + found.coefficients)


@lru_cache(FORMS)
def _joined(left: Form, right: Form) -> tuple[Form, Form, Form]:
    """Two forms over the shape that both broadcast to, and their sum."""
    try:
        shape = tuple(int(size) for size in np.broadcast_shapes(left.shape, right.shape))
    except ValueError:
        raise Refusal(
            f"index expressions of shapes {left.shape} and {right.shape} do not broadcast"
        ) from None
    left, right = _wider(left, shape), _wider(right, shape)
    steps = tuple(a + b for a, b in zip(left.coefficients, right.coefficients, strict=True))
    return left, right, form(shape, steps)


@lru_cache(FORMS)
def _scaled(found: Form, by: int) -> Form:
    return form(found.shape, tuple(step * by for step in found.coefficients))


class Symbol:
    """``base + sum(coefficients[d] * position along d)``, of a broadcast shape; `table` holds what is not affine."""

    __slots__ = ("base", "form", "table")
    __array_priority__ = 2000
    __array_ufunc__ = None

    def __init__(self, form: Form, base: int, table: Ints | None = None) -> None:
        self.form, self.base, self.table = form, base, table

    @property
    def shape(self) -> Shape:
        """The broadcast shape."""
        return self.form.shape

    @property
    def coefficients(self) -> tuple[int, ...]:
        """What the position along each dimension counts; 0 along a dimension of size 1."""
        return self.form.coefficients

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self.form.ndim

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
        return self.base + self.form.low, self.base + self.form.high

    def expanded(self, shape: Shape) -> Symbol:
        """The same over a larger shape, by NumPy's rule: aligned at the right, dimensions of size 1 repeated."""
        wider = _wider(self.form, shape)
        return Symbol(wider, self.base, None if self.table is None else np.broadcast_to(self.table, shape))

    def __getitem__(self, key: Any) -> Symbol:
        if type(key) is tuple and len(key) == 2 and self.form.ndim == 1 and self.table is None:
            first, second = key
            if second is None and type(first) is slice and first == ALL:
                return Symbol(self.form.column, self.base)
            if first is None and type(second) is slice and second == ALL:
                return Symbol(self.form.row, self.base)
        items = list(key) if isinstance(key, tuple) else [key]
        used = sum(1 for item in items if item is not None and item is not Ellipsis)
        if used > self.ndim:
            raise Refusal(f"{used} indices are given to an index expression of shape {self.shape}")
        rest = [slice(None)] * (self.ndim - used)
        at = next((at for at, item in enumerate(items) if item is Ellipsis), len(items))
        items[at : at + 1] = rest
        return self._picked(items)

    def _picked(self, items: list[Any]) -> Symbol:
        """What an index selects that has one item for each dimension, and None for a new one."""
        shape: list[int] = []
        steps: list[int] = []
        base, dim = self.base, 0
        for item in items:
            if item is None:
                shape.append(1)
                steps.append(0)
                continue
            size, step = self.shape[dim], self.coefficients[dim]
            if isinstance(item, slice):
                start, stop, by = item.indices(size)
                count = len(range(start, stop, by))
                if count == 0:
                    raise Refusal(f"the part {start}:{stop} of an index expression of size {size} is empty")
                shape.append(count)
                steps.append(step * by if count > 1 else 0)
                base += start * step
            elif _whole(item):
                number = int(item) + size if item < 0 else int(item)
                if not 0 <= number < size:
                    raise Refusal(
                        f"index {item} is outside of dimension {dim} of an index expression, whose size is {size}"
                    )
                base += number * step
            else:
                raise Refusal(f"an index expression cannot be indexed by a {type(item).__name__}")
            dim += 1
        if self.table is not None:
            return _explicit(np.asarray(self.table[tuple(items)]))
        return Symbol(form(tuple(shape), tuple(steps)), base)

    def __add__(self, other: Any) -> Symbol:
        if type(other) is int or _whole(other):
            if self.table is None:
                return Symbol(self.form, self.base + int(other))
            return _explicit(self.table + int(other))
        if not isinstance(other, Symbol):
            return NotImplemented
        left, right, total = _joined(self.form, other.form)
        if self.table is None and other.table is None:
            return Symbol(total, self.base + other.base)
        return _explicit(self.expanded(left.shape).values() + other.expanded(right.shape).values())

    __radd__ = __add__

    def __mul__(self, other: Any) -> Symbol:
        if type(other) is int or _whole(other):
            by = int(other)
            if self.table is None:
                return Symbol(_scaled(self.form, by), self.base * by)
            return _explicit(self.table * by)
        if not isinstance(other, Symbol):
            return NotImplemented
        left, right, _ = _joined(self.form, other.form)
        return _explicit(self.expanded(left.shape).values() * other.expanded(right.shape).values())

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
    try:
        return _arange(*bounds)
    except TypeError:  # an argument that cannot be hashed
        return _arange.__wrapped__(*bounds)


@lru_cache(FORMS, typed=True)
def _arange(*bounds: Any) -> Symbol:
    numbers = [_bound(bound, "nl.arange") for bound in bounds]
    if len(numbers) not in (1, 2):
        raise Refusal(f"nl.arange takes a stop, or a start and a stop, got {len(numbers)} arguments")
    start, stop = (0, numbers[0]) if len(numbers) == 1 else numbers
    return _run(start, stop, 1, "nl.arange")


def _run(start: int, stop: int, step: int, what: str) -> Symbol:
    if step == 0:
        raise Refusal(f"{what}: the step of {start}:{stop} is 0")
    count = len(range(start, stop, step))
    if count < 1:
        raise Refusal(f"{what}: {start} to {stop} holds no index")
    return Symbol(form((count,), (step if count > 1 else 0,)), start)


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
        found = []
        for dim, run in enumerate(runs):
            steps = tuple(run.coefficients[0] if at == dim else 0 for at in range(len(runs)))
            found.append(Symbol(form(shape, steps), run.base))
        return Grid(found)


def _bound(value: Any, what: str) -> int:
    if not _whole(value):
        raise Refusal(f"{what} takes integers known while tracing, got {type(value).__name__}")
    return int(value)


def _whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _explicit(values: Ints) -> Symbol:
    """The symbol of these integers; affine again where they are, as ``i // n`` below n is."""
    found = np.asarray(values, np.int64)
    straight = _affine(found)
    return Symbol(form(found.shape, (0,) * found.ndim), 0, found) if straight is None else straight


def _affine(values: Ints) -> Symbol | None:
    if not values.size:
        return None
    first = (0,) * values.ndim
    base = int(values[first])
    steps = tuple(
        int(values[tuple(int(at == dim) for at in range(values.ndim))]) - base if size > 1 else 0
        for dim, size in enumerate(values.shape)
    )
    symbol = Symbol(form(values.shape, steps), base)
    return symbol if np.array_equal(symbol.values(), values) else None


def _difference(high: Any, low: Any, offset: int) -> Symbol:
    for side in (high, low):
        if not (isinstance(side, Symbol) or _whole(side)):
            raise Refusal(
                f"an index expression is compared with index expressions and integers, got {type(side).__name__}"
            )
    if isinstance(low, Symbol):
        return low * -1 + high + offset  # type: ignore[no-any-return]
    return high + (offset - int(low))  # type: ignore[no-any-return]
