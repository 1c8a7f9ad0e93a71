"""Run nki-library's rmsnorm_quant_kernel and compare what its rows stand for with float64.

A row ends in the bytes of its scale, a float32, so that the rows themselves cannot be compared as numbers.
`tools/public.py` copies this file beside the extracted clone.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import nki
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "clone" / "src"))

RANGE = 240.0
"""The largest value of float8_e4m3."""
HALF_STEP = 2.0**-4
"""Rounding to 3 bits of fraction, of a normal value."""
SMALLEST = 2.0**-10
"""Rounding of a subnormal value of float8_e4m3."""


def main() -> None:
    """Print a line for each case that agrees; end with an assertion at the first that does not."""
    library: Any = importlib.import_module("nkilib_src.nkilib.core.rmsnorm.rmsnorm_quant")
    random = np.random.default_rng(1)
    for batch, length, hidden, cores, norm in (
        (1, 200, 1024, 1, True),
        (2, 130, 1536, 2, True),
        (1, 64, 512, 1, False),
    ):
        tensor = random.standard_normal((batch, length, hidden)).astype(ml_dtypes.bfloat16)
        gamma = (1.0 + 0.1 * random.standard_normal((1, hidden))).astype(ml_dtypes.bfloat16)
        kind = library.NormType.RMS_NORM if norm else library.NormType.NO_NORM
        options = library.RmsNormQuantKernelArgs(
            norm_type=kind, quantization_type=library.QuantizationType.ROW
        )
        kernel = nki.simulate(library.rmsnorm_quant_kernel)
        out = (kernel[cores] if cores > 1 else kernel)(tensor, gamma, options)
        codes = np.ascontiguousarray(out).view(np.uint8)
        assert codes.shape == (batch, length, hidden + 4)
        scale = np.ascontiguousarray(codes[..., hidden:]).view(np.float32).astype(np.float64)
        found = codes[..., :hidden].copy().view(ml_dtypes.float8_e4m3).astype(np.float64)
        wanted = tensor.astype(np.float64)
        if norm:
            wanted = wanted / np.sqrt(np.mean(wanted**2, axis=2, keepdims=True) + options.eps)
            wanted = wanted * gamma.astype(np.float64)
        largest = np.abs(wanted).max(axis=2, keepdims=True)
        # intermediates are bfloat16, with 8 bits
        assert np.allclose(scale, largest / RANGE, rtol=2.0**-7)
        wanted_codes = wanted / largest * RANGE
        error = np.abs(found - wanted_codes)
        limit = np.abs(wanted_codes) * (HALF_STEP + 2.0**-6) + SMALLEST
        assert (error <= limit).all(), float((error / limit).max())
        print(
            f"{batch} x {length} x {hidden}, LNC {cores}, norm {norm}: within {(error / limit).max():.2f} of the limit"
        )


main()
