"""Calls to a loop in another thread: results, errors, cancellation, contexts, loops that close."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from contextvars import ContextVar

import pytest

from judgekit import ConfigError
from judgekit.execution.crossing import Crossing

NAME: ContextVar[str] = ContextVar("NAME", default="")


@pytest.fixture
def home() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


async def test_each_call_has_its_own_result_error_and_context(home: asyncio.AbstractEventLoop) -> None:
    crossing = Crossing(home)

    async def work(number: int) -> tuple[int, str, bool]:
        await asyncio.sleep(0.001 * (number % 3))
        if number % 10 == 7:
            raise ValueError(f"number {number}")
        return number, NAME.get(), asyncio.get_running_loop() is home

    async def call(number: int) -> object:
        NAME.set(f"caller {number}")
        return await crossing.run(work(number))

    found = await asyncio.gather(*map(call, range(500)), return_exceptions=True)
    for number, one in enumerate(found):
        if number % 10 == 7:
            assert isinstance(one, ValueError)
            assert str(one) == f"number {number}"
        else:
            assert one == (number, f"caller {number}", True)


async def test_threads_are_woken_for_many_calls_at_once(
    home: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    crossing, woken = Crossing(home), 0
    real = home.call_soon_threadsafe

    def counted(*given: object, **more: object) -> object:
        nonlocal woken
        woken += 1
        return real(*given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(home, "call_soon_threadsafe", counted)
    gate = threading.Event()
    real(gate.wait)  # home is busy while the calls arrive

    async def work() -> int:
        return 1

    calls = [asyncio.create_task(crossing.run(work())) for _ in range(200)]
    await asyncio.sleep(0)
    gate.set()
    assert sum(await asyncio.gather(*calls)) == 200
    assert woken == 7  # for 32 at a time


async def test_cancelling_the_caller_cancels_the_call_begun_or_not(home: asyncio.AbstractEventLoop) -> None:
    crossing = Crossing(home)
    began, ended = threading.Event(), threading.Event()
    runs: list[str] = []

    async def long() -> None:
        runs.append("long")
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    async def late() -> None:
        runs.append("late")

    caller = asyncio.create_task(crossing.run(long()))
    await asyncio.to_thread(began.wait)
    gate = threading.Event()
    home.call_soon_threadsafe(gate.wait)
    not_begun = asyncio.create_task(crossing.run(late()))
    await asyncio.sleep(0)
    for task in (caller, not_begun):
        task.cancel()
    await asyncio.gather(caller, not_begun, return_exceptions=True)
    gate.set()
    assert await asyncio.to_thread(ended.wait, 20)
    assert runs == ["long"]


async def test_a_call_that_is_cancelled_at_home_is_cancelled_here(home: asyncio.AbstractEventLoop) -> None:
    async def cancels() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    with pytest.raises(asyncio.CancelledError):
        await Crossing(home).run(cancels())


def test_callers_come_from_many_loops_one_after_another(home: asyncio.AbstractEventLoop) -> None:
    crossing = Crossing(home)

    async def work(number: int) -> int:
        await asyncio.sleep(0)
        return number

    async def many(start: int) -> list[int]:
        return list(await asyncio.gather(*(crossing.run(work(start + i)) for i in range(50))))

    for start in (0, 50, 100):
        assert asyncio.run(many(start)) == list(range(start, start + 50))

    async def leaves() -> None:  # its loop is closed before the answer comes
        asyncio.get_running_loop().create_task(crossing.run(asyncio.sleep(0.05, None)))
        await asyncio.sleep(0)

    asyncio.run(leaves())
    assert asyncio.run(many(7)) == list(range(7, 57))


async def test_a_home_that_is_closed_is_an_error_for_everybody() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    crossing = Crossing(loop)
    calls = [asyncio.create_task(crossing.run(asyncio.sleep(0))) for _ in range(3)]
    await asyncio.sleep(0)
    calls[1].cancel()
    found = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(one) for one in found] == [RuntimeError, asyncio.CancelledError, RuntimeError]
    assert str(found[0]) == "Event loop is closed"


def test_what_a_loop_asked_in_its_last_turn_is_dropped_once_another_calls(
    home: asyncio.AbstractEventLoop, recwarn: pytest.WarningsRecorder
) -> None:
    crossing = Crossing(home)
    loop = asyncio.new_event_loop()
    asked = asyncio.sleep(0)
    call = crossing.run(asked)
    loop.call_soon(lambda: (call.send(None), loop.stop()))
    loop.run_forever()
    loop.close()
    call.close()
    assert asyncio.run(crossing.run(asyncio.sleep(0, 7))) == 7
    assert asked.cr_frame is None
    assert not recwarn.list


def test_an_answer_for_a_loop_that_was_closed_disturbs_nobody(
    home: asyncio.AbstractEventLoop, caplog: pytest.LogCaptureFixture
) -> None:
    crossing, gate, ended = Crossing(home), threading.Event(), threading.Event()

    async def work() -> None:
        await asyncio.to_thread(gate.wait)

    async def leaves() -> None:
        asyncio.get_running_loop().create_task(crossing.run(work()))
        await asyncio.sleep(0)

    home.call_soon_threadsafe(home.set_exception_handler, lambda loop, context: errors.append(context))
    errors: list[object] = []
    loop = asyncio.new_event_loop()
    loop.run_until_complete(leaves())
    (waiting,) = asyncio.all_tasks(loop)
    waiting._log_destroy_pending = False  # type: ignore[attr-defined]  # it never ends, which is no news to other tests
    loop.close()
    gate.set()
    home.call_soon_threadsafe(lambda: asyncio.ensure_future(_all_ended(ended), loop=home))
    assert ended.wait(20)
    assert errors == []
    assert not caplog.records


async def _all_ended(ended: threading.Event) -> None:
    """Wait for everything else on this loop, and for what is due after it."""
    mine = asyncio.current_task()
    if others := [task for task in asyncio.all_tasks() if task is not mine]:
        await asyncio.wait(others)
    await asyncio.sleep(0)
    ended.set()


@pytest.mark.parametrize("fails", [True, False])
async def test_an_answer_that_comes_as_its_caller_is_cancelled_is_dropped(
    fails: bool, home: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    crossing = Crossing(home)

    async def work() -> int:
        if fails:
            raise ValueError("late")
        return 1

    errors: list[object] = []
    here = asyncio.get_running_loop()
    here.set_exception_handler(lambda loop, context: errors.append(context))
    delivers = threading.Event()
    real = here.call_soon_threadsafe

    def counted(*given: object, **more: object) -> object:
        delivers.set()
        return real(*given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(here, "call_soon_threadsafe", counted)
    caller = asyncio.create_task(crossing.run(work()))
    other = asyncio.create_task(crossing.run(asyncio.sleep(0, 7)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert delivers.wait(20)  # both answers wait for this loop, which we hold
    caller.cancel()
    await asyncio.wait([caller])
    assert caller.cancelled()
    assert await other == 7
    assert errors == []


def test_a_forked_child_is_told_that_the_loop_is_its_parent_s(home: asyncio.AbstractEventLoop) -> None:
    crossing = Crossing(home)
    child = os.fork()
    if not child:
        code = 1
        try:
            work = asyncio.sleep(0)
            asyncio.run(crossing.run(work))
        except ConfigError as error:
            code = 0 if "answers only there" in str(error) and work.cr_frame is None else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_loop_that_is_over_is_forgotten_once_another_calls(home: asyncio.AbstractEventLoop) -> None:
    crossing = Crossing(home)
    for _ in range(3):
        assert asyncio.run(crossing.run(asyncio.sleep(0, 7))) == 7
        assert len(crossing._callers) == 1


async def test_at_home_nothing_is_crossed() -> None:
    crossing = Crossing(asyncio.get_running_loop())
    assert await crossing.run(asyncio.sleep(0, 3)) == 3
