"""The activation functions of the Scalar Engine: exact mathematics and documented input ranges beside it.

The engine evaluates piecewise polynomials of unpublished accuracy; how far they may be off is a matter of
tolerances, not of these functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from nkireview.isa.dtypes import Array, compute_array
from nkireview.isa.release import ALWAYS, Release, Span

Function = Callable[..., Array]


@dataclass(frozen=True, eq=False)
class Activation:
    """One activation function.

    ``fn(x)`` takes float32 or float64 values and returns an array of the same dtype and shape; with ``needs``
    it is ``fn(x, parameter)``: a number or an array that broadcasts against ``x``, named as in ``activate2``.
    ``ufunc`` is ``fn`` where that is one function of NumPy. Overflow to inf and NaN outside
    the domain are results, as they are on the engine: the caller silences NumPy's warnings of them.
    ``valid_range`` is the documented input range, ends included, None for all reals; ``symmetric`` means that
    the range holds for ``|x|``. Outside it the engine's result is invalid, while ``fn`` stays the exact
    function: ask ``outside``. ``source``: public Neuron SDK documentation.
    """

    name: str
    fn: Function
    valid_range: tuple[float, float] | None
    symmetric: bool
    needs: str | None
    generations: tuple[str, ...]
    releases: Span
    source: str
    ufunc: np.ufunc | None = None


def _sigmoid(x: Array) -> Array:
    decay = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1, decay) / (1 + decay))


def _gate(x: Array, gate: Array) -> Array:
    """``x * gate`` with the limit 0 where the gate has closed, also for infinite ``x``."""
    return np.where(gate == 0, gate, x * gate)


def _silu(x: Array) -> Array:
    return _gate(x, _sigmoid(x))


def _silu_dx(x: Array) -> Array:
    return _gate(1 + _gate(x, _sigmoid(-x)), _sigmoid(x))


def _normal_cdf(x: Array) -> Array:
    from scipy import special  # type: ignore[import-untyped]

    return np.asarray(special.ndtr(x))


def _gelu(x: Array) -> Array:
    return _gate(x, _normal_cdf(x))


def _gelu_dx(x: Array) -> Array:
    density = np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    return _normal_cdf(x) + _gate(x, density)


def _gelu_apprx_tanh(x: Array) -> Array:
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)
    # (1 + tanh(u)) / 2 is sigmoid(2u), which does not cancel for negative u.
    return _gate(x, _sigmoid(2 * inner))


_SIGMOID_SLOPE = 1.702


def _gelu_apprx_sigmoid(x: Array) -> Array:
    return _gate(x, _sigmoid(_SIGMOID_SLOPE * x))


def _gelu_apprx_sigmoid_dx(x: Array) -> Array:
    return _silu_dx(_SIGMOID_SLOPE * x)


def _softplus(x: Array) -> Array:
    return np.asarray(np.logaddexp(x, np.zeros((), x.dtype)))


def _mish(x: Array) -> Array:
    return _gate(x, np.tanh(_softplus(x)))


def _erf(x: Array) -> Array:
    from scipy import special

    return np.asarray(special.erf(x))


def _erf_dx(x: Array) -> Array:
    return np.asarray(2 / math.sqrt(math.pi) * np.exp(-x * x))


def _prelu(x: Array, slope: npt.ArrayLike) -> Array:
    return np.where(x > 0, x, np.asarray(slope, x.dtype) * x)


_TABLE = "nki/api/nki.api.shared.rst:137-205"
_PRELU = "nki/api/nki/isa/__init__.py:1543-1546; release-notes/components/nki.rst:230"


def _row(
    name: str,
    compute: Callable[..., Any],
    valid_range: tuple[float, float] | None = None,
    *,
    symmetric: bool = False,
    needs: str | None = None,
    generations: tuple[str, ...] = ("v2", "v3", "v4"),
    releases: Span = ALWAYS,
    source: str = _TABLE,
) -> Activation:
    def fn(x: npt.ArrayLike, *parameters: npt.ArrayLike) -> Array:
        array = compute_array(x, name)
        result = compute(array, *parameters)
        return (
            result
            if type(result) is np.ndarray and result.dtype is array.dtype
            else np.asarray(result, array.dtype)
        )

    ufunc = compute if isinstance(compute, np.ufunc) else None
    return Activation(name, fn, valid_range, symmetric, needs, generations, releases, source, ufunc)


ACTIVATIONS = (
    _row("copy", lambda x: x),
    _row("square", np.square),
    _row("sigmoid", _sigmoid),
    _row("relu", lambda x: np.maximum(x, 0)),
    _row(
        "prelu",
        _prelu,
        needs="relu_param",
        generations=("v4",),
        releases=Span(since=Release(0, 4)),
        source=_PRELU,
    ),
    _row("gelu", _gelu),
    _row("gelu_dx", _gelu_dx),
    _row("gelu_apprx_tanh", _gelu_apprx_tanh),
    _row("gelu_apprx_sigmoid", _gelu_apprx_sigmoid),
    _row("gelu_apprx_sigmoid_dx", _gelu_apprx_sigmoid_dx, releases=Span(since=Release(0, 2))),
    _row("silu", _silu),
    _row("silu_dx", _silu_dx),
    _row("tanh", np.tanh),
    _row("softplus", _softplus),
    _row("mish", _mish),
    _row("erf", _erf),
    _row("erf_dx", _erf_dx),
    _row("exp", np.exp),
    _row("log", np.log, (2.0**-64, 2.0**64)),
    _row("sin", np.sin, (-math.pi, math.pi)),
    _row("arctan", np.arctan, (-math.pi / 2, math.pi / 2)),
    _row("sqrt", np.sqrt, (2.0**-116, 2.0**118)),
    _row("rsqrt", lambda x: 1 / np.sqrt(x), (2.0**-87, 2.0**97)),
    _row("reciprocal", lambda x: 1 / x, (2.0**-42, 2.0**42), symmetric=True),
    _row("sign", np.sign),
    _row("abs", np.abs),
)

_BY_NAME = {row.name: row for row in ACTIVATIONS}
BY_NAME: Mapping[str, Activation] = MappingProxyType(_BY_NAME)


def of(name: str) -> Activation:
    """The activation function called ``name``; raise ValueError naming the functions there are."""
    found = _BY_NAME.get(name)
    if found is None:
        raise ValueError(f"{name} is no activation function: expected one of {', '.join(BY_NAME)}")
    return found


def outside(name: str, values: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Where ``values`` (float32 or float64) lie outside the documented input range of an activation function.

    A mask in the shape of ``values``. NaN is not counted: it comes from elsewhere. The ends of the range are
    taken in the dtype of ``values``, so that float32 pi is within the range of sin. Zero lies outside the
    ranges of log, sqrt, rsqrt and reciprocal. Raise ValueError for an unknown function.
    """
    activation = of(name)
    array = compute_array(values, name)
    if activation.valid_range is None:
        return np.zeros(array.shape, np.bool_)
    low, high = np.asarray(activation.valid_range, array.dtype)
    magnitude = np.abs(array) if activation.symmetric else array
    return np.asarray((magnitude < low) | (magnitude > high))
