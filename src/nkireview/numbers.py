"""The numbers of one workload: diagnosis, shape of the error, what a tolerance lets through, as a record."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.audit import audit
from nkireview.checks.dataflow import flow_of
from nkireview.checks.routes import Route, routes
from nkireview.diagnosis.diagnose import Observed, Reference, diagnose
from nkireview.diagnosis.model import Diagnosis, OutputDiagnosis
from nkireview.diagnosis.platforms import platform, spread
from nkireview.diagnosis.tolerance import Derivation
from nkireview.isa import dtypes
from nkireview.isa.dtypes import BY_NAME
from nkireview.mutants import killed, mutants
from nkireview.numbers_record import (
    AuditLine,
    CauseRecord,
    Chosen,
    Growth,
    HeatMap,
    Histogram,
    LetThrough,
    NumbersRecord,
    OutputNumbers,
    PatternRecord,
    PlatformNumbers,
    RoundingCost,
)
from nkireview.numerics.arrays import as_rows, root_mean_square, row_rms
from nkireview.numerics.limits import Limits
from nkireview.numerics.verdict import judge
from nkireview.program.program import Program

Array = NDArray[Any]
Float64 = NDArray[np.float64]

CELLS = 32
"""Rows and columns of a heat map."""
EDGES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 64.0, 256.0)
"""Upper edges of the histogram, in units of the output's spacing."""

GPUS = ("gpu-fp32", "gpu-tf32", "gpu-fast-math")
"""GPUs that every Program is held against; the first is compared with its target."""
ROUTES = 24
"""Routes that are told."""


def numbers(
    program: Program,
    arguments: Mapping[int, Array],
    wanted: Sequence[Array],
    *,
    workload: str,
    seed: int,
    inputs: str,
    reference: Reference | None = None,
    observed: Observed | None = None,
    limits: Sequence[Limits] | None = None,
    seconds: float | None = None,
    full: bool = False,
    rounded: bool = False,
    repeatable: bool = False,
    derivation: Derivation | None = None,
) -> NumbersRecord:
    """Diagnose the outputs of a Program and record what a person needs to judge them.

    arguments: an array in storage dtype for each parameter buffer; wanted: a float64 array for each output. reference,
    observed, rounded, repeatable: see `diagnose`. limits: the task's own tolerance of each output, whose gaps are then
    sought. full: platforms, precision by line and routes as well. Raise ValueError where shapes do not fit, and where
    nothing can be compared.
    """
    started = time.monotonic()
    derivation = derivation or Derivation.of_program(program)
    found = diagnose(
        program,
        arguments,
        wanted,
        reference=reference,
        observed=observed,
        seconds=seconds,
        derivation=derivation,
        rounded=rounded,
        repeatable=repeatable,
    )
    exact = [np.asarray(each, np.float64) for each in wanted]
    let: tuple[LetThrough, ...] = ()
    noticed = 0
    if limits is not None:
        let, noticed = _let_through(program, arguments, limits)
    outputs = tuple(
        _output(found.outputs[at], exact[at], None if limits is None else limits[at])
        for at in range(len(exact))
    )
    more: dict[str, Any] = {}
    if full:
        more = _more(program, arguments, derivation, found, exact)
    return NumbersRecord(
        workload=workload,
        inputs=inputs,
        seed=seed,
        verdict=found.verdict,
        sentence=found.sentence,
        outputs=outputs,
        causes=tuple(
            CauseRecord(name=each.name, sentence=each.sentence, place=each.line, evidence=each.evidence)
            for each in found.causes
        ),
        costs=tuple(
            RoundingCost(
                place=each.line,
                opcode=each.opcode,
                dtype=each.dtype,
                instructions=each.count,
                error=each.error,
                share=each.share,
            )
            for each in found.costs
        ),
        deviation=found.deviation,
        growth=tuple(
            Growth(
                place=program.place_text(int(program.columns.place[each.instruction])),
                dtype=_written_dtype(program, each.instruction),
                additions=each.additions,
                error=each.error,
                expected=each.expected,
            )
            for each in found.growth
        ),
        own_tolerance=limits is not None,
        let_through=let,
        noticed=noticed,
        skipped=found.skipped,
        seconds=time.monotonic() - started,
        **more,
    )


def _output(found: OutputDiagnosis, wanted: Float64, limits: Limits | None) -> OutputNumbers:
    tolerance = found.tolerance
    use = tolerance.use(found.values, wanted)
    floats = dtypes.BY_NAME[tolerance.dtype].kind == "float"
    return OutputNumbers(
        name=found.name,
        dtype=tolerance.dtype,
        shape=wanted.shape,
        verdict=found.verdict,
        use=found.use if math.isfinite(found.use) else None,
        over=found.over,
        at=found.index,
        got=repr(found.got),
        expected=repr(found.wanted),
        chosen=chosen(tolerance.allowed, wanted, tolerance.dtype) if floats else None,
        patterns=tuple(
            PatternRecord(name=str(each.name), sentence=each.sentence, explains=each.explains)
            for each in found.patterns
        ),
        heat=_heat(use),
        ulps=_histogram(found.values, wanted, tolerance.dtype) if floats else None,
        zeros=None if limits is None else _zeros(wanted, limits),
    )


