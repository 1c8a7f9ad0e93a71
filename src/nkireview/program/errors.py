"""What a malformed Program is refused with."""

from __future__ import annotations


class ProgramError(ValueError):
    """A Program that breaks its own contract; the message names the field and what was expected."""
