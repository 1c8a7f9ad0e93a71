"""Chains of views against NumPy on an index array, and addresses known on the device only, by hand from the guides."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nkireview.isa.enums import Memory
from nkireview.isa.release import Release
from nkireview.nki.errors import Refusal
from nkireview.nki.registers import VirtualRegister, fresh
from nkireview.nki.tensor import NkiTensor
from nkireview.nki.trace import Trace
from nkireview.nki.views import slice_of
from nkireview.program.access import Index

METHODS = (
    "slice",
    "select",
    "permute",
    "expand_dim",
    "squeeze_dim",
    "broadcast",
    "reshape_dim",
    "flatten_dims",
)
CHAIN = tuple(f"NkiTensor.{name}" for name in (*METHODS, "reshape", "rearrange", "__getitem__"))


def trace_of(release: str = "0.6", target: str = "trn2") -> Trace:
    return Trace(target, Release.parse(release))


def tensor(
    shape: tuple[int, ...],
    memory: Memory = Memory.shared_hbm,
    dtype: str = "float32",
    trace: Trace | None = None,
) -> NkiTensor:
    trace = trace or trace_of()
    return NkiTensor.whole(trace, trace.buffer(memory, shape, dtype, name="t"))


def addresses(view: NkiTensor) -> np.ndarray:
    grid = np.indices(view.shape) if view.shape else np.zeros((0,))
    parts = (stride * axis for stride, axis in zip(view.strides, grid, strict=True))
    return np.asarray(view.offset + sum(parts))


def bytes_of(view: NkiTensor) -> np.ndarray:
    """The byte that each byte of the view is, in order."""
    first = addresses(view)[..., None] * view.itemsize
    return (first + np.arange(view.itemsize)).reshape(*view.shape[:-1], -1)


Step = tuple[NkiTensor, np.ndarray]


def _sliced(draw: st.DrawFn, view: NkiTensor, array: np.ndarray) -> Step:
    dim = draw(st.integers(0, array.ndim - 1))
    start = draw(st.integers(0, array.shape[dim] - 1))
    stop = draw(st.integers(start + 1, array.shape[dim]))
    step = draw(st.integers(1, 3))
    key = [slice(None)] * array.ndim
    key[dim] = slice(start, stop, step)
    return view.slice(dim, start, stop, step), array[tuple(key)]


def _indexed(draw: st.DrawFn, view: NkiTensor, array: np.ndarray) -> Step:
    if array.ndim < 2:
        return view, array
    dim = draw(st.integers(0, array.ndim - 1))
    at = draw(st.integers(-array.shape[dim], array.shape[dim] - 1))
    if draw(st.booleans()):
        return view.select(dim, at), array[(*[slice(None)] * dim, at)]
    key = (..., at, *[slice(None)] * (array.ndim - 1 - dim))
    return view[key], array[key]


def _permuted(draw: st.DrawFn, view: NkiTensor, array: np.ndarray) -> Step:
    order = tuple(draw(st.permutations(range(array.ndim))))
    return view.permute(order), array.transpose(order)


def _grown(draw: st.DrawFn, view: NkiTensor, array: np.ndarray) -> Step:
    dim, size = draw(st.integers(0, array.ndim)), draw(st.integers(1, 3))
    if array.ndim > 5:
        return view, array
    wide = np.expand_dims(array, dim)
    shape = (*wide.shape[:dim], size, *wide.shape[dim + 1 :])
    return view.expand_dim(dim).broadcast(dim, size), np.broadcast_to(wide, shape)


def _squeezed(draw: st.DrawFn, view: NkiTensor, array: np.ndarray) -> Step:
    ones = [dim for dim, size in enumerate(array.shape) if size == 1]
    if not ones or array.ndim < 2:
        return view, array
    dim = draw(st.sampled_from(ones))
    return view.squeeze_dim(dim), array.squeeze(dim)


def _divisors(draw: st.DrawFn, size: int) -> tuple[int, int]:
    outer = draw(st.sampled_from([each for each in range(1, size + 1) if size % each == 0]))
    return outer, size // outer


def _split(draw: st.DrawFn, view: NkiTensor, array: np.ndarray) -> Step:
    dim = draw(st.integers(0, array.ndim - 1))
    outer, inner = _divisors(draw, array.shape[dim])
    shape = (*array.shape[:dim], outer, inner, *array.shape[dim + 1 :])
    return view.reshape_dim(dim, (outer, -1)), array.reshape(shape)


def _flattened(draw: st.DrawFn, view: NkiTensor, array: np.ndarray) -> Step:
    start = draw(st.integers(0, array.ndim - 1))
    end = draw(st.integers(start, array.ndim - 1))
    shape = (*array.shape[:start], math.prod(array.shape[start : end + 1]), *array.shape[end + 1 :])
    try:
        return view.flatten_dims(start, end), array.reshape(shape)
    except Refusal:
        return view, array


def _reshaped(draw: st.DrawFn, view: NkiTensor, array: np.ndarray) -> Step:
    outer, inner = _divisors(draw, array.size)
    shape = draw(st.sampled_from([(outer, inner), (inner, -1), (1, outer, inner), (array.size,)]))
    try:
        return view.reshape(shape), array.reshape(shape)
    except Refusal:
        return view, array


def _rearranged(draw: st.DrawFn, view: NkiTensor, array: np.ndarray) -> Step:
    """Split one dimension by name, reorder all, against NumPy's reshape and transpose."""
    dim = draw(st.integers(0, array.ndim - 1))
    outer, inner = _divisors(draw, array.shape[dim])
    names: list[Any] = [f"d{at}" for at in range(array.ndim)]
    src = [*names[:dim], ("h", "w"), *names[dim + 1 :]]
    flat = [*names[:dim], "h", "w", *names[dim + 1 :]]
    order = draw(st.permutations(range(len(flat))))
    wide = array.reshape((*array.shape[:dim], outer, inner, *array.shape[dim + 1 :]))
    dst = tuple(flat[at] for at in order)
    return view.rearrange(tuple(src), dst, {"h": outer}), wide.transpose(order)


