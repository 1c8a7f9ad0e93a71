"""execute: when a matmul overwrites PSUM, when it adds, and when that is undefined, by generation."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from execute_kit import Kernel, View, counted

from nkireview.execute import Execution

A = counted(3, 2) + 1
B = counted(3, 4) - 5
AB = A.T @ B  # small integers: exact in any order
ONTO_UNDEFINED = "psum accumulate onto undefined"
AFTER_VALUE = "psum accumulate after value init"


class Bank:
    """A kernel with loaded operands and one PSUM tile."""

    def __init__(
        self, target: str = "trn2", dtype: str = "float32", address: tuple[int, int] | None = None
    ) -> None:
        self.kernel = Kernel(target)
        self.a, self.b = self.kernel.load(A), self.kernel.load(B)
        self.tile = self.kernel.psum(2, 4, dtype=dtype, address=address)

    def matmul(self, dst: View | None = None, moving: View | None = None, **given: Any) -> None:
        self.kernel.matmul(dst or self.tile, self.a, moving or self.b, **given)

    def fill(self, value: float, dst: View | None = None) -> None:
        self.kernel.call("memset", dst=dst or self.tile, value=value)

    def finish(self, **options: Any) -> Execution:
        result = self.kernel.sbuf(2, 4, dtype=self.tile.dtype)
        self.kernel.copy(result, self.tile)
        self.kernel.store(result)
        return self.kernel.run(**options)

    def value(self) -> np.ndarray[Any, Any]:
        execution = self.finish()
        assert execution.faults == () and execution.outputs[0].written is None
        return execution.outputs[0].values


ADDRESSES = pytest.mark.parametrize("address", [None, (0, 2048)])


@ADDRESSES
def test_false_overwrites(address: Any) -> None:
    bank = Bank(address=address)
    bank.fill(100.0)
    bank.matmul(accumulate=False)
    np.testing.assert_array_equal(bank.value(), AB)


@ADDRESSES
def test_false_then_true_accumulates(address: Any) -> None:
    bank = Bank(address=address)
    for at in range(3):
        bank.matmul(accumulate=at > 0)
    np.testing.assert_array_equal(bank.value(), 3 * AB)


@ADDRESSES
@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
def test_none_overwrites_first_and_adds_later(target: str, address: Any) -> None:
    bank = Bank(target, address=address)
    bank.matmul()
    bank.matmul(accumulate=None)
    np.testing.assert_array_equal(bank.value(), 2 * AB)


@ADDRESSES
@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
def test_none_overwrites_what_a_memset_wrote(target: str, address: Any) -> None:
    bank = Bank(target, address=address)
    bank.fill(100.0)
    bank.matmul()
    bank.matmul()
    np.testing.assert_array_equal(bank.value(), 2 * AB)


def test_a_memset_between_matmuls_starts_afresh() -> None:
    bank = Bank()
    bank.matmul()
    bank.fill(100.0)
    bank.matmul()
    np.testing.assert_array_equal(bank.value(), AB)


@ADDRESSES
def test_none_decides_for_each_location(address: Any) -> None:
    bank = Bank(address=address)
    bank.matmul(bank.tile[:, 0:2], bank.b[:, 0:2])
    bank.fill(100.0, bank.tile[:, 2:3])
    bank.matmul()
    np.testing.assert_array_equal(bank.value(), AB * [2, 2, 1, 1])


def test_none_in_a_part_leaves_the_rest() -> None:
    bank = Bank()
    bank.matmul()
    bank.matmul(bank.tile[:, 1:3], bank.b[:, 1:3])
    np.testing.assert_array_equal(bank.value(), AB * [1, 2, 2, 1])


@ADDRESSES
@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
def test_true_onto_nothing_is_undefined_everywhere(target: str, address: Any) -> None:
    bank = Bank(target, address=address)
    bank.matmul(accumulate=True)
    execution = bank.finish()
    first, second = execution.faults
    assert (first.kind, first.count, bank.kernel.where(first)) == (ONTO_UNDEFINED, 1, "kernel.py:8")
    assert first.message == (
        "nc_matmul: accumulate=True adds to PSUM that was never written; start with accumulate=False (kernel.py:8)"
    )
    assert second.kind == "uninitialised" and "first read by nc_matmul at kernel.py:8" in second.message
    mask = execution.outputs[0].written
    assert mask is not None and not mask.any()


def test_repeats_of_a_fault_are_counted() -> None:
    bank = Bank()
    with bank.kernel.loop(3):
        bank.matmul(accumulate=True)
        bank.fill(0.0)
    faults = bank.finish().faults
    assert [(fault.kind, fault.count) for fault in faults] == [(ONTO_UNDEFINED, 1), (AFTER_VALUE, 2)]


@ADDRESSES
@pytest.mark.parametrize(("target", "generation"), [("trn1", "v2"), ("trn2", "v3")])
def test_true_after_a_memset_is_undefined_before_v4(target: str, generation: str, address: Any) -> None:
    bank = Bank(target, address=address)
    bank.fill(100.0)
    bank.matmul(accumulate=True)
    execution = bank.finish()
    (fault,) = execution.faults
    assert fault.kind == AFTER_VALUE
    assert fault.message == (
        "nc_matmul: accumulate=True adds to PSUM that was written, but not by a matmul, which is undefined on "
        f"NeuronCore-{generation}; start with accumulate=False (kernel.py:9)"
    )
    np.testing.assert_array_equal(execution.outputs[0].values, AB + 100)


@ADDRESSES
def test_true_after_a_memset_adds_on_v4(address: Any) -> None:
    bank = Bank("trn3", address=address)
    bank.fill(100.0)
    bank.matmul(accumulate=True)
    bank.matmul()
    np.testing.assert_array_equal(bank.value(), 2 * AB + 100)


@pytest.mark.parametrize("accumulate", [None, True, False])
def test_a_transpose_always_overwrites(accumulate: bool | None) -> None:
    kernel = Kernel()
    tile, eye = kernel.load(A), kernel.load(np.eye(3, dtype=np.float32))
    bank, result = kernel.psum(2, 3), kernel.sbuf(2, 3)
    for _ in range(2):
        kernel.matmul(bank, tile, eye, is_transpose=True, accumulate=accumulate)
    kernel.call("nc_transpose", dst=bank, data=tile)
    kernel.copy(result, bank)
    kernel.store(result)
    execution = kernel.run()
    assert execution.faults == ()
    np.testing.assert_array_equal(execution.outputs[0].values, A.T)


@pytest.mark.parametrize("by_matmul", [False, True])
def test_none_overwrites_what_a_transpose_wrote(by_matmul: bool) -> None:
    kernel = Kernel()
    tile, other = kernel.load(A), kernel.load(counted(3, 3))
    bank, result = kernel.psum(2, 3), kernel.sbuf(2, 3)
    if by_matmul:
        kernel.matmul(bank, tile, kernel.load(np.eye(3, dtype=np.float32)), is_transpose=True)
    else:
        kernel.call("nc_transpose", dst=bank, data=tile)
    kernel.matmul(bank, tile, other)
    kernel.copy(result, bank)
    kernel.store(result)
    np.testing.assert_array_equal(kernel.run().outputs[0].values, A.T @ counted(3, 3))


def test_bf16_psum_rounds_after_each_matmul() -> None:
    kernel = Kernel("trn3")
    one, step = kernel.load(np.ones((1, 1), np.float32)), kernel.load(np.full((1, 1), 2.0**-8, np.float32))
    results = []
    for dtype in ("bfloat16", "float32"):
        bank, result = kernel.psum(1, 1, dtype=dtype), kernel.sbuf(1, 1)
        kernel.matmul(bank, one, one, accumulate=False)
        kernel.matmul(bank, one, step, accumulate=True)
        kernel.matmul(bank, one, step, accumulate=True)
        kernel.copy(result, bank)
        kernel.store(result)
    results = [output.values[0, 0] for output in kernel.run().outputs]
    # each 1 + 2**-8 is a tie that goes back to 1 in bfloat16
    assert results == [1.0, 1 + 2.0**-7]


def test_a_product_of_bf16_accumulates_in_float32() -> None:
    kernel = Kernel()
    values = (np.arange(6).reshape(3, 2) + 0.5).astype(ml_dtypes.bfloat16)
    tile, bank, result = kernel.load(values), kernel.psum(2, 2), kernel.sbuf(2, 2)
    kernel.matmul(bank, tile, tile)
    kernel.matmul(bank, tile, tile)
    kernel.copy(result, bank)
    kernel.store(result)
    wide = values.astype(np.float64)
    np.testing.assert_array_equal(kernel.run().outputs[0].values, 2 * wide.T @ wide)


def test_operands_with_more_dimensions_and_strides() -> None:
    kernel = Kernel()
    a, b = kernel.load(counted(3, 8)), kernel.load(counted(3, 12))
    bank, result = kernel.psum(2, 2, 3), kernel.sbuf(2, 6)
    left, right = a[:, 1:5:2], b.reshape(3, 4, 3)[:, 1:3, :]
    kernel.matmul(bank, left, right)
    kernel.matmul(bank.reshape(2, 6), left, right)
    kernel.copy(result, bank)
    kernel.store(result)
    expected = counted(3, 8)[:, 1:5:2].T @ counted(3, 12)[:, 3:9]
    np.testing.assert_array_equal(kernel.run().outputs[0].values, 2 * expected)


def test_shapes_that_do_not_fit_have_no_meaning() -> None:
    bank = Bank()
    bank.kernel.matmul(bank.tile, bank.a[0:2], bank.b)
    (fault,) = [fault for fault in bank.finish().faults if fault.kind == "no meaning"]
    assert fault.message.startswith("nc_matmul: ")


def test_a_matmul_into_sbuf_overwrites_unless_told_to_add() -> None:
    kernel = Kernel()
    a, b, tile = kernel.load(A), kernel.load(B), kernel.sbuf(2, 4)
    kernel.matmul(tile, a, b)
    kernel.matmul(tile, a, b)
    kernel.store(tile)
    kernel.matmul(tile, a, b, accumulate=True)
    kernel.store(tile)
    first, second = kernel.run().outputs
    np.testing.assert_array_equal(first.values, AB)
    np.testing.assert_array_equal(second.values, 2 * AB)


def test_the_direct_path_gives_what_the_meaning_gives() -> None:
    rng = np.random.default_rng(5)
    a, b = rng.standard_normal((16, 8), np.float32), rng.standard_normal((16, 24), np.float32)
    found = []
    for shape in ((8, 24), (8, 4, 6)):  # the second shape takes the general path
        kernel = Kernel()
        left, right, bank, result = kernel.load(a), kernel.load(b), kernel.psum(*shape), kernel.sbuf(8, 24)
        for _ in range(2):
            kernel.matmul(bank, left, right)
        kernel.copy(result, bank)
        kernel.store(result)
        found.append(kernel.run().outputs[0].values)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_allclose(found[0], 2 * (a.astype(np.float64).T @ b), rtol=1e-5, atol=1e-5)


def holed(bank: Bank) -> View:
    """The moving operand, never written in column 1."""
    moving = bank.kernel.sbuf(3, 4)
    for part in (slice(0, 1), slice(2, 4)):
        bank.kernel.copy(moving[:, part], bank.b[:, part])
    return moving


@pytest.mark.parametrize("accumulate", [None, True])
def test_adding_to_undefined_stays_undefined(accumulate: bool | None) -> None:
    bank = Bank()
    bank.matmul(moving=holed(bank))
    bank.matmul(accumulate=accumulate)
    execution = bank.finish()
    mask = execution.outputs[0].written
    assert mask is not None and mask.tolist() == [[True, False, True, True]] * 2
    np.testing.assert_array_equal(execution.outputs[0].values[mask], 2 * AB[mask])


def test_adding_to_undefined_in_places_stays_undefined_there() -> None:
    bank = Bank()
    bank.matmul(bank.tile[:, 0:3], holed(bank)[:, 0:3])
    bank.matmul()
    mask = bank.finish().outputs[0].written
    assert mask is not None and mask.tolist() == [[True, False, True, True]] * 2


def test_overwriting_undefined_defines_it() -> None:
    bank = Bank()
    bank.matmul(moving=holed(bank))
    bank.matmul(accumulate=False)
    np.testing.assert_array_equal(bank.value(), AB)


def test_a_destination_held_in_fewer_bits_is_rounded() -> None:
    kernel = Kernel()
    one, other = (
        kernel.load(np.ones((1, 1), np.float32)),
        kernel.load(np.full((1, 1), 1 + 2.0**-12, np.float32)),
    )
    bank, result = kernel.psum(1, 1, dtype="tfloat32"), kernel.sbuf(1, 1)
    kernel.matmul(bank, one, other)
    kernel.copy(result, bank)
    kernel.store(result)
    assert kernel.run().outputs[0].values[0, 0] == 1.0


def test_a_buffer_at_an_address_that_is_free_again_starts_anew() -> None:
    """accumulate=None overwrites at the first write to a tile, whatever an earlier tile left at its address."""
    kernel = Kernel()
    a, b = kernel.load(A), kernel.load(B)
    for times in (3, 1):
        tile, result = kernel.psum(2, 4, address=(0, 2048)), kernel.sbuf(2, 4)
        for _ in range(times):
            kernel.matmul(tile, a, b)
        kernel.copy(result, tile)
        kernel.store(result)
    execution = kernel.run()
    assert execution.faults == ()
    np.testing.assert_array_equal(execution.outputs[0].values, 3 * AB)
    np.testing.assert_array_equal(execution.outputs[1].values, AB)


def test_two_buffers_at_one_address_that_are_both_in_use_are_one() -> None:
    kernel = Kernel()
    a, b = kernel.load(A), kernel.load(B)
    whole, part = kernel.psum(2, 4, address=(0, 2048)), kernel.psum(2, 4, address=(0, 2048))
    result = kernel.sbuf(2, 4)
    kernel.matmul(whole, a, b)
    kernel.matmul(part, a, b)
    kernel.copy(result, whole)
    kernel.store(result)
    np.testing.assert_array_equal(kernel.run().outputs[0].values, 2 * AB)


def test_an_address_next_to_a_buffer_in_use_is_not_that_buffer() -> None:
    kernel = Kernel()
    a, b = kernel.load(A), kernel.load(B)
    near, first = kernel.psum(2, 4, address=(0, 16)), kernel.psum(2, 4, address=(0, 0))
    one, two = kernel.sbuf(2, 4), kernel.sbuf(2, 4)
    kernel.matmul(near, a, b)
    kernel.matmul(first, a, b)
    kernel.copy(one, first)
    again = kernel.psum(2, 4, address=(0, 0))
    kernel.matmul(again, a, b)
    kernel.matmul(near, a, b)
    kernel.copy(two, near)
    kernel.store(one)
    kernel.store(two)
    last = kernel.sbuf(2, 4)
    kernel.copy(last, again)
    kernel.store(last)
    first_value, near_value, again_value = (output.values for output in kernel.run().outputs)
    np.testing.assert_array_equal(first_value, AB)
    np.testing.assert_array_equal(near_value, 2 * AB)
    np.testing.assert_array_equal(again_value, AB)


@ADDRESSES
@pytest.mark.oracle("nisa.nc_matmul", "nl.dynamic_range", "nl.fori_loop")
def test_the_first_matmul_of_each_pass_overwrites(address: Any) -> None:
    """What accumulate=None means is settled once, by program order: overwrite at the first write, add at the next."""
    bank = Bank(address=address)
    with bank.kernel.loop(3):
        bank.matmul()
        bank.matmul()
    np.testing.assert_array_equal(bank.value(), 2 * AB)


@ADDRESSES
def test_what_was_written_before_a_loop_is_added_to_in_each_pass(address: Any) -> None:
    bank = Bank(address=address)
    bank.matmul()
    with bank.kernel.loop(3):
        bank.matmul()
    np.testing.assert_array_equal(bank.value(), 4 * AB)


@ADDRESSES
def test_each_part_is_overwritten_first_in_each_pass(address: Any) -> None:
    bank = Bank(address=address)
    with bank.kernel.loop(3):
        for part in (slice(0, 2), slice(2, 4)):
            bank.matmul(bank.tile[:, part], bank.b[:, part])
    np.testing.assert_array_equal(bank.value(), AB)


def test_tiles_that_take_turns_at_an_address_start_anew_in_each_pass() -> None:
    kernel = Kernel()
    a, b = kernel.load(A), kernel.load(B)
    tiles = [kernel.psum(2, 4, address=(0, 2048)) for _ in range(2)]
    results = [kernel.sbuf(2, 4) for _ in tiles]
    with kernel.loop(3):
        for times, (tile, result) in enumerate(zip(tiles, results, strict=True), 1):
            for _ in range(times):
                kernel.matmul(tile, a, b)
            kernel.copy(result, tile)
    for result in results:
        kernel.store(result)
    one, two = (output.values for output in kernel.run().outputs)
    np.testing.assert_array_equal(one, AB)
    np.testing.assert_array_equal(two, 2 * AB)


def test_two_buffers_of_a_loop_at_one_address_that_are_both_in_use_are_one() -> None:
    kernel = Kernel()
    a, b = kernel.load(A), kernel.load(B)
    whole, part = kernel.psum(2, 4, address=(0, 2048)), kernel.psum(2, 4, address=(0, 2048))
    result = kernel.sbuf(2, 4)
    with kernel.loop(3):
        kernel.matmul(whole, a, b)
        kernel.matmul(part, a, b)
        kernel.copy(result, whole)
    kernel.store(result)
    np.testing.assert_array_equal(kernel.run().outputs[0].values, 2 * AB)
