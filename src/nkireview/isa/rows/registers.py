"""Rows of the registers of the sequencers.

A register holds 32 bits, read as a signed integer. A tensor's element moves bit for bit: integers of fewer bits are
extended by their sign, or by zeros, when they are loaded and cut when they are stored; floats keep their bits.
"""

from __future__ import annotations

import numpy as np

from nkireview.isa.enums import Engine
from nkireview.isa.limit import Call, Check, Exactly, Limit
from nkireview.isa.row import Cost, Engines, Flow, Operand, Param, Reader, Result, Role, Row
from nkireview.isa.rows.arrays import bit_pattern, stored_bits
from nkireview.isa.rows.common import BEFORE_03, HBM, SBUF, SINCE_03, STUB

GUIDE = "nki/get-started/nki-language-guide.rst:526-547"
SEQUENCER = Engines(Engine.sync, {})
_NO_COST = Cost(subject="", per_element=0.0, formula="none published", source=f"{STUB}:3049-3068")


def wrapped(number: int) -> int:
    """The signed 32-bit integer with the low 32 bits of a number."""
    return (int(number) + 2**31) % 2**32 - 2**31


def _filled(name: str) -> Limit:
    """The constant put into a register is an integer of 32 bits."""

    def find(call: Call) -> str | None:
        value = call.imm(name)
        if value is None or (isinstance(value, tuple) and value[:1] == ("register",)):
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            return f"{name} is {value!r}, a register takes an integer or another register"
        if not -(2**31) <= value < 2**32:
            return f"{name} {value} does not fit into the 32 bits of a register"
        return None

    return Check(number=0, source=GUIDE, subject=f"{name}.value", find=find)


def _one_element(operand: str, source: str) -> tuple[Limit, ...]:
    # no dtype of NKI has more than the 32 bits of a register
    return (
        Exactly(
            number=0,
            source=source,
            subject=f"{operand}.elements",
            bound=1,
            hint="a register holds one element; pass a tensor of shape (1, 1) or (1,)",
        ),
    )


def _alloc(reader: Reader) -> dict[str, Result]:
    value = reader.imm("x")
    return {} if value is None else {"dst": np.asarray(wrapped(value))}


def _move(reader: Reader) -> dict[str, Result]:
    moved = reader.imm("src")
    return {"dst": np.asarray(wrapped(reader.imm("imm") if moved is None else moved))}


def _load(reader: Reader) -> dict[str, Result]:
    return {"dst": np.asarray(wrapped(bit_pattern(reader.raw("src").reshape(-1)[:1])[0]))}


def _store(reader: Reader) -> dict[str, Result]:
    pattern = np.full(reader.shape("dst"), wrapped(reader.imm("src")), np.int32)
    return {"dst": stored_bits(pattern, reader.dtype("dst"))}


register_alloc = Row(
    name="register_alloc",
    signature=(Param("x", None), Param("dst", None)),
    operands=(),
    engines=SEQUENCER,
    meaning=_alloc,
    flow={},
    cost=_NO_COST,
    source=f"{STUB}:3049-3089",
    limits=(_filled("x"),),
    registers=("dst",),
)

register_move = Row(
    name="register_move",
    signature=(
        Param("dst"),
        Param("src", span=SINCE_03, register=True),
        Param("imm", span=BEFORE_03, register=True),
    ),
    operands=(),
    engines=SEQUENCER,
    meaning=_move,
    flow={},
    cost=_NO_COST,
    source=f"{STUB}:3091-3117",
    limits=(_filled("src"), _filled("imm")),
    registers=("dst",),
)

register_load = Row(
    name="register_load",
    signature=(Param("dst"), Param("src")),
    operands=(Operand("src", Role.read, SBUF | HBM),),
    engines=SEQUENCER,
    meaning=_load,
    flow={},
    cost=_NO_COST,
    source=f"{STUB}:3119-3142",
    limits=_one_element("src", f"{STUB}:3122-3124"),
    registers=("dst",),
)

register_store = Row(
    name="register_store",
    signature=(Param("dst"), Param("src", register=True)),
    operands=(Operand("dst", Role.write, SBUF | HBM),),
    engines=SEQUENCER,
    meaning=_store,
    flow={"dst": Flow.nothing},
    cost=_NO_COST,
    source=f"{STUB}:3144-3167",
    limits=_one_element("dst", f"{STUB}:3147-3149"),
)

ROWS: tuple[Row, ...] = (register_alloc, register_move, register_load, register_store)
