"""Rules of memory, DMA, tiling, engine use and performance on small programs: what fires, what does not, and why."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from execute_kit import Kernel, View

from nkireview import hardware
from nkireview.checks.survey import survey
from nkireview.isa.enums import Engine
from nkireview.isa.table import ROWS
from nkireview.program.access import Access
from nkireview.rules import engines, memory, movement, performance, tiling
from nkireview.rules.case import Case, case_of, in_bytes, in_time, share
from nkireview.rules.facts import Facts, WorkloadFacts
from nkireview.rules.finding import Dimension, Evidence, Finding, Severity
from nkireview.rules.registry import RULES, judge
from nkireview.rules.rule import LEAST_NS, SHARE
from nkireview.schedule.timing import Timing

MINE = tuple(rule for module in (memory, movement, tiling, engines, performance) for rule in module.RULES)


def workload(kernel: Kernel, name: str = "w") -> WorkloadFacts:
    program = kernel.program()
    found = survey(program, ROWS, hardware.target(program.header.target))
    return WorkloadFacts(name, program=program, survey=found, timing=Timing(program))


def findings(kernel: Kernel, least: Severity = Severity.note) -> dict[str, Finding]:
    facts = Facts("kernel", (workload(kernel),), target=kernel.target)
    return {f.code: f for f in judge(facts) if f.code >= "NKR100" and f.severity.rank <= least.rank}


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def load(kernel: Kernel, source: View) -> View:
    tile = kernel.sbuf(*(count for _, count in source.pattern), dtype=source.dtype)
    kernel.copy(tile, source)
    return tile


def doubled(kernel: Kernel, tile: View) -> None:
    kernel.call("tensor_scalar", dst=tile, data=tile, op0="multiply", operand0=2.0)


def test_there_are_at_least_twenty_rules_and_each_is_explained() -> None:
    assert len(MINE) >= 20
    assert set(MINE) <= set(RULES)
    codes = {rule.code for rule in RULES}
    for rule in MINE:
        assert "NKR100" <= rule.code <= "NKR179"
        assert rule.evidence in (Evidence.traced, Evidence.scheduled)
        assert rule.citation.startswith("aws-neuron-sdk nki/") or rule.code == "NKR152"
        assert len(rule.explanation) > 60
        assert rule.suppresses <= codes, rule.code


def test_every_rule_has_an_example() -> None:
    folder = Path(memory.__file__).parent / "examples"
    assert [rule.code for rule in MINE if not (folder / f"{rule.code}.py").is_file()] == []


def test_nothing_is_said_of_an_empty_program_or_without_a_schedule() -> None:
    assert findings(Kernel()) == {}
    bare = WorkloadFacts("w", program=Kernel().program())
    assert case_of(bare) is None
    assert judge(Facts("kernel", (bare,), target="trn2")) == ()


def test_a_program_with_an_instruction_that_nobody_can_time_is_left_out() -> None:
    kernel = Kernel()
    kernel.raw("frobnicate", {"dst": kernel.sbuf(128, 8).access})
    assert case_of(workload(kernel)) is None


def reloading(kernel: Kernel, tiles: int) -> None:
    x, table = kernel.argument(zeros(128 * tiles, 1024)), kernel.argument(zeros(128, 1024))
    out = kernel.hbm(128 * tiles, 1024)
    for i in range(tiles):
        rows = slice(128 * i, 128 * i + 128)
        tile, factors = load(kernel, x[rows]), load(kernel, table)
        kernel.call("tensor_tensor", dst=tile, data1=tile, data2=factors, op="multiply")
        kernel.copy(out[rows], tile)
    kernel.output(out)


def test_a_reload_names_the_buffer_the_bytes_and_the_lines() -> None:
    kernel = Kernel()
    reloading(kernel, 16)
    found = findings(kernel)["NKR105"]
    assert found.message.startswith(
        "p1 is loaded 16 times over: 8.39 MB moved where 524 kB are needed (kernel.py:"
    )
    assert (found.severity, found.dimension) == (Severity.major, Dimension.memory)
    assert found.count == 16
    assert "load p1 once" in found.change and "4,096 bytes a partition" in found.change
    # 15 of 48 equal transfers are in vain, and bandwidth is all there is to win
    timing = workload(kernel).timing
    assert timing is not None and found.gain_ns is not None
    assert 0.2 * timing.total_ns < found.gain_ns < 15 / 48 * 1.2 * timing.total_ns


def test_little_at_stake_is_a_note() -> None:
    kernel = Kernel()
    reloading(kernel, 2)
    found = findings(kernel).get("NKR105")
    assert found is None or (found.severity is Severity.note and (found.gain_ns or 0) < LEAST_NS)


def test_the_stake_must_be_a_tenth_of_the_time() -> None:
    kernel = Kernel()
    reloading(kernel, 16)
    big, out = kernel.argument(zeros(128 * 512, 1024)), kernel.hbm(128 * 512, 1024)
    for i in range(512):
        kernel.copy(out[128 * i : 128 * i + 128], load(kernel, big[128 * i : 128 * i + 128]))
    kernel.output(out)
    found = findings(kernel).get("NKR105")
    assert found is None or found.severity is Severity.note
    assert SHARE == 0.10


def test_two_passes_over_what_does_not_fit_are_no_reload() -> None:
    kernel = Kernel()
    x, out = kernel.argument(zeros(128 * 96, 2048)), kernel.hbm(128 * 96, 2048)
    for _ in range(2):
        for i in range(96):
            rows = slice(128 * i, 128 * i + 128)
            kernel.copy(out[rows], load(kernel, x[rows]))
    kernel.output(out)
    assert "NKR105" not in findings(kernel, Severity.major)


def test_short_runs_name_the_run_and_what_to_do() -> None:
    kernel = Kernel()
    x, out = kernel.argument(zeros(512, 1024)), kernel.hbm(512, 1024)
    for row in range(0, 512, 128):
        tile = kernel.sbuf(128, 1024)
        for column in range(0, 1024, 64):
            kernel.copy(tile[:, column : column + 64], x[row : row + 128, column : column + 64])
        kernel.copy(out[row : row + 128], tile)
    kernel.output(out)
    found = findings(kernel)["NKR120"]
    assert found.message.startswith(
        "DMAs move 256-byte runs of p0: 2.1 MB of 4.19 MB in 64 DMAs, where 8 could move "
    )
    assert "in runs of up to 2,048 bytes" in found.message
    assert (found.severity, found.dimension, found.count) == (Severity.major, Dimension.dma, 64)
    assert found.change.endswith(": 512 instead of 64 elements a row of p0")


def test_a_tile_is_advised_no_longer_than_the_row_and_runs_are_said_tensor_by_tensor() -> None:
    kernel = Kernel()
    x, y = kernel.argument(zeros(2048, 256)), kernel.argument(zeros(2048, 4096))
    for row in range(0, 2048, 128):
        for source, width, columns in ((x, 64, 256), (y, 128, 512)):
            for column in range(0, columns, width):
                kernel.copy(kernel.sbuf(128, width), source[row : row + 128, column : column + width])
    found = findings(kernel)["NKR120"]
    # 64 fp32 = 256 bytes, of rows of 256 = 1,024 bytes; 128 fp32 = 512 bytes, 4 of them in 2,048
    assert found.message.startswith(
        "DMAs move 256-byte runs of p0 and 512-byte runs of p1: 6.29 MB of 6.29 MB in 128 DMAs, where 32 could move "
        "the same in runs of up to 2,048 bytes"
    )
    assert found.change.endswith(
        ": 256 instead of 64 elements a row of p0; 512 instead of 128 elements a row of p1"
    )


def test_a_range_of_runs_of_one_tensor() -> None:
    kernel = Kernel()
    x = kernel.argument(zeros(2048, 1024))
    for row in range(0, 2048, 128):
        for first, width in ((0, 64), (64, 64), (128, 256), (384, 256)):
            kernel.copy(kernel.sbuf(128, width), x[row : row + 128, first : first + width])
    assert "256 to 1,024-byte runs of p0" in findings(kernel)["NKR120"].message


def test_whole_rows_of_a_narrow_tensor_side_by_side_are_as_long_as_they_can_be() -> None:
    kernel = Kernel()
    x = kernel.argument(zeros(128 * 64, 32))
    for row in range(0, 128 * 64, 128):
        for column in (0, 32):  # past the row, as a view may be: the next row's elements
            source = View(x.buffer, x.dtype, row * 32 + column, ((32, 128), (1, 32)))
            kernel.copy(kernel.sbuf(128, 32), source)
    assert "NKR120" not in findings(kernel)


def test_the_reason_of_long_enough_runs_is_the_number_of_dmas() -> None:
    texts = []
    for width in (16, 256):
        kernel = Kernel()
        x = kernel.argument(zeros(1024, 16 * width))
        for row in range(0, 1024, 128):
            for column in range(0, 16 * width, width):
                kernel.copy(kernel.sbuf(128, width), x[row : row + 128, column : column + width])
        texts.append(findings(kernel)["NKR120"].message)
    # 64-byte runs cost an engine four times their share, 1,024-byte runs hardly anything: the queue is what they hold
    assert all("most of it because fewer DMAs are issued" in text for text in texts[1:])
    assert "1,024-byte runs" in texts[1]


def test_no_longer_run_than_sbuf_has_room_for() -> None:
    kernel = Kernel()
    x = kernel.argument(zeros(1024, 1024))
    full = kernel.sbuf(128, 53_180)  # 212,720 of 212,984 bytes
    kernel.call("memset", dst=full, value=0.0)
    for row in range(0, 1024, 128):
        for column in range(0, 1024, 64):
            kernel.copy(kernel.sbuf(128, 64), x[row : row + 128, column : column + 64])
    doubled(kernel, full)
    assert "NKR120" not in findings(kernel)


def test_a_row_for_all_partitions_is_no_reload() -> None:
    kernel = Kernel()
    gamma = kernel.argument(zeros(1, 8192))
    source = View(gamma.buffer, gamma.dtype, 0, ((0, 128), (1, 8192)))
    tile = kernel.sbuf(128, 8192)
    kernel.copy(tile, source)
    kernel.store(tile)
    assert "NKR105" not in findings(kernel)
    kernel = Kernel()
    gamma = kernel.argument(zeros(1, 8192))
    for _ in range(4):
        tile = kernel.sbuf(128, 8192)
        kernel.copy(tile, View(gamma.buffer, gamma.dtype, 0, ((0, 128), (1, 8192))))
        kernel.store(tile)
    found = findings(kernel)["NKR105"]
    assert found.message.startswith("p0 is loaded 4 times over: 16.8 MB moved where 4.19 MB are needed")
    assert "32,768 bytes a partition" in found.change


def test_what_is_kept_lies_on_the_partitions_that_it_is_loaded_to() -> None:
    kernel = Kernel()
    x = kernel.argument(zeros(32, 8192))
    for _ in range(8):
        tile = kernel.sbuf(32, 8192)
        kernel.copy(tile, x)
        kernel.store(tile)
    assert "32,768 bytes a partition" in findings(kernel)["NKR105"].change


def test_short_rows_of_a_narrow_tensor_are_no_short_runs() -> None:
    kernel = Kernel()
    x, out = kernel.argument(zeros(128 * 64, 32)), kernel.hbm(128 * 64, 32)
    for row in range(0, 128 * 64, 128):
        kernel.copy(out[row : row + 128], load(kernel, x[row : row + 128]))
    kernel.output(out)
    assert "NKR120" not in findings(kernel)


@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
def test_a_transpose_by_dma_is_one_finding(target: str) -> None:
    kernel = Kernel(target)
    x, tile = kernel.argument(zeros(128, 128)), kernel.sbuf(128, 128)
    for column in range(128):
        source = View(x.buffer, x.dtype, column, ((128, 128), (1, 1)))
        kernel.copy(tile[column : column + 1], source)
    kernel.store(tile)
    found = findings(kernel, Severity.minor)
    assert list(found) == ["NKR122"]
    assert "16384 descriptors of 4 bytes in 128 DMAs" in found["NKR122"].message
    assert found["NKR122"].dimension is Dimension.dma


def test_a_strided_load_of_every_other_column_is_no_transpose() -> None:
    kernel = Kernel()
    x = kernel.argument(zeros(512, 256))
    for row in range(0, 512, 128):
        source = View(x.buffer, x.dtype, row * 256, ((256, 128), (2, 128)))
        kernel.copy(kernel.sbuf(128, 128), source)
    assert "NKR122" not in findings(kernel)


def by_rows(kernel: Kernel, rows: int, height: int) -> None:
    x, out = kernel.argument(zeros(rows, 2048)), kernel.hbm(rows, 2048)
    for row in range(0, rows, height):
        tile = load(kernel, x[row : row + height])
        doubled(kernel, tile)
        kernel.copy(out[row : row + height], tile)
    kernel.output(out)


def test_half_of_the_partitions() -> None:
    kernel = Kernel()
    by_rows(kernel, 2048, 64)
    found = findings(kernel)["NKR140"]
    assert "have 64 of 128 partitions" in found.message
    assert (found.severity, found.dimension) == (Severity.major, Dimension.tiling)


def test_all_rows_that_there_are_is_no_finding() -> None:
    kernel = Kernel()
    by_rows(kernel, 64, 64)
    by_rows(kernel, 1024 + 64, 128)
    assert "NKR140" not in findings(kernel)


HEADS, DEPTH, KEYS = 16, 64, 1024


def by_heads(kernel: Kernel, use: Callable[[Kernel, View, int], None], *, flat: bool = False) -> None:
    """Tiles of 64 rows, each the whole of one of 16 matrices [64, 1024], and what is done with each."""
    shape = (HEADS * DEPTH, KEYS) if flat else (HEADS, DEPTH, KEYS)
    x = kernel.argument(zeros(*shape))
    for head in range(HEADS):
        base = head * DEPTH * KEYS
        tile = kernel.sbuf(DEPTH, KEYS)
        kernel.copy(tile, View(x.buffer, x.dtype, base, ((KEYS, DEPTH), (1, KEYS))))
        doubled(kernel, tile)
        use(kernel, tile, head)


def as_moving(kernel: Kernel, tile: View, head: int) -> None:
    kernel.matmul(kernel.psum(128, 512), kernel.sbuf(DEPTH, 128), tile[:, 0:512])


def as_stationary(kernel: Kernel, tile: View, head: int) -> None:
    kernel.matmul(kernel.psum(128, 512), tile[:, 0:128], kernel.sbuf(DEPTH, 512))


def scaled_then_moving(kernel: Kernel, tile: View, head: int) -> None:
    scaled = kernel.sbuf(DEPTH, KEYS)
    kernel.call("activation", dst=scaled, data=tile, op="exp")
    as_moving(kernel, scaled, head)


def by_the_row(kernel: Kernel, tile: View, head: int) -> None:
    largest = kernel.sbuf(DEPTH, 1)
    kernel.call("tensor_reduce", dst=largest, data=tile, op="maximum", axis=1)
    kernel.call("tensor_scalar", dst=tile, data=tile, op0="subtract", operand0=largest)
    kernel.store(tile)


def transposed(kernel: Kernel, tile: View, head: int) -> None:
    kernel.call("nc_transpose", dst=kernel.psum(128, DEPTH), data=tile[:, 0:128])


def turned_by_matmul(kernel: Kernel, tile: View, head: int) -> None:
    identity = kernel.sbuf(DEPTH, DEPTH)
    kernel.matmul(kernel.psum(128, DEPTH), tile[:, 0:128], identity, is_transpose=True)


def stored(kernel: Kernel, tile: View, head: int) -> None:
    kernel.store(tile)


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("use", [by_the_row, transposed, turned_by_matmul, stored])
def test_rows_of_another_matrix_can_share_a_tile_that_is_worked_on_row_by_row(
    use: Callable[[Kernel, View, int], None], flat: bool
) -> None:
    kernel = Kernel()
    by_heads(kernel, use, flat=flat)
    assert findings(kernel)["NKR140"].severity is Severity.major


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("use", [as_moving, as_stationary, scaled_then_moving])
def test_rows_that_a_matmul_contracts_are_those_of_one_sum(
    use: Callable[[Kernel, View, int], None], flat: bool
) -> None:
    kernel = Kernel()
    by_heads(kernel, use, flat=flat)
    assert "NKR140" not in findings(kernel)


def test_a_contraction_in_two_steps_is_no_matter_of_the_lanes() -> None:
    kernel = Kernel()
    x, w = kernel.argument(zeros(2048, 512)), kernel.argument(zeros(2048, 128))
    for block in range(0, 2048, 128):
        bank = kernel.psum(128, 512)
        for row in range(block, block + 128, 64):
            moving, stationary = load(kernel, x[row : row + 64]), load(kernel, w[row : row + 64])
            doubled(kernel, moving)
            kernel.matmul(bank, stationary, moving, accumulate=row > block)
    assert "NKR140" not in findings(kernel)


def products(kernel: Kernel, columns: int, *, alike: bool) -> None:
    """Results of 64 rows; `alike`: all meet one moving tile, else each its own, as those of another head do."""
    out = kernel.hbm(16 * 64, 512)
    shared = load(kernel, kernel.argument(zeros(128, 512)))
    for block in range(16):
        moving = shared if alike else load(kernel, kernel.argument(zeros(128, 512)))
        bank, result = kernel.psum(columns, 512), kernel.sbuf(columns, 512)
        kernel.matmul(bank, load(kernel, kernel.argument(zeros(128, columns))), moving)
        kernel.copy(result, bank)
        doubled(kernel, result)
        doubled(kernel, result)
        kernel.copy(out[64 * block : 64 * block + 64], result)
    kernel.output(out)


def test_the_rows_of_a_product_are_stationary_columns_of_which_there_must_be_more() -> None:
    kernel = Kernel()
    products(kernel, 64, alike=False)
    assert "NKR140" not in findings(kernel)
    kernel = Kernel()
    products(kernel, 64, alike=True)
    assert "64 of 128 partitions" in findings(kernel)["NKR140"].message


def test_no_more_rows_are_advised_than_there_are() -> None:
    kernel = Kernel()
    x, out = kernel.argument(zeros(96, 16_384)), kernel.hbm(96, 16_384)
    for row in (0, 48):
        tile = load(kernel, x[row : row + 48])
        doubled(kernel, tile)
        kernel.copy(out[row : row + 48], tile)
    kernel.output(out)
    assert "take 96 rows of p0" in findings(kernel)["NKR140"].change


def test_instructions_on_other_tiles_of_few_rows_do_not_count() -> None:
    kernel = Kernel()
    by_rows(kernel, 1024, 64)
    tile = kernel.sbuf(64, 2048)
    kernel.call("memset", dst=tile, value=0.0)
    for _ in range(50):
        doubled(kernel, tile)
    assert "16 instructions and 32 DMAs" in findings(kernel)["NKR140"].message


def matmuls(kernel: Kernel, depth: int, count: int, dtype: str = "float32", source: str = "float32") -> None:
    left, right = kernel.hbm(128, 128, dtype=source), kernel.hbm(128, 512, dtype=source)
    a, b = kernel.sbuf(128, 128, dtype=dtype), kernel.sbuf(128, 512, dtype=dtype)
    kernel.copy(a, left)
    kernel.copy(b, right)
    for _ in range(count):
        bank, result = kernel.psum(128, 512), kernel.sbuf(128, 512)
        for at in range(0, 128, depth):
            part = slice(at, at + depth)
            kernel.matmul(bank, a[part], b[part], accumulate=at > 0)
        kernel.copy(result, bank)
        kernel.store(result)


def test_half_of_the_pe_rows() -> None:
    kernel = Kernel()
    matmuls(kernel, 64, 32)
    found = findings(kernel)["NKR142"]
    assert "64 matmuls fill 64 of 128 PE rows" in found.message
    assert found.dimension is Dimension.tiling
    kernel = Kernel()
    matmuls(kernel, 128, 32)
    assert "NKR142" not in findings(kernel)


def test_a_contraction_of_64_that_is_all_there_is() -> None:
    kernel = Kernel()
    a, b = load(kernel, kernel.argument(zeros(64, 128))), load(kernel, kernel.argument(zeros(64, 512)))
    for _ in range(32):
        bank, result = kernel.psum(128, 512), kernel.sbuf(128, 512)
        kernel.matmul(bank, a, b)
        kernel.copy(result, bank)
        kernel.store(result)
    assert "NKR142" not in findings(kernel)


def test_float32_from_bfloat16_is_major_and_from_float32_a_note() -> None:
    for source, severity in (("bfloat16", Severity.major), ("float32", Severity.note)):
        kernel = Kernel()
        matmuls(kernel, 32, 40, source=source)
        assert findings(kernel)["NKR150"].severity is severity
    kernel = Kernel()
    matmuls(kernel, 32, 40, dtype="bfloat16", source="bfloat16")
    assert "NKR150" not in findings(kernel)


def looped(kernel: Kernel, tiles: int) -> None:
    x, out = kernel.argument(zeros(2048, 1024)), kernel.hbm(2048, 1024)
    held = [kernel.sbuf(128, 1024) for _ in range(tiles)]
    for i in range(16):
        tile, rows = held[i % tiles], slice(128 * i, 128 * i + 128)
        kernel.copy(tile, x[rows])
        kernel.call("activation", dst=tile, data=tile, op="exp")
        kernel.copy(out[rows], tile)
    kernel.output(out)


def test_single_buffering() -> None:
    kernel = Kernel()
    looped(kernel, 1)
    found = findings(kernel)["NKR160"]
    assert "single-buffered" in found.message and "15 instructions wait" in found.message
    assert (found.severity, found.dimension) == (Severity.major, Dimension.performance)
    assert "inside the loop" in found.change
    kernel = Kernel()
    looped(kernel, 8)
    assert "NKR160" not in findings(kernel, Severity.minor)


def staged(kernel: Kernel, shared: bool) -> None:
    """Two loads, a function, a product, a sum and a store for each of 16 blocks, on four tiles."""
    a, b, out = (kernel.argument(zeros(128 * 16, 2048)) for _ in range(3))
    held = [kernel.sbuf(128, 2048, name=name) for name in ("a", "b", "s", "o")]
    for i in range(16):
        rows = slice(128 * i, 128 * i + 128)
        first, second, middle, last = held if shared else [kernel.sbuf(128, 2048) for _ in held]
        kernel.copy(first, a[rows])
        kernel.copy(second, b[rows])
        kernel.call("activation", dst=middle, data=first, op="silu")
        kernel.call("tensor_tensor", Engine.gpsimd, dst=last, data1=middle, data2=second, op="multiply")
        kernel.call("tensor_tensor", Engine.gpsimd, dst=last, data1=last, data2=second, op="add")
        kernel.copy(out[rows], last)


def test_every_shared_tile_is_named_not_only_the_one_that_binds_first() -> None:
    kernel, apart = Kernel(), Kernel()
    staged(kernel, True)
    staged(apart, False)
    found = findings(kernel)["NKR160"]
    assert found.severity is Severity.major
    assert {name for name in ("a", "b", "s", "o") if re.search(rf"[(\s]{name}[,)]", found.message)} == set(
        "abso"
    )
    slow, fast = workload(kernel).timing, workload(apart).timing
    assert slow is not None and fast is not None and found.gain_ns is not None
    # what is saved is what the same work takes less on tiles of its own
    assert found.gain_ns == pytest.approx(slow.total_ns - fast.total_ns, rel=0.02)
    assert "NKR160" not in findings(apart)


def test_single_buffering_without_room_for_another_is_minor() -> None:
    kernel = Kernel()
    x, out = kernel.argument(zeros(128 * 8, 28_000)), kernel.hbm(128 * 8, 28_000)
    tile = kernel.sbuf(128, 28_000)
    for i in range(8):
        rows = slice(128 * i, 128 * i + 128)
        kernel.copy(tile, x[rows])
        doubled(kernel, tile)
        kernel.copy(out[rows], tile)
    kernel.output(out)
    assert findings(kernel)["NKR160"].severity is Severity.minor


def test_tiles_that_share_an_address_are_said_to() -> None:
    kernel = Kernel()
    x, y = kernel.argument(zeros(128, 4096)), kernel.argument(zeros(128, 4096))
    for _ in range(2):
        first = kernel.sbuf(128, 4096, address=(0, 0), name="gate")
        kernel.copy(first, x)
        for _ in range(6):
            doubled(kernel, first)
        second = kernel.sbuf(128, 4096, address=(0, 0), name="down_bias")
        kernel.copy(second, y)
        for _ in range(6):
            doubled(kernel, second)
    found = findings(kernel)["NKR160"]
    assert found.message.startswith("tiles share an address (gate, down_bias), so ")
    assert "every iteration" not in found.message
    assert found.change == "give each of gate, down_bias an address of its own: there is room"


def apart(kernel: Kernel, tile: View, out: View, at: int) -> View:
    return tile[:, at : at + 16]


def recurrent(kernel: Kernel, tile: View, out: View, at: int) -> View:
    return out[:, at - 16 : at]


def state(kernel: Kernel, tile: View, out: View, at: int) -> View:
    doubled(kernel, tile[:, 0:16])
    return tile[:, 0:16]


@pytest.mark.parametrize(("source", "said"), [(apart, True), (recurrent, False), (state, False)])
def test_pieces_of_one_tile_that_depend_on_each_other_cannot_be_one_instruction(
    source: Callable[[Kernel, View, View, int], View], said: bool
) -> None:
    kernel = Kernel()
    tile, out = load(kernel, kernel.argument(zeros(128, 1024))), kernel.sbuf(128, 1024)
    kernel.call("memset", dst=out, value=0.0)
    for at in range(16, 1024, 16):
        doubled_into(kernel, out[:, at : at + 16], source(kernel, tile, out, at))
    kernel.store(out)
    found = findings(kernel)
    assert ("NKR141" in found) is said
    if said:
        assert "up to 1,008 elements a partition" in found["NKR141"].change


def doubled_into(kernel: Kernel, made: View, data: View) -> None:
    kernel.call("tensor_scalar", dst=made, data=data, op0="multiply", operand0=2.0)


def test_no_more_of_the_array_is_advised_than_there_is_to_fill_it() -> None:
    kernel = Kernel()
    a, b = kernel.argument(zeros(96, 128)), kernel.argument(zeros(96, 512))
    left, right = kernel.sbuf(96, 128), kernel.sbuf(96, 512)
    kernel.copy(left, a)
    kernel.copy(right, b)
    for _ in range(40):
        bank = kernel.psum(128, 512)
        for at in (0, 48):
            kernel.matmul(bank, left[at : at + 48], right[at : at + 48], accumulate=at > 0)
        result = kernel.sbuf(128, 512)
        kernel.copy(result, bank)
        kernel.store(result)
    assert (
        "put 96 rows of the contraction on the partitions: one matmul instead of 2"
        in findings(kernel)["NKR142"].change
    )
    kernel = Kernel()
    stationary, moving = (
        load(kernel, kernel.argument(zeros(128, 96))),
        load(kernel, kernel.argument(zeros(128, 512))),
    )
    for _ in range(60):
        for at in (0, 48):
            kernel.matmul(kernel.psum(48, 512), stationary[:, at : at + 48], moving)
    assert (
        "give each matmul 96 columns of the stationary tile: one instead of 2"
        in findings(kernel)["NKR143"].change
    )
    kernel = Kernel()
    stationary, moving = (
        load(kernel, kernel.argument(zeros(128, 128))),
        load(kernel, kernel.argument(zeros(128, 32))),
    )
    for _ in range(100):
        for at in range(0, 32, 8):
            kernel.matmul(kernel.psum(128, 8), stationary, moving[:, at : at + 8])
    assert findings(kernel)["NKR144"].change == "move 32 columns with one matmul"


def test_few_partitions_of_a_row_that_is_summed_up_are_a_note() -> None:
    for reduced, severity in ((False, Severity.minor), (True, Severity.note)):
        kernel = Kernel()
        for _ in range(4):
            tile = load(kernel, kernel.argument(zeros(8, 16_384)))
            doubled(kernel, tile)
            if reduced:
                kernel.call("tensor_reduce", dst=kernel.sbuf(8, 1), data=tile, op="add", axis=1)
            kernel.store(tile)
        found = findings(kernel)["NKR123"]
        assert found.severity is severity
        assert ("put the results of the pieces of one row together" in found.change) is reduced


def test_scratch_tensors_made_at_one_line_are_one_finding() -> None:
    kernel = Kernel()
    x = kernel.argument(zeros(128, 2048))
    line = kernel.line
    for _ in range(8):
        kernel.line = line
        scratch = kernel.hbm(128, 2048)
        kernel.line += 5
        tile = load(kernel, x)
        kernel.copy(scratch, tile)
        kernel.store(load(kernel, scratch))
    found = [f for f in judge(Facts("kernel", (workload(kernel),), target="trn2")) if f.code == "NKR106"]
    assert len(found) == 1 and found[0].count == 16
    assert "8.39 MB stored, 8.39 MB loaded" in found[0].message
    assert "keep it in SBUF (65,536 bytes a partition" in found[0].change


def test_tensors_transposed_by_dma_are_one_finding() -> None:
    kernel = Kernel()
    for _ in range(2):
        x, tile = kernel.argument(zeros(128, 128)), kernel.sbuf(128, 128)
        for column in range(128):
            kernel.copy(tile[column : column + 1], View(x.buffer, x.dtype, column, ((128, 128), (1, 1))))
        kernel.store(tile)
    found = findings(kernel)["NKR122"]
    assert found.message.startswith(
        "p0, p1 are transposed by DMA: 32768 descriptors of 4 bytes in 256 DMAs, "
    )
    assert found.change.startswith(
        "move p0, p1 in their own order, up to 128 rows at a time, and transpose on chip"
    )


def turned(kernel: Kernel, *, straight: bool, twice: bool = False) -> None:
    """Products that are transposed, as they come or after a softmax's exponential."""
    weights, x = (
        load(kernel, kernel.argument(zeros(128, 128))),
        load(kernel, kernel.argument(zeros(128, 4096))),
    )
    for at in range(0, 4096, 128):
        product, copied, flipped, result = (
            make(128, 128) for make in (kernel.psum, kernel.sbuf, kernel.psum, kernel.sbuf)
        )
        kernel.matmul(product, weights, x[:, at : at + 128])
        if straight:
            kernel.copy(copied, product)
        else:
            kernel.call("activation", dst=copied, data=product, op="exp")
        kernel.call("nc_transpose", dst=flipped, data=copied)
        if twice:
            doubled(kernel, copied)
        kernel.copy(result, flipped)


