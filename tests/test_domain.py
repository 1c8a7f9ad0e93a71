"""The shape domain, of kernels whose domain is written in their source."""

from __future__ import annotations

from pathlib import Path

import pytest

from nkireview import domain as swept
from nkireview.domain import Dimension, DomainRecord, Outcome, Tried, domain
from nkireview.numerics.inputs import Spec, parse_input
from nkireview.requests import from_file
from nkireview.runner import ForkServer
from nkireview.tracing import Request

HEAD = """
import nki
import nki.isa as nisa
import nki.language as nl

"""
# The rows go to the partitions, of which there are 128; each body says which columns it takes.
KERNEL = """
@nki.jit
def doubled(x):
    rows, columns = x.shape
{body}
    out = nl.ndarray((rows, columns), dtype=x.dtype, buffer=nl.shared_hbm)
    for at in range(0, columns, 64):
        width = {width}
        tile = nl.ndarray((rows, width), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[:, at:at + width])
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=out[:, at:at + width], src=tile)
    return out
"""
REFERENCE = "def reference(x):\n    return x * 2\n"


def request(
    folder: Path, body: str, width: str = "min(64, columns - at)", *inputs: str, compared: bool = True
) -> Request:
    (folder / "kernel.py").write_text(HEAD + KERNEL.format(body=body, width=width))
    (folder / "reference.py").write_text(REFERENCE)
    return from_file(
        folder / "kernel.py",
        kernel="doubled",
        reference=f"{folder / 'reference.py'}:reference" if compared else None,
        inputs=inputs or ("x=f32[64,192]",),
        inputs_from=None,
        target="trn2",
        nki=None,
        lnc=None,
        need_reference=False,
    )


def found(asked: Request, server: ForkServer, **limits: float) -> DomainRecord:
    return domain(asked, asked.workloads[0], server, **limits)  # type: ignore[arg-type]


def outcomes(dimension: Dimension) -> dict[int, str]:
    return {each.size: each.outcome.name for each in dimension.tried}


def test_partitions_refuse_what_an_assert_does_not(tmp_path: Path, server: ForkServer) -> None:
    """More than 128 rows break a documented limit of the hardware; columns must be multiples of 64 here."""
    body = "    assert columns % 64 == 0, f'{columns} columns are no multiple of 64'"
    rows, columns = found(request(tmp_path, body), server).dimensions
    assert (rows.label, rows.base) == ("rows", 64) and (columns.label, columns.base) == ("columns", 192)
    for size, outcome in outcomes(rows).items():
        assert outcome == ("right" if size <= 128 else "refused"), size
    for size, outcome in outcomes(columns).items():
        assert outcome == ("right" if size % 64 == 0 else "asserted"), size
    assert {1, 65, 127, 128, 129} <= set(outcomes(rows)) and {1, 128, 129, 193, 384} <= set(outcomes(columns))
    assert rows.sentence.startswith("rows: up to 128 (right at 1, 63, 64, 65, 127 and 128); 129")
    assert "refused by the language (" in rows.sentence
    assert columns.sentence.startswith("columns: multiples of 64 only (right at 128, 192")
    assert "are refused by an assert (" in columns.sentence
    assert "1 columns are no multiple of 64 (kernel.py:" in columns.sentence


def test_a_lost_tail_is_silently_wrong(tmp_path: Path, server: ForkServer) -> None:
    """Only whole tiles of 64 columns are computed, and nothing says so: the rest of the output is never written."""
    body = "    columns = columns // 64 * 64 if columns > 64 else columns"
    asked = request(tmp_path, body, "min(64, columns - at)")
    text = (tmp_path / "kernel.py").read_text()
    (tmp_path / "kernel.py").write_text(
        text.replace(
            "(rows, columns), dtype=x.dtype, buffer=nl.shared_hbm",
            "x.shape, dtype=x.dtype, buffer=nl.shared_hbm",
        )
    )
    record = found(asked, server, traces=18)
    columns = record.dimensions[1]
    for size, outcome in outcomes(columns).items():
        assert outcome == ("right" if size <= 64 or size % 64 == 0 else "wrong"), size
    assert record.silently_wrong and 193 in columns.wrong and 129 in columns.wrong
    assert "are silently wrong (" in columns.sentence


