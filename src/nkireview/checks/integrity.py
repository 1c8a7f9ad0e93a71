"""What a kernel file may touch outside itself: allowed modules and names, by which everything else is a trespass.

Only the text is read. Modules of the standard library and the names used of them are allowed one by one; packages of
others are not asked for, since no child that traces a kernel imports them. Hiding a name by spelling it in pieces is
a trespass itself.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

from nkireview.checks.source import SourceFacts

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_TABLE = tomllib.loads(
    resources.files("nkireview.checks").joinpath("allowed.toml").read_text(encoding="utf-8")
)
ALLOWED: dict[str, frozenset[str] | None] = {
    **dict.fromkeys(_TABLE["modules"]),
    **{module: frozenset(names) for module, names in _TABLE["names"].items()},
}
"""Modules of the standard library that may be used: whole, or only the names given."""
QUIET_OS, BUILTINS, READERS, DUNDERS, FRAMES, GUARDED = (
    frozenset(_TABLE[name]) for name in ("quiet_os", "builtins", "readers", "dunders", "frames", "guarded")
)
FILES = frozenset({"open"})
OURS = frozenset({"nkireview"})
LARGE_TABLE = 64
"""Numbers written out in one list of the source from which on it counts as a table."""


@dataclass(frozen=True)
class Trespass:
    """Something that a kernel file must not do: one sentence, its line, and what it is an instance of."""

    kind: str
    message: str
    line: int


@lru_cache(maxsize=16)
def forbidden(source: SourceFacts, kernel: str = "") -> tuple[Trespass, ...]:
    """What forbids to run a file, in order of its lines; empty where nothing does.

    The whole file is held to what it may import and store into; what is executed when it is imported, or when the
    kernel is traced, must moreover touch no file. `kernel` is the one to be traced; without it all decorated ones are.
    """
    scan = _Scan(source)
    executed = {id(node) for node in _executed(source, kernel)}
    found: dict[Trespass, None] = {}
    for node in ast.walk(source.tree):
        for kind, message in scan.judge(node, id(node) in executed):
            found[Trespass(kind, message, getattr(node, "lineno", 1))] = None
    return tuple(sorted(found, key=lambda item: (item.line, item.kind, item.message)))


def _executed(source: SourceFacts, kernel: str) -> Iterator[ast.AST]:
    """Everything that runs when the file is imported and the kernel is traced, functions by mention."""
    functions: dict[str, ast.AST] = {
        node.name: node for node in source.tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }
    left: list[ast.AST] = [
        functions[name] for name in ([kernel] if kernel else source.kernels) if name in functions
    ]
    for node in source.tree.body:
        if isinstance(node, ast.FunctionDef):
            left.extend(_at_definition(node))
        elif isinstance(node, ast.ClassDef):
            left.extend((*node.bases, *node.decorator_list))
            for item in node.body:
                left.extend(_at_definition(item) if isinstance(item, ast.FunctionDef) else (item,))
        elif not _is_main(node):
            left.append(node)
    seen: set[int] = set()
    while left:
        top = left.pop()
        if id(top) in seen:
            continue
        for inner in ast.walk(top):
            seen.add(id(inner))
            yield inner
            if isinstance(inner, ast.Name) and inner.id in functions and id(functions[inner.id]) not in seen:
                left.append(functions[inner.id])


def _at_definition(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """What runs when a function is defined: its decorators and defaults."""
    yield from function.decorator_list
    yield from function.args.defaults
    yield from (item for item in function.args.kw_defaults if item is not None)


def _is_main(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and any(
        isinstance(item, ast.Constant) and item.value == "__main__" for item in ast.walk(node.test)
    )


Found = Iterator[tuple[str, str]]
_ASKED = frozenset(
    {
        "getattr",
        "hasattr",
        "setattr",
        "delattr",
        "inspect.getsource",
        "inspect.getmembers",
        "importlib.reload",
    }
)


class _Scan:
    """What the names of a file stand for, and the judgement of one node."""

    def __init__(self, source: SourceFacts) -> None:
        self.modules: dict[str, str] = {}
        self.members: dict[str, str] = {}
        for item in source.imports:
            if not item.name:
                self.modules[item.bound] = (
                    item.module if item.bound != item.module.split(".")[0] else item.root
                )
            else:
                self.members[item.bound] = f"{item.module}.{item.name}"
        for node in ast.walk(source.tree):
            # imports inside functions bind names as well
            if isinstance(node, ast.Import):
                for alias in node.names:
                    root = alias.name.split(".")[0]
                    self.modules.setdefault(alias.asname or root, alias.name if alias.asname else root)
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    self.members.setdefault(alias.asname or alias.name, f"{node.module or ''}.{alias.name}")
        self.own = {
            name
            for node in ast.walk(source.tree)
            for name in _bound_names(node)
            if name.startswith("__") and name not in _INTERPRETER
        }
        self._bases = {id(node.value) for node in ast.walk(source.tree) if isinstance(node, ast.Attribute)}
        for node in ast.walk(source.tree):
            # a module may be asked for a name, or be given another one, which then stands for it
            if isinstance(node, ast.Call) and _dotted(node.func) in _ASKED:
                self._bases.update(id(item) for item in node.args[:1])
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name | ast.IfExp | ast.Attribute):
                self._rename(node)
        self._harmless = {id(node) for node in _harmless(source.tree)}
        self._judges = {
            ast.Import: self._import,
            ast.ImportFrom: self._import,
            ast.Assign: self._store,
            ast.AugAssign: self._store,
            ast.AnnAssign: self._store,
            ast.Delete: self._store,
            ast.Call: self._call,
            ast.Attribute: self._attribute,
            ast.Name: self._name,
            ast.Constant: self._constant,
        }

    def _rename(self, node: ast.Assign) -> None:
        """Note what the targets of an assignment stand for from now on, wherever they are used."""
        sides = (node.value.body, node.value.orelse) if isinstance(node.value, ast.IfExp) else (node.value,)
        names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        for side in sides:
            if isinstance(side, ast.Name) and side.id in self.modules:
                self._bases.add(id(side))
                self.modules.update(dict.fromkeys(names, self.modules[side.id]))
            elif self._module_of(side):
                self.members.update(dict.fromkeys(names, self._module_of(side)))

    def judge(self, node: ast.AST, executed: bool) -> Found:
        """What a node does that is not allowed."""
        found = self._judges.get(type(node))
        if found is not None:
            yield from found(node, executed)  # type: ignore[operator]

    def _import(self, node: ast.Import | ast.ImportFrom, executed: bool) -> Found:
        if isinstance(node, ast.ImportFrom):
            if node.level or not node.module:
                return
            module, names = node.module, [alias.name for alias in node.names]
            yield from self._module(module)
            allowed = ALLOWED.get(module)
            if allowed is not None:
                for name in names:
                    if name not in allowed:
                        yield (
                            "module",
                            f"imports {name} of {module}, which is not on the list of allowed names",
                        )
            elif f"{module.split('.')[0]}" in ("unittest", "importlib") and "mock" in names:
                yield "module", "imports unittest.mock, which replaces names of other modules"
            return
        for alias in node.names:
            yield from self._module(alias.name)

    def _module(self, module: str) -> Found:
        root = module.split(".")[0]
        if root in OURS:
            yield "module", f"imports {module}, the program that judges it"
        elif root in sys.stdlib_module_names | {"_ctypes"} and not {root, module} & set(ALLOWED):
            yield "module", f"imports {module}, which is not on the list of allowed modules"
        elif module == "unittest.mock":
            yield "module", "imports unittest.mock, which replaces names of other modules"

    def _store(self, node: ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Delete, executed: bool) -> Found:
        targets = node.targets if isinstance(node, ast.Assign | ast.Delete) else [node.target]
        for target in targets:
            for inner in ast.walk(target):
                if isinstance(inner, ast.Attribute) and not isinstance(inner.ctx, ast.Load):
                    module = self._module_of(inner.value)
                    if module:
                        yield "store", f"replaces {module}.{inner.attr}, which belongs to another module"
                if isinstance(inner, ast.Subscript) and not isinstance(inner.ctx, ast.Load):
                    yield from self._subscript(inner)

    def _subscript(self, target: ast.Subscript) -> Found:
        text = ast.unparse(target.value)
        module = self._module_of(target.value)
        names = isinstance(target.value, ast.Attribute) and target.value.attr == "__dict__"
        inside = (
            self._module_of(target.value.value) if isinstance(target.value, ast.Attribute) and names else ""
        )
        if module == "sys.modules" or text in ("__builtins__", "globals()") or inside:
            yield "store", f"replaces an entry of {text}"

    def _call(self, node: ast.Call, executed: bool) -> Found:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        name = self.members.get(name, name)
        if name in ("setattr", "delattr", "getattr") and node.args:
            yield from self._by_name(name, node)
        if name == "vars" and not node.args:
            return
        if name in FILES and executed and name not in self.members and not _is_devnull(node):
            yield "file", "opens a file while it is imported or traced"
        if isinstance(node.func, ast.Attribute) and executed:
            module = self._module_of(node.func.value)
            if module == "numpy" and node.func.attr in READERS:
                yield "file", f"calls numpy.{node.func.attr} while it is imported or traced"
        called = node.func.attr if isinstance(node.func, ast.Attribute) else name.split(".")[-1]
        if called == "import_module" and node.args:
            if _spelled(node.args[0]):
                yield "hidden", "imports a module whose name is spelled in pieces"

    def _by_name(self, name: str, node: ast.Call) -> Found:
        guarded = next(iter(self._protected(node.args[0])), "")
        if name != "getattr" and guarded:
            yield "store", f"calls {name} on {guarded}, which belongs to another module"
        elif name == "getattr" and guarded and guarded.split(".")[0] in sys.stdlib_module_names:
            if len(node.args) > 1 and not isinstance(node.args[1], ast.Constant):
                yield "hidden", f"calls getattr on {guarded} with a computed name"
        if len(node.args) > 1 and _spelled(node.args[1]):
            yield "hidden", f"calls {name} with a name that is spelled in pieces"

    def _attribute(self, node: ast.Attribute, executed: bool) -> Found:
        if node.attr in FRAMES:
            yield "frame", f"reads {node.attr}, a frame of its caller"
        dunder = node.attr.startswith("__") and node.attr.endswith("__")
        if dunder and node.attr not in DUNDERS | self.own:
            yield "hidden", f"reads {node.attr}, a part of the interpreter"
        if node.attr == "__dict__" and self._module_of(node.value):
            yield "hidden", f"reads the names of {self._module_of(node.value)} as a dictionary"
        module = self.modules.get(node.value.id, "") if isinstance(node.value, ast.Name) else ""
        allowed = ALLOWED.get(module)
        if allowed is not None and node.attr not in allowed and id(node) not in self._harmless:
            yield "module", f"uses {module}.{node.attr}, which is not on the list of allowed names"
        elif module == "os" and executed and node.attr not in QUIET_OS:
            yield "file", f"uses os.{node.attr} while it is imported or traced"

    def _name(self, node: ast.Name, executed: bool) -> Found:
        if not isinstance(node.ctx, ast.Load):
            return
        if node.id in ("__builtins__", "__loader__", "__spec__"):
            yield "hidden", f"reads {node.id}, a part of the interpreter"
        elif id(node) not in self._bases and node.id in self.modules and _is_guarded(self.modules[node.id]):
            yield "hidden", f"passes the module {self.modules[node.id]} on as a value"
        elif node.id in BUILTINS and executed:
            yield "hidden", f"uses {node.id} while it is imported or traced"

    def _constant(self, node: ast.Constant, executed: bool) -> Found:
        if isinstance(node.value, str) and node.value.startswith(("/proc/", "/dev/mem", "/dev/shm")):
            yield "file", f"names {node.value[:40]!r}, a file of the running system"

    def _module_of(self, node: ast.expr) -> str:
        """The guarded module that an expression surely is, in full; empty where it is none."""
        text = _dotted(node)
        head, _, tail = text.partition(".")
        if not text:
            return ""
        base = self.modules.get(head) or self.members.get(head, "")
        full = f"{base}.{tail}" if tail and base else base
        return full if full and _is_guarded(full) else ""

    def _protected(self, node: ast.expr) -> Iterator[str]:
        """The guarded modules that an expression may be: by name, attribute or condition."""
        if isinstance(node, ast.IfExp):
            yield from self._protected(node.body)
            yield from self._protected(node.orelse)
        elif isinstance(node, ast.Name) and node.id == "__builtins__":
            yield "__builtins__"
        else:
            module = self._module_of(node)
            if module:
                yield module


_READING = frozenset({"inspect.getsource", "inspect.getfile", "inspect.getdoc"})


def _harmless(tree: ast.Module) -> Iterator[ast.expr]:
    """Uses of ``sys.modules`` that hand nothing on: whether a name is in it, and the text of the file's own module."""
    own = not _rebinds(tree, "__name__")
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Compare)
            and len(node.ops) == 1
            and isinstance(node.ops[0], ast.In | ast.NotIn)
        ):
            yield node.comparators[0]
        elif isinstance(node, ast.Call) and _dotted(node.func) in _READING and own:
            for item in node.args:
                if isinstance(item, ast.Subscript) and _dotted(item.slice) == "__name__":
                    yield item.value


