"""Facts of the text, and the rules over them: generation, release, the language's Python, parallel loops, contract."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from execute_kit import Kernel

from nkireview.checks.api import absent_names, generations, uses
from nkireview.checks.source import SourceFacts, read_source
from nkireview.checks.subset import carried, constructs, host_calls
from nkireview.isa.names import changed_names
from nkireview.isa.release import KNOWN, LATEST, LEGACY, Release
from nkireview.program.model import Frame
from nkireview.program.verify import Violation
from nkireview.rules.facts import Facts, WorkloadFacts
from nkireview.rules.finding import Dimension, Finding, Severity
from nkireview.rules.registry import judge

CURRENT = "import nki\nimport nki.isa as nisa\nimport nki.language as nl\n"
OLD = "import neuronxcc.nki as nki\nimport neuronxcc.nki.isa as nisa\nimport neuronxcc.nki.language as nl\n"


def source(tmp_path: Path, text: str, head: str = CURRENT) -> SourceFacts:
    path = tmp_path / "kernel.py"
    path.write_text(head + textwrap.dedent(text))
    return read_source(path)


def kernel(body: str, parameters: str = "x") -> str:
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return f'@nki.jit\ndef kernel({parameters}):\n    """x [rows, columns]."""\n{lines}\n'


def findings(facts: SourceFacts, release: Release = LATEST) -> list[Finding]:
    return [
        finding
        for finding in judge(Facts("kernel", source=facts, release=release, target="trn2"))
        if "NKR046" <= finding.code <= "NKR056"
    ]


def messages(facts: SourceFacts, release: Release = LATEST) -> list[tuple[str, str, str]]:
    return [(f.code, f.severity.value, f.message) for f in findings(facts, release)]


def test_imports_and_what_they_bind(tmp_path: Path) -> None:
    text = """
    import numpy as np
    from . import helper
    try:
        import torch
    except ImportError:
        torch = None
    def late():
        import os.path
    """
    found = source(tmp_path, text, head="").imports
    assert [(item.module, item.name, item.bound, item.guarded) for item in found] == [
        ("numpy", "", "np", False),
        (".", "helper", "helper", False),
        ("torch", "", "torch", True),
        ("os.path", "", "os", False),
    ]
    assert found[1].root == ""


def test_reachable_functions_are_those_mentioned(tmp_path: Path) -> None:
    text = kernel("helper(x)") + "def helper(x):\n    deeper(x)\ndef deeper(x): pass\ndef other(): pass\n"
    found = source(tmp_path, text).reachable("kernel")
    assert [node.name for node in found] == ["kernel", "helper", "deeper"]
    assert source(tmp_path, text).reachable("missing") == ()


def test_names_are_spelled_in_full(tmp_path: Path) -> None:
    head = "import nki\nimport nki.isa as nisa\nfrom nki import language\n"
    head += "from nki.language import abs_max, tile_size as ts\n"
    text = kernel("nisa.iota(dst=x)\nabs_max\nts.pmax\nlanguage.add\nnki.isa.memset")
    found = [use.name for use in uses(source(tmp_path, text, head=head), "kernel")]
    for name in ("nki.isa.iota", "nki.language.abs_max", "nki.language.tile_size.pmax", "nki.language.add"):
        assert name in found
    assert "nki.isa.memset" in found and "nki.jit" in found


def test_legacy_names_are_spelled_like_current_ones(tmp_path: Path) -> None:
    found = uses(source(tmp_path, kernel("nl.arange(4)"), head=OLD), "kernel")
    assert "nki.language.arange" in [use.name for use in found]


# First and last release of each name by the release notes and the migration guide, written by hand.
SPANS = {
    "nki.language.arange": ("0.1", "0.1"),
    "nki.language.par_dim": ("0.1", "0.1"),
    "nki.benchmark": ("0.1", "0.1"),
    "nki.isa.tensor_copy_dynamic_src": ("0.1", "0.3"),
    "nki.language.abs_max": ("0.4", "0.6"),
    "nki.isa.activate2": ("0.4", "0.6"),
    "nki.language.float8_e8m0fnu": ("0.5", "0.6"),
    "nki.language.fori_loop": ("0.6", "0.6"),
    "nki.isa.topk": ("0.6", "0.6"),
    "nki.simulate": ("0.3", "0.6"),
}


@pytest.mark.parametrize("name", SPANS)
def test_releases_of_names(name: str) -> None:
    first, last = SPANS[name]
    held = [str(release) for release in KNOWN if release in changed_names()[name]]
    assert (held[0], held[-1]) == (first, last)


def test_load_and_store_were_away_in_one_release() -> None:
    for name in ("nki.language.load", "nki.language.store"):
        assert [str(r) for r in KNOWN if r not in changed_names()[name]] == ["0.2"]


def test_an_absent_name(tmp_path: Path) -> None:
    facts = source(tmp_path, kernel("nl.arange(4)\nnl.arange(8)"))
    assert [(use.name, use.line) for use, _ in absent_names(facts, "kernel", LATEST)] == [
        ("nki.language.arange", 7),
        ("nki.language.arange", 8),
    ]
    (finding,) = findings(facts)
    assert (finding.code, finding.severity) == ("NKR048", Severity.major)
    assert finding.message == "nki.language.arange is not in release 0.6 (kernel.py:7 and 1 more line)"
    assert (finding.places, finding.count) == (("kernel.py:7", "kernel.py:8"), 2)
    assert finding.change == "Use nl.ds(start, size) or a plain slice."
    assert "migration/index.rst" in finding.citation


def test_names_outside_the_kernel_do_not_count(tmp_path: Path) -> None:
    text = kernel("pass") + "def driver():\n    nki.benchmark()\n"
    assert absent_names(source(tmp_path, text), "kernel", LATEST) == ()


def test_two_generations(tmp_path: Path) -> None:
    facts = source(tmp_path, kernel("pass"), head=CURRENT + "from neuronxcc import nki as old\n")
    assert generations(facts) == {"current", "legacy"}
    found = messages(facts)
    assert ("NKR046", "major", "the file imports nki (line 1) and neuronxcc.nki (line 4)") in found


@pytest.mark.parametrize(("release", "severity"), [("0.2", "minor"), ("0.3", "minor"), ("0.4", "major")])
def test_two_generations_are_refused_since_0_4(tmp_path: Path, release: str, severity: str) -> None:
    """release-notes/components/nki.rst:273: a warning before."""
    facts = source(tmp_path, kernel("pass"), head=CURRENT + "from neuronxcc import nki as old\n")
    found = [(code, weight) for code, weight, _ in messages(facts, Release.parse(release))]
    assert ("NKR046", severity) in found


@pytest.mark.parametrize(("release", "expected"), [("0.2", []), ("0.3", ["NKR049"])])
@pytest.mark.parametrize("signature", ["x, *, flag=True", "x, flag=True, stride=[1, 1]"])
def test_constructs_that_0_3_refuses(
    tmp_path: Path, release: str, expected: list[str], signature: str
) -> None:
    """nki/migration/index.rst:683-699,719-739."""
    found = findings(source(tmp_path, kernel("pass", signature)), Release.parse(release))
    assert [finding.code for finding in found if finding.code == "NKR049"] == expected


def test_a_guarded_fallback_is_no_mixture(tmp_path: Path) -> None:
    head = CURRENT + "try:\n    import neuronxcc.nki as old\nexcept ImportError:\n    old = None\n"
    assert generations(source(tmp_path, kernel("pass"), head=head)) == {"current"}


@pytest.mark.parametrize(
    ("head", "release", "message"),
    [
        (
            CURRENT,
            LEGACY,
            "imports nki, of the current generation, and the review is for release 0.1, of the legacy one",
        ),
        (
            OLD,
            LATEST,
            "imports neuronxcc.nki, of the legacy generation, and the review is for release 0.6, of the current",
        ),
    ],
)
def test_another_generation_than_the_review(
    tmp_path: Path, head: str, release: Release, message: str
) -> None:
    (finding,) = [
        f for f in findings(source(tmp_path, kernel("pass"), head=head), release) if f.code == "NKR047"
    ]
    assert (
        finding.severity is Severity.note
        and message in finding.message
        and "(kernel.py:1)" in finding.message
    )


@pytest.mark.parametrize("head", [CURRENT, OLD])
def test_the_generation_of_the_review(tmp_path: Path, head: str) -> None:
    release = LATEST if head == CURRENT else LEGACY
    assert [f.code for f in findings(source(tmp_path, kernel("pass"), head=head), release)] == []


SUBSET = {
    "try and except": "try:\n    pass\nexcept ValueError:\n    pass",
    "a generator": "def f():\n    yield 1",
    "a class inside a function": "class C: pass",
    "global N": "global N\nN = 1",
    "nonlocal y": "y = 1\ndef f():\n    nonlocal y\n    y = 2",
    "a dictionary with keys that are no strings": "d = {1: 2}",
    "'is' between values": "if x is True:\n    pass",
    "an async function": "async def f(): pass",
    "a change of the global CACHE": "CACHE['x'] = 1",
}


@pytest.mark.parametrize("what", SUBSET)
def test_python_outside_the_language(tmp_path: Path, what: str) -> None:
    facts = source(tmp_path, "CACHE = {}\nN = 0\n" + kernel(SUBSET[what]))
    assert what in [item.what for item in constructs(facts, "kernel")]
    found = [f for f in findings(facts) if f.code == "NKR049"]
    assert any(f.message.startswith(f"the kernel uses {what} (kernel.py:") for f in found)
    assert all(f.severity is Severity.minor and f.citation for f in found)


def test_keyword_only_parameters_are_refused_since_03(tmp_path: Path) -> None:
    facts = source(tmp_path, kernel("pass", "x, *, flag=True"))
    assert "NKR049" in [f.code for f in findings(facts, LATEST)]
    assert "NKR049" not in [f.code for f in findings(facts, Release(0, 2))]


@pytest.mark.parametrize(
    "body",
    [
        "if x is None:\n    pass",
        "d = {'a': 1}\nd['b'] = 2",
        "for i in range(4):\n    print(i)",
        "held = [i for i in range(4)]\nheld.append(5)",
        "def inner(y):\n    return y\ninner(x)",
        "assert x.shape[0] == 128, 'rows'",
        "CACHE = {}\nCACHE['x'] = 1",
    ],
)
def test_python_of_the_language(tmp_path: Path, body: str) -> None:
    assert constructs(source(tmp_path, "CACHE = {}\n" + kernel(body)), "kernel") == ()


RACE = """
best = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
nisa.memset(dst=best, value=-3.0e38)
for i in nl.{loop}(4):
    t = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=x[i])
    nisa.tensor_tensor(dst=best, data1=best, data2=t, op=nl.maximum)
