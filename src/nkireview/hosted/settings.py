"""What a launch is judged for: target and release from the environment, read anew at each launch."""

from __future__ import annotations

import os
from dataclasses import dataclass

from nkireview import hardware
from nkireview.isa.release import LATEST, Release
from nkireview.nki.errors import Refusal

OVERRIDE = "NEURON_PLATFORM_TARGET_OVERRIDE"
NC_VERSION = "NKI_NC_VERSION"
TARGET = "NKIREVIEW_TARGET"
RELEASE = "NKIREVIEW_NKI"
DEBUG = "NKIREVIEW_DEBUG"
STRICT = "NKIREVIEW_STRICT"
PRECISE = "NKI_PRECISE_FP"
DEFAULT_TARGET = "trn2"
_WORDS = {
    "trn1": ("trn1", "trn1n", "gen2"),
    "inf2": ("inf2",),
    "trn2": ("trn2", "trn2n", "gen3"),
    "trn3": ("trn3", "trn3pre", "gen4"),
}
_GENERATIONS = {word: target for target, words in _WORDS.items() for word in words}


@dataclass(frozen=True)
class Settings:
    """Target and release.

    debug: values are shown while the kernel is traced. strict: every breach of a limit raises. precise: True,
    each result is rounded to the dtype of its buffer; False, nothing is rounded, and floats come back as float32; None,
    not said: what a call of the legacy generation returns stays float32 until it is assigned to a declared tile.
    """

    target: str
    release: Release
    debug: bool = False
    strict: bool = False
    precise: bool | None = None


def settings(decorated: str | None = None) -> Settings:
    """The settings of this moment.

    The target is that of NEURON_PLATFORM_TARGET_OVERRIDE, else NKI_NC_VERSION, else --target, else the decorator's
    (platform_target=, before NKI 0.3), else trn2; each takes trn1, inf2, trn2, trn3 or gen2, gen3, gen4. Raise
    Refusal for any other word.
    """
    return Settings(
        target=_target(decorated),
        release=_release(),
        debug=os.environ.get(DEBUG) == "1",
        strict=os.environ.get(STRICT) == "1",
        precise={"0": False, "1": True}.get(os.environ.get(PRECISE, "")),
    )


def _target(decorated: str | None) -> str:
    words = {variable: os.environ.get(variable, "") for variable in (OVERRIDE, NC_VERSION, TARGET)}
    words["platform_target"] = decorated or ""
    for variable, given in words.items():
        word = given.strip().lower()
        if word:
            if word not in _GENERATIONS:
                expected = ", ".join(("trn1", "inf2", "trn2", "trn3", "gen2", "gen3", "gen4"))
                raise Refusal(f"{variable} is {word!r}, expected one of {expected}")
            return hardware.target(_GENERATIONS[word]).name
    return DEFAULT_TARGET


def _release() -> Release:
    word = os.environ.get(RELEASE, "")
    return Release.parse(word) if word else LATEST
