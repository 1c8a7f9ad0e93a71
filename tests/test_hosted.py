"""Launching kernels from host code: arguments in, arrays back, targets, errors with the user's line."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from nkireview.hosted import launch as launching
from nkireview.hosted import neuron_dtypes
from nkireview.hosted.arrays import host_array, result
from nkireview.hosted.errors import InvalidIndexError, InvalidKernelError
from nkireview.hosted.launch import launch
from nkireview.hosted.packed import PACKED, pack, unpack
from nkireview.hosted.settings import settings
from nkireview.hosted.simulate import simulate
from nkireview.nki import isa, jit, language
from nkireview.nki.errors import Refusal
from nkireview.nki.objects import NKIObject

nl: Any = language.module("nki.language")
nisa: Any = isa.module("nki.isa")
HERE = Path(__file__).name


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No target or release from the shell that runs the tests, and no warnings told already."""
    for name in (
        *("NEURON_PLATFORM_TARGET_OVERRIDE", "NKI_NC_VERSION"),
        *("NKIREVIEW_TARGET", "NKIREVIEW_NKI", "NKIREVIEW_DEBUG", "NKIREVIEW_STRICT", "NKI_PRECISE_FP"),
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(launching, "_told", set())
    yield


def call(kernel: Any, *args: Any, grid: Any = None, **kwargs: Any) -> Any:
    return launch(kernel, grid, args, kwargs)


def line_of(text: str) -> int:
    """The line of this file that ends with a comment."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    (found,) = [at for at, line in enumerate(lines, 1) if line.endswith(f"# {text}")]
    return found


def numbers(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def loaded(source: Any) -> Any:
    tile = nl.ndarray(source.shape, dtype=source.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=source)
    return tile


def stored(tile: Any) -> Any:
    out = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


def scaled(x: Any, factor: float = 2.0) -> Any:
    tile = loaded(x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=factor)
    return stored(tile)


@pytest.mark.oracle("nki.simulate")
def test_an_array_comes_back_in_the_dtype_of_the_kernel() -> None:
    x = numbers(16, 24)
    found = simulate(scaled)(x, factor=0.5)
    assert type(found) is np.ndarray and found.dtype == np.float32 and found.flags.writeable
    np.testing.assert_array_equal(found, x * np.float32(0.5))


def test_half_precision_keeps_every_bit() -> None:
    codes = np.arange(0, 2**15, 61, dtype=np.uint16)[:512].reshape(4, 128)
    x = codes.view(ml_dtypes.bfloat16)

    def same(x: Any) -> Any:
        return stored(loaded(x))

    np.testing.assert_array_equal(call(same, x).view(np.uint16), codes)


def test_what_is_returned_keeps_its_shape() -> None:
    def several(x: Any, *, names: list[str]) -> Any:
        tile = loaded(x)
        return [stored(tile), (stored(tile[0:2, :]), 3)], {names[0]: stored(tile), "none": None}

    x = numbers(4, 8)
    (whole, (part, three)), named = call(several, x, names=["a"])
    assert three == 3 and list(named) == ["a", "none"] and named["none"] is None
    np.testing.assert_array_equal(whole, x)
    np.testing.assert_array_equal(part, x[0:2])
    np.testing.assert_array_equal(named["a"], x)


def test_containers_and_objects_carry_arrays() -> None:
    class Config(NKIObject):
        weight: Any
        scale: float = 1.0

    @dataclasses.dataclass
    class Pair:
        left: Any
        right: Any

    def summed(config: Config, pair: Pair, more: dict[str, list[Any]], nothing: None) -> Any:
        assert nothing is None and type(config) is Config and type(pair) is Pair
        total = loaded(config.weight)
        for other in (pair.left, pair.right, more["x"][1]):
            nisa.tensor_tensor(dst=total, data1=total, data2=loaded(other), op=nl.add)
        nisa.tensor_scalar(dst=total, data=total, op0=nl.multiply, operand0=config.scale)
        return stored(total)

    a, b, c, d = (np.full((2, 4), value, np.float32) for value in (1, 2, 4, 8))
    found = call(summed, Config(weight=a, scale=10.0), Pair(b, c), {"x": ["text", d]}, None)
    np.testing.assert_array_equal(found, np.full((2, 4), 150, np.float32))


def test_arguments_that_the_kernel_writes_are_updated_in_place() -> None:
    def doubled(x: Any, untouched: Any) -> None:
        tile = loaded(x)
        nisa.tensor_tensor(dst=tile, data1=tile, data2=loaded(untouched), op=nl.add)
        nisa.dma_copy(dst=x[0:2, :], src=tile[0:2, :])

    x, other = numbers(4, 8), numbers(4, 8, seed=1)
    wanted, kept = x.copy(), other.copy()
    wanted[0:2] += other[0:2]
    assert call(doubled, x, other) is None
    np.testing.assert_array_equal(x, wanted)
    np.testing.assert_array_equal(other, kept)


def test_strided_arguments_are_read_and_updated() -> None:
    def doubled(x: Any) -> None:
        tile = loaded(x)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=x, src=tile)

    whole = numbers(8, 4)
    before = whole.copy()
    call(doubled, whole.T[:, ::2])
    np.testing.assert_array_equal(whole[::2], before[::2] * 2)
    np.testing.assert_array_equal(whole[1::2], before[1::2])


def test_an_array_that_is_passed_twice_is_one_buffer() -> None:
    def through(source: Any, target: Any) -> Any:
        tile = loaded(source)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
        nisa.dma_copy(dst=target, src=tile)
        return stored(loaded(source))

    x = np.zeros((2, 4), np.float32)
    np.testing.assert_array_equal(call(through, x, x), np.ones((2, 4), np.float32))
    y = np.zeros((2, 4), np.float32)
    np.testing.assert_array_equal(call(through, y, y.copy()), np.zeros((2, 4), np.float32))


def test_each_core_writes_its_part() -> None:
    def halves(x: Any) -> Any:
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        core, count = nl.program_id(0), nl.num_programs(0)
        rows = x.shape[0] // count
        tile = loaded(x[core * rows : (core + 1) * rows, :])
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=float(core + 1))
        nisa.dma_copy(dst=out[core * rows : (core + 1) * rows, :], src=tile)
        return out

    x = np.ones((4, 8), np.float32)
    np.testing.assert_array_equal(call(halves, x), x)
    np.testing.assert_array_equal(call(halves, x, grid=2)[:, 0], [1, 1, 2, 2])
    np.testing.assert_array_equal(simulate(halves)[2](x)[:, 0], [1, 1, 2, 2])
    np.testing.assert_array_equal(simulate(jit.Kernel(halves)[2])(x)[:, 0], [1, 1, 2, 2])
    with pytest.raises(Refusal) as refused:
        call(halves, x, grid=(2, 2))
    assert str(refused.value) == "kernel[2, 2]: the grid of this generation is LNC, 1 or 2"


def test_a_decorated_kernel_reaches_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = jit.jit(scaled)
    with pytest.raises(Refusal, match="called outside a review"):
        kernel(numbers(2, 4))
    monkeypatch.setattr(jit, "host", launch)
    x = numbers(2, 4)
    np.testing.assert_array_equal(kernel(x), x * 2)
    np.testing.assert_array_equal(kernel[1](x, 3.0), x * 3)


@pytest.mark.parametrize(
    ("environment", "target"),
    [
        ({}, "trn2"),
        ({"NKIREVIEW_TARGET": "trn3"}, "trn3"),
        ({"NKIREVIEW_TARGET": "trn3", "NKI_NC_VERSION": "gen2"}, "trn1"),
        ({"NKI_NC_VERSION": "gen2", "NEURON_PLATFORM_TARGET_OVERRIDE": "trn3"}, "trn3"),
        ({"NEURON_PLATFORM_TARGET_OVERRIDE": "GEN3"}, "trn2"),
    ],
)
def test_the_target_is_the_environments(
    environment: dict[str, str], target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert settings().target == target


def test_an_unknown_target_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NKI_NC_VERSION", "gen9")
    with pytest.raises(Refusal) as refused:
        settings()
    words = "trn1, inf2, trn2, trn3, gen2, gen3, gen4"
    assert str(refused.value) == f"NKI_NC_VERSION is 'gen9', expected one of {words}"


def test_an_index_outside_is_an_index_error_with_the_line() -> None:
    def beyond(x: Any) -> Any:
        tile = nl.ndarray((4, 8), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[1:5, :])  # beyond
        return stored(tile)

    with pytest.raises(IndexError) as refused:
        call(beyond, numbers(4, 8))
    assert isinstance(refused.value, InvalidIndexError) and isinstance(refused.value, nisa.NkiValidationError)
    assert str(refused.value) == (
        "dma_copy: src index 4 lies outside dimension 0 of x, whose shape is 4 x 8 on trn2 "
        f"({HERE}:{line_of('beyond')})"
    )
    call(lambda x: stored(loaded(x[0:4, :])), numbers(4, 8))


def test_a_limit_without_which_there_is_no_meaning_is_a_validation_error() -> None:
    def mixed(x: Any, y: Any) -> Any:
        tile = loaded(x)
        nisa.tensor_tensor(dst=tile, data1=tile, data2=loaded(y), op=nl.add)  # mixed
        return stored(tile)

    with pytest.raises(InvalidKernelError, match=f"tensor_tensor: .*{HERE}:{line_of('mixed')}"):
        call(mixed, numbers(4, 8), numbers(4, 16))
    call(mixed, numbers(4, 8), numbers(4, 8))


def test_a_limit_that_leaves_a_meaning_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    def private(x: Any) -> Any:
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.hbm)
        nisa.dma_copy(dst=out, src=loaded(x))
        return out

    x = numbers(2, 4)
    np.testing.assert_array_equal(call(private, x), x)
    first = capsys.readouterr()
    assert first.out == "" and first.err.startswith("nkireview: warning: ") and first.err.count("\n") == 1
    call(private, x)
    assert capsys.readouterr().err == ""


def test_strict_raises_for_every_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    wide, whole = numbers(129, 4), numbers(128, 4)
    np.testing.assert_array_equal(call(scaled, wide), wide * 2)
    monkeypatch.setenv("NKIREVIEW_STRICT", "1")
    with pytest.raises(InvalidKernelError, match="partition size 129 exceeds 128 on trn2"):
        call(scaled, wide)
    np.testing.assert_array_equal(call(scaled, whole), whole * 2)


def test_without_precise_formats_nothing_is_rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    def thirds(x: Any) -> Any:
        tile = loaded(x)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=1 / 3)
        nisa.dma_copy(dst=x, src=tile)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=3.0)
        return stored(tile)

    x = np.ones((1, 4), ml_dtypes.bfloat16)
    rounded = call(thirds, x.copy())
    # the bfloat16 nearest to 1/3 is 171/512; three times it is 513/512, which rounds to 1
    assert rounded.dtype == x.dtype and (rounded == 1).all()
    monkeypatch.setenv("NKI_PRECISE_FP", "0")
    exact = call(thirds, x)
    assert exact.dtype == np.float32
    np.testing.assert_allclose(exact, 1.0, rtol=1e-7)
    assert x.dtype == ml_dtypes.bfloat16 and (x.astype(np.float32) == 171 / 512).all()


def test_memory_that_is_never_written_reads_as_nan(capsys: pytest.CaptureFixture[str]) -> None:
    def part(x: Any) -> Any:
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out[0:1, :], src=loaded(x)[0:1, :])
        return out

    x = numbers(2, 4)
    found = call(part, x)
    np.testing.assert_array_equal(found[0], x[0])
    assert np.isnan(found[1]).all()
    assert "4 of 8 elements are never written" in capsys.readouterr().err


def test_a_dtype_without_an_nki_equal_is_refused() -> None:
    with pytest.raises(Refusal, match="argument x: float64 is no NKI dtype: expected one of bool_, int8"):
        call(scaled, np.zeros((2, 4)))
    call(scaled, np.zeros((2, 4), np.float16))


@pytest.mark.oracle("nl.device_print")
def test_device_print_prints_when_the_kernel_runs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def printing(x: Any) -> Any:
        tile = loaded(x)
        nl.device_print("before", tile)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
        nl.device_print("after", tile)
        return stored(tile)

    call(printing, np.array([[1, 2]], np.float32))
    assert capsys.readouterr().out == "before [[1. 2.]]\nafter [[2. 3.]]\n"
    monkeypatch.setenv("NKIREVIEW_DEBUG", "1")
    call(printing, np.array([[1, 2]], np.float32))
    assert capsys.readouterr().out == "before [[1. 2.]]\nafter [[2. 3.]]\n"


def test_debug_shows_values(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def shown(x: Any) -> Any:
        tile = loaded(x)
        print(tile)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=4.0)
        print(repr(tile[0:1, 1:2]))
        return stored(tile)

    x = np.array([[1, 2]], np.float32)
    call(shown, x)
    plain = capsys.readouterr().out
    assert plain == "NkiTensor((1, 2), float32, sbuf)\nNkiTensor((1, 1), float32, sbuf)\n"
    monkeypatch.setenv("NKIREVIEW_DEBUG", "1")
    np.testing.assert_array_equal(call(shown, x), x * 4)
    one, two = plain.splitlines()
    assert capsys.readouterr().out == f"{one}\n[[1. 2.]]\n{two}\n[[8.]]\n"


def test_debug_runs_an_open_loop_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def looped(x: Any) -> Any:
        tile = loaded(x)

        def body(i: Any) -> None:
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
            print("in", tile)

        nl.fori_loop(0, 5, body)
        print("after", tile)
        return stored(tile)

    monkeypatch.setenv("NKIREVIEW_DEBUG", "1")
    found = call(looped, np.zeros((1, 2), np.float32))
    np.testing.assert_array_equal(found, [[5, 5]])
    shown = capsys.readouterr().out.splitlines()
    assert [line for line in shown if line.startswith("[")] == ["[[1. 1.]]", "[[5. 5.]]"]


def test_debug_shows_registers(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def counted(x: Any) -> Any:
        tile = loaded(x)
        register = nisa.register_alloc(7)
        print(register)

        def body(i: Any) -> None:
            nisa.register_move(register, 9)
            print(i, register)

        nl.fori_loop(3, 5, body)
        return stored(tile)

    monkeypatch.setenv("NKIREVIEW_DEBUG", "1")
    call(counted, np.zeros((1, 2), np.float32))
    shown = capsys.readouterr().out.splitlines()
    assert shown == ["VirtualRegister(0) 7", "VirtualRegister(1, frozen) 3 VirtualRegister(0) 9"]


def test_packed_elements_hold_the_first_number_lowest() -> None:
    # e4m3fn: 1.0 is 0x38, 2.0 is 0x40, -1.0 is 0xb8, 448 is 0x7e; e2m1fn: 0.5 is 1, 1 is 2, 6 is 7, -6 is 15
    eight = pack(np.array([[1.0, 2.0, -1.0, 1e6]], np.float32), "float8_e4m3fn_x4")
    assert eight.dtype == PACKED["float8_e4m3fn_x4"] and eight.shape == (1, 1)
    assert eight.view(np.uint32).item() == 0x7EB84038
    four = pack(np.array([[0.5, 1.0, 6.0, -100.0]], np.float32), "float4_e2m1fn_x4")
    assert four.view(np.uint16).item() == 0xF721
    np.testing.assert_array_equal(unpack(eight, "float8_e4m3fn_x4"), [[1, 2, -1, 448]])
    np.testing.assert_array_equal(unpack(four, "float4_e2m1fn_x4"), [[0.5, 1, 6, -6]])
    with pytest.raises(ValueError, match="packs 4 numbers, the last axis of shape \\(2, 6\\)"):
        pack(np.zeros((2, 6), np.float32), "float8_e5m2_x4")


def test_neuron_dtypes_casts_between_all_formats() -> None:
    module: Any = neuron_dtypes.module()
    x = np.array([[1.5, -2.0, 300.0, 0.0]], np.float32)
    assert module.static_cast(x, "bfloat16").dtype == ml_dtypes.bfloat16
    assert module.static_cast(x, nl.float8_e5m2).dtype == ml_dtypes.float8_e5m2
    np.testing.assert_array_equal(module.static_cast(x, np.int32), [[1, -2, 300, 0]])
    packed = module.static_cast(x, module.float8_e4m3fn_x4)
    assert packed.shape == (1, 1) and module.sizeinbytes(packed.dtype) == 4
    back = module.static_cast(packed, nl.float8_e4m3fn)
    assert back.dtype == ml_dtypes.float8_e4m3fn
    np.testing.assert_array_equal(back.astype(np.float32), [[1.5, -2, 288, 0]])
    bits = packed.view(np.uint32)
    assert module.static_cast(bits, nl.float8_e4m3fn_x4).tobytes() == packed.tobytes()
    assert module.is_float_type(ml_dtypes.bfloat16) and module.is_float_type(np.float16)
    assert not module.is_float_type(np.int8)
    assert module.finfo("bfloat16").dtype == ml_dtypes.bfloat16


def test_packed_arrays_keep_their_dtype() -> None:
    def copied(x: Any) -> Any:
        assert x.dtype == nl.float8_e4m3fn_x4 and x.shape == (4, 8)
        return stored(loaded(x))

    x = pack(numbers(4, 32), "float8_e4m3fn_x4")
    found = call(copied, x)
    assert found.dtype == x.dtype and found.tobytes() == x.tobytes()


class TestTorch:
    """Tensors of torch, where it is installed."""

    @pytest.fixture
    def torch(self) -> Any:
        return pytest.importorskip("torch", reason="torch is not installed")

    def test_tensors_in_give_tensors_back(self, torch: Any) -> None:
        x = torch.arange(32, dtype=torch.float32).reshape(4, 8).requires_grad_()
        found = call(scaled, x)
        assert isinstance(found, torch.Tensor) and found.dtype == torch.float32
        assert torch.equal(found, x.detach() * 2)

    @pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
    def test_small_formats_keep_every_bit(self, torch: Any, name: str) -> None:
        x = torch.arange(64, dtype=torch.uint8).reshape(4, 16).view(getattr(torch, name))
        found = call(lambda x: stored(loaded(x)), x)
        assert found.dtype == x.dtype and torch.equal(found.view(torch.uint8), x.view(torch.uint8))

    def test_tensors_are_updated_in_place(self, torch: Any) -> None:
        def doubled(x: Any) -> None:
            tile = loaded(x)
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
            nisa.dma_copy(dst=x, src=tile)

        whole = torch.ones((8, 4), dtype=torch.bfloat16)
        call(doubled, whole.t()[:, 0:4])
        assert torch.equal(whole[0:4], torch.full((4, 4), 2.0, dtype=torch.bfloat16))
        assert torch.equal(whole[4:8], torch.ones((4, 4), dtype=torch.bfloat16))

    def test_formats_that_torch_lacks_come_back_as_bits(self, torch: Any) -> None:
        bits = np.array([0x7EB84038], np.uint32)
        assert result(bits, "float8_e4m3fn_x4", "torch").dtype == torch.uint32
        one = np.array([1.5], ml_dtypes.float8_e4m3)
        assert result(one, "float8_e4m3", "torch").to(torch.float32).item() == 1.5


class TestJax:
    """Arrays of jax, where it is installed."""

    def test_arrays_in_give_arrays_back(self) -> None:
        jax = pytest.importorskip("jax", reason="jax is not installed")
        x = jax.numpy.arange(32, dtype=jax.numpy.bfloat16).reshape(4, 8)
        found = call(scaled, x)
        assert isinstance(found, jax.Array) and found.dtype == x.dtype
        np.testing.assert_array_equal(np.asarray(found, np.float32), np.asarray(x, np.float32) * 2)
        array = host_array(x, "x")
        assert array is not None and array.library == "jax"
