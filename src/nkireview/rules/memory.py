"""Rules of the memory hierarchy: what fits, what is moved twice or for nothing, what PSUM is for."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from nkireview import hardware
from nkireview.checks.changes import Change
from nkireview.checks.space import Held, Space
from nkireview.checks.traffic import Loaded
from nkireview.isa.enums import Memory
from nkireview.isa.release import LEGACY, Release
from nkireview.program.interning import Ints
from nkireview.program.program import MEMORIES, Program
from nkireview.rules.case import Case, in_bytes, scheduled, share
from nkireview.rules.facts import WorkloadFacts
from nkireview.rules.finding import Dimension, Evidence, Severity
from nkireview.rules.rule import Draft, Rule, each

RELOADED = 1.5
"""Least number of times that a buffer is loaded over for it to count as re-loaded."""
SHOWN = 4
"""Kinds of buffers that a finding names."""
_PERF = "aws-neuron-sdk nki/deep-dives/nki_perf_guide.rst"


def _spaces(facts: WorkloadFacts, memory: Memory | None = None) -> Iterator[Space]:
    if facts.survey is not None:
        for space in facts.survey.space:
            if memory is None or space.memory is memory:
                yield space


def _crowded(facts: WorkloadFacts) -> Iterator[Draft]:
    program = facts.program
    for space in _spaces(facts):
        if not space.crowds or program is None:
            continue
        worst = max(space.crowds, key=lambda crowd: crowd.bytes)
        place = program.place_text(int(program.columns.place[worst.instruction]))
        name = program.opcodes[program.columns.opcode[worst.instruction]].name
        yield Draft(
            f"the operands of {name} need {worst.bytes} bytes a partition of {space.memory.name.upper()} at once, "
            f"{space.usable} are usable ({place})",
            (place,),
            len(space.crowds),
            facts.name,
            group=space.memory.name,
        )


def _overfull(memory: Memory) -> object:
    def find(facts: WorkloadFacts) -> Iterator[Draft]:
        program = facts.program
        for space in _spaces(facts, memory):
            if space.packed <= space.usable or space.crowds or _hopeless(space) or program is None:
                continue
            place = program.place_text(int(program.columns.place[space.peak_at]))
            needed = ""
            if space.bound is not None and 2 * space.bound.bytes > space.usable:
                where = program.place_text(int(program.columns.place[space.bound.instruction]))
                needed = f"; whatever the order, {space.bound.bytes} are needed at {where}"
            yield Draft(
                f"{_name(space, program)} holds {space.packed} bytes a partition in program order, "
                f"{space.usable} are usable, {space.packed - space.usable} too many ({place}); alive: "
                f"{_listed(space.alive)}{needed}",
                tuple(dict.fromkeys([place, *(held.place for held in space.alive if held.place)])),
                workload=facts.name,
                group=space.memory.name,
                severity=Severity.minor if space.packed <= _physical(program, space) else Severity.major,
                change=_change(space.change, memory),
            )

    return find


def _hopeless(space: Space) -> bool:
    """True where no order of the program fits."""
    return space.bound is not None and space.bound.bytes > space.usable


def _name(space: Space, program: Program) -> str:
    core = f" of core {space.core}" if program.header.lnc > 1 else ""
    return f"{space.memory.name.upper()}{core}"


def _listed(alive: Sequence[Held]) -> str:
    """Buffers in words, those made at one line with one size once, those that hold most first."""
    kinds: dict[tuple[str, int], list[Held]] = {}
    for held in alive:
        kinds.setdefault((held.place, held.bytes), []).append(held)
    groups = sorted(kinds.values(), key=lambda group: -group[0].bytes * group[0].partitions * len(group))
    words = []
    for group in groups[:SHOWN]:
        first, names = group[0], {held.name for held in group}
        label = f"{first.name} ({first.place})" if names == {first.name} and first.name else ""
        times = f"{len(group)} x " if len(group) > 1 else ""
        words.append(f"{times}{first.bytes} B of {label or first.unnamed}")
    rest = sum(len(group) for group in groups[SHOWN:])
    return ", ".join(words) + (f", and {rest} smaller" if rest else "")


def _change(change: Change | None, memory: Memory, *, reordered: bool = True) -> str:
    """The smallest change in words, "" for none; `reordered`: another order of the program may help."""
    if change is None:
        return ""
    one = change.tiles == 1
    each = "" if one else " each"
    tiles = f"the tile made at {change.place}" if one else f"the {change.tiles} tiles made at {change.place}"
    if change.kind == "narrower":
        return f"make {tiles} bfloat16 instead of float32: {change.bytes // 2} B a partition less{each}"
    if change.kind == "shorter":
        left = change.bytes - change.cut
        return f"shorten {tiles} by {change.cut} B a partition{each}, to {left} B"
    start = f"of {tiles}, {change.bytes} B a partition each, keep no more than {change.keep} alive at once"
    if not reordered:
        return f"{start}: load or compute the others again when they are needed, or split the work before this point"
    if memory is Memory.psum:
        return f"{start}: copy each to SBUF as soon as its last matmul is done, before the next ones start"
    return f"{start}: load or make one when it is needed, and use it up before the next"


def _impossible(facts: WorkloadFacts) -> Iterator[Draft]:
    program = facts.program
    for space in _spaces(facts):
        bound = space.bound
        if bound is None or not _hopeless(space) or space.crowds or program is None:
            continue
        place = program.place_text(int(program.columns.place[bound.instruction]))
        opcode = program.opcodes[program.columns.opcode[bound.instruction]].name
        yield Draft(
            f"no order fits: at {opcode} ({place}) {bound.bytes} bytes a partition of {_name(space, program)} are "
            f"alive whatever the order, {space.usable} are usable: {_listed(bound.alive)}",
            tuple(dict.fromkeys([place, *(held.place for held in bound.alive if held.place)])),
            workload=facts.name,
            group=space.memory.name,
            change=_change(bound.change, space.memory, reordered=False),
        )


def _mixed(facts: WorkloadFacts) -> Iterator[Draft]:
    program = facts.program
    if facts.survey is None or program is None:
        return
    own = [placed for placed in facts.survey.placed if placed.explicit]
    free = [placed for placed in facts.survey.placed if not placed.explicit]
    if not own or not free:
        return
    words, places = [], []
    for kind in (own, free):
        memories = sorted({placed.memory.name.upper() for placed in kind}, reverse=True)
        buffer = program.buffer(kind[0].buffer)
        place = program.place_text(buffer.place)
        places.append(place)
        words.append(
            f"{len(kind)} of {' and '.join(memories)} (such as {buffer.name or 'the one'} made at {place})"
        )
    yield Draft(
        f"the kernel gives addresses to {words[0]}, and leaves {words[1]} to the compiler",
        tuple(dict.fromkeys(place for place in places if place)),
        len(free),
        workload=facts.name,
        severity=Severity.minor if Release.parse(program.header.release) == LEGACY else Severity.note,
    )


def _physical(program: Program, space: Space) -> int:
    """Bytes a partition that the memory has, the compiler's reserve included, whose size no document states."""
    if space.memory is Memory.psum:
        return space.usable
    return hardware.target(program.header.target).sbuf_bytes


