"""NKIBench as a task source: what its harness computes, on small benches made here, and on a checkout if there is one.

``ACCELOPT`` names a checkout of AccelOpt.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from nkireview.adapting import Adapted, Returned, View, changed_regions, drawn
from nkireview.answers import AS_DRAWN, Answers, Kept
from nkireview.arguments import Arguments, Called, Callee, ReferenceFailed
from nkireview.cli import main
from nkireview.numerics.sensitivity import Region
from nkireview.record import ReviewRecord
from nkireview.requests import UsageError, from_task, with_limits
from nkireview.review import review
from nkireview.runner import ForkServer, Limits
from nkireview.runner.job import GIB
from nkireview.sources import is_source, load, submission_of, task_at
from nkireview.task import TaskError, load_task
from nkireview.tracing import Request

REFERENCE = """\
import numpy as np

def get_inputs():
    return [np.random.normal(size=(256, 128)).astype(np.float32), 2.0]

def forward(x, factor):
    return x * factor

def transform_to_nki_inputs(inputs):
    return [np.reshape(inputs[0], (2, 128, 128)), inputs[1]]

def transform_nki_outputs(k_res, ref):
    results = k_res if isinstance(k_res, tuple) else (k_res,)
    wanted = ref if isinstance(ref, tuple) else (ref,)
    return [np.reshape(one, other.shape) for one, other in zip(results, wanted)]
"""
KERNEL = """\
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def {name}(x, factor):
    assert x.shape == (2, 128, 128)
    out = nl.ndarray({shape}, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in range({tiles}):
        tile = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[i])
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=factor * {error!r})
{more}        nisa.dma_copy(dst=out[i], src=tile)
    return out
"""
IMPL = {"task": "./reference/double.py", "kernel": "./kernels/double_0.py"}
SUMMARY = {
    "double": {"seed": "x", "cases": {"1": {"values": {"M": 256, "N": 128}, "impls": [IMPL]}}},
    "twice": {"cases": {"1": {"values": {}, "impls": [IMPL]}, "2": {"values": {}, "impls": [IMPL, IMPL]}}},
}
EXPECTED = "expected nkibench:bench#OPERATOR with one of double, twice/1, twice/2/0, twice/2/1"


def kernel(
    name: str = "kernel", error: float = 1.0, more: str = "", tiles: int = 2, shape: str = "x.shape"
) -> str:
    more = "".join(f"        {line}\n" for line in more.splitlines())
    return KERNEL.format(name=name, error=error, more=more, tiles=tiles, shape=shape)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout ``bench`` with one reference and its kernel, seen from its parent."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "bench" / "NKIBench"
    for name in ("reference", "kernels"):
        (folder / name).mkdir(parents=True)
    (folder / "summary.json").write_text(json.dumps(SUMMARY))
    (folder / "reference" / "double.py").write_text(REFERENCE)
    (folder / "kernels" / "double_0.py").write_text(kernel())
    return folder


def request(text: str | None = None, operator: str = "double", **options: Any) -> Request:
    """A request for a kernel of this text, or for the operator's own; for the current generation."""
    task, own = load(f"nkibench:bench#{operator}")
    submission = own[0]
    if text is not None:
        Path("given.py").write_text(text)
        submission = submission_of(Path("given.py"))
    common = {"target": None, "nki": "0.6", "lnc": None, "seed": 7}
    return from_task(task, submission, **{**common, **options})


def sentence(call: Callable[[], object]) -> str:
    with pytest.raises(TaskError) as caught:
        call()
    (found,) = caught.value.problems
    return found


# --- loading


