"""NKI releases as ordered values: a release is an argument of every judgement."""

from __future__ import annotations

from dataclasses import dataclass
from functools import total_ordering


@total_ordering
@dataclass(frozen=True)
class Release:
    """One NKI release, for example ``Release(0, 6)``; 0.1 is the legacy ``neuronxcc.nki``."""

    major: int
    minor: int

    @classmethod
    def parse(cls, text: str) -> Release:
        """Read ``"0.6"``, ``"0.6.0"`` or ``"legacy"``; raise ValueError naming what is known."""
        if text == "legacy":
            return LEGACY
        parts = text.split(".")
        if len(parts) in (2, 3) and all(part.isdigit() for part in parts):
            found = cls(int(parts[0]), int(parts[1]))
            if found in KNOWN:
                return found
        names = ", ".join(str(release) for release in KNOWN)
        raise ValueError(f"unknown NKI release {text!r}: expected one of {names}, or legacy (= {LEGACY})")

    def __lt__(self, other: Release) -> bool:
        return (self.major, self.minor) < (other.major, other.minor)

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


LEGACY = Release(0, 1)
LATEST = Release(0, 6)
# Release notes: nki.* first shipped with SDK 2.27/2.28 (0.2), then one minor a release up to SDK 2.32 (0.6).
KNOWN = tuple(Release(0, minor) for minor in range(1, 7))


@dataclass(frozen=True)
class Span:
    """Releases from ``since`` (inclusive) up to ``until`` (exclusive); None means no bound."""

    since: Release | None = None
    until: Release | None = None

    def __contains__(self, release: Release) -> bool:
        return (self.since is None or release >= self.since) and (self.until is None or release < self.until)


ALWAYS = Span()
