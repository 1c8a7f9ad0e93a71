"""Sessions: many calls of one prepared process, each on its own; and answers kept from them."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from layers import held

from nkireview.answers import AS_DRAWN, Answers, Kept, Trial
from nkireview.arguments import Callee, Drawn, ReferenceFailed
from nkireview.numerics.hostile import ALWAYS, HOSTILE, hostile
from nkireview.numerics.inputs import Spec, default_distribution, draw
from nkireview.numerics.sensitivity import conditioning, probe
from nkireview.runner import ForkServer, Job, Lent, Limits, Outcome, RunnerError, Session, processes

LINUX_ONLY = pytest.mark.skipif(
    sys.platform != "linux", reason="credentials of a socket's writer are Linux's"
)

JOBS = """
import ctypes, os, signal, sys, time

def prepares(header, blobs):
    count = [0]
    with open("imported", "a") as stream:
        stream.write("x")

    def answer(header, blobs):
        count[0] += 1
        what = header.get("do")
        if what == "loop":
            while True: pass
        if what == "sleep": time.sleep(60)
        if what == "exit": os._exit(3)
        if what == "kill the session": os.kill(os.getppid(), signal.SIGKILL); time.sleep(60)
        if what == "raise": raise ValueError("no")
        if what == "leave a writer":
            if os.fork() == 0:
                time.sleep(60)
        if what == "print": print("printed")
        return {"count": count[0], "pid": os.getpid(), "imports": len(open("imported").read()), "got": header}, blobs
    return answer

def fails_to_prepare(header, blobs):
    raise ValueError("cannot be prepared")

def forks_and_both_answer(header, blobs):
    os.fork()
    return {"pid": os.getpid()}, []

def forks_behind_our_back(header, blobs):
    if ctypes.CDLL(None).fork() == 0:
        return {"pid": "the child"}, []
    os.waitpid(-1, 0)
    return {"pid": "the parent"}, []

def forks_and_lets_the_child_answer(header, blobs):
    if ctypes.CDLL(None).fork() == 0:
        return {"pid": "the child"}, []
    os.waitpid(-1, 0)
    os._exit(0)

def works(header, blobs):
    end = time.process_time() + header["seconds"]
    while time.process_time() < end: pass
    return {}, []

def reads(header, blobs):
    found = {}
    for path in header["paths"]:
        try:
            found[path] = open(path).read()
        except OSError as error:
            found[path] = error.strerror
    return {"found": found}, []
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("entries")
    (place / "session_jobs.py").write_text(JOBS)
    return place


class Make:
    """Jobs of `JOBS` with small limits."""

    def __init__(self, server: ForkServer, folder: Path) -> None:
        self.server, self.folder = server, folder

    def job(self, entry: str, header: dict[str, Any] | None = None, **limits: Any) -> Job:
        chosen = Limits(**{"wall_s": 10.0, "cpu_s": 10, **limits})
        return Job(f"session_jobs:{entry}", header or {}, [], chosen, {"PYTHONPATH": str(self.folder)})

    def session(self, entry: str, **limits: Any) -> Session:
        return self.server.session(self.job(entry, **limits))


@pytest.fixture
def make(server: ForkServer, folder: Path) -> Make:
    return Make(server, folder)


def test_calls_come_back_one_after_the_other(make: Make) -> None:
    with make.session("prepares") as session:
        big = os.urandom(3 << 20)
        for at in range(4):
            outcome = session.call({"at": at}, [big, b""])
            assert outcome.status == "done", outcome
            assert outcome.header["got"] == {"at": at} and outcome.blobs == [big, b""]


def test_every_call_starts_from_what_was_prepared_once(make: Make) -> None:
    """The state that one call leaves is not there for the next, and the preparation runs once."""
    with make.session("prepares") as session:
        found = [session.call({}).header for _ in range(3)]
    assert [each["count"] for each in found] == [1, 1, 1]
    assert [each["imports"] for each in found] == [1, 1, 1]
    assert len({each["pid"] for each in found}) == 3


@pytest.mark.parametrize(
    ("do", "limits", "status", "detail"),
    [
        ("loop", {"cpu_s": 1}, "cpu", "used more than 1 s of processor time"),
        ("sleep", {"wall_s": 0.4}, "timeout", "ran longer than 0.4 s"),
        ("exit", {}, "exited", "called exit with code 3 before returning a result"),
        ("raise", {}, "exited", "ended with ValueError: no before returning a result"),
        ("kill the session", {}, "killed", "killed by signal 9 (SIGKILL)"),
    ],
)
def test_a_call_that_goes_wrong_is_its_own_matter(
    make: Make, do: str, limits: dict[str, Any], status: str, detail: str
) -> None:
    with make.session("prepares", **limits) as session:
        assert session.call({}).status == "done"
        outcome = session.call({"do": do})
        assert (outcome.status, outcome.detail) == (status, detail)
        assert session.call({}).header["count"] == 1


