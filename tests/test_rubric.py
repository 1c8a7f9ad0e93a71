"""Rubrics: what they hold, how they score by hand-computed values, what they refuse, and the JSON form."""

from __future__ import annotations

import importlib.util
import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from nkireview.cli import main
from nkireview.rubric import codes, tables
from nkireview.rubric.criteria_json import (
    BY_REVIEWER,
    export_rubric,
    export_scorecard,
    import_rubric,
    import_text,
)
from nkireview.rubric.loading import RubricError, load, of_task, parse
from nkireview.rubric.model import Criterion, Rubric
from nkireview.rubric.scorecard import CriterionScore, Scorecard
from nkireview.rubric.scoring import score
from nkireview.rubric.strengths import strengths
from nkireview.rubric.toml import to_toml
from nkireview.rules.finding import Dimension, Evidence, Finding, Severity

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
FULL = {name: (1.0 if measure.direction == "higher" else 0.1) for name, measure in tables.measures().items()}

SMALL = """
name = "small"

[effects]
major = 1
minor = 2
stake = { 1 = 0.3, 2 = 0.15 }

[[caps]]
total = 0
rules = ["NKR006"]
why = "Deceit"

[[caps]]
total = 25
rules = ["*"]
why = "Blocked"

[dimensions.correctness]
weight = 3

[dimensions.tiling]
weight = 1

[criteria.correctness.results]
title = "Results"
weight = 2
rules = ["NKR020"]
needs = ["workloads_executed"]
levels = ["r0", "r1", "r2", "r3", "r4"]

[criteria.correctness.rest]
title = "Rest"
weight = 1
rules = ["*"]
needs = ["workloads_traced"]
levels = ["s0", "s1", "s2", "s3", "s4"]

[criteria.tiling.array]
title = "Array"
weight = 3
rules = ["NKR140-NKR149"]
measures = [{ name = "pe_filled", at = { 4 = 0.9, 3 = 0.7, 2 = 0.4 }, otherwise = 1 }]
levels = ["a0", "a1", "a2", "a3", "a4"]

[criteria.tiling.reload]
title = "Reload"
weight = 1
measures = [{ name = "reload_factor", at = { 4 = 1.1, 2 = 3.0 } }]
levels = ["l0", "l1", "l2", "l3", "l4"]
"""
SEEN = {"workloads_traced": 1.0, "workloads_executed": 1.0}


def small(extra: str = "") -> Rubric:
    return parse(tomllib.loads(SMALL + extra), "small.toml")


def finding(
    code: str = "NKR031",
    severity: Severity = Severity.major,
    dimension: Dimension = Dimension.correctness,
    **keys: Any,
) -> Finding:
    return Finding(
        code=code, severity=severity, dimension=dimension, evidence=Evidence.traced, message="m", **keys
    )


def by_id(card: Scorecard) -> dict[str, CriterionScore]:
    return {item.id: item for dimension in card.dimensions for item in dimension.criteria}


def scores(card: Scorecard) -> dict[str, float | None]:
    return {item.dimension.name: item.score for item in card.dimensions}


# ---------------------------------------------------------------------------------------------------- the default


def test_the_default_rubric_has_eleven_dimensions_of_two_to_five_criteria_with_five_descriptors() -> None:
    rubric = load()
    assert list(rubric.dimensions) == list(Dimension)
    assert all(2 <= len(rubric.of(dimension)) <= 5 for dimension in Dimension)
    assert all(len(set(item.levels)) == 5 for item in rubric.criteria.values())
    assert sum(item.weight for item in rubric.dimensions.values()) == 100


def test_every_finding_is_counted_by_the_default_rubric() -> None:
    rubric = load()
    for dimension in Dimension:
        for number in range(200):
            assert rubric.counts(f"NKR{number:03}", dimension)


def test_every_measure_stands_behind_a_criterion_or_a_sentence() -> None:
    used = {item.name for one in load().criteria.values() for item in one.measures}
    needed = {name for one in load().criteria.values() for name in one.needs}
    said = {row.measure for row in tables.strengths()}
    # the free size itself is there for the rubrics of tasks; the default asks what it costs
    assert used | needed | said | {"free_size_share"} == set(tables.measures())


def test_a_perfect_kernel_scores_100_and_what_nothing_assesses_is_not_zero() -> None:
    card = score(load(), [], FULL, {})
    assert card.total == card.uncapped == 100 and card.cap is None and card.capped_by == ()
    assert {item.dimension for item in card.dimensions if item.score is None} == {
        Dimension.migration,
        Dimension.claims,
    }
    reasons = {item.dimension: item.reason for item in card.dimensions}
    assert reasons[Dimension.migration] == "no CUDA original was compared"
    assert reasons[Dimension.claims] == "no benchmark claim was given"


def test_nothing_assessed_has_no_total() -> None:
    card = score(load(), [], {}, {})
    assert card.total is None and card.uncapped is None
    reasons = {item.dimension: item.reason for item in card.dimensions}
    assert reasons[Dimension.performance] == "no workload was scheduled"
    assert reasons[Dimension.correctness] == (
        "no workload was executed and compared with a reference; no workload could be traced"
    )


# ---------------------------------------------------------------------------------------------- scores, by hand


def test_weighted_means_by_hand() -> None:
    # results 4, rest 2 (minor): (2 * 4 + 1 * 2) / 3 = 10/3; array 3 (0.75), reload 2 (2.0): (3 * 3 + 2) / 4 = 11/4
    # total: 25 * (3 * 10/3 + 1 * 11/4) / 4 = 25 * 12.75 / 4 = 79.6875
    card = score(
        small(),
        [finding(severity=Severity.minor)],
        {**SEEN, "pe_filled": 0.75, "reload_factor": 2.0},
        {},
    )
    assert scores(card) == {"correctness": pytest.approx(10 / 3), "tiling": 2.75}
    assert card.total == pytest.approx(79.6875) and card.total == card.uncapped
    found = by_id(card)
    assert [found[key].level for key in found] == [4, 2, 3, 2]
    assert [found[key].descriptor for key in found] == ["r4", "s2", "a3", "l2"]


