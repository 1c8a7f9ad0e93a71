"""`nkireview calibrate`: measurements merged, kernels read from clones, statistics worked out by hand, every refusal.

Clones and tables are made here; the recipes that come with the package are read, not run.
"""

from __future__ import annotations

import json
import math
import subprocess
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from nkireview import hardware
from nkireview.calibration.accuracy import (
    Accuracy,
    Line,
    NotRun,
    band,
    coverage,
    judge,
    ladders,
    statistics,
    table,
    timed,
)
from nkireview.calibration.measured import Case, MeasuredError, Measurement, Row, read, times
from nkireview.calibration.programs import (
    Clone,
    NotTraced,
    build,
    kept_cases,
    load_programs,
    prepare,
    source_text,
)
from nkireview.calibration.recipes import RecipeError, Recipes, load
from nkireview.cli import main
from nkireview.report.accuracy import BEGIN, END, markdown, page, svg, to_json
from nkireview.runner import ForkServer
from nkireview.schedule.prediction import Kind

COLUMNS = "id,source,kernel_file,kernel_function,shapes,dtypes,hardware,metric,value,notes,runnable"
COPY = """import nki
import nki.isa as nisa
import nki.language as nl

CHUNK = 128


@nki.jit
def copy(x):
    rows, columns = x.shape
    out = nl.ndarray((rows, columns), dtype=x.dtype, buffer=nl.shared_hbm)
    for row in range(0, rows, CHUNK):
        tile = nl.ndarray((CHUNK, columns), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[row : row + CHUNK, :])
        nisa.dma_copy(dst=out[row : row + CHUNK, :], src=tile)
    return out


@nki.jit
def narrow(x):
    out = nl.ndarray(x.shape, dtype=nl.bfloat16, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=nl.bfloat16, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.dma_copy(dst=out, src=tile)
    return out


@nki.jit
def multiply(x, y):
    k, m = x.shape
    n = y.shape[1]
    out = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.shared_hbm)
    left = nl.ndarray((k, m), dtype=x.dtype, buffer=nl.sbuf)
    right = nl.ndarray((k, n), dtype=y.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=left, src=x)
    nisa.dma_copy(dst=right, src=y)
    total = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=total, stationary=left, moving=right)
    result = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=result, src=total)
    nisa.dma_copy(dst=out, src=result)
    return out


@nki.jit
def fails(x):
    raise ValueError("not for this shape")


@nki.jit
def checks(x, pads, factor):
    assert pads[1] == [1, 2] and factor == 2.0
    return copy(x)


# @nki.jit
# def hidden(x):
#     rows, columns = x.shape

#     return copy(x)
"""
SEARCH = """Step(parent=Step(parent=Step(parent=None,
plan='from nowhere', code='''first = 1
''', score=3.0), plan='next', code='''@nki.jit
def second(x):
    return copy(x)
''', score=2.0), plan='last', code='third = 3', score=1.0)
"""
PAGE = """Title
=====

.. code-block:: python

    def other(x):
      return x

.. code-block:: bash

    def copy(x): echo

.. code-block:: python

    # the first
    def copy(x):
      return x

Some text.

   .. code-block:: python

      # the second
      def copy(x):

        return x + 1
   and more text
"""
RECIPES = """
order = ["latency_p50_us", "latency_us", "latency_p99_us"]
[clocks.bench]
times = { latency_p50_us = "benchmark", latency_us = "benchmark", latency_p99_us = "benchmark" }
why = "nki.benchmark"
[clocks.profile]
times = { total_time_us = "total", total_active_time_us = "active" }
why = "the profile"
[clocks.share]
times = { mfu_pct = "total" }
why = "of the profile"

[[recipe]]
id = "copy"
operator = "copy"
repository = "some/kernels"
commit = "COMMIT"
source = { kind = "file", path = "src/copy.py" }
kernel_file = "some+kernels/src/copy.py"
kernel_function = "copy"
dtypes = ["float32", "fp32"]
dtype = "float32"
launches = [{ kernel = "copy", tensors = ["DTYPE[R, 64]"] }]
target = "trn2"
release = "0.6"
flags = ["--disable-dge"]
clocks = ["bench", "profile"]
[[recipe.case]]
id = "256"
shapes = "x[256,64]"
sizes = { R = 256 }
[[recipe.case]]
id = "chunk64"
shapes = "x[256,64] in 64"
sizes = { R = 256 }
edits = [["CHUNK = 128", "CHUNK = 64"]]
[[recipe.case]]
id = "twice"
kernel_function = "copy + copy"
shapes = "x[256,64]"
sizes = { R = 256 }
launches = [{ kernel = "copy", tensors = ["DTYPE[R,64]"] }, { kernel = "narrow", tensors = ["DTYPE[128,64]"] }]

[[left_out]]
kernel_file = "some+kernels/src/other.py"
why = "nobody knows its shape"
"""


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.fixture(scope="module")
def clones(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder of clones with one of some/kernels, and its commit; a later commit removes every file."""
    folder = tmp_path_factory.mktemp("clones")
    repository = folder / "some+kernels"
    (repository / "src").mkdir(parents=True)
    (repository / "src" / "copy.py").write_text(COPY)
    (repository / "search.py").write_text(SEARCH)
    (repository / "head.py").write_text("import nki\n# HERE\nrest = 1\n")
    (repository / "page.rst").write_text(PAGE)
    (repository / "blob.bin").write_bytes(bytes([255, 254, 0]))
    bench = repository / "NKIBench"
    bench.mkdir()
    (bench / "kernel.py").write_text(
        COPY.partition("\n\n@nki.jit\ndef narrow")[0].replace("copy(x)", "kernel(x)")
    )
    (bench / "reference.py").write_text(
        "import numpy as np\n\n\ndef get_inputs():\n    return [np.zeros((512, 32), np.float32)]\n\n\n"
        "def forward(x):\n    return x\n\n\ndef transform_to_nki_inputs(inputs):\n"
        "    return [np.reshape(inputs[0], (256, 64))]\n\n\ndef transform_nki_outputs(k_res, ref):\n    return k_res\n"
    )
    impl = {"task": "./reference.py", "kernel": "./kernel.py"}
    (bench / "summary.json").write_text(
        json.dumps({"copy": {"cases": {"1": {"values": {"M": 512}, "impls": [impl]}}}})
    )
    git(repository, "init", "-q")
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", "kernels")
    commit = git(repository, "rev-parse", "HEAD")
    git(repository, "rm", "-q", "-r", ".")
    git(repository, "commit", "-q", "--allow-empty", "-m", "gone")
    return folder, commit


@pytest.fixture
def recipes(clones: tuple[Path, str], tmp_path: Path) -> Callable[..., Recipes]:
    """Recipes for the clone, each with some texts replaced."""

    def made(*changes: tuple[str, str]) -> Recipes:
        return load(recipes_file(tmp_path, clones[1], *changes))

    return made


def recipes_file(folder: Path, commit: str, *changes: tuple[str, str]) -> Path:
    text = RECIPES.replace("COMMIT", commit)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = folder / "recipes.toml"
    path.write_text(text)
    return path


def csv(folder: Path, *lines: str, head: str = COLUMNS) -> Path:
    path = folder / "measured.csv"
    path.write_text("\n".join([head, *lines]) + "\n")
    return path


def line(id_: str, metric: str, value: object, **more: str) -> str:
    cells = {
        "source": "some+kernels/notes.md",
        "kernel_file": "some+kernels/src/copy.py",
        "kernel_function": "copy",
        "shapes": '"x[256,64]"',
        "dtypes": "float32",
        "hardware": "trn2 (NC-v3)",
        "notes": "",
        "runnable": "yes",
        **more,
    }
    cells |= {"id": id_, "metric": metric, "value": str(value)}
    return ",".join(cells[name] for name in COLUMNS.split(","))


# --- the table of measurements ---


def test_rows_that_cannot_be_run_are_passed_over(tmp_path: Path) -> None:
    path = csv(tmp_path, line("a", "latency_us", 5), line("b", "rule", "none", runnable="n/a"))
    assert [(row.id, row.value) for row in read(path)] == [("a", 5.0)]


@pytest.mark.parametrize(
    ("lines", "head", "said"),
    [
        (["a"], "id,value", "no column 'kernel_file'; expected the columns id, kernel_file"),
        ([line("a", "latency_us", "fast")], COLUMNS, ":2: the value 'fast' is no number; expected one"),
        (
            [line("a", "latency_us", 1), line("a", "latency_us", 2)],
            COLUMNS,
            ":3: the id 'a' is that of line 2 too; expected one id for each row",
        ),
        (["a,b"], COLUMNS, ":2: 2 of the 11 columns; expected all of them"),
        (
            [line("a", "rule", 1, runnable="n/a")],
            COLUMNS,
            "no row has a kernel that can be run; expected rows",
        ),
        ([line("a", "latency_us", 1, notes='"open')], COLUMNS, "this cannot be read as CSV: unexpected end"),
    ],
)
def test_a_wrong_table_is_refused(lines: list[str], head: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(MeasuredError) as error:
        read(csv(tmp_path, *lines, head=head))
    assert said in str(error.value) and str(error.value).startswith(str(tmp_path / "measured.csv"))


def test_a_missing_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        MeasuredError, match=r"none\.csv: there is no such file; expected the table of measurem"
    ):
        read(tmp_path / "none.csv")


def row(id_: str, metric: str, value: float) -> Row:
    return Row(id_, "", "", "", "", "", metric, value, "", "", "yes")


def test_the_best_metric_of_a_clock_counts_and_duplicates_are_averaged() -> None:
    rows = [
        row("a", "latency_p99_us", 30.0),
        row("b", "latency_p50_us", 10.0),
        row("c", "latency_p50_us", 14.0),
        row("d", "total_time_us", 20.0),
        row("e", "hbm_read_bytes", 7.0),
    ]
    clocks = {"latency_p99_us": "benchmark", "latency_p50_us": "benchmark", "total_time_us": "total"}
    assert times(rows, clocks, ["latency_p50_us", "latency_p99_us"], 2) == (
        Measurement("benchmark", 12.0, "latency_p50_us", ("b", "c"), 2),
        Measurement("total", 20.0, "total_time_us", ("d",), 2),
    )


# --- the recipes ---


def test_the_recipes_of_the_package_hold_together() -> None:
    found = load()
    assert len(found.cases) == 50
    assert {case.entry.target for case in found.cases} == {"trn1", "trn2"}
    assert all(case.clocks and (case.entry.launches or case.entry.source.operator) for case in found.cases)
    two = next(case for case in found.cases if case.id == "mlp-baseline-256-bf16")
    assert [two.tensors(launch) for launch in two.entry.launches] == [
        (((512, 256), "bfloat16"), ((512, 1024), "bfloat16"), ((1, 1024), "bfloat16")),
        (((256, 1024), "bfloat16"),),
    ]
    (share,) = (case for case in found.cases if case.entry.flops)
    assert share.flops() == 2 * 2048**3


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("[clocks.bench]", "[clocks.bench"), "this is not valid TOML"),
        (
            ('clocks = ["bench"', 'clocks = ["bunch"'),
            "copy-256: there are no clocks 'bunch'; expected some of bench",
        ),
        (('"0.6"', '"0.6"\ncolour = 1'), "copy-256: colour: unknown key"),
        (('target = "trn2"', 'target = "tpu"'), "copy-256: target: got 'tpu'; expected trn1, trn2 or trn3"),
        (('release = "0.6"', 'release = "9.9"'), "copy-256: "),
        (
            ('"DTYPE[R, 64]"', '"DTYPE[Q, 64]"'),
            "copy-256: 'DTYPE[Q, 64]' names the size 'Q'; expected a number or one of R",
        ),
        (('"DTYPE[R, 64]"', '"DTYPE"'), "copy-256: the tensor 'DTYPE' must be DTYPE[M,K]"),
        (('"DTYPE[R, 64]"', '"float31[R, 64]"'), "copy-256: "),
        (('id = "chunk64"', 'id = "256"'), "two cases are called 'copy-256'; expected a name for each"),
        (
            ('["CHUNK = 128", "CHUNK = 64"]', '["CHUNK = 128"]'),
            "copy-chunk64: each of the edits must be a pair of texts",
        ),
        (
            ('latency_us = "benchmark"', 'latency_us = "wall"'),
            "clocks.bench.times.latency_us: got 'wall'; expected benchmark",
        ),
        (('id = "256"', 'id = "../256"'), "copy-../256: id: got 'copy-../256'; expected a name of letters"),
        (
            ('launches = [{ kernel = "copy", tensors = ["DTYPE[R, 64]"] }]', "launches = []"),
            "copy-256: no launches; expected",
        ),
        (
            ("[[recipe.case]]", "[[recipe.kase]]"),
            "recipe copy: no cases; expected [[recipe.case]] tables below it",
        ),
    ],
)
def test_a_wrong_recipe_is_refused(change: tuple[str, str], said: str, tmp_path: Path) -> None:
    path = recipes_file(tmp_path, "0" * 40, change)
    with pytest.raises(RecipeError) as error:
        load(path)
    assert str(error.value).startswith(f"{path}: {said}")


def test_missing_recipes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"none\.toml: there is no such file; expected a table of recipes"):
        load(tmp_path / "none.toml")


def test_rows_find_their_case(recipes: Callable[..., Recipes], tmp_path: Path) -> None:
    path = csv(
        tmp_path,
        line("a", "latency_p50_us", 20),
        line("b", "total_time_us", 30, dtypes="fp32"),
        line("c", "hbm_read_bytes", 65536),
        line("d", "latency_p50_us", 1, hardware="trn1 (NC-v2)"),
        line("e", "latency_p50_us", 2, kernel_file="some+kernels/src/other.py"),
        line("f", "latency_p50_us", 40, kernel_function="copy + copy"),
    )
    found = recipes()
    rows = read(path)
    cases = [case for _, case in prepare(found, rows)]
    assert [case.id for case in cases] == ["copy-256", "copy-twice"]
    assert cases[0].rows == (
        Measurement("benchmark", 20.0, "latency_p50_us", ("a",), 1),
        Measurement("total", 30.0, "total_time_us", ("b",), 1),
    )
    assert cases[0].metrics == {"hbm_read_bytes": 65536.0}
    assert cases[1].rows[0].launches == 2
    assert {why: [row.id for row in each] for why, each in found.without(rows).items()} == {
        "": ["d"],
        "nobody knows its shape": ["e"],
    }
    assert [case.id for _, case in prepare(found, rows, "twi")] == ["copy-twice"]


def test_a_share_of_the_peak_is_a_time(recipes: Callable[..., Recipes], tmp_path: Path) -> None:
    found = recipes(
        ('clocks = ["bench", "profile"]', 'clocks = ["share"]\nflops = "2*R*1000*1000"'),
    )
    (_, case), *_ = prepare(found, read(csv(tmp_path, line("a", "mfu_pct", 50))))
    # 512e6 FLOP at half of 2 * 128 * 128 * 2.4 GHz
    assert case.rows[0].us == pytest.approx(512e6 / (0.5 * 2 * 128 * 128 * 2.4e9) * 1e6)
    assert case.rows[0].clock == "total"


# --- texts of kernels ---


def text_of(recipes: Callable[..., Recipes], clones: tuple[Path, str], *changes: tuple[str, str]) -> str:
    recipe = recipes(*changes).cases[0]
    return source_text(recipe, Clone.at(clones[0], recipe.repository, recipe.entry.commit))


def kind(text: str, kernel: str = "copy") -> tuple[tuple[str, str], ...]:
    """Changes that make the first case read another source and another kernel."""
    return (
        ('{ kind = "file", path = "src/copy.py" }', text),
        (
            'launches = [{ kernel = "copy", tensors = ["DTYPE[R, 64]"] }]',
            f'launches = [{{ kernel = "{kernel}" }}]',
        ),
    )


def test_a_block_of_a_page(recipes: Callable[..., Recipes], clones: tuple[Path, str]) -> None:
    first = text_of(recipes, clones, *kind('{ kind = "rst", path = "page.rst", block = 1 }'))
    assert first == "# the first\ndef copy(x):\n  return x\n"
    second = text_of(recipes, clones, *kind('{ kind = "rst", path = "page.rst", block = 2 }'))
    assert second == "# the second\ndef copy(x):\n\n  return x + 1\n"


def test_a_step_of_a_search(recipes: Callable[..., Recipes], clones: tuple[Path, str]) -> None:
    source = '{{ kind = "trace", path = "search.py", step = {}, head = "head.py", until = "# HERE" }}'
    assert text_of(recipes, clones, *kind(source.format(0))) == "import nki\n\nfirst = 1\n"
    second = text_of(recipes, clones, *kind(source.format(1)))
    assert second == "import nki\n\n@nki.jit\ndef second(x):\n    return copy(x)\n"
    assert text_of(recipes, clones, *kind(source.format(2))) == "import nki\n\nthird = 3"


def test_a_function_that_is_commented_out(recipes: Callable[..., Recipes], clones: tuple[Path, str]) -> None:
    text = text_of(recipes, clones, *kind('{ kind = "comment", path = "src/copy.py" }', "hidden"))
    before, mark, after = text.partition("@nki.jit\ndef hidden(x):\n")
    assert mark and after == "    rows, columns = x.shape\n\n    return copy(x)\n"
    assert before == COPY.partition("# @nki.jit")[0]


def test_an_edit_is_made(recipes: Callable[..., Recipes], clones: tuple[Path, str]) -> None:
    recipe = recipes().cases[1]
    assert recipe.id == "copy-chunk64"
    text = source_text(recipe, Clone.at(clones[0], recipe.repository, recipe.entry.commit))
    assert text == COPY.replace("CHUNK = 128", "CHUNK = 64")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (kind('{ kind = "file", path = "src/none.py" }'), "src/none.py' does not exist in"),
        (kind('{ kind = "file", path = "blob.bin" }'), "some/kernels: blob.bin at "),
        (
            kind('{ kind = "rst", path = "page.rst", block = 3 }'),
            "page.rst: 2 Python blocks define copy; expected at least 3",
        ),
        (
            kind('{ kind = "comment", path = "src/copy.py" }', "copy"),
            "src/copy.py: no comment defines the function copy",
        ),
        (
            kind('{ kind = "trace", path = "search.py", step = 3, head = "head.py", until = "# HERE" }'),
            "search.py: 3 steps; step 3 is asked for",
        ),
        (
            kind('{ kind = "trace", path = "search.py", step = 0, head = "head.py", until = "# THERE" }'),
            "head.py: there is no line '# THERE' in it",
        ),
        (
            kind('{ kind = "trace", path = "src/copy.py", step = 0, head = "head.py", until = "# HERE" }'),
            "src/copy.py: this is not an expression of Python",
        ),
        (
            (('id = "256"', 'id = "256"\nedits = [["CHUNK", "B"]]'),),
            "src/copy.py: the text 'CHUNK', which is edited, occurs 5 times; expected once",
        ),
    ],
)
def test_a_text_that_is_not_there_is_refused(
    changes: tuple[tuple[str, str], ...],
    said: str,
    recipes: Callable[..., Recipes],
    clones: tuple[Path, str],
) -> None:
    with pytest.raises(NotTraced) as error:
        text_of(recipes, clones, *changes)
    assert said in str(error.value)


# --- Programs ---


@pytest.fixture
def built(
    clones: tuple[Path, str], tmp_path: Path, server: ForkServer, recipes: Callable[..., Recipes]
) -> Callable[..., list[Case]]:
    """Cases of rows, traced into tmp_path / kept."""

    def made(*lines: str, changes: tuple[tuple[str, str], ...] = (), at: Path | None = None) -> list[Case]:
        wanted = prepare(recipes(*changes), read(csv(tmp_path, *lines)))
        return list(build(wanted, at or clones[0], tmp_path / "kept", server))

    return made


def test_programs_are_kept_and_used_again(built: Callable[..., list[Case]], tmp_path: Path) -> None:
    (case,) = built(line("a", "latency_p50_us", 20))
    kept = tmp_path / "kept"
    assert (case.reason, case.programs) == ("", ("copy-256.npz",))
    (program,) = load_programs(case, kept)
    assert [program.opcodes[code].name for code in program.columns.opcode] == ["dma_copy"] * 4
    assert case.instructions == len(program) == 4
    told = json.loads((kept / "cases.json").read_text())
    assert told[0]["rows"] == [
        {
            "csv_ids": ["a"],
            "clock": "benchmark",
            "measured_us": 20.0,
            "metric": "latency_p50_us",
            "launches": 1,
        }
    ]
    assert (told[0]["id"], told[0]["target"], told[0]["flags"]) == ("copy-256", "trn2", ["--disable-dge"])
    assert kept_cases(kept) == (case,)

    # no clone is needed the second time, and the rows are those of the table at hand
    (again,) = built(line("b", "latency_p50_us", 25), at=tmp_path)
    assert again == replace(case, rows=(replace(case.rows[0], us=25.0, rows=("b",)),))
    # with another recipe it is
    (other,) = built(
        line("a", "latency_p50_us", 20), at=tmp_path, changes=(("DTYPE[R, 64]", "DTYPE[R, 32]"),)
    )
    assert other.programs == () and other.missing_clone == "some/kernels"


def test_an_edit_and_a_second_launch_are_traced(built: Callable[..., list[Case]], tmp_path: Path) -> None:
    shape = '"x[256,64] in 64"'
    cases = built(
        line("a", "latency_p50_us", 20, shapes=shape),
        line("b", "latency_us", 40, kernel_function="copy + copy"),
    )
    edited, twice = cases
    assert edited.instructions == 8
    assert twice.programs == ("copy-twice.npz", "copy-twice.2.npz")
    first, second = load_programs(twice, tmp_path / "kept")
    assert (first.header.kernel, second.header.kernel) == ("copy", "narrow")
    assert {case.id for case in kept_cases(tmp_path / "kept")} == {"copy-chunk64", "copy-twice"}


def test_an_operator_of_a_bench_is_traced(built: Callable[..., list[Case]], tmp_path: Path) -> None:
    changes = (
        (
            '{ kind = "file", path = "src/copy.py" }',
            '{ kind = "nkibench", path = "NKIBench", operator = "copy" }',
        ),
    )
    (case,) = built(line("a", "latency_p50_us", 20), changes=changes)
    assert case.reason == ""
    (program,) = load_programs(case, tmp_path / "kept")
    # the bench's own function made 256 x 64 of its input of 512 x 32
    assert program.buffer(0).shape == (256, 64) and program.header.kernel == "kernel"


def test_keywords_reach_the_kernel(built: Callable[..., list[Case]]) -> None:
    changes = (
        (
            'launches = [{ kernel = "copy", tensors = ["DTYPE[R, 64]"] }]',
            'launches = [{ kernel = "checks", tensors = ["DTYPE[R, 64]"], '
            "keywords = { pads = [0, [1, 2]], factor = 2.0 } }]",
        ),
    )
    (case,) = built(line("a", "latency_p50_us", 20), changes=changes)
    assert (case.reason, case.instructions) == ("", 4)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            ('"some/kernels"', '"other/kernels"'),
            "no clone of other/kernels; expected one at other+kernels in",
        ),
        (
            ('kernel = "copy", tensors = ["DTYPE[R, 64]"]', 'kernel = "fails", tensors = ["DTYPE[R, 64]"]'),
            "fails: ValueError: not for this shape (copy.py:",
        ),
        (
            ('kernel = "copy", tensors = ["DTYPE[R, 64]"]', 'kernel = "none", tensors = ["DTYPE[R, 64]"]'),
            "none: ",
        ),
        (('"file", path = "src/copy.py"', '"file", path = "page.rst"'), "page.rst"),
        (
            (
                '{ kind = "file", path = "src/copy.py" }',
                '{ kind = "nkibench", path = "NKIBench", operator = "none" }',
            ),
            "NKIBench/summary.json: there is no operator 'none'",
        ),
    ],
)
def test_a_kernel_that_cannot_be_traced_is_a_case_with_a_reason(
    change: tuple[str, str], said: str, built: Callable[..., list[Case]], tmp_path: Path
) -> None:
    (case,) = built(line("a", "latency_p50_us", 20), changes=(change,))
    assert case.programs == () and said in case.reason and str(tmp_path) not in case.reason
    assert kept_cases(tmp_path / "kept") == (case,)


def test_a_missing_commit_is_told(built: Callable[..., list[Case]], clones: tuple[Path, str]) -> None:
    (case,) = built(line("a", "latency_p50_us", 20), changes=((clones[1], "1" * 40),))
    assert case.reason == "the clone of some/kernels has no commit 111111111111; fetch it there"
    assert not case.missing_clone


def test_a_bare_clone_in_a_folder_is_read(clones: tuple[Path, str], tmp_path: Path) -> None:
    folder = tmp_path / "some+kernels"
    folder.mkdir()
    git(tmp_path, "clone", "-q", "--bare", str(clones[0] / "some+kernels"), str(folder / "repo"))
    assert Clone.at(tmp_path, "some/kernels", clones[1]).read("src/copy.py") == COPY


def test_a_foreign_index_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cases.json").write_text('[{"id": 3}]')
    with pytest.raises(NotTraced, match=r"cases\.json: this is not what nkireview wrote there; remove it"):
        kept_cases(tmp_path)


# --- predictions ---


def test_the_clocks_add_their_overheads_for_each_launch(
    built: Callable[..., list[Case]], tmp_path: Path
) -> None:
    (case,) = built(
        line("a", "latency_p50_us", 40, kernel_function="copy + copy"),
        line("b", "total_time_us", 50, kernel_function="copy + copy"),
        line("c", "total_active_time_us", 50, kernel_function="copy + copy"),
    )
    programs = load_programs(case, tmp_path / "kept")
    found = judge(case, programs)
    window = sum(timed(program, case.flags).total_ns for program in programs)
    trn2 = hardware.target("trn2")
    for each in found.lines:
        name = {"benchmark": "benchmark", "total": "total_time", "active": "active_time"}[each.clock]
        beside = 2 * trn2.number(f"launch.{name}_overhead_ns")
        assert each.predicted == pytest.approx((window + beside) / 1e3)
        assert each.low <= each.predicted <= each.high
    assert [each.clock for each in found.lines] == ["active", "benchmark", "total"]
    one = timed(programs[0], case.flags).prediction
    assert one.kind is Kind.traced and one.low_ns <= one.point_ns <= one.high_ns


def test_bytes_and_matmuls_are_counted(built: Callable[..., list[Case]], tmp_path: Path) -> None:
    third = '{ kernel = "multiply", tensors = ["DTYPE[128,64]", "bfloat16[128,32]"] }'
    changes = (('["DTYPE[128,64]"] }]', f'["DTYPE[128,64]"] }}, {third}]'),)
    (case,) = built(
        line("a", "hbm_read_bytes", 1, kernel_function="copy + copy"),
        line("b", "hbm_write_bytes", 1, kernel_function="copy + copy"),
        line("c", "matmul_instruction_count", 1, kernel_function="copy + copy"),
        line("d", "total_time_us", 100, kernel_function="copy + copy"),
        line("e", "dma_active_time_us", 40, kernel_function="copy + copy"),
        line("h", "dma_active_pct", 99, kernel_function="copy + copy"),
        line("f", "tensor_engine_active_pct", 12.5, kernel_function="copy + copy"),
        line("g", "vector_engine_active_time_percent", 0.25, kernel_function="copy + copy"),
        changes=changes,
    )
    found = judge(case, load_programs(case, tmp_path / "kept"))
    told = {count.metric: count.predicted for count in found.counts}
    # copy: 256 x 64 float32 each way; narrow: 128 x 64 float32 in, bfloat16 out; multiply: 64 x 32 float32 out
    assert told == {
        "hbm_read_bytes": 65536 + 32768 + 128 * 64 * 4 + 128 * 32 * 2,
        "hbm_write_bytes": 65536 + 16384 + 64 * 32 * 4,
        "matmul_instruction_count": 1.0,
    }
    # the time in us counts before a share that is told of the same engine
    assert sorted((share.lane, share.measured) for share in found.shares) == [
        ("dma", 0.4),
        ("tensor", 0.125),
        ("vector", 0.25),
    ]
    assert all(0.0 < share.predicted < 1.0 for share in found.shares)


def test_a_float32_product_counts_two_matmuls(built: Callable[..., list[Case]], tmp_path: Path) -> None:
    change = (
        'kernel = "copy", tensors = ["DTYPE[R, 64]"]',
        'kernel = "multiply", tensors = ["DTYPE[128,64]", "DTYPE[128,32]"]',
    )
    (case,) = built(line("a", "matmul_instruction_count", 2), changes=(change,))
    (count,) = judge(case, load_programs(case, tmp_path / "kept")).counts
    assert count.exact and count.predicted == 2.0


def test_an_unknown_overhead_is_taken_from_trn2_and_said(
    built: Callable[..., list[Case]], tmp_path: Path
) -> None:
    (case,) = built(
        line("a", "latency_p50_us", 40, hardware="unstated"),
        changes=(('target = "trn2"', 'target = "trn1"'),),
    )
    found = judge(case, load_programs(case, tmp_path / "kept"))
    said = any("launch.benchmark_overhead_ns" in text and "trn2" in text for text in found.assumed)
    assert said is not hardware.target("trn1").knows("launch.benchmark_overhead_ns")
    assert found.lines[0].predicted > 0


# --- statistics ---


def judged(
    case: str, predicted: float, measured: float, repository: str = "a/a", wide: float = 1.5, ladder: str = ""
) -> Line:
    return Line(
        case=case,
        repository=repository,
        ladder=ladder or case,
        target="trn2",
        kind=Kind.traced.value,
        clock="total",
        launches=1,
        predicted=predicted,
        low=predicted / wide,
        high=predicted * wide,
        measured=measured,
        rows=("r",),
    )


def test_statistics_by_hand() -> None:
    # errors: 0, +25%, +100%, -50%
    found = statistics(
        [judged("a", 10, 10), judged("b", 12.5, 10), judged("c", 20, 10), judged("d", 10, 20, wide=3.0)]
    )
    assert found.count == 4
    assert found.median_error == pytest.approx((0.25 + 0.5) / 2)
    assert found.close == 0.5
    assert found.mean_log == pytest.approx((math.log(1.25) + 2 * math.log(2)) / 4)
    # 10 in [6.7, 15]; 10 in [8.3, 18.75]; 10 not in [13.3, 30]; 20 in [3.3, 30]
    assert found.inside == 0.75
    assert found.width == pytest.approx(2.25)
    assert found.below == 1


def test_the_band_holds_four_of_five() -> None:
    off = [1.1, 1.2, 1.3, 1.4, 3.0]
    lines = [judged(str(at), 10 * each, 10, wide=2.0) for at, each in enumerate(off)]
    assert band(lines) == pytest.approx(math.log(1.4) / math.log(2))
    assert band(lines[:1]) == pytest.approx(math.log(1.1) / math.log(2))
    assert band([]) is None
    assert judged("a", 10, 10, wide=1.0).reach == 0.0
    assert judged("a", 10, 20, wide=1.0).reach == math.inf


def test_each_repository_is_left_out_in_turn() -> None:
    lines = [
        *(judged(f"a{at}", 10 * each, 10, "a/a", 2.0) for at, each in enumerate((1.1, 1.5))),
        *(judged(f"b{at}", 10, 10 * each, "b/b", 2.0) for at, each in enumerate((1.05, 1.2, 1.3, 1.6, 4.0))),
    ]
    own, other = coverage(lines)
    assert (own.repository, own.rows, own.covered) == ("a/a", 2, 1.0)
    assert own.scale == pytest.approx(math.log(1.6) / math.log(2))
    # fitted on 1.1 and 1.5: four of five of two is both
    assert other.scale == pytest.approx(math.log(1.5) / math.log(2))
    assert other.covered == pytest.approx(3 / 5)
    (alone,) = coverage(lines[:2])
    assert (alone.scale, alone.covered) == (None, None)


def test_ladders_name_what_is_out_of_order() -> None:
    lines = [
        judged("v1", 100, 100, ladder="sum"),
        judged("v2", 90, 80, ladder="sum"),
        judged("v3", 95, 77, ladder="sum"),  # less than 5% from v2: not ordered against it
        judged("v4", 130, 60, ladder="sum"),
        judged("w1", 5, 10, ladder="other"),
        replace(judged("w2", 9, 5, ladder="other"), clock="benchmark"),
    ]
    found = ladders(lines)
    assert found.pairs == 5
    assert [(each.faster, each.slower) for each in found.inversions] == [
        ("v4", "v1"),
        ("v4", "v2"),
        ("v4", "v3"),
    ]
    assert found.in_order == pytest.approx(2 / 5)
    assert found.inversions[0].measured == (60, 100) and found.inversions[0].predicted == (130, 100)
    equal = ladders([judged("v1", 10, 10, ladder="s"), judged("v2", 10, 20, ladder="s")])
    assert (equal.pairs, len(equal.inversions)) == (1, 1)
    assert ladders([]).in_order is None


# --- reports ---


@pytest.fixture
def accuracy() -> Accuracy:
    lines = (
        judged("good", 10, 10, ladder="s"),
        judged("off", 1000, 100, "b/b", ladder="s"),
        judged("low", 500, 1000, "b/b", ladder="s"),
    )
    return replace(
        table([], [NotRun("gone", "c/c", "no clone of c/c | here", "c/c")], {"": 2, "unknown shape": 3}),
        lines=lines,
        overall=statistics(lines),
        kinds={Kind.traced.value: statistics(lines)},
        coverage=coverage(lines),
        ladders=ladders(lines),
    )


def test_markdown_says_all(accuracy: Accuracy) -> None:
    text = markdown(accuracy, "p.svg")
    assert "- All: 3 rows, median error 50.0%, 33% within 25%, mean |ln(predicted/measured)| 0.999; " in text
    assert "| off | as traced | total | 1,000.0 | 666.7 to 1,500.0 | 100.0 | +900% |" in text
    assert "| off | total | 10.00 |\n| low | total | 0.50 |" in text
    assert "![Predicted against measured time](p.svg)" in text
    assert "Ladders: 2 of 3 pairs in order (67%)" in text
    assert "| s | total | off | low | 100.0 < 1,000.0 | 1,000.0 >= 500.0 |" in text
    assert "| gone | no clone of c/c \\| here |" in text
    assert "Not run: 1 cases, 1 of them for want of a clone" in text
    assert "| 2 | no recipe names their kernel |\n| 3 | unknown shape |" in text
    assert markdown(table([])) == "\n"


def test_a_page_keeps_what_was_written_by_hand() -> None:
    assert page("", "new\n") == f"{BEGIN}\nnew\n{END}\n"
    assert page("# Title\n\nProse.\n", "new\n") == f"# Title\n\nProse.\n\n{BEGIN}\nnew\n{END}\n"
    old = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    assert page(old, "new\n") == f"before\n{BEGIN}\nnew\n{END}\nafter\n"
    for broken in (f"x {BEGIN} y", f"{END} {BEGIN}", f"{BEGIN}{BEGIN}{END}"):
        with pytest.raises(ValueError, match="expected <!-- nkireview calibrate: begin --> once"):
            page(broken, "new\n")


def test_the_picture_has_every_point_at_its_place(accuracy: Accuracy) -> None:
    root = ElementTree.fromstring(svg(accuracy))
    space = "{http://www.w3.org/2000/svg}"
    points = [item for item in root.iter(f"{space}circle") if item.find(f"{space}title") is not None]
    places = [(float(item.attrib["cx"]), float(item.attrib["cy"])) for item in points]
    # decades from 10 us to 1 ms over 540 units: x from 70, y down from 570
    half = 540 * (math.log10(500) - 1) / 2
    assert places == [
        pytest.approx((70.0, 570.0)),
        pytest.approx((340.0, 30.0)),
        pytest.approx((610.0, 570.0 - half), abs=0.1),
    ]
    shown = [item.text for item in root.iter(f"{space}text")]
    assert {"10 us", "100 us", "1 ms", "1", "2", "a/a", "b/b"} <= set(shown)
    assert [text for text in shown if text and text.endswith("%")] == ["1  off +900%", "2  low -50%"]
    numbers = {item.text: item for item in root.iter(f"{space}text") if item.text in ("1", "2")}
    assert (numbers["1"].attrib["x"], numbers["1"].attrib["y"]) == ("347", "34")


def test_json_is_complete_and_finite(accuracy: Accuracy) -> None:
    told = json.loads(to_json(replace(accuracy, overall=replace(statistics(accuracy.lines), width=math.inf))))
    assert told["overall"]["width"] is None
    assert told["lines"][1]["error"] == pytest.approx(9.0) and told["lines"][1]["rows"] == ["r"]
    assert told["ladders"]["in_order"] == pytest.approx(2 / 3)
    assert told["not_run"][0]["missing_clone"] == "c/c"
    assert told["left_out"] == {"": 2, "unknown shape": 3}


# --- the command ---


def call(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, ["calibrate", *map(str, arguments)])
    return result.exit_code, result.stdout, result.stderr


def test_the_command_makes_the_table(clones: tuple[Path, str], tmp_path: Path) -> None:
    rows = csv(
        tmp_path,
        line("a", "latency_p50_us", 20),
        line("b", "latency_p50_us", 30, shapes='"x[256,64] in 64"'),
        line("c", "hbm_read_bytes", 65536),
    )
    options = ("--recipes", recipes_file(tmp_path, clones[1]), "--keep", tmp_path / "kept")
    out = tmp_path / "docs" / "accuracy.md"
    code, text, said = call(rows, clones[0], *options, "--out", out)
    assert (code, said) == (0, "")
    assert "copy-256" in text and "hbm_read_bytes: 1 of 1 exact" in text and "All: 2 rows" in text
    assert BEGIN in out.read_text() and "](accuracy.svg)" in out.read_text()
    assert ElementTree.parse(out.with_suffix(".svg"))
    code, text, _ = call(rows, clones[0], *options, "--json", "--only", "chunk")
    assert code == 0
    assert [each["case"] for each in json.loads(text)["lines"]] == ["copy-chunk64"]


def test_cases_without_a_clone_are_counted(clones: tuple[Path, str], tmp_path: Path) -> None:
    text = RECIPES.replace("COMMIT", clones[1])
    head, mark, rest = text.partition("[[recipe]]")
    gone = (
        rest.partition("[[left_out]]")[0]
        .replace("some/kernels", "gone/away")
        .replace('id = "copy"', 'id = "away"')
    )
    path = tmp_path / "recipes.toml"
    path.write_text(head + mark + rest.partition("[[left_out]]")[0] + mark + gone)
    rows = csv(tmp_path, line("a", "latency_p50_us", 20))
    code, text, _ = call(rows, clones[0], "--recipes", path)
    assert code == 0
    assert (
        "away-256: not run: no clone of gone/away; expected one at gone+away in the folder of clones" in text
    )
    assert "Not run: 1 cases, 1 of them for want of a clone" in text


def refusals(tmp_path: Path, clones: Path, commit: str) -> Iterator[tuple[tuple[object, ...], str]]:
    rows = csv(tmp_path, line("a", "latency_p50_us", 20))
    recipes = ("--recipes", recipes_file(tmp_path, commit))
    yield (
        (tmp_path / "none.csv", clones),
        "none.csv: there is no such file; expected the table of measurements",
    )
    yield (rows, tmp_path / "none", *recipes), "none: there is no such folder; expected one that holds clones"
    yield (
        (rows, clones),
        "measured.csv: it has no row of a kernel that can be read here; expected some of nkibench silu",
    )
    yield (rows, clones, *recipes, "--only", "zzz"), "--only zzz: no case that "
    yield (
        (rows, tmp_path, *recipes),
        "no case could be compared: 1 were not run, the first since no clone of some/ke",
    )
    broken = tmp_path / "broken.md"
    broken.write_text(END)
    yield (rows, clones, *recipes, "--out", broken), f"{broken}: expected {BEGIN} once"
    bad = tmp_path / "bad"
    bad.mkdir()
    (bad / "cases.json").write_text("{")
    yield (rows, clones, *recipes, "--keep", bad), "cases.json: this is not what nkireview wrote there"


def test_wrong_calls_end_with_one_sentence(clones: tuple[Path, str], tmp_path: Path) -> None:
    for arguments, said in refusals(tmp_path, *clones):
        code, _, error = call(*arguments)
        assert code == 2, arguments
        assert error.startswith("nkireview: ") and said in error and error.count("\n") == 1, error
