"""Rows of the GpSimd engine that gather, count and reduce across elements and partitions."""

from __future__ import annotations

from nkireview.isa.row import Row

ROWS: tuple[Row, ...] = ()
