"""What a test gives to a kernel: how its arrays are made, as far as the text says."""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass, replace

from nkireview.checks.own_tests_reading import DEEP, Scope, Sources, Term, last_name, root_name

UNIT = frozenset({"rand", "random", "random_sample", "ranf", "rand_like"})
"""Draws from [0, 1): numpy.random and torch."""
NORMAL = frozenset({"randn", "standard_normal", "randn_like"})
WHOLE = frozenset({"randint", "integers", "random_integers", "permutation", "randperm"})
CONSTANT = frozenset({"zeros", "zeros_like", "ones", "ones_like", "eye", "empty", "empty_like"})
FILLED = frozenset({"full", "full_like"})
RANGE = frozenset({"arange", "linspace"})
KEPT = frozenset(
    {
        *(
            "array",
            "asarray",
            "ascontiguousarray",
            "from_numpy",
            "tensor",
            "as_tensor",
            "static_cast",
            "device_put",
        ),
        *(
            "astype",
            "to",
            "float",
            "half",
            "bfloat16",
            "double",
            "cpu",
            "cuda",
            "detach",
            "clone",
            "copy",
            "numpy",
        ),
        *(
            "reshape",
            "view",
            "transpose",
            "permute",
            "contiguous",
            "squeeze",
            "unsqueeze",
            "swapaxes",
            "flatten",
        ),
        *("ravel", "requires_grad_", "type"),
    }
)
"""Calls that keep the values, but for casts."""
CASTS = frozenset(
    {"astype", "to", "float", "half", "bfloat16", "double", "static_cast", "type", "asarray", "array"}
)
RESHAPES = frozenset(
    {"reshape", "view", "transpose", "permute", "squeeze", "unsqueeze", "swapaxes", "flatten", "ravel"}
)
DTYPES = {
    "float": "float32",
    "half": "float16",
    "double": "float64",
    "single": "float32",
}
KNOWN_DTYPES = frozenset(
    {"float16", "float32", "float64", "bfloat16", "int8", "int32", "int64", "uint8", "bool"}
)

Sizes = tuple[tuple[int, ...] | None, ...]
"""For each axis the sizes that it may have; None where that cannot be read."""


@dataclass(frozen=True)
class Given:
    """A tensor that a test gives to the kernel.

    kind: ``unit`` (drawn from [0, 1)), ``uniform``, ``normal``, ``integers``, ``constant``, ``range``, ``unknown``.
    low, high: the range of its values, where there is one. factor: what random values were multiplied by. dtype:
    empty where the text does not say. sizes: None where the shape cannot be read. edited: elements were set apart.
    """

    place: str
    text: str
    kind: str
    low: float = -math.inf
    high: float = math.inf
    factor: float = 1.0
    dtype: str = ""
    sizes: Sizes | None = None
    axes: tuple[str, ...] = ()
    edited: bool = False

    @property
    def drawn(self) -> bool:
        """True where it is random, with fractions."""
        return self.kind in ("unit", "uniform", "normal")

    @property
    def square(self) -> bool:
        """True where it is a matrix, or a stack of them, with as many rows as columns."""
        if self.sizes is None or len(self.sizes) < 2:
            return False
        rows, columns = self.sizes[-2:]
        if rows is None or columns is None or min(*rows, *columns) < 2:
            return False
        return rows == columns and (len(rows) == 1 or self.axes[-2] == self.axes[-1])


def given(sources: Sources, term: Term, deep: int = DEEP) -> list[Given]:
    """The tensors that an argument may be; none for a number, a string or the like."""
    made = _given(sources, term, deep)
    place, text = term.scope.module.at(term.node), term.scope.module.text(term.node)
    return [replace(item, place=item.place or place, text=text) for item in made]


