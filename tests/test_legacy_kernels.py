"""Kernels of the legacy generation from host code: decorators, what ran them on a device, allocators, targets."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from test_exec import run

from nkireview.execute import execute
from nkireview.hosted import launch as launching
from nkireview.hosted.arguments import Arguments
from nkireview.hosted.launch import launch
from nkireview.isa.release import LEGACY
from nkireview.nki import isa as current_isa
from nkireview.nki import jit as current_jit
from nkireview.nki import launch as shared
from nkireview.nki.errors import NotYetSupported, Refusal
from nkireview.nki.jit import Kernel
from nkireview.nki.legacy import compiler, isa, kernels, language
from nkireview.nki.legacy.front import entry_of, run_instances
from nkireview.nki.legacy.loops import LaunchGrid
from nkireview.nki.legacy.modules import TypingTensor, module, mutable
from nkireview.nki.trace import Trace
from nkireview.program.model import Header
from nkireview.program.program import Program
from nkireview.program.verify import verify

nl: Any = module("language", **language.namespace())
nisa: Any = module("isa", **isa.namespace())
ncc: Any = module("compiler", **compiler.namespace())
DECORATORS = ("jit", "trace", "nki_jit", "baremetal", "benchmark", "profile")


@pytest.fixture(autouse=True)
def hosted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process in which kernels are launched, with nothing set in its environment."""
    for name in ("NEURON_PLATFORM_TARGET_OVERRIDE", "NKI_NC_VERSION", "NKIREVIEW_TARGET", "NKIREVIEW_NKI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(current_jit, "host", launch)
    monkeypatch.setattr(launching, "_told", set())
    yield


def numbers(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def doubled(x: Any) -> Any:
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x) * 2.0)
    return out


