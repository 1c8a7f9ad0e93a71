"""nkireview profile."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from rich.console import Console

import nkireview
from nkireview import hardware
from nkireview.checks.survey import survey
from nkireview.cli.group import main
from nkireview.cli.memory import request_of
from nkireview.cli.options import kernel_options, submission_option
from nkireview.cli.screen import WRONG_CALL, progress, screen, sentences
from nkireview.isa.table import ROWS
from nkireview.profiling import Profile, profile
from nkireview.programs import NotJudged, program_of, subject_of
from nkireview.record import ExitCode
from nkireview.report.machine import write_texts
from nkireview.report.perfetto import save_trace
from nkireview.report.profile import CLOCKS, Shown, print_profile, profile_html
from nkireview.report.profile_record import profile_json
from nkireview.report.profile_summary import summary_json
from nkireview.report.text import subject_name
from nkireview.requests import UsageError
from nkireview.runner import ForkServer
from nkireview.schedule.timing import Timing
from nkireview.tracing import Request, Workload

PAGE, TRACE, SUMMARY, JSON = "profile.html", "profile.pftrace", "summary.json", "profile.json"
"""What --out writes."""


TOOL = f"nkireview {nkireview.__version__}"


def _file(name: str, shown: str, text: str) -> Callable[..., Any]:
    return click.option(name, type=click.Path(path_type=Path, dir_okay=False), metavar=shown, help=text)


@main.command("profile")
@click.argument("path", metavar="KERNEL", type=click.Path(path_type=Path))
@submission_option
@kernel_options
@click.option("--workload", metavar="NAME", help="The workload of a task to profile; default: each of them.")
@click.option(
    "--clock",
    type=click.Choice(list(CLOCKS)),
    default="benchmark",
    help="Whose time the headline says: nki.benchmark's, total_active_time's, total_time's, or the window from "
    "first to last work; default: benchmark.",
)
@_file("--html", "OUT.html", "Write the page with the timeline.")
@_file("--perfetto", "OUT.pftrace", "Write the timeline as a trace for ui.perfetto.dev.")
@_file("--summary", "OUT.json", "Write the figures under the Neuron profiler's metric names.")
def profile_command(
    path: Path,
    out: Path | None,
    as_json: bool,
    wall: float | None,
    workload: str | None,
    clock: str,
    html: Path | None,
    perfetto: Path | None,
    summary: Path | None,
    **options: Any,
) -> None:
    """Simulate how a kernel spends its time, and say why; nothing is executed.

    \b
    Examples:
      nkireview profile kernel.py --input x=bf16[4096,2048]
      nkireview profile examples/matmul/submissions/good --workload square --html matmul.html
      nkireview profile kernel.py --input x=bf16[4096,2048] --perfetto kernel.pftrace --clock total

    Prints the predicted time with its range, how busy each engine and queue is and what it waited for when not, the
    critical path by line, overlap, use, roofline and bounds. KERNEL is named as for review; --reference and --seed
    are taken and not needed. With --out all files are written: profile.json, profile.html, profile.pftrace and
    summary.json.

    \b
    Exit codes: 0 it was timed; 1 it is not legal; 2 it could not be judged.
    """
    with sentences():
        request = request_of(path, options, wall)
        chosen = _workloads(request, workload)
        single = {"--html": html, "--perfetto": perfetto, "--summary": summary}
        for name, file in single.items():
            if file is not None and len(chosen) > 1:
                raise UsageError(f"{name} writes one workload; name one with --workload: {_names(request)}")
            for other, same in single.items():
                if other > name and same is not None and same == file:
                    raise UsageError(f"{name} and {other} both write {file}; name two files")
        texts: list[str] = []
        code = ExitCode.acceptable
        try:
            subject = subject_of(request)
            with ForkServer() as server:
                for at, each in enumerate(chosen):
                    with progress(Console(stderr=True)) as tell:
                        found, broken = _profile(request, each, server, tell)
                        if found is not None:
                            shown = Shown(
                                TOOL,
                                subject,
                                found,
                                clock,
                                several=len(request.workloads) > 1,
                                illegal=broken,
                            )
                            _write(shown, html, perfetto, summary, tell)
                            if out is not None:
                                folder = out / each.name if len(chosen) > 1 else out
                                _write(shown, folder / PAGE, folder / TRACE, folder / SUMMARY, tell)
                                write_texts({JSON: profile_json(shown)}, folder)
                            if as_json:
                                texts.append(profile_json(shown))
                    if broken:
                        click.echo(f"nkireview: {each.name}: {broken}", err=True)
                        code = ExitCode.blocker
                    if found is not None and not as_json:
                        print_profile(shown, screen(), head=at == 0)
        except NotJudged as error:
            click.echo(f"nkireview: {error}", err=True)
            sys.exit(WRONG_CALL)
        if as_json:
            click.echo(texts[0] if len(chosen) == 1 and texts else f"[{','.join(texts)}]\n", nl=False)
        elif code is ExitCode.acceptable:
            for file in (html, perfetto, summary, out):
                if file is not None:
                    screen().print(f"Written: {file}", style="dim", highlight=False, markup=False)
    sys.exit(int(code))


def _names(request: Request) -> str:
    return ", ".join(each.name for each in request.workloads)


def _workloads(request: Request, name: str | None) -> list[Workload]:
    chosen = [each for each in request.workloads if name in (None, each.name)]
    if request.workloads and not chosen:
        raise UsageError(f"--workload {name}: there is none of that name; known: {_names(request)}")
    return chosen


def _profile(
    request: Request, workload: Workload, server: ForkServer, tell: Callable[[str], None]
) -> tuple[Profile | None, str]:
    """The profile of a workload, None where it has no meaning; and which limit it breaks, "" where none."""
    program, violations = program_of(request, workload, server, tell)
    broken = next((each.message for each in violations if each.blocking), "")
    if broken:
        return None, f"not legal, so that nothing was timed: {broken}"
    tell(f"{workload.name}: timing {len(program):,} instructions")
    target = hardware.target(request.target.value)
    found = profile(program, Timing(program), survey(program, ROWS, target), target, workload.name)
    return found, f"not legal, and timed as if it were: {violations[0].message}" if violations else ""


def _write(
    shown: Shown, html: Path | None, perfetto: Path | None, summary: Path | None, tell: Callable[[str], None]
) -> None:
    if html is not None:
        tell("drawing the timeline")
        write_texts({html.name: profile_html(shown)}, html.parent)
    if perfetto is not None:
        tell("writing the trace")
        save_trace(shown.profile.slices, perfetto, f"{subject_name(shown)} {shown.profile.name}")
    if summary is not None:
        write_texts({summary.name: summary_json(shown.profile, shown.tool)}, summary.parent)
