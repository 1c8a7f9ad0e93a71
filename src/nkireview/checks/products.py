"""Products: a program that is one dense matrix product of two of its inputs, found by its counts and shapes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nkireview.checks.least import Compulsory
from nkireview.checks.utilisation import Work
from nkireview.isa import dtypes
from nkireview.program.interning import Ints, intern
from nkireview.program.program import Program
from nkireview.program.storage import Storage
from nkireview.schedule.uses import Uses

_PRODUCT = 1
"""Bit of what comes out of a matmul; the parameters have the bits above it."""


@dataclass(frozen=True)
class Product:
    """A dense product of [rows, terms] and [terms, columns]; `element_bytes` of the smallest element on the way."""

    rows: int
    terms: int
    columns: int
    element_bytes: float

    @property
    def products(self) -> float:
        """Multiply-accumulates."""
        return float(self.rows * self.terms * self.columns)

    @property
    def results(self) -> int:
        """Elements of the result."""
        return self.rows * self.columns


def dense_product(
    program: Program, work: Work, used: Uses, stored: Storage, needed: Compulsory
) -> Product | None:
    """The product that the whole program is; None where it is anything else, or more.

    Its matmuls take what comes of one parameter as stationary, of another as moving operand and of no other matmul, and
    one output takes what they make. Elements of all three and multiply-accumulates must agree with one [rows, terms] x
    [terms, columns] that the shapes can be read as: nothing is computed twice, left out, or taken as several elements.
    """
    matmuls = np.unique(work.instruction[work.products > 0])
    labels = _labels(program, used, stored, matmuls)
    sides = [_side(program, stored, labels, matmuls, name) for name in ("stationary", "moving")]
    outputs = [
        output.access
        for output in program.outputs
        if labels[stored.of_buffer[program.columns.access_buffer[output.access]]] & _PRODUCT
    ]
    if len(outputs) != 1 or any(side & _PRODUCT for side in sides):
        return None
    first, second = (_largest(program, needed, side) for side in sides)
    result = program.access(outputs[0]).buffer
    if first is None or second is None or first == second or result not in needed.stores:
        return None
    buffers = [program.buffer(number) for number in (first, second, result)]
    moved = (needed.loads[first], needed.loads[second], needed.stores[result])
    bits = [dtypes.BY_NAME[buffer.dtype].bits for buffer in buffers]
    sizes = [math.prod(buffer.shape) for buffer in buffers]
    if any(size * width / 8 != count for size, width, count in zip(sizes, bits, moved, strict=True)):
        return None
    terms = math.isqrt(sizes[0] * sizes[1] // sizes[2])
    rows, columns = sizes[0] // max(terms, 1), sizes[1] // max(terms, 1)
    splits = [_splits(buffer.shape) for buffer in buffers]
    fits = (
        terms in splits[0] & splits[1]
        and (rows, columns) == (sizes[0] / terms, sizes[1] / terms)
        and rows * columns == sizes[2]
        and {rows, columns} <= splits[2]
    )
    done = float((work.products * work.times).sum())
    if not fits or done != float(rows * terms * columns):
        return None
    narrow = min(*bits, *_widths(program, matmuls)) / 8
    return Product(rows, terms, columns, narrow)


def _labels(program: Program, used: Uses, stored: Storage, matmuls: Ints) -> list[int]:
    """What may have come into each storage place: bits of parameters, and of products."""
    source, target, product = _flows(program, used, matmuls)
    follows: dict[int, list[tuple[int, bool]]] = {}
    for a, b, made in zip(source.tolist(), target.tolist(), product.tolist(), strict=True):
        follows.setdefault(a, []).append((b, made))
    for place, others in stored.touching.items():
        follows.setdefault(place, []).extend((other, False) for other in others)
    labels = [0] * (stored.count + 1)
    for at, (_, buffer) in enumerate(program.parameter_buffers):
        labels[stored.of_buffer[buffer]] |= 2 << at
    left = [place for place, label in enumerate(labels) if label]
    while left:
        place = left.pop()
        for other, made in follows.get(place, ()):
            label = _PRODUCT if made else labels[place]
            if label & ~labels[other]:
                labels[other] |= label
                left.append(other)
    return labels


def _flows(program: Program, used: Uses, matmuls: Ints) -> tuple[Ints, Ints, NDArray[np.bool_]]:
    """Different pairs of a place that is read and one that the same instruction writes, and whether a product is."""
    reads, writes = np.flatnonzero(used.reads), np.flatnonzero(used.writes)
    at = used.instruction[writes]
    begin = np.searchsorted(used.instruction[reads], at, side="left")
    counts = np.searchsorted(used.instruction[reads], at, side="right") - begin
    ends = np.cumsum(counts)
    rows = np.arange(int(counts.sum())) - np.repeat(ends - counts - begin, counts)
    source = used.place[reads[rows]]
    target = np.repeat(used.place[writes], counts)
    makes = np.zeros(len(program), bool)
    makes[matmuls] = True
    product = np.repeat(makes[at], counts)
    found = intern([source, target, product.astype(np.int64)], len(source)).first
    return source[found], target[found], product[found]


def _side(program: Program, stored: Storage, labels: list[int], matmuls: Ints, name: str) -> int:
    """The labels of an operand of the matmuls together."""
    found = 0
    for access in _operands(program, matmuls, name).tolist():
        found |= labels[stored.of_buffer[program.columns.access_buffer[access]]]
    return found


def _operands(program: Program, matmuls: Ints, name: str) -> Ints:
    """The different accesses of an operand of the matmuls."""
    columns = program.columns
    slots = np.array(
        [o.operands.index(name) if name in o.operands else -1 for o in program.opcodes], np.int64
    )
    slot = slots[columns.opcode[matmuls]]
    held = matmuls[slot >= 0]
    found = np.unique(columns.operand[columns.operand_at[held] + slot[slot >= 0]]).astype(np.int64)
    return found[found >= 0]


def _widths(program: Program, matmuls: Ints) -> list[int]:
    """Bits of the elements that the matmuls take, on chip; of packed ones each."""
    found = []
    for name in ("stationary", "moving"):
        kinds = np.unique(program.columns.access_dtype[_operands(program, matmuls, name)]).tolist()
        held = [dtypes.BY_NAME[program.dtypes[kind]] for kind in kinds]
        found += [dtype.bits // dtype.packed_count for dtype in held]
    return found


def _largest(program: Program, needed: Compulsory, label: int) -> int | None:
    """The parameter of most bytes among the labels."""
    found = [buffer for at, (_, buffer) in enumerate(program.parameter_buffers) if label & (2 << at)]
    return max(found, key=lambda buffer: needed.loads.get(buffer, 0.0), default=None)


def _splits(shape: tuple[int, ...]) -> set[int]:
    """Sizes of what lies on either side of a cut between two dimensions."""
    return {math.prod(part) for at in range(len(shape) + 1) for part in (shape[:at], shape[at:])}
