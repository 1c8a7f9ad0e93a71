"""The schedule: costs, queues, dependences, reuse of memory and transfers, against times worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from execute_kit import Kernel, View, counted
from hypothesis import given, settings
from hypothesis import strategies as st

from nkireview.hardware import target
from nkireview.isa.enums import Engine, Memory
from nkireview.isa.table import ROWS
from nkireview.program.footprint import offsets
from nkireview.program.program import Program
from nkireview.program.scope import Scope
from nkireview.program.storage import READS, WRITES, storage
from nkireview.schedule.cells import cells
from nkireview.schedule.occupancy import occupancy
from nkireview.schedule.parameters import Figures, Parameters
from nkireview.schedule.repeats import Step, steps
from nkireview.schedule.reuse import reuse
from nkireview.schedule.timing import Timing
from nkireview.schedule.transfers import Transfers
from nkireview.timeline.timeline import Wait

TRN2 = target("trn2")
SYNC = TRN2.number("dma.issue_ns.sync") + 128 * TRN2.number("dma.issue_ns_per_descriptor")
"""A DMA of one piece for each of 128 partitions, on its queue."""
START = TRN2.number("dma.fixed_latency_ns")
PACKET = TRN2.number("dma.packet_ns")
RATE = TRN2.number("dma.bytes_per_ns")
HBM = TRN2.number("hbm.bandwidth_per_core") / 1e9


def times(program: Program) -> list[tuple[str, int, float, float, float]]:
    """(lane, instruction, start, stop, ready) of every slice."""
    line = Timing(program).timeline
    return [
        (line.lanes[lane].name, int(i), float(a), float(b), float(c))
        for lane, i, a, b, c in zip(
            line.lane, line.instruction, line.start, line.stop, line.ready, strict=True
        )
    ]


def transfer(bytes_a_row: int, rows: int) -> float:
    """A DMA of whole rows of 128 partitions or fewer, alone on its engines and on HBM."""
    packets = -(-bytes_a_row // 4096)
    each = packets * PACKET + bytes_a_row / RATE
    engines = min(16, -(-rows // 8))
    return max(rows * each / engines, rows * bytes_a_row / HBM)


def test_a_chain_of_a_load_a_copy_and_a_store() -> None:
    kernel = Kernel()
    tile, out = kernel.sbuf(128, 512), kernel.sbuf(128, 512)
    kernel.copy(tile, kernel.argument(counted(128, 512)))
    kernel.copy(out, tile)
    kernel.store(out)
    found = times(kernel.program())
    moved = transfer(2048, 128)
    begun = SYNC + START
    # tensor_copy from SBUF to SBUF in fp32 runs at the documented rate of two elements a cycle and lane
    rate = ROWS["tensor_copy"].cost
    assert rate.per_element == 1.0
    copied = found[2][3] - found[2][2]
    cycles = copied * TRN2.number("vector.clock_ghz")
    assert cycles == pytest.approx(256 + TRN2.number("vector.overhead_cycles"))
    readable = begun + moved + copied + TRN2.number("vector.pipeline_latency_ns")
    assert found == [
        ("sync", 0, 0.0, SYNC, SYNC),
        ("dma", 0, pytest.approx(begun), pytest.approx(begun + moved), pytest.approx(begun + moved)),
        (
            "vector",
            1,
            pytest.approx(begun + moved),
            pytest.approx(begun + moved + copied),
            pytest.approx(readable),
        ),
        ("sync", 2, pytest.approx(readable), pytest.approx(readable + SYNC), pytest.approx(readable + SYNC)),
        (
            "dma",
            2,
            pytest.approx(readable + SYNC + START),
            pytest.approx(readable + SYNC + START + moved),
            pytest.approx(readable + SYNC + START + moved),
        ),
    ]


@pytest.mark.parametrize(
    ("dtype", "factor"), [("bfloat16", 1.0), ("float32", 4.0)], ids=["bfloat16", "float32"]
)
def test_matmuls_in_a_row_are_issued_at_the_documented_pace(dtype: str, factor: float) -> None:
    """Once the array is warm; before, for one to two windows of its clock, at half of it."""
    kernel = Kernel()
    stationary, moving = kernel.sbuf(128, 128, dtype=dtype), kernel.sbuf(128, 512, dtype=dtype)
    result = kernel.psum(128, 512)
    for _ in range(60):
        kernel.matmul(result, stationary, moving)
    line = Timing(kernel.program()).timeline
    passes = 2 if dtype == "float32" else 1
    pace = (512 * factor + passes * TRN2.number("tensor.switch_cycles")) / TRN2.number("tensor.clock_ghz")
    window, share = TRN2.number("tensor.clock_window_ns"), TRN2.number("tensor.warm_share")
    cold = int(2 * share * window / (2 * pace))
    assert np.diff(line.start)[:cold] == pytest.approx(np.full(cold, 2 * pace))
    warm = -(-int((1 + 2 * share) * window) // int(2 * pace)) + 1
    assert np.diff(line.start)[warm:] == pytest.approx(np.full(59 - warm, pace))
    spent = line.total_ns - TRN2.number("tensor.pipeline_latency_ns") - 60 * pace
    assert share * window <= spent <= (0.5 + share) * window


def test_vector_and_scalar_cost_the_elements_and_a_fixed_overhead() -> None:
    """Measured on trn2: 598 ns for a fp32 PSUM copy of 512 columns on Vector, 157 ns for a cast of 128 on Scalar."""
    kernel = Kernel()
    wide, narrow = kernel.psum(128, 512), kernel.psum(128, 128, dtype="bfloat16")
    kernel.call("tensor_copy", dst=kernel.sbuf(128, 512), src=wide, engine=Engine.vector)
    kernel.call("tensor_copy", dst=kernel.sbuf(128, 128), src=narrow, engine=Engine.scalar)
    line = Timing(kernel.program()).timeline
    held = dict(zip(line.lane.tolist(), (line.stop - line.start).tolist(), strict=True))
    assert held[1] == pytest.approx(598, rel=0.02)
    assert held[2] == pytest.approx(157, rel=0.02)


def test_another_activation_function_loads_its_table() -> None:
    kernel = Kernel()
    data = kernel.sbuf(128, 64)
    for name in ("exp", "exp", "copy", "exp", "tanh"):
        kernel.call("activation", dst=kernel.sbuf(128, 64), op=name, data=data)
    line = Timing(kernel.program()).timeline
    held = (line.stop - line.start)[line.lane == 2]
    load = TRN2.number("scalar.table_load_ns")
    assert held[0] - held[1] == pytest.approx(load)
    assert held[3] == pytest.approx(held[1])  # a plain copy between needs no table
    assert held[4] == pytest.approx(held[0])


def test_many_small_loads_are_bound_by_the_queue_that_issues_them() -> None:
    """The kind of the SDK tutorial's second matmul: 66,048 DMAs took 39.9 ms on trn2."""
    kernel = Kernel()
    source = kernel.argument(counted(128, 128))
    for _ in range(200):
        kernel.copy(kernel.sbuf(128, 128), source)
    timing = Timing(kernel.program())
    assert timing.total_ns == pytest.approx(200 * SYNC + START + transfer(512, 128), rel=0.01)
    assert pytest.approx(39.9, rel=0.15) == 66_048 * SYNC / 1e6


