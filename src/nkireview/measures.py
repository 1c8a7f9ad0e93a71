"""From records and facts to the measures of ``rubric/measures.toml``; one that has nothing to rest on is absent."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from nkireview.checks.survey import Survey
from nkireview.checks.utilisation import Flags, Floats, Work
from nkireview.hardware import Hardware
from nkireview.isa.enums import Engine, Memory
from nkireview.program.program import Program
from nkireview.record import OutputResult, Run, TimeRecord
from nkireview.rubric import tables
from nkireview.rules.facts import WorkloadFacts
from nkireview.timeline.timeline import COMPUTE, TRANSFER, Timeline

AS_DRAWN = "as drawn"
LEAST_MATMUL = 0.1
"""Least share of the compute time, by documented intervals, from which it counts how matmuls fill the PE array."""


def measures(
    runs: Sequence[Run],
    times: Sequence[TimeRecord],
    workloads: Sequence[WorkloadFacts],
    hardware: Hardware,
) -> dict[str, float]:
    """The measures of a review by name, in the order of the table; each is finite."""
    surveys = [(item.program, item.survey) for item in workloads if item.program and item.survey]
    texts = [survey for _, survey in surveys]
    drawn = [run for run in runs if run.in_contract and run.inputs == AS_DRAWN]
    found: dict[str, float | None] = {
        **dict(_coverage(runs, times, workloads)),
        "correct_runs": _correct(run for run in runs if run.in_contract),
        "hostile_runs": _correct(run for run in runs if not run.in_contract),
        "error_headroom": headroom(drawn, largest_share),
        "rms_headroom": headroom(drawn, rms_share),
        "reload_factor": reload_factor(texts),
        "worst_reload": worst_reload(texts),
        "needed_bytes_share": needed_bytes_share(surveys),
        "partitions_used": partitions_used(texts, hardware),
        "partitions_idle": saved(times, workloads, partitions_lost(hardware)),
        "pe_filled": pe_filled(texts, hardware),
        "pe_idle": saved(times, workloads, cells_lost(hardware)),
        "free_size_share": free_size_share(texts, hardware),
        "fixed_cost": saved(times, workloads, fixed_lost(hardware)),
        "sbuf_peak_share": peak_share(texts, Memory.sbuf),
        "psum_peak_share": peak_share(texts, Memory.psum),
        "dma_run_share": dma_run_share(texts, hardware),
        "dma_issue_share": dma_issue_share(
            [item.timing.timeline for item in workloads if item.timing is not None]
        ),
        "overlap": overlap(times),
        "bound_share": bound_share(times),
        "roofline_share": _ratio(sum(item.floor_ns for item in times), sum(item.total_ns for item in times)),
    }
    kept = ((name, found[name]) for name in tables.measures())
    return {name: float(value) for name, value in kept if value is not None and math.isfinite(value)}


def largest_share(output: OutputResult) -> float:
    """How much of its elementwise limit the largest error of an output uses; 0 where there is no error.

    The limit is rtol * |ref| + atol * rms(ref) + absolute; rms(ref) is what the record's figures imply.
    """
    figures, limits = output.figures, output.limits
    if output.explained is not None:
        return output.explained
    if figures is None or figures.scaled_max == 0:
        return 0.0
    if not math.isfinite(figures.scaled_max) or figures.max_abs == 0:
        return math.inf
    rms = figures.max_abs / figures.scaled_max
    reference = float(figures.expected)
    limit = limits["rtol"] * abs(reference) + limits["atol"] * rms + limits["absolute"]
    return figures.max_abs / limit if limit > 0 else math.inf


def rms_share(output: OutputResult) -> float:
    """How much of its limit the rms error of an output uses, the term for small outputs left out."""
    figures, limit = output.figures, output.limits.get("rms", 0.0)
    if output.explained is not None:
        return output.explained
    if figures is None or figures.rms_ratio == 0:
        return 0.0
    return figures.rms_ratio / limit if limit > 0 else math.inf


def headroom(runs: Iterable[Run], used: Callable[[OutputResult], float]) -> float | None:
    """1 less the most of a limit that an output uses, from 0 to 1; 0 where one is wrong, None without figures."""
    outputs = [output for run in runs for output in run.outputs if output.figures is not None]
    if not outputs:
        return None
    if any(output.status == "wrong" for output in outputs):
        return 0.0
    return max(0.0, 1.0 - max(used(output) for output in outputs))


def reload_factor(surveys: Sequence[Survey]) -> float | None:
    """Bytes loaded from HBM over the different bytes among them; those of unknown address count as different."""
    traffic = [survey.traffic for survey in surveys]
    return _ratio(sum(item.load_bytes for item in traffic), sum(item.needed_bytes for item in traffic))


def needed_bytes_share(surveys: Sequence[tuple[Program, Survey]]) -> float | None:
    """Different bytes of arguments loaded and of results stored, of all bytes moved to and from HBM."""
    needed = moved = 0.0
    for program, survey in surveys:
        given = {buffer for _, buffer in program.parameter_buffers}
        results = {program.access(output.access).buffer for output in program.outputs}
        traffic = survey.traffic
        for load in traffic.loaded:
            if load.buffer in given:
                needed += load.bytes if load.needed is None else load.needed
        for store in traffic.stored:
            if store.buffer in results:
                needed += store.bytes if store.distinct is None else store.distinct
        moved += traffic.load_bytes + traffic.store_bytes
    share = _ratio(needed, moved)
    # cores that share what they load, or masked elements, make the two sides differ in what they count
    return None if share is None else min(share, 1.0)


def worst_reload(surveys: Sequence[Survey]) -> float | None:
    """The most that any buffer is loaded over by one stream; a load that copies a row to all partitions counts once."""
    loaded = [item for survey in surveys for item in survey.traffic.loaded]
    return max((item.factor / item.spread for item in loaded), default=None)


def partitions_used(surveys: Sequence[Survey], hardware: Hardware) -> float | None:
    """Partitions at work on the Vector, Scalar and GpSimd engines, of all, weighted by the instructions' intervals."""
    lost = partitions_lost(hardware)
    return _weighted(surveys, lambda work: ~work.on(Engine.tensor), lambda work: 1.0 - lost(work))


