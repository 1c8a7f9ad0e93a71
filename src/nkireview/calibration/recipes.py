"""How a measured kernel is read at its commit and traced: the cases of ``recipes.toml``."""

from __future__ import annotations

import hashlib
import importlib
import json
import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from nkireview.calibration.measured import Row
from nkireview.isa import dtypes
from nkireview.isa.release import Release
from nkireview.validation import Table, sentences

# A plain conditional import would need tomli installed to type-check for Python 3.10 on a newer interpreter.
tomllib = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")

ORIGIN = "recipes.toml"
DTYPE = "DTYPE"
SAME_HARDWARE = {"trn1": ("trn1", "inf2", "unstated"), "trn2": ("trn2",), "trn3": ("trn3",)}
"""How the hardware of a row begins for a target; a row that does not say it is taken at its recipe's word."""
_TENSOR = re.compile(r"(\w+)\[([\w, ]+)\]")

Texts = str | list[str]


class RecipeError(ValueError):
    """A table of recipes that cannot be used; one sentence."""


class Source(Table):
    """Where a kernel's text lies in its repository."""

    kind: Literal["file", "rst", "trace", "comment", "nkibench"] = Field(
        description="file, rst, trace, comment or nkibench"
    )
    path: str = Field(description="a path in the repository")
    block: int = Field(0, description="which of the page's blocks that define the kernel, from 1")
    step: int = Field(0, description="which step of the search, from 0")
    head: str = Field("", description="the file that begins with the imports of every step")
    until: str = Field("", description="the line before which `head` is cut")
    operator: str = Field("", description="an operator of the bench")


class Launch(Table):
    """One launch of a kernel: tensors by position as DTYPE[M,K], the rest by keyword."""

    kernel: str = Field(description="the name of a function")
    tensors: list[str] = Field([], description="texts such as DTYPE[M,K]")
    keywords: dict[str, Any] = Field({}, description="a table of values")


class Clocks(Table):
    """Which clock each metric of the table reads, and why."""

    times: dict[str, Literal["benchmark", "active", "early active", "total", "window"]] = Field(
        description="benchmark, active, early active, total or window for each metric"
    )
    why: str = Field(description="a text")


class LeftOut(Table):
    """Rows that are not used; empty texts match everything, a kernel_file only itself."""

    kernel_file: str = Field(description="as the rows have it")
    shapes: str = Field("", description="as the rows have it")
    why: str = Field(description="a text")


class _File(Table):
    """The whole file; recipes and their cases are read together, later."""

    order: list[str] = Field([], description="an array of metrics")
    clocks: dict[str, Clocks] = Field(description="tables with times and why")
    recipe: list[dict[str, Any]] = Field(description="an array of tables")
    left_out: list[LeftOut] = Field([], description="an array of tables")


class _Case(Table):
    """One entry of the table, with what its recipe says."""

    id: str = Field(description="a name of letters, digits and . _ -", pattern=r"^[A-Za-z0-9][\w.-]*$")
    operator: str = Field(description="what is computed")
    repository: str = Field(description="OWNER/NAME")
    commit: str = Field(description="40 hexadecimal digits", pattern=r"^[0-9a-f]{40}$")
    source: Source = Field(description="a table with kind and path")
    edits: list[list[str]] = Field([], description="pairs of texts")
    kernel_file: Texts = Field(description="a text or a list of texts")
    kernel_function: Texts = Field(description="a text or a list of texts")
    shapes: Texts = Field(description="a text or a list of texts")
    dtypes: Texts = Field(description="a text or a list of texts")
    sizes: dict[str, int] = Field(description="a table of whole numbers")
    dtype: str = Field(description="a dtype")
    launches: list[Launch] = Field([], description="an array of tables")
    target: Literal["trn1", "trn2", "trn3"] = Field(description="trn1, trn2 or trn3")
    release: str = Field(description="an NKI release")
    flags: list[str] = Field([], description="an array of texts")
    clocks: list[str] = Field(description="names of [clocks]")
    flops: str = Field("", description="a product of sizes and numbers")


