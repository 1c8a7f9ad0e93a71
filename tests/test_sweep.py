"""The sweep for false alarms: what is judged, and how it is held against the page of blockers, without any clone."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from nkireview.isa.release import Release
from nkireview.rules.finding import Severity

ROOT = Path(__file__).parents[1]


def _load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


sweep = _load("sweep")
public = sweep.public
SUITE = public.load_suite(ROOT / "compat.toml")
PAGE = (ROOT / "docs" / "false_alarms.md").read_text(encoding="utf-8")

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

THREADS = """\
import threading
import nki

@nki.jit
def first(x):
    return x

@nki.jit
def second(x):
    return x
"""
LEGACY = """\
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl

@nki.jit
def kernel(x):
    return nl.load(x)
"""
RST = """\
Page
====

.. code-block:: python

   import nki
   import subprocess

   @nki.jit
   def shown(x):
       return x
"""


# The page


def test_each_blocker_that_a_row_expects_is_listed() -> None:
    known = sweep.listed(PAGE)
    for row in SUITE.rows:
        path, kernel = sweep.subject(row)
        for code in row.expected.blockers:
            assert sweep.Blocked(row.revision, path, kernel, code).listed_in(known), (row.id, code)


def test_each_blocker_that_a_row_expects_to_be_printed_is_listed() -> None:
    known = sweep.listed(PAGE)
    printed = [(row, text) for row in SUITE.rows for text in row.expected.prints if " blocks " in text]
    assert printed
    for row, text in printed:
        code, _, kernel, _, path = text.split(" ")
        assert sweep.Blocked(row.revision, path, kernel, code).listed_in(known), (row.id, text)


def test_every_line_of_the_first_two_tables_is_read() -> None:
    blocked, _, _ = PAGE.partition("## False alarms")
    lines = [line for line in blocked.splitlines() if line.startswith("| `")]
    assert len(lines) > 20
    assert all(len(sweep.listed(line)) == line.count("NKR") for line in lines)


def test_a_listed_line_names_file_kernel_commit_and_codes() -> None:
    text = (
        "| `a/b.py` | `kernel` | `81ce03ae` | NKR001, NKR022 | too wide |\n"
        "| `c.py` | - | `2.29` | NKR055 | forks |\n"
    )
    assert sweep.listed(text) == (
        sweep.Blocked("81ce03ae", "a/b.py", "kernel", "NKR001"),
        sweep.Blocked("81ce03ae", "a/b.py", "kernel", "NKR022"),
        sweep.Blocked("2.29", "c.py", "", "NKR055"),
    )
    assert sweep.listed("| `a.py` | kernel | `2.29` | NKR001 | no code around the kernel |") == ()


@pytest.mark.parametrize(
    ("blocked", "known"),
    [
        (("81ce03ae261e", "a.py", "kernel", "NKR001"), True),
        (("7af4e4d0210b", "a.py", "kernel", "NKR001"), False),
        (("81ce03ae261e", "b.py", "kernel", "NKR001"), False),
        (("81ce03ae261e", "a.py", "other", "NKR001"), False),
        (("81ce03ae261e", "a.py", "kernel", "NKR002"), False),
        (("81ce03ae261e", "whole.py", "any", "NKR055"), True),
    ],
)
def test_a_blocker_is_found_in_the_list(blocked: tuple[str, str, str, str], known: bool) -> None:
    listed = [
        sweep.Blocked("81ce03ae", "a.py", "kernel", "NKR001"),
        sweep.Blocked("81ce03ae", "whole.py", "", "NKR055"),
    ]
    assert sweep.Blocked(*blocked).listed_in(listed) is known


# Judging texts


def codes(said: Any, severity: Severity = Severity.blocker) -> list[tuple[str, str, str]]:
    """Path, kernel and code of findings of a severity."""
    return [(item.path, item.kernel, item.finding.code) for item in said if item.finding.severity is severity]


def test_files_and_blocks_of_pages_are_judged(tmp_path: Path) -> None:
    (tmp_path / "threads.py").write_text(THREADS)
    (tmp_path / "broken.py").write_text("def kernel(:\n")
    (tmp_path / "fine.py").write_text("import math\n")
    (tmp_path / "page.rst").write_text(RST)
    said = list(sweep.judge_tree(tmp_path, Release(0, 6)))
    assert codes(said) == [
        ("broken.py", "", "NKR004"),
        ("threads.py", "first", "NKR055"),
        ("threads.py", "second", "NKR055"),
        ("page.rst#1", "shown", "NKR055"),
    ]
    assert codes(sweep.merged(said)) == [
        ("broken.py", "", "NKR004"),
        ("threads.py", "first", "NKR055"),
        ("page.rst#1", "shown", "NKR055"),
    ]


def test_a_legacy_file_is_judged_for_its_own_generation(tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    path.write_text(LEGACY)
    assert codes(sweep.judge_file(path, "kernel.py", Release(0, 6)), Severity.major) == []
    path.write_text(LEGACY.replace("neuronxcc.", "").replace("nl.load(x)", "nl.static_cast(x)"))
    assert codes(sweep.judge_file(path, "kernel.py", Release(0, 6)), Severity.major) == [
        ("kernel.py", "kernel", "NKR048")
    ]


def test_lines_leave_notes_to_the_counts(tmp_path: Path) -> None:
    path = tmp_path / "threads.py"
    path.write_text(THREADS)
    shown = list(sweep.lines(sweep.merged(sweep.judge_file(path, "threads.py", Release(0, 6)))))
    assert shown == [
        "blocker  NKR055 threads.py first: the file imports threading, which is not on the list of allowed "
        "modules (threads.py:1)",
        "NKR055 blocker x 1, NKR051 note x 2",
    ]
    assert list(sweep.lines([])) == ["nothing was said"]


# Running


def git(folder: Path, *arguments: str) -> None:
    """A git command that depends on no configuration of the machine."""
    identity = ["-c", "user.name=tester", "-c", "user.email=tester@localhost", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


SUITE_TEXT = """\
[[tree]]
clone = "owner/name"
tag = "v1"
paths = ["src"]
nki = "0.6"

