"""`nkireview rules`: the list, its filters, one rule with its examples, and what is refused."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from nkireview.cli import main
from nkireview.report import catalogue
from nkireview.rules.catalogue import KINDS, example, nearest, rule_of
from nkireview.rules.finding import Dimension, Severity
from nkireview.rules.registry import RULES


def call(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, ["rules", *arguments])
    return result.exit_code, result.stdout, result.stderr


def test_the_list_holds_every_rule_by_dimension() -> None:
    code, text, _ = call()
    assert code == 0
    for rule in RULES:
        (line,) = [line for line in text.splitlines() if line.strip().startswith(rule.code)]
        assert line.split()[1:3] == [rule.severity.value, rule.evidence.value] and line.rstrip().endswith(
            rule.title
        )
    heads = [line for line in text.splitlines() if line in {item.value for item in Dimension}]
    assert heads == [item.value for item in Dimension if any(rule.dimension is item for rule in RULES)]
    assert f"{len(RULES)} rules; nkireview rules CODE explains one of them" in text


def test_filters() -> None:
    _, text, _ = call("--dimension", "precision", "--severity", "major")
    wanted = [r.code for r in RULES if r.dimension is Dimension.precision and r.severity is Severity.major]
    assert [line.split()[0] for line in text.splitlines() if line.strip().startswith("NKR")] == wanted
    assert "NKR070" in wanted


def test_filters_that_leave_nothing() -> None:
    code, text, _ = call("--dimension", "benchmark claims")
    assert code == 0 and text.startswith("0 rules;")


def test_one_rule() -> None:
    code, text, _ = call("nkr012")
    rule = rule_of("NKR012")
    assert code == 0
    assert text.startswith("NKR012  A matmul accumulates onto PSUM that no matmul has started\n")
    assert "blocker, memory hierarchy, rests on what is seen when the program is executed" in text
    for part in (rule.explanation, rule.change, rule.citation, "NKR020, NKR021"):
        assert part in text
    assert "def bad(a, b):" in text and "def good(a, b):" in text
    assert "def inputs" not in text and "def reference" not in text and "\x1b[" not in text


def test_examples_in_two_files_are_shown_one_after_the_other() -> None:
    _, text, _ = call("NKR055")
    assert text.index("\nBad\n") < text.index("import gc") < text.index("\nGood\n")


def test_targets_and_releases_are_named_where_they_matter() -> None:
    assert "NeuronCore-v4" in call("NKR072")[1]
    assert "Releases\nfrom 0.6" in call("NKR024")[1] and "Releases\nbefore 0.2" in call("NKR009")[1]
    assert "Targets" not in call("NKR012")[1] and "Releases" not in call("NKR012")[1]


def test_json_of_the_list() -> None:
    found = json.loads(call("--json")[1])
    assert sorted(item["code"] for item in found) == [rule.code for rule in RULES]
    (row,) = [item for item in found if item["code"] == "NKR072"]
    assert row["generations"] == ["v4"] and row["since"] is None and row["severity"] == "major"


def test_json_of_one_rule() -> None:
    found = json.loads(call("NKR046", "--json")[1])
    assert found["since"] is None and "def bad(x):" in found["bad"] and "def bad" not in found["good"]


@pytest.mark.parametrize(
    ("asked", "near"),
    [
        ("NKR999", RULES[-1].code),
        ("NKR035", "NKR034"),
        ("70", "NKR070"),
        ("nonsense", "NKR001"),
        ("NKR0701", None),
    ],
)
def test_an_unknown_code(asked: str, near: str | None) -> None:
    code, text, error = call(asked)
    assert code == 2 and text == ""
    wanted = near or nearest(asked)
    assert (
        error
        == f"nkireview: there is no rule {asked}; the nearest is {wanted}, and nkireview rules lists all\n"
    )


def test_a_code_and_a_filter() -> None:
    code, _, error = call("NKR001", "--severity", "note")
    assert code == 2
    assert error == "nkireview: give either CODE, or --dimension and --severity, not both\n"


def test_every_rule_says_what_to_do_and_most_name_a_source() -> None:
    # what to do about time depends on the program, so that those rules say it in each finding
    for rule in RULES:
        assert len(rule.change) > 20 or rule.code >= "NKR100", rule.code
    assert sum(bool(rule.citation) for rule in RULES) >= 0.7 * len(RULES)


def test_there_are_enough_rules_over_programs() -> None:
    assert len(RULES) >= 40
    assert sum(rule.evidence.value != "source" for rule in RULES) >= 30


def test_kinds_of_examples() -> None:
    assert example("NKR998", "bad") is None
    with pytest.raises(ValueError, match="'ugly' is no kind of example: expected one of bad, good"):
        example("NKR001", "ugly")
    assert set(KINDS) == {"bad", "good"}


def test_facts_leave_out_what_there_is_not() -> None:
    names = [name for name, _ in catalogue.facts(rule_of("NKR021"))]
    assert names == ["Why", "Change"]
