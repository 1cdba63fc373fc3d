"""Faults: every evaluation ends, a failure is never a number, and nothing stays behind."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import math
import pickle
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest

from judgekit import (
    Clip,
    DataError,
    Failed,
    FailureRateError,
    Fallback,
    Gate,
    Graded,
    GradingRunner,
    JudgeUnavailable,
    Ledger,
    Product,
    Retry,
    Rollout,
    RolloutError,
    Score,
    Switch,
    Usage,
    Weighted,
    grader,
    group_by_prompt,
    read_ledger,
)
from judgekit.execution.background import close_background_loop
from judgekit.execution.limits import RetryBudget
from judgekit.execution.pool import ProcessPool
from judgekit.ledger import writer

from .hostile import (
    BAD,
    PLACES,
    Collector,
    Hostile,
    PanicException,
    Scalar,
    grade_in,
    hostile,
    true_score,
    twelve,
)

pytestmark = pytest.mark.timeout(60)
T = TypeVar("T")


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPool]:
    pool = ProcessPool(2, memory_mb=1024)
    yield pool
    pool.close()


async def ends(work: Awaitable[T]) -> T:
    """Its result; a test fails where there is none, instead of waiting for pytest's timeout."""
    try:
        return await asyncio.wait_for(work, 5)
    except TimeoutError:
        raise AssertionError("the run does not end") from None


def failed(result: Any, name: str = "judge") -> Failed:
    grade = result.grades[name]
    assert isinstance(grade, Failed), grade
    return grade


# ---- every fault in every place

ANYWHERE: dict[str, str | None] = {
    "down": "JudgeUnavailable",
    "panic": "PanicException",
    "unprintable error": "Speechless",
    "error with odd usage": "ApiError",
    "error with odd flags": "OddFlags",
    "bytes of a proxy": "UnicodeDecodeError",
    "host name": None,
    "no memory": "MemoryError",
    "recursion": "RecursionError",
    "cancelled": "CancelledError",
    "exit": "SystemExit",
    "stop": None,  # Python makes a RuntimeError of one that leaves a coroutine
    "rollout": "RolloutError",
    "huge": None,
    "graded huge": None,
    "graded without reason": None,
    "graded text": None,
    "wrong usage": None,
    "wrong metadata": None,
    "complex": None,
    "list": None,
    "object": None,
}
"""Fault → the error that its grade names, where it is the same in all places."""
CASES = [(fault, place) for fault in ANYWHERE for place in PLACES]


def cause_of(fault: str, place: str) -> str:
    """Only what a rollout can bring about is the rollout's: its own error, and its memory in a worker."""
    own = fault == "rollout" or (place == "process" and fault in ("no memory", "recursion"))
    return "rollout" if own else "infrastructure"


@pytest.mark.parametrize(("fault", "place"), CASES)
async def test_a_fault_costs_its_own_grade(fault: str, place: str, pool: ProcessPool) -> None:
    """The run ends, the struck rollout has a failed grade of the right cause, and the others their scores."""
    rollouts = twelve()
    runner = GradingRunner({"judge": hostile(fault, place)}, missing_reward="mask", pool=pool)
    results = await ends(grade_in(place, runner, rollouts))
    for rollout, result in zip(rollouts, results, strict=True):
        grade = result.grades["judge"]
        if rollout.id == BAD:
            assert failed(result).cause == cause_of(fault, place)
            assert ANYWHERE[fault] in (None, failed(result).error)
            if failed(result).cause == "infrastructure":
                assert (result.reward, result.status) == (None, "masked")
            else:
                assert (result.reward, result.status) == (0.0, "scored")
        elif place.endswith("group") and rollout.group == 1:  # one call grades the four of them
            assert isinstance(grade, Failed) or grade == Graded(true_score(rollout))
        else:
            assert grade == Graded(true_score(rollout))
            assert (result.reward, result.status) == (true_score(rollout), "scored")


INTERRUPTED = """
    import asyncio, sys
    from judgekit import GradingRunner
    from tests.run.hostile import hostile, twelve

    if __name__ == "__main__":
        place, way = sys.argv[1:]
        runner = GradingRunner({"judge": hostile("interrupt", place)})
        results = asyncio.run(runner.run(twelve())) if way == "run" else runner.run_sync(twelve())
        for result in results:
            grade = result.grades["judge"]
            print(getattr(grade, "error", "graded"), getattr(grade, "cause", ""))
"""


