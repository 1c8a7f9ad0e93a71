"""Kernels of the legacy generation under review: how they are found, launched, released, and what is said of them."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from nkireview.checks.api import fallback, kernel_generations
from nkireview.checks.source import choose_kernel, read_source
from nkireview.checks.subset import carried, rewritten
from nkireview.cli import main
from nkireview.isa.grid import MOST_INSTANCES, Grid
from nkireview.record import ReviewRecord
from nkireview.report.sarif import sarif
from nkireview.report.text import settings
from nkireview.requests import UsageError, from_file
from nkireview.review import review
from nkireview.runner import ForkServer
from nkireview.schedule.timing import Timing
from nkireview.tracing import trace

HEAD = """\
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import neuronxcc.nki.typing as nt
import numpy as np
from neuronxcc.nki import baremetal, benchmark, nki_jit, profile
"""
DOUBLE = '''\
def kernel(x):
    """x [128, columns] fp32: twice x."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x) * 2.0)
    return out
'''
REFERENCE = "def twice(x):\n    return 2.0 * x\n"
GRID = '''\
@nki.jit
def kernel(x):
    """x [rows, columns] fp32 by tiles of [128, 64]: twice x, a tile for each instance of a grid of two dimensions."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    i = nl.program_id(0) * 128 + nl.arange(128)[:, None]
    j = nl.program_id(1) * 64 + nl.arange(64)[None, :]
    nl.store(out[i, j], nl.load(x[i, j]) * 2.0)
    return out
'''
CURRENT = '''\
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    """x [128, columns] fp32: twice x."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=out, src=tile)
    return out
