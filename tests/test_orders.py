"""Other legal orders of a Program: what is legal by brute force, what they give, and what a review says of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import combinations, permutations
from pathlib import Path

import numpy as np
import pytest
from execute_kit import Kernel, View, counted
from hypothesis import given, settings
from hypothesis import strategies as st

from nkireview.execute import execute
from nkireview.isa.enums import Memory
from nkireview.isa.table import ROWS
from nkireview.program.errors import ProgramError
from nkireview.program.footprint import offsets
from nkireview.program.program import Program
from nkireview.program.reordered import reordered, stretches
from nkireview.program.storage import storage
from nkireview.record import ReviewRecord
from nkireview.replays import MOVED, Replays, differences
from nkireview.report.html import html
from nkireview.report.markdown import markdown
from nkireview.report.text import determinism
from nkireview.requests import from_file, from_task
from nkireview.review import review
from nkireview.rules.facts import Difference, Facts, Orders, WorkloadFacts
from nkireview.rules.finding import Severity
from nkireview.rules.orders import RULES
from nkireview.runner import ForkServer
from nkireview.schedule.orders import Policy, needed, orders
from nkireview.task import resolve
from nkireview.tracing import trace

POLICIES = tuple(Policy)


def orders_of(program: Program, policy: Policy, seeds: Iterable[int]) -> Iterator[list[int]]:
    """The order for each seed."""
    needs = needed(program, storage(program, ROWS))
    for seed in seeds:
        found: list[int] = orders(program, needs, policy, seed).tolist()
        yield found


def order_of(program: Program, policy: Policy, seed: int = 0) -> list[int]:
    return next(orders_of(program, policy, [seed]))


def touched(program: Program, index: int) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
    """The elements (buffer, offset) that an instruction reads, and those that it writes."""
    columns = program.columns
    opcode = program.opcodes[columns.opcode[index]]
    roles = {operand.name: operand.role for operand in ROWS[opcode.name].operands}
    reads: set[tuple[int, int]] = set()
    writes: set[tuple[int, int]] = set()
    for name, access in program.instruction(index).operands.items():
        if access is None:
            continue
        held = {(access.buffer, at) for at in offsets(access).reshape(-1).tolist()}
        reads |= held if roles[name].reads else set()
        writes |= held if roles[name].writes else set()
    return reads, writes


def legal(program: Program) -> set[tuple[int, ...]]:
    """Every order in which no two instructions change places of which one writes what the other reads or writes.

    None crosses the end of a loop.
    """
    count = len(program)
    used = [touched(program, index) for index in range(count)]
    ends = {at for loop in program.loops for at in (loop.start, loop.stop)}
    home = np.cumsum([index in ends for index in range(count)])
    kept = [
        (one, two)
        for one, two in combinations(range(count), 2)
        if home[one] != home[two]
        or used[one][1] & (used[two][0] | used[two][1])
        or used[two][1] & used[one][0]
    ]
    return {
        order
        for order in permutations(range(count))
        if all(order.index(one) < order.index(two) for one, two in kept)
    }


Move = tuple[str, int, slice, int, slice]


@st.composite
def moves(draw: st.DrawFn) -> list[Move]:
    """Copies and additions between parts of three tiles, an input and an output of four columns."""
    found = []
    for _ in range(draw(st.integers(1, 6))):
        width = draw(st.sampled_from([1, 2, 4]))
        kind = draw(st.sampled_from(["load", "copy", "add", "store"]))
        to, source = draw(st.integers(0, 2)), draw(st.integers(0, 2))
        first, second = (draw(st.integers(0, 4 - width)) for _ in range(2))
        found.append((kind, to, slice(first, first + width), source, slice(second, second + width)))
    return found


def written(rows: list[Move], looped: tuple[int, int] = (0, 0)) -> Kernel:
    """The kernel of some moves; those of a range lie in a loop of two passes."""
    kernel = Kernel()
    x, out = kernel.argument(counted(2, 4)), kernel.hbm(2, 4)
    tiles: list[View] = [kernel.sbuf(2, 4) for _ in range(3)]

    def move(kind: str, to: int, columns: slice, source: int, others: slice) -> None:
        target, given = tiles[to][:, columns], tiles[source][:, others]
        if kind == "load":
            kernel.copy(target, x[:, others])
        elif kind == "copy":
            kernel.copy(target, given)
        elif kind == "store":
            kernel.copy(out[:, columns], given)
        else:
            kernel.call("tensor_tensor", dst=target, data1=target, data2=given, op="add")

    for row in rows[: looped[0]]:
        move(*row)
    if looped[1] > looped[0]:
        with kernel.loop(2):
            for row in rows[slice(*looped)]:
                move(*row)
    for row in rows[max(looped) :]:
        move(*row)
    kernel.output(out)
    return kernel


@settings(max_examples=150, deadline=None)
@given(moves(), st.integers(0, 6), st.integers(0, 6))
def test_every_order_is_a_legal_one(rows: list[Move], start: int, stop: int) -> None:
    start, stop = sorted((min(start, len(rows)), min(stop, len(rows))))
    program = written(rows, (start, stop)).program()
    allowed = legal(program)
    for policy in POLICIES:
        assert tuple(order_of(program, policy)) in allowed
    for order in orders_of(program, Policy.shuffled, range(5)):
        assert tuple(order) in allowed


@settings(max_examples=25, deadline=None)
@given(moves().filter(lambda rows: len(rows) <= 4))
def test_shuffled_reaches_every_legal_order(rows: list[Move]) -> None:
    program = written(rows).program()
    found = {tuple(order) for order in orders_of(program, Policy.shuffled, range(400))}
    assert found == legal(program)


@settings(max_examples=60, deadline=None)
@given(moves(), st.integers(0, 6), st.integers(0, 6))
def test_legal_orders_give_the_same_bits(rows: list[Move], start: int, stop: int) -> None:
    start, stop = sorted((min(start, len(rows)), min(stop, len(rows))))
    kernel = written(rows, (start, stop))
    program = kernel.program()

    def result(which: Program) -> tuple[bytes, bytes]:
        found = execute(which, kernel.arguments).outputs[0]
        mask = np.ones(found.values.shape, bool) if found.written is None else found.written
        return np.where(mask, found.values, 0).tobytes(), mask.tobytes()

    ordinary = result(program)
    for order in sorted(legal(program))[:40]:
        assert result(reordered(program, np.array(order, np.int64))) == ordinary


def test_a_late_dma_runs_when_something_needs_it_and_an_early_one_at_once() -> None:
    kernel = Kernel()
    x, y = kernel.argument(counted(2, 4)), kernel.argument(counted(2, 4) + 8)
    left, right, total, double = (kernel.sbuf(2, 4) for _ in range(4))
    kernel.copy(left, x)  # 0
    kernel.call("tensor_tensor", dst=double, data1=left, data2=left, op="add")  # 1
    kernel.copy(right, y)  # 2
    kernel.store(double)  # 3
    kernel.call("tensor_tensor", dst=total, data1=left, data2=left, op="add")  # 4
    kernel.call("tensor_tensor", dst=total, data1=total, data2=right, op="add")  # 5
    kernel.store(total)  # 6
    program = kernel.program()
    assert order_of(program, Policy.late) == [0, 1, 4, 2, 5, 3, 6]
    assert order_of(program, Policy.early) == [0, 2, 1, 3, 4, 5, 6]


def test_random_numbers_are_drawn_in_order() -> None:
    kernel = Kernel()
    tiles = [kernel.sbuf(2, 4) for _ in range(8)]
    for tile in tiles[:4]:
        kernel.call("memset", dst=tile, value=1.0)
    drawn = [kernel.call("rand2", dst=tile, min=0.0, max=1.0) for tile in tiles[4:]]
    found = shuffled(kernel.program(), 30)
    assert all([index for index in order if index in drawn] == drawn for order in found)
    assert len({order.index(0) for order in found}) > 3


@pytest.mark.parametrize("named", [False, True])
def test_what_is_named_comes_first(named: bool) -> None:
    kernel = Kernel()
    for _ in range(2):
        kernel.call("memset", dst=kernel.sbuf(2, 4), value=1.0)
    if named:
        kernel.builder.depend(1, (0,))
    found = {tuple(order) for order in shuffled(kernel.program(), 30)}
    assert found == ({(0, 1)} if named else {(0, 1), (1, 0)})


def shuffled(program: Program, count: int) -> list[list[int]]:
    return [order_of(program, Policy.shuffled, seed) for seed in range(count)]


def test_accumulator_registers_and_prints_keep_their_order() -> None:
    kernel = Kernel()
    x = kernel.load(counted(2, 4))
    sums = [kernel.sbuf(2, 1) for _ in range(3)]
    for at in range(3):
        kernel.call(
            "activation",
            dst=kernel.sbuf(2, 4),
            data=x,
            op="copy",
            reduce_op="add",
            reduce_res=sums[at],
            reduce_cmd="reset_reduce" if at == 0 else "reduce",
        )
    for _ in range(3):
        kernel.copy(kernel.tensor(Memory.hbm, 2, 4, name="device_print sum"), x)
    for order in shuffled(kernel.program(), 30):
        kept = [index for index in order if index in (1, 2, 3)]
        printed = [index for index in order if index in (4, 5, 6)]
        assert (kept, printed) == ([1, 2, 3], [4, 5, 6])
    assert len({tuple(order) for order in shuffled(kernel.program(), 30)}) > 5


def test_nothing_moves_across_a_meeting() -> None:
    kernel = Kernel(lnc=2)
    shared = kernel.hbm(2, 4, shared=True)
    for core in (0, 1):
        if core:
            kernel.switch_core()
        tile, other = kernel.sbuf(2, 4), kernel.sbuf(2, 4)
        kernel.call("memset", dst=tile, value=1.0)
        kernel.call("memset", dst=other, value=2.0)
        kernel.call("core_barrier", data=shared, cores=(0, 1))
        kernel.copy(kernel.hbm(2, 4), tile)
        kernel.copy(kernel.hbm(2, 4), other)
    program = kernel.program()
    assert {tuple(order) for order in shuffled(program, 200)} == {
        (*first, 2, *second, *third, 7, *fourth)
        for first in ((0, 1), (1, 0))
        for second in ((3, 4), (4, 3))
        for third in ((5, 6), (6, 5))
        for fourth in ((8, 9), (9, 8))
    }


def test_what_a_reordered_program_keeps() -> None:
    kernel = Kernel()
    x = kernel.argument(counted(2, 4))
    tile = kernel.sbuf(2, 4)
    kernel.copy(tile, x)
    kernel.call("memset", dst=kernel.sbuf(2, 4), value=3.0)
    kernel.store(tile)
    kernel.builder.depend(2, (0,))
    program = kernel.program()
    found = reordered(program, np.array([1, 0, 2]))
    names = [found.opcodes[code].name for code in found.columns.opcode]
    assert names == ["memset", "dma_copy", "dma_copy"]
    old = [program.instruction(index) for index in (1, 0, 2)]
    for index, before in enumerate(old):
        after = found.instruction(index)
        assert (after.operands, after.immediates, after.place) == (
            before.operands,
            before.immediates,
            before.place,
        )
    assert found.instruction(2).depends_on == (1,)
    for order, message in (
        ([0, 0, 2], "must name each of them once"),
        ([0, 1], "must name each of them once"),
    ):
        with pytest.raises(ProgramError, match=message):
            reordered(program, np.array(order))


def test_nothing_is_moved_out_of_a_loop() -> None:
    kernel = Kernel()
    tiles = [kernel.sbuf(2, 4) for _ in range(3)]
    kernel.call("memset", dst=tiles[0], value=1.0)
    with kernel.loop(2):
        kernel.call("memset", dst=tiles[1], value=1.0)
    kernel.call("memset", dst=tiles[2], value=1.0)
    program = kernel.program()
    assert stretches(program).tolist() == [1, 2, 3]
    with pytest.raises(ProgramError, match="moves instruction 1 across the end of a loop"):
        reordered(program, np.array([1, 0, 2]))


@pytest.mark.parametrize("byte", [0, 16, 32])
def test_tensors_that_share_bytes_keep_their_order(byte: int) -> None:
    """A tile is loaded and stored, then another one, which begins some bytes after it, is written and stored."""
    kernel = Kernel()
    x = kernel.argument(counted(2, 8))
    one, two = kernel.sbuf(2, 8, address=(0, 0)), kernel.sbuf(2, 8, address=(0, byte))
    kernel.copy(one, x)
    kernel.store(one)
    kernel.call("memset", dst=two, value=-1.0)
    kernel.store(two)
    found = {tuple(order) for order in shuffled(kernel.program(), 400)}
    apart = {order for order in permutations(range(4)) if order.index(0) < order.index(1)}
    apart = {order for order in apart if order.index(2) < order.index(3)}
    assert found == (apart if byte == 32 else {(0, 1, 2, 3)})


def replayed(kernel: Kernel, racing: bool = False) -> dict[str, list[Difference]]:
    """By order the outputs that differ."""
    program = kernel.program()
    found = Replays(program, storage(program, ROWS), racing, seed=0)
    ordinary = execute(program, kernel.arguments)
    return {
        order.name: [
            each for _, each in differences(ordinary, found.execution(order, kernel.arguments), order.name)
        ]
        for order in found.orders
    }


def two_cores(first: Callable[[Kernel, View, int], None]) -> Kernel:
    """Two cores that do the same with a shared output, each with its number."""
    kernel = Kernel(lnc=2)
    out = kernel.hbm(2, 4, shared=True)
    for core in (0, 1):
        if core:
            kernel.switch_core()
        first(kernel, out, core)
    kernel.output(out)
    return kernel


def writes(values: tuple[float, float], columns: tuple[slice, slice]) -> Callable[[Kernel, View, int], None]:
    def write(kernel: Kernel, out: View, core: int) -> None:
        tile = kernel.sbuf(2, 4)
        kernel.call("memset", dst=tile, value=values[core])
        kernel.copy(out[:, columns[core]], tile[:, columns[core]])

    return write


WHOLE = slice(0, 4)


def test_two_cores_that_write_one_place_show_both_values() -> None:
    found = replayed(two_cores(writes((1.0, 2.0), (WHOLE, slice(2, 4)))))
    (difference,) = found["cores reversed"]
    assert (difference.first, difference.second, difference.index, difference.elements) == (
        2.0,
        1.0,
        (0, 2),
        4,
    )
    assert not found["cores by turns"]


def test_two_cores_that_write_equal_values_are_benign() -> None:
    found = replayed(two_cores(writes((1.0, 1.0), (WHOLE, WHOLE))))
    assert found == {"cores reversed": [], "cores by turns": []}


def test_cores_that_write_their_own_parts_are_not_tried_in_other_orders() -> None:
    assert replayed(two_cores(writes((1.0, 2.0), (slice(0, 2), slice(2, 4))))) == {}


def test_a_read_before_the_other_core_has_written_is_an_undefined_value() -> None:
    def step(kernel: Kernel, out: View, core: int) -> None:
        tile = kernel.sbuf(2, 4)
        if core == 0:
            kernel.call("memset", dst=tile, value=1.0)
            kernel.copy(shared[:, 0:4], tile)
        else:
            kernel.copy(tile, shared)
            kernel.copy(out, tile)

    kernel = Kernel(lnc=2)
    shared, out = kernel.hbm(2, 4, shared=True), kernel.hbm(2, 4, shared=True)
    step(kernel, out, 0)
    kernel.switch_core()
    step(kernel, out, 1)
    kernel.output(out)
    found = replayed(kernel)
    (difference,) = found["cores reversed"]
    assert difference.first == 1.0 and np.isnan(difference.second) and difference.elements == 8


def test_sums_of_two_cores_are_spread_by_rounding() -> None:
    """In float32 1 + 2^-24 is 1, twice; 2^-24 + 2^-24 + 1 is the number after 1."""
    small = 2.0**-24

    def add(kernel: Kernel, out: View, core: int) -> None:
        tile = kernel.sbuf(2, 4)
        kernel.call("memset", dst=tile, value=0.0)
        if core == 0:
            kernel.copy(out, tile)
        kernel.call("core_barrier", data=out, cores=(0, 1))
        for value in ((1.0,), (small, small))[core]:
            kernel.call("memset", dst=tile, value=value)
            kernel.call("dma_copy", dst=out, src=tile, dst_rmw_op="add")

    found = replayed(two_cores(add))
    (difference,) = found["cores reversed"]
    assert (difference.first, difference.second, difference.elements) == (1.0, 1.0 + 2 * small, 8)


@pytest.mark.parametrize("first", [0, 1])
def test_the_first_core_goes_first(first: int) -> None:
    kernel = two_cores(writes((1.0, 2.0), (WHOLE, WHOLE)))
    found = kernel.run(first=first).outputs[0].values
    np.testing.assert_array_equal(found, np.full((2, 4), (2.0, 1.0)[first]))


def test_a_core_that_does_not_run_cannot_go_first() -> None:
    kernel = two_cores(writes((1.0, 2.0), (WHOLE, WHOLE)))
    for first in (-1, 2):
        with pytest.raises(ValueError, match=f"first is {first}, expected a core of the launch, 0 to 1"):
            kernel.run(first=first)


def test_cores_that_meet_give_the_same_bits_whoever_goes_first() -> None:
    def half(kernel: Kernel, out: View, core: int) -> None:
        tile, whole = kernel.sbuf(2, 4), kernel.sbuf(2, 4)
        kernel.call("memset", dst=tile, value=float(core))
        kernel.copy(out[:, 2 * core : 2 * core + 2], tile[:, 0:2])
        kernel.call("core_barrier", data=out, cores=(0, 1))
        kernel.copy(whole, out)
        mine = kernel.hbm(2, 4)
        kernel.copy(mine, whole)
        kernel.output(mine, name=f"of core {core}")

    found = replayed(two_cores(half))
    assert found == {"cores reversed": [], "cores by turns": []}


KERNELS = '''
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np


@nki.jit
def plain(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=out, src=tile)
    return out


@nki.jit
def overlapping(x):
    """2 * x, its columns in two halves; the tile of the second half begins in the middle of that of the first."""
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for at in range(2):
        part = slice(at * columns // 2, (at + 1) * columns // 2)
        tile = nl.ndarray((rows, columns // 2), dtype=x.dtype, buffer=nl.sbuf, address=(0, at * 64))
        nisa.dma_copy(dst=tile, src=x[:, part])
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=out[:, part], src=tile)
    return out


def stored(x, values):
    """2 * x, which both cores store, each times a value."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=values[nl.program_id(0)])
    nisa.dma_copy(dst=out, src=tile)  # stores
    return out


