"""Forms: another activation function than was meant, as an operator of its own or written out by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from types import MappingProxyType

import numpy as np

from nkireview.checks.steps import ACTIVATIONS, steps
from nkireview.diagnosis.algebra.hooks import Running, Values, beside, instead, stepped
from nkireview.diagnosis.algebra.lines import Line, having, with_alike
from nkireview.diagnosis.algebra.numbers import FILL, all_numbers, shown
from nkireview.diagnosis.repair import Repair
from nkireview.isa import act

GELU, OTHER = "gelu-form", "activation-function"
CUBIC, SLOPE, HALF_ROOT = 0.044715, 1.702, math.sqrt(2 / math.pi)
GELUS = ("gelu", "gelu_apprx_tanh", "gelu_apprx_sigmoid", "silu")
DERIVATIVES = ("gelu_dx", "gelu_apprx_sigmoid_dx", "silu_dx")
CONFUSED = MappingProxyType(
    {
        "relu": ("gelu", "gelu_apprx_tanh", "silu", "softplus", "copy"),
        "gelu": ("relu",),
        "gelu_apprx_tanh": ("relu",),
        "gelu_apprx_sigmoid": ("relu",),
        "silu": ("relu", "mish", "sigmoid"),
        "mish": ("silu", "softplus"),
        "sigmoid": ("tanh", "silu"),
        "tanh": ("sigmoid", "erf"),
        "softplus": ("relu", "exp"),
        "exp": ("softplus", "sigmoid"),
        "sqrt": ("rsqrt", "square"),
        "rsqrt": ("sqrt", "reciprocal"),
        "reciprocal": ("rsqrt",),
        "square": ("abs", "sqrt"),
        "abs": ("square", "relu"),
        "erf": ("tanh",),
    }
)
"""Functions that are taken for one another, besides those of one family."""
TYPED = MappingProxyType(
    {
        GELU: (CUBIC, HALF_ROOT, SLOPE, 2 * HALF_ROOT),
        "factor": (math.sqrt(0.5), math.sqrt(2), math.log2(math.e), math.log(2)),
    }
)
"""By cause: constants that are typed by hand."""
NEAR = 0.03
"""Relative difference up to which a number is taken for one of them."""


def cubic(values: Values) -> Values:
    """sqrt(2/pi) (x + 0.044715 x^3)."""
    inner: Values = HALF_ROOT * (values + CUBIC * values**3)
    return inner


def uncubic(values: Values) -> Values:
    """The x of which `cubic` gives these values: by the formula for one real root, then a step of Newton's."""
    linear = 1 / CUBIC
    constant = values / (HALF_ROOT * CUBIC)
    reach = math.sqrt(linear / 3)
    found = 2 * reach * np.sinh(np.arcsinh(constant / (2 * reach**3)) / 3)
    change: Values = found - (cubic(found) - values) / (HALF_ROOT * (1 + 3 * CUBIC * found**2))
    return change


def _sigmoid(values: Values) -> Values:
    return act.of("sigmoid").fn(values)


def _cdf(values: Values) -> Values:
    from scipy import special  # type: ignore[import-untyped]

    return np.asarray(special.ndtr(values))


def _erf(values: Values) -> Values:
    return act.of("erf").fn(values)


Function = Callable[[Values], Values]
WRITTEN: MappingProxyType[str, tuple[tuple[str, Function], ...]] = MappingProxyType(
    {
        "tanh": (
            ("the error function, not its tanh form", lambda u: _erf(uncubic(u) / math.sqrt(2))),
            ("the sigmoid form, not the tanh form", lambda u: 2 * _sigmoid(SLOPE * uncubic(u)) - 1),
        ),
        "erf": (
            ("the tanh form, not the error function", lambda u: np.tanh(cubic(u * math.sqrt(2)))),
            (
                "the sigmoid form, not the error function",
                lambda u: 2 * _sigmoid(SLOPE * math.sqrt(2) * u) - 1,
            ),
        ),
        "sigmoid": (
            ("the error function, not its sigmoid form", lambda u: _cdf(u / SLOPE)),
            ("the tanh form, not the sigmoid form", lambda u: _sigmoid(2 * cubic(u / SLOPE))),
            ("the error function, not the sigmoid of x", _cdf),
            ("the tanh form, not the sigmoid of x", lambda u: _sigmoid(2 * cubic(u))),
            ("the sigmoid form, not the sigmoid of x", lambda u: _sigmoid(SLOPE * u)),
            ("the sigmoid of x, not of 1.702 x", lambda u: _sigmoid(u / SLOPE)),
            ("the error function, not its tanh form", lambda u: _cdf(uncubic(u / 2))),
        ),
    }
)
"""By the function at which a hand-written gelu is recognised: what its argument may be meant to become."""


def gelus(given: Sequence[Line]) -> Iterator[Repair]:
    """The other gelus, and derivatives of them, where a line takes one."""
    for line in with_alike(_activations(given)):
        for family in (GELUS, DERIVATIVES):
            if line.call.imm("op") in family:
                yield from _swapped(line, GELU, [name for name in family if name != line.call.imm("op")])


def written_out(given: Sequence[Line]) -> Iterator[Repair]:
    """Another form of gelu at the function at which a kernel writes one out by hand."""
    for line in with_alike(_activations(given)):
        op = str(line.call.imm("op"))
        if line.call.has("reduce_res") or not line.floats("dst"):
            continue
        for meant, function in WRITTEN.get(op, ()):
            sentence = f"gelu is written out with {op}: with {meant}, the output matches"
            yield from line.repair(
                GELU, sentence, None, instead(line.instructions, _of_argument(line, function))
            )


def typed(given: Sequence[Line]) -> Iterator[Repair]:
    """Constants that are typed a little wrong."""
    for number in all_numbers(given):
        if number.op not in ("multiply", "divide", FILL):
            continue
        sign = math.copysign(1.0, number.value)
        for cause, constants in TYPED.items():
            for meant in constants:
                if 1e-9 < abs(sign * number.value / meant - 1) <= NEAR:
                    sentence = (
                        f"{shown(number.value)} is near {sign * meant:.9g}: with that the output matches"
                    )
                    yield from number.line.repair(cause, sentence, number.to(sign * meant))


def confused(given: Sequence[Line]) -> Iterator[Repair]:
    """Other functions that are taken for one another."""
    for line in with_alike(_activations(given)):
        yield from _swapped(line, OTHER, CONFUSED.get(str(line.call.imm("op")), ()))


def _activations(given: Sequence[Line]) -> Iterator[Line]:
    return (line for line in given if line.opcode in ACTIVATIONS or line.opcode == "activate2")


def _swapped(line: Line, cause: str, names: Sequence[str]) -> Iterator[Repair]:
    op = line.call.imm("op")
    for name in names:
        sentence = f"the activation function is {op}: with {name} the output matches"
        yield from line.repair(cause, sentence, line.edits(having("op", name)))


def _of_argument(line: Line, function: Function) -> Callable[[Running], Values]:
    """What gives the function of the argument that the activation function of a line gets."""
    taken = [step for step in steps(line.call) or () if step.op not in act.BY_NAME or step.op == "copy"]

    def change(running: Running) -> Values:
        values = running.value("data")
        argument = stepped(values, taken, lambda name: beside(running.value(name), values))
        return np.asarray(function(argument))

    return change
