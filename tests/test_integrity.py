"""Integrity: what a kernel file may touch, by a list of what is allowed; read as text, never run."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from click.testing import CliRunner

from nkireview.checks.integrity import forbidden, tables
from nkireview.checks.source import SourceFacts, read_source
from nkireview.cli import main
from nkireview.requests import from_file
from nkireview.review import review
from nkireview.rules.finding import Dimension, Severity
from nkireview.runner import ForkServer

HEAD = "import numpy as np\nimport nki\nimport nki.isa as nisa\nimport nki.language as nl\n"
KERNEL = """
@nki.jit
def kernel(x):
    t = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=x)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=t)
    return out
"""


def source(tmp_path: Path, text: str) -> SourceFacts:
    path = tmp_path / "kernel.py"
    path.write_text(HEAD + textwrap.dedent(text) + KERNEL)
    return read_source(path)


ATTACKS = {
    "clock": ("import time\ntime.perf_counter_ns = lambda: 0", "store"),
    "comparison": ("np.allclose = lambda *a, **k: True", "store"),
    "nested module": ("np.testing.assert_allclose = print", "store"),
    "alias": ("held = np\nheld.allclose = print", "store"),
    "alias by condition": ("held = np if True else nl\nheld.allclose = print", "store"),
    "delete": ("del np.allclose", "store"),
    "augmented": ("import math\nmath.pi += 1", "store"),
    "setattr": ("setattr(np, 'allclose', print)", "store"),
    "setattr on builtins": ("setattr(__builtins__, 'len', print)", "store"),
    "member replaced": ("from numpy import testing\ntesting.assert_allclose = print", "store"),
    "module dictionary": ("np.__dict__['allclose'] = print", "hidden"),
    "sys.modules": ("import sys\nsys.modules['time'] = None", "store"),
    "gc": ("import gc", "module"),
    "ctypes": ("import ctypes", "module"),
    "from gc": ("from gc import get_objects", "module"),
    "in a function": ("def late():\n    import threading", "module"),
    "frames": ("import sys\nsys._getframe(1)", "module"),
    "frames by traceback": ("def f(e):\n    return e.__traceback__.tb_frame", "frame"),
    "inspect frames": ("import inspect\ninspect.stack()", "module"),
    "inspect member": ("from inspect import currentframe", "module"),
    "at exit": ("import atexit", "module"),
    "threads": ("import threading", "module"),
    "processes": ("import subprocess", "module"),
    "pools": ("import multiprocessing.pool", "module"),
    "fork": ("import os\nos.fork()", "module"),
    "kill": ("import os\nos.kill(1, 9)", "module"),
    "command": ("import os\nos.system('true')", "file"),
    "mock": ("from unittest import mock", "module"),
    "mock by name": ("import unittest.mock", "module"),
    "ourselves": ("import nkireview.review", "module"),
    "proc": ("held = '/proc/self/maps'", "file"),
    "open": ("open('golden.npy')", "file"),
    "np.load": ("ANSWER = np.load('golden.npy')", "file"),
    "eval": ("eval('1')", "hidden"),
    "another name for eval": ("run = eval", "hidden"),
    "import by name": ("__import__('gc')", "hidden"),
    "import in pieces": ("import importlib\nimportlib.import_module('g' + 'c')", "hidden"),
    "getattr in pieces": ("getattr(np, 'all' + 'close')", "hidden"),
    "joined name": ("getattr(nl, ''.join(['bf', 'loat16']))", "hidden"),
    "reversed name": ("getattr(nl, 'esolclla'[::-1])", "hidden"),
    "computed name of a module": ("import time\nname = input\ngetattr(time, name)", "hidden"),
    "globals of a function": ("def f(): pass\nf.__globals__", "hidden"),
    "subclasses": ("object.__subclasses__()", "hidden"),
    "code": ("def f(): pass\nf.__code__", "hidden"),
    "in a list": ("[np][0].allclose = print", "hidden"),
    "as an argument": ("(lambda m: m.__setattr__('allclose', print))(np)", "hidden"),
    "builtins": ("held = __builtins__", "hidden"),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_reaching_out_is_seen(tmp_path: Path, name: str) -> None:
    text, kind = ATTACKS[name]
    found = forbidden(source(tmp_path, text), "kernel")
    assert kind in {item.kind for item in found}, found
    assert all(item.line > HEAD.count("\n") for item in found)


HONEST = {
    "nothing": "",
    "constants": "P = 128\nF = P * 4\nNAMES = ('a', 'b')",
    "target": "import os\nos.environ['NEURON_PLATFORM_TARGET_OVERRIDE'] = 'trn2'",
    "path": "import sys, os\nsys.path.insert(0, os.path.dirname(__file__))",
    "dataclass": "class C(nl.NKIObject):\n    x: int = 1\n    def f(self):\n        self.x = 2",
    "another name": "xp = np\nhas = hasattr(nl, 'topk')\nadd = getattr(nl, 'add')",
    "frozen": "class C:\n    def __init__(self, x):\n        object.__setattr__(self, 'x', x)",
    "timing in a driver": "import time\ndef bench():\n    return time.perf_counter()",
    "files in a driver": "def report():\n    with open('x.json') as file:\n        return file.read()",
    "main": "if __name__ == '__main__':\n    open('x.json')\n    np.save('x.npy', np.zeros(1))",
    "getattr by variable": "def dtype(name):\n    return getattr(nl, name)",
    "log": "import logging\nlog = logging.getLogger(__name__)\nlog.propagate = False",
    "own attribute": "class A:\n    pass\nA.size = 3",
    "framework": "import torch\nimport torch.nn.functional as F",
    "patched library of another": "import diffusers.models.attention as attention\nattention.scores = print",
    "text": "HELP = 'see /proc in the manual'",
}


@pytest.mark.parametrize("name", HONEST)
def test_what_kernels_do_is_allowed(tmp_path: Path, name: str) -> None:
    assert forbidden(source(tmp_path, HONEST[name]), "kernel") == ()


def test_a_file_is_forbidden_where_the_kernel_opens_it_and_not_where_a_driver_does(tmp_path: Path) -> None:
    text = "def read():\n    return open('x')\ndef other():\n    return read()\n"
    facts = source(tmp_path, text)
    assert forbidden(facts, "kernel") == ()
    assert [item.message for item in forbidden(facts, "other")] == [
        "opens a file while it is imported or traced"
    ]


def test_messages_say_what_and_where(tmp_path: Path) -> None:
    found = forbidden(source(tmp_path, "import gc\nnp.allclose = print"), "kernel")
    assert [(item.line, item.message) for item in found] == [
        (5, "imports gc, which is not on the list of allowed modules"),
        (6, "replaces numpy.allclose, which belongs to another module"),
    ]


def test_tables(tmp_path: Path) -> None:
    numbers = ", ".join(str(n) for n in range(64))
    assert tables(source(tmp_path, f"T = [{numbers}]")) == ((5, 64),)
    assert tables(source(tmp_path, f"T = [{numbers.removesuffix(', 63')}]")) == ()


TAMPER = """
import time, gc
time.perf_counter_ns = lambda: 0
np.allclose = lambda *a, **k: True
setattr(__builtins__ if not isinstance(__builtins__, dict) else time, "".join(["pro", "cess_time"]), lambda: 0.0)
open({marker!r}, "w").close()

