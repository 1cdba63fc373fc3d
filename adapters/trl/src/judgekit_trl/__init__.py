"""judgekit in TRL.

    from judgekit_trl import judgekit_reward

    GRPOTrainer(..., reward_funcs=judgekit_reward("reward.yaml"))       # RLOOTrainer takes it too

`judgekit_terms("reward.yaml")` are its terms as reward functions of their own, for TRL's GDPO.

Imports nothing of TRL: a reward function is called with all that it needs.
"""

from judgekit_trl.reward import judgekit_reward
from judgekit_trl.terms import judgekit_terms

__all__ = ["judgekit_reward", "judgekit_terms"]