"""


def test_a_carried_tile_is_a_race_in_the_legacy_generation_only(tmp_path: Path) -> None:
    facts = source(tmp_path, kernel(RACE.format(loop="affine_range")))
    (race,) = [f for f in findings(facts, LEGACY) if f.code == "NKR050"]
    assert (race.severity, race.dimension) == (Severity.blocker, Dimension.dma)
    assert (
        race.message == "every iteration of the affine_range of line 10 reads and writes best (kernel.py:13)"
    )
    assert race.places == ("kernel.py:13", "kernel.py:10")
    for release in KNOWN[1:]:
        (note,) = [f for f in findings(facts, release) if f.code == "NKR050"]
        assert note.severity is Severity.note and "plain range" in note.message


def test_the_legacy_spelling_of_a_race(tmp_path: Path) -> None:
    body = "best = nl.ndarray((128, 4))\nfor i in nl.affine_range(4):\n    best[...] = nl.maximum(best, nl.load(x[i]))"
    assert [item.name for item in carried(source(tmp_path, kernel(body), head=OLD), "kernel")] == ["best"]


@pytest.mark.parametrize(
    "body",
    [
        RACE.format(loop="sequential_range"),
        RACE.format(loop="static_range"),
        "p = nl.zeros((128, 512), buffer=nl.psum)\nfor i in nl.affine_range(4):\n    p += nl.matmul(x[i], x[i])",
        "p = nl.ndarray((1, 1))\nfor i in nl.affine_range(4):\n    nisa.nc_matmul(dst=p, stationary=x, moving=p)",
        "t = nl.ndarray((4, 1))\nfor i in nl.affine_range(4):\n    nisa.tensor_scalar(dst=t[i], data=t[i], op0=nl.add)",
        "t = nl.ndarray((4, 1))\nfor i in nl.affine_range(4):\n    at = nl.ds(i, 1)\n    t[at] = nl.exp(t[at])",
        "for i in nl.affine_range(4):\n    t = nl.ndarray((1, 1))\n    nisa.tensor_scalar(dst=t, data=t, op0=nl.add)",
        "t = nl.ndarray((1, 1))\nfor i in nl.affine_range(4):\n    nisa.dma_copy(dst=t, src=x[i])\n"
        "    nisa.tensor_scalar(dst=t, data=t, op0=nl.add)",
        "t = nl.ndarray((1, 1))\nfor i in nl.affine_range(4):\n    nisa.dma_copy(dst=x[i], src=t)",
    ],
)
def test_iterations_that_are_independent(tmp_path: Path, body: str) -> None:
    assert carried(source(tmp_path, kernel(body)), "kernel") == ()


def test_the_contract(tmp_path: Path) -> None:
    bare = "@nki.jit\ndef kernel(x):\n    t = nl.ndarray(x.shape)\n"
    assert [row[0] for row in messages(source(tmp_path, bare))] == ["NKR051"]
    checked = "@nki.jit\ndef kernel(x):\n    assert x.shape[0] == 128\n"
    assert messages(source(tmp_path, checked)) == []
    fixed = "@nki.jit\ndef kernel(x):\n    t = nl.ndarray((128, 512), dtype=x.dtype)\n"
    assert messages(source(tmp_path, fixed)) == [
        (
            "NKR052",
            "note",
            "kernel writes its shapes out in one place and neither states nor checks those of its arguments "
            "(kernel.py:6)",
        )
    ]
    assert messages(source(tmp_path, fixed.replace("(128, 512)", "(128, 1)"))) == [
        (
            "NKR051",
            "note",
            "kernel has no docstring and checks nothing of the shapes and dtypes that it takes (kernel.py:5)",
        )
    ]


CONTRACTS = {
    "one argument, walked by its own shape": ("x", "for i in range(x.shape[0]):\n    f(x[i])", []),
    "a size that must divide": ("x", "for i in range(x.shape[0] // 128):\n    f(x[i])", ["NKR051"]),
    "two arguments that must fit": ("x, y", "for i in range(x.shape[0]):\n    f(x[i], y[i])", ["NKR051"]),
    "a helper that asserts": ("x, y", "helper(x, y)", []),
    "a function that checks by its name": ("x, y", "kernel_assert(x.shape == y.shape)", []),
    "an exception": ("x, y", "if x.shape != y.shape:\n    raise ValueError(x)", []),
    "a helper that takes the shape": ("x", "shaped(x)\nt = nl.ndarray((128, 512))\nfor i in x: pass", []),
    "a helper that takes the shape of a tile": (
        "x",
        "t = nl.ndarray((128, 512))\nshaped(t)\nfor i in x: pass",
        ["NKR052"],
    ),
    "nobody takes the shape": ("x", "t = nl.ndarray((128, 512))\nfor i in x: pass", ["NKR052"]),
}


@pytest.mark.parametrize("name", CONTRACTS)
def test_what_a_kernel_relies_on_and_does_not_say(tmp_path: Path, name: str) -> None:
    parameters, body, codes = CONTRACTS[name]
    helpers = "def helper(x, y):\n    assert x.shape == y.shape\ndef shaped(x):\n    return x.shape\n"
    text = kernel(body, parameters).replace('    """x [rows, columns]."""\n', "") + helpers
    assert [code for code, _, _ in messages(source(tmp_path, text))] == codes


def test_shapes_that_the_docstring_states_are_said(tmp_path: Path) -> None:
    body = "t = nl.ndarray((128, 512))"
    said = kernel(body).replace("x [rows, columns]", "x [128, 512] fp32")
    assert messages(source(tmp_path, said)) == []
    assert [
        code for code, _, _ in messages(source(tmp_path, said.replace("[128, 512] fp32", "[128, 256]")))
    ] == ["NKR052"]


def traced(kind: str, *details: str, lines: tuple[int, ...] = ()) -> WorkloadFacts:
    """A workload whose trace saw these, one line after the other of ``kernel.py``."""
    made = Kernel()
    for at, detail in enumerate(details):
        made.line = (lines[at] if lines else at + 1) - 1
        made.builder.event(kind, made.place(), detail)
    return WorkloadFacts("w", program=made.program())


def told(*workloads: WorkloadFacts) -> list[tuple[str, str, tuple[str, ...], int]]:
    return [(f.code, f.message, f.places, f.count) for f in judge(Facts("kernel", workloads, target="trn2"))]


def test_a_deprecated_name_is_one_finding_with_its_lines() -> None:
    alias = "nl.affine_range is a deprecated alias of range since NKI 0.6"
    other = "nl.sequential_range is a deprecated alias of range since NKI 0.6"
    modes = [
        f"dma_copy: dge_mode={n} is a raw integer for dge_mode.{name}" for n, name in ((1, "a"), (2, "b"))
    ]
    assert sorted(told(traced("deprecated", alias, other, alias, *modes, alias))) == [
        ("NKR041", f"{modes[0]} (kernel.py:4 and 1 more line)", ("kernel.py:4", "kernel.py:5"), 2),
        (
            "NKR041",
            f"{alias} (kernel.py:1 and 2 more lines)",
            ("kernel.py:1", "kernel.py:3", "kernel.py:6"),
            3,
        ),
        ("NKR041", f"{other} (kernel.py:2)", ("kernel.py:2",), 1),
    ]


def test_what_several_workloads_trace_counts_once() -> None:
    alias = "nl.affine_range is a deprecated alias of range since NKI 0.6"
    assert told(traced("deprecated", alias), traced("deprecated", alias)) == [
        ("NKR041", f"{alias} (kernel.py:1)", ("kernel.py:1",), 1)
    ]


def test_the_truth_of_tensors_is_one_finding() -> None:
    asked = [f"the truth of tensor {name} was asked for and is True" for name in ("bias", "mask", "bias")]
    assert told(traced("truth", *asked)) == [
        (
            "NKR040",
            "the truth of tensor bias was asked for and is True, and so of 1 more; a tensor counts as present, "
            "whatever its values (kernel.py:1 and 2 more lines)",
            ("kernel.py:1", "kernel.py:2", "kernel.py:3"),
            3,
        )
    ]


def test_notes_of_the_trace_are_one_finding_for_each_kind() -> None:
    note = "ap(offset=) replaces the offset of the view it is called on"
    assert told(traced("note", note, note)) == [
        ("NKR045", f"{note} (kernel.py:1 and 1 more line)", ("kernel.py:1", "kernel.py:2"), 2)
    ]


def test_cores_that_diverge_are_one_finding() -> None:
    notes = [f"cores diverge: core 1 allocates shared {shape} float32" for shape in ((4, 4), (8, 4))]
    assert told(traced("note", *notes)) == [
        ("NKR007", f"{notes[0]} (kernel.py:1 and 1 more line)", ("kernel.py:1", "kernel.py:2"), 2)
    ]


def test_an_index_past_the_end_is_one_finding_for_each_tensor() -> None:
    past = [
        f"index {at} of dimension 1 (size 200) of tensor {name} runs into other elements of its memory"
        for at, name in (("128:256", "x"), ("256:384", "x"), ("128:256", "y"))
    ]
    assert told(traced("overrun", *past, lines=(5, 5, 6))) == [
        ("NKR008", f"{past[0]} (kernel.py:5)", ("kernel.py:5",), 2),
        ("NKR008", f"{past[2]} (kernel.py:6)", ("kernel.py:6",), 1),
    ]


def test_a_limit_that_several_instructions_break_is_one_finding() -> None:
    def broken(row: str, number: int, line: int, *instructions: int) -> Violation:
        text = f"{row}: partition size 256 exceeds 128 on trn2 (kernel.py:{line})"
        place = made.builder.place((Frame(0, line, "kernel"),))
        return Violation(row, f"{row}.partitions", number, "a.rst:1", text, instructions, place, False)

    made = Kernel()
    violations = (
        broken("memset", 1, 3, 0),
        broken("activation", 1, 4, 1, 2),
        broken("memset", 1, 7, 5),
        broken("memset", 0, 5, 3),
        broken("iota", 0, 6, 4),
    )
    found = told(WorkloadFacts("w", program=made.program(), violations=violations))
    assert [row for row in found if row[0] == "NKR001"] == [
        (
            "NKR001",
            f"{violations[0].message}; {violations[1].message}, and at 1 more",
            ("kernel.py:3", "kernel.py:4", "kernel.py:7"),
            4,
        ),
        ("NKR001", violations[3].message, ("kernel.py:5",), 1),
        ("NKR001", violations[4].message, ("kernel.py:6",), 1),
    ]


def test_tiles_that_one_loop_carries_are_one_finding(tmp_path: Path) -> None:
    body = (
        "a = nl.ndarray((1, 1))\nb = nl.ndarray((1, 1))\nfor i in nl.affine_range(4):\n"
        "    nisa.tensor_tensor(dst=a, data1=a, data2=x[i], op=nl.add)\n"
        "    nisa.tensor_tensor(dst=b, data1=b, data2=x[i], op=nl.add)"
    )
    (race,) = [f for f in findings(source(tmp_path, kernel(body)), LEGACY) if f.code == "NKR050"]
    assert race.message == (
        "every iteration of the affine_range of line 9 reads and writes a, b (kernel.py:10 and 1 more line)"
    )
    assert (race.places, race.count) == (("kernel.py:10", "kernel.py:11", "kernel.py:9"), 2)


def test_a_debugger_that_is_left_in(tmp_path: Path) -> None:
    found = messages(source(tmp_path, kernel("breakpoint()\nbreakpoint()")))
    assert found == [
        (
            "NKR049",
            "minor",
            "the kernel uses breakpoint, a call of the debugger (kernel.py:7 and 1 more line)",
        )
    ]


@pytest.mark.parametrize(
    ("head", "call", "name"),
    [
        ("import random\n", "random.random()", "random.random"),
        ("import time\n", "time.time()", "time.time"),
        ("import numpy as np\n", "np.random.rand(4)", "numpy.random.rand"),
        ("from time import perf_counter\n", "perf_counter()", "time.perf_counter"),
    ],
)
def test_calls_into_the_host(tmp_path: Path, head: str, call: str, name: str) -> None:
    facts = source(tmp_path, kernel(f"n = {call}"), head=head + CURRENT)
    assert [item.name for item in host_calls(facts, "kernel")] == [name]
    assert ("NKR053", "minor", f"the kernel calls {name} while it is compiled (kernel.py:8)") in messages(
        facts
    )


def test_arithmetic_of_the_host_is_no_call_into_it(tmp_path: Path) -> None:
    facts = source(
        tmp_path,
        kernel("n = math.ceil(3 / 2)\nm = np.prod((1, 2))"),
        head=f"import math\nimport numpy as np\n{CURRENT}",
    )
    assert host_calls(facts, "kernel") == ()
