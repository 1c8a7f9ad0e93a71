"""Facts read from a kernel's source text. It is parsed, never imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path

MAX_BYTES = 16 * 2**20
TARGET_VARIABLE = "NEURON_PLATFORM_TARGET_OVERRIDE"
DECORATORS = ("jit", "nki_jit", "trace", "baremetal", "benchmark", "profile")
PACKAGES = ("nki", "neuronxcc", "torch_neuronx")
"""Where decorators come from."""


class SourceError(ValueError):
    """A file that cannot be judged as a kernel's source; one sentence."""


@dataclass(frozen=True)
class Definition:
    """A function defined at the top of the file; `kernel` where a decorator of nki marks it."""

    name: str
    line: int
    kernel: bool
    parameters: tuple[str, ...] = ()


@dataclass(frozen=True)
class Import:
    """One imported module; `bound` is the name it is known by, `guarded` where a ``try`` surrounds it."""

    module: str
    name: str
    bound: str
    line: int
    guarded: bool

    @property
    def root(self) -> str:
        """The top-level package; empty for a relative import."""
        return self.module.split(".")[0]


@dataclass(frozen=True)
class SourceFacts:
    """What the text alone says."""

    path: Path
    sha256: str
    definitions: tuple[Definition, ...]
    target: str | None
    legacy: bool
    tree: ast.Module = field(default_factory=lambda: ast.Module([], []), repr=False, compare=False)

    def parameters(self, name: str) -> tuple[str, ...]:
        """Parameter names of a function, in order; empty where it is not defined here."""
        name = self.wrapped.get(name, name)
        return next((item.parameters for item in self.definitions if item.name == name), ())

    def target_of(self, kernel: str) -> str | None:
        """The target that the file sets or, before NKI 0.3, a kernel's decorator."""
        function = self.functions.get(kernel)
        if self.target is not None or function is None:
            return self.target
        for node in function.decorator_list:
            for item in node.keywords if isinstance(node, ast.Call) else ():
                if item.arg == "platform_target" and isinstance(item.value, ast.Constant):
                    return str(item.value.value)
        return None

    @property
    def kernels(self) -> tuple[str, ...]:
        """Names of the decorated functions."""
        return tuple(item.name for item in self.definitions if item.kernel)

    def at(self, line: int) -> str:
        """``file:line``, as a Program spells a place."""
        return f"{self.path.name}:{line}"

    @cached_property
    def imports(self) -> tuple[Import, ...]:
        """Every import of the file, in order."""
        return tuple(_imports(self.tree.body, guarded=False))

    @cached_property
    def wrapped(self) -> dict[str, str]:
        """Names at the top of the file that stand for a decorated function: ``bench = nki.benchmark(kernel)[2]``."""
        return dict(_wrapped(self.tree))

    @cached_property
    def functions(self) -> dict[str, ast.FunctionDef]:
        """The functions at the top of the file, by name and by the names that stand for them; the last of several."""
        found = {node.name: node for node in self.tree.body if isinstance(node, ast.FunctionDef)}
        return found | {name: found[inner] for name, inner in self.wrapped.items() if inner in found}

    def reachable(self, kernel: str) -> tuple[ast.FunctionDef, ...]:
        """The kernel and the functions of this file that it, or one of those, mentions by name."""
        found: dict[str, ast.FunctionDef] = {}
        left = [kernel]
        while left:
            function = self.functions.get(left.pop())
            if function is None or function.name in found:
                continue
            found[function.name] = function
            left.extend(node.id for node in ast.walk(function) if isinstance(node, ast.Name))
        return tuple(sorted(found.values(), key=lambda node: node.lineno))


def read_source(path: Path) -> SourceFacts:
    """Parse a file; SourceError where it is missing, too large or not Python."""
    if not path.exists():
        raise SourceError(f"{path}: no such file; expected a Python file with a kernel")
    if not path.is_file():
        raise SourceError(f"{path}: not a file; expected a Python file with a kernel")
    if path.stat().st_size > MAX_BYTES:
        raise SourceError(
            f"{path}: {path.stat().st_size} bytes, more than the {MAX_BYTES} that a source file may have"
        )
    data = path.read_bytes()
    try:
        tree = ast.parse(data, filename=str(path))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        where = f"{path}:{line}" if line else str(path)
        raise SourceError(f"{where}: not Python: {getattr(error, 'msg', None) or error}") from None
    return SourceFacts(
        path=path,
        sha256=sha256(data).hexdigest(),
        definitions=tuple(_definitions(tree)),
        target=_target(tree),
        legacy=_legacy(tree),
        tree=tree,
    )