def test_transposes_are_mentioned_where_the_matmul_could_give_the_result_that_way() -> None:
    for options, said in (
        ({"straight": True}, True),
        ({"straight": False}, False),
        ({"straight": True, "twice": True}, False),
    ):
        kernel = Kernel()
        turned(kernel, **options)
        assert ("NKR158" in findings(kernel)) is said, options


def test_a_choice_is_mentioned_from_a_tenth_of_the_time_on() -> None:
    for count, said in ((2, False), (40, True)):
        kernel = Kernel()
        matmuls(kernel, 32, count)
        doubled(kernel, load(kernel, kernel.argument(zeros(128, 16_384))))
        assert ("NKR150" in findings(kernel)) is said
    for turns, said in ((2, False), (12, True)):
        kernel = Kernel()
        tile = load(kernel, kernel.argument(zeros(128, 2048)))
        for _ in range(turns):
            for op in ("square", "rsqrt"):
                kernel.call("activation", dst=tile, data=tile, op=op)
        assert ("NKR152" in findings(kernel)) is said


def test_the_instructions_that_another_engine_could_take_are_named() -> None:
    kernel = Kernel()
    x = load(kernel, kernel.argument(zeros(128, 2048)))
    for _ in range(16):
        kernel.call(
            "tensor_tensor", engine=Engine.gpsimd, dst=kernel.sbuf(128, 2048), data1=x, data2=x, op="add"
        )
    assert findings(kernel)["NKR151"].change.startswith(
        "leave engine= out of some of the tensor_tensor, or name"
    )