'''


def written(folder: Path, text: str, head: str = HEAD) -> Path:
    path = folder / "kernel.py"
    path.write_text(head + textwrap.dedent(text), encoding="utf-8")
    (folder / "reference.py").write_text(REFERENCE, encoding="utf-8")
    return path


def asked(path: Path, shape: str = "[128,64]", **options: Any) -> Any:
    given: dict[str, Any] = {
        "kernel": None,
        "reference": f"{path.parent / 'reference.py'}:twice",
        "inputs": (f"x=f32{shape}",),
        "inputs_from": None,
        "target": None,
        "nki": None,
        "lnc": None,
        "seed": 5,
        "seeds": 1,
    }
    return from_file(path, **{**given, **options})


def judged(server: ForkServer, path: Path, shape: str = "[128,64]", **options: Any) -> ReviewRecord:
    return review(asked(path, shape, **options), server)


def found(record: ReviewRecord, code: str) -> list[tuple[str, str]]:
    return [(f.severity.value, f.message) for f in record.findings if f.code == code]


def right(record: ReviewRecord) -> bool:
    """Acceptable, and every run as drawn within its limit."""
    runs = [run.status for run in record.runs if run.inputs == "as drawn"]
    return record.status == "acceptable" and bool(runs) and set(runs) == {"correct"}


# how a kernel is found


@pytest.mark.parametrize(
    "decorator",
    [
        "@nki.jit",
        '@nki.jit(mode="auto")',
        '@nki.jit(mode="jax")',
        '@nki.jit(mode="torchxla")',
        '@nki.jit(mode="baremetal")',
        '@nki.jit(mode="benchmark")',
        '@nki.jit(mode="simulation")',
        '@nki.jit(mode="trace")',
        "@nki.trace",
        "@nki_jit",
        "@nki_jit()",
        "@nki.nki_jit",
        "@baremetal",
        '@nki.baremetal(save_neff_name="file.neff", artifacts_dir="somewhere")',
        "@benchmark(warmup=5, iters=10)",
        "@nki.benchmark(save_trace_name='t.ntff', additional_compile_opt='-O1')",
        "@profile(working_directory='/nowhere/at/all')",
        "@nki.compiler.skip_middle_end_transformations\n@nki.jit",
        "@nki.jit\n@nki.compiler.enable_stack_allocator",
        "@nki.compiler.enable_stack_allocator(log_level=20)\n@nki.jit(additional_compile_opt='-O1')",
        "@nki.jit\n@nki.compiler.force_auto_alloc()",
        "import torch_neuronx\n@torch_neuronx.nki_jit",
        "import torch_neuronx\n@torch_neuronx.nki_jit()",
        "from torch_neuronx.xla_impl.ops import nki_jit as old\n@old",
    ],
)
def test_a_kernel_is_found_in_every_spelling(server: ForkServer, tmp_path: Path, decorator: str) -> None:
    record = judged(server, written(tmp_path, f"{decorator}\n{DOUBLE}"))
    assert right(record), record.reason or record.findings
    assert (record.subject.release.value, record.subject.kernel) == ("0.1", "kernel")


def test_a_kernel_without_a_decorator_is_of_the_generation_that_it_names(
    server: ForkServer, tmp_path: Path
) -> None:
    path = written(tmp_path, DOUBLE)
    ((_, message),) = found(judged(server, path), "NKR004")
    assert "has no kernel, that is no function decorated with nki.jit; name one of its functions" in message
    assert right(judged(server, path, kernel="kernel"))
    local = DOUBLE.replace("    out = nl", "    import neuronxcc.nki.language as nl\n    out = nl")
    assert right(judged(server, written(tmp_path, local, head=""), kernel="kernel", nki="legacy"))


@pytest.mark.parametrize(
    ("assignment", "name"),
    [
        ("bench = benchmark(warmup=5, iters=10)(kernel)", "bench"),
        ("bench = nki.benchmark(kernel)", "bench"),
        ("run = baremetal(kernel, save_neff_name='n')", "run"),
        ("traced = nki.trace(func=kernel)", "traced"),
        ("entry = nki.jit(mode='simulation')(kernel)", "entry"),
    ],
)
def test_an_object_at_the_top_of_the_file_is_a_kernel(
    server: ForkServer, tmp_path: Path, assignment: str, name: str
) -> None:
    path = written(tmp_path, f"{DOUBLE}\n{assignment}\n")
    source = read_source(path)
    assert source.kernels == ("kernel",) and source.wrapped == {name: "kernel"}
    assert source.parameters(name) == ("x",) and choose_kernel(source, None) == "kernel"
    assert right(judged(server, path, kernel=name)) and right(judged(server, path))


def test_a_method_is_a_kernel(server: ForkServer, tmp_path: Path) -> None:
    text = """
    class Scale:
        factor = 2.0

        @nki.jit
        def kernel(self, x):
            out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
            nl.store(out, nl.load(x) * self.factor)
            return out

    scale = Scale()
    """
    assert right(judged(server, written(tmp_path, text), kernel="scale.kernel"))


def test_kernels_of_one_generation_call_each_other(server: ForkServer, tmp_path: Path) -> None:
    text = """
    @nki.jit(mode='trace')
    def scaled(tile):
        return tile * 2.0

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, scaled(nl.load(x)))
        return out
    """
    record = judged(server, written(tmp_path, text), kernel="kernel")
    assert right(record) and not found(record, "NKR045")
    gridded = text.replace("scaled(nl.load(x))", "scaled[4](nl.load(x))")
    record = judged(server, written(tmp_path, gridded), kernel="kernel")
    assert found(record, "NKR004") == [
        (
            "blocker",
            "not traced: kernel scaled is called with a launch grid inside another kernel; only the outermost kernel "
            "has one (kernel.py:15)",
        )
    ]


# which release


def test_a_legacy_file_is_judged_by_its_own_release_and_that_is_said(
    server: ForkServer, tmp_path: Path
) -> None:
    path = written(tmp_path, f"@nki.jit\n{DOUBLE}")
    record = judged(server, path)
    assert record.subject.release.value == "0.1"
    assert "NKI 0.1 (the file, which imports neuronxcc.nki)" in settings(record)
    assert json.loads(sarif(record))["runs"][0]["properties"]["release"] == "0.1"
    assert json.loads(record.model_dump_json())["subject"]["release"]["value"] == "0.1"
    assert not found(record, "NKR047")


@pytest.mark.parametrize("release", ["0.4", "0.6"])
def test_a_release_that_refuses_the_legacy_generation(
    server: ForkServer, tmp_path: Path, release: str
) -> None:
    """release-notes/components/nki.rst:273."""
    record = judged(server, written(tmp_path, f"@nki.jit\n{DOUBLE}"), nki=release)
    assert record.status == "rejected"
    assert found(record, "NKR004") == [
        (
            "blocker",
            "not traced: kernel kernel is of the legacy generation (neuronxcc.nki), which the compiler of NKI "
            f"{release} refuses; judge it with --nki legacy, and see nkireview migrate-check for what has to change",
        )
    ]
    assert found(record, "NKR047")


@pytest.mark.parametrize("release", ["0.2", "0.3"])
def test_a_release_that_only_warns_of_the_legacy_generation_is_not_judged(
    server: ForkServer, tmp_path: Path, release: str
) -> None:
    record = judged(server, written(tmp_path, f"@nki.jit\n{DOUBLE}"), nki=release)
    assert record.status == "not reviewed"
    assert record.reason == (
        "not yet supported: kernel kernel, of the legacy generation (neuronxcc.nki), under NKI "
        f"{release}, which only warns of it: judge it with --nki legacy; this version cannot trace the kernel"
    )


def test_a_current_file_under_the_legacy_release_is_a_remark(server: ForkServer, tmp_path: Path) -> None:
    record = judged(server, written(tmp_path, CURRENT, head=""), nki="legacy")
    assert right(record)
    assert found(record, "NKR047") == [
        (
            "note",
            "the file imports nki, of the current generation, and the review is for release 0.1, of the legacy one "
            "(kernel.py:1)",
        )
    ]


def test_a_kernel_that_mixes_generations_is_named(server: ForkServer, tmp_path: Path) -> None:
    mixed = f"import nki.isa as nisa\n@nki.jit\n{DOUBLE}".replace(
        "nl.load(x) * 2.0", "nisa.tensor_scalar(nl.load(x), nl.multiply, 2.0)"
    )
    path = written(tmp_path, mixed)
    assert kernel_generations(read_source(path), "kernel") == {"current", "legacy"}
    for release in ("legacy", "0.6"):
        record = judged(server, path, nki=release)
        assert found(record, "NKR046") == [
            ("major", "the file imports nki (line 7) and neuronxcc.nki (line 1)")
        ]
        assert found(record, "NKR004") == [
            (
                "blocker",
                "not traced: kernel kernel mixes two generations of NKI, which are two compilers: it uses "
                "neuronxcc.nki.jit, neuronxcc.nki.language, nki.isa",
            )
        ]


@pytest.mark.parametrize("outer", ["legacy", "current"])
def test_kernels_of_two_generations_cannot_call_each_other(
    server: ForkServer, tmp_path: Path, outer: str
) -> None:
    head = "import nki\nimport nki.language as cl\n"
    head += "from neuronxcc import nki as old\nimport neuronxcc.nki.language as ol\n"
    text = """
    @nki.jit
    def current(x):
        return {0}

    @old.jit
    def legacy(x):
        return {1}
    """
    calls = {"legacy": ("cl.exp(x)", "current(ol.exp(x))"), "current": ("legacy(cl.exp(x))", "ol.exp(x)")}
    text = text.format(*calls[outer])
    nki = "legacy" if outer == "legacy" else "0.6"
    ((_, message),) = found(judged(server, written(tmp_path, text, head), kernel=outer, nki=nki), "NKR004")
    inner = {
        "legacy": "kernel current is of the current generation (nki) and is called from one of the legacy generation "
        "(neuronxcc.nki); the two cannot call each other",
        "current": "kernel legacy is of the legacy generation (neuronxcc.nki) and is called from one of the current "
        "generation (nki); the two cannot call each other",
    }[outer]
    assert inner in message


@pytest.mark.parametrize("first", ["legacy", "current"])
def test_a_file_that_falls_back_is_of_the_generation_that_it_tries_first(
    server: ForkServer, tmp_path: Path, first: str
) -> None:
    imports = {
        "legacy": "    from neuronxcc import nki\n    import neuronxcc.nki.language as nl\n",
        "current": "    import nki\n    import nki.language as nl\n",
    }
    second = "current" if first == "legacy" else "legacy"
    head = f"try:\n{imports[first]}except ImportError:\n{imports[second]}"
    path = written(
        tmp_path, f"@nki.jit\n{DOUBLE}".replace("nl.load(x) * 2.0", "nl.multiply(nl.load(x), 2.0)"), head
    )
    assert fallback(read_source(path))
    record = judged(server, path)
    assert record.subject.release.value == ("0.1" if first == "legacy" else "0.6"), record.subject
    assert right(record), record.findings
    # asked for the other one, the import that is tried first fails
    assert right(judged(server, path, nki="0.6" if first == "legacy" else "legacy"))


def test_annotations_of_the_old_package_leave_a_kernel_current(server: ForkServer, tmp_path: Path) -> None:
    path = written(tmp_path, CURRENT, head="from neuronxcc.nki.typing import tensor\n")
    record = judged(server, path)
    assert (record.subject.release.value, record.subject.release.origin) == ("0.6", "default")
    assert right(record)


def test_the_target_of_a_decorator(server: ForkServer, tmp_path: Path) -> None:
    path = written(tmp_path, f"@nki.jit(platform_target='trn1')\n{DOUBLE}")
    assert [asked(path).target.value, asked(path).target.origin] == ["trn1", "the file"]
    assert asked(path, target="trn3").target.value == "trn3"
    assert right(judged(server, path))


# launch grids


@pytest.mark.parametrize(
    ("text", "shape", "lnc", "spelled"),
    [
        ("4", (4,), 1, "4"),
        ("4,2", (4, 2), 1, "4,2"),
        (" 2 , 3,4 ", (2, 3, 4), 1, "2,3,4"),
        ("nc(2)*2,4", (4, 4), 2, "nc(2)*2,4"),
        ("3 * nl.nc(2)", (6,), 2, "3*nc(2)"),
        ("64,64", (64, 64), 1, "64,64"),
    ],
)
def test_grids_are_read(text: str, shape: tuple[int, ...], lnc: int, spelled: str) -> None:
    grid = Grid.parse(text)
    assert (grid.shape, grid.lnc, str(grid)) == (shape, lnc, spelled)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("0", "'0' is no launch grid: expected sizes such as 4,2 or, over two cores, nc(2)*2,4"),
        ("4,", "'4,' is no launch grid: expected sizes such as 4,2 or, over two cores, nc(2)*2,4"),
        ("4x2", "'4x2' is no launch grid: expected sizes such as 4,2 or, over two cores, nc(2)*2,4"),
        ("nc(3)", "'nc(3)' takes 3 cores, a launch takes at most 2"),
        ("nc(2),nc(2)", "'nc(2),nc(2)' takes 4 cores, a launch takes at most 2"),
        ("64,65", f"'64,65' has 4160 instances, at most {MOST_INSTANCES} are traced"),
    ],
)
def test_what_is_no_grid_is_said(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(sentence) + "$"):
        Grid.parse(text)
    with pytest.raises(UsageError) as error:
        asked(written(tmp_path, GRID), grid=text)
    assert str(error.value) == f"--grid: {sentence}"


def test_a_grid_runs_an_instance_for_each_of_its_elements(server: ForkServer, tmp_path: Path) -> None:
    path = written(tmp_path, GRID)
    record = judged(server, path, "[256,128]", grid="2,2")
    assert right(record) and "grid 2,2 (--grid)" in settings(record)
    assert record.counts[0].by_opcode["dma_copy"] == 8  # a load and a store for each of four
    # a tile that no instance takes stays unwritten
    short = judged(server, path, "[256,128]", grid="2,1")
    assert short.status == "rejected" and found(short, "NKR011")


def test_a_kernel_without_its_grid_is_told_to_have_one(server: ForkServer, tmp_path: Path) -> None:
    path = written(tmp_path, GRID)
    assert found(judged(server, path), "NKR004") == [
        (
            "blocker",
            "not traced: nl.program_id: there is no axis 1, for the kernel is launched without a grid; launch it over "
            "one, as kernel[4, 2] or with --grid 4,2 (kernel.py:12)",
        )
    ]
    one = judged(server, written(tmp_path, GRID.replace("nl.program_id(1)", "0")))
    said = (
        "instances beyond the first: the kernel asks for nl.program_id and is launched without a grid (give one with "
        "--grid 4,2)"
    )
    assert right(one) and said in one.not_checked and not found(one, "NKR045")
    gridded = judged(server, written(tmp_path, GRID.replace("nl.program_id(1)", "0")), grid="1")
    assert right(gridded) and said not in gridded.not_checked


def test_the_grid_that_a_file_gives_its_kernel(server: ForkServer, tmp_path: Path) -> None:
    path = written(tmp_path, f"{GRID}\nbench = benchmark(warmup=5, iters=10)(kernel)[2, 2]\n")
    record = judged(server, path, "[256,128]", kernel="bench")
    assert right(record) and "grid 2,2 (the file)" in settings(record)
    # what is asked for wins
    assert found(judged(server, path, "[256,128]", kernel="bench", grid="2,1"), "NKR011")
    wide = written(tmp_path, f"{GRID}\nboth = kernel[nl.nc(2), 2]\n")
    assert found(judged(server, wide, "[256,128]", kernel="both"), "NKR004") == [
        (
            "blocker",
            "not traced: kernel both is launched on 2 physical cores by its file and judged for LNC 1: give --lnc 2",
        )
    ]
    assert right(judged(server, wide, "[256,128]", kernel="both", lnc=2))


def test_two_cores_take_their_instances(server: ForkServer, tmp_path: Path) -> None:
    path = written(tmp_path, GRID)
    record = judged(server, path, "[512,128]", grid="2*nc(2),2")
    assert right(record)
    assert "LNC 2 (--grid), grid 2*nc(2),2 (--grid)" in settings(record)
    with pytest.raises(UsageError) as error:
        asked(path, "[512,128]", grid="4,2", lnc=2)
    assert str(error.value) == (
        "--grid: the grid 4,2 takes 1 physical cores and LNC is 2; write nc(2) in the grid where cores share a "
        "dimension"
    )
    alone = judged(server, written(tmp_path, GRID.replace("nl.program_id(1)", "0")), "[256,64]", lnc=2)
    assert right(alone) and "grid" not in settings(alone)


def test_a_grid_of_a_current_kernel_is_refused(server: ForkServer, tmp_path: Path) -> None:
    assert found(judged(server, written(tmp_path, CURRENT, head=""), grid="4,2"), "NKR004") == [
        (
            "blocker",
            "not traced: kernel kernel is of the current generation, whose launch grid is LNC; a grid of instances "
            "belongs to neuronxcc.nki: leave out --grid, or give --lnc",
        )
    ]


def test_grid_on_the_command_line(tmp_path: Path) -> None:
    path = written(tmp_path, GRID)
    given = [str(path), "--input", "x=f32[256,128]", "--grid", "2,2"]
    result = CliRunner().invoke(main, ["run", *given])
    assert result.exit_code == 0 and "NKI 0.1" in result.output, result.output
    task = tmp_path / "task"
    (task / "submissions" / "one").mkdir(parents=True)
    (task / "reference.py").write_text(REFERENCE)
    (task / "submissions" / "one" / "kernel.py").write_text(HEAD + GRID)
    toml = 'name = "t"\ndescription = "d"\nkernel = "kernel"\nreference = "reference.py:twice"\ngrid = "{}"\n'
    inputs = '[workloads.w]\ninputs = { x = { dtype = "float32", shape = [256, 128] } }\nseeds = 1\n'
    (task / "task.toml").write_text(toml.format("2,2") + inputs)
    result = CliRunner().invoke(main, ["review", str(task), "--out", str(tmp_path / "out")])
    assert result.exit_code == 0 and "grid 2,2 (task)" in result.output, result.output
    result = CliRunner().invoke(main, ["review", str(task), "--grid", "2,2"])
    assert (
        result.exit_code == 2
        and f"{task} is a folder: --grid belongs to a kernel file; a task names its own" in result.output
    )
    (task / "task.toml").write_text(toml.format("2 by 2") + inputs)
    result = CliRunner().invoke(main, ["review", str(task)])
    assert result.exit_code == 2 and "'2 by 2' is no launch grid: expected sizes such as 4,2" in result.output


# instances


def program_of(server: ForkServer, path: Path, shape: str, **options: Any) -> Any:
    request = asked(path, shape, **options)
    traced = trace(request, request.workloads[0], server)
    assert traced.program is not None, traced
    return traced.program


def test_outputs_of_instances_join_and_their_tiles_are_separate(server: ForkServer, tmp_path: Path) -> None:
    path = written(tmp_path, GRID)
    program = program_of(server, path, "[512,128]", grid="2*nc(2),2")
    assert (program.header.release, program.header.lnc, program.header.grid) == ("0.1", 2, (4, 2))
    # 4 x 2 instances; the first dimension is (outer 2, core 2), so the core is its index modulo 2
    assert [(s.core, s.instance) for s in program.streams] == [
        (0, 0),
        (0, 1),
        (1, 2),
        (1, 3),
        (0, 4),
        (0, 5),
        (1, 6),
        (1, 7),
    ]
    buffers = [program.buffer(at) for at in range(len(program.columns.buffer_memory))]
    shared = [b for b in buffers if b.memory.value == "shared_hbm"]
    assert [b.shape for b in shared] == [(512, 128), (512, 128)]  # the parameter and one output for all
    tiles = [b for b in buffers if b.memory.value == "sbuf"]
    assert len(tiles) == 2 * 8 and sorted(b.core for b in tiles) == [0] * 8 + [1] * 8
    used: dict[int, set[int]] = {}
    for stream in program.streams:
        for index in range(stream.start, stream.stop):
            for access in program.instruction(index).operands.values():
                if access is not None:
                    used.setdefault(access.buffer, set()).add(stream.instance)
    assert all(len(used[b.id]) == 1 for b in tiles) and used[shared[1].id] == set(range(8))


def test_instances_of_a_core_share_its_queues_as_the_passes_of_a_loop(
    server: ForkServer, tmp_path: Path
) -> None:
    """nki/programming_model.rst at tag v2.26.1:664-667: serially on one core, with no effect on performance."""
    path = written(tmp_path, GRID)
    timing = Timing(program_of(server, path, "[256,128]", grid="2,2"))
    made = timing.timeline
    # the kernel names no engine, so the compiler may take Scalar
    computes = [made.of(lane) for lane in made.lanes if lane.name in ("vector", "scalar")]
    (held,) = [slices for slices in computes if len(slices)]
    assert {lane.core for lane in made.lanes} == {0} and len(held) == 4
    assert np.all(np.diff(made.instruction[held]) > 0)
    assert np.all(made.stop[held][:-1] <= made.start[held][1:])
    both = Timing(program_of(server, path, "[256,128]", grid="nc(2),2")).timeline
    assert {lane.core for lane in both.lanes} == {0, 1} and both.total_ns < made.total_ns
    looped = """
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        for a in nl.affine_range(2):
            for b in nl.affine_range(2):
                i = a * 128 + nl.arange(128)[:, None]
                j = b * 64 + nl.arange(64)[None, :]
                nl.store(out[i, j], nl.load(x[i, j]) * 2.0)
        return out
    """
    loop = Timing(program_of(server, written(tmp_path, looped), "[256,128]"))
    assert timing.total_ns == loop.total_ns


def test_a_later_instance_overwrites_what_an_earlier_one_wrote(server: ForkServer, tmp_path: Path) -> None:
    text = """
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x) * (nl.program_id(0) + 0.0))
        return out
    """
    assert right(judged(server, written(tmp_path, text), grid="3"))


# parameters


def test_results_by_reference_are_results(server: ForkServer, tmp_path: Path) -> None:
    """The convention before 2.20.1: a kernel writes parameters and returns nothing."""
    text = """
    @nki_jit
    def kernel(x, out):
        '''x, out [128, columns] fp32.'''
        nl.store(out, nl.load(x) * 2.0)
    """
    path = written(tmp_path, text)
    (tmp_path / "reference.py").write_text("def twice(x, out):\n    return 2.0 * x\n")
    record = judged(server, path, inputs=("x=f32[128,64]", "out=f32[128,64]"))
    assert right(record) and not found(record, "NKR009"), record.findings


WRITES = """
@nki.jit
def kernel(x{}):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x) * 2.0
    nl.store(out, tile)
    nl.store(x, tile)
    return {}
"""


@pytest.mark.parametrize("annotation", ["", ": nt.tensor", ": nt.tensor[128, 64]"])
@pytest.mark.parametrize("returned", ["out", "out, x"])
def test_a_parameter_is_immutable(server: ForkServer, tmp_path: Path, annotation: str, returned: str) -> None:
    """nki.errors.rst at tag v2.26.1:179-195: returning the parameter does not make it mutable."""
    record = judged(
        server, written(tmp_path, WRITES.format(annotation, returned)), schedule_only=True, seeds=None
    )
    assert found(record, "NKR009") == [
        (
            "blocker",
            "parameter x is written and its annotation does not say so; parameters are immutable unless they are "
            "nt.mutable_tensor (kernel.py:13)",
        )
    ]


@pytest.mark.parametrize(
    "annotation", [": nt.mutable_tensor", ": nt.mutable_tensor[128, 64]", ": 'nt.mutable_tensor'"]
)
def test_a_mutable_parameter_must_be_returned(server: ForkServer, tmp_path: Path, annotation: str) -> None:
    """nki.errors.rst at tag v2.26.1:478-513."""
    path = written(tmp_path, WRITES.format(annotation, "out, x"))
    assert not found(judged(server, path, schedule_only=True, seeds=None), "NKR009")
    kept = judged(server, written(tmp_path, WRITES.format(annotation, "out")), schedule_only=True, seeds=None)
    assert found(kept, "NKR009") == [
        (
            "blocker",
            "parameter x is mutable, is written, and is not among what the kernel returns (kernel.py:13)",
        )
    ]


# what the compiler keeps to itself


def test_the_compilers_own_modules_can_be_imported_and_not_used(server: ForkServer, tmp_path: Path) -> None:
    head = HEAD + (
        "from neuronxcc.nki._private_kernels.attention import attention_isa_kernel\n"
        "from neuronxcc.nki.kernels.attention import flash_fwd\n"
        "from neuronxcc.nki import nccl\n"
        "from neuronxcc.nki.isa import neuron_isa\n"
        "from neuronxcc.starfish.penguin.targets.nki.private_api import vnc\n"
        "wrapped = nki_jit()(attention_isa_kernel)\n"
    )
    path = written(tmp_path, f"@nki.jit\n{DOUBLE}", head)
    assert right(judged(server, path))
    for name, full in (
        ("attention_isa_kernel", "neuronxcc.nki._private_kernels.attention.attention_isa_kernel"),
        ("flash_fwd", "neuronxcc.nki.kernels.attention.flash_fwd"),
        ("nccl.all_reduce", "neuronxcc.nki.nccl.all_reduce"),
        ("neuron_isa.add", "neuronxcc.nki.isa.neuron_isa.add"),
        ("wrapped", "neuronxcc.nki._private_kernels.attention.attention_isa_kernel"),
    ):
        calling = written(tmp_path, f"@nki.jit\n{DOUBLE}".replace("nl.load(x)", f"{name}(nl.load(x))"), head)
        ((_, message),) = found(judged(server, calling), "NKR004")
        assert (
            message == f"not traced: {full} belongs to the Neuron compiler, which is not here (kernel.py:17)"
        )
    stub = written(tmp_path, f"@nki.jit\n{DOUBLE}".replace("nl.load(x)", "vnc(nl.load(x))"), head)
    ((_, message),) = found(judged(server, stub), "NKR004")
    assert "private_api.vnc is host code and has no meaning inside a kernel" in message


# rules of the legacy generation


def test_what_an_affine_range_may_not_do(server: ForkServer, tmp_path: Path) -> None:
    """nki.errors.rst at tag v2.26.1:775-810; language/__init__.py:222-283."""
    text = """
    @nki.jit
    def kernel(x):
        '''x [4, 128, 64] fp32.'''
        out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
        best = nl.full((128, 64), -3e38, dtype=nl.float32, buffer=nl.sbuf)
        for i in nl.affine_range(4):
            best[...] = {}
        nl.store(out, best)
        return out
    """
    path = written(tmp_path, text.format("nl.maximum(best, nl.load(x[i]))"))
    (tmp_path / "reference.py").write_text("def twice(x):\n    return x.max(axis=0)\n")
    record = judged(server, path, "[4,128,64]")
    assert found(record, "NKR050") == [
        ("blocker", "every iteration of the affine_range of line 13 reads and writes best (kernel.py:14)")
    ]
    path = written(tmp_path, text.format("nl.load(x[i])"))
    (tmp_path / "reference.py").write_text("def twice(x):\n    return x[3]\n")
    record = judged(server, path, "[4,128,64]")
    assert found(record, "NKR050") == [
        (
            "blocker",
            "every iteration of the affine_range of line 13 writes best at one place (kernel.py:14)",
        )
    ]
    for allowed in ("affine_range", "sequential_range"):
        body = text.format("nl.maximum(best, nl.load(x[i]))").replace("affine_range", allowed)
        if allowed == "affine_range":
            body = text.replace("best[...] = {}", "best[...] += nl.load(x[i])")
        source = read_source(written(tmp_path, body))
        assert not carried(source, "kernel") and not rewritten(source, "kernel")


@pytest.mark.parametrize(
    ("body", "places"),
    [
        ("a[0] = 0", 1),
        ("a[i] = 0", 0),
        ("a[nl.arange(4)[:, None], 0] = 0", 1),
        ("a[nl.arange(4)[:, None] + 4 * i, 0] = 0", 0),
        ("j = i * 2\n        a[j] = 0", 0),
        ("for j in nl.affine_range(2):\n            a[j] = 0", 1),
        ("if i == 0:\n            a[0] = 0", 0),
        ("a[0] = nl.loop_reduce(b[i], op=np.add, loop_indices=[i])", 0),
        ("a[0] += 1", 0),
        ("c = nl.ndarray((4, 4), nl.float32)\n        c[0] = 0", 0),
    ],
)
def test_which_writes_of_an_affine_range_meet(tmp_path: Path, body: str, places: int) -> None:
    text = (
        "@nki.jit\ndef kernel(b):\n    a = nl.ndarray((4, 4), dtype=nl.float32, buffer=nl.sbuf)\n"
        f"    for i in nl.affine_range(4):\n        {body}\n"
    )
    assert len(rewritten(read_source(written(tmp_path, text)), "kernel")) == places


def test_advice_is_in_the_words_of_the_generation(server: ForkServer, tmp_path: Path) -> None:
    text = """
    @nki.jit
    def kernel(x):
        '''x [128, 64] fp32: x squared, by its transpose.'''
        out = nl.ndarray((64, 64), dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        total = nl.ndarray((nl.par_dim(64), 64), dtype=nl.float32, buffer=nl.psum)
        total[...] += nisa.nc_matmul(tile, tile)
        nl.store(out, total)
        return out
    """
    path = written(tmp_path, text)
    (tmp_path / "reference.py").write_text("def twice(x):\n    return x.T @ x\n")
    record = judged(server, path)
    for finding in record.findings:
        assert "accumulate=" not in finding.change and "dst=" not in finding.change, finding


def test_what_the_legacy_compiler_does_by_itself_is_a_note(server: ForkServer, tmp_path: Path) -> None:
    text = """
    @nki.jit
    def kernel(x):
        '''x [128, columns] fp32; one load too many.'''
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        unused = nl.load(x)
        other = nl.load(x)
        nl.store(out, other * 2.0)
        return out
    """
    record = judged(server, written(tmp_path, text), "[128,16384]")
    assert [severity for severity, _ in found(record, "NKR108")] == ["note"]


def test_blocks_live_as_long_as_they_are_used(server: ForkServer, tmp_path: Path) -> None:
    """64 blocks of 32 KiB a partition are ten times SBUF, and two are in use at a time."""
    text = """
    @nki.jit
    def kernel(x):
        '''x [64, 128, 8192] fp32.'''
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        blocks = nl.ndarray((64, nl.par_dim(128), 8192), dtype=nl.float32, buffer=nl.sbuf)
        for i in nl.affine_range(64):
            blocks[i] = nl.load(x[i])
            nl.store(out[i], blocks[i] * 2.0)
        return out
    """
    record = judged(server, written(tmp_path, text), "[64,128,8192]", schedule_only=True, seeds=None)
    assert record.legality.status == "legal" and not found(record, "NKR101"), record.findings


def test_addresses_are_the_compilers_where_the_kernel_says_so(server: ForkServer, tmp_path: Path) -> None:
    text = """
    import neuronxcc.nki.compiler as ncc

    {}
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        one = nl.ndarray((nl.par_dim(128), 64), dtype=x.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=0))
        two = nl.ndarray((nl.par_dim(128), 64), dtype=x.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=128))
        one[...] = nl.load(x)
        two[...] = nl.load(x)
        nl.store(out, nl.add(one, two))
        return out
    """
    clash = judged(server, written(tmp_path, text.format("")))
    assert found(clash, "NKR103"), clash.findings
    record = judged(server, written(tmp_path, text.format("@nki.compiler.force_auto_alloc")))
    assert right(record) and not found(record, "NKR103")
