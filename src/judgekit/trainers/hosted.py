"""The runner that a launch command names, prepared for a trainer's adapter.

A trainer hands over rollouts one at a time, or, through an adapter's hook, those of a prompt together. That decides
what a missing reward can become.
"""

from __future__ import annotations

import importlib
import inspect
import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from judgekit.config import RewardConfig, load_runner
from judgekit.errors import ConfigError
from judgekit.reward.nodes import Weighted
from judgekit.reward.transforms import NEUTRAL, mean
from judgekit.run.runner import GradingRunner
from judgekit.trainers.figures import RESERVED
from judgekit.trainers.token_rewards import TURN_ESTIMATOR
from judgekit.types import RewardResult

DEADLINE_S = 600.0
"""Default deadline of one rollout or group, since trainers have none."""


class HostedRunner(Struct, frozen=True, kw_only=True):
    """A runner for an adapter, whose runs are single rollouts or groups."""

    runner: GradingRunner
    """Settles what becomes of a rollout without a reward: status "excluded" or "masked", and no number.

    Where the trainer cannot leave it out, a rollout of a group gets the mean of its group, status "neutral".
    """
    mask: bool
    """Whether the adapter leaves a rollout without a reward out of the loss."""
    exclude: bool
    """Whether it leaves that out of its group's statistics as well, so that no sibling's advantage moves."""
    config: str | None = None
    """The reward.yaml that it is made of."""
    max_failure_rate: float | None
    """For the adapter to check over a whole step; the runner's own is off."""

    def numbers(self, results: Sequence[RewardResult]) -> list[float]:
        """Return a number for each of a group's *results*, for a trainer's tensor. Nothing else invents one.

        Where there is no reward it is the mean of the siblings' (of a dropped group: of what its members
        earned), so that nobody's advantage shows it; where no sibling has one either, the neutral value of
        the transform, or the mean of what this runner has graded so far, 0 before the first. It stands in no
        result, ledger, figure or signal.
        """
        known = [result.reward for result in results if result.reward is not None]
        known = known or [result.raw_reward for result in results if result.raw_reward is not None]
        if len(known) == len(results) and all(result.reward is not None for result in results):
            return known
        as_graded = any(result.reward is not None for result in results) and all(
            result.reward in (None, result.raw_reward) for result in results
        )  # a validation has no transform
        fill = None if as_graded else NEUTRAL.get(self.runner.settings.transform)
        if fill is None:
            fill = mean(known) if known else self.runner.metrics.counts.rewards.mean_y
        return [fill if result.reward is None else result.reward for result in results]

    def weights(self, *, fills: bool = False) -> dict[str, float]:
        """Return the weights of the terms of the reward's top `weighted`, for trainers that weight terms themselves.

        *fills*: whether such a trainer needs a number for each term, see `term_numbers`. Raises ConfigError for
        a reward without such terms, and for what only the whole reward can do.
        """
        root, settings = self.runner.reward.root, self.runner.settings
        if not isinstance(root, Weighted):
            raise ConfigError(
                "reward: where the trainer takes terms, the top of the reward is a weighted of them"
            )
        if root.fades:
            raise ConfigError(
                "reward: the trainer's weights are numbers, and some of these move with the step"
            )
        if settings.transform != "none":
            raise ConfigError(
                f"transform: {settings.transform} is one of whole rewards, and the trainer normalises each term "
                "itself: write transform: none"
            )
        if settings.missing_reward not in ("exclude", "raise", *(("neutral",) if fills else ())):
            raise ConfigError(
                f"missing_reward: {settings.missing_reward} says nothing of terms: where the trainer takes these, "
                "write exclude or raise"
            )
        total = sum(abs(term.weight) for term in root.terms) if root.normalize else 1.0
        return {term.label: term.weight / total for term in root.terms if term.weight}

    def terms(self, result: RewardResult) -> dict[str, float]:
        """Return the value of each term of the top `weighted` that is known; none where the result has no reward."""
        root = self.runner.reward.root
        return (
            root.values(result.contributions)
            if isinstance(root, Weighted) and result.reward is not None
            else {}
        )

    def term_numbers(self, results: Sequence[RewardResult]) -> dict[str, list[float]]:
        """Return each term, times its weight, for each of a group's *results*: numbers for a trainer's tensors.

        A term that is missing is the mean of the siblings', or 0 where none has it. Raises ConfigError, as `weights`.
        """
        known = [self.terms(result) for result in results]
        found = {}
        for name, weight in self.weights(fills=True).items():
            values = [terms[name] for terms in known if name in terms]
            fill = mean(values) if values else 0.0
            found[name] = [weight * terms.get(name, fill) for terms in known]
        return found


