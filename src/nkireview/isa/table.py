"""The instruction table: every row by name, and the names that have no row yet."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from nkireview.isa.row import Row
from nkireview.isa.rows import (
    accumulating,
    collectives,
    copy,
    cores,
    dma,
    elementwise,
    gather,
    gpsimd,
    mx,
    predicated,
    random,
    registers,
    scalar,
    search,
    tensor,
    transfers,
    vector,
)

MODULES = (
    *(dma, transfers, tensor, mx, copy, elementwise, vector, accumulating, predicated, search, scalar),
    *(gpsimd, gather, random, registers, cores, collectives),
)
ROWS: Mapping[str, Row] = MappingProxyType({row.name: row for module in MODULES for row in module.ROWS})

# nki/api/nki/isa/__init__.py (NKI 0.6): every function that stands for an instruction.
KNOWN_NAMES = (
    "activate2",
    "activation",
    "activation_reduce",
    "affine_select",
    "bn_aggr",
    "bn_stats",
    "core_barrier",
    "dma_compute",
    "dma_copy",
    "dma_transpose",
    "dropout",
    "exponential",
    "iota",
    "local_gather",
    "max8",
    "memset",
    "nc_find_index8",
    "nc_match_replace8",
    "nc_matmul",
    "nc_matmul_mx",
    "nc_n_gather",
    "nc_stream_shuffle",
    "nc_transpose",
    "nonzero_with_count",
    "quantize_mx",
    "rand2",
    "rand_get_state",
    "rand_set_state",
    "range_select",
    "reciprocal",
    "register_alloc",
    "register_load",
    "register_move",
    "register_store",
    "rng",
    "scalar_tensor_tensor",
    "select_reduce",
    "sendrecv",
    "sequence_bounds",
    "set_rng_seed",
    "tensor_copy",
    "tensor_copy_predicated",
    "tensor_partition_reduce",
    "tensor_reduce",
    "tensor_scalar",
    "tensor_scalar_cumulative",
    "tensor_scalar_reduce",
    "tensor_tensor",
    "tensor_tensor_scan",
    "topk",
)


def row(name: str) -> Row:
    """The row of an instruction; ValueError says whether the name is unknown or only has no row yet."""
    found = ROWS.get(name)
    if found is not None:
        return found
    if name in KNOWN_NAMES:
        raise ValueError(f"nisa.{name} is not supported yet: supported are {', '.join(sorted(ROWS))}")
    raise ValueError(f"{name} is no nki.isa instruction: known are {', '.join(KNOWN_NAMES)}")