def test_wrong_values_are_silently_wrong_without_any_fault(tmp_path: Path, server: ForkServer) -> None:
    asked = request(tmp_path, "    pass")
    text = (tmp_path / "kernel.py").read_text()
    (tmp_path / "kernel.py").write_text(
        text.replace("operand0=2.0", "operand0=2.0 if columns < 193 else 2.1")
    )
    columns = found(asked, server, traces=7).dimensions[1]
    assert outcomes(columns) == {192: "right", 193: "wrong", 129: "right", 1: "right"}
    assert columns.sentence.startswith(
        "columns: up to 192 (right at 1, 129 and 192); 193 is silently wrong ("
    )


def test_a_kernel_for_any_size_is_right_at_any(tmp_path: Path, server: ForkServer) -> None:
    asked = request(tmp_path, "    pass", "min(64, columns - at)", "x=bf16[3,192]")
    columns = found(asked, server, traces=16).dimensions[1]
    assert set(outcomes(columns).values()) == {"right"} and len(columns.tried) > 5
    assert columns.sentence.startswith("columns: any (right at 1, 127,")
    assert not columns.wrong


def test_without_a_reference_sizes_are_accepted_at_most(tmp_path: Path, server: ForkServer) -> None:
    asked = request(tmp_path, "    pass", compared=False)
    record = found(asked, server, traces=7)
    assert not record.compared and not record.silently_wrong
    assert outcomes(record.dimensions[0]) == {64: "accepted", 65: "accepted", 129: "refused", 1: "accepted"}
    assert outcomes(record.dimensions[1]) == {
        192: "accepted",
        193: "accepted",
        129: "accepted",
        1: "accepted",
    }
    assert record.dimensions[1].sentence == "columns: any (accepted at 1, 129, 192 and 193)"


