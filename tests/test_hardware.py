"""Hardware figures against values typed by hand from the public documents, and the loader's refusals."""

from __future__ import annotations

import copy
import pickle
import re
from typing import Any, get_args

import pytest

from nkireview.hardware import (
    TARGETS,
    Confidence,
    Figure,
    Hardware,
    Unknown,
    UnknownFigureError,
    loader,
    target,
)

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

# trn1, trn2, trn3: read off the architecture guides, the chip pages and the nki.isa stubs of Neuron 2.32.
DOCUMENTED: dict[str, tuple[Any, Any, Any]] = {
    "target.generation": ("v2", "v3", "v4"),
    "target.nc_version": ("gen2", "gen3", "gen4"),
    "chip.cores": (2, 8, 8),
    "chip.lnc_degrees": ((1,), (1, 2), (1, 2)),
    "chip.dma_engines": (32, 128, 128),
    "hbm.stacks": (2, 4, 4),
    "hbm.bytes_per_chip": (32 * GIB, 96 * GIB, 144 * GIB),
    "hbm.bandwidth_per_chip": (820e9, 2.9e12, 4.9e12),
    "tensor.clock_ghz": (2.8, 2.4, 2.4),
    "vector.clock_ghz": (1.12, 0.96, 1.2),
    "scalar.clock_ghz": (1.4, 1.2, 1.2),
    "gpsimd.clock_ghz": (1.4, 1.2, 1.2),
    "vector.elements_per_cycle_16bit": (128, 512, 512),
    "vector.elements_per_cycle_8bit": (128, 256, 512),
    "vector.elements_per_cycle_32bit": (128, 256, 256),
    "scalar.elements_per_cycle_16bit": (128, 128, 256),
    "scalar.elements_per_cycle_32bit": (128, 128, 128),
    "peak.vector.fp32": (2.3e12, 1.0e12, 1.2e12),
    "peak.scalar.fp32": (2.9e12, 1.2e12, 1.2e12),
    "peak.chip.bf16": (191e12, 667e12, 671e12),
    "peak.chip.fp8": (191e12, 1299e12, 2517e12),
    "peak.chip.fp32": (48e12, 181e12, 183e12),
    "sbuf.bytes": (24 * MIB, 28 * MIB, 32 * MIB),
    "sbuf.bytes_per_partition": (192 * KIB, 224 * KIB, 256 * KIB),
    "sbuf.usable_bytes_per_partition": (180224, 212984, 245752),
    "psum.bytes": (2 * MIB,) * 3,
    "psum.bytes_per_partition": (16 * KIB,) * 3,
    "psum.banks": (8,) * 3,
    "psum.bank_bytes": (2 * KIB,) * 3,
    "partitions": (128,) * 3,
    "tensor.rows": (128,) * 3,
    "tensor.columns": (128,) * 3,
    "tensor.min_interval_cycles": (64,) * 3,
    "tensor.fp32_cost_factor": (4,) * 3,
    "limits.contraction_max": (128,) * 3,
    "limits.stationary_free_max": (128,) * 3,
    "limits.moving_free_max.float32": (512, 512, 4096),
    "limits.moving_free_max.bfloat16": (512, 512, 8192),
    "limits.bn_stats_free_max": (512,) * 3,
    "limits.vector_free_max_psum": (4096,) * 3,
    "limits.access_free_dims_max": (4,) * 3,
    "limits.access_count_max": (65535,) * 3,
    "limits.access_stride_min": (-32768,) * 3,
    "limits.access_stride_max": (32767,) * 3,
    "access.wide_stride_bytes": (16,) * 3,
    "overhead.min_interval_cycles": (64,) * 3,
    "overhead.dynamic_min_interval_cycles": (600,) * 3,
    "gpsimd.start_cycles": (150,) * 3,
    "scalar.read_accumulator_cycles": (64,) * 3,
    "dma.engines_per_core": (16,) * 3,
    "dma.queues_per_engine": (16,) * 3,
    "dma.effective_bytes_per_ns": (17, 23, 33),
    "dma.fixed_latency_ns": (1300,) * 3,
    "dma.small_bytes": (256,) * 3,
    "dma.recommended_bytes": (2 * KIB,) * 3,
    "dma.saturating_bytes": (4 * KIB,) * 3,
    "dma.dge_kinds": (("none", "swdge"), ("none", "swdge", "hwdge"), ("none", "swdge", "hwdge")),
    "dma.priority_levels": (1, 1, 4),
}

