"""How many calls a judge's engine gets at once."""

from __future__ import annotations

import asyncio
import math
import time
from contextvars import Context
from typing import Any

import anyio

from judgekit.errors import JudgekitError, JudgeTimeout, JudgeUnavailable
from judgekit.execution.limits import Limit, check_limit
from judgekit.execution.stopwatch import off_the_clock
from judgekit.judges.layers.pressure import Call, overloads

_FIRST = 16
"""Calls that are sent at once to an endpoint of which nothing is known yet."""
_MOST, _MOST_TOLD = 256, 1024
"""The most that "auto" comes to where an endpoint tells nothing, and where it tells how many calls wait in its queue."""
_ROUND_S = 0.1
"""Shortest time over which answers are counted, and between two looks at an engine's queue."""
_LOOK_S = 1.0
"""Time between two looks for figures alone, and after a look that changed nothing: a page of metrics costs its server some 10 ms."""
_IDLE_S = 0.5
"""A round in which nobody asked for so long says nothing of the endpoint."""
_CAREFUL_S = 60.0
"""After an overload, the calls in flight grow slowly for so long."""
_QUICK_S = 0.25
"""While the next calls travel, an engine that has answered twice what it runs within so many seconds may have nothing to do."""
_SOON_S = 5.0
"""Answers that come within so many seconds come soon enough: an evaluation's timeout includes them."""
_LATE_S = 10.0
"""A call that is given up after so many seconds was late."""
_PAYS = 1.1
"""More calls at once must bring at least so many times as many answers a second."""
_REST = 8
"""Rounds until more calls at once are tried again, after they did not pay."""


