"""Pauses, rates and rests of an engine on a clock of the test's own."""

from __future__ import annotations

import asyncio
import math
from types import SimpleNamespace
from typing import Any

import pytest

from judgekit.errors import JudgeBudgetSpent, JudgeRejected, JudgeTimeout, JudgeUnavailable
from judgekit.judges.layers import pressure
from judgekit.judges.layers.pressure import Breaker, Call, Line, Pause, RateLimit, overloads


class Clock:
    """Goes on where somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    fake = SimpleNamespace(sleep=made.sleep, Lock=asyncio.Lock, current_task=asyncio.current_task)
    monkeypatch.setattr(pressure, "time", made)
    monkeypatch.setattr(pressure, "asyncio", fake)
    monkeypatch.setattr(pressure, "random", SimpleNamespace(random=lambda: 0.5))
    return made


def refused(retry_after: float | None = None) -> JudgeUnavailable:
    error = JudgeUnavailable("busy", retry_after=retry_after)
    error.refused = True
    return error


async def left(gate: Any, outcome: Any, sent: float = math.inf) -> Call:
    call = Call("r")
    call.sent, call.outcome = sent, outcome
    gate.leave(call)
    return call


async def test_a_call_begins_unsent() -> None:
    call = Call("r")
    assert (call.request, call.reserved, call.sent, call.outcome) == ("r", 0.0, math.inf, None)
    assert call.task is asyncio.current_task()


def test_what_says_that_an_endpoint_has_too_many_calls() -> None:
    assert overloads(refused())
    assert overloads(JudgeUnavailable("x", retry_after=0.0))
    assert not overloads(JudgeUnavailable("x"))
    assert not overloads(JudgeTimeout("x"))
    assert not overloads("reply")


async def test_a_pause_is_as_long_as_the_endpoint_asks(clock: Clock) -> None:
    pause = Pause()
    await pause.enter(Call("r"))
    assert clock.slept == []
    await left(pause, refused(30.0), sent=999.0)
    await pause.enter(Call("r"))
    assert clock.slept == [30.0]
    await left(pause, refused(30.0), sent=1030.0)
    await left(pause, refused(5.0), sent=1030.0)  # a shorter one does not end it
    await pause.enter(Call("r"))
    assert clock.slept == [30.0, 30.0]
    await left(pause, JudgeUnavailable("down"), sent=1060.0)
    await pause.enter(Call("r"))
    assert len(clock.slept) == 2


async def test_pauses_that_nobody_asked_for_grow_up_to_eight_seconds(clock: Clock) -> None:
    pause = Pause()
    for _ in range(8):
        await left(pause, refused(), sent=clock.now)
        await pause.enter(Call("r"))
    assert clock.slept == pytest.approx([0.375, 0.75, 1.5, 3.0, 6.0, 6.0, 6.0, 6.0])
    await left(pause, "reply", sent=clock.now)
    await left(pause, refused(), sent=clock.now)
    await pause.enter(Call("r"))
    assert clock.slept[-1] == pytest.approx(0.375)


async def test_a_wave_of_refusals_is_one(clock: Clock) -> None:
    pause = Pause()
    for sent in (999.0, 999.5, 999.9):
        await left(pause, refused(), sent=sent)
    await pause.enter(Call("r"))
    assert clock.slept == [0.375]
    await left(pause, refused(), sent=1000.0)  # sent at the moment at which it began
    await pause.enter(Call("r"))
    assert clock.slept == [0.375, 0.75]


@pytest.mark.parametrize(
    ("limit_s", "asked", "slept"), [(600.0, 600.0, [600.0]), (600.0, 600.1, []), (5.0, 5.1, [])]
)
async def test_a_longer_pause_than_is_borne_is_none(
    clock: Clock, limit_s: float, asked: float, slept: list[float]
) -> None:
    pause = Pause() if limit_s == 600.0 else Pause(limit_s)
    await left(pause, refused(asked), sent=999.0)
    await pause.enter(Call("r"))
    assert clock.slept == slept


async def test_calls_are_evenly_spaced(clock: Clock) -> None:
    rate = RateLimit(120)
    for _ in range(3):
        await rate.enter(Call("r"))
        rate.leave(Call("r"))
    assert clock.slept == pytest.approx([0.5, 0.5])
    clock.now += 10
    await rate.enter(Call("r"))
    assert len(clock.slept) == 2
    assert rate._line.free_at == clock.now + 0.5


async def test_a_line_begins_free(clock: Clock) -> None:
    line = Line()
    assert line.free_at == 0.0
    await line.start(lambda: 3.0)
    assert (line.free_at, clock.slept) == (1003.0, [])


async def failing(breaker: Breaker, count: int, error: Any = None) -> None:
    for _ in range(count):
        await left(breaker, error or JudgeUnavailable("down"))


async def test_a_breaker_opens_after_so_many_failures_in_a_row(clock: Clock) -> None:
    breaker = Breaker()
    await failing(breaker, 7)
    await left(breaker, "reply")
    await failing(breaker, 7)
    assert not breaker.is_open
    await breaker.enter(Call("r"))
    await failing(breaker, 1)
    assert breaker.is_open
    clock.now += 4
    with pytest.raises(
        JudgeUnavailable, match="^the judge failed 8 times in a row and is given a rest$"
    ) as told:
        await breaker.enter(Call("r"))
    assert told.value.retry_after == 6.0


async def test_after_a_rest_one_call_is_let_through(clock: Clock) -> None:
    breaker = Breaker(failures=2, open_s=3.0, who="it")
    await failing(breaker, 2)
    clock.now += 2.95
    with pytest.raises(JudgeUnavailable, match="^it failed 2 times in a row") as told:
        await breaker.enter(Call("r"))
    assert told.value.retry_after == 0.1
    clock.now += 0.05
    probe = Call("r")
    await breaker.enter(probe)
    with pytest.raises(JudgeUnavailable) as told:
        await breaker.enter(Call("r"))
    assert told.value.retry_after == 0.1
    probe.outcome = JudgeUnavailable("still down")
    breaker.leave(probe)
    with pytest.raises(JudgeUnavailable) as told:
        await breaker.enter(Call("r"))
    assert told.value.retry_after == pytest.approx(3.0)
    clock.now += 3
    probe = Call("r")
    await breaker.enter(probe)
    probe.outcome = "reply"
    breaker.leave(probe)
    assert not breaker.is_open
    await failing(breaker, 1)
    assert not breaker.is_open


@pytest.mark.parametrize(
    ("outcome", "opens", "closes"),
    [
        ("reply", False, True),
        (JudgeRejected("no", 400), False, True),
        (JudgeBudgetSpent("spent"), False, False),
        (JudgeUnavailable("down"), True, False),
        (JudgeTimeout("slow"), True, False),
        (refused(), False, False),
        (JudgeUnavailable("busy", retry_after=1.0), False, False),
        (KeyError("x"), False, False),
    ],
)
async def test_what_counts_for_a_breaker(clock: Clock, outcome: Any, opens: bool, closes: bool) -> None:
    breaker = Breaker(failures=1, open_s=5.0)
    await left(breaker, outcome)
    assert breaker.is_open is opens
    breaker._open_until, breaker._row = clock.now + 5, 1
    await left(breaker, outcome)
    assert breaker.is_open is not closes


async def test_a_probe_that_ends_oddly_lets_another_one_through(clock: Clock) -> None:
    breaker = Breaker(failures=1, open_s=1.0)
    await failing(breaker, 1)
    clock.now += 1
    probe = Call("r")
    await breaker.enter(probe)
    probe.outcome = asyncio.CancelledError()
    breaker.leave(probe)
    await breaker.enter(Call("r"))
