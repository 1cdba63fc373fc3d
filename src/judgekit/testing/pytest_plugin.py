"""The pytest plug-in: the fixture `judgekit_reward`, and rewards that explain themselves when an assertion fails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from judgekit.attack.tested import TestedReward
    from judgekit.judges.layers.recording import Recording


_RECORDED: pytest.StashKey[dict[Path, Recording]] = pytest.StashKey()
"""The recordings that this session has begun."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--judgekit-record`."""
    parser.getgroup("judgekit").addoption(
        "--judgekit-record",
        action="store_true",
        help="ask the judges of reward.yaml, and keep their replies in the recordings that tests name",
    )


@pytest.fixture
def judgekit_reward(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Make a reward that can be tested: `judgekit_reward("reward.yaml", judges={"local": ScriptedJudge(…)})`.

    Takes what `judgekit.attack.tested.TestedReward` takes, and closes what it has started after the test.
    """
    from judgekit.attack.tested import TestedReward

    made: list[TestedReward] = []
    begun = None
    if request.config.getoption("--judgekit-record"):
        begun = request.config.stash.setdefault(_RECORDED, {})

    def make(reward: Any, **options: Any) -> TestedReward:
        made.append(TestedReward(reward, record=begun, **options))
        return made[-1]

    yield make
    for reward in made:
        reward.close()


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """Show the reward trees of both sides of a comparison that does not hold."""
    explained = [getattr(type(side), "__judgekit_explain__", None) for side in (left, right)]
    if not any(explained):
        return None
    lines = [f"{_short(left)} {op} {_short(right)}"]
    for side, explain in zip((left, right), explained, strict=True):
        if explain is not None:
            lines += explain(side).split("\n")  # pytest shows some ten lines, and the rest with -vv
    return lines


def _short(side: object) -> str:
    return str(side) if hasattr(type(side), "__judgekit_explain__") else repr(side)
