"""Survey: the facts about space, traffic and use of the engines that a Program's text alone decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nkireview.checks.allocation import Placed, allocate
from nkireview.checks.chains import Chains, chains
from nkireview.checks.counts import loop_trips
from nkireview.checks.locality import Locality, locality
from nkireview.checks.races import Races, races
from nkireview.checks.space import Space, space
from nkireview.checks.traffic import Traffic, traffic
from nkireview.checks.transfers import Transfers, transfers
from nkireview.checks.utilisation import Work, work
from nkireview.hardware import Hardware
from nkireview.isa.row import Row
from nkireview.program.program import Program
from nkireview.program.scope import Scope
from nkireview.program.storage import Storage, storage
from nkireview.schedule.uses import Uses, uses


@dataclass(frozen=True, eq=False)
class Survey:
    """What a Program's text alone says of its speed; no figure here is a time that was scheduled or measured.

    `space`: SBUF and PSUM of each core, `placed`: where their buffers lie. `moves`: DMAs as rows, `traffic`: what they
    move against what is needed.
    `work`: compute instructions as rows. `uses`: every operand as a row, `stored`: the places they stand for.
    """

    space: tuple[Space, ...]
    moves: Transfers
    traffic: Traffic
    work: Work
    uses: Uses
    stored: Storage
    placed: tuple[Placed, ...]
    times: NDArray[np.float64]
    """How often device-side loops run each instruction."""
    program: Program = field(repr=False)
    hardware: Hardware = field(repr=False)
    races: Races
    """What the cores of a launch do to one place without an order."""

    @cached_property
    def chains(self) -> Chains:
        """Results that go straight from one instruction into another."""
        return chains(self.uses, self.stored)

    @cached_property
    def locality(self) -> Locality:
        """What lines move between memories, against the least that has to be moved."""
        return locality(self.program, self, self.hardware)


def survey(
    program: Program, rows: Mapping[str, Row], hardware: Hardware, trips: Mapping[int, int] | None = None
) -> Survey:
    """The survey of a Program on a target; loops that are malformed count one trip.

    trips: index of a loop in the program -> its trip count, where its bounds are not numbers.
    Raise ProgramError where the header names an unknown target or release.
    """
    scope = Scope.of(program, rows)
    stored = storage(program, rows)
    used = uses(program, stored)
    times = _times(program, trips)
    moves = transfers(scope, rows, times)
    return Survey(
        space=space(scope, hardware, stored, used),
        moves=moves,
        traffic=traffic(program, moves, used),
        work=work(scope, rows, times),
        uses=used,
        stored=stored,
        placed=allocate(program, stored, hardware, used),
        times=times,
        program=program,
        hardware=hardware,
        races=races(scope, stored, used, trips),
    )


def _times(program: Program, trips: Mapping[int, int] | None) -> NDArray[np.float64]:
    try:
        return loop_trips(program, trips).astype(np.float64)
    except ValueError:
        return np.ones(len(program))
