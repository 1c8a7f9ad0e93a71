"""The tagged tree: values come back as they were, hostile trees are refused, and paths are the same every time."""

from __future__ import annotations

import collections
import dataclasses
import enum
import json
import math
import re
import sys
import threading
import types
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nkireview.runner import tree
from nkireview.runner.tree import EnumNode, ObjectNode, TreeError, decode, encode, leaves, map_leaves, rebuild

HERE = __name__
Array = np.ndarray[Any, Any]


class Mode(enum.Enum):
    fast = 1
    pair = (1, 2)


class Level(enum.IntEnum):
    high = 7


class Text(str):
    """A string of a class of its own, as dtypes of kernel languages are."""


@dataclasses.dataclass
class Config:
    scale: Any
    name: str = "x"
    made: list[int] = dataclasses.field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.made = [1]


@dataclasses.dataclass(frozen=True)
class Slotted:
    __slots__ = ("first", "second")
    first: Any
    second: Any


class Private:
    __slots__ = ("__hidden",)

    def __init__(self, hidden: Any) -> None:
        self.__hidden = hidden

    def hidden(self) -> Any:
        return self.__hidden


class Plain:
    def __init__(self) -> None:
        raise AssertionError("rebuilding must not call __init__")

    class Inner:
        pass


class Pair(NamedTuple):
    left: Any
    right: Any


def carried(value: Any) -> Any:
    """The value after the wire: through JSON text, as the other process sees it."""
    encoded, blobs = encode(value)
    return decode(json.loads(json.dumps(encoded, allow_nan=False)), blobs)


def same(left: Any, right: Any) -> bool:
    """Equality in which types count, NaN equals NaN, and arrays are compared by bytes."""
    if type(left) is not type(right):
        return False
    if isinstance(left, np.ndarray | np.generic):
        return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()
    if isinstance(left, float):
        both_nan = left != left and right != right
        return both_nan or (left == right and math.copysign(1, left) == math.copysign(1, right))
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    return bool(left == right)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.builds(lambda n, d: np.arange(n).astype(d), st.integers(0, 5), st.sampled_from(sorted(tree.DTYPES))),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers(-5, 5), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(VALUES)
def test_round_trip(value: Any) -> None:
    assert same(carried(value), value)
    assert same(rebuild(carried(value), np.array), value)
    assert same(carried(carried(value)), value)


@given(VALUES)
def test_leaves_and_map_leaves_agree(value: Any) -> None:
    seen: list[Array] = []
    map_leaves(value, seen.append)
    assert [id(array) for _, array in leaves(value)] == [id(array) for array in seen]
    assert same(map_leaves(value, lambda array: array), value)


@pytest.mark.parametrize("name", sorted(tree.DTYPES))
def test_every_dtype(name: str) -> None:
    dtype = np.dtype(name) if hasattr(np, name) or name == "bool" else np.dtype(getattr(ml_dtypes, name))
    array = np.array([[0, 1], [1, 1]]).astype(dtype)
    found = carried([array, array[0, 1], np.zeros((0, 3), dtype)])
    assert all(each.dtype == dtype for each in found)
    assert found[0].shape == (2, 2) and found[0].tobytes() == array.tobytes()
    assert isinstance(found[1], np.generic) and complex(found[1]) == 1
    assert found[2].shape == (0, 3)


def test_what_the_language_leaves_are() -> None:
    assert {"bfloat16", "float8_e4m3fn", "float8_e4m3", "float8_e5m2", "float4_e2m1fn", "int4"} <= set(
        tree.DTYPES
    )
    assert {"float16", "float32", "float64", "bfloat16", "float8_e4m3", "float8_e5m2"} <= tree.FLOATS
    assert not tree.FLOATS & {"int32", "bool", "complex64", "int4"}


def test_strides_and_byte_order_do_not_matter() -> None:
    array = np.arange(12, dtype=">f4").reshape(3, 4)
    assert np.array_equal(carried(array.T[::2]), np.arange(12).reshape(3, 4).T[::2])
    assert carried(array).dtype == np.dtype("float32")


def test_decoded_arrays_are_read_only_and_rebuilt_ones_are_not() -> None:
    with pytest.raises(ValueError, match="read-only"):
        carried(np.ones(2))[0] = 3
    rebuilt = rebuild(carried(np.ones(2)), np.array)
    rebuilt[0] = 3
    assert rebuilt.tolist() == [3, 1]


def test_subclasses_of_plain_values_travel_as_plain_values() -> None:
    found = carried([Text("bfloat16"), np.str_("a"), np.float64(2.0)])
    assert [type(each) for each in found] == [str, str, np.float64]
    assert found == ["bfloat16", "a", 2.0]


def test_dtypes() -> None:
    found = carried([np.float32, np.dtype("int8"), ml_dtypes.bfloat16])
    assert found == [np.dtype("float32"), np.dtype("int8"), np.dtype(ml_dtypes.bfloat16)]


