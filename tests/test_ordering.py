"""Hazards of protocol: partial sums, scatters onto one row, schedules, exchanges; against brute force and by line."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from execute_kit import Kernel, View, counted
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from nkireview import hardware
from nkireview.checks.groups import PartialRead, partial_reads
from nkireview.checks.pairing import unpaired
from nkireview.checks.schedules import as_asked, contradictions
from nkireview.checks.source import read_source
from nkireview.checks.subset import rebound
from nkireview.checks.survey import survey
from nkireview.execute import execute
from nkireview.isa.enums import Memory
from nkireview.isa.release import LEGACY, Release
from nkireview.isa.table import ROWS
from nkireview.nki import isa, language, launch, order
from nkireview.nki.jit import jit
from nkireview.nki.tensor import NkiTensor
from nkireview.nki.trace import Trace
from nkireview.program.model import Header
from nkireview.program.program import Program
from nkireview.program.storage import storage
from nkireview.rules.facts import Facts, WorkloadFacts
from nkireview.rules.finding import Finding, Severity
from nkireview.rules.registry import judge
from nkireview.schedule.uses import uses

nl = language.module("nl")
nisa = isa.module("nisa")


def partial(program: Program) -> tuple[PartialRead, ...]:
    return partial_reads(program, ROWS, uses(program, storage(program, ROWS)))


def findings(program: Program, *codes: str, faults: Sequence[Any] = ()) -> list[Finding]:
    """What the rules of these codes say of a program."""
    found = survey(program, ROWS, hardware.target(program.header.target))
    workload = WorkloadFacts("w", program=program, survey=found, faults=faults)
    facts = Facts("kernel", (workload,), target="trn2", release=Release.parse(program.header.release))
    return [finding for finding in judge(facts) if finding.code in codes]


def told(program: Program, *codes: str, faults: Sequence[Any] = ()) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(each.code, each.message, each.places) for each in findings(program, *codes, faults=faults)]


# --- sums in PSUM ---------------------------------------------------------------------------------------------------

Span = tuple[int, int, int, int, int]
"""Of a tile of 4 partitions and 8 columns: partitions, columns and step of columns."""


@st.composite
def spans(draw: st.DrawFn) -> Span:
    first, low = draw(st.integers(0, 3)), draw(st.integers(0, 7))
    last, high = draw(st.integers(first + 1, 4)), draw(st.integers(low + 1, 8))
    return first, last, low, high, draw(st.integers(1, 3))


ACTS = ("start", "go on", "add", "read", "write", "transpose", "in place")


def expected(steps: Sequence[tuple[str, int, Span]]) -> set[tuple[int, int]]:
    """Pairs of a read and the matmul that goes on, element by element."""
    groups: dict[tuple[int, int, int], bool] = {}
    readers: dict[tuple[int, int, int], int] = {}
    found = set()
    for at, (act, tile, (first, last, low, high, step)) in enumerate(steps):
        places = [(tile, row, column) for row in range(first, last) for column in range(low, high, step)]
        if act in ("go on", "add"):
            since = [readers[place] for place in places if place in readers]
            if since:
                found.add((max(since), at))
        for place in places:
            if act in ("start", "go on", "add"):
                groups[place] = True
                readers.pop(place, None)
            elif act == "read":
                if groups.get(place):
                    readers.setdefault(place, at)
            else:
                groups[place] = False
                readers.pop(place, None)
    return found


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(ACTS), st.integers(0, 1), spans()), max_size=14))
def test_partial_reads_are_those_of_a_walk_over_elements(steps: list[tuple[str, int, Span]]) -> None:
    kernel = Kernel()
    tiles = [kernel.psum(4, 8), kernel.psum(4, 8)]
    left, right, out = kernel.sbuf(128, 4), kernel.sbuf(128, 8), kernel.sbuf(4, 8)
    number = {}
    for at, (act, tile, (first, last, low, high, step)) in enumerate(steps):
        view = tiles[tile][first:last, low:high:step]
        rows, columns = view.shape
        operands = left[:, 0:rows], right[:, 0:columns]
        given_ = {"start": False, "add": True, "go on": None}
        if act in given_:
            index = kernel.matmul(view, *operands, accumulate=given_[act])
        elif act == "transpose":
            index = kernel.matmul(view, *operands, is_transpose=True)
        elif act == "read":
            index = kernel.copy(out[0:rows, 0:columns], view)
        elif act == "write":
            index = kernel.call("memset", dst=view, value=0.0)
        else:
            index = kernel.call("tensor_scalar", dst=view, data=view, op0="add", operand0=1.0)
        number[at] = index
    found = {(each.read, each.after) for each in partial(kernel.program())}
    assert found == {(number[read], number[after]) for read, after in expected(steps)}


def summing(kernel: Kernel) -> tuple[View, View, View, View]:
    """A tile in PSUM, operands of a matmul, and a tile to copy to: of the lines 1 to 4."""
    return kernel.psum(128, 64), kernel.sbuf(128, 128), kernel.sbuf(128, 64), kernel.sbuf(128, 64)


def test_both_lines_of_a_partial_read_are_named() -> None:
    kernel = Kernel()
    total, left, right, out = summing(kernel)
    kernel.matmul(total, left, right, accumulate=False)
    kernel.copy(out, total)
    kernel.matmul(total, left, right, accumulate=True)
    assert told(kernel.program(), "NKR027") == [
        (
            "NKR027",
            "tensor_copy (kernel.py:6) reads PSUM that nc_matmul (kernel.py:5) has summed up to there, and nc_matmul "
            "(kernel.py:7) goes on with the sum",
            ("kernel.py:6", "kernel.py:7", "kernel.py:5"),
        )
    ]


@pytest.mark.parametrize(("inside", "count"), [(False, 1), (True, 0)])
def test_a_loop_goes_on_in_its_next_pass_unless_its_tile_is_new(inside: bool, count: int) -> None:
    kernel = Kernel()
    total, left, right, out = summing(kernel)
    if not inside:
        kernel.matmul(total, left, right, accumulate=False)
    with kernel.loop(3):
        kernel.matmul(total, left, right)
        kernel.copy(out, total)
    found = partial(kernel.program())
    assert [each.later for each in found] == [True] * count


def test_a_loop_of_one_pass_does_not_come_back() -> None:
    kernel = Kernel()
    total, left, right, out = summing(kernel)
    kernel.matmul(total, left, right, accumulate=False)
    with kernel.loop(1):
        kernel.matmul(total, left, right)
        kernel.copy(out, total)
    assert partial(kernel.program()) == ()


def test_columns_in_turns_are_no_one_place() -> None:
    kernel = Kernel()
    total, left, right, out = summing(kernel)
    even, odd = total[:, 0:64:2], total[:, 1:64:2]
    for accumulate in (False, True):
        kernel.matmul(odd, left, right[:, 0:32], accumulate=accumulate)
        if not accumulate:
            kernel.matmul(even, left, right[:, 0:32], accumulate=False)
            kernel.copy(out[:, 0:32], even)
    assert partial(kernel.program()) == ()


# --- scatters -------------------------------------------------------------------------------------------------------


def scattering(rows: list[int], values: NDArray[Any], held: int = 6, **fields: Any) -> tuple[Kernel, View]:
    """Rows of a tile sent to rows of an HBM tensor, in the last line; the tensor is not returned yet."""
    kernel = Kernel()
    index, src = kernel.load(np.array(rows, np.int32).reshape(-1, 1)), kernel.load(values)
    out = kernel.hbm(held, values.shape[1])
    kernel.copy(out, kernel.argument(np.zeros((held, values.shape[1]), np.float32)))
    picked = replace(out, pattern=((values.shape[1], len(rows)), (1, values.shape[1])))
    kernel.call("dma_copy", dst=kernel.indexed(picked, "vector", index, **fields), src=src)
    return kernel, out


SAME = np.array([[1, 2], [3, 4], [1, 2]], np.float32)
MIDDLE = (
    "dma_copy: indices of one call send different values to row {} of dst: which of them stays is not defined"
)


@pytest.mark.parametrize(
    ("rows", "values", "fields", "kind", "row"),
    [
        ([2, 1, 2], counted(3, 2), {}, "duplicate scatter", "2"),
        ([2, 2, 4, 4], counted(4, 2), {}, "duplicate scatter", "2 and 1 more"),
        ([5, 1, 5], counted(3, 2), {}, "duplicate scatter to a spare row", "5"),
        ([0, 1, 0], counted(3, 2), {}, "duplicate scatter to a spare row", "0"),
        ([2, 1, 2, 9], counted(4, 2), {"oob": "skip"}, "duplicate scatter", "2"),
        ([2, 1, 2], SAME, {}, "", ""),
        ([2, 1, 3], counted(3, 2), {}, "", ""),
        ([9, 1, 9], counted(3, 2), {"oob": "skip"}, "", ""),
    ],
)
def test_a_scatter_that_sends_different_values_to_one_row(
    rows: list[int], values: NDArray[Any], fields: dict[str, Any], kind: str, row: str
) -> None:
    kernel, out = scattering(rows, values, **fields)
    kernel.output(out)
    execution = kernel.run()
    expected = [(kind, f"{MIDDLE.format(row)} (kernel.py:{kernel.line})")] if kind else []
    assert [(fault.kind, fault.message) for fault in execution.faults] == expected
    found = findings(kernel.ran, "NKR028", faults=execution.faults)
    severity = Severity.minor if "spare" in kind else Severity.major
    assert [(each.severity, each.places) for each in found] == [
        (severity, (f"kernel.py:{kernel.line}",)) for _ in expected
    ]


@pytest.mark.parametrize("reads", [False, True])
def test_a_row_that_nobody_reads_does_not_matter(reads: bool) -> None:
    kernel, out = scattering([2, 1, 2], counted(3, 2))
    if reads:
        kernel.copy(kernel.sbuf(1, 2), out[1:2])
    kernel.store(kernel.load(counted(2, 2)))
    execution = kernel.run()
    assert len(execution.faults) == 1
    assert len(findings(kernel.ran, "NKR028", faults=execution.faults)) == reads


# --- schedules ------------------------------------------------------------------------------------------------------


def record(kernel: Callable[..., Any], lnc: int = 1) -> Program:
    """The Program of a kernel that takes an HBM tensor (128, 16)."""
    trace = Trace("trn2", Release.parse("0.6"), lnc)
    buffer = trace.buffer(Memory.shared_hbm, (128, 16), "float32", name="data")
    returned = launch.run_cores(trace, kernel, lambda: ([NkiTensor.whole(trace, buffer)], {}))
    outputs = tuple(launch.outputs(trace, returned, {}))
    header = Header("k", "trn2", "0.6", lnc, sources=tuple(trace.places.sources))
    return trace.builder.finish(header, outputs=outputs)


def chain(data: Any) -> Any:
    x, a, b, c = (nl.ndarray((128, 16), nl.float32, name=name) for name in ("x", "a", "b", "c"))
    nisa.dma_copy(dst=x, src=data, name="load")
    nisa.reciprocal(dst=a, data=x, name="recip")
    nisa.tensor_scalar(dst=b, data=x, op0=nl.add, operand0=1.0, name="plus1")
    nisa.tensor_tensor(dst=c, data1=a, data2=b, op=nl.add, name="sum")
    nisa.memset(dst=b, value=0.0, name="clear")
    out = nl.ndarray((128, 16), nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=c, name="store")
    return out


LINES = {
    name: chain.__code__.co_firstlineno + at
    for name, at in {"load": 2, "recip": 3, "plus1": 4, "sum": 5, "clear": 6, "store": 8}.items()
}


def place(name: str) -> str:
    return f"test_ordering.py:{LINES[name]}"


def names(program: Program) -> list[str]:
    return [instruction.name for instruction in program]


def scheduled(*pairs: tuple[str, Any]) -> Program:
    return record(jit(chain).with_schedule(list(pairs)).function)


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([], ["load", "recip", "plus1", "sum", "clear", "store"]),
        ([("recip", "plus1")], ["load", "plus1", "recip", "sum", "clear", "store"]),
        ([("clear", "store")], ["load", "recip", "plus1", "sum", "store", "clear"]),
        (
            [("clear", "store"), ("recip", ["plus1"])],
            ["load", "plus1", "recip", "sum", "store", "clear"],
        ),
    ],
)
def test_an_edge_against_the_program_order_is_kept_where_data_allow(
    pairs: list[tuple[str, Any]], expected: list[str]
) -> None:
    recorded = scheduled(*pairs)
    program = as_asked(recorded)
    assert names(program) == expected
    assert contradictions(recorded) == contradictions(program) == () == tuple(told(program, "NKR029"))
    for instruction in program:
        assert all(producer < instruction.index for producer in instruction.depends_on)
    waits = {
        (instruction.name, names(program)[producer])
        for instruction in program
        for producer in instruction.depends_on
    }
    assert waits == {
        (who, each) for who, whom in pairs for each in ([whom] if isinstance(whom, str) else whom)
    }
    data = np.arange(1, 2049, dtype=np.float32).reshape(128, 16)
    one, two = (execute(each, {0: data}).outputs[0].values for each in (recorded, program))
    np.testing.assert_array_equal(one, two)
    np.testing.assert_allclose(one, 1 / data.astype(np.float64) + data + 1, rtol=1e-6)


def called(name: str) -> str:
    return f"'{name}' ({place(name)})"


@pytest.mark.parametrize(
    ("pairs", "message", "lines"),
    [
        (
            [("plus1", "sum")],
            f"{called('plus1')} is asked to run after {called('sum')}, which reads the tensor b that 'plus1' writes",
            ("plus1", "sum"),
        ),
        (
            [("sum", "clear")],
            f"{called('sum')} is asked to run after {called('clear')}, which overwrites the tensor b that 'sum' reads",
            ("sum", "clear"),
        ),
        (
            [("recip", "store")],
            f"{called('recip')} is asked to run after {called('store')}, which has to run after 'recip' by way of "
            f"{called('sum')}",
            ("recip", "store", "sum"),
        ),
        (
            [("recip", "plus1"), ("plus1", "recip")],
            f"{called('recip')} is asked to run after {called('plus1')}, which is asked to run after 'recip'",
            ("recip", "plus1"),
        ),
    ],
)
def test_an_edge_against_the_data_names_both_lines(
    pairs: list[tuple[str, Any]], message: str, lines: Sequence[str]
) -> None:
    recorded = scheduled(*pairs)
    program = as_asked(recorded)
    assert names(program) == names(scheduled())
    for each in (recorded, program):
        assert told(each, "NKR029") == [("NKR029", message, tuple(place(name) for name in lines))]
    assert findings(program, "NKR029")[0].severity is Severity.blocker


def test_a_block_that_keeps_its_order_contradicts_an_edge() -> None:
    def kernel(data: Any) -> Any:
        with order.no_reorder():
            return chain(data)

    program = record(jit(kernel).with_schedule([("recip", "plus1")]).function)
    ((_, message, lines),) = told(as_asked(program), "NKR029")
    assert message.endswith("which is asked to run after 'recip'") and lines == (
        place("recip"),
        place("plus1"),
    )


def test_a_dependency_of_an_instruction_on_a_later_one() -> None:
    def kernel(data: Any) -> Any:
        a, b = (nl.ndarray((128, 16), nl.float32, name=name) for name in "ab")
        first = nisa.memset(dst=a, value=1.0)
        apart = nisa.memset(dst=b, value=1.0)
        last = nisa.tensor_tensor(dst=b, data1=a, data2=b, op=nl.add)
        first.depends_on(apart)
        apart.depends_on(last)

    program = as_asked(record(kernel))
    at = kernel.__code__.co_firstlineno
    assert next(instruction.place for instruction in program) == record(kernel).instruction(1).place
    assert told(program, "NKR029") == [
        (
            "NKR029",
            f"memset (test_ordering.py:{at + 3}) is asked to run after tensor_tensor (test_ordering.py:{at + 4}), "
            "which reads the tensor b that memset writes",
            (f"test_ordering.py:{at + 3}", f"test_ordering.py:{at + 4}"),
        )
    ]


def test_two_edges_that_contradict_each_other_through_the_data() -> None:
    def kernel(data: Any) -> Any:
        a, b, c, d = (nl.ndarray((128, 16), nl.float32, name=name) for name in "abcd")
        nisa.memset(dst=a, value=1.0, name="a")
        nisa.memset(dst=b, value=1.0, name="b")
        nisa.reciprocal(dst=c, data=a, name="c")
        nisa.reciprocal(dst=d, data=b, name="d")

    edges = [("a", "d"), ("b", "c")]
    for edge in edges:
        alone = as_asked(record(jit(kernel).with_schedule([edge]).function))
        assert names(alone) == (["b", "d", "a", "c"] if edge[0] == "a" else ["a", "c", "b", "d"])
        assert not told(alone, "NKR029")
    program = as_asked(record(jit(kernel).with_schedule(edges).function))
    at = kernel.__code__.co_firstlineno
    line = {name: f"test_ordering.py:{at + 2 + number}" for number, name in enumerate("abcd")}
    assert names(program) == ["a", "b", "c", "d"]
    assert sorted(told(program, "NKR029")) == [
        (
            "NKR029",
            f"'{who}' ({line[who]}) is asked to run after '{whom}' ({line[whom]}), which has to run after '{who}' by "
            f"way of '{first}' ({line[first]}) and '{second}' ({line[second]})",
            (line[who], line[whom], line[first], line[second]),
        )
        for who, whom, first, second in (("a", "d", "c", "b"), ("b", "c", "d", "a"))
    ]


# --- exchanges ------------------------------------------------------------------------------------------------------


def exchange(calls: Mapping[int, Sequence[Mapping[str, Any]]]) -> Kernel:
    """Calls of sendrecv on each core; src and dst are tiles of partitions, elements and dtype."""
    kernel = Kernel(lnc=2)
    for core in (0, 1):
        for call in calls[core]:
            sent, taken = call.get("sent", (4, 6, "float32")), call.get("taken", (4, 6, "float32"))
            src, dst = (kernel.sbuf(*shape, dtype=dtype) for *shape, dtype in (sent, taken))
            kernel.call(
                "sendrecv",
                src=src,
                dst=dst,
                send_to_rank=call.get("to", 1 - core),
                recv_from_rank=call.get("by", 1 - core),
                pipe_id=call.get("pipe", 0),
            )
        if core == 0:
            kernel.switch_core()
    return kernel


def wide(columns: int, dtype: str = "float32") -> dict[str, Any]:
    return {"sent": (4, columns, dtype), "taken": (4, columns, dtype)}


@pytest.mark.parametrize(
    ("calls", "messages"),
    [
        ({0: [{}], 1: [{}]}, []),
        ({0: [{"to": 0, "by": 0}], 1: [{"to": 1, "by": 1}]}, []),
        (
            {0: [wide(6)], 1: [wide(3)]},
            [
                "core 0 sends 4 partitions of 6 float32 (kernel.py:3), and core 1 takes 4 partitions of 3 float32 "
                "(kernel.py:6)",
                "core 1 sends 4 partitions of 3 float32 (kernel.py:6), and core 0 takes 4 partitions of 6 float32 "
                "(kernel.py:3)",
            ],
        ),
        (
            {0: [{"sent": (4, 6, "bfloat16")}], 1: [{}]},
            [
                "core 0 sends 4 partitions of 6 bfloat16 (kernel.py:3), and core 1 takes 4 partitions of 6 float32 "
                "(kernel.py:6)",
            ],
        ),
        (
            {0: [{"taken": (8, 3, "float32")}], 1: [{}]},
            [
                "core 1 sends 4 partitions of 6 float32 (kernel.py:6), and core 0 takes 8 partitions of 3 float32 "
                "(kernel.py:3)",
            ],
        ),
        (
            {0: [{}], 1: [{"by": 1}]},
            ["core 0 sends to core 1 (kernel.py:3), which receives from core 1 (kernel.py:6)"],
        ),
        (
            {0: [{}], 1: [{"to": 1}]},
            ["core 0 receives from core 1 (kernel.py:3), which sends to core 1 (kernel.py:6)"],
        ),
        # the second exchange is the one that does not fit, and a third is of one core only
        (
            {0: [{}, wide(6), {}], 1: [{}, wide(5)]},
            [
                "core 0 sends 4 partitions of 6 float32 (kernel.py:6), and core 1 takes 4 partitions of 5 float32 "
                "(kernel.py:15)",
                "core 1 sends 4 partitions of 5 float32 (kernel.py:15), and core 0 takes 4 partitions of 6 float32 "
                "(kernel.py:6)",
            ],
        ),
        # another pipe is another exchange
        ({0: [wide(6) | {"pipe": 1}], 1: [wide(5)]}, []),
    ],
)
def test_exchanges_that_do_not_match(
    calls: Mapping[int, Sequence[Mapping[str, Any]]], messages: list[str]
) -> None:
    program = exchange(calls).program()
    found = told(program, "NKR034")
    assert sorted(message for _, message, _ in found) == messages
    for _, message, lines in found:
        assert lines and all(line in message for line in lines)


def test_an_exchange_that_does_not_match_is_told_of_once() -> None:
    kernel = exchange({0: [wide(6)], 1: [wide(3)]})
    for core in (0, 1):
        kernel.core = core
    execution = kernel.run()
    assert {fault.kind for fault in execution.faults} == {"no meaning"}
    codes = {
        each.code for each in findings(kernel.ran, "NKR013", "NKR015", "NKR034", faults=execution.faults)
    }
    assert codes == {"NKR034"} and len(unpaired(kernel.ran, ROWS)) == 2


def test_an_exchange_in_a_loop_of_both_cores() -> None:
    kernel = Kernel(lnc=2)
    for core in (0, 1):
        columns = 6 - core
        src, dst = kernel.sbuf(4, columns), kernel.sbuf(4, columns)
        with kernel.loop(3):
            kernel.call(
                "sendrecv", src=src, dst=dst, send_to_rank=1 - core, recv_from_rank=1 - core, pipe_id=0
            )
        if core == 0:
            kernel.switch_core()
    assert [each.sent for each in unpaired(kernel.program(), ROWS)] == [(4, 6, "float32"), (4, 5, "float32")]


# --- names that a legacy loop rebinds -------------------------------------------------------------------------------

HEAD = """
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    acc = nl.zeros((128, 64), dtype=nl.float32)
    at = nl.arange(4)
