"""The limiter and shared calls, under many orders in which tasks can go on and be cancelled."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from judgekit.errors import JudgeUnavailable
from judgekit.execution.flight import Flights
from judgekit.execution.limits import Limiter

from ..schedules import ShuffledLoop, under_schedules


async def a_while(rng: random.Random) -> None:
    for _ in range(rng.randrange(4)):
        await asyncio.sleep(0)


async def some_cancelled(rng: random.Random, tasks: list[asyncio.Task[Any]]) -> list[Any]:
    """Cancel a few of them at any moment, and return what became of all."""
    for task in rng.sample(tasks, rng.randrange(len(tasks) // 2)):
        await a_while(rng)
        task.cancel()
    return await asyncio.gather(*tasks, return_exceptions=True)


def test_a_shuffled_loop_takes_tasks_in_many_orders() -> None:
    """It would be worthless if it were asyncio's own."""

    async def order() -> tuple[int, ...]:
        seen: list[int] = []

        async def note(number: int) -> None:
            await asyncio.sleep(0)
            seen.append(number)

        await asyncio.gather(*map(note, range(4)))
        return tuple(seen)

    found = set()
    for seed in range(200):
        with asyncio.Runner(loop_factory=lambda seed=seed: ShuffledLoop(seed)) as runner:  # type: ignore[misc]
            found.add(runner.run(order()))
    assert len(found) == 24


@pytest.mark.parametrize("first", range(0, 600, 200))
def test_a_limiter_loses_no_place_and_never_gives_one_too_many(first: int) -> None:
    async def program(rng: random.Random) -> None:
        places = rng.randint(1, 3)
        limiter = Limiter(places)
        inside = 0

        async def hold() -> None:
            nonlocal inside
            await a_while(rng)
            if rng.random() < 0.3:
                if not limiter.try_acquire():
                    return
            else:
                await limiter.acquire()
            inside += 1
            try:
                assert inside <= places
                await a_while(rng)
            finally:
                inside -= 1
                limiter.release()

        found = await some_cancelled(rng, [asyncio.create_task(hold()) for _ in range(12)])
        assert [e for e in found if e is not None and not isinstance(e, asyncio.CancelledError)] == []
        assert limiter.held == 0
        async with limiter:  # and nobody waits in a queue that nothing moves
            pass

    under_schedules(program, range(first, first + 200))


@pytest.mark.parametrize("first", range(0, 600, 200))
def test_shared_calls_answer_whoever_stays_and_outlive_nobody(first: int) -> None:
    async def program(rng: random.Random) -> None:
        flights = Flights[str](lasting=rng.random() < 0.3)
        at_work: list[tuple[str, asyncio.Task[Any]]] = []

        async def call(key: str) -> str:
            task = asyncio.current_task()
            assert task is not None
            assert [k for k, t in at_work if k == key and not t.cancelling()] == []
            at_work.append((key, task))
            try:
                await a_while(rng)
                drawn = rng.random()
                if drawn < 0.15:
                    raise ValueError(key)
                if drawn < 0.25:
                    raise asyncio.CancelledError
                return key
            finally:
                at_work.remove((key, task))

        async def ask(key: str) -> str:
            await a_while(rng)
            return await flights.join(key, lambda: call(key))

        keys = [rng.choice("abc") for _ in range(12)]
        tasks = [asyncio.create_task(ask(key)) for key in keys]
        for key, found in zip(keys, await some_cancelled(rng, tasks), strict=True):
            expected = (asyncio.CancelledError, JudgeUnavailable)
            assert found == key or isinstance(found, expected) or str(found) == key
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(flights) == 0
        assert at_work == []

    under_schedules(program, range(first, first + 200))
