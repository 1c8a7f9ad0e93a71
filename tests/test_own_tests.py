"""What is read from an author's tests, held against tests whose facts are written beside them, and what is said."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
from execute_kit import Kernel

from nkireview.checks.own_tests import (
    ABSOLUTE,
    ELEMENT,
    EXACT,
    LARGEST,
    NORM,
    UNREAD,
    Comparison,
    OwnTests,
    gathered,
    own_tests,
)
from nkireview.mutants import evidence
from nkireview.mutants.evidence import as_tested, passes_of, zero_shares
from nkireview.requests import from_file
from nkireview.rules.catalogue import KINDS, folder
from nkireview.rules.facts import Facts, JudgedMutant, OwnEvidence, WorkloadFacts, ZeroShare
from nkireview.rules.finding import Finding, Severity
from nkireview.rules.own_tests import RULES
from nkireview.rules.registry import judge
from nkireview.runner import ForkServer
from nkireview.tracing import trace

KERNEL = """
import nki
import numpy as np
import torch

@nki.jit
def kernel(x):
    return x

def reference(x):
    return np.tanh(x)
"""


def read(body: str, **others: str) -> OwnTests:
    """The tests of a kernel's file with more text, and of other files by their stems."""
    files = {f"{stem}.py": dedent(text) for stem, text in others.items()}
    return own_tests({"kernel_file.py": KERNEL + dedent(body), **files}, "kernel")


def compared(line: str, before: str = "") -> Comparison:
    """The comparison of a test with that line."""
    (found,) = read(
        f"""
        def test_it():
            x = np.random.default_rng(0).standard_normal((128, 96)).astype(np.float32)
            got, want = kernel(x), reference(x)
            {before}
            {line}
        """
    ).comparisons
    return found


# Limits: those of each function, by its documentation.


@pytest.mark.parametrize(
    ("line", "form", "rtol", "atol"),
    [
        ("assert np.allclose(got, want)", ELEMENT, 1e-5, 1e-8),
        ("assert np.allclose(got, want, 1e-3)", ELEMENT, 1e-3, 1e-8),
        ("assert np.allclose(got, want, 1e-3, 1e-4)", ELEMENT, 1e-3, 1e-4),
        ("assert np.isclose(got, want, atol=1e-2).all()", ELEMENT, 1e-5, 1e-2),
        ("np.testing.assert_allclose(got, want)", ELEMENT, 1e-7, 0.0),
        ("np.testing.assert_allclose(actual=got, desired=want, atol=2e-2)", ELEMENT, 1e-7, 2e-2),
        ("assert torch.allclose(got, want, atol=1e-4, rtol=1e-2)", ELEMENT, 1e-2, 1e-4),
        ("assert got.allclose(want, 1e-2)", ELEMENT, 1e-2, 1e-8),
        ("torch.testing.assert_close(got, want, rtol=0, atol=1e-2)", ELEMENT, 0.0, 1e-2),
        ("np.testing.assert_almost_equal(got, want)", ABSOLUTE, 0.0, 1.5e-7),
        ("np.testing.assert_array_almost_equal(got, want)", ABSOLUTE, 0.0, 1.5e-6),
        ("np.testing.assert_array_almost_equal(got, want, decimal=3)", ABSOLUTE, 0.0, 1.5e-3),
        ("np.testing.assert_array_equal(got, want)", EXACT, 0.0, 0.0),
        ("assert np.array_equal(got, want)", EXACT, 0.0, 0.0),
        ("assert maxAllClose(got, want)", LARGEST, 1e-5, 1e-8),
        ("assert maxAllClose(got, want, rtol=2e-2, mode='py')", ELEMENT, 2e-2, 1e-8),
        ("assert np.max(np.abs(got - want)) < 1e-3", ABSOLUTE, 0.0, 1e-3),
        ("assert np.abs(got - want).max() <= 1e-3", ABSOLUTE, 0.0, 1e-3),
        ("assert 1e-3 > abs(got - want).max()", ABSOLUTE, 0.0, 1e-3),
        ("assert np.abs(got - want).max() / np.abs(want).max() < 1e-3", LARGEST, 1e-3, 0.0),
        ("assert np.linalg.norm(got - want) / np.linalg.norm(want) < 2e-5", NORM, 2e-5, 0.0),
        ("assert np.abs(got - want).mean() < 1e-3", UNREAD, 1e-3, 0.0),
    ],
)
def test_limits_and_their_defaults(line: str, form: str, rtol: float, atol: float) -> None:
    found = compared(line)
    assert found.form == form and found.kernel == "left" and found.asserted and not found.itself
    assert found.rtol == pytest.approx((rtol,)) and found.atol == pytest.approx((atol,))
    assert (found.limits("float32") is None) is (form == UNREAD)
    assert re.fullmatch(r"kernel_file\.py:\d+", found.place)


