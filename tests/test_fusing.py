"""Copies and narrow instructions that the legacy compiler does away with or runs as one, in small kernels by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from execute_kit import Kernel, View

from nkireview.hardware import target
from nkireview.isa.enums import Engine
from nkireview.isa.table import ROWS
from nkireview.program.program import Program
from nkireview.program.scope import Scope
from nkireview.program.storage import storage
from nkireview.schedule.costs import costs
from nkireview.schedule.fusing import Fusions, fusions, idle_fills, levels
from nkireview.schedule.orders import needed
from nkireview.schedule.parameters import Figures, Parameters
from nkireview.schedule.reuse import Places
from nkireview.schedule.timing import Timing
from nkireview.schedule.uses import uses

BANK = 2048
VECTOR, SCALAR, GPSIMD = Engine.vector, Engine.scalar, Engine.gpsimd


def fused(program: Program, narrow: int = 8, turns: int = 16) -> Fusions:
    scope, held = Scope.of(program), storage(program, ROWS)
    priced = costs(scope, Figures(scope.hardware), Parameters())
    return fusions(
        scope,
        priced,
        uses(program, held),
        Places.of(program, held),
        needed(program, held),
        narrow,
        turns,
        BANK,
    )


def elided(program: Program) -> dict[int, int]:
    """Copy that is not made -> whose result is read in its stead."""
    found = fused(program)
    assert (found.source[~found.elided] == -1).all()
    return {int(at): int(found.source[at]) for at in np.flatnonzero(found.elided)}


def idle(program: Program) -> set[int]:
    scope, held = Scope.of(program), storage(program, ROWS)
    priced = costs(scope, Figures(scope.hardware), Parameters())
    return set(idle_fills(program, priced, uses(program, held), Places.of(program, held)))


class Product(Kernel):
    """A legacy kernel that multiplies two tiles (instructions 0 to 2) and copies the result out of PSUM (3)."""

    def __init__(self, width: int = 512, dtype: str = "float32", engine: Engine = VECTOR) -> None:
        super().__init__(nki="0.1")
        self.x = self.argument(np.zeros((128, 512), np.float32))
        self.left, self.right = self.sbuf(128, 128), self.sbuf(128, 512)
        self.copy(self.left, self.x[:, :128])
        self.copy(self.right, self.x)
        self.bank = self.psum(128, 512)
        self.matmul(self.bank, self.left, self.right)
        self.out = self.sbuf(128, width, dtype=dtype)
        self.call("tensor_copy", engine, dst=self.out[:, :512], src=self.bank)


def on(engine: Engine) -> Callable[[Product], None]:
    def build(kernel: Product) -> None:
        kernel.call("tensor_scalar", engine, dst=kernel.sbuf(128, 512), data=kernel.out, **doubled())

    return build


def doubled() -> dict[str, Any]:
    return {"op0": "multiply", "operand0": 2.0}


def by_two(kernel: Product) -> None:
    for engine in (VECTOR, SCALAR):
        on(engine)(kernel)


def by_one_of_another_engine(kernel: Product) -> None:
    by_two(kernel)
    on(GPSIMD)(kernel)


def by_tensor(kernel: Product) -> None:
    kernel.matmul(kernel.psum(128, 512), kernel.left, kernel.out)


def by_dma(kernel: Product) -> None:
    kernel.store(kernel.out)


def by_nobody(kernel: Product) -> None:
    return


def overwritten(kernel: Product) -> None:
    on(VECTOR)(kernel)
    kernel.matmul(kernel.bank, kernel.left, kernel.right)


def changed(kernel: Product) -> None:
    kernel.call("tensor_scalar", VECTOR, dst=kernel.out[:, :256], data=kernel.out[:, :256], **doubled())
    on(VECTOR)(kernel)


@pytest.mark.parametrize(
    ("build", "gone"),
    [
        (on(VECTOR), True),
        (on(SCALAR), True),
        (by_two, True),
        (on(GPSIMD), False),
        (by_one_of_another_engine, False),
        (by_tensor, False),
        (by_dma, False),
        (by_nobody, False),
        (overwritten, False),
        (changed, False),
    ],
)
@pytest.mark.parametrize("engine", [VECTOR, SCALAR])
def test_a_copy_goes_where_all_readers_could_read_psum(
    build: Callable[[Product], None], gone: bool, engine: Engine
) -> None:
    kernel = Product(engine=engine)
    build(kernel)
    program = kernel.program()
    assert elided(program) == ({3: 2} if gone else {})
    assert fused(program).stands == ({kernel.out.buffer.id: kernel.bank.buffer.id} if gone else {})


def test_a_copy_that_changes_the_dtype_stays() -> None:
    kernel = Product(dtype="bfloat16")
    on(VECTOR)(kernel)
    assert elided(kernel.program()) == {}


def test_a_copy_into_part_of_what_is_read_stays() -> None:
    kernel = Product(width=1024)
    kernel.call("memset", VECTOR, dst=kernel.out[:, 512:], value=0.0)
    on(VECTOR)(kernel)  # of all 1024 columns
    assert elided(kernel.program()) == {}


def test_a_copy_within_sbuf_stays() -> None:
    kernel = Kernel(nki="0.1")
    tile = kernel.load(np.zeros((128, 64), np.float32))
    copied = kernel.sbuf(128, 64)
    kernel.call("tensor_copy", VECTOR, dst=copied, src=tile)
    kernel.call("tensor_scalar", VECTOR, dst=kernel.sbuf(128, 64), data=copied, **doubled())
    assert elided(kernel.program()) == {}


def test_several_products_into_one_bank() -> None:
    """What is read is there after the last of them."""
    kernel = Kernel(nki="0.1")
    tile, bank, out = (
        kernel.load(np.zeros((128, 128), np.float32)),
        kernel.psum(128, 128),
        kernel.sbuf(128, 128),
    )
    for _ in range(3):
        kernel.matmul(bank, tile, tile)
    kernel.call("tensor_copy", VECTOR, dst=out, src=bank)
    kernel.call("tensor_scalar", VECTOR, dst=kernel.sbuf(128, 128), data=out, **doubled())
    assert elided(kernel.program()) == {4: 3}


# sums


def summed(
    value: float = 0.0, *, op: str = "add", apart: bool = False, half: bool = False, more: int = 1
) -> Program:
    """Add loaded tiles (0 and on) to a tile that was filled."""
    kernel = Kernel(nki="0.1")
    tiles = [kernel.load(np.full((128, 64), at, np.float32)) for at in range(more)]
    total, other = kernel.sbuf(128, 64), kernel.sbuf(128, 64)
    if half:
        kernel.call("memset", dst=total[:, :32], value=value)
        kernel.call("memset", dst=total[:, 32:], value=value)
    else:
        kernel.call("memset", dst=total, value=value)
    for tile in tiles:
        into = other if apart else total
        kernel.call("tensor_tensor", VECTOR, dst=into, data1=total, data2=tile, op=op)
    return kernel.program()


def test_what_is_added_to_zeros_is_written_there() -> None:
    assert elided(summed()) == {2: 0}
    # only the first of several sums adds to zeros
    assert elided(summed(more=3)) == {4: 0}


@pytest.mark.parametrize("changes", [{"value": 1.0}, {"op": "subtract"}, {"apart": True}, {"half": True}])
def test_other_sums_stay(changes: Mapping[str, Any]) -> None:
    assert elided(summed(**changes)) == {}


def test_of_a_copy_and_its_sum_with_zeros_one_stays() -> None:
    """The product is read from PSUM, but something has to bring it into SBUF, where the store finds it."""
    kernel = Product()
    total = kernel.sbuf(128, 512)
    kernel.call("memset", VECTOR, dst=total, value=0.0)  # 4
    kernel.call("tensor_tensor", VECTOR, dst=total, data1=total, data2=kernel.out, op="add")  # 5
    kernel.store(total)
    program = kernel.program()
    assert elided(program) == {3: 2}
    changes = Timing(program).plan.changes
    assert changes.order is not None and sorted(changes.order) == [0, 1, 2, 4, 5, 6]
    assert changes.stands_in == {5: (2,)}


def test_a_sum_of_a_load_that_is_dropped_waits_for_the_one_that_stands_in() -> None:
    kernel = Kernel(nki="0.1")
    x = kernel.argument(np.zeros((128, 64), np.float32))
    first, second, total, other = (kernel.sbuf(128, 64) for _ in range(4))
    kernel.copy(first, x)  # 0
    kernel.call("tensor_scalar", VECTOR, dst=other, data=first, **doubled())  # 1
    kernel.copy(second, x)  # 2
    kernel.call("memset", VECTOR, dst=total, value=0.0)  # 3
    kernel.call("tensor_tensor", VECTOR, dst=total, data1=total, data2=second, op="add")  # 4
    kernel.store(total)  # 5
    kernel.store(other)  # 6
    changes = Timing(kernel.program()).plan.changes
    assert changes.dropped == {2, 4} and changes.stands_in == {5: (0,)}
    assert changes.order is not None and sorted(changes.order) == [0, 1, 3, 5, 6]


# narrow instructions


def narrow_loop(members: int, columns: int = 1, chained: bool = False) -> Program:
    """The reductions of a loop's tiles, all of one line."""
    kernel = Kernel(nki="0.1")
    line = kernel.line
    made = None
    for _ in range(members):
        tile = kernel.sbuf(128, columns)
        kernel.line = line + 50
        source = made if chained and made is not None else tile
        made = kernel.sbuf(128, columns)
        kernel.line = line + 100
        kernel.call("tensor_scalar", VECTOR, dst=made, data=source, **doubled())
    return kernel.program()


