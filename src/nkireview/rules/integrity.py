"""Rules over what a submission does besides computing: reaching into the process, and answers written out in it."""

from __future__ import annotations

from collections.abc import Iterator

from nkireview.checks.integrity import forbidden, tables
from nkireview.rules.facts import Facts
from nkireview.rules.finding import Dimension, Evidence, Severity
from nkireview.rules.rule import Draft, Rule


def _forbidden(facts: Facts) -> Iterator[Draft]:
    source = facts.source
    if source is None:
        return
    found = forbidden(source, facts.kernel)
    for kind in dict.fromkeys(item.kind for item in found):
        items = [item for item in found if item.kind == kind]
        places = tuple(dict.fromkeys(source.at(item.line) for item in items))
        more = f", and {len(items) - 1} more of the kind" if len(items) > 1 else ""
        yield Draft(f"the file {items[0].message} ({places[0]}){more}", places, len(items), kind="integrity")


def _tables(facts: Facts) -> Iterator[Draft]:
    source = facts.source
    found = tables(source) if source is not None else ()
    if source is not None and found:
        places = tuple(source.at(line) for line, _ in found)
        total = sum(count for _, count in found)
        yield Draft(f"the file writes out {total} numbers ({places[0]})", places, len(found))


RULES = (
    Rule(
        "NKR055",
        "The file reaches outside itself",
        Severity.blocker,
        Dimension.correctness,
        Evidence.source,
        "A kernel file needs NKI, arithmetic and a few harmless modules. What replaces names of other "
        "modules, walks the objects or frames of the process, starts threads or processes, opens files or "
        "hides a name by spelling it in pieces could change a clock, a comparison or an answer. Such a file "
        "is not run.",
        _forbidden,
        change="Remove it from the kernel's file; tests and drivers belong in files of their own.",
    ),
    Rule(
        "NKR056",
        "Numbers are written out in the file",
        Severity.note,
        Dimension.correctness,
        Evidence.source,
        "A long list of numbers in a kernel's file is either a table of a formula or an answer that was computed "
        "elsewhere; one that grows with the input is right for one input only.",
        _tables,
        citation="aws-neuron-sdk nki/get-started/nki-language-guide.rst:116",
        change="Compute the table on the device (nisa.iota and arithmetic), or pass it as an argument.",
    ),
)
