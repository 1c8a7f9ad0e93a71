"""Makes this process one that launches kernels: `nki` and the stand-ins are put into `sys.modules`."""

from __future__ import annotations

import sys

from nkireview.hosted import machine, shims
from nkireview.hosted.launch import launch
from nkireview.hosted.settings import settings
from nkireview.hosted.simulate import simulate
from nkireview.nki import jit, modules, trace
from nkireview.nki.trace import Trace


def install() -> None:
    """Let kernels be launched from here; a second call changes nothing."""
    known = sys.modules.get("nki")
    if known is not None and getattr(known, "simulate", None) is simulate:
        return
    nki = modules.install()
    nki.__dict__.update(simulate=simulate, cpu_simulate=simulate)
    jit.host = launch
    trace.outside = _outside
    shims.install(nki)
    machine.install()


def _outside() -> Trace:
    """The target that host code asks figures of."""
    chosen = settings()
    return Trace(chosen.target, chosen.release)
