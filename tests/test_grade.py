"""Grading many submissions: one record each whatever they do, the same bytes again, and runs that can be resumed."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from layers import held
from rich.console import Console

from nkireview.cli import main
from nkireview.grade import seconds_of
from nkireview.grading.flight import most_at_once
from nkireview.grading.journal import Header, Journal, read_journal
from nkireview.grading.record import GradedFinding, GradedTime, GradeRecord, rounded
from nkireview.grading.scrub import Scrub
from nkireview.grading.seed import FIRST_SEED, Secret
from nkireview.grading.summary import summarise
from nkireview.report.summary import print_summary
from nkireview.requests import UsageError
from nkireview.runner import ForkServer, Job

TASK = """\
name = "double"
description = "Twice a tile."
kernel = "double"
reference = "reference.py:double"

[workloads.tile]
seeds = 1
inputs.x = { dtype = "float32", shape = [128, 64] }

[workloads.small]
seeds = 1
inputs.x = { dtype = "float32", shape = [64, 32] }
"""
HEAD = """\
import nki
import nki.isa as nisa
import nki.language as nl

def body(x, factor=2.0):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=factor)
    nisa.dma_copy(dst=out, src=tile)
    return out

@nki.jit
def double(x):
"""
RIGHT = "    return body(x)\n"
WRONG = "    return body(x, 3.0)\n"
# A module beside the kernel: what the kernel's own text may not do, so that the file is run.
MISCHIEF = "import ctypes, os, signal, sys, time\nimport numpy as np\n\n\ndef act(x):\n"
ACTS = {
    "allocates": "    return np.ones(1 << 40, np.uint8)\n",
    "exits": "    os._exit(0)\n",
    "floods": "    for n in range(10 ** 5): print('flood', n)\n",
    "forges": "    for n in range(3, 64):\n        try: os.write(n, b'NKRMSG01 and more')\n"
    "        except OSError: pass\n    os._exit(0)\n",
    "forks": "    os.fork()\n",
    "forks_behind": "    if ctypes.CDLL(None).fork(): os.waitpid(-1, 0)\n",
    "kills_itself": "    os.kill(os.getpid(), signal.SIGKILL)\n",
    "names_an_object": "    raise ValueError(f'{object()} in {os.getcwd()} of {__file__}')\n",
    "raises": "    raise RuntimeError('no')\n",
    "sleeps": "    time.sleep(10 ** 6)\n",
    "spins": "    while True: pass\n",
}


def write(folder: Path, name: str, text: str = RIGHT, act: str = "") -> Path:
    file = folder / name / "kernel.py"
    file.parent.mkdir(parents=True)
    file.write_text(f"import mischief\n{HEAD}    mischief.act(x)\n{text}" if act else HEAD + text)
    if act:
        (file.parent / "mischief.py").write_text(MISCHIEF + act)
    return file


@pytest.fixture
def task(tmp_path: Path) -> Path:
    folder = tmp_path / "task"
    folder.mkdir()
    (folder / "task.toml").write_text(TASK)
    (folder / "reference.py").write_text("def double(x):\n    return 2 * x\n")
    return folder


@pytest.fixture
def submissions(tmp_path: Path) -> Path:
    folder = tmp_path / "submissions"
    folder.mkdir()
    return folder


@pytest.fixture
def seed(tmp_path: Path) -> Path:
    file = tmp_path / "seed.txt"
    file.write_text("a secret that no record holds\n")
    return file


def command(*arguments: Any) -> list[str]:
    return [sys.executable, "-m", "nkireview", "grade", *map(str, arguments)]


def run(*arguments: Any, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, timeout=300, check=False, **options
    )


def records(out: Path) -> dict[str, dict[str, Any]]:
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert [each["name"] for each in found] == sorted(each["name"] for each in found)
    return {each["name"]: each for each in found}


def messages(record: dict[str, Any]) -> list[tuple[str, str]]:
    return [(each["code"], each["message"]) for each in record["findings"] if each["severity"] == "blocker"]


def test_every_misbehaviour_is_one_record(task: Path, submissions: Path, seed: Path, tmp_path: Path) -> None:
    for name, act in ACTS.items():
        write(submissions, name, act=act)
    write(submissions, "right")
    write(submissions, "wrong", WRONG)
    outputs = []
    for jobs in (1, 3):
        out = tmp_path / f"jobs{jobs}.jsonl"
        done = run(task, submissions, "--jobs", jobs, "--budget", "2s", "--seed-file", seed, "--out", out)
        assert done.returncode == 0, done.stderr
        outputs.append(out.read_bytes())
        assert not Path(f"{out}.partial").exists()
    assert outputs[0] == outputs[1]
    found = records(tmp_path / "jobs1.jsonl")
    assert sorted(found) == sorted([*ACTS, "right", "wrong"])
    assert {name for name, each in found.items() if each["status"] == "acceptable"} == {
        "right",
        "forks",
        "floods",
    }
    assert all(each["exit_code"] == 1 for each in found.values() if each["status"] == "rejected")
    assert not [name for name, each in found.items() if each["status"] == "not reviewed"]
    told = {name: messages(each)[0] for name, each in found.items() if messages(each)}
    start = "tracing the kernel: "
    assert told["spins"] == ("NKR005", f"{start}used more than 2 s of processor time")
    assert told["sleeps"] == ("NKR005", f"{start}ran longer than 6 s")
    assert told["allocates"] == ("NKR005", f"{start}used more than 1.0 GiB of memory")
    assert told["exits"] == ("NKR005", f"{start}called exit with code 0 before returning a result")
    assert told["kills_itself"] == ("NKR005", f"{start}killed by signal 9 (SIGKILL)")
    assert told["raises"][1].startswith("the kernel raises: RuntimeError: no (mischief.py:6)")
    assert told["names_an_object"][1].startswith(
        "the kernel raises: ValueError: <object object at 0x...> in SCRATCH of mischief.py"
    )
    assert told["forges"][0] == "NKR006" and "returned a malformed result" in told["forges"][1]
    if sys.platform == "linux":
        assert told["forks_behind"][0] == "NKR006"
    assert found["sleeps"]["cut"] == ["workload small: not traced, since a limit was exceeded before"]
    assert found["right"]["total"] > found["wrong"]["total"]
    assert found["right"]["times"][0]["low_ns"] <= found["right"]["times"][0]["predicted_ns"]
    text = outputs[0].decode()
    assert str(tmp_path) not in text and "/tmp" not in text and "nkireview-" not in text


def test_odd_entries_are_one_record_each(task: Path, submissions: Path, seed: Path, tmp_path: Path) -> None:
    write(submissions, "plain", RIGHT)
    (submissions / "plain.py").write_text(HEAD + RIGHT)
    (submissions / "alone.py").write_text(HEAD + RIGHT)
    (submissions / "empty").mkdir()
    (submissions / "nested" / "kernel.py").mkdir(parents=True)
    (submissions / "not utf8").mkdir()
    (submissions / "not utf8" / "kernel.py").write_bytes(b"\xff\xfe\x00\x80")
    (submissions / "text").mkdir()
    (submissions / "text" / "kernel.py").write_text("this is not Python\n")
    (submissions / "blank").mkdir()
    (submissions / "blank" / "kernel.py").touch()
    (submissions / "another name.py").write_text(HEAD.replace("def double", "def triple") + RIGHT)
    (submissions / "link").symlink_to(submissions / "plain")
    (submissions / "dangling.py").symlink_to(tmp_path / "nowhere")
    (submissions / "loop").symlink_to(submissions / "loop")
    os.mkfifo(submissions / "pipe.py")
    (submissions / "new\nline").mkdir()
    (submissions / "README.md").write_text("no submission")
    (submissions / ".hidden").mkdir()
    (submissions / "_aside").mkdir()
    (submissions / "byte-\\xff").mkdir()
    try:
        (submissions / os.fsdecode(b"byte-\xff")).mkdir()
    except OSError:  # the file system wants UTF-8
        (submissions / "byte-\\xff (2)").mkdir()
    out = tmp_path / "out.jsonl"
    done = run(task, submissions, "--seed-file", seed, "--out", out)
    assert done.returncode == 0, done.stderr
    found = records(out)
    assert sorted(found) == sorted(
        [
            *("plain", "plain.py", "alone", "empty", "nested", "not utf8", "text", "blank", "another name"),
            *("link", "dangling", "pipe", "new\\x0aline", "byte-\\xff", "byte-\\xff (2)"),
        ]
    )
    good = {name for name, each in found.items() if each["status"] == "acceptable"}
    assert good == {"plain", "plain.py", "alone", "link"}
    expected = "expected a Python file with the kernel 'double'"
    for name, message in {
        "empty": f"not traced: kernel.py: there is no such file; {expected}",
        "nested": f"not traced: kernel.py: this is no regular file; {expected}",
        "pipe": f"not traced: pipe.py: this is no regular file; {expected}",
        "dangling": f"not traced: dangling.py: this is no regular file; {expected}",
    }.items():
        assert messages(found[name]) == [("NKR004", message)], name
    assert found["not utf8"]["status"] == "rejected" and found["text"]["status"] == "rejected"
    assert found["plain"]["file"] == "plain/kernel.py" and found["alone"]["file"] == "alone.py"
    assert found["plain"]["findings"] == found["link"]["findings"]


PACE = """\
import os, sys, time
from pathlib import Path
import nkireview.grade as page
real = page.Journal.append
def append(self, record):
    real(self, record)
    with Path(os.environ["PACE"]).open("a") as pace:  # closed by name: a finaliser would swallow the interrupt
        pace.write("x")
    time.sleep(0.4)