[[row]]
id = "tiny"
issue = 7
clone = "owner/name"
tag = "v1"
paths = ["src"]
command = "review {clone}/src/kernel.py --kernel first --input x=f32[4,4] --reference {compat}/tiny.py:tiny"
expected = { exit = 1, blockers = ["NKR055"] }
note = "A kernel."
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with a tree whose one file is forbidden, a row that reviews it, and a page that lists nothing."""
    clone = tmp_path / "clones" / "name"
    (clone / "src").mkdir(parents=True)
    (clone / "src" / "kernel.py").write_text(THREADS)
    git(clone, "init", "--quiet")
    git(clone, "add", ".")
    git(clone, "commit", "--quiet", "-m", "v1")
    git(clone, "tag", "v1")
    (tmp_path / "compat.toml").write_text(SUITE_TEXT)
    (tmp_path / "compat").mkdir()
    (tmp_path / "compat" / "tiny.py").write_text("def tiny(x):\n    return x\n")
    (tmp_path / "page.md").write_text("| file | kernel | commit | code | why |\n")
    return tmp_path


def call(project: Path, *options: str) -> Result:
    """Run the tool in a project."""
    places = ["--suite", str(project / "compat.toml"), "--listed", str(project / "page.md")]
    return CliRunner().invoke(sweep.main, ["--clones", str(project / "clones"), *places, *options])


@needs_git
def test_a_blocker_that_is_not_listed_fails(project: Path) -> None:
    result = call(project, "--source-only")
    assert result.exit_code == 1, result.output
    assert result.output.splitlines()[0] == "owner/name at v1, NKI 0.6, 0 reviews"
    assert result.output.splitlines()[-1] == (
        "FAILED   src/kernel.py: NKR055 blocks first, and page.md does not list it"
    )
    (project / "page.md").write_text("| `src/kernel.py` | - | `v1` | NKR055 | threads |\n")
    assert call(project, "--source-only").exit_code == 0


@needs_git
def test_reviews_count_too(project: Path) -> None:
    result = call(project)
    assert result.exit_code == 1, result.output
    assert result.output.splitlines()[0] == "owner/name at v1, NKI 0.6, 1 reviews"
    # the text says it once, the review a second time
    assert "NKR055 blocker x 2" in result.output
    (project / "compat.toml").write_text(SUITE_TEXT.replace("first", "third"))
    assert "FAILED   tiny: exit code 2, expected 1: nkireview: " in call(project).output


@needs_git
def test_what_cannot_be_swept_is_one_sentence(project: Path) -> None:
    shutil.rmtree(project / "clones" / "name")
    result = call(project)
    assert result.exit_code == 2
    assert result.output == (
        f"sweep: clone owner/name is not in {project}/clones; expected the folder owner+name or name\n"
    )
    (project / "compat.toml").write_text(SUITE_TEXT.replace('nki = "0.6"', 'nki = "9"'))
    result = call(project)
    assert result.exit_code == 2
    assert "tree: 0: nki: unknown NKI release '9': expected one of 0.1, 0.2, 0.3, " in result.output


# Programs

KERNELS = """\
import numpy as np
import nki, nki.isa as nisa, nki.language as nl