@pytest.mark.parametrize("fresh", [True, False], ids=["a buffer each", "one buffer"])
def test_one_buffer_for_all_iterations_holds_the_loads_up(fresh: bool) -> None:
    kernel = Kernel()
    source = kernel.argument(counted(128, 2048))
    tile, done = kernel.sbuf(128, 2048), kernel.sbuf(128, 1)
    for _ in range(8):
        tile = kernel.sbuf(128, 2048) if fresh else tile
        kernel.copy(tile, source)
        kernel.call("tensor_reduce", dst=done, op="add", data=tile, axis=1)
    program = kernel.program()
    timing = Timing(program)
    reduce_ns = (2048 + 60) / TRN2.number("vector.clock_ghz")
    load_ns = transfer(8192, 128)
    reused = np.count_nonzero(timing.timeline.wait == int(Wait.reuse))
    if fresh:
        slower = max(reduce_ns, load_ns)
        assert timing.total_ns < 8 * slower + 2 * min(reduce_ns, load_ns) + SYNC + START + 500
        assert reused == 0
    else:
        assert timing.total_ns == pytest.approx(8 * (reduce_ns + load_ns + SYNC + START), rel=0.05)
        assert reused == 7
        own = timing.stake(unshared={tile.buffer.id})
        least = 8 * max(reduce_ns, load_ns) + min(reduce_ns, load_ns) + SYNC + START
        assert own == pytest.approx(timing.total_ns - least, rel=0.05)


