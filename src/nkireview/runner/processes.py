"""The processes below this one: who they are, what they use, and how to end them all."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import stat
import sys
import time
from collections.abc import Collection, Mapping
from pathlib import Path

# /proc/<pid>/stat after the parenthesised command: state, parent, ...
_STATE, _PARENT = 0, 1
_READY = frozenset((b"R", b"D"))


def parents() -> dict[int, int]:
    """Every process on the machine with its parent; empty without /proc (macOS)."""
    return {pid: int(fields[_PARENT]) for pid, fields in _stats().items()}


def ready_below(root: int) -> int:
    """How many processes below `root` run, could run, or wait for a disk."""
    stats = _stats()
    found = descendants(root, above={pid: int(fields[_PARENT]) for pid, fields in stats.items()})
    return sum(stats[pid][_STATE] in _READY for pid in found)


def _stats() -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = {}
    if sys.platform != "linux":
        return found
    for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 (often asked, and slow as a Path)
        try:
            with open(f"/proc/{name}/stat", "rb", buffering=0) as file:  # noqa: PTH123
                found[int(name)] = file.read().rpartition(b")")[2].split()
        except OSError:  # it ended between the listing and the reading
            continue
    return found


def descendants(root: int, spare: Collection[int] = (), above: Mapping[int, int] | None = None) -> list[int]:
    """All processes below `root`, without those in `spare` and what is below them; `above` as from `parents`."""
    children: dict[int, list[int]] = {}
    for pid, parent in (parents() if above is None else above).items():
        children.setdefault(parent, []).append(pid)
    found: list[int] = []
    queue = [root]
    while queue:
        below = [pid for pid in children.get(queue.pop(), []) if pid not in spare]
        found += below
        queue += below
    return found


def kill_descendants(spare: Collection[int] = (), within_s: float = 5.0) -> list[int]:
    """Kill and reap all that is below this process, until nothing is left; returns what outlived `within_s`.

    Orphans come to this process if it is a child subreaper, so a double fork does not escape.
    """
    end = time.monotonic() + within_s
    while _has_children():
        found = descendants(os.getpid(), spare)
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, os.WNOHANG)
            except (ProcessLookupError, ChildProcessError):  # it has ended, or is not our own child
                continue
        if not found or time.monotonic() > end:
            return found
        time.sleep(0.001)
    return []


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def resident_bytes(pids: Collection[int]) -> int:
    """Memory of these processes together, shared pages counted once (proportional set size)."""
    total = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_bytes().splitlines()
        except OSError:  # it has ended
            continue
        total += sum(int(line.split()[1]) << 10 for line in lines if line.startswith(b"Pss:"))
    return total


def queued_s(pids: Collection[int]) -> float:
    """Seconds that the threads of these processes were ready and another had the processor; 0 where none tells."""
    total = 0
    for pid in pids:
        try:
            lines = [(task / "schedstat").read_bytes() for task in Path(f"/proc/{pid}/task").iterdir()]
        except OSError:  # it has ended, or the kernel does not count this
            continue
        total += sum(int(line.split()[1]) for line in lines)
    return total / 1e9


def deleted_file_bytes(pids: Collection[int]) -> int:
    """Bytes in files that these processes hold open but that have no name any more (memfd included)."""
    sizes: dict[tuple[int, int], int] = {}
    for path in itertools.chain.from_iterable(_descriptors(pid) for pid in pids):
        try:
            status = path.stat()
        except OSError:  # closed between the listing and the look
            continue
        if stat.S_ISREG(status.st_mode) and status.st_nlink == 0:
            sizes[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(sizes.values())


def _descriptors(pid: int) -> list[Path]:
    try:
        return list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:  # it has ended
        return []


def tasks_of(user: int) -> int:
    """Threads of one user on this machine, as RLIMIT_NPROC counts them."""
    count = 0
    for process in _running():
        try:
            if process.stat().st_uid == user:
                count += (process / "task").stat().st_nlink - 2
        except OSError:  # it has ended
            continue
    return count


def _running() -> list[Path]:
    return [path for path in Path("/proc").iterdir() if path.name.isdigit()]


def signal_channel() -> int:
    """A descriptor that yields the number of each SIGCHLD and SIGTERM; the signals have no other effect."""
    readable, writable = os.pipe()
    os.set_blocking(readable, False)
    os.set_blocking(writable, False)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda number, frame: None)
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    return readable


def default_signals() -> None:
    """Undo what a forked child inherited: handlers, the wake-up descriptor, and Python's ignored SIGXFSZ."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)


def close_all_but(keep: Collection[int]) -> None:
    """Close every file descriptor of this process except those in `keep`."""
    for descriptor in [int(path.name) for path in Path("/dev/fd").iterdir()]:
        if descriptor not in keep:
            with contextlib.suppress(OSError):  # the descriptor of the listing itself
                os.close(descriptor)


def signals_in(channel: int) -> set[int]:
    """The numbers of the signals that came since the last call."""
    found: set[int] = set()
    try:
        while numbers := os.read(channel, 4096):
            found.update(numbers)
    except BlockingIOError:
        pass  # the channel is empty
    return found
