"""Source places: chains of user frames, innermost first, interned as they are met."""

from __future__ import annotations

import sys
from hashlib import sha256
from pathlib import Path
from types import CodeType, FrameType

from nkireview.program.builder import ProgramBuilder
from nkireview.program.model import Frame, Source

_OWN = str(Path(__file__).resolve().parent)
_NEAR = str(Path(_OWN).parent)
_EXAMPLES = str(Path(_NEAR) / "rules" / "examples")  # kernels, though they lie beside our code
_DEPTH = 64  # frames kept of a deeper chain


def _is_ours(path: str) -> bool:
    return path.startswith(_NEAR) and not path.startswith(_EXAMPLES)


class Places:
    """Interns the current chain of user frames; keeps the hash of every file that took part."""

    def __init__(self, builder: ProgramBuilder) -> None:
        self._builder = builder
        self._cache: dict[tuple[tuple[CodeType, int], ...], int] = {}
        self._own: dict[CodeType, bool] = {}
        self._files: dict[str, int] = {}
        self.sources: list[Source] = []

    def here(self) -> int:
        """The place of the call that led into our own code."""
        frame: FrameType | None = sys._getframe(1)
        own = self._own
        key: list[tuple[CodeType, int]] = []
        while frame is not None and len(key) < _DEPTH:
            code = frame.f_code
            ours = own.get(code)
            if ours is None:
                ours = own[code] = _is_ours(code.co_filename)
            if not ours:
                key.append((code, frame.f_lineno))
            elif key and code.co_name == "run_kernel":
                break
            frame = frame.f_back
        chain = tuple(key)
        found = self._cache.get(chain)
        if found is None:
            frames = tuple(Frame(self._file(code.co_filename), line, code.co_name) for code, line in chain)
            found = self._cache[chain] = self._builder.place(frames)
        return found

    def _file(self, path: str) -> int:
        found = self._files.get(path)
        if found is None:
            found = self._files[path] = len(self.sources)
            file = Path(path)
            digest = sha256(file.read_bytes()).hexdigest() if file.is_file() else ""
            self.sources.append(Source(path, digest))
        return found
