"""Records for the tests of reports: a bad, a middling and an excellent kernel, a hostile one, two that ended early."""

from __future__ import annotations

from typing import Any

from nkireview.record import (
    CountsRecord,
    Figures,
    LaneRecord,
    Legality,
    LineCost,
    MemoryCurve,
    OutputResult,
    PathStep,
    ReviewRecord,
    Run,
    Setting,
    Subject,
    TimeRecord,
)
from nkireview.rubric.scorecard import CriterionScore, DimensionScore, Edit, EvidenceLink, Scorecard
from nkireview.rules.finding import Dimension, Evidence, Finding, Severity

NASTY = "</style><script>alert(1)</script>]]>\"'`|*_[x](y)@someone\x1b[31mred\u202etxt\u200b<b>&amp;"
SOURCE = "\n".join(
    [
        '"""Softmax of each row."""',
        "import nki.isa as nisa",
        "import nki.language as nl",
        "",
        "",
        "def softmax(x):",
        "    rows, columns = x.shape",
        "    out = nl.ndarray((rows, columns), dtype=x.dtype, buffer=nl.shared_hbm)",
        "    for row in range(0, rows, 64):  # half of the partitions",
        "        tile = nl.ndarray((64, columns), dtype=x.dtype, buffer=nl.sbuf)",
        "        nisa.dma_copy(dst=tile, src=x[row : row + 64, :])",
        "        nisa.activation(dst=tile, op=nl.exp, data=tile)",
        "        nisa.dma_copy(dst=out[row : row + 64, :], src=tile)",
        "    return out",
    ]
)


def subject(**changes: Any) -> Subject:
    values: dict[str, Any] = {
        "kernel": "softmax",
        "file": "examples/softmax/submissions/wrong/kernel.py",
        "sha256": "0" * 64,
        "task": "softmax",
        "submission": "wrong",
        "reference": "reference.py:softmax",
        "target": Setting(value="trn2", origin="default"),
        "release": Setting(value="0.6", origin="default"),
        "lnc": Setting(value="1", origin="default"),
    }
    return Subject(**{**values, **changes})


def finding(**changes: Any) -> Finding:
    values: dict[str, Any] = {
        "code": "NKR060",
        "severity": Severity.major,
        "dimension": Dimension.tiling,
        "evidence": Evidence.traced,
        "message": "tiles use 64 of 128 partitions, so 128 of 256 loop turns are there only because of it",
        "places": ("kernel.py:10", "kernel.py:11"),
        "count": 128,
        "citation": "aws-neuron-sdk nki/get-started/about/tiling-overview.rst:150-163",
        "title": "Half of the partitions idle",
        "why": "an engine takes as long for 64 partitions as for 128: the time goes with the free size alone",
        "change": "make the row tile 128 and halve the number of turns",
        "gain_ns": 4.1e6,
        "workload": "large",
    }
    return Finding(**{**values, **changes})


def wrong_finding() -> Finding:
    return finding(
        code="NKR020",
        severity=Severity.blocker,
        dimension=Dimension.numerics,
        evidence=Evidence.executed,
        message="output out is wrong (scale-100 inputs, seed 7): 12,148 of 65,536 elements (19%) differ in NaN or "
        "infinity; the first is at [0, 2]: got nan, expected 0",
        places=("kernel.py:12",),
        count=1,
        title="The output is wrong",
        why="exp overflows fp32 past 88.7, and infinity over infinity is NaN",
        change="subtract the maximum of the row before exp: nisa.activation(..., bias=negative_maximum)",
        gain_ns=None,
        failing="scale-100 inputs, seed 7, output out at [0, 2]",
    )


def note(at: int = 0) -> Finding:
    return finding(
        code="NKR045",
        severity=Severity.note,
        dimension=Dimension.sdk,
        evidence=Evidence.source,
        message=f"note number {at} on the spelling of an argument",
        places=("kernel.py:8",),
        count=1,
        gain_ns=None,
        title="",
        why="",
        change="",
    )


def minor() -> Finding:
    return finding(
        code="NKR071",
        severity=Severity.minor,
        dimension=Dimension.dma,
        evidence=Evidence.scheduled,
        message="DMA runs of 256 bytes take 16 of 28 us of the transfers",
        places=("kernel.py:11", "helper.py:3"),
        title="Short DMA runs",
        why="below 512 bytes a descriptor costs as much as 512 bytes",
        change="load several rows in one transfer",
        gain_ns=9.0e3,
    )


