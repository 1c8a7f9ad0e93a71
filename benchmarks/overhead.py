"""How much a first verdict costs over plain NumPy: trace, verify, check, schedule, execute against a tile loop.

    python benchmarks/overhead.py            # 2048 x 2048 x 2048, five interleaved runs
    python benchmarks/overhead.py --size 1024 --runs 3

Prints each step and the ratio of medians. BLAS runs on one thread on both sides; the fork server is warm.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from nkireview import hardware
from nkireview.checks.counts import counts
from nkireview.checks.provenance import provenance
from nkireview.checks.reduction import reduction_lengths
from nkireview.checks.survey import survey
from nkireview.execute import execute
from nkireview.isa.table import ROWS
from nkireview.program.verify import verify
from nkireview.requests import from_file
from nkireview.runner import ForkServer
from nkireview.schedule.timing import Timing
from nkireview.timeline.summary import summary
from nkireview.tracing import trace

KERNEL = Path(__file__).resolve().parent / "matmul_kernel.py"
TILE_K, TILE_M, TILE_N = 128, 128, 512


def plain(lhs_t: np.ndarray, rhs: np.ndarray) -> np.ndarray:
    """The tile loop that a NumPy user would write."""
    size_k, size_m = lhs_t.shape
    out = np.empty((size_m, rhs.shape[1]), dtype=np.float32)
    for m in range(0, size_m, TILE_M):
        for n in range(0, rhs.shape[1], TILE_N):
            total = np.zeros((TILE_M, TILE_N), dtype=np.float32)
            for k in range(0, size_k, TILE_K):
                total += lhs_t[k : k + TILE_K, m : m + TILE_M].T @ rhs[k : k + TILE_K, n : n + TILE_N]
            out[m : m + TILE_M, n : n + TILE_N] = total
    return out


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=2048, help="K = M = N (default 2048)")
    parser.add_argument("--runs", type=int, default=5, help="interleaved runs (default 5)")
    options = parser.parse_args()
    size = options.size
    generator = np.random.default_rng(0)
    arrays = [generator.standard_normal((size, size)).astype(np.float32) for _ in range(2)]
    inputs = [f"{name}=f32[{size},{size}]" for name in ("lhsT", "rhs")]
    request = from_file(
        KERNEL,
        kernel=None,
        reference=None,
        inputs=inputs,
        inputs_from=None,
        target="trn2",
        nki=None,
        lnc=None,
        need_reference=False,
    )
    steps: dict[str, list[float]] = {}
    baseline: list[float] = []

    def timed(name: str, call: Callable[[], object]) -> object:
        started = time.perf_counter()
        result = call()
        steps.setdefault(name, []).append(time.perf_counter() - started)
        return result

    with threadpool_limits(1), ForkServer() as server:
        trace(request, request.workloads[0], server)
        for _ in range(options.runs):
            started = time.perf_counter()
            wanted = plain(*arrays)
            baseline.append(time.perf_counter() - started)
            traced = timed("trace, transfer, load", lambda: trace(request, request.workloads[0], server))
            program = traced.program  # type: ignore[attr-defined]
            assert program is not None, traced
            violations = timed("verify", lambda p=program: verify(p))
            paths = timed("provenance", lambda p=program: provenance(p, ROWS))
            timed("counts, reductions", lambda p=program: (counts(p, ROWS), reduction_lengths(p, ROWS)))
            timed("survey", lambda p=program: survey(p, ROWS, hardware.target("trn2")))
            timed("schedule", lambda p=program: summary(Timing(p).timeline))
            given = {
                buffer: array for (_, buffer), array in zip(program.parameter_buffers, arrays, strict=True)
            }
            execution = timed("execute", lambda p=program, g=given: execute(p, g))
            assert not violations and not execution.faults and paths is not None  # type: ignore[attr-defined]
            assert np.allclose(execution.outputs[0].values, wanted, rtol=1e-3, atol=1e-2)  # type: ignore[attr-defined]
    base = statistics.median(baseline)
    totals = [sum(values) for values in zip(*steps.values(), strict=True)]
    unexecuted = [total - run for total, run in zip(totals, steps["execute"], strict=True)]
    print(
        f"{len(program):,} instructions; plain NumPy tile loop {base * 1e3:.0f} ms (median of {options.runs})"
    )
    for name, values in steps.items():
        print(f"  {name:24} {statistics.median(values) * 1e3:7.1f} ms")
    print(f"  {'together':24} {statistics.median(totals) * 1e3:7.1f} ms")
    print(
        f"ratio {statistics.median(totals) / base:.2f}; without execute {statistics.median(unexecuted) / base:.2f}"
    )


if __name__ == "__main__":
    main()