def _overlap(facts: WorkloadFacts) -> Iterator[Draft]:
    program = facts.program
    for space in _spaces(facts):
        for clash in space.clashes:
            if program is None:
                continue
            lost, by = program.buffer(clash.lost), program.buffer(clash.by)
            lines = [program.place_text(int(program.columns.place[at])) for at in (clash.read, clash.written)]
            names = [b.name or f"the tile made at {program.place_text(b.place)}" for b in (lost, by)]
            yield Draft(
                f"{names[0]} is read at {lines[0]} after {names[1]}, whose explicit address overlaps it, was written "
                f"at {lines[1]}",
                tuple(dict.fromkeys(lines)),
                workload=facts.name,
                group=f"{names[0]}, {names[1]}",
            )


def _reloaded(case: Case) -> Iterator[Draft]:
    traffic = case.survey.traffic
    room = case.hardware.sbuf_usable_bytes * case.hardware.partitions
    kept = sum(item.distinct or 0 for item in traffic.stored)
    found: list[Loaded] = []
    scale = np.ones(len(case.program))
    for item in traffic.loaded:
        goal = _least(min(item.needed or 0, kept), room / 2)
        if item.factor / item.spread < RELOADED * goal:
            continue
        found.append(item)
        _without_repeats(case, item, goal, scale)
    if not found:
        return
    rows = np.concatenate([item.rows for item in found])
    instructions = case.survey.moves.instruction[rows]
    gain = case.stake(instructions, scale[instructions])
    if not case.worth(gain):
        return
    found.sort(key=lambda item: -(item.bytes - (item.needed or 0) * item.spread))
    sums: dict[str, tuple[float, float]] = {}  # of cores, and of buffers made at one line, together
    for item in found:
        moved, needed = sums.get(case.label(item.buffer), (0.0, 0.0))
        sums[case.label(item.buffer)] = moved + item.bytes, needed + (item.needed or 0) * item.spread
    names = list(sums)
    clauses = [
        f"{name} is loaded {moved / needed if needed else 1:.3g} times over: {in_bytes(moved)} moved where "
        f"{in_bytes(needed)} are needed"
        for name, (moved, needed) in list(sums.items())[:3]
    ]
    free, each_needs = case.free_sbuf, _held(case, found)
    rest = f" and {len(names) - 3} more" if len(names) > 3 else ""
    joined = (", " if rest else " and ").join(names[:3]) + rest
    if each_needs <= free:
        change = (
            f"load {joined} once, before the loop that repeats it, and keep what was loaded in SBUF: "
            f"{math.ceil(each_needs):,} bytes a partition, {free:,} are free"
        )
    elif free:
        change = (
            f"work on larger blocks, so that each loaded block of {joined} is used for more results before the next "
            "one takes its place, and put the loop over what is small inside"
        )
    else:
        change = (
            f"SBUF is full, so choose other blocks: more of {joined} and less of what is kept meanwhile, until both "
            "together move least"
        )
    yield case.draft(
        Severity.major,
        "; ".join(clauses),
        instructions,
        gain_ns=gain,
        group="loads",
        change=change,
    )


