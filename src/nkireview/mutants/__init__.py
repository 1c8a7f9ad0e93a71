"""Mutants: a Program that is right, with one defect each, and how many of them a test would notice.

A mutant keeps the Program's instructions and changes what one line does: an immediate, what an instruction reads, or
what becomes of its result. Some change the outputs alone. Each is a mistake that people make: an epsilon left out,
N-1 for N, another form of an activation, a shift by the maximum that is missing, a mask off by one.
"""

from nkireview.mutants.defects import MOST, mutants
from nkireview.mutants.evidence import evidence
from nkireview.mutants.killed import Outcome, Passes, killed
from nkireview.mutants.mutant import Mutant, Outputs

__all__ = ["MOST", "Mutant", "Outcome", "Outputs", "Passes", "evidence", "killed", "mutants"]
