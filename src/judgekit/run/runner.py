"""GradingRunner: rollouts in, rewards out.

A runner holds configuration and counts, and nothing that belongs to an event loop: one runner serves a whole
training run and may be called from many loops, threads and Ray actors at once. What a single call needs is
made in that call (`judgekit.run.scheduler.Run`) and is gone with it.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from judgekit.errors import ConfigError, DataError, did_you_mean
from judgekit.execution.background import run_blocking
from judgekit.execution.limits import NO_RETRY, Limiter, Retry, RetryBudget
from judgekit.execution.pool import ProcessPool, check_picklable, default_pool
from judgekit.graders.protocol import AnyGrader, check_grader
from judgekit.ledger.schema import GraderSpec, Spec
from judgekit.ledger.writer import Ledger
from judgekit.reward.explain import explain_result
from judgekit.reward.nodes import Node, Weighted, as_node, equal_weights
from judgekit.reward.transforms import TRANSFORMS, TransformName
from judgekit.reward.tree import RewardTree
from judgekit.run.grouping import group_by_prompt
from judgekit.run.jobs import GraderSlot
from judgekit.run.metrics import Metrics
from judgekit.run.scheduler import Run
from judgekit.run.state import Arrivals
from judgekit.types import RewardResult, Rollout
from judgekit.version import __version__

logger = logging.getLogger("judgekit")

Policy = Literal["neutral", "mask", "raise"] | float
"""What becomes of a rollout whose reward is missing: the mean of its group's valid rewards, so that its
advantage is zero; no reward, for hosts that mask its loss; MissingRewardError; or a number that you write."""


class GradingRunner:
    """Grades rollouts with several graders and weighs the grades into one reward.

        runner = GradingRunner(
            {"correct": FinalAnswer(), "brief": brevity},
            {"correct": 0.9, "brief": 0.1},
        )
        results = await runner.run(rollouts)          # or runner.run_sync(rollouts)

    *graders*: by the names that the reward and the results use. *reward*: a reward tree, a mapping of names
    to weights, or None for the mean of all. *max_concurrency*: evaluations in flight in one run; an engine's
    own limit bounds an endpoint over all runners. *timeout_s*: seconds for one evaluation with its retries,
    from when it starts. *deadline_s*: seconds for one run; what is not graded by then has failed, what is,
    counts. *transform*: see `judgekit.reward.transforms`. *missing_reward*: see `Policy`. *max_failure_rate*: share
    (0..1) of one grader's evaluations that may fail for infrastructure causes before a run raises
    FailureRateError. *retry*: for graders that raise retryable errors (judges retry in their own layer).
    *ledger*: where every grade is kept. *pool*: worker processes for graders with `where="process"`.
    *progress*: show a progress bar. *resources*: judges and the like that `close` ends.

    Raises ConfigError for whatever is wrong with any of it.
    """

    def __init__(
        self,
        graders: Mapping[str, AnyGrader] | Sequence[AnyGrader],
        reward: Node | Mapping[str, float] | str | None = None,
        *,
        max_concurrency: int = 32,
        timeout_s: float = 60.0,
        deadline_s: float | None = None,
        transform: TransformName = "none",
        missing_reward: Policy = "mask",
        max_failure_rate: float | None = None,
        retry: Retry = NO_RETRY,
        ledger: Ledger | None = None,
        pool: ProcessPool | None = None,
        progress: bool = False,
        resources: Sequence[Any] = (),
    ) -> None:
        if not isinstance(graders, Mapping):
            names = [grader.name for grader in graders]
            if len(set(names)) < len(names):
                raise ConfigError(f"two graders have one name among {names}; give them names in a mapping")
            graders = dict(zip(names, graders, strict=True))
        if not graders:
            raise ConfigError("give the runner at least one grader")
        for name, grader in graders.items():
            if not isinstance(name, str) or not name or "." in name:
                raise ConfigError(f"a grader's name is text without a dot, not {name!r}")
            check_grader(name, grader)
        if max_concurrency < 1:
            raise ConfigError(f"max_concurrency is at least 1, not {max_concurrency}")
        _positive(timeout_s, "timeout_s")
        if deadline_s is not None:
            _positive(deadline_s, "deadline_s")
        if transform not in (*TRANSFORMS, "gdpo"):
            raise ConfigError(
                f"no group transform is called {transform!r}{did_you_mean(transform, (*TRANSFORMS, 'gdpo'))}"
            )
        if isinstance(missing_reward, str):
            if missing_reward not in ("neutral", "mask", "raise"):
                raise ConfigError(
                    f"missing_reward is 'neutral', 'mask', 'raise' or a number, not {missing_reward!r}"
                )
        elif isinstance(missing_reward, bool) or not math.isfinite(missing_reward):
            raise ConfigError(
                f"missing_reward is 'neutral', 'mask', 'raise' or a finite number, not {missing_reward!r}"
            )
        if max_failure_rate is not None and not 0 <= max_failure_rate < 1:
            raise ConfigError(f"max_failure_rate is a share from 0 to below 1, not {max_failure_rate!r}")

        self.graders = dict(graders)
        self.max_concurrency = max_concurrency
        self.timeout_s = timeout_s
        self.deadline_s = deadline_s
        self.transform: TransformName = transform
        self.missing_reward: Policy = missing_reward
        self.max_failure_rate = max_failure_rate
        self.retry = retry
        self.ledger = ledger
        self.progress = progress
        self._resources = tuple(resources)
        self.metrics = Metrics()
        """Counts over all runs so far; `metrics.summary(reset=True)` once a training step."""

        self._slots = [GraderSlot(name, grader, timeout_s) for name, grader in self.graders.items()]
        for slot in self._slots:
            if slot.mode == "process":
                check_picklable(slot.name, slot.grader)
        self._pool = pool
        ranges = {key: slot.score_range for slot in self._slots for key in slot.keys}
        if reward is None:
            root = equal_weights(tuple(ranges))
        elif isinstance(reward, Mapping):
            root = Weighted(reward)
        else:
            root = as_node(reward)
        self.reward = RewardTree(root, ranges)
        for warning in self.reward.warnings:
            logger.warning("reward: %s", warning)
        if transform == "gdpo" and not isinstance(root, Weighted):
            raise ConfigError(
                "transform 'gdpo' normalises the terms of a Weighted, so the reward's root must be one"
            )
        self.budget = RetryBudget(retry.budget)
        self.gates: Mapping[str, Sequence[Limiter]] = {}
        """By a grader's name, slots that all runs share; see `share_slots`."""
        self._spec: Spec | None = None

    async def run(
        self, rollouts: Iterable[Rollout], *, tags: Mapping[str, Any] | None = None
    ) -> list[RewardResult]:
        """Grade *rollouts*; one result each, in input order.

        *tags*: what the host knows (training step, policy version); kept in the ledger. A failing grader
        costs its own grades only (a ConfigError of its own ends the run). Raises MissingRewardError under `missing_reward="raise"` and FailureRateError
        under `max_failure_rate`; cancelling leaves no task behind.
        """
        batch = _checked(rollouts)
        return await self._run(batch, group_by_prompt(batch), tags).collect()

    async def run_groups(
        self, groups: Sequence[Sequence[Rollout]], *, tags: Mapping[str, Any] | None = None
    ) -> list[list[RewardResult]]:
        """Grade rollouts that are grouped already: `results[p][g]` belongs to `groups[p][g]`."""
        batch = _checked(rollout for group in groups for rollout in group)
        members: list[list[int]] = []
        start = 0
        for group in groups:
            members.append(list(range(start, start + len(group))))
            start += len(group)
        results = await self._run(batch, [m for m in members if m], tags).collect()
        return [[results[i] for i in m] for m in members]

    def follow(
        self,
        arrivals: Arrivals,
        emit: Callable[[RewardResult], None],
        *,
        tags: Mapping[str, Any] | None = None,
    ) -> Coroutine[Any, Any, None]:
        """Grade one group whose members come one after another; see `judgekit.trainers.collector`."""
        return Run(self, self._slots, [], [], dict(tags or {})).follow(arrivals, emit)

    def stream(
        self, rollouts: Iterable[Rollout], *, tags: Mapping[str, Any] | None = None
    ) -> AsyncGenerator[RewardResult, None]:
        """Grade *rollouts* and yield each result as soon as it is final; `index` tells which it is.

        A result waits for its group only where the transform or a neutral fill needs it. Leaving the
        iteration early cancels the rest (use `contextlib.aclosing` to have it done at once).
        """
        batch = _checked(rollouts)
        return self._run(batch, group_by_prompt(batch), tags).stream()

    def run_sync(
        self, rollouts: Iterable[Rollout], *, tags: Mapping[str, Any] | None = None
    ) -> list[RewardResult]:
        """`run` for synchronous callers: from any thread, also where a loop is already running."""
        return run_blocking(self.run(rollouts, tags=tags))

    @property
    def has_judges(self) -> bool:
        """Whether the runner owns judges or other resources that `start` starts."""
        return bool(self._resources)

    async def start(self) -> None:
        """Start what the runner owns (`resources`: judge engines); else the first request does."""
        for resource in self._resources:
            if start := getattr(resource, "start", None):
                await start()

    async def close(self) -> None:
        """End what the runner owns (`resources`) and close its ledger; the pool of processes stays."""
        for resource in self._resources:
            if close := getattr(resource, "close", None):
                ended = close()
                if hasattr(ended, "__await__"):
                    await ended
        if self.ledger is not None:
            self.ledger.close()

    def share_slots(self) -> None:
        """Let all runs together have `max_concurrency` slots, and each grader its own limit, for hosts whose
        runs are single rollouts or groups, thousands at once. What waits for a slot is not timed yet."""
        common = Limiter(self.max_concurrency)
        self.gates = {
            slot.name: (common,) if slot.limit is None else (Limiter(slot.limit), common)
            for slot in self._slots
        }

    def explain(self, result: RewardResult) -> str:
        """How a result's reward came about: the reward tree with its numbers, a line a node."""
        return explain_result(self.reward, result, self.transform)

    @property
    def needs_group(self) -> bool:
        """Whether a reward depends on the other rollouts of its prompt (group graders, transforms, neutral
        fills): hosts that hand over one rollout at a time then need their group hook."""
        return (
            any(slot.mode == "group" for slot in self._slots)
            or self.transform != "none"
            or self.missing_reward == "neutral"
        )

    @property
    def pool(self) -> ProcessPool:
        """Worker processes for graders with `where="process"`."""
        return self._pool or default_pool()

    def spec(self) -> Spec:
        """What the ledger says of this runner."""
        if self._spec is None:
            graders = {
                key: GraderSpec(str(slot.grader.version), tuple(_bound(x) for x in slot.score_range))
                for slot in self._slots
                for key in slot.keys
            }
            reward = self.reward.root.spec()
            body = msgspec.json.encode(
                [graders, reward, self.transform, self.missing_reward], order="deterministic"
            )
            self._spec = Spec(
                digest=hashlib.blake2b(body, digest_size=6).hexdigest(),
                graders=graders,
                reward=reward,
                transform=self.transform,
                missing_reward=self.missing_reward,
                judgekit=__version__,
            )
        return self._spec

    def _run(self, rollouts: list[Rollout], groups: list[list[int]], tags: Mapping[str, Any] | None) -> Run:
        return Run(self, self._slots, rollouts, groups, dict(tags or {}))


def _checked(rollouts: Iterable[Rollout]) -> list[Rollout]:
    batch = list(rollouts)
    for index, rollout in enumerate(batch):
        if type(rollout) is not Rollout:
            raise DataError(f"item {index} is a {type(rollout).__name__}, not a judgekit.Rollout")
    return batch


def _bound(x: float) -> Any:
    return x if math.isfinite(x) else str(x)


def _positive(value: float, what: str) -> None:
    if not (isinstance(value, int | float) and value > 0):
        raise ConfigError(f"{what} is a number of seconds above 0, not {value!r}")
