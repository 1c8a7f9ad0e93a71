"""The arguments of a workload: drawn from specifications or made by the task's own function, never imported here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from nkireview.isa import dtypes
from nkireview.numerics.inputs import Scalar, Spec, draw_all
from nkireview.observed import TEXT, Observation
from nkireview.program.tree import EnumLeaf, Group, Node, ScalarLeaf, TensorLeaf
from nkireview.runner import ForkServer, Job, Limits, Outcome
from nkireview.runner.tree import EnumNode, ObjectNode, TreeError, decode, encode, leaves, map_leaves

Array = NDArray[Any]
STRUCTURE_SEED = 0
CALL = "nkireview.runner.reference:call"
PREPARE = "nkireview.runner.reference:prepare"


class ArgumentError(ValueError):
    """Inputs that cannot be made or carried; one sentence."""


class ReferenceFailed(Exception):
    """The reference or the input function failed; the task cannot be judged."""


@dataclass(frozen=True)
class Callee:
    """A function in a file of the task's author; `float64` where a reference gets its floats as float64."""

    file: Path
    function: str
    float64: bool = True

    @classmethod
    def parse(cls, text: str, what: str) -> Callee:
        """Read ``FILE:FUNC``."""
        file, _, function = text.rpartition(":")
        if not file or not function.isidentifier():
            raise ArgumentError(f"{what} {text!r} must be FILE:FUNCTION, for example reference.py:softmax")
        path = Path(file)
        if not path.is_file():
            raise ArgumentError(f"{what} {text!r}: no such file {path}")
        return cls(path, function)

    def __str__(self) -> str:
        return f"{self.file.name}:{self.function}"


@dataclass(frozen=True)
class Arguments:
    """Positional and keyword arguments as trees whose leaves are arrays in storage dtypes, or scalars."""

    positional: tuple[Any, ...]
    keywords: Mapping[str, Any]

    @property
    def tree(self) -> Any:
        """Both as one tree."""
        return (self.positional, dict(self.keywords))

    def arrays(self) -> list[Array]:
        """The array leaves, in order."""
        return [array for _, array in leaves(self.tree)]

    def replaced(self, arrays: Sequence[Array]) -> Arguments:
        """The same tree with other arrays."""
        fresh = iter(arrays)
        positional, keywords = map_leaves(self.tree, lambda _: next(fresh))
        return Arguments(positional, keywords)

    def node(self, names: Sequence[str] = ()) -> tuple[Node, list[tuple[tuple[int, ...], str]]]:
        """The tree of a Program's parameters, and shape and dtype of each tensor, in order.

        names: of the kernel's parameters, by which positional arguments are called; their positions otherwise.
        """
        tensors: list[tuple[tuple[int, ...], str]] = []
        called = {
            names[at] if at < len(names) else str(at): value for at, value in enumerate(self.positional)
        }
        parts = (
            _group("tuple", called, tensors, "arguments"),
            _group("dict", self.keywords, tensors, "arguments"),
        )
        # both keys are empty, so that a path begins with the parameter's name
        return Group("tuple", ("", ""), parts), tensors

    def same_structure(self, other: Arguments) -> bool:
        """True where only the values of the tensors differ."""
        return repr(self.node()) == repr(other.node())


@dataclass(frozen=True)
class Drawn:
    """Inputs drawn from specifications: tensors by position, scalars by keyword."""

    inputs: Mapping[str, Spec | Scalar]

    def structure(self, server: ForkServer, limits: Limits) -> Arguments:
        """The arguments with their shapes and dtypes and no values of their own."""
        return self._split(
            {
                name: np.broadcast_to(np.zeros((), dtypes.of(value.dtype).storage), value.shape)
                if isinstance(value, Spec)
                else value
                for name, value in self.inputs.items()
            }
        )

    def make(self, seed: int, server: ForkServer, limits: Limits) -> Arguments:
        """The arguments for a seed."""
        return self._split(draw_all(self.inputs, seed))

    @staticmethod
    def _split(values: Mapping[str, Any]) -> Arguments:
        positional = tuple(value for value in values.values() if isinstance(value, np.ndarray))
        return Arguments(
            positional, {name: value for name, value in values.items() if not isinstance(value, np.ndarray)}
        )


@dataclass(frozen=True)
class Called:
    """Inputs made by a function of a seed: a sequence gives positional arguments, a dict keyword ones."""

    callee: Callee
    keywords: Mapping[str, Any]

    def structure(self, server: ForkServer, limits: Limits) -> Arguments:
        """The arguments for one seed, of which only the structure is used."""
        return self.make(STRUCTURE_SEED, server, limits)

    def make(self, seed: int, server: ForkServer, limits: Limits) -> Arguments:
        """The arguments for a seed."""
        made = call(server, limits, self.callee, Arguments((seed,), {}), what="input function", seeded=True)
        if isinstance(made, list | tuple):
            return Arguments(tuple(made), self.keywords)
        if isinstance(made, dict):
            return Arguments((), {**made, **self.keywords})
        return Arguments((made,), self.keywords)


