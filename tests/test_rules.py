"""Rules, findings and records: what binds what, and which cause explains which symptom."""

from __future__ import annotations

import pytest
from execute_kit import Kernel, View, counted
from pydantic import ValidationError

from nkireview.checks.accumulators import broken_chains
from nkireview.execute import Fault
from nkireview.isa.enums import Engine
from nkireview.record import Legality, OutputResult, ReviewRecord, Run, Setting, Subject
from nkireview.rules import registry
from nkireview.rules.facts import Facts, Failure, Unreached, WorkloadFacts, WrongOutput
from nkireview.rules.finding import Dimension, Evidence, Finding, Severity, in_order
from nkireview.rules.legality import dimension_of
from nkireview.rules.registry import RULES, judge

SETTING = Setting(value="x", origin="default")
SUBJECT = Subject(kernel="k", file="k.py", target=SETTING, release=SETTING, lnc=SETTING)


def finding(severity: Severity, code: str = "NKR001") -> Finding:
    return Finding(
        code=code,
        severity=severity,
        dimension=Dimension.tiling,
        evidence=Evidence.traced,
        message=severity.value,
    )


def wrong(output: str = "out", in_contract: bool = True) -> WrongOutput:
    return WrongOutput(output, "too far off", 3, "as drawn" if in_contract else "scale-100", in_contract)


def test_codes_are_unique_and_every_rule_explains_itself() -> None:
    assert len({rule.code for rule in RULES}) == len(RULES)
    codes = {rule.code for rule in RULES}
    for rule in RULES:
        assert len(rule.explanation) > 40 and rule.title and rule.suppresses <= codes


def test_severities_are_ordered() -> None:
    mixed = [
        finding(severity) for severity in (Severity.note, Severity.blocker, Severity.minor, Severity.major)
    ]
    assert [f.severity.value for f in in_order(mixed)] == ["blocker", "major", "minor", "note"]


@pytest.mark.parametrize(
    ("number", "dimension"),
    [
        (1, Dimension.tiling),
        (13, Dimension.memory),
        (17, Dimension.tiling),
        (21, Dimension.dma),
        (30, Dimension.precision),
        (52, Dimension.hardware),
        (56, Dimension.sdk),
    ],
)
def test_constraints_belong_to_a_dimension(number: int, dimension: Dimension) -> None:
    assert dimension_of(number) is dimension


@pytest.mark.parametrize(
    ("kind", "code", "integrity"),
    [
        ("raised", "NKR003", ""),
        ("refused", "NKR004", ""),
        ("no kernel", "NKR004", ""),
        ("timeout", "NKR005", ""),
        ("memory", "NKR005", ""),
        ("limits", "NKR005", ""),
        ("forged", "NKR006", "integrity"),
        ("malformed", "NKR006", "integrity"),
    ],
)
def test_each_failure_is_one_blocker(kind: str, code: str, integrity: str) -> None:
    found = judge(Facts("k", [WorkloadFacts("w", failure=Failure(kind, "because", "k.py:3"))]))
    assert [(f.code, f.kind, f.severity) for f in found] == [(code, integrity, Severity.blocker)]
    assert found[0].places == ("k.py:3",) and "because (k.py:3)" in found[0].message


def test_a_cause_hides_its_symptoms_in_the_same_workload_only() -> None:
    undefined = Fault("not executed", -1, -1, "an instruction without a meaning")
    facts = [
        WorkloadFacts("one", faults=[undefined], wrong=[wrong()]),
        WorkloadFacts("two", wrong=[wrong()]),
    ]
    assert [(f.code, f.workload) for f in judge(Facts("k", facts))] == [("NKR013", "one"), ("NKR020", "two")]


