"""Metrics: a prediction under the names and units of the Neuron profiler's summary, as far as the model knows them.

Only names of that summary stand here. What the model does not know (packets by who made their descriptors, spills,
collectives, throttling, housekeeping instructions) has no row: no figure is better than an invented one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from nkireview.hardware import Hardware

ENGINES = ("tensor", "vector", "scalar", "gpsimd", "sync")


@dataclass(frozen=True)
class Figured:
    """What the metrics are made from, over all cores; times in seconds, bytes and counts over all trips of loops.

    `total`, `active` and `window` are the clocks of the same names. `busy` and `spent` by lane: time in which it works
    on at least one core, and the sum of its slices; `instructions` by lane. On chip bytes are those that the profiler
    counts: DMAs all they move, engines those of one partition.
    """

    total: float
    active: float
    window: float
    busy: Mapping[str, float]
    spent: Mapping[str, float]
    instructions: Mapping[str, int]
    matmuls: int
    activations: int
    activation_time: float
    array_flops: int
    transpose_flops: int
    transfers: int
    transferred: int
    packet_time: float
    hbm_read: int
    hbm_write: int
    sbuf_read: int
    sbuf_write: int
    psum_read: int
    psum_write: int
    evacuated: int
    evacuations: int
    inputs: int
    outputs: int
    cores: int
    hardware: Hardware


@dataclass(frozen=True)
class Metric:
    """A metric of the profiler: its unit, what it says, how it is made here; `of` is None where that is not known."""

    name: str
    unit: str
    group: str
    meaning: str
    made: str
    of: Callable[[Figured], float | int | None]


def metrics(figured: Figured) -> dict[str, float | int]:
    """The metrics that are known, by name."""
    found = ((metric.name, metric.of(figured)) for metric in METRICS)
    return {name: value for name, value in found if value is not None}


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _stack(figured: Figured) -> float | None:
    """Bytes a second of the HBM stack by which the profiler divides, for any LNC."""
    hardware = figured.hardware
    path = "hbm.profiler_bandwidth"
    return hardware.number(path) if hardware.knows(path) else None


def _of_stack(figured: Figured, moved: float) -> float | None:
    stack = _stack(figured)
    return None if stack is None else _share(moved, stack * figured.total)


def _most(figured: Figured) -> float:
    """The operations a second by which the profiler divides: those of the fastest dense mode."""
    return figured.cores * figured.hardware.number("peak.tensor.fp8")


def _ratio(figured: Figured, path: str) -> float | None:
    stack = _stack(figured)
    return None if stack is None else figured.hardware.number(path) / stack


def _intensity(figured: Figured) -> float:
    return _share(figured.array_flops - figured.transpose_flops, figured.hbm_read + figured.hbm_write)


def _achievable(figured: Figured) -> float | None:
    ridge = _ratio(figured, "peak.tensor.fp8")
    return None if ridge is None else min(_intensity(figured) / ridge, 1.0)


def _model_share(figured: Figured) -> float:
    return _share(figured.array_flops - figured.transpose_flops, _most(figured) * figured.total)


def _lane(name: str) -> tuple[Metric, ...]:
    title = "GpSimd" if name == "gpsimd" else name.capitalize()
    group = f"{name}_engine"
    queue = "its instructions and the DMAs that its queue issues"
    if name == "tensor":
        queue = "a weight load and a matmul for each pass over the array, and the DMAs that its queue issues"
    return (
        Metric(
            f"{name}_engine_active_time",
            "seconds",
            group,
            f"time in which {title} works on at least one instruction",
            "union of the lane's slices",
            lambda figured: figured.busy.get(name, 0.0),
        ),
        Metric(
            f"{name}_engine_active_time_percent",
            "fraction 0..1",
            group,
            f"that time as a share of total_time: {title}",
            "active time / total_time",
            lambda figured: _share(figured.busy.get(name, 0.0), figured.total),
        ),
        Metric(
            f"{name}_engine_instruction_time",
            "seconds",
            group,
            f"time of all instructions of {title}, added up",
            "sum of the lane's slices",
            lambda figured: figured.spent.get(name, 0.0),
        ),
        Metric(
            f"{name}_engine_instruction_count",
            "count",
            group,
            f"instructions of {title}",
            f"{queue}; the hardware's own (semaphores, branches, drains) are not known and not counted",
            lambda figured: figured.instructions.get(name, 0),
        ),
    )


METRICS: tuple[Metric, ...] = (
    Metric(
        "total_time",
        "seconds",
        "overall_stats",
        "time on the device from start to end of execution",
        "the predicted window plus what a launch adds to it (launch.total_time_overhead_ns)",
        lambda figured: figured.total,
    ),
    Metric(
        "total_active_time",
        "seconds",
        "summary",
        "time in which an engine or a DMA works",
        "the predicted window plus what a launch adds to this clock (launch.active_time_overhead_ns)",
        lambda figured: figured.active,
    ),
    Metric(
        "total_active_time_percent",
        "fraction 0..1",
        "summary",
        "that time as a share of total_time",
        "total_active_time / total_time",
        lambda figured: _share(figured.active, figured.total),
    ),
    Metric(
        "total_exec_time",
        "seconds",
        "",
        "time from the first to the last work, set-up and tear-down left out",
        "the predicted window",
        lambda figured: figured.window,
    ),
    *(metric for engine in ENGINES for metric in _lane(engine)),
    Metric(
        "matmul_instruction_count",
        "count",
        "tensor_engine",
        "matmuls on the PE array",
        "one for each matmul and each transpose on Tensor; a float32 product counts both of its passes",
        lambda figured: figured.matmuls,
    ),
    Metric(
        "activate_instruction_count",
        "count",
        "scalar_engine",
        "instructions that apply an activation function",
        "activation instructions of the program on Scalar, over all trips of loops",
        lambda figured: figured.activations,
    ),
    Metric(
        "activate_instruction_time",
        "seconds",
        "scalar_engine",
        "time of these instructions, added up",
        "sum of the times for which they hold Scalar",
        lambda figured: figured.activation_time,
    ),
    Metric(
        "hardware_flops",
        "FLOP",
        "overall_stats",
        "work of the PE array, transposes included",
        "2 x rows x columns x moved elements of each matmul pass",
        lambda figured: figured.array_flops,
    ),
    Metric(
        "transpose_flops",
        "FLOP",
        "overall_stats",
        "what of it transposes",
        "the same sum over transposes on Tensor",
        lambda figured: figured.transpose_flops,
    ),
    Metric(
        "hfu_estimated_percent",
        "fraction 0..1",
        "tensor_engine",
        "share of the PE array's peak that all of its work reaches",
        "hardware_flops / (peak.tensor.fp8 x total_time), the peak by which trn2 profiles divide",
        lambda figured: _share(figured.array_flops, _most(figured) * figured.total),
    ),
    *(
        Metric(
            name,
            "fraction 0..1",
            "tensor_engine",
            "share of the PE array's peak that its work without transposes reaches",
            "(hardware_flops - transpose_flops) / (peak.tensor.fp8 x total_time)",
            _model_share,
        )
        for name in ("mfu_estimated_percent", "mfu_inst_estimated_percent")
    ),
    *(
        Metric(
            name,
            "fraction 0..1",
            "tensor_engine",
            "the most of that peak that the traffic over HBM leaves within reach",
            "mm_arithmetic_intensity / (peak.tensor.fp8 / hbm.profiler_bandwidth), at most 1",
            _achievable,
        )
        for name in ("mfu_max_achievable_estimated_percent", "mfu_inst_max_achievable_estimated_percent")
    ),
    Metric(
        "mm_arithmetic_intensity",
        "FLOP/byte",
        "overall_stats",
        "matmul work for each byte over HBM",
        "(hardware_flops - transpose_flops) / (hbm_read_bytes + hbm_write_bytes)",
        _intensity,
    ),
    Metric(
        "peak_flops_bandwidth_ratio",
        "FLOP/byte",
        "overall_stats",
        "below this intensity a kernel is memory bound",
        "peak.tensor.bf16 / hbm.profiler_bandwidth",
        lambda figured: _ratio(figured, "peak.tensor.bf16"),
    ),
    Metric(
        "hbm_read_bytes",
        "bytes",
        "data_movement",
        "bytes that DMAs read from HBM",
        "sum over the program's DMAs",
        lambda figured: figured.hbm_read,
    ),
    Metric(
        "hbm_write_bytes",
        "bytes",
        "data_movement",
        "bytes that DMAs write to HBM",
        "sum over the program's DMAs",
        lambda figured: figured.hbm_write,
    ),
    Metric(
        "sbuf_read_bytes",
        "bytes",
        "data_movement",
        "bytes read from SBUF",
        "all that DMAs read, and of engines' operands one partition, as profiles count",
        lambda figured: figured.sbuf_read,
    ),
    Metric(
        "sbuf_write_bytes",
        "bytes",
        "data_movement",
        "bytes written to SBUF",
        "all that DMAs write, and of engines' results one partition, as profiles count",
        lambda figured: figured.sbuf_write,
    ),
    Metric(
        "psum_read_bytes",
        "bytes",
        "data_movement",
        "bytes that engines read from PSUM",
        "one partition of their operands, as profiles count; what a matmul adds to is not counted",
        lambda figured: figured.psum_read,
    ),
    Metric(
        "psum_write_bytes",
        "bytes",
        "data_movement",
        "bytes that engines write to PSUM",
        "one partition of their results, as profiles count, for each pass of a matmul",
        lambda figured: figured.psum_write,
    ),
    Metric(
        "psum_read_sbuf_write_bytes",
        "bytes",
        "data_movement",
        "bytes that engines move from PSUM to SBUF",
        "one partition of what instructions that read PSUM write to SBUF, as profiles count",
        lambda figured: figured.evacuated,
    ),
    Metric(
        "psum_read_sbuf_write_count",
        "count",
        "data_movement",
        "instructions that read PSUM and write SBUF",
        "counted over the program's instructions on engines",
        lambda figured: figured.evacuations,
    ),
    Metric(
        "dma_active_time",
        "seconds",
        "data_movement",
        "time in which at least one DMA moves data",
        "union of the slices of the lane of transfers",
        lambda figured: figured.busy.get("dma", 0.0),
    ),
    Metric(
        "dma_active_time_percent",
        "fraction 0..1",
        "data_movement",
        "that time as a share of total_time",
        "dma_active_time / total_time",
        lambda figured: _share(figured.busy.get("dma", 0.0), figured.total),
    ),
    Metric(
        "dma_packet_time",
        "seconds",
        "data_movement",
        "time for which DMA engines work, added up over the engines",
        "sum over transfers of the time on their engines times the engines they use",
        lambda figured: figured.packet_time,
    ),
    Metric(
        "dma_transfer_count",
        "count",
        "data_movement",
        "DMA transfers",
        "one for each DMA instruction, over all trips of loops",
        lambda figured: figured.transfers,
    ),
    Metric(
        "dma_transfer_time",
        "seconds",
        "data_movement",
        "time of all transfers, added up",
        "sum of the slices of the lane of transfers",
        lambda figured: figured.spent.get("dma", 0.0),
    ),
    Metric(
        "dma_transfer_total_bytes",
        "bytes",
        "data_movement",
        "bytes of all transfers",
        "sum of what each reads",
        lambda figured: figured.transferred,
    ),
    Metric(
        "dma_transfer_average_bytes",
        "bytes",
        "data_movement",
        "bytes of a transfer on average",
        "dma_transfer_total_bytes / dma_transfer_count, rounded",
        lambda figured: round(_share(figured.transferred, figured.transfers)),
    ),
    Metric(
        "mbu_estimated_percent",
        "fraction 0..1",
        "data_movement",
        "share of an HBM stack's bandwidth that is reached",
        "(hbm_read_bytes + hbm_write_bytes) / (hbm.profiler_bandwidth x total_time), for any LNC",
        lambda figured: _of_stack(figured, figured.hbm_read + figured.hbm_write),
    ),
    Metric(
        "mbu_min_read_util_percent",
        "fraction 0..1",
        "data_movement",
        "that share if each input were read once",
        "inputs_and_weights_size_bytes / (hbm.profiler_bandwidth x total_time)",
        lambda figured: _of_stack(figured, figured.inputs),
    ),
    Metric(
        "inputs_and_weights_size_bytes",
        "bytes",
        "data_movement",
        "size of the inputs",
        "sum over the kernel's tensor arguments",
        lambda figured: figured.inputs,
    ),
    Metric(
        "inputs_outputs_weights_size_bytes",
        "bytes",
        "data_movement",
        "size of the inputs and outputs",
        "sum over the kernel's tensor arguments and its results",
        lambda figured: figured.inputs + figured.outputs,
    ),
)
"""Every metric that can be given, by groups of the profiler's summary."""
