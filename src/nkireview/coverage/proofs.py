"""Which tests prove which names: the `oracle` markers that pytest finds in a folder of tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

TARGET = "NKIREVIEW_PROOFS"
MARKER = "oracle"


class ProofError(ValueError):
    """Tests that cannot be collected."""


def proofs(tests: Path) -> Mapping[str, int]:
    """How many tests prove each name; ProofError where the folder holds no tests that can be collected.

    The tests are imported by pytest in a process of its own, and not run.
    """
    if not tests.is_dir():
        raise ProofError(f"{tests} is no folder of tests; run this in a checkout, or name one with --tests")
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "proofs.json"
        command = [sys.executable, "-m", "pytest", "--collect-only", "-qq", "-p", "nkireview.coverage.proofs"]
        done = subprocess.run(
            # assertions that are not run need not be rewritten
            [*command, "-p", "no:cacheprovider", "--assert=plain", str(tests.resolve())],
            env={**os.environ, TARGET: str(found)},
            cwd=tests.resolve().parent,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode or not found.is_file():
            told = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
            raise ProofError(f"pytest cannot collect {tests}: {told[-1] if told else 'it says nothing'}")
        counted: dict[str, int] = json.loads(found.read_text(encoding="utf-8"))
    return counted


def pytest_collection_finish(session: Any) -> None:
    """As a plugin of pytest: write how many of the collected tests carry each name."""
    target = os.environ.get(TARGET)
    if not target:
        return
    counted: dict[str, int] = defaultdict(int)
    for item in session.items:
        for name in {name for marker in item.iter_markers(MARKER) for name in marker.args}:
            counted[name] += 1
    Path(target).write_text(json.dumps(counted, sort_keys=True), encoding="utf-8")
