"""The same computation elsewhere: what other platforms would give, and how far two of them may differ."""

from nkireview.diagnosis.platforms.arithmetic import Arithmetic
from nkireview.diagnosis.platforms.spread import OutputSpread, Pair, PlatformError, Spread, spread
from nkireview.diagnosis.platforms.table import Platform, platform, table

__all__ = [
    "Arithmetic",
    "OutputSpread",
    "Pair",
    "Platform",
    "PlatformError",
    "Spread",
    "platform",
    "spread",
    "table",
]
