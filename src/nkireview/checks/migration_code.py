"""What statements show of a migration: imports, tiles, loops, launches, parameters, and Python the compiler refuses."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from nkireview.checks.migration_calls import MATMULS
from nkireview.checks.migration_reading import Detector, Move, Reading, Seen, is_nki, normal
from nkireview.checks.subset import carried, constructs
from nkireview.isa.migration import migration_table

AFFINE = "nki.language.affine_range"
TRACED = frozenset({AFFINE, "nki.language.sequential_range"})
"""Loops whose body the legacy generation traced once; so it did with a plain range."""
TILE_METHODS = frozenset({"astype", "broadcast_to", "expand_dims", "assert_shape"})
STORES = {"nki.language.store": 0, "nki.isa.dma_copy": 0}
"""Calls that write their destination, with its position."""
SUBSET = frozenset({"keyword-only parameters", "a list as the default of a parameter", "'is' between values"})
"""Constructs of checks/subset.py with an entry of their own."""
MOST_PROGRAMS = 2


def block_markers(reading: Reading) -> Iterator[tuple[ast.Call, int]]:
    """The calls of nl.par_dim that stand behind other dimensions, with the number of these."""
    for call in reading.calls:
        if call.name != "nki.language.par_dim":
            continue
        shape = reading.parents[call.node]
        if isinstance(shape, ast.Tuple | ast.List):
            before = shape.elts.index(call.node)
            if before:
                yield call.node, before


def _imports(reading: Reading, move: Move) -> Iterator[Seen]:
    """Each line that imports the legacy generation, once: what is private there has a name of its own."""
    lines: dict[int, Seen] = {}
    for item in reading.source.imports:
        if item.module.split(".")[0] != "neuronxcc" or item.guarded or not is_nki(item.module, item.name):
            continue
        module = f"{item.module}.{item.name}" if item.name == "nki" else item.module
        full = normal(f"{item.module}.{item.name}")
        private = migration_table().of_construct("private-import", full) is not None
        construct = "private-import" if private else "legacy-import"
        lines.setdefault(item.line, Seen(construct, item.line, f"import of {module}", True, full))
    yield from lines.values()


def _blocks(reading: Reading, move: Move) -> Iterator[Seen]:
    for node, before in block_markers(reading):
        many = "a dimension" if before == 1 else f"{before} dimensions"
        legacy = _legacy(reading, node.func)
        yield Seen("block-dimension", node.lineno, f"{many} before the partitions (nl.par_dim)", legacy)


def _operators(reading: Reading, move: Move) -> Iterator[Seen]:
    for node in reading.nodes:
        if isinstance(node, ast.BinOp):
            sides = [node.left, node.right]
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Invert):
            sides = [node.operand]
        elif isinstance(node, ast.AugAssign) and not _is_matmul(reading, node.value):
            sides = [node.target, node.value]
        else:
            continue
        if isinstance(reading.parents[node], ast.BinOp):
            continue
        made = next((name for side in sides for name in _operands(reading, side)), "")
        if made:
            word = "in place on" if isinstance(node, ast.AugAssign) else "on"
            text = f"{_SYMBOLS.get(type(node.op), 'an operator')} {word} {made}"
            yield Seen("tile-operator", node.lineno, text, reading.legacy_alone)


_SYMBOLS: dict[type[ast.AST], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.Pow: "**",
    ast.MatMult: "@",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.USub: "-",
    ast.Invert: "~",
}


def _operands(reading: Reading, node: ast.expr) -> Iterator[str]:
    """The tiles on chip among the operands of an expression, by name or as the call that makes one."""
    if isinstance(node, ast.BinOp):
        yield from _operands(reading, node.left)
        yield from _operands(reading, node.right)
        return
    if isinstance(node, ast.Call):
        meant = reading.meant(node.func)
        if meant is not None and _makes_tile(reading, node):
            yield f"the result of {meant.short}"
        return
    tile = reading.tile(node, reading.functions[node])
    if tile is not None and tile.on_chip:
        yield ast.unparse(node).split("[")[0]


def _makes_tile(reading: Reading, node: ast.Call) -> bool:
    made = reading.made(node, {})
    return made is not None and made.on_chip


def _is_matmul(reading: Reading, node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and reading.full(node.func) in MATMULS


def _methods(reading: Reading, move: Move) -> Iterator[Seen]:
    for call in reading.calls:
        name = call.name.removeprefix(".")
        if not call.name.startswith(".") or name not in TILE_METHODS:
            continue
        assert isinstance(call.node.func, ast.Attribute)
        base = call.node.func.value
        if next(_operands(reading, base), ""):
            yield Seen("tile-method", call.line, f".{name} of {_short(base)}", call.meant.legacy, call.name)


def _assignments(reading: Reading, move: Move) -> Iterator[Seen]:
    for node in reading.nodes:
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        if not reading.full(node.value.func).startswith("nki.language."):
            continue
        for target in node.targets:
            tile = reading.tile(target, reading.functions[node])
            if isinstance(target, ast.Subscript) and tile is not None and tile.on_chip:
                yield Seen(
                    "tile-assignment",
                    node.lineno,
                    f"assignment to {_short(target)}[...]",
                    reading.legacy_alone,
                )


def _indirect(reading: Reading, move: Move) -> Iterator[Seen]:
    for node in reading.nodes:
        if not isinstance(node, ast.Subscript):
            continue
        function = reading.functions[node]
        for item in _indices(node.slice):
            tile = reading.tile(item, function)
            # a list of tiles is not a tensor that an allocation of this function made
            if tile is not None and tile.on_chip:
                text = f"{_short(node)} indexed by {_short(item)}, a tile"
                yield Seen("indirect-index", node.lineno, text, reading.legacy_alone)


def _indices(node: ast.expr) -> Iterator[ast.expr]:
    """The names and subscripts in an index, not those inside calls or attributes such as shapes."""
    if isinstance(node, ast.Name | ast.Subscript):
        yield node
    elif isinstance(node, ast.Tuple):
        for item in node.elts:
            yield from _indices(item)
    elif isinstance(node, ast.BinOp):
        yield from _indices(node.left)
        yield from _indices(node.right)


def _nested(reading: Reading, move: Move) -> Iterator[Seen]:
    for node in reading.nodes:
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Subscript):
            if isinstance(reading.parents[node], ast.Subscript):
                continue
            tile = reading.tile(node, reading.functions[node])
            if tile is not None and tile.made_here:
                yield Seen(
                    "nested-slice", node.lineno, f"a slice of a slice of {_short(node)}", reading.legacy_alone
                )


def _loops(reading: Reading, move: Move) -> Iterator[Seen]:
    for node in reading.nodes:
        if isinstance(node, ast.For):
            meant = reading.meant(_called(node.iter))
            if meant is not None and meant.full in TRACED and meant.legacy:
                yield Seen("parallel-loop", node.lineno, f"for over {meant.short}", legacy=True)


def _dependences(reading: Reading, move: Move) -> Iterator[Seen]:
    held = {
        node.lineno: reading.meant(_called(node.iter)) for node in reading.nodes if isinstance(node, ast.For)
    }
    for name in reading.source.functions:
        for item in carried(reading.source, name):
            meant = held.get(item.line)
            if meant is not None and meant.full == AFFINE and meant.legacy:
                text = f"nl.affine_range carries {item.name}, written in line {item.written}"
                yield Seen("carried-dependence", item.line, text, legacy=True)


def _traced_once(reading: Reading, move: Move) -> Iterator[Seen]:
    for loop in reading.nodes:
        function = reading.functions.get(loop)
        if not isinstance(loop, ast.For) or function is None or not _traces_once(reading, loop):
            continue
        numbers = reading.held(function).numbers
        index = {item.id for item in ast.walk(loop.target) if isinstance(item, ast.Name)}
        for node in (item for statement in loop.body for item in ast.walk(statement)):
            if (
                isinstance(node, ast.AugAssign)
                and isinstance(node.target, ast.Name)
                and node.target.id in numbers
            ):
                yield Seen("traced-once", node.lineno, f"{node.target.id} counted in a loop", legacy=True)
            elif isinstance(node, ast.If | ast.IfExp):
                named = sorted(
                    {item.id for item in ast.walk(node.test) if isinstance(item, ast.Name)} & index
                )
                if named:
                    yield Seen(
                        "traced-once", node.lineno, f"if on {named[0]}, a loop's variable", legacy=True
                    )


def _traces_once(reading: Reading, loop: ast.For) -> bool:
    """True for a loop of a legacy kernel whose body was traced once."""
    called = _called(loop.iter)
    meant = reading.meant(called)
    if meant is not None:
        return meant.full in TRACED and meant.legacy
    plain = isinstance(called, ast.Name) and called.id == "range"
    return plain and reading.legacy_alone and _computes(reading, loop)


def _computes(reading: Reading, node: ast.AST | None) -> bool:
    """True where NKI is called inside."""
    inside = set(ast.walk(node)) if node is not None else set()
    return any(call.node in inside and not call.name.startswith(".") for call in reading.calls)


def _grids(reading: Reading, move: Move) -> Iterator[Seen]:
    for node in reading.nodes:
        if isinstance(node, ast.Subscript) and _is_launch(reading, node):
            legacy = reading.legacy_alone
            name, index = _short(node), node.slice
            if isinstance(index, ast.Tuple) and len(index.elts) > 1:
                yield Seen("grid", node.lineno, f"{name} on a grid of {len(index.elts)} dimensions", legacy)
            elif isinstance(index, ast.Constant) and isinstance(index.value, int):
                if index.value > MOST_PROGRAMS:
                    yield Seen("grid", node.lineno, f"{name} on a grid of {index.value}", legacy)
            elif not isinstance(index, ast.Tuple | ast.Constant):
                yield Seen("grid-size", node.lineno, f"{name} on a grid of {ast.unparse(index)}", legacy)
    for call in reading.calls:
        if call.name not in ("nki.language.program_id", "nki.language.num_programs"):
            continue
        axis = call.argument("axis" if call.name.endswith("id") else "axes", 0)
        number = axis.value if isinstance(axis, ast.Constant) else None
        if isinstance(number, int) and number > 0:
            text = f"axis {number} of {call.meant.short}"
            yield Seen("grid", call.line, text, call.meant.legacy, call.name)
        elif call.name.endswith("id"):
            yield Seen("grid-size", call.line, call.meant.short, call.meant.legacy, call.name)


def _is_launch(reading: Reading, node: ast.Subscript) -> bool:
    """True for ``kernel[grid]``: of a kernel of this file, or of what another file defines and is called at once."""
    if not isinstance(node.value, ast.Name) or not isinstance(node.ctx, ast.Load):
        return False
    name = node.value.id
    if name in reading.kernels:
        return True
    above = reading.parents[node]
    imported = any(item.bound == name and item.name for item in reading.source.imports)
    return (
        imported and isinstance(above, ast.Call) and above.func is node and isinstance(node.slice, ast.Tuple)
    )


def _parameters(reading: Reading, move: Move) -> Iterator[Seen]:
    for function in reading.kernels.values():
        if _is_part(reading, function):
            continue
        arguments = function.args
        names = {item.arg for item in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
        done: set[str] = set()
        for line, written in sorted(_written(reading, set(ast.walk(function)))):
            if written in names and written not in done:
                done.add(written)
                text = f"{function.name} writes its parameter {written}"
                yield Seen("written-parameter", line, text, reading.legacy_alone)


def _is_part(reading: Reading, function: ast.FunctionDef) -> bool:
    """True for what a kernel calls, whose arguments may be tiles."""
    for node in function.decorator_list:
        mode = (
            next((item.value for item in node.keywords if item.arg == "mode"), None)
            if isinstance(node, ast.Call)
            else None
        )
        if reading.full(_called(node)) == "nki.trace" or (
            isinstance(mode, ast.Constant) and mode.value == "trace"
        ):
            return True
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == function.name
        and _computes(reading, reading.functions[node])
        for node in reading.nodes
    )


def _written(reading: Reading, inside: set[ast.AST]) -> Iterator[tuple[int, str]]:
    """Lines that write a tensor, with its name."""
    for call in reading.calls:
        if call.node in inside and call.name in STORES:
            target = call.argument("dst", STORES[call.name])
            if target is not None:
                yield call.line, _short(target)
    for node in inside:
        if isinstance(node, ast.Assign | ast.AugAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Subscript):
                    yield node.lineno, _short(target)


def _nested_jit(reading: Reading, move: Move) -> Iterator[Seen]:
    for node in reading.nodes:
        function = reading.functions.get(node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and function is not None:
            called = reading.kernels.get(node.func.id)
            if called is not None and called is not function and function.name in reading.kernels:
                yield Seen(
                    "nested-jit",
                    node.lineno,
                    f"{function.name} calls the kernel {node.func.id}",
                    reading.legacy_alone,
                )


def _outputs(reading: Reading, move: Move) -> Iterator[Seen]:
    for function in reading.kernels.values():
        for node in ast.walk(function):
            if not isinstance(node, ast.Return) or node.value is None:
                continue
            for item in node.value.elts if isinstance(node.value, ast.Tuple | ast.List) else [node.value]:
                tile = reading.tile(item, function)
                if isinstance(item, ast.Name) and tile is not None and tile.memory == "hbm":
                    text = f"{function.name} returns {item.id}, allocated in nl.hbm"
                    yield Seen("returned-hbm", node.lineno, text, reading.legacy_alone)


def _registers(reading: Reading, move: Move) -> Iterator[Seen]:
    for node in reading.nodes:
        if isinstance(node, ast.While) and isinstance(node.test, ast.Name):
            if node.test.id in reading.held(reading.functions[node]).registers:
                yield Seen(
                    "while-register", node.lineno, f"while {node.test.id}, a register", reading.legacy_alone
                )


def _subset(reading: Reading, move: Move) -> Iterator[Seen]:
    for name in reading.source.functions:
        if name not in reading.kernels:
            continue
        for item in constructs(reading.source, name):
            construct = item.what if item.what in SUBSET else "python-subset"
            source = item.source.removeprefix("aws-neuron-sdk ")
            yield Seen(
                construct, item.line, item.what, reading.legacy_alone, "", item.releases.since, "", source
            )


def _called(node: ast.expr) -> ast.expr:
    return node.func if isinstance(node, ast.Call) else node


def _legacy(reading: Reading, node: ast.expr) -> bool:
    meant = reading.meant(node)
    return meant is not None and meant.legacy


def _short(node: ast.expr) -> str:
    while isinstance(node, ast.Subscript):
        node = node.value
    return ast.unparse(node)


CODE: Mapping[str, Detector] = MappingProxyType(
    {
        "legacy-import": _imports,
        "private-import": _imports,
        "block-dimension": _blocks,
        "tile-operator": _operators,
        "tile-method": _methods,
        "tile-assignment": _assignments,
        "indirect-index": _indirect,
        "nested-slice": _nested,
        "parallel-loop": _loops,
        "carried-dependence": _dependences,
        "traced-once": _traced_once,
        "grid": _grids,
        "grid-size": _grids,
        "written-parameter": _parameters,
        "nested-jit": _nested_jit,
        "returned-hbm": _outputs,
        "while-register": _registers,
        **dict.fromkeys((*sorted(SUBSET), "python-subset"), _subset),
    }
)
"""Each construct with what finds it; one detector may stand for several."""
