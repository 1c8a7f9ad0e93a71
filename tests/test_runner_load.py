"""Importing a user's file: under which name, and one sentence for whatever goes wrong."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nkireview.runner.load import LoadError, innermost, load_module


@pytest.fixture(autouse=True)
def _restored_imports() -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def test_a_file_alone_sees_its_neighbours(tmp_path: Path) -> None:
    write(tmp_path / "neighbour_of_it.py", "value = 3")
    module = load_module(write(tmp_path / "alone_kernel.py", "from neighbour_of_it import value"))
    assert (module.__name__, module.value) == ("alone_kernel", 3)
    assert sys.modules["alone_kernel"] is module
    assert load_module(tmp_path / "alone_kernel.py") is module


def test_a_file_in_a_package_has_its_full_name(tmp_path: Path) -> None:
    for folder in ("outer_package", "outer_package/inner", "outer_package/inner/cumsum"):
        write(tmp_path / "src" / folder / "__init__.py", "")
    write(tmp_path / "src/outer_package/inner/tools.py", "value = 4")
    file = write(tmp_path / "src/outer_package/inner/cumsum/cumsum.py", "from ..tools import value")
    module = load_module(file)
    assert (module.__name__, module.value) == ("outer_package.inner.cumsum.cumsum", 4)


def test_a_package_itself(tmp_path: Path) -> None:
    write(tmp_path / "whole_package/part.py", "value = 5")
    module = load_module(write(tmp_path / "whole_package/__init__.py", "from .part import value"))
    assert (module.__name__, module.value) == ("whole_package", 5)


@pytest.mark.parametrize("name", ["json", "numpy", "asyncore_or_inspect", "inspect"])
def test_a_file_does_not_replace_a_module_of_its_name(tmp_path: Path, name: str) -> None:
    before = sys.modules.get(name)
    module = load_module(write(tmp_path / f"{name}.py", "import json, numpy\nvalue = numpy.ones(2).sum()"))
    assert module.value == 2
    assert sys.modules.get(name) is (before or module)


def test_any_stem_will_do(tmp_path: Path) -> None:
    assert load_module(write(tmp_path / "kernel-v1.2.py", "value = 1")).value == 1


def test_dataclasses_find_their_module(tmp_path: Path) -> None:
    text = "from __future__ import annotations\nfrom dataclasses import dataclass\n@dataclass\nclass C:\n    x: int\n"
    assert load_module(write(tmp_path / "with_dataclass.py", text)).C(1).x == 1


@pytest.mark.parametrize(
    ("text", "reason", "line"),
    [
        ("x = 1\ndef f(:\n", "FILE: not valid Python: invalid syntax", 2),
        ("x = '\0'", "FILE: not valid Python: source code string cannot contain null bytes", 0),
        ("\nimport no_such_module.part", "FILE: imports 'no_such_module', which is not installed", 2),
        (
            "def f():\n    return 1 / 0\n\nf()\n",
            "FILE: raised ZeroDivisionError: division by zero while it was imported",
            2,
        ),
        ("import json\njson.loads('{')", "FILE: raised JSONDecodeError: ", 2),
        ("class E(Exception):\n    def __str__(self): 1 / 0\nraise E", "E: <no printable message> while", 3),
    ],
)
def test_one_sentence(tmp_path: Path, text: str, reason: str, line: int) -> None:
    file = write(tmp_path / "broken_kernel.py", text)
    with pytest.raises(LoadError) as caught:
        load_module(file)
    assert reason.replace("FILE", str(file)) in caught.value.reason
    assert caught.value.line == line
    assert "broken_kernel" not in sys.modules
    if line:
        assert str(caught.value) == f"{caught.value.reason} (broken_kernel.py:{line})"
        assert caught.value.file == str(file)


def test_an_error_in_a_neighbour_names_the_neighbour(tmp_path: Path) -> None:
    write(tmp_path / "broken_neighbour.py", "x = 1\nraise RuntimeError('no')")
    file = write(tmp_path / "uses_it.py", "import broken_neighbour")
    with pytest.raises(
        LoadError, match=re.escape("raised RuntimeError: no while it was imported (broken_neighbour.py:2)")
    ):
        load_module(file)
    write(tmp_path / "bad_syntax.py", "x = 1\ny = = 2")
    file = write(tmp_path / "uses_that.py", "import bad_syntax")
    with pytest.raises(LoadError, match=re.escape("(bad_syntax.py:2)")):
        load_module(file)


def test_bytes_that_are_not_text(tmp_path: Path) -> None:
    file = tmp_path / "binary.py"
    file.write_bytes(b"\x7fELF\xff\xfe\x80")
    with pytest.raises(LoadError, match="not valid Python"):
        load_module(file)


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=re.escape(f"{tmp_path}/missing.py: file not found")):
        load_module(tmp_path / "missing.py")
    with pytest.raises(LoadError, match="is a folder, expected a Python file"):
        load_module(tmp_path)


def test_a_package_with_the_name_of_a_loaded_one(tmp_path: Path) -> None:
    write(tmp_path / "numpy/__init__.py", "")
    file = write(tmp_path / "numpy/kernel.py", "")
    with pytest.raises(
        LoadError, match="its package 'numpy' has the name of another that is loaded; rename the folder"
    ):
        load_module(file)


def test_the_innermost_place_is_the_users(tmp_path: Path) -> None:
    module = load_module(
        write(tmp_path / "calls_numpy.py", "import numpy\ndef f():\n    numpy.ones(2).reshape(3, 5)\n\n")
    )
    try:
        module.f()
    except ValueError as error:
        assert innermost(error, tmp_path) == (str(tmp_path / "calls_numpy.py"), 3)
        assert innermost(error, tmp_path / "elsewhere") == (str(tmp_path / "calls_numpy.py"), 3)