def test_what_raises_hangs_or_is_refused_is_told_apart(
    tmp_path: Path, server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(swept, "WALL_S", 3.0)
    body = (
        "    if columns == 193: return {}['missing']\n"
        "    while columns == 129: pass\n"
        "    if columns == 1: x.no_such_method()"
    )
    columns = found(request(tmp_path, body), server, traces=7).dimensions[1]
    assert outcomes(columns) == {192: "right", 193: "raised", 129: "hangs", 1: "raised"}
    assert "1 and 193 raise an error (AttributeError: " in columns.sentence
    assert "KeyError: 'missing' (kernel.py:" in columns.tried[-1].message
    assert columns.sentence.endswith("129 hangs (ran longer than 3 s)")


def test_equal_sizes_move_together_and_the_reference_may_refuse(tmp_path: Path, server: ForkServer) -> None:
    (tmp_path / "kernel.py").write_text(
        HEAD
        + """
@nki.jit
def doubled(x, y):
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    other = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=tile, src=x)
    nisa.dma_copy(dst=other, src=y)
    nisa.tensor_tensor(dst=tile, data1=tile, data2=other, op=nl.add)
    nisa.dma_copy(dst=out, src=tile)
    return out
"""
    )
    (tmp_path / "reference.py").write_text(
        "def reference(x, y):\n    if len(x) == 1: raise ValueError('one row')\n    return x + y\n"
    )
    asked = from_file(
        tmp_path / "kernel.py",
        kernel="doubled",
        reference=f"{tmp_path / 'reference.py'}:reference",
        inputs=("x=f32[64,32]", "y=f32[64,32]"),
        inputs_from=None,
        target="trn2",
        nki=None,
        lnc=None,
    )
    rows, columns = found(asked, server, traces=7).dimensions
    assert rows.axes == (("x", 0), ("y", 0)) and rows.label == "rows of x and rows of y"
    assert columns.axes == (("x", 1), ("y", 1))
    assert outcomes(rows) == {64: "right", 65: "right", 129: "refused", 1: "unknown"}
    assert "1 is not known (reference reference.py:reference: ValueError: one row" in rows.sentence
    assert set(outcomes(columns).values()) == {"right"}


def test_traces_and_time_are_bounded(tmp_path: Path, server: ForkServer) -> None:
    asked = request(tmp_path, "    pass", compared=False)
    record = found(asked, server, traces=1)
    assert record.traces == 1 and [outcomes(item) for item in record.dimensions] == [
        {64: "accepted"},
        {192: "accepted"},
    ]
    record = found(asked, server, budget_s=1e-9)
    assert record.traces == 1 and record.notes == ("only 1 sizes were tried within 1e-09 s",)
    with pytest.raises(ValueError, match=r"^traces=0 and budget_s=60: expected both above 0$"):
        found(asked, server, traces=0)


def test_inputs_of_a_function_are_left_alone(tmp_path: Path, server: ForkServer) -> None:
    request(tmp_path, "    pass")
    (tmp_path / "inputs.py").write_text("import numpy as np\ndef make(seed):\n    return np.zeros((4, 4))\n")
    asked = from_file(
        tmp_path / "kernel.py",
        kernel="doubled",
        reference=f"{tmp_path / 'reference.py'}:reference",
        inputs=(),
        inputs_from=f"{tmp_path / 'inputs.py'}:make",
        target="trn2",
        nki=None,
        lnc=None,
    )
    record = found(asked, server)
    assert record.dimensions == () and record.traces == 0
    assert "made by a function" in record.notes[0]


def test_positions_along_a_dimension_shrink_with_it() -> None:
    name, index = parse_input("index=i32[64]:integers(0,512)")
    _, table = parse_input("table=f32[512,8]")
    specs = {name: index, "table": table}
    small = swept._resized(specs, 512, 127)
    assert isinstance(small["index"], Spec) and isinstance(small["table"], Spec)
    assert small["table"].shape == (127, 8) and small["index"].distribution.parameters == (0.0, 127.0)
    large = swept._resized(specs, 512, 513)
    assert isinstance(large["index"], Spec) and large["index"].distribution.parameters == (0.0, 512.0)
    other = swept._resized(specs, 64, 1)
    assert isinstance(other["index"], Spec) and other["index"].shape == (1,)
    assert other["index"].distribution.parameters == (0.0, 512.0)


def said(*tried: tuple[int, Outcome, str]) -> str:
    return Dimension("rows", 128, (("x", 0),), tuple(Tried(*each) for each in tried)).sentence


def test_sentences_claim_no_more_than_was_tried() -> None:
    right, asserted, wrong = Outcome.right, Outcome.asserted, Outcome.wrong
    assert said((128, right, "")) == "rows: right at 128"
    assert said((1, right, ""), (128, right, ""), (129, right, "")) == "rows: any (right at 1, 128 and 129)"
    assert (
        said((127, asserted, "no multiple"), (128, right, ""), (512, right, ""), (513, wrong, "off"))
        == "rows: multiples of 128 only (right at 128 and 512); 127 is refused by an assert (no multiple); "
        "513 is silently wrong (off)"
    )
    assert (
        said((127, asserted, ""), (128, right, "")) == "rows: right at 128 only; 127 is refused by an assert"
    )
    assert said((128, asserted, "a\n b")) == "rows: none of 128; 128 is refused by an assert (a b)"
    assert said((128, Outcome.unknown, "")) == "rows: nothing could be tried; 128 is not known"
    assert (
        said((1, Outcome.hangs, ""), (127, Outcome.hangs, ""), (128, right, ""), (129, right, ""))
        == "rows: from 128 (right at 128 and 129); 1 and 127 hang"
    )
