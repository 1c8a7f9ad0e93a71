"""Where buffers lie on chip, held against the rules of the hardware and against placements worked out by hand."""

from __future__ import annotations

import pytest
from execute_kit import Kernel, View
from hypothesis import given, settings
from hypothesis import strategies as st

from nkireview import hardware
from nkireview.checks.allocation import Placed
from nkireview.checks.survey import survey
from nkireview.isa.enums import Memory
from nkireview.isa.table import ROWS
from nkireview.program.storage import storage
from nkireview.schedule.reuse import reuse

BANK = 2048


def placed(kernel: Kernel) -> dict[int, Placed]:
    """The placements of a kernel by buffer."""
    found = survey(kernel.program(), ROWS, hardware.target(kernel.target)).placed
    assert [each.buffer for each in found] == sorted(each.buffer for each in found)
    return {each.buffer: each for each in found}


def where(kernel: Kernel, *views: View) -> list[tuple[int, int | None, int | None]]:
    """(partition, start, stop) of each view's buffer."""
    found = placed(kernel)
    return [(at.partition, at.start, at.stop) for at in (found[view.buffer.id] for view in views)]


def use(kernel: Kernel, *views: View) -> None:
    """Every view is written, then every one is written again: all are alive at once."""
    for _ in range(2):
        for view in views:
            kernel.call("memset", dst=view, value=0.0)


def test_what_is_alive_at_once_lies_side_by_side_from_the_first_byte_on() -> None:
    kernel = Kernel()
    a, b, c = kernel.sbuf(128, 100), kernel.sbuf(64, 3, dtype="bfloat16"), kernel.sbuf(128, 1)
    unused = kernel.sbuf(128, 8)
    use(kernel, a, b, c)
    found = placed(kernel)
    assert unused.buffer.id not in found
    assert found[a.buffer.id] == Placed(a.buffer.id, Memory.sbuf, 0, 0, 128, 0, 400, 0, 3, explicit=False)
    assert found[b.buffer.id] == Placed(b.buffer.id, Memory.sbuf, 0, 0, 64, 400, 406, 1, 4, explicit=False)
    assert found[c.buffer.id] == Placed(c.buffer.id, Memory.sbuf, 0, 0, 128, 406, 410, 2, 5, explicit=False)


def test_the_next_one_goes_behind_the_last_one_though_bytes_before_it_are_free() -> None:
    kernel = Kernel()
    tiles = [kernel.sbuf(128, 100) for _ in range(3)]
    for tile in tiles:
        use(kernel, tile)
    assert where(kernel, *tiles) == [(0, 0, 400), (0, 400, 800), (0, 800, 1200)]


