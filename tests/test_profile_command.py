"""`nkireview profile`: screen, page, trace, summary and JSON against the profile they show, and what is refused."""

from __future__ import annotations

import csv
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner
from profile_kit import table
from rich.console import Console
from test_perfetto import Read
from test_report_html import Page

from nkireview.checks.bounds import BoundLine
from nkireview.checks.roofline import Roofline
from nkireview.checks.usage import Usage
from nkireview.cli import main
from nkireview.profiling import ExposedLine, IdleCause, LaneUse, Overlap, PathLine, Profile
from nkireview.record import Setting, Subject
from nkireview.report.profile import Shown, headline, print_profile, profile_html
from nkireview.report.profile_record import profile_json
from nkireview.report.profile_summary import summary_json
from nkireview.report.schema import PROFILE_FILE, profile_schema

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = ROOT.parent / "shared" / "evidence" / "samples"
COPY = """import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def copy(x):
    rows, columns = x.shape
    out = nl.ndarray((rows, columns), dtype=x.dtype, buffer=nl.shared_hbm)
    for row in range(0, rows, 128):
        tile = nl.ndarray((128, columns), dtype=x.dtype, buffer=nl.sbuf, name="tile")
        nisa.dma_copy(dst=tile, src=x[row : row + 128, :])
        nisa.dma_copy(dst=out[row : row + 128, :], src=tile)
    return out
"""


def kernel(folder: Path, text: str = COPY) -> Path:
    path = folder / "kernel.py"
    path.write_text(text, encoding="utf-8")
    return path


def call(*arguments: object) -> tuple[int, str, str]:
    found = CliRunner().invoke(main, ["profile", *map(str, arguments)])
    return found.exit_code, found.stdout, found.stderr


# A profile made by hand: what is shown of it is worked out on paper

SLICES = table(
    [
        ("sync", 0.0, 500.0, "dma_copy", "kernel.py:12"),
        ("dma", 400.0, 6000.0, "dma_copy", "kernel.py:12"),
        ("tensor", 6000.0, 9000.0, "nc_matmul", "kernel.py:15"),
        ("vector", 9000.0, 10000.0, "tensor_copy", "kernel.py:16"),
    ],
    blockers={1: (0, 2), 2: (1, 2), 3: (2, 2)},
)
PROFILE = Profile(
    name="inputs",
    target="trn2",
    release="0.6",
    lnc=1,
    total_ns=10_000.0,
    low_ns=7_000.0,
    high_ns=13_000.0,
    band_words="of 8 in 10 kernels",
    assumed=("a figure of trn2",),
    clocks={"window": 10_000.0, "benchmark": 20_000.0, "active": 21_000.0, "total": 27_000.0},
    spreads={"window": 0.0, "benchmark": 1_000.0, "active": 0.0, "total": 2_000.0},
    slices=SLICES,
    lanes=(
        LaneUse(
            0,
            "tensor",
            3000.0,
            0.3,
            (0.0,) * 72 + (1.0,) * 36 + (0.0,) * 12,
            (
                IdleCause("data", "dma_copy", "kernel.py:12", "dma", "HBM bandwidth", 6000.0, 3),
                IdleCause("no more work", "", "", "", "", 1000.0, 1),
            ),
        ),
        LaneUse(0, "dma", 5600.0, 0.56, (0.5,) * 120, ()),
    ),
    critical=(
        PathLine("kernel.py:12", "dma_copy", "dma", 6000.0, 0.6, "data", 400.0),
        PathLine("kernel.py:15", "nc_matmul", "tensor", 3000.0, 0.3, "nothing", 0.0),
        PathLine("", "", "vector", 1000.0, 0.1, "data", 1000.0),
    ),
    overlap=Overlap(5600.0, 4000.0, 1400.0, 0.25, (ExposedLine("kernel.py:12", "dma_copy", 4200.0),)),
    usage=Usage(1.0, 0.5, 0.5, {"vector": 0.75}, 0.4, 16.0, 9.0, 16),
    roofline=Roofline(
        flops=16_777_216.0,
        hbm_bytes=65536.0,
        intensity=256.0,
        dtypes=("bfloat16",),
        peak_flops=78.6e12,
        peak_bandwidth=362e9,
        ridge=217.1,
        attained=1.68e12,
        attainable=78.6e12,
        side="compute side",
    ),
    bounds=(
        BoundLine("memory", "active", 5600.0, "a transfer runs"),
        BoundLine("memory", "ideal", 181.0, "at full bandwidth"),
        BoundLine("compute", "active", 3000.0, "the busiest engine"),
        BoundLine("pipeline", "what is left", 4400.0, "the rest"),
    ),
    metrics={"total_time": 2.7e-05, "matmul_instruction_count": 1, "mfu_estimated_percent": 0.01},
)
SUBJECT = Subject(
    kernel="k",
    file="kernel.py",
    target=Setting(value="trn2", origin="default"),
    release=Setting(value="0.6", origin="default"),
    lnc=Setting(value="1", origin="default"),
)


