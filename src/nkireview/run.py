"""Run a kernel once and look at it: outputs, error, instructions and bytes; no judgement."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from nkireview.adapting import Returned, drawn
from nkireview.arguments import Array, call
from nkireview.checks.integrity import forbidden
from nkireview.execute import execute
from nkireview.isa import dtypes
from nkireview.numerics.errors import ErrorFigures, compare
from nkireview.program.verify import verify
from nkireview.record import OutputSummary, RunSummary
from nkireview.review import counts_record
from nkireview.runner import ForkServer
from nkireview.runner.tree import leaves
from nkireview.tracing import Request, trace


class RunFailed(Exception):
    """The kernel could not be traced; `code` is the exit code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def run(request: Request, server: ForkServer, seed: int) -> tuple[RunSummary, dict[str, Array]]:
    """Trace, verify, count and, unless the workload is schedule-only, execute for one seed: summary and outputs."""
    workload = request.workloads[0]
    if request.failure is not None:
        raise RunFailed(request.failure.message, 1)
    if request.source is not None:
        for trespass in forbidden(request.source, request.kernel):
            raise RunFailed(f"{request.file}:{trespass.line}: not run, since the file {trespass.message}", 1)
    traced = trace(request, workload, server)
    if traced.unsupported:
        raise RunFailed(traced.unsupported, 2)
    if traced.program is None:
        assert traced.failure is not None
        place = f" ({traced.failure.place})" if traced.failure.place else ""
        raise RunFailed(f"{traced.failure.message}{place}", 1)
    program = traced.program
    outputs: list[OutputSummary] = []
    values: dict[str, Array] = {}
    faults: tuple[str, ...] = ()
    trips: Mapping[int, int] = {}
    if not workload.schedule_only:
        limits, reference = request.task_limits, request.reference
        asked, arguments = drawn(workload.inputs, seed, server, limits)
        buffers = [buffer for _, buffer in program.parameter_buffers]
        execution = execute(program, dict(zip(buffers, arguments.arrays(), strict=True)))
        faults = tuple(fault.message for fault in execution.faults)
        trips = execution.trips
        wanted: list[Array] | None = None
        found = [output.values for output in execution.outputs]
        if reference is not None:
            made = call(server, limits, reference, asked, float64=reference.float64)
            wanted = [np.asarray(value) for _, value in leaves(made)]
            if request.returned is not None:
                found = Returned(request.returned, server, limits)(found, wanted)
        for at, (output, value) in enumerate(zip(program.outputs, found, strict=False)):
            dtype = program.access(output.access).dtype
            ref = wanted[at] if wanted is not None and at < len(wanted) else None
            outputs.append(_summary(output.name, dtype, value, ref))
            values[output.name] = value
    summary = RunSummary(
        kernel=request.kernel,
        target=request.target.value,
        release=request.release.value,
        seed=seed,
        counts=counts_record(program, workload.name, trips),
        violations=tuple(violation.message for violation in verify(program)),
        faults=faults,
        outputs=tuple(outputs),
    )
    return summary, values


def save_outputs(values: dict[str, Array], folder: Path) -> Path:
    """Write the outputs as ``outputs.npz``; dtypes that NumPy does not know are stored as float32."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / "outputs.npz"
    plain = {
        name: value if value.dtype.isbuiltin == 1 else value.astype(np.float32)
        for name, value in values.items()
    }
    np.savez(target, **plain)  # type: ignore[arg-type]
    return target


def _summary(name: str, dtype: str, values: Array, wanted: Array | None) -> OutputSummary:
    numbers = dtypes.to_compute(values, dtypes.BY_NAME[dtype], np.dtype(np.float64))
    finite = numbers[np.isfinite(numbers)]
    low, high, mean = (finite.min(), finite.max(), finite.mean()) if finite.size else (np.nan,) * 3
    errors: dict[str, Any] = {}
    if wanted is not None:
        figures = compare(values, wanted, dtype)
        if isinstance(figures, ErrorFigures):
            errors = {
                "scaled_max": figures.scaled_max,
                "rms_ratio": figures.rms_ratio,
                "max_ulps": figures.worst_ulps,
            }
        else:
            errors = {"mismatches": getattr(figures, "mismatches", values.size)}
    return OutputSummary(
        name=name,
        dtype=dtype,
        shape=values.shape,
        minimum=float(low),
        maximum=float(high),
        mean=float(mean),
        nonfinite=int(numbers.size - finite.size),
        **errors,
    )
