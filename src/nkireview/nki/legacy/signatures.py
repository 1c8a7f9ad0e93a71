"""Signatures of ``nisa`` in the legacy generation, as its stubs write them, and how a call meets one.

Source: nki/api/nki/isa/__init__.py at tag v2.26.1.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from nkireview.isa.enums import DgeMode, Engine, OobMode, ReduceCmd
from nkireview.nki.errors import Refusal

FP32_MIN = float(np.finfo(np.float32).min)
NAMES: Mapping[str, Any] = {
    "reduce_cmd.idle": ReduceCmd.idle,
    "engine.unknown": Engine.unknown,
    "oob_mode.error": OobMode.error,
    "dge_mode.unknown": DgeMode.unknown,
    "np.amax": np.amax,
    "fp32.min": FP32_MIN,
}
"""What the names in defaults stand for."""
_PAIR = "reverse0=False, op1=None, operand1=None, reverse1=False"
_REDUCED = "reduce_res=None, reduce_cmd=reduce_cmd.idle, reduce_op=np.amax"
STUBS: Mapping[str, str] = {
    "activation": "op, data, *, bias=None, scale=1.0, reduce_op=None, reduce_res=None, "
    "reduce_cmd=reduce_cmd.idle, mask=None, dtype=None, **kwargs",
    "activation_reduce": "op, data, *, reduce_op, reduce_res, bias=None, scale=1.0, mask=None, dtype=None, **kwargs",
    "affine_select": "pred, on_true_tile, on_false_value, *, mask=None, dtype=None, **kwargs",
    "bn_aggr": "data, *, mask=None, dtype=None, **kwargs",
    "bn_stats": "data, *, mask=None, dtype=None, **kwargs",
    "builtin_custom_op": "function_name, lib_file_name, ulib_to_ucode_version, ulib_to_isa_version, srcs, dsts, "
    "**kwargs",
    "dma_copy": "*, dst, src, mask=None, dst_rmw_op=None, oob_mode=oob_mode.error, dge_mode=dge_mode.unknown",
    "dma_transpose": "src, *, axes=None, mask=None, dtype=None, **kwargs",
    "dropout": "data, prob, *, mask=None, dtype=None, **kwargs",
    "iota": "expr, dtype, *, mask=None, **kwargs",
    "local_gather": "src_buffer, index, num_elem_per_idx=1, num_valid_indices=None, *, mask=None",
    "max8": "*, src, mask=None, dtype=None, **kwargs",
    "memset": "shape, value, dtype, *, mask=None, engine=engine.unknown, **kwargs",
    "nc_find_index8": "*, data, vals, mask=None, dtype=None, **kwargs",
    "nc_match_replace8": "*, data, vals, imm, dst_idx=None, mask=None, dtype=None, **kwargs",
    "nc_matmul": "stationary, moving, *, is_stationary_onezero=False, is_moving_onezero=False, is_transpose=False, "
    "tile_position=(), tile_size=(), mask=None, **kwargs",
    "nc_stream_shuffle": "src, dst, shuffle_mask, *, dtype=None, mask=None, **kwargs",
    "nc_transpose": "data, *, mask=None, dtype=None, engine=engine.unknown, **kwargs",
    "range_select": "*, on_true_tile, comp_op0, comp_op1, bound0, bound1, reduce_cmd=reduce_cmd.idle, "
    "reduce_res=None, reduce_op=np.amax, range_start=0, on_false_value=fp32.min, mask=None, dtype=None, **kwargs",
    "reciprocal": "data, *, dtype=None, mask=None, **kwargs",
    "scalar_tensor_tensor": "*, data, op0, operand0, op1, operand1, reverse0=False, reverse1=False, dtype=None, "
    "mask=None, **kwargs",
    "select_reduce": f"*, dst, predicate, on_true, on_false, {_REDUCED}, reverse_pred=False, mask=None, dtype=None, "
    "**kwargs",
    "sequence_bounds": "*, segment_ids, dtype=None",
    "tensor_copy": "src, *, mask=None, dtype=None, engine=engine.unknown, **kwargs",
    "tensor_copy_dynamic_dst": "*, dst, src, mask=None, dtype=None, engine=engine.unknown, **kwargs",
    "tensor_copy_dynamic_src": "src, *, mask=None, dtype=None, engine=engine.unknown, **kwargs",
    "tensor_copy_predicated": "*, src, dst, predicate, reverse_pred=False, mask=None, dtype=None, **kwargs",
    "tensor_partition_reduce": "op, data, *, mask=None, dtype=None, **kwargs",
    "tensor_reduce": "op, data, axis, *, mask=None, dtype=None, negate=False, keepdims=False, **kwargs",
    "tensor_scalar": f"data, op0, operand0, {_PAIR}, *, dtype=None, mask=None, engine=engine.unknown, **kwargs",
    # no name of the stubs: nki/test/test_nki_isa_tensor_scalar_cumulative.py calls it
    "tensor_scalar_cumulative": "*, dst, src, op0, op1, imm0, imm1=None, reduce_cmd=None, mask=None, dtype=None, "
    "**kwargs",
    "tensor_scalar_reduce": "*, data, op0, operand0, reduce_op, reduce_res, reverse0=False, dtype=None, mask=None, "
    "**kwargs",
    "tensor_tensor": "data1, data2, op, *, dtype=None, mask=None, engine=engine.unknown, **kwargs",
    "tensor_tensor_scan": "data0, data1, initial, op0, op1, reverse0=False, reverse1=False, *, dtype=None, mask=None, "
    "**kwargs",
}
UNNAMED: Mapping[str, frozenset[str]] = {"dma_copy": frozenset({"unique_indices"})}
"""Keywords that no stub names and calls have: nki/migration/index.rst:456-495."""


@dataclass(frozen=True)
class Stub:
    """One signature: parameters in order, which of them come by position, which are needed, whether more may come."""

    name: str
    positions: tuple[str, ...]
    needed: tuple[str, ...]
    names: frozenset[str]
    open: bool
    signature: inspect.Signature

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments by name, those that were given; Refusal where the call does not fit."""
        if len(args) > len(self.positions):
            taken = f"{len(self.positions)} by position" if self.positions else "its arguments by name alone"
            raise Refusal(f"{self.name}: takes {taken}, got {len(args)}: {self.shown}")
        given = dict(zip(self.positions, args, strict=False))
        for name, value in kwargs.items():
            if name in given:
                raise Refusal(f"{self.name}: argument {name!r} is given twice")
            if not self.open and name not in self.names and name not in UNNAMED.get(self.name, ()):
                raise Refusal(f"{self.name}: unknown argument {name!r}: {self.shown}")
            given[name] = value
        for name in self.needed:
            if name not in given:
                raise Refusal(f"{self.name}: argument {name!r} is missing: {self.shown}")
        return given

    @property
    def shown(self) -> str:
        """The call as the stub writes it."""
        return f"{self.name}({STUBS[self.name]})"


