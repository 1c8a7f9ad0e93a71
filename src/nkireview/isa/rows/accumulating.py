"""Rows that keep a running value in the accumulator registers of their engine."""

from __future__ import annotations

from nkireview.isa.row import Row

ROWS: tuple[Row, ...] = ()