PLACE = re.compile(
    r"(aws-neuron-sdk|aws-neuron-sdk v2\.26\.1|aws-neuron/nki-library 2\.29|leanprover/KLR) "
    r"[\w./-]+\.(rst|py|lean):\d+(-\d+)?"
)


@pytest.fixture(params=TARGETS)
def hardware(request: pytest.FixtureRequest) -> Hardware:
    return target(request.param)


def known(hardware: Hardware) -> dict[str, Figure]:
    return {path: hardware.figure(path) for path in hardware.paths if hardware.knows(path)}


@pytest.mark.parametrize("path", DOCUMENTED)
def test_documented_figures(path: str) -> None:
    assert tuple(target(name).value(path) for name in TARGETS) == DOCUMENTED[path]


@pytest.mark.parametrize(
    ("name", "path", "teraflops"),
    [
        ("trn1", "peak.tensor.bf16", 92),
        ("trn1", "peak.tensor.fp32", 23),
        ("trn2", "peak.tensor.bf16", 79),
        ("trn2", "peak.tensor.fp8", 158),
        ("trn2", "peak.tensor.fp32", 20),
        ("trn3", "peak.tensor.bf16", 79),
        ("trn3", "peak.tensor.fp32", 20),
        ("trn3", "peak.tensor.mx", 315),
    ],
)
def test_core_peaks_are_the_documented_ones_before_rounding(name: str, path: str, teraflops: int) -> None:
    assert target(name).number(path) / 1e12 == pytest.approx(teraflops, abs=0.8)


def test_core_peaks_follow_from_the_array_and_the_clock(hardware: Hardware) -> None:
    rate = 2 * 128 * 128 * hardware.clocks["tensor"] * 1e9
    assert hardware.number("peak.tensor.bf16") == pytest.approx(rate)
    assert hardware.number("peak.tensor.fp32") == pytest.approx(rate / 4)


@pytest.mark.parametrize(
    ("bytes_", "median_ns"), [(256, 17), (512, 27), (2048, 83), (4096, 158)], ids=lambda v: str(v)
)
def test_measured_packet_times_are_reproduced(bytes_: int, median_ns: int) -> None:
    trn2 = target("trn2")
    predicted = trn2.number("dma.packet_ns") + bytes_ / trn2.number("dma.bytes_per_ns")
    assert predicted == pytest.approx(median_ns, abs=1.0)


@pytest.mark.parametrize(
    ("engine", "columns", "extra", "issue_ns"),
    [
        ("vector", 512, None, 598),
        ("scalar", 128, None, 157),
        ("scalar", 512, "scalar.exp_extra_cycles.psum", 570),
        ("scalar", 512, "scalar.exp_extra_cycles.sbuf", 612),
    ],
)
def test_measured_issue_intervals_are_reproduced(
    engine: str, columns: int, extra: str | None, issue_ns: int
) -> None:
    trn2 = target("trn2")
    cycles = columns + trn2.number(f"{engine}.overhead_cycles") + (trn2.number(extra) if extra else 0.0)
    assert cycles / trn2.clocks[engine] == pytest.approx(issue_ns, abs=3.0)


def test_the_profiler_ratio_identifies_the_chip() -> None:
    ratios = {"trn1": 223.78146374, "trn2": 109.83687151}
    for name, ratio in ratios.items():
        hardware = target(name)
        found = hardware.number("peak.tensor.bf16") / hardware.number("hbm.profiler_bandwidth")
        assert found == pytest.approx(ratio, rel=1e-8)


def test_every_figure_has_a_unit_a_source_and_a_confidence(hardware: Hardware) -> None:
    for path, figure in known(hardware).items():
        assert figure.unit, path
        assert figure.confidence in get_args(Confidence), path
        assert figure.confidence != "overridden", path
        if figure.confidence == "measured":
            assert figure.source.startswith(("measured on trn", "fitted on trn")), path
        elif figure.confidence == "derived":
            assert figure.source.startswith("derived: "), path
        else:
            assert PLACE.fullmatch(figure.source), (path, figure.source)
        if figure.confidence == "documented-old":
            assert figure.source.startswith("aws-neuron-sdk v2.26.1 "), path


def test_every_unknown_has_a_unit_and_a_reason(hardware: Hardware) -> None:
    for path, reason in hardware.unknown.items():
        entry = hardware.entries[path]
        assert isinstance(entry, Unknown)
        assert entry.unit, path
        assert len(reason) > 20, path
        assert not hardware.knows(path)


