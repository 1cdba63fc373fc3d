"""Tinker cookbook's own rollouts of a group."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from judgekit import MissingRewardError, Rollout

from .conftest import imported, missing

types = imported("tinker_cookbook.rl.types")
rollouts = imported("tinker_cookbook.rl.rollouts")
tinker = imported("tinker")
completers = imported("tinker_cookbook.completers")

from judgekit.bridges.tinker import Judged  # noqa: E402

ANSWERS = ("#### 4", "#### 5", "broken")


class Env(types.Env):  # type: ignore[misc]
    """One question, whose answer is the number of a text."""

    async def initial_observation(self) -> tuple[Any, list[int]]:
        return tinker.ModelInput.from_ints([1, 2, 3]), []

    async def step(self, action: list[int], *, extra: Any = None) -> Any:
        return types.StepResult(
            reward=0.5,
            episode_done=True,
            next_observation=tinker.ModelInput.from_ints([]),
            next_stop_condition=[],
        )

    def rollout(self, trajectory: Any) -> Rollout:
        (token,) = trajectory.transitions[0].ac.tokens
        return Rollout(prompt="2+2?", response=ANSWERS[token], ground_truth="4")


@dataclass(frozen=True)
class Builder(types.EnvGroupBuilder):  # type: ignore[misc]
    size: int = 3

    async def make_envs(self) -> Sequence[Env]:
        return [Env() for _ in range(self.size)]

    def logging_tags(self) -> list[str]:
        return ["sums"]


class Policy(completers.TokenCompleter):  # type: ignore[misc]
    """Says one text after another."""

    def __init__(self) -> None:
        self.said = 0

    async def __call__(self, model_input: Any, stop: Any, *, max_tokens: int | None = None) -> Any:
        self.said += 1
        return completers.TokensWithLogprobs(tokens=[(self.said - 1) % len(ANSWERS)], maybe_logprobs=[0.0])


async def test_a_group_is_paid_by_its_own_rollout_loop(reward: Path) -> None:
    judged = pickle.loads(pickle.dumps(Judged(Builder(), str(reward))))
    group = await rollouts.do_group_rollout(judged, Policy())
    assert group.get_total_rewards() == [1.5, 0.75, 1.125]  # the environment's 0.5 and ours
    assert [told["judgekit/missing"] for told in group.metrics_G] == [0, 0, 1]
    assert judged.logging_tags() == ["sums"]


async def test_a_missing_reward_that_ends_the_step_says_why(reward: Path) -> None:
    missing(reward, "raise")
    with pytest.raises(MissingRewardError, match="flaky"):
        await rollouts.do_group_rollout(Judged(Builder(), str(reward)), Policy())
