"""judgekit: rewards for RL post-training, from rules and frozen local judges.

Rollouts go in, rewards come out, with an account of how each came about. A failure is never a number.
"""

from judgekit.errors import (
    AuditAlarm,
    ConfigError,
    DataError,
    FailureRateError,
    JudgeError,
    JudgekitError,
    JudgeLoading,
    JudgeRejected,
    JudgeTimeout,
    JudgeUnavailable,
    MissingRewardError,
    RolloutError,
    VerdictError,
)
from judgekit.execution.limits import Retry
from judgekit.graders.function import Mapped, grader, group_grader
from judgekit.graders.protocol import Grader, GroupGrader
from judgekit.graders.reward_functions import from_function
from judgekit.ledger.reader import read_ledger
from judgekit.ledger.writer import Ledger
from judgekit.reward.gates import Gate, flat, share, spread
from judgekit.reward.nodes import (
    Clip,
    Const,
    Fallback,
    Max,
    Min,
    Product,
    Score,
    Switch,
    Turns,
    Weighted,
)
from judgekit.run.grouping import group_by_prompt
from judgekit.run.runner import GradingRunner
from judgekit.types import Abstained, Failed, Grade, Graded, RewardResult, Rollout, Skipped, Usage
from judgekit.version import __version__

__all__ = [
    "Abstained",
    "AuditAlarm",
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
    "JudgeLoading",
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
    "Switch",
    "Turns",
    "Usage",
    "VerdictError",
    "Weighted",
    "__version__",
    "flat",
    "from_function",
    "grader",
    "group_by_prompt",
    "group_grader",
    "read_ledger",
    "share",
    "spread",
]