@pytest.mark.parametrize("way", ["run", "run_sync"])
@pytest.mark.parametrize("place", ["thread", "process"])
def test_an_interrupt_that_is_nobodys_is_a_fault_too(place: str, way: str) -> None:
    """Raised in a thread or a worker, KeyboardInterrupt cannot be the user's, though its loop is the main
    thread's. In a process of its own: what gets out would end the tests."""
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(INTERRUPTED), place, way],
        capture_output=True,
        text=True,
        cwd=root,
        timeout=50,
    )
    expected = ["KeyboardInterrupt infrastructure" if r.id == BAD else "graded " for r in twelve()]
    assert done.stdout.splitlines() == expected, done.stderr[-500:]


@pytest.mark.parametrize("place", ["inline", "thread", "async"])
async def test_a_number_of_an_array_library_is_a_number_inside_graded_too(place: str) -> None:
    def act(rollout: Rollout) -> Any:
        return Graded(Scalar(true_score(rollout)))  # type: ignore[arg-type]

    async def act_async(rollout: Rollout) -> Any:
        return act(rollout)

    judge = grader(act_async) if place == "async" else grader(where=place)(act)
    results = await ends(GradingRunner({"judge": judge}).run(twelve()))
    assert [r.reward for r in results] == [true_score(r) for r in twelve()]
    assert all(type(r.grades["judge"].score) is float for r in results)  # type: ignore[union-attr]


@pytest.mark.parametrize("awaits", [True, False])
async def test_a_grader_that_cancels_its_own_task_costs_its_own_grade(awaits: bool) -> None:
    @grader
    async def judge(rollout: Rollout) -> float:
        await asyncio.sleep(0)
        if rollout.id == BAD:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            if awaits:
                await asyncio.sleep(0)
        return true_score(rollout)

    rollouts = twelve() * 4
    for concurrency in (1, 4, 64):  # a task that grades one rollout after another, and one for each
        runner = GradingRunner({"judge": judge}, max_concurrency=concurrency, deadline_s=60)
        for rollout, result in zip(rollouts, await ends(runner.run(rollouts)), strict=True):
            if rollout.id != BAD:
                assert result.reward == true_score(rollout)
            elif awaits:
                assert failed(result).cause == "infrastructure"
    assert len(asyncio.all_tasks()) == 1


async def test_a_library_that_cancels_the_task_and_forgets_it_does_not_cost_the_next_rollout() -> None:
    """Timeouts written before Python 3.11 cancel the task, raise TimeoutError, and never take it back."""

    @grader
    async def judge(rollout: Rollout) -> float:
        if rollout.id == "0":
            task = asyncio.current_task()
            assert task is not None
            asyncio.get_running_loop().call_soon(task.cancel)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise TimeoutError("as libraries did") from None
        if rollout.id == "1":
            await asyncio.Event().wait()
        return 0.5

    runner = GradingRunner({"judge": judge}, max_concurrency=1, timeout_s=0.1)
    results = await ends(runner.run(twelve()))
    assert [failed(r).error for r in results[:2]] == ["TimeoutError", "GraderTimeout"]
    assert [r.reward for r in results[2:]] == [0.5] * 10