def _given(sources: Sources, term: Term, deep: int) -> list[Given]:
    node = term.node
    if not deep:
        return [_unknown(term)]
    if isinstance(node, ast.Constant | ast.JoinedStr | ast.Lambda | ast.Dict | ast.Compare | ast.BoolOp):
        return []
    if sources.numbers(term) is not None:
        return []
    if isinstance(node, ast.Name):
        return _named(sources, term, node, deep)
    if isinstance(node, ast.Call):
        return _called(sources, term, node, deep)
    if isinstance(node, ast.BinOp):
        return _computed(sources, term, node, deep)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return [_times(item, -1.0) for item in _given(sources, term.inner(node.operand), deep - 1)]
    if isinstance(node, ast.Attribute):
        if node.attr in ("T", "mT", "H", "data"):
            turned = node.attr != "data"
            found = _given(sources, term.inner(node.value), deep - 1)
            return [_turned(item) if turned else item for item in found]
        # a field, an enum member, a dtype
        return [] if root_name(node) in term.scope.module.imports else [_unknown(term)]
    if isinstance(node, ast.IfExp):
        return [
            item for each in (node.body, node.orelse) for item in _given(sources, term.inner(each), deep - 1)
        ]
    if isinstance(node, ast.Subscript):
        return _taken(sources, term, node, deep)
    if isinstance(node, ast.Tuple | ast.List):
        return [item for each in node.elts for item in _given(sources, term.inner(each), deep - 1)]
    if isinstance(node, ast.Starred):
        return _given(sources, term.inner(node.value), deep - 1)
    if isinstance(node, ast.ListComp | ast.GeneratorExp):
        return [replace(item, sizes=None) for item in _given(sources, term.inner(node.elt), deep - 1)]
    return [_unknown(term)]


def _unknown(term: Term) -> Given:
    return Given(term.scope.module.at(term.node), "", "unknown")


def _named(sources: Sources, term: Term, node: ast.Name, deep: int) -> list[Given]:
    found = sources.definitions(term)
    if not found:
        known = sources.function(term) is not None or node.id in ("None", "True", "False")
        # what is imported and not assigned is a function, a class or a setting
        return [] if known or node.id in term.scope.module.imports else [_unknown(term)]
    edited = term.scope.names.edited(node.id, node.lineno)
    made = [item for each in found for item in _given(sources, each, deep - 1)]
    return [replace(item, edited=True) for item in made] if edited else made


def _taken(sources: Sources, term: Term, node: ast.Subscript, deep: int) -> list[Given]:
    """One of several, or a part of a tensor."""
    at = node.slice.value if isinstance(node.slice, ast.Constant) else None
    if isinstance(at, int):
        held = sources.elements(term.inner(node.value))
        if held is not None and -len(held) <= at < len(held):
            return _given(sources, held[at], deep - 1)
        value = node.value
        if isinstance(value, ast.Call) and sources.function(term.inner(value.func)) is not None:
            picked: list[Given] = []
            for each in sources.returned(term.inner(value)):
                several = sources.elements(each)
                if several is None or not -len(several) <= at < len(several):
                    return [_unknown(term)]
                picked.extend(_given(sources, several[at], deep - 1))
            return picked or [_unknown(term)]
    if isinstance(at, str):
        return [_unknown(term)]
    return [replace(item, sizes=None) for item in _given(sources, term.inner(node.value), deep - 1)]


def _called(sources: Sources, term: Term, node: ast.Call, deep: int) -> list[Given]:
    if sources.function(term.inner(node.func)) is not None:
        returned = sources.returned(term)
        made = [item for each in returned for item in _given(sources, each, deep - 1)]
        return made if returned else [_unknown(term)]
    name = last_name(node.func)
    drawn = _draw(sources, term, node, name)
    if drawn is not None:
        return [drawn]
    if name in KEPT:
        method = isinstance(node.func, ast.Attribute) and not _of_module(term, node.func)
        inner = node.func.value if method and isinstance(node.func, ast.Attribute) else None
        source = inner if inner is not None else (node.args[0] if node.args else None)
        if source is None:
            return [_unknown(term)]
        made = _given(sources, term.inner(source), deep - 1)
        if name in RESHAPES:
            made = [replace(item, sizes=None, axes=()) for item in made]
        if name in CASTS:
            dtype = _dtype(sources, term, node, name, skipped=0 if inner is not None else 1)
            made = [replace(item, dtype=dtype or item.dtype) for item in made]
        return made
    return [] if name[:1].isupper() and name not in ("Tensor", "FloatTensor") else [_unknown(term)]


def _of_module(term: Term, node: ast.Attribute) -> bool:
    """True for ``np.array`` and the like: a function of an imported module, no method of a value."""
    return root_name(node.value) in term.scope.module.imports


