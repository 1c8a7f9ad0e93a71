"""A pytest plugin that runs single test files of nki-library without its test framework, which needs a device farm.

The modules of the framework that the files import are replaced: a test hands its kernel, inputs and reference over,
and here the kernel is called on NumPy arrays and compared. `tools/public.py` copies this file beside the extracted
clone, from whose folder pytest is started.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import nki
import numpy as np
import pytest
import torch

CLONE = Path(__file__).resolve().parents[2] / "clone"
ALIAS = ".must_alias_input"


class Framework:
    """A test's kernel with its inputs and its reference in torch."""

    def __init__(self, test_manager: Any, **given: Any) -> None:
        self._given = SimpleNamespace(**given)

    def run_test(self, test_config: Any, compiler_args: Any) -> None:
        """Call the kernel and compare what it returns with the reference, exactly."""
        inputs = _plain(self._given.kernel_input_generator(test_config))
        wanted = self._given.torch_ref(**inputs)
        found = _called(self._given.kernel_entry, inputs, compiler_args)
        (name,) = wanted
        assert np.array_equal(found, wanted[name])


class Manager:
    """What takes kernels that are only compiled: they are traced and executed."""

    def execute(self, test: Any) -> None:
        """Call the kernel and compare what it returns with the output that the test names."""
        found = _called(test.kernel_func, _plain(test.kernel_input), test.compiler_input)
        (wanted,) = test.validation_args.golden_output.output_ndarray.values()
        assert np.array_equal(found, wanted)


def _plain(inputs: dict[str, Any]) -> dict[str, Any]:
    return {name.removesuffix(ALIAS): value for name, value in inputs.items()}


def _called(kernel: Any, inputs: dict[str, Any], options: Any) -> Any:
    arrays = {
        name: np.copy(value) if isinstance(value, np.ndarray) else value for name, value in inputs.items()
    }
    return nki.simulate(kernel)[options.logical_nc_config](**arrays)


def _reference(function: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    def call(**inputs: Any) -> dict[str, Any]:
        tensors = {
            name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value
            for name, value in inputs.items()
        }
        return {name: value.numpy() for name, value in function(**tensors).items()}

    return call


def _parametrize(names: str, values: Any, abbrevs: Any = None) -> Any:
    return pytest.mark.parametrize(names, values)


def _metadata(**given: Any) -> Callable[[type], type]:
    return lambda tests: tests


MODULES: dict[str, dict[str, Any]] = {
    "common_dataclasses": dict.fromkeys(
        ("CompilerArgs", "KernelArgs", "LazyGoldenGenerator", "Platforms", "ValidationArgs"), SimpleNamespace
    ),
    "pytest_parametrize": {"pytest_parametrize": _parametrize},
    "pytest_test_metadata": {"pytest_test_metadata": _metadata},
    "test_orchestrator": {"Orchestrator": Manager},
    "unit_test_framework": {"UnitTestFramework": Framework, "torch_ref_wrapper": _reference},
}

sys.path[:0] = [str(CLONE), str(CLONE / "src")]
sys.modules.pop("test", None)
for _name, _members in MODULES.items():
    _module = ModuleType(f"test.utils.{_name}")
    _module.__dict__.update(_members)
    sys.modules[_module.__name__] = _module


@pytest.fixture
def test_manager() -> Manager:
    """What the tests call their orchestrator."""
    return Manager()


@pytest.fixture
def platform_target() -> str:
    """The device that the tests ask for."""
    return "trn2"
