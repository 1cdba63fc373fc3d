"""Checks which verl is installed, and what it supports."""

from __future__ import annotations

import re
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from judgekit import ConfigError

OLDEST = (0, 4, 1)
"""The first verl with custom reward managers."""
AWAITS = (0, 7, 1)
"""From this version on, all of verl awaits reward functions that are coroutine functions."""
DROPS_NONE = (0, 9, 0)
"""From this version on, validation skips None in its means; earlier ones need numbers."""


@cache
def verl_version() -> tuple[int, ...]:
    """Return the installed verl's version. Raises ConfigError if it is missing or too old."""
    try:
        text = version("verl")
    except PackageNotFoundError:
        raise ConfigError(
            "judgekit_verl works inside verl, and verl is not installed here: pip install verl"
        ) from None
    found = tuple(int(part) for part in re.findall(r"\d+", text)[:3])
    if found < OLDEST:
        raise ConfigError(
            f"verl {text} does not support custom reward managers; judgekit_verl needs 0.4.1 or later"
        )
    return found


def awaits_scores() -> bool:
    """Whether the installed verl awaits a reward function that is a coroutine function."""
    try:
        return verl_version() >= AWAITS
    except ConfigError:
        return False
