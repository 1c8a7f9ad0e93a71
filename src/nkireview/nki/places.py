"""Source places: chains of user frames, innermost first, interned as they are met."""

from __future__ import annotations

import sys
from hashlib import sha256
from inspect import CO_GENERATOR
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
    """Interns the current chain of user frames; keeps the hash of every file that took part.

    While a frame runs, the frames that called it stand still: its callers are walked once, then its own position in
    the code is all that changes from call to call.
    """

    def __init__(self, builder: ProgramBuilder) -> None:
        self._builder = builder
        self._cache: dict[tuple[tuple[int, int], ...], int] = {}
        self._codes: dict[int, tuple[CodeType, bool, bool]] = {}
        self._files: dict[str, int] = {}
        self._heads: dict[int, Frame] = {}
        self._frame: FrameType | None = None
        self._back: FrameType | None = None
        self._steps: dict[int, int] = {}
        self._tails: dict[tuple[tuple[int, int], ...], dict[int, int]] = {}
        self.sources: list[Source] = []

    def here(self, depth: int = 1) -> int:
        """The place of the call that led into our own code; depth: how many of its frames are known to be on top."""
        frame: FrameType | None = sys._getframe(depth)
        codes = self._codes
        while frame is not None:
            known = codes.get(id(frame.f_code)) or self._code(frame.f_code)
            if not known[1]:
                break
            frame = frame.f_back
        if frame is None:
            return self._walked(None, ())
        back = frame.f_back
        if known[2]:
            return self._walked(frame, self._chain(back))
        if frame is not self._frame or back is not self._back:
            self._frame, self._back = frame, back
            tail = self._chain(back)
            self._steps = self._tails.setdefault(((id(frame.f_code), -1), *tail), {})
        found = self._steps.get(frame.f_lasti)
        if found is None:
            found = self._steps[frame.f_lasti] = self._walked(frame, self._chain(back))
        return found

    def forget(self) -> None:
        """Let go of the frame seen last."""
        self._frame = self._back = None

    def text(self, place: int) -> str:
        """``file:line`` of the innermost frame of a place, or an empty string."""
        head = self._heads.get(place)
        return f"{Path(self.sources[head.file].path).name}:{head.line}" if head else ""

    def _code(self, code: CodeType) -> tuple[CodeType, bool, bool]:
        """The code, whether it is ours, and whether it is a generator's, whose callers change while it runs."""
        # kept beside its id, which must not be given to another
        found = self._codes[id(code)] = (code, _is_ours(code.co_filename), bool(code.co_flags & CO_GENERATOR))
        return found

    def _chain(self, frame: FrameType | None) -> tuple[tuple[int, int], ...]:
        """Code and line of the user frames from a frame that called another on."""
        key: list[tuple[int, int]] = []
        codes = self._codes
        while frame is not None and len(key) < _DEPTH - 1:
            code = frame.f_code
            known = codes.get(id(code)) or self._code(code)
            if not known[1]:
                key.append((id(code), frame.f_lineno))
            elif code.co_name == "run_kernel":
                break
            frame = frame.f_back
        return tuple(key)

    def _walked(self, frame: FrameType | None, tail: tuple[tuple[int, int], ...]) -> int:
        chain = tail if frame is None else ((id(frame.f_code), frame.f_lineno), *tail)
        found = self._cache.get(chain)
        if found is None:
            codes = [(self._codes[number][0], line) for number, line in chain]
            frames = tuple(Frame(self._file(code.co_filename), line, code.co_name) for code, line in codes)
            found = self._cache[chain] = self._builder.place(frames)
            if frames:
                self._heads[found] = frames[0]
        return found

    def _file(self, path: str) -> int:
        found = self._files.get(path)
        if found is None:
            found = self._files[path] = len(self.sources)
            file = Path(path)
            digest = sha256(file.read_bytes()).hexdigest() if file.is_file() else ""
            self.sources.append(Source(path, digest))
        return found