@nki.jit
def different(x):
    return stored(x, (3.0, 2.0))


@nki.jit
def equal(x):
    return stored(x, (2.0, 2.0))


@nki.jit
def summed(x):
    """2 * x: each core adds x twice, halved, to what core 0 has cleared."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    core = nl.program_id(0)
    if core == 0:
        nisa.memset(tile, 0.0)
        nisa.dma_copy(dst=out, src=tile)
    nisa.core_barrier(data=out, cores=(0, 1))
    nisa.dma_copy(dst=tile, src=x)
    for share in ((1.0, 0.3), (0.6, 0.1))[core]:
        part = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=part, data=tile, op0=nl.multiply, operand0=share)
        nisa.dma_compute(out, [out, part], reduce_op=nl.add)
    return out


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((64, 64)).astype(np.float32)]


def reference(x):
    return 2.0 * x
'''


def reviewed(server: ForkServer, folder: Path, kernel: str, lnc: int = 1) -> ReviewRecord:
    path = folder / "kernels.py"
    path.write_text(KERNELS, encoding="utf-8")
    request = from_file(
        path,
        kernel=kernel,
        reference=f"{path}:reference",
        inputs=(),
        inputs_from=f"{path}:inputs",
        target="trn2",
        nki=None,
        lnc=lnc,
        seed=5,
    )
    return review(replace(request, workloads=(replace(request.workloads[0], seeds=1),)), server)


@pytest.mark.parametrize("kernel", ["plain", "overlapping"])
def test_a_review_says_where_no_order_matters(server: ForkServer, tmp_path: Path, kernel: str) -> None:
    record = reviewed(server, tmp_path, kernel)
    assert [(item.tried, item.differing) for item in record.orders] == [((), ())]
    assert determinism(record) == "every legal order gives the same bits: no shared place without an order"
    assert not any("orders" in item for item in record.not_checked)


ALL = ("cores reversed", "cores by turns", "DMAs late", "DMAs early", "instructions shuffled")


def test_a_review_shows_both_values_of_a_race(server: ForkServer, tmp_path: Path) -> None:
    record = reviewed(server, tmp_path, "different", lnc=2)
    (found,) = record.orders
    assert found.tried == ALL
    (difference,) = found.differing
    assert difference.order == "cores reversed" and not difference.within_limits
    assert difference.elements == 64 * 64
    assert float(difference.second) == pytest.approx(1.5 * float(difference.first), rel=1e-6)
    assert determinism(record) == "other bits in 1 order (cores reversed) of the 5 tried, beyond the limits"
    assert record.status == "rejected"
    assert f"- Determinism: {determinism(record)}" in markdown(record)
    assert f"Determinism: {determinism(record)}" in html(record, {})
    told = [item for item in record.findings if item.code in ("NKR025", "NKR033")]
    (line,) = (at for at, text in enumerate(KERNELS.splitlines(), 1) if "# stores" in text)
    assert told and all(f"kernels.py:{line}" in item.places for item in told)


def test_a_review_calls_equal_values_benign(server: ForkServer, tmp_path: Path) -> None:
    record = reviewed(server, tmp_path, "equal", lnc=2)
    assert [(item.tried, item.differing) for item in record.orders] == [(ALL, ())]
    assert determinism(record).startswith("the same bits in 5 other orders (cores reversed, ")
    assert not any(item.code == "NKR033" for item in record.findings)


def test_a_review_states_the_spread_of_sums(server: ForkServer, tmp_path: Path) -> None:
    record = reviewed(server, tmp_path, "summed", lnc=2)
    assert all(run.status == "correct" for run in record.runs if run.in_contract)
    (found,) = record.orders
    reversed_ = next(each for each in found.differing if each.order == "cores reversed")
    apart = abs(float(reversed_.first) - float(reversed_.second))
    assert reversed_.within_limits and 0 < apart < 4 * 2.0**-23 * 4
    assert "beyond" not in determinism(record) and "only by rounding" in determinism(record)
    assert not [
        item for item in record.findings if item.code == "NKR033" and item.severity is not Severity.minor
    ]


def drafted(*differing: Difference) -> list[tuple[Severity, str]]:
    tried = tuple(dict.fromkeys(each.order for each in differing)) or ("DMAs late",)
    facts = Facts("k", (WorkloadFacts("w", orders=Orders((*tried, "another"), differing)),), target="trn2")
    (rule,) = (rule for rule in RULES if rule.code == "NKR033")
    return [(finding.severity, finding.message) for finding in rule.findings(facts)]


def test_the_rule_weighs_what_differs() -> None:
    assert drafted() == []
    assert drafted(
        Difference("out", (0, 3), 1.0, 1.0000001, "cores reversed", 9, within=True),
        Difference("out", (1, 2), 2.0, 2.0000005, "cores by turns", 1, within=True),
    ) == [
        (
            Severity.minor,
            "out depends on the order of execution, within its limits, by up to 5e-07: out[1, 2] is 2 in the order of "
            "the program and 2.0000005 with cores by turns, where 1 element differs; of 3 other orders 2 give other "
            "bits",
        )
    ]
    assert drafted(
        Difference("out", (), 1.0, float("nan"), "DMAs late", 2),
        Difference("sum", (5,), 3.0, 4.0, "DMAs late", 1, places=("k.py:3",)),
    ) == [
        (
            Severity.blocker,
            "out depends on the order of execution: out is 1 in the order of the program and an undefined value with "
            "DMAs late, where 2 elements differ; of 2 other orders 1 gives other bits",
        ),
        (
            Severity.blocker,
            "sum depends on the order of execution: sum[5] is 3 in the order of the program and 4 with DMAs late, "
            "where 1 element differs; of 2 other orders 1 gives other bits",
        ),
    ]


def test_a_program_that_executes_too_much_is_not_tried_in_other_orders(
    server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nkireview.runs.MOST", 5)
    record = reviewed(server, tmp_path, "different", lnc=2)
    assert not record.orders and determinism(record) == ""
    assert "other orders of execution: 6 instructions were executed, more than 5" in "\n".join(
        record.not_checked
    )


EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


@pytest.mark.parametrize("kind", ["good", "slow"])
@pytest.mark.parametrize("task", ["causal_attention", "matmul", "rmsnorm", "softmax"])
def test_the_examples_give_the_same_bits_in_every_order(server: ForkServer, task: str, kind: str) -> None:
    held, submissions = resolve(EXAMPLES / task)
    submission = next(item for item in submissions if item.name == kind)
    request = from_task(held, submission, target=None, nki=None, lnc=None, seed=1)
    workload = request.workloads[0]
    program = trace(request, workload, server).program
    assert program is not None
    arrays = workload.inputs.make(1, server, request.limits).arrays()
    given = {number: array for (_, number), array in zip(program.parameter_buffers, arrays, strict=True)}
    ordinary = execute(program, given)
    replays = Replays(program, storage(program, ROWS), racing=False, seed=3)
    for order in MOVED:
        assert not list(differences(ordinary, replays.execution(order, given), order.name)), order
    moved = order_of(program, Policy.shuffled, 3)
    assert sorted(moved) == list(range(len(program)))
    assert moved != sorted(moved) or len(program) < 10
