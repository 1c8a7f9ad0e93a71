"""The commands, thin: arguments in, exit codes out; one module each."""

from nkireview.cli import compare, grade, review, rubric, rules, run, schema
from nkireview.cli.group import main

__all__ = ["compare", "grade", "main", "review", "rubric", "rules", "run", "schema"]
