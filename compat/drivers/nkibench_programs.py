"""The programs of NKIBench's kernels, judged: `nkireview exec nkibench_programs.py CLONE FILE [--timed]`.

They are traced at its own shapes, and not executed. FILE and what is printed are those of `compat/drivers/judged.py`.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType

sys.path.insert(0, str(Path(__file__).resolve().parent))
import judged


def module(path: Path) -> ModuleType:
    """A file of the clone."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def main(clone: Path, into: Path, timed: bool) -> None:
    """Judge all of them and print what was found."""
    folder = clone.resolve() / "NKIBench"
    into.unlink(missing_ok=True)
    judged.install(judged.Judge(into, clone.resolve(), timed), only=True)
    for operator in json.loads((folder / "summary.json").read_text(encoding="utf-8")).values():
        for case in operator["cases"].values():
            for found in case["impls"]:
                reference, kernel = module(folder / found["task"]), module(folder / found["kernel"])
                given = reference.transform_to_nki_inputs(reference.get_inputs())
                with suppress(judged.OnlyJudged):
                    kernel.kernel(*given)
    for line in judged.summary(judged.read(into)):
        print(line)


main(Path(sys.argv[1]), Path(sys.argv[2]), "--timed" in sys.argv)
