"""Hands whole groups to the reward manager; verl's reward loop hands over single trajectories.

    +actor_rollout_ref.rollout.agent.agent_loop_manager_class=judgekit_verl.JudgeKitAgentLoopManager

V1 (the default trainer): all sessions of a prompt are tasks of one agent-loop worker. Each sends its rollout
to the group's reward worker as soon as it is generated, and the last of them to arrive, or to fail, asks for
the rewards. V0: a group may be spread over several agent-loop workers, so the driver sends it once the batch is
generated. No call waits inside a reward worker for another one: 1,000 waiting calls would block the worker.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
import uuid
from contextvars import ContextVar
from typing import Any

import numpy as np
import ray
import torch
from verl import DataProto
from verl.experimental.agent_loop import AgentLoopManager
from verl.utils.ray_utils import auto_await

from judgekit import ConfigError
from judgekit_verl import estimators
from judgekit_verl.estimators import LeftOut
from judgekit_verl.manager import GROUP, Arrived, Complete
from judgekit_verl.samples import rollout_of, tags_of
from judgekit_verl.settings import check_asked, settings
from judgekit_verl.step_counts import StepWatch, counts_actor, report

logger = logging.getLogger("judgekit")
estimators.register()


class _DriverSide:
    """Runs in the driver once per step: reports the workers' counts, and ends the training if needed."""

    reward_loop_worker_handles: Any
    _is_v1 = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.reward_loop_worker_handles is None:
            raise ConfigError(
                "verl grades after generation when its reward model shares the policy's GPUs, and then hands over "
                "neither uid nor ground truth: set reward.reward_model.enable_resource_pool=True"
            )
        config = self.config  # type: ignore[attr-defined]
        check_asked(config)
        router = "router:0" if config.reward.reward_model.enable else None  # only its presence counts here
        hosted = settings(
            dict(config.reward.get("reward_kwargs", None) or {}), hook=True, can_exclude=True, router=router
        ).hosted
        self._max_failure_rate = hosted.max_failure_rate
        if hosted.exclude and estimators.treatment(config.algorithm, hosted, v1=self._is_v1) is None:
            logger.warning("%s", estimators.advice(config.algorithm))
        self._judgekit_counts = counts_actor()
        self._watch = StepWatch(self._judgekit_counts, self._max_failure_rate)


class _Meeting:
    """The sessions of one prompt: those that arrived, and those that never will."""

    def __init__(self, size: int, worker: Any, *, training: bool = True) -> None:
        self.size = size
        self.worker = worker
        self.training = training
        self.group = uuid.uuid4().hex
        """A unique name; a prompt's uid may occur twice."""
        self.here: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.arrivals: list[Any] = []
        """The calls that sent them to the reward worker."""
        self.gone = 0
        self.sent = False

    @property
    def complete(self) -> bool:
        return len(self.here) + self.gone >= self.size


_meeting: ContextVar[_Meeting] = ContextVar("judgekit_meeting")
"""The meeting of the current session's prompt. A uid is not enough: REMAX's greedy baseline shares its prompt's."""


def _enter(meeting: _Meeting) -> None:
    """Set the session's meeting. A function, because Ray pickles the worker's class with its globals, but functions by name."""
    _meeting.set(meeting)


def _here() -> _Meeting:
    return _meeting.get()