def test_the_defaults_of_assert_close_go_by_dtype() -> None:
    found = compared("torch.testing.assert_close(got, want)")
    assert found.by_dtype and found.limits("bfloat16") == (1.6e-2, 1e-5)
    assert found.limits("float32") == (1.3e-6, 1e-5) and found.limits("int32") is None


def test_an_error_that_was_named_before() -> None:
    found = compared("assert worst < LIMIT", "LIMIT, worst = 5e-3, np.max(np.abs(got - want))")
    assert (found.form, found.atol, found.left, found.right) == (ABSOLUTE, (5e-3,), "got", "want")


def test_limits_that_are_chosen_by_branch_table_or_parameter() -> None:
    assert compared("assert np.allclose(got, want, atol=t)", "t = 1e-2 if x.size > 9 else 1e-3").atol == (
        1e-3,
        1e-2,
    )
    table = "t = {np.float32: 1e-5, np.float16: 1e-2}[x.dtype.type]"
    assert compared("assert np.allclose(got, want, t)", table).rtol == (1e-5, 1e-2)
    found = read(
        """
        TOL = 2e-2

        @pytest.mark.parametrize("rtol, columns", [(1e-3, 96), pytest.param(1e-2, 640, id="wide")])
        def test_it(rtol, columns, atol=TOL / 2):
            x = np.random.default_rng(0).standard_normal((128, columns))
            np.testing.assert_allclose(kernel(x), reference(x), rtol=rtol, atol=atol)
        """
    )
    (only,) = found.comparisons
    assert (only.rtol, only.atol, only.limits("float32")) == ((1e-3, 1e-2), (1e-2,), (1e-3, 1e-2))
    assert found.cases == 2 and [item.sizes for item in found.given] == [((128,), (96, 640))]


def test_a_limit_that_cannot_be_read_is_not_guessed() -> None:
    found = compared("assert np.allclose(got, want, rtol=load_limits()['r'])")
    assert found.rtol is None and found.limits("float32") is None
    foreign = read(
        """
        from vendor.util import allclose
        def test_it():
            x = np.random.rand(128, 96)
            assert allclose(kernel(x), reference(x), rtol=1e-3)
        """
    ).comparisons[0]
    assert foreign.form == UNREAD and foreign.atol is None and foreign.limits("float32") is None


def test_branches_are_all_kept_and_what_is_assigned_again_is_not() -> None:
    both = compared(
        "assert np.allclose(got, want, t)", "\n            ".join(("t = 1.0", "if x[0]:", "    t = 2.0"))
    )
    assert both.rtol == (1.0, 2.0)
    again = compared("assert np.allclose(got, want, t)", "\n            ".join(("t = 1.0", "t = 2.0")))
    assert again.rtol == (2.0,)


# What is compared with what.


def test_a_value_against_itself() -> None:
    assert compared("assert np.allclose(got, got)").same
    assert compared("np.testing.assert_allclose(got.astype(np.float32), copy)", "copy = np.array(got)").same
    assert not compared("np.testing.assert_allclose(got, got.T)").same
    assert not compared("np.testing.assert_allclose(got[0], got[1])").same