def pe_filled(surveys: Sequence[Survey], hardware: Hardware) -> float | None:
    """Cells of the PE array that matmuls fill, of all, weighted by their intervals; transposes do not count.

    None where matmuls take less than `LEAST_MATMUL` of all intervals: then the array is not what the kernel is about.
    """
    time = sum(float((survey.work.interval * survey.work.times).sum()) for survey in surveys)
    matmuls = sum(
        float((survey.work.interval * survey.work.times)[survey.work.products > 0].sum())
        for survey in surveys
    )
    if not time or matmuls < LEAST_MATMUL * time:
        return None
    lost = cells_lost(hardware)
    return _weighted(surveys, lambda work: work.products > 0, lambda work: 1.0 - lost(work))


def free_size_share(surveys: Sequence[Survey], hardware: Hardware) -> float | None:
    """How little of the compute instructions' time is fixed cost, weighted by their intervals.

    On the Vector and Scalar engines an instruction counts N / (N + fixed cycles), N its free size, at one element a
    cycle; a matmul counts its moving columns of the most that are allowed. Other engines' fixed cost is not known.
    """
    lost = fixed_lost(hardware)
    return _weighted(surveys, lambda work: ~np.isnan(lost(work)), lambda work: 1.0 - lost(work))


Lost = Callable[[Work], Floats]
"""For each instruction the share of its time that is lost; NaN for those that do not count."""


def partitions_lost(hardware: Hardware) -> Lost:
    """The partitions that instructions of the Vector, Scalar and GpSimd engines leave idle."""

    def lost(work: Work) -> Floats:
        idle = 1.0 - np.minimum(work.partitions / hardware.partitions, 1.0)
        return np.where(work.on(Engine.tensor), np.nan, idle)

    return lost


def cells_lost(hardware: Hardware) -> Lost:
    """The cells of the PE array that matmuls leave idle."""

    def lost(work: Work) -> Floats:
        return np.where(work.products > 0, 1.0 - work.rows * work.columns / hardware.partitions**2, np.nan)

    return lost


def fixed_lost(hardware: Hardware) -> Lost:
    """The fixed cost of an instruction; for a matmul the moving columns that it lacks to the most that are allowed."""
    fixed = {
        engine: hardware.number(path)
        for engine in (Engine.vector, Engine.scalar)
        for path in [f"{engine.name}.overhead_cycles"]
        if hardware.knows(path)
    }
    longest = hardware.moving_free_max("float32")

    def lost(work: Work) -> Floats:
        found = np.where(work.products > 0, 1.0 - np.minimum(work.free / longest, 1.0), np.nan)
        for engine, cycles in fixed.items():
            found = np.where(work.on(engine), cycles / (work.free + cycles), found)
        return found

    return lost


