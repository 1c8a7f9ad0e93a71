"""Forms for programs and for pasting: review.json, review.md, SARIF, annotations, agent.json."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pydantic
import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token
from report_kit import (
    NASTY,
    SAMPLES,
    SOURCE,
    bad,
    early,
    finding,
    hostile,
    middling,
    minor,
    not_reviewed,
    note,
    record,
    unexecuted,
    wrong_finding,
)
from sarif_pydantic import Sarif

from nkireview.record import ReviewRecord
from nkireview.report import machine
from nkireview.report.agent import MOST as MOST_FOR_AGENTS
from nkireview.report.agent import agent
from nkireview.report.github import MOST as MOST_ANNOTATIONS
from nkireview.report.github import github
from nkireview.report.markdown import code, escape, markdown
from nkireview.report.sarif import sarif
from nkireview.report.schema import FILE, review_schema

DATA = Path(__file__).resolve().parent / "data"
UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]")
every_sample = pytest.mark.parametrize("make", SAMPLES.values(), ids=SAMPLES)


def validate(text: str, schema: Any) -> None:
    kind = jsonschema.validators.validator_for(schema)
    kind.check_schema(schema)
    errors = [f"{error.json_path}: {error.message}" for error in kind(schema).iter_errors(json.loads(text))]
    assert not errors, errors[:3]


# review.json and its schema


def test_the_committed_schema_is_current() -> None:
    current = FILE.read_text(encoding="utf-8") == review_schema()
    assert current, "run python -m nkireview.report.schema"


@every_sample
def test_records_validate_and_come_back(make: Any) -> None:
    text = machine.to_json(make())
    validate(text, json.loads(review_schema()))
    assert text.isascii() and not UNSAFE.search(text)
    assert machine.to_json(ReviewRecord.model_validate_json(text)) == text


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("status",), "fine"),
        (("schema_version",), "one"),
        (("findings", 0, "severity"), "fatal"),
        (("findings", 0, "code"), "X1"),
        (("times", 0, "bound"), "luck"),
        (("runs", 0, "outputs", 0, "figures", "scaled_max"), "large"),
        (("surprise",), 1),
    ],
)
def test_the_schema_refuses_what_is_no_record(path: tuple[Any, ...], value: Any) -> None:
    made = json.loads(machine.to_json(bad()))
    at = made
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    with pytest.raises(AssertionError, match=str(path[-1]) if path[0] != "surprise" else "surprise"):
        validate(json.dumps(made), json.loads(review_schema()))


def test_figures_that_are_not_finite_are_strings() -> None:
    made = json.loads(machine.to_json(bad()))
    assert made["runs"][2]["outputs"][0]["figures"]["scaled_max"] == "NaN"


# every form


def forms(made: ReviewRecord) -> dict[str, str]:
    return {name: machine.form(name, made, {"kernel.py": SOURCE}) for name in machine.FORMS}


@every_sample
def test_no_form_holds_a_control_or_bidirectional_character(make: Any) -> None:
    for name, text in forms(make()).items():
        assert not UNSAFE.search(text), name


def test_the_same_record_gives_the_same_bytes_in_any_process() -> None:
    script = (
        "import hashlib, report_kit\nfrom nkireview.report import machine\n"
        "for name in machine.FORMS:\n"
        "    text = machine.form(name, report_kit.bad(), {'kernel.py': report_kit.SOURCE})\n"
        "    print(name, hashlib.sha256(text.encode()).hexdigest())"
    )
    outputs = set()
    for seed in ("0", "1"):
        call = [sys.executable, "-c", script]
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(DATA.parent)}
        outputs.add(subprocess.run(call, env=environment, capture_output=True, text=True, check=True).stdout)
    assert len(outputs) == 1


# review.md


def tokens(text: str) -> list[Token]:
    """The tokens of a document, with those inside its paragraphs."""
    made = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text)
    return [token for item in made for token in (item, *(item.children or []))]


@every_sample
def test_markdown_holds_no_html_links_or_images(make: Any) -> None:
    kinds = {token.type for token in tokens(markdown(make()))}
    assert not kinds & {"html_inline", "html_block", "link_open", "image", "s_open", "fence", "code_block"}


@every_sample
def test_every_row_of_a_table_has_all_cells(make: Any) -> None:
    text = markdown(make())
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    parsed = [token for token in tokens(text) if token.type in ("tr_open", "th_open", "td_open")]
    # the line of dashes is no row
    assert sum(token.type == "tr_open" for token in parsed) == len(rows) - sum(
        "| --- |" in row for row in rows
    )


def test_escaped_text_reads_as_it_was_written() -> None:
    for text in (
        "# x",
        "1. x",
        "- x",
        "a*b*c",
        "_x_",
        "a|b",
        "<b>&amp;",
        "[x](y)",
        "`x`",
        "\\",
        "> x",
        "$x$",
        "~~x~~",
    ):
        inline = next(token for token in tokens(escape(text)) if token.type == "inline")
        shown = "".join(child.content for child in inline.children or [])
        assert shown == text, text
        assert {child.type for child in inline.children or []} <= {"text", "text_special"}, text


def test_mentions_references_and_addresses_are_code() -> None:
    for text in ("@someone", "#12", "http://example.org/x", "www.example.org", "a@example.org"):
        assert escape(f"see {text} there") == f"see `{text}` there"


def test_code_spans_hold_any_backticks() -> None:
    for text in ("x", "a`b", "``", "`x", "x``y`z"):
        (inline,) = [token for token in tokens(code(text)) if token.type == "inline"]
        (span,) = inline.children or []
        assert (span.type, span.content) == ("code_inline", text)
    assert code("a|b", cell=True) == "`a\\|b`" and code("a|b") == "`a|b`" and code("") == ""


def test_markdown_says_of_a_finding_what_why_change_gain_evidence_and_place() -> None:
    text = markdown(bad())
    part = text.split("### 2. ", 1)[1].split("### 3. ", 1)[0]
    for wanted in (
        "Major: Half of the partitions idle (NKR060)",
        "tiles use 64 of 128 partitions",
        "**Why here:** an engine takes",
        "**Change:** make the row tile 128",
        "**Predicted gain:** 4.10 ms (3.6 to 4.6 ms)",
        "`kernel.py:10`, `kernel.py:11`, 128 times",
        "**Rests on:** traced",
        "tiling-overview.rst:150-163",
    ):
        assert wanted in part, wanted
    assert "**Failing input:** scale-100 inputs, seed 7" in text


def test_markdown_has_its_sections_in_order() -> None:
    heads = re.findall(r"^## (.*)$", markdown(bad()), flags=re.M)
    assert heads == ["Score", "Predicted time", "Correctness", "Findings", "Done well", "Not checked"]
    assert "| migration | not assessed |" in markdown(bad())


def test_markdown_folds_long_lists_to_a_number() -> None:
    places = tuple(f"kernel.py:{at}" for at in range(1, 41))
    text = markdown(record(findings=(finding(places=places), *(note(at) for at in range(30)))))
    assert "`kernel.py:5`, and 35 more places" in text and "kernel.py:6`" not in text
    assert text.count("NKR045") == 8 and "and 22 more in review.json" in text


def test_markdown_of_a_review_that_ended_early() -> None:
    text = markdown(not_reviewed())
    assert "**Not reviewed.**" in text and "Why: the task is void" in text and "## Score" not in text
    assert "the kernel raises: ValueError" in markdown(early())


# SARIF


@every_sample
def test_sarif_validates(make: Any) -> None:
    validate(sarif(make()), json.loads((DATA / "sarif_essential.schema.json").read_text(encoding="utf-8")))


@every_sample
def test_sarif_is_read_by_an_independent_model_of_2_1_0(make: Any) -> None:
    read = Sarif.model_validate_json(sarif(make()))
    assert read.version == "2.1.0" and len(read.runs) == 1


def test_the_independent_model_can_refuse() -> None:
    made = json.loads(sarif(bad()))
    made["runs"][0]["results"][0]["level"] = "fatal"
    with pytest.raises(pydantic.ValidationError):
        Sarif.model_validate(made)


def test_the_sarif_schema_can_refuse() -> None:
    schema = json.loads((DATA / "sarif_essential.schema.json").read_text(encoding="utf-8"))
    for break_it in (
        lambda run: run.pop("tool"),
        lambda run: run["results"][0].update(level="blocker"),
        lambda run: run["results"][0]["locations"][0]["physicalLocation"]["region"].update(startLine=0),
        lambda run: run["results"][0].pop("message"),
        lambda run: run["results"][0].update(rank=101),
    ):
        made = json.loads(sarif(bad()))
        break_it(made["runs"][0])
        with pytest.raises(AssertionError):
            validate(json.dumps(made), schema)


def test_sarif_maps_severities_rules_and_places() -> None:
    (made,) = json.loads(sarif(bad(), {"kernel.py": "kernels/a b/kernel.py"}))["runs"]
    rules = made["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == ["NKR020", "NKR060", "NKR071", "NKR045"]
    assert [result["level"] for result in made["results"][:4]] == ["error", "error", "warning", "note"]
    assert all(rules[result["ruleIndex"]]["id"] == result["ruleId"] for result in made["results"])
    assert "Source: aws-neuron-sdk" in rules[1]["help"]["text"]
    (place,) = made["results"][0]["locations"]
    assert place["physicalLocation"] == {
        "artifactLocation": {"uri": "kernels/a%20b/kernel.py"},
        "region": {"startLine": 12},
    }
    details = made["results"][1]["properties"]
    assert (details["dimension"], details["evidence"], details["predictedGainNs"]) == (
        "tiling",
        "traced",
        4.1e6,
    )
    assert made["results"][0]["properties"]["failingInput"].startswith("scale-100")
    assert made["properties"]["total"] == 38.0


def test_sarif_fingerprints_are_apart_and_survive_new_lines_and_figures() -> None:
    def prints(made: ReviewRecord) -> list[str]:
        (run,) = json.loads(sarif(made))["runs"]
        return [result["fingerprints"]["nkireview/v1"] for result in run["results"]]

    before = prints(bad())
    assert len(set(before)) == len(before)
    moved = finding(message="tiles use 32 of 128 partitions", places=("kernel.py:99",), count=3)
    assert prints(record(findings=(moved,))) == prints(record(findings=(finding(),)))
    other = finding(places=("helper.py:10",))
    assert prints(record(findings=(other,))) != prints(record(findings=(finding(),)))


def test_sarif_of_a_review_that_did_not_happen_says_why() -> None:
    (made,) = json.loads(sarif(not_reviewed()))["runs"]
    (invocation,) = made["invocations"]
    assert invocation["executionSuccessful"] is False and invocation["exitCode"] == 2
    assert invocation["toolExecutionNotifications"][0]["message"]["text"].startswith("the task is void")
    assert made["results"] == []


# annotations


def parsed(line: str) -> tuple[str, dict[str, str], str]:
    """A workflow command as its documentation says it is read."""
    match = re.fullmatch(r"::(\w+) ([^:]*)::(.*)", line)
    assert match is not None, line

    def plain(text: str) -> str:
        for code_, char in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
            text = text.replace(code_, char)
        return text

    given = dict(item.split("=", 1) for item in match[2].split(","))
    return match[1], {key: plain(value) for key, value in given.items()}, plain(match[3])


def test_annotations_have_level_place_title_and_message() -> None:
    lines = github(bad(), {"kernel.py": "a,b:c/kernel.py"}).splitlines()
    made = [parsed(line) for line in lines]
    assert [item[0] for item in made[:4]] == ["error", "error", "warning", "notice"]
    _, given, message = made[0]
    assert given == {"file": "a,b:c/kernel.py", "line": "12", "title": "NKR020 blocker: The output is wrong"}
    assert "(19%)" in message and "\nChange: subtract the maximum" in message
    assert "Predicted gain: 4.10 ms (3.6 to 4.6 ms)" in made[1][2]


def test_annotations_of_a_hostile_kernel_stay_one_command_each() -> None:
    lines = github(hostile()).splitlines()
    assert len(lines) == 1
    name, given, message = parsed(lines[0])
    assert name == "error" and set(given) == {"file", "line", "title"} and "\x1b" not in message


def test_annotations_are_bounded_and_say_that_nothing_was_reviewed() -> None:
    many = record(findings=tuple(note(at) for at in range(MOST_ANNOTATIONS + 7)))
    lines = github(many).splitlines()
    assert len(lines) == MOST_ANNOTATIONS + 1 and parsed(lines[-1])[2] == "7 more in review.md"
    assert parsed(github(not_reviewed()).strip())[1]["title"] == "nkireview: not reviewed"
    assert github(SAMPLES["excellent"]()) == ""


@pytest.mark.parametrize(
    ("places", "wanted"),
    [
        (("k.py:1",), None),
        (("k.py:1", "k.py:2"), "Also at one other place"),
        (("k.py:1", "k.py:2", "k.py:3"), "Also at 2 other places"),
    ],
)
def test_an_annotation_counts_the_other_places(places: tuple[str, ...], wanted: str | None) -> None:
    message = github(record(findings=(finding(places=places),)))
    assert ("Also at" in message) == (wanted is not None) and (wanted or "") in message


REASON = "nothing was executed: whether the result is right was not looked at"


def test_every_form_says_that_nothing_was_executed() -> None:
    texts = forms(unexecuted())
    assert texts["md"].splitlines()[2].startswith("**No blocker found.**") and f"Why: {REASON}" in texts["md"]
    assert '<p class="verdict no-blocker-found">No blocker found</p>' in texts["html"]
    assert f'<p class="reason">{REASON}</p>' in texts["html"] and "Acceptable" not in texts["html"]
    assert texts["github"] == f"::warning title=nkireview%3A no blocker found::{REASON}\n"
    told = json.loads(texts["agent"])
    assert (told["verdict"], told["reason"], told["exit_code"]) == ("acceptable", REASON, 0)
    assert told["next_step"] == (
        "execute the kernel against a reference: nothing says yet whether its result is right"
    )
    (run,) = json.loads(texts["sarif"])["runs"]
    assert run["invocations"][0]["toolExecutionNotifications"] == [
        {"level": "warning", "message": {"text": REASON}}
    ]
    assert (run["properties"]["verdict"], run["properties"]["reason"]) == ("acceptable", REASON)


def test_a_kernel_that_was_executed_is_acceptable() -> None:
    texts = forms(SAMPLES["excellent"]())
    assert texts["md"].splitlines()[2].startswith("**Acceptable.**")
    assert '<p class="verdict acceptable">Acceptable</p>' in texts["html"]


# agent.json


def test_an_agent_is_told_what_to_change_where_and_why() -> None:
    made = json.loads(agent(bad()))
    assert (made["verdict"], made["exit_code"], made["total"]) == ("rejected", 1, 38.0)
    assert made["next_step"].startswith("NKR020 at kernel.py:12")
    first, second, third = made["findings"][:3]
    assert (first["severity"], first["file"], first["line"]) == ("blocker", "kernel.py", 12)
    assert first["failing_input"] == "scale-100 inputs, seed 7, output out at [0, 2]"
    assert first["predicted_gain_us"] is None and first["evidence"] == "executed"
    assert second["predicted_gain_us"] == 4100.0
    # 25.0 / 28.3 and 31.6 / 28.3 of the gain
    assert second["predicted_gain_range_us"] == pytest.approx([3621.908, 4578.092])
    assert third["severity"] == "minor"
    assert made["predicted_times_us"][0]["range"] == [25000.0, 31600.0]


def test_what_an_agent_is_told_is_bounded_and_in_a_stable_order() -> None:
    long = wrong_finding().model_copy(update={"message": "x" * 100_000})
    many = record(status="rejected", findings=(*(note(at) for at in range(500)), minor(), long))
    text = agent(many)
    made = json.loads(text)
    assert len(text) < 64 * 1024 and len(made["findings"]) == MOST_FOR_AGENTS
    assert made["findings_left_out"] == 502 - MOST_FOR_AGENTS
    assert [item["severity"] for item in made["findings"][:3]] == ["blocker", "minor", "note"]


def test_an_agent_is_told_why_nothing_was_judged() -> None:
    made = json.loads(agent(not_reviewed()))
    assert made["verdict"] == "not reviewed" and made["reason"].startswith("the task is void")
    assert made["total"] is None and made["findings"] == [] and made["exit_code"] == 2


def test_severities_keep_the_order_of_the_record() -> None:
    made = middling().model_copy(update={"findings": (note(1), finding(code="NKR061"), finding(), note(0))})
    codes = [item["finding"] for item in json.loads(agent(made))["findings"]]
    assert codes[2].startswith("note number 1") and codes[3].startswith("note number 0")
    assert NASTY not in agent(hostile())
