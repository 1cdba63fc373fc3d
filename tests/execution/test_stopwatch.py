"""What is off the clock counts once, for all who wait for it."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from judgekit.execution import stopwatch
from judgekit.execution.stopwatch import STOPWATCH, Stopwatch, off_the_clock


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(stopwatch, "time", made)
    return made


def test_holds_that_overlap_count_once(clock: Clock) -> None:
    watch = Stopwatch()
    with watch.held():
        clock.now = 1
        with watch.held():
            clock.now = 3
        assert watch.holding
        clock.now = 4
        assert watch.held_s() == 4
    clock.now = 10
    assert (watch.held_s(), watch.holding) == (4, False)
    with watch.held():
        clock.now = 11
    assert watch.held_s() == 5


@contextmanager
def shared(call: Stopwatch, mine: Stopwatch) -> Iterator[None]:
    call.add_sharer(mine)
    try:
        yield
    finally:
        call.drop_sharer(mine)


def test_who_shares_a_call_is_held_with_it(clock: Clock) -> None:
    """Also who comes while it is held, and only for as long as it shares it."""
    call, first, late = Stopwatch(), Stopwatch(), Stopwatch()
    with shared(call, first):
        clock.now = 1
        with call.held():
            clock.now = 2
            with shared(call, late):
                clock.now = 4
            assert not late.holding
            clock.now = 5
        assert not first.holding
        clock.now = 6
    assert (call.held_s(), first.held_s(), late.held_s()) == (4, 4, 2)


def test_one_evaluation_that_shares_two_calls_is_held_once(clock: Clock) -> None:
    mine, one, two = Stopwatch(), Stopwatch(), Stopwatch()
    with shared(one, mine), shared(two, mine), one.held(), two.held():
        clock.now = 3
    assert mine.held_s() == 3


def test_what_hung_is_excused_once(clock: Clock) -> None:
    call, mine = Stopwatch(), Stopwatch()
    clock.now = 10
    with shared(call, mine):
        call.excuse(4)
        mine.excuse(2)  # another call of the same evaluation
        clock.now = 12
        mine.excuse(3)
    assert (call.held_s(), mine.held_s()) == (6, 8)


async def test_outside_of_a_runner_there_is_no_clock() -> None:
    with off_the_clock():
        await asyncio.sleep(0)

    def inside() -> bool:
        watch = Stopwatch()
        STOPWATCH.set(watch)
        with off_the_clock():
            return watch.holding

    assert contextvars.copy_context().run(inside)
    assert STOPWATCH.get() is None


def test_what_hung_from_the_start_is_excused_from_the_start(clock: Clock) -> None:
    watch = Stopwatch()
    assert (watch.held_s(), watch.holding) == (0, False)
    clock.now = 2
    watch.excuse(0)
    assert watch.held_s() == 2
    watch.excuse(1)  # of a time that was excused already
    assert watch.held_s() == 2


def test_who_is_added_stays_with_a_call_until_it_goes_on(clock: Clock) -> None:
    call, early, late = Stopwatch(), Stopwatch(), Stopwatch()
    call.add_sharer(early)
    with call.held():
        clock.now = 1
        call.add_sharer(late)
        clock.now = 3
        call.hold()
        call.release()
        assert (early.holding, late.holding) == (True, True)
    clock.now = 5
    assert (early.held_s(), late.held_s()) == (3, 2)
    call.excuse(4)
    assert (call.held_s(), early.held_s(), late.held_s()) == (4, 4, 3)