def test_the_kernel_against_the_kernel() -> None:
    both = read(
        """
        def run(x):
            out = kernel[2](x)
            return np.asarray(out).reshape(x.shape)

        def test_it():
            x = np.random.rand(128, 96)
            first, second = run(x), nki.baremetal(kernel)(x)
            assert np.array_equal(first, second)
        """
    )
    assert (
        both.comparisons[0].kernel == "both" and both.comparisons[0].itself and not both.comparisons[0].same
    )
    assert not both.against_others


@pytest.mark.parametrize(
    "call",
    [
        "kernel(x)",
        "kernel[2, 4](x)",
        "nki.simulate_kernel(kernel[2], x)",
        "nki.baremetal(kernel)(x)",
        "nki.benchmark(warmup=5)(kernel)(x)",
        "fast(x)",
        "kernel(x)[0].astype(np.float32)",
        "torch.from_numpy(kernel(x)).to('cpu')",
    ],
)
def test_ways_to_call_the_kernel(call: str) -> None:
    (found,) = read(
        f"""
        fast = nki.jit(kernel)
        def test_it():
            x = np.random.rand(128, 96)
            got = {call}
            np.testing.assert_allclose(reference(x), got)
        """
    ).comparisons
    assert found.kernel == "right"


def test_a_reference_by_the_kernels_own_helper() -> None:
    text = """
        import nki, numpy as np
        def columns(n):
            return n // 128
        def scaled(x):
            return np.tanh(x) * columns(256)
        def other(x):
            return np.sinh(x) / np.cosh(x) * columns(256)
        @nki.jit
        def kernel(x):
            return scaled(x) + columns(1)
        def oracle(x):
            return {name}(x) + 0
        def test_it():
            x = np.random.randn(128, 96)
            np.testing.assert_allclose(kernel(x), oracle(x))
        """
    shared = own_tests({"k.py": dedent(text.format(name="scaled"))}, "kernel").comparisons[0]
    apart = own_tests({"k.py": dedent(text.format(name="other"))}, "kernel").comparisons[0]
    assert shared.helpers == ("scaled",) and apart.helpers == ()


def test_what_is_printed_and_what_fails() -> None:
    assert not compared("print('close:', np.allclose(got, want))").asserted
    lines = ("if np.allclose(got, want):", "    print('yes')", "else:", "    print('no')")
    assert not compared("\n            ".join(lines)).asserted
    assert compared("\n            ".join((*lines[:3], "    raise SystemExit(1)"))).asserted
    assert not compared("\n            ".join(("ok = np.allclose(got, want)", "print(ok)"))).asserted
    assert compared("\n            ".join(("ok = np.allclose(got, want)", "print(ok)", "assert ok"))).asserted


# Which tests, and how their tensors are made.


def test_other_files_fixtures_helpers_and_main() -> None:
    found = own_tests(
        {
            "softmax.py": "import nki\n@nki.jit\ndef softmax(x):\n    return x\n",
            "tests/conftest.py": dedent(
                """
                import numpy as np, pytest
                @pytest.fixture
                def wide():
                    return np.random.default_rng(7).uniform(-2, 2, size=(128, 640)).astype(np.float32)
                """
            ),
            "tests/test_softmax.py": dedent(
                """
                import numpy as np
                from softmax import softmax as sm

                def check(x, limit=1e-4):
                    e = np.exp(x - x.max(1, keepdims=True))
                    np.testing.assert_allclose(sm(x), e / e.sum(1, keepdims=True), rtol=limit)

                class TestSoftmax:
                    def test_wide(self, wide):
                        check(wide)

                    def test_small(self):
                        check(np.random.default_rng(8).standard_normal((128, 96)) * 100, limit=1e-3)
                """
            ),
            "tests/test_other.py": "def test_nothing():\n    assert other(1) == 1\n",
            "broken.py": "def (:",
        },
        "softmax",
    )
    assert found.tests == ("test_wide", "test_small") and found.files == ("test_softmax.py",)
    ways = {(item.kind, item.low, item.high, item.factor, item.sizes) for item in found.given}
    inf = float("inf")
    assert ways == {
        ("uniform", -2.0, 2.0, 1.0, ((128,), (640,))),
        ("normal", -inf, inf, 100.0, ((128,), (96,))),
    }
    assert found.seeds == (8.0,) and found.hostile == ("scaled", "tails")
    assert {item.kernel for item in found.comparisons} == {"left"}
    main = read(
        """
        if __name__ == "__main__":
            x = np.random.rand(128, 512)
            assert np.allclose(kernel(x), reference(x), atol=1e-4, rtol=1e-2)
        """
    )
    assert main.tests == ("__main__",) and main.only_unit and main.comparisons[0].atol == (1e-4,)


