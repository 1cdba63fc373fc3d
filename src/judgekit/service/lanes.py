"""Grades rollouts that come one to a request, alone or as a group's members.

What a client can be told decides what becomes of a missing reward:

* a client that knows numbers only gets the number that reward.yaml writes for the case, the mean of the rollout's group,
  or an error;
* a client that can leave a rollout out is told to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from judgekit.errors import ConfigError, first_error
from judgekit.metrics import Counts
from judgekit.run.grouping import group_id
from judgekit.run.runner import GradingRunner
from judgekit.trainers.collector import GroupCollector, came_alone
from judgekit.trainers.hosted import hosted_runner, without_fill
from judgekit.trainers.step_counts import check_failure_rate
from judgekit.types import Grade, RewardResult, Rollout

MAX_SIZE = 1024
"""Members of a group that are waited for."""
_LATEST = 256
"""Rollouts over which failures are counted."""
Knows = Literal["numbers", "masks"]
"""Whether a client's protocol can say that a rollout has no reward."""


class Lane:
    """Grades single rollouts for clients of one kind.

    *size*: rollouts of a prompt that come together and are waited for; 1: each by itself. *wait_s*: for a group, from
    its first member. Raises ConfigError where reward.yaml needs what such clients cannot give or be told.
    """

    def __init__(self, runner: GradingRunner, knows: Knows, size: int, *, wait_s: float) -> None:
        self.size = size
        masks = knows == "masks"
        leaves_out = masks and size == 1
        if leaves_out and runner.settings.missing_reward in ("neutral", "mask"):
            # alone, `neutral` would be the mean of whatever was graded before
            runner = runner.with_settings(missing_reward="exclude")
        hosted = hosted_runner(
            runner=runner,
            grouped=size > 1,
            can_mask=masks,
            can_exclude=leaves_out,
            grouping_hint="add ?group=N to the address (or start with --group N) if a prompt's N rollouts come together",
        )
        setting = hosted.runner.settings.missing_reward
        if setting == "mask":  # such clients take a masked sample's number into its siblings' baseline
            setting = "neutral"
        self.runner = runner.with_settings(missing_reward=setting, max_failure_rate=None)
        self._collector = GroupCollector(self.runner, timeout_s=wait_s) if size > 1 else None
        self._allowed = hosted.max_failure_rate
        self._counts = Counts()
        """Of the latest rollouts: trainers say nothing of steps."""

    @property
    def waiting(self) -> int:
        """Groups that are not complete."""
        return self._collector.waiting if self._collector is not None else 0

    async def grade(
        self,
        rollouts: Sequence[Rollout],
        *,
        tags: Mapping[str, Any],
        known: Sequence[Mapping[str, Grade]] = (),
    ) -> list[RewardResult]:
        """Grade a request's rollouts, each once its group is there where it needs it.

        *known*: as in `GradingRunner.run`, for rollouts alone. Raises FailureRateError for a rollout without a reward
        while more grades fail than `max_failure_rate` allows.
        """
        if self._collector is None:
            results = await self.runner.run(rollouts, tags=tags, known=known)
        else:
            results = await self._collected(self._collector, rollouts, tags)
        if self._allowed is not None:
            for result in results:
                self._check(result, self._allowed)
        return results

    def _check(self, result: RewardResult, allowed: float) -> None:
        if self._counts.rollouts >= _LATEST:
            self._counts = Counts()
        self._counts.add(result)
        if result.status != "scored":
            check_failure_rate(self._counts, allowed, so_far=True)

    async def _collected(
        self, collector: GroupCollector, rollouts: Sequence[Rollout], tags: Mapping[str, Any]
    ) -> list[RewardResult]:
        try:
            async with asyncio.TaskGroup() as members:
                arrived = [
                    members.create_task(
                        collector.arrive(group_id(rollout), rollout, size=self.size, tags=tags)
                    )
                    for rollout in rollouts
                ]
        except BaseExceptionGroup as errors:
            raise first_error(errors) from None
        results = [member.result() for member in arrived]
        return [without_fill(result) if came_alone(result) else result for result in results]

    async def close(self) -> None:
        """Cancel what runs and waits."""
        if self._collector is not None:
            await self._collector.close()


class Lanes:
    """The lanes of one service, made as clients ask for them."""

    def __init__(self, runner: GradingRunner, *, wait_s: float) -> None:
        self._runner = runner
        self._wait_s = wait_s
        self._made: dict[tuple[Knows, int], Lane] = {}

    def lane(self, knows: Knows, size: int) -> Lane:
        """Return the lane for such clients. Raises ConfigError, see `Lane`."""
        if not 1 <= size <= MAX_SIZE:
            raise ConfigError(f"a group has 1 to {MAX_SIZE} rollouts, not {size}")
        found = self._made.get((knows, size))
        if found is None:
            found = self._made[knows, size] = Lane(self._runner, knows, size, wait_s=self._wait_s)
        return found

    @property
    def waiting(self) -> int:
        """Groups that are not complete."""
        return sum(lane.waiting for lane in self._made.values())

    async def close(self) -> None:
        """Cancel what runs and waits."""
        for lane in self._made.values():
            await lane.close()
