"""Imports run downwards only: docs/architecture.md holds the table, this test holds the code to it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "nkireview"
EXAMPLES = PACKAGE / "rules" / "examples"
PAGE = ROOT / "docs" / "architecture.md"


def table() -> dict[str, frozenset[str]]:
    """Room and what it may import, as the page says."""
    found = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        match = re.fullmatch(r"\| `([\w.]+)` \|.*\| ([\w., ]+) \|", line)
        if match:
            allowed = {name.strip() for name in match[2].split(",")} - {"nothing"}
            found[match[1]] = frozenset(allowed)
    return found


def room_of(module: str) -> str:
    """The room of a module below the package: its longest name in the table."""
    rooms = [room for room in table() if module == room or module.startswith(f"{room}.")]
    return max(rooms, key=len, default=module.split(".", 1)[0])


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and module, below the package, of each import of our own."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [item.name for item in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            below = [f"{node.module}.{item.name}" for item in node.names]
            names = below if node.module == "nkireview" else [node.module]
        for name in names:
            if name.startswith("nkireview."):
                yield node.lineno, name.removeprefix("nkireview.")


def modules() -> list[Path]:
    """Our modules; the examples of rules are kernels, which we read and never import."""
    return sorted(
        path for path in PACKAGE.rglob("*.py") if path.name != "__main__.py" and EXAMPLES not in path.parents
    )


def name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def test_the_page_names_every_room() -> None:
    rooms = {name_of(path).split(".", 1)[0] for path in modules()} - {""}
    assert rooms == {room.split(".", 1)[0] for room in table()}


def test_the_page_is_one_page() -> None:
    assert len(PAGE.read_text(encoding="utf-8").splitlines()) <= 100


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_run_downwards(path: Path) -> None:
    name = name_of(path)
    if not name:
        return
    room, allowed = room_of(name), table()[room_of(name)]
    wrong = [
        f"line {line}: {room} imports {module}"
        for line, module in imports(path)
        if room_of(module) not in {room, *allowed} and module != "__version__"
    ]
    assert not wrong, wrong


def test_no_arrow_runs_in_a_circle() -> None:
    arrows = table()

    def reach(room: str, seen: frozenset[str]) -> None:
        assert room not in seen, f"{room} reaches itself"
        for below in arrows[room]:
            reach(below, seen | {room})

    for room in arrows:
        reach(room, frozenset())


def test_nothing_installs_as_nki() -> None:
    assert not (ROOT / "src" / "nki").exists() and not (ROOT / "src" / "neuronxcc").exists()
