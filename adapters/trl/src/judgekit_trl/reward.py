"""The reward function that GRPOTrainer and RLOOTrainer call."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

from judgekit import AuditAlarm, ConfigError, GradingRunner, RewardResult, Rollout
from judgekit.trainers import (
    AuditBeside,
    Counts,
    HostedRunner,
    RewardConfig,
    StepCounts,
    host_version,
    hosted_runner,
    in_background,
    share_limits,
    why_missing,
)
from judgekit_trl.batch import check_whole, columns_of, group_numbers, place_of, rollout, truth_columns

OLDEST = (1, 0)
"""The first TRL whose trainers let reward functions log figures, which also tells them their groups."""
EXCLUDES = (1, 6)
"""From this TRL on, None is left out of its group's mean and deviation; earlier ones add it up as 0."""

Reward = Callable[..., Awaitable[list[float | None]]]


def judgekit_reward(
    reward: str | os.PathLike[str] | GradingRunner, *, ground_truth: str | None = None
) -> Reward:
    """Make TRL's reward function of a reward.yaml or a GradingRunner.

    Give it to the trainer alone (`reward_funcs=judgekit_reward(…)`); other reward functions become graders.
    *ground_truth*: the column of the reference (default: the first of `judgekit.trainers.TRUTHS`).
    The function can be pickled. Raises ConfigError, also for a TRL that cannot do what is set for missing rewards.
    """
    # TRL finds a partial of a coroutine function to be one, and names it, in every version; an object not
    made: Any = functools.partial(judgekit, RewardFunction(reward, ground_truth))
    made.__name__ = "judgekit"
    return made  # type: ignore[no-any-return]


async def judgekit(function: RewardFunction, /, **given: Any) -> list[float | None]:
    """Call *function* with TRL's keywords; by this name TRL logs the rewards."""
    return await in_background(functools.partial(function, **given))


class RewardFunction:
    """Grades what TRL hands over; see `judgekit_reward`."""

    def __init__(
        self, reward: str | os.PathLike[str] | GradingRunner, ground_truth: str | None = None
    ) -> None:
        self._reward = reward if isinstance(reward, GradingRunner) else os.path.abspath(reward)
        self._ground_truth = ground_truth
        self._hosted = _hosted(self._reward)
        self._runner = self._hosted.runner
        self.terms: Mapping[str, float] = {}
        """Weights of the terms that TRL gets as functions of their own; none: it gets the reward."""
        self._steps = StepCounts(self._hosted.max_failure_rate)
        self._closed: Any = None
        self._audits: AuditBeside | None = None

    def __reduce__(self) -> Any:
        return RewardFunction, (self._reward, self._ground_truth)

    async def __call__(
        self,
        /,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        completion_ids: Sequence[Sequence[int]] | None = None,
        **given: Any,
    ) -> list[float | None]:
        """Return a reward for each completion, None where it is missing and TRL leaves it out.

        *given*: the data set's columns, and TRL's `environments`, `trainer_state`, `log_metric` and `log_extra`.
        """
        return [result.reward for result in await self.graded(prompts, completions, completion_ids, **given)]

    async def graded(
        self,
        /,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        completion_ids: Sequence[Sequence[int]] | None = None,
        **given: Any,
    ) -> list[RewardResult]:
        """Grade what TRL hands over; returns each completion's result."""
        if self._closed is None and not isinstance(self._reward, GradingRunner):  # the user closes that
            loop = asyncio.get_running_loop()
            self._closed = weakref.finalize(self, _close, self._runner, loop)
            self._closed.atexit = False  # the loop's end closes everything
            if int(os.environ.get("RANK") or 0) == 0:
                self._audits = AuditBeside.of(self._reward)
        trainer = getattr(given.get("log_metric"), "__self__", None)
        self._check_neighbours(trainer)
        place = place_of(trainer, len(prompts))
        numbers = group_numbers(place, prompts)
        if self._runner.needs_group:
            check_whole(place, numbers)
        tags = _tags(given.get("trainer_state"), place is None or place.training)
        columns = columns_of(given, len(prompts))
        truths = truth_columns(self._ground_truth, columns)
        keeps_tokens = any(getattr(one, "reads_tokens", False) for one in self._runner.graders.values())
        environments = given.get("environments") or [None] * len(prompts)
        rollouts = [
            rollout(
                {name: values[i] for name, values in columns.items()},
                prompts[i],
                completions[i],
                truths=truths,
                tokens=completion_ids[i] if completion_ids is not None else None,
                keeps_tokens=keeps_tokens,
                environment=environments[i],
                group=str(number),
                id=f"{number}_{i}",
            )
            for i, number in enumerate(numbers)
        ]
        groups = [list(members) for _, members in groupby(rollouts, key=lambda one: one.group)]
        graded = await self._runner.run_groups(groups, tags=tags)
        figures = {**self._count(graded, groups, ends=trainer is not None), **self._audited(trainer)}
        results = [result for group in graded for result in group]
        _log(results, figures, given)
        return results

    def value_of(self, result: RewardResult, term: str) -> float | None:
        """Return a term's value, None where it or the whole reward is missing."""
        return self._hosted.terms(result).get(term)

    def weights(self) -> dict[str, float]:
        """Return the weight of each term. Raises ConfigError where TRL cannot weight them itself."""
        return self._hosted.weights()

    def _audited(self, trainer: Any) -> Mapping[str, float]:
        """Return the figures of the audits. An alarm ends the training after this step, as TRL ends its own; where it cannot, it is raised."""
        if self._audits is None:
            return {}
        try:
            return self._audits.figures()
        except AuditAlarm:
            control = getattr(trainer, "control", None)
            if control is None or int(os.environ.get("WORLD_SIZE") or 1) > 1:  # ranks must end together
                raise
            control.should_training_stop = True
            return self._audits.latest

    def _check_neighbours(self, trainer: Any) -> None:
        others = getattr(trainer, "reward_funcs", None) or ()
        count = len(others) - (len(self.terms) or 1)
        if self.terms:
            self._check_terms(trainer, count)
        elif count > 0 and self._hosted.exclude:
            theirs = [one for one in others if inspect.isroutine(one)]
            if any("_env_type" in inspect.signature(one).parameters for one in theirs):
                way = (
                    "make the environment's get_reward a property, `reward` for example, and a grader that reads it: "
                    'fields={"reward": "extra.environment_state.reward"}'
                )
            else:
                way = 'make the others graders of reward.yaml, as they stand (use: "module:function")'
            raise ConfigError(
                "beside another reward function (or an environment's get_reward) TRL adds a missing reward up as 0: "
                f"{way}, or write missing_reward: neutral, a number or raise"
            )

    def _check_terms(self, trainer: Any, others: int) -> None:
        """Raise ConfigError where TRL would not make of the terms what reward.yaml says."""
        if getattr(trainer, "multi_objective_aggregation", None) != "normalize_then_sum":
            raise ConfigError(
                "judgekit_terms is for GRPOTrainer with multi_objective_aggregation='normalize_then_sum', which leaves "
                "a missing term out; elsewhere TRL adds it up as 0: give judgekit_reward(…), whose reward is the sum "
                "of the same terms"
            )
        if others:
            raise ConfigError(
                "reward_funcs=judgekit_terms(…) are all reward functions that there are: make the others (or an "
                'environment\'s get_reward) terms of reward.yaml, as they stand (use: "module:function")'
            )
        wanted, found = list(self.terms.values()), [float(weight) for weight in trainer.reward_weights]
        if any(abs(a - b) > 1e-6 * max(1.0, abs(a)) for a, b in zip(wanted, found, strict=True)):
            raise ConfigError(
                f"TRL weights the terms {', '.join(self.terms)} by {found}, reward.yaml by {wanted}: write "
                f"reward_weights={wanted}"
            )

    def _count(
        self, graded: Sequence[Sequence[RewardResult]], groups: Sequence[Sequence[Rollout]], *, ends: bool
    ) -> Mapping[str, float]:
        """Count a call's results and return the figures. *ends*: the call is all that there is of a step.

        Raises FailureRateError.
        """
        counts = Counts(self._runner.settings.signals, self._runner.reward.bounds())
        for results, rollouts in zip(graded, groups, strict=True):
            for result, one in zip(results, rollouts, strict=True):
                counts.add(result, one)
            counts.add_group(results, rollouts)
        if ends:
            self._steps.add(counts)
            self._steps.end()
        else:  # AsyncGRPOTrainer calls group by group and names no step
            self._steps.add_stepless(counts)
        return counts.figures()


