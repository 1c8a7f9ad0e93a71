"""nkireview exec: the user's own Python in a child, as python runs it, with nki in place."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from nkireview.cli import main

KERNEL = """\
import sys

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np


@nki.jit
def double(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=out, src=tile)
    return out
"""


def run(*arguments: str, cwd: Path, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, with nothing of ours set in the environment but what is asked for."""
    plain = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("NKI", "NEURON", "PYTEST")) and name != "PYTHONPATH"
    }
    if "PYTHONPATH" in os.environ:
        plain["PYTHONPATH"] = os.environ["PYTHONPATH"]
    return subprocess.run(
        [sys.executable, "-m", "nkireview", "exec", *arguments],
        cwd=cwd,
        env={**plain, **environment},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_script_runs_as_python_runs_it(tmp_path: Path) -> None:
    folder = tmp_path / "scripts"
    folder.mkdir()
    (folder / "beside.py").write_text("NAME = 'beside'\n", encoding="utf-8")
    body = """
import beside
import pickle

class Item: pass

assert __name__ == "__main__" and pickle.loads(pickle.dumps(Item())).__class__ is sys.modules["__main__"].Item
assert double(np.ones((2, 4), np.float32)).sum() == 16
print(sys.argv, __file__, beside.NAME, sys.path[0])
sys.exit(3)
"""
    (folder / "script.py").write_text(KERNEL + body, encoding="utf-8")
    found = run("scripts/script.py", "--target", "-m", "x", cwd=tmp_path)
    wanted = ["scripts/script.py", "--target", "-m", "x"]
    assert found.stdout == f"{wanted} scripts/script.py beside {folder}\n", found.stderr
    assert found.returncode == 3


def test_modules_and_code_run_too(tmp_path: Path) -> None:
    (tmp_path / "part.py").write_text("import sys, nki\nprint(__name__, sys.argv[1:], nki.__name__)\n")
    assert run("-m", "part", "-c", "x", cwd=tmp_path).stdout == "__main__ ['-c', 'x'] nki\n"
    code = "import sys, part; print(sys.argv, repr(sys.path[0]))"
    assert run("-c", code, "-m", cwd=tmp_path).stdout == "part ['-m'] nki\n['-c', '-m'] ''\n"


def test_stdin_and_the_environment_reach_the_script(tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text(
        "import os\nprint(os.environ['NKI_SIMULATOR'], os.environ['MINE'], input())\n"
    )
    assert run("s.py", cwd=tmp_path, stdin="typed\n", MINE="kept").stdout == "1 kept typed\n"


def test_an_error_ends_with_the_users_lines(tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text("def f():\n    raise KeyError('here')\nf()\n")
    found = run("s.py", cwd=tmp_path)
    assert found.returncode == 1 and found.stdout == ""
    assert found.stderr.startswith('Traceback (most recent call last):\n  File "s.py", line 3')
    assert found.stderr.endswith("KeyError: 'here'\n") and "nkireview" not in found.stderr


def test_a_kernel_that_breaks_a_limit_names_the_line(tmp_path: Path) -> None:
    body = "\ntry:\n    double(np.ones((2, 4), np.float32))\nexcept nisa.NkiValidationError as e:\n    print(e)\n"
    wrong = KERNEL.replace("dst=tile, src=x", "dst=tile[0:1, :], src=x")
    (tmp_path / "s.py").write_text(wrong + body, encoding="utf-8")
    found = run("s.py", cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith("dma_copy: ") and found.stdout.endswith("on trn2 (s.py:13)\n")
    (tmp_path / "s.py").write_text(KERNEL + body, encoding="utf-8")
    assert run("s.py", cwd=tmp_path).stdout == ""


@pytest.mark.parametrize(
    ("options", "environment", "wanted"),
    [
        ((), {}, "gen3 trn2"),
        (("--target", "trn3"), {}, "gen4 trn3"),
        ((), {"NKI_NC_VERSION": "gen2"}, "gen2 trn1"),
        (("--target", "trn3"), {"NEURON_PLATFORM_TARGET_OVERRIDE": "trn1"}, "gen4 trn3"),
    ],
)
def test_the_target_reaches_the_kernel(
    tmp_path: Path, options: tuple[str, ...], environment: dict[str, str], wanted: str
) -> None:
    names = {"gen2": "trn1", "gen3": "trn2", "gen4": "trn3"}
    code = f"import nki.isa as n; v = n.get_nc_version().name; print(v, {names}[v])"
    assert run(*options, "-c", code, cwd=tmp_path, **environment).stdout == f"{wanted}\n"


def test_strict_reaches_the_kernel(tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text(KERNEL + "\ndouble(np.ones((129, 4), np.float32))\n", encoding="utf-8")
    assert run("s.py", cwd=tmp_path).returncode == 0
    found = run("--strict", "s.py", cwd=tmp_path)
    assert found.returncode == 1 and "partition size 129 exceeds 128 on trn2 (s.py:13)" in found.stderr


def test_a_script_may_choose_its_own_target(tmp_path: Path) -> None:
    code = "import os, nki.isa as n; os.environ['NKI_NC_VERSION'] = 'gen2'; print(n.get_nc_version().name)"
    assert run("--target", "trn3", "-c", code, cwd=tmp_path).stdout == "gen2\n"


def test_debug_shows_values(tmp_path: Path) -> None:
    body = "\ndouble(np.ones((1, 2), np.float32))\n"
    shown = KERNEL.replace("    return out", "    print(tile)\n    return out") + body
    (tmp_path / "s.py").write_text(shown, encoding="utf-8")
    assert run("--debug", "s.py", cwd=tmp_path).stdout == "NkiTensor((1, 2), float32, sbuf)\n[[2. 2.]]\n"
    assert run("s.py", cwd=tmp_path).stdout == "NkiTensor((1, 2), float32, sbuf)\n"


def test_breakpoint_sees_values(tmp_path: Path) -> None:
    body = "\ndouble(np.ones((1, 2), np.float32))\n"
    stopped = KERNEL.replace("    return out", "    breakpoint()\n    return out") + body
    (tmp_path / "s.py").write_text(stopped, encoding="utf-8")
    found = run("--debug", "s.py", cwd=tmp_path, stdin="p tile\nc\n")
    assert found.returncode == 0 and "NkiTensor((1, 2), float32, sbuf)\n[[2. 2.]]" in found.stdout, (
        found.stderr
    )


def test_processes_that_a_script_starts_find_nki(tmp_path: Path) -> None:
    inner = "import nki.language, neuronxcc.nki.typing, torch_neuronx; print(torch_neuronx.nki_jit.__name__)"
    code = f"import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', {inner!r}]))"
    found = run("-c", code, cwd=tmp_path)
    assert (found.returncode, found.stdout) == (0, "nki_jit_of_torch\n"), found.stderr


def test_the_neuron_packages_are_there(tmp_path: Path) -> None:
    code = """
import nki, numpy
import nki_cpu_simulator.nki.language.dtypes, nki_cpu_simulator.nki.isa.constants
import nki_cpu_simulator.nki.builtin, nki_cpu_simulator.nki.tensor, nki_cpu_simulator.nki.compiler
from nki_cpu_simulator import cpu_simulate
from nki.compiler.backends.anything import Thing
from neuronxcc.starfish.support.dtype import static_cast
from torch_neuronx.xla_impl.ops import nki_jit
import torch_xla.core.xla_model as xm
import neuron_dtypes as dt
from neuronxcc.nki._private_kernels.attention import attention_isa_kernel
from neuronxcc.nki.kernels.attention import flash_fwd
from neuronxcc.nki.nccl import all_reduce
from neuronxcc.nki.isa import neuron_isa
from neuronxcc.starfish.penguin.targets import Target
assert nki.cpu_simulate is nki.simulate is cpu_simulate and type(nki_jit(lambda x: x)) is type(nki.jit(lambda x: x))
assert static_cast is dt.static_cast and xm.mark_step() is None
calls = (Thing, lambda: nki.benchmark(warmup=5), attention_isa_kernel, flash_fwd, all_reduce, neuron_isa.add, Target)
for call in calls:
    try:
        call()
    except Exception as error:
        print(error)
"""
    found = run("-c", code, cwd=tmp_path)
    assert found.stderr == ""
    assert found.stdout.splitlines() == [
        "nki.compiler.backends.anything.Thing belongs to the Neuron compiler, which is not here",
        "nki.benchmark: left NKI in 0.2; call the kernel on arrays, and take times from nkireview review",
        *(
            f"neuronxcc.{name} belongs to the Neuron compiler, which is not here"
            for name in (
                "nki._private_kernels.attention.attention_isa_kernel",
                "nki.kernels.attention.flash_fwd",
                "nki.nccl.all_reduce",
                "nki.isa.neuron_isa.add",
                "starfish.penguin.targets.Target",
            )
        ),
    ]


def test_a_decorators_target_counts_before_it_was_refused(tmp_path: Path) -> None:
    shown = KERNEL.replace("@nki.jit", '@nki.jit(platform_target="trn3")').replace(
        "    return out", "    print(nisa.get_nc_version().name)\n    return out"
    )
    (tmp_path / "s.py").write_text(shown + "\ndouble(np.ones((1, 2), np.float32))\n", encoding="utf-8")
    assert run("--nki", "0.2", "s.py", cwd=tmp_path).stdout == "gen4\n"
    found = run("--nki", "0.3", "s.py", cwd=tmp_path)
    assert found.returncode == 1 and "platform_target= is refused since NKI 0.3" in found.stderr


def test_pytest_runs_under_it(tmp_path: Path) -> None:
    test = (
        "\n\ndef test_double():\n    x = np.ones((2, 4), np.float32)\n    assert (double(x) == 2 * x).all()\n"
    )
    (tmp_path / "test_it.py").write_text(KERNEL + test, encoding="utf-8")
    found = run("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py", cwd=tmp_path)
    assert found.returncode == 0 and "1 passed" in found.stdout, found.stdout + found.stderr


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["exec"], "nkireview: exec needs a script, -m MODULE or -c CODE; see nkireview exec --help\n"),
        (["exec", "--nki", "9"], "nkireview: --nki: "),
    ],
)
def test_a_wrong_call_is_one_sentence(arguments: list[str], wanted: str) -> None:
    found = CliRunner().invoke(main, arguments)
    assert found.exit_code == 2 and found.stderr.startswith(wanted) and found.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (("absent.py",), "nkireview: absent.py: file not found\n"),
        (("-m",), "nkireview: -m needs a module\n"),
        (("-c",), "nkireview: -c needs a piece of code\n"),
    ],
)
def test_what_cannot_be_run_is_one_sentence(tmp_path: Path, arguments: tuple[str, ...], wanted: str) -> None:
    found = run(*arguments, cwd=tmp_path)
    assert (found.returncode, found.stderr) == (2, wanted)


def test_help_has_examples() -> None:
    found = CliRunner().invoke(main, ["exec", "--help"])
    assert found.exit_code == 0 and "nkireview exec --target trn3 -m pytest tests -k softmax" in found.output
