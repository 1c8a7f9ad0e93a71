"""A source as the questions of a migration see it: what each name stands for, every call, and what a name holds."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from nkireview.checks.source import Import, SourceFacts
from nkireview.isa import act, alu
from nkireview.isa.names import changed_names
from nkireview.isa.release import LEGACY, Release
from nkireview.isa.row import REQUIRED, Row
from nkireview.isa.table import ROWS

JITS = frozenset(
    {
        *(
            "nki.jit",
            "nki.trace",
            "nki.baremetal",
            "nki.benchmark",
            "nki.profile",
            "nki.nki_jit",
            "nki.nki_call",
        ),
        *("torch_neuronx.nki_jit", "torch_neuronx.xla_impl.ops.nki_jit", "jax_neuronx.nki_call"),
        *("nki.simulate", "nki.simulate_kernel"),
    }
)
"""What makes a function a kernel, as a decorator or by a call."""
CONVENTION = {
    "nki": "nki",
    "nl": "nki.language",
    "nisa": "nki.isa",
    "ncc": "nki.compiler",
    "nt": "nki.typing",
}
"""What names stand for in a file that imports nothing of NKI, as one to be pasted into another."""
_FRAMEWORKS = ("torch_neuronx", "jax_neuronx")
_ROOTS = ("nki", *_FRAMEWORKS)
_SHORT = (("nki.isa.", "nisa."), ("nki.language.", "nl."), ("nki.typing.", "nt."))
_NO_TILES = frozenset(
    {
        *("arange", "mgrid", "ds", "par_dim", "nc", "spmd_dim", "program_id", "num_programs", "program_ndim"),
        *("affine_range", "sequential_range", "static_range", "dynamic_range", "fori_loop", "while_loop"),
        *("store", "device_print", "random_seed", "static_cast", "finfo", "gemm_grid", "no_reorder"),
        *("gemm_stationary_grid", "is_hbm", "is_sbuf", "is_psum", "is_on_chip", "atomic_rmw", "sizeinbytes"),
    }
)
_ALLOCATIONS = {"ndarray": (2, 1), "zeros": (2, 1), "ones": (2, 1), "full": (3, 2), "rand": (2, 1)}
"""Functions that allocate, with the positions of buffer and dtype."""
BINARY = frozenset(name for name, operator in alu.BY_NAME.items() if operator.arity == 2) | {"divide"}
"""Functions of nki.language on two operands, element by element."""
ELEMENTWISE = BINARY | set(alu.BY_NAME) | set(act.BY_NAME)
_REDUCTIONS = frozenset({"sum", "max", "min", "mean", "prod", "var", "all"})
_INTO_PSUM = frozenset({"nki.language.matmul", "nki.language.transpose", "nki.isa.nc_matmul"})


@dataclass(frozen=True)
class Meant:
    """A name of NKI in full (``nki.isa.iota``), and whether it was imported from the legacy generation."""

    full: str
    legacy: bool

    @property
    def short(self) -> str:
        """As kernels spell it: ``nisa.iota``."""
        return short(self.full)


@dataclass(frozen=True, eq=False)
class Called:
    """A call of NKI, or of a method, whose name is then ``.ap``; `used` where the result is."""

    node: ast.Call
    meant: Meant
    function: ast.FunctionDef | None
    used: bool

    @property
    def name(self) -> str:
        """The name in full."""
        return self.meant.full

    @property
    def line(self) -> int:
        """Where it begins."""
        return self.node.lineno

    @property
    def spread(self) -> bool:
        """True where a ``*`` or ``**`` hides some of the arguments."""
        return any(isinstance(item, ast.Starred) for item in self.node.args) or any(
            item.arg is None for item in self.node.keywords
        )

    @property
    def row(self) -> Row | None:
        """The row of an instruction."""
        row = ROWS.get(self.name.rpartition(".")[2])
        return row if row is not None and f"{row.namespace}.{row.name}" == self.name else None

    def keyword(self, name: str) -> ast.keyword | None:
        """The keyword argument of that name."""
        return next((item for item in self.node.keywords if item.arg == name), None)

    def argument(self, name: str, at: int = -1) -> ast.expr | None:
        """The argument of that name, or at that position."""
        found = self.keyword(name)
        if found is not None:
            return found.value
        return self.node.args[at] if 0 <= at < len(self.node.args) else None

    def binds(self, release: Release) -> bool:
        """True where the arguments are what an instruction needs in a release, as far as they can be seen."""
        row = self.row
        if row is None or release not in row.releases:
            return False
        params = row.parameters(release)
        given = {param.name for param in params[: len(self.node.args)]}
        given |= {item.arg for item in self.node.keywords if item.arg}
        needed = {param.name for param in params if param.default is REQUIRED}
        return needed <= given and len(self.node.args) <= len(params)


@dataclass(frozen=True)
class Tile:
    """What a name holds: a tensor of NKI in a memory, with what its allocation says of it.

    A size of `shape` that is no number in the text is 0; an empty shape is unknown. `column`: it has one element a
    partition; None where that cannot be told.
    """

    memory: str
    dtype: str = ""
    shape: tuple[int, ...] = ()
    made_here: bool = False
    column: bool | None = None

    @property
    def on_chip(self) -> bool:
        """True in SBUF and PSUM."""
        return self.memory in ("sbuf", "psum")


@dataclass(frozen=True)
class Held:
    """What the names of a function hold: `views` are parts of a tensor, `numbers` begin as numbers of Python."""

    tiles: Mapping[str, Tile] = field(default_factory=dict)
    views: frozenset[str] = frozenset()
    numbers: frozenset[str] = frozenset()
    registers: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Seen:
    """A construct that a detector found: which, where, and `what` stands there in words.

    `name` is that of the call it is about, in full; `legacy` whether that comes from the legacy generation. `since`,
    `use` and `source` stand in place of those of the table's entry where they are given.
    """

    construct: str
    line: int
    what: str
    legacy: bool
    name: str = ""
    since: Release | None = None
    use: str = ""
    source: str = ""


@dataclass(frozen=True)
class Move:
    """From one release to another."""

    start: Release
    to: Release

    def from_(self, legacy: bool) -> Release:
        """The release that a call is written for: the legacy one, or the first it may be."""
        return LEGACY if legacy else max(self.start, Release(0, 2))


Detector = Callable[["Reading", Move], Iterator[Seen]]


def short(full: str) -> str:
    """``nisa.iota`` for ``nki.isa.iota``."""
    for long, brief in _SHORT:
        if full.startswith(long):
            return brief + full[len(long) :]
    return full


class Reading:
    """One source, read. `conventional`: it imports nothing of NKI, and names mean what they mean by convention."""

    def __init__(self, source: SourceFacts, legacy: bool = False) -> None:
        self.source = source
        self.bound: dict[str, Meant] = {}
        self.stars: list[Meant] = []
        self.numpy: set[str] = set()
        for item in source.imports:
            self._bind(item)
        self.conventional = not self.bound and not self.stars
        if self.conventional:
            taken = {item.bound for item in source.imports}
            self.bound = {name: Meant(full, legacy) for name, full in CONVENTION.items() if name not in taken}
            self.numpy = self.numpy or {"np"} - taken
        self.parents: dict[ast.AST, ast.AST] = {}
        self.functions: dict[ast.AST, ast.FunctionDef | None] = {}
        self._place(source.tree, None)

    def _bind(self, item: Import) -> None:
        module, legacy = item.module, item.module.split(".")[0] == "neuronxcc"
        if module == "numpy" and not item.name:
            self.numpy.add(item.bound)
        full = normal(f"{module}.{item.name}" if item.name else module)
        # of two imports in a try, the current generation is the one to go on with
        known = self.bound.get(item.bound)
        if not is_nki(module, item.name) or (
            item.guarded and legacy and known is not None and not known.legacy
        ):
            return
        if item.name == "*":
            self.stars.append(Meant(normal(module), legacy))
        elif item.name or item.bound != module.split(".")[0]:
            self.bound[item.bound] = Meant(full, legacy or full.split(".")[0] in _FRAMEWORKS)
        else:
            # ``import nki.language`` binds the package alone
            self.bound[item.bound] = Meant(item.bound, legacy)

    def _place(self, node: ast.AST, function: ast.FunctionDef | None) -> None:
        left: list[tuple[ast.AST, ast.FunctionDef | None]] = [(node, function)]
        while left:
            at, inside = left.pop()
            self.functions[at] = inside
            below = at if isinstance(at, ast.FunctionDef) and inside is None else inside
            for child in ast.iter_child_nodes(at):
                self.parents[child] = at
                left.append((child, below))

    def meant(self, node: ast.AST | None) -> Meant | None:
        """What a dotted name stands for; None where it is none of NKI."""
        names: list[str] = []
        while isinstance(node, ast.Attribute):
            names.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return None
        found = self.bound.get(node.id)
        if found is None:
            return next((star for item in self.stars if (star := _starred(item, node.id)) is not None), None)
        full = normal(".".join((found.full, *reversed(names))))
        return Meant(full, found.legacy) if full.split(".")[0] in _ROOTS else None

    def full(self, node: ast.AST | None) -> str:
        """The name in full that a dotted name stands for; empty where it is none of NKI."""
        found = self.meant(node)
        return found.full if found is not None else ""

    def numpy_name(self, node: ast.AST | None) -> str:
        """``add`` for ``np.add``; empty for anything else."""
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in self.numpy
        ):
            return node.attr
        return ""

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Every node, in order of the text where it has a place in it."""
        return tuple(ast.walk(self.source.tree))

    @cached_property
    def calls(self) -> tuple[Called, ...]:
        """Every call of NKI, and of a method of something else."""
        found = []
        for node in self.nodes:
            if isinstance(node, ast.Call):
                meant = self.meant(node.func)
                if meant is None and isinstance(node.func, ast.Attribute):
                    meant = Meant(f".{node.func.attr}", self.legacy_alone)
                if meant is not None:
                    used = not isinstance(self.parents[node], ast.Expr)
                    found.append(Called(node, meant, self.functions[node], used))
        return tuple(found)

    @cached_property
    def legacy_alone(self) -> bool:
        """True where all that is known of NKI is the legacy generation."""
        known = [*self.bound.values(), *self.stars]
        return bool(known) and all(item.legacy for item in known)

    @cached_property
    def kernels(self) -> dict[str, ast.FunctionDef]:
        """The functions that a decorator, or a call such as ``nki.jit(f)``, makes kernels."""
        named = {
            item.id
            for call in self.calls
            if call.name in JITS
            for item in self._made(call.node)
            if isinstance(item, ast.Name)
        }
        return {
            node.name: node
            for node in self.nodes
            if isinstance(node, ast.FunctionDef)
            and (node.name in named or any(self.full(_called(item)) in JITS for item in node.decorator_list))
        }

    def _made(self, call: ast.Call) -> Iterator[ast.expr]:
        """What is handed to a maker of kernels, directly or to what the call of it returns."""
        yield from call.args[:1]
        outer = self.parents[call]
        if isinstance(outer, ast.Call) and outer.func is call:
            yield from outer.args[:1]

    def held(self, function: ast.FunctionDef | None) -> Held:
        """What the names of a function, and of those inside it, hold."""
        if function is None:
            return Held()
        if function not in self._held:
            self._held[function] = self._read(function)
        return self._held[function]

    @cached_property
    def _held(self) -> dict[ast.FunctionDef, Held]:
        return {}

    def _read(self, function: ast.FunctionDef) -> Held:
        tiles: dict[str, Tile] = {}
        views: set[str] = set()
        numbers: set[str] = set()
        registers: set[str] = set()
        other = {item.arg for item in ast.walk(function) if isinstance(item, ast.arg)}
        assigned = sorted(_assigned(function), key=lambda pair: (pair[1].lineno, pair[1].col_offset))
        for name, value in assigned:
            tile = self.made(value, tiles)
            if tile is not None:
                tiles.setdefault(name, tile)
                if isinstance(value, ast.Subscript):
                    views.add(name)
                continue
            if isinstance(value, ast.Constant) and isinstance(value.value, int | float):
                numbers.add(name)
            elif isinstance(value, ast.Call) and self.full(value.func) == "nki.isa.register_alloc":
                registers.add(name)
            other.add(name)
        for node in ast.walk(function):
            if isinstance(node, ast.For | ast.comprehension):
                other |= {item.id for item in ast.walk(node.target) if isinstance(item, ast.Name)}
            elif isinstance(node, ast.Assign):
                packed = [target for target in node.targets if isinstance(target, ast.Tuple | ast.List)]
                other |= {part.id for target in packed for part in target.elts if isinstance(part, ast.Name)}
        kept = {name: tile for name, tile in tiles.items() if name not in other}
        return Held(kept, frozenset(views & set(kept)), frozenset(numbers - set(tiles)), frozenset(registers))

    def made(self, value: ast.expr, tiles: Mapping[str, Tile]) -> Tile | None:
        """What an expression makes, where that is a tensor for certain."""
        if isinstance(value, ast.Name):
            return tiles.get(value.id)
        if isinstance(value, ast.Subscript) and isinstance(value.value, ast.Name):
            found = tiles.get(value.value.id)
            return Tile(found.memory, found.dtype) if found is not None else None
        if isinstance(value, ast.BinOp):
            sides = [
                side for part in (value.left, value.right) if (side := self.made(part, tiles)) is not None
            ]
            return Tile("sbuf", column=_columns(sides)) if any(side.on_chip for side in sides) else None
        if not isinstance(value, ast.Call):
            return None
        meant = self.meant(value.func)
        if meant is None:
            return None
        call = Called(value, meant, None, True)
        name = meant.full.rpartition(".")[2]
        if meant.full == f"nki.language.{name}" and name in _ALLOCATIONS:
            return self._allocated(call, name)
        if meant.full == f"nki.language.{name}" and name.islower() and name not in _NO_TILES:
            memory = "psum" if meant.full in _INTO_PSUM else "sbuf"
            given = [side for part in value.args if (side := self.made(part, tiles)) is not None]
            column = name in _REDUCTIONS or (_columns(given) if name in ELEMENTWISE else None)
            return Tile(memory, column=column)
        if returns_result(call):
            return Tile("psum" if meant.full in _INTO_PSUM else "sbuf")
        return None

    def _allocated(self, call: Called, name: str) -> Tile:
        buffer_at, dtype_at = _ALLOCATIONS[name]
        buffer, dtype = call.argument("buffer", buffer_at), call.argument("dtype", dtype_at)
        shape = sizes(call.argument("shape", 0))
        full = self.full(_called(buffer)) if buffer is not None else ""
        if buffer is None:
            memory = "sbuf"
        elif isinstance(buffer, ast.Constant):
            memory = str(buffer.value)
        elif full.startswith(("nki.compiler.sbuf", "nki.compiler.psum")):
            memory = full.split(".")[2]
        else:
            # one that is handed in may be any
            memory = full.rpartition(".")[2] if full.startswith("nki.language.") else ""
        kind = self.full(dtype).rpartition(".")[2] if dtype is not None else ""
        column = None if not shape or not shape[-1] else all(size == 1 for size in shape[1:])
        return Tile(memory, kind, shape, True, column)

    def tile(self, node: ast.AST | None, function: ast.FunctionDef | None) -> Tile | None:
        """The tensor that an expression is, or is a part of."""
        while isinstance(node, ast.Subscript):
            node = node.value
        return self.held(function).tiles.get(node.id) if isinstance(node, ast.Name) else None


