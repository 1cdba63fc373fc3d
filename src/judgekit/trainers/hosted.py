"""What the trainers' adapters share: the runner that a launch command names, and what is counted per step.

A trainer hands over rollouts one at a time, or a prompt's rollouts together where an adapter hooks into it.
Which of the two decides what may be done about a missing reward.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from judgekit.config import RewardConfig, load_config
from judgekit.errors import ConfigError, FailureRateError
from judgekit.run.runner import GradingRunner
from judgekit.types import Failed, Graded, RewardResult

DEADLINE_S = 600.0
"""Of one rollout or group, where neither reward.yaml nor the runner says otherwise: trainers have none."""


class Hosted(Struct, frozen=True, kw_only=True):
    """A runner as an adapter uses it: one run is one rollout or one group."""

    runner: GradingRunner
    mask: bool
    """Whether a rollout without a reward is to be left out of the loss; its reward is neutral then."""
    max_failure_rate: float | None
    """To be checked by the adapter over a whole step; the runner's own is switched off."""


def hosted_runner(
    *,
    config: str | os.PathLike[str] | None = None,
    runner: GradingRunner | str | None = None,
    grouped: bool,
    can_mask: bool,
    how_to_group: str,
    prepare: Callable[[RewardConfig], None] = lambda config: None,
) -> Hosted:
    """The runner of a reward.yaml (*config*) or of Python (*runner*, or its `package.module:name`).

    *grouped*: whether a prompt's rollouts come together. *can_mask*: whether the trainer can leave a rollout
    out of its loss. *how_to_group*: what to do about rollouts that come alone, for the end of a sentence.
    *prepare*: changes the file's contents before the runner is made. Raises ConfigError.
    """
    if (config is None) == (runner is None):
        raise ConfigError("say how to grade with one of a reward.yaml and a GradingRunner")
    if config is not None:
        made = _from_file(config, grouped, prepare)
    else:
        # a copy, for it is adapted below: the same runner may be named once more
        made = copy.copy(runner if isinstance(runner, GradingRunner) else _from_object(str(runner)))
    mask = made.missing_reward == "mask"
    if mask and not (can_mask and grouped):
        way = "write missing_reward: neutral" if grouped else _written(how_to_group)
        raise ConfigError(
            f"missing_reward: mask leaves a rollout out of the loss, which is not to be had here; {way}"
        )
    if not grouped:
        _check_alone(made, how_to_group)
    if mask:
        made.missing_reward = "neutral"
    rate, made.max_failure_rate = made.max_failure_rate, None
    if made.deadline_s is None:
        made.deadline_s = DEADLINE_S
    made.share_slots()
    return Hosted(runner=made, mask=mask, max_failure_rate=rate)


def _from_file(
    path: str | os.PathLike[str], grouped: bool, prepare: Callable[[RewardConfig], None]
) -> GradingRunner:
    config = load_config(path)
    overrides: dict[str, Any] = {}
    if grouped and "missing_reward" not in config.runner:
        overrides["missing_reward"] = "neutral"
    try:
        prepare(config)
        return config.build(**overrides)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _from_object(target: str) -> GradingRunner:
    module, _, name = target.partition(":")
    if not name:
        raise ConfigError(f"a runner is named as package.module:name, not {target!r}")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"cannot import {target} ({error})") from None
    if inspect.isfunction(found):
        found = found()
    if not isinstance(found, GradingRunner):
        raise ConfigError(
            f"{target} is {type(found).__name__}, not a GradingRunner or a function that returns one"
        )
    return found


def _check_alone(runner: GradingRunner, how_to_group: str) -> None:
    """Rollouts that come one at a time have no group to rank them in or to take a mean of."""
    for name, grader in runner.graders.items():
        if hasattr(grader, "grade_group"):
            raise ConfigError(
                f"{name!r} grades the rollouts of a prompt together, and here they come one at a time: {how_to_group}"
            )
    if runner.transform != "none":
        raise ConfigError(
            f"transform: {runner.transform} needs the rollouts of a prompt together: {how_to_group}"
        )
    if runner.missing_reward == "neutral":
        raise ConfigError(f"missing_reward: neutral pays the group's mean; {_written(how_to_group)}")


def _written(how_to_group: str) -> str:
    return (
        f"{how_to_group}, by which a missing reward is the mean of its group, or write what it is to be: "
        "missing_reward: <number>, or missing_reward: raise"
    )


class Tally:
    """What became of the rollouts of a step, as counts that can be sent and added up."""

    def __init__(self, counts: Mapping[str, int] | None = None) -> None:
        self.counts: Counter[str] = Counter(counts or {})

    def add(self, results: Sequence[RewardResult]) -> None:
        """Count the results of a run."""
        self.counts["rollouts"] += len(results)
        for result in results:
            self.counts[f"status:{result.status}"] += 1
            for name, grade in result.grades.items():
                if isinstance(grade, Graded | Failed):
                    self.counts[f"asked:{name}"] += 1
                if isinstance(grade, Failed):
                    self.counts[f"failed:{name}:{grade.error}"] += 1
                    self.counts[f"infrastructure:{name}"] += grade.cause == "infrastructure"

    @property
    def missing(self) -> int:
        """Rollouts whose reward does not come from grades."""
        return self.counts["rollouts"] - self.counts["status:scored"]

    @property
    def unusual(self) -> bool:
        """Whether a reward is missing or a grader failed."""
        return self.missing > 0 or bool(self._of("failed"))

    def line(self) -> str:
        """One line for the trainer's log."""
        parts = [f"{self.counts['rollouts']} rollouts graded"]
        if self.missing:
            how = ", ".join(f"{n} {s}" for (s,), n in self._of("status") if s != "scored")
            parts.append(f"{self.missing} rewards missing ({how})")
        if failed := [f"{name}: {n} {error}" for (name, error), n in self._of("failed")]:
            parts.append("failures: " + ", ".join(failed))
        return "; ".join(parts)

    def check(self, max_failure_rate: float | None) -> None:
        """Raise FailureRateError where more than this share of one grader's evaluations failed for an
        infrastructure cause."""
        if max_failure_rate is None:
            return
        for (name,), asked in self._of("asked"):
            failed = self.counts[f"infrastructure:{name}"]
            if failed > max_failure_rate * asked:
                raise FailureRateError(
                    f"grader {name!r} failed on {failed} of {asked} rollouts of a step, more than "
                    f"max_failure_rate={max_failure_rate:g} allows"
                )

    def _of(self, kind: str) -> list[tuple[list[str], int]]:
        return [
            (key.split(":")[1:], n)
            for key, n in sorted(self.counts.items())
            if n and key.startswith(f"{kind}:")
        ]
