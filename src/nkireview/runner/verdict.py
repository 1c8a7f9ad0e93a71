"""What a worker's end means: from its wait status, its processor time and the bytes it sent to an outcome."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import Any

from nkireview.runner import wire
from nkireview.runner.job import Limits, Status, size
from nkireview.runner.worker import CHANNEL_LOST, TEXT_LIMIT


@dataclass(frozen=True)
class Verdict:
    """A status and the sentence for it (empty for "done")."""

    status: Status
    detail: str


def over_time(limits: Limits) -> Verdict:
    return Verdict("timeout", f"ran longer than {limits.wall_s:g} s")


def over_memory(limits: Limits) -> Verdict:
    return Verdict("memory", f"used more than {size(limits.memory_bytes)} of memory")


def over_scratch(limits: Limits) -> Verdict:
    return Verdict("scratch", f"wrote more than {size(limits.scratch_bytes)} to its scratch directory")


def over_response(limits: Limits) -> Verdict:
    return Verdict("response", f"returned more than {size(limits.response_bytes)}")


def over_processes(limits: Limits) -> Verdict:
    return Verdict("killed", f"killed because it ran more than {limits.processes} processes at once")


def second_writer() -> Verdict:
    return Verdict("malformed", "let a second process write to the channel on which its result is returned")


def ended(wait_status: int, cpu_s: float, response: bytes | bytearray, limits: Limits) -> Verdict:
    """The verdict on a worker that ended by itself or by the system's hand.

    `wait_status` is as `os.wait4` gives it; `response` is all that it wrote, which may come from hostile code.
    """
    if os.WIFSIGNALED(wait_status):
        return _signalled(os.WTERMSIG(wait_status), cpu_s, limits)
    code = os.WEXITSTATUS(wait_status)
    if code == CHANNEL_LOST and not response:
        return Verdict("malformed", "closed the channel on which its result is returned")
    if code or not response:
        return Verdict("exited", f"called exit with code {code} before returning a result")
    try:
        header, _ = wire.unpack(response, limits.response_bytes)
    except wire.WireError as error:
        return Verdict("malformed", f"returned a malformed result ({error})")
    return _answered(header, limits)


def _signalled(number: int, cpu_s: float, limits: Limits) -> Verdict:
    if number == signal.SIGXCPU or (number == signal.SIGKILL and cpu_s >= limits.cpu_s):
        return Verdict("cpu", f"used more than {limits.cpu_s} s of processor time")
    if number == signal.SIGXFSZ:
        return Verdict("output", f"wrote a file larger than {size(limits.file_bytes)}")
    name = f" ({signal.Signals(number).name})" if number in set(signal.Signals) else ""
    return Verdict("killed", f"killed by signal {number}{name}")


def _answered(header: dict[str, Any], limits: Limits) -> Verdict:
    match header:
        case {"returned": dict()} if len(header) == 1:
            return Verdict("done", "")
        case {"raised": "memory"}:
            return over_memory(limits)
        case {"raised": "exit", "text": str(code)} if code.removeprefix("-").isdecimal():
            return Verdict("exited", f"called exit with code {code[:12]} before returning a result")
        case {"raised": "exception", "text": str(text)}:
            return Verdict("exited", f"ended with {_printable(text)} before returning a result")
    return Verdict("malformed", "returned a message that is neither a result nor an error")


def _printable(text: str) -> str:
    """Untrusted text as part of one line: no line breaks, no terminal control."""
    line = " ".join(text[:TEXT_LIMIT].split())
    return "".join(each if each.isprintable() else "?" for each in line)