page.Journal.append = append
from nkireview.cli import main
main()
"""


def test_a_killed_run_resumes_to_the_same_bytes(
    task: Path, submissions: Path, seed: Path, tmp_path: Path
) -> None:
    for name in ("raises", "spins"):
        write(submissions, name, act=ACTS[name])
    write(submissions, "wrong", WRONG)
    for number in range(4):
        write(submissions, f"right{number}", f"{RIGHT}# {number}\n")
    given = ("--jobs", 2, "--budget", "2s", "--seed-file", seed)
    whole, broken = tmp_path / "whole.jsonl", tmp_path / "broken.jsonl"
    assert run(task, submissions, *given, "--out", whole).returncode == 0
    journal = Path(f"{broken}.partial")
    resume: tuple[str, ...] = ()
    for kill in range(3):
        pace = tmp_path / f"pace{kill}"
        arguments = command(task, submissions, *given, "--out", broken, *resume)[3:]
        with subprocess.Popen(
            [sys.executable, "-c", PACE, *arguments],
            env={**os.environ, "PACE": str(pace)},
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        ) as process:
            end = time.monotonic() + 120
            while not (pace.exists() and pace.stat().st_size > kill // 2):
                assert process.poll() is None and time.monotonic() < end
                time.sleep(0.01)
            process.kill()
        assert journal.exists() and not broken.exists()
        resume = ("--resume",)
        if kill == 1:
            journal.write_bytes(journal.read_bytes()[:-5])  # as a system that lost power leaves it
    done = run(task, submissions, *given, "--out", broken, "--resume")
    assert done.returncode == 0, done.stderr
    assert broken.read_bytes() == whole.read_bytes()
    assert not journal.exists()
    # and once more: there is nothing left to do
    assert run(task, submissions, *given, "--out", broken, "--resume").returncode == 0
    assert broken.read_bytes() == whole.read_bytes()


def test_a_seed_that_is_drawn_is_kept_for_the_resumed_run(
    task: Path, submissions: Path, tmp_path: Path
) -> None:
    """The wrong values of a message depend on the seed: after the cut they are those of the first run."""
    for number in range(3):
        write(submissions, f"wrong{number}", "    return body(x, 3.0)\n")
    out, pace = tmp_path / "out.jsonl", tmp_path / "pace"
    with subprocess.Popen(
        [sys.executable, "-c", PACE, *command(task, submissions, "--jobs", 1, "--out", out)[3:]],
        env={**os.environ, "PACE": str(pace)},
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    ) as process:
        while not pace.exists():
            assert process.poll() is None
            time.sleep(0.01)
        process.kill()
    assert run(task, submissions, "--out", out, "--resume").returncode == 0
    found = records(out)
    assert len({json.dumps(each["findings"]) for each in found.values()}) == 1
    assert run(task, submissions, "--out", out, "--force").returncode == 0
    assert records(out)["wrong0"]["findings"] != found["wrong0"]["findings"]


def test_an_interrupt_keeps_the_journal(task: Path, submissions: Path, tmp_path: Path) -> None:
    write(submissions, "right", RIGHT)
    write(submissions, "sleeps", act=ACTS["sleeps"])
    out, pace = tmp_path / "out.jsonl", tmp_path / "pace"
    with subprocess.Popen(
        [sys.executable, "-c", PACE, *command(task, submissions, "--budget", "20s", "--out", out)[3:]],
        env={**os.environ, "PACE": str(pace)},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        # where the tests run in the background, an interrupt would be ignored
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        while not pace.exists():
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said == f"nkireview: stopped; {out}.partial is kept, go on with --resume\n"
    found = read_journal(Path(f"{out}.partial"))
    assert found is not None and list(found.records) == ["right"]


def test_a_fork_server_that_dies_is_nobodys_verdict(
    task: Path, submissions: Path, seed: Path, tmp_path: Path
) -> None:
    for number in range(6):
        write(submissions, f"right{number}", f"{RIGHT}# {number}\n", "    time.sleep(0.3)\n")
    out = tmp_path / "out.jsonl"
    with subprocess.Popen(
        command(task, submissions, "--jobs", 2, "--seed-file", seed, "--out", out), stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        journal = Path(f"{out}.partial")
        while not (journal.exists() and journal.read_bytes().count(b"\n") > 1):
            assert process.poll() is None
            time.sleep(0.01)
        servers = [pid for pid in _children(process.pid) if b"runner.server" in _cmdline(pid)]
        for pid in servers:
            os.kill(pid, signal.SIGKILL)
    assert len(servers) == 1
    assert process.returncode == 0
    assert {each["status"] for each in records(out).values()} == {"acceptable"}


def _children(parent: int) -> list[int]:
    from nkireview.runner.processes import parents

    return [pid for pid, above in parents().items() if above == parent]


def _cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_what_no_submission_may_read(task: Path, submissions: Path, seed: Path, tmp_path: Path) -> None:
    with ForkServer(("numpy",)) as server:
        held(server.run(Job("nkireview.runner.reference:call")), "landlock")
    write(submissions, "other", RIGHT)
    out = tmp_path / "out.jsonl"
    paths = [seed, submissions / "other" / "kernel.py", Path(f"{out}.partial"), out]
    write(
        submissions,
        "reads",
        act=f"    for path in {[str(path) for path in paths]}:\n"
        "        try: open(path).read()\n"
        "        except PermissionError: continue\n"
        "        except FileNotFoundError: continue\n"
        "        raise RuntimeError('it was read')\n"
        "    assert open(os.path.dirname(__file__) + '/mine.txt').read() == 'its own'\n",
    )
    (submissions / "reads" / "mine.txt").write_text("its own")
    done = run(task, submissions, "--seed-file", seed, "--out", out)
    assert done.returncode == 0, done.stderr
    found = records(out)["reads"]
    assert found["status"] == "acceptable", found
    text = out.read_text()
    secret = Secret.read(seed)
    assert str(secret.seed) not in text and secret.text not in text


def test_execution_beyond_the_budget_is_cut_and_said(
    task: Path, submissions: Path, seed: Path, tmp_path: Path
) -> None:
    file = task / "task.toml"
    file.write_text(file.read_text().replace("seeds = 1", "seeds = 60"))
    work = "".join(
        (
            "    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)\n",
            "    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)\n",
            "    nisa.dma_copy(dst=tile, src=x)\n",
            "    for _ in range(400):\n",
            "        nisa.activation(dst=tile, data=tile, op=nl.gelu)\n",
            "    nisa.dma_copy(dst=out, src=tile)\n    return out\n",
        )
    )
    bad = "    nisa.dma_copy(dst=tile, src=tile[0:64, 0:7])\n"
    write(submissions, "long", work)
    write(submissions, "illegal", work.replace("    return out", f"{bad}    return out"))
    outs = []
    for at in range(2):
        outs.append(tmp_path / f"out{at}.jsonl")
        done = run(task, submissions, "--budget", "1s", "--seed-file", seed, "--out", outs[-1])
        assert done.returncode == 0, done.stderr
    assert outs[0].read_bytes() == outs[1].read_bytes()
    found = records(outs[0])
    cut = "execution: it takes more than 1 s of processor time (--budget)"
    assert (found["long"]["status"], found["long"]["reason"], found["long"]["cut"]) == (
        "not reviewed",
        cut,
        [cut],
    )
    assert found["illegal"]["status"] == "rejected"


def invoke(*arguments: Any) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["grade", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def test_refusals(task: Path, submissions: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    (tmp_path / "blank").write_text(" \n")
    (tmp_path / "long").write_text("x" * 5000)
    (tmp_path / "bytes").write_bytes(b"\xff")
    expected = "expected a folder with NAME/kernel.py or NAME.py for each submission"
    secret = "expected a file with an integer or a line of text"
    for arguments, message in (
        ((task, tmp_path / "no"), f"{tmp_path}/no: no such folder; {expected}"),
        ((task, submissions), f"{submissions}: there is no submission in it; {expected}"),
    ):
        assert invoke(*arguments, "--out", out) == (2, f"nkireview: {message}\n")
    write(submissions, "right", RIGHT)
    for asked, message in (
        (("--budget", "5"), "--budget '5' is no duration; expected 5s, 500ms or 2m, above 0 and below a day"),
        (
            ("--budget", "0s"),
            "--budget '0s' is no duration; expected 5s, 500ms or 2m, above 0 and below a day",
        ),
        (("--seed-file", tmp_path / "no"), f"--seed-file {tmp_path}/no: no such file; {secret}"),
        (("--seed-file", tmp_path / "blank"), f"--seed-file {tmp_path}/blank: empty; {secret}"),
        (
            ("--seed-file", tmp_path / "long"),
            f"--seed-file {tmp_path}/long: 5000 bytes, more than 4096; {secret}",
        ),
        (("--seed-file", tmp_path / "bytes"), f"--seed-file {tmp_path}/bytes: not UTF-8; {secret}"),
        (("--resume", "--force"), "give either --resume or --force, not both"),
    ):
        assert invoke(task, submissions, "--out", out, *asked) == (2, f"nkireview: {message}\n")
    nowhere = tmp_path / "no" / "out.jsonl"
    assert invoke(task, submissions, "--out", nowhere) == (
        2,
        f"nkireview: --out {nowhere}: there is no folder {tmp_path}/no to write it to\n",
    )
    code, said = invoke(tmp_path, submissions, "--out", out)
    assert code == 2 and "task.toml" in said
    assert not out.exists() and not Path(f"{out}.partial").exists()


HEADER = Header(tool="nkireview 1", task="t", options={"budget": "5s", "nki": ""}, seed="s")


def test_what_is_there_is_not_overwritten(task: Path, submissions: Path, seed: Path, tmp_path: Path) -> None:
    write(submissions, "right", RIGHT)
    out = tmp_path / "out.jsonl"
    journal = Path(f"{out}.partial")
    with Journal.create(journal, HEADER):
        pass
    before = journal.read_bytes()
    assert invoke(task, submissions, "--out", out) == (
        2,
        f"nkireview: {journal} is the journal of a run that was cut off; go on with --resume, or start again "
        "with --force\n",
    )
    assert invoke(task, submissions, "--out", out, "--resume") == (
        2,
        f"nkireview: {journal} was begun with another version of nkireview; resume with what it was begun with, "
        "or start again with --force\n",
    )
    assert journal.read_bytes() == before
    journal.unlink()
    out.write_text("mine\n")
    assert invoke(task, submissions, "--out", out) == (
        2,
        f"nkireview: {out} is there already; name another file with --out, or overwrite it with --force\n",
    )
    assert invoke(task, submissions, "--out", out, "--resume") == (
        2,
        f"nkireview: {out}: line 1 is no record; name another file with --out, or overwrite it with --force\n",
    )
    assert out.read_text() == "mine\n"
    done = run(task, submissions, "--out", out, "--seed-file", seed, "--force", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["statuses"] == {"acceptable": 1, "rejected": 0, "not reviewed": 0}
    write(submissions, "later", RIGHT)
    assert invoke(task, submissions, "--out", out, "--resume") == (
        2,
        f"nkireview: {out} is finished, and {submissions} has changed since; name another file with --out, or "
        "overwrite it with --force\n",
    )


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"tool": "nkireview 2"}, "version of nkireview"),
        ({"schema_version": 9}, "version of nkireview"),
        ({"task": "u"}, "task"),
        ({"options": {"budget": "6s", "nki": ""}}, "--budget"),
        ({"options": {"budget": "6s", "nki": "0.4"}}, "--budget, --nki"),
        ({"options": {"budget": "5s"}}, "options"),
        ({"seed": "r"}, "seed"),
        ({"secret": "x"}, ""),
    ],
)
def test_a_journal_of_another_run_is_known(change: dict[str, Any], named: str) -> None:
    assert HEADER.differs(HEADER.model_copy(update=change)) == named


def test_a_changed_submission_is_judged_again(
    task: Path, submissions: Path, seed: Path, tmp_path: Path
) -> None:
    first, second = write(submissions, "first", RIGHT), write(submissions, "second", RIGHT)
    out = tmp_path / "out.jsonl"
    assert run(task, submissions, "--seed-file", seed, "--out", out).returncode == 0
    lines = out.read_text()
    # the run as it was before its end: the journal has both records
    journal = Path(f"{out}.partial")
    fresh = run(task, submissions, "--seed-file", seed, "--out", tmp_path / "other.jsonl")
    assert fresh.returncode == 0
    _rewind(task, submissions, seed, out, lines)
    first.write_text(HEAD + "    return body(x, 3.0)\n")
    shutil.rmtree(second.parent)
    done = run(task, submissions, "--seed-file", seed, "--out", out, "--resume")
    assert done.returncode == 0, done.stderr
    assert {name: each["status"] for name, each in records(out).items()} == {"first": "rejected"}
    assert not journal.exists()


def _rewind(task: Path, submissions: Path, seed: Path, out: Path, lines: str) -> None:
    """A journal with all these records, as it is before the results are written."""
    import nkireview.grade as page
    from nkireview.task import load_task

    plan = page.Plan(task, submissions, out, budget_s=60.0, seed_file=seed, force=True)
    journal, _, _ = page._journal(plan, load_task(task), Secret.read(seed))
    with journal:
        for line in lines.splitlines():
            journal.append(GradeRecord.model_validate_json(line))
    out.unlink()


def record(name: str, **fields: Any) -> GradeRecord:
    plain: dict[str, Any] = {
        "name": name,
        "file": f"{name}.py",
        "sha256": "0",
        "status": "acceptable",
        "exit_code": 0,
    }
    return GradeRecord(**{**plain, **fields})


RECORDS = [
    record("a", total=50.0),
    record("b", status="not reviewed", exit_code=2, reason="é"),
    record("c"),
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("journal") / "journal"
    with Journal.create(path, HEADER) as journal:
        for each in RECORDS:
            journal.append(each)
    return path.read_bytes()


@settings(deadline=None, max_examples=60)
@given(share=st.floats(0, 1))
def test_a_journal_torn_at_any_byte_keeps_its_whole_lines(
    tmp_path_factory: pytest.TempPathFactory, whole: bytes, share: float
) -> None:
    cut = round(share * len(whole))
    path = tmp_path_factory.mktemp("torn") / "journal"
    path.write_bytes(whole[:cut])
    lines = whole[:cut].count(b"\n")
    found = read_journal(path)
    if lines == 0:
        assert found is None
        return
    assert found is not None and found.header == HEADER
    assert list(found.records.values()) == RECORDS[: lines - 1]
    with Journal.reopen(path, found.size) as journal:
        for each in RECORDS[lines - 1 :]:
            journal.append(each)
    assert path.read_bytes() == whole


def test_a_damaged_journal_is_refused(tmp_path: Path, whole: bytes) -> None:
    path = tmp_path / "journal"
    path.write_bytes(whole.replace(b'"name": "b"', b'"name": b'))
    with pytest.raises(
        UsageError, match="line 3 is no record; remove that line, or start again with --force"
    ):
        read_journal(path)
    path.write_bytes(b"something else\n")
    with pytest.raises(UsageError, match="line 1 is no header of a journal; finish it with the version"):
        read_journal(path)


def test_two_runs_do_not_write_one_journal(tmp_path: Path, whole: bytes) -> None:
    path = tmp_path / "journal"
    with Journal.create(path, HEADER):
        for begin in (lambda: Journal.create(path, HEADER), lambda: Journal.reopen(path, 0)):
            with pytest.raises(UsageError, match="another run is writing this journal; wait for it"):
                begin()
    with Journal.create(path, HEADER):
        pass


@pytest.mark.parametrize(
    ("text", "seconds"), [("5s", 5.0), ("500ms", 0.5), ("2m", 120.0), (" 1.5 s ", 1.5), ("0.1s", 0.1)]
)
def test_durations(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "s", "-1s", "0s", "1h", "1e3s", "nans", "2000m", "٣s"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(UsageError, match="is no duration; expected 5s, 500ms or 2m, above 0 and below a day"):
        seconds_of(text)


def test_a_status_binds_its_exit_code_and_reason() -> None:
    with pytest.raises(ValueError, match="exit code 1 does not belong to a submission that is acceptable"):
        record("a", exit_code=1)
    with pytest.raises(ValueError, match="a submission that was not reviewed needs a reason"):
        record("a", status="not reviewed", exit_code=2)


def test_keys_of_a_record_are_in_a_fixed_order() -> None:
    keys = [
        "name",
        "file",
        "sha256",
        "status",
        "exit_code",
        "total",
        "dimensions",
        "times",
        "findings",
        "reason",
        "cut",
    ]
    assert list(json.loads(record("a").line())) == keys
    assert record("é").line().isascii()


@pytest.mark.parametrize(
    ("value", "shown"), [(1234567.89, 1234570.0), (0.1234564999, 0.123456), (2.0, 2.0), (0.0, 0.0)]
)
def test_figures_have_six_digits(value: float, shown: float) -> None:
    assert rounded(value) == shown


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("no (/home/me/task/submissions/a/kernel.py:3)", "no (a/kernel.py:3)"),
        ("in '/usr/lib/python3.11/ast.py', line 2", "in 'ast.py', line 2"),
        (
            "in /tmp/nkireview-19szw1fc/34359738368 of /var/tmp/nkireview-ab_1cd3e/0/x",
            "in SCRATCH of SCRATCH/x",
        ),
        ("<object at 0x7f00deadbeef>", "<object at 0x...>"),
        ("wrong (seed 1073741830)", "wrong (seed held-out 2)"),
        ("11073741830 and 1073741831", "11073741830 and 1073741831"),
        ("3 bytes/s of 4/2/1, a // b, n/a", "3 bytes/s of 4/2/1, a // b, n/a"),
        ("two\nlines\x1b[31m", "two lines?[31m"),
    ],
)
def test_texts_hold_no_path_address_or_seed(text: str, clean: str) -> None:
    assert Scrub(["/home/me/task/submissions"], [1073741829, 1073741830])(text) == clean


def test_seeds_come_from_the_secret_and_do_not_tell_it(tmp_path: Path) -> None:
    file = tmp_path / "seed"
    file.write_text("17\n")
    secret = Secret.read(file)
    assert secret == Secret("17", own=False) and FIRST_SEED <= secret.seed < 2 * FIRST_SEED
    others = [Secret(str(number), own=False) for number in range(200)]
    assert len({each.seed for each in others}) == len({each.identity for each in others}) == 200
    assert Secret.drawn() != Secret.drawn()


def finding(code: str, message: str) -> GradedFinding:
    return GradedFinding(code=code, severity="major", dimension="tiling", message=message)


def test_the_summary_counts_ranks_and_names() -> None:
    time = GradedTime(workload="w", predicted_ns=2e6, low_ns=1e6, high_ns=3e6, bound="memory")
    quick = time.model_copy(update={"predicted_ns": 1500.0, "low_ns": 1200.0, "high_ns": 1800.0})
    found = [
        record("slow", total=80.0, times=(time,), findings=(finding("NKR002", "one"),)),
        record("fast", total=80.0, times=(quick,)),
        record("best", total=90.0, findings=(finding("NKR002", "two"), finding("NKR002", "three"))),
        record("bad", total=99.0, status="rejected", exit_code=1, findings=(finding("NKR001", "four"),)),
    ]
    summary = summarise(found, "task", "out.jsonl")
    assert summary.statuses == {"acceptable": 3, "rejected": 1, "not reviewed": 0}
    assert [each.name for each in summary.best] == ["best", "fast", "slow"]
    assert [(each.code, each.submissions, each.message) for each in summary.frequent] == [
        ("NKR002", 2, "one"),
        ("NKR001", 1, "four"),
    ]
    screen = io.StringIO()
    print_summary(summary, Console(file=screen, width=100))
    lines = [line.rstrip() for line in screen.getvalue().splitlines()]
    assert lines[0] == "task: 4 submissions: 3 acceptable, 1 rejected, 0 not reviewed"
    assert re.search(r"90 +- +best", screen.getvalue()) and re.search(
        r"80 +1\.50 us \(1\.2 to 1\.8 us\) +fast", screen.getvalue()
    )
    assert re.search(r"2 +NKR002 +major +one", screen.getvalue())
    assert lines[-1] == "Records: out.jsonl"


def test_flights_are_bounded_by_memory() -> None:
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert most_at_once(2, 1) == 16
    assert most_at_once(4, total // 4) == 2
    assert most_at_once(4, 2 * total) == 1


@pytest.fixture(autouse=True)
def _no_leftovers() -> Iterator[None]:
    """No test leaves a process of its own behind."""
    yield
    assert not _children(os.getpid()) or all(
        b"runner.server" in _cmdline(pid) or b"xdist" in _cmdline(pid) for pid in _children(os.getpid())
    )
