"""What several test files share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nkireview.runner import ForkServer

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def server() -> Iterator[ForkServer]:
    """One warm fork server for each test process."""
    with ForkServer() as running:
        yield running
