"""Workers: what is lost is said, what never waits lets others run, what blocks is reported."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from typing import Any

import pytest

from judgekit import ConfigError, DataError, GradingRunner, JudgeUnavailable, Retry, Rollout, grader
from judgekit.run.evaluations import SLICE_S


def rollouts(n: int) -> list[Rollout]:
    return [Rollout(response="", group=i) for i in range(n)]


async def test_an_evaluation_that_is_cancelled_from_outside_costs_its_own_grade() -> None:
    """By whoever cancels all tasks of the loop, even before it began."""

    @grader
    async def judge(response: str) -> float:
        return 0.5

    async def cancel_the_others() -> None:
        for task in asyncio.all_tasks() - {asyncio.current_task(), main}:
            task.cancel()

    main = asyncio.current_task()
    run = GradingRunner([judge]).run(rollouts(4))
    killer = asyncio.create_task(cancel_the_others())
    # the run makes its tasks in its first step, before the killer's; they begin after it
    results = await run
    await killer
    assert [result.grades["judge"].error for result in results] == ["CancelledError"] * 4  # type: ignore[union-attr]


async def test_graders_that_never_wait_let_the_loop_have_its_turn() -> None:
    turns = 0

    @grader
    async def busy(response: str) -> float:
        end = time.perf_counter() + SLICE_S / 2
        while time.perf_counter() < end:
            pass
        return 0.5

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await GradingRunner([busy]).run(rollouts(20))
    counting.cancel()
    assert turns >= 5


async def test_a_rule_that_blocks_the_loop_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    @grader
    def blocking(response: str) -> float:
        time.sleep(0.06)
        return 0.5

    with caplog.at_level(logging.WARNING, logger="judgekit"):
        await GradingRunner([blocking]).run(rollouts(3))
    (message,) = caplog.messages
    assert "'blocking' held the event loop for" in message
    assert 'where="thread"' in message


async def test_a_rule_that_the_machine_held_up_once_is_not_blamed(caplog: pytest.LogCaptureFixture) -> None:
    @grader
    def quick(response: str, id: str) -> float:
        if id in ("3", "900"):
            time.sleep(0.06)
        return 0.5

    given = [Rollout(prompt="p", response="r", id=str(i), group=i) for i in range(1000)]
    with caplog.at_level(logging.WARNING, logger="judgekit"):
        await GradingRunner([quick]).run(given)
    assert caplog.messages == []


async def test_settings_are_changed_in_a_copy_that_shares_the_rest() -> None:
    @grader
    async def judge(response: str) -> float:
        await asyncio.sleep(0)
        return 0.5

    runner = GradingRunner([judge], max_concurrency=2)
    other = runner.with_settings(shared=True, missing_reward=0.25)
    assert (runner.settings.missing_reward, other.settings.missing_reward) == ("exclude", 0.25)
    assert other.metrics is runner.metrics
    assert other.spec.digest != runner.spec.digest
    await other.run(rollouts(3))
    assert runner.metrics.counts.rollouts == 3


async def test_a_run_that_waits_for_one_graders_limit_asks_the_others_meanwhile() -> None:
    """In trainers, where each rollout is a run of its own: one judge that is full must not keep the next one idle."""
    release = asyncio.Event()
    seen: list[str] = []

    @grader(max_concurrency=1)
    async def full(response: str) -> float:
        await release.wait()
        return 0.5

    @grader(max_concurrency=8)
    async def free(id: str) -> float:
        seen.append(id)
        return 0.5

    runner = GradingRunner([full, free]).with_settings(shared=True)
    async with asyncio.TaskGroup() as tasks:
        for name in ("a", "b", "c"):
            tasks.create_task(runner.run([Rollout(response="", id=name)]))
        for _ in range(20):
            await asyncio.sleep(0)
        found = list(seen)
        release.set()
    assert found == ["a", "b", "c"]


class Extended(Rollout, frozen=True, kw_only=True):
    """A host's own kind of rollout."""

    weight: float = 1.0


async def test_a_subclass_of_rollout_is_a_rollout() -> None:
    @grader
    def weight(rollout: Rollout) -> float:
        assert isinstance(rollout, Extended)
        return rollout.weight

    (result,) = await GradingRunner([weight]).run([Extended(response="", weight=0.25)])
    assert result.reward == 0.25


class Slow:
    """Takes its time, and counts how many of it run at once."""

    name, version, score_range = "slow", "1", (0.0, 1.0)

    def __init__(self) -> None:
        self.running = self.peak = 0

    async def grade(self, rollout: Rollout, /) -> float:
        self.running += 1
        self.peak = max(self.peak, self.running)
        try:
            await asyncio.sleep(0.02)
        finally:
            self.running -= 1
        return 0.5