def test_a_source_becomes_a_task(bench: Path) -> None:
    asked = request(nki=None)
    assert (asked.task, asked.submission, asked.kernel) == ("double", "double_0", "kernel")
    assert (asked.release.value, asked.release.origin) == ("0.1", "task")
    assert (asked.target.value, asked.target.origin) == ("trn2", "default")
    assert request(target="trn1").target.value == "trn1"
    assert asked.reference is not None and not asked.reference.float64
    (workload,) = asked.workloads
    assert (workload.name, workload.seeds, workload.schedule_only) == ("M256_N128", 5, False)
    assert asked.limits == Limits()
    assert asked.task_limits == Limits(600, 9600, 8 * GIB, response_bytes=2 * GIB)
    assert with_limits(asked, 9.0).task_limits == Limits(9.0, 10, 8 * GIB, response_bytes=2 * GIB)


def test_the_folder_of_the_bench_itself_will_do(bench: Path) -> None:
    assert task_at(f"nkibench:{bench}#double").folder == bench
    assert is_source("nkibench:bench#double") and not is_source("bench#double") and not is_source("C:bench")


def test_cases_and_implementations_have_names_of_their_own(bench: Path) -> None:
    assert load("nkibench:bench#twice/2/1")[0].name == "twice-2-1"
    assert load("nkibench:bench#twice/1")[0].workloads.keys() == {"default"}


def test_an_unknown_operator(bench: Path) -> None:
    said = sentence(lambda: load("nkibench:bench#triple"))
    assert said == f"bench/NKIBench/summary.json: there is no operator 'triple'; {EXPECTED}"


@pytest.mark.parametrize("rest", ["bench", "bench#"])
def test_no_operator(bench: Path, rest: str) -> None:
    said = sentence(lambda: load(f"nkibench:{rest}"))
    assert said == f"nkibench:{rest}: no operator is named; {EXPECTED}"


def test_a_path_that_is_no_checkout(bench: Path) -> None:
    said = sentence(lambda: load("nkibench:elsewhere#double"))
    assert said == (
        "elsewhere: there is no NKIBench/summary.json in it; expected a checkout of AccelOpt, which holds NKIBench"
    )


JSON = "this cannot be read as JSON:"
IMPLS = "expected a JSON array of objects with 'task' and 'kernel'"
OBJECT = "expected a JSON object that is not empty"
FILE = "expected a Python file in bench/NKIBench"


