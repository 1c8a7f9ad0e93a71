"""What last wrote a place in PSUM, which decides whether a matmul overwrites it or adds to it.

Source: nki/api/nki/isa/__init__.py:538-555 (NKI 0.6). One number for a whole store as long as one holds, else one a
unit.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nkireview.execute.storage import Cell, Operand

UNWRITTEN, VALUE, TRANSPOSE, MATMUL = range(4)

State = int | NDArray[np.int8]


def state(operand: Operand) -> State:
    """What last wrote the elements of an access: one number, or one for each element."""
    known = operand.cell.store.matmul
    if isinstance(known, int):
        return known
    units = operand.units_of(known)
    elements = units[..., 0] if operand.form.split > 1 else units
    low, high = int(elements.min()), int(elements.max())
    return low if low == high else elements


def note(operand: Operand, writer: int) -> None:
    """Note what writes all elements of an access."""
    store = operand.cell.store
    known = store.matmul
    if operand.form.whole and not store.shared:
        store.matmul = writer
        return
    if isinstance(known, int):
        if known == writer:
            return
        known = store.matmul = np.full(store.units, known, np.int8)
    operand.mark(known, writer)


def forget(cell: Cell) -> None:
    """Note that nothing has written the region of a buffer."""
    known = cell.store.matmul
    if not cell.store.shared:
        cell.store.matmul = UNWRITTEN
    elif not isinstance(known, int):
        cell.units_of(known)[...] = UNWRITTEN
    elif known != UNWRITTEN:
        cell.store.matmul = np.full(cell.store.units, known, np.int8)
        cell.units_of(cell.store.matmul)[...] = UNWRITTEN
