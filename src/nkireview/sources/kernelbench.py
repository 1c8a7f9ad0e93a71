"""A problem file in the form of KernelBench as a task: ``kernelbench:FILE``.

The file holds a torch ``Model``, ``get_inputs`` and ``get_init_inputs``. `runner.problem` says what kernel and
reference are called with.
"""

from __future__ import annotations

from pathlib import Path

from nkireview.task import (
    DEFAULT_WORKLOAD,
    PROBLEM_INPUTS,
    PROBLEM_MODEL,
    Entry,
    Submission,
    Task,
    TaskError,
    Workload,
)

PREFIX = "kernelbench"
KERNEL = "kernel"


def load(rest: str) -> tuple[Task, list[Submission]]:
    """The task of a problem file, which comes without a kernel; `TaskError` where there is no such file."""
    file = Path(rest)
    if file.suffix != ".py" or not file.is_file():
        raise TaskError(
            [f"{PREFIX}:{rest}: there is no such file; expected {PREFIX}:FILE.py with a torch Model"]
        )
    task = Task(
        folder=file.parent,
        name="".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in file.stem),
        description=f"The problem {file.stem}.",
        kernel=KERNEL,
        reference=Entry(file.name, PROBLEM_MODEL),
        inputs_from=Entry(file.name, PROBLEM_INPUTS),
        workloads={DEFAULT_WORKLOAD: Workload()},
    )
    return task, []
