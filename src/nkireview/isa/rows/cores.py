"""Rows by which the two cores of a launch meet."""

from __future__ import annotations

from nkireview.isa.row import Row

ROWS: tuple[Row, ...] = ()
