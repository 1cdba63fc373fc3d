"""AReaL: a reward function, and workflows that reject an episode without a reward.

    from areal.workflow.rlvr import RLVRWorkflow
    from judgekit.bridges.areal import rejecting, reward

    workflow = rejecting(RLVRWorkflow)(reward_fn=reward, …)                  # and JUDGEKIT_REWARD=reward.yaml

AReaL pays 0 for a reward that takes longer than its own 15 s (`AsyncRewardWrapper`), four times over. So a reward is missing
after `DEADLINE_S`, unless reward.yaml says otherwise (`runner.deadline_s`). Keep the judge's `layers.restart_wait_s` below that
limit as well, and for slower judges raise AReaL's `timeout_seconds` with the deadline.

Source: AReaL 1.0.4, areal/api/reward_api.py, areal/api/workflow_api.py.
"""

from __future__ import annotations

from typing import Any

from judgekit.bridges.bridge import bridge, reward_file, value
from judgekit.errors import MissingRewardError
from judgekit.trainers import rollout_of

DEADLINE_S = 12.0
"""Seconds for a reward, below AReaL's 15 s: a missing reward can be told from a 0."""


def reward(prompt: str, completions: str, prompt_ids: Any, completion_ids: Any, **data: Any) -> float:
    """Grade one completion, in a process of AReaL's pool. *data*: the row. Raises MissingRewardError."""
    rollout = rollout_of(
        data,
        prompt=prompt,
        turns=[{"role": "assistant", "content": completions}],
        response_tokens=len(completion_ids) if completion_ids is not None else None,
    )
    (result,) = bridge(reward_file(), grouped=False, can_exclude=True, deadline_s=DEADLINE_S).grade_sync(
        [rollout]
    )
    return value(result)


def rejecting(workflow: type) -> type:
    """Return a subclass of a RolloutWorkflow that rejects the episodes in which a reward is missing."""

    class Rejecting(workflow):  # type: ignore[misc]
        async def arun_episode(self, engine: Any, data: dict[str, Any]) -> Any:
            try:
                return await super().arun_episode(engine, data)
            except MissingRewardError:
                return None

    Rejecting.__name__ = Rejecting.__qualname__ = f"Rejecting{workflow.__name__}"
    return Rejecting
