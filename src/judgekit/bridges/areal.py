"""AReaL: a workflow that grades its episodes.

    trainer.train(
        workflow="judgekit.bridges.areal.JudgedRLVRWorkflow",
        workflow_kwargs={"reward": "/path/of/reward.yaml", "gconfig": config.gconfig, "tokenizer": config.tokenizer_path},
    )

It grades in the process that generates, at any number of rollouts at once: AReaL's own reward functions run in a pool of
few processes, and are paid 0 after 15 s that begin in that pool's queue. The episodes of a prompt are graded together. One
whose reward is missing gets the mean of its group, and a loss mask of zeros: AReaL normalises batches in slices of
fixed size, so that a group that lost a member would shift all groups after it. Where nobody in the group has a reward, all
of its episodes are rejected.

Source: AReaL 1.0.4, areal/workflow/rlvr.py, areal/infra/remote_inf_engine.py (`GroupedRolloutWorkflow`).
"""

from __future__ import annotations

import asyncio
import uuid
from contextvars import ContextVar
from typing import Any

import torch
from areal.infra import workflow_context
from areal.utils import stats_tracker
from areal.utils.perf_tracer import trace_session
from areal.workflow.rlvr import RLVRWorkflow

from judgekit.bridges.bridge import bridge, figures, reward_file
from judgekit.errors import MissingRewardError
from judgekit.trainers import rollout_of, why_missing
from judgekit.types import PAID, RewardResult, Rollout


class JudgedRLVRWorkflow(RLVRWorkflow):  # type: ignore[misc]
    """AReaL's RLVRWorkflow, with the rewards of a reward.yaml.

    *reward*: its path, the same on all machines (default: JUDGEKIT_REWARD). *settings*: those of RLVRWorkflow, without
    `reward_fn`. Raises ConfigError.
    """

    def __init__(self, *, reward: str | None = None, **settings: Any) -> None:
        super().__init__(reward_fn="judgekit", **settings)
        self.reward_fn = None  # text would be imported, and a function run in AReaL's pool
        self._file = reward_file(reward)
        self._starting: dict[int, _Group] = {}

    async def arun_episode(self, engine: Any, data: dict[str, Any]) -> dict[str, Any] | None:
        """Generate and grade one episode. None if nobody in its group has a reward. Raises FailureRateError."""
        group = self._starting.setdefault(id(data), _Group())
        place = group.join()
        await asyncio.sleep(0)  # AReaL starts a group's episodes in one go: now all of them have joined
        if self._starting.get(id(data)) is group:  # the same row may come again
            del self._starting[id(data)]
        token = _member.set((group, place))
        try:
            episode: dict[str, Any] | None = await super().arun_episode(engine, data)
        except _NobodyPaid:
            return None
        except BaseException:
            group.leave(place)
            raise
        finally:
            _member.reset(token)
        if episode is not None and place in group.unpaid:
            episode["loss_mask"] = torch.zeros_like(episode["loss_mask"])
        return episode

    @trace_session("reward")  # type: ignore[untyped-decorator]
    async def _compute_rewards(self, resp: Any, prompt_str: str, task_data: dict[str, Any]) -> float:
        """Return the reward, or the mean of its group's. Raises MissingRewardError, FailureRateError."""
        group, place = _member.get()
        prompt = self.data_extract_prompt_fn(task_data)
        said = self.tokenizer.decode(resp.output_tokens, skip_special_tokens=True)
        rollout = rollout_of(
            task_data,
            prompt=prompt if isinstance(prompt, str | list) else prompt_str,
            turns=[{"role": "assistant", "content": said}],
            group=group.id,
            id=f"{group.id}_{place}",
            response_tokens=resp.output_len,
            finish_reason={"stop": "stop", "length": "length"}.get(str(getattr(resp, "stop_reason", None))),
        )
        result, paid = await group.result(self._file, place, rollout)
        stats_tracker.get(workflow_context.stat_scope()).scalar(**figures(result))
        return paid


class _NobodyPaid(MissingRewardError):
    """Nobody in a group has a reward."""


class _Group:
    """The episodes of a prompt, graded when the last one is generated."""

    def __init__(self) -> None:
        self.id = uuid.uuid4().hex[:12]
        self.unpaid: set[int] = set()
        """Members whose reward is a fill."""
        self._joined = 0
        self._left: set[int] = set()
        self._rollouts: dict[int, Rollout] = {}
        self._file = ""
        self._graded: asyncio.Task[dict[int, tuple[RewardResult, float]]] | None = None
        self._complete = asyncio.Event()

    def join(self) -> int:
        """Count a member, and return its place."""
        self._joined += 1
        return self._joined - 1

    def leave(self, place: int) -> None:
        """Say that a member will not be generated."""
        self._left.add(place)
        self._notify()

    async def result(self, file: str, place: int, rollout: Rollout) -> tuple[RewardResult, float]:
        """Add a member's rollout, and wait for its result and the number that stands for it."""
        self._file = file
        self._rollouts[place] = rollout
        self._notify()
        await self._complete.wait()
        if self._graded is None:
            self._graded = asyncio.get_running_loop().create_task(self._grade())
        return (await asyncio.shield(self._graded))[place]

    def _notify(self) -> None:
        if len(self._rollouts.keys() | self._left) == self._joined:
            self._complete.set()

    async def _grade(self) -> dict[int, tuple[RewardResult, float]]:
        graded = bridge(self._file, grouped=True, can_mask=True)
        results = await graded.grade(list(self._rollouts.values()))
        found = dict(zip(self._rollouts, results, strict=True))
        unpaid = {place for place, result in found.items() if result.status not in PAID}
        if unpaid == found.keys():
            raise _NobodyPaid(f"nobody in the group has a reward: {why_missing(results[0])}")
        self.unpaid = unpaid
        paid = graded.numbers(results)  # the group's mean for those without a reward
        return dict(zip(found, zip(results, paid, strict=True), strict=True))


_member: ContextVar[tuple[_Group, int]] = ContextVar("areal_member")
