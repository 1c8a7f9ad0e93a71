"""Writes a rubric as a TOML file that `loading.load` reads back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from nkireview.rubric.model import Rubric, dimension_of
from nkireview.validation import Table


def to_toml(rubric: Rubric) -> str:
    """The text of a rubric file that stands alone; criteria are grouped by dimension."""
    lines = [f"name = {_value(rubric.name)}", f"about = {_value(rubric.about)}", ""]
    lines += ["[effects]", *_keys(rubric.effects), ""]
    for cap in rubric.caps:
        lines += ["[[caps]]", *_keys(cap), ""]
    for dimension, table in rubric.dimensions.items():
        lines += [f"[dimensions.{dimension.name}]", *_keys(table), ""]
        for key, item in rubric.of(dimension).items():
            word = key.split(".", 1)[1]
            lines += [f"[criteria.{dimension_of(key).name}.{word}]", *_keys(item), ""]
    return "\n".join(lines)


def _keys(table: Table) -> Iterator[str]:
    """The keys that differ from their defaults, in the order of the model."""
    for name, value in table.model_dump(exclude_defaults=True).items():
        yield f"{name} = {_value(value)}"


def _value(value: Any) -> str:
    if isinstance(value, str):
        # as in JSON, but TOML wants DEL escaped too
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        pairs = (f"{name} = {_value(item)}" for name, item in value.items() if item is not None)
        return f"{{ {', '.join(pairs)} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    return repr(value)
