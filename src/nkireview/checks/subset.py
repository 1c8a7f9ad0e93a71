"""Python that NKI kernels may not use, dependences that a legacy parallel loop carries, and calls into the host."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from nkireview.checks.source import SourceFacts
from nkireview.isa.release import Release, Span

GUIDE = "aws-neuron-sdk nki/get-started/nki-language-guide.rst"
MIGRATION = "aws-neuron-sdk nki/migration/index.rst"
SIMULATOR = "aws-neuron-sdk nki/guides/nki_simulator.rst:153-160"
SINCE_03 = Span(since=Release(0, 3))
SINCE_02 = Span(since=Release(0, 2))
HOST_MODULES = frozenset({"random", "time", "datetime", "uuid", "secrets"})
NO_TILES = frozenset(
    {
        *("affine_range", "sequential_range", "static_range", "arange", "mgrid", "ds", "par_dim"),
        *("program_id", "num_programs", "program_ndim", "device_print"),
    }
)
"""What NKI calls give that is no tile: numbers, indices, loops."""
MUTATORS = frozenset({"append", "extend", "insert", "update", "setdefault", "add", "pop", "clear", "remove"})


@dataclass(frozen=True)
class Construct:
    """A construct outside the language: what it is, where, the releases that refuse it, the document."""

    what: str
    line: int
    releases: Span
    source: str


@dataclass(frozen=True)
class Carried:
    """A tile that every iteration of an affine_range writes at one place; `line` is that of the loop.

    reads: whether it reads the tile too.
    """

    name: str
    line: int
    written: int
    reads: bool = True


@dataclass(frozen=True)
class HostCall:
    """A call whose answer is the host's own: a clock or a random number."""

    name: str
    line: int


def constructs(source: SourceFacts, kernel: str) -> tuple[Construct, ...]:
    """What the kernel and the functions that it mentions use beyond the language, in order of their lines."""
    found = [item for function in source.reachable(kernel) for item in _constructs(function)]
    found.extend(_mutations(source, kernel))
    return tuple(sorted(set(found), key=lambda item: (item.line, item.what)))


def _constructs(function: ast.FunctionDef) -> Iterator[Construct]:
    if function.args.kwonlyargs:
        where = f"{MIGRATION}:683-699"
        yield Construct("keyword-only parameters", function.lineno, SINCE_03, where)
    for default in (*function.args.defaults, *function.args.kw_defaults):
        if isinstance(default, ast.List):
            where = f"{MIGRATION}:719-739"
            yield Construct("a list as the default of a parameter", default.lineno, SINCE_03, where)
    for node in ast.walk(function):
        what = _NAMES.get(type(node))
        if what is not None:
            yield Construct(what, node.lineno, SINCE_02, f"{GUIDE}:55")  # type: ignore[attr-defined]
        elif isinstance(node, ast.ClassDef):
            yield Construct("a class inside a function", node.lineno, SINCE_02, f"{GUIDE}:572-576")
        elif isinstance(node, ast.Global | ast.Nonlocal):
            kind = "global" if isinstance(node, ast.Global) else "nonlocal"
            yield Construct(f"{kind} {', '.join(node.names)}", node.lineno, SINCE_02, f"{GUIDE}:116")
        elif isinstance(node, ast.Dict):
            keys = [key for key in node.keys if isinstance(key, ast.Constant)]
            if any(not isinstance(key.value, str) for key in keys):
                yield Construct(
                    "a dictionary with keys that are no strings", node.lineno, SINCE_02, f"{GUIDE}:179"
                )
        elif isinstance(node, ast.Call) and _dotted(node.func) == "breakpoint":
            yield Construct("breakpoint, a call of the debugger", node.lineno, SINCE_02, SIMULATOR)
        elif isinstance(node, ast.Compare) and any(isinstance(op, ast.Is | ast.IsNot) for op in node.ops):
            sides = (node.left, *node.comparators)
            if not any(isinstance(side, ast.Constant) and side.value is None for side in sides):
                yield Construct("'is' between values", node.lineno, SINCE_03, f"{MIGRATION}:701-716")


_NAMES: dict[type[ast.AST], str] = {
    ast.Try: "try and except",
    ast.Yield: "a generator",
    ast.YieldFrom: "a generator",
    ast.Await: "await",
    ast.AsyncFor: "async for",
    ast.AsyncWith: "async with",
    ast.AsyncFunctionDef: "an async function",
}


