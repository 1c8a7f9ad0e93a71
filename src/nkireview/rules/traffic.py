"""Rules of traffic as a whole: bytes over HBM against the least that the computation and SBUF allow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from nkireview.checks.locality import LineTraffic
from nkireview.rules.case import SHOWN, Case, in_bytes, scheduled
from nkireview.rules.finding import Dimension, Evidence, Severity
from nkireview.rules.rule import Draft, Rule

TIMES = 2.0
"""Least ratio of the bytes moved to the least for a finding."""


def _beyond(case: Case) -> Iterator[Draft]:
    found, moved = case.survey.locality, case.moved_bytes
    least = max(found.least, found.alone)
    if not found.attainable or not least or moved <= TIMES * least:
        return
    moves = case.survey.moves
    rows = np.flatnonzero((moves.loads | moves.stores) & (moves.times > 0))
    instructions = moves.instruction[rows]
    gain = case.stake(instructions, least / moved)
    if not case.worth(gain):
        return
    lines = [line for line in found.lines if "HBM" in line.route and line.place]
    draft = case.draft(
        Severity.minor,
        f"{in_bytes(moved)} move over HBM, {moved / least:.3g} times the {in_bytes(least)} that have to; "
        f"most of it at {_most(lines)}",
        instructions,
        gain_ns=gain,
        group="traffic",
    )
    yield replace(draft, places=tuple(dict.fromkeys(line.place for line in lines))[:SHOWN])


def _most(lines: list[LineTraffic]) -> str:
    return ", ".join(f"{line.place} ({line.route} {in_bytes(line.bytes)})" for line in lines[:3])


RULES = (
    Rule(
        "NKR126",
        "Far more bytes move over HBM than have to",
        Severity.minor,
        Dimension.memory,
        Evidence.scheduled,
        "Each different byte of the inputs that reaches an output has to be loaded once, each byte of the outputs "
        "stored once; for a matrix product larger than SBUF, 2 MACs / sqrt(S) - 2 S elements with room for S of them. "
        "All else is traffic that keeping data on chip would save.",
        scheduled(_beyond),
        citation="Hong and Kung, STOC 1981; Smith et al. 2019, arXiv:1702.02017",
        change="follow what the lines named bring: keep it in SBUF until its last use, change layouts on chip with "
        "nc_transpose or an access pattern, and load no more of a tensor than is used",
        legacy_cap=Severity.note,
    ),
)
