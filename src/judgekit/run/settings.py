"""A runner's settings, and the plan that all its runs share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import msgspec
from msgspec import Struct

from judgekit.errors import ConfigError, did_you_mean
from judgekit.execution.limits import NO_RETRY, Limit, Limiter, Retry, RetryBudget, check_limit
from judgekit.execution.pool import ProcessPool
from judgekit.ledger.schema import Spec
from judgekit.ledger.writer import Ledger
from judgekit.metrics import SIGNAL_LIMITS, Metrics, SignalLimits
from judgekit.reward.conditions import is_finite
from judgekit.reward.dropping import DropIf
from judgekit.reward.nodes import Weighted
from judgekit.reward.transforms import TransformName
from judgekit.reward.tree import RewardTree
from judgekit.run.bound_grader import BoundGrader, Deciders, QueueLimit, under

MissingReward = Literal["exclude", "neutral", "mask", "raise"] | float
"""What a rollout without a reward gets.

"exclude": no reward and no part in its group's statistics. "neutral": the mean of its group's valid rewards.
"mask": no reward, for hosts that mask its loss. "raise": a MissingRewardError. Or a number.
"""


class Settings(Struct, frozen=True, kw_only=True):
    """The options of GradingRunner, checked. Raises ConfigError."""

    max_concurrency: Limit = "auto"
    """Evaluations in flight in one run. "auto": as many of each judge's as it is sent calls at once, 32 of other graders that wait,
    and as many of those in worker processes as there are workers."""
    timeout_s: float = 60.0
    """Seconds for one evaluation with its retries, from its start."""
    deadline_s: float | None = None
    """Seconds for one run. Grades that are missing by then have failed; the others count."""
    start_timeout_s: float = 900.0
    """Seconds that judges and graders may take to load. Never charged to a rollout."""
    transform: TransformName = "none"
    """See `judgekit.reward.transforms`. None in a validation (tag `phase`: "eval")."""
    missing_reward: MissingReward = "exclude"
    drop_if: str | None = None
    """A condition on the rewards of a group, before transforms and fills, such as "spread(reward) < 0.02": groups that meet it
    are left out, and counted; none in a validation (tag `phase`: "eval"). See `judgekit.reward.dropping`."""
    max_failure_rate: float | None = None
    """Share (0..1) of one grader's evaluations that may fail for infrastructure causes before a run raises
    FailureRateError; at least 16 evaluations are assumed, unless all of several failed."""
    retry: Retry = NO_RETRY
    """For graders that raise retryable errors; judges retry in their own layer."""
    signals: SignalLimits = SIGNAL_LIMITS
    """When to warn of a reward that looks hacked or exhausted; see `judgekit.metrics.signals`."""

    def __post_init__(self) -> None:
        check_limit(self.max_concurrency)
        for name in ("timeout_s", "deadline_s", "start_timeout_s"):
            value = getattr(self, name)
            if not ((value is None and name == "deadline_s") or (is_finite(value) and value > 0)):
                raise ConfigError(f"{name} is a number of seconds above 0, not {value!r}")
        transforms = get_args(TransformName)
        if self.transform not in transforms:
            raise ConfigError(
                f"no group transform is called {self.transform!r}{did_you_mean(str(self.transform), transforms)}"
            )
        words = get_args(get_args(MissingReward)[0])
        if not (self.missing_reward in words or is_finite(self.missing_reward)):
            raise ConfigError(
                f"missing_reward is {', '.join(map(repr, words))} or a finite number, not {self.missing_reward!r}"
            )
        if self.drop_if is not None:
            DropIf(self.drop_if)
        rate = self.max_failure_rate
        if rate is not None and not (is_finite(rate) and 0 <= rate < 1):
            raise ConfigError(f"max_failure_rate is a share from 0 to below 1, not {rate!r}")
        check_kind("signals", self.signals, SignalLimits, "SignalLimits(length=0.4)")
        check_kind("retry", self.retry, Retry, "Retry(attempts=3)")


class Plan(Struct, frozen=True, kw_only=True):
    """What all runs of a runner share. None of it belongs to an event loop."""

    settings: Settings
    graders: Sequence[BoundGrader]
    """In the order in which they are asked: rules before judges."""
    by_key: Mapping[str, BoundGrader]
    """Graders by the names of their grades."""
    by_name: Mapping[str, BoundGrader]
    deciders: Mapping[str, Deciders]
    """Of each group grader, by its name."""
    queues: Sequence[QueueLimit]
    """See `judgekit.run.bound_grader.assign_queues`."""
    tree: RewardTree
    budget: RetryBudget
    limits: Mapping[str, Sequence[Limiter]]
    """Limits that all runs share, by the grader's name; see `GradingRunner.with_settings`."""
    pool: ProcessPool
    ledger: Ledger | None
    spec: Spec
    metrics: Metrics
    progress: bool
    places: Sequence[QueueLimit] = ()
    """The queues' limits under the run's own."""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "places", under(self.queues, self.settings.max_concurrency))
        if self.settings.transform == "gdpo" and not isinstance(self.tree.root, Weighted):
            raise ConfigError(
                "transform 'gdpo' normalises the terms of a Weighted, so the reward's root must be one"
            )


def check_kind(name: str, value: Any, kind: Any, example: str) -> None:
    """Raise ConfigError if the argument *name* is not a *kind*."""
    if not isinstance(value, kind):
        raise ConfigError(f"{name} is an object such as {example}, not {value!r:.80}")
