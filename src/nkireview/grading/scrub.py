"""Text for a record: without absolute paths, addresses of objects, or the held-out seeds."""

from __future__ import annotations

import re
from collections.abc import Sequence

_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,}\b")
# where a child may write: the place differs from run to run
_SCRATCH = re.compile(r"(?:/[^\s'\"`()<>:,;]*)?/nkireview-[a-z0-9_]{8}/[0-9]+")
# an absolute path of two parts or more; what precedes it must not be part of a word or a relative path
_PATH = re.compile(r"(?<![\w./~-])/(?:[^/\s'\"`()<>:,;]+/)+([^/\s'\"`()<>:,;]*)")


class Scrub:
    """Replaces what would differ between machines or runs, and what must stay secret."""

    def __init__(self, folders: Sequence[str], seeds: Sequence[int]) -> None:
        """folders: absolute; text in one of them is told from there on. seeds: told by their position."""
        self._folders = sorted({folder.rstrip("/") + "/" for folder in folders if folder != "/"}, key=len)[
            ::-1
        ]
        self._seeds = {str(seed): f"held-out {at + 1}" for at, seed in enumerate(seeds)}
        self._number = re.compile(rf"\b(?:{'|'.join(self._seeds)})\b") if seeds else None

    def __call__(self, text: str) -> str:
        """The text as a record holds it, in one line of printable characters."""
        text = _SCRATCH.sub("SCRATCH", text)
        for folder in self._folders:
            text = text.replace(folder, "")
        text = _PATH.sub(r"\1", text)
        text = _ADDRESS.sub("0x...", text)
        if self._number is not None:
            text = self._number.sub(lambda match: self._seeds[match[0]], text)
        text = " ".join(text.split())
        return "".join(each if each.isprintable() else "?" for each in text)
