"""Arguments of a launch: host arrays become parameter buffers, everything else passes through."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from enum import Enum
from types import ModuleType
from typing import Any

from nkireview.hosted.arrays import HostArray, host_array
from nkireview.nki.launch import parameter_memory
from nkireview.nki.objects import NKIObject
from nkireview.nki.tensor import NkiTensor
from nkireview.nki.trace import Trace
from nkireview.program.model import Buffer
from nkireview.program.tree import Group, Node, TensorLeaf

_PLAIN = (str, bytes, int, float, complex, bool, type, Enum, ModuleType, NkiTensor)


@dataclasses.dataclass(frozen=True)
class _Slot:
    """Where an array stood."""

    number: int


class Arguments:
    """The arrays of a call by number and path, and the call without them.

    An array that is passed twice is one buffer. Containers, NKIObjects, dataclasses and other objects that hold arrays
    are copied for each core; what holds none is passed on as it is.
    """

    def __init__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], names: tuple[str, ...]) -> None:
        self.arrays: list[HostArray] = []
        self.paths: list[str] = []
        self._seen: dict[int, int] = {}
        self._held: list[Any] = []
        labels = (*names, *(f"arg{at}" for at in range(len(names), len(args))))
        self._args = [self._take(value, label) for value, label in zip(args, labels, strict=False)]
        self._kwargs = {name: self._take(value, name) for name, value in kwargs.items()}

    @property
    def tree(self) -> Node:
        """The parameters as the Program keeps them: one leaf for each array."""
        leaves = tuple(TensorLeaf(number) for number in range(len(self.arrays)))
        return Group("dict", tuple(self.paths), leaves)

    @property
    def library(self) -> str:
        """The library that results are given in: torch or jax where an argument is of it, else NumPy."""
        used = {array.library for array in self.arrays}
        return "torch" if "torch" in used else "jax" if "jax" in used else "numpy"

    def declare(self, state: Trace) -> list[Buffer]:
        """A parameter buffer for each array."""
        return [
            state.builder.buffer(
                memory=parameter_memory(state.lnc),
                shape=array.values.shape,
                dtype=array.dtype,
                core=None,
                name=path.rsplit(".", 1)[-1],
            )
            for array, path in zip(self.arrays, self.paths, strict=True)
        ]

    def rebuilt(self, state: Trace, buffers: list[Buffer]) -> tuple[list[Any], dict[str, Any]]:
        """The call with fresh tensors for the arrays."""

        return self.filled(lambda number: NkiTensor.whole(state, buffers[number]))

    def filled(self, value: Callable[[int], Any]) -> tuple[list[Any], dict[str, Any]]:
        """The call with other values in place of its arrays, which are asked for by number."""
        return (
            [_put(item, value) for item in self._args],
            {name: _put(item, value) for name, item in self._kwargs.items()},
        )

    def _take(self, value: Any, path: str) -> Any:
        """The value with a slot for each array."""
        if value is None or isinstance(value, _PLAIN):
            return value
        known = self._seen.get(id(value))
        if known is not None:
            return _Slot(known)
        array = host_array(value, path)
        if array is not None:
            number = self._seen[id(value)] = len(self.arrays)
            self._held.append(value)
            self.arrays.append(array)
            self.paths.append(path)
            return _Slot(number)
        fields = _fields(value)
        if fields is None:
            return value
        taken = {name: self._take(item, f"{path}.{name}") for name, item in fields.items()}
        if isinstance(value, list | dict) or any(taken[name] is not fields[name] for name in fields):
            return _Copy(value, taken)
        return value


@dataclasses.dataclass(frozen=True)
class _Copy:
    """A container or object to be made anew from its items."""

    like: Any
    items: dict[Any, Any]


def _put(value: Any, filling: Callable[[int], Any]) -> Any:
    if isinstance(value, _Slot):
        return filling(value.number)
    if not isinstance(value, _Copy):
        return value
    items = {name: _put(item, filling) for name, item in value.items.items()}
    return remade(value.like, items)


def remade(like: Any, items: dict[Any, Any]) -> Any:
    """A container or object like another, with other items."""
    if isinstance(like, dict):
        return items
    if isinstance(like, list):
        return list(items.values())
    if isinstance(like, tuple):
        return type(like)(*items.values()) if hasattr(like, "_fields") else tuple(items.values())
    made = object.__new__(type(like))
    for name, item in items.items():
        object.__setattr__(made, name, item)
    return made


def _fields(value: Any) -> dict[Any, Any] | None:
    """The items of a container or of an object with attributes, None for anything else."""
    if isinstance(value, dict):
        return dict(value)
    if isinstance(value, list | tuple):
        return dict(enumerate(value))
    if isinstance(value, NKIObject) or dataclasses.is_dataclass(value):
        return dict(vars(value)) if hasattr(value, "__dict__") else None
    return None