def saved(times: Sequence[TimeRecord], workloads: Sequence[WorkloadFacts], lost: Lost) -> float | None:
    """The share of the predicted time that would be saved at most if no instruction lost what `lost` says.

    The engine that loses most counts, for as long as it is busy; nothing gets below the floor. None where no
    instruction counts.
    """
    surveys = {item.name: item.survey for item in workloads if item.survey is not None}
    most = total = 0.0
    counts = False
    for item in times:
        survey = surveys.get(item.workload)
        if survey is None:
            continue
        work = survey.work
        share = lost(work)
        counts |= bool((~np.isnan(share)).any())
        weight = work.interval * work.times
        gone = [0.0]
        for engine in np.unique(work.engine).tolist():
            mine = work.engine == engine
            whole = float(weight[mine].sum())
            part = float((np.nan_to_num(share) * weight)[mine].sum())
            busy = max((lane.busy_ns for lane in item.lanes if lane.name == Engine(engine).name), default=0.0)
            gone.append(busy * part / whole if whole else 0.0)
        most += min(max(gone), max(item.total_ns - item.floor_ns, 0.0))
        total += item.total_ns
    return _ratio(most, total) if counts else None


def peak_share(surveys: Sequence[Survey], memory: Memory) -> float | None:
    """The most of a memory that is in use in any workload, of what is usable."""
    held = [space for survey in surveys for space in survey.space if space.memory is memory]
    return max((space.peak / space.usable for space in held), default=None)


def dma_run_share(surveys: Sequence[Survey], hardware: Hardware) -> float | None:
    """Bytes that DMA moves in contiguous runs of at least the recommended length, of all bytes that DMA moves."""
    least = hardware.integer("dma.recommended_bytes")
    long = moved = 0.0
    for survey in surveys:
        moves = survey.moves
        each = moves.bytes * moves.times
        long += float(each[moves.run >= least].sum())
        moved += float(each.sum())
    return _ratio(long, moved)


def dma_issue_share(timelines: Sequence[Timeline]) -> float | None:
    """Predicted time for which the queue that issues most DMAs is busy issuing them, of all predicted time."""
    busiest = total = 0.0
    seen = False
    for timeline in timelines:
        transfers = [at for at, lane in enumerate(timeline.lanes) if lane.name == TRANSFER]
        carried = np.isin(timeline.lane, transfers)
        moved = np.unique(timeline.instruction[carried & (timeline.instruction >= 0)])
        issues = ~carried & np.isin(timeline.instruction, moved)
        length = (timeline.stop - timeline.start)[issues]
        by_lane = np.bincount(timeline.lane[issues], weights=length, minlength=len(timeline.lanes))
        seen |= bool(len(moved))
        busiest += float(by_lane.max(initial=0.0))
        total += timeline.total_ns
    return _ratio(busiest, total) if seen else None


def overlap(times: Sequence[TimeRecord]) -> float | None:
    """The share of the transfer time during which an engine computes, weighted by the transfer time."""
    moved = [sum(lane.busy_ns for lane in item.lanes if lane.name == TRANSFER) for item in times]
    hidden = (item.overlap * busy for item, busy in zip(times, moved, strict=True))
    return _ratio(sum(hidden), sum(moved))


def bound_share(times: Sequence[TimeRecord]) -> float | None:
    """Time for which each workload's busiest compute engine or DMA is busy, of all predicted time."""
    working = (*COMPUTE, TRANSFER)
    busiest = (
        max((lane.busy_ns for lane in item.lanes if lane.name in working), default=0.0) for item in times
    )
    return _ratio(sum(busiest), sum(item.total_ns for item in times))


def _coverage(
    runs: Sequence[Run], times: Sequence[TimeRecord], workloads: Sequence[WorkloadFacts]
) -> Iterator[tuple[str, float | None]]:
    """How many of the workloads were traced, executed and timed; None where none was."""
    names = {item.name for item in workloads}
    reached = {
        "workloads_traced": {item.name for item in workloads if item.program is not None},
        "workloads_executed": {run.workload for run in runs if run.status != "not assessed"},
        "workloads_timed": {item.workload for item in times},
    }
    for name, held in reached.items():
        yield name, _ratio(len(held & names), len(names)) or None


def _correct(runs: Iterable[Run]) -> float | None:
    assessed = [run.status for run in runs if run.status != "not assessed"]
    return _ratio(assessed.count("correct"), len(assessed))


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


def _weighted(
    surveys: Sequence[Survey],
    counted: Callable[[Work], Flags],
    share: Callable[[Work], Floats],
) -> float | None:
    """The mean share over the counted instructions of all surveys, weighted by the intervals of all executions."""
    part = whole = 0.0
    for survey in surveys:
        work = survey.work
        of = counted(work)
        weight = (work.interval * work.times)[of]
        part += float((share(work)[of] * weight).sum())
        whole += float(weight.sum())
    return _ratio(part, whole)
