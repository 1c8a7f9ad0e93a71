"""What AWS's published kernels do beyond the stub of their release, and must not be refused for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from nl_kernels import nisa, nl

from nkireview.isa.enums import Memory
from nkireview.isa.release import Release
from nkireview.nki.errors import Refusal
from nkireview.nki.tensor import NkiTensor
from nkireview.nki.trace import Trace, tracing
from nkireview.record import ReviewRecord
from nkireview.requests import from_file
from nkireview.review import review
from nkireview.runner import ForkServer

COPY = """
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def copy(x):
    assert x.buffer == nl.{expected} and nl.is_hbm(x.buffer)
    t = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=x)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=t)
    return out


def same(x):
    return x
"""


def noted(release: str, *keywords: dict[str, Any]) -> tuple[int, list[str]]:
    """How many copies with these keywords are recorded, and what is said of them."""
    trace = Trace("trn2", Release.parse(release))
    with tracing(trace), trace.builder.stream():
        tile = NkiTensor.whole(trace, trace.buffer(Memory.sbuf, (8, 8), "float32"))
        for given in keywords:
            nisa.tensor_copy(dst=tile, src=tile, **given)
    recorded = len(trace.builder)
    return recorded, [event.detail for event in trace.builder._events]


def test_a_keyword_that_0_2_does_not_have_is_ignored_and_noted() -> None:
    """SDK 2.27 ignored it, 2.28 refuses it (release notes 2.28), and nki-samples and the MX guide of both pass it."""
    text = "tensor_copy: dtype is no argument of it, which NKI 0.2 at first ignored"
    assert noted("0.2", {"dtype": "bfloat16"}, {}, {"dtype": "bfloat16"}) == (3, [text])


@pytest.mark.parametrize("release", ["0.3", "0.6"])
def test_later_releases_refuse_it(release: str) -> None:
    with pytest.raises(
        Refusal, match="tensor_copy: unknown argument 'dtype', expected dst, src, engine, name"
    ):
        noted(release, {"dtype": "bfloat16"})


@pytest.mark.parametrize("release", ["0.2", "0.6"])
def test_sequential_range_takes_one_number(release: str) -> None:
    """The stub of 0.2 prints (start, stop, step), and its own example passes one (tag v2.28.1, language:271)."""
    trace = Trace("trn2", Release.parse(release))
    with tracing(trace), trace.builder.stream():
        assert list(nl.sequential_range(3)) == [0, 1, 2]


@pytest.mark.parametrize(
    ("lnc", "expected", "status"),
    [
        (1, "hbm", "acceptable"),
        (2, "shared_hbm", "acceptable"),
        (1, "shared_hbm", "rejected"),
        (2, "hbm", "rejected"),
    ],
)
def test_arguments_lie_where_the_simulator_puts_them(
    server: ForkServer, tmp_path: Path, lnc: int, expected: str, status: str
) -> None:
    """nki/guides/nki_simulator.rst:199-200; the kernels of the MX guide assert it."""
    file = tmp_path / "copy.py"
    file.write_text(COPY.format(expected=expected))
    found: ReviewRecord = review(
        from_file(
            file,
            kernel="copy",
            reference=f"{file}:same",
            inputs=("x=f32[8,8]",),
            inputs_from="",
            target="trn2",
            nki="",
            lnc=lnc,
            seed=1,
        ),
        server,
    )
    assert found.status == status