def test_levels_link_their_evidence() -> None:
    findings = [finding("NKR044", Severity.note), finding("NKR141", Severity.minor, Dimension.tiling)]
    card = score(small(), findings, {**SEEN, "pe_filled": 0.95}, {})
    links = by_id(card)["tiling.array"].evidence
    assert [(link.kind, link.name, link.finding, link.value, link.effect) for link in links] == [
        ("finding", "NKR141", 1, None, "caps the level at 2"),
        ("measure", "pe_filled", None, 0.95, "level 4: at least 0.9"),
    ]
    assert by_id(card)["tiling.array"].level == 2
    assert by_id(card)["correctness.results"].evidence == ()


@pytest.mark.parametrize(
    ("name", "value", "level", "effect"),
    [
        ("pe_filled", 0.9, 4, "level 4: at least 0.9"),
        ("pe_filled", 0.8999, 3, "level 3: at least 0.7"),
        ("pe_filled", 0.1, 1, "level 1: below 0.4"),
        ("reload_factor", 1.1, 4, "level 4: at most 1.1"),
        ("reload_factor", 1.11, 2, "level 2: at most 3"),
        ("reload_factor", 3.1, 0, "level 0: above 3"),
    ],
)
def test_thresholds(name: str, value: float, level: int, effect: str) -> None:
    items = by_id(score(small(), [], {name: value}, {})).values()
    (found,) = [item for item in items if item.evidence]
    assert (found.level, found.evidence[0].effect) == (level, effect)


@pytest.mark.parametrize(
    ("severity", "gain", "cap", "effect"),
    [
        (Severity.major, None, 1, "caps the level at 1"),
        (Severity.major, 300.0, 1, "caps the level at 1: 30.0% of the predicted time at stake"),
        (Severity.major, 299.0, 2, "caps the level at 2: 29.9% of the predicted time at stake"),
        (Severity.major, 149.0, 3, "caps the level at 3: 14.9% of the predicted time at stake"),
        (Severity.minor, 900.0, 2, "caps the level at 2: 90.0% of the predicted time at stake"),
        (Severity.minor, 100.0, 3, "caps the level at 3: 10.0% of the predicted time at stake"),
        (Severity.major, 5000.0, 1, "caps the level at 1: 100.0% of the predicted time at stake"),
        (Severity.blocker, 10.0, 0, "caps the level at 0"),
    ],
)
def test_the_time_at_stake_softens_a_cap(
    severity: Severity, gain: float | None, cap: int, effect: str
) -> None:
    found = [finding(severity=severity, gain_ns=gain, workload="large, small")]
    card = score(small(), found, SEEN, {}, {"large": 1000.0, "small": 1.0})
    rest = by_id(card)["correctness.rest"]
    assert rest.level == cap and rest.evidence[0].effect == effect


def test_the_time_at_stake_is_weighed_by_the_longest_of_the_workloads_that_a_finding_names() -> None:
    found = [finding(severity=Severity.major, gain_ns=120.0, workload="small, large")]
    rest = by_id(score(small(), found, SEEN, {}, {"large": 1000.0, "small": 100.0}))["correctness.rest"]
    assert (
        rest.level == 3
        and rest.evidence[0].effect == "caps the level at 3: 12.0% of the predicted time at stake"
    )


def test_without_a_prediction_the_severity_alone_caps() -> None:
    found = [finding(gain_ns=100.0, workload="large")]
    for predicted in (None, {}, {"small": 1000.0}):
        assert by_id(score(small(), found, SEEN, {}, predicted))["correctness.rest"].level == 1


def test_a_criterion_has_its_own_effects() -> None:
    rubric = parse(
        {"extends": "default", "name": "own", "criteria": {"sdk": {"language": {"effects": {"minor": 3}}}}},
        "own.toml",
    )
    found = [
        finding("NKR049", Severity.minor, Dimension.sdk),
        finding("NKR049", Severity.note, Dimension.sdk),
    ]
    assert by_id(score(rubric, found, SEEN, {}))["sdk.language"].level == 3
    assert by_id(score(load(), found, SEEN, {}))["sdk.language"].level == 2


def test_an_unassessed_criterion_keeps_its_finding_but_gets_no_level() -> None:
    card = score(small(), [finding("NKR141", Severity.major, Dimension.tiling)], SEEN, {})
    array = by_id(card)["tiling.array"]
    assert array.level is None and array.descriptor == ""
    assert array.reason == "matmuls take too little of the compute time, or none"
    assert [link.name for link in array.evidence] == ["NKR141"]
    assert scores(card)["tiling"] is None and card.total == 100


def test_a_blocker_puts_its_criterion_at_0_even_where_the_rest_is_unknown() -> None:
    card = score(small(), [finding("NKR003", Severity.blocker)], {}, {})
    assert by_id(card)["correctness.rest"].level == 0
    assert by_id(card)["correctness.results"].level is None
    assert card.total == card.uncapped == 0 and card.cap == 25 and card.capped_by == ("NKR003",)


def test_a_dimension_that_was_not_assessed_says_why() -> None:
    card = score(small(), [], {**SEEN, "pe_filled": 1.0}, {Dimension.tiling: "the time was cut"})
    tiling = card.dimensions[1]
    assert tiling.score is None and tiling.reason == "the time was cut"
    assert {item.reason for item in tiling.criteria} == {"the time was cut"}
    assert card.total == 100


