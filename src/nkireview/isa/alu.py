"""The math operators of the ``op`` fields of nki.isa: meaning, engines, reductions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, Protocol

import numpy as np

from nkireview.isa.dtypes import COMPUTE_DTYPES, FLOAT32, Array, compute_array
from nkireview.isa.release import ALWAYS, Release, Span

Kind = Literal["bitvec", "arithmetic"]
Operand = Array | np.generic | float | int
Engines = Mapping[str, tuple[str, ...]]
Function = Callable[..., Array]


class Reduction(Protocol):
    """Reduce ``values`` over ``axes``, in the dtype of ``values``."""

    def __call__(self, values: Array, axes: tuple[int, ...], keepdims: bool = False) -> Array: ...


@dataclass(frozen=True, eq=False)
class AluOp:
    """One operator.

    Infinities and NaN are results: the caller silences NumPy's warnings of them.

    ``fn(x, y)`` computes ``x <op> y`` and never rounds to a stored type: arithmetic operators take float32 or
    float64 arrays and keep that dtype (comparisons and logical operators give 1.0 or 0.0 in it), bitvec
    operators take integer arrays as bit patterns and keep theirs. Arrays broadcast; one of the two operands
    may be a Python number or 0-d and then follows the dtype of the other. Unary operators ignore ``y``.
    ``ufunc`` is what ``fn`` is on arrays of one dtype, where that is one function of NumPy.
    ``int_fn`` is the exact 32-bit integer form of GpSimd, with wrap-around, where there is one.
    ``reduce`` says whether the operator table calls it a legal reduction; ``identity`` is the value an
    accumulator is reset to, None where the operator does not accumulate (abs_max and abs_min do, in activate2
    only). ``engines`` names, by NeuronCore generation, the engines that run it as ALU operator; where
    ``int_fn`` is given, gpsimd stands for 32-bit integers only. ``source``: public Neuron SDK documentation.
    """

    name: str
    kind: Kind
    arity: Literal[1, 2]
    fn: Function
    reduce: bool
    identity: float | int | None
    engines: Engines
    releases: Span
    source: str
    int_fn: Function | None = None
    ufunc: np.ufunc | None = None

    @property
    def generations(self) -> tuple[str, ...]:
        """NeuronCore generations on which it is an ALU operator, for example as op0 of tensor_scalar."""
        return tuple(self.engines)


_TABLE = "nki/api/nki.api.shared.rst:63-135"
_OLD_TABLE = "nki/api/nki.api.shared.rst:64-121 at tag v2.26.1"
_TRN3_OPS = "release-notes/components/nki.rst:224-228"
_BYPASS = "nki/api/nki/isa/__init__.py:1555-1563"


def _everywhere(*engines: str) -> Engines:
    return MappingProxyType(dict.fromkeys(("v2", "v3", "v4"), engines))


_VECTOR = _everywhere("vector")
_VECTOR_GPSIMD = _everywhere("vector", "gpsimd")
_MULTIPLY_ADD = MappingProxyType(
    {**_VECTOR_GPSIMD, **dict.fromkeys(("v3", "v4"), ("vector", "gpsimd", "scalar"))}
)
_V4_VECTOR = MappingProxyType({"v4": ("vector",)})
_V4_VECTOR_SCALAR = MappingProxyType({"v4": ("vector", "scalar")})
_V4_SCALAR = MappingProxyType({"v4": ("scalar",)})
_SINCE_04 = Span(since=Release(0, 4))
_LEGACY = Span(until=Release(0, 2))
_LEGACY_OPS = "nki/api/nki/language/__init__.py:482,620,1161 at tag v2.26.1"


def _common_dtype(name: str, operands: tuple[Operand, ...]) -> np.dtype[Any]:
    tensors = [x.dtype for x in operands if isinstance(x, np.ndarray) and x.ndim]
    tensors = tensors or [x.dtype for x in operands if isinstance(x, (np.ndarray, np.generic))]
    if not tensors:
        raise ValueError(f"{name}: expected an array among the operands, got {operands}")
    return functools.reduce(np.promote_types, tensors)


def _arithmetic(name: str, compute: Callable[[Array, Array], Any]) -> Function:
    def fn(x: Operand, y: Operand) -> Array:
        # The common case first, without the checks that the others need.
        if type(x) is np.ndarray and x.ndim and x.dtype is FLOAT32:
            kind = type(y)
            if kind is float or kind is int:
                y = np.asarray(y, FLOAT32)
            if type(y) is np.ndarray and y.dtype is FLOAT32:
                result: Array = compute(x, y)
                return result if result.dtype is FLOAT32 else result.astype(FLOAT32)
        dtype = _common_dtype(name, (x, y))
        if dtype not in COMPUTE_DTYPES or y is None:
            raise ValueError(
                f"{name}: expected two float32 or float64 operands, got {_describe(x)}, {_describe(y)}"
            )
        return np.asarray(compute(np.asarray(x, dtype), np.asarray(y, dtype)), dtype)

    return fn


def _unary(name: str, compute: Callable[[Array], Any]) -> Function:
    def fn(x: Operand, y: object = None) -> Array:
        array = compute_array(x, name)
        return np.asarray(compute(array), array.dtype)

    return fn


def _ufunc(compute: Callable[..., Any]) -> np.ufunc | None:
    return compute if isinstance(compute, np.ufunc) else None


def _bitvec(name: str, compute: Callable[..., Any]) -> Function:
    def fn(x: Operand, y: Operand) -> Array:
        dtype, patterns = _patterns(name, x, y)
        return np.asarray(compute(*patterns)).view(dtype)

    return fn


def _invert(x: Operand, y: object = None) -> Array:
    dtype, (pattern,) = _patterns("invert", x)
    return np.asarray(~pattern).view(dtype)


def _patterns(name: str, *operands: Operand) -> tuple[np.dtype[Any], list[Array]]:
    """The widest integer dtype among the operands, and all of them as unsigned patterns of that width.

    Narrower tiles are extended with zero bits, which no document states.
    """
    dtypes = [x.dtype for x in operands if isinstance(x, (np.ndarray, np.generic))]
    if not dtypes or any(dtype.kind not in "iu" for dtype in dtypes):
        got = ", ".join(map(_describe, operands))
        raise ValueError(f"{name}: expected integer operands, one of them an array, got {got}")
    widest = max(dtypes, key=lambda dtype: dtype.itemsize)
    bits = 8 * widest.itemsize
    unsigned = np.dtype(f"u{widest.itemsize}")
    patterns: list[Array] = []
    for operand in operands:
        if isinstance(operand, (np.ndarray, np.generic)):
            raw = np.asarray(operand)
            patterns.append(raw.view(f"u{raw.dtype.itemsize}").astype(unsigned, copy=False))
        elif isinstance(operand, int) and -(1 << (bits - 1)) <= operand < 1 << bits:
            patterns.append(np.asarray(operand & ((1 << bits) - 1), unsigned))
        else:
            raise ValueError(f"{name}: expected an integer of {bits} bits beside {widest}, got {operand}")
    return widest, patterns


def _describe(operand: object) -> str:
    return str(operand.dtype) if isinstance(operand, (np.ndarray, np.generic)) else repr(operand)


def _integers(name: str, compute: Callable[[Array, Array], Any]) -> Function:
    def fn(x: Operand, y: Operand) -> Array:
        left, right = np.asarray(x), np.asarray(y)
        if left.dtype.kind not in "iu" or right.dtype.kind not in "iu":
            raise ValueError(f"{name}: expected two integer operands, got {_describe(x)}, {_describe(y)}")
        result = np.asarray(compute(left, right))
        return result.astype(left.dtype) if result.dtype == np.bool_ else result

    return fn


def _arithmetic_row(
    name: str,
    compute: Callable[[Array, Array], Any],
    engines: Engines,
    *,
    reduce: bool = False,
    identity: float | None = None,
    integers: Callable[[str, Callable[..., Any]], Function] | None = None,
    releases: Span = ALWAYS,
    source: str = _TABLE,
) -> AluOp:
    fn = _arithmetic(name, compute)
    int_fn = integers(name, compute) if integers else None
    return AluOp(
        name, "arithmetic", 2, fn, reduce, identity, engines, releases, source, int_fn, _ufunc(compute)
    )


def _unary_row(
    name: str,
    compute: Callable[[Array], Any],
    engines: Engines,
    releases: Span = ALWAYS,
    source: str = _TABLE,
) -> AluOp:
    fn = _unary(name, compute)
    return AluOp(name, "arithmetic", 1, fn, False, None, engines, releases, source, ufunc=_ufunc(compute))


def _bitvec_row(name: str, compute: Callable[..., Any], identity: int | None = None) -> AluOp:
    fn = _bitvec(name, compute)
    reduce = identity is not None
    return AluOp(name, "bitvec", 2, fn, reduce, identity, _VECTOR, ALWAYS, _TABLE, ufunc=_ufunc(compute))


def _abs_max(x: Array, y: Array) -> Array:
    return np.where(np.abs(x) > np.abs(y), x, y)


def _abs_min(x: Array, y: Array) -> Array:
    return np.where(np.abs(x) < np.abs(y), x, y)


def _comparison(name: str, compute: Callable[[Array, Array], Any]) -> AluOp:
    return _arithmetic_row(name, compute, _VECTOR_GPSIMD, integers=_integers)


def _logical(name: str, compute: Callable[[Array, Array], Any], identity: float) -> AluOp:
    return _arithmetic_row(name, compute, _VECTOR_GPSIMD, reduce=True, identity=identity, integers=_integers)


ALU_OPS = (
    AluOp("invert", "bitvec", 1, _invert, False, None, _VECTOR, ALWAYS, _TABLE),
    _bitvec_row("bitwise_and", np.bitwise_and, identity=-1),
    _bitvec_row("bitwise_or", np.bitwise_or, identity=0),
    _bitvec_row("bitwise_xor", np.bitwise_xor, identity=0),
    _bitvec_row("left_shift", np.left_shift),
    # On unsigned patterns NumPy's shift is the logical one, the only right shift there is.
    _bitvec_row("right_shift", np.right_shift),
    _arithmetic_row("add", np.add, _MULTIPLY_ADD, reduce=True, identity=0.0, integers=_bitvec),
    _arithmetic_row("subtract", np.subtract, _VECTOR_GPSIMD, reduce=True, identity=0.0, integers=_bitvec),
    _arithmetic_row("multiply", np.multiply, _MULTIPLY_ADD, reduce=True, identity=1.0, integers=_bitvec),
    # NaN in maximum and minimum is undocumented: it propagates here, so that it is seen.
    _arithmetic_row("maximum", np.maximum, _VECTOR_GPSIMD, reduce=True, identity=-np.inf, integers=_integers),
    _arithmetic_row("minimum", np.minimum, _VECTOR_GPSIMD, reduce=True, identity=np.inf, integers=_integers),
    _comparison("equal", np.equal),
    _comparison("not_equal", np.not_equal),
    _comparison("greater_equal", np.greater_equal),
    _comparison("greater", np.greater),
    _comparison("less_equal", np.less_equal),
    _comparison("less", np.less),
    # The documents promise logical operators for 0 and 1 only: any nonzero value counts as true here.
    _logical("logical_and", np.logical_and, identity=1.0),
    _logical("logical_or", np.logical_or, identity=0.0),
    _logical("logical_xor", np.logical_xor, identity=0.0),
    _unary_row("logical_not", np.logical_not, _VECTOR, Span(until=Release(0, 2)), _OLD_TABLE),
    # of the legacy generation, whose nl.divide, nl.mod and nl.fmod they are: KLR/Core/Operators.lean:107
    _arithmetic_row("divide", np.divide, _VECTOR, releases=_LEGACY, source=_LEGACY_OPS),
    _arithmetic_row("mod", np.mod, _VECTOR, releases=_LEGACY, source=_LEGACY_OPS),
    _arithmetic_row("fmod", np.fmod, _VECTOR, releases=_LEGACY, source=_LEGACY_OPS),
    _arithmetic_row("power", np.power, _everywhere("gpsimd")),
    _arithmetic_row("abs_max", _abs_max, _V4_VECTOR, identity=0.0, releases=_SINCE_04, source=_TRN3_OPS),
    _arithmetic_row("abs_min", _abs_min, _V4_VECTOR, identity=np.inf, releases=_SINCE_04, source=_TRN3_OPS),
    _unary_row("abs", np.abs, _everywhere("vector", "scalar")),
    _unary_row("square", np.square, _V4_VECTOR_SCALAR, _SINCE_04, _TRN3_OPS),
    _unary_row("relu", lambda x: np.maximum(x, 0), _V4_VECTOR_SCALAR, _SINCE_04, _TRN3_OPS),
    _unary_row("rsqrt", lambda x: 1 / np.sqrt(x), _everywhere("gpsimd", "scalar")),
    _unary_row("reciprocal", lambda x: 1 / x, _everywhere("vector", "scalar")),
    _unary_row("bypass", lambda x: x, _V4_SCALAR, _SINCE_04, _BYPASS),
)

_BY_NAME = {op.name: op for op in ALU_OPS}
BY_NAME: Mapping[str, AluOp] = MappingProxyType(_BY_NAME)


def of(name: str) -> AluOp:
    """The operator called ``name``; raise ValueError naming the operators there are."""
    found = _BY_NAME.get(name)
    if found is None:
        raise ValueError(f"{name} is no ALU operator: expected one of {', '.join(BY_NAME)}")
    return found


def ops_for(kind: Kind) -> tuple[AluOp, ...]:
    """The operators of one kind, in the order of the operator table."""
    return tuple(op for op in ALU_OPS if op.kind == kind)


@functools.cache
def reduce_fn(op: AluOp) -> Reduction:
    """The reduction of ``op``; raise ValueError where it does not accumulate.

    The reduced axes are taken in row-major order. subtract gives the first element less all others, which no
    document states; add sums in pairs, as NumPy does, because the order on the hardware is not documented.
    """
    if op.identity is None:
        known = ", ".join(row.name for row in ALU_OPS if row.identity is not None)
        raise ValueError(f"{op.name} is no reduction operator: expected one of {known}")

    ufunc = op.ufunc

    def reduce(values: Array, axes: tuple[int, ...], keepdims: bool = False) -> Array:
        if ufunc is not None and axes == (1,) and values.ndim == 2 and values.dtype is FLOAT32:
            return np.asarray(ufunc.reduce(values, axis=1, keepdims=keepdims), FLOAT32)
        if op.kind == "bitvec":
            dtype, (array,) = _patterns(op.name, np.asarray(values))
        else:
            array = compute_array(values, op.name)
            dtype = array.dtype
        ordered = sorted(axis % array.ndim for axis in axes)
        last = np.moveaxis(array, ordered, range(array.ndim - len(ordered), array.ndim))
        flat = last.reshape(*last.shape[: array.ndim - len(ordered)], -1)
        if ufunc is not None:
            reduced = ufunc.reduce(flat, axis=-1)
        else:
            reduced = functools.reduce(op.fn, np.moveaxis(flat, -1, 0))
        result = np.asarray(reduced, array.dtype).view(dtype)
        return np.expand_dims(result, tuple(ordered)) if keepdims else result

    return reduce