def _held(case: Case, found: list[Loaded]) -> float:
    """Bytes a partition that all of these buffers take in SBUF, on the core that loads most."""
    by_stream: dict[int, float] = {}
    for item in found:
        size = (item.needed or 0) * item.spread / _rows_on_chip(case, item.rows)
        by_stream[item.stream] = by_stream.get(item.stream, 0.0) + size
    return max(by_stream.values())


def _least(size: float, room: float) -> int:
    """How often operands must be loaded at least, where neither they nor the results fit in the room."""
    return max(1, math.ceil(math.sqrt(size / room)))


def _without_repeats(
    case: Case, item: Loaded, goal: int, scale: np.ndarray[tuple[int], np.dtype[np.float64]]
) -> None:
    """What the loads of a buffer would cost if each byte came `goal` times."""
    moves = case.survey.moves
    instructions = moves.instruction[item.rows]
    if goal > 1:
        moved = float((moves.bytes[item.rows] * case.ran.times[instructions]).sum())
        scale[instructions] = min(1.0, goal * item.spread * (item.needed or 0) / moved) if moved else 1.0
        return
    scale[moves.instruction[item.repeats]] = 0.0
    left = np.setdiff1d(item.rows, item.repeats)
    rest = float((moves.bytes[left] * moves.times[left]).sum())
    scale[moves.instruction[left]] = min(1.0, (item.needed or rest) * item.spread / rest)


def _round_trip(case: Case) -> Iterator[Draft]:
    moves, traffic = case.survey.moves, case.survey.traffic
    for name, buffers in case.by_label(traffic.round_trips).items():
        rows = np.flatnonzero(np.isin(moves.source, buffers) | np.isin(moves.target, buffers))
        instructions = moves.instruction[rows]
        gain = case.stake(instructions, 0.0)
        if not case.worth(gain):
            continue
        stored = [item for item in traffic.stored if item.buffer in buffers]
        size = sum((item.distinct or item.bytes) / _rows_on_chip(case, item.rows) for item in stored)
        free = case.free_sbuf
        loaded = float((moves.bytes * moves.times)[np.isin(moves.source, buffers)].sum())
        fits = size <= free
        change = (
            f"keep it in SBUF ({math.ceil(size):,} bytes a partition, {free:,} are free), or fuse the loop that makes "
            "it with the loop that reads it"
        )
        yield case.draft(
            Severity.major if fits else Severity.minor,
            f"{name} goes to HBM and comes back: {in_bytes(sum(item.bytes for item in stored))} stored, "
            f"{in_bytes(loaded)} loaded, and it is no output",
            instructions,
            gain_ns=gain,
            group=name,
            change=change
            if fits
            else "fuse the loop that makes it with the loop that reads it, tile by tile",
        )


