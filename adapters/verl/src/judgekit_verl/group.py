"""Hands whole groups to the reward manager; verl's reward loop hands over single trajectories.

    +actor_rollout_ref.rollout.agent.agent_loop_manager_class=judgekit_verl.JudgeKitAgentLoopManager

V1 (the default trainer) and the fully asynchronous trainer: all sessions of a prompt are tasks of one agent-loop
worker, which grades them together as they arrive (`judgekit_verl.sessions`). V0 and the one-step-off trainer: a group
may be spread over several agent-loop workers, so the driver sends it once the batch is generated.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, NamedTuple

import numpy as np
import ray
import torch
from verl import DataProto
from verl.experimental.agent_loop.agent_loop import AgentLoopManager, AgentLoopWorker
from verl.utils.ray_utils import auto_await

from judgekit import ConfigError
from judgekit.trainers import AuditBeside, HostedRunner
from judgekit_verl import estimators
from judgekit_verl.estimators import LeftOut
from judgekit_verl.manager import GROUP, has_hook
from judgekit_verl.openjudge import check_alone, check_unused, reward_function
from judgekit_verl.samples import LEFT_OUT, token_rewards
from judgekit_verl.sessions import GroupWorker, group_worker_v1, rollouts_of_a_step
from judgekit_verl.settings import check_asked, settings
from judgekit_verl.step_counts import StepWatch, counts_actor, report
from judgekit_verl.versions import no_score

logger = logging.getLogger("judgekit")


class _Driver:
    """What the process that drives the rollouts knows: the workers' counts, and what must end the training."""

    def __init__(self, config: Any, reward_workers: Any) -> None:
        if reward_workers is None:
            raise ConfigError(
                "verl grades after generation when its reward model shares the policy's GPUs, and then hands over "
                "neither uid nor ground truth: set reward.reward_model.enable_resource_pool=True"
            )
        check_asked(config)
        self.config = config
        self.hosted: HostedRunner | None = None
        self.audits: AuditBeside | None = None
        given = _custom_function(config)
        kwargs = dict(config.reward.get("reward_kwargs", None) or {})
        if reward_function(given) is not None:
            check_alone(kwargs)
        else:
            check_unused(given)
            router = (
                "router:0" if config.reward.reward_model.enable else None
            )  # only its presence counts here
            kwargs.pop("reward_manager_class_path", None)
            self.hosted = settings(kwargs, hook=True, can_exclude=True, router=router).hosted
            self.audits = AuditBeside.of(self.hosted.config)
            estimators.check_sight(self.config.algorithm, self.hosted)
        self.max_failure_rate = self.hosted.max_failure_rate if self.hosted is not None else None
        self.counts = counts_actor()
        self.counts.reset.remote()  # calls of one process arrive in order
        self.watch = StepWatch(self.counts, self.max_failure_rate, audits=self.audits)

    def say_what_is_not_exact(self, *, own_uid: bool) -> None:
        """Warn where `missing_reward: exclude` is no more than the group's mean.

        Raises ConfigError for verl's GDPO where it gets no terms.
        """
        algorithm, hosted = self.config.algorithm, self.hosted
        if hosted is None:
            return
        estimators.check_terms(algorithm, hosted, v1=own_uid)
        if not hosted.exclude:
            return
        if estimators.treatment(algorithm, hosted, v1=own_uid) is None:
            logger.warning("%s", estimators.advice(algorithm))


def _custom_function(config: Any) -> Any:
    """What verl loads from `reward.custom_reward_function`."""
    from verl.trainer.ppo.reward import get_custom_reward_fn

    return get_custom_reward_fn(config)


class JudgeKitAgentLoopManager:
    """Target of `agent_loop_manager_class`: the hook for the trainer that calls it.

    Trainers say what they are by the batch that they hand over: V1 a TensorDict, whose trajectories go into the
    TransferQueue, all others a DataProto, which they want back. Their configurations do not say it: that of the
    one-step-off trainer has V1's `trainer.use_v1=True`.
    """

    judgekit_groups = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._given = (args, kwargs)
        self._driver = _Driver(kwargs["config"], kwargs.get("reward_loop_worker_handles"))
        self._made: Any = None

    @classmethod
    @auto_await  # type: ignore[untyped-decorator]
    async def create(cls, *args: Any, **kwargs: Any) -> Any:
        """As verl's own `create`, with verl's arguments, which differ by version. Raises ConfigError."""
        return cls(*args, **kwargs)

    @auto_await  # type: ignore[untyped-decorator]
    def generate_sequences(self, prompts: Any) -> Any:
        """Generate and grade a batch: of V1's trainer, without waiting for it; otherwise returns verl's DataProto."""
        if isinstance(prompts, DataProto):
            return self._one_batch(prompts)
        if self._made is None:
            args, kwargs = self._given
            self._made = _v1_manager().create(self._driver, *args, **kwargs)
        return self._made.generate_sequences(prompts)

    async def _one_batch(self, prompts: DataProto) -> DataProto:
        if self._made is None:
            args, kwargs = self._given
            self._made = await _BatchManager.create(self._driver, *args, **kwargs)
        return await self._made.generate_sequences(prompts)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or self._made is None:
            raise AttributeError(f"judgekit's hook has no attribute {name!r} before the first batch")
        return getattr(self._made, name)


