"""Worker processes under faults: right grades for the right rollouts, and the right one to blame."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import pickle
import resource
import signal
import sys
import time
import weakref
from collections import Counter
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from judgekit import ConfigError, Failed, Graded, GradingRunner, Retry, RewardResult, Rollout
from judgekit.execution import pool_crew
from judgekit.execution.pool import ProcessPool

from ..run.hostile import PLACES, hostile
from .hostile_graders import (
    Busy,
    Cold,
    Counted,
    CountedWarm,
    Dies,
    Echo,
    Holds,
    Large,
    Leaks,
    Loads,
    Reads,
    Slow,
    Starts,
    Talks,
    Waits,
    Warm,
)

pytestmark = pytest.mark.timeout(60)
T = TypeVar("T")


def rollouts(*responses: str) -> list[Rollout]:
    return [Rollout(response=response, group=0, id=str(i)) for i, response in enumerate(responses)]


def runner(grader: Any, pool: ProcessPool, **options: Any) -> GradingRunner:
    return GradingRunner(
        {"act": grader}, pool=pool, **{"timeout_s": 30.0, "missing_reward": "mask", **options}
    )


async def ends(work: Awaitable[T]) -> T:
    try:
        return await asyncio.wait_for(work, 20)
    except TimeoutError:
        raise AssertionError("the run does not end") from None


async def until(path: Path) -> int:
    """The id of the process that has made this file."""
    while not path.exists():
        await asyncio.sleep(0.002)
    return int(path.read_text())


def alive(pid: int) -> bool:
    """Whether there is such a process, and it has not ended yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


async def until_dead(pid: int) -> None:
    while alive(pid):
        await asyncio.sleep(0.002)


def children() -> set[int]:
    found: set[int] = set()
    for task in Path(f"/proc/{os.getpid()}/task").iterdir():
        with contextlib.suppress(OSError):  # a thread that ends meanwhile
            found |= set(map(int, (task / "children").read_text().split()))
    return set(filter(alive, found))


def outcome(results: list[RewardResult]) -> list[Any]:
    """Per rollout its score, or who is to blame for there being none."""
    grades = [r.grades["act"] for r in results]
    return [g.score if isinstance(g, Graded) else getattr(g, "cause", g) for g in grades]


# ---- a worker that is lost


async def test_an_idle_worker_that_was_killed_is_replaced(pool: ProcessPool) -> None:
    """As the kernel does when memory is short: the next run does not hear of it, however often."""
    before = children()
    echo = runner(Echo(), pool)
    for _ in range(3):
        assert outcome(await ends(echo.run(rollouts(*"abcd")))) == [0.0, 1.0, 2.0, 3.0]
        (worker,) = children() - before
        os.kill(worker, signal.SIGKILL)
        await until_dead(worker)
    assert outcome(await ends(echo.run(rollouts(*"abcd")))) == [0.0, 1.0, 2.0, 3.0]


async def test_a_busy_worker_that_was_killed_once_costs_nothing(pool: ProcessPool, tmp_path: Path) -> None:
    run = asyncio.create_task(ends(runner(Waits(tmp_path), pool).run(rollouts(*"ab"))))
    os.kill(await until(tmp_path / "begun-0"), signal.SIGKILL)
    (tmp_path / "release").touch()
    assert outcome(await run) == [0.0, 1.0]


async def test_a_busy_worker_that_is_killed_twice_is_the_machines_fault(
    pool: ProcessPool, tmp_path: Path
) -> None:
    run = asyncio.create_task(ends(runner(Waits(tmp_path), pool).run(rollouts(*"ab"))))
    for attempt in range(2):
        os.kill(await until(tmp_path / f"begun-{attempt}"), signal.SIGKILL)
    (tmp_path / "release").touch()
    assert outcome(await run) == ["infrastructure", 1.0]


@pytest.mark.parametrize("how", ["segfault", "exit", "abort"])
async def test_a_crash_that_repeats_is_the_rollouts(how: str, pool: ProcessPool, tmp_path: Path) -> None:
    results = await ends(runner(Dies(tmp_path), pool).run(rollouts("a", how, f"{how} once", "b")))
    assert outcome(results) == [0.0, "rollout", 2.0, 3.0]
    grade = results[1].grades["act"]
    assert isinstance(grade, Failed)
    assert grade.error == "WorkerDied"
    assert (results[1].reward, results[1].status) == (0.0, "scored")


