"""Graders whose score is the reward of a runner elsewhere, behind `judgekit serve-rewards`."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from weakref import WeakKeyDictionary

from judgekit.errors import ConfigError, DataError
from judgekit.graders.protocol import failure
from judgekit.service.client import RewardClient
from judgekit.types import Abstained, Failed, Grade, Graded, RewardResult, Rollout

MAX_BATCH = 256
"""Rollouts of one request, at most."""
START_WAIT_S = 60.0
"""Seconds for which the service may be away when a run begins."""


class _Service:
    """What both graders share: the client, and the check that the service can answer them.

    *url*: the service's; by default JUDGEKIT_SERVICE_URL. Its key, if it wants one, comes from JUDGEKIT_SERVICE_KEY.
    *score_range*: lowest and highest value of its reward. *timeout_s*: of an evaluation with all its attempts,
    instead of the runner's. *version*: change it with the service's reward.yaml, for it stands in the ledger.
    """

    inputs: tuple[str, ...] = ("response",)
    abstains = "the service's graders abstain"
    source = "the service's own"

    def __init__(
        self,
        url: str | None = None,
        *,
        score_range: tuple[float, float] = (0.0, 1.0),
        timeout_s: float | None = None,
        name: str = "service",
        version: str = "1",
    ) -> None:
        self.client = RewardClient(url, deadline_s=math.inf)
        self.score_range = (float(score_range[0]), float(score_range[1]))
        self.timeout_s = timeout_s
        self.name = name
        self.version = version

    async def warm_up(self) -> None:
        """Wait for the service, and check that its reward can be this grader's score. Raises ConfigError."""
        about = await self.client.about(wait_s=START_WAIT_S)
        low, high = (
            bound if bound is not None else no_bound
            for bound, no_bound in zip(about.bounds, (-math.inf, math.inf), strict=True)
        )
        if low < self.score_range[0] or high > self.score_range[1]:
            raise ConfigError(
                f"{self.name}: the rewards of {self.client.url} are in {low:g}..{high:g}: give score_range=[{low:g}, {high:g}]"
            )
        if about.missing_reward == "raise":
            raise ConfigError(
                f"{self.name}: one missing reward ends a request to {self.client.url}, for its reward.yaml says "
                "missing_reward: raise; write exclude there"
            )
        self._check_groups(about.grouped)

    def _check_groups(self, grouped: bool) -> None:
        """*grouped*: whether the service's reward, before its group transform, depends on a group."""


class ServiceGrader(_Service):
    """Scores a rollout with the reward of a service: its value before the group transform.

    Rollouts that are graded at the same time go in one request. A reward that is missing there is missing here, with the
    error of its grade.
    """

    async def grade(self, rollout: Rollout, /) -> Grade:
        batches = _batches.setdefault(asyncio.get_running_loop(), WeakKeyDictionary())
        batch = batches.get(self)
        if batch is None or not batch.open:
            batch = batches[self] = _Batch(self.client)
        return await batch.grade(rollout)

    def _check_groups(self, grouped: bool) -> None:
        if grouped:
            raise ConfigError(
                f"{self.name}: the reward of {self.client.url} compares the rollouts of a prompt: use: service_group"
            )


class ServiceGroupGrader(_Service):
    """Scores the rollouts of a prompt with the reward of a service that compares them, before its group transform.

    A group of one is not graded. Otherwise as ServiceGrader.
    """

    async def grade_group(self, rollouts: Sequence[Rollout], /) -> Sequence[Grade]:
        return [as_grade(result) for result in await self.client.run(rollouts)]


class _Batch:
    """Rollouts that one request takes: all that come before the event loop's next turn."""

    def __init__(self, client: RewardClient) -> None:
        self.open = True
        self._rollouts: list[Rollout] = []
        self._client = client
        self._waiting = 0
        self._answer = asyncio.create_task(self._ask())

    async def grade(self, rollout: Rollout) -> Grade:
        place = len(self._rollouts)
        self._rollouts.append(rollout)
        self.open = len(self._rollouts) < MAX_BATCH
        self._waiting += 1
        try:
            return (await asyncio.shield(self._answer))[place]
        finally:
            self._waiting -= 1
            if not self._waiting and not self._answer.done():  # nobody wants it any more, and nobody may join
                self.open = False
                self._answer.cancel()

    async def _ask(self) -> list[Grade]:
        await asyncio.sleep(0)  # those that the same turn of the loop starts go along
        self.open = False
        return await _ask(self._client, self._rollouts)


_batches: WeakKeyDictionary[asyncio.AbstractEventLoop, WeakKeyDictionary[ServiceGrader, _Batch]] = (
    WeakKeyDictionary()
)
"""Of each event loop's graders, the batch that was begun last. Graders themselves keep no state, and can be pickled."""


async def _ask(client: RewardClient, rollouts: Sequence[Rollout]) -> list[Grade]:
    """Grade rollouts. One that cannot be sent, or is too large, costs the others nothing."""
    try:
        return [as_grade(result) for result in await client.run(rollouts)]
    except DataError as error:
        if len(rollouts) == 1:
            return [failure(error)]
    middle = len(rollouts) // 2
    return [*await _ask(client, rollouts[:middle]), *await _ask(client, rollouts[middle:])]


def as_grade(result: RewardResult) -> Grade:
    """Convert a service's result to a grade: its raw reward, an abstention, or a failure with the causes."""
    if result.raw_reward is not None:
        scores = {name: grade.score for name, grade in result.grades.items() if isinstance(grade, Graded)}
        return Graded(
            result.raw_reward, metadata={"scores": scores}, usage=result.usage, turns=result.turns or None
        )
    found = {name: result.grades.get(name) for name in result.missing}
    failed = {name: grade for name, grade in found.items() if isinstance(grade, Failed)}
    if failed:
        causes = "; ".join(f"{name}: {grade.error} {grade.detail}".rstrip() for name, grade in failed.items())
        retryable = all(grade.retryable for grade in failed.values())
        return Failed("ServiceRewardMissing", causes, retryable=retryable, usage=result.usage)
    return Abstained(f"the service has no reward: {', '.join(result.missing)} gave none")