class InputSource(Protocol):
    """Where a workload's arguments come from; `ReferenceFailed` or `ArgumentError` says why there are none."""

    def structure(self, server: ForkServer, limits: Limits) -> Arguments:
        """The arguments, of which only shapes, dtypes and scalars count."""

    def make(self, seed: int, server: ForkServer, limits: Limits) -> Arguments:
        """The arguments for a seed."""


def call(
    server: ForkServer,
    limits: Limits,
    callee: Callee,
    arguments: Arguments,
    *,
    what: str = "reference",
    float64: bool = False,
    seeded: bool = False,
    blanks: Sequence[tuple[Sequence[int], str] | None] | None = None,
) -> Any:
    """Call a function of the task's author in a child; its result as a tree. ReferenceFailed says why not."""
    outcome = called(server, limits, callee, arguments, float64=float64, seeded=seeded, blanks=blanks)
    return result_of(outcome, what, callee)


def called(
    server: ForkServer,
    limits: Limits,
    callee: Callee,
    arguments: Arguments,
    *,
    float64: bool = False,
    seeded: bool = False,
    blanks: Sequence[tuple[Sequence[int], str] | None] | None = None,
    views: bool = False,
) -> Outcome:
    """What came of calling a function in a child; `runner.reference.call` explains what may be asked."""
    header, blobs = request_of(arguments, float64=float64, seeded=seeded)
    more: dict[str, Any] = {"file": str(callee.file.resolve()), "function": callee.function, "views": views}
    if blanks is not None:
        more["blanks"] = [None if each is None else [list(each[0]), each[1]] for each in blanks]
    return server.run(Job(CALL, {**header, **more}, blobs, limits))


def request_of(
    arguments: Arguments, *, float64: bool = False, seeded: bool = False, steps: bool = False
) -> tuple[dict[str, Any], list[bytes]]:
    """One call as header and blobs for `runner.reference`."""
    tree, blobs = encode([list(arguments.positional), dict(arguments.keywords)])
    return {"arguments": tree, "float64": float64, "seeded": seeded, "steps": steps}, blobs


def steps_of(outcome: Outcome, callee: Callee) -> list[Observation]:
    """The steps of a reference that was asked for them; `ReferenceFailed` says why there are none."""
    values = [value for _, value in leaves(result_of(outcome, "reference", callee))]
    try:
        found = [
            Observation(_line(name), int(line), _line(text), tuple(int(each) for each in reads), value)
            for (name, line, text, reads), value in zip(outcome.header["steps"], values, strict=True)
        ]
        if any(not 0 <= read < number for number, each in enumerate(found) for read in each.reads):
            raise ValueError("a step reads one that comes after it")
        return found
    except (TypeError, KeyError, ValueError) as problem:
        raise ReferenceFailed(f"reference {callee}: its steps cannot be read: {problem}") from None


def result_of(outcome: Outcome, what: str, callee: Callee) -> Any:
    """What a call returned, as a tree; `ReferenceFailed` says why there is nothing."""
    if outcome.status != "done":
        raise ReferenceFailed(f"{what} {callee}: {outcome.detail}")
    error = outcome.header.get("error")
    if error:
        place = f" ({Path(error['file']).name}:{error['line']})" if error.get("file") else ""
        raised = f"{error['type']}: " if error["type"] else ""
        raise ReferenceFailed(f"{what} {callee}: {raised}{error['message']}{place}")
    try:
        return decode(outcome.header["result"], outcome.blobs)
    except (TreeError, KeyError) as problem:
        raise ReferenceFailed(f"{what} {callee}: its result cannot be read: {problem}") from None


def _line(text: Any) -> str:
    """Text of a child as one line that a terminal can show."""
    return "".join(letter for letter in str(text)[:TEXT] if letter.isprintable())


def _node(value: Any, tensors: list[tuple[tuple[int, ...], str]], path: str) -> Node:
    if isinstance(value, np.ndarray):
        try:
            dtype = dtypes.of(value.dtype).name
        except ValueError as error:
            raise ArgumentError(f"{path}: {error}") from None
        if value.ndim == 0:
            raise ArgumentError(f"{path}: an array without dimensions; pass a Python number")
        tensors.append((value.shape, dtype))
        return TensorLeaf(len(tensors) - 1)
    if value is None or isinstance(value, bool | int | float | str):
        return ScalarLeaf(value)
    if isinstance(value, np.generic):
        return ScalarLeaf(value.item())
    if isinstance(value, np.dtype):
        return ScalarLeaf(value.name)
    if isinstance(value, EnumNode):
        return EnumLeaf(value.cls, value.name)
    if isinstance(value, ObjectNode):
        return _group("object", value.fields, tensors, path, value.cls)
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise ArgumentError(
                f"{path}: a dict with keys that are no strings; kernels take string keys only"
            )
        return _group("dict", value, tensors, path)
    kind = "list" if isinstance(value, list) else "tuple"
    return _group(kind, {str(at): item for at, item in enumerate(value)}, tensors, path)


def _group(
    kind: str, items: Mapping[str, Any], tensors: list[tuple[tuple[int, ...], str]], path: str, cls: str = ""
) -> Group:
    nodes = tuple(_node(item, tensors, f"{path}.{key}") for key, item in items.items())
    return Group(kind, tuple(str(key) for key in items), nodes, cls)