@pytest.mark.parametrize(
    ("kind", "code", "dimension"),
    [
        ("uninitialised", "NKR010", Dimension.memory),
        ("unwritten output", "NKR011", Dimension.correctness),
        ("psum accumulate onto undefined", "NKR012", Dimension.memory),
        ("psum accumulate after value init", "NKR012", Dimension.memory),
        ("not executed", "NKR013", Dimension.correctness),
        ("no meaning", "NKR013", Dimension.correctness),
        ("unsupported", "NKR013", Dimension.correctness),
        ("undefined index", "NKR014", Dimension.memory),
        ("undefined register", "NKR014", Dimension.memory),
        ("deadlock", "NKR015", Dimension.dma),
        ("endless loop", "NKR016", Dimension.correctness),
        ("out of bounds", "NKR017", Dimension.dma),
        ("undefined result", "NKR018", Dimension.memory),
        ("duplicate indices", "NKR023", Dimension.dma),
        ("duplicate scatter", "NKR028", Dimension.dma),
        ("duplicate scatter to a spare row", "NKR028", Dimension.dma),
    ],
)
def test_each_fault_has_one_rule(kind: str, code: str, dimension: Dimension) -> None:
    found = judge(Facts("k", [WorkloadFacts("w", faults=[Fault(kind, -1, -1, "because", 3)])]))
    assert [(f.code, f.dimension, f.message) for f in found] == [(code, dimension, "because")]
    assert (found[0].severity is Severity.blocker) is (code not in {"NKR023", "NKR028"})


def test_no_fault_is_without_a_rule() -> None:
    for kind in Fault.KINDS:
        assert len(judge(Facts("k", [WorkloadFacts("w", faults=[Fault(kind, -1, -1, "x")])]))) == 1, kind


@pytest.mark.parametrize("kind", ["undefined index", "deadlock", "endless loop", "out of bounds"])
def test_what_stops_an_instruction_explains_what_follows(kind: str) -> None:
    faults = [
        Fault(other, -1, -1, other) for other in ("uninitialised", "not executed", "unwritten output", kind)
    ]
    found = judge(Facts("k", [WorkloadFacts("w", faults=faults, wrong=[wrong()])]))
    assert [f.message for f in found] == [kind]


@pytest.mark.parametrize(
    ("commands", "broken"),
    [
        ("begin a, begin b, go a", [(2, 1, 0)]),
        ("begin a, go a, begin b, go b", []),
        ("begin a, go b", []),
        ("begin a, go b, go a", [(2, 1, 0)]),
        ("begin a, idle b, go a", []),
        ("begin -, go a, begin -, go a", []),
        ("go -, go a", []),
    ],
)
def test_broken_chains(commands: str, broken: list[tuple[int, int, int]]) -> None:
    """By hand: each command with the tile of its result, `-` for none."""
    kernel = Kernel()
    tile = kernel.load(counted(2, 4))
    results = {name: kernel.sbuf(2, 1, name=name) for name in "ab"}
    first = len(kernel.program())
    for command in commands.split(", "):
        verb, name = command.split()
        kernel.call(
            "tensor_scalar_reduce",
            dst=tile,
            data=tile,
            op0="multiply",
            operand0=1.0,
            reduce_op="add",
            reduce_res=results.get(name),
            reduce_cmd={"begin": "reset_reduce", "go": "reduce", "idle": "idle"}[verb],
        )
    found = broken_chains(kernel.program(), kernel.rows)
    assert [(each.instruction - first, each.by - first, each.begun - first) for each in found] == broken


def test_engines_have_their_own_accumulators() -> None:
    kernel = Kernel()
    tile, a, b = kernel.load(counted(2, 4)), kernel.sbuf(2, 1), kernel.sbuf(2, 1)

    def on_scalar(result: View, command: str) -> None:
        kernel.call(
            "activation",
            dst=tile,
            data=tile,
            op="copy",
            reduce_op="add",
            reduce_res=result,
            reduce_cmd=command,
        )

    def on_vector(result: View) -> None:
        kernel.call(
            "tensor_scalar_reduce",
            dst=tile,
            data=tile,
            op0="multiply",
            operand0=1.0,
            reduce_op="add",
            reduce_res=result,
            reduce_cmd="reset_reduce",
        )

    on_scalar(a, "reset_reduce")
    on_vector(b)
    on_scalar(a, "reduce")
    assert broken_chains(kernel.program(), kernel.rows) == ()
    # a plain activation leaves the registers alone, one that begins a sum of its own does not
    kernel.call("activation", dst=tile, data=tile, op="exp")
    on_scalar(a, "reduce")
    assert broken_chains(kernel.program(), kernel.rows) == ()
    on_scalar(b, "reset_reduce")
    on_scalar(a, "reduce")
    (found,) = broken_chains(kernel.program(), kernel.rows)
    assert (found.engine, found.instruction - found.by) == (Engine.scalar, 1)


def test_an_unreached_input_is_an_integrity_blocker() -> None:
    facts = WorkloadFacts("w", unreached=[Unreached("x", "out", "the whole")], wrong=[wrong()])
    found = judge(Facts("k", [facts]))
    assert [(f.code, f.kind) for f in found] == [("NKR030", "integrity")]
    assert "does not depend on the whole of input x" in found[0].message


