"""The suite on public code: its rows, and the machinery that runs them, without any clone."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, Literal

import pytest
from click.testing import CliRunner, Result

from nkireview.cli import main as cli
from nkireview.record import (
    CountsRecord,
    Figures,
    Legality,
    OutputResult,
    ReviewRecord,
    Run,
    Setting,
    Subject,
    TimeRecord,
)
from nkireview.rules.finding import Dimension, Evidence, Finding, Severity
from nkireview.task import load_task

ROOT = Path(__file__).parents[1]


def _load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


public = _load("public")
SUITE = public.load_suite(ROOT / "compat.toml")

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

ROW: dict[str, Any] = {
    "id": "tiny",
    "issue": 7,
    "clone": "owner/name",
    "tag": "v1",
    "paths": ["docs"],
    "cut": {"file": "docs/page.rst", "block": 1},
    "command": "review {cut}\n--reference {compat}/tiny.py:tiny",
    "expected": {"exit": 0, "runs": "correct"},
    "note": "A kernel.",
}

PAGE = """\
A page
======

.. code-block:: python

    print("no kernel")

Text.

.. code-block:: python
   :linenos:

   import nki

   @nki.jit
   def first(x):
     \"\"\"A docstring.

       With an indented line.
     \"\"\"
     return x

   y = 1

.. code-block:: bash

   @nki.jit

.. list-table::
   :widths: 50 50

   * - .. code-block:: python

          @nki.jit(mode="x")
          def second(x):
              return x

     - .. image:: /picture.png
          :width: 100%

.. tabs::

   .. tab:: PyTorch

      .. code-block:: python

          this is not Python

      .. code-block:: python

          @nki.jit
          def third(x): return x
   Text that ends the tab.

.. code-block:: python

   @jax.jit
   def other(x):
       return x
