"""Ran: how often each instruction runs, once the compiler has left out, merged and repeated what it likes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nkireview.checks.survey import Survey
from nkireview.schedule.timing import Timing


@dataclass(frozen=True, eq=False)
class Ran:
    """What runs of a Program. `times`: how often each instruction does, device-side loops included, on which `lane`.

    `spilled` and `restored` are bytes that are stored to HBM, and come back, beside what the program itself moves.
    """

    times: NDArray[np.float64]
    lane: NDArray[np.int8]
    spilled: float
    restored: float


def ran(timing: Timing, survey: Survey) -> Ran:
    """What runs of a scheduled Program; of the current generation, all that is written."""
    changes = timing.plan.changes
    often = np.ones(len(survey.times))
    often[list(changes.dropped)] = 0.0
    spilled = restored = 0.0
    for fetches in changes.fetches.values():
        for fetch in fetches:
            if fetch.load >= 0:
                often[fetch.load] += 1
            elif fetch.saves:
                spilled += fetch.bytes
            else:
                restored += fetch.bytes
    return Ran(survey.times * often, timing.plan.costs.lane, spilled, restored)
