"""`nkireview numerics`: verdicts and exit codes, figures against the formula, files, the page of the docs, refusals."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from test_report_html import Page

from nkireview.cli import main
from nkireview.numbers_record import NumbersRecord
from nkireview.numerics.inputs import draw_all, parse_input
from nkireview.record import NumericsSummary

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "numerics.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"`(\w+\.py)`[^`]*```python\n(.*?)```", PAGE, flags=re.S))
CALLS = [line for line in re.findall(r"```sh\n(.*?)```", PAGE, flags=re.S)[0].splitlines() if line]
INPUT = "x=f32[256,512]"
TASK = """
name = "double"
description = "Twice its input."
kernel = "double"
reference = "reference.py:double"
{more}
[workloads.small]
inputs.x = {{ dtype = "float32", shape = [16, 8] }}
{tolerance}
"""
DOUBLE = """import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def double(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=out, src=tile)
    return out
"""


def call(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, ["numerics", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The files of the page."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def given(folder: Path, *more: object) -> list[object]:
    return [
        folder / "kernel.py",
        "--reference",
        f"{folder / 'reference.py'}:rmsnorm",
        "--input",
        INPUT,
        *more,
    ]


def only(text: str) -> NumbersRecord:
    (found,) = NumericsSummary.model_validate_json(text).numbers
    return found


def rmsnorm(x: np.ndarray) -> np.ndarray:
    """Oracle, from the formula in float64."""
    wide = x.astype(np.float64)
    found: np.ndarray = wide / np.sqrt(np.mean(wide * wide, axis=1, keepdims=True) + 1e-6)
    return found


def drawn(seed: int) -> np.ndarray:
    name, spec = parse_input(INPUT)
    made = draw_all({name: spec}, seed)["x"]
    assert isinstance(made, np.ndarray)
    return made


# Verdicts


def test_a_difference_that_rounding_explains(folder: Path) -> None:
    code, text, _ = call(*given(folder, "--json", "--seed", 3))
    found = only(text)
    assert (code, found.verdict, found.seed, found.inputs) == (0, "rounding", 3, "as drawn")
    (output,) = found.outputs
    assert output.use is not None and 0 < output.use <= 1 and output.over == 0
    assert output.chosen is not None and output.chosen.rtol == pytest.approx(2.0**-24, rel=0.02)
    assert float(output.expected) == pytest.approx(float(rmsnorm(drawn(3))[output.at]), rel=1e-12)


def test_a_defect_with_its_cause(folder: Path) -> None:
    code, text, _ = call(*given(folder, "--json", "--inputs-kind", "tiny-rows"))
    found = only(text)
    assert (code, found.verdict, found.inputs) == (1, "defect", "tiny-rows")
    (cause,) = found.causes
    assert (cause.name, cause.place, cause.evidence) == ("eps-outside-root", "kernel.py:19", "repair")
    (output,) = found.outputs
    # every fourth row of 256 is tiny, and all 512 elements of those are wrong
    assert output.over == 64 * 512 and output.use is not None and output.use > 1000
    assert output.heat is not None and max(output.heat.use) == pytest.approx(output.use, rel=0.01)


def test_full_and_domain_add_what_they_say(folder: Path) -> None:
    code, text, _ = call(
        folder / "kernel.py",
        *("--reference", f"{folder / 'reference.py'}:rmsnorm", "--input", "x=bf16[128,32]"),
        *("--full", "--domain", "--json"),
    )
    found = only(text)
    assert code == 0
    assert {item.platform for item in found.platforms} >= {"gpu-fp32", "trn2"}
    assert found.routes and found.between
    assert any(sentence.startswith("rows: multiples of 128 only") for sentence in found.domain)
    plain = only(call(*given(folder, "--json"))[1])
    assert not (plain.platforms or plain.routes or plain.domain or plain.audit)


def test_a_submission_of_a_task_tells_every_workload_that_is_executed() -> None:
    code, text, _ = call(ROOT / "examples" / "rmsnorm" / "submissions" / "good", "--json")
    found = NumericsSummary.model_validate_json(text)
    assert code == 0
    assert [item.workload for item in found.numbers] == ["tile", "tails", "bfloat16"]
    assert found.notes == ("large: not executed, as the task says (schedule_only)",)


def task(folder: Path, *, kernel: str = DOUBLE, more: str = "", tolerance: str = "") -> Path:
    """A task with one submission whose reference doubles."""
    (folder / "task.toml").write_text(TASK.format(more=more, tolerance=tolerance), encoding="utf-8")
    (folder / "reference.py").write_text("def double(x):\n    return 2 * x\n", encoding="utf-8")
    (folder / "submissions" / "one").mkdir(parents=True)
    (folder / "submissions" / "one" / "kernel.py").write_text(kernel, encoding="utf-8")
    return folder


def test_a_task_may_rearrange_what_the_kernel_returns(tmp_path: Path) -> None:
    flat = DOUBLE.replace("    return out", "    return out.reshape((8, 16))")
    more = 'kernel_outputs = "rearrange.py:back"'
    made = task(tmp_path, kernel=flat, more=more)
    (tmp_path / "rearrange.py").write_text(
        "def back(outputs, reference):\n    return outputs.reshape(reference.shape)\n", encoding="utf-8"
    )
    code, text, problems = call(made, "--json")
    assert code == 0, problems
    (output,) = only(text).outputs
    assert output.shape == (8, 16) and output.use == 0
    shutil.rmtree(tmp_path / "submissions")
    task(tmp_path, kernel=flat.replace("operand0=2.0", "operand0=3.0"), more=more)
    code, text, _ = call(made, "--json")
    assert code == 1 and only(text).outputs[0].over == 128


def test_a_task_that_computes_with_what_the_kernel_returns_cannot_be_judged(tmp_path: Path) -> None:
    made = task(tmp_path, more='kernel_outputs = "rearrange.py:back"')
    (tmp_path / "rearrange.py").write_text(
        "def back(outputs, reference):\n    return outputs * 2\n", encoding="utf-8"
    )
    assert "computes with the kernel's outputs" in refused(made)


def test_a_part_that_is_not_compared_does_not_count(tmp_path: Path) -> None:
    """The kernel's output has rows of twice the length, of which the task compares the first half."""
    wide = DOUBLE.replace(
        "out = nl.ndarray(x.shape,", "out = nl.ndarray((x.shape[0], 2 * x.shape[1]),"
    ).replace(
        "    nisa.dma_copy(dst=out, src=tile)",
        "    nisa.dma_copy(dst=out[:, 0:8], src=tile)\n    nisa.dma_copy(dst=out[:, 8:16], src=tile)",
    )
    made = task(tmp_path, kernel=wide, more='kernel_outputs = "rearrange.py:back"')
    (tmp_path / "rearrange.py").write_text(
        "def back(outputs, reference):\n    return outputs[:, : reference.shape[1]]\n", encoding="utf-8"
    )
    code, text, problems = call(made, "--json")
    assert code == 0, problems
    assert only(text).outputs[0].shape == (16, 16)


