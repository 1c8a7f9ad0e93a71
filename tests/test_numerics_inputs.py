"""Input specifications: reading them, drawing values, and the hostile variants."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nkireview.isa import dtypes
from nkireview.numerics import arrays
from nkireview.numerics.hostile import HOSTILE, HostileFigures, hostile
from nkireview.numerics.inputs import (
    FORMS,
    SHORT_DTYPES,
    Distribution,
    InputError,
    Spec,
    draw,
    draw_all,
    parse_distribution,
    parse_input,
)

BF16 = np.dtype(ml_dtypes.bfloat16)


def spec(text: str) -> Spec:
    value = parse_input(f"x={text}")[1]
    assert isinstance(value, Spec)
    return value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x=bf16[4096,2048]", ("x", Spec("bfloat16", (4096, 2048), Distribution("normal")))),
        ("x = f32[ 4 , 8 ] : uniform(0, 1)", ("x", Spec("float32", (4, 8), Distribution("uniform", (0, 1))))),
        ("w=fp8[128]:ones", ("w", Spec("float8_e4m3", (128,), Distribution("ones")))),
        ("s=float8_e8m0fnu[4]", ("s", Spec("float8_e8m0fnu", (4,), Distribution("positive")))),
        ("i=i32[64]", ("i", Spec("int32", (64,), Distribution("integers", (0, 100))))),
        ("m=bool[2,3]", ("m", Spec("bool_", (2, 3), Distribution("mask")))),
        ("eps=1e-6", ("eps", 1e-6)),
        ("a=-.5", ("a", -0.5)),
        ("n=4", ("n", 4)),
        ("n=-7", ("n", -7)),
        ("causal=true", ("causal", True)),
        ("causal=False", ("causal", False)),
        ("name=none", ("name", None)),
        ("mode='str'", ("mode", "str")),
        ('mode="a=b"', ("mode", "a=b")),
    ],
)
def test_parse(text: str, expected: Any) -> None:
    assert parse_input(text) == expected
    assert type(parse_input(text)[1]) is type(expected[1])


@given(
    short=st.sampled_from(sorted(SHORT_DTYPES)),
    shape=st.lists(st.integers(1, 9), min_size=1, max_size=4),
)
def test_every_short_dtype_parses_and_draws(short: str, shape: list[int]) -> None:
    parsed = spec(f"{short}{shape}")
    dtype = dtypes.of(SHORT_DTYPES[short])
    values = draw(parsed, seed=1, name="x")
    assert parsed.dtype == dtype.name
    assert values.shape == tuple(shape)
    assert values.dtype == dtype.storage


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "x",
            "input 'x' has no value: write name=dtype[shape] or name=scalar, "
            "for example x=bf16[4096,2048] or eps=1e-6",
        ),
        (
            "x=",
            "input 'x=' has no value: write name=dtype[shape] or name=scalar, "
            "for example x=bf16[4096,2048] or eps=1e-6",
        ),
        ("2x=4", "input '2x=4': '2x' is no parameter name, expected a Python identifier"),
        (
            "x=bf17[4]",
            "input x: 'bf17' is no dtype: expected one of bf16, f16, fp16, f32, fp32, tf32, fp8, fp8_e4m3, "
            "fp8_e4m3fn, fp8_e5m2, i8, i16, i32, u8, u16, u32, bool, or an NKI name such as bfloat16",
        ),
        (
            "x=float4_e2m1fn_x4[4]",
            "input x: float4_e2m1fn_x4 packs several elements and cannot be drawn: give its stored integers",
        ),
        (
            "x=f32[]",
            "input x: [] is no shape: expected whole numbers separated by commas, for example [4096,2048]; "
            "a scalar is written without brackets",
        ),
        (
            "x=f32[4,-1]",
            "input x: [4,-1] is no shape: expected whole numbers separated by commas, "
            "for example [4096,2048]; a scalar is written without brackets",
        ),
        ("x=f32[4,0]", "input x: shape [4, 0]: expected one or more sizes of at least 1"),
        (
            "x=f32[4096,4096,4096]",
            "input x: shape [4096, 4096, 4096] has 68,719,476,736 elements: the limit is 2,147,483,648",
        ),
        (
            "x=f32[4]:gauss",
            "input x: 'gauss' is no distribution: expected one of normal, uniform, positive, zeros, ones, "
            "constant, integers, arange, permutation, onehot, mask",
        ),
        (
            "x=f32[4]:uniform(0",
            "input x: 'uniform(0' is no distribution: expected name or name(a,b), for example uniform(0,1)",
        ),
        ("x=f32[4]:uniform(0,b)", "input x: 'uniform(0,b)': 'b' is no number"),
        ("x=f32[4]:uniform(3)", "input x: uniform(3): expected uniform(low,high)"),
        ("x=f32[4]:constant", "input x: constant: expected constant(value)"),
        ("x=f32[4]:ones(2)", "input x: ones(2): expected ones"),
        ("x=f32[4]:uniform(1,0)", "input x: uniform(1,0): expected low below high"),
        ("x=f32[4]:normal(0,0)", "input x: normal(0,0): expected a deviation above 0"),
        ("x=f32[4]:constant(nan)", "input x: constant(nan): expected finite parameters"),
        ("x=bool[4]:mask(1.5)", "input x: mask(1.5): expected a probability from 0 to 1"),
        (
            "x=i32[4]:integers(0,1.5)",
            "input x: integers(0,1.5): expected whole numbers with low below high (high itself is not drawn)",
        ),
        (
            "x=i32[4]:normal",
            "input x: normal cannot be drawn as int32: expected one of zeros, ones, constant, integers, "
            "arange, permutation, onehot, mask",
        ),
        (
            "x=u8[4]:integers(-1,3)",
            "input x: integers(-1,3) in rows of 4 gives -1 to 2, and uint8 holds whole numbers from 0 to "
            "255: choose a wider dtype or a smaller range",
        ),
        (
            "x=i8[4]:constant(2.5)",
            "input x: constant(2.5) in rows of 4 gives 2.5 to 2.5, and int8 holds whole numbers from -128 to "
            "127: choose a wider dtype or a smaller range",
        ),
        (
            "x=bf16[4,1024]:permutation",
            "input x: permutation in rows of 1024 gives 0 to 1023, and bfloat16 holds whole numbers from "
            "-256 to 256: choose a wider dtype or a smaller range",
        ),
        (
            "x=what",
            "input x: cannot read 'what': expected dtype[shape], an integer, a float, true, false, none "
            "or a 'quoted string'",
        ),
    ],
)
def test_refusals(text: str, message: str) -> None:
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        parse_input(text)


def test_values_outside_the_dtype_are_refused_when_drawn() -> None:
    wide = Spec("float8_e4m3", (64, 64), Distribution("normal", (0.0, 1e4)))
    with pytest.raises(InputError, match=r"^normal\(0,10000\) gives values that float8_e4m3 cannot hold$"):
        draw(wide, seed=0)


def test_the_same_seed_and_name_draw_the_same_values_and_others_do_not() -> None:
    one = spec("bf16[64,64]")
    base = draw(one, 7, "x")
    assert np.array_equal(base, draw(one, 7, "x"))
    assert not np.array_equal(base, draw(one, 8, "x"))
    assert not np.array_equal(base, draw(one, 7, "y"))
    drawn = draw_all({"x": one, "y": one, "n": 4}, 7)
    assert np.array_equal(np.asarray(drawn["x"]), base)
    assert not np.array_equal(np.asarray(drawn["y"]), base)
    assert drawn["n"] == 4


def test_values_are_float64_draws_rounded_once() -> None:
    wide = np.random.default_rng([3, 0]).normal(0, 1, (1, 4096))
    expected = wide.astype(np.float16).reshape(64, 64)
    assert np.array_equal(draw(spec("f16[64,64]"), 3), expected)


@pytest.mark.parametrize("kind", sorted(FORMS))
def test_drawing_covers_every_block(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "BLOCK_ELEMENTS", 100)
    parameters = {"constant": (3.0,), "integers": (1.0, 5.0)}.get(kind, ())
    values = draw(Spec("float32", (31, 17), Distribution(kind, parameters)), 0).astype(np.float64)
    if kind in ("normal", "uniform"):
        assert np.unique(values).size > 500
        assert abs(values.mean() - (0.5 if kind == "uniform" else 0.0)) < 0.15
        assert abs(values.std() - (12**-0.5 if kind == "uniform" else 1.0)) < 0.15
    elif kind == "positive":
        assert values.min() >= 2**-4
    elif kind in ("zeros", "ones", "constant"):
        assert np.all(values == {"zeros": 0, "ones": 1, "constant": 3}[kind])
    elif kind == "integers":
        assert set(values.reshape(-1)) == {1, 2, 3, 4}
    elif kind == "arange":
        assert np.array_equal(values, np.tile(np.arange(17), (31, 1)))
    elif kind == "permutation":
        assert np.array_equal(np.sort(values, axis=1), np.tile(np.arange(17), (31, 1)))
        assert np.unique(values, axis=0).shape[0] == 31
    elif kind == "onehot":
        assert np.array_equal(values.sum(axis=1), np.ones(31))
        assert set(values.reshape(-1)) == {0, 1}
        assert np.unique(values.argmax(axis=1)).size > 5
    else:
        assert set(values.reshape(-1)) == {0, 1}
        assert 0.35 < values.mean() < 0.65


def test_integers_cover_the_whole_range_of_the_dtype() -> None:
    values = draw(spec("i8[10000]:integers(-128,128)"), 0)
    assert (values.min(), values.max()) == (-128, 127)
    assert draw(spec("u32[4]:constant(4294967295)"), 0)[0] == 2**32 - 1


def test_a_distribution_reads_back_what_it_prints() -> None:
    for text in ("normal", "uniform(-1,1)", "integers(0,8)"):
        assert str(parse_distribution(text)) == text


def test_scale_and_mean_change_floats_only() -> None:
    x = draw(spec("bf16[8,64]"), 0)
    index = draw(spec("i32[8]"), 0)
    for kind, expected in (("scale-100", x.astype(float) * 100), ("large-mean", x.astype(float) + 100)):
        args = hostile({"x": x, "index": index}, kind)
        assert args is not None
        assert args["index"] is index
        assert args["x"].dtype == BF16
        assert np.array_equal(args["x"], expected.astype(BF16))


def test_tiny_rows_leave_the_other_rows_and_single_rows_alone() -> None:
    x = draw(spec("f32[10,3,64]"), 0)
    weight = draw(spec("f32[64]"), 0)
    args = hostile({"x": x, "weight": weight}, "tiny-rows", HostileFigures(eps=1e-4))
    assert args is not None
    assert args["weight"] is weight
    rows, before = args["x"].reshape(30, 64).astype(float), x.reshape(30, 64)
    tiny = np.arange(30) % 4 == 1
    assert np.array_equal(rows[~tiny], before[~tiny])
    assert np.sqrt(np.mean(rows[tiny] ** 2, axis=1)) == pytest.approx(1e-5)  # 1e-3 * sqrt(1e-4)


def test_hostile_values_stay_in_the_range_of_the_dtype() -> None:
    x = draw(spec("fp8[64,64]"), 0)
    args = hostile({"x": x}, "scale-100")
    assert args is not None
    assert args["x"].astype(float).max() == 240


@pytest.mark.parametrize("kind", sorted(HOSTILE))
def test_a_variant_that_changes_nothing_is_none(kind: str) -> None:
    assert hostile({"i": np.arange(8).reshape(2, 4), "b": np.ones(4, bool)}, kind) is None
    assert hostile({}, kind) is None


def test_tiny_rows_need_more_than_one_row() -> None:
    assert hostile({"x": np.ones((1, 8), np.float32)}, "tiny-rows") is None


def test_unknown_variants_are_refused() -> None:
    with pytest.raises(
        ValueError,
        match=r"^'huge' is no hostile variant: expected one of scale-100, tiny-rows, large-mean, ",
    ):
        hostile({}, "huge")
