"""verifiers 0.4 and later (`verifiers.v1`), and prime-rl through it.

By settings alone:

    rewards = {judgekit = {fn = "judgekit.bridges.verifiers:reward"}}        # and JUDGEKIT_REWARD=reward.yaml

A missing reward is an error of the trace, which prime-rl leaves out of its group's mean and of the loss. verifiers pays 0
where its own `timeout.scoring` expires: keep it above the runner's `deadline_s`. Rollouts come one at a time, so graders
of groups are refused.

Source: verifiers 0.4.0, verifiers/v1/configs/task.py, utils/loaders.py, rollout.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import verifiers.v1 as vf

from judgekit.bridges.bridge import bridge, figures, reward_file, value
from judgekit.trainers import fields_of_row
from judgekit.types import Rollout


async def reward(task: vf.TaskData, trace: vf.Trace) -> Mapping[str, float]:
    """Grade a trace; the reward by the name `judgekit`. Raises MissingRewardError."""
    (result,) = await bridge(reward_file(), grouped=False, can_exclude=True).grade(
        [rollout_of_trace(task, trace)]
    )
    for name, figure in figures(result).items():
        trace.record_metric(name, figure)
    return {"judgekit": value(result)}


def rollout_of_trace(task: vf.TaskData, trace: vf.Trace) -> Rollout:
    """Make a rollout of a trace's last branch. The reference is in one of the task's `judgekit.trainers.TRUTHS`."""
    messages = _plain(trace.branches[-1].messages) if trace.branches else []
    return Rollout(
        prompt=task.prompt if isinstance(task.prompt, str) else _plain(task.prompt or []),
        response=trace.last_reply or "",
        messages=messages,
        group=str(task.idx),
        id=str(trace.id),
        **fields_of_row(task.model_dump()),
    )


def _plain(messages: Any) -> list[dict[str, Any]]:
    return [message.model_dump(exclude_none=True) for message in messages]