@pytest.mark.parametrize(
    ("summary", "said"),
    [
        ("{", f"{JSON} Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ("[]", OBJECT),
        ("{}", OBJECT),
        ('{"double": 3}', f"double: {OBJECT}"),
        ('{"double": {}}', f"double: {OBJECT}"),
        ('{"double": {"cases": []}}', f"double.cases: {OBJECT}"),
        ('{"double": {"cases": {"1": {}}}}', f"double.cases.1.impls: {IMPLS}"),
        ('{"double": {"cases": {"1": {"impls": [4]}}}}', f"double.cases.1.impls[0].task: {FILE}"),
        (
            '{"double": {"cases": {"1": {"impls": [{"task": "../a.py"}]}}}}',
            f"double.cases.1.impls[0].task: {FILE}",
        ),
        (
            '{"double": {"cases": {"1": {"impls": [{"task": "a.py", "kernel": "/b.py"}]}}}}',
            f"double.cases.1.impls[0].kernel: {FILE}",
        ),
    ],
)
def test_a_broken_summary(bench: Path, summary: str, said: str) -> None:
    (bench / "summary.json").write_text(summary)
    assert sentence(lambda: load("nkibench:bench#double")) == f"bench/NKIBench/summary.json: {said}"


@pytest.mark.parametrize(
    ("what", "file"), [("task", "reference/double.py"), ("kernel", "kernels/double_0.py")]
)
def test_a_missing_file(bench: Path, what: str, file: str) -> None:
    (bench / file).unlink()
    said = sentence(lambda: load("nkibench:bench#double"))
    place = "bench/NKIBench/summary.json: double"
    assert said == f"{place}: {what}: there is no file bench/NKIBench/{file}"


def test_missing_functions(bench: Path) -> None:
    text = REFERENCE.replace("def forward", "def backward").replace("def get_inputs", "def inputs")
    (bench / "reference" / "double.py").write_text(text)
    said = sentence(lambda: load("nkibench:bench#double"))
    assert said == (
        "bench/NKIBench/reference/double.py: no function get_inputs, forward; expected get_inputs, forward, "
        "transform_to_nki_inputs, transform_nki_outputs in a reference"
    )


def test_functions_may_be_imported_or_assigned(bench: Path) -> None:
    text = REFERENCE.replace("def forward(x, factor):\n    return x * factor", "forward = np.multiply")
    (bench / "reference" / "double.py").write_text(text)
    assert load("nkibench:bench#double")[0].reference.function == "forward"


def test_a_reference_that_is_no_python(bench: Path) -> None:
    (bench / "reference" / "double.py").write_text("def")
    said = sentence(lambda: load("nkibench:bench#double"))
    assert said.startswith("bench/NKIBench/reference/double.py: this is not valid Python: invalid syntax")


def test_a_submission_that_is_not_there() -> None:
    said = sentence(lambda: submission_of(Path("none.py")))
    assert said == "--submission none.py: there is no such file; expected a Python file with the kernel"


# --- what the harness computes


def norm_of_error(got: Any, wanted: Any) -> float:
    """The figure that the bench holds against 2e-5."""
    return float(
        np.linalg.norm((got - wanted).astype(np.float64)) / np.linalg.norm(wanted.astype(np.float64))
    )


def test_the_operators_own_kernel(bench: Path, server: ForkServer) -> None:
    found = review(request(), server)
    assert found.status == "acceptable", found.reason
    assert [run.seed for run in found.runs if run.inputs == AS_DRAWN] == [7, 8, 9, 10, 11]
    assert all(run.status == "correct" for run in found.runs)
    assert found.runs[0].outputs[0].shape == (256, 128)
    said = "M256_N128: the reference computed in the dtypes of its inputs, as the task asks, not in float64"
    assert said in found.not_checked
    assert (
        "M256_N128: whether parts of an input count, beyond 1 of each (the task's probes)"
        in found.not_checked
    )


ONE_ELEMENT = (
    "if i == 1:\n    nisa.tensor_scalar(dst=tile[7:8, 9:10], data=tile[7:8, 9:10], op0=nl.add, operand0={})"
)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"error": 1 + 1.9e-5}, 1.9e-5),
        ({"error": 1 + 2.1e-5}, 2.1e-5),
        # 256 * 128 elements of rms 2: a norm of 362, of which 2e-5 is 0.00724
        ({"more": ONE_ELEMENT.format(0.0068)}, 0.0068 / 362),
        ({"more": ONE_ELEMENT.format(0.0077)}, 0.0077 / 362),
    ],
)
def test_the_norm_of_the_error_decides(
    bench: Path, server: ForkServer, options: dict[str, Any], error: float
) -> None:
    """By the bench's own formula, for an error everywhere and for one in a single element."""
    np.random.seed(7)
    x = np.random.normal(size=(256, 128)).astype(np.float32)
    got = (x * np.float32(2 * options.get("error", 1.0))).astype(np.float32)
    if "more" in options:
        got[128 + 7, 9] += np.float32(error * 362)
    measured = norm_of_error(got, x * np.float32(2))
    assert measured == pytest.approx(error, rel=0.02)
    found = review(request(kernel(**options), seeds=1), server)
    assert found.runs[0].outputs[0].figures is not None
    assert found.runs[0].outputs[0].figures.rms_ratio == pytest.approx(measured, rel=1e-6)
    assert found.runs[0].status == ("correct" if measured < 2e-5 else "wrong")


def test_inputs_are_the_benchs_own_for_a_seed(bench: Path, server: ForkServer) -> None:
    asked = request()
    given, made = drawn(asked.workloads[0].inputs, 42, server, asked.task_limits)
    np.random.seed(42)
    wanted = np.random.normal(size=(256, 128)).astype(np.float32)
    np.testing.assert_array_equal(given.positional[0], wanted)
    np.testing.assert_array_equal(made.positional[0], wanted.reshape(2, 128, 128))
    assert given.positional[1] == made.positional[1] == 2.0