@pytest.mark.parametrize(("members", "together"), [(1, False), (2, True), (16, True), (17, False)])
def test_narrow_instructions_of_one_line_run_as_one(members: int, together: bool) -> None:
    group = fused(narrow_loop(members)).group
    assert group.tolist() == ([group[0]] * members if together else [-1] * members)
    assert bool(group[0] >= 0) is together
    assert fused(narrow_loop(members), turns=members).group[0] == (-1 if members == 1 else 0)


def test_wide_ones_do_not() -> None:
    assert (fused(narrow_loop(4, columns=8)).group >= 0).all()
    assert (fused(narrow_loop(4, columns=9)).group == -1).all()
    assert (fused(narrow_loop(4, columns=9), narrow=9).group >= 0).all()


def test_those_that_wait_for_each_other_do_not() -> None:
    """Each reads what the one before wrote: every one has a level of its own."""
    program = narrow_loop(4, chained=True)
    assert (fused(program).group == -1).all()
    assert levels(needed(program, storage(program, ROWS)), 4).tolist() == [0, 1, 2, 3]


def test_levels_are_groups_apart() -> None:
    """Two chains of two over the same lines: the first of each run as one, and the second of each."""
    kernel = Kernel(nki="0.1")
    tiles = [[kernel.sbuf(128, 1) for _ in range(3)] for _ in range(2)]
    for chain in tiles:
        for source, made in pairwise(chain):
            kernel.line = 1000
            kernel.call("tensor_scalar", VECTOR, dst=made, data=source, **doubled())
    one, two, three, four = fused(kernel.program()).group.tolist()
    assert one == three and two == four and one != two and min(one, two) >= 0


