"""judgekit: rewards for RL post-training, from rules and frozen local judges.

Rollouts go in, rewards come out, with an account of how each came about. A failure is never a number.
"""

from judgekit._version import __version__
from judgekit.errors import (
    ConfigError,
    DataError,
    FailureRateError,
    JudgeError,
    JudgekitError,
    JudgeRejected,
    JudgeTimeout,
    JudgeUnavailable,
    MissingRewardError,
    RolloutError,
    VerdictError,
)
from judgekit.grader import Grader, GroupGrader, Mapped, grader, group_grader
from judgekit.grouping import group_by_prompt
from judgekit.ledger import Ledger, read_ledger
from judgekit.limits import Retry
from judgekit.reward import Clip, Const, Fallback, Gate, Max, Min, Product, Score, Weighted
from judgekit.runner import GradingRunner
from judgekit.types import Abstained, Failed, Grade, Graded, RewardResult, Rollout, Skipped, Usage

__all__ = [
    "Abstained",
    "Clip",
    "ConfigError",
    "Const",
    "DataError",
    "Failed",
    "FailureRateError",
    "Fallback",
    "Gate",
    "Grade",
    "Graded",
    "Grader",
    "GradingRunner",
    "GroupGrader",
    "JudgeError",
    "JudgeRejected",
    "JudgeTimeout",
    "JudgeUnavailable",
    "JudgekitError",
    "Ledger",
    "Mapped",
    "Max",
    "Min",
    "MissingRewardError",
    "Product",
    "Retry",
    "RewardResult",
    "Rollout",
    "RolloutError",
    "Score",
    "Skipped",
    "Usage",
    "VerdictError",
    "Weighted",
    "__version__",
    "grader",
    "group_by_prompt",
    "group_grader",
    "read_ledger",
]
