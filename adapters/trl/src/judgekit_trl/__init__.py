"""judgekit in TRL.

    from judgekit_trl import judgekit_reward

    GRPOTrainer(..., reward_funcs=judgekit_reward("reward.yaml"))       # RLOOTrainer takes it too

Imports nothing of TRL: a reward function is called with all that it needs.
"""

from judgekit_trl.reward import judgekit_reward

__all__ = ["judgekit_reward"]
