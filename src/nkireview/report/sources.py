"""The files that a review points at: their text for the page, their paths for annotations."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from nkireview.record import ReviewRecord
from nkireview.report import text as words

MOST_BYTES = 1 << 20
MOST_FILES = 20


@dataclass(frozen=True)
class Sources:
    """By the name that places use: `texts` of the files, and `paths`, from the working folder where they lie in it."""

    texts: dict[str, str] = field(default_factory=dict)
    paths: dict[str, str] = field(default_factory=dict)


def read_sources(record: ReviewRecord, file: Path, folders: Iterable[Path] = ()) -> Sources:
    """The reviewed file and the others that places name, looked for beside it and in `folders`.

    A name comes from the submission: only regular files directly in these folders are read, no links, none over
    `MOST_BYTES`.
    """
    found = Sources()
    where = [file.parent, *folders]
    for name in list(dict.fromkeys([file.name, *_names(record)]))[:MOST_FILES]:
        for folder in where:
            text = _read(folder / name)
            if text is not None:
                found.texts[name] = text
                found.paths[name] = _path(folder / name)
                break
    return found


def _names(record: ReviewRecord) -> Iterator[str]:
    """File names of places, those that are a plain name."""
    places = [place for finding in record.findings for place in finding.places]
    for time in record.times:
        places += [step.place for step in time.critical] + [line.place for line in time.lines]
        places += [memory.peak_place for memory in time.memory]
    for place in places:
        name, line = words.place_of(place)
        if line is not None and Path(name).name == name and "\0" not in name:
            yield name


def _read(path: Path) -> str | None:
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except (OSError, ValueError):
        # a listing is an extra: the place itself is still shown
        return None
    facts = os.fstat(handle)
    if not stat.S_ISREG(facts.st_mode) or facts.st_size > MOST_BYTES:
        os.close(handle)
        return None
    with os.fdopen(handle, "rb") as stream:
        return stream.read(MOST_BYTES).decode("utf-8", "replace").removeprefix("\ufeff")


def _path(path: Path) -> str:
    whole, here = path.resolve(), Path.cwd()
    return whole.relative_to(here).as_posix() if whole.is_relative_to(here) else path.name