def chosen(allowed: Float64, wanted: Float64, dtype: str) -> Chosen:
    """A relative part of the output's own rounding, and what is left in units of the rms of each row."""
    rtol = dtypes.unit_roundoff(dtypes.BY_NAME[dtype])
    rows = as_rows(np.where(np.isfinite(wanted), wanted, 0.0))
    with np.errstate(over="ignore"):
        size = row_rms(as_rows(wanted))
    left = np.maximum(as_rows(allowed) - rtol * np.abs(rows), 0)
    share = np.divide(left, size, out=np.zeros_like(left), where=size > 0)
    return Chosen(rtol=_up(rtol), atol=_up(float(share.max(initial=0.0))))


def _up(value: float) -> float:
    """The next number of two digits that is not smaller."""
    if value <= 0 or not math.isfinite(value):
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.ceil(value / unit * (1 - 1e-12)) * unit:.2g}")


def _heat(use: Float64) -> HeatMap:
    rows = as_rows(use)
    steps = [-(-length // CELLS) for length in rows.shape]
    starts = [np.arange(0, length, step) for length, step in zip(rows.shape, steps, strict=True)]
    most = np.maximum.reduceat(np.maximum.reduceat(rows, starts[0], axis=0), starts[1], axis=1)
    flat = [float(f"{value:.3g}") if math.isfinite(value) else -1.0 for value in most.ravel().tolist()]
    return HeatMap(
        rows=rows.shape[0], columns=rows.shape[1], row_step=steps[0], column_step=steps[1], use=tuple(flat)
    )


def _histogram(got: Float64, wanted: Float64, dtype: str) -> Histogram:
    with np.errstate(invalid="ignore"):
        errors = np.abs(got - wanted) / dtypes.ulp(wanted, dtypes.BY_NAME[dtype])
    errors = errors[np.isfinite(errors)]
    counts = np.diff(np.searchsorted(np.sort(errors), EDGES, side="right"), prepend=0)
    return Histogram(edges=EDGES, counts=(*counts.tolist(), int(errors.size - counts.sum())))


def _zeros(wanted: Float64, limits: Limits) -> float | None:
    """The share of the elements, those apart that are zero, that may be zero; None where all are."""
    size = np.abs(wanted[np.isfinite(wanted) & (wanted != 0)])
    if not size.size or limits.exact:
        return 0.0 if size.size else None
    rows = as_rows(np.where(np.isfinite(wanted), wanted, 0.0))
    scale = row_rms(as_rows(wanted)) if limits.per_row else root_mean_square(wanted)
    allowed = limits.rtol * np.abs(rows) + limits.atol * scale + limits.absolute
    return float(np.count_nonzero((np.abs(rows) <= allowed) & (rows != 0)) / size.size)


def _let_through(
    program: Program, arguments: Mapping[int, Array], limits: Sequence[Limits]
) -> tuple[tuple[LetThrough, ...], int]:
    """The mutants that the task's own tolerance does not notice, and how many it notices."""

    def passes(got: Sequence[Array], honest: Sequence[Array]) -> bool:
        return all(
            judge(one, np.asarray(mine, np.float64), limit).passed
            for one, mine, limit in zip(got, honest, limits, strict=True)
        )

    outcomes = killed(program, arguments, mutants(program), passes)
    missed = tuple(
        LetThrough(name=each.mutant.name, sentence=each.mutant.sentence, place=each.mutant.place)
        for each in outcomes
        if each.state == "survived"
    )
    return missed, sum(each.state == "killed" for each in outcomes)


def _more(
    program: Program,
    arguments: Mapping[int, Array],
    derivation: Derivation,
    found: Diagnosis,
    wanted: Sequence[Float64],
) -> dict[str, Any]:
    """Platforms, the precision of each line, and the routes of values."""
    allowed = [each.tolerance.allowed for each in found.outputs]
    judged = audit(program, arguments, wanted, allowed)
    apart = spread(derivation, arguments, [platform(name) for name in _platforms(program)])
    ways = routes(flow_of(program))
    return {
        "audit": tuple(
            AuditLine(
                place=", ".join(line.places),
                dtype=line.dtype,
                other=line.to,
                verdict=line.verdict,
                use=line.use if line.use is None or math.isfinite(line.use) else None,
                gain_ns=line.saved_ns or 0.0,
                sentence=line.sentence,
            )
            for line in judged.lines
        ),
        "platforms": tuple(
            PlatformNumbers(
                platform=each.platform,
                output=output.name,
                max_error=each.error.max_relative,
                rms_error=each.error.rms_relative,
                ulps=each.error.max_ulps if math.isfinite(each.error.max_ulps) else None,
            )
            for output in apart.outputs
            for each in output.platforms
        ),
        "between": " ".join(output.pair(GPUS[0], program.header.target).sentence for output in apart.outputs),
        "routes": tuple(_route(way) for way in ways[:ROUTES]),
    }


def _platforms(program: Program) -> tuple[str, ...]:
    """GPUs in the precisions that the Program multiplies in, and its own target."""
    low = {BY_NAME[name].name for name in program.dtypes} & {"bfloat16", "float16"}
    tensor = tuple(f"gpu-tensor-{'bf16' if name == 'bfloat16' else 'fp16'}" for name in sorted(low))
    return (*GPUS, *tensor, program.header.target)


def _route(way: Route) -> str:
    """A route in one line: its dtypes, and what is remarkable on it."""
    remarks = "; ".join(remark.text for remark in way.remarks)
    cut = " (more ways than are told)" if way.cut else ""
    return f"{way.input} to {way.output}: {' > '.join(way.dtypes)}{': ' + remarks if remarks else ''}{cut}"


def _written_dtype(program: Program, instruction: int) -> str:
    access = program.instruction(instruction).operands.get("dst")
    return "" if access is None else access.dtype
