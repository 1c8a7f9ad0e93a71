"""What the rules of capacity say: the excess, the tensors, what no order avoids, and the smallest change."""

from __future__ import annotations

import pytest
from execute_kit import Kernel, View

from nkireview import hardware
from nkireview.checks.survey import survey
from nkireview.isa.release import Release
from nkireview.isa.table import ROWS
from nkireview.rules.facts import Facts, WorkloadFacts
from nkireview.rules.finding import Finding, Severity
from nkireview.rules.memory import RULES


def found(kernel: Kernel) -> dict[str, Finding]:
    """The findings about space by code; each code stands once."""
    program = kernel.program()
    surveyed = survey(program, ROWS, hardware.target(kernel.target))
    facts = Facts(
        kernel="",
        workloads=(WorkloadFacts("", program=program, survey=surveyed),),
        target=kernel.target,
        release=Release.parse(kernel.nki),
    )
    codes = ("NKR100", "NKR101", "NKR102", "NKR103", "NKR104", "NKR112")
    findings = [each for rule in RULES if rule.code in codes for each in rule.findings(facts)]
    assert len({each.code for each in findings}) == len(findings)
    return {each.code: each for each in findings}


def made(
    kernel: Kernel, line: int, count: int, columns: int, memory: str = "sbuf", **fields: str
) -> list[View]:
    """Tiles of 128 partitions that are made at one line."""
    views = []
    for _ in range(count):
        kernel.line = line - 1
        views.append(getattr(kernel, memory)(128, columns, **fields))
    kernel.line = 100
    return views


def alive(kernel: Kernel, *views: View) -> None:
    """All are written, then all are written again."""
    for _ in range(2):
        for view in views:
            kernel.call("memset", dst=view, value=0.0)


def normalised(kernel: Kernel, tiles: list[View]) -> None:
    """Every tile is multiplied with the sum over all of them."""
    total, part = kernel.sbuf(128, 1), kernel.sbuf(128, 1)
    kernel.call("memset", dst=total, value=0.0)
    for tile in tiles:
        kernel.copy(tile, kernel.hbm(*tile.shape))
    for tile in tiles:
        kernel.call("tensor_reduce", dst=part, op="add", data=tile, axis=1)
        kernel.call("tensor_tensor", dst=total, data1=total, data2=part, op="add")
    for tile in tiles:
        kernel.call("tensor_scalar", dst=tile, data=tile, op0="multiply", operand0=total)
        kernel.copy(kernel.hbm(*tile.shape), tile)


def test_what_program_order_needs_and_how_many_tiles_may_stay() -> None:
    kernel = Kernel()
    alive(kernel, *made(kernel, 11, 4, 10_000), *made(kernel, 12, 10, 2_000))
    findings = found(kernel)
    assert set(findings) == {"NKR101"}
    assert findings["NKR101"].severity is Severity.major
    assert findings["NKR101"].message == (
        "SBUF holds 240000 bytes a partition in program order, 212984 are usable, 27016 too many (kernel.py:114); "
        "alive: 4 x 40000 B of the tile made at kernel.py:11, 10 x 8000 B of the tile made at kernel.py:12"
    )
    assert findings["NKR101"].change == (
        "of the 10 tiles made at kernel.py:12, 8000 B a partition each, keep no more than 6 alive at once: load or "
        "make one when it is needed, and use it up before the next"
    )


def test_what_only_exceeds_the_reserve_is_minor() -> None:
    kernel = Kernel()
    alive(kernel, *made(kernel, 11, 2, 27_000))  # 216,000 B of 229,376
    assert found(kernel)["NKR101"].severity is Severity.minor


@pytest.mark.parametrize(
    ("dtype", "columns", "change"),
    [
        (
            "float32",
            28_000,
            "make the tile made at kernel.py:12 bfloat16 instead of float32: 54000 B a partition less",
        ),
        ("bfloat16", 56_000, "shorten the tile made at kernel.py:11 by 9016 B a partition, to 102984 B"),
    ],
)
def test_a_single_tile_is_to_be_smaller(dtype: str, columns: int, change: str) -> None:
    kernel = Kernel()
    alive(
        kernel, *made(kernel, 11, 1, columns, dtype=dtype), *made(kernel, 12, 1, columns - 1_000, dtype=dtype)
    )
    assert found(kernel)["NKR101"].change == change


