"""Threads of graders that block: bounded over the whole process, and with their caller's context."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import sys
import threading
import time
import weakref
from collections import deque
from queue import SimpleQueue
from typing import Any

import pytest

from judgekit import Failed, GradingRunner, Rollout, grader
from judgekit.errors import GraderRaised
from judgekit.execution import threads
from judgekit.execution.threads import call_in_thread, in_own_thread

pytestmark = pytest.mark.timeout(60)

CALLER: contextvars.ContextVar[str] = contextvars.ContextVar("caller", default="nobody")


def rollouts(n: int) -> list[Rollout]:
    return [Rollout(response="x" * i, group=i // 4, id=str(i)) for i in range(n)]


def hanging(release: threading.Event) -> Any:
    """A grader whose calls hang until they are released, and are given up long before."""

    @grader(where="thread", timeout_s=0.02)
    def hangs(response: str) -> float:
        release.wait()
        return 1.0

    return hangs


@grader(where="thread")
def length(response: str) -> float:
    return len(response) / 100


def grades_again() -> None:
    """Wait until threads that were released have ended, and others may begin."""
    end = time.monotonic() + 20
    while True:
        found = asyncio.run(GradingRunner({"length": length}, missing_reward="mask").run(rollouts(8)))
        if [r.reward for r in found] == [i / 100 for i in range(8)]:
            return
        assert time.monotonic() < end
        time.sleep(0.01)


def test_threads_that_were_given_up_are_bounded_over_all_runs_and_loops() -> None:
    """No thread can be stopped: past the bound, calls fail at once instead of making more of them."""
    release = threading.Event()
    before = set(threading.enumerate())
    results: list[Any] = []
    try:
        # on a busy machine a call may be given up before its thread has begun: then nothing is left behind
        for _ in range(20):
            runner = GradingRunner({"hangs": hanging(release)}, max_concurrency=64, missing_reward="mask")
            results += asyncio.run(runner.run(rollouts(200)))
            if any(r.grades["hangs"].error != "GraderTimeout" for r in results):
                break
        stuck = set(threading.enumerate()) - before
        assert len(stuck) < 400
        errors = [r.grades["hangs"] for r in results]
        assert all(isinstance(e, Failed) and e.cause == "infrastructure" for e in errors)
        refused = [e for e in errors if e.error != "GraderTimeout"]
        assert refused
        assert all("blocking graders" in e.detail for e in refused)
    finally:
        release.set()
    grades_again()


def test_what_is_given_up_and_then_ends_makes_room_again() -> None:
    for _ in range(3):
        release = threading.Event()
        try:
            asyncio.run(GradingRunner({"hangs": hanging(release)}, max_concurrency=64).run(rollouts(100)))
        finally:
            release.set()
        grades_again()


def test_the_other_graders_of_a_run_are_graded_beside_hung_threads() -> None:
    release = threading.Event()
    try:
        runner = GradingRunner(
            {"hangs": hanging(release), "length": length}, {"hangs": 0.0, "length": 1.0}, max_concurrency=4
        )
        results = asyncio.run(runner.run(rollouts(12)))
    finally:
        release.set()
    assert [r.score("length") for r in results] == [i / 100 for i in range(12)]
    assert {r.grades["hangs"].error for r in results} == {"GraderTimeout"}  # type: ignore[union-attr]


async def test_the_callers_context_reaches_the_thread_and_stays_its_own() -> None:
    seen: list[str] = []

    @grader(where="thread")
    def look(rollout: Rollout) -> float:
        seen.append(CALLER.get())
        CALLER.set("changed in a thread")
        return 1.0

    CALLER.set("here")
    await GradingRunner({"look": look}).run(rollouts(20))
    assert seen == ["here"] * 20
    assert CALLER.get() == "here"


def test_two_callers_do_not_see_each_others_context() -> None:
    seen: dict[str, set[str]] = {"a": set(), "b": set()}

    @grader(where="thread")
    def look(rollout: Rollout) -> float:
        seen[rollout.data_source].add(CALLER.get())
        return 1.0

    runner = GradingRunner({"look": look})

    async def call(who: str) -> None:
        CALLER.set(who)
        await runner.run([Rollout(response="", data_source=who, group=i) for i in range(20)])

    async def both() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(call("a"))
            tasks.create_task(call("b"))

    asyncio.run(both())
    assert seen == {"a": {"a"}, "b": {"b"}}


def test_many_loops_do_not_make_many_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A notebook or a host calls asyncio.run again and again. Threads end when nobody calls any more."""
    from judgekit.execution import threads

    monkeypatch.setattr(threads, "_IDLE_S", 0.5)
    before = threading.active_count()
    for _ in range(20):
        asyncio.run(GradingRunner({"length": length}, max_concurrency=4).run(rollouts(40)))
    assert threading.active_count() <= before + 16
    end = time.monotonic() + 20
    while threading.active_count() > before and time.monotonic() < end:
        time.sleep(0.01)
    assert threading.active_count() <= before


