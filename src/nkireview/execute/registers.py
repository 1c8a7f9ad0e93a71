"""The registers of one stream: 32-bit integers, and why one of them holds no defined value."""

from __future__ import annotations

from typing import Any

from nkireview.execute.result import NoMeaningError

NEVER = "was never written"


def is_register(value: Any) -> bool:
    """True for an immediate that is read from a register: ``("register", n)``, a list after loading a Program."""
    return isinstance(value, list | tuple) and len(value) == 2 and value[0] == "register"


def holds_register(value: Any) -> bool:
    """True for a register, or a list in which one lies."""
    return is_register(value) or (isinstance(value, list | tuple) and any(map(holds_register, value)))


class RegisterFile:
    """Signed 32-bit integers by number; what is larger wraps."""

    def __init__(self) -> None:
        self._values: dict[int, int] = {}
        self._unknown: dict[int, str] = {}

    def read(self, number: int, subject: str) -> int:
        """The number held; NoMeaningError, a sentence that begins with the subject, where it is undefined."""
        found = self._values.get(number)
        if found is None:
            raise NoMeaningError(
                "undefined register", f"{subject} register {number}, which {self.why(number)}"
            )
        return found

    def known(self, number: int) -> bool:
        """True where the register holds a defined value."""
        return number in self._values

    def why(self, number: int) -> str:
        """Why an undefined register is so: ``was never written``."""
        return self._unknown.get(number, NEVER)

    def write(self, number: int, value: int) -> None:
        """Let a register hold a number."""
        self._values[number] = (value + 2**31) % 2**32 - 2**31

    def forget(self, number: int, why: str) -> None:
        """Let a register be undefined."""
        self._values.pop(number, None)
        self._unknown[number] = why

    def resolved(self, value: Any, subject: str) -> Any:
        """An immediate with numbers in the place of its registers."""
        if is_register(value):
            return self.read(value[1], subject)
        if isinstance(value, list | tuple):
            return type(value)(self.resolved(item, subject) for item in value)
        return value


def registers_in(value: Any) -> list[int]:
    """The numbers of the registers in an immediate."""
    if is_register(value):
        return [value[1]]
    return (
        [number for item in value for number in registers_in(item)] if isinstance(value, list | tuple) else []
    )
