"""Task folders: what they hold once loaded, and the sentence for each thing that can be wrong with one."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nkireview.isa import dtypes
from nkireview.isa.release import LEGACY, Release
from nkireview.numerics.hostile import HOSTILE
from nkireview.numerics.limits import Policy
from nkireview.task import Entry, Input, Task, TaskError, load_task, resolve, submissions

EXAMPLES = Path(__file__).parents[1] / "examples"
NAMES = ("causal_attention", "matmul", "rmsnorm", "softmax")

HEAD = """\
name = "softmax"
description = "Softmax of each row."
kernel = "softmax"
reference = "reference.py:softmax"
"""
SMALL = """
[workloads.small]
inputs.x = { dtype = "float32", shape = [128, 512] }
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty task folder ``softmax``, seen from its parent."""
    monkeypatch.chdir(tmp_path)
    folder = Path("softmax")
    folder.mkdir()
    (folder / "reference.py").write_text("def softmax(x): ...\n")
    return folder


def load(folder: Path, text: str) -> Task:
    (folder / "task.toml").write_text(text)
    return load_task(folder)


def problems(folder: Path, text: str) -> tuple[str, ...]:
    with pytest.raises(TaskError) as caught:
        load(folder, text)
    assert str(caught.value) == "\n".join(caught.value.problems)
    return caught.value.problems


def add_submission(folder: Path, name: str, file: str = "kernel.py") -> Path:
    path = folder / "submissions" / name / file
    path.parent.mkdir(parents=True)
    path.write_text("")
    return path


def test_a_task_with_every_key(folder: Path) -> None:
    for file in ("softmax.cu", "rubric.toml", "claims.toml"):
        (folder / file).write_text("")
    task = load(
        folder,
        HEAD
        + """
target = "inf2"
nki = "0.4.0"
lnc = 2
kernel_file = "src/softmax.py"
inputs_from = "reference.py:inputs"
cuda = "softmax.cu"
rubric = "rubric.toml"
claims = "claims.toml"

[workloads.small]
seeds = 3
inputs.x = { dtype = "bfloat16", shape = [128, 512], distribution = "uniform(0,1)" }
inputs.a = { dtype = "int32", shape = [1] }
scalars = { eps = 1e-6, causal = true, heads = 4, mode = "fast", bound = inf }
none = ["bias"]

[workloads.tree]
schedule_only = true

[tolerance]
rtol = 1e-2
per_row = true
outputs.1 = { rtol = 0, rms = 1e-3, per_row = false }