def test_blockers_stand_outside_the_average() -> None:
    found = [
        finding("NKR020", Severity.blocker, Dimension.numerics),
        finding("NKR003", Severity.blocker),
        finding("NKR020", Severity.blocker, Dimension.numerics),
    ]
    measures = {**SEEN, "pe_filled": 1.0, "reload_factor": 1.0}
    card = score(small(), found[:1], measures, {})
    # results 0, rest 4: 4/3; tiling 4: 25 * (3 * 4/3 + 4) / 4 = 50
    assert card.uncapped == pytest.approx(50) and card.total == 25 and card.capped_by == ("NKR020",)
    card = score(small(), found, measures, {})
    # correctness 0, tiling 4: 25 * 4 / 4 = 25
    assert card.uncapped == 25 and card.total == 25 and card.capped_by == ("NKR003", "NKR020")
    assert [(item.code, item.finding, item.cap) for item in card.blockers] == [
        ("NKR020", 0, 25),
        ("NKR003", 1, 25),
        ("NKR020", 2, 25),
    ]


def test_deceit_caps_at_0() -> None:
    found = [finding("NKR006", Severity.blocker), finding("NKR003", Severity.blocker)]
    card = score(small(), found, {**SEEN, "pe_filled": 1.0}, {})
    assert card.cap == 0 and card.total == 0 and card.capped_by == ("NKR006",)


def test_a_finding_that_no_criterion_counts_is_said() -> None:
    found = [
        finding("NKR120", Severity.major, Dimension.dma),
        finding("NKR120", Severity.note, Dimension.dma),
        finding("NKR149", Severity.major, Dimension.dma),
    ]
    card = score(small(), found, {**SEEN, "pe_filled": 1.0}, {})
    assert card.unscored == (0,)
    assert by_id(card)["tiling.array"].level == 1


def test_a_named_rule_is_not_counted_by_the_rest() -> None:
    card = score(small(), [finding("NKR020", Severity.minor)], SEEN, {})
    assert [by_id(card)[key].level for key in ("correctness.results", "correctness.rest")] == [2, 4]


def test_a_rule_may_count_in_several_dimensions() -> None:
    found = [
        finding("NKR105", Severity.major, Dimension.memory),
        finding("NKR109", Severity.minor, Dimension.memory),
    ]
    rubric = load()
    assert rubric.counts("NKR105", Dimension.memory) == [
        "memory.reuse",
        "performance.bound",
        "performance.losses",
    ]
    assert rubric.counts("NKR109", Dimension.memory) == [
        "performance.bound",
        "performance.losses",
        "memory.state",
    ]
    card = score(rubric, found, FULL, {})
    keys = ("memory.reuse", "memory.state", "memory.traffic", "performance.losses")
    assert [by_id(card)[key].level for key in keys] == [1, 2, 4, 0]


def test_a_penalty_is_taken_from_the_total() -> None:
    extra = """
[criteria.tiling.magic]
title = "Magic numbers"
weight = 1
penalty = 8
rules = ["NKR150-NKR159"]
needs = ["workloads_traced"]
levels = ["p0", "p1", "p2", "p3", "p4"]
"""
    rubric = small(extra)
    measures = {**SEEN, "pe_filled": 1.0, "reload_factor": 1.0}
    assert score(rubric, [], measures, {}).total == 100
    card = score(rubric, [finding("NKR150", Severity.minor, Dimension.tiling)], measures, {})
    # level 2 of 4: half of 8 points
    assert card.total == 96 and scores(card)["tiling"] == 4
    assert score(rubric, [], {}, {}).total is None


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_measure_that_is_not_finite_is_refused(value: float) -> None:
    with pytest.raises(ValueError) as caught:
        score(small(), [], {"overlap": value}, {})
    assert (
        str(caught.value) == f"measure overlap is {value}: a measure that has nothing to rest on is left out"
    )


# ------------------------------------------------------------------------------------------------- properties

CODES = ["NKR001", "NKR003", "NKR006", "NKR010", "NKR020", "NKR031", "NKR045", "NKR105", "NKR121", "NKR141"]
FINDINGS = st.builds(
    finding,
    code=st.sampled_from([*CODES, "NKR151", "NKR163"]),
    severity=st.sampled_from(Severity),
    dimension=st.sampled_from(Dimension),
    gain_ns=st.one_of(st.none(), st.floats(0, 2000)),
    workload=st.sampled_from(["a", "b", "b, a"]),
)
MEASURES = st.fixed_dictionaries(
    {}, optional={name: st.floats(0, 1) for name in tables.measures() if name != "reload_factor"}
)
PREDICTED = {"a": 1000.0, "b": 10.0}


def at_most(after: float | None, before: float | None) -> bool:
    """No score rises; one that was not there may appear."""
    return before is None or (after is not None and after <= before + 1e-12)


@settings(max_examples=150, deadline=None)
@given(st.lists(FINDINGS, max_size=5), FINDINGS, MEASURES)
def test_another_finding_never_raises_a_score(
    findings: list[Finding], one: Finding, measures: dict[str, float]
) -> None:
    before = score(load(), findings, measures, {}, PREDICTED)
    after = score(load(), [*findings, one], measures, {}, PREDICTED)
    assert at_most(after.total, before.total) and at_most(after.uncapped, before.uncapped)
    assert at_most(after.cap, before.cap)
    for old, new in zip(before.dimensions, after.dimensions, strict=True):
        assert at_most(new.score, old.score)
    for key, old_item in by_id(before).items():
        assert at_most(by_id(after)[key].level, old_item.level)


@settings(max_examples=100, deadline=None)
@given(st.lists(FINDINGS, max_size=6), MEASURES, st.randoms(use_true_random=False))
def test_the_order_of_findings_does_not_matter(
    findings: list[Finding], measures: dict[str, float], chance: random.Random
) -> None:
    shuffled = list(findings)
    chance.shuffle(shuffled)
    one, other = (score(load(), found, measures, {}, PREDICTED) for found in (findings, shuffled))
    assert (one.total, one.uncapped, one.cap, one.capped_by) == (
        other.total,
        other.uncapped,
        other.cap,
        other.capped_by,
    )
    assert scores(one) == scores(other)


