"""Routes requests to replicas of one model."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Sequence
from contextvars import Context
from hashlib import blake2b
from typing import Any

import msgspec

from judgekit.errors import ConfigError, JudgeError, JudgeTimeout, JudgeUnavailable
from judgekit.execution.flight import Flights
from judgekit.execution.together import together
from judgekit.judges.base import Judge, JudgeReply, JudgeRequest
from judgekit.judges.engines.engine_load import EngineLoad
from judgekit.judges.health import HangGuard, is_ready
from judgekit.judges.prompts.images import Images, images_of

logger = logging.getLogger("judgekit")


_IDENTITY_S = 3.0
"""The identity of the weights is asked again after so many seconds."""
_LEFT_OUT_S = 60.0
"""A replica that asks for a longer pause is asked again after so many seconds: it may have been one client's."""


class Routed:
    """Sends each request to the replica that has cached its prefix.

    Requests of one group share rubric, problem and reference, so they go to the same replica and hit its prefix
    cache (rendezvous hashing of the shared part). If that replica has *spill* more calls in flight than the least
    loaded one, the least loaded one gets the request. If a replica is unavailable, times out or hangs, the request
    goes to another. The failed one is left out; every *probe_s* seconds it is asked whether it is ready, or gets one
    request if it cannot say.
    """

    def __init__(self, replicas: Sequence[Judge], *, spill: int = 16, probe_s: float = 5.0) -> None:
        if not replicas:
            raise ConfigError("routed: give at least one replica")
        if spill < 1 or not probe_s > 0:
            raise ConfigError(
                "routed: spill is a number of calls, at least 1, and probe_s a number of seconds above 0"
            )
        self.replicas = [_Replica(judge, str(number)) for number, judge in enumerate(replicas)]
        self.spill = spill
        self.probe_s = probe_s
        self._identity = ""
        self._identity_until = 0.0
        """Monotonic time until which it is not asked again; then a replica may have come back with other weights."""
        self._asking: Flights[None] = Flights()

    async def complete(self, request: JudgeRequest, /) -> JudgeReply:
        prefix = shared_prefix(request)
        tried: set[str] = set()
        while True:
            replica = self._choose(prefix, tried)
            tried.add(replica.name)
            replica.in_flight += 1
            try:
                reply: JudgeReply = await replica.guard.complete(replica.judge, request)
            except (JudgeUnavailable, JudgeTimeout) as error:
                self._leave_out(replica, getattr(error, "retry_after", None) or 0.0)
                if len(tried) == len(self.replicas):
                    raise
                continue
            finally:
                replica.in_flight -= 1
            self._is_back(replica)
            return self._signed(replica, reply)

    def _signed(self, replica: _Replica, reply: JudgeReply) -> JudgeReply:
        """Return *reply* with the identity of the whole, if its maker has it and no other replica differs."""
        if not self._identity_until and not self._identity:  # nobody keeps replies
            return reply
        if reply.identity is None and self._identity:
            return reply
        made_by = self._identity if reply.identity == replica.identity else ""
        return msgspec.structs.replace(reply, identity=made_by)

    def _is_back(self, replica: _Replica) -> None:
        if replica.dead_until:
            replica.dead_until = 0.0
            self._identity_until = 0.0

    def _leave_out(self, replica: _Replica, wait_s: float = 0.0) -> None:
        self._identity_until = 0.0  # it may come back with other weights
        replica.dead_until = time.monotonic() + max(self.probe_s, min(wait_s, _LEFT_OUT_S))

    def _choose(self, prefix: bytes, tried: set[str]) -> _Replica:
        now = time.monotonic()
        fresh = [r for r in self.replicas if r.name not in tried]
        for replica in fresh:
            if 0 < replica.dead_until <= now:
                if replica.can_say:
                    self._ask(replica)
                elif not replica.in_flight:
                    return replica  # this request is the probe
        alive = [r for r in fresh if not r.dead_until] or fresh
        home = max(alive, key=lambda r: blake2b(prefix, key=r.name.encode(), digest_size=8).digest())
        calmest = min(alive, key=lambda r: r.in_flight)
        return calmest if home.in_flight >= calmest.in_flight + self.spill else home

    def _ask(self, replica: _Replica) -> None:
        """Ask a replica that was left out whether it is ready, beside the requests."""
        if (
            replica.asking is not None
            and not replica.asking.done()
            and not replica.asking.get_loop().is_closed()
        ):
            return

        async def ask() -> None:
            with contextlib.suppress(ConfigError):
                await self._is_ready(replica)

        # in a context of its own, for it outlives the request that it is made in
        replica.asking = asyncio.get_running_loop().create_task(ask(), context=Context())

    async def _is_ready(self, replica: _Replica) -> bool:
        if await is_ready(replica.judge):
            self._is_back(replica)
            return True
        self._leave_out(replica)
        return False

    async def ready(self) -> bool:
        """Whether a replica would answer now."""
        asking = [asyncio.ensure_future(self._is_ready(replica)) for replica in self.replicas]
        try:
            for answer in asyncio.as_completed(asking):
                if await answer:
                    return True  # not later: one that hangs takes its time to say nothing
            return False
        finally:
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)

    def hangs(self) -> None:
        """Let all replicas do what they can: whoever watches the whole may find it out before their own guards, and cuts off their calls."""
        for replica in self.replicas:
            if hangs := getattr(replica.judge, "hangs", None):
                hangs()

    @property
    def sequences(self) -> int | None:
        """Requests that the replicas run at once; None if one of them does not say."""
        alive = [r for r in self.replicas if not r.dead_until] or self.replicas
        told = [getattr(replica.judge, "sequences", None) for replica in alive]
        return None if None in told else sum(told)  # type: ignore[arg-type]

    async def load(self) -> EngineLoad | None:
        """Return how busy the replicas are that say it; None if none does."""
        asked = [r.judge for r in self.replicas if not r.dead_until and hasattr(r.judge, "load")]
        told = [
            load for load in await together(judge.load() for judge in asked) if isinstance(load, EngineLoad)
        ]
        return sum(told[1:], told[0]) if told else None

    @property
    def images(self) -> Images:
        """The images that every replica is shown."""
        said = {images_of(replica.judge) for replica in self.replicas}
        return next(images for images in ("none", "data", "any") if images in said)

    @property
    def can_sleep(self) -> bool:
        """Whether every replica can sleep."""
        return all(getattr(replica.judge, "can_sleep", False) for replica in self.replicas)

    async def sleep(self) -> None:
        """Let all replicas sleep. Raises as `start` does; one that cannot be reached while others sleep is logged."""
        self._leave_out_failed("put to sleep", await together(r.judge.sleep() for r in self.replicas))

    async def wake_up(self) -> None:
        """Wake all replicas. Raises as `start` does; one that does not wake beside others that do is left out."""
        self._leave_out_failed("woken", await together(r.judge.wake_up() for r in self.replicas))
        await self.ready()  # who was left out meanwhile is asked at once

    async def start(self) -> None:
        """Start all replicas, side by side.

        Raises the first error if none starts, and a ConfigError in any case. A replica that does not start beside
        others that do is left out until it is ready.
        """
        self._leave_out_failed("started", await together(_start(r.judge) for r in self.replicas))
        told = {str(getattr(replica.judge, "weights", None) or "") for replica in self.replicas} - {""}
        if len(told) > 1:
            logger.warning(
                "%r: the replicas say that they serve different models, %s: what a rollout gets depends on which of them it meets",
                self,
                ", ".join(sorted(told)),
            )

    def _leave_out_failed(self, what: str, outcomes: Sequence[Any]) -> None:
        """Raise what failed for all replicas, or for any by no fault of its engine; leave out those that failed alone."""
        errors = [error for error in outcomes if isinstance(error, BaseException)]
        for error in errors:
            if not isinstance(error, JudgeError) or len(errors) == len(self.replicas):
                raise error
        for replica, outcome in zip(self.replicas, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                logger.error("%r was not %s, and the other replicas are: %s", replica.judge, what, outcome)
                self._leave_out(replica)

    async def close(self) -> None:
        """Close all replicas."""
        for replica in self.replicas:
            if replica.asking is not None and not replica.asking.done():
                replica.asking.cancel()
            if close := getattr(replica.judge, "close", None):
                await close()

    async def check_request(self, request: JudgeRequest) -> None:
        """Let a replica that answers check that it can answer such requests. Raises ConfigError."""
        gone: JudgeUnavailable | JudgeTimeout | None = None
        for replica in self.replicas:
            if check := getattr(replica.judge, "check_request", None):
                try:
                    await check(request)
                except (JudgeUnavailable, JudgeTimeout) as error:
                    gone = error
                else:
                    return
        if gone is not None:
            raise gone

    async def identity(self) -> str:
        """Return the weights' identity; empty if the replicas' differ. Raises JudgeError if none tells it.

        It is that of the first replica that tells it, by their order. Asked every few seconds, and whenever a replica may be another by now.
        """
        known = all(
            getattr(replica.judge, "known", True) for replica in self.replicas if not replica.dead_until
        )
        if not known or time.monotonic() >= self._identity_until:
            await self._asking.join(None, self._ask_identities)
        return self._identity

    async def _ask_identities(self) -> None:
        asked = [r for r in self.replicas if not r.dead_until] or self.replicas
        asking = [asyncio.ensure_future(_identity_of(replica.judge)) for replica in asked]
        try:
            for answer in asyncio.as_completed(asking):
                with contextlib.suppress(JudgeError):
                    if await answer:
                        break
            await asyncio.wait(asking, timeout=_IDENTITY_S)  # one that hangs takes its time to say nothing
        finally:
            for task in asking:
                task.cancel()
            outcomes = await asyncio.gather(*asking, return_exceptions=True)
        self._take_identities(asked, outcomes)

    def _take_identities(
        self, asked: Sequence[_Replica], outcomes: Sequence[str | BaseException | None]
    ) -> None:
        """Keep what each replica said that it is. Raises an error of theirs if none said it."""
        for replica in self.replicas:
            replica.identity = None
        for replica, outcome in zip(asked, outcomes, strict=True):
            if not isinstance(outcome, BaseException):
                replica.identity = outcome
        told = [replica for replica in self.replicas if replica.identity]
        errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        if errors and not told:
            raise errors[0]
        kinds = {getattr(replica.judge, "likeness", replica.identity) for replica in told}
        mute = any(not hasattr(replica.judge, "identity") for replica in self.replicas)
        if not told:
            self._identity = repr(self)
        else:
            self._identity = told[0].identity or "" if len(kinds) == 1 and not mute else ""
        self._identity_until = time.monotonic() + _IDENTITY_S

    @property
    def known_as(self) -> str:
        """What the replicas are known by while none answers."""
        return f"Routed({', '.join(getattr(r.judge, 'known_as', repr(r.judge)) for r in self.replicas)})"

    def __reduce__(self) -> Any:
        return _routed, ([replica.judge for replica in self.replicas], self.spill, self.probe_s)

    def __repr__(self) -> str:
        return f"Routed({', '.join(repr(r.judge) for r in self.replicas)})"


def _routed(judges: Sequence[Judge], spill: int, probe_s: float) -> Routed:
    return Routed(judges, spill=spill, probe_s=probe_s)


async def _start(judge: Any) -> None:
    if start := getattr(judge, "start", None):
        await start()


async def _identity_of(judge: Any) -> str | None:
    """Return what a replica says that it is; None if it cannot say. Raises JudgeError if it does not, for now."""
    identity = getattr(judge, "identity", None)
    return None if identity is None else str(await identity())


class _Replica:
    __slots__ = ("asking", "can_say", "dead_until", "guard", "identity", "in_flight", "judge", "name")

    def __init__(self, judge: Judge, name: str) -> None:
        self.judge: Any = judge
        self.name = name
        self.guard = HangGuard(judge)
        self.can_say = hasattr(judge, "ready")
        """Whether it can be asked if it is ready."""
        self.asking: asyncio.Task[None] | None = None
        self.identity: str | None = None
        """What it said that it is, when it was last asked."""
        self.in_flight = 0
        self.dead_until = 0.0
        """Monotonic time of its next probe; 0 while it works."""


def shared_prefix(request: JudgeRequest) -> bytes:
    """Return what a request shares with its group: everything before its last untrusted piece."""
    pieces = [piece for turn in request.turns for piece in turn.pieces]
    last = max((i for i, piece in enumerate(pieces) if not piece.trusted), default=len(pieces))
    return "".join(piece.image or piece.text for piece in pieces[:last]).encode("utf-8", "surrogatepass")
