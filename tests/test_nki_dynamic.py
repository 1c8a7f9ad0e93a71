"""Registers, device-side loops, dynamic operands, dependencies and schedules: what is recorded, and what is refused."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nkireview.execute import execute
from nkireview.isa import dtypes
from nkireview.isa.enums import Memory
from nkireview.isa.release import Release
from nkireview.isa.row import Bits
from nkireview.isa.rows import registers as rows
from nkireview.nki import isa, language, launch, modules
from nkireview.nki.control import dynamic_range, fori_loop, while_loop
from nkireview.nki.errors import Refusal
from nkireview.nki.jit import Kernel, jit
from nkireview.nki.registers import VirtualRegister
from nkireview.nki.tensor import NkiTensor
from nkireview.nki.trace import Trace, loading
from nkireview.program.model import Header
from nkireview.program.program import Program
from nkireview.program.verify import verify

nl = language.module("nl")
nisa = isa.module("nisa")


def record(kernel: Callable[..., Any], release: str = "0.6", target: str = "trn2", lnc: int = 1) -> Program:
    """The Program of a kernel that takes an HBM tensor (64, 32) and a count (1, 1)."""
    trace = Trace(target, Release.parse(release), lnc)
    shapes = (("data", (64, 32), "float32"), ("count", (1, 1), "int32"))
    buffers = [trace.buffer(Memory.shared_hbm, shape, dtype, name=name) for name, shape, dtype in shapes]
    returned = launch.run_cores(
        trace, kernel, lambda: ([NkiTensor.whole(trace, buffer) for buffer in buffers], {})
    )
    outputs = tuple(launch.outputs(trace, returned, {}))
    header = Header("k", target, release, lnc, sources=tuple(trace.places.sources))
    return trace.builder.finish(header, outputs=outputs)


DATA = np.arange(64 * 32, dtype=np.float32).reshape(64, 32) + 1


def run(kernel: Callable[..., Any], count: int) -> np.ndarray:
    """The result of a legal kernel on `DATA` and a count."""
    program = record(kernel)
    assert verify(program) == ()
    execution = execute(program, {0: DATA, 1: np.array([[count]], np.int32)})
    assert execution.faults == ()
    return np.asarray(execution.outputs[0].values)


def refused(kernel: Callable[..., Any], **options: Any) -> str:
    with pytest.raises(Refusal) as error:
        record(kernel, **options)
    return str(error.value)


def opcodes(program: Program) -> list[str]:
    return [instruction.opcode for instruction in program]


def events(program: Program, kind: str) -> list[str]:
    return [event.detail for event in program.events if event.kind == kind]


def loaded(count: Any) -> Any:
    tile = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=count)
    register = nisa.register_alloc()
    nisa.register_load(register, tile)
    return register


# --- rows ---------------------------------------------------------------------------------------------------------


@dataclass
class Shown:
    """What a meaning sees: immediates and tiles, given by hand."""

    immediates: dict[str, Any] = field(default_factory=dict)
    tiles: dict[str, Any] = field(default_factory=dict)

    def imm(self, name: str) -> Any:
        return self.immediates.get(name)

    def raw(self, name: str) -> Any:
        return self.tiles[name]

    def shape(self, name: str) -> Any:
        return self.tiles[name].shape

    def dtype(self, name: str) -> Any:
        return dtypes.of(self.tiles[name].dtype)


@pytest.mark.oracle("nisa.register_alloc", "nisa.register_move")
@pytest.mark.parametrize(
    ("value", "held"), [(5, 5), (-5, -5), (2**31 - 1, 2**31 - 1), (2**31, -(2**31)), (2**32 - 1, -1)]
)
def test_a_register_holds_a_signed_32_bit_integer(value: int, held: int) -> None:
    assert int(rows.register_alloc.meaning(Shown({"x": value}))["dst"]) == held
    assert int(rows.register_move.meaning(Shown({"src": value}))["dst"]) == held
    assert int(rows.register_move.meaning(Shown({"imm": value}))["dst"]) == held


@pytest.mark.oracle("nisa.register_load")
@pytest.mark.parametrize(
    ("dtype", "value", "held"),
    [
        (np.int32, -7, -7),
        (np.uint32, 2**32 - 1, -1),
        (np.int8, -128, -128),
        (np.uint8, 200, 200),
        (np.int16, -2, -2),
        (np.float32, 1.0, 0x3F800000),
        (ml_dtypes.bfloat16, 1.0, 0x3F80),
        (np.bool_, True, 1),
    ],
)
def test_a_load_extends_integers_and_keeps_the_bits_of_floats(dtype: Any, value: Any, held: int) -> None:
    reader = Shown(tiles={"src": np.array([[value]], dtype)})
    assert int(rows.register_load.meaning(reader)["dst"]) == held


@pytest.mark.oracle("nisa.register_store", "nisa.register_load")
@given(st.integers(-(2**31), 2**31 - 1), st.sampled_from(["int32", "uint32", "int16", "uint8", "float32"]))
def test_a_store_writes_the_low_bits(value: int, name: str) -> None:
    dtype = np.dtype(name)
    stored = rows.register_store.meaning(Shown({"src": value}, {"dst": np.zeros((1, 1), dtype)}))["dst"]
    assert isinstance(stored, Bits) and stored.array.dtype == dtype and stored.array.shape == (1, 1)
    pattern = int(stored.array.view(f"u{dtype.itemsize}")[0, 0])
    assert pattern == value % 2 ** (8 * dtype.itemsize)
    if dtype.itemsize == 4:
        assert int(rows.register_load.meaning(Shown(tiles={"src": stored.array}))["dst"]) == value


def violations(kernel: Callable[..., Any], **options: Any) -> list[tuple[int, str]]:
    return [(v.number, v.message.partition(" on ")[0]) for v in verify(record(kernel, **options))]


@pytest.mark.parametrize(
    ("use", "found"),
    [
        (lambda r, s, d: nisa.register_move(r, 2**32 - 1), []),
        (lambda r, s, d: nisa.register_move(r, -(2**31)), []),
        (
            lambda r, s, d: nisa.register_move(r, 2**32),
            ["register_move: src 4294967296 does not fit into the 32 bits of"],
        ),
        (
            lambda r, s, d: nisa.register_move(r, 1.5),
            ["register_move: src is 1.5, a register takes an integer or another"],
        ),
        (lambda r, s, d: nisa.register_load(r, s[0:1, 0:1]), []),
        (lambda r, s, d: nisa.register_load(r, d[0:1, 0:1]), []),
        (
            lambda r, s, d: nisa.register_load(r, s[0:1, 0:2]),
            ["register_load: src element count is 2, must be 1; a register holds one element; pass a"],
        ),
        (
            lambda r, s, d: nisa.register_store(s[0:2, 0:1], r),
            ["register_store: dst element count is 2, must be 1; a register holds one element; pass a"],
        ),
        (
            lambda r, s, d: nisa.register_load(r, nl.ndarray((1, 1), nl.float32, nl.psum)),
            ["register_load: src is in PSUM, expected HBM or SBUF"],
        ),
    ],
)
def test_limits_of_the_rows(use: Callable[..., Any], found: list[str]) -> None:
    def kernel(data: Any, count: Any) -> None:
        use(nisa.register_alloc(1), nl.ndarray((4, 8), nl.int32, nl.sbuf), data)

    messages = [text for _, text in violations(kernel)]
    assert len(messages) == len(found)
    assert all(text.startswith(start) for text, start in zip(messages, found, strict=True)), messages


def test_register_move_takes_imm_before_0_3() -> None:
    def old(data: Any, count: Any) -> None:
        nisa.register_move(nisa.register_alloc(), imm=5)

    def new(data: Any, count: Any) -> None:
        nisa.register_move(dst=nisa.register_alloc(), src=5)

    assert violations(old, release="0.2") == [] and violations(new, release="0.3") == []
    assert refused(old, release="0.3") == "register_move: argument 'src' is missing"
    assert refused(new, release="0.2") == "register_move: argument 'imm' is missing"


def test_register_alloc_takes_a_tensor_before_0_3() -> None:
    def kernel(data: Any, count: Any) -> None:
        nisa.register_alloc(nl.ndarray((1, 1), nl.int32, nl.sbuf))

    program = record(kernel, release="0.2")
    assert opcodes(program) == ["register_load"]
    assert program.instruction(0).immediates == {"dst": ("register", 0)}
    expected = "register_alloc: x must be an integer or None; load a tensor with nisa.register_load"
    assert refused(kernel, release="0.3") == expected


def test_registers_are_numbered_from_0_in_each_stream() -> None:
    def kernel(data: Any, count: Any) -> None:
        first, second = nisa.register_alloc(7), nisa.register_alloc()
        assert isinstance(second, nisa.VirtualRegister)
        nisa.register_move(second, first)
        nisa.register_store(nl.ndarray((1, 1), nl.int32, nl.sbuf), second)

    program = record(kernel, lnc=2)
    expected = [
        ("register_alloc", {"x": 7, "dst": ("register", 0)}),
        ("register_move", {"dst": ("register", 1), "src": ("register", 0)}),
        ("register_store", {"src": ("register", 1)}),
    ]
    found = [(instruction.opcode, dict(instruction.immediates)) for instruction in program]
    assert found == expected * 2
    assert verify(program) == ()


# --- registers ----------------------------------------------------------------------------------------------------

NO_VALUE = "of it cannot be taken; use nl.fori_loop for a counted loop and nl.while_loop for one that depends on data"


@pytest.mark.oracle("nisa.VirtualRegister")
@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda r: int(r), "int() " + NO_VALUE),
        (lambda r: float(r), "float() " + NO_VALUE),
        (lambda r: range(r), "range() or an index " + NO_VALUE),
        (lambda r: [1, 2][r], "range() or an index " + NO_VALUE),
        (lambda r: r < 3, "a comparison " + NO_VALUE),
        (lambda r: r == 3, "a comparison " + NO_VALUE),
        (lambda r: r != 3, "a comparison " + NO_VALUE),
        (lambda r: 1 if r else 0, "the truth (`if`, `and`, `or`, `not`) " + NO_VALUE),
        (lambda r: not r, "the truth (`if`, `and`, `or`, `not`) " + NO_VALUE),
        (lambda r: r and 1, "the truth (`if`, `and`, `or`, `not`) " + NO_VALUE),
        (
            lambda r: r + 1,
            "registers have no operator +; compute on a (1, 1) tile, as with nisa.tensor_scalar, and nisa.",
        ),
        (lambda r: 2 * r, "registers have no operator *; compute on a (1, 1) tile"),
        (lambda r: -r, "registers have no operator - (negation); compute on a (1, 1) tile"),
        (lambda r: list(r), "iteration " + NO_VALUE),
        (
            lambda r: nisa.VirtualRegister(),
            "a register is made by nisa.register_alloc(), not by nisa.VirtualRegister()",
        ),
        (
            lambda r: nisa.register_alloc(r),
            "register_alloc: x must be an integer or None; copy a register with nisa.reg",
        ),
        (
            lambda r: nisa.register_move(3, 4),
            "register_move: dst must be a register made by nisa.register_alloc, got int",
        ),
        (
            lambda r: nisa.register_store(r, r),
            "register_store: dst cannot be a register; nisa.register_store it into a tile",
        ),
        (
            lambda r: nisa.memset(nl.ndarray((1, 1), nl.int32), r),
            "memset: value cannot be a register; nisa.register_store",
        ),
        (
            lambda r: nisa.tensor_scalar(*[nl.ndarray((1, 1), nl.float32)] * 2, nl.add, r),
            "tensor_scalar: operand0 cannot be a register; nisa.register_store it into a tile and pass that, or pass a",
        ),
    ],
)
def test_a_register_has_no_value_in_python(use: Callable[[Any], Any], message: str) -> None:
    def kernel(data: Any, count: Any) -> None:
        use(nisa.register_alloc(4))

    found = refused(kernel)
    assert message in found
    assert not message.endswith(NO_VALUE) or found.startswith(
        "a register has no value while the kernel is traced, "
    )


def test_what_is_advised_depends_on_the_release() -> None:
    def kernel(data: Any, count: Any) -> None:
        int(nisa.register_alloc(4))

    assert "use nl.dynamic_range for a counted loop and `while register:` for one" in refused(
        kernel, release="0.5"
    )


def test_a_register_is_not_none_and_can_be_kept_in_a_dict() -> None:
    def kernel(data: Any, count: Any) -> None:
        register = nisa.register_alloc(4)
        assert register is not None and (register == None) is False and register != None  # noqa: E711
        assert {register: 1}[register] == 1

    record(kernel)


@pytest.mark.oracle("nisa.iota", "nisa.affine_select")
def test_an_offset_can_be_a_register() -> None:
    def kernel(data: Any, count: Any) -> None:
        tile = nl.ndarray((32, 8), nl.int32, nl.sbuf)
        nisa.iota(tile, [[1, 8]], offset=loaded(count), channel_multiplier=8)

    program = record(kernel)
    assert program.instruction(2).immediates["offset"] == ("register", 0)
    assert verify(program) == ()


# --- loops --------------------------------------------------------------------------------------------------------


@pytest.mark.oracle("nl.fori_loop")
def test_the_documented_fori_loop() -> None:
    """nki/api/nki/language/__init__.py:2455-2485."""

    def kernel(data: Any, count: Any) -> None:
        upper = loaded(count)
        temp = nl.ndarray((1, 1), dtype=nl.float32, buffer=nl.sbuf)
        output = nl.ndarray((1, 32), dtype=nl.float32, buffer=nl.shared_hbm)

        def body(i: Any) -> None:
            nisa.dma_copy(dst=temp, src=data.ap([[1, 1], [1, 1]], scalar_offset=i, indirect_dim=1))
            nisa.dma_copy(dst=output.ap([[1, 1], [1, 1]], scalar_offset=i, indirect_dim=1), src=temp)

        nl.fori_loop(0, upper, body)
        nisa.dma_copy(dst=temp, src=data[0:1, 0:1])

    program = record(kernel)
    (loop,) = program.loops
    assert (loop.kind, loop.start, loop.stop, loop.register) == ("for", 2, 4, 1)
    assert (loop.lower, loop.upper, loop.step, loop.parent) == (0, ("register", 0), 1, -1)
    index = program.instruction(2).operands["src"].index  # type: ignore[union-attr]
    assert index is not None and (index.kind, index.source, index.stride) == ("register", 1, 1)
    assert verify(program) == () and events(program, "deprecated") == []


@pytest.mark.oracle("nl.while_loop")
def test_the_documented_while_loop() -> None:
    """nki/api/nki/language/__init__.py:2520-2543: the body writes to the register it gets and returns it."""

    def kernel(data: Any, count: Any) -> None:
        register = loaded(count)
        tile = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)

        def body(r: Any) -> Any:
            nisa.register_load(r, tile)
            return r

        nl.while_loop(register, body)

    program = record(kernel)
    (loop,) = program.loops
    assert (loop.kind, loop.start, loop.stop, loop.register) == ("while", 3, 4, 1)
    copied = program.instruction(2)
    assert (copied.opcode, dict(copied.immediates)) == (
        "register_move",
        {"dst": ("register", 1), "src": ("register", 0)},
    )
    assert dict(program.instruction(3).immediates) == {"dst": ("register", 1)}


@pytest.mark.oracle("nl.while_loop")
def test_a_while_loop_goes_on_with_the_register_that_is_returned() -> None:
    def kernel(data: Any, count: Any) -> None:
        other = nisa.register_alloc(0)
        nl.while_loop(nisa.register_alloc(1), lambda r: other)

    program = record(kernel)
    last = program.instruction(len(program) - 1)
    assert (last.opcode, dict(last.immediates)) == (
        "register_move",
        {"dst": ("register", 2), "src": ("register", 0)},
    )
    assert (program.loops[0].start, program.loops[0].stop) == (3, 4)


UNTRACKED = (
    "nl.dynamic_range: dependencies across the boundary of the loop are tracked since NKI 0.4; until then what is used "
    "both inside and outside of it may race"
)


@pytest.mark.oracle("nl.dynamic_range")
@pytest.mark.parametrize("release", ["0.3", "0.4", "0.6"])
def test_a_dynamic_range_is_one_pass(release: str) -> None:
    def kernel(data: Any, count: Any) -> None:
        start, stop = nisa.register_alloc(0), nisa.register_alloc(512)
        tile = nl.ndarray((64, 32), nl.float32, nl.sbuf)
        passes = 0
        for _ in nl.dynamic_range(start, stop, 128):
            for _ in nl.dynamic_range(3):
                nisa.dma_copy(dst=tile, src=data)
                passes += 1
            nisa.dma_copy(dst=tile, src=data)
        assert passes == 1

    program = record(kernel, release=release)
    outer, inner = program.loops
    assert (outer.lower, outer.upper, outer.step, outer.start, outer.stop) == (
        ("register", 0),
        ("register", 1),
        128,
        2,
        4,
    )
    assert (inner.lower, inner.upper, inner.step, inner.start, inner.stop, inner.parent) == (0, 3, 1, 2, 3, 0)
    assert (inner.trips, outer.trips) == (3, None)
    deprecated = ["nl.dynamic_range is deprecated since NKI 0.6: use nl.fori_loop"] * 2
    assert events(program, "deprecated") == (deprecated if release == "0.6" else [])
    known = "nested nl.dynamic_range: with values carried between iterations it fails to compile in NKI 0.4 to 0.6"
    assert events(program, "note") == ([UNTRACKED] * 2 if release == "0.3" else [known])


@pytest.mark.oracle("nisa.VirtualRegister")
@pytest.mark.parametrize("release", ["0.5", "0.6"])
def test_while_register_is_a_loop(release: str) -> None:
    """nki/deep-dives/nki-dynamic-loops.rst, "Using while with a VirtualRegister"."""

    def kernel(data: Any, count: Any) -> None:
        tile = nl.ndarray((1, 1), nl.int32, nl.sbuf)
        for _ in range(2):
            reg = nisa.register_alloc(1)
            passes = 0
            while reg:
                inner = nisa.register_alloc(1)
                while inner:
                    nisa.register_load(inner, tile)
                nisa.register_load(reg, tile)
                passes += 1
            assert passes == 1

    program = record(kernel, release=release)
    spans = [(loop.kind, loop.start, loop.stop, loop.register, loop.parent) for loop in program.loops]
    assert spans == [
        ("while", 1, 4, 0, -1),
        ("while", 2, 3, 1, 0),
        ("while", 5, 8, 2, -1),
        ("while", 6, 7, 3, 2),
    ]
    expected = ["`while register:` is deprecated since NKI 0.6: use nl.while_loop"] * 2
    assert events(program, "deprecated") == (expected if release == "0.6" else [])


class Held:
    def __init__(self) -> None:
        self.reg = nisa.register_alloc(1)


def _attribute(data: Any, count: Any) -> None:
    held = Held()
    while held.reg:
        nisa.register_move(held.reg, 0)


def _in_a_helper(data: Any, count: Any) -> None:
    def loop(register: Any) -> None:
        while register:
            nisa.register_move(register, 0)

    loop(nisa.register_alloc(1))
    loop(nisa.register_alloc(1))


@pytest.mark.parametrize(("kernel", "loops"), [(_attribute, 1), (_in_a_helper, 2)])
def test_where_a_while_can_stand(kernel: Callable[..., Any], loops: int) -> None:
    program = record(kernel)
    assert len(program.loops) == loops and all(loop.stop - loop.start == 1 for loop in program.loops)


def _break(data: Any, count: Any) -> None:
    reg = nisa.register_alloc(1)
    while reg:
        if data.shape[0] == 64:
            break


def _return(data: Any, count: Any) -> None:
    for _ in nl.dynamic_range(4):
        return


def _break_range(data: Any, count: Any) -> None:
    for _ in nl.dynamic_range(4):
        nisa.register_alloc(1)
        break


def _hidden_break(data: Any, count: Any) -> None:
    loop = iter(nl.dynamic_range(4))
    next(loop)
    nisa.register_alloc(1)


def _exception(data: Any, count: Any) -> None:
    reg = nisa.register_alloc(1)
    try:
        while reg:
            raise ValueError
    except ValueError:
        pass


def _outer_closes(data: Any, count: Any) -> None:
    def body(i: Any) -> None:
        next(iter(nl.dynamic_range(4)))

    nl.fori_loop(0, 4, body)


def _rebound(data: Any, count: Any) -> None:
    reg = nisa.register_alloc(1)
    while reg:
        reg = nisa.register_alloc(0)


def _ordered_while(data: Any, count: Any) -> None:
    reg = nisa.register_alloc(1)
    with nl.no_reorder():
        while reg:
            nisa.register_move(reg, 0)


def _ordered(loop: Callable[..., Any]) -> Callable[..., Any]:
    def kernel(data: Any, count: Any) -> None:
        with nl.no_reorder():
            loop()

    return kernel


BY_BREAK = "cannot be left by break: it runs on the device, where it ends when its bound is reached or its"
LEFT = "is left by break, return or an exception; it runs on the device, where it ends when its bound is reached or its"
ORDERED = "is not possible inside nl.no_reorder; put the nl.no_reorder block into the body of the loop"


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (_break, f"`while register:` {BY_BREAK}"),
        (_break_range, f"nl.dynamic_range {BY_BREAK}"),
        (_return, f"nl.dynamic_range {BY_BREAK.replace('break', 'return')}"),
        (_hidden_break, "nl.dynamic_range (test_nki_dynamic.py:"),
        (_hidden_break, LEFT),
        (_exception, "`while register:` (test_nki_dynamic.py:"),
        (_exception, LEFT),
        (_outer_closes, LEFT),
        (
            _rebound,
            "the condition of `while` turns from one register into another; write to the first one with nisa.",
        ),
        (_ordered_while, f"`while register:` {ORDERED}"),
        (_ordered(lambda: list(nl.dynamic_range(3))), f"nl.dynamic_range {ORDERED}"),
        (_ordered(lambda: nl.fori_loop(0, 3, lambda i: None)), f"nl.fori_loop {ORDERED}"),
        (_ordered(lambda: nl.while_loop(nisa.register_alloc(1), lambda r: r)), f"nl.while_loop {ORDERED}"),
    ],
)
def test_how_a_loop_cannot_be_left_or_entered(kernel: Callable[..., Any], message: str) -> None:
    assert message in refused(kernel)


def test_continue_inner_breaks_and_blocks_in_the_body_are_fine() -> None:
    def kernel(data: Any, count: Any) -> None:
        for i in nl.dynamic_range(4):
            with nl.no_reorder():
                nisa.register_move(nisa.register_alloc(0), i)
            for k in range(9):
                if k == 2:
                    break

            def helper() -> int:
                return 3

            helper()
            continue

    assert len(record(kernel).loops) == 1


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (
            lambda r: nl.fori_loop(0, 4, lambda i: 3),
            "nl.fori_loop: the body returned a int, it must return None; carry st",
        ),
        (lambda r: nl.fori_loop(0, 4, None), "nl.fori_loop: the body must be a function, got NoneType"),
        (
            lambda r: nl.fori_loop(0, 4, lambda i: None, 0),
            "nl.fori_loop: step must be a positive integer known while tra",
        ),
        (
            lambda r: nl.fori_loop(0, 4, lambda i: None, r),
            "step must be a positive integer known while tracing, got a re",
        ),
        (
            lambda r: nl.fori_loop(0.5, 4, lambda i: None),
            "nl.fori_loop: lower must be an integer or a register, got float",
        ),
        (
            lambda r: nl.fori_loop(0, nl.ndarray((1, 1), nl.int32), lambda i: None),
            "upper must be an integer or a register, got NkiTensor; a value in memory is loaded with",
        ),
        (
            lambda r: nl.while_loop(3, lambda i: i),
            "nl.while_loop: init must be a register made by nisa.register_alloc, go",
        ),
        (
            lambda r: nl.while_loop(r, lambda i: None),
            "nl.while_loop: the body returned a NoneType, it must return the regi",
        ),
        (
            lambda r: nl.dynamic_range(0, 4, -1),
            "nl.dynamic_range: step must be a positive integer known while tracing, got -1",
        ),
        (
            lambda r: nl.dynamic_range(0, 4, r),
            "nl.dynamic_range: step must be a positive integer known while tracing, got",
        ),
        (lambda r: nl.dynamic_range("4"), "nl.dynamic_range: stop must be an integer or a register, got str"),
        (
            lambda r: nl.fori_loop(0, 4, lambda i: nisa.register_move(i, 3)),
            "register_move: dst is the induction variable of a device-side loop, which cannot be written; move it to a",
        ),
        (
            lambda r: [nisa.register_load(i, nl.ndarray((1, 1), nl.int32)) for i in nl.dynamic_range(3)],
            "register_load: dst is the induction variable of a device-side loop, which cannot be written; move it to a",
        ),
    ],
)
def test_what_loops_refuse(use: Callable[[Any], Any], message: str) -> None:
    assert message in refused(lambda data, count: use(nisa.register_alloc(1)))


@pytest.mark.parametrize(
    ("call", "name", "since", "before"),
    [
        (lambda: fori_loop(0, 4, lambda i: None), "fori_loop", "0.6", "0.5"),
        (lambda: while_loop(nisa.register_alloc(1), lambda r: r), "while_loop", "0.6", "0.5"),
        (lambda: dynamic_range(4), "dynamic_range", "0.3", "0.2"),
    ],
)
def test_since_when_there_are_loops(call: Callable[[], Any], name: str, since: str, before: str) -> None:
    record(lambda data, count: call(), release=since)
    message = refused(lambda data, count: call(), release=before)
    assert message == f"nl.{name} exists since NKI {since}, this kernel is judged by {before}"


def test_a_write_to_an_induction_variable_had_no_effect_before_0_4() -> None:
    def kernel(data: Any, count: Any) -> None:
        for i in nl.dynamic_range(3):
            nisa.register_move(i, 5)

    program = record(kernel, release="0.3")
    assert opcodes(program) == []
    assert events(program, "note") == [
        UNTRACKED,
        "register_move writes to the induction variable of a loop, which has no effect",
    ]


def test_an_induction_variable_is_no_offset_in_0_3() -> None:
    def kernel(data: Any, count: Any) -> None:
        for i in nl.dynamic_range(3):
            data.ap([[32, 1], [1, 32]], scalar_offset=i)

    assert "is a plain scalar until NKI 0.4" in refused(kernel, release="0.3")
    record(kernel, release="0.4")


def test_a_tensor_made_in_a_body_is_local() -> None:
    def kernel(data: Any, count: Any) -> None:
        outer = nl.ndarray((64, 32), nl.float32, nl.sbuf)
        made = []

        def body(i: Any) -> None:
            made.append(nl.ndarray((64, 32), nl.float32, nl.sbuf))
            nisa.dma_copy(dst=made[0], src=data)
            nisa.tensor_copy(dst=outer, src=made[0])

        nl.fori_loop(0, 4, body)
        nisa.tensor_copy(dst=outer, src=outer)
        nisa.tensor_copy(dst=outer, src=made[0])

    found = events(record(kernel), "note")
    assert found == ["tensor_copy: src was made in the body of nl.fori_loop and is used outside of it"]


def test_the_experimental_while_loop_is_the_same() -> None:
    finders = list(sys.meta_path)
    with patch.dict(sys.modules):
        assert modules.install().experimental.while_loop is while_loop
    sys.meta_path[:] = finders


def test_a_generator_of_the_kernel_has_its_own_places() -> None:
    def tiles(data: Any) -> Any:
        while True:
            nisa.memset(nl.ndarray((1, 1), nl.float32), 0.0)
            yield

    def kernel(data: Any, count: Any) -> None:
        made = tiles(data)
        next(made)
        next(made)

    program = record(kernel)
    first, second = (program.places[instruction.place] for instruction in program)
    assert first[0] == second[0] and first[1].line + 1 == second[1].line


# --- operands -----------------------------------------------------------------------------------------------------


def test_the_mode_of_the_call_is_that_of_its_dynamic_operands() -> None:
    def kernel(data: Any, count: Any) -> None:
        tile, index = nl.ndarray((32, 32), nl.float32), nl.ndarray((32, 1), nl.int32)
        nisa.dma_copy(dst=tile, src=data.vector_select(0, index), oob_mode=nisa.oob_mode.skip)
        nisa.dma_copy(dst=tile, src=data.vector_select(0, index))
        nisa.dma_copy(tile, data.vector_select(0, index), oob_mode=nisa.oob_mode.error)

    found = [instruction.operands["src"].index for instruction in record(kernel)]  # type: ignore[union-attr]
    assert [index.oob for index in found if index] == ["skip", "error", "error"]


def test_the_group_of_a_view_made_by_indirect_is_that_of_the_engine() -> None:
    def kernel(data: Any, count: Any) -> None:
        tile, index = nl.ndarray((32, 64), nl.bfloat16), nl.ndarray((32, 4), nl.int32)
        out, acc = nl.ndarray((32, 32), nl.bfloat16), nl.ndarray((32, 32), nl.float32, nl.psum)
        nisa.tensor_copy(dst=out, src=tile.indirect(index, 32), engine=nisa.engine.vector)
        nisa.nc_matmul(dst=acc, stationary=tile[:, 0:32], moving=tile.indirect(index, 32))

    copied, product = record(kernel, target="trn3")
    assert copied.operands["src"].index.group == 16  # type: ignore[union-attr]
    assert product.operands["moving"].index.group == 32  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("use", "found"),
    [
        (lambda t, one: t[:, 0:8].ap([[64, 32], [1, 8]], scalar_offset=one, indirect_dim=1), []),
        (
            lambda t, one: t.ap([[64, 32], [1, 65]], scalar_offset=one, indirect_dim=1),
            [(115, "src elements 0..65 lie outs")],
        ),
        (lambda t, one: t.ap([[64, 32], [1, 8]], offset=60, scalar_offset=one, indirect_dim=1), []),
        (
            lambda t, one: t.ap([[64, 32], [1, 8]], scalar_offset=one),
            [(90, "src has a device-side offset along its partit")],
        ),
        (
            lambda t, one: t.select(1, nl.ndarray((1, 2), nl.int32)),
            [(84, "src takes its offset from a tile of 2 elements, m")],
        ),
        (
            lambda t, one: t.select(1, nl.ndarray((1, 1), nl.int16)),
            [(46, "src takes its offset from a tile of dtype int16, ")],
        ),
        (
            lambda t, one: t.select(1, nl.ndarray((1, 1), nl.float32)),
            [(46, "src index dtype float32 is not allowed, expect")],
        ),
        (
            lambda t, one: t.select(1, nl.ndarray((1, 1), nl.int32, nl.hbm)),
            [(84, "src takes its offset from HBM, it must be in SBUF")],
        ),
        (lambda t, one: t.select(1, nisa.register_alloc(2)), []),
    ],
)
def test_where_a_dynamic_operand_may_lie(use: Callable[..., Any], found: list[tuple[int, str]]) -> None:
    def kernel(data: Any, count: Any) -> None:
        tile, one = nl.ndarray((32, 64), nl.float32), nl.ndarray((1, 1), nl.uint32)
        src = use(tile, one)
        nisa.tensor_copy(dst=nl.ndarray(src.shape, nl.float32), src=src)

    judged = violations(kernel)
    assert [number for number, _ in judged] == [number for number, _ in found], judged
    for (_, text), (_, start) in zip(judged, found, strict=True):
        assert text.startswith(f"tensor_copy: {start}"), text


def test_only_the_extent_of_a_moved_view_in_hbm_is_judged() -> None:
    def kernel(data: Any, count: Any) -> None:
        one = nl.ndarray((1, 1), nl.int32)
        tile = nl.ndarray((128, 32), nl.float32)
        nisa.dma_copy(dst=tile[0:64], src=data.ap([[32, 64], [1, 32]], offset=512, scalar_offset=one))
        nisa.dma_copy(dst=tile, src=data.ap([[32, 128], [1, 32]], scalar_offset=one))

    expected = [(115, "dma_copy: src reaches over 4096 elements of data, which has 2048")]
    assert violations(kernel) == expected


# --- dependencies and schedules ------------------------------------------------------------------------------------


def test_depends_on_adds_edges() -> None:
    def kernel(data: Any, count: Any) -> None:
        tile = nl.ndarray((64, 32), nl.float32)
        first = nisa.memset(tile, 0.0)
        second = nisa.memset(tile, 1.0)
        third = nisa.memset(tile, 2.0)
        assert third.depends_on(first, second) is third
        second.depends_on(first).depends_on(first)

    assert [instruction.depends_on for instruction in record(kernel)] == [(), (0,), (0, 1)]


def _into(data: Any, count: Any) -> None:
    tile = nl.ndarray((64, 32), nl.float32)
    first = nisa.memset(tile, 0.0)
    for _ in nl.dynamic_range(3):
        nisa.memset(tile, 1.0).depends_on(first)


def _out_of(data: Any, count: Any) -> None:
    tile = nl.ndarray((64, 32), nl.float32)
    inner = [nisa.memset(tile, 1.0) for _ in nl.dynamic_range(3)]
    nisa.memset(tile, 0.0).depends_on(*inner)


def _across(data: Any, count: Any) -> None:
    tile = nl.ndarray((64, 32), nl.float32)
    inner = [nisa.memset(tile, 1.0) for _ in nl.dynamic_range(3)]
    for _ in nl.dynamic_range(3):
        nisa.memset(tile, 0.0).depends_on(*inner)


def _backwards(data: Any, count: Any) -> None:
    tile = nl.ndarray((64, 32), nl.float32)
    first, second = nisa.memset(tile, 0.0), nisa.memset(tile, 0.0)
    first.depends_on(second)


def _of_itself(data: Any, count: Any) -> None:
    only = nisa.memset(nl.ndarray((64, 32), nl.float32), 0.0)
    only.depends_on(only)


INSIDE = "NkiInstruction.depends_on: the producer lies inside a device-side loop that the consumer is outside of; both"


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (_out_of, INSIDE),
        (_across, INSIDE),
        (_of_itself, "NkiInstruction.depends_on: an instruction cannot wait for itself"),
        (
            lambda data, count: nisa.memset(nl.ndarray((1, 1), nl.float32), 0.0).depends_on(data),
            "NkiInstruction.depends_on takes instructions, got NkiTensor",
        ),
    ],
)
def test_a_dependency_stays_within_its_loops(kernel: Callable[..., Any], message: str) -> None:
    record(_into)
    assert refused(kernel).startswith(message)


def test_depends_on_exists_since_0_6() -> None:
    message = "NkiInstruction.depends_on exists since NKI 0.6, this kernel is judged by 0.5"
    assert refused(_backwards, release="0.5") == message


def named(data: Any, count: Any) -> None:
    """nki/guides/how-to-scheduling-apis.rst, "Adding dependency edges"."""
    tile = nl.ndarray((64, 32), nl.float32)
    other = nl.ndarray((64, 32), nl.float32)
    nisa.reciprocal(dst=tile, data=tile, name="recip")
    nisa.tensor_scalar(dst=other, data=other, op0=nl.add, operand0=1, name="plus1")
    nisa.memset(other, 0.0, name="clear")
    nisa.memset(tile, 0.0, name="twice")
    nisa.memset(tile, 0.0, name="twice")
    for _ in nl.dynamic_range(3):
        nisa.memset(tile, 0.0, name="inner")
    nisa.memset(tile, 0.0, name="after")


@pytest.mark.oracle("nki.kernel.with_schedule")
def test_a_schedule_adds_dependencies_by_name() -> None:
    kernel = jit(named).with_schedule([("plus1", "recip"), ("clear", ["recip", "plus1"])])
    assert isinstance(kernel, Kernel)
    for lnc in (1, 2):
        program = record(kernel.function, lnc=lnc)
        half = len(program) // lnc
        for core in range(lnc):
            waits = [instruction.depends_on for instruction in program][core * half :][:half]
            at = core * half
            assert waits[:4] == [(), (at,), (at, at + 1), ()] and not any(waits[4:])


def test_a_dependency_may_name_what_is_recorded_later() -> None:
    program = record(jit(named).with_schedule([("recip", "plus1")]).function)
    assert [instruction.depends_on for instruction in program][:3] == [(1,), (), ()]
    program = record(_backwards)
    assert [instruction.depends_on for instruction in program] == [(1,), ()]


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (
            [("plus1", "recipe")],
            "with_schedule: no instruction has the name 'recipe', exactly one must have it",
        ),
        (
            [("twice", "recip")],
            "with_schedule: 2 instructions have the name 'twice', exactly one must have it",
        ),
        (
            [("recip", "recip")],
            "with_schedule: 'recip': an instruction cannot wait for itself",
        ),
        (
            [("after", "inner")],
            "with_schedule: 'after': the producer lies inside a device-side loop that the consumer is",
        ),
    ],
)
def test_a_schedule_that_does_not_fit(schedule: Any, message: str) -> None:
    assert refused(jit(named).with_schedule(schedule).function).startswith(message)


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (
            "plus1",
            "with_schedule takes a list of .consumer, producer. pairs of instruction names, got 'plus1'",
        ),
        (
            [("a",)],
            r"with_schedule: \('a',\) is no pair of a consumer's name and the name, or a list of names, of its",
        ),
        ([("a", 3)], r"with_schedule: \('a', 3\) is no pair"),
        ([("a", ["b", 3])], r"with_schedule: \('a', \['b', 3\]\) is no pair"),
    ],
)
def test_a_schedule_that_is_malformed(schedule: Any, message: str) -> None:
    with pytest.raises(Refusal, match=message):
        jit(named).with_schedule(schedule)


def test_a_nested_kernel_is_inlined_and_noted() -> None:
    inner = jit(named).with_schedule([("plus1", "recip")])

    def kernel(data: Any, count: Any) -> None:
        inner(data, count)

    program = record(kernel)
    assert opcodes(program)[:2] == ["reciprocal", "tensor_scalar"]
    assert not any(instruction.depends_on for instruction in program)
    assert events(program, "note") == [
        "kernel named is called from another kernel and inlined; the migration guide asks to take nki.jit off inner "
        "functions",
        "the schedule of the inlined kernel named is not applied",
    ]


@pytest.mark.oracle("nki.jit")
def test_what_jit_takes_depends_on_the_release() -> None:
    message = "nki.jit: platform_target= is refused since NKI 0.3; set the target outside the kernel"
    with pytest.raises(Refusal, match=message):
        jit(named, platform_target="trn2")
    for release, accepted in (("0.2", True), ("0.3", False), ("0.6", False)):
        with loading(Trace("trn2", Release.parse(release))):
            assert isinstance(jit(mode="trace")(named), Kernel)
            if accepted:
                assert isinstance(jit(named, platform_target="trn2"), Kernel)
                continue
            with pytest.raises(Refusal, match=message):
                jit(named, platform_target="trn2")


def test_a_program_with_many_dependencies_is_built_in_one_pass() -> None:
    trace = Trace("trn2", Release(0, 6))
    call = trace.builder.call("memset", (), {})
    with trace.builder.stream():
        for index in range(50_000):
            trace.builder.record(call, (), -1)
            if index:
                trace.builder.depend(index, (index - 1,))
    program = trace.builder.finish(Header("k", "trn2", "0.6"))
    assert program.columns.dependency.tolist() == list(range(49_999))
    assert np.diff(program.columns.dependency_at).tolist() == [0, *[1] * 49_999]


def test_a_register_of_the_trace() -> None:
    def kernel(data: Any, count: Any) -> None:
        assert repr(nisa.register_alloc(1)) == "VirtualRegister(0)"
        for i in nl.dynamic_range(3):
            assert type(i) is VirtualRegister and repr(i) == "VirtualRegister(1, frozen)"

    record(kernel)


# --- on data ------------------------------------------------------------------------------------------------------


def zeroed(shape: tuple[int, ...]) -> Any:
    out = nl.ndarray(shape, nl.float32, nl.shared_hbm)
    tile = nl.ndarray(shape, nl.float32)
    nisa.memset(tile, 0.0)
    nisa.dma_copy(dst=out, src=tile)
    return out


@pytest.mark.oracle("nl.fori_loop", "NkiTensor.ap", "nisa.register_load")
@pytest.mark.parametrize("count", [0, 1, 5, 32])
def test_a_counted_loop_copies_that_many_elements(count: int) -> None:
    def kernel(data: Any, counts: Any) -> Any:
        upper, temp, out = loaded(counts), nl.ndarray((1, 1), nl.float32), zeroed((1, 32))

        def body(i: Any) -> None:
            nisa.dma_copy(dst=temp, src=data.ap([[1, 1], [1, 1]], scalar_offset=i, indirect_dim=1))
            nisa.dma_copy(dst=out.ap([[1, 1], [1, 1]], scalar_offset=i, indirect_dim=1), src=temp)

        nl.fori_loop(0, upper, body)
        return out

    expected = np.where(np.arange(32) < count, DATA[0], 0)[None]
    assert np.array_equal(run(kernel, count), expected)


@pytest.mark.oracle("nl.dynamic_range", "NkiTensor.__getitem__", "nl.ds")
@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_dynamic_range_steps(count: int) -> None:
    def kernel(data: Any, counts: Any) -> Any:
        upper, out = loaded(counts), zeroed((64, 32))
        for i in nl.dynamic_range(0, upper):
            for k in nl.dynamic_range(3, 12, 4):
                tile = nl.ndarray((2, 32), nl.float32)
                nisa.dma_copy(dst=tile, src=data[nl.ds(k, 2), :])
                nisa.dma_copy(dst=out[nl.ds(i, 2), :], src=tile)
        return out

    expected = np.zeros((64, 32), np.float32)
    for i in range(count):
        for k in range(3, 12, 4):
            expected[i : i + 2] = DATA[k : k + 2]
    assert np.array_equal(run(kernel, count), expected)


def _while_loop(reg: Any, step: Callable[[Any], None]) -> None:
    def body(r: Any) -> Any:
        step(r)
        return r

    nl.while_loop(reg, body)


def _bare_while(reg: Any, step: Callable[[Any], None]) -> None:
    while reg:
        step(reg)


@pytest.mark.oracle("nl.while_loop", "nisa.VirtualRegister", "nisa.register_load", "nisa.register_alloc")
@pytest.mark.parametrize("loop", [_while_loop, _bare_while])
@pytest.mark.parametrize("count", [0, 1, 6])
def test_a_while_loop_counts_down(loop: Callable[..., None], count: int) -> None:
    """acc += data[0, 0] while the count in SBUF is counted down, as in the documented example."""

    def kernel(data: Any, counts: Any) -> Any:
        held, acc = nl.ndarray((1, 1), nl.int32), nl.ndarray((1, 1), nl.float32)
        value, out = nl.ndarray((1, 1), nl.float32), nl.ndarray((1, 1), nl.float32, nl.shared_hbm)
        nisa.dma_copy(dst=held, src=counts)
        nisa.dma_copy(dst=value, src=data[0:1, 2:3])
        nisa.memset(acc, 0.0)
        reg = nisa.register_alloc()
        nisa.register_load(reg, held)

        def step(register: Any) -> None:
            nisa.tensor_tensor(dst=acc, data1=acc, data2=value, op=nl.add)
            nisa.tensor_scalar(dst=held, data=held, op0=nl.subtract, operand0=1)
            nisa.register_load(register, held)

        loop(reg, step)
        nisa.dma_copy(dst=out, src=acc)
        return out

    assert run(kernel, count).item() == count * DATA[0, 2]


@pytest.mark.oracle(
    "NkiTensor.select", "NkiTensor.vector_select", "nisa.register_move", "nisa.register_store"
)
@pytest.mark.parametrize("at", [0, 7, 31])
def test_dynamic_selects_on_data(at: int) -> None:
    """Row `at` by a tile, column `at` by a register that went through memory, and rows 0, 2, 4, ... by a vector."""

    def kernel(data: Any, counts: Any) -> Any:
        one, again = nl.ndarray((1, 1), nl.int32), nl.ndarray((1, 1), nl.int32)
        nisa.dma_copy(dst=one, src=counts)
        register, copied = nisa.register_alloc(), nisa.register_alloc()
        nisa.register_load(register, one)
        nisa.register_move(copied, register)
        nisa.register_store(again, copied)
        whole, gathered = nl.ndarray((64, 32), nl.float32), nl.ndarray((32, 32), nl.float32)
        out, index = nl.ndarray((64, 34), nl.float32, nl.shared_hbm), nl.ndarray((32, 1), nl.int32)
        nisa.dma_copy(dst=whole, src=data)
        nisa.iota(index, [[1, 1]], channel_multiplier=2)
        nisa.dma_copy(dst=gathered, src=data.vector_select(0, index))
        nisa.dma_copy(dst=out[0:32, 0:32], src=gathered)
        nisa.dma_copy(dst=out[32:64, 0:32], src=gathered)
        nisa.dma_copy(dst=out[40:41, 0:32], src=data.select(0, again).expand_dim(0))
        column = nl.ndarray((64, 1), nl.float32)
        nisa.tensor_copy(dst=column, src=whole.select(1, copied))
        nisa.dma_copy(dst=out[:, 32:33], src=column)
        nisa.tensor_copy(dst=column, src=whole[:, copied])
        nisa.dma_copy(dst=out[:, 33:34], src=column)
        return out

    found = run(kernel, at)
    expected = np.concatenate([np.tile(DATA[::2], (2, 1)), DATA[:, [at]], DATA[:, [at]]], axis=1)
    expected[40, :32] = DATA[at]
    assert np.array_equal(found, expected)