@nki.jit
def fine(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.dma_copy(dst=out, src=tile)
    return out

@nki.jit
def wrong(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile, product = (nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf) for _ in range(2))
    nisa.dma_copy(dst=tile, src=x)
    nisa.nc_matmul(dst=product, stationary=tile, moving=tile)
    nisa.dma_copy(dst=out, src=product)
    return out

for size in (4, 4, 8):
    assert nki.simulate(fine)(np.ones((128, size), np.float32)).sum() == 128 * size
nki.simulate(wrong)(np.ones((128, 128), np.float32))
"""


def judged(folder: Path, *options: str) -> tuple[list[dict[str, Any]], list[str], int]:
    """What is found in the programs of a script: the lines of the file and those printed, and the exit code."""
    (folder / "kernels.py").write_text(KERNELS)
    driver = str(ROOT / "compat" / "drivers" / "judged.py")
    command = [sys.executable, "-m", "nkireview", "exec", driver, *options, "found.jsonl", "kernels.py"]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    text = (folder / "found.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()], ended.stdout.splitlines(), ended.returncode


def test_programs_are_judged_once_each_as_they_are_launched(tmp_path: Path) -> None:
    """A matmul writes to PSUM, nki/api/nki/isa/__init__.py:571-573; two of the three launches of `fine` are equal."""
    lines, printed, code = judged(tmp_path)
    assert code == 0
    assert [(line["kernel"], line["file"], line["instructions"]) for line in lines] == [
        ("fine", "kernels.py", 2),
        ("fine", "kernels.py", 2),
        ("wrong", "kernels.py", 3),
    ]
    assert [[item["code"] for item in line["findings"]] for line in lines] == [[], [], ["NKR001"]]
    assert printed[0] == "3 programs of 2 kernels judged, 0 too large"
    assert printed[-2:] == ["NKR001 blocks wrong of kernels.py", "blockers: 1"]


def test_programs_alone_are_judged_up_to_a_size(tmp_path: Path) -> None:
    lines, printed, code = judged(tmp_path, "--only", "--most", "1")
    assert code == 0
    assert [(line["kernel"], line["status"]) for line in lines] == [("fine", "too large")]
    assert printed == [
        "0 programs of 1 kernels judged, 1 too large",
        "major, by kernels: none",
        "blockers: 0",
    ]


LINE = {
    "kernel": "first",
    "file": "src/kernel.py",
    "findings": [{"code": "NKR001", "severity": "blocker"}, {"code": "NKR105", "severity": "major"}],
}


def test_blockers_of_programs_are_held_against_the_page(project: Path) -> None:
    file = project / "found.jsonl"
    file.write_text(json.dumps(LINE) + "\n" + json.dumps({**LINE, "test": "another"}) + "\n")
    result = call(project, "--programs", "v1", str(file))
    assert result.exit_code == 1, result.output
    assert result.output == (
        "found.jsonl at v1: 1 blockers\n"
        "FAILED   src/kernel.py: NKR001 blocks first, and page.md does not list it\n"
    )
    (project / "page.md").write_text("| `src/kernel.py` | `first` | `v1` | NKR001 | a matmul |\n")
    assert call(project, "--programs", "v1", str(file)).exit_code == 0
    assert call(project, "--programs", "v2", str(file)).exit_code == 1


def test_a_program_that_could_not_be_judged_fails(project: Path) -> None:
    file = project / "found.jsonl"
    file.write_text(json.dumps({"kernel": "first", "file": "a.py", "error": "ValueError: no"}) + "\n")
    result = call(project, "--programs", "v1", str(file))
    assert result.exit_code == 1
    assert "FAILED   a.py: first could not be judged: ValueError: no" in result.output
    file.write_text("[1]\n")
    result = call(project, "--programs", "v1", str(file))
    assert result.exit_code == 2
    assert f"sweep: {file}: not a file of compat/drivers/judged.py: " in result.output


def test_help_has_an_example() -> None:
    text = CliRunner().invoke(sweep.main, ["--help"]).output
    assert textwrap.dedent("python tools/sweep.py --clones ~/clones --source-only") in text
