"""The fork server: every way in which a job can end, and what must be gone afterwards."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from layers import held

from nkireview.runner import ForkServer, Job, Limits, Outcome, RunnerError, pool
from nkireview.runner.job import size
from nkireview.runner.processes import parents

MIB = 1 << 20
LINUX = sys.platform == "linux"
LINUX_ONLY = pytest.mark.skipif(
    not LINUX,
    reason="held through /proc and subreapers, which only Linux has; elsewhere reported as not held",
)

JOBS = """
import os, signal, socket, sys, time
import numpy as np
from pathlib import Path

def echo(header, blobs):
    return header, blobs

def raises(header, blobs):
    raise ValueError("the first line\\nthe second line")

def loops(header, blobs):
    while True:
        pass

def sleeps_and_ignores_signals(header, blobs):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGXCPU):
        signal.signal(number, signal.SIG_IGN)
    while True:
        time.sleep(1)

def allocates(header, blobs):
    np.ones(header["bytes"], np.uint8)
    return {}, []

def allocates_in_children(header, blobs):
    for _ in range(8):
        if os.fork() == 0:
            kept = np.ones(header["bytes"], np.uint8)
            time.sleep(60)
    time.sleep(60)

def exits(header, blobs):
    os._exit(header["code"])

def calls_sys_exit(header, blobs):
    sys.exit(header["code"])

def kills_itself(header, blobs):
    os.kill(os.getpid(), signal.SIGKILL)

def prints(header, blobs):
    for number in range(header["lines"]):
        print(number)
    return {}, []

def prints_both(header, blobs):
    print("to stdout"), print("to stderr", file=sys.stderr)
    return {"stdin": sys.stdin.read()}, []

def writes_files(header, blobs):
    for number in range(header["files"]):
        Path(f"file{number}").write_bytes(bytes(header["bytes"]))
    time.sleep(header.get("then_sleep", 0))
    return {}, []

def writes_deleted_files(header, blobs):
    kept = []
    for number in range(header["files"]):
        kept.append(open("file", "wb"))
        kept[-1].write(bytes(header["bytes"]))
        kept[-1].flush()
        os.unlink("file")
    time.sleep(60)

def hides_files(header, blobs):
    os.mkdir("hidden")
    os.chdir("hidden")
    for _ in range(3000):
        os.mkdir("d")
        os.chdir("d")
    return {}, []

def leaves_a_grandchild(header, blobs):
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(writer, str(os.getpid()).encode())
            time.sleep(1000)
        os._exit(0)
    return {"pid": int(os.read(reader, 100))}, []

def forks_many(header, blobs):
    for _ in range(header["count"]):
        if os.fork() == 0:
            time.sleep(1000)
    time.sleep(1000)

def closes_channel(header, blobs):
    os.closerange(3, 256)
    return {}, []

def writes_garbage(header, blobs):
    for number in range(3, 64):
        try:
            os.write(number, b"garbage")
        except OSError:
            pass
    return {}, []

def forges_nothing_known(header, blobs):
    from nkireview.runner import wire
    for number in range(3, 64):
        try:
            os.write(number, wire.pack({"surprise": 1}, []))
        except OSError:
            pass
    os._exit(0)

def returns_much(header, blobs):
    return {}, [bytes(header["bytes"])]

def returns_no_json(header, blobs):
    return {"value": object()}, []

def connects(header, blobs):
    with socket.socket() as client:
        client.settimeout(2)
        try:
            client.connect(("127.0.0.1", header["port"]))
        except OSError as error:
            return {"error": error.strerror or str(error)}, []
    return {"error": None}, []

def surroundings(header, blobs):
    return {
        "environ": dict(os.environ), "cwd": os.getcwd(), "group": os.getpgrp() == os.getpid(),
        "modules": sorted(sys.modules), "threads": len(os.listdir("/proc/self/task")),
    }, []

def writes_to(header, blobs):
    try:
        Path(header["path"]).write_text("x")
    except OSError as error:
        return {"error": error.strerror}, []
    Path("mine").write_text("x")
    return {"error": None}, []

def raises_its_limits(header, blobs):
    import resource
    try:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    except (ValueError, PermissionError) as error:
        return {"error": type(error).__name__}, []
    return {"error": None}, []

def signals(header, blobs):
    try:
        os.kill(header["pid"], 0)
    except PermissionError:
        return {"refused": True}, []
    return {"refused": False}, []