def tiled(x: Any) -> Any:
    """Twice x [rows, columns], by tiles of [128, 64] over a grid of two dimensions."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    i = nl.program_id(0) * 128 + nl.arange(128)[:, None]
    j = nl.program_id(1) * 64 + nl.arange(64)[None, :]
    nl.store(out[i, j], nl.load(x[i, j]) * 2.0)
    return out


def fresh(function: Any) -> Any:
    """A function of its own, for decorators mark what they are given."""

    @functools.wraps(function)
    def copy(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return copy


# decorators


@pytest.mark.parametrize("mode", kernels.MODES)
@pytest.mark.oracle("nki.jit")
def test_every_mode_runs_on_arrays(mode: str) -> None:
    x = numbers(128, 32)
    assert np.array_equal(kernels.jit(mode=mode)(fresh(doubled))(x), 2 * x)
    assert np.array_equal(kernels.jit(fresh(doubled), mode=mode)(x), 2 * x)


@pytest.mark.parametrize("name", DECORATORS)
def test_every_decorator_takes_its_function_in_every_way(name: str) -> None:
    decorate, x = getattr(kernels, name), numbers(128, 32)
    for kernel in (
        decorate(fresh(doubled)),
        decorate()(fresh(doubled)),
        decorate(func=fresh(doubled)),
        decorate(kernel=fresh(doubled)),
        decorate(warmup=5, iters=10, save_neff_name="file.neff", artifacts_dir="nowhere")(fresh(doubled)),
        decorate(kernels.jit(fresh(doubled))),
    ):
        assert np.array_equal(kernel(x), 2 * x)
        assert kernel.__name__ == "doubled" and kernels.is_legacy(kernel.function)


@pytest.mark.parametrize("name", DECORATORS)
def test_a_mode_that_there_is_not(name: str) -> None:
    with pytest.raises(Refusal) as error:
        getattr(kernels, name)(fresh(doubled), mode="gpu")
    assert str(error.value) == (
        f"nki.{name}: mode must be one of auto, jax, torchxla, baremetal, benchmark, simulation, trace, got 'gpu'"
    )


def test_what_is_no_function() -> None:
    with pytest.raises(Refusal) as error:
        kernels.jit(3)
    assert str(error.value) == "nki.jit takes a function, got int"


@pytest.mark.parametrize("name", DECORATORS)
def test_directives_stand_above_or_below(name: str) -> None:
    x, decorate = numbers(128, 32), getattr(kernels, name)
    for directive in ("skip_middle_end_transformations", "enable_stack_allocator", "force_auto_alloc"):
        marked = getattr(ncc, directive)
        for kernel in (
            marked(decorate(fresh(doubled))),
            decorate(marked(fresh(doubled))),
            marked(log_level=50)(decorate(fresh(doubled))),
        ):
            assert isinstance(kernel, Kernel) and np.array_equal(kernel(x), 2 * x)
            assert getattr(kernel.function, compiler.DIRECTIVES) == {directive}
            assert kernel.__name__ == "doubled"


def test_a_method_is_a_kernel() -> None:
    class Scale:
        factor = 3.0

        @kernels.jit
        def kernel(self, x: Any) -> Any:
            out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
            nl.store(out, nl.load(x) * self.factor)
            return out

    x = numbers(128, 32)
    assert np.array_equal(Scale().kernel(x), np.float32(3) * x)


# what ran kernels on a device


@pytest.mark.parametrize(
    "decorate",
    [kernels.benchmark, kernels.benchmark(warmup=1, iters=2), kernels.profile, kernels.jit(mode="benchmark")],
)
def test_a_benchmark_runs_and_has_no_times(decorate: Any) -> None:
    x, kernel = numbers(128, 32), decorate(fresh(doubled))
    assert np.array_equal(kernel(x), 2 * x)
    with pytest.raises(Refusal) as error:
        kernel.benchmark_result.nc_latency.get_latency_percentile(50)
    assert str(error.value) == (
        "nki.benchmark measures on a device, which is not here; nkireview review predicts the time of a kernel"
    )
    with pytest.raises(Refusal, match="^nki.benchmark measures on a device"):
        kernel[2, 2].benchmark_result  # noqa: B018


def test_the_folder_of_a_profile_is_not_made(tmp_path: Path) -> None:
    folder = tmp_path / "profiles"
    kernel = kernels.profile(
        working_directory=str(folder), save_neff_name="a.neff", save_trace_name="a.ntff", profile_nth=2
    )(fresh(doubled))
    x = numbers(128, 32)
    assert np.array_equal(kernel(x), 2 * x) and not folder.exists()


def test_simulate_kernel_takes_plain_and_decorated_kernels_and_grids() -> None:
    x = numbers(256, 128)
    small = np.ascontiguousarray(x[:128, :64])
    assert np.array_equal(kernels.simulate_kernel(fresh(doubled), small), 2 * small)
    assert np.array_equal(kernels.simulate_kernel(kernels.jit(fresh(doubled)), small), 2 * small)
    assert np.array_equal(kernels.simulate_kernel(kernels.jit(fresh(tiled))[2, 2], x), 2 * x)
    assert np.array_equal(kernels.jit(fresh(tiled))[2, 2](x), 2 * x)
    # each core takes one row of tiles
    assert np.array_equal(kernels.jit(fresh(tiled))[nl.nc(2), 2](x), 2 * x)


def test_simulate_kernel_writes_results_that_are_arguments_in_place() -> None:
    def kernel(x: Any, out: Any, sums: Any) -> None:
        tile = nl.load(x)
        nl.store(out, tile * 2.0)
        nl.store(sums, nl.sum(tile, axis=1, keepdims=True))

    x, out, sums = numbers(128, 32), np.zeros((128, 32), np.float32), np.zeros((128, 1), np.float32)
    before = x.copy()
    kernels.simulate_kernel(kernel, x, out, sums=sums)
    assert np.array_equal(out, 2 * x) and np.array_equal(x, before)
    assert np.allclose(sums[:, 0], x.sum(axis=1, dtype=np.float64), rtol=1e-5, atol=1e-5)


def test_tensors_of_torch_come_back_as_such() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    x = torch.arange(128 * 8, dtype=torch.float32).reshape(128, 8)
    found = kernels.jit(fresh(doubled))(x)
    assert isinstance(found, torch.Tensor) and torch.equal(found, x * 2)


# targets


@pytest.mark.parametrize(
    ("decorated", "variable", "wanted"),
    [
        (None, "", "gen3"),
        ("trn1", "", "gen2"),
        ("trn1", "trn2", "gen3"),
        (None, "trn1", "gen2"),
        (None, "inf2", "gen2"),
    ],
)
def test_the_target_is_the_variables_the_decorators_or_trn2(
    monkeypatch: pytest.MonkeyPatch, decorated: str | None, variable: str, wanted: str
) -> None:
    seen = []

    def kernel(x: Any) -> Any:
        seen.append(nisa.get_nc_version().name)
        return doubled(x)

    if variable:
        monkeypatch.setenv("NKIREVIEW_TARGET", variable)
    kernels.jit(kernel, **({"platform_target": decorated} if decorated else {}))(numbers(128, 8))
    assert seen == [wanted]


def test_a_target_that_there_is_not() -> None:
    with pytest.raises(
        Refusal, match="^platform_target is 'trn9', expected one of trn1, inf2, trn2, trn3, gen2"
    ):
        kernels.jit(fresh(doubled), platform_target="trn9")(numbers(128, 8))


# generations


def names_legacy() -> Any:
    return nl.load


def imports_current() -> None:
    import nki.language  # noqa: F401


def imports_legacy_inside() -> Any:
    def inner() -> None:
        import neuronxcc.nki.isa  # noqa: F401

    return inner


def names_nothing(nki: Any) -> Any:
    return nki.language.load


@pytest.mark.parametrize(
    ("function", "wanted"),
    [
        (names_legacy, ["neuronxcc.nki.language"]),
        (imports_current, ["nki.language"]),
        (imports_legacy_inside, ["neuronxcc.nki.isa"]),
        (names_nothing, []),
        (len, []),
    ],
)
def test_the_modules_that_code_names(function: Any, wanted: list[str]) -> None:
    assert list(kernels.modules(function)) == wanted
    assert kernels.generation(function) == ("legacy" if wanted and "neuronxcc" in wanted[0] else "current")


def test_members_of_the_old_package_count_too() -> None:
    space: dict[str, Any] = {"load": nl.load}
    exec("def kernel(x):\n    return load(x)\n", space)
    assert kernels.generation(space["kernel"]) == "legacy"


def test_a_kernel_of_torch_is_of_the_generation_that_it_names() -> None:
    assert isinstance(kernels.nki_jit_of_torch(names_legacy), kernels.LegacyKernel)
    assert isinstance(kernels.nki_jit_of_torch()(names_legacy), kernels.LegacyKernel)
    plain = kernels.nki_jit_of_torch(fresh(len))
    assert isinstance(plain, Kernel) and not isinstance(plain, kernels.LegacyKernel)


def test_a_mixture_is_named() -> None:
    with pytest.raises(Refusal) as error:
        kernels.generation(kernels.jit(imports_current))
    assert str(error.value) == (
        "kernel imports_current mixes two generations of NKI, which are two compilers: it uses neuronxcc.nki.jit, "
        "nki.language"
    )


def test_the_entry_of_a_kernel_keeps_its_grid() -> None:
    kernel = kernels.benchmark(warmup=1)(fresh(doubled))[4, 2]
    entry = entry_of(kernel)
    assert (entry.function, entry.grid, entry.legacy) == (kernel.function, (4, 2), True)
    bound = entry_of(functools.partial(kernel, 1))
    assert isinstance(bound.function, functools.partial) and bound.function.func is kernel.function
    assert (bound.grid, bound.legacy) == ((4, 2), True)


def test_annotations_say_what_may_be_written() -> None:
    plain, written = TypingTensor(), TypingTensor(mutable=True)

    def kernel(a: plain, b: written, c: written[2, 3], d: "nt.mutable_tensor", e) -> None: ...  # type: ignore # noqa: F821, UP037

    kernel.__annotations__.update(a=plain, b=written, c=written[2, 3], d="nt.mutable_tensor")
    assert [mutable(kernel, name) for name in "abcde"] == [False, True, True, True, False]
    assert (written | None) is written and (None | plain) is plain and written() is written


def test_a_name_that_the_old_package_lacks() -> None:
    held = module("language", **language.namespace())
    assert isinstance(held, ModuleType)
    with pytest.raises(NotYetSupported, match=r"^not yet supported: neuronxcc\.nki\.language\.no_such_name$"):
        held.no_such_name  # noqa: B018
    with pytest.raises(AttributeError, match="__wrapped__"):
        held.__wrapped__  # noqa: B018


# allocation by hand


def traced(kernel: Any, *arrays: NDArray[Any], grid: Any = None) -> Program:
    launched = LaunchGrid.of(grid)
    state = Trace("trn2", LEGACY, launched.lnc, launched.shape)
    taken = Arguments(arrays, {}, ("x", "y"))
    buffers = taken.declare(state)
    returned = run_instances(
        state, launched, kernel, lambda: taken.rebuilt(state, buffers), shared.run_kernel
    )
    header = Header(
        "kernel", "trn2", str(LEGACY), launched.lnc, launched.shape, sources=tuple(state.places.sources)
    )
    outputs = tuple(shared.outputs(state, returned, dict(enumerate(taken.paths))))
    return state.builder.finish(header, taken.tree, outputs)


def addresses(program: Program, memory: str) -> list[tuple[int, int] | None]:
    held = (program.buffer(at) for at in range(len(program.columns.buffer_memory)))
    return [buffer.address for buffer in held if buffer.memory.value == memory]


def by_blocks(allocator: Any, blocks: tuple[int, ...], dtype: Any = np.float32, width: int = 512) -> Any:
    """A kernel that fills every block of a tensor and copies the last one out."""

    def kernel(x: Any) -> Any:
        out = nl.ndarray((128, width), dtype=nl.float32, buffer=nl.shared_hbm)
        held = nl.ndarray((*blocks, nl.par_dim(128), width), dtype=dtype, buffer=allocator())
        for at in np.ndindex(*blocks):
            held[at] = nl.copy(nl.load(x))
        nl.store(out, held[at])
        return out

    return kernel


def test_modulo_allocation_in_sbuf_is_as_documented() -> None:
    """The table of nki/api/nki/compiler/sbuf.py at tag v2.26.1: 0, 1024, 0, 1024 for (4, 128, 512) bfloat16."""
    kernel = by_blocks(lambda: ncc.sbuf.mod_alloc(base_addr=0, num_free_tiles=(2,)), (4,), nl.bfloat16)
    found = [at for at in addresses(traced(kernel, numbers(128, 512)), "sbuf") if at is not None]
    assert found == [(0, 0), (0, 1024), (0, 0), (0, 1024)]


def test_modulo_allocation_over_two_block_dimensions() -> None:
    """By hand, base + ((i % 2) * 3 + j % 3) * 2048: the public function linearises the remainders."""
    kernel = by_blocks(lambda: ncc.sbuf.mod_alloc(base_addr=4096, num_free_tiles=(2, 3)), (4, 3))
    found = [at for at in addresses(traced(kernel, numbers(128, 512)), "sbuf") if at is not None]
    assert found == [(0, 4096 + ((i % 2) * 3 + j) * 2048) for i in range(4) for j in range(3)]


def test_modulo_allocation_in_psum_is_as_documented() -> None:
    """The table of nki/api/nki/compiler/psum.py at tag v2.26.1: banks 0, 1, 0, 1, of 2048 bytes."""
    kernel = by_blocks(lambda: ncc.psum.mod_alloc(base_bank=0, base_addr=0, num_bank_tiles=(2,)), (4,))
    assert addresses(traced(kernel, numbers(128, 512)), "psum") == [(0, 0), (0, 2048), (0, 0), (0, 2048)]


def test_functions_place_tiles() -> None:
    asked = []

    def sbuf(idx: Any, pdim_size: int, fdim_size: int) -> tuple[int, int]:
        asked.append((idx, pdim_size, fdim_size))
        return 0, 8192 * (1 + idx[0])

    def psum(idx: Any, pdim_size: int, fdim_size: int, *, banks: Any) -> tuple[int, int, int]:
        return banks[idx], 0, 0

    program = traced(by_blocks(lambda: ncc.sbuf.alloc(sbuf), (2,)), numbers(128, 512))
    assert [at for at in addresses(program, "sbuf") if at] == [(0, 8192), (0, 16384)]
    assert asked == [((0,), 128, 2048), ((1,), 128, 2048)]
    placed = functools.partial(psum, banks={(0,): 3, (1,): 7})
    program = traced(by_blocks(lambda: ncc.psum.alloc(placed), (2,)), numbers(128, 512))
    assert addresses(program, "psum") == [(0, 3 * 2048), (0, 7 * 2048)]


def test_automatic_allocation_gives_no_address() -> None:
    for allocator in (ncc.sbuf.auto_alloc, ncc.psum.auto_alloc):
        program = traced(by_blocks(allocator, (2,)), numbers(128, 512))
        assert set(addresses(program, "sbuf") + addresses(program, "psum")) == {None}


def test_force_auto_alloc_leaves_addresses_to_the_compiler() -> None:
    kernel = by_blocks(lambda: ncc.sbuf.mod_alloc(base_addr=0), (2,))
    assert any(addresses(traced(kernel, numbers(128, 512)), "sbuf"))
    assert not any(addresses(traced(ncc.force_auto_alloc(kernel), numbers(128, 512)), "sbuf"))


def test_a_tensor_without_blocks_has_one_tile_whatever_the_counts_say() -> None:
    """As in nki-samples' attention_kernels.py, whose allocator always gives num_free_tiles a size."""

    def kernel(x: Any) -> Any:
        out = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.shared_hbm)
        held = nl.ndarray(
            (nl.par_dim(128), 64), nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=256, num_free_tiles=(4,))
        )
        held[...] = nl.load(x)
        nl.store(out, held)
        return out

    assert addresses(traced(kernel, numbers(128, 64)), "sbuf") == [(0, 256)]


