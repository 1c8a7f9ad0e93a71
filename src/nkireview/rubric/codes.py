"""Which rules a line of a rubric means: a code, a range of codes, or every rule."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

EVERY = "*"
_CODE = re.compile(r"NKR(\d{3})")
_RANGE = re.compile(r"NKR(\d{3})-NKR(\d{3})")


def matches(patterns: Iterable[str], code: str) -> bool:
    """Whether one of the patterns names the code; `EVERY` names them all."""
    return any(pattern == EVERY or claims(pattern, code) for pattern in patterns)


def claims(pattern: str, code: str) -> bool:
    """Whether the pattern is the code or a range that holds it."""
    bounds = _RANGE.fullmatch(pattern)
    if bounds is None:
        return pattern == code
    return int(bounds[1]) <= int(code.removeprefix("NKR")) <= int(bounds[2])


def problem(pattern: str) -> str:
    """What is wrong with a pattern; empty where it is one."""
    bounds = _RANGE.fullmatch(pattern)
    if bounds is not None and int(bounds[1]) > int(bounds[2]):
        return f"got {pattern!r}; expected the lower code first"
    if bounds is None and _CODE.fullmatch(pattern) is None and pattern != EVERY:
        return f"got {pattern!r}; expected a code 'NKR140', a range 'NKR140-NKR149', or '*'"
    return ""


def unknown(pattern: str, known: Collection[str]) -> str:
    """The sentence for a single code that no rule has; empty for a range, `EVERY` and a known code."""
    if _CODE.fullmatch(pattern) is None or pattern in known:
        return ""
    return f"there is no rule {pattern}; expected one that `nkireview rules` lists"