def choose_kernel(facts: SourceFacts, wanted: str | None) -> str:
    """The kernel to review; SourceError where there is none, or several and none named."""
    functions = [item.name for item in facts.definitions]
    if wanted is not None:
        if wanted in functions or "." in wanted or _imported(facts.path, wanted):
            return wanted
        known = f"its functions are {', '.join(functions)}" if functions else "it has no function at all"
        raise SourceError(f"{facts.path}: has no function {wanted!r}; {known}")
    kernels = list(facts.kernels)
    if len(kernels) == 1:
        return kernels[0]
    if not kernels:
        hint = f"; name one of its functions with --kernel: {', '.join(functions)}" if functions else ""
        raise SourceError(f"{facts.path}: has no kernel, that is no function decorated with nki.jit{hint}")
    raise SourceError(
        f"{facts.path}: has {len(kernels)} kernels ({', '.join(kernels)}); name one with --kernel"
    )


def _definitions(tree: ast.Module) -> list[Definition]:
    found = []
    spelled = _spellings(tree)
    wrapped = set(dict(_wrapped(tree)).values())
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            marked = node.name in wrapped or any(_decorates(item, spelled) for item in node.decorator_list)
            names = tuple(item.arg for item in (*node.args.posonlyargs, *node.args.args))
            found.append(Definition(node.name, node.lineno, marked, names))
    return found


def _imports(body: list[ast.stmt], guarded: bool) -> Iterator[Import]:
    for node in body:
        if isinstance(node, ast.Import):
            for item in node.names:
                bound = item.asname or item.name.split(".")[0]
                yield Import(item.name, "", bound, node.lineno, guarded)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            for item in node.names:
                yield Import(module, item.name, item.asname or item.name, node.lineno, guarded)
        for name in ("body", "orelse", "finalbody"):
            inside = getattr(node, name, [])
            if isinstance(inside, list):
                yield from _imports(inside, guarded or isinstance(node, ast.Try))
        for handler in getattr(node, "handlers", ()):
            yield from _imports(handler.body, guarded=True)


def _wrapped(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """(name, function) of ``name = nki.jit(function)``, ``name = nki.benchmark(warmup=5)(function)``, ``name =
    function[4, 2]`` and the like.
    """
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    spelled = _spellings(tree)
    known: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            inner = _inner(node.value, functions, known, spelled)
            if inner and not isinstance(node.value, ast.Name):
                known[node.targets[0].id] = inner
                yield node.targets[0].id, inner


def _inner(node: ast.expr, functions: set[str], known: dict[str, str], spelled: set[str]) -> str:
    """The function that an expression makes a kernel of; empty for any other expression."""
    if isinstance(node, ast.Name):
        return known.get(node.id, node.id if node.id in functions else "")
    if isinstance(node, ast.Subscript):
        return _inner(node.value, functions, known, spelled)
    if isinstance(node, ast.Call) and _decorates(node.func, spelled):
        given = [*node.args[:1], *(item.value for item in node.keywords if item.arg in ("func", "kernel"))]
        return _inner(given[0], functions, known, spelled) if given else ""
    return ""


def _spellings(tree: ast.Module) -> set[str]:
    """The names of a file that stand for NKI or for one of its decorators."""
    found = {*PACKAGES, "jit", "nki_jit"}
    for item in _imports(tree.body, guarded=False):
        if item.root in PACKAGES and (not item.name or item.name in ("nki", *DECORATORS)):
            found.add(item.bound)
    return found


def _decorates(node: ast.expr, spelled: set[str]) -> bool:
    """True for what makes a kernel of a function: ``nki.jit``, ``nki.jit(mode=...)``, ``nki_jit`` and the like."""
    called = node.func if isinstance(node, ast.Call) else node
    if isinstance(called, ast.Attribute):
        return called.attr in DECORATORS and _root(called) in spelled
    return isinstance(called, ast.Name) and called.id in spelled - set(PACKAGES)


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _target(tree: ast.Module) -> str | None:
    """The value of a top-level ``os.environ["NEURON_PLATFORM_TARGET_OVERRIDE"] = "..."``."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            for target in node.targets:
                if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
                    if target.slice.value == TARGET_VARIABLE and isinstance(node.value.value, str):
                        return node.value.value
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            call = node.value
            if (
                isinstance(call.func, ast.Attribute)
                and call.func.attr == "setdefault"
                and len(call.args) == 2
            ):
                name, value = call.args
                if (
                    isinstance(name, ast.Constant)
                    and name.value == TARGET_VARIABLE
                    and isinstance(value, ast.Constant)
                ):
                    return str(value.value)
    return None


def _legacy(tree: ast.Module) -> bool:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and any(item.name.startswith("neuronxcc.nki") for item in node.names):
            return True
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("neuronxcc.nki"):
            return True
        if isinstance(node, ast.ImportFrom) and node.module == "neuronxcc":
            if any(item.name == "nki" for item in node.names):
                return True
    return False


def _imported(path: Path, name: str) -> bool:
    """True where the file imports or assigns the name at its top."""
    for node in ast.parse(path.read_bytes()).body:
        if isinstance(node, ast.ImportFrom | ast.Import):
            if any((item.asname or item.name) == name for item in node.names):
                return True
        if isinstance(node, ast.Assign):
            if any(isinstance(target, ast.Name) and target.id == name for target in node.targets):
                return True
    return False