def hosted_runner(
    *,
    config: str | os.PathLike[str] | None = None,
    runner: GradingRunner | str | None = None,
    grouped: bool,
    can_mask: bool,
    can_exclude: bool = False,
    grouping_hint: str,
    places: bool = False,
    deadline_s: float = DEADLINE_S,
    prepare: Callable[[RewardConfig], None] = lambda config: None,
) -> HostedRunner:
    """Make the runner of a reward.yaml (*config*) or of Python (*runner*, or its `package.module:name`).

    *grouped*: whether a prompt's rollouts come together. *can_mask*: whether the trainer can leave a rollout out of
    its loss; *can_exclude*: also out of its group's statistics, even if it comes alone. *grouping_hint*: how to get
    rollouts in groups, for the end of a sentence. *places*: whether turns are paid on their own tokens. *deadline_s*: of a run, where none is written. *prepare*: edits the
    file's contents first. Raises ConfigError.
    """
    if (config is None) == (runner is None):
        raise ConfigError("say how to grade with one of a reward.yaml and a GradingRunner")
    made = load_runner(config, prepare) if config is not None else _from_object(runner)
    if taken := RESERVED & made.graders.keys():
        raise ConfigError(
            f"graders: {min(taken)!r} is what adapters call a figure of their own, beside the graders' scores: choose another "
            "name for the grader"
        )
    if places and made.reward.has_turns and made.settings.transform != "none":
        raise ConfigError(
            f"transform: {made.settings.transform} changes the rewards of whole trajectories, and {{turns: …}} pays each turn for "
            f"itself: write transform: none; the estimator {TURN_ESTIMATOR} compares turns within their group"
        )
    setting = made.settings.missing_reward
    if setting == "mask" and not (can_mask and grouped):
        instead = "exclude" if can_exclude else "neutral"
        way = f"write missing_reward: {instead}" if grouped else _written(grouping_hint)
        raise ConfigError(
            f"missing_reward: mask needs loss masking, which this trainer does not support; {way}"
        )
    exclude = setting == "exclude" and can_exclude
    _check_drops(made, exclude=exclude, grouped=grouped, grouping_hint=grouping_hint)
    if not grouped:
        _check_alone(made, grouping_hint, can_exclude)
    hosted = made.with_settings(
        shared=True,
        # a trainer that cannot leave a rollout of a group out pays it the group's mean, which gives no advantage
        missing_reward="neutral" if setting == "exclude" and grouped and not can_exclude else setting,
        max_failure_rate=None,
        deadline_s=made.settings.deadline_s or deadline_s,
    )
    return HostedRunner(
        runner=hosted,
        mask=exclude or setting == "mask",
        exclude=exclude,
        config=None if config is None else os.path.abspath(config),
        max_failure_rate=made.settings.max_failure_rate,
    )


def share_limits(judge: dict[str, Any], processes: int) -> None:
    """Divide the limits of a judge (its section of a reward.yaml) among the processes that apply them."""
    layers = dict(judge.get("layers") or {})
    if isinstance(slots := layers.get("max_concurrency"), int):
        layers["max_concurrency"] = math.ceil(slots / processes)
    if isinstance(rate := layers.get("requests_per_minute"), int | float):
        layers["requests_per_minute"] = rate / processes
    if layers:
        judge["layers"] = layers


def without_fill(result: RewardResult) -> RewardResult:
    """Remove the fill of a rollout that is alone in its group: it would be the mean of unrelated rollouts."""
    if result.status not in ("neutral", "dropped"):
        return result
    return msgspec.structs.replace(result, reward=None, status="masked")


def _from_object(target: GradingRunner | str | None) -> GradingRunner:
    if isinstance(target, GradingRunner):
        return target
    module, _, name = str(target).partition(":")
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


def _check_drops(runner: GradingRunner, *, exclude: bool, grouped: bool, grouping_hint: str) -> None:
    """Raise ConfigError if the runner drops groups, and the trainer cannot leave them out."""
    setting = runner.settings.missing_reward
    if runner.settings.drop_if is None or (exclude and grouped):
        return
    if setting != "exclude":
        way = f"write missing_reward: exclude, not {setting}"
    elif grouped:
        way = "this trainer cannot leave one out: take it out"
    else:
        way = f"this trainer hands over rollouts one at a time: {grouping_hint}"
    raise ConfigError(f"drop_if leaves whole groups out of the training; {way}")


def _check_alone(runner: GradingRunner, grouping_hint: str, can_exclude: bool) -> None:
    """Raise ConfigError if the runner needs groups, since rollouts come one at a time."""
    for name, grader in runner.graders.items():
        if hasattr(grader, "grade_group") and not getattr(grader, "grades_alone", False):
            raise ConfigError(
                f"{name!r} grades the rollouts of a prompt together, and here they come one at a time: {grouping_hint}"
            )
    if runner.reward.functions:
        raise ConfigError(
            f"{next(iter(runner.reward.functions))} looks at the rollouts of a prompt together, and here they come one at a time: "
            f"{grouping_hint}"
        )
    if runner.settings.transform != "none":
        raise ConfigError(
            f"transform: {runner.settings.transform} needs the rollouts of a prompt together: {grouping_hint}"
        )
    if runner.settings.missing_reward == "neutral" or (
        runner.settings.missing_reward == "exclude" and not can_exclude
    ):
        raise ConfigError(
            f"missing_reward: {runner.settings.missing_reward} needs the rollout's group; {_written(grouping_hint)}"
        )


def _written(grouping_hint: str) -> str:
    return (
        f"{grouping_hint}, which makes a missing reward the mean of its group, or write missing_reward: <number> or "
        "missing_reward: raise"
    )
