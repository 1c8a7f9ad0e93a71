"""Chains: results that go straight from one instruction into another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nkireview.program.interning import Ints
from nkireview.program.storage import Storage
from nkireview.schedule.uses import Flags, Uses


@dataclass(frozen=True, eq=False)
class Chains:
    """One row for each result whose next use is a read of exactly the same elements by another instruction.

    `producer` and `consumer` are instructions, `access` is what is written and then read. `last`: nobody reads the
    result after the consumer. Buffers that overlap others by explicit address are left out, and so is what is addressed
    on the device, where one view may be other elements each time.
    """

    producer: Ints
    consumer: Ints
    access: Ints
    last: Flags


def chains(used: Uses, stored: Storage) -> Chains:
    """The chains of a Program, in order of the storage place."""
    order = np.argsort(used.place, kind="stable")
    rows = used.where(order)
    same = rows.place[1:] == rows.place[:-1]
    found = np.flatnonzero(
        same
        & rows.writes[:-1]
        & rows.reads[1:]
        & (rows.access[1:] == rows.access[:-1])
        & (rows.instruction[1:] != rows.instruction[:-1])
    )
    if stored.touching:
        found = found[~np.isin(rows.place[found], np.array(list(stored.touching), np.int64))]
    if stored.indices:
        found = found[~np.isin(rows.access[found], np.array(list(stored.indices), np.int64))]
    after = found + 2
    inside = after < len(rows)
    at = np.minimum(after, len(rows) - 1)
    ends = ~inside | (rows.place[at] != rows.place[found])
    gone = rows.writes[at] & ~rows.reads[at] & ((rows.access[at] == rows.access[found]) | rows.whole[at])
    written = rows.writes[found + 1]  # read and written by the consumer as one operand
    return Chains(
        rows.instruction[found], rows.instruction[found + 1], rows.access[found], (ends | gone) & ~written
    )
