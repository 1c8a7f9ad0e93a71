"""A profile under the Neuron profiler's own names: what ``view --output-format summary-json`` writes, simulated."""

from __future__ import annotations

import json
import zlib

from nkireview.profiling import Profile

SIMULATED = "simulated"
"""How keys begin that no profiler has: readers that take one node's metrics by name meet nothing new."""


def summary_json(profile: Profile, tool: str) -> str:
    """One object: a node's identifier, and below it the metrics by name, in the profiler's units.

    Times are seconds, shares fractions of 1 although they are named percent. ``simulated_total_time_low`` and
    ``_high`` are the range of ``total_time``, ``simulated_band`` says what it rests on.
    """
    node = f"n_{zlib.crc32(profile.name.encode('utf-8', 'replace')):08x}"
    low, high = profile.range_ns("total")
    values = {
        **profile.metrics,
        "profiler_version": f"{tool} (simulated)",
        SIMULATED: True,
        f"{SIMULATED}_total_time_low": low / 1e9,
        f"{SIMULATED}_total_time_high": high / 1e9,
        f"{SIMULATED}_band": profile.band_words,
    }
    return json.dumps({node: values}, indent=2, sort_keys=False) + "\n"
