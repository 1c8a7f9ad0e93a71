"""The programs of the SDK's examples and of its tests, judged: `nkireview exec sdk_programs.py CLONE FILE [--timed]`.

They are executed, because a script goes on with what its kernel returns. FILE and what is printed are those of
`compat/drivers/judged.py`.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
import judged

EXAMPLES = (
    "nki/examples/simulate/nki_simulate_example.py",
    "nki/examples/average_pool2d/average_pool2d_nki_kernels.py",
    "nki/examples/average_pool2d/average_pool2d_torch.py",
    "nki/examples/fused_mamba/mamba_nki_kernels.py",
    "nki/examples/fused_mamba/mamba_torch.py",
    "nki/examples/matrix_multiplication/matrix_multiplication_torch.py",
    "nki/examples/transpose2d/transpose2d_torch.py",
    "nki/examples/getting_started_baremetal.py",
    "nki/examples/getting_started_torch.py",
)
MX = "nki/deep-dives/src/mxfp-matmul/mx_toplevel.py"


def script(path: Path) -> None:
    """Run a script as Python would, from its folder."""
    before = list(sys.path)
    sys.path.insert(0, str(path.parent))
    sys.argv = [str(path)]
    try:
        runpy.run_path(str(path), run_name="__main__")
    finally:
        sys.path[:] = before


def main(clone: Path, into: Path, timed: bool) -> None:
    """Judge all of them and print what was found."""
    into.unlink(missing_ok=True)
    judged.install(judged.Judge(into, clone, timed))
    for name in EXAMPLES:
        script(clone / name)
    os.environ["NKIREVIEW_TARGET"] = "trn3"
    script(clone / MX)
    del os.environ["NKIREVIEW_TARGET"]
    pytest.main(["-q", "-p", "no:cacheprovider", str(clone / "nki/test")])
    for line in judged.summary(judged.read(into)):
        print(line)


main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve(), "--timed" in sys.argv)
