"""What a kernel is refused with while it is traced."""

from __future__ import annotations


class Refusal(TypeError):
    """The kernel asks for something the language does not allow; one sentence."""


class NotYetSupported(Exception):
    """The kernel uses a documented name that this version does not trace yet."""

    def __init__(self, name: str) -> None:
        super().__init__(f"not yet supported: {name}")
        self.name = name
