"""Write the generated parts of docs/rubric.md from the default rubric and the table of measures.

python tools/rubric_page.py
"""

from __future__ import annotations

from pathlib import Path

from nkireview.rubric import tables
from nkireview.rubric.loading import load
from nkireview.rubric.model import Criterion, Rubric
from nkireview.rules.finding import Dimension

PAGE = Path(__file__).resolve().parent.parent / "docs" / "rubric.md"
END = "<!-- end of what `python tools/rubric_page.py` writes -->"


def page(text: str) -> str:
    """The text of docs/rubric.md with its generated parts as they must be."""
    for name, lines in (("criteria", _criteria(load())), ("caps", _caps(load())), ("measures", _measures())):
        begin = f"<!-- {name}, written by `python tools/rubric_page.py` -->"
        head, rest = text.split(begin, 1)
        text = "\n".join((f"{head}{begin}", "", *lines, "", f"{END}{rest.split(END, 1)[1]}"))
    return text


def _criteria(rubric: Rubric) -> list[str]:
    lines = [
        "| criterion | weight | rules | measures: bounds of the levels | level 0 | level 4 |",
        "|---|---|---|---|---|---|",
    ]
    for dimension in Dimension:
        table = rubric.dimensions[dimension]
        lines.append(f"| **{dimension.value}** | **{table.weight:g}** | | | {table.about} | |")
        lines += [_row(key, item) for key, item in rubric.of(dimension).items()]
    return lines


def _row(key: str, item: Criterion) -> str:
    rules = "all others" if item.rules == ("*",) else ", ".join(item.rules).replace("*", "all others")
    measures = "; ".join(
        f"`{one.name}`: {', '.join(f'{level}: {one.at[level]:g}' for level in sorted(one.at, reverse=True))}, "
        f"else {one.otherwise}"
        for one in item.measures
    )
    basis = measures or item.unassessed or ""
    return f"| `{key}`<br>{item.title} | {item.weight:g} | {rules} | {basis} | {item.levels[0]} | {item.levels[4]} |"


def _caps(rubric: Rubric) -> list[str]:
    lines = ["| a blocker of | caps the total at | because |", "|---|---|---|"]
    for cap in rubric.caps:
        rules = "any other rule" if "*" in cap.rules else ", ".join(cap.rules)
        lines.append(f"| {rules} | {cap.total:g} | {cap.why} |")
    return lines


def _measures() -> list[str]:
    lines = ["| measure | better | rests on | meaning |", "|---|---|---|---|"]
    for name, item in tables.measures().items():
        lines.append(f"| `{name}` ({item.unit}) | {item.direction} | a {item.needs} | {item.meaning} |")
    return lines


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