def test_an_address_counted_up_in_a_loop_is_that_of_the_first_pass_in_all() -> None:
    """As in nki-samples' allocated_attention.py, whose loop body adds the size of each of its tensors to an address.

    By hand: each pass of the outer loop has tensors at 0, in two unrolled steps at 256 and 512, and in both passes of
    the inner loop at 768.
    """

    def kernel(x: Any) -> Any:
        out = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.shared_hbm)
        address = 0

        def held() -> Any:
            nonlocal address
            made = nl.ndarray((128, 64), nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=address))
            address += 256
            made[...] = nl.load(x)
            return made

        for _outer in nl.affine_range(3):
            made = held()
            for _step in nl.static_range(2):
                made = held()
            for _inner in nl.sequential_range(2):
                made = held()
        nl.store(out, made)
        return out

    found = [at[1] for at in addresses(traced(kernel, numbers(128, 64)), "sbuf") if at]
    assert found == [0, 256, 512, 768, 768] * 3


def test_loops_one_after_another_have_addresses_of_their_own() -> None:
    def kernel(x: Any) -> Any:
        out = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.shared_hbm)
        for base in (0, 4096):
            for _pass in nl.affine_range(2):
                held = nl.ndarray((128, 64), nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=base))
                held[...] = nl.load(x)
        nl.store(out, held)
        return out

    assert addresses(traced(kernel, numbers(128, 64)), "sbuf") == [(0, 0), (0, 0), (0, 4096), (0, 4096)]


