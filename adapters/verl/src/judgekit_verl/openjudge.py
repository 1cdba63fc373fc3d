"""Batch reward functions, with the interface of the OpenJudge guide for verl.

A reward function is an object with `async compute_batch_scores(prompt_to_samples)`: it takes samples by prompt
and returns results in any order, matched by `original_index`. Functions written for that guide work unchanged;
`RunnerFunction` gives a GradingRunner the same interface.
"""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from judgekit import ConfigError, GradingRunner, RewardResult, Rollout
from judgekit.trainers import plain, rollout_of
from judgekit_verl.versions import no_score


class RewardSample(Struct, kw_only=True):
    """One response of a batch."""

    original_index: int
    """Its row in the batch."""
    group_index: int
    """Its index among its prompt's samples."""
    prompt: str
    response: str
    messages: list[Any] = []
    """The whole conversation; the last one is the response."""
    extra: dict[str, Any] = {}
    """The row's columns, and the entries of its `extra_info`."""
    rollout: Rollout | None = None
    """The same for a GradingRunner."""


class SampleResult(Struct, kw_only=True):
    """One response's score."""

    original_index: int
    group_index: int
    score: float
    reward_info: dict[str, Any] = {}
    """Numbers by name, the same names for every sample of the batch."""
    details: Any = None
    """How the score came about, as JSON-compatible data."""


class RewardFunction(Protocol):
    """Called by the legacy reward manager once per batch."""

    async def compute_batch_scores(
        self, prompt_to_samples: Mapping[str, list[RewardSample]], /
    ) -> Sequence[Any]:
        """One result per sample, in any order, each with `original_index` and `score`."""
        ...


class RunnerFunction:
    """A GradingRunner with the interface of a reward function. *numbers*: makes a group's numbers for verl's tensor."""

    def __init__(
        self,
        runner: GradingRunner,
        extras: Sequence[str] = (),
        numbers: Callable[[Sequence[RewardResult]], Sequence[float | None]] | None = None,
    ) -> None:
        self.runner = runner
        self.extras = tuple(extras)
        self.numbers = numbers or _rewards

    async def compute_batch_scores(
        self, prompt_to_samples: Mapping[str, list[RewardSample]], /
    ) -> list[SampleResult]:
        """Grade every group. Raises what `GradingRunner.run_groups` raises."""
        groups = list(prompt_to_samples.values())
        rollouts = [[rollout_of_sample(sample) for sample in group] for group in groups]
        graded = await self.runner.run_groups(rollouts)
        made = []
        for group, results in zip(groups, graded, strict=True):
            for sample, result, number in zip(group, results, self.numbers(results), strict=True):
                if number is None:
                    raise ConfigError(
                        "verl cannot leave a rollout out of its loss: write missing_reward: neutral"
                    )
                info: dict[str, Any] = {"judgekit/missing": float(result.status != "scored")}
                info |= {f"{name}_score": result.score(name) for name in self.extras}
                made.append(
                    SampleResult(
                        original_index=sample.original_index,
                        group_index=sample.group_index,
                        score=number,
                        reward_info=info,
                        details=msgspec.to_builtins(result.grades),
                    )
                )
        return made


def _rewards(results: Sequence[RewardResult]) -> list[float | None]:
    return [result.reward for result in results]


def rollout_of_sample(sample: RewardSample) -> Rollout:
    """The rollout of a sample; one that is made by hand has its prompt, response and `extra`."""
    if sample.rollout is not None:
        return sample.rollout
    return rollout_of(
        sample.extra,
        prompt=sample.prompt,
        turns=[{"role": "assistant", "content": sample.response}],
        group=sample.extra.get("uid"),
        id=f"{sample.extra.get('uid', '')}_{sample.group_index}",
    )


def sample_of(rollout: Rollout, index: int) -> RewardSample:
    """The sample of a rollout, as the *index*-th of its group, for trainers that hand groups over one by one."""
    return RewardSample(
        original_index=index,
        group_index=index,
        prompt=rollout.prompt_text,
        response=rollout.response,
        messages=list(rollout.messages),
        rollout=rollout,
        extra={
            **rollout.extra,
            "uid": rollout.group,
            "ground_truth": rollout.ground_truth,
            "data_source": rollout.data_source,
        },
    )


