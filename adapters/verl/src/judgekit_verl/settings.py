"""Reads judgekit's settings from verl's configuration, and builds the runner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from judgekit import ConfigError
from judgekit.trainers import HostedRunner, RewardConfig, did_you_mean, hosted_runner, share_limits

KEYS = ("judgekit_config", "judgekit_runner", "judgekit_extras", "judgekit_adv_estimator")
ROUTER = "verl-router"
"""The url in reward.yaml that means the judge hosted by verl."""
HOOK_LINE = "+actor_rollout_ref.rollout.agent.agent_loop_manager_class=judgekit_verl.JudgeKitAgentLoopManager"


class Settings(Struct, frozen=True, kw_only=True):
    """The runner of one worker, and how to use it."""

    hosted: HostedRunner
    extras: tuple[str, ...]
    """Graders whose scores go into `reward_extra_info`."""


def settings(
    kwargs: Mapping[str, Any],
    *,
    hook: bool,
    can_exclude: bool = False,
    workers: int = 1,
    router: str | None = None,
) -> Settings:
    """Read `reward.reward_kwargs`.

    *kwargs*: `judgekit_config`, the path of a reward.yaml, or `judgekit_runner`, a GradingRunner or a
    function that returns one, as `package.module:name`; `judgekit_extras`, a list of graders (default: all).
    *hook*: whether whole groups arrive. *can_exclude*: whether response masks can be changed. *workers*: processes
    that share the judges' limits. *router*: host and port of the judge that verl hosts. Raises ConfigError.
    """
    for key in kwargs:
        if str(key).startswith("judgekit") and key not in KEYS:
            raise ConfigError(f"reward_kwargs: there is no {key!r}{did_you_mean(str(key), KEYS)}")
    config, runner = kwargs.get("judgekit_config"), kwargs.get("judgekit_runner")
    if (config is None) == (runner is None):
        raise ConfigError(
            "say how to grade with one of +reward.reward_kwargs.judgekit_config=/path/to/reward.yaml and "
            "+reward.reward_kwargs.judgekit_runner=package.module:runner"
        )

    def prepare(file: RewardConfig) -> None:
        for name, judge in file.judges.items():
            _check_judge(name, judge, workers, router)
            share_limits(judge, workers)

    hosted = hosted_runner(
        config=config,
        runner=runner,
        grouped=hook,
        can_mask=can_exclude,
        can_exclude=can_exclude,
        places=True,
        grouping_hint=f"add {HOOK_LINE}",
        prepare=prepare,
    )
    if hosted.runner.reward.has_turns and not hook:
        raise ConfigError(
            f"{{turns: …}} pays turns on their own tokens, which needs the hook: add {HOOK_LINE}"
        )
    if hosted.max_failure_rate is not None and not hook:
        raise ConfigError(
            f"max_failure_rate needs the hook, which counts over all workers and raises in the driver: add {HOOK_LINE}"
        )
    known = tuple(hosted.runner.spec.graders)
    extras = tuple(kwargs.get("judgekit_extras") or known)
    for name in extras:
        if name not in known:
            raise ConfigError(f"judgekit_extras: there is no grader {name!r}{did_you_mean(str(name), known)}")
    return Settings(hosted=hosted, extras=extras)


def check_asked(config: Any) -> None:
    """Raise ConfigError if verl would ask its reward model instead of the reward manager."""
    if config.reward.reward_model.enable and not config.reward.custom_reward_function.path:
        raise ConfigError(
            "with reward.reward_model.enable=True and no reward.custom_reward_function.path, verl asks its reward "
            "model as a classifier and never this reward manager: set the path to use the model as judge, "
            "reward.custom_reward_function.path=pkg://judgekit_verl"
        )


def _check_judge(name: str, judge: dict[str, Any], workers: int, router: str | None) -> None:
    if judge.get("engine") == "vllm" and workers > 1:
        raise ConfigError(
            f"judges.{name}: each of verl's {workers} reward workers would load the model; serve it once "
            "(judgekit serve) and take engine: ray or engine: openai, or set reward.num_workers=1"
        )
    if judge.get("url") == ROUTER:
        if router is None:
            raise ConfigError(
                f"judges.{name}: verl hosts no judge; url: {ROUTER} needs reward.reward_model.enable=True and a "
                "reward.custom_reward_function.path=pkg://judgekit_verl, or verl asks its reward model itself"
            )
        judge["url"] = f"http://{router}"