@pytest.mark.parametrize(
    ("allocator", "sentence"),
    [
        (
            lambda: ncc.sbuf.mod_alloc(base_addr=0, num_free_tiles=(2,)),
            "num_free_tiles has 1 sizes, the tensor has 2 block dimensions",
        ),
        (
            lambda: ncc.psum.mod_alloc(base_bank=0, num_bank_tiles=(1, 2, 3)),
            "num_bank_tiles has 3 sizes, the tensor has 2 block dimensions",
        ),
        (
            lambda: ncc.sbuf.alloc(lambda idx, pdim_size, fdim_size: 1024),
            "ncc.sbuf.alloc: the function must return (start_partition, byte_addr), integers from 0 on, got 1024",
        ),
        (
            lambda: ncc.sbuf.alloc(lambda idx, pdim_size, fdim_size: (0, -4)),
            "ncc.sbuf.alloc: the function must return (start_partition, byte_addr), integers from 0 on, got (0, -4)",
        ),
        (
            lambda: ncc.psum.alloc(lambda idx, pdim_size, fdim_size: (0, 0)),
            "ncc.psum.alloc: the function must return (bank_id, start_partition, byte_addr), integers from 0 on, got "
            "(0, 0)",
        ),
    ],
)
def test_what_places_no_tile_is_said(allocator: Any, sentence: str) -> None:
    with pytest.raises(Refusal) as error:
        traced(by_blocks(allocator, (2, 2)), numbers(128, 512))
    assert str(error.value) == sentence


