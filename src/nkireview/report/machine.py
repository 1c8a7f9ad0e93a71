"""A review as JSON, written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from nkireview.record import ReviewRecord

FILE = "review.json"


def to_json(record: ReviewRecord) -> str:
    """The JSON text of a review; non-finite figures are strings, as JSON has none."""
    return record.model_dump_json(indent=2) + "\n"


def write(record: ReviewRecord, folder: Path) -> Path:
    """Write ``review.json`` into a folder, which is made; the file appears only when it is complete."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / FILE
    handle, name = tempfile.mkstemp(dir=folder, prefix=f".{FILE}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(to_json(record))
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return target
