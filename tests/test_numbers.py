"""The numbers of a workload: heat map, histogram, chosen tolerance, zeros and mutants, against counts by hand."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from execute_kit import Kernel
from numpy.typing import NDArray

sys.path.append(str(Path(__file__).resolve().parent / "numbers"))

from kit import FILES, arguments, load, traced

from nkireview.diagnosis import diagnose
from nkireview.isa import dtypes
from nkireview.numbers import numbers
from nkireview.numbers_record import NumbersRecord, OutputNumbers
from nkireview.numerics.limits import Limits, Policy, limits_for

Array = NDArray[Any]
Float64 = NDArray[np.float64]

ABOUT = {"workload": "w", "seed": 0, "inputs": "normal"}


def copied(values: Array) -> Kernel:
    kernel = Kernel()
    kernel.store(kernel.load(values))
    return kernel


def recorded(kernel: Kernel, *wanted: Array, **options: Any) -> NumbersRecord:
    return numbers(kernel.program(), kernel.arguments, wanted, **ABOUT, **options)


def one(values: Array, wanted: Array, **options: Any) -> OutputNumbers:
    """The numbers of a copy of these values."""
    return recorded(copied(values), wanted, **options).outputs[0]


def own(limits: Policy, terms: int = 1) -> list[Limits]:
    return [limits_for("float32", terms, limits)]


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


# The shape of the error


def test_a_small_heat_map_has_a_cell_for_each_element() -> None:
    values = np.full((4, 8), 1.0, np.float32)
    wanted = values.astype(np.float64)
    wanted[2, 5] += 1e-3
    found = one(values, wanted)
    heat = found.heat
    assert heat is not None
    assert (heat.rows, heat.columns, heat.row_step, heat.column_step) == (4, 8, 1, 1)
    use = np.reshape(heat.use, (4, 8))
    assert use[2, 5] == pytest.approx(found.use, rel=1e-2)
    assert (found.over, found.at, found.verdict) == (1, (2, 5), "defect")
    use[2, 5] = 0
    assert not use.any()


def test_a_large_heat_map_holds_the_worst_of_each_cell() -> None:
    """70 x 100: steps of 3 and 4, 24 and 25 cells, the last row of them one element high."""
    values = np.ones((70, 100), np.float32)
    wanted = values.astype(np.float64)
    for row, column in ((69, 99), (0, 0), (4, 7), (4, 4)):
        wanted[row, column] += 1e-3 * (1 + (column == 7))
    heat = one(values, wanted).heat
    assert heat is not None
    assert (heat.rows, heat.columns, heat.row_step, heat.column_step) == (70, 100, 3, 4)
    use = np.reshape(heat.use, (24, 25))
    assert sorted(map(tuple, np.argwhere(use > 0).tolist())) == [(0, 0), (1, 1), (23, 24)]
    assert use[1, 1] == pytest.approx(2 * use[0, 0], rel=1e-2)
    assert use[0, 0] == pytest.approx(use[23, 24], rel=1e-2)


def test_a_cell_that_is_no_number_is_marked() -> None:
    values = np.ones((2, 2), np.float32)
    values[1, 0] = np.nan
    found = one(values, np.ones((2, 2)))
    assert found.heat is not None and found.heat.use == (0.0, 0.0, -1.0, 0.0)
    assert found.use is None and found.got == "nan" and found.expected == "1.0"


@pytest.mark.parametrize(
    ("dtype", "unit", "share"),
    [("float32", 2.0**-23, 1.0), ("float16", 2.0**-10, 1.0), ("bfloat16", 2.0**-7, 0.125)],
)
def test_a_histogram_counts_errors_in_units_of_the_reference(dtype: str, unit: float, share: float) -> None:
    """Values from 1 to 2 have one unit; the errors are set by hand."""
    values = np.full((3, 4), 1.5).astype(dtypes.BY_NAME[dtype].storage)
    errors = share * np.array([0, 0.25, -0.5, 0.75, -1.0, 1.5, -3, 5, 10, -40, 60, 300])
    ulps = one(values, 1.5 + (errors * unit).reshape(3, 4)).ulps
    assert ulps is not None
    assert ulps.edges == (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 64.0, 256.0)
    by_hand = [3, 2, 1, 1, 1, 1, 2, 0, 1] if share == 1 else [7, 1, 1, 0, 2, 0, 1, 0, 0]
    assert list(ulps.counts) == by_hand


def test_integers_have_neither_histogram_nor_chosen_tolerance() -> None:
    values = np.arange(12, dtype=np.int32).reshape(3, 4)
    wanted = values.astype(np.float64)
    wanted[1, 1] += 1
    found = one(values, wanted)
    assert (found.ulps, found.chosen, found.dtype, found.verdict) == (None, None, "int32", "defect")
    assert found.over == 1 and found.heat is not None and sum(use != 0 for use in found.heat.use) == 1


# The tolerance that we would choose


def honest(name: str, shape: tuple[int, ...], dtype: str) -> tuple[Any, dict[int, Array], list[Float64]]:
    pair = load(FILES[0].parent.parent / "honest" / f"{name}.py")
    program = traced(pair, "honest", shape, dtype)
    arrays = pair.inputs(shape, dtype, 0)
    return program, arguments(program, arrays), pair.reference(arrays)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("name", "shape"), [("matmul", (256, 16, 32)), ("softmax", (64, 1024)), ("layer_norm", (64, 1024))]
)
def test_the_chosen_tolerance_covers_what_is_allowed_of_every_element(
    name: str, shape: tuple[int, ...], dtype: str
) -> None:
    program, given, wanted = honest(name, shape, dtype)
    found = numbers(program, given, wanted, **ABOUT).outputs[0]
    # the same experiments give the same tolerance
    allowed = diagnose(program, given, wanted).outputs[0].tolerance.allowed
    assert found.verdict == "rounding" and found.chosen is not None
    size = np.sqrt(np.mean(np.square(wanted[0]), axis=1, keepdims=True))
    covered = found.chosen.rtol * np.abs(wanted[0]) + found.chosen.atol * size
    assert (covered >= allowed * (1 - 1e-9)).all()
    # no looser than it must be: it is reached somewhere, up to two digits and half of a unit's own spread
    unit = dtypes.unit_roundoff(dtypes.BY_NAME[dtype])
    assert unit <= found.chosen.rtol <= 1.1 * unit
    assert (allowed / covered).max() > 0.45


def test_chosen_figures_have_two_digits() -> None:
    program, given, wanted = honest("softmax", (64, 1024), "float32")
    chosen = numbers(program, given, wanted, **ABOUT).outputs[0].chosen
    assert chosen is not None
    for figure in (chosen.rtol, chosen.atol):
        assert float(f"{figure:.1e}") == figure


# What a task's own tolerance lets through


def test_zeros_are_counted_against_the_tolerance_in_force() -> None:
    """Of 1, 2, ... 100 those may be zero that are within 0.1 x + 0.2 rms, of rms 58.17: up to 12.9."""
    values = np.arange(1, 101, dtype=np.float32).reshape(1, 100)
    rms = math.sqrt(sum(k * k for k in range(1, 101)) / 100)
    expected = sum(k <= 0.1 * k + 0.2 * rms for k in range(1, 101)) / 100
    assert expected == 0.12
    policy = Policy(rtol=0.1, atol=0.2, absolute=0.0)
    assert one(values, values.astype(np.float64), limits=own(policy)).zeros == expected


def test_zeros_of_the_reference_are_left_out_and_absolute_counts() -> None:
    values = np.array([[0, 0, 1e-6, 1, 2, 4]], np.float32)
    found = one(values, values.astype(np.float64), limits=own(Policy(rtol=0.0, atol=0.0, absolute=1.5)))
    assert found.zeros == 2 / 4
    assert one(values, values.astype(np.float64), limits=own(Policy(rtol=1.0, atol=0.0))).zeros == 1.0


def test_zeros_are_counted_by_row_where_the_tolerance_is() -> None:
    """A row a thousand times smaller: of all rms it may be zero, of its own it may not."""
    values = np.array([[1.0, -1.0, 1.0, -1.0], [1e-3, -1e-3, 1e-3, -1e-3]], np.float32)
    for per_row, expected in ((False, 0.5), (True, 0.0)):
        policy = Policy(rtol=0.0, atol=0.01, absolute=0.0, per_row=per_row)
        assert one(values, values.astype(np.float64), limits=own(policy)).zeros == expected


def test_nothing_is_said_of_zeros_where_no_tolerance_is_given_or_all_are_zero() -> None:
    values = normal(4, 4)
    assert one(values, values.astype(np.float64)).zeros is None
    nothing = np.zeros((4, 4), np.float32)
    assert one(nothing, nothing.astype(np.float64), limits=own(Policy(rtol=0.1))).zeros is None


def test_a_loose_tolerance_of_a_softmax_lets_more_through_than_a_tight_one() -> None:
    """Values near 1/1024 against 1e-2 of the largest scale: most of the output may be zero."""
    program, given, wanted = honest("softmax", (64, 1024), "float32")
    found = {}
    for name, policy in (
        ("loose", Policy(rtol=1e-2, absolute=1e-2)),
        ("tight", Policy(rtol=1e-6, atol=1e-6, absolute=0.0, per_row=True)),
    ):
        found[name] = numbers(program, given, wanted, limits=own(policy, 1024), **ABOUT)
    loose, tight = found["loose"], found["tight"]
    assert loose.own_tolerance and tight.own_tolerance
    allowed = 1e-2 * wanted[0] + 1e-2
    within = (wanted[0] <= allowed).mean()
    assert loose.outputs[0].zeros is not None and loose.outputs[0].zeros >= within > 0.9
    assert tight.outputs[0].zeros is not None and tight.outputs[0].zeros < 0.01
    assert len(loose.let_through) > len(tight.let_through)
    assert loose.noticed < tight.noticed
    assert loose.noticed + len(loose.let_through) == tight.noticed + len(tight.let_through)
    for each in loose.let_through:
        assert each.name and each.sentence


def test_without_an_own_tolerance_no_mutant_is_asked() -> None:
    values = normal(8, 8)
    found = recorded(copied(values), values.astype(np.float64))
    assert (found.own_tolerance, found.let_through, found.noticed) == (False, (), 0)


# The record


def spoilt(values: Array) -> Kernel:
    kernel = Kernel()
    narrow, wide = kernel.sbuf(*values.shape, dtype="bfloat16"), kernel.sbuf(*values.shape)
    kernel.call("tensor_scalar", dst=narrow, data=kernel.load(values), op0="multiply", operand0=1.5)
    kernel.call("tensor_scalar", dst=wide, data=narrow, op0="multiply", operand0=2.0)
    kernel.store(wide)
    return kernel


def test_the_record_tells_cause_cost_and_deviation_by_place() -> None:
    values = normal(16, 16)
    kernel = spoilt(values)
    found = recorded(kernel, values.astype(np.float64) * 3)
    program = kernel.program()
    (index,) = [at for at in range(len(program)) if program.instruction(at).immediates.get("operand0") == 1.5]
    place = program.place_text(int(program.columns.place[index]))
    assert (found.workload, found.inputs, found.seed, found.verdict) == ("w", "normal", 0, "defect")
    assert [(cause.name, cause.place) for cause in found.causes] == [("low-precision", place)]
    (cost,) = found.costs
    assert (cost.place, cost.opcode, cost.dtype, cost.instructions) == (place, "tensor_scalar", "bfloat16", 1)
    by_hand = np.abs(
        (values * np.float32(1.5)).astype(dtypes.BY_NAME["bfloat16"].storage).astype(np.float64) * 2
        - 3.0 * values
    )
    assert cost.error == pytest.approx(by_hand.max(), rel=1e-6)
    assert found.deviation.startswith(f"{place}:")
    assert found.sentence == found.causes[0].sentence


def test_the_record_survives_json() -> None:
    values = normal(8, 8)
    values[1, 1] = np.nan
    found = recorded(copied(values), np.ones((8, 8)), limits=own(Policy(rtol=1e-3)))
    assert NumbersRecord.model_validate_json(found.model_dump_json()) == found


def test_shapes_that_do_not_fit_are_refused() -> None:
    values = normal(8, 8)
    with pytest.raises(ValueError, match=r"^output out has shape \[8, 8\], the reference's \[8\]$"):
        recorded(copied(values), np.ones(8))


def test_a_full_record_has_platforms_routes_and_what_each_line_could_be() -> None:
    values = normal(16, 16)
    found = recorded(spoilt(values), values.astype(np.float64) * 3, full=True)
    names = {each.platform for each in found.platforms}
    assert {"gpu-fp32", "gpu-tf32", "gpu-fast-math", "gpu-tensor-bf16", "trn2"} <= names
    assert found.between and found.routes and found.audit
    assert any("bfloat16" in line.dtype and line.verdict for line in found.audit)
