"""A time limit that costs nothing where no time passes."""

from __future__ import annotations

import asyncio
import contextlib

import anyio
import pytest

from judgekit.execution.within import OutOfTime, within


async def soon(value: int) -> int:
    await asyncio.sleep(0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(asyncio.sleep, 0.01)
    return value


async def at_once(value: int) -> int:
    return value


async def fails(wait: bool) -> int:
    if wait:
        await asyncio.sleep(0)
    raise ValueError("no")


async def late(log: list[str]) -> int:
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        log.append("cancelled")
        raise
    finally:
        log.append("over")
    return 1


@pytest.mark.parametrize("seconds", [None, 60.0])
async def test_what_a_call_returns_and_raises_is_passed_on(seconds: float | None) -> None:
    assert await within(seconds, at_once(1)) == 1
    assert await within(seconds, soon(2)) == 2
    future = asyncio.get_running_loop().create_future()
    future.set_result(3)
    assert await within(seconds, future) == 3
    for wait in (False, True):
        with pytest.raises(ValueError, match="no"):
            await within(seconds, fails(wait))


async def test_a_late_call_is_cancelled_and_can_clean_up() -> None:
    log: list[str] = []
    with pytest.raises(OutOfTime):
        await within(0.01, late(log))
    assert log == ["cancelled", "over"]


async def test_a_caller_that_is_cancelled_cancels_the_call() -> None:
    log: list[str] = []
    task = asyncio.create_task(within(60, late(log)))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert log == ["cancelled", "over"]


async def test_a_call_s_own_time_out_is_its_own() -> None:
    async def times_out() -> None:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(60)

    with pytest.raises(TimeoutError):
        await within(60, times_out())


async def test_a_call_may_catch_what_is_thrown_and_go_on() -> None:
    async def goes_on() -> str:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        await asyncio.sleep(0)
        return "went on"

    task = asyncio.create_task(within(60, goes_on()))
    await asyncio.sleep(0.01)
    task.cancel()
    assert await task == "went on"


def test_a_call_whose_loop_ends_is_closed() -> None:
    log: list[str] = []
    coroutine = within(60, late(log))
    loop = asyncio.new_event_loop()

    async def begin() -> None:
        asyncio.create_task(coroutine)  # noqa: RUF006
        await asyncio.sleep(0.01)

    loop.run_until_complete(begin())
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0.01))
    loop.close()
    assert log == ["cancelled", "over"]