def _columns(tiles: Sequence[Tile]) -> bool | None:
    """Whether an elementwise result has one element a partition, by its operands."""
    found = [tile.column for tile in tiles]
    if not found or None in found:
        return None
    return all(found)


def sizes(node: ast.expr | None) -> tuple[int, ...]:
    """The sizes of a shape that is written out, 0 for one that is no number; empty where it is not."""
    if not isinstance(node, ast.Tuple | ast.List):
        return ()
    numbers = [item.value if isinstance(item, ast.Constant) else 0 for item in node.elts]
    return tuple(number if isinstance(number, int) else 0 for number in numbers)


def returns_result(call: Called) -> bool:
    """True where a call has the form of the legacy generation: no destination, and a result."""
    row = call.row
    if row is None or row.legacy is None or row.legacy.form != "returns":
        return False
    if call.keyword("dst") is not None or call.spread:
        return False
    current = any(call.binds(Release(0, minor)) for minor in range(2, 7))
    return not current or (call.meant.legacy and call.used)


def normal(full: str) -> str:
    """A name in full as the current generation spells it."""
    return full.removeprefix("neuronxcc.").replace(".constants.", ".")


def is_nki(module: str, name: str) -> bool:
    """True where an import is one of NKI, or of what the frameworks had of it."""
    root = module.split(".")[0]
    if root == "neuronxcc":
        return module.startswith("neuronxcc.nki") or (module == "neuronxcc" and name == "nki")
    return root == "nki" or (root in _FRAMEWORKS and name in ("nki_jit", "nki_call"))


def _starred(module: Meant, name: str) -> Meant | None:
    """A name that ``from nki.language import *`` may bind: one that the tables know."""
    full = f"{module.full}.{name}"
    return Meant(full, module.legacy) if full in changed_names() else None


def _called(node: ast.expr | None) -> ast.expr | None:
    return node.func if isinstance(node, ast.Call) else node


def _assigned(function: ast.FunctionDef) -> Iterator[tuple[str, ast.expr]]:
    """Names that a function assigns, each with the value."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            targets: Iterable[ast.expr] = node.targets
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr):
            targets = [node.target]
        else:
            continue
        for target in targets:
            if isinstance(target, ast.Name) and node.value is not None:
                yield target.id, node.value
