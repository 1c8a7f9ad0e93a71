"""Reviewers' edits: what they change, what they refuse, and that none is ever lost or rewritten."""

from __future__ import annotations

import json
import multiprocessing
import random
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from nkireview.cli import main
from nkireview.record import Legality, ReviewRecord, Setting, Subject
from nkireview.rubric import tables
from nkireview.rubric.edits import EditError, append_edit, apply, proposed, read_edits
from nkireview.rubric.loading import load
from nkireview.rubric.scorecard import CriterionScore, Edit, Scorecard
from nkireview.rubric.scoring import score
from nkireview.rules.finding import Dimension, Evidence, Finding, Severity

FULL = {name: (1.0 if measure.direction == "higher" else 0.1) for name, measure in tables.measures().items()}
IDS = list(load().criteria)
OF = "a review"


def blocker(code: str = "NKR020", dimension: Dimension = Dimension.numerics) -> Finding:
    return Finding(
        code=code, severity=Severity.blocker, dimension=dimension, evidence=Evidence.executed, message="m"
    )


def card(*findings: Finding, **measures: float) -> Scorecard:
    return score(load(), findings, {**FULL, **measures}, {})


def edit(
    criterion: str = "tiling.array", before: float | None = 4, after: float | None = 2, **keys: Any
) -> Edit:
    given = {"who": "A", "when": "2026-01-02T03:04:05+00:00", "why": "w", "of": OF, **keys}
    return Edit(criterion=criterion, before=before, after=after, **given)


def accept(code: str) -> Edit:
    return Edit(kind="accept", who="A", when="2026-01-02T03:04:05+00:00", why="w", of=OF, code=code)


def item(found: Scorecard, key: str) -> CriterionScore:
    (one,) = [one for dimension in found.dimensions for one in dimension.criteria if one.id == key]
    return one


def dimension(found: Scorecard, name: Dimension) -> float | None:
    (one,) = [one.score for one in found.dimensions if one.dimension is name]
    return one


def test_no_edit_changes_nothing() -> None:
    assert apply(card(), ()) == card()


def test_an_edit_moves_the_level_the_mean_and_the_total() -> None:
    before = card()
    after = apply(before, [edit(why="a remainder")])
    # tiling: weights 2, 2, 1, 1, of which one 2 falls from 4 to 2: (4 * 4 + 2 * 2) / 6
    assert dimension(after, Dimension.tiling) == pytest.approx(20 / 6)
    # 94 of 100 are assessed; tiling weighs 6
    assert after.total == pytest.approx(25 * (88 * 4 + 6 * 20 / 6) / 94)
    changed = item(after, "tiling.array")
    assert (changed.level, changed.original, changed.edited, changed.descriptor) == (
        2,
        4,
        True,
        "a remainder",
    )
    assert changed.evidence == item(before, "tiling.array").evidence
    assert after.edits == (edit(why="a remainder"),)
    assert item(before, "tiling.array").level == 4


def test_the_level_before_all_edits_stays_visible() -> None:
    after = apply(card(), [edit(), edit(before=2, after=3.5)])
    assert (item(after, "tiling.array").level, item(after, "tiling.array").original) == (3.5, 4)
    assert len(after.edits) == 2


def test_not_assessed_is_an_edit_in_both_directions() -> None:
    after = apply(card(), [edit(after=None, why="no such work here")])
    changed = item(after, "tiling.array")
    assert (changed.level, changed.reason, changed.descriptor, changed.original) == (
        None,
        "no such work here",
        "",
        4,
    )
    assert dimension(after, Dimension.tiling) == 4
    migrated = apply(card(), [edit("migration.semantics", None, 0)])
    assert dimension(migrated, Dimension.migration) == 0
    assert migrated.total == pytest.approx(25 * 94 * 4 / 97)
    changed = item(migrated, "migration.semantics")
    assert (changed.level, changed.reason, changed.original, changed.edited) == (0, "", None, True)


def test_a_level_lifts_no_cap() -> None:
    before = card(blocker())
    assert before.total == 25 and item(before, "correctness.results").level == 0
    raised = [edit("correctness.results", 0, 4), edit("numerics.accuracy", 0, 4)]
    after = apply(before, raised)
    assert (after.uncapped, after.total, after.cap, after.capped_by) == (100, 25, 25, ("NKR020",))