class Places:
    """At most so many calls in flight: a number, or what keeps the engine busy ("auto").

    "auto" begins with few calls, and doubles them with each round of answers while callers wait, up to twice as many as *engine*
    says that it runs at once (`sequences`), four times where it answers all within a moment, or until half of them wait in its
    queue, where it tells its load (`load`). So the next ones are there while an answer travels. Where answers are slow
    already, and where an engine tells nothing, more calls must bring more answers a second.

    An overload halves the calls in flight, once for all calls that were sent before: a refusal that may be tried again and, with
    "auto", other failures that may pass and timeouts. A number that was cut grows back by one with each answer; with "auto", the calls
    grow by one with each round of answers (AIMD, as TCP's congestion window), for a minute.
    """

    def __init__(self, limit: Limit = "auto", engine: Any = None) -> None:
        check_limit(limit)
        self.limit = limit
        self.size = float(_FIRST if limit == "auto" else limit)
        self._engine = engine
        self._told: int | None = None
        self._overloaded_at = -math.inf
        self._cut_at = -math.inf
        self._answers = 0
        """Answers of this round."""
        self._answered_at = 0.0
        self._round_began: float | None = None
        """When all places were taken; None: not yet."""
        self._paid_size = self._paid_rate = 0.0
        """The last number of calls at once that was found to be good, and how many answers a second it brought."""
        self._rest = 0
        self._quick = 0.0
        """Calls that were answered in `_QUICK_S` in the last round."""
        self._share = math.inf
        """What is left by other clients of an engine that says what it runs."""
        self._idle: bool | None = None
        """Whether the engine had nothing in its queue when it was last looked at; None: it has not told its load."""
        self._looked_at = time.monotonic()
        self._looking: asyncio.Task[None] | None = None
        self._asked_about: float | None = None
        """Answers a second of a round that ended, about which a look at the queue is to say what follows."""
        self._settled = -1.0, -math.inf
        """The number of calls at once that the last such look left as it was, and when."""
        self._limiter: anyio.CapacityLimiter | None = None
        """Made on the loop that it is used on."""

    @property
    def taken(self) -> int:
        """Calls in flight."""
        return self._limiter.borrowed_tokens if self._limiter is not None else 0

    @property
    def full(self) -> bool:
        """Whether all places are taken. May be read from any thread."""
        return self.taken >= int(self.size)

    @property
    def total(self) -> int:
        """Calls that may be in flight now. May be read from any thread."""
        return int(self.size)

    @property
    def starved(self) -> bool | None:
        """Whether the engine would run more calls than it has now; None where it does not tell. May be read from any thread."""
        if self._idle is not None:
            return self._idle
        told = getattr(self._engine, "sequences", None)
        return None if told is None else self.taken < told

    async def enter(self, call: Call, /) -> None:
        self._listen()
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(int(self.size))
        try:
            self._limiter.acquire_on_behalf_of_nowait(call)
        except anyio.WouldBlock:
            with off_the_clock():
                await self._limiter.acquire_on_behalf_of(call)
        self._entered()

    def leave(self, call: Call, /) -> None:
        assert self._limiter is not None
        self._listen()
        in_flight = self.taken
        self._limiter.release_on_behalf_of(call)
        outcome = call.outcome
        if not isinstance(outcome, BaseException):
            self._answered()
        elif call.sent < math.inf and self._is_overload(call, outcome):
            self._overloaded_at = time.monotonic()
            if call.sent > self._cut_at:
                self._cut_at = self._overloaded_at
                self._resize(min(self.size, in_flight) / 2)

    def close(self) -> None:
        """Ask the engine nothing more."""
        if self._looking is not None:
            self._looking.cancel()

    def _listen(self) -> None:
        """Take note of how many sequences the engine runs: once it is loaded, or has another number of replicas."""
        told = getattr(self._engine, "sequences", None)
        if told != self._told:
            self._told, self._share, self._quick = told, math.inf, 0.0
            self._resize(self.size)

    @property
    def _overloaded(self) -> bool:
        return time.monotonic() - self._overloaded_at < _CAREFUL_S

    @property
    def _most(self) -> float:
        if self.limit != "auto":
            return self.limit
        if self._told is not None:
            return max(1.0, min(self._useful(self._told), self._share))
        return _MOST if self._idle is None else _MOST_TOLD

    def _useful(self, told: int) -> float:
        """Calls at once that an engine can use which runs so many."""
        return max(2.0 * told, min(4.0 * told, self._quick))

    def _is_overload(self, call: Call, outcome: BaseException) -> bool:
        if overloads(outcome):
            return True
        if self.limit != "auto":
            return False
        if isinstance(outcome, asyncio.CancelledError):  # its caller had no time left
            return time.monotonic() - call.sent > _LATE_S
        lost = isinstance(outcome, JudgeUnavailable) and outcome.lost
        return not lost and isinstance(outcome, JudgeUnavailable | JudgeTimeout)

    def _answered(self) -> None:
        if self.limit != "auto":
            self._resize(self.size + 1)
        elif self._overloaded:
            self._resize(self.size + 1 / self.size)
        self._answers += 1
        self._answered_at = time.monotonic()
        if self._answered_at - self._looked_at >= _LOOK_S:
            self._begin_look()

    def _entered(self) -> None:
        """Take note of a call that has its place. A round lasts until as many answers have come, and all places are taken again."""
        taken, now = self.taken, time.monotonic()
        if taken == 1 and now - self._answered_at > _IDLE_S:
            self._round_began = None  # nobody asked for a while
        if taken < int(self.size):
            return
        if self._round_began is not None:
            seconds = now - self._round_began
            if self._answers < self.size or seconds < _ROUND_S:
                return
            rate = self._answers / seconds
            self._quick = _QUICK_S * rate
            if hasattr(self._engine, "load"):
                size, since = self._settled
                if size != self.size or now - since >= _LOOK_S:
                    self._asked_about = rate
                    self._begin_look()
            else:
                self._try_more(rate, None if self._told is None else self._most)
        self._round_began, self._answers = now, 0

    def _begin_look(self) -> None:
        if hasattr(self._engine, "load") and (self._looking is None or self._looking.done()):
            self._looked_at = time.monotonic()
            self._looking = asyncio.get_running_loop().create_task(self._look(), context=Context())

    async def _look(self) -> None:
        """Look at the engine's queue, and say what follows for a round that ended, in which all places were taken."""
        try:
            load = await self._engine.load()
        except JudgekitError:
            load = None
        if load is not None:
            self._idle = not load.waiting
        rate, self._asked_about = self._asked_about, None
        if rate is None:
            return
        most: float | None = None
        size = self.size
        if self._told is not None:
            if load is not None:
                # others have calls in flight, too: all clients together have what it can use
                others = (load.running + load.waiting) / self._useful(self._told)
                self._share = max(1.0, self.size / others) if others > _PAYS else math.inf
                self._resize(self.size)
            most = self._most
        elif load is not None:
            most = max(2 * (self.size - load.waiting), self.size)
        self._try_more(rate, most)
        self._settled = size if self.size == size else -1.0, time.monotonic()

    def _try_more(self, rate: float, most: float | None) -> None:
        """Try twice as many calls at once, up to *most*; keep them if they are good, and go back otherwise.

        They are good if they bring more answers a second, or are answered soon by an engine that says how many it can use; None:
        it does not say.
        """
        if self.limit != "auto" or self._overloaded:
            return
        soon = most is not None and self.size <= _SOON_S * rate
        if self.size > self._paid_size and not (soon or rate >= _PAYS * self._paid_rate):
            self._resize(self._paid_size)
            self._rest = _REST
            return
        self._paid_size, self._paid_rate = self.size, rate
        if self._rest:
            self._rest -= 1
        else:
            self._resize(min(2 * self.size, math.inf if most is None else most))

    def _resize(self, size: float) -> None:
        self.size = min(max(size, 1.0), self._most)
        if self._limiter is not None and self._limiter.total_tokens != int(self.size):
            self._limiter.total_tokens = int(self.size)
            self._round_began = None