def _draw(sources: Sources, term: Term, node: ast.Call, name: str) -> Given | None:
    place = term.scope.module.at(node)
    sizes, axes = _shape(sources, term, node, name)
    dtype = _dtype(sources, term, node, "")
    base = Given(place, "", "unknown", dtype=dtype, sizes=sizes, axes=axes)
    jax = _jax(term, node)
    if name in UNIT and not (name == "random" and not node.args and not node.keywords):
        return replace(base, kind="unit", low=0.0, high=1.0)
    if name in NORMAL or (name == "normal" and jax):
        return replace(base, kind="normal")
    if name == "normal":
        spread = _number(sources, term, node, 1, ("scale", "std"), 1.0)
        middle = _number(sources, term, node, 0, ("loc", "mean"), 0.0)
        known = spread is not None and middle is not None
        return replace(
            base, kind="normal" if known else "unknown", factor=spread if known and spread else 1.0
        )
    if name in ("uniform", "uniform_"):
        # numpy.random.uniform(low, high, size); jax.random.uniform(key, shape, dtype, minval, maxval)
        low = _number(sources, term, node, 3 if jax else 0, ("low", "minval", "from"), 0.0)
        high = _number(sources, term, node, 4 if jax else 1, ("high", "maxval", "to"), 1.0)
        if low is None or high is None:
            return base
        unit = low >= 0 and high <= 1
        return replace(base, kind="unit" if unit else "uniform", low=low, high=high)
    if name in WHOLE:
        return replace(base, kind="integers")
    if name in FILLED:
        at = 1
        value = _number(sources, term, node, at, ("fill_value",), None)
        return replace(
            base,
            kind="constant",
            low=-math.inf if value is None else value,
            high=math.inf if value is None else value,
        )
    if name in CONSTANT:
        value = 1.0 if name.startswith("one") else 0.0
        return replace(base, kind="constant", low=value, high=max(value, 1.0 if name == "eye" else value))
    if name in RANGE:
        return replace(base, kind="range")
    return None


def _number(
    sources: Sources, term: Term, node: ast.Call, at: int, names: tuple[str, ...], default: float | None
) -> float | None:
    """The only value of an argument; the default where it is not given, None where it cannot be read."""
    value = next((item.value for item in node.keywords if item.arg in names), None)
    if value is None and at < len(node.args):
        value = node.args[at]
    if value is None:
        return default
    found = sources.numbers(term.inner(value))
    return found[0] if found is not None and len(found) == 1 else None


SHAPE_AT = {
    **dict.fromkeys(
        ("random_sample", "random", "ranf", "standard_normal", "zeros", "ones", "empty", "full"), 0
    ),
    **dict.fromkeys(("normal", "uniform", "randint", "integers"), 2),
}
"""Position of the shape among the arguments."""
SPREAD = frozenset({"rand", "randn", "zeros", "ones", "empty"})
"""Calls that may take the sizes one by one."""


def _shape(sources: Sources, term: Term, node: ast.Call, name: str) -> tuple[Sizes | None, tuple[str, ...]]:
    """The sizes of the axes, and how they are written; None where the shape cannot be read."""
    value = next((item.value for item in node.keywords if item.arg in ("size", "shape")), None)
    if value is None and name in SPREAD and node.args:
        spread = [term.inner(item) for item in node.args if sources.numbers(term.inner(item)) is not None]
        if len(spread) == len(node.args):
            return _sizes(sources, spread)
        if any(isinstance(item, ast.Starred) for item in node.args):
            return None, ()
        if len(spread) or (len(node.args) > 1 and name in ("rand", "randn")):
            return _sizes(sources, [term.inner(item) for item in node.args])
        value = node.args[0]
    if value is None:
        at = 1 if _jax(term, node) else SHAPE_AT.get(name)
        value = node.args[at] if at is not None and at < len(node.args) else None
    if value is None:
        return None, ()
    held = sources.elements(term.inner(value))
    if held is None and sources.numbers(term.inner(value)) is not None:
        held = [term.inner(value)]
    return (None, ()) if held is None else _sizes(sources, held)


def _jax(term: Term, node: ast.Call) -> bool:
    root = root_name(node.func)
    path, _ = term.scope.module.imports.get(root, ("", ""))
    return path.startswith("jax") or "jax" in ast.unparse(node.func)


