"""execute: a Program on data; execute_ranks: on the data of each rank of a group."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

from nkireview.execute.formats import Formats
from nkireview.execute.machine import Machine
from nkireview.execute.meetings import run_together
from nkireview.execute.poison import Poison
from nkireview.execute.result import Execution
from nkireview.execute.step import Around
from nkireview.isa import dtypes
from nkireview.isa.dtypes import COMPUTE_DTYPES, FLOAT64
from nkireview.isa.row import Row
from nkireview.isa.table import ROWS
from nkireview.program.program import Program

Rounding = Literal["storage", "off"]

LIMIT = 10_000_000
"""Instructions that a rank may execute, if it has loops: some minutes."""


def execute(
    program: Program,
    arguments: Mapping[int, NDArray[Any]],
    *,
    compute: npt.DTypeLike = np.float32,
    poison: Poison = Poison.nan,
    seed: int = 0,
    rounding: Rounding = "storage",
    rows: Mapping[str, Row] = ROWS,
    limit: int = LIMIT,
    turns: bool = False,
    first: int = 0,
    trusting: bool = False,
    unrounded: Collection[int] = (),
    around: Around | None = None,
) -> Execution:
    """Run every instruction of a Program, stream after stream, in program order; cores wait where they meet.

    arguments: an array in storage dtype for each parameter buffer, never changed. compute: what meanings compute
    in, float32 or float64. poison: what unwritten memory holds. seed: the engine state ``seed`` that random
    instructions draw from. rounding: ``storage`` rounds each result to its buffer's dtype; ``off``, which needs
    float64, keeps all floats unrounded. rows: the instruction table. limit: executed instructions after which loops
    end. turns: cores execute an instruction each in turn, as side by side; else each goes on until it meets the others,
    which shows barriers that are missing. first: the core that begins, the others follow in turn. trusting: an
    undefined index is noted, and taken as its tile holds it. unrounded: buffers of floats on chip that keep the compute
    dtype whatever `rounding` says, where no access reads them as another dtype and no address is given. around: runs
    each instruction, but for those where cores or ranks meet, and may look at or change what it reads and writes.

    An instruction without a meaning (unknown row, out of bounds, sizes that differ, an undefined index or register,
    peers that never come) is a fault: it is skipped and what it would have written is undefined. Raise ValueError for
    arguments that do not fit the parameters, or a core that does not run.
    """
    found = execute_ranks(
        program,
        [arguments],
        compute=compute,
        poison=poison,
        seed=seed,
        rounding=rounding,
        rows=rows,
        limit=limit,
        turns=turns,
        first=first,
        trusting=trusting,
        unrounded=unrounded,
        around=around,
    )
    return found[0]


def execute_ranks(
    program: Program,
    arguments_per_rank: Sequence[Mapping[int, NDArray[Any]]],
    *,
    compute: npt.DTypeLike = np.float32,
    poison: Poison = Poison.nan,
    seed: int = 0,
    rounding: Rounding = "storage",
    rows: Mapping[str, Row] = ROWS,
    limit: int = LIMIT,
    turns: bool = False,
    first: int = 0,
    trusting: bool = False,
    unrounded: Collection[int] = (),
    around: Around | None = None,
) -> tuple[Execution, ...]:
    """Run a Program on every rank of a group, each with its own memory and arguments; see `execute`.

    Ranks wait where they meet. Meanings see the number of their rank as ``state["rank"]``, how many there are as
    ``state["ranks"]``.
    """
    formats = Formats(np.dtype(compute), rounding == "storage")
    if formats.compute not in COMPUTE_DTYPES:
        raise ValueError(f"compute is {formats.compute}, expected float32 or float64")
    if not formats.rounds and formats.compute != FLOAT64:
        raise ValueError("rounding is off, which needs compute=float64")
    if limit < 1:
        raise ValueError(f"limit is {limit}, expected at least 1 instruction")
    cores = 1 + max((stream.core for stream in program.streams), default=0)
    if not 0 <= first < cores:
        raise ValueError(f"first is {first}, expected a core of the launch, 0 to {cores - 1}")
    ranks = len(arguments_per_rank)
    if not ranks:
        raise ValueError("arguments_per_rank is empty, expected the arguments of at least one rank")
    for rank, arguments in enumerate(arguments_per_rank):
        _check(program, arguments, formats, f"rank {rank}: " if ranks > 1 else "")
    machines = [
        Machine(
            program,
            arguments,
            formats,
            poison,
            seed,
            rows,
            limit,
            turns,
            first,
            trusting,
            rank,
            ranks,
            unrounded,
            around,
        )
        for rank, arguments in enumerate(arguments_per_rank)
    ]
    with _blas().limit(limits=1, user_api="blas"), np.errstate(all="ignore"):
        run_together([task for machine in machines for task in machine.tasks()], ranks, machines[0].cores)
    return tuple(machine.result() for machine in machines)


def _check(program: Program, arguments: Mapping[int, NDArray[Any]], formats: Formats, who: str) -> None:
    for path, number in program.parameter_buffers:
        if number not in arguments:
            raise ValueError(f"{who}parameter {path} (buffer {number}) has no argument")
        buffer, given = program.buffer(number), arguments[number]
        kind = dtypes.of(buffer.dtype)
        if given.shape != buffer.shape or given.dtype not in (kind.storage, formats.dtype(kind)):
            raise ValueError(
                f"{who}parameter {path} takes an array of {kind.storage} {list(buffer.shape)}, "
                f"got {given.dtype} {list(given.shape)}"
            )


@functools.cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()