"""


@pytest.mark.parametrize(
    ("loop", "body", "found"),
    [
        ("affine", "t = nl.load(x[i])\nacc = nl.add(acc, t)", 14),
        ("affine", "acc = acc + nl.load(x[i])", 13),
        ("affine", "t = nl.maximum(acc, nl.load(x[i]))\nnl.store(out, t)\nacc = t", 15),
        ("affine", "for j in nl.sequential_range(2):\n    acc = nl.add(acc, nl.load(x[j]))", 14),
        ("affine", "if i > 0:\n    acc = nl.add(acc, nl.load(x[i]))", 14),
        ("sequential", "acc = nl.add(acc, nl.load(x[i]))", 0),
        ("static", "acc = nl.add(acc, nl.load(x[i]))", 0),
        ("affine", "acc += nl.load(x[i])", 0),
        ("affine", "acc = nl.loop_reduce(acc + x[i], op=nl.add, loop_indices=[i])", 0),
        ("affine", "acc = nl.load(x[i])\nacc = nl.add(acc, 1.0)", 0),
        ("affine", "acc = nl.copy(acc, dtype=nl.bfloat16)\nnl.store(out, acc)", 0),
        ("affine", "nl.store(out, nl.add(acc, nl.load(x[i])))", 0),
        ("affine", "at = at + 1", 0),
    ],
)
def test_a_name_that_carries_a_tile_from_one_iteration_to_the_next(
    tmp_path: Path, loop: str, body: str, found: int
) -> None:
    text = f"for i in nl.{loop}_range(4):\n{textwrap.indent(body, '    ')}"
    path = tmp_path / "kernel.py"
    path.write_text(f"{HEAD}{textwrap.indent(text, '    ')}\n    nl.store(out, acc)\n    return out\n")
    source = read_source(path)
    assert [(each.name, each.line, each.written) for each in rebound(source, "kernel")] == (
        [("acc", 12, found)] if found else []
    )
    facts = Facts("kernel", source=source, release=LEGACY, target="trn2")
    races = [(each.message, each.places) for each in judge(facts) if each.code == "NKR050"]
    sentence = f"every iteration of the affine_range of line 12 reads and writes acc (kernel.py:{found})"
    assert races == ([(sentence, (f"kernel.py:{found}", "kernel.py:12"))] if found else [])