def test_a_file_without_tests_or_with_tests_of_another_kernel_has_none() -> None:
    assert read("") == OwnTests()
    assert read("def test_other():\n    assert np.allclose(other(1), 2)\n") == OwnTests()
    # what compares nothing is no evidence
    timed = read("def test_speed():\n    kernel(np.random.rand(128, 128))\n")
    assert timed.tests == ("test_speed",) and not timed.given and not timed.comparisons


@pytest.mark.parametrize(
    ("made", "kind", "low", "high"),
    [
        ("np.random.rand(128, 96)", "unit", 0.0, 1.0),
        ("np.random.random_sample((128, 96)).astype(np.float32)", "unit", 0.0, 1.0),
        ("np.random.default_rng(1).random((128, 96), dtype=np.float32)", "unit", 0.0, 1.0),
        ("np.random.uniform(size=(128, 96))", "unit", 0.0, 1.0),
        ("np.random.uniform(0, 1, (128, 96))", "unit", 0.0, 1.0),
        ("torch.rand((128, 96), dtype=torch.float32)", "unit", 0.0, 1.0),
        ("np.random.rand(128, 96) / 2", "unit", 0.0, 0.5),
        ("(np.random.random_sample([128, 96]) - 0.5) * 2", "uniform", -1.0, 1.0),
        ("2 * np.random.rand(128, 96) - 1", "uniform", -1.0, 1.0),
        ("1 - np.random.rand(128, 96)", "unit", 0.0, 1.0),
        ("np.random.uniform(-3, 3, size=(128, 96))", "uniform", -3.0, 3.0),
        ("np.random.randn(128, 96)", "normal", -np.inf, np.inf),
        ("torch.randn(128, 96).half()", "normal", -np.inf, np.inf),
        ("np.zeros((128, 96))", "constant", 0.0, 0.0),
        ("np.full((128, 96), 0.5)", "constant", 0.5, 0.5),
        ("np.arange(128 * 96).reshape(128, 96)", "range", -np.inf, np.inf),
        ("np.random.randint(0, 9, (128, 96))", "integers", -np.inf, np.inf),
        ("load_from_disk('x.npy')", "unknown", -np.inf, np.inf),
        ("np.random.rand(128, 96) * np.random.rand(128, 96)", "unknown", -np.inf, np.inf),
    ],
)
def test_how_tensors_are_made(made: str, kind: str, low: float, high: float) -> None:
    (found,) = read(
        f"""
        def test_it():
            x = {made}
            np.testing.assert_allclose(kernel(x, 3, None, mode="fast"), reference(x))
        """
    ).given
    assert (found.kind, found.low, found.high) == (kind, pytest.approx(low), pytest.approx(high))
    if kind not in ("unknown", "range"):
        assert found.sizes == ((128,), (96,))


def test_dtypes_and_elements_set_apart() -> None:
    text = """
        def test_it():
            x = np.random.rand(128, 96).astype(np.float16)
            {line}
            np.testing.assert_allclose(kernel(x), reference(x))
        """
    (plain,) = read(text.format(line="y = x * 2")).given
    assert (plain.dtype, plain.edited) == ("float16", False)
    for line in ("x[0] = 100", "x -= 0.5"):
        found = read(text.format(line=line))
        assert found.given[0].edited and not found.only_unit and "elements set apart" in found.hostile