@dataclass(frozen=True)
class Recipe:
    """One kernel at one shape and dtype: where it is read, what it is called with, which rows measured it."""

    id: str
    entry: _Case
    clocks: Mapping[str, str]
    """Metric -> clock."""

    @property
    def repository(self) -> str:
        return self.entry.repository

    @property
    def kernel(self) -> str:
        """What was measured, in words."""
        return " + ".join(launch.kernel for launch in self.entry.launches) or self.entry.source.operator

    @property
    def shape(self) -> str:
        """The sizes, in words."""
        return " ".join(f"{name}={size}" for name, size in self.entry.sizes.items())

    @property
    def ladder(self) -> str:
        """What its versions have in common that can be compared."""
        return f"{self.entry.operator} {self.shape} {self.entry.dtype} {self.entry.target}"

    @cached_property
    def digest(self) -> str:
        """Changes with everything that the sealed Program depends on, but for nkireview itself."""
        told = self.entry.model_dump(
            include={
                "repository",
                "commit",
                "source",
                "edits",
                "sizes",
                "dtype",
                "launches",
                "target",
                "release",
            }
        )
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]

    def tensors(self, launch: Launch) -> tuple[tuple[tuple[int, ...], str], ...]:
        """Shape and dtype of each tensor of a launch; RecipeError for one that cannot be read."""
        found = []
        for text in launch.tensors:
            match = _TENSOR.fullmatch(text)
            if match is None:
                raise RecipeError(f"{self.id}: the tensor {text!r} must be DTYPE[M,K]")
            shape = tuple(self._size(part.strip(), text) for part in match[2].split(","))
            dtype = self.entry.dtype if match[1] == DTYPE else match[1]
            try:
                found.append((shape, dtypes.of(dtype).name))
            except ValueError as error:
                raise RecipeError(f"{self.id}: {error}") from None
        return tuple(found)

    def flops(self) -> int:
        """Floating-point operations of a launch, where the recipe tells them; 0 otherwise."""
        factors = self.entry.flops.split("*") if self.entry.flops else ["0"]
        return math.prod(self._size(factor.strip(), self.entry.flops) for factor in factors)

    def _size(self, name: str, where: str) -> int:
        if name.isdigit():
            return int(name)
        if name not in self.entry.sizes:
            raise RecipeError(
                f"{self.id}: {where!r} names the size {name!r}; expected a number or one of "
                f"{', '.join(self.entry.sizes)}"
            )
        return self.entry.sizes[name]

    def takes(self, row: Row) -> bool:
        """Whether a row measured this case."""
        entry = self.entry
        return (
            row.kernel_file in _texts(entry.kernel_file)
            and (
                entry.source.kind != "trace"
                or row.source.replace("+", "/", 1) == f"{self.repository}/{entry.source.path}"
            )
            and row.kernel_function in _texts(entry.kernel_function)
            and row.shapes in _texts(entry.shapes)
            and row.dtypes in _texts(entry.dtypes)
            and row.hardware.startswith(SAME_HARDWARE[entry.target])
        )


@dataclass(frozen=True)
class Recipes:
    """All cases, the metrics that are times with the best first, and what is left out."""

    cases: tuple[Recipe, ...]
    order: tuple[str, ...]
    left_out: tuple[LeftOut, ...]

    def without(self, rows: Iterable[Row]) -> dict[str, list[Row]]:
        """Rows that no case takes, by the reason; the empty one where nothing is said of them."""
        found: dict[str, list[Row]] = {}
        for row in rows:
            if not any(case.takes(row) for case in self.cases):
                why = next(
                    (
                        item.why
                        for item in self.left_out
                        if item.kernel_file == row.kernel_file and item.shapes in ("", row.shapes)
                    ),
                    "",
                )
                found.setdefault(why, []).append(row)
        return found


def load(path: Path | None = None) -> Recipes:
    """The recipes that come with nkireview, or those of a file; RecipeError says what is wrong with it."""
    if path is not None and not path.is_file():
        raise RecipeError(f"{path}: there is no such file; expected a table of recipes in TOML")
    origin = ORIGIN if path is None else str(path)
    try:
        return _loaded(path)
    except RecipeError as error:
        raise RecipeError(f"{origin}: {error}") from None


def _loaded(path: Path | None) -> Recipes:
    text = (resources.files("nkireview.calibration").joinpath(ORIGIN) if path is None else path).read_text(
        encoding="utf-8"
    )
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(f"this is not valid TOML: {error}") from None
    file: _File = _read(_File, table, "")
    cases = [case for recipe in file.recipe for case in _cases(recipe, file.clocks)]
    named = [case.id for case in cases]
    if len(set(named)) < len(named):
        twice = next(name for name in named if named.count(name) > 1)
        raise RecipeError(f"two cases are called {twice!r}; expected a name for each")
    return Recipes(tuple(cases), tuple(file.order), tuple(file.left_out))


def _cases(recipe: Mapping[str, Any], clocks: Mapping[str, Clocks]) -> Iterable[Recipe]:
    common = {key: value for key, value in recipe.items() if key != "case"}
    given = recipe.get("case", ())
    if not (isinstance(given, list) and all(isinstance(case, dict) for case in given)) or not given:
        raise RecipeError(
            f"recipe {common.get('id', '')}: no cases; expected [[recipe.case]] tables below it"
        )
    for case in given:
        name = f"{common.get('id', '')}-{case.get('id', '')}"
        entry = _read(_Case, {**common, **case, "id": name}, name)
        unknown = [each for each in entry.clocks if each not in clocks]
        if unknown:
            raise RecipeError(
                f"{name}: there are no clocks {unknown[0]!r}; expected some of {', '.join(clocks)}"
            )
        if any(len(edit) != 2 for edit in entry.edits):
            raise RecipeError(f"{name}: each of the edits must be a pair of texts")
        if not entry.launches and entry.source.kind != "nkibench":
            raise RecipeError(f"{name}: no launches; expected the kernel and its tensors")
        made = Recipe(
            name,
            entry,
            {metric: clock for each in entry.clocks for metric, clock in clocks[each].times.items()},
        )
        _check(made)
        yield made


def _check(recipe: Recipe) -> None:
    """RecipeError for a release, a tensor or a size that cannot be read."""
    try:
        Release.parse(recipe.entry.release)
    except ValueError as error:
        raise RecipeError(f"{recipe.id}: {error}") from None
    for launch in recipe.entry.launches:
        recipe.tensors(launch)
    recipe.flops()


def _read(model: type[Any], item: Any, where: str) -> Any:
    try:
        return model.model_validate(item)
    except ValidationError as error:
        place = f"{where}: " if where else ""
        raise RecipeError(f"{place}{next(iter(sentences(error, model)))}") from None


def folder_of(repository: str) -> str:
    """OWNER+NAME, as the table of measurements and the folder of clones call OWNER/NAME."""
    return repository.replace("/", "+", 1)


def _texts(value: str | Sequence[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)
