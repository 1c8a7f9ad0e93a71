"""Roofline: what a Program computes for each byte of HBM, against what its dtypes and the bandwidth allow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from nkireview.hardware import Hardware
from nkireview.isa import dtypes

Side = Literal["memory side", "compute side"]


@dataclass(frozen=True)
class Roofline:
    """A point under the roof. `flops` are those of matmuls, transposes left out; rates in FLOP/s and bytes/s.

    `intensity` and `ridge` in FLOP for each byte moved over HBM; `peak_flops` is the rate of the dtypes used, mixed by
    what each computes; `attained` over the predicted time; `attainable` the roof above this intensity.
    Peaks are those of all cores that the program runs on. A program that moves nothing over HBM has an infinite
    intensity.
    """

    flops: float
    hbm_bytes: float
    intensity: float
    dtypes: tuple[str, ...]
    peak_flops: float
    peak_bandwidth: float
    ridge: float
    attained: float
    attainable: float
    side: Side


def roofline(
    products: Mapping[str, float], hbm_bytes: float, total_ns: float, cores: int, hardware: Hardware
) -> Roofline:
    """The roofline of a program with so many multiply-accumulates by dtype; no product counts as bfloat16."""
    flops = 2 * sum(products.values())
    each = {name: peak_flops(name, hardware) for name in products}
    longest = sum(2 * count / each[name] for name, count in products.items())
    peak = cores * (flops / longest if flops else peak_flops("bfloat16", hardware))
    bandwidth = cores * hardware.number("hbm.bandwidth_per_core")
    intensity = flops / hbm_bytes if hbm_bytes else float("inf")
    ridge = peak / bandwidth
    return Roofline(
        flops=flops,
        hbm_bytes=hbm_bytes,
        intensity=intensity,
        dtypes=tuple(sorted(name for name, count in products.items() if count)),
        peak_flops=peak,
        peak_bandwidth=bandwidth,
        ridge=ridge,
        attained=flops / total_ns * 1e9 if total_ns else 0.0,
        attainable=min(peak, intensity * bandwidth),
        side="memory side" if intensity < ridge else "compute side",
    )


def peak_flops(dtype: str, hardware: Hardware) -> float:
    """FLOP/s of the PE array of one core for operands of a dtype; that of bfloat16 where no figure is known."""
    if dtypes.BY_NAME[dtype].packed_count > 1:
        path = "peak.tensor.mx"
    elif dtype == "float32":
        path = "peak.tensor.fp32"
    else:
        path = "peak.tensor.fp8" if dtypes.BY_NAME[dtype].bits == 8 else "peak.tensor.bf16"
    return hardware.number(path if hardware.knows(path) else "peak.tensor.bf16")