def test_objects_and_enums_are_nodes_in_the_parent() -> None:
    found = carried({"config": Config(np.float32(2), "y"), "mode": Mode.pair, "level": Level.high})
    assert found["config"] == ObjectNode(f"{HERE}:Config", {"scale": np.float32(2), "name": "y", "made": [1]})
    assert found["mode"] == EnumNode(f"{HERE}:Mode", "pair", None)
    assert found["level"] == EnumNode(f"{HERE}:Level", "high", 7)


def test_rebuilding_gives_the_users_own_objects() -> None:
    plain = object.__new__(Plain)
    plain.__dict__.update(weight=np.ones(2), inner=Plain.Inner())
    value = [Config([1], "y"), Slotted(1, (2,)), Private(5), plain, Pair(1, [2]), Mode.fast, Level.high]
    found = rebuild(carried(value), np.array)
    assert found[0] == value[0] and found[1] == value[1]
    assert found[2].hidden() == 5
    assert type(found[3]) is Plain and type(found[3].inner) is Plain.Inner
    assert found[3].weight.tolist() == [1, 1]
    assert found[4] == Pair(1, [2]) and type(found[4]) is Pair
    assert found[5] is Mode.fast and found[6] is Level.high


def test_a_decoded_tree_can_be_sent_on() -> None:
    value = carried([Config(np.ones(3)), Mode.fast])
    again = carried(value)
    assert again[1] == value[1]
    assert leaves(again)[0][0] == leaves(value)[0][0] == "[0].scale"


def test_classes_of_the_users_module_come_first() -> None:
    module = types.ModuleType("a_module_that_is_not_registered")
    exec("class Config:\n    pass", module.__dict__)
    node = ObjectNode("a_module_that_is_not_registered:Config", {"x": 1})
    assert type(rebuild(node, np.array, module)) is module.__dict__["Config"]
    with pytest.raises(
        TreeError, match=r"^a\.b: class a_module_that_is_not_registered:Config cannot be imported: "
    ):
        rebuild({"b": node}, np.array, None, "a")


def test_paths() -> None:
    array = np.zeros(1)
    value = {"x": array, "options": {"a b": [array], 3: array}, "c": Config(array), "last": (array, array)}
    expected = ["x", "options['a b'][0]", "options[3]", "c.scale", "last[0]", "last[1]"]
    assert [path for path, _ in leaves(carried(value))] == expected
    assert [path for path, _ in leaves(carried([value]), "inputs")][3] == "inputs[0].c.scale"


def _generator() -> Any:
    yield 1


def _local() -> Any:
    class Local:
        pass

    return Local()


def _cycle() -> Any:
    value: list[Any] = []
    value.append(value)
    return [0, value]


def _deep() -> Any:
    value: Any = []
    for _ in range(101):
        value = [value]
    return value


EXPECTED = (
    "expected None, truth values, numbers, strings, arrays, dtypes, lists, tuples, dicts with str or int keys, "
    "dataclasses, plain objects and enums"
)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: [0, 1, Config(_generator())],
            f"inputs[2].scale: cannot carry a value of type generator; {EXPECTED}",
        ),
        (lambda: len, f"inputs: cannot carry a value of type builtin_function_or_method; {EXPECTED}"),
        (lambda: {"f": _generator}, f"inputs.f: cannot carry a value of type function; {EXPECTED}"),
        (lambda: Config, f"inputs: cannot carry a value of type type; {EXPECTED}"),
        (lambda: [{1}], f"inputs[0]: cannot carry a value of type set; {EXPECTED}"),
        (lambda: object(), f"inputs: cannot carry a value of type object; {EXPECTED}"),
        (lambda: b"x", f"inputs: cannot carry a value of type bytes; {EXPECTED}"),
        (lambda: threading.Lock(), f"{EXPECTED}"),
        (
            lambda: collections.OrderedDict(a=1),
            f"inputs: cannot carry a value of type collections.OrderedDict; {EXPECTED}",
        ),
        (
            lambda: np.ma.ones(2),
            f"inputs: cannot carry a value of type numpy.ma.MaskedArray; {EXPECTED}",
        ),
        (lambda: {(1, 2): 3}, "inputs: cannot carry a dict key of type tuple; expected str or int"),
        (lambda: {True: 3}, "inputs: cannot carry a dict key of type bool; expected str or int"),
        (lambda: [np.array(["a"])], "inputs[0]: cannot carry an array of dtype str32"),
        (lambda: np.array([None]), "inputs: cannot carry an array of dtype object"),
        (lambda: np.datetime64("2020"), "inputs: cannot carry an array of dtype datetime64[Y]"),
        (
            _local,
            "inputs: class Local is defined inside a function, so that no other process can import it; "
            "define it at the top of its file",
        ),
        (_cycle, "inputs[1][0]: a value that contains itself cannot be carried"),
        (_deep, "more than 100 levels of nesting cannot be carried"),
    ],
)
def test_what_cannot_be_carried(make: Any, message: str) -> None:
    with pytest.raises(TreeError, match=re.escape(message)):
        encode(make(), "inputs")


