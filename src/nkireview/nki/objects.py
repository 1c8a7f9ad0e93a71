"""NKIObject: the language's own class rules, the same with or without ``@dataclass``.

Source: aws-neuron-sdk nki/get-started/nki-language-guide.rst, "Class Support" and "Enumerations".
"""

from __future__ import annotations

import dataclasses
from types import FunctionType
from typing import Any

_DESCRIPTORS = (FunctionType, classmethod, staticmethod, property, type)
_GENERATED = "<string>"  # the file name of the methods that @dataclass writes
_SETTLED = "_nki_fields"


class NKIObject:
    """Base of kernel-side classes: fields from annotations and class values, a missing field is None.

    ``__init__`` is synthesised where the class has none, ``__post_init__`` is called, equality is structural.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        if _SETTLED not in cls.__dict__:
            _settle(cls)
        return super().__new__(cls)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _initialise(self, args, kwargs)

    def __post_init__(self) -> None:
        """Called after the synthesised ``__init__``."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return object.__hash__(self)

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({inside})"


def _settle(cls: type) -> None:
    """Fix the fields of a class at its first instantiation, after any decorator has run."""
    fields: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if base in (object, NKIObject) or not issubclass(base, NKIObject):
            continue
        declared = [*base.__dict__.get("__annotations__", {}), *base.__dict__]
        for name in dict.fromkeys(declared):
            if name.startswith("__") or name == _SETTLED:
                continue
            value = base.__dict__.get(name)
            if isinstance(value, _DESCRIPTORS):
                continue
            fields[name] = value
        for item in base.__dict__.get("__dataclass_fields__", {}).values():
            fields[item.name] = item
        for name in ("__init__", "__eq__", "__repr__", "__setattr__", "__delattr__"):
            method = base.__dict__.get(name)
            if isinstance(method, FunctionType) and method.__code__.co_filename == _GENERATED:
                delattr(base, name)
        if base.__dict__.get("__hash__", 0) is None:
            type.__setattr__(base, "__hash__", NKIObject.__hash__)
    type.__setattr__(cls, _SETTLED, fields)


def _initialise(self: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    fields: dict[str, Any] = type(self)._nki_fields
    kind = type(self).__name__
    if len(args) > len(fields):
        raise TypeError(f"{kind}() takes {len(fields)} values ({', '.join(fields)}), got {len(args)}")
    given = dict(zip(fields, args, strict=False))
    for name, value in kwargs.items():
        if name not in fields:
            raise TypeError(f"{kind}() has no field {name!r}; its fields are {', '.join(fields)}")
        if name in given:
            raise TypeError(f"{kind}() got two values for {name!r}")
        given[name] = value
    for name, default in fields.items():
        object.__setattr__(self, name, given[name] if name in given else _default(default))
    self.__post_init__()


def _default(value: Any) -> Any:
    if not isinstance(value, dataclasses.Field):
        return value
    if value.default_factory is not dataclasses.MISSING:
        return value.default_factory()
    return None if value.default is dataclasses.MISSING else value.default