def test_seeds_loops_and_one_draw() -> None:
    once = """
        def test_it():
            np.random.seed(42)
            x = np.random.randn(128, 96)
            np.testing.assert_allclose(kernel(x), reference(x))
        """
    found = read(once)
    assert found.seeds == (42.0,) and found.one_draw
    looped = (
        once.replace("np.random.seed(42)", "rng = np.random.default_rng(0)")
        .replace(
            "x = np.random.randn(128, 96)",
            "for _ in range(3):\n                x = rng.standard_normal((128, 96))",
        )
        .replace("            np.testing", "                np.testing")
    )
    assert read(looped).looped and not read(looped).one_draw
    assert not read(once.replace("np.random.seed(42)", "pass")).seeded
    assert not read(once.replace("128, 96", "rows(), 96")).one_draw


def test_square_shapes() -> None:
    text = """
        @pytest.mark.parametrize("n", [128, 256])
        def test_it(n):
            x, b = np.random.randn({shape}), np.random.randn(n)
            np.testing.assert_allclose(kernel(x, b), reference(x))
        """
    assert read(text.format(shape="n, n")).only_square and read(text.format(shape="n, n")).only_multiples
    assert not read(text.format(shape="n, 2 * n")).only_square
    assert not read(text.format(shape="n, unknown()")).only_square
    assert not read(text.format(shape="n, 96")).only_multiples


def test_files_near_the_kernel(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "softmax.py").write_text("def softmax(x): ...")
    (tmp_path / "test_softmax.py").write_text("from softmax import softmax")
    (tmp_path / "test_gelu.py").write_text("from gelu import gelu")
    (tmp_path / "tests" / "rows_test.py").write_text("import softmax")
    (tmp_path / "tests" / "helper.py").write_text("import softmax")
    found = gathered(tmp_path / "softmax.py", "softmax")
    assert [Path(name).name for name in found] == ["softmax.py", "test_softmax.py", "rows_test.py"]


# What the tests would let pass.


def gain(x: Any) -> Kernel:
    kernel = Kernel()
    t = kernel.load(x)
    kernel.call("tensor_scalar", dst=t, data=t, op0="multiply", operand0=0.5, op1=None, reverse0=False)
    kernel.store(t)
    return kernel


def one(**fields: Any) -> OwnTests:
    base = Comparison("test.py:9", "test_it", "allclose", ELEMENT, (1e-2,), (0.1,), kernel="left")
    return OwnTests(tests=("test_it",), comparisons=(replace(base, **fields),))


@pytest.mark.parametrize(
    ("fields", "share"),
    [
        ({}, 0.5),  # of 0.05, 0.1, 0.2, 0.4: 0.1 * (1 - 1e-2) < 0.1
        ({"kernel": "right", "atol": (0.09,)}, 0.25),  # rtol is of the kernel's zeros
        ({"atol": (0.5,)}, 1.0),
        ({"form": LARGEST, "rtol": (0.5,), "atol": (0.0,)}, 0.75),  # half of 0.4
        ({"form": ABSOLUTE, "atol": (0.3,)}, 0.75),
        ({"form": NORM, "rtol": (0.3,)}, 277 / 512),  # 128 * (0.05**2 + 0.1**2) + 21 * 0.2**2 <= 0.09 * 27.2
        ({"form": EXACT}, 0.0),
    ],
)
def test_the_share_that_may_be_zero(fields: dict[str, Any], share: float) -> None:
    x = np.tile(np.array([0.1, -0.2, 0.4, 0.8, 0.0], np.float32), (128, 1))
    program = gain(x).program()
    (found,) = zero_shares(one(**fields), program, [x / 2])
    assert found.share == share


def test_the_shares_of_published_tolerances() -> None:
    """Of a softmax over 4,096 columns of N(0, 1), by the normal distribution of the logarithm of its elements.

    35% at rtol 1e-2 and atol 1e-4, more than 99.9% at 1e-2 and 1e-2, as was measured.
    """
    x = np.random.default_rng(0).standard_normal((128, 4096)).astype(np.float32)
    e = np.exp(x.astype(np.float64))
    wanted = [e / e.sum(axis=1, keepdims=True)]
    program = gain(x).program()
    (small,) = zero_shares(one(atol=(1e-4,)), program, wanted)
    (house,) = zero_shares(one(atol=(1e-2,)), program, wanted)
    (largest,) = zero_shares(one(form=LARGEST, rtol=(2e-2,), atol=(0.0,)), program, wanted)
    assert small.share == pytest.approx(0.35, abs=0.02) and house.share > 0.999
    below = float(x.max()) + math.log(2e-2)
    assert largest.share == pytest.approx(0.5 + 0.5 * math.erf(below / math.sqrt(2)), abs=0.02)


