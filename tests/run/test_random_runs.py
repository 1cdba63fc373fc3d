"""Random graders, trees, settings and ways to run: what must hold holds for all of them together.

The tables of `test_faults.py` and of `benchmarks/fault_table.py` try one fault at a time. Here faults, limits, retries,
deadlines, groups and cancellation meet.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from judgekit import (
    Const,
    Gate,
    Graded,
    GradingRunner,
    JudgeUnavailable,
    Retry,
    RewardResult,
    Rollout,
    RolloutError,
    Score,
    Weighted,
)
from judgekit.reward.nodes import Node
from judgekit.trainers import GroupCollector

from ..schedules import under_schedules
from .hostile import PanicException

pytestmark = [pytest.mark.timeout(300), pytest.mark.filterwarnings("ignore::RuntimeWarning")]


def truth(rollout: Rollout, name: str) -> float:
    """The score that this grader has to give this rollout, and no other."""
    return (int(rollout.id) * 7 + len(name) * 3) % 11 / 10


class Random:
    """What it does to a rollout is drawn from its seed and the rollout's id, the same at every try."""

    version, score_range = "1", (0.0, 1.0)

    def __init__(self, name: str, seed: float, options: dict[str, Any]) -> None:
        self.name = name
        self.seed = seed
        self.__dict__.update(options)

    def draw(self, rollout: Rollout) -> float:
        return random.Random(f"{self.seed} {rollout.id}").random()


class Inline(Random):
    def grade(self, rollout: Rollout, /) -> float | None:
        drawn = self.draw(rollout)
        if drawn < 0.05:
            raise ValueError
        if drawn < 0.08:
            raise RolloutError
        if drawn < 0.10:
            raise PanicException
        return None if drawn < 0.15 else truth(rollout, self.name)


class Threaded(Inline):
    where = "thread"


class Async(Random):
    async def grade(self, rollout: Rollout, /) -> float | None:
        drawn = self.draw(rollout)
        await asyncio.sleep(drawn / 100 if drawn > 0.8 else 0)
        if drawn < 0.05:
            raise JudgeUnavailable("away")
        if drawn < 0.08:
            raise RolloutError
        if drawn < 0.11:
            raise asyncio.CancelledError
        if drawn < 0.14:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
        if drawn < 0.17:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise TimeoutError from None
        if drawn < 0.20:
            raise PanicException
        if drawn < 0.23:
            async with asyncio.timeout(0.001):
                await asyncio.Event().wait()
        return None if drawn < 0.25 else truth(rollout, self.name)


class Grouped(Random):
    async def grade_group(self, rollouts: Any, /) -> list[float]:
        drawn = self.draw(rollouts[0])
        await asyncio.sleep(drawn / 100 if drawn > 0.6 else 0)
        if drawn < 0.05:
            raise ValueError
        if drawn < 0.10:
            await asyncio.Event().wait()
        return [] if drawn < 0.15 else [truth(rollout, self.name) for rollout in rollouts]


def graders(rng: random.Random) -> dict[str, Random]:
    made: dict[str, Random] = {}
    for count in range(1, rng.randint(2, 5)):
        kind = rng.choice([Inline, Inline, Threaded, Async, Async, Grouped])
        options: dict[str, Any] = {"max_concurrency": rng.randint(1, 3)} if rng.random() < 0.3 else {}
        made["g" * count] = kind("g" * count, rng.random(), options)
    return made


def tree(rng: random.Random, names: list[str]) -> Node:
    def weighted(names: list[str]) -> Weighted:
        missing = [rng.choice(["propagate", "renormalise", 0.25]) for _ in names]
        terms = {name: (1.0, Score(name, if_missing=m)) for name, m in zip(names, missing, strict=True)}
        return Weighted(terms, normalize=rng.random() < 0.5)

    first, *others = names
    if others and rng.random() < 0.5:
        return Gate(if_=Score(first) >= 0.4, then=weighted(others), otherwise=Const(0.1))
    return weighted(names)


def settings(rng: random.Random, root: Node) -> dict[str, Any]:
    transforms = ["none", "none", "center", "zscore", "rank", "loo"]
    made: dict[str, Any] = {
        "max_concurrency": rng.choice([1, 2, 8, 32]),
        "timeout_s": 0.1,
        "transform": rng.choice([*transforms, "gdpo"] if isinstance(root, Weighted) else transforms),
        "missing_reward": rng.choice(["exclude", "neutral", "mask", 0.5]),
    }
    if rng.random() < 0.3:
        made["deadline_s"] = rng.choice([0.001, 0.02, 0.1])
    if rng.random() < 0.4:
        made["retry"] = Retry(attempts=3, wait_initial_s=0.001, wait_max_s=0.002, budget=1)
    return made


