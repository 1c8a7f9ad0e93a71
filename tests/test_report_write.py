"""Files of a review: all of them whole or none new, sources read with care, and what the command prints."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import jsonschema
import pytest
from click.testing import CliRunner, Result
from kept import Kept
from report_kit import SOURCE, bad, finding, record, subject

from nkireview.cli import main
from nkireview.report import machine
from nkireview.report.agent import MOST as MOST_FOR_AGENTS
from nkireview.report.agent import agent
from nkireview.report.github import MOST as MOST_ANNOTATIONS
from nkireview.report.listing import MOST_LINES
from nkireview.report.sarif import LEVELS, MOST_PLACES, RANKS
from nkireview.report.schema import review_schema
from nkireview.report.sources import MOST_BYTES, read_sources
from nkireview.report.terminal import CELL, GAP
from nkireview.rules.finding import Severity

ROOT = Path(__file__).resolve().parent.parent
DATA = Path(__file__).resolve().parent / "data"
GOOD = ROOT / "examples" / "softmax" / "submissions" / "good"
FILES = {"review.json", "review.md", "review.html", "review.sarif", "agent.json"}


def test_every_file_is_written_and_none_is_left_over(tmp_path: Path) -> None:
    target = machine.write(bad(), tmp_path / "a" / "b", {"kernel.py": SOURCE})
    assert target == tmp_path / "a" / "b" / "review.json"
    assert {path.name for path in target.parent.iterdir()} == FILES
    assert target.read_text(encoding="utf-8") == machine.to_json(bad())
    assert "range(0, rows, 64)" not in target.read_text(encoding="utf-8")
    assert (target.parent / "review.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_writing_again_replaces_every_file(tmp_path: Path) -> None:
    machine.write(bad(), tmp_path)
    machine.write(record(), tmp_path)
    assert json.loads((tmp_path / "agent.json").read_text(encoding="utf-8"))["verdict"] == "acceptable"
    assert {path.name for path in tmp_path.iterdir()} == FILES


FULL = """
import resource, signal, sys
from pathlib import Path
import report_kit
from nkireview.report import machine
from nkireview.report.agent import MOST as MOST_FOR_AGENTS
from nkireview.report.agent import agent
from nkireview.report.github import MOST as MOST_ANNOTATIONS
from nkireview.report.listing import MOST_LINES
from nkireview.report.sarif import LEVELS, MOST_PLACES, RANKS
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
try:
    machine.write(report_kit.bad(), Path(sys.argv[1]), {"kernel.py": report_kit.SOURCE})
except OSError as error:
    sys.exit(f"refused: {error.strerror}")