def test_all_targets_have_the_same_paths_units_and_kinds() -> None:
    first, *others = (target(name) for name in TARGETS)
    for other in others:
        assert other.paths == first.paths
        for path in first.paths:
            assert other.entries[path].unit == first.entries[path].unit, path
            if first.knows(path) and other.knows(path):
                assert type(other.value(path)) is type(first.value(path)), path


def test_no_figure_stands_twice() -> None:
    common = {path for path, _ in loader._read("common")}
    for name in TARGETS:
        own = {path for path, _ in loader._read(name)}
        assert not common & own


def test_derived_and_repeated_figures_agree(hardware: Hardware) -> None:
    h = hardware
    assert h.psum_banks * h.psum_bank_bytes == h.psum_bytes
    assert h.partitions * h.psum_bytes == h.integer("psum.bytes")
    assert h.partitions * h.sbuf_bytes == h.integer("sbuf.bytes")
    assert h.sbuf_bytes >= h.sbuf_usable_bytes > 0
    assert h.sbuf_bytes - h.integer("sbuf.reserved_bytes_per_partition") == h.sbuf_usable_bytes
    cores = h.integer("chip.cores")
    assert h.integer("dma.engines_per_core") * cores == h.integer("chip.dma_engines")
    if h.name != "trn1":  # there one partition is enough for one engine
        assert h.integer("dma.engines_per_core") * h.integer("dma.partitions_per_engine") == h.partitions
    assert h.number("hbm.bandwidth_per_core") * cores == pytest.approx(h.number("hbm.bandwidth_per_chip"))
    assert h.integer("hbm.bytes_per_core") * cores == h.integer("hbm.bytes_per_chip")
    assert h.number("hbm.bandwidth_per_chip_highest") >= h.number("hbm.bandwidth_per_chip")
    assert h.number("peak.chip.bf16") >= cores * h.number("peak.tensor.bf16")
    assert h.number("dma.bytes_per_ns") >= h.number("dma.effective_bytes_per_ns")


def test_typed_properties_read_their_figures(hardware: Hardware) -> None:
    assert hardware.partitions == 128
    assert hardware.psum_banks == 8
    assert hardware.stationary_free_max == 128
    assert hardware.bn_stats_free_max == 512
    assert (hardware.generation, hardware.nc_version) == {
        "trn1": ("v2", "gen2"),
        "trn2": ("v3", "gen3"),
        "trn3": ("v4", "gen4"),
    }[hardware.name]
    assert hardware.lnc_degrees == ((1,) if hardware.name == "trn1" else (1, 2))


def test_tiles_of_the_array_start_at_multiples_of_their_size(hardware: Hardware) -> None:
    sizes = [64, 128] if hardware.name == "trn1" else [32, 64, 128]
    expected = {size: tuple(range(0, 128, size)) for size in sizes}
    assert hardware.row_tiles == expected
    assert hardware.column_tiles == expected


@pytest.mark.parametrize(
    ("name", "limits"),
    [("trn1", (512, 512, 512)), ("trn2", (512, 512, 512)), ("trn3", (4096, 8192, 4096))],
)
def test_moving_free_max_depends_on_the_destination_dtype(name: str, limits: tuple[int, int, int]) -> None:
    hardware = target(name)
    assert tuple(hardware.moving_free_max(d) for d in ("float32", "bfloat16", "float16")) == limits


def test_start_partitions_are_aligned_to_the_block_an_operand_needs(hardware: Hardware) -> None:
    # Independent form of the rule: a block of 32, 64 or 128 partitions, aligned to its own size.
    for count in range(1, 129):
        block = next(size for size in (32, 64, 128) if count <= size)
        assert hardware.start_partitions(count) == tuple(range(0, 128, block)), count


@pytest.mark.parametrize("count", [-1, 0, 129])
def test_start_partitions_refuses_other_counts(count: int) -> None:
    with pytest.raises(ValueError, match=rf"^an operand of {count} partitions is outside 1\.\.128 on trn2$"):
        target("trn2").start_partitions(count)


@pytest.mark.parametrize(
    ("alias", "name"), [("inf2", "trn1"), ("gen2", "trn1"), ("gen3", "trn2"), ("gen4", "trn3")]
)
def test_aliases(alias: str, name: str) -> None:
    assert target(alias) is target(name)
    assert target(alias).name == name


