"""What a script reads about the machine it runs on: the instance type is one of the target that is simulated."""

from __future__ import annotations

import builtins
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nkireview.hosted.settings import settings

PRODUCT_NAME = Path("/sys/devices/virtual/dmi/id/product_name")
"""The file by which host code tells what it runs on."""
INSTANCES = {"trn1": "trn1.32xlarge", "trn2": "trn2.48xlarge", "trn3": "trn3"}
"""For each target an instance with it (trn1-arch.rst, trn2-arch.rst); trn3 has no public instance name."""

_open: Callable[..., Any] = io.open


def install() -> None:
    """Let `PRODUCT_NAME` be read as the target's instance type; every other file is opened as ever."""
    builtins.open = io.open = _opened


def _opened(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
    if file in (str(PRODUCT_NAME), PRODUCT_NAME) and mode in ("r", "rt"):
        return io.StringIO(f"{INSTANCES[settings().target]}\n")
    return _open(file, mode, *args, **kwargs)
