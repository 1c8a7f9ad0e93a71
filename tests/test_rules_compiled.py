"""Rules on legacy programs whose compiler merges loads: what it leaves out already is no gain."""

from __future__ import annotations

import numpy as np
import pytest
from execute_kit import Kernel

from nkireview import hardware
from nkireview.checks.survey import survey
from nkireview.isa.table import ROWS
from nkireview.rules.case import case_of
from nkireview.rules.facts import Facts, WorkloadFacts
from nkireview.rules.registry import judge
from nkireview.schedule.timing import Timing

LOADS = 16
SIZE = 128 * 1024 * 4


def adding_up(nki: str) -> WorkloadFacts:
    """A sum of LOADS tiles, all loaded from one place, stored once; a tile is 512 KiB."""
    kernel = Kernel(nki=nki)
    x = kernel.argument(np.zeros((128, 1024), np.float32))
    total = kernel.sbuf(128, 1024)
    kernel.call("memset", dst=total, value=0.0)
    for _ in range(LOADS):
        tile = kernel.sbuf(128, 1024)
        kernel.copy(tile, x)
        kernel.call("tensor_tensor", dst=total, data1=total, data2=tile, op="add")
    kernel.store(total)
    program = kernel.program()
    found = survey(program, ROWS, hardware.target("trn2"))
    return WorkloadFacts("w", program=program, survey=found, timing=Timing(program))


@pytest.mark.parametrize(("nki", "loads"), [("0.6", LOADS), ("0.1", 1)])
def test_what_moves_is_what_runs(nki: str, loads: int) -> None:
    case = case_of(adding_up(nki))
    assert case is not None
    assert case.survey.locality.moved == (LOADS + 1) * SIZE
    assert case.moved_bytes == (loads + 1) * SIZE
    assert case.ran.times[case.runs("dma_copy")].sum() == loads + 1
    assert (case.ran.spilled, case.ran.restored) == (0, 0)


@pytest.mark.parametrize(("nki", "codes"), [("0.6", {"NKR105", "NKR126"}), ("0.1", set())])
def test_loads_that_the_compiler_merges_are_no_gain(nki: str, codes: set[str]) -> None:
    found = judge(Facts("kernel", (adding_up(nki),), target="trn2"))
    assert {finding.code for finding in found} & {"NKR105", "NKR126"} == codes