def test_what_a_tasks_own_tolerance_lets_through(tmp_path: Path) -> None:
    made = task(tmp_path, tolerance="[tolerance]\nabsolute = 1000.0\nrms = 1000.0\n")
    code, text, problems = call(made, "--json")
    assert code == 0, problems
    found = only(text)
    assert found.own_tolerance and found.outputs[0].zeros == 1.0
    assert "100% of out could be zero unnoticed" in call(made)[1]


# Files


def test_out_writes_the_same_as_json_and_as_a_page(folder: Path) -> None:
    code, text, _ = call(*given(folder, "--inputs-kind", "tiny-rows", "--json", "--out", folder / "o"))
    assert code == 1
    written = (folder / "o" / "numerics.json").read_text(encoding="utf-8")
    assert json.loads(written) == json.loads(text) and written.isascii()
    page = Page((folder / "o" / "numerics.html").read_text(encoding="utf-8"))
    assert "eps-outside-root" in page.text and "kernel.py:19" in page.text
    assert sum(given.get("class") == "heat" for name, given in page.elements if name == "figure") == 1
    assert not {"script", "img"} & {name for name, _ in page.elements}


def test_without_out_nothing_is_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    before = sorted(item.name for item in folder.iterdir())
    assert call(*given(folder))[0] == 0
    assert sorted(item.name for item in folder.iterdir() if item.name != "__pycache__") == before