def test_the_reference_keeps_the_dtype_of_its_inputs(bench: Path, server: ForkServer) -> None:
    asked = request()
    assert asked.reference is not None
    answers = Answers(asked.workloads[0].inputs, asked.reference, server, asked.task_limits)
    trial = answers.trial(3, AS_DRAWN)
    assert trial is not None and trial.wanted[0].dtype == np.float32
    assert answers.amplification(3, "scale-100") and answers.influences(3)
    answers.close()


def test_a_kernel_that_returns_the_problems_shape_will_do(bench: Path, server: ForkServer) -> None:
    text = kernel(shape="(256, 128)").replace("dst=out[i]", "dst=out[128 * i : 128 * i + 128]")
    assert review(request(text), server).status == "acceptable"


def test_a_kernel_whose_output_cannot_be_reshaped(bench: Path, server: ForkServer) -> None:
    found = review(request(kernel(shape="(1, 128, 128)", tiles=1)), server)
    assert found.status == "rejected"
    assert found.runs[0].reason == (
        "the kernel returns [1, 128, 128], of which nothing can be compared: function of the kernel's outputs "
        "double.py:transform_nki_outputs: ValueError: cannot reshape array of size 16384 into shape (256,128) "
        "(double.py:15)"
    )


def test_a_kernel_that_returns_more_than_the_reference(bench: Path, server: ForkServer) -> None:
    found = review(request(kernel().replace("return out", "return out, out")), server)
    assert found.runs[0].reason == "the kernel returns 2 tensors, of which 1 can be compared"


def test_the_other_name_of_the_kernel(bench: Path, server: ForkServer) -> None:
    asked = request(kernel("optimized_kernel"))
    assert asked.kernel == "optimized_kernel" and review(asked, server).status == "acceptable"
    assert request(kernel("optimized_kernel") + kernel()).kernel == "kernel"
    failure = request(kernel("best")).failure
    assert failure is not None and failure.kind == "no kernel"


def test_a_file_that_names_float16(bench: Path, server: ForkServer) -> None:
    """As the bench's harness does it: anywhere in the text, but not behind a number sign."""
    found = review(request(kernel() + "HALF = nl.bfloat16\n"), server)
    (blocker,) = [each for each in found.findings if each.severity.value == "blocker"]
    assert blocker.message == (
        "not traced: the task allows no 'float16' in a kernel file, comments aside (given.py:16)"
    )
    assert request(kernel() + "# bfloat16 would be faster\n").failure is None


def test_fewer_seeds_are_said(bench: Path, server: ForkServer) -> None:
    found = review(request(seeds=2), server)
    assert sum(run.inputs == AS_DRAWN for run in found.runs) == 2
    assert "M256_N128: 3 of the task's 5 seeds (--seeds 2)" in found.not_checked
    assert not any("--seeds" in each for each in request(seeds=5).not_checked)
    assert request(seeds=6).workloads[0].seeds == 6


def test_a_failing_reference_says_where(bench: Path, server: ForkServer) -> None:
    (bench / "reference" / "double.py").write_text(REFERENCE.replace("x * factor", "x * missing"))
    found = review(request(), server)
    assert (found.status, found.reason) == (
        "not reviewed",
        "reference double.py:forward: NameError: name 'missing' is not defined (double.py:7)",
    )


# --- functions between kernel and reference


SWAP = """\
import numpy as np

def inputs(seed):
    generator = np.random.default_rng(seed)
    return [generator.normal(size=(6, 4)).astype(np.float32), generator.normal(size=(8,)).astype(np.float32)]

def turned(given):
    x, y = given
    return [y[2:6], x.T, x[::-1, 1:3]]

def scaled(given):
    return [given[0] * 2, given[1]]

def single(given):
    return given[0]

def negative(given):
    given[0] *= -1
    return given

def failing(given):
    raise KeyError("nothing")

def first_rows(x, y):
    return x[:3] + y[:4]

def stacked(result, like):
    return np.stack([like, like])

def same(result, like):
    return result
"""


