"""A call in flight is nobody's who waits for it."""

from __future__ import annotations

import asyncio
import gc
import os
from contextvars import ContextVar

import pytest

from judgekit.errors import JudgeUnavailable
from judgekit.execution.flight import Flights
from judgekit.execution.stopwatch import STOPWATCH, Stopwatch, off_the_clock


class Calls:
    """Counts its calls, which return once *gate* is set."""

    def __init__(self) -> None:
        self.made = self.cancelled = 0
        self.gate = asyncio.Event()
        self.error: BaseException | None = None

    async def __call__(self) -> int:
        self.made += 1
        number = self.made
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            await asyncio.sleep(0)
            raise
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        return number


async def joined(flights: Flights[int], calls: Calls, count: int) -> list[asyncio.Task[int]]:
    tasks = [asyncio.create_task(flights.join("key", calls)) for _ in range(count)]
    while not calls.made:
        await asyncio.sleep(0)
    return tasks


@pytest.mark.parametrize("leaves", range(4))
async def test_whoever_leaves_costs_nobody_else_anything(leaves: int) -> None:
    flights, calls = Flights[int](), Calls()
    tasks = await joined(flights, calls, 4)
    tasks[leaves].cancel()
    await asyncio.wait([tasks[leaves]])
    calls.gate.set()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert [each for each in found if each == 1] == [1, 1, 1]
    assert (calls.made, calls.cancelled, len(flights)) == (1, 0, 0)


async def test_a_leader_that_times_out_leaves_the_call_to_its_followers() -> None:
    flights, calls = Flights[int](), Calls()

    async def in_time() -> int:
        async with asyncio.timeout(0):
            return await flights.join("key", calls)

    leader = asyncio.create_task(in_time())
    await asyncio.sleep(0)
    follower = asyncio.create_task(flights.join("key", calls))
    with pytest.raises(TimeoutError):
        await leader
    calls.gate.set()
    assert await follower == 1


async def test_the_last_to_leave_waits_until_the_call_has_ended() -> None:
    flights, calls = Flights[int](), Calls()
    tasks = await joined(flights, calls, 3)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert (calls.cancelled, len(flights)) == (1, 0)


async def test_a_call_that_is_being_cancelled_is_not_joined() -> None:
    flights, calls = Flights[int](), Calls()
    (task,) = await joined(flights, calls, 1)
    task.cancel()
    await asyncio.sleep(0)
    again = asyncio.create_task(flights.join("key", calls))
    await asyncio.wait([task])
    calls.gate.set()
    assert await again == 2


async def test_a_lasting_call_goes_on_when_all_have_left() -> None:
    flights, calls = Flights[int](lasting=True), Calls()
    for task in (tasks := await joined(flights, calls, 2)):
        task.cancel()
    await asyncio.wait(tasks)
    later = asyncio.create_task(flights.join("key", calls))
    await asyncio.sleep(0)
    calls.gate.set()
    assert (await later, calls.made) == (1, 1)


async def test_an_error_is_each_ones_own_and_never_lost(caplog: pytest.LogCaptureFixture) -> None:
    flights, calls = Flights[int](lasting=True), Calls()
    calls.error = JudgeUnavailable("down")
    tasks = await joined(flights, calls, 3)
    calls.gate.set()
    errors = await asyncio.gather(*tasks, return_exceptions=True)
    assert [repr(error) for error in errors] == [repr(JudgeUnavailable("down"))] * 3
    assert len({id(error) for error in errors}) == 3
    calls.error = JudgeUnavailable("down")
    calls.gate.clear()
    calls.made = 0
    (task,) = await joined(flights, calls, 1)
    task.cancel()
    await asyncio.wait([task])
    calls.gate.set()
    while len(flights):
        await asyncio.sleep(0)
    gc.collect()
    assert not caplog.records  # "exception was never retrieved"


async def test_two_callers_have_an_error_each_and_one_alone_has_the_call_s_own() -> None:
    calls = Calls()
    calls.error = own = ValueError("no")
    calls.gate.set()
    found = await asyncio.gather(*await joined(Flights[int](), calls, 2), return_exceptions=True)
    assert [type(error) for error in found] == [ValueError, ValueError]
    assert own not in found
    assert found[0] is not found[1]
    calls.error = own
    assert await asyncio.gather(*await joined(Flights[int](), calls, 1), return_exceptions=True) == [own]


async def test_an_error_that_cannot_be_copied_is_shared() -> None:
    class Single(Exception):
        def __copy__(self) -> Single:
            raise TypeError("there is one")

    flights, calls = Flights[int](), Calls()
    calls.error = Single()
    tasks = await joined(flights, calls, 2)
    calls.gate.set()
    first, second = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(first, Single)
    assert first is second


async def test_a_call_that_cancels_itself_is_made_again_by_the_others() -> None:
    flights, calls = Flights[int](), Calls()
    calls.error = asyncio.CancelledError()
    tasks = await joined(flights, calls, 3)
    calls.gate.set()
    first, *others = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(first, JudgeUnavailable)
    assert others == [2, 2]


async def test_who_waits_for_calls_that_are_given_up_is_told() -> None:
    flights, calls = Flights[int](lasting=True), Calls()
    tasks = await joined(flights, calls, 3)
    flights.cancel()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(error) for error in found] == [JudgeUnavailable] * 3
    assert calls.made == 1


async def test_time_for_which_a_call_is_held_counts_for_nobody() -> None:
    flights: Flights[None] = Flights()
    on, off = asyncio.Event(), asyncio.Event()

    async def held() -> None:
        with off_the_clock():
            on.set()
            await off.wait()

    async def evaluation(stopwatch: Stopwatch) -> None:
        STOPWATCH.set(stopwatch)
        await flights.join("key", held)

    watches = [Stopwatch() for _ in range(3)]
    tasks = [asyncio.create_task(evaluation(watch)) for watch in watches]
    await on.wait()
    assert [watch.holding for watch in watches] == [True] * 3
    tasks[0].cancel()
    await asyncio.wait(tasks[:1])
    assert [watch.holding for watch in watches] == [False, True, True]
    off.set()
    await asyncio.gather(*tasks[1:])
    assert [watch.holding for watch in watches] == [False] * 3


NAME: ContextVar[str] = ContextVar("name", default="")


async def test_a_call_has_its_first_callers_context_unless_it_lasts() -> None:
    async def name() -> str:
        return NAME.get()

    NAME.set("caller")
    assert await Flights[str]().join("key", name) == "caller"
    assert await Flights[str](lasting=True).join("key", name) == ""


def test_a_call_that_its_loop_left_behind_is_made_again() -> None:
    async def two() -> int:
        return 2

    async def main() -> int:
        calls = Calls()
        leaving = asyncio.ensure_future(flights.join("key", calls))
        await asyncio.sleep(0)
        leaving.cancel()
        return calls.made

    flights = Flights[int](lasting=True)
    asyncio.run(main())
    assert asyncio.run(flights.join("key", two)) == 2


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
async def test_a_forked_child_has_no_calls_in_flight() -> None:
    flights, calls = Flights[int](), Calls()
    tasks = await joined(flights, calls, 1)
    child = os.fork()
    if not child:
        os._exit(len(flights))
    _, status = await asyncio.to_thread(os.waitpid, child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert len(flights) == 1
    calls.gate.set()
    assert await tasks[0] == 1
