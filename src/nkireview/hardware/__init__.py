"""The figures of the hardware, each with its source: ``target("trn2").figure("dma.packet_ns")``."""

from nkireview.hardware.loader import (
    TARGETS,
    Confidence,
    Figure,
    Generation,
    Hardware,
    Unknown,
    UnknownFigureError,
    target,
)

__all__ = [
    "TARGETS",
    "Confidence",
    "Figure",
    "Generation",
    "Hardware",
    "Unknown",
    "UnknownFigureError",
    "target",
]
