"""Run the tests of nki-library on this package: `python compat/suites/nkilib.py CLONE [--select EXPR]`.

CLONE is a checkout of the library at its tag. Its `test` and `src` are copied to a temporary folder, where modules
that its public tree lacks are added and ours takes the place of the compiler; the tests marked `fast` are run in
simulation mode through `nkireview exec`. Multi-rank collectives are left out: that mode runs one rank only.

`--all` runs the tests that this mode leaves out by itself too; of those, `--sample 20` draws 20 of each of `FAMILIES`,
`--part 3/40` takes every 40th from the third on, and `--trace-only` ends each test where its kernel would be executed.
`--judge FILE` judges every program that they launch, as `compat/drivers/judged.py` does.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import click

DRIVERS = Path(__file__).resolve().parents[1] / "drivers"
TAG, RELEASE = "2.29", "0.3"
LEFT_OUT = "test/integration/nkilib/experimental/collectives"
CORE = "test/integration/nkilib/core/"
FAMILIES = {
    "attention_cte": (CORE + "attention/test_attention_cte.py",),
    "attention_tkg": (CORE + "attention/test_attention_tkg.py",),
    "mlp": (CORE + "mlp",),
    "moe": (CORE + "moe",),
    "qkv": (CORE + "qkv",),
    "output_projection": (CORE + "output_projection",),
}
RUN_ALL = "NKILIB_SIMULATION_RUN_ALL"
PLUGIN = '''\
"""Which tests run and how far, a wall time for each, and each outcome as a line of results.jsonl."""

import hashlib
import json
import os
import signal
import time
from pathlib import Path

import pytest

WALL = int(os.environ["NKILIB_WALL"])
CHOICE = json.loads(os.environ["NKILIB_CHOICE"])


class Traced(BaseException):
    """A kernel was traced and verified."""


def chosen(tests):
    """Those of a sample of each family, by a hash of seed and name, or every so many."""
    names = sorted(tests)
    if CHOICE["sample"]:
        def rank(name):
            return hashlib.sha256(f"{CHOICE['seed']} {name}".encode()).digest()

        families = [[name for name in names if tests[name].startswith(tuple(paths))] for paths in CHOICE["families"]]
        return {name for family in families for name in sorted(family, key=rank)[: CHOICE["sample"]]}
    first, of = CHOICE["part"]
    return set(names[first - 1 :: of])


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    taken = chosen({item.nodeid: os.path.relpath(item.path) for item in items})
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in taken])
    items[:] = [item for item in items if item.nodeid in taken]


def pytest_collection_finish():
    from test.utils.test_orchestrator import Orchestrator

    Orchestrator._compiled_kernel = None  # which only compilation sets
    if CHOICE["trace_only"]:
        from nkireview.hosted import launch

        launch.execute = traced
    if CHOICE["judge"]:
        import nkilib_judged

        nkilib_judged.install(nkilib_judged.Judge(Path(CHOICE["judge"]), Path.cwd(), CHOICE["timed"]))


def traced(program, *args, **kwargs):
    raise Traced


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    def late(number, frame):
        raise TimeoutError(f"ran longer than {WALL} s")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(WALL)
    begin = time.process_time()
    try:
        return (yield)
    except Traced:
        return None
    finally:
        signal.alarm(0)
        item.user_properties.append(("cpu", time.process_time() - begin))


def pytest_runtest_logreport(report):
    if report.when == "call" or not report.passed:
        message = ""
        if report.skipped:
            message = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        elif report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            message = crash.message if crash else str(report.longrepr)
        cpu = dict(report.user_properties).get("cpu", 0.0)
        write(report.nodeid, report.outcome, message, report.duration, cpu)


def pytest_collectreport(report):
    if report.failed:
        write(report.nodeid, "failed", str(report.longrepr).strip().splitlines()[-1], 0.0, 0.0)


def write(test, status, message, seconds, cpu):
    line = {"test": test, "status": status, "message": message, "seconds": seconds, "cpu": cpu}
    with open("results.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\\n")
'''
TRACER = '''\
"""In place of the compiler: kernels of tests that only compile are traced, verified and executed."""

import os

import nki


def trace_kernel(kernel_under_test, mode, output_directory, **options):
    settings = kernel_under_test.compiler_input
    os.environ["NKI_NC_VERSION"] = settings.platform_target.get_nc_gen()
    given = kernel_under_test.kernel_input or {}
    given = given.for_rank(0) if hasattr(given, "for_rank") else given
    inputs = {name.removesuffix(".must_alias_input"): value for name, value in given.items()}
    nki.simulate(kernel_under_test.kernel_func)[settings.logical_nc_config](**inputs)
'''
STUBS = {
    "test/utils/kernel_tracer.py": TRACER,
    "test/utils/perf_analysis_private.py": '''\
"""Stand-in for a module that is not published."""


def analyze_trace(*args, **kwargs):
    raise NotImplementedError("traces of the hardware are not analysed here")
''',
    "test/utils/scripts/__init__.py": "",
    "test/utils/scripts/remote_lock_scripts.py": '''\
"""Stand-in for a module that is not published."""


class LockResult:
    pass


class LockStatus:
    pass
''',
    "nkilib_simulation.py": PLUGIN,
    "nkilib_judged.py": (DRIVERS / "judged.py").read_text(encoding="utf-8"),
}


@dataclass(frozen=True)
class Outcome:
    """One test: passed, failed or skipped, the sentence of its error or skip, wall and processor time."""

    test: str
    status: str
    message: str
    seconds: float
    cpu: float = 0.0


def prepared(clone: Path, folder: Path) -> Path:
    """A copy of the library that its tests can be imported from."""
    for name in ("src", "test"):
        shutil.copytree(clone / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in STUBS.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    return folder


@dataclass(frozen=True)
class Choice:
    """Which of the collected tests run, how far, and whether their programs are judged.

    sample: how many of each family, by the hash of seed and name; 0: all. part: (first, of), counted from 1.
    judge: the file that what is said of each program goes to; "" judges none. timed: programs are scheduled, too.
    """

    sample: int = 0
    seed: int = 0
    part: tuple[int, int] = (1, 1)
    trace_only: bool = False
    judge: str = ""
    timed: bool = False

    @property
    def text(self) -> str:
        """For the plugin."""
        return json.dumps({**vars(self), "families": list(FAMILIES.values())})


def run(
    folder: Path,
    choice: Choice,
    *,
    select: str,
    marker: str,
    jobs: int,
    wall: int,
    paths: tuple[str, ...],
    everything: bool,
) -> int:
    """Run the tests; pytest's exit code. Outcomes are lines of `results.jsonl` in the folder."""
    if choice.sample and not paths:
        paths = tuple(path for family in FAMILIES.values() for path in family)
    command = [sys.executable, "-m", "nkireview", "exec", "--nki", RELEASE, "-m", "pytest"]
    command += [*(paths or ("test/integration",)), "--ignore", LEFT_OUT, "--test-mode", "simulation"]
    command += ["-m", marker] if marker else []
    command += ["--output-directory", str(folder / "out"), "-q", "--tb=line", "-rN"]
    command += ["--force-local-cleanup"]
    command += [
        "-p",
        "nkilib_simulation",
        "-p",
        "no:cacheprovider",
        "--show-capture=no",
        "--continue-on-collection-errors",
    ]
    command += ["-k", select] if select else []
    command += ["-n", str(jobs)] if jobs > 1 else []
    before = os.environ.get("PYTHONPATH")
    paths_of = [str(folder), str(folder / "src"), *([before] if before else [])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths_of), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.update(NKILIB_WALL=str(wall), NKILIB_CHOICE=choice.text)
    # by the first of these the library draws some of its tests
    environment.update(NEURON_PYTHONHASHSEED=str(choice.seed), PYTHONHASHSEED="0")
    environment.update({RUN_ALL: "1"} if everything else {})
    return subprocess.run(command, cwd=folder, env=environment, check=False).returncode


