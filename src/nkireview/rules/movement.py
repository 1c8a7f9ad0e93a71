"""Rules of DMA: in what pieces data moves, how many transfers it takes, how many DMA engines share them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from nkireview.checks import transfers
from nkireview.isa.enums import Memory
from nkireview.isa.row import Flow
from nkireview.isa.table import ROWS
from nkireview.program.interning import Ints
from nkireview.rules.case import SHOWN, Case, in_bytes, in_time, scheduled, share
from nkireview.rules.finding import Dimension, Evidence, Severity
from nkireview.rules.rule import Draft, Rule

_GUIDE = "aws-neuron-sdk nki/deep-dives/nki-dma-bandwidth-guide.rst"
_OVERVIEW = "aws-neuron-sdk nki/get-started/about/nki-dma-overview.rst"
_PERF = "aws-neuron-sdk nki/deep-dives/nki_perf_guide.rst"
FEW = 16
"""Least number of like DMAs for their number to be a matter."""


def alike(case: Case, rows: Ints) -> list[Ints]:
    """Rows of the transfers that load from, or store to, one HBM buffer in pieces of one size."""
    return transfers.alike(case.survey.moves, rows)


def element_bytes(case: Case, rows: Ints) -> Ints:
    """Bytes of an element at the HBM end of each transfer."""
    return transfers.element_bytes(case.program, case.survey.moves, rows)


def neighbours(case: Case, rows: Ints, step: Ints) -> NDArray[np.bool_]:
    """Which of some like transfers begin `step` elements after another of them ends or begins."""
    return transfers.neighbours(case.program, case.survey.moves, rows, step)


def _transposing(case: Case) -> NDArray[np.bool_]:
    return transfers.elementwise(case.program, case.survey.moves)


def _cost(case: Case, run: NDArray[np.float64]) -> NDArray[np.float64]:
    """Relative time of a byte that moves in pieces of `run` bytes."""
    figures = case.figures
    spent: NDArray[np.float64] = (
        1 / figures.number("dma.bytes_per_ns") + figures.number("dma.packet_ns") / run
    )
    return spent


def _ideal(case: Case, rows: Ints, after: float | Ints | None = None) -> float:
    """What the transfers would cost in pieces of `after` bytes, else of the best size, as a share of what they cost."""
    moves = case.survey.moves
    best = case.figures.number("dma.recommended_bytes")
    run = np.maximum(moves.run[rows], 1).astype(np.float64)
    wanted = np.maximum(np.broadcast_to(best if after is None else after, run.shape), run)
    weight = (moves.bytes * moves.times)[rows]
    return float((weight * _cost(case, wanted)).sum() / (weight * _cost(case, run)).sum())


def _transpose(case: Case) -> Iterator[Draft]:
    rows = np.flatnonzero(_transposing(case))
    if not len(rows):
        return
    moves = case.survey.moves
    instructions = moves.instruction[rows]
    gain = case.merged(instructions, len(rows), _ideal(case, rows))
    if not case.worth(gain):
        return
    sizes = element_bytes(case, rows)
    pieces = float(((moves.bytes * moves.times)[rows] / sizes).sum())
    names = np.unique(moves.hbm_buffer[rows]).tolist()
    label, several = case.labels(names), len(names) > 1
    yield case.draft(
        Severity.major,
        f"{label} {'are' if several else 'is'} transposed by DMA: {pieces:.0f} descriptors of "
        f"{in_range(sizes)} bytes in {len(rows)} DMAs, {share(gain, case.total_ns)} of the predicted time",
        instructions,
        gain_ns=gain,
        group="transposes",
        change=f"move {label} in {'their' if several else 'its'} own order, up to {case.hardware.partitions} rows at a "
        "time, and transpose on chip with nc_transpose (or swap the operands of the matmul that takes or makes it)",
    )


@dataclass(frozen=True)
class _Joinable:
    """Like transfers of short runs of one tensor that lie side by side; `group` of them can be one transfer."""

    rows: Ints
    group: int
    elements: int


def _short(case: Case) -> Iterator[Draft]:
    moves = case.survey.moves
    best = case.hardware.integer("dma.recommended_bytes")
    held = (moves.run < best) & (moves.bytes > moves.run) & ~_transposing(case) & (moves.partitions > 0)
    found = [part for rows in alike(case, np.flatnonzero(held)) for part in _joinable(case, rows, best)]
    if not found:
        return
    rows = np.concatenate([part.rows for part in found])
    groups = [part.group for part in found]
    after = np.concatenate([moves.run[part.rows] * part.group for part in found])
    longer = case.stake(moves.instruction[rows], _ideal(case, rows, after))
    gain = _merged(case, [part.rows for part in found], groups, longer)
    if not case.worth(gain):
        return
    weight = (moves.bytes * moves.times)[rows]
    total = float((moves.bytes * moves.times).sum())
    fewer = sum(-(-len(part.rows) // part.group) for part in found)
    reason = ", most of it because fewer DMAs are issued" if 2 * longer < gain else ""
    yield case.draft(
        Severity.major,
        f"DMAs move {_runs(case, found)}: {in_bytes(float(weight.sum()))} of {in_bytes(total)} in {len(rows)} DMAs, "
        f"where {fewer} could move the same in runs of up to {after.max():,} bytes; that saves "
        f"{share(gain, case.total_ns)} of the predicted time{reason}",
        moves.instruction[rows],
        gain_ns=gain,
        group="short runs",
        change=f"move neighbouring blocks with one DMA and let each instruction take its slice: {_tiles(case, found)}",
    )


def _joinable(case: Case, rows: Ints, best: int) -> Iterator[_Joinable]:
    """What of like transfers longer runs could move, within the tensor's row and the room in SBUF."""
    moves = case.survey.moves
    size = int(element_bytes(case, rows)[0])
    run = max(int(np.median(moves.run[rows])), size)
    beside = rows[neighbours(case, rows, moves.run[rows] // size)]
    if len(rows) < 2 or not len(beside):
        return
    pattern = case.program.access(int(moves.hbm[beside[0]])).pattern
    steps = [abs(stride) * size for stride, count in pattern if count > 1 and abs(stride) * size >= run]
    row = min(steps, default=size * math.prod(case.program.buffer(int(moves.hbm_buffer[beside[0]])).shape))
    different = len(np.unique(case.program.columns.access_base[moves.hbm[beside]]))
    free = min((s.usable - s.peak for s in case.survey.space if s.memory is Memory.sbuf), default=0)
    group = min(best // run, row // run, different, 1 + max(free, 0) // (2 * run))
    if group >= 2:
        yield _Joinable(beside, group, run // size)


def _by_label(
    case: Case, found: list[_Joinable], key: Callable[[list[_Joinable]], str]
) -> dict[str, list[str]]:
    """The tensors for which `key` says the same, in order."""
    parts: dict[str, list[_Joinable]] = {}
    for part in found:
        parts.setdefault(case.label(int(case.survey.moves.hbm_buffer[part.rows[0]])), []).append(part)
    said: dict[str, list[str]] = {}
    for name, of in parts.items():
        said.setdefault(key(of), []).append(name)
    return said


def _runs(case: Case, found: list[_Joinable]) -> str:
    """``256-byte runs of a and 512 to 1,024-byte runs of b, c``."""
    run = case.survey.moves.run

    def lengths(parts: list[_Joinable]) -> str:
        return f"{in_range(np.concatenate([run[part.rows] for part in parts]))}-byte runs"

    return " and ".join(
        f"{what} of {_list(names)}" for what, names in _by_label(case, found, lengths).items()
    )


def _tiles(case: Case, found: list[_Joinable]) -> str:
    """``1,024 instead of 512 elements a row of a, b; 1,024 instead of 128 elements a row of c``."""

    def widths(parts: list[_Joinable]) -> str:
        part = max(parts, key=lambda part: len(part.rows))
        return f"{part.elements * part.group:,} instead of {part.elements:,} elements a row"

    return "; ".join(f"{what} of {_list(names)}" for what, names in _by_label(case, found, widths).items())


def _list(names: list[str], most: int = 4) -> str:
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest


def in_range(values: Ints) -> str:
    """``256`` or ``256 to 1,024``."""
    low, high = int(values.min()), int(values.max())
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _merged(case: Case, parts: list[Ints], groups: list[int], scaled: float) -> float:
    """The gain of joining each `groups[i]` transfers of `parts[i]` to one; `scaled` is that of longer runs alone."""
    moves = case.survey.moves
    rows = np.concatenate(parts)
    keep = np.concatenate(
        [(np.arange(len(part)) % group == 0) for part, group in zip(parts, groups, strict=True)]
    )
    if keep.all():
        return scaled
    gone = case.stake(moves.instruction[rows], keep.astype(np.float64))
    return max(scaled, min(gone, case.total_ns - case.transfer_floor_ns))


def _many(case: Case) -> Iterator[Draft]:
    """DMAs that take longer to issue than to move, beside others that could be the same DMA."""
    moves = case.survey.moves
    best = case.hardware.integer("dma.recommended_bytes")
    figures = case.figures
    lasting = moves.bytes / (
        figures.number("dma.engines_per_core") * figures.number("dma.effective_bytes_per_ns")
    )
    issue = figures.number("dma.issue_ns.sync")
    quick = (2 * lasting < issue) & ~_transposing(case) & (moves.partitions > 0)
    parts, groups = [], []
    for rows in alike(case, np.flatnonzero(quick)):
        if len(rows) < FEW:
            continue
        pattern = case.program.access(int(moves.hbm[rows[0]])).pattern
        across = pattern[0][0] * pattern[0][1] if pattern else 0
        size = moves.run[rows] // element_bytes(case, rows)
        beside = neighbours(case, rows, size) & (moves.run[rows] >= best)
        below = neighbours(case, rows, np.full(len(rows), across)) & (moves.partitions[rows] * 2 <= 128)
        joined = rows[beside | below]
        if len(joined) >= FEW:
            parts.append(joined)
            groups.append(max(2, int(issue / max(float(np.median(lasting[joined])), 1.0))))
    if not parts:
        return
    rows = np.concatenate(parts)
    gain = _merged(case, parts, groups, case.stake(moves.instruction[rows], _ideal(case, rows)))
    if not case.worth(gain):
        return
    names = case.labels(np.unique(moves.hbm_buffer[rows]).tolist())
    each = float(np.median(moves.bytes[rows]))
    yield case.draft(
        Severity.major,
        f"{len(rows)} DMAs of {names} move {in_bytes(each)} each: a queue takes {in_time(issue)} to issue one, all DMA "
        f"engines move as much in {in_time(float(np.median(lasting[rows])))}; {share(gain, case.total_ns)} of the "
        "predicted time",
        moves.instruction[rows],
        gain_ns=gain,
        group="many DMAs",
        change=f"move what lies side by side in {names} with one DMA of up to 128 partitions and a few kB a partition, "
        "or issue from several queues",
    )


def _narrow(case: Case) -> Iterator[Draft]:
    """Transfers of few partitions and long rows, which most DMA engines sit out."""
    moves = case.survey.moves
    lanes = case.hardware.partitions
    best = case.hardware.integer("dma.recommended_bytes")
    held = (moves.partitions > 0) & (moves.partitions <= lanes // 4) & (moves.run >= 2 * best)
    rows = np.flatnonzero(held)
    if not len(rows):
        return
    instructions = moves.instruction[rows]
    gain = case.stake(instructions, moves.partitions[rows] / lanes)
    if not case.worth(gain):
        return
    per_engine = case.hardware.integer("dma.partitions_per_engine")
    most = int(moves.partitions[rows].max())
    names = case.labels(np.unique(moves.hbm_buffer[rows]).tolist())
    bound = _bound_rows(case, rows)
    draft = case.draft(
        Severity.minor,
        f"DMAs of {names} fill {most} of {lanes} partitions: {-(-most // per_engine)} of "
        f"{case.hardware.integer('dma.engines_per_core')} DMA engines move "
        f"{in_bytes(float((moves.bytes * moves.times)[rows].sum()))}",
        instructions,
        gain_ns=gain,
        group="few partitions",
        change=f"cut the rows of {names} into pieces that lie on all {lanes} partitions, and put the results of the "
        "pieces of one row together at the end"
        if bound
        else f"cut the rows of {names} into pieces that lie on all {lanes} partitions",
    )
    yield replace(draft, severity=Severity.note) if bound else draft


def _bound_rows(case: Case, rows: Ints) -> bool:
    """True where something reads whole rows of a tile that the transfers fill: a sum, a scan, a matmul, a transpose."""
    moves, used = case.survey.moves, case.survey.uses
    tiles = np.where(moves.loads[rows], moves.target[rows], moves.source[rows])
    across = [
        any(
            flow not in (Flow.elementwise, Flow.select, Flow.nothing)
            for flow in ROWS[opcode.name].flow.values()
        )
        for opcode in case.program.opcodes
    ]
    readers = used.instruction[used.reads & np.isin(used.buffer, tiles)]
    return bool(np.array(across, bool)[case.program.columns.opcode[readers]].any())


def _within_hbm(case: Case) -> Iterator[Draft]:
    """Copies from HBM to a private tensor in HBM that is loaded from there."""
    moves = case.survey.moves
    parameters = {buffer for _, buffer in case.program.parameter_buffers}
    outputs = {case.program.access(output.access).buffer for output in case.program.outputs}
    loaded = set(moves.source[moves.loads & ~moves.stores].tolist())
    rows = case.survey.traffic.copies
    kept = [
        b for b in np.unique(moves.target[rows]).tolist() if b in loaded and b not in parameters | outputs
    ]
    for name, buffers in case.by_label(kept).items():
        part = rows[np.isin(moves.target[rows], buffers)]
        instructions = moves.instruction[part]
        gain = case.stake(instructions, 0.0)
        if case.worth(gain):
            source = case.labels(np.unique(moves.source[part]).tolist())
            draft = case.draft(
                Severity.major,
                f"{in_bytes(float((moves.bytes * moves.times)[part].sum()))} of {source} are copied within HBM to "
                f"{name} and loaded from there",
                instructions,
                gain_ns=gain,
                group=name,
                change=f"load from {source} itself: the access pattern of a DMA can do what the copy does",
            )
            again = moves.instruction[np.isin(moves.source, buffers) & ~moves.stores]
            yield replace(draft, places=tuple(dict.fromkeys([*draft.places, *case.places(again)]))[:SHOWN])


_DMA = Dimension.dma

RULES = (
    Rule(
        "NKR120",
        "DMAs move short runs, although what lies beside them is moved too",
        Severity.major,
        _DMA,
        Evidence.scheduled,
        "A descriptor moves one contiguous run, and each costs a DMA engine a fixed time. Below 2 KiB a partition that "
        "time is a good part of the whole, below 512 bytes the larger one; and each DMA holds the queue that issues it "
        "for about 600 ns.",
        scheduled(_short),
        citation=f"{_GUIDE}:71-85",
        suppresses=frozenset({"NKR121", "NKR141", "NKR163"}),
    ),
    Rule(
        "NKR121",
        "Many small DMAs: issuing them takes longer than moving the data",
        Severity.major,
        _DMA,
        Evidence.scheduled,
        "Sync and Scalar take about 600 ns to issue a DMA, whatever its size, and one DMA can move 128 partitions. "
        "Small ones leave the 16 DMA engines idle while the queue writes descriptors.",
        scheduled(_many),
        citation=f"{_PERF}:824-892",
        suppresses=frozenset({"NKR163"}),
    ),
    Rule(
        "NKR122",
        "A tensor is transposed by a strided DMA",
        Severity.major,
        _DMA,
        Evidence.scheduled,
        "Neighbouring elements of the tile lie a row apart in HBM, so every descriptor moves a single element. The DMA "
        "engines then move a few percent of their peak; the Tensor engine transposes 128 x 128 elements in some 60 ns.",
        scheduled(_transpose),
        citation=f"{_PERF}:824-852,895-930",
        suppresses=frozenset({"NKR120", "NKR121", "NKR140", "NKR163"}),
    ),
    Rule(
        "NKR123",
        "DMAs fill few partitions, so that most DMA engines are idle",
        Severity.minor,
        _DMA,
        Evidence.scheduled,
        "Each of the 16 DMA engines serves eight partitions of a transfer. One that touches 8 partitions moves at a "
        "sixteenth of the bandwidth.",
        scheduled(_narrow),
        citation=f"{_OVERVIEW}:34,97,153",
    ),
    Rule(
        "NKR125",
        "Data is copied within HBM before it is loaded",
        Severity.major,
        _DMA,
        Evidence.scheduled,
        "A copy within HBM reads and writes the bandwidth that the load itself needs, and its latency comes before the "
        "first load.",
        scheduled(_within_hbm),
        citation=f"{_OVERVIEW}:16,34",
        suppresses=frozenset({"NKR106", "NKR126"}),
    ),
)
