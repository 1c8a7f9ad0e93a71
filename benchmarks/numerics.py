"""How long a diagnosis takes: executions of the kernel that it costs to say rounding, a lost tile, a low-precision sum.

    NUMPY_MADVISE_HUGEPAGE=0 python benchmarks/numerics.py    # 2048 x 2048 x 2048, as the command line runs it
    python benchmarks/numerics.py --size 1024 --runs 3

Prints, for each kernel, the median of one execution and of one diagnosis in the same run, and their ratio. BLAS runs on
one thread.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from nkireview.diagnosis import diagnose
from nkireview.execute import execute
from nkireview.program.program import Program
from nkireview.requests import from_file
from nkireview.runner import ForkServer
from nkireview.tracing import trace

KERNEL = Path(__file__).resolve().parent / "matmul_kernel.py"
SUM = "range(k_size // TILE_K)"
LOW = """                part = nl.ndarray((TILE_M, TILE_N), dtype=nl.float32, buffer=nl.psum)
                nisa.nc_matmul(dst=part, stationary=a, moving=b)
                nisa.tensor_tensor(dst=low, data1=low, data2=part, op=nl.add)
"""


def variants() -> dict[str, str]:
    """The kernel's text as it is, with the last K tile lost, and with its sum in bfloat16."""
    text = KERNEL.read_text(encoding="utf-8")
    low = text.replace(
        "            total = nl.ndarray((TILE_M, TILE_N), dtype=nl.float32, buffer=nl.psum)\n",
        "            low = nl.ndarray((TILE_M, TILE_N), dtype=nl.bfloat16, buffer=nl.sbuf)\n"
        "            nisa.memset(dst=low, value=0.0)\n",
    )
    low = low.replace("                nisa.nc_matmul(dst=total, stationary=a, moving=b)\n", LOW)
    low = low.replace("src=total", "src=low")
    return {
        "right": text,
        "the last K tile lost": text.replace(SUM, "range(k_size // TILE_K - 1)"),
        "a bfloat16 sum": low,
    }


def traced(text: str, size: int, server: ForkServer, folder: Path) -> Program:
    """The Program of one variant."""
    file = folder / "kernel.py"
    file.write_text(text, encoding="utf-8")
    request = from_file(
        file,
        kernel="matmul",
        reference=None,
        inputs=[f"{name}=f32[{size},{size}]" for name in ("lhsT", "rhs")],
        inputs_from=None,
        target="trn2",
        nki=None,
        lnc=None,
        need_reference=False,
    )
    found = trace(request, request.workloads[0], server)
    if found.program is None:
        raise SystemExit(f"benchmarks/numerics.py: the kernel was not traced: {found.failure}")
    return found.program


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=2048, help="K = M = N (default 2048)")
    parser.add_argument("--runs", type=int, default=5, help="interleaved runs (default 5)")
    options = parser.parse_args()
    generator = np.random.default_rng(0)
    arrays = [generator.standard_normal((options.size, options.size)).astype(np.float32) for _ in range(2)]
    wanted = [arrays[0].astype(np.float64).T @ arrays[1].astype(np.float64)]

    def reference(given: object) -> list[np.ndarray]:
        left, right = (np.asarray(each, np.float64) for each in given)  # type: ignore[attr-defined]
        return [left.T @ right]

    with tempfile.TemporaryDirectory() as folder, ForkServer() as server, threadpool_limits(1):
        for name, text in variants().items():
            program = traced(text, options.size, server, Path(folder))
            buffers = [number for _, number in program.parameter_buffers]
            arguments = dict(zip(buffers, arrays, strict=True))
            once, whole, said = [], [], ""
            for _ in range(options.runs):
                started = time.perf_counter()
                execute(program, arguments)
                between = time.perf_counter()
                found = diagnose(program, arguments, wanted, reference=reference)
                whole.append(time.perf_counter() - between)
                once.append(between - started)
                said = found.causes[0].name if found.causes else found.verdict
            ratio = statistics.median(one / other for one, other in zip(whole, once, strict=True))
            print(
                f"{name:22} execution {statistics.median(once):.2f} s, diagnosis {statistics.median(whole):.2f} s, "
                f"{ratio:.1f} times: {said}",
                flush=True,
            )


if __name__ == "__main__":
    main()
