"""Inputs of a kernel: how they are written down and drawn."""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from nkireview.isa import dtypes
from nkireview.numerics import arrays
from nkireview.numerics.arrays import Array, Float64

Scalar = int | float | bool | str | None

# More is taken for a slip of the pen and refused before any memory is asked for (8 GiB of float32).
MAX_ELEMENTS = 1 << 31
DEFAULT_INTEGERS = (0.0, 100.0)
# positive() stays this far from 0, so that a logarithm or a reciprocal of it is well conditioned.
POSITIVE_FLOOR = 2.0**-4

SHORT_DTYPES: Mapping[str, str] = MappingProxyType(
    {
        "bf16": "bfloat16",
        "f16": "float16",
        "fp16": "float16",
        "f32": "float32",
        "fp32": "float32",
        "tf32": "tfloat32",
        "fp8": "float8_e4m3",
        "fp8_e4m3": "float8_e4m3",
        "fp8_e4m3fn": "float8_e4m3fn",
        "fp8_e5m2": "float8_e5m2",
        "i8": "int8",
        "i16": "int16",
        "i32": "int32",
        "u8": "uint8",
        "u16": "uint16",
        "u32": "uint32",
        "bool": "bool_",
    }
)


class InputError(ValueError):
    """An input that cannot be read or drawn, in one sentence."""


@dataclass(frozen=True)
class Distribution:
    """A named distribution with its parameters, for example ``uniform(0, 1)``."""

    kind: str
    parameters: tuple[float, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind}({','.join(f'{p:g}' for p in self.parameters)})" if self.parameters else self.kind


@dataclass(frozen=True)
class Spec:
    """What an input tensor is: NKI dtype name, shape in elements, distribution of its values.

    Raise InputError where the distribution is unknown, does not suit the dtype, or has wrong parameters.
    """

    dtype: str
    shape: tuple[int, ...]
    distribution: Distribution

    def __post_init__(self) -> None:
        dtype = _dtype(self.dtype)
        if not self.shape or any(size < 1 for size in self.shape):
            raise InputError(f"shape {list(self.shape)}: expected one or more sizes of at least 1")
        if math.prod(self.shape) > MAX_ELEMENTS:
            raise InputError(
                f"shape {list(self.shape)} has {math.prod(self.shape):,} elements: "
                f"the limit is {MAX_ELEMENTS:,}"
            )
        _form(self.distribution).check(self.distribution, dtype, self.shape[-1])


Draw = Callable[[np.random.Generator, int, int, tuple[float, ...]], Array]


@dataclass(frozen=True)
class Form:
    """One distribution: parameter names, their defaults, the dtype kinds it suits, and how it is drawn.

    ``draw(generator, rows, columns, parameters)`` returns float64, integer or bool values. ``values`` gives
    their range for parameters and a row length: integer dtypes must hold it, and with ``whole`` floating
    dtypes too, without a gap between whole numbers. ``by_row`` forms draw each row (the last axis) as one.
    """

    parameters: tuple[str, ...]
    defaults: tuple[float, ...]
    kinds: frozenset[str]
    draw: Draw
    valid: Callable[[tuple[float, ...]], bool] = lambda _: True
    expected: str = "finite parameters"
    values: Callable[[tuple[float, ...], int], tuple[float, float]] | None = None
    whole: bool = False
    by_row: bool = False

    def complete(self, distribution: Distribution) -> tuple[float, ...]:
        """The parameters given, or the defaults where none are."""
        return tuple(float(p) for p in distribution.parameters or self.defaults)

    def check(self, distribution: Distribution, dtype: dtypes.DataType, columns: int) -> None:
        """Raise InputError where the distribution cannot be drawn as ``dtype`` in rows of ``columns``."""
        given, wanted = distribution.parameters, self.parameters
        if len(given) not in {0 if self.defaults or not wanted else len(wanted), len(wanted)}:
            form = f"{distribution.kind}({','.join(wanted)})" if wanted else distribution.kind
            raise InputError(f"{distribution}: expected {form}")
        if dtype.kind not in self.kinds:
            suited = ", ".join(name for name, form in FORMS.items() if dtype.kind in form.kinds)
            raise InputError(f"{distribution} cannot be drawn as {dtype.name}: expected one of {suited}")
        parameters = self.complete(distribution)
        if not all(math.isfinite(p) for p in parameters) or not self.valid(parameters):
            raise InputError(f"{distribution}: expected {self.expected}")
        if self.values is not None and (self.whole or dtype.kind != "float"):
            low, high = self.values(parameters, columns)
            smallest, largest = _whole_numbers(dtype)
            if low < smallest or high > largest or not low.is_integer():
                raise InputError(
                    f"{distribution} in rows of {columns} gives {low:g} to {high:g}, and {dtype.name} holds "
                    f"whole numbers from {smallest:g} to {largest:g}: choose a wider dtype or a smaller range"
                )