def test_scaling_an_instruction_scales_what_it_holds() -> None:
    kernel = Kernel()
    data = kernel.psum(128, 512)
    for _ in range(4):
        kernel.call("tensor_copy", dst=kernel.sbuf(128, 512), src=data, engine=Engine.vector)
    timing = Timing(kernel.program())
    each = timing.timeline.stop[0]
    assert timing.stake(np.array([1.0, 0.0, 0.5, 1.0])) == pytest.approx(1.5 * each)
    assert timing.stake(np.full(4, 2.0)) == 0.0
    assert timing.held_ns.tolist() == pytest.approx([each] * 4)


def test_an_explicit_dependency_is_waited_for() -> None:
    kernel = Kernel()
    kernel.call("memset", dst=kernel.sbuf(128, 512), value=0.0, engine=Engine.vector)
    kernel.call("memset", dst=kernel.sbuf(128, 8), value=0.0, engine=Engine.gpsimd)
    program = kernel.program()
    columns = replace(program.columns, dependency_at=np.array([0, 0, 1]), dependency=np.array([0], np.int32))
    line = Timing(replace(program, columns=columns)).timeline
    assert line.start[1] == line.ready[0] and line.wait[1] == int(Wait.named)
    assert Timing(program).timeline.start[1] == 0.0


def test_a_rotating_ring_gives_memory_back_in_turn() -> None:
    kernel = Kernel()
    usable = TRN2.sbuf_usable_bytes
    columns = usable // 4 // 4  # four tiles fit
    tiles = [kernel.sbuf(128, columns) for _ in range(6)]
    for tile in tiles:
        kernel.call("memset", dst=tile, value=0.0)
    program = kernel.program()
    held = storage(program, ROWS)
    arrivals, full = reuse(program, held, TRN2)
    assert not full
    taken = [(index, place, before) for index, found in arrivals.items() for place, before in found]
    assert taken == [
        (4, tiles[4].buffer.id, (tiles[0].buffer.id,)),
        (5, tiles[5].buffer.id, (tiles[1].buffer.id,)),
    ]


def test_psum_is_given_out_by_bank_and_by_bytes_where_banks_are_short() -> None:
    kernel = Kernel()
    tiles = [kernel.psum(128, 64) for _ in range(9)]
    for tile in tiles:
        kernel.call("memset", dst=tile, value=0.0)
    for tile in tiles:
        kernel.call("tensor_copy", dst=kernel.sbuf(128, 64), src=tile)
    program = kernel.program()
    arrivals, full = reuse(program, storage(program, ROWS), TRN2)
    assert not full and not arrivals


def test_what_does_not_fit_is_said() -> None:
    kernel = Kernel()
    columns = TRN2.sbuf_usable_bytes // 4 // 2
    tiles = [kernel.sbuf(128, columns) for _ in range(3)]
    for tile in tiles:
        kernel.call("memset", dst=tile, value=0.0)
    kernel.call("tensor_copy", dst=kernel.sbuf(128, columns), src=tiles[0])
    kernel.call("tensor_copy", dst=kernel.sbuf(128, columns), src=tiles[1])
    kernel.call("tensor_copy", dst=kernel.sbuf(128, columns), src=tiles[2])
    assumed = Timing(kernel.program()).timeline.assumed
    assert assumed == ("SBUF cannot hold all that is alive at once: spills are not in the prediction",)