@settings(max_examples=100, deadline=None)
@given(st.lists(FINDINGS, max_size=4), MEASURES, st.floats(0.01, 100))
def test_only_the_ratio_of_weights_matters(
    findings: list[Finding], measures: dict[str, float], scale: float
) -> None:
    rubric = load()
    scaled = rubric.model_copy(
        update={
            "dimensions": {
                key: item.model_copy(update={"weight": item.weight * scale})
                for key, item in rubric.dimensions.items()
            },
            "criteria": {
                key: item.model_copy(update={"weight": item.weight * scale})
                for key, item in rubric.criteria.items()
            },
        }
    )
    one, other = (score(item, findings, measures, {}) for item in (rubric, scaled))
    assert (one.total is None) == (other.total is None)
    if one.total is not None:
        assert other.total == pytest.approx(one.total, abs=1e-9)


@settings(max_examples=100, deadline=None)
@given(st.lists(FINDINGS, max_size=5), MEASURES)
def test_caps_hold(findings: list[Finding], measures: dict[str, float]) -> None:
    card = score(load(), findings, measures, {})
    blocking = {item.code for item in findings if item.severity is Severity.blocker}
    if not blocking:
        assert card.cap is None and card.total == card.uncapped
    else:
        wanted = 0 if "NKR006" in blocking else 25
        assert card.cap == wanted and card.total is not None and card.total <= wanted
        assert set(card.capped_by) == ({"NKR006"} if wanted == 0 else blocking)
    for item in card.dimensions:
        levels = [one.level for one in item.criteria if one.level is not None]
        assert (item.score is None) == (not levels)
        assert item.score is None or min(levels) <= item.score <= max(levels)


# ------------------------------------------------------------------------------------------------- rules by code


@pytest.mark.parametrize(
    ("patterns", "code", "expected"),
    [
        (["NKR140"], "NKR140", True),
        (["NKR140"], "NKR141", False),
        (["NKR140-NKR149"], "NKR140", True),
        (["NKR140-NKR149"], "NKR149", True),
        (["NKR140-NKR149"], "NKR150", False),
        (["*"], "NKR150", True),
        ([], "NKR150", False),
    ],
)
def test_patterns(patterns: list[str], code: str, expected: bool) -> None:
    assert codes.matches(patterns, code) is expected


# -------------------------------------------------------------------------------------------------- task rubrics


def extended(text: str) -> Rubric:
    return parse(tomllib.loads('extends = "default"\nname = "own"\n' + text), "own.toml")


def test_a_task_rubric_changes_weights_and_keeps_the_rest() -> None:
    rubric = extended("[dimensions.tiling]\nweight = 30\n[criteria.tiling.array]\nweight = 9\n")
    assert rubric.dimensions[Dimension.tiling].weight == 30
    assert rubric.dimensions[Dimension.tiling].about == load().dimensions[Dimension.tiling].about
    old, new = load().criteria["tiling.array"], rubric.criteria["tiling.array"]
    assert new == old.model_copy(update={"weight": 9})
    assert {key: item for key, item in rubric.criteria.items() if key != "tiling.array"} == {
        key: item for key, item in load().criteria.items() if key != "tiling.array"
    }


def test_a_task_rubric_adds_replaces_and_drops_criteria() -> None:
    rubric = extended(
        """
drop = ["migration.semantics", "migration.mapping"]
[criteria.tiling.tail]
title = "Tail"
weight = 1
unassessed = "to be judged by a reviewer"
[criteria.tiling.array]
measures = [{ name = "pe_filled", at = { 4 = 0.5 } }]
[criteria.claims.method]
needs = ["workloads_timed"]
[criteria.tiling.free]
unassessed = "to be judged by a reviewer"
"""
    )
    assert not rubric.of(Dimension.migration)
    assert rubric.criteria["tiling.tail"].unassessed == "to be judged by a reviewer"
    card = score(rubric, [], {**FULL, "pe_filled": 0.6}, {})
    assert by_id(card)["tiling.array"].level == 4
    assert by_id(card)["claims.method"].level == 4
    assert by_id(card)["tiling.free"].reason == "to be judged by a reviewer"
    assert Dimension.migration not in {item.dimension for item in card.dimensions}


def test_a_task_folder_names_its_rubric_or_holds_one(tmp_path: Path) -> None:
    assert of_task(tmp_path, None) == load()
    (tmp_path / "rubric.toml").write_text('extends = "default"\nname = "held"\n')
    assert of_task(tmp_path, None).name == "held"
    (tmp_path / "other.toml").write_text(SMALL)
    assert of_task(tmp_path, "other.toml").name == "small"


