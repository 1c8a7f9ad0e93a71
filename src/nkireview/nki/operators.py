"""Operator names of the language: each is a token for ``op=`` and, called on tensors, a function of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nkireview.nki.errors import Refusal
from nkireview.nki.spans import require_call
from nkireview.nki.trace import current


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
            raise Refusal(f"nl.{self.name} is a name for the op= of an instruction, it cannot be called")
        require_call(self.name, current(f"nl.{self.name}").release)
        return self._call(*args, **kwargs)

    def __repr__(self) -> str:
        return f"nl.{self.name}"
