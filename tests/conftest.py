"""What several test files share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from limits_seen import registered

from nkireview.runner import ForkServer

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def server() -> Iterator[ForkServer]:
    """One warm fork server for each test process."""
    with ForkServer() as running:
        yield running


@pytest.fixture(scope="module")
def as_executed() -> Iterator[None]:
    """Meanings and operators called as `execute` calls them: infinities and NaN are results, not warnings."""
    with np.errstate(all="ignore"):
        yield


def pytest_configure(config: pytest.Config) -> None:
    """A whole run must trip every limit of the instruction table, and stay just inside each."""
    config.pluginmanager.register(registered())