"""


def test_nothing_is_half_written_where_the_system_takes_no_more_bytes(tmp_path: Path) -> None:
    machine.write(record(), tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    call = [sys.executable, "-c", FULL, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run(call, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stderr.startswith("refused:"), done.stderr
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_an_interruption_leaves_no_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def interrupted(handle: int) -> None:
        calls.append(handle)
        if len(calls) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        machine.write(bad(), tmp_path)
    assert list(tmp_path.iterdir()) == [] and len(calls) == 3


# sources


def named(*places: str, file: str = "kernel.py") -> object:
    return record(subject=subject(file=file), findings=(finding(places=places),))


def test_sources_are_the_kernel_and_the_files_named_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "kernels"
    (folder / "lib").mkdir(parents=True)
    (folder / "kernel.py").write_bytes(b"\xef\xbb\xbfx = 1\r\n\xff")
    (folder / "helper.py").write_text("y = 2\n")
    (folder / "unnamed.py").write_text("z = 3\n")
    (folder / "lib" / "deep.py").write_text("w = 4\n")
    found = read_sources(
        named("helper.py:1", "deep.py:1", "missing.py:1"),  # type: ignore[arg-type]
        folder / "kernel.py",
        [folder / "lib"],
    )
    assert found.texts == {"kernel.py": "x = 1\r\n\ufffd", "helper.py": "y = 2\n", "deep.py": "w = 4\n"}
    assert found.paths["deep.py"] == "kernels/lib/deep.py"
    monkeypatch.chdir(folder / "lib")
    assert read_sources(named(), folder / "kernel.py").paths == {"kernel.py": "kernel.py"}  # type: ignore[arg-type]


def test_a_place_cannot_make_the_report_read_another_file(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (tmp_path / "secret.py").write_text("secret")
    (folder / "link.py").symlink_to(tmp_path / "secret.py")
    (folder / "big.py").write_bytes(b"#" * (MOST_BYTES + 1))
    (folder / "folder.py").mkdir()
    os.mkfifo(folder / "pipe.py")
    places = (
        "../secret.py:1",
        f"{tmp_path}/secret.py:1",
        "link.py:1",
        "big.py:1",
        "folder.py:1",
        "pipe.py:1",
        "a\0:1",
    )
    found = read_sources(named(*places), folder / "kernel.py")  # type: ignore[arg-type]
    assert found.texts == {} and found.paths == {}


# the command


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def test_schema_prints_the_schema() -> None:
    result = call("schema")
    assert result.exit_code == 0 and result.output == review_schema()


def test_the_command_offers_every_form() -> None:
    (option,) = [item for item in main.commands["review"].params if item.name == "form"]
    assert isinstance(option.type, click.Choice)
    assert tuple(option.type.choices) == ("terminal", *machine.FORMS)


def test_json_and_another_form_are_one_too_many() -> None:
    result = call("review", str(GOOD), "--json", "--format", "md")
    assert result.exit_code == 2
    assert result.output == "nkireview: give either --json or --format md, not both\n"


@pytest.mark.parametrize("form", ["html", "sarif"])
def test_a_page_is_of_one_review(form: str) -> None:
    folder = ROOT / "examples" / "softmax"
    result = call("review", str(folder), "--format", form)
    assert result.exit_code == 2
    assert result.output == (
        f"nkireview: --format {form} prints one review, {folder} has 3 submissions; name one of them, or take the "
        "files below --out\n"
    )


def test_a_form_is_printed_alone_and_is_what_was_written(tmp_path: Path) -> None:
    result = call("review", str(GOOD), "--format", "md", "--out", str(tmp_path), "--seed", "5")
    assert result.exit_code == 0, result.output
    assert result.output == (tmp_path / "review.md").read_text(encoding="utf-8")
    assert {path.name for path in tmp_path.iterdir()} == FILES


@pytest.mark.parametrize("task", ["causal_attention", "matmul", "rmsnorm", "softmax"])
def test_the_reviews_of_every_example_validate(kept: Kept, task: str) -> None:
    written = kept.example(task)
    assert written.exit_code == 1, written.output
    folders = sorted(written.folder.iterdir())
    assert [folder.name for folder in folders] == ["good", "slow", "wrong"]
    schemas = {
        "review.json": json.loads(review_schema()),
        "review.sarif": json.loads((DATA / "sarif_essential.schema.json").read_text(encoding="utf-8")),
    }
    for folder in folders:
        for name, schema in schemas.items():
            made = json.loads((folder / name).read_text(encoding="utf-8"))
            jsonschema.validate(made, schema)
        assert 'id="s0-1"' in (folder / "review.html").read_text(encoding="utf-8")


# the page about them


def table_below(heading: str) -> list[list[str]]:
    """The rows of the tables in a section of docs/reports.md, without their heads."""
    text = (ROOT / "docs" / "reports.md").read_text(encoding="utf-8")
    part = f"\n{text}".split(f"\n{heading}\n", 1)[1].split("\n## ", 1)[0]
    return [
        [cell.strip(" `") for cell in row.split("|")[1:-1]]
        for row in re.findall(r"^\| `.*\|$", part, flags=re.M)
    ]


def test_the_page_names_every_form_and_file() -> None:
    rows = table_below("# Reports")
    assert [row[0] for row in rows] == [
        "terminal",
        *sorted(machine.FORMS, key=[row[0] for row in rows].index),
    ]
    assert {row[0]: row[1] for row in rows if row[1]} == dict(machine.FILES)


def test_the_page_names_every_key_for_agents() -> None:
    made = json.loads(agent(bad()))
    assert [row[0] for row in table_below("## agent.json")] == [*made, *made["findings"][0]]


def test_the_page_names_the_levels_of_sarif() -> None:
    rows = table_below("## review.sarif")
    assert rows == [[item.value, LEVELS[item], f"{RANKS[item]:g}"] for item in Severity]


def test_the_page_states_the_bounds() -> None:
    text = (ROOT / "docs" / "reports.md").read_text(encoding="utf-8")
    for stated in (
        f"more than {MOST_LINES:,} lines",
        f"at most {MOST_ANNOTATIONS}:",
        f"at most {MOST_FOR_AGENTS}, below",
        f"up to {MOST_PLACES - 1} related",
        f"Below {2 * CELL + GAP + 2} columns",
    ):
        assert stated in text, stated