def _mutations(source: SourceFacts, kernel: str) -> Iterator[Construct]:
    """Writes to containers that live at the top of the file."""
    held = {
        target.id
        for node in source.tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for function in source.reachable(kernel):
        local = _bound(function)
        for node in ast.walk(function):
            name = _mutated(node)
            if name in held and name not in local:
                line = node.lineno  # type: ignore[attr-defined]
                yield Construct(f"a change of the global {name}", line, SINCE_02, f"{GUIDE}:116")


def _mutated(node: ast.AST) -> str:
    """The name whose content a node changes."""
    if isinstance(node, ast.Assign | ast.AugAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
                return target.value.id
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MUTATORS:
        if isinstance(node.func.value, ast.Name):
            return node.func.value.id
    return ""


def _bound(function: ast.FunctionDef) -> frozenset[str]:
    """Parameters and names assigned in a function."""
    arguments = function.args
    names = {item.arg for item in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return frozenset(names)


def host_calls(source: SourceFacts, kernel: str) -> tuple[HostCall, ...]:
    """Calls of clocks and random numbers in the kernel and the functions that it mentions."""
    modules = {item.bound: item.module for item in source.imports if not item.name}
    members = {item.bound: f"{item.module}.{item.name}" for item in source.imports if item.name}
    found = []
    for function in source.reachable(kernel):
        for node in ast.walk(function):
            if isinstance(node, ast.Call):
                name = _dotted(node.func)
                head, _, tail = name.partition(".")
                full = members.get(head, "") + (f".{tail}" if tail else "") if head in members else ""
                full = full or (f"{modules[head]}.{tail}" if head in modules and tail else "")
                if full.split(".")[0] in HOST_MODULES or full.startswith("numpy.random."):
                    found.append(HostCall(full, node.lineno))
    return tuple(found)


def _dotted(node: ast.expr) -> str:
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return ".".join((node.id, *reversed(names))) if isinstance(node, ast.Name) else ""


def carried(source: SourceFacts, kernel: str) -> tuple[Carried, ...]:
    """Tiles made outside an affine_range that each of its iterations both reads and writes.

    An accumulation by nc_matmul, ``+=`` of a matmul, and what is first written whole inside the loop are none.
    """
    found: list[Carried] = []
    for function in source.reachable(kernel):
        for node in ast.walk(function):
            if isinstance(node, ast.For) and _is_affine(node.iter):
                found.extend(_carried(function, node))
    return tuple(found)


def rewritten(source: SourceFacts, kernel: str) -> tuple[Carried, ...]:
    """Tiles made outside an affine_range that each of its iterations assigns at one place, without reading them there.

    See err_unexpected_output_dependencies, nki.errors.rst at tag v2.26.1:775-810.
    """
    known = {(item.name, item.line) for item in carried(source, kernel)}
    found: list[Carried] = []
    for function in source.reachable(kernel):
        for loop in ast.walk(function):
            if isinstance(loop, ast.For) and _is_affine(loop.iter):
                for name, line in _rewritten(function, loop):
                    if (name, loop.lineno) not in known:
                        found.append(Carried(name, loop.lineno, line, reads=False))
    return tuple(found)


def rebound(source: SourceFacts, kernel: str) -> tuple[Carried, ...]:
    """Names of tiles made outside an affine_range that its body reads and then binds to another tile.

    Each iteration reads the tile of the one before it. ``+=`` and ``nl.loop_reduce`` are sums that the compiler knows.
    """
    spelled = {item.bound for item in source.imports if item.root == "neuronxcc"}
    found: list[Carried] = []
    for function in source.reachable(kernel):
        for loop in ast.walk(function):
            if isinstance(loop, ast.For) and _is_affine(loop.iter):
                for name in sorted(_tiles(function, loop, spelled)):
                    line = _rebound(loop, name)
                    if line:
                        found.append(Carried(name, loop.lineno, line))
    return tuple(found)


def _tiles(function: ast.FunctionDef, loop: ast.For, spelled: set[str]) -> set[str]:
    """The names that a function binds before a loop to what a call of NKI gives, and to nothing else there."""
    tiles: set[str] = set()
    others: set[str] = set()
    for node in ast.walk(function):
        if not isinstance(node, ast.Assign) or node.lineno >= loop.lineno:
            continue
        for target in node.targets:
            if isinstance(target, ast.Name):
                made = isinstance(node.value, ast.Call) and _gives_tile(_dotted(node.value.func), spelled)
                (tiles if made else others).add(target.id)
    return tiles - others


def _gives_tile(called: str, spelled: set[str]) -> bool:
    root, _, rest = called.partition(".")
    return root in spelled and bool(rest) and rest.split(".")[-1] not in NO_TILES


def _rebound(loop: ast.For, name: str) -> int:
    """The line that first binds a name which was read before it in a loop's body; 0 where none does."""
    read = False
    for kind, line in _events(loop.body, name):
        if kind == "write":
            return line if read else 0
        read = True
    return 0


def _events(body: list[ast.stmt], name: str) -> Iterator[tuple[str, int]]:
    """The reads and bindings of a name in statements, in order; of an assignment its value comes first."""
    for node in body:
        if isinstance(node, ast.Assign):
            if _reduces(node.value) or _copies(node.value, name):
                continue
            if _mentions(node.value, name):
                yield "read", node.lineno
            if any(
                isinstance(item, ast.Name) and item.id == name and isinstance(item.ctx, ast.Store)
                for target in node.targets
                for item in ast.walk(target)
            ):
                yield "write", node.lineno
        elif isinstance(node, ast.AugAssign):
            if _mentions(node.value, name):
                yield "read", node.lineno
        elif isinstance(node, ast.For | ast.While | ast.If | ast.With):
            yield from _events([*node.body, *getattr(node, "orelse", [])], name)
        elif _mentions(node, name):
            yield "read", node.lineno


def _copies(node: ast.expr, name: str) -> bool:
    """True for a copy of the tile of that name, perhaps in another dtype: done again, it changes nothing."""
    if not isinstance(node, ast.Call) or _dotted(node.func).split(".")[-1] not in ("copy", "tensor_copy"):
        return False
    return bool(node.args) and isinstance(node.args[0], ast.Name) and node.args[0].id == name


def _mentions(node: ast.AST, name: str) -> bool:
    return any(isinstance(item, ast.Name) and item.id == name for item in ast.walk(node))


def _rewritten(function: ast.FunctionDef, loop: ast.For) -> Iterator[tuple[str, int]]:
    made, moving = _outside(function, loop)
    told: set[str] = set()
    for node in _unconditional(loop):
        if isinstance(node, ast.Assign) and not _reduces(node.value):
            for target in node.targets:
                name = _base(target)
                if name in made - told and _stored(target, name, moving):
                    told.add(name)
                    yield name, node.lineno


def _reduces(node: ast.expr) -> bool:
    """True for ``nl.loop_reduce(...)``, which says that the iterations are combined."""
    return isinstance(node, ast.Call) and _dotted(node.func).split(".")[-1] == "loop_reduce"


def _base(node: ast.expr) -> str:
    """The name of which an element is assigned."""
    return node.value.id if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) else ""


def _unconditional(node: ast.AST) -> Iterator[ast.AST]:
    """The statements below a node that no condition guards."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.If | ast.While):
            yield child
            yield from _unconditional(child)


def _is_affine(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and _dotted(node.func).split(".")[-1] == "affine_range"


def _outside(function: ast.FunctionDef, loop: ast.For) -> tuple[set[str], set[str]]:
    """The names that a call makes outside a loop and that it does not bind, and the names that move with the loop."""
    inside = {id(node) for node in ast.walk(loop)}
    made = {
        target.id
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and id(node) not in inside and isinstance(node.value, ast.Call)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    here = {
        target.id
        for node in ast.walk(loop)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return made - here, here | {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}


def _carried(function: ast.FunctionDef, loop: ast.For) -> Iterator[Carried]:
    made, moving = _outside(function, loop)
    for name in sorted(made):
        first = _first_carried(loop, name, moving)
        if first:
            yield Carried(name, loop.lineno, first)


def _first_carried(loop: ast.For, name: str, index: set[str]) -> int:
    """The line of the first statement that reads the tile and writes it again; 0 where none does."""
    fresh = False
    for node in sorted(_actions(loop), key=lambda node: (node.lineno, node.col_offset)):
        if isinstance(node, ast.Assign):
            names = {item.id for item in ast.walk(node.value) if isinstance(item, ast.Name)}
            if (
                name in names
                and not _reduces(node.value)
                and any(_stored(target, name, index) for target in node.targets)
            ):
                return node.lineno
            continue
        operation = _dotted(node.func).split(".")[-1]
        written = [item.value for item in node.keywords if item.arg == "dst"] or node.args[:1]
        read = [item.value for item in node.keywords if item.arg != "dst"] + node.args[1:]
        writes = any(_whole(value, name, index) for value in written)
        reads = any(_whole(value, name, index) for value in read)
        if writes and not reads and operation in ("memset", "dma_copy", "tensor_copy", "iota"):
            fresh = True
        if writes and reads and not fresh and operation not in ("nc_matmul", "nc_matmul_mx"):
            return node.lineno
    return 0


def _actions(loop: ast.For) -> Iterator[ast.Call | ast.Assign]:
    for node in ast.walk(loop):
        if isinstance(node, ast.Call | ast.Assign):
            yield node


def _stored(target: ast.expr, name: str, index: set[str]) -> bool:
    """True where an assignment writes elements of the tile, those that do not move with the loop."""
    return isinstance(target, ast.Subscript) and _whole(target, name, index)


def _whole(node: ast.expr, name: str, index: set[str]) -> bool:
    """True where an expression is the tile, or a part of it that does not move with the loop."""
    if isinstance(node, ast.Name):
        return node.id == name
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == name:
        return not any(isinstance(item, ast.Name) and item.id in index for item in ast.walk(node.slice))
    return False
