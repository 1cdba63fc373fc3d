"""How a run ends before its time: deadlines, errors, cancellation, and what they leave to be collected."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import time
from pathlib import Path
from typing import Any

import pytest

from judgekit import (
    Failed,
    Graded,
    GradingRunner,
    JudgeUnavailable,
    MissingRewardError,
    Retry,
    Rollout,
    grader,
)
from judgekit.ledger.writer import Ledger
from judgekit.metrics.counts import Counts
from judgekit.run import progress
from judgekit.run.scheduler import Run
from judgekit.run.settings import Settings

pytestmark = pytest.mark.timeout(60)


def rollouts(n: int) -> list[Rollout]:
    return [Rollout(response="", group=i // 4, id=str(i)) for i in range(n)]


class Hangs:
    """Never answers."""

    name, version, score_range = "judge", "1", (0.0, 1.0)

    async def grade(self, rollout: Rollout, /) -> float:
        await asyncio.Event().wait()
        return 1.0


async def test_a_deadline_reaches_what_is_not_even_queued() -> None:
    """More rollouts than a run takes in at once: those that it has not seen fail too, and none is waited for."""
    runner = GradingRunner({"judge": Hangs()}, max_concurrency=2, deadline_s=0.1, missing_reward="mask")
    results = await asyncio.wait_for(runner.run(rollouts(500)), 20)
    assert len(results) == 500
    assert {r.grades["judge"].error for r in results} == {"DeadlineExceeded"}  # type: ignore[union-attr]


async def test_a_deadline_that_falls_between_two_jobs_ends_the_run_with_results() -> None:
    """Graders that take the CPU for long let the loop have a turn between two of them; the deadline comes there."""

    @grader
    async def judge(rollout: Rollout) -> float:
        time.sleep(0.02)  # noqa: ASYNC251
        return 1.0

    runner = GradingRunner({"judge": judge}, deadline_s=0.1, missing_reward="mask")
    results = await asyncio.wait_for(runner.run(rollouts(50)), 20)
    grades = [r.grades["judge"] for r in results]
    assert {g.error if isinstance(g, Failed) else g for g in grades} == {Graded(1.0), "DeadlineExceeded"}


async def test_a_missing_reward_at_the_deadline_raises_out_of_the_run() -> None:
    runner = GradingRunner({"judge": Hangs()}, deadline_s=0.05, missing_reward="raise")
    with pytest.raises(MissingRewardError, match="DeadlineExceeded"):
        await asyncio.wait_for(runner.run(rollouts(50)), 20)
    assert len(asyncio.all_tasks()) == 1


async def test_a_missing_reward_of_what_waits_for_a_place_raises_too() -> None:
    """It is the first to be answered at the deadline: before the one that runs, whose cancellation takes a turn."""
    hangs = Hangs()
    runner = GradingRunner({"judge": hangs}, max_concurrency=1, deadline_s=0.05, missing_reward="raise")
    given = [Rollout(response="", group=i, id=str(i)) for i in range(3)]
    with pytest.raises(MissingRewardError, match="rollout '?1"):
        await asyncio.wait_for(runner.run(given), 20)
    assert len(asyncio.all_tasks()) == 1


async def test_a_run_is_out_of_time_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """While its graders clean up, the clock goes on for them alone."""
    told = 0
    out_of_time = Run.out_of_time

    def count(run: Run) -> None:
        nonlocal told
        told += 1
        out_of_time(run)

    @grader
    async def tidy(response: str) -> float:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0.05)
            raise
        return 1.0

    monkeypatch.setattr(Run, "out_of_time", count)
    await GradingRunner([tidy], deadline_s=0.05, missing_reward="mask").run(rollouts(2))
    assert told == 1


async def test_nothing_is_tried_again_after_the_deadline() -> None:
    calls = 0

    @grader
    async def judge(rollout: Rollout) -> float:
        nonlocal calls
        calls += 1
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise JudgeUnavailable("cut off") from None
        return 1.0

    retry = Retry(attempts=5, wait_initial_s=0.0, wait_max_s=0.0, budget=1.0)
    runner = GradingRunner({"judge": judge}, deadline_s=0.05, retry=retry, missing_reward="mask")
    results = await asyncio.wait_for(runner.run(rollouts(4)), 20)
    assert {r.grades["judge"].error for r in results} == {"DeadlineExceeded"}  # type: ignore[union-attr]
    assert calls == 4


async def test_a_retry_that_waits_at_the_deadline_fails_with_it() -> None:
    @grader
    async def judge(rollout: Rollout) -> float:
        await asyncio.sleep(0)
        raise JudgeUnavailable("busy")

    retry = Retry(attempts=5, wait_initial_s=30, wait_max_s=30, budget=1.0)
    runner = GradingRunner({"judge": judge}, deadline_s=0.1, retry=retry, missing_reward="mask")
    results = await asyncio.wait_for(runner.run(rollouts(4)), 20)
    assert {r.grades["judge"].error for r in results} == {"DeadlineExceeded"}  # type: ignore[union-attr]
    assert len(asyncio.all_tasks()) == 1


class Later:
    """A rule that returns something to be awaited, which is no coroutine."""

    name, version, score_range = "later", "1", (0.0, 1.0)

    def grade(self, rollout: Rollout, /) -> Any:
        class Answer:
            def __await__(self) -> Any:
                yield from asyncio.sleep(0).__await__()
                return 0.25

        return Answer()


async def test_a_rule_may_return_any_awaitable() -> None:
    results = await GradingRunner({"later": Later()}).run(rollouts(5))
    assert [r.reward for r in results] == [0.25] * 5


@pytest.mark.parametrize("way", ["deadline", "cancelled", "raises"])
async def test_what_a_rule_returned_to_be_awaited_is_not_forgotten(way: str) -> None:
    """Where a run ends before: "coroutine was never awaited" is nobody's business, and a warning is an error here."""
    begun = asyncio.Event()

    class Waits:
        name, version, score_range = "waits", "1", (0.0, 1.0)

        def grade(self, rollout: Rollout, /) -> Any:
            async def answer() -> Any:
                begun.set()
                if way == "raises":
                    return None
                await asyncio.Event().wait()

            return answer()

    options: dict[str, Any] = {"max_concurrency": 1, "missing_reward": "raise" if way == "raises" else "mask"}
    if way == "deadline":
        options["deadline_s"] = 0.05
    run = asyncio.create_task(GradingRunner({"waits": Waits()}, **options).run(rollouts(100)))
    await begun.wait()
    if way == "cancelled":
        run.cancel()
    await asyncio.wait([run], timeout=20)
    assert run.done()
    if way == "deadline":
        assert {r.grades["waits"].error for r in run.result()} == {"DeadlineExceeded"}  # type: ignore[union-attr]
    elif way == "raises":
        assert isinstance(run.exception(), MissingRewardError)
    del run
    gc.collect()
    assert len(asyncio.all_tasks()) == 1


