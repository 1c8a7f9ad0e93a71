"""The predicted time with its interval: classes, floor and words by hand, and what tiles cost that come back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from execute_kit import Kernel, View
from hypothesis import given, settings
from hypothesis import strategies as st

from nkireview.hardware import target
from nkireview.isa.enums import Engine
from nkireview.program.program import Program
from nkireview.schedule.compiled import Change, Compiled
from nkireview.schedule.parameters import Figures, Parameters
from nkireview.schedule.prediction import Kind, Prediction, chosen, is_legacy, least_ns, traced
from nkireview.schedule.residence import Fetch
from nkireview.schedule.schedule import Changes, schedule
from nkireview.schedule.timing import Timing
from nkireview.timeline.timeline import Timeline, Wait

TRN2 = target("trn2")
BAND, FREE = float(Parameters().value("band")), float(Parameters().value("free_band"))
HBM = TRN2.number("hbm.bandwidth_per_core") / 1e9
ENGINES = 16 * TRN2.number("dma.bytes_per_ns")
START = TRN2.number("dma.fixed_latency_ns")
VECTOR_GHZ = TRN2.number("vector.clock_ghz")
WIDE = 16_384
"""Columns of a tile that fills 65,536 of 212,984 usable bytes of a partition: three fit."""
WIDE_BYTES = 128 * WIDE * 4


def of(kind: Kind = Kind.traced, change: Change = Change.none, point: float = 100.0) -> Prediction:
    return Prediction(kind, change, point, point * 0.75, point * 1.4, 0.0, 0.0)


# words


def test_words() -> None:
    assert of().words == "from 25% below to 40% above the prediction (as traced)"
    assert (
        of(Kind.free, Change.merges).words
        == "from 25% below to 40% above the prediction (compiler-free: loads merged)"
    )
    assert of(point=0.0).words == "nothing runs (as traced)"
    # a class names no change where the compiler is not free
    assert of(Kind.traced, Change.spills).basis == "as traced"
    for change, words in {
        Change.none: "as written",
        Change.fetches: "tiles loaded again",
        Change.spills: "tiles spilled",
    }.items():
        assert of(Kind.free, change).basis == f"compiler-free: {words}"


@pytest.mark.parametrize(("low", "high"), [(101.0, 120.0), (80.0, 99.0), (120.0, 80.0)])
def test_a_prediction_lies_in_its_interval(low: float, high: float) -> None:
    with pytest.raises(ValueError) as error:
        Prediction(Kind.free, Change.none, 100.0, low, high, 0.0, 0.0)
    assert str(error.value) == f"a prediction of 100.0 ns lies outside {low} to {high} ns"


@pytest.mark.parametrize(("release", "legacy"), [("0.1", True), ("0.2", False), ("0.6", False)])
def test_the_generation_by_the_release(release: str, legacy: bool) -> None:
    assert is_legacy(release) is legacy


# classes


def one_load(kernel: Kernel) -> None:
    kernel.store(kernel.load(np.zeros((128, 512), np.float32)))


def load_twice(kernel: Kernel, columns: int = 512) -> None:
    x = kernel.argument(np.zeros((128, columns), np.float32))
    for _ in range(2):
        tile = kernel.sbuf(128, columns)
        kernel.copy(tile, x)
        kernel.store(tile)


def too_many_loads(kernel: Kernel) -> None:
    """Four tiles where three fit, each needed twice, and each time with what comes just before."""
    tiles = [kernel.load(np.full((128, WIDE), at, np.float32)) for at in range(4)]
    for at, tile in enumerate(tiles):
        fresh = kernel.load(np.full((128, 64), at, np.float32))
        kernel.call(
            "tensor_tensor",
            Engine.vector,
            dst=kernel.psum(128, 64),
            data1=tile[:, :64],
            data2=fresh,
            op="add",
        )
    for at, tile in enumerate(tiles):
        fresh = kernel.load(np.full((128, 64), 10 + at, np.float32))
        kernel.call(
            "tensor_tensor",
            Engine.vector,
            dst=kernel.psum(128, 64),
            data1=tile[:, :64],
            data2=fresh,
            op="add",
        )


def too_many_results(kernel: Kernel) -> None:
    made = [kernel.sbuf(128, WIDE) for _ in range(4)]
    for at, tile in enumerate(made):
        kernel.call("memset", dst=tile, value=float(at))
    for one, two in ((0, 1), (2, 3), (0, 3), (1, 2)):
        views = {"dst": kernel.psum(128, 64), "data1": made[one][:, :64], "data2": made[two][:, :64]}
        kernel.call("tensor_tensor", Engine.vector, op="add", **views)


def in_a_loop(kernel: Kernel) -> None:
    with kernel.loop(4):
        load_twice(kernel)


def program(build: Callable[[Kernel], None], nki: str = "0.1", name: str = "trn2") -> Program:
    kernel = Kernel(target=name, nki=nki)
    build(kernel)
    return kernel.program()


@pytest.mark.parametrize(
    ("build", "basis"),
    [
        (one_load, "as traced"),
        (in_a_loop, "as traced"),
        (load_twice, "compiler-free: loads merged"),
        (too_many_loads, "compiler-free: tiles loaded again"),
        (too_many_results, "compiler-free: tiles spilled"),
    ],
)
@pytest.mark.parametrize("name", ["trn1", "trn2"])
def test_how_free_the_compiler_was(build: Callable[[Kernel], None], basis: str, name: str) -> None:
    timing = Timing(program(build, name=name))
    assert timing.prediction.basis == basis
    assert timing.compiled is not None
    assert timing.compiled.free is (timing.prediction.kind is Kind.free)


@pytest.mark.parametrize("build", [one_load, load_twice, too_many_loads, too_many_results, in_a_loop])
@pytest.mark.parametrize("nki", ["0.2", "0.6"])
def test_the_current_generation_runs_as_it_is_written(build: Callable[[Kernel], None], nki: str) -> None:
    timing = Timing(program(build, nki))
    found = timing.prediction
    assert timing.compiled is None and timing.plan is timing.written
    assert (found.kind, found.change, found.basis) == (Kind.traced, Change.none, "as traced")
    assert found.point_ns == timing.total_ns
    assert found.low_ns == pytest.approx(timing.total_ns / (1 + BAND))
    assert found.high_ns == pytest.approx(timing.total_ns * (1 + BAND))


def test_a_change_has_to_matter() -> None:
    """One load of 41 is merged: the compiler is free, but what it does most is nothing worth the name."""
    kernel = Kernel(nki="0.1")
    load_twice(kernel, 64)
    for at in range(39):
        kernel.store(kernel.load(np.full((128, 64), at, np.float32)))
    made = kernel.program()
    assert Timing(made).prediction.basis == "compiler-free: as written"
    for share, change in ((1 / 42, Change.merges), (1 / 40, Change.none)):
        assert Timing(made, Parameters({"change_share": share})).prediction.change is change


# bytes


def test_bytes_of_a_load_that_is_merged() -> None:
    found = Timing(program(load_twice)).prediction
    assert (found.read, found.written) == (128 * 512 * 4, 2 * 128 * 512 * 4)
    found = Timing(program(load_twice, "0.6")).prediction
    assert found.read == 2 * 128 * 512 * 4


def test_bytes_of_tiles_that_come_back() -> None:
    """The fourth tile takes the place of the first, that comes back in the place of the second, which then has room."""
    timing = Timing(program(too_many_loads))
    assert timing.compiled is not None and timing.compiled.extra == 2 * WIDE_BYTES
    assert timing.prediction.read == 6 * WIDE_BYTES + 8 * 128 * 64 * 4
    assert timing.prediction.written == 0


def test_bytes_of_tiles_that_are_spilled() -> None:
    """As above: the first gives way to the fourth, and the second to the first when that comes back."""
    timing = Timing(program(too_many_results))
    assert timing.compiled is not None and timing.compiled.spilled == (2 * WIDE_BYTES, 2 * WIDE_BYTES)
    assert (timing.prediction.read, timing.prediction.written) == (2 * WIDE_BYTES, 2 * WIDE_BYTES)


def test_the_tensor_engine_transposes_by_an_identity_of_each_dtype() -> None:
    kernel = Kernel(nki="0.1")
    for dtype in ("bfloat16", "float32", "float32"):
        kernel.call(
            "nc_transpose", dst=kernel.psum(128, 128, dtype=dtype), data=kernel.sbuf(128, 128, dtype=dtype)
        )
    # Vector transposes by itself
    kernel.call(
        "nc_transpose", dst=kernel.sbuf(32, 32, dtype="float16"), data=kernel.sbuf(32, 32, dtype="float16")
    )
    timing = Timing(kernel.program())
    assert timing.compiled is not None and timing.compiled.constants == 128 * 128 * (2 + 4)
    assert timing.prediction.read == 128 * 128 * (2 + 4)


# the interval


def test_the_interval_of_what_runs_as_written() -> None:
    plan = Timing(program(one_load)).plan
    found = traced(1000.0, plan, 0.25)
    assert (found.low_ns, found.point_ns, found.high_ns) == (800.0, 1000.0, 1250.0)
    assert (found.read, found.written) == (128 * 512 * 4, 128 * 512 * 4)


def made_of(build: Callable[[Kernel], None], free: bool = True) -> Compiled:
    made = Timing(program(build)).compiled
    assert made is not None
    return replace(made, free=free)


def test_the_interval_of_a_free_compiler_does_not_begin_below_the_floor() -> None:
    made = made_of(load_twice)
    floor = least_ns(made.plan)
    found = chosen(1.2 * floor, made, 0.1, 0.5)
    assert found.kind is Kind.free and found.change is Change.merges
    assert found.low_ns == pytest.approx(floor)
    assert found.high_ns == pytest.approx(1.2 * floor * 1.5)


def test_no_end_lies_farther_than_the_free_band() -> None:
    made = made_of(load_twice)
    floor = least_ns(made.plan)
    found = chosen(10 * floor, made, 0.1, 0.5)
    assert found.low_ns == pytest.approx(10 * floor / 1.5)
    assert found.high_ns == pytest.approx(10 * floor * 1.5)


def test_a_point_below_the_floor_stays_inside() -> None:
    made = made_of(load_twice)
    floor = least_ns(made.plan)
    found = chosen(0.5 * floor, made, 0.1, 0.5)
    assert found.low_ns == found.point_ns == 0.5 * floor
    assert found.high_ns == pytest.approx(0.5 * floor * 1.5)


def test_a_legacy_program_whose_compiler_was_not_free_has_the_band() -> None:
    found = chosen(1000.0, made_of(one_load, free=False), 0.25, 0.5)
    assert (found.low_ns, found.high_ns, found.basis) == (800.0, 1250.0, "as traced")


def test_links_between_ranks_come_on_top_of_the_band() -> None:
    plan = Timing(program(one_load, "0.6")).plan
    plan = replace(plan, costs=replace(plan.costs, spread=np.array([300.0, 50.0])))
    found = traced(1000.0, plan, 0.25)
    assert (found.low_ns, found.high_ns) == (800.0 - 350.0, 1250.0 + 350.0)
    assert traced(100.0, plan, 0.25).low_ns == 0.0


OPS = st.lists(
    st.tuples(
        st.sampled_from(["load", "load", "free", "gpsimd", "store", "move", "matmul", "exp"]),
        st.integers(0, 3),
        st.integers(0, 3),
    ),
    max_size=25,
)


@given(
    OPS,
    st.sampled_from(["trn1", "trn2"]),
    st.sampled_from(["0.1", "0.6"]),
    st.sampled_from([64, 512, 16_384]),
)
@settings(max_examples=120, deadline=None)
def test_any_program(ops: Sequence[tuple[str, int, int]], name: str, nki: str, columns: int) -> None:
    kernel = Kernel(target=name, nki=nki)
    tiles = [kernel.sbuf(128, columns) for _ in range(4)]
    x, out, bank = kernel.argument(np.zeros((128, 64), np.float32)), kernel.hbm(128, 64), kernel.psum(64, 64)
    for what, one, two in ops:
        source, into = tiles[two][:, :64], tiles[one][:, :64]
        if what == "load":
            kernel.copy(into, x)
        elif what == "store":
            kernel.copy(out, source)
        elif what == "move":
            kernel.copy(kernel.hbm(128, 64), out)
        elif what == "matmul":
            kernel.matmul(bank, source, into)
        elif what == "exp":
            kernel.call("activation", dst=into, data=source, op="exp")
        else:
            engine = Engine.gpsimd if what == "gpsimd" else Engine.unknown
            kernel.call("tensor_scalar", engine, dst=into, data=source, op0="multiply", operand0=2.0)
    timing = Timing(kernel.program())
    found = timing.prediction
    assert 0 <= found.low_ns <= found.point_ns <= found.high_ns
    assert found.point_ns == timing.total_ns
    assert found.low_ns >= found.point_ns / (1 + max(FREE, BAND)) - 1e-6
    assert found.high_ns <= found.point_ns * (1 + max(FREE, BAND)) + 1e-6
    assert least_ns(timing.plan) <= timing.total_ns + 1e-6
    assert nki == "0.1" or found.kind is Kind.traced
    assert found.read >= 0 and found.written >= 0


# the floor


def test_the_floor_of_matmuls() -> None:
    """512 columns each at a column a cycle; what switching and a cold clock cost is no part of it."""
    kernel = Kernel(nki="0.1")
    left, right = kernel.sbuf(128, 128, dtype="bfloat16"), kernel.sbuf(128, 512, dtype="bfloat16")
    for view in (left, right):
        x = kernel.hbm(128, view.shape[1], dtype="bfloat16")
        kernel.copy(view, x)
    for _ in range(20):
        kernel.matmul(kernel.psum(128, 512), left, right)
    plan = Timing(kernel.program()).plan
    assert least_ns(plan) == pytest.approx(20 * 512 / TRN2.number("tensor.clock_ghz"))


def test_the_floor_of_a_copy() -> None:
    """The second load is of the same region; each store goes to one of its own."""
    moved = 3 * 128 * 4096 * 4
    plan = Timing(program(lambda kernel: load_twice(kernel, 4096), "0.6")).plan
    assert least_ns(plan) == pytest.approx(moved / min(HBM, ENGINES))


@pytest.mark.parametrize("name", ["trn1", "trn2"])
def test_the_floor_of_a_copy_within_hbm(name: str) -> None:
    """Each byte crosses HBM twice, but an engine moves it once."""
    kernel = Kernel(target=name)
    kernel.copy(kernel.hbm(1024, 2048), kernel.argument(np.zeros((1024, 2048), np.float32)))
    timing, figures = Timing(kernel.program()), Figures(target(name))
    moved = 1024 * 2048 * 4
    by_hbm = 2 * moved / (figures.number("hbm.bandwidth_per_core") / 1e9)
    by_engines = moved / (16 * figures.number("dma.bytes_per_ns"))
    assert least_ns(timing.plan) == pytest.approx(max(by_hbm, by_engines))
    assert least_ns(timing.plan) < timing.total_ns


def test_the_floor_of_simple_engines_is_shared_evenly() -> None:
    """Copies of fp32 from PSUM take a cycle an element on Vector; three engines share them."""
    kernel = Kernel(nki="0.6")
    for _ in range(30):
        kernel.call("tensor_copy", Engine.vector, dst=kernel.sbuf(128, 512), src=kernel.psum(128, 512))
    assert least_ns(Timing(kernel.program()).plan) == pytest.approx(30 * 512 / VECTOR_GHZ / 3)


def test_what_is_dropped_is_no_part_of_the_floor() -> None:
    kernel = Kernel(nki="0.6")
    for _ in range(2):
        kernel.call("tensor_copy", Engine.vector, dst=kernel.sbuf(128, 512), src=kernel.psum(128, 512))
    plan = Timing(kernel.program()).plan
    half = replace(plan, changes=Changes(dropped=frozenset({1})))
    assert least_ns(half) == pytest.approx(least_ns(plan) / 2)


def test_the_floor_of_nothing() -> None:
    timing = Timing(Kernel(nki="0.1").program())
    assert least_ns(timing.plan) == 0
    assert timing.prediction.words == "nothing runs (as traced)"


# tiles that come back


class Back(Kernel):
    """A tile is loaded (0), used (1), and used again (2)."""

    def __init__(self) -> None:
        super().__init__()
        self.tile = self.load(np.zeros((128, 512), np.float32))
        for _ in range(2):
            self.used(self.tile)

    def used(self, tile: View) -> None:
        self.call("tensor_scalar", Engine.vector, dst=self.psum(128, 512), data=tile, op0="add", operand0=1.0)


def fetched(kernel: Kernel, **fetches: Sequence[Fetch]) -> tuple[Timeline, Timeline]:
    """The schedule without and with fetches, by the instruction that they come before."""
    plan = Timing(kernel.program()).plan
    by = {int(at.removeprefix("at")): found for at, found in fetches.items()}
    return schedule(plan), schedule(replace(plan, changes=Changes(fetches=by)))


def slices(line: Timeline, lane: str) -> list[tuple[int, float, float, int]]:
    """(instruction, start, stop, wait)"""
    return [
        (int(line.instruction[at]), float(line.start[at]), float(line.stop[at]), int(line.wait[at]))
        for at in range(len(line.lane))
        if line.lanes[line.lane[at]].name == lane
    ]


def valid(line: Timeline, count: int) -> None:
    assert ((line.instruction >= 0) & (line.instruction < count)).all()
    assert (line.blocker < np.arange(len(line.blocker))).all() and (line.blocker >= -1).all()
    assert (line.start <= line.stop).all() and (line.stop <= line.ready).all()


def test_a_tile_that_is_loaded_again_delays_its_reader_by_the_transfer() -> None:
    plain, line = fetched(Back(), at2=[Fetch(2, 0, 1, 0)])
    valid(line, 3)
    # after the first use is done with the memory, a DMA starts and moves the same bytes as the load
    first, again = slices(line, "dma")
    done = float(line.ready[(line.instruction == 1)][0])
    assert again[0] == 0 and again[1] == pytest.approx(done + START) and again[3] == int(Wait.reuse)
    assert again[2] - again[1] == pytest.approx(first[2] - first[1])
    late = slices(line, "vector")[1]
    assert late[1] == pytest.approx(again[2]) and late[3] == int(Wait.data)
    blocker = int(line.blocker[(line.instruction == 2)][0])
    assert line.lanes[line.lane[blocker]].name == "dma" and line.instruction[blocker] == 0
    assert slices(line, "vector")[0] == slices(plain, "vector")[0]
    delay = late[1] - slices(plain, "vector")[1][1]
    assert line.total_ns == pytest.approx(plain.total_ns + delay) and delay > START
    # nothing is issued anew
    assert slices(line, "sync") == slices(plain, "sync")


def test_a_tile_that_was_spilled_comes_back_by_its_bytes() -> None:
    moved = 128 * 512 * 4
    _, line = fetched(Back(), at2=[Fetch(2, -1, 1, moved)])
    valid(line, 3)
    _, again = slices(line, "dma")
    assert again[0] == 2 and again[2] - again[1] == pytest.approx(max(moved / ENGINES, moved / HBM))
    assert slices(line, "vector")[1][1] == pytest.approx(again[2])


def test_a_tile_that_is_saved_holds_up_nobody_but_by_the_engines() -> None:
    moved = 128 * 512 * 4
    plain, line = fetched(Back(), at2=[Fetch(2, -1, 1, moved, saves=True)])
    valid(line, 3)
    assert slices(line, "vector") == slices(plain, "vector")
    plain, line = fetched(Back(), at2=[Fetch(2, -1, 1, 8 * moved, saves=True), Fetch(2, -1, 1, moved)])
    valid(line, 3)
    assert len(slices(line, "dma")) == 3
    assert slices(line, "vector")[1][1] >= slices(line, "dma")[1][1] + 9 * moved / max(ENGINES, HBM) - 500


def test_the_last_of_several_fetches_is_waited_for() -> None:
    moved = 128 * 512 * 4
    _, line = fetched(Back(), at2=[Fetch(2, -1, 1, 4 * moved), Fetch(2, 0, 1, 0)])
    valid(line, 3)
    assert slices(line, "vector")[1][1] == pytest.approx(max(stop for _, _, stop, _ in slices(line, "dma")))


def test_what_nothing_gave_way_to_comes_from_the_beginning() -> None:
    _, line = fetched(Back(), at2=[Fetch(2, 0, -1, 0)])
    valid(line, 3)
    again = slices(line, "dma")[1]
    assert again[1] == pytest.approx(START) and again[3] == int(Wait.nothing)


@pytest.mark.parametrize("build", [load_twice, too_many_loads, too_many_results])
def test_slices_name_instructions(build: Callable[[Kernel], None]) -> None:
    made = program(build)
    timing = Timing(made)
    valid(timing.timeline, len(made))
    extra = timing.compiled.extra if timing.compiled else 0.0
    dma = slices(timing.timeline, "dma")
    moved = sum(float(timing.plan.costs.hbm_bytes[at]) for at, *_ in dma)
    if build is too_many_loads:
        # what is loaded again has slices of its own
        assert moved == timing.prediction.read + timing.prediction.written and extra > 0
