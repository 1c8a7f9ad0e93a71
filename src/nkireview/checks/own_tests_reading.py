"""Names and numbers of Python files that are read and never run: what a name stands for where it is used.

A name stands for what was assigned to it last, or for several things where branches, parametrised values or the
elements of a loop differ. What cannot be read is nothing, and never guessed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from pathlib import PurePath

DEEP = 24
"""Steps from a name to what it stands for."""
MANY = 64
"""Values that one number may have."""

Function = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
APART = (*FUNCTIONS, ast.ClassDef, ast.Lambda)
"""What has names of its own."""


@dataclass(frozen=True)
class Definition:
    """An assignment: the name, what it gets (None: what cannot be read), its last line, the blocks around it."""

    name: str
    value: ast.expr | None
    line: int
    blocks: tuple[int, ...]


@dataclass(frozen=True)
class Edit:
    """A change in place of what a name stands for: ``x[...] = v``, ``x *= v``."""

    name: str
    line: int


@dataclass(frozen=True, eq=False)
class Names:
    """The assignments in one body, in order, and the blocks of each of its statements."""

    definitions: tuple[Definition, ...]
    edits: tuple[Edit, ...]
    statements: tuple[tuple[int, int, tuple[int, ...]], ...]

    def reaching(self, name: str, line: int) -> list[Definition]:
        """What a name may stand for at a line, the latest last."""
        blocks = self._blocks(line)
        found: list[Definition] = []
        for item in self.definitions:
            if item.name == name and item.line < line:
                found = [item] if blocks[: len(item.blocks)] == item.blocks else [*found, item]
        return found

    def edited(self, name: str, line: int) -> bool:
        """True where a name was changed in place before a line."""
        return any(edit.name == name and edit.line < line for edit in self.edits)

    def _blocks(self, line: int) -> tuple[int, ...]:
        around = [blocks for first, last, blocks in self.statements if first <= line <= last]
        return max(around, key=len, default=())


def names_of(body: Sequence[ast.stmt]) -> Names:
    """The assignments of a body, without those of the functions and classes in it."""
    definitions: list[Definition] = []
    edits: list[Edit] = []
    statements: list[tuple[int, int, tuple[int, ...]]] = []

    def bind(target: ast.expr, value: ast.expr | None, line: int, blocks: tuple[int, ...]) -> None:
        if isinstance(target, ast.Name):
            definitions.append(Definition(target.id, value, line, blocks))
        elif isinstance(target, ast.Tuple | ast.List):
            starred = any(isinstance(item, ast.Starred) for item in target.elts)
            for at, item in enumerate(target.elts):
                inner = item.value if isinstance(item, ast.Starred) else item
                bind(inner, None if starred or value is None else element(value, at), line, blocks)
        elif isinstance(target, ast.Subscript | ast.Attribute):
            root = root_name(target)
            if root:
                edits.append(Edit(root, line))

    def walk(block: Sequence[ast.stmt], around: tuple[int, ...]) -> None:
        blocks = (*around, id(block))
        for node in block:
            last = node.end_lineno or node.lineno
            statements.append((node.lineno, last, blocks))
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    bind(target, node.value, last, blocks)
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                bind(node.target, node.value, last, blocks)
            elif isinstance(node, ast.AugAssign):
                root = root_name(node.target)
                if root:
                    edits.append(Edit(root, last))
            elif isinstance(node, ast.For):
                inside = (*blocks, id(node.body))
                head = node.iter.end_lineno or node.lineno
                for value in _elements(node.iter):
                    bind(node.target, value, head, (*inside, id(value)))
            elif isinstance(node, ast.With):
                for item in node.items:
                    if item.optional_vars is not None:
                        bind(item.optional_vars, None, node.lineno, blocks)
            if not isinstance(node, APART):
                for inner in blocks_of(node):
                    walk(inner, blocks)

    walk(body, ())
    return Names(tuple(definitions), tuple(edits), tuple(statements))


def blocks_of(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    """The blocks of statements in a statement."""
    for name in ("body", "orelse", "finalbody"):
        inner = getattr(node, name, None)
        if isinstance(inner, list) and inner:
            yield inner
    for handler in getattr(node, "handlers", ()):
        yield handler.body


def _elements(node: ast.expr) -> list[ast.expr | None]:
    if isinstance(node, ast.Tuple | ast.List) and node.elts:
        return list(node.elts)
    return [None]


def element(value: ast.expr, at: int) -> ast.expr:
    """The expression of one element of a value."""
    if isinstance(value, ast.Tuple | ast.List) and not any(
        isinstance(item, ast.Starred) for item in value.elts
    ):
        if at < len(value.elts):
            return value.elts[at]
    return ast.copy_location(ast.Subscript(value, ast.Constant(at), ast.Load()), value)


def root_name(node: ast.expr) -> str:
    """The name that an expression begins with: ``x`` of ``x.a[0].b``; empty where it begins with something else."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def last_name(node: ast.expr) -> str:
    """The last name of a dotted expression: ``c`` of ``a.b.c``."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


@dataclass(frozen=True, eq=False)
class Module:
    """One file: its name as places spell it, its functions by name (methods and inner ones too), its imports."""

    name: str
    tree: ast.Module
    imports: Mapping[str, tuple[str, str]]

    @cached_property
    def functions(self) -> dict[str, Function]:
        """Every function of the file; of several with one name that at the top, else the last."""
        found = {node.name: node for node in ast.walk(self.tree) if isinstance(node, FUNCTIONS)}
        return found | {node.name: node for node in self.tree.body if isinstance(node, FUNCTIONS)}

    @cached_property
    def classes(self) -> dict[int, ast.ClassDef]:
        """The class of each method, by the identity of its node."""
        return {
            id(inner): node
            for node in ast.walk(self.tree)
            if isinstance(node, ast.ClassDef)
            for inner in node.body
            if isinstance(inner, FUNCTIONS)
        }

    @cached_property
    def names(self) -> Names:
        """The assignments at the top."""
        return names_of(self.tree.body)

    @cached_property
    def _inner(self) -> dict[int, Names]:
        return {}

    def names_in(self, function: Function) -> Names:
        """The assignments of a function."""
        found = self._inner.get(id(function))
        if found is None:
            found = self._inner[id(function)] = names_of(function.body)
        return found

    def at(self, node: ast.AST) -> str:
        """``file:line`` of a node."""
        return f"{PurePath(self.name).name}:{getattr(node, 'lineno', 1)}"

    def text(self, node: ast.AST) -> str:
        """A node as it would be written."""
        return ast.unparse(node)


def module_of(name: str, source: str) -> Module | None:
    """A file's module; None where it is not Python."""
    try:
        tree = ast.parse(source, filename=name)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    imports: dict[str, tuple[str, str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for item in node.names:
                imports[item.asname or item.name.split(".")[0]] = (item.name, "")
        elif isinstance(node, ast.ImportFrom):
            for item in node.names:
                imports[item.asname or item.name] = (node.module or "", item.name)
    return Module(name, tree, imports)


@dataclass(frozen=True, eq=False)
class Scope:
    """Where an expression stands: a function of a module (None: its top), the scope around it, its parameters."""

    module: Module
    function: Function | None = None
    outer: Scope | None = None
    bound: Mapping[str, tuple[Term, ...]] = field(default_factory=dict)

    @property
    def names(self) -> Names:
        """The assignments here."""
        return self.module.names if self.function is None else self.module.names_in(self.function)

    @property
    def depth(self) -> int:
        """Scopes around this one."""
        return 0 if self.outer is None else 1 + self.outer.depth


@dataclass(frozen=True, eq=False)
class Term:
    """An expression where it stands."""

    node: ast.expr
    scope: Scope

    def inner(self, node: ast.expr) -> Term:
        """Another expression of the same scope."""
        return Term(node, self.scope)


@dataclass(frozen=True, eq=False)
class Sources:
    """All files of a submission."""

    modules: tuple[Module, ...]

    @classmethod
    def of(cls, sources: Mapping[str, str]) -> Sources:
        """Files by name; those that are no Python are left out."""
        found = (module_of(name, source) for name, source in sources.items())
        return cls(tuple(module for module in found if module is not None))

    def definitions(self, term: Term) -> list[Term]:
        """What a name stands for; empty where that cannot be read."""
        node = term.node
        if not isinstance(node, ast.Name):
            return []
        scope: Scope | None = term.scope
        line = node.lineno
        while scope is not None:
            found = scope.names.reaching(node.id, line)
            if found:
                if any(item.value is None for item in found):
                    return []
                return [Term(item.value, scope) for item in found if item.value is not None]
            if node.id in scope.bound:
                return list(scope.bound[node.id])
            # what encloses a function may be assigned after it
            scope, line = scope.outer, 10**9
        return self._imported(term.scope.module, node.id)

    def _imported(self, module: Module, name: str) -> list[Term]:
        other, wanted = self._other(module, name)
        if other is None or not wanted:
            return []
        found = other.names.reaching(wanted, 10**9)
        return [Term(item.value, Scope(other)) for item in found if item.value is not None]

    def _other(self, module: Module, name: str) -> tuple[Module | None, str]:
        """The file, and the name in it, that an imported name comes from."""
        path, wanted = module.imports.get(name, ("", ""))
        stem = path.rsplit(".", 1)[-1]
        for other in self.modules:
            mine = PurePath(other.name).stem
            if wanted and mine == stem and other is not module:
                return other, wanted
            if mine == (wanted or stem) and other is not module:
                return other, ""
        return None, ""

    def function(self, term: Term) -> tuple[Function, Scope] | None:
        """The function of these files that an expression names, with the scope it was defined in."""
        node, module = term.node, term.scope.module
        if isinstance(node, ast.Attribute):
            root = root_name(node.value)
            if root in ("self", "cls") and node.attr in module.functions:
                return module.functions[node.attr], Scope(module)
            other, _ = self._other(module, root)
            if other is not None and isinstance(node.value, ast.Name) and node.attr in other.functions:
                return other.functions[node.attr], Scope(other)
            return None
        if not isinstance(node, ast.Name):
            return None
        scope: Scope | None = term.scope
        while scope is not None:
            body = module.tree.body if scope.function is None else scope.function.body
            inner = next((each for each in _functions_in(body) if each.name == node.id), None)
            if inner is not None:
                return inner, scope
            scope = scope.outer
        other, wanted = self._other(module, node.id)
        if other is not None and wanted in other.functions:
            return other.functions[wanted], Scope(other)
        return None

    def called(self, call: Term) -> tuple[Function, Scope] | None:
        """The function that a call calls, with a scope in which its parameters are bound to what the call gives."""
        node = call.node
        if not isinstance(node, ast.Call):
            return None
        found = self.function(call.inner(node.func))
        if found is None or call.scope.depth >= DEEP:
            return None
        function, home = found
        bound: dict[str, tuple[Term, ...]] = defaults(function, home)
        names = [item.arg for item in (*function.args.posonlyargs, *function.args.args)]
        if names[:1] in (["self"], ["cls"]):
            names = names[1:]
        readable = not any(isinstance(item, ast.Starred) for item in node.args)
        for name, value in zip(names, node.args, strict=False):
            bound[name] = (call.inner(value),) if readable else ()
        for keyword in node.keywords:
            if keyword.arg:
                bound[keyword.arg] = (call.inner(keyword.value),)
        return function, Scope(home.module, function, home, bound)

    def returned(self, call: Term) -> list[Term]:
        """What a call of a function of these files returns; empty where that cannot be read."""
        found = self.called(call)
        if found is None:
            return []
        function, scope = found
        return [
            Term(node.value, scope)
            for node in nodes_of(function.body)
            if isinstance(node, ast.Return) and node.value is not None
        ]

    def elements(self, term: Term, deep: int = DEEP) -> list[Term] | None:
        """The elements of what stands for a tuple or list; None where it does for none."""
        node = term.node
        if isinstance(node, ast.Tuple | ast.List):
            if any(isinstance(item, ast.Starred) for item in node.elts):
                return None
            return [term.inner(item) for item in node.elts]
        others = self.definitions(term) or (self.returned(term) if isinstance(node, ast.Call) else [])
        if len(others) == 1 and deep:
            return self.elements(others[0], deep - 1)
        return None

    def numbers(self, term: Term, deep: int = DEEP) -> tuple[float, ...] | None:
        """The values that a number may have, ascending; None where one of them cannot be read."""
        found = self._numbers(term, deep)
        return None if found is None or len(found) > MANY else tuple(sorted(set(found)))

    def _numbers(self, term: Term, deep: int) -> list[float] | None:
        node = term.node
        if not deep:
            return None
        if isinstance(node, ast.Constant):
            if isinstance(node.value, bool) or not isinstance(node.value, int | float):
                return None
            return [float(node.value)]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
            inner = self._numbers(term.inner(node.operand), deep - 1)
            sign = -1 if isinstance(node.op, ast.USub) else 1
            return None if inner is None else [sign * value for value in inner]
        if isinstance(node, ast.BinOp):
            left = self._numbers(term.inner(node.left), deep - 1)
            right = self._numbers(term.inner(node.right), deep - 1)
            if left is None or right is None or len(left) * len(right) > MANY:
                return None
            made = [_operate(node.op, a, b) for a, b in product(left, right)]
            return None if any(value is None for value in made) else [v for v in made if v is not None]
        if isinstance(node, ast.IfExp):
            return self._all([term.inner(node.body), term.inner(node.orelse)], deep)
        if isinstance(node, ast.Subscript):
            return self._picked(term, node, deep)
        if isinstance(node, ast.Call):
            if last_name(node.func) in ("float", "int", "float32", "float64") and len(node.args) == 1:
                return self._numbers(term.inner(node.args[0]), deep - 1)
            return self._all(self.returned(term), deep)
        if isinstance(node, ast.Name):
            return self._all(self.definitions(term), deep)
        return None

    def _all(self, terms: Sequence[Term], deep: int) -> list[float] | None:
        found: list[float] = []
        for term in terms:
            values = self._numbers(term, deep - 1)
            if values is None:
                return None
            found.extend(values)
        return found or None

    def _picked(self, term: Term, node: ast.Subscript, deep: int) -> list[float] | None:
        """A number out of a table or tuple: each that it may be."""
        value = term.inner(node.value)
        for _ in range(deep):
            if isinstance(value.node, ast.Dict):
                return self._all([value.inner(item) for item in value.node.values], deep)
            found = self.definitions(value)
            if len(found) != 1:
                break
            value = found[0]
        held = self.elements(term.inner(node.value))
        at = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if held is None or not isinstance(at, int) or not -len(held) <= at < len(held):
            return None
        return self._numbers(held[at], deep - 1)


def _operate(op: ast.operator, a: float, b: float) -> float | None:
    try:
        if isinstance(op, ast.Add):
            return a + b
        if isinstance(op, ast.Sub):
            return a - b
        if isinstance(op, ast.Mult):
            return a * b
        if isinstance(op, ast.Div):
            return a / b
        if isinstance(op, ast.FloorDiv):
            return a // b
        if isinstance(op, ast.Pow):
            made = a**b
            return float(made) if isinstance(made, int | float) else None
    except (ZeroDivisionError, OverflowError):
        return None
    return None


def nodes_of(body: Sequence[ast.stmt]) -> Iterator[ast.AST]:
    """All nodes of a body, without those of the functions and classes in it, in order."""
    left: list[ast.AST] = list(reversed(body))
    while left:
        node = left.pop()
        if isinstance(node, APART):
            continue
        yield node
        left.extend(reversed(list(ast.iter_child_nodes(node))))


def _functions_in(body: Sequence[ast.stmt]) -> Iterator[Function]:
    for node in body:
        if isinstance(node, FUNCTIONS):
            yield node
        elif not isinstance(node, ast.ClassDef):
            for inner in blocks_of(node):
                yield from _functions_in(inner)


def defaults(function: Function, home: Scope) -> dict[str, tuple[Term, ...]]:
    """The parameters of a function that have defaults; others stand for nothing that can be read."""
    arguments = function.args
    plain = [*arguments.posonlyargs, *arguments.args]
    found: dict[str, tuple[Term, ...]] = {item.arg: () for item in (*plain, *arguments.kwonlyargs)}
    given = list(zip(plain[len(plain) - len(arguments.defaults) :], arguments.defaults, strict=True))
    given += [
        (item, value)
        for item, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        if value is not None
    ]
    return found | {item.arg: (Term(value, home),) for item, value in given}


def scope_of_test(sources: Sources, module: Module, function: Function) -> Scope:
    """The scope of a test: its parameters stand for the values that pytest gives, and for what fixtures return."""
    home = Scope(module)
    bound = defaults(function, home)
    around = module.classes.get(id(function))
    for node in (*function.decorator_list, *(around.decorator_list if around is not None else ())):
        if isinstance(node, ast.Call) and "parametrize" in last_name(node.func):
            bound |= _parametrised(sources, Term(node, home), node)
    for name, terms in bound.items():
        fixture = next((m.functions[name] for m in sources.modules if name in m.functions), None)
        if not terms and fixture is not None and any(_is_fixture(item) for item in fixture.decorator_list):
            owner = next(m for m in sources.modules if name in m.functions)
            inside = Scope(owner, fixture, Scope(owner), defaults(fixture, Scope(owner)))
            bound[name] = tuple(
                Term(item.value, inside)
                for item in nodes_of(fixture.body)
                if isinstance(item, ast.Return | ast.Yield) and item.value is not None
            )
    return Scope(module, function, home, bound)


def _is_fixture(node: ast.expr) -> bool:
    return last_name(node.func if isinstance(node, ast.Call) else node) == "fixture"


def _parametrised(sources: Sources, term: Term, node: ast.Call) -> dict[str, tuple[Term, ...]]:
    """Names and values of ``parametrize("a, b", [(1, 2), ...])`` and of ``...parametrize(a=[...])``."""
    found: dict[str, tuple[Term, ...]] = {}
    given = {item.arg: item.value for item in node.keywords if item.arg}
    names_node = node.args[0] if node.args else given.pop("argnames", None)
    values_node = node.args[1] if len(node.args) > 1 else given.pop("argvalues", None)
    if names_node is None:
        for name, value in given.items():
            found[name] = tuple(sources.elements(term.inner(value)) or ())
        return found
    names = _words(sources, term.inner(names_node))
    cases = sources.elements(term.inner(values_node)) if values_node is not None else None
    for at, name in enumerate(names):
        terms: list[Term] = []
        for case in cases or ():
            values = _case(case)
            if len(names) == 1:
                terms.append(values[0] if isinstance(case.node, ast.Call) and values else case)
            elif at < len(values):
                terms.append(values[at])
        found[name] = tuple(terms)
    return found


def _case(term: Term) -> list[Term]:
    """The values of one case: those of a tuple, a list or ``pytest.param(...)``."""
    node = term.node
    if isinstance(node, ast.Call):
        return [term.inner(item) for item in node.args] if last_name(node.func) == "param" else []
    if isinstance(node, ast.Tuple | ast.List):
        return [term.inner(item) for item in node.elts]
    return []


def _words(sources: Sources, term: Term) -> list[str]:
    node = term.node
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [word.strip() for word in node.value.split(",") if word.strip()]
    if isinstance(node, ast.Tuple | ast.List):
        return [str(item.value) for item in node.elts if isinstance(item, ast.Constant)]
    found = sources.definitions(term)
    return _words(sources, found[0]) if len(found) == 1 else []
