"""The unit tests of nki-samples at its last commit with legacy kernels: `nkireview exec legacy_tests.py CLONE`."""

import sys
from pathlib import Path

import pytest

clone = Path(sys.argv[1])
sys.path.insert(0, str(clone / "src"))
raise SystemExit(
    pytest.main([str(clone / "test/unit"), "--simulation-only", "-q", "--tb=short", "-p", "no:cacheprovider"])
)
