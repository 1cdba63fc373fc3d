"""Where judgekit keeps what outlives a process."""

from __future__ import annotations

import os
from pathlib import Path


def state_folder() -> Path:
    """Where judgekit keeps state and logs: $JUDGEKIT_STATE, or its folder in the user's cache."""
    given = os.environ.get("JUDGEKIT_STATE")
    return (
        Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "judgekit"
    )
