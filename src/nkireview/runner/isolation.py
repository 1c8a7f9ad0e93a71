"""What a worker does to itself before it runs anything untrusted, layer by layer.

Each layer is a function that raises `NotHeldError` or `OSError` where this machine cannot provide it; `apply` runs
them in order and reports which held. Linux interfaces are called by number (sources: landlock(7), unshare(2), prctl(2),
capabilities(7)).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import struct
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from nkireview.runner import processes
from nkireview.runner.job import Limits

_CLONE_NEWUSER = 0x1000_0000
_CLONE_NEWNET = 0x4000_0000

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38

_CAPABILITY_VERSION_3 = 0x2008_0522
# Reading stays as wide as the caller's: a root without it could not read files of other users.
_CAP_DAC_READ_SEARCH = 1 << 2

_LANDLOCK_CREATE_RULESET, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT_SELF = 444, 445, 446
_LANDLOCK_CREATE_RULESET_VERSION = 1
_LANDLOCK_RULE_PATH_BENEATH = 1

_WRITE_FILE, _READ_FILE = 1 << 1, 1 << 2
_DEVICE_NODES = 1 << 6 | 1 << 11  # make character and block devices
_CHANGE_TREE = sum(1 << bit for bit in range(4, 13))  # remove and make files of every kind
_REFER, _TRUNCATE, _IOCTL_DEVICE = 1 << 13, 1 << 14, 1 << 15
_BIND_TCP, _CONNECT_TCP = 1 << 0, 1 << 1
_SCOPE_ABSTRACT_SOCKET, _SCOPE_SIGNAL = 1 << 0, 1 << 1


class NotHeldError(Exception):
    """A layer cannot be provided on this machine; the text is the reason."""


@dataclass(frozen=True)
class Setting:
    """What the layers need to know about the job."""

    limits: Limits
    scratch: Path
    env: dict[str, str]
    guardian: int


@dataclass(frozen=True)
class Layers:
    """Names of the layers that hold, and "name: reason" of those that do not."""

    held: tuple[str, ...]
    not_held: tuple[str, ...]


def apply(setting: Setting) -> Layers:
    """Isolate this process; it cannot be undone."""
    held: list[str] = []
    not_held: list[str] = []
    for name, layer in LAYERS:
        try:
            layer(setting)
        except NotHeldError as reason:
            not_held.append(f"{name}: {reason}")
        except (OSError, ValueError) as error:
            not_held.append(f"{name}: the system refused it ({error})")
        else:
            held.append(name)
    return Layers(tuple(held), tuple(not_held))


def become_subreaper() -> None:
    """Make orphans below this process its own children, so that it can end them."""
    _linux_only()
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """End this process when its parent, `parent`, ends."""
    _linux_only()
    _prctl(_PR_SET_PDEATHSIG, 9)
    if os.getppid() != parent:
        os._exit(1)


def _process_group(setting: Setting) -> None:
    os.setsid()


def _scratch_directory(setting: Setting) -> None:
    os.chdir(setting.scratch)
    tempfile.tempdir = None


def _environment(setting: Setting) -> None:
    os.environ.clear()
    os.environ.update(setting.env)


def _cpu(setting: Setting) -> None:
    # One second between SIGXCPU and SIGKILL, for a job that ignores the first.
    _limit(resource.RLIMIT_CPU, setting.limits.cpu_s, setting.limits.cpu_s + 1)


def _memory(setting: Setting) -> None:
    _linux_only()
    _limit(resource.RLIMIT_AS, setting.limits.memory_bytes)


def _file_size(setting: Setting) -> None:
    _limit(resource.RLIMIT_FSIZE, setting.limits.file_bytes)


def _core_dumps(setting: Setting) -> None:
    _limit(resource.RLIMIT_CORE, 0)


def _process_limit(setting: Setting) -> None:
    if os.getuid() == 0:
        raise NotHeldError("RLIMIT_NPROC does not bind root")
    _linux_only()
    _limit(resource.RLIMIT_NPROC, processes.tasks_of(os.getuid()) + setting.limits.processes)


def _no_network(setting: Setting) -> None:
    _linux_only()
    user, group = os.getuid(), os.getgid()
    try:
        _libc(_LIBC.unshare(_CLONE_NEWNET))
    except PermissionError:
        _libc(_LIBC.unshare(_CLONE_NEWUSER | _CLONE_NEWNET))
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def _no_new_privileges(setting: Setting) -> None:
    _linux_only()
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def _no_capabilities(setting: Setting) -> None:
    """A root that keeps its capabilities could raise its own limits again."""
    _linux_only()
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    current = ctypes.create_string_buffer(24)
    _libc(_LIBC.capget(header, current))
    permitted = struct.unpack("=6I", current.raw)[1]
    kept = permitted & _CAP_DAC_READ_SEARCH
    _libc(_LIBC.capset(header, struct.pack("=6I", kept, kept, 0, 0, 0, 0)))


def _landlock(setting: Setting) -> None:
    """Read and execute, but for what is unreadable; write below the scratch directory and to /dev/null only."""
    version = _landlock_version()
    write = _WRITE_FILE | _CHANGE_TREE
    write |= sum(
        right for needs, right in ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL_DEVICE)) if version >= needs
    )
    tcp = _BIND_TCP | _CONNECT_TCP if version >= 4 else 0
    scoped = _SCOPE_ABSTRACT_SOCKET | _SCOPE_SIGNAL if version >= 6 else 0
    fields = 1 if version < 4 else 2 if version < 6 else 3
    read = _READ_FILE if setting.limits.unreadable else 0
    attributes = struct.pack(f"={fields}Q", *(write | read, tcp, scoped)[:fields])
    rules = _libc(_syscall(_LANDLOCK_CREATE_RULESET, attributes, len(attributes), 0))
    _allow(rules, setting.scratch, (write | read) & ~(_DEVICE_NODES | _IOCTL_DEVICE))
    _allow(rules, Path(os.devnull), write & (_WRITE_FILE | _TRUNCATE))
    if read:
        hidden = [Path(each) for each in setting.limits.unreadable]
        for path in (*readable(Path("/"), hidden), *map(Path, setting.limits.readable)):
            with contextlib.suppress(OSError):  # it has gone, or is nothing that a rule can name
                _allow(rules, path, read)
    _libc(_syscall(_LANDLOCK_RESTRICT_SELF, rules, 0))
    os.close(rules)


def readable(root: Path, hidden: Sequence[Path]) -> Iterator[Path]:
    """The largest folders and files below `root` that together leave out what is hidden."""
    if root in hidden:
        return
    if not any(path.is_relative_to(root) for path in hidden):
        yield root
        return
    for path in root.iterdir():
        if not path.is_symlink():
            yield from readable(path, hidden)


def _unreadable(setting: Setting) -> None:
    if setting.limits.unreadable:
        _landlock_version()


def _signals(setting: Setting) -> None:
    if _landlock_version() < 6:
        raise NotHeldError("Landlock before ABI 6 does not stop signals to other processes")


def _truncation(setting: Setting) -> None:
    if _landlock_version() < 3:
        raise NotHeldError("Landlock before ABI 3 does not stop the truncation of files elsewhere")


def _parent_death(setting: Setting) -> None:
    die_with_parent(setting.guardian)


LAYERS: tuple[tuple[str, Callable[[Setting], None]], ...] = (
    ("process group", _process_group),
    ("scratch directory", _scratch_directory),
    ("environment", _environment),
    ("cpu", _cpu),
    ("memory", _memory),
    ("file size", _file_size),
    ("no core dumps", _core_dumps),
    ("process limit", _process_limit),
    ("no network", _no_network),
    ("no new privileges", _no_new_privileges),
    ("no capabilities", _no_capabilities),
    ("landlock", _landlock),
    ("unreadable files", _unreadable),
    ("landlock truncation", _truncation),
    ("landlock signals", _signals),
    ("parent death", _parent_death),
)


def _limit(which: int, soft: int, hard: int | None = None) -> None:
    ceiling = resource.getrlimit(which)[1]
    wanted = soft if hard is None else hard
    if ceiling != resource.RLIM_INFINITY:
        soft, wanted = min(soft, ceiling), min(wanted, ceiling)
    resource.setrlimit(which, (soft, wanted))


def _linux_only() -> None:
    if sys.platform != "linux":
        raise NotHeldError(f"not available on {sys.platform}")


def _landlock_version() -> int:
    _linux_only()
    version = _syscall(_LANDLOCK_CREATE_RULESET, None, 0, _LANDLOCK_CREATE_RULESET_VERSION)
    if version < 1:
        raise NotHeldError(f"this kernel does not offer Landlock ({os.strerror(ctypes.get_errno())})")
    return version


def _allow(rules: int, path: Path, rights: int) -> None:
    target = os.open(path, os.O_PATH | os.O_CLOEXEC)
    rule = struct.pack("=Qi", rights, target)
    _libc(_syscall(_LANDLOCK_ADD_RULE, rules, _LANDLOCK_RULE_PATH_BENEATH, rule, 0))
    os.close(target)


def _prctl(option: int, value: int) -> None:
    _libc(_LIBC.prctl(option, ctypes.c_ulong(value), *(ctypes.c_ulong(0),) * 3))


def _syscall(number: int, *arguments: int | bytes | None) -> int:
    wide = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    result: int = _LIBC.syscall(ctypes.c_long(number), *wide)
    return result


def _libc(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.syscall.restype = ctypes.c_long