def test_accepting_a_blocker_lifts_its_cap_and_nothing_else() -> None:
    before = card(blocker(), blocker())
    after = apply(before, [accept("NKR020")])
    assert (after.cap, after.capped_by, after.total) == (None, (), before.uncapped)
    assert all(one.accepted for one in after.blockers)
    assert after.dimensions == before.dimensions
    two = card(blocker(), blocker("NKR006", Dimension.correctness))
    assert (two.cap, two.capped_by) == (0, ("NKR006",))
    left = apply(two, [accept("NKR006")])
    assert (left.cap, left.capped_by) == (25, ("NKR020",))


@pytest.mark.parametrize(
    ("edits", "problem"),
    [
        ([edit("tiling.arry")], "there is no criterion 'tiling.arry'; did you mean 'tiling.array'?"),
        (
            [edit(after=5)],
            "level 5 of tiling.array is out of range; expected 0 to 4, or none for not assessed",
        ),
        (
            [edit(after=-0.5)],
            "level -0.5 of tiling.array is out of range; expected 0 to 4, or none for not assessed",
        ),
        (
            [edit(before=3)],
            "tiling.array is at level 4, not at level 3 as the edit says; "
            "look at the scorecard again and repeat the edit",
        ),
        (
            [edit(), edit()],
            "tiling.array is at level 2, not at level 4 as the edit says; "
            "look at the scorecard again and repeat the edit",
        ),
        (
            [edit(before=None)],
            "tiling.array is at level 4, not at not assessed as the edit says; "
            "look at the scorecard again and repeat the edit",
        ),
        ([edit(after=4)], "tiling.array is at level 4 already; expected another level"),
        ([accept("NKR003")], "there is no blocker NKR003 to accept; did you mean 'NKR020'?"),
        ([accept("NKR020"), accept("NKR020")], "there is no blocker NKR020 to accept"),
    ],
)
def test_each_refusal_has_its_sentence(edits: list[Edit], problem: str) -> None:
    with pytest.raises(EditError) as caught:
        apply(card(blocker()), edits)
    assert str(caught.value) == problem


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"criterion": ""}, "an edit of a level names a criterion and no code"),
        ({"code": "NKR020"}, "an edit of a level names a criterion and no code"),
        ({"kind": "accept"}, "an edit that accepts a blocker names its code and no criterion"),
        (
            {"kind": "accept", "criterion": ""},
            "an edit that accepts a blocker names its code and no criterion",
        ),
    ],
)
def test_an_edit_is_of_one_kind(keys: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        edit(**keys)


def test_what_a_reviewer_may_propose() -> None:
    keys = {"who": "A", "why": "w", "when": "t", "of": OF}
    assert proposed(card(), "tiling.array", "2.5", "", **keys) == edit(after=2.5, when="t")
    assert proposed(card(), "tiling.array", "none", "", **keys).after is None
    assert proposed(card(), "", "", "NKR020", **keys).code == "NKR020"
    with pytest.raises(EditError) as caught:
        proposed(card(), "tiling.array", "high", "", **keys)
    assert str(caught.value) == "got level 'high'; expected a number of 0 to 4, or none for not assessed"
    with pytest.raises(EditError) as caught:
        proposed(card(), "tiling.array", "2", "", **{**keys, "why": " "})
    assert str(caught.value) == "an edit names who makes it and why; expected both not to be empty"


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(IDS), st.one_of(st.none(), st.integers(0, 4))), max_size=6))
def test_edits_leave_what_the_edited_levels_would_have_scored(changes: list[tuple[str, int | None]]) -> None:
    before = card()
    found, last = before, {}
    for key, level in changes:
        if item(found, key).level != level:
            found = apply(found, [edit(key, item(found, key).level, level)])
            last[key] = level
    for one in found.dimensions:
        levels = [
            (c.weight, last.get(c.id, item(before, c.id).level))
            for c in one.criteria
            if last.get(c.id, item(before, c.id).level) is not None
        ]
        wanted = sum(w * v for w, v in levels) / sum(w for w, _ in levels) if levels else None  # type: ignore[operator]
        assert one.score == (None if wanted is None else pytest.approx(wanted))
    assert all(item(found, key).original == item(before, key).level for key in last)


# ------------------------------------------------------------------------------------------------------ the file


