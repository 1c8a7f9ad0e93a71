"""Tables that people write in TOML, checked by pydantic: strict models, and one sentence for each mistake."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError


class Table(BaseModel):
    """A table of a file: every key is known, and nothing is converted."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def suggestion(name: str, known: list[str]) -> str:
    """The nearest known name, or all of them."""
    near = get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"expected one of {', '.join(known)}"


def sentences(error: ValidationError, root: type[Table]) -> Iterator[str]:
    """One sentence for each mistake: its place, what was found, and what the field's description expects there."""
    for problem in error.errors(include_url=False):
        location = [part for part in problem["loc"] if part != "[key]"]
        where = _dotted(location)
        expected, keys = _walk(root, location)
        if problem["type"] == "value_error":
            what = str(problem["ctx"]["error"])
        elif problem["type"] == "missing":
            what = f"missing; expected {expected}"
        elif problem["type"] == "extra_forbidden":
            what = f"unknown key; {suggestion(str(location[-1]), keys)}"
        else:
            what = f"got {shown(problem['input'])}; expected {expected}"
        yield f"{where}: {what}" if where else what


def _dotted(location: list[str | int]) -> str:
    text = ""
    for part in location:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text


def shown(value: Any) -> str:
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def expected_at(root: type[Table], key: str) -> str:
    """What a field's description expects."""
    return _walk(root, [key])[0]


def _walk(root: type[Table], location: list[str | int]) -> tuple[str, list[str]]:
    """What is expected at a place of a file, and the keys of the table that holds it."""
    expected, inside, keys = "a table", root, list(root.model_fields)
    annotation: Any = root
    for part in location:
        annotation = _bare(annotation)
        if isinstance(annotation, type) and issubclass(annotation, Table):
            inside, keys = annotation, list(annotation.model_fields)
            field = inside.model_fields.get(str(part))
            if field is None:
                return expected, keys
            expected, annotation = field.description or expected, field.annotation
        elif get_args(annotation):
            inner = get_args(annotation)
            annotation = inner[-1] if get_origin(annotation) is dict else inner[0]
    return expected, keys


def _bare(annotation: Any) -> Any:
    """A type without Annotated and None around it."""
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    options = [item for item in get_args(annotation) if item is not type(None)]
    if type(None) in get_args(annotation) and len(options) == 1:
        return _bare(options[0])
    return annotation
