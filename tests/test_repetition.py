"""Repetition and duplication: which work is done again, on what, and what several cores store, counted by hand."""

from __future__ import annotations

import numpy as np
import pytest
from execute_kit import Kernel, View

from nkireview import hardware
from nkireview.checks.duplication import Duplicated, duplicated
from nkireview.checks.repetition import Repetition, repetition
from nkireview.checks.survey import survey
from nkireview.isa.table import ROWS
from nkireview.rules.facts import Facts, WorkloadFacts
from nkireview.rules.finding import Dimension, Finding, Severity
from nkireview.rules.registry import judge
from nkireview.schedule.timing import Timing

BLOCKS = 4


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def repeated(kernel: Kernel) -> Repetition:
    program = kernel.program()
    return repetition(program, survey(program, ROWS, hardware.target(program.header.target)).stored)


def stores(kernel: Kernel) -> tuple[Duplicated, ...]:
    program = kernel.program()
    found = survey(program, ROWS, hardware.target(program.header.target))
    return duplicated(program, found.moves, found.stored)


def made(kernel: Kernel, table: View, kept: View | None = None) -> View:
    """A tile of the sigmoid of a table [128, 64]; in `kept`, or in a tile of its own."""
    tile = kernel.sbuf(128, 64)
    result = kernel.sbuf(128, 64) if kept is None else kept
    kernel.copy(tile, table)
    kernel.call("activation", dst=result, data=tile, op="sigmoid")
    return result


def looped(
    kernel: Kernel, inside: bool, kept: bool = False, in_place: bool = False, changing: bool = False
) -> None:
    x, table = kernel.argument(zeros(128 * BLOCKS, 64)), kernel.argument(zeros(128 * BLOCKS, 64))
    out, shared = kernel.hbm(128 * BLOCKS, 64), kernel.sbuf(128, 64)
    if not inside:
        factors = made(kernel, table[0:128])
    for i in range(BLOCKS):
        rows = slice(128 * i, 128 * i + 128)
        if inside:
            factors = made(kernel, table[rows if changing else slice(0, 128)], shared if kept else None)
        tile = kernel.sbuf(128, 64)
        kernel.copy(tile, x[rows])
        target = factors if in_place else tile
        kernel.call("tensor_tensor", dst=target, data1=tile, data2=factors, op="multiply")
        kernel.copy(out[rows], target)
    kernel.output(out)


@pytest.mark.parametrize("kept", [False, True])
def test_work_on_what_has_not_changed_is_a_repetition(kept: bool) -> None:
    kernel = Kernel()
    looped(kernel, inside=True, kept=kept)
    found = repeated(kernel)
    # a load, a function, a load, a product and a store for each block; the first two again from the second block on
    assert found.instruction.tolist() == [5 * i + j for i in range(1, BLOCKS) for j in (0, 1)]
    # the product reads the function's result, 64 float32 a partition; what is loaded only the function reads
    assert found.kept_bytes == 64 * 4


@pytest.mark.parametrize(
    "fields", [{"inside": False}, {"inside": True, "changing": True}], ids=["before the loop", "other rows"]
)
def test_work_that_is_done_once_or_on_other_rows_is_none(fields: dict[str, bool]) -> None:
    kernel = Kernel()
    looped(kernel, **fields)
    assert repeated(kernel).instruction.tolist() == []


def test_a_result_that_is_changed_in_place_cannot_be_kept() -> None:
    kernel = Kernel()
    looped(kernel, inside=True, in_place=True)
    # the load of the table is still the same one
    assert repeated(kernel).instruction.tolist() == [5 * i for i in range(1, BLOCKS)]


def test_an_accumulator_that_is_set_to_zero_for_each_block_is_no_repetition() -> None:
    kernel = Kernel()
    x = kernel.argument(zeros(128 * BLOCKS, 64))
    for i in range(BLOCKS):
        total, tile = kernel.sbuf(128, 64), kernel.sbuf(128, 64)
        kernel.call("memset", dst=total, value=0.0)
        kernel.copy(tile, x[128 * i : 128 * i + 128])
        kernel.call("tensor_tensor", dst=total, data1=total, data2=tile, op="add")
    assert repeated(kernel).instruction.tolist() == []


def test_what_was_stored_in_between_counts_as_changed() -> None:
    kernel = Kernel()
    table = kernel.argument(zeros(128, 64))
    for _ in range(BLOCKS):
        kernel.copy(table, made(kernel, table))
    assert repeated(kernel).instruction.tolist() == []