def entry(x):
    for o in gc.get_objects():
        if isinstance(o, np.ndarray) and o.shape == x.shape and o is not x:
            return o.copy()
    return x
"""


def test_a_forbidden_file_is_rejected_and_never_run(server: ForkServer, tmp_path: Path) -> None:
    marker, path = tmp_path / "was-run", tmp_path / "kernel.py"
    path.write_text(HEAD + TAMPER.format(marker=str(marker)))
    reference = tmp_path / "reference.py"
    reference.write_text("def f(x):\n    return x\n")
    request = from_file(
        path,
        kernel="entry",
        reference=f"{reference}:f",
        inputs=("x=f32[128,64]",),
        inputs_from=None,
        target=None,
        nki=None,
        lnc=None,
        seed=1,
    )
    record = review(request, server)
    assert record.status == "rejected" and record.exit_code == 1
    blockers = [f for f in record.findings if f.severity is Severity.blocker]
    assert {(f.code, f.kind, f.dimension) for f in blockers} == {
        ("NKR055", "integrity", Dimension.correctness)
    }
    assert "the file imports gc" in " ".join(f.message for f in blockers)
    assert not marker.exists() and record.runs == ()


@pytest.mark.parametrize(
    "text",
    [
        "class Held:\n    __cache__ = {}\n\ndef f(held):\n    return held.__cache__",
        "def f(error):\n    return error.__traceback__",
        "import os\nhush = open(os.devnull, 'w')",
        "import os\ndef driver():\n    os.getppid()",
        "import contextvars\nfrom urllib.parse import quote",
        "import sys\ndef f():\n    return 'torch_xla' in sys.modules or 'jax' not in sys.modules",
        "import inspect, sys\ndef f():\n    return inspect.getsource(sys.modules[__name__])",
    ],
    ids=[
        "own dunder",
        "own traceback",
        "devnull",
        "parent's number",
        "harmless modules",
        "is a module loaded",
        "own text",
    ],
)
def test_what_public_files_do_is_allowed(tmp_path: Path, text: str) -> None:
    assert forbidden(source(tmp_path, text)) == ()


@pytest.mark.parametrize("name", ["__code__", "__globals__", "__subclasses__", "__mro__"])
def test_defining_a_name_of_the_interpreter_does_not_allow_it(tmp_path: Path, name: str) -> None:
    text = f"class Held:\n    {name} = 1\n\ndef f(held):\n    return held.{name}"
    assert [item.kind for item in forbidden(source(tmp_path, text))] == ["hidden"]


@pytest.mark.parametrize(
    "text",
    [
        "held = sys.modules['numpy']",
        "held = sys.modules",
        "held = sys.modules[__name__]",
        "held = ('x' in sys.modules) and sys.modules",
        "held = sys.modules in [1]",
        "held = 'x' in sys.modules in [1]",
        "held = list(sys.modules)",
        "__name__ = 'numpy'\nheld = inspect.getsource(sys.modules[__name__])",
        "def f(__name__):\n    return inspect.getfile(sys.modules[__name__])",
        "setattr(kernel, '__name__', 'numpy')\nheld = inspect.getdoc(sys.modules[__name__])",
        "for __name__ in ('numpy',):\n    inspect.getfile(sys.modules[__name__])",
    ],
)
def test_every_other_use_of_the_modules_of_the_process_is_seen(tmp_path: Path, text: str) -> None:
    found = forbidden(source(tmp_path, f"import inspect, sys\n{text}"))
    assert "uses sys.modules, which is not on the list of allowed names" in [item.message for item in found]


def test_neither_reference_nor_inputs_are_asked_for_a_file_that_may_not_run(
    server: ForkServer, tmp_path: Path
) -> None:
    path = tmp_path / "kernel.py"
    path.write_text(f"import gc\n{HEAD}{KERNEL}", encoding="utf-8")
    nothing = {"reference": None, "inputs": (), "inputs_from": None, "target": None, "nki": None, "lnc": None}
    record = review(from_file(path, kernel="kernel", **nothing), server)  # type: ignore[arg-type]
    assert record.status == "rejected"
    found = CliRunner().invoke(main, ["run", str(path), "--input", "x=f32[8,8]"])
    assert found.exit_code == 1
    assert found.output.strip() == (
        f"nkireview: {path}:1: not run, since the file imports gc, which is not on the list of allowed modules"
    )
