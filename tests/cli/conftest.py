"""A folder to run the command in, and what it prints."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from judgekit.cli import console

from .command import CONFIG, ROWS


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "reward.yaml").write_text(CONFIG)
    (tmp_path / "rollouts.jsonl").write_text("\n".join(map(json.dumps, ROWS)) + "\n\n")
    return tmp_path


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What is printed."""
    found = io.StringIO()
    monkeypatch.setattr(console.out, "_file", found)
    monkeypatch.setattr(console.out, "_width", 140)
    return found
