"""`nkireview migrate-check`: screen, Markdown, JSON, exit codes, mixed generations, and the page that shows it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from nkireview.cli import main, migrate_check

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "migrate-check.md"
OLD = """\
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import neuronxcc.nki.isa as nisa

@nki.jit
def kernel(x):
"""
NEW = """\
import nki
import nki.language as nl
import nki.isa as nisa

@nki.jit
def kernel(x):
"""


def call(path: Path, *arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, ["migrate-check", str(path), *arguments])
    return result.exit_code, result.stdout, result.stderr


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "kernel.py"
    path.write_text(text, encoding="utf-8")
    return path


def told(tmp_path: Path, text: str, *arguments: str) -> dict[str, object]:
    _, out, _ = call(written(tmp_path, text), "--json", *arguments)
    found: dict[str, object] = json.loads(out)
    return found


def mixed(tmp_path: Path, text: str) -> list[tuple[int, str]]:
    found = told(tmp_path, text)["mixed"]
    assert isinstance(found, list)
    return [(item["line"], item["what"]) for item in found]


def test_the_page_shows_what_the_command_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = PAGE.read_text(encoding="utf-8")
    (kernel,) = re.findall(r"```python\n(.*?)```", text, flags=re.S)
    (shown,) = re.findall(r"```text\n(.*?)```", text, flags=re.S)
    monkeypatch.setattr(migrate_check, "screen", lambda: Console(width=110))
    code, out, _ = call(written(tmp_path, kernel))
    assert code == 1
    assert out == shown


def test_the_page_names_every_option_and_every_word() -> None:
    text = PAGE.read_text(encoding="utf-8")
    options = {
        item.opts[0] for item in main.commands["migrate-check"].params if item.opts[0].startswith("--")
    }
    assert options - {"--to"} <= set(re.findall(r"`?(--[a-z]+)", text))
    assert [
        word for word in re.findall(r"^\| (\w+) \|", text, flags=re.M) if word.isalpha() and word != "word"
    ][:5] == [
        "gone",
        "renamed",
        "form",
        "meaning",
        "default",
    ]


def test_a_kernel_of_the_release_itself_needs_nothing(tmp_path: Path) -> None:
    path = written(tmp_path, f"{NEW}    nisa.tensor_copy(t, x)\n    return t\n")
    code, out, err = call(path, "--from", "0.6")
    assert (code, err) == (0, "")
    assert out.splitlines()[:2] == ["kernel.py (nki): from NKI 0.6 to 0.6", "nothing to change"]
    assert "To change" not in out and "To check" not in out


def test_what_is_to_be_checked_alone_is_no_failure(tmp_path: Path) -> None:
    path = written(tmp_path, f"{NEW}    for i in nl.affine_range(4):\n        nisa.tensor_copy(t, x)\n")
    code, out, _ = call(path)
    assert code == 0
    assert "nothing to change; 1 place to check" in out
    assert "  kernel.py:7  for i in nl.affine_range(4):\n" in out
    assert "    renamed 0.6  nl.affine_range: range; the aliases are deprecated [" in out


def test_the_same_advice_stands_once(tmp_path: Path) -> None:
    body = "    a = nl.load(x, mask=m)\n    b = nl.load(x, mask=m)\n    return a\n"
    code, out, _ = call(written(tmp_path, OLD + body), "--to", "0.3")
    assert code == 1
    assert "5 places to change, on 5 lines" in out
    assert out.count("end the slice at the bound: x[p:min(p + 128, rows), ...]") == 1
    assert "    gone 0.2     mask= of nl.load: as in line 7\n" in out


def test_json_holds_everything(tmp_path: Path) -> None:
    found = told(tmp_path, f"{OLD}    a = nl.arange(4)\n", "--to", "0.2")
    assert (found["from"], found["to"], found["generation"], found["clean"]) == (
        "0.1",
        "0.2",
        "legacy",
        False,
    )
    needed = found["needed"]
    assert isinstance(needed, list)
    assert needed[-1] == {
        "place": "kernel.py:7",
        "line": 7,
        "id": "nki.language.arange",
        "act": "change",
        "kind": "gone",
        "what": "nl.arange",
        "since": "0.2",
        "replacement": "nl.ds(start, size) or a plain slice",
        "source": "aws-neuron-sdk nki/migration/index.rst:856-870",
    }
    assert [item["line"] for item in needed] == [1, 2, 3, 7]


def test_markdown_can_be_pasted(tmp_path: Path) -> None:
    path = written(tmp_path, f"{OLD}    a = nl.load(x[p | q], mask=m)\n")
    code, out, _ = call(path, "--format", "md")
    assert code == 1
    head = "# kernel.py (neuronxcc.nki): from NKI 0.1 to 0.6\n\n**4 places to change, on 4 lines.**\n"
    assert out.startswith(head)
    (row,) = [line for line in out.splitlines() if "`mask= of nl.load`" in line]
    assert row.startswith("| `kernel.py:7` | `mask= of nl.load` | gone in 0.2 | end the slice")
    assert row.count(" | ") == 4 and row.endswith("| `nki/migration/index.rst:1040-1091` |")


def test_forms_exclude_each_other(tmp_path: Path) -> None:
    code, _, err = call(written(tmp_path, f"{NEW}    pass\n"), "--json", "--format", "md")
    assert (code, err) == (2, "nkireview: give either --json or --format md, not both\n")


def test_a_file_that_imports_both_is_named(tmp_path: Path) -> None:
    text = "import nki.isa as nisa\nimport neuronxcc.nki.language as nl\n"
    code, out, _ = call(written(tmp_path, text))
    assert code == 1
    assert "it mixes two generations of NKI; " in out
    assert "  kernel.py:1: imports nki, of the current generation\n" in out
    assert "  kernel.py:2: imports neuronxcc.nki, of the legacy generation\n" in out


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("nl.ndarray((nl.par_dim(128), 4), nl.float32)", "nl.par_dim"),
        ("nl.load(x, mask=m)", "mask= of nl.load"),
        ("t = nisa.activation(op=nl.exp, data=x)", "nisa.activation without dst"),
        ("nisa.tensor_copy(t, x, dtype=nl.float32)", "dtype= of nisa.tensor_copy"),
        ("nki.benchmark(kernel)", "nki.benchmark"),
    ],
)
def test_what_is_legacy_under_import_nki_is_named(tmp_path: Path, line: str, what: str) -> None:
    assert mixed(tmp_path, f"{NEW}    {line}\n") == [
        (7, f"{what}, of the legacy generation, under import nki")
    ]


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("nisa.activation(dst=t, op=nl.exp, data=x)", "nisa.activation with dst"),
        ("nisa.tensor_copy(t, x)", "nisa.tensor_copy with dst"),
        ("nisa.dma_compute(t, [x], nl.add)", "nisa.dma_compute"),
        ("y = x.ap([[1, 1]])", ".ap(...)"),
        ("nisa.dma_copy(dst=t, src=x, priority=1)", "priority= of nisa.dma_copy"),
    ],
)
def test_what_is_current_under_neuronxcc_is_named(tmp_path: Path, line: str, what: str) -> None:
    assert mixed(tmp_path, f"{OLD}    {line}\n") == [
        (7, f"{what}, of the current generation, under neuronxcc")
    ]


@pytest.mark.parametrize(
    "line",
    [
        "nisa.dma_copy(dst=t, src=x)",
        "nisa.select_reduce(dst=t, predicate=p, on_true=a, on_false=b)",
        "t = nisa.tensor_copy(x)",
        "t = nl.ndarray((4, 4), nl.float32, buffer=nl.private_hbm)",
    ],
)
def test_what_both_have_is_no_mixture(tmp_path: Path, line: str) -> None:
    assert mixed(tmp_path, f"{OLD}    {line}\n") == []


@pytest.mark.parametrize(
    "line",
    [
        "t = nl.load(x)",
        "nisa.tensor_copy(t, x)",
        "done = nisa.tensor_copy(t, src=x)",
        "r = nisa.register_alloc(4)",
        "nisa.memset(t, value=0.0)",
    ],
)
def test_a_current_kernel_is_no_mixture(tmp_path: Path, line: str) -> None:
    assert mixed(tmp_path, f"{NEW}    {line}\n") == []


def test_an_import_that_may_fail_is_no_mixture(tmp_path: Path) -> None:
    text = "try:\n    import nki\nexcept ImportError:\n    import neuronxcc.nki as nki\n"
    found = told(tmp_path, text)
    assert (found["mixed"], found["generation"], found["from"]) == ([], "current", "0.2")


def test_a_file_without_imports_is_read_by_convention(tmp_path: Path) -> None:
    body = "@nki.jit\ndef kernel(x):\n    t = nl.{}\n    return t\n"
    old, new = (told(tmp_path, body.format(text)) for text in ("load(x, mask=m)", "load(x)"))
    assert (old["from"], old["generation"], old["mixed"]) == ("0.1", "", [])
    assert (new["from"], new["clean"]) == ("0.2", True)


def test_what_is_newer_than_the_release_is_named(tmp_path: Path) -> None:
    _, out, _ = call(written(tmp_path, f"{NEW}    nl.fori_loop(0, 4, body)\n"))
    assert "  kernel.py:7: nl.fori_loop came with NKI 0.6: with --from 0.6 less may be left to check\n" in out


def test_names_are_followed_through_imports(tmp_path: Path) -> None:
    text = (
        "from neuronxcc.nki.language import arange as steps, par_dim\n"
        "from neuronxcc import nki\n"
        "from neuronxcc.nki.language import *\n"
        "a, b, c = steps(4), nki.language.mgrid[0:4], loop_reduce(x)\n"
        "d = numpy.arange(4)\n"
    )
    found = told(tmp_path, text)["needed"]
    assert isinstance(found, list)
    assert sorted(item["what"] for item in found if item["line"] > 3) == [
        "nl.arange",
        "nl.loop_reduce",
        "nl.mgrid",
    ]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ("--to", "0.9"),
            "--to: unknown NKI release '0.9': expected one of 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, or legacy (= 0.1)",
        ),
        (
            ("--from", "1"),
            "--from: unknown NKI release '1': expected one of 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, or legacy (= 0.1)",
        ),
        (
            ("--from", "0.5", "--to", "0.3"),
            "NKI 0.3 is older than 0.5: a move goes to a later release, or stays",
        ),
        (
            ("--from", "legacy"),
            "kernel.py: imports nki, which is release 0.2 or later, not 0.1; name that, or none",
        ),
    ],
)
def test_a_wrong_call_gets_one_sentence(tmp_path: Path, arguments: tuple[str, ...], sentence: str) -> None:
    code, out, err = call(written(tmp_path, f"{NEW}    pass\n"), *arguments)
    assert (code, out) == (2, "")
    assert err.replace(f"{tmp_path}/", "") == f"nkireview: {sentence}\n"


def test_the_other_generation_gets_one_sentence(tmp_path: Path) -> None:
    code, _, err = call(written(tmp_path, f"{OLD}    pass\n"), "--from", "0.3")
    assert code == 2
    assert err.endswith(
        "kernel.py: imports neuronxcc.nki, which is release 0.1, not 0.3; name that, or none\n"
    )


def test_what_is_no_kernel_gets_one_sentence(tmp_path: Path) -> None:
    code, _, err = call(tmp_path / "none.py")
    assert (code, err) == (
        2,
        f"nkireview: {tmp_path}/none.py: no such file; expected a Python file with a kernel\n",
    )
    code, _, err = call(written(tmp_path, "def (:\n"))
    assert code == 2 and err.startswith(f"nkireview: {tmp_path}/kernel.py:1: not Python: ")


def test_the_file_is_never_run(tmp_path: Path) -> None:
    code, _, err = call(written(tmp_path, f"raise SystemExit(7)\n{NEW}    pass\n"))
    assert (code, err) == (0, "")


def test_control_characters_do_not_reach_the_terminal(tmp_path: Path) -> None:
    _, out, _ = call(written(tmp_path, f"{OLD}    a = nl.arange(4)  # \x1b[31m\n"))
    assert "\x1b" not in out and "\\x1b[31m" in out