def test_directives_of_a_loop_order_what_is_inside() -> None:
    def kernel(x: Any, ordered: bool) -> Any:
        out = nl.ndarray((4, 128, 64), dtype=nl.float32, buffer=nl.shared_hbm)
        for i in nl.sequential_range(4, directives=ncc.no_reorder() if ordered else ncc.multi_buffer(2)):
            nl.store(out[i], nl.load(x))
        return out

    for ordered in (False, True):
        program = traced(functools.partial(kernel, ordered=ordered), numbers(128, 64))
        # 8 instructions in a row: each but the first waits for the one before
        assert len(program.columns.dependency) == (7 if ordered else 0)


# what the front records


def test_shared_outputs_of_instances_are_one_and_their_tiles_are_not() -> None:
    x = numbers(256, 128)
    program = traced(tiled, x, grid=(nl.nc(2), 2))
    assert [(each.core, each.instance) for each in program.streams] == [(0, 0), (0, 1), (1, 2), (1, 3)]
    held = [program.buffer(at) for at in range(len(program.columns.buffer_memory))]
    assert [b.shape for b in held if b.memory.value == "shared_hbm"] == [(256, 128)] * 2
    assert [b.core for b in held if b.memory.value == "sbuf"] == [0, 0, 0, 0, 1, 1, 1, 1]
    (output,) = execute(program, {0: x}).outputs
    assert np.array_equal(output.values, 2 * x)


