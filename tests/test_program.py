"""The Program contract: a test for each field, save and load, and every refusal's sentence."""

from __future__ import annotations

import io
import json
import math
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nkireview.isa.enums import DgeMode, Engine, Memory
from nkireview.program.access import Access, Bound, Index
from nkireview.program.builder import ProgramBuilder
from nkireview.program.codec import META, load, save
from nkireview.program.columns import COLUMN_NAMES
from nkireview.program.errors import ProgramError
from nkireview.program.model import Event, Frame, Header, Limits, Loop, Output, Source, Stream
from nkireview.program.program import Program
from nkireview.program.tree import EnumLeaf, Group, ScalarLeaf, TensorLeaf, from_json, leaves, to_json

HEADER = Header(
    kernel="k",
    target="trn2",
    release="0.6",
    lnc=2,
    grid=(2,),
    scalars=(("eps", 1e-6), ("scale", math.inf), ("name", "a"), ("flag", True), ("none", None)),
    sources=(Source("kernel.py", "ab" * 32), Source("helper.py", "cd" * 32)),
)
PARAMETERS = Group(
    "tuple",
    ("0", "1"),
    (
        Group("list", ("0",), (TensorLeaf(0),)),
        Group(
            "dict",
            ("eps", "mode", "cfg"),
            (
                ScalarLeaf(1e-6),
                EnumLeaf("m:Mode", "fast"),
                Group("object", ("w", "n"), (ScalarLeaf(None), ScalarLeaf(math.nan)), "m:Config"),
            ),
        ),
    ),
)


def build() -> Program:
    """A small program that uses every field of the contract."""
    builder = ProgramBuilder()
    place = builder.place((Frame(1, 7, "helper"), Frame(0, 12, "k")))
    x = builder.buffer(memory=Memory.shared_hbm, shape=(4, 8), dtype="float32", name="x")
    digest = builder.constant(np.arange(6, dtype=np.int64).reshape(2, 3))
    const = builder.buffer(
        memory=Memory.hbm, shape=(2, 3), dtype="int32", core=0, constant=digest, place=place
    )
    t = builder.buffer(
        memory=Memory.sbuf, shape=(4, 8), dtype="bfloat16", address=(32, 4096), core=0, name="t", place=place
    )
    p = builder.buffer(memory=Memory.psum, shape=(4, 8), dtype="float32", core=1)
    source = builder.access(Access(x.id, "float32", 3, ((8, 4), (2, 4), (0, 3))))
    tile = builder.access(Access(t.id, "bfloat16", 0, ((8, 4), (1, 8)), partition=0))
    bank = builder.access(Access(p.id, "float32", 0, ((8, 4), (1, 8)), partition=0))
    bounded = builder.access(Access(x.id, "float32", 0, ((8, 4),), bounds=(Bound((-1,), 2),)))
    indexed = builder.access(Access(x.id, "float32", 0, ((8, 4),), index=Index("vector", tile, 0, 8, "skip")))
    tabled = builder.access(Access(x.id, "float32", 0, ((0, 2), (0, 3)), table=digest))
    with builder.stream(0):
        first = builder.append(
            "dma_copy", ("dst", "src"), [tile, source], {"priority": None}, place=place, dge=DgeMode.swdge
        )
        loop, start = builder.open_loop()
        second = builder.append(
            "tensor_scalar",
            ("dst", "data", "operand0", "operand1"),
            [tile, tile, -1, -1],
            {"op0": "multiply", "operand0": -0.0, "pattern": ((1, 2), (3, 4)), "flag": True},
            engine=Engine.vector,
            name="scale it",
        )
        builder.close_loop(loop, Loop("for", start, len(builder), 5, 0, ("register", 3), 2, place=place))
        builder.depend(second, [first])
    with builder.stream(1):
        builder.append("copy3", ("a", "b", "c", "d"), [bank, bounded, indexed, tabled], {"one": 1, "flag": 1})
    builder.event("truth", place, "the truth of tensor x")
    builder.event("truth", place, "the truth of tensor x")
    assert const.constant == digest
    return builder.finish(HEADER, PARAMETERS, (Output(source, "x", "out0"), Output(bank)))


