"""Agent-loop workers that hand over whole groups: verl's workers, whose sessions of one prompt are graded together.

Each session sends its rollout to the group's reward worker as soon as it is generated, and the last of them to arrive,
or to fail, asks for the rewards. No call waits inside a reward worker for another one: 1,000 waiting calls would block
the worker.
"""

from __future__ import annotations

import asyncio
import functools
import random
import time
import uuid
from collections import Counter
from collections.abc import Awaitable
from contextvars import ContextVar
from typing import Any

import torch
from pydantic import PrivateAttr
from verl import DataProto
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker

from judgekit import ConfigError
from judgekit_verl.estimators import LeftOut
from judgekit_verl.manager import Arrived, Complete
from judgekit_verl.samples import rollout_of, tags_of, token_rewards
from judgekit_verl.step_counts import counts_actor

LEFT_OUT = "judgekit_left_out"
"""Tag of V1's trajectories that are kept out of the training."""


class Meeting:
    """The sessions of one prompt: those that arrived, and those that never will."""

    def __init__(self, size: int, worker: Any, *, training: bool = True) -> None:
        self.size = size
        self.worker = worker
        self.training = training
        self.group = uuid.uuid4().hex
        """A unique name; a prompt's uid may occur twice."""
        self.seats = 0
        """Sessions that have begun."""
        self.here: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.left_out: dict[int, LeftOut] = {}
        self.arrivals: list[Any] = []
        """The calls that sent them to the reward worker."""
        self.gone = 0
        self.sent = False

    @property
    def complete(self) -> bool:
        return len(self.here) + self.gone >= self.size


_meetings: ContextVar[dict[Any, Meeting]] = ContextVar("judgekit_meetings")
"""The meetings of the current call, by uid. A uid alone is not enough: REMAX's greedy baseline shares its prompt's."""
_seat: ContextVar[tuple[Meeting, int]] = ContextVar("judgekit_seat")
"""The current session's meeting, and its number there."""