@pytest.mark.oracle("nisa.tensor_reduce")
@pytest.mark.parametrize("columns", [1, 2, 3, 4, 5, 8])
def test_a_negated_reduction_into_a_column(columns: int) -> None:
    """NumPy 2.4 negates in place wrongly where elements lie 16 bytes apart."""

    def kernel(x: Any) -> Any:
        out = nl.ndarray((128, columns), dtype=nl.float32, buffer=nl.shared_hbm)
        held = nl.ndarray((nl.par_dim(128), columns), dtype=nl.float32, buffer=nl.sbuf)
        tile, row = nl.load(x), nl.arange(128)[:, None]
        for i in nl.affine_range(columns):
            part = tile[row, nl.arange(16)[None, :] + 16 * i]
            held[row, i] = nisa.tensor_reduce(np.max, data=part, axis=(1,), negate=True)
        nl.store(out, held)
        return out

    x = numbers(128, 16 * columns)
    wanted = -x.reshape(128, columns, 16).max(axis=2)
    assert np.array_equal(kernels.simulate_kernel(kernel, x), wanted)


def test_a_script_of_the_legacy_generation_runs(tmp_path: Path) -> None:
    script = """
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import numpy as np
from neuronxcc.nki import benchmark
from torch_neuronx import nki_jit


@nki_jit
def kernel(x, out):
    i = nl.program_id(0) * 128 + nl.arange(128)[:, None]
    j = nl.arange(64)[None, :]
    nl.store(out[i, j], nl.load(x[i, j]) + 1.0)


bench = benchmark(warmup=5, iters=10)(kernel)
x, out = np.ones((256, 64), np.float32), np.zeros((256, 64), np.float32)
nki.simulate_kernel(kernel[2], x, out)
print(out.sum())
bench[2](x, out)
try:
    bench.benchmark_result.nc_latency.get_latency_percentile(99)
except TypeError as error:
    print(error)
"""
    (tmp_path / "script.py").write_text(script, encoding="utf-8")
    found = run("script.py", cwd=tmp_path)
    assert found.stdout.splitlines() == [
        str(2.0 * 256 * 64),
        "nki.benchmark measures on a device, which is not here; nkireview review predicts the time of a kernel",
    ], found.stderr
    assert found.returncode == 0 and not found.stderr
    assert "neuronxcc" not in sys.modules and current_isa is not None