def chained(kernel: Kernel, step: Callable[[View, View], None], tiles: int = 8) -> None:
    last = load(kernel, kernel.argument(zeros(128, 2048)))
    for _ in range(tiles):
        made = kernel.sbuf(128, 2048)
        step(made, last)
        last = made
    kernel.store(last)


def test_two_tensor_scalars() -> None:
    kernel = Kernel()

    def apart(made: View, last: View) -> None:
        middle = kernel.sbuf(128, 2048)
        kernel.call("tensor_scalar", dst=middle, data=last, op0="multiply", operand0=2.0)
        kernel.call("tensor_scalar", dst=made, data=middle, op0="add", operand0=1.0)

    chained(kernel, apart)
    found = findings(kernel)["NKR154"]
    assert found.count == 8  # of 15 pairs in a row no two may share an instruction
    assert found.severity is Severity.minor


def test_a_result_that_is_needed_twice_is_not_fused() -> None:
    kernel = Kernel()

    def step(made: View, last: View) -> None:
        middle = kernel.sbuf(128, 2048)
        kernel.call("tensor_scalar", dst=middle, data=last, op0="multiply", operand0=2.0)
        kernel.call("activation", dst=made, data=middle, op="exp")
        kernel.call("tensor_tensor", dst=made, data1=made, data2=middle, op="add")

    chained(kernel, step)
    assert "NKR156" not in findings(kernel) and "NKR155" not in findings(kernel)


