"""How long `nkireview grade` takes for 100 submissions, 15 of which misbehave.

    python benchmarks/grade.py [--jobs N] [--count 100] [--budget 5s] [--keep FOLDER]

Builds a task of 512x512 (matmul, float32) and its submissions in a temporary folder: right, slow and wrong kernels
that differ in a comment, and of each kind of misbehaviour five: hanging (three spin, two sleep), crashing, exhausting
memory.
Prints wall time, processor time of everything that was started, and both for each submission.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "matmul"
TASK = """\
name = "matmul-512"
description = "C = A B for 512x512 matrices in float32."
kernel = "matmul"
reference = "reference.py:matmul"

[workloads.square]
inputs.a = { dtype = "float32", shape = [512, 512] }
inputs.b = { dtype = "float32", shape = [512, 512] }
"""
HEAD = "import time\n\nimport mischief\nimport nki\nimport numpy as np\n\n\n@nki.jit\ndef matmul(a, b):\n"
SPINS = HEAD + "    while True:\n        pass\n"
SLEEPS = HEAD + "    while True:\n        time.sleep(1)\n"
CRASHES = (
    HEAD + "    mischief.exit()\n",
    HEAD + "    raise RuntimeError('it was never going to work')\n",
    HEAD + "    mischief.abort()\n",
    HEAD + "    return a.no_such_attribute\n",
    "this is not Python\n",
)
EXHAUSTS = HEAD + "    kept = []\n    while True:\n        kept.append(np.ones(1 << 24, np.uint8))\n"
# Beside the kernel, since a kernel's own text may not do this, and is then not run at all.
MISCHIEF = "import os\n\n\ndef exit():\n    os._exit(3)\n\n\ndef abort():\n    os.abort()\n"
EACH = 5


def build(folder: Path, count: int) -> tuple[Path, Path]:
    """A task and `count` submissions below `folder`."""
    task, submissions = folder / "task", folder / "submissions"
    task.mkdir()
    submissions.mkdir()
    (task / "task.toml").write_text(TASK)
    (task / "reference.py").write_text((EXAMPLE / "reference.py").read_text())
    bad = [*[SPINS] * 3, *[SLEEPS] * 2, *CRASHES, *[EXHAUSTS] * EACH]
    good = [(EXAMPLE / "submissions" / name / "kernel.py").read_text() for name in ("good", "slow", "wrong")]
    texts = [f"{good[at % 3]}\n# variant {at}\n" for at in range(count - len(bad))]
    # spread evenly, as they would come
    step = max(1, len(texts) // len(bad))
    for at, text in enumerate(bad):
        texts.insert(at * (step + 1), text)
    for at, text in enumerate(texts):
        (submissions / f"s{at:03}").mkdir()
        (submissions / f"s{at:03}" / "kernel.py").write_text(text)
        if "mischief" in text:
            (submissions / f"s{at:03}" / "mischief.py").write_text(MISCHIEF)
    return task, submissions


def main() -> None:
    """Build, grade, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--budget", default="5s")
    parser.add_argument("--keep", type=Path, help="an empty folder for what is built and the results")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.keep or Path(temporary)
        task, submissions = build(folder, asked.count)
        command = [sys.executable, "-m", "nkireview", "grade", str(task), str(submissions), "--json"]
        command += [
            "--jobs",
            str(asked.jobs),
            "--budget",
            asked.budget,
            "--out",
            str(folder / "results.jsonl"),
        ]
        started = time.monotonic()
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
        wall_s = time.monotonic() - started
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = used.ru_utime + used.ru_stime
    print(json.loads(done.stdout)["statuses"])
    print(f"wall {wall_s:.1f} s, processor {cpu_s:.1f} s, {cpu_s / wall_s:.2f} CPUs busy")
    print(f"each submission: wall {wall_s / asked.count:.2f} s, processor {cpu_s / asked.count:.2f} s")


if __name__ == "__main__":
    main()
