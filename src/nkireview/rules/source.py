"""Rules over the text: generation and release, the language's Python, parallel loops, the contract."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from nkireview.checks.api import absent_names, generation_of, generations, imports_of
from nkireview.checks.source import SourceFacts
from nkireview.checks.subset import carried, constructs, host_calls, rebound, rewritten
from nkireview.isa.release import LEGACY, Release
from nkireview.rules.facts import Facts
from nkireview.rules.finding import Dimension, Evidence, Severity
from nkireview.rules.lines import by_cause, distinct, located
from nkireview.rules.rule import Draft, Rule

REFUSED_SINCE = Release(0, 4)
"""Release whose compiler refuses what it warned of before: release-notes/components/nki.rst:273."""


def _mixed(facts: Facts) -> Iterator[Draft]:
    source = facts.source
    if source is not None and len(generations(source)) > 1:
        lines = {kind: next(imports_of(source, kind)) for kind in ("current", "legacy")}
        yield Draft(
            f"the file imports nki (line {lines['current']}) and neuronxcc.nki (line {lines['legacy']})",
            tuple(source.at(line) for line in lines.values()),
            severity=Severity.minor if LEGACY < facts.release < REFUSED_SINCE else None,
        )


def _generation(facts: Facts) -> Iterator[Draft]:
    source = facts.source
    if source is None:
        return
    found, asked = generations(source), generation_of(facts.release)
    if len(found) == 1 and asked not in found:
        kind = next(iter(found))
        line = next(imports_of(source, kind))
        module = "nki" if kind == "current" else "neuronxcc.nki"
        yield Draft(
            f"the file imports {module}, of the {kind} generation, and the review is for release "
            f"{facts.release}, of the {asked} one ({source.at(line)})",
            (source.at(line),),
        )


def _absent(facts: Facts) -> Iterator[Draft]:
    source = facts.source
    if source is None:
        return
    for items in by_cause(absent_names(source, facts.kernel, facts.release), lambda item: item[0].name):
        name = items[0][1]
        places = distinct(source.at(use.line) for use, _ in items)
        yield Draft(
            located(f"{name.name} is not in release {facts.release}", places),
            places,
            len(items),
            citation=f"aws-neuron-sdk {name.source}",
            change=f"Use {name.use}." if name.use else "",
        )


def _subset(facts: Facts) -> Iterator[Draft]:
    source = facts.source
    if source is None:
        return
    by_what: dict[str, list[int]] = {}
    cited: dict[str, str] = {}
    for item in constructs(source, facts.kernel):
        if facts.release in item.releases:
            by_what.setdefault(item.what, []).append(item.line)
            cited[item.what] = item.source
    for what, lines in by_what.items():
        places = distinct(source.at(line) for line in lines)
        yield Draft(
            located(f"the kernel uses {what}", places),
            places,
            len(lines),
            citation=cited[what],
        )


def _carried(facts: Facts) -> Iterator[Draft]:
    """One finding for each loop."""
    source = facts.source
    if source is None:
        return
    found = list(carried(source, facts.kernel))
    if facts.release == LEGACY:
        found.extend(rewritten(source, facts.kernel))
        found.extend(rebound(source, facts.kernel))
    for items in by_cause(found, lambda item: (item.line, item.reads)):
        line, names = items[0].line, ", ".join(item.name for item in items)
        written = distinct(source.at(item.written) for item in items)
        places = distinct((*written, source.at(line)))
        if facts.release == LEGACY:
            does = "reads and writes" if items[0].reads else "writes"
            there = "" if items[0].reads else " at one place"
            sentence = f"every iteration of the affine_range of line {line} {does} {names}{there}"
            yield Draft(located(sentence, written), places, len(items))
        else:
            sentence = f"the affine_range of line {line} carries {names} from one iteration to the next"
            yield Draft(
                f"{located(sentence, written)}, which is right in release {facts.release}, where it is a plain range",
                places,
                len(items),
                severity=Severity.note,
            )


def _contract(facts: Facts) -> Iterator[Draft]:
    """Kernels that rely on what nobody says: that several arguments fit, that a size divides, that one tile will do."""
    source = facts.source
    function = source.functions.get(facts.kernel) if source is not None else None
    if (
        source is None
        or function is None
        or not function.args.args
        or ast.get_docstring(function) is not None
    ):
        return
    reachable = source.reachable(facts.kernel)
    loops = any(isinstance(node, ast.For | ast.While | ast.comprehension) for node in _nodes(reachable))
    divides = any(
        isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv) for node in _nodes(reachable)
    )
    if _checks(reachable) or (len(function.args.args) == 1 and loops and not divides):
        return
    place = source.at(function.lineno)
    yield Draft(
        f"{facts.kernel} has no docstring and checks nothing of the shapes and dtypes that it takes ({place})",
        (place,),
    )


def _nodes(functions: Iterable[ast.AST]) -> Iterator[ast.AST]:
    for function in functions:
        yield from ast.walk(function)


def _checks(functions: Iterable[ast.AST]) -> bool:
    """True where functions assert or raise, or call what by its name checks."""
    for node in _nodes(functions):
        if isinstance(node, ast.Assert | ast.Raise):
            return True
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if any(word in called.lower() for word in ("assert", "check", "valid")):
                return True
    return False


def _hosted(facts: Facts) -> Iterator[Draft]:
    source = facts.source
    if source is None:
        return
    for items in by_cause(host_calls(source, facts.kernel), lambda item: item.name):
        places = distinct(source.at(item.line) for item in items)
        sentence = f"the kernel calls {items[0].name} while it is compiled"
        yield Draft(located(sentence, places), places, len(items))


def _literal(facts: Facts) -> Iterator[Draft]:
    source = facts.source
    function = source.functions.get(facts.kernel) if source is not None else None
    if source is None or function is None:
        return
    said = set(re.findall(r"\d+", ast.get_docstring(function) or ""))
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    unsaid = [node for node in calls if not _fixed_shape(node) <= said]
    if unsaid and not _asks_shapes(source, function) and not _checks(source.reachable(facts.kernel)):
        places = distinct(source.at(node.lineno) for node in unsaid)
        many = f"{len(unsaid)} places" if len(unsaid) > 1 else "one place"
        yield Draft(
            f"{facts.kernel} writes its shapes out in {many} and neither states nor checks those of its arguments "
            f"({places[0]})",
            places,
            len(unsaid),
        )


def _asks_shapes(source: SourceFacts, function: ast.FunctionDef) -> bool:
    """True where the kernel, or a function that it hands an argument to, takes the shape of an argument."""
    names = {item.arg for item in function.args.args}
    if _shaped(function) & names:
        return True
    for node in ast.walk(function):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            continue
        called = source.functions.get(node.func.id)
        if called is not None:
            given = [*zip([item.arg for item in called.args.args], node.args, strict=False)]
            given += [(item.arg, item.value) for item in node.keywords if item.arg]
            handed = {name for name, value in given if isinstance(value, ast.Name) and value.id in names}
            if _shaped(called) & handed:
                return True
    return False


def _shaped(function: ast.FunctionDef) -> set[str]:
    """The names whose shape a function takes."""
    return {
        node.value.id
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute)
        and node.attr in ("shape", "ndim")
        and isinstance(node.value, ast.Name)
    }


def _fixed_shape(node: ast.Call) -> frozenset[str]:
    """The sizes of a tile whose shape is written out; none where it is not, or is the shape of a statistic."""
    if not isinstance(node.func, ast.Attribute) or node.func.attr != "ndarray":
        return frozenset()
    shape = next(
        (item.value for item in node.keywords if item.arg == "shape"), node.args[0] if node.args else None
    )
    if not isinstance(shape, ast.Tuple):
        return frozenset()
    sizes = [item.value for item in shape.elts if isinstance(item, ast.Constant)]
    # one column is the shape of a statistic, whatever the input
    if len(sizes) != len(shape.elts) or all(size == 1 for size in sizes[1:]):
        return frozenset()
    return frozenset(str(size) for size in sizes)


_GUIDE = "aws-neuron-sdk nki/get-started/nki-language-guide.rst"
_NOTES = "aws-neuron-sdk release-notes/components/nki.rst"
_MINOR, _NOTE = Severity.minor, Severity.note

RULES = (
    Rule(
        "NKR046",
        "The file mixes two generations of NKI",
        Severity.major,
        Dimension.sdk,
        Evidence.source,
        "neuronxcc.nki and nki are two compilers with two sets of rules: calls, loops and results differ. "
        "Kernels of the two cannot call each other. The SDK of the legacy generation has no nki, and since 0.4 the "
        "compiler refuses neuronxcc.nki inside a kernel; between the two, where it warns, this is minor.",
        _mixed,
        citation=f"{_NOTES}:273",
        change="Import nki, nki.isa and nki.language only, and port what still uses neuronxcc.nki; nkireview "
        "migrate-check says what that takes.",
    ),
    Rule(
        "NKR047",
        "The file is of another generation than the review",
        _NOTE,
        Dimension.sdk,
        Evidence.source,
        "The generation decides what a call means: whether affine_range promises independence, whether instructions "
        "return their result, which limits hold. A verdict for the other one says little about this file.",
        _generation,
        citation="aws-neuron-sdk nki/migration/index.rst:14-36",
        change="Review it with --nki of its own generation: legacy for neuronxcc.nki, 0.2 or later for nki.",
    ),
    Rule(
        "NKR048",
        "A name that the release does not have",
        Severity.major,
        Dimension.sdk,
        Evidence.source,
        "NKI adds and removes names with every release. A kernel that uses one of another release fails when it is "
        "compiled, at the first call that reaches it.",
        _absent,
        citation="aws-neuron-sdk nki/migration/index.rst:856-870",
        change="Use what the release has in its place, or review with --nki of the release that has the name.",
    ),
    Rule(
        "NKR049",
        "Python that the kernel language does not have",
        _MINOR,
        Dimension.sdk,
        Evidence.source,
        "NKI functions are compiled, not run: the compiler knows a subset of Python. The simulator, which runs plain "
        "Python, accepts more, so that a kernel passes there and fails to compile.",
        _subset,
        citation="aws-neuron-sdk nki/guides/nki_simulator.rst:285-288",
        change="Keep to functions, loops, conditions, asserts, tuples, lists, dictionaries with string keys and "
        "NKIObject.",
    ),
    Rule(
        "NKR050",
        "A parallel loop carries a value from one iteration to the next",
        Severity.blocker,
        Dimension.dma,
        Evidence.source,
        "In the legacy generation affine_range promises that iterations are independent, and the compiler "
        "runs them in any order and at once: a tile that each of them reads and writes is a race. Since 0.3 "
        "it is a plain range and the order is kept, so that there it is a note.",
        _carried,
        citation="aws-neuron-sdk nki/api/nki/language/__init__.py at tag v2.26.1:222-283",
        change="Use nl.sequential_range in the legacy generation, and range in the current one.",
    ),
    Rule(
        "NKR051",
        "The kernel does not state its contract",
        _NOTE,
        Dimension.sdk,
        Evidence.source,
        "Without a docstring or an assert nobody knows which shapes, layouts and dtypes the kernel is meant "
        "for, and a caller with others gets a wrong result or a compiler error far from its cause.",
        _contract,
        citation=f"{_GUIDE}:24-32",
        change="Say in the docstring what each axis is, and assert what the kernel relies on.",
    ),
    Rule(
        "NKR052",
        "Shapes are written out and not checked",
        _NOTE,
        Dimension.tiling,
        Evidence.source,
        "Tiles of a fixed shape fit one input. On another the kernel leaves rows out or reads beyond its "
        "argument, and nothing says so.",
        _literal,
        citation=f"{_GUIDE}:24-32",
        suppresses=frozenset({"NKR051"}),
        change="Take the shapes from the arguments, or assert the ones that the kernel is written for.",
    ),
    Rule(
        "NKR053",
        "The kernel asks the host for a time or a random number",
        _MINOR,
        Dimension.sdk,
        Evidence.source,
        "Everything but nki.isa calls is evaluated when the kernel is compiled. The value of that moment is "
        "built into the kernel and stays the same in every run from the cache.",
        _hosted,
        citation=f"{_GUIDE}:116",
        change="Pass the number as an argument, or use the random instructions of nki.isa.",
    ),
)
