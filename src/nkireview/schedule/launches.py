"""Launches: what each clock counts beside the window from the first to the last work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from nkireview.schedule.parameters import Figures

CLOCKS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "benchmark": ("launch.benchmark_overhead_ns", "launch.benchmark_spread_ns"),
        "active": ("launch.active_time_overhead_ns", "launch.active_time_spread_ns"),
        "early active": ("launch.early_active_time_overhead_ns", "launch.early_active_time_spread_ns"),
        "total": ("launch.total_time_overhead_ns", "launch.total_time_spread_ns"),
    }
)
"""Clock -> the figures of what it adds for a launch, and of how much that varies.

``benchmark`` is nki.benchmark, ``active`` and ``total`` are total_active_time and total_time of neuron-profile,
``early active`` is the former in neuron-profile 2.25. A time without a clock is that of the window.
"""
WINDOW = "window"


@dataclass(frozen=True)
class Launch:
    """What a clock adds to a window, and how far that may be off either way, in ns."""

    ns: float
    spread_ns: float


def launch(clock: str, figures: Figures) -> Launch:
    """What a clock adds for each launch; KeyError for a clock that is not known."""
    if clock == WINDOW:
        return Launch(0.0, 0.0)
    beside, spread = CLOCKS[clock]
    return Launch(figures.number(beside), figures.number(spread))