def _v1_manager() -> Any:
    from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ

    class QueueManager(AgentLoopManagerTQ):  # type: ignore[misc]
        def __init__(self, driver: _Driver, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.agent_loop_workers_class = ray.remote(group_worker_v1())
            self.watch = driver.watch
            driver.say_what_is_not_exact(own_uid=True)

        def generate_sequences(self, prompts: Any) -> None:
            rollout = self.config.actor_rollout_ref.rollout
            validate = "validate" in prompts and prompts["validate"]
            each = rollout.val_kwargs.n if validate else rollout.n
            self.watch.begin(int(np.asarray(prompts["global_steps"]).flat[0]), len(prompts) * int(each))
            super().generate_sequences(prompts)

    return QueueManager


class _BatchManager(AgentLoopManager):  # type: ignore[misc]
    """Grades a batch by group once it is generated."""

    reward_loop_worker_handles: Any

    def __init__(self, driver: _Driver, *args: Any, **kwargs: Any) -> None:
        self.agent_loop_workers_class = ray.remote(AgentLoopWorker)
        super().__init__(*args, **kwargs)
        self._driver = driver
        driver.say_what_is_not_exact(own_uid=False)

    async def _init_agent_loop_workers(self) -> None:
        handles, self.reward_loop_worker_handles = self.reward_loop_worker_handles, None
        try:  # its workers must not grade rollouts one by one: the driver sends them by group
            await super()._init_agent_loop_workers()
        finally:
            self.reward_loop_worker_handles = handles

    @auto_await  # type: ignore[untyped-decorator]
    async def generate_sequences(self, prompts: DataProto) -> DataProto:
        if "uid" not in prompts.non_tensor_batch:
            raise ConfigError("verl's batch has no uid, so its rollouts cannot be grouped by prompt")
        out = await super().generate_sequences(prompts)
        shares = await self._grade_groups(prompts, out)
        taken = await self._driver.counts.take.remote()
        report(taken.counts, taken.fatal, self._driver.max_failure_rate)
        # verl's trainers log what they find here, each under timing_s/
        figures = taken.training.figures()
        if self._driver.audits is not None:
            figures |= self._driver.audits.figures()
        figures |= shares
        out.meta_info.setdefault("timing", {}).update(figures)
        return out

    async def _grade_groups(self, prompts: DataProto, out: DataProto) -> dict[str, float]:
        """Grade every group of the batch and write the rewards where verl looks for them.

        Returns the share of a training's rows that are trained on.
        """
        if "rm_scores" in out.batch:  # by the agent loop itself
            return {}
        validates = bool(prompts.meta_info.get("validate"))
        per_prompt = self.config.actor_rollout_ref.rollout.val_kwargs.n if validates else None
        found = _Groups.of(prompts, per_prompt)
        answers = await self._answers(prompts, out, found)
        width = out.batch["prompts"].shape[1]
        last = (out.batch["attention_mask"][:, width:].sum(1) - 1).clamp(min=0)  # an empty response has none
        scores = torch.zeros_like(out.batch["responses"], dtype=torch.float32)
        scores[torch.arange(len(out)), last] = torch.tensor([a["reward_score"] for a in answers])
        for row, answer in enumerate(answers):
            mask = out.batch["response_mask"][row, : last[row] + 1].tolist() if "turns" in answer else []
            if (rewards := token_rewards(answer, mask)) is not None:
                scores[row] = 0.0
                scores[row, : len(rewards)] = torch.tensor(rewards)
        shares = {}
        if not validates:
            left_out = found.left_out([a.get("left_out") for a in answers])
            leave_out(out, left_out, last)
            gone = torch.tensor([one is not None for one in left_out])
            shares = {estimators.LIVE_SHARE: float((~gone).float().mean())}
            if estimators.ignores_left_out(self.config.algorithm) and gone.any() and not gone.all():
                # verl's curves are over this tensor: their mean is that of the rows with a reward
                scores[gone] = 0.0
                scores[gone.nonzero().squeeze(-1), last[gone]] = scores[~gone].sum(-1).mean()
        out.batch["rm_scores"] = scores
        extra_keys = out.meta_info.setdefault("reward_extra_keys", [])
        infos = [a["reward_extra_info"] for a in answers]
        # a user's function may give some figures in some groups only
        for key in dict.fromkeys(key for info in infos for key in info):
            out.non_tensor_batch[key] = np.array([info.get(key, no_score()) for info in infos])
            if key not in extra_keys:
                extra_keys.append(key)
        return shares

    async def _answers(self, prompts: DataProto, out: DataProto, found: _Groups) -> list[Any]:
        """Have the workers grade the groups. Returns each row's answer."""
        keys = [k for k in ("prompts", "responses", "attention_mask", "response_mask") if k in out.batch]
        workers = self.reward_loop_worker_handles
        calls = []
        meta = {GROUP: True, "validate": bool(prompts.meta_info.get("validate"))}
        if "global_steps" in prompts.meta_info:
            meta["global_steps"] = prompts.meta_info["global_steps"]
        for number, rows in enumerate(found.rows.values()):
            columns = {k: v[rows] for k, v in prompts.non_tensor_batch.items()}
            columns |= _exported(columns, out, rows)
            part = DataProto(batch=out.batch.select(*keys)[rows], non_tensor_batch=columns, meta_info=meta)
            calls.append(workers[number % len(workers)].compute_score.remote(part))
        answers: Any = [None] * len(out)
        for rows, answer in zip(found.rows.values(), await asyncio.gather(*calls), strict=True):
            for row, one in zip(rows, answer["group"], strict=True):
                answers[row] = one
        for row, twin in found.padding.items():
            answers[row] = answers[twin]
        return answers  # type: ignore[no-any-return]


def _exported(columns: dict[str, Any], out: DataProto, rows: list[int]) -> dict[str, Any]:
    """Return the column of what the agent loop has exported of each row, such as its `messages`."""
    if "tool_extra_fields" in columns:
        return {}
    given = out.non_tensor_batch
    names = [k for k in given if k not in columns and k not in LEFT_OUT and not k.startswith("__")]
    tools = given.get("tool_extra_fields")
    if not names and tools is None:
        return {}
    found = np.empty(len(rows), dtype=object)
    for at, row in enumerate(rows):
        found[at] = {**((tools[row] or {}) if tools is not None else {}), **{k: given[k][row] for k in names}}
    return {"tool_extra_fields": found}


class _Groups(NamedTuple):
    """A batch's rows by prompt."""

    rows: dict[Any, list[int]]
    baselines: dict[int, Any]
    """REMAX's greedy baselines, with their prompt's uid: they do not compete with the others, and stand alone."""
    padding: dict[int, int]
    """Rows that repeat another: verl pads a validation batch with its first rows, and drops them afterwards."""

    @classmethod
    def of(cls, prompts: DataProto, per_prompt: int | None) -> _Groups:
        """Group the rows of *prompts*. *per_prompt*: a validation's rollouts of each; None in training."""
        found = cls({}, {}, {})
        sampled = prompts.non_tensor_batch.get("__do_sample__")
        for i, uid in enumerate(prompts.non_tensor_batch["uid"].tolist()):
            if alone := sampled is not None and not sampled[i]:
                found.baselines[i] = uid
            group = found.rows.setdefault((uid, i) if alone else uid, [])
            if len(group) == per_prompt:
                found.padding[i] = group[0]
            else:
                group.append(i)
        return found

    def left_out(self, told: list[LeftOut | None]) -> list[LeftOut | None]:
        """Leave out the siblings of each baseline that is left out: they have nothing to be compared with."""
        for row, uid in self.baselines.items():
            if told[row] is not None:
                for sibling in self.rows.get(uid, ()):
                    told[sibling] = LeftOut(own_uid=False, keeps=False)
        return told


def leave_out(out: DataProto, left_out: list[LeftOut | None], last: torch.Tensor) -> None:
    """Mask rows; where nothing would be left to train on, two of one group keep their last token."""
    rows = torch.tensor([one is not None for one in left_out])
    out.batch["response_mask"][rows] = 0
    if not out.batch["response_mask"].any():
        keep = [i for i, one in enumerate(left_out) if one is not None and one.keeps][:2]
        out.batch["response_mask"][keep, last[keep]] = 1


class _WorkersOfOthers:
    """Gives our agent-loop workers to managers that verl hard-codes, as its fully asynchronous trainer's.

    `AgentLoopManager` takes its workers from `agent_loop_workers_class` where it has that attribute. It has for a
    configuration that names our hook; this process then drives the rollouts.
    """

    def __get__(self, manager: Any, owner: Any = None) -> Any:
        if manager is None or not has_hook(manager.config):
            raise AttributeError("agent_loop_workers_class")
        driver = _Driver(manager.config, manager.reward_loop_worker_handles)
        driver.say_what_is_not_exact(own_uid=False)
        driver.watch.follow(rollouts_of_a_step(manager.config))
        manager.agent_loop_workers_class = ray.remote(GroupWorker)
        return manager.agent_loop_workers_class


def install() -> None:
    """Make the hook work in trainers whose agent-loop manager cannot be configured."""
    if "agent_loop_workers_class" not in vars(AgentLoopManager):
        AgentLoopManager.agent_loop_workers_class = _WorkersOfOthers()
    estimators.register()


install()