def test_limits_that_cannot_be_read_give_no_share_and_no_mutants() -> None:
    x = np.random.default_rng(0).standard_normal((128, 64)).astype(np.float32)
    kernel = gain(x)
    program = kernel.program()
    for fields in ({"rtol": None}, {"form": UNREAD}, {"asserted": False}, {"kernel": "both"}, {"same": True}):
        found = evidence(one(**fields), program, kernel.arguments, [x / 2])
        assert not found.zeros and not found.mutants
        assert passes_of(one(**fields), program) is None


def test_mutants_are_run_on_inputs_like_those_of_the_tests() -> None:
    x = np.random.default_rng(0).standard_normal((128, 64)).astype(np.float32)
    mask = np.tile(np.array([0.0, 1.0], np.float32), (128, 32))
    unit = read(
        "def test_it():\n    x = np.random.rand(128, 96)\n    assert np.allclose(kernel(x), reference(x))\n"
    )
    (made,) = as_tested(unit, {0: x, 1: mask}, seed=3)
    assert made[0].shape == x.shape and made[0].dtype == x.dtype and made[0].min() >= 0 and made[0].max() < 1
    assert made[1] is mask
    large = read(
        "def test_it():\n    x = 50 * np.random.randn(9, 9)\n    assert np.allclose(kernel(x), reference(x))\n"
    )
    (made,) = as_tested(large, {0: x}, seed=3)
    assert 45 < made[0].std() < 55
    assert as_tested(one(), {0: x}, seed=3) == []  # nothing is known of its inputs


def test_evidence_counts_mutants() -> None:
    x = np.random.default_rng(0).standard_normal((128, 64)).astype(np.float32)
    kernel = gain(x)
    text = """
        def test_it():
            x = np.random.randn(128, 96)
            assert np.allclose(kernel(x), reference(x), rtol={rtol}, atol={atol})
        """
    states = {}
    for rtol, atol in ((1e-5, 1e-7), (2e-2, 1e-3), (1e-2, 10.0)):
        tests = read(text.format(rtol=rtol, atol=atol))
        found = evidence(tests, kernel.program(), kernel.arguments, [x / 2])
        states[rtol, atol] = {item.name: item.state for item in found.mutants}
        assert found.zeros[0].share == np.mean(np.abs(x / 2) * (1 - rtol) <= atol)
    names = {"factor twice", "output zeros", "output scaled", "rows swapped", "tile left out", "cast to bf16"}
    assert set(states[1e-5, 1e-7]) == names and set(states[1e-5, 1e-7].values()) == {"killed"}
    middle = states[2e-2, 1e-3]
    assert middle.pop("output scaled") == middle.pop("cast to bf16") == "survived"
    assert set(middle.values()) == {"killed"}
    assert set(states[1e-2, 10.0].values()) == {"survived"}


# What is said.


def findings(own: OwnEvidence | None, program: Any = None) -> dict[str, Finding]:
    facts = Facts("kernel", (WorkloadFacts("w", program=program),), own_tests=own)
    codes = {rule.code for rule in RULES}
    return {item.code: item for item in judge(facts) if item.code in codes}


GOOD = """
    @pytest.mark.parametrize("columns", [96, 640])
    @pytest.mark.parametrize("seed", range(3))
    def test_it(seed, columns):
        x = np.random.default_rng(seed).standard_normal((128, columns)).astype(np.float32)
        x[:8] *= 1e-4
        np.testing.assert_allclose(kernel(x), reference(x), rtol=1e-5, atol=1e-6)

    def test_two_runs_agree():
        x = np.random.default_rng(0).standard_normal((128, 512)).astype(np.float32)
        np.testing.assert_array_equal(kernel(x), kernel(x))
    """


