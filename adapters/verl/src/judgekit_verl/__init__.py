"""judgekit in verl.

    reward.reward_manager.source=importlib
    reward.reward_manager.module.path=pkg://judgekit_verl
    reward.reward_manager.name=JudgeKitRewardManager
    +actor_rollout_ref.rollout.agent.agent_loop_manager_class=judgekit_verl.JudgeKitAgentLoopManager
    +reward.reward_kwargs.judgekit_config=/path/to/reward.yaml

Names are loaded on first use, because verl imports this package while verl itself is being imported.
"""

from __future__ import annotations

import importlib
from typing import Any

_NAMES = {
    "JudgeKitRewardManager": "judgekit_verl.manager",
    "JudgeKitAgentLoopManager": "judgekit_verl.group",
    "JudgeKitLegacyRewardManager": "judgekit_verl.legacy",
    "JudgeKitReplayBuffer": "judgekit_verl.curves",
    "RewardSample": "judgekit_verl.openjudge",
    "SampleResult": "judgekit_verl.openjudge",
    "compute_score": "judgekit_verl.scores",
    "compute_score_async": "judgekit_verl.scores",
    "compute_score_batched": "judgekit_verl.scores",
    "compute_score_blocking": "judgekit_verl.scores",
    "join_dump": "judgekit_verl.trace",
}

__all__ = sorted(_NAMES)


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'judgekit_verl' has no attribute {name!r}")
    if name.startswith("JudgeKit"):
        from judgekit_verl.versions import verl_version

        verl_version()  # raises now if verl is missing or too old
        importlib.import_module("verl")  # whose plug-ins import ours, in their order
    try:
        module = importlib.import_module(_NAMES[name])
    except ModuleNotFoundError as error:
        if name != "JudgeKitRewardManager" or "reward_loop" not in str(error.name):
            raise
        return __getattr__("JudgeKitLegacyRewardManager")  # a verl from before the reward loop
    return getattr(module, name)