def test_header_survives_a_round_trip() -> None:
    assert load(save(build())).header == HEADER


def test_parameters_survive_a_round_trip() -> None:
    back = load(save(build())).parameters
    assert [path for path, _ in leaves(back)] == ["0.0", "1.eps", "1.mode", "1.cfg.w", "1.cfg.n"]
    found = dict(leaves(back))
    assert found["0.0"] == TensorLeaf(0) and found["1.mode"] == EnumLeaf("m:Mode", "fast")
    assert math.isnan(found["1.cfg.n"].value) and found["1.cfg.w"].value is None
    assert load(save(build())).parameter_buffers == (("0.0", 0),)


def test_instructions_survive_a_round_trip() -> None:
    program = load(save(build()))
    first, second, third = program
    assert (first.opcode, first.dge, first.place, first.depends_on) == ("dma_copy", DgeMode.swdge, 0, ())
    assert first.operands["src"] == Access(0, "float32", 3, ((8, 4), (2, 4), (0, 3)))
    assert second.operands["operand0"] is None and second.engine is Engine.vector
    assert (second.name, second.depends_on, second.index) == ("scale it", (0,), 1)
    zero = second.immediates["operand0"]
    assert zero == 0 and math.copysign(1, zero) == -1
    assert second.immediates["pattern"] == ((1, 2), (3, 4)) and second.immediates["flag"] is True
    assert third.immediates["flag"] == 1 and third.immediates["flag"] is not True


def test_accesses_keep_bounds_index_and_table() -> None:
    third = load(save(build())).instruction(2)
    assert third.operands["b"].bounds == (Bound((-1,), 2),)
    assert third.operands["c"].index == Index("vector", 1, 0, 8, "skip")
    table = third.operands["d"].table
    assert load(save(build())).constants[table].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_buffers_survive_a_round_trip() -> None:
    program = load(save(build()))
    buffers = [program.buffer(index) for index in range(program.columns.buffers)]
    assert [b.memory for b in buffers] == [Memory.shared_hbm, Memory.hbm, Memory.sbuf, Memory.psum]
    assert [b.shape for b in buffers] == [(4, 8), (2, 3), (4, 8), (4, 8)]
    assert [b.dtype for b in buffers] == ["float32", "int32", "bfloat16", "float32"]
    assert [b.core for b in buffers] == [None, 0, 0, 1]
    assert [b.address for b in buffers] == [None, None, (32, 4096), None]
    assert [b.name for b in buffers] == ["x", "", "t", ""]
    assert buffers[1].constant in program.constants


def test_streams_loops_events_and_outputs_survive_a_round_trip() -> None:
    program = load(save(build()))
    assert program.streams == (Stream(0, 0, 0, 2), Stream(1, 0, 2, 3))
    assert program.loops == (Loop("for", 1, 2, 5, 0, ("register", 3), 2, place=0),)
    assert program.events == (Event("truth", 0, "the truth of tensor x"),)
    assert program.outputs == (Output(0, "x", "out0"), Output(2, None, "out"))
    assert program.place_text(0) == "helper.py:7" and program.place_text(-1) == ""


def test_saving_is_deterministic() -> None:
    assert save(build()) == save(build())


def test_accesses_are_interned() -> None:
    builder = ProgramBuilder()
    builder.buffer(memory=Memory.hbm, shape=(4,), dtype="float32")
    assert builder.access(Access(0, "float32", 0, ((1, 4),))) == builder.access(
        Access(0, "float32", 0, ((1, 4),))
    )


def test_access_geometry() -> None:
    access = Access(0, "float32", 10, ((100, 3), (-2, 4), (0, 5)), partition=0)
    assert (access.shape, access.size, access.partitions, access.free) == ((3, 4, 5), 60, 3, 20)
    assert access.extent == (4, 210)
    assert Access(0, "float32", 0, ((8, 4), (1, 8))).partitions == 1