def _rebinds(tree: ast.Module, name: str) -> bool:
    """True where a file could give a name another meaning: it binds or spells it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute):
            held = (node.id if isinstance(node, ast.Name) else node.attr) == name
            if held and not isinstance(node.ctx, ast.Load):
                return True
        elif name in (getattr(node, key, None) for key in ("name", "asname", "arg", "rest", "value")):
            return True
    return False


def _bound_names(node: ast.AST) -> tuple[str, ...]:
    """The names that a node defines: a function, a class, a variable, an attribute that is assigned."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return (node.name,)
    if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
        return (node.id if isinstance(node, ast.Name) else node.attr,)
    return ()


_INTERPRETER = frozenset({*dir(type), *dir(_bound_names), "__builtins__", "__loader__", "__spec__"})
"""Names that the interpreter itself gives to classes, functions and modules."""


def _is_guarded(full: str) -> bool:
    root = full.split(".")[0]
    return root in GUARDED or root in sys.stdlib_module_names


def _dotted(node: ast.expr) -> str:
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return ".".join((node.id, *reversed(names))) if isinstance(node, ast.Name) else ""


def _is_devnull(call: ast.Call) -> bool:
    return bool(call.args) and _dotted(call.args[0]) == "os.devnull"


def _spelled(node: ast.expr) -> bool:
    """True where a name is put together from pieces that are all written out."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _all_text(node)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr == "join" and node.args and isinstance(node.args[0], ast.List | ast.Tuple):
            return all(isinstance(item, ast.Constant) for item in node.args[0].elts)
        return isinstance(node.func.value, ast.Constant) and node.func.attr in (
            "replace",
            "lower",
            "decode",
            "strip",
        )
    if isinstance(node, ast.Subscript):
        return isinstance(node.value, ast.Constant) and isinstance(node.slice, ast.Slice)
    return False


def _all_text(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return _all_text(node.left) and _all_text(node.right)
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def tables(source: SourceFacts) -> tuple[tuple[int, int], ...]:
    """(line, count) of the lists and tuples that write out `LARGE_TABLE` numbers or more."""
    found = []
    for node in ast.walk(source.tree):
        if isinstance(node, ast.List | ast.Tuple) and len(node.elts) >= LARGE_TABLE:
            if all(isinstance(item, ast.Constant | ast.UnaryOp) for item in node.elts):
                found.append((node.lineno, len(node.elts)))
    return tuple(found)