def _rows_on_chip(case: Case, rows: Ints) -> int:
    """The partitions over which transfers spread a buffer on chip."""
    return max(int(case.survey.moves.partitions[rows].max()), 1)


def _unread(case: Case) -> Iterator[Draft]:
    moves = case.survey.moves
    for name, buffers in case.by_label(case.survey.traffic.unread).items():
        rows = np.flatnonzero(np.isin(moves.target, buffers))
        instructions = moves.instruction[rows]
        gain = case.stake(instructions, 0.0)
        if len(rows) and case.worth(gain):
            moved = in_bytes(float((moves.bytes * moves.times)[rows].sum()))
            yield case.draft(
                Severity.major,
                f"{moved} are stored to {name}, which is no output and is never read",
                instructions,
                gain_ns=gain,
                group=name,
                change=f"drop the stores to {name}, or return it",
            )


def _unused_load(case: Case) -> Iterator[Draft]:
    moves, used, stored = case.survey.moves, case.survey.uses, case.survey.stored
    read = np.zeros(stored.count + 1, bool)
    read[used.place[used.reads]] = True
    for place, others in stored.touching.items():
        read[place] |= any(read[other] for other in others)
    outputs = [int(case.program.columns.access_buffer[output.access]) for output in case.program.outputs]
    read[stored.of_buffer[outputs]] = True
    on_chip = np.array([memory.on_chip for memory in MEMORIES])[case.program.columns.buffer_memory]
    rows = np.flatnonzero(moves.loads & on_chip[moves.target] & ~read[stored.of_buffer[moves.target]])
    if not len(rows):
        return
    instructions = moves.instruction[rows]
    gain = case.stake(instructions, 0.0)
    if case.worth(gain):
        moved = in_bytes(float((moves.bytes * moves.times)[rows].sum()))
        names = case.labels(np.unique(moves.source[rows]).tolist())
        yield case.draft(
            Severity.major,
            f"{moved} of {names} are loaded into tiles that nothing reads",
            instructions,
            gain_ns=gain,
            group="unused loads",
            change="drop the load",
        )


def _wiped(case: Case) -> Iterator[Draft]:
    """A memset whose next use on the same place writes all of it anew."""
    used = case.survey.uses
    rows = used.where(np.argsort(used.place, kind="stable"))
    fills = np.isin(case.program.columns.opcode[rows.instruction], case.code("memset"))
    after = np.minimum(np.arange(len(rows)) + 1, max(len(rows) - 1, 0))
    again = (
        (rows.place[after] == rows.place)
        & (rows.instruction[after] > rows.instruction)
        & rows.writes[after]
        & ~rows.reads[after]
        & (rows.whole[after] | (rows.access[after] == rows.access))
    )
    stored = case.survey.stored
    touching = np.isin(rows.place, np.array(list(stored.touching), np.int64))
    # one view that is addressed on the device may be other elements the next time
    moving = np.isin(rows.access, np.array(list(stored.indices), np.int64))
    instructions = rows.instruction[fills & again & ~touching & ~moving]
    yield from _waste(
        case,
        instructions,
        Severity.minor,
        "{count} x memset of tiles that the next instruction overwrites whole",
        "drop the memset: the tile is written whole before anything reads it",
    )


def _waste(
    case: Case, instructions: Ints, severity: Severity, message: str, change: str, factor: float = 0.0
) -> Iterator[Draft]:
    if not len(instructions):
        return
    gain = case.stake(instructions, factor)
    if case.worth(gain):
        places = case.places(instructions)
        yield case.draft(
            severity,
            f"{message.format(count=len(instructions))}: {share(gain, case.total_ns)} of the predicted time",
            instructions,
            gain_ns=gain,
            group=", ".join(places),
            change=change,
        )