def test_halves_of_a_tile_are_told_apart() -> None:
    kernel = Kernel()
    tile, out = kernel.sbuf(128, 512), kernel.sbuf(128, 256)
    kernel.call("memset", dst=tile[:, :256], value=0.0, engine=Engine.gpsimd)
    kernel.call("memset", dst=tile[:, 256:], value=0.0, engine=Engine.gpsimd)
    kernel.call("tensor_copy", dst=out, src=tile[:, :256], engine=Engine.vector)
    line = Timing(kernel.program()).timeline
    assert line.start[2] == line.ready[0] < line.ready[1]


@st.composite
def views(draw: st.DrawFn) -> tuple[tuple[int, ...], list[tuple[tuple[int, int, int], ...]]]:
    """A shape and slices (start, stop, step) of it."""
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=2, max_size=3)))
    cuts = []
    for _ in range(draw(st.integers(1, 6))):
        cut = []
        for size in shape:
            start = draw(st.integers(0, size - 1))
            cut.append((start, draw(st.integers(start + 1, size)), draw(st.integers(1, 3))))
        cuts.append(tuple(cut))
    return shape, cuts


@given(views(), st.sampled_from([2, 8, 256]))
@settings(max_examples=150, deadline=None)
def test_what_shares_an_element_shares_a_cell(
    given_: tuple[tuple[int, ...], list[tuple[tuple[int, int, int], ...]]], most: int
) -> None:
    shape, cuts = given_
    kernel = Kernel()
    tile = kernel.sbuf(*shape)
    parts = [tile[tuple(slice(*side) for side in cut)] for cut in cuts]
    for part in parts:
        kernel.call("memset", dst=part, value=0.0)
    program = kernel.program()
    found = cells(Scope.of(program), storage(program, ROWS), most)
    assert len(found.of_place[0]) <= max(most, 1)
    ids = [int(program.columns.operand[at]) for at in program.columns.operand_at[:-1]]
    elements = [set(offsets(program.access(access)).ravel().tolist()) for access in ids]
    for left in range(len(parts)):
        for right in range(left):
            if elements[left] & elements[right]:
                assert set(found.of_access[ids[left]]) & set(found.of_access[ids[right]])


OPS = st.lists(
    st.tuples(
        st.sampled_from(["memset", "copy", "load"]), st.integers(0, 3), st.integers(0, 3), st.booleans()
    ),
    min_size=1,
    max_size=25,
)


@given(OPS)
@settings(max_examples=30, deadline=None)
def test_no_queue_runs_two_at_once_and_nothing_reads_what_is_not_there(
    ops: list[tuple[str, int, int, bool]],
) -> None:
    """Brute force over elements: every pair of instructions that conflict is ordered as the program orders it."""
    kernel = Kernel()
    tiles = [kernel.sbuf(128, 64) for _ in range(4)]
    source = kernel.argument(counted(128, 64))

    def part(number: int, half: bool) -> View:
        return tiles[number][:, :32] if half else tiles[number]

    for op, one, two, half in ops:
        if op == "memset":
            kernel.call("memset", dst=part(one, half), value=0.0, engine=Engine.gpsimd)
        elif op == "copy" and one != two:
            kernel.call("tensor_copy", dst=part(one, half), src=part(two, half), engine=Engine.vector)
        else:
            kernel.copy(part(one, half), source[:, :32] if half else source)
    program = kernel.program()
    line = Timing(program).timeline
    for lane in range(4):
        at = np.flatnonzero(line.lane == lane)
        assert np.all(line.start[at][1:] >= line.stop[at][:-1] - 1e-6)
    begin = {int(i): float(s) for i, s in zip(line.instruction[::-1], line.start[::-1], strict=True)}
    done = {int(i): float(s) for i, s in zip(line.instruction, line.stop, strict=True)}
    ready = {int(i): float(s) for i, s in zip(line.instruction, line.ready, strict=True)}
    touched = _touched(program)
    for later in range(len(program)):
        for earlier in range(later):
            for key in touched[later].keys() & touched[earlier].keys():
                now, then = touched[later][key], touched[earlier][key]
                if then & WRITES and now & READS:
                    assert begin[later] >= ready[earlier] - 1e-6
                elif then & READS and now & WRITES:
                    assert begin[later] >= done[earlier] - 1e-6