"""

FIRST = '''\
import nki

@nki.jit
def first(x):
  """A docstring.

    With an indented line.
  """
  return x

y = 1
'''


def toml(row: dict[str, Any]) -> str:
    """A row as the text of a suite; JSON's spelling of strings, numbers and arrays is TOML's too."""

    def value(item: Any) -> str:
        if isinstance(item, dict):
            return "{ " + ", ".join(f"{json.dumps(key)} = {value(each)}" for key, each in item.items()) + " }"
        return json.dumps(item)

    return "[[row]]\n" + "".join(f"{key} = {value(item)}\n" for key, item in row.items())


def problems(tmp_path: Path, *rows: dict[str, Any]) -> str:
    """The sentences that a suite with these rows is refused with."""
    file = tmp_path / "compat.toml"
    file.write_text("\n".join(toml(row) for row in rows))
    with pytest.raises(public.SuiteError) as caught:
        public.load_suite(file)
    return str(caught.value).replace(f"{tmp_path}/", "")


# The rows


def test_ids_are_unique_and_documented() -> None:
    ids = [row.id for row in SUITE.rows]
    assert len(set(ids)) == len(ids)
    _, _, text = (ROOT / "docs" / "compatibility.md").read_text().partition("## The rows")
    documented = re.findall(r"^\| `([a-z0-9-]+)`", text, re.MULTILINE)
    assert documented == ids


def test_every_adaptor_function_exists() -> None:
    named = [
        match.groups()
        for row in SUITE.rows
        for word in shlex.split(row.command)
        if (match := re.fullmatch(r"\{compat\}/(.+):(\w+)", word))
    ]
    assert named
    for file, function in named:
        tree = ast.parse((ROOT / "compat" / file).read_text())
        assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, (
            file,
            function,
        )


def test_every_adaptor_is_used() -> None:
    commands = " ".join(row.command for row in SUITE.rows)
    for file in (ROOT / "compat").glob("*.py"):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                assert re.search(rf"\{{compat\}}/{file.name}:{node.name}\b", commands), (file.name, node.name)


def test_every_option_exists() -> None:
    for row in SUITE.rows:
        name, *words = row.arguments()
        if name == "exec":
            words = words[: next(at for at, word in enumerate(words) if word.endswith(".py") or word == "-m")]
        known = {option for parameter in cli.commands[name].params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known, row.id


# The schema


def test_a_complete_row_is_accepted(tmp_path: Path) -> None:
    file = tmp_path / "compat.toml"
    file.write_text(toml(ROW))
    (row,) = public.load_suite(file).rows
    assert row.revision == "v1"
    assert row.arguments() == ["review", "cut.py", "--reference", "compat/tiny.py:tiny"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"colour": "red"}, "row tiny: colour: Extra inputs are not permitted"),
        ({"commit": "81ce03ae"}, "row tiny: expected either a commit or a tag"),
        ({"tag": None}, "row tiny: expected either a commit or a tag"),
        (
            {"paths": ["../docs"]},
            "row tiny: paths: 0: got '../docs'; expected a path inside the clone",
        ),
        (
            {"paths": []},
            "row tiny: paths is empty; expected the files and folders of the clone that are needed",
        ),
        (
            {"paths": ["doc"]},
            "row tiny: cut.file 'docs/page.rst' is not below any of the paths",
        ),
        (
            {"cut": None},
            "row tiny: expected {cut} in the command if and only if the row has a cut",
        ),
        (
            {"command": "make {clone}"},
            "row tiny: command: got 'make {clone}'; expected a command of ours, 'review ...', 'run ...' or "
            "'exec ...'",
        ),
        (
            {"command": "review '{cut}"},
            'row tiny: command: got "review \'{cut}"; expected a command line (No closing quotation)',
        ),
        (
            {"command": "review {cut} {home}"},
            "row tiny: command: unknown placeholder {home}; expected one of {clone}, {cut}, {compat}",
        ),
        (
            {"expected": {"exit": 0, "findings": ["NKR002"]}},
            "row tiny: expected 'blockers' or 'runs' or 'time_ms' of review commands",
        ),
        (
            {"expected": {"exit": 0, "violations": 0, "runs": "correct"}},
            "row tiny: expected no 'violations' of review commands",
        ),
        (
            {"command": "run {cut}", "expected": {"exit": 0, "counts": {"instructions": 1}}},
            "row tiny: expected 'violations' of run commands",
        ),
        (
            {"command": "run {cut}", "expected": {"exit": 0, "violations": 0, "runs": "correct"}},
            "row tiny: expected no 'runs' of run commands",
        ),
        (
            {"command": "exec {cut}", "expected": {"exit": 0, "violations": 0, "runs": "correct"}},
            "row tiny: expected no 'runs', 'violations' of exec commands",
        ),
        (
            {"command": "exec {cut}", "expected": {"exit": 0, "prints": {"match": -1}}},
            "row tiny: expected: prints: match: Input should be greater than or equal to 0",
        ),
        (
            {"expected": {"exit": 0, "time_ms": {"at": 0, "within": 0.15}}},
            "row tiny: expected: time_ms: at: Input should be greater than 0",
        ),
        (
            {"expected": {"exit": 0, "time_ms": {"at": 39.9, "within": 1}}},
            "row tiny: expected: time_ms: within: Input should be less than 1",
        ),
        (
            {"expected": {"exit": 0, "time_ms": {"at": 39.9}}},
            "row tiny: expected: time_ms: within: Field required",
        ),
        (
            {"expected": {"exit": 0, "runs": "correct", "blockers": ["NKR001"]}},
            "row tiny: expected: exit is 0, but blockers are allowed; expected exit = 1 or no blockers",
        ),
        (
            {"expected": {"exit": 0, "runs": "correct", "counts": {"by_opcode": 1}}},
            "row tiny: expected: counts: 'by_opcode' is no figure; expected one such as 'by_opcode.nc_matmul'",
        ),
        (
            {"expected": {"exit": 0, "runs": "correct", "counts": {"instructions.x": 1}}},
            "row tiny: expected: counts: 'instructions.x' is no figure; expected one such as "
            "'by_opcode.nc_matmul'",
        ),
    ],
)
def test_a_malformed_row_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    row = {key: value for key, value in {**ROW, **change}.items() if value is not None}
    assert problems(tmp_path, row) == f"compat.toml: {message}"


@pytest.mark.parametrize(
    "expected",
    [{"exit": 0, "time_ms": {"at": 39.9, "within": 0.15}}, {"exit": 1, "blockers": ["NKR004"]}],
)
def test_a_review_without_runs_is_accepted(expected: dict[str, Any]) -> None:
    assert public.Row.model_validate({**ROW, "expected": expected}).expected.runs is None


def test_a_cut_with_a_task_is_its_submission() -> None:
    cut = {"file": "docs/page.rst", "block": 1, "task": "tiny_task"}
    row = public.Row.model_validate({**ROW, "cut": cut, "command": "review {cut} --seed 1"})
    assert row.arguments() == ["review", "compat/tiny_task/submissions/cut", "--seed", "1"]
    assert row.cut.place == "compat/tiny_task/submissions/cut/kernel.py"
    assert public.Cut(file="docs/page.rst", block=1).place == "cut.py"


def test_every_task_of_a_cut_is_complete() -> None:
    tasks = {row.cut.task for row in SUITE.rows if row.cut is not None and row.cut.task}
    assert tasks
    for name in tasks:
        task = load_task(ROOT / "compat" / name)
        assert all(workload.schedule_only for workload in task.workloads.values())


def test_a_tree_holds_the_reviews_at_its_commit() -> None:
    tree = public.Tree(clone="owner/name", tag="v1", paths=("docs",), nki="0.6.0")
    assert tree.nki == "0.6"
    row = public.Row.model_validate(ROW)
    assert tree.holds(row)
    assert not tree.holds(row.model_copy(update={"tag": "v2"}))
    assert not tree.holds(row.model_copy(update={"clone": "owner/other"}))
    assert not tree.holds(row.model_copy(update={"command": "run {cut}"}))


def test_an_id_given_twice_is_refused(tmp_path: Path) -> None:
    assert problems(tmp_path, ROW, ROW) == "compat.toml: row id 'tiny' is given twice; expected each once"


def test_a_suite_that_is_missing_or_no_toml_is_refused(tmp_path: Path) -> None:
    with pytest.raises(public.SuiteError, match="No such file or directory; expected a suite of"):
        public.load_suite(tmp_path / "compat.toml")
    (tmp_path / "compat.toml").write_text("[[row")
    with pytest.raises(public.SuiteError, match="not TOML: "):
        public.load_suite(tmp_path / "compat.toml")


def test_rows_are_selected_by_issue_and_id() -> None:
    first = SUITE.rows[0]
    assert public.select(SUITE, first.issue, first.id) == [first]
    assert public.select(SUITE, None, None) == list(SUITE.rows)
    with pytest.raises(public.SuiteError, match=r"no row has issue 999 and id 'x'; the rows are "):
        public.select(SUITE, 999, "x")


# Cutting


def test_blocks_with_a_kernel_are_cut_unchanged() -> None:
    blocks = public.kernel_blocks(PAGE)
    assert blocks == [
        FIRST,
        '@nki.jit(mode="x")\ndef second(x):\n    return x\n',
        "@nki.jit\ndef third(x): return x\n",
    ]


def test_a_cut_that_the_page_does_not_have(tmp_path: Path) -> None:
    with pytest.raises(public.RowError, match=r"page.rst: no such file in the clone at this commit"):
        public.cut_block(public.Cut(file="page.rst", block=1), tmp_path)
    (tmp_path / "page.rst").write_text(PAGE)
    assert public.cut_block(public.Cut(file="page.rst", block=1), tmp_path) == FIRST
    with_imports = public.cut_block(public.Cut(file="page.rst", block=1, imports=True), tmp_path)
    assert with_imports == f"import nki\nimport nki.isa as nisa\nimport nki.language as nl\n\n\n{FIRST}"
    with pytest.raises(public.RowError, match=r"page.rst: has 3 blocks with a kernel, block 4 was asked for"):
        public.cut_block(public.Cut(file="page.rst", block=4), tmp_path)


# Clones


def git(folder: Path, *arguments: str) -> None:
    """A git command that depends on no configuration of the machine."""
    identity = ["-c", "user.name=tester", "-c", "user.email=tester@localhost", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with the page at tag v1, changed since."""
    folder = tmp_path_factory.mktemp("origin")
    git(folder, "init", "--quiet")
    (folder / "docs").mkdir()
    page = folder / "docs" / "page.rst"
    (folder / "other.txt").write_text("not needed")
    for text, tag in ((PAGE, "v1"), ("changed", "v2")):
        page.write_text(text)
        git(folder, "add", ".")
        git(folder, "commit", "--quiet", "-m", tag)
        git(folder, "tag", tag)
    return folder


