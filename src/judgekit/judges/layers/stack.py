"""Layers around a judge; each is a judge itself, and `stacked` combines them.

    Cached( Retrying( Limited( engine )))

Neither a cache hit nor a call that waits for its next attempt takes a slot.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from judgekit.errors import ConfigError, JudgeTimeout
from judgekit.execution.limits import Limit, Retry
from judgekit.execution.threads import in_own_thread
from judgekit.fork import in_child, leave_to_parent
from judgekit.judges.base import Judge, JudgeReply, JudgeRequest, RewardModel, Turn
from judgekit.judges.health import HangGuard
from judgekit.judges.home import at_home
from judgekit.judges.layers.cache import Cached, DiskCache
from judgekit.judges.layers.places import Places
from judgekit.judges.layers.pressure import Breaker, Call, Gate, Pause, RateLimit
from judgekit.judges.layers.retrying import Retrying, beside
from judgekit.judges.layers.spending import Budget, Spending, TokenRate
from judgekit.judges.prompts.images import Images, images_of
from judgekit.types import Price, Usage


class Limited:
    """Sends calls to *inner* through *gates*, in their order; *attempt_timeout_s* starts when a call is sent. *guard*: cuts it off
    where the engine hangs.

    The gates apply to all runners, event loops and threads of the process together.
    """

    def __init__(
        self,
        inner: Judge,
        gates: Sequence[Gate] = (),
        *,
        attempt_timeout_s: float | None = None,
        guard: HangGuard | None = None,
    ) -> None:
        if attempt_timeout_s is not None and not attempt_timeout_s > 0:
            raise ConfigError(f"attempt_timeout_s is a number of seconds above 0, not {attempt_timeout_s!r}")
        self.inner = inner
        self.gates = tuple(gates)
        self._ask = inner.complete if guard is None else partial(guard.complete, inner)
        self.attempt_timeout_s = attempt_timeout_s

    async def complete(self, request: JudgeRequest, /) -> JudgeReply:
        call = Call(request)
        entered = 0
        try:
            for gate in self.gates:
                await gate.enter(call)
                entered += 1
            call.sent = time.monotonic()
            call.outcome = reply = await self._timed(request)
            return reply
        except BaseException as error:
            call.outcome = error
            raise
        finally:
            _leave(self.gates[:entered], call)

    async def _timed(self, request: JudgeRequest) -> JudgeReply:
        if self.attempt_timeout_s is None:
            return await self._ask(request)
        try:
            async with asyncio.timeout(self.attempt_timeout_s) as scope:
                return await self._ask(request)
        except TimeoutError:
            if not scope.expired():
                raise
            raise JudgeTimeout(f"no answer within {self.attempt_timeout_s:g} s") from None


def _leave(gates: Sequence[Gate], call: Call) -> None:
    """Leave the gates, the last one first; all of them, also where one raises."""
    for left in range(len(gates) - 1, -1, -1):
        try:
            gates[left].leave(call)
        except BaseException:
            _leave(gates[:left], call)
            raise


class LayerOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of the layers around an engine; the section `layers` in reward.yaml."""

    max_concurrency: Limit = "auto"
    """Calls in flight at once, over all runners of the process. "auto": as many as keep the engine busy, see `Places`."""
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    """Of prompts and replies together."""
    budget: Budget | None = None
    """What this process may spend in all."""
    price: Price | None = None
    """What tokens cost, for a budget in US dollars and for reports."""
    attempt_timeout_s: float | None = None
    """Seconds for one attempt, from when it has its slot."""
    retry: Retry | None = Retry()
    """None: no retries, and no wait for a restart."""
    restart_wait_s: float = 600.0
    """Seconds that calls wait for an engine that is being restarted, from when it went down; they count against no
    evaluation's `timeout_s`. 0: they fail instead."""
    breaker: BreakerOptions | None = None
    cache: CacheOptions | None = None

    def __post_init__(self) -> None:
        if not self.restart_wait_s >= 0:
            raise ConfigError(
                f"restart_wait_s is a number of seconds, at least 0, not {self.restart_wait_s!r}"
            )


class BreakerOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of `Breaker`."""

    failures: int = 8
    open_s: float = 10.0


class CacheOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of `Cached` and its `DiskCache`."""

    entries: int = 50_000
    """Replies kept in memory."""
    path: str | os.PathLike[str] | None = None
    """A file to keep them on disk, too; several processes can share it."""


def stacked(engine: Judge, options: LayerOptions | None = None) -> Stack:
    """Wrap *engine* in the layers that *options* ask for, always in the same order."""
    return Stack(engine, options or LayerOptions())


def stacked_reward_model(model: RewardModel, options: LayerOptions | None = None) -> RewardModelStack:
    """Wrap a reward model in the layers that *options* ask for. Raises ConfigError for a cache: it keeps verdicts."""
    return RewardModelStack(model, options or LayerOptions())


