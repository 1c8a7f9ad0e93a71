"""The tables of a Program as columns: one array a field, so that traffic and scheduling vectorise."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nkireview.program.errors import ProgramError

Ints = NDArray[np.int64]
Small = NDArray[np.int32]
Tiny = NDArray[np.int8]


@dataclass(frozen=True, eq=False)
class Columns:
    """Arrays of a Program.

    Ragged fields are a flat array and an offsets array of one element more than rows (``*_at``).
    """

    # instructions
    opcode: Small  # index into Program.opcodes
    place: Small
    immediates: Small  # index into Program.immediates
    engine: Tiny  # Engine value
    dge: Tiny  # DgeMode value
    name: Small  # index into Program.strings, -1: none
    operand_at: Ints
    operand: Small  # access id or -1, in the row's operand order
    dependency_at: Ints
    dependency: Small  # instruction index
    # accesses
    access_buffer: Small
    access_dtype: Tiny  # index into Program.dtypes
    access_base: Ints
    access_partition: Tiny  # -1: none
    axis_at: Ints
    axis_stride: Ints
    axis_count: Ints
    # buffers
    buffer_memory: Tiny  # index into Memory
    buffer_dtype: Tiny
    buffer_core: Tiny  # -1: shared
    buffer_name: Small  # index into Program.strings, -1: none
    buffer_place: Small
    buffer_partition_address: Small  # -1: none
    buffer_byte_address: Ints  # -1: none
    dim_at: Ints
    dim: Ints

    DTYPES: ClassVar[dict[str, type]] = {"Small": np.int32, "Ints": np.int64, "Tiny": np.int8}

    def __post_init__(self) -> None:
        for item in fields(self):
            array: NDArray[Any] = getattr(self, item.name)
            wanted = np.dtype(self.DTYPES[str(item.type)])
            if not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype != wanted:
                raise ProgramError(f"column {item.name} must be a vector of {wanted}")

    @property
    def instructions(self) -> int:
        """Number of instructions."""
        return len(self.opcode)

    @property
    def accesses(self) -> int:
        """Number of interned accesses."""
        return len(self.access_buffer)

    @property
    def buffers(self) -> int:
        """Number of buffers."""
        return len(self.buffer_memory)


COLUMN_NAMES = tuple(item.name for item in fields(Columns))


def check(columns: Columns, tables: dict[str, int]) -> None:
    """Raise ProgramError where a column has the wrong length or points outside its table.

    tables: sizes of opcodes, places, immediates, strings, dtypes and memories.
    """
    n, a, b = columns.instructions, columns.accesses, columns.buffers
    for size, names in ((n, INSTRUCTION_COLUMNS), (a, ACCESS_COLUMNS), (b, BUFFER_COLUMNS)):
        for name in names:
            if len(getattr(columns, name)) != size:
                raise ProgramError(f"column {name} has {len(getattr(columns, name))} rows, expected {size}")
    for name, flat, rows in (
        ("operand_at", columns.operand, n),
        ("dependency_at", columns.dependency, n),
        ("axis_at", columns.axis_stride, a),
        ("dim_at", columns.dim, b),
    ):
        _offsets(getattr(columns, name), name, rows, len(flat))
    if len(columns.axis_count) != len(columns.axis_stride):
        raise ProgramError("columns axis_count and axis_stride differ in length")
    for name, low, high in (
        ("opcode", 0, tables["opcodes"]),
        ("place", -1, tables["places"]),
        ("immediates", 0, tables["immediates"]),
        ("name", -1, tables["strings"]),
        ("operand", -1, a),
        ("dependency", 0, n),
        ("access_buffer", 0, b),
        ("access_dtype", 0, tables["dtypes"]),
        ("buffer_memory", 0, tables["memories"]),
        ("buffer_dtype", 0, tables["dtypes"]),
        ("buffer_core", -1, tables["cores"]),
        ("buffer_name", -1, tables["strings"]),
        ("buffer_place", -1, tables["places"]),
        ("buffer_partition_address", -1, 2**31),
        ("buffer_byte_address", -1, 2**62),
        ("axis_count", 0, 2**40),
        ("axis_stride", -(2**40), 2**40),
        ("access_base", -(2**48), 2**48),
        ("dim", 0, 2**40),
        ("engine", 0, tables["engines"]),
        ("dge", 0, tables["dges"]),
    ):
        values = getattr(columns, name)
        if len(values) and (int(values.min()) < low or int(values.max()) >= high):
            raise ProgramError(f"column {name} holds a value outside [{low}, {high})")
    ranks = np.diff(columns.axis_at)
    if np.any((columns.access_partition < -1) | (columns.access_partition >= np.maximum(ranks, 1))):
        raise ProgramError("column access_partition names an axis that is not there")


INSTRUCTION_COLUMNS = ("place", "immediates", "engine", "dge", "name")
ACCESS_COLUMNS = ("access_dtype", "access_base", "access_partition")
BUFFER_COLUMNS = (
    "buffer_dtype",
    "buffer_core",
    "buffer_name",
    "buffer_place",
    "buffer_partition_address",
    "buffer_byte_address",
)


def _offsets(offsets: Ints, name: str, rows: int, flat: int) -> None:
    well_formed = len(offsets) == rows + 1 and offsets[0] == 0 and offsets[-1] == flat
    if not well_formed or (rows and int(np.diff(offsets).min()) < 0):
        raise ProgramError(f"column {name} must rise from 0 to {flat} in {rows + 1} steps")
