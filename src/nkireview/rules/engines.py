"""Rules of engine use: passes that one instruction could save, work on an engine that others would share."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from nkireview.checks.duplication import duplicated, of_equal_values
from nkireview.isa.enums import Engine
from nkireview.isa.table import ROWS
from nkireview.program.interning import Ints
from nkireview.rules.case import SHOWN, Case, case_of, in_bytes, in_time, scheduled, share
from nkireview.rules.facts import WorkloadFacts
from nkireview.rules.finding import Dimension, Evidence, Severity
from nkireview.rules.rule import Draft, Rule, each
from nkireview.timeline.timeline import Wait

_PERF = "aws-neuron-sdk nki/deep-dives/nki_perf_guide.rst"
_ARCH = "aws-neuron-sdk nki/guides/architecture/trainium_inferentia2_arch.rst"
_NARROW = ("bfloat16", "float16", "float8_e4m3", "float8_e5m2", "float8_e4m3fn")
DUPLICATED = 0.5
"""Least share of the stored elements that several cores store for them to count as doing the same work."""
_SCALES = ("multiply",)
_SHIFTS = ("add", "subtract")


def _wide_matmul(case: Case) -> Iterator[Draft]:
    """float32 matmuls, first those of tiles that a DMA or a copy widened from 16 bits or less."""
    work = case.survey.work
    rows = np.flatnonzero(work.fp32 & ~work.moves)
    instructions = work.instruction[rows]
    if not len(rows):
        return
    widened = _widened(case)
    ends = [case.buffers(case.operand(instructions, name)) for name in ("stationary", "moving")]
    vain = widened[ends[0]] & widened[ends[1]]
    factor = 1 / case.figures.number("tensor.fp32_cost_factor")
    for wanted, severity in ((vain, Severity.major), (~vain, Severity.note)):
        part = instructions[wanted]
        gain = case.stake(part, factor) if len(part) else 0.0
        if not (case.worth(gain) if severity is Severity.major else case.telling(gain)):
            continue
        how = (
            "of tiles that were widened from 16 bits: the products are those of the narrow values"
            if severity is Severity.major
            else "of float32 tiles"
        )
        passes = case.figures.number("tensor.fp32_cost_factor")
        yield case.draft(
            severity,
            f"{len(part)} float32 matmuls {how}; each takes {passes:.0f} times as long as in bfloat16, "
            f"{share(gain, case.total_ns)} of the predicted time",
            part,
            gain_ns=gain,
            group="widened" if severity is Severity.major else "float32",
            change="keep the operands in the 16-bit dtype they come in: PSUM adds up in float32 anyway"
            if severity is Severity.major
            else "if the accuracy asked for allows it, give both operands as bfloat16; PSUM still adds up in float32",
        )


def _widened(case: Case) -> NDArray[np.bool_]:
    """Buffers that are only written from narrower floats, by a DMA or a copy."""
    program, used = case.program, case.survey.uses
    columns = program.columns
    narrow = np.array([name in _NARROW for name in program.dtypes], bool)
    copies = case.runs("dma_copy", "tensor_copy")
    source = case.operand(copies, "src")
    good = copies[(source >= 0) & narrow[columns.access_dtype[np.maximum(source, 0)]]]
    written = np.zeros(columns.buffers, bool)
    other = written.copy()
    by_copy = np.isin(used.instruction, good)
    written[used.buffer[used.writes & by_copy]] = True
    other[used.buffer[used.writes & ~by_copy]] = True
    return np.append(written & ~other, False)


def _crowded_gpsimd(case: Case) -> Iterator[Draft]:
    yield from _moved(
        case,
        Engine.gpsimd,
        Engine.vector,
        "leave engine= out of some of the {names}, or name nisa.vector_engine: Vector has them too, and is idle",
    )


def _crowded_vector(case: Case) -> Iterator[Draft]:
    yield from _moved(
        case,
        Engine.vector,
        Engine.scalar,
        "give some of the {names} to Scalar, with engine=nisa.scalar_engine",
    )


def _moved(case: Case, source: Engine, target: Engine, change: str) -> Iterator[Draft]:
    """Work of the busiest engine that another one, idle most of the time, could share.

    Only what was ready and waited for its turn counts: in a chain of steps another engine is no faster.
    """
    busy, idle = case.busy(source), case.busy(target)
    if busy < 0.5 * case.total_ns or idle > 0.5 * busy:
        return
    work = case.survey.work
    line = case.timing.timeline
    queued = np.zeros(len(case.program), bool)
    queued[line.instruction[(line.wait == int(Wait.order)) & (line.instruction >= 0)]] = True
    movable = work.on(source) & ((work.elsewhere >> target.value) & 1 == 1) & queued[work.instruction]
    instructions = work.instruction[movable]
    held = (case.timing.held_ns * case.survey.times)[instructions].sum()
    if not held:
        return
    part = min(float(held), (busy - idle) / 2) / float(held)
    gain = case.stake(instructions, 1 - part)
    if not case.worth(gain):
        return
    yield case.draft(
        Severity.minor,
        f"{source.name} is busy for {share(busy, case.total_ns)} of the predicted time, {target.name} for "
        f"{share(idle, case.total_ns)}; {len(instructions)} instructions could run there; shared evenly they would "
        f"save {share(gain, case.total_ns)} of it",
        instructions,
        gain_ns=gain,
        group=f"{source.name}, {target.name}",
        change=change.format(names=", ".join(_opcodes(case, instructions))),
    )


def _opcodes(case: Case, instructions: Ints) -> list[str]:
    """The names of instructions, the most frequent first."""
    known, counts = np.unique(case.program.columns.opcode[instructions], return_counts=True)
    return [case.program.opcodes[known[at]].name for at in np.argsort(-counts, kind="stable")]


def _table_loads(case: Case) -> Iterator[Draft]:
    """Activation functions in turn, each with its table."""
    activations = case.runs("activation", "activation_reduce")
    columns = case.program.columns
    names = {
        n: str(case.program.immediates[n].get("op"))
        for n in np.unique(columns.immediates[activations]).tolist()
    }
    plain = ("copy", "identity", "None")
    held = np.array([names[n] not in plain for n in columns.immediates[activations].tolist()], bool)
    activations = activations[held]
    number = {name: at for at, name in enumerate(sorted(set(names.values())))}
    of = np.array([number[names[n]] for n in columns.immediates[activations].tolist()], np.int64)
    turns = activations[np.append(False, of[1:] != of[:-1])] if len(of) else activations
    least = len(set(of.tolist())) - 1
    if len(turns) <= max(least, 1):
        return
    load = case.figures.number("scalar.table_load_ns")
    spent = case.timing.held_ns[turns]
    share_left = np.clip((spent - load * (1 - least / len(turns))) / spent, 0, 1)
    gain = case.stake(turns, share_left)
    if not case.telling(gain):
        return
    functions = ", ".join(sorted({names[int(n)] for n in columns.immediates[activations]}))
    draft = case.draft(
        Severity.note,
        f"the Scalar engine turns {len(turns)} times between {functions}: up to {in_time(len(turns) * load)} of table "
        "loads, if each has a table of its own",
        turns,
        gain_ns=gain,
        group=functions,
    )
    yield draft


def _data_of(case: Case, access: Ints, consumer: Ints, *names: str) -> NDArray[np.bool_]:
    """Where the access is one of these operands of the consumer."""
    found = np.zeros(len(consumer), bool)
    for name in names:
        found |= case.operand(consumer, name) == access
    return found


def _pairs(
    case: Case, producers: Ints, consumers: Ints, names: tuple[str, ...], last: bool
) -> tuple[Ints, Ints]:
    """Chains from some instructions into some operands of others."""
    chain = case.survey.chains
    held = np.isin(chain.producer, producers) & np.isin(chain.consumer, consumers)
    if last:
        held &= chain.last
    producer, consumer, access = chain.producer[held], chain.consumer[held], chain.access[held]
    direct = _data_of(case, access, consumer, *names)
    return producer[direct], consumer[direct]


def _single(case: Case, instructions: Ints) -> Ints:
    """The tensor_scalar instructions with one operator."""
    one = case.chosen(instructions, lambda given: given.get("op1") is None)
    return instructions[one & (case.operand(instructions, "operand1") < 0)]


def _reduce_after(case: Case) -> Iterator[Draft]:
    chain = case.survey.chains
    free = case.runs("activation")
    free = free[case.operand(free, "reduce_res") < 0]
    sums = case.runs("tensor_reduce")
    sums = sums[case.chosen(sums, lambda given: given.get("op") == "add" and not given.get("negate"))]
    held = np.isin(chain.producer, free) & np.isin(chain.consumer, sums)
    flat = np.array([len(case.program.access(int(a)).pattern) == 2 for a in chain.access[held]], bool)
    consumer = chain.consumer[held][flat]
    dst = case.operand(consumer, "dst")
    whole = np.array([case.program.access(int(a)).free == 1 for a in dst], bool)
    yield from _saved(
        case,
        consumer[whole],
        Severity.minor,
        "{count} x tensor_reduce of what an activation has just made",
        "use activation_reduce: Scalar adds up each row while it computes it, for about 64 cycles",
    )


def _apart(producers: Ints, consumers: Ints) -> Ints:
    """The consumers of pairs that share no instruction, the earlier ones first."""
    joined: set[int] = set()
    for producer, consumer in sorted(zip(producers.tolist(), consumers.tolist(), strict=True)):
        if producer not in joined:
            joined.add(consumer)
    return np.array(sorted(joined), np.int64)


def _two_operators(case: Case) -> Iterator[Draft]:
    singles = _single(case, case.runs("tensor_scalar"))
    consumer = _apart(*_pairs(case, singles, singles, ("data",), last=True))
    yield from _saved(
        case,
        consumer,
        Severity.minor,
        "{count} x tensor_scalar on the result of another one, each with one operator",
        "give both operators to one tensor_scalar: op0 with operand0, then op1 with operand1",
    )


def _scalar_tensor(case: Case) -> Iterator[Draft]:
    singles = _single(case, case.runs("tensor_scalar"))
    pairs = case.runs("tensor_tensor")
    pairs = pairs[case.program.columns.engine[pairs] != Engine.gpsimd.value]
    producer, _ = _pairs(case, singles, pairs, ("data1", "data2"), last=True)
    yield from _saved(
        case,
        producer,
        Severity.minor,
        "{count} x tensor_scalar that makes what a tensor_tensor reads next",
        "use scalar_tensor_tensor: op0 with operand0, then op1 with the other tile, in one pass",
    )


def _scale_and_bias(case: Case) -> Iterator[Draft]:
    """tensor_scalar by a number or a column, then an activation that has its own scale and bias free."""
    singles = _single(case, case.runs("tensor_scalar"))
    activations = case.runs("activation", "activation_reduce")
    idle = case.chosen(
        activations,
        lambda given: given.get("scale") in (None, 1, 1.0) and given.get("bias") in (None, 0, 0.0),
    )
    idle &= (case.operand(activations, "scale") < 0) & (case.operand(activations, "bias") < 0)
    fits = case.chosen(
        singles, lambda given: given.get("op0") in _SCALES + _SHIFTS and not given.get("reverse0")
    )
    producer, _ = _pairs(case, singles[fits], activations[idle], ("data",), last=True)
    yield from _saved(
        case,
        producer,
        Severity.minor,
        "{count} x tensor_scalar that only scales or shifts the input of an activation",
        "give the factor as scale= and the summand as bias= of the activation (negated for a subtraction)",
    )


def _saved(case: Case, instructions: Ints, severity: Severity, message: str, change: str) -> Iterator[Draft]:
    instructions = np.unique(instructions)
    if not len(instructions):
        return
    gain = case.stake(instructions, 0.0)
    if case.worth(gain):
        yield case.draft(
            severity,
            f"{message.format(count=len(instructions))}: {share(gain, case.total_ns)} of the predicted time",
            instructions,
            gain_ns=gain,
            group=", ".join(case.places(instructions)),
            change=change,
        )


def _transposes(case: Case) -> Iterator[Draft]:
    """Transposes of what a matmul has just made and a copy has brought to SBUF, for nobody else."""
    work, chain = case.survey.work, case.survey.chains
    turned = work.instruction[work.moves]
    products = work.instruction[work.on(Engine.tensor) & ~work.moves]
    copies = case.runs("tensor_copy")
    brought = chain.consumer[np.isin(chain.producer, products) & np.isin(chain.consumer, copies) & chain.last]
    vain = chain.consumer[np.isin(chain.producer, brought) & np.isin(chain.consumer, turned) & chain.last]
    if not len(vain):
        return
    after = chain.consumer[np.isin(chain.producer, vain) & np.isin(chain.consumer, copies)]
    gain = case.stake(np.union1d(vain, after), 0.0)
    if case.worth(gain):
        yield case.draft(
            Severity.note,
            f"{len(vain)} transposes turn what a matmul has just made; with their copies they are "
            f"{share(gain, case.total_ns)} of the predicted time",
            vain,
            gain_ns=gain,
            group=", ".join(case.places(vain)),
        )


_HARDWARE = Dimension.hardware
_PERFORMANCE = Dimension.performance


def _same_stores(facts: WorkloadFacts) -> Iterator[Draft]:
    """Cores of one logical core that store the same elements of the outputs."""
    program, found = facts.program, facts.survey
    if program is None or found is None or program.header.lnc < 2:
        return
    items = of_equal_values(program, ROWS, found.stored, duplicated(program, found.moves, found.stored))
    if not items or sum(item.bytes for item in items) < DUPLICATED * sum(item.distinct for item in items):
        return
    case = case_of(facts)
    cores = max(item.cores for item in items)
    names = [output.name for output in program.outputs]
    buffers = [int(program.columns.access_buffer[output.access]) for output in program.outputs]
    told = " and ".join(
        f"output {names[buffers.index(item.buffer)]} ({in_bytes(item.bytes)} of {in_bytes(item.distinct)})"
        for item in items
    )
    instructions = np.concatenate([item.instructions for item in items])
    place = program.columns.place[instructions]
    places = tuple(dict.fromkeys(program.place_text(int(number)) for number in place.tolist()))[:SHOWN]
    yield Draft(
        f"{cores} cores store the same elements of {told}" + (f" ({places[0]})" if places else ""),
        places,
        len(instructions),
        facts.name,
        group="duplicated",
        gain_ns=None if case is None else round(case.total_ns * (1 - 1 / cores), 1),
    )


RULES = (
    Rule(
        "NKR150",
        "float32 matmuls take four times as long",
        Severity.major,
        _HARDWARE,
        Evidence.scheduled,
        "The PE array multiplies bfloat16 in one pass and float32 in several. Operands that were 16 bits wide before "
        "gain nothing: their products are exact in float32, which PSUM adds up in.",
        scheduled(_wide_matmul),
        citation=f"{_ARCH}:268-269",
        suppresses=frozenset({"NKR163"}),
    ),
    Rule(
        "NKR151",
        "GpSimd is busiest, with work that Vector has too",
        Severity.minor,
        _HARDWARE,
        Evidence.scheduled,
        "GpSimd is the general engine: what Vector can do, it does at the same pace at best, over the same SBUF ports.",
        scheduled(_crowded_gpsimd),
        citation=f"{_ARCH}:596-599",
    ),
    Rule(
        "NKR152",
        "The Scalar engine turns between activation functions",
        Severity.note,
        _HARDWARE,
        Evidence.scheduled,
        "A function is a table that Scalar must load, about 1.3 us each on trn2. Which functions share a table is not "
        "documented, so this is a note.",
        scheduled(_table_loads),
        citation="measured on trn2: hardware figure scalar.table_load_ns",
        change="run all of one function first, then all of the next, where the data allows it",
    ),
    Rule(
        "NKR153",
        "A sum over what an activation has just made",
        Severity.minor,
        _PERFORMANCE,
        Evidence.scheduled,
        "Scalar can add up each row while it computes the function. A tensor_reduce of its own is one more pass over "
        "the tile, on the Vector engine.",
        scheduled(_reduce_after),
        citation=f"{_PERF}:547-575",
    ),
    Rule(
        "NKR154",
        "Two tensor_scalar instructions where one has room for both operators",
        Severity.minor,
        _PERFORMANCE,
        Evidence.scheduled,
        "tensor_scalar applies two operators in one pass, at the cost of one. Each further instruction reads and "
        "writes the whole tile again.",
        scheduled(_two_operators),
        citation=f"{_PERF}:547-575",
    ),
    Rule(
        "NKR155",
        "tensor_scalar, then tensor_tensor, where scalar_tensor_tensor does both",
        Severity.minor,
        _PERFORMANCE,
        Evidence.scheduled,
        "scalar_tensor_tensor applies a number or a column and then another tile in one pass over the data.",
        scheduled(_scalar_tensor),
        citation=f"{_PERF}:547-575",
    ),
    Rule(
        "NKR156",
        "Scale or shift before an activation that does both itself",
        Severity.minor,
        _PERFORMANCE,
        Evidence.scheduled,
        "activation computes op(data * scale + bias) in one pass. A tensor_scalar before it reads and writes the whole "
        "tile once more.",
        scheduled(_scale_and_bias),
        citation=f"{_PERF}:566-590",
    ),
    Rule(
        "NKR158",
        "The result of a matmul is transposed on the Tensor engine",
        Severity.note,
        _PERFORMANCE,
        Evidence.scheduled,
        "A transpose on the PE array computes nothing, and takes a copy to SBUF before it and one after it. A matmul "
        "gives stationary.T @ moving; with its operands swapped it gives the transposed result at once.",
        scheduled(_transposes),
        citation=f"{_PERF}:690-796",
        change="swap the stationary and the moving operand of the matmul: its result then comes the other way round",
    ),
    Rule(
        "NKR161",
        "Vector is busiest, with work that Scalar has too",
        Severity.minor,
        _PERFORMANCE,
        Evidence.scheduled,
        "From NeuronCore-v3 on Scalar copies tiles as Vector does. While Vector is the engine that everything waits "
        "for, Scalar could take part of its copies.",
        scheduled(_crowded_vector),
        citation=f"{_PERF}:272-325",
        generations=frozenset({"v3", "v4"}),
        causes=frozenset({"NKR164"}),
    ),
    Rule(
        "NKR165",
        "The cores of a logical core do the same work",
        Severity.major,
        Dimension.hardware,
        Evidence.traced,
        "With a logical core of two, the kernel runs on each of its cores, and nothing splits the work but the kernel. "
        "Where the cores store the same elements each has done all of it: no faster than one core, and HBM moves "
        "everything twice.",
        each(_same_stores),
        citation="aws-neuron-sdk nki/get-started/about/lnc.rst:10-24",
        suppresses=frozenset({"NKR163"}),
        change="let each core take its part, by nl.program_id(0) of nl.num_programs(0), and launch over the grid",
    ),
)