def test_an_activation_whose_scale_is_taken_is_not_fused() -> None:
    kernel = Kernel()

    def step(made: View, last: View) -> None:
        kernel.call("tensor_scalar", dst=last, data=last, op0="multiply", operand0=2.0)
        kernel.call("activation", dst=made, data=last, op="exp", scale=0.5)

    chained(kernel, step)
    assert "NKR156" not in findings(kernel)


def test_work_that_waits_for_data_is_not_shared_out() -> None:
    kernel = Kernel()
    chained(kernel, lambda made, last: kernel.copy(made, last) and None, tiles=32)
    assert "NKR161" not in findings(kernel)


def test_gpsimd_does_everything() -> None:
    kernel = Kernel()
    x = load(kernel, kernel.argument(zeros(128, 2048)))
    for _ in range(16):
        kernel.call(
            "tensor_tensor", engine=Engine.gpsimd, dst=kernel.sbuf(128, 2048), data1=x, data2=x, op="add"
        )
    assert findings(kernel)["NKR151"].severity is Severity.minor


def test_a_mask_added_in_psum_order_is_no_partial_product() -> None:
    kernel = Kernel()
    matmuls(kernel, 32, 8)
    assert "NKR111" not in findings(kernel)


def test_over_capacity_in_program_order_is_major_and_between_usable_and_physical_minor() -> None:
    for columns, severity in ((20_000, Severity.major), (18_500, Severity.minor)):
        kernel = Kernel()
        tiles = [kernel.sbuf(128, columns) for _ in range(3)]
        for tile in [*tiles, *tiles]:
            doubled(kernel, tile)
        found = findings(kernel)["NKR101"]
        assert found.severity is severity
        assert (
            f"SBUF holds {3 * 4 * columns} bytes a partition in program order, 212984 are usable"
            in found.message
        )


