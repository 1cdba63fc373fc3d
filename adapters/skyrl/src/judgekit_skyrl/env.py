"""The environment: records rollouts, and grades them or leaves that to the generator."""

from __future__ import annotations

import importlib
import math
import os
from collections.abc import Mapping
from typing import Any

import skyrl_gym
from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput
from skyrl_gym.envs.registration import registry

from judgekit import ConfigError, GradingRunner, MissingRewardError, RewardResult, Rollout
from judgekit.trainers import HostedRunner, figures_of, hosted_runner, rollout_of, run_blocking

SLOT = "judgekit_slot"
"""Key in a sample's extras: the generator's `Transcript` to record into."""
PREFIX = "judgekit/"
GROUPING_HINT = (
    "register with grouped=True and build the generator with judgekit_skyrl.make_generator() (or start with "
    "python -m judgekit_skyrl.main)"
)

_HOSTED: dict[str, HostedRunner] = {}
"""Runners by environment id. Kept here, because skyrl_gym deep-copies an environment's registered arguments."""


def register(
    id: str = "judgekit",
    *,
    config: str | os.PathLike[str] | None = None,
    runner: GradingRunner | str | None = None,
    grouped: bool = True,
    wraps: str | None = None,
    wraps_config: Any = None,
    wraps_kwargs: Mapping[str, Any] | None = None,
) -> None:
    """Register the environment *id*, replacing one of the same id.

    Call it in the process that makes the generator: SkyRL's Ray entrypoint task, not the driver. *config*:
    path of a reward.yaml. *runner*: instead, a GradingRunner or its `package.module:name`. *grouped*: the
    generator from `make_generator` grades a prompt's rollouts together, and a missing reward becomes its
    group's mean, or leaves the group with the trainer from `make_trainer`. With grouped=False each rollout is graded
    in `step()`, and `missing_reward` must be a number or "raise". *wraps*: another environment (multi-turn, tools),
    by its id in skyrl_gym ("search", "text2sql", "gsm8k_multi_turn") or as `package.module:Class`, run unchanged;
    the grade of the whole conversation is added to its last reward, and its metrics are kept. It is constructed with
    env_config=*wraps_config*, SkyRL's section for it, and *wraps_kwargs*.

    Raises ConfigError.
    """
    inner = None
    kwargs = dict(wraps_kwargs or {})
    if wraps is not None:
        spec = registry.get(wraps)
        inner = _load(wraps if spec is None else spec.entry_point)
        kwargs = {**(spec.kwargs if spec is not None else {}), **kwargs, "env_config": wraps_config or {}}
    hosted = hosted_runner(
        config=config,
        runner=runner,
        grouped=grouped,
        can_mask=True,
        can_exclude=grouped,
        places=grouped,
        grouping_hint=GROUPING_HINT,
    )
    if hosted.max_failure_rate is not None and not grouped:
        raise ConfigError(f"max_failure_rate is counted by the generator: {GROUPING_HINT}")
    unpaid = hosted.runner.settings.missing_reward
    if wraps is not None and not grouped and unpaid not in (0, "raise"):
        raise ConfigError(
            f"missing_reward: {unpaid} cannot be paid for a conversation that SkyRL cuts short, for it ends without a "
            f"last step: {GROUPING_HINT}, or write missing_reward: 0 or missing_reward: raise"
        )
    _HOSTED[id] = hosted
    registry.pop(id, None)
    skyrl_gym.register(
        id=id,
        entry_point=_around(inner),
        kwargs={"env_id": id, "grouped": grouped, "wraps_kwargs": kwargs},
    )


def section_of(wraps: str | None) -> str | None:
    """Return the id in skyrl_gym of an environment that `wraps` names by id or by class, None for others."""
    for env_id, spec in registry.items():
        if wraps is not None and wraps in (env_id, spec.entry_point):
            return str(env_id)
    return None


def hosted(env_id: str) -> HostedRunner | None:
    """Return the runner of a registered environment, None for other environments."""
    return _HOSTED.get(env_id)


def pays_turns() -> bool:
    """Whether a registered environment pays turns for themselves."""
    return any(found.runner.reward.has_turns for found in _HOSTED.values())


class Transcript:
    """The record of one rollout so far."""

    def __init__(self) -> None:
        self.prompt: list[dict[str, Any]] = []
        self.turns: list[dict[str, Any]] = []
        """What followed the prompt, each turn with its role."""
        self.extras: Mapping[str, Any] = {}

    def rollout(self, **known: Any) -> Rollout:
        """Make the rollout; *known*: further arguments of `rollout_of`."""
        return rollout_of(self.extras, prompt=self.prompt, turns=self.turns, **known)


