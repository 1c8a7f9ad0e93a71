"""NKIObject's class rules and the dtypes' equality, as the language guide and the design state them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np
import pytest

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