@pytest.mark.oracle("nl.matmul")
def test_a_transpose_is_multiplied_as_it_comes() -> None:
    """As in nki-samples' attn_fwd_v1: nl.transpose leaves its result in PSUM, where a matmul takes no operand."""

    def kernel(x: Any, y: Any) -> Any:
        out = nl.ndarray((64, 32), dtype=nl.float32, buffer=nl.shared_hbm)
        nl.store(out, nl.matmul(nl.load(x), nl.transpose(nl.load(y)), transpose_x=False))
        return out

    x, y = numbers(64, 128), numbers(32, 128, seed=1)
    wanted = x.astype(np.float64) @ y.astype(np.float64).T
    assert np.allclose(kernels.simulate_kernel(kernel, x, y), wanted, rtol=1e-5, atol=1e-4)
    assert not verify(traced(kernel, x, y))


# how numbers are kept


def thirds(x: Any) -> Any:
    """x / 3 * 3 by results of calls, and the same through a declared tile."""
    plain = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    declared = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    third = nisa.tensor_scalar(nl.load(x), np.multiply, 1 / 3, dtype=nl.bfloat16)
    tile = nl.ndarray(x.shape, dtype=nl.bfloat16, buffer=nl.sbuf)
    tile[...] = nisa.tensor_scalar(nl.load(x), np.multiply, 1 / 3, dtype=nl.bfloat16)
    nl.store(plain, third)
    nl.store(declared, tile)
    return plain, declared


@pytest.mark.parametrize(("word", "plain"), [(None, np.float32(1 / 3)), ("1", 171 / 512)])
def test_what_a_call_returns_is_rounded_where_it_is_assigned(
    word: str | None, plain: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NKI_PRECISE_FP", raising=False)
    if word is not None:
        monkeypatch.setenv("NKI_PRECISE_FP", word)
    # the bfloat16 nearest to 1/3 is 171/512
    found, rounded = kernels.simulate_kernel(fresh(thirds), np.ones((2, 4), np.float32))
    assert (found == plain).all()
    assert (rounded == 171 / 512).all()


def turned(x: Any) -> Any:
    """Results of bfloat16 that are moved, transposed, read as bits, multiplied and reduced."""
    half = nisa.tensor_scalar(nl.load(x), np.multiply, 1 / 3, dtype=nl.bfloat16)
    outputs = [
        nisa.nc_transpose(half),
        nl.copy(half),
        nl.matmul(half, half),
        nisa.tensor_reduce(np.add, half, axis=[1], dtype=nl.float32),
        nl.copy(half, dtype=nl.float16),
        half.view(nl.uint16),
    ]
    found = []
    for tile in outputs:
        out = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
        nl.store(out, tile)
        found.append(out)
    return found


def test_results_that_keep_more_than_their_dtype_move_like_any_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NKI_PRECISE_FP", raising=False)
    x = numbers(64, 64)
    found = kernels.simulate_kernel(fresh(turned), x)
    third = x.astype(np.float64) / 3
    expected = [third.T, third, third @ third, third.sum(axis=1, keepdims=True), third]
    for out, wanted in zip(found, expected, strict=False):
        np.testing.assert_allclose(out.astype(np.float64), wanted, rtol=2**-8, atol=2**-6)
    assert found[-1].dtype == np.uint16


def test_what_host_code_reads_of_its_machine(tmp_path: Path) -> None:
    script = "print(open('/sys/devices/virtual/dmi/id/product_name').readline().strip().split('.')[0])"
    for target in ("trn1", "trn2", "trn3"):
        assert run("--target", target, "-c", script, cwd=tmp_path).stdout == f"{target}\n"