class JudgeKitEnv(BaseTextEnv):  # type: ignore[misc]
    """An environment rewarded by judgekit: single-turn, or around another environment.

    With `make_generator` it only records. With grouped=False its last `step()` blocks its worker thread until
    the rollout is graded. Extras are read, never changed.
    """

    wrapped: type | None = None
    """The class of the environment around which this one is."""

    def __init__(
        self,
        env_config: Any = None,
        extras: Mapping[str, Any] | None = None,
        *,
        env_id: str,
        grouped: bool,
        wraps_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        given = dict(extras or {})
        slot = given.pop(SLOT, None)
        found = hosted(env_id)
        if found is None:
            raise ConfigError(
                f"the environment {env_id!r} is not registered in this process: call judgekit_skyrl.register inside "
                "the Ray entrypoint task"
            )
        if grouped and slot is None:
            raise ConfigError(
                f"the environment {env_id!r} is registered with grouped=True, but its rollouts are not made by a "
                "generator of judgekit_skyrl.make_generator(): use it (python -m judgekit_skyrl.main does), or register "
                "with grouped=False and missing_reward: <number> or raise"
            )
        self._hosted = found
        self._deferred = slot is not None
        self._transcript: Transcript = slot if slot is not None else Transcript()
        self._transcript.extras = given
        self._metrics: dict[str, float] = {}
        self._inner: Any = None
        if self.wrapped is not None:
            self._inner = self.wrapped(extras=dict(given), **dict(wraps_kwargs or {}))
            self.max_turns: int = getattr(self._inner, "max_turns", 1)

    def init(self, prompt: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        info: dict[str, Any] = {}
        if self._inner is not None:
            prompt, info = self._inner.init(prompt)
        self._transcript.prompt = list(prompt)
        return prompt, info

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Record the policy's turn. Raises MissingRewardError under missing_reward="raise"."""
        self.turns += 1
        turns = self._transcript.turns
        if self._inner is None:
            turns.append({"role": "assistant", "content": action})
            out = BaseTextEnvStepOutput(observations=[], reward=0.0, done=True, metadata={})
        else:
            out = self._inner.step(action)
            # the policy is trained on what the environment makes of its text, where it makes something of it
            kept = out.get("postprocessed_action")
            turns.append({"role": "assistant", "content": action if kept is None else kept})
            tools = bool(getattr(self._inner, "tool_groups", None))
            for said in out["observations"]:
                turns.append({**said, "role": "tool"} if tools and said.get("role") == "user" else said)
        if out["done"] and not self._deferred:
            (result,) = run_blocking(self._hosted.runner.run([self._transcript.rollout()]))
            self._metrics = metrics_of(result)
            out["reward"] = float(out["reward"] or 0.0) + reward_of(result)
        return out

    def get_metrics(self) -> dict[str, Any]:
        """Return judgekit's and the wrapped environment's figures; cheap, SkyRL calls it on its event loop.

        Raises MissingRewardError under missing_reward="raise" if SkyRL has cut the conversation short.
        """
        inner = self._inner.get_metrics() if hasattr(self._inner, "get_metrics") else {}
        own = self._metrics
        # SkyRL stops rollouts that get too long, without a last step to grade
        if not own and not self._deferred:
            if self._hosted.runner.settings.missing_reward == "raise":
                raise MissingRewardError("SkyRL has cut a conversation short, before its grade")
            own = {f"{PREFIX}missing_mean": 1.0}
        return {**inner, **own}

    @classmethod
    def aggregate_metrics(cls, metrics: list[dict[str, Any]]) -> dict[str, Any]:
        """Average judgekit's figures; the wrapped environment aggregates those that it gave."""
        if cls.wrapped is None or not hasattr(cls.wrapped, "aggregate_metrics"):
            return _means(metrics)
        own = [{key: value for key, value in row.items() if key.startswith(PREFIX)} for row in metrics]
        theirs = [{key: value for key, value in row.items() if not key.startswith(PREFIX)} for row in metrics]
        return {**cls.wrapped.aggregate_metrics([row for row in theirs if row]), **_means(own)}

    def close(self) -> None:
        if self._inner is not None:
            self._inner.close()


def _around(inner: type | None) -> type:
    """The environment's class: SkyRL aggregates metrics by class, and each wrapped one does it its own way."""
    if inner is None:
        return JudgeKitEnv
    return type(f"JudgeKit{inner.__name__}", (JudgeKitEnv,), {"wrapped": inner})


def _means(rows: list[dict[str, Any]]) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for row in rows:
        for key, value in row.items():
            if isinstance(value, int | float):
                found.setdefault(key, []).append(float(value))
    return {key: sum(values) / len(values) for key, values in found.items()}


def reward_of(result: RewardResult) -> float:
    """Return the reward as a finite number, which SkyRL needs. Raises ConfigError."""
    if result.reward is None or not math.isfinite(result.reward):
        raise ConfigError("a rollout has no reward, and SkyRL needs a number: write missing_reward: neutral")
    return float(result.reward)


def metrics_of(result: RewardResult) -> dict[str, float]:
    """Return what SkyRL logs under `environment/`.

    SkyRL averages over the rollouts that have a key. When it combines batches, the key's name decides how: keys
    with "mean" are averaged, all others summed.
    """
    return {f"{PREFIX}{name}_mean": value for name, value in figures_of(result).items()}


def _load(target: Any) -> type:
    if isinstance(target, str):
        module, _, name = target.partition(":")
        try:
            target = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise ConfigError(
                f"wraps: cannot import {target!r} ({error}); give package.module:Class, or the id of one of skyrl_gym's: "
                f"{', '.join(sorted(registry))}"
            ) from None
    if not (isinstance(target, type) and issubclass(target, BaseTextEnv)):
        raise ConfigError(f"wraps: {target} is not a BaseTextEnv")
    return target
