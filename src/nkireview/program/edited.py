"""Edited: a Program with other immediates in some of its instructions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from nkireview.program.errors import ProgramError
from nkireview.program.program import Program


def edited(program: Program, immediates: Mapping[int, Mapping[str, Any]]) -> Program:
    """The Program whose instruction i has the immediates ``immediates[i]`` instead of its own; all else stays.

    Raise ProgramError for an instruction that is not there.
    """
    column = program.columns.immediates.copy()
    table = list(program.immediates)
    known: dict[int, int] = {}
    for index, given in immediates.items():
        if not 0 <= index < len(program):
            raise ProgramError(f"instruction {index} of {len(program)} cannot be edited")
        at = known.get(id(given))
        if at is None:
            at = known[id(given)] = len(table)
            table.append(given)
        column[index] = at
    return replace(program, immediates=tuple(table), columns=replace(program.columns, immediates=column))