@needs_git
@pytest.mark.parametrize("name", ["owner+name", "name", "owner+name/repo", "name/repo"])
@pytest.mark.parametrize("kind", ["work tree", "bare"])
def test_clones_are_found(tmp_path: Path, origin: Path, name: str, kind: str) -> None:
    folder = tmp_path / name
    folder.parent.mkdir(exist_ok=True)
    bare = ["--bare"] if kind == "bare" else []
    git(tmp_path, "clone", "--quiet", *bare, str(origin), str(folder))
    found = public.locate(tmp_path, "owner/name")
    assert found == (folder if bare else folder / ".git")
    commit = public.resolve(found, public.Row.model_validate(ROW))
    assert re.fullmatch("[0-9a-f]{40}", commit)
    public.extract(found, commit, ["docs"], tmp_path / "into")
    assert (tmp_path / "into" / "docs" / "page.rst").read_text() == PAGE
    assert not (tmp_path / "into" / "other.txt").exists()


@needs_git
def test_what_a_clone_does_not_have(tmp_path: Path, origin: Path) -> None:
    with pytest.raises(
        public.MissingError, match=r"clone owner/name is not in .*; expected the folder owner\+name or name"
    ):
        public.locate(tmp_path, "owner/name")
    found = origin / ".git"
    row = public.Row.model_validate({**ROW, "tag": "v3"})
    with pytest.raises(public.MissingError, match=r"clone owner/name has no tag v3; fetch it into the clone"):
        public.resolve(found, row)
    row = public.Row.model_validate({**{k: v for k, v in ROW.items() if k != "tag"}, "commit": "0" * 40})
    with pytest.raises(public.MissingError, match=r"has no commit 0{40}; fetch it"):
        public.resolve(found, row)
    with pytest.raises(public.RowError, match=r"git archive: .*nowhere"):
        public.extract(found, "v1", ["nowhere"], tmp_path / "into")