def test_edits_are_appended_and_read_back(tmp_path: Path) -> None:
    file = tmp_path / "edits.jsonl"
    assert read_edits(file, OF) == ()
    one, two = edit(why="a\nb \u2028"), edit(before=2, after=None)
    assert append_edit(file, card(), one) == apply(card(), [one])
    first = file.read_bytes()
    assert append_edit(file, card(), two) == apply(card(), [one, two])
    assert file.read_bytes().startswith(first) and file.read_bytes().count(b"\n") == 2
    assert read_edits(file, OF) == (one, two)


def other_review(file: Path, who: str = "A") -> str:
    return (
        f"{file}: line 1, by {who}, was made of another review than the one beside it: the kernel, target, release, "
        "LNC, task or rubric has changed since; move the file away, then make those edits anew that still hold"
    )


def test_edits_of_another_review_are_neither_read_nor_added_to(tmp_path: Path) -> None:
    file = tmp_path / "edits.jsonl"
    append_edit(file, card(), edit())
    before = file.read_bytes()
    for refused in (
        lambda: read_edits(file, "another"),
        lambda: append_edit(file, card(), edit(before=2, after=3, of="another")),
    ):
        with pytest.raises(EditError) as caught:
            refused()
        assert str(caught.value) == other_review(file)
    assert file.read_bytes() == before


def test_a_refused_edit_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "edits.jsonl"
    append_edit(file, card(), edit())
    before = file.read_bytes()
    with pytest.raises(EditError):
        append_edit(file, card(), edit())
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"{}\n", "line 1 is no edit: who: Field required"),
        (
            b"[]\n",
            "line 1 is no edit: Input should be an object",
        ),
        (edit().model_dump_json().encode(), "line 1 has no end, so an edit was not written whole; remove it"),
        (
            edit().model_dump_json().encode() + b'\n{"who',
            "line 2 has no end, so an edit was not written whole; remove it",
        ),
    ],
)
def test_lines_that_are_no_edits(text: bytes, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "edits.jsonl"
    file.write_bytes(text)
    for call in (lambda path: read_edits(path, OF), lambda path: append_edit(path, card(), edit())):
        with pytest.raises(EditError) as caught:
            call(file)
        assert str(caught.value) == f"{file}: {problem}"
    assert file.read_bytes() == text


def _lower(path: str, seed: int) -> None:
    """Append edits until twenty were accepted, each from the level found in the file."""
    chance, done = random.Random(seed), 0
    while done < 20:
        found = apply(card(), read_edits(Path(path), OF))
        key = chance.choice(IDS)
        level = item(found, key).level
        try:
            append_edit(Path(path), card(), edit(key, level, chance.random() * 4, who=str(seed)))
            done += 1
        except EditError:
            continue


def test_many_writers_lose_nothing(tmp_path: Path) -> None:
    file = tmp_path / "edits.jsonl"
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_lower, args=(str(file), seed)) for seed in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    edits = read_edits(file, OF)
    assert sorted(one.who for one in edits) == ["0"] * 20 + ["1"] * 20 + ["2"] * 20
    assert apply(card(), edits).edits == edits


# --------------------------------------------------------------------------------------------------- the command


def reviewed(scorecard: Scorecard | None, **changes: Any) -> ReviewRecord:
    settings = {name: Setting(value="x", origin="test") for name in ("target", "release", "lnc")}
    return ReviewRecord(
        tool="test",
        subject=Subject(**{"kernel": "k", "file": "k.py", **settings, **changes}),
        status="not reviewed",
        reason="test",
        legality=Legality(status="legal"),
        scorecard=scorecard,
    )


def review(folder: Path, scorecard: Scorecard | None, **changes: Any) -> Path:
    file = folder / "review.json"
    file.write_text(reviewed(scorecard, **changes).model_dump_json())
    return file


