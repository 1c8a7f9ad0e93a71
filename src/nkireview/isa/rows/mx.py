"""Rows of the block-scaled MX formats."""

from __future__ import annotations

from nkireview.isa.row import Row

ROWS: tuple[Row, ...] = ()
