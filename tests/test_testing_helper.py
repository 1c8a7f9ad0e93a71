"""`nkireview.testing.assert_matches`: what passes, what is said where it does not, and what is no call."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from execute_kit import Kernel
from numpy.typing import NDArray

from nkireview.nki import isa, jit, language
from nkireview.testing import assert_matches

ROOT = Path(__file__).resolve().parent.parent
Array = NDArray[Any]
nl: Any = language.module("nki.language")
nisa: Any = isa.module("nki.isa")
HERE = Path(__file__).name
ROWS, COLUMNS = 128, 64


def drawn(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def normalised(x: Any, before: bool, eps: float) -> Any:
    """x / sqrt(mean(x^2) + eps) by row, or eps added to the root."""
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    square = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.sbuf)
    mean = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
    result = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.activation(dst=square, op=nl.square, data=tile)
    nisa.tensor_reduce(dst=mean, op=nl.add, data=square, axis=1)
    nisa.tensor_scalar(dst=mean, data=mean, op0=nl.multiply, operand0=1.0 / columns)
    if before:
        nisa.tensor_scalar(dst=mean, data=mean, op0=nl.add, operand0=eps)
    nisa.activation(dst=mean, op=nl.sqrt, data=mean)
    if not before:
        nisa.tensor_scalar(dst=mean, data=mean, op0=nl.add, operand0=eps)
    nisa.reciprocal(dst=mean, data=mean)
    nisa.tensor_scalar(dst=result, data=tile, op0=nl.multiply, operand0=mean)
    nisa.dma_copy(dst=out, src=result)
    return out


@jit.jit
def right(x: Any, eps: float = 1e-6) -> Any:
    return normalised(x, True, eps)


@jit.jit
def wrong(x: Any, eps: float = 1e-6) -> Any:
    return normalised(x, False, eps)


def rmsnorm(x: Array, eps: float = 1e-6) -> Array:
    """Oracle, from the formula."""
    found: Array = x / np.sqrt(np.mean(np.square(x), axis=1, keepdims=True) + eps)
    return found


ROOT_LINE = next(
    at
    for at, line in enumerate(Path(__file__).read_text(encoding="utf-8").splitlines(), 1)
    if "op=nl.sqrt" in line
)


def failing(*args: Any, **kwargs: Any) -> str:
    with pytest.raises(AssertionError) as caught:
        assert_matches(*args, **kwargs)
    return str(caught.value)


# What passes


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_a_right_kernel_passes_and_its_diagnosis_is_returned(dtype: Any) -> None:
    found = assert_matches(right, rmsnorm, [drawn(ROWS, COLUMNS).astype(dtype)])
    assert found.verdict == "rounding" and found.outputs[0].use <= 1
    # the reference saw float64: its result is that of the formula on the same values, unrounded
    wanted = rmsnorm(drawn(ROWS, COLUMNS).astype(dtype).astype(np.float64))
    at = found.outputs[0].index
    assert found.outputs[0].wanted == wanted[at]


def test_arguments_go_by_name_too_and_scalars_with_them() -> None:
    x = drawn(ROWS, COLUMNS)
    assert assert_matches(right, rmsnorm, {"x": x, "eps": 0.25}).verdict == "rounding"
    assert "8,192 of 8,192" in failing(right, lambda x, eps: rmsnorm(x, 0.5), {"x": x, "eps": 0.25})
    assert assert_matches(right, rmsnorm, [x, 0.25]).verdict == "rounding"


def test_inputs_can_be_drawn_from_a_seed() -> None:
    seen: list[Array] = []

    def watching(x: Array) -> Array:
        seen.append(x)
        return rmsnorm(x)

    for seed in (0, 0, 1):
        assert_matches(right, watching, ["bf16[128, 64]"], seed=seed)
    assert seen[0].shape == (128, 64) and seen[0].dtype == np.float64
    assert np.array_equal(seen[0], seen[1]) and not np.array_equal(seen[0], seen[2])


def test_expected_arrays_may_stand_for_a_reference() -> None:
    x = drawn(ROWS, COLUMNS)
    wanted = rmsnorm(x.astype(np.float64))
    assert assert_matches(right, wanted, [x]).verdict == "rounding"
    assert assert_matches(right, [wanted], [x]).verdict == "rounding"
    wanted[3, 5] *= 1.01
    assert "1 of 8,192 elements exceed what rounding explains" in failing(right, wanted, [x])


def test_a_reference_that_takes_no_float64_is_called_with_what_the_kernel_gets() -> None:
    def strict(x: Array) -> Array:
        if x.dtype != np.float32:
            raise TypeError("float32 only")
        return rmsnorm(x.astype(np.float64))

    found = assert_matches(right, strict, [drawn(ROWS, COLUMNS)])
    assert found.skipped == ("the reference computed in the dtypes of its inputs, as it failed in float64",)


def test_what_a_reference_raises_is_its_own() -> None:
    def broken(x: Array) -> Array:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        assert_matches(right, broken, [drawn(ROWS, COLUMNS)])


def test_a_reference_may_not_change_what_the_kernel_gets() -> None:
    x = drawn(ROWS, COLUMNS)
    before = x.copy()

    def greedy(given: Array) -> Array:
        found = rmsnorm(given.copy())
        given[...] = 0
        return found

    assert_matches(right, greedy, [x])
    assert np.array_equal(x, before)


def test_a_program_is_taken_as_it_is() -> None:
    x, y = drawn(16, 8), drawn(16, 8, seed=1)
    kernel = Kernel()
    first, second = kernel.load(x), kernel.load(y)
    total = kernel.sbuf(16, 8)
    kernel.call("tensor_tensor", dst=total, data1=first, data2=second, op="add")
    kernel.store(total)
    program = kernel.program()
    assert assert_matches(program, lambda a, b: a + b, [x, y]).verdict == "rounding"
    assert "elements" in failing(program, lambda a, b: a - b, [x, y])
    with pytest.raises(ValueError, match=r"the Program takes 2 arrays .*, inputs has 1"):
        assert_matches(program, lambda a: a, [x])
    with pytest.raises(
        ValueError, match=r"of the Program is float32\[16, 8\], the input is float32\[8, 16\]"
    ):
        assert_matches(program, lambda a, b: a, [x, y.T])


def test_two_cores() -> None:
    @jit.jit
    def halves(x: Any) -> Any:
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        size = x.shape[0] // nl.num_programs()
        begin = nl.program_id(0) * size
        tile = nl.ndarray((size, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[begin : begin + size, :])
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=out[begin : begin + size, :], src=tile)
        return out

    x = drawn(32, 8)
    for options in ({"lnc": 2}, {}):
        kernel: Any = halves if options else halves[2]
        assert assert_matches(kernel, lambda x: 2 * x, [x], **options).outputs[0].use == 0


# What fails


def test_a_defect_is_told_with_cause_place_pattern_and_worst_element() -> None:
    x = drawn(ROWS, COLUMNS)
    x[::4] *= 1e-6
    message = failing(wrong, rmsnorm, [x])
    first, *rest = message.splitlines()
    assert first.startswith("kernel wrong on trn2 does not match its reference: ")
    assert any(f"cause: eps-outside-root at {HERE}:{ROOT_LINE}" in line for line in rest), message
    assert "2,048 of 8,192 elements exceed what rounding explains" in message
    wanted = rmsnorm(x.astype(np.float64))
    found = re.search(r"worst at \[(\d+), (\d+)\]: (\S+) where the reference has (\S+),", message)
    assert found is not None
    row, column = int(found[1]), int(found[2])
    assert row % 4 == 0 and float(found[4]) == pytest.approx(wanted[row, column], rel=1e-8)
    assert "Traceback" not in message


def test_hostile_inputs_are_tried_besides() -> None:
    x = drawn(ROWS, COLUMNS)
    assert assert_matches(right, rmsnorm, [x], hostile=("tiny-rows", "large-mean")).verdict == "rounding"
    message = failing(wrong, rmsnorm, [x], hostile=["tiny-rows"])
    assert "does not match its reference on tiny-rows inputs: " in message and "eps-outside-root" in message


def test_a_tolerance_decides_instead_and_the_diagnosis_says_what_it_lets_through() -> None:
    x = drawn(ROWS, COLUMNS)
    x[::4] *= 1e-2
    # eps before the root is one part in 200 of those rows
    found = assert_matches(wrong, rmsnorm, [x], tolerance=(0.01, 0.0))
    assert found.verdict == "defect" and found.causes[0].name == "eps-outside-root"
    y = drawn(ROWS, COLUMNS)
    message = failing(right, rmsnorm, [y], tolerance=(0.0, 0.0))
    assert "exceeds the tolerance given, though rounding explains it: " in message
    assert "exceed rtol 0, atol 0" in message


def test_a_tolerance_is_that_of_allclose() -> None:
    x = drawn(16, 8)
    kernel = Kernel()
    kernel.store(kernel.load(x))
    wanted = x.astype(np.float64)
    wanted[2, 3] += 0.5
    program, size = kernel.program(), abs(wanted[2, 3])
    assert_matches(program, wanted, [x], tolerance=(0.0, 0.5))
    assert_matches(program, wanted, [x], tolerance=(0.4 / size, 0.1000001))
    assert "1 of 128 elements exceed rtol 0, atol 0.49" in failing(
        program, wanted, [x], tolerance=(0.0, 0.49)
    )


def test_another_shape_is_a_difference() -> None:
    message = failing(right, lambda x: rmsnorm(x).T, [drawn(ROWS, COLUMNS)])
    assert "has shape [128, 64], the reference's [64, 128]" in message


def test_a_kernel_that_has_no_meaning_fails() -> None:
    @jit.jit
    def beyond(x: Any) -> Any:
        tile = nl.ndarray((16, 8), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[0:16, :])
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=tile)
        return out

    message = failing(beyond, lambda x: x, [drawn(32, 8)])
    assert message.startswith("kernel beyond has no meaning on trn2, NKI 0.6: dma_copy: ")


def test_a_limit_that_is_broken_is_a_warning() -> None:
    @jit.jit
    def tall(x: Any) -> Any:
        tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x)
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=tile)
        return out

    with pytest.warns(UserWarning, match="kernel tall is not legal on trn2, NKI 0.6: .*256"):
        assert_matches(tall, lambda x: x, [drawn(256, 8)])


# A kernel of a file

FILE = """import nki
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
"""


@pytest.mark.parametrize("name", [":double", ""])
def test_a_kernel_of_a_file_is_traced_in_a_child(tmp_path: Path, name: str) -> None:
    path = tmp_path / "kernel.py"
    path.write_text(FILE, encoding="utf-8")
    x = drawn(16, 8)
    found = assert_matches(f"{path}{name}", lambda x: 2 * x, [x], target="trn3")
    assert found.outputs[0].use == 0
    message = failing(f"{path}{name}", lambda x: 3 * x, {"x": x})
    assert message.startswith("kernel double on trn2 does not match its reference: ")


def test_a_kernel_that_cannot_be_traced_fails(tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    path.write_text(FILE.replace("operand0=2.0", "operand0=1 / 0"), encoding="utf-8")
    message = failing(f"{path}:double", lambda x: 2 * x, [drawn(16, 8)])
    assert message.startswith("kernel double cannot be judged: ") and "kernel.py:11" in message


# What is no call


@pytest.mark.parametrize(
    ("call", "kind", "said"),
    [
        (lambda x: assert_matches(3, rmsnorm, [x]), TypeError, "int is no kernel: expected a function"),
        (lambda x: assert_matches(right, rmsnorm, x), TypeError, "inputs is a ndarray: expected a list"),
        (lambda x: assert_matches(right, None, [x]), TypeError, "the reference gave a NoneType"),
        (lambda x: assert_matches(right, [], [x]), TypeError, "the reference gave no array"),
        (lambda x: assert_matches(right, rmsnorm, [x], tolerance=1e-3), TypeError, "expected a pair"),
        (lambda x: assert_matches(right, rmsnorm, [x], tolerance=(-1, 0)), ValueError, "of at least 0"),
        (lambda x: assert_matches(right, rmsnorm, [x], hostile=("huge",)), ValueError, "hostile='huge'"),
        (lambda x: assert_matches(right, x, [x], hostile=("tiny-rows",)), ValueError, "a function"),
        (
            lambda x: assert_matches(right, rmsnorm, [x], hostile=("large-integers",)),
            ValueError,
            "none of the inputs allows it",
        ),
        (lambda x: assert_matches(right, rmsnorm, [x], target="gpu"), ValueError, "unknown target 'gpu'"),
        (lambda x: assert_matches(right, rmsnorm, [x], nki="9"), ValueError, "unknown NKI release '9'"),
        (lambda x: assert_matches(right, rmsnorm, [x], lnc=3), ValueError, "lnc=3: expected 1 or 2"),
        (lambda x: assert_matches(right, rmsnorm, [x], grid=(4, 2)), ValueError, "neuronxcc.nki"),
        (lambda x: assert_matches(right, rmsnorm, [x.astype(np.float64)]), ValueError, "float64"),
        (lambda x: assert_matches(right, rmsnorm, ["f33[4]"]), ValueError, "f33"),
        (lambda x: assert_matches("kernel:f", rmsnorm, [x]), ValueError, "expected file.py:kernel"),
        (lambda x: assert_matches("none.py:f", rmsnorm, [x]), ValueError, "none.py: no such file"),
    ],
)
def test_a_wrong_call_is_one_sentence(call: Callable[[Array], Any], kind: type[Exception], said: str) -> None:
    with pytest.raises(kind) as caught:
        call(drawn(ROWS, COLUMNS))
    assert said in str(caught.value) and "\n" not in str(caught.value)


# A suite of a user

PAGE = (ROOT / "docs" / "numerics.md").read_text(encoding="utf-8")


def page_files(folder: Path) -> list[str]:
    """Write the files of the page, and name them."""
    files = re.findall(r"`(\w+\.py)`[^`]*```python\n(.*?)```", PAGE, flags=re.S)
    for name, body in files:
        (folder / name).write_text(body, encoding="utf-8")
    return [name for name, _ in files]


def test_the_suite_of_the_page_passes_and_fails_where_the_kernel_is_wrong(tmp_path: Path) -> None:
    assert {"kernel.py", "reference.py", "test_kernel.py"} <= set(page_files(tmp_path))
    call = [sys.executable, "-m", "nkireview", "exec", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 failed, 1 passed" in done.stdout
    # the frames of this package are hidden, so that the report ends with the diagnosis
    assert "eps-outside-root at kernel.py:" in done.stdout and "nkireview/testing.py" not in done.stdout