@pytest.fixture
def swap(tmp_path: Path) -> Path:
    file = tmp_path / "swap.py"
    file.write_text(SWAP)
    return file


def arrays(seed: int = 5) -> tuple[Any, Any]:
    generator = np.random.default_rng(seed)
    return (
        generator.normal(size=(6, 4)).astype(np.float32),
        generator.normal(size=(8,)).astype(np.float32),
    )


def adapted(swap: Path, function: str) -> Adapted:
    return Adapted(Called(Callee(swap, "inputs"), {"eps": 1.0}), Callee(swap, function))


def test_rearranged_inputs(swap: Path, server: ForkServer) -> None:
    source = adapted(swap, "turned")
    made = source.make(5, server, Limits())
    x, y = arrays()
    for one, other in zip(made.positional, (y[2:6], x.T, x[::-1, 1:3]), strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.flags.c_contiguous
    assert made.keywords == {"eps": 1.0}
    (items,) = source._items.values()
    assert items is not None and all(isinstance(item, View) for item in items)


@pytest.mark.parametrize(
    ("function", "wanted"),
    [
        ("scaled", lambda x, y: [x * 2, y]),
        ("single", lambda x, y: [x]),
        ("negative", lambda x, y: [-x, y]),
    ],
)
def test_inputs_made_by_the_functions_themselves(
    swap: Path, server: ForkServer, function: str, wanted: Callable[[Any, Any], list[Any]]
) -> None:
    """A function that computes, or writes into what it is given, is no rearrangement: it gets the values."""
    source = adapted(swap, function)
    for seed in (5, 6):
        made = source.make(seed, server, Limits())
        for one, other in zip(made.positional, wanted(*arrays(seed)), strict=True):
            np.testing.assert_array_equal(one, other)
    (items,) = source._items.values()
    assert (items is None) == (function != "single")


def test_a_function_of_inputs_that_fails(swap: Path, server: ForkServer) -> None:
    message = r"^function of the kernel's inputs swap.py:failing: KeyError: 'nothing' \(swap.py:22\)$"
    with pytest.raises(ReferenceFailed, match=message):
        adapted(swap, "failing").make(5, server, Limits())


def test_outputs_get_no_values_of_the_reference(swap: Path, server: ForkServer) -> None:
    """A function that returns the reference's own values gets zeros, so that nothing passes by it."""
    wanted = [np.ones((3, 2))]
    (made,) = Returned(Callee(swap, "stacked"), server, Limits())([np.ones(6, np.float32)], wanted)
    np.testing.assert_array_equal(made, np.zeros((2, 3, 2)))
    values = [np.arange(6, dtype=np.float32)]
    (kept,) = Returned(Callee(swap, "same"), server, Limits())(values, wanted)
    np.testing.assert_array_equal(kept, values[0])


def test_regions_that_count_are_those_of_the_kernels_inputs(swap: Path, server: ForkServer) -> None:
    """By hand: of x[6, 4] the kernel sees x.T and x[::-1, 1:3], of y[8] only y[2:6]; rows 4 and 5 of x do not count."""
    answers = Answers(adapted(swap, "turned"), Callee(swap, "first_rows"), server, Limits())
    # the keyword goes to the reference as well
    with pytest.raises(ReferenceFailed, match="unexpected keyword argument 'eps'"):
        answers.influences(5)
    answers.close()
    source = Adapted(Called(Callee(swap, "inputs"), {}), Callee(swap, "turned"))
    answers = Answers(source, Callee(swap, "first_rows"), server, Limits())
    found = {
        (each.input_path, each.region.name): (each.region.ranges, each.changed)
        for each in answers.influences(5)
    }
    assert found["1", "whole"] == (((0, 4), (0, 6)), True)
    assert found["2", "whole"] == (((0, 6), (0, 2)), True)
    assert found["1", "last quarter of rows"] == (((0, 4), (5, 6)), False)
    assert found["2", "last quarter of rows"] == (((0, 1), (0, 2)), False)
    assert found["0", "whole"] == (((0, 4),), True)
    assert ("0", "last quarter of rows") not in found  # y[6:8] is no part of what the kernel gets
    kept = Kept.of(answers, [5], server, Limits())
    assert kept.influences(5) == answers.influences(5)
    assert kept.trial(5, AS_DRAWN).given is not None  # type: ignore[union-attr]
    answers.close()


def test_fewer_probes(swap: Path, server: ForkServer) -> None:
    source = Adapted(Called(Callee(swap, "inputs"), {}), Callee(swap, "turned"))
    answers = Answers(source, Callee(swap, "first_rows"), server, Limits(), probes=1)
    assert {each.region.name for each in answers.influences(5)} == {"whole"}
    answers.close()


def test_the_block_of_what_changed() -> None:
    old = np.zeros((4, 5), np.float32)
    new = old.copy()
    new[1, 2] = new[2, 4] = 1
    same = np.array([np.nan, 1.0], np.float32)
    before, after = Arguments((old, same), {}), Arguments((new, same.copy()), {})
    assert changed_regions(before, after, "part") == [(0, Region("part", ((1, 3), (2, 5))))]


@pytest.mark.parametrize(
    "told",
    [
        {"of": 2, "offset": 0, "shape": [1], "strides": [1]},
        {"of": -1, "offset": 0, "shape": [1], "strides": [1]},
        {"of": 0, "offset": -1, "shape": [1], "strides": [1]},
        {"of": 0, "offset": 0, "shape": [7], "strides": [1]},
        {"of": 0, "offset": 1, "shape": [3], "strides": [-1]},
        {"of": 0, "offset": 0, "shape": [0], "strides": [1]},
        {"of": 0, "offset": 0, "shape": [2], "strides": []},
        {"of": 0, "offset": 0, "shape": [1 << 20, 1 << 20], "strides": [0, 0]},
    ],
)
def test_a_forged_view_is_refused(told: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="no view of a given array|a view beyond its array"):
        View.read(told, [np.zeros(6), np.zeros(3)])


def test_a_view_just_inside() -> None:
    view = View.read({"of": 0, "offset": 5, "shape": [2, 3], "strides": [-3, -1]}, [np.zeros(6)])
    np.testing.assert_array_equal(view.of([np.arange(6)]), [[5, 4, 3], [2, 1, 0]])


# --- the keys of a task folder

FOLDER = """\
name = "double"
description = "Twice."
kernel = "kernel"
reference = "double.py:forward"
inputs_from = "double.py:get_inputs"
kernel_inputs = "double.py:transform_to_nki_inputs"
kernel_outputs = "double.py:transform_nki_outputs"
"""


def folder_of(tmp_path: Path, more: str = "") -> Path:
    folder = tmp_path / "task"
    (folder / "submissions" / "good").mkdir(parents=True)
    (folder / "task.toml").write_text(FOLDER + more)
    (folder / "double.py").write_text(REFERENCE)
    (folder / "submissions" / "good" / "kernel.py").write_text(kernel())
    return folder


def test_a_task_folder_may_say_the_same(tmp_path: Path, server: ForkServer) -> None:
    """Here in float64, with the ordinary limits of float32."""
    folder = folder_of(tmp_path)
    task = load_task(folder)
    submission = submission_of(folder / "submissions" / "good" / "kernel.py")
    found = review(from_task(task, submission, target=None, nki=None, lnc=None), server)
    assert found.status == "acceptable"
    assert not any("dtypes of its inputs" in each for each in found.not_checked)
    assert found.runs[0].outputs[0].limits["rtol"] < 2e-5


def test_keys_of_the_reference(tmp_path: Path) -> None:
    more = (
        'float64 = false\n[reference_limits]\nseconds = 90\nmemory_gib = 0.5\n[contract]\nwithout = ["fp8"]\n'
    )
    task = load_task(folder_of(tmp_path, more))
    assert not task.float64 and task.contract.without == ("fp8",)
    limits = task.reference_limits
    assert (limits.seconds, limits.memory_gib, limits.answer_gib) == (90, 0.5, None)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("float64 = 1\n", "float64: got 1; expected true or false"),
        (
            "[reference_limits]\nseconds = 0\n",
            "reference_limits.seconds: got 0; expected a positive number of seconds",
        ),
        (
            "[workloads.a]\nprobes = 0\n",
            "workloads.a.probes: got 0; expected the number of regions of each input to change, a positive integer",
        ),
        (
            "[contract]\nwithout = ['']\n",
            "contract.without[0]: got ''; expected an array of texts that no kernel file may hold, "
            "such as ['float16']",
        ),
    ],
)
def test_mistakes_in_keys_of_the_reference(tmp_path: Path, more: str, said: str) -> None:
    folder = folder_of(tmp_path, more)
    assert sentence(lambda: load_task(folder)) == f"{folder}/task.toml: {said}"


