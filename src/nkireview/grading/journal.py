"""The journal of a run: a header and one line for each finished record, on disk before the next begins.

A run that is killed at any point leaves a journal from which it can go on; only its last line may be torn.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO

from pydantic import BaseModel, ConfigDict, ValidationError

from nkireview.grading.record import SCHEMA, GradeRecord
from nkireview.requests import UsageError

if sys.platform != "win32":
    import fcntl

SUFFIX = ".partial"
# How long processes of a run that was killed may take to let go of its journal.
LOCK_S = 1.0


class Header(BaseModel):
    """What the records of a journal depend on. `secret` is there where it was drawn for the run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: int = SCHEMA
    tool: str
    task: str
    options: dict[str, str]
    seed: str
    secret: str = ""

    def differs(self, other: Header) -> str:
        """What is not the same in the other, as a user calls it; empty where nothing is."""
        if self.schema_version != other.schema_version or self.tool != other.tool:
            return "version of nkireview"
        if self.task != other.task:
            return "task"
        changed = [
            f"--{name}" for name, value in self.options.items() if other.options.get(name, value) != value
        ]
        if changed or self.options.keys() != other.options.keys():
            return ", ".join(changed) or "options"
        return "seed" if self.seed != other.seed else ""


class Journal:
    """The open journal of one run; a context manager that keeps the file."""

    def __init__(self, path: Path, stream: IO[bytes]) -> None:
        self.path = path
        self._stream = stream

    @classmethod
    def create(cls, path: Path, header: Header) -> Journal:
        """A new journal; what was there is gone, unless a run is still writing it."""
        if path.exists():
            with path.open("rb") as known:
                _lock(known, path)
        fresh = path.with_name(path.name + ".new")
        stream = fresh.open("wb")
        try:
            _lock(stream, path)
            journal = cls(path, stream)
            journal._write(json.dumps({"journal": header.model_dump()}))
            fresh.replace(path)
            sync_folder(path.parent)
        except BaseException:
            stream.close()
            raise
        return journal

    @classmethod
    def reopen(cls, path: Path, size: int) -> Journal:
        """The journal at `path`, to go on after its first `size` bytes."""
        stream = path.open("r+b")
        try:
            _lock(stream, path)
            stream.truncate(size)
            stream.seek(0, os.SEEK_END)
        except BaseException:
            stream.close()
            raise
        return cls(path, stream)

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.close()

    def append(self, record: GradeRecord) -> None:
        """Write one record; it is on disk when this returns."""
        self._write(record.line())

    def finish(self, out: Path, records: Mapping[str, GradeRecord]) -> None:
        """Write all records to `out`, sorted by name, whole or not at all, and remove the journal."""
        lines = "".join(f"{records[name].line()}\n" for name in sorted(records))
        write_whole(out, lines.encode("ascii"))
        self.path.unlink()
        sync_folder(out.parent)

    def _write(self, line: str) -> None:
        self._stream.write(f"{line}\n".encode("ascii"))
        self._stream.flush()
        os.fsync(self._stream.fileno())


@dataclass(frozen=True)
class Found:
    """What a journal holds; records by name, the last of each. `size` is the bytes of its whole lines."""

    header: Header
    records: dict[str, GradeRecord]
    size: int


def read_journal(path: Path) -> Found | None:
    """What is in a journal; None where no whole header was written. UsageError for a damaged file.

    A last line that is torn is left out.
    """
    data = path.read_bytes()
    lines = data[: data.rfind(b"\n") + 1].splitlines(keepends=True)
    if not lines:
        return None
    try:
        header = Header.model_validate(json.loads(lines[0])["journal"])
    except (ValueError, KeyError, TypeError):
        raise UsageError(
            f"{path}: line 1 is no header of a journal; finish it with the version of nkireview that began it, "
            "or start again with --force"
        ) from None
    records: dict[str, GradeRecord] = {}
    size = len(lines[0])
    for number, line in enumerate(lines[1:], 2):
        try:
            record = GradeRecord.model_validate_json(line)
        except ValidationError:
            raise UsageError(
                f"{path}: line {number} is no record; remove that line, or start again with --force"
            ) from None
        records[record.name] = record
        size += len(line)
    return Found(header, records, size)


def read_results(path: Path) -> dict[str, GradeRecord]:
    """The records of a finished run by name; UsageError where the file is something else."""
    records: dict[str, GradeRecord] = {}
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            record = GradeRecord.model_validate_json(line)
        except ValidationError:
            raise UsageError(
                f"{path}: line {number} is no record; name another file with --out, or overwrite it with --force"
            ) from None
        records[record.name] = record
    return records


def write_whole(path: Path, data: bytes) -> None:
    """Write a file that is there whole or not at all."""
    fresh = path.with_name(path.name + ".new")
    with fresh.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    fresh.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make renames and removals in a folder last."""
    with contextlib.suppress(OSError):  # not every file system can
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _lock(stream: IO[bytes], path: Path) -> None:
    end = time.monotonic() + LOCK_S
    while True:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > end:
                raise UsageError(
                    f"{path}: another run is writing this journal; wait for it, or name another file with --out"
                ) from None
            time.sleep(LOCK_S / 20)
