"""Space over the program, held against bytes worked out by hand."""

from __future__ import annotations

import pytest
from execute_kit import Kernel, View

from nkireview import hardware
from nkireview.checks.space import Space
from nkireview.checks.survey import Survey, survey
from nkireview.isa.enums import Memory
from nkireview.isa.table import ROWS


def of(kernel: Kernel, target: str = "trn2") -> Survey:
    return survey(kernel.program(), ROWS, hardware.target(target))


def space(kernel: Kernel, memory: Memory = Memory.sbuf) -> Space:
    (found,) = [item for item in of(kernel).space if item.memory is memory]
    return found


def fill(kernel: Kernel, *views: View) -> None:
    for view in views:
        kernel.call("memset", dst=view, value=0.0)


def test_the_curve_steps_with_first_and_last_use() -> None:
    kernel = Kernel()
    a, b, c = kernel.sbuf(128, 100), kernel.sbuf(128, 50, dtype="bfloat16"), kernel.sbuf(128, 25)
    fill(kernel, a)  # 0: a lives
    kernel.copy(b, a)  # 1: a and b
    fill(kernel, c)  # 2: b and c
    kernel.copy(c, b)  # 3
    fill(kernel, c)  # 4: c alone
    found = space(kernel)
    assert found.at.tolist() == [0, 1, 2, 4, 5]
    assert found.used.tolist() == [400, 500, 200, 100, 0]
    assert (found.peak, found.peak_at, found.packed) == (500, 1, 500)
    assert [(held.bytes, held.partitions, held.first, held.last) for held in found.alive] == [
        (400, 128, 0, 1),
        (100, 128, 1, 3),
    ]
    assert [held.place for held in found.alive] == ["kernel.py:1", "kernel.py:2"]


@pytest.mark.parametrize(("target", "usable"), [("trn1", 180_224), ("trn2", 212_984), ("trn3", 245_752)])
def test_usable_bytes_are_those_of_the_target(target: str, usable: int) -> None:
    kernel = Kernel(target)
    fill(kernel, kernel.sbuf(128, 8), kernel.psum(128, 8))
    sbuf, psum = of(kernel, target).space
    assert (sbuf.memory, sbuf.usable) == (Memory.sbuf, hardware.target(target).sbuf_usable_bytes)
    assert sbuf.usable == usable
    assert (psum.memory, psum.usable) == (Memory.psum, 16_384)


def test_psum_counts_by_bank() -> None:
    kernel = Kernel()
    fill(kernel, *(tiles := [kernel.psum(128, 128) for _ in range(3)]))
    fill(kernel, *tiles)
    found = space(kernel, Memory.psum)
    assert found.peak == 3 * 2048
    assert found.packed == 3 * 512


def test_few_partitions_share_their_bytes() -> None:
    kernel = Kernel()
    narrow = [kernel.sbuf(32, 100) for _ in range(4)]
    half = [kernel.sbuf(64, 100) for _ in range(2)]
    fill(kernel, *narrow, *half, *narrow, *half)
    assert space(kernel).peak == 400 + 400


def test_buffers_at_one_address_are_one() -> None:
    kernel = Kernel()
    a, b = (kernel.sbuf(128, 256, address=(0, 0)) for _ in range(2))
    fill(kernel, a, b)
    kernel.copy(kernel.hbm(128, 256), a)
    kernel.copy(kernel.hbm(128, 256), b)
    found = space(kernel)
    assert found.peak == 1024
    assert found.clashes == ()


def test_overlapping_addresses_clash_where_what_is_lost_is_read() -> None:
    kernel = Kernel()
    a = kernel.sbuf(128, 512, address=(0, 0), name="a")
    b = kernel.sbuf(128, 512, address=(0, 1024), name="b")
    fill(kernel, a)
    written = kernel.call("memset", dst=b, value=1.0)
    read = kernel.copy(kernel.hbm(128, 512), a)
    (clash,) = space(kernel).clashes
    assert (clash.lost, clash.by, clash.written, clash.read) == (a.buffer.id, b.buffer.id, written, read)


@pytest.mark.parametrize(("partition", "byte"), [(64, 0), (0, 2048)], ids=["other partitions", "other bytes"])
def test_addresses_that_do_not_overlap_are_no_clash(partition: int, byte: int) -> None:
    kernel = Kernel()
    a = kernel.sbuf(64, 512, address=(0, 0))
    b = kernel.sbuf(64, 512, address=(partition, byte))
    fill(kernel, a, b)
    kernel.copy(kernel.hbm(64, 512), a)
    assert space(kernel).clashes == ()


def test_an_overlap_is_no_clash_once_the_first_is_used_up_or_where_other_columns_are_read() -> None:
    kernel = Kernel()
    a, b = kernel.sbuf(128, 512, address=(0, 0)), kernel.sbuf(128, 512, address=(0, 1024))
    fill(kernel, a)
    kernel.copy(kernel.hbm(128, 512), a)
    fill(kernel, b)
    kernel.copy(kernel.hbm(128, 512), b)
    kernel.copy(kernel.hbm(128, 256), a[:, 0:256])
    assert space(kernel).clashes == ()


def test_reading_through_another_view_of_the_same_bytes_is_no_clash() -> None:
    kernel = Kernel()
    whole, half = kernel.sbuf(128, 512, address=(0, 0)), kernel.sbuf(128, 256, address=(0, 0))
    fill(kernel, half)
    kernel.copy(kernel.hbm(128, 512), whole)  # never written itself: a view of `half` by intent
    assert space(kernel).clashes == ()


def test_operands_that_exceed_the_memory_together() -> None:
    kernel = Kernel()
    a, b = kernel.sbuf(128, 28_000), kernel.sbuf(128, 28_000)
    fill(kernel, a)
    copied = kernel.copy(b, a)
    found = space(kernel)
    assert [(crowd.instruction, crowd.bytes) for crowd in found.crowds] == [(copied, 224_000)]


def test_operands_on_other_partitions_are_no_crowd() -> None:
    kernel = Kernel()
    a, b = kernel.sbuf(64, 28_000), kernel.sbuf(64, 28_000)
    fill(kernel, a)
    kernel.copy(b, a)
    assert space(kernel).crowds == ()


def test_a_buffer_used_in_a_loop_lives_to_its_end() -> None:
    kernel = Kernel()
    a, b, c = kernel.sbuf(128, 100), kernel.sbuf(128, 10), kernel.sbuf(128, 10)
    fill(kernel, a)  # 0
    with kernel.loop(4):
        kernel.copy(b, a[:, 0:10])  # 1: the last read of a in program order
        fill(kernel, c)  # 2
        kernel.copy(kernel.hbm(128, 10), b)  # 3
    found = space(kernel)
    assert found.peak == 400 + 40 + 40
    assert max(held.last for held in found.alive) == 3


def test_cores_have_memories_of_their_own() -> None:
    kernel = Kernel(lnc=2)
    fill(kernel, kernel.sbuf(128, 100))
    kernel.switch_core()
    fill(kernel, kernel.sbuf(128, 300))
    assert [(item.core, item.peak) for item in of(kernel).space] == [(0, 400), (1, 1200)]


def test_an_empty_program_uses_no_memory() -> None:
    found = of(Kernel())
    assert found.space == ()
    assert len(found.moves) == len(found.work) == len(found.uses) == 0
