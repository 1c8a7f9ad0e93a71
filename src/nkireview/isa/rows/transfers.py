"""Rows of the DMA engines that transpose or add."""

from __future__ import annotations

from collections.abc import Callable

from nkireview.isa import dtypes
from nkireview.isa.enums import DgeMode, Engine, Memory, OobMode
from nkireview.isa.limit import Call, Check, Equal, SameDtype
from nkireview.isa.release import ALWAYS, Release, Span
from nkireview.isa.row import Bits, Cost, Engines, Flow, Operand, Param, Reader, Result, Role, Row
from nkireview.isa.rows.common import (
    BEFORE_03,
    BEFORE_04,
    BEFORE_05,
    BEFORE_06,
    DGE,
    HBM,
    NAME,
    NOTES,
    PACKED,
    SBUF,
    SINCE_03,
    SINCE_04,
    SINCE_06,
    STUB,
    partition_limits,
    returns,
)
from nkireview.isa.rows.dma import (
    DMA_COST,
    DMA_COST_SOURCE,
    ONLY_02,
    SINCE_02,
    STUB_2_28,
    STUB_2_30,
    descriptor_limits,
    hardware_generation,
    index_limits,
    label,
    priority_limits,
    vectors,
)

PERMUTATIONS = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}  # by rank: nki/api/nki/isa/__init__.py:872-876
SOURCES = tuple(f"srcs{number}" for number in range(16))  # at most 16: nki/api/nki/isa/__init__.py:2714-2715
INDICES_MIN, INDICES_MULTIPLE = 16, 16
LAST_MAX = 128
HARDWARE_ROWS = 16
HARDWARE_ROW_COUNTS = (1, 2, 4, 8, 16)


def _axes(call: Call) -> str | None:
    if not call.has("src"):
        return None
    rank, axes = call.measure("src", "dims"), call.imm("axes")
    fixed = PERMUTATIONS.get(rank)
    if fixed is None:
        return f"src has {rank} dimensions, expected 2, 3 or 4"
    if axes is not None and tuple(axes) != fixed:
        return f"axes {_text(axes)} cannot be done on a src of {rank} dimensions, must be {_text(fixed)}"
    return None


def _text(numbers: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, numbers))})"


def _transposed_shape(call: Call) -> str | None:
    if not (call.has("src") and call.has("dst")) or call.measure("src", "dims") not in PERMUTATIONS:
        return None
    counts, found = call.counts("src"), call.counts("dst")
    needed = tuple(counts[axis] for axis in PERMUTATIONS[len(counts)])
    if found == needed:
        return None
    return f"dst shape {_text(found)} must be {_text(needed)}, that of src transposed, in rank too"


def _static_mode(call: Call) -> str | None:
    if call.dge is not DgeMode.swdge or not call.has("src") or call.index("src"):
        return None
    return "dge_mode=swdge needs an indirect src; use hwdge, none or unknown"


def _two_bytes(call: Call) -> str | None:
    dtype = call.dtype("src")
    return None if dtypes.BY_NAME[dtype].bits == 16 else f"src dtype {dtype} is not allowed, expected 2 bytes"


def _hardware(find: Callable[[Call], str | None]) -> Callable[[Call], str | None]:
    def checked(call: Call) -> str | None:
        if call.dge is not DgeMode.hwdge or not call.has("src"):
            return None
        text = find(call)
        return None if text is None else f"{text} with dge_mode=hwdge"

    return checked


def _old_hardware_shape(call: Call) -> str | None:
    counts = call.counts("src")
    if counts[0] != HARDWARE_ROWS:
        return f"src shape {_text(counts)} must begin with {HARDWARE_ROWS}"
    if counts[-1] % LAST_MAX:
        return f"src shape {_text(counts)} must end with a multiple of {LAST_MAX}"
    return None


def _hardware_shape(call: Call) -> str | None:
    counts = call.counts("src")
    if len(counts) == 2 and counts[0] != HARDWARE_ROWS:
        return f"src shape {_text(counts)} must begin with {HARDWARE_ROWS}"
    if len(counts) > 2 and counts[0] not in HARDWARE_ROW_COUNTS:
        return f"src shape {_text(counts)} must begin with one of {', '.join(map(str, HARDWARE_ROW_COUNTS))}"
    if len(counts) > 2 and counts[0] * counts[-2] % HARDWARE_ROWS:
        return f"src shape {_text(counts)} must have a multiple of {HARDWARE_ROWS} as its first times last but one"
    if counts[-1] > LAST_MAX:
        return f"src shape {_text(counts)} must end with at most {LAST_MAX}"
    return None


