"""Values while a kernel is traced: what is recorded so far is executed when a tensor is shown."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.execute import execute
from nkireview.hosted.arguments import Arguments
from nkireview.isa.enums import Memory
from nkireview.nki.registers import VirtualRegister
from nkireview.nki.tensor import NkiTensor
from nkireview.nki.trace import Trace
from nkireview.program.builder import ProgramBuilder
from nkireview.program.model import Header, Loop, Output
from nkireview.program.program import Program


@contextmanager
def showing(state: Trace, taken: Arguments, wanted: bool) -> Iterator[None]:
    """Let tensors and registers of this trace show their values, where that is wanted."""
    if wanted:
        state.shown = lambda value: str(value_now(state, taken, value))
    try:
        yield
    finally:
        state.shown = None


def value_now(state: Trace, taken: Arguments, value: NkiTensor | VirtualRegister) -> NDArray[Any] | int:
    """What a tensor, in storage dtype, or a register holds after the instructions recorded so far.

    Elements that are not written are NaN or 0. Each device-side loop that is still being recorded makes one pass.
    """
    builder = state.builder
    if isinstance(value, VirtualRegister):
        builder, access = _with_register(state, value)
    else:
        access = value.access()
    program = _so_far(state, builder, taken, access)
    found = execute(program, {at: array.values for at, array in enumerate(taken.arrays)}).outputs[0].values
    return int(found.item()) if isinstance(value, VirtualRegister) else np.array(found)


def _with_register(state: Trace, register: VirtualRegister) -> tuple[ProgramBuilder, int]:
    """A copy of the builder that stores the register last, and the access of what is stored."""
    builder = copy.deepcopy(state.builder)
    buffer = builder.buffer(memory=Memory.hbm, shape=(1, 1), dtype="int32", core=state.core, name="register")
    access = builder.affine(buffer.id, "int32", 0, (1, 1), (1, 1), None)
    builder.append("register_store", ("dst",), (access,), {"src": register.immediate})
    return builder, access


def _so_far(state: Trace, builder: ProgramBuilder, taken: Arguments, access: int) -> Program:
    loops: dict[int, Loop] = {}
    opened = state.loop
    while opened is not None:
        loops[opened.number] = _one_pass(opened.loop, len(builder), state.registers)
        opened = opened.parent
    header = Header(
        kernel="debug",
        target=state.hardware.name,
        release=str(state.release),
        lnc=state.lnc,
        grid=state.grid,
        sources=tuple(state.places.sources),
    )
    return builder.so_far(state.core, loops).finish(header, taken.tree, (Output(access, None, "value"),))


def _one_pass(loop: Loop, stop: int, unused: int) -> Loop:
    """The loop, up to here, run once; one that begins at a register's value runs as often as it will."""
    if loop.kind == "while":
        return replace(loop, kind="for", stop=stop, register=unused, lower=0, upper=1)
    if isinstance(loop.lower, int):
        return replace(loop, stop=stop, upper=loop.lower + 1)
    return replace(loop, stop=stop)