@pytest.mark.parametrize(("target", "usable"), [("trn1", 180_224), ("trn2", 212_984), ("trn3", 245_752)])
def test_reserved_bytes_are_never_given_out(target: str, usable: int) -> None:
    kernel = Kernel(target)
    tiles = [kernel.sbuf(128, usable // 8) for _ in range(2)]
    one_more = kernel.sbuf(128, 1)
    use(kernel, *tiles, one_more)
    assert where(kernel, *tiles, one_more) == [(0, 0, usable // 2), (0, usable // 2, usable), (0, None, None)]


def test_an_address_of_the_kernels_own_is_kept_and_gone_around() -> None:
    kernel = Kernel()
    own = kernel.sbuf(128, 100, address=(0, 40))
    small, large = kernel.sbuf(128, 10), kernel.sbuf(128, 11)
    use(kernel, own, small, large)
    assert where(kernel, own, small, large) == [(0, 40, 440), (0, 0, 40), (0, 440, 484)]
    assert [at.explicit for at in placed(kernel).values()] == [True, False, False]


def test_an_address_that_is_needed_later_is_gone_around_too() -> None:
    kernel = Kernel()
    later = kernel.sbuf(128, 100, address=(0, 0))
    long, short = kernel.sbuf(128, 10), kernel.sbuf(128, 10)
    use(kernel, short)  # gone before `later` begins
    kernel.call("memset", dst=long, value=0.0)
    use(kernel, later)
    kernel.call("memset", dst=long, value=0.0)
    assert where(kernel, later, long, short) == [(0, 0, 400), (0, 400, 440), (0, 0, 40)]


def test_a_buffer_that_takes_over_a_kernels_own_bytes_waits_for_them() -> None:
    kernel = Kernel()
    usable = hardware.target("trn2").sbuf_usable_bytes
    own = kernel.sbuf(128, usable // 4, address=(0, 0))
    use(kernel, own)
    after = kernel.sbuf(128, 1)
    use(kernel, after)
    program = kernel.program()
    arrivals, full = reuse(program, storage(program, ROWS), hardware.target("trn2"))
    assert not full and arrivals == {2: [(after.buffer.id, (own.buffer.id,))]}


def test_bytes_that_something_earlier_is_read_through_another_view_of_are_not_given_away() -> None:
    kernel = Kernel()
    whole, half = kernel.sbuf(128, 512, address=(0, 0)), kernel.sbuf(128, 256, address=(0, 0))
    kernel.call("memset", dst=half, value=0.0)
    between = kernel.sbuf(128, 1)
    use(kernel, between)
    kernel.copy(kernel.hbm(128, 512), whole)
    assert where(kernel, between) == [(0, 2048, 2052)]


def test_few_partitions_lie_side_by_side_only_where_nothing_else_fits() -> None:
    def kernel_of(rows: int, count: int) -> tuple[Kernel, list[View]]:
        kernel = Kernel()
        usable = hardware.target("trn2").sbuf_usable_bytes
        tiles = [kernel.sbuf(rows, usable // 8) for _ in range(count)]
        use(kernel, *tiles)
        return kernel, tiles

    half = 106_492
    assert where(*_flat(kernel_of(32, 2))) == [(0, 0, half), (0, half, 2 * half)]
    assert sorted(where(*_flat(kernel_of(32, 8)))) == [
        (at, start, start + half) for at in (0, 32, 64, 96) for start in (0, half)
    ]
    assert sorted(where(*_flat(kernel_of(33, 4)))) == [
        (at, start, start + half) for at in (0, 64) for start in (0, half)
    ]
    kernel, tiles = kernel_of(65, 3)
    assert [at for at in where(kernel, *tiles) if at[1] is None] == [(0, None, None)]


def _flat(made: tuple[Kernel, list[View]]) -> tuple[Kernel | View, ...]:
    return (made[0], *made[1])


def test_accumulators_have_a_bank_each_while_there_are_banks() -> None:
    kernel = Kernel()
    operand = kernel.sbuf(128, 128)
    kernel.call("memset", dst=operand, value=0.0)
    banks = [kernel.psum(128, 128) for _ in range(8)]
    for bank in banks:
        kernel.matmul(bank, operand, operand)
    for bank in banks:
        kernel.copy(kernel.sbuf(128, 128), bank)
    assert where(kernel, *banks) == [(0, BANK * at, BANK * at + 512) for at in range(8)]


@pytest.mark.parametrize(
    ("target", "found"),
    [("trn1", (0, None, None)), ("trn2", (0, None, None)), ("trn3", (0, 13_888, 14_888))],
)
def test_a_matmul_result_lies_in_one_bank_where_the_hardware_asks_for_it(
    target: str, found: tuple[int, int | None, int | None]
) -> None:
    kernel = Kernel(target)
    operand = kernel.sbuf(128, 250)
    wide, first, gone = kernel.psum(128, 6 * 512), kernel.psum(128, 400), kernel.psum(128, 200)
    stays, result = kernel.psum(128, 250), kernel.psum(128, 250)
    kernel.call("memset", dst=operand, value=0.0)
    use(
        kernel, wide, first, gone, stays
    )  # banks 0 to 5, 1600 B of the sixth, 800 B and then 1000 B of the last
    kernel.matmul(
        result, operand[:, 0:128], operand
    )  # `gone` is: 448 B of bank 6 and 800 B of bank 7 are free
    for view in (wide, first, stays, result):
        kernel.copy(kernel.sbuf(128, view.shape[1]), view)
    assert where(kernel, first, gone, stays) == [
        (0, 12_288, 13_888),
        (0, 14_336, 15_136),
        (0, 15_136, 16_136),
    ]
    assert where(kernel, result) == [found]


def test_what_is_larger_than_a_bank_begins_with_one() -> None:
    kernel = Kernel()
    operand = kernel.sbuf(128, 128)
    kernel.call("memset", dst=operand, value=0.0)
    small, large = kernel.psum(128, 10), kernel.psum(128, 1024)
    for view in (small[:, 0:8], large[:, 0:128]):
        kernel.matmul(view, operand, operand[:, 0 : view.shape[1]])
    for view in (small, large):
        kernel.copy(kernel.sbuf(128, view.shape[1]), view)
    assert where(kernel, small, large) == [(0, 0, 40), (0, 2048, 2048 + 4096)]


@pytest.mark.parametrize(("by_matmul", "found"), [(True, (0, None, None)), (False, (0, 40, 4136))])
def test_a_large_result_of_matmuls_never_begins_inside_a_bank(
    by_matmul: bool, found: tuple[int, int | None, int | None]
) -> None:
    kernel = Kernel()
    operand = kernel.sbuf(128, 128)
    kernel.call("memset", dst=operand, value=0.0)
    own = [kernel.psum(128, 10, address=(0, 0)), kernel.psum(128, 3056, address=(0, 4160))]
    large = kernel.psum(128, 1024)  # 4096 B of the 4120 between the two
    use(kernel, *own)
    if by_matmul:
        kernel.matmul(large[:, 0:128], operand, operand)
    else:
        kernel.call("memset", dst=large, value=0.0)
    use(kernel, *own)
    kernel.copy(kernel.sbuf(128, 1024), large)
    assert where(kernel, large) == [found]


def test_bytes_that_are_free_again_are_given_out_first_where_room_is_short() -> None:
    kernel = Kernel()
    half = hardware.target("trn2").sbuf_usable_bytes // 8  # elements of half a partition
    tiles = [kernel.sbuf(32, half) for _ in range(9)]
    use(kernel, *tiles[:8])
    kernel.call("memset", dst=tiles[8], value=0.0)  # the first one is gone
    use(kernel, *tiles[1:])
    assert where(kernel, tiles[0]) == where(kernel, tiles[8]) == [(0, 0, 4 * half)]


def test_each_core_has_its_own() -> None:
    kernel = Kernel(lnc=2)
    a = kernel.sbuf(128, 100)
    use(kernel, a)
    kernel.switch_core()
    b = kernel.sbuf(128, 100)
    use(kernel, b)
    found = placed(kernel)
    assert [(found[view.buffer.id].core, found[view.buffer.id].start) for view in (a, b)] == [(0, 0), (1, 0)]


@st.composite
def kernels(draw: st.DrawFn) -> Kernel:
    """Buffers of any shape that live in any way, some with addresses, in SBUF and PSUM."""
    target = draw(st.sampled_from(["trn1", "trn2", "trn3"]))
    kernel = Kernel(target)
    room = {"sbuf": hardware.target(target).sbuf_usable_bytes, "psum": 16_384}
    views = []
    for _ in range(draw(st.integers(1, 14))):
        memory = draw(st.sampled_from(["sbuf", "psum"]))
        rows = draw(st.sampled_from([1, 17, 32, 33, 64, 65, 128]))
        columns = draw(st.integers(1, room[memory] // 4 // draw(st.sampled_from([1, 3, 8]))))
        address = None
        if draw(st.integers(0, 4)) == 0:
            step = 1 if memory == "sbuf" else BANK
            address = (0, draw(st.integers(0, (room[memory] - 4 * columns) // step)) * step)
        views.append(getattr(kernel, memory)(rows, columns, address=address))
    for _ in range(draw(st.integers(1, 40))):
        kernel.call("memset", dst=draw(st.sampled_from(views)), value=0.0)
    return kernel


@given(kernels())
@settings(max_examples=300, deadline=None)
def test_nothing_alive_shares_a_byte_and_every_rule_of_the_hardware_is_kept(kernel: Kernel) -> None:
    """Against the rules as the guides have them: alignment, start partitions, capacity, and who is alive when."""
    usable = {"trn1": 180_224, "trn2": 212_984, "trn3": 245_752}[kernel.target]
    found = list(placed(kernel).values())
    for each in found:
        if each.start is None or each.stop is None:
            assert not each.explicit
            continue
        if not each.explicit:
            assert 0 <= each.start < each.stop <= (usable if each.memory is Memory.sbuf else 16_384)
            assert each.partition in (
                (0, 32, 64, 96) if each.partitions <= 32 else (0, 64) if each.partitions <= 64 else (0,)
            )
            if each.memory is Memory.psum:
                assert each.start % 4 == 0
    for at, one in enumerate(found):
        for other in found[at + 1 :]:
            if one.memory is not other.memory or (one.explicit and other.explicit):
                continue
            if None in (one.start, other.start) or one.first > other.last or other.first > one.last:
                continue
            apart = one.stop <= other.start or other.stop <= one.start
            apart |= one.partition + one.partitions <= other.partition
            apart |= other.partition + other.partitions <= one.partition
            assert apart, (one, other)
