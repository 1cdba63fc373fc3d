"""The reward manager of verl's reward loop (0.7.1 and later): one call per trajectory, or per group."""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Awaitable, Mapping
from typing import Any

from msgspec import Struct
from verl.experimental.reward_loop.reward_manager import register
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from judgekit import ConfigError, GradingRunner, MissingRewardError, RewardResult, Rollout
from judgekit.trainers import Counts, GroupCollector, figures_of
from judgekit_verl import estimators
from judgekit_verl.filters import add_metric, filter_metric
from judgekit_verl.openjudge import check_alone, check_unused, group_scores, reward_function
from judgekit_verl.samples import rollout_of_row, tags_of
from judgekit_verl.settings import check_asked, settings
from judgekit_verl.versions import no_score, verl_version

logger = logging.getLogger("judgekit")

_Graded = tuple[list[Rollout], list[RewardResult]]

GROUP = "judgekit_group"
"""Key in a DataProto's meta_info: its rows belong to one prompt."""


class Arrived(Struct, frozen=True, kw_only=True):
    """Sent by the V1 hook: one rollout of a group. The answer is empty and immediate."""

    group: str
    session: int
    size: int
    rollout: Rollout
    tags: dict[str, Any]
    training: bool
    own_uid: bool
    """As in `Complete`."""


class Complete(Struct, frozen=True, kw_only=True):
    """Sent by the V1 hook when a group is complete: the sessions that arrived. The answer has their rewards."""

    group: str
    sessions: tuple[int, ...]
    size: int
    training: bool
    """Whether the policy is trained on them."""
    own_uid: bool
    """Whether the hook can give a rollout a uid of its own."""


PREFIX = "judgekit/"


