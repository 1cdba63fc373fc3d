"""Starting judges and graders: once, by whoever comes first, outside every rollout's time."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from judgekit import ConfigError, GradingRunner, JudgeUnavailable, Ledger, Rollout, grader


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