def _gather(find: Callable[[Call], str | None]) -> Callable[[Call], str | None]:
    def checked(call: Call) -> str | None:
        if not vectors(call, "src"):
            return None
        text = find(call)
        return None if text is None else f"{text} in an indirect transpose"

    return checked


def _gather_limit(
    subject: str, find: Callable[[Call], str | None], source: str, releases: Span = ALWAYS
) -> Check:
    """Rule 81 for a gather."""
    return Check(number=81, source=source, releases=releases, subject=subject, find=_gather(find))


def _gather_rank(call: Call) -> str | None:
    counts = call.counts("src")
    return None if len(counts) == 3 else f"src shape {_text(counts)} must have 3 dimensions"


def _gather_middle(call: Call) -> str | None:
    counts = call.counts("src")
    if len(counts) != 4 or 1 in counts[1:3]:
        return None
    return f"src shape {_text(counts)} must have 1 as its second or third dimension"


def _exact_last(call: Call) -> str | None:
    last = call.counts("src")[-1]
    return None if last == LAST_MAX else f"last dimension of src is {last}, must be {LAST_MAX}"


def _short_last(call: Call) -> str | None:
    last = call.counts("src")[-1]
    return None if last <= LAST_MAX else f"last dimension of src is {last}, must be at most {LAST_MAX}"


def _gathered_rows(call: Call) -> str | None:
    first = call.counts("src")[0]
    if first % INDICES_MULTIPLE == 0:
        return None
    return f"first dimension of src is {first}, must be a multiple of {INDICES_MULTIPLE}"


def _one_column(call: Call) -> str | None:
    rows, columns = _indices(call)
    if columns == 1 and rows % INDICES_MULTIPLE == 0:
        return None
    return (
        f"index of src is {rows} x {columns}, must be one column of a multiple of {INDICES_MULTIPLE} indices"
    )


def _index_shape(call: Call) -> str | None:
    rows, columns = _indices(call)
    most = call.hardware.partitions
    if call.measure("src.index", "dims") != 2:
        return f"index of src has {call.measure('src.index', 'dims')} dimensions, must have 2"
    if not INDICES_MIN <= rows <= most or rows % INDICES_MULTIPLE:
        return f"index of src has {rows} rows, must have a multiple of {INDICES_MULTIPLE} up to {most}"
    if columns > 1 and rows != most:
        return f"index of src is {rows} x {columns}, must have {most} rows where it has several columns"
    return None


def _indices(call: Call) -> tuple[int, int]:
    return call.measure("src.index", "partitions"), call.measure("src.index", "free")


def _index_dtype(call: Call) -> str | None:
    found = call.dtype("src.index")
    return None if found == "uint32" else f"index of src has dtype {found}, must be uint32"


def _scatters(call: Call) -> str | None:
    return "dst has a vector index, a transpose only gathers its src" if vectors(call, "dst") else None


def _dynamic(call: Call, *operands: str) -> set[str]:
    return {call.index(name) for name in operands if call.has(name)} - {""}


def _skips(*operands: str) -> Callable[[Call], str | None]:
    def find(call: Call) -> str | None:
        if call.imm("oob_mode") != OobMode.skip.name or _dynamic(call, *operands):
            return None
        return "oob_mode=skip needs an operand whose address is only known on the device"

    return find


def _skips_scalar(call: Call) -> str | None:
    kinds = _dynamic(call, "src")
    if call.imm("oob_mode") != OobMode.skip.name or not kinds or "vector" in kinds:
        return None
    return f"oob_mode=skip needs a vector index on src before NKI 0.5, it has a {min(kinds)} index"


def _transpose(reader: Reader) -> dict[str, Result]:
    order = PERMUTATIONS.get(len(reader.shape("src")))
    if order is None:
        raise ValueError(f"dma_transpose takes 2 to 4 dimensions, src has {len(reader.shape('src'))}")
    if reader.dtype("src") == reader.dtype("dst"):
        return {"dst": Bits(reader.raw("src").transpose(order))}
    return {"dst": reader.value("src").transpose(order)}


