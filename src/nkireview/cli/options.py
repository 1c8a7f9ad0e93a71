"""Options that commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from nkireview.cli.screen import WRONG_CALL
from nkireview.isa.release import Release


def release(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """A release that is known, or one sentence."""
    if value is not None:
        try:
            Release.parse(value)
        except ValueError as error:
            click.echo(f"nkireview: --nki: {error}", err=True)
            context.exit(WRONG_CALL)
    return value


def seeds_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--seeds",
        type=click.IntRange(1),
        metavar="N",
        help="Seeds to execute for each workload; default: the task's, 2.",
    )(command)


def submission_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--submission",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="The kernel file for a task that is named in place of it.",
    )(command)


def kernel_options(command: Callable[..., Any]) -> Callable[..., Any]:
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
                callback=release,
                help="NKI release, 0.2 to 0.6, or legacy; default: the task's, 0.6.",
            ),
            click.option(
                "--lnc", type=click.IntRange(1, 2), help="Logical NeuronCore size; default: the task's, 1."
            ),
            click.option(
                "--grid",
                metavar="SIZES",
                help="Launch grid of a legacy kernel: 4,2 or, over two cores, nc(2)*2,4; default: the file's, none.",
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
