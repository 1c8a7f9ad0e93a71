"""Least: bytes that any program for the same computation has to move between HBM and the chip.

Two lower bounds. The compulsory minimum: every different byte of an input that reaches an output is loaded once, every
byte of an output is stored once; cores can send each other what one of them loaded, so that what several need counts
once. The bound of a matrix product: with a fast memory of S elements at least ``2 * MACs / sqrt(S) - 2 * S`` elements
are moved (Hong and Kung, STOC 1981; the constant of Smith, Lowery, Langou and van de Geijn 2019, arXiv:1702.02017). It
counts reads of both operands and of partial results; a result needs no read before its first product, so that what is
left to load is that less one for each result.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from nkireview.checks.provenance import Provenance
from nkireview.checks.regions import regions
from nkireview.checks.reloads import Reloads
from nkireview.checks.transfers import Transfers
from nkireview.isa import dtypes
from nkireview.program.interning import Ints
from nkireview.program.program import Program


@dataclass(frozen=True)
class Compulsory:
    """Bytes that have to be moved once. `alone`: what the cores load if none sends another anything.

    `loads`: different bytes of each parameter's buffer that reach an output; `stores`: bytes of each output's buffer.
    """

    loads: Mapping[int, float]
    stores: Mapping[int, float]
    alone: float

    @property
    def loaded(self) -> float:
        """Bytes of all inputs."""
        return sum(self.loads.values())

    @property
    def stored(self) -> float:
        """Bytes of all outputs."""
        return sum(self.stores.values())


def least_product_loads(products: float, results: float, held: float) -> float:
    """Least elements loaded for a dense matrix product with a fast memory of `held` elements; 0 where it binds nothing.

    ``2 * products / sqrt(held) - 2 * held - results``.
    """
    return max(2 * products / math.sqrt(held) - 2 * held - results, 0.0)


def compulsory(program: Program, moves: Transfers, found: Reloads, paths: Provenance) -> Compulsory:
    """What has to be moved once, of what the DMAs of a Program move.

    Where an address is made on the device, one index names the bytes that count; a parameter whose paths are not
    known counts nothing.
    """
    ends = found.ends
    loads: dict[int, float] = {}
    alone = 0.0
    for path, buffer in program.parameter_buffers:
        reached = np.array(sorted(paths.accesses(path)), np.int64)
        mine = ends.of(False, buffer)
        mine = mine[np.isin(moves.source_access[ends.row[mine]], reached)]
        mine = mine[~found.changed[ends.row[mine]]]
        if not len(mine):
            continue
        streams = moves.stream[ends.row[mine]]
        apart = [_different(program, found, moves, mine[streams == one]) for one in np.unique(streams)]
        loads[buffer] = apart[0] if len(apart) == 1 else _different(program, found, moves, mine)
        alone += sum(apart)
    return Compulsory(loads, _stored(program, moves, found), alone)


def _different(program: Program, found: Reloads, moves: Transfers, some: Ints) -> float:
    """Different bytes that ends of one buffer touch, at least."""
    ends = found.ends
    forms = np.unique(ends.form[some])
    held = regions(program, int(ends.buffer[some[0]]), ends.held, forms)
    known = np.isin(ends.form[some], held.rows)
    sizes = moves.bytes[ends.row[some]] / np.maximum(ends.copies[some], 1)
    if not len(held.rows):
        least = 0.0
    elif held.exact:
        least = float(np.count_nonzero(held.mark())) * held.grain_bytes
    else:
        least = max(ends.held.patterns[n].least_bits / 8 for n in ends.held.pattern[held.rows].tolist())
    runs = moves.run[ends.row[some]]
    return max(least, float(np.minimum(sizes, runs)[~known].max(initial=0.0)))


def _stored(program: Program, moves: Transfers, found: Reloads) -> dict[int, float]:
    """Bytes of each output that DMAs store: all of it, but of one that is a parameter only what is written."""
    ends = found.ends
    parameters = {buffer for _, buffer in program.parameter_buffers}
    stores: dict[int, float] = {}
    for output in program.outputs:
        access = program.access(output.access)
        buffer = access.buffer
        mine = ends.of(True, buffer)
        if not len(mine):
            continue
        if buffer in parameters or output.alias is not None:
            stores[buffer] = _different(program, found, moves, mine)
            continue
        moved = float((moves.bytes * moves.times)[ends.row[mine]].sum())
        size = access.size * dtypes.BY_NAME[access.dtype].bits / 8
        stores[buffer] = max(stores.get(buffer, 0.0), min(size, moved))
    return stores