def shown(**changes: Any) -> Shown:
    return Shown("nkireview 1", SUBJECT, replace(PROFILE, **changes))


def screen(width: int, found: Shown, **options: Any) -> list[str]:
    console = Console(width=width, record=True, file=open(os.devnull, "w"), **options)  # noqa: SIM115, PTH123
    print_profile(found, console)
    return console.export_text().splitlines()


@pytest.mark.parametrize(
    ("clock", "wanted"),
    [
        ("benchmark", "about 20.0 us (16 to 24 us), nki.benchmark clock, simulated on trn2"),
        ("window", "about 10.0 us (7.0 to 13 us), first to last work, simulated on trn2"),
        ("active", "about 21.0 us (18 to 24 us), total_active_time clock, simulated on trn2"),
        ("total", "about 27.0 us (22 to 32 us), total_time clock, simulated on trn2"),
    ],
)
def test_the_headline_has_its_clock_and_range(clock: str, wanted: str) -> None:
    assert headline(replace(shown(), clock=clock)) == wanted


def test_the_screen_of_a_profile() -> None:
    lines = screen(100, shown())
    text = "\n".join(lines)
    assert lines[:2] == ["kernel.py: kernel k", "trn2 (default), NKI 0.6 (default), LNC 1 (default)"]
    (tensor,) = [line for line in lines if line.startswith("  tensor") and "█" in line]
    # 82 columns for 120 steps: busy from 60% to 90% of them
    bar = tensor[10:92]
    assert bar.index("█") == pytest.approx(0.6 * 82, abs=1) and len(bar.rstrip()) == pytest.approx(
        0.9 * 82, abs=1
    )
    assert tensor.endswith(" 30%") and "  dma     " + "▄" * 82 + "   56%" in text
    assert "1.00 us  10%  no more work" in text
    assert re.search(r"kernel.py:12 +6.00 us +60%  dma_copy on dma, after data; 400 ns of it latency", text)
    assert re.search(r"kernel.py:15 +3.00 us +30%  nc_matmul on tensor\n", text)
    assert re.search(r"\? +1.00 us +10%  work of no instruction on vector, after data; latency only", text)
    flat = " ".join(text.split())
    assert (
        "25% of 5.60 us of DMA transfers run while an engine computes (engines compute for 4.00 us)" in flat
    )
    assert "not hidden: dma_copy kernel.py:12 4.20 us" in flat
    assert "PE rows 100%, columns 50%, cells 50% while it works" in flat and "vector 75%" in flat
    assert "HBM 40% of its bandwidth" in flat and "16.0 of 16 DMA engines, 9.0 are busy on average" in flat
    assert (
        "compute side: 256 FLOP a byte of HBM, ridge at 217.1; attains 1.68 TFLOP/s of 78.6 TFLOP/s" in flat
    )
    assert (
        "Bounds memory: active 5.60 us, ideal 181 ns compute: active 3.00 us pipeline: what is left 4.40 us"
        in flat
    )
    assert "Assumed: a figure of trn2." in flat and "range of the last of 8 in 10 kernels" in flat


@pytest.mark.parametrize("width", [60, 80, 132])
def test_no_line_is_wider_than_the_screen(width: int) -> None:
    lines = screen(width, shown())
    assert max(map(len, lines)) <= width


def test_colours_only_on_a_terminal() -> None:
    def printed(terminal: bool) -> str:
        console = Console(width=80, force_terminal=terminal, color_system="standard" if terminal else None)
        with console.capture() as capture:
            print_profile(shown(), console)
        return capture.get()

    assert "\x1b[" in printed(True) and "\x1b[" not in printed(False)


def test_a_profile_of_nothing_is_shown() -> None:
    empty = shown(
        total_ns=0.0,
        low_ns=0.0,
        high_ns=0.0,
        clocks={"window": 0.0, "benchmark": 10_000.0, "active": 11_000.0, "total": 17_000.0},
        slices=table([]),
        lanes=(),
        critical=(),
        overlap=Overlap(0.0, 0.0, 0.0, 0.0, ()),
        usage=Usage(None, None, None, {}, 0.0, None, 0.0, 16),
        roofline=replace(PROFILE.roofline, flops=0.0, hbm_bytes=0.0, intensity=float("inf")),
    )
    assert any("no DMA transfers" in line for line in screen(80, empty))
    assert "0 slices" in Page(profile_html(empty)).text
    assert json.loads(profile_json(empty))["roofline"]["intensity"] == "Infinity"


