"""Operators of the legacy generation: names of the language and functions of NumPy as ``op=``.

Source: nki/api/nki.api.shared.rst:60-190 at tag v2.26.1.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from nkireview.nki.lowering import token
from nkireview.nki.operators import Operator

UFUNCS = {
    "absolute": "abs",
    "amax": "maximum",
    "amin": "minimum",
    "max": "maximum",
    "min": "minimum",
    "sum": "add",
    "prod": "multiply",
    "true_divide": "divide",
    "remainder": "mod",
    "any": "logical_or",
    "all": "logical_and",
    "bitwise_not": "invert",
}
"""NumPy functions whose names differ from those of the operators they stand for."""


def operator(value: Any) -> Any:
    """An operator as an instruction takes it: NumPy's functions stand for those of the language.

    Whatever is no operator comes back as it is.
    """
    if isinstance(value, Operator):
        return token(value.name)
    if not callable(value):
        return value
    name = getattr(value, "__name__", None)
    module = getattr(value, "__module__", "") or ""
    numpy = isinstance(value, np.ufunc) or (inspect.isroutine(value) and module.startswith("numpy"))
    if numpy and isinstance(name, str):
        return token(UFUNCS.get(name, name))
    return value


class Function(Operator):
    """A function of the language whose name is an operator too; it can be called in this generation."""

    def __init__(self, name: str, call: Callable[..., Any]) -> None:
        super().__init__(name)
        self._function = call
        self.__doc__ = call.__doc__
        self.__signature__ = inspect.signature(call)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)


def named(function: Callable[..., Any], name: str, doc: str = "") -> Callable[..., Any]:
    """A function under the name that a kernel calls it by, which is what Python's own errors say."""
    function.__name__ = name.rpartition(".")[2]
    function.__qualname__ = name
    if doc:
        function.__doc__ = doc
    return function