def test_processor_time_is_counted_for_each_call(make: Make) -> None:
    with make.session("prepares", cpu_s=1) as session:
        spent = [session.call({"do": "loop"}).cpu_s for _ in range(2)]
        assert session.call({}).cpu_s < 0.5
    # the kernel counts the limit in ticks, so that the exact time at its end is somewhat off
    assert all(each >= 0.5 for each in spent)


def test_what_a_call_leaves_is_ended_before_the_next(make: Make) -> None:
    with make.session("prepares") as session:
        assert session.call({"do": "leave a writer"}).status == "done"
        assert session.call({}).status == "done"


def test_output_belongs_to_its_call(make: Make) -> None:
    with make.session("prepares") as session:
        assert session.call({"do": "print"}).stdout == "printed\n"
        assert session.call({}).stdout == ""


def test_a_preparation_that_fails_is_said_at_each_call(make: Make) -> None:
    with make.session("fails_to_prepare") as session:
        for _ in range(2):
            outcome = session.call({})
            assert (outcome.status, outcome.detail) == (
                "exited",
                "ended with ValueError: cannot be prepared before returning a result",
            )


def test_a_closed_session_leaves_no_process(make: Make) -> None:
    session = make.session("prepares")
    pid = session.call({}).header["pid"]
    worker = session.call({}).header["pid"]
    assert pid != worker
    session.close()
    end = time.monotonic() + 10
    while any(Path(f"/proc/{each}").exists() for each in (pid, worker)):
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_fork_does_not_answer_in_the_place_of_its_parent(make: Make) -> None:
    for _ in range(5):
        outcome = make.server.run(make.job("forks_and_both_answer"))
        assert outcome.status == "done", outcome


@LINUX_ONLY
@pytest.mark.parametrize("entry", ["forks_behind_our_back", "forks_and_lets_the_child_answer"])
def test_a_second_writer_is_refused(make: Make, entry: str) -> None:
    outcome = make.server.run(make.job(entry))
    assert (outcome.status, outcome.detail) == (
        "malformed",
        "let a second process write to the channel on which its result is returned",
    )