def kills_its_guardian(header, blobs):
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(60)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("entries")
    (place / "jobs.py").write_text(JOBS)
    return place


@pytest.fixture(scope="module")
def fork_server() -> Iterator[ForkServer]:
    with ForkServer(("numpy",)) as running:
        yield running


class Run:
    """Runs an entry of `JOBS` with small limits."""

    def __init__(self, server: ForkServer, folder: Path) -> None:
        self.server = server
        self.folder = folder

    def __call__(
        self,
        entry: str,
        header: dict[str, Any] | None = None,
        blobs: list[bytes] | None = None,
        **limits: Any,
    ) -> Outcome:
        return self.server.run(self.job(entry, header, blobs, **limits))

    def job(
        self,
        entry: str,
        header: dict[str, Any] | None = None,
        blobs: list[bytes] | None = None,
        **limits: Any,
    ) -> Job:
        chosen = Limits(**{"wall_s": 10.0, "cpu_s": 10, **limits})
        return Job(f"jobs:{entry}", header or {}, blobs or [], chosen, {"PYTHONPATH": str(self.folder)})


@pytest.fixture
def run(fork_server: ForkServer, folder: Path) -> Run:
    return Run(fork_server, folder)


def gone(pid: int) -> bool:
    """Whether a process has ended, a zombie that nobody has waited for included."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"Z"
    except OSError:
        return True


def test_a_job_that_returns(run: Run) -> None:
    outcome = run("echo", {"a": [1, "é", None]}, [b"", b"\x00\xff", bytes(3 * MIB)])
    assert outcome.status == "done"
    assert outcome.header == {"a": [1, "é", None]}
    assert outcome.blobs == [b"", b"\x00\xff", bytes(3 * MIB)]
    assert outcome.detail == ""
    assert {"process group", "cpu", "file size", "wall time", "output", "response"} <= set(outcome.held)
    assert all(": " in each for each in outcome.not_held)


def test_an_exception_that_escapes_the_entry(run: Run) -> None:
    outcome = run("raises")
    assert outcome.status == "exited"
    assert outcome.detail == "ended with ValueError: the first line the second line before returning a result"


def test_an_entry_that_does_not_exist(run: Run) -> None:
    outcome = run("nothing_of_the_kind")
    assert outcome.status == "exited"
    assert "has no attribute 'nothing_of_the_kind'" in outcome.detail


def test_a_response_that_is_not_plain_data(run: Run) -> None:
    outcome = run("returns_no_json")
    assert outcome.status == "exited"
    assert "a message header must be plain JSON data" in outcome.detail


def test_an_endless_loop_ends_at_the_wall_limit(run: Run) -> None:
    outcome = run("loops", wall_s=0.5)
    assert (outcome.status, outcome.detail) == ("timeout", "ran longer than 0.5 s")
    assert outcome.wall_s >= 0.5


def test_an_endless_loop_ends_at_the_cpu_limit(run: Run) -> None:
    outcome = run("loops", cpu_s=1)
    assert (outcome.status, outcome.detail) == ("cpu", "used more than 1 s of processor time")


def test_a_job_that_ignores_signals(run: Run) -> None:
    outcome = run("sleeps_and_ignores_signals", wall_s=0.5)
    assert outcome.status == "timeout"


def test_memory(run: Run) -> None:
    outcome = run("allocates", {"bytes": 100 << 30})
    held(outcome, "memory")
    assert (outcome.status, outcome.detail) == ("memory", "used more than 4.0 GiB of memory")


@LINUX_ONLY
def test_memory_of_all_processes_together(run: Run) -> None:
    outcome = run("allocates_in_children", {"bytes": 100 * MIB}, memory_bytes=512 * MIB)
    assert (outcome.status, outcome.detail) == ("memory", "used more than 512 MiB of memory")


@pytest.mark.parametrize("code", [0, 3, 97, 255])
def test_exit_before_a_result(run: Run, code: int) -> None:
    outcome = run("exits", {"code": code})
    if code == 97:
        assert outcome.status == "malformed"
        return
    assert (outcome.status, outcome.detail) == (
        "exited",
        f"called exit with code {code} before returning a result",
    )


@pytest.mark.parametrize(("code", "said"), [(3, 3), (None, 0), ("a text", 1)])
def test_sys_exit(run: Run, code: Any, said: int) -> None:
    outcome = run("calls_sys_exit", {"code": code})
    assert (outcome.status, outcome.detail) == (
        "exited",
        f"called exit with code {said} before returning a result",
    )


def test_killed_by_a_signal(run: Run) -> None:
    outcome = run("kills_itself")
    assert (outcome.status, outcome.detail) == ("killed", "killed by signal 9 (SIGKILL)")


def test_a_million_printed_lines(run: Run) -> None:
    outcome = run("prints", {"lines": 1_000_000})
    assert outcome.status == "done"
    assert outcome.printed_bytes == sum(len(f"{number}\n") for number in range(1_000_000))
    assert len(outcome.stdout) == 64 << 10
    assert outcome.stdout.startswith("0\n1\n2\n")


def test_both_streams_are_kept_and_stdin_is_empty(run: Run) -> None:
    outcome = run("prints_both")
    assert sorted(outcome.stdout.splitlines()) == ["to stderr", "to stdout"]
    assert outcome.header == {"stdin": ""}


@pytest.mark.parametrize("then_sleep", [0, 60])
def test_scratch_over_many_files(run: Run, then_sleep: int) -> None:
    header = {"files": 8, "bytes": MIB, "then_sleep": then_sleep}
    outcome = run("writes_files", header, scratch_bytes=4 * MIB)
    assert (outcome.status, outcome.detail) == ("scratch", "wrote more than 4 MiB to its scratch directory")


def test_scratch_counts_empty_files(run: Run) -> None:
    outcome = run("writes_files", {"files": 2000, "bytes": 0}, scratch_bytes=4 * MIB)
    assert outcome.status == "scratch"


@LINUX_ONLY
def test_scratch_counts_deleted_files_that_are_open(run: Run) -> None:
    outcome = run("writes_deleted_files", {"files": 8, "bytes": MIB}, scratch_bytes=4 * MIB)
    assert outcome.status == "scratch"


def test_scratch_too_deep_to_measure_is_an_offence_and_is_removed(run: Run) -> None:
    outcome = run("hides_files")
    assert outcome.status == "scratch"
    assert "made a part of its scratch directory unreadable" in outcome.detail


def test_one_file_over_the_limit(run: Run) -> None:
    outcome = run("writes_files", {"files": 1, "bytes": 3 * MIB}, file_bytes=2 * MIB)
    assert (outcome.status, outcome.detail) == ("output", "wrote a file larger than 2 MiB")


@LINUX_ONLY
def test_a_grandchild_in_a_session_of_its_own_is_killed(run: Run) -> None:
    outcome = run("leaves_a_grandchild")
    held(outcome, "subreaper")
    assert outcome.status == "done"
    assert gone(outcome.header["pid"])


@LINUX_ONLY
def test_too_many_processes(run: Run) -> None:
    outcome = run("forks_many", {"count": 12}, processes=8)
    assert outcome.status in ("killed", "exited")
    if outcome.status == "killed":
        assert outcome.detail == "killed because it ran more than 8 processes at once"


def test_a_closed_response_channel(run: Run) -> None:
    outcome = run("closes_channel")
    assert (outcome.status, outcome.detail) == (
        "malformed",
        "closed the channel on which its result is returned",
    )


def test_garbage_in_the_response_channel(run: Run) -> None:
    outcome = run("writes_garbage")
    assert outcome.status == "malformed"
    assert outcome.detail.startswith("returned a malformed result (a message must begin with")


def test_a_well_formed_message_that_is_no_result(run: Run) -> None:
    outcome = run("forges_nothing_known")
    assert (outcome.status, outcome.detail) == (
        "malformed",
        "returned a message that is neither a result nor an error",
    )


@pytest.mark.parametrize("count", [MIB + 1, 40 * MIB])
def test_a_response_over_its_limit(run: Run, count: int) -> None:
    outcome = run("returns_much", {"bytes": count}, response_bytes=MIB)
    assert (outcome.status, outcome.detail) == ("response", "returned more than 1 MiB")
    assert outcome.blobs == []


def test_no_network(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        outcome = run("connects", {"port": listener.getsockname()[1]})
    held(outcome, "no network")
    assert outcome.header["error"]


def test_the_environment_is_ours(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET_OF_THE_CALLER", "token")
    with ForkServer(("numpy",)) as server:
        outcome = Run(server, run.folder)("surroundings")
    environ = outcome.header["environ"]
    allowed = {
        *("PATH", "LANG", "LC_ALL", "VIRTUAL_ENV", "PYTHONPATH", "HOME", "TMPDIR"),
        *("PYTHONHASHSEED", "PYTHONUTF8", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"),
        *("VECLIB_MAXIMUM_THREADS", "LC_CTYPE", "NUMPY_MADVISE_HUGEPAGE"),
    }
    assert set(environ) <= allowed
    assert environ["HOME"] == environ["TMPDIR"] == outcome.header["cwd"]
    assert environ["OPENBLAS_NUM_THREADS"] == "1"
    assert outcome.header["group"]
    assert not Path(outcome.header["cwd"]).exists()


@LINUX_ONLY
def test_a_worker_starts_with_one_thread(run: Run) -> None:
    assert run("surroundings").header["threads"] == 1


def test_writes_outside_the_scratch_directory(run: Run, tmp_path: Path) -> None:
    outcome = run("writes_to", {"path": str(tmp_path / "outside")})
    held(outcome, "landlock")
    assert outcome.header["error"] == "Permission denied"
    assert not (tmp_path / "outside").exists()
    assert run("writes_to", {"path": os.devnull}).header == {"error": None}


def test_limits_cannot_be_raised_again(run: Run) -> None:
    outcome = run("raises_its_limits")
    held(outcome, "memory", "no capabilities")
    assert outcome.header["error"]


def test_signals_to_others_are_refused(run: Run) -> None:
    outcome = run("signals", {"pid": os.getpid()})
    held(outcome, "landlock signals")
    assert outcome.header == {"refused": True}


def test_a_guardian_that_is_killed(run: Run) -> None:
    """Where the job cannot do it itself, the test does; either way nothing hangs and the server goes on."""
    outcome = run("kills_its_guardian", wall_s=0.5)
    assert outcome.status in ("killed", "exited")
    assert run("echo").status == "done"


@LINUX_ONLY
def test_what_a_killed_guardian_leaves_is_killed_by_the_server(run: Run, folder: Path) -> None:
    with ForkServer(("numpy",)) as server:
        found: list[Outcome] = []
        thread = threading.Thread(target=lambda: found.append(server.run(Run(server, folder).job("loops"))))
        thread.start()
        guardian = _wait_for_child(server.pid)
        worker = _wait_for_child(guardian)
        os.kill(guardian, signal.SIGKILL)
        thread.join()
        assert (found[0].status, found[0].detail) == ("killed", "its guardian process was killed")
        assert _soon(lambda: gone(worker))
        assert Run(server, folder)("echo").status == "done"


@LINUX_ONLY
def test_a_killed_server_is_started_again_and_leaves_nothing(folder: Path) -> None:
    with ForkServer(("numpy",)) as server:
        found: list[Outcome] = []
        thread = threading.Thread(target=lambda: found.append(server.run(Run(server, folder).job("loops"))))
        thread.start()
        guardian = _wait_for_child(server.pid)
        worker = _wait_for_child(guardian)
        os.kill(server.pid, signal.SIGKILL)
        thread.join()
        assert found[0].status == "killed"
        assert _soon(lambda: gone(worker) and gone(guardian))
        assert Run(server, folder)("echo").status == "done"


@LINUX_ONLY
def test_closing_ends_running_jobs(folder: Path) -> None:
    server = ForkServer(("numpy",))
    found: list[Outcome] = []
    thread = threading.Thread(target=lambda: found.append(server.run(Run(server, folder).job("loops"))))
    thread.start()
    worker = _wait_for_child(_wait_for_child(server.pid))
    server.close()
    server.close()
    thread.join()
    assert found[0].status == "killed"
    assert gone(worker)
    with pytest.raises(RunnerError, match="the fork server is closed"):
        server.run(Job("jobs:echo"))


@LINUX_ONLY
def test_a_guardian_that_is_stopped(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "GRACE_S", 0.3)
    with ForkServer(("numpy",)) as server:
        found: list[Outcome] = []
        job = Run(server, folder).job("loops", wall_s=0.5)
        thread = threading.Thread(target=lambda: found.append(server.run(job)))
        thread.start()
        guardian = _wait_for_child(server.pid)
        worker = _wait_for_child(guardian)
        os.kill(guardian, signal.SIGSTOP)
        thread.join()
        assert (found[0].status, found[0].detail) == ("killed", "its guardian process stopped answering")
        assert _soon(lambda: gone(worker) and gone(guardian))


@LINUX_ONLY
def test_nothing_outlives_a_killed_parent(folder: Path, tmp_path: Path) -> None:
    script = (
        "from nkireview.runner import ForkServer, Job\n"
        f"ForkServer(('numpy',)).run(Job('jobs:loops', env={{'PYTHONPATH': {str(folder)!r}}}))\n"
    )
    source = str(Path(pool.__file__).resolve().parents[2])
    environment = {**os.environ, "PYTHONPATH": source, "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", script], env=environment) as parent:
        below = [_wait_for_child(parent.pid)]
        for _ in range(2):
            below.append(_wait_for_child(below[-1]))
        assert list(tmp_path.iterdir())
        parent.kill()
    assert _soon(lambda: all(gone(pid) for pid in below))
    assert _soon(lambda: not list(tmp_path.iterdir()))


def test_threads_run_jobs_in_parallel(run: Run) -> None:
    found: dict[int, Outcome] = {}

    def one(number: int) -> None:
        found[number] = run("echo", {"number": number}, [bytes([number])])

    threads = [threading.Thread(target=one, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {number: (each.header["number"], each.blobs) for number, each in found.items()} == {
        number: (number, [bytes([number])]) for number in range(12)
    }


def test_a_module_that_cannot_be_preloaded() -> None:
    with pytest.raises(
        RunnerError, match="did not start: cannot import no_such_module: ModuleNotFoundError: No module"
    ):
        ForkServer(("no_such_module",))


def test_windows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(
        RunnerError, match=r"submissions cannot be run on Windows, .*; use Linux, macOS or WSL"
    ):
        ForkServer()


def test_the_current_folder_is_not_imported_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    (tmp_path / "numpy.py").write_text("raise SystemExit('imported from the current folder')")
    monkeypatch.chdir(tmp_path)
    with ForkServer(("numpy",)) as server:
        assert Run(server, folder)("echo").status == "done"


@pytest.mark.parametrize("entry", ["jobs", "jobs:", ":f", "a b:f", "jobs:f()", "os.path:join.x"])
def test_an_entry_must_be_a_name(entry: str) -> None:
    with pytest.raises(ValueError, match=r"must have the form 'package\.module:function'"):
        Job(entry)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"wall_s": 0.0}, "limit wall_s must be a positive number, not 0.0"),
        ({"wall_s": float("nan")}, "limit wall_s must be a positive number, not nan"),
        ({"processes": -1}, "limit processes must be a positive number, not -1"),
        ({"file_bytes": 1.5}, "limit file_bytes must be a whole number, not 1.5"),
    ],
)
def test_limits_are_checked(limits: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Limits(**limits)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"status": "killed"}, "an outcome that is 'killed' needs a detail"),
        ({"status": "done", "detail": "x"}, "an outcome that is 'done' has no detail"),
        (
            {"status": "timeout", "detail": "x", "blobs": [b""]},
            "an outcome that is 'timeout' has no response",
        ),
        ({"status": "fine"}, "unknown status 'fine'; expected one of done, timeout"),
    ],
)
def test_a_status_binds_its_payload(fields: dict[str, Any], message: str) -> None:
    plain: dict[str, Any] = {
        "status": "done",
        "header": {},
        "blobs": [],
        "detail": "",
        "stdout": "",
        "printed_bytes": 0,
        "wall_s": 0.0,
        "held": (),
        "not_held": (),
    }
    with pytest.raises(ValueError, match=message):
        Outcome(**{**plain, **fields})


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (4 << 30, "4.0 GiB"),
        (256 * MIB, "256 MiB"),
        (3 * MIB // 2, "1.5 MiB"),
        (65536, "64 KiB"),
        (12, "12 bytes"),
    ],
)
def test_sizes_in_sentences(count: int, text: str) -> None:
    assert size(count) == text


def _wait_for_child(parent: int) -> int:
    found: list[int] = []
    assert _soon(
        lambda: bool(found.extend(pid for pid, above in parents().items() if above == parent) or found)
    )
    return found[0]


def _soon(condition: Any) -> bool:
    end = time.monotonic() + 10
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True