@pytest.mark.parametrize("place", ["async", "group", "collected", "collected group"])
async def test_a_grader_that_ignores_its_cancellation_does_not_hold_the_run(place: str) -> None:
    release = asyncio.Event()

    class Deaf:
        name, version, score_range = "judge", "1", (0.0, 1.0)

        async def wait(self) -> None:
            while not release.is_set():
                with contextlib.suppress(asyncio.CancelledError, PanicException):
                    await release.wait()

    class DeafGrader(Deaf):
        async def grade(self, rollout: Rollout, /) -> float:
            if rollout.id == BAD:
                await self.wait()
            return 0.5

    class DeafGroup(Deaf):
        async def grade_group(self, rollouts: Any, /) -> list[float]:
            if rollouts[0].group == 1:
                await self.wait()
            return [0.5] * len(rollouts)

    judge = DeafGroup() if place.endswith("group") else DeafGrader()
    runner = GradingRunner({"judge": judge}, timeout_s=0.05)
    results = await ends(grade_in(place, runner, twelve()))
    struck = [r for r, rollout in zip(results, twelve(), strict=True) if r.reward is None]
    assert [failed(r).error for r in struck] == ["GraderTimeout"] * (4 if place.endswith("group") else 1)
    release.set()
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize("place", ["thread", "async", "group", "collected", "collected group"])
async def test_at_the_deadline_everything_that_is_open_fails(place: str) -> None:
    """Also a thread that cannot be stopped; for a worker see tests/execution/test_pool.py."""
    release = threading.Event()

    class Waits(Hostile):
        def grade(self, rollout: Rollout, /) -> Any:
            release.wait()
            return 1.0

    class WaitsAsync:
        name, version, score_range = "judge", "1", (0.0, 1.0)

        async def grade(self, rollout: Rollout, /) -> Any:
            await asyncio.Event().wait()

    class WaitsGroup:
        name, version, score_range = "judge", "1", (0.0, 1.0)

        async def grade_group(self, rollouts: Any, /) -> Any:
            await asyncio.Event().wait()

    judge: Any = Waits("", "thread") if place == "thread" else WaitsAsync()
    if place.endswith("group"):
        judge = WaitsGroup()
    runner = GradingRunner({"judge": judge}, deadline_s=0.05, timeout_s=600, missing_reward=-1.0)
    try:
        results = await ends(grade_in(place, runner, twelve()))
    finally:
        release.set()
    assert {failed(r).error for r in results} == {"DeadlineExceeded"}
    assert {(r.reward, r.status) for r in results} == {(-1.0, "constant")}


# ---- what is paid for a failure


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("missing_reward", "reward", "status"),
    [("exclude", None, "excluded"), ("mask", None, "masked"), (-1.0, -1.0, "constant")],
)
async def test_a_missing_reward_is_what_the_runner_says(
    missing_reward: Any, reward: float | None, status: str, place: str, pool: ProcessPool
) -> None:
    judge = hostile("down", place)
    runner = GradingRunner({"judge": judge}, missing_reward=missing_reward, pool=pool)
    results = await ends(grade_in(place, runner, twelve()))
    struck = results[int(BAD)]
    assert (struck.reward, struck.status) == (reward, status)


@pytest.mark.parametrize("transform", ["center", "zscore", "loo", "rank"])
async def test_an_excluded_rollout_does_not_change_its_siblings(transform: Any) -> None:
    """Their rewards are those of a run without it, exactly."""
    rollouts = twelve()
    judge = hostile("down", "async")
    with_it = await GradingRunner({"judge": judge}, transform=transform).run(rollouts)
    others = [r for r in rollouts if r.id != BAD]
    without = await GradingRunner({"judge": judge}, transform=transform).run(others)
    assert [r.reward for r in with_it if r.status == "scored"] == [r.reward for r in without]
    assert (with_it[int(BAD)].reward, with_it[int(BAD)].status) == (None, "excluded")


@pytest.mark.parametrize("place", PLACES)
async def test_what_a_rollout_broke_is_paid_what_its_leaf_says(place: str, pool: ProcessPool) -> None:
    judge = hostile("rollout", place)
    tree = Weighted({"judge": (2.0, Score("judge", if_broken=0.125))})
    results = await ends(grade_in(place, GradingRunner({"judge": judge}, tree, pool=pool), twelve()))
    struck = results[int(BAD)]
    assert (struck.reward, struck.status, failed(struck).cause) == (0.25, "scored", "rollout")


async def test_a_failure_rate_error_carries_the_results() -> None:
    runner = GradingRunner({"judge": hostile("down", "async")}, max_failure_rate=0.0)
    with pytest.raises(FailureRateError) as info:
        await runner.run(twelve())
    results = info.value.results  # type: ignore[attr-defined]
    assert [r.reward for r in results] == [None if r.id == BAD else true_score(r) for r in twelve()]


# ---- odd values at construction


@pytest.mark.parametrize(
    "build",
    [
        lambda: Rollout(response="", id=7),  # type: ignore[arg-type]
        lambda: Rollout(response="", data_source=None),  # type: ignore[arg-type]
        lambda: Rollout(response="", extra=None),  # type: ignore[arg-type]
    ],
)
def test_what_a_ledger_could_not_read_back_is_refused_at_construction(build: Callable[[], Any]) -> None:
    with pytest.raises((TypeError, DataError)):
        build()


