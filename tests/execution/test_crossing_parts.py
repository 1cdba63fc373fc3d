"""How calls are gathered, begun and delivered, with loops that only note what they are asked."""

from __future__ import annotations

import asyncio
import inspect
from contextvars import copy_context
from typing import Any

import pytest

from judgekit.execution import crossing
from judgekit.execution.crossing import _begin, _Call, _Caller, _deliver


class Noted:
    """A loop that runs nothing."""

    def __init__(self) -> None:
        self.soon: list[Any] = []
        self.closed = False

    def call_soon(self, *call: Any) -> None:
        self.soon.append(call)

    def call_soon_threadsafe(self, *call: Any) -> None:
        if self.closed:
            raise RuntimeError("Event loop is closed")
        self.soon.append(call)


class Pair:
    """A caller between two such loops."""

    def __init__(self) -> None:
        self.here, self.home = Noted(), Noted()
        self.caller = _Caller(self.here, self.home)  # type: ignore[arg-type]
        self.yields = 0

    def call(self, value: int = 7) -> _Call:
        return _Call(give(value), asyncio.get_running_loop().create_future(), copy_context(), self.caller)


async def give(value: int) -> int:
    return value


def closed(*calls: _Call) -> bool:
    return all(inspect.getcoroutinestate(call.coroutine) == inspect.CORO_CLOSED for call in calls)


@pytest.fixture
async def pair(monkeypatch: pytest.MonkeyPatch) -> Pair:
    made = Pair()

    def give_way() -> None:
        made.yields += 1

    monkeypatch.setattr(crossing, "give_way", give_way)
    return made


async def test_calls_of_a_turn_go_home_together_and_many_at_thirty_two(pair: Pair) -> None:
    calls = [pair.call() for _ in range(34)]
    for call in calls[:31]:
        pair.caller.ask(call)
    assert (pair.here.soon, pair.home.soon) == ([(pair.caller._send,)], [])
    pair.caller.ask(calls[31])
    assert pair.home.soon == [(_begin, calls[:32], pair.home)]
    assert pair.yields == 1
    pair.caller.ask(calls[32])
    pair.caller.ask(calls[33])
    assert len(pair.here.soon) == 2
    pair.caller._send()
    assert pair.home.soon[1:] == [(_begin, calls[32:], pair.home)]
    pair.caller._send()  # there is nothing left to send
    assert (len(pair.home.soon), pair.yields) == (2, 2)
    for call in calls:
        call.coroutine.close()


async def test_a_closed_home_is_told_to_each_who_still_waits(pair: Pair) -> None:
    pair.home.closed = True
    first, gone, last = (pair.call() for _ in range(3))
    gone.answer.cancel()
    for call in (first, gone, last):
        pair.caller.ask(call)
    pair.caller._send()
    errors = [call.answer.exception() for call in (first, last)]
    assert [(type(error), str(error)) for error in errors] == [(RuntimeError, "Event loop is closed")] * 2
    assert errors[0] is not errors[1]
    assert closed(first, gone, last)


async def test_what_was_asked_and_not_sent_is_dropped(pair: Pair) -> None:
    calls = pair.call(), pair.call()
    for call in calls:
        pair.caller.ask(call)
    pair.caller.abandon()
    assert closed(*calls)


async def test_what_ends_in_a_turn_comes_back_together(pair: Pair) -> None:
    calls = [pair.call() for _ in range(3)]
    for call in calls[:2]:
        pair.caller.end(call, None)
    assert (pair.home.soon, pair.here.soon) == ([(pair.caller._return,)], [])
    pair.caller._return()
    assert pair.here.soon == [(_deliver, calls[:2])]
    pair.here.closed = True
    pair.caller.end(calls[2], None)
    assert len(pair.home.soon) == 2
    pair.caller._return()  # nobody waits any more
    assert pair.caller._ended == []
    for call in calls:
        call.coroutine.close()


async def test_a_call_whose_caller_has_gone_is_not_begun(pair: Pair) -> None:
    gone, there = pair.call(), pair.call()
    gone.answer.cancel()
    gone.cancel()  # before there is a task
    _begin([gone, there], asyncio.get_running_loop())
    assert closed(gone)
    assert gone.task is None
    assert there.task is not None
    assert await there.task == 7
    await asyncio.sleep(0)
    assert pair.caller._ended == [there]


async def test_each_answer_is_delivered_to_whoever_still_waits(pair: Pair) -> None:
    async def fail() -> int:
        raise ValueError("mine")

    loop = asyncio.get_running_loop()
    value, error, cancelled, gone, gone_too, last = (pair.call(number) for number in range(6))
    for call in (error, gone_too):
        call.coroutine.close()
        call.coroutine = fail()
    calls = [value, error, cancelled, gone, gone_too, last]
    _begin(calls, loop)
    cancelled.cancel()
    await asyncio.wait([call.task for call in calls if call.task is not None])
    gone.answer.cancel()
    gone_too.answer.cancel()
    _deliver(calls)
    assert (value.answer.result(), last.answer.result()) == (0, 5)
    assert str(error.answer.exception()) == "mine"
    assert cancelled.answer.cancelled()
    assert gone.answer.cancelled()
