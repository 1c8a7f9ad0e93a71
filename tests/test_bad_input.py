"""Bad input: each gets its sentence or its finding, and the exit code that the design says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest
from click.testing import CliRunner

from nkireview.cli import main
from nkireview.record import ReviewRecord
from nkireview.requests import from_file
from nkireview.review import review
from nkireview.rules.finding import Severity
from nkireview.runner import ForkServer, Limits

HEAD = """\
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

def ref(x):
    return x * 2

def make(seed):
    return [np.random.default_rng(seed).standard_normal((128, 64)).astype(np.float32)]

def body(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=x)
    nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=out, src=t)
    return out
"""
QUICK = Limits(wall_s=10.0, cpu_s=4, scratch_bytes=8 * 2**20)


def write(folder: Path, kernel: str) -> Path:
    path = folder / "kernel.py"
    path.write_text(f"{HEAD}\n@nki.jit\n{dedent(kernel).strip()}\n", encoding="utf-8")
    return path


def write_beside(folder: Path, kernel: str) -> Path:
    """A kernel whose mischief is in a module of its own, where the source check does not look."""
    (folder / "mischief.py").write_text(f"{HEAD}\n\n{dedent(kernel).strip()}\n", encoding="utf-8")
    path = folder / "kernel.py"
    path.write_text(
        f"{HEAD}\nimport mischief\n\n@nki.jit\ndef k(x):\n    return mischief.k(x)\n", encoding="utf-8"
    )
    return path


def judge(server: ForkServer, path: Path, limits: Limits = QUICK, nki: str | None = None) -> ReviewRecord:
    request = from_file(
        path,
        kernel=None,
        reference=f"{path}:ref",
        inputs=("x=f32[128,64]",),
        inputs_from=None,
        target=None,
        nki=nki,
        lnc=None,
    )
    return review(replace(request, limits=limits), server)


def blocker(record: ReviewRecord) -> tuple[str, str]:
    assert record.status == "rejected" and int(record.exit_code) == 1
    found = [finding for finding in record.findings if finding.severity is Severity.blocker]
    assert len(found) == 1, found
    return found[0].code, found[0].message


def test_a_right_kernel_is_acceptable(server: ForkServer, tmp_path: Path) -> None:
    record = judge(server, write(tmp_path, "def k(x):\n    return body(x)"))
    assert (record.status, int(record.exit_code)) == ("acceptable", 0), record


def test_a_kernel_that_raises(server: ForkServer, tmp_path: Path) -> None:
    path = write(tmp_path, "def k(x):\n    assert x.shape[0] == 7, 'seven rows only'")
    line = len(HEAD.splitlines()) + 4
    assert blocker(judge(server, path)) == (
        "NKR003",
        f"the kernel raises: AssertionError: seven rows only (kernel.py:{line})",
    )


def test_a_kernel_that_loops_forever(server: ForkServer, tmp_path: Path) -> None:
    code, message = blocker(
        judge(server, write(tmp_path, "def k(x):\n    while True: pass"), replace(QUICK, wall_s=1.0))
    )
    assert code == "NKR005" and "ran longer than 1" in message


def test_a_kernel_that_allocates_100_gb(server: ForkServer, tmp_path: Path) -> None:
    path = write(tmp_path, "def k(x):\n    np.ones(100 * 2**30, dtype=np.uint8)\n    return body(x)")
    code, message = blocker(judge(server, path))
    assert code == "NKR005" and "memory" in message


def test_a_debugger_that_is_left_in_stops_nobody(server: ForkServer, tmp_path: Path) -> None:
    record = judge(server, write(tmp_path, "def k(x):\n    breakpoint()\n    return body(x)"))
    assert (record.status, int(record.exit_code)) == ("acceptable", 0), record
    found = [(f.code, f.severity, f.message) for f in record.findings if "debugger" in f.message]
    line = len(HEAD.splitlines()) + 4
    assert found == [
        ("NKR049", Severity.minor, f"the kernel uses breakpoint, a call of the debugger (kernel.py:{line})")
    ]


def test_a_kernel_that_exits(server: ForkServer, tmp_path: Path) -> None:
    path = write_beside(tmp_path, "def k(x):\n    import os\n    os._exit(0)")
    code, message = blocker(judge(server, path))
    assert code == "NKR005" and "exit" in message


def test_a_kernel_that_prints_a_million_lines(server: ForkServer, tmp_path: Path) -> None:
    path = write(tmp_path, "def k(x):\n    for i in range(10**6): print(i)\n    return body(x)")
    record = judge(server, path)
    assert record.status == "acceptable" or blocker(record)[0] == "NKR005"


def test_a_kernel_that_forges_an_instruction(server: ForkServer, tmp_path: Path) -> None:
    path = write_beside(
        tmp_path,
        """
        def k(x):
            from nkireview.nki.trace import active
            out = body(x)
            active().builder.append("win", ("dst",), [out.access()], {})
            return out
        """,
    )
    code, message = blocker(judge(server, path))
    assert code == "NKR001" and "win" in message


def test_a_kernel_that_forges_operands(server: ForkServer, tmp_path: Path) -> None:
    path = write_beside(
        tmp_path,
        """
        def k(x):
            from nkireview.nki.trace import active
            out = body(x)
            active().builder.append("memset", ("dst", "src"), [out.access(), 10**6], {"value": 0.0})
            return out
        """,
    )
    code, message = blocker(judge(server, path))
    assert code in ("NKR005", "NKR006") and "operand" in message


def test_a_kernel_that_hands_back_a_program_with_a_billion_entries(
    server: ForkServer, tmp_path: Path
) -> None:
    path = write_beside(
        tmp_path,
        """
        def k(x):
            import io, zipfile
            import nkireview.runner.trace as child
            real = child.save
            def forged(program):
                source = zipfile.ZipFile(io.BytesIO(real(program)))
                target = io.BytesIO()
                with zipfile.ZipFile(target, "w") as archive:
                    for name in source.namelist():
                        data = source.read(name)
                        if name == "opcode.npy":
                            member = io.BytesIO()
                            header = {"descr": "<i4", "fortran_order": False, "shape": (10**9,)}
                            np.lib.format.write_array_header_1_0(member, header)
                            data = member.getvalue()
                        archive.writestr(name, data)
                return target.getvalue()
            child.save = forged
            return body(x)
        """,
    )
    code, message = blocker(judge(server, path))
    assert code == "NKR006" and "the program is malformed" in message


def test_a_kernel_that_hands_back_another_target(server: ForkServer, tmp_path: Path) -> None:
    path = write_beside(
        tmp_path,
        """
        def k(x):
            from nkireview.nki.trace import active
            from nkireview import hardware
            active().hardware = hardware.target("trn3")
            return body(x)
        """,
    )
    code, message = blocker(judge(server, path))
    assert code == "NKR006" and "the program's target is 'trn3', 'trn2' was asked for" in message


def test_a_grandchild_does_not_outlive_the_review(server: ForkServer, tmp_path: Path) -> None:
    path = write_beside(
        tmp_path,
        """
        def k(x):
            import os, subprocess, sys
            code = "import os, time; os.setsid(); time.sleep(1000)  # nkireview-orphan"
            child = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
            raise RuntimeError(f"pid {child.pid}")
        """,
    )
    _, message = blocker(judge(server, path))
    pid = int(message.split("pid ")[1].split()[0].rstrip(")"))
    for _ in range(50):
        if not Path(f"/proc/{pid}").exists():
            break
        time.sleep(0.05)
    assert not Path(f"/proc/{pid}").exists()


def test_a_kernel_that_fills_the_scratch_directory(server: ForkServer, tmp_path: Path) -> None:
    path = write_beside(
        tmp_path,
        """
        def k(x):
            for n in range(10_000):
                with open(f"junk{n}", "wb") as stream:
                    stream.write(bytes(2**20))
            return body(x)
        """,
    )
    code, message = blocker(judge(server, path))
    assert code == "NKR005" and "scratch" in message


def test_a_kernel_that_ignores_sigterm(server: ForkServer, tmp_path: Path) -> None:
    path = write_beside(
        tmp_path,
        """
        def k(x):
            import signal, time
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(1000)
        """,
    )
    code, message = blocker(judge(server, path, replace(QUICK, wall_s=1.0)))
    assert code == "NKR005" and "ran longer than 1" in message


def test_an_unknown_argument_is_named(server: ForkServer, tmp_path: Path) -> None:
    path = write(tmp_path, "def k(x):\n    nisa.memset(dst=x, value=0, mask=1)")
    code, message = blocker(judge(server, path))
    assert (
        code == "NKR004" and "memset: unknown argument 'mask', expected dst, value, engine, name" in message
    )


def test_a_call_without_a_row_is_not_judged(server: ForkServer, tmp_path: Path) -> None:
    path = write(tmp_path, "def k(x):\n    nisa.tensor_copy_dynamic_src(dst=x, src=x)")
    record = judge(server, path, nki="0.3")
    assert int(record.exit_code) == 2
    assert record.reason.startswith("not yet supported: nisa.tensor_copy_dynamic_src (kernel.py:")


@pytest.mark.parametrize(
    ("source", "code", "message"),
    [
        ("def k(x:\n", "NKR004", "not Python"),
        ("x = 1\n", "NKR004", "has no kernel"),
        ("import nki\nfrom . import beside\n@nki.jit\ndef k(x): pass\n", "NKR004", "relative import"),
        (
            "import nki\nimport numpy.beside\n@nki.jit\ndef k(x): pass\n",
            "NKR004",
            "'numpy.beside', which does not",
        ),
        (
            "import nki\nimport nki.beside\n@nki.jit\ndef k(x): pass\n",
            "NKR004",
            "'nki.beside', which does not",
        ),
    ],
)
def test_a_file_that_is_no_kernel_is_a_result(
    server: ForkServer, tmp_path: Path, source: str, code: str, message: str
) -> None:
    path = tmp_path / "kernel.py"
    path.write_text(source, encoding="utf-8")
    (tmp_path / "ref.py").write_text("def ref(x): return x\n", encoding="utf-8")
    request = from_file(
        path,
        kernel=None,
        reference=f"{tmp_path}/ref.py:ref",
        inputs=("x=f32[4,4]",),
        inputs_from=None,
        target=None,
        nki=None,
        lnc=None,
    )
    found = blocker(review(request, server))
    assert found[0] == code and message in found[1]


NO_SUCH_PACKAGE = "no_such_package_of_anybody"
MISSING = (
    f"imports the package '{NO_SUCH_PACKAGE}', which is not installed here (PLACE): install it beside nkireview, or "
    "keep the import out of the files that the kernel needs"
)


@pytest.mark.parametrize(
    ("kernel", "beside", "place"),
    [
        (f"import {NO_SUCH_PACKAGE}.part\n", "", "kernel.py:1"),
        ("import helpers\n", f"\nfrom {NO_SUCH_PACKAGE} import part\n", "helpers.py:2"),
        ("", "", "kernel.py:6"),
    ],
    ids=["the file", "a module beside it", "the kernel"],
)
def test_a_package_that_is_not_installed_is_no_fault_of_the_kernel(
    server: ForkServer, tmp_path: Path, kernel: str, beside: str, place: str
) -> None:
    path = tmp_path / "kernel.py"
    late = "" if kernel else f"    import {NO_SUCH_PACKAGE}\n"
    path.write_text(f"{kernel}import nki\ndef ref(x): return x\n\n@nki.jit\ndef k(x):\n{late}    return x\n")
    (tmp_path / "helpers.py").write_text(beside)
    record = judge(server, path)
    assert (record.status, int(record.exit_code)) == ("not reviewed", 2)
    assert record.reason.startswith(MISSING.replace("PLACE", place)), record.reason
    assert not [finding for finding in record.findings if finding.severity is Severity.blocker]


@pytest.mark.parametrize("statement", ["from . import beside", "from .beside import f", "import own.beside"])
def test_a_module_that_the_submissions_own_package_lacks_is_a_finding(
    server: ForkServer, tmp_path: Path, statement: str
) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "__init__.py").write_text("")
    path = tmp_path / "own" / "kernel.py"
    path.write_text(f"import nki\n{statement}\ndef ref(x): return x\n@nki.jit\ndef k(x): return x\n")
    code, message = blocker(judge(server, path))
    assert code == "NKR004" and "beside" in message and "(kernel.py:2)" in message


def test_a_module_that_a_folder_beside_the_kernel_lacks_is_a_finding(
    server: ForkServer, tmp_path: Path
) -> None:
    (tmp_path / "parts").mkdir()
    path = tmp_path / "kernel.py"
    path.write_text("import nki\nimport parts.beside\ndef ref(x): return x\n@nki.jit\ndef k(x): return x\n")
    assert blocker(judge(server, path)) == (
        "NKR004",
        "not traced: imports 'parts.beside', which does not exist (kernel.py:2)",
    )


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, list(arguments))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def test_wrong_calls_end_with_one_sentence(tmp_path: Path) -> None:
    kernel = write(tmp_path, "def k(x):\n    return body(x)")
    two = tmp_path / "two.py"
    two.write_text(kernel.read_text() + "\n@nki.jit\ndef k2(x): return body(x)\n", encoding="utf-8")
    given = ("--reference", f"{kernel}:ref")
    for arguments, message in (
        (
            ("review", "nowhere.py"),
            "nowhere.py: no such file or folder; expected a task folder or a kernel file",
        ),
        (
            ("review", str(two), *given, "--input", "x=f32[128,64]"),
            "has 2 kernels (k, k2); name one with --kernel",
        ),
        (
            ("review", str(kernel), *given, "--kernel", "z", "--input", "x=f32[1]"),
            "has no function 'z'; its functions are",
        ),
        (("review", str(kernel), "--kernel", "k"), "nothing to compare with; give --reference FILE:FUNCTION"),
        (("review", str(kernel), *given), "no inputs; give --input x=bf16[4096,2048]"),
        (("review", str(kernel), *given, "--input", "x=bf17[4]"), "'bf17' is no dtype"),
        (("review", str(kernel), *given, "--input", "x"), "input 'x' has no value"),
        (("review", str(kernel), *given, "--input", "x=f32[4]", "--input", "x=f32[4]"), "x is given twice"),
        (("review", str(kernel), *given, "--input", "x=f32[4]", "--nki", "9.9"), "unknown NKI release '9.9'"),
        (("review", str(kernel), "--reference", "ref", "--input", "x=f32[4]"), "must be FILE:FUNCTION"),
        (("review", str(kernel), "--reference", "no.py:f", "--input", "x=f32[4]"), "no such file no.py"),
        (("review", str(tmp_path)), "task.toml"),
        (("review", str(tmp_path), "--kernel", "k"), "is a folder: --kernel belongs to a kernel file"),
    ):
        code, output = run(*arguments, "--out", str(tmp_path / "out"))
        assert code == 2 and message in output, (arguments, output)
        assert len(output.strip().splitlines()) == 1, output
    assert not (tmp_path / "out").exists()


def test_wrong_shapes_and_failing_references_are_said(tmp_path: Path) -> None:
    kernel = write(tmp_path, "def k(x):\n    return body(x)")
    (tmp_path / "ref.py").write_text(
        "def shape(x): return x[:4]\ndef fails(x): raise ValueError('no')\ndef two(x): return x, x\n",
        encoding="utf-8",
    )
    call = ("review", str(kernel), "--input", "x=f32[128,64]", "--out", str(tmp_path / "out"))
    code, output = run(*call, "--reference", f"{tmp_path}/ref.py:shape")
    assert code == 1 and "output out has shape [128, 64], the reference's [4, 64]" in " ".join(output.split())
    code, output = run(*call, "--reference", f"{tmp_path}/ref.py:two")
    assert code == 1 and "the kernel returns 1 tensors, the reference 2" in output
    code, output = run(*call, "--reference", f"{tmp_path}/ref.py:fails")
    assert code == 2 and "reference ref.py:fails: ValueError: no (ref.py:2)" in " ".join(output.split())
    assert json.loads((tmp_path / "out" / "review.json").read_text())["status"] == "not reviewed"


def test_a_task_that_zeros_would_pass_is_void(tmp_path: Path) -> None:
    kernel = write(tmp_path, "def k(x):\n    return body(x)")
    (tmp_path / "ref.py").write_text("def ref(x): return x * 0\n", encoding="utf-8")
    code, output = run(
        *("review", str(kernel), "--input", "x=f32[128,64]", "--reference", f"{tmp_path}/ref.py:ref"),
        *("--out", str(tmp_path / "out")),
    )
    assert code == 2 and "the task is void" in output


def test_a_task_whose_reference_ignores_its_inputs_is_void(tmp_path: Path) -> None:
    kernel = write(tmp_path, "def k(x):\n    return body(x)")
    (tmp_path / "ref.py").write_text(
        "import numpy as np\ndef ref(x): return np.cos(np.arange(8192.0)).reshape(128, 64)\n"
    )
    code, output = run(
        *("review", str(kernel), "--input", "x=f32[128,64]", "--reference", f"{tmp_path}/ref.py:ref"),
        *("--out", str(tmp_path / "out")),
    )
    assert code == 2 and "the task is void: no change of any input changes the reference" in output


def test_inputs_are_called_by_the_kernels_parameters(server: ForkServer, tmp_path: Path) -> None:
    path = write(tmp_path, "def k(alpha, beta):\n    return body(alpha)")
    (tmp_path / "ref.py").write_text("def ref(a, b): return 2 * a + b\n")
    request = from_file(
        path,
        kernel=None,
        reference=f"{tmp_path}/ref.py:ref",
        inputs=("x=f32[128,64]", "y=f32[128,64]"),
        inputs_from=None,
        target=None,
        nki=None,
        lnc=None,
    )
    code, message = blocker(review(request, server))
    assert code == "NKR030" and "does not depend on the whole of input beta" in message


def test_json_is_the_only_thing_on_standard_output(tmp_path: Path) -> None:
    kernel = write(tmp_path, "def k(x):\n    print('noise')\n    return body(x)")
    command = [sys.executable, "-m", "nkireview", "review", str(kernel), "--reference", f"{kernel}:ref"]
    command += ["--inputs-from", f"{kernel}:make", "--json", "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=os.environ)
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["status"] == "acceptable" and record["subject"]["reference_by_author"] is True
    assert json.loads((tmp_path / "out" / "review.json").read_text()) == record


def test_mischief_in_the_kernels_own_file_is_seen_before_it_runs(server: ForkServer, tmp_path: Path) -> None:
    path = write(tmp_path, "def k(x):\n    import os\n    os._exit(0)")
    code, message = blocker(judge(server, path))
    assert code == "NKR055" and "os._exit" in message


def test_an_input_that_the_kernel_does_not_take_is_a_wrong_call(tmp_path: Path) -> None:
    path = write(tmp_path, "def k(x, y, scale=1.0):\n    return body(x)")
    inputs = {
        "zzz=3": "--input zzz: k(x, y, scale) has no parameter of that name",
        "y=f32[8,8]": "--input y is tensor 1, but parameter 2 of k(x, y, scale); give the tensors in that order, "
        "or a dict with --inputs-from",
    }
    for given, sentence in inputs.items():
        result = CliRunner().invoke(
            main, ["review", str(path), "--reference", f"{path}:ref", "--input", given]
        )
        assert result.exit_code == 2 and result.output.strip() == f"nkireview: {path}: {sentence}"


def test_that_a_current_kernel_was_judged_as_a_legacy_one_is_said(tmp_path: Path) -> None:
    path = write(tmp_path, "def k(x):\n    return body(x)")
    arguments = [
        "--reference",
        f"{path}:ref",
        "--input",
        "x=f32[128,64]",
        "--nki",
        "legacy",
        "--out",
        str(tmp_path),
    ]
    result = CliRunner().invoke(main, ["review", str(path), *arguments])
    assert "what the legacy generation would make of a file of the current one" in result.output


def test_without_an_execution_nothing_is_said_of_correctness(server: ForkServer, tmp_path: Path) -> None:
    path = write(tmp_path, "def k(x):\n    return body(x)")
    request = from_file(
        path, kernel=None, reference=None, inputs=("x=f32[128,64]",), inputs_from=None, target=None, nki=None,
        lnc=None, schedule_only=True, need_reference=False,
    )  # fmt: skip
    record = review(request, server)
    assert record.status == "acceptable" and record.reason.startswith("nothing was executed")
    assert record.scorecard is not None and not record.runs
    scores = {item.dimension.value: item.score for item in record.scorecard.dimensions}
    assert scores["kernel correctness"] is None and scores["numerical validation"] is None