HEAD = 'name = "x"\n[[caps]]\ntotal = 25\nrules = ["*"]\nwhy = "w"\n[dimensions.tiling]\nweight = 1\n'
ONE = '[criteria.tiling.a]\ntitle = "t"\nweight = 1\nneeds = ["workloads_traced"]\n'
FIVE = 'levels = ["0", "1", "2", "3", "4"]\n'
WHOLE = HEAD + ONE + FIVE


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        (
            "name = 'x'\n",
            [
                "caps: missing; expected an array of tables [[caps]] with total, rules and why",
                "criteria: missing; expected a table for each criterion, such as [criteria.tiling.partitions]",
            ],
        ),
        (
            WHOLE.replace("title", "titel"),
            [
                "criteria.tiling.a.title: missing; expected a few words",
                "criteria.tiling.a.titel: unknown key; did you mean 'title'?",
            ],
        ),
        (
            WHOLE.replace("[dimensions.tiling]", "[dimensions.tilng]"),
            ["dimensions.tilng: 'tilng' is no dimension; did you mean 'tiling'?"],
        ),
        (
            WHOLE + "[criteria.tilng.b]\n",
            [
                "criteria.tilng: 'tilng' is no dimension; did you mean 'tiling'?",
                "criteria.tilng.b.title: missing; expected a few words",
                "criteria.tilng.b.weight: missing; expected a finite number above 0",
            ],
        ),
        (
            WHOLE.replace("tiling.a]", 'tiling."a b"]'),
            ["criteria.tiling.a b: got 'a b'; expected a name of letters, digits, '-' and '_'"],
        ),
        (
            WHOLE.replace("weight = 1\nneeds", "weight = 0\nneeds"),
            ["criteria.tiling.a.weight: got 0; expected a finite number above 0"],
        ),
        (
            WHOLE.replace("weight = 1\nneeds", "weight = true\nneeds"),
            ["criteria.tiling.a.weight: got true; expected a finite number above 0"],
        ),
        (
            WHOLE + 'rules = ["NKR14"]\n',
            [
                "criteria.tiling.a.rules[0]: got 'NKR14'; expected a code 'NKR140', a range 'NKR140-NKR149', or '*'"
            ],
        ),
        (
            WHOLE + 'rules = ["NKR149-NKR140"]\n',
            ["criteria.tiling.a.rules[0]: got 'NKR149-NKR140'; expected the lower code first"],
        ),
        (
            WHOLE + 'rules = ["NKR999"]\n',
            [
                "criteria.tiling.a.rules[0]: there is no rule NKR999; expected one that `nkireview rules` lists"
            ],
        ),
        (
            WHOLE.replace("workloads_traced", "workload_traced"),
            [
                "criteria.tiling.a.needs[0]: there is no measure 'workload_traced'; did you mean 'workloads_traced'?"
            ],
        ),
        (
            WHOLE + 'measures = [{ name = "pe_fill", at = { 4 = 0.9 } }]\n',
            ["criteria.tiling.a.measures[0].name: there is no measure 'pe_fill'; did you mean 'pe_filled'?"],
        ),
        (
            WHOLE + 'measures = [{ name = "pe_filled", at = { 5 = 0.9 } }]\n',
            ["criteria.tiling.a.measures[0].at: '5' is no level; expected 0 to 4"],
        ),
        (
            WHOLE + 'measures = [{ name = "pe_filled", at = { 4 = 0.4, 3 = 0.7 } }]\n',
            [
                "criteria.tiling.a.measures[0]: level 4 is at 0.4 and level 3 at 0.7; "
                "expected bounds that rise with the level, as higher is better"
            ],
        ),
        (
            WHOLE + 'measures = [{ name = "reload_factor", at = { 4 = 2.0, 3 = 1.5 } }]\n',
            [
                "criteria.tiling.a.measures[0]: level 4 is at 2 and level 3 at 1.5; "
                "expected bounds that fall with the level, as lower is better"
            ],
        ),
        (
            WHOLE + 'measures = [{ name = "pe_filled", at = { 3 = 0.7 }, otherwise = 3 }]\n',
            ["criteria.tiling.a.measures[0]: otherwise is 3; expected a level below the lowest bound's, 3"],
        ),
        (
            WHOLE + 'measures = [{ name = "pe_filled", at = { 3 = "high" } }]\n',
            [
                "criteria.tiling.a.measures[0].at[3]: got 'high'; "
                "expected a table of bounds by level, such as { 4 = 0.9, 3 = 0.7, 2 = 0.4 }"
            ],
        ),
        (
            WHOLE + 'measures = [{ name = "overlap", at = {4=1} }, { name = "overlap", at = {4=1} }]\n',
            ["criteria.tiling.a: measures: one measure is given twice; expected each once"],
        ),
        (
            HEAD + ONE + 'levels = ["a", "b"]\n',
            ["criteria.tiling.a: levels: 2 sentences; expected 5, for levels 0 to 4"],
        ),
        (
            HEAD + ONE.replace('needs = ["workloads_traced"]', "") + FIVE,
            [
                "criteria.tiling.a: expected needs or measures, or else unassessed, the reason why nothing assesses it"
            ],
        ),
        (
            WHOLE + 'unassessed = "why"\n',
            [
                "criteria.tiling.a: expected needs or measures, or else unassessed, the reason why nothing assesses it"
            ],
        ),
        (
            WHOLE.replace("total = 25", "total = 100"),
            ["caps[0].total: got 100; expected points of 100, at least 0 and below 100"],
        ),
        (
            WHOLE.replace('rules = ["*"]\nwhy', 'rules = ["NKR020"]\nwhy'),
            ["caps: none is for every rule; expected one with rules = ['*'], as a blocker always caps"],
        ),
        (
            WHOLE + "penalty = 5\n",
            ["criteria: none that can be scored; expected at least one that is no penalty"],
        ),
        (
            WHOLE + "rules = ['*']\n" + (ONE + FIVE).replace("tiling.a", "tiling.b") + "rules = ['*']\n",
            ["criteria.tiling.b.rules: '*' is taken by tiling.a; expected it once in a dimension"],
        ),
        (
            WHOLE + (ONE + FIVE).replace("tiling.a", "memory.b"),
            ["dimensions.memory: missing; expected its weight, as it has criteria"],
        ),
        (
            WHOLE + "[effects]\nmajor = 3\n",
            ["effects: minor caps at 2 and major at 3; expected minor no lower"],
        ),
        (
            WHOLE + "[effects]\nstake = { 1 = 0.1, 2 = 0.3 }\n",
            [
                "effects: stake is 0.1 at level 1 and 0.3 at level 2; expected shares that fall as the level rises"
            ],
        ),
        (
            WHOLE + "[effects]\nblocker = 1\n",
            ["effects.blocker: unknown key; expected one of major, minor, stake"],
        ),
        (
            "drop = ['tiling.a']\n" + WHOLE,
            ["drop: nothing to drop from; expected extends = 'default' with it"],
        ),
        ("extends = 'defaults'\n" + WHOLE, ["extends: got 'defaults'; expected 'default'"]),
        (
            "extends = 'default'\ndrop = ['tiling.arry']\nname = 'x'\n",
            ["drop: the default rubric has no criterion 'tiling.arry'; did you mean 'tiling.array'?"],
        ),
        ("extends = 'default'\n", ["name: missing; expected a name"]),
        (
            "extends = 'default'\nname = 'x'\ncriteria = 3\n",
            ["criteria: got 3; expected a table for each criterion, such as [criteria.tiling.partitions]"],
        ),
        (
            "extends = 'default'\nname = 'x'\n[criteria.tiling.new]\nweight = 2\n",
            ["criteria.tiling.new.title: missing; expected a few words"],
        ),
    ],
)
def test_each_mistake_has_its_sentence(text: str, problems: list[str]) -> None:
    with pytest.raises(RubricError) as caught:
        parse(tomllib.loads(text), "rubric.toml")
    assert caught.value.problems == tuple(f"rubric.toml: {problem}" for problem in problems)
    assert str(caught.value) == "\n".join(caught.value.problems)


