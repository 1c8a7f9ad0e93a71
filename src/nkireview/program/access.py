"""Access: which elements of a buffer an operand touches, as an affine map."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Bound:
    """An affine inequality over the axes of an access: ``sum(coefficients * index) + constant >= 0``."""

    coefficients: tuple[int, ...]
    constant: int


@dataclass(frozen=True)
class Index:
    """A part of the address known only on the device.

    kind: ``register`` (source = register number), or ``scalar``, ``vector`` or ``snake`` (source = access id of the
    index tile). The index, times `stride` elements of the access's dtype, is added to the address. A vector index
    replaces `axis`: position k along it takes element k of the index tile read column by column. A snake index
    (`NkiTensor.indirect`, v4) replaces `axis` as well: position k takes the element in row ``k % group`` and column
    ``k // group`` of each `group` partitions of its tile, for those partitions alone. `limit`: indices from there on
    are out of bounds, None where only the end of the buffer bounds them. oob: ``error``, or ``skip``, which leaves
    such elements out.
    """

    kind: str
    source: int
    axis: int
    stride: int
    oob: str = "error"
    limit: int | None = None
    group: int = 0

    KINDS = ("register", "scalar", "vector", "snake")
    MODES = ("error", "skip")

    def __post_init__(self) -> None:
        if self.kind not in self.KINDS:
            raise ValueError(f"index kind {self.kind!r} is not one of {', '.join(self.KINDS)}")
        if self.oob not in self.MODES:
            raise ValueError(f"out-of-bounds mode {self.oob!r} is not one of {', '.join(self.MODES)}")


@dataclass(frozen=True)
class Access:
    """An affine view of one buffer; nothing is clamped, so it may lie outside its buffer.

    Base, strides and counts are in elements of `dtype`, which may differ from the buffer's own. An on-chip buffer
    of shape (P, ...) is laid out as P rows of F elements, F the product of its free dimensions; its `partition`
    axis is 0 and has stride F. In HBM `partition` is None. `table` names a constant of explicit element offsets
    (int64, of the access's shape) where the address is not affine; base and strides are then zero.
    """

    buffer: int
    dtype: str
    base: int
    pattern: tuple[tuple[int, int], ...]
    partition: int | None = None
    bounds: tuple[Bound, ...] = ()
    index: Index | None = None
    table: str | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The counts of the pattern."""
        return tuple(count for _, count in self.pattern)

    @property
    def size(self) -> int:
        """Number of elements, without bounds."""
        return math.prod(self.shape)

    @property
    def partitions(self) -> int:
        """Count of the partition axis; 1 in HBM."""
        return 1 if self.partition is None else self.pattern[self.partition][1]

    @property
    def free(self) -> int:
        """Elements a partition; all elements in HBM."""
        return self.size // self.partitions if self.partitions else 0

    @property
    def extent(self) -> tuple[int, int]:
        """Lowest and highest element touched by the affine part."""
        low = high = self.base
        for stride, count in self.pattern:
            reach = stride * (count - 1)
            low, high = low + min(reach, 0), high + max(reach, 0)
        return low, high
