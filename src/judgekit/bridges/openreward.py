"""OpenReward (ORS): rewards for an environment.

    class Sums(JudgeKitRewards, Environment):
        reward = "reward.yaml"                 # or JUDGEKIT_REWARD

        def rollout(self, text): return Rollout(prompt=…, response=text, ground_truth=self.task_spec["answer"])

        @terminal
        @tool
        async def answer(self, args: Answer) -> ToolOutput:
            return await self.graded(args.answer)

The tool's reward is null where it is missing. `score_group`, for clients that score a prompt's candidates together, is there
as well; a missing reward is the mean of its group, for the protocol knows only numbers there.

Source: openreward 0.1.167, openreward/environments.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from openreward.environments import GroupScore, TextBlock, ToolOutput

from judgekit.bridges.bridge import bridge, figures, reward_file, value
from judgekit.types import RewardResult, Rollout


class JudgeKitRewards:
    """Adds `graded` and `score_group` to an environment that says how a text becomes a rollout."""

    reward: ClassVar[str] = ""

    def rollout(self, text: str) -> Rollout:
        """Make the rollout of an answer to this session's task."""
        raise NotImplementedError

    async def graded(self, text: str) -> ToolOutput:
        """Grade an answer, which ends the session."""
        (result,) = await bridge(reward_file(self.reward), grouped=False, can_exclude=True).grade(
            [self.rollout(text)]
        )
        return ToolOutput(
            blocks=[TextBlock(text="")],
            reward=result.reward,
            finished=True,
            metadata=_told(result),
        )

    async def score_group(self, candidates: Sequence[Any]) -> list[GroupScore]:
        """Grade a task's candidates together, by their last messages."""
        texts = ["".join(b.text for b in c.messages[-1].blocks if b.type == "text") for c in candidates]
        results = await bridge(reward_file(self.reward), grouped=True).grade(
            [self.rollout(text) for text in texts]
        )
        return [GroupScore(reward=value(result), metadata=_told(result)) for result in results]


def _told(result: RewardResult) -> dict[str, Any]:
    turns = {"turns": list(result.turns)} if result.turns else {}
    return {"status": result.status, **figures(result), **turns}