def _close(runner: GradingRunner, loop: asyncio.AbstractEventLoop) -> None:
    """Close the runner of a trainer that is gone, in a notebook for example."""
    if not loop.is_closed():
        asyncio.run_coroutine_threadsafe(runner.close(), loop)


def _log(results: Sequence[RewardResult], figures: Mapping[str, float], given: Mapping[str, Any]) -> None:
    """Log means per grader, and each row's scores for TRL's table of completions."""
    if (log_metric := given.get("log_metric")) is not None:
        for name, value in figures.items():
            log_metric(name, value)
    if (log_extra := given.get("log_extra")) is not None:
        for name in dict.fromkeys(name for result in results for name in result.grades):
            log_extra(f"judgekit/{name}", [result.score(name) for result in results])
        log_extra("judgekit/missing", [why_missing(result) for result in results])


def _tags(state: Any, training: bool) -> dict[str, Any]:
    """Make the ledger's tags."""
    step = getattr(state, "global_step", None)
    return {"phase": "train" if training else "eval", **({} if step is None else {"global_step": step})}


def _hosted(reward: str | GradingRunner) -> HostedRunner:
    found = _trl_version()
    processes = int(os.environ.get("WORLD_SIZE") or 1)

    def prepare(file: RewardConfig) -> None:
        for name, judge in file.judges.items():
            if judge.get("engine") == "vllm" and processes > 1:
                raise ConfigError(
                    f"judges.{name}: each of the {processes} ranks would load the model; serve it once (judgekit serve) "
                    "and take engine: openai or engine: ray"
                )
            share_limits(judge, processes)

    hosted = hosted_runner(
        config=None if isinstance(reward, GradingRunner) else reward,
        runner=reward if isinstance(reward, GradingRunner) else None,
        grouped=True,
        can_mask=False,
        can_exclude=True,
        grouping_hint="",
        prepare=prepare,
    )
    if hosted.exclude and found < EXCLUDES:
        raise ConfigError(
            "missing_reward: exclude (the default) needs TRL 1.6: the installed one adds a missing reward up as 0; "
            "upgrade it, or write missing_reward: neutral, a number or raise"
        )
    return hosted


def _trl_version() -> tuple[int, ...]:
    return host_version(
        "trl", OLDEST, adapter="judgekit_trl", name="TRL", lacks="does not tell a reward function its groups"
    )
