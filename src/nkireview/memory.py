"""Space and traffic of a kernel on a target: traced, placed, timed and counted; nothing is executed or scored."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Literal

import nkireview
from nkireview import hardware
from nkireview.checks.locality import Locality
from nkireview.checks.space import Space
from nkireview.checks.survey import survey
from nkireview.hardware import Hardware
from nkireview.isa.enums import Memory
from nkireview.isa.release import Release
from nkireview.isa.table import ROWS
from nkireview.memorymap import BLOCKS, memory_maps
from nkireview.program.program import Program
from nkireview.programs import program_of, subject_of
from nkireview.record import (
    HeldRecord,
    MemorySummary,
    Predicted,
    SpaceRecord,
    TrafficLine,
    TrafficRecord,
    WorkloadMemory,
)
from nkireview.rules.facts import Facts, WorkloadFacts
from nkireview.rules.finding import Dimension, Evidence, Finding, Severity, in_order
from nkireview.rules.registry import RULES
from nkireview.runner import ForkServer
from nkireview.schedule.timing import Timing
from nkireview.tracing import Request, Workload

HELD = 40
"""Kinds of buffers that are named where a memory is fullest."""
TRAFFIC = 60
"""Lines whose traffic is told, those over HBM first."""
HBM = "HBM"
LEGALITY = "NKR001"
CAPACITY = frozenset({9, 11})
"""Limits of the size of SBUF and PSUM, by their numbers among the constraints."""


def memory(
    request: Request, server: ForkServer, progress: Callable[[str], None] = lambda _: None
) -> MemorySummary:
    """The memories of a kernel in every workload; NotJudged where there is no program to look at."""
    subject = subject_of(request)
    most = BLOCKS // max(len(request.workloads), 1)
    return MemorySummary(
        tool=f"nkireview {nkireview.__version__}",
        subject=subject,
        workloads=tuple(
            _workload(request, workload, server, progress, most) for workload in request.workloads
        ),
    )


def _workload(
    request: Request, workload: Workload, server: ForkServer, progress: Callable[[str], None], most: int
) -> WorkloadMemory:
    program, violations = program_of(request, workload, server, progress)
    broken = [violation for violation in violations if violation.blocking]
    if broken:
        facts = WorkloadFacts(workload.name, program=program, violations=violations)
        return WorkloadMemory(
            workload=workload.name,
            verdict="cannot fit" if broken[0].number in CAPACITY else "not legal",
            instructions=len(program),
            findings=_findings(request, facts),
        )
    progress(f"{workload.name}: placing the buffers of {len(program):,} instructions")
    target = hardware.target(request.target.value)
    timing = Timing(program)
    found = survey(program, ROWS, target)
    facts = WorkloadFacts(workload.name, program=program, violations=violations, timing=timing, survey=found)
    findings = _findings(request, facts)
    said = timing.prediction
    return WorkloadMemory(
        workload=workload.name,
        verdict=_verdict(findings, found.space),
        instructions=len(program),
        spaces=tuple(_space(program, space, target) for space in found.space),
        findings=findings,
        traffic=_traffic(found.locality),
        maps=memory_maps(program, found.placed, found.uses, target, timing.timeline, most),
        predicted=Predicted(
            total_ns=timing.total_ns, low_ns=said.low_ns, high_ns=said.high_ns, basis=said.basis
        ),
        assumed=timing.timeline.assumed,
    )


def _verdict(
    findings: Sequence[Finding], spaces: Sequence[Space]
) -> Literal["fits", "may not fit", "cannot fit", "not legal"]:
    blockers = {finding.code for finding in findings if finding.severity is Severity.blocker}
    if blockers:
        return "not legal" if blockers == {LEGALITY} else "cannot fit"
    doubted = any(finding.severity is not Severity.note for finding in findings)
    # a finding may weigh less in a generation whose compiler spills
    overfull = any(space.packed > space.usable for space in spaces)
    return "may not fit" if doubted or overfull else "fits"


def _findings(request: Request, facts: WorkloadFacts) -> tuple[Finding, ...]:
    """What the rules say of limits, and of space: those of the memory hierarchy that rest on the trace alone."""
    asked = Facts(
        kernel=request.kernel,
        workloads=(facts,),
        target=request.target.value,
        source=request.source,
        release=Release.parse(request.release.value),
    )
    rules = [
        rule
        for rule in RULES
        if rule.code == LEGALITY or (rule.dimension is Dimension.memory and rule.evidence is Evidence.traced)
    ]
    return in_order([finding for rule in rules for finding in rule.findings(asked)])


def _space(program: Program, space: Space, target: Hardware) -> SpaceRecord:
    psum = space.memory is Memory.psum
    kinds: dict[tuple[str, int, int], list[str]] = defaultdict(list)
    for each in space.alive:
        kinds[each.place, each.bytes, each.partitions].append(each.name)
    held = [
        HeldRecord(place=place, name=_common(names), bytes=size, partitions=partitions, count=len(names))
        for (place, size, partitions), names in kinds.items()
    ]
    held.sort(key=lambda item: (-item.bytes * item.partitions * item.count, item.place, item.name))
    return SpaceRecord(
        memory="PSUM" if psum else "SBUF",
        core=space.core,
        usable=space.usable,
        physical=target.psum_bytes if psum else target.sbuf_bytes,
        peak=space.peak,
        peak_instruction=space.peak_at,
        peak_place=program.place_text(int(program.columns.place[space.peak_at])),
        alive=tuple(held[:HELD]),
    )


def _common(names: list[str]) -> str:
    """The name of all, or the first of several."""
    return names[0] if len(set(names)) == 1 else f"{names[0]}, ..."


def _traffic(found: Locality) -> TrafficRecord:
    routes: dict[str, float] = defaultdict(float)
    for line in found.lines:
        routes[line.route] += line.bytes
    lines = sorted(found.lines, key=lambda line: (HBM not in line.route, -line.bytes, line.place, line.route))
    return TrafficRecord(
        moved=found.moved,
        compulsory=found.compulsory,
        least=found.least,
        least_why=found.least_why,
        attainable=found.attainable,
        by_route=dict(sorted(routes.items(), key=lambda item: (-item[1], item[0]))),
        lines=tuple(
            TrafficLine(
                place=line.place,
                route=line.route,
                bytes=line.bytes,
                transfers=line.transfers,
                descriptors=line.descriptors,
                descriptor_bytes=line.descriptor_bytes,
                reloaded_bytes=line.reloaded_bytes,
            )
            for line in lines[:TRAFFIC]
        ),
    )
