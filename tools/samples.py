"""Write docs/samples: the reports of a bad, a middling and an excellent kernel of the examples, with a fixed seed.

python tools/samples.py
"""

from __future__ import annotations

from pathlib import Path

from nkireview.report import machine
from nkireview.report.sources import read_sources
from nkireview.requests import from_task
from nkireview.review import review
from nkireview.runner import ForkServer
from nkireview.task import resolve

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "samples"
SAMPLES = {
    "bad": "softmax/submissions/wrong",
    "middling": "matmul/submissions/slow",
    "excellent": "rmsnorm/submissions/good",
}
SEED = 1


def main() -> None:
    """Review each sample and write its files; what differs by machine is left out of them."""
    with ForkServer() as server:
        for name, path in SAMPLES.items():
            task, submissions = resolve(ROOT / "examples" / path)
            request = from_task(task, submissions[0], target=None, nki=None, lnc=None, seed=SEED)
            record = review(request, server)
            subject = record.subject.model_copy(
                update={field: Path(getattr(record.subject, field)).name for field in ("file", "reference")}
            )
            record = record.model_copy(
                update={"seconds": {}, "isolation_held": (), "isolation_not_held": (), "subject": subject}
            )
            sources = read_sources(record, request.file)
            print(machine.write(record, FOLDER / name, sources.texts))


if __name__ == "__main__":
    main()
