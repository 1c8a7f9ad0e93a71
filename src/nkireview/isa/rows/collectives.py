"""Rows of nki.collectives: instructions by which ranks meet."""

from __future__ import annotations

from nkireview.isa.row import Row

ROWS: tuple[Row, ...] = ()
