"""A plugin of pytest: which limits of the instruction table the tests trip, and which they stay just inside."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from nkireview.isa import limit as limits
from nkireview.isa.limit import AtLeast, AtMost, Breach, Call, Check, Limit
from nkireview.isa.row import Row
from nkireview.isa.table import ROWS

TRIPPED, HELD = 1, 2
WANTED = {TRIPPED: "is never tripped", HELD: "is never kept just inside"}
KEY = "limits_seen"


def every_limit(rows: Iterable[Row]) -> dict[int, tuple[str, Row]]:
    """A name for each limit, and the first row that has it, by the identity of its record; rows may share one."""
    named: dict[int, tuple[str, Row]] = {}
    for row in rows:
        for at, limit in enumerate(row.limits):
            named.setdefault(id(limit), (f"{row.name}[{at}] {limit.number} {_subject(limit)}", row))
    return named


def _subject(limit: Limit) -> str:
    return str(getattr(limit, "subject", "") or getattr(limit, "operand", "") or getattr(limit, "left", ""))


def _just_inside(limit: Limit, row: Row, call: Call) -> bool:
    """True where a limit that is not broken had its operands to judge, and at a bound the last value that it allows.

    The elements of a list need not be there for a check, which is one of several or of their number.
    """
    if isinstance(limit, Check):
        operand = limit.subject.partition(".")[0]
        named = any(each.name == operand for each in row.operands)
        listed = any(operand in elements for elements in row.lists.values())
        return not named or listed or call.has(operand) or call.imm(operand) is not None
    names = (getattr(limit, field, "") for field in ("subject", "operand", "left", "right"))
    if not all(call.has(name.partition(".")[0]) for name in names if name):
        return False
    if isinstance(limit, AtMost | AtLeast):
        operand, _, measure = limit.subject.rpartition(".")
        return call.measure(operand, measure) == limits._bound(limit.bound, call)
    return True


class LimitsSeen:
    """Watches `Limit.breach` of every kind of limit in the rows."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._named = every_limit(rows)
        self.seen: dict[str, int] = {}
        for kind in vars(limits).values():
            if isinstance(kind, type) and issubclass(kind, Limit) and "breach" in vars(kind):
                kind.breach = self._watched(kind.breach)  # type: ignore[method-assign]

    def _watched(self, breach: Callable[[Any, Call], Breach | None]) -> Any:
        named, seen = self._named, self.seen

        def watched(limit: Limit, call: Call) -> Breach | None:
            found = breach(limit, call)
            if id(limit) in named and limit.applies(call):
                name, row = named[id(limit)]
                flag = TRIPPED if found else HELD if _just_inside(limit, row, call) else 0
                seen[name] = seen.get(name, 0) | flag
            return found

        return watched

    def unproved(self) -> list[str]:
        """The limits that no test trips, or none stays inside."""
        return [
            f"limit {name} {text}"
            for name, _ in self._named.values()
            for flag, text in WANTED.items()
            if not self.seen.get(name, 0) & flag
        ]


class Gathering:
    """Joins what the workers of a run saw, and fails a whole run that leaves a limit unproved."""

    def __init__(self, watch: LimitsSeen) -> None:
        self._watch = watch

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: Any) -> None:
        """Take over what a worker saw."""
        for name, flags in node.workeroutput.get(KEY, {}).items():
            self._watch.seen[name] = self._watch.seen.get(name, 0) | flags

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Hand over to the controller, or judge."""
        config = session.config
        if hasattr(config, "workeroutput"):
            config.workeroutput[KEY] = self._watch.seen
            return
        if exitstatus == pytest.ExitCode.OK and _whole(config) and self._watch.unproved():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any, config: pytest.Config) -> None:
        """Name what is unproved."""
        if not _whole(config):
            return
        for line in self._watch.unproved():
            terminalreporter.write_line(line, red=True)


def _whole(config: pytest.Config) -> bool:
    """True where all tests were asked for."""
    options = config.option
    narrowed = any(
        getattr(options, name, None) for name in ("keyword", "markexpr", "collectonly", "lf", "maxfail")
    )
    return not narrowed and config.args == config.getini("testpaths")


def registered() -> Gathering:
    """The plugin over the whole table."""
    return Gathering(LimitsSeen(ROWS.values()))