def test_unknown_target_lists_the_names() -> None:
    sentence = (
        "unknown target 'trn9': expected one of trn1 (also inf2 or gen2), trn2 (also gen3), trn3 (also gen4)"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        target("trn9")


def test_reading_an_unknown_figure_raises_its_reason() -> None:
    sentence = (
        "dma.packet_ns is not known for trn3: packets were measured on trn2 only, and no trn3 profile is "
        "public; give a value in ns as an override"
    )
    with pytest.raises(UnknownFigureError, match=f"^{re.escape(sentence)}$"):
        target("trn3").value("dma.packet_ns")


def test_a_wrong_path_is_refused_with_the_nearest() -> None:
    with pytest.raises(
        ValueError, match=r"^unknown figure 'dma\.paket_ns' of trn2: did you mean dma\.packet_ns"
    ):
        target("trn2").figure("dma.paket_ns")
    with pytest.raises(ValueError, match=r"^unknown figure 'dma\.paket_ns' of trn1: did you mean"):
        target("trn1").knows("dma.paket_ns")
    with pytest.raises(
        ValueError, match=r"of trn2: figures are grouped under access, chip, dma, gpsimd, hbm, "
    ):
        target("trn2").figure("qqqqqqqq")


def test_typed_reads_refuse_the_wrong_kind() -> None:
    trn2 = target("trn2")
    assert isinstance(trn2.number("psum.banks"), float)
    with pytest.raises(TypeError, match=r"^target\.generation of trn2 is 'v3', not a number$"):
        trn2.number("target.generation")
    with pytest.raises(TypeError, match=r"^dma\.packet_ns of trn2 is 7\.6, not an integer$"):
        trn2.integer("dma.packet_ns")


def test_an_override_replaces_one_figure_and_says_so() -> None:
    trn2 = target("trn2", overrides={"dma.packet_ns": 9.0})
    figure = trn2.figure("dma.packet_ns")
    assert (figure.value, figure.unit, figure.source) == (9.0, "ns", "overridden by the caller")
    assert figure.confidence == "overridden"
    assert figure.note.startswith("instead of 7.6 (measured on trn2: ")
    assert target("trn2").value("dma.packet_ns") == 7.6
    assert [p for p in trn2.paths if trn2.entries[p] != target("trn2").entries[p]] == ["dma.packet_ns"]


def test_an_override_fills_an_unknown_figure() -> None:
    trn1 = target("inf2", overrides={"dma.packet_ns": 8})
    assert trn1.number("dma.packet_ns") == 8.0
    assert "dma.packet_ns" not in trn1.unknown
    assert trn1.figure("dma.packet_ns").unit == "ns"


def test_unknown_figures_can_be_filled_from_another_target() -> None:
    trn2, trn3 = target("trn2"), target("trn3")
    filled = target("trn3", {path: trn2.value(path) for path in trn3.unknown if trn2.knows(path)})
    assert filled.number("dma.packet_ns") == 7.6
    assert filled.sbuf_usable_bytes == 245752
    assert set(filled.unknown) == {path for path in trn3.unknown if not trn2.knows(path)}


def test_an_integer_figure_stays_an_integer() -> None:
    assert target("trn2", overrides={"psum.banks": 7.0}).psum_banks == 7


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        ("dma.packets_ns", 9.0, "unknown figure 'dma.packets_ns' of trn2: did you mean dma.packet_ns"),
        ("target.generation", 4, "target.generation is 'v3': only numbers can be overridden"),
        ("chip.lnc_degrees", 4, "chip.lnc_degrees is (1, 2): only numbers can be overridden"),
        ("dma.packet_ns", "9", "override of dma.packet_ns is '9': expected a finite number in ns"),
        ("dma.packet_ns", True, "override of dma.packet_ns is True: expected a finite number in ns"),
        ("dma.packet_ns", float("nan"), "override of dma.packet_ns is nan: expected a finite number in ns"),
        ("dma.packet_ns", -1.0, "override of dma.packet_ns is -1.0: expected 0 ns or more"),
        ("tensor.clock_ghz", 0, "override of tensor.clock_ghz is 0: expected more than 0 GHz"),
        ("psum.banks", 7.5, "override of psum.banks is 7.5: expected a whole number of banks"),
    ],
)
def test_refused_overrides(path: str, value: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}"):
        target("trn2", overrides={path: value})


def test_a_duration_may_be_overridden_with_zero() -> None:
    assert target("trn2", overrides={"dma.fixed_latency_ns": 0}).number("dma.fixed_latency_ns") == 0.0


def test_hardware_is_cached_hashable_and_copies_by_value() -> None:
    trn2 = target("trn2")
    assert target("trn2") is trn2
    assert pickle.loads(pickle.dumps(trn2)) == trn2
    assert copy.deepcopy(trn2) == trn2
    assert len({trn2, target("trn2", overrides={"dma.packet_ns": 9.0}), target("trn1")}) == 3