def call(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(main, ["rubric", *arguments])
    return done.exit_code, done.stdout, done.stderr


def test_the_command_appends_and_prints_the_totals(tmp_path: Path) -> None:
    file = review(tmp_path, card(blocker()))
    untouched = file.read_bytes()
    who = ("--who", "A. Reviewer", "--why", "a remainder")
    code, text, error = call("edit", str(file), "--criterion", "tiling.array", "--level", "2", *who)
    assert (code, error) == (0, "")
    assert text.splitlines() == [
        "tiling.array: level 4 -> level 2",
        "tiling: 4.00 of 4 -> 3.33 of 4",
        # 25 / 94 of 68 * 4 + 16 * 1.6 + 10 * 20 / 9, then of 6 * 2 / 3 less: 85.1 and 83.996
        "total: 25 of 100 (capped by NKR020, else 85) -> 25 of 100 (capped by NKR020, else 83)",
    ]
    code, text, _ = call("edit", str(file), "--accept", "NKR020", *who)
    assert code == 0 and text.splitlines() == [
        "NKR020: accepted by A. Reviewer",
        "total: 25 of 100 (capped by NKR020, else 83) -> 83 of 100",
    ]
    assert [one.who for one in read_edits(tmp_path / "edits.jsonl", reviewed(card()).identity)] == [
        "A. Reviewer"
    ] * 2
    assert file.read_bytes() == untouched
    code, text, _ = call("export", "--review", str(file))
    (array,) = [one for one in json.loads(text) if "id: tiling.array" in one["tags"]]
    assert code == 0 and (array["level"], array["met"]) == (2, False)
    assert array["score"] == pytest.approx(6 * 2 / 6 / 2, abs=1e-4)


def test_the_identity_is_that_of_what_was_judged_and_by_what() -> None:
    def setting(value: str, origin: str = "test") -> Setting:
        return Setting(value=value, origin=origin)

    same = reviewed(card()).identity
    judged = [
        {"sha256": "0" * 64},
        {"kernel": "other"},
        {"task": "softmax"},
        *({name: setting("y")} for name in ("target", "release", "lnc")),
    ]
    known = {reviewed(card(), **changes).identity for changes in judged}
    known.add(reviewed(card().model_copy(update={"rubric": "own"})).identity)
    assert len(known | {same}) == len(judged) + 2
    # where it lies, and who chose the target, changes nothing
    assert reviewed(card(), file="elsewhere/k.py", target=setting("x", "default")).identity == same
    assert reviewed(card(blocker())).identity == same


def test_a_new_kernel_in_the_same_folder_inherits_no_edit(tmp_path: Path) -> None:
    file = review(tmp_path, card(blocker()), sha256="1" * 64)
    accepted = ("edit", str(file), "--accept", "NKR020", "--who", "A. Reviewer", "--why", "w")
    assert call(*accepted)[0] == 0
    review(tmp_path, card(blocker()), sha256="2" * 64)
    refusal = (2, "", f"nkireview: {other_review(tmp_path / 'edits.jsonl', 'A. Reviewer')}\n")
    assert call(*accepted) == refusal
    assert call("export", "--review", str(file)) == refusal
    assert len((tmp_path / "edits.jsonl").read_bytes().splitlines()) == 1
    (tmp_path / "edits.jsonl").rename(tmp_path / "edits-of-the-old.jsonl")
    assert call("export", "--review", str(file))[0] == 0


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((), "give either --criterion and --level, or --accept"),
        (("--criterion", "tiling.array"), "give either --criterion and --level, or --accept"),
        (
            ("--criterion", "tiling.array", "--level", "2", "--accept", "NKR020"),
            "give either --criterion and --level, or --accept",
        ),
        (
            ("--criterion", "tiling.arry", "--level", "2"),
            "there is no criterion 'tiling.arry'; did you mean 'tiling.array'?",
        ),
        (("--accept", "NKR020"), "there is no blocker NKR020 to accept"),
    ],
)
def test_wrong_calls(arguments: tuple[str, ...], problem: str, tmp_path: Path) -> None:
    file = review(tmp_path, card())
    assert call("edit", str(file), *arguments, "--who", "A", "--why", "w") == (
        2,
        "",
        f"nkireview: {problem}\n",
    )
    assert not (tmp_path / "edits.jsonl").exists()


def test_files_that_are_no_review(tmp_path: Path) -> None:
    keys = ("--accept", "NKR020", "--who", "A", "--why", "w")
    file = review(tmp_path, None)
    problem = f"{file}: the review has no scorecard; expected one that was judged"
    assert call("edit", str(file), *keys) == (2, "", f"nkireview: {problem}\n")
    file.write_text("{}")
    problem = f"{file}: this is no review; expected a review.json of this version"
    assert call("edit", str(file), *keys) == (2, "", f"nkireview: {problem}\n")
    file.unlink()
    problem = f"{file}: No such file or directory; expected the review.json of a review"
    assert call("edit", str(file), *keys) == (2, "", f"nkireview: {problem}\n")
    assert not (tmp_path / "edits.jsonl").exists()