# The page


def test_the_page_says_what_the_screen_says_and_each_line() -> None:
    page = Page(profile_html(shown()))
    for text in (
        "20.0 us",
        "16 to 24 us",
        "nki.benchmark clock",
        "data: dma_copy kernel.py:12 on dma, which waited for HBM bandwidth (3 times)",
        "dma_copy on dma, after data; 400 ns of it latency",
        "4 slices, each drawn by itself.",
        "a figure of trn2",
        "25% of 5.60 us of DMA transfers",
        "kernel.py:16",
    ):
        assert text in page.text, text
    names = [name for name, _ in page.elements]
    assert names.count("script") == 2 and not {"img", "link", "iframe"} & set(names)
    for _, given in page.elements:
        assert "src" not in given and not [key for key in given if key.startswith("on")]
    (allowed,) = [given["content"] for _, given in page.elements if "http-equiv" in given]
    assert re.fullmatch(
        r"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-[\w+/=]+'; base-uri 'none'; form-action "
        "'none'",
        allowed,
    )


def test_a_hostile_name_is_shown_as_text() -> None:
    nasty = "</script><script>alert(1)</script>\x1b[31m"
    hostile = shown(slices=table([("vector", 0.0, 1.0, nasty, nasty)]), name=nasty, assumed=(nasty,))
    text = profile_html(hostile)
    assert "<script>alert" not in text and "\x1b" not in text
    assert all("\x1b[31m" not in line for line in screen(80, hostile))


