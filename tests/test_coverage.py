"""How much of the language is supported, counted from the tests' own markers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from nkireview.cli import main
from nkireview.coverage import proofs
from nkireview.coverage.names import names
from nkireview.coverage.support import coverage

TESTS = Path(__file__).resolve().parent
SHARE = 98.0


def test_at_least_98_percent_of_each_area_is_supported_and_no_constraint_is_loose() -> None:
    found = coverage(proofs.proofs(TESTS))
    assert found.loose == ()
    for share in found.shares:
        assert share.percent >= SHARE, [each.name for each in found.names if each.missing]


def test_a_name_without_a_test_is_not_supported() -> None:
    found = coverage({})
    assert all("a test" in each.missing for each in found.names)
    assert [share.supported for share in found.shares] == [0, 0]


def test_every_name_is_listed_once() -> None:
    listed = [name.name for name in names()]
    assert len(listed) == len(set(listed))


def test_the_command_counts_a_folder_of_tests(tmp_path: Path) -> None:
    text = 'import pytest\n\n@pytest.mark.oracle("nisa.iota")\ndef test_it():\n    pass\n'
    (tmp_path / "test_one.py").write_text(text, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = oracle\n", encoding="utf-8")
    result = CliRunner().invoke(main, ["coverage", "--tests", str(tmp_path), "--json"])
    assert result.exit_code == 0
    told = json.loads(result.output)
    assert [each["name"] for each in told["names"] if each["supported"]] == ["nisa.iota"]
    assert told["shares"]["isa"]["supported"] == 1
    assert CliRunner().invoke(main, ["coverage", "--tests", str(tmp_path), "--at-least", "98"]).exit_code == 1


@pytest.mark.parametrize("folder", ["nowhere"])
def test_a_folder_that_is_not_there_gets_one_sentence(tmp_path: Path, folder: str) -> None:
    result = CliRunner().invoke(main, ["coverage", "--tests", str(tmp_path / folder)])
    assert result.exit_code == 2
    assert result.output.strip() == (
        f"nkireview: {tmp_path / folder} is no folder of tests; run this in a checkout, or name one with --tests"
    )


def test_tests_that_cannot_be_collected_get_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "test_broken.py").write_text("import nothing_like_it\n", encoding="utf-8")
    with pytest.raises(proofs.ProofError, match=f"^pytest cannot collect {tmp_path}: "):
        proofs.proofs(tmp_path)
