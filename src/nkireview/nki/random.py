"""Random numbers of `nl`: seeds, uniform values and dropout."""

from __future__ import annotations

from typing import Any

from nkireview.nki.allocate import allocate, tile
from nkireview.nki.dtypes import ALL
from nkireview.nki.errors import Refusal
from nkireview.nki.fills import through_sbuf
from nkireview.nki.lowering import (
    cast,
    instruction,
    is_number,
    need_number,
    need_tensor,
    result_dtype,
    token,
)
from nkireview.nki.tensor import MemoryRegion, NkiTensor
from nkireview.nki.trace import current

UNIFORM_ON = ("v4",)  # generations that have rand2
RANDOM_BITS = ALL["uint16"]


def random_seed(seed: NkiTensor) -> None:
    """Seed the generator of the Vector engine with a [1, 1] tensor of 32 bits."""
    if is_number(seed):
        raise Refusal("nl.random_seed: seed must be a [1, 1] tensor of 32 bits in SBUF or PSUM, got a number")
    trace = current("nl.random_seed")
    if trace.hardware.generation not in UNIFORM_ON:
        trace.event("note", "nl.random_seed may not reach the generator of nl.rand before NeuronCore-v4")
    instruction("set_rng_seed")(src_seeds=need_tensor("nl.random_seed", seed, "seed"))


def rand(shape: Any, dtype: Any, buffer: Any = MemoryRegion.sbuf, name: str = "") -> NkiTensor:
    """Uniform values of [0, 1): rand2 on v4; before, 16 random bits of the Vector engine times 2^-16."""
    fresh = allocate(shape, dtype, buffer, name, what="nl.rand")
    if fresh.on_chip:
        _draw(fresh)
    else:
        through_sbuf(fresh, _draw)
    return fresh


def _draw(dst: NkiTensor) -> None:
    if current("nl.rand").hardware.generation in UNIFORM_ON:
        instruction("rand2")(dst=dst, min=0.0, max=1.0)
        return
    bits = tile(dst, RANDOM_BITS)
    instruction("rng")(dst=bits)
    instruction("tensor_scalar")(dst=dst, data=bits, op0=token("multiply"), operand0=2.0**-16)


def dropout(x: NkiTensor, rate: Any, dtype: Any = None) -> NkiTensor:
    """Each element replaced by zero with the probability `rate`, a number or a (P, 1) tile; the rest unscaled."""
    what = "nl.dropout"
    need_tensor(what, x, "x")
    if not isinstance(rate, NkiTensor) and not 0 <= need_number(what, rate, "rate") <= 1:
        raise Refusal(f"{what}: rate is {rate}, expected a probability from 0 to 1")
    dst = tile(x)
    instruction("dropout")(dst=dst, data=x, prob=rate)
    return cast(dst, result_dtype(what, dtype, x.dtype))
