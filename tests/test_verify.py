"""verify: each rule at its bound and beyond, its sentence, and how occurrences are grouped."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from execute_kit import Kernel, View
from hypothesis import given, settings
from hypothesis import strategies as st

from nkireview.hardware import target
from nkireview.isa.enums import DgeMode, Engine, Memory
from nkireview.isa.limit import AtMost
from nkireview.isa.release import Release, Span
from nkireview.isa.row import Cost, Engines, Flow, Operand, Param, Role, Row
from nkireview.isa.table import ROWS
from nkireview.program.access import Access, Bound, Index
from nkireview.program.errors import ProgramError
from nkireview.program.footprint import Form, ranges
from nkireview.program.interning import intern, members
from nkireview.program.loops import nests
from nkireview.program.model import Loop, Output, Stream
from nkireview.program.placement import merge, unaligned
from nkireview.program.program import Program
from nkireview.program.tree import Group
from nkireview.program.verify import Violation, verify

ON_CHIP = frozenset({Memory.sbuf, Memory.psum})
HBM = frozenset({Memory.hbm, Memory.shared_hbm})
EVERYWHERE = frozenset({"v2", "v3", "v4"})


def make_row(name: str = "mix", **changes: Any) -> Row:
    """A row of our own that states no limit itself."""
    fields: dict[str, Any] = {
        "name": name,
        "signature": (
            Param("dst"),
            Param("src"),
            Param("by", None),
            Param("op"),
            Param("mode", Engine.unknown),
            Param("late", 0, Span(since=Release(0, 4))),
            Param("engine", Engine.unknown, Span(since=Release(0, 3))),
        ),
        "operands": (
            Operand("dst", Role.write, ON_CHIP),
            Operand("src", Role.read, ON_CHIP, dtypes=frozenset({"float32", "bfloat16", "float8_e5m2_x4"})),
            Operand("by", Role.read, ON_CHIP, optional=True, number=True),
        ),
        "engines": Engines(
            Engine.vector, {Engine.vector: EVERYWHERE, Engine.scalar: frozenset({"v3", "v4"})}
        ),
        "meaning": lambda reader: {"dst": reader.value("src")},
        "flow": {"dst": Flow.elementwise},
        "cost": Cost("dst", 1.0),
        "source": "guide.rst:1",
        **changes,
    }
    return Row(**fields)


def check(
    kernel: Kernel, rows: Mapping[str, Row] = ROWS, release: str = "0.6", **header: Any
) -> tuple[Violation, ...]:
    program = kernel.program()
    return verify(replace(program, header=replace(program.header, release=release, **header)), rows)


def one(kernel: Kernel, rows: Mapping[str, Row] = ROWS, release: str = "0.6", **header: Any) -> Violation:
    found = check(kernel, rows, release, **header)
    assert len(found) == 1, [violation.message for violation in found]
    return found[0]


def mixed(kernel: Kernel, **given: Any) -> int:
    """A call of the row of our own on two tiles."""
    for name in ("dst", "src"):
        if name not in given:
            given[name] = kernel.sbuf(128, 8)
    return kernel.call("mix", **{"op": "add", **given})


def text(violation: Violation) -> str:
    """The message without target and place."""
    return violation.message.rpartition(" on ")[0]


def mixing(target: str = "trn2", **changes: Any) -> Kernel:
    return Kernel(target, rows={**ROWS, "mix": make_row(**changes)})


def test_a_legal_kernel_has_no_violation() -> None:
    kernel = Kernel()
    tile = kernel.load(np.zeros((128, 512), np.float32))
    result = kernel.psum(128, 512)
    stationary = kernel.load(np.zeros((128, 128), np.float32))
    kernel.matmul(result, stationary, tile)
    out = kernel.sbuf(128, 512)
    kernel.call("tensor_copy", dst=out, src=result)
    kernel.store(out)
    assert check(kernel) == ()


def test_an_empty_program_has_no_violation() -> None:
    assert check(Kernel()) == ()


def wide_matmul(count: int = 1) -> Kernel:
    kernel = Kernel()
    dst, left, right = kernel.psum(128, 1024), kernel.sbuf(128, 128), kernel.sbuf(128, 1024)
    for _ in range(count):
        kernel.matmul(dst, left, right)
    return kernel


def test_the_sentence_of_a_limit() -> None:
    found = {violation.number: violation for violation in check(wide_matmul())}
    assert found[71].message == "nc_matmul: moving free size 1024 exceeds 512 on trn2 (kernel.py:4)"
    assert found[71] == replace(
        found[71],
        row="nc_matmul",
        subject="moving.free",
        instructions=(0,),
        blocking=False,
        unsupported=False,
    )
    assert "nki/api/nki/isa/__init__.py" in found[71].source
    assert found[13].message == (
        "nc_matmul: dst spans PSUM banks 0 to 1, a matmul result must lie in one bank of 2048 bytes "
        "on trn2 (kernel.py:4)"
    )


def test_one_breach_at_one_place_is_one_violation() -> None:
    kernel = Kernel()
    small, wide = kernel.sbuf(128, 8), kernel.sbuf(128, 16)
    place = kernel.place()
    for src in (small, wide, small, wide, wide):
        kernel._open()
        ids = [kernel.builder.access(view.access) for view in (small, src)]
        kernel.builder.append("tensor_copy", ("dst", "src"), ids, {}, place=place)
    violation = one(kernel)
    assert violation.instructions == (1, 3, 4)
    assert (
        violation.message
        == "tensor_copy: dst free size 8 differs from src free size 16 on trn2 (kernel.py:3)"
    )
    assert violation.blocking


def test_the_same_breach_at_two_places_is_two_violations() -> None:
    places = {(violation.number, violation.place) for violation in check(wide_matmul(2))}
    assert len(places) == len(check(wide_matmul(2))) == 4


def test_a_release_and_a_target_decide() -> None:
    kernel = wide_matmul()
    kernel.target = "trn3"
    assert check(kernel) == ()


def test_matmuls_that_differ_in_their_bank_only_are_told_apart() -> None:
    kernel = Kernel()
    dst, left, right = kernel.psum(128, 2048), kernel.sbuf(128, 128), kernel.sbuf(128, 512)
    for begin in (0, 512, 256, 1024, 1300):
        kernel.matmul(dst[:, begin : begin + 512], left, right)
    found = check(kernel)
    assert [(violation.number, violation.instructions) for violation in found] == [(13, (2,)), (13, (4,))]
    assert "PSUM banks 0 to 1" in found[0].message and "PSUM banks 2 to 3" in found[1].message


def test_a_bank_is_counted_from_an_explicit_address() -> None:
    kernel = Kernel()
    left, right = kernel.sbuf(128, 128), kernel.sbuf(128, 256)
    dst = kernel.psum(128, 512, address=(0, 3 * 2048))
    kernel.matmul(dst[:, 256:], left, right)
    assert check(kernel) == ()


@pytest.mark.parametrize(
    ("header", "sentence"),
    [
        ({"target": "trn9"}, "the program's header: unknown target 'trn9'"),
        ({"release": "0.9"}, "the program's header: unknown NKI release '0.9'"),
    ],
)
def test_an_unknown_header_is_refused(header: dict[str, str], sentence: str) -> None:
    program = Kernel().program()
    with pytest.raises(ProgramError, match=sentence):
        verify(replace(program, header=replace(program.header, **header)))


def test_an_unknown_dtype_is_refused() -> None:
    kernel = Kernel()
    kernel.builder.buffer(memory=Memory.sbuf, shape=(1, 1), dtype="float7")
    with pytest.raises(ProgramError, match="the program has the unknown dtype 'float7'"):
        check(kernel)


def test_an_alias_of_a_target_is_known() -> None:
    kernel = wide_matmul()
    kernel.target = "inf2"
    assert any("exceeds 512 on inf2" in violation.message for violation in check(kernel))


def test_an_instruction_without_a_row() -> None:
    kernel = Kernel()
    tile = kernel.sbuf(128, 8)
    for name in ("local_gather", "frobnicate", "local_gather"):
        kernel.raw(name, {"dst": tile.access})
    rows = {name: row for name, row in ROWS.items() if name != "local_gather"}
    first, second, third = check(kernel, rows)
    assert first.message == "local_gather: not yet supported on trn2 (kernel.py:2)"
    assert second.message == "frobnicate: no such instruction in nki.isa on trn2 (kernel.py:3)"
    assert (first.unsupported, second.unsupported, third.unsupported) == (True, False, True)
    assert first.blocking and second.blocking and second.subject == "row.unknown"


def test_operands_must_be_those_of_the_row() -> None:
    kernel = Kernel()
    tile = kernel.sbuf(128, 8)
    kernel.raw("tensor_copy", {"dst": tile.access, "source": tile.access})
    violation = one(kernel)
    assert violation.message == "tensor_copy: unknown operand source, expected dst, src on trn2 (kernel.py:2)"
    assert violation.blocking


def test_an_operand_named_twice() -> None:
    kernel = Kernel()
    tile = kernel.builder.access(kernel.sbuf(128, 8).access)
    kernel._open()
    kernel.builder.append("tensor_copy", ("dst", "src", "src"), [tile, tile, tile], {})
    assert one(kernel).message == "tensor_copy: an operand is named twice, expected dst, src on trn2"


@pytest.mark.parametrize(
    ("given", "number", "message", "blocking"),
    [
        ({"src": None}, 0, "mix: src is missing", True),
        ({"op": None}, 0, "mix: op is missing", True),
        ({"src": None, "immediates": {"src": 1.0}}, 0, "mix: src must be a tile, got 1.0", True),
        ({"by": "half"}, 0, "mix: by must be a tile or a number, got 'half'", True),
        ({"immediates": {"src": 2}}, 0, "mix: src is both a tile and 2", True),
        (
            {"extra": 1},
            98,
            "mix: extra is no parameter, expected one of dst, src, by, op, mode, late, engine",
            True,
        ),
        (
            {"engine": Engine.gpsimd},
            49,
            "mix: engine gpsimd is not allowed, expected vector or scalar",
            False,
        ),
        ({"dge": DgeMode.hwdge}, 0, "mix: dge_mode is no parameter", True),
    ],
)
def test_a_call_must_fit_its_row(given: dict[str, Any], number: int, message: str, blocking: bool) -> None:
    kernel = mixing()
    given = dict(given)
    immediates = {"op": given.pop("op", "add"), **given.pop("immediates", {})}
    immediates = {name: value for name, value in immediates.items() if value is not None}
    engine, dge = given.pop("engine", Engine.unknown), given.pop("dge", DgeMode.unknown)
    dst, src = kernel.sbuf(128, 8), given.pop("src", kernel.sbuf(128, 8))
    ids = [-1 if view is None else kernel.builder.access(view.access) for view in (dst, src, None)]
    kernel._open()
    kernel.builder.append(
        "mix",
        ("dst", "src", "by"),
        ids,
        {**immediates, **given},
        place=kernel.place(),
        engine=engine,
        dge=dge,
    )
    violation = one(kernel, kernel.rows)
    assert violation.message == f"{message} on trn2 (kernel.py:3)"
    assert (violation.number, violation.blocking) == (number, blocking)


@pytest.mark.parametrize("by", [None, 2, 0.5, True, ("register", 3)])
def test_a_number_or_a_register_may_stand_in_place_of_a_tile(by: Any) -> None:
    kernel = mixing()
    mixed(kernel, by=by, mode="unknown", late=0)
    assert check(kernel, kernel.rows) == ()


def test_parameters_have_releases() -> None:
    kernel = mixing()
    mixed(kernel, late=1, engine=Engine.scalar)
    assert check(kernel, kernel.rows) == ()
    found = check(kernel, kernel.rows, "0.2")
    assert [text(violation) for violation in found] == [
        "mix: parameter late exists since NKI 0.4, not in NKI 0.2",
        "mix: parameter engine exists since NKI 0.3, not in NKI 0.2",
    ]
    assert {violation.number for violation in found} == {98}


def test_a_parameter_of_another_release_is_refused_at_its_default_too() -> None:
    kernel = mixing()
    mixed(kernel, late=0, mode="unknown")
    found = check(kernel, kernel.rows, "0.2")
    assert [text(violation) for violation in found] == [
        "mix: parameter late exists since NKI 0.4, not in NKI 0.2"
    ]
    mixed(kernel := mixing(), mode="unknown")
    assert check(kernel, kernel.rows, "0.2") == ()


def test_a_row_has_generations_and_releases() -> None:
    kernel = mixing(generations=frozenset({"v4"}), releases=Span(Release(0, 3), Release(0, 5)))
    mixed(kernel)
    assert [(violation.number, violation.message) for violation in check(kernel, kernel.rows)] == [
        (51, "mix: needs NeuronCore-v4, not v3 on trn2 (kernel.py:3)"),
        (0, "mix: exists since NKI 0.3 and before NKI 0.5, not in NKI 0.6 on trn2 (kernel.py:3)"),
    ]
    assert check(kernel, kernel.rows, "0.4", target="trn3") == ()


def test_an_engine_has_generations() -> None:
    for name, wrong in (("trn1", True), ("trn2", False)):
        kernel = mixing(name)
        mixed(kernel, engine=Engine.scalar)
        found = [violation.message for violation in check(kernel, kernel.rows)]
        assert found == (
            ["mix: engine scalar is not allowed, expected vector on trn1 (kernel.py:3)"] if wrong else []
        )


def test_memories_and_dtypes_of_an_operand() -> None:
    kernel = mixing()
    mixed(kernel, src=kernel.hbm(128, 8, dtype="int32"))
    memory, dtype = check(kernel, kernel.rows)
    assert text(memory) == "mix: src is in shared_hbm, expected SBUF or PSUM"
    expected = "bfloat16, float32, float8_e5m2_x4"
    assert text(dtype) == f"mix: src dtype int32 is not allowed, expected one of {expected}"
    assert (memory.number, memory.blocking, dtype.blocking) == (24, False, False)


def test_a_memory_of_hbm_is_named_once() -> None:
    kernel = Kernel()
    kernel.copy(kernel.hbm(128, 8), kernel.sbuf(128, 8))
    kernel.call("dma_copy", dst=kernel.psum(128, 8), src=kernel.sbuf(128, 8))
    assert one(kernel).message == "dma_copy: dst is in PSUM, expected HBM or SBUF on trn2 (kernel.py:6)"


def test_a_limit_that_cannot_read_an_immediate_is_a_violation() -> None:
    limit = AtMost(number=65, source="s", subject="src.free", bound=lambda call: call.imm("op") + 1)
    kernel = mixing(limits=(limit,))
    mixed(kernel)
    violation = one(kernel, kernel.rows)
    assert violation.message.startswith("mix: src.free cannot be judged: TypeError: ")
    assert violation.number == 65 and violation.blocking


# placement


def test_rule_1_and_2_hold_for_rows_that_do_not_state_them() -> None:
    kernel = mixing()
    mixed(kernel, dst=kernel.sbuf(160, 8), src=kernel.sbuf(128, 8)[16:48])
    assert [(violation.number, text(violation)) for violation in check(kernel, kernel.rows)] == [
        (1, "mix: dst partition size 160 exceeds 128"),
        (2, "mix: src starts at partition 16, a tile of 32 partitions may start at 0, 32, 64, 96"),
    ]


def test_a_row_with_its_own_rule_is_not_judged_twice() -> None:
    kernel = Kernel()
    tile = kernel.sbuf(160, 8)
    kernel.call("tensor_copy", dst=tile, src=tile)
    assert sorted(violation.subject for violation in check(kernel)) == ["dst.partitions", "src.partitions"]


def test_a_dma_may_start_anywhere() -> None:
    kernel = Kernel()
    kernel.copy(kernel.sbuf(128, 8)[17:30], kernel.hbm(13, 8))
    assert check(kernel) == ()


@given(st.integers(1, 128), st.integers(0, 127))
@settings(max_examples=60, deadline=None)
def test_start_partitions(count: int, start: int) -> None:
    """A1: more than 64 partitions start at 0, more than 32 at 0 or 64, others at a quadrant."""
    allowed = [0] if count > 64 else [0, 64] if count > 32 else [0, 32, 64, 96]
    kernel = mixing()
    mixed(kernel, dst=kernel.sbuf(count, 8), src=kernel.sbuf(256, 8)[start : start + count])
    numbers = {violation.number for violation in check(kernel, kernel.rows)}
    assert (2 in numbers) == (start not in allowed)
    assert (1 in numbers) == (start + count > 128)


def test_the_address_of_a_buffer_counts_for_the_start() -> None:
    kernel = mixing()
    mixed(kernel, dst=kernel.sbuf(32, 8, address=(32, 0)), src=kernel.sbuf(32, 8, address=(16, 0)))
    violation = one(kernel, kernel.rows)
    assert "src starts at partition 16" in violation.message


def test_rule_3_partitions_have_no_stride() -> None:
    kernel = mixing()
    mixed(kernel, src=kernel.sbuf(128, 8)[::2])
    violation = one(kernel, kernel.rows)
    assert violation.number == 3 and not violation.blocking
    assert "src partition stride is 16, must be 8, the elements of a row of #" in violation.message


def test_rule_3_a_single_partition_may_have_any_stride() -> None:
    kernel = mixing()
    tile = kernel.sbuf(128, 8)
    single = replace(tile, pattern=((99, 1), (1, 8)))
    mixed(kernel, src=single, dst=kernel.sbuf(1, 8))
    assert check(kernel, kernel.rows) == ()


def test_a_reinterpreted_tile_has_rows_of_its_own_dtype() -> None:
    kernel = mixing()
    tile = kernel.sbuf(128, 8, dtype="float32")
    mixed(kernel, src=tile.as_dtype("bfloat16", 128, 16), dst=kernel.sbuf(128, 16))
    assert check(kernel, kernel.rows) == ()
    kernel = mixing()
    tile = kernel.sbuf(128, 8, dtype="float32", name="t")
    view = replace(tile.as_dtype("bfloat16", 128, 16), pattern=((16, 128), (1, 17)))
    mixed(kernel, src=view, dst=kernel.sbuf(128, 17))
    assert (
        "src elements 0..17 lie outside a row of tile t, which has 16 elements"
        in one(kernel, kernel.rows).message
    )


def test_rule_6_free_dimensions() -> None:
    kernel = mixing()
    for size in (4, 5):
        axes = tuple((8**at, 2) for at in range(size, 0, -1))
        tile = kernel.sbuf(128, 8**6)
        src = replace(tile, pattern=((8**6, 128), *axes))
        mixed(kernel, src=src, dst=kernel.sbuf(128, 2**size))
    messages = [text(violation) for violation in check(kernel, kernel.rows) if violation.number == 6]
    assert [message for message in messages if "dimensions" in message] == [
        "mix: src needs 5 free dimensions, at most 4 are possible"
    ]


def test_rule_6_count_and_stride() -> None:
    kernel = mixing()
    tile = kernel.sbuf(128, 70_000, dtype="float8_e5m2")
    for view in (tile[:, :65_535], tile[:, :65_536], tile[:, :32_768:32_767], tile[:, :65_535:32_768]):
        mixed(
            kernel,
            src=view.as_dtype("bfloat16", 0) if False else replace(view, dtype="float8_e5m2"),
            dst=view,
        )
    found = [
        (violation.subject, violation.message)
        for violation in check(kernel, {**kernel.rows, "mix": make_row(operands=_any_dtype())})
        if violation.number == 6
    ]
    assert [message.removeprefix("mix: ").partition(" on ")[0] for _, message in found] == [
        "dst free dimension of 65536 elements exceeds 65535",
        "src free dimension of 65536 elements exceeds 65535",
        "dst free stride 32768 is outside -32768..32767",
        "src free stride 32768 is outside -32768..32767",
    ]


def _any_dtype() -> tuple[Operand, ...]:
    return (Operand("dst", Role.write, ON_CHIP), Operand("src", Role.read, ON_CHIP), make_row().operands[2])


def test_rule_6_does_not_hold_for_the_hbm_side() -> None:
    kernel = Kernel()
    wide = kernel.hbm(128, 100_000)
    kernel.copy(kernel.sbuf(128, 2), wide[:, ::50_000])
    assert check(kernel) == ()


axis_lists = st.lists(st.tuples(st.integers(-6, 6), st.integers(1, 4)), max_size=4).map(tuple)


@given(axis_lists)
@settings(deadline=None)
def test_merged_axes_touch_the_same_elements_in_the_same_order(axes: tuple[tuple[int, int], ...]) -> None:
    def walk(pattern: tuple[tuple[int, int], ...]) -> list[int]:
        steps = [[stride * at for at in range(count)] for stride, count in pattern]
        return [sum(parts) for parts in itertools.product(*steps)]

    merged = merge(axes)
    assert walk(merged) == walk(axes)
    assert all(count > 1 for _, count in merged)
    assert all(outer != inner * count for (outer, _), (inner, count) in itertools.pairwise(merged))


# out of bounds


def loaded(view: View, kernel: Kernel) -> Kernel:
    shape = tuple(count for _, count in view.pattern)
    kernel.copy(kernel.sbuf(shape[0], math.prod(shape[1:]), dtype=view.dtype), view)
    return kernel


@pytest.mark.parametrize(
    ("view", "text"),
    [
        (lambda x: x[64:192], "src index 191 lies outside dimension 0 of x, whose shape is 128 x 64"),
        (lambda x: x[:, 10:74], "src index 73 lies outside dimension 1 of x, whose shape is 128 x 64"),
        (lambda x: replace(x, base=-3), "src index -1 lies outside dimension 0 of x, whose"),
        (
            lambda x: replace(x, base=8192, pattern=((1, 2), (5, 3))),
            "src index 128 lies outside dimension 0 of x, whose",
        ),
        (
            lambda x: replace(x, base=8190, pattern=((0, 2), (1, 7))),
            "src index 68 lies outside dimension 1 of x, whose",
        ),
        (
            lambda x: replace(x, dtype="bfloat16", pattern=((129, 128), (1, 128))),
            "src reaches element 16510 of x, which has 16384",
        ),
    ],
)
def test_rule_115_in_hbm(view: Any, text: str) -> None:
    kernel = Kernel()
    found = one(loaded(view(kernel.hbm(128, 64, name="x")), kernel))
    assert f"dma_copy: {text}" in found.message
    assert found.number == 115 and found.blocking


def test_rule_115_on_chip() -> None:
    kernel = mixing()
    tile = kernel.sbuf(128, 64, name="t")
    mixed(kernel, src=tile[96:160], dst=kernel.sbuf(64, 64))
    partitions = [v for v in check(kernel, kernel.rows) if v.number == 115]
    assert [text(v) for v in partitions] == [
        "mix: src partitions 96..160 lie outside tile t of 128 partitions"
    ]
    kernel = mixing()
    tile = kernel.sbuf(128, 64, name="t")
    mixed(kernel, src=tile[:, 60:68], dst=kernel.sbuf(128, 8))
    free = one(kernel, kernel.rows)
    assert text(free) == "mix: src elements 60..68 lie outside a row of tile t, which has 64 elements"
    assert free.blocking


def test_a_tile_past_the_memory() -> None:
    kernel = mixing()
    mixed(kernel, src=kernel.sbuf(64, 8, address=(96, 0)), dst=kernel.sbuf(64, 8))
    numbers = [(v.row, v.number) for v in check(kernel, kernel.rows)]
    assert numbers == [("buffer", 1), ("mix", 1), ("mix", 2)]


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_out_of_bounds_is_what_enumerating_the_elements_finds(data: st.DataObject) -> None:
    """The oracle lists every element of the access that the bounds let through."""
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    pattern = tuple(
        data.draw(st.lists(st.tuples(st.integers(-5, 5), st.integers(1, 4)), min_size=1, max_size=3))
    )
    base = data.draw(st.integers(-4, 20))
    coefficients = st.lists(st.integers(-2, 2), min_size=len(pattern), max_size=len(pattern)).map(tuple)
    bounds = tuple(
        Bound(data.draw(coefficients), data.draw(st.integers(-4, 8)))
        for _ in range(data.draw(st.integers(0, 2)))
    )
    kernel = Kernel()
    x = kernel.hbm(*shape)
    access = Access(x.buffer.id, "float32", base, pattern, bounds=bounds)
    tile = kernel.sbuf(1, math.prod(count for _, count in pattern))
    kernel.raw("dma_copy", {"dst": tile.access, "src": access})
    outside = False
    for index in itertools.product(*(range(count) for _, count in pattern)):
        let = all(
            sum(c * i for c, i in zip(b.coefficients, index, strict=True)) + b.constant >= 0 for b in bounds
        )
        element = base + sum(stride * i for (stride, _), i in zip(pattern, index, strict=True))
        outside |= let and not 0 <= element < math.prod(shape)
    assert any(violation.number == 115 for violation in check(kernel)) == outside


def test_ranges_with_a_bound_over_two_axes() -> None:
    access = Access(0, "float32", 0, ((8, 3), (1, 8)), bounds=(Bound((-8, -1), 19),))
    assert ranges(access, [Form(0, (8, 1)), Form(0, (1, 0)), Form(0, (0, 1))]) == ((0, 19), (0, 2), (0, 7))
    assert ranges(replace(access, bounds=(Bound((0, 0), -1),)), [Form(0, (8, 1))]) is None


def test_a_mask_keeps_a_legacy_access_inside() -> None:
    kernel = Kernel()
    x, tile = kernel.hbm(100, 64, name="x"), kernel.sbuf(128, 64)
    for last, wrong in ((99, False), (100, True)):
        inside = Access(x.buffer.id, "float32", 0, ((64, 128), (1, 64)), bounds=(Bound((-1, 0), last),))
        kernel.raw("dma_copy", {"dst": tile.access, "src": inside})
        assert bool(check(kernel, release="0.1")) == wrong
        kernel = Kernel()
        x, tile = kernel.hbm(100, 64, name="x"), kernel.sbuf(128, 64)


def test_a_table_of_offsets_is_checked() -> None:
    kernel = Kernel()
    x, tile = kernel.hbm(4, 4, name="x"), kernel.sbuf(1, 4)
    for number, values in enumerate(([0, 5, 10, 15], [0, 5, 10, 16])):
        table = kernel.builder.constant(np.array(values, np.int64))
        kernel.raw(
            "dma_copy", {"dst": tile.access, "src": Access(x.buffer.id, "float32", 0, ((0, 4),), table=table)}
        )
        found = check(kernel)
        assert len(found) == number
    assert found[0].message == "dma_copy: src reaches element 16 of x, which has 16 on trn2 (kernel.py:4)"


def test_an_index_tile_is_checked() -> None:
    kernel = Kernel()
    x = kernel.hbm(64, 8, name="x")
    for dtype, rows in (("int32", 64), ("float32", 64), ("uint32", 72)):
        index = kernel.sbuf(64, 1, dtype=dtype, name="i")
        source = kernel.builder.access(replace(index, pattern=((1, rows), (1, 1))).access)
        access = Access(x.buffer.id, "float32", 0, ((8, 64), (1, 8)), index=Index("vector", source, 0, 8))
        kernel.raw("dma_copy", {"dst": kernel.sbuf(64, 8).access, "src": access})
    assert [(v.number, v.message.partition(" on ")[0]) for v in check(kernel)] == [
        (46, "dma_copy: src index dtype float32 is not allowed, expected an integer"),
        (115, "dma_copy: src index tile partitions 0..72 lie outside tile i of 64 partitions"),
    ]


def test_the_axis_that_an_index_replaces_does_not_count() -> None:
    kernel = Kernel()
    x = kernel.hbm(4, 8)
    source = kernel.builder.access(kernel.sbuf(64, 1, dtype="int32").access)
    for axis, wrong in ((0, False), (1, True)):
        access = Access(x.buffer.id, "float32", 0, ((8, 64), (1, 8)), index=Index("vector", source, axis, 8))
        kernel.raw("dma_copy", {"dst": kernel.sbuf(64, 8).access, "src": access})
        assert bool(check(kernel)) == wrong


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"partition": None}, "is on chip and has no partition axis"),
        ({"pattern": ((8, 128), (1, 0))}, "has no elements"),
        ({"dtype": "int32", "partition": None}, "is on chip and has no partition axis"),
        ({"bounds": (Bound((1,), 0),)}, "has a bound of another rank than its access"),
        ({"index": Index("vector", 0, 7, 1)}, "is indexed along axis 7 of 2"),
    ],
)
def test_a_malformed_access_is_a_violation(change: dict[str, Any], text: str) -> None:
    kernel = Kernel()
    kernel.builder.access(kernel.sbuf(128, 1, dtype="int32").access)
    tile = kernel.sbuf(128, 8)
    kernel.raw("tensor_copy", {"dst": tile.access, "src": replace(tile.access, **change)})
    found = [v for v in check(kernel) if v.number == 0]
    assert f"tensor_copy: src {text} on trn2 (kernel.py:3)" in [v.message for v in found]
    assert all(v.blocking for v in found)


def test_a_partition_axis_in_hbm_and_a_table_of_another_shape() -> None:
    kernel = Kernel()
    x, tile = kernel.hbm(4, 8), kernel.sbuf(4, 8)
    table = kernel.builder.constant(np.zeros(3, np.int64))
    kernel.raw("dma_copy", {"dst": tile.access, "src": replace(x.access, partition=0)})
    kernel.raw("dma_copy", {"dst": tile.access, "src": replace(x.access, table=table)})
    assert [v.message.partition(" on ")[0] for v in check(kernel)] == [
        "dma_copy: src is in HBM and has a partition axis",
        "dma_copy: src has a table of offsets of another shape or dtype than its access",
    ]


def test_a_row_that_holds_no_whole_number_of_elements() -> None:
    kernel = Kernel()
    tile = kernel.sbuf(128, 3, dtype="bfloat16")
    view = replace(tile, dtype="float32", pattern=((1, 128), (1, 1)))
    kernel.call("tensor_copy", dst=kernel.sbuf(128, 1), src=view)
    violation = one(kernel)
    assert text(violation) == (
        "tensor_copy: src reads rows of 6 bytes as float32, which they hold no whole number of"
    )
    assert violation.blocking


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_classes_of_accesses_hide_no_breach(data: st.DataObject) -> None:
    """A tile of 40 x 12 read in many ways, judged together and each on its own."""
    axis = st.tuples(st.integers(-3, 5), st.integers(1, 6))
    access = st.tuples(
        st.integers(-14, 500),
        st.sampled_from([12, 12, 12, 24, 6]),
        st.integers(1, 41),
        st.lists(axis, max_size=2),
    )
    drawn = data.draw(st.lists(access, min_size=1, max_size=12))

    def kernel_of(parts: list[tuple[int, int, int, list[tuple[int, int]]]]) -> Kernel:
        kernel = Kernel()
        tile = kernel.sbuf(40, 12, name="t")
        for base, stride, count, axes in parts:
            size = math.prod(count for _, count in axes)
            src = replace(tile, base=base, pattern=((stride, count), *axes))
            kernel.call("dma_copy", dst=kernel.hbm(count, size), src=src)
        return kernel

    together = [(v.number, v.subject, text(v), v.blocking) for v in check(kernel_of(drawn))]
    alone = [(v.number, v.subject, text(v), v.blocking) for part in drawn for v in check(kernel_of([part]))]
    assert together == alone


# buffers and outputs


@pytest.mark.parametrize(("name", "usable"), [("trn1", 180224), ("trn2", 212984), ("trn3", 245752)])
def test_rule_9_a_tile_larger_than_usable_sbuf(name: str, usable: int) -> None:
    kernel = Kernel(name)
    kernel.sbuf(128, usable // 2, dtype="bfloat16")
    assert check(kernel) == ()
    kernel.sbuf(128, usable // 2 + 1, dtype="bfloat16", name="t")
    violation = one(kernel)
    assert violation.message == (
        f"SBUF tile t: {usable + 2} bytes a partition exceed the {usable} usable on {name} (kernel.py:2)"
    )
    assert (violation.row, violation.number, violation.blocking, violation.instructions) == (
        "buffer",
        9,
        True,
        (),
    )


def test_rule_11_a_tile_larger_than_psum() -> None:
    kernel = Kernel()
    kernel.psum(128, 4096)
    assert check(kernel) == ()
    kernel.psum(128, 4097, name="p")
    violation = one(kernel)
    assert (
        violation.message
        == "PSUM tile p: 16388 bytes a partition exceed the 16384 of PSUM on trn2 (kernel.py:2)"
    )
    assert (violation.number, violation.blocking) == (11, True)


def test_buffers_of_one_place_are_one_violation() -> None:
    kernel = Kernel()
    place = kernel.place()
    for size in (5000, 6000, 10):
        kernel.builder.buffer(
            memory=Memory.psum, shape=(128, size), dtype="float32", name=f"p{size}", place=place
        )
    assert one(kernel).message.startswith("PSUM tile p5000: 20000 bytes a partition exceed")


@pytest.mark.parametrize(
    ("memory", "address", "number", "text"),
    [
        (Memory.psum, (0, 2048), 0, ""),
        (Memory.psum, (0, 1024), 12, "PSUM tile t: address 1024 is not the start of a bank of 2048 bytes"),
        (
            Memory.psum,
            (0, 16384),
            11,
            "PSUM tile t: address 16384 and 2048 bytes end beyond the 16384 of PSUM",
        ),
        (Memory.sbuf, (0, 3), 0, ""),
        (
            Memory.sbuf,
            (0, 212_000),
            9,
            "SBUF tile t: address 212000 and 2048 bytes end beyond the 212984 usable",
        ),
        (Memory.sbuf, (64, 0), 0, ""),
        (Memory.sbuf, (65, 0), 1, "SBUF tile t: partitions 65..129 end beyond the 128 of the memory"),
    ],
)
def test_explicit_addresses(memory: Memory, address: tuple[int, int], number: int, text: str) -> None:
    kernel = Kernel()
    kernel.tensor(memory, 64, 512, address=address, name="t")
    found = check(kernel)
    assert [violation.number for violation in found] == [number] * bool(text)
    if text:
        assert found[0].message == f"{text} on trn2 (kernel.py:1)"


def test_rule_14_alignment() -> None:
    """SBUF addresses are aligned to a byte; an override shows the sentence."""
    buffer = Kernel().sbuf(128, 8, address=(0, 6), name="t").buffer
    assert list(unaligned(buffer, target("trn2"))) == []
    (found,) = unaligned(buffer, target("trn2", {"sbuf.min_align": 4}))
    assert (found.number, found.text) == (14, "address 6 is no multiple of 4 bytes")


@pytest.mark.parametrize(
    ("release", "memory", "count"), [("0.6", Memory.hbm, 1), ("0.3", Memory.hbm, 1), ("0.2", Memory.hbm, 0)]
)
def test_rule_23_returned_memory(release: str, memory: Memory, count: int) -> None:
    kernel = Kernel()
    out = kernel.tensor(memory, 128, 8, name="y")
    kernel.output(out, name="y")
    kernel.output(kernel.hbm(128, 8))
    found = check(kernel, release=release)
    assert len(found) == count
    if found:
        assert found[0].message == (
            "output y: is returned from nl.hbm, expected nl.shared_hbm since NKI 0.3 on trn2 (kernel.py:1)"
        )
        assert (found[0].number, found[0].row, found[0].blocking) == (23, "output", False)


def test_a_parameter_may_be_returned_as_it_is() -> None:
    kernel = Kernel()
    x = kernel.tensor(Memory.hbm, 128, 8)
    kernel.parameters.append(x.buffer)
    kernel.output(x, alias="p0")
    assert check(kernel) == ()
    kernel.outputs.append(Output(kernel.outputs[0].access, "p7", "z"))
    assert one(kernel).message == (
        "output z: is said to alias parameter p7, whose storage it is not on trn2 (kernel.py:1)"
    )


def test_an_output_on_chip_and_an_output_out_of_bounds() -> None:
    kernel = Kernel()
    kernel.output(kernel.sbuf(128, 8), name="a")
    kernel.output(kernel.hbm(128, 8)[:, 4:12], name="b")
    first, second = check(kernel)
    assert first.message == "output a: is returned from SBUF, an output must be in HBM on trn2 (kernel.py:1)"
    assert (first.number, first.blocking) == (24, True)
    assert second.message.startswith("output b: index 11 lies outside dimension 1 of #1") and second.blocking


def test_rule_109_cores() -> None:
    kernel = Kernel("trn1", lnc=2)
    assert one(kernel).message == "kernel: LNC 2 is not possible, expected 1 on trn1"
    assert check(Kernel("trn2", lnc=2)) == ()


def looped(*spans: tuple[int, int], length: int = 10) -> Program:
    kernel = Kernel()
    tile = kernel.sbuf(128, 8)
    for _ in range(length):
        kernel.call("tensor_copy", dst=tile, src=tile)
    return replace(kernel.program(), loops=tuple(Loop("for", start, stop, 0, 0, 2) for start, stop in spans))


def test_loops_are_nested() -> None:
    assert verify(looped((1, 6), (2, 5), (6, 9), (3, 3))) == ()
    ((first, second),) = nests(looped((2, 5), (6, 9), (1, 6)))
    assert [nest.loop.start for nest in (first, *first.inner, second)] == [1, 2, 6]
    (violation,) = verify(looped((1, 6), (4, 8)))
    assert violation.message == "kernel: loops [1, 6) and [4, 8) overlap on trn2" and violation.blocking
    (deep,) = verify(looped(*[(0, 10)] * 65))
    assert deep.message.startswith("kernel: loop [0, 10) lies inside 64 others")
    assert verify(looped(*[(0, 10)] * 64)) == ()


def test_a_loop_stays_in_its_stream() -> None:
    program = looped((3, 7))
    streams = (Stream(0, 0, 0, 5), Stream(0, 1, 5, 10))
    (violation,) = verify(replace(program, streams=streams))
    assert violation.message == "kernel: loop [3, 7) leaves the stream of core 0 on trn2"
    assert [len(found) for found in nests(replace(looped((0, 5), (6, 7), (7, 9)), streams=streams))] == [1, 2]


def test_violations_come_in_order() -> None:
    kernel = wide_matmul(2)
    kernel.psum(128, 5000)
    kernel.output(kernel.tensor(Memory.hbm, 1, 1))
    assert [v.row for v in check(kernel)] == ["buffer", *["nc_matmul"] * 4, "output"]


# classes


@given(
    st.lists(st.tuples(st.integers(-3, 3), st.sampled_from([0, 1, 2**40, -(2**45)])), min_size=1, max_size=40)
)
@settings(deadline=None)
def test_interning_is_equality_of_rows(rows: list[tuple[int, int]]) -> None:
    columns = [np.array(column, np.int64) for column in zip(*rows, strict=True)]
    found = intern([*columns, columns[1][::-1].copy()], len(rows))
    full = [(a, b, c) for (a, b), c in zip(rows, columns[1][::-1].tolist(), strict=True)]
    for i, j in itertools.combinations(range(len(full)), 2):
        assert (found.of[i] == found.of[j]) == (full[i] == full[j])
    assert [full.index(row) for row in (full[first] for first in found.first)] == found.first.tolist()
    parts = members(found.of, len(found))
    assert sorted(row for part in parts for row in part.tolist()) == list(range(len(rows)))


def test_a_long_trace_is_judged_class_by_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each distinct call is judged once, however often it occurs and wherever its HBM side lies."""
    calls = []
    limit = AtMost(number=65, source="s", subject="src.free", bound=lambda call: calls.append(1) or 8)
    kernel = Kernel(rows={**ROWS, "mix": make_row(limits=(limit,))})
    x = kernel.hbm(128 * 40, 8)
    for at in range(40):
        tile = kernel.sbuf(128, 8)
        kernel.copy(tile, x[128 * at : 128 * (at + 1)])
        mixed(kernel, src=tile)
    assert check(kernel, kernel.rows) == () and len(calls) == 1


def test_verify_does_not_change_a_program() -> None:
    program: Program = wide_matmul().program()
    assert verify(program) == verify(program)
    assert isinstance(program.parameters, Group)
