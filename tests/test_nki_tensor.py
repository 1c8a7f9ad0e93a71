"""Tensor views against NumPy: a view must address the elements that NumPy's view of an arange holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nkireview.isa.enums import Memory
from nkireview.isa.release import Release
from nkireview.nki.errors import Refusal
from nkireview.nki.tensor import NkiTensor
from nkireview.nki.trace import Trace, tracing


def make(
    shape: tuple[int, ...], memory: Memory = Memory.hbm, dtype: str = "float32", release: str = "0.6"
) -> NkiTensor:
    trace = Trace("trn2", Release.parse(release))
    return NkiTensor.whole(trace, trace.buffer(memory, shape, dtype, name="t"))


def addresses(tensor: NkiTensor) -> np.ndarray:
    """Element addresses of a view, by its own strides."""
    grid = np.indices(tensor.shape)
    return tensor.offset + sum(stride * axis for stride, axis in zip(tensor.strides, grid, strict=True))


def arange(shape: tuple[int, ...]) -> np.ndarray:
    return np.arange(int(np.prod(shape))).reshape(shape)


shapes = st.lists(st.integers(1, 6), min_size=1, max_size=4).map(tuple)


@st.composite
def keys(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[object, ...]]:
    shape = draw(shapes)
    items: list[object] = []
    for size in shape[: draw(st.integers(0, len(shape)))]:
        if draw(st.booleans()):
            items.append(draw(st.integers(-size, size - 1)))
        else:
            start = draw(st.integers(0, size - 1))
            stop = draw(st.integers(start + 1, size))
            items.append(slice(start, stop, draw(st.integers(1, 3))))
    if draw(st.booleans()) and len(items) < len(shape):
        items.append(...)
    return shape, tuple(items)


@given(keys())
def test_indexing_an_hbm_tensor_is_numpys(case: tuple[tuple[int, ...], tuple[object, ...]]) -> None:
    shape, key = case
    expected = arange(shape)[key]
    view = make(shape)[key]
    assert view.shape == expected.shape
    assert np.array_equal(addresses(view), expected)


@given(shapes.filter(lambda s: len(s) > 1), st.data())
def test_permute_is_numpys_transpose(shape: tuple[int, ...], data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(shape))))
    assert np.array_equal(addresses(make(shape).permute(order)), arange(shape).transpose(order))


@given(
    st.permutations((2, 3, 4)), st.sampled_from([(24,), (6, 4), (4, 6), (2, 12), (-1, 8), (1, 24), (3, 2, 4)])
)
def test_reshape_is_numpys_where_no_copy_is_needed(shape: tuple[int, ...], target: tuple[int, ...]) -> None:
    base = arange(tuple(shape))
    assert np.array_equal(addresses(make(tuple(shape)).reshape(target)), base.reshape(target))


def test_reshape_of_a_view_merges_what_merges() -> None:
    view = make((4, 6, 8))[:, 0:3, :]
    assert np.array_equal(addresses(view.reshape((4, 24))), arange((4, 6, 8))[:, 0:3, :].reshape(4, 24))
    with pytest.raises(
        Refusal, match=r"reshape\(12, 8\) of a view of shape \(4, 3, 8\) needs contiguous dimensions"
    ):
        view.reshape((12, 8))


def test_views_compose_as_in_the_language_guide() -> None:
    t = make((128, 4, 16), Memory.sbuf)
    u = t[0:64, :, :].permute((0, 2, 1))[:, 0, :]
    assert u.shape == (64, 4) and u.strides == (64, 16)


@pytest.mark.parametrize(
    ("key", "shape"),
    [
        ((0, 0, 10), (1, 1)),
        ((slice(None), 0), (64, 64)),
        ((slice(None), 0, 10), (64, 1)),
        ((slice(0, 64), 0, slice(0, 64)), (64, 64)),
        ((slice(None), slice(None), slice(None, None, 2)), (64, 64, 32)),
        ((0, Ellipsis, slice(None)), (1, 64, 64)),
        ((Ellipsis,), (64, 64, 64)),
        ((0, slice(None), slice(None)), (1, 64, 64)),
    ],
)
def test_on_chip_indexing_follows_the_language_guide(key: tuple[object, ...], shape: tuple[int, ...]) -> None:
    assert make((64, 64, 64), Memory.sbuf)[key].shape == shape


def test_on_chip_index_of_the_last_free_dimension_keeps_its_address() -> None:
    view = make((64, 8), Memory.sbuf)[2:4, 5]
    assert (view.shape, view.offset, view.strides) == ((2, 1), 21, (8, 1))


def test_slices_are_never_clamped() -> None:
    view = make((100, 8))[96:160, :]
    assert view.shape == (64, 8)
    assert addresses(view).max() == 159 * 8 + 7


def test_ap_addresses_the_storage() -> None:
    t = make((128, 1024), Memory.sbuf, "float16")
    u = t.ap(pattern=[(1024, 128), (2, 512)])
    assert (u.shape, u.strides, u.offset) == ((128, 512), (1024, 2), 0)
    assert t[:, 16:32].ap([[1024, 128], [1, 4]]).offset == 16
    assert t[:, 16:32].ap([[1024, 128], [1, 4]], offset=3).offset == 3


def test_ap_without_offset_started_at_zero_before_release_0_5() -> None:
    old = make((128, 64), Memory.sbuf, release="0.4")
    assert old[:, 16:32].ap([[64, 128], [1, 4]]).offset == 0


def test_view_rescales_the_last_dimension() -> None:
    t = make((128, 8), Memory.sbuf, "float32")
    half = t.view("bfloat16")
    assert (half.shape, half.strides, half.dtype) == ((128, 16), (16, 1), "bfloat16")
    back = half[:, 4:8].view("float32")
    assert (back.shape, back.strides, back.offset) == ((128, 2), (8, 1), 2)


def test_broadcast_expand_squeeze_and_split() -> None:
    t = make((128, 6), Memory.sbuf)
    wide = t.expand_dim(2).broadcast(2, 5)
    assert (wide.shape, wide.strides) == ((128, 6, 5), (6, 1, 0))
    assert wide[:, :, 0:1].squeeze_dim(2).shape == (128, 6)
    split = t.reshape_dim(1, (2, -1))
    assert (split.shape, split.strides) == ((128, 2, 3), (6, 3, 1))
    assert split.flatten_dims(1, 2).strides == (6, 1)
    assert t.slice(1, 1, 6, 2).shape == (128, 3)
    assert make((4, 5, 6)).select(1, 2).shape == (4, 6)


def test_contiguity_ignores_the_partition_dimension() -> None:
    t = make((128, 8), Memory.sbuf)
    assert t.is_contiguous() and t[0:64].is_contiguous() and not t[:, ::2].is_contiguous()
    assert not make((4, 8))[:, 0:4].is_contiguous()
    assert t.get_pattern() == [[8, 128], [1, 8]] and not t.is_indirect()


@pytest.mark.parametrize("key", [slice(5, 5), slice(64, 64), slice(7, 3)])
def test_a_view_may_be_empty_as_long_as_nothing_uses_it(key: slice) -> None:
    view = make((128, 64), Memory.sbuf)[:, key]
    assert view.shape == np.zeros((128, 64))[:, key].shape and view.size == 0


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda t: t[:, :, :], "3 indices are given to a 2-D tensor"),
        (lambda t: t[..., ...], "an index may hold one ... only"),
        (lambda t: t.slice(1, 5, 5), r"slice\(1, 5, 5\) needs 0 <= start < end"),
        (lambda t: t[:, ::-1], "slice of dimension 1 has step -1, expected at least 1"),
        (lambda t: t[:, 1.0], "index of dimension 1 is a float, expected an integer"),
        (lambda t: t[:, True], "index of dimension 1 is a truth value, expected an integer"),
        (lambda t: t[None], "no new axis before its partition dimension"),
        (lambda t: t.permute((1, 0)), r"permute\(1, 0\) moves the partition dimension"),
        (lambda t: t.permute((0, 0)), r"permute\(0, 0\) is no permutation of the 2 dimensions"),
        (lambda t: t.broadcast(1, 3), "broadcast of dimension 1 needs size 1, it has 64"),
        (
            lambda t: t.broadcast(0, 3),
            "broadcast of the partition dimension of an on-chip tensor is not possible",
        ),
        (lambda t: t.expand_dim(0), r"expand_dim\(0\) is not possible on a 2-D tensor in sbuf"),
        (lambda t: t.squeeze_dim(1), r"squeeze_dim\(1\) needs size 1, it has 64"),
        (lambda t: t.reshape((64, 128)), r"reshape\(64, 128\) changes the partition dimension 128"),
        (lambda t: t.reshape((128, 63)), r"reshape\(128, 63\) has not the 8192 elements of the view"),
        (lambda t: t.reshape(), "reshape needs a shape"),
        (lambda t: t.reshape_dim(1, (3, -1)), r"reshape_dim\(3, -1\) has not the 64 elements"),
        (lambda t: t.flatten_dims(1, 0), r"flatten_dims\(1, 0\) is an empty range"),
        (lambda t: t.slice(7, 0, 1), "dimension 7 is not one of the 2 of tensor t"),
        (
            lambda t: t[:, ::2].view("bfloat16"),
            "view.bfloat16. needs a contiguous last dimension, its stride is 2",
        ),
        (lambda t: t[:, 0:1].view("uint8").view("float64"), "float64"),
        (lambda t: t.ap([[64, 128, 1]]), r"must be a list of \[stride, count\]"),
        (lambda t: t.ap([[64, 0]]), r"must be a list of \[stride, count\] with counts of at least 1"),
        (lambda t: t + 1, r"tensors have no operator \+ in this generation"),
        (lambda t: t < 1, "tensors have no operator <"),
        (lambda t: int(t), r"int\(\) of it cannot be taken"),
        (lambda t: float(t), r"float\(\) of it cannot be taken"),
        (lambda t: t.item(), r"item\(\) of it cannot be taken"),
        (lambda t: np.asarray(t), "a NumPy array of it cannot be taken"),
        (lambda t: [0][t], "an index of it cannot be taken"),
    ],
)
def test_refusals(use: object, message: str) -> None:
    with pytest.raises(Refusal, match=message):
        use(make((128, 64), Memory.sbuf))  # type: ignore[operator]


def test_an_assignment_hands_the_view_and_the_value_on(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(
        NkiTensor, "assign", lambda view, value: seen.append((view.shape, view.offset, value))
    )
    make((128, 64), Memory.sbuf)[0:32, 8:16] = 2.5
    assert seen == [((32, 8), 8, 2.5)]
    monkeypatch.setattr(NkiTensor, "assign", None)
    with pytest.raises(Refusal, match="a tensor view takes no assignment; use nisa.tensor_copy"):
        make((128, 64), Memory.sbuf)[...] = 1.0


def test_a_tensor_can_be_bound_to_the_storage_of_another() -> None:
    base = make((4, 6), Memory.hbm)
    with tracing(base._trace):
        bound = NkiTensor((3, 8), "float32", base.storage)
        assert (bound.shape, bound.strides, bound.offset, bound.storage) == ((3, 8), (8, 1), 0, base.storage)
        with pytest.raises(Refusal, match="NkiTensor: storage must be the storage of a tensor, got NoneType"):
            NkiTensor((3, 8), "float32", None)


@pytest.fixture
def old() -> Iterator[NkiTensor]:
    yield make((128, 64), Memory.sbuf, release="0.4")


@pytest.mark.parametrize(
    "name", ["slice", "permute", "broadcast", "expand_dim", "flatten_dims", "is_contiguous"]
)
def test_view_methods_exist_since_0_5(old: NkiTensor, name: str) -> None:
    with pytest.raises(Refusal, match=f"NkiTensor.{name} exists since NKI 0.5, this kernel is judged by 0.4"):
        getattr(old, name)(1, 0, 1)


def test_the_truth_of_a_tensor_is_true_and_recorded() -> None:
    tensor = make((128, 64), Memory.sbuf)
    with tracing(tensor._trace):
        assert tensor
    events = tensor._trace.builder._events
    assert [event.kind for event in events] == ["truth"]
    assert len(tensor) == 128 and [row.shape for row in make((2, 3))] == [(3,), (3,)]


def test_accesses_say_what_was_written() -> None:
    tensor = make((128, 64), Memory.sbuf, "bfloat16")
    view = tensor[32:64, 8:16]
    assert view.access() == view.access()
    found = next(iter(tensor._trace.builder._accesses))
    assert found == (0, "bfloat16", 2056, (64, 1), (32, 8), 0)


@pytest.mark.parametrize(
    ("shape", "memory", "key", "detail"),
    [
        ((64, 64), Memory.shared_hbm, (slice(0, 4), slice(60, 70)), "index 60:70 of dimension 1 (size 64)"),
        ((64, 64), Memory.shared_hbm, (0, 64), "index 64 of dimension 1 (size 64)"),
        ((4, 2, 64), Memory.sbuf, (slice(None), 0, slice(60, 70)), "index 60:70 of dimension 2 (size 64)"),
        ((64, 64), Memory.shared_hbm, (slice(60, 70), slice(0, 4)), ""),  # outside: `verify` says so
        ((64, 64), Memory.sbuf, (slice(0, 4), slice(60, 70)), ""),  # leaves its row: `verify` says so
        ((4, 2, 64), Memory.sbuf, (slice(None), 1, slice(60, 70)), ""),
        ((64, 64), Memory.shared_hbm, (slice(0, 4), slice(60, 64)), ""),
    ],
)
def test_an_index_that_runs_into_other_elements_is_recorded(
    shape: tuple[int, ...], memory: Memory, key: Any, detail: str
) -> None:
    tensor = make(shape, memory)
    with tracing(tensor._trace):
        _ = tensor[key]
    found = [event.detail for event in tensor._trace.builder._events if event.kind == "overrun"]
    assert [text.split(" of tensor")[0] for text in found] == ([detail] if detail else [])
    assert all(text.endswith("runs into other elements of its memory") for text in found)
