"""Environments and graders that are loaded by path."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from skyrl_gym.envs.base_text_env import BaseTextEnv

from judgekit import GradingRunner, JudgeUnavailable, Rollout, grader, group_grader
from judgekit.graders import FinalAnswer


@grader
async def flaky(rollout: Rollout) -> float:
    await asyncio.sleep(0.001)
    if "down" in rollout.response:
        raise JudgeUnavailable("the judge is down")
    return 1.0 if "good" in rollout.response else 0.0


@grader
async def hangs(rollout: Rollout) -> float:
    if "hang" in rollout.response:
        await asyncio.sleep(3600)
    return 1.0


@group_grader
async def longest(rollouts: Sequence[Rollout]) -> list[float]:
    lengths = [len(r.response) for r in rollouts]
    return [sum(x > y for y in lengths) / (len(lengths) - 1) for x in lengths]


def right() -> GradingRunner:
    return GradingRunner({"correct": FinalAnswer()}, missing_reward=-1.0)


class Guessing(BaseTextEnv):  # type: ignore[misc]
    """Three turns: the policy guesses, the environment pays a tenth for each guess and says so."""

    def __init__(self, env_config: Any = None, extras: Any = None, turns: int = 3) -> None:
        super().__init__()
        self.max_turns = turns
        self.extras = extras

    def step(self, action: str) -> dict[str, Any]:
        self.turns += 1
        done = self.turns >= self.max_turns
        observations = [] if done else [{"role": "user", "content": f"not {action}"}]
        return {"observations": observations, "reward": 0.1, "done": done, "metadata": {}}

    def get_metrics(self) -> dict[str, Any]:
        return {"guesses_mean": float(self.turns)}


class Searching(BaseTextEnv):  # type: ignore[misc]
    """A tool environment in the manner of SkyRL's: what its tool finds comes as a user's message."""

    def __init__(self, env_config: Any = None, extras: Any = None) -> None:
        super().__init__()
        self.tool_groups = ["a tool group"]

    def step(self, action: str) -> dict[str, Any]:
        done = "<answer>" in action
        found = [] if done else [{"role": "user", "content": "found: the tower has 7 floors and 3 doors"}]
        return {"observations": found, "reward": 0.0, "done": done, "metadata": {}}


@grader
async def digits(rollout: Rollout) -> float:
    """Share of digits, by a judge that takes its time."""
    await asyncio.sleep(0.005)
    if "judge" in _DOWN:
        raise JudgeUnavailable("the judge is down")
    return sum(c in "0123456789" for c in rollout.response) / max(1, len(rollout.response))


_DOWN: set[str] = set()


def set_judge(down: bool) -> None:
    """Take the judge down, or bring it back."""
    (_DOWN.add if down else _DOWN.discard)("judge")
