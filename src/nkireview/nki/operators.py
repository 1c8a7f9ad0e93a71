"""Operator names of the language: each is a token for ``op=`` and, called on tensors, a function of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nkireview.nki.errors import NotYetSupported


class Operator:
    """``nl.add`` and the like: `name` is what an instruction records."""

    def __init__(self, name: str, call: Callable[..., Any] | None = None) -> None:
        self.name = name
        self._call = call
        if call is not None and call.__doc__:
            self.__doc__ = call.__doc__

    @property
    def __name__(self) -> str:
        return self.name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._call is None:
            raise NotYetSupported(f"nl.{self.name}")
        return self._call(*args, **kwargs)

    def __repr__(self) -> str:
        return f"nl.{self.name}"
