"""Problem files in the form of KernelBench as references: inputs, weights and answers, against NumPy in float64.

What needs torch is skipped where torch is not installed; the sentence that says so is read where it is not.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from nkireview.answers import AS_DRAWN, Answers, Trial
from nkireview.arguments import Called, Callee, ReferenceFailed
from nkireview.cli import main
from nkireview.numerics.hostile import HOSTILE
from nkireview.record import ReviewRecord
from nkireview.requests import from_task
from nkireview.review import review
from nkireview.runner import ForkServer, Limits
from nkireview.sources import load, submission_of
from nkireview.task import Entry, TaskError, load_task

HAS_TORCH = importlib.util.find_spec("torch") is not None
with_torch = pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")
without_torch = pytest.mark.skipif(HAS_TORCH, reason="torch is installed")

LINEAR = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, wide, out):
        super().__init__()
        self.linear = nn.Linear(wide, out)
        self.register_buffer("scale", torch.full((1,), 1.5))

    def forward(self, x, add):
        {forward}


def get_inputs():
    return [torch.randn(128, 64), 0.5]


def get_init_inputs():
    return [64, 32]
"""
FORWARD = "return torch.relu(self.linear(x)) * self.scale + add"
DOUBLE = """\
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2 if x.is_floating_point() else x


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""
KERNEL = """\
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def {name}(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0={factor})
    nisa.dma_copy(dst=out, src=tile)
    return out