# The page of the docs


@pytest.mark.parametrize("line", CALLS)
def test_the_calls_of_the_page_run(line: str, folder: Path) -> None:
    shutil.copytree(ROOT / "examples", folder / "examples")
    command, _, comment = line.partition("#")
    words = [sys.executable, "-m", *shlex.split(command)]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == (int(comment.split()[1]) if comment else 0), (done.stdout, done.stderr)


def test_the_screen_of_the_page_is_the_real_one(folder: Path) -> None:
    (shown,) = re.findall(r"```text\n(.*?)```", PAGE, flags=re.S)
    code = (
        "import sys, nkireview.cli.numerics as command\n"
        "from rich.console import Console\n"
        "command.screen = lambda: Console(width=110)\n"
        "command.main(sys.argv[1:])\n"
    )
    line = next(line for line in CALLS if "tiny-rows" in line)
    _, *words = shlex.split(line.partition("#")[0])
    # time enough, so that what is drawn does not depend on how busy the machine is
    words = [sys.executable, "-c", code, *words, "--seconds", "300"]
    done = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, check=False, env={**os.environ, "NO_COLOR": "1"}
    )
    assert done.returncode == 1 and done.stdout == shown, done.stdout + done.stderr


# What is refused


def refused(*arguments: object) -> str:
    code, text, problems = call(*arguments)
    assert code == 2 and not text and "Traceback" not in problems
    (line,) = problems.splitlines()
    return line


def test_wrong_calls_are_one_sentence(folder: Path) -> None:
    path = folder / "kernel.py"
    assert "nothing to compare with; give --reference" in refused(path, "--input", INPUT)
    assert "nothing to compare with, and it lies in no task" in refused(path)
    assert "no such file or folder" in refused(folder / "none.py")
    assert "good, slow, wrong); name one of them" in refused(ROOT / "examples" / "matmul")
    assert "can be made hostile in the way 'large-integers'" in refused(
        *given(folder, "--inputs-kind", "large-integers")
    )


@pytest.mark.parametrize(
    ("file", "change", "wanted"),
    [
        ("kernel.py", ("1 / columns", "1 // 0"), "division"),
        (
            "kernel.py",
            ("range(0, rows, 128)", "range(0, rows + 1, 128)"),
            "its result has no meaning: dma_copy",
        ),
        (
            "kernel.py",
            ("import nki\n", "import os\nimport nki\n\nos.kill(1, 9)\n"),
            "not run, since the file",
        ),
        ("reference.py", ("+ 1e-6", "+ nothing"), "reference reference.py:rmsnorm: NameError"),
        ("reference.py", ("return x", "return x[:, :7]"), "the reference"),
    ],
    ids=["raises", "no meaning", "forbidden", "reference fails", "other shape"],
)
def test_what_cannot_be_judged_exits_with_2(
    folder: Path, file: str, change: tuple[str, str], wanted: str
) -> None:
    text = FILES[file]
    assert change[0] in text
    (folder / file).write_text(text.replace(*change), encoding="utf-8")
    assert wanted in refused(*given(folder))


def test_a_task_that_executes_nothing(tmp_path: Path) -> None:
    made = task(tmp_path)
    text = (made / "task.toml").read_text(encoding="utf-8")
    (made / "task.toml").write_text(
        text.replace("[workloads.small]", "[workloads.small]\nschedule_only = true"), encoding="utf-8"
    )
    assert "executes none of its workloads" in refused(made)


def test_help_has_examples() -> None:
    code, text, _ = call("--help")
    assert code == 0 and "nkireview numerics kernel.py --reference ref.py:softmax" in text
    assert "Exit codes: 0 rounding explains every difference" in text and "tiny-rows" in text


@pytest.mark.parametrize("option", ["--seconds", "--wall"])
@pytest.mark.parametrize("value", ["nan", "inf"])
def test_times_that_are_no_numbers_are_refused(folder: Path, option: str, value: str) -> None:
    assert f"{option} is {value}: expected a number of seconds" in refused(*given(folder, option, value))