class GroupSessions:
    """Mixed into verl's agent-loop workers, V1's and the others', to grade each prompt's sessions together."""

    own_uid = False
    """Whether a trajectory's uid can be changed."""
    background_tasks: set[asyncio.Task[Any]]
    config: Any
    reward_loop_worker_handles: Any
    tokenizer: Any

    def _meet(self, sizes: dict[Any, int], *, training: bool) -> None:
        """Say how many sessions each uid has. They must be tasks that are created afterwards."""
        _meetings.set(
            {
                uid: Meeting(size, random.choice(self.reward_loop_worker_handles), training=training)
                for uid, size in sizes.items()
            }
        )

    async def _take_part(self, uid: Any, session: int | None, loop: Awaitable[Any]) -> Any:
        """Run a session; if it fails, the others do not wait for it."""
        meeting = _meetings.get()[uid]
        session = meeting.seats if session is None else session
        meeting.seats += 1
        _seat.set((meeting, session))
        try:
            return await loop
        finally:
            if session not in meeting.here:  # it failed, was empty, or already had a score
                meeting.gone += 1
                self._send_if_complete(meeting)

    async def _compute_score(self, outputs: list[Any], kwargs: dict[str, Any]) -> None:
        output = outputs[-1]
        if output.reward_score is not None:
            await super()._compute_score(outputs, kwargs)  # type: ignore[misc]
            return
        start = time.perf_counter()
        meeting, session = _seat.get()
        columns = {k: v for k, v in kwargs.items() if not isinstance(v, torch.Tensor)}
        columns |= {"num_turns": output.num_turns, "session_id": session}
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
            session=session,
            size=meeting.size,
            rollout=rollout,
            tags=tags_of(
                {"global_steps": output.extra_fields.get("max_global_steps"), **columns},
                training=meeting.training,
            ),
            training=meeting.training,
            own_uid=self.own_uid,
        )
        meeting.arrivals.append(meeting.worker.compute_score.remote(arrived))
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        meeting.here[session] = future
        self._send_if_complete(meeting)
        answer = await future
        output.reward_score = answer["reward_score"]
        if (rewards := token_rewards(answer, output.response_mask)) is not None:
            self._place(outputs, rewards)
            output = outputs[-1]
        output.extra_fields["reward_extra_info"] = answer["reward_extra_info"]
        left_out: LeftOut | None = answer.get("left_out")
        if left_out is not None:
            meeting.left_out[session] = left_out
            self._leave_out(left_out, outputs, kwargs)
        output.metrics.compute_score = time.perf_counter() - start

    def _fate(self) -> LeftOut | None:
        """How the current session is kept out of the training; None if it is trained on."""
        meeting, session = _seat.get()
        return meeting.left_out.get(session)

    def _place(self, outputs: list[Any], rewards: list[float]) -> None:
        """Give each token of the last output its own reward."""
        raise NotImplementedError

    def _leave_out(self, left_out: LeftOut, outputs: list[Any], kwargs: dict[str, Any]) -> None:
        """Keep a trajectory out of the training, before verl makes tensors of it."""

    def _send_if_complete(self, meeting: Meeting) -> None:
        if meeting.complete and meeting.here and not meeting.sent:
            meeting.sent = True
            task = asyncio.get_running_loop().create_task(self._send(meeting))
            self.background_tasks.add(task)
            task.add_done_callback(self.background_tasks.discard)

    async def _send(self, meeting: Meeting) -> None:
        sessions = tuple(sorted(meeting.here))
        futures = [meeting.here[session] for session in sessions]
        try:
            complete = meeting.worker.compute_score.remote(
                Complete(
                    group=meeting.group,
                    sessions=sessions,
                    size=meeting.size,
                    training=meeting.training,
                    own_uid=self.own_uid,
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


class _Figure(float):
    """A figure that verl may join with another prompt's, from a moment before or after.

    It makes one batch of several prompts' and asserts that they agree on what is no tensor; it keeps the first's.
    """

    def __eq__(self, other: object) -> bool:
        return isinstance(other, float)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = float.__hash__


def rollouts_of_a_step(config: Any) -> int:
    """Rollouts that the fully asynchronous trainer trains on between two changes of the policy."""
    asynchronous = config.get("async_training", {}) or {}
    prompts = (
        config.actor_rollout_ref.actor.ppo_mini_batch_size
        * asynchronous.get("require_batches", 1)
        * asynchronous.get("trigger_parameter_sync_step", 1)
    )
    return int(prompts * config.actor_rollout_ref.rollout.n)


_TOKENS = "judgekit_token_rewards"
"""Key in an output's extra fields, until verl has made tensors of a batch."""


def _by_token(output: Any, rewards: list[float]) -> Any:
    """Return an agent loop's output that has each token's own reward. verl asks an output for its tensors with `as_dict`."""
    kind = _by_token_of(type(output))  # type: ignore[arg-type]
    made = kind.model_construct(_fields_set=set(output.model_fields_set), **output.__dict__)
    made._judgekit_rewards = rewards
    return made


@functools.cache
def _by_token_of(kind: Any) -> Any:
    class ByToken(kind):  # type: ignore[misc]
        _judgekit_rewards: list[float] = PrivateAttr(default_factory=list)

        def as_dict(self) -> dict[str, Any]:
            fields: dict[str, Any] = super().as_dict()
            fields["rm_scores"] = torch.tensor(self._judgekit_rewards, dtype=torch.float32)
            return fields

    return ByToken


class GroupWorker(GroupSessions, AgentLoopWorker):  # type: ignore[misc]
    """For trainers that hand a worker all the rows of a prompt in one call, as verl's fully asynchronous one does."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.background_tasks = set()
        self._counts = counts_actor()
        self._rollouts_of_a_step = rollouts_of_a_step(self.config)

    async def generate_sequences(self, batch: DataProto) -> DataProto:
        """As verl's. Raises RuntimeError with the reason once the rollouter's watch has ended the training."""
        if reason := await self._counts.ended.remote():
            raise RuntimeError(f"judgekit: {reason}")
        uids = batch.non_tensor_batch.get("uid")
        if uids is None:
            raise ConfigError("verl's batch has no uid, so its rollouts cannot be grouped by prompt")
        training = not batch.meta_info.get("validate", False)
        self._meet(dict(Counter(uids.tolist())), training=training)
        out = await super().generate_sequences(batch)
        if training:
            figures = await self._counts.last_step.remote(self._rollouts_of_a_step)
            # the fully asynchronous trainer logs what it finds here under this prefix
            out.meta_info.update({f"fully_async/{name}": _Figure(value) for name, value in figures.items()})
        return out

    def _place(self, outputs: list[Any], rewards: list[float]) -> None:
        outputs[-1].extra_fields[_TOKENS] = rewards

    def _postprocess(self, inputs: list[Any], *args: Any, **kwargs: Any) -> DataProto:
        placed = {
            i: one.extra_fields.pop(_TOKENS) for i, one in enumerate(inputs) if _TOKENS in one.extra_fields
        }
        out = super()._postprocess(inputs, *args, **kwargs)
        for row, rewards in placed.items():  # which verl has put on the last token
            out.batch["rm_scores"][row] = 0.0
            out.batch["rm_scores"][row, : len(rewards)] = torch.tensor(rewards, dtype=torch.float32)
        return out

    async def _run_agent_loop(self, sampling_params: Any, trajectory: Any, **kwargs: Any) -> Any:
        loop = super()._run_agent_loop(sampling_params, trajectory, **kwargs)
        output = await self._take_part(kwargs["uid"], None, loop)
        if left_out := self._fate():  # verl pads the mask before it asks for the score
            width = output.response_mask.shape[1]
            length = int(output.attention_mask[:, -width:].sum())
            output.response_mask.zero_()
            output.response_mask[0, :length] = torch.tensor(left_out.mask([1] * length))
        return output


def group_worker_v1() -> Any:
    """The worker of the V1 trainer, which puts its trajectories into the TransferQueue."""
    import transfer_queue as tq
    from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ

    # Ray does not allow subclassing an actor class, so take the plain class behind it
    base = AgentLoopWorkerTQ.__ray_metadata__.modified_class

    class GroupWorkerV1(GroupSessions, base):  # type: ignore[misc, valid-type]
        own_uid = True

        async def _run_prompt(
            self, prompt: dict[str, Any], sampling_params: Any, trajectory: Any, trace: bool = False
        ) -> None:
            rollout = self.config.actor_rollout_ref.rollout
            size = prompt.get("__rollout_n__", rollout.val_kwargs.n if trajectory["validate"] else rollout.n)
            training = not trajectory["validate"] and bool(prompt.get("__do_sample__", True))
            self._meet({prompt["uid"]: int(size)}, training=training)
            await super()._run_prompt(prompt, sampling_params, trajectory, trace)

        async def _run_agent_loop(
            self, sampling_params: Any, trajectory: Any, *, session_id: int, **kwargs: Any
        ) -> Any:
            loop = super()._run_agent_loop(sampling_params, trajectory, session_id=session_id, **kwargs)
            return await self._take_part(kwargs["uid"], session_id, loop)

        async def _agent_loop_postprocess(self, output: Any, *args: Any, **kwargs: Any) -> None:
            await super()._agent_loop_postprocess(output, *args, **kwargs)
            if (left_out := self._fate()) is not None:
                rows = len(output) if isinstance(output, list) else 1
                keys = [f"{kwargs['uid']}_{kwargs['session_id']}_{row}" for row in range(rows)]
                # verl's curves are over the rows that do not pad; it needs one such row at least
                tag = {LEFT_OUT: True, "is_padding": not left_out.keeps}
                await tq.async_kv_batch_put(keys=keys, partition_id="train", tags=[dict(tag) for _ in keys])

        def _place(self, outputs: list[Any], rewards: list[float]) -> None:
            outputs[-1] = _by_token(outputs[-1], rewards)

        def _leave_out(self, left_out: LeftOut, outputs: list[Any], kwargs: dict[str, Any]) -> None:
            # verl writes kwargs beside the trajectory, under a key that it has made already: advantages go by the
            # uid, everything else goes by the key
            kwargs["uid"] = left_out.uid(str(kwargs["uid"]), kwargs["session_id"])
            for one in outputs:
                one.response_mask = (
                    left_out.mask(one.response_mask) if one is outputs[-1] else [0] * len(one.response_mask)
                )

    return GroupWorkerV1
