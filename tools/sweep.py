"""Look for false alarms: what we say of public kernels from their source, and the reviews of those with known inputs.

For each tree of compat.toml every Python file, and every code block of a page that defines a kernel, is judged from
its text; then the rows of the suite that review kernels of the tree are run. With ``--programs``, it looks instead
through what compat/drivers/judged.py said of the programs of a suite. A blocker that docs/false_alarms.md does not list
fails the sweep. Nothing is fetched, and a clone is only read.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
import tempfile
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from nkireview.checks.source import SourceError, SourceFacts, read_source
from nkireview.isa.release import LEGACY, Release
from nkireview.rules.facts import Facts, Failure, WorkloadFacts
from nkireview.rules.finding import Finding, Severity
from nkireview.rules.registry import judge

sys.path.insert(0, str(Path(__file__).resolve().parent))
import public

LISTED = "docs/false_alarms.md"
_LISTED_ROW = re.compile(
    r"\| `(?P<path>[^`]+)` \| (?:`(?P<kernel>[^`]+)`|-) \| `(?P<revision>[^`]+)` "
    r"\| (?P<codes>NKR\d{3}(?:, NKR\d{3})*) \| .+ \|"
)


@dataclass(frozen=True)
class Blocked:
    """Something that blocks, or is listed as blocking: where, in which kernel ("" for the file), and the code."""

    revision: str
    path: str
    kernel: str
    code: str

    def listed_in(self, known: Iterable[Blocked]) -> bool:
        """True where a listed blocker is this one; a listed commit may be shortened, a listed file has no kernel."""
        return any(
            (item.path, item.code) == (self.path, self.code)
            and self.revision.startswith(item.revision)
            and item.kernel in ("", self.kernel)
            for item in known
        )


@dataclass(frozen=True)
class Said:
    """A finding about a kernel of a file; `path` names the block too where the file is a page."""

    path: str
    kernel: str
    finding: Finding


def listed(text: str) -> tuple[Blocked, ...]:
    """The blockers that a page lists, in its tables' order."""
    return tuple(
        Blocked(row["revision"], row["path"], row["kernel"] or "", code)
        for line in text.splitlines()
        if (row := _LISTED_ROW.fullmatch(line))
        for code in row["codes"].split(", ")
    )


def judge_file(path: Path, name: str, release: Release) -> Iterator[Said]:
    """What the text of a Python file shows, for each of its kernels, or for the file where it has none."""
    try:
        source = read_source(path)
    except SourceError as error:
        failure = WorkloadFacts("", failure=Failure("not python", str(error)))
        yield from (Said(name, "", item) for item in judge(Facts(kernel="", workloads=(failure,))))
        return
    for kernel in source.kernels or ("",):
        facts = Facts(kernel=kernel, source=source, release=_release(source, release))
        yield from (Said(name, kernel, item) for item in judge(facts))


def _release(source: SourceFacts, release: Release) -> Release:
    return LEGACY if source.legacy else release


def judge_tree(root: Path, release: Release) -> Iterator[Said]:
    """What the text of all Python files and pages below a folder shows."""
    for path in sorted(root.rglob("*.py")):
        yield from judge_file(path, path.relative_to(root).as_posix(), release)
    with tempfile.TemporaryDirectory(prefix="nkireview-sweep-") as folder:
        for page in sorted(root.rglob("*.rst")):
            name = page.relative_to(root).as_posix()
            for at, block in enumerate(public.kernel_blocks(page.read_text(encoding="utf-8")), 1):
                cut = Path(folder) / f"block{at}.py"
                cut.write_text(block, encoding="utf-8")
                yield from judge_file(cut, f"{name}#{at}", release)


def merged(said: Iterable[Said]) -> list[Said]:
    """One of those that say the same of several kernels of a file."""
    first: dict[tuple[str, str, str], Said] = {}
    for item in said:
        first.setdefault((item.path, item.finding.code, item.finding.message), item)
    return list(first.values())


def subject(row: public.Row) -> tuple[str, str]:
    """Path and kernel that a row reviews, as the page lists them."""
    words = shlex.split(row.command)
    path = row.cut.file + f"#{row.cut.block}" if row.cut else words[1].removeprefix("{clone}/")
    kernel = words[words.index("--kernel") + 1] if "--kernel" in words else ""
    return path, kernel


def reviewed(row: public.Row, result: public.RowResult) -> Iterator[Said]:
    """What a row's review found."""
    path, kernel = subject(row)
    for finding in result.outcome.findings if result.outcome else ():
        yield Said(path, kernel, finding)


def blocked(said: Iterable[Said], revision: str) -> list[Blocked]:
    """The blockers among findings, each once."""
    found = (
        Blocked(revision, item.path, item.kernel, item.finding.code)
        for item in said
        if item.finding.severity is Severity.blocker
    )
    return list(dict.fromkeys(found))