async def test_a_ledger_has_a_row_for_every_rollout_of_a_faulty_batch(tmp_path: Path) -> None:
    """Whatever a grader returns, the file can be read, and says what the results say."""
    graders = {f"g{i}": Hostile(fault) for i, fault in enumerate(ANYWHERE) if fault != "cancelled"}
    runner = GradingRunner(graders, missing_reward="mask", ledger=Ledger(tmp_path / "l.jsonl"))
    results = await ends(runner.run(twelve()))
    await runner.close()
    entries = sorted(read_ledger(tmp_path / "l.jsonl").entries, key=lambda e: e.index)
    assert [e.reward for e in entries] == [r.reward for r in results]
    assert [e.grades for e in entries] == [r.grades for r in results]


def test_group_ids_that_compare_equal_are_different_groups() -> None:
    rollouts = [Rollout(response="", group=g) for g in (1, True, 1.0)]
    assert group_by_prompt(rollouts) == [[0], [1], [2]]


# ---- cancellation


class Winding:
    """An async grader with several points to be cancelled at, also while it cleans up."""

    name, version, score_range = "judge", "1", (0.0, 1.0)

    async def grade(self, rollout: Rollout, /) -> float:
        try:
            for _ in range(3):
                await asyncio.sleep(0)
        finally:
            for _ in range(3):
                await asyncio.sleep(0)
        return true_score(rollout)


class WindingGroup:
    name, version, score_range = "judge", "1", (0.0, 1.0)

    async def grade_group(self, rollouts: Any, /) -> list[float]:
        return [await Winding().grade(r) for r in rollouts]


class Plain:
    """Gives the true score, from wherever it is called."""

    name, version, score_range = "judge", "1", (0.0, 1.0)

    def __init__(self, where: str) -> None:
        self.where = where

    def grade(self, rollout: Rollout, /) -> float:
        return true_score(rollout)


def plain(place: str) -> Any:
    if place in ("inline", "thread", "process"):
        return Plain(place)
    return WindingGroup() if place.endswith("group") else Winding()


async def no_other_task() -> None:
    """Wait for tasks that end by themselves in a few turns of the loop; fail where one stays."""
    for _ in range(100):
        if len(asyncio.all_tasks()) == 1:
            return
        await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


def no_other_thread(before: set[threading.Thread]) -> None:
    """The same for threads, once those that serve the whole process are told to end."""
    close_background_loop()
    for ledger in list(writer._open_ledgers):
        ledger.close()
    for thread in set(threading.enumerate()) - before:
        thread.join(20)
        assert not thread.is_alive(), f"{thread.name} stays behind"


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("place", PLACES)
def test_a_run_can_be_cancelled_at_every_step(place: str, twice: bool, tmp_path: Path) -> None:
    """After k turns of the loop, for every k: it ends, leaves nothing behind, and the runner works again.

    With *twice*, it is cancelled once more while it cleans up.
    """
    close_background_loop()
    ledger, pool = Ledger(tmp_path / "l.jsonl", fsync="never"), ProcessPool(2, memory_mb=1024)
    runner = GradingRunner(
        {"rule": Plain("inline"), "judge": plain(place)},
        {"rule": 0.0, "judge": 1.0},
        transform="center",
        max_concurrency=3,
        pool=pool,
        ledger=ledger,
    )
    rollouts = twelve()
    expected = [true_score(r) - 0.375 for r in rollouts]

    async def main() -> None:
        for steps in range(4 if place == "process" else 40):
            task = asyncio.create_task(grade_in(place, runner, rollouts))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            if twice:
                for _ in range(steps % 3 + 1):
                    await asyncio.sleep(0)
                task.cancel()
            await asyncio.wait([task], timeout=20)
            assert task.done(), f"cancelled after {steps} turns, it does not end"
            if not task.cancelled() and task.exception() is None:
                assert [r.reward for r in task.result()] == expected
            await no_other_task()
        assert [r.reward for r in await ends(grade_in(place, runner, rollouts))] == expected
        await no_other_task()

    before = set(threading.enumerate())
    asyncio.run(main())
    pool.close()
    no_other_thread(before)
    ledger.close()
    assert not read_ledger(tmp_path / "l.jsonl").torn


