"""The commands, thin: arguments in, exit codes out; one module each."""

from nkireview.cli import (
    calibrate,
    compare,
    coverage,
    exec,
    grade,
    memory,
    migrate_check,
    numerics,
    profile,
    review,
    rubric,
    rules,
    run,
    schema,
)
from nkireview.cli.group import main

__all__ = [
    "calibrate",
    "compare",
    "coverage",
    "exec",
    "grade",
    "main",
    "memory",
    "migrate_check",
    "numerics",
    "profile",
    "review",
    "rubric",
    "rules",
    "run",
    "schema",
]