def test_a_function_in_a_file_that_is_not_there(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    (folder / "task.toml").write_text(FOLDER.replace('_outputs = "double.py', '_outputs = "other.py'))
    said = sentence(lambda: load_task(folder))
    assert said.startswith(
        f"{folder}/task.toml: kernel_outputs: there is no file {folder}/other.py; expected"
    )


# --- commands


def call(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, arguments)
    return done.exit_code, done.output


def test_review(bench: Path) -> None:
    Path("mine.py").write_text(kernel())
    code, _ = call(
        "review", "nkibench:bench#double", "--submission", "mine.py", "--nki", "0.6", "--seeds", "1"
    )
    assert code == 0
    file = Path("nkireview-out", "double", "mine", "review.json")
    found = ReviewRecord.model_validate_json(file.read_bytes())
    assert (found.subject.task, found.subject.submission) == ("double", "mine")


def test_run(bench: Path) -> None:
    code, said = call("run", "nkibench:bench#double", "--nki", "0.6", "--json")
    (output,) = json.loads(said)["outputs"]
    assert code == 0 and output["shape"] == [256, 128] and output["rms_ratio"] == 0.0


def test_grade(bench: Path) -> None:
    folder = Path("given")
    folder.mkdir()
    (folder / "good.py").write_text(kernel())
    (folder / "off.py").write_text(kernel(error=1.001))
    (folder / "named.py").write_text(kernel("optimized_kernel"))
    code, said = call(
        "grade", "nkibench:bench#double", "given", "--nki", "0.6", "--seeds", "1", "--jobs", "1"
    )
    assert code == 0, said
    records = map(json.loads, Path("results.jsonl").read_text().splitlines())
    assert {each["name"]: each["status"] for each in records} == {
        "good": "acceptable",
        "named": "acceptable",
        "off": "rejected",
    }


OWN = "belongs to a kernel file; a task names its own"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nkibench:bench#double", "--kernel", "f"), f"nkibench:bench#double: --kernel {OWN}"),
        (("nkibench:bench#double", "--input", "x=f32[2]"), f"nkibench:bench#double: --input {OWN}"),
        (
            ("nkibench:bench#double", "--schedule-only"),
            "nkibench:bench#double: --schedule-only belongs to a kernel file",
        ),
        (
            ("nkibench:bench#double", "--submission", "no.py"),
            "--submission no.py: there is no such file; expected a Python file with the kernel",
        ),
        (
            ("bench", "--submission", "no.py"),
            "bench: --submission belongs to a task; expected a folder with task.toml in it",
        ),
    ],
)
def test_wrong_calls(bench: Path, arguments: tuple[str, ...], said: str) -> None:
    assert call("review", *arguments) == (2, f"nkireview: {said}\n")


