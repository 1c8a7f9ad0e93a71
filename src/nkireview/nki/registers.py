"""VirtualRegister: a number that is known on the device only, and ``while register:``.

Source: aws-neuron-sdk nki/api/nki/isa/__init__.py, "VirtualRegister"; nki/deep-dives/nki-dynamic-loops.rst.
"""

from __future__ import annotations

import ast
import functools
import itertools
import linecache
import sys
from types import CodeType, FrameType
from typing import Any, NoReturn, TypeVar

from nkireview.isa.release import Release
from nkireview.nki.errors import Refusal
from nkireview.nki.trace import Trace, current

REGISTERS_SINCE = Release(0, 2)
LOOPS_SINCE = Release(
    0, 6
)  # fori_loop and while_loop; from there on dynamic_range and ``while reg`` are deprecated
FROZEN_SINCE = Release(0, 4)  # release notes 0.4: until then a write to an induction variable had no effect


class VirtualRegister:
    """A 32-bit register of the device, numbered within its stream; `frozen` where a loop counts in it.

    `plain`: the induction variable of a loop in NKI 0.3, a scalar that cannot address a tensor.
    """

    __slots__ = ("_trace", "frozen", "number", "plain")

    _trace: Trace
    number: int
    frozen: bool
    plain: bool

    def __init__(self, state: Any = None, frozen: bool = False) -> None:
        raise Refusal("a register is made by nisa.register_alloc(), not by nisa.VirtualRegister()")

    @property
    def immediate(self) -> tuple[str, int]:
        """How an instruction records the register."""
        return ("register", self.number)

    def __bool__(self) -> bool:
        return _truth(self, sys._getframe(1))

    def __int__(self) -> NoReturn:
        self._no_value("int()")

    def __float__(self) -> NoReturn:
        self._no_value("float()")

    def __index__(self) -> NoReturn:
        self._no_value("range() or an index")

    def __iter__(self) -> NoReturn:
        self._no_value("iteration")

    def __len__(self) -> NoReturn:
        self._no_value("len()")

    def __eq__(self, other: object) -> bool:
        if other is not None:
            self._no_value("a comparison")
        return False

    def __ne__(self, other: object) -> bool:
        if other is not None:
            self._no_value("a comparison")
        return True

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        text = f"VirtualRegister({self.number}{', frozen' if self.frozen else ''})"
        return text if self._trace.shown is None else f"{text} {self._trace.shown(self)}"

    def _comparison(self, other: Any) -> NoReturn:
        self._no_value("a comparison")

    __lt__ = __le__ = __gt__ = __ge__ = _comparison

    def _no_value(self, wanted: str) -> NoReturn:
        raise Refusal(
            f"a register has no value while the kernel is traced, {wanted} of it cannot be taken; use "
            f"{self._loops()}, or keep the decision on the device"
        )

    def _loops(self) -> str:
        if self._trace.release >= LOOPS_SINCE:
            return "nl.fori_loop for a counted loop and nl.while_loop for one that depends on data"
        return "nl.dynamic_range for a counted loop and `while register:` for one that depends on data"

    def _operator(symbol: str) -> Any:  # type: ignore[misc]  # noqa: N805
        def refuse(self: VirtualRegister, *_: Any) -> NoReturn:
            raise Refusal(
                f"registers have no operator {symbol}; compute on a (1, 1) tile, as with nisa.tensor_scalar, and "
                "nisa.register_load the result"
            )

        return refuse

    __add__ = __radd__ = __iadd__ = _operator("+")
    __sub__ = __rsub__ = __isub__ = _operator("-")
    __mul__ = __rmul__ = __imul__ = _operator("*")
    __floordiv__ = __rfloordiv__ = __ifloordiv__ = _operator("//")
    __truediv__ = __rtruediv__ = __itruediv__ = _operator("/")
    __mod__ = __rmod__ = __imod__ = _operator("%")
    __lshift__ = __rlshift__ = _operator("<<")
    __rshift__ = __rrshift__ = _operator(">>")
    __and__ = __rand__ = _operator("&")
    __or__ = __ror__ = _operator("|")
    __neg__ = _operator("- (negation)")
    del _operator


def fresh(trace: Trace, *, frozen: bool = False, plain: bool = False) -> VirtualRegister:
    """The next register of the open stream; nothing has been written to it."""
    made = object.__new__(VirtualRegister)
    made._trace = trace
    made.number = trace.registers
    made.frozen = frozen
    made.plain = plain
    trace.registers += 1
    return made


