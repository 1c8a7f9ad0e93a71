"""`nkireview memory`: verdicts, figures worked out by hand, JSON, pages, cores, and what is refused."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from test_report_html import Page

from nkireview.cli import main
from nkireview.record import MemorySummary, SpaceRecord, TrafficRecord, WorkloadMemory
from nkireview.report.memory import fullest, moved

ROOT = Path(__file__).resolve().parent.parent
HEAD = "import nki\nimport nki.isa as nisa\nimport nki.language as nl\n\n\n@nki.jit\n"
COPY = (
    HEAD
    + """def copy(x):
    rows, columns = x.shape
    out = nl.ndarray((rows, columns), dtype=x.dtype, buffer=nl.shared_hbm)
    for row in range(0, rows, 128):
        tile = nl.ndarray((128, columns), dtype=x.dtype, buffer=nl.sbuf, name="tile")
        nisa.dma_copy(dst=tile, src=x[row : row + 128, :])
        nisa.dma_copy(dst=out[row : row + 128, :], src=tile)
    return out
"""
)
KEEP = (
    HEAD
    + """def keep(x):
    rows, columns = x.shape
    out = nl.ndarray((128, columns), dtype=x.dtype, buffer=nl.shared_hbm)
    kept = []
    for row in range(0, rows, 128):
        tile = nl.ndarray((128, columns), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[row : row + 128, :])
        kept.append(tile)
    total = nl.ndarray((128, columns), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=total, value=0.0)
    for tile in kept:
        nisa.tensor_tensor(dst=total, data1=total, data2=tile, op=nl.add)
    for tile in kept:
        nisa.tensor_tensor(dst=total, data1=total, data2=tile, op=nl.multiply)
    nisa.dma_copy(dst=out, src=total)
    return out
