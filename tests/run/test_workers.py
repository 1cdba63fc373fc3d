"""Workers: what is lost is said, what never waits lets others run, what blocks is reported."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

from judgekit import GradingRunner, Rollout, grader
from judgekit.errors import JudgekitError
from judgekit.run.workers import SLICE_S


def rollouts(n: int) -> list[Rollout]:
    return [Rollout(response="", group=i) for i in range(n)]


async def test_a_worker_that_is_cancelled_before_it_began_ends_the_run_with_an_error() -> None:
    """By whoever cancels all tasks of the loop: better an error than a run that waits for ever."""

    @grader
    async def judge(response: str) -> float:
        return 0.5

    async def cancel_the_others() -> None:
        for task in asyncio.all_tasks() - {asyncio.current_task(), main}:
            task.cancel()

    main = asyncio.current_task()
    run = GradingRunner([judge]).run(rollouts(4))
    killer = asyncio.create_task(cancel_the_others())
    # the run makes its worker in its first step, before the killer's; the worker begins after it
    with pytest.raises(JudgekitError, match="cancelled from outside"):
        await run
    await killer


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
