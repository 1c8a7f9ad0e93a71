"""What several test files share."""

from __future__ import annotations

import compileall
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from kept import Kept
from limits_seen import registered
from threadpoolctl import threadpool_limits

from nkireview.runner import ForkServer

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def server() -> Iterator[ForkServer]:
    """One warm fork server for each test process."""
    with ForkServer() as running:
        yield running


@pytest.fixture(scope="session")
def kept(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, server: ForkServer
) -> Kept:
    """Reviews that several tests look at."""
    own = tmp_path_factory.getbasetemp()
    # each process of a parallel run has a folder in that of the run
    folder = (own.parent if hasattr(request.config, "workerinput") else own) / "kept"
    folder.mkdir(exist_ok=True)
    return Kept(folder, server)


@pytest.fixture(scope="module")
def as_executed() -> Iterator[None]:
    """Meanings and operators called as `execute` calls them: infinities and NaN are results, not warnings."""
    with np.errstate(all="ignore"):
        yield


def pytest_configure(config: pytest.Config) -> None:
    """A whole run must trip every limit of the instruction table, and stay just inside each."""
    config.pluginmanager.register(registered())
    _spare_processors(config)


def _spare_processors(config: pytest.Config) -> None:
    """Processors are for tests: a BLAS waits for its idle threads by spinning, and every process compiles our sources.

    That is so where PYTHONDONTWRITEBYTECODE is set; the byte code is read nonetheless.
    """
    for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    threadpool_limits(1)
    if not hasattr(config, "workerinput"):
        compileall.compile_dir(ROOT / "src", quiet=2)
