"""Tinker cookbook: the reward of a group, on top of another builder's environments.

    Judged(inner=MyBuilder(…), reward="reward.yaml")

The inner environments' own rewards are kept and added to. Each has a method `rollout(trajectory) -> judgekit.Rollout`. A missing
reward becomes the mean of its group; where all are missing, no advantage is left.

Source: tinker_cookbook 0.6.1, tinker_cookbook/rl/types.py (`EnvGroupBuilder`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tinker_cookbook.rl.types import EnvGroupBuilder

from judgekit.bridges.bridge import bridge, figures, reward_file, value


@dataclass(frozen=True)
class Judged(EnvGroupBuilder):  # type: ignore[misc]
    """Another builder's environments, with a judgekit reward for the whole group. Picklable: it holds a path."""

    inner: EnvGroupBuilder
    reward: str

    async def make_envs(self) -> Sequence[Any]:
        """Make the inner builder's environments."""
        return await self.inner.make_envs()  # type: ignore[no-any-return]

    async def compute_group_rewards(
        self, trajectory_group: Sequence[Any], env_group: Sequence[Any]
    ) -> list[tuple[float, dict[str, float]]]:
        """Return each trajectory's reward and figures. Raises MissingRewardError, FailureRateError."""
        own = await self.inner.compute_group_rewards(trajectory_group, env_group)
        rollouts = [
            env.rollout(trajectory) for env, trajectory in zip(env_group, trajectory_group, strict=True)
        ]
        results = await bridge(reward_file(self.reward), grouped=True).grade(rollouts)
        return [
            (paid + value(result), {**told, **figures(result)})
            for (paid, told), result in zip(own, results, strict=True)
        ]

    async def cleanup(self) -> None:
        """Clean up the inner builder's environments."""
        await self.inner.cleanup()

    def logging_tags(self) -> list[str]:
        """Return the inner builder's tags."""
        return self.inner.logging_tags()  # type: ignore[no-any-return]
