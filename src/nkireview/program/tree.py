"""The tree of a kernel's parameters: kernels take tensors, scalars and any nesting of containers of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

GROUPS = ("list", "tuple", "dict", "object")


@dataclass(frozen=True)
class TensorLeaf:
    """A tensor argument: the buffer that holds it."""

    buffer: int


@dataclass(frozen=True)
class ScalarLeaf:
    """A number, string, truth value or None, fixed at trace time."""

    value: bool | int | float | str | None


@dataclass(frozen=True)
class EnumLeaf:
    """A member of an enumeration: ``module:qualname`` and the member's name."""

    cls: str
    member: str


@dataclass(frozen=True)
class Group:
    """A list, tuple, dict, or instance of a class; `keys` are positions, dict keys or field names."""

    kind: str
    keys: tuple[str, ...]
    items: tuple[Node, ...]
    cls: str = ""

    def __post_init__(self) -> None:
        if self.kind not in GROUPS:
            raise ValueError(f"parameter group {self.kind!r} is not one of {', '.join(GROUPS)}")
        if len(self.keys) != len(self.items):
            raise ValueError(f"a {self.kind} of {len(self.items)} items has {len(self.keys)} keys")


Node = TensorLeaf | ScalarLeaf | EnumLeaf | Group
MAX_DEPTH = 64


def leaves(node: Node, path: str = "") -> Iterator[tuple[str, Node]]:
    """Every leaf with its dotted path, in order."""
    if isinstance(node, Group):
        for key, item in zip(node.keys, node.items, strict=True):
            yield from leaves(item, f"{path}.{key}" if path else key)
    else:
        yield path, node


def to_json(node: Node) -> Any:
    """Plain data for a node; non-finite floats are spelled as strings under ``f``."""
    if isinstance(node, TensorLeaf):
        return {"t": node.buffer}
    if isinstance(node, ScalarLeaf):
        return {"f": repr(node.value)} if isinstance(node.value, float) else {"s": node.value}
    if isinstance(node, EnumLeaf):
        return {"e": [node.cls, node.member]}
    return {"g": node.kind, "k": list(node.keys), "i": [to_json(item) for item in node.items], "c": node.cls}


def from_json(data: Any, depth: int = 0) -> Node:
    """The node of `to_json`; ValueError names what is malformed."""
    if depth > MAX_DEPTH:
        raise ValueError(f"the parameter tree is deeper than {MAX_DEPTH}")
    if not isinstance(data, dict):
        raise ValueError(f"a parameter node is a {type(data).__name__}, expected an object")
    if "t" in data:
        return TensorLeaf(_typed(data["t"], int))
    if "f" in data:
        return ScalarLeaf(float(_typed(data["f"], str)))
    if "s" in data:
        value = data["s"]
        if value is not None and not isinstance(value, bool | int | str):
            raise ValueError(f"a scalar parameter is a {type(value).__name__}")
        return ScalarLeaf(value)
    if "e" in data:
        cls, member = _typed(data["e"], list)
        return EnumLeaf(_typed(cls, str), _typed(member, str))
    if "g" in data:
        keys = tuple(_typed(key, str) for key in _typed(data.get("k"), list))
        items = tuple(from_json(item, depth + 1) for item in _typed(data.get("i"), list))
        return Group(_typed(data["g"], str), keys, items, _typed(data.get("c", ""), str))
    raise ValueError(f"a parameter node has the keys {sorted(data)}")


def _typed(value: Any, kind: type) -> Any:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ValueError(f"a parameter node holds a {type(value).__name__} where a {kind.__name__} belongs")
    return value
