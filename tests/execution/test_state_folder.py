"""Where state is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from judgekit.execution.state_folder import state_folder


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"JUDGEKIT_STATE": "/state", "XDG_CACHE_HOME": "/cache"}, Path("/state")),
        ({"XDG_CACHE_HOME": "/cache"}, Path("/cache/judgekit")),
        ({"JUDGEKIT_STATE": "", "XDG_CACHE_HOME": "/cache"}, Path("/cache/judgekit")),
        ({"HOME": "/home/u"}, Path("/home/u/.cache/judgekit")),
    ],
)
def test_state_is_where_the_environment_says(
    environment: dict[str, str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("JUDGEKIT_STATE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert state_folder() == folder
