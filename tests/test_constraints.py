"""What is said to hold each constraint: limits cite it, the tracer refuses or records it, verify judges it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from nl_kernels import nisa, nl, record, sample

from nkireview.isa.constraints import Constraint, constraints
from nkireview.isa.table import ROWS
from nkireview.nki.errors import Refusal
from nkireview.nki.jit import jit
from nkireview.rules.catalogue import RULES


def said(holder: str) -> set[int]:
    """The constraints that `holder` is said to hold under their own number."""
    return {number for number, item in constraints().items() if holder in item.by}


def test_limits_cite_the_constraints_that_limits_hold() -> None:
    cited = {limit.number for row in ROWS.values() for limit in row.limits} - {0}
    assert cited <= said("limit")
    for number in said("limit") - cited:
        others = [int(other) for other in re.findall(r"\d+", constraints()[number].why)]
        assert any(other in cited for other in others), f"{number} is held by no limit, nor one that it names"


def test_rules_that_hold_constraints_exist() -> None:
    named = {name for item in constraints().values() for name in item.by if name.startswith("NKR")}
    assert named <= {rule.code for rule in RULES}


def tile(*shape: int, dtype: Any = None, buffer: Any = None) -> Any:
    return nl.ndarray(shape or (64, 40), dtype or nl.float32, buffer or nl.sbuf)


def one() -> Any:
    return tile(1, 1, dtype=nl.int32)


def loop_in_order(t: Any) -> None:
    with nl.no_reorder():
        nl.fori_loop(0, 4, lambda i: None)


def written_induction(t: Any) -> None:
    nl.fori_loop(0, 4, lambda i: nisa.register_move(i, 1))


def nested(t: Any) -> None:
    for _ in nl.dynamic_range(0, 2):
        for _ in nl.dynamic_range(0, 2):
            pass


def kept_from_a_loop(t: Any) -> None:
    made: list[Any] = []
    nl.fori_loop(0, 4, lambda i: made.append(tile()))
    nisa.tensor_copy(dst=tile(), src=made[0])


def waits_across(t: Any) -> None:
    inside: list[Any] = []
    nl.fori_loop(0, 4, lambda i: inside.append(nisa.memset(tile(), 0.0)))
    nisa.memset(tile(), 0.0).depends_on(inside[0])


@jit
def inner(t: Any) -> None:
    nisa.memset(t, 0.0)


def seeded(t: Any) -> None:
    seed = one()
    nisa.memset(seed, 1)
    nl.random_seed(seed)


def twice_indexed(t: Any) -> None:
    hbm = tile(8, 4, buffer=nl.shared_hbm)
    hbm.select(0, one()).select(0, one())


def sliced_index(t: Any) -> None:
    tile(8, 4, buffer=nl.shared_hbm).vector_select(0, tile(8, 1, dtype=nl.int32)).slice(0, 0, 4)


def viewed_index(t: Any) -> None:
    tile(8, 4, buffer=nl.shared_hbm).vector_select(0, tile(8, 1, dtype=nl.int32)).view(nl.int8)


def pointed(offset: int = 0, leading: int = 4, **more: Any) -> Callable[[Any], None]:
    def kernel(t: Any) -> None:
        hbm = tile(8, 4, buffer=nl.shared_hbm)
        given = {name: make() for name, make in more.items()}
        hbm.ap([[leading, 8], [1, 4]], offset=offset, **given)

    return kernel


def column() -> Any:
    return tile(8, 1, dtype=nl.int32)


def view_of_a_view(t: Any) -> None:
    tile(8, 4, buffer=nl.shared_hbm)[2:4].ap([[4, 2], [1, 4]], offset=0)


def offset_on_chip(t: Any) -> None:
    tile(8, 4).ap([[4, 8], [1, 2]], offset=1, scalar_offset=one(), indirect_dim=1)


def decided(t: Any) -> None:
    if nisa.register_alloc(1):
        pass


TRACED: list[tuple[int, Callable[[Any], Any], str]] = [
    (7, lambda t: t[None], "an on-chip tensor takes no new axis before its partition dimension"),
    (7, lambda t: t.permute((1, 0)), "permute(1, 0) moves the partition dimension of an on-chip tensor"),
    *(
        (55, lambda t, name=name: getattr(nl, name)(t, t), f"nl.{name} is not supported on hardware")
        for name in ("divide", "mod", "fmod")
    ),
    (56, lambda t: nl.power(t, 2.0), "nl.power: both sides must be tiles; a number as exponent"),
    (57, lambda t: nl.matmul(t, t), "nl.matmul: transpose_x=False is not supported on hardware"),
    (
        58,
        lambda t: nl.add(t, t[:, 0:1]),
        "nl.add: shapes (64, 40) and (64, 1) differ; nl functions do not broadcast",
    ),
    (
        83,
        pointed(scalar_offset=one, vector_offset=column),
        "ap takes scalar_offset or vector_offset, not both",
    ),
    (
        84,
        pointed(vector_offset=column, indirect_dim=lambda: 1),
        "ap: vector_offset needs indirect_dim=0, got 1",
    ),
    (
        85,
        pointed(leading=8, vector_offset=column),
        "ap(vector_offset=) ignores the leading stride 8 of its pattern, it steps by 4",
    ),
    (90, twice_indexed, "is indirect already (is_indirect()), it takes one device-side index only"),
    (
        90,
        sliced_index,
        "is indexed on the device and cannot be sliced or selected again",
    ),
    (91, viewed_index, "of the indirect tensor"),
    (92, view_of_a_view, "ap(offset=) replaces the offset of the view it is called on"),
    (93, offset_on_chip, "ap(offset=) with scalar_offset on chip is reported to use an absolute address"),
    (98, lambda t: nisa.memset(t, 0.0, mask=1), "memset: unknown argument 'mask', expected"),
    (99, lambda t: nisa.memset(t, 0.0, engine=5), "is a raw integer for"),
    (
        99,
        lambda t: nl.ndarray((4, 4), nl.float32, "sbuf"),
        "nl.ndarray: the string 'sbuf' for buffer was taken before NKI 0.3",
    ),
    (100, inner, "kernel inner is called from another kernel and inlined"),
    (101, loop_in_order, "nl.fori_loop is not possible inside nl.no_reorder"),
    (102, lambda t: nl.fori_loop(0, 4, lambda i: None, step=0), "step must be a positive integer"),
    (102, lambda t: nl.fori_loop(0, 4, lambda i: i), "nl.fori_loop: the body returned a VirtualRegister"),
    (102, written_induction, "is the induction variable of a device-side loop, which cannot be written"),
    (103, decided, "a register has no value while the kernel is traced, the truth"),
    (103, lambda t: int(nisa.register_alloc(1)), "a register has no value while the kernel is traced, int()"),
    (
        104,
        nested,
        "nested nl.dynamic_range: with values carried between iterations it fails to compile in NKI 0.4 to 0.6",
    ),
    (
        105,
        kept_from_a_loop,
        "tensor_copy: src was made in the body of nl.fori_loop and is used outside of it",
    ),
    (107, waits_across, "the producer lies inside a device-side loop that the consumer is outside of"),
    (122, seeded, "nl.random_seed may not reach the generator of nl.rand before NeuronCore-v4"),
]


def traced(use: Callable[[Any], Any], target: str = "trn2") -> str:
    """What the tracer says of a use of a (64, 40) tile: its refusal, or its events."""

    def kernel(data: Any) -> Any:
        loaded = tile()
        nisa.dma_copy(dst=loaded, src=data)
        use(loaded)
        return loaded

    try:
        program = record(kernel, [sample()], target=target)
    except Refusal as refusal:
        return str(refusal)
    return "; ".join(event.detail for event in program.events)


@pytest.mark.parametrize(
    ("number", "use", "text"), TRACED, ids=lambda value: value if isinstance(value, int) else ""
)
def test_the_tracer_refuses_or_records(number: int, use: Callable[[Any], Any], text: str) -> None:
    assert text in traced(use)
    assert "trace" in constraints()[number].by


def test_every_constraint_held_by_the_tracer_is_shown() -> None:
    assert {number for number, _, _ in TRACED} == said("trace")


@pytest.mark.parametrize(
    "use",
    [
        lambda t: t[0:1],
        lambda t: nl.add(t, 2.0),
        pointed(scalar_offset=one),
        pointed(vector_offset=column),
        lambda t: nl.fori_loop(0, 4, lambda i: None, step=1),
    ],
)
def test_the_tracer_says_nothing_of_what_is_legal(use: Callable[[Any], Any]) -> None:
    assert traced(use) == ""


def test_a_seed_reaches_the_generator_of_v4() -> None:
    assert traced(seeded, "trn3") == ""


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "X"}, "constraint 1: kind 'X' is not one of C, R, W, S"),
        ({"by": ("nobody",)}, "constraint 1: 'nobody' is no holder and no rule"),
        ({"by": ()}, "constraint 1 is held by nothing and does not say why"),
    ],
)
def test_a_wrong_constraint_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        Constraint(**{"number": 1, "kind": "C", "text": "Text.", "by": ("limit",), **fields})
