"""Limits of inputs as drawn where the reference enlarges rounding: what may use them, and what stays wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nkireview.record import Run
from nkireview.requests import from_file
from nkireview.review import review
from nkireview.runner import ForkServer

KERNELS = """
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np


def power(x, factor, dtype):
    t = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=x)
    scaled = nl.ndarray(x.shape, dtype=dtype, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=scaled, data=t, op0=nl.multiply, operand0=factor)
    nisa.activation(dst=t, op=nl.exp, data=scaled)
    out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=t)
    return out


@nki.jit
def exact(x):
    return power(x, 23.0, nl.float32)


@nki.jit
def off(x):
    return power(x, 23.0002, nl.float32)


@nki.jit
def rounded(x):
    return power(x, 23.0, nl.bfloat16)


@nki.jit
def ones(x):
    return power(x, 0.0, nl.float32)


def inputs(seed):
    return (np.random.default_rng(seed).uniform(-1.0, 1.0, (128, 512)).astype(np.float32),)


def power_ref(x):
    return np.exp(23.0 * x)


def waves_ref(x):
    return 1.0 + 0.01 * np.sin(1e8 * x)
"""


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("drawn") / "kernels.py"
    path.write_text(KERNELS)
    return path


def drawn(server: ForkServer, kernels: Path, kernel: str, reference: str) -> list[Run]:
    """The runs on inputs as drawn."""
    request = from_file(
        kernels,
        kernel=kernel,
        reference=f"{kernels}:{reference}",
        inputs=(),
        inputs_from=f"{kernels}:inputs",
        target="trn2",
        nki="",
        lnc=1,
        seed=1,
    )
    workloads = tuple(replace(item, hostile=()) for item in request.workloads)
    runs = [
        run for run in review(replace(request, workloads=workloads), server).runs if run.inputs == "as drawn"
    ]
    assert runs
    return runs


def test_numpy_in_float32_needs_them_too() -> None:
    """The limits of an elementwise float32 output, by hand: 10 roundoffs of the element and 11 of the rms."""
    x = np.random.default_rng(1).uniform(-1.0, 1.0, (128, 512)).astype(np.float32)
    ref = np.exp(23.0 * x.astype(np.float64))
    error = np.abs(np.exp(np.float32(23.0) * x) - ref)
    u = 2.0**-24
    assert (error > u * ((2 + 8 + 2.5) * ref + (3 + 8 + 2.5) * np.sqrt(np.mean(ref**2)))).any()


def test_a_kernel_that_only_rounds_is_right(server: ForkServer, kernels: Path) -> None:
    assert {run.status for run in drawn(server, kernels, "exact", "power_ref")} == {"correct"}


@pytest.mark.parametrize("kernel", ["off", "rounded"])
def test_defects_stay_wrong(server: ForkServer, kernels: Path, kernel: str) -> None:
    assert {run.status for run in drawn(server, kernels, kernel, "power_ref")} == {"wrong"}


def test_a_reference_of_any_conditioning_excuses_nothing(server: ForkServer, kernels: Path) -> None:
    """1 instead of 1 + 0.01 sin(1e8 x): unbounded, its conditioning of 1e5 would allow an error of 0.1."""
    assert {run.status for run in drawn(server, kernels, "ones", "waves_ref")} == {"wrong"}