def test_seeds_and_schedule_only_of_a_kernel_file(bench: Path) -> None:
    Path("mine.py").write_text(kernel())
    given = ("review", "mine.py", "--input", "x=f32[2,128,128]", "--schedule-only", "--seeds", "2")
    assert call(*given) == (2, "nkireview: give either --seeds or --schedule-only, not both\n")


def test_a_task_folder_with_a_submission_from_elsewhere(tmp_path: Path, bench: Path) -> None:
    folder = folder_of(tmp_path)
    Path("mine.py").write_text(kernel(error=1.01))
    code, _ = call("review", str(folder), "--submission", "mine.py", "--seeds", "1")
    assert code == 1 and Path("nkireview-out", "double", "mine", "review.json").is_file()
    said = f"nkireview: {folder}: --kernel belongs to a kernel file; a task names its own\n"
    assert call("review", str(folder), "--submission", "mine.py", "--kernel", "f") == (2, said)


def test_a_missing_kernel_file_of_a_task_is_a_wrong_call(bench: Path) -> None:
    task, (own,) = load("nkibench:bench#double")
    own.kernel_path.unlink()
    with pytest.raises(UsageError, match="double_0.py"):
        from_task(task, own, target=None, nki=None, lnc=None)


# --- the bench itself

CLONE = os.environ.get("ACCELOPT", "")
in_clone = pytest.mark.skipif(not CLONE, reason="ACCELOPT names no checkout of AccelOpt")


