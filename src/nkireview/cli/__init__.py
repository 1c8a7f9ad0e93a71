"""The commands, thin: arguments in, exit codes out; one module each."""

from nkireview.cli import (
    compare,
    coverage,
    exec,
    grade,
    memory,
    migrate_check,
    review,
    rubric,
    rules,
    run,
    schema,
)
from nkireview.cli.group import main

__all__ = [
    "compare",
    "coverage",
    "exec",
    "grade",
    "main",
    "memory",
    "migrate_check",
    "review",
    "rubric",
    "rules",
    "run",
    "schema",
]