def parse_input(text: str) -> tuple[str, Spec | Scalar]:
    """Read ``name=dtype[shape]``, ``name=dtype[shape]:distribution`` or ``name=scalar``.

    A scalar is an integer, a float, ``true``, ``false``, ``none`` or a quoted string. Without a distribution
    floats are normal (block scales positive), integers are integers(0,100) and bool is a mask. Raise
    InputError in one sentence.
    """
    name, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not value:
        raise InputError(
            f"input {text!r} has no value: write name=dtype[shape] or name=scalar, "
            "for example x=bf16[4096,2048] or eps=1e-6"
        )
    if not name.isidentifier():
        raise InputError(f"input {text!r}: {name!r} is no parameter name, expected a Python identifier")
    try:
        return name, _parse_value(value)
    except InputError as error:
        raise InputError(f"input {name}: {error}") from None


def parse_distribution(text: str) -> Distribution:
    """Read ``normal``, ``uniform(0,1)`` and the like; raise InputError for anything else."""
    match = re.fullmatch(r"(\w+)\s*(?:\((.*)\))?", text.strip())
    if match is None:
        raise InputError(f"{text!r} is no distribution: expected name or name(a,b), for example uniform(0,1)")
    numbers: list[float] = []
    for part in (match[2] or "").split(",") if match[2] else []:
        try:
            numbers.append(float(part))
        except ValueError:
            raise InputError(f"{text!r}: {part.strip()!r} is no number") from None
    distribution = Distribution(match[1], tuple(numbers))
    _form(distribution)
    return distribution