class JudgeKitRewardManager(RewardManagerBase):  # type: ignore[misc]
    """Grades verl's trajectories with a GradingRunner.

    Configured by `+reward.reward_kwargs.judgekit_config=reward.yaml`; see `judgekit_verl.settings`. Called
    with a single trajectory it returns verl's `{"reward_score", "reward_extra_info"}`; called by
    `JudgeKitAgentLoopManager` with a group, `{"group": [one of those per rollout]}`.

    `reward_extra_info` has the same keys for every rollout: `judgekit/missing` (1: the reward is not from
    grades), `judgekit/raw` (the reward before group transforms) and `judgekit/<grader>`; None where there is
    no score (NaN before verl 0.9, which cannot log None).

    *compute_score*: an object with `compute_batch_scores` (see `judgekit_verl.openjudge`) takes the place of a
    configuration. verl loads it from `reward.custom_reward_function`; another function there is an error, since it would
    never be called: it is a grader of reward.yaml, as it stands.

    With `+reward.reward_kwargs.reward_manager_class_path=package.Class` it constructs that class instead, which
    unpatched verl would not load. Constructed with the arguments of earlier verl versions,
    `(tokenizer, num_examine, …)`, it is a `JudgeKitLegacyRewardManager`.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        config = kwargs.get("config", args[0] if args else None)
        if hasattr(config, "actor_rollout_ref") and not hasattr(config, "reward"):
            raise ConfigError(
                "verl 0.7.0's reward loop cannot be configured for judgekit: set reward_model.use_reward_loop=False "
                "and take JudgeKitLegacyRewardManager, see the README of judgekit-verl"
            )
        if ("tokenizer" in kwargs and "config" not in kwargs) or not hasattr(config, "reward"):
            from judgekit_verl.legacy import JudgeKitLegacyRewardManager

            return JudgeKitLegacyRewardManager(*args, **kwargs)
        path = _reward_kwargs(config).get("reward_manager_class_path")
        if path and (target := load(path)) is not cls:
            if isinstance(target, type) and issubclass(target, cls):
                return super().__new__(target)  # Python goes on to initialise it
            if not hasattr(target, "run_single"):
                raise ConfigError(
                    f"reward_manager_class_path={path}: this verl calls a manager's run_single, and {target.__name__} has "
                    "none (it is for verl before 0.7.1, which calls a manager with the whole batch); remove the line and "
                    "give its reward function, the object with compute_batch_scores, to judgekit's manager: "
                    "reward.custom_reward_function.path=pkg://package.module reward.custom_reward_function.name=object"
                )
            return target(*args, **kwargs)
        return super().__new__(cls)

    def __init__(
        self,
        config: Any,
        tokenizer: Any,
        compute_score: Any = None,
        reward_router_address: str | None = None,
        reward_model_tokenizer: Any = None,
        **_: Any,
    ) -> None:
        verl_version()
        check_asked(config)
        super().__init__(config, tokenizer, compute_score)
        self.hook = has_hook(config)
        self._limit = config.get("actor_rollout_ref", {}).get("rollout", {}).get("response_length")
        self._given = reward_function(compute_score)
        if self._given is not None:
            check_alone(_reward_kwargs(config))
        else:
            check_unused(compute_score)
            made = settings(
                {k: v for k, v in _reward_kwargs(config).items() if k != "reward_manager_class_path"},
                hook=self.hook,
                can_exclude=self.hook,
                workers=int(config.reward.get("num_workers", 1)),
                router=reward_router_address,
            )
            self._hosted = made.hosted
            self.runner = made.hosted.runner
            self._paying = self.runner
            """Its variant for trainings that cannot leave a rollout out."""
            if self._hosted.exclude:
                self._paying = self.runner.with_settings(missing_reward="neutral")
            self._extras = made.extras
            ours = [PREFIX + name for name in ("missing", "raw", *self._extras)]
            self._filter_metric = filter_metric(config, ours)
        self._none = no_score()
        self._steps: Any = None
        self._collectors: dict[GradingRunner, GroupCollector] = {}
        self._members: dict[tuple[str, int], asyncio.Future[Any]] = {}
        """Members that have arrived, of groups that are not complete."""

    async def run_single(self, data: Any) -> dict[str, Any]:
        """Grade a trajectory (its last output, where it has several), or a group.

        *data*: verl's DataProto, or what the hook sends. Raises MissingRewardError under
        `missing_reward: raise`, and ConfigError for a data set that the graders cannot read.
        """
        if isinstance(data, Arrived):
            self._begin(data)
            return {}
        if isinstance(data, Complete):
            if self._given is not None:
                given = [rollout for rollout, _ in await self._arrived(data)]
                return {"group": await self._by_function(given, training=data.training)}
            grading = self._finish(data)
            answers = await self._answers(
                grading, len(data.sessions), grouped=True, training=data.training, v1=data.own_uid
            )
            return {"group": answers}
        grouped = bool(data.meta_info.get(GROUP))
        if self.hook and not grouped:
            reason = (
                "this trainer ignores agent_loop_manager_class and hands over rollouts one at a time: load "
                "judgekit_verl.plugin in its processes, with VERL_USE_EXTERNAL_MODULES=judgekit_verl.plugin (verl 0.9 "
                "does so by itself unless VERL_USE_EXTERNAL_PLUGINS forbids it), or remove the line and what needs a group"
            )
            self._step_counts().fatal.remote(reason)
            raise ConfigError(reason)
        rows = [data[i] for i in range(len(data))] if grouped else [data[-1:][0]]
        rollouts = [rollout_of_row(row, self.tokenizer, limit=self._limit) for row in rows]
        training = not data.meta_info.get("validate", False)
        if self._given is not None:
            answers = await self._by_function(rollouts, training=training)
            return {"group": answers} if grouped else answers[0]
        columns = {"global_steps": data.meta_info.get("global_steps"), **rows[0].non_tensor_batch}
        runner = self._runner(training=training, v1=False)
        grading = self._run(runner, rollouts, tags_of(columns, training=training))
        answers = await self._answers(grading, len(rows), grouped=grouped, training=training)
        return {"group": answers} if grouped else answers[0]

    def _treatment(self, *, training: bool, v1: bool) -> estimators.Treatment | None:
        """How rollouts without a reward are left out; None in a validation, and where the estimator cannot."""
        if not (training and self.hook):
            return None
        return estimators.treatment(self.config.algorithm, self._hosted, v1=v1)

    def _runner(self, *, training: bool, v1: bool) -> GradingRunner:
        """The runner that says of a rollout without a reward what becomes of it."""
        pays = training and self._treatment(training=training, v1=v1) is None
        return self._paying if pays else self.runner

    async def _run(self, runner: GradingRunner, rollouts: list[Rollout], tags: Mapping[str, Any]) -> _Graded:
        (results,) = await runner.run_groups([rollouts], tags=tags)
        return rollouts, results

    def _begin(self, member: Arrived) -> None:
        """Start grading this member by itself; nothing here waits for the others."""
        if self._given is not None:  # which takes groups that are whole
            self._member(member.group, member.session).set_result((member.rollout, None))
            return
        collector = self._groups(training=member.training, v1=member.own_uid)
        coroutine = collector.arrive(member.group, member.rollout, size=member.size, tags=member.tags)
        grading = asyncio.get_running_loop().create_task(coroutine)
        self._member(member.group, member.session).set_result((member.rollout, grading))

    async def _finish(self, group: Complete) -> _Graded:
        collector = self._groups(training=group.training, v1=group.own_uid)
        for _ in range(group.size - len(group.sessions)):
            collector.leave(group.group, size=group.size)
        members = await self._arrived(group)
        results = await asyncio.gather(*(grading for _, grading in members))
        return [rollout for rollout, _ in members], results

    async def _arrived(self, group: Complete) -> list[tuple[Rollout, Any]]:
        """Each member's rollout, and the task that grades it unless a function of the user's does."""
        try:
            return [await self._member(group.group, session) for session in group.sessions]
        finally:
            for session in group.sessions:
                self._members.pop((group.group, session), None)

    def _member(self, group: str, session: int) -> asyncio.Future[Any]:
        """A member, made by whichever of its two messages comes first."""
        key = (group, session)
        if key not in self._members:
            self._members[key] = asyncio.get_running_loop().create_future()
        return self._members[key]

    def _groups(self, *, training: bool, v1: bool) -> GroupCollector:
        runner = self._runner(training=training, v1=v1)
        if runner not in self._collectors:
            self._collectors[runner] = GroupCollector(runner)
        return self._collectors[runner]

    async def _by_function(self, rollouts: list[Rollout], *, training: bool) -> list[dict[str, Any]]:
        assert self._given is not None
        try:
            answers = await group_scores(self._given, rollouts)
        except Exception as error:
            if self.hook:
                self._step_counts().fatal.remote(f"{type(error).__name__}: {error}")
            raise
        if self.hook:
            counts = Counts()
            counts.statuses["scored"] = len(answers)
            await self._step_counts().add.remote(counts, training)
        return answers

    async def _answers(
        self, grading: Awaitable[_Graded], count: int, *, grouped: bool, training: bool, v1: bool = False
    ) -> list[dict[str, Any]]:
        try:
            rollouts, results = await grading
        except MissingRewardError:
            if self.hook:
                counts = Counts()
                counts.statuses["raised"] = count
                self._step_counts().add.remote(counts, training)
            raise
        except Exception as error:
            # V1 silently drops rollouts whose call raises, so tell the driver
            if self.hook:
                self._step_counts().fatal.remote(f"{type(error).__name__}: {error}")
            raise
        if self.hook:
            counts = Counts(self.runner.settings.signals, self.runner.reward.bounds())
            for result, rollout in zip(results, rollouts, strict=True):
                counts.add(result, rollout)
            if grouped:
                counts.add_group(results, rollouts)
            await self._step_counts().add.remote(counts, training)  # before the rewards are used
        numbers = self._hosted.numbers(results) if grouped else [result.reward for result in results]
        answers = [self._answer(result, number) for result, number in zip(results, numbers, strict=True)]
        if self._filter_metric is not None:
            dropped = any(result.status == "dropped" for result in results)
            add_metric(answers, self._filter_metric, dropped=dropped)
        treatment = self._treatment(training=training, v1=v1) if grouped else None
        if treatment is not None:
            missing = [result.status != "scored" for result in results]
            for answer, left_out in zip(answers, treatment.of_group(missing), strict=True):
                answer["left_out"] = left_out
        return answers

    def _answer(self, result: RewardResult, number: float | None) -> dict[str, Any]:
        if number is None:
            raise MissingRewardError(
                "a reward is missing, and verl needs a number: write missing_reward: neutral"
            )
        figures = figures_of(result)
        names = ("missing", "raw", *self._extras)
        extra = {PREFIX + name: float(figures[name]) if name in figures else self._none for name in names}
        answer = {"reward_score": float(number), "reward_extra_info": extra}
        if self.runner.reward.has_turns:
            answer["turns"] = result.turns
        return answer

    def _step_counts(self) -> Any:
        if self._steps is None:
            from judgekit_verl.step_counts import counts_actor

            self._steps = counts_actor()
        return self._steps


def has_hook(config: Any) -> bool:
    """Returns whether the trainer hands over whole groups."""
    agent = config.get("actor_rollout_ref", {}).get("rollout", {}).get("agent", {}) or {}
    path = agent.get("agent_loop_manager_class")
    return path is not None and bool(getattr(load(path), "judgekit_groups", False))


def _reward_kwargs(config: Any) -> dict[str, Any]:
    return dict(config.reward.get("reward_kwargs", None) or {})


def load(path: str) -> Any:
    """The object at `package.module.name` or `package.module:name`."""
    module, _, name = path.replace(":", ".").rpartition(".")
    return getattr(importlib.import_module(module), name)


if __name__ == "judgekit_verl.manager":  # not when verl executes the file again, by its path
    register("judgekit")(JudgeKitRewardManager)
