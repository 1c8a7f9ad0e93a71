"""Functions of a task's author, called in a child: arguments arrive as they were, and errors as one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from nkireview.runner import ForkServer, Job, Limits, Outcome
from nkireview.runner.tree import EnumNode, ObjectNode, decode, encode

FILE = """
import enum
import random
import sys
from dataclasses import dataclass

import numpy as np

class Kind(enum.Enum):
    mean = "m"
    total = "t"

@dataclass
class Options:
    kind: Kind
    scale: np.ndarray

def reduce(x, options, *, axis=0):
    found = x.sum(axis) if options.kind is Kind.total else x.mean(axis)
    return {"value": found * options.scale, "options": options}

def dtypes(*args):
    return [str(each.dtype) for each in args]

def changes(x):
    x[...] = 0
    return x

def fails(x):
    return np.reshape(x, (3, 5))

def exits():
    sys.exit(4)

def allocates():
    return np.ones(1 << 40, np.uint8)

def returns_a_generator():
    return [1, (each for each in [])]

def seeded_by_keyword(rows=2, *, seed):
    return (rows, seed)

def seeded_by_position(number):
    return number

def seeded_globally():
    return [np.random.rand(), random.random()]

not_a_function = 3
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("task") / "task_functions.py"
    place.write_text(FILE)
    return place


@pytest.fixture(scope="module")
def fork_server() -> Iterator[ForkServer]:
    with ForkServer(("numpy", "ml_dtypes", "nkireview.runner.reference")) as running:
        yield running


class Call:
    def __init__(self, server: ForkServer, file: Path) -> None:
        self.server = server
        self.file = file

    def outcome(self, function: str, args: Any = (), kwargs: Any = None, **options: Any) -> Outcome:
        tree, blobs = encode([list(args), kwargs or {}])
        header = {"file": str(self.file), "function": function, "arguments": tree, **options}
        return self.server.run(Job("nkireview.runner.reference:call", header, blobs, Limits(wall_s=20)))

    def result(self, function: str, args: Any = (), kwargs: Any = None, **options: Any) -> Any:
        outcome = self.outcome(function, args, kwargs, **options)
        assert outcome.status == "done", outcome.detail
        assert "error" not in outcome.header, outcome.header
        return decode(outcome.header["result"], outcome.blobs)

    def error(self, function: str, args: Any = ()) -> dict[str, Any]:
        outcome = self.outcome(function, args)
        assert outcome.status == "done", outcome.detail
        error: dict[str, Any] = outcome.header["error"]
        return error


@pytest.fixture
def call(fork_server: ForkServer, file: Path) -> Call:
    return Call(fork_server, file)


def test_arguments_are_rebuilt_and_the_result_comes_back(call: Call) -> None:
    kind = EnumNode("task_functions:Kind", "total", "t")
    options = ObjectNode("task_functions:Options", {"kind": kind, "scale": np.full(3, 2.0)})
    found = call.result("reduce", [np.arange(6.0).reshape(2, 3), options], {"axis": 0})
    assert found["value"].tolist() == [6, 10, 14]
    assert found["options"].cls == "task_functions:Options"
    assert found["options"].fields["kind"] == kind


def test_floating_arrays_become_float64_on_request(call: Call) -> None:
    args = [
        np.ones(2, ml_dtypes.bfloat16),
        np.ones(2, ml_dtypes.float8_e4m3fn),
        np.ones(2, np.float32),
        np.ones(2, np.int8),
        np.ones(2, bool),
    ]
    stored = ["bfloat16", "float8_e4m3fn", "float32", "int8", "bool"]
    assert call.result("dtypes", args) == stored
    assert call.result("dtypes", args, float64=True) == ["float64", "float64", "float64", "int8", "bool"]


@pytest.mark.parametrize("float64", [False, True])
def test_a_function_may_change_its_arguments(call: Call, float64: bool) -> None:
    assert call.result("changes", [np.ones(2)], float64=float64).tolist() == [0, 0]


def test_seeds(call: Call) -> None:
    assert call.result("seeded_by_keyword", [7], seeded=True) == (2, 7)
    assert call.result("seeded_by_keyword", [7], {"rows": 5}, seeded=True) == (5, 7)
    assert call.result("seeded_by_position", [7], seeded=True) == 7
    first, again, other = (call.result("seeded_globally", [seed], seeded=True) for seed in (1, 1, 2))
    assert first == again != other


def test_an_exception_has_type_message_and_the_users_line(call: Call, file: Path) -> None:
    error = call.error("fails", [np.ones(2)])
    assert error == {
        "type": "ValueError",
        "message": "cannot reshape array of size 2 into shape (3,5)",
        "file": str(file),
        "line": FILE.splitlines().index("    return np.reshape(x, (3, 5))") + 1,
    }


def test_other_ends(call: Call) -> None:
    outcome = call.outcome("exits")
    assert (outcome.status, outcome.detail) == ("exited", "called exit with code 4 before returning a result")
    assert call.outcome("allocates").status == "memory"


def test_results_that_cannot_be_carried(call: Call) -> None:
    error = call.error("returns_a_generator")
    assert error["message"].startswith("result[1]: cannot carry a value of type generator; expected ")


def test_functions_that_are_not_there(call: Call, file: Path) -> None:
    assert call.error("missing")["message"].startswith(
        f"{file}: no function 'missing'; it defines allocates, changes, dtypes,"
    )
    assert (
        call.error("not_a_function")["message"]
        == f"{file}: 'not_a_function' is of type int, expected a function"
    )


def test_a_reference_in_a_kernels_file(fork_server: ForkServer, tmp_path: Path) -> None:
    """The kernel's own imports, and host packages that are not installed, do not keep a reference from running."""
    file = tmp_path / "kernel_and_reference.py"
    file.write_text(
        "import nki\nimport nki.language as nl\nimport torch_xla\n\n\n"
        "@nki.jit\ndef kernel(x):\n    return x\n\n\n"
        "def reference(x):\n    return x + 1\n\n\n"
        "def needs_it(x):\n    return torch_xla.device()\n"
    )
    call = Call(fork_server, file)
    assert call.result("reference", [np.ones(1)]).tolist() == [2]
    assert "torch_xla" in call.error("needs_it", [1])["message"]
    assert "stand-ins" in call.error("needs_it", [1])["message"]