def lanes(shares: dict[str, float], steps: int = 64, core: int = 0) -> tuple[LaneRecord, ...]:
    return tuple(
        LaneRecord(
            name=name,
            core=core,
            busy_ns=share * 28.3e6,
            share=share,
            activity=tuple(share if (at // 4) % 2 else min(1.0, share * 1.4) for at in range(steps)),
        )
        for name, share in shares.items()
    )


def curve(memory: Any = "SBUF", usable: int = 196608, peak: int = 98304, core: int = 0) -> MemoryCurve:
    return MemoryCurve(
        memory=memory,
        core=core,
        usable=usable,
        peak=peak,
        peak_place="kernel.py:10",
        at_ns=(0.0, 2e6, 9e6, 14e6, 21e6, 27e6),
        used=(peak // 4, peak, peak // 2, peak, peak // 3, 0),
    )


def time(workload: str = "large", scale: float = 1.0, **changes: Any) -> TimeRecord:
    values: dict[str, Any] = {
        "workload": workload,
        "total_ns": 28.3e6 * scale,
        "low_ns": 25.0e6 * scale,
        "high_ns": 31.6e6 * scale,
        "bound": "compute",
        "bound_by": "the scalar engine, busy 83% of the time",
        "floor_ns": 19.0e6 * scale,
        "overlap": 0.42,
        "lanes": lanes(
            {"tensor": 0.0, "vector": 0.31, "scalar": 0.83, "gpsimd": 0.02, "sync": 0.05, "dma": 0.64}
        ),
        "critical": (
            PathStep(
                place="kernel.py:12", opcode="activation", ns=18e6, share=0.63, waits="data from kernel.py:11"
            ),
            PathStep(
                place="kernel.py:11", opcode="dma_copy", ns=8e6, share=0.28, waits="reuse of kernel.py:13"
            ),
            PathStep(place="", opcode="launch", ns=2e6, share=0.09),
        ),
        "lines": (
            LineCost(
                place="kernel.py:12",
                opcode="activation",
                lane="scalar",
                instructions=512,
                held_ns=23.5e6,
                critical_ns=18e6,
            ),
            LineCost(
                place="kernel.py:11",
                opcode="dma_copy",
                lane="sync",
                instructions=256,
                held_ns=0.3e6,
                transfer_ns=9e6,
                bytes=1 << 26,
            ),
        ),
        "memory": (curve(), curve("PSUM", 16384, 4096)),
        "assumed": ("a loop without static bounds runs once",),
    }
    return TimeRecord(**{**values, **changes})


def figures(**changes: Any) -> Figures:
    values: dict[str, Any] = {
        "scaled_max": 2.89e-6,
        "rms_ratio": 7.07e-8,
        "max_ulps": 4.0,
        "max_abs": 1e-7,
        "at": (0, 2),
        "got": "0.25",
        "expected": "0.2500001",
        "elements": 65536,
        "nonfinite_mismatches": 0,
    }
    return Figures(**{**values, **changes})


def run(inputs: str = "as drawn", **changes: Any) -> Run:
    output = OutputResult(name="out", dtype="float32", shape=(128, 512), status="correct", figures=figures())
    values: dict[str, Any] = {
        "workload": "large",
        "seed": 7,
        "inputs": inputs,
        "status": "correct",
        "outputs": (output,),
    }
    return Run(**{**values, **changes})


def wrong_run() -> Run:
    output = OutputResult(
        name="out",
        dtype="float32",
        shape=(128, 512),
        status="wrong",
        figures=figures(scaled_max=float("nan"), max_ulps=None, nonfinite_mismatches=12148),
        reason="12,148 elements differ in NaN or infinity",
    )
    return run("scale-100", status="wrong", outputs=(output,))


def counts(workload: str = "large") -> CountsRecord:
    return CountsRecord(
        workload=workload,
        instructions=1280,
        by_engine={"dma": 512, "scalar": 512, "vector": 256},
        by_opcode={"dma_copy": 512},
        bytes_by_route={"hbm->sbuf": 1 << 26, "sbuf->hbm": 1 << 26},
        multiply_accumulates=0,
        dma_transfers=512,
    )


def criterion(level: float | None, **changes: Any) -> CriterionScore:
    values: dict[str, Any] = {
        "id": "partitions",
        "title": "Partitions used",
        "weight": 2,
        "level": level,
        "descriptor": "half of the partitions idle" if level is not None else "",
        "reason": "" if level is not None else "there is no profile to hold the claim against",
    }
    return CriterionScore(**{**values, **changes})


def scorecard(levels: dict[Dimension, float | None], **changes: Any) -> Scorecard:
    dimensions = tuple(
        DimensionScore(
            dimension=dimension,
            weight=1,
            score=levels.get(dimension),
            reason="" if levels.get(dimension) is not None else "there is nothing yet to assess it by",
            criteria=(
                criterion(
                    levels.get(dimension),
                    evidence=(
                        EvidenceLink(kind="finding", name="NKR020", finding=0, effect="caps the score at 1"),
                        EvidenceLink(
                            kind="measure", name="partition_share", value=0.5, effect="level 2: at least 0.5"
                        ),
                    ),
                ),
            ),
        )
        for dimension in Dimension
    )
    values: dict[str, Any] = {"rubric": "default", "dimensions": dimensions, "uncapped": 62.0, "total": 62.0}
    return Scorecard(**{**values, **changes})


def _levels(base: float, **changes: float | None) -> dict[Dimension, float | None]:
    levels: dict[Dimension, float | None] = dict.fromkeys(Dimension, base)
    levels[Dimension.migration] = levels[Dimension.claims] = None
    return {**levels, **{Dimension[name]: level for name, level in changes.items()}}


def record(**changes: Any) -> ReviewRecord:
    values: dict[str, Any] = {
        "tool": "nkireview 0.1.0",
        "subject": subject(),
        "status": "acceptable",
        "legality": Legality(status="legal"),
        "runs": (run(), run("scale-100")),
        "counts": (counts(),),
        "times": (time(),),
        "measures": {"partition_share": 0.5, "hbm_bytes": 134217728.0},
        "not_checked": ("benchmark claims: none were made", "migration: there is no CUDA original"),
        "isolation_held": ("process group", "memory"),
    }
    return ReviewRecord(**{**values, **changes})


def bad() -> ReviewRecord:
    return record(
        status="rejected",
        runs=(run(), run("tiny"), wrong_run()),
        findings=(wrong_finding(), finding(), minor(), *(note(at) for at in range(11))),
        scorecard=scorecard(
            _levels(2.2, numerics=0.4, correctness=0.8, tiling=1.4),
            total=38.0,
            cap=40.0,
            capped_by=("NKR020",),
            edits=(
                Edit(
                    who="A reviewer",
                    when="2025-01-02",
                    why="the contract excludes it",
                    of="0" * 64,
                    criterion="partitions",
                    before=2,
                    after=1,
                ),
            ),
        ),
        strengths=("exponentials and sums are kept in fp32",),
        isolation_not_held=("network namespace: not granted here",),
    )


def middling() -> ReviewRecord:
    return record(
        subject=subject(submission="slow"),
        findings=(finding(), minor(), note()),
        scorecard=scorecard(_levels(3.1, tiling=1.5, performance=2.0), total=71.0, uncapped=71.0),
        times=(time(), time("tile", 0.001, memory=(), critical=())),
        counts=(counts(), counts("tile")),
        strengths=("every run is correct, hostile inputs too", "DMA runs of 2 KiB"),
    )


def excellent() -> ReviewRecord:
    return record(
        subject=subject(submission="good"),
        scorecard=scorecard(_levels(3.8), total=96.0, uncapped=96.0),
        strengths=("all 128 partitions used", "transfers overlapped to 92%", "sums in fp32"),
    )


def not_reviewed() -> ReviewRecord:
    """A review that could not be done: no times, no scorecard, no program."""
    return record(
        status="not reviewed",
        reason="the task is void: a kernel of zeros would pass",
        legality=Legality(status="not assessed", reason="there is no program"),
        runs=(),
        counts=(),
        times=(),
        measures={},
        not_checked=(),
    )


def early() -> ReviewRecord:
    """A kernel that was rejected before it could be traced."""
    stopped = wrong_finding().model_copy(update={"message": "the kernel raises: ValueError", "places": ()})
    return not_reviewed().model_copy(update={"status": "rejected", "reason": "", "findings": (stopped,)})


def hostile() -> ReviewRecord:
    """Every text that a submission can choose holds markup, controls and workflow commands."""
    text = f"::error::{NASTY}\r\n::set-env name=x::y {NASTY}"
    return record(
        status="rejected",
        reason=text,
        subject=subject(kernel=NASTY, file=f"{NASTY}.py", task="", submission="", reference=NASTY),
        findings=(
            finding(
                severity=Severity.blocker,
                message=text,
                title=NASTY,
                why=text,
                change=text,
                failing=text,
                workload=NASTY,
                citation=NASTY,
                places=(f"{NASTY}:3", "kernel.py:3"),
            ),
        ),
        runs=(run(NASTY, workload=NASTY),),
        counts=(counts(NASTY),),
        times=(
            time(
                NASTY,
                bound_by=NASTY,
                assumed=(NASTY,),
                critical=(PathStep(place=NASTY, opcode=NASTY, ns=1.0, share=1.0, waits=NASTY),),
                lines=(LineCost(place=NASTY, opcode=NASTY, lane=NASTY, instructions=1, held_ns=1.0),),
            ),
        ),
        scorecard=scorecard(_levels(1.0), rubric=NASTY),
        measures={NASTY: 1.0},
        strengths=(NASTY,),
        not_checked=(NASTY,),
        isolation_not_held=(NASTY,),
        stubs=(NASTY,),
    )


def unexecuted() -> ReviewRecord:
    return record(runs=(), reason="nothing was executed: whether the result is right was not looked at")


SAMPLES = {
    "bad": bad,
    "middling": middling,
    "excellent": excellent,
    "not_reviewed": not_reviewed,
    "early": early,
    "unexecuted": unexecuted,
    "hostile": hostile,
}