def test_files_that_must_not_be_read(make: Make, tmp_path: Path) -> None:
    for name in ("secret", "open", "mine/open", "mine/deep/open", "others/secret"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("text")
    hidden = (str(tmp_path / "secret"), str(tmp_path / "mine"), str(tmp_path / "others"))
    paths = [
        str(tmp_path / name) for name in ("secret", "open", "mine/open", "mine/deep/open", "others/secret")
    ]
    job = make.job("reads", {"paths": paths}, unreadable=hidden, readable=(str(tmp_path / "mine/deep"),))
    outcome: Outcome = make.server.run(job)
    held(outcome, "landlock")
    denied = "Permission denied"
    assert list(outcome.header["found"].values()) == [denied, "text", denied, "text", denied]


def test_paths_of_limits_must_be_absolute() -> None:
    with pytest.raises(ValueError, match=r"limit unreadable must hold absolute paths, not \['a'\]"):
        Limits(unreadable=("a",))


def test_time_in_the_queue_is_what_the_kernel_tells() -> None:
    tasks = Path("/proc/self/task")
    if not Path("/proc/self/schedstat").exists():
        assert (
            processes.queued_s([os.getpid()]) == 0
        )  # a system that does not count it gives nobody more time
        return
    before = sum(int((task / "schedstat").read_text().split()[1]) for task in tasks.iterdir()) / 1e9
    found = processes.queued_s([os.getpid()])
    after = sum(int((task / "schedstat").read_text().split()[1]) for task in tasks.iterdir()) / 1e9
    assert before <= found <= after
    assert processes.queued_s([0]) == 0


@LINUX_ONLY
def test_a_job_that_waits_for_a_processor_is_given_time(make: Make) -> None:
    """On one processor with three others that spin, 0.4 s of wall time would be a quarter of that."""
    with ForkServer(("numpy",)) as server:
        os.sched_setaffinity(server.pid, {min(os.sched_getaffinity(0))})
        spinning = [server.session(make.job("prepares", cpu_s=30, wall_s=30)) for _ in range(3)]
        threads = [threading.Thread(target=each.call, args=({"do": "loop"},)) for each in spinning]
        for thread in threads:
            thread.start()
        outcome = server.run(make.job("works", {"seconds": 0.35}, wall_s=0.7))
        server.close()
        for thread in threads:
            thread.join()
    assert outcome.status == "done", outcome


def test_a_lent_server_runs_jobs_and_does_not_end_the_server(make: Make, folder: Path) -> None:
    with ForkServer(("numpy",)) as server:
        lent = Lent(server, 7)
        assert lent.run(make.job("reads", {"paths": []})).status == "done"
        lent.close()
        assert server.run(make.job("reads", {"paths": []})).status == "done"
        os.kill(server.pid, signal.SIGKILL)
        end = time.monotonic() + 10
        while server.alive and time.monotonic() < end:
            time.sleep(0.01)
        with pytest.raises(RunnerError, match="the fork server has ended"):
            Lent(server, 8).run(make.job("reads", {"paths": []}))
        server.revive()
        assert server.alive
        assert Lent(server, 9).run(make.job("reads", {"paths": []})).status == "done"


SPEC = Spec("float32", (8, 16), default_distribution("float32"))
REFERENCE = "import numpy as np\ncalls = 0\ndef f(x):\n    global calls\n    calls += 1\n    return np.exp(x) * calls\n"


def f(arrays: list[Any]) -> list[Any]:
    with np.errstate(over="ignore"):
        return [np.exp(np.asarray(arrays[0], dtype=np.float64))]


@pytest.fixture
def answers(server: ForkServer, tmp_path: Path) -> Iterator[Answers]:
    (tmp_path / "ref.py").write_text(REFERENCE)
    made = Answers(Drawn({"x": SPEC}), Callee(tmp_path / "ref.py", "f"), server, Limits(wall_s=20))
    yield made
    made.close()


@pytest.mark.parametrize("kind", [AS_DRAWN, *HOSTILE])
def test_answers_are_those_of_the_reference(answers: Answers, kind: str) -> None:
    """Against NumPy in this process; `calls` shows that no call sees another's state."""
    drawn = draw(SPEC, 3, "x")
    changed = {"0": drawn} if kind == AS_DRAWN else hostile({"0": drawn}, kind)
    trial = answers.trial(3, kind)
    if changed is None:
        assert (
            kind in ("masked-row", "large-integers") and trial is None
        )  # the one input is a float and no mask
        return
    assert trial is not None
    np.testing.assert_array_equal(trial.arguments.arrays()[0], changed["0"])
    np.testing.assert_array_equal(trial.wanted[0], f([changed["0"]])[0])
    if kind != AS_DRAWN:
        assert answers.amplification(3, kind) == conditioning(f, changed, 3)


def test_influences_are_those_of_a_probe(answers: Answers) -> None:
    assert answers.influences(5) == probe(f, {"0": draw(SPEC, 5, "x")}, 5)


def test_kept_answers_are_the_same(answers: Answers, server: ForkServer) -> None:
    limits = Limits(wall_s=20)
    kept = Kept.of(answers, [3, 4], server, limits)
    answers.close()
    live = Answers(answers._inputs, answers._reference, server, limits)
    for seed, kind in ((3, AS_DRAWN), (4, AS_DRAWN), *((3, kind) for kind in ALWAYS)):
        one, other = kept.trial(seed, kind), live.trial(seed, kind)
        assert isinstance(one, Trial) and isinstance(other, Trial)
        np.testing.assert_array_equal(one.wanted[0], other.wanted[0])
        if kind != AS_DRAWN:
            assert kept.amplification(seed, kind) == live.amplification(seed, kind)
    assert all(kept.knows(3, kind) for kind in (AS_DRAWN, *ALWAYS)) and not kept.knows(3, "ascending")
    promised = Kept.of(live, [3], server, limits, ["ascending"])
    assert promised.knows(3, "ascending") and live.knows(3, "sweep")
    np.testing.assert_array_equal(
        promised.trial(3, "ascending").wanted[0],  # type: ignore[union-attr]
        live.trial(3, "ascending").wanted[0],  # type: ignore[union-attr]
    )
    assert kept.influences(3) == live.influences(3)
    assert kept.structure(server, limits).same_structure(live.structure(server, limits))
    assert kept.make(4, server, limits) is kept.trial(4, AS_DRAWN).arguments  # type: ignore[union-attr]
    live.close()


def test_a_failure_is_kept_too(server: ForkServer, tmp_path: Path) -> None:
    (tmp_path / "ref.py").write_text(
        "def f(x):\n    if abs(x).max() > 30: raise ValueError('too large')\n    return x * 2\n"
    )
    live = Answers(Drawn({"x": SPEC}), Callee(tmp_path / "ref.py", "f"), server, Limits(wall_s=20))
    kept = Kept.of(live, [1], server, Limits())
    live.close()
    assert kept.trial(1, AS_DRAWN) is not None
    with pytest.raises(ReferenceFailed, match=r"reference ref.py:f: ValueError: too large \(ref.py:2\)"):
        kept.trial(1, "scale-100")