def test_good_tests_and_no_tests_give_no_finding() -> None:
    assert findings(OwnEvidence(read(GOOD))) == {}
    assert findings(OwnEvidence(read(GOOD), alone=True)) == {}
    assert findings(OwnEvidence(OwnTests())) == {} and findings(None) == {}


def test_severities_rise_by_one_where_nothing_else_was_compared() -> None:
    bad = read(
        """
        def test_it():
            x = np.random.default_rng(0).random((128, 128))
            got = kernel(x)
            np.testing.assert_allclose(got, got)
        """
    )
    usual, alone = findings(OwnEvidence(bad)), findings(OwnEvidence(bad, alone=True))
    assert {code: item.severity.value for code, item in usual.items()} == {
        "NKR090": "minor",
        "NKR091": "note",
        "NKR093": "note",
        "NKR094": "note",
    }
    assert {item.severity.value for item in alone.values()} == {"major", "minor"}
    assert usual["NKR090"].message.startswith("test_it compares got with itself (kernel_file.py:")


def test_a_kernel_that_only_moves_data_may_be_tested_with_any_numbers() -> None:
    unit = read(
        """
        def test_it():
            x = np.random.rand(128, 96)
            assert np.array_equal(kernel(x), x.T)
        """
    )
    kernel = Kernel()
    kernel.store(kernel.load(np.zeros((128, 96), np.float32)))
    assert "NKR091" in findings(OwnEvidence(unit))
    assert "NKR091" in findings(OwnEvidence(unit), gain(np.zeros((128, 96), np.float32)).program())
    assert "NKR091" not in findings(OwnEvidence(unit), kernel.program())


def test_zeros_and_mutants_are_quoted() -> None:
    zeros = ZeroShare("out", "test.py:9", 0.997, 1e-2, 1e-2)
    mutants = [JudgedMutant("eps dropped", "nothing is added", "k.py:3", "survived")] * 2
    mutants += [JudgedMutant("output zeros", "zeros", "", "killed")] * 4
    mutants += [JudgedMutant("N-1 for N", "a mean", "k.py:4", "equal")]
    found = findings(OwnEvidence(one(), zeros=(zeros,), mutants=tuple(mutants)))
    assert found["NKR092"].message == (
        "with rtol 0.01 and atol 0.01 the tests let 99.7% of the elements of out be zero, those that are zero apart "
        "(test.py:9)"
    )
    assert found["NKR092"].severity is Severity.note
    assert found["NKR095"].message == (
        "the tests would notice 4 of 6 mutants of the kernel; not: eps dropped"
    )
    few = findings(OwnEvidence(one(), zeros=(replace(zeros, share=0.4),), mutants=tuple(mutants[1:])))
    assert few == {}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("code", [rule.code for rule in RULES])
def test_examples(server: ForkServer, code: str, kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"{code}_{kind}.py"
    path.write_text((folder() / path.name).read_text())
    request = from_file(
        path,
        kernel=kind,
        reference=f"{path}:reference",
        inputs=(),
        inputs_from=f"{path}:inputs",
        target=None,
        nki=None,
        lnc=None,
        seed=7,
    )
    program = trace(request, request.workloads[0], server).program
    assert program is not None
    x = np.random.default_rng(7).standard_normal(program.buffer(program.parameter_buffers[0][1]).shape)
    x = x.astype(np.float32)
    wanted = x / np.sqrt(np.square(x.astype(np.float64)).sum(axis=1, keepdims=True) + 1e-6)
    tests = own_tests(gathered(path, kind), kind)
    assert tests.tests == ("test_rows_have_length_one",)
    own = evidence(tests, program, {program.parameter_buffers[0][1]: x}, [wanted])
    found = findings(own, program)
    if kind == "bad":
        assert code in found, own
    else:
        assert code not in found and {item.severity for item in found.values()} <= {Severity.note}, found
        assert found == {} or code in ("NKR091",), found
