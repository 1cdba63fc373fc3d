"""Checks which verl is installed, and what it supports."""

from __future__ import annotations

import math

from judgekit import ConfigError
from judgekit.trainers import host_version

OLDEST = (0, 4, 1)
"""The first verl with custom reward managers."""
AWAITS = (0, 7, 1)
"""From this version on, all of verl awaits reward functions that are coroutine functions."""
DROPS_NONE = (0, 9, 0)
"""From this version on, validation skips None in its means; earlier ones need numbers."""


def verl_version() -> tuple[int, ...]:
    """Return the installed verl's version. Raises ConfigError if it is missing or too old."""
    return host_version(
        "verl", OLDEST, adapter="judgekit_verl", name="verl", lacks="does not support custom reward managers"
    )


def no_score() -> float | None:
    """What stands in verl's columns for a score that there is not."""
    return None if verl_version() >= DROPS_NONE else math.nan


def awaits_scores() -> bool:
    """Whether the installed verl awaits a reward function that is a coroutine function."""
    try:
        return verl_version() >= AWAITS
    except ConfigError:
        return False
