"""Rules over the text: generation and release, the language's Python, parallel loops, the contract."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from nkireview.checks.api import absent_names, generation_of, generations, imports_of
from nkireview.checks.subset import carried, constructs, host_calls
from nkireview.isa.release import LEGACY, Release, Span
from nkireview.rules.facts import Facts
from nkireview.rules.finding import Dimension, Evidence, Severity
from nkireview.rules.rule import Draft, Rule


def _mixed(facts: Facts) -> Iterator[Draft]:
    source = facts.source
    if source is not None and len(generations(source)) > 1:
        lines = {kind: next(imports_of(source, kind)) for kind in ("current", "legacy")}
        yield Draft(
            f"the file imports nki (line {lines['current']}) and neuronxcc.nki (line {lines['legacy']})",
            tuple(source.at(line) for line in lines.values()),
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
    seen: set[str] = set()
    for use, name in absent_names(source, facts.kernel, facts.release):
        if use.name in seen:
            continue
        seen.add(use.name)
        yield Draft(
            f"{use.name} is not in release {facts.release} ({source.at(use.line)})",
            (source.at(use.line),),
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
        yield Draft(
            f"the kernel uses {what} ({source.at(lines[0])})",
            tuple(source.at(line) for line in lines),
            len(lines),
            citation=cited[what],
        )


def _carried(facts: Facts) -> Iterator[Draft]:
    source = facts.source
    if source is None:
        return
    for item in carried(source, facts.kernel):
        places = (source.at(item.written), source.at(item.line))
        if facts.release == LEGACY:
            text = f"every iteration of the affine_range of line {item.line} reads and writes {item.name} ({places[0]})"
            yield Draft(text, places)
        else:
            yield Draft(
                f"the affine_range of line {item.line} carries {item.name} from one iteration to the next "
                f"({places[0]}), which is right in release {facts.release}, where it is a plain range",
                places,
                severity=Severity.note,
            )


def _contract(facts: Facts) -> Iterator[Draft]:
    source = facts.source
    function = source.functions.get(facts.kernel) if source is not None else None
    if source is None or function is None or not function.args.args:
        return
    if ast.get_docstring(function) is None and not any(
        isinstance(node, ast.Assert) for node in ast.walk(function)
    ):
        place = source.at(function.lineno)
        yield Draft(
            f"{facts.kernel} neither says nor asserts what shapes and dtypes it takes ({place})", (place,)
        )


def _hosted(facts: Facts) -> Iterator[Draft]:
    source = facts.source
    if source is None:
        return
    for item in host_calls(source, facts.kernel):
        place = source.at(item.line)
        yield Draft(f"the kernel calls {item.name} while it is compiled ({place})", (place,))


def _literal(facts: Facts) -> Iterator[Draft]:
    source = facts.source
    function = source.functions.get(facts.kernel) if source is not None else None
    if source is None or function is None:
        return
    names = {item.arg for item in function.args.args}
    asked = {
        node.value.id
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute) and node.attr == "shape" and isinstance(node.value, ast.Name)
    }
    fixed = [node for node in ast.walk(function) if isinstance(node, ast.Call) and _fixed_shape(node)]
    if fixed and not asked & names and not any(isinstance(node, ast.Assert) for node in ast.walk(function)):
        place = source.at(fixed[0].lineno)
        many = f"{len(fixed)} places" if len(fixed) > 1 else "one place"
        yield Draft(
            f"{facts.kernel} writes its shapes out in {many} and checks none of its arguments ({place})",
            (place,),
            len(fixed),
        )


def _fixed_shape(node: ast.AST) -> bool:
    if (
        not isinstance(node, ast.Call)
        or not isinstance(node.func, ast.Attribute)
        or node.func.attr != "ndarray"
    ):
        return False
    shape = next(
        (item.value for item in node.keywords if item.arg == "shape"), node.args[0] if node.args else None
    )
    if not isinstance(shape, ast.Tuple):
        return False
    sizes = [item.value for item in shape.elts if isinstance(item, ast.Constant)]
    # one column is the shape of a statistic, whatever the input
    return len(sizes) == len(shape.elts) and any(size != 1 for size in sizes[1:])


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
        "Kernels of the two cannot call each other, and since 0.4 the compiler refuses neuronxcc.nki inside a "
        "kernel.",
        _mixed,
        citation=f"{_NOTES}:273",
        change="Import nki, nki.isa and nki.language only, and port what still uses neuronxcc.nki.",
        releases=Span(since=Release(0, 2)),
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