def _idle_copy(case: Case) -> Iterator[Draft]:
    """A copy within SBUF, alike in dtype and layout, of a tile that stays as it is while the copy is read."""
    copies = case.runs("tensor_copy")
    source, target = case.operand(copies, "src"), case.operand(copies, "dst")
    held = np.flatnonzero((source >= 0) & (target >= 0))
    copies, source, target = copies[held], source[held], target[held]
    alike = np.array(
        [_alike(case, a, b) for a, b in zip(source.tolist(), target.tolist(), strict=True)], bool
    )
    if not alike.any():
        return
    used, stored = case.survey.uses, case.survey.stored
    order = np.argsort(used.place, kind="stable")
    places = used.place[order]
    idle = []
    for at in np.flatnonzero(alike).tolist():
        ends = [
            order[slice(*np.searchsorted(places, [place, place + 1]))]
            for place in stored.of_buffer[case.buffers(np.array([source[at], target[at]]))]
        ]
        if not any(
            int(p) in stored.touching
            for p in stored.of_buffer[case.buffers(np.array([source[at], target[at]]))]
        ):
            if _stays(case, int(copies[at]), *ends):
                idle.append(copies[at])
    yield from _waste(
        case,
        np.array(idle, np.int64),
        Severity.minor,
        "{count} x tensor_copy within SBUF that changes neither dtype nor layout",
        "read the source where the copy is read, and drop the copy",
    )


def _alike(case: Case, source: int, target: int) -> bool:
    left, right = case.program.access(source), case.program.access(target)
    buffers = case.program.buffer(left.buffer), case.program.buffer(right.buffer)
    plain = all(not (a.bounds or a.index or a.table) for a in (left, right))
    return (
        plain
        and all(buffer.memory is Memory.sbuf for buffer in buffers)
        and left.dtype == right.dtype
        and left.pattern == right.pattern
        and left.base == right.base
        and buffers[0].shape == buffers[1].shape
    )


def _stays(case: Case, copy: int, source: Ints, target: Ints) -> bool:
    """True where the copy is only read, and its source is not written before the last of these reads."""
    used = case.survey.uses
    after = target[used.instruction[target] > copy]
    writes = after[used.writes[after]]
    until = int(used.instruction[writes[0]]) if len(writes) else len(case.program)
    if len(writes) and used.reads[writes[0]]:
        return False
    reads = after[used.instruction[after] <= until]
    reads = reads[used.reads[reads]]
    if not len(reads) or (len(writes) and int(used.instruction[reads[-1]]) >= until):
        return False
    changed = source[used.writes[source] & (used.instruction[source] > copy)]
    return not np.any(used.instruction[changed] <= used.instruction[reads[-1]])


def _added_in_sbuf(case: Case) -> Iterator[Draft]:
    """One matmul into PSUM, then a vector add of the bank onto a tile in SBUF, again and again."""
    adds = case.runs("tensor_tensor")
    adds = adds[case.chosen(adds, lambda given: given.get("op") == "add")] if len(adds) else adds
    if not len(adds):
        return
    first, second, target = (case.buffers(case.operand(adds, name)) for name in ("data1", "data2", "dst"))
    psum = case.program.columns.buffer_memory == MEMORIES.index(Memory.psum)
    bank = np.where((first >= 0) & psum[first] & (target == second), first, -1)
    bank = np.where((second >= 0) & psum[second] & (target == first), second, bank)
    chain = case.survey.chains
    products = np.isin(chain.producer, case.runs("nc_matmul"))
    fed = np.isin(adds, chain.consumer[products])
    once = _single_products(case)
    made = dict(zip(chain.consumer[products].tolist(), chain.producer[products].tolist(), strict=True))
    ok = (bank >= 0) & fed & np.array([made.get(int(at), -1) in once for at in adds], bool)
    places, counts = np.unique(target[ok], return_counts=True)
    several = np.isin(target, places[counts >= 2]) & ok
    if not several.any():
        return
    instructions = adds[several]
    gain = case.stake(instructions, float(len(np.unique(target[several]))) / len(instructions))
    if case.worth(gain):
        name = case.label(int(target[several][0]))
        yield case.draft(
            Severity.major,
            f"partial products are added up in SBUF: {len(instructions)} vector adds onto {name} and its like, "
            f"{share(gain, case.total_ns)} of the time",
            instructions,
            gain_ns=gain,
            group="sums",
            change="give the matmuls of one result the same PSUM tile, with accumulate=True from the second on, and "
            "copy it to SBUF once",
            legacy="add the products up in a tile of nl.zeros(..., buffer=nl.psum) by += of the matmul, and copy it to "
            "SBUF once",
        )


