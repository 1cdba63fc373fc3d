"""The building blocks of trainers' adapters: all that an adapter imports beside `judgekit`."""

from judgekit.config import RewardConfig, load_config
from judgekit.errors import did_you_mean
from judgekit.execution.background import background_loop, in_background, run_blocking
from judgekit.ledger.schema import Entry
from judgekit.metrics import Counts
from judgekit.reward.turns import turn_advantages
from judgekit.rollouts.rows import TRUTHS
from judgekit.trainers.audit_beside import AuditBeside
from judgekit.trainers.collector import GroupCollector
from judgekit.trainers.figures import figures_of, why_missing
from judgekit.trainers.hosted import DEADLINE_S, HostedRunner, hosted_runner, share_limits, without_fill
from judgekit.trainers.rollouts import fields_of_row, rollout_of, truth_of, turns_of_tokens
from judgekit.trainers.step_counts import StepCounts, check_failure_rate
from judgekit.trainers.token_rewards import TURN_ESTIMATOR, placed, turn_runs
from judgekit.trainers.versions import host_version
from judgekit.types import plain

__all__ = [
    "DEADLINE_S",
    "TRUTHS",
    "TURN_ESTIMATOR",
    "AuditBeside",
    "Counts",
    "Entry",
    "GroupCollector",
    "HostedRunner",
    "RewardConfig",
    "StepCounts",
    "background_loop",
    "check_failure_rate",
    "did_you_mean",
    "fields_of_row",
    "figures_of",
    "host_version",
    "hosted_runner",
    "in_background",
    "load_config",
    "placed",
    "plain",
    "rollout_of",
    "run_blocking",
    "share_limits",
    "truth_of",
    "turn_advantages",
    "turn_runs",
    "turns_of_tokens",
    "why_missing",
    "without_fill",
]
