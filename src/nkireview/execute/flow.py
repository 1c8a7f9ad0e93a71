"""Definedness: which elements of a result are defined, by the `Flow` of its row, given those of its operands."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from nkireview.execute.reader import MaskValues, Values
from nkireview.execute.storage import Mask, Origin
from nkireview.isa.enums import Engine, ReduceCmd
from nkireview.isa.release import ALWAYS, Release, Span
from nkireview.isa.row import Bits, Flow, Reader, Result, Row
from nkireview.isa.rows.predicated import COMMAND_HONOURED
from nkireview.isa.rows.vector import reduced_axes

# Operands that steer a selection: they keep their values while the selected ones are replaced by their masks.
STEERING = frozenset({"predicate", "bound0", "bound1", "metadata_tensor", "recv_displs"})


def result_mask(
    row: Row, written: str, shape: tuple[int, ...], masks: Mapping[str, Mask], values: Values
) -> Mask | None:
    """Which elements of a written operand of that shape are defined; None where all are.

    masks: the definedness of the tiles it reads that are not fully defined.
    """
    if written in row.reach:
        return row.reach[written](cast(Reader, values), masks).reshape(shape)
    flow = row.flow[written]
    if flow is Flow.nothing or not masks:
        return None
    masks = {name: mask for name, mask in masks.items() if name != start_of(row)}
    if written in RESULTS:
        masks = reduced(row, masks, values)
    if not masks:
        return None
    if flow is Flow.elementwise:
        return _every(_spread(row, name, mask, shape) for name, mask in masks.items())
    if flow is Flow.row:
        axis = values.imm("axis")
        if axis is None:
            return _every(_lines(row, name, mask, shape) for name, mask in masks.items())
        return _every(
            mask.all(axis=reduced_axes(axis, mask.ndim, values.release)).reshape(shape)
            for mask in masks.values()
        )
    if flow is Flow.scan:
        return _every(_scan(_spread(row, name, mask, shape)) for name, mask in masks.items())
    if flow is Flow.whole:
        return np.full(shape, all(mask.all() for mask in masks.values()))
    if flow is Flow.contract:
        return _contract(row, written, shape, masks, values)
    if flow is Flow.transpose and values.generation == "v2" and values.engine is Engine.tensor:
        # A matmul with an identity: what is undefined reaches its whole row (trainium2_arch.rst:197).
        return _every(_column(mask, shape) for mask in masks.values())
    return _moved(row, written, shape, masks, values)


def met_mask(
    row: Row, written: str, shape: tuple[int, ...], met: Sequence[Mapping[str, Mask]], values: Values
) -> Mask | None:
    """As `result_mask`, of an instruction that meets: `met` are the masks of all who take part, by position.

    A result is defined where it is the same whatever stands in place of the undefined elements: the meaning itself
    is asked twice, with zeros among ones and with ones among zeros.
    """
    if row.flow[written] is Flow.nothing:
        return None
    if row.flow[written] is Flow.whole and written not in row.reach:
        return np.zeros(shape, np.bool_)
    if any(not mask.all() for masks in met for name, mask in masks.items() if name in STEERING):
        return np.zeros(shape, np.bool_)
    found = np.ones(shape, np.bool_)
    for defined in (1, 0):
        marked, plain = (
            _bits(_peer(values, each, defined).results()[written]) for each in (met, [{} for _ in met])
        )
        found &= (marked == plain).reshape(shape)
    return found


def _peer(values: Values, met: Sequence[Mapping[str, Mask]], defined: int) -> MaskValues:
    """The reader of the same position among readers that show masks."""
    peers = tuple(
        MaskValues(peer, masks, STEERING, defined) for peer, masks in zip(values.peers, met, strict=True)
    )
    for peer in peers:
        peer.peers = peers
    return peers[values.position]


def _bits(result: Result) -> NDArray[Any]:
    """A result as numbers that can be compared."""
    return result.array.view(f"u{result.array.dtype.itemsize}") if isinstance(result, Bits) else result


def both(left: Mask | None, right: Mask | None) -> Mask | None:
    """Where both are defined; None is everywhere."""
    if left is None or right is None:
        return right if left is None else left
    return left & right


def _spread(row: Row, name: str, mask: Mask, shape: tuple[int, ...]) -> Mask:
    """The mask of an operand for each element of a result: the same element, or the same partition of a vector."""
    if row.operand(name).vector:
        return lanes_of(mask.reshape(mask.shape[0], -1)[:, 0], shape)
    return elementwise(mask, shape)


def elementwise(mask: Mask, shape: tuple[int, ...]) -> Mask:
    """The same element, in element order; sizes that differ have no such element, and all count."""
    return mask.reshape(shape) if mask.size == math.prod(shape) else np.full(shape, mask.all())


def lanes_of(lanes: Mask, shape: tuple[int, ...]) -> Mask:
    """One truth for each partition, spread over its elements."""
    if lanes.size < shape[0]:
        return np.full(shape, lanes.all())
    return np.broadcast_to(lanes[: shape[0]].reshape(-1, *[1] * (len(shape) - 1)), shape)


def _every(masks: Iterable[Mask]) -> Mask:
    return functools.reduce(np.logical_and, masks)


def _lines(row: Row, name: str, mask: Mask, shape: tuple[int, ...]) -> Mask:
    """All elements of the partition; of all partitions, where the result has another number of them."""
    if mask.shape[0] != shape[0] and not row.operand(name).vector:
        return np.full(shape, mask.all())
    return lanes_of(_all_free(mask), shape)


def _all_free(mask: Mask) -> Mask:
    return np.asarray(mask.reshape(mask.shape[0], -1).all(axis=1))


def _scan(mask: Mask) -> Mask:
    lanes = mask.reshape(mask.shape[0], -1)
    return np.logical_and.accumulate(lanes, axis=1).reshape(mask.shape)


def _column(mask: Mask, shape: tuple[int, ...]) -> Mask:
    return lanes_of(np.asarray(mask.reshape(mask.shape[0], -1).all(axis=0)), shape)


def _contract(
    row: Row, written: str, shape: tuple[int, ...], masks: Mapping[str, Mask], values: Values
) -> Mask:
    if values.imm("is_transpose") and _only_moves(values, "moving" in masks):
        return _moved(row, written, shape, masks, values, frozenset({"moving"}))
    stationary, moving = shape[0], math.prod(shape[1:])
    result = np.ones((stationary, moving), np.bool_)
    for name, mask in masks.items():
        size = stationary if name.startswith("stationary") else moving
        if size == 0 or mask.size % size:
            result &= mask.all()
            continue
        lines = np.asarray(mask.reshape(-1, size).all(axis=0))
        result &= lines[:, None] if name.startswith("stationary") else lines[None, :]
    return result.reshape(shape)


def _only_moves(values: Values, undefined: bool) -> bool:
    """True where the transpose mode moves elements and mixes nothing: from v3 on, with unit vectors as moving."""
    if values.generation == "v2" or undefined:
        return False
    moving = values.value("moving")
    columns = moving.reshape(moving.shape[0], -1)
    return bool(np.isin(columns, (0, 1)).all() and (columns.sum(axis=0) == 1).all())


def _moved(
    row: Row,
    written: str,
    shape: tuple[int, ...],
    masks: Mapping[str, Mask],
    values: Values,
    steering: frozenset[str] = STEERING,
) -> Mask:
    """Let the meaning itself move the masks, as numbers: 1 is defined."""
    result = MaskValues(values, masks, steering).results()[written]
    found = (_bits(result) != 0).reshape(shape)
    steered = (_spread(row, name, mask, shape) for name, mask in masks.items() if name in steering)
    return _every([found, *steered])


RESULTS = frozenset({"reduce_res"})  # operands that accumulator registers are read out to
LANES = 128


def start_of(row: Row) -> str:
    """The operand that load_reduce loads into the registers; results depend on it through them alone."""
    return "imm1" if row.name == "tensor_scalar_cumulative" else "reduce_init"


def reduced(row: Row, masks: Mapping[str, Mask], values: Values) -> Mapping[str, Mask]:
    """The masks of what an instruction reduces: where it selects first, of what it selects."""
    if row.flow.get("dst") is not Flow.select or not masks:
        return masks
    return {"dst": _moved(row, "dst", values.shape("dst"), masks, values)}


@dataclass(frozen=True)
class RegisterUse:
    """What an instruction does to the accumulator registers of its engine; see `ReduceCmd`.

    reads: some operand shows what they hold; `runs`: that is dst, each element of it (tensor_scalar_cumulative).
    start: see `start_of`. honoured: the releases that heed reduce_cmd, others reset and reduce.
    """

    engine: Engine
    command: str
    reads: bool
    runs: bool = False
    start: str = "reduce_init"
    honoured: Span = ALWAYS

    def shows(self, written: str) -> bool:
        """True where a written operand shows what the registers hold."""
        return written == "dst" if self.runs else written in RESULTS


def register_use(row: Row, immediates: Mapping[str, Any]) -> RegisterUse | None:
    """The use of accumulator registers by a row with these immediates."""
    known = {param.name: param.default for param in row.signature}
    if "reduce_cmd" not in known and "reduce_res" not in row.flow:
        return None
    # activation_reduce has no reduce_cmd: it always starts afresh.
    default = known.get("reduce_cmd", ReduceCmd.reset_reduce).name
    command = immediates.get("reduce_cmd") or default
    # An idle activation is taken to give the sum of its own output, see its meaning.
    alone = row.name == "activation" and command == "idle" and immediates.get("reduce_op") is not None
    runs = "reduce_res" not in row.flow
    return RegisterUse(
        engine=row.engines.default,
        command=command,
        reads=not alone,
        runs=runs,
        start=start_of(row),
        honoured=COMMAND_HONOURED if row.name == "range_select" else ALWAYS,
    )


class Registers:
    """Which accumulator registers are known and depend on no undefined memory.

    Those of Scalar start at zero. Those of Vector are unknown until an instruction sets them, and again after one
    with reduce_cmd idle (nki/api/nki/isa/__init__.py:2356-2359,2943-2946).
    """

    def __init__(self) -> None:
        self._defined: dict[Engine, Mask] = {}
        self._origins: dict[Engine, Origin] = {}

    def origin(self, engine: Engine) -> Origin | None:
        """Where what is undefined in the registers of an engine came from; None for registers that nothing set."""
        return self._origins.get(engine)

    def update(
        self,
        use: RegisterUse,
        rows: int,
        masks: Mapping[str, Mask],
        release: Release,
        origin: Origin | None = None,
    ) -> Mask | None:
        """Carry out a use by an instruction of so many partitions; which registers it reads are defined, or None.

        origin: where the undefined elements in the masks come from.
        """
        if use.engine is not Engine.vector and not masks and use.engine not in self._defined:
            return None
        command = use.command if release in use.honoured else "reset_reduce"
        held, lanes = self._held(use.engine, rows), slice(rows)
        if command != "reduce":
            self._origins.pop(use.engine, None)
        if origin is not None and command not in ("idle", "reset"):
            self._origins.setdefault(use.engine, origin)
        if command in ("reset", "reset_reduce"):
            held[:] = True
        elif command == "load_reduce":
            held[lanes] = _lanes(masks[use.start], rows) if use.start in masks else True
        elif command == "idle" and use.engine is Engine.vector:
            held[:] = False
        before = held[lanes].copy()
        reads = [mask for name, mask in masks.items() if name != use.start]
        if reads and command not in ("idle", "reset"):
            held[lanes] &= _every(_lanes(mask, rows) for mask in reads)
        self._defined[use.engine] = held
        found = before if use.runs else held[lanes]
        return None if not use.reads or found.all() else found

    def _held(self, engine: Engine, rows: int) -> Mask:
        start = engine is not Engine.vector
        held = np.full(max(LANES, rows), start, np.bool_)
        known = self._defined.get(engine)
        if known is not None:
            held[: known.size] = known[: held.size]
        return held


def _lanes(mask: Mask, rows: int) -> Mask:
    return lanes_of(_all_free(mask), (rows,))
