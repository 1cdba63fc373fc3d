"""A folder to run the command in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .command import CONFIG, ROWS


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "reward.yaml").write_text(CONFIG)
    (tmp_path / "rollouts.jsonl").write_text("\n".join(map(json.dumps, ROWS)) + "\n\n")
    return tmp_path