@pytest.mark.skipif(
    shutil.which("chromium") is None,
    reason="runs the page's script in a browser, and chromium is not installed; what the script is given is tested "
    "everywhere",
)
def test_the_policy_of_the_page_lets_its_script_run(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(profile_html(shown()), encoding="utf-8")
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=2000"]
    command += [f"--user-data-dir={tmp_path / 'browser'}", "--dump-dom", (tmp_path / "page.html").as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert '<figure class="timeline ready">' in done.stdout


# JSON and summary


def test_the_json_holds_everything_and_keeps_to_its_schema() -> None:
    made = json.loads(profile_json(shown()))
    jsonschema.validate(made, json.loads(profile_schema()))
    assert made["simulated"] is True and made["workload"] == "inputs"
    assert made["lanes"][0]["idle"][0]["behind"] == "HBM bandwidth"
    assert made["metrics"] == dict(PROFILE.metrics) and made["clocks"] == dict(PROFILE.clocks)
    slices = made["slices"]
    for name in ("lane", "start", "stop", "wait", "blocker", "name", "place", "bytes", "flops"):
        assert slices[name] == getattr(SLICES, name).tolist()
    assert slices["places"] == ["kernel.py:12", "kernel.py:15", "kernel.py:16"]


def test_the_schema_of_the_package_is_current() -> None:
    assert PROFILE_FILE.read_text(encoding="utf-8") == profile_schema(), (
        "run python -m nkireview.report.schema"
    )
    found = CliRunner().invoke(main, ["schema", "--profile"])
    assert found.exit_code == 0 and found.output == profile_schema()


def test_the_summary_is_read_as_the_profilers_is() -> None:
    made = json.loads(summary_json(PROFILE, "nkireview 1"))
    # as every public reader does: the first and only node, flat figures by name
    (node,) = made.values()
    assert re.fullmatch(r"n_[0-9a-f]{8}", next(iter(made)))
    assert node["total_time"] == 2.7e-05 and node["matmul_instruction_count"] == 1
    assert node["simulated"] is True and "simulated" in node["profiler_version"]
    # a launch adds 17 us, 2 us more or less, to the window of 10 us, whose range is 7 to 13 us
    assert (node["simulated_total_time_low"], node["simulated_total_time_high"]) == (2.2e-05, 3.2e-05)
    assert node["simulated_band"] == PROFILE.band_words
    assert not [value for value in node.values() if isinstance(value, (dict, list))]


# The command


def test_all_files_of_a_real_kernel_agree(tmp_path: Path) -> None:
    path = kernel(tmp_path)
    code, text, problems = call(path, "--input", "x=f32[512,64]", "--out", tmp_path / "out")
    assert code == 0 and not problems
    assert sorted(item.name for item in (tmp_path / "out").iterdir()) == [
        "profile.html",
        "profile.json",
        "profile.pftrace",
        "summary.json",
    ]
    made = json.loads((tmp_path / "out" / "profile.json").read_text(encoding="utf-8"))
    jsonschema.validate(made, json.loads(profile_schema()))
    slices, lanes = made["slices"], made["slices"]["lanes"]
    # four rows of tiles, each loaded and stored: an issue and a transfer for each
    assert len(slices["start"]) == 16
    assert {slices["places"][at] for at in slices["place"]} == {"kernel.py:12", "kernel.py:13"}
    trace = Read((tmp_path / "out" / "profile.pftrace").read_bytes())
    assert len(trace.slices) == 16
    for at, each in trace.slices.items():
        assert each["start"] == round(slices["start"][at])
        assert each["args"]["nki_source_location"] == slices["places"][slices["place"][at]]
        dma = lanes[slices["lane"][at]]["name"] == "dma"
        assert (each["args"].get("transfer_size") == 128 * 64 * 4) is dma
        assert ("opcode" in each["args"]) is not dma
    (node,) = json.loads((tmp_path / "out" / "summary.json").read_text(encoding="utf-8")).values()
    assert node["hbm_read_bytes"] == node["hbm_write_bytes"] == 512 * 64 * 4
    assert node["total_time"] == pytest.approx(made["clocks"]["total"] / 1e9)
    page = Page((tmp_path / "out" / "profile.html").read_text(encoding="utf-8"))
    assert "kernel.py:12" in page.text and "kernel.py:13" in page.text
    assert "simulated on trn2" in text and f"Written: {tmp_path / 'out'}" in text


def test_metrics_have_names_that_real_summaries_have(tmp_path: Path) -> None:
    files = sorted(SAMPLES.glob("trn2/*/*_profile_full.json"))
    if not files:
        pytest.skip(
            f"compares the summary's names with real profiles in {SAMPLES}, which are data of others and no part of "
            "the project; that the summary has its names and values is tested everywhere"
        )
    real = set(json.loads(files[0].read_text(encoding="utf-8"))["summary"][0])
    # documented as well, and written by other versions of the profiler
    with (SAMPLES.parent / "summary_metrics.csv").open(encoding="utf-8", newline="") as stream:
        real |= {row["metric"] for row in csv.DictReader(stream)}
    code, _, _ = call(
        kernel(tmp_path), "--input", "x=f32[512,64]", "--summary", tmp_path / "deep" / "summary.json"
    )
    assert code == 0
    (node,) = json.loads((tmp_path / "deep" / "summary.json").read_text(encoding="utf-8")).values()
    assert {key for key in node if not key.startswith("simulated")} <= real and len(node) > 30


def test_two_cores_have_lanes_and_processes_of_their_own(tmp_path: Path) -> None:
    both = COPY.replace("range(0, rows, 128)", "range(nl.program_id(0) * 128, rows, 256)")
    code, text, _ = call(
        kernel(tmp_path, both), "--input", "x=f32[512,64]", "--lnc", 2, "--perfetto", tmp_path / "k.pftrace"
    )
    assert code == 0 and "  sync 0" in text and "  dma 1" in text
    trace = Read((tmp_path / "k.pftrace").read_bytes())
    assert len(trace.processes) == 2 and all(", core " in name for name in trace.processes.values())


def test_a_task_shows_every_workload_and_json_lists_them() -> None:
    path = ROOT / "examples" / "softmax" / "submissions" / "good"
    code, text, _ = call(path)
    assert code == 0
    for name in ("tile", "tails", "bfloat16", "large"):
        assert f"{name}: about " in text
    code, text, _ = call(path, "--json")
    assert [each["workload"] for each in json.loads(text)] == ["tile", "tails", "bfloat16", "large"]
    code, text, _ = call(path, "--json", "--workload", "tails")
    assert json.loads(text)["workload"] == "tails"


def test_a_kernel_that_breaks_a_limit_exits_with_1(tmp_path: Path) -> None:
    code, text, problems = call(
        kernel(tmp_path, COPY.replace("128", "256")), "--input", "x=f32[512,64]", "--out", tmp_path / "out"
    )
    (line,) = problems.splitlines()
    assert code == 1 and "inputs: not legal, and timed as if it were: " in line
    assert "partition size 256 exceeds 128" in line and "simulated on trn2" in text
    # the screen's lines may break anywhere
    assert "not legal, and timed as if it were" in " ".join(text.split())
    told = json.loads((tmp_path / "out" / "profile.json").read_text(encoding="utf-8"))["illegal"]
    assert told.startswith("not legal, and timed as if it were: ") and "exceeds 128" in told
    half = COPY.replace("(128, columns), dtype=x.dtype", "(64, columns), dtype=x.dtype")
    code, text, problems = call(kernel(tmp_path, half), "--input", "x=f32[512,64]")
    (line,) = problems.splitlines()
    assert code == 1 and not text and "inputs: not legal, so that nothing was timed: dma_copy: " in line


def test_progress_is_told_while_it_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []

    class Progress:
        def __enter__(self) -> Any:
            return told.append

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr("nkireview.cli.profile.progress", lambda _: Progress())
    assert call(kernel(tmp_path), "--input", "x=f32[128,64]", "--html", tmp_path / "p.html")[0] == 0
    assert told == ["inputs: tracing", "inputs: timing 2 instructions", "drawing the timeline"]


# What is refused


def refused(*arguments: object) -> str:
    code, text, problems = call(*arguments)
    assert code == 2 and not text and "Traceback" not in problems
    return problems.splitlines()[-1]


def test_wrong_calls_are_one_sentence(tmp_path: Path) -> None:
    path, task = kernel(tmp_path), ROOT / "examples" / "softmax" / "submissions" / "good"
    assert "kernel.py: no inputs, and it lies in no task; give --input" in refused(path)
    assert "no such file or folder" in refused(tmp_path / "none.py")
    assert "--workload x: there is none of that name; known: tile, tails" in refused(task, "--workload", "x")
    assert "--perfetto writes one workload; name one with --workload: tile" in refused(
        task, "--perfetto", tmp_path / "p"
    )
    assert "'--clock': 'wall' is not one of" in refused(path, "--clock", "wall")
    assert "name one of them" in refused(ROOT / "examples" / "matmul")
    folder = tmp_path / "file"
    folder.write_text("", encoding="utf-8")
    assert "expected a folder" in refused(
        path, "--input", "x=f32[128,64]", "--summary", folder / "summary.json"
    )
    assert "division" in refused(
        kernel(tmp_path, COPY.replace("rows, 128)", "rows, 1 // 0)")), "--input", "x=f32[128,64]"
    )
    same = tmp_path / "same"
    assert f"--html and --summary both write {same}; name two files" in refused(
        kernel(tmp_path, COPY), "--input", "x=f32[512,64]", "--html", same, "--summary", same
    )


def test_help_has_examples() -> None:
    code, text, _ = call("--help")
    assert code == 0
    assert (
        "nkireview profile kernel.py --input x=bf16[4096,2048]" in text
        and "Exit codes: 0 it was timed" in text
    )


# The page of the docs

DOCS = (ROOT / "docs" / "profile.md").read_text(encoding="utf-8")
CALLS = [line for line in re.findall(r"```sh\n(.*?)```", DOCS, flags=re.S)[0].splitlines() if line]


@pytest.mark.parametrize("line", CALLS)
def test_the_calls_of_the_page_run(line: str, tmp_path: Path) -> None:
    kernel(tmp_path)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    command, _, comment = line.partition("#")
    call = [sys.executable, "-m", *shlex.split(command)]
    done = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == (int(comment.split()[1]) if comment else 0), (done.stdout, done.stderr)


def test_the_arguments_of_the_page_are_those_of_a_trace(tmp_path: Path) -> None:
    (row,) = re.findall(r"^\| arguments \| (.*) \|$", DOCS, flags=re.M)
    (own,) = re.findall(r"^\| of our own \| (.*) \|$", DOCS, flags=re.M)
    path = tmp_path / "k.pftrace"
    code, _, _ = call(
        ROOT / "examples" / "matmul" / "submissions" / "good", "--workload", "square", "--perfetto", path
    )
    assert code == 0
    seen = {key for each in Read(path.read_bytes()).slices.values() for key in each["args"]}
    assert seen == set(re.findall(r"`(\w+)`", row + own))


def test_issuing_a_dma_that_casts_is_no_computing_and_moves_what_lies_in_hbm(tmp_path: Path) -> None:
    text = """
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=nl.bfloat16, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.dma_copy(dst=out, src=tile)
    return out
"""
    code, found, _ = call(kernel(tmp_path, text), "--input", "x=f32[128,1024]", "--json")
    record = json.loads(found)
    bounds = {(each["group"], each["name"]): each["ns"] for each in record["bounds"]}
    moved = 128 * 1024 * (4 + 2)
    assert code == 0 and bounds["compute", "active"] == 0
    assert bounds["memory", "ideal"] == pytest.approx(moved / 362.5)
    assert record["metrics"]["hbm_read_bytes"] + record["metrics"]["hbm_write_bytes"] == moved