# Running


def record(status: Literal["correct", "wrong"] = "correct", blocker: bool = False) -> ReviewRecord:
    """A review with one run within the contract and a wrong one outside."""
    figures = Figures(
        scaled_max=0.25,
        rms_ratio=float("inf"),
        max_ulps=None,
        max_abs=0.0,
        at=(),
        got="",
        expected="",
        elements=1,
        nonfinite_mismatches=0,
    )
    reason = "" if status == "correct" else "too far"
    output = OutputResult(
        name="out", dtype="float32", shape=(1,), status=status, figures=figures, reason=reason
    )
    severity = Severity.blocker if blocker else Severity.major
    finding = Finding(
        code="NKR002",
        severity=severity,
        dimension=Dimension.sdk,
        evidence=Evidence.traced,
        message="returned from nl.hbm",
    )
    default = Setting(value="", origin="default")
    return ReviewRecord(
        tool="nkireview",
        subject=Subject(kernel="first", file="cut.py", target=default, release=default, lnc=default),
        status="rejected" if blocker else "acceptable",
        legality=Legality(status="legal"),
        runs=(
            Run(workload="inputs", seed=1, status=status, outputs=(output,)),
            Run(workload="inputs", seed=1, in_contract=False, status="wrong", outputs=(output,)),
        ),
        counts=(
            CountsRecord(
                workload="inputs",
                instructions=3,
                by_engine={},
                by_opcode={"nc_matmul": 2},
                bytes_by_route={},
                multiply_accumulates=5,
                dma_transfers=1,
            ),
        ),
        findings=(finding,),
    )


def finished(record: ReviewRecord) -> Any:
    """What a command that wrote this record has given."""
    return public.Finished(int(record.exit_code), 1.0, "", public.Outcome.of_review(record))


@pytest.mark.parametrize(
    ("expected", "found", "differences"),
    [
        ({}, record(), []),
        ({"findings": ["NKR002"], "counts": {"by_opcode.nc_matmul": 2, "instructions": 3}}, record(), []),
        ({"findings": ["NKR001"]}, record(), ["NKR001 was not found"]),
        (
            {"counts": {"by_opcode.nc_matmul": 1, "by_opcode.iota": 1, "dma_transfers": 2}},
            record(),
            [
                "by_opcode.nc_matmul is 2, expected 1",
                "by_opcode.iota is 0, expected 1",
                "dma_transfers is 1, expected 2",
            ],
        ),
        ({}, record("wrong"), ["run with seed 1 is wrong, expected correct: too far"]),
        ({"runs": "wrong"}, record("wrong"), []),
        (
            {},
            record(blocker=True),
            [
                "exit code 1, expected 0: NKR002 returned from nl.hbm",
                "NKR002 blocks: returned from nl.hbm",
            ],
        ),
        ({"exit": 1, "blockers": ["NKR002"]}, record(blocker=True), []),
    ],
)
def test_what_differs_from_the_expected(
    expected: dict[str, Any], found: ReviewRecord, differences: list[str]
) -> None:
    wanted = public.Expected.model_validate({"exit": 0, "runs": "correct", **expected})
    assert list(public.compare(wanted, finished(found))) == differences