def sweep_tree(
    tree: public.Tree, rows: Sequence[public.Row], clones: Path, adaptors: Path
) -> tuple[list[Said], list[str]]:
    """All that is said of a tree, and the rows that could not be run, a sentence each."""
    git = public.locate(clones, tree.clone)
    commit = public.resolve(git, tree)
    with tempfile.TemporaryDirectory(prefix="nkireview-sweep-") as folder:
        public.extract(git, commit, tree.paths, Path(folder))
        said = merged(judge_tree(Path(folder), Release.parse(tree.nki)))
    failed = []
    for row in rows:
        try:
            result = public.measure(row, git, adaptors)
        except public.RowError as error:
            failed.append(f"{row.id}: {error}")
            continue
        said.extend(reviewed(row, result))
        if result.outcome is None or result.outcome.status == "not reviewed":
            failed.append(f"{row.id}: {'; '.join(result.problems)}")
    return said, failed


def programs(path: Path, revision: str) -> tuple[list[Blocked], list[str]]:
    """The blockers among what was found in programs, and those that could not be judged, a sentence each.

    Raise SuiteError where the file holds something else.
    """
    found: list[Blocked] = []
    failed: list[str] = []
    try:
        for text in path.read_text(encoding="utf-8").splitlines():
            line = json.loads(text)
            if "error" in line:
                failed.append(f"{line['file']}: {line['kernel']} could not be judged: {line['error']}")
            found.extend(
                Blocked(revision, line["file"], line["kernel"], item["code"])
                for item in line.get("findings", ())
                if item["severity"] == Severity.blocker.value
            )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise public.SuiteError(f"{path}: not a file of compat/drivers/judged.py: {error!r}") from None
    return list(dict.fromkeys(found)), list(dict.fromkeys(failed))


def lines(said: Sequence[Said]) -> Iterator[str]:
    """A line for each finding above note, then how many there are of each code."""
    for item in sorted(said, key=lambda item: (item.path, item.kernel, item.finding.code)):
        if item.finding.severity is not Severity.note:
            where = f"{item.path} {item.kernel}".strip()
            yield f"{item.finding.severity.value:<8} {item.finding.code} {where}: {item.finding.message}"
    counts = Counter((item.finding.severity.rank, item.finding.code) for item in said)
    names = list(Severity)
    yield (
        ", ".join(f"{code} {names[rank].value} x {count}" for (rank, code), count in sorted(counts.items()))
        or "nothing was said"
    )


EPILOG = textwrap.dedent(
    """\
    \b
    Example:
      python tools/sweep.py --clones ~/clones --source-only
      python tools/sweep.py --programs 2.29 nkilib.jsonl

    Exit codes: 0 every blocker is listed; 1 one is not, or a row could not be run; 2 a wrong call or a missing clone.
    """
)


@click.command(
    epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.option(
    "--clones",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    default=Path("clones"),
    show_default=True,
    help="Folder of clones, as for public.py.",
)
@click.option("--source-only", is_flag=True, help="Judge the texts alone, run no review.")
@click.option(
    "--programs",
    "judged",
    type=(str, click.Path(path_type=Path, exists=True, dir_okay=False)),
    multiple=True,
    metavar="REVISION FILE",
    help="Look through a file of compat/drivers/judged.py, about a tree at REVISION, instead; may be repeated.",
)
@click.option(
    "--suite",
    type=click.Path(path_type=Path, dir_okay=False),
    default=public.ROOT / "compat.toml",
    show_default="compat.toml of the project",
    help="The suite with the trees; its adaptors are in the folder compat beside it.",
)
@click.option(
    "--listed",
    "page",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    default=public.ROOT / LISTED,
    show_default=f"{LISTED} of the project",
    help="The page that lists the blockers that are right.",
)
def main(
    clones: Path, source_only: bool, judged: Sequence[tuple[str, Path]], suite: Path, page: Path
) -> None:
    """Judge the trees of compat.toml, and fail where a kernel is blocked without a documented reason."""
    known = listed(page.read_text(encoding="utf-8"))
    problems: list[str] = []

    def unlisted(found: Iterable[Blocked]) -> list[str]:
        return [
            f"{item.path}: {item.code} blocks {item.kernel or 'the file'}, and {page.name} does not list it"
            for item in found
            if not item.listed_in(known)
        ]

    try:
        for revision, path in judged:
            found, failed = programs(path, revision)
            click.echo(f"{path.name} at {revision}: {len(found)} blockers")
            problems += [*failed, *unlisted(found)]
        loaded = public.Suite(row=()) if judged else public.load_suite(suite)
        for tree in loaded.trees:
            rows = [] if source_only else [row for row in loaded.rows if tree.holds(row)]
            said, failed = sweep_tree(tree, rows, clones, suite.parent / public.ADAPTORS)
            click.echo(f"{tree.clone} at {tree.revision}, NKI {tree.nki}, {len(rows)} reviews")
            for line in lines(said):
                click.echo(f"  {line}")
            problems += [*failed, *unlisted(blocked(said, tree.revision))]
    except (public.SuiteError, public.MissingError, public.RowError) as error:
        click.echo(f"sweep: {error}", err=True)
        sys.exit(2)
    for problem in problems:
        click.echo(f"FAILED   {problem}")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