def test_the_gravest_of_several_workloads_is_kept() -> None:
    small, large = Kernel(), Kernel()
    by_rows(small, 256, 64)
    by_rows(large, 4096, 64)
    facts = Facts("kernel", (workload(small, "small"), workload(large, "large")), target="trn2")
    (found,) = [f for f in judge(facts) if f.code == "NKR140"]
    assert found.workload == "small, large"
    assert found.severity is Severity.major
    assert found.gain_ns is not None and found.gain_ns > 20_000


def test_a_cause_hides_no_symptom_that_weighs_more() -> None:
    kernel = Kernel()
    reloading(kernel, 2)  # the re-load is worth a note at most
    x, out = kernel.argument(zeros(128 * 16, 512)), kernel.hbm(128 * 16, 512)
    for row in range(0, 128 * 16, 128):
        tile = kernel.sbuf(128, 512)
        for part in range(0, 128, 8):
            kernel.copy(tile[part : part + 8], x[row + part : row + part + 8])
        kernel.copy(out[row : row + 128], tile)
    kernel.output(out)
    assert findings(kernel)["NKR121"].severity is Severity.major


def test_figures_in_words() -> None:
    assert [in_bytes(n) for n in (12, 1536, 8_388_608, 2.15e9)] == ["12 B", "1.54 kB", "8.39 MB", "2.15 GB"]
    assert [in_time(n) for n in (12.4, 1500, 2_000_000)] == ["12 ns", "1.5 us", "2 ms"]
    assert (share(1, 4), share(1, 0)) == ("25%", "0%")