def test_a_command_without_a_record_differs() -> None:
    wanted = public.Expected(exit=0, runs="correct")
    assert list(public.compare(wanted, public.Finished(2, 1.0, "no such option", None))) == [
        "exit code 2, expected 0: no such option"
    ]
    assert list(public.compare(wanted, public.Finished(0, 1.0, "", None))) == ["no record was written"]
    nothing = public.Outcome(status="acceptable")
    assert list(public.compare(wanted, public.Finished(0, 1.0, "", nothing))) == [
        "no run was executed, expected runs that are correct"
    ]


@pytest.mark.parametrize(
    ("total_ns", "differences"),
    [
        (39.9e6, []),
        (45.8e6, []),
        (34.0e6, []),
        (45.9e6, ["full is predicted to take 45.9 ms, expected 39.9 ms within 15%"]),
        (33.9e6, ["full is predicted to take 33.9 ms, expected 39.9 ms within 15%"]),
        (None, ["no time was predicted, expected 39.9 ms"]),
    ],
)
def test_a_predicted_time_is_compared(total_ns: float | None, differences: list[str]) -> None:
    wanted = public.Expected(exit=0, time_ms=public.Time(at=39.9, within=0.15))
    times = []
    if total_ns is not None:
        band = {"low_ns": 0.65 * total_ns, "high_ns": 1.35 * total_ns, "floor_ns": 0.0, "overlap": 0.5}
        times = [TimeRecord(workload="full", total_ns=total_ns, bound="memory", bound_by="HBM", **band)]
    found = record().model_copy(update={"runs": (), "times": tuple(times)})
    assert list(public.compare(wanted, finished(found))) == differences


def test_runs_do_not_count_where_only_blockers_are_expected() -> None:
    wanted = public.Expected(exit=1, blockers=("NKR002",))
    assert list(public.compare(wanted, finished(record("wrong", blocker=True)))) == []


def test_violations_are_counted() -> None:
    wanted = public.Expected(exit=0, violations=0)
    outcome = public.Outcome(violations=("too wide",))
    assert list(public.compare(wanted, public.Finished(0, 1.0, "", outcome))) == [
        "1 violations, expected 0: too wide"
    ]


def test_printed_lines_are_counted() -> None:
    wanted = public.Expected(exit=0, prints={"match": 2, "differ": 0})
    for lines, differences in (
        ("match\nboth match and match\n", []),
        ("match\ndiffer\n", [(1, "match", 2), (1, "differ", 0)]),
    ):
        outcome = public.Outcome.of_exec(lines, wanted.prints)
        assert list(public.compare(wanted, public.Finished(0, 1.0, "", outcome))) == [
            f"{got} lines of what it printed hold {text!r}, expected {count}"
            for got, text, count in differences
        ]


FAKE = """\
import json, pathlib, sys
assert pathlib.Path("cut.py").read_text() == {first!r}
assert pathlib.Path("clone/docs/page.rst").is_file() and pathlib.Path("compat/tiny.py").is_file()
assert sys.argv[1:] == ["review", "cut.py", "--reference", "compat/tiny.py:tiny", "--out", "out"]
pathlib.Path("out").mkdir()
pathlib.Path("out/review.json").write_text({record!r})
sys.exit({code})
"""


@pytest.fixture
def project(tmp_path: Path, origin: Path) -> Path:
    """A project with a suite of one row, its adaptor, and a folder with the clone."""
    (tmp_path / "compat.toml").write_text(toml(ROW))
    (tmp_path / "compat").mkdir()
    (tmp_path / "compat" / "tiny.py").write_text("def tiny(x): ...\n")
    (tmp_path / "clones").mkdir()
    git(tmp_path, "clone", "--quiet", "--bare", str(origin), str(tmp_path / "clones" / "name"))
    return tmp_path


def call(project: Path, *options: str) -> Result:
    """Run the tool in a project, with results below docs."""
    places = ["--suite", str(project / "compat.toml"), "--out", str(project / "docs")]
    return CliRunner().invoke(public.main, ["--clones", str(project / "clones"), *places, *options])


def pretend(monkeypatch: pytest.MonkeyPatch, project: Path, written: ReviewRecord) -> None:
    """Put a script that writes a record in place of our command."""
    fake = project / "fake.py"
    fake.write_text(FAKE.format(first=FIRST, record=written.model_dump_json(), code=int(written.exit_code)))
    monkeypatch.setattr(public, "CLI", (sys.executable, str(fake)))


