"""Run nki-library's rotational_topk on both cores and compare with a sort.

Its configuration names files of constants, which a review does not let a kernel read. `tools/public.py` copies this
file beside the extracted clone.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import nki
import nki.language as nl
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "clone" / "src"))

CASES = (
    (4, 8192, 256, 1),  # in stages that are rotated
    (6, 5001, 100, 2),  # stages and k need padding
    (130, 1024, 16, 2),  # one stage, which is scanned, on both cores
)
"""Rows, vocabulary, k and cores."""


def main() -> None:
    """Print a line for each case that agrees; end with an assertion at the first that does not."""
    topk: Any = importlib.import_module("nkilib_src.nkilib.core.topk.rotational_topk")
    random = np.random.default_rng(1)
    for rows, vocabulary, k, cores in CASES:
        row = np.linspace(-4.0, 4.0, vocabulary, dtype=np.float32)
        # no value twice, so that the indices are defined
        tensor = random.permuted(np.broadcast_to(row, (rows, vocabulary)), axis=1)
        shape = (rows, 1, vocabulary)
        plain = topk.create_topk_config(inp_shape=shape, inp_dtype=nl.float32, k=k, num_programs=cores)
        config = topk.create_rotational_topk_config(inp_shape=tensor.shape, topk_config=plain)
        topk.prepare_rotational_constants(config)
        values, indices = nki.simulate(topk.rotational_topk)[cores](tensor, config)
        topk.RotationalConstants.cleanup()
        order = np.argsort(-tensor, axis=1)[:, :k]
        assert np.array_equal(values.reshape(rows, k), np.take_along_axis(tensor, order, axis=1))
        assert np.array_equal(indices.reshape(rows, k), order)
        print(f"top {k} of {rows} x {vocabulary}, {config.n_stages} stages, LNC {cores}: equal")


main()
