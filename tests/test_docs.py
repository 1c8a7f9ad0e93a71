"""The docs stay true: links resolve, options and keys are named, the rules page is current, commands run."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from nkireview.cli import main
from nkireview.rules.registry import RULES
from nkireview.task import Bounds, Contract, Input, TaskFile, Tolerance, Workload

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_resolve(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("name", ["review", "run"])
def test_every_option_is_documented(name: str) -> None:
    text = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    command = main.commands[name]
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.opts[0] in text, f"{parameter.opts[0]} of {name} is not in docs/commands.md"


def test_every_task_key_is_documented() -> None:
    text = (ROOT / "docs" / "task-format.md").read_text(encoding="utf-8")
    for model in (TaskFile, Workload, Input, Tolerance, Bounds, Contract):
        for key in model.model_fields:
            assert key in text, f"{key} is not in docs/task-format.md"


def test_every_rule_is_documented() -> None:
    text = (ROOT / "docs" / "rules.md").read_text(encoding="utf-8")
    for rule in RULES:
        assert rule.code in text and rule.title in text, f"{rule.code} is not in docs/rules.md as it stands"


def test_the_quick_start_runs(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")
    for name, body in re.findall(r"as `(\w+\.py)`[^`]*```python\n(.*?)```", text, flags=re.S):
        (tmp_path / name).write_text(body, encoding="utf-8")
    blocks = re.findall(r"```(?:sh|bash|console)\n(.*?)```", text, flags=re.S)
    joined = "\n".join(blocks).replace("\\\n", " ")
    lines = [line.lstrip("$ ") for line in joined.splitlines() if line.lstrip("$ ").startswith("nkireview")]
    assert lines
    for line in lines:
        command, _, comment = line.partition("#")
        wanted = int(comment.split()[1]) if comment.strip().startswith("exits") else 0
        arguments = [sys.executable, "-m", *shlex.split(command)]
        done = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == wanted, (line, done.stdout, done.stderr)