STEPS: tuple[Callable[[st.DrawFn, NkiTensor, np.ndarray], Step], ...] = (
    *(_sliced, _indexed, _permuted, _grown, _squeezed, _split, _flattened, _reshaped, _rearranged),
)


@st.composite
def chains(draw: st.DrawFn) -> Step:
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)))
    view, array = tensor(shape), np.arange(math.prod(shape)).reshape(shape)
    for step in draw(st.lists(st.sampled_from(STEPS), min_size=1, max_size=6)):
        if array.ndim <= 6 and array.size <= 4096:
            view, array = step(draw, view, array)
    return view, array


@pytest.mark.oracle(*CHAIN)
@given(chains())
def test_any_chain_of_views_addresses_the_elements_of_numpys_views(case: Step) -> None:
    view, array = case
    assert view.shape == array.shape and view.ndim == array.ndim and view.size == array.size
    assert np.array_equal(addresses(view), array)


@pytest.mark.oracle("NkiTensor.flatten_dims", "NkiTensor.reshape")
@given(chains())
def test_what_numpy_merges_without_a_copy_is_not_refused(case: Step) -> None:
    view, array = case
    flat = array.view()
    try:
        flat.shape = (array.size,)
    except AttributeError:
        return
    assert np.array_equal(addresses(view.reshape((array.size,))), flat)
    assert np.array_equal(addresses(view.flatten_dims(0, view.ndim - 1)), flat)


@pytest.mark.oracle("NkiTensor.get_pattern", "NkiTensor.ap", "NkiTensor.is_contiguous")
@given(chains())
def test_the_pattern_of_a_view_makes_the_view_again(case: Step) -> None:
    view, array = case
    again = view.ap(view.get_pattern())
    assert np.array_equal(addresses(again), array) and not again.is_indirect()
    dense = array.size == 1 or np.array_equal(array.reshape(-1), array.flat[0] + np.arange(array.size))
    assert view.is_contiguous() == dense


