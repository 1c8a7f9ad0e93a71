"""counts: instructions, bytes, multiply-accumulates and DMA runs, held against figures worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from execute_kit import Kernel, counted

from nkireview.checks.counts import Counts, counts
from nkireview.isa.enums import Engine
from nkireview.isa.table import ROWS
from nkireview.program.call import Tile
from nkireview.program.contiguity import contiguous_run
from nkireview.program.errors import ProgramError
from nkireview.program.model import Loop


def of(kernel: Kernel) -> Counts:
    return counts(kernel.program(), kernel.rows)


def matmul(kernel: Kernel, columns: int = 512, **given: object) -> None:
    stationary = kernel.load(counted(128, 64).astype(np.float32))
    moving = kernel.load(counted(128, columns).astype(np.float32))
    result, out = kernel.psum(64, columns), kernel.sbuf(64, columns)
    kernel.matmul(result, stationary, moving, **given)
    kernel.copy(out, result)
    kernel.store(out)


def test_a_tile_of_a_matmul() -> None:
    kernel = Kernel()
    matmul(kernel)
    found = of(kernel)
    assert found.instructions == 5
    assert found.by_opcode == {"dma_copy": 3, "nc_matmul": 1, "tensor_copy": 1}
    assert found.by_engine == {"dma": 3, "tensor": 1, "vector": 1}
    loads, stored = 4 * 128 * (64 + 512), 4 * 64 * 512
    assert found.bytes_by_route == {"hbm->sbuf": loads, "sbuf->hbm": stored}
    assert found.bytes_moved == loads + stored
    assert found.multiply_accumulates == 128 * 64 * 512
    assert found.flops == 2 * 128 * 64 * 512
    assert found.dma_transfers == 3
    assert not found.assumed_trips


def test_a_transpose_multiplies_nothing() -> None:
    kernel = Kernel()
    matmul(kernel, columns=128, is_transpose=True)
    assert of(kernel).multiply_accumulates == 0


def test_double_row_contracts_twice_the_rows() -> None:
    kernel = Kernel()
    stationary, moving = (
        kernel.sbuf(128, 2, 64, dtype="float8_e4m3"),
        kernel.sbuf(128, 2, 512, dtype="float8_e4m3"),
    )
    kernel.matmul(kernel.psum(64, 512), stationary, moving, perf_mode="double_row")
    assert of(kernel).multiply_accumulates == 256 * 64 * 512


def test_an_empty_program() -> None:
    found = of(Kernel())
    assert found == Counts(0, {}, {}, {}, 0, 0, None, None, False)


def test_an_instruction_runs_on_the_engine_asked_for_or_chosen() -> None:
    kernel = Kernel()
    tile, bank = kernel.sbuf(32, 32), kernel.psum(32, 32)
    kernel.call("tensor_copy", dst=tile, src=tile, engine=Engine.scalar)
    kernel.call("nc_transpose", dst=tile, data=tile)
    kernel.call("nc_transpose", dst=bank, data=tile)
    kernel.call("dma_copy", dst=kernel.hbm(32, 32), src=tile, engine=Engine.sync)
    kernel.raw("frobnicate", {"dst": tile.access})
    assert of(kernel).by_engine == {"scalar": 1, "vector": 1, "tensor": 1, "dma": 1, "unknown": 1}


def test_instructions_in_loops_count_once_for_each_trip() -> None:
    kernel = Kernel()
    tile, x = kernel.sbuf(128, 8), kernel.hbm(128, 8)
    with kernel.loop(3):
        kernel.copy(tile, x)
        with kernel.loop(5):
            kernel.call("tensor_copy", dst=tile, src=tile)
    kernel.copy(x, tile)
    found = of(kernel)
    assert found.by_opcode == {"dma_copy": 4, "tensor_copy": 15}
    assert (found.instructions, found.dma_transfers) == (19, 4)
    assert found.bytes_by_route == {"hbm->sbuf": 3 * 4096, "sbuf->hbm": 4096}
    assert not found.assumed_trips


def test_a_loop_without_static_bounds_counts_once_and_says_so() -> None:
    kernel = Kernel()
    tile = kernel.sbuf(128, 8)
    with kernel.loop(("register", 7)):
        kernel.call("tensor_copy", dst=tile, src=tile)
    found = of(kernel)
    assert found.instructions == 1 and found.assumed_trips


def test_malformed_loops_count_once_and_say_so() -> None:
    kernel = Kernel()
    tile = kernel.sbuf(128, 8)
    for _ in range(4):
        kernel.call("tensor_copy", dst=tile, src=tile)
    loops = (Loop("for", 0, 3, 0, 0, 2), Loop("for", 1, 4, 1, 0, 2))
    found = counts(replace(kernel.program(), loops=loops), ROWS)
    assert found.instructions == 4 and found.assumed_trips


def test_trips_beyond_64_bits() -> None:
    kernel = Kernel()
    tile = kernel.sbuf(128, 8)
    with kernel.loop(2**40), kernel.loop(2**40):
        kernel.call("tensor_copy", dst=tile, src=tile)
    assert of(kernel).by_engine == {"vector": 2**80}


def test_a_loop_that_never_runs() -> None:
    kernel = Kernel()
    with kernel.loop(0):
        kernel.copy(kernel.sbuf(128, 8), kernel.hbm(128, 8))
    found = of(kernel)
    assert found.instructions == 0 and found.bytes_moved == 0


def test_runs_end_where_either_side_is_interrupted() -> None:
    """A row of 512 floats is 2048 bytes in SBUF; a quarter of its columns in HBM is 512 bytes."""
    kernel = Kernel()
    x = kernel.hbm(128, 512)
    kernel.copy(kernel.sbuf(128, 512), x)
    kernel.copy(kernel.sbuf(128, 128), x[:, :128])
    kernel.copy(kernel.sbuf(64, 512)[:, ::2], x[:64, :256])
    found = of(kernel)
    assert found.smallest_run == 4
    assert found.median_run == 4
    kernel = Kernel()
    x = kernel.hbm(128, 512)
    kernel.copy(kernel.sbuf(128, 512), x)
    kernel.copy(kernel.sbuf(64, 128), x[:64, :128])
    found = of(kernel)
    assert (found.smallest_run, found.median_run) == (512, 2048)


def test_a_contiguous_run() -> None:
    kernel = Kernel()
    x, t = kernel.hbm(4, 8, 16), kernel.sbuf(4, 8, 16, dtype="bfloat16")
    for view, wanted in (
        (x, 4 * 8 * 16 * 4),
        (x[:, 2:6], 4 * 16 * 4),
        (x[:, :, 1:3], 8),
        (x[:, :, ::2], 4),
        (x[:, :1], 64),
        (t, 8 * 16 * 2),
        (t[:, :, :4], 8),
    ):
        assert contiguous_run(Tile(view.access, view.buffer)) == wanted


def test_copies_in_hbm_have_one_route() -> None:
    kernel = Kernel()
    kernel.copy(kernel.hbm(16, 8), kernel.hbm(16, 8))
    found = of(kernel)
    assert found.bytes_by_route == {"hbm->hbm": 512} and found.smallest_run == 512


def test_an_unknown_target_is_refused() -> None:
    program = Kernel().program()
    with pytest.raises(ProgramError, match="unknown target"):
        counts(replace(program, header=replace(program.header, target="trn9")), {})
