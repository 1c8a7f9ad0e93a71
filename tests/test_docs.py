"""The docs stay true: links resolve, options and keys are named, the rules page is current, commands run."""

from __future__ import annotations

import importlib.util
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from nkireview.cli import main
from nkireview.task import Contract, Input, TaskFile, Tolerance, Workload

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_resolve(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def section(text: str, heading: str) -> str:
    """The part of a page below a heading, up to the next of its level."""
    return text.split(f"\n## {heading}", 1)[1].split("\n## ", 1)[0]


@pytest.mark.parametrize(
    "name",
    [
        "review",
        "run",
        "memory",
        "numerics",
        "profile",
        "compare",
        "grade",
        "rules",
        "rubric",
        "migrate-check",
    ],
)
def test_every_option_is_documented(name: str) -> None:
    text = section((ROOT / "docs" / "commands.md").read_text(encoding="utf-8"), f"`nkireview {name} ")
    named = set(re.findall(r"`(--[a-z-]+)", text))
    command = main.commands[name]
    parts = command.commands.values() if isinstance(command, click.Group) else [command]
    options = {item.opts[0] for part in parts for item in part.params if isinstance(item, click.Option)}
    assert named == options - {"--help"}


def test_every_command_is_documented() -> None:
    text = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^## `nkireview ([\w-]+)", text, flags=re.M)) == set(main.commands)


def test_the_options_of_grade_are_explained() -> None:
    text = section((ROOT / "docs" / "grading.md").read_text(encoding="utf-8"), "Options\n")
    options = {item.opts[0] for item in main.commands["grade"].params if isinstance(item, click.Option)}
    assert set(re.findall(r"`(--[a-z-]+)", text)) == options


def test_every_task_key_is_documented() -> None:
    text = (ROOT / "docs" / "task-format.md").read_text(encoding="utf-8")
    models = {"The task": TaskFile, "A workload": Workload, "An input": Input, "Contract": Contract}
    for heading, model in {**models, "Tolerance": Tolerance}.items():
        named = re.findall(r"^\| `(\w+)` \|", section(text, f"{heading}\n"), flags=re.M)
        assert sorted(named) == sorted(model.model_fields), heading


def test_the_example_of_a_task_is_one() -> None:
    text = (ROOT / "docs" / "task-format.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```toml\n(.*?)```", text, flags=re.S)
    task = TaskFile.model_validate(tomllib.loads(example))
    assert task.workloads["large"].schedule_only and task.tolerance.policy(0).rms == 1e-6


def tool(name: str) -> Any:
    """The module of a tool that writes a page."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["rules_page", "hardware_page"])
def test_the_generated_pages_are_current(name: str) -> None:
    module = tool(name)
    assert module.PAGE.read_text(encoding="utf-8") == module.page(), f"run python tools/{name}.py"


def test_the_reference_pages_are_current() -> None:
    module = tool("reference_pages")
    wanted = module.pages()
    assert {path.name for path in module.FOLDER.glob("*.md")} == set(wanted)
    for name, text in wanted.items():
        assert (module.FOLDER / name).read_text(encoding="utf-8") == text, (
            "run python tools/reference_pages.py"
        )


def test_the_hardware_page_has_every_figure_of_every_file() -> None:
    folder = ROOT / "src" / "nkireview" / "hardware"
    text = (ROOT / "docs" / "hardware.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\| (`.*) \|$", text, flags=re.M)
    rows = {row[0].strip("`"): row for row in (line.split(" | ") for line in lines)}
    for at, name in enumerate(("trn1", "trn2", "trn3"), 2):
        for file in ("common", name):
            entries = dict(figures("", tomllib.loads((folder / f"{file}.toml").read_text(encoding="utf-8"))))
            assert entries
            for path, entry in entries.items():
                row = rows[path]
                assert (row[at] == "unknown") == ("unknown" in entry), path
                assert entry.get("source", entry.get("reason")) in row[5].replace("\\", ""), path
                if isinstance(entry.get("value"), int):
                    assert row[at] == f"{entry['value']:,}", path


def figures(prefix: str, table: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The entries of a file of figures, by path."""
    for key, entry in table.items():
        if "unit" in entry:
            yield f"{prefix}{key}", entry
        else:
            yield from figures(f"{prefix}{key}.", entry)


def test_the_limits_are_those_of_the_table() -> None:
    text = (ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(rtol|atol|rms)` \| (\S+) \| (\S+) \| (\S+) \|$", text, flags=re.M)
    file = ROOT / "src" / "nkireview" / "numerics" / "limits.toml"
    known = tomllib.loads(file.read_text(encoding="utf-8"))
    shown = {name: {"out": float(o), "chain": float(c), "sum": float(s)} for name, o, c, s in rows}
    assert [{key: row[key] for key in shown} for row in known["floating"]] == [shown]
    assert f"1 + {known['small_output']['spread']} / sqrt(n)" in text
    assert all(dtype in text for dtype in known["floating"][0]["dtypes"])


def commands(page: Path) -> list[str]:
    """The lines of a page that begin with nkireview, below a shell."""
    blocks = re.findall(r"```(?:sh|bash|console)\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.S)
    lines = [line.removeprefix("$ ") for line in "\n".join(blocks).replace("\\\n", " ").splitlines()]
    return [line for line in lines if line.startswith("nkireview")]


def exits_as_it_says(line: str, folder: Path) -> None:
    """Run a line such as ``nkireview review examples/softmax  # exits 1``."""
    command, _, comment = line.partition("#")
    wanted = int(comment.split()[1]) if comment.strip().startswith("exits") else 0
    call = [sys.executable, "-m", *shlex.split(command)]
    done = subprocess.run(call, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == wanted, (line, done.stdout, done.stderr)


@pytest.mark.parametrize("line", commands(ROOT / "README.md"))
def test_the_readme_runs(line: str, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    exits_as_it_says(line, tmp_path)


@pytest.mark.parametrize("line", commands(ROOT / "docs" / "quickstart.md"))
def test_the_quick_start_runs(line: str, tmp_path: Path) -> None:
    text = (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")
    for name, body in re.findall(r"as `(\w+\.py)`[^`]*```python\n(.*?)```", text, flags=re.S):
        (tmp_path / name).write_text(body, encoding="utf-8")
    exits_as_it_says(line, tmp_path)
