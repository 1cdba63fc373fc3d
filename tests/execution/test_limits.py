"""Limits, rates, retries and breakers, over loops and threads."""

from __future__ import annotations

import asyncio
import gc
import math
import os
import pickle
import sys
import threading
import time
import weakref
from typing import Any

import pytest

from judgekit import ConfigError, JudgeUnavailable, Retry
from judgekit.execution.heap import freeze_heap
from judgekit.execution.limits import NO_RETRY, Limiter, RetryBudget, check_limit


def test_a_limiter_holds_over_loops_and_threads() -> None:
    limiter = Limiter(3)
    inside = peak = done = 0
    lock = threading.Lock()

    async def use() -> None:
        nonlocal inside, peak, done
        async with limiter:
            with lock:
                inside += 1
                peak = max(peak, inside)
            await asyncio.sleep(0.001)
            with lock:
                inside -= 1
                done += 1

    async def many() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(20):
                group.create_task(use())

    threads = [threading.Thread(target=asyncio.run, args=(many(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (peak, done, limiter.held) == (3, 80, 0)


async def test_a_place_freed_before_a_waiter_is_in_the_queue_is_its_own() -> None:
    """Another thread's release comes between the try that fails and the wait: nobody else would wake it."""

    class Raced(Limiter):
        def try_acquire(self) -> bool:
            taken = super().try_acquire()
            if not taken:
                self.release()
            return taken

    limiter = Raced(1)
    await limiter.acquire()
    waiting = asyncio.create_task(limiter.acquire())
    done, _ = await asyncio.wait([waiting], timeout=10)
    waiting.cancel()
    assert done == {waiting}
    assert limiter.held == 1


def test_threads_that_take_turns_do_not_all_sleep() -> None:
    """They hand one place to each other, and most of them hold it without sleeping."""
    limiter = Limiter(1)
    turns = [0] * 4

    async def take(thread: int) -> None:
        for turn in range(5000):
            async with limiter:
                if turn % 3 == 0:
                    await asyncio.sleep(0)
            turns[thread] += 1

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [
            threading.Thread(target=asyncio.run, args=(take(thread),), daemon=True) for thread in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    finally:
        sys.setswitchinterval(before)
    assert turns == [5000] * 4
    assert limiter.held == 0


async def test_a_cancelled_waiter_passes_its_turn_on() -> None:
    limiter = Limiter(1)
    await limiter.acquire()
    first, second = asyncio.create_task(limiter.acquire()), asyncio.create_task(limiter.acquire())
    await asyncio.sleep(0)
    limiter.release()
    first.cancel()
    await asyncio.wait([first, second])
    assert first.cancelled()
    assert second.done()
    limiter.release()
    assert limiter.held == 0


def test_retry_waits_grow_stay_bounded_and_obey_retry_after() -> None:
    retry = Retry(wait_initial_s=1, wait_max_s=5)
    for attempt, top in ((1, 1), (2, 2), (3, 4), (4, 5), (99, 5)):
        assert top / 2 <= retry.wait_s(attempt, ValueError()) <= top
    assert retry.wait_s(1, JudgeUnavailable("busy", retry_after=30)) == 30
    assert retry.wait_s(1, JudgeUnavailable("busy", retry_after=10**400)) == 1e9
    assert retry.wait_s(1, JudgeUnavailable("busy", retry_after=math.nan)) <= 1


def test_jitter_is_between_half_and_all_of_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    retry = Retry(wait_initial_s=1, wait_max_s=5)
    for drawn, wait in ((0.0, 0.5), (0.5, 0.75), (1.0, 1.0)):
        monkeypatch.setattr("random.random", lambda drawn=drawn: drawn)
        assert retry.wait_s(1, ValueError()) == wait
        assert retry.wait_s(3, ValueError()) == 4 * wait
    assert retry.wait_s(1, JudgeUnavailable("busy", retry_after=0.1)) == 1.0
    assert retry.wait_s(1, JudgeUnavailable("busy", retry_after="soon")) == 1.0  # type: ignore[arg-type]


def test_a_budget_assumes_ten_calls_and_remembers_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two halves of 30 s: what was allowed and what was called in the one before counts still."""
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)

    def allowed(budget: RetryBudget) -> int:
        return sum(budget.allow() for _ in range(100))

    fresh = RetryBudget(0.2)
    assert allowed(fresh) == 2
    assert allowed(RetryBudget(0.0)) == 0
    assert allowed(RetryBudget(1.0)) == 10
    budget = RetryBudget(1.0)
    for _ in range(40):
        budget.call()
    now = 29.9
    assert allowed(budget) == 40
    now = 30.0
    assert allowed(budget) == 0
    for _ in range(15):
        budget.call()
    assert allowed(budget) == 15  # of 55 calls, for which 40 are spent
    now = 60.0
    assert allowed(budget) == 0  # the last half minute: 15 calls and 15 retries
    now = 120.0
    assert allowed(budget) == 10


async def test_who_waits_is_first_and_who_only_tries_does_not_pass_them() -> None:
    limiter = Limiter(1)
    assert limiter.try_acquire()
    order: list[str] = []

    async def take(name: str) -> None:
        await limiter.acquire()
        order.append(name)

    tasks = [asyncio.create_task(take(name)) for name in "ab"]
    await asyncio.sleep(0)
    assert not limiter.try_acquire()
    limiter.release()
    assert not limiter.try_acquire()
    await tasks[0]
    limiter.release()
    await tasks[1]
    limiter.release()
    assert (order, limiter.held) == (["a", "b"], 0)
    async with limiter:
        assert limiter.held == 1
    assert limiter.held == 0


def test_a_place_is_not_lost_to_a_loop_that_was_closed() -> None:
    limiter = Limiter(1)
    assert limiter.try_acquire()
    loop = asyncio.new_event_loop()
    waiting = loop.create_task(limiter.acquire())
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    limiter.release()
    assert limiter.held == 0
    assert limiter.try_acquire()
    waiting._log_destroy_pending = False  # type: ignore[attr-defined]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_place_handed_to_a_loop_that_is_closed_before_it_was_taken_comes_back() -> None:
    limiter = Limiter(1)
    assert limiter.try_acquire()
    loop = asyncio.new_event_loop()
    waiting = loop.create_task(limiter.acquire())
    loop.run_until_complete(asyncio.sleep(0))
    limiter.release()
    loop.close()
    waiting._log_destroy_pending = False  # type: ignore[attr-defined]
    del waiting, loop
    gc.collect()
    assert limiter.held == 0


def run_and_close(*coroutines: Any) -> None:
    """Begin *coroutines* on a loop, and close it under them."""
    loop = asyncio.new_event_loop()
    tasks = [loop.create_task(coroutine) for coroutine in coroutines]
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    for task in tasks:
        task._log_destroy_pending = False  # type: ignore[attr-defined]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_closed_loops_waiter_gives_back_no_place_that_it_never_had() -> None:
    limiter = Limiter(1)
    assert limiter.try_acquire()
    run_and_close(limiter.acquire(), limiter.acquire())
    limiter.release()
    assert limiter.held == 0
    gc.collect()
    assert limiter.held == 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_closed_loops_waiters_do_not_keep_its_holders_places() -> None:
    limiter = Limiter(2)

    async def hold() -> None:
        async with limiter:
            await asyncio.Event().wait()

    run_and_close(*(hold() for _ in range(6)))
    assert limiter.held == 2
    asyncio.run(asyncio.wait_for(limiter.acquire(), 20))
    assert limiter.held == 1


def test_a_loop_that_ended_well_costs_no_garbage_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a trainer's that calls `asyncio.run` at each step: a full collection takes long where vLLM is imported."""
    limiter = Limiter(1)

    async def three() -> None:
        async def use() -> None:
            async with limiter:
                await asyncio.sleep(0)

        await asyncio.gather(use(), use(), use())

    monkeypatch.setattr(gc, "collect", lambda: pytest.fail("collected"))
    for _ in range(3):
        asyncio.run(three())
    assert limiter.held == 0


@pytest.mark.timeout(20)
def test_garbage_that_holds_a_place_may_be_collected_at_any_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even while a place is handed out: what a loop that is gone has left releases its own."""
    limiter = Limiter(2)
    assert limiter.try_acquire()

    async def hold() -> None:
        async with limiter:
            await asyncio.Event().wait()

    async def wait_for_both() -> None:
        loop = asyncio.get_running_loop()
        waiting = [loop.create_task(limiter.acquire()) for _ in range(2)]
        await asyncio.sleep(0)
        wake = loop.call_soon_threadsafe
        monkeypatch.setattr(loop, "call_soon_threadsafe", lambda *call: (gc.collect(), wake(*call)))
        limiter.release()
        await asyncio.wait(waiting)

    gone = asyncio.new_event_loop()
    holding = gone.create_task(hold())
    gone.run_until_complete(asyncio.sleep(0))
    gone.close()
    holding._log_destroy_pending = False  # type: ignore[attr-defined]
    gc.disable()
    try:
        holding.itself = holding  # type: ignore[attr-defined]
        del holding, gone
        assert limiter.held == 2
        asyncio.run(wait_for_both())
    finally:
        gc.enable()
    assert limiter.held == 2


def test_budget_allows_a_share() -> None:
    budget = RetryBudget(0.2)
    for _ in range(100):
        budget.call()
    assert sum(budget.allow() for _ in range(50)) == 20


@pytest.mark.parametrize("thing", [Limiter(2), RetryBudget(0.1), Retry()])
def test_all_of_them_pickle(thing: Any) -> None:
    again = pickle.loads(pickle.dumps(thing))
    assert type(again) is type(thing)
    assert getattr(again, "total", None) == getattr(thing, "total", None)


def test_wrong_numbers_are_said() -> None:
    for build in (
        lambda: Limiter(0),
        lambda: Retry(attempts=0),
        lambda: Retry(budget=-1),
        lambda: Retry(wait_initial_s=-0.1),
        lambda: Retry(wait_initial_s=2, wait_max_s=1),
        lambda: Retry(attempts=2.5),  # type: ignore[arg-type]
        lambda: Retry(attempts=math.nan),  # type: ignore[arg-type]
        lambda: Retry(budget="1"),  # type: ignore[arg-type]
    ):
        with pytest.raises(ConfigError):
            build()
    assert Retry(attempts=1, wait_initial_s=0, wait_max_s=0, budget=0).attempts == 1


def test_a_frozen_heap_has_no_garbage_in_it() -> None:
    class Held:
        pass

    gone: list[bool] = []
    held = Held()
    held.itself = held  # type: ignore[attr-defined]
    weakref.finalize(held, gone.append, True)
    del held
    try:
        freeze_heap()
        assert gone == [True]
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()


def test_a_forked_child_has_a_budget_and_places_of_its_own() -> None:
    """Whatever another thread of the parent holds as it forks."""
    budget, limiter = RetryBudget(0.2), Limiter(1)
    assert [budget.allow() for _ in range(3)] == [True, True, False]
    assert limiter.try_acquire()
    with budget._lock:
        child = os.fork()
        if not child:
            code = 1
            try:
                code = 0 if budget.allow() and limiter.try_acquire() and limiter.held == 1 else 2
            finally:
                os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (budget.allow(), limiter.try_acquire()) == (False, False)


@pytest.mark.parametrize("limit", ["auto", 1, 64])
def test_a_limit_is_auto_or_a_whole_number(limit: Any) -> None:
    check_limit(limit)


@pytest.mark.parametrize("limit", [0, -1, 1.0, True, "8", "", None])
def test_what_is_no_limit_is_said_with_its_name(limit: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        check_limit(limit)
    assert str(caught.value) == f"max_concurrency is auto or a whole number from 1, not {limit!r}"
    with pytest.raises(ConfigError, match="^calls is auto or"):
        check_limit(limit, "calls")


def test_what_is_wrong_with_a_number_is_said() -> None:
    def said(build: Any) -> str:
        with pytest.raises(ConfigError) as caught:
            build()
        return str(caught.value)

    assert said(lambda: Limiter(0)) == "a limit is at least 1, not 0"
    for attempts in (0, True, 2.0, "3"):
        assert said(lambda attempts=attempts: Retry(attempts=attempts)) == (
            f"retry: attempts is a whole number from 1, not {attempts!r}"
        )
    for name in ("wait_initial_s", "wait_max_s", "budget"):
        for value in (-0.1, math.inf, math.nan, False, "1", None):
            assert said(lambda name=name, value=value: Retry(**{name: value})) == (
                f"retry: {name} is a number of at least 0, not {value!r}"
            )
    assert said(lambda: Retry(wait_initial_s=2.5, wait_max_s=2)) == (
        "retry: wait_initial_s must be no more than wait_max_s"
    )
    assert Retry(wait_initial_s=2, wait_max_s=2).wait_max_s == 2


def test_what_is_not_given_is_three_attempts_from_half_a_second() -> None:
    assert Retry() == Retry(attempts=3, wait_initial_s=0.5, wait_max_s=20.0, budget=0.2)
    assert Retry(attempts=1, wait_initial_s=0.5, wait_max_s=20.0, budget=0.2) == NO_RETRY


def test_waits_stop_to_double_after_the_thirty_first_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.random", lambda: 1.0)
    retry = Retry(wait_initial_s=1, wait_max_s=1e12)
    assert [retry.wait_s(attempt, ValueError()) for attempt in (30, 31, 32)] == [2.0**29, 2.0**30, 2.0**30]


async def test_a_waiter_that_is_cancelled_leaves_the_queue() -> None:
    limiter = Limiter(1)
    assert limiter.try_acquire()
    first, second = (asyncio.create_task(limiter.acquire()) for _ in range(2))
    await asyncio.sleep(0)
    assert len(limiter._waiters) == 2
    first.cancel()
    await asyncio.wait([first])
    assert (len(limiter._waiters), limiter.held) == (1, 1)
    second.cancel()
    await asyncio.wait([second])
    limiter.release()
    assert (len(limiter._waiters), limiter.held) == (0, 0)
    assert limiter.try_acquire()


def test_what_is_sent_elsewhere_keeps_its_numbers() -> None:
    budget = pickle.loads(pickle.dumps(RetryBudget(0.5)))
    assert [budget.allow() for _ in range(6)] == [True] * 5 + [False]
    assert pickle.loads(pickle.dumps(Limiter(7))).total == 7