@needs_git
def test_a_row_is_measured_and_written(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, project, record())
    result = call(project, "--issue", "7")
    assert result.exit_code == 0, result.output
    assert re.fullmatch(r"ok       tiny \(\d+\.\d s\)", result.output.splitlines()[0])
    written = json.loads((project / "docs" / "issue-7.json").read_text())
    (row,) = written["rows"]
    assert (row["id"], row["revision"], row["status"], row["exit"]) == ("tiny", "v1", "ok", 0)
    assert row["command"] == "nkireview review {cut} --reference {compat}/tiny.py:tiny"
    (run,) = row["outcome"]["runs"]
    assert run["outputs"][0]["figures"]["scaled_max"] == 0.25
    assert run["outputs"][0]["figures"]["rms_ratio"] == "Infinity"
    assert str(project) not in json.dumps(written)


@needs_git
def test_a_row_that_fails_exits_with_1(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, project, record(blocker=True))
    result = call(project)
    assert result.exit_code == 1
    assert result.output.splitlines()[0] == (
        "FAILED   tiny: exit code 1, expected 0: NKR002 returned from nl.hbm (and 1 more)"
    )
    (row,) = json.loads((project / "docs" / "issue-7.json").read_text())["rows"]
    assert row["status"] == "failed" and len(row["problems"]) == 2


@needs_git
@pytest.mark.parametrize(("script", "problems"), [("", []), ("assert False, 'no match'", ["exit code 1"])])
def test_a_script_of_ours_is_executed(project: Path, script: str, problems: list[str]) -> None:
    (project / "compat" / "tiny.py").write_text(f"print('all match')\n{script}\n")
    row = {name: value for name, value in ROW.items() if name != "cut"}
    change = {"command": "exec {compat}/tiny.py", "expected": {"exit": 0, "prints": {"match": 1}}}
    (project / "compat.toml").write_text(toml({**row, **change}))
    assert call(project).exit_code == len(problems)
    (written,) = json.loads((project / "docs" / "issue-7.json").read_text())["rows"]
    assert written["outcome"]["printed"] == {"match": 1}
    assert [problem.partition(",")[0] for problem in written["problems"]] == problems
    assert all("AssertionError: no match" in problem for problem in written["problems"])


@needs_git
def test_a_row_that_cannot_be_cut_fails(project: Path) -> None:
    (project / "compat.toml").write_text(toml({**ROW, "tag": "v2"}))
    result = call(project)
    assert result.exit_code == 1
    assert (
        result.output == "FAILED   tiny: docs/page.rst: has 0 blocks with a kernel, block 1 was asked for\n"
    )


@needs_git
def test_a_missing_clone_is_skipped(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, project, record())
    assert call(project).exit_code == 0
    before = (project / "docs" / "issue-7.json").read_text()
    shutil.rmtree(project / "clones" / "name")
    result = call(project)
    assert result.exit_code == 2
    assert result.output == (
        f"skipped  tiny: clone owner/name is not in {project}/clones; expected the folder owner+name or name\n"
    )
    assert call(project, "--allow-missing").exit_code == 0
    assert (project / "docs" / "issue-7.json").read_text() == before


@needs_git
def test_earlier_results_of_other_rows_are_kept(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{**ROW, "id": name} for name in ("one", "two")]
    (project / "compat.toml").write_text("\n".join(map(toml, rows)))
    pretend(monkeypatch, project, record())
    for name in ("two", "one"):
        assert call(project, "--row", name).exit_code == 0
    written = json.loads((project / "docs" / "issue-7.json").read_text())
    assert [row["id"] for row in written["rows"]] == ["one", "two"]


def test_a_wrong_call_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "clones").mkdir()
    result = call(tmp_path)
    assert result.exit_code == 2
    assert result.output.startswith(f"public: {tmp_path}/compat.toml: No such file or directory")
    (tmp_path / "compat.toml").write_text(toml(ROW))
    result = call(tmp_path, "--issue", "8")
    assert result.exit_code == 2
    assert result.output == "public: no row has issue 8; the rows are tiny\n"
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "issue-7.json").write_text("{}")
    rows = [public.Row.model_validate(ROW)]
    with pytest.raises(public.SuiteError, match=r"issue-7.json: not a file of results; remove it"):
        public.save(rows, 7, {}, tmp_path / "docs")


def test_help_has_an_example() -> None:
    text = CliRunner().invoke(public.main, ["--help"]).output
    assert textwrap.dedent("python tools/public.py --clones ~/clones --issue 2") in text
