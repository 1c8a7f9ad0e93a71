"""Launch grids of the legacy generation as they are asked for: ``4,2`` or ``nc(2)*2,4``."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

MOST_CORES = 2
"""Physical cores that one launch can take: a logical core has one or two."""
MOST_INSTANCES = 4096
_PART = re.compile(r"(?:nl\.)?nc\(\s*([1-9][0-9]{0,5})\s*\)|([1-9][0-9]{0,5})")


@dataclass(frozen=True)
class Part:
    """A factor of a grid dimension; `cores`: physical cores share it, ``nl.nc(n)``."""

    count: int
    cores: bool = False

    def __str__(self) -> str:
        return f"nc({self.count})" if self.cores else str(self.count)


@dataclass(frozen=True)
class Grid:
    """The dimensions of a launch grid, each of factors, the outer one first."""

    axes: tuple[tuple[Part, ...], ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Instances along each dimension."""
        return tuple(math.prod(part.count for part in axis) for axis in self.axes)

    @property
    def lnc(self) -> int:
        """Physical cores in use."""
        return math.prod(part.count for axis in self.axes for part in axis if part.cores)

    @classmethod
    def parse(cls, text: str) -> Grid:
        """Read a grid as it stands in ``kernel[...]``; ValueError, one sentence, where it is none."""
        axes = []
        for axis in text.split(","):
            parts = []
            for item in axis.split("*"):
                found = _PART.fullmatch(item.strip())
                if found is None:
                    raise ValueError(
                        f"{text!r} is no launch grid: expected sizes such as 4,2 or, over two cores, nc(2)*2,4"
                    )
                cores, count = found.groups()
                parts.append(Part(int(cores or count), cores is not None))
            axes.append(tuple(parts))
        made = cls(tuple(axes))
        if made.lnc > MOST_CORES:
            raise ValueError(f"{text!r} takes {made.lnc} cores, a launch takes at most {MOST_CORES}")
        if math.prod(made.shape) > MOST_INSTANCES:
            raise ValueError(
                f"{text!r} has {math.prod(made.shape)} instances, at most {MOST_INSTANCES} are traced"
            )
        return made

    @classmethod
    def of_cores(cls, lnc: int) -> Grid:
        """The grid of a kernel that is launched on cores alone: none for one core."""
        return cls(((Part(lnc, cores=True),),) if lnc > 1 else ())

    def __str__(self) -> str:
        return ",".join("*".join(map(str, axis)) for axis in self.axes)