@pytest.mark.parametrize(
    ("lower", "upper", "step", "trips"),
    [(0, 10, 1, 10), (0, 10, 3, 4), (5, 5, 1, 0), (7, 5, 1, 0), (0, ("register", 1), 1, None)],
)
def test_loop_trips(lower: int, upper: int, step: int, trips: int | None) -> None:
    assert Loop("for", 0, 1, 0, lower, upper, step).trips == trips


def test_while_loops_have_no_static_trips() -> None:
    assert Loop("while", 0, 1, 0).trips is None


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Loop("until", 0, 1, 0), "loop kind 'until' is not one of for, while"),
        (lambda: Loop("for", 0, 1, 0, step=0), "loop step 0 must be a positive integer"),
        (lambda: Event("seen", 0, ""), "event kind 'seen' is not one of truth, stub"),
        (lambda: Index("table", 0, 0, 1), "index kind 'table' is not one of register, scalar, vector"),
        (lambda: Index("vector", 0, 0, 1, "wrap"), "out-of-bounds mode 'wrap' is not one of error, skip"),
        (lambda: Group("set", (), ()), "parameter group 'set' is not one of list, tuple, dict, object"),
        (lambda: Group("list", ("0",), ()), "a list of 0 items has 1 keys"),
    ],
)
def test_records_refuse_what_they_cannot_be(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]


def _edit(program: Program, **changes: object) -> Program:
    columns = {key: changes.pop(key) for key in list(changes) if key in COLUMN_NAMES}
    return replace(program, columns=replace(program.columns, **columns), **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"opcode": np.array([0, 1, 9], np.int32)}, "column opcode holds a value outside"),
        ({"operand": np.full(10, 99, np.int32)}, "column operand holds a value outside"),
        ({"place": np.array([0, 0], np.int32)}, "column place has 2 rows, expected 3"),
        ({"operand_at": np.array([0, 2, 1, 10], np.int64)}, "column operand_at must rise"),
        ({"operand_at": np.array([0, 3, 6, 10], np.int64)}, "another number of operands than its row"),
        ({"opcode": np.array([0, 1, 2], np.int64)}, "column opcode must be a vector of int32"),
        (
            {"access_buffer": np.array([0, 2, 3, 0, 0, 4], np.int32)},
            "column access_buffer holds a value outside",
        ),
        ({"access_partition": np.array([5, 0, 0, -1, -1, -1], np.int8)}, "names an axis that is not there"),
        ({"streams": (Stream(0, 0, 0, 2),)}, "streams hold 2 instructions, the columns 3"),
        ({"streams": (Stream(0, 0, 1, 3),)}, "starts at 1, expected 0"),
        ({"streams": (Stream(7, 0, 0, 3),)}, "stream names core 7 of 2"),
        ({"loops": (Loop("for", 2, 9, 0),)}, r"loop 0 \[2, 9\) is not inside its parent"),
        ({"loops": (Loop("for", 0, 1, 0, parent=0),)}, "loop 0 .* is not inside its parent"),
        ({"outputs": (Output(77),)}, "an output names access 77 of 6"),
        ({"parameters": TensorLeaf(44)}, "names buffer 44 of 4"),
        ({"events": (Event("note", 12, ""),)}, "an event names place 12 of 1"),
        ({"places": ((Frame(8, 1, "f"),),)}, "a place names source 8 of 2"),
        ({"buffer_constants": {1: "nowhere"}}, "buffer 1 uses the unknown constant nowhere"),
    ],
)
def test_a_malformed_program_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        _edit(build(), **changes)


def _forge(edit: object) -> bytes:
    with zipfile.ZipFile(io.BytesIO(save(build()))) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    edit(members)  # type: ignore[operator]
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return target.getvalue()


def _meta(**changes: object) -> object:
    def edit(members: dict[str, bytes]) -> None:
        meta = json.loads(members[META])
        meta.update(changes)
        members[META] = json.dumps(meta).encode()

    return edit