dma_transpose = Row(
    name="dma_transpose",
    signature=(
        Param("dst"),
        Param("src"),
        Param("axes", None),
        Param("priority", None, SINCE_04),
        Param("dge_mode", DgeMode.unknown),
        Param("oob_mode", OobMode.error, SINCE_02),
        NAME,
    ),
    operands=(Operand("dst", Role.write, SBUF), Operand("src", Role.read, HBM | SBUF)),
    engines=Engines(Engine.dma, {}),
    meaning=_transpose,
    flow={"dst": Flow.transpose},
    cost=Cost(
        subject="src",
        per_element=0.0,
        formula=f"{DMA_COST}; at best dma.transpose_efficiency_hbm or _sbuf of the throughput of a copy",
        source=f"{DMA_COST_SOURCE}; nki/guides/architecture/trainium2_arch.rst:303-340",
    ),
    source=f"{STUB}:869-1017",
    limits=(
        *partition_limits("dst", "src"),
        Equal(number=82, source=f"{STUB}:872-876", left="src.elements", right="dst.elements"),
        Check(number=80, source=f"{STUB}:872-876,1008-1009", subject="axes.kind", find=_axes),
        Check(
            number=80, source=f"{NOTES}:271", releases=SINCE_04, subject="dst.shape", find=_transposed_shape
        ),
        # the legacy generation casts to dtype=
        SameDtype(number=45, source=f"{STUB}:1007", releases=SINCE_02, left="dst", right="src"),
        hardware_generation(f"{STUB}:1011-1012"),
        Check(
            number=81,
            source=f"{STUB}:880-881; {DGE}:192-207",
            releases=SINCE_02,
            subject="dge_mode.static",
            find=_static_mode,
        ),
        Check(
            number=81,
            source=f"{STUB_2_30} dma_transpose",
            releases=Span(since=SINCE_02.since, until=BEFORE_06.until),
            subject="src.hardware_shape",
            find=_hardware(_old_hardware_shape),
        ),
        Check(
            number=81,
            source=f"{STUB}:884-887",
            releases=SINCE_06,
            subject="src.hardware_shape",
            find=_hardware(_hardware_shape),
        ),
        Check(
            number=81,
            source=f"{STUB}:888",
            releases=SINCE_02,
            subject="src.hardware_dtype",
            find=_hardware(_two_bytes),
        ),
        *priority_limits(f"{STUB}:1010"),
        Check(number=84, source=f"{STUB}:891-908", subject="dst.index", find=_scatters),
        *index_limits(f"{STUB}:897-904", "src", column=False),
        *descriptor_limits("src"),
        _gather_limit("src.gather_dtype", _two_bytes, f"{STUB}:896"),
        _gather_limit("src.gather_rank", _gather_rank, f"{STUB_2_28}:604", BEFORE_03),
        _gather_limit("src.gather_middle", _gather_middle, f"{STUB}:894", SINCE_03),
        _gather_limit("src.gather_last", _exact_last, f"{NOTES}:253", BEFORE_04),
        _gather_limit("src.gather_last", _short_last, f"{STUB}:895", SINCE_04),
        _gather_limit("src.gather_rows", _gathered_rows, f"{STUB}:900", SINCE_03),
        _gather_limit("src.index_shape", _one_column, f"{STUB_2_28}:607-608", BEFORE_03),
        _gather_limit("src.index_shape", _index_shape, f"{STUB}:898-902", SINCE_03),
        Check(number=46, source=f"{STUB}:903", subject="src.index_dtype", find=_gather(_index_dtype)),
        Check(number=70, source=f"{STUB}:1014-1016", subject="oob_mode.index", find=_skips("src")),
        Check(
            number=70,
            source=f"{NOTES}:154",
            releases=BEFORE_05,
            subject="oob_mode.scalar",
            find=_skips_scalar,
        ),
    ),
    legacy=returns("dma_transpose"),
)


def _given(call: Call) -> tuple[str, ...]:
    return tuple(name for name in SOURCES if call.has(name))


def _no_sources(call: Call) -> str | None:
    return None if _given(call) else f"srcs is empty, expected 1 to {len(SOURCES)} tensors"


def _unequal_sources(call: Call) -> str | None:
    if not call.has("dst"):
        return None
    needed = call.measure("dst", "elements")
    for name in _given(call):
        found = call.measure(name, "elements")
        if found != needed:
            return f"{label(name)} has {found} elements, dst has {needed}"
    return None


def _packed_operand(call: Call) -> str | None:
    for name in ("dst", *_given(call)):
        if call.has(name) and call.dtype(name) in PACKED:
            return (
                f"{label(name)} dtype {call.dtype(name)} is not allowed: a DMA computes with no packed dtype"
            )
    return None


def _reduction(call: Call) -> str | None:
    op = call.imm("reduce_op")
    return None if op in (None, "add") else f"reduce_op {op} is not supported, a DMA only adds"


def _scales(call: Call) -> str | None:
    scales = call.imm("scales")
    if scales is None:
        return None
    if not isinstance(scales, tuple | list) or any(scale != 1 for scale in scales):
        return f"scales {scales} must all be 1.0"
    if len(scales) != len(_given(call)):
        return f"scales has {len(scales)} entries, srcs has {len(_given(call))}"
    return None


def _scales_missing(call: Call) -> str | None:
    return (
        "scales is missing, NKI before 0.3 needs a 1.0 for each of srcs"
        if call.imm("scales") is None
        else None
    )