async def test_every_setting_that_is_changed_in_a_copy_counts() -> None:
    """README: `runner.with_settings(timeout_s=10)` kept the time that the runner was made with."""

    class Stuck(Slow):
        async def grade(self, rollout: Rollout, /) -> float:
            await asyncio.sleep(3600)
            return 0.5

    class OfItsOwn(Stuck):
        timeout_s = 0.01

    runner = GradingRunner({"stuck": Stuck()}, timeout_s=3600).with_settings(timeout_s=0.01)
    (result,) = await asyncio.wait_for(runner.run(rollouts(1)), 20)
    assert result.grades["stuck"].error == "GraderTimeout"  # type: ignore[union-attr]
    runner = GradingRunner({"own": OfItsOwn()}, timeout_s=3600).with_settings(timeout_s=3600)
    (result,) = await asyncio.wait_for(runner.run(rollouts(1)), 20)
    assert result.grades["own"].error == "GraderTimeout"  # type: ignore[union-attr]

    slow = Slow()
    shared = GradingRunner({"slow": slow}, max_concurrency=2).with_settings(shared=True)
    await shared.with_settings(max_concurrency=8).run(rollouts(16))
    assert slow.peak == 8

    asked: set[str] = set()

    @grader
    async def flaky(id: str) -> float:
        if id not in asked:
            asked.add(id)
            raise JudgeUnavailable("busy")
        return 0.5

    again = Retry(attempts=2, wait_initial_s=0, wait_max_s=0, budget=1.0)
    results = (
        await GradingRunner([flaky])
        .with_settings(retry=again)
        .run([Rollout(response="", id=str(i), group=i) for i in range(50)])
    )
    assert [r.reward for r in results] == [0.5] * 50
    with pytest.raises(ConfigError, match="gdpo"):
        GradingRunner([flaky], "flaky").with_settings(transform="gdpo")


async def test_a_separate_runner_counts_its_latencies_itself() -> None:
    runner = GradingRunner({"slow": Slow()})
    part = runner.separate(None)
    await part.run(rollouts(2))
    assert part.metrics.percentile("slow", 0.5) > 0
    assert math.isnan(runner.metrics.percentile("slow", 0.5))


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ({"ledger": "l.jsonl"}, r"ledger is an object such as Ledger\("),
        ({"pool": 4}, r"pool is an object such as ProcessPool\("),
        ({"retry": 3}, r"retry is an object such as Retry\("),
    ],
)
def test_an_option_of_another_kind_is_said_at_construction(option: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        GradingRunner({"slow": Slow()}, **option)


async def test_groups_may_come_from_iterators() -> None:
    runner = GradingRunner({"slow": Slow()})
    results = await runner.run_groups(iter([r for r in rollouts(n)] for n in (2, 0, 1)))
    assert [[r.index for r in group] for group in results] == [[0, 1], [], [2]]


async def test_one_rollout_is_no_list_of_them() -> None:
    with pytest.raises(DataError, match="give a list of rollouts"):
        await GradingRunner({"slow": Slow()}).run(Rollout(response=""))  # type: ignore[arg-type]


class Engine:
    """A judge that says how many calls it takes, whether it has few, and whether it is sent all that it takes."""

    def __init__(self, *, places: int, starved: bool | None, full: bool = True) -> None:
        self.places, self.starved, self.full = places, starved, full


class Asks(Slow):
    """Asks an engine, as far as the runner sees."""

    def __init__(self, engine: Engine) -> None:
        self.judge = engine
        self.running = self.most = 0

    async def grade(self, rollout: Rollout, /) -> float:
        self.running += 1
        self.most = max(self.most, self.running)
        for _ in range(3):
            await asyncio.sleep(0)
        self.running -= 1
        return 0.5


@pytest.mark.parametrize(
    ("engine", "starved"),
    [
        (Engine(places=2, starved=True), 1.0),
        (Engine(places=2, starved=False), 0.0),
        (Engine(places=2, starved=None), math.nan),
        (Engine(places=2, starved=True, full=False), 0.5),  # no more wait than it may be sent
    ],
)
async def test_a_runner_tells_how_often_an_engine_had_too_little_to_do(
    engine: Engine, starved: float
) -> None:
    runner = GradingRunner({"judge": Asks(engine)})
    await runner.run(rollouts(4))
    assert runner.metrics.starved("judge") == pytest.approx(starved, nan_ok=True)


@pytest.mark.parametrize(("limit", "most"), [("auto", 8), (2, 2)])
async def test_a_number_holds_for_all_runs_together_and_a_judge_that_is_followed_holds_itself(
    limit: Any, most: int
) -> None:
    asks = Asks(Engine(places=3, starved=None))
    runner = GradingRunner({"judge": asks}, max_concurrency=limit).with_settings(shared=True)
    await asyncio.gather(*(runner.run(rollouts(1)) for _ in range(8)))
    assert asks.most == most
