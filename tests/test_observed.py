"""Functions called with each step kept: what is kept, and that nothing else changes."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nkireview import observed
from nkireview.observed import INPUT, RESULT, VIEW, Observation, observe


def softmax(x):
    x = np.asarray(x, np.float64)
    weights = np.exp(x - x.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    return weights


def names(found: list[Observation]) -> list[str]:
    return [each.name for each in found]


def test_each_step_is_kept_with_its_values_and_its_line() -> None:
    x = np.array([[0.0, np.log(3.0)], [np.log(2.0), 0.0]])
    result, found = observe(softmax, [x], {})
    assert names(found) == [INPUT, "maximum", "subtract", "exp", "add", "divide", RESULT]
    np.testing.assert_allclose(found[3].values, [[1 / 3, 1], [1, 0.5]])
    np.testing.assert_allclose(found[4].values, [[4 / 3], [1.5]])
    np.testing.assert_allclose(result, [[0.25, 0.75], [2 / 3, 1 / 3]])
    assert type(result) is np.ndarray
    first = softmax.__code__.co_firstlineno
    assert [each.line - first for each in found[1:-1]] == [2, 2, 2, 3, 3]
    assert found[4].text == "weights /= weights.sum(axis=1, keepdims=True)"
    assert found[0].line == 0 and found[0].text == ""


def test_steps_know_what_they_read_through_views_and_changes_in_place() -> None:
    _, found = observe(softmax, [np.ones((2, 3))], {})
    assert [each.reads for each in found] == [(), (0,), (0, 1), (2,), (3,), (3, 4), (5,)]

    def halves(x):
        low, high = x[:, :2], x.T[2:].T
        return np.concatenate([low * high, high], axis=1)

    _, found = observe(halves, [np.arange(8.0).reshape(2, 4)], {})
    assert [each.values.tolist() for each in found[1:3]] == [[[0, 1], [4, 5]], [[2, 3], [6, 7]]]
    assert [(each.name, each.reads) for each in found[1:]] == [
        (VIEW, (0,)),
        (VIEW, (0,)),
        ("multiply", (1, 2)),
        ("concatenate", (3, 2)),
        (RESULT, (4,)),
    ]


def test_values_are_those_of_their_time() -> None:
    def twice(x):
        y = x + 1.0
        y *= 2.0
        y[0] = 9.0
        return y

    result, found = observe(twice, [np.zeros(2)], {})
    assert [each.values.tolist() for each in found] == [[0, 0], [1, 1], [2, 2], [9, 2]]
    assert result.tolist() == [9, 2]


def test_what_is_given_and_returned_may_be_nested() -> None:
    def both(pair, *, scale):
        return {"sum": pair[0] + pair[1], "other": [pair[0] * scale, 3]}

    result, found = observe(both, [(np.ones(2), np.full(2, 2.0))], {"scale": 4.0})
    assert result["sum"].tolist() == [3, 3] and result["other"][0].tolist() == [4, 4]
    assert type(result["sum"]) is type(result["other"][0]) is np.ndarray and result["other"][1] == 3
    assert names(found) == [INPUT, INPUT, "add", "multiply", RESULT, RESULT]


def test_functions_of_numpy_are_one_step() -> None:
    def mean(x):
        return np.mean(np.where(x > 1, x, 0.0), axis=0), np.linalg.norm(x), np.add.accumulate(x)

    _, found = observe(mean, [np.array([1.0, 2.0])], {})
    assert names(found)[1:6] == ["greater", "where", "mean", "norm", "add.accumulate"]
    assert found[3].values == 1.0 and found[4].values == pytest.approx(5**0.5)


def test_numpy_is_itself_again_whatever_happens() -> None:
    def fails(x):
        assert np.asarray is not sys.modules["numpy"].asarray
        raise KeyError("no such thing")

    with pytest.raises(KeyError, match="no such thing"):
        observe(fails, [np.ones(2)], {})
    assert np is sys.modules["numpy"]


def test_no_more_is_kept_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observed, "ELEMENTS", 7)

    def thrice(x):
        return ((x + 1.0) * 2.0) - 3.0

    result, found = observe(thrice, [np.zeros(3)], {})
    assert names(found) == [INPUT, "add"] and result.tolist() == [-1, -1, -1]


def test_what_numpy_does_not_do_is_not_seen() -> None:
    def python(x):
        return float(x[0]) + 1.0

    result, found = observe(python, [np.ones(2)], {})
    assert result == 2.0 and names(found) == [INPUT]


@given(
    st.lists(st.sampled_from(["add", "mul", "exp", "sum", "where", "in place", "slice", "at"]), max_size=8),
    st.integers(0, 2**32 - 1),
)
def test_the_result_is_that_of_the_function(steps: list[str], seed: int) -> None:
    def chained(x):
        y = np.array(x)
        for each in steps:
            if each == "add":
                y = y + x
            elif each == "mul":
                y = np.multiply(y, 0.5)
            elif each == "exp":
                y = np.exp(-np.abs(y))
            elif each == "sum":
                y = y / (1 + y.sum(axis=1, keepdims=True) ** 2)
            elif each == "where":
                y = np.where(y > 0, y, x)
            elif each == "in place":
                y -= 0.25
            elif each == "slice":
                y = np.concatenate([y[:, 2:], y[:, :2]], axis=1)
            else:
                np.add.at(y, ([0, 0], [1, 1]), 1.0)
        return y

    x = np.random.default_rng(seed).standard_normal((3, 4))
    kept = x.copy()
    result, found = observe(chained, [x], {})
    np.testing.assert_array_equal(result, chained(kept.copy()))
    np.testing.assert_array_equal(x, kept)
    np.testing.assert_array_equal(found[-1].values, result)
    assert found[-1].name == RESULT
