"""Locality: bytes by line and route, and the least that has to be moved, against figures worked out by hand."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import permutations, product
from pathlib import Path

import numpy as np
import pytest
from execute_kit import Kernel, View
from hypothesis import given, settings
from hypothesis import strategies as st

from nkireview import hardware
from nkireview.checks.least import least_product_loads
from nkireview.checks.locality import COMPULSORY, LineTraffic, Locality
from nkireview.checks.survey import Survey, survey
from nkireview.hardware import Hardware
from nkireview.isa.enums import Memory
from nkireview.isa.table import ROWS
from nkireview.program.access import Access, Index
from nkireview.requests import from_task
from nkireview.runner import ForkServer
from nkireview.task import resolve
from nkireview.tracing import trace

TRN2 = hardware.target("trn2")


def surveyed(kernel: Kernel, target: Hardware = TRN2) -> Survey:
    return survey(kernel.program(), ROWS, target)


def of(kernel: Kernel) -> Locality:
    return surveyed(kernel).locality


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def at(kernel: Kernel, line: int) -> Kernel:
    """The next instruction of the kernel is on that line."""
    kernel.line = line - 1
    return kernel


def line(found: Locality, number: int, route: str) -> LineTraffic:
    (one,) = (one for one in found.lines if (one.place, one.route) == (f"kernel.py:{number}", route))
    return one


def parts(found: Locality, kind: str) -> list[tuple[str, float]]:
    return [(part.place.removeprefix("kernel.py:"), part.bytes) for part in found.parts if part.kind == kind]


def tile_product(
    kernel: Kernel, sizes: Sequence[int], block: tuple[int, int], dtype: str = "float32"
) -> tuple[View, View]:
    """[K, M].T @ [K, N]; blocks of so many 128 x 512 results are kept in PSUM; lines 100, 101 load, 102 stores."""
    terms, rows, columns = sizes
    lhs = kernel.hbm(terms, rows, dtype=dtype)
    rhs = kernel.hbm(terms, columns, dtype=dtype)
    kernel.parameters += [lhs.buffer, rhs.buffer]
    out = kernel.hbm(rows, columns, dtype=dtype)
    down, across = block
    left, right = kernel.sbuf(128, 128 * down, dtype=dtype), kernel.sbuf(128, 512 * across, dtype=dtype)
    banks = [[kernel.psum(128, 512) for _ in range(across)] for _ in range(down)]
    result = kernel.sbuf(128, 512, dtype=dtype)
    for row in range(0, rows, 128 * down):
        for column in range(0, columns, 512 * across):
            for term in range(0, terms, 128):
                at(kernel, 100).copy(left, lhs[term : term + 128, row : row + 128 * down])
                at(kernel, 101).copy(right, rhs[term : term + 128, column : column + 512 * across])
                for i, j in product(range(down), range(across)):
                    at(kernel, 103).matmul(
                        banks[i][j],
                        left[:, 128 * i : 128 * i + 128],
                        right[:, 512 * j : 512 * j + 512],
                        accumulate=term > 0,
                    )
            for i, j in product(range(down), range(across)):
                at(kernel, 104).copy(result, banks[i][j])
                begin, first = row + 128 * i, column + 512 * j
                at(kernel, 102).copy(out[begin : begin + 128, first : first + 512], result)
    kernel.output(out)
    return lhs, rhs


def test_a_matmul_that_loads_its_operands_again() -> None:
    kernel = Kernel()
    tile_product(kernel, (256, 256, 1024), (1, 1))
    found = of(kernel)
    lhs, rhs, out = 256 * 256 * 4, 256 * 1024 * 4, 256 * 1024 * 4
    # 2 x 2 results of 2 terms each: 8 loads of 128 x 128 and of 128 x 512
    left, right = line(found, 100, "HBM->SBUF"), line(found, 101, "HBM->SBUF")
    assert (left.bytes, left.transfers, left.reloaded_bytes) == (2 * lhs, 8, lhs)
    assert (right.bytes, right.transfers, right.reloaded_bytes) == (2 * rhs, 8, rhs)
    assert (left.descriptors, left.descriptor_bytes) == (8 * 128, 512)
    assert (right.descriptors, right.descriptor_bytes) == (8 * 128, 2048)
    assert line(found, 102, "SBUF->HBM").bytes == out
    assert line(found, 104, "PSUM->SBUF") == LineTraffic("kernel.py:104", "PSUM->SBUF", out, 4, 0, 0, 0)
    assert line(found, 103, "SBUF->PSUM").bytes == 8 * 128 * (128 + 512) * 4
    assert found.moved == 2 * lhs + 2 * rhs + out
    assert found.compulsory == found.least == found.alone == lhs + rhs + out
    assert (found.least_why, found.attainable) == (COMPULSORY, True)
    assert parts(found, "reload") == [("101", rhs), ("100", lhs)]


def test_a_softmax_of_one_pass() -> None:
    kernel = Kernel()
    x, out = kernel.argument(zeros(256, 512)), kernel.hbm(256, 512)
    for row in (0, 128):
        tile, total = kernel.sbuf(128, 512), kernel.sbuf(128, 1)
        at(kernel, 100).copy(tile, x[row : row + 128, :])
        kernel.call("activation", dst=tile, data=tile, op="exp")
        kernel.call("tensor_reduce", dst=total, data=tile, op="add", axis=1)
        kernel.call("reciprocal", dst=total, data=total)
        kernel.call("tensor_scalar", dst=tile, data=tile, op0="multiply", operand0=total)
        at(kernel, 101).copy(out[row : row + 128, :], tile)
    kernel.output(out)
    found = of(kernel)
    size = 256 * 512 * 4
    assert found.lines == (
        LineTraffic("kernel.py:100", "HBM->SBUF", size, 2, 256, 2048, 0),
        LineTraffic("kernel.py:101", "SBUF->HBM", size, 2, 256, 2048, 0),
    )
    assert (found.moved, found.compulsory, found.least) == (2 * size, 2 * size, 2 * size)
    assert found.parts == ()


def test_a_norm_of_two_passes() -> None:
    kernel = Kernel()
    x, out = kernel.argument(zeros(128, 512)), kernel.hbm(128, 512)
    total = kernel.sbuf(128, 1)
    first, second = kernel.sbuf(128, 512), kernel.sbuf(128, 512)
    at(kernel, 100).copy(first, x)
    kernel.call("tensor_reduce", dst=total, data=first, op="add", axis=1)
    at(kernel, 101).copy(second, x)
    kernel.call("tensor_scalar", dst=second, data=second, op0="multiply", operand0=total)
    at(kernel, 102).copy(out, second)
    kernel.output(out)
    found = of(kernel)
    size = 128 * 512 * 4
    assert [line(found, n, "HBM->SBUF").reloaded_bytes for n in (100, 101)] == [0, size]
    assert (found.moved, found.compulsory) == (3 * size, 2 * size)


def test_transposes_by_dma() -> None:
    kernel = Kernel()
    x, y = kernel.argument(zeros(64, 128)), kernel.argument(zeros(64, 128))
    tiles = kernel.sbuf(128, 64), kernel.sbuf(128, 64)
    at(kernel, 100).copy(tiles[0], View(x.buffer, x.dtype, 0, ((1, 128), (128, 64))))
    at(kernel, 101).call("dma_transpose", dst=tiles[1], src=y)
    kernel.call("tensor_tensor", dst=tiles[0], data1=tiles[0], data2=tiles[1], op="add")
    kernel.store(tiles[0])
    found = of(kernel)
    size = 64 * 128 * 4
    strided, whole = line(found, 100, "HBM->SBUF"), line(found, 101, "HBM->SBUF")
    assert (strided.bytes, strided.descriptors, strided.descriptor_bytes) == (size, 64 * 128, 4)
    assert (whole.bytes, whole.descriptors, whole.descriptor_bytes) == (size, 128, 256)
    assert parts(found, "transpose") == [("100", size), ("101", size)]


def test_a_round_trip_names_both_lines() -> None:
    kernel = Kernel()
    x, between = kernel.argument(zeros(128, 64)), kernel.hbm(128, 64)
    tile, again = kernel.sbuf(128, 64), kernel.sbuf(128, 64)
    kernel.copy(tile, x)
    at(kernel, 100).copy(between, tile)
    at(kernel, 101).copy(again, between)
    at(kernel, 102).copy(again, between)
    kernel.store(again)
    found = of(kernel)
    size = 128 * 64 * 4
    assert parts(found, "round trip") == [("100", size), ("101", size), ("102", size)]
    assert parts(found, "reload") == [("102", size)]
    assert (found.moved, found.compulsory) == (5 * size, 2 * size)


def test_a_store_that_nobody_reads() -> None:
    kernel = Kernel()
    tile = kernel.load(zeros(128, 64))
    lost = kernel.hbm(128, 64)
    at(kernel, 100).copy(lost, tile)
    kernel.store(tile)
    assert parts(of(kernel), "unread") == [("100", 128 * 64 * 4)]


def test_a_gather_with_an_index() -> None:
    kernel = Kernel()
    table = kernel.argument(zeros(1024, 32))
    rows = kernel.load(np.zeros((128, 1), np.int32))
    tile = kernel.sbuf(128, 32)
    at(kernel, 100).copy(tile, kernel.indexed(table[0:128, :], "vector", rows))
    at(kernel, 101).copy(tile, kernel.indexed(table[0:128, :], "vector", rows))
    kernel.store(tile)
    found = of(kernel)
    gather = line(found, 100, "HBM->SBUF")
    assert (gather.bytes, gather.descriptors, gather.descriptor_bytes) == (128 * 128, 128, 128)
    assert line(found, 101, "HBM->SBUF").reloaded_bytes == 0
    # the indices, one row of the table whatever they are, and the result
    assert found.compulsory == 512 + 128 + 128 * 128


def test_two_cores_that_share_a_tensor() -> None:
    kernel = Kernel(lnc=2)
    x, w = kernel.argument(zeros(256, 64), shared=True), kernel.argument(zeros(128, 64), shared=True)
    out = kernel.hbm(256, 64, shared=True)
    for core in range(2):
        if core:
            kernel.switch_core()
        tile, factors = kernel.sbuf(128, 64), kernel.sbuf(128, 64)
        at(kernel, 100).copy(tile, x[128 * core : 128 * core + 128, :])
        at(kernel, 101).copy(factors, w)
        kernel.call("tensor_tensor", dst=tile, data1=tile, data2=factors, op="multiply")
        at(kernel, 102).copy(out[128 * core : 128 * core + 128, :], tile)
    kernel.output(out)
    found = of(kernel)
    size = 128 * 64 * 4
    assert [line(found, n, "HBM->SBUF").bytes for n in (100, 101)] == [2 * size, 2 * size]
    assert all(one.reloaded_bytes == 0 for one in found.lines)
    assert (found.moved, found.compulsory, found.alone) == (6 * size, 5 * size, 6 * size)


def test_a_loop_on_the_device() -> None:
    kernel = Kernel()
    x, w = kernel.argument(zeros(640, 64)), kernel.argument(zeros(128, 64))
    out = kernel.hbm(640, 64)
    tile, factors = kernel.sbuf(128, 64), kernel.sbuf(128, 64)

    def counted(view: View) -> Access:
        return Access(
            view.buffer.id, "float32", 0, ((64, 128), (1, 64)), index=Index("register", 0, 0, 128 * 64)
        )

    with kernel.loop(5):
        at(kernel, 100).raw("dma_copy", {"dst": tile.access, "src": counted(x)})
        at(kernel, 101).copy(factors, w)
        kernel.call("tensor_tensor", dst=tile, data1=tile, data2=factors, op="multiply")
        at(kernel, 102).raw("dma_copy", {"dst": counted(out), "src": tile.access})
    kernel.output(out)
    found = of(kernel)
    size = 128 * 64 * 4
    counter, constant = line(found, 100, "HBM->SBUF"), line(found, 101, "HBM->SBUF")
    assert (counter.bytes, counter.transfers, counter.reloaded_bytes) == (5 * size, 5, 0)
    assert (constant.bytes, constant.transfers, constant.reloaded_bytes) == (5 * size, 5, 4 * size)
    assert (counter.descriptors, counter.descriptor_bytes) == (5 * 128, 256)
    assert (found.moved, found.compulsory) == (15 * size, 11 * size)


def test_a_copy_within_hbm_counts_at_both_ends() -> None:
    kernel = Kernel()
    x, out = kernel.argument(zeros(128, 64)), kernel.hbm(128, 64)
    at(kernel, 100).copy(out, x)
    kernel.output(out)
    found = of(kernel)
    size = 128 * 64 * 4
    assert line(found, 100, "HBM->HBM").bytes == size
    assert (found.moved, found.compulsory) == (2 * size, 2 * size)


def test_copies_on_chip() -> None:
    kernel = Kernel()
    tile = kernel.load(zeros(128, 64))
    bank, other, third = kernel.psum(128, 64), kernel.sbuf(128, 64), kernel.sbuf(128, 64)
    at(kernel, 100).call("tensor_copy", dst=bank, src=tile)
    at(kernel, 101).call("tensor_tensor", dst=other, data1=bank, data2=tile, op="add")
    at(kernel, 102).call("dma_copy", dst=third, src=other)
    at(kernel, 103).call("memset", dst=bank, value=0.0)
    kernel.store(other)
    found = of(kernel)
    size = 128 * 64 * 4
    on_chip = [(one.place[10:], one.route, one.bytes) for one in found.lines if "HBM" not in one.route]
    assert sorted(on_chip) == [
        ("100", "SBUF->PSUM", size),
        ("101", "PSUM->SBUF", size),
        ("102", "SBUF->SBUF", size),
    ]
    assert found.moved == 2 * size


def test_what_reaches_no_output_is_not_compulsory() -> None:
    kernel = Kernel()
    x, tile = kernel.argument(zeros(256, 64)), kernel.sbuf(128, 64)
    kernel.copy(tile, x[0:128, :])  # written over before anything reads it
    kernel.copy(tile, x[128:256, :])
    kernel.store(tile)
    found = of(kernel)
    size = 128 * 64 * 4
    assert (found.moved, found.compulsory) == (3 * size, 2 * size)


def test_what_the_kernel_stored_itself_is_no_input() -> None:
    kernel = Kernel()
    x, tile = kernel.argument(zeros(128, 64)), kernel.sbuf(128, 64)
    kernel.call("memset", dst=tile, value=1.0)
    kernel.copy(x, tile)
    kernel.copy(tile, x)
    kernel.store(tile)
    size = 128 * 64 * 4
    assert of(kernel).compulsory == size


def test_a_tensor_updated_in_place_needs_what_is_written_alone() -> None:
    kernel = Kernel()
    cache, tile = kernel.argument(zeros(1024, 64)), kernel.load(zeros(128, 64))
    kernel.copy(cache[128:256, :], tile)
    kernel.output(cache)
    size = 128 * 64 * 4
    found = of(kernel)
    assert (found.moved, found.compulsory) == (2 * size, 2 * size)


def test_constants_are_no_inputs() -> None:
    kernel = Kernel()
    tile = kernel.sbuf(128, 64)
    kernel.copy(tile, kernel.constant(zeros(128, 64)))
    kernel.store(tile)
    assert of(kernel).compulsory == 128 * 64 * 4


def test_regions_too_finely_cut_give_less_for_the_minimum_and_no_reload() -> None:
    kernel = Kernel()
    big, tile = kernel.hbm(8, 2**23), kernel.sbuf(128, 1)
    kernel.parameters.append(big.buffer)
    for base in (1, 1 + 2**20):
        kernel.copy(tile, View(big.buffer, "float32", base, ((3, 128), (1, 1))))
        kernel.copy(tile, View(big.buffer, "float32", base, ((3, 128), (1, 1))))
    kernel.store(tile)
    found = surveyed(kernel)
    assert found.traffic.loaded[0].needed == 2 * 128 * 4
    assert found.locality.compulsory == 2 * 128 * 4


@pytest.mark.parametrize("name", ["matmul", "softmax", "rmsnorm", "causal_attention"])
def test_the_examples_move_no_less_than_the_least(server: ForkServer, name: str) -> None:
    task, submissions = resolve(Path(__file__).resolve().parent.parent / "examples" / name)
    for submission in submissions:
        request = from_task(task, submission, target=None, nki=None, lnc=None, seed=1)
        for workload in request.workloads:
            program = trace(request, workload, server).program
            assert program is not None
            found = survey(program, ROWS, TRN2).locality
            assert 0 < found.compulsory <= found.least <= found.moved
            if submission.name == "good":
                assert found.moved == found.compulsory


# the bound of a matrix product


def test_the_bound_by_hand() -> None:
    # 2 * 64**3 / sqrt(256) - 2 * 256 - 64**2
    assert least_product_loads(64**3, 64**2, 256) == 2 * 64**3 / 16 - 512 - 4096
    assert least_product_loads(8**3, 8**2, 1024) == 0.0


def steps(sizes: Sequence[int], block: Sequence[int], order: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """The multiply-accumulates of a product in blocks, block after block, both in that order of the axes."""
    ranges = [range(0, size, width) for size, width in zip(sizes, block, strict=True)]
    for corner in product(*(ranges[axis] for axis in order)):
        begin = dict(zip(order, corner, strict=True))
        inner = [range(begin[a], min(begin[a] + block[a], sizes[a])) for a in order]
        for point in product(*inner):
            found = dict(zip(order, point, strict=True))
            yield found[0], found[1], found[2]


def loads_of(sequence: Sequence[tuple[int, int, int]], held: int) -> tuple[int, int]:
    """Elements loaded and stored where what is needed latest leaves a memory of `held` elements first."""
    touched = [(("a", i, k), ("b", k, j), ("c", i, j)) for i, j, k in sequence]
    uses: dict[tuple[str, int, int], list[int]] = defaultdict(list)
    for moment, three in enumerate(touched):
        for element in three:
            uses[element].append(moment)
    for moments in uses.values():
        moments.append(len(touched))
        moments.reverse()
    inside: set[tuple[str, int, int]] = set()
    begun: set[tuple[str, int, int]] = set()
    loads = stores = 0
    for three in touched:
        for element in three:
            if element not in inside:
                while len(inside) >= held:
                    gone = max((e for e in inside if e not in three), key=lambda e: uses[e][-1])
                    inside.remove(gone)
                    stores += gone[0] == "c"
                loads += element[0] != "c" or element in begun
                inside.add(element)
                begun.add(element)
            uses[element].pop()
    return loads, stores + sum(element[0] == "c" for element in inside)


@pytest.mark.parametrize("held", [4, 7, 13, 27])
@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_no_tiling_loads_less_than_the_bound(order: tuple[int, int, int], held: int) -> None:
    sizes = (8, 9, 10)
    bound = least_product_loads(math.prod(sizes), 8 * 9, held)
    assert bound > 0 or held == 27
    for block in product((1, 3, 8), repeat=3):
        loads, stores = loads_of(list(steps(sizes, block, order)), held)
        assert loads >= bound
        assert loads + stores >= bound + 8 * 9


@settings(max_examples=40, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(4, 12))
def test_no_order_loads_less_than_the_bound(random: object, held: int) -> None:
    sequence = list(steps((5, 5, 5), (5, 5, 5), (0, 1, 2)))
    random.shuffle(sequence)  # type: ignore[attr-defined]
    assert loads_of(sequence, held)[0] >= least_product_loads(125, 25, held)


def test_the_best_tiling_comes_near_the_bound() -> None:
    held, size = 27, 24
    best = min(
        loads_of(list(steps((size, size, size), (5, 5, 1), (0, 1, 2))), held)[0],
        loads_of(list(steps((size, size, size), (4, 4, 1), (0, 1, 2))), held)[0],
    )
    assert best <= 1.75 * least_product_loads(size**3, size**2, held)


def small(usable: int) -> Hardware:
    """trn2 with another SBUF."""
    return hardware.target("trn2", {"sbuf.usable_bytes_per_partition": usable})


@pytest.mark.parametrize(
    ("size", "dtype", "block"),
    [(2048, "float32", block) for block in ((1, 1), (1, 4), (2, 2), (4, 2), (8, 1))]
    + [(4096, "bfloat16", (4, 2))],
)
def test_products_in_a_small_sbuf_move_more_than_the_bound(
    size: int, dtype: str, block: tuple[int, int]
) -> None:
    kernel = Kernel()
    usable, width = 12288, {"float32": 4, "bfloat16": 2}[dtype]
    tile_product(kernel, (size, size, size), block, dtype)
    found = surveyed(kernel, small(usable))
    assert max(space.peak for space in found.space if space.memory is Memory.sbuf) <= usable
    local = found.locality
    held = 128 * (usable + 16384) / width  # PSUM has 16 KiB a partition
    loads = 2 * size**3 / math.sqrt(held) - 2 * held - size**2
    assert local.least == pytest.approx(width * (loads + size**2))
    assert local.compulsory == 3 * size**2 * width < local.least
    assert local.moved == size**2 * width + size**3 * width * (1 / (128 * block[0]) + 1 / (512 * block[1]))
    assert local.least <= local.moved
    assert f"[{size}, {size}]" in local.least_why and f"{width} bytes" in local.least_why
    assert local.attainable


def test_a_product_computed_twice_has_no_bound_of_its_own() -> None:
    kernel = Kernel()
    lhs, rhs = tile_product(kernel, (2048, 2048, 2048), (8, 1))
    left, right, bank = kernel.sbuf(128, 128), kernel.sbuf(128, 512), kernel.psum(128, 512)
    kernel.copy(left, lhs[0:128, 0:128])
    kernel.copy(right, rhs[0:128, 0:512])
    kernel.matmul(bank, left, right, accumulate=False)
    local = surveyed(kernel, small(12288)).locality
    assert (local.least, local.least_why) == (local.compulsory, COMPULSORY)


def test_a_product_of_products_has_no_bound_of_its_own() -> None:
    kernel = Kernel()
    tile_product(kernel, (2048, 2048, 2048), (8, 1))
    x = kernel.sbuf(128, 512)
    kernel.copy(x, kernel.psum(128, 512))
    local = surveyed(kernel, small(1024)).locality
    assert local.least > local.compulsory
    chained = Kernel()
    lhs, _ = tile_product(chained, (2048, 2048, 2048), (8, 1))
    first, bank, made = chained.sbuf(128, 128), chained.psum(128, 128), chained.sbuf(128, 128)
    chained.copy(first, lhs[0:128, 0:128])
    chained.matmul(bank, first, first, accumulate=False)
    chained.copy(made, bank)
    chained.matmul(bank, made, first, accumulate=False)
    local = surveyed(chained, small(1024)).locality
    assert local.least == local.compulsory
