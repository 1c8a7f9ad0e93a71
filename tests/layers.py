"""The layers of isolation that a test needs, and why a machine may lack them."""

from __future__ import annotations

import pytest

from nkireview.runner import Outcome

WHY = {
    "landlock": "needs Landlock (Linux 5.13 or newer, switched on) to keep files from a child process",
    "landlock signals": "needs Landlock of Linux 6.12 or newer to keep a child's signals from other processes",
    "no network": "needs unprivileged user namespaces, which this system does not give, to take the network away",
    "no capabilities": "needs to drop the capabilities of its children, which this system refuses",
    "memory": "needs RLIMIT_AS, which this system does not hold a process to",
    "subreaper": "needs PR_SET_CHILD_SUBREAPER, which Linux alone has, to find orphans",
}


def held(outcome: Outcome, *layers: str) -> None:
    """Skip the test where this machine lacks a layer; the outcome must then say so, with the system's reason."""
    for layer in layers:
        if layer not in outcome.held:
            reasons = [each for each in outcome.not_held if each.startswith(f"{layer}: ")]
            assert reasons
            pytest.skip(
                f"tests a layer of isolation that this machine lacks: {WHY[layer]}; it answers: {reasons[0]}"
            )
