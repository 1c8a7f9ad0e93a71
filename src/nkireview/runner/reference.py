"""Entry for functions of a task's author: references and input generators, called in a child process."""

from __future__ import annotations

import inspect
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from nkireview.nki import modules, stubs
from nkireview.observed import observe
from nkireview.runner import layout, problem
from nkireview.runner.load import LoadError, innermost, load_module
from nkireview.runner.tree import FLOATS, Array, TreeError, decode, encode, rebuild
from nkireview.runner.worker import TEXT_LIMIT

Response = tuple[dict[str, Any], list[bytes]]


def call(header: dict[str, Any], blobs: list[bytes]) -> Response:
    """Call a function of a file: {"result": tree} with blobs, or {"error": {type, message, file, line}}.

    `type` is that of what the file raised; empty where the message is a sentence of ours.

    header: `file`, `function`, `arguments` (the encoded pair of positional arguments and keyword arguments),
    `float64` (floating arrays arrive as float64), `steps` (answer {"steps": [name, line, text, reads] of each of its
    steps, see `observed`, with their values as {"result"}), `seeded` (the one argument is a seed: it is passed as
    `seed` or as first argument if the function takes it, and NumPy's, Python's and torch's global generators are
    seeded with it), `blanks` (for each array of the arguments None, or the shape and dtype of zeros in its place),
    `views` (answer {"views"}, see `layout.views`, instead of a result).

    ``Model`` and ``get_inputs`` of a problem file are what `problem` makes of them; with a result comes then a `note`.
    """
    return prepare(header, [])(header, blobs)


def prepare(header: dict[str, Any], blobs: list[bytes]) -> Callable[[dict[str, Any], list[bytes]], Response]:
    """Import `file` and find `function`; what is returned calls it, with the rest of the header, as `call` does."""
    file = Path(header["file"])
    modules.install()
    # Last, so that only what is not installed is replaced: a file may import more than its reference needs.
    sys.meta_path.append(_Missing())
    try:
        module = load_module(file)
        function = _find(module, header["function"], file)
    except LoadError as error:
        failure = _error("", error.reason, error.file, error.line)
        return lambda header, blobs: (failure, [])
    return partial(_call, file, module, function)


class _Missing(stubs.StubFinder):
    """Stubs for packages that are not installed; what an installed one lacks stays missing, as it expects."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, dot, _ = fullname.partition(".")
        return None if dot and package not in stubs.used else super().find_spec(fullname, path, target)


def _call(
    file: Path,
    module: ModuleType,
    function: Callable[..., Any],
    header: dict[str, Any],
    blobs: list[bytes],
) -> Response:
    try:
        leaf: Callable[[Array], Array] = _as_float64 if header.get("float64") else np.array
        given: list[Array] = []
        blanks = header.get("blanks")
        if blanks is not None:
            leaf = _blanks(iter(blanks), leaf, given)
        args, kwargs = rebuild(decode(header["arguments"], blobs), leaf, module)
        if header.get("seeded"):
            args, kwargs = _seeded(function, args[0], kwargs)
        if header.get("steps"):
            found = observe(function, args, kwargs)[1]
            values, values_blobs = encode([_carried(each.values) for each in found], "steps")
            told = [[each.name, each.line, each.text, list(each.reads)] for each in found]
            return {"result": values, "steps": told}, values_blobs
        made = function(*args, **kwargs)
        if header.get("views"):
            return {"views": layout.views(made, given)}, []
        result, result_blobs = encode(made, "result")
    except TreeError as error:
        return _error("", str(error), str(file), 0), []
    except MemoryError:
        raise
    except Exception as error:
        return _error(type(error).__name__, _text(error), *innermost(error, file.resolve().parent)), []
    note = function.note if isinstance(function, problem.Forward) else ""
    return {"result": result, "note": note}, result_blobs


def _find(module: ModuleType, name: str, file: Path) -> Callable[..., Any]:
    found = getattr(module, name, None)
    if found is None:
        functions = inspect.getmembers(module, inspect.isfunction)
        defined = [each for each, value in functions if value.__module__ == module.__name__]
        raise LoadError(f"{file}: no function {name!r}; it defines {', '.join(defined) or 'none'}")
    if name in (problem.MODEL, problem.INPUTS) and problem.is_problem(module):
        return problem.function_of(module, name, file)
    if not callable(found):
        raise LoadError(f"{file}: {name!r} is of type {type(found).__name__}, expected a function")
    return found  # type: ignore[no-any-return]


def _blanks(
    blanks: Iterator[list[Any] | None], leaf: Callable[[Array], Array], given: list[Array]
) -> Callable[[Array], Array]:
    """Each array as it came or, where a shape and dtype are named for it, blank; all of them are noted in `given`."""

    def made(array: Array) -> Array:
        named = next(blanks)
        given.append(leaf(array) if named is None else layout.blank(*named))
        return given[-1]

    return made


def _carried(values: Array) -> Array:
    return values if values.dtype.kind in "iub" else values.astype(np.float64)


def _as_float64(array: Array) -> Array:
    return array.astype(np.float64 if array.dtype.name in FLOATS else array.dtype)


def _seeded(
    function: Callable[..., Any], seed: int, kwargs: dict[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    random.seed(seed)
    np.random.seed(seed % (1 << 32))
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(seed)
    parameters = inspect.signature(function).parameters
    if "seed" in parameters and parameters["seed"].kind is not inspect.Parameter.POSITIONAL_ONLY:
        return [], {**kwargs, "seed": seed}
    positional = (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.VAR_POSITIONAL,
    )
    takes_one = any(each.kind in positional and name not in kwargs for name, each in parameters.items())
    return [seed] if takes_one else [], kwargs


def _text(error: Exception) -> str:
    try:
        return str(error)[:TEXT_LIMIT]
    except Exception:  # the text of an untrusted exception may itself raise
        return "<no printable message>"


def _error(kind: str, message: str, file: str, line: int) -> dict[str, Any]:
    missing = sorted({name.split(".", 1)[0] for name in stubs.used})
    if missing:
        message += f" (not installed here, so that its names are stand-ins: {', '.join(missing)})"
    return {"error": {"type": kind, "message": message, "file": file, "line": line}}
