"""Rows of nki.collectives: instructions by which ranks meet.

A rank is one participant of a distributed run. A replica group is recorded as a tuple of tuples of ranks; see `ranks`
for who meets and what comes of it.

Which elements of other ranks a result is made of is told by the meaning alone (`Flow.select`), but where it is the
same one (`Flow.elementwise`).

Lists of tensors become operands ``srcs0``, ``srcs1``, ...: at most `ranks.TENSORS` where tensors may be coalesced
(no document gives a maximum), `SINGLES` where exactly one is legal, `CHANNELS` for lists by channel. Some parameters
are no part of the call that a kernel writes, see `HIDDEN`: how many tensors each channel has (``counts``), the shape of
a metadata tensor, whose rows are operands of their own, and the register that a rank is written to (``dst``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nkireview.isa.enums import Engine, Memory
from nkireview.isa.limit import Call, Check, Limit
from nkireview.isa.release import Release, Span
from nkireview.isa.row import Cost, Engines, Flow, Meaning, Operand, Param, Role, Row
from nkireview.isa.rows import ranks
from nkireview.isa.rows.common import ALL, BEFORE_03, BEFORE_V4, HBM, SBUF, SINCE_03, SINCE_04, V4

STUB = "nki/api/nki/collectives/__init__.py"
NAMESPACE = "nki.collectives"
SINGLES = 4
CHANNELS = 8
HIDDEN = ("counts", "recv_counts", "recv_displs", "metadata_shape", "dst")
"""Parameters of rows that a kernel cannot pass."""

_SINCE_02 = Span(since=Release(0, 2))
_SINCE_05 = Span(since=Release(0, 5))
_SINCE_06 = Span(since=Release(0, 6))
_PRIORITY = Param("priority", None, SINCE_04)
_NAME = Param("name", None, _SINCE_05)
_RING = "neuron-runtime/explore/intranode-collective-comm.rst:61"
_RANKS_PER_DEVICE = 4  # under LNC=2: nki/api/nki/collectives/__init__.py:181
_CHANNELS_MAX = 4  # nki/api/nki/collectives/__init__.py:307-308


def _elements(name: str, count: int) -> tuple[str, ...]:
    return tuple(f"{name}{at}" for at in range(count))


def _size(call: Call) -> int | None:
    """Ranks of each list of the replica group; None where lists differ or the group is malformed."""
    groups = call.imm("replica_group")
    if not isinstance(groups, tuple) or not all(isinstance(group, tuple) for group in groups):
        return None
    sizes = {len(group) for group in groups}
    return sizes.pop() if len(sizes) == 1 else None


def _limit(
    lines: str,
    subject: str,
    find: Callable[[Call], str | None],
    *,
    generations: frozenset[str] = ALL,
    number: int = 110,
) -> Limit:
    return Check(number=number, source=f"{STUB}:{lines}", subject=subject, find=find, generations=generations)


def _given(call: Call, name: str) -> list[str]:
    return [element for element in _elements(name, ranks.TENSORS) if call.has(element)]


def _pairs(call: Call, src: str = "srcs") -> list[tuple[str, str]]:
    """Source and destination of each position that has both."""
    return [
        (f"{src}{at}", f"dsts{at}")
        for at in range(ranks.TENSORS)
        if call.has(f"{src}{at}") and call.has(f"dsts{at}")
    ]


def _same_count(call: Call) -> str | None:
    srcs, dsts = len(_given(call, "srcs")), len(_given(call, "dsts"))
    if not srcs or not dsts:
        return f"{'dsts' if srcs else 'srcs'} holds no tensor, at least one is needed"
    return None if srcs == dsts else f"srcs holds {srcs} tensors and dsts {dsts}, as many are needed"


def _mixed(call: Call) -> str | None:
    names = [*_given(call, "srcs"), *_given(call, "dsts")]
    chip = [name for name in names if call.memory(name) is Memory.sbuf]
    plain = [name for name in names if call.memory(name) in HBM]
    if chip and plain:
        return f"{plain[0]} is in HBM and {chip[0]} in SBUF: all tensors must be in one of them"
    return None


def _coalesced(call: Call) -> str | None:
    names = _given(call, "srcs")
    if len(names) > 1 and any(call.memory(name) is Memory.sbuf for name in names):
        return f"srcs holds {len(names)} tensors in SBUF, where one is possible; several must be in HBM"
    return None


def _on_chip_dims(call: Call) -> str | None:
    for name in (*_given(call, "srcs"), *_given(call, "dsts")):
        if call.memory(name) is Memory.sbuf and call.measure(name, "dims") != 2:
            return f"{name} has {call.measure(name, 'dims')} dimensions, a tensor in SBUF must have 2"
    return None


def _single(call: Call) -> str | None:
    for name in ("srcs", "dsts"):
        if len(_given(call, name)) != 1:
            return f"{name} holds {len(_given(call, name))} tensors, must be exactly 1"
    return None


def _group(call: Call) -> str | None:
    groups = call.imm("replica_group")
    if not isinstance(groups, tuple) or not groups or not all(isinstance(group, tuple) for group in groups):
        return f"replica_group {groups} must be a list of lists of ranks"
    seen: set[int] = set()
    for group in groups:
        if not group:
            return "replica_group holds an empty list of ranks"
        for rank in group:
            if not isinstance(rank, int) or rank < 0:
                return f"replica_group holds {rank!r}, a rank is an integer from 0 on"
            if rank in seen:
                return f"rank {rank} is in replica_group twice: lists of ranks must not overlap"
            seen.add(rank)
    return None


def _operator(call: Call) -> str | None:
    op = call.imm("op")
    return (
        None
        if op in ranks.OPERATORS
        else f"op {op} is not allowed, expected one of {', '.join(ranks.OPERATORS)}"
    )


def _only_dim_0(call: Call) -> str | None:
    dim = call.imm("collective_dim")
    return None if dim == 0 else f"collective_dim is {dim}, only 0 is supported"


def _gather_dim(call: Call) -> str | None:
    dim = call.imm("collective_dim")
    chip = any(call.memory(name) is Memory.sbuf for name in _given(call, "srcs"))
    allowed = (0, 1) if chip else (0,)
    if dim in allowed:
        return None
    where = "0 or 1 is supported in SBUF" if chip else "only 0 is supported in HBM"
    return f"collective_dim is {dim}, {where}"


def _same_size(src: str = "srcs") -> Callable[[Call], str | None]:
    def find(call: Call) -> str | None:
        for source, target in _pairs(call, src):
            found, needed = call.measure(target, "elements"), call.measure(source, "elements")
            if found != needed:
                return f"{target} has {found} elements and {source} {needed}, as many are needed"
        return None

    return find


def _gathered(call: Call) -> str | None:
    size, dim = _size(call), call.imm("collective_dim")
    if size is None:
        return None
    for source, target in _pairs(call):
        found, needed = call.measure(target, "elements"), size * call.measure(source, "elements")
        if found != needed:
            return f"{target} has {found} elements, {size} ranks with {source} fill {needed}"
        held, whole = call.counts(source), call.counts(target)
        if call.memory(source) is Memory.sbuf and dim in (0, 1) and len(held) == len(whole) == 2:
            expected = [count * (size if axis == dim else 1) for axis, count in enumerate(held)]
            if list(whole) != expected:
                return f"{target} has shape {list(whole)}, must be {expected}"
    return None


def _divided(call: Call, names: Sequence[str]) -> str | None:
    size = _size(call)
    for name in names:
        if size and call.counts(name)[0] % size:
            return f"{name} has {call.counts(name)[0]} rows in dim 0, which {size} ranks cannot share equally"
    return None


def _scattered(call: Call) -> str | None:
    size = _size(call)
    if size is None:
        return None
    for source, target in _pairs(call):
        found, needed = size * call.measure(target, "elements"), call.measure(source, "elements")
        if found != needed:
            return f"{target} on {size} ranks holds {found} elements, {source} has {needed}"
    return _divided(call, _given(call, "srcs"))


def _exchanged(call: Call) -> str | None:
    return _same_size()(call) or _divided(call, _given(call, "srcs"))


def _old_priority(call: Call) -> str | None:
    priority = call.imm("priority")
    return None if priority is None else f"priority={priority} needs NeuronCore-v4 or newer"


def _priority_range(call: Call) -> str | None:
    priority = call.imm("priority")
    if priority is None or priority in range(4):
        return None
    return f"priority is {priority}, must be 0 to 3"


def _metadata_rows(call: Call) -> int:
    return 4 if call.imm("has_rdispls") else 3


def _metadata(call: Call) -> str | None:
    size, found = _size(call), call.imm("metadata_shape")
    if size is None or not call.has("metadata_tensor"):
        return None
    rows = _metadata_rows(call)
    chip = call.memory("metadata_tensor").on_chip
    allowed = [(1, rows, size) if chip else (rows, size)]
    if rows == 3:  # the fourth row "may be omitted"
        allowed.append((1, 4, size) if chip else (4, size))
    if found in allowed:
        return None
    return f"metadata_tensor has shape {list(found or ())}, must be {list(allowed[0])}"


def _four_ranks(call: Call) -> str | None:
    if _group(call) is not None:
        return None
    for group in call.imm("replica_group"):
        if len(group) != _RANKS_PER_DEVICE:
            return f"replica_group holds a list of {len(group)} ranks, must be {_RANKS_PER_DEVICE} (one chip)"
    return None


def _no_rdispls(call: Call) -> str | None:
    return "has_rdispls=True is not supported by all_gather_v" if call.imm("has_rdispls") else None


def _rdispls_need_a_switch(call: Call) -> str | None:
    if not call.imm("has_rdispls"):
        return None
    return "has_rdispls=True needs an instance with a NeuronSwitch, which trn3 has"


def _two_cores(call: Call) -> str | None:
    return None if call.lnc == 2 else f"needs LNC=2, the kernel is launched with LNC={call.lnc}"


def _whole_devices(call: Call) -> str | None:
    groups = call.imm("replica_group")
    if _group(call) is not None:
        return None
    for group in groups:
        if list(group) != list(range(group[0], group[0] + len(group))) or len(group) % _RANKS_PER_DEVICE:
            return (
                f"replica_group holds the ranks {list(group)}: with a NeuronSwitch a list must hold all "
                f"{_RANKS_PER_DEVICE} ranks of each of its devices, in sequence"
            )
    if sum(map(len, groups)) <= _RANKS_PER_DEVICE:
        return "replica_group lies within one device: with a NeuronSwitch more than one must take part"
    return None


def _pairs_of_ranks(call: Call) -> str | None:
    pairs = call.imm("source_target_pairs")
    if not isinstance(pairs, tuple) or not all(
        isinstance(pair, tuple)
        and len(pair) == 2
        and all(isinstance(rank, int) and rank >= 0 for rank in pair)
        for pair in pairs
    ):
        return f"source_target_pairs {pairs} must be a list of (source, target) ranks"
    targets = [target for _, target in pairs]
    twice = next((target for target in targets if targets.count(target) > 1), None)
    if twice is not None:
        return f"source_target_pairs name rank {twice} as a target twice, it can receive one tensor"
    return None


def _channels(*lists: str) -> Callable[[Call], str | None]:
    def find(call: Call) -> str | None:
        counts = call.imm("counts") or ()
        channels = {name: len(each) for name, each in zip(lists, counts, strict=False)}
        if len(set(channels.values())) > 1:
            text = ", ".join(f"{name} {count}" for name, count in channels.items())
            return f"lists have different numbers of channels: {text}"
        for name, each in zip(lists, counts, strict=False):
            for channel, count in enumerate(each):
                if count != 1:
                    return f"{name}[{channel}] holds {count} tensors, must be exactly 1"
        return None

    return find


def _channel_ids(call: Call) -> str | None:
    counts, ids = call.imm("counts") or ((),), call.imm("channel_ids")
    found = len(counts[0])
    if not found:
        return "there is no channel, at least one is needed"
    if found > _CHANNELS_MAX:
        return f"there are {found} channels, at most {_CHANNELS_MAX} are possible"
    if ids is None:
        return None
    if tuple(ids) != tuple(range(len(ids))):
        return f"channel_ids are {list(ids)}, must be consecutive from 0"
    return None if len(ids) == found else f"channel_ids are {list(ids)}, but there are {found} channels"


def _channel_id(call: Call) -> str | None:
    channel = call.imm("channel_id")
    if isinstance(channel, int) and not 0 <= channel < _CHANNELS_MAX:
        return f"channel_id is {channel}, must be 0 to {_CHANNELS_MAX - 1}"
    return None


def _iteration(call: Call) -> str | None:
    iteration = call.imm("iteration_id")
    if isinstance(iteration, int) and iteration < 0:
        return f"iteration_id is {iteration}, must be 0 or more"
    return None


_COMMON = (
    _limit("10-15", "replica_group.ranks", _group),
    _limit("32-33", "priority.generation", _old_priority, generations=BEFORE_V4, number=51),
    _limit("32-33", "priority.range", _priority_range, generations=V4),
)


def _operands(
    sources: Sequence[str], targets: Sequence[str], memories: frozenset[Memory], role: Role = Role.write
) -> tuple[Operand, ...]:
    return (
        *(Operand(name, Role.read, memories, optional=True) for name in sources),
        *(Operand(name, role, memories, optional=True) for name in targets),
    )


def _cost(subject: str) -> Cost:
    return Cost(
        subject=subject,
        per_element=0.0,
        formula="no cycles: hops of the ring and bytes over the DMA engines, see the figures dma.*",
        source=_RING,
    )


_DMA = Engines(Engine.dma, {})
_REGISTER = Engines(Engine.sync, {})
_ANY = HBM | SBUF
_SRCS, _DSTS = _elements("srcs", ranks.TENSORS), _elements("dsts", ranks.TENSORS)
_ONE_SRC, _ONE_DST = _elements("srcs", SINGLES), _elements("dsts", SINGLES)
_CHANNEL_SRCS, _CHANNEL_DSTS = _elements("srcs", CHANNELS), _elements("dsts", CHANNELS)
_LEFT, _RIGHT = _elements("srcs0_", CHANNELS), _elements("srcs1_", CHANNELS)
_LISTS = {"srcs": _SRCS, "dsts": _DSTS}
_SINGLE_LISTS = {"srcs": _ONE_SRC, "dsts": _ONE_DST}


def _flow(kind: Flow, names: Sequence[str]) -> dict[str, Flow]:
    return dict.fromkeys(names, kind)


def _row(
    name: str,
    meaning: Meaning,
    lines: str,
    middle: Sequence[Param],
    flow: Flow,
    memories: frozenset[Memory],
    limits: Sequence[Limit],
) -> Row:
    """A row that takes lists of tensors and a replica group."""
    return Row(
        name=name,
        namespace=NAMESPACE,
        signature=(Param("srcs"), Param("dsts"), Param("replica_group"), *middle, _PRIORITY, _NAME),
        operands=_operands(_SRCS, _DSTS, memories),
        lists=_LISTS,
        meets="ranks",
        engines=_DMA,
        meaning=meaning,
        flow=_flow(flow, _DSTS),
        cost=_cost("srcs0"),
        source=f"{STUB}:{lines}",
        releases=_SINCE_02,
        limits=(
            _limit(lines, "srcs.count", _same_count),
            *limits,
            *_COMMON,
        ),
    )


_HBM_OR_SBUF = (
    _limit("24-26", "srcs.memory", _mixed),
    _limit("24-26", "srcs.coalesced", _coalesced),
    _limit("52-54", "srcs.dims", _on_chip_dims),
)


all_reduce = _row(
    "all_reduce",
    ranks.all_reduce,
    "17-35",
    (Param("op"),),
    Flow.elementwise,
    _ANY,
    (
        *_HBM_OR_SBUF,
        _limit("31", "op.kind", _operator),
        _limit("17-35", "dsts.elements", _same_size()),
    ),
)

all_gather = _row(
    "all_gather",
    ranks.all_gather,
    "37-58",
    (Param("collective_dim"),),
    Flow.select,
    _ANY,
    (
        *_HBM_OR_SBUF,
        _limit("51-54", "collective_dim.value", _gather_dim),
        _limit("51-54", "dsts.elements", _gathered),
    ),
)

reduce_scatter = _row(
    "reduce_scatter",
    ranks.reduce_scatter,
    "144-164",
    (Param("collective_dim"), Param("op")),
    Flow.select,
    _ANY,
    (
        *_HBM_OR_SBUF,
        _limit("158-159", "collective_dim.value", _only_dim_0),
        _limit("160", "op.kind", _operator),
        _limit("158-159", "dsts.elements", _scattered),
    ),
)

all_to_all = _row(
    "all_to_all",
    ranks.all_to_all,
    "166-183",
    (Param("collective_dim"),),
    Flow.select,
    HBM,
    (
        _limit("178-179", "collective_dim.value", _only_dim_0),
        _limit("178-179", "dsts.elements", _exchanged),
    ),
)


def _variable_row(
    name: str,
    meaning: Meaning,
    lines: str,
    since: Span,
    limits: Sequence[Limit],
) -> Row:
    """A row of one flat source and destination, with counts and displacements in a metadata tensor."""
    return Row(
        name=name,
        namespace=NAMESPACE,
        signature=(
            *(Param("srcs"), Param("dsts"), Param("replica_group"), Param("metadata_tensor")),
            *(Param("recv_counts_known", False), Param("has_rdispls", False), _PRIORITY, _NAME),
            *(Param("recv_counts", None), Param("recv_displs", None), Param("metadata_shape", ())),
        ),
        operands=(
            *_operands(_ONE_SRC, _ONE_DST, HBM, Role.accumulate),  # what no chunk reaches stays
            Operand("metadata_tensor", Role.read, _ANY, frozenset({"uint32"})),
            Operand("recv_counts", Role.write, _ANY, frozenset({"uint32"}), optional=True),
            Operand("recv_displs", Role.read, _ANY, frozenset({"uint32"}), optional=True),
        ),
        lists=_SINGLE_LISTS,
        meets="ranks",
        engines=_DMA,
        meaning=meaning,
        flow={**_flow(Flow.select, _ONE_DST), "recv_counts": Flow.select},
        cost=_cost("srcs0"),
        source=f"{STUB}:{lines}",
        releases=since,
        limits=(
            _limit(lines, "srcs.count", _single),
            _limit(lines, "metadata_tensor.shape", _metadata),
            *limits,
            *_COMMON,
        ),
    )


all_gather_v = _variable_row(
    "all_gather_v",
    ranks.all_gather_v,
    "60-142",
    _SINCE_06,
    (
        _limit("135", "has_rdispls.value", _no_rdispls),
        _limit("136", "lnc.value", _two_cores),
        _limit("137", "replica_group.size", _four_ranks),
    ),
)

all_to_all_v = _variable_row(
    "all_to_all_v",
    ranks.all_to_all_v,
    "185-264",
    SINCE_03,
    (
        _limit("255-257", "has_rdispls.value", _rdispls_need_a_switch, generations=BEFORE_V4),
        _limit("198-201", "lnc.value", _two_cores, generations=V4),
        _limit("200-207", "replica_group.devices", _whole_devices, generations=V4),
    ),
)

collective_permute = Row(
    name="collective_permute",
    namespace=NAMESPACE,
    signature=(Param("srcs"), Param("dsts"), Param("source_target_pairs"), _PRIORITY, _NAME),
    operands=_operands(_ONE_SRC, _ONE_DST, HBM),
    lists=_SINGLE_LISTS,
    meets="ranks",
    engines=_DMA,
    meaning=ranks.permute,
    flow=_flow(Flow.elementwise, _ONE_DST),
    cost=_cost("srcs0"),
    source=f"{STUB}:266-287",
    releases=_SINCE_02,
    limits=(
        _limit("279-280", "srcs.count", _single),
        _limit("269-271", "source_target_pairs.ranks", _pairs_of_ranks),
        _limit("269-271", "dsts.elements", _same_size()),
        *_COMMON[1:],
    ),
)

_CHANNEL_PARAMS = (
    Param("channel_ids", (0,)),
    # the guide says that channel_ids replaces it in 0.3, the stub of 0.2 has channel_ids already: both are taken
    Param("num_channels", 1, BEFORE_03),
    *(_PRIORITY, _NAME, Param("counts", ())),
)

collective_permute_implicit = Row(
    name="collective_permute_implicit",
    namespace=NAMESPACE,
    signature=(
        *(Param("srcs_by_channel"), Param("dsts_by_channel"), Param("replica_group")),
        *_CHANNEL_PARAMS,
    ),
    operands=_operands(_CHANNEL_SRCS, _CHANNEL_DSTS, _ANY),
    lists={"srcs_by_channel": _CHANNEL_SRCS, "dsts_by_channel": _CHANNEL_DSTS},
    meets="ranks",
    engines=_DMA,
    meaning=ranks.permute_implicit,
    flow=_flow(Flow.elementwise, _CHANNEL_DSTS),
    cost=_cost("srcs0"),
    source=f"{STUB}:289-319",
    releases=_SINCE_02,
    limits=(
        _limit("301-302", "channels.tensors", _channels("srcs_by_channel", "dsts_by_channel")),
        _limit("307-314", "channel_ids.value", _channel_ids),
        _limit("292-293", "dsts.elements", _same_size()),
        *_COMMON,
    ),
)

collective_permute_implicit_reduce = Row(
    name="collective_permute_implicit_reduce",
    namespace=NAMESPACE,
    signature=(
        *(Param("srcs0_by_channel"), Param("srcs1_by_channel"), Param("dsts_by_channel")),
        *(Param("replica_group"), Param("op")),
        *_CHANNEL_PARAMS,
    ),
    operands=_operands((*_LEFT, *_RIGHT), _CHANNEL_DSTS, _ANY),
    lists={"srcs0_by_channel": _LEFT, "srcs1_by_channel": _RIGHT, "dsts_by_channel": _CHANNEL_DSTS},
    meets="ranks",
    engines=_DMA,
    meaning=ranks.permute_implicit_reduce,
    flow=_flow(Flow.elementwise, _CHANNEL_DSTS),
    cost=_cost("srcs0_0"),
    source=f"{STUB}:321-355",
    releases=_SINCE_02,
    limits=(
        _limit(
            "333-335",
            "channels.tensors",
            _channels("srcs0_by_channel", "srcs1_by_channel", "dsts_by_channel"),
        ),
        _limit("340-350", "channel_ids.value", _channel_ids),
        _limit("348", "op.kind", _operator),
        _limit("326-328", "dsts.elements", _same_size("srcs0_")),
        _limit("326-328", "dsts.elements", _same_size("srcs1_")),
        *_COMMON,
    ),
)

rank_id = Row(
    name="rank_id",
    namespace=NAMESPACE,
    signature=(_NAME, Param("dst", None)),
    operands=(),
    registers=("dst",),
    engines=_REGISTER,
    meaning=ranks.rank_id,
    flow={},
    cost=Cost(subject="", per_element=0.0, formula="no document gives one", source=f"{STUB}:393-398"),
    source=f"{STUB}:393-398",
    releases=_SINCE_02,
)

collective_permute_implicit_current_processing_rank_id = Row(
    name="collective_permute_implicit_current_processing_rank_id",
    namespace=NAMESPACE,
    signature=(
        *(Param("iteration_id", register=True), Param("replica_group"), Param("channel_id", 0)),
        *(Param("num_channels", 1, BEFORE_03), _NAME, Param("dst", None)),
    ),
    operands=(),
    registers=("dst",),
    engines=_REGISTER,
    meaning=ranks.processing_rank_id,
    flow={},
    cost=Cost(subject="", per_element=0.0, formula="no document gives one", source=f"{STUB}:357-391"),
    source=f"{STUB}:357-391",
    releases=_SINCE_02,
    limits=(
        _limit("366-368", "iteration_id.value", _iteration),
        _limit("388", "channel_id.value", _channel_id),
        _COMMON[0],
    ),
)

ROWS = (
    *(all_reduce, all_gather, all_gather_v, reduce_scatter, all_to_all, all_to_all_v),
    *(collective_permute, collective_permute_implicit, collective_permute_implicit_reduce),
    *(rank_id, collective_permute_implicit_current_processing_rank_id),
)
