"""What fits on chip and what does not: every public statement of it that is known, each with its source.

What is stated for a memory is asked of `verify` (one buffer, one instruction) and of the space of a Program.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from execute_kit import Kernel, View

from nkireview import hardware
from nkireview.checks.changes import Change
from nkireview.checks.space import Space
from nkireview.checks.survey import survey
from nkireview.isa.enums import Memory
from nkireview.isa.table import ROWS
from nkireview.program.program import Program
from nkireview.program.verify import verify
from nkireview.requests import from_task
from nkireview.rules.facts import WorkloadFacts
from nkireview.rules.memory import RULES
from nkireview.rules.rule import Facts
from nkireview.runner import ForkServer
from nkireview.sources import load
from nkireview.tracing import trace

SBUF_PY = "aws-neuron-sdk v2.26.1 nki/compiler/sbuf.py:50-53"
ALLOCATION = "aws-neuron-sdk v2.26.1 nki/nki_direct_allocation_guide.rst:154-155"
MLP_CTE = "aws-neuron/nki-library 2.29 core/mlp/mlp_cte/mlp_cte_constants.py:46-47"
KLR = "leanprover/KLR KLR/Trace.lean:52-54"
ARCH = "aws-neuron-sdk nki/guides/architecture/trainium_inferentia2_arch.rst"
MIGRATION = "aws-neuron-sdk nki/migration/index.rst:1109-1114"
ISA = "aws-neuron-sdk nki/api/nki/isa/__init__.py:608-615"
USABLE = {"trn1": 180_224, "trn2": 212_984, "trn3": 245_752}
TARGETS = tuple(USABLE)
CAPACITY = {9, 11, 12, 13, 14}
"""Numbers of the limits of `verify` that are about room."""
Made = Callable[[Kernel], None]


def sbuf(columns: int, dtype: str = "float32") -> Made:
    """One tile of all partitions that is written."""
    return lambda kernel: both(kernel, kernel.sbuf(128, columns, dtype=dtype))


def psum(columns: int) -> Made:
    return lambda kernel: both(kernel, kernel.psum(128, columns))


def both(kernel: Kernel, *views: View) -> None:
    """All views are written, then all are written again: they are alive at once."""
    for _ in range(2):
        for view in views:
            kernel.call("memset", dst=view, value=0.0)


def together(*columns: int) -> Made:
    return lambda kernel: both(kernel, *(kernel.sbuf(128, each) for each in columns))


def one_by_one(*columns: int) -> Made:
    def make(kernel: Kernel) -> None:
        for each in columns:
            both(kernel, kernel.sbuf(128, each))

    return make


def accumulators(count: int) -> Made:
    """Matmul results of a bank each that wait for one another."""

    def make(kernel: Kernel) -> None:
        operand = kernel.sbuf(128, 512, dtype="bfloat16")
        both(kernel, operand)
        banks = [kernel.psum(128, 512) for _ in range(count)]
        for bank in banks:
            kernel.matmul(bank, operand[:, 0:128], operand)
        for bank in banks:
            kernel.copy(kernel.sbuf(128, 512), bank)

    return make


def matmul(columns: int, start: int = 0) -> Made:
    """One matmul result of that many fp32 elements of a PSUM tile, from one of them on."""

    def make(kernel: Kernel) -> None:
        operand = kernel.sbuf(128, columns, dtype="bfloat16")
        both(kernel, operand)
        tile = kernel.psum(128, 4096)
        kernel.matmul(tile[:, start : start + columns], operand[:, 0:128], operand)

    return make


def address(memory: str, byte: int, columns: int = 16) -> Made:
    return lambda kernel: both(kernel, getattr(kernel, memory)(128, columns, address=(0, byte)))


def addresses(memory: str, *bytes_: int) -> Made:
    """Tiles of 2 KiB at these bytes, each filled and then each read."""

    def make(kernel: Kernel) -> None:
        tiles = [getattr(kernel, memory)(128, 512, address=(0, byte)) for byte in bytes_]
        for tile in tiles:
            kernel.call("memset", dst=tile, value=0.0)
        for tile in tiles:
            kernel.copy(kernel.sbuf(128, 512, address=(0, 65_536)), tile)

    return make


@dataclass(frozen=True)
class Statement:
    """Something that is said to fit, or not to, on some targets."""

    said: str
    source: str
    fits: bool
    made: Made
    targets: tuple[str, ...] = TARGETS


def usable(target: str, source: str) -> list[Statement]:
    """What a number of usable bytes means: for one tile, for two that are alive at once, and for an address."""
    room = USABLE[target]
    half = room // 8
    words = f"{room:,} B a partition are usable on {target}"
    return [
        Statement(f"{words}: one tile of exactly so much", source, True, sbuf(room // 4), (target,)),
        Statement(f"{words}: one element more", source, False, sbuf(room // 4 + 1), (target,)),
        Statement(f"{words}: one element of a byte more", source, False, sbuf(room + 1, "uint8"), (target,)),
        Statement(f"{words}: two tiles at once", source, True, together(half, room // 4 - half), (target,)),
        Statement(f"{words}: two, one element more", source, False, together(half, room // 4 - half + 1), (target,)),
        Statement(f"{words}: two, one after the other", source, True, one_by_one(room // 4, room // 4), (target,)),
        Statement(f"{words}: to the last byte", source, True, address("sbuf", room - 64), (target,)),
        Statement(f"{words}: beyond the last byte", source, False, address("sbuf", room - 63), (target,)),
    ]  # fmt: skip


STATEMENTS = (
    *usable("trn1", f"{SBUF_PY}; {ALLOCATION}; {KLR}"),
    *usable("trn2", f"{MLP_CTE}, without the 256 B of its own; {KLR}"),
    *usable("trn3", KLR),
    Statement("176,128 B for trn2, as one user has it, is not the end", "sbuf-allocation.md:68 of a user's notes", True,
              sbuf(176_132 // 4), ("trn2",)),
    Statement("what AWS's MLP takes for itself fits: 224 KiB - 16 KiB - 8 - 256", MLP_CTE, True,
              sbuf((224 * 1024 - 16_384 - 8 - 256) // 4), ("trn2",)),
    Statement("what AWS's MoE takes for itself fits: 224 KiB - 16 KiB - 8 - 520",
              "aws-neuron/nki-library 2.29 experimental/moe/bwd/bwmm_bwd_dropless.py:33", True,
              sbuf((224 * 1024 - 16_384 - 8 - 520) // 4), ("trn2",)),
    Statement("PSUM has 16 KiB a partition: 4,096 fp32", f"{ARCH}:789-793", True, psum(4096)),
    Statement("PSUM has 16 KiB a partition: 4,097 fp32", f"{ARCH}:789-793", False, psum(4097)),
    Statement("eight banks: eight accumulators", f"{ARCH}:789-793", True, accumulators(8)),
    Statement("eight banks: nine accumulators", f"{ARCH}:789-793", False, accumulators(9)),
    Statement("a tile larger than a bank that no matmul writes", f"{ARCH}:336, against tiling-overview.rst:97", True,
              psum(513)),
    Statement("a matmul result of a bank", f"{ARCH}:169-170", True, matmul(512)),
    Statement("a matmul result of a bank that is the last one", f"{ARCH}:169-170", True, matmul(512, 7 * 512)),
    Statement("a matmul result across two banks", f"{ARCH}:169-170", False, matmul(512, 256), ("trn1", "trn2")),
    Statement("a matmul result across two banks", ISA, True, matmul(512, 256), ("trn3",)),
    Statement("a matmul result of all eight banks", ISA, True, matmul(4096), ("trn3",)),
    Statement("an address in PSUM at a bank", MIGRATION, True, address("psum", 3 * 2048)),
    Statement("an address in PSUM inside a bank", MIGRATION, False, address("psum", 1024)),
    Statement("a multiple of 4 B inside a bank is an address inside a bank", f"{MIGRATION}; {KLR}", False,
              address("psum", 4)),
    Statement("the last bank of PSUM", MIGRATION, True, address("psum", 7 * 2048, 512)),
    Statement("beyond the last bank of PSUM", MIGRATION, False, address("psum", 8 * 2048)),
    Statement("an address in SBUF at any byte", "leanprover/KLR KLR/Trace.lean:49", True, address("sbuf", 1)),
    Statement("tiles with addresses side by side", "aws-neuron-sdk v2.26.1 nki/nki_direct_allocation_guide.rst:374-427",
              True, addresses("sbuf", 0, 2048)),
    Statement("tiles with addresses that overlap", "aws-neuron-sdk v2.26.1 nki/nki_direct_allocation_guide.rst:374-427",
              False, addresses("sbuf", 0, 2044)),
)  # fmt: skip
CASES = [
    pytest.param(statement, target, id=f"{target}: {statement.said}")
    for statement in STATEMENTS
    for target in statement.targets
]


def reasons(program: Program) -> list[str]:
    """Why a Program does not fit, in words."""
    found = [broken.message for broken in verify(program) if broken.number in CAPACITY]
    surveyed = survey(program, ROWS, hardware.target(program.header.target))
    facts = Facts(kernel="", workloads=(WorkloadFacts("", program=program, survey=surveyed),))
    codes = ("NKR100", "NKR101", "NKR102", "NKR103", "NKR104")
    return found + [made.message for rule in RULES if rule.code in codes for made in rule.findings(facts)]


@pytest.mark.parametrize(("statement", "target"), CASES)
def test_the_verdict_agrees_with_what_is_published(statement: Statement, target: str) -> None:
    kernel = Kernel(target)
    statement.made(kernel)
    found = reasons(kernel.program())
    assert (not found) == statement.fits, (statement.source, found)


@pytest.mark.parametrize(
    ("target", "mib", "source"),
    [
        ("trn1", 24, f"{ARCH}:76-78"),
        ("trn2", 28, "aws-neuron-sdk nki/guides/architecture/trainium2_arch.rst:39"),
        ("trn3", 32, "aws-neuron-sdk nki/guides/architecture/trainium3_arch.rst:36"),
    ],
)
def test_the_sizes_of_the_memories(target: str, mib: int, source: str) -> None:
    of = hardware.target(target)
    assert of.partitions * of.sbuf_bytes == mib * 2**20, source
    assert of.partitions * of.psum_bytes == 2 * 2**20
    assert of.psum_banks * of.psum_bank_bytes == of.psum_bytes
    # 16 KiB are the compiler's, and 8 bytes more from trn2 on
    assert of.sbuf_bytes - of.sbuf_usable_bytes == 16_384 + (0 if target == "trn1" else 8)


# --- NKIBench's matmul, M 4096, K 5120, N 12288 in fp32: 40 tiles of the right operand, transposed blocks of the left


def at_line(kernel: Kernel, line: int) -> View:
    """A tile of 4 KiB a partition, made at that line."""
    kernel.line = line - 1
    return kernel.sbuf(128, 1024)


def tiled(target: str) -> Kernel:
    """The tiling of NKIBench's matmul, for one block of columns and two of rows."""
    kernel = Kernel(target)
    identity = kernel.sbuf(128, 128)
    kernel.copy(identity, kernel.hbm(128, 128))
    right = [at_line(kernel, 10) for _ in range(40)]
    for tile in right:
        kernel.copy(tile, kernel.hbm(128, 1024))
    for _ in range(2):
        turned = []
        for _ in range(5):
            block = at_line(kernel, 20)
            kernel.copy(block, kernel.hbm(128, 1024))
            turned.append(at_line(kernel, 30))
            for at in range(0, 1024, 128):
                bank = kernel.psum(128, 128)
                kernel.matmul(bank, block[:, at : at + 128], identity, is_transpose=True)
                kernel.copy(turned[-1][:, at : at + 128], bank)
        result = at_line(kernel, 40)
        for half in (0, 512):
            bank = kernel.psum(128, 512)
            for number, tile in enumerate(right):
                part = turned[number // 8][:, number % 8 * 128 : number % 8 * 128 + 128]
                kernel.matmul(bank, part, tile[:, half : half + 512])
            kernel.copy(result[:, half : half + 512], bank)
        kernel.copy(kernel.hbm(128, 1024), result)
    return kernel


NEEDED = 512 + 40 * 4096 + 5 * 4096 + 4096
"""Identity, right operand, five transposed blocks, and the block that is being transposed."""


def in_sbuf(program: Program, target: str) -> Space:
    found = survey(program, ROWS, hardware.target(target)).space
    return next(space for space in found if space.memory is Memory.sbuf)


def test_nkibenchs_tiling_exceeds_what_is_usable_on_trn1_and_fits_on_trn2() -> None:
    """On trn1, where the kernel was measured, the right operand was loaded again for each block of rows: 9,060 MB of
    reads where the program asks for 1,258."""
    assert NEEDED == 188_928
    for target, fits in (("trn1", False), ("trn2", True)):
        space = in_sbuf(tiled(target).program(), target)
        assert space.packed == NEEDED
        assert (space.packed <= space.usable) == fits
        assert (space.change is None) == fits


def test_what_would_make_nkibenchs_tiling_fit() -> None:
    """8,704 B are too many: three of the 40 tiles of the right operand, or of the five transposed blocks."""
    assert in_sbuf(tiled("trn1").program(), "trn1").change in (
        Change("fewer", "kernel.py:10", "", 4096, 128, tiles=40, keep=37),
        Change("fewer", "kernel.py:30", "", 4096, 128, tiles=5, keep=2),
    )


CLONE = os.environ.get("ACCELOPT", "")


@pytest.mark.skipif(
    not CLONE,
    reason="traces NKIBench's own matmul, which is no part of this project: set ACCELOPT to a checkout of "
    "zhang677/AccelOpt; the same tiling, written here, is judged by the test above on every machine",
)
def test_nkibenchs_own_matmul(server: ForkServer) -> None:
    task, own = load(f"nkibench:{CLONE}#matmul")
    asked = from_task(task, own[0], target="trn1", nki=None, lnc=None)
    traced = trace(asked, asked.workloads[0], server)
    assert traced.program is not None, traced.failure
    space = in_sbuf(traced.program, "trn1")
    assert space.packed == NEEDED > space.usable