async def group_scores(function: RewardFunction, rollouts: Sequence[Rollout]) -> list[dict[str, Any]]:
    """What verl's reward loop expects for each rollout of one group. Raises ConfigError and what *function* raises.

    `reward_extra_info` has the numbers in `reward_info`, the same names for all, and `details` as JSON: verl's reward
    loop averages numbers, and passes on text.
    """
    samples = [sample_of(rollout, index) for index, rollout in enumerate(rollouts)]
    results = checked(
        await function.compute_batch_scores({str(rollouts[0].group): samples}),
        len(samples),
        type(function).__name__,
    )
    infos = [
        {
            str(name): float(value)
            for name, value in (result.reward_info or {}).items()
            if isinstance(plain(value), int | float)
        }
        for result in results
    ]
    names = dict.fromkeys(name for info in infos for name in info)
    return [
        {
            "reward_score": float(result.score),
            "reward_extra_info": {
                **{name: info.get(name, no_score()) for name in names},
                "details": details_text(result),
            },
        }
        for result, info in zip(results, infos, strict=True)
    ]


def details_text(result: Any) -> str:
    """A result's details as JSON; empty where it has none."""
    details = getattr(result, "details", None)
    return "" if details is None else json.dumps(plain(details), ensure_ascii=False, default=str)


def reward_function(given: Any) -> RewardFunction | None:
    """The reward function in what verl's loader made of `custom_reward_function`; None if it is another function."""
    candidates = (
        (given, *given.args) if isinstance(given, partial) else (given,)
    )  # verl binds the object first
    return next((one for one in candidates if callable(getattr(one, "compute_batch_scores", None))), None)


def check_alone(kwargs: Mapping[str, Any]) -> None:
    """Raise ConfigError if `reward_kwargs` say how to grade, too, beside a function with `compute_batch_scores`."""
    if found := [key for key in ("judgekit_config", "judgekit_runner") if kwargs.get(key) is not None]:
        raise ConfigError(
            f"custom_reward_function has compute_batch_scores, which grades, and reward_kwargs.{found[0]} says how to grade, "
            "too: take one of the two out of the command"
        )


def check_unused(given: Any) -> None:
    """Raise ConfigError if verl loaded a `custom_reward_function` that nobody would call.

    *given*: what verl hands over: its own function where the user named none. judgekit's `compute_score` may stand there,
    because verl wants a path for the judge that it hosts.
    """
    if isinstance(given, partial) and given.args:
        function = given.args[0]
    elif getattr(given, "__name__", "") == "wrapped_fn":  # 0.4
        function = inspect.getclosurevars(given).nonlocals.get("raw_fn")
    else:
        function = given
    module = str(getattr(function, "__module__", ""))
    file = Path(getattr(getattr(function, "__code__", None), "co_filename", ""))
    if module.startswith("judgekit_verl") or file.parent == Path(__file__).parent:
        return
    if function is given and (not callable(given) or module.startswith(("verl.", "functools"))):
        return
    if module.startswith("custom_module"):  # verl's name for a file
        module = file.stem
    name = f"{module}:{getattr(function, '__qualname__', type(function).__name__)}"
    raise ConfigError(
        f"custom_reward_function is {name}, which nobody would call, because judgekit grades with reward.yaml: make it a "
        f'grader there, as it stands (graders: {{mine: {{use: "{name}"}}}}; modules beside the file can be imported), '
        "and take custom_reward_function out of the command"
    )


def checked(results: Sequence[Any], count: int, who: Any) -> list[Any]:
    """Returns *results* in batch order. Raises ConfigError if one is missing, duplicate or not a number."""
    ordered: list[Any] = [None] * count
    for result in results:
        index = plain(getattr(result, "original_index", None))
        if not isinstance(index, int) or not 0 <= index < count:
            raise ConfigError(
                f"{who}: a result has original_index {index!r}; the batch has rows 0 to {count - 1}"
            )
        if ordered[index] is not None:
            raise ConfigError(f"{who}: two results for row {index}")
        if not isinstance(plain(result.score), int | float) or not math.isfinite(result.score):
            raise ConfigError(f"{who}: the score of row {index} is {result.score!r}, not a finite number")
        ordered[index] = result
    if missing := [i for i, result in enumerate(ordered) if result is None]:
        raise ConfigError(
            f"{who}: no result for {len(missing)} of {count} rows, the first is row {missing[0]}"
        )
    return ordered