def outcomes(results: Path) -> list[Outcome]:
    """The outcomes that a run has left so far."""
    return [Outcome(**json.loads(line)) for line in results.read_text(encoding="utf-8").splitlines()]


def sentence(message: str) -> str:
    """An error without what differs between tests: numbers and quoted names stay, places go."""
    first = message.strip().partition("\n")[0]
    return re.sub(r"\s*\([\w./-]+\.py:\d+\)", "", first)[:240]


@click.command()
@click.argument("clone", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--select", default="", help="pytest's -k expression.")
@click.option("--marker", help="pytest's -m expression  [default: fast, with --all none]")
@click.option("--all", "everything", is_flag=True, help=f"With {RUN_ALL}=1: large shapes too.")
@click.option("--sample", default=0, help="Run this many tests of each family.")
@click.option("--seed", default=0, help="Seed of the sample, and of the tests that the library draws.")
@click.option("--part", default="1/1", help="Run every Nth test from the Kth on, as K/N.")
@click.option("--trace-only", is_flag=True, help="Trace and verify, but execute nothing.")
@click.option(
    "--judge", type=click.Path(path_type=Path), help="Judge each program; what is said goes to this file."
)
@click.option("--timed", is_flag=True, help="With --judge: schedule each program, too.")
@click.option("--jobs", default=1, help="Processes; more than 1 needs pytest-xdist.")
@click.option("--wall", default=300, help="Seconds that a test may run.")
@click.option(
    "--at-least", type=click.FloatRange(0, 1), help="Exit with 1 if a smaller share of what runs passes."
)
@click.option("--json", "to_json", type=click.Path(path_type=Path), help="Write every outcome to this file.")
@click.option("--path", "paths", multiple=True, help="Test files or folders inside the clone.")
def main(
    clone: Path,
    select: str,
    marker: str | None,
    everything: bool,
    sample: int,
    seed: int,
    part: str,
    trace_only: bool,
    judge: Path | None,
    timed: bool,
    jobs: int,
    wall: int,
    at_least: float | None,
    to_json: Path | None,
    paths: tuple[str, ...],
) -> None:
    """Run the fixed selection and print its counts as a row for compat.toml."""
    found_part = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", part)
    if not found_part:
        raise click.BadParameter(f"{part!r} is not K/N with K and N from 1 on", param_hint="--part")
    judged = str(judge.resolve()) if judge else ""
    choice = Choice(sample, seed, (int(found_part[1]), int(found_part[2])), trace_only, judged, timed)
    if marker is None:
        marker = "" if everything else "fast"
    with tempfile.TemporaryDirectory(prefix="nkilib-") as name:
        folder = prepared(clone.resolve(), Path(name))
        code = run(
            folder,
            choice,
            select=select,
            marker=marker,
            jobs=jobs,
            wall=wall,
            paths=paths,
            everything=everything,
        )
        results = folder / "results.jsonl"
        if not results.is_file():
            raise SystemExit(f"pytest ended with {code} and left no results")
        found = outcomes(results)
    if to_json:
        to_json.write_text(json.dumps([vars(each) for each in found], indent=1) + "\n", encoding="utf-8")
    counts = Counter(each.status for each in found)
    errors = Counter(sentence(each.message) for each in found if each.status == "failed")
    for text, count in errors.most_common():
        click.echo(f"{count:5d}  {text}")
    ran = counts["passed"] + counts["failed"]
    total = ", ".join(f"{status} = {counts[status]}" for status in ("passed", "failed", "skipped"))
    click.echo(f'\nclone = "aws-neuron/nki-library"\ntag = "{TAG}"\nnki = "{RELEASE}"\ntests = {{ {total} }}')
    if judge:
        sys.path.insert(0, str(DRIVERS))
        import judged as programs

        for line in programs.summary(programs.read(judge)):
            click.echo(line)
    if at_least is not None:
        enough = ran > 0 and counts["passed"] >= at_least * ran
        click.echo(f"{'at least' if enough else 'less than'} {at_least:.0%} of {ran} pass")
        raise SystemExit(0 if enough else 1)


if __name__ == "__main__":
    main()
