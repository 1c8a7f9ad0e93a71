"""The secret from which a run's inputs are drawn: of a file, or drawn once and kept in the run's journal."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from pathlib import Path

from nkireview.requests import UsageError

MAX_BYTES = 4096
# Seeds are long numbers, so that no other number of a sentence is taken for one.
FIRST_SEED = 1 << 30


@dataclass(frozen=True)
class Secret:
    """A secret text; `own` where it was drawn here and has to be kept for a resumed run."""

    text: str
    own: bool

    @classmethod
    def read(cls, path: Path) -> Secret:
        """The secret in a file; UsageError where there is none."""
        expected = "expected a file with an integer or a line of text"
        try:
            data = path.read_bytes() if path.is_file() else None
        except OSError as error:
            raise UsageError(f"--seed-file {path}: {error.strerror}; {expected}") from None
        if data is None:
            raise UsageError(f"--seed-file {path}: no such file; {expected}")
        if len(data) > MAX_BYTES:
            raise UsageError(f"--seed-file {path}: {len(data)} bytes, more than {MAX_BYTES}; {expected}")
        try:
            text = data.decode("utf-8").strip()
        except UnicodeDecodeError:
            raise UsageError(f"--seed-file {path}: not UTF-8; {expected}") from None
        if not text:
            raise UsageError(f"--seed-file {path}: empty; {expected}")
        return cls(text, own=False)

    @classmethod
    def drawn(cls) -> Secret:
        """A new secret."""
        return cls(secrets.token_hex(16), own=True)

    @property
    def seed(self) -> int:
        """The first seed of every workload."""
        return FIRST_SEED + int.from_bytes(self._digest("inputs")[:8], "big") % FIRST_SEED

    @property
    def identity(self) -> str:
        """By which a journal knows the secret again."""
        return self._digest("identity").hex()

    def _digest(self, purpose: str) -> bytes:
        return hashlib.sha256(f"nkireview {purpose}\0{self.text}".encode()).digest()
