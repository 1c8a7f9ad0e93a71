"""The tagged tree by which arguments and results travel between processes.

`encode` turns a Python value into plain JSON data and binary blobs; `decode` gives it back without importing any class
of the user's: instances become `ObjectNode`, enum members `EnumNode`. Only `rebuild`, used in children, imports. A
leaf is a NumPy array; scalars and strings are structure. A subclass of str, int or float travels as the plain value.

JSON forms: None, bool, int (below 2**63), finite float, str and list stand for themselves; everything else is an
object with a "kind": float, int, tuple, dict, array, scalar, dtype, object or enum.
"""

from __future__ import annotations

import enum
import importlib
import math
import operator
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np

MAX_DEPTH = 100
CARRIED = (
    "None, truth values, numbers, strings, arrays, dtypes, lists, tuples, dicts with str or int keys, "
    "dataclasses, plain objects and enums"
)

_NUMPY = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
)
_ML_FLOATS = tuple(
    name for name in dir(ml_dtypes) if name.startswith(("bfloat16", "float8_", "float6_", "float4_"))
)
_ML_INTEGERS = ("int2", "uint2", "int4", "uint4")
DTYPES: dict[str, np.dtype[Any]] = {
    **{name: np.dtype(name) for name in _NUMPY},
    **{name: np.dtype(getattr(ml_dtypes, name)) for name in (*_ML_FLOATS, *_ML_INTEGERS)},
}
FLOATS = frozenset(("float16", "float32", "float64", *_ML_FLOATS))

_BITS = {"int2": 2, "uint2": 2, "int4": 4, "uint4": 4} | {
    name: int(name[5]) for name in _ML_FLOATS if name.startswith(("float4_", "float6_"))
}
_CLASS = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_SMALL_INT = 1 << 63


class TreeError(ValueError):
    """A value cannot be carried, or an encoded tree is malformed; the text names the path in the tree."""


@dataclass(frozen=True)
class ObjectNode:
    """An instance of a user's class, `module:qualname`, with its fields."""

    cls: str
    fields: dict[str, Any]


@dataclass(frozen=True)
class EnumNode:
    """A member of a user's enum, with its value if that is None, a number, a truth value or a string."""

    cls: str
    name: str
    value: bool | int | float | str | None


Array = np.ndarray[Any, Any]
Encoded = tuple[Any, list[bytes]]


def encode(value: Any, root: str = "") -> Encoded:
    """The JSON tree and blobs of a value or of a decoded tree; `root` names it in a `TreeError`."""
    encoder = _Encoder()
    return encoder.encode(value, root, ()), encoder.blobs


def decode(tree: Any, blobs: Sequence[bytes], root: str = "") -> Any:
    """The value of an encoded tree, arrays read-only, instances as nodes; trusts nothing in `tree`."""
    return _decode(tree, blobs, root, 0)


