"""Loops that run on the device: their body is traced once.

Source: aws-neuron-sdk nki/api/nki/language/__init__.py:2407-2543; nki/deep-dives/nki-dynamic-loops.rst.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from nkireview.isa.release import Release
from nkireview.isa.table import ROWS
from nkireview.nki.errors import Refusal
from nkireview.nki.recorders import recorder
from nkireview.nki.registers import (
    FROZEN_SINCE,
    LOOPS_SINCE,
    VirtualRegister,
    for_at,
    fresh,
    refuse_exits,
    refuse_ordered,
)
from nkireview.nki.trace import Bound, Trace, current

TRACKED_SINCE = Release(0, 4)  # release-notes/components/nki.rst:298
DYNAMIC_RANGE_SINCE = Release(0, 3)
_move = recorder(ROWS["register_move"])


def dynamic_range(start: Any, stop: Any = None, step: Any = 1) -> Iterator[VirtualRegister]:
    """``nl.dynamic_range``: one pass over the body of a loop that runs on the device.

    start, stop: integers or registers; step: a positive integer. Deprecated since NKI 0.6.
    """
    what = "nl.dynamic_range"
    trace = _since(what, DYNAMIC_RANGE_SINCE)
    first, last = (0, start) if stop is None else (start, stop)
    lower, upper = _bound(first, what, "start"), _bound(last, what, "stop")
    by = _step(step, what)
    if trace.release >= LOOPS_SINCE:
        trace.event("deprecated", f"{what} is deprecated since NKI {LOOPS_SINCE}: use nl.fori_loop")
    return _one_pass(trace, what, lower, upper, by)


def _one_pass(trace: Trace, what: str, lower: Bound, upper: Bound, step: int) -> Iterator[VirtualRegister]:
    refuse_ordered(trace, what)
    statement = for_at(sys._getframe(1))
    if statement is not None:
        refuse_exits(statement, what)
    _note_nested(trace, what)
    if trace.release < TRACKED_SINCE:
        trace.event(
            "note",
            f"{what}: dependencies across the boundary of the loop are tracked since NKI {TRACKED_SINCE}; until then "
            "what is used both inside and outside of it may race",
        )
    register = fresh(trace, frozen=True, plain=trace.release < FROZEN_SINCE)
    opened = trace.open_loop("for", what, register.number, lower, upper, step)
    yield register
    trace.close_loop(opened)


def _note_nested(trace: Trace, what: str) -> None:
    """Rule 104, a known issue of NKI 0.4 to 0.6."""
    if trace.release >= FROZEN_SINCE and trace.loop is not None and trace.loop.what == what:
        trace.event(
            "note",
            f"nested {what}: with values carried between iterations it fails to compile in NKI 0.4 to 0.6",
        )


def fori_loop(lower: Any, upper: Any, body_fun: Any, step: Any = 1) -> None:
    """``nl.fori_loop``: `body_fun(i)` for i from lower to upper by step, on the device.

    lower, upper: integers or registers; step: a positive integer; the body returns None.
    """
    what = "nl.fori_loop"
    trace = _since(what, LOOPS_SINCE)
    begin, end = _bound(lower, what, "lower"), _bound(upper, what, "upper")
    by = _step(step, what)
    body = _body(body_fun, what)
    refuse_ordered(trace, what)
    register = fresh(trace, frozen=True)
    opened = trace.open_loop("for", what, register.number, begin, end, by, local=True)
    result = body(register)
    if result is not None:
        raise Refusal(
            f"{what}: the body returned a {type(result).__name__}, it must return None; carry state in SBUF or HBM"
        )
    trace.close_loop(opened)


def while_loop(init: Any, body_fun: Any) -> None:
    """``nl.while_loop``: `body_fun(r)` on the device while the register is not 0; the body returns the next one."""
    what = "nl.while_loop"
    trace = _since(what, LOOPS_SINCE)
    if type(init) is not VirtualRegister:
        raise Refusal(
            f"{what}: init must be a register made by nisa.register_alloc, got {type(init).__name__}"
        )
    body = _body(body_fun, what)
    refuse_ordered(trace, what)
    # passed by value: what the body does to it must not show in `init`
    condition = fresh(trace)
    _move(condition, init)
    opened = trace.open_loop("while", what, condition.number, local=True)
    result = body(condition)
    if type(result) is not VirtualRegister:
        raise Refusal(
            f"{what}: the body returned a {type(result).__name__}, it must return the register of the next condition"
        )
    if result is not condition:
        _move(condition, result)
    trace.close_loop(opened)


def _since(what: str, release: Release) -> Trace:
    trace = current(what)
    if trace.release < release:
        raise Refusal(f"{what} exists since NKI {release}, this kernel is judged by {trace.release}")
    return trace


def _body(function: Any, what: str) -> Callable[..., Any]:
    if not callable(function):
        raise Refusal(f"{what}: the body must be a function, got {type(function).__name__}")
    return function  # type: ignore[no-any-return]


def _bound(value: Any, what: str, name: str) -> Bound:
    if type(value) is VirtualRegister:
        return value.immediate
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return int(value)
    raise Refusal(
        f"{what}: {name} must be an integer or a register, got {type(value).__name__}; a value in memory is loaded "
        "with nisa.register_load"
    )


def _step(value: Any, what: str) -> int:
    if isinstance(value, int | np.integer) and not isinstance(value, bool) and value > 0:
        return int(value)
    found = "a register" if type(value) is VirtualRegister else repr(value)
    raise Refusal(f"{what}: step must be a positive integer known while tracing, got {found}")


LOOPS: dict[str, Callable[..., Any]] = {
    "dynamic_range": dynamic_range,
    "fori_loop": fori_loop,
    "while_loop": while_loop,
}
"""The loops of `nki.language`, by name."""
