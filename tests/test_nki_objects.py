"""NKIObject's class rules and the dtypes' equality, as the language guide and the design state them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np
import pytest
from nl_kernels import nl, run

from nkireview.nki.dtypes import ALL, of
from nkireview.nki.errors import Refusal
from nkireview.nki.objects import NKIObject


class Plain(NKIObject):
    x: int
    y: bool = False
    z = 3

    def toggle(self) -> None:
        self.y = not self.y


@dataclass
class Decorated(NKIObject):
    x: int
    y: bool = False
    z = 3

    def toggle(self) -> None:
        self.y = not self.y


@pytest.mark.oracle("nl.NKIObject", "nl.NKIObject.__init__")
@pytest.mark.parametrize("kind", [Plain, Decorated])
def test_fields_are_synthesised_with_or_without_dataclass(kind: type) -> None:
    made = kind(1)
    made.toggle()
    assert (made.x, made.y, made.z) == (1, True, 3)
    assert kind().x is None
    assert kind(x=4, z=5).z == 5
    assert kind(1) == kind(1) and kind(1) != kind(2) and kind(1) != 1
    assert hash(made) == hash(made)
    with pytest.raises(TypeError, match=r"has no field 'w'; its fields are x, y, z"):
        kind(w=1)
    with pytest.raises(TypeError, match="takes 3 values"):
        kind(1, 2, 3, 4)
    with pytest.raises(TypeError, match="got two values for 'x'"):
        kind(1, x=2)


@pytest.mark.parametrize("decorate", [lambda cls: cls, dataclass])
def test_a_written_init_is_kept(decorate: object) -> None:
    class Own(NKIObject):
        a: int = 1

        def __init__(self, twice: int) -> None:
            self.a = 2 * twice

    assert decorate(Own)(3).a == 6  # type: ignore[operator]


@pytest.mark.parametrize("decorate", [lambda cls: cls, dataclass])
def test_post_init_runs(decorate: object) -> None:
    class Scope(NKIObject):
        start: int
        low: int | None = None

        def __post_init__(self) -> None:
            assert self.low is None
            self.low = self.start

    assert decorate(Scope)(7).low == 7  # type: ignore[operator]


def test_dataclass_fields_and_factories_are_read() -> None:
    @dataclass
    class Config(NKIObject):
        shape: tuple[int, ...] = dataclasses.field()
        names: list[str] = field(default_factory=list)
        size: int = dataclasses.field(default=4)

    one, two = Config(), Config()
    one.names.append("a")
    assert two.names == [] and one.size == 4 and one.shape is None


def test_factories_work_without_the_decorator_too() -> None:
    class Config(NKIObject):
        names: list[str] = field(default_factory=list)

    one, two = Config(), Config()
    one.names.append("a")
    assert two.names == []


def test_fields_are_inherited_in_order() -> None:
    class Base(NKIObject):
        a: int = 1

    class Child(Base):
        b: int = 2

        @property
        def total(self) -> int:
            return self.a + self.b

    assert Child(5, 6).total == 11 and Child().total == 3


def test_dtypes_equal_their_numpy_and_torch_spellings() -> None:
    class TorchDtype:
        def __str__(self) -> str:
            return "torch.bfloat16"

    bf16, fp32 = ALL["bfloat16"], ALL["float32"]
    assert fp32 == np.float32 and fp32 == np.dtype("float32") and fp32 == "float32" and fp32 != np.float16
    assert bf16 == ml_dtypes.bfloat16 and bf16 == "torch.bfloat16" and bf16 == TorchDtype()
    assert np.dtype(bf16) == np.dtype(ml_dtypes.bfloat16) and np.zeros(2, dtype=fp32).dtype == np.float32
    assert ALL["float8_e4m3"] == ml_dtypes.float8_e4m3 and ALL["float8_e4m3"] != ml_dtypes.float8_e4m3fn
    assert str(fp32) == "float32" and {fp32: 1}["float32"] == 1


def test_dtypes_without_a_numpy_dtype_equal_only_themselves() -> None:
    tf32, packed = ALL["tfloat32"], ALL["float8_e4m3fn_x4"]
    assert tf32 == "tfloat32" and tf32 != np.float32 and tf32 != ALL["float32"]
    assert packed == "float8_e4m3fn_x4" and packed != np.uint32
    for dtype in ALL.values():
        assert dtype != None  # noqa: E711


def test_dtypes_are_found_by_any_spelling() -> None:
    assert of(np.float32, "x") is ALL["float32"] and of("torch.float16", "x") is ALL["float16"]
    with pytest.raises(Refusal, match=r"nl\.ndarray: .*float64"):
        of(np.float64, "nl.ndarray")


def marked(*rows: tuple[str, int, object, float]) -> list[object]:
    return [pytest.param(*row, marks=pytest.mark.oracle(f"nl.{row[0]}")) for row in rows]


# Bytes and ranges as the stub of nki.language and nki/api/nki.api.shared.rst:10-55 state them; limits by ml_dtypes.
FORMATS = marked(
    ("bool_", 1, np.bool_, 1),
    ("int8", 1, np.int8, np.iinfo(np.int8).max),
    ("int16", 2, np.int16, np.iinfo(np.int16).max),
    ("int32", 4, np.int32, 2**24),
    ("uint8", 1, np.uint8, np.iinfo(np.uint8).max),
    ("uint16", 2, np.uint16, np.iinfo(np.uint16).max),
    ("uint32", 4, np.uint32, 2**24),
    ("float16", 2, np.float16, float(np.finfo(np.float16).max)),
    ("float32", 4, np.float32, float(np.finfo(np.float32).max)),
    ("bfloat16", 2, ml_dtypes.bfloat16, float(ml_dtypes.finfo(ml_dtypes.bfloat16).max)),
    ("float8_e4m3", 1, ml_dtypes.float8_e4m3, 240.0),
    ("float8_e4m3fn", 1, ml_dtypes.float8_e4m3fn, 448.0),
    ("float8_e5m2", 1, ml_dtypes.float8_e5m2, 57344.0),
    ("float8_e8m0fnu", 1, ml_dtypes.float8_e8m0fnu, 2.0**127),
)


@pytest.mark.parametrize(("name", "size", "numpy", "largest"), FORMATS)
def test_values_of_each_dtype(name: str, size: int, numpy: type, largest: float) -> None:
    """A load that casts stores what NumPy or ml_dtypes makes of the value, the largest included."""
    dtype = getattr(nl, name)
    assert dtype.itemsize == size and dtype == np.dtype(numpy)
    x = np.array([[1, 2, 4, largest]] if name != "bool_" else [[0, 1, 1, 0]], np.float32)
    got = run(lambda t: nl.load(t, dtype), x)
    assert got.dtype == np.dtype(numpy)
    np.testing.assert_array_equal(got, x.astype(numpy))
    np.testing.assert_array_equal(got.astype(np.float64), x)


@pytest.mark.oracle("nl.float8_e4m3", "nl.float8_e4m3fn", "nl.float8_e5m2", "nl.bfloat16", "nl.float16")
@pytest.mark.parametrize("name", ["float8_e4m3", "float8_e4m3fn", "float8_e5m2", "bfloat16", "float16"])
def test_floats_round_to_nearest_even(name: str) -> None:
    numpy = np.dtype(getattr(nl, name))
    x = np.random.default_rng(4).uniform(-200, 200, (16, 64)).astype(np.float32)
    np.testing.assert_array_equal(run(lambda t: nl.load(t, getattr(nl, name)), x), x.astype(numpy))


@pytest.mark.oracle("nl.tfloat32")
def test_tfloat32_keeps_eleven_significant_bits() -> None:
    """The stub: 1 sign, 8 exponent and 10 mantissa bits, in four bytes."""
    x = np.random.default_rng(4).uniform(-200, 200, (16, 64)).astype(np.float32)
    fraction, exponent = np.frexp(x.astype(np.float64))
    wanted = np.ldexp(np.rint(np.ldexp(fraction, 11)), exponent - 11)
    got = run(lambda t: nl.copy(nl.load(t, nl.tfloat32), nl.float32), x)
    np.testing.assert_array_equal(got.astype(np.float64), wanted)
    assert nl.tfloat32.itemsize == 4


@pytest.mark.parametrize(
    ("name", "size"),
    [
        pytest.param(name, size, marks=pytest.mark.oracle(f"nl.{name}"))
        for name, size in (("float8_e5m2_x4", 4), ("float8_e4m3fn_x4", 4), ("float4_e2m1fn_x4", 2))
    ],
)
def test_packed_dtypes_hold_four_elements(name: str, size: int) -> None:
    """nki/deep-dives/mxfp-matmul.rst:37: four 8-bit or 4-bit floats a value; a view of bytes counts them."""
    dtype = getattr(nl, name)
    assert dtype.itemsize == size

    def kernel(t: object) -> object:
        tile = nl.zeros((4, 8), dtype)
        assert tile.view(nl.uint8).shape == (4, 8 * size)
        return tile.view(nl.uint8)

    x = np.zeros((2, 2), np.float32)
    np.testing.assert_array_equal(run(kernel, x, target="trn3"), np.zeros((4, 8 * size)))


@pytest.mark.oracle("nl.DType")
def test_dtypes_are_strings() -> None:
    """The stub: ``DType = str``."""
    assert nl.DType is str and isinstance(nl.float32, nl.DType) and nl.bool_ == "bool"