def _v1_manager() -> Any:
    from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ

    # Ray does not allow subclassing an actor class, so take the plain class behind it
    base = AgentLoopWorkerTQ.__ray_metadata__.modified_class

    class GroupWorker(base):  # type: ignore[misc, valid-type]
        async def _run_prompt(
            self, prompt: dict[str, Any], sampling_params: Any, trajectory: Any, trace: bool = False
        ) -> None:
            rollout = self.config.actor_rollout_ref.rollout
            size = prompt.get("__rollout_n__", rollout.val_kwargs.n if trajectory["validate"] else rollout.n)
            worker = random.choice(self.reward_loop_worker_handles)
            training = not trajectory["validate"] and bool(prompt.get("__do_sample__", True))
            # inherited by its sessions, which are tasks created below
            _enter(_Meeting(int(size), worker, training=training))
            await super()._run_prompt(prompt, sampling_params, trajectory, trace)

        async def _run_agent_loop(
            self, sampling_params: Any, trajectory: Any, *, session_id: int, **kwargs: Any
        ) -> Any:
            meeting = _here()
            try:
                return await super()._run_agent_loop(
                    sampling_params, trajectory, session_id=session_id, **kwargs
                )
            finally:
                if session_id not in meeting.here:  # it failed, was empty, or already had a score
                    meeting.gone += 1
                    self._send_if_complete(meeting)

        async def _compute_score(self, outputs: list[Any], kwargs: dict[str, Any]) -> None:
            output = outputs[-1]
            if output.reward_score is not None:
                await super()._compute_score(outputs, kwargs)
                return
            start = time.perf_counter()
            meeting = _here()
            columns = {k: v for k, v in kwargs.items() if not isinstance(v, torch.Tensor)}
            columns["num_turns"] = output.num_turns
            rollout = rollout_of(
                columns,
                output.response_ids,
                self.tokenizer,
                mask=output.response_mask,
                extra_fields=output.extra_fields,
                limit=self.config.actor_rollout_ref.rollout.response_length,
            )
            arrived = Arrived(
                group=meeting.group,
                session=kwargs["session_id"],
                size=meeting.size,
                rollout=rollout,
                tags=tags_of(columns),
            )
            meeting.arrivals.append(meeting.worker.compute_score.remote(arrived))
            future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
            meeting.here[kwargs["session_id"]] = future
            self._send_if_complete(meeting)
            answer = await future
            output.reward_score = answer["reward_score"]
            output.extra_fields["reward_extra_info"] = answer["reward_extra_info"]
            left_out: LeftOut | None = answer.get("left_out")
            if left_out is not None:
                # verl writes kwargs beside the trajectory, under a key that it has made already: advantages go by
                # the uid, everything else goes by the key
                kwargs["uid"] = left_out.uid(str(kwargs["uid"]), kwargs["session_id"])
                for one in outputs:
                    one.response_mask = (
                        left_out.mask(one.response_mask) if one is output else [0] * len(one.response_mask)
                    )
            output.metrics.compute_score = time.perf_counter() - start

        def _send_if_complete(self, meeting: _Meeting) -> None:
            if meeting.complete and meeting.here and not meeting.sent:
                meeting.sent = True
                task = asyncio.get_running_loop().create_task(self._send(meeting))
                self.background_tasks.add(task)
                task.add_done_callback(self.background_tasks.discard)

        async def _send(self, meeting: _Meeting) -> None:
            sessions = tuple(sorted(meeting.here))
            futures = [meeting.here[session] for session in sessions]
            try:
                complete = meeting.worker.compute_score.remote(
                    Complete(
                        group=meeting.group, sessions=sessions, size=meeting.size, training=meeting.training
                    )
                )
                # if a rollout were lost on the way, its group's answer would never come
                *_, answer = await asyncio.gather(*meeting.arrivals, complete)
            except BaseException as error:
                for future in futures:
                    if not future.done():
                        future.set_exception(error)
                if not isinstance(error, Exception):
                    raise
                return
            for future, one in zip(futures, answer["group"], strict=True):
                if not future.done():
                    future.set_result(one)

    class GroupManager(_DriverSide, AgentLoopManagerTQ):  # type: ignore[misc]
        _is_v1 = True

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.agent_loop_workers_class = ray.remote(GroupWorker)

        def generate_sequences(self, prompts: Any) -> None:
            rollout = self.config.actor_rollout_ref.rollout
            validate = "validate" in prompts and prompts["validate"]
            each = rollout.val_kwargs.n if validate else rollout.n
            self._watch.begin(int(np.asarray(prompts["global_steps"]).flat[0]), len(prompts) * int(each))
            super().generate_sequences(prompts)

    return GroupManager