[contract]
hostile = ["scale-100", "tiny-rows"]
""",
    )
    assert (task.name, task.kernel, task.kernel_file) == ("softmax", "softmax", "src/softmax.py")
    assert (task.target, task.nki, task.lnc) == ("inf2", Release(0, 4), 2)
    assert task.reference == Entry("reference.py", "softmax")
    assert task.inputs_from == Entry("reference.py", "inputs")
    assert task.path(task.reference.file) == folder / "reference.py"
    small, tree = task.workloads["small"], task.workloads["tree"]
    assert list(small.inputs) == ["x", "a"]
    assert small.inputs["x"] == Input(dtype="bfloat16", shape=(128, 512), distribution="uniform(0,1)")
    assert small.inputs["a"] == Input(dtype="int32", shape=(1,), distribution=None)
    assert small.keywords == {
        "eps": 1e-6,
        "causal": True,
        "heads": 4,
        "mode": "fast",
        "bound": float("inf"),
        "bias": None,
    }
    assert small.keywords["causal"] is True
    assert isinstance(small.keywords["heads"], int)
    assert (small.seeds, small.schedule_only) == (3, False)
    assert (tree.inputs, tree.keywords, tree.seeds, tree.schedule_only) == ({}, {}, None, True)
    assert task.tolerance.policy(0) == Policy(rtol=1e-2, per_row=True)
    assert task.tolerance.policy(1) == Policy(rtol=0.0, rms=1e-3, per_row=False)
    assert task.contract.hostile == ("scale-100", "tiny-rows")


def test_what_is_not_given_has_a_default(folder: Path) -> None:
    task = load(folder, HEAD + SMALL)
    assert (task.target, task.nki, task.lnc, task.inputs_from) == (None, None, None, None)
    assert (task.cuda, task.rubric, task.claims) == (None, None, None)
    assert task.kernel_file == "kernel.py"
    assert task.contract.hostile == ()
    assert task.tolerance.policy(0) == Policy()
    assert load(folder, 'nki = "legacy"\n' + HEAD + SMALL).nki == LEGACY


def test_inputs_from_alone_makes_one_workload(folder: Path) -> None:
    task = load(folder, HEAD + 'inputs_from = "reference.py:inputs"\n')
    assert list(task.workloads) == ["default"]
    assert task.workloads["default"].inputs == {}


def test_a_task_cannot_be_changed(folder: Path) -> None:
    task = load(folder, HEAD + SMALL)
    with pytest.raises(ValueError, match="frozen"):
        task.name = "other"


DTYPES = ", ".join(dtypes.BY_NAME)
PLACE = "workloads.small"
REFUSALS = {
    "kernel missing": (
        HEAD.replace('kernel = "softmax"\n', "") + SMALL,
        "kernel: missing; expected the name of the kernel function, such as 'softmax'",
    ),
    "near key": (
        HEAD + 'refrence = "x"' + SMALL,
        "refrence: unknown key; did you mean 'reference'?",
    ),
    "near nested key": (
        HEAD + SMALL + "schedule-only = true\n",
        f"{PLACE}.schedule-only: unknown key; did you mean 'schedule_only'?",
    ),
    "far nested key": (
        HEAD + '[workloads.small]\ninputs.x = { dtype = "int8", shape = [1], zzz = 1 }\n',
        f"{PLACE}.inputs.x.zzz: unknown key; expected one of dtype, shape, distribution",
    ),
    "key in the tolerance of an output": (
        HEAD + SMALL + "[tolerance.outputs.0]\nrtoll = 1\n",
        "tolerance.outputs.0.rtoll: unknown key; did you mean 'rtol'?",
    ),
    "folder is no key": (HEAD + 'folder = "x"' + SMALL, "folder: unknown key; expected one of name, "),
    "name": (
        HEAD.replace('name = "softmax"', 'name = "soft max"', 1) + SMALL,
        "name: got 'soft max'; expected a name of letters, digits, '-' and '_'",
    ),
    "description": (
        HEAD.replace("Softmax of each row.", "") + SMALL,
        "description: got ''; expected a sentence that says what the kernel computes",
    ),
    "kernel type": (
        HEAD.replace('kernel = "softmax"', "kernel = 3") + SMALL,
        "kernel: got 3; expected the name of the kernel function, such as 'softmax'",
    ),
    "kernel": (
        HEAD.replace('kernel = "softmax"', 'kernel = "soft-max"') + SMALL,
        "kernel: got 'soft-max'; expected a Python identifier",
    ),
    "reference": (
        HEAD.replace("reference.py:softmax", "reference") + SMALL,
        "reference: got 'reference'; expected FILE.py:FUNCTION, such as 'reference.py:softmax'",
    ),
    "reference type": (
        HEAD.replace('"reference.py:softmax"', "[1]") + SMALL,
        "reference: got [1]; expected FILE.py:FUNCTION, such as 'reference.py:softmax'",
    ),
    "reference file": (
        HEAD.replace("reference.py:", "ref.py:") + SMALL,
        "reference: there is no file softmax/ref.py; expected FILE.py:FUNCTION, such as 'reference.py:softmax'",
    ),
    "inputs_from file": (
        HEAD + 'inputs_from = "in.py:f"' + SMALL,
        "inputs_from: there is no file softmax/in.py; expected FILE.py:FUNCTION of a function of a seed, "
        "such as 'reference.py:inputs'",
    ),
    "cuda": (
        HEAD + 'cuda = "k.cu"' + SMALL,
        "cuda: there is no file softmax/k.cu; expected the path of the CUDA original, relative to the task folder",
    ),
    "rubric": (
        HEAD + 'rubric = "r.toml"' + SMALL,
        "rubric: there is no file softmax/r.toml; expected the path of a rubric, relative to the task folder",
    ),
    "claims": (
        HEAD + 'claims = "c.toml"' + SMALL,
        "claims: there is no file softmax/c.toml; expected the path of the claims, relative to the task folder",
    ),
    "kernel_file": (
        HEAD + 'kernel_file = "../kernel.py"' + SMALL,
        "kernel_file: got '../kernel.py'; expected a Python file inside the submission's folder",
    ),
    "absolute kernel_file": (
        HEAD + 'kernel_file = "/kernel.py"' + SMALL,
        "kernel_file: got '/kernel.py'; expected a Python file inside the submission's folder",
    ),
    "target": (
        HEAD + 'target = "trn9"' + SMALL,
        "target: got 'trn9'; expected one of trn1, inf2, trn2, trn3",
    ),
    "nki": (
        HEAD + 'nki = "0.9"' + SMALL,
        "nki: unknown NKI release '0.9': expected one of 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, or legacy (= 0.1)",
    ),
    "nki type": (
        HEAD + "nki = 0.6" + SMALL,
        "nki: got 0.6; expected an NKI release as a string, such as '0.6' or 'legacy'",
    ),
    "lnc": (HEAD + "lnc = 3" + SMALL, "lnc: got 3; expected 1 or 2"),
    "lnc type": (HEAD + "lnc = true" + SMALL, "lnc: got true; expected 1 or 2"),
    "no workload": (HEAD, "workloads: missing; expected a table [workloads.NAME], or inputs_from"),
    "workloads type": (
        HEAD + "workloads = [1]",
        "workloads: got [1]; expected a table for each workload, such as [workloads.small]",
    ),
    "workload name": (
        HEAD + SMALL.replace("small", '"very small"'),
        "workloads.very small: got 'very small'; expected a name of letters, digits, '-' and '_'",
    ),
    "no inputs": (
        HEAD + "[workloads.small]\nseeds = 2",
        f"{PLACE}.inputs: missing; expected a table of inputs, or inputs_from in the task",
    ),
    "dtype": (
        HEAD + SMALL.replace("float32", "bf17"),
        f"{PLACE}.inputs.x.dtype: 'bf17' is no NKI dtype; expected one of {DTYPES}",
    ),
    "dtype type": (
        HEAD + SMALL.replace('"float32"', "32"),
        f"{PLACE}.inputs.x.dtype: got 32; expected the name of an NKI dtype, such as 'float32'",
    ),
    "shape": (
        HEAD + SMALL.replace("512", "0"),
        f"{PLACE}.inputs.x.shape[1]: got 0; expected an array of positive integers, such as [128, 512]",
    ),
    "shape element": (
        HEAD + SMALL.replace("128", "128.0"),
        f"{PLACE}.inputs.x.shape[0]: got 128.0; expected an array of positive integers, such as [128, 512]",
    ),
    "empty shape": (
        HEAD + SMALL.replace("128, 512", ""),
        f"{PLACE}.inputs.x.shape: got []; expected an array of positive integers, such as [128, 512]",
    ),
    "distribution": (
        HEAD + SMALL.replace("512]", '512], distribution = ""'),
        f"{PLACE}.inputs.x.distribution: got ''; expected the name of a distribution, "
        "such as 'normal' or 'uniform(0,1)'",
    ),
    "input type": (
        HEAD + "[workloads.small]\ninputs.x = 3\n",
        f"{PLACE}.inputs.x: got 3; expected a table of inputs, "
        "such as x = { dtype = 'float32', shape = [128, 512] }",
    ),
    "input name": (
        HEAD + SMALL.replace("inputs.x", 'inputs."1x"'),
        f"{PLACE}.inputs.1x: got '1x'; expected a Python identifier",
    ),
    "scalar": (
        HEAD + SMALL + "scalars = { pads = [1, 2] }\n",
        f"{PLACE}.scalars.pads: got [1, 2]; expected a number, a boolean or a string (a None goes into 'none')",
    ),
    "scalar table": (
        HEAD + SMALL + "scalars.eps = { value = 1 }\n",
        f"{PLACE}.scalars.eps: got a table; expected a number, a boolean or a string (a None goes into 'none')",
    ),
    "none": (
        HEAD + SMALL + 'none = "bias"\n',
        f"{PLACE}.none: got 'bias'; expected an array of the parameters that are None, such as ['bias']",
    ),
    "parameter twice": (
        HEAD + SMALL + "scalars = { x = 1 }\n",
        f"{PLACE}: 'x' is in inputs and in scalars; expected it in one of them",
    ),
    "seeds": (
        HEAD + SMALL + "seeds = 0\n",
        f"{PLACE}.seeds: got 0; expected the number of seeds to execute, a positive integer",
    ),
    "seeds of a schedule": (
        HEAD + SMALL + "seeds = 1\nschedule_only = true\n",
        f"{PLACE}: seeds are given, but a schedule-only workload is never executed; remove one of the two",
    ),
    "schedule_only": (
        HEAD + SMALL + "schedule_only = 1\n",
        f"{PLACE}.schedule_only: got 1; expected true or false",
    ),
    "tolerance": (
        HEAD + SMALL + "[tolerance]\nrtol = -1.0\n",
        "tolerance.rtol: got -1.0; expected a finite number of at least 0",
    ),
    "tolerance nan": (
        HEAD + SMALL + "[tolerance]\natol = nan\n",
        "tolerance.atol: got nan; expected a finite number of at least 0",
    ),
    "per_row": (
        HEAD + SMALL + "[tolerance]\nper_row = 0.1\n",
        "tolerance.per_row: got 0.1; expected true or false",
    ),
    "tolerance type": (
        HEAD + "tolerance = 1e-3" + SMALL,
        "tolerance: got 0.001; expected a table with any of rtol, atol, rms, absolute, per_row and outputs",
    ),
    "output position": (
        HEAD + SMALL + "[tolerance.outputs.out]\nrtol = 1\n",
        "tolerance.outputs.out: got 'out'; expected the position of an output, counted from 0",
    ),
    "hostile": (
        HEAD + SMALL + '[contract]\nhostile = "scale-100"\n',
        "contract.hostile: got 'scale-100'; expected an array of the names of hostile inputs, such as ['scale-100']",
    ),
    "hostile name": (
        HEAD + SMALL + '[contract]\nhostile = ["tiny-rows", "scale-10"]\n',
        f"contract.hostile[1]: 'scale-10' is no hostile variant; expected one of {', '.join(HOSTILE)}",
    ),
    "long value": (
        HEAD + f'lnc = "{"x" * 100}"' + SMALL,
        f"lnc: got '{'x' * 56}...; expected 1 or 2",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_each_refusal_has_its_sentence(case: str, folder: Path) -> None:
    text, expected = REFUSALS[case]
    (sentence,) = problems(folder, text)
    assert sentence.startswith(f"softmax/task.toml: {expected}")
    assert "\n" not in sentence
    if not expected.endswith(" "):
        assert sentence == f"softmax/task.toml: {expected}"


def test_all_problems_are_told_at_once(folder: Path) -> None:
    found = problems(folder, HEAD.replace("kernel =", "kernal =") + SMALL.replace("float32", "fp32"))
    assert [sentence.split("; ")[0] for sentence in found] == [
        "softmax/task.toml: kernel: missing",
        "softmax/task.toml: workloads.small.inputs.x.dtype: 'fp32' is no NKI dtype",
        "softmax/task.toml: kernal: unknown key",
    ]
    text = HEAD.replace("reference.py", "ref.py") + 'cuda = "k.cu"' + SMALL
    assert len(problems(folder, text)) == 2


def test_toml_that_cannot_be_read(folder: Path) -> None:
    (sentence,) = problems(folder, HEAD + "lnc = = 2\n")
    assert sentence.startswith("softmax/task.toml: this is no valid TOML: ")
    assert "line 5" in sentence

    (folder / "task.toml").write_bytes(b'name = "\xff"')
    with pytest.raises(TaskError) as caught:
        load_task(folder)
    assert str(caught.value) == "softmax/task.toml: byte 8 is not UTF-8; expected a TOML file in UTF-8"

    (folder / "task.toml").unlink()
    with pytest.raises(TaskError) as caught:
        load_task(folder)
    assert str(caught.value) == (
        "softmax/task.toml: there is no such file; expected a task folder with task.toml in it"
    )

    (folder / "task.toml").mkdir()
    with pytest.raises(TaskError) as caught:
        load_task(folder)
    assert str(caught.value) == "softmax/task.toml: it cannot be read (Is a directory); expected a TOML file"


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(TaskError) as caught:
        call()
    return str(caught.value)


def test_missing_submissions(folder: Path) -> None:
    task = load(folder, HEAD + SMALL)
    expected = "expected softmax/submissions/NAME/kernel.py for each submission"
    assert refusal(lambda: submissions(task)) == f"softmax/submissions: there is no such folder; {expected}"

    (folder / "submissions" / "__pycache__").mkdir(parents=True)
    (folder / "submissions" / "README.md").write_text("")
    assert (
        refusal(lambda: submissions(task)) == f"softmax/submissions: there is no submission in it; {expected}"
    )

    add_submission(folder, "good")
    (folder / "submissions" / "bare").mkdir()
    sentence = "softmax/submissions/bare/kernel.py: there is no such file; expected the file with the kernel 'softmax'"
    assert refusal(lambda: submissions(task)) == sentence
    assert refusal(lambda: resolve("softmax/submissions/bare")) == sentence
    assert [found.name for found in resolve("softmax/submissions/good")[1]] == ["good"]


def test_resolve_reads_each_kind_of_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load(folder, HEAD + 'kernel_file = "src/k.py"' + SMALL)
    kernel = add_submission(folder, "b", "src/k.py")
    add_submission(folder, "a", "src/k.py")
    task, both = resolve("softmax")
    assert task.folder == folder
    assert [found.name for found in both] == ["a", "b"]
    assert both[1].kernel_path == kernel
    assert both[1].folder == folder / "submissions" / "b"
    for path in (
        Path("softmax/submissions/b"),
        kernel,
        kernel.resolve(),
        Path("softmax/../softmax/submissions/b/"),
    ):
        assert resolve(path) == (task, [both[1]])
    monkeypatch.chdir(folder / "submissions" / "b")
    (found,) = resolve(".")[1]
    assert found.kernel_path.resolve() == Path("src/k.py").resolve()


def test_resolve_refuses_other_paths(folder: Path) -> None:
    load(folder, HEAD + SMALL)
    add_submission(folder, "good")
    other = folder / "submissions" / "good" / "helper.py"
    other.write_text("")
    wanted = "a folder with task.toml, a folder submissions/NAME in one, or the kernel file in that"
    assert (
        refusal(lambda: resolve("nowhere")) == f"nowhere: there is no such file or folder; expected {wanted}"
    )
    assert refusal(lambda: resolve("softmax/submissions")) == (
        f"softmax/submissions: this belongs to no task; expected {wanted}"
    )
    assert refusal(lambda: resolve(folder / "reference.py")) == (
        f"softmax/reference.py: this belongs to no task; expected {wanted}"
    )
    assert refusal(lambda: resolve(other)) == (
        f"{other}: this is not the kernel file of its submission; expected softmax/submissions/good/kernel.py"
    )


@pytest.mark.parametrize("name", NAMES)
def test_an_example_round_trips(name: str) -> None:
    task, found = resolve(EXAMPLES / name)
    assert task.name == task.kernel == task.reference.function == name
    assert [submission.name for submission in found] == ["good", "slow", "wrong"]
    assert [workload for workload, keys in task.workloads.items() if keys.schedule_only] == ["large"]
    for submission in found:
        for workload in task.workloads.values():
            assert parameters(submission.kernel_path, name) == [*workload.inputs, *workload.keywords]
    assert parameters(task.path(task.reference.file), name) == parameters(found[0].kernel_path, name)


def test_the_examples_are_these() -> None:
    assert sorted(path.parent.name for path in EXAMPLES.glob("*/task.toml")) == list(NAMES)


def parameters(file: Path, function: str) -> list[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    (found,) = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function)
    return [argument.arg for argument in found.args.args]


def reference(name: str) -> Callable[..., Any]:
    spec = importlib.util.spec_from_file_location(f"reference_{name}", EXAMPLES / name / "reference.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function: Callable[..., Any] = getattr(module, name)
    return function


def unshifted_softmax(x: Any) -> Any:
    return np.exp(x) / np.sum(np.exp(x), axis=-1, keepdims=True)


def attention_by_query(q_t: Any, k_t: Any, v: Any, scale: float) -> Any:
    rows = [
        unshifted_softmax(scale * (q_t[:, i] @ k_t[:, : i + 1])) @ v[: i + 1] for i in range(q_t.shape[1])
    ]
    return np.stack(rows)


ORACLES: dict[str, Callable[..., Any]] = {
    "causal_attention": attention_by_query,
    "matmul": lambda lhs_t, rhs: np.einsum("km,kn->mn", lhs_t, rhs),
    "rmsnorm": lambda x, gamma, eps: (
        gamma * x / (np.linalg.norm(x, axis=1)[:, None] ** 2 / x.shape[1] + eps) ** 0.5
    ),
    "softmax": unshifted_softmax,
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", NAMES)
def test_a_reference_is_right_in_the_dtype_of_its_inputs(name: str, dtype: type[np.floating[Any]]) -> None:
    workload = next(iter(load_task(EXAMPLES / name).workloads.values()))
    rng = np.random.default_rng(7)
    inputs = [rng.standard_normal(spec.shape) for spec in workload.inputs.values()]
    got = reference(name)(*(array.astype(dtype) for array in inputs), **workload.keywords)
    assert got.dtype == dtype
    tolerance = 1e-12 if dtype is np.float64 else 1e-4
    np.testing.assert_allclose(
        got, ORACLES[name](*inputs, **workload.keywords), rtol=tolerance, atol=tolerance
    )