def _touched(program: Program) -> list[dict[tuple[int, int], int]]:
    """For each instruction what it does to each element on chip."""
    use = storage(program, ROWS).use
    found = []
    columns = program.columns
    for index in range(len(program)):
        mine: dict[tuple[int, int], int] = {}
        for slot in range(int(columns.operand_at[index]), int(columns.operand_at[index + 1])):
            if columns.operand[slot] < 0:
                continue
            access = program.access(int(columns.operand[slot]))
            if program.buffer(access.buffer).memory is not Memory.sbuf:
                continue
            for element in offsets(access).ravel().tolist():
                key = access.buffer, element
                mine[key] = mine.get(key, 0) | int(use[slot]) & (READS | WRITES)
        found.append(mine)
    return found


@given(
    st.lists(
        st.tuples(st.floats(0, 5000), st.floats(1, 3000), st.integers(1, 16), st.floats(0, 3000)),
        min_size=1,
        max_size=30,
    )
)
@settings(deadline=None)
def test_transfers_share_engines_and_hbm_and_nobody_is_faster_than_alone(
    work: list[tuple[float, float, int, float]],
) -> None:
    shared = Transfers(16, 500.0)
    ends = [shared.place(begin, duration, engines, hbm)[0] for begin, duration, engines, hbm in work]
    for (begin, duration, _, hbm), end in zip(work, ends, strict=True):
        assert end >= begin + max(duration, hbm) - 1e-3 or math.isclose(
            end, begin + max(duration, hbm), rel_tol=1e-6
        )
    first = min(begin for begin, *_ in work)
    assert max(ends) >= first + sum(hbm for *_, hbm in work) - 1e-3 - 500
    assert max(ends) >= first + sum(d * e for _, d, e, _ in work) / 16 - 1e-3 - 500


def test_a_transfer_placed_later_uses_what_earlier_ones_leave_free() -> None:
    shared = Transfers(16, 500.0)
    assert shared.place(10_000.0, 1000.0, 16, 0.0)[0] == pytest.approx(11_000)
    assert shared.place(0.0, 1000.0, 16, 0.0)[0] == pytest.approx(1000)
    done, wait = shared.place(10_000.0, 1000.0, 16, 0.0)
    assert done == pytest.approx(12_000) and wait == int(Wait.engine)
    done, wait = shared.place(0.0, 100.0, 1, 0.0)
    assert done >= 1100 and wait == int(Wait.engine)
    assert Transfers(16, 500.0).place(7.0, 0.0, 1, 0.0) == (7.0, int(Wait.order))


def test_two_streams_of_loads_share_hbm() -> None:
    """Twice the bytes over a saturated HBM take twice the time."""
    kernel = Kernel()
    source = kernel.argument(counted(128, 8192))
    for _ in range(6):
        kernel.copy(kernel.sbuf(128, 8192), source)
    timing = Timing(kernel.program())
    whole = 6 * 128 * 8192 * 4 / HBM
    assert timing.total_ns == pytest.approx(SYNC + START + whole, rel=0.02)
    assert int(Wait.bandwidth) in timing.timeline.wait.tolist()


def test_a_copy_within_hbm_is_spread_over_the_engines() -> None:
    """2 MiB read and written: HBM moves both, 16 engines cut it into packets of 4 KiB."""
    kernel = Kernel()
    kernel.copy(kernel.hbm(1024, 512), kernel.argument(counted(1024, 512)))
    moved = 1024 * 512 * 4
    engines = moved / 4096 * (PACKET + 4096 / RATE) / 16
    issue = SYNC + (moved / 4096 - 128) * TRN2.number("dma.issue_ns_per_descriptor")
    assert Timing(kernel.program()).total_ns == pytest.approx(
        issue + START + max(engines, 2 * moved / HBM), rel=0.01
    )


def test_a_loop_counts_its_trips() -> None:
    kernel = Kernel()
    data = kernel.psum(128, 512)
    with kernel.loop(100):
        kernel.call("tensor_copy", dst=kernel.sbuf(128, 512), src=data, engine=Engine.vector)
    timing = Timing(kernel.program())
    each = timing.held_ns[0]
    assert timing.total_ns == pytest.approx(100 * each, rel=0.03)
    assert not timing.timeline.assumed


