"""The commands, thin: arguments in, exit codes out."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.status import Status

import nkireview
from nkireview.arguments import ArgumentError, ReferenceFailed
from nkireview.isa.release import Release
from nkireview.record import ExitCode, ReviewRecord
from nkireview.report import machine, terminal
from nkireview.requests import UsageError, from_file, from_task, with_limits
from nkireview.review import review
from nkireview.run import RunFailed, run, save_outputs
from nkireview.runner import ForkServer, RunnerError
from nkireview.task import TaskError, resolve
from nkireview.tracing import Request

OUT = "nkireview-out"
WRONG_CALL = int(ExitCode.not_judged)
SLOW_S = 2.0
PIPE_WIDTH = 400


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(nkireview.__version__, prog_name="nkireview")
def main() -> None:
    """Judge NKI kernels for AWS Trainium and Inferentia2, without the Neuron SDK or an accelerator.

    Exit codes: 0 acceptable; 1 a blocker was found; 2 the kernel could not be judged.
    """


def _release(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """A release that is known, or one sentence."""
    if value is not None:
        try:
            Release.parse(value)
        except ValueError as error:
            click.echo(f"nkireview: --nki: {error}", err=True)
            context.exit(WRONG_CALL)
    return value


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(
        (
            click.option(
                "--kernel", metavar="NAME", help="The kernel function; any function of the file may be named."
            ),
            click.option(
                "--reference", metavar="FILE:FUNC", help="NumPy function that computes the right answer."
            ),
            click.option(
                "--input",
                "inputs",
                multiple=True,
                metavar="NAME=DTYPE[SHAPE]",
                help="An input, in the order of the kernel's parameters: x=bf16[4096,2048], "
                "x=f32[8,8]:uniform(0,1); a scalar: eps=1e-6.",
            ),
            click.option(
                "--inputs-from", metavar="FILE:FUNC", help="Function of a seed that returns the arguments."
            ),
            click.option(
                "--target",
                type=click.Choice(["trn1", "inf2", "trn2", "trn3"]),
                help="Hardware to judge for; default: the task's, the file's, trn2.",
            ),
            click.option(
                "--nki",
                metavar="RELEASE",
                callback=_release,
                help="NKI release, 0.2 to 0.6, or legacy; default: the task's, 0.6.",
            ),
            click.option(
                "--lnc", type=click.IntRange(1, 2), help="Logical NeuronCore size; default: the task's, 1."
            ),
            click.option(
                "--seed", type=click.IntRange(0), help="Repeat a review with the seeds of its report."
            ),
            click.option(
                "--wall",
                type=click.FloatRange(0.1),
                metavar="SECONDS",
                help="Wall time of each child; default 60.",
            ),
            click.option(
                "--out", type=click.Path(path_type=Path, file_okay=False), help="Folder for the results."
            ),
            click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the screen."),
        )
    ):
        command = option(command)
    return command


@main.command("review")
@click.argument("path", type=click.Path(path_type=Path))
@_options
def review_command(path: Path, out: Path | None, as_json: bool, wall: float | None, **options: Any) -> None:
    """Review a task folder, one of its submissions, or a kernel file.

    \b
    Examples:
      nkireview review examples/softmax
      nkireview review examples/softmax/submissions/good --target trn3
      nkireview review kernel.py --kernel softmax --reference ref.py:softmax --input x=bf16[4096,2048]

    Writes review.json below --out (default nkireview-out).
    """
    with _sentences():
        requests = [with_limits(request, wall) for request in _requests(path, options)]
        console = Console(stderr=True)
        codes: list[int] = []
        records: list[ReviewRecord] = []
        with ForkServer() as server:
            for request in requests:
                with _progress(console) as progress:
                    record = review(request, server, progress)
                target = machine.write(
                    record, (out or Path(OUT)) / _folder(request, many=len(requests) > 1 or not out)
                )
                records.append(record)
                codes.append(int(record.exit_code))
                if not as_json:
                    screen = _screen()
                    terminal.print_review(record, screen)
                    screen.print(f"Report: {target}\n", style="dim", highlight=False)
        if as_json:
            texts = [machine.to_json(record) for record in records]
            click.echo(texts[0] if len(texts) == 1 else f"[{','.join(texts)}]")
    sys.exit(max(codes))


@main.command("run")
@click.argument("kernel_file", type=click.Path(path_type=Path))
@_options
@click.option("--schedule-only", is_flag=True, help="Trace, verify and count; draw and execute nothing.")
def run_command(
    kernel_file: Path, out: Path | None, as_json: bool, wall: float | None, seed: int | None, **options: Any
) -> None:
    """Run a kernel once: outputs, error against a reference, instructions by engine, bytes moved.

    \b
    Examples:
      nkireview run kernel.py --input x=f32[256,512]
      nkireview run kernel.py --kernel helper --inputs-from data.py:inputs --reference ref.py:f --out results

    With --out the outputs are written to outputs.npz.
    """
    with _sentences():
        request = with_limits(from_file(kernel_file, need_reference=False, seed=seed, **options), wall)
        with ForkServer() as server, _progress(Console(stderr=True)) as progress:
            progress(f"running {request.kernel}")
            try:
                summary, values = run(request, server, 0 if seed is None else seed)
            except RunFailed as error:
                click.echo(f"nkireview: {error}", err=True)
                sys.exit(error.code)
        written = save_outputs(values, out) if out and values else None
        if as_json:
            click.echo(summary.model_dump_json(indent=2))
        else:
            terminal.print_run(summary, _screen())
            if written:
                click.echo(f"Outputs: {written}")


def _requests(path: Path, options: dict[str, Any]) -> list[Request]:
    if not path.exists():
        raise UsageError(f"{path}: no such file or folder; expected a task folder or a kernel file")
    named = [name for name in ("kernel", "reference", "inputs", "inputs_from") if options[name]]
    if path.is_file() and named:
        return [from_file(path, **options)]
    if named:
        spelled = ", ".join(f"--{'input' if name == 'inputs' else name.replace('_', '-')}" for name in named)
        raise UsageError(f"{path} is a folder: {spelled} belong to a kernel file; a task names its own")
    common = {name: options[name] for name in ("target", "nki", "lnc", "seed")}
    task, submissions = resolve(path)
    return [from_task(task, submission, **common) for submission in submissions]


def _folder(request: Request, many: bool) -> Path:
    if not many:
        return Path()
    if request.task:
        return Path(request.task) / request.submission
    return Path(f"{request.file.stem}-{request.kernel or 'kernel'}")


def _screen() -> Console:
    """The terminal; where there is none, lines wide enough not to be broken."""
    return Console() if sys.stdout.isatty() else Console(width=PIPE_WIDTH)


@contextmanager
def _sentences() -> Iterator[None]:
    """Wrong calls end with one sentence and exit code 2."""
    try:
        yield
    except (UsageError, ArgumentError, TaskError, RunnerError, ReferenceFailed) as error:
        click.echo(f"nkireview: {error}", err=True)
        sys.exit(WRONG_CALL)
    except OSError as error:
        click.echo(f"nkireview: {error.filename or 'file'}: {error.strerror}", err=True)
        sys.exit(WRONG_CALL)
    except Exception:
        # exit code 1 says that the kernel has a blocker; a fault of ours says nothing about the kernel
        traceback.print_exc()
        click.echo(
            "nkireview: a fault of nkireview itself, nothing was judged; report it with these lines", err=True
        )
        sys.exit(WRONG_CALL)


@contextmanager
def _progress(console: Console) -> Iterator[Callable[[str], None]]:
    """A status line on a terminal once the work takes longer than two seconds."""
    started = time.monotonic()
    status: Status | None = None

    def show(text: str) -> None:
        nonlocal status
        if not console.is_terminal or time.monotonic() - started < SLOW_S:
            return
        if status is None:
            status = console.status(text)
            status.start()
        status.update(text)

    try:
        yield show
    finally:
        if status is not None:
            status.stop()