async def streamed(
    runner: GradingRunner, rollouts: Any, leave_after: int | None = None
) -> list[RewardResult]:
    results: list[RewardResult] = []
    async with aclosing(runner.stream(rollouts)) as stream:
        async for result in stream:
            results.append(result)
            if len(results) == leave_after:
                return []
    return sorted(results, key=lambda result: result.index)


async def slowly(rng: random.Random, rollouts: list[Rollout]) -> AsyncIterator[Rollout]:
    for rollout in rollouts:
        await asyncio.sleep(rng.choice([0, 0, 0.002]))
        yield rollout


async def collected(rng: random.Random, runner: GradingRunner, rollouts: list[Rollout]) -> list[RewardResult]:
    collector = GroupCollector(runner)
    sizes = Counter(rollout.group for rollout in rollouts)

    async def member(rollout: Rollout) -> RewardResult:
        await asyncio.sleep(rng.random() / 100)
        return await collector.arrive(rollout.group, rollout, size=sizes[rollout.group])

    async with asyncio.TaskGroup() as tasks:
        members = [tasks.create_task(member(rollout)) for rollout in rollouts]
    await collector.close()
    return [member.result() for member in members]


async def one_by_one(runner: GradingRunner, rollouts: list[Rollout]) -> list[RewardResult]:
    """As hosts do: a run for each rollout, all at once."""
    async with asyncio.TaskGroup() as tasks:
        runs = [tasks.create_task(runner.run([rollout])) for rollout in rollouts]
    return [run.result()[0] for run in runs]


async def cancelled(rng: random.Random, runner: GradingRunner, rollouts: list[Rollout]) -> list[RewardResult]:
    run = asyncio.create_task(runner.run(rollouts))
    await asyncio.sleep(rng.random() / 50)
    run.cancel()
    await asyncio.wait([run])
    return [] if run.cancelled() else run.result()


async def grade(rng: random.Random, runner: GradingRunner, rollouts: list[Rollout]) -> list[RewardResult]:
    """All results in order; none where the run was left early."""
    ways = [
        lambda: runner.run(rollouts),
        lambda: streamed(runner, rollouts),
        lambda: streamed(runner, slowly(rng, rollouts)),
        lambda: streamed(runner, rollouts, leave_after=1 + len(rollouts) // 2),
        lambda: collected(rng, runner, rollouts),
        lambda: one_by_one(runner, rollouts),
        lambda: cancelled(rng, runner, rollouts),
    ]
    return await rng.choice(ways)()


def check(runner: GradingRunner, rollouts: list[Rollout], results: list[RewardResult]) -> None:
    options = runner.settings
    # the deadline ends the reading of a stream
    assert len(results) == len(rollouts) or options.deadline_s is not None
    for rollout, result in zip(rollouts, results, strict=False):
        assert result.group == rollout.group
        assert result.grades.keys() == runner.graders.keys()
        for name, given in result.grades.items():
            assert not isinstance(given, Graded) or given.score == truth(rollout, name)
        raw = runner.reward.evaluate(result.grades, rollout).value
        assert result.raw_reward == raw
        assert (result.reward is None) == (result.status in ("excluded", "masked"))
        assert raw is not None or result.status != "scored"
        if options.transform == "none" and raw is not None:
            assert (result.reward, result.status) == (raw, "scored")
        if options.missing_reward == 0.5 and raw is None:
            assert (result.reward, result.status) == (0.5, "constant")


async def try_one(seed: int) -> None:
    rng = random.Random(seed)
    made = graders(rng)
    root = tree(rng, list(made))
    runner = GradingRunner(made, root, **settings(rng, root)).with_settings(shared=rng.random() < 0.3)
    per_group = rng.choice([1, 2, 4, 8])
    rollouts = [
        Rollout(prompt="p", response="x", group=i // per_group, id=str(i))
        for i in range(rng.choice([1, 2, 7, 16, 40]))
    ]
    if results := await grade(rng, runner, rollouts):
        check(runner, rollouts, results)
    for _ in range(10):  # a shuffled loop may let a task that has ended its work wait
        await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert [limit.held for limits in runner._plan.limits.values() for limit in limits if limit.held] == []


@pytest.mark.parametrize("first", range(0, 400, 50))
async def test_random_runs_pay_right_rewards_and_leave_nothing_behind(first: int) -> None:
    for seed in range(first, first + 50):
        try:
            await try_one(seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_they_do_in_any_order_in_which_their_tasks_go_on(first: int) -> None:
    under_schedules(lambda rng: try_one(rng.randrange(10**6)), range(first, first + 50))