def test_several_mistakes_are_told_at_once() -> None:
    text = WHOLE.replace("title", "titel").replace("total = 25", "total = -1")
    with pytest.raises(RubricError) as caught:
        parse(tomllib.loads(text), "rubric.toml")
    assert len(caught.value.problems) == 3


def test_mistakes_of_an_extension_are_told_with_those_of_its_tables() -> None:
    text = """
extends = "default"
name = "own"
drop = ["tiling.arry", "migration.mapping", "migration.mapping"]
[dimensions.speed]
weight = 3
[dimensions.dma]
weight = -1
[criteria.dma.runs]
measures = [{ name = "dma_runs_share", at = { 4 = 0.9 } }]
[criteria.migration.mapping]
weight = 1
"""
    with pytest.raises(RubricError) as caught:
        parse(tomllib.loads(text), "rubric.toml")
    assert caught.value.problems == (
        "rubric.toml: drop: the default rubric has no criterion 'tiling.arry'; did you mean 'tiling.array'?",
        "rubric.toml: dimensions.dma.weight: got -1; expected a finite number above 0",
        f"rubric.toml: dimensions.speed: 'speed' is no dimension; expected one of {', '.join(Dimension.__members__)}",
        "rubric.toml: criteria.dma.runs.measures[0].name: there is no measure 'dma_runs_share'; "
        "did you mean 'dma_run_share'?",
        # what was dropped is gone, so that this table would have to be a whole criterion
        "rubric.toml: criteria.migration.mapping.title: missing; expected a few words",
    )


def test_mistakes_of_an_extension_are_told_with_those_between_its_tables() -> None:
    text = "extends = 'default'\nname = 'own'\ndrop = ['x']\n[criteria.sdk.release]\nrules = ['*']\n"
    with pytest.raises(RubricError) as caught:
        parse(tomllib.loads(text), "rubric.toml")
    first, second = caught.value.problems
    assert first.startswith("rubric.toml: drop: the default rubric has no criterion 'x'; expected one of ")
    assert second == (
        "rubric.toml: criteria.sdk.language.rules: '*' is taken by sdk.release; expected it once in a dimension"
    )


@pytest.mark.parametrize("wrong", ["extends = 'defaults'", "extends = 'default'\ndrop = 'tiling.array'"])
def test_a_misspelled_extension_is_still_one(wrong: str) -> None:
    text = f"{wrong}\nname = 'own'\n[dimensions.dma]\nweight = -1\n"
    with pytest.raises(RubricError) as caught:
        parse(tomllib.loads(text), "rubric.toml")
    first, second = caught.value.problems
    assert "expected" in first
    assert second == "rubric.toml: dimensions.dma.weight: got -1; expected a finite number above 0"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    file = tmp_path / "rubric.toml"
    with pytest.raises(RubricError) as caught:
        load(file)
    assert str(caught.value) == f"{file}: it cannot be read (No such file or directory); expected a TOML file"
    file.write_bytes(b"name = '\xff'")
    with pytest.raises(RubricError) as caught:
        load(file)
    assert str(caught.value) == f"{file}: byte 8 is not UTF-8; expected a TOML file in UTF-8"
    file.write_text("name")
    with pytest.raises(RubricError) as caught:
        load(file)
    assert str(caught.value).startswith(f"{file}: this is no valid TOML: ")


# ------------------------------------------------------------------------------------------------ the JSON form


def test_the_default_rubric_survives_the_json_form_and_a_toml_file() -> None:
    entries = json.loads(json.dumps(export_rubric(load())))
    imported = import_rubric(entries, "x.json")
    assert export_rubric(imported) == entries
    assert list(imported.criteria) == list(load().criteria)
    for rubric in (load(), imported):
        assert parse(tomllib.loads(to_toml(rubric)), "x.toml") == rubric
    assert sum(item["points"] for item in entries if item["points"] > 0) == pytest.approx(100, abs=0.01)
    assert [item["points"] for item in entries if item["points"] < 0] == [-100, -75]
    array = next(item for item in entries if "id: tiling.array" in item["tags"])
    # 6 of 100 for tiling, of which it has 2 parts of 6
    assert array["points"] == pytest.approx(6 * 2 / 6, abs=1e-4)
    assert array["tags"][:5] == [
        "id: tiling.array",
        "dimension: tiling",
        "rules: NKR142, NKR143",
        "needs: workloads_timed",
        "measure: pe_idle; 4 at 0.1; 3 at 0.25; 2 at 0.45; 1 at 0.7; otherwise 0",
    ]
    assert array["tags"][-1] == "level 4: The matmuls fill the PE array, or the time is not theirs."


@settings(max_examples=50, deadline=None)
@given(st.lists(FINDINGS, max_size=5), MEASURES)
def test_the_json_form_scores_as_the_rubric_it_came_from(
    findings: list[Finding], measures: dict[str, float]
) -> None:
    imported = import_rubric(export_rubric(load()), "x.json")
    one, other = (score(item, findings, measures, {}) for item in (load(), imported))
    assert (one.total is None) == (other.total is None) and one.cap == other.cap
    if one.total is not None:
        assert other.total == pytest.approx(one.total, abs=0.01)
    assert {key: item.level for key, item in by_id(one).items()} == {
        key: item.level for key, item in by_id(other).items()
    }


