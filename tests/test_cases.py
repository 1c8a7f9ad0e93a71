"""The cases: the bad kernel gets its verdict on the targets where it holds, the good one nothing above note."""

from __future__ import annotations

from pathlib import Path

import pytest
from kept import Kept

from nkireview.record import ReviewRecord
from nkireview.requests import from_file
from nkireview.review import review
from nkireview.rules.finding import Dimension, Severity
from nkireview.runner import ForkServer

CASES = Path(__file__).resolve().parent / "cases"
TARGETS = ("trn1", "trn2", "trn3")


def judge(
    kept: Kept, case: str, kernel: str, target: str, tail: str = "", lnc: int | None = None
) -> ReviewRecord:
    path = next(CASES.glob(f"{case}_*.py"))
    request = from_file(
        path,
        kernel=kernel,
        reference=f"{path}:reference{tail}",
        inputs=(),
        inputs_from=f"{path}:inputs{tail}",
        target=target,
        nki=None,
        lnc=lnc,
        seed=7,
    )
    return kept.review(f"{case}-{kernel}-{target}{tail}-{lnc}", request)


def blockers(record: ReviewRecord) -> list[tuple[str, Dimension, str]]:
    return [(f.code, f.dimension, f.message) for f in record.findings if f.severity is Severity.blocker]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "case", ["r01", "r02", "r04", "r06", "r10", "r12", "r14", "r16", "r18", "r23", "r26"]
)
def test_the_good_kernel_gets_nothing_above_note(kept: Kept, case: str, target: str) -> None:
    record = judge(kept, case, "good", target, "_good" if case == "r14" else "")
    assert record.status == "acceptable", record.reason or record.findings
    assert {finding.severity for finding in record.findings} <= {Severity.note}
    assert all(run.status == "correct" for run in record.runs if run.inputs == "as drawn")
    assert any("supplied the reference and the input function" in f.message for f in record.findings)


@pytest.mark.parametrize("target", TARGETS)
def test_r01_more_than_128_partitions(kept: Kept, target: str) -> None:
    found = blockers(judge(kept, "r01", "bad", target))
    assert any(
        dimension is Dimension.tiling and "tensor_scalar: dst partition size 256 exceeds 128" in message
        for _, dimension, message in found
    ), found


@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_r02_matmul_wider_than_a_psum_bank(kept: Kept, target: str) -> None:
    found = blockers(judge(kept, "r02", "bad", target))
    message = f"nc_matmul: moving free size 1024 exceeds 512 on {target} (r02_psum_bank.py:17)"
    assert message in [text for _, _, text in found], found
    assert Dimension.memory in [dimension for _, dimension, _ in found]


@pytest.mark.parametrize("case", ["r02", "r04"])
def test_r02_and_r04_are_legal_on_trn3(kept: Kept, case: str) -> None:
    record = judge(kept, case, "bad", "trn3")
    assert record.status == "acceptable", record.findings
    assert record.legality.status == "legal"


@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_r04_accumulation_onto_memset_psum(kept: Kept, target: str) -> None:
    record = judge(kept, "r04", "bad", target)
    found = blockers(record)
    assert [(code, dimension) for code, dimension, _ in found] == [("NKR012", Dimension.memory)], found


@pytest.mark.parametrize("target", TARGETS)
def test_r06_dma_from_psum_depends_on_the_release(kept: Kept, target: str) -> None:
    record = judge(kept, "r06", "bad", target)
    found = blockers(record)
    assert any("dma_copy" in text and "PSUM" in text for _, _, text in found), found
    assert Dimension.dma in [dimension for _, dimension, _ in found]
    returned = [f for f in record.findings if f.code == "NKR002"]
    assert [f.severity for f in returned] == [Severity.major]


@pytest.mark.parametrize("target", TARGETS)
def test_r10_a_fully_masked_row_is_not_finite(kept: Kept, target: str) -> None:
    found = blockers(judge(kept, "r10", "bad", target))
    assert [(code, dimension) for code, dimension, _ in found] == [("NKR020", Dimension.numerics)], found
    assert "NaN" in found[0][2] or "finite" in found[0][2]


@pytest.mark.parametrize("target", TARGETS)
def test_r12_an_uninitialised_tail_reaches_the_output(kept: Kept, target: str) -> None:
    found = blockers(judge(kept, "r12", "bad", target))
    assert [(code, dimension) for code, dimension, _ in found] == [("NKR010", Dimension.memory)], found


