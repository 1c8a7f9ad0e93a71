"""What every way to launch a kernel shares: calling it once a core, its outputs, the user's line of an error."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from nkireview.isa.enums import Memory
from nkireview.isa.table import ROWS
from nkireview.nki.objects import NKIObject
from nkireview.nki.tensor import NkiTensor
from nkireview.nki.trace import SCHEDULE, Trace, tracing
from nkireview.program.model import Output

WRITTEN = {name: tuple(operand.role.writes for operand in row.operands) for name, row in ROWS.items()}
_OWN = str(Path(__file__).resolve().parent.parent)


def parameter_memory(lnc: int) -> Memory:
    """Where a tensor argument lies: cores that work together share it.

    Source: aws-neuron-sdk nki/guides/nki_simulator.rst:199-200.
    """
    return Memory.shared_hbm if lnc > 1 else Memory.hbm


def run_kernel(function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Call the kernel; places end at this frame."""
    return function(*args, **kwargs)


def run_cores(
    state: Trace, function: Callable[..., Any], arguments: Callable[[], tuple[list[Any], dict[str, Any]]]
) -> Any:
    """Trace the kernel once for each core, each with arguments of its own; what core 0 returned."""
    returned: Any = None
    with tracing(state):
        for core in range(state.lnc):
            state.start_core(core)
            args, kwargs = arguments()
            with state.builder.stream(core):
                result = run_kernel(function, args, kwargs)
                state.end_core(getattr(function, SCHEDULE, ()))
            returned = result if core == 0 else returned
    return returned


def outputs(state: Trace, returned: Any, paths: Mapping[int, str]) -> Iterator[Output]:
    """The returned tensors or, of a kernel that returns none, the parameters it writes.

    paths: the path of each parameter, by buffer.
    """
    found = list(returned_tensors(returned))
    for name, tensor in found:
        yield Output(tensor.access(), paths.get(tensor.storage.id), name or "out")
    if not found:
        for buffer in sorted(state.builder.written(WRITTEN) & set(paths)):
            tensor = NkiTensor.whole(state, state.builder.buffers[buffer])
            yield Output(tensor.access(), paths[buffer], paths[buffer])


def returned_tensors(value: Any, path: str = "") -> Iterator[tuple[str, NkiTensor]]:
    """Each tensor in what a kernel returned, with its dotted path."""
    if isinstance(value, NkiTensor):
        yield path, value
    elif isinstance(value, list | tuple):
        for at, item in enumerate(value):
            yield from returned_tensors(item, f"{path}.{at}" if path else f"out{at}")
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from returned_tensors(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, NKIObject) and not isinstance(value, Enum):
        for key, item in vars(value).items():
            yield from returned_tensors(item, f"{path}.{key}" if path else key)


def user_frame(error: BaseException) -> tuple[str, int]:
    """File and line of the innermost frame outside this package, ("", 0) where there is none."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((_OWN, "<"))
    ]
    return (frames[-1].filename, frames[-1].lineno or 0) if frames else ("", 0)