def abandoned(runner: GradingRunner) -> asyncio.Task[Any]:
    """A run on a loop that was closed under it."""
    loop = asyncio.new_event_loop()
    run = loop.create_task(runner.run(rollouts(2)))
    loop.run_until_complete(asyncio.sleep(0.01))
    loop.close()
    run._log_destroy_pending = False  # type: ignore[attr-defined]
    return run


def test_a_run_of_a_loop_that_is_gone_is_collected_while_another_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It tells what it has counted; waiting for the lock of the counts would be waiting for itself."""
    runner = GradingRunner({"judge": Hangs()}, missing_reward="mask", timeout_s=0.1)
    add = Counts.add
    gc.disable()
    try:
        run = abandoned(runner)
        run.itself = run  # type: ignore[attr-defined]
        del run
        monkeypatch.setattr(Counts, "add", lambda *args: (gc.collect(), add(*args)))
        assert [result.status for result in runner.run_sync(rollouts(2))] == ["masked", "masked"]
    finally:
        gc.enable()
    assert runner.metrics.counts.rollouts == 2


def test_a_run_of_a_loop_that_is_gone_gives_its_places_back() -> None:
    runner = GradingRunner({"judge": Hangs()}, missing_reward="mask", timeout_s=0.1, max_concurrency=1)
    runner = runner.with_settings(shared=True)
    abandoned(runner)
    gc.collect()
    assert [result.status for result in runner.run_sync(rollouts(2))] == ["masked", "masked"]


class Collecting(list[Any]):
    def append(self, line: Any, /) -> None:
        gc.collect()
        super().append(line)


def test_a_run_of_a_loop_that_is_gone_is_collected_while_another_writes(
    tmp_path: Path,
) -> None:
    """It writes the grades that it has, while the lock is held by its collector."""
    ledger = Ledger(tmp_path / "ledger.jsonl")
    known = grader(name="known")(lambda response: 1.0)
    runner = GradingRunner(
        {"judge": Hangs(), "known": known}, missing_reward="mask", ledger=ledger, timeout_s=0.1
    )
    gc.disable()
    try:
        abandoned(runner)
        ledger._lines = Collecting()
        assert [result.status for result in runner.run_sync(rollouts(2))] == ["masked", "masked"]
    finally:
        gc.enable()
    ledger.close()
    lines = [json.loads(line) for line in (tmp_path / "ledger.jsonl").read_text().splitlines()]
    assert sorted(line.get("status", "spec") for line in lines) == [
        "masked",
        "masked",
        "spec",
        "unfinished",
        "unfinished",
    ]


async def test_closing_a_runner_starts_it_again_the_next_time_and_tells_what_is_left(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Engine:
        starts = closes = 0

        async def start(self) -> None:
            self.starts += 1

        def close(self) -> None:
            self.closes += 1

    engine = Engine()
    down = grader(name="down")(lambda response: Failed("Down"))
    runner = GradingRunner({"down": down}, resources=[engine], missing_reward=0.0)
    for n in (1, 2):
        await runner.run(rollouts(1))
        await runner.run(rollouts(1))
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="judgekit"):
            await runner.close()
        assert (engine.starts, engine.closes) == (n, n)
        assert "grader 'down' failed on" in caplog.text  # small runs tell every few seconds, and at the end


def test_what_is_not_said_is_as_documented() -> None:
    assert Settings() == Settings(
        max_concurrency="auto",
        timeout_s=60.0,
        deadline_s=None,
        start_timeout_s=900.0,
        transform="none",
        missing_reward="exclude",
        max_failure_rate=None,
        retry=Retry(attempts=1, wait_initial_s=0.5, wait_max_s=20.0, budget=0.2),
    )
    assert Retry().attempts == 3
    runner = GradingRunner([grader(name="one")(lambda response: 1.0)])
    assert runner.settings == Settings()


def test_progress_is_a_bar_in_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = grader(name="one")(lambda response: 1.0)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    GradingRunner([one], progress=True).run_sync(rollouts(7))
    assert "7/7" in capsys.readouterr().err
    GradingRunner([one]).run_sync(rollouts(7))
    assert capsys.readouterr().err == ""


def test_progress_is_a_log_line_elsewhere(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    @grader
    def picky(response: str) -> float:
        raise ValueError

    monkeypatch.setattr(progress, "LOG_S", 0.0)
    with caplog.at_level(logging.INFO, "judgekit"):
        GradingRunner([picky], progress=True).run_sync(rollouts(64))
    assert "graded 32 of 64 (50%) rollouts" in caplog.text
    assert "100.0% of grades failed" in caplog.text


async def test_members_of_a_group_whose_grading_is_cancelled_are_cancelled_too() -> None:
    """As where a loop ends: nobody waits for a grading that is gone."""
    from judgekit.trainers import GroupCollector

    collector = GroupCollector(GradingRunner({"judge": Hangs()}))
    before = asyncio.all_tasks()
    members = [asyncio.create_task(collector.arrive("g", r, size=3)) for r in rollouts(2)]
    for _ in range(10):
        await asyncio.sleep(0)
    for task in asyncio.all_tasks() - before - set(members):
        task.cancel()
    await asyncio.wait(members, timeout=20)
    assert all(member.done() for member in members)
    await collector.close()
    assert len(asyncio.all_tasks()) == 1