@pytest.mark.parametrize("target", TARGETS)
def test_r14_a_bias_with_a_free_dimension(kept: Kept, target: str) -> None:
    found = blockers(judge(kept, "r14", "bad", target))
    assert any("activation: bias free size is 64, must be 1" in text for _, _, text in found), found
    assert Dimension.tiling in [dimension for _, dimension, _ in found]


@pytest.mark.parametrize("target", TARGETS)
def test_r26_a_constant_output_is_an_integrity_blocker(kept: Kept, target: str) -> None:
    record = judge(kept, "r26", "bad", target)
    kinds = [(f.code, f.kind) for f in record.findings if f.severity is Severity.blocker]
    assert kinds == [("NKR030", "integrity")], record.findings


@pytest.mark.parametrize("target", ["trn2", "trn3"])
def test_r25_two_cores_write_the_same_rows(kept: Kept, target: str) -> None:
    record = judge(kept, "r25", "bad", target, lnc=2)
    assert record.status == "rejected"
    assert ("NKR025", Dimension.dma) in [(code, dimension) for code, dimension, _ in blockers(record)]
    (found,) = [finding for finding in record.findings if finding.code == "NKR025"]
    assert found.places == ("r25_lnc2_overlap.py:20", "r25_lnc2_overlap.py:18"), found
    good = judge(kept, "r25", "good", target, lnc=2)
    assert good.status == "acceptable" and {finding.severity for finding in good.findings} <= {Severity.note}


def static(server: ForkServer, case: str, kernel: str, release: str) -> ReviewRecord:
    """A case that must never be imported for its reference or inputs: it has neither."""
    path = next(CASES.glob(f"{case}_*.py"))
    request = from_file(
        path,
        kernel=kernel,
        reference=None,
        inputs=("x=f32[4,128,512]",),
        inputs_from=None,
        target="trn2",
        nki=release,
        lnc=None,
        seed=7,
        schedule_only=True,
        need_reference=False,
    )
    return review(request, server)


def test_r08_a_carried_dependence_of_affine_range_is_a_race_in_the_legacy_generation_only(
    server: ForkServer,
) -> None:
    legacy = static(server, "r08", "running_max", "legacy")
    found = blockers(legacy)
    assert legacy.status == "rejected"
    assert [(code, dimension) for code, dimension, _ in found] == [("NKR050", Dimension.dma)], found
    current = static(server, "r08", "running_max", "0.6")
    assert current.status == "acceptable"
    assert {finding.severity for finding in current.findings} <= {Severity.minor, Severity.note}
    assert any(finding.code == "NKR050" for finding in current.findings)


@pytest.mark.parametrize("target", TARGETS)
def test_r16_indices_in_bfloat16(kept: Kept, target: str) -> None:
    record = judge(kept, "r16", "bad", target)
    reasons = [(code, dimension) for code, dimension, _ in blockers(record)]
    assert ("NKR070", Dimension.precision) in reasons and record.status == "rejected"


@pytest.mark.parametrize("target", TARGETS)
def test_r18_one_added_where_one_was_to_multiply(kept: Kept, target: str) -> None:
    record = judge(kept, "r18", "bad", target)
    reasons = [(code, dimension) for code, dimension, _ in blockers(record)]
    assert ("NKR060", Dimension.correctness) in reasons and record.status == "rejected"


@pytest.mark.parametrize("target", TARGETS)
def test_r23_a_transpose_by_descriptors_of_four_bytes_is_right_and_slow(kept: Kept, target: str) -> None:
    record = judge(kept, "r23", "bad", target)
    assert record.status == "acceptable" and all(run.status == "correct" for run in record.runs)
    above = [(f.code, f.severity, f.dimension) for f in record.findings if f.severity is not Severity.note]
    assert above == [("NKR122", Severity.major, Dimension.dma)], above
    slow, good = (judge(kept, "r23", kernel, target).times[0].total_ns for kernel in ("bad", "good"))
    assert slow > 4 * good


def test_r28_a_file_that_tampers_with_its_grader_is_never_run(server: ForkServer) -> None:
    record = static(server, "r28", "entry", "0.6")
    found = [(f.code, f.dimension, f.kind) for f in record.findings if f.severity is Severity.blocker]
    assert record.status == "rejected"
    assert set(found) == {("NKR055", Dimension.correctness, "integrity")}, found
    assert not record.counts and not record.times and not record.isolation_held