def test_places_come_by_what_they_cost() -> None:
    kernel = Kernel()
    by_rows(kernel, 256, 128)
    held = workload(kernel)
    case = case_of(held)
    assert isinstance(case, Case)
    texts = case.places(np.arange(len(case.program)))
    spent = case.timing.held_ns
    most = case.program.place_text(int(case.program.columns.place[int(spent.argmax())]))
    assert texts[0] == most
    assert len(texts) == len(set(texts))


def malformed(kernel: Kernel) -> dict[str, View | Access]:
    """Accesses that verify refuses."""
    tile, x = kernel.sbuf(128, 64), kernel.argument(zeros(128, 64))
    number = tile.buffer.id
    return {
        "no partition axis": Access(number, "float32", 0, ((64, 128), (1, 64))),
        "no elements": Access(number, "float32", 0, ((64, 0), (1, 64)), 0),
        "outside": Access(number, "float32", 100 * 64, ((64, 128), (1, 64)), 0),
        "far outside": Access(number, "float32", -(2**40), ((64, 128), (1, 64)), 0),
        "another width": Access(number, "float8_e4m3", 3, ((7, 128), (1, 64)), 0),
        "backwards": Access(number, "float32", 63, ((64, 128), (-1, 64)), 0),
        "no axes": Access(number, "float32", 0, ()),
        "outside in HBM": Access(x.buffer.id, "float32", 127 * 64, ((64, 128), (1, 64))),
        "partitions in HBM": Access(x.buffer.id, "float32", 0, ((64, 128), (1, 64)), 0),
    }


@pytest.mark.parametrize("wrong", list(malformed(Kernel())))
@pytest.mark.parametrize("opcode", ["dma_copy", "tensor_copy", "nc_matmul", "activation", "tensor_tensor"])
def test_a_malformed_access_makes_no_rule_fail(opcode: str, wrong: str) -> None:
    kernel = Kernel()
    bad, good = malformed(kernel)[wrong], kernel.sbuf(128, 64).access
    assert isinstance(bad, Access)
    names = [operand.name for operand in ROWS[opcode].operands if not operand.optional]
    for at in range(len(names)):
        for _ in range(3):
            kernel.raw(opcode, {name: bad if n == at else good for n, name in enumerate(names)}, op="add")
    findings(kernel)


def test_an_access_of_another_core_or_a_loop_without_bounds_makes_no_rule_fail() -> None:
    kernel = Kernel(lnc=2)
    looped(kernel, 1)
    kernel.switch_core()
    with kernel.loop(("register", 3)):
        looped(kernel, 2)
    findings(kernel)