def map_leaves(tree: Any, function: Callable[[Array], Any]) -> Any:
    """The decoded tree with each array replaced by `function(array)`, in the order of `leaves`."""
    if isinstance(tree, np.ndarray):
        return function(tree)
    if isinstance(tree, ObjectNode):
        return replace(tree, fields=map_leaves(tree.fields, function))
    if isinstance(tree, dict):
        return {key: map_leaves(item, function) for key, item in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(map_leaves(item, function) for item in tree)
    return tree


def leaves(tree: Any, root: str = "") -> list[tuple[str, Array]]:
    """Every array of a decoded tree with its path ("x", "[2].scale", "options['a b'][0]"), in order."""
    if isinstance(tree, np.ndarray):
        return [(root, tree)]
    return [leaf for step, item in _children(tree, root) for leaf in leaves(item, root + step)]


def rebuild(tree: Any, leaf: Callable[[Array], Any], module: ModuleType | None = None, root: str = "") -> Any:
    """In a child: the decoded tree as the user's own objects, each array replaced by `leaf(array)`.

    Classes are imported by name, those of the loaded user's `module` taken from there; `__init__` is not called.
    """
    if isinstance(tree, np.ndarray):
        return leaf(tree)
    if isinstance(tree, EnumNode):
        return _member(tree, module, root)
    items = [rebuild(item, leaf, module, root + step) for step, item in _children(tree, root)]
    if isinstance(tree, ObjectNode):
        return _instance(_find_class(tree.cls, module, root), dict(zip(tree.fields, items, strict=True)))
    if isinstance(tree, dict):
        return dict(zip(tree, items, strict=True))
    return type(tree)(items) if isinstance(tree, list | tuple) else tree


class _Encoder:
    def __init__(self) -> None:
        self.blobs: list[bytes] = []

    def encode(self, value: Any, path: str, above: tuple[int, ...]) -> Any:
        if value is None or isinstance(value, bool):
            return value
        simple = self._simple(value, path)
        if simple is not None:
            return simple
        if id(value) in above:
            raise TreeError(f"{_at(path)}a value that contains itself cannot be carried")
        if len(above) >= MAX_DEPTH:
            raise TreeError(f"{_at(path)}more than {MAX_DEPTH} levels of nesting cannot be carried")
        return self._container(value, path, (*above, id(value)))

    def _simple(self, value: Any, path: str) -> Any:
        """The form of a number, string, array, dtype or enum; None for anything else."""
        if isinstance(value, EnumNode):
            return {"kind": "enum", "class": value.cls, "name": value.name, "value": _number(value.value)}
        if isinstance(value, enum.Enum):
            cls = _class_name(type(value), path)
            return {"kind": "enum", "class": cls, "name": value.name, "value": _number(value.value)}
        if type(value) in (np.ndarray, np.memmap):
            return self._array("array", value, path)
        if isinstance(value, np.generic) and not isinstance(value, str):
            return self._array("scalar", np.asarray(value), path)
        if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
            return {"kind": "dtype", "dtype": _dtype_name(np.dtype(value), path)}
        return _number(value) if isinstance(value, int | float | str) else self._torch(value, path)

    def _container(self, value: Any, path: str, above: tuple[int, ...]) -> Any:
        if type(value) in (list, tuple):
            items = [self.encode(item, f"{path}[{i}]", above) for i, item in enumerate(value)]
            return items if type(value) is list else {"kind": "tuple", "items": items}
        if type(value) is dict:
            return {
                "kind": "dict",
                "items": [self._pair(key, item, path, above) for key, item in value.items()],
            }
        if isinstance(value, ObjectNode):
            cls, fields = value.cls, value.fields
        else:
            fields = _fields(value, path)
            cls = _class_name(type(value), path)
        pairs = [self._pair(name, item, path, above) for name, item in fields.items()]
        return {"kind": "object", "class": cls, "fields": pairs}

    def _pair(self, key: Any, item: Any, path: str, above: tuple[int, ...]) -> list[Any]:
        if type(key) not in (str, int) or (type(key) is int and abs(key) >= _SMALL_INT):
            raise TreeError(
                f"{_at(path)}cannot carry a dict key of type {type(key).__name__}; expected str or int"
            )
        return [key, self.encode(item, path + _key(path, key), above)]

    def _array(self, kind: str, array: Array, path: str) -> dict[str, Any]:
        name = _dtype_name(array.dtype, path)
        self.blobs.append(array.astype(DTYPES[name], copy=False).tobytes())
        return {"kind": kind, "dtype": name, "shape": list(array.shape), "blob": len(self.blobs) - 1}

    def _torch(self, value: Any, path: str) -> Any:
        """A torch tensor or dtype, if the user's code has imported torch; we never do."""
        torch: Any = sys.modules.get("torch")
        tensor, dtype = getattr(torch, "Tensor", None), getattr(torch, "dtype", None)
        if isinstance(dtype, type) and isinstance(value, dtype):
            name = str(value).rpartition(".")[2]
            if name not in DTYPES:
                raise TreeError(f"{_at(path)}cannot carry dtype {value}")
            return {"kind": "dtype", "dtype": name}
        if isinstance(tensor, type) and isinstance(value, tensor):
            return self._torch_tensor(value, torch, path)
        return None

    def _torch_tensor(self, value: Any, torch: Any, path: str) -> dict[str, Any]:
        host = value.detach().cpu().contiguous()
        name = str(host.dtype).rpartition(".")[2]
        if name not in DTYPES:
            raise TreeError(f"{_at(path)}cannot carry a tensor of dtype {host.dtype}")
        if name in _ML_FLOATS:
            raw = torch.int16 if name == "bfloat16" else torch.uint8
            return self._array("array", host.view(raw).numpy().view(DTYPES[name]), path)
        return self._array("array", host.numpy(), path)


def _number(value: Any) -> Any:
    """The form of a truth value, number or string; None for anything else."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        exact = int(value)
        return exact if abs(exact) < _SMALL_INT else {"kind": "int", "value": hex(exact)}
    if isinstance(value, float):
        real = float(value)
        return real if math.isfinite(real) else {"kind": "float", "value": repr(real)}
    return str.__str__(value) if isinstance(value, str) else None


def _fields(value: Any, path: str) -> dict[str, Any]:
    """The fields of a dataclass, a named tuple or a plain object; a `TreeError` for anything else."""
    cls = type(value)
    if isinstance(value, tuple) and isinstance(getattr(cls, "_fields", None), tuple):
        return dict(zip(cls._fields, value, strict=True))
    try:
        object.__new__(cls)
    except TypeError:
        instance = False
    else:
        instance = cls is not object and not isinstance(value, type)
    if not instance:
        raise TreeError(f"{_at(path)}cannot carry a value of type {_type_name(cls)}; expected {CARRIED}")
    slots = {name: getattr(value, name) for name in _slots(cls) if hasattr(value, name)}
    return {**slots, **getattr(value, "__dict__", {})}


def _slots(cls: type) -> list[str]:
    """Names of the slots of a class and its bases, as attributes (private names mangled)."""
    found: list[str] = []
    for base in cls.__mro__:
        names = base.__dict__.get("__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            if name in ("__dict__", "__weakref__"):
                continue
            private = name.startswith("__") and not name.endswith("__")
            found.append(f"_{base.__name__.lstrip('_')}{name}" if private else name)
    return found


def _instance(cls: type, fields: dict[str, Any]) -> Any:
    if issubclass(cls, tuple):
        return tuple.__new__(cls, fields.values())
    value = object.__new__(cls)
    slots = set(_slots(cls))
    for name, item in fields.items():
        if name in slots:
            object.__setattr__(value, name, item)
        else:
            value.__dict__[name] = item
    return value


def _member(node: EnumNode, module: ModuleType | None, path: str) -> enum.Enum:
    cls = _find_class(node.cls, module, path)
    if not issubclass(cls, enum.Enum) or node.name not in cls.__members__:
        raise TreeError(f"{_at(path)}{node.cls} has no enum member {node.name!r}")
    return cls.__members__[node.name]


def _find_class(name: str, module: ModuleType | None, path: str) -> type:
    home, _, qualname = name.partition(":")
    try:
        if module is None or module.__name__ != home:
            module = sys.modules.get(home) or importlib.import_module(home)
        found = operator.attrgetter(qualname)(module)
    except (ImportError, AttributeError) as error:
        raise TreeError(f"{_at(path)}class {name} cannot be imported: {error}") from error
    if not isinstance(found, type):
        raise TreeError(f"{_at(path)}{name} is not a class")
    return found


def _class_name(cls: type, path: str) -> str:
    name = f"{cls.__module__}:{cls.__qualname__}"
    if "<locals>" in name:
        raise TreeError(
            f"{_at(path)}class {cls.__name__} is defined inside a function, so that no other process can import it; "
            "define it at the top of its file"
        )
    return name


def _dtype_name(dtype: np.dtype[Any], path: str) -> str:
    name = str(dtype.name)
    if name not in DTYPES:
        raise TreeError(f"{_at(path)}cannot carry an array of dtype {name}")
    return name


def _decode(tree: Any, blobs: Sequence[bytes], path: str, depth: int) -> Any:
    if tree is None or isinstance(tree, bool | int | float | str):
        return tree
    if depth > MAX_DEPTH:
        raise TreeError(f"{_at(path)}more than {MAX_DEPTH} levels of nesting")
    match tree:
        case list(items):
            return [_decode(item, blobs, f"{path}[{i}]", depth + 1) for i, item in enumerate(items)]
        case {"kind": "tuple", "items": list(items)}:
            return tuple(_decode(item, blobs, f"{path}[{i}]", depth + 1) for i, item in enumerate(items))
        case {"kind": "dict", "items": list(pairs)}:
            return _decode_pairs(pairs, blobs, path, depth, (str, int))
        case {"kind": "object", "class": str(cls), "fields": list(pairs)} if _CLASS.fullmatch(cls):
            return ObjectNode(cls, _decode_pairs(pairs, blobs, path, depth, (str,)))
        case {"kind": "enum", "class": str(cls), "name": str(name), "value": value} if _CLASS.fullmatch(cls):
            plain = _decode(value, blobs, path, depth + 1)
            if plain is None or isinstance(plain, bool | int | float | str):
                return EnumNode(cls, name, plain)
        case {"kind": "float", "value": "nan" | "inf" | "-inf" as text}:
            return float(text)
        case {"kind": "int", "value": str(text)} if re.fullmatch(r"-?0x[0-9a-f]+", text):
            return int(text, 16)
        case {"kind": "dtype", "dtype": str(name)} if name in DTYPES:
            return DTYPES[name]
        case {
            "kind": "array" | "scalar" as kind,
            "dtype": str(name),
            "shape": list(shape),
            "blob": int(blob),
        }:
            array = _decode_array(name, _shape(shape, path), blob, blobs, path)
            if kind == "array":
                return array
            if array.shape == ():
                return array[()]
    raise TreeError(f"{_at(path)}malformed tree: {str(tree)[:80]}")


def _decode_pairs(
    pairs: list[Any], blobs: Sequence[bytes], path: str, depth: int, keys: tuple[type, ...]
) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for pair in pairs:
        if not (isinstance(pair, list) and len(pair) == 2 and type(pair[0]) in keys) or pair[0] in found:
            raise TreeError(f"{_at(path)}malformed tree: bad or repeated key in {str(pair)[:80]}")
        found[pair[0]] = _decode(pair[1], blobs, path + _key(path, pair[0]), depth + 1)
    return found


def _decode_array(name: str, shape: tuple[int, ...], blob: int, blobs: Sequence[bytes], path: str) -> Array:
    if name not in DTYPES:
        raise TreeError(f"{_at(path)}malformed tree: unknown dtype {name[:80]!r}")
    if not 0 <= blob < len(blobs):
        raise TreeError(f"{_at(path)}malformed tree: no blob {blob}")
    expected = math.prod(shape) * DTYPES[name].itemsize
    if len(blobs[blob]) != expected:
        raise TreeError(
            f"{_at(path)}malformed tree: {len(blobs[blob])} bytes for {name} of shape {shape}, which has {expected}"
        )
    raw = np.frombuffer(blobs[blob], np.uint8)
    # Bits that a dtype does not use could make equal values differ.
    if name == "bool":
        raw = (raw != 0).view(np.uint8)
    elif name in _BITS:
        raw = raw & np.uint8((1 << _BITS[name]) - 1)
    array = raw.view(DTYPES[name]).reshape(shape)
    array.flags.writeable = False
    return array


def _shape(shape: list[Any], path: str) -> tuple[int, ...]:
    if len(shape) > 32 or not all(type(each) is int and 0 <= each < _SMALL_INT for each in shape):
        raise TreeError(f"{_at(path)}malformed tree: bad shape {str(shape)[:80]}")
    return tuple(shape)


def _children(tree: Any, path: str) -> list[tuple[str, Any]]:
    """What a container holds, each with its step of the path; nothing for anything else."""
    if isinstance(tree, ObjectNode):
        return _children(tree.fields, path)
    if isinstance(tree, dict):
        return [(_key(path, key), item) for key, item in tree.items()]
    if isinstance(tree, list | tuple):
        return [(f"[{i}]", item) for i, item in enumerate(tree)]
    return []


def _key(path: str, key: str | int) -> str:
    """One step of a path: ".scale" (no dot at the beginning), "['a b']", "[3]"."""
    if isinstance(key, str) and key.isidentifier():
        return f".{key}" if path else key
    return f"[{key!r}]"


def _at(path: str) -> str:
    return f"{path}: " if path else ""


def _type_name(cls: type) -> str:
    return cls.__name__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
