"""Which verl is installed, and what of this adapter fits it."""

from __future__ import annotations

import re
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from judgekit import ConfigError

OLDEST = (0, 4, 1)
"""The first verl in which a reward manager of one's own can be named."""
DROPS_NONE = (0, 9, 0)
"""From here on validation leaves None out of its means; before, only numbers survive it."""


@cache
def verl_version() -> tuple[int, ...]:
    """The installed verl's version as numbers. Raises ConfigError where there is none, or one too old."""
    try:
        text = version("verl")
    except PackageNotFoundError:
        raise ConfigError(
            "judgekit_verl works inside verl, and verl is not installed here: pip install verl"
        ) from None
    found = tuple(int(part) for part in re.findall(r"\d+", text)[:3])
    if found < OLDEST:
        raise ConfigError(
            f"verl {text} has no place for a reward manager of one's own; judgekit_verl needs 0.4.1 or later"
        )
    return found