def _single_products(case: Case) -> set[int]:
    """Matmuls that alone fill their bank: no other one accumulates onto it before or after."""
    matmuls = case.runs("nc_matmul")
    access = case.operand(matmuls, "dst")
    order = np.lexsort((matmuls, access))
    added = case.chosen(matmuls, lambda given: given.get("accumulate") is not False)[order]
    same = np.append(False, access[order][1:] == access[order][:-1])
    joined = same & added
    alone = ~joined & ~np.append(joined[1:], False)
    return set(matmuls[order][alone].tolist())


_MEMORY = Dimension.memory

RULES = (
    Rule(
        "NKR100",
        "One instruction needs more memory than there is",
        Severity.blocker,
        _MEMORY,
        Evidence.traced,
        "All operands of an instruction are in SBUF or PSUM at the same time. Together they exceed what a partition "
        "holds, so no order of the program and no spilling can make it fit.",
        each(_crowded),
        citation="aws-neuron-sdk nki/guides/architecture/trainium_inferentia2_arch.rst:77",
        suppresses=frozenset({"NKR101", "NKR102"}),
        change="work on smaller tiles: split the free dimension",
    ),
    Rule(
        "NKR101",
        "SBUF does not hold what the program keeps alive",
        Severity.major,
        _MEMORY,
        Evidence.traced,
        "Does not fit as written: between first write and last read the buffers need more than the usable bytes of a "
        "partition. The compiler must reorder, re-load or spill to HBM, and NKI kernels have no promise that it can. "
        "The legacy compiler fuses loops over blocks and spills, so that there it is a note.",
        each(_overfull(Memory.sbuf)),  # type: ignore[arg-type]
        citation="aws-neuron-sdk nki/get-started/about/memory-hierarchy-overview.rst:86",
        change="keep fewer or smaller tiles alive: load a block when it is needed, and use it up before the next one",
        legacy_cap=Severity.note,
    ),
    Rule(
        "NKR102",
        "PSUM does not hold what the program keeps alive",
        Severity.major,
        _MEMORY,
        Evidence.traced,
        "A partition of PSUM has 8 banks of 2 KiB. Accumulators that wait to be copied out keep their banks; matmuls "
        "that need another one cannot start, and PSUM is not spilled. The legacy compiler fuses loops over blocks, so "
        "that there it is a note.",
        each(_overfull(Memory.psum)),  # type: ignore[arg-type]
        citation="aws-neuron-sdk nki/migration/index.rst:1108-1114",
        change="copy each accumulator to SBUF as soon as its last matmul is done, before the next ones start",
        legacy_cap=Severity.note,
    ),
    Rule(
        "NKR103",
        "Two buffers overlap while both are needed",
        Severity.blocker,
        _MEMORY,
        Evidence.traced,
        "Both have explicit addresses and share bytes. Writing the one destroys what is later read from the other. "
        "Buffers at exactly the same place are taken as one by intent.",
        each(_overlap),
        citation="aws-neuron-sdk nki/migration/index.rst:1095-1103",
        suppresses=frozenset({"NKR020", "NKR021"}),
        change="move one of them, or read the first for the last time before the second is written",
    ),
    Rule(
        "NKR104",
        "No order of the program fits in memory",
        Severity.blocker,
        _MEMORY,
        Evidence.traced,
        "At the instruction named, each of these buffers holds a value that something before it had to write and that "
        "it, or something after it, reads. Together they exceed the partitions, so moving instructions cannot make "
        "it fit, and NKI kernels have no promise of a spill. The legacy compiler spills to HBM, so that there it is a "
        "note.",
        each(_impossible),
        citation="aws-neuron-sdk nki/get-started/about/memory-hierarchy-overview.rst:86",
        change="keep fewer or smaller tiles: load or compute them again when they are needed, or split the work",
        legacy_cap=Severity.note,
    ),
    Rule(
        "NKR105",
        "Data is loaded again although it has not changed",
        Severity.major,
        _MEMORY,
        Evidence.scheduled,
        "HBM feeds a core with a few hundred bytes a ns and SBUF holds over 20 MB. Loading the same bytes again lowers "
        "the arithmetic intensity, so the engines wait for DMAs that bring nothing new.",
        scheduled(_reloaded),
        citation=f"{_PERF}:75-110",
        suppresses=frozenset({"NKR121", "NKR126", "NKR163"}),
    ),
    Rule(
        "NKR106",
        "An intermediate result goes to HBM and back",
        Severity.major,
        _MEMORY,
        Evidence.scheduled,
        "Between two steps of one kernel the data can stay in SBUF. A trip through HBM costs two DMAs and their "
        "latency of about 2 us each.",
        scheduled(_round_trip),
        suppresses=frozenset({"NKR126"}),
        citation=f"{_PERF}:117-170",
    ),
    Rule(
        "NKR107",
        "What is stored to HBM is never read",
        Severity.major,
        _MEMORY,
        Evidence.scheduled,
        "The tensor is no output and no argument, and no instruction loads it: the stores only take bandwidth. The "
        "legacy compiler leaves out what nobody uses, so that there it is a note.",
        scheduled(_unread),
        suppresses=frozenset({"NKR126"}),
        legacy_cap=Severity.note,
        citation=f"{_PERF}:117-140",
    ),
    Rule(
        "NKR108",
        "What is loaded is never used",
        Severity.major,
        _MEMORY,
        Evidence.scheduled,
        "No instruction reads the tile that the DMA fills; it takes bandwidth and SBUF for nothing. The legacy "
        "compiler leaves out what nobody uses, so that there it is a note.",
        scheduled(_unused_load),
        suppresses=frozenset({"NKR126"}),
        legacy_cap=Severity.note,
        citation=f"{_PERF}:75-110",
    ),
    Rule(
        "NKR109",
        "A memset is overwritten before anything reads it",
        Severity.minor,
        _MEMORY,
        Evidence.scheduled,
        "The engine spends a cycle for each element of a partition on values that nobody sees.",
        scheduled(_wiped),
        citation=f"{_PERF}:547-575",
    ),
    Rule(
        "NKR110",
        "A copy within SBUF changes nothing",
        Severity.minor,
        _MEMORY,
        Evidence.scheduled,
        "Every engine reads SBUF directly. A copy of the same dtype and layout costs an instruction and memory.",
        scheduled(_idle_copy),
        citation=f"{_PERF}:547-575",
    ),
    Rule(
        "NKR111",
        "Partial products are added up in SBUF instead of PSUM",
        Severity.major,
        _MEMORY,
        Evidence.scheduled,
        "PSUM adds each matmul onto what a bank holds, at no cost. Adding with the Vector engine costs a pass over the "
        "tile for each matmul, and the Tensor engine waits for the bank to be read.",
        scheduled(_added_in_sbuf),
        citation="aws-neuron-sdk nki/api/nki/isa/__init__.py:541-555",
    ),
    Rule(
        "NKR112",
        "Some buffers on chip have addresses of the kernel's own and others have none",
        Severity.note,
        _MEMORY,
        Evidence.traced,
        "The legacy guide to direct allocation asks for all buffers or none: what the compiler places may collide with "
        "the others. Later compilers are reported to refuse a mixture (NCC_EGCA111), but one of AWS's own kernels for "
        "NKI 0.3 has one, so that there it is a note.",
        each(_mixed),
        citation="aws-neuron-sdk nki/nki_direct_allocation_guide.rst:344-371 (tag v2.26.1)",
        change="give every buffer of SBUF and PSUM an address, or none of them",
    ),
)
