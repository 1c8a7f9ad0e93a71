"""An operator of NKIBench as its own harness checks it: `nkireview exec nkibench.py CLONE OPERATOR`.

Five draws of its inputs; the kernel's result against its NumPy reference by the harness's measure, the norm of the
difference over the norm of the reference, which may be 2e-5 (accelopt/eval_numpy.py). Printed are that measure, the
instructions, and the processor time of the execution over that of the reference, both on one BLAS thread.
"""

from __future__ import annotations

import importlib.util
import json
import resource
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from nkireview.hosted import launch

LIMIT = 2e-5
DRAWS = int(sys.argv[3]) if len(sys.argv) > 3 else 1


def module(path: Path) -> ModuleType:
    """A file of the clone."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def main(clone: Path, name: str) -> None:
    """Run the operator and print whether it matches."""
    folder = clone / "NKIBench"
    cases = json.loads((folder / "summary.json").read_text(encoding="utf-8"))[name]["cases"]
    found = next(iter(cases.values()))["impls"][0]
    reference, kernel = module(folder / found["task"]), module(folder / found["kernel"])
    seconds: list[float] = []
    instructions: list[int] = []
    execute = launch.execute

    def timed(program: Any, *args: Any, **kwargs: Any) -> Any:
        started = time.process_time()
        made = execute(program, *args, **kwargs)
        seconds.append(time.process_time() - started)
        instructions.append(len(program))
        return made

    launch.execute = timed  # type: ignore[assignment]
    worst, plain = 0.0, 0.0
    with threadpool_limits(1):
        for draw in range(DRAWS):
            np.random.seed(draw)
            inputs = reference.get_inputs()
            started = time.process_time()
            wanted = reference.forward(*inputs)
            plain += time.process_time() - started
            given = reference.transform_to_nki_inputs(inputs)
            outputs = reference.transform_nki_outputs(kernel.kernel(*given), wanted)
            pairs = zip(outputs, wanted if isinstance(wanted, tuple) else (wanted,), strict=True)
            for output, right in pairs:
                difference = np.linalg.norm((output - right).reshape(-1))
                worst = max(worst, float(difference / np.linalg.norm(right.reshape(-1))))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{name}: {instructions[0]:,} instructions, relative norm of the difference {worst:.2e}")
    print(
        f"{sum(seconds) / plain:.2f} times its reference's {plain / DRAWS:.1f} s, peak memory {memory:.1f} GiB"
    )
    print("matches" if worst <= LIMIT else "DIFFERS")
    raise SystemExit(worst > LIMIT)


main(Path(sys.argv[1]), sys.argv[2])