def test_loading_refuses_what_is_not_a_program() -> None:
    for data in (b"", b"not a zip", save(build())[:-40]):
        with pytest.raises(ProgramError, match="the program is malformed"):
            load(data)


def test_loading_refuses_compressed_members() -> None:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(META, "{}" * 1000)
    with pytest.raises(ProgramError, match="compressed or larger than the program"):
        load(target.getvalue())


def test_loading_refuses_a_column_that_claims_a_billion_rows() -> None:
    def edit(members: dict[str, bytes]) -> None:
        member = io.BytesIO()
        header = {"descr": "<i4", "fortran_order": False, "shape": (10**9,)}
        np.lib.format.write_array_header_1_0(member, header)
        members["opcode.npy"] = member.getvalue()

    with pytest.raises(ProgramError, match="the program is malformed"):
        load(_forge(edit))


def test_loading_refuses_pickles() -> None:
    def edit(members: dict[str, bytes]) -> None:
        member = io.BytesIO()
        np.lib.format.write_array(member, np.array([{}], dtype=object), allow_pickle=True)
        members["opcode.npy"] = member.getvalue()

    with pytest.raises(ProgramError, match="the program is malformed"):
        load(_forge(edit))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"streams": [[0, 0, 0, True]]}, "a bool stands where an integer belongs"),
        ({"dtypes": ["float32", "float64", "int32"]}, "float64"),
        ({"strings": [1, 2, 3, 4]}, "a int stands where a string belongs"),
        ({"immediates": [1, 2, 3]}, "the immediates of an instruction are no table"),
        ({"parameters": {"x": 1}}, r"a parameter node has the keys \['x'\]"),
        ({"constants": [["d", "float32", [10**9]]]}, "constant 0 has not the bytes its shape asks for"),
    ],
)
def test_loading_refuses_forged_tables(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        load(_forge(_meta(**changes)))


def test_loading_refuses_another_schema() -> None:
    def edit(members: dict[str, bytes]) -> None:
        meta = json.loads(members[META])
        meta["header"]["schema"] = 99
        members[META] = json.dumps(meta).encode()

    with pytest.raises(ProgramError, match="has schema 99, this version reads 2"):
        load(_forge(edit))


def test_loading_refuses_a_huge_buffer_before_it_is_allocated() -> None:
    builder = ProgramBuilder()
    builder.buffer(memory=Memory.hbm, shape=(2**20, 2**20), dtype="float32")
    with builder.stream():
        pass
    with pytest.raises(ProgramError, match="bytes of buffer 0, more than"):
        load(save(builder.finish(replace(HEADER, lnc=1))))


@pytest.mark.parametrize("table", ["instructions", "accesses", "buffers", "operands", "places", "events"])
def test_loading_checks_each_limit(table: str) -> None:
    with pytest.raises(ProgramError, match=f"the program has [0-9]+ {table}, more than 0"):
        load(save(build()), replace(Limits(), **{table: 0}))


def test_building_stops_at_the_limit() -> None:
    builder = ProgramBuilder(replace(Limits(), instructions=2))
    with pytest.raises(ProgramError, match="more than 2 instructions"), builder.stream():
        for _ in range(3):
            builder.append("memset", ("dst",), [-1], {})


scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**31), 2**31), st.floats(allow_nan=False), st.text(max_size=5)
)
nodes = st.recursive(
    st.one_of(scalars.map(ScalarLeaf), st.integers(0, 9).map(TensorLeaf)),
    lambda inner: st.lists(st.tuples(st.text(min_size=1, max_size=3), inner), max_size=3).map(
        lambda pairs: Group("dict", tuple(k for k, _ in pairs), tuple(v for _, v in pairs))
    ),
    max_leaves=8,
)


@given(nodes)
def test_parameter_trees_round_trip_through_json(node: object) -> None:
    assert from_json(json.loads(json.dumps(to_json(node)))) == node  # type: ignore[arg-type]