def draw(spec: Spec, seed: int, name: str = "") -> Array:
    """Values of ``spec`` as the kernel gets them: drawn in float64, rounded once to the dtype.

    The result has the dtype's storage dtype. The same seed and ``name`` give the same values; inputs of one
    kernel are drawn under their own names, so that two of equal shape differ. Raise InputError where a drawn
    value has no finite form in the dtype.
    """
    dtype = _dtype(spec.dtype)
    form = _form(spec.distribution)
    parameters = form.complete(spec.distribution)
    generator = np.random.default_rng([seed, zlib.crc32(name.encode())])
    size = math.prod(spec.shape)
    columns = spec.shape[-1] if form.by_row else min(size, arrays.BLOCK_ELEMENTS)
    height = max(1, arrays.BLOCK_ELEMENTS // columns) * columns
    values = np.empty(size, dtype=dtype.storage)
    for start in range(0, size, height):
        part = values[start : start + height]
        width = min(columns, part.size)
        drawn = form.draw(generator, part.size // width, width, parameters)
        part[:] = dtypes.cast(drawn, dtype).reshape(part.size)
        if dtype.kind == "float" and not np.isfinite(arrays.float64(part)).all():
            raise InputError(f"{spec.distribution} gives values that {dtype.name} cannot hold")
    return values.reshape(spec.shape)


def draw_all(inputs: Mapping[str, Spec | Scalar], seed: int) -> dict[str, Array | Scalar]:
    """Every input of a kernel for one seed: tensors drawn under their names, scalars as they are."""
    return {
        name: draw(value, seed, name) if isinstance(value, Spec) else value for name, value in inputs.items()
    }


def _parse_value(text: str) -> Spec | Scalar:
    tensor = re.fullmatch(r"(\w+)\s*\[([^\]]*)\]\s*(?::(.*))?", text)
    if tensor is not None:
        dtype = _dtype(tensor[1])
        sizes = tensor[2].split(",")
        if not all(re.fullmatch(r"\s*\d+\s*", size, re.ASCII) for size in sizes):
            raise InputError(
                f"[{tensor[2]}] is no shape: expected whole numbers separated by commas, "
                "for example [4096,2048]; a scalar is written without brackets"
            )
        shape = tuple(int(size) for size in sizes)
        given = parse_distribution(tensor[3]) if tensor[3] is not None else default_distribution(dtype.name)
        return Spec(dtype.name, shape, given)
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    named: dict[str, Scalar] = {"true": True, "false": False, "none": None}
    if text.lower() in named:
        return named[text.lower()]
    if re.fullmatch(r"[+-]?\d+", text, re.ASCII):
        return int(text)
    if re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", text, re.ASCII | re.IGNORECASE):
        return float(text)
    raise InputError(
        f"cannot read {text!r}: expected dtype[shape], an integer, a float, true, false, none "
        "or a 'quoted string'"
    )


def _dtype(spelling: str) -> dtypes.DataType:
    try:
        dtype = dtypes.of(SHORT_DTYPES.get(spelling, spelling))
    except ValueError:
        known = ", ".join((*SHORT_DTYPES, "or an NKI name such as bfloat16"))
        raise InputError(f"{spelling!r} is no dtype: expected one of {known}") from None
    if dtype.kind == "packed":
        raise InputError(f"{dtype.name} packs several elements and cannot be drawn: give its stored integers")
    return dtype


def _form(distribution: Distribution) -> Form:
    form = FORMS.get(distribution.kind)
    if form is None:
        raise InputError(f"{distribution.kind!r} is no distribution: expected one of {', '.join(FORMS)}")
    return form


def default_distribution(dtype_name: str) -> Distribution:
    """The distribution of an input that names none: floats normal, integers integers(0,100), bool a mask."""
    dtype = _dtype(dtype_name)
    if dtype.kind == "bool":
        return Distribution("mask")
    if dtype.kind == "float":
        return Distribution("positive" if dtype.significand_bits == 1 else "normal")
    return Distribution("integers", DEFAULT_INTEGERS)


def _whole_numbers(dtype: dtypes.DataType) -> tuple[float, float]:
    """The range of whole numbers that ``dtype`` holds without a gap."""
    if dtype.kind == "float":
        largest = min(2.0**dtype.significand_bits, dtype.max_finite)
        return -largest, largest
    return (-dtype.max_finite - 1 if dtype.kind == "int" else 0.0), dtype.max_finite


def _normal(generator: np.random.Generator, rows: int, columns: int, p: tuple[float, ...]) -> Array:
    return generator.normal(p[0], p[1], (rows, columns))


def _uniform(generator: np.random.Generator, rows: int, columns: int, p: tuple[float, ...]) -> Array:
    return generator.uniform(p[0], p[1], (rows, columns))


def _positive(generator: np.random.Generator, rows: int, columns: int, _: tuple[float, ...]) -> Array:
    values: Float64 = np.abs(generator.standard_normal((rows, columns)))
    return values + POSITIVE_FLOOR


def _constant(_: np.random.Generator, rows: int, columns: int, p: tuple[float, ...]) -> Array:
    return np.full((rows, columns), p[0])


def _integers(generator: np.random.Generator, rows: int, columns: int, p: tuple[float, ...]) -> Array:
    return generator.integers(int(p[0]), int(p[1]), (rows, columns))


def _arange(_: np.random.Generator, rows: int, columns: int, __: tuple[float, ...]) -> Array:
    return np.broadcast_to(np.arange(columns), (rows, columns))


def _permutation(generator: np.random.Generator, rows: int, columns: int, p: tuple[float, ...]) -> Array:
    return generator.permuted(_arange(generator, rows, columns, p), axis=1)


def _onehot(generator: np.random.Generator, rows: int, columns: int, _: tuple[float, ...]) -> Array:
    return np.asarray(np.arange(columns) == generator.integers(0, columns, (rows, 1)))


def _mask(generator: np.random.Generator, rows: int, columns: int, p: tuple[float, ...]) -> Array:
    return np.asarray(generator.random((rows, columns)) < p[0])


def _row_indices(_: tuple[float, ...], columns: int) -> tuple[float, float]:
    return 0.0, float(columns - 1)


_FLOATS = frozenset({"float"})
_NUMBERS = frozenset({"float", "int", "uint"})
_ALL = frozenset({"float", "int", "uint", "bool"})

FORMS: Mapping[str, Form] = MappingProxyType(
    {
        "normal": Form(
            ("mean", "deviation"),
            (0.0, 1.0),
            _FLOATS,
            _normal,
            valid=lambda p: p[1] > 0,
            expected="a deviation above 0",
        ),
        "uniform": Form(
            ("low", "high"),
            (0.0, 1.0),
            _FLOATS,
            _uniform,
            valid=lambda p: p[0] < p[1],
            expected="low below high",
        ),
        "positive": Form((), (), _FLOATS, _positive),
        "zeros": Form((), (0.0,), _ALL, _constant),
        "ones": Form((), (1.0,), _ALL, _constant),
        "constant": Form(("value",), (), _NUMBERS, _constant, values=lambda p, _: (p[0], p[0])),
        "integers": Form(
            ("low", "high"),
            (),
            _NUMBERS,
            _integers,
            valid=lambda p: p[0] < p[1] and p[0].is_integer() and p[1].is_integer(),
            expected="whole numbers with low below high (high itself is not drawn)",
            values=lambda p, _: (p[0], p[1] - 1),
            whole=True,
        ),
        "arange": Form((), (), _NUMBERS, _arange, values=_row_indices, whole=True, by_row=True),
        "permutation": Form((), (), _NUMBERS, _permutation, values=_row_indices, whole=True, by_row=True),
        "onehot": Form((), (), _ALL, _onehot, by_row=True),
        "mask": Form(
            ("probability",),
            (0.5,),
            _ALL,
            _mask,
            valid=lambda p: 0 <= p[0] <= 1,
            expected="a probability from 0 to 1",
        ),
    }
)
