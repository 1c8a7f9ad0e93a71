"""What commands do when a file is not there, and when whoever reads their output leaves."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nkireview.cli.screen import BROKEN_PIPE, WRONG_CALL, sentences

# A kernel that takes no time, with all that a review of it needs.
GOOD = (
    "kernel.py",
    *("--reference", "kernel.py:reference"),
    *("--input", "x=f32[128,64]"),
)
KERNEL = """\
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def double(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=out, src=tile)
    return out


def reference(x):
    return 2 * x
"""


def raising(error: BaseException) -> Callable[[], None]:
    def raise_it() -> None:
        raise error

    return raise_it


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.ENOENT, "No such file or directory; expected a file or folder that is there"),
        (errno.EISDIR, "Is a directory; expected a file"),
        (errno.ENOTDIR, "Not a directory; expected a folder"),
        (errno.EEXIST, "File exists; expected a folder"),
        (errno.EACCES, "Permission denied; expected one with the right to read and write it"),
        (errno.ENOSPC, "No space left on device; expected a file that can be read and written"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_sentence_with_what_was_expected(
    number: int, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended, sentences():
        raise OSError(number, os.strerror(number), "results/x")
    assert ended.value.code == WRONG_CALL
    assert capsys.readouterr() == ("", f"nkireview: results/x: {expected}\n")


def into_a_closed_pipe(*arguments: str, folder: Path) -> tuple[int, bytes]:
    """Exit code and errors of a command whose output nobody reads."""
    (folder / "kernel.py").write_text(KERNEL, encoding="utf-8")
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "nkireview", *arguments],
            stdout=write,
            stderr=subprocess.PIPE,
            cwd=folder,
            check=False,
        )
    finally:
        os.close(write)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("review", *GOOD),
        ("review", *GOOD, "--json"),
        ("rules",),
        ("rules", "--json"),
        ("schema",),
        ("rubric", "show"),
    ],
    ids=" ".join,
)
def test_a_reader_that_leaves_is_no_verdict(arguments: tuple[str, ...], tmp_path: Path) -> None:
    assert into_a_closed_pipe(*arguments, folder=tmp_path) == (BROKEN_PIPE, b"")


def test_a_review_is_written_before_it_is_printed(tmp_path: Path) -> None:
    assert into_a_closed_pipe("review", *GOOD, "--out", "out", folder=tmp_path)[0] == BROKEN_PIPE
    assert (tmp_path / "out" / "review.json").is_file()