class _GroupManagerV0(_DriverSide, AgentLoopManager):  # type: ignore[misc]
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
        await self._grade_groups(prompts, out)
        counts, fatal = await self._judgekit_counts.take.remote()
        report(counts, fatal, self._max_failure_rate)
        return out

    async def _grade_groups(self, prompts: DataProto, out: DataProto) -> None:
        """Grade every group of the batch and write the rewards where verl looks for them."""
        if "rm_scores" in out.batch:  # by the agent loop itself
            return
        groups: dict[Any, list[int]] = {}
        padding: dict[int, int] = {}
        size = (
            self.config.actor_rollout_ref.rollout.val_kwargs.n if prompts.meta_info.get("validate") else None
        )
        sampled = prompts.non_tensor_batch.get("__do_sample__")
        for i, uid in enumerate(prompts.non_tensor_batch["uid"].tolist()):
            # REMAX's greedy baseline has its prompt's uid, but does not compete with the others
            alone = sampled is not None and not sampled[i]
            group = groups.setdefault((uid, i) if alone else uid, [])
            # verl pads a validation batch with its first rows, and drops them afterwards
            if len(group) == size:
                padding[i] = group[0]
            else:
                group.append(i)
        keys = [k for k in ("prompts", "responses", "attention_mask", "response_mask") if k in out.batch]
        workers = self.reward_loop_worker_handles
        calls = []
        for number, rows in enumerate(groups.values()):
            columns = {k: v[rows] for k, v in prompts.non_tensor_batch.items()}
            part = DataProto(
                batch=out.batch.select(*keys)[rows], non_tensor_batch=columns, meta_info={GROUP: True}
            )
            calls.append(workers[number % len(workers)].compute_score.remote(part))
        answers: list[Any] = [None] * len(out)
        for rows, answer in zip(groups.values(), await asyncio.gather(*calls), strict=True):
            for row, one in zip(rows, answer["group"], strict=True):
                answers[row] = one
        for row, twin in padding.items():
            answers[row] = answers[twin]
        width = out.batch["prompts"].shape[1]
        last = (out.batch["attention_mask"][:, width:].sum(1) - 1).clamp(min=0)  # an empty response has none
        scores = torch.zeros_like(out.batch["responses"], dtype=torch.float32)
        scores[torch.arange(len(out)), last] = torch.tensor([a["reward_score"] for a in answers])
        out.batch["rm_scores"] = scores
        if not prompts.meta_info.get("validate"):
            self._leave_out(out, [a.get("left_out") for a in answers], last)
        extra_keys = out.meta_info.setdefault("reward_extra_keys", [])
        for key in answers[0]["reward_extra_info"]:
            out.non_tensor_batch[key] = np.array([a["reward_extra_info"][key] for a in answers])
            if key not in extra_keys:
                extra_keys.append(key)

    @staticmethod
    def _leave_out(out: DataProto, left_out: list[LeftOut | None], last: torch.Tensor) -> None:
        """Mask rows; where nothing would be left to train on, two of one group keep their last token."""
        rows = torch.tensor([one is not None for one in left_out])
        out.batch["response_mask"][rows] = 0
        if not out.batch["response_mask"].any():
            keep = torch.tensor([i for i, one in enumerate(left_out) if one is not None and one.keeps][:2])
            out.batch["response_mask"][keep, last[keep]] = 1


class JudgeKitAgentLoopManager:
    """Target of `agent_loop_manager_class`: the hook for the configured trainer, V1 or V0."""

    judgekit_groups = True

    @classmethod
    def create(cls, *args: Any, **kwargs: Any) -> Any:
        """Calls verl's own `create` with verl's arguments, which differ by version."""
        config = kwargs["config"]
        kind = _v1_manager() if config.trainer.get("use_v1", False) else _GroupManagerV0
        return kind.create(*args, **kwargs)