def writable(register: Any, what: str) -> VirtualRegister:
    """The register that an instruction may write to; Refusal where it is none, or a loop counts in it."""
    if type(register) is not VirtualRegister:
        raise Refusal(f"{what} must be a register made by nisa.register_alloc, got {type(register).__name__}")
    if register.frozen and register._trace.release >= FROZEN_SINCE:
        raise Refusal(
            f"{what} is the induction variable of a device-side loop, which cannot be written; move it to a register "
            "of its own with nisa.register_move"
        )
    return register


def _truth(register: VirtualRegister, frame: FrameType) -> bool:
    """Open a loop where a ``while`` asks for the truth of a register, and close it where it asks again."""
    loop = _while_at(frame)
    if loop is None:
        register._no_value("the truth (`if`, `and`, `or`, `not`)")
    trace = current("while register")
    key = (frame, loop)
    opened = trace.loop
    while opened is not None and opened.key != key:
        opened = opened.parent
    if opened is not None:
        trace.close_loop(opened)
        if opened.loop.register != register.number:
            raise Refusal(
                "the condition of `while` turns from one register into another; write to the first one with "
                "nisa.register_load or nisa.register_move"
            )
        return False
    what = "`while register:`"
    refuse_ordered(trace, what)
    if trace.release >= LOOPS_SINCE:
        trace.event("deprecated", f"{what} is deprecated since NKI {LOOPS_SINCE}: use nl.while_loop")
    refuse_exits(loop, what)
    trace.open_loop("while", what, register.number, key=key)
    return True


def refuse_ordered(trace: Trace, what: str) -> None:
    """Refuse a device-side loop inside ``nl.no_reorder`` (rule 101)."""
    if trace.ordered:
        raise Refusal(
            f"{what} is not possible inside nl.no_reorder; put the nl.no_reorder block into the body of the loop"
        )


def refuse_exits(loop: ast.While | ast.For, what: str) -> None:
    """Refuse a loop whose body holds a break or a return."""
    found = _exit(loop.body)
    if found is not None:
        raise Refusal(
            f"{what} cannot be left by {found}: it runs on the device, where it ends when its bound is reached or "
            "its register is 0"
        )


def _exit(body: list[ast.stmt], inner: bool = False) -> str | None:
    """``break`` or ``return``, where one leaves a loop with this body."""
    for statement in body:
        if isinstance(statement, ast.Return):
            return "return"
        if isinstance(statement, ast.Break) and not inner:
            return "break"
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        loops = isinstance(statement, ast.For | ast.While)
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            part = getattr(statement, name, None)
            if not part:
                continue
            blocks = [each.body for each in part] if name in ("handlers", "cases") else [part]
            for block in blocks:
                found = _exit(block, inner or (loops and name == "body"))
                if found:
                    return found
    return None


@functools.cache
def _loops_of(path: str) -> tuple[ast.While | ast.For, ...]:
    """The loops of a source file; none where it cannot be read."""
    try:
        tree = ast.parse("".join(linecache.getlines(path)))
    except (SyntaxError, ValueError):
        return ()
    return tuple(node for node in ast.walk(tree) if isinstance(node, ast.While | ast.For))


def _while_at(frame: FrameType) -> ast.While | None:
    """The ``while`` statement whose test, a plain expression, the frame is at; None where it is at none."""
    plain = (ast.Name, ast.Attribute, ast.Subscript, ast.Call)
    loops = [node for node in _loops_of(frame.f_code.co_filename) if isinstance(node, ast.While)]
    return _at(frame, [(node, node.test) for node in loops if isinstance(node.test, plain)])


def for_at(frame: FrameType) -> ast.For | None:
    """The ``for`` statement that the frame takes the next item of; None where it takes none."""
    loops = [node for node in _loops_of(frame.f_code.co_filename) if isinstance(node, ast.For)]
    return _at(frame, [(node, node.iter) for node in loops])


_Loop = TypeVar("_Loop", ast.While, ast.For)


def _at(frame: FrameType, found: list[tuple[_Loop, ast.expr]]) -> _Loop | None:
    """The loop whose test or iterable the frame evaluates.

    Python gives such an instruction the position of the expression or of the statement; before 3.11 it gives the line
    alone.
    """
    span = _span(frame.f_code, frame.f_lasti)
    if span is None:
        held = [loop for loop, part in found if part.lineno <= frame.f_lineno <= (part.end_lineno or 0)]
        return held[0] if len(held) == 1 else None
    for loop, part in found:
        if span in (_place(loop), _place(part)):
            return loop
    return None


def _place(node: ast.stmt | ast.expr) -> tuple[int | None, ...]:
    return node.lineno, node.end_lineno, node.col_offset, node.end_col_offset


def _span(code: CodeType, last: int) -> tuple[int | None, ...] | None:
    positions = getattr(code, "co_positions", None)
    if positions is None:
        return None
    line, end, column, end_column = next(itertools.islice(positions(), last // 2, None))
    return None if column is None else (line, end, column, end_column)