@pytest.mark.parametrize(
    ("encoded", "blobs", "message"),
    [
        (
            {"kind": "array", "dtype": "float32", "shape": [2], "blob": 0},
            [bytes(7)],
            "7 bytes for float32 of shape",
        ),
        (
            {"kind": "array", "dtype": "float32", "shape": [1 << 62, 4], "blob": 0},
            [b""],
            "0 bytes for float32",
        ),
        ({"kind": "array", "dtype": "float32", "shape": [1 << 63, 0], "blob": 0}, [b""], "bad shape"),
        ({"kind": "array", "dtype": "float32", "shape": [-1], "blob": 0}, [b""], "bad shape"),
        ({"kind": "array", "dtype": "float32", "shape": [True], "blob": 0}, [bytes(4)], "bad shape"),
        ({"kind": "array", "dtype": "float32", "shape": [1] * 33, "blob": 0}, [bytes(4)], "bad shape"),
        ({"kind": "array", "dtype": "float32", "shape": [], "blob": 1}, [bytes(4)], "no blob 1"),
        ({"kind": "array", "dtype": "float32", "shape": [], "blob": -1}, [bytes(4)], "no blob -1"),
        ({"kind": "array", "dtype": "object", "shape": [1], "blob": 0}, [bytes(8)], "unknown dtype 'object'"),
        ({"kind": "scalar", "dtype": "float32", "shape": [1], "blob": 0}, [bytes(4)], "malformed tree"),
        ({"kind": "dict", "items": [["a", 1], ["a", 2]]}, [], "bad or repeated key"),
        ({"kind": "dict", "items": [[None, 1]]}, [], "bad or repeated key"),
        ({"kind": "dict", "items": [["a"]]}, [], "bad or repeated key"),
        ({"kind": "object", "class": "os:system x", "fields": []}, [], "malformed tree"),
        ({"kind": "object", "class": "m:C", "fields": [[1, 2]]}, [], "bad or repeated key"),
        ({"kind": "enum", "class": "m:C", "name": "a", "value": [1]}, [], "malformed tree"),
        ({"kind": "float", "value": "1.5"}, [], "malformed tree"),
        ({"kind": "int", "value": "12"}, [], "malformed tree"),
        ({"kind": "surprise"}, [], "malformed tree"),
        ({"x": 1}, [], "malformed tree"),
        (b"bytes", [], "malformed tree"),
        ([[{"kind": "tuple", "items": 3}]], [], r"result\[0\]\[0\]: malformed tree"),
    ],
)
def test_malformed_trees(encoded: Any, blobs: list[bytes], message: str) -> None:
    with pytest.raises(TreeError, match=message):
        decode(encoded, blobs, "result")


def test_a_tree_that_is_too_deep() -> None:
    deep: Any = 1
    for _ in range(200):
        deep = [deep]
    with pytest.raises(TreeError, match="more than 100 levels of nesting"):
        decode(deep, [])


def test_bits_that_a_dtype_does_not_use_are_cleared() -> None:
    truth = decode({"kind": "array", "dtype": "bool", "shape": [3], "blob": 0}, [b"\x00\x01\xff"])
    assert truth.tobytes() == b"\x00\x01\x01"
    four = decode({"kind": "array", "dtype": "int4", "shape": [2], "blob": 0}, [b"\xff\x71"])
    assert four.tobytes() == np.array([-1, 1], ml_dtypes.int4).tobytes()


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (ObjectNode("no_such_module_here:C", {}), "class no_such_module_here:C cannot be imported"),
        (ObjectNode("math:nothing", {}), "class math:nothing cannot be imported"),
        (ObjectNode("math:sqrt", {}), "math:sqrt is not a class"),
        (EnumNode(f"{HERE}:Mode", "slow", None), "Mode has no enum member 'slow'"),
        (EnumNode(f"{HERE}:Config", "slow", None), "Config has no enum member 'slow'"),
    ],
)
def test_what_cannot_be_rebuilt(node: Any, message: str) -> None:
    with pytest.raises(TreeError, match=message):
        rebuild(node, np.array)


class FakeTensor:
    """As much of a torch tensor as `encode` uses, over a NumPy array of its bits."""

    def __init__(self, array: Array, dtype: str) -> None:
        self.array = array
        self.dtype = f"torch.{dtype}"

    def detach(self) -> FakeTensor:
        return self

    cpu = contiguous = detach

    def view(self, raw: str) -> FakeTensor:
        return FakeTensor(self.array.view(raw), raw)

    def numpy(self) -> Array:
        return self.array


def test_torch_tensors_become_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = types.ModuleType("torch")
    torch.__dict__.update(Tensor=FakeTensor, int16="int16", uint8="uint8")
    monkeypatch.setitem(sys.modules, "torch", torch)
    single = np.array([1.5, -2], np.float32)
    half = single.astype(ml_dtypes.bfloat16)
    found = carried([FakeTensor(single, "float32"), FakeTensor(half.view(np.uint16), "bfloat16")])
    assert same(found, [single, half])
    with pytest.raises(TreeError, match=r"cannot carry a tensor of dtype torch\.qint8"):
        encode(FakeTensor(single, "qint8"))
