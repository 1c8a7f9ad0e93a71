"""Locality: what every line moves between memories, against the least that has to be moved."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from nkireview.checks.least import Compulsory, compulsory, least_product_loads
from nkireview.checks.products import Product, dense_product
from nkireview.checks.provenance import provenance
from nkireview.checks.transfers import elementwise
from nkireview.hardware import Hardware
from nkireview.isa import dtypes
from nkireview.isa.enums import Engine, Memory
from nkireview.isa.row import Flow
from nkireview.isa.table import ROWS
from nkireview.program.interning import Ints, by_opcode, by_rank, intern, members
from nkireview.program.program import MEMORIES, Program
from nkireview.program.storage import READS, WRITES

if TYPE_CHECKING:
    from nkireview.checks.survey import Survey

Floats = NDArray[np.float64]
COMPULSORY = "each input byte that reaches an output is loaded once, each output byte is stored once"
_NAMES = {Memory.shared_hbm: "HBM", Memory.hbm: "HBM", Memory.sbuf: "SBUF", Memory.psum: "PSUM"}
_ROUTES = tuple(f"{a}->{b}" for a in ("HBM", "SBUF", "PSUM") for b in ("HBM", "SBUF", "PSUM"))


@dataclass(frozen=True)
class LineTraffic:
    """What one line moves by one route, such as ``HBM->SBUF``, over all trips of device-side loops.

    `bytes` are those read at the source; `transfers` counts instructions. `descriptors` of DMAs, each one contiguous
    run of `descriptor_bytes` on average; 0 for compute instructions. `reloaded_bytes`: what the same core had loaded
    before, unchanged since.
    """

    place: str
    route: str
    bytes: float
    transfers: float
    descriptors: float
    descriptor_bytes: float
    reloaded_bytes: float


@dataclass(frozen=True)
class LinePart:
    """What of a line's traffic over HBM is of one kind: ``reload``, ``transpose``, ``round trip``, ``unread``.

    A round trip has parts of its stores and of its loads. A transpose is an instruction that transposes, or a copy of
    single elements that lie apart in HBM. `buffer` is the one in HBM, else the source.
    """

    kind: str
    place: str
    buffer: int
    bytes: float


@dataclass(frozen=True)
class Locality:
    """The traffic of a Program by line and route, the largest first, and what it is held against.

    `moved`: bytes that DMAs load from HBM and store to it, a copy within HBM counting as both; what ranks exchange
    and what stays on chip are not among them. `compulsory`: each different byte of inputs that reaches an output
    loaded once, each byte of outputs stored once, by all cores together; tiles are taken as wholes, so that a byte
    which shares its tile with one that is used counts as used. `least`: what any program for the same computation
    moves at least with this SBUF and PSUM, and `least_why`. `alone`: the compulsory bytes where no core sends another
    anything. `attainable`: something is known to come near `least`: all of the inputs fit in SBUF, or the program is
    one matrix product.
    """

    lines: tuple[LineTraffic, ...]
    moved: float
    compulsory: float
    least: float
    least_why: str
    alone: float
    attainable: bool
    parts: tuple[LinePart, ...]


def locality(program: Program, survey: Survey, hardware: Hardware) -> Locality:
    """The locality of a Program on a target.

    Raise ProgramError where the header names an unknown target or release.
    """
    moves, found = survey.moves, survey.traffic.reloads
    needed = compulsory(program, moves, found, provenance(program, ROWS))
    once = needed.loaded + needed.stored
    product = _product(program, survey, hardware, needed)
    least, why = once, COMPULSORY
    if product is not None:
        least, why = product
    cores = len({stream.core for stream in program.streams}) or 1
    room = hardware.sbuf_usable_bytes * hardware.partitions * cores
    ends = moves.loads.astype(np.float64) + moves.stores
    return Locality(
        lines=_lines(program, survey),
        moved=float((moves.bytes * moves.times * ends).sum()),
        compulsory=once,
        least=least,
        least_why=why,
        alone=needed.alone + needed.stored,
        attainable=product is not None or needed.alone <= room,
        parts=tuple(_parts(program, survey)),
    )


def _product(
    program: Program, survey: Survey, hardware: Hardware, needed: Compulsory
) -> tuple[float, str] | None:
    """The least bytes of a program that is one matrix product too large for what is on chip, and why."""
    work = survey.work
    done = float((work.products * work.times).sum())
    cores = len({stream.core for stream in program.streams}) or 1
    held = float((hardware.sbuf_usable_bytes + hardware.psum_bytes) * hardware.partitions * cores)
    widest = max(dtypes.BY_NAME[name].bits for name in program.dtypes) / 8 if program.dtypes else 0.0
    if not done or least_product_loads(done, 0.0, held / widest) * widest <= needed.loaded:
        return None
    found = dense_product(program, work, survey.uses, survey.stored, needed)
    if found is None:
        return None
    return _bound(found, needed, held)


def _bound(found: Product, needed: Compulsory, held: float) -> tuple[float, str] | None:
    size = found.element_bytes
    loads = least_product_loads(found.products, found.results, held / size) * size
    if loads <= needed.loaded:
        return None
    why = (
        f"a product of [{found.rows}, {found.terms}] and [{found.terms}, {found.columns}] with room for S = "
        f"{held / size:.4g} elements of {size:g} bytes in SBUF and PSUM moves at least 2 MACs / sqrt(S) - 2 S of them"
    )
    return loads + needed.stored, why


def _lines(program: Program, survey: Survey) -> tuple[LineTraffic, ...]:
    moves = survey.moves
    memory = np.array([_side(kind) for kind in MEMORIES], np.int64)[program.columns.buffer_memory]
    times = moves.times
    run = np.maximum(moves.run, 1)
    rows = _Rows(
        place=moves.place,
        route=memory[moves.source] * 3 + memory[moves.target],
        bytes=moves.bytes * times,
        transfers=times,
        descriptors=-(-moves.bytes // run) * times,
        reloaded=survey.traffic.reloads.again,
    )
    rows = rows.and_(_evacuations(program, survey, memory))
    texts: dict[str, int] = {}
    named = np.array(
        [texts.setdefault(program.place_text(place), len(texts)) for place in range(-1, len(program.places))],
        np.int64,
    )
    place = named[rows.place + 1]
    classes = intern([place, rows.route], len(place))
    names = list(texts)
    lines = []
    for part in members(classes.of, len(classes)):
        moved, pieces = float(rows.bytes[part].sum()), float(rows.descriptors[part].sum())
        lines.append(
            LineTraffic(
                place=names[int(place[part[0]])],
                route=_ROUTES[int(rows.route[part[0]])],
                bytes=moved,
                transfers=float(rows.transfers[part].sum()),
                descriptors=pieces,
                descriptor_bytes=moved / pieces if pieces else 0.0,
                reloaded_bytes=float(rows.reloaded[part].sum()),
            )
        )
    return tuple(sorted(lines, key=lambda line: (-line.bytes, line.place, line.route)))


@dataclass(frozen=True, eq=False)
class _Rows:
    """Movements as columns; the route is a position in `_ROUTES`."""

    place: Ints
    route: Ints
    bytes: Floats
    transfers: Floats
    descriptors: Floats
    reloaded: Floats

    def and_(self, others: list[_Rows]) -> _Rows:
        """These and others."""
        every = (self, *others)
        return _Rows(
            np.concatenate([rows.place for rows in every]),
            np.concatenate([rows.route for rows in every]),
            np.concatenate([rows.bytes for rows in every]),
            np.concatenate([rows.transfers for rows in every]),
            np.concatenate([rows.descriptors for rows in every]),
            np.concatenate([rows.reloaded for rows in every]),
        )


def _side(memory: Memory) -> int:
    return ("HBM", "SBUF", "PSUM").index(_NAMES[memory])


def _evacuations(program: Program, survey: Survey, memory: Ints) -> list[_Rows]:
    """Operands that compute instructions read in another memory than they write to."""
    columns = program.columns
    sizes = _access_bytes(program)
    found = []
    for code, rows, accesses in by_opcode(program):
        row = ROWS.get(program.opcodes[code].name)
        if row is None or row.engines.default is Engine.dma or row.meets or not accesses.shape[1]:
            continue
        if all(flow is Flow.nothing for flow in row.flow.values()):
            continue
        use = survey.stored.use[columns.operand_at[rows][:, None] + np.arange(accesses.shape[1])]
        side = np.where(accesses >= 0, memory[columns.access_buffer[accesses]], -1)
        written = np.where((use & WRITES) > 0, side, -1)
        into = written[np.arange(len(rows)), (written >= 0).argmax(axis=1)]
        for slot in range(accesses.shape[1]):
            only = (use[:, slot] & (READS | WRITES)) == READS
            held = np.flatnonzero(only & (side[:, slot] > 0) & (into > 0) & (side[:, slot] != into))
            if len(held):
                times = survey.times[rows[held]]
                nothing = np.zeros(len(held))
                found.append(
                    _Rows(
                        place=columns.place[rows[held]].astype(np.int64),
                        route=side[held, slot] * 3 + into[held],
                        bytes=sizes[accesses[held, slot]] * times,
                        transfers=times,
                        descriptors=nothing,
                        reloaded=nothing,
                    )
                )
    return found


def _access_bytes(program: Program) -> Floats:
    """Bytes of each access."""
    columns = program.columns
    bits = np.array([dtypes.BY_NAME[name].bits for name in program.dtypes], np.float64)
    sizes = np.ones(columns.accesses)
    for rank, rows, at in by_rank(columns.axis_at):
        if rank:
            sizes[rows] = columns.axis_count[at].astype(np.float64).prod(axis=1)
    return np.asarray(sizes * bits[columns.access_dtype] / 8, np.float64)


def _parts(program: Program, survey: Survey) -> Iterator[LinePart]:
    """The kinds of traffic that lines have part in, the largest first."""
    moves, traffic = survey.moves, survey.traffic
    moved = moves.bytes * moves.times
    trips = np.isin(moves.target, traffic.round_trips) & moves.stores
    kinds = [
        ("reload", moves.source, traffic.reloads.again),
        ("transpose", moves.hbm_buffer, np.where(moves.transposes | elementwise(program, moves), moved, 0.0)),
        ("round trip", moves.target, np.where(trips, moved, 0.0)),
        (
            "round trip",
            moves.source,
            np.where(np.isin(moves.source, traffic.round_trips), traffic.reloads.returned, 0.0),
        ),
        ("unread", moves.target, np.where(np.isin(moves.target, traffic.unread) & moves.stores, moved, 0.0)),
    ]
    totals: dict[tuple[str, str, int], float] = {}
    for kind, buffers, part in kinds:
        for row in np.flatnonzero(part).tolist():
            key = kind, program.place_text(int(moves.place[row])), int(buffers[row])
            totals[key] = totals.get(key, 0.0) + float(part[row])
    for (kind, place, buffer), part_bytes in sorted(totals.items(), key=lambda item: (-item[1], item[0])):
        yield LinePart(kind, place, buffer, part_bytes)