"""
)


def call(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, ["memory", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def kernel(folder: Path, text: str) -> Path:
    path = folder / "kernel.py"
    path.write_text(text, encoding="utf-8")
    return path


def summary(*arguments: object, code: int = 0) -> MemorySummary:
    found, text, problems = call(*arguments, "--json")
    assert found == code, problems
    return MemorySummary.model_validate_json(text)


def only(found: MemorySummary) -> WorkloadMemory:
    (workload,) = found.workloads
    return workload


def test_a_kernel_that_fits(tmp_path: Path) -> None:
    path = kernel(tmp_path, COPY)
    code, text, _ = call(path, "--input", "x=f32[512,1000]")
    assert code == 0
    lines = text.splitlines()
    assert lines[1] == "trn2 (default), NKI 0.6 (default), LNC 1 (default)"
    assert "FITS  inputs: 8 instructions" in lines
    # 1000 float32 a partition; the loads overlap nothing in program order
    assert "SBUF: 4,000 of 212,984 usable bytes a partition (2%) at kernel.py:12, instruction 0" in lines, (
        text
    )
    assert "  kernel.py:11 tile: 4,000 B x 128 partitions" in lines
    assert any(line.startswith("  A kernel.py:11  tile, 4 buffers, 3.9 KiB") for line in lines)


def test_traffic_against_bytes_by_hand(tmp_path: Path) -> None:
    """512 x 1000 float32 are 2,048,000 bytes in and as many out, in rows of 4,000 bytes."""
    found = only(summary(kernel(tmp_path, COPY), "--input", "x=f32[512,1000]")).traffic
    assert (found.moved, found.compulsory, found.least) == (4_096_000, 4_096_000, 4_096_000)
    assert found.by_route == {"HBM->SBUF": 2_048_000, "SBUF->HBM": 2_048_000}
    assert [(line.place, line.route, line.bytes, line.transfers) for line in found.lines] == [
        ("kernel.py:12", "HBM->SBUF", 2_048_000, 4),
        ("kernel.py:13", "SBUF->HBM", 2_048_000, 4),
    ]
    assert [line.reloaded_bytes for line in found.lines] == [0, 0]
    assert all(line.descriptors * line.descriptor_bytes == line.bytes for line in found.lines)


def test_what_is_loaded_again_is_said(tmp_path: Path) -> None:
    twice = COPY.replace(
        "        nisa.dma_copy(dst=out",
        "        nisa.dma_copy(dst=tile, src=x[row : row + 128, :])\n        nisa.dma_copy(dst=out",
    )
    found = only(summary(kernel(tmp_path, twice), "--input", "x=f32[512,1000]")).traffic
    assert found.moved == 3 * 2_048_000 and found.compulsory == 2 * 2_048_000
    assert sum(line.reloaded_bytes for line in found.lines) == 2_048_000


def test_a_kernel_that_cannot_fit(tmp_path: Path) -> None:
    """32 tiles of 8 KiB a partition are all used twice, in turn: 256 KiB where 208 KiB are usable."""
    path = kernel(tmp_path, KEEP)
    found = summary(path, "--input", "x=f32[4096,2048]", code=1)
    workload = only(found)
    assert workload.verdict == "cannot fit"
    assert workload.findings[0].severity.value == "blocker" and workload.findings[0].change
    sbuf = workload.maps[0]
    assert sbuf.homeless > 0 and any(block.start >= sbuf.usable for block in sbuf.blocks)
    (space,) = [item for item in workload.spaces if item.memory == "SBUF"]
    assert space.peak == 33 * 8192 and space.usable == 212_984
    assert (space.alive[0].place, space.alive[0].bytes, space.alive[0].count) == ("kernel.py:12", 8192, 32)
    code, text, _ = call(path, "--input", "x=f32[4096,2048]")
    assert code == 1
    assert "CANNOT FIT  inputs" in text and "  blocker NKR" in text and "change: " in text
    assert "no room" in text and "  kernel.py:12: 32 x 8,192 B x 128 partitions" in text


@pytest.mark.parametrize(
    ("target", "usable"), [("trn1", 180_224), ("inf2", 180_224), ("trn2", 212_984), ("trn3", 245_752)]
)
def test_the_target_says_what_is_usable(tmp_path: Path, target: str, usable: int) -> None:
    found = summary(kernel(tmp_path, COPY), "--input", "x=f32[128,64]", "--target", target)
    assert only(found).spaces[0].usable == only(found).maps[0].usable == usable
    assert found.subject.target.origin == "--target"


def test_two_cores_have_maps_of_their_own(tmp_path: Path) -> None:
    both = COPY.replace("range(0, rows, 128)", "range(nl.program_id(0) * 128, rows, 256)")
    path = kernel(tmp_path, both)
    workload = only(summary(path, "--input", "x=f32[512,64]", "--lnc", 2))
    assert [(item.memory, item.core) for item in workload.maps] == [("SBUF", 0), ("SBUF", 1)]
    assert [item.buffers for item in workload.maps] == [2, 2]
    text = call(path, "--input", "x=f32[512,64]", "--lnc", 2)[1]
    assert "SBUF of core 0: 256 of" in text and "SBUF of core 1: 256 of" in text


def test_a_submission_of_a_task_shows_every_workload(tmp_path: Path) -> None:
    found = summary(ROOT / "examples" / "matmul" / "submissions" / "good", "--out", tmp_path / "maps")
    assert len(found.workloads) > 2 and all(item.verdict == "fits" for item in found.workloads)
    assert (found.subject.task, found.subject.submission) == ("matmul", "good")
    for workload in found.workloads:
        assert {item.memory for item in workload.maps} == {"SBUF", "PSUM"}
        assert all(
            item.unit == "ns" and item.bank == (2048 if item.memory == "PSUM" else None)
            for item in workload.maps
        )
    written = json.loads((tmp_path / "maps" / "memory.json").read_text(encoding="utf-8"))
    assert written == json.loads(found.model_dump_json())
    page = Page((tmp_path / "maps" / "memory.html").read_text(encoding="utf-8"))
    maps = [given for name, given in page.elements if name == "figure"]
    assert len(maps) == sum(len(workload.maps) for workload in found.workloads)
    assert not {"script", "img"} & {name for name, _ in page.elements}
    assert "matmul/good" in page.text and all(item.workload in page.text for item in found.workloads)


def test_without_out_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = kernel(tmp_path, COPY)
    monkeypatch.chdir(tmp_path)
    assert call(path, "--input", "x=f32[128,64]")[0] == 0
    assert [item.name for item in tmp_path.iterdir()] == ["kernel.py"]


def at_width(width: int, folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """A call in a folder, on a terminal of so many columns."""
    code = (
        "import sys, nkireview.cli.memory as command\n"
        "from rich.console import Console\n"
        f"command.screen = lambda: Console(width={width})\n"
        "command.main(sys.argv[1:])\n"
    )
    call = [sys.executable, "-c", code, "memory", *map(str, arguments)]
    plain = {**os.environ, "NO_COLOR": "1"}
    return subprocess.run(call, cwd=folder, capture_output=True, text=True, check=False, env=plain)


def test_the_screen_is_as_wide_as_the_terminal(tmp_path: Path) -> None:
    done = at_width(60, tmp_path, kernel(tmp_path, COPY), "--input", "x=f32[512,1000]")
    assert done.returncode == 0, done.stderr
    chart = [line for line in done.stdout.splitlines() if "│" in line or "└" in line]
    assert len(chart) == 9 and max(map(len, chart)) <= 60


# The page of the docs

PAGE = (ROOT / "docs" / "memory.md").read_text(encoding="utf-8")
(EXAMPLE,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.S)
CALLS = [line for line in re.findall(r"```sh\n(.*?)```", PAGE, flags=re.S)[0].splitlines() if line]


@pytest.mark.parametrize("line", CALLS)
def test_the_calls_of_the_page_run(line: str, tmp_path: Path) -> None:
    kernel(tmp_path, EXAMPLE)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    command, _, comment = line.partition("#")
    words = [sys.executable, "-m", *shlex.split(command)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == (int(comment.split()[1]) if comment else 0), (done.stdout, done.stderr)


def test_the_screen_of_the_page_is_the_real_one(tmp_path: Path) -> None:
    (shown,) = re.findall(r"```text\n(.*?)```", PAGE, flags=re.S)
    path = kernel(tmp_path, EXAMPLE)
    done = at_width(110, tmp_path, path.name, "--input", "x=f32[4096,2048]")
    assert done.returncode == 1 and done.stdout == shown


# What is refused


def refused(*arguments: object) -> str:
    code, text, problems = call(*arguments)
    assert code == 2 and not text and "Traceback" not in problems
    (line,) = problems.splitlines()
    return line


def test_wrong_calls_are_one_sentence(tmp_path: Path) -> None:
    path = kernel(tmp_path, COPY)
    assert "kernel.py: no inputs, and it lies in no task; give --input" in refused(path)
    assert "no such file or folder" in refused(tmp_path / "none.py")
    assert "good, slow, wrong); name one of them" in refused(ROOT / "examples" / "matmul")
    assert "give either --input or --inputs-from" in refused(
        path, "--input", "x=f32[8,8]", "--inputs-from", "a.py:f"
    )
    assert "--submission belongs to a task" in refused(path, "--submission", path)
    assert "is a folder" in refused(tmp_path, "--input", "x=f32[8,8]")
    assert "has no parameter of that name" in refused(path, "--input", "x=f32[8,8]", "--input", "eps=1")


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (("range(0, rows, 128)", "range(0, rows, 1 // 0)"), "division"),
        (("import nki\n", "import os\nimport nki\n\nos.kill(1, 9)\n"), "not run, since the file"),
        (("def copy(x):", "def copy(x) -> :"), "kernel.py"),
    ],
    ids=["raises", "forbidden", "no Python"],
)
def test_what_cannot_be_judged_exits_with_2(tmp_path: Path, change: tuple[str, str], wanted: str) -> None:
    path = kernel(tmp_path, COPY.replace(*change))
    assert wanted in refused(path, "--input", "x=f32[512,64]")


@pytest.mark.parametrize(
    ("rows", "shape", "verdict", "wanted"),
    [
        (256, "512,64", "not legal", "partition size 256 exceeds 128"),
        (128, "512,53247", "cannot fit", "212988 bytes a partition exceed the 212984 usable"),
    ],
)
def test_a_program_that_breaks_a_limit_says_so(
    tmp_path: Path, rows: int, shape: str, verdict: str, wanted: str
) -> None:
    path = kernel(
        tmp_path,
        COPY.replace(
            "(128, columns), dtype=x.dtype, buffer=nl.sbuf",
            f"({rows}, columns), dtype=x.dtype, buffer=nl.sbuf",
        ),
    )
    code, text, _ = call(str(path), "--input", f"x=f32[{shape}]", "--json")
    assert code == 1
    (found,) = json.loads(text)["workloads"]
    assert found["verdict"] == verdict
    assert any(wanted in finding["message"] and finding["code"] == "NKR001" for finding in found["findings"])


def test_help_has_examples() -> None:
    code, text, _ = call("--help")
    assert code == 0
    assert "nkireview memory kernel.py --input x=bf16[4096,2048]" in text and "Exit codes: 0 it fits" in text


# Sentences


@pytest.mark.parametrize(
    ("figures", "wanted"),
    [
        (
            {"moved": 4096, "compulsory": 1024, "least": 1024, "least_why": "all fits", "attainable": True},
            "4.0 KiB moved over HBM, 1.0 KiB must move (4.00 times that), with this SBUF as without: all fits",
        ),
        (
            {"moved": 4096, "compulsory": 1024, "least": 2048, "least_why": "blocks", "attainable": True},
            "4.0 KiB moved over HBM, 1.0 KiB must move (4.00 times that); with this SBUF at least 2.0 KiB: blocks",
        ),
        (
            {"moved": 4096, "compulsory": 1024, "least": 1024},
            "4.0 KiB moved over HBM, 1.0 KiB must move (4.00 times that), with this SBUF as without; whether that can "
            "be reached is not known",
        ),
        (
            {"moved": 0, "compulsory": 0, "least": 0},
            "0 B moved over HBM, 0 B must move, with this SBUF as without",
        ),
    ],
)
def test_the_sentence_of_the_traffic(figures: dict[str, Any], wanted: str) -> None:
    assert moved(TrafficRecord(**figures)) == wanted


def test_a_verdict_and_its_findings_agree() -> None:
    with pytest.raises(ValueError, match="has no blocker"):
        WorkloadMemory(
            workload="w",
            verdict="cannot fit",
            instructions=1,
            traffic=TrafficRecord(moved=0, compulsory=0, least=0),
        )


@pytest.mark.parametrize(
    ("peak", "share"), [(212_983, "100%"), (212_984, "100%"), (212_992, "over 100%"), (270_336, "127%")]
)
def test_an_overflow_of_a_few_bytes_is_not_rounded_away(peak: int, share: str) -> None:
    space = SpaceRecord(
        memory="SBUF",
        core=0,
        usable=212_984,
        physical=229_376,
        peak=peak,
        peak_instruction=3,
        peak_place="k.py:7",
    )
    assert (
        fullest(space) == f"{peak:,} of 212,984 usable bytes a partition ({share}) at k.py:7, instruction 3"
    )
