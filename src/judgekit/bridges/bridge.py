"""The runner behind a function that a trainer calls."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any

from judgekit.errors import ConfigError, MissingRewardError
from judgekit.fork import in_child, leave_to_parent
from judgekit.metrics import Counts
from judgekit.trainers import (
    StepCounts,
    figures_of,
    hosted_runner,
    in_background,
    run_blocking,
    why_missing,
    without_fill,
)
from judgekit.types import RewardResult, Rollout

VARIABLE = "JUDGEKIT_REWARD"


class Bridge:
    """Grades rollouts from any thread and event loop of the process, all by one runner.

    *reward*: path of a reward.yaml. *grouped*: whether a call brings all rollouts of a prompt; else each stands alone,
    and graders of groups are refused. *can_mask*: whether the trainer can leave a rollout out of its loss; *can_exclude*: whether
    it can be told that there is no reward. Raises ConfigError.
    """

    def __init__(
        self,
        reward: str,
        *,
        grouped: bool,
        can_mask: bool = False,
        can_exclude: bool = False,
    ) -> None:
        hosted = hosted_runner(
            config=reward,
            grouped=grouped,
            can_mask=can_mask,
            can_exclude=can_exclude,
            grouping_hint="use a trainer that hands over groups, or the reward service",
        )
        self._runner = hosted.runner
        self.numbers = hosted.numbers
        self.weights, self.term_numbers = hosted.weights, hosted.term_numbers
        self._steps = StepCounts(hosted.max_failure_rate)

    async def grade(self, rollouts: Sequence[Rollout]) -> Sequence[RewardResult]:
        """Grade a prompt's rollouts, or one rollout. Raises FailureRateError, MissingRewardError."""
        (results,) = await in_background(self._grade, [rollouts])
        return results

    def grade_sync(self, rollouts: Sequence[Rollout]) -> Sequence[RewardResult]:
        """As `grade`, for trainers that call from a thread."""
        (results,) = self.grade_groups([rollouts])
        return results

    def grade_groups(self, groups: Sequence[Sequence[Rollout]]) -> Sequence[Sequence[RewardResult]]:
        """As `grade_sync`, for the rollouts of many prompts at once."""
        return run_blocking(self._grade(groups))

    async def _grade(self, groups: Sequence[Sequence[Rollout]]) -> Sequence[Sequence[RewardResult]]:
        graded = await self._runner.run_groups(groups)
        settings, bounds = self._runner.settings, self._runner.reward.bounds()
        counts = Counts(settings.signals, bounds, first=self._steps.rollouts)
        for results, rollouts in zip(graded, groups, strict=True):
            for result, rollout in zip(results, rollouts, strict=True):
                counts.add(result, rollout)
            if len(results) > 1:
                counts.add_group(results, rollouts)
        self._steps.add_stepless(counts)
        return [results if len(results) > 1 else [without_fill(one) for one in results] for results in graded]


_bridges: dict[tuple[str, frozenset[tuple[str, Any]]], Bridge] = {}
_lock = threading.Lock()


def bridge(reward: str, **options: Any) -> Bridge:
    """Return the process's bridge to this reward.yaml. *options*: as `Bridge` has them."""
    key = (reward, frozenset(options.items()))
    with _lock:  # trainers call from many threads at once, and all of them share one runner's limits
        if key not in _bridges:
            _bridges[key] = Bridge(reward, **options)
        return _bridges[key]


@in_child
def _forget() -> None:
    global _lock
    _lock = threading.Lock()
    leave_to_parent(*_bridges.values())
    _bridges.clear()


def reward_file(named: Any = None) -> str:
    """Return the absolute path of the reward.yaml that is *named*, or stands in JUDGEKIT_REWARD. Raises ConfigError."""
    path = named or os.environ.get(VARIABLE)
    if not path:
        raise ConfigError(
            f"which reward.yaml? Name it in the trainer's settings, or set {VARIABLE} to its path"
        )
    return os.path.abspath(path)


def value(result: RewardResult) -> float:
    """Return the reward. Raises MissingRewardError, with its graders' errors, if there is none."""
    if result.reward is None:
        raise MissingRewardError(f"no reward: {why_missing(result)}")
    return result.reward


def figures(result: RewardResult) -> dict[str, float]:
    """Return `figures_of` a result under judgekit's prefix."""
    return {f"judgekit/{name}": figure for name, figure in figures_of(result).items()}
