"""The examples of the rules: kernels in files named after the codes, read as text and never imported here.

``NKRnnn.py`` holds both kernels, `bad` and `good`; where what is wrong stands at the top of the file there are two,
``NKRnnn_bad.py`` and ``NKRnnn_good.py``. `inputs` and `reference` serve both unless `inputs_good` or `reference_good`
is there. Constants say what the example is reviewed for: TARGET, NKI, LNC, HOSTILE (what the contract allows), WALL_S
(seconds of each child) and REFERENCE (the file of the folder with reference and inputs, if it is another).
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from nkireview.isa.enums import GENERATIONS
from nkireview.rules.registry import RULES
from nkireview.rules.rule import Rule

KINDS = ("bad", "good")


@dataclass(frozen=True)
class Example:
    """One kernel of a rule's example, and what it is reviewed for; None where the default serves."""

    code: str
    kind: str
    path: Path
    inputs: str
    reference: str
    held_in: Path
    target: str | None = None
    nki: str | None = None
    lnc: int | None = None
    hostile: frozenset[str] = frozenset()
    wall_s: float | None = None

    def source(self, kinds: Collection[str]) -> str:
        """The text that shows the kernels of some kinds: the file without the others, the inputs and the reference."""
        text = self.path.read_text(encoding="utf-8")
        left_out = {kind for kind in KINDS if kind not in kinds}
        left_out |= {f"{name}{tail}" for name in ("inputs", "reference") for tail in ("", "_good")}
        lines = text.splitlines()
        for node in reversed(ast.parse(text).body):
            if isinstance(node, ast.FunctionDef) and node.name in left_out:
                first = min([node.lineno, *(item.lineno for item in node.decorator_list)])
                del lines[first - 1 : node.end_lineno]
        return "\n".join(_single_gaps(lines)) + "\n"


def folder() -> Path:
    """Where the examples lie."""
    return Path(str(resources.files("nkireview.rules").joinpath("examples")))


@cache
def example(code: str, kind: str) -> Example | None:
    """The bad or good example of a rule; None where there is none. Raise ValueError for another kind."""
    if kind not in KINDS:
        raise ValueError(f"{kind!r} is no kind of example: expected one of {', '.join(KINDS)}")
    for name in (f"{code}_{kind}.py", f"{code}.py"):
        path = folder() / name
        if path.is_file():
            return _read(code, kind, path)
    return None


def _read(code: str, kind: str, path: Path) -> Example:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    constants: dict[str, Any] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            if isinstance(node.value, ast.Constant | ast.Tuple) and node.targets[0].id.isupper():
                constants[node.targets[0].id] = ast.literal_eval(node.value)
    held_in = path.with_name(constants["REFERENCE"]) if "REFERENCE" in constants else path
    named = {
        node.name
        for node in ast.parse(held_in.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef)
    }

    def of(name: str) -> str:
        return f"{name}_good" if kind == "good" and f"{name}_good" in named else name

    return Example(
        code=code,
        kind=kind,
        path=path,
        inputs=of("inputs"),
        reference=of("reference"),
        held_in=held_in,
        target=constants.get("TARGET"),
        nki=constants.get("NKI"),
        lnc=constants.get("LNC"),
        hostile=frozenset(constants.get("HOSTILE", ())),
        wall_s=constants.get("WALL_S"),
    )


def _single_gaps(lines: list[str]) -> Iterator[str]:
    """The lines with at most two empty ones in a row, and none at the end."""
    empty = 0
    for line in lines:
        if line.strip():
            yield from [""] * min(empty, 2)
            empty = 0
            yield line
        else:
            empty += 1


def nearest(code: str) -> str:
    """The code of the rules that is closest to what was asked for: by number, else the first."""
    digits = "".join(character for character in code if character.isdigit())
    number = int(digits) if digits and len(digits) <= 6 else 0
    return min((rule.code for rule in RULES), key=lambda known: abs(int(known[3:]) - number))


def rule_of(code: str) -> Rule:
    """The rule of a code, in any case; ValueError names the nearest one."""
    wanted = code.strip().upper()
    for rule in RULES:
        if rule.code == wanted:
            return rule
    raise ValueError(
        f"there is no rule {code}; the nearest is {nearest(code)}, and nkireview rules lists all"
    )


def generations_of(rule: Rule) -> list[str]:
    """The NeuronCore generations in which a rule is asked, in order."""
    return [name for name in GENERATIONS if name in rule.generations]


def targets_of(rule: Rule) -> str:
    """The generations in which a rule is asked, in words; empty for all."""
    found = generations_of(rule)
    return "" if len(found) == len(GENERATIONS) else ", ".join(f"NeuronCore-{name}" for name in found)


def releases_of(rule: Rule) -> str:
    """The releases in which a rule is asked, in words; empty for all."""
    span = rule.releases
    since = f"from {span.since}" if span.since else ""
    until = f"before {span.until}" if span.until else ""
    return " ".join(part for part in (since, until) if part)