def test_two_lines_are_groups_apart_and_so_are_two_instructions() -> None:
    kernel = Kernel(nki="0.1")
    for _ in range(2):
        for line, name in ((500, "tensor_scalar"), (600, "tensor_scalar"), (600, "tensor_copy")):
            into, tile = kernel.sbuf(128, 1), kernel.sbuf(128, 1)
            kernel.line = line
            if name == "tensor_copy":
                kernel.call(name, VECTOR, dst=into, src=tile)
            else:
                kernel.call(name, VECTOR, dst=into, data=tile, **doubled())
    group = fused(kernel.program()).group.tolist()
    assert group[:3] == group[3:] and len(set(group)) == 3 and min(group) >= 0


def test_dmas_and_matmuls_are_no_narrow_instructions() -> None:
    kernel = Kernel(nki="0.1")
    x = kernel.argument(np.zeros((128, 1), np.float32))
    for _ in range(3):
        tile, bank = kernel.sbuf(128, 1), kernel.psum(1, 1)
        kernel.line = 500
        kernel.copy(tile, x)
        kernel.line = 600
        kernel.matmul(bank, tile, tile)
    assert (fused(kernel.program()).group == -1).all()


def test_a_group_pays_for_one_access() -> None:
    """Of four reductions that run as one, three cost their elements alone."""
    kernel = Kernel(nki="0.1")
    x = kernel.argument(np.zeros((512, 4), np.float32))
    for at in range(4):
        tile, total = kernel.sbuf(128, 4), kernel.sbuf(128, 1)
        kernel.copy(tile, x[128 * at : 128 * at + 128])
        kernel.line = 500
        kernel.call("tensor_reduce", VECTOR, dst=total, data=tile, op="add", axis=1)
    timing = Timing(kernel.program())
    trn2 = target("trn2")
    elements, access = 4 / trn2.number("vector.clock_ghz"), trn2.number("vector.overhead_cycles")
    access /= trn2.number("vector.clock_ghz")
    held = sorted(timing.held_ns[1::2].tolist())
    assert held == pytest.approx([elements] * 3 + [elements + access])
    assert sorted(timing.written.costs.held[1::2].tolist()) == pytest.approx([elements + access] * 4)


