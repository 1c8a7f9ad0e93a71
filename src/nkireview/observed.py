"""A NumPy function called so that the value of each of its steps is kept: what a reference computes on its way."""

from __future__ import annotations

import inspect
import linecache
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

ELEMENTS = 1 << 23
"""Elements of all values together that are kept."""
TEXT = 160
"""Characters of a source line that are kept."""
INPUT, RESULT, VIEW = "input", "result", "view"
"""Names of what no operation made: an argument, what the function returned, some elements of another observation."""
MAKERS = frozenset(
    {"array", "asarray", "asanyarray", "ascontiguousarray", "asfortranarray", "require", "frombuffer"}
    | {"zeros", "ones", "full", "empty", "arange", "linspace", "eye", "identity", "tri"}
)
"""Functions that give plain arrays whatever they are given."""


@dataclass(frozen=True, eq=False)
class Observation:
    """One step of a function.

    name: of the operation, such as ``multiply`` or ``mean``. line, text: where the function's file asked for it.
    reads: the earlier observations, by number, that it was given. values: a copy of what it gave. An operation that is
    given a slice of an observation, or one in other order or shape, reads a view of it, which is an observation too.
    """

    name: str
    line: int
    text: str
    reads: tuple[int, ...]
    values: Array


def observe(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Any, list[Observation]]:
    """What the function returns, and its steps: the arrays it is given, each operation on them, the arrays returned.

    Operations on arrays that are not NumPy's are not seen, nor those of other files on arrays that they make plain.
    Kept are the first steps of `ELEMENTS` elements together. What the function raises passes through.
    """
    observer = _Observer(function)
    with observer.watching(function):
        made = function(*_each(args, observer.given), **_each(dict(kwargs), observer.given))
    result = _each(made, observer.returned)
    return result, observer.found


class WatchedArray(np.ndarray[Any, Any]):
    """An array that tells of what is done with it. `note`: the observation whose elements it has; -1 for none."""

    observer: _Observer | None
    note: int

    def __array_finalize__(self, other: Any) -> None:
        self.observer = getattr(other, "observer", None)
        self.note = getattr(other, "note", -1)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """Run the operation on plain arrays; what is written in place stays the array that it was."""
        targets = kwargs.get("out") or ()
        if targets:
            kwargs["out"] = tuple(_plain(each) for each in targets)
        observer = _observer_of((*inputs, *targets))
        asked = None if observer is None else observer.asked(inputs)
        made = getattr(ufunc, method)(*_each(inputs, _plain), **_each(kwargs, _plain))
        if observer is None or asked is None or method == "at":
            return made
        name = ufunc.__name__ if method in ("__call__", "reduce") else f"{ufunc.__name__}.{method}"
        kept = [each for each in targets if isinstance(each, WatchedArray)]
        if kept and kept == list(targets):
            observer.again(name, asked, kept)
            return kept[0] if len(kept) == 1 else tuple(kept)
        return observer.noted(name, asked, made)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Run the function on plain arrays: its own steps are none of the caller's."""
        observer = _observer_of((args, kwargs))
        asked = None if observer is None else observer.asked((args, kwargs))
        made = function(*_each(args, _plain), **_each(kwargs, _plain))
        if observer is None or asked is None:
            return made
        return observer.noted(function.__name__, asked, made)


@dataclass(frozen=True)
class _Asked:
    """Where an operation was asked for, and what it reads."""

    line: int
    text: str
    reads: tuple[int, ...]


_NOWHERE = _Asked(0, "", ())


