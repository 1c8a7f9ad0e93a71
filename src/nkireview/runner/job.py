"""What is run in a child (`Job`), within which limits (`Limits`), and what came of it (`Outcome`)."""

from __future__ import annotations

import dataclasses
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

# A job that waits for a processor is given more wall time, at most this many times its own.
STARVED = 10.0

Status = Literal[
    "done", "timeout", "cpu", "memory", "killed", "exited", "output", "scratch", "malformed", "response"
]
PATHS = ("unreadable", "readable")
STATUSES: tuple[Status, ...] = get_args(Status)

_ENTRY = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


class RunnerError(RuntimeError):
    """Jobs cannot be run here at all (platform, a helper that does not start); never a fault of the job."""


@dataclass(frozen=True)
class Limits:
    """What one job may use; bytes unless the name says seconds (`_s`) or it is a count (`processes`).

    `memory_bytes` bounds the address space of each process and the proportional set size of all of them;
    `scratch_bytes` counts open but deleted files too; `output_bytes` is what is kept of stdout and stderr. Time in
    which a job is ready but another has the processor does not count towards `wall_s`. `unreadable` names files and
    folders, absolute and without links, that must not be read, but for what is in `readable`.
    """

    wall_s: float = 60.0
    cpu_s: int = 60
    memory_bytes: int = 4 * GIB
    file_bytes: int = 64 * MIB
    scratch_bytes: int = 256 * MIB
    response_bytes: int = 512 * MIB
    output_bytes: int = 64 * KIB
    processes: int = 64
    unreadable: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in PATHS:
            if not all(Path(path).is_absolute() for path in getattr(self, name)):
                raise ValueError(f"limit {name} must hold absolute paths, not {list(getattr(self, name))}")
        for each in dataclasses.fields(self):
            if each.name in PATHS:
                continue
            value = getattr(self, each.name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"limit {each.name} must be a positive number, not {value!r}")
            if each.name != "wall_s" and value != int(value):
                raise ValueError(f"limit {each.name} must be a whole number, not {value!r}")


@dataclass(frozen=True)
class Job:
    """One call of a trusted entry function, `module:function`, in an isolated child.

    The entry is called as `entry(header, blobs)` and returns `(header, blobs)`; it may load untrusted code. `env` is
    added to the child's own small environment; the folders in its PYTHONPATH are appended to `sys.path`. Of a `session`
    the entry returns a function, which answers each `(header, blobs)` of the session in a fork of its own.
    """

    entry: str
    header: dict[str, Any] = field(default_factory=dict)
    blobs: list[bytes] = field(default_factory=list)
    limits: Limits = field(default_factory=Limits)
    env: dict[str, str] = field(default_factory=dict)
    session: bool = False

    def __post_init__(self) -> None:
        if not _ENTRY.fullmatch(self.entry):
            raise ValueError(f"entry {self.entry!r} must have the form 'package.module:function'")

    def message(self) -> dict[str, Any]:
        """The job as the header of a message; its blobs travel beside it."""
        return {
            "entry": self.entry,
            "header": self.header,
            "limits": dataclasses.asdict(self.limits),
            "env": self.env,
            "session": self.session,
        }

    @classmethod
    def from_message(cls, header: dict[str, Any], blobs: list[bytes]) -> Job:
        """The inverse of `message`."""
        given = header["limits"]
        limits = Limits(**{**given, **{name: tuple(given[name]) for name in PATHS}})
        return cls(header["entry"], header["header"], blobs, limits, header["env"], header["session"])


@dataclass(frozen=True)
class Outcome:
    """What came of one job. Header, blobs and stdout come from the child and are untrusted.

    `detail` is one sentence, empty only for "done". `held` names the limits and isolation layers that were in force;
    `not_held` those that were not, each as "name: reason".
    """

    status: Status
    header: dict[str, Any]
    blobs: list[bytes]
    detail: str
    stdout: str
    printed_bytes: int
    wall_s: float
    held: tuple[str, ...]
    not_held: tuple[str, ...]
    cpu_s: float = 0.0

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise ValueError(f"unknown status {self.status!r}; expected one of {', '.join(STATUSES)}")
        if self.status == "done" and self.detail:
            raise ValueError("an outcome that is 'done' has no detail")
        if self.status != "done" and not self.detail:
            raise ValueError(f"an outcome that is {self.status!r} needs a detail")
        if self.status != "done" and (self.header or self.blobs):
            raise ValueError(f"an outcome that is {self.status!r} has no response")


def size(count: float) -> str:
    """A number of bytes for a sentence: "4.0 GiB", "256 MiB", "64 KiB", "12 bytes"."""
    if count >= GIB:
        return f"{count / GIB:.1f} GiB"
    for unit, name in ((MIB, "MiB"), (KIB, "KiB")):
        if count >= unit:
            return f"{count / unit:.4g} {name}"
    return f"{count:.0f} bytes"