"""


def problem(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "problem.py"
    file.write_text(text)
    return file


def answers_of(file: Path, server: ForkServer, *, float64: bool = True) -> Answers:
    inputs = Called(Callee(file, "get_inputs"), {})
    return Answers(inputs, Callee(file, "Model", float64), server, Limits())


def trial_of(file: Path, server: ForkServer, seed: int = 3, *, float64: bool = True) -> Trial:
    answers = answers_of(file, server, float64=float64)
    try:
        found = answers.trial(seed, AS_DRAWN)
    finally:
        answers.close()
    assert found is not None
    return found


def by_hand(values: tuple[Any, ...]) -> Any:
    """The linear model in float64."""
    x, add, weight, bias, scale = (np.asarray(value, np.float64) for value in values)
    return np.maximum(x @ weight.T + bias, 0) * scale + add


# --- without torch


@without_torch
def test_torch_that_is_not_installed(tmp_path: Path, server: ForkServer) -> None:
    file = problem(tmp_path, LINEAR.format(forward=FORWARD))
    with pytest.raises(ReferenceFailed) as caught:
        trial_of(file, server)
    assert str(caught.value) == (
        f"input function problem.py:get_inputs: {file}: its Model needs torch; install it beside nkireview (not "
        "installed here, so that its names are stand-ins: torch)"
    )


@without_torch
def test_a_review_without_torch_is_not_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    problem(tmp_path, DOUBLE.format(inputs="torch.randn(128, 64)"))
    Path("mine.py").write_text(KERNEL.format(name="kernel", factor=2.0))
    done = CliRunner().invoke(main, ("review", "kernelbench:problem.py", "--submission", "mine.py"))
    assert done.exit_code == 2
    found = ReviewRecord.model_validate_json(Path("nkireview-out/problem/mine/review.json").read_bytes())
    assert found.status == "not reviewed" and "its Model needs torch; install it" in found.reason


def test_a_model_that_is_none_of_torchs(tmp_path: Path, server: ForkServer) -> None:
    text = "class Model: ...\ndef get_inputs(): return [1]\ndef get_init_inputs(): return []\n"
    with pytest.raises(ReferenceFailed, match=r": its Model is no torch\.nn\.Module$"):
        trial_of(problem(tmp_path, text), server)


def test_a_function_get_inputs_alone_makes_no_problem(tmp_path: Path, server: ForkServer) -> None:
    text = "import numpy as np\ndef get_inputs(): return [np.ones((2, 2), np.float32)]\ndef Model(x): return x + 1\n"
    np.testing.assert_array_equal(trial_of(problem(tmp_path, text), server).wanted[0], 2 * np.ones((2, 2)))


def test_a_problem_file_is_a_reference_by_its_name_alone(tmp_path: Path) -> None:
    (tmp_path / "problem.py").write_text("")
    head = 'name = "a"\ndescription = "A."\nkernel = "a"\nreference = "problem.py"\n'
    (tmp_path / "task.toml").write_text(head)
    task = load_task(tmp_path)
    assert task.reference == Entry("problem.py", "Model")
    assert task.inputs_from == Entry("problem.py", "get_inputs") and list(task.workloads) == ["default"]
    (tmp_path / "task.toml").write_text(head + 'inputs_from = "problem.py:mine"\n[workloads.w]\nseeds = 1\n')
    task = load_task(tmp_path)
    assert task.inputs_from == Entry("problem.py", "mine") and list(task.workloads) == ["w"]
    (tmp_path / "task.toml").write_text(head.replace("problem.py", "other.py"))
    with pytest.raises(TaskError, match=r"reference: there is no file .*other\.py"):
        load_task(tmp_path)
    (tmp_path / "task.toml").write_text(head.replace('e = "problem.py', 'e = "problem'))
    with pytest.raises(TaskError, match=r"reference: got 'problem'; expected FILE\.py:FUNCTION, such as"):
        load_task(tmp_path)


def test_a_source_becomes_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("1_square matrix.py").write_text("")
    Path("mine.py").write_text(KERNEL.format(name="kernel", factor=2.0))
    task, own = load("kernelbench:1_square matrix.py")
    assert own == [] and task.name == "1_square-matrix"
    asked = from_task(task, submission_of(Path("mine.py")), target=None, nki=None, lnc=None)
    assert (asked.release.value, asked.kernel, str(asked.reference)) == (
        "0.6",
        "kernel",
        "1_square matrix.py:Model",
    )
    (workload,) = asked.workloads
    assert workload.seeds == 2 and asked.task_limits == asked.limits and asked.policy(0) is not None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("none.py",),
            "kernelbench:none.py: there is no such file; expected kernelbench:FILE.py with a torch Model",
        ),
        (("problem.py",), "kernelbench:problem.py comes without a kernel; give one with --submission FILE"),
        (
            ("problem.py", "--submission", "mine.py", "--reference", "a.py:f"),
            "kernelbench:problem.py: --reference belongs to a kernel file; a task names its own",
        ),
    ],
)
def test_wrong_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("problem.py").write_text("")
    Path("mine.py").write_text("")
    name, *rest = arguments
    done = CliRunner().invoke(main, ("review", f"kernelbench:{name}", *rest))
    assert (done.exit_code, done.output) == (2, f"nkireview: {said}\n")


# --- with torch


@with_torch
def test_inputs_weights_and_answer(tmp_path: Path, server: ForkServer) -> None:
    """What is drawn depends on the seed alone; the answer is that of NumPy in float64."""
    file = problem(tmp_path, LINEAR.format(forward=FORWARD))
    found, again, other = (trial_of(file, server, seed) for seed in (3, 3, 4))
    shapes = [np.shape(value) for value in found.arguments.positional]
    assert shapes == [(128, 64), (), (32, 64), (32,), (1,)]
    assert {array.dtype.name for array in found.arguments.arrays()} == {"float32"}
    assert found.wanted[0].dtype == np.float64 and found.note == ""
    np.testing.assert_allclose(found.wanted[0], by_hand(found.arguments.positional), rtol=0, atol=1e-13)
    np.testing.assert_array_equal(found.wanted[0], again.wanted[0])
    assert all(
        (one != two).any()
        for one, two in zip(found.arguments.arrays()[:3], other.arguments.arrays()[:3], strict=True)
    )


@with_torch
def test_weights_count_like_inputs(tmp_path: Path, server: ForkServer) -> None:
    answers = answers_of(problem(tmp_path, LINEAR.format(forward=FORWARD)), server)
    whole = {each.input_path: each.changed for each in answers.influences(3) if each.region.name == "whole"}
    assert whole == {"0": True, "1": True, "2": True, "3": True}
    for kind in HOSTILE:
        trial = answers.trial(3, kind)
        if trial is not None:
            np.testing.assert_allclose(trial.wanted[0], by_hand(trial.arguments.positional), rtol=1e-12)
    answers.close()


@with_torch
@pytest.mark.parametrize(
    ("forward", "note"),
    [
        (
            "return torch.relu(torch.nn.functional.linear(x, self.linear.weight.data.float(), self.linear.bias)) "
            "* self.scale + add",
            "in float32: in float64 it raises RuntimeError: ",
        ),
        (
            "assert x.dtype == torch.float32; return torch.relu(self.linear(x)) * self.scale + add",
            "in float32: in float64 it raises AssertionError: ",
        ),
        (
            "return (torch.relu(self.linear(x)) * self.scale + add).float()",
            "in float32: the model itself converts to that",
        ),
    ],
)
def test_what_is_not_computed_in_float64_is_said(
    tmp_path: Path, server: ForkServer, forward: str, note: str
) -> None:
    found = trial_of(problem(tmp_path, LINEAR.format(forward=forward)), server)
    assert found.note.startswith(note)
    assert found.wanted[0].dtype == np.float32
    np.testing.assert_allclose(found.wanted[0], by_hand(found.arguments.positional), rtol=1e-5, atol=1e-6)


@with_torch
def test_a_task_may_ask_for_the_dtype_of_the_inputs(tmp_path: Path, server: ForkServer) -> None:
    found = trial_of(
        problem(tmp_path, DOUBLE.format(inputs="torch.randn(4, 4).bfloat16()")), server, float64=False
    )
    (x,) = found.arguments.arrays()
    assert x.dtype.name == "bfloat16" and found.wanted[0].dtype.name == "bfloat16"
    np.testing.assert_array_equal(found.wanted[0].astype(np.float32), 2 * x.astype(np.float32))


@with_torch
def test_integers_of_64_bits(tmp_path: Path, server: ForkServer) -> None:
    """The kernel gets int32, the model what it asked for."""
    text = DOUBLE.format(inputs="torch.arange(8) + {}, torch.randn(8, 4)")
    text = text.replace("forward(self, x):\n        return x * 2 if x.is_floating_point() else x",
                        "forward(self, at, x):\n        assert at.dtype == torch.int64; return x[at % 8]")  # fmt: skip
    found = trial_of(problem(tmp_path, text.format(2**31 - 8)), server)
    at, x = found.arguments.positional
    assert at.dtype == np.int32 and at[-1] == 2**31 - 1
    np.testing.assert_array_equal(found.wanted[0], x[at % 8].astype(np.float64))
    with pytest.raises(ReferenceFailed, match="64-bit integers outside of int32, which is the widest"):
        trial_of(problem(tmp_path, text.format(2**31 - 7)), server)


@with_torch
def test_a_model_that_raises_says_where(tmp_path: Path, server: ForkServer) -> None:
    file = problem(tmp_path, LINEAR.format(forward="raise KeyError('no')"))
    with pytest.raises(
        ReferenceFailed, match=r"^reference problem.py:Model: KeyError: 'no' \(problem.py:12\)$"
    ):
        trial_of(file, server)


@with_torch
@pytest.mark.parametrize(("factor", "code"), [(2.0, 0), (2.001, 1)])
def test_review(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, factor: float, code: int) -> None:
    monkeypatch.chdir(tmp_path)
    problem(tmp_path, DOUBLE.format(inputs="torch.randn(128, 64)"))
    Path("mine.py").write_text(KERNEL.format(name="double", factor=factor))
    given = ("review", "kernelbench:problem.py", "--submission", "mine.py", "--kernel", "double")
    assert CliRunner().invoke(main, given).exit_code == code


@with_torch
def test_notes_reach_the_review(tmp_path: Path, server: ForkServer) -> None:
    file = problem(
        tmp_path, DOUBLE.format(inputs="torch.randn(128, 64)").replace("x * 2 if", "x.float() * 2 if")
    )
    mine = tmp_path / "mine.py"
    mine.write_text(KERNEL.format(name="kernel", factor=2.0))
    task, _ = load(f"kernelbench:{file}")
    found = review(from_task(task, submission_of(mine), target=None, nki=None, lnc=None), server)
    assert found.status == "acceptable"
    assert (
        "default: the reference computed in float32: the model itself converts to that" in found.not_checked
    )