def _stub(name: str, text: str) -> Stub:
    (found,) = ast.parse(f"def call({text}): ...").body
    assert isinstance(found, ast.FunctionDef)
    spec = found.args
    by_position = [arg.arg for arg in spec.args]
    defaults: list[ast.expr | None] = [*[None] * (len(by_position) - len(spec.defaults)), *spec.defaults]
    parameters = [
        inspect.Parameter(arg, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=_default(default))
        for arg, default in zip(by_position, defaults, strict=True)
    ]
    parameters += [
        inspect.Parameter(arg.arg, inspect.Parameter.KEYWORD_ONLY, default=_default(default))
        for arg, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True)
    ]
    needed = tuple(each.name for each in parameters if each.default is inspect.Parameter.empty)
    names = frozenset(each.name for each in parameters)
    if spec.kwarg is not None:
        parameters.append(inspect.Parameter(spec.kwarg.arg, inspect.Parameter.VAR_KEYWORD))
    return Stub(
        name, tuple(by_position), needed, names, spec.kwarg is not None, inspect.Signature(parameters)
    )


def _default(found: ast.expr | None) -> Any:
    if found is None:
        return inspect.Parameter.empty
    text = ast.unparse(found)
    return NAMES[text] if text in NAMES else ast.literal_eval(found)


SIGNATURES: Mapping[str, Stub] = {name: _stub(name, text) for name, text in STUBS.items()}