async def test_cancelling_a_member_at_every_step_costs_nobody_else() -> None:
    runner = GradingRunner({"judge": Winding()}, transform="center")
    for steps in range(1, 20):  # before its first turn it has not arrived
        meeting = Collector(runner)
        rollouts = twelve()[:4]
        tasks = [asyncio.create_task(meeting.arrive(0, r, size=4)) for r in rollouts]
        for _ in range(steps):
            await asyncio.sleep(0)
        tasks[2].cancel()
        await ends(asyncio.wait(tasks))
        assert [t.result().reward for t in tasks[:2]] == [-0.375, -0.125]
        await meeting.close()
        await no_other_task()


# ---- bounded


async def test_a_stream_grades_no_further_than_its_consumer_reads() -> None:
    calls = 0

    @grader
    async def judge(rollout: Rollout) -> float:
        nonlocal calls
        calls += 1
        await asyncio.sleep(0)
        return 0.5

    rollouts = [Rollout(response="", group=i) for i in range(2000)]
    stream = GradingRunner({"judge": judge}, max_concurrency=8).stream(rollouts)
    async with contextlib.aclosing(stream):
        for _ in range(20):
            await anext(stream)
        for _ in range(2000):  # as many turns as it would need for all of them
            await asyncio.sleep(0)
        assert calls < 500


def test_a_long_quiet_time_is_no_credit_for_a_storm_of_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1e6
    monkeypatch.setattr(time, "monotonic", lambda: now)
    budget = RetryBudget(0.2)
    for _ in range(100_000):  # one call a second for a day
        now += 1
        budget.call()
    now += 61
    in_a_row = 0
    while in_a_row < 20_000 and budget.allow():
        in_a_row += 1
    assert 0 < in_a_row < 200


async def test_runs_of_single_rollouts_do_not_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Hosts make one run per rollout, thousands a step: a broken judge is news once, not each time."""
    runner = GradingRunner({"judge": hostile("down", "async")}, missing_reward=0.0)
    caplog.set_level(logging.DEBUG, logger="judgekit")
    for _ in range(200):
        await runner.run([twelve()[int(BAD)]])
    records = [r for r in caplog.records if r.levelno >= logging.WARNING and r.name.startswith("judgekit")]
    assert len(records) <= 5


def test_no_count_is_lost_where_the_metrics_are_reset_beside_runs() -> None:
    runner = GradingRunner({"judge": Plain("inline")})
    total = 4000
    seen = 0

    async def grade() -> None:
        for _ in range(total // 2):
            await runner.run(twelve()[:1])

    def work() -> None:
        asyncio.run(grade())

    threads = [threading.Thread(target=work) for _ in range(2)]
    switch = _switch_interval(1e-6)
    try:
        for thread in threads:
            thread.start()
        while any(t.is_alive() for t in threads):
            seen += int(runner.metrics.summary(reset=True).get("judgekit/rollouts", 0))
    finally:
        for thread in threads:
            thread.join()
        _switch_interval(switch)
    seen += int(runner.metrics.summary(reset=True).get("judgekit/rollouts", 0))
    assert seen == total


def _switch_interval(seconds: float) -> float:
    before = sys.getswitchinterval()
    sys.setswitchinterval(seconds)
    return before


# ---- what is loaded first is not charged to a rollout


async def test_a_run_starts_what_is_not_started_outside_of_any_rollouts_time() -> None:
    class Engine:
        def __init__(self) -> None:
            self.starts = 0
            self.ready = asyncio.Event()

        async def start(self) -> None:
            self.starts += 1
            await asyncio.sleep(0.3)
            self.ready.set()

    engine = Engine()

    @grader(timeout_s=0.1)
    async def judge(rollout: Rollout) -> float:
        await engine.ready.wait()
        return 0.5

    runner = GradingRunner({"judge": judge}, resources=[engine])
    for _ in range(2):
        results = await ends(runner.run(twelve()))
        assert [r.reward for r in results] == [0.5] * 12
    assert engine.starts == 1


@pytest.mark.parametrize("place", ["inline", "thread", "async"])
async def test_starting_a_runner_warms_its_graders_up(place: str) -> None:
    class Warm(Plain):
        warmed = 0

        def warm_up(self) -> None:
            self.warmed += 1

    class WarmAsync(Winding):
        warmed = 0

        async def warm_up(self) -> None:
            self.warmed += 1

    judge: Any = WarmAsync() if place == "async" else Warm(place)
    runner = GradingRunner({"judge": judge})
    await runner.start()
    await runner.run(twelve())
    assert judge.warmed == 1


# ---- the runner as a value


def test_a_runner_pickles_and_grades_the_same_after() -> None:
    runner = GradingRunner({"judge": Plain("inline")}, transform="center", missing_reward=0.25)
    again = pickle.loads(pickle.dumps(runner))
    assert [r.reward for r in again.run_sync(twelve())] == [r.reward for r in runner.run_sync(twelve())]
    assert not again._plan.limits
    shared = pickle.loads(pickle.dumps(runner.with_settings(shared=True)))
    assert set(shared._plan.limits) == {"judge"}


async def test_leaving_a_runners_block_closes_what_it_owns() -> None:
    class Engine:
        state = "new"

        async def start(self) -> None:
            self.state = "started"

        async def close(self) -> None:
            self.state = "closed"

    engine = Engine()
    async with GradingRunner({"judge": Plain("inline")}, resources=[engine]) as runner:  # type: ignore[attr-defined]
        assert engine.state == "started"
        assert math.fsum(r.reward or 0 for r in await runner.run(twelve())) == 4.5
    assert engine.state == "closed"


CALLER: contextvars.ContextVar[str] = contextvars.ContextVar("caller", default="lost")


@pytest.mark.parametrize("place", ["inline", "thread", "async"])
async def test_the_callers_context_reaches_its_graders(place: str) -> None:
    def look(rollout: Rollout) -> float:
        return float(CALLER.get() == "here")

    async def look_async(rollout: Rollout) -> float:
        return look(rollout)

    judge = grader(look_async) if place == "async" else grader(where=place)(look)
    CALLER.set("here")
    assert [r.reward for r in await GradingRunner({"judge": judge}).run(twelve())] == [1.0] * 12


async def test_an_error_of_the_rollout_is_no_alarm_about_the_judge() -> None:
    @grader
    async def judge(rollout: Rollout) -> float:
        if rollout.id == BAD:
            raise RolloutError("too deep")
        if rollout.id == "0":
            raise JudgeUnavailable("down")
        return 1.0

    with pytest.raises(FailureRateError, match=r"8\.3 %"):
        await GradingRunner({"judge": judge}, max_failure_rate=0.0).run(twelve())


class Proxy:
    """A client's object whose connection is closed: it raises whatever it is asked for."""

    def __getattr__(self, name: str) -> Any:
        raise OSError("the connection is closed")