class _Observer:
    def __init__(self, function: Callable[..., Any]) -> None:
        self.found: list[Observation] = []
        self._left = ELEMENTS
        self._views: dict[int, list[int]] = {}
        self._file = getattr(getattr(inspect.unwrap(function), "__code__", None), "co_filename", "")

    def given(self, value: Any) -> Any:
        """An argument, noted where it is an array."""
        if type(value) is not np.ndarray:
            return value
        return self._wrapped(value, self._kept(INPUT, _NOWHERE, value))

    def returned(self, value: Any) -> Any:
        """What the function returned, as plain arrays."""
        plain = _plain(value)
        if isinstance(plain, np.ndarray):
            note = getattr(value, "note", -1)
            self._kept(RESULT, _Asked(0, "", () if note < 0 else (note,)), plain)
        return plain

    def asked(self, given: Any) -> _Asked:
        """An operation on what is given, before it runs: it may change that."""
        line, text = self._place()
        found = (self._view(leaf, line, text) for leaf in _leaves(given) if isinstance(leaf, WatchedArray))
        return _Asked(line, text, tuple(dict.fromkeys(number for number in found if number >= 0)))

    def noted(self, name: str, asked: _Asked, made: Any) -> Any:
        """The results of an operation, noted."""

        def one(value: Any) -> Any:
            if isinstance(value, np.generic):
                self._kept(name, asked, np.asarray(value))
            if type(value) is not np.ndarray:
                return value
            return self._wrapped(value, self._kept(name, asked, value))

        return _each(made, one)

    def again(self, name: str, asked: _Asked, targets: Sequence[WatchedArray]) -> None:
        """Note arrays that were written in place anew."""
        for target in targets:
            target.note = self._kept(name, asked, target.view(np.ndarray))

    def made(self, values: Any, source: Any) -> Any:
        """A plain array that a function of `MAKERS` gives, which has the elements of what it was made from."""
        if type(values) is not np.ndarray:
            return values
        return self._wrapped(values, source.note if isinstance(source, WatchedArray) else -1)

    def _view(self, leaf: WatchedArray, line: int, text: str) -> int:
        """The number of the observation that an array is, or of a view of it."""
        if leaf.note < 0:
            return -1
        plain = leaf.view(np.ndarray)
        views = self._views.setdefault(leaf.note, [])
        for number in (leaf.note, *views):
            values = self.found[number].values
            if values.shape == plain.shape and np.array_equal(
                values, plain, equal_nan=values.dtype.kind == "f"
            ):
                return number
        kept = self._kept(VIEW, _Asked(line, text, (leaf.note,)), plain)
        if kept < 0:
            return leaf.note
        views.append(kept)
        return kept

    def _wrapped(self, values: Array, note: int) -> WatchedArray:
        found = values.view(WatchedArray)
        found.observer, found.note = self, note
        return found

    def _kept(self, name: str, asked: _Asked, values: Array) -> int:
        """The number of a new observation; -1 where there is no room, or these are no numbers."""
        if values.dtype.kind not in "fiub" and not _is_number(values.dtype):
            return -1
        if values.size > self._left:
            self._left = 0
            return -1
        self._left -= values.size
        self.found.append(Observation(name, asked.line, asked.text, asked.reads, np.array(values)))
        return len(self.found) - 1

    def _place(self) -> tuple[int, str]:
        """The line of the function's file that is being run, and its text."""
        frame = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename != self._file:
            frame = frame.f_back  # type: ignore[assignment]
        if frame is None:
            return 0, ""
        return frame.f_lineno, linecache.getline(self._file, frame.f_lineno).strip()[:TEXT]

    @contextmanager
    def watching(self, function: Callable[..., Any]) -> Iterator[None]:
        """NumPy, as the function's file calls it, gives arrays that are noted."""
        names = getattr(inspect.unwrap(function), "__globals__", {})
        held = {name: value for name, value in names.items() if value is np}
        names.update(dict.fromkeys(held, _NumPy(self)))
        try:
            yield
        finally:
            names.update(held)


class _NumPy(ModuleType):
    """NumPy whose functions of `MAKERS` give noted arrays."""

    def __init__(self, observer: _Observer) -> None:
        super().__init__("numpy", np.__doc__)
        self._observer = observer

    def __getattr__(self, name: str) -> Any:
        found = getattr(np, name)
        if name not in MAKERS:
            return found

        def maker(*args: Any, **kwargs: Any) -> Any:
            made = found(*_each(args, _plain), **_each(kwargs, _plain))
            return self._observer.made(made, args[0] if args else None)

        return maker


def _is_number(dtype: np.dtype[Any]) -> bool:
    """True for the narrow floats that NumPy does not know itself."""
    return "float" in dtype.name


def _plain(value: Any) -> Any:
    return value.view(np.ndarray) if isinstance(value, WatchedArray) else value


def _each(value: Any, change: Callable[[Any], Any]) -> Any:
    """A value with each leaf of its tuples, lists and dicts changed."""
    if type(value) in (tuple, list):
        return type(value)(_each(item, change) for item in value)
    if type(value) is dict:
        return {key: _each(item, change) for key, item in value.items()}
    return change(value)


def _leaves(value: Any) -> Iterator[Any]:
    if type(value) in (tuple, list):
        for item in value:
            yield from _leaves(item)
    elif type(value) is dict:
        for item in value.values():
            yield from _leaves(item)
    else:
        yield value


def _observer_of(value: Any) -> _Observer | None:
    return next((leaf.observer for leaf in _leaves(value) if isinstance(leaf, WatchedArray)), None)