def test_what_the_contract_does_not_ask_for_is_a_note() -> None:
    found = judge(Facts("k", [WorkloadFacts("w", wrong=[wrong(in_contract=False)])]))
    assert [(f.code, f.severity) for f in found] == [("NKR021", Severity.note)]


def test_the_same_sentence_in_two_workloads_is_one_finding() -> None:
    facts = [WorkloadFacts(name, mismatch="two tensors") for name in ("a", "b")]
    found = judge(Facts("k", facts))
    assert [(f.code, f.workload, f.count) for f in found] == [("NKR022", "a, b", 2)]


def test_notes_about_the_file() -> None:
    found = judge(Facts("k", stubs=["torch"], file_target="trn1", target="trn2", authored=["reference"]))
    assert [f.code for f in found] == ["NKR042", "NKR043", "NKR044"]
    assert all(f.severity is Severity.note for f in found)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: OutputResult(name="o", dtype="float32", shape=(1,), status="correct"),
            "needs its error figures",
        ),
        (lambda: OutputResult(name="o", dtype="float32", shape=(1,), status="wrong"), "needs a reason"),
        (lambda: Run(workload="w", seed=1, status="correct"), "a correct run needs its outputs"),
        (lambda: Run(workload="w", seed=1, status="not assessed"), "needs a reason"),
        (lambda: record("acceptable", finding(Severity.blocker)), "an acceptable review has no blocker"),
        (lambda: record("rejected", finding(Severity.major)), "a rejected review names its blocker"),
        (lambda: record("not reviewed"), "says why"),
        (lambda: finding(Severity.note, "E1"), "String should match pattern"),
    ],
)
def test_a_status_binds_its_payload(make: object, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        make()  # type: ignore[operator]


def record(status: str, *findings: Finding, reason: str = "") -> ReviewRecord:
    return ReviewRecord(
        tool="t",
        subject=SUBJECT,
        status=status,
        legality=Legality(status="legal"),
        findings=findings,
        reason=reason,
    )


def test_exit_codes() -> None:
    assert int(record("acceptable", finding(Severity.major)).exit_code) == 0
    assert int(record("rejected", finding(Severity.blocker)).exit_code) == 1
    assert int(record("not reviewed", reason="void").exit_code) == 2


def test_a_wrong_result_beside_its_cause_says_to_mend_that_first() -> None:
    def found(code: str, severity: Severity, workload: str = "w") -> Finding:
        return finding(severity, code).model_copy(
            update={"workload": workload, "change": f"the change of {code}", "places": ("k.py:3",)}
        )

    symptom = found("NKR020", Severity.blocker, "v, w")
    both = registry._with_causes([symptom, found("NKR061", Severity.major)])
    assert both[0].change == "Mend NKR061 at k.py:3 first, which may be why: the change of NKR061"
    for other in (
        found("NKR061", Severity.note),
        found("NKR061", Severity.major, "elsewhere"),
        found("NKR105", Severity.major),
    ):
        assert registry._with_causes([symptom, other])[0] == symptom


def test_causes_are_rules() -> None:
    codes = {rule.code for rule in RULES}
    assert all(rule.causes <= codes for rule in RULES)


def test_a_matter_of_several_workloads_speaks_of_the_one_with_most_at_stake() -> None:
    def found(workload: str, severity: Severity, gain: float | None) -> Finding:
        update = {"workload": workload, "gain_ns": gain, "group": "x", "message": f"of {workload}"}
        return finding(severity).model_copy(update=update)

    (merged,) = registry._merged([found("small", Severity.major, 2e4), found("large", Severity.minor, 1e6)])
    assert (merged.message, merged.severity, merged.gain_ns) == ("of large", Severity.major, 1e6)
    assert merged.workload == "small, large" and merged.count == 2
    (merged,) = registry._merged([found("a", Severity.note, None), found("b", Severity.blocker, None)])
    assert (merged.message, merged.severity) == ("of b", Severity.blocker)


def test_a_wrong_result_hides_that_it_is_wrong_outside_the_contract_too() -> None:
    facts = WorkloadFacts("w", wrong=[wrong(), wrong(in_contract=False)])
    assert [f.code for f in judge(Facts("k", [facts]))] == ["NKR020"]