class Column(Sequence[str]):
    """A lazy column of a data set whose file is gone."""

    def __getitem__(self, index: Any) -> Any:
        raise OSError("the column is gone")

    def __len__(self) -> int:
        return 2


def give(value: Any) -> Callable[[str], Any]:
    def act(response: str) -> Any:
        if isinstance(value, Exception) and response == BAD:
            raise value
        return value if response == BAD else 0.5

    return act


FAR = JudgeUnavailable("busy", retry_after=10**400)
RETRY = Retry(attempts=2, wait_initial_s=0, wait_max_s=0)


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (Usage(calls=1, prompt_tokens=None), "TypeError"),  # type: ignore[arg-type]
        (Usage(calls="1"), "TypeError"),  # type: ignore[arg-type]
        (Usage(calls=1 << 80), "TypeError"),
        (Proxy, "OSError"),
        (Failed("X", retryable="no"), "TypeError"),  # type: ignore[arg-type]
        (FAR, "JudgeUnavailable"),
    ],
)
@pytest.mark.parametrize("place", ["inline", "thread", "async"])
async def test_an_odd_grade_costs_itself_and_its_line_can_be_read(
    value: Any, error: str, place: str, tmp_path: Path
) -> None:
    value = value() if value is Proxy else Graded(0.5, usage=value) if isinstance(value, Usage) else value
    act = give(value)

    async def later(response: str) -> Any:
        await asyncio.sleep(0)
        return act(response)

    made = grader(later, name="act") if place == "async" else grader(act, name="act", where=place)  # type: ignore[arg-type]
    runner = GradingRunner([made], retry=RETRY, ledger=Ledger(tmp_path / "l"))
    results = await runner.run([Rollout(response=r, group=r) for r in ("4", BAD, "6")])
    assert [r.reward for r in results] == [0.5, None, 0.5]
    bad = results[1].grades["act"]
    assert isinstance(bad, Failed)
    assert bad.error in (error, "TypeError")
    assert bad.cause == "infrastructure"
    kept = {entry.index: entry.grades["act"] for entry in read_ledger(tmp_path / "l").entries}
    assert kept == {result.index: result.grades["act"] for result in results}