def test_a_loop_without_a_bound_runs_once_or_as_often_as_is_said() -> None:
    kernel = Kernel()
    data = kernel.psum(128, 512)
    with kernel.loop(("register", 5)):
        kernel.call("tensor_copy", dst=kernel.sbuf(128, 512), src=data, engine=Engine.vector)
    program = kernel.program()
    timing = Timing(program)
    assert timing.timeline.assumed == ("the loop at instruction 0 is taken to run once",)
    assert Timing(program, trips={0: 50}).total_ns == pytest.approx(50 * timing.held_ns[0], rel=0.06)


def test_the_steps_of_nested_loops() -> None:
    kernel = Kernel()
    tile = kernel.sbuf(128, 8)
    kernel.call("memset", dst=tile, value=0.0)
    with kernel.loop(3):
        with kernel.loop(2):
            kernel.call("memset", dst=tile, value=0.0)
        kernel.call("memset", dst=tile, value=0.0)
    found, assumed = steps(kernel.program(), {})
    inner = [Step(1, 2)] * 2
    runs = [step for step in found[0] if step.mark < 0]
    assert runs == [Step(0, 1), *inner, Step(2, 3), *inner, Step(2, 3)]
    assert [step.extra for step in found[0] if step.extra] == [1] and not assumed


def test_two_cores_run_side_by_side() -> None:
    def build(cores: int) -> Timing:
        kernel = Kernel(lnc=2)
        for core in range(cores):
            data = kernel.psum(128, 512)
            for _ in range(5):
                kernel.call("tensor_copy", dst=kernel.sbuf(128, 512), src=data, engine=Engine.vector)
            if core + 1 < cores:
                kernel.switch_core()
        return Timing(kernel.program())

    one, two = build(1), build(2)
    assert two.total_ns == pytest.approx(one.total_ns)
    assert {lane.core for lane in two.timeline.lanes} == {0, 1}


def test_memory_in_use_over_time() -> None:
    kernel = Kernel()
    first, second = kernel.sbuf(128, 512), kernel.sbuf(128, 256)
    kernel.call("memset", dst=first, value=0.0, engine=Engine.vector)
    kernel.call("tensor_copy", dst=second, src=first[:, :256], engine=Engine.vector)
    kernel.call("memset", dst=second, value=0.0, engine=Engine.vector)
    program = kernel.program()
    timing = Timing(program)
    (curve,) = occupancy(program, timing.plan.storage, timing.timeline)
    line = timing.timeline
    assert curve.memory is Memory.sbuf and curve.peak == 2048 + 1024 and curve.peak_at == 1
    assert curve.at_ns.tolist() == pytest.approx([0.0, line.start[1], line.stop[1], line.stop[2]])
    assert curve.used.tolist() == [2048, 3072, 1024, 0]


@pytest.mark.parametrize(
    ("name", "path"), [("trn1", "vector.pipeline_latency_ns"), ("trn3", "dma.packet_ns")]
)
def test_figures_that_a_target_lacks_are_those_of_trn2_and_said(name: str, path: str) -> None:
    kernel = Kernel(target=name)
    tile = kernel.load(counted(128, 64))
    kernel.copy(kernel.sbuf(128, 64), tile)
    (sentence,) = Timing(kernel.program()).timeline.assumed
    assert sentence.startswith(f"unknown on {name}, taken from trn2: ") and path in sentence
    figures = Figures(TRN2)
    assert figures.number("dma.packet_ns") == PACKET and figures.assumed == ()


def test_an_unknown_parameter_is_refused() -> None:
    with pytest.raises(
        ValueError, match="unknown parameter 'bend' of the timing model: expected one of band, "
    ):
        Parameters({"bend": 1})
    kernel = Kernel()
    kernel.call("memset", dst=kernel.sbuf(128, 8), value=0.0)
    assert Timing(kernel.program(), Parameters({"band": 0.1})).prediction.high_ns == pytest.approx(
        1.1 * Timing(kernel.program()).total_ns
    )