# copies of small tiles into one


def copies(count: int, columns: int, tiles: int = 1, dtype: str = "float32") -> Program:
    """Copies of PSUM tiles into parts of an SBUF tile, which a matmul reads, so that none is elided."""
    kernel = Kernel(nki="0.1")
    banks = [kernel.psum(128, columns, dtype=dtype) for _ in range(count)]
    into = [kernel.sbuf(128, columns * count, dtype=dtype) for _ in range(tiles)]
    for at, bank in enumerate(banks):
        kernel.line = 500
        part = into[at % tiles][:, at * columns : (at + 1) * columns]
        kernel.call("tensor_copy", VECTOR, dst=part, src=bank)
    return kernel.program()


@pytest.mark.parametrize(
    ("columns", "dtype", "first"),
    [
        (128, "float32", [0, 4, 8]),  # 512 bytes each, four in a bank
        (256, "bfloat16", [0, 4, 8]),
        (200, "float32", [0, 2, 4, 6, 8]),
        (512, "float32", list(range(9))),
        (16, "float32", [0]),
    ],
)
def test_copies_into_one_tile_pay_for_an_access_once_a_bank(
    columns: int, dtype: str, first: list[int]
) -> None:
    follows = fused(copies(9, columns, dtype=dtype)).follows
    assert np.flatnonzero(~follows).tolist() == first


def test_copies_into_two_tiles_are_two_rows_of_copies() -> None:
    assert np.flatnonzero(~fused(copies(8, 128, tiles=2)).follows).tolist() == [0, 1]


def test_copies_from_sbuf_or_of_two_lines_do_not_follow() -> None:
    kernel = Kernel(nki="0.1")
    into, tile = kernel.sbuf(128, 64), kernel.sbuf(128, 16)
    for at in range(0, 64, 16):
        kernel.line = 500
        kernel.call("tensor_copy", VECTOR, dst=into[:, at : at + 16], src=tile)
    assert not fused(kernel.program()).follows.any()
    kernel = Kernel(nki="0.1")
    into, bank = kernel.sbuf(128, 64), kernel.psum(128, 16)
    for at in range(0, 64, 16):
        kernel.call("tensor_copy", VECTOR, dst=into[:, at : at + 16], src=bank)
    assert not fused(kernel.program()).follows.any()


# idle fills


def filled(value: float = 0.0, *, part: bool = False, then: str = "matmul", space: str = "psum") -> Program:
    kernel = Kernel(nki="0.1")
    tile = kernel.sbuf(128, 128)
    bank: View = getattr(kernel, space)(128, 128)
    kernel.call("memset", dst=bank[:, :64] if part else bank, value=value)
    if then == "matmul":
        kernel.matmul(bank, tile, tile)
    elif then == "transpose":
        kernel.call("nc_transpose", dst=bank, data=tile)
    elif then == "read":
        kernel.call("tensor_copy", VECTOR, dst=tile, src=bank)
        kernel.matmul(bank, tile, tile)
    elif then == "write":
        kernel.call("tensor_scalar", VECTOR, dst=bank, data=tile, **doubled())
    return kernel.program()


@pytest.mark.parametrize(
    ("changes", "unneeded"),
    [
        ({}, True),
        ({"then": "transpose"}, True),
        ({"value": 1.0}, False),
        ({"part": True}, False),
        ({"then": "read"}, False),
        ({"then": "write"}, False),
        ({"then": "nothing"}, False),
        ({"then": "matmul", "space": "sbuf"}, False),
    ],
)
def test_zeros_in_psum_that_a_matmul_overwrites(changes: Mapping[str, Any], unneeded: bool) -> None:
    program = filled(**changes)
    assert idle(program) == ({0} if unneeded else set())
