"""The background loop: synchronous callers get what the coroutine gives, and an interrupt cleans up."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from typing import Any

import pytest

from judgekit import ConfigError
from judgekit.execution import background
from judgekit.execution.background import background_loop, close_background_loop, in_background, run_blocking

pytestmark = pytest.mark.timeout(60)


async def give(value: Any) -> Any:
    await asyncio.sleep(0)
    if isinstance(value, BaseException):
        raise value
    return value


def test_one_loop_serves_all_calls_until_it_is_closed() -> None:
    async def where() -> Any:
        return asyncio.get_running_loop(), threading.current_thread().name

    loop, thread = run_blocking(where())
    assert run_blocking(where()) == (loop, thread)
    assert background_loop() is loop
    assert thread == "judgekit-loop"
    close_background_loop()
    assert loop.is_closed()
    assert thread not in {t.name for t in threading.enumerate()}
    assert run_blocking(where())[0] is not loop
    close_background_loop()
    close_background_loop()


CANCELLED = (asyncio.CancelledError, concurrent.futures.CancelledError)


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(3), asyncio.CancelledError(), KeyError("k")])
def test_what_a_coroutine_raises_is_raised_and_the_loop_goes_on(error: BaseException) -> None:
    loop = background_loop()
    with pytest.raises(CANCELLED if isinstance(error, CANCELLED) else type(error)):
        run_blocking(give(error))
    assert run_blocking(give(7)) == 7
    assert background_loop() is loop


def test_a_call_from_the_loop_itself_is_refused() -> None:
    async def nested() -> Any:
        return run_blocking(give(1))

    with pytest.raises(ConfigError, match="await the async form"):
        run_blocking(nested())


def test_an_interrupt_cancels_the_call_and_waits_for_its_clean_up() -> None:
    begun = threading.Event()
    seen: list[str] = []

    async def work() -> None:
        try:
            begun.set()
            await asyncio.sleep(3600)
        finally:
            seen.append("cancelled")
            await asyncio.sleep(0.2)
            seen.append("cleaned up")

    def interrupt() -> None:
        begun.wait()
        time.sleep(0.1)  # until the caller waits
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        run_blocking(work())
    thread.join()
    assert seen == ["cancelled", "cleaned up"]
    assert run_blocking(give(7)) == 7


def test_closing_the_loop_cancels_what_runs_on_it() -> None:
    begun = threading.Event()
    seen: list[str] = []

    async def work() -> None:
        begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            seen.append("cancelled")

    def call() -> None:
        with pytest.raises(CANCELLED):
            run_blocking(work())
        seen.append("raised")

    thread = threading.Thread(target=call)
    thread.start()
    begun.wait()
    close_background_loop()
    thread.join(20)
    assert seen == ["cancelled", "raised"]


async def test_a_call_from_another_loop_is_cancelled_with_its_caller() -> None:
    begun = threading.Event()
    ended = threading.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()

    task = asyncio.create_task(in_background(work))
    await asyncio.to_thread(begun.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(ended.wait, 20)
    assert await in_background(give, 7) == 7
    with pytest.raises(SystemExit):
        await in_background(give, SystemExit(1))


async def test_a_call_on_the_background_loop_itself_is_a_plain_await() -> None:
    async def outer() -> Any:
        return await in_background(give, asyncio.get_running_loop()) is asyncio.get_running_loop()

    assert await in_background(outer)


def test_a_loop_that_cannot_be_made_is_an_error_and_no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system has no descriptor left for it. What was to run is closed, and later calls find a loop."""

    def fail(self: asyncio.Runner) -> None:
        raise OSError("Too many open files")

    close_background_loop()
    with monkeypatch.context() as patch:
        patch.setattr(asyncio.Runner, "get_loop", fail)
        work = give(7)
        with pytest.raises(OSError, match="Too many open files"):
            run_blocking(work)
        assert inspect.getcoroutinestate(work) == inspect.CORO_CLOSED
    assert run_blocking(give(7)) == 7


def test_a_caller_waits_for_longer_than_it_looks_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "_LOOK_S", 0.001)
    assert run_blocking(asyncio.sleep(0.05, 7)) == 7
    with pytest.raises(TimeoutError, match="its own"):
        run_blocking(give(TimeoutError("its own")))


def test_a_call_that_is_refused_leaves_no_coroutine_behind() -> None:
    async def nested() -> tuple[Any, str]:
        work = give(1)
        with pytest.raises(ConfigError):
            run_blocking(work)
        return inspect.getcoroutinestate(work), threading.current_thread().name

    assert run_blocking(nested()) == (inspect.CORO_CLOSED, "judgekit-loop")


FORKED = """
    import asyncio, os, sys
    from judgekit.execution.background import background_loop, run_blocking

    async def pid():
        await asyncio.sleep(0)
        return os.getpid()

    assert run_blocking(pid()) == os.getpid()
    parent = background_loop()
    child = os.fork()
    if child == 0:
        fine = run_blocking(pid()) == os.getpid() and background_loop() is not parent
        os._exit(0 if fine else 1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), run_blocking(pid()) == os.getpid())
"""

HUNG = """
    import threading, time
    from judgekit import GradingRunner, Rollout, grader

    @grader(where="thread", timeout_s=0.05)
    def hangs(response: str) -> float:
        threading.Event().wait()
        return 1.0

    print(GradingRunner([hangs]).run_sync([Rollout(response="")])[0].grades["hangs"].error)
"""


@pytest.mark.parametrize(
    ("script", "says"),
    [(FORKED, "0 True\n"), (HUNG, "GraderTimeout\n")],
    ids=["a forked child has a loop of its own", "a hung thread does not hold the process at its end"],
)
def test_a_process_of_its_own(script: str, says: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=50
    )
    assert (done.stdout, done.returncode) == (says, 0), done.stderr[-500:]
