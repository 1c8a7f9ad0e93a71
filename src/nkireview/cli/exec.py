"""nkireview exec."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

import click

from nkireview.cli.group import main
from nkireview.cli.options import release
from nkireview.cli.screen import WRONG_CALL

VALUED = ("--target", "--nki")
TARGET_VARIABLES = ("NEURON_PLATFORM_TARGET_OVERRIDE", "NKI_NC_VERSION")


class _LikePython(click.Command):
    """Options end where the user's command begins: at the first word that is not ours."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = 0
        while at < len(args) and args[at].startswith("-") and args[at] not in ("-m", "-c"):
            at += 2 if args[at] in VALUED else 1
        left = super().parse_args(ctx, args[:at])
        ctx.params["command"] = args[at:]
        return left


@main.command("exec", cls=_LikePython, options_metavar="[OPTIONS] (SCRIPT | -m MODULE | -c CODE) [ARGS]...")
@click.option(
    "--target",
    type=click.Choice(["trn1", "inf2", "trn2", "trn3"]),
    help="Hardware to run for, unless the script sets NEURON_PLATFORM_TARGET_OVERRIDE; default: the "
    "environment's, trn2.",
)
@click.option("--nki", metavar="RELEASE", callback=release, help="NKI release, 0.2 to 0.6; default: 0.6.")
@click.option("--debug", is_flag=True, help="Let print() and breakpoint() in a kernel show tensor values.")
@click.option(
    "--strict", is_flag=True, help="Raise for every broken limit, not only where nothing can be computed."
)
def exec_command(command: list[str], target: str | None, nki: str | None, debug: bool, strict: bool) -> None:
    """Run your own Python with `import nki` resolved to this package: kernels called on NumPy, torch or jax arrays
    are traced, verified and executed on the CPU, and give arrays back.

    \b
    Examples:
      nkireview exec test_kernel.py
      nkireview exec --target trn3 -m pytest tests -k softmax
      nkireview exec --debug kernel.py --size 512
      nkireview exec -c "import nki; print(nki.__name__)"

    The script runs with your environment and your rights, unlike a review, which isolates what it runs. torch, jax
    and pytest are those of this Python. The exit code is the script's.
    """
    if not command:
        click.echo(
            "nkireview: exec needs a script, -m MODULE or -c CODE; see nkireview exec --help", err=True
        )
        sys.exit(WRONG_CALL)
    environment: dict[str, Any] = dict(os.environ, NKI_SIMULATOR="1")
    if target:
        for variable in TARGET_VARIABLES:
            environment.pop(variable, None)
        environment["NKIREVIEW_TARGET"] = target
    if nki:
        environment["NKIREVIEW_NKI"] = nki
    if debug:
        environment["NKIREVIEW_DEBUG"] = "1"
    if strict:
        environment["NKIREVIEW_STRICT"] = "1"
    with subprocess.Popen([sys.executable, "-m", "nkireview.hosted", *command], env=environment) as child:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        code = child.wait()
        signal.signal(signal.SIGINT, before)
    sys.exit(code if code >= 0 else 128 - code)
