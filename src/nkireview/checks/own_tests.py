"""An author's own tests, as evidence: what is compared with what, within which limits, on which inputs.

Files are read with `ast` and never imported. Tests are functions named ``test*``, what stands under ``if __name__ ==
"__main__"``, what a file does at its top, and functions with a comparison that nothing calls; of these the ones that
speak of the kernel. What cannot be read is said to be so.

Defaults of the functions that compare, from their documentation: numpy.allclose and isclose, torch.allclose and
isclose, jax.numpy.allclose: rtol 1e-5, atol 1e-8. numpy.testing.assert_allclose: rtol 1e-7, atol 0.
assert_almost_equal: 7 decimals, assert_array_almost_equal: 6, each an absolute error below 1.5 * 10**-decimals.
torch.testing.assert_close: by dtype, float32 1.3e-6 and 1e-5, bfloat16 1.6e-2 and 1e-5, float16 1e-3 and 1e-5,
float64 1e-7 and 1e-7. nki-library maxAllClose: 1e-5 and 1e-8, rtol of the largest element
(test/integration/nkilib/utils/comparators.py:20-30), as its UnitTestFramework.run_test
(test/utils/unit_test_framework.py:103-104).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePath

from nkireview.checks.own_tests_inputs import Given, given, seed_of
from nkireview.checks.own_tests_reading import (
    FUNCTIONS,
    Function,
    Module,
    Scope,
    Sources,
    Term,
    last_name,
    nodes_of,
    root_name,
    scope_of_test,
)

ELEMENT, LARGEST, ABSOLUTE, NORM, EXACT, UNREAD = "element", "largest", "absolute", "norm", "exact", "unread"
"""Forms of a limit: rtol of each element of the second side, of its largest, none at all, of norms; equal; unread."""
BY_DTYPE: Mapping[str, tuple[float, float]] = {
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
}
"""rtol and atol of torch.testing.assert_close."""
NEAR = 1.5
"""assert_almost_equal allows this many units of the last decimal."""
FAR = 6
"""Calls that are followed from a test."""
MAX_FILES, MAX_BYTES = 64, 2**20


@dataclass(frozen=True)
class _Compares:
    """A function that compares: its form, defaults, and the positions of rtol and atol among its arguments."""

    form: str
    rtol: float | None = None
    atol: float | None = None
    at: tuple[int, int] = (2, 3)


COMPARES: Mapping[str, _Compares] = {
    "allclose": _Compares(ELEMENT, 1e-5, 1e-8),
    "isclose": _Compares(ELEMENT, 1e-5, 1e-8),
    "assert_allclose": _Compares(ELEMENT, 1e-7, 0.0),
    "assert_close": _Compares(ELEMENT, None, None, (-1, -1)),
    "maxAllClose": _Compares(LARGEST, 1e-5, 1e-8),
    "assert_almost_equal": _Compares(ABSOLUTE, 0.0, NEAR * 10.0**-7, (-1, 2)),
    "assert_array_almost_equal": _Compares(ABSOLUTE, 0.0, NEAR * 10.0**-6, (-1, 2)),
    "assert_array_equal": _Compares(EXACT, 0.0, 0.0, (-1, -1)),
    "assert_equal": _Compares(EXACT, 0.0, 0.0, (-1, -1)),
    "array_equal": _Compares(EXACT, 0.0, 0.0, (-1, -1)),
    "equal": _Compares(EXACT, 0.0, 0.0, (-1, -1)),
}
LIBRARIES = frozenset({"numpy", "torch", "jax"})
DECIMALS = frozenset({"assert_almost_equal", "assert_array_almost_equal"})
CASTS = frozenset(
    {
        *("astype", "to", "float", "half", "double", "cpu", "numpy", "detach", "clone", "copy", "contiguous"),
        *("array", "asarray", "ascontiguousarray", "from_numpy", "tensor", "as_tensor", "static_cast", "abs"),
    }
)
"""Calls after which a value is the same but for its dtype, device or sign."""
MOVES = CASTS | {
    "reshape",
    "view",
    "transpose",
    "permute",
    "squeeze",
    "flatten",
    "ravel",
    "swapaxes",
    "stack",
}

Values = tuple[float, ...] | None


@dataclass(frozen=True)
class Comparison:
    """One comparison in a test.

    rtol, atol: the values that each may have (by branch or parameter), ascending; None where that cannot be read.
    by_dtype: they are those of `BY_DTYPE`. form: what rtol is relative to. left, right: what is compared, as written.
    kernel: the side that the kernel computes: ``left``, ``right``, ``both``, or empty where neither is known to be.
    same: both sides are one expression. helpers: functions that the kernel calls too, by which the other side is
    computed. asserted: False where nothing depends on the outcome but what is printed.
    """

    place: str
    test: str
    function: str
    form: str
    rtol: Values
    atol: Values
    by_dtype: bool = False
    left: str = ""
    right: str = ""
    kernel: str = ""
    same: bool = False
    helpers: tuple[str, ...] = ()
    asserted: bool = True

    @property
    def itself(self) -> bool:
        """True where the kernel is held against itself, or one value against the same."""
        return self.same or self.kernel == "both"

    def limits(self, dtype: str) -> tuple[float, float] | None:
        """The strictest rtol and atol for an output of a dtype; None where they cannot be read."""
        if self.form == UNREAD:
            return None
        if self.by_dtype:
            return BY_DTYPE.get(dtype)
        if not self.rtol or not self.atol:
            return None
        return min(self.rtol), min(self.atol)


@dataclass(frozen=True)
class OwnTests:
    """What a submission's own tests of a kernel are.

    tests: their names. files: those that they are in. calls: how often they call the kernel, as written. given: the
    tensors that they give it. seeds: the values that generators are seeded with. unread_seed: one of them cannot be
    read. seeded: False where random values are drawn with no seed at all. cases: how many cases the most parametrised
    test has. looped: it is called in a loop.
    """

    tests: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    given: tuple[Given, ...] = ()
    seeds: tuple[float, ...] = ()
    unread_seed: bool = False
    seeded: bool = False
    calls: tuple[str, ...] = ()
    cases: int = 1
    looped: bool = False

    @property
    def known(self) -> bool:
        """True where it can be read how every tensor is made."""
        return bool(self.given) and not any(item.kind == "unknown" for item in self.given)

    @property
    def drawn(self) -> tuple[Given, ...]:
        """The tensors of random fractions."""
        return tuple(item for item in self.given if item.drawn)

    @property
    def only_unit(self) -> bool:
        """True where every tensor surely holds values from [0, 1) alone, constants and counts apart."""
        fine = all(
            not item.edited and item.kind != "normal" and item.kind != "uniform" for item in self.given
        )
        return self.known and fine and any(item.kind == "unit" for item in self.given)

    @property
    def only_square(self) -> bool:
        """True where every matrix that is given surely has as many rows as columns, and there is one."""
        matrices = [item for item in self.given if item.sizes is None or len(item.sizes) > 1]
        return self.known and bool(matrices) and all(item.square for item in matrices)

    @property
    def only_multiples(self) -> bool:
        """True where every size of every matrix surely is a multiple of 128."""
        sizes = [item.sizes for item in self.given if item.sizes is None or len(item.sizes) > 1]
        return bool(sizes) and all(
            each is not None and all(axis is not None and all(n % 128 == 0 for n in axis) for axis in each)
            for each in sizes
        )

    @property
    def one_shape(self) -> bool:
        """True where every tensor surely has one shape only."""
        return bool(self.given) and all(
            item.sizes is not None and all(axis is not None and len(axis) == 1 for axis in item.sizes)
            for item in self.given
        )

    @property
    def one_draw(self) -> bool:
        """True where the kernel is surely called once, with one seed and one shape."""
        once = len(self.calls) == 1 and self.cases == 1 and not self.looped
        return once and self.one_shape and bool(self.drawn) and len(self.seeds) == 1 and not self.unread_seed

    @property
    def hostile(self) -> tuple[str, ...]:
        """What is unkind in the inputs: values far from 1, elements that were set apart, tails."""
        found = []
        if any(abs(item.factor) >= 10 or 0 < abs(item.factor) <= 0.1 for item in self.drawn):
            found.append("scaled")
        if any(item.edited for item in self.given):
            found.append("elements set apart")
        if any(
            axis is not None and any(size > 1 and size % 128 for size in axis)
            for item in self.given
            for axis in (item.sizes or ())[-2:]
        ):
            found.append("tails")
        return tuple(found)

    @property
    def against_others(self) -> tuple[Comparison, ...]:
        """The comparisons that do not hold a value against itself."""
        return tuple(item for item in self.comparisons if not item.itself)

    @property
    def relied_on(self) -> tuple[Comparison, ...]:
        """Those of them that a test depends on."""
        return tuple(item for item in self.against_others if item.asserted)


def gathered(path: Path, kernel: str, root: Path | None = None) -> dict[str, str]:
    """The Python files of a submission that may hold tests of a kernel, by path: its own file and the tests near it.

    path: the kernel's file. Tests are ``test_*.py`` and ``*_test.py`` beside it, in ``tests`` and ``test`` beside it or
    below `root`, and ``conftest.py`` there; of these the files that name the kernel or its file, and the conftests.
    """
    folders = [path.parent]
    for base in dict.fromkeys((path.parent, root or path.parent)):
        folders += [base / name for name in ("tests", "test") if (base / name).is_dir()]
    found = {str(path): path.read_text(encoding="utf-8", errors="replace")}
    for folder in folders:
        for each in sorted(folder.glob("*.py")):
            wanted = (
                each.name.startswith("test_") or each.stem.endswith("_test") or each.name == "conftest.py"
            )
            if not wanted or len(found) >= MAX_FILES or each == path or each.stat().st_size > MAX_BYTES:
                continue
            text = each.read_text(encoding="utf-8", errors="replace")
            if kernel in text or path.stem in text or each.name == "conftest.py":
                found[str(each)] = text
    return found


def own_tests(sources: Mapping[str, str], kernel: str) -> OwnTests:
    """The tests of a kernel in a submission's files, given by name with their text.

    kernel: the name of its function. Files that are no Python are left out. Without a test everything is empty.
    """
    return _Reader(Sources.of(sources), kernel).read()


@dataclass(eq=False)
class _Found:
    comparisons: dict[tuple[str, str, str], Comparison] = field(default_factory=dict)
    given: dict[tuple[str, str, str, str], Given] = field(default_factory=dict)
    calls: dict[str, None] = field(default_factory=dict)
    seeds: set[float] = field(default_factory=set)
    unread_seed: bool = False
    seeded: bool = False
    looped: bool = False
    cases: int = 1

    def add(self, other: _Found) -> None:
        """Take in what another test has."""
        for key, comparison in other.comparisons.items():
            self.comparisons.setdefault(key, comparison)
        for place, tensor in other.given.items():
            self.given.setdefault(place, tensor)
        self.calls |= other.calls
        self.seeds |= other.seeds
        self.unread_seed |= other.unread_seed
        self.seeded |= other.seeded
        self.looped |= other.looped
        self.cases = max(self.cases, other.cases)


@dataclass(frozen=True, eq=False)
class _Test:
    name: str
    module: Module
    scope: Scope
    body: Sequence[ast.stmt]


class _Reader:
    def __init__(self, sources: Sources, kernel: str) -> None:
        self.sources, self.kernel = sources, kernel.rsplit(".", 1)[-1]
        self.found = _Found()
        self._seen: set[tuple[int, str]] = set()
        # with the term, so that no other one gets its identity
        self._answers: dict[tuple[str, int, int], tuple[bool, Term]] = {}

    def read(self) -> OwnTests:
        tests = [test for test in self._tests() if self._speaks(test)]
        for test in tests:
            whole, self.found = self.found, _Found()
            self._module_seeds(test.module)
            self._visit(test.scope, test.body, test.name, FAR)
            if self.found.calls:
                self.found.cases = _cases(test.scope)
            # what compares nothing, such as a benchmark, is no evidence
            whole.add(self.found if self.found.comparisons else _Found())
            self.found = whole
        found = self.found
        return OwnTests(
            tests=tuple(dict.fromkeys(test.name for test in tests)),
            files=tuple(dict.fromkeys(PurePath(test.module.name).name for test in tests)),
            comparisons=tuple(found.comparisons.values()),
            given=tuple(found.given.values()),
            seeds=tuple(sorted(found.seeds)),
            unread_seed=found.unread_seed,
            seeded=found.seeded,
            calls=tuple(found.calls),
            cases=found.cases,
            looped=found.looped,
        )

    # tests

    def _tests(self) -> Iterator[_Test]:
        for module in self.sources.modules:
            top = [node for node in module.tree.body if not isinstance(node, (*FUNCTIONS, ast.ClassDef))]
            if any(isinstance(node, ast.Assert | ast.If | ast.For | ast.With | ast.Expr) for node in top):
                yield _Test("__main__", module, Scope(module), top)
            called = {last_name(node.func) for node in ast.walk(module.tree) if isinstance(node, ast.Call)}
            for node in ast.walk(module.tree):
                if not isinstance(node, FUNCTIONS):
                    continue
                alone = node.name not in called and any(
                    self._compares(module, inner) for inner in nodes_of(node.body)
                )
                if node.name.startswith("test") or (alone and node.name != self.kernel):
                    yield _Test(node.name, module, scope_of_test(self.sources, module, node), node.body)

    def _compares(self, module: Module, node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and last_name(node.func) in COMPARES

    def _speaks(self, test: _Test) -> bool:
        """True where a test, or a function that it names, names the kernel."""
        left: list[tuple[Module, ast.AST]] = [
            (test.module, node)
            for node in test.body
            if test.scope.function is not None
            or not isinstance(node, ast.Assign | ast.Import | ast.ImportFrom)
        ]
        if test.scope.function is not None:
            left.append((test.module, test.scope.function.args))
        seen: set[int] = set()
        while left:
            module, node = left.pop()
            for inner in ast.walk(node):
                name = last_name(inner) if isinstance(inner, ast.Name | ast.Attribute) else ""
                name = inner.arg if isinstance(inner, ast.arg) else name
                if not name:
                    continue
                if self._is_name(module, name):
                    return True
                function = module.functions.get(name)
                owner = module
                if function is None:
                    owner = next((m for m in self.sources.modules if name in m.functions), module)
                    function = owner.functions.get(name)
                if function is not None and id(function) not in seen:
                    seen.add(id(function))
                    left.append((owner, function))
                for item in module.names.definitions:
                    if item.name == name and item.value is not None and id(item.value) not in seen:
                        seen.add(id(item.value))
                        left.append((module, item.value))
        return False

    def _is_name(self, module: Module, name: str) -> bool:
        return name == self.kernel or module.imports.get(name, ("", ""))[1] == self.kernel

    # the kernel

    def _refers(self, term: Term) -> bool:
        """True for what stands for the kernel's function: its name, ``kernel[grid]``, ``baremetal(kernel)``."""
        return self._known("refers", term, self._find_refers)

    def _calls_kernel(self, term: Term) -> bool:
        """True for a call of the kernel: ``kernel(x)``, ``kernel[2](x)``, ``simulate_kernel(kernel, x)``."""
        return self._known("calls", term, self._find_calls)

    def _known(self, what: str, term: Term, find: Callable[[Term], bool]) -> bool:
        """An answer, found once; no for what leads back to itself."""
        key = (what, id(term.node), id(term.scope))
        held = self._answers.get(key)
        if held is None:
            self._answers[key] = (False, term)
            held = self._answers[key] = (find(term), term)
        return held[0]

    def _find_refers(self, term: Term) -> bool:
        node = term.node
        if isinstance(node, ast.Name):
            if self._is_name(term.scope.module, node.id):
                return True
            return any(self._refers(each) for each in self.sources.definitions(term))
        if isinstance(node, ast.Attribute):
            return node.attr == self.kernel
        if isinstance(node, ast.Subscript):
            return self._refers(term.inner(node.value))
        if isinstance(node, ast.Call) and not self._calls_kernel(term):
            given = [*node.args, *(item.value for item in node.keywords if item.arg in ("func", "kernel"))]
            return any(self._refers(term.inner(item)) for item in given)
        return False

    def _find_calls(self, term: Term) -> bool:
        node = term.node
        if not isinstance(node, ast.Call) or last_name(node.func) in COMPARES:
            return False
        if self._refers(term.inner(node.func)):
            return True
        return len(node.args) > 1 and self._refers(term.inner(node.args[0]))

    def _from_kernel(self, term: Term, deep: int = 2 * FAR) -> bool:
        """True where a value is what the kernel returned, or a part of it, or computed from that."""
        node = term.node
        if not deep:
            return False
        if isinstance(node, ast.Call):
            if self._calls_kernel(term):
                return True
            if self.sources.function(term.inner(node.func)) is not None:
                return any(self._from_kernel(each, deep - 1) for each in self.sources.returned(term))
            if isinstance(node.func, ast.Attribute) and self._from_kernel(
                term.inner(node.func.value), deep - 1
            ):
                return last_name(node.func) in MOVES
            moved = last_name(node.func) in MOVES and node.args
            return bool(moved) and self._from_kernel(term.inner(node.args[0]), deep - 1)
        if isinstance(node, ast.Subscript | ast.Attribute | ast.Starred):
            return self._from_kernel(term.inner(node.value), deep - 1)
        if isinstance(node, ast.Name):
            found = self.sources.definitions(term)
            return bool(found) and all(self._from_kernel(each, deep - 1) for each in found)
        if isinstance(node, ast.BinOp):
            return any(self._from_kernel(term.inner(side), deep - 1) for side in (node.left, node.right))
        if isinstance(node, ast.IfExp):
            return all(self._from_kernel(term.inner(side), deep - 1) for side in (node.body, node.orelse))
        return False

    # going through

    def _visit(self, scope: Scope, body: Sequence[ast.stmt], test: str, deep: int) -> None:
        loops = {
            id(inner)
            for node in nodes_of(body)
            if isinstance(node, ast.For | ast.While)
            for inner in nodes_of(node.body)
        }
        for node in nodes_of(body):
            if isinstance(node, ast.Compare):
                self._threshold(Term(node, scope), node, test, body)
            if not isinstance(node, ast.Call):
                continue
            term = Term(node, scope)
            self._seed(scope, node)
            if self._calls_kernel(term):
                self._call(term, node, looped=id(node) in loops)
                continue
            if self.sources.function(term.inner(node.func)) is None:
                self._comparison(term, node, test, body)
                continue
            called = self.sources.called(term)
            if called is None or not deep or called[0].name == self.kernel:
                continue
            function, inside = called
            key = (id(function), f"{scope.module.at(node)}/{id(scope.function)}/{id(node)}")
            if key not in self._seen:
                self._seen.add(key)
                self.found.looped |= id(node) in loops and self._reaches_kernel(function, inside)
                self._visit(inside, function.body, test, deep - 1)

    def _module_seeds(self, module: Module) -> None:
        for node in nodes_of(module.tree.body):
            if isinstance(node, ast.Call):
                self._seed(Scope(module), node)

    def _seed(self, scope: Scope, node: ast.Call) -> None:
        seed = seed_of(self.sources, scope, node)
        if seed is not None:
            self.found.seeded = True
            self.found.seeds |= set(seed)
            self.found.unread_seed |= not seed

    def _reaches_kernel(self, function: Function, scope: Scope) -> bool:
        return any(
            isinstance(node, ast.Call) and self._calls_kernel(Term(node, scope))
            for node in nodes_of(function.body)
        )

    def _call(self, term: Term, node: ast.Call, looped: bool) -> None:
        found = self.found
        found.calls.setdefault(f"{term.scope.module.at(node)} {ast.unparse(node)}")
        found.looped |= looped
        arguments = [*node.args, *(item.value for item in node.keywords)]
        for argument in arguments:
            if self._refers(term.inner(argument)):
                continue
            for item in given(self.sources, term.inner(argument)):
                found.given.setdefault((item.place, item.kind, item.text, repr(item.sizes)), item)

    # comparisons

    def _comparison(self, term: Term, node: ast.Call, test: str, body: Sequence[ast.stmt]) -> None:
        name = last_name(node.func)
        compares = COMPARES.get(name)
        if name == "run_test" and {"rtol", "atol"} & {item.arg for item in node.keywords}:
            compares = COMPARES["maxAllClose"]
            self._note(term, node, test, name, compares, (None, None), asserted=True)
            return
        if compares is None:
            return
        arguments = list(node.args)
        if isinstance(node.func, ast.Attribute) and not self._of_library(term.scope.module, node.func):
            if root_name(node.func) in ("self", "cls"):
                return
            arguments.insert(0, node.func.value)
        named = {item.arg: item.value for item in node.keywords if item.arg}
        sides = [
            next((named[key] for key in keys if key in named), arguments[at] if at < len(arguments) else None)
            for at, keys in enumerate(
                (("a", "input", "actual", "x"), ("b", "other", "desired", "expected", "y"))
            )
        ]
        if sides[0] is None or sides[1] is None:
            return
        left, right = term.inner(sides[0]), term.inner(sides[1])
        asserted = name.startswith("assert") or _asserted(node, body)
        self._note(term, node, test, name, compares, (left, right), asserted, arguments)

    def _of_library(self, module: Module, node: ast.Attribute) -> bool:
        root = root_name(node)
        return root in module.imports or root in ("np", "numpy", "torch", "jnp")

    def _note(
        self,
        term: Term,
        node: ast.Call,
        test: str,
        name: str,
        compares: _Compares,
        sides: tuple[Term | None, Term | None],
        asserted: bool,
        arguments: Sequence[ast.expr] = (),
    ) -> None:
        named = {item.arg: item.value for item in node.keywords if item.arg}
        foreign = self._foreign(term, node)
        form = UNREAD if foreign else compares.form
        if name == "maxAllClose" and "mode" in named:
            mode = named["mode"]
            form = ELEMENT if isinstance(mode, ast.Constant) and mode.value == "py" else form

        def limit(key: str, at: int, default: float | None) -> Values:
            value = named.get(key)
            if value is None and 0 <= at < len(arguments):
                value = arguments[at]
            if value is None:
                return None if default is None or foreign else (default,)
            return self.sources.numbers(term.inner(value))

        if name in DECIMALS:
            decimals = limit("decimal", compares.at[1], None)
            given_decimals = "decimal" in named or len(arguments) > 2
            atol = tuple(sorted(NEAR * 10.0**-n for n in decimals)) if decimals else None
            rtol: Values = (0.0,)
            atol = atol if given_decimals else (compares.atol or 0.0,)
        else:
            rtol = limit("rtol", compares.at[0], compares.rtol)
            atol = limit("atol", compares.at[1], compares.atol)
        by_dtype = name == "assert_close" and not {"rtol", "atol"} & set(named)
        self._keep(term, node, test, name, form, (rtol, atol), sides, asserted, by_dtype)

    def _foreign(self, term: Term, node: ast.Call) -> bool:
        """True where the function comes from a package whose limits are not known."""
        root = root_name(node.func)
        path = term.scope.module.imports.get(root, ("", ""))[0]
        known = path.split(".")[0] in LIBRARIES or not path
        return not known and last_name(node.func) not in ("maxAllClose", "run_test")

    def _keep(
        self,
        term: Term,
        node: ast.expr,
        test: str,
        name: str,
        form: str,
        limits: tuple[Values, Values],
        sides: tuple[Term | None, Term | None],
        asserted: bool,
        by_dtype: bool = False,
    ) -> None:
        left, right = sides
        kernel, same = "", False
        helpers: tuple[str, ...] = ()
        if left is not None and right is not None:
            mine = (self._from_kernel(left), self._from_kernel(right))
            kernel = {(True, True): "both", (True, False): "left", (False, True): "right"}.get(mine, "")
            same = self._same(left, right)
            other = {"left": right, "right": left}.get(kernel)
            helpers = tuple(self._helpers(other)) if other is not None else ()
        place = term.scope.module.at(node)
        found = Comparison(
            place=place,
            test=test,
            function=name,
            form=form,
            rtol=limits[0],
            atol=limits[1],
            by_dtype=by_dtype,
            left="" if left is None else ast.unparse(left.node),
            right="" if right is None else ast.unparse(right.node),
            kernel=kernel,
            same=same,
            helpers=helpers,
            asserted=asserted,
        )
        key = (place, kernel, found.left + found.right)
        known = self.found.comparisons.get(key)
        if known is None or (known.same and not same):
            self.found.comparisons[key] = found

    def _threshold(self, term: Term, node: ast.Compare, test: str, body: Sequence[ast.stmt]) -> None:
        """``np.max(np.abs(a - b)) < t`` and the like."""
        if len(node.ops) != 1:
            return
        small, large = node.left, node.comparators[0]
        if isinstance(node.ops[0], ast.Gt | ast.GtE):
            small, large = large, small
        elif not isinstance(node.ops[0], ast.Lt | ast.LtE):
            return
        error = self._error(term.inner(small))
        if error is None:
            # ``if error > t: raise`` says the same the other way round
            error, large = self._error(term.inner(large)), small
        if error is None:
            return
        form, left, right = error
        most = self.sources.numbers(term.inner(large))
        limits: tuple[Values, Values] = ((0.0,), most) if form == ABSOLUTE else (most, (0.0,))
        self._keep(term, node, test, "threshold", form, limits, (left, right), _asserted(node, body))

    def _error(self, term: Term, deep: int = FAR) -> tuple[str, Term, Term] | None:
        """Form and sides of an expression that measures the difference of two values; None for any other."""
        node = term.node
        if not deep:
            return None
        if isinstance(node, ast.Name):
            found = self.sources.definitions(term)
            return self._error(found[0], deep - 1) if len(found) == 1 else None
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            over = self._error(term.inner(node.left), deep - 1)
            return None if over is None else (self._relative(over[0], term.inner(node.right)), *over[1:])
        if not isinstance(node, ast.Call):
            return None
        name = last_name(node.func)
        method = isinstance(node.func, ast.Attribute) and not self._of_library(term.scope.module, node.func)
        inner = node.func.value if method and isinstance(node.func, ast.Attribute) else None
        source = inner if inner is not None else (node.args[0] if node.args else None)
        if source is None:
            return None
        within = term.inner(source)
        if name in ("max", "amax", "item", "float", "nanmax"):
            return self._error(within, deep - 1)
        if name in ("mean", "sum", "sqrt", "median", "all", "any"):
            found_error = self._error(within, deep - 1)
            return None if found_error is None else (UNREAD, *found_error[1:])
        if name in ("abs", "absolute", "fabs", "norm"):
            difference = self._difference(within)
            return None if difference is None else (NORM if name == "norm" else ABSOLUTE, *difference)
        return None

    def _difference(self, term: Term) -> tuple[Term, Term] | None:
        node = term.node
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
            return term.inner(node.left), term.inner(node.right)
        found = self.sources.definitions(term)
        return self._difference(found[0]) if len(found) == 1 and found[0].node is not node else None

    def _relative(self, form: str, under: Term) -> str:
        node = under.node
        text = ast.unparse(node)
        if form == NORM:
            return NORM
        if form == ABSOLUTE and isinstance(node, ast.Call):
            return LARGEST if "max" in text else (ELEMENT if "abs" in text else UNREAD)
        return UNREAD

    # the same thing

    def _same(self, left: Term, right: Term) -> bool:
        """True where both sides are one assignment, or the same expression of the same assignments."""
        a, b = self._bare(left), self._bare(right)
        if a.node is b.node:
            return isinstance(a.node, ast.Call | ast.Name | ast.Subscript | ast.Attribute | ast.BinOp)
        if a.scope is not b.scope or ast.dump(a.node) != ast.dump(b.node):
            return False
        # what was assigned between two lines may differ, and two runs of the kernel are two
        return a.node.lineno == b.node.lineno and not self._from_kernel(a)

    def _bare(self, term: Term, deep: int = FAR) -> Term:
        """A value without casts, followed to what was assigned."""
        node = term.node
        if not deep:
            return term
        if isinstance(node, ast.Call) and last_name(node.func) in CASTS - {"abs"}:
            method = isinstance(node.func, ast.Attribute) and not self._of_library(
                term.scope.module, node.func
            )
            if method and isinstance(node.func, ast.Attribute):
                return self._bare(term.inner(node.func.value), deep - 1)
            if node.args and self.sources.function(term.inner(node.func)) is None:
                return self._bare(term.inner(node.args[0]), deep - 1)
        if isinstance(node, ast.Name):
            found = self.sources.definitions(term)
            if len(found) == 1 and not term.scope.names.edited(node.id, node.lineno):
                return self._bare(found[0], deep - 1)
        return term

    def _helpers(self, term: Term) -> Iterator[str]:
        """Functions that compute on tensors, of those that the kernel calls too, by which a value is computed."""
        mine = self._kernel_helpers
        seen: set[int] = set()
        left: list[tuple[Term, int]] = [(term, FAR)]
        while left:
            here, deep = left.pop()
            if not deep:
                continue
            for node in ast.walk(here.node):
                if isinstance(node, ast.Name):
                    left.extend((each, deep - 1) for each in self.sources.definitions(here.inner(node)))
                if not isinstance(node, ast.Call):
                    continue
                called = self.sources.called(here.inner(node))
                if called is None or id(called[0]) in seen:
                    continue
                function, scope = called
                seen.add(id(function))
                if function.name in mine and mine[function.name] is function:
                    yield function.name
                    continue
                for inner in nodes_of(function.body):
                    if isinstance(inner, ast.Call):
                        left.append((Term(inner, scope), deep - 1))

    @cached_property
    def _kernel_helpers(self) -> dict[str, Function]:
        """The functions of these files that the kernel calls and that compute: each calls something of a package."""
        found: dict[str, Function] = {}
        left = [
            (module.functions[self.kernel], module)
            for module in self.sources.modules
            if self.kernel in module.functions
        ]
        while left:
            function, module = left.pop()
            for node in nodes_of(function.body):
                called = (
                    self.sources.function(Term(node.func, Scope(module, function, Scope(module))))
                    if isinstance(node, ast.Call)
                    else None
                )
                if called is None or called[0].name in found or called[0].name == self.kernel:
                    continue
                inner, scope = called
                found[inner.name] = inner
                left.append((inner, scope.module))
        return {name: function for name, function in found.items() if _computes(function)}