TEXTS = st.text(min_size=1, max_size=20)
FOREIGN = st.text(max_size=20).filter(lambda tag: ": " not in tag)
TAGS = st.lists(
    st.one_of(
        FOREIGN,
        st.sampled_from(
            ["tiling", "level:example", "axis:accuracy", "dimension:dma", "rules: NKR141", "DMA"]
        ),
    ),
    max_size=4,
)
POINTS = st.one_of(
    st.integers(-100, 100).filter(bool),
    st.floats(1e-3, 1e3, allow_nan=False),
    st.floats(-1e3, -1e-3, allow_nan=False),
)
ENTRIES = st.lists(
    st.fixed_dictionaries({"criterion": TEXTS, "points": POINTS, "tags": TAGS}), min_size=1, max_size=8
).filter(lambda entries: any(entry["points"] > 0 for entry in entries))


@settings(max_examples=200, deadline=None)
@given(ENTRIES)
def test_import_and_export_lose_nothing_that_the_form_holds(entries: list[dict[str, Any]]) -> None:
    rubric = import_rubric(entries, "x.json")
    back = export_rubric(rubric)
    assert back == entries
    assert [type(item["points"]) for item in back] == [type(item["points"]) for item in entries]
    grouped = parse(tomllib.loads(to_toml(rubric)), "x.toml")
    assert grouped == rubric
    filled = export_scorecard(rubric, score(rubric, [], {}, {}))
    assert [{key: item[key] for key in entries[0]} for item in filled] == entries
    assert import_rubric(filled, "x.json") == rubric


def test_an_imported_criterion_is_for_a_reviewer() -> None:
    entries = [
        {"criterion": "Names its mask value", "points": 3, "tags": ["Numerical Validation", "axis:x"]},
        {"criterion": "Uses every partition", "points": 1, "tags": ["measure: partitions_used; 4 at 0.9"]},
        {"criterion": "Tiles well", "points": 1, "tags": ["dimension: tiling", "rules: NKR140-NKR149"]},
        {"criterion": "Prints debug output", "points": -2, "tags": []},
    ]
    rubric = import_rubric(entries, "x.json")
    assert list(rubric.criteria) == [
        "numerics.entry-0",
        "correctness.entry-1",
        "tiling.entry-2",
        "correctness.entry-3",
    ]
    assert rubric.caps == load().caps and rubric.effects == load().effects
    card = score(rubric, [], {**SEEN, "partitions_used": 0.95}, {})
    found = by_id(card)
    assert found["numerics.entry-0"].reason == found["correctness.entry-3"].reason == BY_REVIEWER
    assert found["correctness.entry-1"].level == found["tiling.entry-2"].level == 4
    # 2 of 5 positive points
    assert found["correctness.entry-3"].penalty == pytest.approx(40)
    assert card.total == 100


def test_a_filled_scorecard() -> None:
    entries = [
        {"criterion": "Partitions", "points": 8, "tags": ["measure: partitions_used; 4 at 0.9; 2 at 0.5"]},
        {"criterion": "Reuse", "points": 4, "tags": ["measure: reload_factor; 3 at 2; otherwise 1"]},
        {"criterion": "Short runs", "points": -4, "tags": ["measure: dma_run_share; 4 at 0.9; 1 at 0.1"]},
        {"criterion": "Readable", "points": 2, "tags": []},
        {"criterion": "Blocked", "points": -75, "tags": ["cap: 25", "rules: *"]},
    ]
    rubric = import_rubric(entries, "x.json")
    measures = {"partitions_used": 0.6, "reload_factor": 1.5, "dma_run_share": 0.2}
    card = score(rubric, [], measures, {})
    filled = [
        {key: item.get(key) for key in ("level", "met", "score", "reason")}
        for item in export_scorecard(rubric, card)
    ]
    assert filled == [
        {"level": 2, "met": False, "score": 4.0, "reason": None},
        {"level": 3, "met": True, "score": 3.0, "reason": None},
        {"level": 1, "met": True, "score": -3.0, "reason": None},
        {"level": None, "met": None, "score": None, "reason": BY_REVIEWER},
        {"level": None, "met": False, "score": 0.0, "reason": None},
    ]
    # all in one dimension: levels 2 and 3 weighted 8 and 4 of 4, less 4 of 14 points times 3/4
    assert card.total == pytest.approx(100 * (8 * 2 / 4 + 4 * 3 / 4) / 12 - 100 * 4 / 14 * 3 / 4)
    blocked = export_scorecard(rubric, score(rubric, [finding("NKR003", Severity.blocker)], measures, {}))
    assert (blocked[-1]["met"], blocked[-1]["score"]) == (True, -75)


def test_a_scorecard_of_another_rubric_is_refused() -> None:
    with pytest.raises(RubricError) as caught:
        export_scorecard(load(), score(small(), [], {}, {}))
    assert str(caught.value) == "the scorecard is of rubric 'small'; expected one of 'default'"