def _no_vectors(call: Call) -> str | None:
    found = vectors(call, "dst", *SOURCES)
    return f"{label(found[0])} has a vector index, which dma_compute takes since NKI 0.3" if found else None


def _static_only(call: Call) -> str | None:
    for name in ("dst", *_given(call)):
        if call.has(name) and call.index(name) in ("scalar", "register", "snake"):
            return (
                f"{label(name)} has a {call.index(name)} index: dma_compute needs addresses known at compile "
                "time, or a vector index"
            )
    return None


def _modified(call: Call) -> str | None:
    given, found = _given(call), vectors(call, "dst", *SOURCES)
    if not found:
        return None
    if len(given) != 2:
        return f"srcs holds {len(given)} tensors, a gather or scatter takes exactly 2"
    if "dst" not in found:
        if len(found) > 1:
            return "both of srcs have a vector index, one must match dst"
        return None if call.memory("dst") is Memory.sbuf else "dst is in HBM, a gather adds to a dst in SBUF"
    same = [name for name in given if name in found and call.same_index(name, "dst")]
    if not same:
        return "dst has a vector index, one of srcs must be the same view as dst"
    other = next((name for name in given if name not in found), None)
    if other is None or call.memory(other) is not Memory.sbuf:
        return "dst has a vector index, one of srcs must be in SBUF, without an index"
    return None


def _repeated(call: Call) -> str | None:
    if call.imm("unique_indices") is not False or not vectors(call, "dst", *SOURCES):
        return None
    return "unique_indices=False is not supported yet, indices must be unique"


def _compute(reader: Reader) -> dict[str, Result]:
    given = [name for name in SOURCES if reader.has(name)]
    if not given:
        raise ValueError("dma_compute has no srcs")
    scales = reader.imm("scales") or [1.0] * len(given)
    shape = reader.shape("dst")
    first, *others = (
        reader.value(name).reshape(shape) * reader.compute.type(scale)
        for name, scale in zip(given, scales, strict=True)
    )
    total = first
    for term in others:
        total = total + term
    return {"dst": total}


dma_compute = Row(
    name="dma_compute",
    signature=(
        Param("dst"),
        Param("srcs"),
        Param("reduce_op"),
        Param("scales", None),
        Param("unique_indices", True, SINCE_03),
        Param("oob_mode", OobMode.error, SINCE_04),
        NAME,
    ),
    operands=(
        Operand("dst", Role.write, HBM | SBUF),
        *(Operand(name, Role.read, HBM | SBUF, optional=True) for name in SOURCES),
    ),
    engines=Engines(Engine.dma, {}),
    meaning=_compute,
    flow={"dst": Flow.elementwise},
    cost=Cost(
        subject="dst",
        per_element=0.0,
        formula=f"{DMA_COST}; at best dma.accumulate_efficiency of the throughput of a copy",
        source=f"{DMA_COST_SOURCE}; nki/guides/architecture/trainium3_arch.rst:270",
    ),
    source=f"{STUB}:2656-2739",
    limits=(
        *partition_limits("dst"),
        Check(number=89, source=f"{STUB}:2714-2715", subject="srcs.count", find=_no_sources),
        Check(number=82, source=f"{STUB}:2714", subject="srcs.elements", find=_unequal_sources),
        Check(number=44, source=f"{STUB}:2702-2705", subject="dst.dtype", find=_packed_operand),
        Check(number=89, source=f"{STUB}:2664-2666", subject="reduce_op.kind", find=_reduction),
        Check(number=89, source=f"{STUB}:2664-2667", subject="scales.kind", find=_scales),
        Check(
            number=89,
            source=f"{STUB_2_28} dma_compute",
            releases=ONLY_02,
            subject="scales.presence",
            find=_scales_missing,
        ),
        Check(
            number=89,
            source=f"{STUB_2_28} dma_compute",
            releases=ONLY_02,
            subject="srcs.index",
            find=_no_vectors,
        ),
        Check(number=89, source=f"{STUB}:2692-2699", subject="srcs.address", find=_static_only),
        Check(number=89, source=f"{STUB}:2673-2688", subject="srcs.modify", find=_modified),
        Check(number=88, source=f"{STUB}:2689-2690", subject="unique_indices.kind", find=_repeated),
        *index_limits(f"{STUB}:2673-2690", *("dst", *SOURCES[:2])),
        *descriptor_limits("dst", *SOURCES, modes=False),
        Check(number=70, source=f"{NOTES}:242", subject="oob_mode.index", find=_skips("dst", *SOURCES)),
    ),
    releases=Span(since=Release(0, 2)),
    orders=((BEFORE_03, ("dst", "srcs", "scales", "reduce_op", "name")),),
    lists={"srcs": SOURCES},
)

ROWS = (dma_transpose, dma_compute)