def _computes(function: Function) -> bool:
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        for node in nodes_of(function.body)
    )


def _cases(scope: Scope) -> int:
    """How many values the most parametrised parameter of a test has."""
    return max([1, *(len(terms) for terms in scope.bound.values())])


def _asserted(node: ast.expr, body: Sequence[ast.stmt]) -> bool:
    """False where nothing depends on a comparison but what is printed."""
    statement = _statement_of(node, body)
    if isinstance(statement, ast.If):
        return not _prints([*statement.body, *statement.orelse])
    if isinstance(statement, ast.Expr):
        return not _prints([statement])
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
        return _depends(statement.targets[0].id, body)
    return True


def _depends(name: str, body: Sequence[ast.stmt]) -> bool:
    """True where something other than printing is done with a name."""
    for node in nodes_of(body):
        if not (isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)):
            continue
        statement = _statement_of(node, body)
        if isinstance(statement, ast.If) and _prints([*statement.body, *statement.orelse]):
            continue
        if statement is not None and _prints([statement]):
            continue
        return True
    return False


def _statement_of(node: ast.AST, body: Sequence[ast.stmt]) -> ast.stmt | None:
    """The innermost statement that a node is in; of a compound one, where the node is in its head."""
    inner: ast.stmt | None = None
    for each in nodes_of(body):
        if isinstance(each, ast.stmt) and any(found is node for found in ast.walk(each)):
            inner = each
    return inner


def _prints(body: Sequence[ast.stmt]) -> bool:
    """True where statements do nothing but print or log."""
    return all(
        isinstance(node, ast.Pass)
        or (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Call)
            and (
                last_name(node.value.func) == "print"
                or root_name(node.value.func) in ("logger", "logging", "log")
            )
        )
        for node in body
    )