def test_a_loop_that_was_closed_meanwhile_is_no_error() -> None:
    """The thread ends after its loop: nothing is raised where nobody would see it."""
    release = threading.Event()
    raised: list[Any] = []
    hook = threading.excepthook
    threading.excepthook = raised.append
    try:
        asyncio.run(GradingRunner({"hangs": hanging(release)}).run(rollouts(4)))
        release.set()
        grades_again()
    finally:
        release.set()
        threading.excepthook = hook
    gc.collect()
    assert raised == []


def test_a_thread_that_hangs_does_not_hold_the_process() -> None:
    from judgekit.execution import background

    release = threading.Event()
    try:
        asyncio.run(GradingRunner({"hangs": hanging(release)}).run(rollouts(1)))
        threads = [t for t in threading.enumerate() if t.name.startswith("judgekit-worker")]
        assert threads
        assert all(t.daemon for t in threads)
        assert background._background().thread.daemon
    finally:
        release.set()
    grades_again()


async def test_the_bound_itself_is_not_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    from judgekit.execution import threads

    monkeypatch.setattr(threads, "_abandoned", threads.MAX_ABANDONED)
    with pytest.raises(threads.ThreadsExhausted, match="64 threads are held"):
        await threads.call_in_thread(str, 1)
    monkeypatch.setattr(threads, "_abandoned", threads.MAX_ABANDONED - 1)
    assert await threads.call_in_thread(str, 1) == "1"


async def test_a_call_in_its_own_thread_holds_no_process() -> None:
    assert await in_own_thread(lambda: threading.current_thread().daemon)
    with pytest.raises(SystemExit):
        await in_own_thread(sys.exit)


async def test_a_system_without_threads_makes_the_call_here(monkeypatch: pytest.MonkeyPatch) -> None:
    from judgekit.execution import threads

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    monkeypatch.setattr(threads, "_idle", deque())
    assert await in_own_thread(threading.current_thread) is threading.current_thread()


async def test_a_stop_iteration_of_a_blocking_call_is_raised_and_not_lost() -> None:
    """Python raises no StopIteration into a future: its waiter would wait for ever."""
    from judgekit.execution.threads import call_in_thread

    with pytest.raises(RuntimeError, match="StopIteration"):
        await call_in_thread(next, iter(()))
    with pytest.raises(RuntimeError, match="StopIteration"):
        await in_own_thread(next, iter(()))


async def test_a_thread_keeps_nothing_of_the_call_that_it_made() -> None:
    from judgekit.execution.threads import call_in_thread

    class Big:
        def grade(self) -> float:
            return 1.0

    big = Big()
    gone = weakref.ref(big)
    await call_in_thread(big.grade)
    del big
    end = time.monotonic() + 20
    while gone() is not None and time.monotonic() < end:
        await asyncio.sleep(0.01)
    assert gone() is None


async def test_a_thread_without_a_call_ends_and_is_given_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_IDLE_S", 0.01)
    monkeypatch.setattr(threads, "_idle", deque())
    used = [await call_in_thread(threading.current_thread) for _ in range(2)]
    for one in used:
        await asyncio.to_thread(one.join, 20)
        assert not one.is_alive()
    assert not threads._idle
    assert await asyncio.wait_for(call_in_thread(int, "7"), 20) == 7


async def test_the_thread_that_was_used_last_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_idle", deque())
    both = threading.Barrier(2)

    def meet() -> threading.Thread:
        both.wait(20)
        return threading.current_thread()

    pair = await asyncio.gather(call_in_thread(meet), call_in_thread(meet))
    assert len(set(pair)) == len(threads._idle) == 2
    last = threads._idle[-1]
    assert [await call_in_thread(threading.current_thread) for _ in range(3)] == [last] * 3


async def test_a_grader_s_interrupt_is_its_own_error() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt("mine")

    with pytest.raises(GraderRaised) as caught:
        await call_in_thread(interrupt)
    assert caught.value.args == ("KeyboardInterrupt", "mine", False, False)
    with pytest.raises(SystemExit):
        await call_in_thread(sys.exit, 3)