@pytest.mark.oracle("NkiTensor.view", "NkiTensor.reinterpret_cast")
@given(
    st.sampled_from(["float32", "bfloat16", "uint8", "int32", "float16"]),
    st.sampled_from(["float32", "bfloat16", "uint8", "int32", "float16"]),
    st.integers(1, 4),
    st.integers(0, 3),
    st.integers(1, 4),
)
def test_a_view_of_a_dtype_keeps_every_byte(old: str, new: str, rows: int, start: int, units: int) -> None:
    size = {"float32": 4, "int32": 4, "bfloat16": 2, "float16": 2, "uint8": 1}
    whole = tensor((rows, 32), dtype=old)
    part = whole[:, start * 4 // size[old] : (start + units) * 4 // size[old]]
    for found in (part.view(new), part.reinterpret_cast(new)):
        assert found.dtype == new and found.itemsize == size[new]
        assert found.shape == (rows, units * 4 // size[new])
        assert np.array_equal(bytes_of(found), bytes_of(part))


@pytest.mark.oracle("NkiTensor.ap")
@given(st.lists(st.tuples(st.integers(-9, 9), st.integers(1, 4)), min_size=1, max_size=4), st.integers(0, 99))
def test_ap_is_as_strided(pattern: list[tuple[int, int]], offset: int) -> None:
    """The loop of nki-aps.rst, "Semantics of the Access Pattern"."""
    view = tensor((100,)).ap([list(pair) for pair in pattern], offset)
    for at in np.ndindex(*view.shape):
        assert addresses(view)[at] == offset + sum(step * i for (step, _), i in zip(pattern, at, strict=True))


@pytest.mark.oracle("NkiTensor.rearrange")
def test_the_documented_rearrangements() -> None:
    t = tensor((128, 24), Memory.sbuf)
    found = t.rearrange(("b", ("h", "w")), ("b", "w", "h"), {"h": 4})
    base = np.arange(128 * 24).reshape(128, 4, 6)
    assert found.shape == (128, 6, 4) and np.array_equal(addresses(found), base.transpose(0, 2, 1))
    wide = tensor((128, 512, 64), Memory.sbuf)
    assert wide.rearrange(("p", ("h", "w"), "c"), ("p", "c", "h", "w"), {"h": 32}).shape == (128, 64, 32, 16)
    back = wide.rearrange(("p", "h", "c"), ("p", ("h", "c")))
    assert (back.shape, back.strides) == ((128, 512 * 64), (512 * 64, 1))


@pytest.mark.parametrize(
    ("src", "dst", "sizes", "message"),
    [
        (("b",), ("b",), None, "src_pattern has 1 dimensions, the tensor 2"),
        (("b", "f"), ("b",), None, "'f' stands in one of the two patterns only"),
        (("b", "b"), ("b", "b"), None, "src_pattern names 'b' twice"),
        (("b", "f"), ("b", "f", "f"), None, "dst_pattern names 'f' twice"),
        (
            ("b", ("h", "w")),
            ("b", "h", "w"),
            None,
            "the sizes of h, w are open in one dimension, give all but one",
        ),
        (("b", ("h", "w")), ("b", "h", "w"), {"h": 5}, "h x w of 5 x [?] does not make a dimension of 24"),
        (
            ("b", ("h", "w")),
            ("b", "h", "w"),
            {"h": 4, "w": 5},
            "h x w of 4 x 5 does not make a dimension of 24",
        ),
        (("b", ("h", "w")), ("b", "h", "w"), {"h": -4}, "h x w of -4 x [?] does not make a dimension of 24"),
        (("b", "f"), ("b", "f"), {"f": 25}, "f of 25 does not make a dimension of 24"),
        (("b", "f"), ("b", "f"), {"g": 2}, "fixed_sizes names 'g', which is not in the patterns"),
        (("b", "f"), ("b", "f"), [24], "fixed_sizes must be a dict of sizes by name, got list"),
        (("b", "f"), ("b", "f"), {"f": 2.0}, "size of 'f' is a float, expected an integer"),
        ("bf", ("b", "f"), None, "src_pattern must be a tuple of names and of tuples of names, got 'bf'"),
        (("b", "f"), ("b", 1), None, "dst_pattern must be a tuple of names and of tuples of names, got 1"),
    ],
)
def test_patterns_that_do_not_fit(src: Any, dst: Any, sizes: Any, message: str) -> None:
    with pytest.raises(Refusal, match=f"^rearrange: {message}"):
        tensor((128, 24), Memory.sbuf).rearrange(src, dst, sizes)


def test_rearrange_keeps_the_partition_dimension() -> None:
    t = tensor((128, 24), Memory.sbuf)
    with pytest.raises(
        Refusal, match="reshape_dim of the partition dimension of an on-chip tensor is not possible"
    ):
        t.rearrange((("a", "b"), "f"), ("a", "b", "f"), {"a": 2})
    with pytest.raises(Refusal, match=r"permute\(1, 0\) moves the partition dimension of an on-chip tensor"):
        t.rearrange(("p", "f"), ("f", "p"))


class Device:
    """A trace with a register, a (1, 1) tile, a column of 64 indices, and tensors."""

    def __init__(self, release: str = "0.6", target: str = "trn2") -> None:
        self.trace = trace_of(release, target)
        self.register = fresh(self.trace)
        self.one = self.tile((1, 1), "int32")
        self.column = self.tile((64, 1), "int32")

    def tile(self, shape: tuple[int, ...], dtype: str = "float32") -> NkiTensor:
        return tensor(shape, Memory.sbuf, dtype, self.trace)

    def hbm(self, shape: tuple[int, ...], dtype: str = "float32") -> NkiTensor:
        return tensor(shape, Memory.shared_hbm, dtype, self.trace)

    def notes(self) -> list[str]:
        return [event.detail for event in self.trace.builder._events if event.kind == "note"]


def index_of(view: NkiTensor, oob: str = "error", group: int = 16) -> Index:
    number = view.dynamic(oob, group)
    found = view._trace.builder._extras[number].index
    assert found is not None
    return found


def where(view: NkiTensor, value: Any) -> np.ndarray:
    """The elements of an indirect view, computed from its access where the index is `value`; see `Index`."""
    index = index_of(view)
    found = addresses(view)
    if index.kind in ("register", "scalar"):
        return found + index.stride * value
    axis = index.axis
    shape = [1] * len(view.shape)
    shape[axis] = -1
    along = np.arange(view.shape[axis]).reshape(shape) * view.strides[axis]
    return found - along + index.stride * np.asarray(value).reshape(shape)


@pytest.mark.oracle("NkiTensor.ap")
def test_the_scalar_access_of_the_guide() -> None:
    """nki-aps.rst:330-350: A[3*128:, 0:256] of a (512, 512) tensor, from 0 + batch_idx * 512 on."""
    device = Device()
    a = device.hbm((512, 512))
    expected = np.arange(512 * 512).reshape(512, 512)[384:512, 0:256]
    for source in (device.one, device.register):
        view = a.ap(pattern=[[512, 128], [1, 256]], offset=0, scalar_offset=source, indirect_dim=0)
        assert view.shape == (128, 256) and view.is_indirect()
        assert np.array_equal(where(view, 384), expected)
    assert index_of(a.ap([[512, 1], [1, 1]], scalar_offset=device.one)).source == device.one.access()
    assert index_of(a.ap([[512, 1], [1, 1]], scalar_offset=device.register)).kind == "register"


@pytest.mark.oracle("NkiTensor.ap")
def test_the_vector_access_of_the_guide() -> None:
    """nki-aps.rst:384-416: rows 0, 2, 4, ... of a (128, 512) tensor; the leading stride is that of the tensor."""
    device = Device()
    a = device.hbm((128, 512))
    rows = np.arange(64) * 2
    expected = np.arange(128 * 512).reshape(128, 512)[rows]
    view = a.ap([[512, 64], [1, 512]], 0, vector_offset=device.column, indirect_dim=0)
    assert np.array_equal(where(view, rows), expected) and device.notes() == []
    odd = a.ap([[7, 64], [1, 512]], 0, vector_offset=device.column)
    assert np.array_equal(where(odd, rows), expected)
    assert device.notes() == [
        "ap(vector_offset=) ignores the leading stride 7 of its pattern, it steps by 512"
    ]


@pytest.mark.oracle("NkiTensor.select", "NkiTensor.is_indirect")
def test_a_dynamic_select_takes_the_slice_that_a_static_one_takes() -> None:
    device = Device()
    a = device.hbm((4, 128, 8))
    for source in (device.one, device.register):
        for dim, at in ((0, 3), (1, 100), (2, 5)):
            view = a.select(dim, source)
            assert np.array_equal(where(view, at), addresses(a.select(dim, at)))
            assert index_of(view).limit == a.shape[dim]
    tile = device.tile((128, 8, 64))
    assert np.array_equal(where(tile.select(1, device.one), 3), addresses(tile.select(1, 3)))
    flat = device.tile((128, 8))
    assert np.array_equal(where(flat.select(1, device.one), 3), addresses(flat[:, 3]))


@pytest.mark.oracle("NkiTensor.vector_select")
def test_a_vector_select_gathers_rows() -> None:
    device = Device()
    a = device.hbm((64, 128, 8))
    view = a.vector_select(0, device.column)
    rows = (np.arange(64) * 5) % 64
    assert view.shape == (64, 128, 8)
    assert np.array_equal(where(view, rows), np.arange(64 * 128 * 8).reshape(64, 128, 8)[rows])
    index = index_of(view)
    assert (index.kind, index.axis, index.stride, index.limit) == ("vector", 0, 1024, 64)
    assert np.array_equal(where(view[:, 2:4, 1], rows), np.arange(65536).reshape(64, 128, 8)[rows][:, 2:4, 1])
    permuted = view.permute((0, 2, 1)).reshape((64, 8, 2, 64)).expand_dim(1).squeeze_dim(1)
    expected = np.arange(65536).reshape(64, 128, 8)[rows].transpose(0, 2, 1).reshape(64, 8, 2, 64)
    assert np.array_equal(where(permuted, rows), expected)


@pytest.mark.oracle("NkiTensor.__getitem__", "nl.ds")
def test_registers_index_and_slice() -> None:
    device = Device()
    a = device.hbm((6, 10, 4))
    array = np.arange(240).reshape(6, 10, 4)
    assert np.array_equal(where(a[device.register], 4), array[4])
    assert np.array_equal(where(a[1, device.register, 2:4], 7), array[1, 7, 2:4])
    part = a[:, slice_of(device.register, 3), :]
    assert np.array_equal(where(part, 5), array[:, 5:8, :])
    assert index_of(part).limit == 8 and index_of(part, "skip").limit is None
    assert np.array_equal(where(a[slice_of(device.one, 2)], 3), array[3:5])
    assert np.array_equal(addresses(a[slice_of(2, 3)]), array[2:5])
    tile = device.tile((128, 16))
    assert np.array_equal(where(tile[:, device.register], 3), addresses(tile[:, 3]))


@pytest.mark.oracle("NkiTensor.ap")
def test_an_offset_is_counted_in_elements_of_the_tensor_not_of_the_new_dtype() -> None:
    device = Device()
    view = device.hbm((8, 32)).ap(
        [[64, 4], [1, 16]], dtype="bfloat16", scalar_offset=device.one, indirect_dim=0
    )
    assert index_of(view).stride == 64
    with pytest.raises(
        Refusal, match="ap: a step of 2 bytes along dimension 1 is no whole number of float32 elements"
    ):
        device.hbm((8, 32), "bfloat16").ap(
            [[1, 1]], dtype="float32", scalar_offset=device.one, indirect_dim=1
        )


@pytest.mark.oracle("NkiTensor.ap")
def test_an_index_counts_in_steps_of_the_shape_that_ap_is_called_on() -> None:
    """nki-aps.rst:343-347: prod(A.shape[indirect_dim+1:]), also where A was reshaped or has a dimension of one."""
    device = Device()
    a = device.hbm((24,))
    for shape, dim in (((4, 6), 0), ((2, 3, 4), 1), ((1, 24), 0), ((4, 1, 6), 1), ((24, 1), 0), ((24, 1), 1)):
        view = a.reshape(shape).ap([[1, 1], [1, 1]], scalar_offset=device.one, indirect_dim=dim)
        assert index_of(view).stride == math.prod(shape[dim + 1 :]), (shape, dim)


@pytest.mark.oracle("NkiTensor.indirect")
def test_an_indirect_view() -> None:
    device = Device(target="trn3")
    tile, index = device.tile((128, 4, 16)), device.tile((128, 4), "int32")
    view = tile.indirect(index, 32)
    assert (view.shape, view.is_indirect()) == ((128, 32), True)
    for group in (16, 32):
        assert index_of(view, group=group) == Index("snake", index.access(), 1, 1, "error", 64, group)
    assert device.tile((16, 64)).indirect(device.tile((16, 4), "int32")).shape == (16, 64)


REFUSED: list[tuple[Callable[[Device], Any], str]] = [
    (
        lambda d: d.hbm((4, 8)).select(0, d.one).select(0, d.one),
        "tensor t is indirect already .is_indirect..., it takes",
    ),
    (lambda d: d.hbm((4, 8)).select(0, d.one)[d.register], "tensor t is indirect already"),
    (
        lambda d: d.hbm((4, 8)).vector_select(0, d.column).vector_select(0, d.column),
        "tensor t is indirect already",
    ),
    (
        lambda d: d.hbm((4, 8)).select(0, d.one).ap([[1, 1]], scalar_offset=d.one),
        "tensor t is indirect already",
    ),
    (
        lambda d: d.tile((4, 8)).select(0, d.one),
        "select of the partition dimension of an on-chip tensor must be an in",
    ),
    (
        lambda d: d.tile((4, 8))[d.register],
        "index of the partition dimension of an on-chip tensor must be an integer",
    ),
    (
        lambda d: d.tile((4, 8))[slice_of(d.register, 2)],
        "index of the partition dimension of an on-chip tensor must",
    ),
    (lambda d: d.hbm((4, 8)).select(0, 1.5), "select is a float, expected an integer"),
    (
        lambda d: d.hbm((4, 8))[d.one],
        "a tensor as index of dimension 0 is not possible; use select, vector_select or",
    ),
    (
        lambda d: d.hbm((4, 8))[d.register : 4],
        "slice of dimension 0 is a register, expected an integer known while",
    ),
    (
        lambda d: d.hbm((4, 8)).vector_select(1, d.column),
        r"vector_select\(1\) is not possible, the dimension must be 0",
    ),
    (
        lambda d: d.tile((4, 8)).vector_select(0, d.column),
        "vector_select needs a tensor in HBM, t is in sbuf",
    ),
    (lambda d: d.hbm((4, 8)).vector_select(0, 3), "vector_select: vector_offset must be a tile, got int"),
    (
        lambda d: d.hbm((4, 8)).vector_select(0, d.register),
        "vector_offset must be a tile, got VirtualRegister",
    ),
    (
        lambda d: d.hbm((4, 8)).vector_select(0, d.column)[0:2],
        "dimension 0 of the indirect tensor t is indexed on the",
    ),
    (
        lambda d: d.hbm((4, 8)).vector_select(0, d.column).select(0, 1),
        "dimension 0 of the indirect tensor t is indexed",
    ),
    (
        lambda d: d.hbm((9, 8))[slice_of(d.register, 4)][0:2],
        "dimension 0 of the indirect tensor t is indexed on the de",
    ),
    (
        lambda d: d.hbm((4, 8)).vector_select(0, d.column)[None],
        "an indirect tensor takes no new axis before its indexed",
    ),
    (
        lambda d: d.hbm((4, 8)).vector_select(0, d.column).permute((1, 0)),
        r"permute\(1, 0\) moves the indexed dimension",
    ),
    (
        lambda d: d.hbm((4, 8)).vector_select(0, d.column).expand_dim(0),
        r"expand_dim\(0\) is not possible on an indirect",
    ),
    (
        lambda d: d.hbm((1, 8)).vector_select(0, d.one).squeeze_dim(0),
        "squeeze_dim of the indexed dimension of an indi",
    ),
    (
        lambda d: d.hbm((4, 8)).vector_select(0, d.column).reshape_dim(0, (8, 8)),
        "reshape_dim of the indexed dimension",
    ),
    (
        lambda d: d.hbm((4, 8)).vector_select(0, d.column).flatten_dims(0, 1),
        "flatten_dims of the indexed dimension",
    ),
    (
        lambda d: d.hbm((4, 8)).vector_select(0, d.column).reshape((8, 64)),
        r"reshape\(8, 64\) changes the indexed dimen",
    ),
    (
        lambda d: d.hbm((4, 8)).select(0, d.one).view("bfloat16"),
        r"view\(bfloat16\) of the indirect tensor t is not poss",
    ),
    (
        lambda d: d.hbm((4, 8)).ap([[8, 4]], scalar_offset=d.one, vector_offset=d.column),
        "ap takes scalar_offset or vec",
    ),
    (
        lambda d: d.hbm((4, 8)).ap([[8, 4]], vector_offset=d.column, indirect_dim=1),
        "vector_offset needs indirect_dim=0, ",
    ),
    (
        lambda d: d.hbm((4, 8)).ap([[8, 4]], vector_offset=d.register),
        "ap: vector_offset must be a tile, got VirtualReg",
    ),
    (
        lambda d: d.hbm((4, 8)).ap([[8, 4]], scalar_offset=3),
        "scalar_offset must be a register or a .1, 1. tile, got int",
    ),
    (
        lambda d: d.hbm((4, 8)).ap([[8, 4]], scalar_offset=d.one, indirect_dim=2),
        "dimension 2 is not one of the 2 of",
    ),
    (
        lambda d: d.hbm((4, 8)).ap([[8, 4]], offset=d.register),
        "ap offset is a register, expected an integer known while",
    ),
    (
        lambda d: d.hbm((4, 8)).ap([[8, 4]], scalar_offset=d.hbm((4, 4)).select(0, d.one)),
        "ap scalar_offset: the index tile t is itself an indirect view",
    ),
    (lambda d: d.hbm((4, 8)).indirect(d.one), "indirect needs a tensor in SBUF or PSUM, t is in shared_hbm"),
    (lambda d: d.tile((4, 8)).indirect(3), "indirect: index must be a tile, got int"),
    (lambda d: d.tile((4, 8)).indirect(d.one, 0), "indirect: num_elem is 0, expected at least 1"),
    (
        lambda d: d.tile((4, 8, 8))[:, 0:4, 0:4].indirect(d.one),
        r"indirect needs contiguous free dimensions, the strides",
    ),
    (
        lambda d: d.tile((4, 8)).indirect(d.one).permute((0, 1)),
        "t is a view made by indirect.., which no other view can",
    ),
    (lambda d: d.tile((4, 8)).indirect(d.one).indirect(d.one), "tensor t is indirect already"),
    (lambda d: slice_of(d.register, 0), "nl.ds: size is 0, expected at least 1"),
    (
        lambda d: slice_of(0, d.register),
        "size of nl.ds is a register, expected an integer known while tracing",
    ),
    (lambda d: d.hbm((4, 8))[slice_of("x", 2)], "index must be a register or a .1, 1. tile, got str"),
]


@pytest.mark.parametrize(("use", "message"), REFUSED)
def test_what_an_indirect_view_cannot_do(use: Callable[[Device], Any], message: str) -> None:
    with pytest.raises(Refusal, match=message):
        use(Device())


def test_a_whole_slice_of_the_indexed_dimension_is_allowed() -> None:
    device = Device()
    view = device.hbm((4, 8)).vector_select(0, device.column)[0:64, 2:4]
    assert view.shape == (64, 2) and view.is_indirect()


def test_dimensions_of_a_dynamic_slice_move_with_the_view() -> None:
    device = Device()
    view = device.hbm((6, 10, 4))[:, slice_of(device.register, 3), :]
    turned = view.permute((2, 1, 0)).expand_dim(0)
    assert turned.shape == (1, 4, 3, 6)
    with pytest.raises(Refusal, match="dimension 2 of the indirect tensor t is indexed"):
        turned[:, :, 0]
    assert np.array_equal(where(turned[0, 1:3], 2), np.arange(240).reshape(6, 10, 4)[:, 2:5].transpose()[1:3])


def test_an_induction_variable_is_a_scalar_in_0_3() -> None:
    device = Device("0.3")
    plain = fresh(device.trace, frozen=True, plain=True)
    with pytest.raises(
        Refusal,
        match="ap scalar_offset: the induction variable of nl.dynamic_range is a plain scalar until NKI 0.4 and cannot",
    ):
        device.hbm((4, 8)).ap([[8, 1], [1, 8]], scalar_offset=plain)


@pytest.mark.parametrize("name", ["rearrange", "vector_select", "indirect", "select", "is_indirect"])
def test_view_methods_exist_since_0_5(name: str) -> None:
    old = Device("0.4").hbm((4, 8))
    with pytest.raises(Refusal, match=f"NkiTensor.{name} exists since NKI 0.5, this kernel is judged by 0.4"):
        getattr(old, name)(0, 1)


def test_ap_notes_what_the_texts_disagree_about() -> None:
    device = Device()
    tile = device.tile((128, 64))
    assert tile[:, 8:16].ap([[64, 128], [1, 4]], scalar_offset=device.one, indirect_dim=1).offset == 8
    tile[:, 8:16].ap([[64, 128], [1, 4]], offset=4)
    device.hbm((4, 8)).select(0, device.one).ap([[1, 8]])
    assert device.notes() == [
        "ap(offset=) with scalar_offset on chip is reported to use an absolute address",
        "ap(offset=) replaces the offset of the view it is called on",
        "ap drops the device-side index of tensor t",
    ]


def test_a_register_is_a_register() -> None:
    assert isinstance(Device().register, VirtualRegister)
