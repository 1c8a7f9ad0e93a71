"""execute: what unwritten memory holds never reaches an element that is called defined."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from execute_kit import Kernel, View, counted
from hypothesis import given, settings
from hypothesis import strategies as st

from nkireview.execute import Poison, execute, storage
from nkireview.isa import dtypes

P, F = 3, 4
DTYPES = ("float32", "bfloat16", "int32")


def test_the_patterns_in_every_dtype() -> None:
    for kind in dtypes.DATA_TYPES:
        held = {
            poison: np.full(kind.storage.itemsize, poison.value, np.uint8).view(kind.storage)
            for poison in Poison
        }
        if kind.kind == "float":
            assert np.isnan(held[Poison.nan].astype(np.float32)).all(), kind.name
            assert np.isfinite(held[Poison.finite].astype(np.float32)).all(), kind.name
        elif kind.kind in ("int", "uint"):
            assert held[Poison.nan][0] != held[Poison.finite][0]


@st.composite
def kernels(draw: st.DrawFn) -> list[tuple[Any, ...]]:
    """Instructions over six tiles, written down so that a kernel can be made of them more than once."""
    tile = st.integers(0, 5)
    rows = st.tuples(st.integers(0, P - 1), st.integers(1, P)).filter(lambda pair: pair[0] < pair[1])
    columns = st.tuples(st.integers(0, F - 1), st.integers(1, F)).filter(lambda pair: pair[0] < pair[1])
    op = st.sampled_from(["add", "multiply", "maximum", "subtract"])
    step = st.one_of(
        st.tuples(st.just("load"), tile, rows, columns),
        st.tuples(st.just("fill"), tile, rows, columns),
        st.tuples(st.just("copy"), tile, tile, rows, columns),
        st.tuples(st.just("binary"), tile, tile, tile, op),
        st.tuples(st.just("vector"), tile, tile, tile, op),
        st.tuples(st.just("reduce"), tile, tile, st.sampled_from(["add", "maximum"])),
        st.tuples(st.just("scan"), tile, tile, tile),
        st.tuples(st.just("matmul"), tile, tile, columns, st.sampled_from([None, False, True])),
        st.tuples(st.just("transpose"), tile, tile),
        st.tuples(st.just("select"), tile, tile, st.sampled_from(["less", "greater_equal"])),
        st.tuples(st.just("activate"), tile, tile, st.sampled_from(["reduce", "reset_reduce"])),
    )
    return draw(st.lists(step, min_size=1, max_size=12))


def build(steps: list[tuple[Any, ...]], addressed: bool, kinds: tuple[str, ...], target: str) -> Kernel:
    kernel = Kernel(target)
    tiles = []
    for at in range(6):
        kind = kinds[at % len(kinds)]
        width = F * (2 if kind == "bfloat16" else 4)
        # neighbours overlap by half
        tiles.append(kernel.sbuf(P, F, dtype=kind, address=(at % 2, at * width // 2) if addressed else None))
    bank = kernel.psum(F, F)
    argument = kernel.argument(counted(P, F) * 3 % 7 - 2)
    for name, *parts in steps:
        step(kernel, tiles, bank, argument, name, parts)
    for tile in tiles:
        kernel.store(tile)
    moved = kernel.sbuf(F, F)
    kernel.copy(moved, bank)
    kernel.store(moved)
    return kernel


def step(kernel: Kernel, tiles: list[View], bank: View, argument: View, name: str, parts: list[Any]) -> None:
    dst = tiles[parts[0]]
    if name in ("load", "fill"):
        (top, bottom), (left, right) = parts[1:]
        area = slice(top, bottom), slice(left, right)
        if name == "load":
            kernel.copy(dst[area], argument[area])
        else:
            kernel.call("memset", dst=dst[area], value=1)
        return
    src = tiles[parts[1]]
    if name == "copy":
        (top, bottom), (left, right) = parts[2:]
        kernel.copy(dst[top:bottom, left:right], src[top:bottom, left:right])
    elif name == "binary":
        kernel.call("tensor_tensor", dst=dst, data1=src, data2=tiles[parts[2]], op=parts[3])
    elif name == "vector":
        kernel.call("tensor_scalar", dst=dst, data=src, op0=parts[3], operand0=tiles[parts[2]][:, 0:1])
    elif name == "reduce":
        kernel.call("tensor_reduce", dst=dst[:, 1:2], op=parts[2], data=src, axis=1)
    elif name == "scan":
        scanned = {"data0": src, "data1": tiles[parts[2]], "initial": 0.0, "op0": "multiply", "op1": "add"}
        kernel.call("tensor_tensor_scan", dst=dst, **scanned)
    elif name == "matmul":
        left, right = parts[2]
        kernel.matmul(bank[:, left:right], dst, src[:, left:right], accumulate=parts[3])
    elif name == "transpose":
        turned = kernel.psum(F, P)
        kernel.call("nc_transpose", dst=turned, data=src)
        kernel.copy(dst[:, 0:P], turned[0:P])
    elif name == "select":
        kernel.call(
            "affine_select",
            dst=dst,
            pattern=((1, F),),
            offset=-1,
            channel_multiplier=-1,
            on_true_tile=src,
            on_false_value=5.0,
            cmp_op=parts[2],
        )
    else:
        given = {"op": "copy", "data": src, "scale": 1.0, "reduce_op": "add", "reduce_cmd": parts[2]}
        kernel.call("activation", dst=dst, reduce_res=tiles[(parts[0] + 1) % 6][:, 2:3], **given)


@settings(max_examples=150, deadline=None)
@given(kernels(), st.booleans(), st.permutations(DTYPES), st.sampled_from(["trn1", "trn2", "trn3"]))
def test_defined_values_do_not_depend_on_the_poison(
    steps: list[tuple[Any, ...]], addressed: bool, kinds: list[str], target: str
) -> None:
    kernel = build(steps, addressed, tuple(kinds), target)
    program = kernel.program()
    first, second = (execute(program, kernel.arguments, poison=poison) for poison in Poison)
    assert [(f.kind, f.instruction, f.count) for f in first.faults] == [
        (f.kind, f.instruction, f.count) for f in second.faults
    ]
    for one, other in zip(first.outputs, second.outputs, strict=True):
        defined = np.ones(one.values.shape, bool) if one.written is None else one.written
        np.testing.assert_array_equal(defined, True if other.written is None else other.written)
        # NumPy takes the NaN of two bfloat16 arrays to differ.
        held = (output.values[defined].astype(np.float64) for output in (one, other))
        np.testing.assert_array_equal(*held)
        assert one.last_writers == other.last_writers


@settings(max_examples=60, deadline=None)
@given(kernels(), st.permutations(DTYPES))
def test_where_everything_is_written_everything_is_defined(
    steps: list[tuple[Any, ...]], kinds: list[str]
) -> None:
    whole = [("load", at, (0, P), (0, F)) for at in range(6)]
    steps = [(*step[:-1], False) if step[0] == "matmul" else step for step in steps]
    execution = build([*whole, ("matmul", 0, 1, (0, F), False), *steps], False, tuple(kinds), "trn2").run()
    assert execution.faults == () and all(output.written is None for output in execution.outputs)


@settings(max_examples=60, deadline=None)
@given(kernels(), st.permutations(DTYPES))
def test_poison_that_is_filled_in_late_is_the_same(steps: list[tuple[Any, ...]], kinds: list[str]) -> None:
    kernel = build(steps, False, tuple(kinds), "trn2")
    program = kernel.program()
    early = execute(program, kernel.arguments)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage, "LAZY_BYTES", 1)
        late = execute(program, kernel.arguments)
    for one, other in zip(early.outputs, late.outputs, strict=True):
        bits = f"u{one.values.dtype.itemsize}"
        np.testing.assert_array_equal(one.values.view(bits), other.values.view(bits))
        assert (one.written is None) == (other.written is None)