def entry(**keys: Any) -> dict[str, Any]:
    return {"criterion": "c", "points": 1, "tags": [], **keys}


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({}, "expected a list of objects with the keys criterion, points, tags"),
        ([], "expected a list of objects with the keys criterion, points, tags"),
        ([3], "entry 0: got 3; expected an object with the keys criterion, points, tags"),
        ([{"criterion": "c", "tags": []}], "entry 0: points: missing"),
        ([entry(weight=1)], "entry 0: weight: unknown key; expected criterion, points, tags"),
        ([entry(criterion="")], "entry 0: criterion: got ''; expected a sentence"),
        (
            [entry(points=0)],
            "entry 0: points: got 0; expected a number of 1e-06 to 1e+06, or the negative of one",
        ),
        (
            [entry(points="5")],
            "entry 0: points: got '5'; expected a number of 1e-06 to 1e+06, or the negative of one",
        ),
        ([entry(), entry(tags=[1])], "entry 1: tags: got [1]; expected a list of strings"),
        ([entry(points=-1)], "every entry is a penalty; expected one with points above 0"),
        (
            [entry(tags=["rules: NKR14"])],
            "entry 0: rules.0: got 'NKR14'; expected a code 'NKR140', a range 'NKR140-NKR149', or '*'",
        ),
        (
            [entry(tags=["measure: pe_filled, 4 at 0.9"])],
            "entry 0: name: there is no measure 'pe_filled, 4 at 0.9'; did you mean 'pe_filled'?",
        ),
        (
            [entry(tags=["measure: pe_filled; 0.9"])],
            "entry 0: measure: got 'pe_filled; 0.9'; expected such as 'pe_filled; 4 at 0.9; otherwise 1'",
        ),
        ([entry(tags=["measure: pe_filled; 4 at x"])], "entry 0: measure: got 'x'; expected a number"),
        ([entry(tags=["cap: low", "rules: *"])], "entry 0: cap: got 'low'; expected a number"),
        (
            [entry(tags=["effects: major"])],
            "entry 0: effects: got 'major'; expected such as 'major 1, minor 3'",
        ),
        (
            [entry(tags=["id: sdk.a"]), entry(tags=["id: sdk.a"])],
            "entry 1: id sdk.a is taken by an entry before it; expected each once",
        ),
        (
            [entry(), entry(points=-90, tags=["cap: 10", "rules: NKR020"])],
            "caps: none is for every rule; expected one with rules = ['*'], as a blocker always caps",
        ),
    ],
)
def test_each_mistake_of_the_json_form_has_its_sentence(data: object, problem: str) -> None:
    with pytest.raises(RubricError) as caught:
        import_rubric(data, "x.json")
    assert caught.value.problems == (f"x.json: {problem}",)


def test_a_text_that_is_no_json() -> None:
    with pytest.raises(RubricError) as caught:
        import_text("[", "x.json")
    assert str(caught.value) == "x.json: this is no valid JSON: Expecting value: line 1 column 2 (char 1)"


# ---------------------------------------------------------------------------------------------------- strengths


def test_strengths_are_said_with_their_figures_where_nothing_speaks_against_them() -> None:
    measures = {"pe_filled": 0.994, "worst_reload": 1.0, "overlap": 0.5}
    said = ("Each input is loaded from HBM once (1.00 times at most).", "99% of the PE array is filled")
    found = strengths(measures, [])
    assert len(found) == 2 and found[0] == said[0] and found[1].startswith(said[1])
    major = finding("NKR141", Severity.major, Dimension.tiling)
    assert strengths(measures, [major]) == found[:1]
    assert strengths(measures, [major.model_copy(update={"severity": Severity.note})]) == found
    assert strengths({"worst_reload": 1.5, "reload_factor": 1.0}, []) == () == strengths({}, [])


@given(st.sampled_from(list(tables.strengths())), st.floats(-2, 2))
def test_a_strength_is_said_only_from_its_bound_on(row: tables.Strength, offset: float) -> None:
    better = 1 if tables.measures()[row.measure].direction == "higher" else -1
    said = strengths({row.measure: row.at + better * offset}, [])
    assert bool(said) == (offset >= 0) or abs(offset) < 1e-9


# ----------------------------------------------------------------------------------------------------- commands


def run(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(main, ["rubric", *arguments])
    return done.exit_code, done.stdout, done.stderr


def test_show_export_and_import(tmp_path: Path) -> None:
    code, text, _ = run("show")
    assert code == 0 and "tiling.array: PE array (weight 2; NKR142; NKR143; pe_idle)" in text
    assert "A blocker of NKR006, NKR055 caps the total at 0. The kernel deceives the review." in text
    code, text, _ = run("show", "--json")
    assert code == 0 and Rubric.model_validate_json(text) == load()
    code, text, _ = run("export")
    assert code == 0 and json.loads(text) == export_rubric(load())
    file = tmp_path / "criteria.json"
    file.write_text(text)
    code, text, _ = run("import", str(file))
    assert code == 0 and parse(tomllib.loads(text), "x") == import_text(file.read_text(), str(file))
    file.write_text("{}")
    assert run("import", str(file)) == (
        2,
        "",
        f"nkireview: {file}: expected a list of objects with the keys criterion, points, tags\n",
    )


def test_the_rubric_of_a_task(tmp_path: Path) -> None:
    for file in ("task.toml", "reference.py"):
        (tmp_path / file).write_bytes((ROOT / "examples" / "softmax" / file).read_bytes())
    (tmp_path / "rubric.toml").write_text(SMALL)
    code, text, _ = run("show", "--task", str(tmp_path))
    assert code == 0 and text.startswith("Rubric small.")
    (tmp_path / "rubric.toml").write_text(SMALL.replace('title = "Array"', 'titel = "Array"'))
    code, text, error = run("show", "--task", str(tmp_path))
    where = f"{tmp_path / 'rubric.toml'}: criteria.tiling.array"
    assert (code, text) == (2, "")
    assert error == (
        f"nkireview: {where}.title: missing; expected a few words\n"
        f"{where}.titel: unknown key; did you mean 'title'?\n"
    )


def test_the_page_is_current() -> None:
    spec = importlib.util.spec_from_file_location("rubric_page", ROOT / "tools" / "rubric_page.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = module.PAGE.read_text(encoding="utf-8")
    assert text == module.page(text), "run python tools/rubric_page.py"


def test_the_examples_of_the_page_are_rubrics() -> None:
    text = (ROOT / "docs" / "rubric.md").read_text(encoding="utf-8")
    (toml,) = [part.split("```", 1)[0] for part in text.split("```toml\n")[1:]]
    assert parse(tomllib.loads(toml), "docs").name == "decode-attention"
    (form,) = [part.split("```", 1)[0] for part in text.split("```json\n")[1:]]
    assert len(import_rubric(json.loads(form), "docs").criteria) == 2


def test_every_key_of_a_criterion_is_on_the_page() -> None:
    text = (ROOT / "docs" / "rubric.md").read_text(encoding="utf-8")
    assert all(f"`{key}`" in text for key in Criterion.model_fields)