def test_accumulators_are_to_be_copied_out() -> None:
    kernel = Kernel()
    alive(kernel, *made(kernel, 11, 9, 512, memory="psum"))
    (finding,) = found(kernel).values()
    assert finding.code == "NKR102"
    assert finding.message == (
        "PSUM holds 18432 bytes a partition in program order, 16384 are usable, 2048 too many (kernel.py:109); alive: "
        "9 x 2048 B of the tile made at kernel.py:11"
    )
    assert finding.change == (
        "of the 9 tiles made at kernel.py:11, 2048 B a partition each, keep no more than 8 alive at once: copy each to "
        "SBUF as soon as its last matmul is done, before the next ones start"
    )


@pytest.mark.parametrize(("nki", "severity"), [("0.6", Severity.blocker), ("0.1", Severity.note)])
def test_what_no_order_avoids_stands_in_place_of_what_program_order_needs(
    nki: str, severity: Severity
) -> None:
    kernel = Kernel(nki=nki)
    normalised(kernel, made(kernel, 11, 3, 20_000))
    (finding,) = found(kernel).values()
    assert (finding.code, finding.severity) == ("NKR104", severity)
    start, _, listed = finding.message.partition(" are usable: ")
    # the three tiles, and what the sum is kept in before or after the instruction
    assert start.startswith("no order fits: at tensor_")
    assert "24000" in start and start.endswith(
        "bytes a partition of SBUF are alive whatever the order, 212984"
    )
    assert listed.startswith("3 x 80000 B of the tile made at kernel.py:11")
    assert finding.change == (
        "of the 3 tiles made at kernel.py:11, 80000 B a partition each, keep no more than 2 alive at once: load or "
        "compute the others again when they are needed, or split the work before this point"
    )
    assert "kernel.py:11" in finding.places


def test_the_core_is_named_where_there_are_two() -> None:
    kernel = Kernel(lnc=2)
    alive(kernel, *made(kernel, 11, 1, 8))
    kernel.switch_core()
    normalised(kernel, made(kernel, 12, 3, 20_000))
    (finding,) = found(kernel).values()
    assert finding.code == "NKR104" and "of SBUF of core 1 are" in finding.message


def test_part_of_what_is_needed_is_needed_in_every_order() -> None:
    kernel = Kernel()
    kept, passing = made(kernel, 11, 2, 20_000), made(kernel, 12, 2, 10_000)
    for tile in passing:
        kernel.call("memset", dst=tile, value=0.0)
    normalised(kernel, kept)
    alive(kernel, *passing)
    message = found(kernel)["NKR101"].message
    assert "SBUF holds 240008 bytes a partition" in message
    assert "; whatever the order, 16000" in message


@pytest.mark.parametrize(("nki", "severity"), [("0.1", Severity.minor), ("0.3", Severity.note)])
def test_addresses_of_ones_own_beside_others(nki: str, severity: Severity) -> None:
    kernel = Kernel(nki=nki)
    alive(kernel, kernel.sbuf(128, 8, address=(0, 0)), kernel.sbuf(128, 8, name="free"), kernel.psum(128, 8))
    (finding,) = found(kernel).values()
    assert (finding.code, finding.severity) == ("NKR112", severity)
    assert finding.message == (
        "the kernel gives addresses to 1 of SBUF (such as the one made at kernel.py:1), and leaves 2 of SBUF and PSUM "
        "(such as free made at kernel.py:2) to the compiler"
    )


@pytest.mark.parametrize("address", [None, (0, 0)])
def test_addresses_for_all_or_none_are_fine(address: tuple[int, int] | None) -> None:
    kernel = Kernel()
    alive(kernel, kernel.sbuf(128, 8, address=address), kernel.psum(128, 8, address=address))
    assert not found(kernel)
