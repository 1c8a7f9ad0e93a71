"""Transfers and traffic, held against bytes worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from execute_kit import Kernel, View

from nkireview import hardware
from nkireview.checks.survey import Survey, survey
from nkireview.isa.table import ROWS
from nkireview.program.access import Access, Bound, Index


def of(kernel: Kernel) -> Survey:
    return survey(kernel.program(), ROWS, hardware.target("trn2"))


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def patterned(view: View, base: int, *pattern: tuple[int, int]) -> View:
    return View(view.buffer, view.dtype, base, pattern)


def load(kernel: Kernel, source: View) -> View:
    tile = kernel.sbuf(*(count for _, count in source.pattern), dtype=source.dtype)
    kernel.copy(tile, source)
    return tile


def test_a_load_by_its_pieces() -> None:
    kernel = Kernel()
    x = kernel.argument(zeros(256, 1024))
    load(kernel, x[0:128, 0:64])
    moves = of(kernel).moves
    assert moves.bytes.tolist() == [128 * 64 * 4]
    assert moves.run.tolist() == [256]
    assert moves.partitions.tolist() == [128]
    assert (moves.loads.tolist(), moves.stores.tolist()) == ([True], [False])
    assert not moves.strided.any() and not moves.casts.any()


def test_whole_rows_are_contiguous_up_to_a_partition() -> None:
    kernel = Kernel()
    load(kernel, kernel.argument(zeros(128, 1024)))
    assert of(kernel).moves.run.tolist() == [4096]


def test_a_column_by_column_load_is_strided() -> None:
    kernel = Kernel()
    x, tile = kernel.argument(zeros(128, 128)), kernel.sbuf(128, 128)
    for column in range(2):
        kernel.copy(tile[column : column + 1, :], patterned(x, column, (128, 128), (1, 1)))
    moves = of(kernel).moves
    assert moves.run.tolist() == [4, 4]
    assert moves.strided.tolist() == [True, True]
    assert moves.crossed.tolist() == [False, False]


def test_a_transposed_load_is_crossed() -> None:
    kernel = Kernel()
    x = kernel.argument(zeros(64, 128))
    kernel.copy(kernel.sbuf(128, 64), patterned(x, 0, (1, 128), (128, 64)))
    moves = of(kernel).moves
    assert (moves.run.tolist(), moves.strided.tolist(), moves.crossed.tolist()) == ([4], [True], [True])


def test_one_element_a_partition_is_not_strided() -> None:
    kernel = Kernel()
    bias = kernel.argument(zeros(128, 1))
    load(kernel, bias)
    moves = of(kernel).moves
    assert (moves.run.tolist(), moves.strided.tolist()) == ([4], [False])


def test_a_cast_by_dma() -> None:
    kernel = Kernel()
    kernel.copy(kernel.sbuf(128, 8, dtype="bfloat16"), kernel.argument(zeros(128, 8)))
    assert of(kernel).moves.casts.tolist() == [True]


def test_a_cast_by_dma_moves_what_lies_in_hbm() -> None:
    kernel = Kernel()
    tile = kernel.sbuf(128, 64, dtype="float32")
    kernel.copy(tile, kernel.argument(zeros(128, 64)))
    narrow = kernel.hbm(128, 64, dtype="bfloat16")
    kernel.copy(narrow, tile)
    moves = of(kernel).moves
    assert moves.bytes.tolist() == [128 * 64 * 4, 128 * 64 * 2]
    assert moves.run.tolist() == [64 * 4, 64 * 2]
    assert moves.casts.tolist() == [False, True]


def test_what_is_loaded_again() -> None:
    kernel = Kernel()
    x = kernel.argument(zeros(256, 512))
    for _ in range(4):
        load(kernel, x[0:128, :])
    load(kernel, x[128:256, :])
    (loaded,) = of(kernel).traffic.loaded
    assert loaded.bytes == 5 * 128 * 512 * 4
    assert loaded.needed == 256 * 512 * 4
    assert loaded.factor == 2.5
    assert len(loaded.repeats) == 3


def test_overlapping_windows_count_once() -> None:
    kernel = Kernel()
    x = kernel.argument(zeros(128, 100))
    for start in (0, 20, 40, 60):
        load(kernel, x[:, start : start + 40])
    (loaded,) = of(kernel).traffic.loaded
    assert loaded.bytes == 4 * 128 * 40 * 4
    assert loaded.needed == 128 * 100 * 4
    assert len(loaded.repeats) == 0


@pytest.mark.parametrize("seed", range(4))
def test_distinct_bytes_of_any_affine_accesses(seed: int) -> None:
    """Against marking each element one by one."""
    random = np.random.default_rng(seed)
    kernel = Kernel()
    x = kernel.argument(zeros(64, 96))
    marks = np.zeros(64 * 96, bool)
    for _ in range(12):
        first, rows, columns = (int(n) for n in random.integers(1, 9, 3))
        row, column = int(random.integers(1, 5)), int(random.integers(1, 5))
        base = int(random.integers(0, 64 * 96 - first - 8 * 96 * 5 - 8 * 5))
        pattern = ((96 * row, rows), (column, columns))
        view = View(x.buffer, x.dtype, base, pattern)
        load(kernel, view)
        for i in range(rows):
            for j in range(columns):
                marks[base + 96 * row * i + column * j] = True
    (loaded,) = of(kernel).traffic.loaded
    assert loaded.needed == 4 * int(marks.sum())


def test_a_loop_loads_the_same_bytes_again() -> None:
    kernel = Kernel()
    x = kernel.argument(zeros(128, 64))
    with kernel.loop(5):
        load(kernel, x)
    found = of(kernel).traffic
    (loaded,) = found.loaded
    assert (loaded.bytes, loaded.needed, loaded.factor) == (5 * 32_768, 32_768, 5.0)
    assert (found.load_bytes, found.needed_bytes) == (5 * 32_768, 32_768)


def by_register(x: View, register: int, step: int) -> Access:
    """128 rows of 64 from the register times `step` elements on."""
    index = Index("register", register, 0, step)
    return Access(x.buffer.id, "float32", 0, ((64, 128), (1, 64)), None, index=index)


def test_an_address_made_on_the_device_is_no_reload() -> None:
    kernel = Kernel()
    x, tile = kernel.argument(zeros(1024, 64)), kernel.sbuf(128, 64)
    with kernel.loop(8):
        kernel.raw("dma_copy", {"dst": tile.access, "src": by_register(x, 7, 64)})
    (loaded,) = of(kernel).traffic.loaded
    assert loaded.needed is None and loaded.factor == 1.0


@pytest.mark.parametrize(("step", "rows"), [(128 * 64, 128 * 8), (64, 128 + 7), (0, 128)])
def test_the_counter_of_a_loop_is_an_address_known_before(step: int, rows: int) -> None:
    kernel = Kernel()
    x, tile = kernel.argument(zeros(1024, 64)), kernel.sbuf(128, 64)
    with kernel.loop(8):
        kernel.raw("dma_copy", {"dst": tile.access, "src": by_register(x, 0, step)})
    found = of(kernel).traffic
    (loaded,) = found.loaded
    assert (loaded.bytes, loaded.needed) == (8 * 128 * 64 * 4, rows * 64 * 4)
    assert found.reloads.again.tolist() == [8 * 128 * 64 * 4 - rows * 64 * 4]


def test_what_was_changed_since_is_no_reload() -> None:
    kernel = Kernel()
    tile = load(kernel, kernel.argument(zeros(128, 64)))
    scratch = kernel.hbm(128, 64)
    kernel.copy(scratch, tile)
    load(kernel, scratch)
    kernel.copy(scratch[0:32, :], tile[0:32, :])
    load(kernel, scratch)
    load(kernel, scratch)
    found = of(kernel).traffic
    (loaded,) = (item for item in found.loaded if item.buffer == scratch.buffer.id)
    assert found.reloads.again[[2, 4, 5]].tolist() == [0, 96 * 256, 128 * 256]
    assert loaded.needed == (128 + 32) * 256
    assert loaded.repeats.tolist() == [5]


def test_what_an_instruction_other_than_a_dma_may_write_is_no_reload() -> None:
    kernel = Kernel(lnc=1)
    x, gathered = kernel.argument(zeros(128, 64)), kernel.hbm(128, 64)
    for _ in range(2):
        kernel.call("all_reduce", dsts0=gathered, srcs0=x, op="add", replica_group=((0, 1),))
        load(kernel, gathered)
    assert of(kernel).traffic.reloads.again.tolist() == [0, 0]


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_a_load_into_another_dtype_is_a_reload_too(dtype: str) -> None:
    kernel = Kernel()
    x = kernel.argument(zeros(128, 64))
    load(kernel, x)
    kernel.copy(kernel.sbuf(128, 32, dtype=dtype), x[:, 32:64])
    assert of(kernel).traffic.reloads.again.tolist() == [0, 128 * 32 * 4]


def test_elements_that_bounds_leave_out_are_not_moved() -> None:
    kernel = Kernel()
    x, tile = kernel.argument(zeros(100, 64)), kernel.sbuf(128, 64)
    bound = (Bound((-1, 0), 99),)  # rows 0..99
    kernel.copy(
        View(tile.buffer, tile.dtype, 0, tile.pattern, bound),
        View(x.buffer, x.dtype, 0, ((64, 128), (1, 64)), bound),
    )
    found = of(kernel)
    assert found.moves.bytes.tolist() == [100 * 64 * 4]
    assert found.traffic.loaded[0].needed == 100 * 64 * 4


def test_a_gather_moves_a_row_with_each_descriptor() -> None:
    kernel = Kernel()
    table = kernel.argument(zeros(1024, 32))
    at = kernel.load(np.zeros((128, 1), np.int32))
    kernel.copy(kernel.sbuf(128, 32), kernel.indexed(table[0:128, :], "vector", at))
    moves = of(kernel).moves
    assert (moves.run[1], moves.bytes[1]) == (128, 128 * 128)


def test_what_a_dma_adds_up_is_stored_once() -> None:
    kernel = Kernel()
    a, b = kernel.argument(zeros(128, 64)), kernel.argument(zeros(128, 64))
    out = kernel.hbm(128, 64)
    kernel.raw("dma_compute", {"dst": out.access, "srcs0": a.access, "srcs1": b.access}, reduce_op="add")
    moves = of(kernel).moves
    assert (moves.loads.tolist(), moves.stores.tolist()) == ([True, True], [True, False])


@pytest.mark.parametrize("seed", range(40))
def test_reloads_against_every_byte_followed(seed: int) -> None:
    """Random loads and stores of two cores, in loops and out of them, unrolled and followed byte by byte.

    Never more than there are, and all of them where no loop holds a store and no core stores what the other loads.
    """
    random = np.random.default_rng(seed)
    kernel = Kernel(lnc=2)
    x = kernel.hbm(16, 12, shared=True)
    looped, crossing = bool(seed & 1), bool(seed & 2)
    done: list[list[tuple[bool, np.ndarray, int]]] = []
    for core in range(2):
        if core:
            kernel.switch_core()
        events: list[tuple[bool, np.ndarray, int]] = []
        done.append(events)
        number = 0

        def one(events: list[tuple[bool, np.ndarray, int]], core: int, number: int) -> None:
            row, column = (int(n) for n in random.integers(0, 8, 2))
            rows, columns = int(random.integers(1, 8)), int(random.integers(1, 5))
            stores = bool(random.integers(0, 3) == 0) and (crossing or core == 0)
            narrow = bool(random.integers(0, 2))
            bits = x[row : row + rows, column : column + columns]
            if narrow:  # the same bytes, read as pairs of 16 bits
                bits = View(x.buffer, "bfloat16", bits.base * 2, ((24, rows), (1, columns * 2)))
            tile = kernel.sbuf(rows, columns * (2 if narrow else 1), dtype=bits.dtype)
            kernel.copy(*((bits, tile) if stores else (tile, bits)))
            marks = np.zeros((16, 48), bool)
            marks[row : row + rows, 4 * column : 4 * (column + columns)] = True
            events.append((stores, marks, number))

        for _ in range(6):
            if looped and random.integers(0, 2):
                body: list[tuple[bool, np.ndarray, int]] = []
                with kernel.loop(3):
                    for _ in range(3):
                        one(body, core, number)
                        number += 1
                events += body * 3
            else:
                one(events, core, number)
                number += 1
    found = of(kernel)
    again = found.traffic.reloads.again
    begin = 0
    for core, events in enumerate(done):
        count = 1 + max(number for _, _, number in events)
        foreign = np.zeros((16, 48), bool)
        for stores, marks, _ in done[1 - core]:
            foreign |= marks & stores
        had, total = np.zeros((16, 48), bool), np.zeros(count)
        for stores, marks, number in events:
            if stores:
                had &= ~marks
            else:
                total[number] += np.count_nonzero(marks & had & ~foreign)
                had |= marks
        assert np.all(again[begin : begin + count] <= total)
        if not looped or not any(stores for stores, _, _ in events):
            assert again[begin : begin + count].tolist() == total.tolist()
        begin += count


def test_each_core_loads_for_itself() -> None:
    kernel = Kernel(lnc=2)
    x = kernel.argument(zeros(128, 64), shared=True)
    load(kernel, x)
    kernel.switch_core()
    load(kernel, x)
    found = of(kernel)
    assert found.moves.stream.tolist() == [0, 1]
    assert [item.factor for item in found.traffic.loaded] == [1.0, 1.0]


def test_a_round_trip_and_a_write_that_nobody_reads() -> None:
    kernel = Kernel()
    tile = load(kernel, kernel.argument(zeros(128, 64)))
    back, lost = kernel.hbm(128, 64), kernel.hbm(128, 64)
    kernel.copy(back, tile)
    kernel.copy(lost, tile)
    kernel.store(load(kernel, back))
    found = of(kernel).traffic
    assert found.round_trips == (back.buffer.id,)
    assert found.unread == (lost.buffer.id,)
    assert found.store_bytes == 3 * 32_768


def test_what_each_core_keeps_for_itself_in_a_shared_tensor_is_a_round_trip() -> None:
    assert _exchanged(0, 1) != ()


def test_what_the_other_core_reads_is_no_round_trip() -> None:
    assert _exchanged(1, 0) == ()


def test_what_both_cores_read_is_no_round_trip() -> None:
    assert _exchanged(None, None) == ()


def _exchanged(*halves: int | None) -> tuple[int, ...]:
    """Round trips where each core stores its half of a tensor, then loads the half named; None: both halves."""
    kernel = Kernel(lnc=2)
    x, scratch = kernel.argument(zeros(128, 64), shared=True), kernel.hbm(128, 64, shared=True)
    for core, half in enumerate(halves):
        if core:
            kernel.switch_core()
        tile = load(kernel, x[core * 64 : core * 64 + 64, :])
        kernel.copy(scratch[core * 64 : core * 64 + 64, :], tile)
        load(kernel, scratch if half is None else scratch[half * 64 : half * 64 + 64, :])
    return of(kernel).traffic.round_trips


def test_a_change_of_layout_through_hbm_is_no_round_trip() -> None:
    kernel = Kernel()
    tile = load(kernel, kernel.argument(zeros(128, 64)))
    back = kernel.hbm(128, 64)
    kernel.copy(back, tile)
    kernel.copy(kernel.sbuf(64, 128), back.reshape(64, 128))
    found = of(kernel).traffic
    assert found.round_trips == () and found.unread == ()


def test_an_argument_that_is_written_is_not_unread() -> None:
    kernel = Kernel()
    x = kernel.argument(zeros(128, 64))
    kernel.copy(x, load(kernel, x))
    assert of(kernel).traffic.unread == ()


def test_copies_within_hbm() -> None:
    kernel = Kernel()
    x, other = kernel.argument(zeros(128, 64)), kernel.hbm(128, 64)
    load(kernel, x)
    kernel.copy(other, x)
    found = of(kernel)
    assert found.traffic.copies.tolist() == [1]
    assert found.moves.partitions.tolist() == [128, 0]


def test_results_that_go_straight_on() -> None:
    kernel = Kernel()
    a, b = kernel.sbuf(128, 8), kernel.sbuf(128, 8)
    kernel.call("memset", dst=a, value=1.0)  # 0
    kernel.copy(b, a)  # 1: reads a for the last time
    kernel.call("memset", dst=a, value=2.0)  # 2
    kernel.call("tensor_tensor", dst=b, data1=b, data2=a, op="add")  # 3: b of 1, a of 2
    kernel.copy(kernel.hbm(128, 8), b)  # 4
    kernel.copy(kernel.hbm(128, 8), b)  # 5
    chain = of(kernel).chains
    found = sorted(zip(chain.producer.tolist(), chain.consumer.tolist(), chain.last.tolist(), strict=True))
    assert found == [(0, 1, True), (1, 3, True), (2, 3, True), (3, 4, False)]
