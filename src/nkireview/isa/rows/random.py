"""Rows that draw random numbers, and keep the state of the generators."""

from __future__ import annotations

from nkireview.isa.row import Row

ROWS: tuple[Row, ...] = ()
