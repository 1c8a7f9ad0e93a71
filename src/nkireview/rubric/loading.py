"""Reads rubrics: the default one, and a task's own, which extends or replaces it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from nkireview.rubric import tables
from nkireview.rubric.model import (
    Cap,
    Criterion,
    DimensionName,
    DimensionTable,
    Effects,
    Rubric,
    Text,
    Word,
)
from nkireview.rules.finding import Dimension
from nkireview.validation import Table, sentences, suggestion

RUBRIC_FILE = "rubric.toml"


class RubricError(ValueError):
    """What is wrong with a rubric: one sentence for each problem, with file, key and what was expected."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


class RubricFile(Table):
    """The keys of a rubric file that stands alone, or of one merged into what it extends."""

    name: Text = Field(description="a name")
    about: str = Field(default="", description="a sentence")
    effects: Effects = Field(
        default_factory=Effects, description="a table with any of major, minor and stake"
    )
    caps: Annotated[tuple[Cap, ...], Field(strict=False)] = Field(
        description="an array of tables [[caps]] with total, rules and why"
    )
    dimensions: dict[DimensionName, DimensionTable] = Field(
        default_factory=dict, description="a table for each dimension, such as [dimensions.tiling]"
    )
    criteria: dict[DimensionName, dict[Word, Criterion]] = Field(
        description="a table for each criterion, such as [criteria.tiling.partitions]"
    )


class Extension(Table):
    """The keys by which a rubric file says what it extends."""

    extends: Literal["default"] | None = Field(default=None, description="'default'")
    drop: Annotated[tuple[str, ...], Field(strict=False)] = Field(
        default=(), description="an array of ids, such as ['migration.mapping']"
    )


def load(path: Path | None = None) -> Rubric:
    """The rubric of a file, or the default one; RubricError with every problem found."""
    if path is None:
        return _default()
    try:
        data = tables.tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RubricError([f"{path}: it cannot be read ({error.strerror}); expected a TOML file"]) from None
    except UnicodeDecodeError as error:
        raise RubricError(
            [f"{path}: byte {error.start} is not UTF-8; expected a TOML file in UTF-8"]
        ) from None
    except tables.tomllib.TOMLDecodeError as error:
        raise RubricError([f"{path}: this is no valid TOML: {error}"]) from None
    return parse(data, str(path))


def of_task(folder: Path, named: str | None) -> Rubric:
    """The rubric of a task folder: the file its task names, else its rubric.toml, else the default."""
    if named is not None:
        return load(folder / named)
    own = folder / RUBRIC_FILE
    return load(own if own.is_file() else None)


def parse(data: Mapping[str, Any], where: str) -> Rubric:
    """The rubric of a file's data; `where` begins each sentence of a RubricError."""
    own = {key: value for key, value in data.items() if key not in Extension.model_fields}
    wrong, drop = _extension(data)
    # what `extends` was meant to say is clear even where it is spelled wrong
    if "extends" in data:
        own = _extended(own, drop)
    try:
        file = RubricFile.model_validate(own)
    except ValidationError as error:
        wrong += sentences(error, RubricFile)
        raise RubricError(f"{where}: {text}" for text in wrong) from None
    rubric = Rubric(
        name=file.name,
        about=file.about,
        effects=file.effects,
        caps=file.caps,
        dimensions={Dimension[name]: table for name, table in file.dimensions.items()},
        criteria={
            f"{dimension}.{word}": item
            for dimension, items in file.criteria.items()
            for word, item in items.items()
        },
    )
    return checked(rubric, where, wrong)


def checked(rubric: Rubric, where: str, wrong: Iterable[str] = ()) -> Rubric:
    """The rubric, if its parts fit together and nothing else is `wrong`; RubricError otherwise."""
    problems = [f"{where}: {text}" for text in (*wrong, *rubric.problems())]
    if problems:
        raise RubricError(problems)
    return rubric


@cache
def _default() -> Rubric:
    return parse(tables.read("default.toml"), "default.toml")


def _extension(data: Mapping[str, Any]) -> tuple[list[str], tuple[str, ...]]:
    """What is wrong with the keys of an extension, and the criteria that can be dropped, each once."""
    try:
        found = Extension.model_validate({key: data[key] for key in Extension.model_fields if key in data})
    except ValidationError as error:
        return list(sentences(error, Extension)), ()
    if not found.drop:
        return [], ()
    if found.extends is None:
        return ["drop: nothing to drop from; expected extends = 'default' with it"], ()
    known, drop = list(_default().criteria), dict.fromkeys(found.drop)
    wrong = [
        f"drop: the default rubric has no criterion {key!r}; {suggestion(key, known)}"
        for key in drop
        if key not in known
    ]
    return wrong, tuple(key for key in drop if key in known)


def _extended(own: Mapping[str, Any], drop: Iterable[str]) -> dict[str, Any]:
    """The default rubric's data with the keys of `own` in their place, table by table, less what is dropped."""
    base = tables.read("default.toml")
    del base["name"], base["about"]
    for key in drop:
        dimension, word = key.split(".", 1)
        del base["criteria"][dimension][word]
    for dimension, word, item in _criteria(own):
        old = base["criteria"].get(dimension, {}).get(word, {})
        # what assesses a criterion and why nothing does exclude each other
        if "unassessed" in item:
            old.pop("needs", None)
            old.pop("measures", None)
        elif item.get("needs") or item.get("measures"):
            old.pop("unassessed", None)
    return _merged(base, own)


def _criteria(own: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Dimension, word and table of each criterion in a file that is not validated yet."""
    groups = own.get("criteria")
    for dimension, items in groups.items() if isinstance(groups, dict) else ():
        for word, item in items.items() if isinstance(items, dict) else ():
            if isinstance(item, dict):
                yield dimension, word, item


def _merged(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in own.items():
        old = merged.get(key)
        # shares by level are one value: mixed with the old ones they would mean something else
        nested = isinstance(old, dict) and isinstance(value, dict) and key != "stake"
        merged[key] = _merged(old, value) if nested and old is not None else value
    return merged