def operators() -> list[str]:
    if not CLONE:
        return ["any"]
    return sorted(json.loads(Path(CLONE, "NKIBench", "summary.json").read_bytes()))


def module_of(path: Path) -> ModuleType:
    """A reference of the bench, imported here: it is what the answers of the children are held against."""
    found = ModuleType(path.stem)
    exec(compile(path.read_bytes(), str(path), "exec"), found.__dict__)
    return found


@in_clone
def test_there_are_fourteen_operators() -> None:
    assert len(operators()) == 14


@in_clone
@pytest.mark.parametrize("operator", operators())
def test_an_operator_of_the_bench(operator: str, server: ForkServer) -> None:
    """Inputs, both functions between, and the reference's answer, against the bench's own file run here as it runs it.

    The kernel's result is stood in for by the answer in the shape in which the kernel returns it: flat.
    """
    task, (own,) = load(f"nkibench:{CLONE}#{operator}")
    asked = from_task(task, own, target=None, nki=None, lnc=None)
    assert asked.failure is None and asked.source is not None and asked.source.legacy
    assert asked.reference is not None and asked.returned is not None
    module = module_of(task.path(task.reference.file))
    np.random.seed(21)
    inputs = module.get_inputs()
    wanted = module.forward(*inputs)
    kernels = module.transform_to_nki_inputs(inputs)
    answers = Answers(asked.workloads[0].inputs, asked.reference, server, asked.task_limits)
    trial = answers.trial(21, AS_DRAWN)
    answers.close()
    assert trial is not None
    for one, other in zip(trial.asked.positional, inputs, strict=True):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(trial.arguments.positional, kernels, strict=True):
        np.testing.assert_array_equal(one, other)
        assert np.shape(one) == np.shape(other)
    assert len(trial.arguments.positional) == len(asked.source.parameters("kernel"))
    assert len(trial.wanted) == 1 and trial.wanted[0].dtype == np.float32
    assert norm_of_error(trial.wanted[0], wanted) < 1e-6
    flat = wanted if operator.startswith("rope") else wanted.reshape(-1)
    (made,) = Returned(asked.returned, server, asked.task_limits)([flat], trial.wanted)
    (harness,) = module.transform_nki_outputs(flat, wanted)
    assert made.shape == harness.shape == wanted.shape
    np.testing.assert_array_equal(made, wanted)
