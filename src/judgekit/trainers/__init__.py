"""What trainers' adapters are made of; all that an adapter imports beside `judgekit`."""

from judgekit.config import RewardConfig, load_config
from judgekit.errors import did_you_mean
from judgekit.execution.background import background_loop, run_blocking
from judgekit.ledger.schema import Entry
from judgekit.metrics import Counts
from judgekit.trainers.collector import GroupCollector
from judgekit.trainers.hosted import HostedRunner, check_failure_rate, hosted_runner

__all__ = [
    "Counts",
    "Entry",
    "GroupCollector",
    "HostedRunner",
    "RewardConfig",
    "background_loop",
    "check_failure_rate",
    "did_you_mean",
    "hosted_runner",
    "load_config",
    "run_blocking",
]