async def test_a_worker_that_kills_itself_without_a_trace_is_not_the_rollouts(
    pool: ProcessPool, tmp_path: Path
) -> None:
    """From outside it looks as if the kernel had: no rollout is charged on such evidence."""
    results = await ends(runner(Dies(tmp_path), pool).run(rollouts("a", "killed", "b")))
    assert outcome(results) == [0.0, "infrastructure", 2.0]


# ---- a worker that loads


async def test_a_load_that_takes_too_long_does_not_shift_the_grades(
    pool: ProcessPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock runs past every limit while the worker still loads; its late answer belongs to nobody."""
    real, ahead = time.monotonic, 0.0
    slow = runner(Loads("slow", tmp_path), pool, timeout_s=1e9)
    monkeypatch.setattr(time, "monotonic", lambda: real() + ahead)
    run = asyncio.create_task(slow.run(rollouts(*"abcdefgh")))
    await until(tmp_path / "loading")
    ahead = 1e6
    await asyncio.sleep(0.3)  # a pool that gives up does so now
    (tmp_path / "release").touch()
    first = await ends(run)
    ahead += 1000  # a grader that could not be loaded is tried again after a while
    for results in (first, await ends(slow.run(rollouts(*"abcdefgh")))):
        for i, found in enumerate(outcome(results)):
            assert found in (float(i), "infrastructure")
    assert outcome(results) == [float(i) for i in range(8)]


async def test_loading_is_not_charged_to_the_rollout(pool: ProcessPool, tmp_path: Path) -> None:
    run = asyncio.create_task(
        ends(runner(Loads("slow", tmp_path), pool, timeout_s=0.2).run(rollouts(*"abcd")))
    )
    await until(tmp_path / "loading")
    await asyncio.sleep(0.5)
    (tmp_path / "release").touch()
    assert outcome(await run) == [0.0, 1.0, 2.0, 3.0]


async def test_a_run_that_is_cancelled_while_a_worker_loads_does_not_shift_the_next(
    pool: ProcessPool, tmp_path: Path
) -> None:
    slow = runner(Loads("slow", tmp_path), pool)
    run = asyncio.create_task(slow.run(rollouts(*"abcd")))
    await until(tmp_path / "loading")
    run.cancel()
    await asyncio.wait([run])
    (tmp_path / "release").touch()
    assert outcome(await ends(slow.run(rollouts(*"abcd")))) == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize("how", ["not there", "too large", "too deep", "rollout's", "exits"])
async def test_what_happens_before_a_rollout_is_seen_is_nobodys_but_the_machines(
    how: str, pool: ProcessPool
) -> None:
    """Also what would be the rollout's in `grade`, and for each of the rollouts alike."""
    results = await ends(runner(Loads(how), pool).run(rollouts(*"abc")))
    assert outcome(results) == ["infrastructure"] * 3
    assert len({r.grades["act"].error for r in results}) == 1  # type: ignore[union-attr]
    assert [r.reward for r in results] == [None] * 3
    assert outcome(await ends(runner(Echo(), pool).run(rollouts(*"ab")))) == [0.0, 1.0]


async def test_warming_up_is_not_charged_to_the_rollout(pool: ProcessPool) -> None:
    results = await ends(runner(Warm("slow"), pool, timeout_s=0.3).run(rollouts(*"abcd")))
    assert outcome(results) == [0.0, 1.0, 2.0, 3.0]


async def test_a_warm_up_that_fails_is_infrastructure(pool: ProcessPool) -> None:
    results = await ends(runner(Warm("fails"), pool).run(rollouts(*"ab")))
    assert outcome(results) == ["infrastructure"] * 2
    assert {r.grades["act"].error for r in results} == {"OSError"}  # type: ignore[union-attr]


@pytest.mark.parametrize("how", ["memory", "recursion"])
async def test_memory_is_the_rollouts_only_in_a_worker_that_has_graded(how: str, pool: ProcessPool) -> None:
    """A first rollout may meet what is really the grader's loading."""
    act = runner(Cold(), pool)
    assert outcome(await ends(act.run(rollouts(how)))) == ["infrastructure"]
    assert outcome(await ends(act.run(rollouts("fine", how, "fine")))) == [0.0, "rollout", 2.0]


async def test_what_a_grader_takes_to_load_is_not_the_rollouts(pool: ProcessPool) -> None:
    """The pool's one GiB is what grading may take on top of it."""
    assert pool.memory_mb == 1024
    results = await ends(runner(Large(), pool).run(rollouts("fine", "memory", "fine")))
    assert outcome(results) == [0.0, "rollout", 2.0]
    grade = results[1].grades["act"]
    assert isinstance(grade, Failed)
    assert (grade.error, grade.detail) == (
        "MemoryError",
        "more than 1024 MiB for one rollout (set by ProcessPool(memory_mb=…))",
    )


async def test_no_rollout_pays_for_what_a_grader_has_kept_of_others() -> None:
    """A worker lives for days: one whose graders fill it is replaced before it is full."""
    pool = ProcessPool(2, memory_mb=1024)
    try:
        results = await ends(runner(Leaks(), pool).run(rollouts(*"abcdefghijklmnop")))
    finally:
        pool.close()
    assert outcome(results) == [float(i) for i in range(16)]
    assert pool.started in (8, 9)  # each ends with its second rollout, when it has kept 600 of 1,024 MiB


async def test_a_worker_that_was_killed_beside_its_own_child_is_not_the_rollouts(
    pool: ProcessPool, tmp_path: Path
) -> None:
    """The child holds the pipe on which the worker would be seen to end; both attempts leave one."""
    results = await ends(
        runner(Starts(tmp_path, dies=True), pool, timeout_s=3600).run(rollouts("", "starts", ""))
    )
    assert outcome(results) == [0.0, "infrastructure", 2.0]
    assert results[1].grades["act"].error == "WorkerLost"  # type: ignore[union-attr]
    for number in range(2):
        await until_dead(await until(tmp_path / f"child-{number}"))


async def test_what_a_grader_started_ends_with_its_worker(pool: ProcessPool, tmp_path: Path) -> None:
    results = await ends(
        runner(Starts(tmp_path, dies=False), pool, timeout_s=0.5).run(rollouts("", "starts", ""))
    )
    assert outcome(results) == [0.0, "infrastructure", 2.0]
    await until_dead(await until(tmp_path / "child-0"))


# ---- time


async def test_a_rollout_that_its_worker_does_not_read_times_out(pool: ProcessPool) -> None:
    """More than fits into a pipe, to a worker that is stopped."""
    before = children()
    echo = runner(Echo(), pool, timeout_s=0.5)
    assert outcome(await ends(echo.run(rollouts("a")))) == [0.0]
    (worker,) = children() - before
    os.kill(worker, signal.SIGSTOP)
    assert outcome(await ends(echo.run(rollouts("a" * 1_000_000, "b")))) == ["infrastructure", 1.0]
    await until_dead(worker)


async def test_a_worker_that_is_kept_from_computing_has_not_run_away(
    pool: ProcessPool, tmp_path: Path
) -> None:
    """Stopped by somebody, as a starved one is by the scheduler: no rollout pays for it."""
    run = asyncio.create_task(ends(runner(Waits(tmp_path), pool, timeout_s=0.3).run(rollouts("a"))))
    pid = await until(tmp_path / "begun-0")
    os.kill(pid, signal.SIGSTOP)
    (result,) = await run
    grade = result.grades["act"]
    assert isinstance(grade, Failed)
    assert (grade.error, grade.cause) == ("WorkerTimeout", "infrastructure")
    assert result.reward is None
    await until_dead(pid)


async def test_half_of_its_time_on_the_cpu_is_no_runaway(pool: ProcessPool) -> None:
    """Where the rest went is not known: a wait, or other processes on the core."""
    assert outcome(await ends(runner(Echo(), pool).run(rollouts("a")))) == [0.0]
    results = await ends(runner(Slow(cpu_s=0.3), pool, timeout_s=0.5).run(rollouts(*"abc")))
    assert outcome(results) == [0.0, "infrastructure", 2.0]


async def test_all_of_its_time_on_the_cpu_is_one(pool: ProcessPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_crew, "_STARVED", 1000)  # however little of the CPU this test gets
    results = await ends(runner(Slow(cpu_s=3600.0), pool, timeout_s=0.3).run(rollouts(*"abc")))
    assert outcome(results) == [0.0, "rollout", 2.0]
    assert results[1].grades["act"].error == "WorkerRanAway"  # type: ignore[union-attr]


# ---- what travels between


async def test_a_rollout_with_objects_of_a_script_is_sent_by_value(
    pool: ProcessPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker cannot import a script's classes."""
    made = type("ScoreOfTheScript", (float,), {"__module__": "__main__"})
    monkeypatch.setattr(sys.modules["__main__"], "ScoreOfTheScript", made, raising=False)
    given = [Rollout(response="", extra={"score": score}) for score in (made(1.5), 2.5)]
    assert outcome(await ends(runner(Reads(), pool).run(given))) == [1.5, 2.5]


async def test_a_large_rollout_is_sent_as_it_is_now(pool: ProcessPool) -> None:
    rollout = Rollout(response="a" * 2_000_000, extra={"score": 1.0})
    read = runner(Reads(), pool)
    assert outcome(await ends(read.run([rollout]))) == [1.0]
    rollout.extra["score"] = 2.0  # type: ignore[index]
    assert outcome(await ends(read.run([rollout]))) == [2.0]


@pytest.mark.parametrize(
    "how", ["print", "write", "close", "no more input", "unsendable", "unreadable", "large"]
)
async def test_what_a_grader_does_to_its_pipes_shifts_no_grade(how: str, pool: ProcessPool) -> None:
    """Output is not mistaken for replies; a reply that cannot be sent or read costs its own rollout."""
    results = await ends(runner(Talks(), pool, timeout_s=5).run(rollouts("a", how, "b", "c")))
    own = outcome(results)[1]
    assert own in (1.0, "infrastructure")
    assert own == "infrastructure" or how not in ("unsendable", "unreadable", "large")
    assert [outcome(results)[i] for i in (0, 2, 3)] == [0.0, 2.0, 3.0]
    assert outcome(await ends(runner(Echo(), pool).run(rollouts("a", "b")))) == [0.0, 1.0]


@pytest.mark.parametrize("fault", ["interrupt", "exit", "panic", "unprintable error", "stop"])
async def test_whatever_a_grader_raises_in_a_worker_costs_its_own_grade(
    fault: str, pool: ProcessPool
) -> None:
    act = runner(hostile(fault, PLACES[2]), pool)
    batch = [Rollout(response="", group=0, id=str(i)) for i in (4, 5, 6)]
    assert outcome(await ends(act.run(batch))) == [0.0, "infrastructure", 0.5]


# ---- a long-lived process


async def test_a_process_with_two_thousand_open_files_has_a_pool_too(pool: ProcessPool) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2300:
        pytest.skip(f"this process may open {hard} files only")
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    opened: list[int] = []
    try:
        opened.append(os.open(os.devnull, os.O_RDONLY))
        opened += [os.dup(opened[0]) for _ in range(2000)]
        results = await ends(runner(Echo(), pool).run(rollouts(*"abcd")))
        results += await ends(runner(hostile("rollout", "process"), pool).run(rollouts("a")))
    finally:
        for number in opened:
            os.close(number)
        pool.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert [r.reward for r in results] == [0.0, 1.0, 2.0, 3.0, 0.0]


async def test_graders_of_runners_that_are_gone_are_released(pool: ProcessPool) -> None:
    """A notebook or a sweep makes runner after runner on the process's one pool."""
    held: list[weakref.ref[Holds]] = []
    in_worker = 0.0
    for _ in range(120):
        grader = Holds()
        held.append(weakref.ref(grader))
        (result,) = await ends(runner(grader, pool).run(rollouts("a")))
        in_worker = (result.reward or 0.0) * 1000
        del grader, result
    gc.collect()
    assert 1 <= in_worker <= 40
    assert sum(ref() is not None for ref in held) <= 40


async def test_a_pool_that_was_closed_starts_again(pool: ProcessPool) -> None:
    before = children()
    echo = runner(Echo(), pool)
    for _ in range(2):
        assert outcome(await ends(echo.run(rollouts(*"ab")))) == [0.0, 1.0]
        assert len(children() - before) == 1
        pool.close()
        assert children() - before == set()


async def test_a_run_whose_pool_is_closed_ends(pool: ProcessPool, tmp_path: Path) -> None:
    """Whatever its grades are then; and the pool serves the next run."""
    run = asyncio.create_task(ends(runner(Waits(tmp_path), pool).run(rollouts(*"abcd"))))
    await until(tmp_path / "begun-0")
    closing = asyncio.create_task(asyncio.to_thread(pool.close))
    await asyncio.sleep(0.05)
    (tmp_path / "release").touch()
    await closing
    for i, found in enumerate(outcome(await run)):
        assert found in (float(i), "infrastructure")
    assert outcome(await ends(runner(Echo(), pool).run(rollouts(*"ab")))) == [0.0, 1.0]


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells who our children are")
async def test_cancelling_runs_leaves_no_worker_busy(pool: ProcessPool, tmp_path: Path) -> None:
    """What a cancelled run computes is computed for nobody: its worker is ended."""
    for attempt in range(3):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        run = asyncio.create_task(runner(Waits(folder), pool).run(rollouts(*"ab")))
        pid = await until(folder / "begun-0")
        run.cancel()
        await asyncio.wait([run], timeout=20)
        assert run.cancelled()
        await until_dead(pid)
    assert outcome(await ends(runner(Echo(), pool).run(rollouts(*"ab")))) == [0.0, 1.0]


# ---- what a pool keeps


def test_a_pool_is_sent_to_other_processes_as_its_settings() -> None:
    again = pickle.loads(pickle.dumps(ProcessPool(3, memory_mb=99)))
    assert (again.workers, again.memory_mb, again.started) == (3, 99, 0)
    assert ProcessPool().workers >= 1
    with pytest.raises(ConfigError, match="at least 1 worker, not 0"):
        ProcessPool(0)


async def test_starting_a_runner_loads_each_grader_once_in_each_worker(tmp_path: Path) -> None:
    pool = ProcessPool(2, memory_mb=1024)
    graders = {name: CountedWarm(tmp_path, name) for name in "abc"}
    several = GradingRunner(graders, pool=pool)
    try:
        await ends(several.start())
        loads = sorted(path.name.split("-")[0] for path in tmp_path.iterdir())
        assert loads == [name for name in "abc" for _ in range(2)]
        assert pool.started == 2
        results = await ends(several.run(rollouts(*"abcdef")))
        assert [r.score("b") for r in results] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
        assert len(list(tmp_path.iterdir())) == 6
    finally:
        pool.close()


async def test_the_graders_that_are_used_stay_loaded(pool: ProcessPool, tmp_path: Path) -> None:
    """A worker holds some graders; the one that was used least lately makes place for another."""
    used = runner(Counted(tmp_path, "used"), pool)
    first = runner(Counted(tmp_path, "first"), pool)
    await ends(first.run(rollouts("a")))
    for i in range(30):
        await ends(used.run(rollouts("a")))
        await ends(runner(Counted(tmp_path, f"other{i}"), pool).run(rollouts("a")))
    await ends(first.run(rollouts("a")))
    loads = Counter(path.name.split("-")[0] for path in tmp_path.iterdir())
    assert (loads["used"], loads["first"], len(loads)) == (1, 2, 32)
    assert pool.started == 1


async def test_a_worker_that_holds_the_grader_is_asked_first(tmp_path: Path) -> None:
    pool = ProcessPool(2, memory_mb=1024)
    try:
        both = asyncio.create_task(runner(Waits(tmp_path), pool).run(rollouts("a", "b")))
        await until(tmp_path / "begun-0")
        await until(tmp_path / "begun-1")
        (tmp_path / "release").touch()
        await both
        (tmp_path / "loads").mkdir()
        for name in ("x", "y", "x", "y", "x", "y"):
            await ends(runner(Counted(tmp_path / "loads", name), pool).run(rollouts("a")))
        assert pool.started == 2
        assert len(list((tmp_path / "loads").iterdir())) == 2
    finally:
        pool.close()


async def test_a_grader_that_cannot_be_loaded_is_not_tried_for_every_rollout(
    pool: ProcessPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, ahead = time.monotonic, 0.0
    monkeypatch.setattr(time, "monotonic", lambda: real() + ahead)
    act = runner(Counted(tmp_path, "fails"), pool)
    assert outcome(await ends(act.run(rollouts(*"abcde")))) == ["infrastructure"] * 5
    assert len(list(tmp_path.iterdir())) == 1
    ahead = 1e6
    assert outcome(await ends(act.run(rollouts(*"abc")))) == ["infrastructure"] * 3
    assert len(list(tmp_path.iterdir())) == 2


async def test_an_error_of_a_worker_says_whether_to_try_again(pool: ProcessPool, tmp_path: Path) -> None:
    act = runner(Busy(tmp_path), pool, retry=Retry(attempts=2, wait_initial_s=0, wait_max_s=0))
    results = await ends(act.run(rollouts("busy", "broken")))
    assert outcome(results) == [0.0, "infrastructure"]
    assert results[1].grades["act"] == Failed("ValueError", "broken")


async def test_a_worker_that_closes_its_pipes_is_not_the_rollouts(pool: ProcessPool) -> None:
    """It lives, and nobody hears of it: no crash that could be blamed on a rollout, though its grader gets by otherwise."""
    assert outcome(await ends(runner(Talks(), pool).run(rollouts("a")))) == [0.0]
    results = await ends(runner(Talks(), pool).run(rollouts("a", "mute", "b")))
    assert outcome(results) == [0.0, "infrastructure", 2.0]


async def test_workers_give_way_to_the_event_loop_that_feeds_them(pool: ProcessPool) -> None:
    results = await ends(runner(Talks(), pool).run(rollouts("nice")))
    assert outcome(results) == [min(19, os.nice(0) + 10)]