async def test_a_column_that_cannot_be_read_costs_its_own_rollouts() -> None:
    @grader
    def half(response: str) -> float:
        return 0.5

    half.inline_limit = 100  # type: ignore[attr-defined]
    odd = [Rollout(response="", ground_truth=Column(), group=1), Rollout(response="", group=2)]
    assert [r.reward for r in await GradingRunner([half]).run(odd)] == [0.5, 0.5]

    switch = Switch({"x": "half"}, by="extra.kind.0", otherwise=0.25)
    odd = [Rollout(response="", extra={"kind": Column()}), Rollout(response="", extra={"kind": ["y"]})]
    lost, other = await GradingRunner([half], switch).run(odd)
    assert (lost.reward, other.reward) == (None, 0.25)
    assert lost.policies == ("no case of the switch fits extra.kind.0 which cannot be read",)


@pytest.mark.parametrize(
    "reward",
    [
        "far",
        Weighted({"far": 1.0}),
        Weighted({"far": 10.0}),
        Clip(Weighted({"far": 10.0}), 0, 1),
        Gate(if_=Weighted({"far": 10.0}) >= 0, then="far", otherwise=0),
        Fallback(Weighted({"far": 10.0}), 0.5),
        Clip(Product("far", "far"), 0, 1),
    ],
)
async def test_scores_at_the_end_of_the_floats_are_rewards_or_missing(reward: Any, tmp_path: Path) -> None:
    @grader(score_range=(-1.7e308, 1.7e308))
    def far(response: str) -> float:
        return float(response)

    runner = GradingRunner([far], reward, ledger=Ledger(tmp_path / "l"))
    results = await runner.run([Rollout(response=r, group=1) for r in ("1e308", "1.5e308", "-1e308", "1")])
    for result, entry in zip(results, read_ledger(tmp_path / "l").entries, strict=True):
        assert entry.contributions == result.contributions
        if result.raw_reward is not None:
            assert math.fsum(result.contributions.values()) == pytest.approx(result.raw_reward)
    assert results[3].raw_reward is not None
    assert runner.metrics.summary()["judgekit/rollouts"] == 4


async def test_threads_that_hang_hold_no_run_that_has_a_ledger(tmp_path: Path) -> None:
    """Of an SDK in `asyncio.to_thread`, which has few threads: the ledger's flush waited behind them for ever."""
    release = threading.Event()

    @grader
    async def hangs(response: str) -> float:
        await asyncio.to_thread(release.wait)
        return 0.5

    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(2))
    runner = GradingRunner([hangs], timeout_s=0.05, ledger=Ledger(tmp_path / "l"))
    try:
        results = await asyncio.wait_for(runner.run(twelve()), 20)
        await asyncio.wait_for(runner.close(), 20)
    finally:
        release.set()
    assert [r.reward for r in results] == [None] * 12
    assert len(read_ledger(tmp_path / "l").entries) == 12


async def test_grades_that_are_known_are_checked_like_others() -> None:
    @grader
    def half(response: str) -> float:
        raise AssertionError("it is known")

    known = [{"half": 0.75}, {"half": math.nan, "other": Graded(1.0)}]
    good, bad = await GradingRunner([half]).run([Rollout(response="")] * 2, known=known)  # type: ignore[arg-type]
    assert (good.reward, bad.reward) == (0.75, None)
    assert bad.grades == {"half": Failed("ScoreNotFinite", "the score is nan")}


class Unhashable:
    def __hash__(self) -> int:
        raise OSError("the connection is closed")


@pytest.mark.parametrize(
    ("given", "says"), [([1], "hashable, not list"), (Unhashable(), "hashable"), (math.nan, "nan")]
)
@pytest.mark.parametrize("way", ["batch", "stream"])
async def test_a_group_id_that_is_none_is_said_with_its_rollout(given: Any, says: str, way: str) -> None:
    @grader
    def half(response: str) -> float:
        return 0.5

    async def source() -> AsyncIterator[Rollout]:
        for rollout in batch:
            yield rollout

    batch = [Rollout(response="", group=1), Rollout(response="", group=given)]
    runner = GradingRunner([half])

    async def stream() -> list[Any]:
        return [result async for result in runner.stream(source())]

    with pytest.raises(DataError, match=f"rollout 1: .*{says}"):
        await (runner.run(batch) if way == "batch" else stream())
