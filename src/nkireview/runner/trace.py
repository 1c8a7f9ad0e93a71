"""Entry points that run in a child process: they import the submission, trace a kernel and hand back plain data."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nkireview.isa.release import Release
from nkireview.nki import launch, modules, stubs
from nkireview.nki.dtypes import of
from nkireview.nki.errors import NotYetSupported, Refusal
from nkireview.nki.legacy import modules as legacy
from nkireview.nki.legacy.front import Entry, entry_of, launched, note_parameters, run_instances
from nkireview.nki.tensor import NkiTensor
from nkireview.nki.trace import Trace, loading
from nkireview.program.codec import save
from nkireview.program.errors import ProgramError
from nkireview.program.model import Header
from nkireview.program.tree import EnumLeaf, Group, Node, ScalarLeaf, TensorLeaf, from_json, leaves
from nkireview.runner.load import LoadError, load_module

TARGET_VARIABLE = "NEURON_PLATFORM_TARGET_OVERRIDE"
Response = tuple[dict[str, Any], list[bytes]]


def trace(header: dict[str, Any], blobs: list[bytes]) -> Response:
    """Trace one kernel.

    header: file, kernel, target, release, lnc, parameters (a tree of `program.tree`, a tuple of the positional
    arguments and a dict of the keyword ones), tensors ([shape, dtype] for each tensor leaf), paths (folders for
    imports), grid (the shape of the launch grid), launch (the grid of a legacy kernel as it was asked for, empty where
    the file's own counts), absent (roots of a generation that cannot be imported). The response is the program as one
    blob, or an ``error`` with kind, message, file and line; kind is unsupported, refused, raised, import, limits or
    missing, whose message is the name of a module that is not found.
    """
    # a trace makes many objects and few cycles
    gc.set_threshold(200_000)
    state = Trace(header["target"], Release.parse(header["release"]), header["lnc"], tuple(header["grid"]))
    sys.path[:0] = header["paths"]
    modules.install()
    stubs.install()
    legacy.install()
    for name in header.get("absent", ()):
        _hide(name)
    sys.breakpointhook = _no_debugger
    try:
        with loading(state):
            module = load_module(Path(header["file"]))
            entry = _entry(module, header["kernel"])
        program = _trace(state, entry, header)
    except MemoryError:
        raise
    except BaseException as error:
        return {"error": _describe(error), "stubs": list(stubs.used)}, []
    found = {"stubs": list(stubs.used), "file_target": os.environ.get(TARGET_VARIABLE)}
    return found, [program]


def _no_debugger(*args: Any, **kwargs: Any) -> None:
    """What ``breakpoint()`` does where nobody sits at a terminal."""


def _hide(root: str) -> None:
    """Let imports of a module and of what is below it fail, so that a file takes its other way."""
    for name in [root, *(name for name in sys.modules if name.startswith(f"{root}."))]:
        sys.modules[name] = None  # type: ignore[assignment]


def _entry(module: Any, name: str) -> Entry:
    found = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is None:
        raise LoadError(f"{module.__file__} has no kernel {name!r}")
    if not callable(found):
        raise LoadError(f"{name!r} in {module.__file__} is a {type(found).__name__}, expected a function")
    return entry_of(found)


def _trace(before: Trace, entry: Entry, header: Mapping[str, Any]) -> bytes:
    grid = launched(entry, header["kernel"], before, header.get("launch", ""))
    state = before if grid is None else Trace(before.hardware.name, before.release, grid.lnc, grid.shape)
    parameters = from_json(header["parameters"])
    buffers = _parameter_buffers(state, parameters, header["tensors"])

    def arguments() -> tuple[list[Any], dict[str, Any]]:
        args, kwargs = (_rebuild(state, item, buffers) for item in _items(parameters))
        return list(args), kwargs

    paths = {leaf.buffer: path for path, leaf in leaves(parameters) if isinstance(leaf, TensorLeaf)}
    if grid is None:
        returned = launch.run_cores(state, entry.function, arguments)
    else:
        returned = run_instances(state, grid, entry.function, arguments, launch.run_kernel)
        note_parameters(state, entry.function, returned, paths)
    outputs = tuple(launch.outputs(state, returned, paths))
    kept = Header(
        kernel=header["kernel"],
        target=state.hardware.name,
        release=str(state.release),
        lnc=state.lnc,
        grid=state.grid,
        scalars=tuple(
            (path, leaf.value) for path, leaf in leaves(parameters) if isinstance(leaf, ScalarLeaf)
        ),
        sources=tuple(state.places.sources),
    )
    return save(state.builder.finish(kept, parameters, outputs))


def _items(parameters: Node) -> tuple[Node, Node]:
    if not isinstance(parameters, Group) or len(parameters.items) != 2:
        raise ProgramError("the parameters must be a pair of positional and keyword arguments")
    return parameters.items[0], parameters.items[1]


def _parameter_buffers(state: Trace, parameters: Node, tensors: list[Any]) -> dict[int, Any]:
    found = {}
    for path, leaf in leaves(parameters):
        if isinstance(leaf, TensorLeaf):
            shape, dtype = tensors[leaf.buffer]
            buffer = state.builder.buffer(
                memory=launch.parameter_memory(state.lnc),
                shape=tuple(shape),
                dtype=str(of(dtype, path)),
                core=None,
                name=path.rsplit(".", 1)[-1],
            )
            if buffer.id != leaf.buffer:
                raise ProgramError(f"parameter {path} must be buffer {leaf.buffer}, is {buffer.id}")
            found[leaf.buffer] = buffer
    return found


def _rebuild(state: Trace, node: Node, buffers: Mapping[int, Any]) -> Any:
    if isinstance(node, TensorLeaf):
        return NkiTensor.whole(state, buffers[node.buffer])
    if isinstance(node, ScalarLeaf):
        return node.value
    if isinstance(node, EnumLeaf):
        return _class(node.cls)[node.member]
    items = [_rebuild(state, item, buffers) for item in node.items]
    if node.kind == "list":
        return items
    if node.kind == "tuple":
        return tuple(items)
    fields = dict(zip(node.keys, items, strict=True))
    if node.kind == "dict":
        return fields
    made = object.__new__(_class(node.cls))
    for name, value in fields.items():
        object.__setattr__(made, name, value)
    return made


def _class(path: str) -> Any:
    module, _, qualname = path.partition(":")
    found: Any = sys.modules.get(module) or importlib.import_module(module)
    for part in qualname.split("."):
        found = getattr(found, part)
    return found


def _describe(error: BaseException) -> dict[str, Any]:
    absent = error.__context__ if isinstance(error, LoadError) else error
    if isinstance(absent, ModuleNotFoundError) and absent.name:
        file, line = (error.file, error.line) if isinstance(error, LoadError) else launch.user_frame(error)
        return {"kind": "missing", "message": absent.name[:200], "file": file, "line": line}
    kinds: tuple[tuple[type[BaseException], str], ...] = (
        (NotYetSupported, "unsupported"),
        (LoadError, "import"),
        (Refusal, "refused"),
        (ProgramError, "limits"),
    )
    kind = next((name for kind, name in kinds if isinstance(error, kind)), "raised")
    message = str(error) or type(error).__name__
    if kind == "raised":
        message = f"{type(error).__name__}: {message}" if str(error) else type(error).__name__
    file, line = launch.user_frame(error)
    return {"kind": kind, "message": message[:2000], "file": file, "line": line}
