"""The enumerations of `nki.isa`, by member name and value; recorders and rows share them.

Source: aws-neuron-sdk nki/api/nki/isa/__init__.py:26-136 (NKI 0.6).
"""

from __future__ import annotations

from enum import Enum
from functools import total_ordering


class Engine(Enum):
    """Neuron Device engines."""

    unknown = 0
    tensor = 1
    scalar = 2
    gpsimd = 3
    dma = 4
    vector = 5
    sync = 6


class ReduceCmd(Enum):
    """What an instruction does to the accumulator registers of its engine."""

    idle = 0
    reset = 1
    reduce = 2
    reset_reduce = 3
    load_reduce = 4


class DgeMode(Enum):
    """Who generates the descriptors of a DMA."""

    unknown = 0
    swdge = 1
    hwdge = 2
    none = 3


class OobMode(Enum):
    """What a dynamic DMA does outside its tensor."""

    error = 0
    skip = 1


class MatmulPerfMode(Enum):
    """Performance mode of the Tensor engine."""

    none = "none"
    double_row = "double_row"


@total_ordering
class NcVersion(Enum):
    """NeuronCore version, ordered by generation: kernels ask ``get_nc_version() >= nc_version.gen3``."""

    gen2 = 2
    gen3 = 3
    gen4 = 4

    def __lt__(self, other: object) -> bool:
        return self.value < other.value if isinstance(other, NcVersion) else NotImplemented


class DmaEngine(Enum):
    """Which DMA moves data between two cores."""

    dma = 1
    gpsimd_dma = 2


class Memory(Enum):
    """Memories a buffer can live in."""

    hbm = "hbm"
    shared_hbm = "shared_hbm"
    sbuf = "sbuf"
    psum = "psum"

    @property
    def on_chip(self) -> bool:
        """True for SBUF and PSUM, whose dim 0 is the partition dimension."""
        return self in (Memory.sbuf, Memory.psum)


GENERATIONS = ("v2", "v3", "v4")