async def test_a_call_that_ended_before_it_was_given_up_is_not_counted() -> None:
    before = threads._abandoned
    call = threads._Call(int, ("7",))
    call.start()
    assert call.outcome.result(20) == (7, None)
    call.give_up()
    assert threads._abandoned == before


async def test_a_refused_call_says_how_many_threads_are_held_and_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threads, "_abandoned", 65)
    with pytest.raises(threads.ThreadsExhausted) as caught:
        await call_in_thread(str, 1)
    assert str(caught.value) == (
        "65 threads are held by blocking graders that ran past their timeout; give their clients a timeout, or write "
        'where="process", which can be killed'
    )


async def test_a_call_in_its_own_thread_has_its_arguments_its_value_and_its_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert await in_own_thread(int, "11", 2) == 3
    with pytest.raises(ValueError, match="invalid literal"):
        await in_own_thread(int, "x")
    monkeypatch.setattr(threads._Call, "start", lambda call: (_ for _ in ()).throw(RuntimeError("no thread")))
    assert await in_own_thread(int, "11", 2) == 3


class Idle:
    """A worker that only stands in the queue."""


class Own(deque[Any]):
    """What a test has put there; a thread that ends an earlier test's call late goes to the others of its kind."""

    idle: deque[Any] = threads._idle

    def append(self, one: Any) -> None:
        if isinstance(one, threading.Thread):
            self.idle.append(one)
        else:
            super().append(one)


@pytest.fixture
def counters(monkeypatch: pytest.MonkeyPatch) -> deque[Any]:
    monkeypatch.setattr(threads, "_abandoned", 0)
    monkeypatch.setattr(threads, "_idle", Own())
    return threads._idle


@pytest.mark.parametrize("error", [None, StopIteration(3), SystemExit(2)])
def test_a_call_that_was_given_up_counts_until_it_ends(
    error: BaseException | None, counters: deque[Any]
) -> None:
    seen: list[Any] = []

    def work(value: int) -> int:
        call.give_up()
        seen.append((threads._abandoned, list(counters)))
        if error is not None:
            raise error
        return value

    call, worker = threads._Call(work, (7,)), Idle()
    call.run(worker)  # type: ignore[arg-type]
    assert seen == [(1, [])]
    assert (threads._abandoned, list(counters)) == (0, [worker])
    assert call.outcome.result(0) == ((7, None) if error is None else (None, error))


class Watched:
    """A lock that notes what *look* sees as this thread takes it and lets it go."""

    def __init__(self, look: Any) -> None:
        self.look = look
        self.seen: list[Any] = []
        self.thread = threading.get_ident()

    def __enter__(self) -> None:
        if threading.get_ident() == self.thread:
            self.seen.append(self.look())

    def __exit__(self, *_: object) -> None:
        self.__enter__()


def test_calls_are_counted_under_the_lock(counters: deque[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    call = threads._Call(int, ("7",))
    lock = Watched(lambda: (call._given_up, threads._abandoned, len(counters), call._function is None))
    monkeypatch.setattr(threads, "_lock", lock)
    call.give_up()
    call.run(Idle())  # type: ignore[arg-type]
    assert lock.seen == [(False, 0, 0, False), (True, 1, 0, False), (True, 1, 0, False), (True, 0, 1, True)]


def test_the_last_idle_thread_is_taken_under_the_lock(
    counters: deque[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Worker:
        def __init__(self) -> None:
            self.calls: Any = SimpleQueue()

    made: list[Worker] = []

    def new() -> Worker:
        made.append(Worker())
        return made[-1]

    monkeypatch.setattr(threads, "_Worker", new)
    first, last = Worker(), Worker()
    counters.extend((first, last))
    lock = Watched(lambda: len(counters))
    monkeypatch.setattr(threads, "_lock", lock)
    calls = [threads._Call(int, ("7",)) for _ in range(3)]
    for call in calls:
        call.start()
    assert lock.seen == [2, 1, 1, 0, 0, 0]
    assert [one.calls.get_nowait() for one in (last, first, made[0])] == calls
    assert len(made) == 1


def test_a_forked_child_has_no_threads(counters: deque[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    before = threads._lock
    monkeypatch.setattr(threads, "_lock", before)
    monkeypatch.setattr(threads, "_abandoned", 3)
    counters.append(Idle())
    threads._forget()
    assert (threads._abandoned, len(counters)) == (0, 0)
    assert threads._lock is not before


async def test_threads_of_calls_are_daemons_with_a_name() -> None:
    used = await call_in_thread(threading.current_thread)
    assert (used.name, used.daemon) == ("judgekit-worker", True)
    assert (threads.MAX_ABANDONED, threads._IDLE_S) == (64, 10.0)
