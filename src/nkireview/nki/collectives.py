"""The namespace `nki.collectives`: what ranks call to meet.

Lists by channel are flattened, with the number of tensors of each channel as the immediate ``counts``. The rows of a
metadata tensor are recorded as operands of their own, since some are read and one is written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nkireview.isa.release import Release
from nkireview.isa.row import REQUIRED, Row
from nkireview.isa.rows import collectives as rows
from nkireview.nki.errors import Refusal
from nkireview.nki.objects import NKIObject
from nkireview.nki.recorders import recorder, unknown
from nkireview.nki.tensor import NkiTensor
from nkireview.nki.trace import current


class ReplicaGroup(NKIObject):
    """Lists of ranks that take part in a collective: ``ReplicaGroup([[0, 1], [2, 3]])``; Refusal for anything else."""

    def __init__(self, groups: Any) -> None:
        if not isinstance(groups, list | tuple) or not all(
            isinstance(group, list | tuple) for group in groups
        ):
            raise Refusal(f"ReplicaGroup takes a list of lists of ranks, got {groups!r}")
        for group in groups:
            for rank in group:
                if isinstance(rank, bool) or not isinstance(rank, int | np.integer):
                    raise Refusal(f"ReplicaGroup: a rank is an integer, got {rank!r}")
        self.groups = [[int(rank) for rank in group] for group in groups]


def namespace() -> dict[str, Any]:
    """Everything a kernel finds in `nki.collectives`."""
    found: dict[str, Any] = {row.name: _function(row) for row in rows.ROWS}
    found["ReplicaGroup"] = ReplicaGroup
    return found


def _function(row: Row) -> Callable[..., Any]:
    """The function a kernel calls for a row."""
    record = recorder(row)
    channels = tuple(name for name in row.lists if name.endswith("_by_channel"))
    metadata = any(operand.name == "metadata_tensor" for operand in row.operands)

    def call(*args: Any, **kwargs: Any) -> Any:
        trace = current(f"nki.collectives.{row.name}")
        names = [param.name for param in row.parameters(trace.release) if param.name not in rows.HIDDEN]
        given = _bound(row, names, args, kwargs, trace.release)
        for param in row.signature:
            if param.name in names and param.default is REQUIRED and param.name not in given:
                raise Refusal(f"{row.name}: argument {param.name!r} is missing")
        if "replica_group" in given:
            given["replica_group"] = _ranks(row.name, given["replica_group"])
        if channels:
            given["counts"] = tuple(_flatten(row.name, given, name) for name in channels)
        if metadata:
            _split_metadata(row, given)
        made = record(**given)
        return made if row.registers else None

    call.__name__ = call.__qualname__ = row.name
    shown = [param.name for param in row.signature if param.name not in rows.HIDDEN]
    call.__doc__ = f"{row.name}({', '.join(shown)})"
    return call


def _bound(
    row: Row, names: list[str], args: tuple[Any, ...], kwargs: dict[str, Any], release: Release
) -> dict[str, Any]:
    """All arguments by name."""
    if len(args) > len(names):
        raise Refusal(f"{row.name}: takes {len(names)} arguments, got {len(args)}")
    given = dict(zip(names, args, strict=False))
    for name, value in kwargs.items():
        if name not in names:
            if name not in rows.HIDDEN and any(name == param.name for param in row.signature):
                raise unknown(row, name, release)
            raise Refusal(f"{row.name}: unknown argument {name!r}, expected {', '.join(names)}")
        if name in given:
            raise Refusal(f"{row.name}: argument {name!r} is given twice")
        given[name] = value
    return given


def _ranks(row: str, group: Any) -> tuple[tuple[int, ...], ...]:
    if not isinstance(group, ReplicaGroup):
        raise Refusal(f"{row}: replica_group must be a ReplicaGroup, got {type(group).__name__}")
    return tuple(tuple(ranks) for ranks in group.groups)


def _flatten(row: str, given: dict[str, Any], name: str) -> tuple[int, ...]:
    """The tensors of all channels in one list; how many each channel has."""
    channels = given[name]
    if not isinstance(channels, list | tuple) or not all(isinstance(each, list | tuple) for each in channels):
        raise Refusal(f"{row}: {name} must be a list with a list of tensors for each channel")
    given[name] = [tensor for channel in channels for tensor in channel]
    return tuple(len(channel) for channel in channels)


def _split_metadata(row: Row, given: dict[str, Any]) -> None:
    """Name the rows of a metadata tensor; one of another shape stays whole, which `verify` refuses."""
    tensor = given["metadata_tensor"]
    if not isinstance(tensor, NkiTensor):
        raise Refusal(f"{row.name}: metadata_tensor must be a tensor, got {type(tensor).__name__}")
    shape = given["metadata_shape"] = tensor.shape
    chip = tensor.on_chip
    needed = 4 if given.get("has_rdispls") else 3
    if len(shape) != (3 if chip else 2) or shape[-2] < needed or (chip and shape[0] != 1):
        return

    def part(start: int, stop: int, columns: int) -> NkiTensor:
        found: NkiTensor = tensor[0:1, start:stop, 0:columns] if chip else tensor[start:stop, 0:columns]
        return found

    ranks = shape[-1]
    given["metadata_tensor"] = part(0, 2, 1 if row.name == "all_gather_v" else ranks)
    if not given.get("recv_counts_known"):
        given["recv_counts"] = part(2, 3, ranks)
    if given.get("has_rdispls"):
        given["recv_displs"] = part(3, 4, ranks)
