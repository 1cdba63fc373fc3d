"""A reward.yaml with a grader that fails where a response says `broken`."""

from __future__ import annotations

import importlib
import importlib.util
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from judgekit.bridges import bridge

PLANTED = """
from judgekit import JudgeUnavailable, grader

@grader
def flaky(rollout):
    if "broken" in rollout.response:
        raise JudgeUnavailable("planted")
    return 1.0
"""

REWARD = """
graders:
  correct: {use: final_answer}
  flaky: {use: "MODULE:flaky"}
reward: {weighted: {correct: 0.75, flaky: 0.25}}
"""


@pytest.fixture
def reward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The path of the file, which JUDGEKIT_REWARD names as well."""
    module = f"planted_{uuid.uuid4().hex}"
    (tmp_path / f"{module}.py").write_text(PLANTED)
    path = tmp_path / "reward.yaml"
    path.write_text(REWARD.replace("MODULE", module))
    monkeypatch.setenv("JUDGEKIT_REWARD", str(path))
    yield path
    bridge._bridges.clear()


def imported(module: str) -> Any:
    """Import a trainer's module. Skips the tests only where its package is not installed: `make test-trl` has them."""
    package = module.partition(".")[0]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed", allow_module_level=True)
    return importlib.import_module(module)


def missing(path: Path, setting: str) -> None:
    """Write a setting for missing rewards into the file."""
    path.write_text(f"{path.read_text()}runner: {{missing_reward: {setting}}}\n")