def test_a_tile_that_is_filled_in_slices_is_known_again() -> None:
    kernel = Kernel()
    table, out = kernel.argument(zeros(128, 64)), kernel.hbm(128 * BLOCKS, 64)
    for i in range(BLOCKS):
        tile, result = kernel.sbuf(128, 64), kernel.sbuf(128, 64)
        for half in (slice(0, 32), slice(32, 64)):
            kernel.copy(tile[:, half], table[:, half])
        kernel.call("activation", dst=result, data=tile, op="exp")
        kernel.copy(out[128 * i : 128 * i + 128], result)
    kernel.output(out)
    assert repeated(kernel).instruction.tolist() == [4 * i + j for i in range(1, BLOCKS) for j in (0, 1, 2)]


def test_device_side_loops_are_not_looked_at() -> None:
    kernel = Kernel()
    table = kernel.argument(zeros(128, 64))
    with kernel.loop(3):
        made(kernel, table)
        made(kernel, table)
    assert repeated(kernel).instruction.tolist() == []


def findings(kernel: Kernel) -> dict[str, Finding]:
    program = kernel.program()
    facts = survey(program, ROWS, hardware.target(program.header.target))
    made = WorkloadFacts("w", program=program, survey=facts, timing=Timing(program))
    return {item.code: item for item in judge(Facts("k", (made,), target="trn2"))}


def wide(kernel: Kernel, inside: bool) -> None:
    """A table of 2048 columns whose sigmoid 16 narrow blocks are multiplied with."""
    x, table = kernel.argument(zeros(128 * 16, 128)), kernel.argument(zeros(128, 2048))
    out, gates = kernel.hbm(128 * 16, 128), kernel.sbuf(128, 2048)
    for i in range(16):
        if inside or not i:
            tile, gates = kernel.sbuf(128, 2048), kernel.sbuf(128, 2048)
            kernel.copy(tile, table)
            kernel.call("activation", dst=gates, data=tile, op="sigmoid")
        part, rows = kernel.sbuf(128, 128), slice(128 * i, 128 * i + 128)
        kernel.copy(part, x[rows])
        kernel.call("tensor_tensor", dst=part, data1=part, data2=gates[:, 0:128], op="multiply")
        kernel.copy(out[rows], part)
    kernel.output(out)


def test_repeated_work_is_told_with_what_it_is_and_what_would_be_saved() -> None:
    slow, fast = Kernel(), Kernel()
    wide(slow, True)
    wide(fast, False)
    found = findings(slow)["NKR164"]
    assert (found.severity, found.dimension) == (Severity.major, Dimension.performance)
    assert found.message.startswith(
        "30 instructions do again what was done before on the same inputs of p1: "
    )
    assert "15 x dma_copy" in found.message and "15 x activation" in found.message
    assert "8,192 bytes a partition" in found.change
    saved = Timing(slow.program()).total_ns - Timing(fast.program()).total_ns
    assert found.gain_ns == pytest.approx(saved, rel=0.02)
    assert "NKR164" not in findings(fast)


def halves(kernel: Kernel, parts: tuple[slice, ...]) -> None:
    """Each core stores its rows of an output of 256 rows."""
    x = kernel.argument(zeros(256, 64))
    out = kernel.hbm(256, 64, shared=True)
    for number, rows in enumerate(parts):
        if number:
            kernel.switch_core()
        for start in range(rows.start, rows.stop, 128):
            tile = kernel.sbuf(128, 64)
            kernel.copy(tile, x[start : start + 128])
            kernel.copy(out[start : start + 128], tile)
    kernel.output(out)


ALL, FIRST, SECOND = slice(0, 256), slice(0, 128), slice(128, 256)


@pytest.mark.parametrize(
    ("parts", "rows"),
    [((ALL, ALL), 256), ((ALL, SECOND), 128), ((FIRST, SECOND), 0), ((ALL, slice(0, 0)), 0)],
)
def test_elements_that_both_cores_store(parts: tuple[slice, ...], rows: int) -> None:
    kernel = Kernel(lnc=2)
    halves(kernel, parts)
    assert [item.bytes for item in stores(kernel)] == ([rows * 64 * 4] if rows else [])


def test_cores_that_do_the_same_are_told() -> None:
    kernel = Kernel(lnc=2)
    halves(kernel, (ALL, ALL))
    found = findings(kernel)["NKR165"]
    assert (found.severity, found.dimension) == (Severity.major, Dimension.hardware)
    assert found.message.startswith("2 cores store the same elements of output out (65.5 kB of 65.5 kB)")
    assert "nl.program_id(0)" in found.change
    kernel = Kernel(lnc=2)
    halves(kernel, (FIRST, SECOND))
    assert "NKR165" not in findings(kernel)