def _sizes(sources: Sources, terms: list[Term]) -> tuple[Sizes, tuple[str, ...]]:
    sizes: list[tuple[int, ...] | None] = []
    for term in terms:
        found = sources.numbers(term)
        whole = found is not None and all(value == int(value) for value in found)
        sizes.append(tuple(int(value) for value in found) if whole and found is not None else None)
    return tuple(sizes), tuple(ast.unparse(term.node) for term in terms)


def _dtype(sources: Sources, term: Term, node: ast.Call, name: str, skipped: int = 0) -> str:
    """The dtype that a call asks for; empty where it does not, or where that cannot be read."""
    if name in DTYPES and isinstance(node.func, ast.Attribute) and not node.args:
        return DTYPES[name]
    value = next((item.value for item in node.keywords if item.arg == "dtype"), None)
    if value is None and name and len(node.args) > skipped:
        value = node.args[skipped]
    if value is None:
        return ""
    found = term.inner(value)
    for _ in range(DEEP):
        others = sources.definitions(found)
        if len(others) != 1:
            break
        found = others[0]
    written = found.node
    text = (
        written.value
        if isinstance(written, ast.Constant) and isinstance(written.value, str)
        else last_name(written)
    )
    text = DTYPES.get(text, text)
    return text if text in KNOWN_DTYPES or text.startswith("float8") else ""


def _computed(sources: Sources, term: Term, node: ast.BinOp, deep: int) -> list[Given]:
    """A tensor and a number; of two tensors nothing is known."""
    left, right = term.inner(node.left), term.inner(node.right)
    for side, other, first in ((left, right, True), (right, left, False)):
        numbers = sources.numbers(other)
        if numbers is None:
            continue
        made = _given(sources, side, deep - 1)
        return [_with_number(item, node.op, numbers, first) for item in made] if made else []
    return [_unknown(term)]


def _with_number(item: Given, op: ast.operator, numbers: tuple[float, ...], first: bool) -> Given:
    low, high = min(numbers), max(numbers)
    if isinstance(op, ast.Mult) or (isinstance(op, ast.Div) and first and 0 not in numbers):
        by = numbers if isinstance(op, ast.Mult) else tuple(1 / number for number in numbers)
        scaled = [_times(item, number) for number in by]
        return replace(
            max(scaled, key=lambda each: abs(each.factor)),
            low=min(each.low for each in scaled),
            high=max(each.high for each in scaled),
            kind=next((each.kind for each in scaled if each.kind != "unit"), item.kind),
        )
    if isinstance(op, ast.Add) or (isinstance(op, ast.Sub) and first):
        by_low, by_high = (low, high) if isinstance(op, ast.Add) else (-high, -low)
        return _ranged(replace(item, low=item.low + by_low, high=item.high + by_high))
    if isinstance(op, ast.Sub):
        return _ranged(replace(_times(item, -1.0), low=low - item.high, high=high - item.low))
    return replace(item, kind="unknown", low=-math.inf, high=math.inf)


def _times(item: Given, number: float) -> Given:
    if number == 0:
        return replace(item, kind="constant", low=0.0, high=0.0)
    ends = sorted((item.low * number, item.high * number))
    return _ranged(replace(item, low=ends[0], high=ends[1], factor=item.factor * number))


def _ranged(item: Given) -> Given:
    """A draw from [0, 1) that is moved out of it is one of another range."""
    if item.kind in ("unit", "uniform"):
        return replace(item, kind="unit" if item.low >= 0 and item.high <= 1 else "uniform")
    return item


def _turned(item: Given) -> Given:
    if item.sizes is None:
        return item
    return replace(item, sizes=item.sizes[::-1], axes=item.axes[::-1])


def seed_of(sources: Sources, scope: Scope, node: ast.Call) -> tuple[float, ...] | None:
    """The values that a call seeds a generator with, empty where they cannot be read; None for no such call."""
    name = last_name(node.func)
    seeds = name in ("default_rng", "RandomState", "manual_seed", "PRNGKey", "seed")
    if not seeds and not ast.unparse(node.func).endswith("random.key"):
        return None
    if not node.args and not node.keywords:
        return None
    value = node.args[0] if node.args else node.keywords[0].value
    return sources.numbers(Term(value, scope)) or ()
