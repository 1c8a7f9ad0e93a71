"""The command group."""

from __future__ import annotations

import click
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

import nkireview


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(nkireview.__version__, prog_name="nkireview")
def main() -> None:
    """Judge NKI kernels for AWS Trainium and Inferentia2, without the Neuron SDK or an accelerator.

    Exit codes: 0 acceptable; 1 a blocker was found; 2 the kernel could not be judged.
    """
    threadpool_limits(1)  # its idle threads spin, and take the cores of our children
