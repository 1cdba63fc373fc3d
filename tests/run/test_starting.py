"""Starting judges and graders: once, by whoever comes first, outside every rollout's time."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from judgekit import ConfigError, GradingRunner, JudgeUnavailable, Ledger, Rollout, grader
from judgekit.execution.pool import ProcessPool
from judgekit.run import starting


class Judge:
    """A judge that must be started, which takes until *loaded* is set."""

    name, version, score_range = "judge", "1", (0.0, 1.0)

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.loaded = asyncio.Event()
        self.starts = 0
        self.started = False
        self.closed = False

    async def start(self) -> None:
        self.starts += 1
        if self.error is not None:
            raise self.error
        await self.loaded.wait()
        self.started = True

    async def close(self) -> None:
        self.closed = True

    async def grade(self, rollout: Rollout, /) -> float:
        assert self.started, "asked before it was started"
        return 0.5


def rollouts(n: int = 3) -> list[Rollout]:
    return [Rollout(response="", group=i) for i in range(n)]


async def test_many_runs_start_a_judge_once_and_wait_for_it() -> None:
    judge = Judge()
    runner = GradingRunner({"judge": judge}, timeout_s=0.01, resources=[judge])
    runs = [asyncio.create_task(runner.run(rollouts())) for _ in range(5)]
    while not judge.starts:
        await asyncio.sleep(0)
    await asyncio.sleep(0.05)  # longer than timeout_s: loading is charged to nobody
    judge.loaded.set()
    for results in await asyncio.gather(*runs):
        assert [r.reward for r in results] == [0.5] * 3
    assert judge.starts == 1


async def test_who_starts_may_be_cancelled_without_cancelling_the_others() -> None:
    judge = Judge()
    runner = GradingRunner({"judge": judge}, resources=[judge])
    first = asyncio.create_task(runner.run(rollouts()))
    while not judge.starts:
        await asyncio.sleep(0)
    second = asyncio.create_task(runner.run(rollouts()))
    await asyncio.sleep(0)
    first.cancel()
    judge.loaded.set()
    assert [r.reward for r in await second] == [0.5] * 3
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_a_judge_that_cannot_be_started_costs_its_grades_not_the_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    judge = Judge(JudgeUnavailable("no such host"))
    runner = GradingRunner({"judge": judge}, resources=[judge])
    with caplog.at_level(logging.ERROR, logger="judgekit"):
        for _ in range(2):  # the second run does not try again at once
            results = await runner.run(rollouts())
            assert {r.status for r in results} == {"excluded"}
    assert judge.starts == 1
    assert caplog.messages[0] == "a judge or grader could not be started: JudgeUnavailable: no such host"
    with pytest.raises(JudgeUnavailable, match="no such host"):
        await runner.start()


async def test_runs_that_wait_for_a_start_that_fails_do_not_all_try_it_again() -> None:
    judge = Judge()
    runner = GradingRunner({"judge": judge}, resources=[judge], start_timeout_s=0.05)
    runs = await asyncio.gather(*(runner.run(rollouts()) for _ in range(5)))
    assert {r.status for results in runs for r in results} == {"excluded"}
    assert judge.starts == 1


async def test_a_wrong_configuration_found_at_the_start_ends_the_run() -> None:
    judge = Judge(ConfigError("the model has no label '7'"))
    with pytest.raises(ConfigError, match="no label '7'"):
        await GradingRunner({"judge": judge}, resources=[judge]).run(rollouts())


async def test_starting_has_a_limit_of_its_own() -> None:
    judge = Judge()
    runner = GradingRunner({"judge": judge}, resources=[judge], start_timeout_s=0.01)
    with pytest.raises(JudgeUnavailable, match="not started within 0.01 s"):
        await runner.start()


async def test_a_long_start_is_told_of_again_and_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(starting, "_SAY_S", 0.01)
    monkeypatch.setattr(starting, "_MOST_SAY_S", 0.01)
    judge = Judge()
    runner = GradingRunner({"judge": judge}, resources=[judge], start_timeout_s=60)
    grading = asyncio.create_task(runner.run(rollouts()))
    while caplog.text.count("still waiting for <tests.run.test_starting.Judge") < 3:
        await asyncio.sleep(0.01)
    assert "of at most 60 (start_timeout_s); this counts against no deadline_s" in caplog.text
    judge.loaded.set()
    assert [r.reward for r in await grading] == [0.5] * 3


class WarmGroup:
    """Compares in a worker process, and only where it was warmed up."""

    name, version, score_range, where = "warm", "1", (0.0, 1.0), "process"
    warm = False

    def warm_up(self) -> None:
        self.warm = True

    def grade_group(self, members: Sequence[Rollout], /) -> list[float]:
        return [float(self.warm)] * len(members)


async def test_a_group_grader_is_warmed_up_in_its_worker() -> None:
    pool = ProcessPool(1)
    try:
        members = [Rollout(response=text, group=0) for text in "ab"]
        results = await GradingRunner({"warm": WarmGroup()}, pool=pool).run(members)
        assert [r.reward for r in results] == [1.0, 1.0]
    finally:
        pool.close()


async def test_a_block_starts_and_closes() -> None:
    judge = Judge()
    judge.loaded.set()
    async with GradingRunner({"judge": judge}, resources=[judge]) as runner:
        assert judge.started
        await runner.run(rollouts())
    assert judge.closed


async def test_a_judge_that_cannot_be_closed_keeps_nothing_else_open(tmp_path: Path) -> None:
    class Broken(Judge):
        async def close(self) -> None:
            raise OSError("its socket is gone")

    class Plain(Judge):
        def close(self) -> None:  # type: ignore[override]
            self.closed = True

    @grader
    def half(response: str) -> float:
        return 0.5

    judges = [Broken(), Judge(), Plain()]
    for judge in judges:
        judge.loaded.set()
    ledger = Ledger(tmp_path / "l")
    runner = GradingRunner([half], ledger=ledger, resources=judges)
    await runner.run(rollouts())
    with pytest.raises(OSError, match="its socket is gone"):
        await runner.close()
    assert [judge.closed for judge in judges] == [False, True, True]
    assert ledger._fd is None


async def test_a_judges_own_timeout_is_not_the_limit_of_starting() -> None:
    runner = GradingRunner({"judge": Judge()}, resources=[Judge(TimeoutError("no answer to /health"))])
    with pytest.raises(TimeoutError, match="/health"):
        await runner.start()


async def test_what_started_before_something_failed_is_closed() -> None:
    up, down = Judge(), Judge(JudgeUnavailable("no GPU left"))
    up.loaded.set()
    with pytest.raises(JudgeUnavailable, match="no GPU left"):
        async with GradingRunner({"judge": up}, resources=[up, down]):
            pass
    assert (up.started, up.closed, down.closed) == (True, True, False)


async def test_a_start_that_is_cancelled_closes_what_it_started() -> None:
    up, slow = Judge(), Judge()
    up.loaded.set()
    runner = GradingRunner({"judge": up}, resources=[up, slow])
    starting = asyncio.create_task(runner.start())
    while not (up.started and slow.starts):
        await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert up.closed


async def test_what_a_run_could_start_is_kept_for_its_grades_and_not_started_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("judgekit.run.starting._AGAIN_S", 0.0)
    up, down = Judge(), Judge(JudgeUnavailable("down"))
    up.loaded.set()
    runner = GradingRunner({"judge": up}, resources=[up, down])
    for _ in range(2):
        assert [r.reward for r in await runner.run(rollouts(1))] == [0.5]
    assert (up.starts, up.closed, down.starts) == (1, False, 2)
    await runner.close()
    assert up.closed


async def test_close_waits_for_a_start_in_progress() -> None:
    judge = Judge()
    runner = GradingRunner({"judge": judge}, resources=[judge])
    starting = asyncio.create_task(runner.start())
    while not judge.starts:
        await asyncio.sleep(0)
    closing = asyncio.create_task(runner.close())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not judge.closed
    judge.loaded.set()
    await asyncio.gather(starting, closing)
    assert (judge.started, judge.closed) == (True, True)


async def test_a_variant_closes_nothing_of_its_parent_and_the_last_who_started_closes() -> None:
    judge = Judge()
    judge.loaded.set()
    parent = GradingRunner({"judge": judge}, resources=[judge])
    variant = parent.with_settings(shared=True)
    await parent.start()
    await variant.close()
    assert not judge.closed
    assert [r.reward for r in await variant.run(rollouts(1))] == [0.5]
    await variant.start()
    await parent.close()
    assert not judge.closed
    await variant.close()
    assert judge.closed
    assert judge.starts == 1


async def test_a_run_after_close_starts_again_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    judge = Judge()
    judge.loaded.set()
    runner = GradingRunner({"judge": judge}, resources=[judge])
    async with runner:
        await runner.run(rollouts(1))
    assert not caplog.messages
    judge.closed = False
    assert [r.reward for r in await runner.run(rollouts(1))] == [0.5]
    assert caplog.messages == [
        "a closed runner grades again, and starts its judges again: close it once more"
    ]
    await runner.close()
    assert (judge.starts, judge.closed) == (2, True)


class Counted:
    """Counts how often it is open, and breaks if it is asked while it is not."""

    name, version, score_range = "counted", "1", (0.0, 1.0)

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.open = 0

    async def start(self) -> None:
        await asyncio.sleep(self.rng.choice([0, 0.001]))
        if self.rng.random() < 0.1:
            raise JudgeUnavailable("not today")
        assert self.open == 0, "started twice"
        self.open += 1

    async def close(self) -> None:
        assert self.open == 1, "closed twice"
        await asyncio.sleep(self.rng.choice([0, 0.001]))
        self.open -= 1

    async def grade(self, rollout: Rollout, /) -> float:
        await asyncio.sleep(0)
        return 0.5


@pytest.mark.parametrize("seed", range(40))
async def test_starts_closes_and_runs_that_race_leave_nothing_open(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("judgekit.run.starting._AGAIN_S", 0.0)
    rng = random.Random(seed)
    judges = [Counted(rng), Counted(rng)]
    parent = GradingRunner({"a": judges[0], "b": judges[1]}, resources=judges)
    runners = [parent, parent.with_settings(timeout_s=5), parent.with_settings(shared=True)]

    async def act() -> None:
        runner = rng.choice(runners)
        await asyncio.sleep(rng.choice([0, 0, 0.001, 0.002]))
        way = rng.choice(["start", "close", "run", "cancelled start"])
        if way == "run":
            assert len(await runner.run(rollouts(2))) == 2
        elif way == "cancelled start":
            starting = asyncio.create_task(runner.start())
            await asyncio.sleep(rng.choice([0, 0.001]))
            starting.cancel()
            await asyncio.wait([starting])
        else:
            with suppress(JudgeUnavailable):
                await getattr(runner, way)()

    async with asyncio.TaskGroup() as tasks:
        for _ in range(20):
            tasks.create_task(act())
    for runner in runners:
        await runner.close()
    assert [judge.open for judge in judges] == [0, 0]
    assert asyncio.all_tasks() == {asyncio.current_task()}
