"""The plugin that watches limits, on limits of our own."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from call_kit import Made, T
from limits_seen import KEY, Gathering, LimitsSeen

from nkireview.isa import limit as limits
from nkireview.isa.limit import AtMost, Check, DtypeIn, Equal, Limit
from nkireview.isa.table import row

COPY = row("tensor_copy")
SCOPE: dict[str, Any] = {"number": 900, "source": "guide.rst:1"}


@pytest.fixture(autouse=True)
def unwatched(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the plugin puts in place of each `breach` goes when the test ends."""
    for kind in vars(limits).values():
        if isinstance(kind, type) and issubclass(kind, Limit) and "breach" in vars(kind):
            monkeypatch.setattr(kind, "breach", vars(kind)["breach"])


def seen(*held: Limit) -> LimitsSeen:
    return LimitsSeen([replace(COPY, limits=held)])


def copy(*shape: int, **changes: Any) -> Any:
    made = Made("tensor_copy", {"dst": T(shape), "src": T(shape)})
    return made.changed(changes).view()


def test_a_limit_that_no_test_meets_is_named_twice() -> None:
    watch = seen(AtMost(**SCOPE, subject="src.free", bound=8))
    assert watch.unproved() == [
        "limit tensor_copy[0] 900 src.free is never tripped",
        "limit tensor_copy[0] 900 src.free is never kept just inside",
    ]


def test_a_bound_must_be_exceeded_and_met() -> None:
    limit = AtMost(**SCOPE, subject="src.free", bound=8)
    watch = seen(limit)
    assert limit.breach(copy(4, 9)) is not None
    assert watch.unproved() == ["limit tensor_copy[0] 900 src.free is never kept just inside"]
    assert limit.breach(copy(4, 7)) is None
    assert len(watch.unproved()) == 1, "7 is inside, but not just inside"
    assert limit.breach(copy(4, 8)) is None
    assert watch.unproved() == []


def test_a_limit_without_its_operands_is_not_kept() -> None:
    held = (
        DtypeIn(**SCOPE, operand="src", allowed=frozenset({"float32"})),
        Equal(**SCOPE, left="src.free", right="dst.free"),
        Check(**SCOPE, subject="src.start", find=lambda call: None),
        Check(**SCOPE, subject="engine.op", find=lambda call: None),
    )
    watch = seen(*held)
    for limit in held:
        assert limit.breach(copy(4, 8, src=None)) is None
    missing = [line for line in watch.unproved() if "kept" in line]
    assert [line.split()[1] for line in missing] == ["tensor_copy[0]", "tensor_copy[1]", "tensor_copy[2]"]
    for limit in held:
        assert limit.breach(copy(4, 8)) is None
    assert not [line for line in watch.unproved() if "kept" in line]


def test_a_call_out_of_scope_proves_nothing() -> None:
    limit = AtMost(**SCOPE, subject="src.free", bound=8, generations=frozenset({"v2"}))
    watch = seen(limit)
    limit.breach(copy(4, 9))
    assert len(watch.unproved()) == 2
    limit.breach(copy(4, 9, target="trn1"))
    assert watch.unproved() == ["limit tensor_copy[0] 900 src.free is never kept just inside"]


def run_of(args: list[str], **options: Any) -> Any:
    """A session that was asked for `args`."""
    config = SimpleNamespace(
        args=args,
        option=SimpleNamespace(**options),
        getini=lambda name: ["tests"] if name == "testpaths" else [],
    )
    return SimpleNamespace(config=config, exitstatus=pytest.ExitCode.OK)


@pytest.mark.parametrize(
    ("args", "options", "status"),
    [
        (["tests"], {}, pytest.ExitCode.TESTS_FAILED),
        (["tests/test_verify.py"], {}, pytest.ExitCode.OK),
        (["tests"], {"keyword": "dma"}, pytest.ExitCode.OK),
        (["tests"], {"maxfail": 1}, pytest.ExitCode.OK),
    ],
)
def test_only_a_whole_run_fails(args: list[str], options: dict[str, Any], status: pytest.ExitCode) -> None:
    gathering = Gathering(seen(AtMost(**SCOPE, subject="src.free", bound=8)))
    session = run_of(args, **options)
    gathering.pytest_sessionfinish(session, pytest.ExitCode.OK)
    assert session.exitstatus == status
    lines: list[str] = []
    reporter = SimpleNamespace(write_line=lambda line, red: lines.append(line))
    gathering.pytest_terminal_summary(reporter, session.config)
    assert bool(lines) is (status != pytest.ExitCode.OK)


def test_workers_hand_over_what_they_saw() -> None:
    limit = AtMost(**SCOPE, subject="src.free", bound=8)
    gathering = Gathering(seen(limit))
    limit.breach(copy(4, 9))
    worker = run_of(["tests"])
    worker.config.workeroutput = {}
    gathering.pytest_sessionfinish(worker, pytest.ExitCode.OK)
    assert worker.exitstatus == pytest.ExitCode.OK
    assert list(worker.config.workeroutput[KEY]) == ["tensor_copy[0] 900 src.free"]

    controller = LimitsSeen([replace(COPY, limits=(limit,))])
    gathering = Gathering(controller)
    for node in (SimpleNamespace(workeroutput=worker.config.workeroutput), SimpleNamespace(workeroutput={})):
        gathering.pytest_testnodedown(node, None)
    assert controller.unproved() == ["limit tensor_copy[0] 900 src.free is never kept just inside"]