class _Layers:
    """The layers around one engine. They belong to one event loop."""

    def __init__(self, asked: Any, engine: Any, options: LayerOptions, disk: DiskCache | None) -> None:
        who = repr(engine)
        breaker = None
        if options.breaker is not None:
            breaker = Breaker(failures=options.breaker.failures, open_s=options.breaker.open_s, who=who)
        gates: list[Gate] = [] if breaker is None else [breaker]
        self.places = Places(options.max_concurrency, engine)
        gates += [self.places, Pause(options.restart_wait_s)]
        if options.requests_per_minute is not None:
            gates.append(RateLimit(options.requests_per_minute))
        if options.tokens_per_minute is not None:
            gates.append(TokenRate(options.tokens_per_minute, who))
        if options.budget is not None:  # last: what is never sent costs nothing
            gates.append(Spending(options.budget, options.price, who))
        self.outer: Any = Limited(
            asked, gates, attempt_timeout_s=options.attempt_timeout_s, guard=HangGuard(engine)
        )
        self.retrying: Retrying | None = None
        if options.retry is not None and options.retry.attempts > 1:
            self.outer = self.retrying = Retrying(
                self.outer,
                options.retry,
                engine=engine,
                restart_wait_s=options.restart_wait_s,
                breaker=breaker,
            )
        self.cached: Cached | None = None
        if not isinstance(asked, _Asked):
            entries = options.cache.entries if options.cache else 0
            self.outer = self.cached = Cached(
                self.outer, entries=entries, disk=disk, identify=engine, retrying=self.retrying
            )


class _Stacked:
    """An engine in its layers, which all live on judgekit's background loop.

    Callers of any event loop and thread cross over to it, with their context, so that limits, caches and connections are shared
    by all of them. Made again in a forked child, and where that loop was closed.
    """

    def __init__(self, engine: Any, options: LayerOptions, asked: Any) -> None:
        self.engine = engine
        self.options = options
        self.price = options.price
        self._asked = asked
        cache = options.cache
        self._disk = DiskCache(cache.path) if cache is not None and cache.path is not None else None
        self._layers = self._made()
        self._home: asyncio.AbstractEventLoop | None = None
        self.heard: Callable[[Any, Any], None] | None = None
        """Is told each request and its reply, of a cache too: for a recording. Not pickled."""
        in_child(self._forked)

    def _made(self) -> _Layers:
        return _Layers(self._asked, self.engine, self.options, self._disk)

    def _forked(self) -> None:
        leave_to_parent(self._layers)
        self._layers, self._home = self._made(), None

    @property
    def outer(self) -> Any:
        """The outermost layer."""
        return self._layers.outer

    @property
    def places(self) -> int:
        """Calls that are sent to the engine at once, at most. A runner has as many evaluations under way."""
        return self._layers.places.total

    @property
    def full(self) -> bool:
        """Whether all these are in flight."""
        return self._layers.places.full

    @property
    def starved(self) -> bool | None:
        """Whether the engine runs fewer requests than it could; None where it does not tell."""
        return self._layers.places.starved

    def _here(self) -> _Layers:
        """Return the layers of the running loop."""
        loop = asyncio.get_running_loop()
        if self._home is not loop:
            if self._home is not None:
                self._layers = self._made()
            self._home = loop
        return self._layers

    async def _complete(self, request: Any) -> Any:
        replied = await self._here().outer.complete(request)
        if self.heard is not None:
            self.heard(request, replied)
        return replied

    async def start(self) -> None:
        """Open the cache's file, and start the engine, if it has `start`."""
        if self._disk is not None:
            self._disk.open()
        if start := getattr(self.engine, "start", None):
            await at_home(self._start, start)

    async def _start(self, start: Callable[[], Awaitable[None]]) -> None:
        retrying = self._here().retrying
        await beside(retrying, start)
        if retrying is not None:
            retrying.answered()

    async def close(self) -> None:
        """Close the engine, if it has `close`, and the cache."""
        await at_home(self._close)
        if self._disk is not None:
            await in_own_thread(self._disk.close)

    async def _close(self) -> None:
        self._layers.places.close()
        if close := getattr(self.engine, "close", None):
            await close()

    def __repr__(self) -> str:
        return repr(self.engine)


class Stack(_Stacked):
    """Layers with their engine, which it starts and closes."""

    def __init__(self, engine: Any, options: LayerOptions) -> None:
        super().__init__(engine, options, engine)

    async def complete(self, request: JudgeRequest, /) -> JudgeReply:
        reply: JudgeReply = await at_home(self._complete, request)
        return reply

    @property
    def images(self) -> Images:
        """The images that the engine is shown."""
        return images_of(self.engine)

    async def check_request(self, request: JudgeRequest) -> None:
        """Let the engine check that it can answer such requests, if it has `check_request`. Raises ConfigError."""
        if check := getattr(self.engine, "check_request", None):
            await at_home(self._check, request, partial(check, request))

    async def _check(self, request: JudgeRequest, check: Callable[[], Awaitable[None]]) -> None:
        layers = self._here()
        ask = partial(beside, layers.retrying, check)
        await (layers.cached.check(request, ask) if layers.cached is not None else ask())

    def __reduce__(self) -> Any:
        return Stack, (self.engine, self.options)


class _Asked:
    """A reward model as layers see it: what they call with a request is its `reward`."""

    def __init__(self, model: RewardModel) -> None:
        self.model = model

    async def complete(self, turns: Sequence[Turn], /) -> tuple[float, Usage]:
        return await self.model.reward(turns)

    def __repr__(self) -> str:
        return repr(self.model)


class RewardModelStack(_Stacked):
    """Layers with their reward model, which it starts and closes. Raises ConfigError for a cache: it keeps verdicts."""

    def __init__(self, model: Any, options: LayerOptions) -> None:
        if options.cache is not None:
            raise ConfigError("a reward model has no cache")
        super().__init__(model, options, _Asked(model))

    @property
    def model(self) -> Any:
        return self.engine

    async def reward(self, turns: Sequence[Turn], /) -> tuple[float, Usage]:
        found: tuple[float, Usage] = await at_home(self._complete, turns)
        return found

    def __reduce__(self) -> Any:
        return RewardModelStack, (self.engine, self.options)
